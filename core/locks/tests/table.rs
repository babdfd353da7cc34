//! The table of a server: queues, circles, limits, and a model.

use std::collections::BTreeMap;

use weft_base::{ClientId, Handle, MILLISECOND, Nanos, SECOND, Status};
use weft_locks::{Asked, Limits, LockTable, Ranges};
use weft_wire::ops::{Family, HeldLock, Lock, LockKind, Owner};

const A: ClientId = ClientId(1);
const B: ClientId = ClientId(2);
const C: ClientId = ClientId(3);
const FILE: Handle = Handle(9);
const OTHER: Handle = Handle(10);
const NOW: Nanos = Nanos(SECOND);

fn of(client: ClientId, owner: Owner, kind: LockKind, start: u64, end: u64) -> HeldLock {
    HeldLock { client, lock: Lock { family: Family::Fcntl, owner, kind, start, end, process: owner as u32, file: owner } }
}

fn exclusive(client: ClientId) -> HeldLock {
    of(client, 1, LockKind::Exclusive, 0, u64::MAX)
}

fn shared(client: ClientId) -> HeldLock {
    of(client, 1, LockKind::Shared, 0, u64::MAX)
}

fn release(table: &mut LockTable, handle: Handle, held: HeldLock) -> Vec<(ClientId, u64)> {
    table.unlock(handle, held.client, &held.lock.whole()).expect("it becomes less");
    table.due(handle, NOW, |_| true)
}

#[test]
fn the_queue_is_in_the_order_of_arrival() {
    let mut table = LockTable::default();
    assert_eq!(table.lock(FILE, shared(A), None, NOW), Ok(Asked::Granted));
    assert_eq!(table.lock(FILE, exclusive(B), None, NOW), Ok(Asked::Taken(shared(A))));
    assert_eq!(table.lock(FILE, exclusive(B), Some(5), NOW), Ok(Asked::Waits));
    // It could share with the first, and waits behind the second.
    assert_eq!(table.lock(FILE, shared(C), Some(6), NOW), Ok(Asked::Waits));
    assert_eq!(
        table.lock(FILE, of(C, 2, LockKind::Shared, 0, 9), None, NOW),
        Ok(Asked::Granted),
        "what does not wait goes by what is held"
    );
    table.unlock(FILE, C, &of(C, 2, LockKind::Shared, 0, 9).lock.whole()).unwrap();
    assert_eq!(release(&mut table, FILE, shared(A)), [(B, 5)]);
    assert_eq!(release(&mut table, FILE, exclusive(B)), [(C, 6)]);
    assert!(release(&mut table, FILE, shared(C)).is_empty() && table.is_empty());
}

#[test]
fn nobody_hangs_behind_those_who_wait() {
    let mut table = LockTable::default();
    assert_eq!(table.lock(FILE, shared(A), None, NOW), Ok(Asked::Granted));
    assert_eq!(table.lock(FILE, exclusive(B), Some(1), NOW), Ok(Asked::Waits));
    // The first one asks for more of what it has: those who wait for it must not be in its way.
    assert_eq!(table.lock(FILE, shared(A), Some(2), NOW), Ok(Asked::Granted));
    assert_eq!(table.lock(FILE, shared(C), Some(3), NOW), Ok(Asked::Waits));
    assert!(table.due(FILE, NOW + 900 * MILLISECOND, |_| true).is_empty());
    assert_eq!(table.due(FILE, NOW + SECOND, |_| true), [(C, 3)], "a second behind others who wait is enough");
}

#[test]
fn a_place_is_kept_for_who_asks_again() {
    let mut table = LockTable::default();
    table.lock(FILE, exclusive(A), None, NOW).unwrap();
    table.lock(FILE, exclusive(B), Some(1), NOW).unwrap();
    table.lock(FILE, exclusive(C), Some(1), NOW).unwrap();
    table.rest(FILE, B, 1, NOW);
    assert_eq!(release(&mut table, FILE, exclusive(A)), [], "the first in the queue is on its way");
    assert_eq!(table.lock(FILE, exclusive(B), Some(1), NOW), Ok(Asked::Granted));
    table.rest(FILE, C, 1, NOW);
    assert_eq!(release(&mut table, FILE, exclusive(B)), []);
    table.lock(FILE, exclusive(A), Some(7), NOW).unwrap();
    assert_eq!(table.due(FILE, NOW + 5 * SECOND, |_| true), [(A, 7)], "who does not ask again has lost its place");
    assert_eq!(table.lock(FILE, exclusive(B), Some(2), NOW), Ok(Asked::Waits));
    assert!(table.withdraw(FILE, B, 2) && !table.withdraw(FILE, B, 2));
    assert_eq!(release(&mut table, FILE, exclusive(A)), []);
    assert!(table.is_empty());
}

