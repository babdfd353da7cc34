//! The end of a tree.
//!
//! ```text
//! slices of a directory ──▶ its directories, each in this way ──▶ slices again ──▶ itself
//! (files and empty                (those on other servers are     (those that are
//!  directories go)                 removed one by one)             empty now go)
//! ```
//! Every request leaves a consistent tree, so it can end anywhere and be begun again.

use bytes::Bytes;
use weft_base::{Credentials, FastSet, FileKind, Handle, Status};
use weft_rt::Runtime;
use weft_wire::ops::{REMOVALS_MAX, RemoveEntriesReply, RemoveEntriesRequest};

use super::{Nodes, TreeNews, next_round};
use crate::knowledge::Touched;
use crate::names::By;
use crate::{Client, Error, Result, run_window};

/// What became of a tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TreeRemoved {
    /// Names that led to anything but a directory, and are gone.
    pub files: u64,
    /// Directories that are gone.
    pub directories: u64,
    /// Names that are left because they could not be removed; the directories above them are left
    /// too and do not count.
    pub failed: u64,
}

/// A directory that is being removed.
#[derive(Default)]
struct Doomed {
    /// There are empty directories in it that its next slices remove.
    has_emptied: bool,
    /// Its names are looked at for the second time.
    is_second: bool,
    /// Directories in it that are left because something in them is.
    left: FastSet<Handle>,
    /// Something in it is left.
    is_left: bool,
    /// Why its names could not be removed.
    refused: Option<Error>,
}

/// A request that is due.
enum Step {
    /// A slice of the names in this directory.
    Slice { node: usize, cookie: u64 },
    /// A name in it. `refused`: why what the name leads to could not be emptied.
    Name { node: usize, name: Bytes, kind: FileKind, refused: Option<Error> },
    /// The root of the tree.
    Root,
}

enum Done {
    Slice(Result<RemoveEntriesReply>),
    Name(Result<()>),
}

