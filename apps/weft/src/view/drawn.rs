//! Charts for the page: each as a picture, as a table for those who cannot see it, and with the place of its axes, so that a person can
//! choose a part of it. The pictures are those of the command line and of reports.

use serde_json::{Value, json};
use weft_charts::{Frame, Lines, Plot, Table, Unit, views};

use super::latency;
use super::run::Run;

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

/// The 50 bins of the operations of a window, with an area over each bin that shows one of its operations.
pub fn latency_bins(run: &Run, from: u64, to: u64, kinds: &[u64], width: u32) -> Value {
    let stacked = latency::chosen(run, from, to, kinds).stacked;
    let total = stacked.total();
    let subtitle =
        format!("{} operations, stacked by node; line: the bin's share of the total time", Unit::Count.format(total.count() as f64));
    let frame = Frame::new("Number of operations and share of time by latency", &subtitle).sized(width, 430);
    let frame = frame.with_note("50 bins of one leading digit (Vef 2016, section 3.3.2).");
    let tail = Some(latency::tail_from_ns(&total)).filter(|from| total.tail(*from).0 < 0.5);
    let bars = views::latency_bins(frame, &stacked, tail);
    let mut answer = chart_json(&bars.svg_with_targets(), None, &bars.table());
    // Bars before the first operation are left out: the page must know which bin is the first.
    answer["first_slot"] = json!(total.slots().iter().position(|slot| slot.count > 0));
    answer
}

/// The distribution functions of the operations of a window, a line for each node.
pub fn latency_ecdf(run: &Run, from: u64, to: u64, kinds: &[u64], width: u32) -> Value {
    let stacked = latency::chosen(run, from, to, kinds).stacked;
    lines(&views::latency_ecdf(Frame::new("Share of the operations that were at least as fast", "").sized(width, 330), &stacked))
}
