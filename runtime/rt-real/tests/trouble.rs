//! Peers that lie, fall silent, die, or do not hold the key.

mod support;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use support::*;
use weft_base::{ClientId, FsId, MILLISECOND, RequestId, SECOND, ServerId, Status};
use weft_rt::Runtime;
use weft_rt_real::{Address, ClientConfig, ClientRt, DiskConfig, Log, ServeError, Shard, ShardConfig, StopHandle, serve};
use weft_wire::handshake::{self, ClientHandshake, Hello};
use weft_wire::{ClusterKey, Header, KeyRing, MessageKind, Op, PROTOCOL_VERSION};

fn connect(address: &Address) -> TcpStream {
    let Address::Tcp { port, .. } = address else { panic!("a TCP server") };
    let stream = TcpStream::connect(("127.0.0.1", *port)).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a socket option");
    stream
}

/// True if the server ends the connection (whatever it sends before).
fn is_closed(stream: &mut TcpStream) -> bool {
    let mut rest = Vec::new();
    match stream.read_to_end(&mut rest) {
        Ok(_) => true,
        Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
    }
}

/// Shakes hands by hand; returns a connection on which any bytes can be sent.
fn introduced(address: &Address, client: ClientId) -> TcpStream {
    let mut stream = connect(address);
    let hello = ClientHandshake::hello(FS, NAME, SERVER, client, 1, [7; 16]);
    stream.write_all(&handshake::frame(&hello)).expect("sent");
    let challenge = read_body(&mut stream);
    let proof = ClientHandshake::new(KEY, hello).answer(&challenge).expect("the server holds the key");
    stream.write_all(&handshake::frame(&proof)).expect("sent");
    let welcome: handshake::Welcome = read_body(&mut stream);
    assert_eq!(welcome.status, 0);
    stream
}

fn read_body<M: weft_wire::Wire>(stream: &mut TcpStream) -> M {
    let mut head = [0; 64];
    stream.read_exact(&mut head).expect("a header");
    let header = Header::decode(&head).expect("a good header");
    let mut body = vec![0; header.body_bytes as usize];
    stream.read_exact(&mut body).expect("a body");
    M::from_bytes(body.into()).expect("a good body")
}

fn header(client: ClientId) -> Header {
    Header::request(Op::Ping, SERVER, RequestId { client, incarnation: 1, sequence: 1 }, 0)
}

#[test]
fn refusals_arrive_as_their_status() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    for listen in [unix(&dir), tcp()] {
        let server = TestServer::start(listen, Some(KEY));
        let good = config(&server.address, Some(KEY));
        let status = |config: ClientConfig| {
            let rt = ClientRt::new(config);
            rt.block_on(ask(&rt, ECHO, b"", b"", AMPLE)).map(drop)
        };
        assert_eq!(status(good.clone()), Ok(()));
        assert_eq!(status(ClientConfig { key: Some(ClusterKey([4; 32]).into()), ..good.clone() }), Err(Status::AuthenticationFailed));
        assert_eq!(status(ClientConfig { key: None, ..good.clone() }), Err(Status::AuthenticationFailed));
        assert_eq!(status(ClientConfig { fs_id: FsId(78), ..good.clone() }), Err(Status::WrongFileSystem));
        assert_eq!(status(ClientConfig { fs_name: "other".into(), ..good.clone() }), Err(Status::WrongFileSystem));
        // The client believes that its server 0 is there, but it is server 0 of another number's
        // address.
        let other = TestServer::start_as(ServerId(5), tcp(), Some(KEY), Vec::new());
        assert_eq!(status(config(&other.address, Some(KEY))), Err(Status::WrongServer));
    }
}

