//! The journal and checkpoint records of objects.

use super::{BLOCK_BYTES, OBJECT_BYTES_MAX, ObjectKey, block_of};
use crate::codec::{Reader, put_varint};
use bytes::BufMut;
use std::fmt;
use weft_base::{DataTime, ExtensionError, Extensions, Handle, WallTime, extension_header};

const VERSION: u8 = 3;
const KIND_PUT: u8 = 1;
const KIND_TRUNCATE: u8 = 2;
const KIND_REMOVE: u8 = 3;

/// Extension of a put: a hole, as its first byte and its length (u64 each).
const EXTENSION_HOLE: u16 = 1;

/// Disk blocks are below this number, so byte offsets in the container never overflow.
const DISK_BLOCK_MAX: u64 = 1 << 50;

/// Local bytes and where they lie now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtentPut {
    /// Local byte offset.
    pub local_offset: u64,
    /// Byte offset in the container, equal to the local one modulo [`BLOCK_BYTES`].
    pub disk_offset: u64,
    /// Length in bytes.
    pub len: u64,
}

/// A change of one object. Records are absolute or join by maximum, so that replaying them is
/// harmless.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ObjectRecord {
    /// The object exists, is at least so large, was changed at least so late, and these bytes lie
    /// there. Written by growing writes and by checkpoints.
    Put {
        /// The object.
        key: ObjectKey,
        /// Its size is at least this many bytes.
        size_bytes: u64,
        /// It was changed at this time or later.
        mtime: DataTime,
        /// Its truncation count is at least this.
        truncate_epoch: u32,
        /// Ascending, without overlap, none beyond `size_bytes`.
        extents: Vec<ExtentPut>,
    },
    /// The object exists and has exactly this size; bytes beyond it are gone.
    Truncate {
        /// The object.
        key: ObjectKey,
        /// Its size in bytes.
        size_bytes: u64,
        /// It was changed at this time or later.
        mtime: DataTime,
        /// Its truncation count is at least this.
        truncate_epoch: u32,
    },
    /// The object exists, was changed at this time or later, and these bytes are a hole. On disk a
    /// put with an extension.
    Punch {
        /// The object.
        key: ObjectKey,
        /// It was changed at this time or later.
        mtime: DataTime,
        /// First local byte of the hole.
        local_offset: u64,
        /// Its length in bytes.
        len: u64,
    },
    /// The object does not exist.
    Remove {
        /// The object.
        key: ObjectKey,
    },
}

/// Why bytes are no object record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordError {
    /// A version that this program cannot read.
    Version(u8),
    /// Cut short, too long, or contradicting itself.
    Malformed,
    /// It needs this extension, which this program does not know.
    Newer(u16),
}

impl fmt::Display for RecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RecordError::Version(v) => write!(f, "object record version {v}, this program reads {VERSION}"),
            RecordError::Malformed => write!(f, "malformed object record"),
            RecordError::Newer(tag) => write!(f, "object record {}", ExtensionError::Unknown(*tag)),
        }
    }
}
impl std::error::Error for RecordError {}

impl From<ExtensionError> for RecordError {
    fn from(error: ExtensionError) -> RecordError {
        match error {
            ExtensionError::Malformed => RecordError::Malformed,
            ExtensionError::Unknown(tag) => RecordError::Newer(tag),
        }
    }
}

impl ObjectRecord {
    /// The object that it changes.
    pub fn key(&self) -> ObjectKey {
        match self {
            ObjectRecord::Put { key, .. }
            | ObjectRecord::Truncate { key, .. }
            | ObjectRecord::Punch { key, .. }
            | ObjectRecord::Remove { key } => *key,
        }
    }

    /// Joins `next` into this record if both are writes of the same object and the extents of
    /// `next` lie behind; else gives it back. A request of many pieces needs one record this way.
    pub fn absorb(&mut self, next: ObjectRecord) -> Result<(), ObjectRecord> {
        match (self, next) {
            (
                ObjectRecord::Put { key, size_bytes, mtime, truncate_epoch, extents },
                ObjectRecord::Put { key: key2, size_bytes: size2, mtime: mtime2, truncate_epoch: epoch2, extents: extents2 },
            ) if *key == key2
                && extents.last().map_or(0, |last| last.local_offset + last.len)
                    <= extents2.first().map_or(u64::MAX, |first| first.local_offset) =>
            {
                *size_bytes = (*size_bytes).max(size2);
                *mtime = (*mtime).max(mtime2);
                *truncate_epoch = (*truncate_epoch).max(epoch2);
                for put in extents2 {
                    push_merged(extents, put);
                }
                Ok(())
            }
            (_, next) => Err(next),
        }
    }

