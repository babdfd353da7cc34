//! `weft mount`: a process that serves a FUSE mount, in the background unless told otherwise.
//!
//! In the background the process that the person started begins another one with `--ready`, and
//! waits until that has written one line to its standard output: `ready`, or why not. So the
//! command ends when the mount is usable.

use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use weft_fuse::{ErrorCount, ErrorCounts, MountOptions, Remembers, Transport, Unmounter};
use weft_host::command_socket::{self, Service};
use weft_host::connect::{Common, Fs};
use weft_host::mounted;
use weft_host::mounted::Note;
use weft_host::output::{shell_word, tell, tell_at};
use weft_host::process;
use weft_host::state::StateDir;
use weft_host::stop_signals::{HangUp, StopSignals};
use weft_host::{job, mount_list, mounts, parallel, trust};
use weft_rt_real::{Level, LimitedLog, Log};
use weft_wire::ops::{MountErrorRow, MountErrors, TraceAction, TraceRequest};

/// How long a mount in a namespace of its own has to end by itself, when the process has ended with
/// which it ends.
const LINGER: Duration = Duration::from_secs(2);

/// For how long a mount with `-o dataset` believes names and attributes of what is not sealed.
const NAMES_OUTSIDE: Duration = Duration::from_secs(1);

/// Mount a file system through FUSE
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Options for -o, separated by commas:
  allow_other        other users may use the mount (default for root)
  ro                 no changes
  noexec             no program is run from it
  threads=N          threads while servers answer (default 4); requests that wait for servers have their own
  transport=NAME     how requests come from the kernel: auto (the default: uring if the kernel offers it), device, uring
  leases             the kernel remembers names and attributes as long as nobody changes them: what other mounts change
                     shows at once (the default since Linux 6.16; this makes the mount fail where the kernel is older)
  cache_ms=N         instead, it remembers them for so long (the default before Linux 6.16: 1000)
  direct_from=SIZE   files at least this large are read past the page cache (default 1MiB)
  nonempty           over a directory with entries, which nobody sees until it is unmounted
  noabsorb           their server is asked for each new file, also in a directory that nobody else knows: so none is lost with a
                     mount that is killed
  relatime           reading sets the time of a file's last access if it was changed since, or if that is a day old; servers
                     hear of it with the close (the default is noatime: reading sets no time)
  locks=local        locks of programs are left to the kernel and not seen by other mounts
  dataset            for sealed trees (`weft seal`): read-only; what was read once is read again at the rate of the
                     kernel, without a message; files that are not sealed are not read

Examples:
  weft mount ~/fs /mnt/weft
  weft mount weft://node1:7000/demo /mnt/demo --key-file key -o ro,threads=16

For `mount -t weft`, `mount -o remount,ro` and /etc/fstab this program is its own helper, once it has that name as well:
  ln -s $(command -v weft) /sbin/mount.weft && ln -s mount.weft /sbin/mount.fuse.weft
A line of /etc/fstab then is (key_file= and timeout= stand for --key-file and --timeout):
  /srv/weft/weft.toml  /mnt/weft  weft  _netdev,nofail,threads=8  0 0

SIGTERM unmounts in good order. A mount in the background logs to a file beside its pid file, keeps that and the one before it below 4 MiB each,
and takes SIGHUP as a wish to begin a new one.")]
pub struct Args {
    /// The file system
    fs: OsString,
    /// Where: an existing directory
    #[arg(required_unless_present = "state")]
    mountpoint: Option<PathBuf>,
    /// The file system by its state directory: weft mount --state DIR MOUNTPOINT
    #[arg(long, value_name = "DIR")]
    state: Option<OsString>,
    /// Stay in the foreground; Ctrl-C unmounts
    #[arg(short, long)]
    foreground: bool,
    /// Options, separated by commas
    #[arg(short, value_name = "OPTIONS", value_delimiter = ',')]
    options: Vec<String>,
    /// Tell the parent by a line when the mount is usable
    #[arg(long, hide = true)]
    ready: bool,
    /// Standard input is a connection that is attached already, in a mount namespace of its own
    #[arg(long, hide = true)]
    attached: bool,
    /// End with this process
    #[arg(long, hide = true, value_name = "PID")]
    until: Option<i32>,
}

