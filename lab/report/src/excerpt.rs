//! Pictures of the timeline in a report: the whole run, the slowest operation on all nodes that
//! worked for it, and the slowest operations step by step.

use std::collections::BTreeMap;

use weft_analysis::details;
use weft_analysis::run::Run;
use weft_analysis::running;
use weft_analysis::sublane::{Layout, SubLane, nodes_in_order};
use weft_analysis::window::Window;
use weft_base::{ServerId, ServerRole};
use weft_charts::{Arrow, Axis, Block as Piece, Fill, Frame, Lane, Mark, Panel, Strip, StripLane, Strips, Table, Timeline, Unit, views};
use weft_trace::Stage;
use weft_trace::event::NET_CALL;
use weft_trace::explain::Waterfall;
use weft_trace::record::Body;

use crate::document::Block;
use crate::{count, section, time, titled};

/// Columns of the picture of a whole run.
const COLUMNS: u32 = 1600;
/// Nodes of one group that are drawn at most.
const NODES_MAX: usize = 16;
/// Slowest operations in the table, and of these with a picture.
const SLOWEST: usize = 10;
const DRAWN: usize = 3;

/// The section about one run.
pub fn excerpt(run: &Run, several: bool, blocks: &mut Vec<Block>) {
    section(blocks, titled("Timeline", run, several));
    let whole = whole_run(run);
    blocks.push(Block::Picture(whole.svg(), whole.table()));
    let slowest = details::slowest_operations(run, 0, u64::MAX, SLOWEST);
    let Some((first, _)) = slowest.first() else { return };
    blocks.push(Block::Heading(3, "Slowest operations".into()));
    blocks.push(Block::Table(slowest_table(run, slowest.iter().map(|(_, waterfall)| waterfall))));
    if let Some(first) = first {
        let picture = operation(run, *first);
        blocks.push(Block::Picture(picture.svg(), picture.table()));
    }
    for (_, waterfall) in slowest.iter().take(DRAWN) {
        let picture = steps(run, waterfall);
        blocks.push(Block::Picture(picture.svg(), picture.table()));
    }
}

/// What every node did over the whole run: operations, below them journal and disk.
fn whole_run(run: &Run) -> Strips {
    let level = Window { from: 0, to: run.duration_ns, width: COLUMNS, hidden: Vec::new() }.level();
    let mut classes = Classes::default();
    let group = |node: usize| match run.merged.nodes[node].server {
        None => "Clients",
        Some(server) if ServerId(server).role() == ServerRole::Data => "Data servers: operations, journal and disk",
        Some(_) => "Metadata servers: operations, journal and disk",
    };
    let mut panels: Vec<Panel> = Vec::new();
    let mut left_out = 0;
    let mut drawn: BTreeMap<&str, usize> = BTreeMap::new();
    for node in nodes_in_order(run.merged) {
        let title = group(node);
        let in_group = drawn.entry(title).or_default();
        if *in_group == NODES_MAX {
            left_out += 1;
            continue;
        }
        *in_group += 1;
        let mut lanes: Vec<StripLane> = Vec::new();
        // The outermost operations that a node recorded, then what it did for them.
        let has = |sub_lane: SubLane| run.lanes.lanes.iter().any(|lane| lane.node == node && lane.sub_lane == sub_lane);
        let outermost = [SubLane::Application, SubLane::Gateway, SubLane::Operation].into_iter().find(|sub_lane| has(*sub_lane));
        for sub_lane in outermost.into_iter().chain([SubLane::Journal, SubLane::Disk].into_iter().filter(|sub_lane| has(*sub_lane))) {
            let mut strips = Vec::new();
            let all = run.spans_of(node);
            for lane in run.lanes.lanes.iter().filter(|lane| lane.node == node && lane.sub_lane == sub_lane) {
                for (kind, track) in &lane.tracks {
                    let class = classes.of_event(&run.lanes.kinds[usize::from(*kind)].name);
                    // A tile may come in several parts.
                    let mut tiles: Vec<(u64, u64)> = Vec::new();
                    track.tiles(&all, level, 0, run.duration_ns >> level, |tile| match tiles.last_mut() {
                        Some((index, busy)) if *index == tile.index => *busy += tile.busy,
                        _ => tiles.push((tile.index, tile.busy)),
                    });
                    strips.extend(tiles.into_iter().map(|(index, busy)| {
                        let from = index << level;
                        Strip { from: from as f64 / 1e9, to: (from + busy.min(1 << level)) as f64 / 1e9, class }
                    }));
                }
            }
            let name = if lanes.is_empty() { run.merged.nodes[node].name.clone() } else { String::new() };
            lanes.push(StripLane { name, is_minor: !lanes.is_empty(), strips });
        }
        match panels.last_mut() {
            Some(panel) if panel.title == title => panel.lanes.extend(lanes),
            _ => panels.push(Panel { title: title.to_string(), lanes, marks: Vec::new() }),
        }
    }
    if let Some(first) = panels.first_mut() {
        // Their numbers: there is no room for names.
        let number = |mark: Mark| Mark { text: mark.text.split(' ').next().unwrap_or_default().to_string(), ..mark };
        first.marks = running::marks(run).into_iter().map(number).collect();
    }
    let frame = Frame::new("The whole run", "each half pixel in the colour of what took most of its time").sized(960, 200);
    Strips {
        frame: if left_out > 0 { frame.with_note(&format!("{} further nodes are not drawn.", count(left_out))) } else { frame },
        x: Axis::linear("time", Unit::Seconds).ranging(0.0, run.duration_ns as f64 / 1e9),
        classes: classes.0,
        panels,
    }
}

