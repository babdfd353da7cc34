//! The clients of a run: each does one random operation after another and writes down what it asked
//! and what it was told.

mod data;

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;

use weft_base::{Credentials, FileKind, Handle, MILLISECOND, Payload, ROOT_HANDLE, SECOND, Status};
use weft_client::{Client, CreateOptions, DelayWrites, OpenFile, OpenWith, RenameFlags, SeekFor, SetAttr, XattrFlags};
use weft_layout::HintName;
use weft_rt::{Bulk, Runtime};
use weft_rt_sim::{Control, Joined, NodeId, Random, SimRt};
use weft_wire::Rights;
use weft_wire::ops::SetTime;

use crate::cluster::Durability;
use crate::history::{Action, Answer, History, Name, Outcome, RenameMode, Seen, Time};
use crate::model::{DIR_MODE, FILE_MODE};
use crate::plan::OperationMix;
use crate::statuses::is_definite;

/// The one extended attribute that histories use.
const XATTR: &[u8] = b"user.weft";
/// Longest file that histories make, in bytes.
const FILE_BYTES: u64 = 24_000;
/// Longest piece that histories write or read, in bytes.
const PIECE_BYTES: u64 = 9_000;

/// So many changed names are remembered.
const TOUCHED_MAX: usize = 3;

/// What all clients of a run share: the history, and handles that anybody has met (as if told by
/// word of mouth).
#[derive(Debug, Default)]
pub struct Shared {
    /// The record of the run.
    pub history: History,
    pub(crate) dirs: Vec<Handle>,
    files: Vec<Handle>,
    others: Vec<(Handle, FileKind)>,
    /// The next value to write to each file.
    tags: BTreeMap<Handle, u8>,
    /// How many contents were put.
    pub(crate) contents: u8,
    /// Names that were changed lately, the newest last.
    pub(crate) touched: VecDeque<(Handle, Name)>,
}

impl Shared {
    /// Only the root is known.
    pub fn new() -> Rc<RefCell<Shared>> {
        Rc::new(RefCell::new(Shared { dirs: vec![ROOT_HANDLE], ..Shared::default() }))
    }

    fn learn(&mut self, handle: Handle, kind: FileKind) {
        match kind {
            FileKind::Directory if !self.dirs.contains(&handle) => self.dirs.push(handle),
            FileKind::File if !self.files.contains(&handle) => self.files.push(handle),
            FileKind::Directory | FileKind::File => {}
            _ if !self.others.contains(&(handle, kind)) => self.others.push((handle, kind)),
            _ => {}
        }
    }

    pub(crate) fn touch(&mut self, action: &Action) {
        use Action::*;
        match action {
            Create { dir, name, .. }
            | Mknod { dir, name }
            | Symlink { dir, name, .. }
            | Mkdir { dir, name }
            | Unlink { dir, name }
            | Rmdir { dir, name }
            | Link { dir, name, .. } => self.touched.push_back((*dir, *name)),
            Rename { from_dir, from, to_dir, to, .. } => self.touched.extend([(*from_dir, *from), (*to_dir, *to)]),
            _ => {}
        }
        while self.touched.len() > TOUCHED_MAX {
            self.touched.pop_front();
        }
    }

    pub(crate) fn learn_from(&mut self, outcome: &Outcome) {
        match outcome {
            Outcome::Done(Answer::Attr(seen) | Answer::Created(seen, _)) => self.learn(seen.handle, seen.kind),
            Outcome::Done(Answer::Object(handle, kind)) => self.learn(*handle, *kind),
            Outcome::Done(Answer::Listing(entries)) => entries.iter().for_each(|(_, handle, kind)| self.learn(*handle, *kind)),
            _ => {}
        }
    }
}