/// What a mount hangs on beside its file system.
#[derive(Debug, Default)]
pub struct Ties {
    /// A connection to the kernel that is attached already, in a mount namespace of its own.
    pub device: Option<OwnedFd>,
    /// The process with which the mount ends.
    pub until: Option<i32>,
}

impl Args {
    pub fn run(self, common: &Common) -> Result<()> {
        let (fs, place) = match (self.state, self.mountpoint) {
            (None, Some(place)) => (self.fs, place),
            (Some(state), None) => (state, PathBuf::from(self.fs)),
            _ => bail!("name the file system once: `weft mount FS MOUNTPOINT` or `weft mount --state DIR MOUNTPOINT`"),
        };
        let place = mounts::resolve(&place);
        let device = self.attached.then(|| std::io::stdin().as_fd().try_clone_to_owned()).transpose()?;
        let ties = Ties { device, until: self.until };
        if self.foreground {
            serve(&fs, &place, &self.options, common, HangUp::Ends, ties, || Ok(()))?;
        } else if self.ready {
            process::detach();
            let told = serve(&fs, &place, &self.options, common, HangUp::ReopensLog, ties, || weft_host::output::print("ready\n"));
            if let Err(error) = &told {
                // Nobody waits for it if the mount was usable before; then it is in the log.
                let _ = weft_host::output::print(&format!("{}\n", crate::error_line(error)));
            }
            told?;
        } else {
            in_background(&fs, &place, &self.options, common)?;
        }
        Ok(())
    }
}

/// Starts a mount process and returns when the mount is usable.
///
/// # Errors
/// Why it is not.
pub fn in_background(fs: &OsString, place: &Path, options: &[String], common: &Common) -> Result<()> {
    check_place(place, is_nonempty_allowed(options))?;
    start(fs, place, options, common, Ties::default()).map(drop)
}

/// The same, with what the mount hangs on; gives its process. The caller has checked the place.
///
/// # Errors
/// Why it is not usable.
pub fn start(fs: &OsStr, place: &Path, options: &[String], common: &Common, ties: Ties) -> Result<Child> {
    parse_options(options)?;
    let (fs, common) = &mounted::behind(fs, common)?;
    let open = Fs::open(fs, common)?;
    let log = mount_list::dir_for(open.config.as_ref().map(|config| config.file.as_path()))?
        .join(format!("{}.log", mount_list::file_stem(place)));
    // The child runs in `/`: what was named relative to here must be absolute.
    let fs = match &open.config {
        Some(config) => config.file.clone().into_os_string(),
        None => fs.to_owned(),
    };
    let mut args: Vec<OsString> = vec!["mount".into(), "--ready".into(), "--timeout".into(), common.timeout().as_secs().to_string().into()];
    if let Some(key_file) = &common.key_file {
        args.extend(["--key-file".into(), std::path::absolute(key_file)?.into_os_string()]);
    }
    if !options.is_empty() {
        args.extend(["-o".into(), options.join(",").into()]);
    }
    if let Some(pid) = ties.until {
        args.extend(["--until".into(), pid.to_string().into()]);
    }
    if ties.device.is_some() {
        args.push("--attached".into());
    }
    args.extend(["--".into(), fs, place.as_os_str().to_owned()]);
    drop(open);
    let mut child = process::start_in_background(&args, &log, ties.device.map_or_else(Stdio::null, Stdio::from), Stdio::piped())?;
    let stdout = child.stdout.take().expect("the child's standard output is a pipe");
    let line = first_line(stdout, common.timeout() + Duration::from_secs(5)).inspect_err(|_| process::kill_child(&mut child));
    match line? {
        Some(line) if line == "ready" => Ok(child),
        Some(line) if !line.is_empty() => bail!("{line}"),
        Some(_) => {
            let status = child.wait()?;
            bail!("the mount process ended ({status}); the end of {}:{}", log.display(), process::log_tail(&log, 5))
        }
        None => {
            process::kill_child(&mut child);
            bail!("the mount at {} was not usable in time; the end of {}:{}", place.display(), log.display(), process::log_tail(&log, 5))
        }
    }
}

