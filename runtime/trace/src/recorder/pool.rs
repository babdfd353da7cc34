//! Records under construction, on the heap and used again.
//!
//! A guard that held its record by value would be copied (into a future, into a list of replies)
//! right after its fields were written one by one. A processor cannot hand small stores on to a
//! wide load that follows: it waits until they are in its cache, behind every other store that is
//! on its way. That cost more than all else of a record in a server (`docs/trace.md`, what it
//! costs). So a guard is one pointer.

use std::cell::Cell;
use std::thread::LocalKey;

/// Spare records that a thread keeps: as many as a client usually has requests in flight, and some.
const SPARE_MAX: usize = 256;

/// Spare records of one thread.
pub(super) struct Pool<P>(Cell<Vec<P>>);

/// `P` points to a record.
impl<P: Default> Pool<P> {
    pub(super) const fn new() -> Pool<P> {
        Pool(Cell::new(Vec::new()))
    }

    /// A record with whatever is in it from its last use.
    #[inline]
    pub(super) fn take(pool: &'static LocalKey<Pool<P>>) -> P {
        pool.try_with(|pool| pool.with(Vec::pop)).ok().flatten().unwrap_or_default()
    }

    /// Takes a record back. At the end of a thread it is freed.
    #[inline]
    pub(super) fn give(pool: &'static LocalKey<Pool<P>>, record: P) {
        // If the thread ends, the closure is dropped with the record.
        let _ = pool.try_with(|pool| {
            pool.with(|spare| {
                if spare.len() < SPARE_MAX {
                    spare.push(record);
                }
            });
        });
    }

    #[inline]
    fn with<R>(&self, f: impl FnOnce(&mut Vec<P>) -> R) -> R {
        let mut spare = self.0.take();
        let result = f(&mut spare);
        self.0.set(spare);
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    thread_local! {
        static POOL: Pool<Box<u64>> = const { Pool::new() };
    }

    #[test]
    fn records_are_used_again_up_to_a_limit() {
        let mut first = Pool::take(&POOL);
        *first = 7;
        Pool::give(&POOL, first);
        assert_eq!((*Pool::take(&POOL), *Pool::take(&POOL)), (7, 0));
        (0..SPARE_MAX + 5).for_each(|_| Pool::give(&POOL, Box::new(1)));
        let spare = POOL.with(|pool| pool.with(|spare| spare.len()));
        assert_eq!(spare, SPARE_MAX);
    }
}
