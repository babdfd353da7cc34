//! Contents of small files on their disk: written when their records are committed, read, and moved
//! to data servers when somebody wants to write.
//!
//! ```text
//! here ──▶ announced: a record says that the file may have a datafile, and is on stable storage
//!            │  reads go on from here; whoever wants to write waits
//!            ▼
//!          copied: datafile 0 has the bytes on stable storage; doing it again writes the same
//!            │
//!            ▼
//!          out: a record without the block is on stable storage; who waits goes on
//! ```
//! A crash anywhere leaves a file that is here, whole; the next who wants to write goes on.

use std::rc::Rc;

use bytes::{Bytes, BytesMut};
use weft_base::{Handle, MILLISECOND, Payload, Result, SECOND, ServerId, Status};
use weft_journal::{Found, JournalError, TakesFound};
use weft_namespace::{ContentPlace, Inode, InodeFlags, MovePlan, Record, RequestContext, State, WaitingContent};
use weft_rt::{Bulk, Disk, FileId, PeerId, ServerRuntime, join_all};
use weft_serving::{ServerError, Service, ServingConfig, find_container, make_container};
use weft_store::objects::{BLOCK_BYTES, CONTAINER_HEADER_BYTES};
use weft_wire::ops::{
    FoundContent, LookupManyReply, LookupManyRequest, OpenReply, Piece, ReadInlineReply, ReadInlineRequest, WriteRequest,
};
use weft_wire::{BULK_BYTES_MAX, Header, Op, Rights, Wire};

use crate::container::Refused;
use crate::engine::{Engine, Room};
use crate::server::Server;
use crate::step::Step;

/// Name of the container of contents on the disk of a metadata server.
pub(crate) const CONTENTS_NAME: &str = "contents";

/// No block of a container has this number.
const BLOCKS_END: u64 = 1 << 50;
/// Contents that are written together.
const WRITES_MAX: usize = 256;
/// By how many bytes the container grows at least and at most: else to twice its size.
const GROWTH_BYTES: std::ops::RangeInclusive<u64> = 4 << 20..=64 << 20;
/// A container on a disk that is nearly full asks again after so many nanoseconds.
const FULL_NS: u64 = 5 * SECOND;
/// How long freed blocks are gathered before a flush gives them back, in nanoseconds.
const FREED_NS: u64 = 100 * MILLISECOND;
/// The pause before a file is moved once more, in nanoseconds.
const AGAIN_NS: u64 = 100 * MILLISECOND;
/// A copy that has not come by then is refused by its data server, in nanoseconds.
const COPY_LASTS_NS: i64 = 8 * SECOND as i64;
/// So long after a copy that nobody has answered another one is sent, by a later life of this
/// server too: when others write, no copy may come any more. The clock of a data server may be
/// behind by what is left of it.
const LATE_COPIES_NS: u64 = 10 * SECOND;
/// A copy that is refused for its age within so many nanoseconds was not late: the clock of the
/// data server is ahead.
const AT_ONCE_NS: i64 = SECOND as i64;
/// How long a data server may take to write a content, in nanoseconds.
const COPY_NS: u64 = 5 * SECOND;

/// The container that an earlier life has left: its file, if there is one, and its blocks.
pub(crate) struct FoundContainer(std::result::Result<Option<(FileId, u64)>, ServerError>);

impl FoundContainer {
    pub(crate) async fn find<D: Disk>(disk: &D, config: &ServingConfig) -> FoundContainer {
        let find = async || match find_container(disk, CONTENTS_NAME, config).await? {
            Some(file) => {
                let bytes = disk.len(file).await.map_err(|error| ServerError::Disk("look at the container", error))?;
                Ok(Some((file, bytes / BLOCK_BYTES)))
            }
            None => Ok(None),
        };
        FoundContainer(find().await)
    }

    /// After a replay.
    ///
    /// # Errors
    /// It cannot be read, and contents are in it; contents that are not where they should be.
    pub(crate) fn kept_by(self, state: &mut State) -> std::result::Result<Option<FileId>, ServerError> {
        let found = match self.0 {
            // Power was cut while it was made.
            Err(ServerError::Store(_)) if state.keep_contents(0).is_ok() => None,
            found => found?,
        };
        let blocks = found.map_or(0, |(_, blocks)| blocks);
        state.keep_contents(blocks).map_err(|handle| {
            let bytes = blocks * BLOCK_BYTES;
            ServerError::Store(match (found, state.keep_contents(BLOCKS_END)) {
                (_, Err(handle)) => format!("blocks of the content of {handle} in {CONTENTS_NAME} have two owners"),
                (None, Ok(())) => format!("the container {CONTENTS_NAME} is not there, or empty, and the content of {handle} was in it"),
                (Some(_), Ok(())) => {
                    format!("the container {CONTENTS_NAME} was cut: it has {bytes} bytes, and the content of {handle} lay behind")
                }
            })
        })?;
        Ok(found.map(|(file, _)| file))
    }
}

