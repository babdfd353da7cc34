//! Live numbers as a person and a monitoring system get them: real servers, `weft top`,
//! `weft metrics` and the live page. `WEFT_SCREENSHOTS=DIR` keeps a picture of the page.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

/// A directory whose name is markup and steers terminals.
const HOSTILE: &str = "<img src=x onerror=document.title='broken'>\u{1b}[2J\u{1b}]0;x\u{7}";

/// Servers in a temporary folder; stopped when the test ends, however it ends.
struct Demo {
    dir: TempDir,
}

impl Demo {
    fn up() -> Demo {
        let demo = Demo { dir: tempfile::tempdir().unwrap() };
        ok(weft().args(["up", "--meta", "2", "--data", "2", "--state"]).arg(demo.state()));
        demo
    }

    fn state(&self) -> String {
        self.dir.path().join("state").display().to_string()
    }

    /// Copies so many files of 10 000 bytes into a new directory.
    fn copy(&self, files: usize, to: &str) {
        let from = self.dir.path().join(format!("from{files}"));
        fs::create_dir_all(&from).unwrap();
        (0..files).for_each(|number| fs::write(from.join(format!("f{number}")), vec![7; 10_000]).unwrap());
        ok(weft().arg("cp").arg("-r").arg(&from).arg(format!("{}:/{to}", self.state())));
    }

    fn top(&self) -> Value {
        let output = weft().args(["top", "--once", "--json", "--interval", "0.1"]).arg(self.state()).output().unwrap();
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
    }

    fn kill(&self, server: &str) {
        let status = weft().args(["status", "--json", "--state", &self.state()]).output().unwrap();
        let report: Value = serde_json::from_slice(&status.stdout).unwrap();
        let row = report["servers"].as_array().unwrap().iter().find(|row| row["name"] == server).unwrap();
        let pid = nix::unistd::Pid::from_raw(row["pid"].as_i64().unwrap() as i32);
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).unwrap();
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        let _ = weft().args(["down", "--state", &self.state()]).output();
    }
}

/// A program that serves until it is killed.
struct Serving {
    process: Child,
    url: String,
}

impl Serving {
    fn start(args: &[&str]) -> Serving {
        let mut process = weft().args(args).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Serving { process, url: line.trim().to_string() }
    }

    fn host(&self) -> &str {
        self.url.trim_start_matches("http://").split('/').next().unwrap()
    }

    fn get(&self, target: &str) -> (u16, String) {
        self.ask("GET", target, self.host())
    }

    fn ask(&self, method: &str, target: &str, host: &str) -> (u16, String) {
        let mut socket = TcpStream::connect(self.host()).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        write!(socket, "{method} {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n").unwrap();
        let mut answer = Vec::new();
        let _ = socket.read_to_end(&mut answer);
        let text = String::from_utf8_lossy(&answer).into_owned();
        (text.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0), text)
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn weft() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weft"));
    command.stdin(Stdio::null()).env_remove("WEFT_KEY_FILE");
    command
}

fn ok(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {output:?}");
    output
}

/// A field of a server, or the sum of it over all of a role.
fn total(top: &Value, role: &str, field: &str) -> u64 {
    let rows = top["servers"].as_array().unwrap().iter().filter(|row| row["role"] == role);
    rows.map(|row| row["totals"][field].as_u64().unwrap_or_else(|| panic!("{row}"))).sum()
}

fn operation(top: &Value, name: &str) -> (u64, u64) {
    let row = top["operations"].as_array().unwrap().iter().find(|row| row["name"] == name);
    row.map_or((0, 0), |row| (row["count"].as_u64().unwrap(), row["failed"].as_u64().unwrap()))
}