#[test]
fn a_client_without_the_key_is_refused_by_the_server_too() {
    let server = TestServer::start(tcp(), Some(KEY));
    let mut stream = connect(&server.address);
    let hello = ClientHandshake::hello(FS, NAME, SERVER, ClientId(1), 1, [7; 16]);
    stream.write_all(&handshake::frame(&hello)).expect("sent");
    let _: handshake::Challenge = read_body(&mut stream);
    stream.write_all(&handshake::frame(&handshake::Proof { proof: vec![0; 32].into() })).expect("sent");
    let welcome: handshake::Welcome = read_body(&mut stream);
    assert_eq!(Status::from_code(welcome.status), Status::AuthenticationFailed);
    assert!(is_closed(&mut stream));
    server.expect_line("does not hold the key of the servers");
    // A request instead of a handshake leads nowhere either.
    let mut stream = connect(&server.address);
    stream.write_all(&header(ClientId(1)).encode()).expect("sent");
    assert!(is_closed(&mut stream));
    assert!(server.events.lock().expect("not poisoned").is_empty());
}

#[test]
fn no_common_version() {
    let server = TestServer::start(tcp(), Some(KEY));
    let mut stream = connect(&server.address);
    let hello = ClientHandshake::hello(FS, NAME, SERVER, ClientId(1), 1, [7; 16]);
    stream.write_all(&handshake::frame(&Hello { version_oldest: 200, version_newest: 201, ..hello })).expect("sent");
    let challenge: handshake::Challenge = read_body(&mut stream);
    assert_eq!(Status::from_code(challenge.status), Status::VersionMismatch);
    assert!(is_closed(&mut stream));
    server.expect_line(&format!("version {PROTOCOL_VERSION} of the protocol and the client versions 200 to 201"));
}

#[test]
fn garbage_ends_only_its_own_connection() {
    let server = TestServer::start(tcp(), Some(KEY));
    let rt = server.client();
    rt.block_on(ask(&rt, ECHO, b"", b"", AMPLE)).expect("answered");
    let client = ClientId(5);
    let mut damaged = header(client).encode();
    damaged[40] ^= 1;
    let mut oversized = header(client);
    oversized.body_bytes = (1 << 20) + 1;
    let mut reply = header(client);
    reply.kind = MessageKind::Reply;
    let mut lying = header(client);
    lying.body_bytes = 4;
    lying.body_crc = 1;
    let mut lying = lying.encode().to_vec();
    lying.extend_from_slice(b"body");
    for (bytes, word) in [
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nUser-Agent: something-that-is-long-enough\r\n\r\n".to_vec(), "malformed"),
        (damaged.to_vec(), "checksum"),
        (oversized.encode().to_vec(), "malformed"),
        (reply.encode().to_vec(), "malformed"),
        (header(ClientId(6)).encode().to_vec(), "malformed"), // somebody else's name
        (lying, "checksum"),
    ] {
        let mut stream = introduced(&server.address, client);
        server.lines.lock().expect("not poisoned").clear();
        stream.write_all(&bytes).expect("sent");
        assert!(is_closed(&mut stream), "{word}");
        server.expect_line(word);
        rt.block_on(ask(&rt, ECHO, b"", b"", AMPLE)).expect("others go on");
    }
    // Half a frame, then the end.
    let mut stream = introduced(&server.address, client);
    stream.write_all(&header(client).encode()[..30]).expect("sent");
    drop(stream);
    server.expect_line("within a message");
    assert_eq!(rt.stats().connects, 1);
}

#[test]
fn a_silent_unauthenticated_connection_holds_up_nobody_and_is_dropped() {
    let server = TestServer::start(tcp(), Some(KEY));
    let begin = Instant::now();
    let mut silent: Vec<_> = (0..20).map(|_| connect(&server.address)).collect();
    silent[0].write_all(b"WEF").expect("sent");
    let rt = server.client();
    rt.block_on(ask(&rt, ECHO, b"", b"", AMPLE)).expect("answered");
    for stream in &mut silent {
        stream.set_nonblocking(true).expect("a socket option");
        let error = stream.read(&mut [0]).expect_err("the server has said nothing to those who say nothing");
        assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock, "they are still there: nobody waited for them");
        stream.set_nonblocking(false).expect("a socket option");
    }
    assert!(silent.iter_mut().all(is_closed));
    assert!(begin.elapsed() >= Duration::from_secs(4), "they have their time");
    server.expect_line("no handshake in time");
}

