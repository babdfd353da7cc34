//! What `weft explain` says about a file system that hangs, and what it refuses, with real
//! processes.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;
use weft_system_tests::{FileSystem, Need, available, fails, ok, weft};

/// Reads and writes files of two data servers until it is told to stop.
struct Work {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Work {
    fn begin(fs: &FileSystem, pause: Duration) -> Work {
        let stop = Arc::new(AtomicBool::new(false));
        let work = |name: &str| {
            let (dir, stop) = (fs.mnt().join(name), stop.clone());
            fs::create_dir(&dir).expect("a directory");
            std::thread::spawn(move || {
                for number in 0u32.. {
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                    let path: PathBuf = dir.join(format!("{}", number % 8));
                    // A server that hangs may make one of these fail.
                    let _ = fs::write(&path, vec![7; 300_000]).and_then(|()| fs::read(&path));
                    std::thread::sleep(pause);
                }
            })
        };
        let threads = ["a", "b"].map(work).into();
        Work { stop, threads }
    }

    fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    }
}

fn explain(fs: &FileSystem, words: &[&str]) -> Child {
    let mut command: Command = weft();
    command.arg("explain").arg(fs.state()).args(words).stdout(Stdio::piped()).spawn().expect("weft is there")
}

fn report(child: Child) -> Value {
    let out = child.wait_with_output().expect("it ends");
    serde_json::from_slice(&out.stdout).unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&out.stdout)))
}

#[test]
fn a_server_that_hangs_is_named_and_the_next_recording_has_no_ghost() {
    if !available("a_server_that_hangs_is_named", &[Need::Fuse]) {
        return;
    }
    let fs = FileSystem::mounted(&["--meta", "1", "--data", "2"]);
    let work = Work::begin(&fs, Duration::ZERO);
    let recording = explain(&fs, &["--seconds", "3", "--json"]);
    std::thread::sleep(Duration::from_millis(1_500));
    fs.signal("data1", Signal::STOP);
    let hung = report(recording);
    fs.signal("data1", Signal::CONT);
    let first = &hung["suspects"][0];
    assert_eq!((first["stage"].as_str(), first["place"].as_str()), (Some("no_answer"), Some("data1")), "{hung:#}");
    let verdict = hung["verdict"][0]["sentence"].as_str().expect("a sentence");
    assert!(verdict.contains("for data1, no answer since"), "{hung:#}");
    let unfinished = hung["unfinished"].as_array().expect("a list");
    assert!(unfinished.iter().any(|open| open["server"] == "data1"), "{hung:#}");
    work.end();

    // Nothing is recorded for a while; what comes then begins when it begins.
    std::thread::sleep(Duration::from_secs(2));
    let work = Work::begin_again(&fs);
    let again = report(explain(&fs, &["--seconds", "0.5", "--json"]));
    work.end();
    let recorded = again["recorded_seconds"].as_f64().expect("seconds");
    assert!(recorded < 1.5, "a recording of half a second, after a pause of two: {recorded} s");
    assert_eq!(again["silent"].as_array().map(Vec::len), Some(0), "{again:#}");
    fs.down();
}

impl Work {
    fn begin_again(fs: &FileSystem) -> Work {
        ["a", "b"].iter().for_each(|name| fs::remove_dir_all(fs.mnt().join(name)).expect("made before"));
        Work::begin(fs, Duration::ZERO)
    }
}

#[test]
fn two_recordings_in_one_folder_are_refused_and_a_damaged_file_is_left_out() {
    if !available("two_recordings_in_one_folder", &[Need::Fuse]) {
        return;
    }
    let fs = FileSystem::mounted(&["--meta", "1", "--data", "1"]);
    let folder = fs.path("kept");
    // Long enough for a program that gets little of a busy machine.
    let keep = ["--seconds", "2", "--keep", folder.to_str().expect("a path of this test")];
    let work = Work::begin(&fs, Duration::from_millis(20));
    let text = ok(weft().arg("explain").arg(fs.state()).args(keep));
    // The verdict comes before the tables, and how much of the time it is about.
    let lines: Vec<&str> = text.lines().collect();
    let table = lines.iter().position(|line| line.contains("times, ")).expect("kinds of operations");
    assert!(lines[..table].iter().any(|line| line.contains("Look at: ")), "{text}");
    assert!(lines[..table].iter().any(|line| line.contains("that were recorded")), "{text}");
    let words = fails(weft().arg("explain").arg(fs.state()).args(keep));
    assert!(words.contains("holds a recording already"), "{words}");
    work.end();

    let files = || fs::read_dir(&folder).expect("kept").flatten().map(|entry| entry.path());
    let damaged = files().find(|path| path.to_string_lossy().contains("data0")).expect("a file of data0");
    let mut bytes = fs::read(&damaged).expect("a trace");
    bytes[30] ^= 0xFF;
    fs::write(&damaged, bytes).expect("it is ours");
    let explained = ok(weft().arg("explain").arg(&folder));
    assert!(explained.contains("data0") && explained.contains("this file is left out"), "{explained}");
    for path in files().filter(|path| *path != damaged) {
        fs::remove_file(path).expect("it is ours");
    }
    assert!(fails(weft().arg("explain").arg(&folder)).contains("left out"));
    fs.down();
}
