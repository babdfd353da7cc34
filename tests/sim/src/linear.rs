//! Is a history linearizable? Searches for an order of its operations that keeps every operation
//! between its beginning and its end and that the reference model explains (Wing and Gong 1993,
//! with the memo of Lowe 2017): all states that can be reached with the same operations done are
//! tried once.
//!
//! Operations without an answer may have happened at any time after they began, or never.
//! Operations that the client library makes of several requests (a lookup whose inode is elsewhere,
//! a listing in pages) are taken apart into steps that are atomic each.

use std::fmt::Write;

use weft_base::{FastSet, FileKind, Handle, Status};

use crate::history::{Action, Answer, Event, History, Name, Outcome};
use crate::model::{Mismatch, Next, Statuses, Tree};

/// What the search found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// There is such an order.
    Linearizable,
    /// There is none; the words show how far the best attempt came.
    Violation(String),
    /// The search was given up after so many states.
    Undecided(usize),
}

/// What a run allows beyond a perfect file system.
#[derive(Clone, Copy, Debug, Default)]
pub struct Allowances {
    /// Errors of the surroundings (a full disk) that any operation may answer, and that then have
    /// no effect.
    pub refusals: Statuses,
    /// Operations that began between these positions and changed something may have been lost (a
    /// power cut within the batch interval); what they answered is compared with nothing.
    pub lost_between: Option<(u64, u64)>,
}

/// Most steps of one history.
const STEPS_MAX: usize = 512;
/// The search is given up after so many states.
const STATES_MAX: usize = 400_000;

type Done = [u64; STEPS_MAX / 64];

/// Checks all metadata operations of a history.
pub fn check(history: &History, allow: Allowances) -> Verdict {
    let steps = steps_of(history, allow);
    if steps.len() > STEPS_MAX {
        return Verdict::Undecided(0);
    }
    let untracked = untracked_files(history);
    let mut search =
        Search { steps: &steps, allow, untracked, seen: FastSet::default(), visited: 0, best: (0, [0; STEPS_MAX / 64], Tree::new()) };
    match search.run(Tree::of(history), [0; STEPS_MAX / 64]) {
        Some(true) => Verdict::Linearizable,
        Some(false) => Verdict::Violation(search.explain()),
        None => Verdict::Undecided(search.visited),
    }
}

/// One atomic step.
#[derive(Clone, Debug)]
struct Step {
    /// The event it is a part of.
    event: usize,
    action: Action,
    result: StepResult,
    begin: u64,
    end: u64,
}

#[derive(Clone, Debug)]
enum StepResult {
    Done(Answer),
    Failed(Status),
    /// May have happened, at most once.
    Optional,
    /// Happened, and made this object if it makes any, but may have been lost since.
    Losable(Handle),
    /// Was seen in a moment of which all may have been lost since. It says which object a stand-in
    /// is, and is compared with nothing.
    Identifies(Answer),
}

impl Step {
    fn is_required(&self) -> bool {
        matches!(self.result, StepResult::Done(_) | StepResult::Failed(_))
    }
}

