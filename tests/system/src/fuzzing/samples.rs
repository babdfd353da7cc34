//! A valid request and reply of every operation, and of every kind of frame.

mod closes;
mod creates;
mod data;
mod quotas;

use bytes::Bytes;
use weft_base::{
    Attr, ClientId, ClusterMap, Credentials, DataTime, FileKind, FsId, Handle, Layout, ROOT_HANDLE, RequestId, ServerEntry, ServerId,
    Status, WallTime,
};
use weft_wire::handshake::{
    ANY_SERVER, Challenge, ClientHandshake, Hello, NONCE_BYTES, Proof, RegionAnswer, RegionOffer, ServerHandshake, Welcome,
};
use weft_wire::ops::*;
use weft_wire::{ClusterKey, Flags, Header, KeyRing, NameKey, Rights, Wire, crc32c};

/// Bytes of a request of zeros, at most.
const ZEROS_MAX: usize = 512;

/// Behind all names: so the sample removes none of those that a test may still need.
const LAST_COOKIE: u64 = (1 << 63) - 2;

/// What the requests talk about.
#[derive(Clone, Debug)]
pub struct Subject {
    /// A directory.
    pub dir: Handle,
    /// A file in it.
    pub file: Handle,
    /// Who asks.
    pub client: ClientId,
    /// Signs capabilities.
    pub key: ClusterKey,
    /// When they end.
    pub expires: WallTime,
}

impl Subject {
    /// The one of the committed corpus.
    pub fn fixed() -> Subject {
        Subject { dir: ROOT_HANDLE, file: Handle(42), client: ClientId(7), key: ClusterKey([3; 32]), expires: WallTime(1 << 60) }
    }
}

/// A request of every operation: one that says something, or else the shortest one of zeros.
pub fn requests(about: &Subject) -> Vec<Request> {
    let mut requests = chosen(about);
    requests.extend(data::chosen(about));
    requests.extend(quotas::chosen());
    // Its map must make sense. A hash that no name has.
    let map = PartitionMap::whole(about.dir.server());
    requests.push(Request::GiveNames(GiveNamesRequest { dir: about.dir, map, first: 1, last: 1, to: ServerId(1), names_max: 1 }));
    for op in Op::ALL {
        if requests.iter().all(|request| request.op() != *op) {
            let zeros = (0..ZEROS_MAX).find_map(|len| Request::decode(op.code(), vec![0; len].into()).ok());
            requests.push(zeros.unwrap_or_else(|| panic!("no zeros are a request of {}: choose one here", op.name())));
        }
    }
    requests
}

