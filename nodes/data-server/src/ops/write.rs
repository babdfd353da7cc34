//! Write: plan, data into the container, record into the journal. A write within what exists goes in place and needs no record.

use weft_base::{DataTime, Payload, Result, Status};
use weft_rt::{FaultPoint, ServerRuntime, Work};
use weft_store::objects::{ObjectKey, ObjectRecord, StalePlan, WritePlan};
use weft_wire::ops::{Piece, WriteReply, WriteRequest};
use weft_wire::{Header, Rights};

use super::{PLANS_MAX, check_pieces, object, when_written};
use crate::done::Done;
use crate::state::Server;

/// Writes the pieces. `executed`: the same request was executed before.
pub async fn write<R: ServerRuntime>(
    server: &Server<R>,
    header: &Header,
    request: WriteRequest,
    bulk: Payload,
    executed: bool,
) -> Result<Done> {
    if check_pieces(&request.pieces)? != bulk.len() {
        return Err(Status::BadMessage);
    }
    server.authorize(&request.capability, request.handle, header.request.client, Rights::WRITE)?;
    let key = object(request.handle, request.index)?;
    if !executed {
        write_pieces(server, header, key, &request.pieces, &bulk, request.mtime_epoch).await?;
    }
    // The time of the last write there: this one, or one that came after it.
    let (size, mtime) = server.table.borrow().stat(key).map_or((0, DataTime::NONE), |stat| (stat.size_bytes, stat.mtime));
    Ok(Done { when: when_written(server, request.sync), ..Done::now(&WriteReply { size, mtime }) })
}

async fn write_pieces<R: ServerRuntime>(
    server: &Server<R>,
    header: &Header,
    key: ObjectKey,
    pieces: &[Piece],
    bulk: &Payload,
    epoch: u32,
) -> Result<()> {
    for _ in 0..PLANS_MAX {
        if server.is_removed(key) {
            return Err(Status::Stale);
        }
        let ticket = server.table.borrow_mut().begin_io();
        let outcome = attempt(server, header, key, pieces, bulk, epoch).await;
        server.table.borrow_mut().end_io(ticket);
        if let Ok(()) = outcome? {
            return Ok(());
        }
    }
    Err(Status::Busy)
}

/// Plans, writes and makes the record, unless the object changed its place meanwhile.
async fn attempt<R: ServerRuntime>(
    server: &Server<R>,
    header: &Header,
    key: ObjectKey,
    pieces: &[Piece],
    bulk: &Payload,
    epoch: u32,
) -> Result<std::result::Result<(), StalePlan>> {
    let plans = plan(server, key, pieces)?;
    // Asked before the data is written, so that a refused write has changed nothing.
    if server.is_short_of_room()
        && let Ok(Some(record)) = record(server, &plans, time_of_write(server, key, epoch))
        && !is_only_time(&record)
    {
        server.make_room(&record, false).await?;
    }
    let places: Vec<_> = plans.iter().flat_map(|plan| plan.pieces.iter().copied()).collect();
    let written = {
        let mut traced = weft_trace::span(weft_trace::event::DISK_WRITE);
        traced.request(weft_trace::request_key(header.request, header.server)).object(key.handle.0).range(0, bulk.len());
        server.rt.pass(FaultPoint::DataWrite).await;
        server.cache.write(&server.rt, server.rt.disk(), server.container, &places, bulk, &mut traced).await
    };
    written.map_err(|error| server.refused_by_disk(error))?;
    server.rt.cpu(Work::Record).await;
    loop {
        // From here to the change nothing waits, so the record fits the state that it changes.
        let mtime = time_of_write(server, key, epoch);
        let record = match record(server, &plans, mtime) {
            Ok(record) => record,
            Err(StalePlan) => return Ok(Err(StalePlan)),
        };
        let Some(record) = record else {
            server.table.borrow_mut().note_mtime(key, mtime);
            server.progress.changed();
            return Ok(Ok(()));
        };
        if server.accepts(&record) {
            server.change(&record);
            return Ok(Ok(()));
        }
        match server.make_room(&record, false).await {
            // A write in place succeeds on a full disk. Its time is then kept as that of the next one is.
            Err(Status::NoSpace) if is_only_time(&record) => {
                server.table.borrow_mut().note_mtime(key, mtime);
                server.progress.changed();
                return Ok(Ok(()));
            }
            outcome => outcome?,
        }
    }
}

/// True if the record says only when the datafile was written.
fn is_only_time(record: &ObjectRecord) -> bool {
    matches!(record, ObjectRecord::Put { extents, .. } if extents.is_empty())
}

/// When a write that is recorded now was made: by the clock of this server, in the latest epoch that it or its client has heard of.
fn time_of_write<R: ServerRuntime>(server: &Server<R>, key: ObjectKey, epoch: u32) -> DataTime {
    let known = server.table.borrow().stat(key).map_or(0, |stat| stat.mtime.epoch);
    DataTime { epoch: DataTime::epoch_of_writes(known.max(epoch)), at: server.rt.wall() }
}

fn plan<R: ServerRuntime>(server: &Server<R>, key: ObjectKey, pieces: &[Piece]) -> Result<Vec<WritePlan>> {
    let before = server.table.borrow().usage();
    let planned = pieces.iter().map(|piece| server.table.borrow_mut().plan_write(key, piece.offset, u64::from(piece.bytes)));
    let planned: std::result::Result<Vec<_>, _> = planned.collect();
    planned.map_err(|error| server.refused_by_table(error, &before))
}

/// One record for all pieces; `None` if all of them are in place.
fn record<R: ServerRuntime>(
    server: &Server<R>,
    plans: &[WritePlan],
    mtime: DataTime,
) -> std::result::Result<Option<ObjectRecord>, StalePlan> {
    let table = server.table.borrow();
    let mut joined: Option<ObjectRecord> = None;
    for plan in plans {
        match (&mut joined, table.record_for(plan, mtime)?) {
            (_, None) => {}
            (None, Some(record)) => joined = Some(record),
            (Some(joined), Some(record)) => joined.absorb(record).expect("pieces of one object in ascending order join"),
        }
    }
    Ok(joined)
}
