//! Work that commands of the shell do.

use serde::{Deserialize, Serialize};

/// Commands, one after the other in each repetition, in an empty directory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Commands {
    /// Run once before all repetitions, for all places.
    pub prepare: Option<String>,
    /// Run after each rest, not timed.
    pub before: Option<String>,
    /// Variables of their environment.
    pub values: Vec<(String, String)>,
    /// What is timed.
    pub timed: Vec<TimedCommand>,
}

/// A command that is timed from its start to its end, unless it prints a rate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimedCommand {
    /// Its name in results.
    pub name: String,
    /// What the shell runs.
    pub run: String,
    /// Rest before it.
    pub rests: bool,
    /// Operations, or MiB, that it does.
    pub operations: u64,
    /// What it prints about its rate.
    pub rate: Option<Rate>,
}

/// Where a command prints its rate: the number behind a text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rate {
    /// The text.
    pub behind: String,
    /// The rate is of MiB, otherwise of operations.
    pub is_mib: bool,
}

impl Rate {
    /// The rate in an output, if it is there and a rate.
    pub fn find(&self, output: &str) -> Option<f64> {
        let (_, behind) = output.split_once(&self.behind)?;
        let word = behind.trim_start_matches([':', '=', ' ', '\t']).split_whitespace().next()?;
        word.parse().ok().filter(|rate: &f64| rate.is_finite() && *rate > 0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_stands_behind_its_text() {
        let rate = Rate { behind: "File creation".into(), is_mib: false };
        assert_eq!(rate.find("SUMMARY\n   File creation             :   12345.6   1.0\n"), Some(12345.6));
        assert_eq!(Rate { behind: "Max Write:".into(), is_mib: true }.find("Max Write: 812.5 MiB/sec"), Some(812.5));
        for nothing in ["", "File creation", "File creation : none", "File creation: 0", "File creation: inf", "File creation: -1"] {
            assert_eq!(rate.find(nothing), None, "{nothing}");
        }
    }
}
