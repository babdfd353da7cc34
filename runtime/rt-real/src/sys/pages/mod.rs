//! The memory of names and inodes, which a metadata server has most of: pieces that are aligned to
//! [`PAGE_ALIGN`]. They come from a region of their own, so that they lie close together. So much
//! of it is ordinary memory as the process was told; what is more lies in a file that is mapped, of
//! which the system keeps in memory what is used and what there is room for. A machine without swap
//! serves more names so than its memory holds.
//!
//! That is no store: the file has no name and ends with the process. A page that cannot be read
//! again ends the process, too (SIGBUS): what it had acknowledged is in its journal.

mod mapping;
mod slabs;

use std::alloc::{GlobalAlloc, Layout, System};
use std::fs::File;
use std::ptr;
use std::sync::{Mutex, PoisonError};

use super::{punch_hole, reserve, space_beside};
use slabs::{BLOCK_BYTES_MAX, Backing, SLAB_BYTES, Slabs};
use weft_base::PAGE_ALIGN;

/// Addresses that are set aside for the region, in bytes; they cost nothing.
const REGION_BYTES: usize = 256 << 30;
/// So much is added at once, in bytes: ordinary memory, and of the file.
const MEMORY_STEP_BYTES: usize = 1 << 20;
const FILE_STEP_BYTES: usize = 16 << 20;
/// So many slabs of each kind that nobody uses are kept for who wants some next.
const IDLE_SLABS: usize = 16;

static PAGES: Mutex<Pages> = Mutex::new(Pages::new());

/// The heap of a server's process: the system's, but for memory of names and inodes.
#[derive(Debug)]
pub struct PagedHeap;

/// What names and inodes take, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageBytes {
    /// In ordinary memory.
    pub memory: u64,
    /// In the page file, of which the system keeps in memory what it has room for.
    pub file: u64,
}

/// From now on names and inodes take so much ordinary memory, and what is more lies in this file,
/// which is empty and has no name.
pub fn keep_pages_in(file: File, memory_bytes: u64) {
    let mut pages = PAGES.lock().unwrap_or_else(PoisonError::into_inner);
    (pages.file, pages.memory_bytes_max) = (Some(file), usize::try_from(memory_bytes).unwrap_or(usize::MAX));
}

/// What names and inodes take.
pub fn page_bytes() -> PageBytes {
    PAGES.lock().unwrap_or_else(PoisonError::into_inner).bytes()
}

/// Ends the process where a panic would leave an allocator, which nobody may rely on after it.
struct EndsWithPanic;

impl Drop for EndsWithPanic {
    fn drop(&mut self) {
        std::process::abort();
    }
}

fn with_pages<T>(work: impl FnOnce(&mut Pages) -> T) -> T {
    let guard = EndsWithPanic;
    let result = work(&mut PAGES.lock().unwrap_or_else(PoisonError::into_inner));
    std::mem::forget(guard);
    result
}

fn is_of_pages(layout: Layout) -> bool {
    layout.align() == PAGE_ALIGN && layout.size() <= BLOCK_BYTES_MAX
}

// SAFETY: memory is the system's, or a block that `Pages` hands out to one at a time, with the size
// and alignment that are asked for. No call unwinds.
unsafe impl GlobalAlloc for PagedHeap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if is_of_pages(layout)
            && let Some(block) = with_pages(|pages| pages.take(layout.size()))
        {
            return block;
        }
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        if !is_of_pages(layout) || !with_pages(|pages| pages.give(memory, layout.size())) {
            // SAFETY: as the caller promises; it did not come from the pages.
            unsafe { System.dealloc(memory, layout) }
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if !is_of_pages(layout) {
            // SAFETY: as the caller promises.
            return unsafe { System.alloc_zeroed(layout) };
        }
        // SAFETY: as the caller promises.
        let memory = unsafe { self.alloc(layout) };
        if !memory.is_null() {
            // SAFETY: it has so many bytes.
            unsafe { ptr::write_bytes(memory, 0, layout.size()) };
        }
        memory
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        let Ok(wanted) = Layout::from_size_align(bytes, layout.align()) else { return ptr::null_mut() };
        if !is_of_pages(layout) && !is_of_pages(wanted) {
            // SAFETY: as the caller promises; both are the system's.
            return unsafe { System.realloc(memory, layout, bytes) };
        }
        // SAFETY: the layout is sound.
        let moved = unsafe { self.alloc(wanted) };
        if !moved.is_null() {
            // SAFETY: both have so many bytes, and one is new; the caller gives the other up.
            unsafe {
                ptr::copy_nonoverlapping(memory, moved, layout.size().min(bytes));
                self.dealloc(memory, layout);
            }
        }
        moved
    }
}

