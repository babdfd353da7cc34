//! The first lines of a report: what limits, by how much of the time on the wall, and what to do,
//! in an order in which somebody would look at it.

use weft_base::{ServerId, Status};

use super::finding::{Cause, Finding, Known, MOST, stands_out, work_at};
use super::limited::KeptBack;
use super::report::Explanation;
use super::suspect::{Named, Place, Suspect};
use super::unfinished::SILENT_NS;
use super::{programs, signs};
use crate::Stage;

/// A place with less than this share of the time is not worth a line.
const WORTH: f64 = 0.1;
/// A place that does not stand out from its like limits from this share of the time on the wall on.
const MUCH: f64 = 0.3;
/// Others with this part of it have far less.
const FAR_LESS: f64 = 0.67;
/// A part of this size is little.
const LITTLE: f64 = 0.2;
/// With operations under way for less than this share of the time a faster file system changes
/// little.
const IDLE: f64 = 0.5;
/// Messages within one room that take longer in the median, in microseconds, are slow.
const SLOW_LINK_US: f64 = 1_000.0;
const OF_LOCKS: &str = "Do: hold locks (`flock`, `fcntl`) for a shorter time, or lock ranges that do not overlap; the file system grants them at \
                        once when they are free";

impl Explanation {
    /// Processes that answered no command at the end of the recording, and may have no records:
    /// said first, if nothing says it already.
    pub fn note_silent(&mut self, names: &[String]) {
        let is_told =
            |told: &[Finding], name: &str| told.iter().any(|one| one.cause == Cause::NoAnswer && one.place.as_deref() == Some(name));
        for name in names.iter().rev().filter(|name| !is_told(&self.verdict, name)).collect::<Vec<_>>() {
            let sentence = format!("{name} did not answer when the recording ended: whoever wants something of it waits");
            self.verdict.insert(0, Finding::new(Cause::NoAnswer, 1.0, sentence, advice(Stage::NoAnswer)).at(Stage::NoAnswer, name));
        }
    }
}

/// The verdicts, the most important one first.
pub(super) fn verdicts(explanation: &Explanation, known: &Known<'_>) -> Vec<Finding> {
    let wall = &explanation.wall;
    let mut limited = limited(explanation, known);
    let mut found: Vec<Finding> = limited.extract_if(.., |one| one.share >= MUCH).collect();
    found.extend(stopped(explanation, known));
    found.extend(silent(explanation, known));
    found.extend(refusals(explanation, known));
    // Something is always under way when a recording ends.
    let is_long = explanation.unfinished.first().is_some_and(|longest| longest.seconds * 1e9 >= SILENT_NS as f64);
    let mut open = (is_long || explanation.operations == 0 && !explanation.unfinished.is_empty()).then(|| unfinished(explanation));
    if explanation.operations == 0 {
        let what = if explanation.unfinished.is_empty() { "No operation was under way" } else { "No operation ended" };
        found.extend(open);
        found.extend(limited);
        found.extend(without_processor(explanation, known));
        // Servers that work are no sign of rest.
        let of_whom = if known.analysis.uncalled.0 > 0 { " of those who were recorded" } else { "" };
        let sentence = format!("{what}{of_whom} in the {:.2} s that were recorded", wall.recorded_seconds);
        found.push(Finding::new(Cause::NoOperation, 1.0, sentence, ""));
        return found;
    }
    let idle = 1.0 - wall.share(wall.busy_seconds);
    found.extend(limited);
    if idle > IDLE {
        found.extend(without_processor(explanation, known));
        let sentence = format!(
            "Operations were under way for {:.0} % of the time only: for the rest the programs did or waited for something that is not \
             recorded as one, so no more than {:.2} s of {:.2} s can be won here",
            (1.0 - idle) * 100.0,
            wall.busy_seconds,
            wall.recorded_seconds
        );
        found.push(Finding::new(Cause::Program, idle, sentence, "Look at: a profile of the programs (`perf`), and what they wait for"));
    }
    let is_worth = |(named, _): &(&Named, &f64)| named.suspect.share >= WORTH || named.suspect.blocking_seconds > 0.0;
    let named: Vec<(&Named, f64)> =
        known.named.iter().zip(&known.waits).filter(is_worth).map(|(named, s)| (named, wall.share(*s))).collect();
    let mut places: Vec<Finding> = named.iter().take(2).map(|(named, share)| of_place(explanation, known, named, *share)).collect();
    // Nothing is wrong at a place that only has the most time, nor if a process waits for a
    // processor as others do, or little: how the programs ask says more.
    let limit = programs::limit(wall, known);
    let is_usual = |first: &Finding| match (first.cause, named.first()) {
        (Cause::Processor, Some((named, share))) => is_as_others(&named.suspect) || *share < MUCH && !stands_out(&named.suspect),
        (cause, _) => cause == Cause::Place,
    };
    if limit.is_some() || places.first().is_none_or(is_usual) {
        let crowd = programs::crowd(wall, known);
        let of_programs = [limit, crowd, programs::small_pieces(wall, explanation.seconds, known), programs::few(wall, known)];
        found.extend(of_programs.into_iter().flatten().take(2));
    }
    // A server that answers others is only slow: what is slow there says more than that it is. So
    // does a disk that is slow for longer than its server was silent.
    let is_why = |place: &Finding, silent: &super::Silent| {
        let silence = || found.iter().find(|one| one.stage == Some(Stage::NoAnswer.name()) && one.place == place.place);
        let is_more = place.cause == Cause::Disk && silence().is_some_and(|silence| place.share > silence.share);
        place.place.as_ref() == Some(&silent.server) && is_reason(place.cause) && place.share >= MUCH && (silent.answers_others || is_more)
    };
    let slow = explanation.silent.iter().filter(|silent| silent.behind.is_none());
    let why = slow.filter_map(|silent| places.iter().position(|place| is_why(place, silent))).min();
    if let Some(why) = why {
        found.insert(0, places.remove(why));
    }
    // What is slow for longer than the oldest operation waits is why that waits.
    let is_more = |open: &Finding| places.first().is_some_and(|first| is_reason(first.cause) && first.share > open.share);
    if open.as_ref().is_some_and(is_more) {
        found.push(places.remove(0));
    }
    if let Some(open) = open.take() {
        let after = found.iter().take_while(|one| is_first(one.cause)).count();
        found.insert(after, open);
    }
    found.append(&mut places);
    if found.is_empty() {
        let sentence = format!("No place has {:.0} % of the time: nothing stands out", WORTH * 100.0);
        found.push(Finding::new(Cause::Nothing, 0.0, sentence, ""));
    }
    found
}

