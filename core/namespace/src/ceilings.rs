//! What files may take while somebody writes to them, if their owners or projects have a limit of
//! bytes.
//!
//! Only data servers know what a file takes while it is written, and they know no users. So who
//! opens such a file for writing gets a *ceiling* with the capability ([`Ceiling`]): no datafile
//! takes more than it has of a file of so many bytes without holes. Up to that the file counts in
//! the sums of its owner, from the moment in which the ceiling is given to that in which nobody
//! writes any more and the true bytes are known. One ceiling holds for all who write to a file; it
//! only rises. A client whose write is refused under it asks for a higher one
//! ([`RoomWanted`]), and that is where somebody is told that he has no more.

use weft_base::{BLOCK_BYTES, Handle, Layout, Result, Status, whole_blocks};
use weft_wire::ops::{QuotaId, RoomWanted};
use weft_wire::{Capability, Ceiling, Rights};

use crate::{Change, Inode, InodeFlags, Record, RequestContext, State};

/// Bytes beyond its size that a file gets with an open, at most.
pub const OPEN_MAX: u64 = 4 << 20;
/// The same as a part of what its owner has left on this server: many open files leave something.
const OPEN_PART: u64 = 256;
/// Bytes more than it asks for that a file gets when it asks, at most.
const MORE_MAX: u64 = 1 << 30;
/// The same as a part of what its owner has left.
const MORE_PART: u64 = 16;
/// An end of a write within so many bytes beyond twice the ceiling is no hole, as far as is known
/// here.
const NEAR: u64 = 8 << 20;

/// What a file may take while it is open for writing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reserved {
    /// Each datafile, up to what it has of a file of so many bytes, in whole blocks.
    pub(crate) file_bytes: u64,
    /// Beside that: what it took when it got its ceiling, if datafiles may have had more already.
    pub(crate) beside_bytes: u64,
}

impl Reserved {
    /// Bytes that the file takes at most.
    pub(crate) fn bytes(&self, layout: &Layout) -> u64 {
        // With strips any datafile may have all of it.
        let files = if layout.is_varstrip() { u64::from(layout.width) } else { 1 };
        self.beside_bytes.saturating_add(whole_blocks(self.file_bytes).saturating_mul(files))
    }
}

/// A user has not so many bytes left here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Lacks(u64);

/// Of a file that is opened for writing and has no ceiling: `size` bytes, of which it takes
/// `taken`, and its owner has `left` ones here.
fn first(layout: &Layout, size: u64, taken: u64, left: u64) -> Reserved {
    let more = |reserved: &Reserved| reserved.bytes(layout).saturating_sub(taken);
    let slack = (left / OPEN_PART).min(OPEN_MAX) / BLOCK_BYTES * BLOCK_BYTES;
    let whole = whole_blocks(size);
    let (with_slack, exact) =
        (Reserved { file_bytes: whole.saturating_add(slack), beside_bytes: 0 }, Reserved { file_bytes: whole, beside_bytes: 0 });
    // The holes of a file are reserved as well, unless they are too large for that.
    for reserved in [with_slack, exact] {
        if more(&reserved) <= left / 2 {
            return reserved;
        }
    }
    let beside = Reserved { file_bytes: slack, beside_bytes: taken };
    if more(&beside) <= left { beside } else { Reserved { file_bytes: 0, beside_bytes: taken } }
}

