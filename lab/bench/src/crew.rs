//! The processes of a benchmark, led from outside: they are started once, wait for each other
//! before each step, and end with this one.

use std::ffi::OsString;
use std::fmt;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serde::Serialize;
use serde::de::DeserializeOwned;
use weft_host::connect::Common;
use weft_host::hosts::Launcher;
use weft_host::process;
use weft_host::stop_signals::StopSignals;
use weft_trace::latency::Latency;

use crate::meter::Tally;
use crate::system::program_or_this;
use crate::target::Traffic;
use crate::worker::{Answer, CLOCK, Order, StepDone, monotonic_ns};
use weft_workload::{WorkStep, Workload};

/// How long a process has for ending by itself.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often a clock elsewhere is asked.
const CLOCK_QUESTIONS: usize = 7;

/// Notices that the person wants to stop, and ends the processes, so that whoever waits for them
/// goes on to clean up.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<StopState>);

#[derive(Debug, Default)]
struct StopState {
    asked: AtomicBool,
    pids: Mutex<Vec<i32>>,
}

impl Stop {
    /// From now on Ctrl-C and the like stop in good order. Call it before any thread is started.
    ///
    /// # Errors
    /// Of the operating system.
    pub fn at_signals() -> Result<Stop> {
        let stop = Stop::default();
        let state = stop.0.clone();
        StopSignals::block()?.on_stop(move || {
            state.asked.store(true, Ordering::SeqCst);
            state.kill_all();
        });
        Ok(stop)
    }

    /// # Errors
    /// If the person wants to stop.
    pub fn check(&self) -> Result<()> {
        if self.0.asked.load(Ordering::SeqCst) {
            bail!("stopped; what the benchmark had made is removed");
        }
        Ok(())
    }

    /// Runs a command to its end, which comes when the person wants to stop, too.
    ///
    /// # Errors
    /// It cannot be started, or the person wants to stop.
    pub fn status(&self, command: &mut Command) -> Result<ExitStatus> {
        let mut child = self.spawn(command)?;
        let ended = child.wait();
        self.disown(&child);
        self.check()?;
        ended.context("cannot wait for a process")
    }

    /// Starts a process in a group of its own. So Ctrl-C does not end it before this process knows
    /// that the person wants to stop, and then it ends with all that it has started.
    fn spawn(&self, command: &mut Command) -> Result<Child> {
        let child = command.process_group(0).spawn();
        let child = child.with_context(|| format!("cannot start {}", command.get_program().display()))?;
        self.adopt(&child);
        Ok(child)
    }

    fn adopt(&self, child: &Child) {
        self.0.pids().push(child.id() as i32);
        // The signal may have come just before.
        if self.0.asked.load(Ordering::SeqCst) {
            self.0.kill_all();
        }
    }

    /// A process that nobody has waited for yet will be; its number may be another's afterwards.
    fn disown(&self, child: &Child) {
        self.0.pids().retain(|pid| *pid != child.id() as i32);
    }
}

impl StopState {
    fn pids(&self) -> MutexGuard<'_, Vec<i32>> {
        self.pids.lock().expect("no code panics while it holds this lock")
    }

    fn kill_all(&self) {
        for pid in self.pids().iter() {
            // One that has ended by itself is as good as killed.
            let _ = killpg(Pid::from_raw(*pid), Signal::SIGKILL);
        }
    }
}

/// Running processes that measure one target.
pub struct Crew {
    workers: Vec<Worker>,
    stop: Stop,
}

struct Worker {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    /// Where it is, if not here.
    host: Option<String>,
    /// Is added to its clock to have that of this machine, in nanoseconds.
    behind_ns: i64,
}

/// Hosts on which the processes of a benchmark are, and how they come there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Over {
    /// What starts them.
    pub launcher: Launcher,
    /// The hosts; processes go to them in turns.
    pub hosts: Vec<String>,
    /// This program there.
    pub program: String,
}