#[test]
fn counters_agree_with_the_work_and_a_silent_server_is_said() {
    let demo = Demo::up();
    let before = demo.top();
    assert_eq!((before["ok"].as_bool(), total(&before, "data", "written_bytes")), (Some(true), 0));
    demo.copy(40, "d");
    ok(weft().arg("cat").arg(format!("{}:/d/f3", demo.state())));
    let after = demo.top();
    assert_eq!((operation(&after, "Create"), operation(&after, "Mkdir")), ((40, 0), (1, 0)));
    assert_eq!((total(&after, "data", "written_bytes"), total(&after, "data", "read_bytes")), (400_000, 10_000));
    let created = total(&after, "meta", "meta_changes") - total(&before, "meta", "meta_changes");
    assert!(created >= 41, "creates, a directory, and attributes that a copy sets: {created}");
    let busiest = after["objects"].as_array().unwrap();
    assert!(busiest.iter().any(|row| row["name"] == "/d" && row["requests_s"].as_f64() > Some(1.0)), "{busiest:?}");
    let here = after["clients"].as_array().unwrap();
    assert!(here.iter().all(|row| row["name"].as_str().is_some_and(|name| name.starts_with("pid "))), "who asks is a process: {here:?}");

    demo.kill("data1");
    let silent = weft().args(["top", "--once", "--json", "--interval", "0.1"]).arg(demo.state()).output().unwrap();
    assert_eq!(silent.status.code(), Some(1));
    let silent: Value = serde_json::from_slice(&silent.stdout).unwrap();
    let rows: Vec<_> = silent["servers"].as_array().unwrap().iter().map(|row| (row["name"].clone(), row["answers"].clone())).collect();
    assert_eq!(rows.iter().filter(|(_, answers)| *answers == false).map(|(name, _)| name).collect::<Vec<_>>(), ["data1"]);
    let metrics = Serving::start(&["metrics", &demo.state(), "--listen", "127.0.0.1:0"]);
    assert!(metrics.url.ends_with("/metrics"));
    let (status, text) = metrics.get("/metrics");
    assert!(status == 200 && text.contains("Content-Type: text/plain; version=0.0.4"), "{text}");
    for line in ["weft_up{fs=\"weft\",server=\"data1\",role=\"data\"} 0", "weft_up{fs=\"weft\",server=\"meta0\",role=\"meta\"} 1"] {
        assert!(text.lines().any(|there| there == line), "{line} in {text}");
    }
    let created: f64 = text
        .lines()
        .filter(|line| line.starts_with("weft_request_duration_seconds_count{") && line.contains("op=\"Create\""))
        .map(|line| line.rsplit(' ').next().and_then(|number| number.parse::<f64>().ok()).unwrap())
        .sum();
    assert_eq!(created, 40.0);
    assert_eq!((metrics.get("/").0, metrics.ask("POST", "/metrics", metrics.host()).0), (404, 405));
}

