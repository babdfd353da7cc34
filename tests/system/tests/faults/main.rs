//! Faults of real processes, put in from outside: by control groups, disks of a server's own,
//! signals, other mounts, programs that ask in a bad way. `weft explain` names the right place
//! first. What needs no root is in `verdicts.rs`; what the machine has not is skipped by name.
//! Ratios and names only: the machine may be busy.

mod crowds;
mod disks;
mod links;
mod mounts;

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::Mutex;
use std::time::Duration;

use rustix::fs::{FlockOperation, fcntl_lock, flock};
use serde_json::Value;
use weft_system_tests::verdict::{Limited, Round, told_of};
use weft_system_tests::{FileSystem, Need, available};

/// They want the machine.
static ALONE: Mutex<()> = Mutex::new(());

const SHAPE: [&str; 4] = ["--meta", "2", "--data", "2"];

fn files(dir: &Path, number: u32) {
    let path = dir.join(format!("f{}", number % 8));
    let _ = fs::write(&path, vec![7; 300_000]).and_then(|()| fs::read(&path));
}

fn names(dir: &Path, number: u32) {
    let path = dir.join(format!("n{}", number % 8));
    let _ = File::create(&path).and_then(|_| fs::remove_file(&path));
}

/// In the directory above, where `meta0` is asked.
fn names_above(dir: &Path, number: u32) {
    names(dir.parent().expect("the mount"), number + dir.as_os_str().len() as u32);
}

/// The first finding of one of these causes, at this place, in one of these stages; empty: any.
#[track_caller]
fn assert_named(told: &[Value], causes: &[&str], place: &str, stages: &[&str]) {
    let first = &told[0];
    let is_one = |of: &[&str], key: &str| of.is_empty() || first[key].as_str().is_some_and(|name| of.contains(&name));
    assert!(is_one(causes, "cause") && is_one(stages, "stage"), "{told:#?}");
    assert!(place.is_empty() || first["place"] == place, "{told:#?}");
}

/// What is said of that work while `trouble` lasts.
fn during<T>(fs: &FileSystem, round: Round, trouble: impl FnOnce() -> T) -> Vec<Value> {
    let held = trouble();
    let told = told_of(fs, (4, "2"), round, |_| ());
    drop(held);
    told
}

fn test(name: &str, needs: &[Need], args: &[&str], test: impl FnOnce(&FileSystem)) {
    if !available(name, &[&[Need::Fuse], needs].concat()) {
        return;
    }
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let fs = FileSystem::mounted(args);
    test(&fs);
    fs.down();
}

/// A part of a processor for this server.
fn quota(name: &str, server: &str, round: Round) {
    test(name, &[Need::ControlGroup("cpu")], &SHAPE, |fs| {
        let pid = fs.pid(server).expect("it runs");
        let told = during(fs, round, || Limited::to_processor(pid, 5));
        assert_named(&told, &["processor"], server, &["processor"]);
    });
}

#[test]
#[ignore = "a campaign: what else the machine does can come first in a verdict"]
fn a_data_server_with_a_quota() {
    quota("a_data_server_with_a_quota", "data1", files);
}

#[test]
#[ignore = "a campaign: what else the machine does can come first in a verdict"]
fn a_metadata_server_with_a_quota() {
    quota("a_metadata_server_with_a_quota", "meta0", names_above);
}

#[test]
#[ignore = "a campaign: what else the machine does can come first in a verdict"]
fn a_mount_with_a_quota() {
    test("a_mount_with_a_quota", &[Need::ControlGroup("cpu")], &SHAPE, |fs| {
        let pid = fs.mount_pid(&fs.mnt());
        let told = during(fs, files, || Limited::to_processor(pid, 20));
        assert_named(&told, &["processor"], "mount-mnt", &["processor"]);
    });
}

/// Programs that take a processor.
struct Hogs(Vec<Child>);

impl Hogs {
    fn on(processor: &str, count: usize) -> Hogs {
        let hog = |_| {
            // Others can go elsewhere; who is bound to this processor gets little of it.
            Command::new("setsid")
                .args(["nice", "-n", "-10", "taskset", "-c", processor, "sh", "-c", "while :; do :; done"])
                .spawn()
                .expect("setsid is installed")
        };
        Hogs((0..count).map(hog).collect())
    }
}

impl Drop for Hogs {
    fn drop(&mut self) {
        for hog in &mut self.0 {
            let _ = hog.kill();
            let _ = hog.wait();
        }
    }
}

/// Of this server alone, if there is more than this processor for all others.
fn taken(name: &str, server: &str, round: Round) {
    test(name, &[Need::Root, Need::Programs(&["taskset", "setsid", "nice"])], &SHAPE, |fs| {
        let pid = fs.pid(server).expect("it runs").to_string();
        weft_system_tests::ok(Command::new("taskset").args(["-a", "-c", "-p", "0", &pid]));
        let told = during(fs, round, || Hogs::on("0", 4));
        assert_named(&told, &["processor"], server, &["processor"]);
    });
}

#[test]
#[ignore = "a campaign: what else the machine does can come first in a verdict"]
fn a_processor_that_others_take() {
    taken("a_processor_that_others_take", "data1", files);
}

#[test]
#[ignore = "a campaign: what else the machine does can come first in a verdict"]
fn a_processor_of_a_metadata_server_that_others_take() {
    taken("a_processor_of_a_metadata_server_that_others_take", "meta0", names_above);
}

