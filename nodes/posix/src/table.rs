//! Objects under the numbers by which a gateway names them in later requests.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, RwLock};

use weft_base::FastMap;

/// Objects by number; a number is never given twice.
#[derive(Debug)]
pub(crate) struct Table<T> {
    next: AtomicU64,
    items: RwLock<FastMap<u64, Arc<T>>>,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Table { next: AtomicU64::new(1), items: RwLock::default() }
    }
}

impl<T> Table<T> {
    /// Adds an object; the number is new.
    pub fn add(&self, item: Arc<T>) -> u64 {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.items.write().expect("no code panics while it holds this lock").insert(number, item);
        number
    }

    /// The object with this number.
    pub fn get(&self, number: u64) -> Option<Arc<T>> {
        self.items.read().expect("no code panics while it holds this lock").get(&number).cloned()
    }

    /// The numbers of all objects of which this is true.
    pub fn numbers(&self, is_wanted: impl Fn(&T) -> bool) -> Vec<u64> {
        let items = self.items.read().expect("no code panics while it holds this lock");
        items.iter().filter(|(_, item)| is_wanted(item)).map(|(number, _)| *number).collect()
    }

    /// Takes it out.
    pub fn remove(&self, number: u64) -> Option<Arc<T>> {
        self.items.write().expect("no code panics while it holds this lock").remove(&number)
    }

    /// Takes everything out.
    pub fn drain(&self) -> Vec<Arc<T>> {
        self.items.write().expect("no code panics while it holds this lock").drain().map(|(_, item)| item).collect()
    }
}
