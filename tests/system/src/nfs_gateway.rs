//! A gateway of NFS as a process.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};

use crate::{FileSystem, weft};

/// A gateway process; it ends with this.
pub struct NfsGateway {
    /// The process.
    pub child: Child,
    /// Where it listens, on 127.0.0.1 or all addresses of this machine.
    pub port: u16,
}

impl NfsGateway {
    /// At this port (0: any), with these exports.
    pub fn start(fs: &FileSystem, port: u16, exports: &[&str]) -> NfsGateway {
        NfsGateway::start_with(fs, &format!("127.0.0.1:{port}"), exports, &[])
    }

    /// At this address, with these exports and further options.
    pub fn start_with(fs: &FileSystem, address: &str, exports: &[&str], options: &[&str]) -> NfsGateway {
        let mut command = weft();
        command.arg("nfs").arg(fs.state()).args(["--listen", address]).args(options);
        exports.iter().for_each(|export| {
            command.args(["--export", export]);
        });
        let mut child = command.stdout(Stdio::piped()).spawn().expect("weft runs");
        let mut line = String::new();
        let stdout = child.stdout.take().expect("a pipe");
        BufReader::new(stdout).read_line(&mut line).expect("a line");
        let port = line.trim().rsplit(':').next().and_then(|port| port.parse().ok()).unwrap_or_else(|| panic!("no address in {line:?}"));
        NfsGateway { child, port }
    }

    /// libnfs mounts all but the last name of a path, and takes the root for a name of its own.
    pub fn url(&self, path: &str) -> String {
        format!("nfs://127.0.0.1{path}?version=3&nfsport={0}&mountport={0}", self.port)
    }

    /// Kills it.
    pub fn kill(&mut self) {
        self.child.kill().expect("it can be killed");
        self.child.wait().expect("it ends");
    }
}

impl Drop for NfsGateway {
    fn drop(&mut self) {
        // It may be gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
