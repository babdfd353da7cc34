//! Who waits for whose `fcntl` locks. A program whose wait would close a circle is refused
//! (`EDEADLK`): nobody in it would ever go on. Pure.

use weft_base::Handle;

use super::table::Owner;

/// The waits of the programs of one gateway.
#[derive(Debug, Default)]
pub(crate) struct Cycles {
    last: u64,
    waits: Vec<Wait>,
}

#[derive(Debug)]
struct Wait {
    number: u64,
    file: Handle,
    owner: Owner,
    /// Those whose locks are in the way. Empty from the moment at which the locks on the file
    /// change until the waiting thread has looked again.
    holders: Vec<Owner>,
}

impl Cycles {
    /// A number for a wait.
    pub fn number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// This wait goes on, for these. False, and the wait has ended, if one of them waits for its
    /// owner, by whatever way round. The last one who begins to wait closes the circle and is the
    /// one to see it.
    pub fn goes_on(&mut self, number: u64, file: Handle, owner: Owner, holders: Vec<Owner>) -> bool {
        self.ends(number);
        let mut reached = holders.clone();
        let mut looked = 0;
        while looked < reached.len() {
            if reached[looked] == owner {
                return false;
            }
            let further = self.waits.iter().filter(|wait| wait.owner == reached[looked]).flat_map(|wait| &wait.holders);
            let further: Vec<Owner> = further.filter(|holder| !reached.contains(holder)).copied().collect();
            reached.extend(further);
            looked += 1;
        }
        self.waits.push(Wait { number, file, owner, holders });
        true
    }

    /// A wait has ended; nothing if it had not begun.
    pub fn ends(&mut self, number: u64) {
        self.waits.retain(|wait| wait.number != number);
    }

    /// Locks on this file have changed: who waits there will look again.
    pub fn changed(&mut self, file: Handle) {
        self.waits.iter_mut().filter(|wait| wait.file == file).for_each(|wait| wait.holders.clear());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_that_closes_a_circle_is_refused() {
        let mut cycles = Cycles::default();
        let numbers: Vec<u64> = (0..4).map(|_| cycles.number()).collect();
        assert!(cycles.goes_on(numbers[0], Handle(1), 10, vec![20, 21]));
        assert!(cycles.goes_on(numbers[1], Handle(2), 20, vec![30]));
        assert!(!cycles.goes_on(numbers[2], Handle(3), 30, vec![40, 10]), "10 waits for 20, and 20 for 30");
        assert!(cycles.goes_on(numbers[2], Handle(3), 30, vec![40]), "40 waits for nobody");
        assert!(!cycles.goes_on(numbers[3], Handle(4), 21, vec![10]), "the second of those for whom 10 waits");
        cycles.ends(numbers[0]);
        assert!(cycles.goes_on(numbers[3], Handle(4), 21, vec![10]));
    }

    #[test]
    fn whoever_gave_a_lock_back_may_wait_before_it_is_taken() {
        let mut cycles = Cycles::default();
        let (one, other) = (cycles.number(), cycles.number());
        assert!(cycles.goes_on(one, Handle(1), 10, vec![20]));
        cycles.changed(Handle(1));
        assert!(cycles.goes_on(other, Handle(2), 20, vec![10]), "20 has unlocked file 1");
        assert!(!cycles.goes_on(one, Handle(1), 10, vec![20]), "and has locked it again");
    }
}
