//! The whole cycle without root: servers need none, and the mount uses `fusermount3`.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Output};

use rustix::process::geteuid;
use weft_system_tests::{FileSystem, Need, available, fails, ok, run, skip, wait_until, weft};

/// The user that nobody is.
const NOBODY: &str = "65534";

/// The program `weft` as the plain user: as we are, or by way of `setpriv`. The binary is copied to
/// where that user may read it.
struct PlainUser {
    fs: FileSystem,
    as_nobody: bool,
    number: &'static str,
}

impl PlainUser {
    fn new() -> PlainUser {
        PlainUser::numbered(NOBODY)
    }

    fn numbered(number: &'static str) -> PlainUser {
        let user = PlainUser { fs: FileSystem::prepare(), as_nobody: geteuid().is_root(), number };
        let binary = user.fs.path("weft");
        fs::copy(weft().get_program(), &binary).unwrap();
        if user.as_nobody {
            for path in [user.fs.path(""), binary] {
                fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
            }
            let home = user.fs.path("home");
            fs::create_dir(&home).unwrap();
            ok(Command::new("chown").arg(number).arg(&home));
        } else {
            fs::create_dir(user.fs.path("home")).unwrap();
        }
        user
    }

    fn command(&self, program: &Path) -> Command {
        let mut command = if self.as_nobody {
            let mut command = Command::new("setpriv");
            command.args(["--reuid", self.number, "--regid", self.number, "--clear-groups", "--inh-caps=-all"]).arg(program);
            command
        } else {
            Command::new(program)
        };
        command.env_remove("XDG_RUNTIME_DIR").env("HOME", self.fs.path("home")).current_dir(self.fs.path("home"));
        command
    }

    /// What the program says if it may have only so many threads beside those of servers, and of
    /// processes that have ended and that nobody has waited for yet.
    fn with_threads(&self, more: usize, words: &str) -> Output {
        let is_his = |entry: &fs::DirEntry| entry.metadata().is_ok_and(|meta| meta.uid().to_string() == self.number);
        let of = |entry: fs::DirEntry| fs::read_dir(entry.path().join("task")).map_or(0, Iterator::count);
        let most = fs::read_dir("/proc").unwrap().flatten().filter(is_his).map(of).sum::<usize>() + more;
        let mut command = self.command(Path::new("prlimit"));
        command.arg(format!("--nproc={most}:{most}")).arg(self.fs.path("weft")).args(words.split(' ')).output().unwrap()
    }

    fn weft(&self, args: &[&str]) -> Command {
        let mut command = self.command(&self.fs.path("weft"));
        command.args(args);
        command
    }
}

impl Drop for PlainUser {
    fn drop(&mut self) {
        if self.fs.path("home/state").exists() {
            run(&mut self.weft(&["down", "--state", "state"]), std::time::Duration::from_secs(30));
        }
    }
}

#[test]
fn servers_and_commands_need_no_root() {
    if geteuid().is_root() && !available("servers_and_commands_need_no_root", &[Need::Programs(&["setpriv"])]) {
        return;
    }
    let user = PlainUser::new();
    ok(&mut user.weft(&["up", "--state", "state", "--meta", "2"]));
    fs::write(user.fs.path("file"), b"hello").unwrap();
    fs::set_permissions(user.fs.path("file"), fs::Permissions::from_mode(0o644)).unwrap();
    ok(&mut user.weft(&["mkdir", "state:/dir"]));
    ok(&mut user.weft(&["cp", "../file", "state:/dir/file"]));
    assert_eq!(ok(&mut user.weft(&["cat", "state:/dir/file"])), "hello");
    assert!(ok(&mut user.weft(&["ls", "state:/dir"])).contains("file"));
    if user.as_nobody {
        // Somebody else without the key: the state is private.
        let state = user.fs.path("home/state");
        for words in [["ls", &format!("{}:/", state.display())], ["status", state.to_str().unwrap()], ["inspect", state.to_str().unwrap()]]
        {
            let mut other = Command::new("setpriv");
            other.args(["--reuid", "65533", "--regid", "65533", "--clear-groups"]).arg(user.fs.path("weft"));
            let said = fails(other.args(words));
            assert!(said.contains(&format!("belongs to user {NOBODY}")) && !said.contains("weft up"), "{said}");
        }
    }
    // With the key of all users he asks for each of them as well as for all.
    ok(&mut user.weft(&["quota", "set", "state", "--user", "4711", "--inodes", "10"]));
    assert!(ok(&mut user.weft(&["quota", "show", "--user", "4711", "--json", "state"])).contains("\"inodes_max\": 10"));
    ok(&mut user.weft(&["down", "--state", "state"]));
    assert!(user.fs.processes().is_empty());
}

