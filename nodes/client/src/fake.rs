//! A test double: a runtime in virtual time with servers that follow the protocol in the plainest
//! way, all in memory. It records every message and lets a test lose, delay and refuse them. Not
//! the simulator: no models, no crashes of real servers.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use bytes::Bytes;
use weft_base::{
    Attr, ClientId, ClusterMap, DataTime, FileKind, FsId, Handle, Layout, Nanos, Payload, ROOT_HANDLE, SECOND, ServerEntry, ServerId,
    ServerRole, Status, StripeIndex, WallTime,
};
use weft_layout::{file_bytes, local_bytes};
use weft_rt::{Bulk, Outgoing, Runtime, Work};
use weft_wire::ops::*;
use weft_wire::{Capability, ClusterKey, Frame, Header, NameKey, Request, Rights, Wire};

use crate::{Client, ClientOptions};

const KEY: ClusterKey = ClusterKey([3; 32]);
/// How long a message travels, in nanoseconds.
pub(crate) const LATENCY: u64 = 50_000;
/// Lifetime of capabilities, in nanoseconds.
pub(crate) const LIFETIME: u64 = 3600 * SECOND;

/// What happens to a message on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Arrives,
    /// It arrives this much later, in nanoseconds.
    Late(u64),
    /// It arrives, and the reply this much later, in nanoseconds.
    ReplyLate(u64),
    /// It never arrives.
    Lost,
    /// It arrives and is executed, but the reply is lost.
    ReplyLost,
    /// The server refuses it.
    Refused(Status),
    /// There is no connection.
    NoConnection,
}

/// A message that was sent.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) server: ServerId,
    pub(crate) header: Header,
    pub(crate) request: Request,
}

type Fates = Box<dyn FnMut(&Sent) -> Fate>;

/// The runtime, and the world behind it.
/// Of the hash of names.
pub(crate) const NAME_KEY: NameKey = NameKey([4; 16]);

#[derive(Clone)]
pub(crate) struct FakeRt(pub(crate) Rc<RefCell<World>>);

pub(crate) struct World {
    pub(crate) now: Nanos,
    timers: Vec<(Nanos, Waker)>,
    random: u64,
    pub(crate) map: ClusterMap,
    pub(crate) sent: Vec<Sent>,
    pub(crate) fates: Option<Fates>,
    pub(crate) inodes: BTreeMap<Handle, Inode>,
    pub(crate) names: BTreeMap<(Handle, Bytes), (Handle, FileKind)>,
    pub(crate) opens: BTreeMap<(ClientId, Handle), (Rights, u64)>,
    pub(crate) objects: BTreeMap<(Handle, u32), (Vec<u8>, DataTime)>,
    pub(crate) boots: BTreeMap<ServerId, u32>,
    pub(crate) reclaimed: Vec<OpenFile>,
    pub(crate) partitions: BTreeMap<Handle, PartitionMap>,
    /// Replies to changes, for requests that come again.
    replies: BTreeMap<(ServerId, ClientId, u64), Answer>,
    next_handle: u64,
    /// Closes of these files are not possible together with others, once.
    pub(crate) busy_closes: Vec<Handle>,
}

#[derive(Clone, Debug)]
pub(crate) struct Inode {
    pub(crate) attr: Attr,
    pub(crate) target: Bytes,
}

impl FakeRt {
    /// A file system with so many servers and this stripe size.
    pub(crate) fn new(meta: u16, data: u16, stripe_bytes: u32) -> FakeRt {
        let entry = |id: ServerId| ServerEntry { id, name: id.to_string(), address: format!("unix:/{id}") };
        let map = ClusterMap {
            fs_id: FsId(1),
            fs_name: "test".into(),
            epoch: 0,
            meta: (0..meta).map(|i| entry(ServerId(i))).collect(),
            data: (0..data).map(|i| entry(ServerId::data(i))).collect(),
            generations: Vec::new(),
            stripe_bytes,
            stripe_width: 0,
        }
        .founded(1);
        let boots = map.servers().map(|entry| (entry.id, 1)).collect();
        let mut world = World {
            now: Nanos(SECOND),
            timers: Vec::new(),
            random: 1,
            map,
            sent: Vec::new(),
            fates: None,
            inodes: BTreeMap::new(),
            names: BTreeMap::new(),
            opens: BTreeMap::new(),
            objects: BTreeMap::new(),
            boots,
            reclaimed: Vec::new(),
            partitions: BTreeMap::new(),
            replies: BTreeMap::new(),
            next_handle: 2,
            busy_closes: Vec::new(),
        };
        world.add_inode(ROOT_HANDLE, FileKind::Directory, Bytes::new());
        FakeRt(Rc::new(RefCell::new(world)))
    }

