//! Things with a number each, of which many come and go.

use std::ops::{Deref, DerefMut};

/// Things by their numbers. The number of one that is gone is used again, the newest first.
#[derive(Clone, Debug)]
pub struct Pool<T> {
    things: Vec<T>,
    free: Vec<u32>,
}

impl<T> Pool<T> {
    /// These, numbered from 0 on.
    pub fn new(things: Vec<T>) -> Pool<T> {
        Pool { things, free: Vec::new() }
    }

    /// Gives a thing its number.
    pub fn add(&mut self, thing: T) -> u32 {
        match self.free.pop() {
            Some(number) => {
                self.things[number as usize] = thing;
                number
            }
            None => {
                self.things.push(thing);
                (self.things.len() - 1) as u32
            }
        }
    }

    /// A thing is gone. It can be looked at until its number is used again.
    pub fn free(&mut self, number: u32) {
        self.free.push(number);
    }
}

impl<T> Default for Pool<T> {
    fn default() -> Pool<T> {
        Pool::new(Vec::new())
    }
}

impl<T> Deref for Pool<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        &self.things
    }
}

impl<T> DerefMut for Pool<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.things
    }
}
