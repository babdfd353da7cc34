//! The queue of files and chunks, and the threads that copy them.

use std::collections::VecDeque;
use std::mem;
use std::ops::Range;
use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;

use anyhow::{Context, Result, anyhow, bail};
use bytes::Bytes;
use indicatif::ProgressBar;
use weft_base::Status;
use weft_client::CreateOptions;
use weft_host::parallel;
use weft_layout::INLINE_BYTES_MAX;

use crate::copy::block::Block;
use crate::copy::meta::Meta;
use crate::copy::place::Place;
use crate::copy::source::Source;
use crate::copy::target::Target;
use crate::copy::{Copied, CopyOptions, SMALL_BYTES_MAX};

/// Bytes of one read and write.
const BLOCK_BYTES: usize = 4 << 20;
/// Files larger than this are cut into chunks of this size, copied by several workers.
const CHUNK_BYTES: u64 = 64 << 20;
/// Files that wait for a worker, at most: then the walk through the source waits too.
const QUEUE_MAX: usize = 1024;

/// A file to copy.
pub struct Named {
    /// From here.
    pub source: Place,
    /// To here.
    pub target: Place,
    /// What the copy shall have.
    pub meta: Meta,
}

/// Something to copy.
pub enum Job {
    /// A file.
    File(Named),
    /// Small files of one file system, read together.
    Together(Vec<Named>),
    /// A part of a large file.
    Chunk {
        /// The file.
        transfer: Arc<Transfer>,
        /// First byte.
        offset: u64,
        /// Number of bytes.
        bytes: u64,
    },
}

/// A large file that several workers copy; whoever is last finishes it.
pub struct Transfer {
    from: Place,
    to: Place,
    source: Source,
    target: Target,
    new: bool,
    meta: Meta,
    /// Behind the last byte that was written.
    data_end: AtomicU64,
    /// Behind the last hole that was passed over.
    hole_end: AtomicU64,
    chunks_left: AtomicU64,
    failed: AtomicBool,
}

/// The workers.
pub struct Workers {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    queue: Mutex<Queue>,
    /// There is a job, or there will be none.
    more: Condvar,
    /// There is room in the queue, or everything is done.
    less: Condvar,
    stop: Arc<AtomicBool>,
    bar: ProgressBar,
    /// How new files are made.
    file: CreateOptions,
    /// Targets that may not be written are replaced.
    force: bool,
    files: AtomicU64,
    bytes: AtomicU64,
    failures: AtomicU64,
    /// Targets that were there before and are incomplete now.
    incomplete: Mutex<Vec<String>>,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    running: usize,
    closed: bool,
}

impl Workers {
    /// Starts the threads, or as many of them as there may be.
    ///
    /// # Errors
    /// If that is none.
    pub fn start(options: &CopyOptions, bar: ProgressBar, stop: Arc<AtomicBool>) -> Result<Workers> {
        let shared = Arc::new(Shared {
            queue: Mutex::default(),
            more: Condvar::new(),
            less: Condvar::new(),
            stop,
            bar,
            file: options.file.clone(),
            force: options.force,
            files: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            incomplete: Mutex::default(),
        });
        let threads = (0..options.jobs.max(1)).map(|_| {
            let shared = shared.clone();
            parallel::start(move || shared.work())
        });
        let (threads, mut refused): (Vec<_>, Vec<_>) = threads.partition(Result::is_ok);
        match refused.pop() {
            Some(Err(error)) if threads.is_empty() => Err(error),
            _ => Ok(Workers { threads: threads.into_iter().flatten().collect(), shared }),
        }
    }

    /// Queues a job; waits while the queue is full.
    pub fn queue(&self, job: Job) {
        self.shared.bar.inc_length(match &job {
            Job::File(file) => file.meta.bytes,
            Job::Together(files) => files.iter().map(|file| file.meta.bytes).sum(),
            Job::Chunk { .. } => 0,
        });
        let mut queue = self.shared.lock();
        while queue.jobs.len() >= QUEUE_MAX {
            queue = self.shared.less.wait(queue).expect("no worker panics while it holds the queue");
        }
        queue.jobs.push_back(job);
        self.shared.more.notify_one();
    }

    /// Waits until everything that was queued is done.
    pub fn wait(&self) {
        let mut queue = self.shared.lock();
        while !queue.jobs.is_empty() || queue.running > 0 {
            queue = self.shared.less.wait(queue).expect("no worker panics while it holds the queue");
        }
    }

    /// Names something that could not be copied.
    pub fn report(&self, error: &anyhow::Error) {
        self.shared.report(error);
    }

    /// Says something beside the progress bar.
    pub fn tell(&self, words: &str) {
        self.shared.tell(words);
    }

    /// Ends the threads and gives what they did.
    pub fn finish(self) -> Copied {
        self.shared.lock().closed = true;
        self.shared.more.notify_all();
        for thread in self.threads {
            thread.join().expect("a worker reports its errors and does not panic");
        }
        self.shared.bar.finish_and_clear();
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (files, bytes, failures) = (count(&self.shared.files), count(&self.shared.bytes), count(&self.shared.failures));
        let incomplete = mem::take(&mut *self.shared.incomplete.lock().expect("no worker panics while it holds the list"));
        Copied { files, bytes, failures, incomplete, ..Copied::default() }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().expect("no worker panics while it holds the queue")
    }

