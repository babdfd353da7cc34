//! `weft up` over the hosts of a job, and its end.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use weft_base::{ServerId, Status};
use weft_host::config::{Config, KeyFiles, write_in_one_step};
use weft_host::connect::{Common, Fs, random};
use weft_host::fs_arg::FsPath;
use weft_host::hosts::{self, Job, Launcher};
use weft_host::mount_list::{self, Unmounted};
use weft_host::output::{print, shell_word, tell};
use weft_host::state::StateDir;
use weft_host::stop_signals::StopSignals;
use weft_host::{job, process, state};
use weft_wire::ops::ChangeCursor;

use crate::commands::genconfig::NAME_DEFAULT;
use crate::commands::node::READY;
use crate::commands::watch::NOW;
use crate::commands::{down, hold, mount};
use crate::copy::Copied;

/// Ports of servers if nobody names one: below those that the kernel gives to clients.
const PORTS: std::ops::Range<u16> = 20_000..28_000;
/// Names in the root that one `weft cp` is told of, at most: their paths are below what the kernel
/// takes as arguments.
const COPIED_AT_ONCE: usize = 1000;
/// What is to be done when something was not copied out.
const AGAIN: &str = "nothing was ended, so that nothing is lost; mend this and try again, or `weft down --discard`";
/// How long a host needs beyond the deadline of an operation until it is given up.
const REACH: std::time::Duration = std::time::Duration::from_secs(60);

/// How often everything is copied again that was changed during the copy.
const COPIES_MAX: usize = 3;
/// How long the servers have to hear that a client has ended.
const CLIENTS_PATIENCE: std::time::Duration = std::time::Duration::from_secs(1);
/// Between two looks at a copy.
const LOOK: std::time::Duration = std::time::Duration::from_millis(20);

/// Hosts of a file system for one job.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Over the hosts of a job")]
pub struct OverHosts {
    /// Servers on these hosts, a name in each line, started by ssh; their data is on the hosts'
    /// local disks and removed by `weft down`
    #[arg(long, value_name = "FILE", group = "over", conflicts_with_all = ["foreground", "listen"])]
    hosts: Option<PathBuf>,
    /// The same on the hosts of this Slurm job, by srun
    #[arg(long, group = "over", conflicts_with_all = ["foreground", "listen"])]
    slurm: bool,
    /// The same on the hosts that mpiexec uses, by mpiexec
    #[arg(long, group = "over", conflicts_with_all = ["foreground", "listen"])]
    mpi: bool,
    /// Folder on each host for its data [default: the one for temporary files there]
    #[arg(long, value_name = "DIR", requires = "over")]
    dir: Option<PathBuf>,
    /// This program as the hosts find it [default: where it is here]
    #[arg(long, value_name = "PATH", requires = "over")]
    program: Option<String>,
    /// Port of the first server; the others have the ones behind it [default: any from 20000]
    #[arg(long, value_name = "PORT", requires = "over", value_parser = clap::value_parser!(u16).range(1..))]
    port: Option<u16>,
    /// Copy this into the root of the file system when it serves
    #[arg(long, value_name = "PATH", requires = "over")]
    stage_in: Option<PathBuf>,
    /// At `weft down`, first copy everything to this folder
    #[arg(long, value_name = "DIR", requires = "over")]
    stage_out: Option<PathBuf>,
}

impl OverHosts {
    /// What starts the servers, if they are to be on hosts.
    fn launcher(&self) -> Option<Launcher> {
        match self {
            OverHosts { hosts: Some(_), .. } => Some(Launcher::Ssh),
            OverHosts { slurm: true, .. } => Some(Launcher::Srun),
            OverHosts { mpi: true, .. } => Some(Launcher::Mpiexec),
            _ => None,
        }
    }
}

