//! The charts that Weft shows of its own data.

use weft_trace::Stage;
use weft_trace::explain::{Explanation, KindReport, StageReport, Waterfall};
use weft_trace::latency::{self, Latency, SLOTS, Stacked};

use crate::{
    Axis, Bars, Block, CallClass, Fill, Frame, Lane, Line, Lines, Overlay, Pattern, Rows, Series, SmallRows, Style, Timeline, Unit,
    categorical, seek,
};

/// The distribution of figures 4.12 to 4.15 of Vef's thesis: the number of operations in each of
/// the 50 bins, stacked by client or task, and as a line the share of the total time that each bin
/// took. Bins before the first and behind the last that has an entry are left out.
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
        categories: used.clone().map(|slot| latency::slot_label(slot).replace(" us", " µs")).collect(),
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

/// Distribution functions over a logarithmic axis: lines of a name and points, nanoseconds and the
/// share that is not longer.
pub fn latency_ecdf(frame: Frame, parts: impl IntoIterator<Item = (String, Vec<(u64, f64)>)>) -> Lines {
    let line = |(number, (name, points)): (usize, (String, Vec<(u64, f64)>))| Line {
        name,
        color: categorical(number).color,
        style: Style::Line,
        points: points.into_iter().map(|(ns, share)| (ns.max(1) as f64 / 1e9, share)).collect(),
    };
    Lines {
        frame,
        x: Axis::log("latency", Unit::Seconds),
        y: Axis::linear("share of the operations", Unit::Share).ranging(0.0, 1.0),
        lines: parts.into_iter().enumerate().map(line).collect(),
        marks: Vec::new(),
    }
}

/// The look of a stage: disks by their seeks, what was not seen hatched. Each has a colour of its
/// own; two stages differ in their pattern too, or so much in lightness that they are told apart
/// without any colour.
pub fn stage_fill(stage: Stage) -> Fill {
    let (color, pattern) = match stage {
        Stage::Client => (0x0072B2, Pattern::None),
        Stage::Peers => (0xC9DDF0, Pattern::None),
        Stage::Kernel => (0x56B4E9, Pattern::Hatch),
        Stage::SendQueue => (0x8B5A2B, Pattern::Dots),
        Stage::Network => (0xE69F00, Pattern::None),
        Stage::ServerQueue => (0xCC79A7, Pattern::Dots),
        Stage::Cpu => (0x8741B0, Pattern::Hatch),
        Stage::Lock => (0x6B1F4F, Pattern::Hatch),
        Stage::Journal => (0x004D40, Pattern::Dots),
        Stage::DiskNoSeek => return seek(1),
        Stage::DiskNear => return seek(2),
        Stage::DiskFar => return seek(3),
        Stage::Retry => (0x333333, Pattern::None),
        Stage::Processor => (0xB5BD6B, Pattern::Dots),
        Stage::NoAnswer => (0xB00020, Pattern::None),
        Stage::Unseen => (0xDDDDDD, Pattern::Hatch),
    };
    Fill { color, pattern }
}

/// The look of an event by what is done, whoever does it: `client.create` as `meta.create`. What is
/// alike has one hue: looking is blue, making safe is purple, with a shade for each. Messages are
/// shades of grey, so that operations stand out; disk accesses are told apart by [`seek`] where
/// that is asked for.
pub fn event_fill(name: &str) -> Fill {
    let plain = name.rsplit('.').next().unwrap_or(name).to_lowercase();
    let done = plain.strip_prefix("file_").unwrap_or(&plain);
    Fill::plain(match (name, done) {
        ("net.call", _) => 0x8C8C8C,
        ("net.send", _) => 0xA8A49C,
        ("net.receive", _) => 0x6F7681,
        ("fuse.reply", _) => 0xC2B280,
        ("journal.commit", _) => 0x8A2B86,
        ("journal.sync", _) => 0x5E2A6B,
        ("journal.wait", _) => 0xC9A6D6,
        ("disk.sync", _) => 0xF2A0C0,
        (_, "create" | "mkdir") => 0x0072B2,
        (_, "write") => 0xE69F00,
        (_, "read") => 0x009E73,
        (_, "lookup") => 0x56B4E9,
        (_, "getattr" | "stat") => 0x8FD0F2,
        (_, "open") => 0x2C8FC9,
        (_, "close" | "release" | "flush") => 0xB5D8EA,
        (_, "readdir") => 0x1F4F5C,
        (_, "sync" | "fsync") => 0xCC79A7,
        (_, "unlink" | "rmdir") => 0xD55E00,
        (_, "rename") => 0xA83C00,
        (_, "setattr" | "truncate") => 0xF2894A,
        (_, "window") => 0xF0E442,
        (_, "lock") => 0xA0A040,
        (_, "pause") => 0xFFF59D,
        _ => match CallClass::of(name) {
            Some(CallClass::Compute) => 0xD0D0D0,
            Some(CallClass::Communication) => match done {
                "barrier" => 0x6A5ACD,
                "send" | "recv" | "sendrecv" => categorical(2).color,
                done if done.starts_with("wait") => 0x9FB6CD,
                _ => 0x3C8DA8,
            },
            Some(CallClass::Read) => 0x009E73,
            Some(CallClass::Write) => 0xE69F00,
            Some(CallClass::Metadata) | None => 0x5A5A5A,
        },
    })
}

