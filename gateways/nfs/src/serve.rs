//! Connections and threads. One thread of a connection reads its next call, carries it out and
//! answers. Another thread reads on meanwhile if the call takes more than a moment or another one
//! has come, so calls of one client overlap, and none is handed from thread to thread. A client
//! that makes one call at a time wakes one thread for it.
//!
//! Bounds: connections, threads, the bytes of a record, the time in which a record must be
//! complete, in which an answer must be taken, and for which a connection may say nothing.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io::{self, BufReader};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use rustix::io::ioctl_fionread;
use weft_base::{MILLISECOND, SECOND};
use weft_rt::{Either, ThreadRuntime, race};

use crate::gateway::{Nfs, Peer, lock};
use crate::locks::callback;
use crate::portmap::PORTMAPPER_PORT;
use crate::records;
use crate::rpc::RpcAnswer;
use crate::timed::Timed;

/// Most connections; for one more another one is closed.
const CONNECTIONS_MAX: usize = 256;
/// Most connections that are closed, and of which a call is still carried out.
const LEAVING_MAX: usize = 256;
/// Most threads of one connection.
const THREADS_MAX: u32 = 16;
/// Most threads beside the first of each connection.
const MORE_THREADS_MAX: usize = 64;
/// Nobody reads on while a call has been carried out for less than that, in nanoseconds, and no
/// other has come: to wake a thread for it costs as much as many calls.
const SOON_NS: u64 = MILLISECOND / 5;
/// A call that has been carried out for so long, in nanoseconds, waits for a server: others of its
/// connection and its thread are not counted against it.
const LONG_NS: u64 = SECOND;
/// Most such calls that do not count.
const LONG_MAX: usize = 256;
/// A connection that says nothing for so long is closed; clients open another one.
const IDLE_MAX: Duration = Duration::from_secs(15 * 60);
/// A record that has begun must be there after so long.
const RECORD_MAX: Duration = Duration::from_secs(30);
/// An answer must be taken within so long.
const ANSWER_MAX: Duration = Duration::from_secs(30);
/// How often who waits for a connection looks at the clock.
const TICK: Duration = Duration::from_secs(1);
/// Connections that are not admitted are told of once in so long, in milliseconds.
const QUIET_MS: u64 = 1000;
/// Bytes that are read at once.
const BUFFER_BYTES: usize = 64 << 10;
/// At the end servers get so many nanoseconds to hear what is closed.
const CLOSE_PATIENCE: u64 = 10 * SECOND;

/// The turn to read of a connection.
type Reading<'a> = MutexGuard<'a, BufReader<Timed>>;

/// A gateway that serves.
#[derive(Debug)]
pub struct Serving<R: ThreadRuntime> {
    shared: Arc<Shared<R>>,
    address: SocketAddr,
}

#[derive(Debug)]
struct Shared<R: ThreadRuntime> {
    nfs: Nfs<R>,
    ends: AtomicBool,
    begin: Instant,
    connections: Mutex<Vec<Arc<Connection>>>,
    more_threads: AtomicUsize,
    /// Calls that take long.
    long: AtomicUsize,
    /// No line tells of a connection that is not admitted before then, in milliseconds since the
    /// begin.
    quiet_until_ms: AtomicU64,
}

#[derive(Debug)]
struct Connection {
    stream: TcpStream,
    client: Peer,
    reading: Mutex<BufReader<Timed>>,
    writing: Mutex<()>,
    /// Threads that serve it.
    threads: AtomicU32,
    /// Of these, those that wait to read.
    waiting: AtomicU32,
    /// Calls that are carried out.
    running: AtomicU32,
    /// Of these, those that take long and do not count.
    long: AtomicU32,
    /// When it said something last, in milliseconds since the begin.
    last_ms: AtomicU64,
    is_over: AtomicBool,
}

