//! Servers and mounts as processes in the background: what they inherit, what they log, which
//! signals end them, and several commands that start them at once.

use std::fs;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use weft_system_tests::{FileSystem, Need, alive, available, fails, ok, run, signal, wait_until, weft};

const PATIENCE: Duration = Duration::from_secs(60);

/// `new` is decided under the lock: one command makes the file system, the others find it or say
/// who works on it.
#[test]
fn first_ups_at_once_make_one_file_system() {
    for round in 0..4 {
        let fs = FileSystem::prepare();
        let start = || {
            let mut command = weft();
            command.args(["up", "--meta", "1", "--data", "1", "--state"]).arg(fs.state());
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
        };
        let children: Vec<_> = (0..4).map(|_| start()).collect();
        let mut made = 0;
        for mut child in children {
            let mut words = String::new();
            // To its end: nothing in the background keeps the pipe open.
            child.stderr.take().unwrap().read_to_string(&mut words).unwrap();
            let is_success = child.wait().unwrap().success();
            assert!(is_success || words.contains("another `weft up`"), "round {round}: {words}");
            made += u32::from(is_success);
        }
        assert!(made >= 1, "round {round}: nobody made it");
        fs.start(&[]);
        fs::write(fs.path("text"), "kept").unwrap();
        ok(weft().arg("cp").arg(fs.path("text")).arg(fs.at("/text")));
        fs.down();
        fs.start(&[]);
        assert_eq!(ok(weft().arg("cat").arg(fs.at("/text"))), "kept", "round {round}");
    }
}

/// A lock and a pipe of whoever starts a file system are free when the command has ended.
#[test]
fn processes_in_the_background_keep_no_descriptor() {
    if !available("processes_in_the_background_keep_no_descriptor", &[Need::Fuse]) {
        return;
    }
    let fs = FileSystem::prepare();
    let weft_path = weft().get_program().to_os_string();
    let script = r#"exec 9>"$1" 8>&1; flock 9; exec "$2" up --state "$3" --mount "$4""#;
    let mut shell = Command::new("sh");
    shell.args(["-euc", script, "sh"]).arg(fs.path("lock")).arg(weft_path).arg(fs.state()).arg(fs.mnt());
    let mut child = shell.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut words = String::new();
    child.stdout.take().unwrap().read_to_string(&mut words).unwrap();
    assert!(child.wait().unwrap().success() && words.contains("mounted at"), "{words}");
    // They live on: the pipe did not end with them.
    assert_eq!(fs.processes().len(), 4, "three servers and a mount");
    let lock = fs::File::open(fs.path("lock")).unwrap();
    lock.try_lock().expect("nobody holds it any more");
    for pid in fs.processes() {
        for entry in fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten() {
            let target = fs::read_link(entry.path()).unwrap_or_default();
            assert_ne!(target, fs.path("lock"), "process {pid} holds {}", entry.path().display());
        }
    }
}

/// `2026-11-22T17:09:30.123Z INFO meta0: ...`
fn is_log_line(line: &str) -> bool {
    let shape: String = line.chars().take(25).map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    let level = line.get(25..).and_then(|rest| rest.split_once(' ')).map(|(level, _)| level);
    shape == "0000-00-00T00:00:00.000Z " && matches!(level, Some("INFO" | "WARN" | "ERROR"))
}

#[track_caller]
fn log_of(fs: &FileSystem, start: &str) -> String {
    let run = fs.state().join("run");
    let entries = fs::read_dir(&run).unwrap().flatten();
    let name = entries.map(|entry| entry.file_name().into_string().unwrap());
    let name = name.into_iter().find(|name| name.starts_with(start) && name.ends_with(".log"));
    fs::read_to_string(run.join(name.unwrap_or_else(|| panic!("no log of {start}")))).unwrap()
}

#[test]
fn logs_have_times_and_levels_and_a_hang_up_begins_a_new_one() {
    if !available("logs_have_times_and_levels_and_a_hang_up_begins_a_new_one", &[Need::Fuse]) {
        return;
    }
    let fs = FileSystem::mounted(&["--meta", "1", "--data", "1"]);
    let mount = fs.mount_pid(&fs.mnt());
    let servers = ["meta0", "data0"].map(|server| (server, fs.pid(server).unwrap()));
    for (who, pid) in servers.into_iter().chain([("mount-mnt", mount)]) {
        let text = log_of(&fs, who);
        assert!(!text.is_empty() && text.lines().all(is_log_line), "{who}: {text}");
        for entry in fs::read_dir(fs.state().join("run")).unwrap().flatten() {
            let path = entry.path();
            if path.file_name().unwrap().to_string_lossy().starts_with(who) && path.extension().is_some_and(|end| end == "log") {
                fs::rename(&path, path.with_extension("log.1")).unwrap();
            }
        }
        signal(pid, Signal::HUP).unwrap();
        let begun = || {
            fs::read_dir(fs.state().join("run")).unwrap().flatten().any(|entry| {
                let name = entry.file_name().into_string().unwrap();
                name.starts_with(who) && name.ends_with(".log") && fs::read_to_string(entry.path()).unwrap().contains("SIGHUP")
            })
        };
        wait_until("a new log", PATIENCE, begun);
        assert!(alive(pid), "{who} lives on");
    }
    fs::write(fs.mnt().join("file"), "served").unwrap();
    fs.down();
    for who in ["meta0", "data0"] {
        let text = log_of(&fs, who);
        assert!(text.contains(&format!("INFO {who}: SIGTERM: stops")) && text.contains("stopped"), "{text}");
    }
}