/// What the child writes up to the end of its first line, or of its life; `None` if that does not
/// come in time.
fn first_line(from: impl Read + Send + 'static, patience: Duration) -> Result<Option<String>> {
    Ok(coming_line(from)?.recv_timeout(patience).ok())
}

/// The same, for who looks by himself whether it has come.
///
/// # Errors
/// If there may be no more threads.
pub fn coming_line(mut from: impl Read + Send + 'static) -> Result<mpsc::Receiver<String>> {
    let (sender, receiver) = mpsc::channel();
    parallel::start(move || {
        let (mut line, mut byte) = (Vec::new(), [0]);
        while matches!(from.read(&mut byte), Ok(1)) && byte[0] != b'\n' {
            line.push(byte[0]);
        }
        // Nobody listens any more if the patience is over.
        let _ = sender.send(String::from_utf8_lossy(&line).into_owned());
    })?;
    Ok(receiver)
}

/// Mounts and serves until the file system is unmounted or a signal comes.
fn serve(
    fs: &OsString,
    place: &Path,
    options: &[String],
    common: &Common,
    hang_up: HangUp,
    ties: Ties,
    ready: impl FnOnce() -> std::io::Result<()>,
) -> Result<()> {
    let nonempty = is_nonempty_allowed(options);
    let options = parse_options(options)?;
    let signals = StopSignals::block()?;
    weft_recording::block_dump_signal()?;
    process::raise_descriptors();
    let is_attached = ties.device.is_some();
    if !is_attached {
        check_place(place, nonempty)?;
    }
    let (source, common) = &mounted::behind(fs, common)?;
    let fs = Fs::open(source, common)?;
    // A mount without a server would only fail later, where nobody reads it.
    fs.stat(b"/", true)?;
    let dir = mount_list::dir_for(fs.config.as_ref().map(|config| config.file.as_path()))?;
    if hang_up == HangUp::ReopensLog {
        weft_rt_real::keep_log_small(&dir.join(format!("{}.log", mount_list::file_stem(place))));
    }
    let (pid_file, path) =
        mount_list::take_pid_file(&dir, fs.id(), place).with_context(|| format!("cannot mount at {}", place.display()))?;
    let socket = command_socket::path_for(&path);
    weft_recording::identify(&mount_list::trace_name(place), None);
    let log = limited_log("weft mount");
    let session = match ties.device {
        Some(device) => weft_fuse::serve(fs.client.clone(), device, place, options, log)?,
        None => weft_fuse::mount(fs.client.clone(), place, options, log)?,
    };
    listen_to_commands_of_mount(&fs, session.error_counts(), &socket, &dir);
    let device = mounts::at(place)?.map(|mount| mount.device).unwrap_or_default();
    if let Err(error) = mount_list::note_mounted(&pid_file, fs.id(), place, &device) {
        tell(&format!("{} cannot be completed: {error}", path.display()));
    }
    pid_file.hold_until_exit();
    let (unmounter, users) = (session.unmounter(), session.unmounter());
    let end = move || end_mount(&unmounter, &device);
    if let Some(pid) = ties.until {
        let end = end.clone();
        job::on_exit(pid, move || {
            if is_attached {
                // Where it is attached the last process takes the mount along, and then it ends by
                // itself.
                thread::sleep(LINGER);
            }
            end();
        })?;
    }
    signals.on_end(hang_up, "weft mount", end, move || {
        users.leave_users();
        std::process::exit(130);
    });
    let source = fs.config.as_ref().map_or(source.as_os_str(), |config| config.file.as_os_str()).to_owned();
    let key_file = common.key_file.as_ref().map(std::path::absolute).transpose()?;
    if let Err(error) = (Note { fs: source, key_file }).leave(place) {
        tell(&format!("commands will not know which file system is mounted at {}: {error:#}", place.display()));
    }
    ready()?;
    if hang_up == HangUp::ReopensLog {
        tell_at(Level::Info, "weft mount", &format!("process {} serves {}", std::process::id(), place.display()));
    }
    let ended = session.wait().with_context(|| format!("the mount at {} failed", place.display()));
    // Without it nobody would find a socket that leads nowhere; if it stays, the next mount
    // replaces it.
    let _ = std::fs::remove_file(socket);
    mounted::forget(place);
    ended
}

