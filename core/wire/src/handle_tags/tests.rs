use weft_base::{Credentials, FileKind, ROOT_HANDLE, ServerId, ServerRole};

use super::*;
use crate::ops::{
    CloseManyRequest, CloseRequest, DirEntry, DirTarget, FoundName, GetAttrManyRequest, GetAttrRequest, GiveNamesRequest, LinkRequest,
    LookupManyReply, LookupManyRequest, LookupReply, NamesInDir, OpenFile, PartitionMap, ReclaimRequest, RenameRequest,
};

const SERVER: ClusterKey = ClusterKey([7; 32]);
const ROOT: Handle = Handle(40);
const TOLD: [Handle; 2] = [Handle(41), Handle(42)];
const GUESSED: Handle = Handle(43);

fn tags() -> HandleTags {
    HandleTags::new(&SERVER, KeyId(3), 1, ROOT)
}

fn nothing(_: Handle) -> Rights {
    Rights::default()
}

fn at(dir: Handle) -> DirTarget {
    DirTarget { dir, map_epoch: 0 }
}

fn who() -> Credentials {
    Credentials::ROOT
}

/// The shortest request of zeros that can be read; with one 8, where it needs a kind of object.
fn of_zeros(op: Op) -> Request {
    if op == Op::GiveNames {
        // Its map must make sense.
        let (dir, map, to) = (Handle(0), PartitionMap::whole(ServerId(0)), ServerId(0));
        return Request::GiveNames(GiveNamesRequest { dir, map, first: 0, last: 0, to, names_max: 0 });
    }
    let read = |bytes: Vec<u8>| Request::of(op, bytes.into()).ok();
    let with_kind = |len: usize, at: usize| (0..len).map(|index| if index == at { FileKind::File as u8 } else { 0 }).collect();
    let zeros = (0..600).find_map(|len| read(vec![0; len]));
    zeros.or_else(|| (0..120).find_map(|len| (0..len).find_map(|at| read(with_kind(len, at))))).expect("a request can be read")
}

/// Requests that name several objects, with these.
fn requests(first: Handle, second: Handle) -> Vec<Request> {
    let close = |handle| CloseRequest { handle, open_sequence: 1, keeps: Rights::default(), written: None };
    let open = |handle| OpenFile { handle, rights: Rights::READ, open_sequence: 1 };
    let name = || b"x"[..].into();
    let names = |dir| NamesInDir { at: at(dir), names: vec![name(), name()] };
    vec![
        Request::Rename(RenameRequest {
            from: at(first),
            from_name: name(),
            to: at(second),
            to_name: name(),
            no_replace: false,
            exchange: false,
            who: who(),
        }),
        Request::Link(LinkRequest { handle: second, kind: FileKind::File, to: at(first), to_name: name(), who: who() }),
        Request::LookupMany(LookupManyRequest { dirs: vec![names(first), names(second)], who: who(), contents: None }),
        Request::GetAttrMany(GetAttrManyRequest { handles: vec![first, second] }),
        Request::CloseMany(CloseManyRequest { contents: None, attributes: None, read: None, closes: vec![close(first), close(second)] }),
        Request::Reclaim(ReclaimRequest { opens: vec![open(first), open(second)], locks: None, goes_on: None }),
    ]
}

#[test]
fn no_operation_takes_a_guessed_handle() {
    for op in Op::ALL {
        let request = of_zeros(*op);
        let mut named = 0;
        request.each_handle(&mut |_| named += 1);
        let refused = tags().check(&request, &[], nothing).is_err();
        let is_a_list = requests(GUESSED, GUESSED).iter().any(|list| list.op() == *op && named == 0);
        // An operation of metadata servers that needs no tag names no object, is refused as a whole
        // to limited keys, or shows a capability, which no client has of what it was not told.
        let names_none = matches!(op, Op::SyncMeta | Op::Notices | Op::Usage);
        let shows = AllowedBy::Capability;
        let names_none = names_none || [AllowedBy::UnlimitedKey, AllowedBy::ServersKey, shows].contains(&op.allowed_by());
        let expected = op.role() == Some(ServerRole::Meta) && !names_none && !is_a_list;
        assert_eq!((refused, op.needs_tags() && named > 0), (expected, expected), "{}", op.name());
        // The object for dashboards is one of those that it names.
        let mut is_named = request.object() == Handle(0);
        request.each_handle(&mut |handle| is_named |= handle == request.object());
        assert!(is_named, "{}", op.name());
    }
}

