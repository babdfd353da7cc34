//! `weft up --hosts`: a file system over the hosts of a job. The hosts are addresses and folders of
//! this machine; a fake `ssh` (`hosts/ssh`) leads to them.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use weft_system_tests::{FileSystem, Need, Signal, alive, available, fails, ok, run, signal, wait_until, weft};

const PATIENCE: Duration = Duration::from_secs(60);

struct Hosts(FileSystem);

impl Hosts {
    /// With these hosts; only the first `there` of them exist.
    fn new(names: &[&str], there: usize) -> Hosts {
        let hosts = Hosts(FileSystem::prepare());
        fs::write(hosts.0.path("hosts.txt"), format!("# a job\n{}\n", names.join("\n"))).unwrap();
        for name in &names[..there] {
            fs::create_dir_all(hosts.disk(name)).unwrap();
        }
        hosts
    }

    fn disk(&self, name: &str) -> PathBuf {
        self.0.path("disks").join(name)
    }

    fn weft(&self, args: &[&str]) -> Command {
        let mut command = weft();
        let fake = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/hosts");
        let path = format!("{}:{}", fake.display(), std::env::var("PATH").unwrap_or_default());
        command.args(args).env("PATH", path).env("WEFT_FAKE_HOSTS", self.0.path("disks")).current_dir(self.0.path(""));
        command
    }

    fn up(&self, args: &[&str]) -> Command {
        let mut command = self.weft(&["up", "--state"]);
        command.arg(self.0.state()).args(["--hosts", "hosts.txt"]).args(args);
        command
    }

    fn down(&self, args: &[&str]) -> Command {
        let mut command = self.weft(&["down"]);
        command.arg(self.0.state()).args(args);
        command
    }

    /// True while a `weft cp` copies to the results.
    fn copies(&self) -> bool {
        let results = self.0.path("results").into_os_string().into_encoded_bytes();
        let lines = fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
        lines.into_iter().any(|line| line.split(|byte| *byte == 0).any(|word| word == results))
    }

    /// Nothing of a job is left on the disks of hosts, and no process.
    fn check_gone(&self, names: &[&str]) {
        for name in names {
            wait_until("the end of what is on a host", PATIENCE, || fs::read_dir(self.disk(name)).unwrap().count() == 0);
        }
        wait_until("the end of the servers", PATIENCE, || self.0.processes().is_empty());
        assert!(!self.0.state().join("weft.toml").exists() && !self.0.state().join("key").exists());
    }
}

#[test]
fn a_job_gets_a_file_system_over_its_hosts() {
    let names = ["127.0.0.2", "127.0.0.3"];
    let hosts = Hosts::new(&names, 2);
    let input = hosts.0.path("input");
    fs::create_dir(&input).unwrap();
    (0..20).for_each(|number| fs::write(input.join(format!("f{number}")), format!("{number}")).unwrap());
    ok(&mut hosts.up(&["--data", "3", "--stage-in", "input", "--stage-out", "results"]));
    let state = hosts.0.state();
    let status = ok(hosts.weft(&["status"]).arg(&state));
    for words in ["meta0", "data2", "tcp:127.0.0.2:", "tcp:127.0.0.3:"] {
        assert!(status.contains(words), "{status}");
    }
    assert!(!state.join("server.key").exists() && !state.join("keys").exists(), "only the hosts have the keys of servers");
    // Each host has a config and a key, to be used there.
    let on_host = fs::read_dir(hosts.disk(names[1])).unwrap().next().unwrap().unwrap().path();
    assert_eq!(ok(hosts.weft(&["cat"]).arg(format!("{}:/input/f7", on_host.display()))), "7");
    let calls = fs::read_to_string(hosts.0.path("disks/calls")).unwrap();
    for secret in ["key", "server.key"] {
        let secret = fs::read_to_string(on_host.join(secret)).unwrap();
        assert!(!calls.contains(secret.trim().rsplit(':').next().unwrap()), "a key is on a command line: {calls}");
    }
    assert!(fails(&mut hosts.up(&[])).contains("holds a file system already"));
    assert!(fails(hosts.weft(&["up", "--state"]).arg(&state)).contains("over the hosts of a job"));
    fs::write(hosts.0.path("late"), "late").unwrap();
    ok(hosts.weft(&["cp", "late"]).arg(hosts.0.at("/late")));
    // What cannot be copied out ends nothing.
    fs::write(hosts.0.path("results"), "in the way").unwrap();
    assert!(fails(&mut hosts.down(&[])).contains("results"));
    fs::remove_file(hosts.0.path("results")).unwrap();
    let said = run(&mut hosts.down(&[]), PATIENCE);
    assert!(said.is_success() && !said.words().contains("still connected"), "{}", said.words());
    assert_eq!(fs::read_to_string(hosts.0.path("results/input/f19")).unwrap(), "19");
    assert_eq!(fs::read_to_string(hosts.0.path("results/late")).unwrap(), "late");
    hosts.check_gone(&names);
}

