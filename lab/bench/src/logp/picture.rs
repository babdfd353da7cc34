//! Pictures of what messages cost: by size with their lines, and transfers over the number of nodes
//! (Hermann et al., figures 4 and 5).

use weft_charts::{Axis, Frame, Line, Lines, Style, Unit, categorical, stacked};

use super::fit::Fit;
use super::{Found, MIB, Messages, Transfers, mean};

/// Times of messages, gaps and bandwidths of transfers, below one another.
pub fn draw(found: &Found) -> String {
    let said = format!("all pairs of {} nodes", found.nodes().last().copied().unwrap_or(0));
    let over_nodes = |title: &str, label: &str, unit, value: fn(&Transfers) -> f64| {
        let dots = found.transfers.iter().map(|one| (one.nodes as f64, value(one))).collect();
        let means = found.nodes().into_iter().map(|nodes| (nodes as f64, mean(found.of(nodes).map(value)))).collect();
        let bytes = found.transfers.first().map_or(0, |one| one.bytes);
        let about = format!("transfers of {} by all pairs at once", Unit::Bytes.format(bytes as f64));
        Lines {
            frame: Frame::new(title, &about).sized(900, 320),
            x: Axis::linear("nodes", Unit::Number),
            y: Axis::linear(label, unit),
            lines: vec![line("a pair", 0, Style::Dots, dots), line("mean", 1, Style::Line, means)],
            marks: Vec::new(),
        }
    };
    let pictures = [
        sizes(found, &said).svg(),
        over_nodes("Gap", "between the ends of transfers", Unit::Seconds, |one| one.gap_us / 1e6).svg(),
        over_nodes("Bandwidth", "of a pair", Unit::BytesPerSecond, |one| one.mib_per_s * MIB).svg(),
    ];
    stacked("LogP parameters", &pictures)
}

fn line(name: &str, color: usize, style: Style, points: Vec<(f64, f64)>) -> Line {
    Line { name: name.to_string(), color: categorical(color).color, style, points }
}

/// Gaps and overheads of all pairs as dots, their lines dashed. A logarithmic axis has no 0: there
/// messages without bytes stand at 1.
fn sizes(found: &Found, said: &str) -> Lines {
    let at = |bytes: u64| bytes.max(1) as f64;
    let dots = |of: fn(&Messages, usize) -> f64| {
        let points = |one: &Messages| {
            (0..one.points.len()).map(|at_point| (at(one.points[at_point].bytes), of(one, at_point) / 1e6)).collect::<Vec<_>>()
        };
        found.messages.iter().flat_map(points).collect()
    };
    let all: Vec<f64> = found.messages.first().map_or_else(Vec::new, |one| one.points.iter().map(|point| at(point.bytes)).collect());
    let fitted = |of: fn(&Messages) -> Option<Fit>| {
        let fits: Vec<Fit> = found.messages.iter().filter_map(of).collect();
        all.iter().map(|bytes| (*bytes, mean(fits.iter().map(|fit| fit.at(*bytes) / 1e6)))).collect()
    };
    Lines {
        frame: Frame::new("Messages", said)
            .sized(900, 420)
            .with_note("Dashed: means of the lines of all pairs, least squares of relative differences."),
        x: Axis::log("bytes of a message", Unit::Bytes),
        y: Axis::log("time", Unit::Seconds),
        lines: vec![
            line("g(m)", 0, Style::Dots, dots(|one, at| one.points[at].gap_us)),
            line("o_s(m)", 1, Style::Dots, dots(|one, at| one.points[at].send_us)),
            line("g, G", 0, Style::Bound, fitted(|one| one.gap)),
            line("o_s", 1, Style::Bound, fitted(|one| one.send)),
            line("o_r", 2, Style::Bound, fitted(|one| one.receive)),
        ],
        marks: Vec::new(),
    }
}
