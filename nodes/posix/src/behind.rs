//! Write-behind: one flow sends to data servers what was gathered of files
//! ([`weft_client::Client::send_gathered`]), while their programs write on. It works for one file
//! at a time; who writes to another one meanwhile sends for itself. So a server that does not
//! answer holds up nobody else, and many programs are not slowed down to one flow.

use std::sync::Arc;

use weft_client::{Client, OpenFile};
use weft_rt::Runtime;

use crate::gateway::Gateway;
use crate::posix::Posix;

impl<R: Runtime, G: Gateway> Posix<R, G> {
    /// Sends what was gathered of files, until [`Posix::end`]. Without this flow, who writes does.
    pub async fn send_in_background(&self) {
        loop {
            let called = self.closes.sends.called.wait();
            match self.closes.sends.next() {
                // What fails stays with the client, and the next write or the close says so.
                Some(file) => {
                    let _ = self.noted(self.client.send_gathered(&file).await);
                }
                None if self.closes.lock().ends => return,
                None => called.await,
            }
        }
    }

    /// Much was gathered of a file: it is sent soon, or is when this returns.
    pub(crate) async fn send_behind(&self, client: &Client<R>, file: &Arc<OpenFile>) {
        if !self.closes.sends.takes(file) {
            // As above.
            let _ = self.noted(client.send_gathered(file).await);
        }
    }
}
