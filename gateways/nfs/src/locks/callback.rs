//! The call by which a client that waits for a lock hears that it has it: GRANTED, to the lock
//! manager of the client, which its portmapper knows. It goes to the address that the client called
//! from and nowhere else, and comes from the address that the client called.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use weft_wire::ops::LockKind;

use super::messages::{NlmStatus, OPAQUE_BYTES_MAX};
use super::table::NfsWait;
use super::{NLM_PROGRAM, NLM_VERSION};
use crate::portmap;
use crate::records;
use crate::rpc::{self, RpcAnswer};
use crate::timed::Timed;
use crate::xdr::{Reader, Writer};

/// GRANTED.
const GRANTED: u32 = 5;
/// How long a portmapper may take, with its connection, and a lock manager.
const EACH_MAX: Duration = Duration::from_secs(3);
/// How often who waits for an answer looks at the clock.
const TICK: Duration = Duration::from_millis(500);

/// A lock that is held for a client which waits for it.
#[derive(Clone, Debug)]
pub(crate) struct Grant {
    client: IpAddr,
    /// The address by which the client knows the gateway.
    at: IpAddr,
    xid: u32,
    arguments: Writer,
}

impl Grant {
    /// Of this wait.
    pub fn new(number: u64, wait: &NfsWait) -> Grant {
        let mut arguments = Writer::default();
        arguments.opaque(&number.to_be_bytes()).bool(wait.lock.kind == LockKind::Exclusive);
        wait.asked.put(&mut arguments);
        Grant { client: wait.asked.owner.host.address, at: wait.at.to_canonical(), xid: number as u32, arguments }
    }

    /// The arguments of the call.
    #[cfg(test)]
    pub fn arguments(&self) -> Reader {
        Reader::new(self.arguments.0.clone().into())
    }
}

/// What a client says to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// It has the lock.
    Taken,
    /// It does not want it, or has it already.
    Refused,
    /// It may have heard, and has not answered.
    Unanswered,
    /// It has not heard.
    Unheard,
}

/// Tells a client; its portmapper listens at this port.
pub(crate) fn tell(grant: &Grant, portmapper: u16) -> Told {
    let Grant { client, at, xid, arguments } = grant;
    let (call, question) = portmap::look_up(*client, NLM_PROGRAM, NLM_VERSION);
    let found = ask((*client, portmapper), *at, *xid, call, &question).ok().flatten();
    let port = found.and_then(|results| portmap::found_port(*client, results).ok().flatten());
    let Some(port) = port else { return Told::Unheard };
    let said = ask((*client, port), *at, *xid, (NLM_PROGRAM, NLM_VERSION, GRANTED), arguments);
    match said {
        Err(Missed::Unheard) | Ok(None) => Told::Unheard,
        Err(Missed::Unanswered) => Told::Unanswered,
        Ok(Some(results)) => status(results),
    }
}

fn status(mut results: Reader) -> Told {
    match results.opaque(OPAQUE_BYTES_MAX).and_then(|_| results.u32()).map(NlmStatus) {
        Ok(NlmStatus::GRANTED) => Told::Taken,
        Ok(NlmStatus::LATER) => Told::Unheard,
        Ok(_) => Told::Refused,
        Err(_) => Told::Unanswered,
    }
}

/// Why a call has no answer.
enum Missed {
    /// It did not arrive.
    Unheard,
    /// It may have.
    Unanswered,
}

/// Calls a program of a client: its results, or none if it was not carried out.
fn ask(to: (IpAddr, u16), from: IpAddr, xid: u32, call: (u32, u32, u32), arguments: &Writer) -> Result<Option<Reader>, Missed> {
    let until = Instant::now() + EACH_MAX;
    let stream = connect(from, to.into()).map_err(|_| Missed::Unheard)?;
    let mut timed = Timed::new(&stream, until.saturating_duration_since(Instant::now()));
    let mut message = rpc::call(xid, call);
    message.0.extend_from_slice(&arguments.0);
    records::write(&mut timed, &RpcAnswer { head: message.0, data: Vec::new() }).map_err(|_| Missed::Unanswered)?;
    let record = records::read(&mut timed, |_| {}).ok().flatten().ok_or(Missed::Unanswered)?;
    rpc::results(xid, record.into()).map_err(|_| Missed::Unanswered)
}

fn connect(from: IpAddr, to: SocketAddr) -> io::Result<TcpStream> {
    let family = if to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = rustix::net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    // That is how long `connect` waits, too.
    set_socket_timeout(&socket, Timeout::Send, Some(EACH_MAX))?;
    rustix::net::bind(&socket, &SocketAddr::new(from, 0))?;
    rustix::net::connect(&socket, &to)?;
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(TICK))?;
    stream.set_write_timeout(Some(TICK))?;
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread::JoinHandle;

    use super::*;
    use crate::rpc::{Refusal, refused};

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    fn grant() -> Grant {
        let mut arguments = Writer::default();
        arguments.opaque(b"cookie");
        Grant { client: HERE, at: HERE, xid: 77, arguments }
    }

    /// A program that answers calls as it is told to, one after another; `None`: not at all.
    fn program(answers: Vec<Option<Vec<u8>>>) -> (u16, JoinHandle<()>) {
        let listener = TcpListener::bind((HERE, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let thread = std::thread::spawn(move || {
            for answer in answers {
                let (mut stream, _) = listener.accept().unwrap();
                records::read(&mut stream, |_| {}).unwrap().unwrap();
                if let Some(head) = answer {
                    records::write(&mut stream, &RpcAnswer { head, data: Vec::new() }).unwrap();
                }
            }
        });
        (port, thread)
    }

    fn answer(write: impl for<'w> FnOnce(&'w mut Writer) -> &'w mut Writer) -> Vec<u8> {
        let mut out = rpc::accepted(77);
        write(&mut out);
        out.0
    }

    #[test]
    fn what_a_client_says_is_understood() {
        let says = |status: u32| Some(answer(|out| out.opaque(b"cookie").u32(status)));
        let to_another = Some(rpc::accepted(78).0);
        let answers = vec![says(0), says(1), says(4), Some(refused(77, Refusal::NoProcedure).head), to_another, Some(vec![1]), None];
        let expected = [Told::Taken, Told::Refused, Told::Unheard, Told::Unheard, Told::Unanswered, Told::Unanswered, Told::Unanswered];
        let (port, thread) = program(answers);
        let (portmapper, _) = program(vec![Some(answer(|out| out.u32(port.into()))); expected.len()]);
        for (number, expected) in expected.into_iter().enumerate() {
            assert_eq!(tell(&grant(), portmapper), expected, "answer {number}");
        }
        // Now nobody listens any more, or the portmapper knows of nobody.
        thread.join().unwrap();
        let (portmapper, _) = program(vec![Some(answer(|out| out.u32(port.into()))), Some(answer(|out| out.u32(0))), None]);
        for what in ["nobody listens", "nobody is known", "no answer", "no portmapper"] {
            assert_eq!(tell(&grant(), portmapper), Told::Unheard, "{what}");
        }
    }
}
