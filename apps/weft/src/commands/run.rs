//! `weft run`: one command with a mount of its own.
//!
//! Four processes: this one watches; the *job* (`weft enter`) makes namespaces, attaches a mount
//! there and becomes the command; a mount process (`weft mount`) serves it, outside of the
//! namespaces; the *sweeper* (`weft sweep`) clears up when this one has ended, however it did. The
//! job dies with this process, the mount process ends with the job.

use std::ffi::{OsStr, OsString};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use weft_host::connect::{Common, Fs};
use weft_host::job::{self, JobSignals, end_as};
use weft_host::output::tell_plainly;
use weft_host::private::{self, Said};
use weft_host::units::ByteSize;
use weft_host::{mounts, process, socket_path};

use super::{mount, sweep};

/// Names the mount point to the command.
pub const MOUNT_VARIABLE: &str = "WEFT_MOUNT";
/// Names the file system to the command.
const FS_VARIABLE: &str = "WEFT_FS";
/// How long a mount process has to close files at the servers after its job.
const MOUNT_PATIENCE: Duration = Duration::from_secs(15);
/// How long the job has to say that it is there.
const JOB_PATIENCE: Duration = Duration::from_secs(30);

/// Run one command with a mount of its own
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  weft run --fs ~/fs --at ~/mnt -- make -C ~/mnt/src
  weft run --ephemeral --data 4 -- sh -c 'cp -r input $WEFT_MOUNT && ./solve $WEFT_MOUNT && cp $WEFT_MOUNT/result .'

No root is needed: where the kernel allows it the mount is in a user and mount namespace that only the command and what it starts see, otherwise
fusermount3 mounts it. --verbose says which. The command keeps its user, its terminal and its standard input; it finds the mount point in
WEFT_MOUNT and the file system in WEFT_FS. Signals are passed on to it, and `weft run` ends as it did, with its code or by its signal; 125 says that
`weft run` itself failed, 126 and 127 that the command cannot be run or found. With the command the mount ends, and so does, with --ephemeral,
everything that was in it. If `weft run` is killed, the command is.

In a user namespace no other user and no group but the main one exist: files of others belong to nobody there, may be read if everybody may, and
cannot be written. Where a job works by the rights of a group, take --by fusermount3.")]
pub struct Args {
    #[command(flatten)]
    fs: WhichFs,
    /// Where to mount: an empty directory, made if it is missing [default: a new one]
    #[arg(long, value_name = "PATH")]
    at: Option<PathBuf>,
    /// Options of the mount, separated by commas (see `weft mount --help`)
    #[arg(short, value_name = "OPTIONS", value_delimiter = ',')]
    options: Vec<String>,
    /// How to mount
    #[arg(long, value_enum, default_value_t = By::Auto)]
    by: By,
    /// Metadata servers of an ephemeral file system
    #[arg(long, value_name = "N", conflicts_with_all = ["fs", "state"], default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    meta: u16,
    /// Data servers of an ephemeral file system
    #[arg(long, value_name = "N", conflicts_with_all = ["fs", "state"], default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=64))]
    data: u16,
    /// Bytes that each data server of an ephemeral file system may use
    #[arg(long, value_name = "SIZE", conflicts_with_all = ["fs", "state"])]
    capacity: Option<ByteSize>,
    /// Folder for what this command needs and, with --ephemeral, for the data [default: TMPDIR or
    /// /tmp]
    #[arg(long, value_name = "DIR")]
    scratch: Option<PathBuf>,
    /// Say what is done
    #[arg(short, long)]
    verbose: bool,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// The file system of the command.
#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
struct WhichFs {
    /// The file system
    #[arg(long, value_name = "FS")]
    fs: Option<OsString>,
    /// The same, by its state directory
    #[arg(long, value_name = "DIR")]
    state: Option<OsString>,
    /// A new file system for this command alone, on this machine, removed at its end
    #[arg(long)]
    ephemeral: bool,
}

/// How to mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum By {
    /// In a namespace, and by fusermount3 where that cannot be
    Auto,
    /// In a user and mount namespace
    Namespace,
    /// By fusermount3, or by root himself: other processes see the mount, too
    Fusermount3,
}

