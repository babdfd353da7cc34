//! Sorting the records of a node by time. They lie in the file as their rings were emptied, within
//! a ring by their ends: nearly sorted, but an operation that took long lies far behind its
//! beginning. So they are put into buckets of equal size first, whose bounds come from a sample;
//! neighbours mostly go to the same bucket, and a bucket is sorted within the processor's cache.

use std::cmp::{Ordering, Reverse};

use crate::file::Brief;

/// Records of which one is in the sample.
const SAMPLED: usize = 256;
/// Samples for each bucket: about 4 000 records, 100 KB.
const SAMPLES_PER_BUCKET: usize = 16;

/// Sorts by beginning, the longer first, then by ring and place in the file. `spare` is memory that
/// is kept from one call to the next.
pub(crate) fn sort(briefs: &mut [Brief], spare: &mut Vec<Brief>, ring: impl Fn(u32) -> u32) {
    let order = |a: &Brief, b: &Brief| match a.start.cmp(&b.start) {
        Ordering::Equal => (Reverse(a.dur), ring(a.unit), a.unit).cmp(&(Reverse(b.dur), ring(b.unit), b.unit)),
        unequal => unequal,
    };
    let bounds = bounds(briefs);
    let mut ends = vec![0; bounds.len() + 1];
    each_bucket(briefs, &bounds, |bucket, _| ends[bucket] += 1);
    let mut sum = 0;
    for end in &mut ends {
        sum += std::mem::replace(end, sum);
    }
    // What was the number of each bucket's records is now its beginning; after this it is its end.
    spare.resize(spare.len().max(briefs.len()), Brief::default());
    each_bucket(briefs, &bounds, |bucket, brief| {
        spare[ends[bucket]] = *brief;
        ends[bucket] += 1;
    });
    let mut begin = 0;
    for end in ends {
        let bucket = &mut spare[begin..end];
        if !bucket.is_sorted_by(|a, b| order(a, b).is_le()) {
            bucket.sort_unstable_by(order);
        }
        briefs[begin..end].copy_from_slice(bucket);
        begin = end;
    }
}

/// Beginnings that divide the records into parts of about equal size, rising.
fn bounds(briefs: &[Brief]) -> Vec<i64> {
    let mut sample: Vec<i64> = briefs.iter().step_by(SAMPLED).map(|brief| brief.start).collect();
    sample.sort_unstable();
    let mut bounds: Vec<i64> = sample.into_iter().step_by(SAMPLES_PER_BUCKET).skip(1).collect();
    bounds.dedup();
    bounds
}

/// Calls `take` with each record and the number of its bucket: how many bounds are not after its
/// beginning.
fn each_bucket(briefs: &[Brief], bounds: &[i64], mut take: impl FnMut(usize, &Brief)) {
    let (mut bucket, mut low, mut high) = (0, i64::MAX, i64::MIN);
    for brief in briefs {
        if !(low..high).contains(&brief.start) {
            bucket = bounds.partition_point(|bound| *bound <= brief.start);
            low = bucket.checked_sub(1).map_or(i64::MIN, |before| bounds[before]);
            high = bounds.get(bucket).copied().unwrap_or(i64::MAX);
        }
        take(bucket, brief);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_order_becomes_that_of_a_plain_sort(
            times in prop::collection::vec((prop_oneof![0i64..50, any::<i64>()], 0u64..3), 0..60),
            repeated in 0usize..400,
        ) {
            // The same times again and again, a little later each: enough for several buckets.
            let all = (0..=repeated as i64).flat_map(|round| times.iter().map(move |(start, dur)| (start.saturating_add(round * 7), *dur)));
            let mut briefs: Vec<Brief> = all.zip(0u32..).map(|((start, dur), unit)| Brief { start, dur, unit, sort: 0 }).collect();
            let mut plain = briefs.clone();
            plain.sort_by_key(|brief| (brief.start, Reverse(brief.dur), brief.unit % 3));
            sort(&mut briefs, &mut Vec::new(), |unit| unit % 3);
            prop_assert_eq!(briefs, plain);
        }
    }
}
