//! `weft up` and `weft down` on a state that is there already: what they keep, take and refuse.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;
use weft_system_tests::{FileSystem, Need, alive, available, fails, ok, run, signal, wait_until, weft};

const PATIENCE: Duration = Duration::from_secs(60);

/// `weft up` of the state, refused.
fn refused(fs: &FileSystem, args: &[&str]) -> String {
    fails(weft().args(["up", "--state"]).arg(fs.state()).args(args))
}

#[test]
fn arguments_that_make_no_file_system_leave_no_state() {
    let fs = FileSystem::prepare();
    let words = refused(&fs, &["--data", "2", "--stripe-width", "4"]);
    assert!(words.contains("stripe_width") && words.contains("only 2 data servers"), "{words}");
    assert!(!words.contains("weft.toml"), "a file that nobody has written is not to be mended: {words}");
    let words = refused(&fs, &["--data", "1", "--mount", "mnt", "-o", "nonsense"]);
    assert!(words.contains("nonsense"), "{words}");
    assert!(fs.processes().is_empty() && !fs.state().join("weft.toml").exists());
    let words = fails(weft().args(["up", "--state", "/etc/passwd"]));
    assert!(words.contains("/etc/passwd is a file"), "{words}");
    fs.start(&["--data", "4", "--stripe-width", "4"]);
    fs.down();
    let genconfig = ["genconfig", "--meta", "a:1", "--data", "a:2", "--stripe-width", "2", "--output"];
    assert!(fails(weft().args(genconfig).arg(fs.path("weft.toml"))).contains("stripe_width"));
    assert!(!fs.path("weft.toml").exists() && !fs.path("key").exists());
}

#[test]
fn advice_can_be_pasted() {
    let fs = FileSystem::prepare();
    let state = fs.path("it's a state");
    let begun = ok(weft().args(["up", "--data", "1", "--state"]).arg(&state));
    let pasted = |text: &str, begin: &str, end: &str| {
        let at = text.find(begin).unwrap_or_else(|| panic!("{begin}: {text}"));
        let line = text[at..].lines().next().unwrap().split(end).next().unwrap().trim_end().to_string();
        let line = line.replacen("weft ", "\"$0\" ", 1);
        ok(Command::new("sh").args(["-c", &line]).arg(weft().get_program()))
    };
    assert!(pasted(&begun, "weft status --state", "    ").contains("data0"));
    pasted(&begun, "weft down --state", "    ");
    let words = run(weft().arg("status").arg("--state").arg(&state), PATIENCE).words();
    pasted(&words, "weft up --state", "\n");
    ok(weft().arg("down").arg(&state));
}

#[test]
fn a_mount_comes_back_with_its_options() {
    if !available("a_mount_comes_back_with_its_options", &[Need::Fuse]) {
        return;
    }
    let fs = FileSystem::mounted(&["--data", "1", "-o", "ro,cache_ms=0"]);
    let is_read_only = || match fs::create_dir(fs.mnt().join("dir")) {
        Err(error) => error.kind() == std::io::ErrorKind::ReadOnlyFilesystem,
        Ok(()) => false,
    };
    assert!(is_read_only());
    for round in 0..2 {
        fs.down();
        fs.start(&[]);
        assert!(is_read_only(), "round {round}");
        // While it is there nothing is forgotten either.
        fs.start_mounted(&[]);
        fs.start_mounted(&["-o", "ro,cache_ms=0"]);
        let words = fails(weft().args(["up", "-o", "cache_ms=0", "--state"]).arg(fs.state()));
        assert!(words.contains("mounted at") && words.contains("weft umount"), "{words}");
    }
    fs.down();
    fs.start_mounted(&[]);
    assert!(!is_read_only(), "whoever names the place says all of it");
    fs.down();
}

#[test]
fn down_ends_a_server_that_was_taken_out_of_the_config() {
    let fs = FileSystem::up(&["--data", "1"]);
    let config = fs.state().join("weft.toml");
    let before = fs::read_to_string(&config).unwrap();
    let more = "\n[[server]]\nname = \"data1\"\nrole = \"data\"\naddress = \"unix:run/data1.sock\"\ndir = \"servers/data1\"\n";
    fs::write(&config, before.clone() + more).unwrap();
    fs.start(&[]);
    assert_eq!(fs.processes().len(), 3);
    let pid = fs.pid("data1").expect("it runs");
    assert!(fs.status().0);
    fs::write(&config, before).unwrap();
    let (is_well, status) = fs.status();
    let problem = status["problems"][0].as_str().unwrap_or_default();
    assert!(!is_well && problem.starts_with(&format!("data1 runs (process {pid})")), "{status}");
    let words = ok(weft().args(["down", "--state"]).arg(fs.state()));
    assert!(words.contains("data1 ran although") && words.contains("stopped 3 servers"), "{words}");
    assert!(fs.processes().is_empty());
}

