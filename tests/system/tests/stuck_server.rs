//! A server that does not answer holds up those who want something of it, and nobody else; and they
//! can be stopped.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use weft_system_tests::{FileSystem, Need, Uring, available, ok, states_of_threads, wait_until, weft};

/// The deadline of the mounts in these tests, in seconds: nothing here may take so long.
const DEADLINE_S: u64 = 30;
/// A tenth of it: however busy the machine is, what does not wait for the deadline is done by then.
const SOON: Duration = Duration::from_secs(DEADLINE_S / 10);

/// Three metadata operations and a look at a directory, as another user of the mount makes them.
fn somebody_else_works(mnt: &Path, name: &str) -> Duration {
    let begun = Instant::now();
    let dir = mnt.join(name);
    fs::create_dir(&dir).expect("the metadata server answers");
    assert!(fs::metadata(&dir).expect("the metadata server answers").is_dir());
    assert!(fs::read_dir(mnt).expect("the metadata server answers").count() > 1);
    fs::remove_dir(&dir).expect("the metadata server answers");
    begun.elapsed()
}

fn threads_of(process: u32) -> usize {
    states_of_threads(process).len()
}

fn reader(path: &Path) -> Child {
    Command::new("cat").arg(path).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("cat runs")
}

/// True if a process has got so far as to have the file open, and is about to read.
fn has_open(child: &Child, path: &Path) -> bool {
    let open = fs::read_dir(format!("/proc/{}/fd", child.id())).into_iter().flatten().flatten();
    open.filter_map(|entry| fs::read_link(entry.path()).ok()).any(|target| target == path)
}

fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).expect("the child lives");
}

/// How long it takes a child to end.
fn time_to_end(child: &mut Child) -> Duration {
    let begun = Instant::now();
    wait_until("the end of a program that got a signal", Duration::from_secs(2 * DEADLINE_S), || {
        child.try_wait().expect("a child").is_some()
    });
    begun.elapsed()
}

fn hung_server_holds_up_only_its_own(test: &str, options: &str) {
    if !available(test, &[Need::Fuse]) {
        return;
    }
    let timeout = DEADLINE_S.to_string();
    // Past the page cache of the kernel: what waits there can be ended but not diverted.
    let options = format!("cache_ms=0,direct_from=64KiB{options}");
    let fs = FileSystem::mounted(&["--meta", "1", "--data", "1", "--timeout", &timeout, "-o", &options]);
    let mnt = fs.mnt();
    let file = |number: usize| mnt.join(format!("file{number}"));
    (0..52).for_each(|number| fs::write(file(number), vec![7; 300_000]).expect("the servers answer"));
    somebody_else_works(&mnt, "before");
    let mount = fs.mount_pid(&mnt);
    let threads_before = threads_of(mount);
    fs.signal("data0", Signal::STOP);
    let mut readers = Vec::new();
    for count in [12, 40] {
        let first = readers.len();
        readers.extend((first..first + count).map(|number| reader(&file(number))));
        // All of them wait: each has a thread of the mount.
        wait_until("all readers to wait for the server", SOON * 3, || {
            threads_of(mount) >= readers.len() && readers.iter().enumerate().all(|(number, reader)| has_open(reader, &file(number)))
        });
        let took = somebody_else_works(&mnt, &format!("beside{count}"));
        assert!(took < SOON, "{took:?} beside {count} readers that wait");
    }
    // Programs that wait can be stopped, in the usual way and by force.
    for (reader, with) in readers.iter_mut().zip([Signal::INT, Signal::KILL, Signal::TERM]) {
        signal(reader, with);
        let took = time_to_end(reader);
        assert!(took < SOON, "{took:?} until {with:?} ended a reader");
    }
    // One that catches the signal hears of it.
    let script = "trap 'exit 9' INT; read line < \"$0\"; exit 1";
    let mut catching = Command::new("sh").args(["-c", script]).arg(file(0)).spawn().expect("sh runs");
    wait_until("one more reader to wait", SOON * 3, || has_open(&catching, &file(0)));
    std::thread::sleep(Duration::from_millis(100));
    signal(&catching, Signal::INT);
    let took = time_to_end(&mut catching);
    assert!(took < SOON, "{took:?} until a handler ran");
    assert_eq!(catching.wait().expect("a child").code(), Some(9));
    // When the server answers again, those who have waited get their data, and the threads go.
    fs.signal("data0", Signal::CONT);
    for mut reader in readers.drain(3..) {
        assert!(reader.wait().expect("a child").success(), "a reader that waited has its data");
    }
    // Over io_uring they sleep, with their entries. A thread ends after a request that it has
    // served, and the kernel gives each request to the one that has waited longest.
    if !options.contains("uring") {
        wait_until("the threads that are not needed any more to end", Duration::from_secs(60), || {
            fs::metadata(&mnt).expect("the metadata server answers");
            threads_of(mount) <= threads_before + 1
        });
    }
    assert_eq!(fs::read(file(0)).expect("the servers answer"), vec![7; 300_000]);
    fs.down();
}

