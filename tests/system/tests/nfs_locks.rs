//! Locks of NFS clients (NLM), who speak for themselves here, and of a mount.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use rustix::fs::{FlockOperation, fcntl_lock};
use rustix::net::{AddressFamily, SocketType};
use weft_system_tests::{FileSystem, Need, NfsGateway, Signal, alive, available, signal, wait_until};

const PATIENCE: Duration = Duration::from_secs(60);
const MOUNT: (u32, u32) = (100_005, 3);
const NFS: (u32, u32) = (100_003, 3);
const NLM: (u32, u32) = (100_021, 4);
const EXCLUSIVE: FlockOperation = FlockOperation::NonBlockingLockExclusive;

const GRANTED: u32 = 0;
const DENIED: u32 = 1;
const BLOCKED: u32 = 3;

fn word(value: u32) -> Vec<u8> {
    value.to_be_bytes().to_vec()
}

fn opaque(bytes: &[u8]) -> Vec<u8> {
    let mut all = [&word(bytes.len() as u32), bytes].concat();
    all.resize(all.len().next_multiple_of(4), 0);
    all
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn read_record(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let mut mark = [0; 4];
    stream.read_exact(&mut mark).ok()?;
    let mut record = vec![0; (u32::from_be_bytes(mark) & !(1 << 31)) as usize];
    stream.read_exact(&mut record).ok()?;
    Some(record)
}

fn write_record(stream: &mut TcpStream, record: &[u8]) {
    stream.write_all(&[&word(record.len() as u32 | 1 << 31), record].concat()).unwrap();
}

/// A client machine with one program, 127.0.0.`host`, that locks one file.
struct Client {
    host: u8,
    port: u16,
    stream: TcpStream,
    /// The number of the last call.
    xid: u32,
    file: Vec<u8>,
}

fn connect(host: u8, port: u16) -> TcpStream {
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    rustix::net::bind(&socket, &SocketAddr::from(([127, 0, 0, host], 0))).unwrap();
    rustix::net::connect(&socket, &SocketAddr::from(([127, 0, 0, 1], port))).unwrap();
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

impl Client {
    /// Mounts the root and finds `file`.
    fn new(host: u8, gateway: &NfsGateway) -> Client {
        let mut client = Client { host, port: gateway.port, stream: connect(host, gateway.port), xid: 0, file: Vec::new() };
        let mounted = client.call(MOUNT, 1, opaque(b"/"));
        assert_eq!(u32_at(&mounted, 0), 0);
        let root = mounted[8..8 + u32_at(&mounted, 4) as usize].to_vec();
        let found = client.call(NFS, 3, [opaque(&root), opaque(b"file")].concat());
        assert_eq!(u32_at(&found, 0), 0);
        client.file = found[8..8 + u32_at(&found, 4) as usize].to_vec();
        client
    }

    /// The connection is lost, and there is another one.
    fn connect_again(&mut self) {
        self.stream = connect(self.host, self.port);
    }

    /// The results of a call by root.
    fn call(&mut self, (program, version): (u32, u32), procedure: u32, arguments: Vec<u8>) -> Vec<u8> {
        let user = [word(1), opaque(b"client"), word(0), word(0), word(0)].concat();
        self.xid += 1;
        let head: Vec<u8> = [self.xid, 0, 2, program, version, procedure, 1].into_iter().flat_map(word).collect();
        write_record(&mut self.stream, &[head, opaque(&user), word(0), word(0), arguments].concat());
        let answer = read_record(&mut self.stream).expect("an answer");
        assert_eq!(answer[..24], [self.xid, 1, 0, 0, 0, 0].into_iter().flat_map(word).collect::<Vec<u8>>(), "it is carried out");
        answer[24..].to_vec()
    }

    fn nlm(&mut self, procedure: u32, arguments: Vec<u8>) -> Vec<u8> {
        let results = self.call(NLM, procedure, [opaque(b"cook"), arguments].concat());
        assert_eq!(results[..8], opaque(b"cook"));
        results[8..].to_vec()
    }

    fn range(&self, offset: u64, length: u64) -> Vec<u8> {
        let owner = format!("program of {}", self.host);
        let range = [offset.to_be_bytes(), length.to_be_bytes()].concat();
        [opaque(b"client"), opaque(&self.file), opaque(owner.as_bytes()), word(self.host.into()), range].concat()
    }

    /// LOCK, exclusive.
    fn lock(&mut self, offset: u64, length: u64, waits: bool) -> u32 {
        let arguments = [word(waits.into()), word(1), self.range(offset, length), word(0), word(1)].concat();
        u32_at(&self.nlm(2, arguments), 0)
    }

    fn cancel(&mut self, offset: u64, length: u64) -> u32 {
        u32_at(&self.nlm(3, [word(1), word(1), self.range(offset, length)].concat()), 0)
    }

    fn unlock(&mut self, offset: u64, length: u64) -> u32 {
        u32_at(&self.nlm(4, self.range(offset, length)), 0)
    }

    /// TEST: the process of an exclusive lock in the way, and its offset.
    fn test(&mut self) -> Option<(u32, u64)> {
        let results = self.nlm(1, [word(1), self.range(0, 0)].concat());
        if u32_at(&results, 0) == GRANTED {
            return None;
        }
        assert_eq!((u32_at(&results, 0), u32_at(&results, 4)), (DENIED, 1));
        let offset = results[results.len() - 16..][..8].try_into().unwrap();
        Some((u32_at(&results, 8), u64::from_be_bytes(offset)))
    }
}

/// Plays the portmapper and the lock manager of a client machine: who called GRANTED, and how.
/// `None` if this user may not listen at port 111.
fn lock_manager(host: u8) -> Option<Receiver<(IpAddr, Vec<u8>)>> {
    let listen = |port: u16| TcpListener::bind(SocketAddr::from(([127, 0, 0, host], port)));
    let (portmapper, manager) = (listen(111).ok()?, listen(0).unwrap());
    let port = manager.local_addr().unwrap().port();
    let answer = |call: &[u8], results: Vec<u8>| {
        let head: Vec<u8> = [1, 0, 0, 0, 0].into_iter().flat_map(word).collect();
        [call[..4].to_vec(), head, results].concat()
    };
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = portmapper.accept() {
            let call = read_record(&mut stream).unwrap();
            let asked: Vec<u32> = call[call.len() - 16..].chunks(4).map(|word| u32_at(word, 0)).collect();
            assert_eq!((u32_at(&call, 12), asked), (100_000, vec![NLM.0, NLM.1, 6, 0]));
            write_record(&mut stream, &answer(&call, word(port.into())));
        }
    });
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        while let Ok((mut stream, from)) = manager.accept() {
            let call = read_record(&mut stream).unwrap();
            assert_eq!((u32_at(&call, 12), u32_at(&call, 16), u32_at(&call, 20)), (NLM.0, NLM.1, 5));
            let cookie = (0..call.len()).step_by(4).find(|at| u32_at(&call, *at) == 8).unwrap();
            write_record(&mut stream, &answer(&call, [opaque(&call[cookie + 4..cookie + 12]), word(GRANTED)].concat()));
            if sender.send((from.ip(), call)).is_err() {
                return;
            }
        }
    });
    Some(receiver)
}

