use super::*;
use crate::ops::{
    CloseManyRequest, DelayedContent, DirTarget, OpenFile, OpenRequest, PingRequest, ReclaimRequest, RemoveXattrRequest, SetXattrRequest,
    SplitRequest, UnlinkRequest, Written,
};
use weft_base::DataTime;

const SERVER: ClusterKey = ClusterKey([7; 32]);

fn ring(list: &str) -> KeyRing {
    KeyRing::new(SERVER).with_list(&format!("{HEADING}\n{list}")).unwrap()
}

fn who(uid: u32) -> Credentials {
    Credentials { uid, gid: uid, groups: vec![0, 4], checked_by_kernel: true }
}

fn nothing(_: Handle) -> (Rights, Option<u32>) {
    (Rights::default(), None)
}

fn unlink(uid: u32) -> Request {
    let at = DirTarget { dir: Handle(1), map_epoch: 1 };
    Request::Unlink(UnlinkRequest::of(at, b"x"[..].into(), who(uid)))
}

#[test]
fn a_client_can_prove_nothing_but_its_own_key() {
    let ring = ring(
        "1 1 default users=any\n2 3 nightly users=1000-1999 read-only root-squash\n3 1 old users=any revoked\n5 1 inside users=any subtree=99\n",
    );
    let (first, ..) = ring.find(KeyId(1)).unwrap();
    let (second, generation, access) = ring.find(KeyId(2)).unwrap();
    assert!(first != second && first != SERVER && second != SERVER);
    assert_eq!((generation, access.is_read_only, access.uid_min, access.uid_max), (3, true, 1000, 1999));
    assert_ne!(second, SERVER.of_client(KeyId(2), 2), "a replaced key is another one");
    let inside = ring.credential(KeyId(5)).unwrap();
    assert_eq!(
        (inside.key, inside.root, ring.credential(KeyId(2)).unwrap().root),
        (SERVER.of_client(KeyId(5), 1), Handle(99), ROOT_HANDLE)
    );
    assert!(ring.find(KeyId(3)).is_none() && ring.find(KeyId(4)).is_none());
    assert_eq!(ring.find(KeyId::SERVERS), Some((SERVER, 0, KeyRights::SERVER)));
    assert!(ring.still_accepts(KeyId(2), 3, access) && !ring.still_accepts(KeyId(2), 2, access));
    assert_eq!(KeyRing::new(SERVER).with_list(&ring.list()).unwrap().list(), ring.list());
}

#[test]
fn only_a_key_without_limits_says_for_which_project_something_counts() {
    let named = |name: &str| {
        let (handle, name, value) = (Handle(5), bytes::Bytes::copy_from_slice(name.as_bytes()), b"7"[..].into());
        Request::SetXattr(SetXattrRequest { handle, name, value, create_only: false, replace_only: false, who: who(0) })
    };
    let inside = KeyRights { root: Handle(99), ..KeyRights::CLIENT };
    for name in ["user.weft.project", "user.pvfs2.project"] {
        assert_eq!(inside.check_request(&mut named(name), nothing), Err(Status::KeyForbids));
    }
    assert_eq!(inside.check_request(&mut named("user.weft.stripe_size"), nothing), Ok(()));
    let mut removes = Request::RemoveXattr(RemoveXattrRequest { handle: Handle(5), name: b"user.weft.project"[..].into(), who: who(0) });
    assert_eq!(inside.check_request(&mut removes, nothing), Err(Status::KeyForbids));
}

#[test]
fn a_list_that_is_not_understood_is_refused() {
    for (list, words) in [
        ("1 1", "the name is missing"),
        ("0 1 x", "a number from 1"),
        ("1 x x", "no number"),
        ("1 1 x subtree=/a", "`subtree=/a` is not known"),
        ("1 1 x subtree=0", "`subtree=0` is not known"),
        ("1 1 x users=9-3", "users=9-3"),
        ("1 1 x\n1 1 y", "line 3: key 1 is there twice"),
    ] {
        let error = KeyRing::new(SERVER).with_list(&format!("{HEADING}\n{list}")).unwrap_err();
        assert!(error.contains(words), "{error}");
    }
    assert!(KeyRing::new(SERVER).with_list("weft keys 2\n").is_err());
}

#[test]
fn identities_belong_to_keys() {
    let client = KeyId(5).client(u64::MAX);
    assert!(KeyId(5).is_of(client) && KeyId::SERVERS.is_of(client) && !KeyId(6).is_of(client));
}

#[test]
fn only_servers_send_what_servers_send() {
    for op in Op::ALL {
        let refused = op.is_between_servers().then_some(Status::KeyForbids);
        assert_eq!(KeyRights::CLIENT.check_operation(*op).err(), refused, "{op:?}");
        assert_eq!(KeyRights::SERVER.check_operation(*op), Ok(()));
    }
    assert!(Op::TxDecide.is_between_servers() && Op::Meet.is_between_servers());
}

