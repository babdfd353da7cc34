//! Orders that are drawn: the same for the same client, in any process and at any time.

/// The numbers below `count` in an order that `client` alone determines.
pub fn drawn_order(client: u64, count: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    let mut state = client;
    for last in (1..count).rev() {
        let other = (u128::from(next(&mut state)) * (last as u128 + 1)) >> 64;
        order.swap(last, other as usize);
    }
    order
}

/// SplitMix64.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_has_everything_once_and_no_order() {
        let order = drawn_order(3, 1000);
        let mut sorted = order.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, (0..1000).collect::<Vec<_>>());
        assert_eq!(order, drawn_order(3, 1000));
        assert_ne!(order, drawn_order(4, 1000));
        let neighbours = order.windows(2).filter(|pair| pair[0].abs_diff(pair[1]) == 1).count();
        assert!(neighbours < 20, "{neighbours}");
        assert!(drawn_order(1, 0).is_empty() && drawn_order(1, 1) == [0]);
    }
}