#[test]
fn promise_hung_server_holds_up_only_its_own() {
    hung_server_holds_up_only_its_own("promise_hung_server_holds_up_only_its_own", ",transport=device");
}

/// A listing shows a file that another mount is writing although its data server does not answer;
/// only who wants the true size waits for it.
#[test]
fn a_directory_is_listed_beside_a_dead_data_server() {
    if !available("a_directory_is_listed_beside_a_dead_data_server", &[Need::Fuse, Need::Programs(&["ls"])]) {
        return;
    }
    let timeout = DEADLINE_S.to_string();
    let fs = FileSystem::mounted(&["--meta", "1", "--data", "2", "--timeout", &timeout]);
    let other = fs.mount("other", "");
    let dir = fs.mnt().join("dir");
    fs::create_dir(&dir).expect("the servers answer");
    let open: Vec<fs::File> = (0..20)
        .map(|number| {
            let mut file = fs::File::create_new(dir.join(format!("file{number}"))).expect("the servers answer");
            file.write_all(b"0123456789").expect("the servers answer");
            file
        })
        .collect();
    let list = || {
        let begun = Instant::now();
        let text = ok(Command::new("ls").arg("-l").arg(other.join("dir")));
        (text.lines().filter(|line| line.contains(" file")).count(), begun.elapsed())
    };
    assert_eq!(list().0, open.len());
    let sizes = ok(Command::new("ls").arg("-l").arg(other.join("dir")));
    assert!(sizes.lines().skip(1).all(|line| line.contains(" 10 ")), "{sizes}");
    fs.kill("data0");
    fs.signal("data1", Signal::STOP);
    // Whatever is remembered is too old by then.
    std::thread::sleep(Duration::from_millis(1100));
    let (files, took) = list();
    assert_eq!(files, open.len());
    assert!(took < SOON, "{took:?} for a listing");
    fs.signal("data1", Signal::CONT);
    fs.start(&[]);
    drop(open);
    wait_until("true sizes", SOON * 3, || ok(Command::new("ls").arg("-l").arg(other.join("dir"))).matches(" 10 ").count() == 20);
    fs.down();
}

#[test]
fn a_hung_server_holds_up_only_its_own_over_io_uring() {
    let test = "a_hung_server_holds_up_only_its_own_over_io_uring";
    let Some(_switched) = Uring::on(test) else { return };
    hung_server_holds_up_only_its_own(test, ",transport=uring");
}

/// The same for names: programs that wait for one metadata server do not keep those from working
/// that want another.
fn hung_metadata_server_holds_up_only_its_own(test: &str, options: &str) {
    if !available(test, &[Need::Fuse, Need::Programs(&["stat"])]) {
        return;
    }
    let timeout = DEADLINE_S.to_string();
    let options = format!("cache_ms=0{options}");
    let fs = FileSystem::mounted(&["--meta", "2", "--data", "1", "--timeout", &timeout, "-o", &options]);
    let dirs: Vec<_> = (0..16).map(|number| fs.mnt().join(format!("dir{number}"))).collect();
    dirs.iter().for_each(|dir| fs::create_dir(dir).expect("the servers answer"));
    // The root is on the first server.
    let on = |server: &str| dirs.iter().find(|dir| fs.server_of(dir) == server).expect("sixteen directories lie on both servers");
    let (works, hangs) = (on("meta0"), on("meta1"));
    // Over io_uring, threads that are started get what waits already by the help of some file.
    fs::write(works.join("file"), "x").expect("the servers answer");
    let mount = fs.mount_pid(&fs.mnt());
    fs.signal("meta1", Signal::STOP);
    let mut waiting: Vec<Child> =
        (0..20).map(|_| Command::new("stat").arg(hangs).stdout(Stdio::null()).spawn().expect("stat runs")).collect();
    wait_until("a thread for each", SOON * 3, || threads_of(mount) >= waiting.len());
    let begun = Instant::now();
    for round in 0..10 {
        let file = works.join(format!("file{round}"));
        fs::write(&file, "x").expect("its servers answer");
        assert_eq!(fs::metadata(&file).expect("its servers answer").len(), 1);
        fs::remove_file(&file).expect("its servers answer");
    }
    let took = begun.elapsed();
    assert!(took < SOON, "{took:?} beside {} programs that wait", waiting.len());
    assert!(waiting.iter_mut().all(|program| program.try_wait().expect("a child").is_none()), "they wait");
    fs.signal("meta1", Signal::CONT);
    waiting.iter_mut().for_each(|program| assert!(program.wait().expect("a child").success(), "who waited has an answer"));
    fs.down();
}

