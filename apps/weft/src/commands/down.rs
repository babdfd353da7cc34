//! `weft down`: unmounts everything of a file system and stops its servers.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use weft_host::config::Config;
use weft_host::connect::Common;
use weft_host::mount_list;
use weft_host::mount_list::Unmounted;
use weft_host::named::NamedState;
use weft_host::output;
use weft_host::parallel;
use weft_host::process;
use weft_host::process::Ended;
use weft_host::state::StateDir;
use weft_rt_real::Address;

use super::{hold, up};

/// How long a server has after SIGTERM before it is killed.
const PATIENCE: Duration = Duration::from_secs(10);

/// Unmount everything of a file system and stop its servers
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  weft down --state ~/fs\n\nWhat is stored stays; `weft up --state ~/fs` goes on with it.")]
pub struct Args {
    #[command(flatten)]
    state: NamedState,
    /// Of a file system over hosts (`weft up --hosts`): unmount and copy everything to this folder
    /// first
    #[arg(long, value_name = "DIR", conflicts_with = "discard")]
    stage_out: Option<PathBuf>,
    /// Of a file system over hosts: copy nothing out, also if `weft up` was told to
    #[arg(long)]
    discard: bool,
}

impl Args {
    pub fn run(self, common: &Common) -> Result<ExitCode> {
        let state = StateDir::existing(&self.state.dir(common)?)?;
        let config = Config::load(&state.config_file())?;
        weft_host::state::make_private_dir(&state.run_dir())?;
        state.check()?;
        let lock = state.lock()?;
        let report = match state.hosts_file().exists() {
            true => match up::hosts::down(&state, &config, self.stage_out.as_deref(), self.discard, common).transpose() {
                Some(report) => report,
                None => return Ok(ExitCode::from(130)),
            },
            false if self.stage_out.is_some() || self.discard => {
                bail!("{} stays on this machine: nothing need be copied out", config.fs_name)
            }
            false => stop_all(&state, &config),
        };
        lock.release();
        output::print(&report?)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// The servers of this state that run and are in its config no more.
pub fn unnamed_servers(state: &StateDir, config: &Config) -> Result<Vec<String>> {
    let mut unnamed = Vec::new();
    let run = state.run_dir();
    let entries = match std::fs::read_dir(&run) {
        // Nothing has ever run.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(unnamed),
        entries => entries.with_context(|| format!("cannot look into {}", run.display()))?,
    };
    for entry in entries.flatten() {
        let path = entry.path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()?.strip_suffix(".pid")) else { continue };
        if config.servers.iter().any(|server| server.name == name) || path == hold::pid_file(state) {
            continue;
        }
        // Mounts and gateways say there what they are.
        if process::holder(&path)?.is_some_and(|holder| holder.note.is_empty()) {
            unnamed.push(name.to_string());
        }
    }
    Ok(unnamed)
}

/// Unmounts everything, then stops all servers at once; says what it did. The caller holds the
/// state's lock.
///
/// # Errors
/// If something survives; everything else has been stopped all the same.
pub fn stop_all(state: &StateDir, config: &Config) -> Result<String> {
    let (mut report, mut failures) = (String::new(), Vec::new());
    for mount in mount_list::of(config.fs_id, state)? {
        match mount.end() {
            Ok(Unmounted::Nothing) => {}
            Ok(Unmounted::Done) => report += &format!("unmounted {}\n", mount.place.display()),
            Ok(Unmounted::WasBusy) => report += &format!("unmounted {} although it was in use\n", mount.place.display()),
            Err(error) => failures.push(format!("{error:#}")),
        }
    }
    let unnamed = unnamed_servers(state, config).unwrap_or_else(|error| {
        failures.push(format!("{error:#}"));
        Vec::new()
    });
    for name in &unnamed {
        report += &format!("{name} ran although {} does not name it any more\n", config.file.display());
    }
    let names: Vec<String> = config.servers.iter().map(|server| server.name.clone()).chain(unnamed).collect();
    let ended = parallel::each(&names, |name| process::end(&state.pid_file(name), PATIENCE));
    let mut stopped = 0;
    for (name, ended) in names.into_iter().zip(ended) {
        match ended {
            Ok(Ended::WasNotRunning) => {}
            Ok(Ended::Stopped) => stopped += 1,
            Ok(Ended::Killed) => {
                stopped += 1;
                report +=
                    &format!("killed {name}: it did not stop within {} s; its journal is replayed at the next start\n", PATIENCE.as_secs());
            }
            Err(error) => failures.push(format!("{name}: {error:#}")),
        }
    }
    for server in &config.servers {
        // Sockets whose place in the state directory would have been too long are in a directory of
        // their own; it goes when it is empty.
        if let Address::Unix(path) = &server.listen
            && let Some(dir) = path.parent().filter(|dir| !dir.starts_with(state.root()))
        {
            let _ = std::fs::remove_dir(dir);
        }
    }
    if !failures.is_empty() {
        bail!("not everything could be stopped: {}", failures.join("; "));
    }
    report += &match stopped {
        0 => "no server was running\n".to_string(),
        count => format!("stopped {count} servers\n"),
    };
    Ok(report)
}
