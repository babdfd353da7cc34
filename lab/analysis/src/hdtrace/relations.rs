//! Relations as causality: a token that was made from one of another process is a request of that
//! process, with what was done for it as the answer of a server; one made from a token of its own
//! process is something inside of it. A state that a trace of the same process tells too is one
//! record.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use weft_base::ServerId;
use weft_hdtrace::{Parent, Relation, RelationHeader, Time};
use weft_trace::event::NET_CALL;
use weft_trace::record::{Body, Span, StagedSpan, TraceRecord, flags};

use super::Told;
use super::events::{Events, Use};
use super::process::Process;
use super::states::lasting;

/// A moment that an entry names, before the time adjustment.
pub fn time(entry: &Relation) -> Time {
    match entry {
        Relation::Create { time, .. } | Relation::Start { time, .. } | Relation::End { time, .. } | Relation::Destroy { time, .. } => *time,
    }
}

/// A token: its file and its number there.
type Token = (usize, u64);
/// Beginning and end in nanoseconds since the earliest time of the project.
type Interval = (u64, u64);

/// A piece of work.
#[derive(Debug, Default)]
struct Work {
    life: Interval,
    parents: Vec<Token>,
    /// Name, interval, and the state around it in this list.
    states: Vec<(String, Interval, Option<usize>)>,
    /// Positions of its records in its process, with their intervals and identities.
    records: Vec<(Interval, u32)>,
}

/// Adds what the relation files say. `of_node` is the process of each.
///
/// # Errors
/// A sentence with the name of the file: an entry names a token that was not created, or ends what
/// was not started.
pub(super) fn put(told: &[Told], of_node: &[usize], processes: &mut [Process], events: &mut Events) -> Result<(), String> {
    let files: Vec<usize> = (0..told.len()).filter(|number| told[*number].relations.is_some()).collect();
    let mut works: BTreeMap<Token, Work> = BTreeMap::new();
    let headers: Vec<(usize, &RelationHeader)> =
        files.iter().filter_map(|file| Some((*file, &told[*file].relations.as_ref()?.1.header))).collect();
    for file in &files {
        let Some((name, relations)) = &told[*file].relations else { continue };
        let own = &relations.header;
        let mut open: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
        for entry in &relations.entries {
            let at = processes[of_node[*file]].at(time(entry) + own.time_adjustment);
            read(entry, at, *file, &headers, own, &mut works, &mut open).map_err(|reason| format!("{name}: {reason}"))?;
        }
    }
    // Parents before children: a parent's records are there when its children need them.
    let order: Vec<Token> = by_generation(&works);
    let mut requests = 0;
    for token in order {
        let mut work = works.remove(&token).unwrap_or_default();
        let node = of_node[token.0];
        let parent = work.parents.iter().find(|parent| **parent != token).copied();
        let around = |work: &Work, works: &BTreeMap<Token, Work>| {
            let parent = works.get(&parent?)?;
            enclosing(&parent.records, work.life)
        };
        let here = parent.filter(|parent| of_node[parent.0] == node);
        if let Some(records) = known(&processes[node], &work) {
            // The traces tell all of it.
            work.records = records.iter().map(|position| interval_of(&processes[node].records[*position].1)).collect();
            if let (Some(_), Some(around)) = (here, around(&work, &works)) {
                records.iter().for_each(|position| set_parent(&mut processes[node].records[*position].1, around));
            }
            works.insert(token, work);
            continue;
        }
        let mut inside = 0;
        let remote = parent.filter(|_| here.is_none());
        if let Some(parent) = remote.filter(|parent| works.contains_key(parent)) {
            requests += 1;
            let of_parent = works.get(&parent).and_then(|parent| enclosing(&parent.records, work.life)).unwrap_or(0);
            inside = serve(&work, (of_node[parent.0], node), (requests, of_parent), processes, events);
            work.records.push((work.life, inside));
        } else if let Some(around) = here.and_then(|_| around(&work, &works)) {
            inside = around;
        }
        put_states(&mut work, inside, remote.is_some() || here.is_some(), &mut processes[node], events);
        works.insert(token, work);
    }
    Ok(())
}

/// What one entry says.
fn read(
    entry: &Relation,
    at: u64,
    file: usize,
    headers: &[(usize, &RelationHeader)],
    own: &RelationHeader,
    works: &mut BTreeMap<Token, Work>,
    open: &mut BTreeMap<u64, Vec<usize>>,
) -> Result<(), String> {
    if let Relation::Create { token, parents, .. } = entry {
        let parents = parents.iter().filter_map(|parent| resolve(parent, file, own, headers)).collect();
        works.insert((file, *token), Work { life: (at, at), parents, ..Work::default() });
        return Ok(());
    }
    let (Relation::Create { token, .. } | Relation::Start { token, .. } | Relation::End { token, .. } | Relation::Destroy { token, .. }) =
        entry;
    let work =
        works.get_mut(&(file, *token)).ok_or_else(|| format!("token {token} is used at {} and was not created before", time(entry)))?;
    work.life.1 = work.life.1.max(at);
    let stack = open.entry(*token).or_default();
    match entry {
        Relation::Start { name, .. } => {
            let around = stack.last().copied();
            work.states.push((name.clone(), (at, at), around));
            stack.push(work.states.len() - 1);
        }
        Relation::End { .. } => {
            let state = stack.pop().ok_or_else(|| format!("token {token} ends a state at {} and has started none", time(entry)))?;
            work.states[state].1.1 = at;
        }
        _ => {}
    }
    Ok(())
}