/// What a replay makes of the records that it finds.
pub(crate) struct Replay<'a, D> {
    pub(crate) disk: &'a D,
    pub(crate) container: &'a FoundContainer,
    pub(crate) state: &'a mut State,
}

impl<D: Disk> TakesFound for Replay<'_, D> {
    fn take(&mut self, found: Found<'_>) -> Result<()> {
        let (Found::Checkpoint(bytes) | Found::Journal(_, bytes)) = found;
        self.state.apply(&mut Record::decode(bytes.to_vec().into())?);
        Ok(())
    }

    /// Contents go into the container piece by piece: those of a long journal would fill the
    /// memory. A block that had another owner later has its content from further behind, which is
    /// there: the journal is whole.
    async fn piece_ends(&mut self) -> std::result::Result<(), JournalError> {
        let Ok(Some((file, blocks))) = self.container.0 else { return Ok(()) };
        let mut from = 0;
        loop {
            let mut waiting = self.state.contents_waiting(from, WRITES_MAX);
            let Some(last) = waiting.last() else { return Ok(()) };
            from = last.number + 1;
            waiting.retain(|content| content.run.end() <= blocks);
            // The space was allocated: "no space" is an error of the disk here, too.
            let failed = |error| JournalError::Disk { action: "write contents".into(), error };
            write(self.disk, file, &waiting).await.map_err(failed)?;
            self.state.contents_stored(waiting.iter().map(|content| content.number));
        }
    }
}

/// Writes contents; those of neighbouring blocks together.
async fn write<D: Disk>(disk: &D, file: FileId, contents: &[WaitingContent]) -> std::result::Result<(), weft_rt::DiskError> {
    let mut order: Vec<&WaitingContent> = contents.iter().collect();
    order.sort_by_key(|content| content.run);
    for neighbours in order.chunk_by(|one, next| one.run.end() == next.run.start) {
        let at = neighbours[0].run.start * BLOCK_BYTES;
        let bytes = neighbours.iter().map(|content| content.run.blocks * BLOCK_BYTES).sum::<u64>();
        let mut data = BytesMut::with_capacity(bytes as usize);
        for content in neighbours {
            data.extend_from_slice(&content.bytes);
            data.resize(((content.run.end() - neighbours[0].run.start) * BLOCK_BYTES) as usize, 0);
        }
        disk.write(file, at, Payload::Real(data.freeze())).await?;
    }
    Ok(())
}

impl<R: ServerRuntime, E: Engine> Server<R, E> {
    /// At the end of a turn: starts what contents need.
    pub(crate) fn look_after_contents(self: &Rc<Self>) {
        let (state, contents) = (self.state.borrow(), &self.background.contents);
        if contents.file.get().is_some() {
            if state.first_content_waiting().is_some() {
                contents.came.notify();
            }
            if state.lacks_content_room(false) {
                self.start_growing();
            }
        }
        if state.has_freed_contents() && !contents.is_releasing.replace(true) {
            self.rt.spawn(Rc::clone(self).release_flow());
        }
    }

    /// A request was refused because of what a while may change: sees to it that it does.
    ///
    /// # Errors
    /// [`Status::NoSpace`]: it does not.
    pub(crate) fn refused_for_contents(self: &Rc<Self>, request: &Refused) -> Result<()> {
        let state = self.state.borrow();
        let handle = match request {
            Refused::Move(handle) => *handle,
            Refused::Cut(handle) if !state.peek(*handle).is_some_and(|inode| inode.flags.has(InodeFlags::HAS_DATA)) => return Ok(()),
            Refused::Cut(handle) => *handle,
            Refused::Create(dir, name) => {
                if state.inline_limit(*dir) > 0 && state.lacks_content_room(true) {
                    self.start_growing();
                }
                let Some((handle, _)) = state.entry(*dir, name) else { return Ok(()) };
                handle
            }
        };
        if !state.peek(handle).is_some_and(Inode::is_inline) {
            return Ok(());
        }
        self.check_room_of(Op::Open)?;
        let mut moving = self.background.contents.moving.borrow_mut();
        if let Some(has_no_room) = moving.get(&handle) {
            return if *has_no_room { Err(Status::NoSpace) } else { Ok(()) };
        }
        moving.insert(handle, false);
        drop(moving);
        let this = Rc::clone(self);
        self.rt.spawn(async move {
            if this.move_out(handle).await.is_err() {
                this.rt.sleep_until(this.rt.now() + AGAIN_NS).await;
            }
            this.background.contents.moving.borrow_mut().remove(&handle);
            this.shell.release();
        });
        Ok(())
    }

