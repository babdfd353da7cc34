//! Seals of messages over TCP: what somebody on the way changes, repeats or puts in ends the
//! connection, and is not executed.

mod support;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use support::*;
use weft_base::{ClientId, RequestId, Status, crc32c};
use weft_rt_real::Address;
use weft_wire::handshake::{self, Challenge, ClientHandshake, Hello, Proof, ServerHandshake, Welcome};
use weft_wire::{Features, Frame, HEADER_BYTES, Header, KeyRing, Op, SEAL_BYTES, SessionSeals, Wire};

const ME: ClientId = ClientId(5);

/// A client that seals by hand.
struct Client {
    stream: TcpStream,
    seals: SessionSeals,
    sequence: u64,
}

fn connect(address: &Address) -> TcpStream {
    let Address::Tcp { port, .. } = address else { panic!("a TCP server") };
    let stream = TcpStream::connect(("127.0.0.1", *port)).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a socket option");
    stream
}

fn read_body<M: Wire>(stream: &mut TcpStream) -> M {
    let mut head = [0; HEADER_BYTES];
    stream.read_exact(&mut head).expect("a header");
    let header = Header::decode(&head).expect("a good header");
    let mut body = vec![0; header.body_bytes as usize];
    stream.read_exact(&mut body).expect("a body");
    M::from_bytes(body.into()).expect("a good body")
}

fn hello() -> Hello {
    Hello { features: Features::KNOWN, ..ClientHandshake::hello(FS, NAME, SERVER, ME, 1, [7; 16]) }
}

impl Client {
    fn join(server: &TestServer) -> Client {
        let mut stream = connect(&server.address);
        stream.write_all(&handshake::frame(&hello())).expect("sent");
        let challenge: Challenge = read_body(&mut stream);
        let client = ClientHandshake::new(KEY, hello());
        let proof = client.answer(&challenge).expect("the server holds the key");
        stream.write_all(&handshake::frame(&proof)).expect("sent");
        assert_eq!(read_body::<Welcome>(&mut stream).status, 0);
        Client { stream, seals: client.seals(&challenge).expect("seals were agreed on"), sequence: 0 }
    }

    /// A request that is to be echoed, sealed as the next one.
    fn request(&mut self, word: &[u8]) -> Vec<u8> {
        self.sequence += 1;
        let body = [&[ECHO], word].concat();
        let mut header = Header::request(Op::Ping, SERVER, RequestId { client: ME, incarnation: 1, sequence: self.sequence }, 0);
        header.body_bytes = body.len() as u32;
        header.body_crc = crc32c(&body);
        let head = header.encode();
        let seal = self.seals.to_server.seal([&head[..], &body]);
        [&head[..], &seal, &body].concat()
    }

    fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("sent");
    }

    fn reply(&mut self) -> Vec<u8> {
        let mut head = [0; HEADER_BYTES + SEAL_BYTES];
        self.stream.read_exact(&mut head).expect("a header and a seal");
        let header = Header::decode(head.first_chunk().expect("a header")).expect("a good header");
        let mut body = vec![0; header.body_bytes as usize];
        self.stream.read_exact(&mut body).expect("a body");
        let seal = self.seals.to_client.seal([&head[..HEADER_BYTES], &body]);
        assert_eq!(seal, head[HEADER_BYTES..], "the seal of a reply");
        body
    }

    /// True if the server ends the connection without another word.
    fn is_closed(&mut self) -> bool {
        let mut rest = Vec::new();
        let ended = self.stream.read_to_end(&mut rest);
        assert!(rest.is_empty(), "nothing was executed");
        ended.map_or_else(|error| error.kind() == std::io::ErrorKind::ConnectionReset, |_| true)
    }
}

#[test]
fn sealed_messages_go_both_ways() {
    let server = TestServer::start_sealed();
    let mut client = Client::join(&server);
    for word in [&b"one"[..], b"", b"three"] {
        let request = client.request(word);
        client.send(&request);
        assert_eq!(client.reply()[1..], *word);
    }
}

#[test]
fn a_flipped_byte_ends_the_connection() {
    let server = TestServer::start_sealed();
    // Whoever changes a message computes its checksums anew: here the body, and a field of the
    // header.
    for at in [HEADER_BYTES + SEAL_BYTES + 2, 28, HEADER_BYTES + 3] {
        let mut client = Client::join(&server);
        let mut request = client.request(b"word");
        request[at] ^= 1;
        let mut header = Header::decode(&Header::request(Op::Ping, SERVER, RequestId::default(), 0).encode()).expect("a header");
        let body = request[HEADER_BYTES + SEAL_BYTES..].to_vec();
        header.request = RequestId { client: ME, incarnation: 1, sequence: 1 };
        header.unfinished_span = u32::from(at == 28);
        (header.body_bytes, header.body_crc) = (body.len() as u32, crc32c(&body));
        request[..HEADER_BYTES].copy_from_slice(&header.encode());
        client.send(&request);
        assert!(client.is_closed(), "byte {at}");
        server.expect_line("does not have its seal");
        server.lines.lock().expect("not poisoned").clear();
    }
}

