//! ReadMany: pieces of many datafiles, each with its own result, in one reply.

use weft_base::{ClientId, Payload, Result, Status};
use weft_rt::{PeerId, ServerRuntime, Work};
use weft_store::objects::{OBJECT_BYTES_MAX, ObjectKey, ReadPiece};
use weft_wire::ops::{DatafileGot, DatafileRead, Piece, READS_MAX, ReadManyReply, ReadManyRequest};
use weft_wire::{BULK_BYTES_MAX, Header, Rights};

use super::object;
use super::read::{fetch, plan};
use crate::done::Done;
use crate::state::Server;

/// Reads the pieces. All of them are planned before the first is read, so what a datafile has and
/// its size are of one moment.
pub async fn read_many<R: ServerRuntime>(server: &Server<R>, peer: PeerId, header: &Header, request: ReadManyRequest) -> Result<Done> {
    check(&request.reads)?;
    let client = header.request.client;
    let mut places = Vec::with_capacity(request.reads.len());
    for _ in &request.reads {
        server.rt.cpu(Work::Record).await;
    }
    let got = request.reads.iter().map(|read| plan_one(server, client, read, &mut places)).collect();
    let reply = Done::now(&ReadManyReply { got });
    if places.is_empty() {
        return Ok(reply);
    }
    let DatafileRead { capability, index, .. } = request.reads[0];
    let bulk: Payload = fetch(server, peer, header, ObjectKey { handle: capability.handle, index }, &places).await?;
    Ok(Done { bulk, ..reply })
}

fn plan_one<R: ServerRuntime>(
    server: &Server<R>,
    client: ClientId,
    read: &DatafileRead,
    places: &mut Vec<ReadPiece>,
) -> Result<DatafileGot> {
    let DatafileRead { capability, index, offset, bytes } = *read;
    let end = offset.checked_add(u64::from(bytes)).ok_or(Status::FileTooBig)?;
    match () {
        () if bytes == 0 => return Err(Status::Invalid),
        () if end > OBJECT_BYTES_MAX => return Err(Status::FileTooBig),
        () => {}
    }
    server.authorize_once(&capability, client, Rights::READ)?;
    let (got, size) = plan(server, object(capability.handle, index)?, &[Piece { offset, bytes }], places)?;
    Ok(DatafileGot { bytes: got[0], size })
}

/// Checks what concerns the request as a whole.
fn check(reads: &[DatafileRead]) -> Result<()> {
    let bytes: u64 = reads.iter().map(|read| u64::from(read.bytes)).sum();
    match () {
        () if reads.is_empty() => Err(Status::Invalid),
        () if reads.len() > READS_MAX || bytes > BULK_BYTES_MAX as u64 => Err(Status::TooBig),
        () => Ok(()),
    }
}