impl<R: ThreadRuntime> Serving<R> {
    /// Begins to serve on a listener that the caller has bound.
    ///
    /// # Errors
    /// If there is no thread to be had.
    pub fn begin(nfs: Nfs<R>, listener: TcpListener) -> io::Result<Serving<R>> {
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            nfs,
            ends: AtomicBool::new(false),
            begin: Instant::now(),
            connections: Mutex::default(),
            more_threads: AtomicUsize::new(0),
            long: AtomicUsize::new(0),
            quiet_until_ms: AtomicU64::new(0),
        });
        shared.beside("weft-closer", async |shared| shared.nfs.posix.close_in_background().await)?;
        shared.beside("weft-keeper", async |shared| shared.nfs.posix.keep_alive().await)?;
        shared.beside("weft-mover", async |shared| shared.nfs.posix.move_in_background().await)?;
        shared.beside("weft-idle", async |shared| shared.nfs.tend(|| !shared.ends()).await)?;
        let hearing = shared.clone();
        let hear = move |server| hearing.beside("weft-notices", async move |shared| shared.nfs.posix.hear_notices(server).await);
        shared.beside("weft-notices", async |shared| shared.nfs.posix.hear_all(hear).await)?;
        let accepting = shared.clone();
        thread::Builder::new().name("weft-nfs".into()).spawn(move || accept(&accepting, &listener))?;
        Ok(Serving { shared, address })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Takes no more calls, lets those that are carried out be answered for a moment, and closes
    /// everything that is open.
    pub fn end(self) {
        let Serving { shared, address } = self;
        shared.ends.store(true, Ordering::Relaxed);
        // Wakes whoever accepts.
        drop(TcpStream::connect_timeout(&reachable(address), TICK));
        let mut patience = Instant::now() + TICK;
        while lock(&shared.connections).iter().any(|connection| connection.running.load(Ordering::Relaxed) > 0) && Instant::now() < patience
        {
            thread::sleep(Duration::from_millis(5));
        }
        shared.nfs.end_all_waits();
        patience = Instant::now() + TICK;
        while !shared.nfs.has_no_waits() && Instant::now() < patience {
            thread::sleep(Duration::from_millis(5));
        }
        for connection in lock(&shared.connections).drain(..) {
            connection.close();
        }
        shared.nfs.posix.rt().block_on(shared.nfs.posix.end(CLOSE_PATIENCE));
    }
}

/// An address at which a listener on this one can be reached from here.
fn reachable(address: SocketAddr) -> SocketAddr {
    match address.ip() {
        ip if !ip.is_unspecified() => address,
        IpAddr::V4(_) => SocketAddr::new(std::net::Ipv4Addr::LOCALHOST.into(), address.port()),
        IpAddr::V6(_) => SocketAddr::new(std::net::Ipv6Addr::LOCALHOST.into(), address.port()),
    }
}

impl<R: ThreadRuntime> Shared<R> {
    fn ends(&self) -> bool {
        self.ends.load(Ordering::Relaxed)
    }

    fn now_ms(&self) -> u64 {
        self.begin.elapsed().as_millis() as u64
    }

    /// Drives a flow beside the calls, on a thread of its own.
    fn beside(self: &Arc<Self>, name: &str, flow: impl AsyncFnOnce(&Shared<R>) + Send + 'static) -> io::Result<()> {
        let shared = self.clone();
        let drive = move || shared.nfs.posix.rt().block_on(flow(&shared));
        thread::Builder::new().name(name.into()).spawn(drive).map(drop)
    }

    fn warn(&self, line: &str) {
        weft_posix::Gateway::warn(self.nfs.posix.gateway(), line);
    }
}

fn accept<R: ThreadRuntime>(shared: &Arc<Shared<R>>, listener: &TcpListener) {
    loop {
        let accepted = listener.accept();
        if shared.ends() {
            return;
        }
        let begun = accepted.and_then(|(stream, address)| begin(shared, stream, address));
        if let Err(error) = begun {
            shared.warn(&format!("a connection could not be taken: {error}"));
            // Out of descriptors, perhaps: it will not be better at once.
            thread::sleep(Duration::from_millis(50));
        }
    }
}

fn begin<R: ThreadRuntime>(shared: &Arc<Shared<R>>, stream: TcpStream, address: SocketAddr) -> io::Result<()> {
    if !shared.nfs.exports.iter().any(|exported| exported.export.admits_address(address.ip())) {
        let now = shared.now_ms();
        if now >= shared.quiet_until_ms.load(Ordering::Relaxed) {
            shared.quiet_until_ms.store(now + QUIET_MS, Ordering::Relaxed);
            shared.warn(&format!("no export is for {}, which has connected", address.ip().to_canonical()));
        }
        return Ok(());
    }
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(TICK))?;
    stream.set_write_timeout(Some(TICK))?;
    let timed = Timed::new(stream.try_clone()?, IDLE_MAX);
    let client = Peer { address: address.ip(), port: address.port(), at: stream.local_addr()?.ip() };
    let connection = Arc::new(Connection {
        stream,
        client,
        reading: Mutex::new(BufReader::with_capacity(BUFFER_BYTES, timed)),
        writing: Mutex::default(),
        threads: AtomicU32::new(0),
        waiting: AtomicU32::new(0),
        running: AtomicU32::new(0),
        long: AtomicU32::new(0),
        last_ms: AtomicU64::new(shared.now_ms()),
        is_over: AtomicBool::new(false),
    });
    {
        let mut connections = lock(&shared.connections);
        if connections.len() >= CONNECTIONS_MAX + LEAVING_MAX {
            return Ok(());
        }
        let open: Vec<&Arc<Connection>> = connections.iter().filter(|other| !other.is_over.load(Ordering::Relaxed)).collect();
        if open.len() >= CONNECTIONS_MAX {
            // Its last thread takes it out.
            open[in_the_way(&open.iter().map(|other| other.manners()).collect::<Vec<_>>())].close();
        }
        connections.push(connection.clone());
    }
    if let Err(error) = begin_thread(shared, &connection) {
        connection.close();
        lock(&shared.connections).retain(|other| !Arc::ptr_eq(other, &connection));
        return Err(error);
    }
    Ok(())
}

