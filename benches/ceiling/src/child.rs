//! Servers in a process of their own, so that a ceiling is not flattered by a shared address space.
//!
//! The caller's program starts itself again with a hidden subcommand and a few words that name the
//! role. The child announces itself by one line on its standard output, serves, and ends when its
//! standard input closes: also when the parent dies, whatever kills it. Nothing is left behind.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::null_fuse::{self, NullFuseConfig};
use crate::rpc::{Endpoint, Listener};

/// How long a server gets for ending by itself before it is killed.
const PATIENCE: Duration = Duration::from_secs(5);
/// What a child prints when it serves, followed by its TCP port or 0.
const READY: &str = "weft-ceiling ready ";
/// What a child prints instead when it cannot serve, followed by the reason on the same line.
const FAILED: &str = "weft-ceiling failed ";

/// What a server serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerRole {
    /// The bare request and reply server of [`crate::rpc`].
    Rpc(Endpoint),
    /// The null file system of [`crate::null_fuse`], mounted at this existing empty directory.
    NullFuse {
        /// Where it is mounted.
        mount_point: PathBuf,
        /// How it is mounted and what it shows.
        config: NullFuseConfig,
    },
}

impl ServerRole {
    /// The words after the hidden subcommand that name this role; [`serve_child`] reads them.
    pub fn to_args(&self) -> Vec<OsString> {
        match self {
            ServerRole::Rpc(Endpoint::Unix(path)) => {
                vec!["rpc-unix".into(), path.clone().into_os_string()]
            }
            ServerRole::Rpc(Endpoint::Tcp(address)) => {
                vec!["rpc-tcp".into(), address.to_string().into()]
            }
            ServerRole::NullFuse { mount_point, config } => {
                let mut args = vec!["null-fuse".into(), mount_point.clone().into_os_string()];
                args.extend(config.to_words());
                args
            }
        }
    }

    fn from_args(args: &[OsString]) -> Result<Self> {
        let word = |arg: &OsString| -> Result<String> { arg.to_str().map(String::from).with_context(|| format!("{arg:?} is not a word")) };
        let [name, place, rest @ ..] = args else {
            bail!("a server role needs a name and a place");
        };
        Ok(match word(name)?.as_str() {
            "rpc-unix" => ServerRole::Rpc(Endpoint::Unix(place.into())),
            "rpc-tcp" => {
                let address: SocketAddr = word(place)?.parse().context("not an address")?;
                ServerRole::Rpc(Endpoint::Tcp(address))
            }
            "null-fuse" => ServerRole::NullFuse { mount_point: place.into(), config: NullFuseConfig::from_words(rest)? },
            other => bail!("there is no server role '{other}'"),
        })
    }

    /// The role as it came to be: with the port that the kernel chose.
    fn with_port(&self, port: u16) -> Self {
        let mut role = self.clone();
        if let ServerRole::Rpc(Endpoint::Tcp(address)) = &mut role {
            address.set_port(port);
        }
        role
    }

    /// Serves until `stop` closes; `ready` is called with the port once clients may come.
    fn serve(&self, stop: impl AsFd, ready: impl FnOnce(u16) -> Result<()>) -> Result<()> {
        match self {
            ServerRole::Rpc(endpoint) => {
                let listener = Listener::bind(endpoint)?;
                ready(listener.port()?)?;
                listener.serve(stop.as_fd())
            }
            ServerRole::NullFuse { mount_point, config } => {
                let session = null_fuse::mount(mount_point, config)?;
                ready(0)?;
                let mut stop = fs::File::from(stop.as_fd().try_clone_to_owned()?);
                // Nothing is ever sent: this waits for the end of the stream.
                stop.read_to_end(&mut Vec::new())?;
                null_fuse::unmount(session, mount_point)
            }
        }
    }
}

/// The whole body of the hidden subcommand: serves the role that `args` name until standard input
/// closes.
///
/// `args` are the words after the hidden subcommand itself.
///
/// # Errors
/// When the words name no role, and when the server cannot start or fails.
pub fn serve_child(args: &[OsString]) -> Result<()> {
    let say = |mark: &str, rest: &str| -> Result<()> {
        let mut out = std::io::stdout();
        writeln!(out, "{mark}{rest}")?;
        out.flush()?;
        Ok(())
    };
    let served = ServerRole::from_args(args).and_then(|role| role.serve(std::io::stdin(), |port| say(READY, &port.to_string())));
    if let Err(error) = &served {
        // Nobody may be listening any more; the caller hears of the error itself.
        let _ = say(FAILED, &format!("{error:#}").replace('\n', " "));
    }
    served
}