/// What is to be mounted for a job, and where.
struct Place<'a> {
    fs: &'a OsStr,
    fs_name: String,
    at: &'a Path,
    home: &'a Path,
    /// Signals that the job is to get although this process holds them.
    released: &'a [i32],
}

/// A job with its mount.
struct Running {
    job: Child,
    mount: Child,
    /// The kernel's number of the mount, if others see it.
    device: Option<String>,
}

impl Args {
    pub fn run(self, common: &Common) -> Result<ExitCode> {
        super::ended_as("weft run", self.supervise(common))
    }

    fn supervise(&self, common: &Common) -> Result<ExitCode> {
        let signals = JobSignals::hold()?;
        mount::parse_options(&self.options)?;
        let mut scratch = sweep::Scratch::begin(self.scratch.as_deref())?;
        let outcome = self.in_scratch(&mut scratch, &signals, common);
        scratch.end()?;
        outcome.map(end_as)
    }

    fn in_scratch(&self, scratch: &mut sweep::Scratch, signals: &JobSignals, common: &Common) -> Result<std::process::ExitStatus> {
        let begun = Instant::now();
        let fs = match (&self.fs.fs, &self.fs.state) {
            (Some(fs), _) | (_, Some(fs)) => from_anywhere(fs),
            _ => self.begin_file_system(&scratch.state(), common)?.into_os_string(),
        };
        if self.fs.ephemeral {
            self.say(&format!("a file system of {} servers in {}", self.meta + self.data, scratch.state().display()));
        }
        let open = Fs::open(&fs, common)?;
        // Told now, and not by every call of the command.
        open.stat(b"/", true)?;
        let fs_name = open.client.map().fs_name.clone();
        drop(open);
        let at = match &self.at {
            Some(at) => scratch.mount_point(at)?,
            None => scratch.own_mount_point()?,
        };
        mount::check_place(&at, mount::is_nonempty_allowed(&self.options))?;
        let mut running = self.start(&Place { fs: &fs, fs_name, at: &at, home: scratch.home(), released: &signals.held() }, common)?;
        self.say(&format!("ready after {:.2} s", begun.elapsed().as_secs_f64()));
        let status = signals.wait(&mut running.job);
        if status.is_err() {
            process::kill_child(&mut running.job);
        }
        end_mount(&mut running.mount, &at, running.device.as_deref())?;
        status
    }

    /// Starts the job and its mount the way that this machine allows.
    fn start(&self, place: &Place<'_>, common: &Common) -> Result<Running> {
        if self.by != By::Fusermount3 {
            match self.start_by(place, true, common)? {
                Ok(running) => {
                    self.say(&format!("mounted at {} in a namespace of its own", place.at.display()));
                    return Ok(running);
                }
                Err(why) if self.by == By::Namespace => bail!("no mount in a namespace: {why}"),
                Err(why) => self.say(&format!("no mount in a namespace ({why}), so it is mounted for others to see, too")),
            }
        }
        match self.start_by(place, false, common)? {
            Ok(running) => {
                self.say(&format!("mounted at {} without a namespace", place.at.display()));
                Ok(running)
            }
            Err(why) => bail!("{why}"),
        }
    }

    /// Starts a job that waits, then its mount, then lets the job go. `Err` inside: why the job
    /// could not attach a mount.
    fn start_by(&self, place: &Place<'_>, is_private: bool, common: &Common) -> Result<Result<Running, String>> {
        let socket = place.home.join("job.sock");
        let _ = std::fs::remove_file(&socket);
        let listener = socket_path::bind(&socket).with_context(|| format!("cannot listen at {}", socket.display()))?;
        let mut job = self.job(place, &socket, is_private)?.spawn().context("cannot start the job")?;
        let prepared = self.prepare(&listener, &mut job, place, common);
        if !matches!(prepared, Ok(Ok(_))) {
            process::kill_child(&mut job);
        }
        Ok(prepared?.map(|(mount, device)| Running { job, mount, device }))
    }

