//! Where the bytes of a file are. A layout says it, except for files with the distribution
//! `varstrip`: their strips are asked for once, with the first access to their data.

use std::sync::Arc;

use weft_base::{Handle, Layout, Status};
use weft_layout::{Distribution, Strips};
use weft_rt::Runtime;
use weft_wire::ops::StripsRequest;

use super::open_inode::OpenInode;
use crate::flow::Flow;
use crate::{Client, Result};

impl<R: Runtime> Client<R> {
    /// That of an open file.
    #[inline]
    pub(super) async fn distribution<'a>(&self, flow: Flow, inode: &'a OpenInode) -> Result<&'a Distribution> {
        if let Some(known) = inode.distribution.get() {
            return Ok(known);
        }
        let asked = Box::pin(self.ask_strips(flow, inode.handle, &inode.layout)).await?;
        Ok(inode.distribution.get_or_init(|| Distribution::Strips(asked)))
    }

    /// That of any file.
    pub(crate) async fn distribution_of(&self, flow: Flow, handle: Handle, layout: &Layout) -> Result<Distribution> {
        if let Some(distribution) = Distribution::of(layout) {
            return Ok(distribution);
        }
        match self.inner.opens.get(handle) {
            Some(inode) => self.distribution(flow, &inode).await.cloned(),
            None => Box::pin(self.ask_strips(flow, handle, layout)).await.map(Distribution::Strips),
        }
    }

    /// The strips of a file with the distribution `varstrip`, for people.
    ///
    /// # Errors
    /// [`Status::Invalid`] for a file without; [`Status::Stale`] if it is gone; servers that do not
    /// answer.
    pub async fn strips(&self, handle: Handle, layout: &Layout) -> Result<Arc<Strips>> {
        let flow = self.flow("strips", handle);
        let _op = weft_trace::operation(weft_trace::event::CLIENT_OTHER);
        self.ask_strips(flow, handle, layout).await
    }

    async fn ask_strips(&self, flow: Flow, handle: Handle, layout: &Layout) -> Result<Arc<Strips>> {
        let server = self.owner(flow, handle).await?;
        let reply = self.call(flow, server, &StripsRequest { handle }).await?;
        let strips = std::str::from_utf8(&reply.strips).ok().and_then(|text| Strips::parse(text).ok());
        let strips = strips.filter(|strips| strips.width() == layout.width).ok_or(flow.error_at(Status::BadMessage, server))?;
        Ok(Arc::new(strips))
    }
}
