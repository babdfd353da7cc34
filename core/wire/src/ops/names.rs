//! Metadata servers, by name in a directory.

use bytes::Bytes;
use weft_base::{Credentials, FileKind, Handle, WallTime};

use super::delegation::Delegation;
use super::inodes::FileState;
use crate::{Capability, Ceiling, Rights, wire_struct};

wire_struct! {
    /// A directory as the target of a name operation, with the epoch of the partition map by which
    /// the client chose the server.
    pub struct DirTarget {
        /// The directory.
        pub dir: Handle,
        /// The epoch; 0 if the client has no map yet.
        pub map_epoch: u32,
    }

    /// Finds a name.
    pub struct LookupRequest {
        /// Where.
        pub at: DirTarget,
        /// The name; `.` and `..` are for clients to resolve.
        pub name: Bytes,
        /// Who asks.
        pub who: Credentials,
    }

    /// What the name leads to.
    pub struct LookupReply {
        /// The object.
        pub handle: Handle,
        /// What it is.
        pub kind: FileKind,
        /// Given if its inode is on this server too.
        pub state: Option<FileState>,
    }

    /// Makes an object that is no directory, on the server that holds the name.
    pub struct CreateRequest {
        /// Where.
        pub at: DirTarget,
        /// The name.
        pub name: Bytes,
        /// What to make; not a directory.
        pub kind: FileKind,
        /// Permission bits without those of the umask, which are in bits 16 to 24.
        pub mode: u32,
        /// Device number of a device.
        pub rdev: u32,
        /// Target of a symlink.
        pub target: Bytes,
        /// Fail if the name exists; otherwise the existing file is opened.
        pub exclusive: bool,
        /// Rights to open it with; none: do not open.
        pub open: Rights,
        /// Orders opens and closes of one client (see [`CloseRequest`](crate::ops::CloseRequest)).
        pub open_sequence: u64,
        /// Stripe size in bytes; 0: what the directory says.
        pub stripe_bytes: u32,
        /// Number of datafiles; 0: what the directory says.
        pub stripe_width: u16,
        /// Who asks.
        pub who: Credentials,
        optional {
            /// The strips of a file with the distribution `varstrip`, as
            /// `strips:DATAFILE:BYTES;...`.
            1 pub strips: Bytes,
            /// The file gets no name, which must be wanted open for writing. `at` and `name` say
            /// which directory it is made in, and only where it lies.
            3 pub unnamed: bool,
            /// All that shall be in the file, which is closed then: where its server takes it in
            /// the reply has no capability, and attributes that say that the content is there. Else
            /// the file is opened as `open` says, and still to be written.
            4 pub content: Bytes,
            /// The client hears notices, and can keep what is written to the file until it is
            /// closed ([`Rights::DELAY`]).
            6 pub can_delay: bool,
            /// The client knows all names of the directory, and can make further files in it
            /// without asking ([`Delegation`]); it has so many handles left for them.
            8 pub can_hold: u32,
            /// If the file is there and its content beside its inode, it is not opened: the client
            /// opens it with a cut, which leaves it there.
            10 pub cuts: bool,
            /// If it is made and a file: the time of its last access.
            12 pub atime: WallTime,
            /// Likewise of its last change.
            14 pub mtime: WallTime,
        }
    }

    /// The new (or existing) object.
    pub struct CreateReply {
        /// False if the name existed.
        pub created: bool,
        /// The object.
        pub handle: Handle,
        /// What it is.
        pub kind: FileKind,
        /// Given if its inode is on this server; if not, open it there.
        pub state: Option<FileState>,
        /// Given if it was opened.
        pub capability: Option<Capability>,
        /// If the name was made: the directory after it.
        pub dir: DirChange,
        optional {
            /// The client has [`Rights::DELAY`] for this many bytes from the beginning of the file.
            2 pub delay_bytes: u32,
            /// As of an open.
            4 pub ceiling: Ceiling,
            /// With [`Rights::DELAY`]: what its owner sets of the file may come with its close, too
            /// ([`DelayedAttributes`](super::DelayedAttributes)).
            6 pub delays_attributes: bool,
            /// The directory is delegated to the client from now on.
            8 pub delegation: Delegation,
            /// With [`Rights::DELAY`], or a delegation: attributes may come with the close of a
            /// file without a content, too, whose bytes its client has brought to data servers.
            10 pub closes_with_attributes: bool,
            /// With a delegation: directories may be made and attributes of directories be set
            /// without asking, too.
            12 pub tells_directories: bool,
            /// With a delegation: names may be removed without asking, too.
            14 pub tells_removals: bool,
        }
    }

    /// Makes a directory; the server of the name chooses the server of the directory.
    pub struct MkdirRequest {
        /// Where.
        pub at: DirTarget,
        /// The name.
        pub name: Bytes,
        /// Permission bits without those of the umask, which are in bits 16 to 24.
        pub mode: u32,
        /// Stripe size for files in it, in bytes; 0: as its parent.
        pub stripe_bytes: u32,
        /// Number of datafiles for files in it; 0: as its parent.
        pub stripe_width: u16,
        /// Who asks.
        pub who: Credentials,
        optional {
            /// As of a create.
            2 pub can_delay: bool,
            /// As of an unlink.
            4 pub can_hold: u32,
        }
    }

    /// The new directory.
    pub struct MkdirReply {
        /// Its state.
        pub state: FileState,
        /// The directory with its name after the change.
        pub dir: DirChange,
        optional {
            /// As of an unlink.
            2 pub delegation: Delegation,
            /// As of a create that has delegated the directory.
            4 pub tells_directories: bool,
        }
    }

    /// Removes a name that leads to anything but a directory.
    pub struct UnlinkRequest {
        /// Where.
        pub at: DirTarget,
        /// The name.
        pub name: Bytes,
        /// Who asks.
        pub who: Credentials,
        optional {
            /// As of a create.
            2 pub can_delay: bool,
            /// The client can make and remove further names of the directory without asking
            /// ([`Delegation`]); it has so many handles left for them.
            4 pub can_hold: u32,
        }
    }

    /// What the name led to.
    pub struct UnlinkReply {
        /// The object.
        pub handle: Handle,
        /// The directory after the change.
        pub dir: DirChange,
        optional {
            /// The directory is delegated to the client from now on, which may remove names, too.
            2 pub delegation: Delegation,
            /// As of a create that has delegated the directory.
            4 pub tells_directories: bool,
        }
    }

    /// What became of a directory by a change of one name. Whoever knew it as it was before the
    /// change knows it now.
    pub struct DirChange {
        /// Its version, one more than before; 0 if the directory was not changed.
        pub version: u64,
        /// Its mtime and ctime.
        pub time: WallTime,
    }

    /// Removes an empty directory.
    pub struct RmdirRequest {
        /// Where its name is.
        pub at: DirTarget,
        /// The name.
        pub name: Bytes,
        /// Who asks.
        pub who: Credentials,
    }

    /// What became of the directory that had the name.
    pub struct RmdirReply {
        /// It after the change.
        pub dir: DirChange,
    }

    /// Moves a name.
    pub struct RenameRequest {
        /// Where the name is.
        pub from: DirTarget,
        /// The name.
        pub from_name: Bytes,
        /// Where it shall be.
        pub to: DirTarget,
        /// What it shall be there.
        pub to_name: Bytes,
        /// Fail if the new name exists (`RENAME_NOREPLACE`).
        pub no_replace: bool,
        /// Swap both names (`RENAME_EXCHANGE`).
        pub exchange: bool,
        /// Who asks.
        pub who: Credentials,
    }

    /// What became of the directories of a name that was moved.
    pub struct RenameReply {
        /// The directory of both names, if that is one, the change is no exchange, and neither name
        /// led to a directory; otherwise it counts as unchanged.
        pub dir: DirChange,
        /// The new name led to something else before.
        pub replaced: bool,
    }

    /// Adds a name to an object that is no directory.
    pub struct LinkRequest {
        /// The object.
        pub handle: Handle,
        /// What it is.
        pub kind: FileKind,
        /// Where the new name goes.
        pub to: DirTarget,
        /// The new name.
        pub to_name: Bytes,
        /// Who asks.
        pub who: Credentials,
    }

    /// The object with its new link count.
    pub struct LinkReply {
        /// Given if its inode is on this server too.
        pub state: Option<FileState>,
        /// The directory of the new name after the change.
        pub dir: DirChange,
    }

    /// Lists entries after a cookie.
    pub struct ReadDirRequest {
        /// Which directory.
        pub at: DirTarget,
        /// 0, or the cookie of the last entry seen.
        pub cookie: u64,
        /// The reply's body shall not be much larger than this.
        pub bytes_max: u32,
        /// With the state of objects whose inode is here.
        pub with_state: bool,
        /// Who asks.
        pub who: Credentials,
    }

    /// One entry.
    pub struct DirEntry {
        /// The name.
        pub name: Bytes,
        /// What it leads to.
        pub handle: Handle,
        /// What that is.
        pub kind: FileKind,
        /// Where to go on after it: the hash of the name. Cookies grow along the listing, are
        /// larger than 2 and less than 2^63.
        pub cookie: u64,
        /// Given on request if the inode is here.
        pub state: Option<FileState>,
    }

    /// Some entries.
    pub struct ReadDirReply {
        /// In the order of their cookies. `.` and `..` are not among them.
        pub entries: Vec<DirEntry>,
        /// Where the listing goes on: with the reply it is complete up to this cookie. `u64::MAX`:
        /// no entry follows.
        pub until: u64,
        /// The directory's parent, for `..`.
        pub parent: Handle,
    }
}