/// What a file with a ceiling gets whose writer wants more.
fn raised(layout: &Layout, has: Reserved, wanted: &RoomWanted, left: u64) -> std::result::Result<Reserved, Lacks> {
    if has.file_bytes > wanted.above_bytes {
        // Another writer has asked already.
        return Ok(has);
    }
    let to = |file_bytes: u64| Reserved { file_bytes, ..has };
    let more = |file_bytes: u64| to(file_bytes).bytes(layout).saturating_sub(has.bytes(layout));
    let end = whole_blocks(wanted.end_bytes);
    // How much a file with holes needs shows only when it is tried: at least each datafile gets a
    // stripe more.
    let round = u64::from(layout.stripe_bytes) * u64::from(layout.width);
    let step = has.file_bytes.saturating_add((has.file_bytes / 8).max(round)) / BLOCK_BYTES * BLOCK_BYTES;
    let least = if end > has.file_bytes { end.min(step) } else { step };
    if more(least) > left {
        return Err(Lacks(more(least)));
    }
    let slack = (left / MORE_PART).min(MORE_MAX).min(has.file_bytes.max(OPEN_MAX)) / BLOCK_BYTES * BLOCK_BYTES;
    // A hole before the end of the write is reserved only where that does not matter.
    let is_far = end > has.file_bytes.saturating_mul(2).saturating_add(NEAR);
    let enough = if is_far && more(end) > left / 4 { least } else { end.max(least) };
    let wishes = [enough.saturating_add(slack), enough, least];
    Ok(to(wishes.into_iter().find(|wish| more(*wish) <= left).expect("the least of them is there")))
}

impl State {
    fn reserved(&self, handle: Handle) -> Option<Reserved> {
        self.accounts().reserved(handle)
    }

    pub(crate) fn put_ceiling(&mut self, handle: Handle, reserved: Reserved) {
        // In a replay over a newer checkpoint it may be closed again, or gone.
        if let Some(inode) = self.inodes.get(handle).filter(|inode| inode.flags.has(InodeFlags::WRITING)).cloned() {
            self.accounts_mut().reserve(handle, &inode, reserved);
        }
    }

    /// A capability of this client with these rights; of a file whose owner is limited in bytes one
    /// for writing has a ceiling. `inode` is the file as the record makes it, the change of its
    /// ceiling follows in the record.
    ///
    /// # Errors
    /// [`Status::QuotaExceeded`]: it gets no higher ceiling before this server has asked for more.
    pub(crate) fn grant(
        &self,
        cx: &RequestContext<'_>,
        (handle, inode): (Handle, &Inode),
        rights: Rights,
        wanted: Option<&RoomWanted>,
    ) -> Result<(Capability, Option<Ceiling>, Option<Change>)> {
        let left = if rights.contains(Rights::WRITE) { self.bytes_left(inode.charged()) } else { None };
        let Some((left, _)) = left else { return Ok((cx.capability(handle, rights), None, None)) };
        let has = self.reserved(handle);
        let reserved = self.reserved_for(handle, inode, left, wanted).map_err(|_| Status::QuotaExceeded)?;
        let change = Change::PutCeiling { handle, file_bytes: reserved.file_bytes, beside_bytes: reserved.beside_bytes };
        let capability = cx.capability(handle, rights.with(Rights::UNDER_CEILING));
        let Layout { stripe_bytes, width, .. } = inode.layout;
        let width = if inode.layout.is_varstrip() { 1 } else { width };
        let ceiling = Ceiling::sign(cx.key, &capability, reserved.file_bytes, stripe_bytes, width);
        Ok((capability, Some(ceiling), (has != Some(reserved)).then_some(change)))
    }

    fn reserved_for(&self, handle: Handle, inode: &Inode, left: u64, wanted: Option<&RoomWanted>) -> std::result::Result<Reserved, Lacks> {
        match (self.reserved(handle), wanted) {
            (Some(has), None) => Ok(has),
            (Some(has), Some(wanted)) => raised(&inode.layout, has, wanted, left),
            (None, None) => Ok(first(&inode.layout, inode.size, inode.taken_bytes(), left)),
            // A power cut has taken what it had.
            (None, Some(wanted)) => {
                let has = first(&inode.layout, inode.size, inode.taken_bytes(), left);
                let left = left.saturating_sub(has.bytes(&inode.layout).saturating_sub(inode.taken_bytes()));
                raised(&inode.layout, has, &RoomWanted { above_bytes: wanted.above_bytes.max(has.file_bytes), ..wanted.clone() }, left)
            }
        }
    }

    /// Who must have how many bytes more here before the ceiling of a file can rise; `None`: it
    /// can, or it needs none.
    pub fn lacks_room(&self, handle: Handle, wanted: &RoomWanted) -> Option<(QuotaId, u64)> {
        let inode = self.peek(handle)?;
        let (left, id) = self.bytes_left(inode.charged())?;
        let Lacks(more) = self.reserved_for(handle, inode, left, Some(wanted)).err()?;
        Some((id, more))
    }

