//! The bytes of a database's file in memory, and what the database has done to them.
//!
//! The library reads and writes at once; the disk below the seam takes time. So the library works
//! on an image, and its accesses are noted as steps that somebody makes on the disk later, in
//! their order and with their flushes: a power cut in a simulation meets the same file as a real
//! one.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::{Bytes, BytesMut};
use redb::StorageBackend;

/// Granularity of an image, in bytes: the library's pages.
const PAGE_BYTES: usize = 4096;
/// Pages that one write takes at most.
const PAGES_PER_WRITE: usize = 256;

/// What is to be done to the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// It has this length, in bytes.
    Len(u64),
    /// These bytes are at this offset.
    Write(u64, Bytes),
    /// What was written is on stable storage.
    Sync,
}

/// An image, shared by its database and by who makes the steps.
#[derive(Clone, Debug, Default)]
pub(crate) struct Image(Arc<Mutex<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    len: u64,
    /// Pages that are not all zeros, by their number.
    pages: BTreeMap<u64, Box<[u8]>>,
    /// Numbers of the pages that differ from the file once all steps are made.
    changed: BTreeSet<u64>,
    steps: VecDeque<Step>,
}

impl Image {
    /// Of a file with this content.
    pub(crate) fn of(content: &[u8]) -> Image {
        let image = Image::default();
        let mut inner = image.lock();
        inner.len = content.len() as u64;
        for (number, page) in content.chunks(PAGE_BYTES).enumerate().filter(|(_, page)| page.iter().any(|byte| *byte != 0)) {
            inner.page(number as u64)[..page.len()].copy_from_slice(page);
        }
        drop(inner);
        image
    }

    /// The first step that is not made yet.
    pub(crate) fn first_step(&self) -> Option<Step> {
        self.lock().steps.front().cloned()
    }

    /// The first step is made.
    pub(crate) fn step_is_made(&self) {
        self.lock().steps.pop_front();
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().expect("nobody panics with an image in hand")
    }
}

impl Inner {
    fn page(&mut self, number: u64) -> &mut [u8] {
        self.pages.entry(number).or_insert_with(|| vec![0; PAGE_BYTES].into())
    }

    /// Parts of the range `offset`, `len` page by page: number, first byte in the page, bytes.
    fn parts(offset: u64, len: usize) -> impl Iterator<Item = (u64, usize, usize)> {
        let (mut at, end) = (offset, offset + len as u64);
        std::iter::from_fn(move || {
            let (number, first) = (at / PAGE_BYTES as u64, (at % PAGE_BYTES as u64) as usize);
            let bytes = (PAGE_BYTES - first).min((end - at) as usize);
            at += bytes as u64;
            (bytes > 0).then_some((number, first, bytes))
        })
    }

    /// Changed pages become steps, neighbours one write.
    fn note_writes(&mut self) {
        let mut run: Option<(u64, BytesMut)> = None;
        for number in std::mem::take(&mut self.changed) {
            let at = number * PAGE_BYTES as u64;
            let bytes = self.len.saturating_sub(at).min(PAGE_BYTES as u64) as usize;
            let Some(page) = self.pages.get(&number).filter(|_| bytes > 0) else { continue };
            match &mut run {
                Some((start, run)) if *start + run.len() as u64 == at && run.len() < PAGES_PER_WRITE * PAGE_BYTES => {
                    run.extend_from_slice(&page[..bytes]);
                }
                _ => {
                    let full = run.replace((at, BytesMut::from(&page[..bytes])));
                    self.steps.extend(full.map(|(start, run)| Step::Write(start, run.freeze())));
                }
            }
        }
        self.steps.extend(run.map(|(start, run)| Step::Write(start, run.freeze())));
    }
}

impl StorageBackend for Image {
    fn len(&self) -> Result<u64, std::io::Error> {
        Ok(self.lock().len)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), std::io::Error> {
        let inner = self.lock();
        if offset + out.len() as u64 > inner.len {
            return Err(std::io::Error::from(std::io::ErrorKind::UnexpectedEof));
        }
        let mut done = 0;
        for (number, first, bytes) in Inner::parts(offset, out.len()) {
            match inner.pages.get(&number) {
                Some(page) => out[done..done + bytes].copy_from_slice(&page[first..first + bytes]),
                None => out[done..done + bytes].fill(0),
            }
            done += bytes;
        }
        Ok(())
    }

    fn set_len(&self, len: u64) -> Result<(), std::io::Error> {
        let mut inner = self.lock();
        if len < inner.len {
            // What was written before must not come behind the cut.
            inner.note_writes();
            inner.pages.split_off(&len.div_ceil(PAGE_BYTES as u64));
            let (number, first) = (len / PAGE_BYTES as u64, (len % PAGE_BYTES as u64) as usize);
            if let Some(page) = inner.pages.get_mut(&number) {
                page[first..].fill(0);
            }
        }
        inner.len = len;
        inner.steps.push_back(Step::Len(len));
        Ok(())
    }

    fn sync_data(&self) -> Result<(), std::io::Error> {
        let mut inner = self.lock();
        inner.note_writes();
        inner.steps.push_back(Step::Sync);
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), std::io::Error> {
        let mut inner = self.lock();
        let mut done = 0;
        for (number, first, bytes) in Inner::parts(offset, data.len()) {
            inner.page(number)[first..first + bytes].copy_from_slice(&data[done..done + bytes]);
            inner.changed.insert(number);
            done += bytes;
        }
        inner.len = inner.len.max(offset + data.len() as u64);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(image: &Image) -> Vec<Step> {
        std::iter::from_fn(|| image.first_step().inspect(|_| image.step_is_made())).collect()
    }

    #[test]
    fn writes_become_steps_in_the_order_of_flushes() {
        let image = Image::of(&[7; 5000]);
        image.set_len(3 * 4096).expect("longer");
        image.write(4096, &[1; 4096]).expect("inside");
        image.write(8000, &[2; 200]).expect("over the border of a page");
        assert!(image.first_step() == Some(Step::Len(3 * 4096)) && steps(&image).len() == 1, "writes wait for a flush");
        image.sync_data().expect("a flush");
        let [Step::Write(4096, bytes), Step::Sync] = &steps(&image)[..] else { panic!("neighbours are one write") };
        assert!(bytes.len() == 8192 && bytes[0] == 1 && bytes[8000 - 4096..8200 - 4096].iter().all(|byte| *byte == 2) && bytes[5000] == 0);
        let mut first = [0; 4100];
        image.read(0, &mut first).expect("inside");
        assert!(first[..4096].iter().all(|byte| *byte == 7) && first[4096..] == [1; 4]);
        image.write(0, &[9]).expect("inside");
        image.set_len(100).expect("shorter");
        assert!(matches!(&steps(&image)[..], [Step::Write(0, bytes), Step::Len(100)] if bytes.len() == 4096), "the cut comes behind");
        assert!(image.read(99, &mut [0; 2]).is_err());
        image.set_len(4096).expect("longer");
        image.read(100, &mut first[..1]).expect("inside");
        assert_eq!(first[0], 0, "what was cut off reads as zeros");
    }
}
