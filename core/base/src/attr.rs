//! Attributes of objects, who asks, names, and where the data of a file is.

use crate::{DataTime, Handle, Result, Status, WallTime};

/// Longest name of a directory entry in bytes, as POSIX programs expect it (`NAME_MAX` of Linux).
pub const NAME_BYTES_MAX: usize = 255;

/// Space for the data of files is given in blocks of so many bytes.
pub const BLOCK_BYTES: u64 = 4096;

/// The bytes that a file without holes takes: its size in whole blocks.
pub fn whole_blocks(size: u64) -> u64 {
    size.div_ceil(BLOCK_BYTES).saturating_mul(BLOCK_BYTES)
}

/// Checks a name for a directory entry: 1 to 255 bytes, no `/`, no NUL, not `.` or `..`. Any other
/// bytes are allowed, newline and invalid UTF-8 included.
///
/// # Errors
/// [`Status::NameTooLong`] or [`Status::Invalid`].
pub fn check_name(name: &[u8]) -> Result<()> {
    if name.len() > NAME_BYTES_MAX {
        return Err(Status::NameTooLong);
    }
    if name.is_empty() || name == b"." || name == b".." || name.contains(&b'/') || name.contains(&0) {
        return Err(Status::Invalid);
    }
    Ok(())
}

/// What an object is. The numbers are those of `d_type` and part of the wire format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum FileKind {
    /// Named pipe.
    Fifo = 1,
    /// Character device.
    CharDevice = 2,
    /// Directory.
    Directory = 4,
    /// Block device.
    BlockDevice = 6,
    /// Regular file (its inode is called metafile in PVFS2).
    File = 8,
    /// Symbolic link.
    Symlink = 10,
    /// Socket.
    Socket = 12,
}

impl FileKind {
    /// The kind with this number, if there is one.
    pub fn from_code(code: u8) -> Option<FileKind> {
        use FileKind::*;
        [Fifo, CharDevice, Directory, BlockDevice, File, Symlink, Socket].into_iter().find(|kind| *kind as u8 == code)
    }

    /// The `S_IFMT` bits of `st_mode`.
    pub fn mode_bits(self) -> u32 {
        (self as u32) << 12
    }
}

/// How a file is striped, and where. Fixed when the file is created.
///
/// Datafile `i` is on the data server at position `(first + i) % n` of the `n` in the file's
/// generation ([`ClusterMap::data_server`](crate::ClusterMap::data_server)); with the distribution
/// `simple_stripe` byte `b` of the file is in datafile `(b / stripe_bytes) % width`. With the
/// distribution `varstrip` the strips of the file say it, which its metadata server keeps beside
/// the inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Layout {
    /// Bytes in one stripe, a power of two from 4 KiB to 64 MiB.
    pub stripe_bytes: u32,
    /// Number of datafiles, at least 1.
    pub width: u16,
    /// Position in the generation of the data server that holds datafile 0.
    pub first: u16,
    /// The list of data servers, by the epoch of the map that began it; 0 for what is no file. With
    /// [`Layout::VARSTRIP`] in it the distribution is `varstrip`: whoever does not know that knows
    /// no such generation either, and asks no data server for bytes at wrong places.
    pub generation: u32,
}

impl Layout {
    /// The bit of [`Layout::generation`] that says `varstrip`; no map has so many epochs.
    pub const VARSTRIP: u32 = 1 << 31;

    /// True if the strips of the file say where its bytes are.
    #[inline]
    pub fn is_varstrip(&self) -> bool {
        self.generation & Layout::VARSTRIP != 0
    }

    /// The list of data servers, by the epoch of the map that began it.
    #[inline]
    pub fn generation_id(&self) -> u32 {
        self.generation & !Layout::VARSTRIP
    }
}

/// Permission to read, among the three of a class of users.
pub const READ: u32 = 4;
/// Permission to write.
pub const WRITE: u32 = 2;
/// Permission to execute, or to search a directory.
pub const EXECUTE: u32 = 1;
/// Set-group-id bit of a mode: what is made in such a directory gets its group.
pub const MODE_SETGID: u32 = 0o2000;
/// Sticky bit of a mode: only owners remove names from such a directory.
pub const MODE_STICKY: u32 = 0o1000;
/// The bits of a mode that `stat` shows.
pub const MODE_MASK: u32 = 0o7777;

