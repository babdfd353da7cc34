//! Files that the kernel has open: how they are opened and closed, what the kernel may keep of their data, and what the first write clears.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use weft_base::{Attr, Credentials, DataTime, FileKind, Handle, SECOND, Status, set_id_bits};
use weft_client::{Error, OpenFile, Seen, SetAttr};
use weft_rt::Runtime;
use weft_wire::Rights;

use super::WeftFilesystem;
use crate::SharedClient;
use crate::convert::{handle, inode, is_alias};
use crate::kernel::{FileHandle, FopenFlags, INodeNo};
use crate::walks::Second;

/// For so long a name is looked up again because its file was replaced before it could be opened: each time by chance, so that a number of tries
/// would fail once in many opens. Below the age up to which a walk is remembered.
const FIND_PATIENCE: u64 = 3 * SECOND;

/// Versions remembered for the page cache; beyond that, all are forgotten, which costs rereading only.
const CACHED_VERSIONS_MAX: usize = 65_536;

/// A file that the kernel has open.
#[derive(Debug)]
pub(super) struct KernelFile {
    pub(super) file: Arc<OpenFile>,
    /// The kernel reads it through its page cache, in whole pages, and knows itself where the file ends.
    pub(super) cached: bool,
    /// The version of the file that the kernel's pages are from, once it has asked for one after it dropped those of other versions.
    pub(super) pages: Option<(u64, u64)>,
    /// This is noted in `cached_versions`.
    pub(super) is_noted: AtomicBool,
    /// The right to append of a file that was not opened for it.
    pub(super) append: OnceLock<Arc<OpenFile>>,
    /// [`OpenFile::epoch_of_writes`] when it was known last whether the file has set-id bits.
    pub(super) epoch: AtomicU32,
}

impl KernelFile {
    /// Given if somebody else may have made the file set-id since that was known last, as the writes that have been done tell.
    pub(super) fn newer_epoch(&self) -> Option<u32> {
        let epoch = self.file.epoch_of_writes();
        (self.epoch.load(Ordering::Relaxed) < epoch).then_some(epoch)
    }
}

impl WeftFilesystem {
    /// Makes the kernel forget the attributes of a file: it asks again at their next use. Takes no lock of the kernel that somebody who
    /// waits for this mount may hold (an offset below 0 touches no pages).
    pub(super) fn forget_attributes(&self, file: Handle) {
        if let Some(notifier) = self.notifier.get() {
            // A file that the kernel does not know any more needs no word.
            let _ = notifier.inval_inode(inode(file), -1, 0);
        }
    }

    /// The same, whatever it was told.
    pub(super) fn forget_told(&self, file: Handle) {
        let known = self.told.known(file);
        self.forget_attributes(file);
        known.into_iter().for_each(|known| self.told.forgotten(file, known));
    }

    /// Opens a file that the kernel has found by what it remembers of names and rights.
    pub(super) fn open_found(
        &self,
        client: &SharedClient,
        thread: u32,
        who: &Credentials,
        node: INodeNo,
        rights: Rights,
        truncate: bool,
    ) -> Result<(Attr, Arc<OpenFile>), Error> {
        let file = handle(node);
        let (second, in_vain) = self.walks.opens(thread, file, rights);
        in_vain.into_iter().for_each(|file| self.closer.close(file));
        let (judged, is_first, held) = match second {
            Second::Opened(attr, opened) if !truncate => return Ok((attr, opened)),
            // Kept until it is open once more.
            Second::Opened(_, opened) => (None, false, Some(opened)),
            Second::Same => (None, false, None),
            // By its second number an object is not opened: who walks again finds the first.
            Second::No if is_alias(node) => {
                self.walks.refuse(thread, file, rights, self.client.rt().now());
                return Err(Error::local(Status::Stale, "open", file));
            }
            Second::No => (self.told.judged(file), true, None),
        };
        let outcome = self.run(client.open_judged(who, file, rights, truncate, judged));
        held.into_iter().for_each(|file| self.closer.close(file));
        match &outcome {
            Err(error) if error.status == Status::Stale && is_first => {
                self.walks.refuse(thread, file, rights, self.client.rt().now());
                self.forget_told(file);
            }
            Ok((attr, _)) => {
                if let Some(known) = self.told.differs(attr) {
                    self.forget_attributes(file);
                    self.told.forgotten(file, known);
                }
            }
            Err(_) => {}
        }
        outcome
    }

    /// Looks a name up for a thread that will open what it finds, and opens it: between look-up and open it could be replaced.
    pub(super) fn find(&self, thread: u32, who: &Credentials, dir: Handle, name: &[u8], rights: Rights) -> Result<Seen, Error> {
        let client = self.client.for_one_operation();
        let end = self.client.rt().now() + FIND_PATIENCE;
        let mut seen = self.run(client.lookup_soon(who, dir, name))?;
        while seen.attr.kind == FileKind::File && self.client.rt().now() < end {
            match self.run(client.open(who, seen.attr.handle, rights, false)) {
                Ok((opened, file)) => {
                    seen = Seen { attr: opened, is_exact: true };
                    let in_vain = self.walks.found(thread, opened, file);
                    in_vain.into_iter().for_each(|file| self.closer.close(file));
                    break;
                }
                Err(error) if error.status == Status::Stale => seen = self.run(client.lookup_soon(who, dir, name))?,
                // The open will meet it, too.
                Err(_) => break,
            }
        }
        Ok(seen)
    }