/// The records of the operation around a record, on the lanes of their nodes, with arrows along its
/// messages.
fn operation(run: &Run, position: u32) -> Timeline {
    let (root, mut records) = details::records_of(run, position);
    let events = &run.merged.events;
    let first = events.event(root);
    let seconds = |ns: i64| (ns - first.start_ns) as f64 / 1e9;
    records.sort_by_key(|(record, _)| run.merged.events.order(*record));
    let mut classes = Classes::default();
    let mut layout = Layout::new(run.merged);
    for (record, _) in &records {
        let event = events.event(*record);
        let Some(kind) = run.lanes.kind(events, *record).map(|kind| &run.lanes.kinds[usize::from(kind)]) else { continue };
        let begin = run.since_origin(event.start_ns).max(0) as u64;
        let mut at = event.start_ns;
        let mut pieces: Vec<Piece> = Vec::new();
        for (name, stage, ns) in details::phases(run, &event) {
            let class = Stage::from_name(stage).map_or(0, |stage| classes.of(stage.title().to_string(), views::stage_fill(stage)));
            let text = format!("{} {name} {}", kind.name, time(ns as f64));
            pieces.push(Piece { from: seconds(at), to: seconds(at + ns as i64), class, text });
            at += ns as i64;
        }
        if pieces.is_empty() {
            let class = classes.of_event(&kind.name);
            let text = format!("{} {}", kind.title(), time(event.dur_ns as f64));
            pieces.push(Piece { from: seconds(event.start_ns), to: seconds(event.end_ns()), class, text });
        }
        layout.put((event.node, kind.sub_lane), (begin, begin + event.dur_ns), (*record, pieces));
    }
    // Numbers of the rows in the picture.
    let mut places: BTreeMap<u32, usize> = BTreeMap::new();
    let mut lanes: Vec<Lane> = Vec::new();
    for laid in layout.lanes() {
        places.extend(laid.items.iter().map(|(record, _)| (*record, lanes.len())));
        let name = if laid.row == 0 { laid.sub_lane.name().to_string() } else { String::new() };
        let blocks = laid.items.into_iter().flat_map(|(_, pieces)| pieces).collect();
        lanes.push(Lane { group: run.merged.nodes[laid.node].name.clone(), name, blocks });
    }
    let lane_of = |record: &u32| places[record];
    let mut arrows = Vec::new();
    for (record, _) in records.iter().filter(|(record, _)| places.contains_key(record)) {
        let call = events.event(*record);
        if call.record.event != NET_CALL || call.record.req == 0 {
            continue;
        }
        let is_answer = |(other, _): &&(u32, usize)| {
            let other = events.event(*other);
            other.record.req == call.record.req && matches!(other.record.body, Body::StagedSpan(_))
        };
        if let Some((served, _)) = records.iter().find(is_answer).filter(|(served, _)| places.contains_key(served)) {
            let staged_span = events.event(*served);
            let text = format!("request {:x}", call.record.req);
            let (client, server) = (lane_of(record), lane_of(served));
            arrows.push(Arrow { from: (client, seconds(call.start_ns)), to: (server, seconds(staged_span.start_ns)), text: text.clone() });
            arrows.push(Arrow { from: (server, seconds(staged_span.end_ns())), to: (client, seconds(call.end_ns())), text });
        }
    }
    let node = &run.merged.nodes[first.node];
    let title = format!("The slowest operation: {} by {}", node.events.name(first.record.event), node.name);
    let began = time(run.since_origin(first.start_ns) as f64);
    Timeline {
        frame: Frame::new(&title, &format!("{}, begun {began} after the run began", time(first.dur_ns as f64))).sized(960, 200),
        x: Axis::linear("since it began", Unit::Seconds).ranging(0.0, first.dur_ns.max(1) as f64 / 1e9),
        classes: classes.0,
        lanes,
        arrows,
        marks: Vec::new(),
    }
}