    fn job(&self, place: &Place<'_>, socket: &Path, is_private: bool) -> Result<Command> {
        let mut command = job::this_program()?;
        command.arg("enter").arg("--socket").arg(socket).args(["--parent", &std::process::id().to_string()]);
        if is_private {
            command.args(["--private", &place.fs_name]);
        }
        let flags = mount::parse_options(&self.options)?.kernel;
        command.args(flags.read_only.then_some("--read-only")).args(flags.no_exec.then_some("--no-exec"));
        for signal in place.released {
            command.args(["--release", &signal.to_string()]);
        }
        command.arg("--").arg(place.at).args(&self.command);
        command.env(MOUNT_VARIABLE, place.at).env(FS_VARIABLE, place.fs);
        Ok(command)
    }

    fn prepare(
        &self,
        listener: &UnixListener,
        job: &mut Child,
        place: &Place<'_>,
        common: &Common,
    ) -> Result<Result<(Child, Option<String>), String>> {
        let stream = accept(listener, job)?;
        let device = match Said::hear(&stream).context("the job says nothing")? {
            Said::Attached(device) => Some(device),
            Said::Ready => None,
            Said::Failed(why) => return Ok(Err(why)),
        };
        let is_private = device.is_some();
        let ties = mount::Ties { device, until: Some(job.id() as i32) };
        let mut mount = mount::start(place.fs, place.at, &self.options, common, ties)?;
        let device = if is_private { None } else { mounts::at(place.at)?.map(|mount| mount.device) };
        if let Err(error) = private::go(&stream) {
            end_mount(&mut mount, place.at, device.as_deref())?;
            return Err(error).context("the job has gone");
        }
        Ok(Ok((mount, device)))
    }

    /// An ephemeral file system in this state directory.
    fn begin_file_system(&self, state: &Path, common: &Common) -> Result<PathBuf> {
        let mut up = job::this_program()?;
        up.arg("up").arg("--state").arg(state);
        up.args(["--meta", &self.meta.to_string(), "--data", &self.data.to_string(), "--durability", "none", "--name", "ephemeral"]);
        up.args(["--timeout", &common.timeout().as_secs().to_string()]);
        if let Some(capacity) = self.capacity {
            up.args(["--capacity", &capacity.to_string()]);
        }
        let output = up.stdin(Stdio::null()).output().context("cannot start `weft up`")?;
        if !output.status.success() {
            let words = String::from_utf8_lossy(&output.stderr);
            bail!("no ephemeral file system: {}", words.trim().trim_start_matches("weft: "));
        }
        Ok(state.to_path_buf())
    }

    fn say(&self, what: &str) {
        if self.verbose {
            tell_plainly(&format!("weft run: {what}"));
        }
    }
}

/// The name of a file system for a process with another working directory: the command may change
/// its own, and the mount has that of the root.
fn from_anywhere(fs: &OsStr) -> OsString {
    std::path::absolute(fs).ok().filter(|path| path.exists()).map_or(fs.to_owned(), PathBuf::into_os_string)
}

/// The connection of a job, which may also end or never come.
fn accept(listener: &UnixListener, job: &mut Child) -> Result<UnixStream> {
    listener.set_nonblocking(true)?;
    let mut came = None;
    process::wait_until(JOB_PATIENCE, || {
        came = listener.accept().ok();
        Ok(came.is_some() || job.try_wait()?.is_some())
    })?;
    let (stream, _) = came.context("the job did not come up")?;
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(JOB_PATIENCE))?;
    stream.set_write_timeout(Some(JOB_PATIENCE))?;
    Ok(stream)
}

/// Waits for the end of a mount process whose job has ended.
fn end_mount(mount: &mut Child, at: &Path, device: Option<&str>) -> Result<()> {
    if !process::end_child(mount, MOUNT_PATIENCE) {
        tell_plainly(&format!("weft run: the mount at {} does not end by itself and is killed", at.display()));
    }
    // What fusermount3 mounted outlives a process that was killed, also before. What is there
    // beside a mount in a namespace is another job's.
    if let Some(device) = device
        && mounts::at(at)?.is_some_and(|mount| mounts::is_weft(&mount) && mount.device == device)
    {
        mounts::unmount(at)?;
    }
    Ok(())
}
