//! Unmodified programs that find a file system below a prefix, without a mount (`weft preload`):
//! `gateways/preload/examples` walks through the calls, and does what people do in shells and in
//! Python. What happens there must be what happens in a directory of the kernel, and a mount must
//! see it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;
use tempfile::TempDir;
use weft_system_tests::{FileSystem, Need, available, built, ok, run, wait_until, weft};

/// One of the examples.
fn example(name: &str) -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../gateways/preload/examples")).join(name)
}

/// A program that finds the file system below `/weft`.
fn preloaded(fs: &FileSystem, program: impl AsRef<std::ffi::OsStr>) -> Command {
    built("weft-preload", "libweft_preload.so");
    let mut command = weft();
    command.arg("preload").arg(fs.state()).arg("--").arg(program);
    command
}

fn folder() -> TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

/// One of the examples in C, compiled.
fn compiled(dir: &TempDir, name: &str) -> PathBuf {
    let program = dir.path().join(name);
    ok(Command::new("cc").args(["-Wall", "-Wextra", "-Werror", "-pthread", "-o"]).arg(&program).arg(example(&format!("{name}.c"))));
    program
}

#[test]
fn every_call_does_what_the_kernel_does_or_is_refused() {
    if !available("every_call_does_what_the_kernel_does_or_is_refused", &[Need::Programs(&["cc"])]) {
        return;
    }
    let (dir, there) = (folder(), folder());
    let program = compiled(&dir, "walk");
    let there = there.path().canonicalize().expect("a folder has a path");
    assert!(ok(Command::new(&program).arg(&there)).contains("all is well"), "that is what Linux does");
    let fs = FileSystem::up(&["--meta", "2", "--data", "2"]);
    let ways =
        [("asks", &["--leases", "never"][..]), ("believes-soon", &[]), ("believes", &["--leases", "always"]), ("absorbs", &["--absorb"])];
    for (name, options) in ways {
        ok(preloaded(&fs, "mkdir").arg(format!("/weft/{name}")));
        let mut command = weft();
        command.arg("preload").arg(fs.state()).args(options).arg("--").arg(&program);
        assert!(ok(command.arg(format!("/weft/{name}")).arg("weft")).contains("all is well"), "{name}");
    }
}

#[test]
fn slashes_and_dots_behind_a_name_mean_what_they_mean_to_the_kernel() {
    let name = "slashes_and_dots_behind_a_name_mean_what_they_mean_to_the_kernel";
    if !available(name, &[Need::Programs(&["cc"])]) {
        return;
    }
    let (dir, there) = (folder(), folder());
    let program = compiled(&dir, "ends");
    let expected = ok(Command::new(&program).arg(there.path()));
    assert!(expected.lines().count() > 2900 && expected.contains("rename(from, to) f none/: ENOTDIR"), "{expected}");
    let fs = FileSystem::up(&["--meta", "2", "--data", "1"]);
    for (name, options) in [("believes", &["--leases", "always"][..]), ("absorbs", &["--absorb"])] {
        ok(preloaded(&fs, "mkdir").arg(format!("/weft/{name}")));
        let mut command = weft();
        command.arg("preload").arg(fs.state()).args(options).arg("--").arg(&program).arg(format!("/weft/{name}"));
        let found = ok(&mut command);
        let others: Vec<_> = expected.lines().zip(found.lines()).filter(|(expected, found)| expected != found).collect();
        assert!(others.is_empty() && found.lines().count() == expected.lines().count(), "{name}: {others:#?}");
    }
}

#[test]
fn streams_in_all_modes_do_what_they_do_elsewhere() {
    if !available("streams_in_all_modes_do_what_they_do_elsewhere", &[Need::Programs(&["cc"])]) {
        return;
    }
    let (dir, there) = (folder(), folder());
    let program = compiled(&dir, "streams");
    let expected = ok(Command::new(&program).arg(there.path()).args(["0", "300"]));
    let fs = FileSystem::up(&["--meta", "1", "--data", "1"]);
    for (name, options) in [("believes", &["--leases", "always"][..]), ("absorbs", &["--absorb"])] {
        ok(preloaded(&fs, "mkdir").arg(format!("/weft/{name}")));
        let mut command = weft();
        command.arg("preload").arg(fs.state()).args(options).arg("--").arg(&program).arg(format!("/weft/{name}"));
        let found = ok(command.args(["0", "300"]));
        let others: Vec<_> = expected.lines().zip(found.lines()).filter(|(expected, found)| expected != found).collect();
        assert!(others.is_empty() && found.lines().count() == 300, "{name}: {others:#?}");
    }
}

