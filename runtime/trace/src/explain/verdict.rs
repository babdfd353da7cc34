//! The first lines of a report: what is the matter, in an order in which somebody would look at it,
//! and what to do next.

use super::report::Explanation;
use super::suspect::Suspect;
use super::unfinished::Silent;
use crate::Stage;

/// A place with less than this share of the time is not worth a line.
const WORTH: f64 = 0.1;
/// With operations under way for less than this share of the time a faster file system changes
/// little.
const IDLE: f64 = 0.5;

/// The sentences.
pub(super) fn verdict(explanation: &Explanation) -> Vec<String> {
    let mut sentences: Vec<String> = explanation.silent.iter().map(silent).collect();
    if !explanation.unfinished.is_empty() {
        sentences.push(unfinished(explanation));
    }
    if explanation.operations == 0 {
        let what = if explanation.unfinished.is_empty() { "No operation was under way" } else { "No operation ended" };
        sentences.push(format!("{what} in the {:.2} s that were recorded", explanation.recorded_seconds));
        return sentences;
    }
    let share = explanation.busy_seconds / explanation.recorded_seconds.max(f64::MIN_POSITIVE);
    if share < IDLE {
        sentences.push(format!(
            "Operations were under way for {:.0} % of the time only: for the rest the programs did or waited for something that is not \
             recorded as one, so no more than {:.2} s of {:.2} s can be won here",
            share * 100.0,
            explanation.busy_seconds,
            explanation.recorded_seconds
        ));
    }
    let named = explanation.suspects.iter().filter(|suspect| suspect.share >= WORTH || suspect.blocking_seconds > 0.0);
    for suspect in named.filter(|suspect| suspect.stage != Stage::NoAnswer.name()).take(2) {
        sentences.push(format!("{}. {}", suspect.evidence, of_suspect(suspect)));
    }
    if sentences.is_empty() {
        sentences.push(format!("No place has {:.0} % of the time: nothing stands out", WORTH * 100.0));
    }
    sentences
}

fn silent(silent: &Silent) -> String {
    // Who waits for another one needs no look.
    if silent.behind.is_some() { silent.sentence() } else { format!("{}. {}", silent.sentence(), advice(Stage::NoAnswer)) }
}

fn unfinished(explanation: &Explanation) -> String {
    let all = &explanation.unfinished;
    let longest = &all[0];
    let waits = match &longest.server {
        Some(server) => match &longest.through {
            Some(through) => format!("it waits for {server} (through {through})"),
            None => format!("it waits for {server}"),
        },
        None if longest.inside == longest.operation => "no record says what it waits for".to_string(),
        None => format!("it is in {}", longest.inside),
    };
    let were = if all.len() == 1 { "operation was" } else { "operations were" };
    format!(
        "{} {were} not over when the recording ended; the longest, {} by {}, had run for {:.3} s: {waits}",
        explanation.unfinished_count.max(all.len() as u64),
        longest.operation,
        longest.client,
        longest.seconds
    )
}

fn of_suspect(suspect: &Suspect) -> &'static str {
    Stage::from_name(suspect.stage).map_or("", advice)
}

/// What to look at next.
pub fn advice(stage: Stage) -> &'static str {
    match stage {
        Stage::Client => "Look at: the processor time of the client's process; many small calls cost most here",
        Stage::Peers => "Look at: the processes that come last, and what they did meanwhile; work that is spread more evenly",
        Stage::Kernel => {
            "Look at: the number of calls (larger ones, fewer look-ups), threads of the mount, other programs on its processors"
        }
        Stage::SendQueue => "Look at: requests in flight at once, the size of writes, the bandwidth of the link",
        Stage::Network => {
            "Look at: the link (`weft ping`), and whether both ends get a processor at once; for small requests this is waking the other process"
        }
        Stage::ServerQueue => "Look at: what the server did meanwhile; more servers, or work that is spread over those there are",
        Stage::Cpu => "Look at: a profile of the server (`perf`), and more servers for this load",
        Stage::Lock => {
            "Look at: who changes the same directory or file at the same time; separate directories, or a server that another waits for"
        }
        Stage::Journal => "Look at: the disk of the journal; `batch` instead of `sync`, or a faster device for the state",
        Stage::DiskNoSeek => "Look at: the bandwidth of the disk; more data servers, or fewer bytes",
        Stage::DiskNear | Stage::DiskFar => {
            "Look at: the order of accesses; larger or sorted requests, a cache layer, a device without seeks"
        }
        Stage::Retry => "Look at: why requests were refused or lost (`weft status`, logs of the servers)",
        Stage::Processor => "Look at: what else runs on these processors (`top`, limits of its control group), or give the process others",
        Stage::NoAnswer => "Look at: the process and the machine of this server (`weft status`, its log, its disk)",
        Stage::Unseen => "Record what works there too: the server, or below a program of MPI its file system",
    }
}
