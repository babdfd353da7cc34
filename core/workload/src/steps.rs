//! Steps of a workload.

use serde::{Deserialize, Serialize};

use crate::Commands;

/// A timed (or preparing) piece of work that all clients do at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WorkStep {
    /// Makes all files, writes them if they have a size, closes them. Counts files.
    Create,
    /// Asks for the attributes of every file. Counts files.
    Stat,
    /// Lists the directories. Counts entries.
    Readdir,
    /// Makes the files and writes them call by call. Counts calls.
    Write,
    /// Reads the files call by call and checks that each block is the one that was written. Counts
    /// calls.
    Read,
    /// Removes all files. Counts files.
    Remove,
    /// Reads all files as a whole, in a drawn order, many of them in each call, and checks that the
    /// first block is the one that was written (client library only). Counts files.
    ReadMany,
}

impl WorkStep {
    /// All, with their names in plans and results.
    pub const ALL: [(&'static str, WorkStep); 7] = [
        ("create", WorkStep::Create),
        ("stat", WorkStep::Stat),
        ("readdir", WorkStep::Readdir),
        ("write", WorkStep::Write),
        ("read", WorkStep::Read),
        ("remove", WorkStep::Remove),
        ("read-many", WorkStep::ReadMany),
    ];

    /// Its name in results.
    pub fn name(self) -> &'static str {
        WorkStep::ALL[self as usize].0
    }

    /// True if it moves file data in blocks, so that MiB/s say more than operations.
    pub fn is_stream(self) -> bool {
        matches!(self, WorkStep::Write | WorkStep::Read)
    }
}

/// What is done, in which order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Steps {
    /// Said before the name of each step in results; `split` stands for it.
    pub prefix: String,
    /// Done once before all repetitions, not timed.
    pub before: Vec<WorkStep>,
    /// Done in each repetition; told in results if `true`.
    pub cycle: Vec<(WorkStep, bool)>,
    /// Done once after them.
    pub after: Vec<WorkStep>,
    /// Commands that are done instead.
    pub commands: Option<Commands>,
}

impl Steps {
    /// Measures one step: what it needs is made before it, and nothing is left behind.
    pub fn of(step: WorkStep) -> Steps {
        use WorkStep::{Create, Read, ReadMany, Readdir, Remove, Stat, Write};
        match step {
            Create | Write => Steps { cycle: vec![(step, true), (Remove, false)], ..Steps::default() },
            Remove => Steps { cycle: vec![(Create, false), (Remove, true)], ..Steps::default() },
            Stat | Readdir | ReadMany => Steps { before: vec![Create], cycle: vec![(step, true)], after: vec![Remove], ..Steps::default() },
            Read => Steps { before: vec![Write], cycle: vec![(Read, true)], after: vec![Remove], ..Steps::default() },
        }
    }

    /// Measures each of these in each repetition.
    pub fn each(steps: &[WorkStep]) -> Steps {
        Steps { cycle: steps.iter().map(|step| (*step, true)).collect(), ..Steps::default() }
    }

    /// The same under other names in results.
    pub fn named(self, prefix: &str) -> Steps {
        Steps { prefix: prefix.to_string(), ..self }
    }

    /// Name of a step in results.
    pub fn phase(&self, step: WorkStep) -> String {
        match self.prefix.as_str() {
            "split" => "split".to_string(),
            prefix => format!("{prefix}{}", step.name()),
        }
    }
}