impl UnlinkRequest {
    /// Only removes the name.
    pub fn of(at: DirTarget, name: Bytes, who: Credentials) -> UnlinkRequest {
        UnlinkRequest { at, name, who, can_delay: None, can_hold: None }
    }
}

impl MkdirRequest {
    /// Only makes it, as its parent says.
    pub fn of(at: DirTarget, name: Bytes, mode: u32, who: Credentials) -> MkdirRequest {
        MkdirRequest { at, name, mode, stripe_bytes: 0, stripe_width: 0, who, can_delay: None, can_hold: None }
    }
}

impl CreateRequest {
    /// Only makes it, if the name is free, as its directory says: what else is wanted is to be
    /// filled in.
    pub fn of(at: DirTarget, name: Bytes, (kind, mode): (FileKind, u32), who: Credentials) -> CreateRequest {
        let (open_sequence, rdev, stripe_bytes, stripe_width, target) = Default::default();
        let (strips, unnamed, content, can_delay, can_hold, cuts, atime, mtime) = Default::default();
        CreateRequest {
            at,
            name,
            kind,
            mode,
            rdev,
            target,
            exclusive: true,
            open: Rights::default(),
            open_sequence,
            stripe_bytes,
            stripe_width,
            who,
            strips,
            unnamed,
            content,
            can_delay,
            can_hold,
            cuts,
            atime,
            mtime,
        }
    }
}

impl Copy for DirChange {}

impl DirChange {
    /// No change.
    pub const NONE: DirChange = DirChange { version: 0, time: WallTime(0) };
}
