//! Watching a tree: what servers tell of changes, and the names by which a person knows them.
//!
//! Servers tell directories and objects by their handles, each server in the order in which it has
//! made the changes, and all of them about the whole file system. A [`WatchedTree`] has the names
//! of the tree, and follows them through the changes.

use std::collections::{BTreeSet, VecDeque};

use bytes::Bytes;
use weft_base::{Credentials, FastMap, FileKind, Handle, ServerId, WallTime};
use weft_rt::Runtime;
use weft_wire::ops::{ChangeCursor, ChangeKind, ChangesReply, ChangesRequest, ToldChange, TxId};

use super::next_round;
use crate::names::Wanted;
use crate::{Client, Error, Result, run_window};

/// Bytes of one page of a listing.
const PAGE_BYTES: u32 = 512 << 10;
/// Directories that are gone, whose paths are still known.
const GONE_MAX: usize = 16_384;
/// So long, in nanoseconds, before and after the end of a directory what happened in it counts as
/// before it: servers tell one before the other, and their clocks differ.
const SLACK_NS: i64 = 2_000_000_000;
/// Names that were told because a directory was listed, and are not told again.
const LISTED_MAX: usize = 65_536;
/// No path is deeper.
const DEPTH_MAX: usize = 4_096;

/// A change of a tree, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeChange {
    /// What happened.
    pub what: ChangeKind,
    /// The path below the root of the tree, which has the empty one.
    pub path: Vec<u8>,
    /// Of a rename: the new one.
    pub to: Option<Vec<u8>>,
    /// The object, if it is known.
    pub handle: Handle,
    /// What that is, if it is known.
    pub kind: Option<FileKind>,
    /// When, by the server's clock; 0 if it does not say.
    pub time: WallTime,
    /// Of a change that is a part of one over several servers: which.
    pub tx: Option<TxId>,
}

/// A name that was found.
struct FoundName {
    dir: Handle,
    name: Bytes,
    handle: Handle,
    kind: FileKind,
}

/// The names of a tree.
#[derive(Debug)]
pub struct WatchedTree {
    root: Handle,
    names: FastMap<(Handle, Bytes), (Handle, FileKind)>,
    /// The newest name of each object, also of the directories that are gone.
    places: FastMap<Handle, Place>,
    /// Older names of objects that have several: directory and name.
    older: BTreeSet<(Handle, (Handle, Bytes))>,
    gone: VecDeque<Handle>,
    /// Names that were told because their directory was listed.
    listed: FastMap<(Handle, Bytes), Handle>,
}

#[derive(Clone, Debug)]
struct Place {
    /// The directory, and the name in it.
    at: (Handle, Bytes),
    /// Since when it has this name; 0: it was found there.
    since: WallTime,
    /// Since when it has not.
    gone: Option<WallTime>,
}

impl<R: Runtime> Client<R> {
    /// Asks a metadata server what has changed behind a cursor; with one of log 0, for a cursor of
    /// now. If nothing has, the answer waits up to `wait_ms`. One request at a time for each
    /// server.
    ///
    /// # Errors
    /// [`weft_base::Status::NotSupported`] if the server keeps no journal,
    /// [`weft_base::Status::KeyForbids`] with a limited key; servers that do not answer.
    pub async fn changes(&self, server: ServerId, after: ChangeCursor, wait_ms: u32) -> Result<ChangesReply> {
        let flow = self.flow("watch", Handle(0));
        self.call(flow, server, &ChangesRequest { after, wait_ms }).await
    }

    /// The names of a tree as they are. To be asked for behind the first cursor: then nothing is
    /// missed.
    ///
    /// # Errors
    /// If the root cannot be listed. Directories below it that cannot be are told to `tell`, and
    /// nothing of them is known.
    pub async fn watched_tree(&self, who: &Credentials, root: Handle, mut tell: impl FnMut(Error)) -> Result<WatchedTree> {
        let mut tree = WatchedTree::new(root);
        let (found, mut failed) = self.all_names(who, root).await;
        if let Some((_, error)) = failed.iter().find(|(dir, _)| *dir == root) {
            return Err(*error);
        }
        failed.drain(..).for_each(|(_, error)| tell(error));
        found.into_iter().for_each(|found| tree.put(found.dir, found.name, found.handle, found.kind, WallTime(0)));
        Ok(tree)
    }

