//! Closes that go to the servers many at a time. Nobody waits for a close (writes are at the
//! servers when they return, and the servers know what this client has open), so it may wait a
//! moment for others: the servers keep treating this client as a writer until it arrives, and
//! therefore ask the data servers for the size. Nothing is stale meanwhile. Of a new file the close
//! may bring all that was written, or it goes to data servers just before; until the close arrives
//! the servers tell nobody else of the file. What they do not take is tried again by the flow that
//! keeps alive, and at the end.

use std::sync::Arc;

use weft_base::{MILLISECOND, Nanos, SECOND};
use weft_client::OpenFile;
use weft_rt::{Runtime, race};

use crate::gateway::Gateway;
use crate::posix::Posix;

/// How long a close may wait for others, in nanoseconds.
const OTHERS_NS: u64 = 3 * MILLISECOND;
/// The pause after servers have not taken what is left, in nanoseconds.
const AGAIN_NS: u64 = 100 * MILLISECOND;
/// How often is looked whether somebody else has closed what waited, in nanoseconds.
const LOOK_NS: u64 = MILLISECOND / 10;
/// How often servers are asked whether they have restarted, in nanoseconds: well within the time
/// for which they keep the sessions of clients.
const KEEP_ALIVE: u64 = 5 * SECOND;

impl<R: Runtime, G: Gateway> Posix<R, G> {
    /// Closes a file soon.
    pub(crate) async fn close_soon(&self, file: Arc<OpenFile>) {
        file.closes_soon();
        if let Some(file) = self.closes.add(file) {
            Box::pin(self.close_all(vec![file])).await;
        }
    }

    /// Tells servers of files that were made without asking, and closes what is given back, until
    /// [`Posix::end`].
    pub async fn close_in_background(&self) {
        loop {
            let called = self.closes.called.wait();
            let (is_empty, ends) = {
                let state = self.closes.lock();
                (state.waiting.is_empty() && !self.client.owes_absorbed(), state.ends)
            };
            match (is_empty, ends) {
                (true, true) => return,
                (true, false) => {
                    called.await;
                    continue;
                }
                (false, true) => {}
                (false, false) => self.rt().sleep_until(self.now() + OTHERS_NS).await,
            }
            let mut files = {
                let mut state = self.closes.lock();
                state.works = true;
                std::mem::take(&mut state.waiting)
            };
            // Those of which servers have not heard are still being made.
            let done_by = if ends { Nanos::NEVER } else { Nanos(self.now().0.saturating_sub(OTHERS_NS)) };
            self.warn_of_lost(self.client.tell_absorbed_by(done_by, |file| self.forget_told(file)).await);
            let mut untold = if ends { Vec::new() } else { self.client.take_untold(&mut files) };
            self.close_all(files).await;
            let ends = {
                let mut state = self.closes.lock();
                state.works = false;
                state.waiting.append(&mut untold);
                state.ends
            };
            if ends {
                self.closes.ended.notify();
            }
        }
    }

    /// Lets servers that have restarted know what is open here, until [`Posix::end`].
    pub async fn keep_alive(&self) {
        let mut next = self.now() + KEEP_ALIVE;
        loop {
            let ended = self.closes.ended.wait();
            if self.closes.lock().ends {
                return;
            }
            race(ended, self.rt().sleep_until(next)).await;
            if self.now() >= next {
                self.client.keep_alive().await;
                self.tell_absorbed().await;
                self.close_all(self.walks.expire(self.now())).await;
                next = self.now() + KEEP_ALIVE;
            }
        }
    }

    /// To be driven when the last request has been answered: closes everything that is open, for at
    /// most so many nanoseconds.
    pub async fn end(&self, patience_ns: u64) {
        for open in self.files.drain() {
            self.close_description(&open).await;
        }
        for file in self.sealed.drain().into_iter().chain(self.walks.expire(Nanos::NEVER)) {
            self.close_soon(file).await;
        }
        // Nobody is above any more.
        self.closes.lock().ends = true;
        let end = self.now() + patience_ns;
        self.closes.called.notify();
        self.closes.ended.notify();
        self.closes.sends.called.notify();
        self.closes.reads.called.notify();
        loop {
            let ended = self.closes.ended.wait();
            let left = {
                let state = self.closes.lock();
                if !state.works && state.waiting.is_empty() {
                    break;
                }
                state.waiting.len()
            };
            if self.now() >= end {
                self.gateway.warn(&format!("gave up closing {left} files: the servers do not answer"));
                break;
            }
            race(ended, self.rt().sleep_until(end)).await;
        }
        self.bring_left(end).await;
        // Not before: what was delayed is lost if others ask for it.
        self.give_back_directories(patience_ns).await;
        self.leave_leases().await;
    }

