//! FUSE over io_uring: the memory in which the kernel puts a request and finds its answer, and its
//! layout.
//!
//! The kernel keeps a queue for each processor and gives the requests made there to whichever entry
//! of the queue became free last. An entry is a place in memory and a command that waits. Here each
//! entry belongs to one thread, which serves its request to its end: so no request waits behind
//! another while a thread is free, the thread that worked last works next, and answer and next
//! request are one system call.
//!
//! A request that is interrupted is answered by another thread, which takes the entry over. The
//! first one may still read the names and the data of its request; so the memory is mapped twice:
//! by the kernel's address, which stays with the entry, and by that of the thread, which keeps the
//! old memory while the entry gets new.

use std::ffi::CStr;
use std::fmt;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::Arc;

use super::abi::{Fields, IN_HEADER_BYTES, InHeader, Malformed, OUT_HEADER_BYTES, fixed_bytes, out_header};
use super::request::Pieces;
use super::uring::{Mapping, Uring};
use crate::REQUEST_BYTES_MAX;

/// Makes an entry known and waits for its first request.
pub const COMMAND_REGISTER: u32 = 1;
/// Answers a request and waits for the next.
pub const COMMAND_COMMIT_AND_FETCH: u32 = 2;

/// Where the headers of a request or reply are among the headers of an entry, the record of its
/// operation, and what is said about both.
const RECORD_AT: usize = 128;
const SAID_AT: usize = 256;
/// Bytes of all headers of an entry.
pub const HEADERS_BYTES: usize = 288;
/// Where names, values and data are.
const PAYLOAD_AT: usize = 4096;
/// Bytes for them.
pub const PAYLOAD_BYTES: usize = REQUEST_BYTES_MAX as usize;
/// Bytes of an entry's memory.
const ENTRY_BYTES: usize = PAYLOAD_AT + PAYLOAD_BYTES;

/// The memory of an entry by the address that the kernel knows.
#[derive(Debug)]
pub struct Place(Mapping);

/// The memory of an entry by the address that its thread uses.
#[derive(Debug)]
pub struct View(Mapping);

/// Memory for an entry that has some already.
#[derive(Debug)]
pub struct Spare {
    memory: OwnedFd,
    view: View,
}

/// The headers of a request, by value.
pub struct Headers {
    bytes: [u8; HEADERS_BYTES],
    /// What the kernel calls the request.
    pub commit: u64,
    payload: usize,
}

impl Place {
    /// New memory for an entry.
    ///
    /// # Errors
    /// If there is none, like everything here.
    pub fn new() -> io::Result<(Arc<Place>, View)> {
        let memory = memory()?;
        let place = Mapping::of_file(&memory, 0, ENTRY_BYTES)?;
        Ok((Arc::new(Place(place)), View(Mapping::of_file(&memory, 0, ENTRY_BYTES)?)))
    }

    /// Gives the entry new memory; what the views of the old show stays.
    pub fn renew(&self, spare: Spare) -> io::Result<View> {
        self.0.replace(&spare.memory)?;
        Ok(spare.view)
    }

    /// The two pieces that the kernel is told about.
    pub fn pieces(&self) -> [libc::iovec; 2] {
        let start = self.0.start().as_ptr();
        let piece = |at: usize, bytes: usize| libc::iovec { iov_base: start.wrapping_add(at).cast(), iov_len: bytes };
        [piece(0, HEADERS_BYTES), piece(PAYLOAD_AT, PAYLOAD_BYTES)]
    }
}

impl Spare {
    /// For [`Place::renew`].
    pub fn new() -> io::Result<Spare> {
        let memory = memory()?;
        let view = View(Mapping::of_file(&memory, 0, ENTRY_BYTES)?);
        Ok(Spare { memory, view })
    }
}

impl View {
    /// The headers of the request that the kernel has put there.
    pub fn headers(&self) -> Result<Headers, Malformed> {
        let mut bytes = [0; HEADERS_BYTES];
        // SAFETY: the mapping is longer; the kernel writes there only while a command is under way,
        // and none is.
        unsafe { std::ptr::copy_nonoverlapping(self.0.start().as_ptr(), bytes.as_mut_ptr(), HEADERS_BYTES) };
        let mut said = Fields(&bytes[SAID_AT..]);
        let (_, commit, payload) = (said.u64()?, said.u64()?, said.u32()? as usize);
        if payload > PAYLOAD_BYTES {
            return Err(Malformed);
        }
        Ok(Headers { bytes, commit, payload })
    }

