//! Two machines of a test with one file system.

use std::process::Command;
use std::time::Duration;

use crate::{FileSystem, Machine, ok, run, wait_until, weft};

const PATIENCE: Duration = Duration::from_secs(30);

/// A file system on one machine and a mount on another, joined by a cable.
#[derive(Debug)]
pub struct Pair {
    /// The machine of the mount, which is at `mnt` on its disk.
    pub client: Machine,
    /// The machine of all servers: meta0, data0 and data1 at the ports from 7000 on.
    pub servers: Machine,
    /// Removes the folder at the end.
    _place: FileSystem,
}

impl Pair {
    /// The clocks of the machines are so many seconds ahead of that of this one.
    pub const CLIENT_AHEAD_S: u32 = 50;
    /// As [`Pair::CLIENT_AHEAD_S`].
    pub const SERVERS_AHEAD_S: u32 = 1000;

    /// Both, and a mount; the servers with these fault points (`WEFT_FAULT`).
    pub fn start(fault: &str) -> Pair {
        let place = FileSystem::prepare();
        let machine = |name: &str, ahead_s| {
            let disk = place.path(name);
            std::fs::create_dir(&disk).expect("a new folder");
            Machine::start(name, ahead_s, &disk)
        };
        let (client, servers) = (machine("boron", Self::CLIENT_AHEAD_S), machine("chlorine", Self::SERVERS_AHEAD_S));
        Machine::connect(&client, &servers);
        let config = servers.path("weft.toml");
        let mut genconfig = servers.on(weft().get_program());
        genconfig.args(["genconfig", "--allow-faults", "--meta", "10.77.0.2:7000", "--data", "10.77.0.2:7001,10.77.0.2:7002", "--dir"]);
        ok(genconfig.arg(servers.path("stores")).arg("-o").arg(&config));
        for server in ["meta0", "data0", "data1"] {
            let script = r#""$1" serve --create --config "$2" --server "$3" > "$2.$3.log" 2>&1 &"#;
            let mut command = servers.on("sh");
            command.args(["-euc", script, "sh"]).arg(weft().get_program()).arg(&config).arg(server);
            ok(command.env("WEFT_FAULT", fault));
        }
        for name in ["weft.toml", "key"] {
            std::fs::copy(servers.from_outside(name), client.from_outside(name)).expect("a copy for the other machine");
        }
        let pair = Pair { client, servers, _place: place };
        wait_until("servers that answer", PATIENCE, || run(&mut pair.weft(&["ping"], &[]), PATIENCE).is_success());
        std::fs::create_dir(pair.client.from_outside("mnt")).expect("a new folder");
        ok(pair.weft(&["mount"], &[]).arg(pair.client.path("mnt")));
        pair
    }

    /// A command of weft about the file system, on the machine of the mount.
    pub fn weft(&self, command: &[&str], options: &[&str]) -> Command {
        let mut program = self.client.on(weft().get_program());
        program.args(command).arg(self.client.path("weft.toml")).args(options);
        program
    }

    /// Unmounts it.
    pub fn end(&self) {
        ok(self.client.on(weft().get_program()).arg("umount").arg(self.client.path("mnt")));
    }
}
