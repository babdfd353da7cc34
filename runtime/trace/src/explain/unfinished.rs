//! What had not ended when the recording did: operations, and requests that no server has answered.
//! A recording of a server that hangs holds little else.

use std::collections::BTreeMap;

use serde::Serialize;
use weft_wire::Op;

use super::Analysis;
use super::index::{Index, is_call};
use crate::event::CLIENT_PAUSE;
use crate::record::{Body, Span, flags};

/// An operation that was not over when the recording ended.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Unfinished {
    /// The kind of operation.
    pub operation: String,
    /// The client.
    pub client: String,
    /// The object's handle, 0 if not recorded.
    pub object: u64,
    /// How long it had been running.
    pub seconds: f64,
    /// What it was waiting for: the innermost thing that was open, such as `net.call` or
    /// `client.lock`.
    pub inside: String,
    /// The server that it was waiting for at last.
    pub server: Option<String>,
    /// It waits for a lock (`flock`, `fcntl`) that another program holds.
    pub for_lock: bool,
    /// The server that it had asked, and that waits for the other one itself.
    pub through: Option<String>,
}

/// A server that owes answers.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Silent {
    /// Its name.
    pub server: String,
    /// Requests that were given up, or were under way when the recording ended.
    pub requests: u64,
    /// Seconds that they had waited, all together.
    pub seconds: f64,
    /// The longest of them.
    pub longest_seconds: f64,
    /// Seconds since its last answer to anybody, or since it was first asked; until the end of the
    /// recording.
    pub since_seconds: f64,
    /// It had answered something while it was recorded.
    pub has_answered: bool,
    /// It has answered others while the oldest request was waiting.
    pub answers_others: bool,
    /// The server that it waits for itself.
    pub behind: Option<String>,
}

/// Positions and names, before anybody asks about a window.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Open {
    pub start_ns: i64,
    pub end_ns: i64,
    /// The server of the row.
    pub server: Option<u16>,
    pub row: Unfinished,
}

/// A request that nobody has answered.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Unanswered {
    pub server: u16,
    /// The server that asked; `None`: a client.
    pub asker: Option<u16>,
    pub start_ns: i64,
    pub end_ns: i64,
}

/// The operations that were not over.
pub(super) fn open_operations(index: &Index<'_>) -> Vec<Open> {
    let merged = index.merged;
    let server_name = |number: u16| {
        let known = merged.nodes.iter().find(|node| node.server == Some(number));
        known.map_or_else(|| weft_base::ServerId(number).to_string(), |node| node.name.clone())
    };
    let open = |root: &u32| {
        let event = index.event(*root);
        let innermost = innermost(index, *root);
        let inside = index.event(innermost);
        // Between two attempts it still waits for the server of the one before.
        let call = index.children(*root).iter().rev().map(|child| index.event(*child)).find(is_call);
        let asked = [Some(inside.clone()), call].into_iter().flatten().find(is_call).and_then(|call| match &call.record.body {
            Body::Span(span) if call.record.flags & flags::OPEN != 0 => Some((span.peer, asks_for_lock(span))),
            _ => None,
        });
        let (mut server, for_lock) = asked.map_or((None, false), |(server, for_lock)| (Some(server), for_lock));
        // A server that cannot be reached is asked again and again, with pauses.
        let last = index.children(innermost).last().map(|child| index.event(*child));
        let paused = [Some(inside.clone()), last].into_iter().flatten().find(|event| event.record.event == CLIENT_PAUSE);
        let unreachable = paused.and_then(|pause| match &pause.record.body {
            Body::Span(span) if server.is_none() && span.off != 0 => Some((pause.record.event, span.peer)),
            _ => None,
        });
        server = server.or_else(|| unreachable.map(|(_, peer)| peer));
        Open {
            start_ns: event.start_ns,
            end_ns: event.end_ns(),
            server,
            row: Unfinished {
                operation: merged.nodes[event.node].events.name(event.record.event),
                client: merged.nodes[event.node].name.clone(),
                object: index.object(*root),
                seconds: event.dur_ns as f64 / 1e9,
                inside: merged.nodes[inside.node].events.name(unreachable.map_or(inside.record.event, |(event, _)| event)),
                server: server.map(server_name),
                for_lock,
                through: None,
            },
        }
    };
    index.open_roots.iter().map(open).collect()
}

/// The last thing that began inside it and is open, at any depth.
fn innermost(index: &Index<'_>, position: u32) -> u32 {
    let is_open = |child: &&u32| index.event(**child).record.flags & flags::OPEN != 0;
    match index.children(position).iter().filter(is_open).max_by_key(|child| index.start_ns(**child)) {
        Some(child) => innermost(index, *child),
        None => position,
    }
}