/// How a connection keeps others out: the address of its client, whether a call is carried out, and
/// when it said something last.
type Manners = (IpAddr, bool, u64);

/// Which connection makes room for another one: of the address that has the most, one for which
/// nothing is carried out, and of these the one that has been silent for longest.
fn in_the_way(connections: &[Manners]) -> usize {
    let mut counts = BTreeMap::new();
    connections.iter().for_each(|(address, ..)| *counts.entry(*address).or_insert(0) += 1);
    let ranks = connections.iter().map(|(address, is_running, last_ms)| (Reverse(counts[address]), *is_running, *last_ms));
    ranks.enumerate().min_by_key(|(_, rank)| *rank).map_or(0, |(index, _)| index)
}

/// One more thread serves the connection.
fn begin_thread<R: ThreadRuntime>(shared: &Arc<Shared<R>>, connection: &Arc<Connection>) -> io::Result<()> {
    let (shared, connection) = (shared.clone(), connection.clone());
    connection.threads.fetch_add(1, Ordering::Relaxed);
    let counted = connection.clone();
    let serve = move || {
        serve(&shared, &connection);
        let is_last = connection.threads.fetch_sub(1, Ordering::AcqRel) == 1;
        match is_last {
            true => lock(&shared.connections).retain(|other| !Arc::ptr_eq(other, &connection)),
            false => drop(shared.more_threads.fetch_sub(1, Ordering::Relaxed)),
        }
    };
    let begun = thread::Builder::new().name("weft-nfs-call".into()).spawn(serve).map(drop);
    if begun.is_err() {
        counted.threads.fetch_sub(1, Ordering::AcqRel);
    }
    begun
}

fn serve<R: ThreadRuntime>(shared: &Arc<Shared<R>>, connection: &Arc<Connection>) {
    let mut kept = None;
    loop {
        let mut reading = kept.take().unwrap_or_else(|| connection.begin_to_read());
        let Some(record) = connection.next(shared, &mut reading) else { return };
        connection.running.fetch_add(1, Ordering::Relaxed);
        let nfs = &shared.nfs;
        let (answer, is_replaced);
        (answer, is_replaced, kept) = carry_out(shared, connection, record.into(), reading);
        if let Some(answer) = answer {
            // It may wait until its client takes it, and the client until what it says is read.
            if kept.is_some() && answer.bytes() > BUFFER_BYTES {
                kept = None;
                read_on(shared, connection);
            }
            if connection.write(&answer).is_err() {
                connection.close();
            }
        }
        connection.last_ms.store(shared.now_ms(), Ordering::Relaxed);
        connection.running.fetch_sub(1, Ordering::Relaxed);
        nfs.begun_waits().into_iter().for_each(|number| begin_wait(shared, number));
        if is_replaced && connection.is_read() {
            return;
        }
    }
}