/// What lies on a data server that has died is not copied out; everything else is, and stays.
#[test]
fn what_can_be_read_is_copied_out_beside_a_dead_server() {
    let names = ["127.0.0.2", "127.0.0.3"];
    let hosts = Hosts::new(&names, 2);
    let files: Vec<String> = (0..8).map(|number| format!("f{number}")).chain((0..8).map(|number| format!("in/g{number}"))).collect();
    fs::create_dir(hosts.0.path("in")).unwrap();
    files.iter().for_each(|name| fs::write(hosts.0.path(name), vec![7; 300_000]).unwrap());
    ok(&mut hosts.up(&["--meta", "1", "--data", "2"]));
    let root = files.iter().filter(|name| !name.contains('/'));
    ok(hosts.weft(&["cp", "-r", "--num-dfiles", "1", "in"]).args(root).arg(hosts.0.at("/")));
    let on_host = fs::read_dir(hosts.disk(names[1])).unwrap().next().unwrap().unwrap().path();
    let dead = fs::read_to_string(on_host.join("run/data1.pid")).unwrap();
    let dead: u32 = dead.split_whitespace().next().unwrap().parse().unwrap();
    signal(dead, Signal::KILL).unwrap();
    wait_until("the end of the server", PATIENCE, || !alive(dead));
    let said = fails(&mut hosts.down(&["--stage-out", "results", "--timeout", "2"]));
    let (copied, left): (Vec<&String>, Vec<&String>) = files.iter().partition(|name| hosts.0.path("results").join(name).exists());
    for place in ["f", "in/g"] {
        assert!([&copied, &left].iter().all(|names| names.iter().any(|name| name.starts_with(place))), "{copied:?}, {left:?}");
    }
    assert!(copied.iter().all(|name| fs::read(hosts.0.path("results").join(name)).unwrap() == [7; 300_000]));
    assert!(left.iter().all(|name| said.contains(&format!("cannot copy {}", hosts.0.at(&format!("/{name}"))))), "{said}");
    assert!(said.contains(&format!("{} files or directories were not copied", left.len())) && said.contains("nothing was ended"), "{said}");
    assert!(hosts.weft(&["status"]).arg(hosts.0.state()).output().unwrap().stdout.windows(7).any(|word| word == b"serving"));
    ok(&mut hosts.down(&["--discard"]));
    hosts.check_gone(&names);
}

/// The copy ends with the `weft down` that began it, whether that is asked to stop or killed: it
/// would write, and remove what it cannot finish, beside the next one.
#[test]
fn an_interrupted_copy_out_ends_nothing_and_does_not_go_on() {
    const FILES: usize = 40;
    let names = ["127.0.0.2"];
    let hosts = Hosts::new(&names, 1);
    let (input, content) = (hosts.0.path("in"), vec![7; 1_200_000]);
    fs::create_dir(&input).unwrap();
    (0..FILES).for_each(|number| fs::write(input.join(format!("f{number:02}")), &content).unwrap());
    ok(&mut hosts.up(&["--meta", "1", "--data", "1", "--stage-in", "in", "--stage-out", "results"]));
    let on_host = fs::read_dir(hosts.disk(names[0])).unwrap().next().unwrap().unwrap().path();
    let server = first_number(&on_host.join("run/data0.pid"));
    let results = hosts.0.path("results/in");
    let whole = || fs::read_dir(&results).unwrap().flatten().filter(|file| fs::read(file.path()).unwrap() == content).count();
    for ends in [Signal::TERM, Signal::KILL] {
        signal(server, Signal::STOP).unwrap();
        let down = hosts.down(&[]).stderr(Stdio::piped()).spawn().unwrap();
        wait_until("a copy that has begun", PATIENCE, || results.join("f00").exists());
        signal(down.id(), ends).unwrap();
        // The server goes on when the copy has heard of it.
        std::thread::sleep(Duration::from_millis(300));
        signal(server, Signal::CONT).unwrap();
        let ended = down.wait_with_output().unwrap();
        if ends == Signal::TERM {
            let said = String::from_utf8_lossy(&ended.stderr);
            assert!(ended.status.code() == Some(130) && said.contains("nothing was ended"), "{ended:?}");
            assert!(!hosts.copies(), "`weft down` has waited for it");
        }
        wait_until("the end of the copy", PATIENCE, || !hosts.copies());
        assert!(whole() < FILES && whole() == fs::read_dir(&results).unwrap().count(), "it did not go on, and left nothing incomplete");
        fs::remove_dir_all(&results).unwrap();
    }
    ok(&mut hosts.down(&[]));
    assert_eq!(whole(), FILES);
    // What is not there is told before anything is begun.
    assert!(fails(&mut hosts.up(&["--stage-in", "nothing"])).contains("nothing: No such file"));
    hosts.check_gone(&names);
}

