//! Directories whose names are spread over more or fewer servers while they are used.

use weft_base::{Credentials, Handle, ServerId};

use crate::partition::PartitionMap;
use crate::wire_struct;

wire_struct! {
    /// Spreads the names of a directory, or asks how that goes on.
    pub struct SplitRequest {
        /// The directory.
        pub dir: Handle,
        /// Over so many metadata servers, as many as there are at most; 1: with the server of its
        /// inode; 0: as they are, it is only asked.
        pub servers: u16,
        /// Who asks.
        pub who: Credentials,
    }

    /// How a directory is spread.
    pub struct SplitReply {
        /// Who holds which names.
        pub map: PartitionMap,
        /// How it shall be; `None`: as it is.
        pub goal: Option<PartitionMap>,
        /// Names that have moved on the way there; after its end on the last way.
        pub moved_names: u64,
        /// Why the last way has ended before its goal, or the last step on this one has failed, as
        /// the number of a status; 0: nothing has.
        pub why: u16,
        optional {
            /// Its server has spread it by itself, from so many servers, and brings it back when it
            /// is calm and small.
            2 pub spread_from: u16,
        }
    }

    /// The server of a directory's inode to one that holds names of it: some shall go elsewhere, as
    /// one change.
    pub struct GiveNamesRequest {
        /// The directory.
        pub dir: Handle,
        /// Who holds which names, as the server of the inode says.
        pub map: PartitionMap,
        /// The first of the hashes that shall go there.
        pub first: u64,
        /// The last of them; the highest are moved first.
        pub last: u64,
        /// To whom.
        pub to: ServerId,
        /// Most names in the change, but for names of one hash.
        pub names_max: u32,
    }

    /// What has moved.
    pub struct GiveNamesReply {
        /// So many names.
        pub names: u32,
    }
}
