use bytes::Bytes;
use proptest::prelude::*;
use weft_base::{ClientId, FastMap, Handle, Nanos, SECOND};

use crate::{AskedBack, Leases, Notice, Touched};

const A: ClientId = ClientId(1);
const B: ClientId = ClientId(2);
const DIR: Handle = Handle(10);
const FILE: Handle = Handle(11);
const TERM: u64 = 5 * SECOND;

fn begun(leases: &mut Leases, client: ClientId, now: Nanos) -> u32 {
    let number = leases.renew(client, 1, 0, 0, now).expect("the first request").session;
    assert!(!leases.grant(client, DIR, now), "the client may believe an older session still");
    leases.renew(client, 2, number, 0, now).expect("the second").session
}

fn change(leases: &mut Leases, by: ClientId, touched: Touched<'_>, now: Nanos) -> bool {
    leases.may_change(by, [touched], true, now, |_| {})
}

#[test]
fn a_change_waits_until_its_holders_have_heard() {
    let mut leases = Leases::new(TERM, 7);
    let session = begun(&mut leases, A, Nanos(0));
    assert!(change(&mut leases, B, Touched::Name(DIR, b"x"), Nanos(0)), "nobody holds anything");
    assert!(leases.grant(A, DIR, Nanos(1)) && leases.tell(DIR, FILE, Nanos(1)));
    assert!(change(&mut leases, A, Touched::Name(DIR, b"x"), Nanos(1)), "its own change");
    assert!(!change(&mut leases, B, Touched::Object(FILE), Nanos(2)));
    assert!(!leases.grant(A, DIR, Nanos(2)), "nothing is granted while a change waits");
    assert_eq!(leases.notices(A), (1, vec![Notice::Object(FILE)]));
    assert!(!change(&mut leases, B, Touched::Object(FILE), Nanos(3)), "it asks again");
    assert_eq!(leases.notices(A).1.len(), 1, "and is told once");
    assert!(leases.renew(A, 3, session, 1, Nanos(4)).expect("a renewal").has_released);
    assert!(change(&mut leases, B, Touched::Object(FILE), Nanos(5)));
    assert!(!change(&mut leases, B, Touched::Name(DIR, b"y"), Nanos(6)), "the lease is held on");
    assert_eq!(leases.notices(A), (2, vec![Notice::Name(DIR, Bytes::from_static(b"y"))]));
}

/// A directory whose names move: its attributes were told under the lease on the one above.
#[test]
fn what_was_told_of_before_is_changed_at_once() {
    let mut leases = Leases::new(TERM, 7);
    let session = begun(&mut leases, A, Nanos(0));
    assert!(leases.grant(A, DIR, Nanos(1)) && leases.tell(DIR, FILE, Nanos(1)));
    let soon = |leases: &mut Leases, now| leases.may_change_soon(B, [Touched::Names(FILE)], Nanos(now), |_| {});
    assert!(!soon(&mut leases, 2));
    assert_eq!(leases.notices(A), (1, vec![Notice::Object(FILE)]));
    leases.renew(A, 3, session, 1, Nanos(3)).expect("a renewal");
    assert!(soon(&mut leases, 4) && soon(&mut leases, 5));
    assert!(!leases.grant(A, DIR, Nanos(5)), "nothing is granted before it is made");
    assert!(leases.may_change(B, [Touched::Names(FILE), Touched::Object(FILE)], true, Nanos(6), |_| {}));
    assert!(leases.grant(A, DIR, Nanos(7)));
}

#[test]
fn nobody_waits_longer_than_the_term() {
    let mut leases = Leases::new(TERM, 7);
    begun(&mut leases, A, Nanos(0));
    assert!(leases.grant(A, DIR, Nanos(1)));
    assert!(!change(&mut leases, B, Touched::Name(DIR, b"x"), Nanos(2)));
    assert_eq!(leases.expire(Nanos(TERM - 1)), (vec![], false));
    assert_eq!(leases.expire(Nanos(TERM)), (vec![A], true));
    assert!(change(&mut leases, B, Touched::Name(DIR, b"x"), Nanos(TERM)));
}

