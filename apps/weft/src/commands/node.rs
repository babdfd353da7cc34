//! `weft node`, which only `weft hold` calls, on each host of a job: starts that host's servers and
//! ends them, with their data, when standard input does.

use std::fs::DirBuilder;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use weft_host::config::{Config, write_in_one_step};
use weft_host::connect::{Common, Fs};
use weft_host::hosts::Order;
use weft_host::output::{print, tell};
use weft_host::state::{StateDir, make_private_dir};
use weft_host::stop_signals::StopSignals;
use weft_host::{job, parallel, process};

/// Most bytes of an order.
const ORDER_BYTES_MAX: u64 = 16 << 20;
/// How long a server has after SIGTERM.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long one look at a server takes at most.
const LOOK: Duration = Duration::from_secs(2);
/// What is said when all servers of this host answer.
pub const READY: &str = "ready";
/// The line of this program that says how it is begins so. Shells of the host and launchers write
/// to the same pipe.
pub const ANSWER: &str = "weft node: ";

/// Run the servers of one host of a job, as standard input says
#[derive(Debug, clap::Args)]
pub struct Args {}

impl Args {
    pub fn run(self, common: &Common) -> Result<bool> {
        let signals = StopSignals::block()?;
        let (sender, ended) = mpsc::channel();
        let asked = sender.clone();
        signals.on_stop(move || {
            let _ = asked.send(());
        });
        let mut input = BufReader::new(std::io::stdin());
        let mut line = String::new();
        input.by_ref().take(ORDER_BYTES_MAX).read_line(&mut line).context("no order came")?;
        let order: Order = serde_json::from_str(&line).context("this is no order")?;
        parallel::start(move || {
            let _ = std::io::copy(&mut input, &mut std::io::sink());
            sender.send(())
        })?;
        let place = if order.dir.is_empty() { job::temporary_dir() } else { PathBuf::from(&order.dir) };
        let home = place.join(&order.folder);
        // Nobody else can have made it, nor an earlier job.
        let made = DirBuilder::new().mode(0o700).create(&home);
        if let Err(error) = made {
            print(&format!("{ANSWER}cannot make {}: {error}\n", home.display()))?;
            return Ok(false);
        }
        let mut servers = Vec::new();
        let outcome = start(&order, &home, &mut servers, &ended, common);
        let line = outcome.as_ref().map_or_else(crate::error_line, |()| READY.into());
        // Where nobody reads any more nothing is kept.
        let is_told = print(&format!("{ANSWER}{line}\n")).is_ok();
        if outcome.is_ok() && is_told {
            watch(&ended, &mut servers);
        }
        stop(&StateDir::of_config(&home.join("weft.toml")), &mut servers);
        std::fs::remove_dir_all(&home).with_context(|| format!("cannot remove {}", home.display()))?;
        Ok(outcome.is_ok())
    }
}

/// Writes what the servers need and starts them; returns when all of them answer, or it is ended.
fn start(order: &Order, home: &Path, servers: &mut Vec<(String, Child)>, ended: &mpsc::Receiver<()>, common: &Common) -> Result<()> {
    let state = StateDir::of_config(&home.join("weft.toml"));
    make_private_dir(&state.run_dir())?;
    make_private_dir(&state.servers_dir())?;
    write_in_one_step(&state.key_file(), order.key.as_bytes(), 0o600)?;
    write_in_one_step(&home.join("server.key"), order.server_key.as_bytes(), 0o600)?;
    if let Some(keys) = &order.keys {
        write_in_one_step(&home.join("keys"), keys.as_bytes(), 0o600)?;
    }
    write_in_one_step(&state.config_file(), order.config.as_bytes(), 0o600)?;
    let config = Config::load(&state.config_file())?;
    let own = std::process::id().to_string();
    for name in &order.servers {
        let args = ["serve", "--detached", "--create", "--until", &own, "--server", name, "--config"].map(std::ffi::OsString::from);
        let args = args.into_iter().chain([config.file.clone().into_os_string()]);
        let child = process::start_in_background(args, &state.log_file(name), Stdio::null(), Stdio::null())?;
        servers.push((name.clone(), child));
    }
    let ours: Vec<_> = config.map().servers().filter(|entry| order.servers.contains(&entry.name)).cloned().collect();
    let fs = Fs::from_config(config, home.display().to_string(), &common.with_timeout(LOOK))?;
    let deadline = Instant::now() + common.timeout();
    loop {
        let answers = fs.ping(ours.clone());
        if ended.try_recv().is_ok() {
            bail!("it was ended before all servers had answered");
        }
        for (name, server) in servers.iter_mut() {
            if let Some(status) = server.try_wait()? {
                bail!("{name} ended ({status}):{}", process::log_tail(&state.log_file(name), 3));
            }
        }
        match answers.iter().find_map(|(entry, answer)| answer.as_ref().err().map(|error| (entry, error))) {
            None => return Ok(()),
            Some((entry, error)) if Instant::now() >= deadline => bail!("{} does not answer: {}", entry.name, fs.why(error)),
            Some(_) => thread::sleep(Duration::from_millis(20)),
        }
    }
}

/// Waits for the end; says which server ends before.
fn watch(ended: &mpsc::Receiver<()>, servers: &mut Vec<(String, Child)>) {
    while let Err(mpsc::RecvTimeoutError::Timeout) = ended.recv_timeout(Duration::from_millis(500)) {
        servers.retain_mut(|(name, server)| match server.try_wait() {
            Ok(Some(status)) => {
                tell(&format!("{name} ended ({status})"));
                false
            }
            _ => true,
        });
    }
}

fn stop(state: &StateDir, servers: &mut [(String, Child)]) {
    thread::scope(|scope| {
        for (name, server) in servers {
            scope.spawn(move || process::end_server(server, &state.pid_file(name), PATIENCE));
        }
    });
}