fn slowest_table<'a>(run: &Run, waterfalls: impl Iterator<Item = &'a Waterfall>) -> Table {
    let mut table = Table::new("", ["took", "operation", "client", "began after", "slower than, of its kind", "most of it"]);
    for waterfall in waterfalls {
        let most = details::most_of(waterfall).map_or_else(String::new, |step| {
            let stage = Stage::from_name(step.stage).map_or(step.stage, Stage::title);
            format!("{stage} at {}, {}", step.place, time(step.dur_us * 1e3))
        });
        table.row([
            time(waterfall.dur_us * 1e3),
            waterfall.operation.clone(),
            waterfall.client.clone(),
            time(run.since_origin(waterfall.start_ns) as f64),
            Unit::Share.format(waterfall.slower_than),
            most,
        ]);
    }
    table
}

fn steps(run: &Run, waterfall: &Waterfall) -> Timeline {
    let title = format!("{} by {}, {}, step by step", waterfall.operation, waterfall.client, time(waterfall.dur_us * 1e3));
    let began = time(run.since_origin(waterfall.start_ns) as f64);
    views::waterfall(Frame::new(&title, &format!("its critical path; begun {began} after the run began")).sized(960, 160), waterfall)
}

/// Kinds of blocks, each once.
#[derive(Default)]
struct Classes(Vec<(String, Fill)>);

impl Classes {
    fn of(&mut self, name: String, fill: Fill) -> usize {
        let known = self.0.iter().position(|class| class.0 == name);
        known.unwrap_or_else(|| {
            self.0.push((name, fill));
            self.0.len() - 1
        })
    }

    /// Events that do the same have one class, whoever does it; others, with one grey for all, keep
    /// their names.
    fn of_event(&mut self, name: &str) -> usize {
        self.of(name.rsplit('.').next().unwrap_or(name).to_string(), views::event_fill(name))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::sample::{Sample, merged};

    /// Byte for byte. After a wanted change:
    /// `UPDATE_GOLDEN=1 cargo test -p weft --bin weft report`, and look at the pictures.
    fn golden(file: &str, content: &str) {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(file);
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::write(&path, content).unwrap();
        }
        assert!(std::fs::read_to_string(&path).unwrap_or_default() == content, "{file} has changed; UPDATE_GOLDEN=1 accepts it");
    }

    #[test]
    fn the_excerpts_of_a_report_are_as_they_were() {
        let run = Run::new(merged(&Sample { operations: 200, ..Sample::default() }), Vec::new());
        golden("report-run.svg", &whole_run(&run).svg());
        let slowest = details::slowest_operations(&run, 0, u64::MAX, 3);
        golden("report-operation.svg", &operation(&run, slowest[0].0.unwrap()).svg());
        golden("report-steps.svg", &steps(&run, &slowest[0].1).svg());
        golden("report-slowest.csv", &slowest_table(&run, slowest.iter().map(|(_, waterfall)| waterfall)).csv());
    }

    #[test]
    fn every_record_of_the_slowest_operation_is_drawn_inside_it() {
        let run = Run::new(merged(&Sample { operations: 200, ..Sample::default() }), Vec::new());
        let slowest = details::slowest_operations(&run, 0, u64::MAX, 20);
        for (position, waterfall) in slowest {
            let position = position.unwrap();
            let (picture, (_, records)) = (operation(&run, position), details::records_of(&run, position));
            let names: Vec<&str> = picture.lanes.iter().map(|lane| lane.group.as_str()).collect();
            assert!(
                records.iter().all(|(record, _)| names.contains(&run.merged.nodes[run.merged.events.event(*record).node].name.as_str()))
            );
            let end = waterfall.dur_us / 1e6 + 1e-12;
            for lane in &picture.lanes {
                assert!(lane.blocks.is_sorted_by(|a, b| a.to <= b.from + 1e-12), "{lane:?}");
                assert!(lane.group != waterfall.client || lane.blocks.iter().all(|block| block.from >= 0.0 && block.to <= end), "{lane:?}");
            }
            let calls = records.iter().filter(|(record, _)| run.merged.events.event(*record).record.event == NET_CALL).count();
            assert_eq!(picture.arrows.len(), 2 * calls);
            assert!(picture.arrows.iter().all(|arrow| arrow.from.1 <= arrow.to.1));
        }
    }
}