/// In the foreground the end of the terminal is the end of the server, in good order.
#[test]
fn a_server_whose_terminal_goes_ends_in_good_order() {
    let fs = FileSystem::up(&["--meta", "1", "--data", "1"]);
    fs.down();
    let errors = fs::File::create(fs.path("errors")).unwrap();
    let mut server = weft();
    server.args(["serve", "--server", "meta0", "--config"]).arg(fs.state().join("weft.toml"));
    let mut child = server.stdin(Stdio::null()).stdout(Stdio::null()).stderr(errors).spawn().unwrap();
    let said = |what: &str| fs::read_to_string(fs.path("errors")).unwrap().contains(what);
    wait_until("its first line", PATIENCE, || said("starts, process"));
    signal(child.id(), Signal::HUP).unwrap();
    let status = child.wait().unwrap();
    let text = fs::read_to_string(fs.path("errors")).unwrap();
    assert!(status.success() && status.signal().is_none(), "{status:?}: {text}");
    assert!(said("INFO meta0: SIGHUP: stops") && said("INFO meta0: stopped"), "{text}");
}

/// A log that has become too large makes room for a new one; a log that cannot be written is no
/// reason to stop.
#[test]
fn a_full_log_is_kept_once_and_begun_again() {
    let fs = FileSystem::up(&["--meta", "1", "--data", "1"]);
    let log = fs.state().join("run/meta0.log");
    fs::OpenOptions::new().write(true).open(&log).unwrap().set_len(5 << 20).unwrap();
    let pid = fs.pid("meta0").unwrap();
    signal(pid, Signal::TERM).unwrap();
    wait_until("its end", PATIENCE, || !alive(pid));
    let old = fs.state().join("run/meta0.log.old");
    assert_eq!(fs::metadata(&old).unwrap().len(), 5 << 20);
    let text = fs::read_to_string(&log).unwrap();
    assert!(text.lines().all(is_log_line) && text.contains("SIGTERM"), "{text}");
    assert!(fs::metadata(&log).unwrap().len() < 4096);
}

/// Nobody reads what a command says: it ends with its own code and not with a crash.
#[test]
fn commands_do_not_need_a_reader() {
    let fs = FileSystem::up(&["--meta", "1", "--data", "1"]);
    let commands: [&[&str]; 4] = [&["ls"], &["stat"], &["status", "--state"], &["cat"]];
    for args in commands {
        let what = if args.contains(&"--state") { fs.state().display().to_string() } else { fs.at("/no/such/file") };
        for (out, errors) in [(true, false), (false, true), (true, true)] {
            let gone = || {
                let (reader, writer) = std::io::pipe().unwrap();
                drop(reader);
                Stdio::from(writer)
            };
            let mut command = weft();
            command.args(args).arg(&what).stdin(Stdio::null());
            command.stdout(if out { gone() } else { Stdio::null() }).stderr(if errors { gone() } else { Stdio::null() });
            let status = command.status().unwrap();
            assert!(status.code().is_some_and(|code| code < 2), "weft {args:?} {what}: {status:?}");
        }
    }
    for command in ["df", "status"] {
        let full = fs::File::options().write(true).open("/dev/full").unwrap();
        let ended = weft().arg(command).arg(fs.state()).stdout(full).stderr(Stdio::piped()).spawn().unwrap().wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&ended.stderr);
        assert!(said.contains("standard output: No space left"), "the file system is not full: {said}");
    }
}

