//! The inode: what a metadata server keeps for each object.

use weft_base::{
    Attr, BLOCK_BYTES, DataTime, FileKind, Handle, Layout, MODE_ACL, MODE_INLINE, MODE_MASK, MODE_PROJECT, MODE_SEALED, Result, Status,
    WallTime, whole_blocks,
};
use weft_store::objects::BlockRun;
use weft_wire::{Reader, Wire};

use crate::Charged;

/// Conditions of an inode, as bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct InodeFlags(pub u8);

impl InodeFlags {
    /// It has been opened for writing at least once: data servers may hold datafiles of it.
    pub const HAS_DATA: InodeFlags = InodeFlags(1);
    /// Somebody has it open for writing (or had, and was lost): size and times may be larger at the
    /// data servers.
    pub const WRITING: InodeFlags = InodeFlags(2);
    /// A truncation to [`Inode::truncating_to`] is under way at the data servers.
    pub const TRUNCATING: InodeFlags = InodeFlags(4);
    /// The data servers were told that a time was set, or asked for what a writer did not know:
    /// each may hold a datafile of it, however small the file is.
    pub const TOLD: InodeFlags = InodeFlags(8);
    /// Somebody appends to it, or did so when [`InodeFlags::WRITING`] was set.
    pub const APPENDING: InodeFlags = InodeFlags(16);
    /// It was made in a directory with the hint `no_metafile`: owner, mode and times are those of
    /// [`Inode::new_without_metafile`] for ever, and nothing else is kept.
    pub const NO_METAFILE: InodeFlags = InodeFlags(32);
    /// It was made by the steps of the protocol of PVFS2 (`ops/classic.rs`): without a name it is
    /// the business of its client, and its size is asked at the data servers. Weft's own changes of
    /// its names take the flag away.
    pub const CLASSIC: InodeFlags = InodeFlags(64);

    /// True if all bits of `other` are set.
    pub fn has(self, other: InodeFlags) -> bool {
        self.0 & other.0 == other.0
    }
    /// With the bits of `other`.
    pub fn with(self, other: InodeFlags) -> InodeFlags {
        InodeFlags(self.0 | other.0)
    }
    /// Without the bits of `other`.
    pub fn without(self, other: InodeFlags) -> InodeFlags {
        InodeFlags(self.0 & !other.0)
    }
    /// What is written to the file is with a client (`ops/delay.rs`), or was when it was lost. No
    /// bit was left: of nothing else somebody appends to what has no data.
    pub const DELAYED: InodeFlags = InodeFlags(InodeFlags::WRITING.0 | InodeFlags::APPENDING.0);
    /// True if that is so.
    pub fn is_delayed(self) -> bool {
        self.has(InodeFlags::DELAYED) && !self.has(InodeFlags::HAS_DATA)
    }
    /// It becomes so.
    pub fn delayed(self) -> InodeFlags {
        self.with(InodeFlags::DELAYED).without(InodeFlags::HAS_DATA)
    }
    /// It is like any file that is written to, by somebody who appends as if alone or does not; its
    /// writer may have brought data already.
    pub fn not_delayed(self, appends: bool) -> InodeFlags {
        match self.is_delayed() {
            true if appends => self.with(InodeFlags::HAS_DATA),
            true => self.with(InodeFlags::HAS_DATA).without(InodeFlags::APPENDING),
            false => self,
        }
    }
    /// True if there may be datafiles of it.
    pub fn may_have_data(self) -> bool {
        self.has(InodeFlags::HAS_DATA) || self.has(InodeFlags::WRITING)
    }
}

