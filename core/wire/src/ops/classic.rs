//! The metadata servers' part of the protocol of PVFS2 as Kuhn 2007, section 3.3, describes it: a
//! create in five steps, a removal in four. A yardstick for measurements (`--protocol classic` of
//! `weft bench`). Steps that other operations do as well are theirs: attributes of a metafile
//! (`GetAttr`), names (`ReadDir`), datafiles (`ObjectEpoch`, `ObjectStat`, `ObjectRemove`).

use bytes::Bytes;
use weft_base::{Credentials, Handle, Layout};

use super::names::DirTarget;
use crate::{Capability, wire_struct};

/// Most handles of one [`ClassicReserveRequest`].
pub const RESERVED_MAX: u16 = 512;

wire_struct! {
    /// Create, step 1: attributes and hints of a directory.
    pub struct ClassicDirectoryRequest {
        /// The directory.
        pub dir: Handle,
        /// Who asks.
        pub who: Credentials,
    }

    /// What its files are like.
    pub struct ClassicDirectoryReply {
        /// Of new files: the first data server is the client's choice.
        pub layout: Layout,
        /// Data servers among which it chooses.
        pub data_servers: u16,
        /// The hint `no_metafile`.
        pub no_metafile: bool,
    }

    /// Handles for files without a metafile, which in PVFS2 are those that data servers give to
    /// their datafiles.
    pub struct ClassicReserveRequest {
        /// A directory of the server that reserves them.
        pub dir: Handle,
        /// How many, at most [`RESERVED_MAX`].
        pub count: u16,
        /// Who asks.
        pub who: Credentials,
    }

    /// They are nobody else's.
    pub struct ClassicReserveReply {
        /// One for each handle, with the right MANAGE.
        pub capabilities: Vec<Capability>,
    }

    /// Create, step 2: an object for a metafile, without a name.
    pub struct ClassicMakeMetafileRequest {
        /// The directory for which it is.
        pub dir: Handle,
        /// Who asks.
        pub who: Credentials,
    }

    /// The new object.
    pub struct ClassicMakeMetafileReply {
        /// For its handle, with the right MANAGE.
        pub capability: Capability,
    }

    /// Create, step 4: attributes of a metafile that has no name yet, and where its datafiles are.
    pub struct ClassicSetMetafileRequest {
        /// For the metafile.
        pub capability: Capability,
        /// Where its datafiles are, if that is to be set.
        pub layout: Option<Layout>,
        /// Permission bits, the umask applied already.
        pub mode: u32,
        /// Who asks; its owner.
        pub who: Credentials,
    }

    /// Create, step 5: a name for a metafile, or for the one datafile of a file without.
    pub struct ClassicInsertEntryRequest {
        /// Where.
        pub at: DirTarget,
        /// The name; it must be free.
        pub name: Bytes,
        /// For the metafile, or for a handle that was reserved.
        pub capability: Capability,
        /// Given for a file without a metafile: where its datafile is.
        pub datafile: Option<Layout>,
        /// Who asks.
        pub who: Credentials,
    }

    /// Removal, step 1: a name is gone. What it led to is still there.
    pub struct ClassicRemoveEntryRequest {
        /// Where.
        pub at: DirTarget,
        /// The name, of a file that was made so.
        pub name: Bytes,
        /// Who asks.
        pub who: Credentials,
    }

    /// What the name led to.
    pub struct ClassicRemoveEntryReply {
        /// For its datafiles, with the right MANAGE.
        pub capability: Capability,
        /// Given for a file without a metafile: where its datafile is.
        pub datafile: Option<Layout>,
    }

    /// Removal, step 4: a metafile without a name is gone.
    pub struct ClassicRemoveMetafileRequest {
        /// For the metafile.
        pub capability: Capability,
    }
}
