//! Bare messages over local sockets: what is left when a file system server does no work at all.
//!
//! A request is 128 bytes, a reply 96, about the size of a create and its answer. The server is one
//! thread with epoll: per turn and connection one read of all that is there, and one write of all
//! the replies. What the bytes say is ignored on both sides, so that only sockets, system calls and
//! the scheduler are measured.
//!
//! Loopback figures are not cluster figures: the server shares the processors with its clients.

mod client;
mod server;

use std::fmt;
use std::fs::File;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use anyhow::{Context, Result};

pub(crate) use client::Client;
pub use client::{Direction, bulk, requests};
pub(crate) use server::Listener;

/// Bytes of one request.
pub const REQUEST_BYTES: usize = 128;
/// Bytes of one reply.
pub const REPLY_BYTES: usize = 96;
/// Bytes of one piece of a bulk stream.
pub const BULK_BYTES: usize = 1 << 20;

/// Where the bare server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// A Unix stream socket at this path; the path must not exist yet.
    Unix(PathBuf),
    /// TCP, without Nagle's delay; port 0 lets the kernel choose.
    Tcp(SocketAddr),
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Endpoint::Unix(path) => write!(f, "unix:{}", path.display()),
            Endpoint::Tcp(address) => write!(f, "tcp:{address}"),
        }
    }
}

/// What a connection is for; its first byte says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Requests and replies.
    Requests,
    /// The client sends, the server drops; at the end of the stream the server answers one byte.
    Upload,
    /// The server sends until the client closes.
    Download,
}

impl Kind {
    fn byte(self) -> u8 {
        match self {
            Kind::Requests => b'r',
            Kind::Upload => b'u',
            Kind::Download => b'd',
        }
    }

    fn of(byte: u8) -> Option<Self> {
        [Kind::Requests, Kind::Upload, Kind::Download].into_iter().find(|kind| kind.byte() == byte)
    }
}

/// A connected blocking socket; reads and writes on it are plain `read(2)` and `write(2)`.
fn connect(endpoint: &Endpoint) -> Result<File> {
    let fd: OwnedFd = match endpoint {
        Endpoint::Unix(path) => UnixStream::connect(path).with_context(|| format!("cannot connect to {endpoint}"))?.into(),
        Endpoint::Tcp(address) => {
            let stream = TcpStream::connect(address).with_context(|| format!("cannot connect to {endpoint}"))?;
            stream.set_nodelay(true)?;
            stream.into()
        }
    };
    Ok(File::from(fd))
}