#[test]
fn descriptors_by_name_circles_and_ends_are_those_of_the_kernel() {
    if !available("descriptors_by_name_circles_and_ends_are_those_of_the_kernel", &[Need::Programs(&["cc"])]) {
        return;
    }
    let (dir, there) = (folder(), folder());
    let program = compiled(&dir, "ways");
    let there = there.path().canonicalize().expect("a folder has a path");
    assert!(ok(Command::new(&program).arg(&there)).contains("all is well"), "that is what Linux does");
    let fs = FileSystem::up(&["--meta", "2", "--data", "1"]);
    for (name, options) in [("asks", &["--leases", "never"][..]), ("believes", &["--leases", "always"]), ("absorbs", &["--absorb"])] {
        ok(preloaded(&fs, "mkdir").arg(format!("/weft/{name}")));
        let mut command = weft();
        command.arg("preload").arg(fs.state()).args(options).arg("--").arg(&program);
        assert!(ok(command.arg(format!("/weft/{name}"))).contains("all is well"), "{name}");
    }
}

#[test]
fn shells_and_their_programs_do_the_same_as_elsewhere() {
    let needs = [Need::Fuse, Need::Programs(&["cc", "make", "tar", "gzip", "diff"])];
    if !available("shells_and_their_programs_do_the_same_as_elsewhere", &needs) {
        return;
    }
    let fs = FileSystem::mounted(&["--meta", "2", "--data", "2"]);
    let there = folder();
    for shell in ["sh", "bash"].into_iter().filter(|shell| is_installed(shell)) {
        let name = format!("work-{shell}");
        let kernel = there.path().join(&name);
        std::fs::create_dir(&kernel).expect("a folder can be made");
        let expected = ok(Command::new(shell).arg(example("programs.sh")).arg(&kernel));
        ok(preloaded(&fs, "mkdir").arg(format!("/weft/{name}")));
        let found = ok(preloaded(&fs, shell).arg(example("programs.sh")).arg(format!("/weft/{name}")));
        assert_eq!(found, expected, "{shell}");
        // The mount sees what was left.
        ok(Command::new("diff").arg("-r").arg(&kernel).arg(fs.mnt().join(&name)));
        assert!(ok(weft().arg("ls").arg(fs.at(&format!("/{name}")))).contains("numbers"));
        // The same where its files are made without asking.
        let absorbing = |program: &str| {
            let mut command = preloaded(&fs, program);
            command.env("WEFT_ABSORB", "yes");
            command
        };
        let name = format!("{shell}/{name}");
        ok(absorbing("mkdir").arg("-p").arg(format!("/weft/{name}")));
        assert_eq!(ok(absorbing(shell).arg(example("programs.sh")).arg(format!("/weft/{name}"))), expected, "{shell}");
        ok(Command::new("diff").arg("-r").arg(&kernel).arg(fs.mnt().join(&name)));
    }
}

/// Each of the processes that share an open file has a part of it to itself.
#[test]
fn processes_that_share_an_open_file_write_behind_each_other() {
    if !available("processes_that_share_an_open_file_write_behind_each_other", &[Need::Programs(&["bash", "xargs", "seq"])]) {
        return;
    }
    let fs = FileSystem::up(&[]);
    let script = "seq 120 | xargs -P4 -n1 echo item > /weft/all
        for who in 1 2 3 4; do (for number in $(seq 20); do /bin/echo $who $number; done) & done > /weft/loops; wait
        sort -u /weft/all | wc -l; sort -u /weft/loops | wc -l; wc -l < /weft/all";
    let lines = ok(preloaded(&fs, "bash").args(["-c", script]));
    assert_eq!(lines.split_whitespace().collect::<Vec<_>>(), ["120", "80", "120"]);
}

/// What a program has made without asking is there when it has ended, whatever way it ends, also
/// what it has not closed.
#[test]
fn a_program_that_makes_files_without_asking_loses_none_at_its_end() {
    if !available("a_program_that_makes_files_without_asking_loses_none_at_its_end", &[Need::Programs(&["python3"])]) {
        return;
    }
    let fs = FileSystem::up(&["--meta", "1", "--data", "1"]);
    let program = "
import os, sys
way, dir = sys.argv[1:]
os.mkdir(dir)
for number in range(300):
    with open(f'{dir}/f{number}', 'w') as file:
        file.write(f'{number}')
left = os.open(f'{dir}/left', os.O_CREAT | os.O_WRONLY)
os.write(left, b'left open')
text = open(f'{dir}/text', 'w')
text.write('in a buffer')
text.flush()
if way == 'exec':
    os.execvp('true', ['true'])
if way == '_exit':
    os._exit(0)
if way == 'quick_exit':
    import ctypes
    ctypes.CDLL(None).quick_exit(0)
";
    for way in ["return", "exec", "_exit", "quick_exit"] {
        let (before, dir) = (fs.answered_of(&["Create"]), format!("/{way}"));
        let mut command = weft();
        command.arg("preload").arg(fs.state()).args(["--absorb", "--", "python3", "-c", program, way]);
        ok(command.arg(format!("/weft{dir}")));
        let asked = fs.answered_of(&["Create"]) - before;
        // It asks until it hears notices, for which a thread must have run: late on a busy machine.
        assert!(asked < 100, "{way}: {asked} of 302 files were asked for");
        for (name, text) in [("f0", "0"), ("f299", "299"), ("left", "left open"), ("text", "in a buffer")] {
            assert_eq!(ok(weft().arg("cat").arg(fs.at(&format!("{dir}/{name}")))), text, "{way}: {name}");
        }
        assert_eq!(ok(weft().arg("ls").arg(fs.at(&dir))).lines().count(), 302, "{way}");
    }
}

