//! The iteration order of the hash tables in the program behind the thesis: chained tables of 16
//! buckets at first, doubled when three quarters full, with new entries at the head of their
//! bucket, and a supplemental hash function that spreads the high bits (`java.util.HashMap` before
//! Java 8, as documented with that class). It decided in which order clients talked to servers.

/// The positions of `numbers` (component numbers, in the order of insertion) in the order in which
/// such a table would be walked.
pub fn hashed(numbers: &[u32]) -> Vec<u32> {
    let mut buckets: Vec<Vec<u32>> = vec![Vec::new(); 16];
    for (position, &number) in numbers.iter().enumerate() {
        let count = buckets.len() as u32;
        buckets[(spread(number) & (count - 1)) as usize].insert(0, position as u32);
        if position + 1 > buckets.len() * 3 / 4 {
            // Entries are moved head first, which turns the order inside a bucket around.
            let mut doubled: Vec<Vec<u32>> = vec![Vec::new(); 2 * buckets.len()];
            let mask = doubled.len() as u32 - 1;
            for moved in buckets.into_iter().flatten() {
                doubled[(spread(numbers[moved as usize]) & mask) as usize].insert(0, moved);
            }
            buckets = doubled;
        }
    }
    buckets.into_iter().flatten().collect()
}

fn spread(number: u32) -> u32 {
    let hash = number ^ (number >> 20) ^ (number >> 12);
    hash ^ (hash >> 7) ^ (hash >> 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_and_ranks_of_the_thesis_come_in_its_order() {
        let servers: Vec<u32> = (0..10).map(|server| 112 + 10 * server).collect();
        assert_eq!(hashed(&servers), [4, 9, 6, 3, 0, 5, 7, 8, 2, 1]);
        let waiting: Vec<u32> = (0..9).map(|client| 12 + 10 * client).collect();
        assert_eq!(hashed(&waiting), [2, 7, 4, 1, 3, 8, 6, 0, 5]);
        assert_eq!(hashed(&[121, 124, 127, 130, 133]), [2, 3, 1, 4, 0]);
        assert_eq!(hashed(&[111, 112, 113, 114, 115]), [4, 3, 2, 1, 0]);
    }

    #[test]
    fn a_large_table_still_holds_everyone_once() {
        let numbers: Vec<u32> = (0..1000).map(|client| 12 + 10 * client).collect();
        let mut order = hashed(&numbers);
        order.sort_unstable();
        assert!(order.into_iter().eq(0..1000));
    }
}
