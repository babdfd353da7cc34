//! Whole files written at once: in one message, if their server takes the content in beside the
//! inode; else made, written and closed.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use weft_base::{Attr, Credentials, Handle, Nanos, SECOND, Status, check_name};
use weft_layout::INLINE_BYTES_MAX;
use weft_rt::{Bulk, Runtime};
use weft_wire::Rights;

use super::opens::OPEN_TRIES;
use crate::{Client, CreateOptions, OpenFile, Result};

/// Directories of which it is known that their servers take no such content.
const DIRECTORIES_MAX: usize = 64;
/// For so long, in nanoseconds: somebody may set a hint.
const REFUSED_NS: u64 = 10 * SECOND;

/// What servers do not take in: from how many bytes on, by directory, and until when that is
/// believed. A content that is refused has been sent for nothing.
#[derive(Debug, Default)]
pub(crate) struct Refusals(Mutex<VecDeque<(Handle, usize, Nanos)>>);

impl Refusals {
    fn is_refused(&self, dir: Handle, bytes: usize, now: Nanos) -> bool {
        self.lock().iter().any(|(of, from, until)| *of == dir && bytes >= *from && now < *until)
    }

    fn note(&self, dir: Handle, bytes: usize, now: Nanos) {
        let mut refusals = self.lock();
        refusals.retain(|(of, ..)| *of != dir);
        refusals.truncate(DIRECTORIES_MAX - 1);
        refusals.push_front((dir, bytes, now + REFUSED_NS));
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, VecDeque<(Handle, usize, Nanos)>> {
        self.0.lock().expect("no code panics while it holds this lock")
    }
}

impl<R: Runtime> Client<R> {
    /// Makes a file of this name that holds exactly `content`, or gives the one that has the name
    /// this content; it is closed afterwards. In a directory with the hint `inline_limit` a small
    /// content that is new, or takes the place of one that came so, is one message, and others see
    /// the old content or the new one. Any other file is opened, cut, written and closed, and who
    /// reads it meanwhile sees that. Of the options only those that make the file count. Returns
    /// the attributes as of the reply that made the file, with the size of the content, and whether
    /// the name is new.
    ///
    /// # Errors
    /// As [`Client::create`], [`Client::write`] and [`Client::close`].
    pub async fn put(&self, who: &Credentials, dir: Handle, name: &[u8], options: &CreateOptions, content: &Bytes) -> Result<(Attr, bool)> {
        let (attr, file, created) = self.create_with(who, dir, name, options, content).await?;
        if let Some(file) = file {
            let written = self.write(&file, 0, Bulk::Slices(vec![content])).await;
            // What was written is told in any case.
            let closed = self.close(file).await;
            written.and(closed)?;
        }
        Ok((Attr { size: content.len() as u64, ..attr }, created))
    }

    /// The beginning of [`Client::put`]: with an open file, which is empty, it is for the caller to
    /// write and to close; without one all is done.
    ///
    /// # Errors
    /// As [`Client::create`].
    pub async fn create_with(
        &self,
        who: &Credentials,
        dir: Handle,
        name: &[u8],
        options: &CreateOptions,
        content: &Bytes,
    ) -> Result<(Attr, Option<Arc<OpenFile>>, bool)> {
        let (flow, now) = (self.flow("put", dir), self.rt().now());
        let _op = weft_trace::operation(weft_trace::event::CLIENT_CREATE);
        check_name(name).map_err(|status| flow.error(status))?;
        let name = Bytes::copy_from_slice(name);
        let options = CreateOptions { rights: Rights::WRITE, truncate: true, ..options.clone() };
        let refusals = &self.inner.refusals;
        let fits = content.len() <= INLINE_BYTES_MAX as usize && !refusals.is_refused(dir, content.len(), now);
        let mut outcome = Err(flow.error(Status::Busy));
        for _ in 0..if fits { OPEN_TRIES } else { 0 } {
            outcome = self.try_create(flow, who, dir, &name, &options, Some(content)).await;
            // The name led to a file that was removed before it could be opened: look again.
            if !matches!(&outcome, Err(error) if error.status == Status::Stale && error.handle != dir) {
                break;
            }
        }
        match outcome {
            Ok((attr, file, created)) => {
                if created && file.is_some() {
                    refusals.note(dir, content.len(), now);
                }
                Ok((attr, file, created))
            }
            Err(error) if fits && !matches!(error.status, Status::SharedAppend | Status::OthersWrite) => Err(error),
            // Nothing of that concerns contents.
            Err(_) => self.create(who, dir, &name, &options).await.map(|(attr, file, created)| (attr, Some(file), created)),
        }
    }
}
