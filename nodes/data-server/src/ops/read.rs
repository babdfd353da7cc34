//! Read: what there is of each piece below the local end; holes as zeros.

use weft_base::{Payload, Result, Status};
use weft_rt::{PeerId, ServerRuntime, Work};
use weft_store::objects::{ObjectKey, ReadPiece};
use weft_wire::ops::{Piece, ReadReply, ReadRequest};
use weft_wire::{Header, Rights};

use super::{check_pieces, object};
use crate::done::Done;
use crate::state::Server;
use crate::transfer;

/// Reads the pieces.
pub async fn read<R: ServerRuntime>(server: &Server<R>, peer: PeerId, header: &Header, request: ReadRequest) -> Result<Done> {
    check_pieces(&request.pieces)?;
    server.authorize(&request.capability, request.handle, header.request.client, Rights::READ)?;
    let key = object(request.handle, request.index)?;
    let mut places = Vec::with_capacity(request.pieces.len());
    let (got, size) = plan(server, key, &request.pieces, &mut places)?;
    let bulk = fetch(server, peer, header, key, &places).await?;
    Ok(Done { bulk, ..Done::now(&ReadReply { got, size }) })
}

/// Where the pieces are, appended to `places`: bytes that there are of each, and the local size.
///
/// # Errors
/// [`Status::Stale`] if the datafile was removed.
pub(super) fn plan<R: ServerRuntime>(
    server: &Server<R>,
    key: ObjectKey,
    pieces: &[Piece],
    places: &mut Vec<ReadPiece>,
) -> Result<(Vec<u32>, u64)> {
    let table = server.objects.table.borrow();
    let size = match table.stat(key) {
        Some(stat) => stat.size_bytes,
        // Nothing written reads as zeros; what was removed must not.
        None if server.objects.is_removed(key) => return Err(Status::Stale),
        None => 0,
    };
    let mut got = Vec::with_capacity(pieces.len());
    for piece in pieces {
        let before = places.len();
        places.extend(table.plan_read(key, piece.offset, u64::from(piece.bytes)));
        got.push(places[before..].iter().map(ReadPiece::len).sum::<u64>() as u32);
    }
    Ok((got, size))
}

/// The bytes at these places, for this request; in a trace it is about `key`.
///
/// # Errors
/// [`Status::Io`].
pub(super) async fn fetch<R: ServerRuntime>(
    server: &Server<R>,
    peer: PeerId,
    header: &Header,
    key: ObjectKey,
    places: &[ReadPiece],
) -> Result<Payload> {
    let ticket = server.objects.table.borrow_mut().begin_io();
    let data = server.objects.container.read(peer, header, key, places).await;
    server.objects.table.borrow_mut().end_io(ticket);
    let bulk = data.map_err(|_| Status::Io)?;
    if transfer::copies(places) {
        server.rt.cpu(Work::Copy(bulk.len())).await;
    }
    Ok(bulk)
}
