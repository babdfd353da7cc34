//! Space of a range of a file: reserved, zeroed or given back. Servers do it to their datafiles; no
//! data travels. To everybody else it is a write.

use weft_base::{Credentials, DataTime, Status, StripeIndex};
use weft_call::run_window;
use weft_layout::{Distribution, FILE_BYTES_MAX, FileRange, LocalRange, file_end, local_bytes};
use weft_rt::Runtime;
use weft_wire::ops::{ObjectAllocateRequest, ObjectPunchRequest, SetTime};
use weft_wire::{BULK_BYTES_MAX, Rights};

use super::granted::Granted;
use super::write::MESSAGES_MAX;
use crate::flow::Flow;
use crate::{Client, Fallocate, OpenFile, Result, SetAttr};

/// So many bytes of a file are allocated in the time of one operation.
const STEP_BYTES: u64 = 64 << 20;

impl<R: Runtime> Client<R> {
    /// Reserves, zeroes or gives back `bytes` bytes at a byte offset of the file. It is seen and
    /// survives as a write does. `who` does it: of a file of which no data server has anything the
    /// metadata server changes the time, if they may.
    ///
    /// # Errors
    /// As [`Client::write`]; [`Status::Invalid`] for no bytes, [`Status::NoSpace`],
    /// [`Status::NotSupported`] from servers that do not know of it, and for a reservation that
    /// keeps the size and goes beyond the end of the file.
    pub async fn fallocate(&self, who: &Credentials, file: &OpenFile, offset: u64, bytes: u64, how: Fallocate) -> Result<()> {
        let flow = self.flow("fallocate", file.handle());
        let _op = weft_trace::operation(weft_trace::event::CLIENT_OTHER);
        if bytes == 0 {
            return Err(flow.error(Status::Invalid));
        }
        if !file.rights().contains(Rights::WRITE) {
            return Err(flow.error(Status::AccessDenied));
        }
        // Where no file reaches is nothing to be given back.
        let within = FILE_BYTES_MAX.saturating_sub(offset);
        let bytes = if how == Fallocate::Punch { bytes.min(within) } else { bytes };
        let end = file_end(offset, bytes).map_err(|status| flow.error(status))?;
        self.settle_delayed(flow, file.inode()).await?;
        if how == Fallocate::Punch {
            let changed = self.change_range(flow, file, FileRange { offset, bytes }, how).await?;
            return self.note_time(flow, who, file, changed).await;
        }
        let end = self.check_room(flow, file, offset, end, how).await?;
        let (mut at, mut changed) = (offset, DataTime::NONE);
        while at < end {
            let step = STEP_BYTES.min(end - at);
            let flow = self.flow("fallocate", file.handle());
            changed = changed.later(self.change_range(flow, file, FileRange { offset: at, bytes: step }, how).await?);
            at += step;
        }
        self.note_time(self.flow("fallocate", file.handle()), who, file, changed).await
    }

    /// A file is changed also if none of its datafiles was there to be changed.
    async fn note_time(&self, flow: Flow, who: &Credentials, file: &OpenFile, changed: DataTime) -> Result<()> {
        if changed.is_of_a_change() {
            return Ok(());
        }
        let now = SetAttr { mtime: Some(SetTime { at: None }), ..SetAttr::default() };
        match Box::pin(self.setattr_in(flow, who, file.handle(), &now)).await {
            // Whoever has it open for writing need not be allowed that.
            Err(error) if !matches!(error.status, Status::AccessDenied | Status::NotPermitted) => Err(error),
            _ => Ok(()),
        }
    }

    /// Where the range ends that is to be allocated. What cannot end well does not begin.
    async fn check_room(&self, flow: Flow, file: &OpenFile, offset: u64, end: u64, how: Fallocate) -> Result<u64> {
        let (Fallocate::Reserve { keep_size } | Fallocate::Zero { keep_size }) = how else { return Ok(end) };
        if !keep_size && end - offset <= STEP_BYTES {
            return Ok(end);
        }
        let size = self.getattr_in(flow, file.handle()).await?.size;
        match how {
            // Datafiles have no space behind their ends.
            Fallocate::Reserve { keep_size: true } if end > size => Err(flow.error(Status::NotSupported)),
            _ if keep_size => Ok(end.min(size)),
            _ if end.saturating_sub(size.max(offset)) > self.statfs().await?.free_bytes => Err(flow.error(Status::NoSpace)),
            _ => Ok(end),
        }
    }

