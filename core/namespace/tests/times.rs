//! Times: order decides, not the larger value; and what a truncation or an open for writing takes
//! from a program.

mod common;

use bytes::Bytes;
use common::*;
use weft_base::{ClientId, Credentials, DataTime, Handle, RequestId, Status, WallTime};
use weft_namespace::{Change, DataState, InodeFlags, Record, SizePlan, State};
use weft_wire::ops::*;
use weft_wire::{Rights, Wire};

const OTHER: ClientId = ClientId(2);
const FUTURE: WallTime = WallTime(1 << 60);

fn set_mtime(m: &mut Machine, handle: Handle, at: WallTime) -> FileState {
    let request = SetAttrRequest { mtime: Some(SetTime { at: Some(at) }), ..setattr(handle, &ROOT) };
    match m.setattr(&request) {
        Ok(SizePlan::Done(state)) => state,
        other => panic!("no size was given: {other:?}"),
    }
}

fn close(m: &mut Machine, handle: Handle, mtime: DataTime, keeps: Rights) {
    let written = Some(Written { end_bytes: 10, mtime, truncate_epoch: 0 });
    let request = CloseRequest { handle, open_sequence: 9, keeps, written };
    m.change(|state, cx, record| state.prepare_close(cx, &request, None, record)).unwrap();
}

fn at(epoch: u32, at: i64) -> DataTime {
    DataTime { epoch, at: WallTime(at) }
}

#[test]
fn a_new_file_has_the_times_that_come_with_it() {
    let mut m = Machine::new();
    let make = |m: &mut Machine, atime, mtime| {
        let request = CreateRequest { exclusive: false, atime: Some(atime), mtime: Some(mtime), ..create(TOP, "f") };
        m.change(|state, cx, record| state.prepare_create(cx, &request, record)).unwrap()
    };
    let made = make(&mut m, WallTime(5), FUTURE);
    let times = |m: &Machine| (m.attr(made.handle).atime, m.attr(made.handle).mtime, m.attr(made.handle).mtime_epoch);
    assert_eq!(times(&m), (WallTime(5), FUTURE, 1), "they are set, as by utimes");
    assert!(!make(&mut m, WallTime(7), WallTime(7)).created);
    assert_eq!(times(&m), (WallTime(5), FUTURE, 1), "one that was there keeps its own");
}

#[test]
fn a_write_after_a_time_in_the_future_brings_the_present_back() {
    let mut m = Machine::new();
    let file = m.create(TOP, "f").unwrap();
    let state = set_mtime(&mut m, file, FUTURE);
    assert_eq!((state.attr.mtime, state.attr.mtime_epoch), (FUTURE, 1));
    m.open(file, Rights::WRITE, 9).unwrap();
    close(&mut m, file, at(2, 5000), Rights::default());
    assert_eq!((m.attr(file).mtime, m.attr(file).ctime), (WallTime(5000), WallTime(5000)));
    close(&mut m, file, at(2, 4000), Rights::default());
    assert_eq!(m.attr(file).mtime, WallTime(5000), "within an epoch the later clock decides");
}

#[test]
fn a_time_stands_against_writes_before_it_whenever_they_are_reported() {
    let mut m = Machine::new();
    let file = m.create(TOP, "f").unwrap();
    m.open(file, Rights::WRITE, 9).unwrap();
    m.client = OTHER;
    set_mtime(&mut m, file, WallTime(7));
    assert!(m.state.peek(file).unwrap().flags.has(InodeFlags::TOLD), "another client writes: its data servers must be told");
    m.client = ME;
    close(&mut m, file, at(0, 5000), Rights::WRITE);
    assert_eq!(m.attr(file).mtime, WallTime(7), "written before");
    close(&mut m, file, at(2, 6000), Rights::default());
    assert_eq!(m.attr(file).mtime, WallTime(6000), "written after");
    let state = m.look(|state, cx| state.getattr(cx, file)).unwrap();
    assert_eq!(state.attr.mtime_epoch, 2);
}

/// It was asked how long the file is, for a truncation, and who closed it was the last one known.
#[test]
fn after_a_restart_whoever_has_not_told_yet_may_be_writing() {
    let mut m = Machine::new();
    let file = m.create(TOP, "f").unwrap();
    m.open(file, Rights::WRITE, 9).unwrap();
    let mut state = State::new(settings());
    m.log.iter().for_each(|record| state.apply(&mut Record::decode(record.clone().into()).unwrap()));
    m.state = state;
    m.state.begin_grace(false);
    m.client = OTHER;
    m.open(file, Rights::WRITE, 1).unwrap();
    m.state.made_certain(file);
    m.change(|state, cx, record| {
        state.prepare_close(cx, &CloseRequest { handle: file, open_sequence: 1, keeps: Rights::default(), written: None }, None, record)
    })
    .unwrap();
    let flags = |m: &Machine| m.state.peek(file).unwrap().flags;
    assert!(flags(&m).has(InodeFlags::WRITING));
    set_mtime(&mut m, file, WallTime(7));
    assert!(flags(&m).has(InodeFlags::TOLD), "its data servers must be told");
    m.state.end_grace();
    assert_eq!(m.state.uncertain_files(), [file], "it has not told, so it is gone");
}