/// Another thread reads the next call, if there is none that will. Without one, the next call waits
/// for one of those that are carried out.
fn read_on<R: ThreadRuntime>(shared: &Arc<Shared<R>>, connection: &Arc<Connection>) {
    let threads_max = THREADS_MAX + connection.long.load(Ordering::Relaxed);
    if connection.is_read() || connection.threads.load(Ordering::Relaxed) >= threads_max {
        return;
    }
    let more_max = MORE_THREADS_MAX + shared.long.load(Ordering::Relaxed).min(LONG_MAX);
    let is_one_more = shared.more_threads.fetch_add(1, Ordering::Relaxed) < more_max;
    if !is_one_more || begin_thread(shared, connection).is_err() {
        shared.more_threads.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The answer to a record; whether it took so long that another thread has the place of this one,
/// or else calls that wait for one server would keep those from being read that do not need it; and
/// the turn to read, if it came so soon that nobody else has it.
fn carry_out<'a, R: ThreadRuntime>(
    shared: &Arc<Shared<R>>,
    connection: &'a Arc<Connection>,
    record: Bytes,
    reading: Reading<'a>,
) -> (Option<RpcAnswer>, bool, Option<Reading<'a>>) {
    let rt = shared.nfs.posix.rt();
    let begun = rt.now();
    let mut answer = pin!(shared.nfs.answer(connection.client, record));
    if !connection.has_more(&reading)
        && let Either::First(answer) = rt.block_on(race(answer.as_mut(), rt.sleep_until(begun + SOON_NS)))
    {
        return (answer, false, Some(reading));
    }
    drop(reading);
    read_on(shared, connection);
    if let Either::First(answer) = rt.block_on(race(answer.as_mut(), rt.sleep_until(begun + LONG_NS))) {
        return (answer, false, None);
    }
    let counts = shared.long.fetch_add(1, Ordering::Relaxed) >= LONG_MAX;
    if !counts {
        connection.long.fetch_add(1, Ordering::Relaxed);
        read_on(shared, connection);
    }
    let answer = rt.block_on(answer);
    if !counts {
        connection.long.fetch_sub(1, Ordering::Relaxed);
    }
    shared.long.fetch_sub(1, Ordering::Relaxed);
    (answer, !counts, None)
}

/// A client waits for a lock, and was told so: another thread does the waiting.
fn begin_wait<R: ThreadRuntime>(shared: &Arc<Shared<R>>, number: u64) {
    let tell = async |grant: &_| callback::tell(grant, PORTMAPPER_PORT);
    if let Err(error) = shared.beside("weft-nfs-lock", async move |shared| shared.nfs.wait_for_lock(number, tell).await) {
        shared.warn(&format!("no thread for a client that waits for a lock: {error}"));
        shared.nfs.posix.rt().block_on(shared.nfs.give_wait_up(number));
    }
}

impl Connection {
    /// Nothing more is read or written.
    fn close(&self) {
        self.is_over.store(true, Ordering::Relaxed);
        // It may be closed already.
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    /// True if a thread reads or is about to.
    fn is_read(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0 || matches!(self.reading.try_lock(), Err(TryLockError::WouldBlock))
    }

    fn manners(&self) -> Manners {
        let is_running = self.running.load(Ordering::Relaxed) > 0;
        (self.client.address.to_canonical(), is_running, self.last_ms.load(Ordering::Relaxed))
    }

    /// The turn to read.
    fn begin_to_read(&self) -> Reading<'_> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let reading = lock(&self.reading);
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        reading
    }

    /// True if another call has come, or its first bytes.
    fn has_more(&self, reading: &Reading<'_>) -> bool {
        !reading.buffer().is_empty() || ioctl_fionread(&self.stream).is_ok_and(|bytes| bytes > 0)
    }

    /// The next record; `None` at the end.
    fn next<R: ThreadRuntime>(&self, shared: &Shared<R>, reading: &mut Reading<'_>) -> Option<Vec<u8>> {
        if self.is_over.load(Ordering::Relaxed) || shared.ends() {
            return None;
        }
        reading.get_mut().give(IDLE_MAX);
        let record = records::read(&mut **reading, |begun| {
            begun.get_mut().give(RECORD_MAX);
            self.last_ms.store(shared.now_ms(), Ordering::Relaxed);
        });
        match record {
            Ok(Some(record)) => Some(record),
            // Whoever speaks something else, or nothing for too long, is not answered.
            Ok(None) | Err(_) => {
                self.close();
                None
            }
        }
    }

    fn write(&self, answer: &RpcAnswer) -> io::Result<()> {
        let _writes = lock(&self.writing);
        records::write(&mut Timed::new(&self.stream, ANSWER_MAX), answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_made_by_who_takes_the_most_of_it() {
        let [one, two, three] = [1, 2, 3].map(|last| IpAddr::from([10, 0, 0, last]));
        let crowd = [(one, false, 1), (two, false, 9), (two, true, 2), (two, false, 7), (three, false, 3), (three, false, 4)];
        assert_eq!(in_the_way(&crowd), 3, "the most silent one of the address with three, for which nothing is done");
        assert_eq!(in_the_way(&crowd[..3]), 1, "what is carried out is answered if it can be");
        assert_eq!(in_the_way(&[(two, true, 8), (two, true, 2), (one, false, 1)]), 1, "and does not keep others out");
        assert_eq!(in_the_way(&[(one, false, 5), (two, false, 4)]), 1);
    }
}