impl<R: Runtime> Client<R> {
    /// Removes a directory with everything below it. Each request removes up to some hundred names,
    /// and many directories are worked on at once. It takes the permissions that removing each name
    /// alone takes, and that to list each directory; what is refused is told and left, and
    /// everything else goes. What others remove meanwhile is no error; what they add makes it fail.
    pub async fn remove_tree(
        &self,
        who: &Credentials,
        parent: Handle,
        name: &Bytes,
        dir: Handle,
        mut tell: impl FnMut(TreeNews<'_, TreeRemoved>),
    ) -> TreeRemoved {
        let mut removal = Removal { nodes: Nodes::new(dir, Doomed::default()), due: Vec::new(), removed: TreeRemoved::default() };
        removal.due.push(Step::Slice { node: 0, cookie: 0 });
        while !removal.due.is_empty() {
            let round = next_round(&mut removal.due);
            let flows = round.iter().map(|step| self.remove_step(who, (parent, name), &removal.nodes, step));
            let done = run_window(flows, round.len()).await;
            for (step, done) in round.into_iter().zip(done) {
                removal.take(step, done, &mut tell);
            }
            tell(TreeNews::Progress(&removal.removed));
        }
        removal.removed
    }

    async fn remove_step(&self, who: &Credentials, (parent, root): (Handle, &Bytes), nodes: &Nodes<Doomed>, step: &Step) -> Done {
        match step {
            Step::Slice { node, cookie } => Done::Slice(self.remove_entries(who, nodes.slots[*node].dir, *cookie).await),
            Step::Name { node, name, kind: FileKind::Directory, .. } => Done::Name(self.rmdir(who, nodes.slots[*node].dir, name).await),
            Step::Name { node, name, .. } => Done::Name(self.unlink(who, nodes.slots[*node].dir, name).await),
            Step::Root => Done::Name(self.rmdir(who, parent, root).await),
        }
    }

    /// Removes a slice of the names behind a cookie, as one change.
    async fn remove_entries(&self, who: &Credentials, dir: Handle, cookie: u64) -> Result<RemoveEntriesReply> {
        let flow = self.flow("remove entries", dir);
        let _op = weft_trace::operation(weft_trace::event::CLIENT_UNLINK);
        // Nobody follows which names went: what was known is forgotten when the guard ends.
        let change = self.changing(Touched::Everything(dir));
        self.announce_before(&change).await;
        let make = |at| RemoveEntriesRequest { at, cookie, entries_max: REMOVALS_MAX as u32, who: who.clone() };
        let reply = self.call_in_dir(flow, dir, By::Cookie(cookie), make).await?;
        if reply.until <= cookie {
            return Err(flow.error(Status::BadMessage));
        }
        Ok(reply)
    }
}

struct Removal {
    nodes: Nodes<Doomed>,
    due: Vec<Step>,
    removed: TreeRemoved,
}

impl Removal {
    fn take(&mut self, step: Step, done: Done, tell: &mut impl FnMut(TreeNews<'_, TreeRemoved>)) {
        match (step, done) {
            (Step::Slice { node, .. }, Done::Slice(outcome)) => {
                match outcome {
                    Ok(reply) => self.take_slice(node, reply, tell),
                    // Who has removed it has looked after the rest.
                    Err(error) if error.is_gone() => {}
                    // It may be empty all the same.
                    Err(error) => self.nodes.slots[node].value.refused = Some(error),
                }
                self.finish(node);
            }
            (Step::Name { node, name, kind, refused }, Done::Name(outcome)) => {
                self.take_name(Some((node, &name)), kind, refused, outcome, tell);
                self.finish(node);
            }
            (Step::Root, Done::Name(outcome)) => {
                let refused = self.nodes.slots[0].value.refused;
                self.take_name(None, FileKind::Directory, refused, outcome, tell);
            }
            (Step::Name { .. } | Step::Root, Done::Slice(_)) | (Step::Slice { .. }, Done::Name(_)) => unreachable!("as it was asked"),
        }
    }

    fn take_slice(&mut self, node: usize, reply: RemoveEntriesReply, tell: &mut impl FnMut(TreeNews<'_, TreeRemoved>)) {
        self.removed.files += u64::from(reply.files);
        self.removed.directories += u64::from(reply.directories);
        if reply.until < u64::MAX {
            // Below what comes now: that is done first.
            self.nodes.slots[node].open += 1;
            self.due.push(Step::Slice { node, cookie: reply.until });
        }
        for entry in reply.left {
            let status = entry.status();
            let at = &self.nodes.slots[node];
            match entry.kind {
                FileKind::Directory if at.value.left.contains(&entry.handle) => {}
                FileKind::Directory if !at.value.is_second => {
                    let node = self.nodes.add(node, entry.name, entry.handle, Doomed::default());
                    self.due.push(Step::Slice { node, cookie: 0 });
                }
                // Asked for alone it is waited for, or it takes a transaction.
                kind if kind == FileKind::Directory || status == Status::WrongServer || status.is_transient() => {
                    self.nodes.slots[node].open += 1;
                    self.due.push(Step::Name { node, name: entry.name, kind, refused: None });
                }
                _ => self.fail(Some((node, &entry.name)), Error::local(status, "remove", at.dir), tell),
            }
        }
    }

    fn take_name(
        &mut self,
        at: Option<(usize, &Bytes)>,
        kind: FileKind,
        refused: Option<Error>,
        outcome: Result<()>,
        tell: &mut impl FnMut(TreeNews<'_, TreeRemoved>),
    ) {
        match outcome {
            Ok(()) if kind == FileKind::Directory => self.removed.directories += 1,
            Ok(()) => self.removed.files += 1,
            Err(error) if error.is_gone() => {}
            Err(error) => {
                let why = refused.filter(|_| error.status == Status::NotEmpty).unwrap_or(error);
                self.fail(at, why, tell);
            }
        }
    }

    fn fail(&mut self, at: Option<(usize, &Bytes)>, error: Error, tell: &mut impl FnMut(TreeNews<'_, TreeRemoved>)) {
        self.removed.failed += 1;
        let path = match at {
            Some((node, name)) => {
                self.nodes.slots[node].value.is_left = true;
                self.nodes.path(node, Some(name))
            }
            None => Vec::new(),
        };
        tell(TreeNews::Failed { path: &path, error });
    }

    /// A step of a directory is done.
    fn finish(&mut self, node: usize) {
        let mut node = node;
        loop {
            let at = &mut self.nodes.slots[node];
            at.open -= 1;
            if at.open > 0 {
                return;
            }
            if at.value.has_emptied && !at.value.is_second {
                at.value.is_second = true;
                at.open = 1;
                return self.due.push(Step::Slice { node, cookie: 0 });
            }
            let (dir, is_left, refused) = (at.dir, at.value.is_left, at.value.refused);
            let Some(above) = at.above else {
                if !is_left {
                    self.due.push(Step::Root);
                }
                return;
            };
            let name = at.name.clone();
            let upper = &mut self.nodes.slots[above];
            if is_left {
                upper.value.is_left = true;
                upper.value.left.insert(dir);
            } else if upper.dir.server() == dir.server() && refused.is_none() {
                upper.value.has_emptied = true;
            } else {
                upper.open += 1;
                self.due.push(Step::Name { node: above, name, kind: FileKind::Directory, refused });
            }
            self.nodes.forget(node);
            node = above;
        }
    }
}