    /// Appends the record to `out` (layout: `docs/on-disk.md`).
    pub fn encode(&self, out: &mut impl BufMut) {
        let head = |out: &mut _, kind, key: &ObjectKey| put_head(out, kind, key);
        match self {
            ObjectRecord::Put { key, size_bytes, mtime, truncate_epoch, extents } => {
                head(out, KIND_PUT, key);
                put_attributes(out, *size_bytes, *mtime, *truncate_epoch);
                put_varint(out, extents.len() as u64);
                let mut end = 0;
                for put in extents {
                    debug_assert_eq!(put.local_offset % BLOCK_BYTES, put.disk_offset % BLOCK_BYTES);
                    put_varint(out, put.local_offset - end);
                    put_varint(out, put.len);
                    put_varint(out, block_of(put.disk_offset));
                    end = put.local_offset + put.len;
                }
            }
            ObjectRecord::Truncate { key, size_bytes, mtime, truncate_epoch } => {
                head(out, KIND_TRUNCATE, key);
                put_attributes(out, *size_bytes, *mtime, *truncate_epoch);
            }
            ObjectRecord::Punch { key, mtime, local_offset, len } => {
                head(out, KIND_PUT, key);
                put_attributes(out, 0, *mtime, 0);
                put_varint(out, 0);
                out.put_slice(&extension_header(EXTENSION_HOLE, 16));
                out.put_u64_le(*local_offset);
                out.put_u64_le(*len);
            }
            ObjectRecord::Remove { key } => head(out, KIND_REMOVE, key),
        }
    }

    /// The record as bytes.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(64);
        self.encode(&mut out);
        out
    }

    /// Reads a record that fills `bytes`. Any bytes are allowed.
    pub fn decode(bytes: &[u8]) -> Result<ObjectRecord, RecordError> {
        let mut reader = Reader::new(bytes);
        match reader.u8() {
            Some(VERSION) => {}
            Some(version) => return Err(RecordError::Version(version)),
            None => return Err(RecordError::Malformed),
        }
        let record = decode_body(&mut reader).ok_or(RecordError::Malformed)?;
        let extensions = Extensions::filling(reader.rest());
        let hole = decode_hole(extensions.clone())?;
        match (record, hole) {
            (record, None) => extensions.check(&[]).map(|()| record).map_err(RecordError::from),
            (ObjectRecord::Put { key, mtime, extents, .. }, Some((local_offset, len))) if extents.is_empty() => {
                extensions.check(&[EXTENSION_HOLE])?;
                Ok(ObjectRecord::Punch { key, mtime, local_offset, len })
            }
            _ => Err(RecordError::Malformed),
        }
    }
}

/// Appends `put` to a list of extents, joining it to the last one if they touch locally and in the
/// container.
pub(super) fn push_merged(extents: &mut Vec<ExtentPut>, put: ExtentPut) {
    match extents.last_mut() {
        Some(last) if last.local_offset + last.len == put.local_offset && last.disk_offset + last.len == put.disk_offset => {
            last.len += put.len
        }
        _ => extents.push(put),
    }
}

fn put_head(out: &mut impl BufMut, kind: u8, key: &ObjectKey) {
    out.put_u8(VERSION);
    out.put_u8(kind);
    out.put_u64_le(key.handle.0);
    put_varint(out, u64::from(key.index));
}

fn put_attributes(out: &mut impl BufMut, size_bytes: u64, mtime: DataTime, truncate_epoch: u32) {
    out.put_i64_le(mtime.at.0);
    put_varint(out, size_bytes);
    put_varint(out, u64::from(truncate_epoch));
    put_varint(out, u64::from(mtime.epoch));
}

fn decode_body(reader: &mut Reader<'_>) -> Option<ObjectRecord> {
    let kind = reader.u8()?;
    let key = ObjectKey { handle: Handle(reader.u64()?), index: u32::try_from(reader.varint()?).ok()? };
    if kind == KIND_REMOVE {
        return Some(ObjectRecord::Remove { key });
    }
    let at = WallTime(reader.u64()? as i64);
    let size_bytes = reader.varint().filter(|size| *size <= OBJECT_BYTES_MAX)?;
    let truncate_epoch = u32::try_from(reader.varint()?).ok()?;
    let mtime = DataTime { epoch: u32::try_from(reader.varint()?).ok()?, at };
    match kind {
        KIND_PUT => Some(ObjectRecord::Put { key, size_bytes, mtime, truncate_epoch, extents: decode_extents(reader, size_bytes)? }),
        KIND_TRUNCATE => Some(ObjectRecord::Truncate { key, size_bytes, mtime, truncate_epoch }),
        _ => None,
    }
}