/// A power cut may have taken the close of a writer, or even its open. Who was sent to the data
/// servers has seen what they have: it is settled, and does not go again when clients have told.
#[test]
fn what_was_shown_of_a_file_after_a_power_cut_stays() {
    let mut m = Machine::new();
    let [shown, removed, quiet] = ["shown", "removed", "quiet"].map(|name| m.create(TOP, name).unwrap());
    m.state.begin_grace(true);
    for file in [shown, removed] {
        assert!(m.look(|state, cx| state.getattr(cx, file)).unwrap().ask_data.is_some());
    }
    m.unlink(TOP, "removed").unwrap();
    m.state.end_grace();
    m.change(|_, _, record| {
        record.changes.push(Change::DeleteInode { handle: removed });
        Ok(())
    })
    .unwrap();
    assert_eq!(m.state.uncertain_files(), [shown]);
    assert!(m.look(|state, cx| state.getattr(cx, quiet)).unwrap().ask_data.is_none());
    assert!(m.look(|state, cx| state.getattr(cx, shown)).unwrap().ask_data.is_some(), "until that is done");
    let told = DataState { size: 70, allocated_bytes: 70, mtime: at(0, 5000), truncate_epoch: 0 };
    m.change(|state, _, record| {
        state.prepare_sizes(shown, &told, record);
        Ok(())
    })
    .unwrap();
    m.state.made_certain(shown);
    assert_eq!((m.attr(shown).size, m.state.uncertain_files().len()), (70, 0));
}

#[test]
fn own_writes_need_nobody_to_be_told_and_quiet_files_no_new_epoch() {
    let mut m = Machine::new();
    let file = m.create(TOP, "f").unwrap();
    m.open(file, Rights::WRITE, 9).unwrap();
    set_mtime(&mut m, file, WallTime(7));
    assert!(!m.state.peek(file).unwrap().flags.has(InodeFlags::TOLD));
    close(&mut m, file, at(0, 5000), Rights::default());
    assert_eq!(m.attr(file).mtime, WallTime(7));
    for time in 10..20 {
        assert_eq!(set_mtime(&mut m, file, WallTime(time)).attr.mtime_epoch, 1, "nobody has written in between");
    }
    assert_eq!(m.attr(file).mtime, WallTime(19), "a time goes backwards and forwards as it is set");
}

#[test]
fn truncations_and_changes_of_names_come_after_a_time_that_was_set() {
    let mut m = Machine::new();
    let (file, dir) = (m.create(TOP, "f").unwrap(), m.mkdir(TOP, "d").unwrap());
    set_mtime(&mut m, file, FUTURE);
    set_mtime(&mut m, dir, FUTURE);
    assert_eq!((m.attr(file).mtime, m.attr(dir).mtime), (FUTURE, FUTURE));
    m.setattr(&SetAttrRequest { size: Some(3), ..setattr(file, &ROOT) }).unwrap();
    assert_eq!(m.attr(file).mtime, WallTime(m.now));
    m.create(dir, "x").unwrap();
    assert_eq!(m.attr(dir).mtime, WallTime(m.now));
    let both = SetAttrRequest { size: Some(1), mtime: Some(SetTime { at: Some(FUTURE) }), ..setattr(file, &ROOT) };
    m.setattr(&both).unwrap();
    assert_eq!(m.attr(file).mtime, FUTURE, "a time given with a size is the caller's last word");
}