    /// A client of the file system.
    pub(crate) fn client(&self, id: u64) -> Client<FakeRt> {
        self.client_with(ClientOptions::new(ClientId(id), 1))
    }

    /// A client of the file system.
    pub(crate) fn client_with(&self, options: ClientOptions) -> Client<FakeRt> {
        let map = self.0.borrow().map.clone();
        Client::new(self.clone(), map, options)
    }

    /// Decides what happens to messages from now on.
    pub(crate) fn fates(&self, fates: impl FnMut(&Sent) -> Fate + 'static) {
        self.0.borrow_mut().fates = Some(Box::new(fates));
    }

    /// Everything arrives again.
    pub(crate) fn no_faults(&self) {
        self.0.borrow_mut().fates = None;
    }

    /// Takes the record of messages: server and operation of each.
    pub(crate) fn take_sent(&self) -> Vec<(ServerId, Op)> {
        std::mem::take(&mut self.0.borrow_mut().sent).into_iter().map(|sent| (sent.server, sent.request.op())).collect()
    }

    /// The server dies and starts again: it has forgotten who has what open.
    pub(crate) fn restart(&self, server: ServerId) {
        let mut world = self.0.borrow_mut();
        *world.boots.get_mut(&server).expect("the server exists") += 1;
        world.opens.retain(|(_, handle), _| handle.server() != server);
    }

    /// Drives a flow to its end, letting virtual time pass when nothing else is to do.
    pub(crate) fn run<F: Future>(&self, flow: F) -> F::Output {
        let woken = Arc::new(Flag(AtomicBool::new(true)));
        let waker = Waker::from(woken.clone());
        let mut flow = pin!(flow);
        loop {
            if woken.0.swap(false, Ordering::Relaxed)
                && let Poll::Ready(value) = flow.as_mut().poll(&mut Context::from_waker(&waker))
            {
                return value;
            }
            if !woken.0.load(Ordering::Relaxed) {
                self.advance();
            }
        }
    }

    /// Moves time to the next timer and wakes who waits for it.
    fn advance(&self) {
        let due: Vec<Waker> = {
            let mut world = self.0.borrow_mut();
            let next = world.timers.iter().map(|(at, _)| *at).min().expect("a flow that waits for nothing never ends");
            world.now = world.now.max(next);
            let (due, later) = std::mem::take(&mut world.timers).into_iter().partition(|(at, _)| *at <= next);
            world.timers = later;
            due.into_iter().map(|(_, waker): (Nanos, Waker)| waker).collect()
        };
        due.into_iter().for_each(Waker::wake);
    }
}

struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Runtime for FakeRt {
    fn now(&self) -> Nanos {
        self.0.borrow().now
    }

    fn wall(&self) -> WallTime {
        WallTime(self.0.borrow().now.0 as i64)
    }

    fn random(&self) -> u64 {
        let mut world = self.0.borrow_mut();
        world.random = world.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        world.random >> 20
    }

    async fn sleep_until(&self, at: Nanos) {
        let mut first = true;
        poll_fn(|context| {
            let mut world = self.0.borrow_mut();
            if world.now >= at && !std::mem::take(&mut first) {
                return Poll::Ready(());
            }
            first = false;
            let wake_at = at.max(world.now);
            world.timers.push((wake_at, context.waker().clone()));
            Poll::Pending
        })
        .await;
    }

    async fn cpu(&self, _: Work) {}

    async fn request<'a>(&'a self, server: ServerId, outgoing: Outgoing<'a>, deadline: Nanos) -> Result<Frame, Status> {
        let request = Request::decode(outgoing.header.op, outgoing.body.clone())?;
        let bulk: Vec<u8> = match &outgoing.bulk {
            Bulk::Slices(slices) => slices.concat(),
            _ => Vec::new(),
        };
        let sent = Sent { server, header: outgoing.header, request: request.clone() };
        let fates = self.0.borrow_mut().fates.take();
        let fate = match fates {
            Some(mut fates) => {
                let fate = fates(&sent);
                self.0.borrow_mut().fates.get_or_insert(fates);
                fate
            }
            None => Fate::Arrives,
        };
        self.0.borrow_mut().sent.push(sent);
        let latency = match fate {
            Fate::NoConnection => return Err(Status::Unreachable),
            Fate::Late(nanos) => LATENCY + nanos,
            _ => LATENCY,
        };
        if fate == Fate::Lost || self.now() + latency > deadline {
            self.sleep_until(deadline).await;
            return Err(Status::TimedOut);
        }
        self.sleep_until(self.now() + latency).await;
        let answer = match fate {
            Fate::Refused(status) => Err(status),
            _ => self.0.borrow_mut().execute(server, &outgoing.header, request, &bulk),
        };
        let latency = if let Fate::ReplyLate(nanos) = fate { LATENCY + nanos } else { LATENCY };
        if fate == Fate::ReplyLost || self.now() + latency > deadline {
            self.sleep_until(deadline).await;
            return Err(Status::TimedOut);
        }
        self.sleep_until(self.now() + latency).await;
        let (body, bulk) = match answer {
            Ok((body, bulk)) => (Ok(body), bulk),
            Err(status) => (Err(status), Vec::new()),
        };
        let mut frame = Frame::reply(&outgoing.header, body, Payload::from(bulk));
        frame.header.server_boot = self.0.borrow().boots[&server];
        frame.header.set_map_epoch(self.0.borrow().map.epoch);
        Ok(frame)
    }
}

type Answer = Result<(Bytes, Vec<u8>), Status>;

fn ok(reply: &impl Wire) -> Answer {
    Ok((reply.to_bytes(), Vec::new()))
}

impl World {
    pub(crate) fn add_inode(&mut self, handle: Handle, kind: FileKind, target: Bytes) {
        let time = WallTime(self.now.0 as i64);
        let newest = self.map.newest().expect("it is founded");
        let servers = newest.data.len() as u16;
        let layout =
            Layout { width: servers, first: handle.counter() as u16 % servers, generation: newest.id, ..self.map.default_layout() };
        let attr = Attr {
            handle,
            kind,
            mode: 0o644,
            uid: 0,
            gid: 0,
            nlink: 1,
            rdev: 0,
            size: target.len() as u64,
            atime: time,
            mtime: time,
            mtime_epoch: 0,
            ctime: time,
            version: 1,
            truncate_epoch: 0,
            layout,
            bare: false,
        };
        self.inodes.insert(handle, Inode { attr, target });
    }

    /// A new handle at one metadata server.
    pub(crate) fn new_handle(&mut self, server: ServerId) -> Handle {
        self.next_handle += 1;
        Handle::new(server, self.next_handle)
    }

    /// Makes an object under a name, its inode on any server.
    pub(crate) fn add(&mut self, dir: Handle, name: &str, server: u16, kind: FileKind, target: &str) -> Handle {
        let handle = self.new_handle(ServerId(server));
        self.add_inode(handle, kind, Bytes::copy_from_slice(target.as_bytes()));
        self.names.insert((dir, Bytes::copy_from_slice(name.as_bytes())), (handle, kind));
        handle
    }

    fn state(&self, handle: Handle, client: ClientId) -> Result<FileState, Status> {
        let attr = self.inodes.get(&handle).ok_or(Status::Stale)?.attr;
        let others =
            self.opens.iter().any(|((who, what), (rights, _))| *what == handle && *who != client && rights.contains(Rights::WRITE));
        let ask_data = others.then(|| self.capability(handle, client, Rights::READ));
        Ok(FileState { attr, ask_data, partitions: self.partitions.get(&handle).cloned() })
    }

    fn capability(&self, handle: Handle, client: ClientId, rights: Rights) -> Capability {
        Capability::sign(&KEY, handle, client, rights, WallTime((self.now.0 + LIFETIME) as i64))
    }

    fn open(&mut self, client: ClientId, handle: Handle, rights: Rights, sequence: u64) -> Capability {
        let open = self.opens.entry((client, handle)).or_default();
        *open = (open.0.with(rights), open.1.max(sequence));
        self.capability(handle, client, rights)
    }