/// What a client chooses from.
#[derive(Clone, Copy, Debug)]
pub struct Choices {
    /// What is done most.
    pub mix: OperationMix,
    /// Number of different names.
    pub names: u8,
    /// Directories known at first that are preferred.
    pub dirs: usize,
    /// Files are written and read too.
    pub with_data: bool,
    /// Clients seldom pause, and often look at once at what they or others have changed.
    pub follow: bool,
    /// Names of directories are let go to other servers now and then.
    pub moves: bool,
    /// Whole contents are put under names.
    pub puts: bool,
}

/// One client at work.
pub struct Worker {
    /// Its number in the history.
    pub number: usize,
    /// Its library.
    pub client: Client<SimRt>,
    /// What it shares with the others.
    pub shared: Rc<RefCell<Shared>>,
    /// Its choices.
    pub random: Random,
    open: BTreeMap<Handle, Vec<Arc<OpenFile>>>,
    /// The directory that it has made last, and how many files it makes in it first.
    made: Option<(Handle, u32)>,
    keep_alive: Joined<()>,
}

impl Worker {
    /// A client on this node that has done nothing yet.
    pub fn new(
        number: usize,
        control: &Control,
        node: NodeId,
        client: Client<SimRt>,
        shared: Rc<RefCell<Shared>>,
        random: Random,
    ) -> Worker {
        let keep_alive = control.spawn_on(node, |_| Worker::keep_alive(client.clone()));
        Worker { number, client, shared, random, open: BTreeMap::new(), made: None, keep_alive }
    }

    /// True if the process of the client has died; another may run on its node now.
    pub fn is_dead(&self) -> bool {
        self.keep_alive.is_over()
    }

    /// Does so many random operations.
    pub async fn work(&mut self, operations: usize, choices: Choices, pause_max_ns: u64) {
        for _ in 0..operations {
            let pauses = if choices.follow { self.random.below(8) == 0 } else { self.random.coin() };
            if pause_max_ns > 0 && pauses {
                let until = self.client.rt().now() + self.random.below(pause_max_ns);
                self.client.rt().sleep_until(until).await;
            }
            if choices.moves && self.random.below(4) == 0 {
                self.spread(choices.dirs).await;
            }
            if choices.puts && self.random.below(4) == 0 {
                self.put(choices).await;
                continue;
            }
            let action = self.choose(choices);
            self.act(action).await;
        }
    }

    /// Lets some directory be spread over some servers. No part of the history: nothing but the
    /// places of names follows from it.
    async fn spread(&mut self, preferred: usize) {
        let (dir, servers) = (self.pick_dir(preferred), self.random.between(1, 4) as u16);
        // It may be gone, or its server down.
        drop(self.client.split_directory(&Credentials::ROOT, dir, servers).await);
    }

    /// Gives a directory the hints for the distribution `varstrip`. No part of the history: only
    /// where the bytes of its files are follows from them.
    pub async fn give_strips(&self, dir: Handle, strips: &str) -> Result<(), Status> {
        for (hint, value) in [(HintName::DistParams, strips), (HintName::DistName, "varstrip")] {
            let name = hint.attribute().as_bytes();
            self.client.set_xattr(&Credentials::ROOT, dir, name, value.as_bytes(), XattrFlags::default()).await?;
        }
        Ok(())
    }

    /// Lets the names of directories that are made from now on be spread over so many servers. No
    /// part of the history.
    pub async fn give_presplit(&self, servers: &str) -> Result<(), Status> {
        let name = HintName::Presplit.attribute().as_bytes();
        self.client.set_xattr(&Credentials::ROOT, ROOT_HANDLE, name, servers.as_bytes(), XattrFlags::default()).await?;
        Ok(())
    }

    /// Sets the contract of all servers. No part of the history.
    pub async fn set_contract(&self, contract: Durability) -> Result<(), Status> {
        for server in self.client.map().servers() {
            self.client.set_durability(server.id, contract.name()).await?;
        }
        Ok(())
    }

    /// Closes everything that is open.
    pub async fn close_all(&mut self) {
        while let Some(handle) = self.open.keys().next().copied() {
            self.act(Action::Close { handle }).await;
        }
    }