#[test]
fn a_truncation_by_somebody_else_clears_set_id_bits() {
    let mut m = Machine::new();
    let (owner, other) = (user(10, 10), user(11, 11));
    let cut = |handle, who: &Credentials, mode| SetAttrRequest { size: Some(0), mode, ..setattr(handle, who) };
    let file = m.create_as(&owner, TOP, "f", 0o6777).unwrap();
    m.setattr(&SetAttrRequest { mode: Some(0o6777), ..setattr(file, &ROOT) }).unwrap();
    m.setattr(&cut(file, &other, None)).unwrap();
    assert_eq!(m.attr(file).mode, 0o777);
    m.setattr(&SetAttrRequest { mode: Some(0o6777), ..setattr(file, &ROOT) }).unwrap();
    m.setattr(&cut(file, &other, Some(0o777))).unwrap();
    assert_eq!(m.attr(file).mode, 0o777, "as kernels ask for it");
    assert_eq!(m.setattr(&cut(file, &other, Some(0o666))).unwrap_err(), Status::NotPermitted, "no other change of the mode");
    assert_eq!(m.setattr(&cut(file, &other, Some(0o4777))).unwrap_err(), Status::NotPermitted);
    m.setattr(&SetAttrRequest { mode: Some(0o6777), ..setattr(file, &ROOT) }).unwrap();
    m.setattr(&cut(file, &ROOT, None)).unwrap();
    assert_eq!(m.attr(file).mode, 0o6777, "the superuser keeps them, as on Linux");
    let open = OpenRequest { truncate: true, ..OpenRequest::of(file, Rights::WRITE, 1, other) };
    m.change(|state, cx, record| state.prepare_open_truncate(cx, &open, record)).unwrap();
    assert_eq!(m.attr(file).mode, 0o777);
}

#[test]
fn capabilities_of_a_program_end_when_it_is_opened_for_writing_or_cut() {
    let mut m = Machine::new();
    let file = m.create(TOP, "f").unwrap();
    let capability = name("security.capability");
    let give = |m: &mut Machine| {
        let value = Bytes::from_static(b"cap");
        let request = SetXattrRequest { handle: file, name: capability.clone(), value, create_only: false, replace_only: false, who: ROOT };
        m.change(|state, cx, record| state.prepare_set_xattr(cx, &request, record)).unwrap();
    };
    let has = |m: &Machine| m.look(|state, _| state.get_xattr(file, &capability, &ROOT)).is_ok();
    give(&mut m);
    m.open(file, Rights::READ, 1).unwrap();
    assert!(has(&m));
    let before = m.attr(file).version;
    m.open(file, Rights::WRITE, 2).unwrap();
    assert!(!has(&m) && m.attr(file).version > before);
    give(&mut m);
    m.setattr(&SetAttrRequest { size: Some(0), ..setattr(file, &ROOT) }).unwrap();
    assert!(!has(&m));
}

#[test]
fn a_reader_sets_the_time_of_access_when_it_is_due_and_changes_nothing_else() {
    let day = weft_base::ATIME_DUE_NS;
    let mut m = Machine::new();
    let file = m.create(TOP, "f").unwrap();
    let read = |m: &mut Machine, later: i64| {
        m.now += later;
        let mut told = Vec::new();
        m.change(|state, cx, record| {
            state.prepare_read(cx, file, record);
            told.clone_from(&record.changes);
            Ok(())
        })
        .unwrap();
        // It stands beside the answer to many closes, where nobody who watches hears of it.
        let body = CloseManyReply { outcomes: vec![Ok(()); 3] }.to_bytes();
        told.push(weft_namespace::Change::reply(RequestId { client: ME, incarnation: 1, sequence: 1 }, 1, body));
        assert_eq!(weft_namespace::told(&told), []);
        m.attr(file)
    };
    let before = m.attr(file);
    assert!(before.atime <= before.mtime);
    let after = read(&mut m, 10);
    assert!(after.atime > before.ctime);
    assert_eq!(weft_base::Attr { atime: before.atime, ..after }, before, "no other time and no version");
    // Until it is changed, or for a day.
    assert_eq!(read(&mut m, day - 10), after);
    let next_day = read(&mut m, 10);
    assert!(next_day.atime.0 >= after.atime.0 + day);
    m.setattr(&SetAttrRequest { mode: Some(0o600), ..setattr(file, &ROOT) }).unwrap();
    assert!(read(&mut m, 10).atime > next_day.atime, "its attributes were changed");
    set_mtime(&mut m, file, FUTURE);
    let then = read(&mut m, 10).atime;
    assert!(read(&mut m, 10).atime > then, "what is of the future was always changed since");
    // A time of access of the future stays.
    m.setattr(&SetAttrRequest { atime: Some(SetTime { at: Some(FUTURE) }), ..setattr(file, &ROOT) }).unwrap();
    assert_eq!(read(&mut m, day).atime, FUTURE);
    m.setattr(&SetAttrRequest { atime: Some(SetTime { at: Some(WallTime(1)) }), ..setattr(file, &ROOT) }).unwrap();
    m.setattr(&SetAttrRequest { seal: Some(true), ..setattr(file, &ROOT) }).unwrap();
    assert_eq!(read(&mut m, day).atime, WallTime(1), "what is sealed does not change");
}