    /// A client tells that it has a file open for writing, and what it may have been given is not
    /// known any more: as much as an open gives, whatever is left.
    pub fn reserve_again(&self, handle: Handle, record: &mut Record) {
        let Some(inode) = self.peek(handle) else { return };
        if self.reserved(handle).is_none() && self.bytes_left(inode.charged()).is_some() {
            let file_bytes = whole_blocks(inode.size).saturating_add(OPEN_MAX);
            record.changes.push(Change::PutCeiling { handle, file_bytes, beside_bytes: 0 });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYOUT: Layout = Layout { stripe_bytes: 1 << 20, width: 4, first: 0, generation: 1 };
    const MIB: u64 = 1 << 20;
    const GIB: u64 = 1 << 30;

    fn wants(above_bytes: u64, end_bytes: u64) -> RoomWanted {
        RoomWanted { above_bytes, end_bytes }
    }

    #[test]
    fn an_open_never_takes_more_than_there_is() {
        for (size, taken, left) in [(0, 0, 0), (5, 4096, 0), (GIB, GIB, 10), (1 << 40, 4096, 10 * GIB), (1 << 40, 4096, 0), (7, 4096, GIB)]
        {
            for layout in [LAYOUT, Layout { generation: 1 | Layout::VARSTRIP, ..LAYOUT }] {
                let reserved = first(&layout, size, taken, left);
                assert!(reserved.bytes(&layout) <= taken + left, "{size} {taken} {left}: {reserved:?}");
            }
        }
        assert_eq!(first(&LAYOUT, 5, 4096, GIB), Reserved { file_bytes: 4096 + 4 * MIB, beside_bytes: 0 });
        assert_eq!(first(&LAYOUT, GIB, GIB, 0), Reserved { file_bytes: GIB, beside_bytes: 0 }, "what is there may be written");
    }

    #[test]
    fn a_gibibyte_takes_few_messages_and_the_last_blocks_one_each() {
        let (mut has, mut left, mut asked) = (first(&LAYOUT, 0, 0, 100 * GIB), 100 * GIB, 0);
        for end in (1..=GIB / MIB).map(|number| number * MIB) {
            if end > has.file_bytes {
                let more = raised(&LAYOUT, has, &wants(has.file_bytes, end), left).unwrap();
                left -= more.bytes(&LAYOUT) - has.bytes(&LAYOUT);
                (has, asked) = (more, asked + 1);
            }
        }
        assert_eq!(asked, 8);
        let has = Reserved { file_bytes: MIB, beside_bytes: 0 };
        assert_eq!(raised(&LAYOUT, has, &wants(MIB, MIB + 1), 4096), Ok(Reserved { file_bytes: MIB + 4096, beside_bytes: 0 }));
        assert_eq!(raised(&LAYOUT, has, &wants(MIB, MIB + 4097), 4096), Err(Lacks(8192)));
        assert_eq!(raised(&LAYOUT, has, &wants(0, 9 * MIB), 0), Ok(has), "it has risen already");
    }

    #[test]
    fn a_ceiling_rises_with_each_question_until_nothing_is_left() {
        for (mut has, end) in [
            (Reserved { file_bytes: 0, beside_bytes: 4 * GIB }, 1 << 40),
            (Reserved { file_bytes: 0, beside_bytes: 0 }, 1 << 50),
            (Reserved { file_bytes: GIB, beside_bytes: GIB }, 5),
        ] {
            let mut left = 10 * GIB;
            let mut asked = 0;
            while let Ok(more) = raised(&LAYOUT, has, &wants(has.file_bytes, end), left) {
                assert!(more.file_bytes > has.file_bytes);
                left = left.checked_sub(more.bytes(&LAYOUT) - has.bytes(&LAYOUT)).expect("no more than is left");
                (has, asked) = (more, asked + 1);
                assert!(asked < 64);
            }
            assert!(left < 10 * GIB / 2, "{left} are left");
        }
    }
}