/// A process has died on this host; empty: here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gone(pub String);

impl fmt::Display for Gone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a process of the benchmark has died")?;
        if self.0.is_empty() { Ok(()) } else { write!(f, " on {}", self.0) }
    }
}

impl std::error::Error for Gone {}

/// What all processes together have done in one step.
#[derive(Debug)]
pub struct Outcome {
    /// From the start of the first client to the end of the last.
    pub seconds: f64,
    /// Sums.
    pub tally: Tally,
    /// What each process did in each interval, if it was to be recorded.
    pub progress: Vec<Progress>,
    /// Processor time of all processes in microseconds.
    pub cpu_us: u64,
    /// Messages and bytes of all processes, if they were counted.
    pub traffic: Option<Traffic>,
}

/// What one process did, and when.
#[derive(Debug, Default, PartialEq)]
pub struct Progress {
    /// Its machine.
    pub node: String,
    /// From the start of the first client of all processes to that of its own, in nanoseconds.
    pub late_ns: u64,
    /// From that start to the end of its last client, in nanoseconds.
    pub end_ns: u64,
    /// Operations and bytes in each interval.
    pub intervals: Vec<(u64, u64)>,
    /// Where intervals are of operations: when each ended, in nanoseconds since the process
    /// started, and its operations and bytes.
    pub marks: Vec<(u64, u64, u64)>,
    /// How long operations took.
    pub latency: Latency,
}

impl Crew {
    /// Starts processes; `words` gives the arguments of each.
    ///
    /// # Errors
    /// If they cannot be started.
    pub fn start(common: &Common, procs: u32, words: impl Fn(u32) -> Vec<OsString>, stop: &Stop) -> Result<Crew> {
        Crew::start_traced(None, common, procs, words, stop, None)
    }

    /// As [`Crew::start`], perhaps of another program; each process records into `folder`, if one
    /// is given, from its start to its end.
    ///
    /// # Errors
    /// If they cannot be started.
    pub fn start_traced(
        program: Option<&Path>,
        common: &Common,
        procs: u32,
        words: impl Fn(u32) -> Vec<OsString>,
        stop: &Stop,
        folder: Option<&Path>,
    ) -> Result<Crew> {
        let program = program_or_this(program)?;
        let mut crew = Crew { workers: Vec::new(), stop: stop.clone() };
        for process in 0..procs {
            let mut command = Command::new(&program);
            command.args(common_words(common)).args(words(process)).stdin(Stdio::piped()).stdout(Stdio::piped());
            if let Some(folder) = folder {
                command.env("WEFT_TRACE", folder);
            }
            crew.add(command, None)?;
        }
        Ok(crew)
    }

    /// As [`Crew::start`], on hosts. Their clocks are compared with the one here.
    ///
    /// # Errors
    /// If they cannot be started; a host that does not answer in time is named by [`Gone`].
    pub fn start_over(over: &Over, common: &Common, procs: u32, words: impl Fn(u32) -> Vec<OsString>, stop: &Stop) -> Result<Crew> {
        let mut crew = Crew { workers: Vec::new(), stop: stop.clone() };
        for (process, host) in (0..procs).zip(over.hosts.iter().cycle()) {
            let words: Vec<OsString> = common_words(common).into_iter().chain(words(process)).collect();
            let text = |word: OsString| word.into_string().map_err(|word| anyhow!("{} is not UTF-8", word.display()));
            let words = words.into_iter().map(text).collect::<Result<Vec<String>>>()?;
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let mut command = over.launcher.command(host, &over.program, &words);
            command.stdin(Stdio::piped()).stdout(Stdio::piped());
            crew.add(command, Some(host.clone()))?;
        }
        let deadline = Instant::now() + 2 * common.timeout();
        for worker in &mut crew.workers {
            worker.compare_clocks(deadline).inspect_err(|_| drop(worker.child.kill()))?;
        }
        Ok(crew)
    }

