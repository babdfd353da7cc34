//! Writing a checkpoint while the server works.

use bytes::{Bytes, BytesMut};
use weft_base::Payload;
use weft_rt::{Disk, FileId};
use weft_store::Lsn;
use weft_store::checkpoint::{CheckpointHeader, CheckpointWriter};

use crate::{Journal, JournalError, names};

/// A checkpoint under way. Push slices of the state (each slice taken in one go, without an await
/// inside), flush between slices, finish. The journal goes on meanwhile; see
/// `weft_store::checkpoint` for why the result is exact. Dropping it gives it up.
#[derive(Debug)]
pub struct Checkpoint<D> {
    journal: Journal<D>,
    writer: CheckpointWriter,
    /// `None`: it is only measured.
    file: Option<FileId>,
    offset: u64,
    full: BytesMut,
    start_lsn: Lsn,
    generation: u64,
    bytes_before: u64,
    grown_before: u64,
}

impl<D: Disk> Checkpoint<D> {
    /// Begins a checkpoint of the state as of now, or later. Only one may be under way.
    ///
    /// # Errors
    /// [`JournalError::NoSpace`], in a journal that [`crate::JournalConfig::keeps_checkpoint_room`]
    /// before anything is written if the checkpoint might not fit: it may be smaller, if it is
    /// [measured][Checkpoint::measure]. [`JournalError::Disk`]. The older checkpoint and the
    /// journal remain.
    pub async fn begin(journal: &Journal<D>) -> Result<Checkpoint<D>, JournalError> {
        // Of one that was given up.
        journal.inner.borrow_mut().room.unfinished_bytes = 0;
        journal.look_at_disk().await;
        if !journal.inner.borrow().has_checkpoint_room() {
            return Err(JournalError::NoSpace);
        }
        let failed = || JournalError::during("begin a checkpoint");
        let file = journal.disk.open(names::CHECKPOINT_UNFINISHED, true).await.map_err(failed())?;
        journal.disk.set_len(file, 0).await.map_err(failed())?;
        Ok(Checkpoint::new(journal, Some(file)))
    }

    /// As [`Checkpoint::begin`], but nothing is written: finished, it tells how large a checkpoint
    /// is.
    pub fn measure(journal: &Journal<D>) -> Checkpoint<D> {
        Checkpoint::new(journal, None)
    }

    fn new(journal: &Journal<D>, file: Option<FileId>) -> Checkpoint<D> {
        let (fs_id, server_id) = journal.identity();
        let inner = journal.inner.borrow();
        let (generation, bytes_before, grown_before) = (inner.generation + 1, inner.bytes_since_checkpoint, inner.room.grown_bytes);
        drop(inner);
        // Everything appended until now is in the state that the slices will show.
        let start_lsn = journal.last_lsn().next();
        let writer = CheckpointWriter::new(CheckpointHeader { fs_id, server_id, generation, start_lsn });
        let journal = journal.clone();
        Checkpoint { journal, writer, file, offset: 0, full: BytesMut::new(), start_lsn, generation, bytes_before, grown_before }
    }

    /// Adds a record of the state.
    pub fn push(&mut self, record: &[u8]) {
        if let Some(chunk) = self.writer.push(record) {
            self.full.extend_from_slice(&chunk);
        }
    }

    /// Writes the chunks that are full.
    ///
    /// # Errors
    /// As [`Checkpoint::begin`].
    pub async fn flush(&mut self) -> Result<(), JournalError> {
        let bytes = self.full.split().freeze();
        self.write(bytes).await
    }

    /// Completes the checkpoint, makes it count, and gives the journal segments that it replaces
    /// back; one that was only measured says how large the state is. Needs somebody to commit what
    /// is appended by now. Returns the size in bytes.
    ///
    /// # Errors
    /// As [`Checkpoint::begin`], and whatever stopped the journal.
    pub async fn finish(mut self) -> Result<u64, JournalError> {
        let end_lsn = self.journal.last_lsn();
        self.flush().await?;
        let placeholder = CheckpointHeader {
            fs_id: Default::default(),
            server_id: Default::default(),
            generation: self.generation,
            start_lsn: self.start_lsn,
        };
        let writer = std::mem::replace(&mut self.writer, CheckpointWriter::new(placeholder));
        self.write(writer.finish(end_lsn)).await?;
        let journal = self.journal;
        let Some(file) = self.file else {
            journal.inner.borrow_mut().room.measured(self.offset, self.grown_before);
            return Ok(self.offset);
        };
        journal.sync_through(end_lsn).await?;
        let failed = || JournalError::during("finish a checkpoint");
        journal.disk.sync(file).await.map_err(failed())?;
        journal.disk.close(file);
        journal.disk.rename(names::CHECKPOINT_UNFINISHED, &names::checkpoint(self.generation)).await.map_err(failed())?;
        let older = {
            let mut inner = journal.inner.borrow_mut();
            assert!(self.generation > inner.generation, "one checkpoint is written at a time");
            assert!(inner.bytes_since_checkpoint >= self.bytes_before, "what was written before it began counts until it does");
            inner.bytes_since_checkpoint -= self.bytes_before;
            inner.room.measured(self.offset, self.grown_before);
            inner.room.unfinished_bytes = 0;
            std::mem::replace(&mut inner.generation, self.generation)
        };
        if older > 0 {
            journal.disk.remove(&names::checkpoint(older)).await.map_err(failed())?;
        }
        journal.look_at_disk().await;
        journal.drop_segments_before(self.start_lsn).await?;
        journal.inner.borrow_mut().keep_checkpoint_room();
        Ok(self.offset)
    }

    async fn write(&mut self, bytes: Bytes) -> Result<(), JournalError> {
        if bytes.is_empty() {
            return Ok(());
        }
        let len = bytes.len() as u64;
        if let Some(file) = self.file {
            let disk = &self.journal.disk;
            if let Err(error) = disk.write(file, self.offset, Payload::Real(bytes)).await {
                // What was written must not keep space from everybody else.
                let _ = disk.set_len(file, 0).await;
                disk.close(file);
                self.journal.inner.borrow_mut().room.unfinished_bytes = 0;
                return Err(JournalError::during("write a checkpoint")(error));
            }
            self.journal.inner.borrow_mut().room.unfinished_bytes += len;
        }
        self.offset += len;
        Ok(())
    }
}