    async fn change_range(&self, flow: Flow, file: &OpenFile, range: FileRange, how: Fallocate) -> Result<DataTime> {
        let inode = file.inode();
        let parts = parts(self.distribution(flow, inode).await?, range, how);
        let running = inode.begin_write();
        let epoch = running.mtime_epoch;
        let end = range.offset + range.bytes;
        let flows = parts.map(|(index, part)| self.change_part(flow, file, (index, part), (how, epoch), end));
        let times = Box::pin(run_window(flows, MESSAGES_MAX)).await;
        let outcome = times.into_iter().try_fold(DataTime::NONE, |latest, time| Ok(latest.later(time?)));
        let grows = matches!(how, Fallocate::Reserve { keep_size: false } | Fallocate::Zero { keep_size: false });
        if how == Fallocate::Punch {
            inode.changed_holes();
        }
        let written = if grows { &[range][..] } else { &[] };
        inode.end_write(running, written, outcome.as_ref().ok().copied());
        outcome
    }

    async fn change_part(
        &self,
        flow: Flow,
        file: &OpenFile,
        (index, part): (u32, LocalRange),
        how: (Fallocate, u32),
        end: u64,
    ) -> Result<DataTime> {
        let (inode, LocalRange { offset, bytes }) = (file.inode(), part);
        let (handle, (how, mtime_epoch)) = (inode.handle, how);
        let server = self.data_server(flow, &inode.layout, index).await?;
        let reply = self.with_room(flow, inode, end, async |Granted { capability, ceiling }| match how {
            Fallocate::Punch => {
                let request = ObjectPunchRequest { handle, index, capability, offset, bytes, mtime_epoch };
                self.call(flow, server, &request).await
            }
            Fallocate::Reserve { keep_size } | Fallocate::Zero { keep_size } => {
                let zero = matches!(how, Fallocate::Zero { .. });
                let bytes = u32::try_from(bytes).expect("parts are cut to messages");
                let request = ObjectAllocateRequest { handle, index, capability, offset, bytes, zero, keep_size, mtime_epoch, ceiling };
                self.call(flow, server, &request).await
            }
        });
        Ok(reply.await?.mtime)
    }
}

/// What a range of a file is in its datafiles, one message each: a hole is one piece however long
/// it is.
fn parts(distribution: &Distribution, range: FileRange, how: Fallocate) -> impl Iterator<Item = (u32, LocalRange)> {
    let most = if how == Fallocate::Punch { u64::MAX } else { BULK_BYTES_MAX as u64 };
    (0..u32::from(distribution.width())).flat_map(move |index| {
        let local = |bytes| local_bytes(distribution, StripeIndex(index), bytes);
        let (start, end) = (local(range.offset), local(range.offset + range.bytes));
        (0..(end - start).div_ceil(most)).map(move |part| {
            let offset = start + part * most;
            (index, LocalRange { offset, bytes: most.min(end - offset) })
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_one_piece_of_each_datafile() {
        let distribution = Distribution::Stripes { stripe_bytes: 4096, width: 3 };
        let of = |offset, bytes, how| {
            parts(&distribution, FileRange { offset, bytes }, how).map(|(index, part)| (index, part.offset, part.bytes)).collect::<Vec<_>>()
        };
        assert_eq!(of(100, 50, Fallocate::Punch), [(0, 100, 50)]);
        assert_eq!(of(4000, 12_288, Fallocate::Punch), [(0, 4000, 4096), (1, 0, 4096), (2, 0, 4096)]);
        let whole = of(0, i64::MAX as u64, Fallocate::Punch);
        assert_eq!((whole.len(), whole.iter().map(|part| part.2).sum::<u64>()), (3, i64::MAX as u64));
        let reserved = of(0, 64 << 20, Fallocate::Reserve { keep_size: false });
        assert!(reserved.iter().all(|(_, _, bytes)| *bytes <= BULK_BYTES_MAX as u64));
        assert_eq!(reserved.iter().map(|part| part.2).sum::<u64>(), 64 << 20);
    }
}
