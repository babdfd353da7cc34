//! Extensions of records that say only that they are there: what the record holds makes no sense to
//! a Weft of before, or would be damaged by it, so it refuses the record by the number.

use weft_base::{MODE_ACL, MODE_SEALED, Result, extension_header};
use weft_wire::Reader;

use crate::Change;
use crate::acls::is_acl;

/// Has an inode of the distribution `varstrip`.
const VARSTRIP: u16 = 1;
/// Has an inode that is sealed.
const SEALED: u16 = 3;
/// Has an inode of a file whose content is on this server.
const INLINE: u16 = 5;
/// Has an access control list.
const ACL: u16 = 7;
/// Has an inode that counts for a project.
const PROJECT: u16 = 9;
const TAGS: [u16; 5] = [VARSTRIP, SEALED, INLINE, ACL, PROJECT];

/// Which of them a record has, by tag.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Marks([bool; TAGS.len()]);

impl Marks {
    /// Those that a record with these changes must have.
    pub fn of(changes: &[Change]) -> Marks {
        let modes = changes.iter().fold(0, |modes, change| modes | mode(change));
        let (is_sealed, has_list) = (modes & MODE_SEALED != 0, modes & MODE_ACL != 0);
        Marks([changes.iter().any(has_strips), is_sealed, changes.iter().any(is_inline), has_list, changes.iter().any(has_project)])
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

fn has_project(change: &Change) -> bool {
    matches!(change, Change::PutInode { inode, .. } if inode.project != 0)
}

/// The bits of a mode that a change sets.
fn mode(change: &Change) -> u32 {
    match change {
        Change::PutInode { inode, .. } => inode.mode,
        Change::PutPartition { known, .. } => known.mode,
        Change::PutXattr { name, .. } if is_acl(name) => MODE_ACL,
        _ => 0,
    }
}
