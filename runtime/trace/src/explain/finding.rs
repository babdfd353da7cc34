//! What limits, as it is said, and what is known when it is looked for.

use serde::Serialize;

use super::suspect::{Named, Suspect};
use super::wall::is_work;
use super::{Analysis, ClientOperation};
use crate::Stage;

/// A part of this size is most.
pub(super) const MOST: f64 = 0.5;

/// What kind of thing limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// A server does not answer.
    NoAnswer,
    /// A server refused changes because its disk is full.
    DiskFull,
    /// The disk of a server failed.
    DiskErrors,
    /// Operations were not over.
    Unfinished,
    /// Nothing was asked of the file system.
    NoOperation,
    /// The programs did or waited for something else.
    Program,
    /// A process did not get a processor.
    Processor,
    /// A disk is slow, or has much to do.
    Disk,
    /// A way of messages is slow.
    Link,
    /// Programs wait for the locks of others.
    ApplicationLock,
    /// Changes of one directory or file wait for one another.
    HotDirectory,
    /// One server has most of the work of all of its kind.
    HotServer,
    /// Reads or writes are small.
    SmallPieces,
    /// Programs ask for one thing after the other.
    FewInFlight,
    /// Every server of a kind is busy.
    Limit,
    /// A place has much time, for no reason of these.
    Place,
    /// No place has much time.
    Nothing,
}

/// What limits, by how much, and what to do.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// The kind of thing.
    pub cause: Cause,
    /// [`Stage::name`], if it is one stage.
    pub stage: Option<&'static str>,
    /// The node or link.
    pub place: Option<String>,
    /// Share of the recorded time that it concerns, 0 to 1: no more can be won.
    pub share: f64,
    /// For people: what and how much.
    pub sentence: String,
    /// For people: what to do; may be empty.
    pub advice: String,
}

impl Finding {
    pub(super) fn new(cause: Cause, share: f64, sentence: String, advice: &str) -> Finding {
        Finding { cause, stage: None, place: None, share, sentence, advice: advice.to_string() }
    }

    /// All of it in one piece, with a full stop.
    pub fn said(&self) -> String {
        let parts = [&self.sentence, &self.advice].into_iter().filter(|part| !part.is_empty());
        parts.map(|part| part.trim_end_matches('.').to_string() + ".").collect::<Vec<_>>().join(" ")
    }

    pub(super) fn at(self, stage: Stage, place: &str) -> Finding {
        Finding { stage: Some(stage.name()), place: Some(place.to_string()), ..self }
    }
}

/// What is known beside the report.
pub(super) struct Known<'a> {
    pub analysis: &'a Analysis<'a>,
    pub operations: &'a [ClientOperation],
    pub window: (i64, i64),
    /// Places by rank.
    pub named: &'a [Named],
    /// Of each of them, seconds in which at least one operation waited there.
    pub waits: Vec<f64>,
    /// By server (its node), seconds in which at least one operation waited for its work.
    pub work: Vec<(usize, f64)>,
}

impl Known<'_> {
    /// The part of the window in which anything was recorded.
    pub(super) fn recorded(&self) -> (i64, i64) {
        let (first, last) = self.analysis.recorded;
        (self.window.0.max(first), self.window.1.min(last))
    }
}

/// It takes twice the time of its like, or more.
pub(super) fn stands_out(suspect: &Suspect) -> bool {
    suspect.excess_seconds >= MOST * suspect.seconds
}

/// Seconds that operations spend at work of this server.
pub(super) fn work_at(known: &Known<'_>, name: &str) -> f64 {
    let here = known.named.iter().filter(|named| is_work(named.stage) && named.suspect.place == name);
    here.map(|named| named.suspect.seconds).sum()
}
