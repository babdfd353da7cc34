//! FSSTAT, FSINFO, PATHCONF: the file system as a whole, and what it can.

use weft_posix::InodeNumber;
use weft_rt::Runtime;

use crate::gateway::{Caller, Nfs};
use crate::records::DATA_BYTES_MAX;
use crate::types::{Failure, put_attr_after};
use crate::xdr::{Reader, Writer};

/// Preferred bytes of a listing.
const LISTING_BYTES: u32 = 64 << 10;
/// What reads and writes should be multiples of, in bytes.
const MULTIPLE: u32 = 4096;
/// Links, symlinks, the same everywhere, times can be set.
const PROPERTIES: u32 = 1 | 2 | 8 | 16;
/// How many inodes seem to be free.
const INODES_FREE: u64 = u32::MAX as u64;
/// Longest name, in bytes.
const NAME_BYTES_MAX: u32 = 255;

impl<R: Runtime> Nfs<R> {
    pub(super) async fn fsstat(&self, caller: &Caller, mut arguments: Reader, out: &mut Writer) -> Result<(), Failure> {
        let object = self.object(caller, &mut arguments)?;
        let attr = self.seen(object.handle).await?;
        let stats = self.posix.statfs(&object.who, InodeNumber::of(object.handle)).await?;
        put_attr_after(out, Some(&attr), self.fs_id);
        out.u64(stats.capacity_bytes).u64(stats.free_bytes).u64(stats.free_bytes);
        let free = stats.inodes_free.unwrap_or(INODES_FREE);
        out.u64(stats.inodes.saturating_add(free)).u64(free).u64(free);
        // It may change at any time.
        out.u32(0);
        Ok(())
    }

    pub(super) async fn fsinfo(&self, caller: &Caller, mut arguments: Reader, out: &mut Writer) -> Result<(), Failure> {
        let object = self.object(caller, &mut arguments)?;
        let attr = self.seen(object.handle).await?;
        put_attr_after(out, Some(&attr), self.fs_id);
        for _reads_then_writes in 0..2 {
            out.u32(DATA_BYTES_MAX).u32(DATA_BYTES_MAX).u32(MULTIPLE);
        }
        out.u32(LISTING_BYTES).u64(weft_layout::FILE_BYTES_MAX);
        // Times are kept to the nanosecond.
        out.u32(0).u32(1).u32(PROPERTIES);
        Ok(())
    }

    pub(super) async fn pathconf(&self, caller: &Caller, mut arguments: Reader, out: &mut Writer) -> Result<(), Failure> {
        let object = self.object(caller, &mut arguments)?;
        let attr = self.seen(object.handle).await?;
        put_attr_after(out, Some(&attr), self.fs_id);
        out.u32(u32::MAX).u32(NAME_BYTES_MAX);
        // No name is cut, owners are not given away, upper and lower case are two.
        out.bool(true).bool(true).bool(false).bool(true);
        Ok(())
    }
}
