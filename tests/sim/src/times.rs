//! Is the time of the last change the right one? Order decides: a time that somebody has set is
//! seen until somebody writes or truncates after that, or sets another; then it is the time of a
//! server's clock. Clients' clocks, which are off by up to an hour, are never seen.
//!
//! Runs that may lose what was acknowledged are not checked: a lost setting leaves the epochs of
//! the servers apart until the file is closed (`docs/decisions/0010-order-of-times.md`).

use std::collections::BTreeSet;

use weft_base::{FileKind, Handle, MILLISECOND, WallTime};

use crate::cluster::SERVER_SKEW_NS_MAX;
use crate::history::{Action, Answer, Event, History, Outcome, Seen, Time};

/// The wall clock of a node that is not off at the beginning of virtual time, in nanoseconds.
const EPOCH_NS: i64 = 1_767_225_600_000_000_000;

/// Checks all times of files that a history shows.
///
/// # Errors
/// What is wrong, for people.
pub fn check(history: &History) -> Result<(), String> {
    let files: BTreeSet<Handle> = history.events().iter().filter_map(seen_of).map(|seen| seen.handle).collect();
    files.into_iter().try_for_each(|file| FileTimes::of(history, file).check().map_err(|text| format!("{file}: {text}")))
}

/// The attributes of a file as a single question shows them.
fn seen_of(event: &Event) -> Option<&Seen> {
    use Action::*;
    match (&event.action, &event.outcome) {
        (GetAttr { .. } | Lookup { .. } | Open { .. } | SetMode { .. }, Outcome::Done(Answer::Attr(seen)))
            if seen.kind == FileKind::File =>
        {
            Some(seen)
        }
        _ => None,
    }
}

/// A change of the time of a file.
#[derive(Clone, Copy, Debug)]
struct Change {
    begin: u64,
    /// `u64::MAX` if it is not sure that it happened.
    end: u64,
    /// The time that was set; `None`: the clock's.
    set: Option<u16>,
}

struct FileTimes<'a> {
    changes: Vec<Change>,
    seen: Vec<(usize, &'a Event, &'a Seen)>,
}

impl<'a> FileTimes<'a> {
    fn of(history: &'a History, file: Handle) -> FileTimes<'a> {
        let mut times = FileTimes { changes: Vec::new(), seen: Vec::new() };
        for (number, event) in history.events().iter().enumerate() {
            // What a client did to a file that it delayed may have gone with it; nobody else has
            // seen it.
            let may_be_lost = history.may_be_lost(event.client, file);
            let end = if matches!(event.outcome, Outcome::Done(_)) && !may_be_lost { event.end } else { u64::MAX };
            let mut change = |set| times.changes.push(Change { begin: event.begin, end, set });
            match (&event.action, &event.outcome) {
                // A write that fails may have been done in part.
                (Action::Write { handle, .. } | Action::Allocate { handle, .. }, _) if *handle == file => change(None),
                (Action::Content { .. } | Action::SetSize { .. } | Action::SetTime { .. }, Outcome::Failed(_)) => {}
                // Of an unknown file: of any.
                (Action::Content { handle, .. }, _) if *handle == file || *handle == Handle(0) => change(None),
                (Action::SetSize { handle, .. }, _) if *handle == file => change(None),
                (Action::SetTime { handle, time }, _) if *handle == file => change(Some(*time)),
                (Action::Create { truncate, .. }, Outcome::Done(Answer::Created(seen, created)))
                    if seen.handle == file && (*created || *truncate) =>
                {
                    change(None);
                }
                // It may have cut any file.
                (Action::Create { truncate: true, .. }, Outcome::Unknown(_) | Outcome::Running) => change(None),
                _ => {}
            }
            if let Some(seen) = seen_of(event).filter(|seen| seen.handle == file && !may_be_lost) {
                times.seen.push((number, event, seen));
            }
        }
        times
    }

    fn check(&self) -> Result<(), String> {
        for (number, event, seen) in &self.seen {
            let possible = match seen.mtime {
                Time::Set(set) => self.sources(event, Some(set)),
                Time::Clock(at) if !is_of_a_server(at, event) => {
                    return Err(format!("#{number} shows {at:?}, which is of no server's clock"));
                }
                Time::Clock(_) => self.sources(event, None),
            };
            if !possible {
                return Err(format!("#{number} shows {:?}, but later changes than its were done before: {:?}", seen.mtime, self.changes));
            }
        }
        Ok(())
    }

    /// True if there is a change with this time that may have been the last one for somebody who
    /// looked during `event`. A file whose creation is not in the history has the clock's time.
    fn sources(&self, event: &Event, set: Option<u16>) -> bool {
        let is_overtaken = |end: u64| self.changes.iter().any(|later| later.set != set && end < later.begin && later.end < event.begin);
        let from_change = self.changes.iter().any(|change| change.set == set && change.begin < event.end && !is_overtaken(change.end));
        from_change || (set.is_none() && !is_overtaken(0))
    }
}

/// True if a server may have seen this time on its clock by the end of the event.
fn is_of_a_server(at: WallTime, event: &Event) -> bool {
    let skew = (SERVER_SKEW_NS_MAX + MILLISECOND) as i64;
    let latest = EPOCH_NS.saturating_add_unsigned(event.end_at.0).saturating_add(skew);
    (EPOCH_NS - skew..=latest).contains(&at.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_base::Nanos;

    const FILE: Handle = Handle(9);

    fn history(steps: &[(Action, Option<Time>)]) -> History {
        let mut history = History::new();
        for (action, seen) in steps {
            let number = history.begin(1, action.clone(), Nanos(0));
            let answer = match seen {
                Some(mtime) => Answer::Attr(Seen { handle: FILE, kind: FileKind::File, mode: 0, nlink: 1, size: 0, mtime: *mtime }),
                None => Answer::Nothing,
            };
            history.end(number, Outcome::Done(answer), Nanos(MILLISECOND));
        }
        history
    }

    #[test]
    fn the_last_change_decides() {
        let look = |time| (Action::GetAttr { handle: FILE, held: false }, Some(time));
        let set = |time| (Action::SetTime { handle: FILE, time }, None);
        let write = || (Action::Write { handle: FILE, offset: 0, len: 1, tag: 1 }, None);
        let clock = Time::Clock(WallTime(EPOCH_NS));
        assert_eq!(check(&history(&[write(), look(clock), set(7), look(Time::Set(7)), write(), look(clock)])), Ok(()));
        assert!(check(&history(&[write(), set(7), look(clock)])).is_err(), "an earlier write has won");
        assert!(check(&history(&[set(7), write(), look(Time::Set(7))])).is_err(), "an earlier setting has won");
        assert!(check(&history(&[set(7), set(8), look(Time::Set(7))])).is_err());
        assert!(check(&history(&[write(), look(Time::Clock(WallTime(EPOCH_NS + (60 << 30))))])).is_err(), "a client's clock");
        assert!(check(&history(&[look(Time::Set(7))])).is_err(), "nobody has set it");
    }
}
