//! A delay of 5 ms at one place of a running file system: `weft explain` names that place first, whichever it is. The table of places is that
//! of `docs/trace.md`; the same in virtual time is in `tests/sim/tests/delays.rs`.
//!
//! The servers are processes of their own, the client is this one with two threads. All places:
//! `cargo test -p weft-system-tests --test delays -- --ignored --nocapture`

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_gettime};
use serde_json::Value;
use weft_base::{ClusterMap, Credentials, Handle, ROOT_HANDLE};
use weft_client::{Client, ClientOptions, CreateOptions, RenameFlags, SetAttr};
use weft_rt::{Bulk, Delays, FaultPoint};
use weft_rt_real::{ClientConfig, ClientRt, set_delays};
use weft_system_tests::{FileSystem, Need, available, fails, ok, weft};
use weft_trace::file::{FileHeader, FileWriter};
use weft_trace::{Anchor, Clock, Drain, EventTable, Mask, Mode, Tracer, TracerConfig, set_recorder};
use weft_wire::ClusterKey;

/// Files of each thread.
const FILES: usize = 10;
/// Four stripes of 4 KiB.
const BYTES: usize = 16 << 10;
const THREADS: usize = 2;
const DELAY_NS: u64 = 5_000_000;
/// This process as a node of the trace, and in settings of faults.
const CLIENT: &str = "client";

/// Delays are a matter of the whole process, and measurements want the machine.
static ALONE: Mutex<()> = Mutex::new(());

/// Where a flow is held up, in which process, and what must be named: stage, place, and words of the evidence.
#[derive(Clone, Copy)]
struct Row(FaultPoint, &'static str, (&'static str, &'static str), &'static str);

#[rustfmt::skip]
const PLACES: &[Row] = &[
    Row(FaultPoint::ClientCode,   CLIENT,  ("client", CLIENT), ""),
    Row(FaultPoint::ClientLock,   CLIENT,  ("lock", CLIENT), ""),
    Row(FaultPoint::ClientSend,   CLIENT,  ("send_queue", CLIENT), ""),
    Row(FaultPoint::ClientRetry,  CLIENT,  ("retry", CLIENT), ""),
    Row(FaultPoint::NetReply,     CLIENT,  ("network", CLIENT), ""),
    Row(FaultPoint::NetReply,     "meta0", ("network", "meta0"), ""),
    Row(FaultPoint::NetRequest,   "meta0", ("network", "meta0"), ""),
    Row(FaultPoint::NetRequest,   "meta1", ("network", "meta1"), ""),
    Row(FaultPoint::NetRequest,   "data0", ("network", "data0"), ""),
    Row(FaultPoint::NetRequest,   "data2", ("network", "data2"), ""),
    Row(FaultPoint::ServerQueue,  "meta0", ("server_queue", "meta0"), ""),
    Row(FaultPoint::ServerQueue,  "data1", ("server_queue", "data1"), ""),
    Row(FaultPoint::ServerCpu,    "meta1", ("cpu", "meta1"), ""),
    Row(FaultPoint::ServerCpu,    "data2", ("cpu", "data2"), ""),
    Row(FaultPoint::TxLock,       "meta0", ("lock", "meta0"), ""),
    Row(FaultPoint::TxPrepare,    "meta1", ("cpu", "meta1"), "meta.prepare"),
    Row(FaultPoint::JournalWrite, "meta0", ("journal", "meta0"), "while the journal was written"),
    Row(FaultPoint::JournalFlush, "meta1", ("journal", "meta1"), "while the journal was flushed"),
    Row(FaultPoint::JournalWrite, "data1", ("journal", "data1"), "while the journal was written"),
    Row(FaultPoint::DataRead,     "data0", ("disk", "data0"), "disk.read"),
    Row(FaultPoint::DataWrite,    "data1", ("disk", "data1"), "disk.write"),
    Row(FaultPoint::DataFlush,    "data2", ("journal", "data2"), "while data was flushed"),
    Row(FaultPoint::DataTruncate, "data1", ("cpu", "data1"), "data.truncate"),
];

/// A command of weft that other programs do not keep from the processors, where the machine allows that.
fn favoured() -> Command {
    let program = weft();
    let mut command = match can_favour() {
        true => Command::new("chrt"),
        false => return program,
    };
    command.args(["-f", "10"]).arg(program.get_program()).env_remove("WEFT_KEY_FILE");
    command
}

fn can_favour() -> bool {
    Command::new("chrt").args(["-f", "10", "true"]).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}

/// The same for the calling thread.
fn favour_me() {
    let me = std::fs::read_link("/proc/thread-self").expect("proc is mounted");
    let number = me.file_name().expect("it ends with the number of the thread").to_owned();
    // Where it is not allowed, the machine had better be idle.
    let _ = Command::new("chrt").args(["-f", "-p", "10"]).arg(number).stderr(Stdio::null()).status();
}