fn frozen(name: &str, server: &str, round: Round) {
    test(name, &[Need::ControlGroup("freezer")], &SHAPE, |fs| {
        let limited = Limited::new("freezer", fs.pid(server).expect("it runs"), &[]);
        let told = told_of(fs, (4, "2.5"), round, |goes_on| {
            goes_on(Duration::from_millis(500));
            limited.set("freezer.state", "FROZEN");
            goes_on(Duration::from_millis(2000));
            limited.set("freezer.state", "THAWED");
        });
        assert_named(&told, &["no_answer"], server, &["no_answer"]);
    });
}

#[test]
#[ignore = "a campaign: what else the machine does can come first in a verdict"]
fn a_frozen_data_server() {
    frozen("a_frozen_data_server", "data0", files);
}

#[test]
#[ignore = "a campaign: what else the machine does can come first in a verdict"]
fn a_frozen_metadata_server() {
    frozen("a_frozen_metadata_server", "meta0", names_above);
}

/// It dies while it is recorded, and nobody starts it again.
fn killed(name: &str, server: &str, round: Round) {
    test(name, &[], &SHAPE, |fs| {
        let told = told_of(fs, (4, "2"), round, |goes_on| {
            goes_on(Duration::from_millis(1200));
            fs.kill(server);
            while goes_on(Duration::from_millis(100)) {}
            weft_system_tests::ok(weft_system_tests::weft().arg("up").arg(fs.state()));
        });
        assert_named(&told, &["no_answer"], server, &["no_answer", "retry"]);
    });
}

#[test]
#[ignore = "a campaign: what else the machine does can come first in a verdict"]
fn a_dead_data_server() {
    killed("a_dead_data_server", "data1", |dir, number| {
        let _ = fs::write(dir.join(format!("f{number}")), vec![7; 300_000]);
    });
}

#[test]
#[ignore = "a campaign: what else the machine does can come first in a verdict"]
fn a_dead_metadata_server() {
    killed("a_dead_metadata_server", "meta0", names_above);
}

/// Another mount holds the lock all the time.
#[test]
#[ignore = "a campaign: what else the machine does can come first in a verdict"]
fn a_lock_that_another_mount_keeps() {
    test("a_lock_that_another_mount_keeps", &[], &["--meta", "1", "--data", "1"], |fs| {
        let other = fs.mount("other", "");
        let held = File::create(other.join("lock")).expect("a file");
        let wait = |dir: &Path, _| {
            let file = File::options().append(true).open(dir.parent().expect("the mount").join("lock")).expect("a file");
            flock(&file, FlockOperation::LockExclusive).expect("its turn comes");
        };
        let told = told_of(fs, (4, "2"), wait, |goes_on| {
            goes_on(Duration::from_millis(1000));
            flock(&held, FlockOperation::LockExclusive).expect("its turn comes");
            while goes_on(Duration::from_millis(100)) {}
            flock(&held, FlockOperation::Unlock).expect("it is held");
        });
        assert_named(&told, &["application_lock"], "meta0", &["lock"]);
    });
}

#[test]
#[ignore = "a campaign: what else the machine does can come first in a verdict"]
fn ranges_that_are_locked_by_fcntl() {
    test("ranges_that_are_locked_by_fcntl", &[], &["--meta", "1", "--data", "1"], |fs| {
        let other = fs.mount("other", "");
        let path = other.join("lock");
        File::create(&path).expect("a file");
        let round = |dir: &Path, _| {
            // A process has its locks together: the two mounts are two owners.
            let mount = dir.parent().expect("the mount");
            let here = if dir.ends_with("d0") { mount.to_path_buf() } else { mount.with_file_name("other") };
            if !dir.ends_with("d0") && !dir.ends_with("d1") {
                return std::thread::sleep(Duration::from_millis(10));
            }
            let file = File::options().read(true).write(true).open(here.join("lock")).expect("a file");
            fcntl_lock(&file, FlockOperation::LockExclusive).expect("its turn comes");
            std::thread::sleep(Duration::from_millis(100));
            fcntl_lock(&file, FlockOperation::Unlock).expect("it is held");
        };
        let told: Vec<Value> = told_of(fs, (2, "1.5"), round, |_| ()).into_iter().filter(|one| one["cause"] != "unfinished").collect();
        assert_named(&told, &["application_lock"], "meta0", &["lock"]);
    });
}

#[test]
#[ignore = "a campaign: what else the machine does can come first in a verdict"]
fn one_request_after_the_other() {
    test("one_request_after_the_other", &[], &["--meta", "1", "--data", "2"], |fs| {
        let round: Round = |dir, number| {
            let file = File::options().create(true).read(true).write(true).truncate(false).open(dir.join("f")).expect("a file");
            file.write_all_at(&vec![7; 1 << 20], u64::from(number % 64) << 20).expect("there is room");
        };
        let told = told_of(fs, (1, "1.5"), round, |_| ());
        let cause = told[0]["cause"].as_str();
        assert!(matches!(cause, Some("few_in_flight" | "processor" | "program" | "place")), "{told:#?}");
    });
}

#[test]
#[ignore = "a campaign: what else the machine does can come first in a verdict"]
fn small_reads_in_disorder() {
    test("small_reads_in_disorder", &[], &["--meta", "1", "--data", "1"], |fs| {
        let round: Round = |dir, number| {
            let file = File::options().create(true).write(true).truncate(false).open(dir.join("f")).expect("a file");
            for piece in 0..100u64 {
                let at = (u64::from(number) * 100 + piece) * 7919 % 4096 * 4096;
                file.write_all_at(&[7; 512], at).expect("there is room");
            }
        };
        let told = told_of(fs, (4, "1.5"), round, |_| ());
        assert!(matches!(told[0]["cause"].as_str(), Some("small_pieces" | "processor")), "{told:#?}");
    });
}
