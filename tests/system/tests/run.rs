//! `weft run`: one command with a mount of its own, whatever becomes of it.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::geteuid;
use weft_system_tests::{FileSystem, Need, Signal, available, ok, run, signal, skip, wait_until, weft};

const PATIENCE: Duration = Duration::from_secs(60);
const NOBODY: &str = "65534";

/// A folder for the jobs of one test.
struct Jobs(FileSystem);

impl Jobs {
    fn new() -> Jobs {
        let jobs = Jobs(FileSystem::prepare());
        fs::create_dir(jobs.scratch()).unwrap();
        jobs
    }

    fn scratch(&self) -> PathBuf {
        self.0.path("scratch")
    }

    /// `weft run --ephemeral` of a script.
    fn ephemeral(&self, script: &str) -> Command {
        let mut command = weft();
        command.args(["run", "--ephemeral", "--data", "1", "--scratch"]).arg(self.scratch());
        command.args(["--", "sh", "-euc", script]).current_dir(self.0.path(""));
        command
    }

    fn left(&self) -> usize {
        fs::read_dir(self.scratch()).unwrap().count()
    }

    /// Nothing is left of a job that has ended.
    fn check_gone(&self) {
        assert_eq!(self.left(), 0, "something is left in {}", self.scratch().display());
        assert_eq!(self.0.processes(), [0; 0]);
    }

    /// Starts a job that waits; returns when its command runs.
    fn start(&self, script: &str) -> Child {
        let script = format!("echo $$ > pid.new; mv pid.new pid; {script}");
        let child = self.ephemeral(&script).stdin(Stdio::null()).spawn().unwrap();
        wait_until("the command of the job", PATIENCE, || self.0.path("pid").exists());
        child
    }
}

#[test]
fn a_job_has_a_mount_of_its_own_and_leaves_nothing() {
    if !available("a_job_has_a_mount_of_its_own_and_leaves_nothing", &[Need::Fuse]) {
        return;
    }
    let jobs = Jobs::new();
    let words = ok(&mut jobs.ephemeral("cd $WEFT_MOUNT; echo hello > file; cat file; id -u; stat -f -c %T .; pwd"));
    let lines: Vec<&str> = words.lines().collect();
    assert_eq!(lines[..2], ["hello", &geteuid().as_raw().to_string()]);
    assert!(lines[2].contains("fuse"), "{words}");
    assert!(!Path::new(lines[3]).exists(), "the mount point is removed");
    jobs.check_gone();
}

#[test]
fn a_job_ends_as_its_command_does() {
    if !available("a_job_ends_as_its_command_does", &[Need::Fuse]) {
        return;
    }
    let jobs = Jobs::new();
    assert_eq!(run(&mut jobs.ephemeral("exit 7"), PATIENCE).status.unwrap().code(), Some(7));
    assert_eq!(run(&mut jobs.ephemeral("kill -KILL $$"), PATIENCE).status.unwrap().signal(), Some(9));
    // Standard input is the command's.
    let mut child = jobs.ephemeral("cat > copy").stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"from outside").unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(fs::read_to_string(jobs.0.path("copy")).unwrap(), "from outside");
    let mut missing = weft();
    missing.args(["run", "--ephemeral", "--data", "1", "--scratch"]).arg(jobs.scratch()).args(["--", "no-such-program"]);
    let missing = run(&mut missing, PATIENCE);
    assert_eq!(missing.status.unwrap().code(), Some(127), "{}", missing.words());
    assert!(missing.words().contains("no-such-program"), "{}", missing.words());
    let nowhere = run(weft().args(["run", "--fs", "/no/such/fs", "--", "true"]), PATIENCE);
    assert_eq!(nowhere.status.unwrap().code(), Some(125), "{}", nowhere.words());
    jobs.check_gone();
}

/// A job script tells by the code whose fault it was, also of a line with a mistake in it.
#[test]
fn what_weft_run_cannot_read_ends_as_its_own_failure() {
    let code = |line: &[&str]| run(weft().args(line), PATIENCE).status.unwrap().code();
    let wrong: [&[&str]; 5] = [
        &["run", "--no-such-option", "--ephemeral", "--", "true"],
        &["run", "--ephemeral"],
        &["run", "--", "true"],
        &["run", "--ephemeral", "--data", "many", "--", "true"],
        &["--timeout", "none", "run", "--ephemeral", "--", "true"],
    ];
    assert!(wrong.iter().all(|line| code(line) == Some(125)), "{:?}", wrong.map(code));
    assert_eq!(
        (code(&["run", "--help"]), code(&["ls", "--no-such-option"]), code(&["no-such-command", "run"])),
        (Some(0), Some(2), Some(2))
    );
}

