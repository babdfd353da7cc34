//! Encrypted connections: who is on the way reads nothing, and what he changes, repeats, leaves out
//! or puts in ends the connection and is not executed.

mod support;

use std::io::{IoSlice, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use support::*;
use weft_base::{ClientId, RequestId, Status};
use weft_rt_real::{Address, ClientConfig, ClientRt};
use weft_wire::handshake::{self, Challenge, ClientHandshake, Hello, Proof, ServerHandshake, Welcome};
use weft_wire::{AUTH_TAG_BYTES, Cipher, Features, Frame, HEADER_BYTES, Header, KeyRing, LENGTH_BYTES, Op, SessionCiphers, Wire};

const ME: ClientId = ClientId(5);

/// A client that encrypts by hand.
struct Client {
    stream: TcpStream,
    ciphers: SessionCiphers,
    sequence: u64,
    /// Content that was read and is of the next reply.
    inbox: Vec<u8>,
}

fn port(address: &Address) -> u16 {
    let Address::Tcp { port, .. } = address else { panic!("a TCP server") };
    *port
}

fn connect(address: &Address) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", port(address))).expect("it listens");
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

/// Of a client that does not know the exchange of keys.
fn hello() -> Hello {
    Hello { features: Features::KNOWN, ..ClientHandshake::hello(FS, NAME, SERVER, ME, 1, [7; 16]) }
}

fn envelope(cipher: &mut Cipher, content: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    cipher.encrypt(&mut &mut [IoSlice::new(content)][..], &mut out);
    out
}

/// The content of the next envelope.
fn read_envelope(stream: &mut TcpStream, cipher: &mut Cipher) -> Vec<u8> {
    let mut length = [0; LENGTH_BYTES];
    stream.read_exact(&mut length).expect("a length");
    let mut bytes = vec![0; u32::from_le_bytes(length) as usize + AUTH_TAG_BYTES];
    stream.read_exact(&mut bytes).expect("an envelope");
    let content = cipher.open(&mut bytes, 0).expect("it can be opened");
    bytes.truncate(content);
    bytes
}

/// A request that is to be echoed. What is encrypted has no checksums.
fn request(sequence: u64, word: &[u8], bulk_bytes: usize) -> Vec<u8> {
    let body = [&[ECHO], word].concat();
    let mut header = Header::request(Op::Ping, SERVER, RequestId { client: ME, incarnation: 1, sequence }, 0);
    (header.body_bytes, header.bulk_bytes) = (body.len() as u32, bulk_bytes as u32);
    [&header.encode()[..], &body].concat()
}

impl Client {
    fn join(server: &TestServer) -> Client {
        let mut stream = connect(&server.address);
        stream.write_all(&handshake::frame(&hello())).expect("sent");
        let challenge: Challenge = read_body(&mut stream);
        let mut client = ClientHandshake::new(KEY, hello());
        let proof = client.answer(&challenge).expect("the server holds the key");
        stream.write_all(&handshake::frame(&proof)).expect("sent");
        assert_eq!(read_body::<Welcome>(&mut stream).status, 0);
        Client { stream, ciphers: client.ciphers(&challenge).expect("encryption was agreed on"), sequence: 0, inbox: Vec::new() }
    }

    /// The envelope of the next request.
    fn request(&mut self, word: &[u8]) -> Vec<u8> {
        self.sequence += 1;
        envelope(&mut self.ciphers.to_server, &request(self.sequence, word, 0))
    }

    fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("sent");
    }

    /// The body of the next reply.
    fn reply(&mut self) -> Vec<u8> {
        loop {
            if let Some(head) = self.inbox.first_chunk() {
                let end = HEADER_BYTES + Header::decode(head).expect("a good header").body_bytes as usize;
                if self.inbox.len() >= end {
                    return self.inbox.drain(..end).skip(HEADER_BYTES).collect();
                }
            }
            self.inbox.extend(read_envelope(&mut self.stream, &mut self.ciphers.to_client));
        }
    }

    /// True if the server ends the connection without another word.
    fn is_closed(&mut self) -> bool {
        let mut rest = Vec::new();
        let ended = self.stream.read_to_end(&mut rest);
        assert!(rest.is_empty(), "nothing was executed");
        ended.map_or_else(|error| error.kind() == std::io::ErrorKind::ConnectionReset, |_| true)
    }
}

