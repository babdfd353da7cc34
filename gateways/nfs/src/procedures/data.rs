//! READ, WRITE, COMMIT.
//!
//! The gateway keeps no data: what was written is at the data servers when the call is answered,
//! and on stable storage as the file system's durability says, or when the call asks for it, or
//! after a COMMIT. So a gateway that dies loses nothing, and a COMMIT may go to another one. What a
//! data server loses that restarts, the verifier tells.

use weft_base::{Payload, Status};
use weft_posix::{Stable, WriteHow};
use weft_rt::{Bulk, Runtime};
use weft_wire::Rights;

use crate::gateway::{Caller, Nfs, Results};
use crate::records::DATA_BYTES_MAX;
use crate::types::{Failure, NfsStatus, put_attr_after, put_change};
use crate::xdr::{Garbage, Reader, Writer};

impl<R: Runtime> Nfs<R> {
    pub(super) async fn read(&self, caller: &Caller, mut arguments: Reader, results: &mut Results) -> Result<(), Failure> {
        let object = self.object(caller, &mut arguments)?;
        let (offset, count) = (arguments.u64()?, arguments.u32()?.min(DATA_BYTES_MAX));
        let before = self.seen(object.handle).await?;
        let number = self.opened(&object, &before, Rights::READ).await?;
        let read = self.posix.read(number, offset, count.into()).await;
        self.give_back(object.handle, number, false);
        let read = read?;
        let bytes: u64 = read.iter().map(Payload::len).sum();
        let after = self.seen_after(object.handle).await;
        let size = after.as_ref().map(|attr| attr.size);
        // Fewer bytes than asked for end the file, whatever its size has become since.
        let is_end = bytes < u64::from(count) || size.is_some_and(|size| offset.saturating_add(bytes) >= size);
        let out = &mut results.out;
        put_attr_after(out, after.as_ref(), self.fs_id);
        out.u32(bytes as u32).bool(is_end).u32(bytes as u32);
        results.data = read.iter().map(Payload::to_bytes).collect();
        Ok(())
    }

    pub(super) async fn write(&self, caller: &Caller, mut arguments: Reader, out: &mut Writer) -> Result<(), Failure> {
        let object = self.object(caller, &mut arguments)?;
        let (offset, count, stable) = (arguments.u64()?, arguments.u32()?, arguments.u32()?);
        let data = arguments.opaque(DATA_BYTES_MAX as usize)?;
        if stable > 2 {
            return Err(Garbage.into());
        }
        object.may_change()?;
        if count as usize != data.len() {
            return Err(NfsStatus::INVALID.into());
        }
        let before = self.seen(object.handle).await?;
        let number = self.opened(&object, &before, Rights::WRITE).await?;
        // Taken first: a server that restarts meanwhile may lose the data.
        let verifier = self.write_verifier();
        let stable_how = [Stable::No, Stable::Data, Stable::All][stable as usize];
        let how = WriteHow { append: false, stable: stable_how };
        let write = async || self.posix.write(&object.who, number, offset, Bulk::Slices(vec![&data]), how).await;
        let mut written = if data.is_empty() { Ok(()) } else { write().await };
        // His clients have closed these files long ago, for all that they know.
        if written.as_ref().is_err_and(|error| error.status == Status::QuotaExceeded) && self.make_room().await {
            written = write().await;
        }
        self.give_back(object.handle, number, false);
        written?;
        // Others may have written in between, so nothing is said of before.
        put_change(out, None, self.seen_after(object.handle).await.as_ref(), self.fs_id);
        out.u32(count).u32(stable).fixed(&verifier);
        Ok(())
    }

    pub(super) async fn commit(&self, caller: &Caller, mut arguments: Reader, out: &mut Writer) -> Result<(), Failure> {
        let object = self.object(caller, &mut arguments)?;
        // A range; all of the file is as good.
        arguments.u64()?;
        arguments.u32()?;
        self.seen(object.handle).await?;
        let number = self.opened_by_any(&object).await?;
        let committed = self.posix.commit(number).await;
        self.give_back(object.handle, number, true);
        committed?;
        // Taken last: all servers of the file have answered since.
        let verifier = self.write_verifier();
        put_change(out, None, self.seen_after(object.handle).await.as_ref(), self.fs_id);
        out.fixed(&verifier);
        Ok(())
    }
}
