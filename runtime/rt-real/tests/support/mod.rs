//! A server that obeys the first byte of a body, and clients for it.

#![allow(dead_code)] // every test program uses a part

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use bytes::Bytes;
use weft_base::{ClientId, FsId, MILLISECOND, Nanos, Payload, RequestId, SECOND, ServerId, Status};
use weft_rt::{Arrival, Bulk, Outgoing, Runtime, ServerRuntime};
use weft_rt_real::{Address, ClientConfig, ClientRt, DiskConfig, Keys, Log, Shard, ShardConfig, ShardRt, StopHandle};
use weft_wire::{ClusterKey, Frame, Header, Op};

pub const FS: FsId = FsId(77);
pub const NAME: &str = "testfs";
pub const KEY: ClusterKey = ClusterKey([3; 32]);
pub const SERVER: ServerId = ServerId(0);

/// Reply with body and bulk data of the request.
pub const ECHO: u8 = b'e';
/// Never reply.
pub const SILENT: u8 = b's';
/// Reply after 30 ms.
pub const LATE: u8 = b'l';
/// Reply with as many bytes of bulk data as the next four bytes (little endian) say.
pub const BULK: u8 = b'b';
/// Ask the server of number 1 to echo the rest of the body, and reply with what it says or the
/// number of the status.
pub const FORWARD: u8 = b'f';

pub struct TestServer {
    pub address: Address,
    pub stop: StopHandle,
    pub lines: Arc<Mutex<Vec<String>>>,
    pub events: Arc<Mutex<Vec<String>>>,
    thread: Option<JoinHandle<()>>,
}

impl TestServer {
    pub fn start(listen: Address, key: Option<ClusterKey>) -> TestServer {
        TestServer::start_as(SERVER, listen, key, Vec::new())
    }

    /// Everything over TCP is encrypted.
    pub fn start_encrypted() -> TestServer {
        TestServer::start_with(SERVER, tcp(), Some(KEY), Vec::new(), true)
    }

    pub fn start_as(server: ServerId, listen: Address, key: Option<ClusterKey>, servers: Vec<(ServerId, Address)>) -> TestServer {
        TestServer::start_with(server, listen, key, servers, false)
    }

    pub fn start_with(
        server: ServerId,
        listen: Address,
        key: Option<ClusterKey>,
        servers: Vec<(ServerId, Address)>,
        encrypt_tcp: bool,
    ) -> TestServer {
        let stop = StopHandle::new().expect("an event");
        let lines = Arc::new(Mutex::new(Vec::new()));
        let events = Arc::new(Mutex::new(Vec::new()));
        let (config_stop, log_lines, log_events) = (stop.clone(), lines.clone(), events.clone());
        let (tell, told) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            let config = ShardConfig {
                server,
                fs_id: FS,
                fs_name: NAME.to_string(),
                keys: key.map(Keys::from),
                listen: vec![listen],
                disk: DiskConfig::Memory { capacity_bytes: 1 << 20 },
                servers,
                share_memory: true,
                encrypt_tcp,
                stop: config_stop,
                log: Log::new(move |line| log_lines.lock().expect("not poisoned").push(line.to_string())),
            };
            let shard = Shard::bind(config).expect("the address is free");
            tell.send(shard.addresses()[0].clone()).expect("the test waits");
            shard.run(|rt| answer(rt, log_events)).expect("it runs");
        });
        TestServer { address: told.recv().expect("it listens"), stop, lines, events, thread: Some(thread) }
    }

    /// Ends the server and waits for its thread.
    pub fn stop(&mut self) {
        self.stop.stop();
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the server ends without a panic");
        }
    }

    pub fn client(&self) -> ClientRt {
        client(&self.address, Some(KEY))
    }

    /// Waits until the server has logged a line that contains `word`.
    pub fn expect_line(&self, word: &str) {
        let limit = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while !self.lines.lock().expect("not poisoned").iter().any(|line| line.contains(word)) {
            assert!(std::time::Instant::now() < limit, "no line with {word:?} in {:?}", self.lines.lock().expect("not poisoned"));
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.stop.stop();
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(ended.is_ok() || std::thread::panicking(), "the server panicked");
        }
    }
}

