//! Changes: what the journal says has changed behind a cursor. Only what survives a power cut is
//! told, so a cursor never names what was lost.

use std::rc::Rc;

use bytes::Bytes;
use weft_base::{MILLISECOND, Nanos, Payload, Result, Status};
use weft_journal::{JournalError, Lsn, ReadPlace};
use weft_namespace::{Record, told};
use weft_rt::{PeerId, ServerRuntime};
use weft_wire::ops::{CHANGES_WAIT_MS_MAX, ChangeCursor, ChangesReply, ChangesRequest};
use weft_wire::{Frame, Header, Wire};

use crate::engine::Engine;
use crate::server::Server;
use crate::step::Step;

/// How often somebody who waits looks for something new, in nanoseconds. Each look that finds
/// something costs a flush, if it was not flushed yet.
const LOOK_NS: u64 = 50 * MILLISECOND;
/// Encoded size of a change without its names, in bytes, about.
const CHANGE_BYTES: usize = 64;
/// No answer is much larger than this, in bytes: one record has a few hundred changes at most.
const REPLY_BYTES: usize = 256 << 10;
/// Requests that are looked after at the same time.
const WATCHERS_MAX: u32 = 64;

impl<R: ServerRuntime, E: Engine> Server<R, E> {
    /// Answers when there is something, or when the client wants no longer wait. As waiting for
    /// notices this is no work of the server in dashboards.
    pub(crate) fn changes(self: &Rc<Self>, peer: PeerId, header: &Header, request: &ChangesRequest) -> Result<Step> {
        if self.engine.journal().is_none() {
            return Err(Status::NotSupported);
        }
        let watchers = &self.background.watchers;
        if watchers.get() >= WATCHERS_MAX {
            return Err(Status::Overloaded);
        }
        watchers.set(watchers.get() + 1);
        if let Some(served) = self.current.borrow_mut().take() {
            served.forget();
        }
        let until = self.rt.now() + u64::from(request.wait_ms.min(CHANGES_WAIT_MS_MAX)) * MILLISECOND;
        let (this, header, after) = (Rc::clone(self), *header, request.after);
        self.rt.spawn(async move {
            let result = this.wait_for_changes(after, until).await;
            this.background.watchers.set(this.background.watchers.get() - 1);
            this.shell.reply(peer, Frame::reply(&header, result, Payload::EMPTY));
        });
        Ok(Step::Later)
    }

    async fn wait_for_changes(&self, after: ChangeCursor, until: Nanos) -> Result<Bytes> {
        let journal = self.engine.journal().ok_or(Status::NotSupported)?.clone();
        let failed = |error: JournalError| match error {
            JournalError::NoSpace => Status::NoSpace,
            _ => Status::Io,
        };
        let log = self.shell.introduction.birth();
        let mut reply = ChangesReply { until: after, lost: false, more: false, changes: Vec::new() };
        if after.log != log || after.lsn > journal.durable_lsn().0 {
            let synced = journal.sync_through(journal.written_lsn()).await;
            synced.map_err(failed)?;
            // A cursor of another life of this server, or of none.
            reply.lost = after.log != 0;
            reply.until = ChangeCursor { log, lsn: journal.durable_lsn().0, segment: 0, offset: 0 };
            return Ok(reply.to_bytes());
        }
        loop {
            let written = journal.written_lsn();
            if written.0 > reply.until.lsn {
                journal.sync_through(written).await.map_err(failed)?;
                let ChangeCursor { lsn, segment, offset, .. } = reply.until;
                let place = ReadPlace { sequence: segment, offset };
                let Some(followed) = journal.follow(Lsn(lsn), place).await.map_err(failed)? else {
                    reply.lost = true;
                    reply.until = ChangeCursor { log, lsn: journal.durable_lsn().0, segment: 0, offset: 0 };
                    return Ok(reply.to_bytes());
                };
                let (mut bytes, mut known) = (0, followed.until);
                for (lsn, record) in followed.records {
                    let changes = told(&Record::decode(record)?.changes);
                    bytes += changes.iter().map(|change| CHANGE_BYTES + change.name.len() + change.to_name.len()).sum::<usize>();
                    reply.changes.extend(changes);
                    if bytes > REPLY_BYTES {
                        known = lsn;
                        break;
                    }
                }
                // The next record of a frame that was not told to its end is behind the old place.
                let place = if known == followed.until { followed.place } else { place };
                reply.until = ChangeCursor { log, lsn: known.0, segment: place.sequence, offset: place.offset };
                reply.more = known < journal.durable_lsn();
            }
            // What is no news to anybody moves the cursor, too.
            if !reply.changes.is_empty() || reply.more || self.rt.now() >= until {
                return Ok(reply.to_bytes());
            }
            self.rt.sleep_until((self.rt.now() + LOOK_NS).min(until)).await;
        }
    }
}