    fn work(&self) {
        let mut buffer = vec![0; BLOCK_BYTES];
        while let Some(job) = self.next() {
            // Whoever waits for the last job would wait for ever for one that ended by a panic.
            let copied = panic::catch_unwind(AssertUnwindSafe(|| self.copy(job, &mut buffer)));
            if let Err(error) = copied.unwrap_or_else(|_| Err(anyhow!("a part of the copy was given up: see above"))) {
                self.report(&error);
            }
            self.lock().running -= 1;
            self.less.notify_all();
        }
    }

    fn next(&self) -> Option<Job> {
        let mut queue = self.lock();
        loop {
            if let Some(job) = queue.jobs.pop_front() {
                queue.running += 1;
                self.less.notify_all();
                return Some(job);
            }
            if queue.closed {
                return None;
            }
            queue = self.more.wait(queue).expect("no worker panics while it holds the queue");
        }
    }

    fn copy(&self, job: Job, buffer: &mut [u8]) -> Result<()> {
        match job {
            Job::File(_) | Job::Together(_) if self.stopped() => Ok(()),
            Job::File(file) => self.copy_file(file, buffer),
            Job::Together(files) => {
                self.copy_together(files);
                Ok(())
            }
            Job::Chunk { transfer, offset, bytes } => {
                let copied =
                    if transfer.failed.load(Ordering::Relaxed) { Ok(()) } else { self.copy_range(&transfer, offset, Some(bytes), buffer) };
                self.chunk_done(&transfer, copied)
            }
        }
    }

    /// Those of them that cannot be read so are copied alone, which tells why if it fails too. They
    /// come after what is queued already: a server that does not answer is waited for.
    fn copy_together(&self, files: Vec<Named>) {
        let mut alone = Vec::new();
        let sources: Vec<&Place> = files.iter().map(|file| &file.source).collect();
        let read = Place::read_together(&sources);
        for (file, data) in files.into_iter().zip(read) {
            if self.stopped() {
                return;
            }
            match data {
                Some(Ok(data)) => {
                    if let Err(error) = self.write_whole(&file, data.to_bytes()) {
                        self.report(&error);
                    }
                }
                _ => alone.push(Job::File(file)),
            }
        }
        self.lock().jobs.extend(alone);
        self.more.notify_all();
    }

    fn write_whole(&self, file: &Named, data: Bytes) -> Result<()> {
        let Named { source, target: to, meta } = file;
        let bytes = data.len() as u64;
        let (target, is_new) = self.made(to, || to.create_with(meta.mode, &self.file, &data))?;
        let is_written = bytes == 0 || matches!(target, Target::Whole(..));
        let written = if is_written { Ok(()) } else { target.write_at(0, &Block::Buffer(&data)) };
        let written = written.inspect_err(|_| target.abandon()).and_then(|()| target.close().context("closing"));
        if let Err(error) = written {
            self.abandoned(to, is_new)?;
            return Err(error.context(failed(source, to, is_new)));
        }
        target.set_meta(to, meta).with_context(|| format!("cannot finish {}", to.display()))?;
        self.advance(bytes);
        self.files.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Makes a target; one that may not be written is replaced, if so asked.
    fn made<T>(&self, to: &Place, make: impl Fn() -> Result<T>) -> Result<T> {
        match make() {
            Err(error) if self.force && is_denied(&error) && to.remove().is_ok() => make(),
            made => made,
        }
    }

    fn copy_file(&self, file: Named, buffer: &mut [u8]) -> Result<()> {
        let source = file.source.open()?;
        if file.meta.bytes <= u64::from(INLINE_BYTES_MAX) && matches!(file.target, Place::Remote { .. }) {
            let read = source.read_at(0, &mut buffer[..INLINE_BYTES_MAX as usize + 1]);
            // What is longer by now, or cannot be read, goes the usual way.
            if let Some(data) = read.ok().map(Block::into_bytes).filter(|data| data.len() <= INLINE_BYTES_MAX as usize) {
                source.close()?;
                return self.write_whole(&file, data);
            }
        }
        let Named { source: from, target: to, mut meta } = file;
        let made = self.made(&to, || to.create(meta.mode, &self.file));
        let (target, new) = made.inspect_err(|_| drop(source.close()))?;
        meta.has_holes &= target.has_holes();
        let chunks = meta.bytes.div_ceil(CHUNK_BYTES).max(1);
        let (data_end, hole_end, chunks_left) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(chunks));
        let transfer = Transfer { from, to, source, target, new, meta, data_end, hole_end, chunks_left, failed: AtomicBool::new(false) };
        if chunks == 1 {
            // Up to its end, whatever size it was said to have: it may have grown, or be one whose
            // size nobody knows.
            let copied = self.copy_range(&transfer, 0, None, buffer);
            return self.chunk_done(&transfer, copied);
        }
        let transfer = Arc::new(transfer);
        let mut queue = self.lock();
        for index in (0..chunks).rev() {
            let offset = index * CHUNK_BYTES;
            queue.jobs.push_front(Job::Chunk { transfer: transfer.clone(), offset, bytes: CHUNK_BYTES.min(meta.bytes - offset) });
        }
        drop(queue);
        self.more.notify_all();
        Ok(())
    }

