//! The list of keys over several machines: metadata server 0 has it, the others learn it. Each
//! machine is a folder with a config of its own here.

use std::fs;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::Duration;

use weft_base::Status;
use weft_system_tests::socket::{Peer, read_credential};
use weft_system_tests::{FileSystem, fails, ok, wait_until, weft};
use weft_wire::Credential;
use weft_wire::ops::PingRequest;

/// Longer than a server takes to follow the list of keys: three seconds.
const PATIENCE: Duration = Duration::from_secs(20);
const META: usize = 0;
const DATA: usize = 1;
const NAMES: [&str; 2] = ["meta0", "data0"];

/// One machine with metadata server 0, one with a data server and without a list of keys.
struct Machines {
    fs: FileSystem,
    servers: [Option<Child>; 2],
}

impl Machines {
    fn new() -> Machines {
        let fs = FileSystem::prepare();
        for machine in NAMES {
            fs::DirBuilder::new().mode(0o700).create(fs.path(machine)).unwrap();
        }
        let machines = Machines { fs, servers: [None, None] };
        let (meta, data) = (machines.address(META), machines.address(DATA));
        let mut genconfig = weft();
        genconfig.args(["genconfig", "--meta", &meta, "--data", &data, "--dir"]).arg(machines.fs.path("stores"));
        ok(genconfig.arg("-o").arg(machines.config(META)));
        for file in ["weft.toml", "server.key", "key"] {
            fs::copy(machines.fs.path("meta0").join(file), machines.fs.path("data0").join(file)).unwrap();
        }
        machines
    }

    fn address(&self, server: usize) -> String {
        format!("unix:{}", self.fs.path(&format!("{0}/{0}.sock", NAMES[server])).display())
    }

    fn config(&self, machine: usize) -> PathBuf {
        self.fs.path(NAMES[machine]).join("weft.toml")
    }

    fn list(&self) -> PathBuf {
        self.fs.path("meta0/keys")
    }

    fn copy(&self) -> PathBuf {
        self.fs.path("stores/data0/keys")
    }

    fn start(&mut self, server: usize) {
        let mut command = weft();
        command.args(["serve", "--create", "--server", NAMES[server], "--config"]).arg(self.config(server));
        let log = fs::OpenOptions::new().create(true).append(true).open(self.log(server)).unwrap();
        self.servers[server] = Some(command.stdout(Stdio::null()).stderr(log).spawn().unwrap());
        wait_until("a server that listens", PATIENCE, || Peer::connect(&self.address(server)).is_ok());
    }

    fn log(&self, server: usize) -> PathBuf {
        self.fs.path(&format!("{}.log", NAMES[server]))
    }

    fn stop(&mut self, server: usize) {
        let Some(mut child) = self.servers[server].take() else { return };
        child.kill().unwrap();
        child.wait().unwrap();
    }

    fn key(&self, args: &[&str]) -> std::process::Command {
        let mut command = weft();
        command.args(["key"]).args(args).arg("--state").arg(self.config(META));
        command
    }

    fn add(&self, name: &str) -> Credential {
        let file = self.fs.path(&format!("{name}.key"));
        ok(self.key(&["add", name]).arg("--output").arg(&file));
        read_credential(&file)
    }

    fn join(&self, server: usize, key: &Credential) -> std::io::Result<Peer> {
        Peer::join_as(&self.address(server), key, key.id.client(9 << 20))
    }

    fn refuses(&self, server: usize, key: &Credential) -> bool {
        let refused =
            |error: &std::io::Error| error.get_ref().and_then(|inner| inner.downcast_ref()) == Some(&Status::AuthenticationFailed);
        self.join(server, key).is_err_and(|error| refused(&error))
    }
}

impl Drop for Machines {
    fn drop(&mut self) {
        for server in &mut self.servers {
            let _ = server.as_mut().map(Child::kill);
            let _ = server.as_mut().map(Child::wait);
        }
    }
}

