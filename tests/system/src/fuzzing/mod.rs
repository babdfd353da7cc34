//! Bytes that no honest peer and no healthy disk gives. One function for each reader of bytes
//! ([`TARGETS`]): the fuzzer of `fuzz/` drives it with what it finds, and an ordinary test with the
//! committed corpus and with deterministic damage ([`Mutator`]) to valid [`samples`].
//!
//! A target panics if a reader does what it must not: crash, accept what it would write
//! differently, or give more than it was given.

mod mutate;
pub mod samples;
mod stored;
mod targets;

use std::path::PathBuf;

pub use mutate::Mutator;

/// One reader of bytes.
#[derive(Clone, Copy)]
pub struct Target {
    /// Its name: of the fuzz target and of the folder of its corpus.
    pub name: &'static str,
    /// Reads any bytes.
    pub run: fn(&[u8]),
    /// Valid inputs, by name.
    pub valid: fn() -> Vec<(String, Vec<u8>)>,
}

/// Every reader of bytes of strangers.
pub const TARGETS: [Target; 8] = [
    Target { name: "frame", run: targets::frame, valid: samples::frames },
    Target { name: "request", run: targets::request, valid: requests_with_number },
    Target { name: "reply", run: targets::reply, valid: samples::replies_with_number },
    Target { name: "handshake", run: targets::handshake, valid: samples::handshakes },
    Target { name: "journal", run: targets::journal, valid: stored::segments },
    Target { name: "checkpoint", run: targets::checkpoint, valid: stored::checkpoints },
    Target { name: "record", run: targets::record, valid: stored::records },
    Target { name: "inspect", run: targets::inspect, valid: stored::files },
];

/// Damaged inputs that are committed for each target beside the valid ones.
const DAMAGED: u64 = 24;

impl Target {
    /// The folder of its corpus in the source tree.
    pub fn corpus_dir(&self) -> PathBuf {
        [env!("CARGO_MANIFEST_DIR"), "../../fuzz/corpus", self.name].iter().collect()
    }

    /// What the committed corpus holds: the valid inputs, and some with damage.
    pub fn corpus(&self) -> Vec<(String, Vec<u8>)> {
        let valid = (self.valid)();
        let mut corpus: Vec<_> = valid.iter().map(|(name, bytes)| (format!("valid-{name}"), bytes.clone())).collect();
        for number in 0..DAMAGED {
            let (name, bytes) = &valid[number as usize % valid.len()];
            corpus.push((format!("damaged-{number:02}-{name}"), Mutator::new(number).damage(bytes)));
        }
        corpus
    }
}

/// Runs the target of this name.
pub fn run(name: &str, bytes: &[u8]) {
    let target = TARGETS.iter().find(|target| target.name == name).unwrap_or_else(|| panic!("there is no target {name}"));
    (target.run)(bytes);
}

/// The bodies of [`samples::requests`] behind the number of the operation.
fn requests_with_number() -> Vec<(String, Vec<u8>)> {
    samples::requests(&samples::Subject::fixed()).iter().map(|request| samples::with_number(request.op(), &request.encode())).collect()
}
