//! Requests of this runtime against a bare loop over the same kind of socket, in the same run:
//! `cargo run --release -p weft-rt-real --example rpc [seconds per measurement]`.
//!
//! The bare server is one thread with epoll, one receive and one send for each turn, the bare
//! client sends and receives; neither looks at the bytes. Clients and server share the processors
//! of this machine, so these are no figures of a cluster.
//!
//! On a machine that others use too, rates say little, and even their ratio drifts towards 1 when
//! both sides mostly wait for a core. The processor time of both ends for one request is what the
//! program itself costs.

#![allow(unsafe_code)] // epoll of the bare server

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use weft_base::{FsId, Nanos, Payload, RequestId, SECOND, ServerId};
use weft_rt::{Arrival, Bulk, Outgoing, Runtime, ServerRuntime, join_all};
use weft_rt_real::{Address, ClientConfig, ClientRt, DiskConfig, Log, Shard, ShardConfig, StopHandle, random_client_id};
use weft_wire::{Frame, Header, Op};

const SERVER: ServerId = ServerId(0);
const FRAME_BYTES: usize = 64;
const BULK_BYTES: usize = 1 << 20;
const ROUNDS: usize = 5;

fn main() {
    if std::env::args().nth(1).as_deref() == Some("profile") {
        return profile(&std::env::args().nth(2).unwrap_or_default());
    }
    let seconds = std::env::args().nth(1).map_or(0.4, |text| text.parse().expect("seconds as a number"));
    let time = Duration::from_secs_f64(seconds);
    let dir = tempfile::tempdir().expect("a temporary directory");
    println!("median (least - most) of {ROUNDS} rounds of {seconds} s, weft and bare in turns; ratio of the medians");
    println!("one core: clients and server share core 0; two cores: server on core 1, clients on core 0. Left alone, the scheduler");
    println!("chooses between the two by the load of the machine, and a synchronous round trip differs several times.");
    for (placement, server_core) in [("one core", 0), ("two cores", 1)] {
        for name in ["unix", "tcp"] {
            let address = match name {
                "unix" => Address::Unix(dir.path().join(format!("weft{server_core}"))),
                _ => "tcp:127.0.0.1:0".parse().expect("an address"),
            };
            measure(&Run { label: format!("{placement}, {name}"), server_core, time }, name, address);
        }
    }
}

/// Only our side on one core, for a profiler: `profile sync`, `profile window` or `profile write`.
fn profile(what: &str) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let server = WeftServer::start(Address::Unix(dir.path().join("weft")), 0);
    let rt = server.client();
    let time = Duration::from_secs(3);
    let rate = match what {
        "window" => weft_window(&rt, 1, time),
        "write" => weft_write(&rt, 1, time),
        _ => weft_sync(&rt, 1, time),
    };
    println!("{:.0}/s, {:.2} us of processor time each", rate.per_second, rate.cpu_us);
}

struct Run {
    label: String,
    server_core: usize,
    time: Duration,
}

fn measure(run: &Run, name: &str, address: Address) {
    let server = WeftServer::start(address, run.server_core);
    let rt = server.client();
    let connect = || Bare::connect(name, run.server_core);
    run.compare("synchronous, empty", "k/s", 1e3, &|time| weft_sync(&rt, 1, time), &|time| bare(&connect, time, SMALL, 1));
    run.alone("synchronous, empty, 4 threads", "k/s", 1e3, &|time| weft_sync(&rt, 4, time));
    run.compare("windows of 64", "k/s", 1e3, &|time| weft_window(&rt, 1, time), &|time| bare(&connect, time, SMALL, 64));
    run.alone("windows of 64, 2 threads", "k/s", 1e3, &|time| weft_window(&rt, 2, time));
    let gib = (1u64 << 30) as f64 / BULK_BYTES as f64;
    run.compare("writes of 1 MiB", "GiB/s", gib, &|time| weft_write(&rt, 1, time), &|time| bare(&connect, time, WRITE, 1));
    run.compare("reads of 1 MiB", "GiB/s", gib, &|time| weft_read(&rt, 1, time), &|time| bare(&connect, time, READ, 1));
    run.alone("writes of 1 MiB, 2 threads", "GiB/s", gib, &|time| weft_write(&rt, 2, time));
    run.alone("reads of 1 MiB, 2 threads", "GiB/s", gib, &|time| weft_read(&rt, 2, time));
}