/// The region and what of it is in use.
#[derive(Debug)]
struct Pages {
    /// Where the region begins; 0: there is none, or nothing was asked for yet.
    begin: usize,
    was_asked: bool,
    slabs: Slabs,
    memory_slabs: usize,
    memory_bytes_max: usize,
    file: Option<File>,
}

impl Pages {
    const fn new() -> Pages {
        Pages { begin: 0, was_asked: false, slabs: Slabs::new(), memory_slabs: 0, memory_bytes_max: usize::MAX, file: None }
    }

    fn bytes(&self) -> PageBytes {
        let of = |backing, slabs: usize| (SLAB_BYTES * slabs.saturating_sub(self.slabs.without_blocks(backing))) as u64;
        PageBytes { memory: of(Backing::Memory, self.memory_slabs), file: of(Backing::File, self.slabs.len() - self.memory_slabs) }
    }

    /// A block of this size; `None`: the region has none.
    fn take(&mut self, bytes: usize) -> Option<*mut u8> {
        let taken = [Backing::Memory, Backing::File].into_iter().find_map(|backing| self.slabs.take(backing, bytes));
        let (slab, place) = match taken {
            Some(taken) => taken,
            None => {
                let (slab, backing) = self.empty_slab()?;
                self.slabs.cut(slab, bytes);
                self.slabs.take(backing, bytes)?
            }
        };
        Some((self.begin + slab * SLAB_BYTES + place) as *mut u8)
    }

    /// A slab without blocks whose memory is there: of ordinary memory up to the limit, then of the
    /// file, and of memory all the same if the file cannot have more.
    fn empty_slab(&mut self) -> Option<(usize, Backing)> {
        if !self.was_asked {
            self.was_asked = true;
            self.begin = mapping::set_addresses_aside(REGION_BYTES).unwrap_or(0);
        }
        if self.begin == 0 {
            return None;
        }
        let is_below = self.memory_slabs * SLAB_BYTES < self.memory_bytes_max;
        let mut found = self.slabs.empty(Backing::Memory).map(|(slab, _)| (slab, Backing::Memory));
        if found.is_none() && is_below {
            found = self.grow_memory();
        }
        found.or_else(|| self.empty_file_slab()).or_else(|| self.grow_memory())
    }

    fn grow_memory(&mut self) -> Option<(usize, Backing)> {
        let at = self.end(MEMORY_STEP_BYTES)?;
        mapping::make_usable(at, MEMORY_STEP_BYTES).ok()?;
        self.memory_slabs += MEMORY_STEP_BYTES / SLAB_BYTES;
        self.add(Backing::Memory, MEMORY_STEP_BYTES)
    }

    fn empty_file_slab(&mut self) -> Option<(usize, Backing)> {
        let file = self.file.as_ref()?;
        if let Some((slab, is_given_back)) = self.slabs.empty(Backing::File) {
            let is_there = !is_given_back || reserve(file, (slab * SLAB_BYTES) as u64, SLAB_BYTES as u64).is_ok();
            return is_there.then_some((slab, Backing::File));
        }
        let at = self.end(FILE_STEP_BYTES)?;
        let (offset, step) = ((at - self.begin) as u64, FILE_STEP_BYTES as u64);
        // The next checkpoint, about as large as the pages, must find room beside it.
        let bytes = self.bytes();
        if space_beside(file).ok()?.1 < bytes.memory + bytes.file + step {
            return None;
        }
        // Space that is set aside: no write to this memory finds the disk full.
        reserve(file, offset, step).ok()?;
        if mapping::map_file(file, offset, at, FILE_STEP_BYTES).is_err() {
            // What stays on the disk ends with the process.
            let _ = punch_hole(file, offset, step);
            return None;
        }
        self.add(Backing::File, FILE_STEP_BYTES)
    }

    /// Where the region goes on, if it has room for so many bytes.
    fn end(&self, bytes: usize) -> Option<usize> {
        let used = self.slabs.len() * SLAB_BYTES;
        (used + bytes <= REGION_BYTES).then_some(self.begin + used)
    }

    fn add(&mut self, backing: Backing, bytes: usize) -> Option<(usize, Backing)> {
        (0..bytes / SLAB_BYTES).for_each(|_| self.slabs.add(backing));
        self.slabs.empty(backing).map(|(slab, _)| (slab, backing))
    }

