//! Deadlines of whole records: sockets know only such of one call.

use std::io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
use std::io::{self, IoSlice, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// A connection with a deadline for everything together. Its own timeouts say how often the clock
/// is looked at.
#[derive(Debug)]
pub(crate) struct Timed<S = TcpStream> {
    stream: S,
    deadline: Instant,
}

impl<S> Timed<S> {
    pub(crate) fn new(stream: S, time: Duration) -> Timed<S> {
        Timed { stream, deadline: Instant::now() + time }
    }

    /// From now on there is so much time.
    pub(crate) fn give(&mut self, time: Duration) {
        self.deadline = Instant::now() + time;
    }

    /// Does it until it succeeds or the time is over. Who was stopped (SIGSTOP) and goes on is
    /// interrupted in it, because the socket has a timeout.
    fn try_until<T>(&mut self, mut attempt: impl FnMut(&mut S) -> io::Result<T>) -> io::Result<T> {
        loop {
            if Instant::now() >= self.deadline {
                return Err(TimedOut.into());
            }
            match attempt(&mut self.stream) {
                Err(error) if matches!(error.kind(), WouldBlock | TimedOut | Interrupted) => {}
                outcome => return outcome,
            }
        }
    }
}

impl<S: Read> Read for Timed<S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.try_until(|stream| stream.read(buffer))
    }
}

impl<S: Write> Write for Timed<S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.try_until(|stream| stream.write(bytes))
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.try_until(|stream| stream.write_vectored(slices))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fails so often before it says something.
    struct Late(Vec<io::ErrorKind>);

    impl Read for Late {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            match self.0.pop() {
                Some(kind) => Err(kind.into()),
                None => {
                    buffer[0] = 7;
                    Ok(1)
                }
            }
        }
    }

    const LONG: Duration = Duration::from_secs(600);

    #[test]
    fn only_the_deadline_ends_a_wait() {
        let read = |late, time| Timed::new(Late(late), time).read(&mut [0]).map_err(|error| error.kind());
        assert_eq!(read(vec![WouldBlock, Interrupted, TimedOut, Interrupted], LONG), Ok(1));
        assert_eq!(read(vec![], Duration::ZERO), Err(TimedOut));
        assert_eq!(read(vec![io::ErrorKind::ConnectionReset, Interrupted], LONG), Err(io::ErrorKind::ConnectionReset));
    }
}
