//! A delay of 5 ms at one place of a running file system: `weft explain` names that place first,
//! whichever it is. The same in virtual time is in `tests/sim/tests/delays.rs`.
//!
//! The servers are processes of their own, the client is this one with two threads, under the name
//! that the places have for it. All places:
//! `cargo test -p weft-system-tests --test delays -- --ignored --nocapture`

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_gettime};
use serde_json::Value;
use weft_base::{ClusterMap, Handle};
use weft_client::{Client, ClientOptions};
use weft_rt::{Delays, FaultPoint};
use weft_rt_real::{ClientConfig, ClientRt, set_delays};
use weft_sim_tests::delays::{CLIENT, DELAY_NS, PLACES, Place, Told, all_are_named, two_directories, work};
use weft_system_tests::{FileSystem, Need, available, fails, ok, weft};
use weft_trace::file::{FileHeader, FileWriter};
use weft_trace::{Anchor, Clock, Drain, EventTable, Mask, Mode, Tracer, TracerConfig, set_recorder};
use weft_wire::Credential;

/// Files of each thread.
const FILES: usize = 10;
const THREADS: usize = 2;

/// Delays are a matter of the whole process, and measurements want the machine.
static ALONE: Mutex<()> = Mutex::new(());

/// A command of weft that other programs do not keep from the processors, where the machine allows
/// that.
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
        let key = Credential::from(weft_system_tests::socket::read_key(&fs.state().join("server.key")));
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
                    self.rt.block_on(work(&client, dirs, FILES));
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

/// What is said about the work with one delay.
fn told(place: &Place) -> Told {
    let fs = prepare();
    start(&fs, &format!("{}:{}us@{}", place.point.name(), DELAY_NS / 1000, place.node));
    let client = Recorded::new(&fs);
    let mut delays = Delays::NONE;
    if place.node == CLIENT {
        delays.set(place.point, DELAY_NS);
    }
    set_delays(&delays);
    let wall_s = client.work().as_secs_f64();
    set_delays(&Delays::NONE);
    client.write(&fs.path("trace"));
    fs.down();
    let report = explain(&fs, &["meta", "data", CLIENT]);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
    let list = |name: &str| report[name].as_array().cloned().unwrap_or_default();
    let suspects =
        list("suspects").iter().map(|suspect| (text(&suspect["stage"]), text(&suspect["place"]), text(&suspect["evidence"]))).collect();
    let explained_s = report["seconds"].as_f64().unwrap_or(0.0) * report["covered"].as_f64().unwrap_or(0.0);
    let told = Told { suspects, covered: explained_s / wall_s, missing: list("missing").iter().map(Value::to_string).collect() };
    // On the terminal, past the capture of the test harness.
    let evidence = told.suspects.first().map_or("", |(_, _, evidence)| evidence);
    let _ = writeln!(std::io::stderr(), "{} at {}: {:.1} % explained: {evidence}", place.point.name(), place.node, told.covered * 100.0);
    told
}

fn named<'a>(places: impl IntoIterator<Item = &'a Place>) {
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    all_are_named(places, str::to_string, told);
}

#[test]
fn a_delay_in_one_of_four_places_is_named_first() {
    let sample = [FaultPoint::ClientSend, FaultPoint::NetRequest, FaultPoint::JournalWrite, FaultPoint::DataRead];
    named(sample.map(|point| PLACES.iter().find(|place| place.point == point).expect("every point has a place")));
}

#[test]
#[ignore = "a minute: cargo test -p weft-system-tests --test delays -- --ignored --nocapture"]
fn a_delay_in_any_place_is_named_first() {
    named(PLACES);
}

/// The gateway is between the kernel and the client library: with everything else as it is, its
/// time is the kernel's.
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

/// Requests of six programs to a mount with two threads, each of which holds a request for 5 ms: so
/// each request waits 10 ms until a thread takes it. The kernel does not say so; the bound must be
/// above that, and not far above. A program alone waits for nobody.
#[test]
fn the_wait_for_a_thread_of_the_mount_is_bounded() {
    if !available("the_wait_for_a_thread_of_the_mount_is_bounded", &[Need::Fuse]) {
        return;
    }
    const REQUESTS: usize = 50;
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let fs = prepare();
    let mut command = favoured();
    command.args(["up", "--state"]).arg(fs.state()).arg("--mount").arg(fs.mnt()).args(["-o", "threads=2,transport=device"]).args(SHAPE);
    // Shorter than what makes the mount replace a thread that waits.
    ok(command.env("WEFT_FAULT", "fuse:2ms@client"));
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
    // Two of six are in service; the first and the last ones wait less. What is left for waiting
    // depends on the machine: one and the same program gave more than half on one, 0.35 on another.
    assert!((0.25 * crowd_s..1.2 * crowd_s).contains(&waited_s), "{waited_s} of {crowd_s} s");
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
