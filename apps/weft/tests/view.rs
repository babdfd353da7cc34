//! `weft view` as a person uses it: the real program, real sockets, and, if one is installed, a real browser that is driven over its
//! debugging pipe. `WEFT_SCREENSHOTS=DIR cargo test -p weft --test view` keeps a picture of every screen.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

/// A viewer of a synthetic trace; stopped at the end of the test, however it ends.
struct Viewer {
    process: Child,
    address: String,
    _dir: TempDir,
}

impl Viewer {
    fn new(spans: u64, damage: impl Fn(&Path), options: &[&str]) -> Viewer {
        let dir = tempfile::tempdir().unwrap();
        make_sample(spans, 4, dir.path());
        damage(dir.path());
        let path = dir.path().to_path_buf();
        Viewer::of(dir, &[path], options)
    }

    /// A viewer of several runs, all in one directory that goes with it.
    fn of(dir: TempDir, paths: &[PathBuf], options: &[&str]) -> Viewer {
        let mut process = weft().arg("view").args(paths).arg("--no-open").args(options).stdout(Stdio::piped()).spawn().unwrap();
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

    fn host(&self) -> &str {
        self.address.split('/').next().unwrap()
    }

    /// Status and text of an answer to these bytes.
    fn send(&self, request: &str) -> (u16, String) {
        let mut socket = TcpStream::connect(self.host()).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        socket.write_all(request.as_bytes()).unwrap();
        let mut answer = Vec::new();
        let _ = socket.read_to_end(&mut answer);
        let text = String::from_utf8_lossy(&answer).into_owned();
        (text.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0), text)
    }

    fn get(&self, target: &str) -> (u16, String) {
        self.send(&format!("GET {target} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", self.host()))
    }
}

impl Drop for Viewer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn make_sample(spans: u64, data_servers: u16, dir: &Path) {
    let made = weft().args(["view", "--sample", &spans.to_string(), "--sample-data", &data_servers.to_string()]).arg(dir).output().unwrap();
    assert!(made.status.success(), "{made:?}");
}

fn weft() -> Command {
    Command::new(env!("CARGO_BIN_EXE_weft"))
}

#[test]
fn over_a_real_socket_only_harmless_requests_are_answered() {
    let viewer = Viewer::new(2_000, |_| {}, &[]);
    let host = viewer.host();
    let (status, page) = viewer.get("/");
    assert!(status == 200 && page.contains("Content-Security-Policy: default-src 'none'") && page.contains("<title>weft view</title>"));
    let ask =
        |line: &str, host: &str| viewer.send(&format!("{line} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"));
    assert_eq!(ask("GET /api/run", "evil.example").0, 421);
    assert_eq!(ask("GET /api/run", "evil.example:80").0, 421);
    for method in ["POST", "PUT", "DELETE", "OPTIONS"] {
        assert_eq!(ask(&format!("{method} /"), host).0, 405, "{method}");
    }
    for path in ["/../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "//etc/passwd", "/style.css/../../Cargo.toml"] {
        let (status, text) = ask(&format!("GET {path}"), host);
        assert!(status == 404 && !text.contains("root:"), "{path}: {text}");
    }
    assert_eq!(viewer.get("/api/run").0, 200, "it still answers");
}

#[test]
fn a_token_is_asked_for_beyond_loopback() {
    let viewer = Viewer::new(200, |_| {}, &["--token"]);
    let (host, token) = viewer.address.split_once("/?token=").expect("the printed address has a token");
    assert_eq!(token.len(), 32);
    let with = |target: &str, cookie: &str| {
        viewer.send(&format!("GET {target} HTTP/1.1\r\nHost: {host}\r\nCookie: {cookie}\r\nConnection: close\r\n\r\n"))
    };
    assert_eq!(with("/", "").0, 401);
    assert_eq!(with("/api/state", "weft_view=00000000000000000000000000000000").0, 401);
    let (status, text) = with(&format!("/?token={token}"), "");
    assert!(status == 303 && text.contains(&format!("Set-Cookie: weft_view={token}; HttpOnly")), "{text}");
    assert_eq!(with("/api/state", &format!("weft_view={token}")).0, 200);
}

#[test]
fn a_truncated_trace_opens_and_says_what_is_missing() {
    let cut = |dir: &Path| {
        let file = dir.join("data1.trace");
        let bytes = fs::read(&file).unwrap();
        fs::write(file, &bytes[..bytes.len() * 2 / 3]).unwrap();
        fs::write(dir.join("meta1.trace"), b"WEFTTRC\n\x01\x00 and then nothing").unwrap();
    };
    let viewer = Viewer::new(20_000, cut, &[]);
    let (_, health) = viewer.get("/api/health");
    assert!(health.contains("the file has no end") && health.contains("the header of the trace file is damaged"), "{health}");
    assert_eq!(viewer.get("/api/window?width=800").0, 200);
}

