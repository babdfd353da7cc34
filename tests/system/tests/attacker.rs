//! What a stranger in the network, another user of the machine, and a file in the file system try.
//! `SECURITY.md` says what each may do.

use std::fs;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use weft_system_tests::{FileSystem, Need, alive, available, fails, ok, weft};

/// Another user of this machine.
const SOMEBODY: &str = "65534";

/// The TCP ports of the servers.
fn ports(fs: &FileSystem) -> Vec<u16> {
    let config = fs::read_to_string(fs.state().join("weft.toml")).expect("a config");
    let ports = config.lines().filter_map(|line| line.split_once("tcp:127.0.0.1:")?.1.trim_matches('"').parse().ok());
    ports.collect()
}

#[test]
fn promise_unauthenticated_connections_keep_nobody_out() {
    let fs = FileSystem::up(&["--listen", "tcp", "--meta", "1", "--data", "1"]);
    let ports = ports(&fs);
    assert_eq!(ports.len(), 2);
    ok(weft().args(["mkdir", &fs.at("/before")]));
    // As many idle connections as this process may have; more than a server gives to strangers.
    let mut idle = Vec::new();
    for number in 0..700 {
        match TcpStream::connect(("127.0.0.1", ports[number % 2])) {
            Ok(stream) => idle.push(stream),
            Err(_) => break,
        }
    }
    assert!(idle.len() > 300);
    // A patience below that of a server with strangers who say nothing.
    let local = fs.path("file");
    fs::write(&local, b"hello").expect("a file");
    for number in 0..5 {
        ok(weft().args(["--timeout", "1", "mkdir", &fs.at(&format!("/d{number}"))]));
        ok(weft().args(["--timeout", "1", "cp"]).arg(&local).arg(fs.at(&format!("/d{number}/f"))));
    }
    drop(idle);
    fs.down();
}

#[test]
fn promise_own_state() {
    if !available("promise_own_state", &[Need::Root, Need::Programs(&["chown"])]) {
        return;
    }
    let fs = FileSystem::up(&["--meta", "1", "--data", "1"]);
    fs.down();
    let state = fs.state();
    let place = fs.path("elsewhere");
    fs::write(state.join("mount"), format!("{}\n", place.display())).expect("a file");
    let mut victim = Command::new("sleep").arg("100").spawn().expect("it starts");
    // A pid file that is held, as a server holds it, and names somebody else's process.
    let forged = fs::File::create(state.join("run/data0.pid")).expect("a file");
    let start = fs::read_to_string(format!("/proc/{}/stat", victim.id())).expect("it lives");
    let start = start.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(19)).expect("its start").to_string();
    fs::write(state.join("run/data0.pid"), format!("{} {start}\n", victim.id())).expect("a file");
    forged.lock().expect("nobody else has it");

    // All of it is of somebody else: nothing is started, mounted or ended.
    ok(Command::new("chown").args(["-R", SOMEBODY]).arg(&state));
    let refused = |words: String| assert!(words.contains(&format!("belongs to user {SOMEBODY}")), "{words}");
    refused(fails(weft().args(["up", "--state"]).arg(&state)));
    refused(fails(weft().args(["up", "--state"]).arg(&state).arg("--mount").arg(&place)));
    refused(fails(weft().args(["down", "--state"]).arg(&state)));
    refused(fails(weft().args(["serve", "--server", "meta0", "--config"]).arg(state.join("weft.toml"))));
    refused(fails(weft().args(["ls", &fs.at("/")])));
    assert!(alive(victim.id()) && !place.exists());
    // Even if only the folder is ours, each file in it must be.
    ok(Command::new("chown").arg("0").args([&state, &state.join("run"), &state.join("servers")]));
    refused(fails(weft().args(["down", "--state"]).arg(&state)));
    ok(Command::new("chown").arg("0").arg(state.join("weft.toml")));
    refused(fails(weft().args(["down", "--state"]).arg(&state)));
    refused(fails(weft().args(["ls", &fs.at("/")])));
    // And a file that is ours ends nobody who is not a server of this user.
    ok(Command::new("chown").args(["-R", "0"]).arg(&state));
    let words = fails(weft().args(["down", "--state"]).arg(&state));
    assert!(words.contains("left alone"), "{words}");
    assert!(alive(victim.id()));
    drop(forged);
    victim.kill().expect("it lives");
    victim.wait().expect("it ends");

    fs::set_permissions(state.join("key"), fs::Permissions::from_mode(0o644)).expect("it is ours");
    let words = fails(weft().args(["ls", &fs.at("/")]));
    assert!(words.contains("chmod 600"), "{words}");
    fs::set_permissions(state.join("key"), fs::Permissions::from_mode(0o600)).expect("it is ours");
    fs::set_permissions(&state, fs::Permissions::from_mode(0o777)).expect("it is ours");
    let words = fails(weft().args(["up", "--state"]).arg(&state));
    assert!(words.contains("chmod go-w"), "{words}");
    fs::set_permissions(&state, fs::Permissions::from_mode(0o700)).expect("it is ours");
    fs::remove_file(state.join("mount")).expect("it is there");
    fs.start(&[]);
    fs.down();
}

