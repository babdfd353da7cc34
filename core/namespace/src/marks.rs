//! Extensions of records that say only that they are there: what the record holds makes no sense to
//! a Weft of before, or would be damaged by it, so it refuses the record by the number.

use weft_base::{MODE_SEALED, Result, extension_header};
use weft_wire::Reader;

use crate::Change;

/// Has an inode of the distribution `varstrip`.
const VARSTRIP: u16 = 1;
/// Has an inode that is sealed.
const SEALED: u16 = 3;
/// Has an inode of a file whose content is on this server.
const INLINE: u16 = 5;
const TAGS: [u16; 3] = [VARSTRIP, SEALED, INLINE];

/// Which of them a record has, by tag.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Marks([bool; TAGS.len()]);

impl Marks {
    /// Those that a record with these changes must have.
    pub fn of(changes: &[Change]) -> Marks {
        Marks([changes.iter().any(has_strips), changes.iter().any(is_sealed), changes.iter().any(is_inline)])
    }

    /// From the extensions of a record, up to its end.
    pub fn take(reader: &mut Reader) -> Result<Marks> {
        reader.take_marks(TAGS).map(Marks)
    }

    /// Appends the extensions.
    pub fn put(self, out: &mut Vec<u8>) {
        for (tag, _) in TAGS.into_iter().zip(self.0).filter(|(_, is_there)| *is_there) {
            out.extend_from_slice(&extension_header(tag, 0));
        }
    }
}

fn has_strips(change: &Change) -> bool {
    matches!(change, Change::PutInode { inode, .. } if inode.layout.is_varstrip())
}

fn is_inline(change: &Change) -> bool {
    matches!(change, Change::PutInode { inode, .. } if inode.is_inline())
}

fn is_sealed(change: &Change) -> bool {
    match change {
        Change::PutInode { inode, .. } => inode.is_sealed(),
        Change::PutPartition { known, .. } => known.mode & MODE_SEALED != 0,
        _ => false,
    }
}