#[test]
fn a_key_that_needs_tags_is_told_nothing_of_others() {
    let limited = [
        KeyRights { root: Handle(99), ..KeyRights::CLIENT },
        KeyRights { uid_min: 5, ..KeyRights::CLIENT },
        KeyRights { squashes_root: true, ..KeyRights::CLIENT },
    ];
    for access in limited {
        assert!(access.needs_tags() && access.is_limited());
        for op in [Op::Live, Op::Parent, Op::Trace] {
            assert_eq!(access.check_operation(op), Err(Status::KeyForbids), "{op:?}");
        }
    }
    for access in [KeyRights::CLIENT, KeyRights::SERVER, KeyRights { is_read_only: true, ..KeyRights::CLIENT }] {
        assert!(!access.needs_tags());
        assert_eq!((access.check_operation(Op::Live), access.check_operation(Op::Parent)), (Ok(()), Ok(())));
    }
}

#[test]
fn a_key_that_only_reads_changes_nothing() {
    let access = KeyRights { is_read_only: true, ..KeyRights::CLIENT };
    for op in [Op::Create, Op::Mkdir, Op::Unlink, Op::Rename, Op::SetAttr, Op::SetXattr, Op::RemoveXattr, Op::Write, Op::ObjectRemove] {
        assert_eq!(access.check_operation(op), Err(Status::KeyReadsOnly), "{op:?}");
    }
    for op in [Op::Lookup, Op::ReadDir, Op::Open, Op::Close, Op::Read, Op::ObjectStat, Op::Ping] {
        assert_eq!(access.check_operation(op), Ok(()), "{op:?}");
    }
    let open = |rights| Request::Open(OpenRequest::of(Handle(3), rights, 1, who(7)));
    assert_eq!(access.check_request(&mut open(Rights::READ), nothing), Ok(()));
    assert_eq!(access.check_request(&mut open(Rights::READ.with(Rights::WRITE)), nothing), Err(Status::KeyReadsOnly));
    assert_eq!(access.check_request(&mut Request::Ping(PingRequest {}), nothing), Ok(()));
    // Where names are may be asked.
    let split = |servers| Request::Split(SplitRequest { dir: Handle(3), servers, who: who(7) });
    let asks = |servers| access.check_operation(Op::Split).and_then(|()| access.check_request(&mut split(servers), nothing));
    assert_eq!((asks(0), asks(1)), (Ok(()), Err(Status::KeyReadsOnly)));
    // It leaves no time of access.
    let many = CloseManyRequest { contents: None, attributes: None, closes: vec![], read: None };
    let closes = |read| Request::CloseMany(CloseManyRequest { read, ..many.clone() });
    let mut request = closes(Some(vec![0].into()));
    assert_eq!(access.check_request(&mut request, nothing), Ok(()));
    assert_eq!(request, closes(None));
    // Nor anything that it would have kept of a file.
    let content = vec![DelayedContent { number: 0, content: vec![1].into() }];
    let mut request = Request::CloseMany(CloseManyRequest { contents: Some(content), ..many });
    assert_eq!(access.check_request(&mut request, nothing), Err(Status::KeyReadsOnly));
}

#[test]
fn a_client_of_some_users_is_not_believed_what_it_has_open() {
    let (mine, other) = (Handle(3), Handle(4));
    let opened = |handle| if handle == mine { Rights::READ.with(Rights::WRITE) } else { Rights::READ };
    let range = KeyRights { uid_min: 1000, uid_max: 1999, ..KeyRights::CLIENT };
    let asked = |access: KeyRights, mut request: Request| {
        access.check_request(&mut request, |handle| (opened(handle), None)).unwrap();
        request
    };
    let close = |handle, truncate_epoch| {
        let written = Some(Written { end_bytes: 9, mtime: DataTime::NONE, truncate_epoch });
        CloseRequest { handle, open_sequence: 1, keeps: Rights::READ, written }
    };
    let closes = |epoch| {
        Request::CloseMany(CloseManyRequest {
            contents: None,
            attributes: None,
            read: None,
            closes: vec![close(mine, 2), close(other, epoch)],
        })
    };
    let reclaim = |rights| {
        let open = |handle, rights| OpenFile { handle, rights, open_sequence: 1 };
        Request::Reclaim(ReclaimRequest { opens: vec![open(mine, Rights::OF_OPENS), open(other, rights)], locks: None, goes_on: None })
    };
    assert_eq!(asked(range, Request::Close(close(mine, 2))), Request::Close(close(mine, 2)));
    assert_eq!(asked(range, closes(2)), closes(u32::MAX));
    assert_eq!(asked(range, reclaim(Rights::OF_OPENS)), reclaim(Rights::READ));
    assert_eq!(asked(KeyRights::CLIENT, closes(2)), closes(2), "who speaks for everybody is believed");
    assert_eq!(asked(KeyRights::CLIENT, reclaim(Rights::OF_OPENS)), reclaim(Rights::OF_OPENS));
}