/// What programs write through a mount while `weft down` copies would be in no copy: it unmounts
/// first, and where a program uses the mount nothing is ended.
#[test]
fn what_is_written_through_a_mount_is_copied_out_or_keeps_the_end_away() {
    if !available("what_is_written_through_a_mount_is_copied_out_or_keeps_the_end_away", &[Need::Fuse]) {
        return;
    }
    let names = ["127.0.0.2"];
    let hosts = Hosts::new(&names, 1);
    ok(&mut hosts.up(&["--meta", "1", "--data", "1", "--stage-out", "results", "--mount", "mnt"]));
    let mnt = hosts.0.mnt();
    let mut open = fs::File::create(mnt.join("open")).unwrap();
    for _ in 0..2 {
        open.write_all(b"more").unwrap();
        let said = fails(&mut hosts.down(&[]));
        assert!(said.contains(&format!("cannot unmount {}: ", mnt.display())) && said.contains("nothing was ended"), "{said}");
        assert!(!hosts.0.path("results/open").exists(), "nothing is copied in vain");
    }
    drop(open);
    // A job of its own has a mount that nobody else sees.
    let job = "touch ready; while ! test -e over; do sleep 0.05; done; echo late > $WEFT_MOUNT/late";
    let mut job = hosts.weft(&["run", "--state"]).arg(hosts.0.state()).args(["--", "sh", "-euc", job]).spawn().unwrap();
    wait_until("a job that runs", PATIENCE, || hosts.0.path("ready").exists());
    let said = fails(&mut hosts.down(&[]));
    assert!(said.contains("a job of `weft run`") && said.contains("nothing was ended"), "{said}");
    assert!(mnt.join("open").exists(), "the other mount stays, too");
    // A device, which root only can make, holds nothing and keeps nothing away.
    let _ = run(Command::new("mknod").arg(mnt.join("device")).args(["c", "1", "3"]), PATIENCE);
    fs::write(hosts.0.path("over"), "").unwrap();
    assert!(job.wait().unwrap().success());
    // Who may still write is counted.
    let mut watch = hosts.weft(&["watch"]).arg(hosts.0.at("/")).stdout(Stdio::piped()).spawn().unwrap();
    let mut said = String::new();
    BufReader::new(watch.stdout.take().unwrap()).read_line(&mut said).unwrap();
    let said = run(&mut hosts.down(&[]), PATIENCE);
    assert!(said.is_success() && said.words().contains("clients are still connected: 1;"), "{}", said.words());
    watch.kill().unwrap();
    watch.wait().unwrap();
    assert_eq!(fs::read_to_string(hosts.0.path("results/open")).unwrap(), "moremore");
    assert_eq!(fs::read_to_string(hosts.0.path("results/late")).unwrap(), "late\n");
    hosts.check_gone(&names);
}