/// A file system that needs no disk: a flush of a real one may take longer than the delay.
fn prepare() -> FileSystem {
    match Path::new("/dev/shm").is_dir() {
        true => FileSystem::prepare_in(Path::new("/dev/shm")),
        false => FileSystem::prepare(),
    }
}

const SHAPE: [&str; 9] = ["--meta", "2", "--data", "3", "--durability", "sync", "--stripe-size", "4KiB", "--allow-faults"];

fn start(fs: &FileSystem, fault: &str) {
    let mut command = favoured();
    command.args(["up", "--state"]).arg(fs.state()).args(SHAPE);
    ok(command.env("WEFT_TRACE", fs.path("trace")).env("WEFT_FAULT", fault));
}

/// What `weft explain` says about the trace files whose names begin so.
fn explain(fs: &FileSystem, beginnings: &[&str]) -> Value {
    let entries = std::fs::read_dir(fs.path("trace")).expect("servers wrote traces");
    let files: Vec<PathBuf> = entries.map(|entry| entry.expect("it can be read").path()).collect();
    let chosen = files
        .iter()
        .filter(|file| beginnings.iter().any(|name| file.file_name().is_some_and(|file| file.to_string_lossy().starts_with(name))));
    let text = ok(weft().args(["explain", "--json", "--suspects", "4"]).args(chosen));
    serde_json::from_str(&text).expect("--json prints JSON")
}

/// This process as a client.
struct Recorded {
    tracer: Tracer,
    anchor: Anchor,
    map: ClusterMap,
    rt: ClientRt,
    options: ClientOptions,
}

impl Recorded {
    fn new(fs: &FileSystem) -> Recorded {
        let key: ClusterKey = weft_system_tests::socket::read_key(&fs.state().join("key"));
        let address = format!("unix:{}", fs.state().join("run/meta0.sock").display()).parse().expect("an address");
        let map = ClientRt::fetch_map(&address, Some(&key), "").expect("the server answers");
        let settings = ClientConfig::from_map(&map, Some(key)).expect("servers have addresses");
        let options = ClientOptions::new(settings.client, settings.incarnation);
        let tracer = Tracer::new(TracerConfig::new(Mode::Bench, Clock::Function(monotonic_ns)));
        // The same clock: two readings would differ by whatever comes between.
        let now = monotonic_ns();
        let anchor = Anchor { mono_ns: now, ticks: now, wall_ns: 0 };
        Recorded { tracer, anchor, map, rt: ClientRt::new(settings), options }
    }

    /// Runs the work on two threads; gives the time of both together.
    fn work(&self) -> Duration {
        let client = Arc::new(Client::new(self.rt.clone(), self.map.clone(), self.options.clone()));
        let dirs: Vec<[Handle; 2]> = (0..THREADS).map(|number| self.rt.block_on(two_directories(&client, number))).collect();
        self.tracer.set_mask(Mask::ALL);
        let times = std::thread::scope(|scope| {
            let threads = dirs.into_iter().map(|dirs| {
                let client = client.clone();
                scope.spawn(move || {
                    favour_me();
                    set_recorder(self.tracer.recorder().map(Rc::new));
                    let begun = Instant::now();
                    self.rt.block_on(work(&client, dirs));
                    let time = begun.elapsed();
                    set_recorder(None);
                    time
                })
            });
            let threads: Vec<_> = threads.collect();
            threads.into_iter().map(|thread| thread.join().expect("the work is done")).sum()
        });
        self.tracer.set_mask(Mask::NONE);
        times
    }

    fn write(&self, folder: &Path) {
        let header = FileHeader {
            node: CLIENT.into(),
            server: None,
            process: std::process::id(),
            clock: "monotonic".into(),
            clock_domain: std::fs::read_to_string("/proc/sys/kernel/random/boot_id").expect("Linux has one").trim().into(),
            anchor: self.anchor,
            events: EventTable::builtin(),
            machine: String::new(),
        };
        let (mut writer, mut bytes) = FileWriter::begin(&header);
        Drain::new(&self.tracer).fetch().iter().for_each(|batch| writer.batch(batch, &mut bytes));
        writer.end(&mut bytes);
        std::fs::write(folder.join("client.wtrace"), bytes).expect("there is room");
    }
}

fn monotonic_ns() -> u64 {
    let time = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("Linux has this clock");
    time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64
}

