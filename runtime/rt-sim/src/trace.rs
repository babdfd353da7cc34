//! What happened: a hash over every event, and on demand a line for people.

use std::collections::VecDeque;
use std::fmt;

use weft_base::Nanos;

use crate::random::mix;

/// Receives trace lines.
pub(crate) type Sink = Box<dyn FnMut(&str)>;

/// The record of a run.
#[derive(Default)]
pub(crate) struct Trace {
    hash: u64,
    keep: usize,
    kept: VecDeque<String>,
    sink: Option<Sink>,
}

impl Trace {
    /// Mixes a word into the hash. The order matters.
    pub(crate) fn mix(&mut self, word: u64) {
        self.hash = mix(self.hash.rotate_left(5) ^ word);
    }

    /// The hash of everything so far.
    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    /// True if somebody reads lines: only then are they formatted.
    pub(crate) fn is_on(&self) -> bool {
        self.keep > 0 || self.sink.is_some()
    }

    pub(crate) fn line(&mut self, now: u64, text: fmt::Arguments<'_>) {
        if !self.is_on() {
            return;
        }
        let line = format!("{:?} {text}", Nanos(now));
        if let Some(sink) = &mut self.sink {
            sink(&line);
        }
        if self.keep > 0 {
            if self.kept.len() == self.keep {
                self.kept.pop_front();
            }
            self.kept.push_back(line);
        }
    }

    pub(crate) fn keep(&mut self, lines: usize) {
        self.keep = lines;
        self.kept.clear();
    }

    pub(crate) fn set_sink(&mut self, sink: Sink) {
        self.sink = Some(sink);
    }

    pub(crate) fn kept(&self) -> Vec<String> {
        self.kept.iter().cloned().collect()
    }
}