#[test]
fn signals_reach_the_command_of_a_job() {
    if !available("signals_reach_the_command_of_a_job", &[Need::Fuse]) {
        return;
    }
    let jobs = Jobs::new();
    let mut child = jobs.start("trap 'echo heard > heard; exit 3' TERM; touch ready; while :; do sleep 0.05; done");
    // Before its trap the signal would end it.
    wait_until("the trap of the command", PATIENCE, || jobs.0.path("ready").exists());
    signal(child.id(), Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(3));
    assert_eq!(fs::read_to_string(jobs.0.path("heard")).unwrap(), "heard\n");
    jobs.check_gone();
}

/// Most programs take over what is blocked where they are begun, other than the shell above.
#[test]
fn signals_end_a_command_that_does_nothing_about_them() {
    if !available("signals_end_a_command_that_does_nothing_about_them", &[Need::Fuse]) {
        return;
    }
    let jobs = Jobs::new();
    let job = |command: &[&str]| {
        let mut job = weft();
        job.args(["run", "--ephemeral", "--data", "1", "--scratch"]).arg(jobs.scratch()).arg("--").args(command);
        job
    };
    let blocked = ["grep", "SigBlk", "/proc/self/status"];
    assert_eq!(ok(&mut job(&blocked)), ok(Command::new(blocked[0]).args(&blocked[1..])));
    for stop in [Signal::TERM, Signal::INT] {
        let mut child = job(&["sleep", "30"]).stdin(Stdio::null()).spawn().unwrap();
        // From then on `weft run` has it for the command, also if that does not run yet.
        wait_until("the scratch folder", PATIENCE, || jobs.left() > 0);
        signal(child.id(), stop).unwrap();
        // A sleep that goes on to its end has no signal to say.
        assert_eq!(child.wait().unwrap().signal(), Some(stop.as_raw()));
        jobs.check_gone();
    }
}

#[test]
fn a_killed_job_leaves_nothing() {
    if !available("a_killed_job_leaves_nothing", &[Need::Fuse]) {
        return;
    }
    let jobs = Jobs::new();
    // With a file open in the mount, and a daemon that stays in it.
    let mut child = jobs.start("cd $WEFT_MOUNT; exec 9> open; (sleep 20 &) ; while :; do sleep 0.05; done");
    let command: u32 = fs::read_to_string(jobs.0.path("pid")).unwrap().trim().parse().unwrap();
    signal(child.id(), Signal::KILL).unwrap();
    child.wait().unwrap();
    wait_until("the end of the command", PATIENCE, || !weft_system_tests::alive(command));
    wait_until("the end of the servers", PATIENCE, || jobs.0.processes().is_empty());
    wait_until("the end of the scratch folder", PATIENCE, || jobs.left() == 0);
}

#[test]
fn a_job_in_a_file_system_that_stays() {
    if !available("a_job_in_a_file_system_that_stays", &[Need::Fuse]) {
        return;
    }
    let fs = FileSystem::up(&["--data", "1"]);
    let at = fs.path("at");
    let job = |script: &str, options: &[&str]| {
        let mut command = weft();
        command.args(["run", "--verbose", "--state"]).arg(fs.state()).arg("--at").arg(&at).args(options);
        run(command.args(["--", "sh", "-euc", script]), PATIENCE)
    };
    let script = format!("echo kept > {0}/file; test \"$WEFT_MOUNT\" = {0}", at.display());
    let done = job(&script, &[]);
    assert!(done.is_success(), "{}", done.words());
    assert!(!at.exists(), "what was made for it is removed");
    assert_eq!(ok(weft().arg("cat").arg(fs.at("/file"))), "kept\n");
    let mut elsewhere = weft();
    elsewhere.args(["run", "--fs"]).arg(fs.state().file_name().unwrap()).current_dir(fs.state().parent().unwrap());
    elsewhere.args(["--", "sh", "-euc", "cd /; echo \"$WEFT_FS\""]);
    assert_eq!(ok(&mut elsewhere), format!("{}\n", fs.state().display()), "its name is good wherever the command goes");
    fs::create_dir(&at).unwrap();
    let read_only = job(&format!("cat {0}/file; ! touch {0}/x", at.display()), &["-o", "ro"]);
    assert!(read_only.is_success(), "{}", read_only.words());
    assert!(at.is_dir(), "what was there stays");
    if geteuid().is_root() {
        assert!(read_only.words().contains("in a namespace of its own"), "{}", read_only.words());
        let done = job(&format!("test ! -e /proc/$PPID/root{0}/file; cat {0}/file", at.display()), &[]);
        assert!(done.is_success(), "nobody else sees it: {}", done.words());
    }
    fs::write(at.join("theirs"), "").unwrap();
    assert!(job("true", &[]).words().contains("not empty"));
    for option in [["--meta", "2"], ["--data", "2"], ["--capacity", "1M"]] {
        assert!(job("true", &option).words().contains("cannot be used with"), "{option:?} is of a new file system");
    }
}