impl Run {
    /// Ours and bare in turns.
    fn compare(&self, what: &str, unit: &str, scale: f64, weft: &dyn Fn(Duration) -> Sample, bare: &dyn Fn(Duration) -> Sample) {
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            ours.push(weft(self.time));
            theirs.push(bare(self.time));
        }
        let (ours, theirs) = (Summary::of(&ours, scale), Summary::of(&theirs, scale));
        let (rate, cpu) = (ours.rate / theirs.rate, theirs.cpu_us / ours.cpu_us);
        println!(
            "{:15} {what:28} weft {} {unit:5} | bare {} {unit:5} | ratio {rate:.2}, by cpu {cpu:.2}",
            self.label, ours.text, theirs.text
        );
    }

    /// Many threads share our one connection and server; a bare loop with a connection each would
    /// be something else.
    fn alone(&self, what: &str, unit: &str, scale: f64, weft: &dyn Fn(Duration) -> Sample) {
        let samples: Vec<_> = (0..ROUNDS).map(|_| weft(self.time)).collect();
        println!("{:15} {what:28} weft {} {unit:5}", self.label, Summary::of(&samples, scale).text);
    }
}

struct Summary {
    rate: f64,
    cpu_us: f64,
    text: String,
}

impl Summary {
    fn of(samples: &[Sample], scale: f64) -> Summary {
        let sorted = |value: &dyn Fn(&Sample) -> f64| {
            let mut values: Vec<f64> = samples.iter().map(value).collect();
            values.sort_by(f64::total_cmp);
            values
        };
        let (rates, cpu) = (sorted(&|sample| sample.per_second / scale), sorted(&|sample| sample.cpu_us));
        let (rate, cpu_us) = (rates[ROUNDS / 2], cpu[ROUNDS / 2]);
        let text = format!("{rate:7.2} ({:.2}-{:.2}), {cpu_us:.2} us", rates[0], rates[ROUNDS - 1]);
        Summary { rate, cpu_us, text }
    }
}

/// Keeps the calling thread on one core.
fn pin(core: usize) {
    // SAFETY: all-zero bytes are a valid empty set; the calls only touch the set.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(core, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set);
    }
}

/// What one round has measured.
#[derive(Clone, Copy)]
struct Sample {
    per_second: f64,
    /// Processor time of client and server for one, in microseconds.
    cpu_us: f64,
}

/// Processor time of this process in microseconds.
fn cpu_us() -> f64 {
    // SAFETY: all-zero bytes are a valid rusage; the call writes to it.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &mut usage);
        usage
    };
    let us = |time: libc::timeval| time.tv_sec as f64 * 1e6 + time.tv_usec as f64;
    us(usage.ru_utime) + us(usage.ru_stime)
}

/// Runs `work` in so many threads until the time is over; it returns how many requests it has made.
fn rate(threads: usize, time: Duration, work: impl Fn(Instant) -> u64 + Sync) -> Sample {
    let used = cpu_us();
    let begin = Instant::now();
    let end = begin + time;
    let count: u64 = std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads)
            .map(|_| {
                scope.spawn(|| {
                    pin(0);
                    work(end)
                })
            })
            .collect();
        running.into_iter().map(|thread| thread.join().expect("no panic")).sum()
    });
    Sample { per_second: count as f64 / begin.elapsed().as_secs_f64(), cpu_us: (cpu_us() - used) / count as f64 }
}

// -------------------------------------------------------------------------------------------------
// weft