/// The trace of a client.
fn write_trace(
    path: &Path,
    node: &str,
    events: weft_trace::event::EventTable,
    records: impl IntoIterator<Item = weft_trace::record::Record>,
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
fn write_hostile_trace(path: &Path) {
    use weft_trace::event::{CLIENT_CREATE, EventInfo, EventTable};
    use weft_trace::record::{Body, Record, Span, padded};
    let builtin = EventTable::builtin();
    let events = builtin.iter().cloned().map(|info| match info.id {
        CLIENT_CREATE => EventInfo { name: format!("{HOSTILE} node:x"), ..info },
        _ => info,
    });
    let span = |number: u64| {
        Record::new(1_000_000 * number, CLIENT_CREATE, Body::Span(Span { dur: 500_000, span: number as u32, ..Span::default() }))
    };
    let mark = Record::new(5_000_000, weft_trace::event::MARK_PHASE, Body::Mark { value: 1, label: padded("</text><script>alert(1)") });
    write_trace(path, HOSTILE, EventTable::from_infos(events.collect::<Vec<_>>()), (1..40).map(span).chain([mark]));
}

const HOSTILE: &str = "<img src=x onerror=\"document.title='broken into'\"></text></script>&amp;\u{1b}[31m'";

/// A browser that is driven over its debugging pipe (Chrome DevTools Protocol, messages that end in a zero byte).
struct Browser {
    process: Child,
    to: File,
    from: BufReader<File>,
    session: Option<String>,
    next: u64,
    events: Vec<Value>,
    _dir: TempDir,
}

impl Browser {
    /// `None` if no browser is installed.
    fn new() -> Option<Browser> {
        let name = ["chromium", "chromium-browser", "google-chrome"].into_iter().find(|name| {
            Command::new(name).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
        })?;
        let dir = tempfile::tempdir().unwrap();
        let pipes = ["to", "from"].map(|name| dir.path().join(name));
        pipes.iter().for_each(|pipe| nix::unistd::mkfifo(pipe, nix::sys::stat::Mode::S_IRWXU).unwrap());
        // The browser reads from descriptor 3 and writes to 4; a shell can say so without unsafe code.
        let script =
            r#"exec "$0" --headless --no-sandbox --disable-gpu --remote-debugging-pipe --user-data-dir="$3" about:blank 3<"$1" 4>"$2""#;
        let mut command = Command::new("sh");
        command.args(["-c", script, name]).args(&pipes).arg(dir.path().join("profile"));
        let process = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let to = File::options().write(true).open(&pipes[0]).unwrap();
        let from = BufReader::new(File::open(&pipes[1]).unwrap());
        let mut browser = Browser { process, to, from, session: None, next: 0, events: Vec::new(), _dir: dir };
        let target = browser.call("Target.createTarget", json!({ "url": "about:blank" }))["targetId"].clone();
        let session = browser.call("Target.attachToTarget", json!({ "targetId": target, "flatten": true }));
        browser.session = session["sessionId"].as_str().map(str::to_string);
        for domain in ["Page", "Runtime", "Network", "Log"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        browser
            .call("Emulation.setDeviceMetricsOverride", json!({ "width": 1500, "height": 950, "deviceScaleFactor": 1, "mobile": false }));
        Some(browser)
    }

    fn call(&mut self, method: &str, params: Value) -> Value {
        self.next += 1;
        let mut message = json!({ "id": self.next, "method": method, "params": params });
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        self.to.write_all(format!("{message}\0").as_bytes()).unwrap();
        loop {
            let mut bytes = Vec::new();
            self.from.read_until(0, &mut bytes).unwrap();
            bytes.pop();
            let answer: Value = serde_json::from_slice(&bytes).expect("the browser ended");
            if answer["id"] == self.next {
                assert!(answer["error"].is_null(), "{method}: {answer}");
                return answer["result"].clone();
            }
            self.events.push(answer);
        }
    }

    fn value(&mut self, expression: &str) -> Value {
        let params = json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let result = self.call("Runtime.evaluate", params);
        assert!(result["exceptionDetails"].is_null(), "{expression}: {result}");
        result["result"]["value"].clone()
    }

    /// Waits until an expression holds.
    fn until(&mut self, expression: &str) {
        let deadline = Instant::now() + Duration::from_secs(40);
        while self.value(&format!("Boolean({expression})")) != json!(true) {
            assert!(
                Instant::now() < deadline,
                "it never came true: {expression}, the page: {}",
                self.value("document.body.innerText.slice(0, 500)")
            );
            std::thread::sleep(Duration::from_millis(15));
        }
    }

    fn open(&mut self, address: &str) {
        // By way of an empty page, as a change of only the fragment loads nothing.
        self.call("Page.navigate", json!({ "url": "about:blank" }));
        self.call("Page.navigate", json!({ "url": address }));
        self.until("window.weftView && window.weftView.idle");
    }

    /// Another address of a viewer; if its page is open, as a link in it does.
    fn go(&mut self, viewer: &Viewer, hash: &str) {
        if self.value("location.host") != json!(viewer.host()) {
            return self.open(&format!("http://{}/{hash}", viewer.host()));
        }
        self.value(&format!("location.hash = '{hash}'"));
        // The page hears of it a moment later.
        self.value("new Promise((wake) => setTimeout(wake, 30))");
        self.until("weftView.idle");
    }

    fn press(&mut self, key: &str) {
        let mut params = json!({ "type": "keyDown", "key": key });
        if key.len() == 1 {
            params["text"] = json!(key);
        }
        self.call("Input.dispatchKeyEvent", params);
        self.call("Input.dispatchKeyEvent", json!({ "type": "keyUp", "key": key }));
        std::thread::sleep(Duration::from_millis(60));
    }

    fn click(&mut self, x: f64, y: f64) {
        for kind in ["mouseMoved", "mousePressed", "mouseReleased"] {
            let button = if kind == "mouseMoved" { "none" } else { "left" };
            self.call("Input.dispatchMouseEvent", json!({ "type": kind, "x": x, "y": y, "button": button, "clickCount": 1 }));
        }
    }

    fn drag(&mut self, (from, to): (f64, f64), y: f64) {
        for (kind, x) in [("mouseMoved", from), ("mousePressed", from), ("mouseMoved", to), ("mouseReleased", to)] {
            let (button, buttons) = if kind == "mouseMoved" && x == from { ("none", 0) } else { ("left", 1) };
            self.call(
                "Input.dispatchMouseEvent",
                json!({ "type": kind, "x": x, "y": y, "button": button, "buttons": buttons, "clickCount": 1 }),
            );
        }
    }

    /// Nothing was asked outside of these viewers, no style or script was refused, and no script failed.
    fn asked_only_of(&self, viewers: &[&Viewer]) {
        let of = |method: &str| -> Vec<Value> { self.events.iter().filter(|event| event["method"] == method).cloned().collect() };
        assert_eq!(of("Runtime.exceptionThrown"), Vec::<Value>::new());
        let refused: Vec<Value> =
            of("Log.entryAdded").into_iter().filter(|event| event["params"]["entry"]["source"] == "security").collect();
        assert_eq!(refused, Vec::<Value>::new());
        let asked = of("Network.requestWillBeSent");
        let asked: Vec<&str> = asked.iter().filter_map(|event| event["params"]["request"]["url"].as_str()).collect();
        let own: Vec<String> = viewers.iter().map(|viewer| format!("http://{}/", viewer.host())).collect();
        let is_own = |url: &str| {
            ["about:", "data:", "blob:"].iter().copied().chain(own.iter().map(String::as_str)).any(|begin| url.starts_with(begin))
        };
        let outside: Vec<&str> = asked.iter().copied().filter(|url| !is_own(url)).collect();
        assert!(asked.len() > 20 && outside.is_empty(), "{outside:?}");
    }

    fn picture(&mut self, name: &str) {
        let Some(dir) = std::env::var_os("WEFT_SCREENSHOTS") else { return };
        let shot = self.call("Page.captureScreenshot", json!({ "format": "png" }));
        let bytes = decode_base64(shot["data"].as_str().unwrap());
        fs::write(Path::new(&dir).join(format!("{name}.png")), bytes).unwrap();
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn decode_base64(text: &str) -> Vec<u8> {
    let digit = |byte: u8| match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' => 62,
        _ => 63,
    };
    let digits: Vec<u32> = text.bytes().filter(|byte| *byte != b'=').map(|byte| u32::from(digit(byte))).collect();
    let word = |chunk: &[u32]| {
        let bits = chunk.iter().fold(0, |bits, digit| bits << 6 | digit) << (6 * (4 - chunk.len()));
        bits.to_be_bytes()[1..chunk.len()].to_vec()
    };
    digits.chunks(4).flat_map(word).collect()
}

/// Every screen by key and by address; the address round trip; a walk with keys only; exports; nothing asked outside; no error.
#[test]
fn the_page_works_in_a_real_browser() {
    let Some(mut browser) = Browser::new() else {
        eprintln!("skipped: no chromium is installed");
        return;
    };
    let viewer = Viewer::new(60_000, |_| {}, &[]);
    let base = format!("http://{}/", viewer.host());
    browser.open(&base);
    assert_eq!(browser.value("weftView.timeline.picture.lanes.length > 20"), json!(true), "lanes of all nodes");
    browser.picture("timeline");

    // Keys: zoom in, choose a span, walk, its request.
    let length = "weftView.state.to - weftView.state.from";
    let whole = browser.value(length).as_f64().unwrap();
    for _ in 0..12 {
        browser.press("w");
    }
    browser.until("weftView.idle");
    assert!(browser.value(length).as_f64().unwrap() < whole / 20.0);
    browser.value("weftView.timeline.canvas.focus()");
    browser.press("ArrowDown");
    browser.until("weftView.timeline.selected");
    let first = browser.value("weftView.state.selected");
    browser.press("ArrowRight");
    browser.until(&format!("weftView.state.selected !== {first}"));
    browser.until("document.querySelector('.details').innerText.length > 20");
    browser.until("weftView.timeline.chosenRequest && weftView.idle");
    browser.picture("timeline-zoomed");

    // The address holds all of it.
    let kept = browser.value("JSON.stringify([weftView.state.from, weftView.state.to, weftView.state.selected].map(Math.round))");
    let address = browser.value("location.href").as_str().unwrap().to_string();
    browser.open(&address);
    let again = browser.value("JSON.stringify([weftView.state.from, weftView.state.to, weftView.state.selected].map(Math.round))");
    assert_eq!(kept, again, "{address}");

    // The filter hides what the legend says, and only that.
    browser.until("document.querySelectorAll('.legend input').length > 5");
    browser.value("document.querySelector('.legend input').click()");
    browser.until("weftView.state.hidden.size === 1 && weftView.idle");
    let shown = "[...weftView.timeline.picture.lanes].some((part) => part.spans && [...Array(part.count).keys()].some((at) => weftView.state.hidden.has(part.spans[4 * at + 2])))";
    assert_eq!(browser.value(shown), json!(false));

    // A click chooses what lies under the pointer.
    browser.value("document.querySelector('.legend input').click()");
    browser.until("weftView.state.hidden.size === 0 && weftView.idle");
    browser.press("Escape");
    browser.until("weftView.state.selected === null && weftView.idle");
    let place = browser.value(
        "(() => { const t = weftView.timeline, box = t.canvas.getBoundingClientRect(); for (let y = 40; y < box.height - 4; y += 3) for (let x = 200; x < box.width - 20; x += 7) { const span = t.at(x, y); if (span && span.folded === 1) return [box.left + x, box.top + y, span.event]; } })()",
    );
    assert!(place.is_array(), "a span to click on");
    browser.click(place[0].as_f64().unwrap(), place[1].as_f64().unwrap());
    browser.until(&format!("weftView.state.selected === {}", place[2]));

    // Exports and the table twin.
    browser.value("weftView.timeline.exportSvg()");
    let parsed = "new DOMParser().parseFromString(weftView.lastSvg, 'image/svg+xml')";
    assert_eq!(
        browser.value(&format!("{parsed}.querySelector('parsererror') === null && {parsed}.querySelectorAll('rect').length > 50")),
        json!(true)
    );
    assert_eq!(browser.value("/NaN|Infinity|undefined/.test(weftView.lastSvg)"), json!(false));
    browser.value("weftView.timeline.canvas.focus()");
    browser.press("t");
    browser.until("document.querySelectorAll('.twin tbody tr').length > 3");
    browser.picture("timeline-table");

    // All screens, by key.
    let screens = BTreeMap::from([("1", "overview"), ("3", "latency"), ("4", "where"), ("5", "request"), ("6", "health")]);
    for (key, screen) in screens {
        browser.value("document.activeElement.blur()");
        browser.press(key);
        browser.until(&format!("document.querySelector('.page.{screen}') && weftView.idle"));
        browser.picture(screen);
        assert_eq!(browser.value("/NaN|undefined|\\[object/.test(document.querySelector('.page').innerText)"), json!(false), "{screen}");
    }

    // Names that are markup are text on every screen, and in the exported picture.
    let hostile = Viewer::new(500, |dir| write_hostile_trace(&dir.join("hostile.trace")), &[]);
    for screen in ["overview", "timeline", "latency", "where", "request", "health"] {
        browser.open(&format!("http://{}/#/{screen}", hostile.host()));
        browser.until("document.body.innerText.length > 100");
        if screen == "timeline" {
            browser.until("document.querySelector('.legend tbody tr')");
            browser.value("weftView.timeline.side.toggleTable()");
            browser.until("document.querySelectorAll('.twin tbody tr').length > 3");
            browser.value("weftView.timeline.exportSvg()");
            assert_eq!(browser.value(&format!("{parsed}.querySelector('parsererror, script, img') === null")), json!(true));
            browser.picture("hostile");
        }
        assert_eq!(browser.value("document.body.innerText.includes('<img src=x')"), json!(true), "{screen} shows the name");
        assert_eq!(
            browser.value("document.querySelector('img, main script') === null && document.title !== 'broken into'"),
            json!(true),
            "{screen}"
        );
    }
    browser.asked_only_of(&[&viewer, &hostile]);
}

/// Several runs: the list, one against another with windows that move together, choices by key and by address.
#[test]
fn runs_are_chosen_and_compared_in_a_real_browser() {
    let Some(mut browser) = Browser::new() else {
        eprintln!("skipped: no chromium is installed");
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    make_sample(20_000, 4, &at("before"));
    make_sample(20_000, 1, &at("after"));
    fs::create_dir(at("nothing")).unwrap();
    fs::write(at("bench.json"), BENCH).unwrap();
    let paths = ["before", "after", "nothing", "bench.json"].map(at);
    let viewer = Viewer::of(dir, &paths, &[]);
    let base = format!("http://{}/", viewer.host());

    // The list comes first if there are several runs; what cannot be read is named there.
    browser.open(&base);
    browser.until("document.querySelectorAll('.page.runs tbody tr').length >= 5");
    assert_eq!(browser.value("document.body.innerText.includes('nothing could not be read')"), json!(true));
    browser.picture("runs");
    browser.value("document.querySelector('input[name=b][data-run=\"1\"]').click()");
    browser.until("weftView.state.b === 1");
    browser.press("9");
    browser.until("document.querySelectorAll('.compare-report tbody tr').length > 2 && weftView.idle");
    browser.picture("compare");
    // One data server instead of four: reads and writes wait for it, and the page says so.
    let said = browser.value("weftView.compare.data.sentences.join(' ')");
    assert!(said.as_str().unwrap().contains("server queue"), "{said}");

    // Both timelines move together, whatever moves them.
    let windows = "JSON.stringify(weftView.compare.halves.map((half) => [half.picture.from, half.picture.to]))";
    browser.press("w");
    browser.press("d");
    browser.until("weftView.idle && weftView.compare.data.a.seconds < 0.9 * weftView.state.run.duration / 1e9");
    let both: Vec<[u64; 2]> = serde_json::from_str(browser.value(windows).as_str().unwrap()).unwrap();
    assert!(both[0] == both[1] && both[0][0] > 0, "{both:?}");
    // Aligned at a mark, the mark is at the same place of both.
    browser.value("(() => { const select = [...document.querySelectorAll('.compare-tools select')][2]; select.value = '3'; select.dispatchEvent(new Event('change')); })()");
    browser.until("weftView.state.align === '3' && weftView.idle");
    let places = "weftView.compare.halves.map((half) => Math.round(half.x(half.run.marks.find(([, value]) => value === 3)[0])))";
    let places = browser.value(places);
    assert_eq!(places[0], places[1], "{places}");
    browser.picture("compare-aligned");
    // The address holds both runs, the window and the alignment.
    let kept = "JSON.stringify([weftView.state.a, weftView.state.b, weftView.state.align, Math.round(weftView.state.from), Math.round(weftView.state.to)])";
    let (before, address) = (browser.value(kept), browser.value("location.href").as_str().unwrap().to_string());
    browser.open(&address);
    browser.until("document.querySelector('.compare-report tbody tr') && weftView.idle");
    assert_eq!(browser.value(kept), before, "{address}");
    // X exchanges the runs: what was worse is better.
    browser.press("x");
    browser.until("weftView.state.a === 1 && weftView.state.b === 0 && weftView.compare.data && weftView.compare.data.a.name === 'after' && weftView.idle");
    assert_eq!(browser.value("weftView.compare.data.kinds[0].effect_us < 0"), json!(true));
    // The other screens show the chosen run; a result without a trace says what it cannot show.
    browser.press("2");
    browser.until("weftView.timeline.picture && weftView.timeline.run.name === 'after' && weftView.idle");
    browser.press("]");
    browser.until("weftView.state.run.name === 'bench.json' && weftView.idle");
    browser.until("document.querySelector('main').innerText.includes('needs a trace')");
    browser.asked_only_of(&[&viewer]);
}

/// Running: four charts from a trace and from a benchmark, a brush that is the window of every other screen, metrics by formula.
#[test]
fn a_range_of_the_running_performance_is_the_window_of_every_screen() {
    let Some(mut browser) = Browser::new() else {
        eprintln!("skipped: no chromium is installed");
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    make_sample(20_000, 4, dir.path());
    let rows = (0..2).flat_map(|process| {
        (1..=40).map(move |tenth| format!("create,0,{process},n{process},{}.{},{},0\n", tenth / 10, tenth % 10, 90 + tenth))
    });
    fs::write(dir.path().join("progress.csv"), format!("phase,repetition,proc,node,t_s,count,bytes\n{}", rows.collect::<String>()))
        .unwrap();
    let path = dir.path().to_path_buf();
    let viewer = Viewer::of(dir, &[path], &[]);
    browser.open(&format!("http://{}/", viewer.host()));
    browser.value("document.activeElement.blur()");
    browser.press("8");
    browser.until("document.querySelectorAll('.page.running .drawn svg').length === 4 && weftView.idle");
    browser.picture("running");
    // A drag over the middle half of the first chart.
    let area = "(() => { const box = document.querySelector('.brush').getBoundingClientRect(); return [box.left, box.width, box.top + box.height / 2]; })()";
    let area = browser.value(area);
    let at = |share: f64| area[0].as_f64().unwrap() + share * area[1].as_f64().unwrap();
    browser.drag((at(0.25), at(0.75)), area[2].as_f64().unwrap());
    browser.until("Math.abs(weftView.state.from / weftView.state.run.duration - 0.25) < 0.02 && Math.abs(weftView.state.to / weftView.state.run.duration - 0.75) < 0.02 && weftView.idle");
    browser.until("document.querySelectorAll('.inside').length === 4");
    browser.picture("running-brushed");
    // The others look at that window only.
    let all =
        browser.value("fetch('/api/explain').then((answer) => answer.json()).then((explain) => explain.operations)").as_u64().unwrap();
    let operations = "Number(document.querySelector('.page.where').innerText.match(/(\\d+) operations spent/)[1])";
    browser.press("4");
    browser.until("document.querySelector('.page.where') && weftView.idle");
    let within = browser.value(operations).as_u64().unwrap();
    assert!(within > all / 4 && within < all * 3 / 4, "{within} of {all}");
    browser.picture("where-window");
    browser.press("1");
    browser.until("document.querySelector('.page.overview') && weftView.idle");
    assert_eq!(browser.value("document.querySelector('.page.overview').innerText.includes('The window from')"), json!(true));
    browser.press("Home");
    browser.until("document.querySelector('.page.overview').innerText.includes('This run') && weftView.idle");
    // A benchmark's progress and a metric are in the address; a formula that is none says so.
    let address = format!("http://{}/#/running?src=create%3A0&f=bytes%20%2F%20time", viewer.host());
    browser.open(&address);
    browser.until("document.querySelector('.page.running').innerText.includes('n1, process 1') && weftView.idle");
    assert_eq!(browser.value("document.querySelector('.drawn .title').textContent.startsWith('bytes / time')"), json!(true));
    browser.value("(() => { const field = document.querySelector('.formula'); field.value = 'bytes / tim'; field.dispatchEvent(new Event('change')); })()");
    browser.until("document.querySelector('[role=alert]')?.innerText.includes('tim is unknown') && weftView.idle");
    browser.value("document.querySelector('.drawn summary').click()");
    browser.until("document.querySelectorAll('.twin-table tbody tr').length > 10");
    browser.asked_only_of(&[&viewer]);
}

const SCREENS: [&str; 11] =
    ["runs", "overview", "timeline", "latency", "where", "request", "running", "compare", "bounds", "report", "health"];

/// A trace without a record, one with one span, one that is cut and has its middle overwritten: every screen has something to say, and
/// nothing that is no number.
#[test]
fn poor_traces_make_poor_but_sound_screens() {
    use weft_trace::event::{CLIENT_CREATE, EventTable};
    use weft_trace::record::{Body, Record, Span};
    let Some(mut browser) = Browser::new() else {
        eprintln!("skipped: no chromium is installed");
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    write_trace(&at("empty").join("client0.trace"), "client0", EventTable::builtin(), []);
    let span = Record::new(1_000_000, CLIENT_CREATE, Body::Span(Span { dur: 5_000, span: 1, ..Span::default() }));
    write_trace(&at("one").join("client0.trace"), "client0", EventTable::builtin(), [span]);
    make_sample(2_000, 4, &at("damaged"));
    for name in ["meta0", "data1"] {
        let file = at("damaged").join(format!("{name}.trace"));
        let mut bytes = fs::read(&file).unwrap();
        let len = bytes.len();
        bytes[len / 3..len / 2].fill(0xA5);
        fs::write(file, &bytes[..len * 4 / 5]).unwrap();
    }
    let paths = ["empty", "one", "damaged"].map(at);
    let viewer = Viewer::of(dir, &paths, &[]);
    for run in 0..3 {
        for screen in SCREENS {
            browser.go(&viewer, &format!("#/{screen}?r={run}&b={}&mt=g%3Acount", (run + 1) % 3));
            let text = browser.value("document.querySelector('main').innerText").as_str().unwrap().to_string();
            assert!(text.len() > 20, "run {run}, {screen}: {text}");
            for wrong in ["NaN", "undefined", "[object", "Infinity", "null"] {
                assert!(!text.contains(wrong), "run {run}, {screen} says {wrong}: {text}");
            }
            browser.picture(&format!("poor-{run}-{screen}"));
        }
    }
    browser.asked_only_of(&[&viewer]);
}

/// Every control of every screen changes the address, and the address alone brings it back.
#[test]
fn every_control_is_in_the_address() {
    let Some(mut browser) = Browser::new() else {
        eprintln!("skipped: no chromium is installed");
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    make_sample(600, 4, &at("before"));
    make_sample(600, 1, &at("after"));
    fs::write(at("bench.json"), BENCH).unwrap();
    let paths = ["before", "after", "bench.json"].map(at);
    let viewer = Viewer::of(dir, &paths, &[]);
    // A control by its number on a screen; of many that are alike (kinds, runs) the first three. Their values, after what was drawn last.
    let script = r#"
        window.testControls ||= (() => { const controls = () => {
          const seen = new Map();
          return [...document.querySelectorAll("main select, main input:not([type=search])")].filter((one) => {
            const alike = one.type + (one.name || one.closest("fieldset, .legend, .fact-fields") ? "many" : one.ariaLabel);
            seen.set(alike, (seen.get(alike) || 0) + 1);
            return seen.get(alike) <= 3;
          });
        };
        return {
          values: () => JSON.stringify(controls().map((one) => (["checkbox", "radio"].includes(one.type) ? one.checked : one.value))),
          count: () => controls().length,
          change: (number) => {
            const one = controls()[number];
            if (["checkbox", "radio"].includes(one.type)) { if (one.type === "radio" && one.checked) return false; one.click(); return true; }
            if (one.localName === "select") { if (one.options.length < 2) return false; one.selectedIndex = (one.selectedIndex + 1) % one.options.length; }
            else one.value = one.type === "number" ? "7" : "busy / time";
            one.dispatchEvent(new Event("change"));
            return true;
          },
        }; })()"#;
    let mut changed = 0;
    for screen in SCREENS {
        let base = format!("#/{screen}?b=1&mt=l%3Acount");
        browser.go(&viewer, &base);
        browser.value(script);
        let count = browser.value("testControls.count()").as_u64().unwrap();
        for number in 0..count {
            browser.go(&viewer, &base);
            let before = browser.value("location.hash");
            if browser.value(&format!("testControls.change({number})")) == json!(false) {
                continue;
            }
            browser.until(&format!("location.hash !== {before} && weftView.idle"));
            let (after, values) = (browser.value("location.hash"), browser.value("testControls.values()"));
            browser.value(&format!("location.hash = {before}"));
            browser.until("weftView.idle");
            assert_ne!(browser.value("testControls.values()"), values, "{screen}, control {number}: {after}");
            browser.value(&format!("location.hash = {after}"));
            browser.until(&format!("weftView.idle && testControls.values() === {values}"));
            changed += 1;
        }
    }
    assert!(changed > 18, "{changed} controls");
    browser.asked_only_of(&[&viewer]);
}

/// Lanes by formula: per node, named and numbered, in the table, in the exported picture and as CSV; a mistake says what is known.
#[test]
fn a_formula_is_a_lane_of_every_node_that_has_what_it_names() {
    let Some(mut browser) = Browser::new() else {
        eprintln!("skipped: no chromium is installed");
        return;
    };
    let viewer = Viewer::new(8_000, |_| {}, &[]);
    browser.open(&format!("http://{}/#/timeline", viewer.host()));
    browser.value("document.activeElement.blur()");
    let lanes = "weftView.timeline.rows.filter((row) => row.type === 'gauge' && row.height > 20)";
    for formula in ["bytes(disk.*) / time", "rise(queue)", "bites"] {
        browser.until("document.querySelector('.metrics input') || (weftView.timeline.key({ key: 'e' }), false)");
        browser.value(&format!("(() => {{ const field = [...document.querySelectorAll('.metrics input')].at(-1); field.value = '{formula}'; field.dispatchEvent(new Event('change')); }})()"));
        browser.until("weftView.idle");
    }
    browser.until("document.querySelector('.metrics [role=alert]')?.innerText.includes('bites is unknown')");
    // Disks of two metadata and four data servers; the gauge of all six servers.
    browser.until(&format!("{lanes}.length === 12"));
    browser.value("(() => { const choice = document.querySelectorAll('.metrics select')[1]; choice.value = 'line'; choice.dispatchEvent(new Event('change')); })()");
    browser.until(&format!("weftView.idle && {lanes}.filter((row) => row.gauge.style === 'line').length === 6"));
    assert_eq!(browser.value("/mt=g%3Abytes.*%3Bl%3Arise/.test(location.hash)"), json!(true));
    browser.value("weftView.timeline.scroller.scrollTop = 500");
    browser.picture("metrics");
    browser.value("weftView.timeline.exportSvg()");
    assert_eq!(browser.value("weftView.lastSvg.includes('bytes(disk.*) / time') && weftView.lastSvg.includes('<polyline')"), json!(true));
    browser.value("document.activeElement.blur()");
    browser.press("t");
    browser.until("[...document.querySelectorAll('.twin td')].filter((cell) => cell.innerText === 'bytes(disk.*) / time').length === 6");
    let csv = "document.querySelector('.metrics a.button').href";
    let text = browser.value(&format!("fetch({csv}).then((answer) => answer.text())")).as_str().unwrap().to_string();
    assert!(text.starts_with("from_ns,to_ns,node,metric,value\r\n") && text.contains(",data3,bytes(disk.*) / time,"), "{}", &text[..200]);
    browser.asked_only_of(&[&viewer]);
}

/// Three kinds of colour blindness: what stages, seeks and operations look like stays apart, by colour or by pattern; in a small window
/// nothing is cut off, and a dark scheme draws without complaint.
#[test]
fn colours_stay_apart_and_small_windows_hold_everything() {
    let Some(mut browser) = Browser::new() else {
        eprintln!("skipped: no chromium is installed");
        return;
    };
    let viewer = Viewer::new(8_000, |_| {}, &[]);
    browser.open(&format!("http://{}/#/overview", viewer.host()));
    // A swatch of every look side by side, 20 pixels each.
    let show = r#"(() => {
        const { looks, run } = weftView.state;
        const fills = [...Object.values(looks.stages).map((stage) => stage.look), ...looks.seeks, ...[...new Set(run.kinds.map((kind) => kind.colour))].map((colour) => ({ colour, pattern: 0 }))];
        const box = document.createElement("div");
        box.id = "fills";
        box.style.cssText = "position:fixed;inset:0 auto auto 0;display:flex;z-index:9";
        for (const { colour } of fills) { const one = document.createElement("i"); one.style.cssText = `width:20px;height:20px;background:${colour}`; box.append(one); }
        document.body.append(box);
        return [Object.keys(looks.stages).length, looks.seeks.length, fills.map((fill) => fill.pattern)];
    })()"#;
    let shown = browser.value(show);
    let (stages, seeks) = (shown[0].as_u64().unwrap() as usize, shown[1].as_u64().unwrap() as usize);
    let patterns: Vec<u64> = shown[2].as_array().unwrap().iter().map(|pattern| pattern.as_u64().unwrap()).collect();
    for kind in ["none", "protanopia", "deuteranopia", "tritanopia"] {
        browser.call("Emulation.setEmulatedVisionDeficiency", json!({ "type": kind }));
        let clip = json!({ "x": 0, "y": 0, "width": 20 * patterns.len(), "height": 20, "scale": 1 });
        let shot = browser.call("Page.captureScreenshot", json!({ "format": "png", "clip": clip }));
        let colours = middle_row(&decode_base64(shot["data"].as_str().unwrap()));
        let lab: Vec<[f64; 3]> = (0..patterns.len()).map(|number| lab(colours[20 * number + 10])).collect();
        for (from, to) in [(0, stages), (stages, stages + seeks), (stages + seeks, patterns.len())] {
            for one in from..to {
                for other in one + 1..to {
                    let distance = (0..3).map(|axis| (lab[one][axis] - lab[other][axis]).powi(2)).sum::<f64>().sqrt();
                    assert!(patterns[one] != patterns[other] || distance > 8.0, "{kind}: look {one} and {other} of {shown}: {distance}");
                }
            }
        }
        browser.picture(&format!("vision-{kind}"));
    }
    browser.call("Emulation.setEmulatedVisionDeficiency", json!({ "type": "none" }));
    browser.call("Emulation.setDeviceMetricsOverride", json!({ "width": 800, "height": 600, "deviceScaleFactor": 1, "mobile": false }));
    for screen in SCREENS {
        browser.open(&format!("http://{}/#/{screen}", viewer.host()));
        assert_eq!(
            browser.value("document.querySelector('main').scrollWidth <= document.querySelector('main').clientWidth"),
            json!(true),
            "{screen}"
        );
        assert_eq!(browser.value("document.querySelector('header').offsetHeight < 90"), json!(true), "{screen}");
        browser.picture(&format!("small-{screen}"));
    }
    let scheme = json!({ "features": [{ "name": "prefers-color-scheme", "value": "dark" }] });
    browser.call("Emulation.setEmulatedMedia", scheme);
    browser.open(&format!("http://{}/#/timeline", viewer.host()));
    assert_eq!(browser.value("getComputedStyle(document.querySelector('header')).backgroundColor"), json!("rgb(22, 25, 29)"));
    browser.picture("dark-timeline");
    browser.asked_only_of(&[&viewer]);
}

/// Lightness and two colour axes of CIE 1976 (L*a*b*), white at D65.
fn lab([r, g, b]: [u8; 3]) -> [f64; 3] {
    let linear = |value: u8| {
        let share = f64::from(value) / 255.0;
        if share <= 0.04045 { share / 12.92 } else { ((share + 0.055) / 1.055).powf(2.4) }
    };
    let (r, g, b) = (linear(r), linear(g), linear(b));
    let root = |value: f64| if value > 0.008856 { value.cbrt() } else { 7.787 * value + 16.0 / 116.0 };
    let x = root((0.4124 * r + 0.3576 * g + 0.1805 * b) / 0.9505);
    let y = root(0.2126 * r + 0.7152 * g + 0.0722 * b);
    let z = root((0.0193 * r + 0.1192 * g + 0.9505 * b) / 1.089);
    [116.0 * y - 16.0, 500.0 * (x - y), 200.0 * (y - z)]
}

/// The pixels of the row in the middle of a PNG of 8 bits a channel without interlacing, as Chromium writes it.
fn middle_row(png: &[u8]) -> Vec<[u8; 3]> {
    let (mut at, mut width, mut height, mut channels, mut packed) = (8, 0, 0, 0, Vec::new());
    let word = |at: usize| u32::from_be_bytes(png[at..at + 4].try_into().unwrap()) as usize;
    while at < png.len() {
        let (len, data) = (word(at), at + 8);
        match &png[at + 4..at + 8] {
            b"IHDR" => {
                (width, height) = (word(data), word(data + 4));
                assert_eq!((png[data + 8], png[data + 12]), (8, 0), "8 bits, not interlaced");
                channels = if png[data + 9] == 6 { 4 } else { 3 };
            }
            b"IDAT" => packed.extend_from_slice(&png[data..data + len]),
            _ => {}
        }
        at = data + len + 4;
    }
    let mut bytes = Vec::new();
    flate2::read::ZlibDecoder::new(packed.as_slice()).read_to_end(&mut bytes).unwrap();
    let stride = width * channels;
    let mut before = vec![0u8; stride];
    for row in 0..=height / 2 {
        let line = &bytes[row * (stride + 1)..(row + 1) * (stride + 1)];
        let mut now = vec![0u8; stride];
        for column in 0..stride {
            let left = if column < channels { 0 } else { now[column - channels] };
            let (up, corner) = (before[column], if column < channels { 0 } else { before[column - channels] });
            let guess = match line[0] {
                0 => 0,
                1 => left,
                2 => up,
                3 => u8::midpoint(left, up),
                _ => {
                    let straight = i32::from(left) + i32::from(up) - i32::from(corner);
                    let far = |value: u8| (straight - i32::from(value)).abs();
                    if far(left) <= far(up) && far(left) <= far(corner) {
                        left
                    } else if far(up) <= far(corner) {
                        up
                    } else {
                        corner
                    }
                }
            };
            now[column] = line[column + 1].wrapping_add(guess);
        }
        before = now;
    }
    before.chunks(channels).map(|pixel| [pixel[0], pixel[1], pixel[2]]).collect()
}

/// Bounds: facts from a file of ceilings, typed in, or of the thesis; efficiency of what was measured; all of it in the address.
#[test]
fn measurements_are_held_against_bounds_in_a_real_browser() {
    let Some(mut browser) = Browser::new() else {
        eprintln!("skipped: no chromium is installed");
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let row = |name: &str, unit: &str, median: f64| json!({ "name": name, "unit": unit, "median": median, "min": median, "max": median, "note": "" });
    let rows = [
        row("rpc.unix.1x1.p50", "us", 20.0),
        row("rpc.unix.1x32.onecpu", "requests/s", 400_000.0),
        row("bulk.unix.upload.1c", "GiB/s", 4.0),
        row("disk.append.dsync.4KiB.p50", "us", 400.0),
        row("disk.write.durable", "GiB/s", 1.0),
    ];
    fs::write(dir.path().join("ceiling.json"), json!({ "rows": rows, "skipped": [] }).to_string()).unwrap();
    fs::write(dir.path().join("bench.json"), BENCH).unwrap();
    let path = dir.path().to_path_buf();
    let viewer = Viewer::of(dir, &[path], &[]);
    browser.open(&format!("http://{}/#/runs", viewer.host()));
    browser.value("document.activeElement.blur()");
    browser.press("0");
    browser.until("document.querySelectorAll('.page.bounds .drawn svg').length === 3 && weftView.idle");
    browser.picture("bounds");
    // 21000 creates a second by two processes: 2 / 20 us = 100 000 a second is the bound of the network.
    let text = "document.querySelector('.page.bounds').innerText";
    browser.until(&format!("{text}.includes('21 % of 100k/s network')"));
    assert_eq!(browser.value(&format!("/NaN|undefined|Infinity/.test({text})")), json!(false));
    // Typing a fact moves its bounds, and the address keeps it.
    browser.value("(() => { const field = document.querySelector('[data-fact=rtt_us]'); field.value = '40'; field.dispatchEvent(new Event('change')); })()");
    browser.until(&format!("{text}.includes('42 % of 50.0k/s network') && weftView.idle"));
    let address = browser.value("location.href").as_str().unwrap().to_string();
    browser.open(&address);
    browser.until(&format!("{text}.includes('42 % of 50.0k/s network')"));
    browser.open(&format!("http://{}/#/bounds?hw=2006", viewer.host()));
    browser.until("document.querySelector('[data-fact=rtt_us]').value === '520' && weftView.idle");
    browser.picture("bounds-2006");
    browser.asked_only_of(&[&viewer]);
}

/// The report: as a command in both forms, and on the page with the same content; the HTML file works by itself.
#[test]
fn a_report_is_one_file_that_needs_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    make_sample(8_000, 4, &at("before"));
    make_sample(8_000, 1, &at("after"));
    fs::write(at("bench.json"), BENCH).unwrap();
    write_hostile_trace(&at("before").join("hostile.trace"));
    let report = |output: &str| {
        let words = ["before", "after", "bench.json"].map(at);
        weft().args(["report", "--hardware", "2006", "-o"]).arg(at(output)).args(words).output().unwrap()
    };
    for output in ["report.html", "report.md"] {
        let done = report(output);
        assert!(done.status.success(), "{done:?}");
    }
    assert!(!report("report.pdf").status.success());
    let html = fs::read_to_string(at("report.html")).unwrap();
    assert!(html.contains("before (A) against after (B)") && html.contains("Bounds: bench.json"));
    let markdown = fs::read_to_string(at("report.md")).unwrap();
    let pictures: Vec<&str> = markdown.lines().filter_map(|line| line.strip_prefix("![")?.rsplit_once('(')?.1.strip_suffix(')')).collect();
    assert!(pictures.len() > 8 && pictures.iter().all(|picture| at(picture).is_file()), "{pictures:?}");
    assert!(!markdown.contains("<img"));

    let Some(mut browser) = Browser::new() else {
        eprintln!("skipped: no chromium is installed");
        return;
    };
    browser.call("Page.navigate", json!({ "url": format!("file://{}", at("report.html").display()) }));
    browser.until("document.querySelectorAll('svg').length > 8 && document.readyState === 'complete'");
    assert_eq!(browser.value("document.querySelector('img, script, iframe') === null && document.title !== 'broken into'"), json!(true));
    assert_eq!(browser.value("getComputedStyle(document.querySelector('svg .title')).fontSize"), json!("16px"), "styles are inside");
    browser.picture("report-file");
    browser.call("Page.navigate", json!({ "url": "about:blank" }));
    let paths = ["before", "after", "bench.json"].map(at);
    let viewer = Viewer::of(dir, &paths, &[]);
    browser.open(&format!("http://{}/#/overview?b=1", viewer.host()));
    browser.value("document.activeElement.blur()");
    browser.press("r");
    browser.until("document.querySelectorAll('.preview svg').length > 5 && weftView.idle");
    browser.until("document.querySelector('.preview').innerText.includes('<img src=x')");
    assert_eq!(browser.value("document.querySelector('.preview img, .preview script') === null"), json!(true));
    browser.picture("report");
    let asked = browser.events.iter().filter(|event| event["method"] == "Network.requestWillBeSent");
    let asked: Vec<&str> = asked.filter_map(|event| event["params"]["request"]["url"].as_str()).collect();
    let foreign: Vec<&&str> = asked
        .iter()
        .filter(|url| !["file://", "about:", "data:", "http://127.0.0.1:"].iter().any(|begin| url.starts_with(begin)))
        .collect();
    assert_eq!(foreign, Vec::<&&str>::new());
    let refused = |event: &&Value| event["method"] == "Runtime.exceptionThrown" || event["params"]["entry"]["source"] == "security";
    assert_eq!(browser.events.iter().filter(refused).collect::<Vec<_>>(), Vec::<&Value>::new());
}

/// A result of `weft bench`.
const BENCH: &str = r#"[
  {"phase":"create","repetitions":3,"procs":2,"clients":1,"depth":1,"ops":20000,"size_bytes":0,"block_bytes":0,
   "ops_per_s":{"median":21000,"min":19800,"max":22100},"mib_per_s":null,"latency_us":{"p50":88,"p99":320,"max":9000},
   "ceiling":{"name":"rpc.unix.2x1","unit":"ops/s","median":52000,"min":51000,"max":53000},
   "ratio_to_ceiling":{"median":0.4,"min":0.38,"max":0.42}},
  {"phase":"write","repetitions":3,"procs":1,"clients":1,"depth":4,"ops":2000,"size_bytes":268435456,"block_bytes":1048576,
   "ops_per_s":{"median":1200,"min":1100,"max":1300},"mib_per_s":{"median":1200,"min":1100,"max":1300},"latency_us":null}
]"#;