/// Before anything else.
fn is_first(cause: Cause) -> bool {
    is_reason(cause) || matches!(cause, Cause::NoAnswer | Cause::DiskFull | Cause::DiskErrors)
}

fn is_reason(cause: Cause) -> bool {
    matches!(cause, Cause::Disk | Cause::Processor | Cause::Link)
}

fn silent(explanation: &Explanation, known: &Known<'_>) -> Vec<Finding> {
    let of = |silent: &super::Silent| {
        let share = explanation.wall.share(known.analysis.silence(&silent.server, known.window.0, known.window.1));
        // Who waits for another one needs no look.
        let advice = if silent.behind.is_some() { "" } else { advice(Stage::NoAnswer) };
        Finding::new(Cause::NoAnswer, share, silent.sentence(), advice).at(Stage::NoAnswer, &silent.server)
    };
    explanation.silent.iter().map(of).collect()
}

/// Processes that a limit kept from running, the longest first.
fn limited(explanation: &Explanation, known: &Known<'_>) -> Vec<Finding> {
    let of = |kept: KeptBack| {
        let (name, share) = (&known.analysis.merged.nodes[kept.node].name, explanation.wall.share(kept.seconds).min(1.0));
        let sentence = format!(
            "{name} may have {:.0} % of a processor: the limit of its control group kept it from running for {:.2} s of {:.2} s",
            kept.part * 100.0,
            kept.seconds,
            explanation.wall.recorded_seconds
        );
        let advice =
            "Do: raise the limit of its control group (`cpu.max`; the processors of a container, unit or job), or run it elsewhere";
        Finding::new(Cause::Processor, share, sentence, advice).at(Stage::Processor, name)
    };
    kept_back(explanation, known).map(of).take(2).collect()
}

/// Those of which that is worth a line.
fn kept_back(explanation: &Explanation, known: &Known<'_>) -> impl Iterator<Item = KeptBack> {
    let wall = &explanation.wall;
    known.analysis.limited.between(known.recorded()).into_iter().filter(|kept| wall.share(kept.seconds) >= WORTH)
}

