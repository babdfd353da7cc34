//! Writes that their client delays: who may, who waits for them, and what a close with a content
//! does.

mod common;

use bytes::Bytes;
use common::*;
use weft_base::{ClientId, Credentials, DataTime, Handle, ROOT_HANDLE, Result, Status, WallTime};
use weft_namespace::{ContentPlace, InodeFlags, OpenChange, Record, State, told};
use weft_wire::Rights;
use weft_wire::ops::{
    ChangeKind, CloseRequest, CreateReply, CreateRequest, DelayedAttributes, LookupRequest, OpenRequest, SetAttrRequest, SetXattrRequest,
    Written,
};

const OTHER: ClientId = ClientId(2);

fn machine(limit: &str) -> Machine {
    let mut m = Machine::new();
    let (value, who) = (name(limit), Credentials::ROOT);
    let (create_only, replace_only) = (false, false);
    let request = SetXattrRequest { handle: ROOT_HANDLE, name: name("user.weft.inline_limit"), value, who, create_only, replace_only };
    m.change(|state, cx, record| state.prepare_set_xattr(cx, &request, record)).unwrap();
    m.state.keep_contents(65).unwrap();
    m
}

fn made(m: &mut Machine, file: &str, open: Rights) -> CreateReply {
    let request = CreateRequest { open, open_sequence: 7, can_delay: Some(true), ..create(ROOT_HANDLE, file) };
    m.change(|state, cx, record| state.prepare_create(cx, &request, record)).unwrap()
}

fn close(handle: Handle, end_bytes: u64, at: i64) -> CloseRequest {
    let written = Some(Written { end_bytes, mtime: DataTime { epoch: 0, at: WallTime(at) }, truncate_epoch: 0 });
    CloseRequest { handle, open_sequence: 7, keeps: Rights::default(), written }
}

fn close_with(m: &mut Machine, request: &CloseRequest, content: &'static [u8]) -> Result<()> {
    m.change(|state, cx, record| state.prepare_delayed_close(cx, request, &Bytes::from_static(content), None, record)).map(drop)
}

fn as_other<T>(m: &mut Machine, then: impl FnOnce(&mut Machine) -> T) -> T {
    let me = std::mem::replace(&mut m.client, OTHER);
    let value = then(m);
    m.client = me;
    value
}

#[test]
fn who_asks_for_it_waits_and_its_client_is_asked_back() {
    let mut m = machine("5000");
    let reply = made(&mut m, "f", Rights::WRITE);
    let handle = reply.handle;
    assert_eq!((reply.delay_bytes, reply.capability.is_some()), (Some(5000), true));
    // Its client sees it as ever.
    assert_eq!(m.attr(handle).size, 0);
    m.open(handle, Rights::READ, 7).unwrap();
    m.open(handle, Rights::WRITE, 7).unwrap();
    assert!(m.state.peek(handle).unwrap().flags.is_delayed() && m.state.take_asked_back().is_empty());
    as_other(&mut m, |m| {
        let lookup = LookupRequest { at: at(ROOT_HANDLE), name: name("f"), who: ROOT };
        let truncates = OpenRequest { truncate: true, ..OpenRequest::of(handle, Rights::WRITE, 1, ROOT) };
        let waits = |m: &mut Machine, outcome: Result<()>| {
            assert_eq!(outcome, Err(Status::Busy));
            assert_eq!(m.state.take_asked_back(), [(ME, handle)]);
        };
        let found = m.look(|state, cx| state.lookup(cx, &lookup)).map(drop);
        waits(m, found);
        let told = m.look(|state, cx| state.getattr(cx, handle)).map(drop);
        waits(m, told);
        let opened = m.open(handle, Rights::READ, 1).map(drop);
        waits(m, opened);
        let changed = m.setattr(&SetAttrRequest { mode: Some(0o600), ..setattr(handle, &ROOT) }).map(drop);
        waits(m, changed);
        let cut = m.change(|state, cx, record| state.prepare_open_truncate(cx, &truncates, record)).map(drop);
        waits(m, cut);
        // Its names are everybody's.
        m.rename(ROOT_HANDLE, "f", ROOT_HANDLE, "g").unwrap();
        assert!(m.state.take_asked_back().is_empty());
    });
    // Given back, it is like any file that is written to.
    let keeps = Rights::WRITE.with(Rights::READ);
    let back = CloseRequest { keeps, written: None, ..close(handle, 0, 0) };
    m.change(|state, cx, record| state.prepare_close(cx, &back, None, record)).unwrap();
    as_other(&mut m, |m| assert!(m.look(|state, cx| state.getattr(cx, handle)).unwrap().ask_data.is_some()));
    let flags = m.state.peek(handle).unwrap().flags;
    assert!(flags.has(InodeFlags::HAS_DATA) && !flags.has(InodeFlags::APPENDING), "nobody appends: others may open it after a restart");
    let whole = CloseRequest { open_sequence: 7, ..close(handle, 4, 2000) };
    assert_eq!(close_with(&mut m, &whole, b"late"), Err(Status::CapabilityRefused));
}

