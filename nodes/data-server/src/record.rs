//! What stands in the journal of a data server.
//!
//! ```text
//! 1 object change     the bytes of an ObjectRecord
//! 2 mark              u64: the data of all records up to this number was on stable storage before the mark was written
//! 3 cut               nothing: power was cut before it, and recovery went by the rule below
//! ```
//! Recovery holds records back until a mark covers them. At the end of the journal it takes the
//! rest if only the process had died. If power was cut, the data of the rest may be lost: growth is
//! dropped, but truncations and removals stand, because they show no data. Dropped records stay in
//! the journal, so a cut is appended behind them: the next recovery drops them again, whatever the
//! reason of the next restart. Checkpoints hold object changes only.

use bytes::{BufMut, BytesMut};
use weft_base::{ExtensionError, Extensions, Result, Status};
use weft_journal::Lsn;
use weft_store::objects::{ObjectRecord, RecordError};

const OBJECT: u8 = 1;
const MARK: u8 = 2;
const CUT: u8 = 3;

/// True for growth: a power cut voids it unless a mark covers it. All else shows no data.
pub fn is_growth(record: &ObjectRecord) -> bool {
    matches!(record, ObjectRecord::Put { .. })
}

/// One record of the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JournalRecord {
    /// An object changes.
    Object(ObjectRecord),
    /// The data of records up to this one is on stable storage.
    Mark(Lsn),
    /// Growth that no mark covers is void.
    Cut,
}

impl JournalRecord {
    /// Appends the bytes of an object change.
    pub fn encode_object(record: &ObjectRecord, out: &mut BytesMut) {
        out.put_u8(OBJECT);
        record.encode(out);
    }

    /// Appends the bytes.
    pub fn encode(&self, out: &mut BytesMut) {
        match self {
            JournalRecord::Object(record) => JournalRecord::encode_object(record, out),
            JournalRecord::Mark(lsn) => {
                out.put_u8(MARK);
                out.put_u64_le(lsn.0);
            }
            JournalRecord::Cut => out.put_u8(CUT),
        }
    }

    /// Reads a record.
    ///
    /// # Errors
    /// [`Status::BadMessage`] for bytes that are none, [`Status::NewerExtension`] if it needs one
    /// that this program does not know.
    pub fn decode(bytes: &[u8]) -> Result<JournalRecord> {
        let (kind, rest) = bytes.split_first().ok_or(Status::BadMessage)?;
        match *kind {
            OBJECT => ObjectRecord::decode(rest).map(JournalRecord::Object).map_err(|error| match error {
                RecordError::Newer(_) => Status::NewerExtension,
                _ => Status::BadMessage,
            }),
            MARK => {
                let (lsn, extensions) = rest.split_first_chunk().ok_or(Status::BadMessage)?;
                skip(extensions)?;
                Ok(JournalRecord::Mark(Lsn(u64::from_le_bytes(*lsn))))
            }
            CUT => skip(rest).map(|()| JournalRecord::Cut),
            _ => Err(Status::BadMessage),
        }
    }
}

/// What follows the fields of a record.
fn skip(extensions: &[u8]) -> Result<()> {
    Extensions::filling(extensions).check(&[]).map_err(|error| match error {
        ExtensionError::Malformed => Status::BadMessage,
        ExtensionError::Unknown(_) => Status::NewerExtension,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_base::Handle;
    use weft_store::objects::ObjectKey;

    #[test]
    fn round_trip_and_refusal_of_everything_else() {
        let remove = ObjectRecord::Remove { key: ObjectKey { handle: Handle(7), index: 3 } };
        for record in [JournalRecord::Object(remove), JournalRecord::Mark(Lsn(0x0102_0304_0506_0708)), JournalRecord::Cut] {
            let mut bytes = BytesMut::new();
            record.encode(&mut bytes);
            assert_eq!(JournalRecord::decode(&bytes), Ok(record));
            for cut in 0..bytes.len() {
                assert_eq!(JournalRecord::decode(&bytes[..cut]), Err(Status::BadMessage));
            }
            bytes.put_slice(&[2, 0, 0, 0, 0, 0]);
            assert!(JournalRecord::decode(&bytes).is_ok(), "an extension that may be skipped");
            bytes.put_slice(&[3, 0, 0, 0, 0, 0]);
            assert_eq!(JournalRecord::decode(&bytes), Err(Status::NewerExtension));
            bytes.put_u8(0);
            assert!(JournalRecord::decode(&bytes).is_err());
        }
        assert_eq!(JournalRecord::decode(&[9]), Err(Status::BadMessage));
    }
}
