//! Open files behind a protocol that has none. NFS clients read and write by handle, each call with
//! its user; servers want a file to be open, and check rights when it is opened. So a file is
//! opened for a user at his first call and closed when nobody has asked for a moment. Pure state.
//!
//! An open is of one user and for one right; it never serves another one. It is used only while
//! owner and mode of the file are those by which it was allowed: after a `chmod` the servers decide
//! again.

use weft_base::{Attr, Credentials, FastMap, Handle, MILLISECOND, MODE_ACL, Nanos, SECOND};
use weft_wire::Rights;

/// Most files that are open without being used; then the oldest are closed.
const IDLE_MAX: usize = 1024;
/// Most opens of one file.
const OF_FILE_MAX: usize = 64;
/// A file that nobody has used for so long is closed, in nanoseconds.
const IDLE_NS: u64 = 2 * SECOND;
/// The same for one that its user has probably closed: a commit is what clients end with.
const DONE_NS: u64 = 200 * MILLISECOND;

/// By what an open was allowed: mode, owner and group of its file.
pub type Judged = (u32, u32, u32);

/// What opens of a file with these attributes are allowed by. An access control list is none of the
/// attributes: who changes it changes the time of change, too.
pub fn judged(attr: &Attr) -> Judged {
    match attr.mode & MODE_ACL {
        0 => (attr.mode, attr.uid, attr.gid),
        _ => (attr.mode, (attr.ctime.0 >> 32) as u32, attr.ctime.0 as u32),
    }
}

#[derive(Debug)]
struct Open {
    who: Credentials,
    rights: Rights,
    judged: Judged,
    /// Its number in the layer below.
    number: u64,
    /// Calls that use it.
    users: u32,
    /// It goes when nobody has used it until then.
    ends: Nanos,
}

/// The open files.
#[derive(Debug, Default)]
pub struct Opens {
    files: FastMap<Handle, Vec<Open>>,
    count: usize,
}

impl Opens {
    /// An open of this user for this right, to be given back with [`Opens::give_back`]. If the
    /// file's owner or mode has changed since, there is none.
    pub fn take(&mut self, handle: Handle, who: &Credentials, right: Rights, judged: Judged) -> Option<u64> {
        let open = self
            .files
            .get_mut(&handle)?
            .iter_mut()
            .find(|open| open.judged == judged && open.rights.contains(right) && open.who == *who)?;
        open.users += 1;
        Some(open.number)
    }

    /// Any open of the file, of whomever: for what concerns neither its data nor its user.
    pub fn take_any(&mut self, handle: Handle) -> Option<u64> {
        let open = self.files.get_mut(&handle)?.first_mut()?;
        open.users += 1;
        Some(open.number)
    }

    /// A file was opened and is used by the caller.
    pub fn add(&mut self, handle: Handle, who: &Credentials, rights: Rights, judged: Judged, number: u64) {
        self.count += 1;
        let open = Open { who: who.clone(), rights, judged, number, users: 1, ends: Nanos(0) };
        self.files.entry(handle).or_default().push(open);
    }

    /// A call does not use it any more; `is_done`: and nobody will soon.
    pub fn give_back(&mut self, handle: Handle, number: u64, is_done: bool, now: Nanos) {
        let Some(opens) = self.files.get_mut(&handle) else { return };
        if let Some(open) = opens.iter_mut().find(|open| open.number == number) {
            open.users -= 1;
            open.ends = now + IDLE_NS;
        }
        if is_done {
            opens.iter_mut().for_each(|open| open.ends = open.ends.min(now + DONE_NS));
        }
    }

    /// True if [`Opens::idle`] should be asked at once.
    pub fn is_full(&self) -> bool {
        self.count > IDLE_MAX
    }

    /// Takes out what is to be closed: what has been idle for long, and if there is much, the older
    /// half of the rest.
    pub fn idle(&mut self, now: Nanos) -> Vec<u64> {
        let mut latest = now;
        if self.is_full() {
            let mut ends: Vec<Nanos> = self.files.values().flatten().filter(|open| open.users == 0).map(|open| open.ends).collect();
            let middle = ends.len() / 2;
            if middle < ends.len() {
                latest = latest.max(*ends.select_nth_unstable(middle).1);
            }
        }
        let mut closed = Vec::new();
        self.files.retain(|_, opens| {
            let too_many = opens.len() > OF_FILE_MAX;
            opens.retain(|open| {
                let goes = open.users == 0 && (open.ends <= latest || too_many);
                if goes {
                    closed.push(open.number);
                }
                !goes
            });
            !opens.is_empty()
        });
        self.count -= closed.len();
        closed
    }

