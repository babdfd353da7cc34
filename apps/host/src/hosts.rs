//! The hosts of a job, how a program is started on each of them, and what each of them is told.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use weft_base::ServerRole;

use crate::config::DraftServer;
use crate::output;
use crate::units::ByteSize;

/// Most hosts of one job.
pub const HOSTS_MAX: usize = 4096;

/// The name of this machine.
pub fn machine_name() -> String {
    nix::sys::utsname::uname().map(|names| names.nodename().to_string_lossy().into_owned()).unwrap_or_default()
}

/// What starts programs on hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Launcher {
    /// A secure shell without a terminal and without questions.
    Ssh,
    /// A step of a Slurm job.
    Srun,
    /// A process of MPI.
    Mpiexec,
}

/// The hosts of a job, remembered beside its config. Nothing in it is secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// What starts programs on them.
    pub launcher: Launcher,
    /// Their names.
    pub hosts: Vec<String>,
    /// The program there.
    pub program: String,
    /// The folder below which each of them keeps its data; its own for temporary files if empty.
    pub dir: String,
    /// Where everything is copied before the end.
    pub stage_out: Option<String>,
}

/// What one host is told, over standard input: keys are never on a command line.
#[derive(Serialize, Deserialize)]
pub struct Order {
    /// The folder below which it keeps its data, or empty.
    pub dir: String,
    /// The name of its own folder there.
    pub folder: String,
    /// The config.
    pub config: String,
    /// The key of a client.
    pub key: String,
    /// The key of servers.
    pub server_key: String,
    /// The list of clients' keys, for the host of metadata server 0.
    pub keys: Option<String>,
    /// The servers that it starts.
    pub servers: Vec<String>,
}

impl Launcher {
    /// A command that runs `program` with `args` on `host`. Its standard input is the program's.
    pub fn command(self, host: &str, program: &str, args: &[&str]) -> Command {
        let mut command;
        match self {
            Launcher::Ssh => {
                command = Command::new("ssh");
                // A shell over there splits the line.
                let line: Vec<String> = std::iter::once(program).chain(args.iter().copied()).map(output::quoted).collect();
                command.args(["-T", "-o", "BatchMode=yes", "-o", "ServerAliveInterval=15", "--", host]).arg(line.join(" "));
                return command;
            }
            Launcher::Srun => {
                command = Command::new("srun");
                command.args(["--overlap", "--nodes=1", "--ntasks=1", "--nodelist", host]);
            }
            Launcher::Mpiexec => {
                command = Command::new("mpiexec");
                command.args(["-n", "1", "-host", host]);
            }
        }
        command.arg(program).args(args);
        command
    }
}

/// The hosts of a file: the first word of each line; `#` begins a comment. Each counts once.
///
/// # Errors
/// If a word is no name of a host, or there is none.
pub fn parse(text: &str) -> Result<Vec<String>> {
    let words = text.lines().filter_map(|line| line.split('#').next()?.split_whitespace().next());
    let mut hosts: Vec<String> = Vec::new();
    let mut seen = BTreeSet::new();
    for word in words {
        let fits = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '.' | '_' | '-');
        if word.len() > 255 || !word.chars().all(fits) || word.starts_with('-') {
            bail!("`{word}` is no name of a host");
        }
        if seen.insert(word) {
            hosts.push(word.to_string());
        }
    }
    if hosts.is_empty() || hosts.len() > HOSTS_MAX {
        bail!("{} hosts are named, and 1 to {HOSTS_MAX} are possible", hosts.len());
    }
    Ok(hosts)
}

/// The hosts that a file names.
///
/// # Errors
/// As [`parse`], and if it cannot be read.
pub fn of_file(file: &Path) -> Result<Vec<String>> {
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read the list of hosts {}", file.display()))?;
    parse(&text).with_context(|| file.display().to_string())
}

/// The hosts of the Slurm job, or of the MPI job, that this process is in.
///
/// # Errors
/// If there is none.
pub fn of_job(launcher: Launcher) -> Result<Vec<String>> {
    let mut command;
    if launcher == Launcher::Srun {
        let list = std::env::var("SLURM_JOB_NODELIST").context("this is no job of Slurm: SLURM_JOB_NODELIST is not set")?;
        command = Command::new("scontrol");
        command.args(["show", "hostnames", &list]);
    } else {
        command = Command::new("mpiexec");
        command.arg("hostname");
    }
    let program = command.get_program().display().to_string();
    let output = command.output().with_context(|| format!("cannot run {program}"))?;
    if !output.status.success() {
        bail!("{program} names no hosts: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    parse(&String::from_utf8_lossy(&output.stdout))
}

/// The servers of a file system over hosts, with the index of the host of each: in turns, and each
/// with a port of its own, beginning with `port`.
///
/// # Errors
/// If there are not enough ports.
pub fn servers(hosts: &[String], meta: u16, data: u16, port: u16, capacity: Option<ByteSize>) -> Result<Vec<(usize, DraftServer)>> {
    let mut servers = Vec::new();
    for (role, count) in [(ServerRole::Meta, meta), (ServerRole::Data, data)] {
        for id in 0..count {
            let port = u16::try_from(servers.len()).ok().and_then(|index| port.checked_add(index)).context("there are not enough ports")?;
            let host = usize::from(id) % hosts.len();
            let name = format!("{role}{id}");
            let draft = DraftServer {
                dir: format!("servers/{name}"),
                name,
                role,
                id,
                address: format!("tcp:{}:{port}", hosts[host]),
                // A host may know its own name as a loopback address.
                listen: Some(format!("tcp:0.0.0.0:{port}")),
                capacity: capacity.filter(|_| role == ServerRole::Data),
            };
            servers.push((host, draft));
        }
    }
    Ok(servers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_the_first_words() {
        assert_eq!(parse("# all\nnode1 slots=4\n\nnode2:\n").unwrap_err().to_string(), "`node2:` is no name of a host");
        assert_eq!(parse("# all\nnode1 slots=4\n\n node2 # old\nnode1\n").unwrap(), ["node1", "node2"]);
        for bad in ["", "# none", "-oProxyCommand=x", "a;b", "$(x)"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn servers_go_to_hosts_in_turns() {
        let hosts = ["a".to_string(), "b".to_string()];
        let servers = servers(&hosts, 1, 3, 7000, None).unwrap();
        let seen: Vec<_> = servers.iter().map(|(host, server)| (*host, server.name.as_str(), server.address.as_str())).collect();
        assert_eq!(seen, [(0, "meta0", "tcp:a:7000"), (0, "data0", "tcp:a:7001"), (1, "data1", "tcp:b:7002"), (0, "data2", "tcp:a:7003")]);
        assert!(super::servers(&hosts, 1, 3, 65534, None).is_err());
    }

    #[test]
    fn what_a_shell_reads_is_quoted() {
        let command = Launcher::Ssh.command("node1", "/opt/it's here/weft", &["node"]);
        assert_eq!(command.get_args().last().unwrap(), r"'/opt/it'\''s here/weft' 'node'");
        let command = Launcher::Srun.command("node1", "weft", &["node"]);
        assert_eq!(command.get_args().skip(3).collect::<Vec<_>>(), ["--nodelist", "node1", "weft", "node"]);
    }
}
