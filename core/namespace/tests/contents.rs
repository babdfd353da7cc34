//! Contents that come with a create: who may give them, when they stay, and whose blocks are whose.

mod common;

use bytes::Bytes;
use common::*;
use weft_base::{Credentials, DataTime, FileKind, Handle, MODE_INLINE, ROOT_HANDLE, Result, Status, WallTime};
use weft_namespace::{ContentPlace, InodeFlags, MovePlan, Record, Settings, State, told};
use weft_wire::Rights;
use weft_wire::ops::{
    ChangeKind, CloseRequest, CreateReply, CreateRequest, OpenRequest, SetAttrRequest, SetTime, SetXattrRequest, Written,
};

fn with(file: &str, content: &[u8]) -> CreateRequest {
    CreateRequest { exclusive: false, open: Rights::WRITE, content: Some(Bytes::copy_from_slice(content)), ..create(ROOT_HANDLE, file) }
}

fn put(m: &mut Machine, request: &CreateRequest) -> Result<CreateReply> {
    m.change(|state, cx, record| state.prepare_create(cx, request, record))
}

/// True if the server has taken the content in.
fn is_in(reply: &CreateReply) -> bool {
    let is_inline = reply.state.as_ref().is_some_and(|state| state.attr.is_inline());
    assert_eq!(is_inline, reply.capability.is_none());
    is_inline
}

/// With room for so many blocks of contents.
fn machine(limit: &str, blocks: u64) -> Machine {
    let mut m = Machine::new();
    set_limit(&mut m, ROOT_HANDLE, limit);
    m.state.keep_contents(blocks + 1).unwrap();
    m
}

fn set_limit(m: &mut Machine, handle: Handle, limit: &str) {
    let (value, who) = (name(limit), Credentials::ROOT);
    let (create_only, replace_only) = (false, false);
    let request = SetXattrRequest { handle, name: name("user.weft.inline_limit"), value, who, create_only, replace_only };
    m.change(|state, cx, record| state.prepare_set_xattr(cx, &request, record)).unwrap();
}

#[test]
fn the_limit_of_the_file_system_counts_where_no_hint_does() {
    let mut m = Machine::with(Settings { inline_limit: 5000, ..settings() });
    m.state.keep_contents(16).unwrap();
    assert!(m.attr(ROOT_HANDLE).bare, "it is no attribute of a directory");
    let new = put(&mut m, &with("small", b"bytes")).unwrap();
    let long = put(&mut m, &with("long", &[1; 5001])).unwrap();
    assert!(is_in(&new) && !is_in(&long));
    // A directory that has it off, and one that is made in it.
    let outer = m.mkdir(ROOT_HANDLE, "off").unwrap();
    set_limit(&mut m, outer, "0");
    let inner = m.mkdir(outer, "below").unwrap();
    for dir in [outer, inner] {
        let file = put(&mut m, &CreateRequest { at: at(dir), ..with("small", b"bytes") }).unwrap();
        assert!(!is_in(&file));
    }
}

fn content(state: &State, handle: Handle) -> Result<Option<Bytes>> {
    Ok(match state.content(handle)? {
        ContentPlace::Here(bytes) => Some(bytes),
        ContentPlace::Out => None,
        ContentPlace::Stored { .. } => panic!("nothing was stored"),
    })
}

/// What a restart makes of the records.
fn replayed(m: &Machine) -> State {
    let mut state = State::new(settings());
    for record in &m.log {
        state.apply(&mut Record::decode(record.clone().into()).unwrap());
    }
    state
}

