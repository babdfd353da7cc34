//! Portmappers (`rpcbind`, RFC 1833): clients find the lock manager of a gateway by that of the
//! gateway's machine, and a gateway finds that of a client by the client's.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::calls::{MOUNT_PROGRAM, NFS_PROGRAM, VERSION};
use crate::locks::{NLM_PROGRAM, NLM_VERSION};
use crate::records;
use crate::rpc::{self, RpcAnswer};
use crate::xdr::{Garbage, Reader, Writer};

/// Where portmappers listen.
pub(crate) const PORTMAPPER_PORT: u16 = 111;
/// Their program number.
const PORTMAPPER_PROGRAM: u32 = 100_000;
/// The version that knows ports only.
const PORTS_VERSION: u32 = 2;
/// The version that knows addresses.
const ADDRESSES_VERSION: u32 = 4;
/// Procedures of the latter: make known, make unknown, look up.
const SET: u32 = 1;
const UNSET: u32 = 2;
const GET_ADDRESS: u32 = 3;
/// GETPORT of the former.
const GET_PORT: u32 = 3;
/// TCP, as the former numbers protocols.
const TCP: u32 = 6;
/// Longest address in words, in bytes.
const ADDRESS_BYTES_MAX: usize = 256;
/// How long the portmapper of this machine may take for an answer.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// The call that looks a program of a client up, and its arguments. The older version is what every
/// portmapper has, but it knows IPv4 only.
pub(crate) fn look_up(client: IpAddr, program: u32, version: u32) -> ((u32, u32, u32), Writer) {
    let mut arguments = Writer::default();
    match client {
        IpAddr::V4(_) => {
            arguments.u32(program).u32(version).u32(TCP).u32(0);
            ((PORTMAPPER_PROGRAM, PORTS_VERSION, GET_PORT), arguments)
        }
        IpAddr::V6(_) => {
            arguments.u32(program).u32(version).opaque(b"tcp6").opaque(b"").opaque(b"");
            ((PORTMAPPER_PROGRAM, ADDRESSES_VERSION, GET_ADDRESS), arguments)
        }
    }
}

/// The port that the answer names, if it names one.
pub(crate) fn found_port(client: IpAddr, mut results: Reader) -> Result<Option<u16>, Garbage> {
    let port = match client {
        IpAddr::V4(_) => u16::try_from(results.u32()?).map_err(|_| Garbage)?,
        IpAddr::V6(_) => match results.opaque(ADDRESS_BYTES_MAX)? {
            none if none.is_empty() => 0,
            address => port_in(&String::from_utf8_lossy(&address)).ok_or(Garbage)?,
        },
    };
    Ok(Some(port).filter(|port| *port != 0))
}

/// The port in an address in words: the last two numbers of `10.0.0.1.8.1` or `::1.8.1`.
fn port_in(address: &str) -> Option<u16> {
    let mut numbers = address.rsplitn(3, '.');
    let (low, high): (u8, u8) = (numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?);
    numbers.next().map(|_| u16::from_be_bytes([high, low]))
}

/// The kinds of connection by which this address is reached, and the address in words for each.
fn ways_to(address: SocketAddr) -> Vec<(&'static str, String)> {
    let [high, low] = address.port().to_be_bytes();
    let words = |ip: IpAddr| format!("{ip}.{high}.{low}");
    match address.ip() {
        ip @ IpAddr::V4(_) => vec![("tcp", words(ip))],
        // Linux takes IPv4 there, too.
        ip if ip.is_unspecified() => vec![("tcp6", words(ip)), ("tcp", words(Ipv4Addr::UNSPECIFIED.into()))],
        ip => vec![("tcp6", words(ip))],
    }
}

/// What the portmapper of this machine knows of a gateway, until this is dropped.
#[derive(Debug)]
pub struct Registered {
    socket: PathBuf,
    /// Arguments by which it was told.
    told: Vec<Writer>,
}

/// Makes NFS, MOUNT and NLM at this address known to the portmapper that listens on a Unix socket
/// of this machine: all of them or none.
///
/// # Errors
/// If it does not answer, or knows one of them at another address; in words for people.
pub fn register(socket: &Path, address: SocketAddr) -> Result<Registered, String> {
    let mut registered = Registered { socket: socket.to_path_buf(), told: Vec::new() };
    let programs = [("NFS", NFS_PROGRAM, VERSION), ("MOUNT", MOUNT_PROGRAM, VERSION), ("NLM", NLM_PROGRAM, NLM_VERSION)];
    for (name, program, version) in programs {
        for (kind, words) in ways_to(address) {
            let mut arguments = Writer::default();
            arguments.u32(program).u32(version).opaque(kind.as_bytes()).opaque(words.as_bytes()).opaque(b"weft");
            match ask(socket, SET, &arguments) {
                Ok(true) => registered.told.push(arguments),
                Ok(false) => {
                    return Err(format!(
                        "the portmapper of this machine knows {name} ({program}) of somebody else: `rpcinfo -p` lists it, \
                         `rpcinfo -d {program} {version}` makes it forget it"
                    ));
                }
                Err(error) => return Err(format!("the portmapper of this machine does not answer at {}: {error}", socket.display())),
            }
        }
    }
    Ok(registered)
}