    /// Takes a block back. False: it is none of the region.
    fn give(&mut self, block: *mut u8, bytes: usize) -> bool {
        let place = (block as usize).wrapping_sub(self.begin);
        if self.begin == 0 || place >= REGION_BYTES {
            return false;
        }
        let slab = place / SLAB_BYTES;
        let backing = self.slabs.backing(slab);
        if self.slabs.give(slab, place % SLAB_BYTES, bytes) && self.slabs.idle(backing) > IDLE_SLABS {
            match (backing, &self.file) {
                (Backing::File, Some(file)) => {
                    // A disk that makes no holes keeps it.
                    let _ = punch_hole(file, (slab * SLAB_BYTES) as u64, SLAB_BYTES as u64);
                }
                _ => mapping::give_memory_back(self.begin + slab * SLAB_BYTES, SLAB_BYTES),
            }
            self.slabs.note_given_back(slab);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    /// A file without a name.
    fn file() -> File {
        tempfile::tempfile().expect("a disk takes a file")
    }

    fn disk_bytes(file: &File) -> u64 {
        use std::os::unix::fs::MetadataExt as _;
        file.metadata().unwrap().blocks() * 512
    }

    #[test]
    fn what_is_more_than_the_memory_lies_in_the_file_and_goes_again() {
        let mut pages = Pages { memory_bytes_max: 1 << 20, file: Some(file()), ..Pages::new() };
        // 12 MB, of which one is for memory.
        let blocks: Vec<_> = (0..3000).map(|number| (pages.take(4096).unwrap(), number as u8)).collect();
        for (block, number) in &blocks {
            // SAFETY: it has so many bytes, and nobody else has it.
            unsafe { ptr::write_bytes(*block, *number, 4096) };
        }
        let bytes = pages.bytes();
        assert_eq!(bytes.memory, 1 << 20);
        assert!((10 << 20..12 << 20).contains(&bytes.file), "{bytes:?}");
        for (block, number) in &blocks {
            // SAFETY: as above.
            assert!(unsafe { std::slice::from_raw_parts(*block, 4096) }.iter().all(|byte| byte == number));
        }
        let most = disk_bytes(pages.file.as_ref().unwrap());
        for (block, _) in blocks {
            assert!(pages.give(block, 4096));
        }
        assert_eq!(pages.bytes(), PageBytes::default());
        let left = disk_bytes(pages.file.as_ref().unwrap());
        assert!(left + (8 << 20) < most, "{left} of {most} bytes are still on the disk");
        // What was given back is there again.
        let again: Vec<_> = (0..3000).map(|_| pages.take(4096).unwrap()).collect();
        for block in again {
            // SAFETY: as above.
            unsafe { ptr::write_bytes(block, 1, 4096) };
        }
        assert!(!pages.give(ptr::from_ref(&pages).cast_mut().cast(), 4096), "what is elsewhere is not taken");
    }

    #[test]
    fn a_file_that_cannot_grow_is_replaced_by_memory() {
        // What is open for reading alone can be neither longer nor mapped.
        let named = tempfile::NamedTempFile::new().unwrap();
        named.as_file().write_all(b"x").unwrap();
        let mut pages = Pages { memory_bytes_max: 1 << 20, file: Some(File::open(named.path()).unwrap()), ..Pages::new() };
        for _ in 0..1000 {
            let block = pages.take(4096).unwrap();
            // SAFETY: it has so many bytes, and nobody else has it.
            unsafe { ptr::write_bytes(block, 1, 4096) };
        }
        assert!(pages.bytes().memory >= 1000 * 4096);
        assert_eq!(pages.bytes().file, 0);
    }

    #[test]
    fn a_heap_gives_what_is_aligned_so_and_all_other_memory() {
        for (bytes, align) in [(4096, PAGE_ALIGN), (3072, PAGE_ALIGN), (8192, PAGE_ALIGN), (4096, 4096), (100, 8)] {
            let layout = Layout::from_size_align(bytes, align).unwrap();
            // SAFETY: memory is used as it was asked for.
            unsafe {
                let memory = PagedHeap.alloc_zeroed(layout);
                assert!((memory as usize).is_multiple_of(align));
                assert!(std::slice::from_raw_parts(memory, bytes).iter().all(|byte| *byte == 0));
                ptr::write_bytes(memory, 7, bytes);
                let memory = PagedHeap.realloc(memory, layout, bytes * 2);
                assert!(std::slice::from_raw_parts(memory, bytes).iter().all(|byte| *byte == 7));
                PagedHeap.dealloc(memory, Layout::from_size_align(bytes * 2, align).unwrap());
            }
        }
        let layout = Layout::from_size_align(4096, PAGE_ALIGN).unwrap();
        // SAFETY: as above.
        unsafe {
            let memory = PagedHeap.alloc(layout);
            assert!(page_bytes().memory > 0);
            PagedHeap.dealloc(memory, layout);
        }
    }
}