impl super::Args {
    /// Does all of it, if the file system is to be over hosts.
    pub(super) fn run_over_hosts(&self, common: &Common) -> Result<Option<ExitCode>> {
        let root = self.state.dir(common)?;
        let Some(launcher) = self.over.launcher() else {
            if StateDir::of_config(&root.join("weft.toml")).hosts_file().exists() {
                bail!(
                    "{} is a file system over the hosts of a job: `weft down` ends it; --hosts, --slurm or --mpi begins one",
                    root.display()
                );
            }
            return Ok(None);
        };
        if let Some(from) = &self.over.stage_in
            && FsPath::split(from.as_os_str()).is_none()
        {
            std::fs::metadata(from).with_context(|| from.display().to_string())?;
        }
        // What is begun on hosts is ended there before this process is.
        let stopped = StopSignals::block()?.into_flag();
        let begun = Instant::now();
        let (state, _) = StateDir::existing_or_new(&root)?;
        state::make_private_dir(&state.run_dir())?;
        let lock = state.lock()?;
        if state.config_file().exists() {
            bail!(
                "{} holds a file system already; end it by `weft down --state {}`, or take another directory",
                root.display(),
                shell_word(&root)
            );
        }
        let made = self.begin_job(launcher, &state, common, &stopped);
        if made.is_err() {
            // What keeps the servers ends them; that it may fail changes nothing in why.
            let _ = process::end(&hold::pid_file(&state), hold::PATIENCE * 2);
            forget(&state);
            if stopped.load(Ordering::Relaxed) {
                tell("no file system was made");
                return Ok(Some(ExitCode::from(130)));
            }
        }
        let (config, job) = made?;
        let place = self.mount_again(&state, &config, common)?;
        lock.release();
        if let Some(from) = &self.over.stage_in {
            let to = format!("{}:/", state.root().display());
            let is_in = !stopped.load(Ordering::Relaxed) && matches!(copy(&[from.into()], to.as_ref(), &stopped, common), Ok(0));
            if !is_in || stopped.load(Ordering::Relaxed) {
                bail!("not all of {} is in; it runs all the same, and `weft down` ends it", from.display());
            }
        }
        print(&format!(
            "{} serves with {} servers on {} hosts after {:.2} s\n{}\nNext:\n  weft run --state {root} -- COMMAND    on this host\n  weft down --state {root}\n",
            config.fs_name,
            config.servers.len(),
            job.hosts.len(),
            begun.elapsed().as_secs_f64(),
            place.map_or(String::new(), |place| format!("mounted at {}\n", place.display())),
            root = shell_word(state.root()),
        ))?;
        Ok(Some(ExitCode::SUCCESS))
    }