#[test]
fn whoever_is_not_connected_gets_nothing_and_is_in_nobodys_way() {
    let mut table = LockTable::default();
    table.lock(FILE, exclusive(A), None, NOW).unwrap();
    table.lock(FILE, exclusive(B), Some(1), NOW).unwrap();
    table.lock(FILE, exclusive(C), Some(1), NOW).unwrap();
    table.unlock(FILE, A, &exclusive(A).lock.whole()).unwrap();
    assert_eq!(table.due(FILE, NOW, |client| client != B), [(C, 1)]);
    assert_eq!(table.drop_client(C), [FILE]);
    assert_eq!(table.due(FILE, NOW, |_| true), [(B, 1)]);
    assert!(table.drop_from(FILE, B) && !table.drop_from(FILE, B) && table.is_empty());
}

#[test]
fn the_wait_that_closes_a_circle_is_refused_across_clients_and_files() {
    let mut table = LockTable::default();
    let third = Handle(11);
    for (handle, client) in [(FILE, A), (OTHER, B), (third, C)] {
        assert_eq!(table.lock(handle, exclusive(client), None, NOW), Ok(Asked::Granted));
    }
    assert_eq!(table.lock(OTHER, exclusive(A), Some(1), NOW), Ok(Asked::Waits));
    assert_eq!(table.lock(third, exclusive(B), Some(1), NOW), Ok(Asked::Waits));
    assert_eq!(table.lock(FILE, exclusive(C), Some(1), NOW), Ok(Asked::Deadlock));
    assert_eq!(table.lock(FILE, of(C, 2, LockKind::Shared, 0, 0), Some(2), NOW), Ok(Asked::Waits), "another program of it");
    assert!(table.withdraw(FILE, C, 2));
    // Once one of them has given up, there is no circle.
    assert!(table.withdraw(OTHER, A, 1));
    assert_eq!(table.lock(FILE, exclusive(C), Some(3), NOW), Ok(Asked::Waits));
    assert_eq!(table.lock(OTHER, exclusive(A), Some(4), NOW), Ok(Asked::Deadlock));
    // `flock` sees no circles, as anywhere.
    let flock = |client| HeldLock { lock: Lock { family: Family::Flock, ..exclusive(client).lock }, client };
    table.lock(FILE, flock(A), None, NOW).unwrap();
    table.lock(OTHER, flock(B), None, NOW).unwrap();
    assert_eq!(table.lock(OTHER, flock(A), Some(5), NOW), Ok(Asked::Waits));
    assert_eq!(table.lock(FILE, flock(B), Some(5), NOW), Ok(Asked::Waits));
}

#[test]
fn nobody_has_more_than_the_limits_allow() {
    let limits = Limits { on_one_file: 4, on_one_file_of_all: 6, on_all_files: 7, waits_on_one_file: 1 };
    let mut table = LockTable::new(limits);
    let byte = |client, at: u64| of(client, 1, LockKind::Exclusive, 2 * at, 2 * at);
    let full = Err(Status::TooManyLocks);
    for at in 0..3 {
        assert_eq!(table.lock(FILE, byte(A, at), None, NOW), Ok(Asked::Granted));
    }
    assert_eq!(table.lock(FILE, byte(A, 3), None, NOW), full);
    for at in 10..12 {
        assert_eq!(table.lock(FILE, byte(B, at), None, NOW), Ok(Asked::Granted), "the room of others");
    }
    assert_eq!(table.lock(FILE, byte(C, 20), None, NOW), full, "all of the file's");
    assert_eq!(table.lock(OTHER, of(A, 1, LockKind::Exclusive, 0, 999), None, NOW), Ok(Asked::Granted));
    for at in [100, 200, 300] {
        assert_eq!(table.unlock(OTHER, A, &of(A, 1, LockKind::Shared, at, at).lock.whole()), Ok(()));
    }
    assert_eq!(
        table.unlock(OTHER, A, &of(A, 1, LockKind::Shared, 400, 400).lock.whole()),
        Err(Status::TooManyLocks),
        "cut into pieces without end"
    );
    assert_eq!(table.unlock(OTHER, A, &of(A, 1, LockKind::Shared, 0, 999).lock.whole()), Ok(()));
    assert_eq!(table.lock(OTHER, exclusive(C), None, NOW), Ok(Asked::Granted));
    assert_eq!(table.lock(OTHER, exclusive(A), Some(1), NOW), Ok(Asked::Waits));
    assert_eq!(table.lock(OTHER, exclusive(B), Some(1), NOW), full, "as many wait as may");
    for client in [A, B, C] {
        table.drop_client(client);
        assert!(!table.has_client(client));
    }
    assert!(table.is_empty());
}