/// Processes that stood still for a part of the recording, beside servers that owe answers: those
/// say it themselves.
fn stopped(explanation: &Explanation, known: &Known<'_>) -> Vec<Finding> {
    let of = |(node, seconds): (usize, f64)| {
        let (name, share) = (&known.analysis.merged.nodes[node].name, explanation.wall.share(seconds));
        let is_limited = kept_back(explanation, known).any(|kept| kept.node == node);
        let is_told = is_limited || explanation.silent.iter().any(|silent| silent.server == *name);
        (share >= WORTH && !is_told).then(|| {
            let advice = "Look at: what has stopped this process (a signal, a debugger, a frozen control group, a pause of its machine)";
            let sentence =
                format!("{name} stood still for {seconds:.2} s: nothing of this process ran, and whoever wanted something of it waited");
            Finding::new(Cause::NoAnswer, share, sentence, advice).at(Stage::NoAnswer, name)
        })
    };
    known.analysis.stopped.between(known.recorded()).filter_map(of).collect()
}

/// A process that had no processor for most of the time, unlike all others: what it did not get to
/// is no operation yet, such as requests of the kernel that no thread of a mount has taken.
fn without_processor(explanation: &Explanation, known: &Known<'_>) -> Option<Finding> {
    let mut shares: Vec<(f64, usize)> = known.analysis.starved.shares(known.recorded()).zip(0..).collect();
    shares.sort_by(|a, b| b.0.total_cmp(&a.0));
    let ((share, node), next) = (*shares.first()?, shares.get(1).map_or(0.0, |next| next.0));
    let is_told = kept_back(explanation, known).any(|kept| kept.node == node);
    (!is_told && share >= MOST && next <= FAR_LESS * share).then(|| {
        let name = &known.analysis.merged.nodes[node].name;
        let sentence = format!(
            "{name} waits for a processor: a thread of it was ready and had none for {:.0} % of the time ({:.2} s of {:.2} s); what it has not \
             begun with is not recorded",
            share * 100.0,
            share * explanation.wall.recorded_seconds,
            explanation.wall.recorded_seconds
        );
        Finding::new(Cause::Processor, share.min(1.0), sentence, advice(Stage::Processor)).at(Stage::Processor, name)
    })
}

fn refusals(explanation: &Explanation, known: &Known<'_>) -> Vec<Finding> {
    let of = |((server, status), count): ((u16, u16), u64)| {
        let name = known.analysis.server_name(server);
        let times = if count == 1 { "1 request".to_string() } else { format!("{count} requests") };
        let (cause, what, advice) = if status == Status::NoSpace.code() {
            let advice = "Do: make room there (`weft df` shows each server), or add a data server (`weft up`)";
            (Cause::DiskFull, format!("The disk of {name} is full: it refused {times}"), advice)
        } else {
            let advice = "Do: look at the log of this server and of its kernel, and replace the disk";
            (Cause::DiskErrors, format!("The disk of {name} fails: {times} ended with an input/output error"), advice)
        };
        // Refusals take no time; they concern all that was asked.
        let share = explanation.wall.share(explanation.wall.busy_seconds);
        Finding::new(cause, share, what, advice).at(Stage::DiskNoSeek, &name)
    };
    known.analysis.refusals(known.window.0, known.window.1).into_iter().map(of).collect()
}

fn unfinished(explanation: &Explanation) -> Finding {
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
    let share = explanation.wall.share(longest.seconds);
    if let (true, Some(server)) = (longest.for_lock, &longest.server) {
        let sentence = format!(
            "Programs wait for locks that others hold, at {server}: {} for one when the recording ended, the longest for {:.3} s",
            if all.len() == 1 { "1 waited".to_string() } else { format!("{} waited", all.len()) },
            longest.seconds
        );
        return Finding::new(Cause::ApplicationLock, share, sentence, OF_LOCKS).at(Stage::Lock, server);
    }
    if let (true, Some(server)) = (longest.inside == "client.pause", &longest.server) {
        let sentence = format!(
            "{server} cannot be reached: {} by {} has asked it again and again for {:.3} s",
            longest.operation, longest.client, longest.seconds
        );
        return Finding::new(Cause::NoAnswer, share, sentence, advice(Stage::NoAnswer)).at(Stage::Retry, server);
    }
    let were = if all.len() == 1 { "operation was" } else { "operations were" };
    let sentence = format!(
        "{} {were} not over when the recording ended; the longest, {} by {}, had run for {:.3} s: {waits}",
        explanation.unfinished_count.max(all.len() as u64),
        longest.operation,
        longest.client,
        longest.seconds
    );
    Finding::new(Cause::Unfinished, share, sentence, "")
}

