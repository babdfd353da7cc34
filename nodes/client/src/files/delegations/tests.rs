use std::cell::Cell;

use bytes::Bytes;
use weft_base::Credentials;
use weft_wire::ops::HandleRange;

use super::super::untold::{Batch, Removed, as_file};
use super::*;

const DIR: Handle = Handle(7);

/// A create of this directory is granted it, after all that was known when it was sent.
fn grant(delegations: &Delegations, recalls: u64) {
    let delegation = Delegation { handles: None, delay_bytes: 0 };
    let granted = DirectoryGranted { delay_bytes: 0, closes_with_attributes: true, tells_directories: true, tells_removals: true };
    delegations.granted(DIR, &delegation, granted, recalls, (WallTime(0), Nanos(0)));
}

/// A client that could not say at once that it gives a directory back made the next files in
/// it, and said it before it told of these: they were lost.
#[test]
fn no_grant_counts_before_the_server_has_heard_that_the_directory_is_given_back() {
    let (delegations, server) = (Delegations::default(), DIR.server());
    grant(&delegations, delegations.before_grant(DIR).recalls);
    assert!(delegations.holds(DIR));
    // Something must be forgotten first, so the next create is sent before.
    delegations.must_be_forgotten([Handle(8)]);
    delegations.give_back(DIR);
    assert!(delegations.next(server, u64::MAX).is_none());
    let recalls = delegations.before_grant(DIR).recalls;
    grant(&delegations, recalls);
    assert!(!delegations.holds(DIR), "its server will take it");
    delegations.forget_above(|_| {});

    // And one that comes while that is on its way, or was sent before, may have been granted
    // before it or after it: it is given back once more.
    let batch = delegations.next(server, u64::MAX).expect("the directory is given back");
    assert_eq!(batch.request.returned, [DIR]);
    grant(&delegations, delegations.before_grant(DIR).recalls);
    assert!(!delegations.holds(DIR));
    delegations.told(server, &batch, None, true);
    grant(&delegations, recalls);
    assert!(!delegations.holds(DIR), "its server has taken it");
    let batch = delegations.next(server, u64::MAX).expect("again");
    delegations.told(server, &batch, None, true);
    assert!(batch.request.returned == [DIR] && !delegations.owes() && delegations.next(server, u64::MAX).is_none());
    grant(&delegations, delegations.before_grant(DIR).recalls);
    assert!(delegations.holds(DIR));
}

/// Whoever asks for more than a server keeps in mind has files refused that it has made.
#[test]
fn one_message_at_a_time_asks_for_handles() {
    let delegations = Delegations::default();
    let first = delegations.before_grant(DIR);
    let asked = |grant: &BeforeGrant<'_>| grant.handles_left < HANDLES_FEW;
    assert!(asked(&first) && !asked(&delegations.before_grant(DIR)));
    drop(first);
    assert!(asked(&delegations.before_grant(DIR)), "it was not answered");
}

/// The flow that closes files and the one that hears notices both do it.
#[test]
fn two_flows_forget_at_once() {
    let delegations = Delegations::default();
    delegations.must_be_forgotten((1..=32).map(Handle));
    let forgotten = Cell::new(0);
    delegations.forget_above(|_| {
        forgotten.set(forgotten.get() + 1);
        delegations.forget_above(|_| unreachable!("the first one does it"));
        assert!(!delegations.lock().is_all_forgotten());
    });
    assert!(forgotten.get() == 32 && delegations.lock().is_all_forgotten());
}

fn new_directory(delegations: &Delegations, name: &'static str, since: Nanos) -> Handle {
    let absorb = |place: Place| {
        let (handle, at) = (place.handle, place.at);
        let removed = Removed { name: Bytes::from_static(name.as_bytes()), handle, kind: FileKind::Directory, at };
        Some((Absorbed { dir: DIR, who: Credentials::ROOT, since, done: Done::Directory(as_file(&removed)) }, handle))
    };
    delegations.absorb(DIR, since, absorb).expect("the directory is held, and handles are left")
}

fn remove_directory(delegations: &Delegations, name: &'static str, handle: Handle) {
    let removed = delegations.change(
        DIR,
        Nanos(1),
        |granted| granted.tells_removals,
        |at, is_held| {
            assert!(is_held(handle));
            let removed = Removed { name: Bytes::from_static(name.as_bytes()), handle, kind: FileKind::Directory, at };
            Some((Absorbed { dir: DIR, who: Credentials::ROOT, since: Nanos(1), done: Done::Removed(removed) }, ()))
        },
    );
    assert!(removed.is_some() && !delegations.holds(handle));
}

/// The directory is held, and handles for what is made in it.
fn held() -> Delegations {
    let delegations = Delegations::default();
    let handles = Some(HandleRange { first: Handle(100), count: HANDLES_FEW });
    let granted = DirectoryGranted { delay_bytes: 0, closes_with_attributes: true, tells_directories: true, tells_removals: true };
    let recalls = delegations.before_grant(DIR).recalls;
    delegations.granted(DIR, &Delegation { handles, delay_bytes: 0 }, granted, recalls, (WallTime(0), Nanos(0)));
    delegations
}

/// What is younger waits, but if a directory is to be given back: others may ask for it.
#[test]
fn a_server_is_told_of_what_is_old_enough() {
    let (delegations, server) = (held(), DIR.server());
    for (name, at) in [("one", 1), ("two", 2), ("three", 3)] {
        new_directory(&delegations, name, Nanos(at));
    }
    let by = |at: u64| delegations.told_when(server, Nanos(at));
    assert_eq!([0, 1, 2, 3, 9].map(by), [0, 1, 2, 3, 3]);
    let batch = delegations.next(server, by(2)).expect("two are old enough");
    assert_eq!(batch.done.len(), 2);
    delegations.told(server, &batch, None, true);
    assert!(delegations.next(server, by(2)).is_none() && delegations.owes());
    delegations.give_back(DIR);
    let batch = delegations.next(server, by(2)).expect("the directory is given back");
    assert_eq!((batch.done.len(), &batch.request.returned[..]), (1, &[DIR][..]));
}

/// A message that is not answered is sent again, however much of it was executed: a file that it
/// makes and removes would be made again.
#[test]
fn no_message_makes_and_removes_the_same() {
    let (delegations, server) = (held(), DIR.server());
    let (one, two) = (new_directory(&delegations, "one", Nanos(1)), new_directory(&delegations, "two", Nanos(1)));
    remove_directory(&delegations, "one", one);
    let again = new_directory(&delegations, "one", Nanos(1));
    let told = |batch: &Batch| -> Vec<Handle> {
        batch.request.groups.iter().flat_map(|group| group.files.iter().map(|file| file.handle)).collect()
    };
    for _ in 0..2 {
        let batch = delegations.next(server, u64::MAX).expect("two directories were made");
        assert_eq!((told(&batch), &batch.request.removed), (vec![one, two], &None));
    }
    let batch = delegations.next(server, u64::MAX).expect("they are not told");
    delegations.told(server, &batch, None, true);
    remove_directory(&delegations, "two", two);
    let batch = delegations.next(server, u64::MAX).expect("one was removed");
    assert_eq!((told(&batch), batch.request.removed.as_deref()), (vec![one, again, two], Some(&[0, 2][..])));
    delegations.told(server, &batch, None, true);
    assert!(!delegations.owes() && delegations.holds(again));
}
