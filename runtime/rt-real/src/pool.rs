//! Buffers for bulk data that are used again and again: a fresh megabyte costs 256 page faults,
//! more than its checksum.

use std::sync::{Mutex, MutexGuard};

use bytes::Bytes;

use crate::envelopes::BEHIND_BYTES;
use crate::sys;

/// Smallest and largest buffer that is kept, as powers of two.
const CLASS_FIRST: u32 = 14;
const CLASS_LAST: u32 = 23;
const CLASSES: usize = (CLASS_LAST - CLASS_FIRST + 1) as usize;
/// Bytes that wait for their next use at most, in all threads of the process together.
const KEPT_BYTES_MAX: usize = 64 << 20;

static POOL: Mutex<Pool> = Mutex::new(Pool { kept_bytes: 0, classes: [const { Vec::new() }; CLASSES] });

struct Pool {
    kept_bytes: usize,
    classes: [Vec<Vec<u8>>; CLASSES],
}

fn class_of(len: usize) -> Option<usize> {
    let bits = len.next_power_of_two().trailing_zeros().max(CLASS_FIRST);
    (bits <= CLASS_LAST).then(|| (bits - CLASS_FIRST) as usize)
}

/// True if buffers of this size are not kept.
pub(crate) fn is_beyond(len: usize) -> bool {
    class_of(len).is_none()
}

/// `None` in a child process in which the lock may be that of a thread that it does not have.
fn pool() -> Option<MutexGuard<'static, Pool>> {
    match sys::forks() {
        0 => Some(POOL.lock().expect("no code panics while it holds this lock")),
        _ => POOL.try_lock().ok(),
    }
}

/// An empty buffer with room for `len` bytes, and for what stands behind them in an envelope.
pub(crate) fn take(len: usize) -> PooledBuf {
    let Some(class) = class_of(len) else {
        return PooledBuf(Vec::with_capacity(len + BEHIND_BYTES));
    };
    let kept = pool().and_then(|mut pool| {
        let kept = pool.classes[class].pop();
        pool.kept_bytes -= kept.as_ref().map_or(0, Vec::capacity);
        kept
    });
    PooledBuf(kept.unwrap_or_else(|| Vec::with_capacity((1 << (class as u32 + CLASS_FIRST)) + BEHIND_BYTES)))
}

/// A buffer that goes back to the pool when it is dropped.
#[derive(Debug, Default)]
pub(crate) struct PooledBuf(pub(crate) Vec<u8>);

impl PooledBuf {
    /// Shares the content; the buffer goes back to the pool with the last reference.
    pub(crate) fn freeze(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl AsRef<[u8]> for PooledBuf {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for PooledBuf {
    fn drop(&mut self) {
        let mut buffer = std::mem::take(&mut self.0);
        let capacity = buffer.capacity();
        let room = capacity.saturating_sub(BEHIND_BYTES);
        let Some(class) = class_of(room).filter(|_| room.is_power_of_two() && room >= 1 << CLASS_FIRST) else {
            return;
        };
        buffer.clear();
        let Some(mut pool) = pool() else { return };
        if pool.kept_bytes + capacity <= KEPT_BYTES_MAX {
            pool.kept_bytes += capacity;
            pool.classes[class].push(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes() {
        assert_eq!((class_of(1), class_of(16384), class_of(16385)), (Some(0), Some(0), Some(1)));
        assert_eq!((class_of(8 << 20), class_of((8 << 20) + 1)), (Some(CLASSES - 1), None));
    }

    #[test]
    fn buffers_come_back_with_the_last_reference() {
        // A class that no other test of this crate uses, because tests share the pool.
        let len = 3 << 20;
        let mut buffer = take(len);
        assert!(buffer.0.is_empty() && buffer.0.capacity() >= len);
        buffer.0.push(7);
        let address = buffer.0.as_ptr();
        let bytes = buffer.freeze();
        let slice = bytes.slice(0..1);
        drop(bytes);
        assert_ne!(take(len).0.as_ptr(), address, "still referenced");
        drop(slice);
        let again = [take(len), take(len)];
        assert!(again.iter().any(|buffer| buffer.0.as_ptr() == address));
    }
}
