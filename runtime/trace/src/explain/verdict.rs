//! The first lines of a report: what limits, by how much of the time on the wall, and what to do,
//! in an order in which somebody would look at it.

use serde::Serialize;
use weft_base::{ServerId, ServerRole, Status};

use super::report::Explanation;
use super::signs::{self, Pieces};
use super::suspect::{Named, Place, Suspect};
use super::unfinished::SILENT_NS;
use super::wall::is_work;
use super::{Analysis, ClientOperation};
use crate::Stage;

/// A place with less than this share of the time is not worth a line.
const WORTH: f64 = 0.1;
/// A place that does not stand out from its like limits from this share of the time on the wall on.
const MUCH: f64 = 0.3;
/// With operations under way for less than this share of the time a faster file system changes
/// little.
const IDLE: f64 = 0.5;
/// Fewer operations at once leave servers without work between two requests.
const FEW: f64 = 1.5;
/// A part of this size is most.
const MOST: f64 = 0.5;
/// Pieces below this size cost more than their bytes.
const SMALL_BYTES: u64 = 64 << 10;
/// Fewer reads and writes say nothing about pieces.
const PIECES_MIN: u64 = 100;
/// Messages within one room that take longer in the median, in microseconds, are slow.
const SLOW_LINK_US: f64 = 1_000.0;
/// Places that all have this share of the time on the wall cannot do much more.
const FULL: f64 = 0.8;

