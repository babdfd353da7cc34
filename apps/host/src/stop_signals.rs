//! Signals that ask a process to end, turned into something to wait for.

use crate::proc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::sys::signal::{SigSet, Signal};
use weft_rt_real::Level;

/// SIGTERM, SIGINT and SIGHUP, turned from a sudden end into something to wait for. SIGHUP only if
/// whoever started this process does not want it ignored (`nohup`).
#[derive(Debug)]
pub struct StopSignals(SigSet);

/// Signals that come within it are one wish to stop.
const SAME_WISH: Duration = Duration::from_millis(500);

/// What SIGHUP is to a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HangUp {
    /// Its terminal has gone: it ends.
    Ends,
    /// It has none; whoever moved its log away wants it to begin a new one.
    ReopensLog,
}

impl StopSignals {
    /// From now on these signals wait until they are asked for. Call it before any other thread is
    /// started, since threads inherit it.
    ///
    /// # Errors
    /// Of the operating system.
    pub fn block() -> Result<StopSignals> {
        let mut set: SigSet = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP].into_iter().collect();
        if is_ignored(Signal::SIGHUP, &std::fs::read_to_string("/proc/self/status").unwrap_or_default()) {
            set.remove(Signal::SIGHUP);
        }
        set.thread_block().context("cannot block signals")?;
        Ok(StopSignals(set))
    }

    /// Waits for the next of them.
    pub fn wait(&self) -> Signal {
        loop {
            if let Ok(signal) = self.0.wait() {
                return signal;
            }
        }
    }

    /// Waits for one that is a second wish. One that follows the first closely is the same:
    /// `timeout` and launchers of jobs send it to a process and then to its group.
    fn wait_again(&self, hang_up: HangUp, who: &str, stopped: Instant) {
        loop {
            self.wait_for_stop(hang_up, who);
            if stopped.elapsed() >= SAME_WISH {
                return;
            }
        }
    }

    /// The same, but a SIGHUP that only means the log is dealt with and waited over.
    fn wait_for_stop(&self, hang_up: HangUp, who: &str) -> Signal {
        loop {
            let signal = self.wait();
            if signal != Signal::SIGHUP || hang_up == HangUp::Ends {
                return signal;
            }
            match weft_rt_real::reopen_log() {
                Ok(()) => weft_rt_real::write_line(Level::Info, who, "SIGHUP: goes on in this log"),
                Err(error) => weft_rt_real::write_line(Level::Warn, who, &format!("SIGHUP: cannot begin a new log: {error}")),
            }
        }
    }

    /// Without a thread that waits for them they end the process as ever.
    fn in_thread(self, work: impl FnOnce(&StopSignals) + Send + 'static) {
        let signals = self.0;
        let _ = thread::Builder::new().spawn(move || work(&self)).map_err(|_| signals.thread_unblock());
    }

    /// Calls `on_stop` at the first signal, in a thread of its own; a second one ends it at once.
    pub fn on_stop(self, on_stop: impl FnOnce() + Send + 'static) {
        self.in_thread(|signals| {
            signals.wait();
            on_stop();
            signals.wait_again(HangUp::Ends, "", Instant::now());
            std::process::exit(130);
        });
    }

    /// Becomes true at the first signal; a second one ends the process at once.
    pub fn into_flag(self) -> Arc<AtomicBool> {
        let stopped = Arc::new(AtomicBool::new(false));
        let asked = stopped.clone();
        self.on_stop(move || asked.store(true, Ordering::SeqCst));
        stopped
    }

    /// As [`StopSignals::on_stop`] for a server or mount: at the first signal that asks for the
    /// end, after a line in the log; `on_again` at each further one.
    pub fn on_end(self, hang_up: HangUp, who: &str, on_stop: impl FnOnce() + Send + 'static, on_again: impl Fn() + Send + 'static) {
        let who = who.to_string();
        self.in_thread(move |signals| {
            let signal = signals.wait_for_stop(hang_up, &who);
            weft_rt_real::write_line(Level::Info, &who, &format!("{signal}: stops"));
            on_stop();
            let stopped = Instant::now();
            loop {
                signals.wait_again(hang_up, &who, stopped);
                on_again();
            }
        });
    }
}

/// True if this process began with a signal ignored, by its own `/proc/self/status`.
fn is_ignored(signal: Signal, status: &str) -> bool {
    let mask = proc::line(status, "SigIgn").and_then(|digits| u64::from_str_radix(digits, 16).ok());
    mask.unwrap_or(0) & (1 << (signal as i32 - 1)) != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ignored_signal_is_left_alone() {
        assert!(is_ignored(Signal::SIGHUP, "Name:\tweft\nSigIgn:\t0000000000001001\n"));
        assert!(!is_ignored(Signal::SIGHUP, "SigIgn:\t0000000000001000\n") && !is_ignored(Signal::SIGHUP, ""));
    }
}