impl Drop for Registered {
    fn drop(&mut self) {
        // Without a portmapper nobody finds the gateway by it anyhow.
        self.told.iter().for_each(|arguments| drop(ask(&self.socket, UNSET, arguments)));
    }
}

/// A call with a yes or no for an answer.
fn ask(socket: &Path, procedure: u32, arguments: &Writer) -> io::Result<bool> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(ANSWER_MAX))?;
    stream.set_write_timeout(Some(ANSWER_MAX))?;
    let mut call = rpc::call(procedure, (PORTMAPPER_PROGRAM, ADDRESSES_VERSION, procedure));
    call.0.extend_from_slice(&arguments.0);
    records::write(&mut stream, &RpcAnswer { head: call.0, data: Vec::new() })?;
    let record = records::read(&mut stream, |_| {})?.ok_or(io::ErrorKind::UnexpectedEof)?;
    let results = rpc::results(procedure, record.into()).map_err(|Garbage| io::ErrorKind::InvalidData)?;
    let said = results.ok_or(io::ErrorKind::Unsupported)?.bool();
    said.map_err(|Garbage| io::ErrorKind::InvalidData.into())
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;
    use std::sync::{Arc, Mutex};

    use super::*;

    #[test]
    fn ports_are_looked_up_and_read() {
        let (v4, v6): (IpAddr, IpAddr) = ("10.0.0.1".parse().unwrap(), "fd00::1".parse().unwrap());
        let (call, arguments) = look_up(v4, 100_021, 4);
        assert_eq!((call, arguments.0.len()), ((100_000, 2, 3), 16));
        assert_eq!(look_up(v6, 100_021, 4).0, (100_000, 4, 3));
        let number = |port: u32| found_port(v4, Reader::new(port.to_be_bytes().to_vec().into()));
        assert_eq!((number(40_000), number(0), number(65_536)), (Ok(Some(40_000)), Ok(None), Err(Garbage)));
        let words = |words: &str| {
            let mut out = Writer::default();
            out.opaque(words.as_bytes());
            found_port(v6, Reader::new(out.0.into()))
        };
        assert_eq!((words("::1.8.1"), words("fd00::1.156.64")), (Ok(Some(2049)), Ok(Some(40_000))));
        assert_eq!((words(""), words("::1.8.256"), words("8.1"), words("x")), (Ok(None), Err(Garbage), Err(Garbage), Err(Garbage)));
        let ways = |address: &str| ways_to(address.parse().unwrap());
        assert_eq!(ways("10.0.0.1:2049"), [("tcp", "10.0.0.1.8.1".into())]);
        assert_eq!(ways("[::]:2049"), [("tcp6", "::.8.1".into()), ("tcp", "0.0.0.0.8.1".into())]);
    }

    /// A portmapper that knows of NLM already if it is told to.
    fn portmapper(socket: &Path, knows_locks: bool) -> Arc<Mutex<Vec<(u32, u32)>>> {
        let listener = UnixListener::bind(socket).unwrap();
        let heard = Arc::<Mutex<Vec<(u32, u32)>>>::default();
        let hears = heard.clone();
        std::thread::spawn(move || {
            while let Ok((mut stream, _)) = listener.accept() {
                let record = records::read(&mut stream, |_| {}).unwrap().unwrap();
                let mut call = rpc::parse(record.into()).unwrap();
                assert_eq!((call.program, call.version), (100_000, 4));
                let program = call.arguments.u32().unwrap();
                hears.lock().unwrap().push((call.procedure, program));
                let mut answer = rpc::accepted(call.xid);
                answer.bool(!(knows_locks && program == NLM_PROGRAM));
                records::write(&mut stream, &RpcAnswer { head: answer.0, data: Vec::new() }).unwrap();
            }
        });
        heard
    }

    #[test]
    fn a_gateway_is_known_as_long_as_it_is_there() {
        let dir = std::env::temp_dir().join(format!("weft-portmap-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let address = "127.0.0.1:2049".parse().unwrap();
        let heard = portmapper(&dir.join("free"), false);
        drop(register(&dir.join("free"), address).unwrap());
        let (nfs, mount, locks) = (NFS_PROGRAM, MOUNT_PROGRAM, NLM_PROGRAM);
        assert_eq!(*heard.lock().unwrap(), [(SET, nfs), (SET, mount), (SET, locks), (UNSET, nfs), (UNSET, mount), (UNSET, locks)]);
        let heard = portmapper(&dir.join("taken"), true);
        let words = register(&dir.join("taken"), address).unwrap_err();
        assert!(words.contains("100021 4"), "{words}");
        assert_eq!(heard.lock().unwrap()[3..], [(UNSET, nfs), (UNSET, mount)], "all or none");
        assert!(register(&dir.join("none"), address).unwrap_err().contains("does not answer"));
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