    /// Moves a content to data servers: see the head of this file.
    async fn move_out(self: &Rc<Self>, handle: Handle) -> Result<()> {
        let mut is_new = false;
        loop {
            let mut record = Record::default();
            let plan = self.state.borrow().plan_move_out(handle, &mut record);
            match plan {
                None => return Ok(()),
                Some(MovePlan::Announce) if self.engine.room() != Room::Plenty => return Err(Status::NoSpace),
                Some(MovePlan::Announce) => {
                    self.change_in_flow(&mut record);
                    self.make_all_durable().await?;
                    is_new = true;
                }
                // An earlier life may have sent one.
                Some(MovePlan::Copy) if !is_new && self.rt.now() < self.shell.started + LATE_COPIES_NS => {
                    return Err(Status::Busy);
                }
                Some(MovePlan::Copy) => break,
            }
        }
        let content = Rc::clone(self).read_stored(vec![handle]).await?.pop().flatten().unwrap_or_default();
        if !content.is_empty() {
            let layout = self.state.borrow().inode(handle)?.layout;
            let server = self.shell.introduction.map().data_server(&layout, 0)?;
            let copied = self.copy_out(server, handle, &content).await;
            if let Err(status) = &copied {
                if *status == Status::NoSpace {
                    // Who waits hears of it.
                    self.background.contents.moving.borrow_mut().insert(handle, true);
                    self.shell.release();
                }
                self.rt.sleep_until(self.rt.now() + LATE_COPIES_NS).await;
            }
            copied?;
        }
        let mut record = Record::default();
        self.state.borrow().prepare_moved_out(handle, &mut record)?;
        self.change_in_flow(&mut record);
        self.make_all_durable().await
    }

    /// Writes a content to its data server. Where the clock of that is ahead, a copy lasts longer
    /// by this server's clock, and as long as elsewhere by that of the data server: by how much it
    /// is ahead at least each refusal says, and it is not remembered, as clocks are set.
    async fn copy_out(&self, server: ServerId, handle: Handle, content: &[u8]) -> Result<()> {
        let mut ahead_ns = 0;
        loop {
            let begun = self.rt.now();
            let cx = RequestContext { capability_ns: ahead_ns + COPY_LASTS_NS, ..self.context(self.shell.caller.client()) };
            let capability = cx.capability(handle, Rights::WRITE);
            let pieces = vec![Piece { offset: 0, bytes: content.len() as u32 }];
            let request = WriteRequest { handle, index: 0, capability, pieces, mtime_epoch: 0, sync: true, ceiling: None };
            let bulk = Bulk::Slices(vec![content]);
            match self.shell.caller.call_with_bulk(server, &request, bulk, begun + COPY_NS).await {
                Err(Status::CapabilityExpired)
                    if ahead_ns < self.config.capability_ns && self.rt.now().since(begun) < AT_ONCE_NS as u64 =>
                {
                    ahead_ns += COPY_LASTS_NS - AT_ONCE_NS;
                }
                copied => {
                    if let Some(warn) = self.config.warn.filter(|_| ahead_ns > 0) {
                        let seconds = ahead_ns / SECOND as i64;
                        warn(&self.config.serving.name, &format!("the clock of {server} is ahead by {seconds} s or more: set both by NTP"));
                    }
                    return copied.map(drop);
                }
            }
        }
    }

    // ---- Reading
    // ---------------------------------------------------------------------------------------------