/// An inode. Its handle is its key and not repeated in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inode {
    /// What it is.
    pub kind: FileKind,
    /// Conditions.
    pub flags: InodeFlags,
    /// Permission, set-id and sticky bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Names that lead to it; 0: unlinked, kept because it is open or its datafiles are not removed
    /// yet. Unused for directories.
    pub nlink: u32,
    /// Counts truncations.
    pub truncate_epoch: u32,
    /// Bytes in a file as of the last close or truncation, bytes of a symlink's target. Unused for
    /// directories.
    pub size: u64,
    /// Last access.
    pub atime: WallTime,
    /// Last change of the data.
    pub mtime: WallTime,
    /// The place of that change in their order; 0 for anything but a file.
    pub mtime_epoch: u32,
    /// Last change of the inode.
    pub ctime: WallTime,
    /// Counts changes.
    pub version: u64,
    /// Striping; of a directory what its files inherit.
    pub layout: Layout,
    /// When it was made, by the clock of its server; 0: not known.
    pub born: WallTime,
    /// What only its kind has: [`Inode::parent`] of a directory, [`Inode::device`] of a device
    /// file, [`Inode::hole_bytes`] of a file; of one whose content is here the first block of it,
    /// for it has no holes.
    pub of_kind: u64,
    /// The new size while [`InodeFlags::TRUNCATING`] is set, else 0.
    pub truncating_to: u64,
    /// The project that it counts for, beside its owner; 0: none.
    pub project: u32,
}

impl Inode {
    /// A new inode: all times are `now`, one name leads to it.
    pub fn new(kind: FileKind, mode: u32, uid: u32, gid: u32, layout: Layout, now: WallTime) -> Inode {
        Inode {
            kind,
            flags: InodeFlags::default(),
            mode: mode & (MODE_MASK | MODE_ACL),
            uid,
            gid,
            nlink: 1,
            truncate_epoch: 0,
            size: 0,
            atime: now,
            mtime: now,
            mtime_epoch: 0,
            ctime: now,
            version: 1,
            layout,
            born: now,
            of_kind: 0,
            truncating_to: 0,
            project: 0,
        }
    }

    /// A new file of a directory with the hint `no_metafile`: of root, readable and writable for
    /// everybody, with times of 0 (Kuhn 2007, section 4.5).
    pub fn new_without_metafile(layout: Layout) -> Inode {
        let inode = Inode::new(FileKind::File, 0o666, 0, 0, layout, WallTime(0));
        Inode { flags: InodeFlags::NO_METAFILE, ..inode }
    }

    /// True if its owner, mode and times are not kept.
    pub fn has_no_metafile(&self) -> bool {
        self.flags.has(InodeFlags::NO_METAFILE)
    }

    /// A new directory in `parent`.
    pub fn new_directory(parent: Handle, mode: u32, uid: u32, gid: u32, layout: Layout, now: WallTime) -> Inode {
        Inode::new(FileKind::Directory, mode, uid, gid, layout, now).within(parent)
    }

    /// For whom it counts.
    pub fn charged(&self) -> Charged {
        Charged { uid: self.uid, project: self.project }
    }

    /// The directory that holds a directory's name; the root is its own parent. 0 for anything
    /// else.
    pub fn parent(&self) -> Handle {
        if self.is_directory() { Handle(self.of_kind) } else { Handle(0) }
    }

    /// The same directory with its name in `parent`.
    pub fn within(self, parent: Handle) -> Inode {
        assert!(self.is_directory(), "only directories know where their name is");
        Inode { of_kind: parent.0, ..self }
    }

    /// Device number of a device file; 0 for anything else.
    pub fn device(&self) -> u32 {
        if self.is_device() { self.of_kind as u32 } else { 0 }
    }

    /// True if it is a device file.
    fn is_device(&self) -> bool {
        matches!(self.kind, FileKind::CharDevice | FileKind::BlockDevice)
    }

    /// Bytes of a file that take no space, in whole blocks: as the data servers said when nobody
    /// wrote to it any more, and as truncations have changed it since. 0 for anything else.
    pub fn hole_bytes(&self) -> u64 {
        if self.kind == FileKind::File && !self.is_inline() { self.of_kind } else { 0 }
    }

