//! Reading, writing and syncing open files.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use weft_base::{Credentials, Handle, Payload, SECOND, set_id_bits};
use weft_client::{Client, DelayWrites, Fallocate, Hold, Result, SeekFor, SetAttr};
use weft_rt::{Bulk, Either, Runtime, race};
use weft_trace::event;
use weft_wire::Rights;

use crate::ahead::Begun;
use crate::description::{Description, Stable};
use crate::gateway::Gateway;
use crate::posix::Posix;

/// Bytes that one call of [`Posix::copy`] copies at most, so that its caller is answered soon.
const COPY_BYTES_MAX: u32 = 16 << 20;
/// Bytes that are on their way at once.
const COPY_PIECE_BYTES: u32 = 4 << 20;

/// How long a read may wait for more than is wanted of it, in nanoseconds.
pub(crate) const MORE_NS: u64 = 2 * SECOND;

/// How data is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteHow {
    /// At the end of the file as it is then (`O_APPEND`), wherever the caller thinks that is.
    pub append: bool,
    /// What is on stable storage when the write returns, if it is more than the open asked for.
    pub stable: Stable,
}

impl<R: Runtime, G: Gateway> Posix<R, G> {
    /// Reads up to so many bytes; fewer only at the end of the file.
    ///
    /// # Errors
    /// [`weft_base::Status::Stale`] if no such file is open; servers that do not answer.
    pub async fn read(&self, file: u64, offset: u64, bytes: u64) -> Result<Vec<Payload>> {
        let open = self.description(file, "read")?;
        self.note_pages(&open);
        // A cache asks for whole pages; reading past the end would cost a question for the exact
        // size, which an open file in a cache does not need: what follows the size of its open is
        // for the next open to see.
        let bytes = match open.cached {
            true => bytes.min(open.file.size_known().saturating_sub(offset)),
            false => bytes,
        };
        open.note_read();
        // Such a cache reads ahead by itself.
        let outcome = match open.cached {
            true => self.client.read(&open.file, offset, bytes).await,
            false => self.read_on(&open, offset, bytes).await,
        };
        self.noted(outcome)
    }

    /// Reads from what was read ahead, or from servers, and then more of a file that is read in
    /// order.
    async fn read_on(&self, open: &Arc<Description>, offset: u64, bytes: u64) -> Result<Vec<Payload>> {
        let Begun { mut read, hold, is_coming } = open.ahead.begin(offset, bytes, || self.client.content_hold(&open.file));
        let had = |read: &[Payload]| read.iter().map(Payload::len).sum::<u64>();
        if is_coming {
            let (at, missing) = (offset + had(&read), bytes - had(&read));
            Box::pin(self.await_ahead(open, (at, missing))).await;
            read.extend(open.ahead.go_on(at, missing));
        }
        let had = had(&read);
        if had < bytes {
            read.extend(self.read_rest(open, (offset + had, bytes - had), hold).await?);
        }
        if let Some(hold) = hold
            && let Some(asking) = open.ahead.ask_behind(hold, open.file.size_known(), &self.pages.ahead)
            && let Some((_, refused)) = self.closes.reads.add((open.clone(), asking))
        {
            open.ahead.end_behind(refused, None);
        }
        Ok(read)
    }

    /// Waits for bytes that are being read ahead.
    async fn await_ahead(&self, open: &Description, (at, bytes): (u64, u64)) {
        let mut op = weft_trace::operation(event::CLIENT_READ);
        op.range(at, bytes);
        let mut waits = weft_trace::span(event::CLIENT_AHEAD);
        if let Either::First(span) = race(open.ahead.comes(), self.rt().sleep_until(self.now() + MORE_NS)).await {
            waits.range(span.into(), 0);
        }
    }

    /// Reads so many bytes at `at`, and more if the file is read on under this hold.
    async fn read_rest(&self, open: &Description, (at, missing): (u64, u64), hold: Option<Hold>) -> Result<Vec<Payload>> {
        let end = at.saturating_add(missing);
        let Some(asking) =
            hold.and_then(|hold| open.ahead.ask((missing, end), hold, open.file.size_known(), self.now(), &self.pages.ahead))
        else {
            return self.client.read(&open.file, at, missing).await;
        };
        let client = self.client.for_one_operation();
        match client.for_at_most(MORE_NS).read_list(&open.file, &asking.ranges).await {
            Ok(all) => Ok(open.ahead.end(asking, all, self.client.content_hold(&open.file), self.now())),
            Err(_) => {
                open.ahead.give_up();
                client.read(&open.file, at, missing).await
            }
        }
    }