#[test]
fn what_fits_stays_and_is_told_as_closed() {
    let mut m = machine("5000", 16);
    let new = put(&mut m, &with("f", b"some bytes")).unwrap();
    assert!(is_in(&new) && new.created && m.state.opened_by(ME, new.handle).is_none());
    let attr = m.attr(new.handle);
    assert_eq!((attr.size, attr.mode, attr.hole_bytes), (10, 0o644 | MODE_INLINE, 0));
    assert_eq!(content(&m.state, new.handle), Ok(Some(Bytes::from_static(b"some bytes"))));
    // Another content in its place.
    let again = put(&mut m, &with("f", b"other")).unwrap();
    assert_eq!((is_in(&again), again.created, again.handle), (true, false, new.handle));
    let changed = m.attr(new.handle);
    assert!(changed.mtime > attr.mtime && changed.version > attr.version && changed.truncate_epoch > attr.truncate_epoch);
    let last = Record::decode(m.log.last().unwrap().clone().into()).unwrap();
    assert_eq!(told(&last.changes).iter().map(|told| (told.what, told.handle)).collect::<Vec<_>>(), [(ChangeKind::Written, new.handle)]);
    assert_eq!(content(&replayed(&m), new.handle), Ok(Some(Bytes::from_static(b"other"))));
    // An empty one takes no block.
    let empty = put(&mut m, &with("empty", b"")).unwrap();
    assert_eq!((is_in(&empty), content(&m.state, empty.handle)), (true, Ok(Some(Bytes::new()))));
    // What does not fit is opened, and new ones in its place too.
    for (file, bytes) in [("long", 5001), ("long", 1)] {
        let reply = put(&mut m, &with(file, &vec![7; bytes])).unwrap();
        assert!(!is_in(&reply) && m.state.opened_by(ME, reply.handle).is_some());
    }
    // Only files have one.
    let pipe = CreateRequest { kind: FileKind::Fifo, open: Rights::default(), ..with("pipe", b"x") };
    assert!(!put(&mut m, &pipe).unwrap().state.unwrap().attr.is_inline());
    assert_eq!(put(&mut m, &CreateRequest { exclusive: true, ..with("f", b"x") }), Err(Status::Exists));
    assert_eq!(put(&mut m, &CreateRequest { who: user(5, 5), ..with("f", b"x") }), Err(Status::AccessDenied));
}

/// Who has not even opened it says that it has written to it.
#[test]
fn writes_that_nobody_can_have_made_are_refused() {
    let mut m = machine("5000", 16);
    let file = put(&mut m, &with("f", b"bytes")).unwrap().handle;
    let mtime = DataTime { epoch: 0, at: WallTime(5000) };
    let written = Some(Written { end_bytes: 1 << 40, mtime, truncate_epoch: m.attr(file).truncate_epoch });
    let close = CloseRequest { handle: file, open_sequence: 1, keeps: Rights::default(), written };
    let closed = m.change(|state, cx, record| state.prepare_close(cx, &close, None, record));
    assert_eq!((closed, m.attr(file).size), (Err(Status::CapabilityRefused), 5));
}

#[test]
fn blocks_come_back_when_the_record_that_freed_them_is_safe() {
    let mut m = machine("16384", 4);
    let four = put(&mut m, &with("four", &[1; 16384])).unwrap();
    assert!(is_in(&four));
    assert_eq!(put(&mut m, &with("one", b"x")), Err(Status::Busy), "the container may grow");
    m.state.content_blocks_are(5, true);
    assert!(!is_in(&put(&mut m, &with("one", b"x")).unwrap()), "it cannot");
    m.unlink(ROOT_HANDLE, "four").unwrap();
    assert_eq!(m.state.content(four.handle), Err(Status::Stale));
    assert!(!is_in(&put(&mut m, &with("two", b"x")).unwrap()), "a power cut may bring it back");
    let freed = m.state.freed_contents();
    let reads = m.state.begin_content_io();
    m.state.freed_contents_durable(freed);
    assert!(is_in(&put(&mut m, &with("three", b"x")).unwrap()), "who reads from now on does not read it");
    m.state.end_content_io(reads);
    for (file, number) in [("a", 1), ("a", 2), ("b", 3)] {
        assert!(is_in(&put(&mut m, &with(file, &[number; 4096])).unwrap()), "{file}: a new content is beside the old one");
    }
    m.rename(ROOT_HANDLE, "b", ROOT_HANDLE, "a").unwrap();
    // The blocks of a restart are those of the inodes.
    let mut state = replayed(&m);
    assert_eq!(state.keep_contents(5), Ok(()));
    assert_eq!(state.content_usage(), (2 * 4096, 2 * 4096));
    assert_eq!(content(&state, m.lookup(ROOT_HANDLE, "a").unwrap()), Ok(Some(Bytes::from(vec![3; 4096]))));
    assert!(state.keep_contents(3).is_err(), "a container that is cut");
}