    /// The content of a file, or that it is out.
    pub(crate) fn read_inline(self: &Rc<Self>, peer: PeerId, header: &Header, request: &ReadInlineRequest) -> Result<Step> {
        let (handle, client) = (request.capability.handle, header.request.client);
        request.capability.verify(&self.config.serving.key, handle, client, Rights::READ, self.rt.wall())?;
        let place = {
            let state = self.state.borrow();
            // Its reader may have been told where it is before another client began to delay.
            state.check_tellable(client, handle, state.inode(handle)?)?;
            state.content(handle)?
        };
        let content = match place {
            ContentPlace::Out => None,
            ContentPlace::Here(content) => Some(content),
            ContentPlace::Stored { .. } => {
                let read = Rc::clone(self).read_stored(vec![handle]);
                return Ok(self.start_question_with_bulk(peer, header, async move {
                    let content = read.await?.pop().flatten();
                    Ok((ReadInlineReply { content }.to_bytes(), Payload::EMPTY))
                }));
            }
        };
        Ok(Step::Answer(ReadInlineReply { content }.to_bytes(), 0))
    }

    /// The answer to an open that was made, with all bytes of the file. What is remembered of it
    /// for a repetition is without them: its client asks for them then.
    pub(crate) fn answer_with_content(self: &Rc<Self>, peer: PeerId, header: &Header, reply: OpenReply) -> Step {
        let (this, read) = (Rc::clone(self), Rc::clone(self).read_stored(vec![reply.state.attr.handle]));
        self.start_question_with_bulk(peer, header, async move {
            let content = read.await.ok().and_then(|mut contents| contents.pop().flatten()).unwrap_or_default();
            // Attributes may be told that no journal has yet.
            if !this.settle().await {
                return Err(Status::Io);
            }
            let content_bytes = (!content.is_empty()).then_some(content.len() as u32);
            Ok((OpenReply { content_bytes, ..reply }.to_bytes(), Payload::Real(content)))
        })
    }

    /// Names, with the contents of files among them that are here, as far as a message holds them.
    pub(crate) fn lookup_many(self: &Rc<Self>, peer: PeerId, header: &Header, request: &LookupManyRequest) -> Result<Step> {
        let reply = self.state.borrow().lookup_many(&self.context(header.request.client), request)?;
        let (mut numbers, mut handles, mut room) = (Vec::new(), Vec::new(), BULK_BYTES_MAX as u64);
        for (number, found) in reply.found.iter().enumerate() {
            let Ok(found) = found else { continue };
            let (Some(state), Some(_)) = (&found.state, &found.read) else { continue };
            if state.attr.is_inline() && state.attr.size <= room {
                room -= state.attr.size;
                numbers.push(number as u32);
                handles.push(found.handle);
            }
        }
        if numbers.is_empty() {
            return Ok(Step::Answer(reply.to_bytes(), reply.found.len()));
        }
        let (this, read) = (Rc::clone(self), Rc::clone(self).read_stored(handles));
        Ok(self.start_question_with_bulk(peer, header, async move {
            let contents = read.await?;
            // Attributes may be told that no journal has yet.
            if !this.settle().await {
                return Err(Status::Io);
            }
            let (mut found, mut bulk) = (Vec::with_capacity(numbers.len()), BytesMut::new());
            for (number, content) in numbers.into_iter().zip(contents) {
                let Some(content) = content else { continue };
                found.push(FoundContent { number, bytes: content.len() as u32 });
                bulk.extend_from_slice(&content);
            }
            let reply = LookupManyReply { contents: Some(found), ..reply };
            Ok((reply.to_bytes(), Payload::Real(bulk.freeze())))
        }))
    }