fn is_installed(program: &str) -> bool {
    Command::new(program).args(["-c", ":"]).status().is_ok_and(|status| status.success())
}

#[test]
fn python_programs_work() {
    if !available("python_programs_work", &[Need::Programs(&["python3"])]) {
        return;
    }
    let fs = FileSystem::up(&["--meta", "1", "--data", "2"]);
    let said = ok(preloaded(&fs, "python3").arg(example("python.py")).arg("/weft/py"));
    assert!(said.contains("all is well"), "{said}");
    assert_eq!(ok(weft().arg("ls").arg(fs.at("/"))), "", "it has removed everything");
}

#[test]
fn what_cannot_be_done_is_said() {
    let fs = FileSystem::up(&["--meta", "1", "--data", "1"]);
    let minute = Duration::from_secs(60);
    let refused = |command: &mut Command, words: &str| {
        let finished = run(command, minute);
        assert!(!finished.is_success() && finished.words().contains(words), "{words}: {}", finished.words());
    };
    built("weft-preload", "libweft_preload.so");
    refused(weft().arg("preload").arg(fs.path("nothing")).args(["--", "true"]), "is no file system");
    refused(weft().arg("preload").arg(fs.state()).args(["--at", "relative", "--", "true"]), "absolute path");
    refused(weft().arg("preload").arg(fs.state()).args(["--", "/no/such/program"]), "cannot run /no/such/program");
    refused(preloaded(&fs, "cat").arg("/weft/nothing"), "No such file or directory");
    // Whose fault it was is in the code.
    let code = |fs: &std::path::Path, words: &[&str]| run(weft().arg("preload").arg(fs).args(words), minute).status.unwrap().code();
    let state = fs.state();
    assert_eq!([code(&state, &["--", "/no/such/program"]), code(&state, &["--", "/"])], [Some(127), Some(126)]);
    assert_eq!([code(&fs.path("nothing"), &["--", "true"]), code(&state, &[])], [Some(125); 2]);
    assert_eq!(code(&state, &["--", "sh", "-c", "exit 7"]), Some(7));
    // The environment alone does it, too; a wrong one is said and nothing is Weft's.
    let library = built("weft-preload", "libweft_preload.so");
    let plain = |setting: &str| {
        let mut command = Command::new("ls");
        command.env("LD_PRELOAD", &library).env("WEFT_PRELOAD", setting);
        command
    };
    ok(weft().arg("mkdir").arg(fs.at("/there")));
    assert_eq!(ok(plain(&format!("/a/b={}", fs.state().display())).arg("/a/b")), "there\n");
    refused(plain("/weft").arg("/weft"), "is not /PREFIX=FS");
    // A file system that is not there, and a server that is gone: an errno in time, and words.
    refused(plain("/weft=/no/such/state").arg("/weft"), "/no/such/state");
    fs.kill("meta0");
    let finished = run(weft().args(["--timeout", "2", "preload"]).arg(fs.state()).args(["--", "ls", "/weft"]), minute);
    assert!(!finished.is_success(), "{}", finished.words());
}

#[test]
fn a_server_that_dies_meanwhile_is_waited_for() {
    let fs = FileSystem::up(&["--meta", "1", "--data", "1"]);
    let script = "for i in $(seq 400); do echo $i >> /weft/log || exit 1; done; wc -l < /weft/log";
    let mut child = preloaded(&fs, "sh").args(["-c", script]).stdout(std::process::Stdio::piped()).spawn().expect("a shell starts");
    wait_until("some lines", Duration::from_secs(30), || fs.total("meta", "objects") > 1);
    fs.signal("meta0", Signal::STOP);
    std::thread::sleep(Duration::from_millis(200));
    fs.signal("meta0", Signal::CONT);
    fs.kill("data0");
    ok(weft().args(["up", "--state"]).arg(fs.state()));
    let mut said = String::new();
    std::io::Read::read_to_string(&mut child.stdout.take().expect("it is piped"), &mut said).expect("text");
    assert!(child.wait().expect("it ends").success());
    assert_eq!(said.trim(), "400");
}
