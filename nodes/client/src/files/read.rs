//! Reading, and where a file ends.
//!
//! A datafile knows only its own end. A byte that it does not have is either beyond the end of the
//! file or in a hole, and only the size tells which. The rule that keeps answers exact while others
//! write and truncate: a missing byte counts as a hole only if the size that covers it was known
//! *before* the data was asked for and no truncation came between; the end of the file is where the
//! size says that was asked for *during* this read. So a read inside the known size whose bytes all
//! exist costs one message for each datafile; a read that reaches the end, or meets a hole, costs
//! one more, to the metadata server and in parallel where possible.

use std::ops::Range;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use weft_base::{Payload, Status, StripeIndex};
use weft_call::{both, run_window};
use weft_layout::{DatafileList, FILE_BYTES_MAX, FileRange, split};
use weft_rt::Runtime;
use weft_wire::ops::{ReadInlineRequest, ReadReply, ReadRequest};
use weft_wire::{BULK_BYTES_MAX, Rights};

use super::open_inode::{KnownSize, OpenInode};
use super::write::{MESSAGES_MAX, PIECES_MAX, SLICES_MAX, pieces_of};
use crate::flow::Flow;
use crate::{Client, OpenFile, Result};

/// How often a read begins again because of a truncation or of growth during it.
const READ_TRIES: usize = 16;

/// What holes are made of.
static ZEROS: [u8; 1 << 16] = [0; 1 << 16];

/// A part of the caller's buffer: data, or missing.
#[derive(Debug)]
struct Part {
    start: u64,
    bytes: u64,
    data: Option<Payload>,
}

impl OpenInode {
    /// True if its bytes may be on the server of its inode.
    pub(super) fn is_inline(&self) -> bool {
        self.is_inline.load(Ordering::Acquire)
    }
}

impl<R: Runtime> Client<R> {
    /// Reads up to `len` bytes at a byte offset: pieces in the order of the file, holes as zeros,
    /// fewer bytes only at the end of the file.
    ///
    /// # Errors
    /// [`Status::AccessDenied`] if the file is not open for reading, [`Status::Stale`] if it is
    /// gone, servers that do not answer.
    pub async fn read(&self, file: &OpenFile, offset: u64, len: u64) -> Result<Vec<Payload>> {
        let mut results = self.read_list(file, &[(offset, len)]).await?;
        Ok(results.pop().expect("one result for one range"))
    }

    /// Reads many ranges (byte offset, number of bytes) of a file, in the order of their offsets
    /// and without overlaps. One result for each, as from [`Client::read`].
    ///
    /// # Errors
    /// As [`Client::read`]; [`Status::Invalid`] if ranges overlap or are out of order.
    pub async fn read_list(&self, file: &OpenFile, ranges: &[(u64, u64)]) -> Result<Vec<Vec<Payload>>> {
        let flow = self.flow("read", file.handle());
        let mut op = weft_trace::operation(weft_trace::event::CLIENT_READ);
        op.range(ranges.first().map_or(0, |range| range.0), ranges.iter().fold(0, |sum, range| range.1.saturating_add(sum)));
        if !file.rights().contains(Rights::READ) {
            return Err(flow.error(Status::AccessDenied));
        }
        let ranges: Vec<FileRange> = ranges
            .iter()
            .map(|(offset, bytes)| {
                let offset = (*offset).min(FILE_BYTES_MAX);
                FileRange { offset, bytes: (*bytes).min(FILE_BYTES_MAX - offset) }
            })
            .collect();
        let end = ranges.iter().filter(|range| range.bytes > 0).map(|range| range.offset + range.bytes).max().unwrap_or(0);
        let inode = file.inode();
        if let Some(read) = inode.read_delayed(&ranges) {
            return Ok(read);
        }
        if let Some(content) = self.read_inline(flow, inode).await? {
            return Ok(ranges.iter().map(|range| cut_out(content.len(), range, |part| content.slice(part))).collect());
        }
        let distribution = self.distribution(flow, inode).await?;
        let mut known = inode.known_size();
        // True once this read has learned the size.
        let mut size_is_exact = false;
        for _ in 0..READ_TRIES {
            let clamped: Vec<FileRange> = ranges.iter().map(|range| clamp(range, known.bytes)).collect();
            let lists = split(distribution, &clamped).map_err(|status| flow.error(status))?;
            let (parts, size) = if end > known.bytes && !size_is_exact {
                let (parts, size) = Box::pin(both(self.read_messages(flow, inode, lists), self.size_now(flow, inode))).await;
                (parts?, Some(size?))
            } else {
                let parts = self.read_messages(flow, inode, lists).await?;
                // What reads as a hole may have been cut off.
                let may_be_cut = parts.iter().any(|part| part.data.is_none());
                (parts, if may_be_cut { Some(Box::pin(self.size_now(flow, inode)).await?) } else { None })
            };
            match size {
                Some(size) if size.epoch != known.epoch || (size.bytes > known.bytes && end > known.bytes && !size_is_exact) => {
                    size_is_exact = true;
                    known = size;
                }
                _ => return Ok(assemble(parts, &clamped)),
            }
        }
        Err(flow.error(Status::Busy))
    }