/// Also if an open of the same client was faster than the close that gives it back: opens never
/// give the right.
#[test]
fn an_open_on_its_way_does_not_keep_it() {
    let mut m = machine("5000");
    let handle = made(&mut m, "f", Rights::WRITE).handle;
    m.open(handle, Rights::READ, 9).unwrap();
    let back = CloseRequest { keeps: Rights::WRITE, written: None, ..close(handle, 0, 0) };
    m.change(|state, cx, record| state.prepare_close(cx, &back, None, record)).unwrap();
    as_other(&mut m, |m| assert!(m.look(|state, cx| state.getattr(cx, handle)).unwrap().ask_data.is_some()));
    assert_eq!(m.state.opened_by(ME, handle), Some((Rights::WRITE.with(Rights::READ), 9)));
}

#[test]
fn a_close_brings_all_of_it() {
    let mut m = machine("5000");
    let handle = made(&mut m, "f", Rights::WRITE).handle;
    let at = m.now;
    m.now += 100;
    // Not at once: it is open for writing, was opened once more, or the content is too long.
    let writes_on = CloseRequest { keeps: Rights::WRITE, ..close(handle, 7, at + 50) };
    assert_eq!(close_with(&mut m, &writes_on, b"content"), Err(Status::Conflict));
    let older = CloseRequest { open_sequence: 6, ..close(handle, 7, at + 50) };
    assert_eq!(close_with(&mut m, &older, b"content"), Err(Status::Conflict));
    static LONG: [u8; 20_000] = [1; 20_000];
    assert_eq!(close_with(&mut m, &close(handle, 20_000, at), &LONG), Err(Status::TooBig));
    assert_eq!(as_other(&mut m, |m| close_with(m, &close(handle, 7, at), b"content")), Err(Status::CapabilityRefused));
    close_with(&mut m, &close(handle, 7, at + 50), b"content").unwrap();
    let attr = as_other(&mut m, |m| m.attr(handle));
    assert!(attr.is_inline() && m.state.opened_by(ME, handle).is_none());
    assert_eq!((attr.size, attr.mtime, attr.allocated_bytes()), (7, WallTime(at + 50), 4096));
    assert_eq!(m.state.content(handle), Ok(ContentPlace::Here(Bytes::from_static(b"content"))));
    let last = Record::decode(m.log.last().unwrap().clone().into()).unwrap();
    assert_eq!(told(&last.changes).iter().map(|told| (told.what, told.handle)).collect::<Vec<_>>(), [(ChangeKind::Written, handle)]);
    // What comes twice changes nothing, and no time lies in the future.
    assert_eq!(close_with(&mut m, &close(handle, 7, at + 50), b"content"), Ok(()));
    let later = made(&mut m, "later", Rights::WRITE).handle;
    close_with(&mut m, &close(later, 1, i64::MAX), b"x").unwrap();
    assert_eq!(m.attr(later).mtime, WallTime(m.now));
    // Without a content nothing is kept, and there are no datafiles to remove; without a name its
    // client may still read it.
    let empty = made(&mut m, "empty", Rights::WRITE).handle;
    close_with(&mut m, &CloseRequest { written: None, ..close(empty, 0, 0) }, b"").unwrap();
    assert_eq!((m.attr(empty).is_inline(), m.state.peek(empty).unwrap().flags), (false, InodeFlags::default()));
    let unlinked = made(&mut m, "unlinked", Rights::WRITE).handle;
    m.unlink(ROOT_HANDLE, "unlinked").unwrap();
    close_with(&mut m, &close(unlinked, 1, at), b"x").unwrap();
    let inode = m.state.peek(unlinked).unwrap();
    assert_eq!((inode.is_inline(), inode.size, m.state.datafiles(unlinked, inode)), (true, 1, 0));
}