/// Takes the history apart into atomic steps, in the order of their beginnings.
fn steps_of(history: &History, allow: Allowances) -> Vec<Step> {
    let mut steps = Vec::new();
    for (number, event) in history.events().iter().enumerate() {
        let mut add = |action: Action, mut result: StepResult| {
            // What a client has set of a file that it delayed may have gone with it; nobody else
            // has seen it.
            match &action {
                Action::GetAttr { handle, .. } if history.may_be_lost(event.client, *handle) => return,
                Action::SetMode { handle, .. } | Action::SetTime { handle, .. }
                    if history.may_be_lost(event.client, *handle) && matches!(result, StepResult::Done(_)) =>
                {
                    result = StepResult::Losable(*handle);
                }
                _ => {}
            }
            let mut step = Step { event: number, action, result, begin: event.begin, end: event.end };
            if !step.is_required() {
                step.end = u64::MAX;
            }
            steps.push(step);
        };
        let losable = allow.lost_between.is_some_and(|(from, to)| (from..to).contains(&event.begin));
        match (&event.action, &event.outcome) {
            (
                Action::Close { .. }
                | Action::Write { .. }
                | Action::Content { .. }
                | Action::Allocate { .. }
                | Action::Read { .. }
                | Action::Fsync { .. }
                | Action::SyncAll,
                _,
            ) => {}
            (action, Outcome::Unknown(_) | Outcome::Running) => {
                if action.changes() {
                    add(action.clone(), StepResult::Optional);
                }
            }
            (_, Outcome::Failed(status)) if allow.refusals.contains(*status) => {}
            (Action::Create { truncate: true, .. }, Outcome::Done(Answer::Created(seen, false))) if losable => {
                add(Action::SetSize { handle: seen.handle, size: 0 }, StepResult::Optional);
            }
            (Action::Lookup { dir, name }, Outcome::Done(Answer::Attr(seen))) if losable => {
                let found = Answer::Object(seen.handle, seen.kind);
                add(Action::LookupHandle { dir: *dir, name: *name }, StepResult::Identifies(found));
            }
            (Action::LookupHandle { .. }, Outcome::Done(found)) if losable => {
                add(event.action.clone(), StepResult::Identifies(found.clone()));
            }
            (action, Outcome::Done(answer)) if losable => {
                if action.changes() && !matches!(answer, Answer::Created(_, false)) {
                    let handle = match answer {
                        Answer::Attr(seen) | Answer::Created(seen, _) => seen.handle,
                        _ => Handle(0),
                    };
                    add(action.clone(), StepResult::Losable(handle));
                }
            }
            (_, Outcome::Failed(_)) if losable => {}
            (Action::Lookup { dir, name }, Outcome::Done(Answer::Attr(seen))) => {
                add(Action::LookupHandle { dir: *dir, name: *name }, StepResult::Done(Answer::Object(seen.handle, seen.kind)));
                add(Action::GetAttr { handle: seen.handle, held: false }, StepResult::Done(Answer::Attr(*seen)));
            }
            (Action::Create { dir, name, truncate, .. }, Outcome::Done(Answer::Created(seen, false))) => {
                add(Action::LookupHandle { dir: *dir, name: *name }, StepResult::Done(Answer::Object(seen.handle, seen.kind)));
                let then = match truncate {
                    true if seen.kind == FileKind::File => Action::SetSize { handle: seen.handle, size: 0 },
                    _ => Action::GetAttr { handle: seen.handle, held: false },
                };
                add(then, StepResult::Done(Answer::Attr(*seen)));
            }
            // A creation that had to be asked for twice is answered with attributes of a later
            // moment.
            (Action::Create { .. }, Outcome::Done(Answer::Created(seen, true))) => {
                add(event.action.clone(), StepResult::Done(Answer::Created(*seen, true)));
                if let Action::Create { dir, name, .. } = &event.action
                    && history.may_never_be_told(event, seen.handle)
                {
                    add(Action::Unlink { dir: *dir, name: *name }, StepResult::Optional);
                }
                add(Action::GetAttr { handle: seen.handle, held: false }, StepResult::Done(Answer::Attr(*seen)));
            }
            (Action::Mkdir { dir, name }, Outcome::Done(Answer::Attr(seen))) if history.may_be_lost(event.client, seen.handle) => {
                add(event.action.clone(), StepResult::Done(Answer::Attr(*seen)));
                add(Action::Rmdir { dir: *dir, name: *name }, StepResult::Optional);
            }
            (Action::ReadDir { dir, one_page }, Outcome::Done(Answer::Listing(entries))) if !one_page || history.splits => {
                for name in names_of(history, *dir) {
                    let look = Action::LookupHandle { dir: *dir, name };
                    match entries.iter().find(|(listed, _, _)| *listed == name) {
                        Some((_, handle, kind)) => add(look, StepResult::Done(Answer::Object(*handle, *kind))),
                        None => add(look, StepResult::Failed(Status::NotFound)),
                    }
                }
            }
            // The attributes are asked for after the change if data servers or another metadata
            // server know them.
            (
                Action::Link { handle, .. } | Action::SetMode { handle, .. } | Action::SetTime { handle, .. } | Action::Open { handle },
                Outcome::Done(Answer::Attr(seen)),
            ) if seen.kind != FileKind::Directory || history.splits => {
                add(event.action.clone(), StepResult::Done(Answer::Nothing));
                add(Action::GetAttr { handle: *handle, held: false }, StepResult::Done(Answer::Attr(*seen)));
            }
            (action, Outcome::Done(answer)) => add(action.clone(), StepResult::Done(answer.clone())),
            (action, Outcome::Failed(status)) => add(action.clone(), StepResult::Failed(*status)),
        }
    }
    steps
}

/// All names that the history mentions in a directory.
fn names_of(history: &History, dir: Handle) -> Vec<Name> {
    let mut names: Vec<Name> = Vec::new();
    for event in history.events() {
        match &event.action {
            Action::Create { dir: at, name, .. }
            | Action::Mknod { dir: at, name }
            | Action::Symlink { dir: at, name, .. }
            | Action::Mkdir { dir: at, name }
            | Action::Link { dir: at, name, .. }
                if *at == dir =>
            {
                names.push(*name);
            }
            Action::Rename { from_dir, from, to_dir, to, .. } => {
                names.extend((*from_dir == dir).then_some(*from));
                names.extend((*to_dir == dir).then_some(*to));
            }
            Action::ReadDir { dir: at, .. } if *at == dir => {
                if let Outcome::Done(Answer::Listing(entries)) = &event.outcome {
                    names.extend(entries.iter().map(|(name, _, _)| *name));
                }
            }
            _ => {}
        }
    }
    names.sort();
    names.dedup();
    names
}