#[test]
fn whoever_writes_waits_until_it_is_out() {
    let mut m = machine("5000", 16);
    let file = put(&mut m, &with("f", b"bytes")).unwrap().handle;
    let open = |m: &mut Machine, rights, inline| {
        let request = OpenRequest { inline, ..OpenRequest::of(file, rights, 1, ROOT) };
        m.change(|state, cx, record| state.prepare_open(cx, &request, record)).map(|reply| reply.state.attr.is_inline())
    };
    assert_eq!((open(&mut m, Rights::READ, Some(true)), open(&mut m, Rights::READ, None)), (Ok(true), Err(Status::Busy)));
    assert_eq!(open(&mut m, Rights::READ.with(Rights::WRITE), Some(true)), Err(Status::Busy));
    assert_eq!(m.setattr(&SetAttrRequest { size: Some(1), ..setattr(file, &ROOT) }), Err(Status::Busy));
    assert!(m.setattr(&SetAttrRequest { mode: Some(0o600), ..setattr(file, &ROOT) }).is_ok() && m.attr(file).is_inline());
    // Who says that he writes to it cannot have been answered.
    assert_eq!(m.state.reclaimable(ME, file, Rights::READ.with(Rights::WRITE)), Rights::READ);
    let attr = m.attr(file);
    let plan = m.change(|state, _, record| Ok(state.plan_move_out(file, record))).unwrap();
    assert_eq!(plan, Some(MovePlan::Announce));
    // What is on its way out takes no content, and goes with its datafile.
    assert_eq!(put(&mut m, &with("f", b"late")), Err(Status::Busy));
    assert_eq!(content(&m.state, file), Ok(Some(Bytes::from_static(b"bytes"))));
    let inode = m.state.peek(file).unwrap().clone();
    assert!(inode.flags.has(InodeFlags::HAS_DATA) && m.state.datafiles(file, &inode) == 1);
    assert_eq!(replayed(&m).plan_move_out(file, &mut Record::default()), Some(MovePlan::Copy));
    m.change(|state, _, record| state.prepare_moved_out(file, record)).unwrap();
    assert_eq!((content(&m.state, file), m.state.plan_move_out(file, &mut Record::default())), (Ok(None), None));
    let out = m.attr(file);
    assert_eq!((out.mtime, out.mtime_epoch, out.size, out.hole_bytes, out.is_inline()), (attr.mtime, 1, 5, 0, false));
    assert_eq!(open(&mut m, Rights::READ.with(Rights::WRITE), None), Ok(false));
    assert!(!is_in(&put(&mut m, &with("f", b"x")).unwrap()), "what is out stays out");
}

#[test]
fn where_a_time_was_told_there_may_be_a_datafile() {
    let mut m = machine("5000", 16);
    let (out, inside) = (m.create(ROOT_HANDLE, "out").unwrap(), put(&mut m, &with("in", b"bytes")).unwrap().handle);
    let datafiles = |m: &Machine, file| m.state.datafiles(file, m.state.peek(file).unwrap());
    m.state.begin_grace(true);
    for file in [out, inside] {
        let mtime = Some(SetTime { at: Some(WallTime(7)) });
        m.setattr(&SetAttrRequest { mtime, ..setattr(file, &ROOT) }).unwrap();
    }
    m.state.end_grace();
    // Anybody might have been writing to the one, and nobody to the other.
    assert_eq!((datafiles(&m, out), datafiles(&m, inside)), (2, 0));
}