/// A directory on each metadata server.
async fn two_directories(client: &Client<ClientRt>, number: usize) -> [Handle; 2] {
    let mut found = [None; 2];
    for name in 0.. {
        let name = format!("d{number}.{name}");
        let dir = client.mkdir(&Credentials::ROOT, ROOT_HANDLE, name.as_bytes(), 0o755).await.expect("a new directory").handle;
        found[usize::from(dir.server().0)] = Some(dir);
        if let [Some(first), Some(second)] = found {
            assert!(client.ping_all().await.iter().all(|(_, answer)| answer.is_ok()));
            return [first, second];
        }
    }
    unreachable!("a server whom no directory falls to")
}

/// Everything that programs do: files are made in both directories in turn, written, read, cut, moved to the other one and removed.
async fn work(client: &Client<ClientRt>, dirs: [Handle; 2]) {
    let (who, data) = (&Credentials::ROOT, vec![7; BYTES]);
    for file in 0..FILES {
        let (from, to) = (dirs[file % 2], dirs[(file + 1) % 2]);
        let name = format!("f{file}");
        let name = name.as_bytes();
        let (attr, open, _) = client.create(who, from, name, &CreateOptions::default()).await.expect("a new file");
        client.write(&open, 0, Bulk::Slices(vec![&data])).await.expect("there is room");
        client.fsync(&open, false).await.expect("disks work");
        let read = client.read(&open, 0, BYTES as u64).await.expect("it was written");
        assert_eq!(read.iter().map(|piece| piece.len()).sum::<u64>(), BYTES as u64);
        client.setattr(who, attr.handle, &SetAttr { size: Some(100), ..SetAttr::default() }).await.expect("it can be cut");
        client.close(open).await.expect("it is open");
        client.lookup(who, from, name).await.expect("it is there");
        client.rename(who, from, name, to, name, RenameFlags::default()).await.expect("it can be moved");
        client.unlink(who, to, name).await.expect("it is there");
    }
}

/// Runs the work with one delay; says what is wrong with the explanation, if anything is.
fn problem(row: Row) -> Option<String> {
    let Row(point, node, expected, words) = row;
    let fs = prepare();
    start(&fs, &format!("{}:{}us@{node}", point.name(), DELAY_NS / 1000));
    let client = Recorded::new(&fs);
    let mut delays = Delays::NONE;
    if node == CLIENT {
        delays.set(point, DELAY_NS);
    }
    set_delays(&delays);
    let wall_s = client.work().as_secs_f64();
    set_delays(&Delays::NONE);
    client.write(&fs.path("trace"));
    fs.down();
    let report = explain(&fs, &["meta", "data", CLIENT]);
    let first = &report["suspects"][0];
    let evidence = first["evidence"].as_str().unwrap_or_default();
    let explained_s = report["seconds"].as_f64().unwrap_or(0.0) * report["covered"].as_f64().unwrap_or(0.0);
    // On the terminal, past the capture of the test harness.
    let _ = writeln!(std::io::stderr(), "{} at {node}: {:.1} % explained: {evidence}", point.name(), explained_s / wall_s * 100.0);
    // Where a disk has to seek to is not the point.
    let stage = first["stage"].as_str().map(|stage| if stage.starts_with("disk") { "disk" } else { stage });
    let is_right = (stage, first["place"].as_str()) == (Some(expected.0), Some(expected.1));
    if is_right && evidence.contains(words) && report["missing"] == Value::Array(Vec::new()) && explained_s >= 0.95 * wall_s {
        return None;
    }
    let list: String =
        report["suspects"].as_array().into_iter().flatten().map(|suspect| format!("\n    {}", suspect["evidence"])).collect();
    Some(format!("{} at {node}: {explained_s:.3} of {wall_s:.3} s explained, missing {}{list}\n", point.name(), report["missing"]))
}

fn all_are_named(rows: impl IntoIterator<Item = Row>) {
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let wrong: Vec<String> = rows.into_iter().filter_map(problem).collect();
    assert!(wrong.is_empty(), "{} are wrong:\n{}", wrong.len(), wrong.concat());
}

#[test]
fn a_delay_in_one_of_four_places_is_named_first() {
    let sample = [FaultPoint::ClientSend, FaultPoint::NetRequest, FaultPoint::JournalWrite, FaultPoint::DataRead];
    let first = |point| *PLACES.iter().find(|row| row.0 == point).expect("every point has a row");
    all_are_named(sample.map(first));
}

#[test]
#[ignore = "a minute: cargo test -p weft-system-tests --test delays -- --ignored --nocapture"]
fn a_delay_in_any_place_is_named_first() {
    all_are_named(PLACES.iter().copied());
}

