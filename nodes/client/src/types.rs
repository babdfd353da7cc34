//! What goes into and comes out of the operations of a client.

use std::sync::Arc;

use bytes::Bytes;
use weft_base::{Attr, ClientId, FileKind, Handle, Payload, ROOT_HANDLE, SECOND, WallTime};
use weft_layout::Strips;
use weft_wire::Rights;
use weft_wire::ops::{Judged, SetTime};

use crate::{Error, QuotaUsage};

/// How a client behaves.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// Who the client is; drawn at random for every process.
    pub client: ClientId,
    /// Its life: larger in every later life of the same id.
    pub incarnation: u32,
    /// Longest time of one operation in nanoseconds, retries included.
    pub deadline_ns: u64,
    /// Most requests that one call of a batch (`create_many`, list I/O) keeps in flight.
    pub window: usize,
    /// Bytes of a new file that are gathered before they are sent to data servers, if it is made so
    /// ([`DelayWrites::Gathered`]) and not closed before.
    pub gather_bytes: usize,
    /// The directory that the client takes for the root: that of its key.
    pub root: Handle,
}

impl ClientOptions {
    /// The defaults for a client with this identity.
    pub fn new(client: ClientId, incarnation: u32) -> ClientOptions {
        ClientOptions { client, incarnation, deadline_ns: 30 * SECOND, window: 256, gather_bytes: 512 << 10, root: ROOT_HANDLE }
    }
}

/// What `setattr` changes: everything that is given. The owner's rules and times are those of POSIX
/// `chmod`, `chown`, `truncate` and `utimensat`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SetAttr {
    /// Permission bits (`0o7777`).
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Truncates or extends a file to this many bytes.
    pub size: Option<u64>,
    /// Last access.
    pub atime: Option<SetTime>,
    /// Last change of the data.
    pub mtime: Option<SetTime>,
    /// The caller has the file open for writing (`ftruncate`): a change of size needs no write
    /// permission.
    pub opened_for_write: bool,
    /// Seals the object or takes the seal away; alone.
    pub seal: Option<bool>,
}

/// What of the writes to a file may stay with a client that keeps leases
/// ([`crate::Client::keep_leases`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DelayWrites {
    /// Nothing.
    #[default]
    No,
    /// A content that its server will keep beside the inode, until the file is closed.
    Small,
    /// More as well, as far as there is room: for users that call
    /// [`crate::Client::bring_gathered`] before a close of the file returns. Of a new file that may
    /// be made without asking ([`CreateOptions::can_absorb`]) what is gathered may leave later.
    Gathered,
}

impl DelayWrites {
    /// `gathers`: more than small contents.
    pub fn allowed(is_allowed: bool, gathers: bool) -> DelayWrites {
        match (is_allowed, gathers) {
            (false, _) => DelayWrites::No,
            (true, false) => DelayWrites::Small,
            (true, true) => DelayWrites::Gathered,
        }
    }
}

/// How `create` makes and opens a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreateOptions {
    /// Permission bits, and the umask ([`weft_base::mode_with_umask`]).
    pub mode: u32,
    /// Fail if the name exists (`O_EXCL`); otherwise the existing file is opened.
    pub exclusive: bool,
    /// What to open it for; at least one right.
    pub rights: Rights,
    /// Cut an existing file to nothing (`O_TRUNC`).
    pub truncate: bool,
    /// Stripe size in bytes; 0: what the directory says.
    pub stripe_bytes: u32,
    /// Number of datafiles; 0: what the directory says.
    pub stripe_width: u16,
    /// The distribution `varstrip` with these strips.
    pub strips: Option<Arc<Strips>>,
    /// What of the writes to it may stay with this client.
    pub delays: DelayWrites,
    /// Times of the last access and change of a new file; none: now.
    pub times: Option<(WallTime, WallTime)>,
    /// It may be made without asking, where nobody else knows the directory: for clients that keep
    /// leases, call [`crate::Client::tell_absorbed`] soon and close files by
    /// [`crate::Client::close_many`].
    pub can_absorb: bool,
}