/// The time of each kind of operation, cut into its stages: their shares, or, if `shares` is false,
/// seconds on one scale.
pub fn stage_rows(title: &str, kinds: &[KindReport], shares: bool, width: u32) -> SmallRows {
    let value = |kind: &KindReport, stage: Stage| kind.stages.iter().find(|s| s.stage == stage.name()).map_or(0.0, |s| s.seconds);
    SmallRows {
        title: title.to_string(),
        width,
        rows: kinds.iter().map(|kind| kind.operation.clone()).collect(),
        parts: stage_parts(kinds, value),
        unit: if shares { Unit::Share } else { Unit::Seconds },
        shares,
        sums: !shares,
        legend: true,
    }
}

/// One kind of operation: the stages of all, of the usual ones, and of the slowest hundredth.
pub fn stages_of(kind: &KindReport, width: u32) -> SmallRows {
    type Share = fn(&StageReport) -> f64;
    let rows: [(&str, Share); 3] =
        [("all", |stage| stage.share), ("usual", |stage| stage.median_share), ("tail", |stage| stage.tail_share)];
    let part = |stage: &StageReport| {
        let of = Stage::from_name(stage.stage).unwrap_or(Stage::Unseen);
        Series { name: of.title().to_string(), fill: stage_fill(of), values: rows.iter().map(|(_, share)| share(stage)).collect() }
    };
    SmallRows {
        title: format!("Stages of {}", kind.operation),
        width,
        rows: rows.iter().map(|(name, _)| (*name).to_string()).collect(),
        parts: kind.stages.iter().map(part).collect(),
        unit: Unit::Share,
        shares: true,
        sums: false,
        legend: false,
    }
}

/// For each stage that any of the kinds has its value of every kind.
fn stage_parts(kinds: &[KindReport], value: impl Fn(&KindReport, Stage) -> f64) -> Vec<Series> {
    let used = Stage::ALL.into_iter().filter(|stage| kinds.iter().any(|kind| kind.stages.iter().any(|s| s.stage == stage.name())));
    let part = |stage: Stage| Series {
        name: stage.title().to_string(),
        fill: stage_fill(stage),
        values: kinds.iter().map(|kind| value(kind, stage)).collect(),
    };
    used.map(part).collect()
}

/// Where the time goes: a row for each kind of operation, cut into its stages.
pub fn where_time_goes(frame: Frame, explanation: &Explanation) -> Rows {
    let share = |kind: &KindReport, stage: Stage| kind.stages.iter().find(|s| s.stage == stage.name()).map_or(0.0, |s| s.share);
    let name = |kind: &KindReport| {
        format!("{}, {} x {}", kind.operation, Unit::Count.format(kind.count as f64), Unit::Seconds.format(kind.p50_us / 1e6))
    };
    Rows {
        frame,
        rows: explanation.kinds.iter().map(name).collect(),
        x: Axis::linear("share of the time", Unit::Share).ranging(0.0, 1.0),
        parts: stage_parts(&explanation.kinds, share),
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
    timeline.keep_used_classes();
    timeline
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lightness of CIE 1976 L*, 0 to 100.
    fn lightness(color: u32) -> f64 {
        let linear = |shift: u32| (f64::from(color >> shift & 255) / 255.0).powf(2.2);
        let y = 0.2126 * linear(16) + 0.7152 * linear(8) + 0.0722 * linear(0);
        116.0 * y.cbrt() - 16.0
    }

    #[test]
    fn stages_and_seeks_are_told_apart_without_any_colour() {
        let stages: Vec<Fill> = Stage::ALL.into_iter().map(stage_fill).collect();
        let seeks: Vec<Fill> = (0..4).map(seek).collect();
        for fills in [stages, seeks] {
            for (number, one) in fills.iter().enumerate() {
                for other in &fills[number + 1..] {
                    let apart = (lightness(one.color) - lightness(other.color)).abs();
                    assert!(one.pattern != other.pattern || apart > 7.0, "{one:x?} and {other:x?}: {apart}");
                    assert_ne!(one.color, other.color, "a pattern alone is not seen in a narrow bar");
                }
            }
        }
    }
}
