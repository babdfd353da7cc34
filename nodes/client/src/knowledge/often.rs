//! Directories that are changed so often that nobody is told of them under leases. A create by a
//! program needs their attributes three times, so they are believed for a moment all the same, and
//! what this client changes itself is added to them.

use weft_base::{Attr, FastMap, Handle, MILLISECOND, Nanos};
use weft_wire::ops::DirChange;

use super::directories::Entries;

/// For so many nanoseconds attributes are believed, counted from when they were asked for.
const BELIEVED_NS: u64 = MILLISECOND;
/// Directories remembered.
const DIRECTORIES_MAX: usize = 1024;

/// What such directories were like a moment ago.
#[derive(Debug, Default)]
pub(super) struct Often(FastMap<Handle, Recent>);

#[derive(Debug)]
struct Recent {
    asked: Nanos,
    attr: Attr,
    /// Several servers tell of it, each with versions of its own.
    is_split: bool,
    /// A change of this client is the newest one that is known.
    is_own: bool,
}

impl Often {
    /// Attributes, asked for then.
    pub fn told(&mut self, attr: &Attr, asked: Nanos, is_split: bool) {
        if self.0.len() >= DIRECTORIES_MAX {
            self.0.clear();
        }
        self.0.insert(attr.handle, Recent { asked, attr: *attr, is_split, is_own: false });
    }

    /// This client has changed a name, and the directory is so now. Others may have changed it
    /// before: how many entries they have made or removed shows when it is asked for again.
    pub fn changed(&mut self, dir: Handle, change: DirChange, entries: &Entries) {
        let Some(told) = self.0.get_mut(&dir) else { return };
        let attr = &mut told.attr;
        if told.is_split || change.version == 0 {
            told.is_own = false;
        } else if change.version > attr.version {
            entries.add_to(attr);
            (attr.version, attr.mtime, attr.ctime) = (change.version, change.time, change.time);
            told.is_own = true;
        }
    }

    /// Something else has happened to it.
    pub fn forget(&mut self, dir: Handle) {
        self.0.remove(&dir);
    }

    /// What it is like after a change of this client, and for how many nanoseconds that may be
    /// believed.
    pub fn after_own_change(&self, dir: Handle, now: Nanos) -> Option<(Attr, u64)> {
        let told = self.0.get(&dir).filter(|told| told.is_own)?;
        Some((told.attr, told.holds_ns(now))).filter(|(_, holds_ns)| *holds_ns > 0)
    }

    /// For how many nanoseconds what was told last may be believed.
    pub fn holds_ns(&self, dir: Handle, now: Nanos) -> u64 {
        self.0.get(&dir).map_or(0, |told| told.holds_ns(now))
    }
}

impl Recent {
    fn holds_ns(&self, now: Nanos) -> u64 {
        (self.asked + BELIEVED_NS).since(now)
    }
}

#[cfg(test)]
mod tests {
    use weft_base::WallTime;

    use super::super::directories::test_attr;
    use super::*;

    const DIR: Handle = Handle(7);
    const ONE_MORE: Entries = Entries { all: 1, directories: 0 };

    fn change(version: u64) -> DirChange {
        DirChange { version, time: WallTime(version as i64) }
    }

    #[test]
    fn an_own_change_is_added_and_extends_nothing() {
        let mut often = Often::default();
        often.changed(DIR, change(5), &ONE_MORE);
        assert!(often.after_own_change(DIR, Nanos(0)).is_none(), "nothing was told");
        often.told(&test_attr(DIR, 5), Nanos(1000), false);
        assert!(often.after_own_change(DIR, Nanos(1000)).is_none(), "that is for who has asked");
        often.changed(DIR, change(8), &ONE_MORE);
        let (attr, holds_ns) = often.after_own_change(DIR, Nanos(2000)).expect("this client has changed it");
        assert_eq!((attr.version, attr.size, attr.mtime, attr.ctime), (8, 1, WallTime(8), WallTime(8)));
        assert_eq!(holds_ns, BELIEVED_NS - 1000);
        assert!(often.after_own_change(DIR, Nanos(1000 + BELIEVED_NS)).is_none());
        often.changed(DIR, change(7), &ONE_MORE);
        let (attr, _) = often.after_own_change(DIR, Nanos(2000)).expect("it is known still");
        assert_eq!((attr.version, attr.size), (8, 1), "an answer that was overtaken");
        often.changed(DIR, DirChange::NONE, &ONE_MORE);
        assert!(often.after_own_change(DIR, Nanos(2000)).is_none(), "what is not told is not known");
        often.forget(DIR);
        assert_eq!(often.holds_ns(DIR, Nanos(2000)), 0);
    }
}
