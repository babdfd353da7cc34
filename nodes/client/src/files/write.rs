//! Writing: the ranges of one call are distributed over the datafiles, and every datafile gets its
//! part in one message (more if it is large), all in parallel. The caller's bytes are passed on by
//! reference.

use weft_base::{DataTime, Status, StripeIndex};
use weft_call::run_window;
use weft_layout::{BufferSlice, DatafileList, FileRange, file_end, split};
use weft_rt::{Bulk, Runtime};
use weft_wire::ops::{Piece, WriteRequest};
use weft_wire::{BULK_BYTES_MAX, Rights};

use super::delayed::Taken;
use super::granted::Granted;
use super::open_inode::OpenInode;
use crate::flow::Flow;
use crate::{Client, OpenFile, Result};

/// Most pieces in one message.
pub(crate) const PIECES_MAX: usize = 1024;
/// Most slices of the caller's memory in one message.
pub(crate) const SLICES_MAX: usize = 1024;
/// Most bytes in one message of a write that only one server takes part in. Half a mebibyte lets
/// the server write the first half of a FUSE request while the second is on its way, which took 15
/// % off its time; quarters cost what they won. Several servers work at the same time anyhow.
const LONE_BYTES: u64 = 512 << 10;
/// Most messages of one call in flight; with 8 MiB in each this bounds what waits in queues.
pub(crate) const MESSAGES_MAX: usize = 32;

/// How the messages of one write are made.
#[derive(Clone, Copy)]
pub(super) struct How {
    pub(super) mtime_epoch: u32,
    pub(super) sync: bool,
    /// Where it ends in the file.
    pub(super) end: u64,
}

impl<R: Runtime> Client<R> {
    /// Writes `data` at a byte offset of the file. It is visible to everybody when this returns: at
    /// its data servers, or, of a file that may be delayed ([`crate::CreateOptions`],
    /// [`crate::OpenWith`]), with this client, which brings it when others ask. It is on stable
    /// storage as the durability of the file system says, at the latest after [`Client::fsync`].
    ///
    /// # Errors
    /// [`Status::AccessDenied`] if the file is not open for writing, [`Status::FileTooBig`],
    /// [`Status::NoSpace`], [`Status::QuotaExceeded`], servers that do not answer. Parts of the
    /// data may then have been written.
    pub async fn write(&self, file: &OpenFile, offset: u64, data: Bulk<'_>) -> Result<()> {
        let bytes = data.len();
        self.write_list(file, &[(offset, bytes)], data).await
    }

    /// Like [`Client::write`], and when it returns, the data is on stable storage, and what is
    /// needed to find it (its size); without `data_only` all attributes, too: what `O_DSYNC` and
    /// `O_SYNC` mean.
    ///
    /// # Errors
    /// As [`Client::write`] and [`Client::fsync`].
    pub async fn write_synced(&self, file: &OpenFile, offset: u64, data: Bulk<'_>, data_only: bool) -> Result<()> {
        let flow = self.flow("write", file.handle());
        let mut op = weft_trace::operation(weft_trace::event::CLIENT_WRITE);
        op.range(offset, data.len());
        self.write_in(flow, file, &[(offset, data.len())], data, true).await?;
        self.sync_attributes(flow, file.inode(), data_only).await
    }

    /// Writes many ranges (byte offset, number of bytes) of a file, in the order of their offsets
    /// and without overlaps; `data` holds their bytes one after another.
    ///
    /// # Errors
    /// As [`Client::write`]; [`Status::Invalid`] if ranges overlap or are out of order, or if
    /// `data` is not as long as they are.
    pub async fn write_list(&self, file: &OpenFile, ranges: &[(u64, u64)], data: Bulk<'_>) -> Result<()> {
        let flow = self.flow("write", file.handle());
        let mut op = weft_trace::operation(weft_trace::event::CLIENT_WRITE);
        op.range(ranges.first().map_or(0, |range| range.0), data.len());
        self.write_in(flow, file, ranges, data, false).await
    }

    async fn write_in(&self, flow: Flow, file: &OpenFile, ranges: &[(u64, u64)], data: Bulk<'_>, sync: bool) -> Result<()> {
        let ranges: Vec<FileRange> = ranges.iter().map(|(offset, bytes)| FileRange { offset: *offset, bytes: *bytes }).collect();
        if ranges.iter().try_fold(0u64, |sum, range| sum.checked_add(range.bytes)) != Some(data.len()) {
            return Err(flow.error(Status::Invalid));
        }
        if !file.rights().contains(Rights::WRITE) {
            return Err(flow.error(Status::AccessDenied));
        }
        let inode = file.inode();
        let taken = self.delay_write(flow, inode, &ranges, &data, sync).await?;
        let _turn = match taken {
            Taken::Here => return Ok(()),
            Taken::Through => Some(inode.leaves.enter().await),
            _ => None,
        };
        let lists = split(self.distribution(flow, file.inode()).await?, &ranges).map_err(|status| flow.error(status))?;
        let Some(last) = ranges.iter().rfind(|range| range.bytes > 0) else { return Ok(()) };
        file_end(last.offset, last.bytes).map_err(|status| flow.error(status))?;
        let running = inode.begin_write();
        if running.is_further {
            self.inner.gathered.again.came();
        }
        let how = How { mtime_epoch: running.mtime_epoch, sync, end: last.offset + last.bytes };
        let outcome = self.write_messages(flow, inode, lists, &data, how).await;
        inode.end_write(running, &ranges, outcome.as_ref().ok().copied());
        if taken == Taken::Through && outcome.is_ok() {
            inode.went_through(how.end, self.rt().now());
        }
        outcome.map(drop)
    }