    /// Writes data. It is at the servers when this returns, or, of a file that nobody else has
    /// open, kept here and seen by everybody all the same ([`weft_client::Client::write`]).
    ///
    /// # Errors
    /// [`weft_base::Status::Stale`] if no such file is open; no space; servers that do not answer.
    pub async fn write(&self, who: &Credentials, file: u64, offset: u64, data: Bulk<'_>, how: WriteHow) -> Result<()> {
        let open = self.changing_file(file, "write")?;
        if data.is_empty() {
            // No change, also not of the time.
            return Ok(());
        }
        let client = self.client.for_one_operation();
        self.before_change(who, file, &client, &open).await?;
        let sync = how.stable.max(open.stable).data_only();
        let written = match (how.append, sync) {
            (true, _) if self.options.appends_alone => Box::pin(client.append(&open.file, data, sync)).await,
            (true, _) => Box::pin(client.append_shared(&open.file, data, sync)).await,
            (false, None) => client.write(&open.file, offset, data).await,
            (false, Some(data_only)) => Box::pin(client.write_synced(&open.file, offset, data, data_only)).await,
        };
        self.noted(written)?;
        self.after_change(who, &client, &open).await
    }

    /// Copies bytes of one open file (its number, and the offset of the first byte) into another
    /// one, past all caches above. Gives how many: fewer than asked for at the end of the file, if
    /// they are more than 16 MiB, and before an error.
    ///
    /// # Errors
    /// As [`Posix::read`] and [`Posix::write`], of the first byte.
    pub async fn copy(&self, who: &Credentials, from: (u64, u64), to: (u64, u64), bytes: u64) -> Result<u32> {
        self.check_changes("copy", Handle(0))?;
        let wanted = u32::try_from(bytes).unwrap_or(u32::MAX).min(COPY_BYTES_MAX);
        let mut copied = 0;
        while copied < wanted {
            let piece = (wanted - copied).min(COPY_PIECE_BYTES);
            match Box::pin(self.copy_piece(who, from, to, (copied, piece))).await {
                Ok(0) => break,
                Ok(more) => copied += more,
                Err(error) if copied == 0 => return Err(error),
                // The caller comes again for the rest.
                Err(_) => break,
            }
        }
        Ok(copied)
    }

    async fn copy_piece(&self, who: &Credentials, from: (u64, u64), to: (u64, u64), (done, bytes): (u32, u32)) -> Result<u32> {
        let read = self.read(from.0, from.1 + u64::from(done), bytes.into()).await?;
        let read: Vec<_> = read.iter().map(Payload::to_bytes).collect();
        let slices: Vec<&[u8]> = read.iter().map(|piece| &piece[..]).collect();
        let copied = slices.iter().map(|piece| piece.len() as u32).sum();
        if copied > 0 {
            self.write(who, to.0, to.1 + u64::from(done), Bulk::Slices(slices), WriteHow::default()).await?;
        }
        Ok(copied)
    }

    /// Reads many ranges (byte offset, number of bytes) of an open file, in the order of their
    /// offsets and without overlaps: one message to each data server that has any of them.
    ///
    /// # Errors
    /// As [`weft_client::Client::read_list`]; [`weft_base::Status::Stale`] if no such file is open.
    pub async fn read_list(&self, file: u64, ranges: &[(u64, u64)]) -> Result<Vec<Vec<Payload>>> {
        let open = self.description(file, "read")?;
        open.note_read();
        self.noted(self.client.read_list(&open.file, ranges).await)
    }

    /// Writes many ranges of an open file, as [`Posix::read_list`] reads them; `data` holds their
    /// bytes one after another.
    ///
    /// # Errors
    /// As [`weft_client::Client::write_list`]; [`weft_base::Status::Stale`] if no such file is
    /// open.
    pub async fn write_list(&self, who: &Credentials, file: u64, ranges: &[(u64, u64)], data: Bulk<'_>) -> Result<()> {
        let open = self.changing_file(file, "write")?;
        let client = self.client.for_one_operation();
        self.before_change(who, file, &client, &open).await?;
        self.noted(client.write_list(&open.file, ranges, data).await)?;
        self.after_change(who, &client, &open).await?;
        self.make_stable(&client, &open).await
    }