    /// Keeps the session alive, as a mount does, until the process dies.
    async fn keep_alive(client: Client<SimRt>) {
        loop {
            client.rt().sleep_until(client.rt().now() + 5 * SECOND).await;
            client.keep_alive().await;
        }
    }

    /// Does one operation and records it.
    pub async fn act(&mut self, action: Action) -> Outcome {
        if let Action::LookupHandle { dir, name } = action
            && self.shared.borrow().history.now().is_multiple_of(2)
        {
            return self.read_many(dir, name).await;
        }
        let number = self.shared.borrow_mut().history.begin(self.number, action.clone(), self.client.rt().now());
        self.shared.borrow_mut().touch(&action);
        let result = self.perform(&action, number).await;
        let outcome = match result {
            Ok(answer) => Outcome::Done(answer),
            Err(status) if is_definite(status) => Outcome::Failed(status),
            Err(status) => Outcome::Unknown(status),
        };
        let mut shared = self.shared.borrow_mut();
        shared.history.end(number, outcome.clone(), self.client.rt().now());
        shared.learn_from(&outcome);
        outcome
    }

    fn choose(&mut self, choices: Choices) -> Action {
        let shared = self.shared.borrow();
        let random = &mut self.random;
        let dir = |random: &mut Random| {
            let known = if random.below(4) == 0 { shared.dirs.len() } else { choices.dirs.min(shared.dirs.len()) };
            shared.dirs[random.below(known as u64) as usize]
        };
        let name = |random: &mut Random| Name(random.below(u64::from(choices.names)) as u8);
        // Young objects are met more often than old ones.
        let recent = |random: &mut Random, list: &[Handle]| {
            let newest = list.len().saturating_sub(1 << random.below(5));
            list.get(random.between(newest as u64, list.len().saturating_sub(1) as u64) as usize).copied()
        };
        let file = |random: &mut Random| recent(random, &shared.files).unwrap_or(ROOT_HANDLE);
        let any = |random: &mut Random| match random.below(5) {
            0 => dir(random),
            1 => random.pick(&shared.others).map_or(ROOT_HANDLE, |(handle, _)| *handle),
            _ => file(random),
        };
        if choices.with_data && !self.open.is_empty() && random.below(3) > 0 {
            let held: Vec<Handle> = self.open.keys().copied().collect();
            let handle = held[random.below(held.len() as u64) as usize];
            drop(shared);
            return self.choose_data(handle);
        }
        // Who has just made a directory makes things in it, and sets of it what it is, some of it
        // without asking.
        if let Some((dir, left)) = self.made.as_mut().filter(|(_, left)| shared.history.delays && *left > 0) {
            let (dir, name) = (*dir, Name(*left as u8));
            *left -= u32::from(random.below(4) > 0);
            let (from, to) = (Name(*left as u8 + 1), Name(*left as u8 + 12));
            return match random.below(12) {
                0..2 => Action::Rename { from_dir: dir, from, to_dir: dir, to, mode: RenameMode::Replace },
                2 => Action::Mkdir { dir, name: to },
                3 => Action::SetMode { handle: dir, mode: 0o700 + random.below(64) as u32 },
                4 => Action::SetTime { handle: dir, time: random.below(250) as u16 },
                _ => Action::Create { dir, name, exclusive: random.coin(), truncate: false },
            };
        }
        if choices.follow && !shared.touched.is_empty() && random.below(3) == 0 {
            let (dir, name) = shared.touched[random.below(shared.touched.len() as u64) as usize];
            return match random.below(8) {
                0..3 => Action::LookupHandle { dir, name },
                3..5 => Action::Lookup { dir, name },
                5 => Action::GetAttr { handle: dir, held: false },
                6 => Action::ReadDir { dir, one_page: true },
                _ => Action::Create { dir, name, exclusive: true, truncate: false },
            };
        }
        let rename = |random: &mut Random| {
            let mode = match random.below(6) {
                0 => RenameMode::NoReplace,
                1 | 2 => RenameMode::Exchange,
                _ => RenameMode::Replace,
            };
            Action::Rename { from_dir: dir(random), from: name(random), to_dir: dir(random), to: name(random), mode }
        };
        if choices.mix == OperationMix::Renames {
            return match random.below(20) {
                0..11 => rename(random),
                11 | 12 => Action::Mkdir { dir: dir(random), name: name(random) },
                13 | 14 => Action::Rmdir { dir: dir(random), name: name(random) },
                15 | 16 => Action::Create { dir: dir(random), name: name(random), exclusive: true, truncate: false },
                17 => Action::Unlink { dir: dir(random), name: name(random) },
                18 => Action::Link { handle: file(random), kind: FileKind::File, dir: dir(random), name: name(random) },
                _ => Action::LookupHandle { dir: dir(random), name: name(random) },
            };
        }
        match random.below(100) {
            0..14 => Action::Create { dir: dir(random), name: name(random), exclusive: random.coin(), truncate: random.below(4) == 0 },
            14..24 => Action::Mkdir { dir: dir(random), name: name(random) },
            24..32 => Action::Unlink { dir: dir(random), name: name(random) },
            32..39 => Action::Rmdir { dir: dir(random), name: name(random) },
            39..57 => rename(random),
            57..63 => match (random.below(4), random.pick(&shared.others)) {
                (0, Some((handle, kind))) => Action::Link { handle: *handle, kind: *kind, dir: dir(random), name: name(random) },
                _ => Action::Link { handle: file(random), kind: FileKind::File, dir: dir(random), name: name(random) },
            },
            63..66 => Action::Symlink { dir: dir(random), name: name(random), target: random.between(1, 9) as u8 },
            66..68 => Action::Mknod { dir: dir(random), name: name(random) },
            68..73 => Action::LookupHandle { dir: dir(random), name: name(random) },
            73..78 => Action::Lookup { dir: dir(random), name: name(random) },
            78..83 => {
                let handle = any(random);
                Action::GetAttr { handle, held: self.open.contains_key(&handle) }
            }
            83..88 => Action::ReadDir { dir: dir(random), one_page: random.below(3) > 0 },
            88..89 => Action::Readlink { handle: any(random) },
            89..91 => Action::SetMode { handle: dir(random), mode: 0o700 + random.below(64) as u32 },
            91..93 => match (file(random), random.below(0o1000)) {
                (handle, time) if time.is_multiple_of(2) => Action::SetTime { handle, time: time as u16 / 2 },
                (handle, mode) => Action::SetMode { handle, mode: mode as u32 },
            },
            93..95 => Action::SetSize { handle: file(random), size: random.below(FILE_BYTES) },
            95..96 => Action::SetXattr { handle: any(random), value: random.below(200) as u8 },
            96..97 => Action::GetXattr { handle: any(random) },
            97..98 => Action::RemoveXattr { handle: any(random) },
            98..99 => Action::Open { handle: file(random) },
            _ => match self.open.keys().next() {
                Some(handle) => Action::Close { handle: *handle },
                None => Action::Open { handle: file(random) },
            },
        }
    }

