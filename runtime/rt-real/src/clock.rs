//! Time and randomness of the real world.

use std::cell::RefCell;
use std::time::{SystemTime, UNIX_EPOCH};

use ring::rand::SystemRandom;
use weft_base::{ClientId, Nanos, WallTime};
use weft_wire::{Credential, KeyId, KeyPair};

use crate::sys;

/// The monotonic clock.
pub(crate) fn now() -> Nanos {
    sys::monotonic()
}

/// The wall clock.
pub(crate) fn wall() -> WallTime {
    match SystemTime::now().duration_since(UNIX_EPOCH) {
        Ok(since) => WallTime::from_parts(since.as_secs() as i64, since.subsec_nanos()),
        Err(before) => WallTime(-(before.duration().as_nanos() as i64)),
    }
}

/// Fills a buffer from the system's generator.
pub(crate) fn fill_random(bytes: &mut [u8]) {
    getrandom::fill(bytes).expect("the kernel's generator is always there after boot");
}

/// A key pair for one connection.
pub(crate) fn key_pair() -> KeyPair {
    KeyPair::generate(&SystemRandom::new())
}

/// A number that nobody can guess. Drawn from the kernel in blocks: one system call for 32 numbers.
pub(crate) fn random() -> u64 {
    thread_local! {
        /// Of the process after so many forks.
        static BLOCK: RefCell<(u32, Vec<u64>)> = const { RefCell::new((0, Vec::new())) };
    }
    BLOCK.with_borrow_mut(|(of, block)| {
        let forks = sys::forks();
        if block.is_empty() || *of != forks {
            *of = forks;
            block.clear();
            let mut bytes = [0; 256];
            fill_random(&mut bytes);
            block.extend(bytes.chunks_exact(8).map(|chunk| u64::from_le_bytes(chunk.try_into().expect("chunks of 8 bytes"))));
        }
        block.pop().expect("the block was just filled")
    })
}

/// A fresh identity for a client process with this key: random and never zero.
pub fn random_client_id(key: Option<&Credential>) -> ClientId {
    match key {
        Some(key) if key.id != KeyId::SERVERS => key.id.client(random()),
        _ => ClientId(random().max(1)),
    }
}
