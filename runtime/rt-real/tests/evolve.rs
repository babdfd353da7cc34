//! An older and a newer program of one protocol version: features and extensions that only one side
//! knows.

mod support;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use support::*;
use weft_base::{ClientId, RequestId, Status, crc32c};
use weft_rt_real::Address;
use weft_wire::handshake::{self, Challenge, ClientHandshake, Hello, Proof, ServerHandshake, Welcome};
use weft_wire::{ExtensionList, Features, Frame, Header, KeyRing, MessageKind, Op, PROTOCOL_VERSION, Wire};

fn read_frame(stream: &mut TcpStream) -> (Header, Vec<u8>) {
    let mut head = [0; 64];
    stream.read_exact(&mut head).expect("a header");
    let header = Header::decode(&head).expect("a good header");
    let mut body = vec![0; header.body_bytes as usize];
    stream.read_exact(&mut body).expect("a body");
    (header, body)
}

fn read_body<M: Wire>(stream: &mut TcpStream) -> M {
    M::from_bytes(read_frame(stream).1.into()).expect("a good body")
}

fn connect(address: &Address) -> TcpStream {
    let Address::Tcp { port, .. } = address else { panic!("a TCP server") };
    let stream = TcpStream::connect(("127.0.0.1", *port)).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a socket option");
    stream
}

/// Shakes hands with a hello that is like this one.
fn introduced(address: &Address, hello: &Hello) -> (TcpStream, Challenge) {
    let mut stream = connect(address);
    stream.write_all(&handshake::frame(hello)).expect("sent");
    let challenge: Challenge = read_body(&mut stream);
    if let Ok(proof) = ClientHandshake::new(KEY, hello.clone()).answer(&challenge) {
        stream.write_all(&handshake::frame(&proof)).expect("sent");
        assert_eq!(read_body::<Welcome>(&mut stream).status, 0);
    }
    (stream, challenge)
}

fn echo(stream: &mut TcpStream, client: ClientId) {
    let body = [ECHO, 1, 2, 3];
    let mut header = Header::request(Op::Ping, SERVER, RequestId { client, incarnation: 1, sequence: 1 }, 0);
    header.body_bytes = body.len() as u32;
    header.body_crc = crc32c(&body);
    stream.write_all(&[&header.encode()[..], &body].concat()).expect("sent");
    assert_eq!(read_frame(stream).1, body);
}

#[test]
fn an_older_and_a_newer_client_are_served() {
    let server = TestServer::start(Address::Tcp { host: "127.0.0.1".into(), port: 0 }, Some(KEY));
    let hello = |client: u64| ClientHandshake::hello(FS, NAME, SERVER, ClientId(client), 1, [7; 16]);
    let older = Hello { features: Features::default(), ..hello(1) };
    let (mut stream, challenge) = introduced(&server.address, &older);
    assert_eq!(challenge.features, Features::default());
    echo(&mut stream, ClientId(1));
    let extensions = ExtensionList::of(&[(40, b"a hint of the future"), (42, b"")]);
    let newer = Hello { version_newest: PROTOCOL_VERSION + 3, features: Features(u64::MAX), extensions, ..hello(2) };
    let (mut stream, challenge) = introduced(&server.address, &newer);
    assert_eq!((challenge.version, challenge.features), (PROTOCOL_VERSION, Features::KNOWN.without(Features::ENCRYPTION)));
    echo(&mut stream, ClientId(2));
}

#[test]
fn what_a_client_needs_and_the_server_lacks_is_named() {
    let server = TestServer::start(Address::Tcp { host: "127.0.0.1".into(), port: 0 }, Some(KEY));
    let hello = ClientHandshake::hello(FS, NAME, SERVER, ClientId(1), 1, [7; 16]);
    let newer = Features(1 << 50);
    let (_, challenge) = introduced(&server.address, &Hello { features: newer, needs: newer, ..hello.clone() });
    assert_eq!(Status::from_code(challenge.status), Status::FeatureMissing);
    assert!(challenge.reason.contains("number 50"), "{}", challenge.reason);
    server.expect_line("number 50");
    let (_, challenge) = introduced(&server.address, &Hello { version_oldest: 7, version_newest: 9, ..hello });
    assert_eq!(Status::from_code(challenge.status), Status::VersionMismatch);
    server.expect_line(&format!("server speaks version {PROTOCOL_VERSION} of the protocol and the client versions 7 to 9"));
}

/// A server of another release: greets one client with these words in its challenge, and echoes its
/// first request.
fn other_server(change: impl FnOnce(Challenge) -> Challenge + Send + 'static) -> (Address, std::thread::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = Address::Tcp { host: "127.0.0.1".into(), port: listener.local_addr().expect("bound").port() };
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a client");
        let hello: Hello = read_body(&mut stream);
        let mut state = ServerHandshake::new(KeyRing::new(KEY), FS, NAME, SERVER).with_features(Features::default(), Features::default());
        let challenge = change(state.challenge(hello, [1; 16]));
        stream.write_all(&handshake::frame(&challenge)).expect("sent");
        if challenge.status != 0 {
            return;
        }
        state.accept(&read_body::<Proof>(&mut stream)).expect("it holds the key");
        let welcome = [Welcome { status: 0 }.to_bytes(), ExtensionList::of(&[(2, b"x")]).to_bytes()].concat();
        stream.write_all(&handshake_frame(&welcome)).expect("sent");
        let (header, body) = read_frame(&mut stream);
        let Frame { mut header, body, .. } = Frame::reply(&header, Ok(body.into()), weft_base::Payload::EMPTY);
        header.body_bytes = body.len() as u32;
        header.body_crc = crc32c(&body);
        stream.write_all(&[&header.encode()[..], &body].concat()).expect("sent");
    });
    (address, server)
}

fn handshake_frame(body: &[u8]) -> Vec<u8> {
    let mut header = Header::request(Op::Ping, SERVER, RequestId::default(), 0);
    (header.kind, header.op, header.version) = (MessageKind::Handshake, 0, weft_wire::HANDSHAKE_VERSION);
    header.body_bytes = body.len() as u32;
    header.body_crc = crc32c(body);
    [&header.encode()[..], body].concat()
}

#[test]
fn a_client_goes_on_with_a_server_that_has_fewer_features_and_says_more() {
    let (address, server) = other_server(|challenge| challenge);
    let rt = client(&address, Some(KEY));
    let (body, _) = rt.block_on(ask(&rt, ECHO, b"hello", b"", AMPLE)).map(|frame| (frame.body, ())).expect("answered");
    assert_eq!(&body[1..], b"hello");
    server.join().expect("the server is content");
}

#[test]
fn the_words_of_a_server_that_refuses_reach_the_person() {
    let (address, server) = other_server(|challenge| Challenge {
        status: Status::FeatureMissing.code(),
        reason: "the server needs what the client does not have: replicas".into(),
        ..challenge
    });
    let rt = client(&address, Some(KEY));
    assert_eq!(rt.block_on(ask(&rt, ECHO, b"", b"", AMPLE)).map(drop), Err(Status::FeatureMissing));
    assert!(rt.last_error(SERVER).expect("it was told").contains("replicas"));
    server.join().expect("the server is content");
}
