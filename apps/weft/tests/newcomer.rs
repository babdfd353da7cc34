//! What somebody new to Weft types first: help, names of file systems, completions, manual pages.

mod program;

use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use program::{fails, ok, weft};

struct Demo(TempDir);

impl Demo {
    fn up() -> Demo {
        let demo = Demo(tempfile::tempdir().unwrap());
        // By position, as every other command is told.
        ok(&mut weft(["up", &demo.state(), "--data", "1"]));
        demo
    }

    fn state(&self) -> String {
        self.0.path().join("state").display().to_string()
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        let _ = weft(["down", &self.state()]).output();
    }
}

#[test]
fn help_is_a_command_too() {
    let help = ok(&mut weft(["help"]));
    assert!(help.contains("Usage: weft") && help.contains("mount"), "{help}");
    for command in ["mount", "up", "bench", "completion", "man"] {
        assert_eq!(ok(&mut weft(["help", command])), ok(&mut weft([command, "--help"])), "{command}");
    }
    assert_eq!(ok(&mut weft(["help", "trace", "on"])), ok(&mut weft(["trace", "on", "--help"])));
    for command in ["df", "fsck", "inspect", "ping", "top"] {
        let help = ok(&mut weft(["help", command]));
        let usage = help.lines().find(|line| line.starts_with("Usage: ")).unwrap();
        assert!(usage.contains("|--state <DIR>>"), "one of both must be given: {usage}");
    }
    assert!(fails(&mut weft(["help", "nonsense"])).contains("nonsense"));
}

#[test]
fn a_file_system_is_named_by_position_or_by_state() {
    let demo = Demo::up();
    let state = &demo.state();
    for command in ["ping", "df", "status"] {
        let shape = |text: String| text.lines().count();
        let by_position = ok(&mut weft([command, state]));
        let by_state = ok(&mut weft([command, "--state", state]));
        assert_eq!(shape(by_position), shape(by_state), "{command}");
        assert!(fails(&mut weft([command, state, "--state", state])).contains("cannot be used with"), "{command}");
        assert!(fails(&mut weft([command])).contains("required"), "{command}");
    }
    assert!(ok(&mut weft(["top", "--state", state, "--once"])).contains("meta0"));
    assert!(ok(&mut weft(["metrics", "--state", state, "--once"])).contains("weft_up"));
    assert!(ok(&mut weft(["status", &format!("{state}/weft.toml")])).contains("meta0"));
}

#[test]
fn a_file_system_alone_is_its_root() {
    let demo = Demo::up();
    let state = &demo.state();
    ok(&mut weft(["mkdir", &format!("{state}:/dir")]));
    assert_eq!(ok(&mut weft(["ls", state])), "dir\n");
    assert_eq!(ok(&mut weft(["ls", &format!("{state}/weft.toml")])), "dir\n");
    fails(&mut weft(["rm", "-r", state]));
    assert_eq!(ok(&mut weft(["ls", state])), "dir\n");
    let other = demo.0.path().to_str().unwrap();
    let said = fails(&mut weft(["ls", other]));
    assert!(said.contains("is no path in a file system: write FS:/PATH"), "{said}");
}

#[test]
fn cp_takes_a_file_system_alone_for_its_root() {
    let demo = Demo::up();
    let state = &demo.state();
    let at = |name: &str| demo.0.path().join(name).display().to_string();
    std::fs::write(at("x"), "hello").unwrap();
    ok(&mut weft(["cp", &at("x"), state]));
    assert_eq!(ok(&mut weft(["ls", state])), "x\n");
    assert!(!Path::new(state).join("x").exists(), "nothing comes into the state directory itself");
    ok(&mut weft(["cp", "-r", state, &at("out")]));
    assert_eq!(std::fs::read_to_string(at("out/x")).unwrap(), "hello");
    // Into a file system the state directory itself is copied: nothing else would make a copy of
    // it.
    ok(&mut weft(["cp", &format!("{state}/weft.toml"), &format!("{state}:/config")]));
    assert!(ok(&mut weft(["cat", &format!("{state}:/config")])).contains("[[server]]"));
    let said = fails(&mut weft(["cp", &at("x"), &at("y")]));
    assert!(said.contains("in a file system (FS:/PATH); use cp"), "{said}");
}

#[test]
fn advice_fits_what_is_there() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_str().unwrap();
    assert!(fails(&mut weft(["ping", path])).contains("`weft up --state"), "an empty directory can become one");
    std::fs::write(dir.path().join("theirs"), "").unwrap();
    let said = fails(&mut weft(["ping", path]));
    assert!(said.contains("no Weft state directory") && !said.contains("weft up"), "`weft up` would refuse this one: {said}");
    assert!(fails(&mut weft(["ping", "/no/such/place"])).contains("a mount point or weft://HOST:PORT/NAME"));
}

#[test]
fn completions_know_every_command() {
    for shell in ["bash", "zsh", "fish"] {
        let text = ok(&mut weft(["completion", shell]));
        for command in ["mount", "umount", "explain", "completion"] {
            assert!(text.contains(command), "{shell} does not know {command}");
        }
    }
    let bash = Path::new("/bin/bash");
    if bash.exists() {
        let script =
            "source <(\"$WEFT\" completion bash) && COMP_WORDS=(weft um) COMP_CWORD=1 && _weft weft um weft && echo ${COMPREPLY[@]}";
        let output = ok(Command::new(bash).args(["-c", script]).env("WEFT", env!("CARGO_BIN_EXE_weft")));
        assert_eq!(output.trim(), "umount");
    }
}

#[test]
fn manual_pages_are_written_for_every_command() {
    let dir = tempfile::tempdir().unwrap();
    let into = dir.path().join("man1");
    ok(&mut weft(["man", into.to_str().unwrap()]));
    for page in ["weft.1", "weft-mount.1", "weft-up.1", "weft-trace-on.1", "weft-sim-run.1"] {
        let text = std::fs::read_to_string(into.join(page)).unwrap_or_else(|error| panic!("{page}: {error}"));
        assert!(text.contains(".TH") && text.contains(".SH"), "{page}: {text}");
    }
    assert!(!into.join("weft-help.1").exists());
}