/// A session that is over may go on under its number until it is ended: its client hears then.
#[test]
fn who_has_a_file_for_itself_is_given_up_with_its_session_only() {
    let mut leases = Leases::new(TERM, 7);
    assert_eq!(leases.ask_back(A, FILE, Nanos(0)), AskedBack::Never);
    let session = begun(&mut leases, A, Nanos(0));
    assert_eq!(leases.ask_back(A, FILE, Nanos(TERM + 1)), AskedBack::Told);
    assert_eq!(leases.renew(A, 3, session, 0, Nanos(TERM + 2)).expect("it goes on").session, session);
    assert_eq!(leases.notices(A).1, [Notice::Append(FILE)]);
    leases.expire(Nanos(2 * TERM + 2));
    assert_eq!(leases.ask_back(A, FILE, Nanos(2 * TERM + 2)), AskedBack::Never);
    // After a restart who may have it is waited for.
    leases.after_restart([B], Nanos(0));
    assert_eq!(leases.ask_back(B, FILE, Nanos(1)), AskedBack::NotYet);
    assert_eq!(leases.ask_back(B, FILE, Nanos(TERM)), AskedBack::Never);
}

#[test]
fn nobody_waits_for_ever_for_a_client_that_asks_and_does_not_listen() {
    let mut leases = Leases::new(TERM, 7);
    let session = begun(&mut leases, A, Nanos(0));
    assert!(leases.grant(A, DIR, Nanos(1)));
    assert!(!change(&mut leases, B, Touched::Name(DIR, b"x"), Nanos(2)));
    let mut last = Nanos(0);
    for second in 1..20 {
        let now = Nanos(second * SECOND);
        if leases.renew(A, 2 + second, session, 0, now).is_some() {
            last = now;
        }
        leases.expire(now);
        let waits = !change(&mut leases, B, Touched::Name(DIR, b"x"), now);
        assert_eq!(waits, now < last + TERM, "it may believe for a term after it was last answered, {second} s");
        if !waits {
            break;
        }
    }
    assert!(last.0 < 2 + TERM && !leases.has(A));
}

#[test]
fn late_copies_of_requests_say_nothing() {
    let mut leases = Leases::new(TERM, 7);
    let session = begun(&mut leases, A, Nanos(0));
    assert!(leases.grant(A, DIR, Nanos(1)));
    assert!(leases.renew(A, 1, 0, 0, Nanos(2)).is_none());
    assert!(leases.has(A) && !change(&mut leases, B, Touched::Name(DIR, b"x"), Nanos(3)));
    assert_eq!(leases.renew(A, 9, session, 0, Nanos(4)).map(|renewed| renewed.is_new), Some(false));
}

#[test]
fn after_a_restart_changes_wait_for_sessions_of_before() {
    let mut leases = Leases::new(TERM, 7);
    leases.after_restart([A], Nanos(100));
    assert!(!change(&mut leases, B, Touched::Name(DIR, b"x"), Nanos(101)));
    let number = leases.renew(A, 5, 3, 40, Nanos(102)).expect("a first request").session;
    assert!(!change(&mut leases, B, Touched::Name(DIR, b"x"), Nanos(103)), "it may not have heard");
    assert!(leases.renew(A, 6, number, 0, Nanos(104)).expect("a second").has_released);
    assert!(change(&mut leases, B, Touched::Name(DIR, b"x"), Nanos(105)));
    let mut leases = Leases::new(TERM, 7);
    leases.after_restart([A], Nanos(100));
    assert_eq!(leases.expire(Nanos(100 + TERM)), (vec![A], true));
    assert!(change(&mut leases, B, Touched::Name(DIR, b"x"), Nanos(100 + TERM)));
}