    /// Takes in what a server told. Directories that come into the tree are listed: what is in them
    /// is told as created.
    pub async fn watch(&self, who: &Credentials, tree: &mut WatchedTree, changes: Vec<ToldChange>) -> Vec<TreeChange> {
        let mut told = Vec::new();
        for change in changes {
            let is_created = change.what == ChangeKind::Created;
            if is_created && tree.listed.remove(&(change.dir, change.name.clone())) == Some(change.handle) {
                continue;
            }
            let (time, tx) = (change.time, change.tx);
            let Some(come) = tree.take(change, &mut told) else { continue };
            // Gone again, or closed to this user: nothing is known of it.
            let (found, _) = self.all_names(who, come).await;
            for FoundName { dir, name, handle, kind } in found {
                tree.list(dir, &name, handle);
                let created = ToldChange { dir, name, handle, kind: Some(kind), time, tx, ..ToldChange::empty(ChangeKind::Created) };
                tree.take(created, &mut told);
            }
        }
        told
    }

    /// All names in a directory and below it, those of a directory before those in it.
    async fn all_names(&self, who: &Credentials, root: Handle) -> (Vec<FoundName>, Vec<(Handle, Error)>) {
        let (mut found, mut failed) = (Vec::new(), Vec::new());
        let mut due = vec![(root, 0)];
        while !due.is_empty() {
            let round = next_round(&mut due);
            let flows = round.iter().map(|(dir, cookie)| self.list(who, *dir, *cookie, PAGE_BYTES, Wanted::Names));
            let listed = run_window(flows, round.len()).await;
            for ((dir, _), listed) in round.into_iter().zip(listed) {
                match listed {
                    Ok(page) => {
                        due.extend(page.entries.last().filter(|_| !page.end).map(|last| (dir, last.cookie)));
                        for entry in page.entries {
                            if entry.kind == FileKind::Directory {
                                due.push((entry.handle, 0));
                            }
                            found.push(FoundName { dir, name: entry.name, handle: entry.handle, kind: entry.kind });
                        }
                    }
                    Err(error) if error.is_gone() && dir != root => {}
                    Err(error) => failed.push((dir, error)),
                }
            }
        }
        (found, failed)
    }
}

impl WatchedTree {
    fn new(root: Handle) -> WatchedTree {
        let (names, places, listed) = Default::default();
        WatchedTree { root, names, places, older: BTreeSet::new(), gone: VecDeque::new(), listed }
    }

    /// True if it has no names: it may be gone itself.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// A listing has found this name: its change is told once.
    fn list(&mut self, dir: Handle, name: &Bytes, handle: Handle) {
        if self.listed.len() >= LISTED_MAX {
            self.listed.clear();
        }
        self.listed.insert((dir, name.clone()), handle);
    }

    /// Takes a change in, and tells it if it is of this tree. A directory that has just come into
    /// the tree is returned: nobody knows yet what is in it.
    fn take(&mut self, change: ToldChange, told: &mut Vec<TreeChange>) -> Option<Handle> {
        let ToldChange { what, dir, name, to_dir, to_name, handle, kind, time, tx } = change;
        let tell = |what, path, to, handle, kind| TreeChange { what, path, to, handle, kind, time, tx };
        // One that comes from another server may have left its old place or not yet.
        let is_new = self.places.get(&handle).is_none_or(|place| place.gone.is_some() || what == ChangeKind::Created);
        let come = (kind == Some(FileKind::Directory) && is_new).then_some(handle);
        match what {
            ChangeKind::Created => {
                let (path, kind) = (self.path(dir, &name, time)?, kind?);
                self.put(dir, name, handle, kind, time);
                told.push(tell(what, path, None, handle, Some(kind)));
                come
            }
            ChangeKind::Removed => {
                let path = self.path(dir, &name, time)?;
                let led = self.remove(dir, name, time);
                told.push(tell(what, path, None, led.map_or(Handle(0), |led| led.0), led.map(|led| led.1)));
                None
            }
            ChangeKind::Renamed => {
                let (from, to, kind) = (self.path(dir, &name, time), self.path(to_dir, &to_name, time), kind?);
                match (from, to) {
                    (Some(from), Some(to)) => {
                        self.forget(&(dir, name));
                        self.put(to_dir, to_name, handle, kind, time);
                        told.push(tell(what, from, Some(to), handle, Some(kind)));
                        come
                    }
                    (Some(from), None) => {
                        self.remove(dir, name, time);
                        told.push(tell(ChangeKind::Removed, from, None, handle, Some(kind)));
                        None
                    }
                    (None, Some(to)) => {
                        self.put(to_dir, to_name, handle, kind, time);
                        told.push(tell(ChangeKind::Created, to, None, handle, Some(kind)));
                        come
                    }
                    (None, None) => None,
                }
            }
            ChangeKind::Changed | ChangeKind::Written => {
                let path = if handle == self.root { Vec::new() } else { self.path_of(handle, time)? };
                told.push(tell(what, path, None, handle, kind));
                None
            }
        }
    }