/// What could not be copied out of a file system over hosts is copied by the next `weft down`, and
/// what the first one has copied is in its way if it is read-only.
#[test]
fn what_is_read_only_is_copied_out_again() {
    if geteuid().is_root() && !available("what_is_read_only_is_copied_out_again", &[Need::Programs(&["setpriv"])]) {
        return;
    }
    let user = PlainUser::new();
    fs::copy(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/hosts/ssh"), user.fs.path("ssh")).unwrap();
    let path = format!("{}:{}", user.fs.path("").display(), std::env::var("PATH").unwrap_or_default());
    let sh = |line: &str| {
        let mut command = user.command(Path::new("sh"));
        command.args(["-c", line]).env("PATH", &path).env("WEFT_FAKE_HOSTS", user.fs.path("home/disks"));
        command
    };
    ok(&mut sh(
        "mkdir -p disks/127.0.0.2 in/sub out/in/z; echo 127.0.0.2 > hosts.txt; echo new > in/sub/f; echo new > in/g; echo new > in/z
        chmod 444 in/sub/f in/g; chmod 555 in/sub",
    ));
    ok(&mut sh("weft up --state state --hosts hosts.txt --stage-in in --stage-out out"));
    let said = fails(&mut sh("weft down state"));
    assert!(said.contains("out/in/z") && said.contains("1 files or directories were not copied"), "{said}");
    // A name in the read-only directory is missing, too.
    ok(&mut sh(
        "rmdir out/in/z; chmod 755 out/in/sub; rm -f out/in/sub/f; chmod 555 out/in/sub; chmod 644 out/in/g; echo old > out/in/g; chmod 444 out/in/g",
    ));
    ok(&mut sh("weft down state"));
    ok(&mut sh("diff -r in out/in"));
    let modes = ok(&mut sh("stat -c %a out/in/sub out/in/sub/f out/in/g"));
    assert_eq!(modes.split_whitespace().collect::<Vec<_>>(), ["555", "444", "444"]);
    // Without --force a file that may not be written is left alone, as `cp` does.
    ok(&mut sh("weft up --state state > /dev/null; weft cp -r in state:/"));
    assert!(fails(&mut sh("weft cp -r state:/in out")).contains("Permission denied"));
    ok(&mut sh("weft cp -rf state:/in out; weft cp -rf in state:/"));
}

/// Who may have no more threads (`ulimit -u`) hears that, if the command cannot do with fewer.
#[test]
fn commands_do_with_few_threads() {
    // A user that no other test is, and that there is (lp): all his threads count.
    const USER: &str = "7";
    if !available("commands_do_with_few_threads", &[Need::Root, Need::Programs(&["setpriv", "prlimit"])]) {
        return;
    }
    let user = PlainUser::numbered(USER);
    ok(&mut user.weft(&["up", "--state", "state"]));
    fs::create_dir(user.fs.path("tree")).unwrap();
    (0..50).for_each(|number| fs::write(user.fs.path("tree").join(format!("f{number}")), "text").unwrap());
    let mut done = [0; 3];
    for more in [1, 2, 3, 4, 6, 8, 20] {
        let commands = [format!("cp -r ../tree state:/{more}"), "status state".into(), "top --once state".into()];
        for (number, words) in commands.iter().enumerate() {
            let output = user.with_threads(more, words);
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.code().is_some_and(|code| code < 2) && !said.contains("panicked"), "{words}: {said}");
            assert!(output.status.success() || said.contains("cannot start a thread"), "{words}: {said}");
            done[number] += usize::from(output.status.success());
        }
    }
    assert!(done.iter().all(|done| *done > 4), "with few threads as well: {done:?}");
    ok(&mut user.weft(&["down", "--state", "state"]));
}