#[test]
fn what_was_held_before_a_restart_comes_back_where_nobody_has_taken_it() {
    let mut table = LockTable::default();
    table.lock(FILE, of(B, 1, LockKind::Exclusive, 50, 59), None, NOW).unwrap();
    // It asked again before its client told what it had: the newer is right.
    table.lock(FILE, of(A, 1, LockKind::Exclusive, 10, 19), None, NOW).unwrap();
    table.reclaim(FILE, of(A, 1, LockKind::Shared, 0, 49));
    let asks = |table: &LockTable, kind, at| table.conflict(FILE, &of(C, 1, kind, at, at)).map(|held| held.lock.kind);
    assert_eq!(asks(&table, LockKind::Shared, 15), Some(LockKind::Exclusive));
    assert_eq!((asks(&table, LockKind::Shared, 5), asks(&table, LockKind::Exclusive, 45)), (None, Some(LockKind::Shared)));
    table.reclaim(FILE, of(A, 2, LockKind::Shared, 55, 65));
    assert_eq!(
        (asks(&table, LockKind::Shared, 57), asks(&table, LockKind::Exclusive, 60)),
        (Some(LockKind::Exclusive), Some(LockKind::Shared))
    );
    // Of two that others share, what overlaps counts once.
    table.lock(FILE, of(B, 2, LockKind::Shared, 71, 75), None, NOW).unwrap();
    table.lock(FILE, of(C, 2, LockKind::Shared, 73, 74), None, NOW).unwrap();
    table.reclaim(FILE, of(A, 3, LockKind::Exclusive, 70, 79));
    let in_the_way = [70, 72, 75, 76, 79].map(|at| asks(&table, LockKind::Shared, at));
    assert_eq!(in_the_way, [70, 72, 75, 76, 79].map(|at| (!(71..=75).contains(&at)).then_some(LockKind::Exclusive)));
}

/// Random programs of three clients on two files, against the plainest idea of a lock: nobody holds
/// what excludes another's, and when all give back what they have, all who wait have had their
/// turn.
#[test]
fn a_model_of_many_programs() {
    let mut random = 11u64;
    let mut next = |below: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % below
    };
    for round in 0..200 {
        let mut table = LockTable::default();
        let mut held: BTreeMap<Handle, Ranges> = BTreeMap::new();
        let mut waits: BTreeMap<(Handle, ClientId, u64), HeldLock> = BTreeMap::new();
        let (mut now, mut number) = (NOW, 0);
        for step in 0..150 {
            now = now + next(300) * MILLISECOND;
            let (handle, client, owner) = (Handle(next(2)), ClientId(next(3)), next(2));
            let (start, kind) = (next(8), if next(2) == 0 { LockKind::Shared } else { LockKind::Exclusive });
            let wanted = of(client, owner, kind, start, start + next(8));
            let mine = held.entry(handle).or_default();
            match next(8) {
                0..=2 => {
                    table.unlock(handle, client, &wanted.lock.whole()).unwrap();
                    mine.unlock(client, &wanted.lock.whole());
                }
                3 | 4 => {
                    let expected = mine.conflict(&wanted);
                    let asked = table.lock(handle, wanted, None, now).unwrap();
                    assert_eq!(asked == Asked::Granted, expected.is_none(), "round {round}, step {step}");
                    if expected.is_none() {
                        mine.put(wanted);
                    }
                }
                5 | 6 => {
                    number += 1;
                    match table.lock(handle, wanted, Some(number), now).unwrap() {
                        Asked::Granted => assert!(mine.lock(wanted), "round {round}, step {step}"),
                        Asked::Waits => drop(waits.insert((handle, client, number), wanted)),
                        Asked::Deadlock => assert!(mine.conflict(&wanted).is_some()),
                        Asked::Taken(_) => panic!("it is waited for"),
                    }
                }
                _ => {
                    let first = waits.keys().next().copied();
                    if let Some((handle, client, number)) = first {
                        assert!(table.withdraw(handle, client, number));
                        waits.remove(&(handle, client, number));
                    }
                }
            }
            for handle in [Handle(0), Handle(1)] {
                for (client, number) in table.due(handle, now, |_| true) {
                    let wanted = waits.remove(&(handle, client, number)).expect("it waits");
                    assert!(held.entry(handle).or_default().lock(wanted), "round {round}, step {step}: two hold what excludes each other");
                }
            }
        }
        // Everybody gives everything back until nobody waits.
        for _ in 0..200 {
            now = now + SECOND;
            for (handle, ranges) in &mut held {
                for one in std::mem::take(ranges).iter() {
                    table.unlock(*handle, one.client, &one.lock.whole()).unwrap();
                }
                for (client, number) in table.due(*handle, now, |_| true) {
                    let wanted = waits.remove(&(*handle, client, number)).expect("it waits");
                    assert!(ranges.lock(wanted));
                }
            }
        }
        assert!(waits.is_empty() && table.is_empty() && table.queues().is_empty(), "round {round}: {waits:?}");
    }
}
