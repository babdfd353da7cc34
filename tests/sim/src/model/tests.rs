//! What the model allows and what it refuses.

use super::*;
use crate::history::Time;

const A: Name = Name(0);
const B: Name = Name(1);

fn seen(handle: u64, kind: FileKind) -> Seen {
    let (mode, nlink) = if kind == FileKind::Directory { (DIR_MODE, 2) } else { (FILE_MODE, 1) };
    Seen { handle: Handle(handle), kind, mode, nlink, size: 0, mtime: Time::Set(0) }
}

fn then(tree: &Tree, action: Action, answer: Answer) -> Tree {
    match tree.answered(&action, &answer).unwrap_or_else(|mismatch| panic!("{action:?} {answer:?}: {mismatch:?}")) {
        Next::Same => tree.clone(),
        Next::Changed(next) => next,
    }
}

fn create(name: Name) -> Action {
    Action::Create { dir: ROOT_HANDLE, name, exclusive: true, truncate: false }
}

fn rename(from_dir: Handle, from: Name, to_dir: Handle, to: Name, mode: RenameMode) -> Action {
    Action::Rename { from_dir, from, to_dir, to, mode }
}

#[test]
fn a_name_is_made_once() {
    let tree = then(&Tree::new(), create(A), Answer::Created(seen(7, FileKind::File), true));
    assert_eq!(tree.failed(&create(A), Status::Exists), Ok(()));
    assert!(tree.answered(&create(A), &Answer::Created(seen(8, FileKind::File), true)).is_err());
    assert!(tree.answered(&create(B), &Answer::Created(seen(7, FileKind::File), true)).is_err(), "handles are not used again");
    assert!(tree.failed(&create(B), Status::Exists).is_err());
}

#[test]
fn renames_follow_posix() {
    let tree = then(&Tree::new(), create(A), Answer::Created(seen(7, FileKind::File), true));
    let mkdir = Action::Mkdir { dir: ROOT_HANDLE, name: B };
    let tree = then(&tree, mkdir, Answer::Attr(seen(8, FileKind::Directory)));
    let dir = Handle(8);
    let over_dir = rename(ROOT_HANDLE, A, ROOT_HANDLE, B, RenameMode::Replace);
    assert_eq!(tree.failed(&over_dir, Status::IsDirectory), Ok(()));
    let over_file = rename(ROOT_HANDLE, B, ROOT_HANDLE, A, RenameMode::Replace);
    assert_eq!(tree.failed(&over_file, Status::NotDirectory), Ok(()));
    let below_itself = rename(ROOT_HANDLE, B, dir, A, RenameMode::Replace);
    assert_eq!(tree.failed(&below_itself, Status::Invalid), Ok(()));
    let swapped = then(&tree, rename(ROOT_HANDLE, A, ROOT_HANDLE, B, RenameMode::Exchange), Answer::Nothing);
    let lookup = Action::LookupHandle { dir: ROOT_HANDLE, name: A };
    then(&swapped, lookup, Answer::Object(dir, FileKind::Directory));
    let moved = then(&tree, rename(ROOT_HANDLE, A, dir, A, RenameMode::NoReplace), Answer::Nothing);
    let rmdir = Action::Rmdir { dir: ROOT_HANDLE, name: B };
    assert_eq!(moved.failed(&rmdir, Status::NotEmpty), Ok(()));
    assert_eq!(tree.failed(&rmdir, Status::NotEmpty), Err(Mismatch::ShouldNotFail(Statuses::default())));
}

#[test]
fn links_are_counted_and_an_object_without_names_may_be_gone() {
    let file = Handle(7);
    let tree = then(&Tree::new(), create(A), Answer::Created(seen(7, FileKind::File), true));
    let link = Action::Link { handle: file, kind: FileKind::File, dir: ROOT_HANDLE, name: B };
    let two = Seen { nlink: 2, ..seen(7, FileKind::File) };
    assert!(tree.answered(&link, &Answer::Attr(seen(7, FileKind::File))).is_err());
    let tree = then(&tree, link, Answer::Attr(two));
    let tree = then(&tree, Action::Unlink { dir: ROOT_HANDLE, name: A }, Answer::Nothing);
    let getattr = Action::GetAttr { handle: file, held: false };
    assert!(tree.failed(&getattr, Status::Stale).is_err());
    let tree = then(&tree, Action::Unlink { dir: ROOT_HANDLE, name: B }, Answer::Nothing);
    assert_eq!(tree.failed(&getattr, Status::Stale), Ok(()));
    assert!(tree.failed(&Action::GetAttr { handle: file, held: true }, Status::Stale).is_err());
}

#[test]
fn a_stand_in_is_replaced_by_the_handle_that_is_met() {
    let stand_in = Tree::stand_in(3);
    let tree = Tree::new().unanswered(&Action::Mkdir { dir: ROOT_HANDLE, name: A }, stand_in).expect("the name is free");
    let lookup = Action::LookupHandle { dir: ROOT_HANDLE, name: A };
    let tree = then(&tree, lookup.clone(), Answer::Object(Handle(9), FileKind::Directory));
    assert!(tree.answered(&lookup, &Answer::Object(Handle(10), FileKind::Directory)).is_err());
    let inside = Action::Create { dir: Handle(9), name: A, exclusive: true, truncate: false };
    let tree = then(&tree, inside, Answer::Created(seen(11, FileKind::File), true));
    assert!(!tree.nodes.contains_key(&stand_in));
    assert!(tree.unanswered(&Action::Rmdir { dir: ROOT_HANDLE, name: A }, Handle(0)).is_none());
}
