//! One process of a benchmark. It takes orders as lines of JSON on standard input, each followed by
//! `go` once all processes are ready, and answers in the same way on standard output. It ends when
//! its input ends: also when whoever leads it is killed.

use std::ffi::OsString;
use std::io::{BufRead, Write};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::Barrier;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use nix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use weft_client::Client;
use weft_host::connect::{Common, Fs};
use weft_host::hosts::machine_name;
use weft_host::parallel;

use crate::library::LibraryTarget;
use crate::meter::{Meter, Tally};
use crate::path::PathTarget;
use crate::target::{Target, Traffic};
use weft_workload::{WorkStep, Workload};

/// A process in the middle of a step goes on for so long after whoever leads it is gone.
const END_PATIENCE: Duration = Duration::from_secs(2);
/// The word that starts a step.
const GO: &str = "go";
/// The word that asks for the time.
pub const CLOCK: &str = "clock";

/// What the hidden subcommand of a process says.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The file system, if it is used by the library
    #[arg(long)]
    fs: Option<OsString>,
    /// The directory, below the file system or in the name space of this machine
    #[arg(long)]
    root: OsString,
    /// Number of this process
    #[arg(long)]
    process: u32,
    /// Requests in flight of each client
    #[arg(long)]
    depth: u32,
}

/// What a process is told to do.
#[derive(Debug, Serialize, Deserialize)]
pub struct Order {
    /// What.
    pub step: WorkStep,
    /// How.
    pub work: Workload,
}

/// What a process answers.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Answer {
    /// It waits for the start.
    Ready,
    /// It has done its part.
    Done(StepDone),
    /// It has not, and says why.
    Failed(String),
    /// The monotonic clock of its machine, in nanoseconds.
    Clock(u64),
}

/// What one process has done in one step.
#[derive(Debug, Serialize, Deserialize)]
pub struct StepDone {
    /// The name of the machine.
    pub node: String,
    /// When its first client started, on the monotonic clock of the machine, in nanoseconds.
    pub begun_ns: u64,
    /// When its last client ended.
    pub ended_ns: u64,
    /// What its clients did.
    pub tally: Tally,
    /// Processor time of the process, in microseconds.
    pub cpu_us: u64,
    /// Messages and bytes, if the target counts them.
    pub traffic: Option<Traffic>,
}

impl Args {
    /// The words that start a process with these arguments.
    pub fn words(fs: Option<&OsString>, root: &OsString, process: u32, depth: u32) -> Vec<OsString> {
        let mut words: Vec<OsString> = ["bench", "worker", "--root"].map(OsString::from).into();
        words.push(root.clone());
        words.extend(["--process".into(), process.to_string().into(), "--depth".into(), depth.to_string().into()]);
        if let Some(fs) = fs {
            words.extend(["--fs".into(), fs.clone()]);
        }
        words
    }

    /// Works until there are no more orders.
    ///
    /// # Errors
    /// When the file system cannot be reached, or nobody listens.
    pub fn run(self, common: &Common) -> Result<bool> {
        weft_recording::identify(&format!("bench-{}", self.process), None);
        let served = self.serve(common);
        if let Err(error) = &served {
            answer(&Answer::Failed(format!("{error:#}")))?;
        }
        Ok(served.is_ok())
    }

    fn serve(self, common: &Common) -> Result<()> {
        let orders = read_orders()?;
        match &self.fs {
            Some(fs) => {
                let mut fs = Fs::open(fs, common)?;
                let mut options = fs.client.options().clone();
                options.window = self.depth as usize;
                fs.client = Client::new(fs.client.rt().clone(), fs.client.map().clone(), options);
                work(&LibraryTarget::new(fs, self.root.into_vec())?, self.process, &orders)
            }
            None => work(&PathTarget::new(&PathBuf::from(self.root)), self.process, &orders),
        }
    }
}

/// Lines of standard input. When it ends this process ends: if it waits for an order, in the usual
/// way (it may have a trace to write), and otherwise a moment later, whatever it does.
fn read_orders() -> Result<Receiver<String>> {
    let (send, receive) = channel();
    parallel::start(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if send.send(line).is_err() {
                break;
            }
        }
        drop(send);
        std::thread::sleep(END_PATIENCE);
        // Nobody is left to hear about it.
        let _ = weft_recording::finish();
        std::process::exit(0);
    })?;
    Ok(receive)
}

