//! Many small files in few messages: names to the right to read their files, without opening them,
//! and reads of many datafiles of one data server.

use bytes::Bytes;
use weft_base::{Credentials, FileKind, Handle, Result};

use super::inodes::FileState;
use super::names::DirTarget;
use crate::{Capability, wire_struct};

wire_struct! {
    /// Names in one directory.
    pub struct NamesInDir {
        /// Where.
        pub at: DirTarget,
        /// The names; the same one may come twice.
        pub names: Vec<Bytes>,
    }

    /// Finds many names, and gives the right to read the files among them. Nothing is opened, so
    /// nothing is to be closed: a file that is removed meanwhile is gone.
    pub struct LookupManyRequest {
        /// Together at most [`LOOKUPS_MAX`] names.
        pub dirs: Vec<NamesInDir>,
        /// Who asks.
        pub who: Credentials,
        optional {
            /// The client takes contents of files that are on this server; who does not say so is
            /// not told of such files, and opens them.
            2 pub contents: bool,
        }
    }

    /// What a name leads to.
    pub struct FoundName {
        /// The object.
        pub handle: Handle,
        /// What it is.
        pub kind: FileKind,
        /// Given if its inode is on this server too.
        pub state: Option<FileState>,
        /// Given with the state of a file that the user may read: for whoever has its bytes, some
        /// seconds long ([`READABLE_NS`]).
        pub read: Option<Capability>,
    }

    /// One result for every name.
    pub struct LookupManyReply {
        /// In the order of the request.
        pub found: Vec<Result<FoundName>>,
        optional {
            /// The bulk data is the concatenation of these contents.
            2 pub contents: Vec<FoundContent>,
        }
    }

    /// The whole content of a file, which is as its attributes beside it say.
    pub struct FoundContent {
        /// Which of the names leads to it.
        pub number: u32,
        /// Its size.
        pub bytes: u32,
    }

    /// A piece of a datafile to be read.
    pub struct DatafileRead {
        /// The file, and permission.
        pub capability: Capability,
        /// Which of its datafiles.
        pub index: u32,
        /// First byte, counted within the datafile.
        pub offset: u64,
        /// Number of bytes, at least 1.
        pub bytes: u32,
    }

    /// Reads pieces of many datafiles.
    pub struct ReadManyRequest {
        /// At most [`READS_MAX`]. They may overlap, and the same datafile may come twice.
        pub reads: Vec<DatafileRead>,
    }

    /// What there is of one piece.
    pub struct DatafileGot {
        /// Bytes of the piece that lie below the local end of the datafile; holes are read as
        /// zeros.
        pub bytes: u32,
        /// Local size of the datafile at the same moment, in bytes.
        pub size: u64,
    }

    /// The bulk data is the concatenation of what there is of each piece.
    pub struct ReadManyReply {
        /// One result for every piece, in their order; one that failed has no bytes.
        pub got: Vec<Result<DatafileGot>>,
    }
}

/// Most names in one [`LookupManyRequest`].
pub const LOOKUPS_MAX: usize = 1024;
/// Most pieces in one [`ReadManyRequest`].
pub const READS_MAX: usize = 1024;
/// How long a capability of a [`FoundName`] lasts, in nanoseconds.
pub const READABLE_NS: i64 = 60_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BODY_BYTES_MAX, ClusterKey, Rights, Wire};
    use weft_base::{ClientId, NAME_BYTES_MAX, WallTime};

    #[test]
    fn the_longest_lists_fit_a_message() {
        let at = DirTarget { dir: Handle(1), map_epoch: 0 };
        let names = vec![Bytes::from(vec![b'x'; NAME_BYTES_MAX]); 1];
        let who = Credentials { uid: 1, gid: 1, groups: vec![7; 1 << 16], checked_by_kernel: false };
        let dirs = vec![NamesInDir { at, names }; LOOKUPS_MAX];
        assert!(LookupManyRequest { dirs, who, contents: None }.to_bytes().len() < BODY_BYTES_MAX);
        let capability = Capability::sign(&ClusterKey([1; 32]), Handle(1), ClientId(1), Rights::READ, WallTime(1));
        let reads = vec![DatafileRead { capability, index: 0, offset: 0, bytes: 1 }; READS_MAX];
        assert!(ReadManyRequest { reads }.to_bytes().len() < BODY_BYTES_MAX);
    }
}