/// What others than mounts of this machine change meanwhile is copied, too, or keeps the end away.
#[test]
fn a_change_during_the_copy_out_is_copied_as_well_or_keeps_the_end_away() {
    let names = ["127.0.0.2"];
    let hosts = Hosts::new(&names, 1);
    fs::write(hosts.0.path("large"), vec![7; 20_000_000]).unwrap();
    ok(&mut hosts.up(&["--meta", "1", "--data", "1", "--stage-in", "large", "--stage-out", "results"]));
    let is_over = AtomicBool::new(false);
    let change = |thread: u32| {
        for number in 0.. {
            if is_over.load(Ordering::Relaxed) {
                return;
            }
            ok(hosts.weft(&["mkdir"]).arg(hosts.0.at(&format!("/{thread}-{number}"))));
        }
    };
    let said = std::thread::scope(|scope| {
        (0..3).for_each(|thread| _ = scope.spawn(move || change(thread)));
        let said = fails(&mut hosts.down(&[]));
        is_over.store(true, Ordering::Relaxed);
        said
    });
    assert!(said.contains("which programs change") && said.contains("nothing was ended"), "{said}");
    // A change while the copy is held up by a server.
    let on_host = fs::read_dir(hosts.disk(names[0])).unwrap().next().unwrap().unwrap().path();
    let server = fs::read_to_string(on_host.join("run/data0.pid")).unwrap();
    let server: u32 = server.split_whitespace().next().unwrap().parse().unwrap();
    fs::remove_file(hosts.0.path("results/large")).unwrap();
    signal(server, Signal::STOP).unwrap();
    let down = hosts.down(&[]).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    wait_until("a copy that has begun", PATIENCE, || hosts.0.path("results/large").exists());
    ok(hosts.weft(&["mkdir"]).arg(hosts.0.at("/late")));
    signal(server, Signal::CONT).unwrap();
    let ended = down.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success() && said.contains("while it was copied"), "{ended:?}");
    assert!(hosts.0.path("results/late").is_dir());
    hosts.check_gone(&names);
}

/// A disk that takes what is written and cannot keep it, as a network file system with a quota may:
/// that is told before the only other copy is removed.
#[test]
fn what_is_copied_out_is_on_a_disk_before_anything_is_ended() {
    if !available("what_is_copied_out_is_on_a_disk_before_anything_is_ended", &[Need::Root, Need::LoopDevice]) {
        return;
    }
    let names = ["127.0.0.2"];
    let hosts = Hosts::new(&names, 1);
    fs::write(hosts.0.path("f"), vec![7; 40 << 20]).unwrap();
    ok(&mut hosts.up(&["--meta", "1", "--data", "1", "--stage-in", "f"]));
    let (small, disk) = (hosts.0.path("small"), hosts.0.path("disk"));
    [&small, &disk].iter().for_each(|dir| fs::create_dir(dir).unwrap());
    ok(Command::new("mount").args(["-t", "tmpfs", "-o", "size=24m", "tmpfs"]).arg(&small));
    fs::File::create(small.join("image")).unwrap().set_len(128 << 20).unwrap();
    ok(Command::new("mkfs.ext4").args(["-q", "-F"]).arg(small.join("image")));
    ok(Command::new("mount").args(["-o", "loop"]).arg(small.join("image")).arg(&disk));
    let said = fails(hosts.down(&["--stage-out"]).arg(&disk));
    assert!(said.contains("nothing was ended") && said.contains("disk"), "{said}");
    for place in [&disk, &small] {
        ok(Command::new("umount").arg("--lazy").arg(place));
    }
    ok(hosts.weft(&["ls"]).arg(hosts.0.at("/f")));
    ok(&mut hosts.down(&["--stage-out", "results"]));
    assert!(fs::read(hosts.0.path("results/f")).unwrap() == vec![7; 40 << 20]);
    hosts.check_gone(&names);
}

#[test]
fn a_plan_runs_over_hosts_and_goes_on_without_one_that_dies() {
    let names = ["127.0.0.2", "127.0.0.3"];
    let hosts = Hosts::new(&names, 2);
    fs::create_dir(hosts.0.path("place")).unwrap();
    let plan = "clients = 2\n[local]\nrepetitions = 2\n[[workload]]\nkind = \"names\"\nfiles = 10\nmeasure = [\"create\"]\n";
    fs::write(hosts.0.path("names.toml"), plan).unwrap();
    let words = ["lab", "run", "names.toml", "--path", "place=place", "--hosts", "hosts.txt", "--json"];
    let rows = ok(&mut hosts.weft(&words));
    assert!(rows.contains("\"hosts\": 2") && rows.contains("\"repetitions\": 2"), "{rows}");
    let calls = fs::read_to_string(hosts.0.path("disks/calls")).unwrap();
    assert!(names.iter().all(|name| calls.contains(name)), "a process on each: {calls}");
    // One that says nothing is not waited for.
    let silent = hosts.0.path("disks/127.0.0.9.silent");
    fs::write(&silent, "").unwrap();
    fs::write(hosts.0.path("three.txt"), [&names[..], &["127.0.0.9"]].concat().join("\n")).unwrap();
    let words_of_three = ["lab", "run", "names.toml", "--path", "place=place", "--hosts", "three.txt", "--timeout", "2"];
    let said = fails(hosts.weft(&words_of_three).args(["--out", "three.jsonl", "--set", "clients=3"]));
    assert!(said.contains("lost: host 127.0.0.9: ") && said.contains("no answer in time"), "{said}");
    // The second host is gone from the next turn on.
    let dies = format!("rm -rf {}", hosts.disk(names[1]).display());
    let said = fails(hosts.weft(&words[..7]).args(["--before-each", &dies, "--out", "second.jsonl"]));
    assert!(said.contains("lost: host 127.0.0.3: ") && said.contains("has died on 127.0.0.3"), "{said}");
    let lines = fs::read_to_string(hosts.0.path("second.jsonl")).unwrap();
    assert_eq!(lines.lines().filter(|line| line.contains("\"hosts\":1,")).count(), 2, "all turns, by the other host: {lines}");
}

