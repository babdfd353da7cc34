//! Data servers: pieces of datafiles.

use weft_base::{DataTime, Handle};

use crate::{Capability, Ceiling, wire_struct};

wire_struct! {
    /// A contiguous piece of a datafile.
    pub struct Piece {
        /// First byte, counted within the datafile.
        pub offset: u64,
        /// Number of bytes, at least 1.
        pub bytes: u32,
    }

    /// Writes pieces (list I/O); the bulk data is their concatenation.
    pub struct WriteRequest {
        /// The file.
        pub handle: Handle,
        /// Which of its datafiles.
        pub index: u32,
        /// Permission.
        pub capability: Capability,
        /// At most 1024, ordered and disjoint.
        pub pieces: Vec<Piece>,
        /// The epoch of the change, as far as the client knows (see [`DataTime`]); the data server
        /// knows the time.
        pub mtime_epoch: u32,
        /// On stable storage before the reply.
        pub sync: bool,
        optional {
            /// Given if the capability says so. Beyond it nothing is allocated (`QuotaExceeded`).
            1 pub ceiling: Ceiling,
        }
    }

    /// Written.
    pub struct WriteReply {
        /// Local size of the datafile now, in bytes.
        pub size: u64,
        /// When it was written, by the clock of the data server.
        pub mtime: DataTime,
        optional {
            /// There is room for far more than what clients gather before they write it.
            2 pub has_plenty: bool,
        }
    }

    /// Reads pieces (list I/O).
    pub struct ReadRequest {
        /// The file.
        pub handle: Handle,
        /// Which of its datafiles.
        pub index: u32,
        /// Permission.
        pub capability: Capability,
        /// At most 1024, ordered and disjoint.
        pub pieces: Vec<Piece>,
    }

    /// The bulk data is the concatenation of what there is of each piece.
    pub struct ReadReply {
        /// Bytes of each piece that lie below the local end of the datafile; holes are read as
        /// zeros.
        pub got: Vec<u32>,
        /// Local size of the datafile, in bytes.
        pub size: u64,
    }

    /// Local size and times.
    pub struct ObjectStatRequest {
        /// The file.
        pub handle: Handle,
        /// Which of its datafiles.
        pub index: u32,
        /// Any genuine capability for the file.
        pub capability: Capability,
    }

    /// Answer; a datafile that was never written has size 0.
    pub struct ObjectStatReply {
        /// Local size in bytes.
        pub size: u64,
        /// Bytes allocated for it.
        pub allocated_bytes: u64,
        /// Last write; if nothing was written, a time that is no write ([`DataTime::NONE`]).
        pub mtime: DataTime,
    }

    /// Cuts (never extends) a datafile. Idempotent: done once for each epoch.
    pub struct ObjectTruncateRequest {
        /// The file.
        pub handle: Handle,
        /// Which of its datafiles.
        pub index: u32,
        /// With the right MANAGE.
        pub capability: Capability,
        /// New local size, if it is less than the present one.
        pub size: u64,
        /// `Attr::truncate_epoch` after the truncation.
        pub truncate_epoch: u32,
    }

    /// A time was set for the file while others may be writing to it: writes from now on belong to
    /// this epoch at least. Idempotent.
    pub struct ObjectEpochRequest {
        /// The file.
        pub handle: Handle,
        /// Which of its datafiles.
        pub index: u32,
        /// With the right MANAGE.
        pub capability: Capability,
        /// The epoch of writes after the time that was set.
        pub mtime_epoch: u32,
    }

    /// Makes a hole: the bytes read as zeros, and what they took is free. The size stays.
    pub struct ObjectPunchRequest {
        /// The file.
        pub handle: Handle,
        /// Which of its datafiles.
        pub index: u32,
        /// Permission, as for a write.
        pub capability: Capability,
        /// First byte, counted within the datafile.
        pub offset: u64,
        /// Number of bytes, at least 1.
        pub bytes: u64,
        /// As of a write.
        pub mtime_epoch: u32,
    }

    /// Gives bytes of a datafile their space: what was never written is written as zeros. Answered
    /// as a write.
    pub struct ObjectAllocateRequest {
        /// The file.
        pub handle: Handle,
        /// Which of its datafiles.
        pub index: u32,
        /// Permission, as for a write.
        pub capability: Capability,
        /// First byte, counted within the datafile.
        pub offset: u64,
        /// Number of bytes, at least 1 and at most those of the largest write.
        pub bytes: u32,
        /// All these bytes become zeros, not only those that were never written.
        pub zero: bool,
        /// Nothing is done behind the end of the datafile.
        pub keep_size: bool,
        /// As of a write.
        pub mtime_epoch: u32,
        optional {
            /// As of a write.
            1 pub ceiling: Ceiling,
        }
    }

    /// Asks for the next byte that was written, or was not.
    pub struct ObjectSeekRequest {
        /// The file.
        pub handle: Handle,
        /// Which of its datafiles.
        pub index: u32,
        /// Any genuine capability for the file.
        pub capability: Capability,
        /// From this byte on, counted within the datafile.
        pub offset: u64,
        /// One that was not written.
        pub hole: bool,
    }

    /// Where it is.
    pub struct ObjectSeekReply {
        /// The byte; nothing if no further one was written.
        pub at: Option<u64>,
    }

    /// Brings a datafile to stable storage.
    pub struct ObjectSyncRequest {
        /// The file.
        pub handle: Handle,
        /// Which of its datafiles.
        pub index: u32,
        /// Any genuine capability for the file.
        pub capability: Capability,
    }

    /// Lists the datafiles of a server in the order of their handles and numbers.
    pub struct ListDatafilesRequest {
        /// Datafiles behind this one of this file; handle 0: from the start.
        pub handle: Handle,
        /// The number of that datafile.
        pub index: u32,
        /// At most so many; the server gives [`DATAFILES_LISTED_MAX`] at most.
        pub datafiles_max: u32,
    }

    /// A datafile that a server has.
    pub struct ListedDatafile {
        /// Of this file.
        pub handle: Handle,
        /// The number among its datafiles.
        pub index: u32,
        /// Bytes allocated for it.
        pub allocated_bytes: u64,
    }

    /// Some of the datafiles.
    pub struct ListDatafilesReply {
        /// In order.
        pub datafiles: Vec<ListedDatafile>,
        /// No further one follows.
        pub is_end: bool,
    }

    /// Removes a datafile. Idempotent.
    pub struct ObjectRemoveRequest {
        /// The file.
        pub handle: Handle,
        /// Which of its datafiles.
        pub index: u32,
        /// With the right MANAGE.
        pub capability: Capability,
    }
}

/// Most datafiles of one [`ListDatafilesReply`].
pub const DATAFILES_LISTED_MAX: usize = 4096;