    async fn perform(&mut self, action: &Action, number: usize) -> Result<Answer, Status> {
        let (client, who) = (self.client.clone(), &Credentials::ROOT);
        let attr = |attr: weft_base::Attr| Answer::Attr(Seen::from(&attr));
        let (done, absorbs) = (|()| Answer::Nothing, self.shared.borrow().history.delays);
        match action {
            Action::Create { dir, name, exclusive, truncate } => {
                let rights = Rights::READ.with(Rights::WRITE);
                let (mode, exclusive, truncate, delays) =
                    (FILE_MODE, *exclusive, *truncate, DelayWrites::allowed(absorbs, !number.is_multiple_of(4)));
                let options = CreateOptions { mode, exclusive, rights, truncate, delays, can_absorb: absorbs, ..CreateOptions::default() };
                let (attr, file, created) = client.create(who, *dir, &name.bytes(), &options).await?;
                self.open.entry(attr.handle).or_default().push(file);
                Ok(Answer::Created(Seen::from(&attr), created))
            }
            Action::Mknod { dir, name } => Ok(attr(client.mknod(who, *dir, &name.bytes(), FileKind::Fifo, FILE_MODE, 0).await?)),
            Action::Symlink { dir, name, target } => {
                Ok(attr(client.symlink(who, *dir, &name.bytes(), &vec![b't'; usize::from(*target)]).await?))
            }
            Action::Mkdir { dir, name } => {
                let made = client.mkdir(who, *dir, &name.bytes(), DIR_MODE).await?;
                self.made = Some((made.handle, self.random.below(10) as u32));
                Ok(attr(made))
            }
            Action::Unlink { dir, name } => Ok(done(client.unlink_with(who, *dir, &name.bytes(), absorbs).await?)),
            Action::Rmdir { dir, name } => Ok(done(client.rmdir(who, *dir, &name.bytes()).await?)),
            Action::Rename { from_dir, from, to_dir, to, mode } => {
                let flags = RenameFlags { no_replace: *mode == RenameMode::NoReplace, exchange: *mode == RenameMode::Exchange };
                Ok(done(client.rename(who, *from_dir, &from.bytes(), *to_dir, &to.bytes(), flags).await?))
            }
            Action::Link { handle, dir, name, .. } => Ok(attr(client.link(who, *handle, *dir, &name.bytes()).await?)),
            Action::LookupHandle { dir, name } => {
                let (handle, kind) = client.lookup_handle(who, *dir, &name.bytes()).await?;
                Ok(Answer::Object(handle, kind))
            }
            Action::Lookup { dir, name } => Ok(attr(client.lookup(who, *dir, &name.bytes()).await?)),
            Action::GetAttr { handle, .. } => Ok(attr(client.getattr(*handle).await?)),
            Action::ReadDir { dir, one_page } => self.read_dir(*dir, *one_page, number).await,
            Action::Readlink { handle } => Ok(Answer::Number(client.readlink(*handle).await?.len() as u64)),
            Action::SetMode { handle, mode } => {
                Ok(attr(client.setattr(who, *handle, &SetAttr { mode: Some(*mode), ..SetAttr::default() }).await?))
            }
            Action::SetTime { handle, time } => {
                let mtime = Some(SetTime { at: Some(Time::of_set(*time)) });
                Ok(attr(client.setattr(who, *handle, &SetAttr { mtime, ..SetAttr::default() }).await?))
            }
            Action::SetSize { handle, size } => {
                Ok(attr(client.setattr(who, *handle, &SetAttr { size: Some(*size), ..SetAttr::default() }).await?))
            }
            Action::SetXattr { handle, value } => Ok(done(client.set_xattr(who, *handle, XATTR, &[*value], XattrFlags::default()).await?)),
            Action::GetXattr { handle } => {
                let value = client.get_xattr(who, *handle, XATTR).await?;
                Ok(Answer::Number(value.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))))
            }
            Action::RemoveXattr { handle } => Ok(done(client.remove_xattr(who, *handle, XATTR).await?)),
            Action::Open { handle } => {
                let delays = DelayWrites::allowed(self.shared.borrow().history.delays && !number.is_multiple_of(3), true);
                let how = OpenWith { rights: Rights::READ.with(Rights::WRITE), delays, ..OpenWith::default() };
                let (opened, file) = client.open_with(who, *handle, how).await?;
                self.open.entry(*handle).or_default().push(file);
                Ok(attr(opened))
            }
            Action::Close { handle } => {
                let Some(file) = self.take_open(*handle) else { return Ok(Answer::Nothing) };
                // All ways of closing mean the same.
                let brought = if number.is_multiple_of(3) { Ok(()) } else { client.bring_gathered(&file).await };
                let closed = match number % 2 {
                    0 => client.close(file).await,
                    _ => client.close_many(&[file]).await.remove(0),
                };
                Ok(done(brought.and(closed)?))
            }
            Action::Write { handle, offset, len, tag } => {
                let Some(file) = self.open_file(*handle) else { return Err(Status::Invalid) };
                let data = vec![*tag; *len as usize];
                client.write(&file, *offset, Bulk::Slices(vec![&data])).await?;
                if number.is_multiple_of(2) && file.has_much_gathered() {
                    // What fails stays with the client.
                    client.send_gathered(&file).await.ok();
                }
                Ok(Answer::Nothing)
            }
            Action::Read { handle, offset, len } => {
                let Some(file) = self.open_file(*handle) else { return Err(Status::Invalid) };
                if len.is_multiple_of(7)
                    && let Some(data) = client.seek(&file, *offset, SeekFor::Data).await?
                    && data > *offset
                {
                    // Who asks for data has read the zeros before it.
                    let zeros = (data - offset).min(*len);
                    let read = Action::Read { handle: *handle, offset: *offset, len: zeros };
                    self.shared.borrow_mut().history.amend(number, |action| *action = read);
                    return Ok(Answer::Data(vec![0; zeros as usize]));
                }
                let pieces = client.read(&file, *offset, *len).await?;
                Ok(Answer::Data(Payload::concat(&pieces)))
            }
            Action::Content { .. } => unreachable!("contents are put by name"),
            Action::Allocate { handle, offset, len, how } => {
                let Some(file) = self.open_file(*handle) else { return Err(Status::Invalid) };
                Ok(done(client.fallocate(who, &file, *offset, *len, *how).await?))
            }
            Action::Fsync { handle } => {
                let Some(file) = self.open_file(*handle) else { return Err(Status::Invalid) };
                Ok(done(client.fsync(&file, false).await?))
            }
            Action::SyncAll => {
                for server in &client.map().meta {
                    client.fsync_dir(Handle::new(server.id, 1)).await?;
                }
                Ok(Answer::Nothing)
            }
        }
    }

    /// Reads a whole directory: in one request, or with room for only a few entries in each reply.
    async fn read_dir(&self, dir: Handle, one_page: bool, number: usize) -> Result<Answer, Status> {
        let bytes_max = if one_page { 64 << 10 } else { 100 };
        let (mut entries, mut cookie, mut pages) = (Vec::new(), 0, 0);
        loop {
            let page = self.client.readdir(&Credentials::ROOT, dir, cookie, bytes_max, false).await?;
            pages += 1;
            for item in &page.entries {
                let name = Name::from_bytes(&item.name).ok_or(Status::BadMessage)?;
                entries.push((name, item.handle, item.kind));
            }
            match page.entries.last() {
                Some(last) if !page.end => cookie = last.cookie,
                _ => break,
            }
        }
        if pages > 1 && one_page {
            let downgrade = |action: &mut Action| *action = Action::ReadDir { dir, one_page: false };
            self.shared.borrow_mut().history.amend(number, downgrade);
        }
        Ok(Answer::Listing(entries))
    }

    fn open_file(&self, handle: Handle) -> Option<Arc<OpenFile>> {
        self.open.get(&handle).and_then(|files| files.last()).cloned()
    }

    fn take_open(&mut self, handle: Handle) -> Option<Arc<OpenFile>> {
        let files = self.open.get_mut(&handle)?;
        let file = files.pop();
        if files.is_empty() {
            self.open.remove(&handle);
        }
        file
    }
}

/// How long a cluster may need to become quiet after the last fault, in nanoseconds.
pub const SETTLE_NS: u64 = 300 * MILLISECOND;
/// How long a server may go on with a change whose client has given up, in nanoseconds.
pub const LATE_NS: u64 = 12 * SECOND;