/// Requests that reach far: they name what is there, with permission.
fn chosen(about: &Subject) -> Vec<Request> {
    let who = Credentials { uid: 1000, gid: 1000, groups: vec![4, 24], checked_by_kernel: false };
    let at = DirTarget { dir: about.dir, map_epoch: 1 };
    let (handle, name, layout) =
        (about.file, Bytes::from_static(b"name"), Layout { stripe_bytes: 65536, width: 2, first: 1, generation: 1 });
    let (to_name, to_name_again) = (Bytes::from_static(b"new name"), Bytes::from_static(b"new name"));
    let tx = TxId { coordinator: ServerId(0), number: 12 };
    let (read, write) = (Rights::READ, Rights::WRITE);
    let time = WallTime(1_700_000_000_000_000_000);
    let parts = vec![
        TxPart::InsertEntry { dir: about.dir, name: to_name.clone(), handle, kind: FileKind::File, replaces: Some(Handle(8)) },
        TxPart::RemoveEntry { dir: about.dir, name: name.clone(), handle },
        TxPart::MakeDirectory { parent: about.dir, mode: 0o755, uid: 1, gid: 2, layout },
        TxPart::RemoveDirectory { dir: about.dir, must_own: true },
        TxPart::ChangeLinks { handle, kind: FileKind::File, delta: -1, must_own: false },
        TxPart::SetParent { dir: about.dir, parent: ROOT_HANDLE, must_own: false },
        TxPart::ExpectProject { handle, project: 7 },
        TxPart::MoveToken {},
    ];
    vec![
        Request::Ping(PingRequest {}),
        Request::GetMap(GetMapRequest {}),
        Request::Meet(MeetRequest {
            server: ServerEntry { id: ServerId::data(1), name: "data1".into(), address: "tcp:127.0.0.1:7002".into() },
            birth: 9,
            yours: 0,
            epoch: 1,
            map: None,
        }),
        Request::Lookup(LookupRequest { at: at.clone(), name: name.clone(), who: who.clone() }),
        creates::create(about, &who, &name),
        creates::many(about, &who, &name),
        creates::mkdir(about, &who, &name),
        creates::unlink(about, &who, &name),
        Request::Rmdir(RmdirRequest { at: at.clone(), name: name.clone(), who: who.clone() }),
        Request::Rename(RenameRequest {
            from: at.clone(),
            from_name: name.clone(),
            to: at.clone(),
            to_name: to_name.clone(),
            no_replace: true,
            exchange: false,
            who: who.clone(),
        }),
        Request::Link(LinkRequest { handle, kind: FileKind::File, to: at.clone(), to_name, who: who.clone() }),
        Request::LookupMany(LookupManyRequest {
            dirs: vec![
                NamesInDir { at: at.clone(), names: vec![name.clone(), to_name_again, name.clone()] },
                NamesInDir { at: at.clone(), names: Vec::new() },
            ],
            who: who.clone(),
            contents: Some(true),
        }),
        Request::RemoveEntries(RemoveEntriesRequest { at: at.clone(), cookie: LAST_COOKIE, entries_max: 100, who: who.clone() }),
        Request::Split(SplitRequest { dir: at.dir, servers: 2, who: who.clone() }),
        Request::ReadDir(ReadDirRequest { at, cookie: 77, bytes_max: 4096, with_state: true, who: who.clone() }),
        Request::GetAttr(GetAttrRequest { handle }),
        Request::GetAttrMany(GetAttrManyRequest { handles: vec![handle, about.dir, Handle(u64::MAX)] }),
        Request::SetAttr(SetAttrRequest {
            handle,
            mode: Some(0o4711),
            uid: None,
            gid: Some(100),
            size: Some(123_456),
            atime: Some(SetTime { at: None }),
            mtime: Some(SetTime { at: Some(time) }),
            who: who.clone(),
            opened_for_write: true,
            seal: None,
        }),
        Request::Open(OpenRequest {
            truncate: true,
            inline: Some(true),
            content: Some(true),
            room: Some(RoomWanted { above_bytes: 4 << 20, end_bytes: 5 << 20 }),
            can_delay: Some(true),
            ..OpenRequest::of(handle, read, 6, who.clone())
        }),
        Request::Close(CloseRequest {
            handle,
            open_sequence: 6,
            keeps: read,
            written: Some(Written { end_bytes: 99, mtime: DataTime { epoch: 2, at: time }, truncate_epoch: 1 }),
        }),
        Request::Readlink(ReadlinkRequest { handle }),
        Request::Strips(StripsRequest { handle }),
        Request::ReadInline(ReadInlineRequest { capability: about.capability(read) }),
        Request::GetXattr(GetXattrRequest { handle, name: Bytes::from_static(b"user.x"), who: who.clone() }),
        Request::SetXattr(SetXattrRequest {
            handle,
            name: Bytes::from_static(b"user.x"),
            value: Bytes::from_static(b"value"),
            create_only: false,
            replace_only: true,
            who: who.clone(),
        }),
        Request::ListXattr(ListXattrRequest { handle, who: who.clone() }),
        Request::RemoveXattr(RemoveXattrRequest { handle, name: Bytes::from_static(b"user.x"), who: who.clone() }),
        Request::SyncMeta(SyncMetaRequest {}),
        Request::Reclaim(ReclaimRequest { opens: vec![OpenFile { handle, rights: write, open_sequence: 3 }], locks: None, goes_on: None }),
        Request::Notices(NoticesRequest { session: 3, heard: 5, leaves: false }),
        Request::Changes(ChangesRequest { after: ChangeCursor { log: 7, lsn: 5, segment: 1, offset: 4096 }, wait_ms: 10 }),
        closes::many(handle, time),
        Request::TxPrepare(TxPrepareRequest { tx, parts, who, time, client: Some(ClientId(7)) }),
        Request::TxDecide(TxDecideRequest { tx, commit: true }),
        Request::TxStatus(TxStatusRequest { tx }),
        Request::Parent(ParentRequest { dir: about.dir }),
        Request::Live(LiveRequest {}),
        Request::GetKeys(GetKeysRequest { known: 5, offset: 0 }),
        Request::SetDurability(SetDurabilityRequest { durability: "batch".into() }),
        Request::Trace(TraceRequest {
            mask: "meta.*,-meta.turn".into(),
            folder: "/nowhere".into(),
            ends_after_ms: Some(60_000),
            ..TraceRequest::new(TraceAction::Status)
        }),
        Request::TraceRead(TraceReadRequest { file: 0, offset: 4096, remove: false }),
    ]
}