    fn begin_job(&self, launcher: Launcher, state: &StateDir, common: &Common, stopped: &AtomicBool) -> Result<(Config, Job)> {
        let names = self.over.hosts.as_deref().map_or_else(|| hosts::of_job(launcher), hosts::of_file)?;
        let text = |path: &Option<PathBuf>| -> Result<Option<String>> {
            let path = path.as_ref().map(std::path::absolute).transpose()?;
            path.map(|path| path.into_os_string().into_string())
                .transpose()
                .map_err(|path| anyhow::anyhow!("{} is not UTF-8", path.display()))
        };
        let program = match &self.over.program {
            Some(program) => program.clone(),
            None => job::this_program()?.get_program().to_string_lossy().into_owned(),
        };
        let dir = text(&self.over.dir)?.unwrap_or_default();
        let job = Job { launcher, hosts: names, program, dir, stage_out: text(&self.over.stage_out)? };
        let mut draft = self.settings.draft(self.name.as_deref().unwrap_or(NAME_DEFAULT), Vec::new())?;
        let port = match self.over.port {
            Some(port) => port,
            None => PORTS.start + u16::from_le_bytes(random()?) % (PORTS.end - PORTS.start),
        };
        let (meta, data) = (self.meta.unwrap_or(1), self.data.unwrap_or(job.hosts.len().min(64) as u16));
        let servers = hosts::servers(&job.hosts, meta, data, port, self.capacity)?;
        draft.servers = servers.into_iter().map(|(_, server)| server).collect();
        draft.check(&state.config_file())?;
        // A `weft down` that was killed at its very end may have left them.
        for file in [hold::copied_file(state), hold::ended_file(state)] {
            let _ = std::fs::remove_file(file);
        }
        KeyFiles::beside(&state.config_file()).make(&state.key_file())?;
        write_in_one_step(&state.hosts_file(), &serde_json::to_vec_pretty(&job)?, 0o600)?;
        draft.write(&state.config_file())?;
        let config = Config::load(&state.config_file())?;
        let log = state.run_dir().join("hosts.log");
        let args = ["hold".into(), "--timeout".into(), common.timeout().as_secs().to_string().into(), state.root().as_os_str().to_owned()];
        let mut holder = process::start_in_background(args, &log, Stdio::null(), Stdio::piped())?;
        let stdout = holder.stdout.take().expect("its standard output is a pipe");
        let coming = mount::coming_line(stdout)?;
        let mut line = None;
        process::wait_until(common.timeout() + REACH, || {
            line = coming.try_recv().ok();
            Ok(line.is_some() || stopped.load(Ordering::Relaxed))
        })?;
        if stopped.load(Ordering::Relaxed) {
            tell("interrupted; waits for the end of what was begun on the hosts");
            // It may not have come as far as its pid file. Signals wait in it as they do here.
            let _ = kill(Pid::from_raw(holder.id() as i32), Signal::SIGTERM);
            process::wait_until(hold::PATIENCE * 2, || Ok(holder.try_wait()?.is_some()))?;
        }
        match line {
            Some(line) if line == READY => {}
            Some(line) if !line.is_empty() => bail!("no file system was made: {line}"),
            _ => bail!("no file system was made; the end of {}:{}", log.display(), process::log_tail(&log, 5)),
        }
        // Only the hosts need them.
        let keys = KeyFiles::beside(&state.config_file());
        for file in [keys.server, keys.list] {
            std::fs::remove_file(&file).with_context(|| format!("cannot remove {}", file.display()))?;
        }
        let fs = Fs::from_config(config.clone(), state.root().display().to_string(), common)?;
        let mut waiting = String::new();
        let serve = process::wait_until(common.timeout(), || {
            let answers = fs.ping_all();
            let late = answers.iter().find(|(_, answer)| !answer.as_ref().is_ok_and(|info| info.state == "serving"));
            waiting = late.map_or(String::new(), |(entry, answer)| {
                let why = answer.as_ref().map_or_else(|error| fs.why(error), |info| format!("it is {}", info.state));
                format!("{} at {}: {why}", entry.name, entry.address)
            });
            Ok(late.is_none() || stopped.load(Ordering::Relaxed))
        })?;
        if !serve || stopped.load(Ordering::Relaxed) {
            bail!("no file system was made: {waiting}");
        }
        Ok((config, job))
    }
}

/// Ends a file system over hosts: unmounts, copies out what shall stay, ends the servers. `None` if
/// it is interrupted before it ends anything.
///
/// # Errors
/// If a mount is in use, or something cannot be copied or is changed meanwhile: nothing is ended
/// then, and what can be copied is. If the servers have ended and nothing was copied before. If
/// something survives.
pub fn down(state: &StateDir, config: &Config, stage_out: Option<&Path>, discard: bool, common: &Common) -> Result<Option<String>> {
    let stopped = StopSignals::block()?.into_flag();
    let job: Job = serde_json::from_str(&std::fs::read_to_string(state.hosts_file())?).context("the list of hosts makes no sense")?;
    let to = stage_out.map(Path::to_path_buf).or(job.stage_out.map(PathBuf::from)).filter(|_| !discard);
    let mut report = String::new();
    let copied = hold::copied_file(state);
    if let Ok(place) = std::fs::read(hold::ended_file(state)) {
        // A `weft down` was killed while it ended the servers.
        report += &format!("everything had been copied to {}\n", Path::new(OsStr::from_bytes(&place)).display());
    } else if let Some(to) = to {
        check_held(state, config)?;
        if let Err(error) = std::fs::remove_file(&copied)
            && error.kind() != std::io::ErrorKind::NotFound
        {
            return Err(error).with_context(|| format!("cannot remove {}", copied.display()));
        }
        let is_out = copy_out(state, config, &to, &stopped, common);
        if is_out.is_err() {
            // It may have ended meanwhile.
            check_held(state, config)?;
        }
        if !is_out? {
            tell(&format!("interrupted; not everything is in {}, and nothing was ended", to.display()));
            return Ok(None);
        }
        report += &format!("copied everything to {}\n", to.display());
        let place = std::path::absolute(&to)?;
        // On a full disk nothing need be known later, if this process ends all of it.
        let _ = write_in_one_step(&copied, place.as_os_str().as_bytes(), 0o600);
    }
    let is_copied = !report.is_empty();
    let unmounted = down::stop_all(state, config)?;
    report.extend(unmounted.lines().filter(|line| line.starts_with("unmounted")).map(|line| format!("{line}\n")));
    match process::end(&hold::pid_file(state), hold::PATIENCE * 2)? {
        process::Ended::Killed => {
            report += &format!("what held the servers on {} hosts had to be killed; they end by themselves now\n", job.hosts.len());
        }
        process::Ended::WasNotRunning if is_copied => report += "the servers had ended already\n",
        process::Ended::WasNotRunning => report += "the servers had ended already, and what they held is gone\n",
        process::Ended::Stopped => report += &format!("ended the servers on {} hosts\n", job.hosts.len()),
    }
    forget(state);
    Ok(Some(report))
}

