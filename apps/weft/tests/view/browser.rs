//! A real browser, and the pixels that it shows.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::viewer::Viewer;

/// A browser that is driven over its debugging pipe (Chrome DevTools Protocol, messages that end in
/// a zero byte).
pub struct Browser {
    process: Child,
    to: File,
    from: BufReader<File>,
    session: Option<String>,
    next: u64,
    pub events: Vec<Value>,
    _dir: TempDir,
}

impl Browser {
    /// `None` if no browser is installed.
    pub fn new() -> Option<Browser> {
        let name = ["chromium", "chromium-browser", "google-chrome"].into_iter().find(|name| {
            Command::new(name).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
        })?;
        let dir = tempfile::tempdir().unwrap();
        let pipes = ["to", "from"].map(|name| dir.path().join(name));
        pipes.iter().for_each(|pipe| nix::unistd::mkfifo(pipe, nix::sys::stat::Mode::S_IRWXU).unwrap());
        // The browser reads from descriptor 3 and writes to 4; a shell can say so without unsafe
        // code.
        let script = r#"exec "$0" --headless --no-sandbox --disable-gpu --disable-background-networking --no-first-run --remote-debugging-pipe --user-data-dir="$3" about:blank 3<"$1" 4>"$2""#;
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

    pub fn call(&mut self, method: &str, params: Value) -> Value {
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

    pub fn value(&mut self, expression: &str) -> Value {
        let params = json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let result = self.call("Runtime.evaluate", params);
        assert!(result["exceptionDetails"].is_null(), "{expression}: {result}");
        result["result"]["value"].clone()
    }

    /// Waits until an expression holds.
    pub fn until(&mut self, expression: &str) {
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

    pub fn open(&mut self, address: &str) {
        // By way of an empty page, as a change of only the fragment loads nothing.
        self.call("Page.navigate", json!({ "url": "about:blank" }));
        self.call("Page.navigate", json!({ "url": address }));
        self.until("window.weftView && window.weftView.idle");
    }

    /// Another address of a viewer; if its page is open, as a link in it does.
    pub fn go(&mut self, viewer: &Viewer, hash: &str) {
        if self.value("location.host") != json!(viewer.host()) {
            return self.open(&format!("http://{}/{hash}", viewer.host()));
        }
        self.value(&format!("location.hash = '{hash}'"));
        // The page hears of it a moment later.
        self.value("new Promise((wake) => setTimeout(wake, 30))");
        self.until("weftView.idle");
    }

    pub fn press(&mut self, key: &str) {
        let mut params = json!({ "type": "keyDown", "key": key });
        if key.len() == 1 {
            params["text"] = json!(key);
        }
        self.call("Input.dispatchKeyEvent", params);
        self.call("Input.dispatchKeyEvent", json!({ "type": "keyUp", "key": key }));
        std::thread::sleep(Duration::from_millis(60));
    }

    pub fn click(&mut self, x: f64, y: f64) {
        for kind in ["mouseMoved", "mousePressed", "mouseReleased"] {
            let button = if kind == "mouseMoved" { "none" } else { "left" };
            self.call("Input.dispatchMouseEvent", json!({ "type": kind, "x": x, "y": y, "button": button, "clickCount": 1 }));
        }
    }

    pub fn drag(&mut self, (from, to): (f64, f64), y: f64) {
        for (kind, x) in [("mouseMoved", from), ("mousePressed", from), ("mouseMoved", to), ("mouseReleased", to)] {
            let (button, buttons) = if kind == "mouseMoved" && x == from { ("none", 0) } else { ("left", 1) };
            self.call(
                "Input.dispatchMouseEvent",
                json!({ "type": kind, "x": x, "y": y, "button": button, "buttons": buttons, "clickCount": 1 }),
            );
        }
    }

    /// Nothing was asked outside of these viewers, no style or script was refused, and no script
    /// failed.
    pub fn asked_only_of(&self, viewers: &[&Viewer]) {
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

    pub fn picture(&mut self, name: &str) {
        let Some(dir) = std::env::var_os("WEFT_SCREENSHOTS") else { return };
        let shot = self.call("Page.captureScreenshot", json!({ "format": "png" }));
        let bytes = decode_base64(shot["data"].as_str().unwrap());
        fs::create_dir_all(&dir).unwrap();
        fs::write(Path::new(&dir).join(format!("{name}.png")), bytes).unwrap();
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

pub fn decode_base64(text: &str) -> Vec<u8> {
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

/// Lightness and two colour axes of CIE 1976 (L*a*b*), white at D65.
pub fn lab([r, g, b]: [u8; 3]) -> [f64; 3] {
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

/// The pixels of the row in the middle of a PNG of 8 bits a channel without interlacing, as
/// Chromium writes it.
pub fn middle_row(png: &[u8]) -> Vec<[u8; 3]> {
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