#[test]
fn an_owner_goes_on_with_what_his_client_has_open() {
    let (read, both) = (Rights::READ, Rights::READ.with(Rights::WRITE));
    let range = KeyRights { uid_min: 1000, uid_max: 1999, ..KeyRights::CLIENT };
    let squash = KeyRights { squashes_root: true, ..KeyRights::CLIENT };
    let is_trusted = |access: KeyRights, who: Credentials, rights, opened: Rights, owner| {
        let mut request = Request::Open(OpenRequest::of(Handle(3), rights, 1, who));
        access.check_request(&mut request, |_| (opened, Some(owner))).unwrap();
        let Request::Open(open) = request else { panic!("the same request") };
        open.who.checked_by_kernel
    };
    assert!(is_trusted(range, who(1500), both, both, 1500), "he may have made it read-only");
    assert!(is_trusted(range, who(1500), both.with(Rights::APPEND), both, 1500), "to append alone is no permission");
    assert!(is_trusted(squash, who(0), both, both, NOBODY));
    assert!(!is_trusted(range, who(1500), both, both, 1501), "the file of somebody else");
    assert!(!is_trusted(range, who(1500), both, read, 1500), "more than was open");
    assert!(!is_trusted(squash, who(0), both, both, 0), "root is nobody");
    let asks = Credentials { checked_by_kernel: false, ..who(1500) };
    assert!(!is_trusted(range, asks, both, both, 1500), "a new open");
}

#[test]
fn a_key_speaks_for_its_users_only() {
    let range = KeyRights { uid_min: 1000, uid_max: 1999, ..KeyRights::CLIENT };
    assert_eq!(range.check_request(&mut unlink(1500), nothing), Ok(()));
    for uid in [0, 999, 2000] {
        assert_eq!(range.check_request(&mut unlink(uid), nothing), Err(Status::KeyForbids));
    }
    let squash = KeyRights { squashes_root: true, ..KeyRights::CLIENT };
    let mut request = unlink(0);
    assert_eq!(squash.check_request(&mut request, nothing), Ok(()));
    let Request::Unlink(UnlinkRequest { who, .. }) = request else { panic!("the same request") };
    assert_eq!(who, Credentials { uid: NOBODY, gid: NOBODY, groups: vec![], checked_by_kernel: false });
    let mut request = unlink(5);
    assert_eq!(squash.check_request(&mut request, nothing), Ok(()));
    let Request::Unlink(UnlinkRequest { who, .. }) = request else { panic!("the same request") };
    assert_eq!((who.uid, who.groups, who.checked_by_kernel), (5, vec![4], false), "nobody is in the group of root either");
}

#[test]
fn what_was_revoked_or_replaced_does_not_come_back() {
    let known = ring(
        "1 2 a users=any\n2 1 b users=any revoked\n3 1 c users=any revoked\n4 1 d users=any\n5 1 e users=any\n7 1 g users=any revoked\n",
    );
    // An old list: key 1 was replaced since, 2 revoked; 3 was never heard of, 6 is new; 5 is
    // narrower now, 7 was made anew.
    let given = ring("1 1 a users=any\n2 1 b users=any\n4 1 d users=any\n5 1 e users=any read-only\n6 1 f users=any\n7 2 g users=any\n");
    let (ring, kept) = given.clone().without_return_of(&known);
    assert_eq!(kept, [KeyId(1), KeyId(2), KeyId(3)]);
    let generations: Vec<_> = (1..=7).map(|id| ring.find(KeyId(id)).map(|(_, generation, _)| generation)).collect();
    assert_eq!(generations, [Some(2), None, None, Some(1), Some(1), Some(1), Some(2)]);
    assert!(ring.find(KeyId(5)).unwrap().2.is_read_only);
    assert_eq!(known.clone().without_return_of(&given).1, [KeyId(7)]);
    let list = ring.list();
    assert_ne!(ring.fingerprint(&list), given.fingerprint(&given.list()));
    assert_ne!(ring.fingerprint(&list), KeyRing::new(ClusterKey([8; 32])).fingerprint(&list), "it needs the key of the servers");
}

/// Otherwise a key for some users could name others in it.
#[test]
fn a_request_that_is_allowed_by_its_user_says_who_that_is() {
    let by_user = Op::ALL.iter().filter(|op| op.allowed_by() == AllowedBy::User);
    let zeros = |op: &Op| (0..400).find_map(|len| Request::of(*op, vec![0; len].into()).ok());
    let mut looked_at = 0;
    for mut request in by_user.filter_map(zeros) {
        assert!(who_asks(&mut request).is_some(), "{:?}", request.op());
        looked_at += 1;
    }
    assert!(looked_at > 12, "of few operations zeros are no request: {looked_at}");
}