/// A bit of [`Attr::mode`] that `stat` does not show: the object has an access control list, which
/// counts beside the mode. The bits of the group are its mask.
pub const MODE_ACL: u32 = 0x2000_0000;
/// A bit of [`Attr::mode`] that `stat` does not show: the object is sealed and does not change.
pub const MODE_SEALED: u32 = 0x4000;
/// Another one: the file was made without a name (`O_TMPFILE`) and has none yet; while it is open
/// it can be given one.
pub const MODE_UNNAMED: u32 = 0x8000;
/// Another one: all bytes of the file are on the server of its inode. Once they are at data servers
/// they stay there.
pub const MODE_INLINE: u32 = 0x2000;
/// Another one: the object counts for a project, beside its owner.
pub const MODE_PROJECT: u32 = 0x1000_0000;

/// The extended attribute in which an object has the number of that project.
pub const PROJECT_ATTRIBUTE: &str = "user.weft.project";

/// True for the name of that attribute, or the one that it has among the hints of PVFS2.
pub fn is_project_attribute(name: &[u8]) -> bool {
    [PROJECT_ATTRIBUTE.as_bytes(), b"user.pvfs2.project"].contains(&name)
}

/// The attributes of one object, as `stat` shows them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attr {
    /// The object.
    pub handle: Handle,
    /// What it is.
    pub kind: FileKind,
    /// Permission bits with set-id and sticky bits (`0o7777`), [`MODE_ACL`], [`MODE_SEALED`],
    /// [`MODE_UNNAMED`], [`MODE_INLINE`], [`MODE_PROJECT`].
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Names that lead to it; a directory counts itself, its name and its subdirectories.
    pub nlink: u32,
    /// Device number of a device file, else 0.
    pub rdev: u32,
    /// Bytes in a file, length of a symlink's target, number of entries of a directory.
    pub size: u64,
    /// Last access (kept as in `noatime`: changed by `utimes` only).
    pub atime: WallTime,
    /// Last change of the data.
    pub mtime: WallTime,
    /// The place of that change in their order (files only; see [`DataTime`]).
    pub mtime_epoch: u32,
    /// Last change of the inode; 0 only if times are not kept ([`Attr::has_no_metafile`]).
    pub ctime: WallTime,
    /// Counts changes of the inode and its data as known to the metadata server.
    pub version: u64,
    /// Counts truncations of a file; a writer reports its end of file together with the count that
    /// it saw.
    pub truncate_epoch: u32,
    /// Striping of a file; of a directory, what files created in it inherit.
    pub layout: Layout,
    /// It had no extended attributes; false if that is not known.
    pub bare: bool,
    /// When it was made, by the clock of its server; 0 if that is not known.
    pub born: WallTime,
    /// Bytes of a file that take no space, in whole blocks: holes, as of the last close or
    /// truncation.
    pub hole_bytes: u64,
}

impl Attr {
    /// Of an object of root's that was made then, with nothing in it.
    pub fn new(handle: Handle, kind: FileKind, mode: u32, layout: Layout, born: WallTime) -> Attr {
        Attr {
            handle,
            kind,
            mode,
            uid: 0,
            gid: 0,
            nlink: if kind == FileKind::Directory { 2 } else { 1 },
            rdev: 0,
            size: 0,
            atime: born,
            mtime: born,
            mtime_epoch: 0,
            ctime: born,
            version: 1,
            truncate_epoch: 0,
            layout,
            bare: true,
            born,
            hole_bytes: 0,
        }
    }

    /// The bits of its mode that `stat` shows, without that of the kind.
    pub fn permissions(&self) -> u32 {
        self.mode & 0o7777
    }

    /// True if it belongs to a sealed tree: it does not change until the seal is taken away.
    pub fn is_sealed(&self) -> bool {
        self.mode & MODE_SEALED != 0
    }

    /// True for a file whose bytes are on the server of its inode, all of them.
    pub fn is_inline(&self) -> bool {
        self.mode & MODE_INLINE != 0
    }