/// A server that runs by its old name is named, and goes on; what was ended starts by the new name.
#[test]
fn a_server_with_another_name_is_restarted_first() {
    if !available("a_server_with_another_name_is_restarted_first", &[]) {
        return;
    }
    let fs = FileSystem::prepare();
    fs.start(&["--meta", "1", "--data", "2"]);
    let (config, pid) = (fs.state().join("weft.toml"), fs.pid("data1").expect("it runs"));
    let text = fs::read_to_string(&config).unwrap();
    for (name, address) in [("renamed", "run/data1.sock"), ("moved", "run/moved.sock")] {
        let new = text.replace("\"data1\"", &format!("\"{name}\"")).replace("run/data1.sock", address);
        assert!(new != text);
        fs::write(&config, new).unwrap();
        let words = fails(weft().args(["up", "--state"]).arg(fs.state()));
        assert!(words.contains("data1 runs") && words.contains(name), "{words}");
        assert!(alive(pid) && fs.pid(name).is_none(), "the one that runs goes on");
    }
    signal(pid, Signal::TERM).unwrap();
    wait_until("its end", PATIENCE, || !alive(pid));
    fs.start(&[]);
    assert!(fs.status().0 && fs.pid("moved").is_some());
    fs.down();
}

#[test]
fn what_a_file_system_keeps_is_not_asked_of_it_in_vain() {
    let fs = FileSystem::up(&["--data", "2", "--stripe-width", "1", "--durability", "batch"]);
    let kept = [
        (vec!["--stripe-width", "2"], "stripe_width"),
        (vec!["--cache-layer", "aggregation"], "cache_layer"),
        (vec!["--direct-io"], "direct_io"),
        (vec!["--no-encryption"], "encrypt_tcp"),
        (vec!["--listen", "tcp"], "addresses"),
        (vec!["--capacity", "1GiB"], "capacity"),
        (vec!["--name", "other"], "name"),
        (vec!["--stripe-size", "64KiB"], "stripe_size"),
        (vec!["--inline-limit", "0"], "inline_limit"),
        (vec!["--engine", "db"], "engine"),
        (vec!["--durability", "sync"], "weft set durability sync"),
    ];
    for (args, word) in kept {
        let words = refused(&fs, &args);
        assert!(words.contains(args[0]) && words.contains(word), "{args:?}: {words}");
    }
    assert_eq!(fs.processes().len(), 3, "they run as before");
    // What is so already, and what is not said.
    let same = ["--stripe-width", "1", "--listen", "unix", "--name", "weft", "--stripe-size", "1MiB", "--engine", "journal"];
    fs.start(&[&same[..], &["--durability", "batch"]].concat());
    ok(weft().args(["set", "durability", "sync"]).arg(fs.state()));
    fs.start(&["--durability", "sync"]);
    fs.down();
    assert!(refused(&fs, &["--durability", "batch"]).contains("weft set durability batch"));
    assert!(fs.processes().is_empty(), "what was started for it is stopped");
    fs.start(&[]);
    fs.down();
    let memory = FileSystem::up(&["--data", "1", "--engine", "memory", "--durability", "none"]);
    memory.start(&["--engine", "memory", "--durability", "none"]);
    memory.down();
}

/// What `make run` does; its build is left out.
#[test]
fn a_demo_that_is_being_made_is_not_removed_by_another_one() {
    let fs = FileSystem::prepare();
    let demo = fs.path("demo");
    fs::create_dir_all(demo.join("state")).unwrap();
    fs::write(demo.join("state/weft.toml"), "of the first one").unwrap();
    fs::create_dir_all(fs.path("target/release")).unwrap();
    symlink(weft().get_program(), fs.path("target/release/weft")).unwrap();
    symlink("/bin/true", fs.path("cargo")).unwrap();
    let first = fs::File::open(&demo).unwrap();
    rustix::fs::flock(&first, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let mut second = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/run-demo.sh"));
    second.env("PATH", format!("{}:{}", fs.path("").display(), std::env::var("PATH").unwrap_or_default()));
    let words = fails(second.env("WEFT_DEMO_DIR", &demo).env("CARGO_TARGET_DIR", fs.path("target")));
    assert!(words.contains("another 'make run' is at work"), "{words}");
    assert_eq!(fs::read_to_string(demo.join("state/weft.toml")).unwrap(), "of the first one");
}
