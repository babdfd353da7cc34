//! The bytes of the kernel's FUSE protocol (version 7): numbers of operations, and records in the
//! byte order of the machine.
//!
//! A request is a header, a record of a size that its operation fixes, and the rest: names, a
//! value, data. Over the device they follow each other; over io_uring each has its own place.

use super::types::{FileAttr, FileType, INodeNo, KernelTime, Ttls};

/// Version of the protocol that is spoken here.
pub const MAJOR: u32 = 7;
/// As above; 42 brought io_uring.
pub const MINOR: u32 = 42;
/// The oldest that can be spoken: with it came the number of pages.
pub const MINOR_MIN: u32 = 28;

/// Bytes of the header of a request.
pub const IN_HEADER_BYTES: usize = 40;
/// Bytes of the header of a reply.
pub const OUT_HEADER_BYTES: usize = 16;

/// What `statx` says of every object: all that `stat` does.
const STATX_BASIC: u32 = 0x7ff;
/// ... and when it was made.
const STATX_BORN: u32 = 0x800;

/// Numbers of operations.
#[allow(missing_docs)]
pub mod opcode {
    pub const LOOKUP: u32 = 1;
    pub const FORGET: u32 = 2;
    pub const GETATTR: u32 = 3;
    pub const SETATTR: u32 = 4;
    pub const READLINK: u32 = 5;
    pub const SYMLINK: u32 = 6;
    pub const MKNOD: u32 = 8;
    pub const MKDIR: u32 = 9;
    pub const UNLINK: u32 = 10;
    pub const RMDIR: u32 = 11;
    pub const RENAME: u32 = 12;
    pub const LINK: u32 = 13;
    pub const OPEN: u32 = 14;
    pub const READ: u32 = 15;
    pub const WRITE: u32 = 16;
    pub const STATFS: u32 = 17;
    pub const RELEASE: u32 = 18;
    pub const FSYNC: u32 = 20;
    pub const SETXATTR: u32 = 21;
    pub const GETXATTR: u32 = 22;
    pub const LISTXATTR: u32 = 23;
    pub const REMOVEXATTR: u32 = 24;
    pub const FLUSH: u32 = 25;
    pub const INIT: u32 = 26;
    pub const OPENDIR: u32 = 27;
    pub const READDIR: u32 = 28;
    pub const RELEASEDIR: u32 = 29;
    pub const FSYNCDIR: u32 = 30;
    pub const GETLK: u32 = 31;
    pub const SETLK: u32 = 32;
    pub const SETLKW: u32 = 33;
    pub const CREATE: u32 = 35;
    pub const INTERRUPT: u32 = 36;
    pub const DESTROY: u32 = 38;
    pub const NOTIFY_REPLY: u32 = 41;
    pub const BATCH_FORGET: u32 = 42;
    pub const FALLOCATE: u32 = 43;
    pub const READDIRPLUS: u32 = 44;
    pub const RENAME2: u32 = 45;
    pub const LSEEK: u32 = 46;
    pub const COPY_FILE_RANGE: u32 = 47;
    pub const TMPFILE: u32 = 51;
    pub const STATX: u32 = 52;
}

/// Bytes of the record of an operation; `None` for an operation that is not served. That of
/// SETXATTR has 8 if its extension is not agreed upon.
pub fn fixed_bytes(code: u32) -> Option<usize> {
    use opcode::*;
    Some(match code {
        LOOKUP | READLINK | SYMLINK | UNLINK | RMDIR | STATFS | REMOVEXATTR | DESTROY => 0,
        FORGET | MKDIR | RENAME | LINK | OPEN | OPENDIR | GETXATTR | LISTXATTR | INTERRUPT | BATCH_FORGET => 8,
        GETATTR | MKNOD | SETXATTR | CREATE | TMPFILE | FSYNC | FSYNCDIR | RENAME2 => 16,
        RELEASE | RELEASEDIR | FLUSH | LSEEK | STATX => 24,
        FALLOCATE => 32,
        READ | WRITE | READDIR | READDIRPLUS | NOTIFY_REPLY => 40,
        GETLK | SETLK | SETLKW => 48,
        COPY_FILE_RANGE => 56,
        SETATTR => 88,
        INIT => 16,
        _ => return None,
    })
}

