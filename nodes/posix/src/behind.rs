//! Data on its way while programs go on. Reading ahead: more of a few open files is asked for
//! (`ahead.rs`), while their programs work on what they have. Write-behind: what was gathered of
//! files is sent to data servers ([`weft_client::Client::send_gathered`]), while their programs
//! write on, of one file at a time. Who reads or writes another one meanwhile does it by itself. So
//! a server that does not answer holds up nobody else, and many programs are not slowed down to one
//! flow.

use std::sync::Arc;

use weft_call::run_window;
use weft_client::{Client, OpenFile};
use weft_rt::{Either, Runtime, race};

use crate::ahead_queue::FLOWS;
use crate::data::MORE_NS;
use crate::gateway::Gateway;
use crate::posix::Posix;

impl<R: Runtime, G: Gateway> Posix<R, G> {
    /// Reads ahead, and sends what was gathered of files, until [`Posix::end`]. Without this flow,
    /// who reads and writes does.
    pub async fn move_in_background(&self) {
        let works = (0..=FLOWS).map(async |number| match number {
            0 => self.send_in_background().await,
            _ => self.read_in_background().await,
        });
        run_window(works, FLOWS + 1).await;
    }

    /// Reads ahead of one open file at a time.
    async fn read_in_background(&self) {
        self.closes.reads.rest();
        loop {
            let called = self.closes.reads.called.wait();
            let Some((open, asking)) = self.closes.reads.next() else {
                if self.closes.lock().ends {
                    return;
                }
                called.await;
                continue;
            };
            let op = weft_trace::operation(weft_trace::event::CLIENT_READ_AHEAD);
            open.ahead.note_span(op.number());
            let client = self.client.for_at_most(MORE_NS);
            let read = race(client.read_list(&open.file, &asking.ranges), open.ahead.given_up()).await;
            match read {
                Either::First(Ok(read)) => open.ahead.end_behind(asking, Some((read, self.client.content_hold(&open.file)))),
                Either::First(Err(_)) => open.ahead.give_up(),
                Either::Second(()) => {}
            }
            drop(op);
            self.closes.reads.rest();
        }
    }

    async fn send_in_background(&self) {
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