    /// How the kernel shall treat the data of a file that is being opened. Writers and streams go past the page cache: one copy
    /// less, and what one mount writes another reads at once. Small files that are only read use the page cache, so that programs
    /// that read a few bytes at a time are fast; the kernel keeps their pages from an earlier open only if the file is the same.
    pub(super) fn open_flags(&self, attr: &Attr, file: &OpenFile, flags: i32) -> FopenFlags {
        let no_flush = FopenFlags::FOPEN_NOFLUSH;
        let is_written = file.rights().contains(Rights::WRITE) || file.others_write();
        if is_written || flags & libc::O_DIRECT != 0 || attr.size >= self.direct_from_bytes {
            return no_flush | FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES;
        }
        let versions = self.cached_versions.lock().expect("no code panics while it holds this lock");
        let is_same = versions.get(&attr.handle) == Some(&(attr.version, attr.size));
        if is_same { no_flush | FopenFlags::FOPEN_KEEP_CACHE } else { no_flush }
    }

    /// Notes which version of a file the kernel's pages are from. Not before it asks for one: until it has taken in the answer to its
    /// open, it may still hold pages of another version, and somebody else who opens the file would keep them.
    pub(super) fn note_pages(&self, open: &KernelFile) {
        if let Some(version) = open.pages
            && !open.is_noted.swap(true, Ordering::Relaxed)
        {
            let mut versions = self.cached_versions.lock().expect("no code panics while it holds this lock");
            if versions.len() >= CACHED_VERSIONS_MAX {
                versions.clear();
            }
            versions.insert(open.file.handle(), version);
        }
    }

    pub(super) fn add_file(&self, attr: &Attr, file: Arc<OpenFile>, how: FopenFlags) -> u64 {
        let cached = !how.contains(FopenFlags::FOPEN_DIRECT_IO);
        let pages = (cached && !how.contains(FopenFlags::FOPEN_KEEP_CACHE)).then_some((attr.version, attr.size));
        let epoch = AtomicU32::new(DataTime::epoch_of_writes(attr.mtime_epoch));
        self.files.add(Arc::new(KernelFile { file, cached, pages, is_noted: AtomicBool::new(false), append: OnceLock::new(), epoch }))
    }

    /// Closes a file whose opener does not wait any more: the kernel will not.
    pub(super) fn forget_open(&self, number: u64) {
        if self.set_id_count.load(Ordering::Relaxed) > 0 {
            self.watch_set_id(number, false);
        }
        if let Some(open) = self.files.remove(number) {
            self.close_file(&open);
        }
    }

    pub(super) fn close_file(&self, open: &KernelFile) {
        self.closer.close(open.file.clone());
        open.append.get().into_iter().for_each(|file| self.closer.close(file.clone()));
    }

    /// Where an append begins. The kernel goes by a size that it remembers; this client knows the true one, because nobody else may write
    /// while it has the right to append.
    pub(super) fn append_offset(&self, client: &SharedClient, open: &KernelFile) -> Result<u64, Error> {
        if !open.file.rights().contains(Rights::APPEND) && open.append.get().is_none() {
            let rights = Rights::WRITE.with(Rights::APPEND);
            let (_, file) = self.run(client.open(&Credentials::ROOT, open.file.handle(), rights, false))?;
            if let Err(second) = open.append.set(file) {
                self.closer.close(second);
            }
        }
        Ok(open.file.size_known())
    }

    pub(super) fn open_file(&self, number: FileHandle) -> Result<Arc<KernelFile>, Status> {
        self.files.get(number.0).ok_or(Status::Stale)
    }

    /// Remembers that the first write to this open file clears set-id bits, or says that there are none to clear.
    pub(super) fn watch_set_id(&self, file: u64, watched: bool) -> bool {
        let mut set = self.set_id.lock().expect("no code panics while it holds this lock");
        let changed = if watched { set.insert(file) } else { set.remove(&file) };
        self.set_id_count.store(set.len(), Ordering::Relaxed);
        changed
    }

    /// Clears the set-id bits of a file that a plain user has changed (POSIX, `write`).
    pub(super) fn clear_set_id(&self, client: &SharedClient, file: Handle) -> Result<(), Error> {
        let attr = self.run(client.getattr(file))?;
        let mode = attr.mode & !set_id_bits(attr.mode);
        if mode != attr.mode {
            let change = SetAttr { mode: Some(mode), ..SetAttr::default() };
            self.run(client.setattr(&Credentials::ROOT, file, &change))?;
            // The kernel does not know of it.
            self.forget_told(file);
        }
        Ok(())
    }
}

/// Rights that the flags of an `open` ask for.
pub(super) fn rights(flags: i32) -> Rights {
    let write = if flags & libc::O_APPEND != 0 { Rights::WRITE.with(Rights::APPEND) } else { Rights::WRITE };
    match flags & libc::O_ACCMODE {
        libc::O_WRONLY => write,
        libc::O_RDWR => Rights::READ.with(write),
        _ => Rights::READ,
    }
}