#[test]
fn copies_out_of_a_file_system_give_no_rights_and_stay_where_they_belong() {
    if !available("copies_out_of_a_file_system_give_no_rights", &[Need::Fuse]) {
        return;
    }
    let fs = FileSystem::mounted(&["--meta", "1", "--data", "1"]);
    let (tree, copy, outside) = (fs.mnt().join("tree"), fs.path("copy"), fs.path("outside"));
    for dir in [&tree, &tree.join("sub"), &outside] {
        fs::create_dir(dir).expect("a directory");
    }
    fs::write(tree.join("program"), "#!/bin/sh").expect("a file");
    fs::write(tree.join("sub/file"), "new").expect("a file");
    fs::set_permissions(tree.join("program"), fs::Permissions::from_mode(0o4755)).expect("it is ours");
    fs::set_permissions(tree.join("sub"), fs::Permissions::from_mode(0o2775)).expect("it is ours");
    let cp = || {
        let mut command = weft();
        command.args(["cp", "-r", &fs.at("/tree")]).arg(&copy);
        command
    };
    ok(&mut cp());
    let mode = |path: &std::path::Path| fs::metadata(path).expect("it was copied").permissions().mode() & 0o7777;
    assert_eq!([mode(&copy.join("program")), mode(&copy.join("sub"))], [0o755, 0o775]);
    // The second one goes into the first: `copy/tree`.
    ok(&mut cp());
    fs::remove_dir_all(copy.join("tree/sub")).expect("it was copied");
    std::os::unix::fs::symlink(&outside, copy.join("tree/sub")).expect("a symlink");
    let words = fails(&mut cp());
    assert!(words.contains("is a symlink, which a copy does not follow"), "{words}");
    assert_eq!(fs::read_dir(&outside).expect("it is there").count(), 0, "nothing left the target");
    fs.down();
}

#[test]
fn servers_and_mounts_may_have_as_many_connections_as_the_system_allows() {
    let fs = FileSystem::prepare();
    let mut up = Command::new("sh");
    up.args(["-c", "ulimit -S -n 256 && exec \"$0\" \"$@\""]).arg(weft().get_program());
    ok(up.args(["up", "--meta", "1", "--data", "1", "--state"]).arg(fs.state()));
    for server in ["meta0", "data0"] {
        let limits = fs::read_to_string(format!("/proc/{}/limits", fs.pid(server).expect("it runs"))).expect("it lives");
        let files = limits.lines().find(|line| line.starts_with("Max open files")).expect("a limit");
        let words: Vec<_> = files.split_whitespace().collect();
        assert_eq!(words[3], words[4], "the soft limit is the hard one: {files}");
    }
    fs.down();
}

#[test]
fn holders_of_the_key_do_not_choose_where_servers_write() {
    let fs = FileSystem::up(&["--meta", "1", "--data", "1"]);
    let folder = fs.path("elsewhere");
    let words = fails(weft().args(["trace", "on"]).arg(fs.state()).arg("--dir").arg(&folder));
    assert!(words.contains("--into"), "{words}");
    let words = fails(weft().args(["trace", "on", "--ring", "256MiB"]).arg(fs.state()));
    assert!(words.contains("at most 128 MiB"), "{words}");
    ok(weft().args(["trace", "on"]).arg(fs.state()));
    ok(weft().args(["ls", &fs.at("/")]));
    ok(weft().args(["trace", "off"]).arg(fs.state()).arg("--into").arg(&folder));
    let traces =
        fs::read_dir(&folder).expect("it was made").flatten().filter(|entry| entry.path().extension().is_some_and(|end| end == "wtrace"));
    assert_eq!(traces.count(), 2, "one file of each server");
    fs.down();
}