    /// True if its mode bits say that this user may do all that is wanted
    /// ([`Credentials::allowed_by`]), and no list says anything else.
    pub fn allows(&self, who: &Credentials, wanted: u32) -> bool {
        let by_mode = || who.allowed_by((self.mode, self.uid, self.gid), self.kind == FileKind::Directory, wanted);
        who.checked_by_kernel || (self.mode & MODE_ACL == 0 && by_mode())
    }

    /// When the data was changed last, with the place of that change.
    pub fn data_time(&self) -> DataTime {
        DataTime { epoch: self.mtime_epoch, at: self.mtime }
    }

    /// Bytes that the data of a file takes at its data servers, in whole blocks; 0 for anything
    /// else.
    pub fn allocated_bytes(&self) -> u64 {
        if self.kind == FileKind::File { whole_blocks(self.size).saturating_sub(self.hole_bytes) } else { 0 }
    }

    /// Its data servers say that it takes so many bytes, at its present size.
    pub fn set_allocated(&mut self, bytes: u64) {
        self.hole_bytes = whole_blocks(self.size).saturating_sub(bytes);
    }

    /// True for a file of a directory with the hint `no_metafile`: its owner, mode and times are
    /// not kept, but the same for all such files (Kuhn 2007, section 4.5). No other file has a
    /// change time of 0, which is always that of a server's clock.
    pub fn has_no_metafile(&self) -> bool {
        self.kind == FileKind::File && self.ctime == WallTime(0)
    }

    /// Takes a write in that may be later than what is known.
    pub fn written(&mut self, write: DataTime) {
        if self.has_no_metafile() {
            return;
        }
        let DataTime { epoch, at } = self.data_time().later(write);
        (self.mtime_epoch, self.mtime) = (epoch, at);
        self.ctime = self.ctime.max(write.at);
    }
}

/// Who asks, for permission checks on the server.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Credentials {
    /// User.
    pub uid: u32,
    /// Primary group.
    pub gid: u32,
    /// Supplementary groups (at most 32 are sent).
    pub groups: Vec<u32>,
    /// The kernel of a mount has checked permissions already (`default_permissions`); the server
    /// checks only what the kernel cannot.
    pub checked_by_kernel: bool,
}

impl Credentials {
    /// The superuser.
    pub const ROOT: Credentials = Credentials { uid: 0, gid: 0, groups: Vec::new(), checked_by_kernel: false };

    /// True if the caller is in this group.
    pub fn in_group(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }

    /// True if the mode bits of an object allow all that is wanted (4: read, 2: write, 1: execute,
    /// or search a directory). The first class that fits decides. The superuser may do everything,
    /// but execute only what somebody may execute.
    pub fn allowed_by(&self, (mode, uid, gid): (u32, u32, u32), is_directory: bool, wanted: u32) -> bool {
        if self.uid == 0 {
            return wanted & 1 == 0 || is_directory || mode & 0o111 != 0;
        }
        let shift = match () {
            () if self.uid == uid => 6,
            () if self.in_group(gid) => 3,
            () => 0,
        };
        (mode >> shift) & wanted == wanted
    }
}

/// The set-user-id bit, and the set-group-id bit where it is not the mark of mandatory locking (no
/// execute permission for the group).
pub fn set_id_bits(mode: u32) -> u32 {
    (mode & 0o4000) | if mode & 0o010 != 0 { mode & 0o2000 } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        assert_eq!(check_name(&[b'x'; 255]), Ok(()));
        assert_eq!(check_name(&[b'x'; 256]), Err(Status::NameTooLong));
        assert_eq!(check_name(b"new\nline\xff"), Ok(()));
        for bad in [&b""[..], b".", b"..", b"a/b", b"a\0b"] {
            assert_eq!(check_name(bad), Err(Status::Invalid));
        }
    }

    #[test]
    fn kinds_round_trip() {
        for code in 0..=255u8 {
            if let Some(kind) = FileKind::from_code(code) {
                assert_eq!(kind as u8, code);
            }
        }
        assert_eq!(FileKind::Directory.mode_bits(), 0o040000);
        assert_eq!(FileKind::File.mode_bits(), 0o100000);
    }
}
