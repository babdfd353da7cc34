//! Attributes and names that this client has seen, for callers that can live with a stated age.
//!
//! The rule: with `attr_cache_ns = n > 0` an answer may be up to `n` nanoseconds old as far as
//! *other* clients are concerned, counted from the moment when it was asked for. What this client
//! itself changed is seen at once: every change drops what it concerns when it begins and when it
//! ends, and an answer that was asked for before a change ended is not kept. With
//! `attr_cache_ns = 0`, the default, nothing is kept and every answer is exact. Names that do not
//! exist are never kept, and kept names serve only callers who may search every directory (root) or
//! whose rights the kernel of a mount checks itself.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

use bytes::Bytes;
use weft_base::{Attr, FastMap, FileKind, Handle, Nanos};

/// Most attributes and most names kept. When there are more, all are dropped.
const ENTRIES_MAX: usize = 1 << 16;

pub(super) struct Seen {
    age_max: u64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Counts the changes of this client.
    changes: u64,
    attrs: FastMap<Handle, (Attr, Nanos)>,
    names: BTreeMap<(Handle, Bytes), (Handle, FileKind, Nanos)>,
}

/// When a question was asked. What was learned is kept only if nothing changed since.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    pub(crate) at: Nanos,
    /// How many reports of own writes had arrived (see `files/open_table.rs`).
    pub(crate) after_reports: u64,
    changes: u64,
}

impl Seen {
    pub fn new(age_max: u64) -> Seen {
        Seen { age_max, state: Mutex::default() }
    }

    /// True if anything is ever kept.
    pub fn is_on(&self) -> bool {
        self.age_max > 0
    }

    /// To be called before a question is sent.
    pub fn ask(&self, now: Nanos, after_reports: u64) -> Asked {
        Asked { at: now, after_reports, changes: if self.is_on() { self.lock().changes } else { 0 } }
    }

    /// Keeps the answer to a question.
    pub fn keep_attr(&self, asked: Asked, attr: &Attr) {
        if self.is_on() {
            let mut state = self.lock();
            if state.changes == asked.changes {
                if state.attrs.len() >= ENTRIES_MAX {
                    state.attrs.clear();
                }
                state.attrs.insert(attr.handle, (*attr, asked.at + self.age_max));
            }
        }
    }

    /// Keeps the answer to a question.
    pub fn keep_name(&self, asked: Asked, dir: Handle, name: &Bytes, handle: Handle, kind: FileKind) {
        if self.is_on() {
            let mut state = self.lock();
            if state.changes == asked.changes {
                if state.names.len() >= ENTRIES_MAX {
                    state.names.clear();
                }
                state.names.insert((dir, name.clone()), (handle, kind, asked.at + self.age_max));
            }
        }
    }

    /// Attributes that are young enough.
    pub fn attr(&self, handle: Handle, now: Nanos) -> Option<Attr> {
        if !self.is_on() {
            return None;
        }
        self.lock().attrs.get(&handle).filter(|(_, until)| now < *until).map(|(attr, _)| *attr)
    }

    /// What a name leads to, if that is young enough.
    pub fn name(&self, dir: Handle, name: &Bytes, now: Nanos) -> Option<(Handle, FileKind)> {
        if !self.is_on() {
            return None;
        }
        let state = self.lock();
        state.names.get(&(dir, name.clone())).filter(|(_, _, until)| now < *until).map(|(handle, kind, _)| (*handle, *kind))
    }

    /// This object changes or has changed.
    pub fn forget(&self, handle: Handle) {
        if self.is_on() {
            let mut state = self.lock();
            state.changes += 1;
            state.attrs.remove(&handle);
        }
    }

    /// This name, and with it its directory, changes or has changed.
    pub fn forget_name(&self, dir: Handle, name: &Bytes) {
        if self.is_on() {
            let mut state = self.lock();
            state.changes += 1;
            state.attrs.remove(&dir);
            if let Some((handle, _, _)) = state.names.remove(&(dir, name.clone())) {
                state.attrs.remove(&handle);
            }
        }
    }

    /// Anything may have changed.
    pub fn forget_all(&self) {
        if self.is_on() {
            let mut state = self.lock();
            state.changes += 1;
            state.attrs.clear();
            state.names.clear();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no code panics while it holds this lock")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_base::{Layout, WallTime};

    fn attr(handle: u64, size: u64) -> Attr {
        let time = WallTime(0);
        Attr {
            handle: Handle(handle),
            kind: FileKind::File,
            mode: 0,
            uid: 0,
            gid: 0,
            nlink: 1,
            rdev: 0,
            size,
            atime: time,
            mtime: time,
            mtime_epoch: 0,
            ctime: time,
            version: 1,
            truncate_epoch: 0,
            layout: Layout { stripe_bytes: 4096, width: 1, first: 0, generation: 1 },
            bare: true,
        }
    }

    #[test]
    fn answers_grow_old_from_the_question_on() {
        let seen = Seen::new(100);
        let asked = seen.ask(Nanos(50), 0);
        seen.keep_attr(asked, &attr(7, 1));
        assert_eq!(seen.attr(Handle(7), Nanos(149)), Some(attr(7, 1)));
        assert_eq!(seen.attr(Handle(7), Nanos(150)), None);
    }

    #[test]
    fn an_answer_from_before_a_change_is_not_kept() {
        let seen = Seen::new(100);
        let asked = seen.ask(Nanos(0), 0);
        seen.forget(Handle(7));
        seen.keep_attr(asked, &attr(7, 1));
        assert_eq!(seen.attr(Handle(7), Nanos(1)), None);
    }

    #[test]
    fn changing_a_name_drops_its_directory_and_its_object() {
        let seen = Seen::new(100);
        let (asked, name) = (seen.ask(Nanos(0), 0), Bytes::from_static(b"x"));
        seen.keep_name(asked, Handle(1), &name, Handle(7), FileKind::File);
        seen.keep_attr(asked, &attr(7, 1));
        seen.keep_attr(asked, &attr(1, 1));
        seen.keep_attr(asked, &attr(8, 1));
        assert_eq!(seen.name(Handle(1), &name, Nanos(1)), Some((Handle(7), FileKind::File)));
        seen.forget_name(Handle(1), &name);
        assert_eq!(seen.name(Handle(1), &name, Nanos(1)), None);
        assert_eq!((seen.attr(Handle(7), Nanos(1)), seen.attr(Handle(1), Nanos(1))), (None, None));
        assert!(seen.attr(Handle(8), Nanos(1)).is_some());
    }

    #[test]
    fn off_by_default_means_nothing_is_kept() {
        let seen = Seen::new(0);
        let asked = seen.ask(Nanos(0), 0);
        seen.keep_attr(asked, &attr(7, 1));
        assert_eq!(seen.attr(Handle(7), Nanos(0)), None);
    }
}