/// Somebody on the way to a server: hears everything, and may change what the client says.
struct Tap {
    address: Address,
    heard: Arc<Mutex<Vec<u8>>>,
}

impl Tap {
    fn on(server: &TestServer, mut change: impl FnMut(Vec<u8>) -> Vec<u8> + Send + 'static) -> Tap {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = Address::Tcp { host: "127.0.0.1".into(), port: listener.local_addr().expect("bound").port() };
        let (heard, there) = (Arc::new(Mutex::new(Vec::new())), port(&server.address));
        let log = heard.clone();
        std::thread::spawn(move || {
            let (client, _) = listener.accept().expect("a client");
            let server = TcpStream::connect(("127.0.0.1", there)).expect("it listens");
            let pass = |mut from: TcpStream, mut to: TcpStream, log: Arc<Mutex<Vec<u8>>>, change: &mut dyn FnMut(Vec<u8>) -> Vec<u8>| {
                let mut block = vec![0; 1 << 16];
                while let Ok(read @ 1..) = from.read(&mut block) {
                    log.lock().expect("not poisoned").extend_from_slice(&block[..read]);
                    if to.write_all(&change(block[..read].to_vec())).is_err() {
                        break;
                    }
                }
                let _ = to.shutdown(Shutdown::Both);
            };
            let (back, again) = (server.try_clone().expect("a socket"), client.try_clone().expect("a socket"));
            let other = log.clone();
            std::thread::spawn(move || pass(back, again, other, &mut |bytes| bytes));
            pass(client, server, log, &mut change);
        });
        Tap { address, heard }
    }

    fn has_heard(&self, word: &[u8]) -> bool {
        self.heard.lock().expect("not poisoned").windows(word.len()).any(|bytes| bytes == word)
    }
}

#[test]
fn encrypted_messages_go_both_ways() {
    let server = TestServer::start_encrypted();
    let mut client = Client::join(&server);
    for word in [&b"one"[..], b"", b"three"] {
        let request = client.request(word);
        client.send(&request);
        assert_eq!(client.reply()[1..], *word);
    }
    // Two in one envelope, and one in two.
    let both = [request(4, b"four", 0), request(5, b"five", 0)].concat();
    let bytes = envelope(&mut client.ciphers.to_server, &both);
    client.send(&bytes);
    assert_eq!([client.reply(), client.reply()].concat(), b"efourefive", "a reply each");
    let six = request(6, b"six", 0);
    let halves = six.split_at(30);
    let bytes = [envelope(&mut client.ciphers.to_server, halves.0), envelope(&mut client.ciphers.to_server, halves.1)].concat();
    client.send(&bytes);
    assert_eq!(client.reply(), b"esix");
}

#[test]
fn somebody_on_the_way_sees_neither_names_nor_data() {
    let (name, data) = (b"a name that is secret", b"data that is secret".repeat(20_000));
    for (server, is_secret) in [(TestServer::start_encrypted(), true), (TestServer::start(tcp(), Some(KEY)), false)] {
        let tap = Tap::on(&server, |bytes| bytes);
        let rt = client(&tap.address, Some(KEY));
        for bulk in [&data[..], &data[..1000]] {
            let reply = rt.block_on(ask(&rt, ECHO, name, bulk, AMPLE)).expect("answered");
            assert!(reply.body[1..] == name[..] && reply.bulk.to_bytes() == bulk);
        }
        assert!(tap.heard.lock().expect("not poisoned").len() > 2 * data.len(), "everything came by");
        assert_ne!(tap.has_heard(name), is_secret);
        assert_ne!(tap.has_heard(&data[..19]), is_secret);
        // Nor which operation it is, and for whom.
        assert_ne!(tap.has_heard(&[b"WEFT", &[weft_wire::PROTOCOL_VERSION, 1][..], &Op::Ping.code().to_le_bytes()].concat()), is_secret);
    }
}