/// Unmounts; the session ends with that.
fn end_mount(unmounter: &Unmounter, device: &str) {
    let place = unmounter.mountpoint();
    let is_here = mounts::at(place).is_ok_and(|mount| mount.is_some_and(|mount| mount.device == device));
    if !is_here {
        // A lazy unmount, or a mount in another mount namespace: nothing here could be unmounted,
        // and whoever uses it may never leave.
        tell(&format!("{} is not mounted here, but still in use elsewhere; that ends now", place.display()));
        unmounter.leave_users();
        std::process::exit(0);
    }
    if let Err(error) = unmounter.unmount() {
        tell(&format!("cannot unmount {}: {error}", place.display()));
    }
}

/// Lets `weft trace` and `weft status` reach this process. A mount that they cannot reach is a
/// mount all the same.
fn listen_to_commands_of_mount(fs: &Fs, error_counts: Arc<ErrorCounts>, socket: &Path, dir: &Path) {
    let row =
        |error_count: ErrorCount| MountErrorRow { server: error_count.server, status: error_count.status.code(), count: error_count.count };
    let errors = move || MountErrors { rows: error_counts.list().into_iter().map(row).collect() };
    if let Err(error) = listen_to_commands(fs, socket, dir, errors) {
        tell(&format!("commands cannot reach this mount while it runs: {error:#}"));
    }
    let client = fs.client.clone();
    weft_recording::on_dump(move || {
        let servers: Vec<_> = client.map().servers().map(|entry| entry.id).collect();
        for server in servers {
            // One that does not answer may be the very trouble.
            let _ = client.rt().block_on(client.trace(server, &TraceRequest::new(TraceAction::Dump)));
        }
    });
}

/// Lines of a gateway in its log: a flood of them would fill the disk.
pub fn limited_log(who: &'static str) -> Box<dyn Fn(&str) + Send + Sync> {
    let log = Mutex::new(LimitedLog::new(Log::to_stderr(who)));
    Box::new(move |line| log.lock().unwrap_or_else(PoisonError::into_inner).line(line))
}

/// Lets `weft trace` and `weft status` reach a gateway, whose files are in `dir`.
///
/// # Errors
/// The socket cannot be made.
pub fn listen_to_commands(fs: &Fs, socket: &Path, dir: &Path, errors: impl Fn() -> MountErrors + Send + Sync + 'static) -> Result<()> {
    let state = fs.config.as_ref().map(|config| StateDir::of_config(&config.file)).filter(|state| trust::is_own_folder(state.root()));
    let home = state.map_or_else(|| dir.join("trace"), |state| state.trace_dir());
    let trace = move |request: &TraceRequest| weft_recording::command(request, &home, weft_recording::Commander::Owner);
    command_socket::listen(socket, Service { trace: Arc::new(trace), errors: Arc::new(errors) })
}