/// Bulk data that goes with a request.
pub fn bulk(request: &Request) -> Vec<u8> {
    match request {
        Request::Write(write) => vec![0x5a; write.pieces.iter().map(|piece| piece.bytes as usize).sum()],
        _ => Vec::new(),
    }
}

pub(super) fn with_number(op: Op, body: &[u8]) -> (String, Vec<u8>) {
    (op.name().to_lowercase(), [&op.code().to_le_bytes(), body].concat())
}

/// Replies that carry something.
pub fn replies_with_number() -> Vec<(String, Vec<u8>)> {
    let about = Subject::fixed();
    let (handle, time) = (about.file, WallTime(1_700_000_000_000_000_000));
    let layout = Layout { stripe_bytes: 1 << 20, width: 4, first: 2, generation: 1 };
    let attr = Attr {
        handle,
        kind: FileKind::File,
        mode: 0o640,
        uid: 1,
        gid: 2,
        nlink: 1,
        rdev: 0,
        size: 1 << 33,
        atime: time,
        mtime: time,
        mtime_epoch: 1,
        ctime: time,
        version: 9,
        truncate_epoch: 1,
        layout,
        bare: true,
        born: WallTime(77),
        hole_bytes: 4096,
    };
    let capability = Some(about.capability(Rights::READ));
    let partitions =
        PartitionMap::new(1, vec![Partition { first: 0, server: ServerId(0) }, Partition { first: 1 << 62, server: ServerId(1) }]).ok();
    let whole = PartitionMap::whole(ServerId(1));
    let state = FileState { attr, ask_data: capability, partitions };
    let entry = |name: &'static [u8], cookie| DirEntry {
        name: Bytes::from_static(name),
        handle,
        kind: FileKind::File,
        cookie,
        state: Some(state.clone()),
    };
    let servers = [
        ServerEntry { id: ServerId(0), name: "meta0".into(), address: "tcp:127.0.0.1:7000".into() },
        ServerEntry { id: ServerId::data(0), name: "data0".into(), address: "unix:/run/data0".into() },
    ];
    let map = ClusterMap::of(FsId(5), "weft", servers, 1 << 20).founded(1);
    let info = ServerInfo {
        fs_id: FsId(5),
        fs_name: "weft".into(),
        server: ServerId(0),
        name: "meta0".into(),
        owns_root: true,
        engine: "journal".into(),
        durability: "batch".into(),
        state: "serving".into(),
        uptime_ms: 1,
        boot: 2,
        objects: 3,
        used_bytes: 4,
        capacity_bytes: 5,
        free_bytes: 6,
        requests: 7,
        received_bytes: 8,
        sent_bytes: 9,
        cpu_us: 10,
        turns: 11,
        journal_writes: 12,
        journal_syncs: 13,
        disk: Some(DiskUse {
            cache_layer: "server_directed".into(),
            reads: 14,
            read_bytes: 15,
            writes: 16,
            written_bytes: 17,
            sequential: 18,
            near: 19,
            far: 20,
            gathered: 21,
            gathered_jobs: 22,
            sieved_bytes: 23,
        }),
        device: 21,
        device_free_bytes: 22,
    };
    let row = TopRow { key: 9, count: 10, error: 3 };
    let live = LiveReply {
        info: info.clone(),
        read_bytes: 1,
        written_bytes: 2,
        queued: 3,
        clients: 4,
        cache_bytes: 5,
        cache_bytes_max: 6,
        operations: vec![OperationUse { op: 17, count: 2, failed: 1, total_ns: 7, slots: vec![LatencySlot { slot: 3, count: 2 }] }],
        top_ns: 8,
        clients_by_requests: vec![row.clone()],
        clients_by_bytes: vec![],
        objects_by_requests: vec![row.clone()],
        objects_by_bytes: vec![row],
        oldest: vec![WaitingRequest { op: 18, client: about.client, object: about.file, age_ns: 11 }],
        client_names: vec![ClientName { client: about.client, name: "pid 1".into() }],
        page_memory_bytes: Some(12),
        page_file_bytes: Some(13),
    };
    let (kind, state_given) = (FileKind::File, Some(state.clone()));
    let dir = DirChange { version: 3, time: weft_base::WallTime(4) };
    let left = LeftEntry { name: Bytes::from_static(b"left"), handle, kind: FileKind::Directory, why: Status::NotEmpty.code() };
    let found = FoundName { handle, kind, state: state_given.clone(), read: Some(about.capability(Rights::READ)) };
    let mut all = vec![
        with_number(Op::Ping, &info.to_bytes()),
        with_number(Op::GetMap, &GetMapReply { map: map.clone(), name_key: NameKey([6; 16]) }.to_bytes()),
        with_number(
            Op::Meet,
            &MeetReply {
                birth: 9,
                epoch: 1,
                map: Some(map),
                server: None,
                durable_lsn: Some(78),
                yours_lsn: Some(77),
                is_older: Some(true),
            }
            .to_bytes(),
        ),
        with_number(Op::Lookup, &LookupReply { handle, kind, state: state_given.clone() }.to_bytes()),
        with_number(
            Op::Create,
            &CreateReply {
                created: true,
                handle,
                kind,
                state: state_given.clone(),
                capability,
                dir,
                delay_bytes: Some(9),
                ceiling: None,
                delays_attributes: Some(true),
                delegation: Some(Delegation { handles: Some(HandleRange { first: handle, count: 4096 }), delay_bytes: 8192 }),
                closes_with_attributes: Some(true),
                tells_directories: Some(true),
                tells_removals: Some(true),
            }
            .to_bytes(),
        ),
        with_number(Op::CreateMany, &creates::reply(&about, handle).to_bytes()),
        with_number(Op::Mkdir, &creates::directory(state.clone(), handle, dir).to_bytes()),
        with_number(Op::Unlink, &creates::unlinked(handle, dir).to_bytes()),
        with_number(Op::Rmdir, &RmdirReply { dir }.to_bytes()),
        with_number(Op::Rename, &RenameReply { dir, replaced: true }.to_bytes()),
        with_number(Op::Link, &LinkReply { state: state_given, dir }.to_bytes()),
        with_number(
            Op::ReadDir,
            &ReadDirReply { entries: vec![entry(b"one", 5), entry(b"two", 9)], until: u64::MAX, parent: ROOT_HANDLE }.to_bytes(),
        ),
        with_number(
            Op::LookupMany,
            &LookupManyReply { found: vec![Ok(found), Err(Status::Stale)], contents: Some(vec![FoundContent { number: 0, bytes: 7 }]) }
                .to_bytes(),
        ),
        with_number(Op::RemoveEntries, &RemoveEntriesReply { files: 3, directories: 1, left: vec![left], until: 4711, dir }.to_bytes()),
        with_number(
            Op::Split,
            &SplitReply { map: whole.clone(), goal: Some(whole), moved_names: 512, why: 5, spread_from: Some(1) }.to_bytes(),
        ),
        with_number(Op::GiveNames, &GiveNamesReply { names: 256 }.to_bytes()),
        with_number(Op::GetAttr, &state.to_bytes()),
        with_number(Op::GetAttrMany, &GetAttrManyReply { states: vec![Ok(state.clone()), Err(Status::Stale)] }.to_bytes()),
        with_number(
            Op::Open,
            &OpenReply {
                state,
                capability: about.capability(Rights::WRITE),
                content_bytes: Some(7),
                ceiling: Some(about.ceiling()),
                delay: Some(OpenDelay { bytes: 8192, now: WallTime(9) }),
            }
            .to_bytes(),
        ),
        with_number(Op::Readlink, &ReadlinkReply { target: Bytes::from_static(b"where") }.to_bytes()),
        with_number(Op::Strips, &StripsReply { strips: Bytes::from_static(b"strips:0:4096") }.to_bytes()),
        with_number(Op::ReadInline, &ReadInlineReply { content: Some(Bytes::from_static(b"content")) }.to_bytes()),
        with_number(Op::GetXattr, &GetXattrReply { value: Bytes::from_static(b"value") }.to_bytes()),
        with_number(Op::ListXattr, &ListXattrReply { names: vec![Bytes::from_static(b"user.a")] }.to_bytes()),
        with_number(Op::CloseMany, &CloseManyReply { outcomes: vec![Ok(()), Err(Status::Busy)] }.to_bytes()),
        with_number(
            Op::Changes,
            &ChangesReply {
                until: ChangeCursor { log: 7, lsn: 9, segment: 1, offset: 5000 },
                lost: false,
                more: true,
                changes: vec![
                    ToldChange {
                        dir: about.dir,
                        name: Bytes::from_static(b"name"),
                        to_dir: about.dir,
                        to_name: Bytes::from_static(b"new name"),
                        handle,
                        kind: Some(FileKind::File),
                        time,
                        tx: Some(TxId { coordinator: ServerId(1), number: 3 }),
                        ..ToldChange::empty(ChangeKind::Renamed)
                    },
                    ToldChange { handle, ..ToldChange::empty(ChangeKind::Written) },
                ],
            }
            .to_bytes(),
        ),
        with_number(Op::TxPrepare, &TxPrepareReply { handles: Ok(vec![handle, Handle(0)]) }.to_bytes()),
        with_number(Op::TxStatus, &TxStatusReply { committed: Some(true) }.to_bytes()),
        with_number(Op::Parent, &ParentReply { parent: ROOT_HANDLE }.to_bytes()),
        with_number(Op::Write, &WriteReply { size: 77, mtime: DataTime { epoch: 2, at: time }, has_plenty: Some(true) }.to_bytes()),
        with_number(Op::ObjectPunch, &WriteReply { size: 77, mtime: DataTime { epoch: 2, at: time }, has_plenty: Some(true) }.to_bytes()),
        with_number(
            Op::ObjectAllocate,
            &WriteReply { size: 78, mtime: DataTime { epoch: 3, at: time }, has_plenty: Some(true) }.to_bytes(),
        ),
        with_number(Op::Read, &ReadReply { got: vec![4096, 0], size: 4096 }.to_bytes()),
        with_number(
            Op::ReadMany,
            &ReadManyReply { got: vec![Ok(DatafileGot { bytes: 77, size: 4096 }), Err(Status::CapabilityRefused)] }.to_bytes(),
        ),
        with_number(Op::ObjectStat, &ObjectStatReply { size: 1, allocated_bytes: 4096, mtime: DataTime { epoch: 2, at: time } }.to_bytes()),
        with_number(Op::Live, &live.to_bytes()),
        with_number(Op::GetKeys, &GetKeysReply { fingerprint: 6, total_bytes: 12, piece: b"weft keys 1\n".to_vec() }.to_bytes()),
    ];
    all.extend(quotas::replies());
    all
}