#[test]
fn a_server_that_dies_fails_its_requests_and_is_found_again() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut server = TestServer::start(unix(&dir), Some(KEY));
    let rt = server.client();
    rt.block_on(ask(&rt, ECHO, b"", b"", AMPLE)).expect("answered");
    let waiting: Vec<_> = (0..4)
        .map(|_| {
            let rt = rt.clone();
            std::thread::spawn(move || rt.block_on(ask(&rt, SILENT, b"", b"", 60 * SECOND)).map(drop))
        })
        .collect();
    while rt.stats().sent_messages < 5 {
        std::thread::yield_now();
    }
    server.stop();
    for thread in waiting {
        assert_eq!(thread.join().expect("no panic"), Err(Status::Unreachable));
    }
    assert_eq!(rt.block_on(ask(&rt, ECHO, b"", b"", AMPLE)).map(drop), Err(Status::Unreachable));
    assert!(rt.last_error(SERVER).is_some());
    let _again = TestServer::start(unix(&dir), Some(KEY));
    rt.block_on(ask(&rt, ECHO, b"", b"", AMPLE)).expect("connected again");
    assert_eq!((rt.stats().connects, rt.last_error(SERVER)), (2, None));
}

#[test]
fn a_server_that_stops_reading_does_not_hold_us_beyond_the_deadline() {
    // Accepts and shakes hands, then never reads again.
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = Address::Tcp { host: "127.0.0.1".into(), port: listener.local_addr().expect("bound").port() };
    let (end, ended) = std::sync::mpsc::channel::<()>();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a client");
        let mut state = handshake::ServerHandshake::new(KeyRing::new(KEY), FS, NAME, SERVER);
        let hello = read_body(&mut stream);
        stream.write_all(&handshake::frame(&state.challenge(hello, [1; 16]))).expect("sent");
        state.accept(&read_body(&mut stream)).expect("it holds the key");
        stream.write_all(&handshake::frame(&handshake::Welcome { status: 0 })).expect("sent");
        let _ = ended.recv();
    });
    let rt = client(&address, Some(KEY));
    let data = pattern(8 << 20);
    let begin = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let outcome = rt.block_on(ask(&rt, ECHO, b"", &data, 300 * MILLISECOND)).map(drop);
                assert!(matches!(outcome, Err(Status::TimedOut | Status::Unreachable)), "{outcome:?}");
            });
        }
    });
    assert!(begin.elapsed() < Duration::from_secs(20));
    drop(end);
    server.join().expect("no panic");
}