/// As a shell does whose `.bashrc` writes something.
#[test]
fn what_a_shell_says_before_is_no_answer() {
    let names = ["127.0.0.2", "127.0.0.3"];
    let hosts = Hosts::new(&names, 2);
    let greet = |name: &str| fs::write(hosts.0.path("disks").join(format!("{name}.greeting")), b"\nWelcome\nready\n\xff\n").unwrap();
    greet(names[0]);
    greet(names[1]);
    ok(&mut hosts.up(&[]));
    ok(&mut hosts.down(&[]));
    hosts.check_gone(&names);
}

#[test]
fn a_host_that_does_not_come_up_is_named_and_the_others_end() {
    let names = ["127.0.0.2", "127.0.0.9"];
    let hosts = Hosts::new(&names, 1);
    let words = fails(&mut hosts.up(&[]));
    assert!(words.contains("127.0.0.9 did not come up") && words.contains("No route to host"), "{words}");
    hosts.check_gone(&names[..1]);
    // The same folder may be used again.
    fs::create_dir_all(hosts.disk(names[1])).unwrap();
    ok(&mut hosts.up(&[]));
    ok(&mut hosts.down(&[]));
    hosts.check_gone(&names);
}

/// What is copied is all there is when `weft down` is killed while the servers end: the next one
/// neither asks them for it nor says that nothing was ended.
#[test]
fn a_killed_end_is_finished_by_the_next_one() {
    let names = ["127.0.0.2"];
    let hosts = Hosts::new(&names, 1);
    fs::create_dir(hosts.0.path("in")).unwrap();
    fs::write(hosts.0.path("in/small"), "beside its inode").unwrap();
    ok(&mut hosts.up(&["--meta", "1", "--data", "1", "--stage-in", "in", "--stage-out", "results"]));
    let on_host = fs::read_dir(hosts.disk(names[0])).unwrap().next().unwrap().unwrap().path();
    let server = first_number(&on_host.join("run/data0.pid"));
    // The copy does not need it, and the end waits for it.
    signal(server, Signal::STOP).unwrap();
    let mut down = hosts.down(&[]).spawn().unwrap();
    wait_until("an end that has begun", PATIENCE, || hosts.0.state().join("run/hosts.ended").exists());
    down.kill().unwrap();
    down.wait().unwrap();
    signal(server, Signal::CONT).unwrap();
    let said = ok(&mut hosts.down(&[]));
    assert!(said.contains("everything had been copied to") && said.contains("results"), "{said}");
    assert_eq!(fs::read_to_string(hosts.0.path("results/in/small")).unwrap(), "beside its inode");
    hosts.check_gone(&names);
}

fn first_number(file: &Path) -> u32 {
    fs::read_to_string(file).unwrap().split_whitespace().next().unwrap().parse().unwrap()
}

#[test]
fn hosts_end_when_nobody_holds_them() {
    let names = ["127.0.0.2", "127.0.0.3"];
    let hosts = Hosts::new(&names, 2);
    ok(&mut hosts.up(&[]));
    let holder = first_number(&hosts.0.state().join("run/hosts.pid"));
    signal(holder, Signal::KILL).unwrap();
    wait_until("the end of the holder", PATIENCE, || !alive(holder));
    let refused = fails(&mut hosts.down(&["--stage-out", "results"]));
    assert!(refused.contains("their data is removed") && refused.contains("--discard"), "{refused}");
    for name in names {
        wait_until("the end of what is on a host", PATIENCE, || fs::read_dir(hosts.disk(name)).unwrap().count() == 0);
    }
    let status = fails(hosts.weft(&["status"]).arg(hosts.0.state()));
    assert!(!status.contains("weft up"), "it starts nothing there: {status}");
    assert!(ok(&mut hosts.down(&["--discard"])).contains("had ended already"));
    hosts.check_gone(&names);
}

