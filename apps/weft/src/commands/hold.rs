//! `weft hold`, which only `weft up --hosts` calls: keeps the servers on the hosts of a job alive
//! by keeping their standard inputs open. When it ends, however it does, they end.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use weft_base::ServerId;
use weft_host::config::{Config, KeyFiles};
use weft_host::connect::Common;
use weft_host::hosts::{Job, Order};
use weft_host::output::{print, tell};
use weft_host::parallel;
use weft_host::process::{self, PidFile};
use weft_host::state::StateDir;
use weft_host::stop_signals::StopSignals;

use super::node::{ANSWER, READY};

/// How long a host has to end its servers.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// How long a host has, beside the time for its servers, to be reached.
const REACH: Duration = Duration::from_secs(30);
/// Between two looks whether a stop is asked for while hosts are waited for.
const LOOK: Duration = Duration::from_millis(200);
/// Bytes of the first line that a host answers, at most.
const ANSWER_BYTES_MAX: u64 = 64 << 10;

/// Hold the servers on the hosts of a job
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The state directory
    state: PathBuf,
}

/// One host.
struct Host {
    name: String,
    launcher: Child,
    /// Its standard input, once its order is written; it ends when this is dropped.
    input: Option<mpsc::Receiver<ChildStdin>>,
    log: PathBuf,
}

/// The pid file of the process that holds a job.
pub fn pid_file(state: &StateDir) -> PathBuf {
    state.run_dir().join("hosts.pid")
}

/// Where `weft down` says, just before it ends the holder, which folder has a copy of everything.
pub fn copied_file(state: &StateDir) -> PathBuf {
    state.run_dir().join("hosts.copied")
}

/// The same, moved here by the holder that was ended then: nothing can have changed since the copy.
pub fn ended_file(state: &StateDir) -> PathBuf {
    state.run_dir().join("hosts.ended")
}

impl Args {
    pub fn run(self, common: &Common) -> Result<bool> {
        process::detach();
        let signals = StopSignals::block()?;
        let (sender, ended) = mpsc::channel();
        signals.on_stop(move || {
            let _ = sender.send(());
        });
        let state = StateDir::existing(&self.state)?;
        PidFile::take(&pid_file(&state), "")?.hold_until_exit();
        let mut hosts = Vec::new();
        if let Err(error) = begin(&state, &mut hosts, common, &ended) {
            // Whoever waits for this line need not wait for hosts that do not end. It may have
            // gone.
            let _ = print(&format!("{}\n", crate::error_line(&error)));
            end(&mut hosts);
            return Ok(false);
        }
        print(&format!("{READY}\n"))?;
        let mut gone = vec![false; hosts.len()];
        while let Err(mpsc::RecvTimeoutError::Timeout) = ended.recv_timeout(Duration::from_secs(1)) {
            for (host, gone) in hosts.iter_mut().zip(&mut gone) {
                if !*gone && let Some(status) = host.launcher.try_wait()? {
                    *gone = true;
                    tell(&format!("{} has gone ({status}); its servers and what was on them are lost", host.name));
                }
            }
        }
        // Without a copy there is no such file.
        let _ = std::fs::rename(copied_file(&state), ended_file(&state));
        end(&mut hosts);
        Ok(true)
    }
}