    /// Reserves, zeroes or gives back a range of an open file (`fallocate`).
    ///
    /// # Errors
    /// As [`weft_client::Client::fallocate`].
    pub async fn fallocate(&self, who: &Credentials, file: u64, offset: u64, bytes: u64, how: Fallocate) -> Result<()> {
        let open = self.changing_file(file, "fallocate")?;
        let client = self.client.for_one_operation();
        self.before_change(who, file, &client, &open).await?;
        // Without the deadline of one operation: a large range takes many.
        let outcome = Box::pin(self.client.fallocate(who, &open.file, offset, bytes, how)).await;
        if outcome.is_err() {
            // A part may be reserved, and the file longer: what caches above do not expect.
            self.forget_told(open.file.handle());
        }
        self.noted(outcome)?;
        self.after_change(who, &client, &open).await?;
        // The range may have taken longer than one operation may.
        self.make_stable(&self.client.for_one_operation(), &open).await
    }

    /// Where an open file has data or a hole. What programs of this gateway may have changed in a
    /// mapping its servers have not heard of: such a file has no holes.
    ///
    /// # Errors
    /// As [`weft_client::Client::seek`].
    pub async fn seek(&self, file: u64, offset: u64, what: SeekFor) -> Result<Option<u64>> {
        let open = self.description(file, "seek")?;
        let handle = open.file.handle();
        let both = Rights::READ.with(Rights::WRITE);
        if self.files.numbers(|open| open.file.handle() == handle && open.file.rights().contains(both)).is_empty() {
            return self.noted(self.client.seek(&open.file, offset, what).await);
        }
        let size = self.noted(self.client.getattr(handle).await)?.size;
        let at = if what == SeekFor::Hole { size } else { offset };
        Ok((offset < size).then_some(at))
    }

    /// Somebody is about to change the data of an open file.
    async fn before_change(&self, who: &Credentials, file: u64, client: &Client<R>, open: &Description) -> Result<()> {
        let is_allowed = self.options.appends_alone && open.stable == Stable::No;
        let delays = DelayWrites::allowed(is_allowed, self.options.keeps_locks || self.options.hears_closes);
        self.noted(client.begin_to_write(&open.file, delays).await)?;
        if who.uid != 0 && self.set_id.take(file) {
            Box::pin(self.clear_set_id(client, open.file.handle())).await?;
        }
        Ok(())
    }

    /// Does what the opener asked for after a change that has no synced form of its own.
    async fn make_stable(&self, client: &Client<R>, open: &Description) -> Result<()> {
        match open.stable.data_only() {
            Some(data_only) => self.noted(Box::pin(client.fsync(&open.file, data_only)).await),
            None => Ok(()),
        }
    }

    /// Somebody has changed the data of an open file.
    async fn after_change(&self, who: &Credentials, client: &Client<R>, open: &Description) -> Result<()> {
        if who.uid != 0
            && let Some(epoch) = open.newer_epoch()
        {
            Box::pin(self.clear_set_id(client, open.file.handle())).await?;
            open.epoch.store(epoch, Ordering::Relaxed);
        }
        self.told.written(open.file.handle());
        if open.file.has_much_gathered() {
            Box::pin(self.send_behind(client, &open.file)).await;
        }
        Ok(())
    }

    /// Brings what was written to an open file to stable storage; with `data_only` only such
    /// attributes with it as are needed to find it.
    ///
    /// # Errors
    /// [`weft_base::Status::Stale`] if no such file is open; broken disks; servers that do not
    /// answer.
    pub async fn fsync(&self, file: u64, data_only: bool) -> Result<()> {
        let open = self.description(file, "fsync")?;
        self.noted(self.client.fsync(&open.file, data_only).await)
    }

    /// Notes which version of a file the pages above are from. Not before one is asked for: until
    /// the answer to the open was taken in, there may still be pages of another version, and
    /// somebody else who opens the file would keep them.
    fn note_pages(&self, open: &Description) {
        if let Some(version) = open.pages
            && !open.is_noted.swap(true, Ordering::Relaxed)
        {
            self.pages.note(open.file.handle(), version);
        }
    }

    /// Clears the set-id bits of a file that a plain user has changed (POSIX, `write`).
    pub(crate) async fn clear_set_id(&self, client: &Client<R>, file: Handle) -> Result<()> {
        let attr = self.noted(client.getattr(file).await)?;
        let mode = attr.mode & !set_id_bits(attr.mode);
        if mode != attr.mode {
            let change = SetAttr { mode: Some(mode), ..SetAttr::default() };
            self.noted(client.setattr(&Credentials::ROOT, file, &change).await)?;
            // Nobody above knows of it.
            self.forget_told(file);
        }
        Ok(())
    }
}
