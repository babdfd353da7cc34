//! Lists of ranges as callers give them: in any order. A message wants them in the order of their
//! offsets and without overlaps.

/// Rounds of ranges (byte offset, number of bytes), by their positions in the list: within a round
/// they ascend and do not overlap.
pub(crate) fn rounds(ranges: &[(u64, u64)]) -> Vec<Vec<usize>> {
    let mut left: Vec<usize> = (0..ranges.len()).collect();
    left.sort_by_key(|position| ranges[*position]);
    let mut rounds = Vec::new();
    while !left.is_empty() {
        let (mut round, mut later, mut end) = (Vec::new(), Vec::new(), 0);
        for position in left {
            let (offset, bytes) = ranges[position];
            if offset >= end {
                end = offset.saturating_add(bytes);
                round.push(position);
            } else {
                later.push(position);
            }
        }
        rounds.push(round);
        left = later;
    }
    rounds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_ascend_and_do_not_overlap() {
        assert_eq!(rounds(&[]), Vec::<Vec<usize>>::new());
        assert_eq!(rounds(&[(10, 5), (0, 10), (15, 1)]), [[1, 0, 2]]);
        assert_eq!(rounds(&[(0, 10), (5, 10), (10, 1), (0, 0)]), [vec![3, 0, 2], vec![1]]);
        assert_eq!(rounds(&[(7, 3), (7, 3), (7, 3)]).len(), 3);
        assert_eq!(rounds(&[(u64::MAX, u64::MAX), (0, 1)]), [[1, 0]]);
    }
}
