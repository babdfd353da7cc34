//! Whole contents of small files that lie on the server of their inodes, each in one run of blocks
//! of a container. Whole they come and whole they go: who wants to write to such a file has all of
//! it moved to data servers first, and there it stays.
//!
//! The record that gives a file a content carries the bytes. So a content is exactly as safe as its
//! inode, and the node may write it to the container whenever it likes; until then it *waits* in
//! memory. A run whose file has lost it rests in quarantine until the record that freed it is on
//! stable storage, and until nobody reads or writes it any more. After a replay what waits is what
//! the journal holds of the contents that are still there: written once more, they are right.

use std::collections::BTreeMap;

use bytes::Bytes;
use weft_base::{FastMap, Handle, Result, Status};
use weft_store::objects::{BLOCK_BYTES, BlockRun, CONTAINER_HEADER_BYTES, IoTicket, QuarantineMark, SpaceAllocator};

use crate::State;

/// Blocks of a container before its first content.
const HEADER_BLOCKS: u64 = CONTAINER_HEADER_BYTES as u64 / BLOCK_BYTES;
/// Contents wait for the container in so many bytes of memory at most.
const WAITING_BYTES_MAX: usize = 16 << 20;
/// The largest content takes so many blocks.
const BLOCKS_MAX: u64 = weft_layout::INLINE_BYTES_MAX as u64 / BLOCK_BYTES;

/// See above.
#[derive(Debug, Default)]
pub(crate) struct Contents {
    /// `None` during a replay, and with an engine that keeps no contents.
    space: Option<SpaceAllocator>,
    /// Contents that are not in the container, in the order in which they came.
    waiting: BTreeMap<u64, WaitingContent>,
    numbers: FastMap<Handle, u64>,
    next: u64,
    bytes: usize,
    /// The container cannot grow now.
    is_full: bool,
}

/// A content that is to be written to the container.
#[derive(Clone, Debug)]
pub struct WaitingContent {
    /// Orders contents as they came.
    pub number: u64,
    /// The file.
    pub handle: Handle,
    /// Its blocks.
    pub run: BlockRun,
    /// Its bytes.
    pub bytes: Bytes,
}

/// Where the content of a file is.
#[derive(Debug, PartialEq, Eq)]
pub enum ContentPlace {
    /// At data servers, for ever.
    Out,
    /// In memory.
    Here(Bytes),
    /// In the container: so many bytes from the beginning of a block on.
    Stored {
        /// The first block.
        block: u64,
        /// Number of bytes.
        bytes: u64,
    },
}

/// Whether there is room for a content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ContentRoom {
    /// It takes this block and those behind it; without bytes it takes none.
    At(u64),
    /// There will be when the container has grown, or what waits is written.
    Soon,
    /// There is none.
    None,
}

pub(crate) fn run_of(block: u64, bytes: u64) -> Option<BlockRun> {
    let blocks = bytes.div_ceil(BLOCK_BYTES);
    (blocks > 0).then_some(BlockRun { start: block, blocks })
}

impl Contents {
    /// The run of a file has become another one.
    pub(crate) fn moved(&mut self, handle: Handle, had: Option<BlockRun>, has: Option<BlockRun>) {
        if let Some(number) = self.numbers.remove(&handle) {
            self.forget(number);
        }
        if let Some(space) = &mut self.space {
            // In this order: what is freed is not taken at once.
            has.into_iter().for_each(|run| space.take_run(run));
            had.into_iter().for_each(|run| space.free(run));
        }
    }

    /// A file has been given this content, in this run.
    pub(crate) fn put(&mut self, handle: Handle, run: BlockRun, bytes: Bytes) {
        if let Some(number) = self.numbers.remove(&handle) {
            self.forget(number);
        }
        let number = self.next;
        self.next += 1;
        self.bytes += bytes.len();
        self.numbers.insert(handle, number);
        self.waiting.insert(number, WaitingContent { number, handle, run, bytes });
    }

    fn forget(&mut self, number: u64) {
        if let Some(waiting) = self.waiting.remove(&number) {
            self.bytes -= waiting.bytes.len();
        }
    }

    pub(crate) fn room(&self, bytes: usize) -> ContentRoom {
        let Some(space) = &self.space else { return ContentRoom::None };
        let blocks = (bytes as u64).div_ceil(BLOCK_BYTES);
        if self.bytes + bytes > WAITING_BYTES_MAX {
            return ContentRoom::Soon;
        }
        match (blocks, space.place(blocks.max(1))) {
            (0, _) => ContentRoom::At(0),
            (_, Some(run)) => ContentRoom::At(run.start),
            (_, None) if self.is_full => ContentRoom::None,
            (_, None) => ContentRoom::Soon,
        }
    }

    /// True if there is room for so many contents, whatever their sizes.
    pub(crate) fn has_room_for(&self, contents: u64) -> bool {
        let Some(space) = &self.space else { return false };
        space.available_blocks() >= contents * BLOCKS_MAX && space.place(BLOCKS_MAX).is_some()
    }

    fn waiting(&self, handle: Handle) -> Option<&WaitingContent> {
        self.waiting.get(self.numbers.get(&handle)?)
    }
}

