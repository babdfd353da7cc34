//! What follows from answers to own changes, and what does not.

use super::*;

const DIR: Handle = Handle(7);

fn known() -> KnownDirectories {
    let known = KnownDirectories::default();
    known.set_age_max(1000);
    known
}

fn is_absent(known: &KnownDirectories, dir: Handle, name: &[u8], now: Nanos) -> bool {
    known.absent(dir, name, now).is_some()
}

fn attr(version: u64) -> Attr {
    test_attr(DIR, version)
}

fn change(version: u64) -> DirChange {
    DirChange { version, time: WallTime(version as i64) }
}

#[test]
fn names_of_an_own_directory_are_known() {
    let known = known();
    assert!(!is_absent(&known, DIR, b"x", Nanos(0)), "nothing is known of a directory that others made");
    known.made(&attr(5), Nanos(0));
    assert!(is_absent(&known, DIR, b"x", Nanos(999)));
    assert!(!is_absent(&known, DIR, b"x", Nanos(1000)), "knowledge ends with its time");
    known.created(DIR, b"x", change(6), Nanos(900));
    assert!(!is_absent(&known, DIR, b"x", Nanos(900)));
    assert!(is_absent(&known, DIR, b"y", Nanos(1899)), "every proof extends it");
    known.removed(DIR, b"x", change(7), Nanos(1000));
    assert!(is_absent(&known, DIR, b"x", Nanos(1000)));
}

#[test]
fn a_name_that_moved_is_known_at_its_new_place() {
    let known = known();
    known.made(&attr(5), Nanos(0));
    known.created(DIR, b".x.tmp", change(6), Nanos(1));
    known.renamed(DIR, (b".x.tmp", b"x"), false, change(7), Nanos(2));
    assert!(is_absent(&known, DIR, b".x.tmp", Nanos(3)) && !is_absent(&known, DIR, b"x", Nanos(3)));
    known.created(DIR, b"y", change(8), Nanos(4));
    known.renamed(DIR, (b"y", b"x"), true, change(9), Nanos(5));
    assert!(is_absent(&known, DIR, b"y", Nanos(6)) && !is_absent(&known, DIR, b"x", Nanos(6)));
    assert_eq!(known.attr(DIR, Nanos(6)).map(|(attr, _)| (attr.version, attr.size)), Some((9, 1)));
    known.renamed(DIR, (b"x", b"z"), false, change(11), Nanos(7));
    assert!(!is_absent(&known, DIR, b"w", Nanos(8)), "somebody else's change lies before this one");
}

#[test]
fn own_changes_of_attributes_keep_the_names() {
    let known = known();
    known.made(&attr(5), Nanos(0));
    known.touched(&attr(6));
    known.learned(&attr(6), Nanos(1));
    assert!(is_absent(&known, DIR, b"x", Nanos(2)));
    known.touched(&attr(8));
    known.learned(&attr(8), Nanos(3));
    assert!(!is_absent(&known, DIR, b"x", Nanos(4)), "change 7 was not ours");
}

/// A server that tells of the directory under no lease answers a change of its mode for the
/// moment only.
#[test]
fn what_was_set_is_known_though_the_answer_is_not_believed() {
    let known = known();
    let mode = |at| known.attr(DIR, Nanos(at)).map(|(attr, _)| (attr.mode, attr.version, attr.size));
    known.made(&attr(5), Nanos(0));
    known.touched(&Attr { mode: 0o700, ..attr(6) });
    known.created(DIR, b"x", change(7), Nanos(1));
    assert_eq!(mode(2), Some((0o700, 7, 1)));
    assert!(is_absent(&known, DIR, b"y", Nanos(2)) && !is_absent(&known, DIR, b"x", Nanos(2)));
    // The answer of the create before it comes later.
    known.touched(&Attr { mode: 0o711, size: 2, ..attr(9) });
    assert_eq!(mode(3), None);
    known.created(DIR, b"y", change(8), Nanos(3));
    assert_eq!(mode(4), Some((0o711, 9, 2)));
    assert_eq!(known.attr(DIR, Nanos(4)).map(|(attr, _)| attr.mtime), Some(attr(9).mtime), "the last change decides");
    // Two changes of attributes whose answers cross: nobody knows what each has set.
    known.touched(&Attr { mode: 0o722, ..attr(11) });
    known.touched(&Attr { mode: 0o733, ..attr(10) });
    assert_eq!(mode(5), None);
}

