//! Messages between ranks: each `Send` with the `Recv` that took it, in the order in which MPI
//! matches them. Where a rank receives from anybody or with any tag, and no wait says what it got,
//! no message of that rank and communicator is shown.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use weft_hdtrace::{Element, Entry, Project, State, Time};
use weft_trace::messages::Message;

use super::Told;
use super::process::Process;

/// Communicator, sender, receiver (numbers in the whole run), tag.
type Key = (i64, u32, u32, String);

/// One end of a message: process, thread, nanoseconds and bytes.
#[derive(Clone, Copy, Debug)]
struct End {
    node: usize,
    ring: u32,
    at: u64,
    bytes: u64,
}

/// What the calls of all ranks say.
#[derive(Default)]
struct Ends {
    sent: BTreeMap<Key, VecDeque<End>>,
    taken: Vec<(Key, End)>,
    /// Communicators and ranks that receive what nobody knows.
    unknown: BTreeSet<(i64, u32)>,
}

/// Adds the records of messages; gives true if there are any. `of_node` is the process of each
/// trace, `level` the place of the rank in its path.
pub(super) fn put(told: &[Told], of_node: &[usize], processes: &mut [Process], level: usize, project: &Project) -> bool {
    let mut ends = Ends::default();
    let mut rings: BTreeMap<usize, u32> = BTreeMap::new();
    for (told, node) in told.iter().zip(of_node) {
        let Some((.., trace)) = &told.trace else { continue };
        let ring = rings.entry(*node).or_insert(0);
        if let Some(rank) = told.path.get(level).and_then(|name| name.parse().ok()) {
            let at = |time: Time| processes[*node].at(time + trace.time_adjustment);
            let waits = trace.entries.iter().filter_map(|entry| if let Entry::State(state) = entry { Some(&state.data) } else { None });
            let got =
                |element: &Element| Some((element.attribute("aid")?.to_string(), element.attribute("fromRank").map(|_| element.clone())?));
            let matched = waits.flatten().filter_map(got).collect();
            let mut calls = Calls { rank, node: *node, ring: *ring, project, at: &at, ends: &mut ends, begun: BTreeMap::new(), matched };
            calls.entries(&trace.entries);
        }
        *ring += 1;
    }
    let mut number = 0;
    for (key, taken) in ends.taken {
        let Some(sent) = ends.sent.get_mut(&key).filter(|_| !ends.unknown.contains(&(key.0, key.2))).and_then(VecDeque::pop_front) else {
            continue;
        };
        // Clocks of hosts may differ by more than a message takes.
        let message = Message { number, from: key.1, to: key.2, bytes: sent.bytes, sent: sent.at, taken: taken.at.max(sent.at) };
        let [left, came] = message.records();
        processes[sent.node].put(sent.ring, left);
        processes[taken.node].put(taken.ring, came);
        number += 1;
    }
    number > 0
}

/// The calls of one rank.
struct Calls<'a> {
    rank: u32,
    node: usize,
    ring: u32,
    project: &'a Project,
    at: &'a dyn Fn(Time) -> u64,
    ends: &'a mut Ends,
    /// Receives that go on beside the program, by the number of their request.
    begun: BTreeMap<String, Vec<usize>>,
    /// What receives from anybody got, as the waits for them say, by the number of the request.
    matched: BTreeMap<String, Element>,
}

impl Calls<'_> {
    fn entries(&mut self, entries: &[Entry]) {
        for entry in entries {
            if let Entry::State(state) = entry {
                self.call(state);
                self.entries(&state.nested);
            }
        }
    }

    fn call(&mut self, state: &State) {
        let sends = ["Send", "Ssend", "Bsend", "Rsend", "Isend", "Issend", "Ibsend", "Irsend"].contains(&state.name.as_str());
        let does_both = state.name.starts_with("Sendrecv");
        if (sends || does_both)
            && let Some(key) = self.key(state, "toRank", "toTag", |calls, other, tag| (calls.0, calls.1, other, tag))
        {
            let bytes = state.attribute("size").and_then(|text| text.parse().ok()).unwrap_or(0);
            let end = self.end((self.at)(state.begin), bytes);
            self.ends.sent.entry(key).or_default().push_back(end);
        }
        let is_null = state.attribute("fromRank") == Some("null");
        if (does_both || matches!(state.name.as_str(), "Recv" | "Irecv")) && !is_null {
            match self.key(&self.matched(state), "fromRank", "fromTag", |calls, other, tag| (calls.0, other, calls.1, tag)) {
                Some(key) => {
                    let end = self.end((self.at)(state.end), 0);
                    if let Some(request) = state.attribute("aid") {
                        self.begun.entry(request.to_string()).or_default().push(self.ends.taken.len());
                    }
                    self.ends.taken.push((key, end));
                }
                None => {
                    self.ends.unknown.insert((self.communicator(state).unwrap_or(0), self.rank));
                }
            }
        }
        if state.name.starts_with("Wait") || state.name.starts_with("Test") {
            let at = (self.at)(state.end);
            for request in state.data.iter().filter_map(|element| element.attribute("aid")) {
                for receive in self.begun.remove(request).into_iter().flatten() {
                    self.ends.taken[receive].1.at = at;
                }
            }
        }
    }

    /// A receive with the sender and the tag that it got.
    fn matched(&self, state: &State) -> State {
        let known = state.attribute("aid").and_then(|request| self.matched.get(request));
        let mut state = state.clone();
        for (name, value) in &mut state.attributes {
            if let Some(got) = known.filter(|_| name.starts_with("from")).and_then(|known| known.attribute(name)) {
                got.clone_into(value);
            }
        }
        state
    }

    fn end(&self, at: u64, bytes: u64) -> End {
        End { node: self.node, ring: self.ring, at, bytes }
    }

    /// The number of a call's communicator in the project; those of a trace without any are all
    /// ranks.
    fn communicator(&self, state: &State) -> Option<i64> {
        let id: i64 = state.attribute("cid").unwrap_or("0").parse().ok()?;
        match self.project.communicator_of(self.rank, id) {
            Some(number) => i64::try_from(number).ok(),
            None => self.project.communicators.is_empty().then_some(-1 - id),
        }
    }

    /// What a call is matched by; nothing if it does not say with whom.
    fn key(&self, state: &State, rank: &str, tag: &str, key: impl FnOnce((i64, u32), u32, String) -> Key) -> Option<Key> {
        let comm = self.communicator(state)?;
        let local: u32 = state.attribute(rank)?.parse().ok()?;
        let members = usize::try_from(comm).ok().and_then(|comm| self.project.communicators.get(comm));
        let other = match members {
            Some(members) => members.members.iter().find(|member| member.local == local)?.global,
            None => local,
        };
        let tag = state.attribute(tag).unwrap_or("0");
        (!tag.starts_with('-')).then(|| key((comm, self.rank), other, tag.to_string()))
    }
}
