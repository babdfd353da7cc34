//! The measuring side: one thread and one blocking socket per connection.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use serde::Serialize;

use super::{BULK_BYTES, Endpoint, Kind, REPLY_BYTES, REQUEST_BYTES, connect};
use crate::measure::{Latencies, Measured, Reps, TimedRate, plain_rate, timed_rate, until};
use crate::sys::PageBuf;

/// Which way a bulk stream goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Direction {
    /// From the client to the server, as a write.
    Upload,
    /// From the server to the client, as a read.
    Download,
}

/// Requests and replies over `connections` connections, each with its own thread and up to `depth`
/// requests in flight.
///
/// Depth 1 is the strictly synchronous round trip, and only there each is timed. Above it a client
/// sends in one write as many new requests as the last read brought replies.
///
/// # Errors
/// When the server cannot be reached or goes away, and when `connections` or `depth` is 0.
pub fn requests(endpoint: &Endpoint, connections: usize, depth: usize, reps: Reps) -> Result<TimedRate> {
    ensure!(depth > 0, "at least one request must be in flight");
    timed_rate(
        reps,
        connections,
        "requests/s",
        |_, _| Client::open(endpoint, Kind::Requests, depth * REQUEST_BYTES),
        |client, deadline| {
            if depth == 1 { client.synchronous(deadline) } else { client.windowed(depth, deadline) }
        },
        |client| client.latencies,
    )
}

/// Bulk streams in pieces of [`BULK_BYTES`] over `connections` connections, each with its own
/// thread; GiB/s in all.
///
/// An upload counts once the server has confirmed the end of the stream, so bytes in flight are not
/// counted early.
///
/// # Errors
/// When the server cannot be reached or goes away, and when `connections` is 0.
pub fn bulk(endpoint: &Endpoint, direction: Direction, connections: usize, reps: Reps) -> Result<Measured> {
    let kind = match direction {
        Direction::Upload => Kind::Upload,
        Direction::Download => Kind::Download,
    };
    plain_rate(
        reps,
        connections,
        1.0 / (1u64 << 30) as f64,
        "GiB/s",
        |_, _| Client::open(endpoint, kind, BULK_BYTES),
        |client, deadline| match direction {
            Direction::Upload => client.upload(deadline),
            Direction::Download => client.download(deadline),
        },
    )
}

/// One connection.
pub(crate) struct Client {
    socket: File,
    buffer: PageBuf,
    latencies: Latencies,
}

impl Client {
    /// For synchronous requests.
    pub(crate) fn for_requests(endpoint: &Endpoint) -> Result<Self> {
        Self::open(endpoint, Kind::Requests, REQUEST_BYTES)
    }

    fn open(endpoint: &Endpoint, kind: Kind, buffer_bytes: usize) -> Result<Self> {
        let mut socket = connect(endpoint)?;
        socket.write_all(&[kind.byte()])?;
        let mut client = Self { socket, buffer: PageBuf::new(buffer_bytes, 0), latencies: Latencies::default() };
        if kind == Kind::Requests {
            // The server has accepted and knows the kind before the clock starts.
            client.round_trip()?;
        }
        Ok(client)
    }

    /// One request and its reply.
    pub(crate) fn round_trip(&mut self) -> Result<()> {
        self.socket.write_all(&self.buffer.bytes()[..REQUEST_BYTES])?;
        self.socket.read_exact(&mut self.buffer.bytes_mut()[..REPLY_BYTES]).context("the bare server closed the connection")
    }

    fn synchronous(&mut self, deadline: Instant) -> Result<u64> {
        let mut latencies = std::mem::take(&mut self.latencies);
        let done = latencies.time_until(deadline, || self.round_trip());
        self.latencies = latencies;
        done
    }