#[test]
fn a_repeated_left_out_or_unsealed_message_ends_the_connection() {
    let server = TestServer::start_sealed();
    let mut client = Client::join(&server);
    let request = client.request(b"word");
    client.send(&request);
    client.reply();
    client.send(&request);
    assert!(client.is_closed(), "the same bytes again");
    let mut client = Client::join(&server);
    drop(client.request(b"left out"));
    let second = client.request(b"second");
    client.send(&second);
    assert!(client.is_closed(), "the one before did not come");
    let mut client = Client::join(&server);
    let request = client.request(b"a longer word than a seal is");
    client.send(&[&request[..HEADER_BYTES], &request[HEADER_BYTES + SEAL_BYTES..]].concat());
    client.stream.shutdown(std::net::Shutdown::Write).expect("a socket");
    assert!(client.is_closed(), "without its seal");
    // On another connection.
    let (mut first, mut second) = (Client::join(&server), Client::join(&server));
    let request = first.request(b"word");
    second.send(&request);
    assert!(second.is_closed());
}

#[test]
fn nothing_slips_in_behind_the_proof() {
    let server = TestServer::start_sealed();
    let mut stream = connect(&server.address);
    stream.write_all(&handshake::frame(&hello())).expect("sent");
    let challenge: Challenge = read_body(&mut stream);
    let proof = ClientHandshake::new(KEY, hello()).answer(&challenge).expect("the server holds the key");
    let header = Header::request(Op::Ping, SERVER, RequestId { client: ME, incarnation: 1, sequence: 1 }, 0).encode();
    // In the same segment as the proof, before anything is sealed.
    stream.write_all(&[&handshake::frame(&proof)[..], &header].concat()).expect("sent");
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest);
    let replies = rest.chunks(HEADER_BYTES).filter_map(|head| Header::decode(head.first_chunk()?).ok());
    assert_eq!(replies.filter(|header| header.op == Op::Ping.code()).count(), 0, "it was not answered");
}

#[test]
fn a_client_without_seals_is_refused_by_name() {
    let server = TestServer::start_sealed();
    let mut stream = connect(&server.address);
    stream.write_all(&handshake::frame(&Hello { features: Features::SHARED_MEMORY, ..hello() })).expect("sent");
    let challenge: Challenge = read_body(&mut stream);
    assert_eq!(Status::from_code(challenge.status), Status::FeatureMissing);
    assert!(challenge.reason.contains("seals"), "{}", challenge.reason);
}

/// Small and large messages of many threads: seals are made in the order in which messages leave.
#[test]
fn threads_that_share_a_connection_seal_in_order() {
    let server = TestServer::start_sealed();
    let rt = server.client();
    std::thread::scope(|scope| {
        for thread in 0..6u8 {
            let rt = &rt;
            scope.spawn(move || {
                for round in 0..40usize {
                    let bulk = pattern(if (round + usize::from(thread)) % 3 == 0 { 300_000 + round } else { round * 20 });
                    let reply = rt.block_on(ask(rt, ECHO, &[thread, round as u8], &bulk, AMPLE)).expect("answered");
                    assert_eq!(reply.body[1..], [thread, round as u8]);
                    assert!(reply.bulk.to_bytes() == bulk);
                }
            });
        }
    });
    assert_eq!(rt.stats().connects, 1, "one connection, which was never lost");
}

/// A client notices a reply that was changed on the way.
#[test]
fn a_changed_reply_is_not_believed() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = Address::Tcp { host: "127.0.0.1".into(), port: listener.local_addr().expect("bound").port() };
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a client");
        let hello: Hello = read_body(&mut stream);
        let mut state = ServerHandshake::new(KeyRing::new(KEY), FS, NAME, SERVER).with_features(Features::KNOWN, Features::SEALS);
        stream.write_all(&handshake::frame(&state.challenge(hello, [1; 16]))).expect("sent");
        state.accept(&read_body::<Proof>(&mut stream)).expect("it holds the key");
        stream.write_all(&handshake::frame(&Welcome { status: 0 })).expect("sent");
        let mut head = [0; HEADER_BYTES + SEAL_BYTES];
        stream.read_exact(&mut head).expect("a request");
        let header = Header::decode(head.first_chunk().expect("a header")).expect("a good header");
        let mut body = vec![0; header.body_bytes as usize];
        stream.read_exact(&mut body).expect("a body");
        let reply = |body: &[u8]| {
            let mut header = Frame::reply(&header, Ok(body.to_vec().into()), weft_base::Payload::EMPTY).header;
            (header.body_bytes, header.body_crc) = (body.len() as u32, crc32c(body));
            header.encode()
        };
        let mut seals = state.seals().expect("they were agreed on");
        let seal = seals.to_client.seal([&reply(&body)[..], &body]);
        body[1] ^= 1;
        stream.write_all(&[&reply(&body)[..], &seal, &body].concat()).expect("sent");
    });
    let rt = client(&address, Some(KEY));
    assert_eq!(rt.block_on(ask(&rt, ECHO, b"word", b"", AMPLE)).map(drop), Err(Status::Unreachable));
    server.join().expect("the server is content");
}