#[test]
fn a_time_that_was_set_meanwhile_counts_as_later() {
    let mut m = machine("5000");
    let handle = made(&mut m, "f", Rights::WRITE).handle;
    let mtime = Some(weft_wire::ops::SetTime { at: Some(WallTime(5)) });
    m.setattr(&SetAttrRequest { mtime, ..setattr(handle, &ROOT) }).unwrap();
    let now = m.now;
    close_with(&mut m, &close(handle, 7, now), b"content").unwrap();
    assert_eq!(m.attr(handle).mtime, WallTime(5));
}

#[test]
fn only_small_new_files_that_are_written_where_there_is_room() {
    let mut m = machine("5000");
    assert_eq!(made(&mut m, "read", Rights::READ).delay_bytes, None);
    let request = CreateRequest { open: Rights::WRITE, ..create(ROOT_HANDLE, "silent") };
    assert_eq!(m.change(|state, cx, record| state.prepare_create(cx, &request, record)).unwrap().delay_bytes, None);
    let exists = CreateRequest { exclusive: false, can_delay: Some(true), ..request };
    assert_eq!(m.change(|state, cx, record| state.prepare_create(cx, &exists, record)).unwrap().delay_bytes, None);
    assert_eq!(made(&mut machine("0"), "off", Rights::WRITE).delay_bytes, None);
    let mut full = machine("5000");
    full.state.content_blocks_are(2, true);
    assert_eq!(made(&mut full, "full", Rights::WRITE).delay_bytes, None);
}

/// After a restart nobody is told of it before its client has said what it has, or is given up.
#[test]
fn a_restart_waits_for_its_client() {
    let mut m = machine("5000");
    let (kept, lost) = (made(&mut m, "kept", Rights::WRITE).handle, made(&mut m, "lost", Rights::WRITE).handle);
    let mut state = State::new(settings());
    for record in &m.log {
        state.apply(&mut Record::decode(record.clone().into()).unwrap());
    }
    state.place(weft_namespace::Placement { meta: vec![weft_base::ServerId(0)], generation: 1, data_servers: 2 });
    state.keep_contents(65).unwrap();
    state.begin_grace(false);
    m.state = state;
    let delays = Rights::WRITE.with(Rights::DELAY);
    as_other(&mut m, |m| {
        assert_eq!(m.look(|state, cx| state.getattr(cx, kept)).map(drop), Err(Status::Busy));
    });
    assert!(m.state.take_asked_back().is_empty(), "there is nobody to be asked");
    assert_eq!(m.state.reclaimable(ME, kept, delays), delays);
    // The close itself says it.
    let now = m.now;
    close_with(&mut m, &close(kept, 7, now), b"content").unwrap();
    m.state.closed_by_its_only_writer(kept);
    as_other(&mut m, |m| {
        let state = m.look(|state, cx| state.getattr(cx, kept)).unwrap();
        assert_eq!((state.attr.size, state.ask_data), (7, None));
    });
    m.state.end_grace();
    as_other(&mut m, |m| assert!(m.look(|state, cx| state.getattr(cx, lost)).unwrap().ask_data.is_some()));
    assert_eq!(close_with(&mut m, &close(lost, 7, now), b"content"), Err(Status::CapabilityRefused));
    // What a close has ended is not reclaimed by what was sent before it.
    assert_eq!(m.state.reclaimable(ME, kept, delays.with(Rights::READ)), Rights::READ);
}

