//! ObjectAllocate: bytes that were never written are written as zeros, by the server itself. So
//! they have their place in the container and on its disk, and a later write of them needs no
//! space.

use bytes::BytesMut;
use weft_base::{Payload, Result, Status};
use weft_rt::ServerRuntime;
use weft_store::objects::{OBJECT_BYTES_MAX, ObjectKey};
use weft_wire::ops::{ObjectAllocateRequest, Piece};
use weft_wire::{BULK_BYTES_MAX, Header};

use super::punch::changed_nothing;
use super::write::{answer, write_pieces};
use super::{PIECES_MAX, object};
use crate::done::Done;
use crate::state::Server;

/// Allocates the bytes. `executed`: the same request was executed before.
///
/// # Errors
/// [`Status::NoSpace`] or [`Status::QuotaExceeded`], then some of them may have their place;
/// [`Status::Invalid`] for no bytes, [`Status::TooBig`] for more than a write may have,
/// [`Status::FileTooBig`] behind the largest object.
pub async fn allocate<R: ServerRuntime>(
    server: &Server<R>,
    header: &Header,
    request: &ObjectAllocateRequest,
    executed: bool,
) -> Result<Done> {
    let key = object(request.handle, request.index)?;
    let most = server.authorize_growth(&request.capability, request.ceiling.as_ref(), (key, header.request.client))?;
    let end = request.offset.checked_add(u64::from(request.bytes)).filter(|end| *end <= OBJECT_BYTES_MAX).ok_or(Status::FileTooBig)?;
    match u64::from(request.bytes) {
        0 => return Err(Status::Invalid),
        bytes if bytes > BULK_BYTES_MAX as u64 => return Err(Status::TooBig),
        _ => {}
    }
    if !executed {
        let size = server.objects.table.borrow().stat(key).map_or(0, |stat| stat.size_bytes);
        let end = if request.keep_size { end.min(size) } else { end };
        fill(server, header, key, (request.offset, end), (request, most)).await?;
    }
    Ok(answer(server, key, false))
}

/// Writes the zeros, at most so many pieces at a time as a write may have.
async fn fill<R: ServerRuntime>(
    server: &Server<R>,
    header: &Header,
    key: ObjectKey,
    (mut at, end): (u64, u64),
    (request, most): (&ObjectAllocateRequest, u64),
) -> Result<()> {
    let mut has_written = false;
    while at < end {
        let holes = match request.zero {
            true => vec![(at, end - at)],
            false => server.objects.table.borrow().holes(key, at, end, PIECES_MAX),
        };
        let pieces: Vec<Piece> = holes.into_iter().map(|(offset, bytes)| Piece { offset, bytes: bytes as u32 }).collect();
        let Some(last) = pieces.last() else { break };
        let bytes: u64 = pieces.iter().map(|piece| u64::from(piece.bytes)).sum();
        let zeros = Payload::Real(BytesMut::zeroed(bytes as usize).freeze());
        write_pieces(&server.objects, header, key, &pieces, &zeros, (request.mtime_epoch, most)).await?;
        at = last.offset + u64::from(last.bytes);
        has_written = true;
    }
    match has_written {
        true => Ok(()),
        false if server.objects.is_removed(key) => Err(Status::Stale),
        false => changed_nothing(&server.objects, key, request.mtime_epoch).await,
    }
}