/// A mount that has no thread to serve with is not told to be there, and leaves nothing.
#[test]
fn a_mount_without_a_thread_is_none() {
    const USER: &str = "5";
    let test = "a_mount_without_a_thread_is_none";
    if !available(test, &[Need::Fuse, Need::Root, Need::Programs(&["fusermount3", "setpriv", "prlimit"])]) {
        return;
    }
    let user = PlainUser::numbered(USER);
    ok(&mut user.weft(&["up", "--state", "state"]));
    fs::create_dir(user.fs.path("home/mnt")).unwrap();
    ok(Command::new("chown").arg(USER).arg(user.fs.path("home/mnt")));
    let (mut outcomes, mut last) = ([0; 2], String::new());
    for more in 4..24 {
        let output = user.with_threads(more, "mount state mnt");
        let said = String::from_utf8_lossy(&output.stderr);
        if said.contains("ermission denied") {
            return skip(test, said.trim());
        }
        outcomes[usize::from(output.status.success())] += 1;
        last = said.to_string();
        if output.status.success() {
            ok(user.command(Path::new("sh")).args(["-c", "echo text > mnt/file; cat mnt/file"]));
            ok(&mut user.weft(&["umount", "mnt"]));
        } else {
            assert!(said.contains("Resource temporarily unavailable"), "it says why: {said}");
            assert!(fails(&mut user.weft(&["umount", "mnt"])).contains("nothing is mounted"), "{said}");
        }
        let mounts = || user.fs.processes().len() > 3;
        wait_until("the end of a mount", std::time::Duration::from_secs(30), || !mounts());
    }
    assert!(outcomes.iter().all(|count| *count > 0), "{outcomes:?}: {last}");
    ok(&mut user.weft(&["down", "--state", "state"]));
}

#[test]
fn a_plain_user_mounts_through_fusermount3() {
    let test = "a_plain_user_mounts_through_fusermount3";
    if !available(test, &[Need::Fuse, Need::Programs(&["fusermount3", "setpriv"])]) {
        return;
    }
    let user = PlainUser::new();
    let up = run(&mut user.weft(&["up", "--state", "state", "--mount", "mnt"]), std::time::Duration::from_secs(60));
    if !up.is_success() && up.words().contains("fusermount3") && up.words().contains("ermission denied") {
        // A machine may forbid it: the set-uid bit may be missing, or the device be closed even to
        // the helper.
        return skip(test, up.words().trim());
    }
    assert!(up.is_success(), "{}", up.words());
    let sh = |script: &str| ok(user.command(Path::new("/bin/sh")).args(["-euc", script]));
    sh("cd mnt; mkdir dir; echo hello > dir/file; ln -s dir/file link; cat link; chmod 600 dir/file; rm link; ls -l dir");
    assert_eq!(ok(&mut user.weft(&["cat", "state:/dir/file"])), "hello\n");
    ok(&mut user.weft(&["umount", "mnt"]));
    assert!(!user.fs.path("home/mnt/dir").exists());
    ok(&mut user.weft(&["up", "--state", "state", "--mount", "mnt"]));
    assert_eq!(sh("cat mnt/dir/file"), "hello\n");
    sh("fusermount3 -u mnt");
    ok(&mut user.weft(&["down", "--state", "state"]));
    assert!(user.fs.processes().is_empty());
}