/// A close with attributes of what data servers have says who has delayed the writes, as one with
/// the content does: attributes that were set alone would wait until all clients have told, and
/// others would be told the old ones meanwhile.
#[test]
fn a_close_with_attributes_after_a_restart_says_that_its_client_has_delayed_them() {
    let mut m = machine("5000");
    let handle = made(&mut m, "f", Rights::WRITE).handle;
    m.state.begin_grace(false);
    m.state.drop_client(ME);
    as_other(&mut m, |m| assert_eq!(m.look(|state, cx| state.getattr(cx, handle)).map(drop), Err(Status::Busy)));
    let (request, attributes) = (close(handle, 9000, m.now), kept(Some(0o604), 5));
    m.change(|state, cx, record| state.prepare_close(cx, &request, Some(&attributes), record)).unwrap();
    let flags = m.state.peek(handle).unwrap().flags;
    assert!(!flags.is_delayed(), "{flags:?}");
    let told = as_other(&mut m, |m| m.look(|state, cx| state.getattr(cx, handle)).unwrap());
    assert_eq!((told.attr.mode & 0o777, told.attr.size), (0o604, 9000));
}

/// After a power cut, when it is not known who had what open: a new file was opened by nobody else.
#[test]
fn its_client_asks_once_more_while_the_server_waits_for_others() {
    let mut m = machine("5000");
    m.state.begin_grace(true);
    let handle = made(&mut m, "f", Rights::WRITE).handle;
    let rights = Rights::WRITE.with(Rights::DELAY);
    assert!(!m.state.may_be_excluded(ME, handle, rights));
    assert!(m.state.may_be_excluded(OTHER, handle, rights));
}

#[test]
fn the_right_ends_with_who_hears_nothing() {
    let mut m = machine("5000");
    let handle = made(&mut m, "f", Rights::WRITE).handle;
    m.change(|state, _, record| {
        state.prepare_end_of_delay(ME, handle, record);
        Ok(())
    })
    .unwrap();
    as_other(&mut m, |m| assert!(m.look(|state, cx| state.getattr(cx, handle)).unwrap().ask_data.is_some()));
    let again = OpenRequest::of(handle, Rights::WRITE.with(Rights::DELAY), 8, ROOT);
    let refused = m.change(|state, cx, record| state.prepare_open(cx, &again, record));
    assert_eq!(refused.map(drop), Err(Status::CapabilityRefused));
}

fn kept(mode: Option<u32>, mtime: i64) -> DelayedAttributes {
    DelayedAttributes { number: 0, mode, atime: Some(WallTime(3)), mtime: Some(WallTime(mtime)), at: WallTime(i64::MAX) }
}

fn close_and_set(m: &mut Machine, request: &CloseRequest, attributes: &DelayedAttributes) -> Result<()> {
    close_with_all(m, request, b"here", attributes)
}

fn close_with_all(m: &mut Machine, request: &CloseRequest, content: &'static [u8], attributes: &DelayedAttributes) -> Result<()> {
    let content = Bytes::from_static(content);
    m.change(|state, cx, record| state.prepare_delayed_close(cx, request, &content, Some(attributes), record)).map(drop)
}

/// A close whose answer was lost comes once more. What it tells then and did not tell at first is
/// not passed over.
#[test]
fn a_close_that_is_repeated_tells_nothing_new() {
    for content in [&b"here"[..], b""] {
        let mut m = machine("5000");
        let handle = made(&mut m, "f", Rights::WRITE).handle;
        let request = CloseRequest { written: None, ..close(handle, 4, 2000) };
        close_with_all(&mut m, &request, content, &kept(Some(0o604), 5)).unwrap();
        let before = m.attr(handle);
        assert_eq!(close_with_all(&mut m, &request, content, &kept(Some(0o604), 5)), Ok(()));
        assert_eq!(close_with_all(&mut m, &request, content, &kept(Some(0o604), 6)), Err(Status::CapabilityRefused));
        assert_eq!(close_with(&mut m, &request, content), Ok(()), "{} bytes", content.len());
        assert_eq!(m.attr(handle), before);
    }
}

