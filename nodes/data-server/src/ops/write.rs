//! Write: plan, data into the container, record into the journal. A write within what exists goes
//! in place and needs no record.

use weft_base::{DataTime, Payload, Result, Status};
use weft_rt::{ServerRuntime, Work};
use weft_store::objects::{ObjectKey, ObjectRecord, ObjectTable, WritePlan};
use weft_wire::ops::{Piece, WriteReply, WriteRequest};
use weft_wire::{Header, Op};

use super::{PLANS_MAX, check_pieces, object, when_written};
use crate::done::Done;
use crate::objects::Objects;
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
    let key = object(request.handle, request.index)?;
    let most = server.authorize_growth(&request.capability, request.ceiling.as_ref(), (key, header.request.client))?;
    if !executed {
        write_pieces(&server.objects, header, key, &request.pieces, &bulk, (request.mtime_epoch, most)).await?;
    }
    Ok(answer(server, key, request.sync))
}

/// What is answered to whoever has changed the data just now.
pub(super) fn answer<R: ServerRuntime>(server: &Server<R>, key: ObjectKey, sync: bool) -> Done {
    // The time of the last change there: this one, or one that came after it.
    let (size, mtime) = server.objects.table.borrow().stat(key).map_or((0, DataTime::NONE), |stat| (stat.size_bytes, stat.mtime));
    let has_plenty = server.objects.has_plenty().then_some(true);
    Done { when: when_written(server, sync), ..Done::now(&WriteReply { size, mtime, has_plenty }) }
}

/// Writes data into pieces of a datafile, again if the datafile has changed its place meanwhile.
/// `how`: the epoch of its time, and the bytes that the datafile may take.
///
/// # Errors
/// [`Status::QuotaExceeded`] if it would take more; otherwise why it is impossible. Some of it may
/// have been written.
pub(super) async fn write_pieces<R: ServerRuntime>(
    objects: &Objects<R>,
    header: &Header,
    key: ObjectKey,
    pieces: &[Piece],
    bulk: &Payload,
    how: (u32, u64),
) -> Result<()> {
    for _ in 0..PLANS_MAX {
        if objects.is_removed(key) {
            return Err(Status::Stale);
        }
        let ticket = objects.table.borrow_mut().begin_io();
        let outcome = attempt(objects, header, key, pieces, bulk, how).await;
        objects.table.borrow_mut().end_io(ticket);
        if outcome != Err(Status::Conflict) {
            return outcome;
        }
    }
    Err(Status::Busy)
}

/// Plans, writes and makes the record.
///
/// # Errors
/// [`Status::Conflict`] if the object has changed its place meanwhile: plan again. Otherwise why it
/// is impossible.
async fn attempt<R: ServerRuntime>(
    objects: &Objects<R>,
    header: &Header,
    key: ObjectKey,
    pieces: &[Piece],
    bulk: &Payload,
    (epoch, most): (u32, u64),
) -> Result<()> {
    let plans = plan(objects, key, pieces)?;
    let recorded = |table: &ObjectTable| {
        let record = record(table, &plans, time_of_write(table, key, epoch, objects))?;
        let is_beyond = most < u64::MAX && record.as_ref().is_some_and(|record| table.grows_beyond(record, most));
        if is_beyond { Err(Status::QuotaExceeded) } else { Ok(record) }
    };
    if most < u64::MAX {
        recorded(&objects.table.borrow())?;
    }
    // Asked before the data is written, so that a refused write has changed nothing.
    if objects.is_short_of_room() {
        let growth = recorded(&objects.table.borrow())?.filter(|record| !is_only_time(record));
        if let Some(record) = growth {
            objects.make_room(&record, Op::Write).await?;
        }
    }
    let places: Vec<_> = plans.iter().flat_map(|plan| plan.pieces.iter().copied()).collect();
    let written = objects.container.write(header, key, &places, bulk).await;
    written.map_err(|error| objects.refused_by_disk(error))?;
    objects.rt.cpu(Work::Record).await;
    let mut is_in_place = false;
    let change = objects.change(Op::Write, |table| {
        let record = recorded(table)?;
        is_in_place = record.as_ref().is_none_or(is_only_time);
        Ok(record)
    });
    match change.await {
        Ok(true) => Ok(()),
        // A write in place succeeds on a full disk. Its time is then kept as that of the next one
        // is.
        Ok(false) | Err(Status::NoSpace) if is_in_place => {
            let mtime = time_of_write(&objects.table.borrow(), key, epoch, objects);
            objects.wrote_in_place(key, mtime);
            Ok(())
        }
        outcome => outcome.map(drop),
    }
}

/// True if the record says only when the datafile was written.
fn is_only_time(record: &ObjectRecord) -> bool {
    matches!(record, ObjectRecord::Put { extents, .. } if extents.is_empty())
}

/// When a write that is recorded now was made: by the clock of this server, in the latest epoch
/// that it or its client has heard of.
pub(super) fn time_of_write<R: ServerRuntime>(table: &ObjectTable, key: ObjectKey, epoch: u32, objects: &Objects<R>) -> DataTime {
    let known = table.stat(key).map_or(0, |stat| stat.mtime.epoch);
    DataTime { epoch: DataTime::epoch_of_writes(known.max(epoch)), at: objects.rt.wall() }
}

fn plan<R: ServerRuntime>(objects: &Objects<R>, key: ObjectKey, pieces: &[Piece]) -> Result<Vec<WritePlan>> {
    let before = objects.table.borrow().usage();
    let planned = pieces.iter().map(|piece| objects.table.borrow_mut().plan_write(key, piece.offset, u64::from(piece.bytes)));
    let planned: std::result::Result<Vec<_>, _> = planned.collect();
    planned.map_err(|error| objects.refused_by_table(error, &before))
}

/// One record for all pieces; `None` if all of them are in place.
fn record(table: &ObjectTable, plans: &[WritePlan], mtime: DataTime) -> Result<Option<ObjectRecord>> {
    let mut joined: Option<ObjectRecord> = None;
    for plan in plans {
        let record = table.record_for(plan, mtime).map_err(|_| Status::Conflict)?;
        match (&mut joined, record) {
            (_, None) => {}
            (None, Some(record)) => joined = Some(record),
            (Some(joined), Some(record)) => joined.absorb(record).expect("pieces of one object in ascending order join"),
        }
    }
    Ok(joined)
}