/// The gateway is between the kernel and the client library: with everything else as it is, its time is the kernel's.
#[test]
fn a_delay_in_the_gateway_is_named_first() {
    if !available("a_delay_in_the_gateway_is_named_first", &[Need::Fuse]) {
        return;
    }
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let fs = prepare();
    let mut command = favoured();
    command.args(["up", "--state"]).arg(fs.state()).arg("--mount").arg(fs.mnt()).args(SHAPE);
    ok(command.env("WEFT_TRACE", fs.path("trace")).env("WEFT_FAULT", "fuse:5ms@client"));
    for file in 0..10 {
        let path = fs.mnt().join(format!("f{file}"));
        std::fs::write(&path, b"text").expect("there is room");
        assert_eq!(std::fs::read(&path).expect("it is there"), b"text");
        std::fs::remove_file(&path).expect("it is there");
    }
    fs.down();
    let report = explain(&fs, &["meta", "data", "mount"]);
    let first = &report["suspects"][0];
    assert_eq!((first["stage"].as_str(), first["place"].as_str()), (Some("kernel"), Some("mount-mnt")), "{:#}", report["suspects"]);
}

/// Requests of six programs to a mount with two threads, each of which holds a request for 5 ms: so each request waits 10 ms until a thread takes
/// it. The kernel does not say so; the bound must be above that, and not far above. A program alone waits for nobody.
#[test]
fn the_wait_for_a_thread_of_the_mount_is_bounded() {
    if !available("the_wait_for_a_thread_of_the_mount_is_bounded", &[Need::Fuse]) {
        return;
    }
    const REQUESTS: usize = 20;
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let fs = prepare();
    let mut command = favoured();
    command.args(["up", "--state"]).arg(fs.state()).arg("--mount").arg(fs.mnt()).args(["-o", "threads=2"]).args(SHAPE);
    ok(command.env("WEFT_FAULT", "fuse:5ms@client"));
    // Seconds that the programs take together, and that all requests have waited at most.
    let measure = |programs: usize| {
        let dirs: Vec<PathBuf> = (0..programs).map(|number| fs.mnt().join(format!("of{programs}.{number}"))).collect();
        dirs.iter().for_each(|dir| std::fs::create_dir(dir).expect("a new directory"));
        let folder = fs.path(&format!("trace{programs}"));
        ok(weft().args(["trace", "on"]).arg(fs.state()).args(["--mask", "fuse.*,load.mount", "--nodes", "mount*", "--dir"]).arg(&folder));
        let begun = Instant::now();
        std::thread::scope(|scope| {
            let work = |dir: PathBuf| move || (0..REQUESTS).for_each(|name| drop(std::fs::metadata(dir.join(format!("no{name}")))));
            dirs.into_iter().for_each(|dir| drop(scope.spawn(work(dir))));
        });
        let seconds = begun.elapsed().as_secs_f64() * programs as f64;
        ok(weft().args(["trace", "off"]).arg(fs.state()));
        let report: Value = serde_json::from_str(&ok(weft().args(["explain", "--json"]).arg(&folder))).expect("JSON");
        (seconds, report["nodes"][0]["thread_wait_at_most_s"].as_f64().unwrap_or_else(|| panic!("{report}")))
    };
    let (alone_s, waited_alone_s) = measure(1);
    let (crowd_s, waited_s) = measure(6);
    let _ = writeln!(std::io::stderr(), "alone {waited_alone_s:.3} of {alone_s:.3} s at most, six {waited_s:.3} of {crowd_s:.3} s");
    assert!(waited_alone_s < 0.1 * alone_s, "{waited_alone_s} of {alone_s} s");
    // Two of six are in service; the first and the last ones wait less.
    assert!((0.5 * crowd_s..1.2 * crowd_s).contains(&waited_s), "{waited_s} of {crowd_s} s");
    fs.down();
}

/// A variable that somebody has left in an environment slows nothing down that matters.
#[test]
fn faults_must_be_allowed() {
    let fs = FileSystem::up(&["--meta", "1", "--data", "1", "--engine", "memory"]);
    let words = fails(weft().arg("ls").arg(fs.at("/")).env("WEFT_FAULT", "client-send:5ms"));
    assert!(words.contains("allow_faults = true") && words.contains("weft.toml"), "{words}");
    ok(weft().arg("ls").arg(fs.at("/")).env("WEFT_FAULT", ""));
    let config = fs.state().join("weft.toml");
    let text = std::fs::read_to_string(&config).expect("weft up wrote it");
    std::fs::write(&config, text.replacen("[fs]\n", "[fs]\nallow_faults = true\n", 1)).expect("there is room");
    let words = fails(weft().arg("ls").arg(fs.at("/")).env("WEFT_FAULT", "client-sand:5ms"));
    assert!(words.contains("client-send") && words.contains("net-request"), "all points are named: {words}");
    ok(weft().arg("ls").arg(fs.at("/")).env("WEFT_FAULT", "client-send:5ms,journal-write:5ms@meta0"));
}
