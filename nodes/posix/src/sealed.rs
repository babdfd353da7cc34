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

/// What is known of sealed objects.
#[derive(Debug, Default)]
pub(crate) struct Sealed(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    files: FastMap<Handle, Arc<OpenFile>>,
    /// The same, by the time of their opens.
    order: VecDeque<Handle>,
    directories: FastSet<Handle>,
}

impl Sealed {
    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().expect("no code panics while it holds this lock")
    }

    fn file(&self, handle: Handle) -> Option<Arc<OpenFile>> {
        self.lock().files.get(&handle).cloned()
    }

    /// Keeps a file open; gives back what is to be closed instead.
    fn keep(&self, file: &Arc<OpenFile>) -> Option<Arc<OpenFile>> {
        let mut known = self.lock();
        if known.files.contains_key(&file.handle()) {
            // Opened by two at once.
            return Some(file.clone());
        }
        known.files.insert(file.handle(), file.clone());
        known.order.push_back(file.handle());
        if known.files.len() <= FILES_MAX {
            return None;
        }
        let oldest = known.order.pop_front()?;
        known.files.remove(&oldest)
    }

    /// Everything that is kept open, to be closed.
    pub(crate) fn drain(&self) -> Vec<Arc<OpenFile>> {
        let mut known = self.lock();
        known.order.clear();
        known.files.drain().map(|(_, file)| file).collect()
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
            let mut known = self.sealed.lock();
            if known.directories.len() >= DIRECTORIES_MAX {
                known.directories.clear();
            }
            known.directories.insert(attr.handle);
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
                let surplus = if attr.is_sealed() { self.sealed.keep(&file) } else { Some(file.clone()) };
                if let Some(surplus) = surplus {
                    self.close_soon(surplus).await;
                }
                if !attr.is_sealed() {
                    self.gateway.warn(&format!("{handle} is not sealed ('weft seal'), and a mount with -o dataset reads only what is"));
                    return Err(Error::local(Status::NotPermitted, "read", handle));
                }
                file
            }
        };
        let bytes = bytes.min(file.size_known().saturating_sub(offset));
        self.noted(client.read(&file, offset, bytes).await)
    }
}
