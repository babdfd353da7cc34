//! One operation, one file. Each takes a request that was admitted, and says what to answer and
//! when.

mod allocate;
mod epoch;
mod list;
mod punch;
mod read;
mod read_many;
mod remove;
mod seek;
mod stat;
mod sync;
mod truncate;
mod write;

use weft_base::{Handle, Payload, Result, Status};
use weft_layout::WIDTH_MAX;
use weft_rt::{PeerId, ServerRuntime};
use weft_store::objects::{OBJECT_BYTES_MAX, ObjectKey};
use weft_wire::ops::Piece;
use weft_wire::{BULK_BYTES_MAX, Header, Request};

use crate::done::{Done, When};
use crate::state::Server;

/// Most pieces of one request.
const PIECES_MAX: usize = 1024;
/// A plan that somebody else made void is made again so many times before the client is asked to
/// come back.
const PLANS_MAX: u32 = 8;

/// Executes a request that was admitted. `executed`: it was executed before.
pub async fn execute<R: ServerRuntime>(
    server: &Server<R>,
    peer: PeerId,
    header: &Header,
    request: Request,
    bulk: Payload,
    executed: bool,
) -> Result<Done> {
    match request {
        Request::Write(request) => write::write(server, header, request, bulk, executed).await,
        Request::Read(request) => read::read(server, peer, header, request).await,
        Request::ReadMany(request) => read_many::read_many(server, peer, header, request).await,
        Request::ObjectStat(request) => stat::stat(server, header, &request),
        Request::ObjectTruncate(request) => truncate::truncate(server, header, &request, executed).await,
        Request::ObjectSync(request) => sync::sync(server, header, &request),
        Request::ObjectRemove(request) => remove::remove(server, header, &request).await,
        Request::ObjectSeek(request) => seek::seek(server, header, &request),
        Request::ObjectPunch(request) => punch::punch(server, header, &request, executed).await,
        Request::ObjectAllocate(request) => allocate::allocate(server, header, &request, executed).await,
        Request::ListDatafiles(request) => Ok(list::list(server, &request)),
        Request::ObjectEpoch(request) => epoch::epoch(server, header, &request).await,
        other => weft_serving::answer_of_any(server, other).await.map(Done::encoded),
    }
}

/// The object that a request names.
fn object(handle: Handle, index: u32) -> Result<ObjectKey> {
    if index < u32::from(WIDTH_MAX) { Ok(ObjectKey { handle, index }) } else { Err(Status::Invalid) }
}

/// When data that was written just now may be acknowledged.
fn when_written<R: ServerRuntime>(server: &Server<R>, sync: bool) -> When {
    if sync || server.objects.acknowledges_durable() { When::Durable(server.objects.progress.newest()) } else { When::Now }
}

/// When a truncation or removal may be acknowledged: when no power cut brings back what it cut off,
/// whatever the durability of data is. It needs no data of its own, so a sync of the journal is
/// enough.
fn when_cut<R: ServerRuntime>(server: &Server<R>) -> When {
    // A copy that found nothing to do must wait for the one that did it.
    server.objects.journal.as_ref().map_or(When::Now, |journal| When::Journaled(journal.last_lsn()))
}

/// Checks the pieces of a list request and adds up their bytes.
fn check_pieces(pieces: &[Piece]) -> Result<u64> {
    if pieces.is_empty() || pieces.len() > PIECES_MAX {
        return Err(Status::Invalid);
    }
    let (mut end, mut total) = (0, 0u64);
    for piece in pieces {
        let next = piece.offset.checked_add(u64::from(piece.bytes)).filter(|next| *next <= OBJECT_BYTES_MAX).ok_or(Status::FileTooBig)?;
        if piece.bytes == 0 || piece.offset < end {
            return Err(Status::Invalid);
        }
        end = next;
        total += u64::from(piece.bytes);
    }
    if total > BULK_BYTES_MAX as u64 { Err(Status::TooBig) } else { Ok(total) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ordered_disjoint_bounded_pieces() {
        let piece = |offset, bytes| Piece { offset, bytes };
        assert_eq!(check_pieces(&[piece(0, 10), piece(10, 5), piece(100, 1)]), Ok(16));
        assert_eq!(check_pieces(&[]), Err(Status::Invalid));
        assert_eq!(check_pieces(&[piece(0, 0)]), Err(Status::Invalid));
        assert_eq!(check_pieces(&[piece(5, 5), piece(9, 1)]), Err(Status::Invalid));
        assert_eq!(check_pieces(&[piece(5, 5), piece(0, 1)]), Err(Status::Invalid));
        assert_eq!(check_pieces(&[piece(u64::MAX, 2)]), Err(Status::FileTooBig));
        assert_eq!(check_pieces(&[piece(OBJECT_BYTES_MAX, 1)]), Err(Status::FileTooBig));
        assert_eq!(check_pieces(&[piece(0, 9 << 20)]), Err(Status::TooBig));
        let many: Vec<_> = (0..1025).map(|n| piece(2 * n, 1)).collect();
        assert_eq!(check_pieces(&many), Err(Status::Invalid));
        assert_eq!(check_pieces(&many[1..]), Ok(1024));
    }
}