async fn answer(rt: ShardRt, events: Arc<Mutex<Vec<String>>>) {
    let mut arrivals = Vec::new();
    let sequence = std::rc::Rc::new(std::cell::Cell::new(0));
    loop {
        rt.receive(&mut arrivals).await;
        for arrival in arrivals.drain(..) {
            let (peer, frame) = match arrival {
                Arrival::Request { peer, frame } => (peer, frame),
                Arrival::Connected { client, incarnation, .. } => {
                    events.lock().expect("not poisoned").push(format!("connected {} {incarnation}", client.0));
                    continue;
                }
                Arrival::Disconnected { client, incarnation, .. } => {
                    events.lock().expect("not poisoned").push(format!("disconnected {} {incarnation}", client.0));
                    continue;
                }
            };
            match frame.body.first().copied() {
                Some(SILENT) => {}
                Some(LATE) => {
                    let later = rt.clone();
                    rt.spawn(async move {
                        later.sleep_until(later.now() + 30 * MILLISECOND).await;
                        later.reply(peer, Frame::reply(&frame.header, Ok(frame.body), frame.bulk));
                    });
                }
                Some(BULK) => {
                    let len = u32::from_le_bytes(frame.body[1..5].try_into().expect("four bytes"));
                    rt.reply(peer, Frame::reply(&frame.header, Ok(Bytes::new()), pattern(len as usize).into()));
                }
                Some(FORWARD) => {
                    let other = rt.clone();
                    sequence.set(sequence.get() + 1);
                    let number = sequence.get();
                    rt.spawn(async move {
                        let request = RequestId { client: ClientId(99), incarnation: 1, sequence: number };
                        let header = Header::request(Op::Ping, ServerId(1), request, 0);
                        let outgoing = Outgoing { header, body: frame.body.slice(1..), bulk: Bulk::None };
                        let limit = if frame.body[1] == SILENT { 100 * MILLISECOND } else { 20 * SECOND };
                        let outcome = other.request(ServerId(1), outgoing, other.now() + limit).await;
                        let result = outcome.map(|reply| reply.body);
                        other.reply(peer, Frame::reply(&frame.header, result, Payload::EMPTY));
                    });
                }
                _ => rt.reply(peer, Frame::reply(&frame.header, Ok(frame.body), frame.bulk)),
            }
        }
    }
}

pub fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| ((i * 31) >> 3) as u8).collect()
}

pub fn tcp() -> Address {
    "tcp:127.0.0.1:0".parse().expect("an address")
}

pub fn unix(dir: &tempfile::TempDir) -> Address {
    Address::Unix(dir.path().join("server"))
}

pub fn config(address: &Address, key: Option<ClusterKey>) -> ClientConfig {
    ClientConfig {
        fs_id: FS,
        fs_name: NAME.to_string(),
        key: key.map(Into::into),
        servers: vec![(SERVER, address.clone())],
        client: weft_rt_real::random_client_id(None),
        share_memory: true,
        encrypt_tcp: false,
        incarnation: 1,
    }
}

pub fn client(address: &Address, key: Option<ClusterKey>) -> ClientRt {
    ClientRt::new(config(address, key))
}

static SEQUENCE: AtomicU64 = AtomicU64::new(1);

/// Longer than anything takes that works.
pub const AMPLE: u64 = 30 * SECOND;

/// One request with a body that begins with a command, and an answer before `limit_ns` have passed.
pub async fn ask(rt: &ClientRt, command: u8, rest: &[u8], bulk: &[u8], limit_ns: u64) -> Result<Frame, Status> {
    ask_at(rt, SERVER, command, rest, bulk, limit_ns).await
}

/// The same at any server.
pub async fn ask_at(rt: &ClientRt, server: ServerId, command: u8, rest: &[u8], bulk: &[u8], limit_ns: u64) -> Result<Frame, Status> {
    let deadline = if limit_ns == u64::MAX { Nanos::NEVER } else { rt.now() + limit_ns };
    let sequence = SEQUENCE.fetch_add(1, Ordering::Relaxed);
    let request = RequestId { client: rt.client(), incarnation: rt.incarnation(), sequence };
    let mut body = vec![command];
    body.extend_from_slice(rest);
    let header = Header::request(Op::Ping, server, request, 0);
    // Two pieces, so that lists are exercised.
    let (one, two) = bulk.split_at(bulk.len() / 3);
    let bulk = if bulk.is_empty() { Bulk::None } else { Bulk::Slices(vec![one, two]) };
    let reply = rt.request(server, Outgoing { header, body: body.into(), bulk }, deadline).await?;
    assert_eq!(reply.header.request, request);
    reply.status()?;
    Ok(reply)
}
