//! The bare server: one thread, one epoll set, no work.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpListener;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixListener;

use anyhow::{Context, Result};
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;

use super::{BULK_BYTES, Endpoint, Kind, REPLY_BYTES, REQUEST_BYTES};
use crate::sys::PageBuf;

/// Requests, or the end of a connection.
const READ: EventFlags = EventFlags::IN.union(EventFlags::RDHUP);
/// Ready descriptors that one wait tells.
const EVENTS: usize = 64;

/// A bound socket that does not serve yet.
pub(crate) enum Listener {
    Unix(UnixListener),
    Tcp(TcpListener),
}

impl Listener {
    /// Binds; clients may connect from now on, and are served once [`Listener::serve`] runs.
    pub(crate) fn bind(endpoint: &Endpoint) -> Result<Self> {
        let because = || format!("cannot listen on {endpoint}");
        let listener = match endpoint {
            Endpoint::Unix(path) => Listener::Unix(UnixListener::bind(path).with_context(because)?),
            Endpoint::Tcp(address) => Listener::Tcp(TcpListener::bind(address).with_context(because)?),
        };
        match &listener {
            Listener::Unix(socket) => socket.set_nonblocking(true)?,
            Listener::Tcp(socket) => socket.set_nonblocking(true)?,
        }
        Ok(listener)
    }

    /// The port that the kernel chose; 0 for a Unix socket.
    pub(crate) fn port(&self) -> Result<u16> {
        Ok(match self {
            Listener::Unix(_) => 0,
            Listener::Tcp(socket) => socket.local_addr()?.port(),
        })
    }

    /// Serves until `stop` becomes readable or is closed at its other end.
    pub(crate) fn serve(self, stop: BorrowedFd<'_>) -> Result<()> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let add = |fd: BorrowedFd<'_>| epoll::add(&epoll, fd, token(fd), READ);
        add(self.fd())?;
        add(stop)?;
        let mut server =
            BareServer { epoll, connections: BTreeMap::new(), buffer: PageBuf::new(BULK_BYTES, 0), zeros: PageBuf::new(BULK_BYTES, 0) };
        let mut ready = Vec::with_capacity(EVENTS);
        loop {
            ready.clear();
            match epoll::wait(&server.epoll, spare_capacity(&mut ready), None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            for event in &ready {
                let (fd, flags) = (event.data.u64() as i32, event.flags);
                if fd == stop.as_raw_fd() {
                    return Ok(());
                } else if fd == self.fd().as_raw_fd() {
                    server.accept(&self)?;
                } else {
                    let broken = EventFlags::HUP | EventFlags::ERR;
                    server.turn(fd, flags.intersects(READ | broken), flags.contains(EventFlags::OUT))?;
                }
            }
        }
    }

    fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Listener::Unix(socket) => socket.as_fd(),
            Listener::Tcp(socket) => socket.as_fd(),
        }
    }

    /// The next waiting connection, not blocking.
    fn accept(&self) -> io::Result<OwnedFd> {
        Ok(match self {
            Listener::Unix(socket) => {
                let (stream, _) = socket.accept()?;
                stream.set_nonblocking(true)?;
                stream.into()
            }
            Listener::Tcp(socket) => {
                let (stream, _) = socket.accept()?;
                stream.set_nonblocking(true)?;
                stream.set_nodelay(true)?;
                stream.into()
            }
        })
    }
}

/// A descriptor is told by its number.
fn token(fd: BorrowedFd<'_>) -> EventData {
    EventData::new_u64(fd.as_raw_fd() as u64)
}

struct BareServer {
    epoll: OwnedFd,
    connections: BTreeMap<i32, Connection>,
    /// Where everything is received, for all connections: nobody looks at the bytes.
    buffer: PageBuf,
    /// Where everything is sent from.
    zeros: PageBuf,
}

struct Connection {
    socket: File,
    /// `None` until the first byte has come.
    kind: Option<Kind>,
    /// Bytes of a request that is not complete yet.
    partial_bytes: usize,
    /// Bytes that the client still has to get.
    owed_bytes: u64,
    interest: EventFlags,
    /// The client sends no more; close when nothing is owed.
    ending: bool,
}

impl BareServer {
    fn accept(&mut self, listener: &Listener) -> Result<()> {
        loop {
            match listener.accept() {
                Ok(fd) => {
                    epoll::add(&self.epoll, &fd, token(fd.as_fd()), READ)?;
                    let connection =
                        Connection { socket: File::from(fd), kind: None, partial_bytes: 0, owed_bytes: 0, interest: READ, ending: false };
                    self.connections.insert(connection.socket.as_raw_fd(), connection);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                // The client gave up between its connect and this accept.
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
                Err(error) => return Err(error).context("cannot accept a connection"),
            }
        }
    }

    /// One turn of one connection: one read, one write. Closing the socket takes it out of the
    /// epoll set.
    fn turn(&mut self, fd: i32, readable: bool, writable: bool) -> Result<()> {
        let Some(connection) = self.connections.get_mut(&fd) else {
            return Ok(());
        };
        let mut alive = true;
        if readable {
            alive = connection.receive(self.buffer.bytes_mut());
        }
        if alive && connection.owed_bytes > 0 && (readable || writable) {
            alive = connection.send(self.zeros.bytes());
        }
        if !alive || (connection.ending && connection.owed_bytes == 0) {
            self.connections.remove(&fd);
            return Ok(());
        }
        let wanted = match (connection.ending, connection.owed_bytes > 0) {
            (true, _) => EventFlags::OUT,
            (false, true) => READ | EventFlags::OUT,
            (false, false) => READ,
        };
        if wanted != connection.interest {
            connection.interest = wanted;
            epoll::modify(&self.epoll, &connection.socket, token(connection.socket.as_fd()), wanted)?;
        }
        Ok(())
    }
}

impl Connection {
    /// Reads once and notes what the client is to get; false when the connection is broken or of no
    /// known kind.
    fn receive(&mut self, buffer: &mut [u8]) -> bool {
        let room = if self.kind.is_none() { &mut buffer[..1] } else { buffer };
        let received = match self.socket.read(room) {
            Ok(received) => received,
            Err(error) => {
                return matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted);
            }
        };
        match self.kind {
            _ if received == 0 => {
                self.ending = true;
                match self.kind {
                    Some(Kind::Upload) => self.owed_bytes = 1,
                    Some(Kind::Download) => self.owed_bytes = 0,
                    Some(Kind::Requests) | None => {}
                }
            }
            None => {
                self.kind = Kind::of(room[0]);
                if self.kind == Some(Kind::Download) {
                    self.owed_bytes = u64::MAX;
                }
                return self.kind.is_some();
            }
            Some(Kind::Requests) => {
                let bytes = self.partial_bytes + received;
                self.owed_bytes += (bytes / REQUEST_BYTES * REPLY_BYTES) as u64;
                self.partial_bytes = bytes % REQUEST_BYTES;
            }
            Some(Kind::Upload | Kind::Download) => {}
        }
        true
    }

    /// Writes once; false when the client is gone.
    fn send(&mut self, zeros: &[u8]) -> bool {
        let piece = usize::try_from(self.owed_bytes).map_or(zeros.len(), |owed| owed.min(zeros.len()));
        match self.socket.write(&zeros[..piece]) {
            Ok(sent) => {
                self.owed_bytes -= sent as u64;
                true
            }
            Err(error) => matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted),
        }
    }
}
