//! Peers that want too much: of places, of memory, of patience.

mod support;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use support::*;
use weft_base::{ClientId, RequestId};
use weft_rt_real::Address;
use weft_wire::handshake::{self, ClientHandshake};
use weft_wire::{Header, Op};

fn connect(address: &Address) -> TcpStream {
    let Address::Tcp { port, .. } = address else { panic!("a TCP server") };
    TcpStream::connect(("127.0.0.1", *port)).expect("it listens")
}

fn receive<M: weft_wire::Wire>(stream: &mut TcpStream) -> M {
    let mut head = [0; 64];
    stream.read_exact(&mut head).expect("a header");
    let mut body = vec![0; Header::decode(&head).expect("a good header").body_bytes as usize];
    stream.read_exact(&mut body).expect("a body");
    M::from_bytes(body.into()).expect("a good body")
}

fn introduced(address: &Address, client: ClientId) -> TcpStream {
    let mut stream = connect(address);
    let hello = ClientHandshake::hello(FS, NAME, SERVER, client, 1, [7; 16]);
    stream.write_all(&handshake::frame(&hello)).expect("sent");
    let proof = ClientHandshake::new(KEY, hello).answer(&receive(&mut stream)).expect("the server holds the key");
    stream.write_all(&handshake::frame(&proof)).expect("sent");
    let welcome: handshake::Welcome = receive(&mut stream);
    assert_eq!(welcome.status, 0);
    stream
}

fn request(client: ClientId, sequence: u64, body: &[u8]) -> Header {
    let mut header = Header::request(Op::Ping, SERVER, RequestId { client, incarnation: 1, sequence }, 0);
    (header.body_bytes, header.body_crc) = (body.len() as u32, weft_wire::crc32c(body));
    header
}

/// True if the server has ended the connection; whatever waits is read and forgotten.
fn is_ended(stream: &mut TcpStream, patience: Duration) -> bool {
    stream.set_read_timeout(Some(patience)).expect("a socket option");
    let mut buffer = vec![0; 1 << 20];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => return error.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }
}

/// Memory of this process, in bytes; the servers of these tests are threads of it.
fn resident_bytes() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").expect("the system says it");
    text.split_whitespace().nth(1).and_then(|pages| pages.parse::<usize>().ok()).expect("a number of pages") * 4096
}

/// Tests of this file that look at the memory of the process, one after the other.
static MEMORY: std::sync::Mutex<()> = std::sync::Mutex::new(());

#[test]
fn idle_unauthenticated_connections_lock_nobody_out() {
    let _alone = MEMORY.lock();
    let server = TestServer::start(tcp(), Some(KEY));
    let known = server.client();
    known.block_on(ask(&known, ECHO, b"", b"", AMPLE)).expect("answered");
    // As many as the process may open beside what it needs, a thousand if it may.
    let mut idle = Vec::new();
    while idle.len() < 1000 {
        let Address::Tcp { port, .. } = &server.address else { panic!("a TCP server") };
        match TcpStream::connect(("127.0.0.1", *port)) {
            Ok(stream) => idle.push(stream),
            Err(_) => break,
        }
        if idle.len() % 100 == 50 {
            // Some have begun a handshake, with nothing behind it.
            let hello = ClientHandshake::hello(FS, NAME, SERVER, ClientId(1), 1, [7; 16]);
            let _ = idle.last_mut().expect("just pushed").write_all(&handshake::frame(&hello));
        }
    }
    assert!(idle.len() >= 300, "{}", idle.len());
    idle.truncate(idle.len() - 8);
    for _ in 0..20 {
        let rt = server.client();
        rt.block_on(ask(&rt, ECHO, b"", b"", AMPLE)).expect("a client with the key comes in at the first try");
        assert_eq!(rt.stats().connects, 1);
    }
    known.block_on(ask(&known, ECHO, b"", b"", AMPLE)).expect("who is known stays");
    assert_eq!(known.stats().connects, 1, "and was never dropped for an unauthenticated one");
    server.expect_line("another one that is not authenticated needs its place");
}