    fn add(&mut self, mut command: Command, host: Option<String>) -> Result<()> {
        let mut child = self.stop.spawn(&mut command)?;
        let (input, output) = (child.stdin.take(), child.stdout.take().expect("standard output was piped"));
        self.workers.push(Worker { child, input, output: BufReader::new(output), host, behind_ns: 0 });
        Ok(())
    }

    /// Lets all clients do a step; they start when all are ready. `before` is called just before
    /// that.
    ///
    /// # Errors
    /// The first failure of any process; all are done or gone by then.
    pub fn run(&mut self, step: WorkStep, work: &Workload, before: impl FnOnce() -> Result<()>) -> Result<Outcome> {
        let outcome = self.run_step(step, work, before);
        self.stop.check()?;
        outcome.with_context(|| format!("the step {} failed", step.name()))
    }

    /// Gives each process an order of its own, all at once; what they answer, in their order.
    ///
    /// # Errors
    /// A process has died, or the person wants to stop.
    pub fn ask<O: Serialize, A: DeserializeOwned>(&mut self, orders: &[O]) -> Result<Vec<A>> {
        for (worker, order) in self.workers.iter_mut().zip(orders) {
            worker.say(&serde_json::to_string(order).context("an order is always JSON")?)?;
        }
        let answers = self.workers.iter_mut().take(orders.len()).map(Worker::hear).collect::<Result<_>>();
        self.stop.check()?;
        answers
    }

    fn run_step(&mut self, step: WorkStep, work: &Workload, before: impl FnOnce() -> Result<()>) -> Result<Outcome> {
        let order = serde_json::to_string(&Order { step, work: work.clone() }).context("an order is always JSON")?;
        for worker in &mut self.workers {
            worker.say(&order)?;
        }
        for worker in &mut self.workers {
            match worker.hear()? {
                Answer::Ready => {}
                Answer::Failed(why) => bail!(why),
                Answer::Done(_) | Answer::Clock(_) => bail!("a process has ended a step before it began"),
            }
        }
        before()?;
        for worker in &mut self.workers {
            worker.say("go")?;
        }
        // All answers are taken before a failure is told, so that nobody works while others clean
        // up.
        let answers: Vec<Result<StepDone>> = self
            .workers
            .iter_mut()
            .map(|worker| match worker.hear()? {
                Answer::Done(done) => Ok(worker.on_our_clock(done)),
                Answer::Failed(why) => Err(anyhow!(why)),
                Answer::Ready | Answer::Clock(_) => bail!("a process began a step twice"),
            })
            .collect();
        Ok(sum(answers.into_iter().collect::<Result<_>>()?))
    }
}

fn sum(parts: Vec<StepDone>) -> Outcome {
    let begun = parts.iter().map(|part| part.begun_ns).min().unwrap_or(0);
    let ended = parts.iter().map(|part| part.ended_ns).max().unwrap_or(0);
    let mut outcome = Outcome {
        seconds: ended.saturating_sub(begun) as f64 / 1e9,
        tally: Tally::default(),
        progress: Vec::new(),
        cpu_us: 0,
        traffic: None,
    };
    for part in parts {
        outcome.tally.absorb(&part.tally);
        outcome.progress.push(Progress {
            node: part.node,
            late_ns: part.begun_ns.saturating_sub(begun),
            end_ns: part.ended_ns.saturating_sub(begun),
            latency: part.tally.bins.latency(),
            intervals: part.tally.intervals,
            marks: part.tally.marks,
        });
        outcome.cpu_us += part.cpu_us;
        if let Some(traffic) = part.traffic {
            let sum = outcome.traffic.get_or_insert_default();
            sum.requests += traffic.requests;
            sum.bytes += traffic.bytes;
        }
    }
    outcome
}

