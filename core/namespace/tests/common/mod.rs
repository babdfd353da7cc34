//! A metadata server without a server: requests go straight to the state, records into a list.
#![allow(dead_code, reason = "every test file uses its own part")]

use bytes::Bytes;
use weft_base::{ClientId, Credentials, FileKind, Handle, Layout, ROOT_HANDLE, Result, ServerId, Status, WallTime};
use weft_namespace::*;
use weft_wire::ops::*;
use weft_wire::{ClusterKey, NameKey, Rights};

pub const KEY: ClusterKey = ClusterKey([9; 32]);
pub const ME: ClientId = ClientId(1);
pub const LAYOUT: Layout = Layout { stripe_bytes: 1 << 20, width: 2, first: 0, generation: 1 };

pub struct Machine {
    pub state: State,
    /// All records so far, encoded.
    pub log: Vec<Vec<u8>>,
    pub now: i64,
    pub client: ClientId,
}

pub fn settings() -> Settings {
    Settings { server: ServerId(0), name_key: NameKey([5; 16]), xattr_bytes_max: 1 << 20, inline_limit: 0 }
}

pub fn name(name: &str) -> Bytes {
    Bytes::copy_from_slice(name.as_bytes())
}

pub fn at(dir: Handle) -> DirTarget {
    DirTarget { dir, map_epoch: 0 }
}

pub fn user(uid: u32, gid: u32) -> Credentials {
    Credentials { uid, gid, groups: Vec::new(), checked_by_kernel: false }
}

pub const ROOT: Credentials = Credentials::ROOT;

impl Machine {
    /// With a root directory that everybody may write to.
    pub fn new() -> Machine {
        Machine::with(settings())
    }

    pub fn with(settings: Settings) -> Machine {
        let mut machine = Machine { state: State::new(settings), log: Vec::new(), now: 1000, client: ME };
        machine.state.place(Placement { meta: vec![ServerId(0)], generation: 1, data_servers: 2 });
        let root = State::format(0o777, (0, 0), LAYOUT, WallTime(1000));
        machine.commit(Record { changes: vec![root], open: None });
        machine
    }

    pub fn commit(&mut self, mut record: Record) {
        if !record.is_volatile() {
            let mut out = Vec::new();
            record.encode(&mut out);
            self.log.push(out);
        }
        self.state.apply(&mut record);
    }

