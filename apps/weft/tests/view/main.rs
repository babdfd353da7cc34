//! `weft view` as a person uses it: the real program, real sockets, and, if one is installed, a
//! real browser that is driven over its debugging pipe.
//! `WEFT_SCREENSHOTS=DIR cargo test -p weft --test view` keeps a picture of every screen.

mod browser;
mod page;
#[path = "../../../../lab/analysis/tests/sample/mod.rs"]
mod sample;
mod soundness;
mod viewer;

use std::fs;
use std::path::Path;

use viewer::Viewer;

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
fn a_token_is_asked_for() {
    let viewer = Viewer::new(200, |_| {}, &["--port", "0"]);
    let (host, token) = viewer.address.split_once("/?token=").expect("the printed address has a token");
    assert_eq!(token.len(), 32);
    let with = |target: &str, cookie: &str| {
        viewer.send(&format!("GET {target} HTTP/1.1\r\nHost: {host}\r\nCookie: {cookie}\r\nConnection: close\r\n\r\n"))
    };
    let cookie = format!("weft_view_{}", host.rsplit_once(':').expect("a port").1);
    assert_eq!(with("/", "").0, 401, "on this machine too");
    assert_eq!(with("/api/state", "weft_view=00000000000000000000000000000000").0, 401);
    let (status, text) = with(&format!("/?token={token}"), "");
    assert!(status == 303 && text.contains(&format!("Set-Cookie: {cookie}={token}; HttpOnly")), "{text}");
    assert_eq!(with("/api/state", &format!("{cookie}={token}")).0, 200);
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