    /// All bytes of a file that are with this client, or on the server of its inode, at this
    /// moment; `None`: they are to be asked of data servers.
    pub(super) async fn read_inline(&self, flow: Flow, inode: &OpenInode) -> Result<Option<Bytes>> {
        if let Some(content) = inode.delayed_content() {
            return Ok(Some(content));
        }
        let outcome = if inode.is_partly_here() { self.bring_what_is_here(flow, inode).await } else { Ok(()) };
        match outcome {
            Err(error) if inode.is_delayed() => return Err(error),
            // Whoever writes hears of a loss.
            _ => {}
        }
        if let Some(content) = self.read_beside(flow, inode).await {
            return Ok(Some(content));
        }
        if !inode.is_inline() {
            return Ok(None);
        }
        Box::pin(async {
            if let Some(content) = self.announce_to_read(flow, inode).await? {
                return Ok(Some(content));
            }
            let server = self.owner(flow, inode.handle).await?;
            let reply = self.with_capability(flow, inode, Rights::READ, async |capability| {
                self.call(flow, server, &ReadInlineRequest { capability }).await
            });
            let content = reply.await?.content;
            if content.is_none() {
                inode.is_inline.store(false, Ordering::Release);
            }
            Ok(content)
        })
        .await
    }

    async fn size_now(&self, flow: Flow, inode: &OpenInode) -> Result<KnownSize> {
        let attr = self.getattr_in(flow, inode.handle).await?;
        Ok(KnownSize { bytes: attr.size, epoch: attr.truncate_epoch })
    }

    /// Parts of the buffer in its order.
    async fn read_messages(&self, flow: Flow, inode: &OpenInode, lists: Vec<DatafileList>) -> Result<Vec<Part>> {
        let messages: Vec<_> = lists.into_iter().flat_map(|list| list.cut(BULK_BYTES_MAX as u64, PIECES_MAX, SLICES_MAX)).collect();
        if messages.is_empty() {
            return Ok(Vec::new());
        }
        if let [only] = messages.as_slice() {
            return self.read_message(flow, inode, only).await;
        }
        let flows = messages.iter().map(|list| self.read_message(flow, inode, list));
        let mut parts = Vec::with_capacity(messages.len());
        for message in Box::pin(run_window(flows, MESSAGES_MAX)).await {
            parts.extend(message?);
        }
        parts.sort_unstable_by_key(|part| part.start);
        Ok(parts)
    }