/// Checks that something can be mounted there; removes what a killed mount process left.
///
/// # Errors
/// Why not, and what to do.
pub fn check_place(place: &Path, nonempty: bool) -> Result<()> {
    if place.to_str().is_none_or(|text| text.contains('\n')) {
        bail!("the mount point {} must be UTF-8 without newlines", place.display());
    }
    if weft_fuse::clear_dead_mount(place).with_context(|| format!("cannot remove the dead mount at {}", place.display()))? {
        tell(&format!("removed a dead mount at {}", place.display()));
    }
    match std::fs::metadata(place) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            bail!("{} does not exist; make it: mkdir -p {}", place.display(), shell_word(place))
        }
        Err(error) => return Err(error).with_context(|| format!("cannot look at {}", place.display())),
        Ok(meta) if !meta.is_dir() => bail!("{} is no directory", place.display()),
        Ok(_) => {}
    }
    if let Some(mount) = mounts::at(place)?
        && mounts::is_weft(&mount)
    {
        bail!("{} is mounted already ({}); `weft umount {}` ends that", place.display(), mount.source, shell_word(place));
    }
    let first = std::fs::read_dir(place).ok().and_then(|mut entries| entries.next()?.ok());
    if let (Some(entry), false) = (first, nonempty) {
        bail!(
            "{} is not empty (it has `{}`), and a mount would hide what is in it: give an empty directory, or -o nonempty",
            place.display(),
            entry.file_name().display()
        );
    }
    Ok(())
}

/// True if `-o` takes this option.
pub fn knows_option(option: &str) -> bool {
    parse_options(&[option.to_string()]).is_ok()
}

/// True if a mount may hide what is in its directory.
pub fn is_nonempty_allowed(options: &[String]) -> bool {
    options.iter().any(|option| option == "nonempty")
}

