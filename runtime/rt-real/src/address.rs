//! Where servers listen: `tcp:HOST:PORT` or `unix:PATH`.

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use weft_base::{Nanos, SECOND};

use crate::{clock, sys};

/// The address of a server.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Address {
    /// TCP; the host is a name, an IPv4 address, or an IPv6 address (written in brackets in text).
    Tcp {
        /// Name or address of the host.
        host: String,
        /// Port; 0 lets the system choose one when listening.
        port: u16,
    },
    /// A socket in the file system of this machine.
    Unix(PathBuf),
}

/// Why a text is no address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressError {
    /// The text.
    pub text: String,
    /// What is wrong with it.
    pub reason: &'static str,
}

impl fmt::Display for AddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is no address: {} (write tcp:HOST:PORT or unix:PATH)", self.text, self.reason)
    }
}

impl std::error::Error for AddressError {}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Address, AddressError> {
        let wrong = |reason| AddressError { text: text.to_string(), reason };
        if let Some(path) = text.strip_prefix("unix:") {
            return match path.len() {
                0 => Err(wrong("the path of the socket is missing")),
                _ if path.contains('\0') => Err(wrong("a path cannot contain a NUL byte")),
                len if len > sys::UNIX_PATH_BYTES_MAX => Err(wrong("the path of a socket can have at most 107 bytes")),
                _ => Ok(Address::Unix(PathBuf::from(path))),
            };
        }
        let Some(rest) = text.strip_prefix("tcp:") else {
            return Err(wrong("it begins with neither tcp: nor unix:"));
        };
        let (host, port) = rest.rsplit_once(':').ok_or_else(|| wrong("the port is missing"))?;
        let host = match host.strip_prefix('[') {
            Some(inner) => inner.strip_suffix(']').ok_or_else(|| wrong("a bracket is not closed"))?,
            None if host.contains(':') => return Err(wrong("an IPv6 address needs brackets")),
            None => host,
        };
        if host.is_empty() {
            return Err(wrong("the host is missing"));
        }
        let port = port.parse().map_err(|_| wrong("the port is no number from 0 to 65535"))?;
        Ok(Address::Tcp { host: host.to_string(), port })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp { host, port } if host.contains(':') => write!(f, "tcp:[{host}]:{port}"),
            Address::Tcp { host, port } => write!(f, "tcp:{host}:{port}"),
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl Address {
    /// True if nobody outside this machine can reach a server that listens here.
    ///
    /// # Errors
    /// When the host name cannot be resolved.
    pub fn is_local(&self) -> io::Result<bool> {
        match self {
            Address::Unix(_) => Ok(true),
            Address::Tcp { .. } => Ok(self.resolve()?.iter().all(|address| address.ip().is_loopback())),
        }
    }

    /// Connects, waiting until `deadline` at most (the resolver of host names has its own limit).
    pub(crate) fn connect(&self, deadline: Nanos) -> io::Result<OwnedFd> {
        let left_ns = || deadline.since(clock::now()).clamp(1_000, 3600 * SECOND);
        match self {
            Address::Unix(path) => {
                let socket = sys::kept(sys::connect_unix(path, left_ns())?)?;
                sys::tune_unix(socket.as_fd());
                Ok(socket)
            }
            Address::Tcp { .. } => {
                let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
                for address in self.resolve()? {
                    match TcpStream::connect_timeout(&address, Duration::from_nanos(left_ns())) {
                        Ok(stream) => {
                            sys::tune_tcp(stream.as_fd())?;
                            return sys::kept(stream.into());
                        }
                        Err(error) => last = error,
                    }
                }
                Err(last)
            }
        }
    }

    /// Listens; gives the sockets and, for each, the address that it has (port 0 replaced by the
    /// real one).
    pub(crate) fn listen(&self) -> io::Result<Vec<(OwnedFd, Address)>> {
        match self {
            Address::Unix(path) => {
                remove_dead_socket(path)?;
                let socket = sys::listen_unix(path)?;
                sys::set_nonblocking(socket.as_fd())?;
                Ok(vec![(socket, self.clone())])
            }
            Address::Tcp { host, .. } => {
                let mut sockets = Vec::new();
                for address in self.resolve()? {
                    let listener = TcpListener::bind(address)?;
                    listener.set_nonblocking(true)?;
                    let port = listener.local_addr()?.port();
                    sockets.push((listener.into(), Address::Tcp { host: host.clone(), port }));
                    if address.port() == 0 {
                        break; // a second family would get another port
                    }
                }
                Ok(sockets)
            }
        }
    }

    fn resolve(&self) -> io::Result<Vec<SocketAddr>> {
        match self {
            Address::Tcp { host, port } => {
                let found: Vec<_> = (host.as_str(), *port).to_socket_addrs()?.collect();
                if found.is_empty() { Err(io::Error::new(io::ErrorKind::NotFound, "the host has no address")) } else { Ok(found) }
            }
            Address::Unix(_) => Ok(Vec::new()),
        }
    }
}

/// A server that was killed leaves its socket behind. Removes it, unless somebody answers there or
/// it is something else.
fn remove_dead_socket(path: &Path) -> io::Result<()> {
    let Ok(found) = std::fs::symlink_metadata(path) else {
        return Ok(());
    };
    if !found.file_type().is_socket() {
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, "there is something that is not a socket"));
    }
    match sys::connect_unix(path, SECOND) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => std::fs::remove_file(path),
        _ => Err(io::Error::new(io::ErrorKind::AddrInUse, "another process listens there")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn good_addresses_round_trip() {
        for text in ["tcp:host.example:7000", "tcp:127.0.0.1:0", "tcp:[::1]:65535", "unix:/run/weft/meta0", "unix:relative"] {
            assert_eq!(text.parse::<Address>().expect(text).to_string(), text);
        }
    }

    #[test]
    fn bad_addresses_say_why() {
        let long = format!("unix:/{}", "x".repeat(107));
        for (text, word) in [
            ("", "neither"),
            ("host:1", "neither"),
            ("tcp:host", "port is missing"),
            ("tcp::1", "host is missing"),
            ("tcp:host:70000", "65535"),
            ("tcp:host:", "65535"),
            ("tcp:::1:5", "brackets"),
            ("tcp:[::1:5", "not closed"),
            ("unix:", "path of the socket is missing"),
            (&long, "107"),
        ] {
            let error = text.parse::<Address>().expect_err(text).to_string();
            assert!(error.contains(word), "{text}: {error}");
        }
    }

    #[test]
    fn local_means_loopback_or_unix() {
        let local = |text: &str| text.parse::<Address>().expect(text).is_local().expect(text);
        assert!(local("tcp:127.0.0.1:1") && local("tcp:[::1]:1") && local("unix:/x"));
        assert!(!local("tcp:0.0.0.0:1") && !local("tcp:192.0.2.1:1"));
    }
}
