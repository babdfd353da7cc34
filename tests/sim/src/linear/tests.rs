//! Histories that are, and that are not, linearizable.

use super::*;
use crate::history::{RenameMode, Seen, Time};
use crate::model::{DIR_MODE, FILE_MODE};
use weft_base::{Nanos, ROOT_HANDLE};

const A: Name = Name(0);
const B: Name = Name(1);

/// Begins and ends operations in the given order: the same number twice is an operation from
/// its first to its second place.
fn history(order: &[usize], operations: &[(Action, Outcome)]) -> History {
    let mut history = History::new();
    let mut numbers = std::collections::BTreeMap::new();
    for operation in order {
        let (action, outcome) = operations[*operation].clone();
        match numbers.remove(operation) {
            None => drop(numbers.insert(*operation, history.begin(*operation, action, Nanos(0)))),
            Some(number) => history.end(number, outcome, Nanos(0)),
        }
    }
    history
}

fn create(name: Name, handle: u64) -> (Action, Outcome) {
    let seen = Seen { handle: Handle(handle), kind: FileKind::File, mode: FILE_MODE, nlink: 1, size: 0, mtime: Time::Set(0) };
    let action = Action::Create { dir: ROOT_HANDLE, name, exclusive: true, truncate: false };
    (action, Outcome::Done(Answer::Created(seen, true)))
}

fn look(name: Name, found: Option<u64>) -> (Action, Outcome) {
    let outcome = match found {
        Some(handle) => Outcome::Done(Answer::Object(Handle(handle), FileKind::File)),
        None => Outcome::Failed(Status::NotFound),
    };
    (Action::LookupHandle { dir: ROOT_HANDLE, name }, outcome)
}

fn rename(from: Name, to: Name) -> (Action, Outcome) {
    let action = Action::Rename { from_dir: ROOT_HANDLE, from, to_dir: ROOT_HANDLE, to, mode: RenameMode::Replace };
    (action, Outcome::Done(Answer::Nothing))
}

fn verdict(order: &[usize], operations: &[(Action, Outcome)]) -> bool {
    match check(&history(order, operations), Allowances::default()) {
        Verdict::Linearizable => true,
        Verdict::Violation(_) => false,
        Verdict::Undecided(states) => panic!("undecided after {states} states"),
    }
}

#[test]
fn order_in_real_time_counts() {
    let operations = [create(A, 7), look(A, None)];
    assert!(verdict(&[1, 1, 0, 0], &operations), "the look came first");
    assert!(verdict(&[0, 1, 1, 0], &operations), "at the same time");
    assert!(!verdict(&[0, 0, 1, 1], &operations), "the look came later");
}

#[test]
fn a_rename_never_shows_both_names_gone() {
    let operations = [create(A, 7), rename(A, B), look(A, None), look(B, None)];
    assert!(!verdict(&[0, 0, 1, 2, 2, 3, 3, 1], &operations));
    assert!(verdict(&[0, 0, 1, 3, 3, 2, 2, 1], &operations));
}

#[test]
fn what_was_not_answered_may_have_happened_once() {
    let (action, _) = create(A, 7);
    let lost = (action, Outcome::Unknown(Status::TimedOut));
    let operations = [lost, look(A, Some(9)), look(A, None), rename(A, B), look(A, Some(10))];
    assert!(verdict(&[0, 0, 2, 2, 1, 1, 3, 3, 2, 2], &operations), "late, and then renamed away");
    assert!(!verdict(&[0, 0, 1, 1, 3, 3, 4, 4], &operations), "it cannot happen twice");
}

#[test]
fn listings_in_pages_are_checked_name_by_name() {
    let list = |names: &[(Name, u64)], one_page| {
        let entries = names.iter().map(|(name, handle)| (*name, Handle(*handle), FileKind::File)).collect();
        (Action::ReadDir { dir: ROOT_HANDLE, one_page }, Outcome::Done(Answer::Listing(entries)))
    };
    // Meanwhile A becomes B: in pages both may be seen, at one instant never.
    let both = [(A, 7), (B, 7)];
    assert!(verdict(&[0, 0, 1, 2, 2, 1], &[create(A, 7), list(&both, false), rename(A, B)]));
    assert!(!verdict(&[0, 0, 1, 2, 2, 1], &[create(A, 7), list(&both, true), rename(A, B)]));
    assert!(!verdict(&[0, 0, 1, 1], &[create(A, 7), list(&[], false)]), "it was there all the time");
}

#[test]
fn what_a_power_cut_may_take_is_not_missed() {
    let operations = [create(A, 7), create(B, 8), look(A, Some(7)), look(B, None)];
    let history = history(&[0, 0, 1, 1, 2, 2, 3, 3], &operations);
    assert!(matches!(check(&history, Allowances::default()), Verdict::Violation(_)));
    let allow = Allowances { lost_between: Some((3, 5)), ..Allowances::default() };
    assert_eq!(check(&history, allow), Verdict::Linearizable);
    let allow = Allowances { lost_between: Some((5, 6)), ..Allowances::default() };
    assert!(matches!(check(&history, allow), Verdict::Violation(_)));
}

#[test]
fn what_was_seen_before_a_power_cut_tells_which_object_it_is() {
    let (action, _) = create(A, 7);
    let unanswered = (action, Outcome::Unknown(Status::TimedOut));
    let remove = (Action::RemoveXattr { handle: Handle(7) }, Outcome::Failed(Status::NoAttribute));
    let history = history(&[0, 0, 1, 1, 2, 2], &[unanswered, look(A, Some(7)), remove]);
    let allow = Allowances { lost_between: Some((3, 4)), ..Allowances::default() };
    assert_eq!(check(&history, allow), Verdict::Linearizable);
}

#[test]
fn directories_are_counted() {
    let dir = Seen { handle: Handle(5), kind: FileKind::Directory, mode: DIR_MODE, nlink: 2, size: 0, mtime: Time::Set(0) };
    let mkdir = (Action::Mkdir { dir: ROOT_HANDLE, name: A }, Outcome::Done(Answer::Attr(dir)));
    let root = |nlink, size| {
        let seen = Seen { handle: ROOT_HANDLE, kind: FileKind::Directory, mode: DIR_MODE, nlink, size, mtime: Time::Set(0) };
        (Action::GetAttr { handle: ROOT_HANDLE, held: false }, Outcome::Done(Answer::Attr(seen)))
    };
    assert!(verdict(&[0, 0, 1, 1], &[mkdir.clone(), root(3, 1)]));
    assert!(!verdict(&[0, 0, 1, 1], &[mkdir.clone(), root(2, 1)]), "the entry without the link of its directory");
    assert!(!verdict(&[0, 1, 1, 2, 2, 0], &[mkdir, root(3, 1), root(2, 0)]), "there, and then not there again");
}
