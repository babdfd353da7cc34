//! The servers in processes of their own: this test program starts itself again as a server.

use std::path::Path;
use std::time::Duration;

use weft_ceiling::null_fuse::{NullFuse, NullFuseConfig};
use weft_ceiling::rpc::{self, Endpoint};
use weft_ceiling::{Reps, ServerRole, ServerSpawner, paths, serve_child};

const SHORT: Reps = Reps::new(Duration::from_millis(10), 3);
/// Stands between the test runner's own words and the words of the role.
const MARK: &str = "ceiling-child";

/// Not a test of its own: the body of the server process, when the words after the mark name a
/// role.
#[test]
fn child_entry() {
    let args: Vec<_> = std::env::args_os().collect();
    if let Some(mark) = args.iter().position(|arg| arg == MARK) {
        let code = match serve_child(&args[mark + 1..]) {
            Ok(()) => 0,
            Err(error) => {
                eprintln!("{error:#}");
                1
            }
        };
        std::process::exit(code);
    }
}

fn spawner() -> ServerSpawner {
    // The runner takes further words as names of tests, of which only the first three match
    // anything.
    ServerSpawner::current_exe(["--exact", "--nocapture", "child_entry", MARK]).expect("a test program knows its path")
}

fn is_alive(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

#[test]
fn requests_to_another_process() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    for endpoint in [Endpoint::Unix(dir.path().join("s")), Endpoint::Tcp(([127, 0, 0, 1], 0).into())] {
        let server = spawner().start(&ServerRole::Rpc(endpoint)).expect("the server starts");
        let pid = server.pid().expect("a process");
        assert!(is_alive(pid) && pid != std::process::id());
        let endpoint = server.endpoint().expect("an endpoint").clone();
        let result = rpc::requests(&endpoint, 2, 1, SHORT).expect("requests are answered");
        assert!(result.rate.min > 0.0);
        server.stop().expect("it ends by itself");
        assert!(!is_alive(pid));
        assert!(rpc::requests(&endpoint, 1, 1, SHORT).is_err());
    }
}

#[test]
fn a_server_that_cannot_start_says_why() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let missing = Endpoint::Unix(dir.path().join("no such directory").join("s"));
    let error = spawner().start(&ServerRole::Rpc(missing)).map(drop).expect_err("nothing to listen on");
    let reason = error.to_string();
    assert!(reason.contains("no such directory") && !reason.contains('\n'), "{reason}");
}

#[test]
fn null_file_system_of_another_process() {
    let null = match NullFuse::start(&spawner(), NullFuseConfig::default()) {
        Ok(null) => null,
        Err(error) => return eprintln!("skipped: {error:#}"),
    };
    let pid = null.pid().expect("a process");
    let place = null.path().to_path_buf();
    let rate = paths::create_close(&null.dirs(2), SHORT).expect("files can be created");
    assert!(rate.min > 0.0);
    drop(null);
    assert!(!is_alive(pid));
    assert!(!place.exists());
}

#[test]
fn a_killed_file_system_leaves_no_mount() {
    let null = match NullFuse::start(&spawner(), NullFuseConfig::default()) {
        Ok(null) => null,
        Err(error) => return eprintln!("skipped: {error:#}"),
    };
    let pid = null.pid().expect("a process");
    let place = null.path().to_path_buf();
    let killed = std::process::Command::new("kill").args(["-9", &pid.to_string()]).status().expect("kill runs");
    assert!(killed.success());
    while paths::fstat(&null.files(1), Reps::new(Duration::from_millis(1), 1)).is_ok() {}
    drop(null);
    assert!(!place.exists());
    let mounts = std::fs::read_to_string("/proc/self/mounts").expect("always there");
    assert!(!mounts.contains(place.to_str().expect("a plain path")), "{mounts}");
}