/// In namespaces of their own both have a mount there, and what the first made takes the mount of
/// the second along when it is removed.
#[test]
fn a_job_leaves_another_one_the_mount_point_that_it_made() {
    if !available("a_job_leaves_another_one_the_mount_point_that_it_made", &[Need::Fuse]) {
        return;
    }
    let jobs = Jobs::new();
    let at = jobs.0.path("at");
    let job = |script: &str| {
        let mut job = weft();
        job.args(["run", "--ephemeral", "--data", "1", "--scratch"]).arg(jobs.scratch()).arg("--at").arg(&at);
        job.args(["--", "sh", "-euc", script]).current_dir(jobs.0.path("")).stdin(Stdio::null());
        job
    };
    let waits = |word: &str, other: &str| format!("touch {word}; while ! test -e {other}; do sleep 0.05; done");
    let mut first = job(&waits("first", "second")).spawn().unwrap();
    wait_until("the first command", PATIENCE, || jobs.0.path("first").exists());
    let second = format!("echo kept > $WEFT_MOUNT/file; {}; cat $WEFT_MOUNT/file > read", waits("second", "over"));
    let mut second = job(&second).spawn().unwrap();
    assert!(first.wait().unwrap().success());
    fs::write(jobs.0.path("over"), "").unwrap();
    assert!(second.wait().unwrap().success());
    assert_eq!(fs::read_to_string(jobs.0.path("read")).unwrap(), "kept\n");
    jobs.check_gone();
}

/// Its mount is there for all to see: it is not the first job's to be unmounted, and the folder
/// below cannot be looked at, let alone removed.
#[test]
fn a_job_neither_ends_nor_waits_for_another_one_that_is_mounted_over_its_mount_point() {
    let test = "a_job_neither_ends_nor_waits_for_another_one_that_is_mounted_over_its_mount_point";
    if !available(test, &[Need::Root, Need::Fuse]) {
        return;
    }
    let jobs = Jobs::new();
    let at = jobs.0.path("at");
    let job = |by: &str, word: &str, other: &str, then: &str| {
        let script = format!("touch {word}; while ! test -e {other}; do sleep 0.05; done; {then}");
        let mut job = weft();
        job.args(["run", "--by", by, "--ephemeral", "--data", "1", "--scratch"]).arg(jobs.scratch()).arg("--at").arg(&at);
        job.args(["--", "sh", "-euc", &script]).current_dir(jobs.0.path("")).stdin(Stdio::null());
        job.spawn().unwrap()
    };
    let mut first = job("namespace", "first", "second", "true");
    wait_until("the first command", PATIENCE, || jobs.0.path("first").exists());
    let mut second = job("fusermount3", "second", "over", "grep -q \"$WEFT_MOUNT fuse.weft\" /proc/mounts");
    // Half as long as something may be in the way of what clears up.
    wait_until("the end of the first job", PATIENCE / 2, || first.try_wait().unwrap().is_some());
    fs::write(jobs.0.path("over"), "").unwrap();
    assert!(first.wait().unwrap().success() && second.wait().unwrap().success() && at.is_dir());
    jobs.check_gone();
}

/// A plain user: `nobody` in a mount namespace whose `/dev/fuse` everybody may open, as most
/// machines have it.
struct PlainUser {
    fs: FileSystem,
}