    fn windowed(&mut self, depth: usize, deadline: Instant) -> Result<u64> {
        let mut in_flight = 0;
        let mut partial_bytes = 0;
        let mut done = 0;
        loop {
            let free = depth - in_flight;
            if Instant::now() < deadline {
                self.socket.write_all(&self.buffer.bytes()[..free * REQUEST_BYTES])?;
                in_flight = depth;
            } else if in_flight == 0 {
                return Ok(done);
            }
            // A read without a whole reply frees nothing: read on.
            let replies = loop {
                let received = self.socket.read(self.buffer.bytes_mut())?;
                ensure!(received > 0, "the bare server closed the connection");
                let bytes = partial_bytes + received;
                partial_bytes = bytes % REPLY_BYTES;
                if bytes >= REPLY_BYTES {
                    break bytes / REPLY_BYTES;
                }
            };
            in_flight -= replies;
            done += replies as u64;
        }
    }

    fn upload(&mut self, deadline: Instant) -> Result<u64> {
        let sent_bytes = until(deadline, || {
            self.socket.write_all(self.buffer.bytes())?;
            Ok(BULK_BYTES as u64)
        })?;
        self.end_of_stream()?;
        self.socket.read_exact(&mut self.buffer.bytes_mut()[..1]).context("the bare server did not confirm the end of the stream")?;
        Ok(sent_bytes)
    }

    fn download(&mut self, deadline: Instant) -> Result<u64> {
        until(deadline, || {
            let received = self.socket.read(self.buffer.bytes_mut())?;
            ensure!(received > 0, "the bare server closed the connection");
            Ok(received as u64)
        })
    }

    /// Says "no more from here" and keeps the other direction open.
    fn end_of_stream(&self) -> Result<()> {
        // Both kinds of stream shut down by the same system call, so the type of this one does not
        // matter.
        let fd: OwnedFd = self.socket.try_clone()?.into();
        std::net::TcpStream::from(fd).shutdown(std::net::Shutdown::Write)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Server, ServerRole};
    use std::time::Duration;

    const SHORT: Reps = Reps::new(Duration::from_millis(10), 3);

    fn exercise(server: &Server) {
        let endpoint = server.endpoint().expect("a bare server has an endpoint");
        for (connections, depth) in [(1, 1), (3, 1), (1, 32), (4, 7)] {
            let result = requests(endpoint, connections, depth, SHORT).expect("requests are answered");
            assert!(result.rate.min > 0.0, "{result:?}");
            assert_eq!(result.p50_us.is_some(), depth == 1);
            if let (Some(p50), Some(p99)) = (result.p50_us, result.p99_us) {
                assert!(p50.min > 0.0 && p50.median <= p99.median, "{result:?}");
            }
        }
        for direction in [Direction::Upload, Direction::Download] {
            let speed = bulk(endpoint, direction, 2, SHORT).expect("bulk streams run");
            assert!(speed.min > 0.0, "{speed:?}");
        }
    }

    #[test]
    fn unix_socket() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let role = ServerRole::Rpc(Endpoint::Unix(dir.path().join("s")));
        exercise(&Server::in_process(&role).expect("the server starts"));
    }

    #[test]
    fn tcp_loopback() {
        let role = ServerRole::Rpc(Endpoint::Tcp(([127, 0, 0, 1], 0).into()));
        exercise(&Server::in_process(&role).expect("the server starts"));
    }

    #[test]
    fn nobody_listens() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let nowhere = Endpoint::Unix(dir.path().join("none"));
        assert!(requests(&nowhere, 1, 1, SHORT).is_err());
    }

    #[test]
    fn a_stopped_server_is_an_error_and_not_a_hang() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let role = ServerRole::Rpc(Endpoint::Unix(dir.path().join("s")));
        let server = Server::in_process(&role).expect("the server starts");
        let endpoint = server.endpoint().expect("an endpoint").clone();
        let mut client = Client::open(&endpoint, Kind::Requests, REQUEST_BYTES).expect("connected");
        drop(server);
        assert!(client.round_trip().is_err());
    }
}