#[test]
fn each_of_several_objects_needs_its_tag() {
    let tags = tags();
    let [first, second] = TOLD;
    let shown = [tags.tag(first), tags.tag(second)];
    for request in requests(first, second) {
        assert_eq!(tags.check(&request, &shown, nothing), Ok(()), "{:?}", request.op());
        for few in [&[][..], &shown[..1], &[shown[1], shown[0]], &[HandleTag::default(), shown[1]]] {
            assert_eq!(tags.check(&request, few, nothing), Err(Status::Stale), "{:?}", request.op());
        }
    }
    for (one, other) in [(first, GUESSED), (GUESSED, second)] {
        for request in requests(one, other) {
            assert_eq!(tags.check(&request, &shown, nothing), Err(Status::Stale), "{:?}", request.op());
        }
    }
    // The root of the key needs none, and that of the file system does.
    assert!(requests(ROOT, ROOT).iter().all(|request| tags.check(request, &[], nothing).is_ok()));
    assert!(requests(ROOT_HANDLE, ROOT).iter().all(|request| tags.check(request, &[], nothing).is_err()));
}

#[test]
fn what_is_open_needs_no_tag_except_after_a_restart() {
    let opened = |handle| if handle == GUESSED { Rights::READ } else { Rights::default() };
    for request in requests(GUESSED, GUESSED) {
        let expected = if request.op() == Op::Reclaim { Err(Status::Stale) } else { Ok(()) };
        assert_eq!(tags().check(&request, &[], opened), expected, "{:?}", request.op());
    }
}

#[test]
fn tags_are_of_one_key_one_generation_and_one_root() {
    let request = Request::GetAttr(GetAttrRequest { handle: TOLD[0] });
    let shown = tags().tag(TOLD[0]);
    assert_eq!(tags().check(&request, &[shown], nothing), Ok(()));
    for (server, key, generation, root) in [
        (SERVER, KeyId(4), 1, ROOT),
        (SERVER, KeyId(3), 2, ROOT),
        (SERVER, KeyId(3), 1, Handle(44)),
        (ClusterKey([8; 32]), KeyId(3), 1, ROOT),
    ] {
        let other = HandleTags::new(&server, key, generation, root);
        assert_eq!(other.check(&request, &[shown], nothing), Err(Status::Stale));
    }
}

#[test]
fn replies_have_the_tags_of_what_they_tell() {
    let tags = tags();
    let reply = LookupReply { handle: TOLD[0], kind: FileKind::File, state: None };
    let body = tags.told(Op::Lookup, reply.to_bytes()).unwrap();
    assert_eq!(LookupReply::from_bytes(body.clone()), Ok(reply.clone()), "who does not know tags reads it as well");
    assert_eq!(Tagged::from_bytes(body), Ok(Tagged { message: reply, tags: vec![tags.tag(TOLD[0])] }));
    let entry = |handle| DirEntry { name: b"x"[..].into(), handle, kind: FileKind::File, cookie: 9, state: None };
    let found = |handle| FoundName { handle, kind: FileKind::File, state: None, read: None };
    let reply = LookupManyReply { found: vec![Ok(found(TOLD[1])), Err(Status::NotFound), Ok(found(TOLD[0]))], contents: None };
    let told: Tagged<LookupManyReply> = Tagged::from_bytes(tags.told(Op::LookupMany, reply.to_bytes()).unwrap()).unwrap();
    assert_eq!((told.message, told.tags), (reply, vec![tags.tag(TOLD[1]), tags.tag(TOLD[0])]));
    let reply = ReadDirReply { entries: TOLD.map(entry).to_vec(), until: 9, parent: GUESSED };
    let told: Tagged<ReadDirReply> = Tagged::from_bytes(tags.told(Op::ReadDir, reply.to_bytes()).unwrap()).unwrap();
    assert_eq!(told.tags, TOLD.map(|handle| tags.tag(handle)));
    assert_eq!((told.message.parent, told.message.entries), (Handle(0), reply.entries), "nobody is told what is above");
    assert_eq!(tags.told(Op::Close, ().to_bytes()), Ok(().to_bytes()));
}

#[test]
fn tags_stand_behind_the_extensions_of_a_message() {
    let reply = crate::ops::MeetReply { birth: 1, epoch: 2, map: None, server: None, durable_lsn: None, yours_lsn: None, is_older: None };
    let entry = weft_base::ServerEntry { id: weft_base::ServerId(1), name: "a".into(), address: "b".into() };
    let message = crate::ops::MeetReply { server: Some(entry), ..reply };
    let tagged = Tagged { message, tags: vec![HandleTag([1; 16])] };
    assert_eq!(Tagged::from_bytes(tagged.to_bytes()), Ok(tagged));
}