#[test]
fn a_client_that_takes_no_replies_does_not_exhaust_the_server() {
    let server = TestServer::start(tcp(), Some(KEY));
    let client = ClientId(5);
    let mut greedy = introduced(&server.address, client);
    greedy.set_nonblocking(true).expect("a socket option");
    // Asks for replies of 64 KiB without end and reads none.
    let mut asked = Vec::new();
    let body = [BULK, 0, 0, 1, 0];
    let mut sequence = 0;
    let limit = Instant::now() + Duration::from_secs(20);
    let mut stuck_since = None::<Instant>;
    loop {
        if asked.is_empty() {
            sequence += 1;
            let mut request = header(client);
            request.request.sequence = sequence;
            request.body_bytes = body.len() as u32;
            request.body_crc = weft_wire::crc32c(&body);
            asked = request.encode().to_vec();
            asked.extend_from_slice(&body);
        }
        match greedy.write(&asked) {
            Ok(written) => {
                asked.drain(..written);
                stuck_since = None;
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            // A fast machine owes it so much within one turn that it is dropped at once, which
            // protects the server as well.
            Err(error) => {
                assert!(matches!(error.kind(), std::io::ErrorKind::ConnectionReset | std::io::ErrorKind::BrokenPipe), "{error}");
                break;
            }
        }
        let stuck = stuck_since.get_or_insert_with(Instant::now);
        if stuck.elapsed() > Duration::from_millis(300) {
            break; // the server reads no more of it
        }
        if sequence > 200_000 {
            panic!("the server goes on reading");
        }
        assert!(Instant::now() < limit, "neither stopped nor flooded");
    }
    let rt = server.client();
    rt.block_on(ask(&rt, ECHO, b"", b"", AMPLE)).expect("others are served");
}

#[test]
fn without_a_key_a_server_keeps_to_its_machine() {
    let listen = |text: &str| ShardConfig {
        server: SERVER,
        fs_id: FS,
        fs_name: NAME.to_string(),
        keys: None,
        listen: vec![text.parse().expect("an address")],
        disk: DiskConfig::Memory { capacity_bytes: 1 },
        servers: Vec::new(),
        share_memory: true,
        encrypt_tcp: false,
        stop: StopHandle::new().expect("an event"),
        log: Log::new(|_| {}),
    };
    let error = Shard::bind(listen("tcp:0.0.0.0:0")).expect_err("open to the world");
    assert!(matches!(error, ServeError::Unprotected { .. }) && error.to_string().contains("key"), "{error}");
    assert!(Shard::bind(ShardConfig { keys: Some(KEY.into()), ..listen("tcp:0.0.0.0:0") }).is_ok());
    let server = TestServer::start(tcp(), None);
    let rt = client(&server.address, None);
    rt.block_on(ask(&rt, ECHO, b"", b"", AMPLE)).expect("local clients need none");
}

#[test]
fn sockets_in_the_file_system() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().expect("a temporary directory");
    let Address::Unix(path) = unix(&dir) else { panic!("a unix address") };
    let config = |path: &std::path::Path| ShardConfig {
        server: SERVER,
        fs_id: FS,
        fs_name: NAME.to_string(),
        keys: None,
        listen: vec![Address::Unix(path.to_path_buf())],
        disk: DiskConfig::Memory { capacity_bytes: 1 },
        servers: Vec::new(),
        share_memory: true,
        encrypt_tcp: false,
        stop: StopHandle::new().expect("an event"),
        log: Log::new(|_| {}),
    };
    let first = Shard::bind(config(&path)).expect("nothing is there");
    assert_eq!(std::fs::metadata(&path).expect("it is there").permissions().mode() & 0o777, 0o600);
    let error = Shard::bind(config(&path)).expect_err("somebody listens");
    assert!(error.to_string().contains("another process listens"), "{error}");
    drop(first); // as after a kill: the socket stays behind, nobody listens
    let again = Shard::bind(config(&path)).expect("a dead socket is replaced");
    let stop = StopHandle::new().expect("an event");
    stop.stop();
    drop(again);
    let outcome = serve(ShardConfig { stop, ..config(&path) }, |_| std::future::pending::<()>());
    assert!(matches!(outcome, Ok(None)), "{outcome:?}");
    assert!(!path.exists(), "a server that ends cleanly removes its socket");
    std::fs::write(&path, b"precious").expect("written");
    assert!(Shard::bind(config(&path)).is_err());
    assert_eq!(std::fs::read(&path).expect("still there"), b"precious");
}