    async fn read_message(&self, flow: Flow, inode: &OpenInode, list: &DatafileList) -> Result<Vec<Part>> {
        let StripeIndex(index) = list.index;
        let server = self.data_server(flow, &inode.layout, index).await?;
        let expected = list.ranges.iter().map(|range| range.bytes).sum();
        let (reply, bulk) = self
            .with_capability(flow, inode, Rights::READ, async |capability| {
                let request = ReadRequest { handle: inode.handle, index, capability, pieces: pieces_of(list) };
                self.call_with_bulk(flow, server, &request, weft_rt::Bulk::Expected(expected)).await
            })
            .await?;
        scatter(list, &reply, &bulk).ok_or(flow.error_at(Status::BadMessage, server))
    }
}

/// What of a content of so many bytes lies in a range.
pub(super) fn cut_out(len: usize, range: &FileRange, part: impl FnOnce(Range<usize>) -> Bytes) -> Vec<Payload> {
    let FileRange { offset, bytes } = clamp(range, (len as u64).max(range.offset));
    if bytes == 0 { Vec::new() } else { vec![Payload::Real(part(offset as usize..(offset + bytes) as usize))] }
}

/// The part of a range below the end of the file.
fn clamp(range: &FileRange, size: u64) -> FileRange {
    FileRange { offset: range.offset, bytes: range.bytes.min(size.saturating_sub(range.offset)) }
}

/// Distributes the reply of one datafile over the buffer. `None` if the reply does not fit the
/// request.
fn scatter(list: &DatafileList, reply: &ReadReply, bulk: &Payload) -> Option<Vec<Part>> {
    let fits = reply.got.len() == list.ranges.len()
        && reply.got.iter().zip(&list.ranges).all(|(got, range)| u64::from(*got) <= range.bytes)
        && reply.got.iter().map(|got| u64::from(*got)).sum::<u64>() == bulk.len();
    if !fits {
        return None;
    }
    let mut parts = Vec::with_capacity(list.slices.len());
    let mut slices = list.slices.iter().copied();
    let mut slice = slices.next()?;
    let mut at = 0;
    for (got, range) in reply.got.iter().zip(&list.ranges) {
        let (mut there, mut left) = (u64::from(*got), range.bytes);
        while left > 0 {
            if slice.bytes == 0 {
                slice = slices.next()?;
            }
            let bytes = slice.bytes.min(if there > 0 { there } else { left });
            let data = (there > 0).then(|| bulk.slice(at, bytes));
            if there > 0 {
                at += bytes;
                there -= bytes;
            }
            parts.push(Part { start: slice.start, bytes, data });
            slice.start += bytes;
            slice.bytes -= bytes;
            left -= bytes;
        }
    }
    Some(parts)
}

/// Gives every range its bytes. The parts are in the order of the buffer and cover it.
fn assemble(parts: Vec<Part>, ranges: &[FileRange]) -> Vec<Vec<Payload>> {
    let mut parts = parts.into_iter();
    let mut part = Part { start: 0, bytes: 0, data: None };
    let mut results = Vec::with_capacity(ranges.len());
    for range in ranges {
        let (mut pieces, mut left) = (Vec::new(), range.bytes);
        while left > 0 {
            if part.bytes == 0 {
                part = parts.next().expect("the parts cover the ranges");
            }
            let bytes = part.bytes.min(left);
            match &part.data {
                Some(data) if bytes == part.bytes => pieces.push(data.clone()),
                Some(data) => {
                    pieces.push(data.slice(0, bytes));
                    part.data = Some(data.slice(bytes, part.bytes - bytes));
                }
                None => push_zeros(&mut pieces, bytes),
            }
            part.bytes -= bytes;
            left -= bytes;
        }
        results.push(pieces);
    }
    results
}

fn push_zeros(pieces: &mut Vec<Payload>, mut bytes: u64) {
    while bytes > 0 {
        let some = bytes.min(ZEROS.len() as u64);
        pieces.push(Payload::Real(Bytes::from_static(&ZEROS[..some as usize])));
        bytes -= some;
    }
}
