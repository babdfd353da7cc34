//! `weft-wire`: every message of Weft, byte by byte: the 64-byte header, the bodies of requests and
//! replies, the handshake that proves the cluster key, and the capabilities that open datafiles.
//! `docs/wire.md` is its description for people.
//!
//! It never touches a socket, never waits, and never decides what a request means.

pub mod capability;
pub mod codec;
mod disk_use;
mod envelope;
mod exchange;
mod features;
mod handle_tags;
pub mod handshake;
mod header;
mod keys;
pub mod ops;
mod partition;
mod tx;
mod types;

pub use capability::{Capability, Ceiling, ClusterKey, Rights};
pub use codec::{ExtensionList, Reader, Wire};
pub use envelope::{AUTH_TAG_BYTES, Cipher, ENVELOPE_BYTES_MAX, LENGTH_BYTES, SessionCiphers};
pub use exchange::{KeyPair, PUBLIC_KEY_BYTES};
pub use features::Features;
pub use handle_tags::{HandleTag, HandleTags, Tagged, put_tags};
pub use header::{
    BODY_BYTES_MAX, BULK_BYTES_MAX, Flags, HANDSHAKE_VERSION, HEADER_BYTES, Header, LeaseScope, MessageKind, PROTOCOL_VERSION,
    PROTOCOL_VERSION_OLDEST, REGION_BYTES_MAX, REGION_PAGE_BYTES,
};
pub use keys::{ClientKey, Credential, KeyId, KeyRights, KeyRing, LIST_BYTES_MAX, LIST_PIECE_BYTES, NOBODY, parse_users, rights_to_text};
pub use ops::{Op, Operation, Request};
pub use partition::{HASH_MAX, HASH_MIN, NameKey};

use bytes::Bytes;
use weft_base::{Payload, Status};
pub use weft_base::{crc32c, crc32c_append};

/// One message as it travels: header, encoded body and bulk data.
#[derive(Clone, Debug)]
pub struct Frame {
    /// The fixed part. `body_bytes`, `bulk_bytes` and the checksums are filled in by whoever sends.
    pub header: Header,
    /// The encoded operation, at most [`BODY_BYTES_MAX`] bytes.
    pub body: Bytes,
    /// Data of a read or write, at most [`BULK_BYTES_MAX`] bytes.
    pub bulk: Payload,
}

impl Frame {
    /// The reply to `request` that carries an operation's result or an error.
    pub fn reply(request: &Header, result: Result<Bytes, Status>, bulk: Payload) -> Frame {
        let mut header = *request;
        header.kind = MessageKind::Reply;
        let body = match result {
            Ok(body) => {
                header.status = 0;
                body
            }
            Err(status) => {
                header.status = status.code();
                Bytes::new()
            }
        };
        Frame { header, body, bulk }
    }

    /// The status of a reply.
    ///
    /// # Errors
    /// The error that the server answered.
    pub fn status(&self) -> Result<(), Status> {
        match self.header.status {
            0 => Ok(()),
            code => Err(Status::from_code(code)),
        }
    }

    /// Bytes on the wire.
    pub fn wire_bytes(&self) -> u64 {
        (HEADER_BYTES + self.body.len()) as u64 + self.bulk.len()
    }
}