    /// Copies from `offset` to the end, or `bytes` of it. Holes of a file that is not small stay.
    fn copy_range(&self, transfer: &Transfer, offset: u64, bytes: Option<u64>, buffer: &mut [u8]) -> Result<()> {
        let end = bytes.map_or(u64::MAX, |bytes| offset + bytes);
        if !transfer.meta.has_holes || transfer.meta.bytes <= SMALL_BYTES_MAX {
            return self.copy_data(transfer, offset..end, buffer).map(|_| ());
        }
        let mut at = offset;
        while at < end {
            let Some(data) = transfer.source.data_from(at).context("reading")?.filter(|data| data.start < end) else {
                let size = transfer.source.size().context("reading")?.min(end);
                transfer.hole_end.fetch_max(size, Ordering::Relaxed);
                self.advance(size.saturating_sub(at));
                return Ok(());
            };
            self.advance(data.start - at);
            let stop = data.end.min(end);
            at = self.copy_data(transfer, data.start..stop, buffer)?;
            if at < stop {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Copies these bytes, or up to the end of the file; gives where it stopped.
    fn copy_data(&self, transfer: &Transfer, data: Range<u64>, buffer: &mut [u8]) -> Result<u64> {
        let mut at = data.start;
        loop {
            if self.stopped() {
                bail!("interrupted");
            }
            let want = (data.end - at).min(buffer.len() as u64);
            if want == 0 {
                return Ok(at);
            }
            let block = transfer.source.read_at(at, &mut buffer[..want as usize]).context("reading")?;
            let got = block.len();
            if got > 0 {
                transfer.target.write_at(at, &block).context("writing")?;
                transfer.data_end.fetch_max(at + got, Ordering::Relaxed);
            }
            at += got;
            self.advance(got);
            if got < want {
                return Ok(at);
            }
        }
    }

    fn advance(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.bar.inc(bytes);
    }

    /// Notes the outcome of a chunk; after the last one the file is finished, or removed if it is
    /// incomplete and new.
    fn chunk_done(&self, transfer: &Transfer, copied: Result<()>) -> Result<()> {
        let what = || failed(&transfer.from, &transfer.to, transfer.new);
        let mut copied = copied.with_context(what);
        let mut first_failure = copied.is_err() && !transfer.failed.swap(true, Ordering::Relaxed);
        if transfer.chunks_left.fetch_sub(1, Ordering::AcqRel) == 1 {
            let closed = transfer.source.close();
            if transfer.failed.load(Ordering::Relaxed) {
                transfer.target.abandon();
            } else {
                copied = transfer.set_size().and_then(|()| transfer.target.close().context("closing")).with_context(what);
                first_failure = copied.is_err();
            }
            if copied.is_err() || transfer.failed.load(Ordering::Relaxed) {
                self.abandoned(&transfer.to, transfer.new)?;
            } else {
                let finished = transfer.target.set_meta(&transfer.to, &transfer.meta);
                finished.and(closed).with_context(|| format!("cannot finish {}", transfer.to.display()))?;
                self.files.fetch_add(1, Ordering::Relaxed);
            }
        }
        // An interruption is told once, by the command.
        if first_failure && !self.stopped() { copied } else { Ok(()) }
    }

    /// An incomplete target is removed if it is new; one that was there before is named.
    fn abandoned(&self, target: &Place, is_new: bool) -> Result<()> {
        if is_new {
            return target.remove();
        }
        self.incomplete.lock().expect("no worker panics while it holds the list").push(target.display());
        Ok(())
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn report(&self, error: &anyhow::Error) {
        self.failures.fetch_add(1, Ordering::Relaxed);
        self.tell(&crate::error_text(error));
    }

    fn tell(&self, words: &str) {
        self.bar.suspend(|| weft_host::output::tell(words));
    }
}

impl Transfer {
    /// A hole at the end is part of the file, although nobody wrote behind it.
    fn set_size(&self) -> Result<()> {
        let [size, data_end] = [&self.hole_end, &self.data_end].map(|end| end.load(Ordering::Relaxed));
        if size > data_end { self.target.set_size(size) } else { Ok(()) }
    }
}

/// True if whoever copies has no right to do this.
fn is_denied(error: &anyhow::Error) -> bool {
    let here = |cause: &std::io::Error| cause.kind() == std::io::ErrorKind::PermissionDenied;
    let there = |cause: &weft_client::Error| cause.status == Status::AccessDenied;
    error.chain().any(|cause| cause.downcast_ref().is_some_and(here) || cause.downcast_ref().is_some_and(there))
}

/// What is said of a target that is incomplete.
fn failed(source: &Place, target: &Place, is_new: bool) -> String {
    let left = if is_new { "" } else { ", which was there before and is incomplete now" };
    format!("cannot copy {} to {}{left}", source.display(), target.display())
}

#[cfg(test)]
mod tests;
