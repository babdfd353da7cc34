//! A viewer of its own for each test, of synthetic traces and others.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// A viewer of a synthetic trace; stopped at the end of the test, however it ends.
pub struct Viewer {
    process: Child,
    pub address: String,
    _dir: TempDir,
}

impl Viewer {
    pub fn new(spans: u64, damage: impl Fn(&Path), options: &[&str]) -> Viewer {
        let dir = tempfile::tempdir().unwrap();
        make_sample(spans, 4, dir.path());
        damage(dir.path());
        let path = dir.path().to_path_buf();
        Viewer::of(dir, &[path], options)
    }

    /// A viewer of several runs, all in one directory that goes with it.
    pub fn of(dir: TempDir, paths: &[PathBuf], options: &[&str]) -> Viewer {
        // A test that looks at the door has options; the others come in without a token.
        let door: &[&str] = if options.is_empty() { &["--no-token"] } else { &[] };
        let mut process = weft().arg("view").args(paths).arg("--no-open").args(door).args(options).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().trim_start_matches("http://").to_string();
        let viewer = Viewer { process, address, _dir: dir };
        let deadline = Instant::now() + Duration::from_secs(60);
        while !viewer.get("/api/state").1.contains("\"ready\"") && options.is_empty() {
            assert!(Instant::now() < deadline, "the trace is not loaded");
            std::thread::sleep(Duration::from_millis(20));
        }
        viewer
    }

    pub fn host(&self) -> &str {
        self.address.split('/').next().unwrap()
    }

    /// Status and text of an answer to these bytes.
    pub fn send(&self, request: &str) -> (u16, String) {
        let mut socket = TcpStream::connect(self.host()).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        socket.write_all(request.as_bytes()).unwrap();
        let mut answer = Vec::new();
        let _ = socket.read_to_end(&mut answer);
        let text = String::from_utf8_lossy(&answer).into_owned();
        (text.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0), text)
    }

    pub fn get(&self, target: &str) -> (u16, String) {
        self.send(&format!("GET {target} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", self.host()))
    }
}

impl Drop for Viewer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

pub fn make_sample(spans: u64, data_servers: u16, dir: &Path) {
    crate::sample::write_spans(spans, data_servers, dir);
}

pub fn weft() -> Command {
    Command::new(env!("CARGO_BIN_EXE_weft"))
}

/// The trace of a client.
pub fn write_trace(
    path: &Path,
    node: &str,
    events: weft_trace::event::EventTable,
    records: impl IntoIterator<Item = weft_trace::record::TraceRecord>,
) {
    use weft_trace::file::{FileHeader, FileWriter};
    let header = FileHeader {
        node: node.into(),
        server: None,
        process: 1,
        clock: "virtual".into(),
        clock_domain: "sample".into(),
        anchor: Default::default(),
        events,
        machine: String::new(),
    };
    let (mut writer, mut bytes) = FileWriter::begin(&header);
    let records: Vec<_> = records.into_iter().map(|record| record.to_words()).collect();
    if !records.is_empty() {
        writer.batch(&weft_trace::Batch { ring: 0, first: 0, records }, &mut bytes);
    }
    writer.end(&mut bytes);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
}

/// A trace whose names are markup, scripts and control characters.
pub fn write_hostile_trace(path: &Path) {
    use weft_trace::event::{CLIENT_CREATE, EventInfo, EventTable};
    use weft_trace::record::{Body, Span, TraceRecord, padded};
    let builtin = EventTable::builtin();
    let events = builtin.iter().cloned().map(|info| match info.id {
        CLIENT_CREATE => EventInfo { name: format!("{HOSTILE} node:x"), ..info },
        _ => info,
    });
    let span = |number: u64| {
        TraceRecord::new(1_000_000 * number, CLIENT_CREATE, Body::Span(Span { dur: 500_000, span: number as u32, ..Span::default() }))
    };
    let mark =
        TraceRecord::new(5_000_000, weft_trace::event::MARK_PHASE, Body::Mark { value: 1, label: padded("</text><script>alert(1)") });
    write_trace(path, HOSTILE, EventTable::from_infos(events.collect::<Vec<_>>()), (1..40).map(span).chain([mark]));
}

pub const HOSTILE: &str = "<img src=x onerror=\"document.title='broken into'\"></text></script>&amp;\u{1b}[31m'";

/// A result of `weft bench`.
pub const BENCH: &str = r#"[
  {"phase":"create","repetitions":3,"procs":2,"clients":1,"depth":1,"ops":20000,"size_bytes":0,"block_bytes":0,
   "ops_per_s":{"median":21000,"min":19800,"max":22100},"mib_per_s":null,"latency_us":{"p50":88,"p99":320,"max":9000},
   "ceiling":{"name":"rpc.unix.2x1","unit":"ops/s","median":52000,"min":51000,"max":53000},
   "ratio_to_ceiling":{"median":0.4,"min":0.38,"max":0.42}},
  {"phase":"write","repetitions":3,"procs":1,"clients":1,"depth":4,"ops":2000,"size_bytes":268435456,"block_bytes":1048576,
   "ops_per_s":{"median":1200,"min":1100,"max":1300},"mib_per_s":{"median":1200,"min":1100,"max":1300},"latency_us":null}
]"#;