    fn put(&mut self, dir: Handle, name: Bytes, handle: Handle, kind: FileKind, since: WallTime) {
        let at = (dir, name);
        let before = self.names.insert(at.clone(), (handle, kind));
        if let Some(before) = before.filter(|before| before.0 != handle) {
            self.older.remove(&(before.0, at.clone()));
            self.lost(&at, before, since);
        }
        let place = self.places.get(&handle);
        // Another server may have told of a later name already.
        if place.is_some_and(|place| place.since > since) {
            if place.is_some_and(|place| place.at != at) {
                self.older.insert((handle, at));
            }
            return;
        }
        let other = place.map(|place| &place.at).filter(|other| **other != at && self.names.get(*other) == Some(&(handle, kind)));
        if let Some(other) = other.cloned() {
            self.older.insert((handle, other));
        }
        self.older.remove(&(handle, at.clone()));
        self.places.insert(handle, Place { at, since, gone: None });
    }

    fn remove(&mut self, dir: Handle, name: Bytes, time: WallTime) -> Option<(Handle, FileKind)> {
        let at = (dir, name);
        let led = self.forget(&at)?;
        self.lost(&at, led, time);
        Some(led)
    }

    /// A name is not there any more.
    fn forget(&mut self, at: &(Handle, Bytes)) -> Option<(Handle, FileKind)> {
        let led = self.names.remove(at)?;
        self.older.remove(&(led.0, at.clone()));
        Some(led)
    }

    /// An object has lost this name. Changes in a directory may be told later than its end.
    fn lost(&mut self, at: &(Handle, Bytes), (handle, kind): (Handle, FileKind), time: WallTime) {
        let Some(place) = self.places.get_mut(&handle).filter(|place| place.at == *at) else { return };
        let older = self.older.range((handle, (Handle(0), Bytes::new()))..).next().filter(|(other, _)| *other == handle);
        if let Some(older) = older.cloned() {
            self.older.remove(&older);
            *place = Place { at: older.1, since: WallTime(0), gone: None };
            return;
        }
        if kind != FileKind::Directory {
            self.places.remove(&handle);
            return;
        }
        place.gone = Some(time);
        self.gone.push_back(handle);
        if self.gone.len() > GONE_MAX
            && let Some(oldest) = self.gone.pop_front()
            && self.places.get(&oldest).is_some_and(|place| place.gone.is_some())
        {
            self.places.remove(&oldest);
        }
    }

    /// The path of a name at that time, if its directory was in the tree.
    fn path(&self, dir: Handle, name: &[u8], time: WallTime) -> Option<Vec<u8>> {
        let mut names: Vec<&[u8]> = vec![name];
        let mut at = dir;
        while at != self.root {
            let place = self.places.get(&at)?;
            if place.gone.is_some_and(|gone| time.0 > gone.0.saturating_add(SLACK_NS)) {
                return None;
            }
            names.push(&place.at.1);
            at = place.at.0;
            if names.len() > DEPTH_MAX {
                return None;
            }
        }
        names.reverse();
        Some(names.join(&b'/'))
    }

