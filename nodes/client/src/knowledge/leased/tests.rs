use bytes::Bytes;
use weft_base::{FileKind, Handle, Nanos, ServerId};
use weft_wire::ops::{FileState, LeaseNotice};

use super::{Asked, Ended, Leased, Led};
use crate::knowledge::directories::test_attr;

const META: ServerId = ServerId(0);
const DIR: Handle = Handle(7);
const FILE: Handle = Handle(8);
const NOW: Nanos = Nanos(10);

fn begun() -> Leased {
    let leased = Leased::default();
    leased.set_on(true);
    assert!(leased.renewed(META, 3, Nanos(1000)));
    leased
}

fn asked(leased: &Leased) -> Asked {
    Asked { at: NOW, after_reports: 0, after_log: leased.newest() }
}

fn state(handle: Handle, version: u64) -> FileState {
    let mut attr = test_attr(handle, version);
    attr.kind = FileKind::File;
    FileState { attr, ask_data: None, partitions: None }
}

fn name() -> Bytes {
    Bytes::from_static(b"x")
}

fn tell(leased: &Leased, asked: Asked, version: u64) {
    leased.told_names(asked, NOW, (DIR, META), [(&name(), Some((FILE, FileKind::File)), Some(&state(FILE, version)))]);
}

/// The version of the object to which the name is believed to lead.
fn believed(leased: &Leased) -> Option<u64> {
    match leased.name(DIR, b"x", NOW)? {
        Led::To(FILE, _, told) => told.map(|told| told.0.attr.version),
        led => panic!("{led:?}"),
    }
}

#[test]
fn an_answer_that_something_has_overtaken_is_not_kept() {
    let notices = [
        LeaseNotice::Name { dir: DIR, name: name() },
        LeaseNotice::Object { handle: FILE },
        LeaseNotice::Directory { dir: DIR },
        LeaseNotice::Everything {},
    ];
    for notice in notices {
        let leased = begun();
        let before = asked(&leased);
        leased.notice(META, &notice);
        leased.renewed(META, 3, Nanos(1000));
        tell(&leased, before, 1);
        assert_eq!(believed(&leased), None, "{notice:?}");
        tell(&leased, asked(&leased), 2);
        assert_eq!(believed(&leased), Some(2), "asked for after {notice:?}");
        leased.notice(META, &notice);
        assert_eq!(believed(&leased), None, "{notice:?}");
    }
    let leased = begun();
    let before = asked(&leased);
    leased.notice(META, &LeaseNotice::Name { dir: DIR, name: Bytes::from_static(b"other") });
    tell(&leased, before, 1);
    assert_eq!(believed(&leased), Some(1), "another name");
}

#[test]
fn an_own_change_ends_what_was_told_and_its_answer_counts() {
    let leased = begun();
    tell(&leased, asked(&leased), 1);
    let lookup = asked(&leased);
    let change = asked(&leased);
    let ended = leased.begin(vec![Ended::Object(FILE)], false);
    assert_eq!(believed(&leased), None);
    tell(&leased, asked(&leased), 2);
    assert_eq!(believed(&leased), None, "it is being changed");
    let done = leased.changed(&ended, change.after_log);
    tell(&leased, lookup, 1);
    assert_eq!(believed(&leased), None, "asked for before the change was over");
    tell(&leased, Asked { after_log: done, ..change }, 3);
    assert_eq!(believed(&leased), Some(3));
}

#[test]
fn of_two_changes_at_once_no_answer_counts() {
    let leased = begun();
    let (one, other) = (asked(&leased), asked(&leased));
    let first = leased.begin(vec![Ended::Object(FILE)], false);
    let second = leased.begin(vec![Ended::Object(FILE)], false);
    let done = leased.changed(&first, one.after_log);
    tell(&leased, Asked { after_log: done, ..one }, 1);
    assert_eq!(believed(&leased), None, "the other one is under way");
    let done = leased.changed(&second, other.after_log);
    tell(&leased, Asked { after_log: done, ..other }, 1);
    assert_eq!(believed(&leased), None, "which of them was first is not known");
}

/// Contents that were read count as long as the telling that they belong to.
#[test]
fn what_is_told_again_without_a_change_is_the_same_telling() {
    let leased = begun();
    let since = || leased.told_since(FILE, NOW);
    tell(&leased, asked(&leased), 1);
    let first = since();
    assert!(first.is_some());
    tell(&leased, asked(&leased), 1);
    assert_eq!(since(), first);
    tell(&leased, asked(&leased), 2);
    assert_ne!(since(), first, "another version");
    // Ended by a notice, by a change of this client, and by one that may concern any object.
    let changes = |ended: Ended| {
        let ended = leased.begin(vec![ended], false);
        leased.changed(&ended, leased.newest());
    };
    let ends: [&dyn Fn(); 3] =
        [&|| leased.notice(META, &LeaseNotice::Object { handle: FILE }), &|| changes(Ended::Object(FILE)), &|| changes(Ended::AnyObject)];
    for (number, end) in ends.iter().enumerate() {
        let before = since();
        end();
        assert_eq!(since(), None, "{number}");
        tell(&leased, asked(&leased), 2);
        assert!(since().is_some() && since() != before, "{number}: it may have changed and changed back");
    }
}