/// A request that does not follow the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

/// The header of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InHeader {
    /// Bytes of the whole request.
    pub len: u32,
    /// The operation.
    pub opcode: u32,
    /// What the reply must repeat.
    pub unique: u64,
    /// The object.
    pub node: u64,
    /// Who asks.
    pub uid: u32,
    /// As above.
    pub gid: u32,
    /// The thread that asks.
    pub pid: u32,
}

impl InHeader {
    /// Reads a header.
    ///
    /// # Errors
    /// If it is cut short.
    pub fn parse(bytes: &[u8]) -> Result<InHeader, Malformed> {
        let mut fields = Fields(bytes.get(..IN_HEADER_BYTES).ok_or(Malformed)?);
        Ok(InHeader {
            len: fields.u32()?,
            opcode: fields.u32()?,
            unique: fields.u64()?,
            node: fields.u64()?,
            uid: fields.u32()?,
            gid: fields.u32()?,
            pid: fields.u32()?,
        })
    }
}

/// Numbers one after the other.
#[derive(Clone, Copy, Debug)]
pub struct Fields<'a>(pub &'a [u8]);

impl<'a> Fields<'a> {
    /// The next 4 bytes.
    ///
    /// # Errors
    /// If there are none, like everything here.
    pub fn u32(&mut self) -> Result<u32, Malformed> {
        let (first, rest) = self.0.split_first_chunk().ok_or(Malformed)?;
        self.0 = rest;
        Ok(u32::from_ne_bytes(*first))
    }

    /// The next 8 bytes.
    pub fn u64(&mut self) -> Result<u64, Malformed> {
        let (first, rest) = self.0.split_first_chunk().ok_or(Malformed)?;
        self.0 = rest;
        Ok(u64::from_ne_bytes(*first))
    }

    /// The next bytes up to a zero, which is taken too.
    pub fn name(&mut self) -> Result<&'a [u8], Malformed> {
        let end = self.0.iter().position(|byte| *byte == 0).ok_or(Malformed)?;
        let name = &self.0[..end];
        self.0 = &self.0[end + 1..];
        Ok(name)
    }

    /// So many bytes.
    pub fn bytes(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (first, rest) = self.0.split_at_checked(count).ok_or(Malformed)?;
        self.0 = rest;
        Ok(first)
    }
}

/// A record that is being written.
#[derive(Clone, Copy, Debug)]
pub struct OutRecord<const MAX: usize> {
    bytes: [u8; MAX],
    len: usize,
}

impl<const MAX: usize> OutRecord<MAX> {
    /// Nothing yet.
    pub fn new() -> Self {
        OutRecord { bytes: [0; MAX], len: 0 }
    }

    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        self.bytes[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }

    fn put_attr(&mut self, attr: &FileAttr) {
        let times = [attr.atime, attr.mtime, attr.ctime].map(KernelTime::parts);
        [attr.ino.0, attr.size, attr.blocks]
            .into_iter()
            .chain(times.map(|time| time.0 as u64))
            .for_each(|field| self.put(&field.to_ne_bytes()));
        let mode = attr.kind.0 | u32::from(attr.perm);
        let rest = [mode, attr.nlink, attr.uid, attr.gid, attr.rdev, attr.blksize, 0];
        times.map(|time| time.1).into_iter().chain(rest).for_each(|field| self.put(&field.to_ne_bytes()));
    }

    /// Appends 2 bytes.
    pub fn u16(mut self, value: u16) -> Self {
        self.put(&value.to_ne_bytes());
        self
    }

    /// Appends 4 bytes.
    pub fn u32(mut self, value: u32) -> Self {
        self.put(&value.to_ne_bytes());
        self
    }

    /// Appends 8 bytes.
    pub fn u64(mut self, value: u64) -> Self {
        self.put(&value.to_ne_bytes());
        self
    }