struct WeftServer {
    address: Address,
    stop: StopHandle,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl WeftServer {
    fn start(listen: Address, core: usize) -> WeftServer {
        let stop = StopHandle::new().expect("an event");
        let config = ShardConfig {
            server: SERVER,
            fs_id: FsId(1),
            fs_name: "rpc".into(),
            keys: None,
            listen: vec![listen],
            disk: DiskConfig::Memory { capacity_bytes: 0 },
            servers: Vec::new(),
            share_memory: true,
            encrypt_tcp: false,
            stop: stop.clone(),
            log: Log::to_stderr("server"),
        };
        let (tell, told) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            pin(core);
            let shard = Shard::bind(config).expect("it can listen");
            tell.send(shard.addresses()[0].clone()).expect("main waits");
            shard.run(answer).expect("it runs");
        });
        WeftServer { address: told.recv().expect("it listens"), stop, thread: Some(thread) }
    }

    fn client(&self) -> ClientRt {
        ClientRt::new(ClientConfig {
            fs_id: FsId(1),
            fs_name: "rpc".into(),
            key: None,
            servers: vec![(SERVER, self.address.clone())],
            client: random_client_id(None),
            share_memory: true,
            encrypt_tcp: false,
            incarnation: 1,
        })
    }
}

impl Drop for WeftServer {
    fn drop(&mut self) {
        self.stop.stop();
        self.thread.take().into_iter().for_each(|thread| thread.join().expect("it ends"));
    }
}

/// Answers reads with bulk data and everything else with nothing.
async fn answer(rt: weft_rt_real::ShardRt) {
    let data = Payload::Real(vec![7u8; BULK_BYTES].into());
    let mut arrivals = Vec::new();
    loop {
        rt.receive(&mut arrivals).await;
        for arrival in arrivals.drain(..) {
            if let Arrival::Request { peer, frame } = arrival {
                let bulk = if frame.header.op == Op::Read.code() { data.clone() } else { Payload::EMPTY };
                rt.reply(peer, Frame::reply(&frame.header, Ok(Bytes::new()), bulk));
            }
        }
    }
}

async fn ask(rt: &ClientRt, op: Op, bulk: &[u8]) -> Frame {
    use std::sync::atomic::{AtomicU64, Ordering};
    static SEQUENCE: AtomicU64 = AtomicU64::new(1);
    let sequence = SEQUENCE.fetch_add(1, Ordering::Relaxed);
    let header = Header::request(op, SERVER, RequestId { client: rt.client(), incarnation: 1, sequence }, 0);
    let bulk = if bulk.is_empty() { Bulk::None } else { Bulk::Slices(vec![bulk]) };
    let deadline: Nanos = rt.now() + 10 * SECOND;
    rt.request(SERVER, Outgoing { header, body: Bytes::new(), bulk }, deadline).await.expect("answered")
}

fn weft_sync(rt: &ClientRt, threads: usize, time: Duration) -> Sample {
    weft(rt, threads, time, Op::Ping, &[])
}

fn weft_write(rt: &ClientRt, threads: usize, time: Duration) -> Sample {
    weft(rt, threads, time, Op::Write, &vec![7; BULK_BYTES])
}

fn weft_read(rt: &ClientRt, threads: usize, time: Duration) -> Sample {
    weft(rt, threads, time, Op::Read, &[])
}

fn weft(rt: &ClientRt, threads: usize, time: Duration, op: Op, bulk: &[u8]) -> Sample {
    rate(threads, time, |end| {
        let mut count = 0;
        while Instant::now() < end {
            rt.block_on(ask(rt, op, bulk));
            count += 1;
        }
        count
    })
}

fn weft_window(rt: &ClientRt, threads: usize, time: Duration) -> Sample {
    rate(threads, time, |end| {
        let mut count = 0;
        while Instant::now() < end {
            rt.block_on(join_all((0..64).map(|_| ask(rt, Op::Ping, &[]))));
            count += 64;
        }
        count
    })
}

// -------------------------------------------------------------------------------------------------
// bare

/// One connection to a bare server of its own. The first byte of a message says what the server
/// answers.
struct Bare {
    socket: File,
    server: Option<std::thread::JoinHandle<()>>,
}

