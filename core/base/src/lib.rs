//! `weft-base`: the nouns that every other crate speaks: handles and server numbers, attributes,
//! layouts, the cluster map, payloads, times and the one list of errors that crosses the wire.
//!
//! It never does I/O, never reads a clock and never knows how any of its nouns is stored or sent.

mod acl;
mod attr;
mod checksum;
mod extensions;
mod fast_map;
mod ids;
mod map;
mod payload;
mod requests;
mod status;
mod time;

/// The alignment of memory for names and inodes, in bytes. Nothing else has it, so the heap of a
/// process can tell that memory from all other and keep it where there is more room.
pub const PAGE_ALIGN: usize = 256;

pub use acl::{ACL_ACCESS, ACL_DEFAULT, Acl, mode_with_umask, mode_without_umask};
pub use attr::{
    Attr, BLOCK_BYTES, Credentials, EXECUTE, FileKind, Layout, MODE_ACL, MODE_INLINE, MODE_MASK, MODE_PROJECT, MODE_SEALED, MODE_SETGID,
    MODE_STICKY, MODE_UNNAMED, NAME_BYTES_MAX, PROJECT_ATTRIBUTE, READ, WRITE, check_name, is_project_attribute, set_id_bits, whole_blocks,
};
pub use checksum::{crc32c, crc32c_append};
pub use extensions::{EXTENSION_HEADER_BYTES, ExtensionError, Extensions, extension_header, refuse_unknown};
pub use fast_map::{FastHasher, FastMap, FastSet};
pub use ids::{ClientId, FsId, Handle, ROOT_HANDLE, RequestId, ServerId, ServerRole, StripeIndex};
pub use map::{ClusterMap, Generation, ServerEntry, WIDTH_ALL};
pub use payload::Payload;
pub use requests::{ClientRequests, KnownRequests};
pub use status::{Result, Status};
pub use time::{ATIME_DUE_NS, DataTime, MILLISECOND, Nanos, SECOND, WallTime};