    /// Bytes that a file takes, in whole blocks: as of the last close, truncation or answer of its
    /// data servers. 0 for anything else.
    pub fn taken_bytes(&self) -> u64 {
        if self.kind == FileKind::File { whole_blocks(self.size).saturating_sub(self.hole_bytes()) } else { 0 }
    }

    /// True if all bytes of the file are on this server. If it has [`InodeFlags::HAS_DATA`] beside
    /// it is being moved to its data servers, which may have them too.
    pub fn is_inline(&self) -> bool {
        self.mode & MODE_INLINE != 0
    }

    /// The blocks that its content takes here.
    pub fn content_run(&self) -> Option<BlockRun> {
        if self.is_inline() { crate::contents::run_of(self.of_kind, self.size) } else { None }
    }

    /// The data servers say that the file takes so many bytes, at the size that it has here.
    pub(crate) fn set_allocated(&mut self, bytes: u64) {
        if self.kind == FileKind::File {
            self.of_kind = whole_blocks(self.size).saturating_sub(bytes);
        }
    }

    /// Its size and holes are known by the data servers only: as long as somebody writes to a file
    /// with holes they are asked whenever somebody looks, and then once.
    pub(crate) fn is_to_be_asked(&mut self) {
        if self.kind == FileKind::File {
            self.of_kind = self.of_kind.max(BLOCK_BYTES);
        }
    }

    /// The size becomes another one, by a truncation: what is new is a hole, and a hole of before
    /// lies where it lay at most. Where it has lain the data servers know.
    pub(crate) fn resize(&mut self, size: u64) {
        let (old, new) = (whole_blocks(self.size), whole_blocks(size));
        self.size = size;
        if self.kind == FileKind::File {
            self.of_kind = self.of_kind.saturating_add(new.saturating_sub(old)).min(new);
        }
    }

    /// The same inode after a change at `now`: change time and version move on. The change time is
    /// always that of a server's clock, and of several servers' clocks the latest.
    pub fn changed(&self, now: WallTime) -> Inode {
        let ctime = if self.has_no_metafile() { self.ctime } else { self.ctime.max(now) };
        Inode { ctime, version: self.version + 1, ..self.clone() }
    }

    /// When the data was changed last, with the place of that change.
    pub fn data_time(&self) -> DataTime {
        DataTime { epoch: self.mtime_epoch, at: self.mtime }
    }

    /// Takes in a write that a data server told of; it may be older than what is known.
    pub(crate) fn written(&mut self, write: DataTime) {
        if self.has_no_metafile() {
            return;
        }
        let DataTime { epoch, at } = self.data_time().later(write);
        (self.mtime_epoch, self.mtime) = (epoch, at);
        self.ctime = self.ctime.max(write.at);
    }

    /// A change of the data by this server, as by a truncation.
    pub(crate) fn written_here(&mut self, now: WallTime) {
        self.written(DataTime { epoch: DataTime::epoch_of_writes(self.mtime_epoch), at: now });
    }

    /// The attributes, for anything but a directory (whose size and link count follow from its
    /// entries).
    pub fn attr(&self, handle: Handle) -> Attr {
        Attr {
            handle,
            kind: self.kind,
            mode: self.mode | if self.project != 0 { MODE_PROJECT } else { 0 },
            uid: self.uid,
            gid: self.gid,
            nlink: self.nlink,
            rdev: self.device(),
            size: self.size,
            atime: self.atime,
            mtime: self.mtime,
            mtime_epoch: self.mtime_epoch,
            ctime: self.ctime,
            version: self.version,
            truncate_epoch: self.truncate_epoch,
            layout: self.layout,
            bare: false,
            born: self.born,
            hole_bytes: self.hole_bytes(),
        }
    }

    /// The attributes of a directory with so many entries and subdirectories.
    pub fn directory_attr(&self, handle: Handle, entries: u64, subdirectories: u32) -> Attr {
        Attr { nlink: 2 + subdirectories, size: entries, ..self.attr(handle) }
    }

