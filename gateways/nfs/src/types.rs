//! The types of NFSv3 (RFC 1813, section 2) on their way to and from the nouns of Weft.

use weft_base::{Attr, FileKind, FsId, Status, WallTime};
use weft_client::SetAttr;
use weft_wire::ops::SetTime;

use crate::rpc::Refusal;
use crate::xdr::{Garbage, Reader, Result, Writer};

/// Bytes that a directory seems to have.
const DIRECTORY_BYTES: u64 = 4096;
/// Nanoseconds of a second.
const SECOND_NS: i64 = 1_000_000_000;
/// Encoded attributes, in bytes.
pub const ATTR_BYTES: usize = 84;

/// `nfsstat3`: why a procedure failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NfsStatus(pub u32);

impl NfsStatus {
    /// Success.
    pub const OK: NfsStatus = NfsStatus(0);
    /// Only the owner may do it.
    pub const NOT_PERMITTED: NfsStatus = NfsStatus(1);
    /// There is no such name.
    pub const NOT_FOUND: NfsStatus = NfsStatus(2);
    /// Mode or access control list forbid it.
    pub const ACCESS_DENIED: NfsStatus = NfsStatus(13);
    /// The name is taken.
    pub const EXISTS: NfsStatus = NfsStatus(17);
    /// Not between two exports.
    pub const CROSS_DEVICE: NfsStatus = NfsStatus(18);
    /// It is no directory.
    pub const NOT_DIRECTORY: NfsStatus = NfsStatus(20);
    /// It is a directory.
    pub const IS_DIRECTORY: NfsStatus = NfsStatus(21);
    /// The arguments make no sense.
    pub const INVALID: NfsStatus = NfsStatus(22);
    /// The export is read-only.
    pub const READ_ONLY: NfsStatus = NfsStatus(30);
    /// The owner, or the project, has as much as he may.
    pub const DISK_QUOTA: NfsStatus = NfsStatus(69);
    /// The object is gone.
    pub const STALE: NfsStatus = NfsStatus(70);
    /// These bytes are no handle.
    pub const BAD_HANDLE: NfsStatus = NfsStatus(10001);
    /// The object has changed since.
    pub const NOT_SYNC: NfsStatus = NfsStatus(10002);
    /// The place in the directory is none.
    pub const BAD_COOKIE: NfsStatus = NfsStatus(10003);
    /// Not even one entry fits.
    pub const TOO_SMALL: NfsStatus = NfsStatus(10005);
    /// No such kind of object is made.
    pub const BAD_TYPE: NfsStatus = NfsStatus(10007);
    /// Ask again later.
    pub const LATER: NfsStatus = NfsStatus(10008);
}

impl From<Status> for NfsStatus {
    fn from(status: Status) -> NfsStatus {
        if status.is_transient() || matches!(status, Status::SharedAppend | Status::OthersWrite | Status::CapabilityExpired) {
            return NfsStatus::LATER;
        }
        NfsStatus(match status.errno() {
            // The numbers of errors that NFS shares with every Unix.
            same @ (1 | 2 | 5 | 6 | 13 | 17..=22 | 27 | 28 | 30 | 31) => same as u32,
            36 => 63,
            122 => NfsStatus::DISK_QUOTA.0,
            39 => 66,
            116 => 70,
            95 => 10004,
            _ => 5,
        })
    }
}

/// Why a call has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The procedure failed.
    Failed(NfsStatus),
    /// It was not carried out.
    Refused(Refusal),
}

impl From<NfsStatus> for Failure {
    fn from(status: NfsStatus) -> Failure {
        Failure::Failed(status)
    }
}

impl From<Status> for Failure {
    fn from(status: Status) -> Failure {
        Failure::Failed(status.into())
    }
}