fn is_taken(file: &File) -> bool {
    match fcntl_lock(file, EXCLUSIVE) {
        Ok(()) => fcntl_lock(file, FlockOperation::Unlock).map(|()| false).unwrap(),
        Err(_) => true,
    }
}

#[test]
fn promise_nfs_locks_are_true() {
    if !available("promise_nfs_locks_are_true", &[Need::Fuse]) {
        return;
    }
    let fs = FileSystem::mounted(&["--meta", "2", "--data", "1"]);
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(fs.mnt().join("file")).unwrap();
    let exports = ["/:no_root_squash"];
    let (gateway, second) = (NfsGateway::start(&fs, 0, &exports), NfsGateway::start(&fs, 0, &exports));
    let (mut one, mut two) = (Client::new(31, &gateway), Client::new(32, &gateway));
    let mut elsewhere = Client::new(33, &second);

    // Among NFS clients of one gateway and of two, and the mount, both ways.
    assert_eq!((one.lock(10, 10, false), two.lock(0, 11, false), two.lock(0, 10, false)), (GRANTED, DENIED, GRANTED));
    assert_eq!((elsewhere.lock(19, 0, false), elsewhere.lock(20, 0, false)), (DENIED, GRANTED));
    assert!(is_taken(&file));
    assert_eq!((two.unlock(0, 0), elsewhere.unlock(0, 0)), (GRANTED, GRANTED));
    assert_eq!((two.test(), elsewhere.test()), (Some((31, 10)), Some((0, 10))), "owners have names at their gateway");
    assert!(is_taken(&file));
    assert_eq!(one.unlock(10, 10), GRANTED);
    fcntl_lock(&file, EXCLUSIVE).unwrap();
    assert_eq!((one.lock(1 << 40, 1, false), two.test()), (DENIED, Some((0, 0))));

    // Who waits for the mount is called when it is its turn, or hears it when it asks again.
    let calls = lock_manager(31);
    assert_eq!((one.lock(0, 5, true), one.lock(0, 5, true)), (BLOCKED, BLOCKED));
    assert_eq!((two.lock(0, 5, true), two.cancel(0, 5)), (BLOCKED, GRANTED));
    fcntl_lock(&file, FlockOperation::Unlock).unwrap();
    match calls {
        Some(calls) => {
            let (from, call) = calls.recv_timeout(PATIENCE).expect("a call");
            assert_eq!(from, IpAddr::from([127, 0, 0, 1]), "from where the client has called");
            let asked = [word(1), one.range(0, 5)].concat();
            assert!(call.ends_with(&asked), "in the words of the client");
        }
        None => wait_until("a lock", PATIENCE, || one.lock(0, 5, true) == GRANTED),
    }
    assert!(is_taken(&file));
    assert_eq!(two.test(), Some((31, 0)), "who gave up has nothing");

    // The loss of a connection is not the loss of a lock.
    one.connect_again();
    assert_eq!((two.lock(0, 1, false), one.unlock(0, 0), two.lock(0, 1, false)), (DENIED, GRANTED, GRANTED));

    // A gateway that ends leaves nothing, whoever waits and whoever holds.
    assert_eq!(one.lock(0, 5, true), BLOCKED);
    signal(gateway.child.id(), Signal::TERM).unwrap();
    wait_until("the end of the gateway", PATIENCE, || !alive(gateway.child.id()));
    assert_eq!(elsewhere.lock(0, 0, false), GRANTED, "at once");
    // One that is killed is a client that dies.
    let mut second = second;
    second.kill();
    wait_until("the locks of a gateway that was killed", PATIENCE, || !is_taken(&file));
}