/// Refuses if nothing holds the servers any more: they end then, whoever wants something of them.
fn check_held(state: &StateDir, config: &Config) -> Result<()> {
    if process::holder(&hold::pid_file(state))?.is_none() {
        bail!(
            "the servers of {} have ended, since what held them from here did, and their data is removed: nothing can be copied; \
             `weft down --discard` removes what is left of it",
            config.fs_name
        );
    }
    Ok(())
}

/// Unmounts, and copies everything to a folder. False if it is interrupted.
///
/// # Errors
/// If a mount is in use, something cannot be copied, or something was changed during each of some
/// copies: what ends now would be lost.
fn copy_out(state: &StateDir, config: &Config, to: &Path, stopped: &AtomicBool, common: &Common) -> Result<bool> {
    std::fs::create_dir_all(to).with_context(|| format!("cannot make {}", to.display()))?;
    // Opened now, it hears of what fails from now on.
    let disk = File::open(to).with_context(|| format!("cannot open {}", to.display()))?;
    let mut mounts = mount_list::of(config.fs_id, state)?;
    // First those that cannot be unmounted here: one of them in use leaves all as they are.
    mounts.sort_by_cached_key(|mount| mount.is_mounted().unwrap_or(true));
    for mount in mounts {
        if mount.end_unused().context(AGAIN)? == Unmounted::Done {
            print(&format!("unmounted {}\n", mount.place.display()))?;
        }
    }
    let fs = Fs::from_config(config.clone(), state.root().display().to_string(), common)?;
    for _ in 0..COPIES_MAX {
        let begun = journal_ends(&fs);
        if !copy_once(&fs, state, (to, &disk), stopped, common)? {
            return Ok(false);
        }
        if !is_changed(&fs, begun).context(AGAIN)? {
            tell_of_clients(&fs);
            return Ok(true);
        }
        tell(&format!("something was changed in {} while it was copied", config.fs_name));
    }
    bail!("{} may not have all of {}, which programs change; {AGAIN}", to.display(), config.fs_name)
}

/// Copies everything to a folder, and onto its disk. False if it is interrupted.
fn copy_once(fs: &Fs, state: &StateDir, (to, disk): (&Path, &File), stopped: &AtomicBool, common: &Common) -> Result<bool> {
    let entries = fs.stat(b"/", true).and_then(|root| fs.list(b"/", root.handle, false)).context(AGAIN)?;
    let path = |name: &[u8]| OsString::from_vec([state.root().as_os_str().as_bytes(), b":/", name].concat());
    let from: Vec<OsString> = entries.iter().map(|entry| path(&entry.name)).collect();
    let mut left = 0;
    for some in from.chunks(COPIED_AT_ONCE) {
        let copied = copy(some, to.as_os_str(), stopped, common);
        if stopped.load(Ordering::Relaxed) {
            return Ok(false);
        }
        left += copied.context(AGAIN)?;
    }
    if left > 0 {
        bail!("{left} files or directories were not copied, and are named above; all others are in {}; {AGAIN}", to.display());
    }
    // What was copied is the only copy then.
    rustix::fs::syncfs(disk).with_context(|| format!("what was copied to {} cannot be written there", to.display())).context(AGAIN)?;
    Ok(true)
}