    /// The version of a directory after a change of its names.
    fn dir_changed(&mut self, dir: Handle) -> DirChange {
        let entries = self.names.range((dir, Bytes::new())..).take_while(|((parent, _), _)| *parent == dir).count() as u64;
        let attr = &mut self.inodes.get_mut(&dir).expect("its server was checked, so it exists").attr;
        attr.version += 1;
        attr.size = entries;
        attr.mtime = WallTime(self.now.0 as i64);
        attr.ctime = attr.mtime;
        DirChange { version: attr.version, time: attr.mtime }
    }

    fn data_size(&self, handle: Handle, layout: &Layout) -> u64 {
        let local = |index| self.objects.get(&(handle, index)).map_or(0, |(bytes, _)| bytes.len() as u64);
        file_bytes(layout, (0..u32::from(layout.width)).map(local))
    }

    fn truncate(&mut self, handle: Handle, size: u64) -> Result<(), Status> {
        let layout = {
            let attr = &mut self.inodes.get_mut(&handle).ok_or(Status::Stale)?.attr;
            attr.truncate_epoch += 1;
            attr.version += 1;
            attr.size = size;
            attr.written(DataTime { epoch: DataTime::epoch_of_writes(attr.mtime_epoch), at: WallTime(self.now.0 as i64) });
            attr.layout
        };
        for index in 0..u32::from(layout.width) {
            if let Some((bytes, _)) = self.objects.get_mut(&(handle, index)) {
                bytes.truncate(local_bytes(&layout, StripeIndex(index), size) as usize);
            }
        }
        Ok(())
    }

    fn check_dir(&self, server: ServerId, at: &DirTarget, hash: u64) -> Result<(), Status> {
        match self.partitions.get(&at.dir) {
            Some(map) => map.check(server, hash),
            None if at.dir.server() == server => Ok(()),
            None => Err(Status::StaleMap),
        }
    }

    fn execute(&mut self, server: ServerId, header: &Header, request: Request, bulk: &[u8]) -> Answer {
        let (client, changes) = (header.request.client, request.op().changes());
        let id = (server, client, header.request.sequence);
        if let Some(reply) = self.replies.get(&id) {
            return reply.clone();
        }
        let answer = match server.role() {
            ServerRole::Meta => self.execute_meta(server, client, request),
            ServerRole::Data => self.execute_data(server, client, request, bulk),
        };
        if changes {
            self.replies.insert(id, answer.clone());
        }
        answer
    }