    /// Keeps a write here if it can be delayed; if not, nothing is any more, or what goes through
    /// goes on where data servers end.
    async fn delay_write(&self, flow: Flow, inode: &OpenInode, ranges: &[FileRange], data: &Bulk<'_>, sync: bool) -> Result<Taken> {
        if sync {
            self.settle_delayed(flow, inode).await?;
        }
        loop {
            self.settle_before_silence(flow, inode).await?;
            match inode.take_write(ranges, data, self.rt().now()) {
                taken @ (Taken::Here | Taken::Through) => return Ok(taken),
                taken @ Taken::No => return self.tell_of_loss(flow, inode).map(|()| taken),
                Taken::Full => self.send_more(flow, inode).await?,
                Taken::TooMuch => self.settle_delayed(flow, inode).await?,
            }
        }
    }

    pub(super) async fn write_messages(
        &self,
        flow: Flow,
        inode: &OpenInode,
        lists: Vec<DatafileList>,
        data: &Bulk<'_>,
        how: How,
    ) -> Result<DataTime> {
        let bytes_max = if lists.len() == 1 { LONE_BYTES } else { BULK_BYTES_MAX as u64 };
        let mut messages = lists.into_iter().flat_map(|list| list.cut(bytes_max, PIECES_MAX, SLICES_MAX));
        let (Some(first), second) = (messages.next(), messages.next()) else { return Ok(DataTime::NONE) };
        let Some(second) = second else { return self.write_message(flow, inode, first, data, how).await };
        let all = [first, second].into_iter().chain(messages);
        let flows = all.map(|list| self.write_message(flow, inode, list, data, how));
        let times = Box::pin(run_window(flows, MESSAGES_MAX)).await;
        times.into_iter().try_fold(DataTime::NONE, |latest, time| Ok(latest.later(time?)))
    }

    async fn write_message(&self, flow: Flow, inode: &OpenInode, list: DatafileList, data: &Bulk<'_>, how: How) -> Result<DataTime> {
        let StripeIndex(index) = list.index;
        let How { mtime_epoch, sync, end } = how;
        let server = self.data_server(flow, &inode.layout, index).await?;
        let bulk = cut_bulk(data, &list.slices);
        let pieces = pieces_of(&list);
        let reply = self.with_room(flow, inode, end, async |Granted { capability, ceiling }| {
            let request = WriteRequest { handle: inode.handle, index, capability, pieces: pieces.clone(), mtime_epoch, sync, ceiling };
            self.call_with_bulk(flow, server, &request, bulk.clone()).await
        });
        let reply = reply.await;
        match &reply {
            Ok((reply, _)) => self.inner.gathered.told(reply.has_plenty == Some(true), self.rt().now()),
            Err(error) if error.status == Status::NoSpace => self.inner.gathered.told(false, self.rt().now()),
            Err(_) => {}
        }
        Ok(reply?.0.mtime)
    }
}

/// The pieces of a message.
pub(crate) fn pieces_of(list: &DatafileList) -> Vec<Piece> {
    list.ranges
        .iter()
        .map(|range| Piece { offset: range.offset, bytes: u32::try_from(range.bytes).expect("a message has at most 8 MiB") })
        .collect()
}

/// The parts of `data` at `slices`, which are ordered and inside, by reference.
fn cut_bulk<'a>(data: &Bulk<'a>, slices: &[BufferSlice]) -> Bulk<'a> {
    let whole = match data {
        Bulk::None | Bulk::Expected(_) => return Bulk::None,
        Bulk::Synthetic { tag, .. } => return Bulk::Synthetic { len: slices.iter().map(|slice| slice.bytes).sum(), tag: *tag },
        Bulk::Slices(whole) => whole,
    };
    let mut parts = Vec::with_capacity(slices.len());
    let mut pieces = whole.iter();
    let mut piece: &'a [u8] = &[];
    // Where `piece` begins in the whole.
    let mut at = 0;
    for slice in slices {
        let (mut start, mut bytes) = (slice.start, slice.bytes);
        while bytes > 0 {
            while start >= at + piece.len() as u64 {
                at += piece.len() as u64;
                piece = pieces.next().expect("slices are inside the data");
            }
            let skip = (start - at) as usize;
            let taken = bytes.min((piece.len() - skip) as u64);
            parts.push(&piece[skip..skip + taken as usize]);
            start += taken;
            bytes -= taken;
        }
    }
    Bulk::Slices(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cut_bulk_takes_the_named_bytes_whatever_the_pieces_of_memory() {
        let bytes: Vec<u8> = (0..100).collect();
        let slices = [BufferSlice { start: 3, bytes: 20 }, BufferSlice { start: 40, bytes: 1 }, BufferSlice { start: 41, bytes: 50 }];
        let expected: Vec<u8> = slices.iter().flat_map(|s| bytes[s.start as usize..(s.start + s.bytes) as usize].to_vec()).collect();
        for piece_bytes in [1, 7, 33, 100] {
            let data = Bulk::Slices(bytes.chunks(piece_bytes).collect());
            let Bulk::Slices(parts) = cut_bulk(&data, &slices) else { panic!("real data stays real") };
            assert_eq!(parts.concat(), expected);
        }
        let synthetic = cut_bulk(&Bulk::Synthetic { len: 100, tag: 9 }, &slices);
        assert!(matches!(synthetic, Bulk::Synthetic { len: 71, tag: 9 }));
    }
}
