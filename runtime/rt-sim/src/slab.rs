//! Things with a number each; numbers are used again.

/// A table of things.
pub(crate) struct Slab<T> {
    places: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Slab { places: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slab<T> {
    pub(crate) fn add(&mut self, thing: T) -> u32 {
        match self.free.pop() {
            Some(index) => {
                self.places[index as usize] = Some(thing);
                index
            }
            None => {
                self.places.push(Some(thing));
                self.places.len() as u32 - 1
            }
        }
    }

    pub(crate) fn get(&self, index: u32) -> &T {
        self.places[index as usize].as_ref().expect("numbers are only used while their thing is there")
    }

    pub(crate) fn take(&mut self, index: u32) -> T {
        self.free.push(index);
        self.places[index as usize].take().expect("numbers are only used while their thing is there")
    }
}
