//! Which bytes of a file lie on which server.

use crate::program::{Extent, push_merged};

/// A rule of distribution. Both put stripe 0 of every file on server 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Striping {
    /// Round robin, stripe by stripe (RAID-0).
    #[default]
    Simple,
    /// Round robin with the slip that the simulator of the thesis had until September 2009 (Tables
    /// 6.1 to 6.5): it counted the whole stripes of an access from the beginning of its first
    /// stripe instead of from the end, so that an access that is not aligned may send the bytes of
    /// one stripe to the wrong server. Bytes are still counted right in sum.
    Slipped,
}

/// Cuts lists of extents into lists for each server; keeps its space between calls.
#[derive(Debug)]
pub struct Splitter {
    striping: Striping,
    stripe_bytes: u64,
    lists: Vec<Vec<Extent>>,
}

impl Splitter {
    /// For so many servers.
    pub fn new(striping: Striping, stripe_bytes: u64, servers: u32) -> Splitter {
        Splitter { striping, stripe_bytes, lists: vec![Vec::new(); servers as usize] }
    }

    /// Splits a list (extents of the file) into one list for each server (extents of the server's
    /// part of the file). A server's list follows the order of the whole; extents that continue
    /// each other are merged.
    pub fn split(&mut self, list: &[Extent]) -> &[Vec<Extent>] {
        for server in &mut self.lists {
            server.clear();
        }
        for &extent in list {
            match self.striping {
                Striping::Simple => self.simple(extent),
                Striping::Slipped => self.slipped(extent),
            }
        }
        &self.lists
    }

    /// The list of one server after the last split.
    pub fn list(&self, server: u32) -> &[Extent] {
        &self.lists[server as usize]
    }

    fn simple(&mut self, extent: Extent) {
        let (stripe_bytes, servers) = (self.stripe_bytes, self.lists.len() as u64);
        let (first, last) = (extent.offset / stripe_bytes, (extent.end().max(1) - 1) / stripe_bytes);
        if extent.bytes == 0 {
            return;
        }
        if first == last {
            let physical = first / servers * stripe_bytes + extent.offset % stripe_bytes;
            push_merged(&mut self.lists[(first % servers) as usize], Extent { offset: physical, bytes: extent.bytes });
            return;
        }
        // Server by server: the stripes of one server follow each other in its part of the file.
        for stripe in first..=last.min(first + servers - 1) {
            let turns = (last - stripe) / servers;
            let last_here = stripe + turns * servers;
            let row = stripe / servers * stripe_bytes;
            let start = if stripe == first { row + extent.offset % stripe_bytes } else { row };
            let end_row = last_here / servers * stripe_bytes;
            let end = if last_here == last { end_row + (extent.end() - 1) % stripe_bytes + 1 } else { end_row + stripe_bytes };
            push_merged(&mut self.lists[(stripe % servers) as usize], Extent { offset: start, bytes: end - start });
        }
    }

    fn slipped(&mut self, extent: Extent) {
        let (stripe_bytes, servers) = (self.stripe_bytes, self.lists.len() as u64);
        let first = extent.offset / stripe_bytes;
        let inside = extent.offset % stripe_bytes;
        let head = if inside == 0 { 0 } else { (stripe_bytes - inside).min(extent.bytes) };
        // The slip: `inside` where `head` should be.
        let full = extent.bytes.saturating_sub(inside) / stripe_bytes;
        let tail = extent.bytes as i64 - (full * stripe_bytes) as i64 - head as i64;
        let tail_position = ((extent.bytes + stripe_bytes - 1 + inside) / stripe_bytes).max(1) - 1;
        let full_from = u64::from(head > 0);
        for position in 0..servers {
            let mut bytes = if position == 0 { head as i64 } else { 0 };
            // Whole stripes take the positions from `full_from` on, round and round.
            let shift = (position + servers - full_from) % servers;
            if full > shift {
                bytes += (((full - 1 - shift) / servers + 1) * stripe_bytes) as i64;
            }
            if tail_position % servers == position {
                bytes += tail;
            }
            if bytes > 0 {
                let stripe = first + position;
                let within = if position == 0 { inside } else { 0 };
                let offset = stripe / servers * stripe_bytes + within;
                push_merged(&mut self.lists[(stripe % servers) as usize], Extent { offset, bytes: bytes as u64 });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_model::random::Lcg48;

    /// Byte by byte.
    fn naive(list: &[Extent], stripe_bytes: u64, servers: u64) -> Vec<Vec<Extent>> {
        let mut lists = vec![Vec::new(); servers as usize];
        for extent in list {
            for byte in extent.offset..extent.end() {
                let stripe = byte / stripe_bytes;
                let physical = stripe / servers * stripe_bytes + byte % stripe_bytes;
                push_merged(&mut lists[(stripe % servers) as usize], Extent { offset: physical, bytes: 1 });
            }
        }
        lists
    }

    #[test]
    fn simple_striping_is_round_robin_byte_by_byte() {
        let mut random = Lcg48::new(3);
        for _ in 0..500 {
            let (stripe_bytes, servers) = (u64::from(random.next_below(7)) + 1, u64::from(random.next_below(5)) + 1);
            let list: Vec<Extent> =
                (0..3).map(|_| Extent { offset: u64::from(random.next_below(90)), bytes: u64::from(random.next_below(120)) }).collect();
            let mut splitter = Splitter::new(Striping::Simple, stripe_bytes, servers as u32);
            assert_eq!(splitter.split(&list), naive(&list, stripe_bytes, servers), "{list:?} {stripe_bytes} {servers}");
        }
    }

    #[test]
    fn slipped_striping_keeps_the_sum_and_is_right_for_aligned_accesses() {
        let mut random = Lcg48::new(4);
        for round in 0..500 {
            let bytes = u64::from(random.next_below(1000)) + 1;
            let offset = if round % 2 == 0 { 64 * u64::from(random.next_below(20)) } else { u64::from(random.next_below(1000)) };
            let list = [Extent { offset, bytes }];
            let mut slipped = Splitter::new(Striping::Slipped, 64, 5);
            let lists = slipped.split(&list).to_vec();
            assert_eq!(lists.iter().flatten().map(|extent| extent.bytes).sum::<u64>(), bytes);
            if offset % 64 == 0 {
                assert_eq!(lists, naive(&list, 64, 5));
            }
        }
    }

    #[test]
    fn the_slip_moves_a_stripe_to_the_next_server() {
        // 50 bytes into a stripe of 64: 14 bytes, then one whole stripe, which the slip counts as
        // none: (64 + 14 - 50) / 64 = 0.
        let mut slipped = Splitter::new(Striping::Slipped, 64, 5);
        let bytes: Vec<u64> = slipped
            .split(&[Extent { offset: 50, bytes: 14 + 64 + 3 }])
            .iter()
            .map(|list| list.iter().map(|extent| extent.bytes).sum())
            .collect();
        assert_eq!(bytes, [14, 0, 67, 0, 0]);
    }
}