    fn path_of(&self, handle: Handle, time: WallTime) -> Option<Vec<u8>> {
        let (dir, name) = &self.places.get(&handle)?.at;
        self.path(*dir, name, time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: Handle = Handle(1);

    fn created(dir: Handle, name: &'static str, handle: Handle, kind: FileKind, at: i64) -> ToldChange {
        let (name, time) = (Bytes::from_static(name.as_bytes()), WallTime(at * SLACK_NS));
        ToldChange { dir, name, handle, kind: Some(kind), time, ..ToldChange::empty(ChangeKind::Created) }
    }

    fn removed(dir: Handle, name: &'static str, at: i64) -> ToldChange {
        ToldChange { handle: Handle(0), kind: None, what: ChangeKind::Removed, ..created(dir, name, Handle(0), FileKind::File, at) }
    }

    fn written(handle: Handle, at: i64) -> ToldChange {
        ToldChange { handle, time: WallTime(at * SLACK_NS), ..ToldChange::empty(ChangeKind::Written) }
    }

    fn take(tree: &mut WatchedTree, change: ToldChange) -> (Vec<(ChangeKind, String)>, Option<Handle>) {
        let mut told = Vec::new();
        let come = tree.take(change, &mut told);
        (told.into_iter().map(|told| (told.what, String::from_utf8(told.path).unwrap())).collect(), come)
    }

    #[test]
    fn only_what_is_in_the_tree_is_told() {
        let (dir, file, other) = (Handle(2), Handle(3), Handle(9));
        let mut tree = WatchedTree::new(ROOT);
        assert_eq!(take(&mut tree, created(ROOT, "d", dir, FileKind::Directory, 1)), (vec![(ChangeKind::Created, "d".into())], Some(dir)));
        assert_eq!(take(&mut tree, created(dir, "f", file, FileKind::File, 1)), (vec![(ChangeKind::Created, "d/f".into())], None));
        assert_eq!(take(&mut tree, created(other, "f", Handle(4), FileKind::File, 1)), (vec![], None));
        assert_eq!(take(&mut tree, written(file, 1)).0, [(ChangeKind::Written, "d/f".into())]);
        assert_eq!(take(&mut tree, written(Handle(4), 1)).0, []);
        let away = ToldChange {
            to_dir: other,
            to_name: Bytes::from_static(b"g"),
            handle: file,
            kind: Some(FileKind::File),
            what: ChangeKind::Renamed,
            ..removed(dir, "f", 2)
        };
        assert_eq!(take(&mut tree, away).0, [(ChangeKind::Removed, "d/f".into())]);
        assert_eq!(take(&mut tree, written(file, 2)).0, []);
    }

    /// Two servers tell of the move of a directory, in either order.
    #[test]
    fn a_directory_that_moves_between_servers_is_listed_again() {
        for is_new_first in [true, false] {
            let (from, to, dir, file) = (Handle(2), Handle(3), Handle(4), Handle(5));
            let mut tree = WatchedTree::new(ROOT);
            for (above, name, handle) in [(ROOT, "from", from), (ROOT, "to", to), (from, "d", dir)] {
                take(&mut tree, created(above, name, handle, FileKind::Directory, 1));
            }
            take(&mut tree, created(dir, "f", file, FileKind::File, 1));
            let mut both = [created(to, "e", dir, FileKind::Directory, 5), removed(from, "d", 5)];
            if !is_new_first {
                both.reverse();
            }
            let told = both.map(|change| take(&mut tree, change));
            assert!(told.contains(&(vec![(ChangeKind::Created, "to/e".into())], Some(dir))), "{told:?}");
            assert!(told.contains(&(vec![(ChangeKind::Removed, "from/d".into())], None)), "{told:?}");
            assert_eq!(take(&mut tree, written(file, 9)).0, [(ChangeKind::Written, "to/e/f".into())]);
        }
    }

    #[test]
    fn a_file_that_loses_a_name_is_told_by_another_one() {
        let renamed = |name, to_name: &'static str, at| ToldChange {
            to_dir: ROOT,
            to_name: Bytes::from_static(to_name.as_bytes()),
            handle: Handle(3),
            kind: Some(FileKind::File),
            what: ChangeKind::Renamed,
            ..removed(ROOT, name, at)
        };
        let mut tree = WatchedTree::new(ROOT);
        take(&mut tree, created(ROOT, "f", Handle(3), FileKind::File, 1));
        take(&mut tree, created(ROOT, "backup", Handle(3), FileKind::File, 2));
        assert_eq!(take(&mut tree, written(Handle(3), 2)).0, [(ChangeKind::Written, "backup".into())]);
        take(&mut tree, removed(ROOT, "backup", 3));
        assert_eq!(take(&mut tree, written(Handle(3), 3)).0, [(ChangeKind::Written, "f".into())]);
        // The name that stays has another name by then.
        take(&mut tree, created(ROOT, "backup", Handle(3), FileKind::File, 4));
        take(&mut tree, renamed("f", "g", 5));
        take(&mut tree, renamed("g", "h", 6));
        assert_eq!(take(&mut tree, written(Handle(3), 6)).0, [(ChangeKind::Written, "h".into())]);
        // Another file takes its place.
        take(&mut tree, created(ROOT, "h", Handle(4), FileKind::File, 7));
        assert_eq!(take(&mut tree, written(Handle(3), 7)).0, [(ChangeKind::Written, "backup".into())]);
        take(&mut tree, removed(ROOT, "backup", 8));
        assert_eq!(take(&mut tree, written(Handle(3), 8)).0, []);
        take(&mut tree, removed(ROOT, "h", 8));
        assert!(tree.places.is_empty() && tree.older.is_empty() && tree.names.is_empty());
    }

    #[test]
    fn what_leaves_the_tree_is_not_told_for_ever() {
        let (dir, file) = (Handle(2), Handle(3));
        let mut tree = WatchedTree::new(ROOT);
        take(&mut tree, created(ROOT, "d", dir, FileKind::Directory, 1));
        take(&mut tree, created(dir, "f", file, FileKind::File, 1));
        take(&mut tree, removed(ROOT, "d", 3));
        // Told later by another server.
        assert_eq!(take(&mut tree, removed(dir, "f", 3)).0, [(ChangeKind::Removed, "d/f".into())]);
        assert_eq!(take(&mut tree, created(dir, "g", file, FileKind::File, 5)).0, [], "it lives on elsewhere");
        for number in 0..2 * GONE_MAX as u64 {
            let handle = Handle(100 + number);
            take(&mut tree, created(ROOT, "x", handle, FileKind::Directory, 6));
            take(&mut tree, removed(ROOT, "x", 6));
        }
        assert!(tree.places.len() <= GONE_MAX + 2, "what is remembered is bounded");
    }
}
