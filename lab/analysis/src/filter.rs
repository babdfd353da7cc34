//! Rows of the timeline with only those spans that an expression describes. They are made when they
//! are asked for, and the last ones are kept: a window that moves asks again and again.

use std::sync::{Arc, PoisonError};

use weft_host::parallel::at_once;
use weft_trace::merge::gathered;

use crate::lanes::Lane;
use crate::pattern::Pattern;
use crate::run::Run;
use crate::tiles::{Bar, Track};
use crate::tracks::Tracks;

/// Expressions whose lanes are kept: one that filters, and one whose hits stand out.
const KEPT: usize = 2;

/// Rows that are looked at: all spans of them, or those that an expression describes. Their numbers
/// are the same.
pub enum Shown<'a> {
    /// All.
    All(&'a [Lane]),
    /// Some.
    Some(Arc<Vec<Lane>>),
}

impl std::ops::Deref for Shown<'_> {
    type Target = [Lane];

    fn deref(&self) -> &[Lane] {
        match self {
            Shown::All(lanes) => lanes,
            Shown::Some(lanes) => lanes,
        }
    }
}

/// The lanes of tracks with the spans that an expression describes; all of them if it is empty.
///
/// # Errors
/// A sentence about what is wrong with the expression.
pub fn shown<'a>(run: &'a Run, tracks: &'a Tracks, text: &str) -> Result<Shown<'a>, String> {
    let text = text.trim();
    if text.is_empty() {
        return Ok(Shown::All(tracks.lanes(run)));
    }
    let mut kept = run.filtered.0.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((.., lanes)) = kept.iter().find(|(level, of, _)| (*level, of.as_str()) == (tracks.level(), text)) {
        return Ok(Shown::Some(Arc::clone(lanes)));
    }
    let pattern = Pattern::new(run, text)?;
    let all_lanes = tracks.lanes(run);
    let filtered = |number: usize| {
        let lane = &all_lanes[number];
        let all = run.spans_of(lane.node);
        let only = |track: &Track| {
            let bars: Vec<Bar> = track.bars(&all).filter(|bar| pattern.holds(bar.event)).collect();
            (!bars.is_empty()).then(|| Track::new(&bars))
        };
        let tracks = lane.tracks.iter().filter_map(|(kind, track)| Some((*kind, only(track)?))).collect();
        let (node, sub_lane, row, overlaps) = (lane.node, lane.sub_lane, lane.row, lane.overlaps);
        Lane { node, sub_lane, row, overlaps, tracks }
    };
    let lanes = Arc::new(gathered(&at_once, all_lanes.len(), filtered));
    if kept.len() == KEPT {
        kept.remove(0);
    }
    kept.push((tracks.level(), text.to_string(), Arc::clone(&lanes)));
    Ok(Shown::Some(lanes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{Sample, merged};

    #[test]
    fn filtered_rows_hold_what_the_expression_describes_and_nothing_else_whatever_was_asked_before() {
        let run = Run::new(merged(&Sample { operations: 300, ..Sample::default() }), Vec::new());
        let tracks = crate::levels::tracks(&run, Default::default());
        for text in ["create >20us or disk seek=far", "node=meta0", "create >20us or disk seek=far", ""] {
            let pattern = Pattern::new(&run, text).unwrap();
            let mut wanted: Vec<u32> = (0..run.merged.events.len() as u32).filter(|position| pattern.holds(*position)).collect();
            let lanes = shown(&run, &tracks, text).unwrap();
            assert_eq!(lanes.len(), run.lanes.lanes.len(), "numbers of lanes stay");
            let mut found: Vec<u32> = Vec::new();
            for (lane, whole) in lanes.iter().zip(&run.lanes.lanes) {
                assert_eq!((lane.node, lane.sub_lane, lane.row), (whole.node, whole.sub_lane, whole.row));
                let all = run.spans_of(lane.node);
                found.extend(lane.tracks.iter().flat_map(|(_, track)| track.bars(&all)).map(|bar| bar.event));
            }
            found.sort_unstable();
            wanted.sort_unstable();
            assert!(!wanted.is_empty() && found == wanted, "{text}");
        }
        assert!(shown(&run, &tracks, "(").is_err());
    }
}