/// A close whose answer was lost with its server comes once more when its client has told what it
/// has open: it ends that, too.
#[test]
fn a_close_that_is_repeated_after_a_restart_ends_what_was_told_since() {
    let mut m = machine("5000");
    let handle = made(&mut m, "f", Rights::READ.with(Rights::WRITE)).handle;
    let request = CloseRequest { written: None, ..close(handle, 4, 2000) };
    close_with(&mut m, &request, b"here").unwrap();
    m.state.begin_grace(false);
    m.state.apply_open(OpenChange::Open { client: ME, handle, rights: Rights::READ, sequence: 7 });
    close_with(&mut m, &request, b"here").unwrap();
    assert_eq!(m.state.opened_by(ME, handle), None);
    // What was opened since is open.
    m.state.apply_open(OpenChange::Open { client: ME, handle, rights: Rights::READ, sequence: 8 });
    close_with(&mut m, &request, b"here").unwrap();
    assert_eq!(m.state.opened_by(ME, handle), Some((Rights::READ, 8)));
}

/// Who has written nothing has lost nothing.
#[test]
fn a_close_of_nothing_needs_no_right_to_delay() {
    let mut m = machine("5000");
    let handle = made(&mut m, "f", Rights::WRITE).handle;
    let client = m.client;
    m.change(|state, _, record| {
        state.prepare_end_of_delay(client, handle, record);
        Ok(())
    })
    .unwrap();
    let request = CloseRequest { written: None, ..close(handle, 0, 2000) };
    assert_eq!(close_with(&mut m, &request, b"here"), Err(Status::CapabilityRefused));
    assert_eq!(close_with(&mut m, &request, b""), Ok(()));
    assert!(m.state.opened_by(client, handle).is_none(), "it is closed");
}

/// What its owner has set comes with the close, in the order of the writes.
#[test]
fn a_close_sets_what_its_client_has_kept() {
    let mut m = machine("5000");
    for (file, epoch, mtime) in [("before", 2, 2000), ("after", 0, 5)] {
        let handle = made(&mut m, file, Rights::WRITE).handle;
        let before = m.attr(handle);
        let mut request = close(handle, 4, 2000);
        request.written.as_mut().unwrap().mtime.epoch = epoch;
        m.now += 8000;
        close_and_set(&mut m, &request, &kept(Some(0o604), 5)).unwrap();
        let attr = m.attr(handle);
        let times = (attr.atime, attr.mtime, attr.ctime);
        assert_eq!((attr.permissions(), times), (0o604, (WallTime(3), WallTime(mtime), WallTime(m.now))), "{file}");
        assert!(attr.is_inline() && attr.version > before.version && attr.mtime_epoch == epoch.max(1));
    }
}

/// What not even an owner sets without being looked at is not taken from a close, and neither is
/// anything of a file that others may have seen.
#[test]
fn a_close_sets_nothing_else() {
    let mut m = machine("5000");
    let handle = made(&mut m, "f", Rights::WRITE).handle;
    let request = close(handle, 4, 2000);
    for mode in [0o4755, 0o2755, 0o1755, 0o10_755, u32::MAX] {
        assert_eq!(close_and_set(&mut m, &request, &kept(Some(mode), 5)), Err(Status::NotSupported), "{mode:o}");
    }
    m.setattr(&SetAttrRequest { mode: Some(0o4755), ..setattr(handle, &ROOT) }).unwrap();
    assert_eq!(close_and_set(&mut m, &request, &kept(None, 5)), Err(Status::NotSupported));
    let back = CloseRequest { keeps: Rights::WRITE, written: None, ..close(handle, 0, 0) };
    m.change(|state, cx, record| state.prepare_close(cx, &back, None, record)).unwrap();
    assert_eq!(close_and_set(&mut m, &request, &kept(None, 5)), Err(Status::CapabilityRefused));
    assert_eq!(m.attr(handle).permissions(), 0o4755);
}

