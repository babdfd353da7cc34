//! What may have gone with a client that has died: what it had delayed, and what it had made and
//! set without asking.

use std::collections::BTreeMap;

use weft_base::{FileKind, Handle, SECOND};

use crate::history::{Action, Answer, Event, History, Outcome};

/// Servers that answer are told so soon of what was made without asking, in nanoseconds. What took
/// no time was certainly made so; for the first directory a client asks for the key of names.
const TOLD_NS: u64 = SECOND;

impl History {
    /// A client has died: of all that it made and has not closed since, what it delayed is lost,
    /// and so is what it has made and set of directories without asking.
    pub fn loses_all_open(&mut self, client: usize) {
        let last = self.events.iter().filter(|event| event.client == client).map(|event| event.begin_at).max();
        let is_unasked = |event: &Event| event.begin_at == event.end_at;
        let is_late = |event: &Event| last.is_some_and(|last| last.since(event.end_at) < TOLD_NS);
        let mut opens: BTreeMap<Handle, i32> = BTreeMap::new();
        for event in self.events.iter().filter(|event| event.client == client) {
            match (&event.action, &event.outcome) {
                (Action::Create { .. }, Outcome::Done(Answer::Created(seen, _))) => *opens.entry(seen.handle).or_default() += 1,
                (Action::Open { handle }, Outcome::Done(_)) => *opens.entry(*handle).or_default() += 1,
                (Action::Close { handle }, Outcome::Done(_)) => *opens.entry(*handle).or_default() -= 1,
                (Action::Mkdir { .. }, Outcome::Done(Answer::Attr(seen))) if is_unasked(event) || is_late(event) => {
                    *opens.entry(seen.handle).or_default() += 1;
                }
                (Action::SetMode { .. } | Action::SetTime { .. }, Outcome::Done(Answer::Attr(seen)))
                    if seen.kind == FileKind::Directory && is_unasked(event) =>
                {
                    *opens.entry(seen.handle).or_default() += 1;
                }
                _ => {}
            }
        }
        self.lost.extend(opens.into_iter().filter(|(_, count)| *count > 0).map(|(file, _)| (client, file)));
    }

    /// True if it was made without asking, and may have been lost with its client.
    pub fn may_never_be_told(&self, made: &Event, file: Handle) -> bool {
        made.begin_at == made.end_at && self.may_be_lost(made.client, file)
    }

    /// True if what this client wrote to a file may have been lost with it.
    pub fn may_be_lost(&self, client: usize, file: Handle) -> bool {
        self.lost.contains(&(client, file))
    }
}