/// What `-o` asks for.
///
/// # Errors
/// Names the option that is unknown.
pub fn parse_options(options: &[String]) -> Result<MountOptions> {
    let mut parsed = MountOptions::default();
    for option in options {
        let (key, value) = option.split_once('=').map_or((option.as_str(), None), |(key, value)| (key, Some(value)));
        let number = || value.unwrap_or_default().parse::<u64>().with_context(|| format!("-o {option}: a number is expected"));
        match (key, value) {
            ("allow_other", None) => parsed.kernel.allow_other = true,
            ("ro", None) => parsed.kernel.read_only = true,
            ("rw", None) => parsed.kernel.read_only = false,
            ("noexec", None) => parsed.kernel.no_exec = true,
            // For `check_place`; behind a comma too many.
            ("nonempty" | "", None) => {}
            ("threads", Some(_)) => parsed.threads = number()?.clamp(1, 256) as usize,
            ("transport", Some("auto")) => parsed.transport = Transport::Auto,
            ("transport", Some("device")) => parsed.transport = Transport::Device,
            ("transport", Some("uring")) => parsed.transport = Transport::Uring,
            ("leases", None) => parsed.remembers = Remembers::UntilChanged,
            ("cache_ms", Some(_)) => parsed.remembers = Remembers::For(Duration::from_millis(number()?)),
            ("locks", Some("local")) => parsed.local_locks = true,
            ("absorb", None) => parsed.absorbs = true,
            ("noabsorb", None) => parsed.absorbs = false,
            ("relatime", None) => parsed.sets_atime = true,
            ("noatime", None) => parsed.sets_atime = false,
            ("dataset", None) => parsed.is_dataset = true,
            ("direct_from", Some(size)) => {
                parsed.direct_from_bytes =
                    size.parse::<weft_host::units::ByteSize>().map_err(|words| anyhow::anyhow!("-o {option}: {words}"))?.0;
            }
            _ => bail!("-o {option} is unknown; `weft mount --help` lists the options"),
        }
    }
    if parsed.is_dataset {
        if options.iter().any(|option| matches!(option.as_str(), "rw" | "leases")) {
            bail!("-o dataset is read-only and holds no leases: leave -o rw and -o leases away");
        }
        // What is sealed needs no lease. Names on the way to it are believed for a moment: else
        // every change of others would make the kernel forget all names.
        if parsed.remembers == Remembers::Default {
            parsed.remembers = Remembers::For(NAMES_OUTSIDE);
        }
        parsed.kernel.read_only = true;
        parsed.local_locks = true;
    }
    if parsed.sets_atime && parsed.kernel.read_only {
        bail!("-o relatime sets times, and -o ro and -o dataset change nothing: leave one of them away");
    }
    if options.iter().any(|option| option == "leases") && options.iter().any(|option| option.starts_with("cache_ms=")) {
        bail!("-o leases and -o cache_ms= exclude each other: with leases the kernel remembers as long as nobody changes anything");
    }
    Ok(parsed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_parsed_or_named() {
        let parse = |text: &str| parse_options(&text.split(',').map(str::to_string).collect::<Vec<_>>());
        let options = parse("allow_other,ro,threads=3,cache_ms=0,direct_from=64KiB,transport=device").unwrap();
        assert!(options.kernel.allow_other && options.kernel.read_only);
        assert_eq!((options.threads, options.remembers, options.direct_from_bytes), (3, Remembers::For(Duration::ZERO), 65536));
        assert_eq!(options.transport, Transport::Device);
        for bad in ["fast", "threads=many", "threads", "ro=1", "direct_from=big", "transport=fast"] {
            assert!(parse(bad).unwrap_err().to_string().contains(bad), "{bad}");
        }
        assert!(parse("ro,").unwrap().kernel.read_only && parse("").is_ok(), "a comma too many, as mount takes it");
        assert_eq!(parse("leases,threads=2").unwrap().remembers, Remembers::UntilChanged);
        assert_eq!(parse("threads=2").unwrap().remembers, Remembers::Default);
        let dataset = parse("dataset,threads=2").unwrap();
        assert!(dataset.is_dataset && dataset.kernel.read_only && dataset.local_locks);
        assert_eq!(dataset.remembers, Remembers::For(NAMES_OUTSIDE));
        assert!(parse("dataset,rw").unwrap_err().to_string().contains("read-only"));
        assert!(MountOptions::default().absorbs && !parse("noabsorb").unwrap().absorbs);
        assert!(parse("relatime").unwrap().sets_atime && !parse("relatime,noatime").unwrap().sets_atime);
        assert!(parse("relatime,dataset").unwrap_err().to_string().contains("change nothing"));
        assert!(parse("leases,cache_ms=0").unwrap_err().to_string().contains("exclude each other"));
    }

    #[test]
    fn the_first_line_or_the_end() {
        let line = |bytes: &'static [u8]| first_line(bytes, Duration::from_secs(5)).unwrap();
        assert_eq!(line(b"ready\nmore"), Some("ready".into()));
        assert_eq!(line(b"half"), Some("half".into()));
        assert_eq!(line(b""), Some(String::new()));
        let (_keep_open, reader) = std::os::unix::net::UnixStream::pair().map(|(a, b)| (b, a)).unwrap();
        assert_eq!(first_line(reader, Duration::from_millis(10)).unwrap(), None);
    }

    #[test]
    fn a_place_must_be_a_directory() {
        assert!(check_place(Path::new("/no/such/place"), false).unwrap_err().to_string().contains("mkdir -p"));
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(check_place(file.path(), false).unwrap_err().to_string().contains("no directory"));
    }

    #[test]
    fn a_directory_with_entries_is_hidden_only_if_asked_for() {
        let dir = tempfile::tempdir().unwrap();
        assert!(check_place(dir.path(), false).is_ok());
        std::fs::write(dir.path().join("theirs"), "").unwrap();
        assert!(check_place(dir.path(), false).unwrap_err().to_string().contains("(it has `theirs`)"));
        assert!(check_place(dir.path(), true).is_ok());
        let option = |text: &str| is_nonempty_allowed(&[text.to_string()]);
        assert!(option("nonempty") && !option("ro"));
    }
}
