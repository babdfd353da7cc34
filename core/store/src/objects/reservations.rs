//! Space that an object holds beyond its extents: blocks for writes in flight and for growth.
//! Volatile.

use std::collections::BTreeMap;

use super::ObjectKey;

/// Consecutive local blocks that lie in consecutive disk blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BackedRun {
    pub(super) local: u64,
    pub(super) disk: u64,
    pub(super) blocks: u64,
}

impl BackedRun {
    pub(super) fn local_end(&self) -> u64 {
        self.local + self.blocks
    }

    pub(super) fn disk_end(&self) -> u64 {
        self.disk + self.blocks
    }

    /// The disk block of local block `local`, which lies at or behind the beginning of the run.
    pub(super) fn disk_of(&self, local: u64) -> u64 {
        self.disk + (local - self.local)
    }

    /// The part of the run between local blocks `from` and `to`.
    pub(super) fn clip(&self, from: u64, to: u64) -> Option<BackedRun> {
        let (from, to) = (self.local.max(from), self.local_end().min(to));
        (from < to).then(|| BackedRun { local: from, disk: self.disk_of(from), blocks: to - from })
    }
}

#[derive(Debug, Default)]
struct Reservation {
    /// Ascending, without overlap.
    runs: Vec<BackedRun>,
    blocks: u64,
    last_plan: u64,
}

/// The reservations of all objects.
#[derive(Debug, Default)]
pub(super) struct Reservations {
    by_object: BTreeMap<ObjectKey, Reservation>,
    blocks: u64,
    plans: u64,
}

impl Reservations {
    /// Blocks in all reservations.
    pub(super) fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Counts the plans that were noted.
    pub(super) fn plans(&self) -> u64 {
        self.plans
    }

    /// Notes that a write of the object was planned, so its reservation is not idle.
    pub(super) fn note_plan(&mut self, key: ObjectKey) {
        self.plans += 1;
        if let Some(reservation) = self.by_object.get_mut(&key) {
            reservation.last_plan = self.plans;
        }
    }

    /// The runs of the object in order.
    pub(super) fn runs(&self, key: ObjectKey) -> &[BackedRun] {
        self.by_object.get(&key).map_or(&[], |reservation| &reservation.runs)
    }

    /// Blocks in the object's reservation.
    pub(super) fn blocks_of(&self, key: ObjectKey) -> u64 {
        self.by_object.get(&key).map_or(0, |reservation| reservation.blocks)
    }

    /// Adds blocks to the object's reservation.
    pub(super) fn add(&mut self, key: ObjectKey, run: BackedRun) {
        let reservation = self.by_object.entry(key).or_insert_with(|| Reservation { runs: Vec::new(), blocks: 0, last_plan: self.plans });
        reservation.blocks += run.blocks;
        let at = reservation.runs.partition_point(|other| other.local < run.local);
        match at.checked_sub(1).and_then(|before| reservation.runs.get_mut(before)) {
            Some(before) if before.local_end() == run.local && before.disk_end() == run.disk => before.blocks += run.blocks,
            _ => reservation.runs.insert(at, run),
        }
        self.blocks += run.blocks;
    }

    /// Takes exactly these blocks out of the object's reservation. Panics if they are not in it: a
    /// record was applied that did not come from a current plan.
    pub(super) fn consume(&mut self, key: ObjectKey, wanted: BackedRun) {
        let mut wanted = wanted;
        while wanted.blocks > 0 {
            let found = self.by_object.get_mut(&key).and_then(|reservation| {
                let at = reservation.runs.partition_point(|run| run.local_end() <= wanted.local);
                let run = *reservation.runs.get(at)?;
                (run.local <= wanted.local && run.disk_of(wanted.local) == wanted.disk).then_some((reservation, at, run))
            });
            let (reservation, at, run) = found.expect("an object record may use only blocks that a current plan reserved for it");
            let taken = run.clip(wanted.local, wanted.local_end()).expect("the run holds the first wanted block");
            let rest = [run.clip(0, taken.local), run.clip(taken.local_end(), u64::MAX)];
            reservation.runs.splice(at..=at, rest.into_iter().flatten());
            assert!(taken.blocks <= reservation.blocks && reservation.blocks <= self.blocks, "what is used was reserved");
            reservation.blocks -= taken.blocks;
            if reservation.runs.is_empty() {
                self.by_object.remove(&key);
            }
            self.blocks -= taken.blocks;
            wanted = BackedRun { local: taken.local_end(), disk: taken.disk_end(), blocks: wanted.blocks - taken.blocks };
        }
    }

    /// Takes away the object's reservation from local block `from` on.
    pub(super) fn drop_from(&mut self, key: ObjectKey, from: u64) -> Vec<BackedRun> {
        let Some(reservation) = self.by_object.get_mut(&key) else { return Vec::new() };
        let dropped: Vec<_> = reservation.runs.iter().filter_map(|run| run.clip(from, u64::MAX)).collect();
        let dropped_blocks = dropped.iter().map(|run| run.blocks).sum::<u64>();
        reservation.runs = reservation.runs.iter().filter_map(|run| run.clip(0, from)).collect();
        reservation.blocks -= dropped_blocks;
        if reservation.runs.is_empty() {
            self.by_object.remove(&key);
        }
        self.blocks -= dropped_blocks;
        dropped
    }

    /// The objects for which no write was planned after plan number `plan`.
    pub(super) fn idle_since(&self, plan: u64) -> Vec<ObjectKey> {
        self.by_object.iter().filter(|(_, reservation)| reservation.last_plan <= plan).map(|(key, _)| *key).collect()
    }
}