/// Tells whoever leads this process a line of JSON.
///
/// # Errors
/// Nobody listens.
pub fn answer(answer: &impl Serialize) -> Result<()> {
    let mut line = serde_json::to_string(answer).context("an answer is always JSON")?;
    line.push('\n');
    let mut out = std::io::stdout().lock();
    out.write_all(line.as_bytes())?;
    Ok(out.flush()?)
}

fn work<T: Target>(target: &T, process: u32, orders: &Receiver<String>) -> Result<()> {
    let mut clients: Vec<T::Client> = Vec::new();
    while let Ok(line) = orders.recv() {
        if line == CLOCK {
            answer(&Answer::Clock(monotonic_ns()?))?;
            continue;
        }
        let order: Order = serde_json::from_str(&line).with_context(|| format!("no order: {line}"))?;
        let first = u64::from(process) * u64::from(order.work.clients);
        if clients.len() != order.work.clients as usize {
            clients = (0..u64::from(order.work.clients)).map(|number| target.client(first + number)).collect();
        }
        let wait_for_start = || {
            answer(&Answer::Ready)?;
            match orders.recv().as_deref() {
                Ok(GO) => Ok(()),
                other => Err(anyhow!("`{GO}` was expected, not {other:?}")),
            }
        };
        match step(target, &mut clients, &order, wait_for_start) {
            Ok(done) => answer(&Answer::Done(done))?,
            Err(error) => bail!(error),
        }
    }
    Ok(())
}

/// Lets all clients of this process do a step.
fn step<T: Target>(target: &T, clients: &mut [T::Client], order: &Order, wait_for_start: impl FnOnce() -> Result<()>) -> Result<StepDone> {
    let Order { step, work } = order;
    // All threads pass it twice: when everybody is prepared, and when everybody may start.
    let gate = Barrier::new(clients.len() + 1);
    let one = |client: &mut T::Client| -> Result<(u64, u64, Tally)> {
        let prepared = target.prepare(client, *step, work);
        // If this process is traced, the thread takes its ring now and not within what is measured.
        weft_trace::now();
        gate.wait();
        gate.wait();
        prepared?;
        let begun = monotonic_ns()?;
        let mut meter = Meter::start(work.progress);
        target.run(client, *step, work, &mut meter)?;
        Ok((begun, monotonic_ns()?, meter.finish()))
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = clients.iter_mut().map(|client| scope.spawn(|| one(client))).collect();
        gate.wait();
        let started = wait_for_start();
        let (cpu_before, traffic_before) = (cpu_us(UsageWho::RUSAGE_SELF), target.traffic());
        gate.wait();
        let mut done =
            StepDone { node: machine_name(), begun_ns: u64::MAX, ended_ns: 0, tally: Tally::default(), cpu_us: 0, traffic: None };
        let mut failure = started.err();
        for thread in threads {
            match thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)) {
                Ok((begun, ended, tally)) => {
                    done.begun_ns = done.begun_ns.min(begun);
                    done.ended_ns = done.ended_ns.max(ended);
                    done.tally.absorb(&tally);
                }
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        done.cpu_us = cpu_us(UsageWho::RUSAGE_SELF)?.saturating_sub(cpu_before?);
        done.traffic = target.traffic().zip(traffic_before).map(|(now, before)| now.since(before));
        match failure {
            Some(error) => Err(error),
            None => Ok(done),
        }
    })
}

/// The monotonic clock of this machine in nanoseconds.
///
/// # Errors
/// Of the operating system.
pub fn monotonic_ns() -> Result<u64> {
    let time = clock_gettime(ClockId::CLOCK_MONOTONIC).context("there is no monotonic clock")?;
    Ok(time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64)
}

/// Processor time of this process, or of all that it has waited for, in microseconds.
///
/// # Errors
/// Of the operating system.
pub fn cpu_us(of: UsageWho) -> Result<u64> {
    let usage = getrusage(of).context("cannot tell the processor time")?;
    Ok((usage.user_time().num_microseconds() + usage.system_time().num_microseconds()) as u64)
}