#[test]
fn main_ends_and_its_last_replies_leave() {
    let stop = StopHandle::new().expect("an event");
    let config = ShardConfig {
        server: SERVER,
        fs_id: FS,
        fs_name: NAME.to_string(),
        keys: Some(KEY.into()),
        listen: vec![tcp()],
        disk: DiskConfig::Memory { capacity_bytes: 1 },
        servers: Vec::new(),
        share_memory: true,
        encrypt_tcp: false,
        stop,
        log: Log::new(|_| {}),
    };
    let shard = Shard::bind(config).expect("a port");
    let address = shard.addresses()[0].clone();
    let thread = std::thread::spawn(move || {
        shard.run(|rt| async move {
            use weft_rt::{Arrival, ServerRuntime};
            let mut arrivals = Vec::new();
            loop {
                rt.receive(&mut arrivals).await;
                for arrival in arrivals.drain(..) {
                    if let Arrival::Request { peer, frame } = arrival {
                        rt.reply(peer, weft_wire::Frame::reply(&frame.header, Ok(frame.body), frame.bulk));
                        return 42;
                    }
                }
            }
        })
    });
    let rt = client(&address, Some(KEY));
    rt.block_on(ask(&rt, ECHO, b"", &pattern(1 << 20), AMPLE)).expect("the reply was sent before the end");
    assert_eq!(thread.join().expect("no panic").expect("it ran"), Some(42));
    assert_eq!(rt.now().since(rt.now()), 0);
}

#[test]
fn fetching_the_map_from_nobody_says_what_to_check() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let error = ClientRt::fetch_map(&unix(&dir), Some(&KEY.into()), NAME).expect_err("nobody is there");
    assert_eq!(error.status, Status::Unreachable);
    assert!(error.to_string().contains("is a server running there?"), "{error}");
    let server = TestServer::start(tcp(), Some(KEY));
    let error = ClientRt::fetch_map(&server.address, None, "").expect_err("no key");
    assert!(error.to_string().contains("key file"), "{error}");
}

#[test]
fn requests_survive_restarts_when_they_are_repeated() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut server = Some(TestServer::start(unix(&dir), Some(KEY)));
    let rt = client(&unix(&dir), Some(KEY));
    let done = std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                for i in 0..300u16 {
                    let limit = Instant::now() + Duration::from_secs(60);
                    loop {
                        let body = i.to_le_bytes();
                        match rt.block_on(ask(&rt, ECHO, &body, &pattern(usize::from(i) * 100), AMPLE)) {
                            Ok(reply) => break assert_eq!(reply.body[1..], body),
                            Err(status) => assert_eq!(status, Status::Unreachable),
                        }
                        assert!(Instant::now() < limit);
                        rt.block_on(rt.sleep_until(rt.now() + MILLISECOND));
                    }
                }
                done.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            });
        }
        while done.load(std::sync::atomic::Ordering::Relaxed) < 6 {
            std::thread::sleep(Duration::from_millis(10));
            drop(server.take());
            server = Some(TestServer::start(unix(&dir), Some(KEY)));
        }
    });
}

#[test]
fn the_impatience_of_one_thread_is_not_the_failure_of_another() {
    // The first connection meets silence, the second is greeted and then closed: so whoever made it
    // knows.
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = Address::Tcp { host: "127.0.0.1".into(), port: listener.local_addr().expect("bound").port() };
    let rt = client(&address, Some(KEY));
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _silent = listener.accept().expect("the impatient");
            tell.send(()).expect("the test waits");
            let (mut stream, _) = listener.accept().expect("the patient");
            let mut state = handshake::ServerHandshake::new(KeyRing::new(KEY), FS, NAME, SERVER);
            let hello = read_body(&mut stream);
            stream.write_all(&handshake::frame(&state.challenge(hello, [1; 16]))).expect("sent");
            state.accept(&read_body(&mut stream)).expect("it holds the key");
            stream.write_all(&handshake::frame(&handshake::Welcome { status: 0 })).expect("sent");
        });
        scope.spawn(|| {
            let outcome = rt.block_on(ask(&rt, ECHO, b"", b"", 300 * MILLISECOND));
            assert_eq!(outcome.map(drop), Err(Status::TimedOut));
        });
        told.recv().expect("the impatient one connects");
        assert_eq!(rt.block_on(ask(&rt, ECHO, b"", b"", AMPLE)).map(drop), Err(Status::Unreachable));
    });
    assert_eq!(rt.stats().connects, 1);
}
