//! The container on its disk: the only door to it. What the cache layer (`cache.rs`) takes part in
//! goes through it, everything else straight to the disk.

use std::cell::Cell;

use weft_base::Payload;
use weft_rt::{Disk, DiskError, FaultPoint, FileId, PeerId, ServerRuntime};
use weft_store::objects::{DiskPiece, ObjectKey, ReadPiece};
use weft_trace::event::{DISK_READ, DISK_SYNC, DISK_WRITE};
use weft_wire::Header;

use crate::cache::Cache;
use crate::transfer;

/// The file that holds the bytes of all objects.
pub struct Container<R> {
    rt: R,
    file: FileId,
    pub cache: Cache,
    /// Something may have been written since the last sync began; also by an earlier process.
    is_unsynced: Cell<bool>,
}

impl<R: ServerRuntime> Container<R> {
    pub fn new(rt: R, file: FileId, cache: Cache) -> Container<R> {
        Container { rt, file, cache, is_unsynced: Cell::new(true) }
    }

    /// Writes `data` of the object to these places, for this request.
    ///
    /// # Errors
    /// Of the disk; then some of it may have been written.
    pub async fn write(&self, request: &Header, key: ObjectKey, places: &[DiskPiece], data: &Payload) -> Result<(), DiskError> {
        let mut traced = weft_trace::span(DISK_WRITE);
        traced.request(weft_trace::request_key(request.request, request.server)).object(key.handle.0).range(0, data.len());
        self.rt.pass(FaultPoint::DataWrite).await;
        let written = match self.cache.write(&self.rt, places, data, &mut traced).await {
            Some(written) => written,
            None => transfer::write_all(self.rt.disk(), self.file, places, data).await,
        };
        // A sync that began meanwhile may have missed it.
        self.is_unsynced.set(true);
        written
    }

    /// Reads these pieces of the object, for this request of `peer`.
    ///
    /// # Errors
    /// Of the disk.
    pub async fn read(&self, peer: PeerId, request: &Header, key: ObjectKey, pieces: &[ReadPiece]) -> Result<Payload, DiskError> {
        let mut traced = weft_trace::span(DISK_READ);
        traced.request(weft_trace::request_key(request.request, request.server)).object(key.handle.0);
        self.rt.pass(FaultPoint::DataRead).await;
        match self.cache.read(&self.rt, pieces, &mut traced).await {
            Some(data) => data,
            None => transfer::read_all(&self.rt, peer, request, self.file, pieces).await,
        }
    }

    /// Brings to stable storage what is written, and first what was answered before it was. Nothing
    /// is done if nothing was written.
    ///
    /// # Errors
    /// What failed, and why.
    pub async fn sync(&self) -> Result<(), (&'static str, DiskError)> {
        if !self.is_unsynced.replace(false) {
            return Ok(());
        }
        self.cache.drain(&self.rt).await.map_err(|error| ("write what was answered before", error))?;
        let _traced = weft_trace::span(DISK_SYNC);
        self.rt.pass(FaultPoint::DataFlush).await;
        self.rt.disk().sync(self.file).await.map_err(|error| ("sync the container", error))
    }

    /// Gives the bytes of a range back to the disk; they read as zeros.
    ///
    /// # Errors
    /// Of the disk.
    pub async fn punch(&self, offset: u64, bytes: u64) -> Result<(), DiskError> {
        let punched = self.rt.disk().punch(self.file, offset, bytes).await;
        self.is_unsynced.set(true);
        punched
    }

    /// Bytes of the disk that it takes. 0 if the disk does not say.
    pub async fn backed_bytes(&self) -> u64 {
        self.rt.disk().backed(self.file).await.unwrap_or(0)
    }

    /// Does what the cache layer has queued, for ever.
    pub async fn work(&self) {
        self.cache.work(&self.rt, self.file).await;
    }

    /// The same beside turns, until a write is lost that was answered before.
    pub async fn serve(&self) -> DiskError {
        self.cache.serve(&self.rt, self.file).await
    }
}
