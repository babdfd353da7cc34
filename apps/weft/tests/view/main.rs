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
use std::process::Command;

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

/// A walk through the page with `node` and a stand-in for a browser.
fn walk(script: &str, viewer: &Viewer) {
    let folder = tempfile::tempdir().unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/view").join(script);
    let walked =
        Command::new("node").arg(script).arg(format!("http://{}", viewer.host())).arg(folder.path().join("page")).output().unwrap();
    let said = String::from_utf8_lossy(&walked.stdout);
    assert!(walked.status.success() && said.contains("walked"), "{said}{}", String::from_utf8_lossy(&walked.stderr));
}

fn has_node() -> bool {
    let is_there = Command::new("node").arg("--version").output().is_ok_and(|answer| answer.status.success());
    if !is_there {
        eprintln!("skipped: no node is installed");
    }
    is_there
}

/// Every feature of the page without a browser, by a stand-in for one.
#[test]
fn the_page_is_walked_through_without_a_browser() {
    if has_node() {
        walk("walk.mjs", &Viewer::new(6_000, |_| {}, &[]));
    }
}

#[test]
fn poor_traces_are_walked_through_without_a_browser() {
    if has_node() {
        walk("poor.mjs", &soundness::poor_traces());
    }
}

#[test]
fn messages_of_a_traced_program_have_arrows() {
    if !has_node() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let project = r#"<?xml version="1.0"?><Application name="run" processCount="2"><Description/><FileList/>
<Topology><Level type="Host"><Level type="Rank"><Level type="Thread"/></Level></Level>
<Node name="n1"><Node name="0"><Node name="0"/></Node></Node><Node name="n2"><Node name="1"><Node name="0"/></Node></Node></Topology>
<CommunicatorList><Communicator name="WORLD"><Rank global="0" local="0" cid="0"/><Rank global="1" local="1" cid="0"/></Communicator></CommunicatorList>
<Datatypes><Rank name="0" thread="0"><NAMED id="1" name="MPI_DOUBLE"/><VECTOR id="2" name="" count="3" blocklength="1" stride="4" oldType="1"/></Rank></Datatypes>
<ExternalStatistics/></Application>"#;
    let rank0 = "<Program timeAdjustment='9'>\n<File_open cid='0' name='out.dat' fid='1' time='0.5' end='0.6'/>
<File_set_view fid='1' offset='100' etid='1' filetid='2' time='0.6' end='0.7'/>
<File_write_at fid='1' offset='1' size='32' time='0.7' end='0.8'/>
<Send size='4096' toRank='1' toTag='2' cid='0' time='1.0' end='1.1'/>\n<Recv fromRank='1' fromTag='3' cid='0' time='1.5' end='2.5'/>\n</Program>\n";
    let rank1 = "<Program timeAdjustment='9'>\n<Recv fromRank='0' fromTag='2' cid='0' time='0.9' end='1.4'/>
<Ssend time='1.4' end='1.5'/>\n<Send size='1' toRank='0' toTag='3' cid='0' time='2.0' end='2.2'/>\n</Program>\n";
    for (name, text) in [("run.proj", project), ("run_n1_0_0.trc", rank0), ("run_n2_1_0.trc", rank1)] {
        fs::write(dir.path().join(name), text).unwrap();
    }
    let path = dir.path().join("run.proj");
    walk("messages.mjs", &Viewer::of(dir, &[path], &[]));
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