    /// What servers have not taken of closed files is brought again and again, until then.
    async fn bring_left(&self, end: Nanos) {
        while self.client.closes_left() > 0 {
            let left = self.client.files_left();
            if self.now() >= end && left > 0 {
                return self.gateway.warn(&format!("gave up bringing what was written to {left} files: it is lost"));
            }
            self.client.for_at_most(end.since(self.now())).keep_alive().await;
            if left == 0 {
                // What a server has not heard of by now it closes when it misses this client.
                return;
            }
            if self.client.files_left() > 0 {
                self.rt().sleep_until(end.min(self.now() + AGAIN_NS)).await;
            }
        }
    }

    /// What is open here delays nothing any more, and what waits to be closed is, within so many
    /// nanoseconds.
    pub(crate) async fn end_delays(&self, within_ns: u64) {
        let open = self.files.numbers(|_| true).into_iter().filter_map(|number| self.files.get(number));
        let told: Vec<_> = open.filter_map(|open| self.client.share_appends(open.file.handle())).collect();
        told.into_iter().for_each(|file| self.closes.push(file));
        self.await_closes(within_ns).await;
    }

    /// Waits until all that was given back before is closed at its servers, for at most so many
    /// nanoseconds: by the flow that closes.
    pub async fn await_closes(&self, within_ns: u64) {
        let end = self.now() + within_ns;
        loop {
            let is_over = {
                let state = self.closes.lock();
                state.waiting.is_empty() && !state.works
            };
            if is_over || self.now() >= end {
                return;
            }
            self.rt().sleep_until(self.now() + MILLISECOND).await;
        }
    }

    /// Waits until servers have heard of all that was made, removed and closed here before, for at
    /// most so many nanoseconds. False: some of it is left, and is told later.
    pub async fn settle(&self, within_ns: u64) -> bool {
        let end = self.now() + within_ns;
        loop {
            self.tell_absorbed().await;
            let (files, works) = {
                let mut state = self.closes.lock();
                (std::mem::take(&mut state.waiting), state.works)
            };
            if files.is_empty() && !works && !self.client.owes_absorbed() {
                return true;
            }
            self.close_all(files).await;
            if self.now() >= end {
                return false;
            }
            if works {
                self.rt().sleep_until(self.now() + LOOK_NS).await;
            }
        }
    }

    /// Somebody has made a file without asking: its server is to be told soon.
    pub(crate) fn made_alone(&self) {
        if self.client.begins_to_owe() {
            self.closes.called.notify();
        }
    }

    async fn tell_absorbed(&self) {
        self.warn_of_lost(self.client.tell_absorbed(|file| self.forget_told(file)).await);
    }

    /// Servers hear of all files that were made without asking, within so many nanoseconds.
    pub(crate) async fn give_back_directories(&self, within_ns: u64) {
        let client = self.client.for_at_most(within_ns);
        self.warn_of_lost(client.give_back_directories(|file| self.forget_told(file)).await);
    }

    /// Nobody waits who could be told.
    fn warn_of_lost(&self, lost: Vec<weft_client::Error>) {
        if !lost.is_empty() {
            self.gateway.forget_names();
        }
        for error in lost {
            self.forget_told(error.handle);
            self.gateway.warn(&format!("a file that was made is lost: {error}"));
        }
    }

    async fn close_all(&self, files: Vec<Arc<OpenFile>>) {
        let read = files.iter().map(|file| file.is_read().then(|| file.handle())).collect::<Vec<_>>();
        let results = self.client.close_many(&files).await;
        let mut left: Option<(weft_client::Error, usize)> = None;
        for ((result, read), file) in results.into_iter().zip(read).zip(&files) {
            // Nobody waits for the answer; what servers do wrong is noted.
            if let Err(error) = self.noted(result)
                && file.has_gathered()
            {
                left = Some(left.map_or((error, 1), |(first, count)| (first, count + 1)));
            }
            // Its time of the last access is another one now.
            read.into_iter().for_each(|file| self.forget_told(file));
        }
        if let Some((error, count)) = left {
            self.gateway.warn(&format!("{count} files that were closed are not at data servers yet, which is tried again: {error}"));
        }
    }
}
