//! Machines of a test: network, time, host name and mounts of their own, in namespaces of this
//! machine. A test runs programs on them; their disks are folders that only they see.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::needs::Need;
use crate::program::ok;

/// A machine that runs until this is dropped.
#[derive(Debug)]
pub struct Machine {
    /// Holds the namespaces.
    holder: Child,
    /// The first process in them.
    pid: u32,
    disk: PathBuf,
}

impl Machine {
    /// The programs that make machines.
    pub const NEEDS: Need = Need::Programs(&["unshare", "nsenter", "ip"]);

    /// A machine of this name whose monotonic clock is `ahead_s` seconds ahead of that of this one.
    /// What it has below `disk`, an existing folder, nobody else sees; its processes end with it.
    /// Needs root and [`Machine::NEEDS`].
    pub fn start(name: &str, ahead_s: u32, disk: &Path) -> Machine {
        let script = r#"echo "$1" > /proc/sys/kernel/hostname; mount -t tmpfs -o mode=755 disk "$2"; ip link set lo up; echo ready; exec sleep infinity"#;
        let mut holder = Command::new("unshare")
            .args(["--net", "--uts", "--mount", "--pid", "--mount-proc", "--time", "--monotonic", &ahead_s.to_string()])
            .args(["--fork", "--kill-child", "sh", "-euc", script, "sh", name])
            .arg(disk)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("unshare is installed");
        let mut line = String::new();
        let out = holder.stdout.take().expect("it is a pipe");
        BufReader::new(out).read_line(&mut line).expect("it says that it is ready");
        let children = format!("/proc/{0}/task/{0}/children", holder.id());
        let pid = std::fs::read_to_string(children).ok().and_then(|pids| pids.trim().parse().ok());
        let pid = pid.unwrap_or_else(|| panic!("the machine {name} did not start: {line:?}"));
        Machine { holder, pid, disk: disk.to_path_buf() }
    }

    /// Connects two machines by a cable. The first one has the address 10.77.0.1, the second one
    /// 10.77.0.2.
    pub fn connect(one: &Machine, other: &Machine) {
        let (first, second) = (one.pid.to_string(), other.pid.to_string());
        let cable = ["link", "add", "net0", "netns", &first, "type", "veth", "peer", "name", "net0", "netns", &second];
        ok(Command::new("ip").args(cable));
        for (machine, address) in [(one, "10.77.0.1/24"), (other, "10.77.0.2/24")] {
            ok(machine.on("ip").args(["addr", "add", address, "dev", "net0"]));
            ok(machine.on("ip").args(["link", "set", "net0", "up"]));
        }
    }

    /// The program, to be run on this machine.
    pub fn on(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.pid.to_string(), "--net", "--uts", "--mount", "--pid", "--time", "--"]).arg(program);
        command.env_remove("WEFT_KEY_FILE");
        command
    }

    /// A path on its disk.
    pub fn path(&self, name: &str) -> PathBuf {
        self.disk.join(name)
    }

    /// The same as this process can reach it.
    pub fn from_outside(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        Path::new("/proc").join(self.pid.to_string()).join("root").join(path.strip_prefix("/").unwrap_or(&path))
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // The kernel ends its child then, with that all processes of the machine, and removes the
        // namespaces.
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}