impl Default for CreateOptions {
    fn default() -> Self {
        let rights = Rights::READ.with(Rights::WRITE);
        CreateOptions {
            mode: 0o644,
            exclusive: false,
            rights,
            truncate: false,
            stripe_bytes: 0,
            stripe_width: 0,
            strips: None,
            delays: DelayWrites::No,
            times: None,
            can_absorb: false,
        }
    }
}

/// How a file is opened that is there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpenWith {
    /// What to open it for; at least one right.
    pub rights: Rights,
    /// Cut it to nothing (`O_TRUNC`).
    pub truncate: bool,
    /// What the kernel of a mount remembers of it, which has found the file and allowed the open by
    /// that. If it is not true any more, or the file has no name, that is
    /// [`weft_base::Status::Stale`], and nothing has been opened or cut.
    pub judged: Option<Judged>,
    /// What of the writes to it may stay with this client, if nobody else has it open.
    pub delays: DelayWrites,
}

/// Flags of `rename`; at most one of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RenameFlags {
    /// Fail if the new name exists (`RENAME_NOREPLACE`).
    pub no_replace: bool,
    /// Swap both names (`RENAME_EXCHANGE`).
    pub exchange: bool,
}

/// What [`crate::Client::seek`] looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeekFor {
    /// A byte that was written (`SEEK_DATA`).
    Data,
    /// A byte that was not, or the end of the file (`SEEK_HOLE`).
    Hole,
}

/// What [`crate::Client::fallocate`] does to a range of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fallocate {
    /// Give it its space; what was never written reads as zeros as before.
    Reserve {
        /// Do not make the file longer.
        keep_size: bool,
    },
    /// The same, and all of it reads as zeros.
    Zero {
        /// Do not make the file longer.
        keep_size: bool,
    },
    /// Make a hole of it, and give its space back. The size stays.
    Punch,
}

/// Flags of `set_xattr`; at most one of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct XattrFlags {
    /// Fail if it exists (`XATTR_CREATE`).
    pub create_only: bool,
    /// Fail if it does not exist (`XATTR_REPLACE`).
    pub replace_only: bool,
}

/// One entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirItem {
    /// The name.
    pub name: Bytes,
    /// What it leads to.
    pub handle: Handle,
    /// What that is.
    pub kind: FileKind,
    /// Where to go on after it.
    pub cookie: u64,
    /// Given if attributes were wanted and the object was still there.
    pub attr: Option<Attr>,
    /// The attributes are exact. Never false but in a listing that does not wait for data servers
    /// ([`crate::Client::readdir_soon`]).
    pub is_exact: bool,
}

/// A file that was read as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WholeFile {
    /// What the name led to.
    pub handle: Handle,
    /// All of its bytes.
    pub data: Payload,
}

/// Attributes of an object as far as they can be had soon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The attributes.
    pub attr: Attr,
    /// False: others are writing the file, and a data server does not answer; size and times are
    /// what the metadata server knew last.
    pub is_exact: bool,
}

/// Some entries of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirPage {
    /// In the order of their cookies; `.` and `..` are not among them.
    pub entries: Vec<DirItem>,
    /// No entry follows.
    pub end: bool,
    /// The directory's parent, for `..`.
    pub parent: Handle,
}

/// Sums over all servers that answered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FsStats {
    /// Bytes that the data servers can hold.
    pub capacity_bytes: u64,
    /// Bytes still free on the data servers.
    pub free_bytes: u64,
    /// Bytes used for datafiles.
    pub used_bytes: u64,
    /// Inodes on the metadata servers.
    pub inodes: u64,
    /// How many more there may be; `None`: nobody has said.
    pub inodes_free: Option<u64>,
    /// Servers that did not answer, and why; they are missing in the sums.
    pub unanswered: Vec<Error>,
}

impl FsStats {
    /// What is left within these limits: as if the file system were as large as they are.
    pub(crate) fn limit(&mut self, usage: &QuotaUsage) {
        if let Some(max) = usage.bytes_max {
            let taken = usage.bytes.saturating_add(usage.bytes_reserved);
            (self.capacity_bytes, self.used_bytes) = (max, usage.bytes);
            self.free_bytes = self.free_bytes.min(max.saturating_sub(taken));
        }
        if let Some(max) = usage.inodes_max {
            (self.inodes, self.inodes_free) = (usage.inodes, Some(max.saturating_sub(usage.inodes)));
        }
    }
}