impl PlainUser {
    fn new() -> PlainUser {
        let fs = FileSystem::prepare();
        fs::copy(weft().get_program(), fs.path("weft")).unwrap();
        fs::create_dir(fs.path("home")).unwrap();
        for path in [fs.path(""), fs.path("weft")] {
            fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        ok(Command::new("chown").arg(NOBODY).arg(fs.path("home")));
        PlainUser { fs }
    }

    fn job(&self, by: &str, script: &str) -> Command {
        self.job_with_device("666", by, script)
    }

    fn job_with_device(&self, mode: &str, by: &str, script: &str) -> Command {
        let prepare = "mkdir -p dev; mount -t tmpfs -o mode=755 dev dev; mknod -m $3 dev/fuse c 10 229; mount --bind dev/fuse /dev/fuse; \
                       by=$1 script=$2; cd home; exec setpriv --reuid 65534 --regid 65534 --clear-groups --inh-caps=-all \
                       ../weft run --verbose --by $by --ephemeral --data 1 --scratch . -- sh -euc \"$script\"";
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "sh", "-euc", prepare, "sh", by, script, mode]);
        command.current_dir(self.fs.path("")).env("HOME", self.fs.path("home")).env_remove("XDG_RUNTIME_DIR");
        command
    }
}

#[test]
fn a_plain_user_runs_a_job_without_a_set_uid_helper() {
    let test = "a_plain_user_runs_a_job_without_a_set_uid_helper";
    if !available(test, &[Need::Root, Need::Fuse, Need::Programs(&["unshare", "setpriv", "mknod"])]) {
        return;
    }
    let user = PlainUser::new();
    let script = "cd $WEFT_MOUNT; id -u; mkdir d; echo hello > d/f; stat -c %u d/f; cat d/f; grep CapEff /proc/self/status";
    let done = run(&mut user.job("namespace", script), PATIENCE);
    let words = done.words();
    if !done.is_success() && words.contains("this machine allows no user and mount namespace") {
        return skip(test, words.trim());
    }
    assert!(done.is_success(), "{words}");
    assert!(words.starts_with("65534\n65534\nhello\nCapEff:\t0000000000000000\n"), "{words}");
    assert_eq!(fs::read_dir(user.fs.path("home")).unwrap().count(), 0);
}

#[test]
fn a_plain_user_runs_a_job_by_fusermount3() {
    let test = "a_plain_user_runs_a_job_by_fusermount3";
    if !available(test, &[Need::Root, Need::Fuse, Need::Programs(&["unshare", "setpriv", "mknod", "fusermount3"])]) {
        return;
    }
    let user = PlainUser::new();
    let done = run(&mut user.job("fusermount3", "cd $WEFT_MOUNT; echo hello > f; cat f"), PATIENCE);
    let words = done.words();
    if !done.is_success() && words.contains("fusermount3") && words.contains("ermission denied") {
        return skip(test, words.trim());
    }
    assert!(done.is_success() && words.starts_with("hello\n"), "{words}");
    assert_eq!(fs::read_dir(user.fs.path("home")).unwrap().count(), 0);
    // Where the device is closed to the user a namespace cannot help, and that is found out.
    let words = run(&mut user.job_with_device("600", "auto", "echo no"), PATIENCE).words();
    assert!(words.contains("no mount in a namespace"), "{words}");
}

#[test]
fn an_empty_name_of_a_temporary_folder_is_none() {
    if !available("an_empty_name_of_a_temporary_folder_is_none", &[Need::Fuse]) {
        return;
    }
    let fs = FileSystem::prepare();
    let mut command = weft();
    command.args(["run", "--ephemeral", "--data", "1", "--", "printenv", "WEFT_MOUNT"]);
    let said = ok(command.env("TMPDIR", "").current_dir(fs.path("")));
    assert!(said.starts_with("/tmp/weft-run-"), "{said}");
}

/// Batch systems give each job a folder of its own, some of them a deep one.
#[test]
fn a_deep_folder_for_temporary_files_is_as_good_as_another() {
    if !available("a_deep_folder_for_temporary_files_is_as_good_as_another", &[Need::Fuse]) {
        return;
    }
    let fs = FileSystem::prepare();
    let deep = fs.path("").join("d".repeat(120));
    fs::create_dir(&deep).unwrap();
    let mut command = weft();
    command.args([
        "run",
        "--ephemeral",
        "--data",
        "1",
        "--",
        "sh",
        "-c",
        "echo text > $WEFT_MOUNT/f; cat $WEFT_MOUNT/f; printenv WEFT_MOUNT",
    ]);
    let said = ok(command.env("TMPDIR", &deep).env_remove("XDG_RUNTIME_DIR"));
    assert!(said.starts_with(&format!("text\n{}/weft-run-", deep.display())), "{said}");
    let left: Vec<_> =
        fs::read_dir(&deep).unwrap().flatten().filter(|entry| entry.file_name().to_string_lossy().starts_with("weft-run")).collect();
    assert!(left.is_empty(), "{left:?}");
}