/// The requests without an answer. One whose server has a record of it was answered, too late or to
/// nobody.
pub(super) fn unanswered(index: &Index<'_>) -> Vec<Unanswered> {
    let unanswered = |position: u32| {
        let event = index.event(position);
        match &event.record.body {
            Body::Span(span) if index.staged_span(&event).is_none() && !waits_for_lock(span, event.dur_ns) => {
                let asker = index.merged.nodes[event.node].server;
                Some(Unanswered { server: span.peer, asker, start_ns: event.start_ns, end_ns: event.end_ns() })
            }
            _ => None,
        }
    };
    index.open_calls().filter_map(unanswered).collect()
}

/// A request of a program for a lock that others hold: its server answers after this time at the
/// latest (a client gives it up then).
const LOCK_NS: u64 = 3_000_000_000;

/// Such a request waits at a server that is well.
fn waits_for_lock(call: &Span, dur_ns: u64) -> bool {
    asks_for_lock(call) && dur_ns < LOCK_NS
}

fn asks_for_lock(call: &Span) -> bool {
    call.off == u64::from(Op::Lock.code())
}

/// Less than this may be the way of the last requests of a recording.
pub(super) const SILENT_NS: u64 = 250_000_000;

impl Analysis<'_> {
    /// What is said of an operation. A server that it has waited for may wait for another one, also
    /// if it has answered others meanwhile, or this request once.
    pub(super) fn unfinished(&self, open: &Open) -> Unfinished {
        let mut row = open.row.clone();
        let is_long = open.end_ns.abs_diff(open.start_ns) >= SILENT_NS && !row.for_lock;
        if let Some(other) = open.server.filter(|_| is_long).and_then(|server| self.behind(server)) {
            row.through = row.server.replace(self.server_name(other));
        }
        row
    }

    /// The servers that owe answers to requests which began in the window, the longest silence
    /// first.
    pub(super) fn silent(&self, from_ns: i64, to_ns: i64) -> Vec<Silent> {
        let mut servers: BTreeMap<u16, Vec<Unanswered>> = BTreeMap::new();
        for call in self.unanswered.iter().filter(|call| call.start_ns >= from_ns && call.start_ns < to_ns) {
            servers.entry(call.server).or_default().push(*call);
        }
        let silent = |(server, calls): (u16, Vec<Unanswered>)| {
            let first = calls.iter().map(|call| call.start_ns).min()?;
            let longest_ns = calls.iter().map(|call| call.end_ns.abs_diff(call.start_ns)).max()?;
            let last_answer = self.last_answers.get(&server).copied();
            let since = last_answer.unwrap_or(first);
            let since_ns = self.recorded.1.saturating_sub(since).max(0) as u64;
            let sum_ns: u64 = calls.iter().map(|call| call.end_ns.abs_diff(call.start_ns)).sum();
            let answers_others = last_answer.is_some_and(|last| last > first.saturating_add_unsigned(SILENT_NS));
            // One that has answered just now, and has not let anybody wait while it answered
            // others, is only slow.
            (longest_ns >= SILENT_NS && (since_ns >= SILENT_NS || answers_others)).then(|| Silent {
                server: self.server_name(server),
                requests: calls.len() as u64,
                seconds: sum_ns as f64 / 1e9,
                longest_seconds: longest_ns as f64 / 1e9,
                since_seconds: since_ns as f64 / 1e9,
                has_answered: last_answer.is_some(),
                behind: self.behind(server).map(|other| self.server_name(other)),
                answers_others,
            })
        };
        let mut found: Vec<Silent> = servers.into_iter().filter_map(silent).collect();
        found.sort_by(|a, b| a.behind.is_some().cmp(&b.behind.is_some()).then(b.seconds.total_cmp(&a.seconds)));
        found
    }

    /// The server whose answer this one waits for, and so on; `None`: it waits for nobody.
    fn behind(&self, server: u16) -> Option<u16> {
        let mut way = vec![server];
        loop {
            let last = *way.last()?;
            let owes = |call: &&Unanswered| call.asker == Some(last) && call.end_ns.abs_diff(call.start_ns) >= SILENT_NS;
            match self.unanswered.iter().filter(owes).min_by_key(|call| call.start_ns) {
                // Servers that wait for one another in a circle all wait.
                Some(next) if !way.contains(&next.server) => way.push(next.server),
                _ => return (way.len() > 1).then_some(last),
            }
        }
    }
}

impl Silent {
    /// For people.
    pub fn sentence(&self) -> String {
        let Silent { server, requests, longest_seconds: longest, since_seconds: since, .. } = self;
        let many = if *requests == 1 { "1 request waits" } else { "requests wait" };
        let count = if *requests == 1 { String::new() } else { format!("{requests} ") };
        if let Some(other) = &self.behind {
            return format!("{count}{many} for {server}, which itself waits for {other}, the longest for {longest:.2} s");
        }
        if self.answers_others {
            return format!("{count}{many} for {server} without an answer, the longest for {longest:.2} s; it answers others");
        }
        let last = if self.has_answered { "its last answer came" } else { "it was asked first, and has answered nothing," };
        format!("{count}{many} for {server}, no answer since {since:.2} s: {last} so long before the end of the recording")
    }
}