#[test]
fn who_says_nothing_goes_before_who_is_slow() {
    let server = TestServer::start(tcp(), Some(KEY));
    let (mut silent, mut slow) = (connect(&server.address), connect(&server.address));
    slow.write_all(b"WEF").expect("sent");
    assert!(is_ended(&mut silent, Duration::from_secs(20)));
    slow.set_nonblocking(true).expect("a socket option");
    assert_eq!(slow.read(&mut [0]).expect_err("nothing was said").kind(), std::io::ErrorKind::WouldBlock, "it has begun, so it has longer");
    slow.set_nonblocking(false).expect("a socket option");
    assert!(is_ended(&mut slow, Duration::from_secs(20)));
}

#[test]
fn unread_replies_cost_little_and_others_are_served() {
    let _alone = MEMORY.lock();
    let server = TestServer::start(tcp(), Some(KEY));
    let rt = server.client();
    rt.block_on(ask(&rt, ECHO, b"", b"", AMPLE)).expect("answered");
    let before = resident_bytes();
    // 4,000 requests for 8 MiB each, and not one reply is read.
    let client = ClientId(5);
    let mut greedy = introduced(&server.address, client);
    let mut body = vec![BULK];
    body.extend_from_slice(&(8u32 << 20).to_le_bytes());
    let asked: Vec<u8> = (1..=4000).flat_map(|sequence| [request(client, sequence, &body).encode().as_slice(), &body].concat()).collect();
    greedy.set_write_timeout(Some(Duration::from_millis(500))).expect("a socket option");
    // It is not taken to its end, if the server stops reading.
    let _ = greedy.write_all(&asked);
    let mut most = 0;
    for _ in 0..50 {
        rt.block_on(ask(&rt, ECHO, b"", b"", AMPLE)).expect("others are served");
        most = most.max(resident_bytes().saturating_sub(before));
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(most < 400 << 20, "{} MiB for one connection", most >> 20);
    // Whoever reads after all gets everything that it is owed: it was slow, not wrong.
    greedy.set_read_timeout(Some(Duration::from_secs(20))).expect("a socket option");
    let mut head = [0; 64];
    greedy.read_exact(&mut head).expect("the first reply");
    assert_eq!(Header::decode(&head).expect("a header").bulk_bytes, 8 << 20);
}

#[test]
fn a_burst_of_requests_is_answered_whole() {
    let server = TestServer::start(tcp(), Some(KEY));
    let client = ClientId(6);
    let mut stream = introduced(&server.address, client);
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a socket option");
    let mut body = vec![BULK];
    body.extend_from_slice(&(1u32 << 20).to_le_bytes());
    let asked: Vec<u8> = (1..=300).flat_map(|sequence| [request(client, sequence, &body).encode().as_slice(), &body].concat()).collect();
    stream.write_all(&asked).expect("sent");
    let mut bulk = vec![0; 1 << 20];
    for sequence in 1..=300 {
        let mut head = [0; 64];
        stream.read_exact(&mut head).expect("a reply");
        assert_eq!(Header::decode(&head).expect("a header").request.sequence, sequence);
        stream.read_exact(&mut bulk).expect("its bulk data");
    }
}

#[test]
fn half_messages_cost_what_was_sent_and_have_a_deadline() {
    let _alone = MEMORY.lock();
    let server = TestServer::start(tcp(), Some(KEY));
    let before = resident_bytes();
    let begun = Instant::now();
    // 100 messages that promise 8 MiB, with 100 bytes of them.
    let mut half: Vec<_> = (0..100)
        .map(|number| {
            let client = ClientId(100 + number);
            let mut stream = introduced(&server.address, client);
            let mut header = request(client, 1, b"e");
            header.bulk_bytes = 8 << 20;
            stream.write_all(&[header.encode().as_slice(), b"e", &[7; 100]].concat()).expect("sent");
            stream
        })
        .collect();
    let rt = server.client();
    rt.block_on(ask(&rt, ECHO, b"", b"", AMPLE)).expect("others are served");
    let cost = resident_bytes().saturating_sub(before);
    assert!(cost < 64 << 20, "{} MiB before anything came", cost >> 20);
    // One goes on now and then, and stays.
    let mut steady = half.pop().expect("a hundred");
    while begun.elapsed() < Duration::from_secs(12) {
        steady.write_all(&[7]).expect("it is still there");
        std::thread::sleep(Duration::from_millis(500));
    }
    for stream in &mut half {
        assert!(is_ended(stream, Duration::from_secs(20)));
    }
    steady.write_all(&[7]).expect("it is still there");
    server.expect_line("does not go on");
}