/// What is the matter at a place, and how much of the time on the wall waits there.
fn of_place(explanation: &Explanation, known: &Known<'_>, named: &Named, share: f64) -> Finding {
    let suspect = &named.suspect;
    let place = &suspect.place;
    let (cause, what, advice) = cause(known, named, share);
    let seconds = share * explanation.wall.recorded_seconds;
    let sentence = format!(
        "{what}: for {:.0} % of the time on the wall ({seconds:.2} s of {:.2} s) at least one operation waited for this. {}",
        share * 100.0,
        explanation.wall.recorded_seconds,
        suspect.evidence
    );
    Finding::new(cause, share, sentence, advice).at(named.stage, place)
}

fn cause(known: &Known<'_>, named: &Named, share: f64) -> (Cause, String, &'static str) {
    let (suspect, stage) = (&named.suspect, named.stage);
    let place = &suspect.place;
    let usual = advice(stage);
    let stands_out = stands_out(suspect);
    let server = match named.place {
        Place::TracedNode(node) => known.analysis.merged.nodes[node].server.map(ServerId),
        Place::Server(server) => Some(ServerId(server)),
        Place::Link(..) => None,
    };
    let is_much = share >= MUCH || stands_out;
    match (stage, server) {
        _ if !is_much && stage != Stage::Processor => (Cause::Place, format!("Much time goes to: {} at {place}", stage.title()), usual),
        (Stage::Processor, _) => (Cause::Processor, format!("{place} waits for a processor that others use"), usual),
        (Stage::Journal, _) if suspect.blocked_seconds > MOST * suspect.seconds => {
            (Cause::Place, format!("The journal of {place} waits for other work of this server"), advice(Stage::Cpu))
        }
        (Stage::DiskNoSeek | Stage::DiskNear | Stage::DiskFar, _) => (Cause::Disk, format!("The disk of {place} limits"), usual),
        (Stage::Journal, _) => (Cause::Disk, format!("The disk with the journal of {place} limits"), usual),
        (Stage::Network | Stage::SendQueue, _)
            if stands_out || suspect.p50_us >= SLOW_LINK_US || matches!(named.place, Place::Link(..)) =>
        {
            (Cause::Link, format!("The link of {place} is slow"), usual)
        }
        (Stage::Lock, Some(_)) if signs::asks_for_lock(named.event) => {
            (Cause::ApplicationLock, format!("Programs wait for locks that others hold, at {place}"), OF_LOCKS)
        }
        (Stage::Lock, Some(_)) if signs::changes_names(named.event) => (Cause::HotDirectory, of_directory(known, server, place), usual),
        (Stage::ServerQueue | Stage::Cpu, Some(server)) if has_most_work(known, server) => {
            let advice = "Do: spread the work over directories (each new directory has a server of its own choice), split a large one with \
                          `weft split`, or stripe files over more servers";
            (Cause::HotServer, of_directory(known, Some(server), place), advice)
        }
        _ => (Cause::Place, format!("Much time goes to: {} at {place}", stage.title()), usual),
    }
}

/// It takes little more time than its like.
fn is_as_others(suspect: &Suspect) -> bool {
    suspect.excess_seconds < LITTLE * suspect.seconds
}

/// The server with its directory, if that has most of the changes.
fn of_directory(known: &Known<'_>, server: Option<ServerId>, place: &str) -> String {
    match server.and_then(|server| signs::directory(known.operations, server)) {
        Some(directory) => format!(
            "{place} has most of the work, and {:.0} % of what it is asked about names is in one directory ({})",
            directory.share * 100.0,
            directory.handle
        ),
        None => format!("{place} has most of the work, and others of its kind have little"),
    }
}

/// Of several servers of its kind one has most of the time that operations spend at them.
fn has_most_work(known: &Known<'_>, server: ServerId) -> bool {
    let nodes = &known.analysis.merged.nodes;
    let is_alike = |number: &u16| ServerId(*number).role() == server.role();
    let alike = nodes.iter().filter_map(|node| node.server.filter(is_alike).map(|number| (node.name.as_str(), ServerId(number).index())));
    // One that had nothing to do may have no records; numbers begin with 0.
    let count = alike.clone().map(|(_, index)| index + 1).max().unwrap_or(0);
    if count < 2 {
        return false;
    }
    let own = work_at(known, &known.analysis.server_name(server.0));
    let all: f64 = alike.map(|(name, _)| work_at(known, name)).sum();
    // Twice its part of the work, if there are many; most of it, if there are two.
    own >= all * (2.0 / count as f64).clamp(MOST, 0.7)
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