/// The first message in these bytes, and what follows it.
fn split_message<M: Wire>(bytes: &[u8]) -> (M, &[u8]) {
    let header = Header::decode(bytes.first_chunk().expect("a header")).expect("a good header");
    let (body, rest) = bytes[HEADER_BYTES..].split_at(header.body_bytes as usize);
    (M::from_bytes(body.to_vec().into()).expect("a good body"), rest)
}

/// Clients and servers of now exchange keys: the long-term key opens nothing that was recorded. A
/// client that does not know the exchange still connects, and there it does.
#[test]
fn the_key_does_not_open_what_was_recorded() {
    let server = TestServer::start_encrypted();
    let tap = Tap::on(&server, |bytes| bytes);
    let rt = client(&tap.address, Some(KEY));
    rt.block_on(ask(&rt, ECHO, b"a word that is secret", b"", AMPLE)).expect("answered");
    let heard = tap.heard.lock().expect("not poisoned").clone();
    let (first, rest) = split_message::<Hello>(&heard);
    let (challenge, rest) = split_message::<Challenge>(rest);
    let (_, rest) = split_message::<Proof>(rest);
    let (_, recorded) = split_message::<Welcome>(rest);
    let opens = |hello: Hello, challenge: &Challenge, recorded: &[u8]| {
        let bytes = u32::from_le_bytes(*recorded.first_chunk().expect("a length")) as usize + AUTH_TAG_BYTES;
        let ciphers = ClientHandshake::new(KEY, hello).ciphers(challenge).expect("encryption was agreed on");
        let mut envelope = recorded[LENGTH_BYTES..][..bytes].to_vec();
        { ciphers }.to_server.open(&mut envelope, 0).is_ok()
    };
    assert!(!opens(first, &challenge, recorded));
    let mut stream = connect(&server.address);
    stream.write_all(&handshake::frame(&hello())).expect("sent");
    let challenge: Challenge = read_body(&mut stream);
    let mut before = ClientHandshake::new(KEY, hello());
    stream.write_all(&handshake::frame(&before.answer(&challenge).expect("the server holds the key"))).expect("sent");
    assert_eq!(read_body::<Welcome>(&mut stream).status, 0);
    let recorded = envelope(&mut before.ciphers(&challenge).expect("agreed on").to_server, b"word");
    assert!(opens(hello(), &challenge, &recorded));
}

#[test]
fn a_flipped_bit_ends_the_connection() {
    let server = TestServer::start_encrypted();
    let len = Client::join(&server).request(b"word").len();
    for at in [0, 2, LENGTH_BYTES, LENGTH_BYTES + 20, len - AUTH_TAG_BYTES - 1, len - AUTH_TAG_BYTES, len - 1] {
        let mut client = Client::join(&server);
        let mut bytes = client.request(b"word");
        bytes[at] ^= 0x10;
        client.send(&bytes);
        client.stream.shutdown(Shutdown::Write).expect("a socket");
        assert!(client.is_closed(), "byte {at}");
        // A length that is too long waits for more, which does not come.
        server.expect_line(if at == 0 { "within a message" } else { "is not the one that was sent" });
        server.lines.lock().expect("not poisoned").clear();
    }
}

#[test]
fn a_repeated_left_out_moved_or_cut_off_message_ends_the_connection() {
    let server = TestServer::start_encrypted();
    let mut client = Client::join(&server);
    let bytes = client.request(b"word");
    client.send(&bytes);
    client.reply();
    client.send(&bytes);
    assert!(client.is_closed(), "the same bytes again");
    let mut client = Client::join(&server);
    let (first, second) = (client.request(b"first"), client.request(b"second"));
    client.send(&second);
    assert!(client.is_closed(), "the one before did not come");
    let mut client = Client::join(&server);
    client.send(&[&second[..], &first].concat());
    assert!(client.is_closed(), "in another order");
    let mut client = Client::join(&server);
    let bytes = client.request(b"word");
    client.send(&bytes[..bytes.len() - 1]);
    client.stream.shutdown(Shutdown::Write).expect("a socket");
    assert!(client.is_closed(), "cut off");
    let mut client = Client::join(&server);
    client.send(&request(1, b"in the clear, and longer than the length of an envelope and its tag", 0));
    assert!(client.is_closed(), "not encrypted");
    // On another connection.
    let (mut first, mut second) = (Client::join(&server), Client::join(&server));
    let bytes = first.request(b"word");
    second.send(&bytes);
    assert!(second.is_closed());
}

