//! The way between a plan and the disk for what the cache layer (`cache.rs`) has no part in.

use bytes::BytesMut;
use weft_base::Payload;
use weft_rt::{Disk, DiskError, FileId, PeerId, ServerRuntime};
use weft_store::objects::{DiskPiece, ReadPiece};
use weft_wire::Header;

/// Writes `data` to these places one after another.
pub async fn write_all<D: Disk>(disk: &D, container: FileId, places: &[DiskPiece], data: &Payload) -> Result<(), DiskError> {
    let mut start = 0;
    for place in merged(places) {
        disk.write(container, place.disk_offset, data.slice(start, place.len)).await?;
        start += place.len;
    }
    assert_eq!(start, data.len(), "a plan has a place for every byte");
    Ok(())
}

/// Reads these pieces into one payload, the bulk data of the reply to `request` of `peer`. Without
/// holes they go where the client wants them, if the runtime can put them there. Otherwise a single
/// place in the container is passed on without a copy.
pub async fn read_all<R: ServerRuntime>(
    rt: &R,
    peer: PeerId,
    request: &Header,
    container: FileId,
    pieces: &[ReadPiece],
) -> Result<Payload, DiskError> {
    let merged: Vec<_> = merged_reads(pieces).collect();
    let ranges: Vec<_> = merged.iter().filter_map(range_of).collect();
    if ranges.len() == merged.len()
        && let Some(data) = rt.read_for_reply(peer, request, container, &ranges).await?
    {
        let wanted = merged.iter().map(ReadPiece::len).sum::<u64>();
        return if data.len() == wanted {
            Ok(data)
        } else {
            Err(DiskError::Failed(format!("the container ends after {} of {wanted} bytes", data.len())))
        };
    }
    let mut parts = Vec::with_capacity(pieces.len());
    for piece in merged {
        parts.push(match piece {
            ReadPiece::Hole { len } => ReadPart::Zeros(len),
            ReadPiece::Data { disk_offset, len } => {
                let data = rt.disk().read(container, disk_offset, len).await?;
                if data.len() != len {
                    return Err(DiskError::Failed(format!("the container ends at {} of {len} bytes", disk_offset + data.len())));
                }
                ReadPart::Data(data)
            }
        });
    }
    Ok(join(parts))
}

/// Where the bytes of a piece are, if it is no hole.
fn range_of(piece: &ReadPiece) -> Option<(u64, u64)> {
    match piece {
        ReadPiece::Data { disk_offset, len } => Some((*disk_offset, *len)),
        ReadPiece::Hole { .. } => None,
    }
}

/// True if [`read_all`] has to copy.
pub fn copies(pieces: &[ReadPiece]) -> bool {
    merged_reads(pieces).count() > 1
}

/// Some bytes of an answer.
pub enum ReadPart {
    Data(Payload),
    Zeros(u64),
}

impl ReadPart {
    fn len(&self) -> u64 {
        match self {
            ReadPart::Data(data) => data.len(),
            ReadPart::Zeros(len) => *len,
        }
    }
}

/// Puts parts together. Synthetic data swallows what is around it and keeps the first tag: nobody
/// can look inside.
pub fn join(mut parts: Vec<ReadPart>) -> Payload {
    if parts.len() == 1
        && let Some(ReadPart::Data(_)) = parts.first()
        && let Some(ReadPart::Data(data)) = parts.pop()
    {
        return data;
    }
    let len: u64 = parts.iter().map(ReadPart::len).sum();
    let tag = parts.iter().find_map(|part| match part {
        ReadPart::Data(Payload::Synthetic { tag, .. }) => Some(*tag),
        _ => None,
    });
    if let Some(tag) = tag {
        return Payload::Synthetic { len, tag };
    }
    if parts.iter().all(|part| matches!(part, ReadPart::Zeros(_))) {
        return Payload::Real(BytesMut::zeroed(len as usize).freeze());
    }
    let mut joined = BytesMut::with_capacity(len as usize);
    for part in parts {
        match part {
            ReadPart::Zeros(len) => joined.resize(joined.len() + len as usize, 0),
            ReadPart::Data(data) => joined.extend_from_slice(&data.to_bytes()),
        }
    }
    Payload::Real(joined.freeze())
}

/// Neighbours in the container become one transfer.
pub fn merged(places: &[DiskPiece]) -> impl Iterator<Item = DiskPiece> {
    let mut rest = places.iter().copied().peekable();
    std::iter::from_fn(move || {
        let mut place = rest.next()?;
        while let Some(next) = rest.next_if(|next| place.disk_offset + place.len == next.disk_offset) {
            place.len += next.len;
        }
        Some(place)
    })
}

/// The same for reads, holes included.
pub fn merged_reads(pieces: &[ReadPiece]) -> impl Iterator<Item = ReadPiece> {
    let mut rest = pieces.iter().copied().peekable();
    std::iter::from_fn(move || {
        let mut piece = rest.next()?;
        while let Some(joined) = rest.peek().and_then(|next| joined(piece, *next)) {
            piece = joined;
            rest.next();
        }
        Some(piece)
    })
}

fn joined(first: ReadPiece, second: ReadPiece) -> Option<ReadPiece> {
    match (first, second) {
        (ReadPiece::Hole { len: a }, ReadPiece::Hole { len: b }) => Some(ReadPiece::Hole { len: a + b }),
        (ReadPiece::Data { disk_offset, len }, ReadPiece::Data { disk_offset: next, len: more }) if disk_offset + len == next => {
            Some(ReadPiece::Data { disk_offset, len: len + more })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    #[test]
    fn neighbours_are_one_transfer() {
        let place = |disk_offset, len| DiskPiece { disk_offset, len };
        let got: Vec<_> = merged(&[place(0, 10), place(10, 5), place(20, 1), place(21, 2)]).collect();
        assert_eq!(got, [place(0, 15), place(20, 3)]);
        let data = |disk_offset, len| ReadPiece::Data { disk_offset, len };
        let hole = |len| ReadPiece::Hole { len };
        let got: Vec<_> = merged_reads(&[data(0, 4), data(4, 4), hole(3), hole(2), data(8, 1)]).collect();
        assert_eq!(got, [data(0, 8), hole(5), data(8, 1)]);
        assert!(copies(&[data(0, 4), hole(1)]) && !copies(&[data(0, 4), data(4, 1)]));
    }

    #[test]
    fn a_single_place_is_not_copied() {
        let bytes = Bytes::from_static(b"some bytes");
        let Payload::Real(out) = join(vec![ReadPart::Data(Payload::Real(bytes.clone()))]) else { panic!("real bytes stay real") };
        assert_eq!(out.as_ptr(), bytes.as_ptr());
    }

    #[test]
    fn parts_join_in_order() {
        let data = |text: &'static [u8]| ReadPart::Data(Payload::Real(Bytes::from_static(text)));
        assert_eq!(join(vec![ReadPart::Zeros(2), data(b"ab"), ReadPart::Zeros(1)]).to_bytes(), &b"\0\0ab\0"[..]);
        assert_eq!(join(vec![ReadPart::Zeros(2), ReadPart::Zeros(3)]).to_bytes(), &[0; 5][..]);
        assert_eq!(join(Vec::new()).len(), 0);
        let synthetic = ReadPart::Data(Payload::Synthetic { len: 7, tag: 9 });
        assert_eq!(join(vec![ReadPart::Zeros(2), synthetic]), Payload::Synthetic { len: 9, tag: 9 });
    }
}