/// Some whole frames.
pub fn frames() -> Vec<(String, Vec<u8>)> {
    let about = Subject::fixed();
    let wanted = [Op::Ping, Op::Create, Op::Rename, Op::ReadDir, Op::SetAttr, Op::TxPrepare, Op::Write];
    let chosen = requests(&about).into_iter().filter(|request| wanted.contains(&request.op()));
    let mut frames: Vec<_> = chosen
        .map(|request| {
            let (body, bulk) = (request.encode(), bulk(&request));
            // The bulk data itself is not read by the target.
            let bytes = frame(&request, &body, &bulk);
            (request.op().name().to_lowercase(), bytes[..bytes.len() - bulk.len()].to_vec())
        })
        .collect();
    let (_, write) = frames.iter().find(|(name, _)| name == "write").cloned().expect("it is among them");
    for (name, flag) in [("write-shared", Flags::SHARED), ("write-room", Flags::ROOM)] {
        let (block, body) = write.split_first_chunk().expect("a frame has a header");
        let mut header = Header::decode(block).expect("it was just made");
        header.name_region(flag, 7, 5000);
        frames.push((name.to_string(), [&header.encode(), body].concat()));
    }
    frames
}

fn frame(request: &Request, body: &[u8], bulk: &[u8]) -> Vec<u8> {
    let id = RequestId { client: ClientId(7), incarnation: 1, sequence: 20 };
    let mut header = Header::request(request.op(), ServerId(0), id, 3);
    header.flags = Flags::RETRY;
    header.body_bytes = body.len() as u32;
    header.bulk_bytes = bulk.len() as u32;
    header.body_crc = crc32c(body);
    header.bulk_crc = crc32c(bulk);
    [&header.encode(), body, bulk].concat()
}