/// First byte and length of the hole that a record makes.
fn decode_hole(extensions: Extensions<'_>) -> Result<Option<(u64, u64)>, RecordError> {
    for extension in extensions {
        let (tag, value) = extension?;
        if tag == EXTENSION_HOLE {
            let mut value = Reader::new(value);
            let hole = value.u64().zip(value.u64()).filter(|(offset, len)| is_hole(*offset, *len) && value.remaining() == 0);
            return hole.map(Some).ok_or(RecordError::Malformed);
        }
    }
    Ok(None)
}

/// True if an object can have a hole of `len` bytes at `offset`.
fn is_hole(offset: u64, len: u64) -> bool {
    len > 0 && offset.checked_add(len).is_some_and(|end| end <= OBJECT_BYTES_MAX)
}

fn decode_extents(reader: &mut Reader<'_>, size_bytes: u64) -> Option<Vec<ExtentPut>> {
    // Every extent takes at least three bytes, so a count that fits the rest is a safe size.
    let count = usize::try_from(reader.varint()?).ok().filter(|count| *count <= reader.remaining() / 3)?;
    let mut extents = Vec::with_capacity(count);
    let mut end = 0u64;
    for _ in 0..count {
        let local_offset = end.checked_add(reader.varint()?)?;
        let len = reader.varint().filter(|len| *len > 0)?;
        end = local_offset.checked_add(len).filter(|end| *end <= size_bytes)?;
        let disk_block = reader.varint()?;
        if disk_block.checked_add(len / BLOCK_BYTES)? >= DISK_BLOCK_MAX {
            return None;
        }
        extents.push(ExtentPut { local_offset, disk_offset: disk_block * BLOCK_BYTES + local_offset % BLOCK_BYTES, len });
    }
    Some(extents)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use weft_base::EXTENSION_HEADER_BYTES;

    fn key() -> ObjectKey {
        ObjectKey { handle: Handle(0x0001_0000_0000_1234), index: 3 }
    }

    fn time(nanos: i64) -> DataTime {
        DataTime { epoch: 0, at: WallTime(nanos) }
    }

    fn put(local_offset: u64, disk_offset: u64, len: u64) -> ExtentPut {
        ExtentPut { local_offset, disk_offset, len }
    }

    fn samples() -> Vec<ObjectRecord> {
        let mtime = DataTime { epoch: 4, at: WallTime(1_700_000_000_123_456_789) };
        vec![
            ObjectRecord::Put {
                key: key(),
                size_bytes: 0,
                mtime: DataTime { epoch: u32::MAX, at: WallTime(-5) },
                truncate_epoch: u32::MAX,
                extents: vec![],
            },
            ObjectRecord::Put {
                key: key(),
                size_bytes: OBJECT_BYTES_MAX,
                mtime,
                truncate_epoch: 2,
                extents: vec![put(5, 4096 * 9 + 5, 100), put(105, 4096 * 7 + 105, 1), put(1 << 40, 1 << 41, 1 << 30)],
            },
            ObjectRecord::Truncate { key: key(), size_bytes: 77, mtime, truncate_epoch: 9 },
            ObjectRecord::Punch { key: key(), mtime, local_offset: 4097, len: OBJECT_BYTES_MAX - 4097 },
            ObjectRecord::Remove { key: key() },
        ]
    }

    #[test]
    fn only_a_put_without_extents_has_a_hole_within_bounds() {
        let of = |record: &ObjectRecord, offset: u64, len: u64| {
            let hole = [&extension_header(EXTENSION_HOLE, 16)[..], &offset.to_le_bytes(), &len.to_le_bytes()].concat();
            ObjectRecord::decode(&[record.to_vec(), hole].concat())
        };
        let [empty, put, cut, _, removed] = &samples()[..] else { panic!("five samples") };
        assert!(matches!(of(empty, 5, 7), Ok(ObjectRecord::Punch { local_offset: 5, len: 7, .. })));
        for (record, offset, len) in
            [(put, 5, 7), (cut, 5, 7), (removed, 5, 7), (empty, 5, 0), (empty, OBJECT_BYTES_MAX, 1), (empty, u64::MAX, 2)]
        {
            assert_eq!(of(record, offset, len), Err(RecordError::Malformed), "{record:?}");
        }
    }

    #[test]
    fn round_trip_and_every_cut_is_refused() {
        for record in samples() {
            let bytes = record.to_vec();
            assert_eq!(ObjectRecord::decode(&bytes), Ok(record));
            // What is left without an extension is whole; frames have checksums against that.
            let without_hole = bytes.len().wrapping_sub(EXTENSION_HEADER_BYTES + 16);
            let is_punch = matches!(ObjectRecord::decode(&bytes), Ok(ObjectRecord::Punch { .. }));
            for cut in (0..bytes.len()).filter(|cut| !is_punch || *cut != without_hole) {
                assert_eq!(ObjectRecord::decode(&bytes[..cut]), Err(RecordError::Malformed));
            }
            assert_eq!(ObjectRecord::decode(&[&bytes[..], &[0]].concat()), Err(RecordError::Malformed), "a byte too many");
        }
    }

    #[test]
    fn extensions_are_skipped_or_refused_by_number() {
        for record in samples() {
            let with = |tag: u8| ObjectRecord::decode(&[&record.to_vec()[..], &[tag, 0, 1, 0, 0, 0, 9]].concat());
            assert_eq!(with(2), Ok(record.clone()));
            assert_eq!(with(3), Err(RecordError::Newer(3)));
        }
        assert!(RecordError::Newer(3).to_string().contains("newer weft"));
    }

    #[test]
    fn a_growing_write_of_a_mebibyte_is_small() {
        let extents = vec![put(7 << 20, 300 << 30, 1 << 20)];
        let mtime = DataTime { epoch: 4, at: WallTime(1_700_000_000_123_456_789) };
        let record = ObjectRecord::Put { key: key(), size_bytes: 8 << 20, mtime, truncate_epoch: 0, extents };
        assert!(record.to_vec().len() <= 40, "{} bytes", record.to_vec().len());
    }

    #[test]
    fn contradictions_are_refused() {
        let good = ObjectRecord::Put { key: key(), size_bytes: 100, mtime: time(0), truncate_epoch: 0, extents: vec![put(0, 4096, 100)] };
        let with = |change: &dyn Fn(&mut Vec<u8>)| {
            let mut bytes = good.to_vec();
            change(&mut bytes);
            ObjectRecord::decode(&bytes)
        };
        let size_at = 2 + 8 + 1 + 8;
        assert_eq!(with(&|_| ()), Ok(good.clone()));
        assert_eq!(with(&|b| b[size_at] = 99), Err(RecordError::Malformed), "an extent beyond the size");
        assert_eq!(with(&|b| b[size_at + 3] = 2), Err(RecordError::Malformed), "more extents than bytes");
        assert_eq!(with(&|b| b[size_at + 5] = 0), Err(RecordError::Malformed), "an empty extent");
        assert_eq!(with(&|b| b[1] = 4), Err(RecordError::Malformed), "an unknown kind");
        assert_eq!(with(&|b| b[0] = 1), Err(RecordError::Version(1)));
    }

    #[test]
    fn pieces_join_in_order() {
        let write = |at: u64, disk| ObjectRecord::Put {
            key: key(),
            size_bytes: at + 10,
            mtime: time(at as i64),
            truncate_epoch: 0,
            extents: vec![put(at, disk + at, 10)],
        };
        let mut record = write(20, 4096);
        assert_eq!(record.absorb(write(30, 4096)), Ok(()));
        assert_eq!(record.absorb(write(50, 4096)), Ok(()));
        assert_eq!(record.absorb(write(10, 4096)), Err(write(10, 4096)));
        assert_eq!(record.absorb(ObjectRecord::Remove { key: key() }), Err(ObjectRecord::Remove { key: key() }));
        let ObjectRecord::Put { size_bytes, mtime, extents, .. } = record else { panic!("still a write") };
        assert_eq!((size_bytes, mtime, extents), (60, time(50), vec![put(20, 4116, 20), put(50, 4146, 10)]));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn random_bytes_never_panic_and_decode_to_what_encodes_again(mut bytes in proptest::collection::vec(any::<u8>(), 0..80), kind in 1u8..4) {
            if bytes.len() > 2 {
                (bytes[0], bytes[1]) = (VERSION, kind);
            }
            if let Ok(record) = ObjectRecord::decode(&bytes) {
                prop_assert_eq!(ObjectRecord::decode(&record.to_vec()), Ok(record));
            }
        }

        #[test]
        fn flipped_bits_never_panic(which in 0usize..4, flips in proptest::collection::vec(any::<u16>(), 1..4)) {
            let mut bytes = samples()[which].to_vec();
            for flip in flips {
                let bit = flip as usize % (bytes.len() * 8);
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
            if let Ok(ObjectRecord::Put { extents, size_bytes, .. }) = ObjectRecord::decode(&bytes) {
                let mut end = 0;
                for put in extents {
                    prop_assert!(put.local_offset >= end && put.len > 0 && put.local_offset % BLOCK_BYTES == put.disk_offset % BLOCK_BYTES);
                    end = put.local_offset + put.len;
                }
                prop_assert!(end <= size_bytes);
            }
        }
    }
}