/// What data servers have already: size and times come as with any close, attributes with them.
#[test]
fn attributes_come_with_a_close_whose_bytes_are_at_data_servers() {
    let mut m = machine("5000");
    let handle = made(&mut m, "f", Rights::WRITE).handle;
    let bare = made(&mut m, "bare", Rights::WRITE);
    assert_eq!(bare.closes_with_attributes, Some(true));
    let (at, told) = (m.now, kept(Some(0o640), 5));
    m.now += 100;
    let close_out = |m: &mut Machine, request: &CloseRequest, attributes: &DelayedAttributes| {
        m.change(|state, cx, record| state.prepare_close(cx, request, Some(attributes), record)).map(drop)
    };
    let writes_on = CloseRequest { keeps: Rights::WRITE, ..close(handle, 9000, at + 50) };
    assert_eq!(close_out(&mut m, &writes_on, &told), Err(Status::Conflict));
    assert_eq!(close_out(&mut m, &close(handle, 9000, at + 50), &kept(Some(0o4755), 5)), Err(Status::NotSupported));
    as_other(&mut m, |m| assert_eq!(close_out(m, &close(handle, 9000, at + 50), &told), Err(Status::CapabilityRefused)));
    let version = m.attr(handle).version;
    close_out(&mut m, &close(handle, 9000, at + 50), &told).unwrap();
    let attr = as_other(&mut m, |m| m.attr(handle));
    assert_eq!((attr.size, attr.permissions(), attr.mtime, attr.mtime_epoch), (9000, 0o640, WallTime(5), 1));
    assert!(attr.version > version && !attr.is_inline());
    assert!(!m.state.peek(handle).unwrap().flags.has(InodeFlags::WRITING));
    // Once more, since the answer did not get out; but not over what somebody else has set since.
    close_out(&mut m, &close(handle, 9000, at + 50), &told).unwrap();
    as_other(&mut m, |m| m.setattr(&SetAttrRequest { mode: Some(0o600), ..setattr(handle, &ROOT) }).unwrap());
    assert_eq!(close_out(&mut m, &close(handle, 9000, at + 50), &told), Err(Status::CapabilityRefused));
    assert_eq!(m.attr(handle).permissions(), 0o600);
}

fn open_to_delay(m: &mut Machine, handle: Handle, open_sequence: u64) -> Option<u32> {
    let request = OpenRequest { can_delay: Some(true), ..open(handle, Rights::WRITE, open_sequence) };
    m.open_with(&request).unwrap().delay.map(|delay| delay.bytes)
}

fn give_back(m: &mut Machine, handle: Handle, open_sequence: u64) {
    let back = CloseRequest { open_sequence, keeps: Rights::WRITE, ..close(handle, 0, 0) };
    m.change(|state, cx, record| state.prepare_close(cx, &back, None, record)).unwrap();
}

/// Who alone has a file open that was there before may delay what it writes to it, for data
/// servers; and gives that back as any other.
#[test]
fn a_file_that_was_there_is_delayed_by_who_is_alone() {
    let mut m = machine("5000");
    let handle = m.create(ROOT_HANDLE, "f").unwrap();
    as_other(&mut m, |m| m.open(handle, Rights::READ, 3).unwrap());
    assert_eq!(open_to_delay(&mut m, handle, 1), None, "another one reads it");
    let closed = CloseRequest { open_sequence: 3, written: None, ..close(handle, 0, 0) };
    as_other(&mut m, |m| m.change(|state, cx, record| state.prepare_close(cx, &closed, None, record)).unwrap());
    assert_eq!(open_to_delay(&mut m, handle, 2), Some(0));
    assert_eq!(open_to_delay(&mut m, handle, 3), None, "it has the right");
    as_other(&mut m, |m| assert_eq!(m.open(handle, Rights::READ, 5).map(drop), Err(Status::Busy)));
    assert_eq!(m.state.take_asked_back(), [(ME, handle)]);
    give_back(&mut m, handle, 3);
    let flags = m.state.peek(handle).unwrap().flags;
    assert!(!flags.is_delayed() && flags.may_have_data() && !flags.has(InodeFlags::APPENDING));
    as_other(&mut m, |m| assert!(m.look(|state, cx| state.getattr(cx, handle)).unwrap().ask_data.is_some()));
    // Whose it is may be told anew, and what gave the right before back does not take it now.
    assert_eq!(open_to_delay(&mut m, handle, 4), Some(0));
    give_back(&mut m, handle, 3);
    assert!(m.state.peek(handle).unwrap().flags.is_delayed());
    as_other(&mut m, |m| assert_eq!(m.look(|state, cx| state.getattr(cx, handle)).map(drop), Err(Status::Busy)));
    // What data servers have does not come here with a close.
    m.change(|state, cx, record| state.prepare_close(cx, &CloseRequest { open_sequence: 4, ..close(handle, 9, 5) }, None, record)).unwrap();
    assert_eq!((m.attr(handle).size, open_to_delay(&mut m, handle, 5)), (9, Some(0)));
    let late = CloseRequest { open_sequence: 5, ..close(handle, 4, 2000) };
    assert_eq!(close_with(&mut m, &late, b"here"), Err(Status::Conflict));
}