/// Starts all hosts at once, and returns when each of them is ready, one is not, or it is ended.
fn begin(state: &StateDir, hosts: &mut Vec<Host>, common: &Common, ended: &mpsc::Receiver<()>) -> Result<()> {
    let job: Job = serde_json::from_str(&std::fs::read_to_string(state.hosts_file())?).context("the list of hosts makes no sense")?;
    let config = Config::load(&state.config_file())?;
    let (sender, answers) = mpsc::channel();
    for (index, name) in job.hosts.iter().enumerate() {
        let order = order(state, &job, &config, index)?;
        let log = state.run_dir().join(format!("host-{name}.log"));
        let errors = std::fs::File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
        let mut command = job.launcher.command(name, &job.program, &["node", "--timeout", &common.timeout().as_secs().to_string()]);
        let spawned = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(errors).spawn();
        let mut launcher = spawned.with_context(|| format!("{name}: cannot run {}", command.get_program().display()))?;
        let mut input = launcher.stdin.take().expect("its standard input is a pipe");
        let output = launcher.stdout.take().expect("its standard output is a pipe");
        // One that does not read must not keep the others waiting.
        let (to, from) = mpsc::channel();
        parallel::start(move || {
            // A host that has gone says nothing, and that is told.
            let _ = input.write_all(&order);
            to.send(input)
        })?;
        let sender = sender.clone();
        parallel::start(move || {
            let mut output = BufReader::new(output);
            let _ = sender.send((index, answer(&mut output.by_ref().take(ANSWER_BYTES_MAX))));
            // What a launcher says later must not fill the pipe.
            std::io::copy(&mut output, &mut std::io::sink())
        })?;
        hosts.push(Host { name: name.clone(), launcher, input: Some(from), log });
    }
    let deadline = Instant::now() + common.timeout() + REACH;
    let mut waiting: Vec<usize> = (0..hosts.len()).collect();
    while !waiting.is_empty() {
        let left = deadline.saturating_duration_since(Instant::now());
        let answer = answers.recv_timeout(left.min(LOOK));
        if ended.try_recv().is_ok() {
            bail!("it was ended before all hosts had answered");
        }
        let Ok((index, line)) = answer else {
            if !left.is_zero() {
                continue;
            }
            let names: Vec<&str> = waiting.iter().map(|index| hosts[*index].name.as_str()).collect();
            bail!("no answer in time from {}", names.join(", "));
        };
        let host = &hosts[index];
        if line != READY {
            let why = if line.is_empty() { format!("no answer{}", process::log_tail(&host.log, 3)) } else { line };
            bail!("{} did not come up: {why}", host.name);
        }
        waiting.retain(|waiting| *waiting != index);
    }
    Ok(())
}

/// What a host answers. A greeting of its shell before that is not it, but all that is told of a
/// host that says nothing else.
fn answer(output: &mut impl BufRead) -> String {
    let (mut line, mut greeting) = (Vec::new(), String::new());
    while output.read_until(b'\n', &mut line).is_ok_and(|bytes| bytes > 0) {
        let words = String::from_utf8_lossy(&line).trim().to_string();
        if let Some(answer) = words.strip_prefix(ANSWER) {
            return answer.into();
        }
        if !words.is_empty() {
            greeting = words;
        }
        line.clear();
    }
    greeting
}

fn order(state: &StateDir, job: &Job, config: &Config, index: usize) -> Result<Vec<u8>> {
    let read = |file: &Path| std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()));
    let files = KeyFiles::beside(&config.file);
    let ours: Vec<_> = config.servers.iter().filter(|server| server.id.index() % job.hosts.len() == index).collect();
    let order = Order {
        dir: job.dir.clone(),
        folder: format!("weft-{}", config.fs_id),
        config: read(&config.file)?,
        key: read(&state.key_file())?,
        server_key: read(&files.server)?,
        keys: ours.iter().any(|server| server.id == ServerId(0)).then(|| read(&files.list)).transpose()?,
        servers: ours.iter().map(|server| server.name.clone()).collect(),
    };
    let mut line = serde_json::to_vec(&order)?;
    line.push(b'\n');
    Ok(line)
}

/// Closes what keeps the servers alive, and waits until they have ended.
fn end(hosts: &mut [Host]) {
    hosts.iter_mut().for_each(|host| drop(host.input.take()));
    let deadline = Instant::now() + PATIENCE;
    for host in hosts {
        let left = deadline.saturating_duration_since(Instant::now());
        if !process::end_child(&mut host.launcher, left) {
            tell(&format!("{} does not say that its servers have ended", host.name));
        }
    }
}