    /// The contents of these files as of this call; `None`: it is out.
    fn read_stored(self: Rc<Self>, handles: Vec<Handle>) -> impl Future<Output = Result<Vec<Option<Bytes>>>> + 'static {
        let (ticket, places) = {
            let mut state = self.state.borrow_mut();
            let ticket = state.begin_content_io();
            let places: Vec<Result<ContentPlace>> = handles.iter().map(|handle| state.content(*handle)).collect();
            (ticket, places)
        };
        async move {
            let read = async |place| match place {
                Ok(ContentPlace::Out) => Ok(None),
                Ok(ContentPlace::Here(content)) => Ok(Some(content)),
                Ok(ContentPlace::Stored { block, bytes }) => self.read_blocks(block, bytes).await.map(Some),
                Err(status) => Err(status),
            };
            let contents = join_all(places.into_iter().map(read)).await;
            self.state.borrow_mut().end_content_io(ticket);
            contents.into_iter().collect()
        }
    }

    async fn read_blocks(&self, block: u64, bytes: u64) -> Result<Bytes> {
        let file = self.background.contents.file.get().ok_or(Status::Io)?;
        let data = self.rt.disk().read(file, block * BLOCK_BYTES, bytes).await?;
        if data.len() == bytes { Ok(data.to_bytes()) } else { Err(Status::Io) }
    }

    // ---- The container
    // ---------------------------------------------------------------------------------------------

    /// Writes contents when they are committed, for ever.
    pub(crate) async fn store_flow(self: Rc<Self>) {
        loop {
            let came = self.background.contents.came.wait();
            let waiting = self.state.borrow().contents_waiting(0, WRITES_MAX);
            let (Some(file), false) = (self.background.contents.file.get(), waiting.is_empty()) else {
                came.await;
                continue;
            };
            let ticket = self.state.borrow_mut().begin_content_io();
            if !self.settle().await {
                return;
            }
            let written = write(self.rt.disk(), file, &waiting).await;
            let mut state = self.state.borrow_mut();
            state.end_content_io(ticket);
            if let Err(error) = written {
                drop(state);
                return self.fail(ServerError::Disk("write contents", error));
            }
            state.contents_stored(waiting.iter().map(|content| content.number));
            drop(state);
            self.background.contents.stored.notify();
            if self.shell.has_parked() {
                self.shell.release();
            }
        }
    }

    /// Before a checkpoint counts, which makes the journal of before it go: the contents of these
    /// records are on stable storage.
    ///
    /// # Errors
    /// The disk failed, or the server does.
    pub(crate) async fn contents_are_kept(&self) -> std::result::Result<(), weft_rt::DiskError> {
        let Some(file) = self.background.contents.file.get() else { return Ok(()) };
        let upto = self.state.borrow().next_content();
        loop {
            let stored = self.background.contents.stored.wait();
            if self.state.borrow().first_content_waiting().is_none_or(|number| number >= upto) {
                return self.rt.disk().sync(file).await;
            }
            self.background.contents.came.notify();
            let until = self.rt.now() + SECOND;
            if self.shell.has_failed() {
                return Err(weft_rt::DiskError::Failed("the server has failed".into()));
            }
            weft_rt::race(self.rt.sleep_until(until), stored).await;
        }
    }

    /// Freed blocks come back when the records that freed them are on stable storage.
    async fn release_flow(self: Rc<Self>) {
        while self.state.borrow().has_freed_contents() {
            self.rt.sleep_until(self.rt.now() + FREED_NS).await;
            let freed = self.state.borrow().freed_contents();
            if self.make_all_durable().await.is_err() {
                break;
            }
            self.state.borrow_mut().freed_contents_durable(freed);
        }
        self.background.contents.is_releasing.set(false);
    }

    pub(crate) fn start_growing(self: &Rc<Self>) {
        if !self.background.contents.is_growing.replace(true) {
            let this = Rc::clone(self);
            self.rt.spawn(async move {
                let grown = this.grow().await;
                this.background.contents.is_growing.set(false);
                this.shell.release();
                if grown.is_err() {
                    this.rt.sleep_until(this.rt.now() + FULL_NS).await;
                    let mut state = this.state.borrow_mut();
                    let blocks = state.content_blocks();
                    state.content_blocks_are(blocks, false);
                }
            });
        }
    }

    /// The container becomes larger, and has its space on the disk, so that no content fails for
    /// want of it. The journal and its checkpoints come first where the disk has little left.
    async fn grow(&self) -> Result<()> {
        let blocks = self.state.borrow().content_blocks();
        let grown = self.grow_from(blocks * BLOCK_BYTES).await;
        let now = grown.as_ref().map_or(blocks, |bytes| bytes / BLOCK_BYTES);
        self.state.borrow_mut().content_blocks_are(now, grown.is_err());
        grown.map(drop)
    }

    async fn grow_from(&self, bytes: u64) -> Result<u64> {
        let disk = self.rt.disk();
        let more = bytes.clamp(*GROWTH_BYTES.start(), *GROWTH_BYTES.end());
        let (capacity, free) = disk.space().await?;
        let reserve = (capacity / 16).max(8 * self.config.serving.journal_segment_bytes);
        if free < more + reserve {
            return Err(Status::NoSpace);
        }
        let file = match self.background.contents.file.get() {
            Some(file) => file,
            None => {
                let file = make_container(disk, CONTENTS_NAME, &self.config.serving).await?;
                self.background.contents.file.set(Some(file));
                file
            }
        };
        let from = bytes.max(CONTAINER_HEADER_BYTES as u64);
        disk.allocate(file, from, more).await?;
        disk.sync(file).await?;
        Ok(from + more)
    }
}