#[test]
fn a_directory_that_others_change_all_the_time_rests() {
    let mut leases = Leases::new(TERM, 7);
    let session = begun(&mut leases, A, Nanos(0));
    let (mut request, mut told) = (3, 0);
    while !leases.notices(A).1.contains(&Notice::Directory(DIR)) {
        told += 1;
        assert!(told < 100 && leases.grant(A, DIR, Nanos(told)));
        assert!(!change(&mut leases, B, Touched::Name(DIR, b"x"), Nanos(told)));
        if !leases.notices(A).1.contains(&Notice::Directory(DIR)) {
            leases.renew(A, request, session, leases.notices(A).0, Nanos(told));
            assert!(change(&mut leases, B, Touched::Name(DIR, b"x"), Nanos(told)));
            request += 1;
        }
    }
    leases.renew(A, request, session, leases.notices(A).0, Nanos(1000));
    assert!(change(&mut leases, B, Touched::Name(DIR, b"x"), Nanos(1001)));
    assert!(change(&mut leases, B, Touched::Name(DIR, b"y"), Nanos(1002)), "nobody holds it any more");
    assert!(!leases.grant(A, DIR, Nanos(2000)) && leases.grant(A, DIR, Nanos(2 * SECOND)));
}

#[test]
fn a_client_that_does_not_listen_forgets_everything() {
    let mut leases = Leases::new(TERM, 7);
    let session = begun(&mut leases, A, Nanos(0));
    for number in 0..2000 {
        let dir = Handle(1000 + number);
        assert_eq!(leases.grant(A, dir, Nanos(1)), number <= crate::session::NOTICES_MAX as u64, "{number}");
        change(&mut leases, B, Touched::Object(dir), Nanos(1));
    }
    let (newest, notices) = leases.notices(A);
    assert_eq!(notices, [Notice::Everything]);
    assert!(leases.renew(A, 3, session, newest, Nanos(2)).expect("a renewal").has_released);
    assert!(change(&mut leases, B, Touched::Object(Handle(1000)), Nanos(3)) && leases.grant(A, Handle(4000), Nanos(3)));
}

/// An object that rests may still be believed by the client that has opened it last.
#[test]
fn who_changes_without_forgetting_hears_of_the_next_change() {
    let mut leases = Leases::new(TERM, 7);
    let (a, b) = (begun(&mut leases, A, Nanos(0)), begun(&mut leases, B, Nanos(0)));
    let (mut request, mut now) = (3, 1);
    let mut hear = |leases: &mut Leases, now: u64| {
        request += 1;
        for (client, session) in [(A, a), (B, b)] {
            leases.renew(client, request, session, leases.notices(client).0, Nanos(now)).expect("a renewal");
        }
    };
    // Until it rests.
    while leases.grant(A, DIR, Nanos(now)) && leases.grant(B, DIR, Nanos(now)) && leases.tell(DIR, FILE, Nanos(now)) {
        now += 1;
        assert!(now < 100 && !change(&mut leases, A, Touched::Object(FILE), Nanos(now)));
        hear(&mut leases, now);
        assert!(leases.may_change(A, [Touched::Object(FILE)], false, Nanos(now), |_| {}), "{now}");
    }
    assert!(leases.may_change(A, [Touched::Object(FILE)], false, Nanos(now), |_| {}), "the believer's own");
    assert!(!leases.may_change(B, [Touched::Object(FILE)], false, Nanos(now), |_| {}), "it was told before");
    assert_eq!((leases.notices(A).1, leases.notices(B).1), (vec![Notice::Object(FILE)], vec![]));
    hear(&mut leases, now);
    assert!(leases.may_change(B, [Touched::Object(FILE)], false, Nanos(now), |_| {}));
    assert!(change(&mut leases, A, Touched::Object(FILE), Nanos(now)), "nobody believes anything of it");
}

/// What one client believes, and what it has been told and not taken in yet.
#[derive(Default)]
struct Believer {
    session: u32,
    heard: u64,
    request: u64,
    /// Values of objects.
    believes: FastMap<Handle, u64>,
    until: u64,
}

