//! Changes of all objects of a tree. A directory is changed before its names are read, so none is
//! missed; what it holds follows, page by page. Every request leaves a tree of which a part is
//! changed, so it can end anywhere and be begun again.

use std::cell::RefCell;

use weft_base::{Attr, Credentials, FastSet, FileKind, Handle, MILLISECOND, MODE_PROJECT, SECOND, Status};
use weft_rt::Runtime;

use super::{Nodes, TreeNews, next_round};
use crate::names::Wanted;
use crate::{Client, DirItem, Error, Result, SetAttr, run_window};

/// Bytes of one page of a listing.
const PAGE_BYTES: u32 = 64 << 10;
/// Objects of one page that are changed at once.
const OBJECTS_AT_ONCE: usize = 64;
/// Mounts close files a moment after their programs: for so long a file that is open for writing is
/// waited for, in nanoseconds.
const PATIENCE_NS: u64 = 5 * SECOND;
const AGAIN_NS: u64 = 20 * MILLISECOND;

/// What becomes of each object of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TreeSetting {
    /// It is sealed, or not any more. It takes the ownership of each object.
    Seal(bool),
    /// It counts for this project; 0: for none. That takes root.
    Project(u32),
}

/// What became of a tree that was to be changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TreeOutcome {
    /// Objects that have changed.
    pub changed: u64,
    /// Objects that were so before.
    pub as_before: u64,
    /// Objects that are left as they were; what is below a directory among them does not count.
    pub failed: u64,
}

/// A step of a directory that is due.
#[derive(Clone, Copy)]
enum Step {
    Itself { node: usize },
    Page { node: usize, cookie: u64 },
}

/// What has come of a step: the rest of the page behind the cookie, and what could not be done.
struct Done {
    objects: TreeOutcome,
    directories: Vec<DirItem>,
    next: Option<u64>,
    failed: Vec<(Option<DirItem>, Error)>,
}

impl<R: Runtime> Client<R> {
    /// Changes an object and, if it is a directory, all below it. Each directory must allow to be
    /// listed; what is refused is told and left, and everything else is done.
    pub async fn set_tree(
        &self,
        who: &Credentials,
        (root, kind): (Handle, FileKind),
        setting: TreeSetting,
        mut tell: impl FnMut(TreeNews<'_, TreeOutcome>),
    ) -> TreeOutcome {
        let mut all = TreeOutcome::default();
        let mut nodes = Nodes::new(root, ());
        // What has several names is changed by one of them.
        let seen = RefCell::new(FastSet::default());
        let mut due = vec![Step::Itself { node: 0 }];
        while !due.is_empty() {
            let round = next_round(&mut due);
            let flows = round.iter().map(|step| self.set_step(who, (&nodes, &seen), *step, setting));
            let done = run_window(flows, round.len()).await;
            for (step, done) in round.into_iter().zip(done) {
                let (Step::Itself { node } | Step::Page { node, .. }) = step;
                all.changed += done.objects.changed;
                all.as_before += done.objects.as_before;
                for (entry, error) in &done.failed {
                    all.failed += 1;
                    let path = nodes.path(node, entry.as_ref().map(|entry| &entry.name[..]));
                    tell(TreeNews::Failed { path: &path, error: *error });
                }
                if let Some(cookie) = done.next.filter(|_| kind == FileKind::Directory) {
                    nodes.slots[node].open += 1;
                    due.push(Step::Page { node, cookie });
                }
                for entry in done.directories {
                    let node = nodes.add(node, entry.name, entry.handle, ());
                    due.push(Step::Itself { node });
                }
                nodes.done(node, |_, _| {});
            }
            tell(TreeNews::Progress(&all));
        }
        all
    }

    async fn set_step(
        &self,
        who: &Credentials,
        (nodes, seen): (&Nodes<()>, &RefCell<FastSet<Handle>>),
        step: Step,
        setting: TreeSetting,
    ) -> Done {
        let mut done = Done { objects: TreeOutcome::default(), directories: Vec::new(), next: None, failed: Vec::new() };
        match step {
            Step::Itself { node } => match self.set_one(who, nodes.slots[node].dir, None, setting).await {
                Ok(has_changed) => {
                    done.objects.count(has_changed);
                    done.next = Some(0);
                }
                // As below. The root of the tree somebody has named.
                Err(error) if error.is_gone() && nodes.slots[node].above.is_some() => {}
                Err(error) => done.failed.push((None, error)),
            },
            Step::Page { node, cookie } => match self.list(who, nodes.slots[node].dir, cookie, PAGE_BYTES, Wanted::SizesSoon).await {
                Ok(page) => {
                    done.next = page.entries.last().filter(|_| !page.end).map(|last| last.cookie);
                    let (directories, mut others): (Vec<_>, Vec<_>) =
                        page.entries.into_iter().partition(|entry| entry.kind == FileKind::Directory);
                    others.retain(|entry| entry.attr.is_none_or(|attr| attr.nlink == 1) || seen.borrow_mut().insert(entry.handle));
                    done.directories = directories;
                    let flows = others.iter().map(|entry| self.set_one(who, entry.handle, entry.attr, setting));
                    let outcomes = run_window(flows, OBJECTS_AT_ONCE).await;
                    for (entry, outcome) in others.into_iter().zip(outcomes) {
                        match outcome {
                            Ok(has_changed) => done.objects.count(has_changed),
                            // Removed since its name was read: not where seals are set.
                            Err(error) if error.is_gone() => {}
                            Err(error) => done.failed.push((Some(entry), error)),
                        }
                    }
                }
                Err(error) if error.is_gone() && nodes.slots[node].above.is_some() => {}
                Err(error) => done.failed.push((None, error)),
            },
        }
        done
    }

    /// True if the object was not so before, as far as that is known.
    async fn set_one(&self, who: &Credentials, handle: Handle, known: Option<Attr>, setting: TreeSetting) -> Result<bool> {
        let attr = match known {
            Some(attr) => attr,
            None => self.getattr(handle).await?,
        };
        match setting {
            TreeSetting::Seal(seals) => self.seal_one(who, attr, seals).await,
            TreeSetting::Project(0) if attr.mode & MODE_PROJECT == 0 => Ok(false),
            TreeSetting::Project(project) => self.set_project(who, handle, project).await.map(|()| true),
        }
    }

    async fn seal_one(&self, who: &Credentials, mut attr: Attr, seals: bool) -> Result<bool> {
        let (handle, until) = (attr.handle, self.rt().now() + PATIENCE_NS);
        while attr.is_sealed() != seals {
            match self.setattr(who, handle, &SetAttr { seal: Some(seals), ..SetAttr::default() }).await {
                Err(error) if error.status == Status::BeingWritten && self.rt().now() < until => {
                    self.rt().sleep_until(self.rt().now() + AGAIN_NS).await;
                    // It settles what a writer who was lost has left.
                    attr = self.getattr(handle).await?;
                }
                outcome => return outcome.map(|_| true),
            }
        }
        Ok(false)
    }
}

impl TreeOutcome {
    fn count(&mut self, has_changed: bool) {
        *(if has_changed { &mut self.changed } else { &mut self.as_before }) += 1;
    }
}