/// Knows how to start servers.
#[derive(Clone, Debug)]
pub enum ServerSpawner {
    /// In a process of their own: this program with these first arguments, followed by
    /// [`ServerRole::to_args`].
    Process {
        /// The program, normally the running one.
        program: PathBuf,
        /// The hidden subcommand that calls [`serve_child`].
        leading_args: Vec<OsString>,
    },
    /// In a thread of this process.
    #[cfg(test)]
    Thread,
}

impl ServerSpawner {
    /// Starts servers by running this program again with `leading_args`.
    ///
    /// # Errors
    /// When the path of the running program cannot be told.
    pub fn current_exe(leading_args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Result<Self> {
        Ok(ServerSpawner::Process {
            program: std::env::current_exe().context("cannot tell the path of this program")?,
            leading_args: leading_args.into_iter().map(|arg| arg.as_ref().to_owned()).collect(),
        })
    }

    /// Starts a server and waits until it serves.
    ///
    /// # Errors
    /// When the program cannot be started or the server cannot; the server's own words are part of
    /// the error.
    pub fn start(&self, role: &ServerRole) -> Result<Server> {
        match self {
            ServerSpawner::Process { program, leading_args } => Server::in_child(program, leading_args, role),
            #[cfg(test)]
            ServerSpawner::Thread => Server::in_process(role),
        }
    }
}

/// A running server; dropping it ends the server, waits for that, and unmounts what it had mounted.
#[derive(Debug)]
pub struct Server {
    role: ServerRole,
    body: Body,
}

#[derive(Debug)]
enum Body {
    Process(Child),
    #[cfg(test)]
    Thread(in_thread::Serving),
}

impl Server {
    fn in_child(program: &Path, leading_args: &[OsString], role: &ServerRole) -> Result<Self> {
        let mut child = Command::new(program)
            .args(leading_args)
            .args(role.to_args())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        let output = child.stdout.take().expect("standard output was piped above");
        let port = match first_word_of(output) {
            Some(Ok(port)) => port,
            Some(Err(reason)) => {
                child.wait()?;
                bail!("the measuring server did not start: {reason}");
            }
            None => {
                // It closed its output, so it is about to end; kill it in case it is not.
                let _ = child.kill();
                let said = child.wait_with_output()?.stderr;
                bail!("the measuring server did not start: {}", String::from_utf8_lossy(&said).trim());
            }
        };
        Ok(Self { role: role.with_port(port), body: Body::Process(child) })
    }

    /// Where a bare server listens; `None` for a file system.
    pub fn endpoint(&self) -> Option<&Endpoint> {
        match &self.role {
            ServerRole::Rpc(endpoint) => Some(endpoint),
            ServerRole::NullFuse { .. } => None,
        }
    }

    /// Process id of the server; `None` when it is a thread.
    pub fn pid(&self) -> Option<u32> {
        match &self.body {
            Body::Process(child) => Some(child.id()),
            #[cfg(test)]
            Body::Thread(_) => None,
        }
    }

    /// Ends the server and waits for its end.
    ///
    /// # Errors
    /// When the server failed, had to be killed, or left its mount behind.
    pub fn stop(mut self) -> Result<()> {
        self.end()
    }

    fn end(&mut self) -> Result<()> {
        let ended = match &mut self.body {
            Body::Process(child) => end_child(child),
            #[cfg(test)]
            Body::Thread(serving) => serving.end(),
        };
        // A killed server cannot clean up after itself.
        if let ServerRole::NullFuse { mount_point, .. } = &self.role {
            null_fuse::ensure_unmounted(mount_point)?;
        }
        ended
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Nobody is left to hear of an error here; `stop` is there for those who want to know.
        let _ = self.end();
    }
}

/// The port that the child serves at, or why it cannot; `None` when its output ends without either.
fn first_word_of(output: impl Read) -> Option<std::result::Result<u16, String>> {
    BufReader::new(output).lines().map_while(Result::ok).find_map(|line| {
        if let Some((_, reason)) = line.split_once(FAILED) {
            return Some(Err(reason.to_string()));
        }
        let (_, port) = line.split_once(READY)?;
        port.trim().parse().ok().map(Ok)
    })
}

fn end_child(child: &mut Child) -> Result<()> {
    drop(child.stdin.take());
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if start.elapsed() > PATIENCE {
            child.kill()?;
            child.wait()?;
            bail!("the measuring server did not end and was killed");
        }
        std::thread::sleep(Duration::from_millis(1));
    };
    ensure!(status.success(), "the measuring server ended with {status}");
    Ok(())
}