impl Bare {
    fn connect(name: &str, core: usize) -> Bare {
        let (ours, theirs): (OwnedFd, OwnedFd) = if name == "unix" {
            let (a, b) = std::os::unix::net::UnixStream::pair().expect("a pair");
            (a.into(), b.into())
        } else {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
            let a = std::net::TcpStream::connect(listener.local_addr().expect("bound")).expect("connected");
            let (b, _) = listener.accept().expect("accepted");
            a.set_nodelay(true).expect("an option");
            b.set_nodelay(true).expect("an option");
            (a.into(), b.into())
        };
        for fd in [&ours, &theirs] {
            for option in [libc::SO_SNDBUFFORCE, libc::SO_RCVBUFFORCE] {
                if name == "unix" {
                    let bytes: libc::c_int = 4 << 20;
                    // SAFETY: the option is a c_int and outlives the call.
                    unsafe { libc::setsockopt(fd.as_raw_fd(), libc::SOL_SOCKET, option, (&raw const bytes).cast(), 4) };
                }
            }
        }
        let server = std::thread::spawn(move || {
            pin(core);
            bare_server(File::from(theirs));
        });
        Bare { socket: File::from(ours), server: Some(server) }
    }
}

impl Drop for Bare {
    fn drop(&mut self) {
        // SAFETY: takes no memory. The server then reads the end and returns.
        unsafe { libc::shutdown(self.socket.as_raw_fd(), libc::SHUT_RDWR) };
        self.server.take().into_iter().for_each(|server| server.join().expect("it ends"));
    }
}

/// Message kinds of the bare server: a frame for a frame, a frame for a megabyte, a megabyte for a
/// frame.
const SMALL: u8 = 0;
const WRITE: u8 = 1;
const READ: u8 = 2;

fn bare_server(mut socket: File) {
    // SAFETY: takes no memory.
    let epoll = unsafe { libc::epoll_create1(0) };
    assert!(epoll >= 0, "an epoll set");
    // SAFETY: just made, known to nobody else.
    let epoll = unsafe { OwnedFd::from_raw_fd(epoll) };
    let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
    // SAFETY: `event` outlives the call.
    unsafe { libc::epoll_ctl(epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, socket.as_raw_fd(), &mut event) };
    let mut buffer = vec![0; BULK_BYTES + FRAME_BYTES];
    let mut filled = 0;
    let data = vec![7; BULK_BYTES + FRAME_BYTES];
    loop {
        // SAFETY: there is room for one event.
        unsafe { libc::epoll_wait(epoll.as_raw_fd(), &mut event, 1, -1) };
        match socket.read(&mut buffer[filled..]) {
            Ok(0) | Err(_) => return,
            Ok(read) => filled += read,
        }
        let mut at = 0;
        let mut replies = 0;
        while filled - at >= FRAME_BYTES {
            let need = if buffer[at] == WRITE { FRAME_BYTES + BULK_BYTES } else { FRAME_BYTES };
            if filled - at < need {
                break;
            }
            replies += if buffer[at] == READ { data.len() } else { FRAME_BYTES };
            at += need;
        }
        buffer.copy_within(at..filled, 0);
        filled -= at;
        if replies > 0 && socket.write_all(&data[..replies]).is_err() {
            return;
        }
    }
}

/// One thread that sends so many messages at once and then waits for all replies.
fn bare(connect: &(dyn Fn() -> Bare + Sync), time: Duration, kind: u8, messages: usize) -> Sample {
    let request = if kind == WRITE { FRAME_BYTES + BULK_BYTES } else { FRAME_BYTES };
    let reply = if kind == READ { FRAME_BYTES + BULK_BYTES } else { FRAME_BYTES };
    let bare = std::sync::Mutex::new(connect());
    rate(1, time, |end| {
        let mut bare = bare.lock().expect("not poisoned");
        let mut out = vec![0; request * messages];
        out.chunks_mut(request).for_each(|message| message[0] = kind);
        let mut replies = vec![0; reply * messages];
        let mut count = 0;
        while Instant::now() < end {
            bare.socket.write_all(&out).expect("sent");
            bare.socket.read_exact(&mut replies).expect("answered");
            count += messages as u64;
        }
        count
    })
}