    /// The request. What it borrows is the memory of the entry: nothing may be written there before
    /// it is done with.
    pub fn request<'a>(&'a self, headers: &'a Headers) -> Result<Pieces<'a>, Malformed> {
        let header = InHeader::parse(&headers.bytes[..IN_HEADER_BYTES])?;
        let fixed = &headers.bytes[RECORD_AT..RECORD_AT + fixed_bytes(header.opcode).unwrap_or(0)];
        let rest: &[u8] = match headers.payload {
            // Then the answer may be written there at once.
            0 => &[],
            // SAFETY: the length was checked; nobody writes there until the request is done with,
            // as the callers promise.
            bytes => unsafe { std::slice::from_raw_parts(self.payload(), bytes) },
        };
        Ok(Pieces { header, fixed, rest })
    }

    /// Writes the header of an answer with so many bytes of payload.
    pub fn write_header(&self, unique: u64, error: i32, bytes: usize) {
        let header = out_header(unique, error, bytes);
        let start = self.0.start().as_ptr();
        let said = (bytes as u32).to_ne_bytes();
        // SAFETY: both are within the mapping; the kernel does not look before the command that is
        // submitted later.
        unsafe {
            std::ptr::copy_nonoverlapping(header.bytes().as_ptr(), start, OUT_HEADER_BYTES);
            std::ptr::copy_nonoverlapping(said.as_ptr(), start.add(SAID_AT + 16), said.len());
        }
    }

    fn payload(&self) -> *mut u8 {
        // SAFETY: within the mapping.
        unsafe { self.0.start().as_ptr().add(PAYLOAD_AT) }
    }
}

impl Headers {
    /// True if the request borrows nothing of the entry's memory.
    pub fn has_no_payload(&self) -> bool {
        self.payload == 0
    }
}

/// The answer of the thread that serves an entry.
pub struct RingAnswer {
    view: Arc<View>,
    /// The request borrows nothing of the entry's memory: the answer is written there at once.
    direct: bool,
    /// Otherwise it is kept here until the request is done with.
    kept: Vec<u8>,
    /// The answer that was given: error and bytes of payload.
    given: Option<(i32, usize)>,
}

impl fmt::Debug for RingAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RingAnswer").field("given", &self.given).finish_non_exhaustive()
    }
}

impl RingAnswer {
    /// Answers go into the memory that `view` shows.
    pub fn new(view: Arc<View>) -> RingAnswer {
        RingAnswer { view, direct: false, kept: Vec::new(), given: None }
    }

    /// A request begins.
    pub fn begin(&mut self, direct: bool) {
        self.direct = direct;
        self.given = None;
    }

    /// Notes the answer.
    pub fn give(&mut self, error: i32, pieces: &[&[u8]]) {
        let bytes: usize = pieces.iter().map(|piece| piece.len()).sum();
        if bytes > PAYLOAD_BYTES {
            self.given = Some((libc::EIO, 0));
            return;
        }
        if self.direct {
            let mut at = self.view.payload();
            for piece in pieces {
                // SAFETY: all pieces together fit; nothing borrows this memory (`direct`), and the
                // kernel does not look yet.
                unsafe {
                    std::ptr::copy_nonoverlapping(piece.as_ptr(), at, piece.len());
                    at = at.add(piece.len());
                }
            }
        } else {
            self.kept.clear();
            pieces.iter().for_each(|piece| self.kept.extend_from_slice(piece));
        }
        self.given = Some((error, bytes));
    }

    /// Writes the answer down for the kernel; the request is done with. False if there is none:
    /// somebody else has given it.
    pub fn finish(&mut self, unique: u64) -> bool {
        let Some((error, bytes)) = self.given.take() else { return false };
        if !self.direct {
            // SAFETY: what is kept fits; the request that borrowed this memory is done with.
            unsafe { std::ptr::copy_nonoverlapping(self.kept.as_ptr(), self.view.payload(), self.kept.len()) };
        }
        self.view.write_header(unique, error, bytes);
        true
    }
}

/// Memory that can be mapped twice.
fn memory() -> io::Result<OwnedFd> {
    let name: &CStr = c"weft-ring";
    // SAFETY: `name` is a NUL-terminated string.
    let fd = unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and nobody else owns it.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    std::fs::File::from(fd.try_clone()?).set_len(ENTRY_BYTES as u64)?;
    Ok(fd)
}

/// Why requests cannot come over io_uring here.
///
/// # Errors
/// The reason, and what to do.
pub fn check() -> io::Result<()> {
    const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";
    let unsupported = |words: String| io::Error::new(io::ErrorKind::Unsupported, words);
    match std::fs::read_to_string(SWITCH) {
        Err(_) => return Err(unsupported("the kernel has no FUSE over io_uring (Linux 6.14 and later do)".into())),
        Ok(switch) if switch.trim() != "Y" => {
            return Err(unsupported(format!("FUSE over io_uring is switched off: as root, echo Y > {SWITCH}")));
        }
        Ok(_) => {}
    }
    Uring::new().map(drop).map_err(|error| unsupported(format!("this process may not use io_uring: {error}")))
}

