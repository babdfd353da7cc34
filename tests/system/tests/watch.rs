//! Watching a tree through real processes: what a mount does is told, over the ends of servers and
//! of the one who watches.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use serde_json::Value;
use weft_system_tests::{FileSystem, Need, available, fails, ok, wait_until, weft};

const PATIENCE: Duration = Duration::from_secs(60);

/// `weft watch` and what it says.
struct Watch {
    process: Child,
    lines: Receiver<Value>,
}

impl Watch {
    fn begin(fs: &FileSystem, args: &[&str]) -> Watch {
        let mut command = weft();
        command.args(["watch", "--json"]).args(args).arg(fs.at("/watched")).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = command.spawn().expect("weft is there");
        let output = BufReader::new(process.stdout.take().expect("its output"));
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                sender.send(serde_json::from_str(&line).expect("JSON")).ok();
            }
        });
        Watch { process, lines }
    }

    /// Waits for an event about a path.
    fn wait_for(&self, event: &str, path: &str) -> Value {
        loop {
            let told = self.lines.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("{event} of {path} is not told"));
            assert_ne!(told["event"], "lost", "{told}");
            let outside = told["path"].as_str().is_some_and(|path| !path.starts_with("/watched"));
            assert!(!outside, "{told}");
            if told["event"] == event && (path.is_empty() || told["path"] == path) {
                return told;
            }
        }
    }

    fn cursor(&self) -> String {
        self.wait_for("cursor", "")["cursor"].as_str().expect("text").to_string()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

#[test]
fn promise_changes_are_told() {
    if !available("promise_changes_are_told", &[Need::Fuse]) {
        return;
    }
    let fs = FileSystem::mounted(&["--meta", "2", "--data", "1"]);
    let (watched, other) = (fs.mnt().join("watched"), fs.mnt().join("other"));
    for dir in [&watched, &other] {
        fs::create_dir(dir).unwrap();
    }
    fs::create_dir(watched.join("dir")).unwrap();
    let watch = Watch::begin(&fs, &[]);
    let cursor = watch.cursor();
    fs::write(watched.join("dir/file"), "text").unwrap();
    assert_eq!(watch.wait_for("created", "/watched/dir/file")["kind"], "file");
    watch.wait_for("written", "/watched/dir/file");
    // Two names, and what they are in JSON, as every other command says them.
    for name in ["a\nb", "a\\nb"] {
        fs::write(watched.join("dir").join(name), "text").unwrap();
        watch.wait_for("created", &format!("/watched/dir/{name}"));
    }
    fs::write(other.join("file"), "text").unwrap();
    fs::rename(watched.join("dir/file"), watched.join("dir/renamed")).unwrap();
    assert_eq!(watch.wait_for("renamed", "/watched/dir/file")["to"], "/watched/dir/renamed");
    // Something that comes with all that is in it.
    fs::create_dir_all(other.join("a/b")).unwrap();
    fs::write(other.join("a/b/c"), "text").unwrap();
    fs::rename(other.join("a"), watched.join("moved")).unwrap();
    watch.wait_for("created", "/watched/moved");
    watch.wait_for("created", "/watched/moved/b/c");
    // The servers end and come back: it goes on.
    for server in ["meta0", "meta1"] {
        fs.kill(server);
    }
    fs.start(&[]);
    fs::remove_file(watched.join("dir/renamed")).unwrap();
    watch.wait_for("removed", "/watched/dir/renamed");
    drop(watch);
    // Whoever was away hears all of it, from the first cursor on.
    ok(weft().args(["rm", "-r"]).arg(fs.at("/watched/moved")));
    let told = ok(weft().args(["watch", "--once", "--since", &cursor]).arg(fs.at("/watched")));
    for line in [
        "created /watched/dir/file",
        "renamed /watched/dir/file -> /watched/dir/renamed",
        "removed /watched/dir/renamed",
        "created /watched/moved",
        "removed /watched/moved",
    ] {
        assert!(told.lines().any(|told| told == line), "{line}\n{told}");
    }
    assert!(!told.contains("lost") && !told.contains("/other"), "{told}");
    // Nothing new behind the last cursor; a cursor of another file system is of no use.
    let last = told.lines().last().and_then(|line| line.strip_prefix("cursor ")).expect("a cursor is the last");
    let nothing = ok(weft().args(["watch", "--once", "--since", last]).arg(fs.at("/watched")));
    assert_eq!(nothing, format!("cursor {last}\n"), "one line, from which to go on");
    let lost = ok(weft().args(["watch", "--once", "--since", "0=1.5.0.0,1=1.5.0.0"]).arg(fs.at("/watched")));
    assert_eq!(lost.lines().filter(|line| line.starts_with("lost at meta")).count(), 2, "{lost}");
    assert!(fails(weft().args(["watch", "--since", "yesterday"]).arg(fs.at("/watched"))).contains("no cursor"));
}

/// Nobody waits for what cannot come: for changes of a directory that is gone, for a server that is
/// not there.
#[test]
fn a_watch_ends_with_its_directory() {
    let fs = FileSystem::up(&["--meta", "2", "--data", "1"]);
    ok(weft().args(["mkdir", "-p"]).args([fs.at("/watched/dir/sub"), fs.at("/other")]));
    let mut watch = Watch::begin(&fs, &[]);
    watch.cursor();
    ok(weft().args(["rm", "-r"]).arg(fs.at("/watched")));
    watch.wait_for("removed", "/watched/dir");
    assert_eq!(watch.wait_for("removed", "/watched")["kind"], "directory");
    wait_until("the end of the watch", PATIENCE, || watch.process.try_wait().unwrap().is_some());
    let error = fails(weft().args(["watch", "--since", "9=1.5.0.0"]).arg(fs.at("/other")));
    assert!(error.contains("another file system"), "{error}");
}

#[test]
fn an_engine_without_a_journal_says_so() {
    let fs = FileSystem::up(&["--data", "1", "--engine", "memory"]);
    assert!(fails(weft().arg("watch").arg(fs.at("/"))).contains("not supported"));
}
