//! Files without a name (`O_TMPFILE`): one request, and nobody finds them until [`Client::link`]
//! gives them one. What has no name when its last open ends is removed.

use std::sync::Arc;

use bytes::Bytes;
use weft_base::{Attr, Credentials, Handle, Status};
use weft_rt::Runtime;
use weft_wire::ops::CreateRequest;

use super::granted::Granted;
use super::opens::file_request;
use crate::flow::Flow;
use crate::names::By;
use crate::{Client, CreateOptions, OpenFile, Result};

/// How often a file is made again because its server has restarted before its open was known.
const TRIES: usize = 4;

impl<R: Runtime> Client<R> {
    /// Makes a file without a name in a directory, whose permissions and hints count, and opens it.
    ///
    /// # Errors
    /// [`Status::Invalid`] if it is not opened for writing; [`Status::NotSupported`] in a directory
    /// with the hint `no_metafile`, and from older servers; permissions; servers that do not
    /// answer.
    pub async fn create_unnamed(&self, who: &Credentials, dir: Handle, options: &CreateOptions) -> Result<(Attr, Arc<OpenFile>)> {
        let flow = self.flow("create", dir);
        let _op = weft_trace::operation(weft_trace::event::CLIENT_CREATE);
        // Nobody sees it: it spreads such files over the servers of a directory.
        let name: Bytes = format!("{:016x}", self.rt().random()).into();
        for _ in 0..TRIES {
            let ticket = self.inner.opens.begin();
            let make = |at| CreateRequest {
                open: options.rights,
                open_sequence: ticket.sequence,
                unnamed: Some(true),
                ..file_request(at, &name, options, who)
            };
            let reply = self.call_in_dir(flow, dir, By::Name(&name), make).await.map_err(|error| match error.status {
                Status::NewerExtension => flow.error(Status::NotSupported),
                _ => error,
            })?;
            let (Some(state), Some(capability)) = (reply.state, reply.capability) else { return Err(flow.error(Status::BadMessage)) };
            if let Some(file) =
                self.inner.opens.opened(&ticket, who, options.rights, &state.attr, Some(Granted { capability, ceiling: reply.ceiling }))
            {
                drop(ticket);
                self.after_open(Flow { handle: reply.handle, ..flow }, &file, options.rights, 0).await;
                return Ok((state.attr, file));
            }
            if let Some(overtaken) = self.inner.opens.get(reply.handle) {
                // It is of no use to anybody. What its server does not hear stays owed.
                let _ = self.report(Flow { handle: reply.handle, ..flow }, &overtaken).await;
            }
        }
        Err(flow.error(Status::Busy))
    }
}