#[test]
fn promise_the_list_of_keys_travels() {
    let mut machines = Machines::new();
    let own = read_credential(&machines.fs.path("data0/key"));
    machines.start(DATA);
    assert!(machines.refuses(DATA, &own), "it has no list yet");
    machines.start(META);
    wait_until("the first list", PATIENCE, || machines.join(DATA, &own).is_ok());
    // Who was added or revoked when the command returns is so everywhere.
    let (guest, other) = (machines.add("guest"), machines.add("other"));
    let before = fs::read(machines.list()).unwrap();
    let mut open = machines.join(DATA, &guest).unwrap();
    assert!(open.ask(&PingRequest {}, &[]).unwrap().is_ok());
    assert_eq!(ok(&mut machines.key(&["revoke", "guest"])), "revoked `guest`\n");
    assert!(machines.refuses(DATA, &guest) && machines.refuses(META, &guest));
    wait_until("the end of an open connection", PATIENCE, || !matches!(open.ask(&PingRequest {}, &[]), Ok(Ok(_))));
    wait_until("a stored copy", PATIENCE, || fs::read(machines.copy()).ok() == fs::read(machines.list()).ok());

    // Without metadata server 0 it goes on with what it has stored.
    machines.stop(META);
    machines.stop(DATA);
    machines.start(DATA);
    assert!(machines.refuses(DATA, &guest) && machines.join(DATA, &own).is_ok() && machines.join(DATA, &other).is_ok());

    // A list beside its config, which counts now, brings nothing back either.
    fs::write(machines.fs.path("data0/keys"), &before).unwrap();
    let log = |machines: &Machines| fs::read_to_string(machines.log(DATA)).unwrap().matches("the list of keys has changed").count();
    let seen = log(&machines);
    wait_until("another list", PATIENCE, || log(&machines) > seen);
    assert!(machines.refuses(DATA, &guest) && machines.join(DATA, &other).is_ok());

    // It was away for long: what happened meanwhile is made up for at its start.
    machines.stop(DATA);
    machines.start(META);
    let newer = machines.add("newer");
    let said = ok(&mut machines.key(&["revoke", "other"]));
    assert!(said.contains("data0: ") && said.contains("learns of this when it reaches metadata server 0"), "{said}");
    machines.start(DATA);
    wait_until("what it has missed", PATIENCE, || machines.join(DATA, &newer).is_ok());
    assert!(machines.refuses(DATA, &other));

    // An old copy of the list opens nothing that was closed.
    fs::write(machines.list(), before).unwrap();
    wait_until("the old list", PATIENCE, || machines.join(META, &guest).is_ok() && machines.refuses(DATA, &newer));
    assert!(machines.refuses(DATA, &guest) && machines.refuses(DATA, &other) && machines.join(DATA, &own).is_ok());
    let log = fs::read_to_string(machines.log(DATA)).unwrap();
    assert!(log.contains("it is an old copy") && log.contains("key 2, 3"), "{log}");
    // On the wrong machine the command changes nothing of what counts, and says so.
    fs::copy(machines.list(), machines.fs.path("data0/keys")).unwrap();
    let mut wrong = weft();
    wrong.args(["key", "revoke", "default", "--state"]).arg(machines.config(DATA));
    let said = fails(&mut wrong);
    assert!(said.contains("meta0 goes by another list of keys"), "{said}");
    assert!(machines.join(DATA, &own).is_ok());
}

/// The disk of a server refuses the copy: the list holds all the same, and is stored later.
#[test]
fn a_list_of_keys_that_cannot_be_stored_holds() {
    let mut machines = Machines::new();
    machines.start(META);
    machines.start(DATA);
    let guest = machines.add("guest");
    wait_until("a stored copy", PATIENCE, || fs::read(machines.copy()).ok() == fs::read(machines.list()).ok());
    // Where the new copy would be written.
    let way = machines.fs.path("stores/data0/keys.new");
    fs::create_dir(&way).unwrap();
    ok(&mut machines.key(&["revoke", "guest"]));
    assert!(machines.refuses(DATA, &guest));
    let said = || fs::read_to_string(machines.log(DATA)).unwrap().matches("not stored for the next start").count();
    wait_until("a word about it", PATIENCE, || said() > 0);
    fs::remove_dir(&way).unwrap();
    wait_until("a stored copy", PATIENCE, || fs::read(machines.copy()).ok() == fs::read(machines.list()).ok());
    assert_eq!(said(), 1, "it is said once");
    // A copy that is damaged lets nobody in, until metadata server 0 has given the list.
    machines.stop(META);
    machines.stop(DATA);
    fs::write(machines.copy(), "weft keys 1\nnonsense\n").unwrap();
    machines.start(DATA);
    let own = read_credential(&machines.fs.path("data0/key"));
    assert!(machines.refuses(DATA, &own));
    machines.start(META);
    wait_until("the list", PATIENCE, || machines.join(DATA, &own).is_ok());
    assert!(machines.refuses(DATA, &guest));
}

/// Lists of many pieces travel whole, and two commands at once lose nothing.
#[test]
fn long_lists_of_keys_travel_and_several_change_them() {
    let mut machines = Machines::new();
    let mut list = fs::read_to_string(machines.list()).unwrap();
    for number in 2..=20_000 {
        list += &format!("{number} 1 one-of-many-clients-{number} users=1000-1999 root-squash\n");
    }
    fs::write(machines.list(), list).unwrap();
    fs::set_permissions(machines.list(), fs::Permissions::from_mode(0o600)).unwrap();
    machines.start(META);
    machines.start(DATA);
    let own = read_credential(&machines.fs.path("data0/key"));
    wait_until("the first list", PATIENCE, || machines.join(DATA, &own).is_ok());
    let add = |number: usize| {
        let (name, file) = (format!("new{number}"), machines.fs.path(&format!("new{number}.key")));
        let mut command = machines.key(&["add", &name]);
        (command.arg("--output").arg(&file).stdout(Stdio::null()).spawn().unwrap(), file)
    };
    let added: Vec<_> = (0..4).map(add).collect();
    let keys: Vec<Credential> = added
        .into_iter()
        .map(|(mut child, file)| {
            assert!(child.wait().unwrap().success());
            read_credential(&file)
        })
        .collect();
    let mut numbers: Vec<u16> = keys.iter().map(|key| key.id.0).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, [20_001, 20_002, 20_003, 20_004]);
    wait_until("all four", PATIENCE, || keys.iter().all(|key| machines.join(DATA, key).is_ok() && machines.join(META, key).is_ok()));
}