    /// Appends attributes.
    pub fn attr(mut self, attr: &FileAttr) -> Self {
        self.put_attr(attr);
        self
    }

    /// Appends attributes as `statx` has them: those of `stat`, and the time of birth.
    pub fn statx(self, attr: &FileAttr) -> Self {
        let mask = STATX_BASIC | if attr.born.is_some() { STATX_BORN } else { 0 };
        let record = self.u32(mask).u32(attr.blksize).u64(0).u32(attr.nlink).u32(attr.uid).u32(attr.gid);
        let record = record.u16((attr.kind.0 | u32::from(attr.perm)) as u16).u16(0);
        let record = record.u64(attr.ino.0).u64(attr.size).u64(attr.blocks).u64(0);
        let times = [attr.atime, attr.born.unwrap_or_default(), attr.ctime, attr.mtime].map(KernelTime::parts);
        let record = times.into_iter().fold(record, |record, (seconds, nanos)| record.u64(seconds as u64).u32(nanos).u32(0));
        let record = record.u32(libc::major(attr.rdev.into())).u32(libc::minor(attr.rdev.into())).u32(0).u32(0);
        (0..14).fold(record, |record, _| record.u64(0))
    }

    /// Appends what an answer to a look-up says: the object, and for how long name and attributes
    /// may be kept.
    pub fn entry(mut self, node: INodeNo, ttls: Ttls, attr: &FileAttr) -> Self {
        let Ttls { name, attr: ttl } = ttls;
        // Numbers of inodes are never used again, so one generation is enough.
        [node.0, 0, name.as_secs(), ttl.as_secs()].into_iter().for_each(|field| self.put(&field.to_ne_bytes()));
        [name.subsec_nanos(), ttl.subsec_nanos()].into_iter().for_each(|field| self.put(&field.to_ne_bytes()));
        self.put_attr(attr);
        self
    }

