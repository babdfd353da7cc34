//! In which order cases and places are done, and when it is enough.

use std::time::Instant;

use anyhow::Result;
use weft_analysis::results::Phase;
use weft_host::output::tell_plainly;
use weft_workload::drawn_order;

use crate::environment::load;
use crate::report::Measurement;
use crate::results::{Growing, Line, Records, Run};
use crate::setup::{Load, Pace, Variant};
use crate::usage::Used;

/// Places in a repetition of a case: drawn for every other one, and the other way round in the one
/// behind it, so that nobody is the first more often than others.
pub fn places(seed: u64, case: usize, repetition: u32, count: usize) -> Vec<usize> {
    let pair = u64::from(repetition.saturating_sub(1) / 2);
    let mut order = drawn_order(seed.wrapping_add(pair.wrapping_mul(1_000_003)).wrapping_add((case as u64 + 1) << 40), count);
    if repetition.is_multiple_of(2) {
        order.reverse();
    }
    order
}

/// One repetition of a workload.
pub struct Done {
    /// For each step that is told, and what the disks did in it.
    pub(crate) steps: Vec<(Measurement, Used)>,
    /// Of all steps.
    pub(crate) records: Records,
}

impl Done {
    /// Each step that is told, and what the disks did in it.
    pub fn phases(&self) -> impl Iterator<Item = (Phase, Used)> {
        self.steps.iter().filter_map(|(step, disk)| Some((step.summary()?, *disk)))
    }
}

/// Repetitions of a plan, written down.
pub struct Written<'w> {
    pub file: &'w mut Growing,
    pub loads: &'w [Load],
    /// Names of the places that take part.
    pub places: &'w [String],
    /// And what they are.
    pub variants: &'w [Variant],
    pub seed: u64,
    pub pace: Pace,
    /// Hosts that take part.
    pub hosts: usize,
    /// Where somebody looks on: since when, and repetitions since then.
    pub progress: Option<(Instant, u32)>,
    pub repetition: u32,
}

impl Written<'_> {
    /// Repetitions that are still to be done at least.
    fn missing(&self) -> u32 {
        let done = |case| self.file.known.repetitions(case, self.places, self.hosts).1;
        (0..self.loads.len()).map(|case| self.pace.least.saturating_sub(done(case))).sum()
    }

    /// Whether a case needs more repetitions.
    pub fn is_wanted(&self, case: usize) -> bool {
        let known = &self.file.known;
        let whole = known.repetitions(case, self.places, self.hosts).1;
        !self.pace.is_enough(whole, &known.rates(case, self.places, self.hosts))
    }

    fn tell(&self, case: usize, place: &str, one: &Done) {
        let Some((since, done)) = self.progress else { return };
        let rates: Vec<String> = one.phases().map(|(phase, _)| format!("{} {:.0}/s", phase.phase, phase.ops_per_s.median)).collect();
        let left = f64::from(self.missing()) * since.elapsed().as_secs_f64() / f64::from(done.max(1));
        let left = if done > 1 { format!("; some {:.0} s left at least", left.ceil()) } else { String::new() };
        let (number, count) = (case + 1, self.loads.len());
        tell_plainly(&format!("case {number} of {count}, repetition {}, {place}: {}{left}", self.repetition, rates.join(", ")));
    }
}

impl Written<'_> {
    /// The numbers of those who do a case next, in their order; `None`: it was done often enough.
    pub fn next(&mut self, case: usize) -> Option<Vec<usize>> {
        if !self.is_wanted(case) {
            return None;
        }
        self.repetition = self.file.known.repetitions(case, self.places, self.hosts).0 + 1;
        if let Some((_, done)) = &mut self.progress {
            *done += 1;
        }
        Some(places(self.seed, case, self.repetition, self.places.len()))
    }

    /// One of them has done it once.
    ///
    /// # Errors
    /// It cannot be written down.
    pub fn told(&mut self, case: usize, variant: usize, one: Done) -> Result<()> {
        let place = self.places[variant].clone();
        self.tell(case, &place, &one);
        let Variant { values, setup, .. } = &self.variants[variant];
        for (phase, disk) in one.phases() {
            let run = Run {
                case: Some(case),
                parameters: self.loads[case].0.clone(),
                place: place.clone(),
                own: values.clone(),
                repetition: self.repetition,
                hosts: self.hosts,
                load: load(),
                phase,
                disk: Some(disk),
                records: setup.record.as_ref().map(|_| one.records),
            };
            self.file.add(Line::Run(Box::new(run)))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_drawn_and_balanced() {
        for repetition in (1..40).step_by(2) {
            let (mut there, back) = (places(7, 3, repetition, 3), places(7, 3, repetition + 1, 3));
            there.reverse();
            assert_eq!(there, back, "repetition {repetition}");
        }
        let firsts: Vec<usize> = (1..40).step_by(2).map(|repetition| places(7, 0, repetition, 2)[0]).collect();
        assert!(firsts.contains(&0) && firsts.contains(&1));
        assert_eq!(places(7, 0, 5, 4), places(7, 0, 5, 4));
    }
}