const OF_LOCKS: &str = "Do: hold locks (`flock`, `fcntl`) for a shorter time, or lock ranges that do not overlap; the file system grants them at \
                        once when they are free";

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
    fn new(cause: Cause, share: f64, sentence: String, advice: &str) -> Finding {
        Finding { cause, stage: None, place: None, share, sentence, advice: advice.to_string() }
    }

    /// All of it in one piece, with a full stop.
    pub fn said(&self) -> String {
        let parts = [&self.sentence, &self.advice].into_iter().filter(|part| !part.is_empty());
        parts.map(|part| part.trim_end_matches('.').to_string() + ".").collect::<Vec<_>>().join(" ")
    }

    fn at(self, stage: Stage, place: &str) -> Finding {
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

/// The verdicts, the most important one first.
pub(super) fn verdicts(explanation: &Explanation, known: &Known<'_>) -> Vec<Finding> {
    let wall = &explanation.wall;
    let mut found: Vec<Finding> = silent(explanation, known);
    found.extend(refusals(explanation, known));
    // Something is always under way when a recording ends.
    let is_long = explanation.unfinished.first().is_some_and(|longest| longest.seconds * 1e9 >= SILENT_NS as f64);
    let mut open = (is_long || explanation.operations == 0 && !explanation.unfinished.is_empty()).then(|| unfinished(explanation));
    if explanation.operations == 0 {
        let what = if explanation.unfinished.is_empty() { "No operation was under way" } else { "No operation ended" };
        found.extend(open);
        let sentence = format!("{what} in the {:.2} s that were recorded", wall.recorded_seconds);
        found.push(Finding::new(Cause::NoOperation, 1.0, sentence, ""));
        return found;
    }
    let idle = 1.0 - wall.share(wall.busy_seconds);
    if idle > IDLE {
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
    // Nothing is wrong at a place that only has the most time: how the programs ask says more.
    let limit = limit(explanation, known);
    if limit.is_some() || places.first().is_none_or(|first| matches!(first.cause, Cause::Place)) {
        let of_programs = [limit, small_pieces(explanation, known), few(explanation, known)];
        found.extend(of_programs.into_iter().flatten().take(2));
    }
    // A server that answers others is only slow: what is slow there says more than that it is.
    let slow = explanation.silent.iter().filter(|silent| silent.answers_others && silent.behind.is_none());
    let is_why = |place: &Finding, server: &str| place.place.as_deref() == Some(server) && is_reason(place.cause) && place.share >= MUCH;
    let why = slow.filter_map(|silent| places.iter().position(|place| is_why(place, &silent.server))).min();
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

/// It takes twice the time of its like, or more.
fn stands_out(suspect: &Suspect) -> bool {
    suspect.excess_seconds >= MOST * suspect.seconds
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

/// All servers of a kind are busy for nearly all of the time, with several operations at once.
fn limit(explanation: &Explanation, known: &Known<'_>) -> Option<Finding> {
    let first = known.named.first().filter(|first| is_work(first.stage) && !stands_out(&first.suspect))?;
    let Place::TracedNode(node) = first.place else { return None };
    let number = |node: usize| known.analysis.merged.nodes[node].server.map(ServerId);
    let role = number(node)?.role();
    let alike =
        known.work.iter().filter_map(|(node, seconds)| Some((number(*node)?, *seconds))).filter(|(server, _)| server.role() == role);
    let (indexes, shares): (Vec<usize>, Vec<f64>) = alike.map(|(server, s)| (server.index(), explanation.wall.share(s))).unzip();
    let least = shares.iter().copied().fold(1.0, f64::min);
    let are_all = indexes.iter().max().is_some_and(|last| *last < indexes.len());
    (are_all && indexes.len() > 1 && least >= FULL && explanation.wall.at_once >= FEW).then(|| {
        let kind = if role == ServerRole::Data { "data" } else { "metadata" };
        let sentence = format!(
            "Nothing is wrong: all {} {kind} servers are busy alike, each for at least {:.0} % of the time on the wall, most of all with {}: \
             this is near the limit of this hardware",
            indexes.len(),
            least * 100.0,
            first.stage.title()
        );
        Finding::new(Cause::Limit, least, sentence, "Do: add servers of this kind (`weft up`), or faster ones")
    })
}

fn small_pieces(explanation: &Explanation, known: &Known<'_>) -> Option<Finding> {
    let Pieces { count, bytes, dur_ns } = signs::pieces(known.operations);
    let part = dur_ns as f64 / 1e9 / explanation.seconds.max(f64::MIN_POSITIVE);
    (count >= PIECES_MIN && bytes / count < SMALL_BYTES && part > MOST).then(|| {
        let share = explanation.wall.share(explanation.wall.busy_seconds) * part;
        let sentence = format!(
            "Small pieces: {count} reads and writes of {:.1} KiB on the mean take {:.0} % of the operations' time",
            bytes as f64 / count as f64 / 1024.0,
            part * 100.0
        );
        let advice = "Do: read and write more at once (buffers of 1 MiB), or hand many pieces over together (`readv`, collective MPI-IO)";
        Finding::new(Cause::SmallPieces, share, sentence, advice)
    })
}

fn few(explanation: &Explanation, known: &Known<'_>) -> Option<Finding> {
    let wall = &explanation.wall;
    let servers = known.analysis.merged.nodes.iter().filter(|node| node.server.is_some());
    let most = servers.map(|node| work_at(known, &node.name)).fold(0.0, f64::max) / wall.busy_seconds.max(f64::MIN_POSITIVE);
    (wall.at_once < FEW && most < MOST).then(|| {
        let sentence = format!(
            "Too few requests in flight: {:.1} operations were under way at once, and no server worked on them for more than {:.0} % of that \
             time",
            wall.at_once,
            most * 100.0
        );
        let advice = "Do: ask for more at once (more processes or threads, asynchronous calls): the servers have room";
        Finding::new(Cause::FewInFlight, wall.share(wall.busy_seconds) * (1.0 - most), sentence, advice)
    })
}

/// Seconds that operations spend at work of this server.
fn work_at(known: &Known<'_>, name: &str) -> f64 {
    let here = known.named.iter().filter(|named| is_work(named.stage) && named.suspect.place == name);
    here.map(|named| named.suspect.seconds).sum()
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