    /// True if it is sealed: neither it nor, of a directory, its names change until the seal is
    /// taken away.
    pub fn is_sealed(&self) -> bool {
        self.mode & MODE_SEALED != 0
    }

    /// # Errors
    /// [`Status::Sealed`].
    pub(crate) fn check_unsealed(&self) -> Result<()> {
        if self.is_sealed() { Err(Status::Sealed) } else { Ok(()) }
    }

    /// True if it is a directory.
    pub fn is_directory(&self) -> bool {
        self.kind == FileKind::Directory
    }
}

/// Beside the bits of a mode: the time at which the inode was made follows behind it.
const BORN: u16 = 0x1000;

/// Beside the kind: the project follows at the end.
const HAS_PROJECT: u8 = 128;

/// Beside the flags: the mode has the bit [`MODE_ACL`], for which its two bytes have no place.
const HAS_LIST: u8 = 128;

impl Wire for Inode {
    fn put(&self, out: &mut Vec<u8>) {
        let is_born = self.born != WallTime(0);
        (self.kind as u8 | if self.project != 0 { HAS_PROJECT } else { 0 }).put(out);
        (self.flags.0 | if self.mode & MODE_ACL != 0 { HAS_LIST } else { 0 }).put(out);
        (self.mode as u16 | if is_born { BORN } else { 0 }).put(out);
        self.uid.put(out);
        self.gid.put(out);
        self.nlink.put(out);
        self.device().put(out);
        self.truncate_epoch.put(out);
        self.size.put(out);
        self.atime.put(out);
        self.mtime.put(out);
        self.mtime_epoch.put(out);
        self.ctime.put(out);
        self.version.put(out);
        self.layout.put(out);
        (if self.is_device() { 0 } else { self.of_kind }).put(out);
        self.truncating_to.put(out);
        if is_born {
            self.born.put(out);
        }
        if self.project != 0 {
            self.project.put(out);
        }
    }
    fn get(from: &mut Reader) -> Result<Inode> {
        let (kind, bits, mode) = (u8::get(from)?, u8::get(from)?, u16::get(from)?);
        let has_project = kind & HAS_PROJECT != 0;
        let kind = FileKind::from_code(kind & !HAS_PROJECT).ok_or(Status::BadMessage)?;
        let (flags, list) = (InodeFlags(bits & !HAS_LIST), if bits & HAS_LIST != 0 { MODE_ACL } else { 0 });
        let (uid, gid, nlink, device) = (Wire::get(from)?, Wire::get(from)?, Wire::get(from)?, u32::get(from)?);
        let mut inode = Inode {
            kind,
            flags,
            mode: u32::from(mode & !BORN) | list,
            uid,
            gid,
            nlink,
            truncate_epoch: Wire::get(from)?,
            size: Wire::get(from)?,
            atime: Wire::get(from)?,
            mtime: Wire::get(from)?,
            mtime_epoch: Wire::get(from)?,
            ctime: Wire::get(from)?,
            version: Wire::get(from)?,
            layout: Wire::get(from)?,
            of_kind: Wire::get(from)?,
            truncating_to: Wire::get(from)?,
            born: WallTime(0),
            project: 0,
        };
        // An inode has one encoding: what is not there is not written.
        if device != 0 && !inode.is_device() || inode.of_kind != 0 && inode.is_device() {
            return Err(Status::BadMessage);
        }
        if inode.is_device() {
            inode.of_kind = device.into();
        }
        if mode & BORN != 0 {
            inode.born = Wire::get(from)?;
            if inode.born == WallTime(0) {
                return Err(Status::BadMessage);
            }
        }
        if has_project {
            inode.project = Wire::get(from)?;
            if inode.project == 0 {
                return Err(Status::BadMessage);
            }
        }
        Ok(inode)
    }
}