#[test]
fn a_copy_of_servers_that_end_meanwhile_says_that_they_did() {
    let names = ["127.0.0.2"];
    let hosts = Hosts::new(&names, 1);
    ok(&mut hosts.up(&["--meta", "1", "--data", "1"]));
    let on_host = fs::read_dir(hosts.disk(names[0])).unwrap().next().unwrap().unwrap().path();
    let (server, holder) = (first_number(&on_host.join("run/meta0.pid")), first_number(&hosts.0.state().join("run/hosts.pid")));
    signal(server, Signal::STOP).unwrap();
    let down = hosts.down(&["--stage-out", "results", "--timeout", "4"]).stderr(Stdio::piped()).spawn().unwrap();
    wait_until("a copy that has begun", PATIENCE, || hosts.0.path("results").exists());
    signal(holder, Signal::KILL).unwrap();
    let ended = down.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(!ended.status.success() && said.contains("their data is removed"), "{said}");
    signal(server, Signal::CONT).unwrap();
    ok(&mut hosts.down(&["--discard"]));
    hosts.check_gone(&names);
}

#[test]
fn a_host_that_says_nothing_does_not_hold_up_the_end() {
    let names = ["127.0.0.2", "127.0.0.9"];
    let hosts = Hosts::new(&names, 1);
    let silent = hosts.0.path("disks/127.0.0.9.silent");
    fs::write(&silent, "").unwrap();
    let mut up = hosts.up(&[]).spawn().unwrap();
    let reached = || fs::metadata(&silent).unwrap().len() > 0 && fs::read_dir(hosts.disk(names[0])).unwrap().count() > 0;
    wait_until("hosts that are asked", PATIENCE, reached);
    signal(up.id(), Signal::KILL).unwrap();
    up.wait().unwrap();
    let said = ok(&mut hosts.down(&["--discard"]));
    assert!(said.contains("ended the servers"), "by itself: {said}");
    hosts.check_gone(&names[..1]);
}

/// Ctrl-C at `weft up` before hosts are asked, and when one says nothing and a data server of the
/// other one waits for its metadata server: the same command may come again.
#[test]
fn an_interrupted_start_leaves_nothing() {
    let names = ["127.0.0.2", "127.0.0.3"];
    let hosts = Hosts::new(&names, 0);
    let silent = hosts.0.path("disks/127.0.0.2.silent");
    fs::create_dir_all(hosts.disk(names[1])).unwrap();
    fs::write(&silent, "").unwrap();
    let log = hosts.0.state().join("run/hosts.log");
    for waits_for_a_server in [false, true] {
        let up = hosts.up(&[]).stderr(Stdio::piped()).spawn().unwrap();
        let is_there = |entry: fs::DirEntry| entry.path().join("run/data1.pid").exists();
        let has_server = || fs::read_dir(hosts.disk(names[1])).unwrap().flatten().any(is_there);
        wait_until("a start on hosts", PATIENCE, || if waits_for_a_server { has_server() } else { log.exists() });
        signal(up.id(), Signal::INT).unwrap();
        let ended = up.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&ended.stderr);
        assert!(ended.status.code() == Some(130) && said.contains("no file system was made"), "{ended:?}");
        hosts.check_gone(&names[1..]);
    }
    let log = fs::read_to_string(log).unwrap();
    assert!(!log.contains("does not say"), "it was not waited for in vain: {log}");
    fs::remove_file(&silent).unwrap();
    fs::create_dir(hosts.disk(names[0])).unwrap();
    ok(&mut hosts.up(&[]));
    ok(&mut hosts.down(&[]));
    hosts.check_gone(&names);
}

/// Where a file system of before was mounted is nothing that the next one must not find.
#[test]
fn another_job_takes_the_directory_of_a_mounted_one() {
    if !available("another_job_takes_the_directory_of_a_mounted_one", &[Need::Fuse]) {
        return;
    }
    let names = ["127.0.0.2"];
    let hosts = Hosts::new(&names, 1);
    for words in [&["--mount", "mnt"][..], &[]] {
        ok(&mut hosts.up(words));
        assert_eq!(ok(&mut hosts.down(&[])).contains("unmounted"), !words.is_empty());
        hosts.check_gone(&names);
    }
}