/// Bulk data is received where it belongs, so nothing else may be in its envelopes.
#[test]
fn bulk_data_has_envelopes_of_its_own() {
    let server = TestServer::start_encrypted();
    let mut client = Client::join(&server);
    let bulk = pattern(100_000);
    let head = envelope(&mut client.ciphers.to_server, &request(1, b"word", bulk.len()));
    client.send(&head);
    for content in [&bulk[..1000], &bulk[1000..40_000], &bulk[40_000..]] {
        let bytes = envelope(&mut client.ciphers.to_server, content);
        client.send(&bytes);
    }
    assert_eq!(client.reply(), b"eword");
    let mut echoed = Vec::new();
    while echoed.len() < bulk.len() {
        echoed.extend(read_envelope(&mut client.stream, &mut client.ciphers.to_client));
    }
    assert!(echoed == bulk);
    let head = envelope(&mut client.ciphers.to_server, &request(2, b"word", 20_000));
    let more = envelope(&mut client.ciphers.to_server, &[&bulk[..20_000], &request(3, b"behind", 0)].concat());
    client.send(&head);
    std::thread::sleep(Duration::from_millis(20));
    client.send(&more);
    assert!(client.is_closed());
}

#[test]
fn nothing_slips_in_behind_the_proof() {
    let server = TestServer::start_encrypted();
    let mut stream = connect(&server.address);
    stream.write_all(&handshake::frame(&hello())).expect("sent");
    let challenge: Challenge = read_body(&mut stream);
    let proof = ClientHandshake::new(KEY, hello()).answer(&challenge).expect("the server holds the key");
    let header = Header::request(Op::Ping, SERVER, RequestId { client: ME, incarnation: 1, sequence: 1 }, 0).encode();
    // In the same segment as the proof, in the clear.
    stream.write_all(&[&handshake::frame(&proof)[..], &header].concat()).expect("sent");
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest);
    let replies = rest.chunks(HEADER_BYTES).filter_map(|head| Header::decode(head.first_chunk()?).ok());
    assert_eq!(replies.filter(|header| header.op == Op::Ping.code()).count(), 0, "it was not answered");
}

#[test]
fn who_cannot_encrypt_is_refused_by_name() {
    let server = TestServer::start_encrypted();
    let mut stream = connect(&server.address);
    stream.write_all(&handshake::frame(&Hello { features: Features::SHARED_MEMORY, ..hello() })).expect("sent");
    let challenge: Challenge = read_body(&mut stream);
    assert_eq!(Status::from_code(challenge.status), Status::FeatureMissing);
    assert!(challenge.reason.ends_with("the client does not have: encryption"), "{}", challenge.reason);
    // The other way round.
    let server = TestServer::start(tcp(), Some(KEY));
    let rt = ClientRt::new(ClientConfig { encrypt_tcp: true, ..config(&server.address, Some(KEY)) });
    assert_eq!(rt.block_on(ask(&rt, ECHO, b"word", b"", AMPLE)).map(drop), Err(Status::FeatureMissing));
    assert!(rt.last_error(SERVER).expect("it was told").ends_with("the server does not have: encryption"));
    // A server that does not ask for it, and a client that does not either.
    let rt = client(&server.address, Some(KEY));
    assert_eq!(rt.block_on(ask(&rt, ECHO, b"word", b"", AMPLE)).expect("answered").body[1..], *b"word");
}

