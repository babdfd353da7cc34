//! The charts that Weft shows of its own data.

use weft_trace::Stage;
use weft_trace::explain::{Explanation, Waterfall};
use weft_trace::latency::{self, Latency, SLOTS, Stacked};

use crate::{Axis, Bars, Block, Fill, Frame, Lane, Line, Lines, Overlay, Pattern, Rows, Series, Style, Timeline, Unit, categorical, seek};

/// The distribution of figures 4.12 to 4.15 of Vef's thesis: the number of operations in each of the 50 bins, stacked by client or task,
/// and as a line the share of the total time that each bin took. Bins before the first and behind the last that has an entry are left out.
pub fn latency_bins(frame: Frame, stacked: &Stacked, tail_from_ns: Option<u64>) -> Bars {
    let total = stacked.total();
    let used = used_slots(&total);
    let shares = total.time_shares();
    let series = stacked.parts().iter().enumerate().map(|(number, (name, part))| Series {
        name: name.clone(),
        fill: categorical(number),
        values: used.clone().map(|slot| part.slots()[slot].count as f64).collect(),
    });
    let shaded = tail_from_ns.map(|from_ns| {
        let (entries, time) = total.tail(from_ns);
        let first = latency::slot_of(from_ns).saturating_sub(used.start).min(used.len());
        (first, format!("{} of the operations, {} of the time", Unit::Share.format(entries), Unit::Share.format(time)))
    });
    let outside = total.slots()[latency::BELOW].count + total.slots()[latency::ABOVE].count;
    let mut frame = frame;
    if outside > 0 {
        frame.note = format!("{outside} operations lie outside the 50 bins. {}", frame.note).trim().to_string();
    }
    Bars {
        frame,
        x_label: "latency, rounded to one digit".to_string(),
        categories: used.clone().map(latency::slot_label).collect(),
        y: Axis::linear("operations", Unit::Count),
        series: series.collect(),
        overlay: Some(Overlay {
            name: "share of the total time".to_string(),
            axis: Axis::linear("share of the total time", Unit::Share),
            // Green as in the thesis, dark enough for a thin line.
            color: 0x00664B,
            values: used.map(|slot| shares[slot]).collect(),
        }),
        totals: true,
        shaded,
    }
}

fn used_slots(total: &Latency) -> std::ops::Range<usize> {
    let has_entries = |slot: &usize| total.slots()[*slot].count > 0;
    let first = (0..SLOTS).find(has_entries).unwrap_or(1);
    let last = (0..SLOTS).rev().find(has_entries).unwrap_or(SLOTS - 2);
    first..last + 1
}

/// Distribution functions over a logarithmic axis, one for each part: known at the edges of the bins, straight lines between them.
pub fn latency_ecdf(frame: Frame, stacked: &Stacked) -> Lines {
    let line = |(number, (name, part)): (usize, &(String, Latency))| {
        let begin = (part.min_ns().max(1) as f64 / 1e9, 0.0);
        let points = part.ecdf().into_iter().map(|(ns, share)| (ns as f64 / 1e9, share));
        let points = if part.count() == 0 { Vec::new() } else { std::iter::once(begin).chain(points).collect() };
        Line { name: name.clone(), color: categorical(number).color, style: Style::Line, points }
    };
    Lines {
        frame,
        x: Axis::log("latency", Unit::Seconds),
        y: Axis::linear("share of the operations", Unit::Share).ranging(0.0, 1.0),
        lines: stacked.parts().iter().enumerate().map(line).collect(),
        marks: Vec::new(),
    }
}

/// The look of a stage: disks by their seeks, what was not seen hatched.
pub fn stage_fill(stage: Stage) -> Fill {
    match stage {
        Stage::Client => categorical(0),
        Stage::Kernel => categorical(2),
        Stage::SendQueue => categorical(9),
        Stage::Network => categorical(1),
        Stage::ServerQueue => categorical(11),
        Stage::Cpu => categorical(3),
        Stage::Lock => categorical(16),
        Stage::Journal => categorical(8),
        Stage::DiskNoSeek => seek(1),
        Stage::DiskNear => seek(2),
        Stage::DiskFar => seek(3),
        Stage::Retry => categorical(7),
        Stage::Unseen => Fill { color: 0xDDDDDD, pattern: Pattern::Hatch },
    }
}

/// Where the time goes: a row for each kind of operation, cut into its stages.
pub fn where_time_goes(frame: Frame, explanation: &Explanation) -> Rows {
    let used =
        Stage::ALL.into_iter().filter(|stage| explanation.kinds.iter().any(|kind| kind.stages.iter().any(|s| s.stage == stage.name())));
    let parts = used.map(|stage| {
        let share = |kind: &weft_trace::explain::KindReport| kind.stages.iter().find(|s| s.stage == stage.name()).map_or(0.0, |s| s.share);
        Series { name: stage.title().to_string(), fill: stage_fill(stage), values: explanation.kinds.iter().map(share).collect() }
    });
    let name = |kind: &weft_trace::explain::KindReport| {
        format!("{}, {} x {}", kind.operation, Unit::Count.format(kind.count as f64), Unit::Seconds.format(kind.p50_us / 1e6))
    };
    Rows {
        frame,
        rows: explanation.kinds.iter().map(name).collect(),
        x: Axis::linear("share of the time", Unit::Share).ranging(0.0, 1.0),
        parts: parts.collect(),
    }
}

/// One operation step by step: a lane for each step of its critical path.
pub fn waterfall(frame: Frame, waterfall: &Waterfall) -> Timeline {
    let lane = |step: &weft_trace::explain::Step| {
        let stage = Stage::from_name(step.stage).unwrap_or(Stage::Unseen);
        Lane {
            group: String::new(),
            name: step.place.clone(),
            blocks: vec![Block {
                from: step.at_us / 1e6,
                to: (step.at_us + step.dur_us) / 1e6,
                class: stage as usize,
                text: format!("{} {}", step.event, Unit::Seconds.format(step.dur_us / 1e6)),
            }],
            gauge: Vec::new(),
        }
    };
    let mut timeline = Timeline {
        frame,
        x: Axis::linear("since the call", Unit::Seconds).ranging(0.0, waterfall.dur_us / 1e6),
        classes: Stage::ALL.into_iter().map(|stage| (stage.title().to_string(), stage_fill(stage))).collect(),
        lanes: waterfall.steps.iter().map(lane).collect(),
        arrows: Vec::new(),
        marks: Vec::new(),
    };
    keep_used_classes(&mut timeline);
    timeline
}

/// Leaves classes that no block has out of the legend.
fn keep_used_classes(timeline: &mut Timeline) {
    let used: Vec<usize> = (0..timeline.classes.len())
        .filter(|class| timeline.lanes.iter().flat_map(|lane| &lane.blocks).any(|b| b.class == *class))
        .collect();
    for block in timeline.lanes.iter_mut().flat_map(|lane| &mut lane.blocks) {
        block.class = used.iter().position(|class| *class == block.class).unwrap_or(0);
    }
    timeline.classes = used.iter().map(|class| timeline.classes[*class].clone()).collect();
}