#[test]
fn a_name_that_is_lost_takes_along_what_it_led_to() {
    let leased = begun();
    tell(&leased, asked(&leased), 1);
    let ended = leased.begin(vec![Ended::Name(DIR, name())], true);
    assert!(ended.contains(&Ended::Object(FILE)) && !ended.contains(&Ended::AnyObject));
    leased.changed(&ended, 0);
    // Where it led to is not known: it may have been any object.
    let other = Bytes::from_static(b"other");
    leased.told_names(asked(&leased), NOW, (DIR, META), [(&other, Some((FILE, FileKind::File)), Some(&state(FILE, 2)))]);
    assert!(leased.state(FILE, NOW).is_some());
    let ended = leased.begin(vec![Ended::Name(DIR, name())], true);
    assert!(ended.contains(&Ended::AnyObject) && leased.state(FILE, NOW).is_none());
}

#[test]
fn nothing_is_believed_beyond_its_time_or_session() {
    let leased = begun();
    tell(&leased, asked(&leased), 1);
    assert_eq!(leased.name_holds_ns(DIR, b"x", Some(FILE), NOW), 990);
    assert!(leased.name(DIR, b"x", Nanos(1000)).is_none());
    let before = asked(&leased);
    assert!(leased.renewed(META, 4, Nanos(2000)), "another session");
    tell(&leased, before, 1);
    assert_eq!(believed(&leased), None);
}

/// A create makes an object whose handle this client learns only with the answer; somebody who
/// changes the object at once may be told of before that.
#[test]
fn a_notice_about_what_was_just_made_is_not_overlooked() {
    let leased = begun();
    let create = asked(&leased);
    let ended = leased.begin(vec![Ended::Name(DIR, name())], false);
    leased.notice(META, &LeaseNotice::Object { handle: FILE });
    let done = leased.changed(&ended, create.after_log);
    tell(&leased, Asked { after_log: done, ..create }, 1);
    assert!(leased.state(FILE, NOW).is_none(), "it has changed since");
    tell(&leased, asked(&leased), 2);
    assert_eq!(believed(&leased), Some(2));
}

#[test]
fn a_lease_that_ends_ends_what_its_server_told_of_objects_whoever_told_the_names() {
    let (owner, leased) = (ServerId(META.0 + 1), begun());
    let dir = Handle::new(owner, 9);
    leased.renewed(owner, 1, Nanos(1000));
    leased.told_names(asked(&leased), NOW, (dir, META), [(&name(), Some((FILE, FileKind::File)), Some(&state(FILE, 1)))]);
    // The owner of the directory restarts: what it has not told stays.
    leased.notice(owner, &LeaseNotice::Everything {});
    assert!(leased.state(FILE, NOW).is_some());
    leased.notice(META, &LeaseNotice::Directory { dir });
    assert!(leased.state(FILE, NOW).is_none());
}

/// Nothing is believed of a server that may have restarted. What was told above stays known until
/// it is forgotten there: the server is asked in the session in which it was told.
#[test]
fn what_was_told_is_known_until_the_session_goes_on_or_another_one_begins() {
    for goes_on in [true, false] {
        let leased = begun();
        let session = leased.session(META);
        tell(&leased, asked(&leased), 7);
        let late = asked(&leased);
        assert_eq!(believed(&leased), Some(7));
        leased.suspend(META);
        assert_eq!((believed(&leased), leased.session(META)), (None, session));
        assert_eq!(leased.told_under(META, &LeaseNotice::Everything {}), [FILE]);
        // What was asked before may be of before.
        tell(&leased, late, 8);
        leased.renewed(META, session.0 + u32::from(!goes_on), Nanos(2000));
        assert_eq!(believed(&leased), goes_on.then_some(7));
    }
}

/// What this client changes of a file itself gives it no other name, but a link.
#[test]
fn it_is_known_that_a_file_has_one_name() {
    let leased = begun();
    let tell_links = |nlink: u32| {
        let mut told = state(FILE, u64::from(nlink));
        told.attr.nlink = nlink;
        leased.told_names(asked(&leased), NOW, (DIR, META), [(&name(), Some((FILE, FileKind::File)), Some(&told))]);
        leased.has_one_name(FILE, NOW)
    };
    assert!(!leased.has_one_name(FILE, NOW) && !tell_links(2) && tell_links(1));
    let change = asked(&leased);
    let ended = leased.begin(vec![Ended::Object(FILE)], false);
    leased.changed(&ended, change.after_log);
    assert!(leased.state(FILE, NOW).is_none() && leased.has_one_name(FILE, NOW));
    assert!(!leased.has_one_name(FILE, Nanos(1000)), "the session is over");
    leased.notice(META, &LeaseNotice::Object { handle: FILE });
    assert!(!leased.has_one_name(FILE, NOW), "somebody else has changed it");
    assert!(tell_links(1));
    leased.may_get_names(FILE);
    assert!(!leased.has_one_name(FILE, NOW));
    assert!(tell_links(1));
    drop(leased.begin(vec![Ended::AnyObject], true));
    assert!(!leased.has_one_name(FILE, NOW), "it may have been this one");
}