proptest! {
    /// Objects have values, which changes replace; clients are told values under leases. Nobody who
    /// may still believe what it was told ever believes an old value.
    #[test]
    fn nobody_believes_an_old_value(steps in proptest::collection::vec((0u8..7, 0u64..3, 0u64..6, 0u64..3), 1..400)) {
        let mut leases = Leases::new(100, 1);
        let mut values: FastMap<Handle, u64> = FastMap::default();
        let mut clients: Vec<Believer> = (0..3).map(|_| Believer::default()).collect();
        let mut now = 0;
        for (what, who, object, wait) in steps {
            let (id, at) = (ClientId(who), who as usize);
            let (object, dir) = (Handle(100 + object), Handle(10 + object % 2));
            now += wait * wait * 15;
            let client = &mut clients[at];
            match what {
                0 | 1 => {
                    client.request += 1;
                    // Without an answer it goes on with what it was told, until its time is over.
                    let Some(renewed) = leases.renew(id, client.request, client.session, client.heard, Nanos(now)) else { continue };
                    if renewed.session != client.session {
                        client.believes.clear();
                        (client.session, client.heard) = (renewed.session, 0);
                    }
                    let (newest, notices) = leases.notices(id);
                    for notice in notices {
                        match notice {
                            Notice::Object(object) => drop(client.believes.remove(&object)),
                            Notice::Directory(dir) => client.believes.retain(|object, _| Handle(10 + (object.0 - 100) % 2) != dir),
                            Notice::Everything => client.believes.clear(),
                            Notice::Name(..) | Notice::Append(_) | Notice::Delegation(_) => unreachable!("objects only"),
                        }
                    }
                    client.heard = newest;
                    client.until = now + 100;
                }
                2 => {
                    if leases.grant(id, dir, Nanos(now)) && leases.tell(dir, object, Nanos(now)) {
                        client.believes.insert(object, values.get(&object).copied().unwrap_or(0));
                    }
                }
                3..6 => {
                    let forgets = what < 5;
                    if forgets {
                        client.believes.remove(&object);
                    }
                    if leases.may_change(id, [Touched::Object(object)], forgets, Nanos(now), |_| {}) {
                        let value = values.entry(object).or_default();
                        *value += 1;
                        client.believes.get_mut(&object).into_iter().for_each(|known| *known = *value);
                    }
                }
                _ => drop(leases.expire(Nanos(now))),
            }
            for client in clients.iter().filter(|client| now < client.until) {
                for (object, value) in &client.believes {
                    prop_assert_eq!(*value, values.get(object).copied().unwrap_or(0), "of {:?}", object);
                }
            }
        }
    }
}

/// Each step costs as much as its own client, not as all who hold the lease: this takes a second
/// or less, and minutes if any of them looks at all others.
#[test]
fn a_crowd_of_holders_hears_of_a_change_one_by_one() {
    const HOLDERS: u64 = 100_000;
    let mut leases = Leases::new(TERM, 7);
    let clients = || (10..10 + HOLDERS).map(ClientId);
    let sessions: Vec<u32> = clients().map(|client| begun(&mut leases, client, Nanos(0))).collect();
    assert!(clients().all(|client| leases.grant(client, DIR, Nanos(1))));
    let mut told = 0;
    assert!(!leases.may_change(A, [Touched::Name(DIR, b"x")], true, Nanos(2), |_| told += 1));
    assert_eq!(told, HOLDERS);
    let mut released = Vec::new();
    for (client, session) in clients().zip(sessions) {
        let heard = leases.notices(client).0;
        if leases.renew(client, 3, session, heard, Nanos(3)).expect("a renewal").has_released {
            released.push(client);
        }
    }
    assert_eq!(released, [ClientId(10 + HOLDERS - 1)], "the last one");
    assert!(change(&mut leases, A, Touched::Name(DIR, b"x"), Nanos(4)));
    assert!(clients().all(|client| !leases.leave(client)));
}
