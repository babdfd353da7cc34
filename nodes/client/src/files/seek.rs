//! Data and holes of a file. Each data server says where its datafile goes on; the nearest of these
//! places in the file is the answer.

use weft_base::{Status, StripeIndex};
use weft_call::run_window;
use weft_layout::{end_in_file, local_bytes};
use weft_rt::Runtime;
use weft_wire::Rights;
use weft_wire::ops::ObjectSeekRequest;

use super::write::MESSAGES_MAX;
use crate::{Client, OpenFile, Result, SeekFor};

impl<R: Runtime> Client<R> {
    /// The first byte at or behind a byte offset that was written, or that was not; the end of the
    /// file counts as a hole. `None`: there is none, or the offset is not in the file. What others
    /// change meanwhile may be seen or not, byte by byte. A file on servers that do not know of
    /// holes has none.
    ///
    /// # Errors
    /// [`Status::Stale`] if the file is gone, servers that do not answer.
    pub async fn seek(&self, file: &OpenFile, offset: u64, what: SeekFor) -> Result<Option<u64>> {
        let flow = self.flow("seek", file.handle());
        let _op = weft_trace::operation(weft_trace::event::CLIENT_OTHER);
        let inode = file.inode();
        let (handle, hole) = (inode.handle, what == SeekFor::Hole);
        let size = self.getattr_in(flow, handle).await?.size;
        if offset >= size {
            return Ok(None);
        }
        // What came whole has no holes.
        if (file.rights().contains(Rights::READ) || inode.is_delayed())
            && let Some(content) = self.read_inline(flow, inode).await?
        {
            let size = content.len() as u64;
            return Ok((offset < size).then_some(if hole { size } else { offset }));
        }
        let distribution = self.distribution(flow, inode).await?;
        let questions = (0..u32::from(distribution.width())).map(|index| async move {
            let server = self.data_server(flow, &inode.layout, index).await?;
            let local = local_bytes(distribution, StripeIndex(index), offset);
            let reply = self.with_capability(flow, inode, Rights::default(), async |capability| {
                let request = ObjectSeekRequest { handle, index, capability, offset: local, hole };
                self.call(flow, server, &request).await
            });
            // The byte ends where a datafile with it would.
            Ok(reply.await?.at.map(|at| end_in_file(distribution, u64::from(index), at.saturating_add(1)) - 1))
        });
        let answers: Result<Vec<Option<u64>>> = Box::pin(run_window(questions, MESSAGES_MAX)).await.into_iter().collect();
        let nearest = match answers {
            Ok(places) => places.into_iter().flatten().min().filter(|at| *at < size),
            Err(error) if error.status == Status::NotSupported => (!hole).then_some(offset),
            Err(error) => return Err(error),
        };
        Ok(nearest.or(hole.then_some(size)))
    }
}
