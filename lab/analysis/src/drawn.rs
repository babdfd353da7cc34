//! Charts for the page: each as a picture, as a table for those who cannot see it, and with the
//! place of its axes, so that a person can choose a part of it. The pictures are those of the
//! command line and of reports.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use weft_charts::{Fill, Frame, Lines, Plot, SmallRows, Table, Unit, seek, views};
use weft_trace::Stage;
use weft_trace::explain::Explanation;

use crate::lanes::Lane;
use crate::run::Run;
use crate::{ecdf, latency};

/// Rows of a table that go to the page at most.
const ROWS_MAX: usize = 20_000;

/// A chart of lines.
pub fn lines(chart: &Lines) -> Value {
    chart_json(&chart.svg(), Some(chart.plot()), &chart.table())
}

/// A picture with its table.
pub fn chart_json(svg: &str, plot: Option<Plot>, table: &Table) -> Value {
    let plot = plot.map(|plot| {
        json!({ "left": plot.left, "right": plot.right, "top": plot.top, "bottom": plot.bottom, "from": plot.from, "to": plot.to, "log": plot.log })
    });
    let rows = &table.rows[..table.rows.len().min(ROWS_MAX)];
    json!({ "svg": svg, "plot": plot, "title": table.title, "columns": table.columns, "rows": rows, "cut": table.rows.len() - rows.len() })
}

/// The 50 bins of the operations of a window, or of one stage of each, with an area over each bin
/// that shows one of its operations.
pub fn latency_bins(run: &Run, (from, to): (u64, u64), kinds: &[u64], stage: Option<Stage>, width: u32) -> Value {
    let stacked = latency::of(run, from, to, kinds, stage).stacked;
    let total = stacked.total();
    let subtitle =
        format!("{} operations, stacked by node; line: the bin's share of the total time", Unit::Count.format(total.count() as f64));
    let title = match stage {
        Some(stage) => format!("Time of each operation in the stage {}: number and share", stage.title()),
        None => "Number of operations and share of time by latency".to_string(),
    };
    let frame = Frame::new(&title, &subtitle).sized(width, 430);
    let frame = frame.with_note("50 bins of one leading digit (Vef 2016, section 3.3.2).");
    let tail = Some(latency::tail_from_ns(&total)).filter(|from| total.tail(*from).0 < 0.5);
    let bars = views::latency_bins(frame, &stacked, tail);
    let mut answer = chart_json(&bars.svg_with_targets(), None, &bars.table());
    // Bars before the first operation are left out: the page must know which bin is the first.
    answer["first_slot"] = json!(total.slots().iter().position(|slot| slot.count > 0));
    answer
}

/// The distribution functions of the operations of a window, a line for each node.
pub fn latency_ecdf(run: &Run, from: u64, to: u64, kinds: &[u64], width: u32) -> Lines {
    let parts = ecdf::by_node(run, from, to, &latency::chosen_kinds(run, kinds));
    let parts = parts.into_iter().map(|(name, durations)| (name, durations.points()));
    views::latency_ecdf(Frame::new("Share of the operations that were at least as fast", "").sized(width, 330), parts)
}

/// What an explanation says, as pictures: shares and seconds of all kinds, and the stages of each.
pub fn explained(explanation: &Explanation, width: u32) -> Value {
    let small = |rows: SmallRows| chart_json(&rows.svg(), None, &rows.table());
    json!({
        "shares": small(views::stage_rows("Where an operation's time goes", &explanation.kinds, true, width)),
        "seconds": small(views::stage_rows("Where the time of all operations goes", &explanation.kinds, false, width)),
        "kinds": explanation.kinds.iter().map(|kind| small(views::stages_of(kind, width.min(900)))).collect::<Vec<_>>(),
    })
}

/// Number and nanoseconds of the spans that begin in a window, by node and kind.
pub fn totals(run: &Run, shown: &[Lane], from: u64, to: u64) -> BTreeMap<(usize, u16), (u64, u64)> {
    let mut sums: BTreeMap<(usize, u16), (u64, u64)> = BTreeMap::new();
    for lane in shown {
        let all = run.spans_of(lane.node);
        for (kind, track) in &lane.tracks {
            let (count, time) = track.total(&all, from, to);
            let sum = sums.entry((lane.node, *kind)).or_default();
            *sum = (sum.0 + count, sum.1 + time);
        }
    }
    sums
}

/// How stages, disk accesses and their patterns look, for what the page itself draws: name, title,
/// colour, pattern (0 none, 1 dots, 2 hatched).
pub fn looks() -> Value {
    let look = |fill: Fill| json!({ "colour": format!("#{:06x}", fill.color), "pattern": fill.pattern as u8 });
    let stage = |stage: Stage| (stage.name().to_string(), json!({ "title": stage.title(), "look": look(views::stage_fill(stage)) }));
    let stages: serde_json::Map<String, Value> = Stage::ALL.into_iter().map(stage).collect();
    json!({ "stages": stages, "seeks": (0..4).map(|class| look(seek(class))).collect::<Vec<_>>() })
}