#[test]
fn rates_and_hostile_names_in_a_pipe_and_in_a_terminal() {
    let demo = Demo::up();
    // Lines of JSON, one for each look.
    let mut stream = weft().args(["top", "--json", "--interval", "0.1"]).arg(demo.state()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(stream.stdout.take().unwrap()).lines();
    let rates = ["written_bytes_s", "meta_changes_s"];
    let mut seen = [false; 2];
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // A look may miss what happens between two others that came late: so there is work until it
        // has been seen.
        scope.spawn(|| {
            for number in 0.. {
                demo.copy(300, &format!("{HOSTILE}{number}"));
                if done.load(Ordering::Relaxed) {
                    break;
                }
            }
        });
        for line in lines.by_ref().take(300) {
            let look: Value = serde_json::from_str(&line.unwrap()).unwrap();
            (0..2).for_each(|rate| seen[rate] |= look["sums"][rates[rate]].as_f64() > Some(0.0));
            if seen == [true; 2] {
                break;
            }
        }
        done.store(true, Ordering::Relaxed);
    });
    stream.kill().unwrap();
    stream.wait().unwrap();
    assert_eq!(seen, [true; 2], "copies are seen in some look: {rates:?}");

    let control = |text: &str| text.chars().find(|c| c.is_control() && *c != '\n');
    let tables = ok(weft().args(["top", "--once", "--interval", "0.1"]).arg(demo.state()));
    let tables = String::from_utf8(tables.stdout).unwrap();
    assert!(tables.contains("x1b[2J") && control(&tables).is_none(), "{tables:?}");

    if !Command::new("script").arg("--version").output().is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: no script(1) to make a terminal");
        return;
    }
    let command = format!("stty rows 24 cols 80; exec timeout 60 {} top {} --interval 0.2", env!("CARGO_BIN_EXE_weft"), demo.state());
    let mut terminal =
        Command::new("script").args(["-qec", &command, "/dev/null"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut keys = terminal.stdin.take().unwrap();
    let mut out = terminal.stdout.take().unwrap();
    let mut shown = String::new();
    let mut read_until = |words: &str| {
        let mut bytes = Vec::new();
        let mut part = [0; 4096];
        // Ends with the program, should the words never come.
        while !String::from_utf8_lossy(&bytes).contains(words) {
            match out.read(&mut part).unwrap() {
                0 => break,
                count => bytes.extend_from_slice(&part[..count]),
            }
        }
        shown.push_str(&String::from_utf8_lossy(&bytes));
    };
    read_until("x1b[2J");
    keys.write_all(b"w").unwrap();
    read_until("WRITE/s*");
    keys.write_all(b"t").unwrap();
    read_until("CLIENTS by bytes");
    keys.write_all(b"q").unwrap();
    read_until("\u{1b}[?1049l");
    assert!(terminal.wait().unwrap().success(), "q leaves");
    let (begin, end) = (shown.find("\u{1b}[?1049h").expect("the other screen"), shown.rfind("\u{1b}[?1049l").expect("and back"));
    let screen = &shown[begin..end];
    assert!(screen.contains("meta0") && screen.contains("WRITE/s*") && screen.contains("CLIENTS by bytes"), "{screen:?}");
    assert!(screen.contains("x1b[2J"), "the name is there, escaped: {screen:?}");
    assert!(!screen.contains("\u{1b}[2J") && !screen.contains('\u{7}'), "no name reaches the terminal as it is");
}

#[test]
fn the_live_page_shows_what_happens_and_keeps_the_door() {
    let demo = Demo::up();
    let viewer = Serving::start(&["view", "--live", &demo.state(), "--interval", "0.2", "--no-open", "--no-token"]);
    for (target, wanted) in [
        ("/", "<title>weft view</title>"),
        ("/live.js", "Last answer"),
        ("/api/state", "\"live\":true"),
        ("/metrics", "# TYPE weft_up gauge"),
    ] {
        let (status, text) = viewer.get(target);
        assert!(status == 200 && text.contains(wanted) && text.contains("Content-Security-Policy: default-src 'none'"), "{target}: {text}");
    }
    assert_eq!((viewer.ask("GET", "/api/live", "evil.example").0, viewer.ask("POST", "/api/live", viewer.host()).0), (421, 405));
    assert_eq!((viewer.get("/../etc/passwd").0, viewer.get("/api/run").0), (404, 503), "there is no trace");

    let with_token = Serving::start(&["view", "--live", &demo.state(), "--no-open"]);
    assert_eq!((with_token.get("/api/live").0, with_token.get("/metrics").0), (401, 401));

    demo.copy(100, HOSTILE);
    demo.kill("data1");
    let state = |viewer: &Serving| -> Value {
        let (_, text) = viewer.get("/api/live?each=1&span=60");
        serde_json::from_str(text.split("\r\n\r\n").nth(1).unwrap()).unwrap()
    };
    // Bandwidths of data servers, metadata of metadata servers, queue and processor time of all.
    assert_eq!(state(&viewer)["charts"].as_array().unwrap().len(), 2 * 2 + 2 * 2 + 2 * 4);

    let Some(browser) = ["chromium", "chromium-browser", "google-chrome"].into_iter().find(|name| {
        Command::new(name).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
    }) else {
        eprintln!("skipped: no chromium is installed");
        return;
    };
    // A server is silent after three seconds without an answer.
    std::thread::sleep(Duration::from_millis(3300));
    let look = |extra: &[&str]| {
        let profile = tempfile::tempdir().unwrap();
        let mut command = Command::new(browser);
        command.args(["--headless", "--no-sandbox", "--disable-gpu", "--window-size=1500,1100", "--virtual-time-budget=4000"]);
        command.args(["--enable-logging=stderr", "--v=0"]).arg(format!("--user-data-dir={}", profile.path().display())).args(extra);
        let output = command.arg(&viewer.url).stdin(Stdio::null()).output().unwrap();
        (String::from_utf8_lossy(&output.stdout).into_owned(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (page, console) = look(&["--dump-dom"]);
    assert!(!console.contains("CONSOLE"), "no script fails: {console}");
    for wanted in
        ["weft live: weft", "No answer from data1.", "no data for", "Write bandwidth", "<polyline", "% free", "Mean", "&lt;img src=x"]
    {
        assert!(page.contains(wanted), "{wanted}: {page}");
    }
    assert!(!page.contains("<img") && !page.contains("NaN") && !page.contains("undefined"), "{page}");
    if let Some(dir) = std::env::var_os("WEFT_SCREENSHOTS") {
        look(&[&format!("--screenshot={}/live.png", dir.display())]);
    }
}