/// Global options, for the processes.
fn common_words(common: &Common) -> Vec<OsString> {
    let mut words = vec!["--timeout".into(), common.timeout().as_secs().to_string().into()];
    if let Some(file) = &common.key_file {
        words.extend(["--key-file".into(), file.clone().into_os_string()]);
    }
    words
}

impl Worker {
    fn say(&mut self, line: &str) -> Result<()> {
        let input = self.input.as_mut().context("the process was told to end")?;
        input.write_all(format!("{line}\n").as_bytes()).map_err(|_| self.gone())
    }

    fn gone(&self) -> anyhow::Error {
        Gone(self.host.clone().unwrap_or_default()).into()
    }

    /// Learns how far its clock is behind ours: of several questions the one that was answered
    /// soonest says it best, to half the time that it took. By the deadline it must be there.
    fn compare_clocks(&mut self, deadline: Instant) -> Result<()> {
        let mut best: Option<(u64, i64)> = None;
        for _ in 0..CLOCK_QUESTIONS {
            let asked = monotonic_ns()?;
            self.say(CLOCK)?;
            let left = PollTimeout::try_from(deadline.saturating_duration_since(Instant::now())).unwrap_or(PollTimeout::MAX);
            if poll(&mut [PollFd::new(self.output.get_ref().as_fd(), PollFlags::POLLIN)], left) == Ok(0) {
                return Err(self.gone()).context("no answer in time");
            }
            let theirs = match self.hear()? {
                Answer::Clock(theirs) => theirs,
                Answer::Failed(why) => bail!(why),
                Answer::Ready | Answer::Done(_) => bail!("a process of the benchmark does not tell the time"),
            };
            let answered = monotonic_ns()?;
            let took = answered.saturating_sub(asked);
            let behind = (asked + took / 2) as i64 - theirs as i64;
            if best.is_none_or(|(known, _)| took < known) {
                best = Some((took, behind));
            }
        }
        self.behind_ns = best.map_or(0, |(_, behind)| behind);
        Ok(())
    }

    fn on_our_clock(&self, done: StepDone) -> StepDone {
        let ours = |theirs: u64| theirs.saturating_add_signed(self.behind_ns);
        StepDone { begun_ns: ours(done.begun_ns), ended_ns: ours(done.ended_ns), ..done }
    }

    fn hear<A: DeserializeOwned>(&mut self) -> Result<A> {
        let mut line = String::new();
        self.output.read_line(&mut line).context("cannot hear a process of the benchmark")?;
        if line.is_empty() {
            return Err(self.gone());
        }
        serde_json::from_str(&line).with_context(|| format!("a process of the benchmark said: {}", line.trim_end()))
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        for worker in &mut self.workers {
            drop(worker.input.take());
        }
        for worker in &mut self.workers {
            self.stop.disown(&worker.child);
            // One that is killed hangs in the file system that it measures; nothing more can be
            // done for it here.
            process::end_child(&mut worker.child, PATIENCE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_runs_from_the_first_start_to_the_last_end() {
        let part = |begun_ns, ended_ns, ops| StepDone {
            node: "here".to_string(),
            begun_ns,
            ended_ns,
            tally: Tally { ops, bytes: 2 * ops, intervals: vec![(ops, 2 * ops)], ..Tally::default() },
            cpu_us: 10,
            traffic: Some(Traffic { requests: ops, bytes: 1 }),
        };
        let all = sum(vec![part(3_000_000_000, 5_000_000_000, 7), part(2_000_000_000, 4_500_000_000, 8)]);
        assert_eq!(all.seconds, 3.0);
        assert_eq!((all.tally.ops, all.tally.bytes, all.cpu_us), (15, 30, 20));
        assert_eq!(all.traffic, Some(Traffic { requests: 15, bytes: 2 }));
        let progress: Vec<_> = all.progress.iter().map(|one| (one.late_ns, one.intervals.as_slice())).collect();
        assert_eq!(progress, [(1_000_000_000, [(7, 14)].as_slice()), (0, [(8, 16)].as_slice())]);
    }
}