/// Whoever is on the way takes the wish to encrypt out of the hello.
#[test]
fn nobody_on_the_way_talks_both_ends_out_of_it() {
    for server in [TestServer::start_encrypted(), TestServer::start(tcp(), Some(KEY))] {
        let mut is_first = true;
        let tap = Tap::on(&server, move |bytes| {
            if !std::mem::take(&mut is_first) {
                return bytes;
            }
            let hello = Hello::from_bytes(bytes[HEADER_BYTES..].to_vec().into()).expect("the whole hello");
            handshake::frame(&Hello { features: Features::SHARED_MEMORY, needs: Features::default(), ..hello })
        });
        let rt = ClientRt::new(ClientConfig { encrypt_tcp: true, ..config(&tap.address, Some(KEY)) });
        let outcome = rt.block_on(ask(&rt, ECHO, b"a word that is secret", b"", AMPLE)).map(drop);
        assert!(matches!(outcome, Err(Status::FeatureMissing | Status::AuthenticationFailed)), "{outcome:?}");
        assert!(!tap.has_heard(b"a word that is secret"));
    }
}

/// Small and large messages of many threads, and the largest that there is.
#[test]
fn threads_share_an_encrypted_connection() {
    let server = TestServer::start_encrypted();
    let rt = server.client();
    std::thread::scope(|scope| {
        for thread in 0..6u8 {
            let rt = &rt;
            scope.spawn(move || {
                for round in 0..40usize {
                    let bulk = pattern(if (round + usize::from(thread)) % 3 == 0 { 300_000 + round } else { round * 700 });
                    let reply = rt.block_on(ask(rt, ECHO, &[thread, round as u8], &bulk, AMPLE)).expect("answered");
                    assert_eq!(reply.body[1..], [thread, round as u8]);
                    assert!(reply.bulk.to_bytes() == bulk);
                }
            });
        }
    });
    let bulk = pattern(weft_wire::BULK_BYTES_MAX);
    assert!(rt.block_on(ask(&rt, ECHO, b"", &bulk, AMPLE)).expect("answered").bulk.to_bytes() == bulk);
    assert_eq!(rt.stats().connects, 1, "one connection, which was never lost");
}

/// Servers encrypt what they ask each other.
#[test]
fn servers_encrypt_among_themselves() {
    let asked = TestServer::start_with(weft_base::ServerId(1), tcp(), Some(KEY), Vec::new(), true);
    let tap = Tap::on(&asked, |bytes| bytes);
    let asking = TestServer::start_with(SERVER, tcp(), Some(KEY), vec![(weft_base::ServerId(1), tap.address.clone())], true);
    let rt = asking.client();
    let reply = rt.block_on(ask(&rt, FORWARD, b"a word that is secret", b"", AMPLE)).expect("answered");
    assert!(reply.body.windows(21).any(|bytes| bytes == b"a word that is secret"), "{:?}", reply.body);
    assert!(!tap.has_heard(b"a word that is secret") && !tap.heard.lock().expect("not poisoned").is_empty());
}

/// A client notices a reply that was changed on the way.
#[test]
fn a_changed_reply_is_not_believed() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = Address::Tcp { host: "127.0.0.1".into(), port: listener.local_addr().expect("bound").port() };
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a client");
        let hello: Hello = read_body(&mut stream);
        let mut state = ServerHandshake::new(KeyRing::new(KEY), FS, NAME, SERVER).with_features(Features::KNOWN, Features::ENCRYPTION);
        stream.write_all(&handshake::frame(&state.challenge(hello, [1; 16]))).expect("sent");
        state.accept(&read_body::<Proof>(&mut stream)).expect("it holds the key");
        stream.write_all(&handshake::frame(&Welcome { status: 0 })).expect("sent");
        let mut ciphers = state.ciphers().expect("it was agreed on");
        let request = read_envelope(&mut stream, &mut ciphers.to_server);
        let header = Header::decode(request.first_chunk().expect("a header")).expect("a good header");
        let Frame { mut header, body, .. } = Frame::reply(&header, Ok(b"eword".to_vec().into()), weft_base::Payload::EMPTY);
        header.body_bytes = body.len() as u32;
        let mut reply = envelope(&mut ciphers.to_client, &[&header.encode()[..], &body].concat());
        reply[LENGTH_BYTES + HEADER_BYTES + 2] ^= 1;
        stream.write_all(&reply).expect("sent");
    });
    let rt = client(&address, Some(KEY));
    assert_eq!(rt.block_on(ask(&rt, ECHO, b"word", b"", AMPLE)).map(drop), Err(Status::Unreachable));
    server.join().expect("the server is content");
}