    /// One operation at a new time.
    pub fn change<T>(&mut self, prepare: impl FnOnce(&State, &RequestContext<'_>, &mut Record) -> Result<T>) -> Result<T> {
        self.now += 1;
        let mut record = Record::default();
        let cx = RequestContext { client: self.client, now: WallTime(self.now), key: &KEY, capability_ns: 1000 };
        let result = prepare(&self.state, &cx, &mut record)?;
        self.commit(record);
        Ok(result)
    }

    pub fn look<T>(&self, question: impl FnOnce(&State, &RequestContext<'_>) -> Result<T>) -> Result<T> {
        question(&self.state, &RequestContext { client: self.client, now: WallTime(self.now), key: &KEY, capability_ns: 1000 })
    }

    pub fn parts(&mut self, who: &Credentials, plan: impl FnOnce(&State) -> Result<Vec<ServerPart>>) -> Result<Vec<Handle>> {
        self.change(|state, cx, record| {
            let parts = plan(state)?.into_iter().map(|part| part.part).collect();
            state.prepare_local(parts, who, cx.now, record)
        })
    }

    pub fn create_as(&mut self, who: &Credentials, dir: Handle, file: &str, mode: u32) -> Result<Handle> {
        let request = CreateRequest { who: who.clone(), mode, ..create(dir, file) };
        Ok(self.change(|state, cx, record| state.prepare_create(cx, &request, record))?.handle)
    }

    pub fn create(&mut self, dir: Handle, file: &str) -> Result<Handle> {
        self.create_as(&ROOT, dir, file, 0o644)
    }

    pub fn open(&mut self, handle: Handle, rights: Rights, sequence: u64) -> Result<OpenReply> {
        self.open_with(&open(handle, rights, sequence))
    }

    pub fn open_with(&mut self, request: &OpenRequest) -> Result<OpenReply> {
        self.change(|state, cx, record| state.prepare_open(cx, request, record))
    }

    pub fn mkdir_as(&mut self, who: &Credentials, dir: Handle, file: &str, mode: u32) -> Result<Handle> {
        let request = MkdirRequest::of(at(dir), name(file), mode, who.clone());
        let handles = self.parts(who, |state| state.plan_mkdir(&request))?;
        Ok(handles[1])
    }

    pub fn mkdir(&mut self, dir: Handle, file: &str) -> Result<Handle> {
        self.mkdir_as(&ROOT, dir, file, 0o755)
    }

    pub fn unlink_as(&mut self, who: &Credentials, dir: Handle, file: &str) -> Result<()> {
        let request = UnlinkRequest::of(at(dir), name(file), who.clone());
        self.parts(who, |state| Ok(state.plan_unlink(&request)?.1)).map(|_| ())
    }

    pub fn unlink(&mut self, dir: Handle, file: &str) -> Result<()> {
        self.unlink_as(&ROOT, dir, file)
    }

    pub fn rmdir_as(&mut self, who: &Credentials, dir: Handle, file: &str) -> Result<()> {
        let request = RmdirRequest { at: at(dir), name: name(file), who: who.clone() };
        self.parts(who, |state| state.plan_rmdir(&request)).map(|_| ())
    }

    pub fn rmdir(&mut self, dir: Handle, file: &str) -> Result<()> {
        self.rmdir_as(&ROOT, dir, file)
    }

    pub fn link(&mut self, handle: Handle, dir: Handle, file: &str) -> Result<()> {
        let kind = self.state.peek(handle).map_or(FileKind::File, |inode| inode.kind);
        let request = LinkRequest { handle, kind, to: at(dir), to_name: name(file), who: ROOT };
        self.parts(&ROOT, |state| state.plan_link(&request)).map(|_| ())
    }

    pub fn rename_with(&mut self, request: &RenameRequest) -> Result<()> {
        let who = request.who.clone();
        self.change(|state, cx, record| {
            let source = state.rename_source(request)?;
            let target = state.rename_target(&request.to, &request.to_name, &who)?;
            let RenamePlan::Parts(parts, cycles) = state.plan_rename(request, source, target)? else { return Ok(()) };
            for cycle in cycles {
                if state.is_within(cycle.parent, cycle.moved)? {
                    return Err(Status::Invalid);
                }
            }
            let parts = parts.into_iter().map(|part| part.part).collect();
            state.prepare_local(parts, &who, cx.now, record).map(|_| ())
        })
    }

    pub fn rename_as(&mut self, who: &Credentials, from: Handle, from_name: &str, to: Handle, to_name: &str) -> Result<()> {
        self.rename_with(&RenameRequest { who: who.clone(), ..rename(from, from_name, to, to_name) })
    }

    pub fn rename(&mut self, from: Handle, from_name: &str, to: Handle, to_name: &str) -> Result<()> {
        self.rename_as(&ROOT, from, from_name, to, to_name)
    }

    pub fn setattr(&mut self, request: &SetAttrRequest) -> Result<SizePlan<FileState>> {
        self.change(|state, cx, record| state.prepare_setattr(cx, request, record))
    }

    /// Lets an object count for this project; 0: for none.
    pub fn set_project(&mut self, handle: Handle, project: u32) -> Result<()> {
        self.set_project_as(&ROOT, handle, project)
    }

    pub fn set_project_as(&mut self, who: &Credentials, handle: Handle, project: u32) -> Result<()> {
        let (name, who) = (name("user.weft.project"), who.clone());
        if project == 0 {
            let request = RemoveXattrRequest { handle, name, who };
            return self.change(|state, cx, record| state.prepare_remove_xattr(cx, &request, record));
        }
        let value = Bytes::from(project.to_string());
        let request = SetXattrRequest { handle, name, value, create_only: false, replace_only: false, who };
        self.change(|state, cx, record| state.prepare_set_xattr(cx, &request, record))
    }

    /// The project of an object, as its attribute tells it; 0: none.
    pub fn project(&self, handle: Handle) -> u32 {
        match self.state.get_xattr(handle, &name("user.weft.project"), &ROOT) {
            Err(Status::NoAttribute) => 0,
            reply => std::str::from_utf8(&reply.expect("it is there").value).expect("text").parse().expect("a number"),
        }
    }

    pub fn attr(&self, handle: Handle) -> weft_base::Attr {
        self.look(|state, cx| state.getattr(cx, handle)).expect("the object is there").attr
    }

    pub fn lookup(&self, dir: Handle, file: &str) -> Result<Handle> {
        self.look(|state, cx| Ok(state.lookup(cx, &LookupRequest { at: at(dir), name: name(file), who: ROOT })?.handle))
    }
}

pub fn create(dir: Handle, file: &str) -> CreateRequest {
    CreateRequest { open_sequence: 1, ..CreateRequest::of(at(dir), name(file), (FileKind::File, 0o644), ROOT) }
}

pub fn rename(from: Handle, from_name: &str, to: Handle, to_name: &str) -> RenameRequest {
    RenameRequest {
        from: at(from),
        from_name: name(from_name),
        to: at(to),
        to_name: name(to_name),
        no_replace: false,
        exchange: false,
        who: ROOT,
    }
}

pub fn setattr(handle: Handle, who: &Credentials) -> SetAttrRequest {
    SetAttrRequest::of(handle, who.clone())
}

/// The whole state as bytes.
pub fn dump(state: &State) -> Vec<Bytes> {
    let mut records = Vec::new();
    let mut cursor = SnapshotCursor::Start;
    while cursor != SnapshotCursor::End {
        let (slice, next) = state.snapshot_from(cursor, usize::MAX);
        records.extend(slice);
        cursor = next;
    }
    records
}

pub fn replay(records: impl IntoIterator<Item = Bytes>) -> State {
    let mut state = State::new(settings());
    for bytes in records {
        let mut record = Record::decode(bytes).expect("a record that was encoded decodes");
        state.apply(&mut record);
    }
    state
}

/// What each user and each project takes, as the state has counted it: inodes and bytes.
pub fn sums(state: &State) -> Vec<(QuotaId, u64, u64)> {
    let of = |of_project: Option<bool>| {
        let all = usage_of(state, of_project).users.into_iter().filter(|of| of.inodes > 0);
        all.map(move |sums| (QuotaId::of(sums.uid, of_project), sums.inodes, sums.bytes))
    };
    of(None).chain(of(Some(true))).collect()
}

/// What each user and each project takes and may take, as the state has counted it.
pub fn usage(state: &State) -> [UsageReply; 2] {
    [usage_of(state, None), usage_of(state, Some(true))]
}

fn usage_of(state: &State, of_project: Option<bool>) -> UsageReply {
    state.usage(&UsageRequest { from: 0, to: u32::MAX, who: ROOT, of_project }).expect("root may ask")
}

/// What each user and each project takes, by a walk over all inodes.
pub fn walked(state: &State) -> Vec<(QuotaId, u64, u64)> {
    let mut all = std::collections::BTreeMap::<QuotaId, (u64, u64)>::new();
    for inode in (1..state.next_handle().counter()).filter_map(|counter| state.peek(Handle(counter))) {
        let project = (inode.project != 0).then_some(QuotaId::project(inode.project));
        for id in [QuotaId::user(inode.uid)].into_iter().chain(project) {
            let sums = all.entry(id).or_default();
            *sums = (sums.0 + 1, sums.1 + inode.attr(TOP).allocated_bytes());
        }
    }
    all.into_iter().map(|(id, (inodes, bytes))| (id, inodes, bytes)).collect()
}

pub const TOP: Handle = ROOT_HANDLE;

pub fn open(handle: Handle, rights: Rights, open_sequence: u64) -> OpenRequest {
    OpenRequest::of(handle, rights, open_sequence, ROOT)
}
