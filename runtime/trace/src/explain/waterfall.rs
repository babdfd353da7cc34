//! One operation as a waterfall: each piece of its critical path on a line, from left to right in
//! time.

use std::fmt;

use super::{Analysis, ClientOperation};

/// Columns of the bar.
const BAR: usize = 40;

/// The critical path of one operation, ready to be shown.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Waterfall {
    /// The kind of operation.
    pub operation: String,
    /// The client.
    pub client: String,
    /// The object's handle, 0 if not recorded.
    pub object: u64,
    /// Beginning in nanoseconds of the reference clock.
    pub start_ns: i64,
    /// Microseconds.
    pub dur_us: f64,
    /// Share of the operations of its kind that were faster, 0 to 1.
    pub slower_than: f64,
    /// By time.
    pub steps: Vec<Step>,
}

/// One piece.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Step {
    /// [`crate::Stage::name`].
    pub stage: &'static str,
    /// Where: a node, or for messages client and server.
    pub place: String,
    /// The event whose record says so.
    pub event: String,
    /// Microseconds after the beginning of the operation.
    pub at_us: f64,
    /// Microseconds.
    pub dur_us: f64,
}

impl Waterfall {
    pub(super) fn new(analysis: &Analysis<'_>, operation: &ClientOperation) -> Waterfall {
        let same = analysis.operations().iter().filter(|other| other.event == operation.event);
        let (count, faster) =
            same.fold((0u64, 0u64), |(count, faster), other| (count + 1, faster + u64::from(other.dur_ns < operation.dur_ns)));
        let path = analysis.path(operation);
        let steps = path.iter().map(|segment| {
            let node = &analysis.merged.nodes[segment.node].name;
            let place = match segment.peer {
                Some(server) if segment.phase.is_none() && analysis.merged.nodes[segment.node].server != Some(server) => {
                    format!("{node} - {}", analysis.server_name(server))
                }
                _ => node.clone(),
            };
            Step {
                stage: segment.stage.name(),
                place,
                event: analysis.name(segment.node, segment.event),
                at_us: (segment.start_ns - operation.start_ns) as f64 / 1e3,
                dur_us: segment.dur_ns as f64 / 1e3,
            }
        });
        Waterfall {
            operation: analysis.name(operation.node, operation.event),
            client: analysis.merged.nodes[operation.node].name.clone(),
            object: operation.object,
            start_ns: operation.start_ns,
            dur_us: operation.dur_ns as f64 / 1e3,
            slower_than: faster as f64 / count.max(1) as f64,
            steps: steps.collect(),
        }
    }
}

impl fmt::Display for Waterfall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} by {}: {:.1} us, slower than {:.1} % of its kind, object {}",
            self.operation,
            self.client,
            self.dur_us,
            self.slower_than * 100.0,
            weft_base::Handle(self.object)
        )?;
        let scale = BAR as f64 / self.dur_us.max(f64::MIN_POSITIVE);
        for step in &self.steps {
            let begin = ((step.at_us * scale) as usize).min(BAR - 1);
            let width = ((step.dur_us * scale).round() as usize).clamp(1, BAR - begin);
            let bar = format!("{}{}", " ".repeat(begin), "#".repeat(width));
            writeln!(f, "  {:>10.1} us {:<12} {:<24} |{bar:<BAR$}| {}", step.dur_us, step.stage, step.place, step.event)?;
        }
        Ok(())
    }
}