/// How many queues the kernel keeps: one for each processor that there could be.
///
/// # Errors
/// If the system does not say.
pub fn queues() -> io::Result<u16> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/possible")?;
    last_of_list(&text).and_then(|last| last.checked_add(1)).ok_or_else(|| io::Error::other(format!("processors {text:?}?")))
}

/// The largest number of a list like `0-3,5`.
fn last_of_list(text: &str) -> Option<u16> {
    text.trim().rsplit([',', '-']).next()?.parse().ok()
}

/// Binds the calling thread to the processor of its queue: a request is then served where it was
/// made. One that may not run there serves all the same.
pub fn bind_to(queue: u16) {
    // SAFETY: an all-zero set is valid.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    if usize::from(queue) >= 8 * size_of::<libc::cpu_set_t>() {
        return;
    }
    // SAFETY: the number is within the set; the call reads it.
    unsafe {
        libc::CPU_SET(queue.into(), &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::abi::{OutRecord, opcode};

    /// Writes as the kernel does, by the address that it knows.
    fn put(place: &Place, piece: usize, at: usize, bytes: &[u8]) {
        let start = place.pieces()[piece].iov_base.cast::<u8>();
        // SAFETY: the tests stay within the pieces, and nobody borrows them.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), start.add(at), bytes.len()) };
    }

    fn get(place: &Place, piece: usize, at: usize, bytes: usize) -> Vec<u8> {
        let start = place.pieces()[piece].iov_base.cast::<u8>();
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts(start.add(at), bytes) }.to_vec()
    }

    fn put_request(place: &Place, code: u32, fixed: &[u8], rest: &[u8]) {
        let header = OutRecord::<40>::new().u32(40).u32(code).u64(10).u64(2).u32(1).u32(2).u32(3).u32(0);
        put(place, 0, 0, header.bytes());
        put(place, 0, RECORD_AT, fixed);
        put(place, 0, SAID_AT, OutRecord::<32>::new().u64(0).u64(4711).u32(rest.len() as u32).u32(0).u64(0).bytes());
        put(place, 1, 0, rest);
    }

    #[test]
    fn a_request_is_read_and_its_answer_written_where_the_kernel_looks() {
        let (place, view) = Place::new().expect("memory");
        put_request(&place, opcode::MKDIR, &[7; 8], b"name\0");
        let headers = view.headers().expect("headers");
        assert_eq!((headers.commit, headers.has_no_payload()), (4711, false));
        let second = view.0.start();
        let pieces = view.request(&headers).expect("a request");
        assert_eq!((pieces.header.unique, pieces.fixed, pieces.rest), (10, &[7u8; 8][..], &b"name\0"[..]));
        assert_ne!(second.as_ptr().cast(), place.pieces()[0].iov_base, "two addresses of the same memory");
        // The entry gets new memory; the request stays readable.
        let renewed = place.renew(Spare::new().expect("memory")).expect("memory");
        put_request(&place, opcode::READ, &[0; 40], b"");
        assert_eq!(pieces.rest, b"name\0");
        let mut answer = RingAnswer::new(Arc::new(renewed));
        answer.begin(true);
        assert!(!answer.finish(10), "there is none");
        answer.give(0, &[b"ab", b"cde"]);
        assert!(answer.finish(10));
        assert_eq!(get(&place, 1, 0, 5), b"abcde");
        assert_eq!(get(&place, 0, 0, 16), out_header(10, 0, 5).bytes());
        assert_eq!(get(&place, 0, SAID_AT + 16, 4), 5u32.to_ne_bytes());
        answer.begin(false);
        answer.give(libc::ENOENT, &[]);
        assert!(answer.finish(12));
        assert_eq!(get(&place, 0, 0, 16), out_header(12, libc::ENOENT, 0).bytes());
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let (place, view) = Place::new().expect("memory");
        put(&place, 0, SAID_AT, OutRecord::<24>::new().u64(0).u64(1).u32(PAYLOAD_BYTES as u32 + 1).bytes());
        assert!(view.headers().is_err());
        let mut answer = RingAnswer::new(Arc::new(view));
        answer.begin(false);
        answer.give(0, &[&vec![0; PAYLOAD_BYTES], b"x"]);
        assert!(answer.finish(1));
        assert_eq!(get(&place, 0, 0, 16), out_header(1, libc::EIO, 0).bytes());
    }

    #[test]
    fn lists_of_processors_are_read() {
        assert_eq!(
            [last_of_list("0-1\n"), last_of_list("0"), last_of_list("0-3,8-127\n"), last_of_list("")],
            [Some(1), Some(0), Some(127), None]
        );
    }
}