/// Files whose size the tree model cannot know: they were written to. `None`: all files, because a
/// truncation by name has no answer.
fn untracked_files(history: &History) -> Option<Vec<Handle>> {
    let mut files = Vec::new();
    for Event { action, outcome, .. } in history.events() {
        match action {
            // Of which file is not known.
            Action::Content { handle: Handle(0), .. } => return None,
            Action::Write { handle, .. } | Action::Content { handle, .. } | Action::Allocate { handle, .. } => files.push(*handle),
            Action::Create { truncate: true, .. } if !matches!(outcome, Outcome::Done(_) | Outcome::Failed(_)) => return None,
            _ => {}
        }
    }
    files.sort();
    files.dedup();
    Some(files)
}

struct Search<'a> {
    steps: &'a [Step],
    allow: Allowances,
    untracked: Option<Vec<Handle>>,
    seen: FastSet<(Done, u64)>,
    visited: usize,
    /// The attempt with most required steps done.
    best: (usize, Done, Tree),
}

impl Search<'_> {
    /// `Some(found)`, or `None` if it takes too long.
    fn run(&mut self, tree: Tree, done: Done) -> Option<bool> {
        let mut stack = vec![(tree, done)];
        while let Some((tree, mut done)) = stack.pop() {
            self.visited += 1;
            if self.visited > STATES_MAX {
                return None;
            }
            let mut branches = Vec::new();
            loop {
                branches.clear();
                let mut progress = false;
                let earliest_end = self.earliest_end(&done);
                for (number, step) in self.steps.iter().enumerate() {
                    if step.begin > earliest_end {
                        break;
                    }
                    if is_done(&done, number) {
                        continue;
                    }
                    match self.attempt(&tree, number) {
                        // Whatever changes nothing and is possible now may as well happen now.
                        Ok(Next::Same) => {
                            set_done(&mut done, number);
                            progress = true;
                        }
                        Ok(Next::Changed(next)) => branches.push((number, next)),
                        Err(_) => {}
                    }
                }
                if !progress {
                    break;
                }
            }
            let left = (0..self.steps.len()).filter(|number| self.steps[*number].is_required() && !is_done(&done, *number)).count();
            if left == 0 {
                return Some(true);
            }
            let required = self.steps.iter().filter(|step| step.is_required()).count() - left;
            if required >= self.best.0 {
                self.best = (required, done, tree.clone());
            }
            // Steps with a known answer are tried first (they are pushed last), of these the one
            // that ends first.
            branches.sort_by_key(|(number, _)| std::cmp::Reverse((!self.steps[*number].is_required(), self.steps[*number].end)));
            for (number, mut next) in branches {
                let mut after = done;
                set_done(&mut after, number);
                self.drop_sizes(&mut next);
                if self.seen.insert((after, next.fingerprint())) {
                    stack.push((next, after));
                }
            }
        }
        Some(false)
    }

    /// No step that begins after this may be next.
    fn earliest_end(&self, done: &Done) -> u64 {
        let left = self.steps.iter().enumerate().filter(|(number, _)| !is_done(done, *number));
        left.map(|(_, step)| step.end).min().unwrap_or(u64::MAX)
    }

    fn attempt(&self, tree: &Tree, number: usize) -> Result<Next, Mismatch> {
        let step = &self.steps[number];
        match &step.result {
            StepResult::Done(answer) | StepResult::Identifies(answer) => tree.answered(&step.action, answer),
            StepResult::Failed(status) => tree.failed(&step.action, *status).map(|()| Next::Same),
            StepResult::Optional => self.attempt_optional(tree, &step.action, Tree::stand_in(number)),
            StepResult::Losable(handle) => self.attempt_optional(tree, &step.action, *handle),
        }
    }

    fn attempt_optional(&self, tree: &Tree, action: &Action, fresh: Handle) -> Result<Next, Mismatch> {
        match tree.unanswered(action, fresh) {
            Some(next) if next.fingerprint() != tree.fingerprint() => Ok(Next::Changed(next)),
            _ => Err(Mismatch::ShouldFail(self.allow.refusals)),
        }
    }

    fn drop_sizes(&self, tree: &mut Tree) {
        match &self.untracked {
            Some(files) => files.iter().for_each(|handle| tree.ignore_size(*handle)),
            None => tree.ignore_sizes(),
        }
    }

    fn explain(&self) -> String {
        let (_, done, tree) = &self.best;
        let mut text = String::from("no order of the operations explains the answers; the best attempt ends in the state\n");
        let _ = writeln!(text, "{tree}where none of these can be next:");
        let earliest_end = self.earliest_end(done);
        for (number, step) in self.steps.iter().enumerate() {
            if is_done(done, number) || step.begin > earliest_end {
                continue;
            }
            let event = step.event;
            match self.attempt(tree, number) {
                Ok(_) => {
                    let _ = writeln!(text, "  #{event} {:?} -> {:?}: possible, but leads nowhere", step.action, step.result);
                }
                Err(mismatch) => {
                    let _ = writeln!(text, "  #{event} {:?} -> {:?}: {mismatch:?}", step.action, step.result);
                }
            }
        }
        text
    }
}

fn is_done(done: &Done, number: usize) -> bool {
    done[number / 64] >> (number % 64) & 1 == 1
}

fn set_done(done: &mut Done, number: usize) {
    done[number / 64] |= 1 << (number % 64);
}

#[cfg(test)]
mod tests;