impl State {
    /// After a replay, of an engine that keeps contents: which blocks are free follows from the
    /// inodes. The container has so many blocks.
    ///
    /// # Errors
    /// A file of which a block is not its own.
    pub fn keep_contents(&mut self, blocks: u64) -> std::result::Result<(), Handle> {
        let runs = self.inodes.from(Handle(0)).filter_map(|(handle, inode)| Some((inode.content_run()?, handle)));
        let mut used: Vec<(BlockRun, Handle)> = runs.collect();
        used.sort_unstable();
        if let Some((_, handle)) = used.last().filter(|(run, _)| run.end() > blocks) {
            return Err(*handle);
        }
        let space = SpaceAllocator::with_used(HEADER_BLOCKS, blocks, used.iter().map(|(run, _)| *run));
        let owner = |run: BlockRun| used.iter().rev().find(|(other, _)| *other == run).map_or(Handle(0), |(_, handle)| *handle);
        self.contents_mut().space = Some(space.map_err(owner)?);
        Ok(())
    }

    /// Where the content of a file is now.
    ///
    /// # Errors
    /// As [`State::inode`].
    pub fn content(&self, handle: Handle) -> Result<ContentPlace> {
        let inode = self.inode(handle)?;
        if !inode.is_inline() {
            return Ok(ContentPlace::Out);
        }
        let Some(run) = inode.content_run() else { return Ok(ContentPlace::Here(Bytes::new())) };
        match self.contents().waiting(handle) {
            Some(waiting) => Ok(ContentPlace::Here(waiting.bytes.clone())),
            None if self.contents().space.is_none() => Err(Status::Io),
            None => Ok(ContentPlace::Stored { block: run.start, bytes: inode.size }),
        }
    }

    /// The next contents that are to be written, at most `max`, from this number on.
    pub fn contents_waiting(&self, from: u64, max: usize) -> Vec<WaitingContent> {
        self.contents().waiting.range(from..).take(max).map(|(_, waiting)| waiting.clone()).collect()
    }

    /// The number of the first content that waits.
    pub fn first_content_waiting(&self) -> Option<u64> {
        self.contents().waiting.keys().next().copied()
    }

    /// The number of the next content that comes.
    pub fn next_content(&self) -> u64 {
        self.contents().next
    }

    /// These contents are in the container, if they are still those of their files.
    pub fn contents_stored(&mut self, numbers: impl IntoIterator<Item = u64>) {
        for number in numbers {
            if let Some(WaitingContent { handle, .. }) = self.contents().waiting.get(&number) {
                let handle = *handle;
                self.contents_mut().numbers.remove(&handle);
                self.contents_mut().forget(number);
            }
        }
    }

    /// Whoever reads or writes contents on the disk holds a ticket from before he has looked where
    /// they are; their blocks get no other content before it is given back.
    pub fn begin_content_io(&mut self) -> Option<IoTicket> {
        self.contents_mut().space.as_mut().map(SpaceAllocator::begin_io)
    }

    /// See [`State::begin_content_io`].
    pub fn end_content_io(&mut self, ticket: Option<IoTicket>) {
        if let (Some(space), Some(ticket)) = (&mut self.contents_mut().space, ticket) {
            space.end_io(ticket);
        }
    }

    /// To be asked before records are brought to stable storage: what they free.
    pub fn freed_contents(&self) -> Option<QuarantineMark> {
        self.contents().space.as_ref().map(SpaceAllocator::quarantine_mark)
    }

    /// Records that freed this are on stable storage.
    pub fn freed_contents_durable(&mut self, mark: Option<QuarantineMark>) {
        if let (Some(space), Some(mark)) = (&mut self.contents_mut().space, mark) {
            space.release_quarantine(mark);
        }
    }

    /// True if blocks have been freed that cannot be used yet.
    pub fn has_freed_contents(&self) -> bool {
        self.contents().space.as_ref().is_some_and(|space| space.quarantined_blocks() > 0)
    }

    /// True if the container should grow before the next content comes; `has_none`: there is none
    /// yet, and it is made when the first content comes.
    pub fn lacks_content_room(&self, has_none: bool) -> bool {
        let low = |space: &SpaceAllocator| space.place(if has_none { 1 } else { 16 * BLOCKS_MAX }).is_none();
        !self.contents().is_full && self.contents().space.as_ref().is_some_and(low)
    }

    /// True if the container may be able to grow now; there is one, or will be.
    pub fn may_grow_contents(&self) -> bool {
        self.contents().space.is_some() && !self.contents().is_full
    }

    /// Blocks that the container has.
    pub fn content_blocks(&self) -> u64 {
        self.contents().space.as_ref().map_or(0, SpaceAllocator::capacity_blocks)
    }

    /// Bytes that contents take in the container, and free bytes in it.
    pub fn content_usage(&self) -> (u64, u64) {
        let Some(space) = &self.contents().space else { return (0, 0) };
        let free = space.available_blocks();
        let used = space.capacity_blocks().saturating_sub(HEADER_BLOCKS + free);
        (used * BLOCK_BYTES, free * BLOCK_BYTES)
    }

    /// The container has so many blocks now; `is_full`: it cannot grow for a while.
    pub fn content_blocks_are(&mut self, blocks: u64, is_full: bool) {
        self.contents_mut().is_full = is_full;
        if let Some(space) = &mut self.contents_mut().space {
            space.set_capacity(blocks);
        }
    }
}