/// A container that was started while a mount was there has a copy of it, and keeps its process
/// alive.
#[test]
fn a_mount_that_lives_on_elsewhere_can_be_made_again_and_ended() {
    let needs = [Need::Fuse, Need::Root, Need::Programs(&["unshare", "umount"])];
    if !available("a_mount_that_lives_on_elsewhere_can_be_made_again_and_ended", &needs) {
        return;
    }
    let fs = FileSystem::mounted(&["--meta", "1", "--data", "1"]);
    fs::write(fs.mnt().join("file"), "text").unwrap();
    let first = fs.mount_pid(&fs.mnt());
    let mut container = Command::new("unshare").args(["--mount", "sleep", "600"]).stdin(Stdio::null()).spawn().unwrap();
    let has_copy = || {
        let table = |pid| fs::read_to_string(format!("/proc/{pid}/mountinfo")).unwrap_or_default();
        let own = fs::read_link("/proc/self/ns/mnt").unwrap();
        let is_apart = fs::read_link(format!("/proc/{}/ns/mnt", container.id())).is_ok_and(|other| other != own);
        is_apart && table(container.id()).contains(fs.mnt().to_str().unwrap())
    };
    wait_until("a container", PATIENCE, has_copy);
    ok(Command::new("umount").arg(fs.mnt()));
    assert!(alive(first), "the container uses it");
    ok(weft().arg("mount").arg(fs.state()).arg(fs.mnt()));
    assert_eq!(fs::read_to_string(fs.mnt().join("file")).unwrap(), "text");
    let second = fs.mount_pid(&fs.mnt());
    assert_ne!(first, second);
    assert!(fails(weft().arg("mount").arg(fs.state()).arg(fs.mnt())).contains("mounted already"));
    signal(first, Signal::TERM).unwrap();
    wait_until("the end of the first mount after one signal", PATIENCE, || !alive(first));
    assert_eq!(fs::read_to_string(fs.mnt().join("file")).unwrap(), "text");
    // `weft down` ends what lives on elsewhere as well.
    ok(weft().arg("umount").arg(fs.mnt()));
    container.kill().unwrap();
    container.wait().unwrap();
    fs.down();
}

/// A mount that is asked to end although programs use it keeps nothing back: neither what they have
/// written to files that they have open, nor the files that they have just closed.
#[test]
fn a_mount_that_ends_in_use_brings_what_was_written() {
    if !available("a_mount_that_ends_in_use_brings_what_was_written", &[Need::Fuse]) {
        return;
    }
    let fs = FileSystem::mounted(&["--meta", "1", "--data", "2"]);
    fs::write(fs.mnt().join("old"), [b'o'; 5000]).unwrap();
    // Twice: a first signal only unmounts, lazily, and the second one finds nothing to unmount.
    for round in 0..2 {
        let dir = fs.mnt().join(format!("round{round}"));
        fs::create_dir(&dir).unwrap();
        let held = fs::File::open(&dir).unwrap();
        let mut old = fs::File::options().write(true).open(fs.mnt().join("old")).unwrap();
        if round > 0 {
            signal(fs.mount_pid(&fs.mnt()), Signal::TERM).unwrap();
            wait_until("the end of the mount in the tree", PATIENCE, || !is_mount(&fs.mnt()));
        }
        let inside = |name: &str| format!("/proc/self/fd/{}/{name}", held.as_raw_fd());
        old.write_all(&[b'0' + round; 5000]).unwrap();
        let open = [5000, 300_000].map(|bytes| {
            let mut file = fs::File::create_new(inside(&format!("open{bytes}"))).unwrap();
            file.write_all(&vec![b'x'; bytes]).unwrap();
            file
        });
        (0..100).for_each(|number| fs::write(inside(&format!("closed{number}")), [b'c'; 3000]).unwrap());
        assert!(ok(weft().arg("down").arg(fs.state())).contains("stopped"));
        assert_eq!(old.write(b"late").unwrap_err().kind(), std::io::ErrorKind::NotConnected);
        drop((held, old, open));
        ok(weft().args(["up", "--mount"]).arg(fs.mnt()).arg(fs.state()));
        assert_eq!(fs::read(fs.mnt().join("old")).unwrap(), [b'0' + round; 5000]);
        for bytes in [5000, 300_000] {
            assert_eq!(fs::read(dir.join(format!("open{bytes}"))).unwrap(), vec![b'x'; bytes]);
        }
        (0..100).for_each(|number| assert_eq!(fs::read(dir.join(format!("closed{number}"))).unwrap(), [b'c'; 3000]));
    }
}

