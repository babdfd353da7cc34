//! Read: what there is of each piece below the local end; holes as zeros.

use weft_base::{Result, Status};
use weft_rt::{FaultPoint, PeerId, ServerRuntime, Work};
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
    let ticket = server.table.borrow_mut().begin_io();
    let (reply, places) = plan(server, key, &request.pieces);
    let mut traced = weft_trace::span(weft_trace::event::DISK_READ);
    traced.request(weft_trace::request_key(header.request, header.server)).object(request.handle.0);
    server.rt.pass(FaultPoint::DataRead).await;
    let data = match server.cache.read(&server.rt, &places, &mut traced).await {
        Some(data) => data,
        None => transfer::read_all(&server.rt, peer, header, server.container, &places).await,
    };
    drop(traced);
    server.table.borrow_mut().end_io(ticket);
    let bulk = data.map_err(|_| Status::Io)?;
    if transfer::copies(&places) {
        server.rt.cpu(Work::Copy(bulk.len())).await;
    }
    Ok(Done { bulk, ..Done::now(&reply) })
}

fn plan<R: ServerRuntime>(server: &Server<R>, key: ObjectKey, pieces: &[Piece]) -> (ReadReply, Vec<ReadPiece>) {
    let table = server.table.borrow();
    let mut got = Vec::with_capacity(pieces.len());
    let mut places = Vec::with_capacity(pieces.len());
    for piece in pieces {
        let before = places.len();
        places.extend(table.plan_read(key, piece.offset, u64::from(piece.bytes)));
        got.push(places[before..].iter().map(ReadPiece::len).sum::<u64>() as u32);
    }
    let size = table.stat(key).map_or(0, |stat| stat.size_bytes);
    (ReadReply { got, size }, places)
}