    /// Takes out what nobody uses at this moment and was opened for writing.
    pub fn unused_writers(&mut self) -> Vec<u64> {
        let mut closed = Vec::new();
        self.files.retain(|_, opens| {
            let goes = |open: &mut Open| open.users == 0 && open.rights.contains(Rights::WRITE);
            closed.extend(opens.extract_if(.., goes).map(|open| open.number));
            !opens.is_empty()
        });
        self.count -= closed.len();
        closed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: Handle = Handle(5);
    const MODE: Judged = (0o644, 1, 1);

    fn user(uid: u32) -> Credentials {
        Credentials { uid, gid: uid, groups: vec![uid + 1], checked_by_kernel: false }
    }

    #[test]
    fn an_open_serves_its_user_and_its_right_only() {
        let mut opens = Opens::default();
        opens.add(FILE, &user(1), Rights::READ, MODE, 10);
        opens.give_back(FILE, 10, false, Nanos(0));
        assert_eq!(opens.take(FILE, &user(2), Rights::READ, MODE), None);
        assert_eq!(opens.take(FILE, &user(1), Rights::WRITE, MODE), None);
        assert_eq!(opens.take(FILE, &Credentials { groups: vec![], ..user(1) }, Rights::READ, MODE), None, "other groups");
        assert_eq!(opens.take(FILE, &user(1), Rights::READ, (0o600, 1, 1)), None, "a chmod came between");
        assert_eq!(opens.take(Handle(6), &user(1), Rights::READ, MODE), None);
        assert_eq!(opens.take(FILE, &user(1), Rights::READ, MODE), Some(10));
    }

    #[test]
    fn what_nobody_uses_is_closed() {
        let mut opens = Opens::default();
        opens.add(FILE, &user(1), Rights::WRITE, MODE, 10);
        assert!(opens.idle(Nanos(9 * IDLE_NS)).is_empty(), "it is used");
        opens.give_back(FILE, 10, false, Nanos(1000));
        assert!(opens.idle(Nanos(999 + IDLE_NS)).is_empty());
        assert_eq!(opens.idle(Nanos(1000 + IDLE_NS)), [10]);
        assert!(opens.files.is_empty() && opens.count == 0);
        opens.add(FILE, &user(1), Rights::WRITE, MODE, 11);
        opens.give_back(FILE, 11, false, Nanos(0));
        assert_eq!(opens.take_any(FILE), Some(11));
        opens.give_back(FILE, 11, true, Nanos(0));
        assert_eq!(opens.idle(Nanos(DONE_NS)), [11], "a commit was the last");
    }

    #[test]
    fn unused_writers_go_at_once_and_nobody_else() {
        let mut opens = Opens::default();
        for (number, right) in [(10, Rights::WRITE), (11, Rights::READ), (12, Rights::WRITE)] {
            opens.add(FILE, &user(1), right, MODE, number);
        }
        opens.give_back(FILE, 10, false, Nanos(0));
        opens.give_back(FILE, 11, false, Nanos(0));
        assert_eq!((opens.unused_writers(), opens.unused_writers()), (vec![10], vec![]));
        opens.give_back(FILE, 12, false, Nanos(0));
        assert_eq!((opens.unused_writers(), opens.idle(Nanos(IDLE_NS)), opens.count), (vec![12], vec![11], 0));
    }

    #[test]
    fn of_many_idle_files_the_older_half_goes() {
        let mut opens = Opens::default();
        for number in 0..=IDLE_MAX as u64 {
            opens.add(Handle(number), &user(1), Rights::WRITE, MODE, number);
            opens.give_back(Handle(number), number, false, Nanos(number));
        }
        assert!(opens.is_full());
        let closed = opens.idle(Nanos(IDLE_MAX as u64));
        assert_eq!(closed.len(), IDLE_MAX / 2 + 1);
        assert!(closed.iter().all(|number| *number <= IDLE_MAX as u64 / 2) && !opens.is_full());
    }
}