    /// What has been written.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// The header of a reply to `unique` with so many bytes behind it; `error` is 0 or the number of an
/// error.
pub fn out_header(unique: u64, error: i32, bytes: usize) -> OutRecord<OUT_HEADER_BYTES> {
    OutRecord::new().u32((OUT_HEADER_BYTES + bytes) as u32).u32((-error) as u32).u64(unique)
}

/// Bytes of an entry of a listing with a name of so many bytes: records begin at multiples of 8.
fn dirent_bytes(name: usize) -> usize {
    (24 + name).next_multiple_of(8)
}

/// Appends an entry of a listing, after `before` bytes of its own, if it fits into `max` bytes in
/// all.
pub fn add_dirent(list: &mut Vec<u8>, max: usize, before: &[u8], ino: INodeNo, cookie: u64, kind: FileType, name: &[u8]) -> bool {
    let bytes = before.len() + dirent_bytes(name.len());
    if list.len() + bytes > max {
        return false;
    }
    let end = list.len() + bytes;
    list.extend_from_slice(before);
    list.extend_from_slice(OutRecord::<24>::new().u64(ino.0).u64(cookie).u32(name.len() as u32).u32(kind.0 >> 12).bytes());
    list.extend_from_slice(name);
    list.resize(end, 0);
    true
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn attr() -> FileAttr {
        FileAttr {
            ino: INodeNo(0x1122),
            size: 3,
            blocks: 4,
            atime: KernelTime(5_000_000_006),
            mtime: KernelTime(-7_000_000_008),
            ctime: KernelTime(0),
            born: Some(KernelTime(14_000_000_015)),
            kind: FileType(libc::S_IFDIR),
            perm: 0o751,
            nlink: 9,
            uid: 10,
            gid: 11,
            rdev: 12,
            blksize: 13,
        }
    }

    #[test]
    fn records_have_the_sizes_and_places_of_the_kernel() {
        let record = OutRecord::<88>::new().attr(&attr());
        assert_eq!(record.bytes().len(), 88);
        let mut fields = Fields(record.bytes());
        let longs: Vec<u64> = (0..6).map(|_| fields.u64().expect("a number")).collect();
        assert_eq!(longs, [0x1122, 3, 4, 5, (-8i64) as u64, 0]);
        let shorts: Vec<u32> = (0..10).map(|_| fields.u32().expect("a number")).collect();
        assert_eq!(shorts, [6, 999_999_992, 0, 0o040751, 9, 10, 11, 12, 13, 0]);
        assert_eq!(fields.u32(), Err(Malformed));
        let entry = OutRecord::<128>::new().entry(INodeNo(1), Ttls { name: Duration::new(3, 4), attr: Duration::new(5, 6) }, &attr());
        assert_eq!(entry.bytes().len(), 128);
        assert_eq!(entry.bytes()[32..40], [4u32.to_ne_bytes(), 6u32.to_ne_bytes()].concat());
        assert_eq!(
            out_header(7, libc::ENOENT, 0).bytes(),
            [&16u32.to_ne_bytes()[..], &(-2i32).to_ne_bytes(), &7u64.to_ne_bytes()].concat()
        );
    }

    #[test]
    fn attributes_of_statx_have_the_places_of_the_kernel() {
        let (known, unknown) = (attr(), FileAttr { born: None, ..attr() });
        let record = OutRecord::<256>::new().statx(&known);
        assert_eq!(record.bytes().len(), 256);
        let mut fields = Fields(record.bytes());
        assert_eq!([fields.u32(), fields.u32()], [Ok(0xfff), Ok(13)], "what it says, preferred size");
        assert_eq!(fields.u64(), Ok(0));
        assert_eq!([fields.u32(), fields.u32(), fields.u32(), fields.u32()], [Ok(9), Ok(10), Ok(11), Ok(0o040751)]);
        assert_eq!([fields.u64(), fields.u64(), fields.u64(), fields.u64()], [Ok(0x1122), Ok(3), Ok(4), Ok(0)]);
        let times = [(5, 6), (14, 15), (0, 0), (-8, 999_999_992)];
        assert_eq!(
            times.map(|_| (fields.u64().expect("seconds") as i64, fields.u32().expect("ns"), fields.u32()).0),
            times.map(|time| time.0)
        );
        assert_eq!([fields.u32(), fields.u32()], [Ok(0), Ok(12)], "the device");
        assert_eq!(Fields(OutRecord::<256>::new().statx(&unknown).bytes()).u32(), Ok(0x7ff));
    }

    #[test]
    fn times_round_trip_on_both_sides_of_1970() {
        for (seconds, nanos) in [(0, 0), (0, 1), (1_700_000_000, 123_456_789), (-1, 999_999_999), (-2, 500_000_000), (-3, 0)] {
            assert_eq!(KernelTime::of_parts(seconds, nanos).parts(), (seconds, nanos));
        }
        // Files can have earlier and later times than Weft keeps.
        assert_eq!([i64::MIN, i64::MAX].map(|seconds| KernelTime::of_parts(seconds, 2_000_000_000)), [-i64::MAX, i64::MAX].map(KernelTime));
    }

    #[test]
    fn entries_of_listings_begin_at_multiples_of_eight_and_stop_at_the_end() {
        let mut list = Vec::new();
        assert!(add_dirent(&mut list, 64, &[], INodeNo(5), 6, FileType::REGULAR, b"abc"));
        assert_eq!(list.len(), 32);
        assert_eq!(list[16..], [&3u32.to_ne_bytes()[..], &8u32.to_ne_bytes(), b"abc\0\0\0\0\0"].concat());
        assert!(!add_dirent(&mut list, 63, &[], INodeNo(5), 7, FileType(libc::S_IFLNK), b"12345678"));
        assert!(add_dirent(&mut list, 64, &[], INodeNo(5), 7, FileType(libc::S_IFLNK), b"12345678"));
        assert_eq!(list.len(), 64);
    }

    #[test]
    fn what_is_cut_short_is_refused() {
        assert_eq!(InHeader::parse(&[0; IN_HEADER_BYTES - 1]), Err(Malformed));
        assert_eq!(Fields(b"name").name(), Err(Malformed));
        assert_eq!(Fields(b"abc").bytes(4), Err(Malformed));
        assert_eq!(fixed_bytes(4096), None);
    }
}