#[test]
fn a_hung_metadata_server_holds_up_only_its_own() {
    hung_metadata_server_holds_up_only_its_own("a_hung_metadata_server_holds_up_only_its_own", ",transport=device");
}

#[test]
fn a_hung_metadata_server_holds_up_only_its_own_over_io_uring() {
    let test = "a_hung_metadata_server_holds_up_only_its_own_over_io_uring";
    let Some(_switched) = Uring::on(test) else { return };
    hung_metadata_server_holds_up_only_its_own(test, ",transport=uring");
}

/// However many pages of small files the kernel wants of a server that does not answer, it gets
/// those of another.
#[test]
fn pages_of_a_hung_server_keep_back_no_others() {
    if !available("pages_of_a_hung_server_keep_back_no_others", &[Need::Fuse]) {
        return;
    }
    const FILES: usize = 300;
    let timeout = DEADLINE_S.to_string();
    let fs = FileSystem::mounted(&["--meta", "1", "--data", "2", "--timeout", &timeout]);
    let file = |number: usize| fs.mnt().join(format!("file{number}"));
    // Each on one of both servers.
    (0..FILES).for_each(|number| fs::write(file(number), vec![7; 20_000]).expect("the servers answer"));
    fs.signal("data0", Signal::STOP);
    let mut readers: Vec<Child> = (0..FILES).map(|number| reader(&file(number))).collect();
    let mut done = 0;
    wait_until("the files of the server that answers to be read", SOON * 6, || {
        done = readers.iter_mut().filter_map(|reader| reader.try_wait().expect("a child")).count();
        done > FILES * 2 / 5
    });
    assert!(done < FILES * 3 / 5, "{done} of {FILES} were read: about half of the files lie on the server that does not answer");
    fs.signal("data0", Signal::CONT);
    readers.iter_mut().for_each(|reader| assert!(reader.wait().expect("a child").success(), "a reader that waited has its data"));
    fs.down();
}

/// `weft top --once` says who does not answer, and that all others do, also if what these were
/// asked for has its name at the one that does not.
#[test]
fn top_says_which_server_is_silent() {
    if !available("top_says_which_server_is_silent", &[Need::Fuse]) {
        return;
    }
    let fs = FileSystem::mounted(&["--meta", "2", "--data", "1"]);
    let dirs: Vec<_> = (0..16).map(|number| fs.mnt().join(format!("dir{number}"))).collect();
    dirs.iter().for_each(|dir| fs::create_dir(dir).expect("the servers answer"));
    for dir in dirs.iter().filter(|dir| fs.server_of(dir) == "meta1") {
        let mut file = fs::File::create(dir.join("file")).expect("the servers answer");
        file.write_all(&vec![7; 3 << 20]).expect("the servers answer");
        file.sync_all().expect("the servers answer");
    }
    fs.signal("meta1", Signal::STOP);
    let looked = weft().args(["top", "--once", "--json", "--state"]).arg(fs.state()).output().expect("weft runs");
    fs.signal("meta1", Signal::CONT);
    let report: serde_json::Value = serde_json::from_slice(&looked.stdout).expect("JSON");
    let of_meta1 = |row: &serde_json::Value| row["id"].as_str().is_some_and(|id| id.starts_with("h1."));
    assert!(report["objects"].as_array().expect("a list").iter().any(of_meta1), "{report}");
    let silent: Vec<_> = report["servers"].as_array().expect("a list").iter().filter(|row| row["answers"] == false).collect();
    assert!(!looked.status.success() && silent.len() == 1 && silent[0]["name"] == "meta1", "{report}");
    fs.down();
}