/// Servers in threads of this process.
#[cfg(test)]
mod in_thread {
    use super::*;
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;
    use std::thread::JoinHandle;

    #[derive(Debug)]
    pub struct Serving {
        /// Closing this is the order to end.
        stop: Option<UnixStream>,
        thread: Option<JoinHandle<Result<()>>>,
    }

    impl Serving {
        pub fn end(&mut self) -> Result<()> {
            drop(self.stop.take());
            match self.thread.take().map(JoinHandle::join) {
                Some(Ok(result)) => result,
                Some(Err(_)) => Err(anyhow::anyhow!("the measuring server panicked")),
                None => Ok(()),
            }
        }
    }

    impl Server {
        /// Starts a server and waits until it serves.
        pub fn in_process(role: &ServerRole) -> Result<Self> {
            let (ours, theirs) = UnixStream::pair()?;
            let (ready, is_ready) = std::sync::mpsc::channel();
            let served = role.clone();
            let thread = std::thread::Builder::new().spawn(move || {
                served.serve(OwnedFd::from(theirs), |port| ready.send(port).context("the starter went away before the server was ready"))
            })?;
            match is_ready.recv() {
                Ok(port) => {
                    let serving = Serving { stop: Some(ours), thread: Some(thread) };
                    Ok(Self { role: role.with_port(port), body: Body::Thread(serving) })
                }
                Err(_) => match thread.join() {
                    Ok(Ok(())) => bail!("the measuring server ended before it was ready"),
                    Ok(Err(error)) => Err(error),
                    Err(panic) => std::panic::resume_unwind(panic),
                },
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_survive_the_command_line() {
        let roles = [
            ServerRole::Rpc(Endpoint::Unix("/tmp/a b".into())),
            ServerRole::Rpc(Endpoint::Tcp(([127, 0, 0, 1], 0).into())),
            ServerRole::NullFuse {
                mount_point: "/mnt/null".into(),
                config: NullFuseConfig {
                    threads: 3,
                    clone_fd: false,
                    readdirplus: false,
                    list_entries: 17,
                    file_bytes: 4096,
                    asks: Some("/tmp/a socket".into()),
                },
            },
        ];
        for role in roles {
            let args = role.to_args();
            assert_eq!(ServerRole::from_args(&args).expect("own words"), role);
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for words in [&["rpc-unix"][..], &["rpc-tcp", "here"], &["x", "y"], &[]] {
            let args: Vec<OsString> = words.iter().map(OsString::from).collect();
            assert!(ServerRole::from_args(&args).is_err(), "{words:?}");
        }
        let args: Vec<OsString> = ["null-fuse", "/x", "many"].map(OsString::from).into();
        assert!(ServerRole::from_args(&args).is_err());
    }

    #[test]
    fn the_ready_line_is_found_among_others() {
        let output = "noise\ntest child ... weft-ceiling ready 4711\nmore\n";
        assert_eq!(first_word_of(output.as_bytes()), Some(Ok(4711)));
        let output = "noise\nweft-ceiling failed no room\n";
        assert_eq!(first_word_of(output.as_bytes()), Some(Err("no room".into())));
        assert_eq!(first_word_of("nothing\n".as_bytes()), None);
    }

    #[test]
    fn a_child_that_cannot_start_says_why() {
        let spawner =
            ServerSpawner::Process { program: "/bin/sh".into(), leading_args: vec!["-c".into(), "echo no such luck >&2; exit 3".into()] };
        let role = ServerRole::Rpc(Endpoint::Tcp(([127, 0, 0, 1], 0).into()));
        let error = spawner.start(&role).expect_err("the shell serves nothing");
        assert!(error.to_string().contains("no such luck"), "{error}");
    }
}