/// The messages, each behind the byte that says which it is.
pub fn handshakes() -> Vec<(String, Vec<u8>)> {
    let nonce = [2; NONCE_BYTES];
    let key = ClusterKey([1; 32]);
    let hello = ClientHandshake::hello(FsId(5), "weft", ANY_SERVER, ClientId(8), 1, nonce);
    let mut server = ServerHandshake::new(KeyRing::new(key.clone()), FsId(5), "weft", ServerId(0));
    let challenge = server.challenge(hello.clone(), nonce);
    let proof = ClientHandshake::new(key, hello.clone()).answer(&challenge).expect("both hold the same key");
    let message = |name: &str, which: u8, body: Bytes| (name.to_string(), [&[which], &body[..]].concat());
    vec![
        message("hello", 0, hello.to_bytes()),
        message("challenge", 1, challenge.to_bytes()),
        message("proof", 2, proof.to_bytes()),
        message("welcome", 3, Welcome { status: 0 }.to_bytes()),
        message("region-offer", 4, RegionOffer { bytes: 32 << 20 }.to_bytes()),
        message("region-answer", 5, RegionAnswer { status: 0 }.to_bytes()),
    ]
}

/// True if it is the message of the handshake with this number.
pub fn accepts_handshake(which: u8, body: Bytes) -> bool {
    match which {
        0 => Hello::from_bytes(body).is_ok(),
        1 => Challenge::from_bytes(body).is_ok(),
        2 => Proof::from_bytes(body).is_ok(),
        3 => Welcome::from_bytes(body).is_ok(),
        4 => RegionOffer::from_bytes(body).is_ok(),
        _ => RegionAnswer::from_bytes(body).is_ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[test]
    fn every_operation_has_a_valid_sample() {
        let samples = requests(&Subject::fixed());
        let mut ops: Vec<_> = samples.iter().map(Request::op).collect();
        ops.sort_unstable();
        assert_eq!(ops, Op::ALL);
        for request in samples {
            assert_eq!(Request::decode(request.op().code(), request.encode()), Ok(request));
        }
    }
}