    fn execute_meta(&mut self, server: ServerId, client: ClientId, request: Request) -> Answer {
        match request {
            Request::Ping(_) => ok(&self.info(server)),
            Request::SyncMeta(_) => ok(&()),
            Request::Reclaim(request) => {
                for open in &request.opens {
                    self.open(client, open.handle, open.rights, open.open_sequence);
                }
                self.reclaimed.extend(request.opens);
                ok(&())
            }
            Request::Lookup(request) => {
                self.check_dir(server, &request.at, NAME_KEY.hash(&request.name))?;
                let (handle, kind) = *self.names.get(&(request.at.dir, request.name)).ok_or(Status::NotFound)?;
                let state = if handle.server() == server { Some(self.state(handle, client)?) } else { None };
                ok(&LookupReply { handle, kind, state })
            }
            Request::Create(request) => self.create(server, client, request),
            Request::Mkdir(request) => {
                let name = (request.at.dir, request.name);
                if self.names.contains_key(&name) {
                    return Err(Status::Exists);
                }
                let handle = self.new_handle(ServerId(self.next_handle as u16 % self.map.meta.len() as u16));
                self.add_inode(handle, FileKind::Directory, Bytes::new());
                let dir = name.0;
                self.names.insert(name, (handle, FileKind::Directory));
                ok(&MkdirReply { state: self.state(handle, client)?, dir: self.dir_changed(dir) })
            }
            Request::Unlink(request) => {
                let (handle, _) = self.names.remove(&(request.at.dir, request.name)).ok_or(Status::NotFound)?;
                if !self.opens.keys().any(|(_, open)| *open == handle) {
                    self.inodes.remove(&handle);
                }
                ok(&UnlinkReply { handle, dir: self.dir_changed(request.at.dir) })
            }
            Request::ReadDir(request) => {
                self.check_dir(server, &request.at, request.cookie + 1)?;
                let all = self.names.iter().filter(|((dir, _), _)| *dir == request.at.dir);
                let mut entries: Vec<DirEntry> = Vec::new();
                let map = self.partitions.get(&request.at.dir);
                for (cookie, ((_, name), (handle, kind))) in (3..).zip(all) {
                    // The order of names is enough, unless they are spread over servers.
                    let cookie = if map.is_some() { NAME_KEY.hash(name) } else { cookie };
                    let here = request.with_state && handle.server() == server;
                    let state = if here { Some(self.state(*handle, client)?) } else { None };
                    entries.push(DirEntry { name: name.clone(), handle: *handle, kind: *kind, cookie, state });
                }
                entries.sort_by_key(|entry| entry.cookie);
                let last = map.map_or(u64::MAX, |map| map.last_of_range(request.cookie + 1));
                entries.retain(|entry| entry.cookie > request.cookie && entry.cookie <= last);
                let page = request.bytes_max as usize / 100;
                let until = if entries.len() <= page { last } else { entries[page - 1].cookie };
                entries.truncate(page);
                ok(&ReadDirReply { entries, until, parent: ROOT_HANDLE })
            }
            Request::GetMap(_) => ok(&GetMapReply { map: self.map.clone(), name_key: NAME_KEY }),
            Request::GetAttr(request) => ok(&self.state(request.handle, client)?),
            Request::GetAttrMany(request) => {
                ok(&GetAttrManyReply { states: request.handles.iter().map(|handle| self.state(*handle, client)).collect() })
            }
            Request::SetAttr(request) => {
                if let Some(size) = request.size {
                    self.truncate(request.handle, size)?;
                }
                let attr = &mut self.inodes.get_mut(&request.handle).ok_or(Status::Stale)?.attr;
                attr.version += 1;
                attr.mode = request.mode.unwrap_or(attr.mode);
                if let Some(time) = request.mtime {
                    attr.mtime = time.at.unwrap_or(WallTime(self.now.0 as i64));
                    attr.mtime_epoch = DataTime::epoch_of_setting(attr.mtime_epoch);
                }
                ok(&self.state(request.handle, client)?)
            }
            Request::Open(request) => {
                self.state(request.handle, client)?;
                if request.truncate {
                    self.truncate(request.handle, 0)?;
                }
                let capability = self.open(client, request.handle, request.rights, request.open_sequence);
                ok(&OpenReply { state: self.state(request.handle, client)?, capability })
            }
            Request::Close(request) => self.close(client, request),
            Request::CloseMany(request) => {
                let busy = std::mem::take(&mut self.busy_closes);
                let close = |request: CloseRequest| match busy.contains(&request.handle) {
                    true => Err(Status::Busy),
                    false => self.close(client, request).map(drop),
                };
                ok(&CloseManyReply { outcomes: request.closes.into_iter().map(close).collect() })
            }
            Request::Readlink(request) => ok(&ReadlinkReply { target: self.inodes[&request.handle].target.clone() }),
            other => panic!("the test double does not know {other:?}"),
        }
    }

    fn create(&mut self, server: ServerId, client: ClientId, request: CreateRequest) -> Answer {
        self.check_dir(server, &request.at, NAME_KEY.hash(&request.name))?;
        let name = (request.at.dir, request.name);
        let found = self.names.get(&name).copied();
        let (handle, kind, created) = match found {
            Some(_) if request.exclusive => return Err(Status::Exists),
            Some((handle, kind)) => (handle, kind, false),
            None => {
                let handle = self.new_handle(server);
                self.add_inode(handle, request.kind, request.target);
                self.names.insert(name, (handle, request.kind));
                (handle, request.kind, true)
            }
        };
        let here = handle.server() == server;
        let opens = here && kind == FileKind::File && request.open != Rights::default();
        let state = if here { Some(self.state(handle, client)?) } else { None };
        let capability = opens.then(|| self.open(client, handle, request.open, request.open_sequence));
        let dir = if created { self.dir_changed(request.at.dir) } else { DirChange::NONE };
        ok(&CreateReply { created, handle, kind, state, capability, dir })
    }