/// After a restart nobody is told of it before its client has said that it has it.
#[test]
fn a_file_that_was_there_is_told_to_nobody_after_a_restart() {
    let mut m = machine("5000");
    let handle = m.create(ROOT_HANDLE, "f").unwrap();
    assert_eq!(open_to_delay(&mut m, handle, 2), Some(0));
    m.state.begin_grace(false);
    m.state.drop_client(ME);
    as_other(&mut m, |m| assert_eq!(m.look(|state, cx| state.getattr(cx, handle)).map(drop), Err(Status::Busy)));
    let rights = Rights::WRITE.with(Rights::DELAY);
    assert_eq!(m.state.reclaimable(ME, handle, rights), rights);
    // Somebody was cut off so long that it was given up, and comes back in this moment.
    m.state.apply_open(OpenChange::Open { client: OTHER, handle, rights: Rights::READ, sequence: 1 });
    assert_eq!(m.state.reclaimable(ME, handle, rights), rights, "it was heard all the time");
    m.state.apply_open(OpenChange::Open { client: ME, handle, rights, sequence: 2 });
    assert_eq!(m.state.take_asked_back(), [(ME, handle)], "but is not alone");
    m.state.apply_open(OpenChange::Open { client: OTHER, handle, rights: Rights::WRITE, sequence: 2 });
    assert_eq!(m.state.reclaimable(ME, handle, rights), Rights::WRITE);
}

/// Who cuts a small file to nothing moves nothing out, and may have it here again.
#[test]
fn a_small_file_that_is_cut_stays_small() {
    let mut m = machine("5000");
    let handle = made(&mut m, "f", Rights::WRITE).handle;
    close_with(&mut m, &close(handle, 7, 0), b"content").unwrap();
    let cut = |m: &mut Machine, open_sequence, can_delay| {
        let request = OpenRequest { truncate: true, can_delay, ..open(handle, Rights::WRITE, open_sequence) };
        let plan = m.change(|state, cx, record| state.prepare_open_truncate(cx, &request, record)).unwrap();
        let weft_namespace::SizePlan::Done(reply) = plan else { panic!("there is nothing to be cut at data servers") };
        assert_eq!((reply.state.attr.size, reply.state.attr.is_inline()), (0, false));
        reply.delay.map(|delay| delay.bytes)
    };
    assert_eq!(cut(&mut m, 8, Some(true)), Some(4096));
    let inode = m.state.peek(handle).unwrap();
    assert_eq!((inode.content_run(), inode.truncate_epoch, inode.flags.is_delayed()), (None, 1, true));
    close_with(&mut m, &CloseRequest { open_sequence: 8, ..close(handle, 3, 0) }, b"new").unwrap();
    assert_eq!(m.state.content(handle), Ok(ContentPlace::Here(Bytes::from_static(b"new"))));
    // Without the right it is at data servers from now on.
    assert_eq!(cut(&mut m, 9, None), None);
    let flags = m.state.peek(handle).unwrap().flags;
    assert!(flags.may_have_data() && !flags.is_delayed());
}