/// The token that a parent names; `None` if the project does not have its file.
fn resolve(parent: &Parent, file: usize, own: &RelationHeader, headers: &[(usize, &RelationHeader)]) -> Option<Token> {
    let find = |host: &str, process: &str, number: u64| {
        let is = |header: &RelationHeader| header.host == host && header.process == process && header.topology_number == number;
        headers.iter().find(|(_, header)| is(header)).map(|(file, _)| *file)
    };
    match parent {
        Parent::Internal(token) => Some((file, *token)),
        Parent::Process { topology_number, token } => Some((find(&own.host, &own.process, *topology_number)?, *token)),
        Parent::Host { process, topology_number, token } => Some((find(&own.host, process, *topology_number)?, *token)),
        Parent::Remote { host, process, topology_number, token } => Some((find(host, process, *topology_number)?, *token)),
    }
}

/// Tokens, those without parents first; of a circle, which no sound file has, the rest at the end.
fn by_generation(works: &BTreeMap<Token, Work>) -> Vec<Token> {
    let mut children: BTreeMap<Token, Vec<Token>> = BTreeMap::new();
    let mut ready = Vec::new();
    for (token, work) in works {
        match work.parents.iter().find(|parent| *parent != token && works.contains_key(parent)) {
            Some(parent) => children.entry(*parent).or_default().push(*token),
            None => ready.push(*token),
        }
    }
    let mut order = Vec::with_capacity(works.len());
    while let Some(token) = ready.pop() {
        order.push(token);
        ready.extend(children.remove(&token).unwrap_or_default());
    }
    let rest: Vec<Token> = children.into_values().flatten().collect();
    order.extend(rest);
    order
}

/// The request of one process and the answer of the other; gives the identity of the answer, in
/// which the states of the token lie.
fn serve(
    work: &Work,
    (client, server): (usize, usize),
    (request, parent): (u64, u32),
    processes: &mut [Process],
    events: &mut Events,
) -> u32 {
    let peer = *processes[server].server.get_or_insert(ServerId::data(server as u16 % ServerId::FIRST_DATA).0);
    let (begin, end) = work.life;
    let name = work.states.first().map_or("token", |(name, ..)| name.as_str());
    let (call, answer) = (processes[client].next_span(), processes[server].next_span());
    let body = Span { dur: end - begin, span: call, parent, peer, ..Span::default() };
    let ring = processes[client].threads;
    processes[client].put(ring, TraceRecord { req: request, ..TraceRecord::new(begin, NET_CALL, Body::Span(body)) });
    let staged = StagedSpan { span: answer, peer, phases: lasting(end - begin), ..StagedSpan::default() };
    let id = events.id(Use::Served, name);
    let record = TraceRecord { req: request, flags: flags::SERVER, ..TraceRecord::new(begin, id, Body::StagedSpan(staged)) };
    let ring = processes[server].threads;
    processes[server].put(ring, record);
    answer
}

/// The states of a token as spans; a token without any that others may come from is one itself.
fn put_states(work: &mut Work, inside: u32, is_made_from_others: bool, process: &mut Process, events: &mut Events) {
    if work.states.is_empty() && work.records.is_empty() {
        work.states.push(("token".to_string(), work.life, None));
    }
    let usage = if is_made_from_others { Use::Inside } else { Use::Program };
    let mut identities: Vec<u32> = Vec::new();
    for (name, (begin, end), around) in &work.states {
        let span = process.next_span();
        let parent = around.and_then(|around| identities.get(around).copied()).unwrap_or(inside);
        let body = Span { dur: end.saturating_sub(*begin), span, parent, ..Span::default() };
        let id = events.id(usage, name);
        let ring = process.threads;
        process.put(ring, TraceRecord::new(*begin, id, Body::Span(body)));
        identities.push(span);
        work.records.push(((*begin, *end), span));
    }
}

/// The identity of the shortest record that encloses an interval, of equal ones the innermost; or
/// of the first one.
fn enclosing(records: &[(Interval, u32)], (begin, end): Interval) -> Option<u32> {
    let around = records.iter().filter(|((from, to), _)| *from <= begin && end <= *to);
    around.min_by_key(|((from, to), identity)| (to - from, Reverse(*identity))).or(records.first()).map(|(_, identity)| *identity)
}

fn interval_of(record: &TraceRecord) -> (Interval, u32) {
    let identity = match &record.body {
        Body::Span(span) => span.span,
        Body::StagedSpan(staged) => staged.span,
        _ => 0,
    };
    ((record.t0, record.t0 + record.duration()), identity)
}

fn set_parent(record: &mut TraceRecord, parent: u32) {
    if let Body::Span(span) = &mut record.body
        && span.parent == 0
        && span.span != parent
    {
        span.parent = parent;
    }
}

/// The records of all states of a token, if the traces of its process have all of them.
fn known(process: &Process, work: &Work) -> Option<Vec<usize>> {
    let record = |(name, (begin, _), _): &(String, Interval, Option<usize>)| process.states.get(&(*begin, name.clone())).copied();
    if work.states.is_empty() { None } else { work.states.iter().map(record).collect() }
}