    fn close(&mut self, client: ClientId, request: CloseRequest) -> Answer {
        let handle = request.handle;
        if let Some(open) = self.opens.get_mut(&(client, handle))
            && request.open_sequence >= open.1
        {
            open.0 = request.keeps;
            if open.0 == Rights::default() {
                self.opens.remove(&(client, handle));
            }
        }
        let Some(inode) = self.inodes.get(&handle) else { return Err(Status::Stale) };
        if let Some(written) = request.written {
            let same = written.truncate_epoch == inode.attr.truncate_epoch;
            let end = if same { written.end_bytes } else { self.data_size(handle, &inode.attr.layout) };
            let attr = &mut self.inodes.get_mut(&handle).expect("just found").attr;
            attr.version += 1;
            attr.size = attr.size.max(end);
            attr.written(written.mtime);
        }
        if !self.names.values().any(|(named, _)| *named == handle) && !self.opens.keys().any(|(_, open)| *open == handle) {
            self.inodes.remove(&handle);
        }
        ok(&())
    }

    fn execute_data(&mut self, server: ServerId, client: ClientId, request: Request, bulk: &[u8]) -> Answer {
        let now = WallTime(self.now.0 as i64);
        match request {
            Request::Ping(_) => ok(&self.info(server)),
            Request::Write(request) => {
                request.capability.verify(&KEY, request.handle, client, Rights::WRITE, now)?;
                let (object, mtime) = self.objects.entry((request.handle, request.index)).or_default();
                *mtime = DataTime { epoch: mtime.epoch.max(request.mtime_epoch), at: now };
                let mtime = *mtime;
                let mut bulk = bulk;
                for piece in &request.pieces {
                    let (bytes, rest) = bulk.split_at(piece.bytes as usize);
                    let end = piece.offset as usize + bytes.len();
                    object.resize(object.len().max(end), 0);
                    object[piece.offset as usize..end].copy_from_slice(bytes);
                    bulk = rest;
                }
                assert!(bulk.is_empty(), "the pieces cover the data");
                ok(&WriteReply { size: object.len() as u64, mtime })
            }
            Request::Read(request) => {
                request.capability.verify(&KEY, request.handle, client, Rights::READ, now)?;
                let empty = Vec::new();
                let object = self.objects.get(&(request.handle, request.index)).map_or(&empty, |(bytes, _)| bytes);
                let (mut got, mut data) = (Vec::new(), Vec::new());
                for piece in &request.pieces {
                    let start = (piece.offset as usize).min(object.len());
                    let end = (piece.offset as usize + piece.bytes as usize).min(object.len());
                    got.push((end - start) as u32);
                    data.extend_from_slice(&object[start..end]);
                }
                Ok((ReadReply { got, size: object.len() as u64 }.to_bytes(), data))
            }
            Request::ObjectStat(request) => {
                request.capability.verify(&KEY, request.handle, client, Rights::default(), now)?;
                let (size, mtime) = self
                    .objects
                    .get(&(request.handle, request.index))
                    .map_or((0, DataTime::NONE), |(bytes, time)| (bytes.len() as u64, *time));
                ok(&ObjectStatReply { size, allocated_bytes: size, mtime })
            }
            Request::ObjectSync(request) => {
                request.capability.verify(&KEY, request.handle, client, Rights::default(), now)?;
                ok(&())
            }
            other => panic!("the test double does not know {other:?}"),
        }
    }

    fn info(&self, server: ServerId) -> ServerInfo {
        ServerInfo {
            fs_id: self.map.fs_id,
            fs_name: self.map.fs_name.clone(),
            server,
            name: server.to_string(),
            owns_root: server == ServerId(0),
            engine: "memory".into(),
            durability: "none".into(),
            state: "serving".into(),
            uptime_ms: 0,
            boot: self.boots[&server],
            objects: 10,
            used_bytes: 100,
            capacity_bytes: 1000,
            free_bytes: 900,
            requests: 0,
            received_bytes: 0,
            sent_bytes: 0,
            cpu_us: 0,
            turns: 0,
            journal_writes: 0,
            journal_syncs: 0,
            disk: None,
            device: 0,
            device_free_bytes: 0,
        }
    }
}