#[test]
fn attributes_follow_own_changes() {
    let known = known();
    known.learned(&attr(5), Nanos(0));
    known.created(DIR, b"x", change(6), Nanos(10));
    known.created(DIR, b"y", change(7), Nanos(20));
    let (now, age) = known.attr(DIR, Nanos(50)).expect("all changes were ours");
    assert_eq!((now.version, now.size, now.mtime, now.ctime, age), (7, 2, WallTime(7), WallTime(7), 30));
    assert!(!is_absent(&known, DIR, b"z", Nanos(50)), "it has names that are not known");
    known.learned(&attr(4), Nanos(60));
    assert_eq!(known.attr(DIR, Nanos(60)).map(|(attr, _)| attr.version), Some(7), "an answer that was overtaken");
}

#[test]
fn names_that_were_listed_are_all() {
    let known = known();
    let two = [&b"x"[..], b"y"];
    assert!(!known.names_are(DIR, two.into_iter()), "a directory that is not followed");
    known.learned(&Attr { size: 2, ..attr(5) }, Nanos(0));
    assert!(!known.names_are(DIR, [&b"x"[..]].into_iter()) && !is_absent(&known, DIR, b"z", Nanos(1)), "not all of them");
    assert!(known.names_are(DIR, two.into_iter()));
    assert!(is_absent(&known, DIR, b"z", Nanos(1)) && !is_absent(&known, DIR, b"y", Nanos(1)));
    known.created(DIR, b"z", change(6), Nanos(2));
    assert!(!is_absent(&known, DIR, b"z", Nanos(3)));
    known.created(DIR, b"v", change(8), Nanos(4));
    assert!(!known.names_are(DIR, two.into_iter()), "there are changes that nobody has seen");
}

#[test]
fn directories_in_a_directory_are_names_and_links() {
    let known = known();
    let links = |at| known.attr(DIR, Nanos(at)).map(|(attr, _)| (attr.nlink, attr.size));
    known.made(&attr(5), Nanos(0));
    let before = attr(5).nlink;
    known.made_directory(DIR, b"x", change(6), Nanos(1));
    assert_eq!(links(2), Some((before + 1, 1)));
    assert!(is_absent(&known, DIR, b"y", Nanos(2)) && !is_absent(&known, DIR, b"x", Nanos(2)));
    known.removed_directory(DIR, b"x", change(7), Nanos(3));
    assert_eq!(links(4), Some((before, 0)));
    assert!(is_absent(&known, DIR, b"x", Nanos(4)));
    known.made_directory(DIR, b"x", DirChange::NONE, Nanos(5));
    assert_eq!(links(6), None, "what is not told is not known");
}

#[test]
fn a_change_by_somebody_else_shows_as_a_gap() {
    let known = known();
    known.made(&attr(5), Nanos(0));
    known.created(DIR, b"x", change(7), Nanos(10));
    assert!(!is_absent(&known, DIR, b"y", Nanos(10)), "change 6 was not ours, as far as is known");
    assert_eq!(known.attr(DIR, Nanos(10)), None);
    known.created(DIR, b"z", change(6), Nanos(10));
    assert!(is_absent(&known, DIR, b"y", Nanos(10)), "it was ours, and its answer only came late");
    known.learned(&attr(9), Nanos(11));
    assert!(!is_absent(&known, DIR, b"y", Nanos(11)), "changes 8 and 9 were not ours");
    assert!(known.attr(DIR, Nanos(11)).is_some(), "but the attributes are new");
    for version in 12..200 {
        known.created(DIR, b"w", change(version), Nanos(12));
    }
    known.created(DIR, b"w", change(10), Nanos(12));
    known.created(DIR, b"w", change(11), Nanos(12));
    assert_eq!(known.attr(DIR, Nanos(12)), None, "dropped for good");
}

#[test]
fn an_answer_that_comes_twice_is_not_understood() {
    let known = known();
    known.made(&attr(5), Nanos(0));
    known.created(DIR, b"x", change(6), Nanos(1));
    known.created(DIR, b"x", change(6), Nanos(2));
    assert!(!is_absent(&known, DIR, b"y", Nanos(2)));
}