/// Where the journal of each metadata server that has one ends.
fn journal_ends(fs: &Fs) -> Vec<(ServerId, weft_client::Result<ChangeCursor>)> {
    let end = |id| (id, fs.run(fs.client.changes(id, NOW, 0)).map(|reply| reply.until));
    let ends = fs.client.map().meta.iter().map(|entry| end(entry.id));
    ends.filter(|(_, end)| !end.as_ref().is_err_and(|error| error.status == Status::NotSupported)).collect()
}

/// True if a journal has told of anything since.
fn is_changed(fs: &Fs, ends: Vec<(ServerId, weft_client::Result<ChangeCursor>)>) -> Result<bool> {
    for (id, end) in ends {
        let mut after = end?;
        loop {
            let reply = fs.run(fs.client.changes(id, after, 0))?;
            if reply.lost || !reply.changes.is_empty() {
                return Ok(true);
            }
            if !reply.more {
                break;
            }
            after = reply.until;
        }
    }
    Ok(false)
}

/// Who has not changed anything may still do so: mounts and programs of other hosts.
fn tell_of_clients(fs: &Fs) {
    // Every client begins at the first server, and so does every other server; this is a client.
    let map = fs.client.map();
    let (first, servers) = (map.meta[0].id, map.servers().count() as u32);
    let mut count = 0;
    // The servers may not have heard yet that the copy has ended.
    let _ = process::wait_until(CLIENTS_PATIENCE, || {
        count = fs.live(first).map_or(0, |live| live.clients.saturating_sub(servers));
        Ok(count == 0)
    });
    if count > 0 {
        tell(&format!("clients are still connected: {count}; what they write from now on is lost"));
    }
}

/// Removes what says that there is a file system.
fn forget(state: &StateDir) {
    let keys = KeyFiles::beside(&state.config_file());
    let of_end = [hold::copied_file(state), hold::ended_file(state)];
    let of_fs = [state.config_file(), state.hosts_file(), state.key_file(), keys.server, keys.list, state.mount_file()];
    for file in of_fs.into_iter().chain(of_end) {
        let _ = std::fs::remove_file(file);
    }
}

/// Copies trees into a directory, many files at once, with progress if there is a terminal. What
/// cannot be copied is named and left out; tells how much that is, without devices: they hold
/// nothing that could be lost. The copy is stopped with this
/// process: it would go on to write, and to remove what it cannot finish, beside the next one.
fn copy(from: &[OsString], to: &OsStr, stopped: &AtomicBool, common: &Common) -> Result<u64> {
    let own = std::process::id().to_string();
    let timeout = common.timeout().as_secs().to_string();
    let mut command = job::this_program()?;
    command.args(["cp", "-r", "--force", "--json", "--until", &own, "--timeout", &timeout, "--"]).args(from).arg(to);
    // A group of its own: Ctrl-C reaches it from here, and once only.
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).process_group(0).spawn().context("cannot start `weft cp`")?;
    let mut is_told = false;
    while child.try_wait()?.is_none() {
        if stopped.load(Ordering::Relaxed) && !is_told {
            is_told = true;
            // It may have ended just now.
            let _ = kill(Pid::from_raw(child.id() as i32), Signal::SIGTERM);
        }
        std::thread::sleep(LOOK);
    }
    let output = child.wait_with_output()?;
    let copied = serde_json::from_slice::<Copied>(&output.stdout);
    match copied {
        Ok(copied) if output.status.success() == copied.is_all() => Ok(copied.failures),
        _ => bail!("copying to {} failed", to.display()),
    }
}