impl From<weft_client::Error> for Failure {
    fn from(error: weft_client::Error) -> Failure {
        error.status.into()
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Failure {
        Failure::Refused(refusal)
    }
}

impl From<Garbage> for Failure {
    fn from(garbage: Garbage) -> Failure {
        Failure::Refused(garbage.into())
    }
}

/// The kind of an object as NFS numbers it.
fn kind_number(kind: FileKind) -> u32 {
    match kind {
        FileKind::File => 1,
        FileKind::Directory => 2,
        FileKind::BlockDevice => 3,
        FileKind::CharDevice => 4,
        FileKind::Symlink => 5,
        FileKind::Socket => 6,
        FileKind::Fifo => 7,
    }
}

/// The kind that MKNOD makes by this number.
pub fn made_kind(number: u32) -> Option<FileKind> {
    [FileKind::BlockDevice, FileKind::CharDevice, FileKind::Socket, FileKind::Fifo].into_iter().find(|kind| kind_number(*kind) == number)
}

/// The number of a device in the form that Linux gives to file systems.
pub fn device(major: u32, minor: u32) -> u32 {
    minor & 0xff | major << 8 | (minor & !0xff) << 12
}

/// `fattr3`.
pub fn put_attr(out: &mut Writer, attr: &Attr, fs_id: FsId) {
    let (size, used) = match attr.kind {
        FileKind::Directory => (DIRECTORY_BYTES, DIRECTORY_BYTES),
        _ => (attr.size, attr.allocated_bytes()),
    };
    let (major, minor) = (attr.rdev >> 8 & 0xfff, attr.rdev & 0xff | attr.rdev >> 12 & 0xfff00);
    out.u32(kind_number(attr.kind)).u32(attr.permissions()).u32(attr.nlink).u32(attr.uid).u32(attr.gid);
    out.u64(size).u64(used).u32(major).u32(minor).u64(fs_id.0).u64(attr.handle.0);
    [attr.atime, attr.mtime, attr.ctime].into_iter().for_each(|time| put_time(out, time));
}

/// `post_op_attr`.
pub fn put_attr_after(out: &mut Writer, attr: Option<&Attr>, fs_id: FsId) {
    out.bool(attr.is_some());
    if let Some(attr) = attr {
        put_attr(out, attr, fs_id);
    }
}

/// `wcc_data`: what was before the change may only be told if nothing else came between.
pub fn put_change(out: &mut Writer, before: Option<&Attr>, after: Option<&Attr>, fs_id: FsId) {
    out.bool(before.is_some());
    if let Some(attr) = before {
        out.u64(if attr.kind == FileKind::Directory { DIRECTORY_BYTES } else { attr.size });
        put_time(out, attr.mtime);
        put_time(out, attr.ctime);
    }
    put_attr_after(out, after, fs_id);
}

/// `nfstime3`; times outside of its range become its ends.
fn put_time(out: &mut Writer, time: WallTime) {
    let (seconds, ns) = nfs_time(time);
    out.u32(seconds).u32(ns);
}

/// Seconds and nanoseconds, as far as NFS can tell them.
pub fn nfs_time(time: WallTime) -> (u32, u32) {
    match u32::try_from(time.0.div_euclid(SECOND_NS)) {
        Ok(seconds) => (seconds, time.0.rem_euclid(SECOND_NS) as u32),
        Err(_) if time.0 < 0 => (0, 0),
        Err(_) => (u32::MAX, 0),
    }
}

/// `nfstime3`.
///
/// # Errors
/// [`Garbage`] for what has a second of nanoseconds or more.
pub fn read_time(reader: &mut Reader) -> Result<WallTime> {
    let (seconds, ns) = (reader.u32()?, reader.u32()?);
    if i64::from(ns) >= SECOND_NS {
        return Err(Garbage);
    }
    Ok(WallTime(i64::from(seconds) * SECOND_NS + i64::from(ns)))
}

fn read_set_time(reader: &mut Reader) -> Result<Option<SetTime>> {
    Ok(match reader.u32()? {
        0 => None,
        1 => Some(SetTime { at: None }),
        2 => Some(SetTime { at: Some(read_time(reader)?) }),
        _ => return Err(Garbage),
    })
}

/// `sattr3`.
///
/// # Errors
/// [`Garbage`].
pub fn read_change(reader: &mut Reader) -> Result<SetAttr> {
    Ok(SetAttr {
        mode: reader.option(Reader::u32)?.map(|mode| mode & 0o7777),
        uid: reader.option(Reader::u32)?,
        gid: reader.option(Reader::u32)?,
        size: reader.option(Reader::u64)?,
        atime: read_set_time(reader)?,
        mtime: read_set_time(reader)?,
        ..SetAttr::default()
    })
}

/// The verifier of an exclusive create as times (access, change) that keep it.
pub fn times_of(verifier: [u8; 8]) -> (WallTime, WallTime) {
    let [a, b, c, d, e, f, g, h] = verifier;
    let time = |bytes| WallTime(i64::from(u32::from_be_bytes(bytes)) * SECOND_NS);
    (time([a, b, c, d]), time([e, f, g, h]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_of_weft_have_one_of_nfs() {
        // RFC 1813, section 2.6.
        let known = [
            1, 2, 5, 6, 13, 17, 18, 19, 20, 21, 22, 27, 28, 30, 31, 63, 66, 69, 70, 71, 10001, 10002, 10003, 10004, 10005, 10006, 10007,
            10008,
        ];
        for status in Status::ALL {
            assert!(known.contains(&NfsStatus::from(*status).0), "{status:?}");
        }
        let of = |status: Status| NfsStatus::from(status).0;
        assert_eq!((of(Status::NotFound), of(Status::NotEmpty), of(Status::NameTooLong), of(Status::Stale)), (2, 66, 63, 70));
        assert_eq!(
            (of(Status::TimedOut), of(Status::KeyReadsOnly), of(Status::NotSupported), of(Status::BadChecksum)),
            (10008, 30, 10004, 5)
        );
    }

    #[test]
    fn times_have_the_range_of_the_protocol() {
        assert_eq!(nfs_time(WallTime(1_700_000_000_123_456_789)), (1_700_000_000, 123_456_789));
        assert_eq!(nfs_time(WallTime(-1)), (0, 0));
        assert_eq!(nfs_time(WallTime(i64::MAX)), (u32::MAX, 0));
        let read = |seconds: u32, ns: u32| {
            let mut out = Writer::default();
            out.u32(seconds).u32(ns);
            read_time(&mut Reader::new(out.0.into()))
        };
        assert_eq!(read(u32::MAX, 5), Ok(WallTime(4_294_967_295_000_000_005)));
        assert_eq!(read(1, 1_000_000_000), Err(Garbage));
        let (access, change) = times_of([0xff, 0xff, 0xff, 0xff, 0, 0, 0, 7]);
        assert_eq!((nfs_time(access), nfs_time(change)), ((u32::MAX, 0), (7, 0)));
    }

    #[test]
    fn devices_are_numbered_as_by_linux() {
        for (major, minor) in [(1, 3), (8, 255), (259, 70_000)] {
            let rdev = device(major, minor);
            assert_eq!((rdev >> 8 & 0xfff, rdev & 0xff | rdev >> 12 & 0xfff00), (major, minor));
        }
        assert_eq!(made_kind(7), Some(FileKind::Fifo));
        assert_eq!((made_kind(1), made_kind(2), made_kind(5), made_kind(8)), (None, None, None, None));
    }
}