/// Servers and a mount with as many addresses as `ulimit -v` allows on shared machines: many
/// threads are no reason to end.
#[test]
fn few_addresses_are_enough_for_servers_and_mounts() {
    if !available("few_addresses_are_enough_for_servers_and_mounts", &[Need::Fuse]) {
        return;
    }
    let fs = FileSystem::prepare();
    let limited = |addresses: &str| {
        let mut command = Command::new("sh");
        command.args(["-c", "ulimit -v $1; shift; exec \"$@\"", "sh", addresses]).arg(weft().get_program());
        command
    };
    let mut up = limited("1000000");
    up.args(["up", "--meta", "1", "--data", "2", "--mount"]).arg(fs.mnt()).arg("--state").arg(fs.state());
    ok(&mut up);
    fs::create_dir(fs.path("other")).unwrap();
    // Too few are said before anything is mounted: it would end when programs have much to do.
    let said = fails(limited("160000").arg("mount").arg(fs.state()).arg(fs.path("other")));
    assert!(said.contains("4 threads need 128 MiB of addresses") && said.contains("ulimit -v"), "{said}");
    std::thread::scope(|scope| {
        for thread in 0..16 {
            let dir = fs.mnt().join(format!("{thread}"));
            scope.spawn(move || {
                fs::create_dir(&dir).unwrap();
                let content = |number: usize| vec![7; if number.is_multiple_of(20) { 3_000_000 } else { 1_000 }];
                for number in 0..100 {
                    fs::write(dir.join(format!("{number}")), content(number)).unwrap();
                }
                for number in 0..100 {
                    assert!(fs::read(dir.join(format!("{number}"))).unwrap() == content(number));
                }
            });
        }
    });
    fs.down();
}

/// Memory of files that are gone goes back to the system. The C library keeps it by itself.
#[test]
fn removed_files_leave_no_memory_behind() {
    let fs = FileSystem::up(&["--meta", "1", "--data", "1"]);
    let pid = fs.pid("meta0").unwrap();
    let kib = |what: &str| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(what)).unwrap();
        line.trim_start_matches(':').trim_end_matches("kB").trim().parse::<u64>().unwrap()
    };
    let before = kib("VmRSS");
    // It removes them one by one.
    ok(weft().args(["bench", "create", "--files", "100000", "--depth", "64", "--reps", "1", "--fs"]).arg(fs.state()));
    let most = kib("VmHWM") - before;
    assert!(most > 10 << 10, "{most} KiB for 100,000 files");
    wait_until("the memory is back", PATIENCE, || kib("VmRSS").saturating_sub(before) < most / 4);
    fs.down();
}

/// What the system's own tools show.
#[test]
fn a_mount_has_the_type_of_its_file_system() {
    if !available("a_mount_has_the_type_of_its_file_system", &[Need::Fuse]) {
        return;
    }
    let fs = FileSystem::mounted(&["--meta", "1", "--data", "1"]);
    let table = fs::read_to_string("/proc/self/mounts").unwrap();
    let place = fs.mnt().display().to_string();
    let line = table.lines().find(|line| line.split(' ').nth(1) == Some(&place)).unwrap();
    assert_eq!(line.split(' ').nth(2), Some("fuse.weft"), "{line}");
}

/// The helper that `mount -t weft` and `/etc/fstab` run: the program by another name.
#[test]
fn the_program_is_the_helper_of_mount() {
    if !available("the_program_is_the_helper_of_mount", &[Need::Fuse, Need::Root]) {
        return;
    }
    let fs = FileSystem::up(&["--meta", "1", "--data", "1"]);
    let helper = fs.path("mount.weft");
    std::os::unix::fs::symlink(weft().get_program(), &helper).unwrap();
    fs::create_dir(fs.mnt()).unwrap();
    let mount = |options: &str| {
        let mut command = Command::new(&helper);
        command.arg(fs.state()).arg(fs.mnt()).args(["-o", options]);
        command
    };
    ok(&mut mount("rw,defaults,_netdev,nofail,noauto,user,x-systemd.automount,nosuid,nodev,noatime,threads=2"));
    fs::write(fs.mnt().join("file"), "text").unwrap();
    ok(&mut mount("remount,ro"));
    let error = fs::write(fs.mnt().join("file"), "more").unwrap_err();
    assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::ROFS.raw_os_error()));
    ok(&mut mount("remount,rw"));
    fs::write(fs.mnt().join("file"), "more").unwrap();
    ok(weft().arg("umount").arg(fs.mnt()));
    assert!(fails(&mut mount("nonsense=3")).contains("nonsense"));
    assert!(!is_mount(&fs.mnt()));
    // What mount(8) makes of a line with `user`.
    ok(&mut mount("rw,noexec,nosuid,nodev,user,_netdev"));
    fs::copy("/bin/true", fs.mnt().join("true")).unwrap();
    let started = Command::new(fs.mnt().join("true")).status();
    assert_eq!(started.map_err(|error| error.kind()), Err(std::io::ErrorKind::PermissionDenied));
    ok(weft().arg("umount").arg(fs.mnt()));
    // As mount(8) tries it out.
    ok(Command::new(&helper).arg(fs.state()).arg(fs.mnt()).args(["-f", "-v", "-o", "ro"]));
    assert!(!is_mount(&fs.mnt()));
    assert!(!run(Command::new(&helper).arg(fs.state()), PATIENCE).is_success());
}

fn is_mount(place: &Path) -> bool {
    let table = fs::read_to_string("/proc/self/mounts").unwrap();
    table.lines().any(|line| line.split(' ').nth(1).is_some_and(|other| Path::new(other) == place))
}
