//! Sealed trees for a gateway that only reads ([`Options::is_dataset`](crate::Options)): what is
//! told of a sealed object holds for ever, and its data is read without an open by the caller. A
//! server gives data only to who has opened the file, so this layer opens a file when it is first
//! read and keeps the last of them open. A cache above that keeps pages asks for each of them once.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};

use weft_base::{Attr, Credentials, FastMap, FastSet, FileKind, Handle, Payload, Status};
use weft_client::{Error, OpenFile, Result};
use weft_rt::Runtime;
use weft_wire::Rights;

use crate::gateway::Gateway;
use crate::node::InodeNumber;
use crate::posix::Posix;

/// Files that are kept open. Those that many read in turns are opened again and again beyond it.
const FILES_MAX: usize = 1024;
/// Directories that are known to be sealed; beyond them they are forgotten, and asked for again.
const DIRECTORIES_MAX: usize = 1 << 16;
/// For ever, in nanoseconds: more than 500 years.
const FOR_EVER_NS: u64 = u64::MAX;

/// What is kept of sealed objects.
#[derive(Debug, Default)]
pub(crate) struct Sealed(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    files: FastMap<Handle, Arc<OpenFile>>,
    /// The same, by the time of their opens.
    order: VecDeque<Handle>,
    directories: FastSet<Handle>,
}

impl Kept {
    /// Of the files that nobody reads now the one that was opened first.
    fn take_oldest(&mut self) -> Option<Arc<OpenFile>> {
        // Whoever reads one holds it, and gets it under the lock.
        let at = self.order.iter().position(|handle| self.files.get(handle).is_some_and(|file| Arc::strong_count(file) == 1))?;
        self.files.remove(&self.order.remove(at)?)
    }
}

impl Sealed {
    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().expect("no code panics while it holds this lock")
    }

    fn file(&self, handle: Handle) -> Option<Arc<OpenFile>> {
        self.lock().files.get(&handle).cloned()
    }

    /// Keeps a file open. Gives the one to read, which another reader may have opened before, and
    /// one to be closed.
    fn keep(&self, file: Arc<OpenFile>) -> (Arc<OpenFile>, Option<Arc<OpenFile>>) {
        let mut kept = self.lock();
        if let Some(first) = kept.files.get(&file.handle()) {
            return (first.clone(), Some(file));
        }
        kept.files.insert(file.handle(), file.clone());
        kept.order.push_back(file.handle());
        let surplus = if kept.files.len() > FILES_MAX { kept.take_oldest() } else { None };
        (file, surplus)
    }

    /// Everything that is kept open, to be closed.
    pub(crate) fn drain(&self) -> Vec<Arc<OpenFile>> {
        let mut kept = self.lock();
        kept.order.clear();
        kept.files.drain().map(|(_, file)| file).collect()
    }
}

impl<R: Runtime, G: Gateway> Posix<R, G> {
    /// True if files are read by [`Posix::read_sealed`] and nothing is opened.
    pub fn is_dataset(&self) -> bool {
        self.options.is_dataset
    }

    /// For how many nanoseconds a name that leads to an object with these attributes, and these
    /// attributes, may be believed because it is sealed. What is sealed keeps its names, too.
    pub(crate) fn sealed_ttl_ns(&self, attr: &Attr) -> Option<u64> {
        if !self.options.is_dataset || !attr.is_sealed() {
            return None;
        }
        if attr.kind == FileKind::Directory {
            let mut kept = self.sealed.lock();
            if kept.directories.len() >= DIRECTORIES_MAX {
                kept.directories.clear();
            }
            kept.directories.insert(attr.handle);
        }
        Some(FOR_EVER_NS)
    }

    /// True if a listing of the directory may be kept for ever: it was told lately that it is
    /// sealed.
    pub fn is_listed_for_ever(&self, dir: InodeNumber) -> bool {
        self.options.is_dataset && self.sealed.lock().directories.contains(&dir.handle())
    }

    /// Reads up to so many bytes of a sealed file, which nobody has opened; fewer only at its end.
    ///
    /// # Errors
    /// [`Status::NotPermitted`] if it is not sealed; permissions; servers that do not answer.
    pub async fn read_sealed(&self, who: &Credentials, node: InodeNumber, offset: u64, bytes: u64) -> Result<Vec<Payload>> {
        let client = self.client.for_one_operation();
        let handle = node.handle();
        let file = match self.sealed.file(handle) {
            Some(file) => file,
            None => {
                let (attr, file) = self.noted(client.open(who, handle, Rights::READ, false).await)?;
                if !attr.is_sealed() {
                    self.close_soon(file).await;
                    self.gateway.warn(&format!("{handle} is not sealed ('weft seal'), and a mount with -o dataset reads only what is"));
                    return Err(Error::local(Status::NotPermitted, "read", handle));
                }
                let (file, surplus) = self.sealed.keep(file);
                if let Some(surplus) = surplus {
                    self.close_soon(surplus).await;
                }
                file
            }
        };
        let bytes = bytes.min(file.size_known().saturating_sub(offset));
        self.noted(client.read(&file, offset, bytes).await)
    }
}
