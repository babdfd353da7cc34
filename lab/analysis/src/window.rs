//! What a window of the timeline shows: for each lane either every span, if there are few, or tiles
//! not wider than a pixel. The answer is binary, because the browser reads it without copying:
//!
//! | bytes | what |
//! |---|---|
//! | 4 | length of the header, with the spaces that make the payload begin at a multiple of 8 |
//! | | header, JSON: `from`, `to`, `tile` (width of a tile in ns), `first` (number of the first tile), `lanes`: `[lane, "spans" or "tiles", count]` |
//! | 32 a span | f64 each: start, duration (ns), kind, event |
//! | 32 a tile | f32 or u32 each: number minus `first`, kind with most time, kind of the longest span, busy share (f32), spans that begin, longest in ns (f32), its event, 0 |

use serde_json::json;

use crate::lanes::{Lane, Spans};
use crate::run::Run;
use crate::tiles::LEVEL_MAX;

/// What is asked for.
#[derive(Clone, Debug)]
pub struct Window {
    /// Nanoseconds since the beginning of the run.
    pub from: u64,
    /// Later than `from`.
    pub to: u64,
    /// Pixels.
    pub width: u32,
    /// By kind: do not show it.
    pub hidden: Vec<bool>,
}

/// A lane shows its spans one by one if there are at most this many for each pixel.
const PIXELS_PER_SPAN: u64 = 3;
/// Widest picture in pixels.
pub const WIDTH_MAX: u32 = 8192;

impl Window {
    /// The level whose tiles are at most a pixel wide and more than half of one.
    pub fn level(&self) -> u32 {
        let per_pixel = (self.to - self.from) / u64::from(self.width.max(1));
        per_pixel.max(1).ilog2().min(LEVEL_MAX)
    }

    /// The level, and the numbers of the first and the last tile.
    fn tiles(&self) -> (u32, u64, u64) {
        let level = self.level();
        (level, self.from >> level, (self.to - 1) >> level)
    }

    fn shows(&self, kind: u16) -> bool {
        !self.hidden.get(usize::from(kind)).copied().unwrap_or(false)
    }
}

/// The picture of a window of these lanes.
pub fn picture(run: &Run, shown: &[Lane], window: &Window) -> Vec<u8> {
    let (level, first, _) = window.tiles();
    let mut payload = Vec::new();
    let mut lanes = Vec::new();
    let mut column = Column::default();
    for (number, lane) in shown.iter().enumerate() {
        let few = u64::from(window.width) / PIXELS_PER_SPAN;
        let all = run.spans_of(lane.node);
        let visible = || lane.tracks.iter().filter(|(kind, _)| window.shows(*kind));
        let count: u64 = visible().map(|(_, track)| track.touching(&all, window.from, window.to).len() as u64).sum();
        let before = payload.len();
        let mode = if count <= few {
            spans(lane, &all, window, &mut payload);
            "spans"
        } else {
            column.tiles(lane, &all, window, &mut payload);
            "tiles"
        };
        if payload.len() > before {
            lanes.push(json!([number, mode, (payload.len() - before) / 32]));
        }
    }
    let header = json!({ "from": window.from, "to": window.to, "tile": 1u64 << level, "first": first, "lanes": lanes });
    let mut header = header.to_string().into_bytes();
    header.resize((header.len() + 4).next_multiple_of(8) - 4, b' ');
    let mut out = Vec::with_capacity(4 + header.len() + payload.len());
    out.extend((header.len() as u32).to_le_bytes());
    out.extend(header);
    out.extend(payload);
    out
}

fn spans(lane: &Lane, all: &Spans<'_>, window: &Window, out: &mut Vec<u8>) {
    for (kind, track) in lane.tracks.iter().filter(|(kind, _)| window.shows(*kind)) {
        for bar in track.touching(all, window.from, window.to).filter(|bar| bar.end >= window.from) {
            for number in [bar.start as f64, (bar.end - bar.start) as f64, f64::from(*kind), f64::from(bar.event)] {
                out.extend(number.to_le_bytes());
            }
        }
    }
}

/// The tiles of one lane, added up over its kinds; kept from lane to lane for its memory.
#[derive(Default)]
struct Column {
    cells: Vec<Cell>,
}

#[derive(Clone, Copy, Default)]
struct Cell {
    busy: u64,
    most: u64,
    kind: u16,
    longest: u64,
    kind_of_longest: u16,
    count: u32,
    event: u32,
    /// Time of the kind that is being added, and that kind plus one.
    current: (u64, u32),
}

impl Column {
    fn tiles(&mut self, lane: &Lane, all: &Spans<'_>, window: &Window, out: &mut Vec<u8>) {
        let (level, first, last) = window.tiles();
        self.cells.clear();
        self.cells.resize((last - first + 1) as usize, Cell::default());
        for (kind, track) in lane.tracks.iter().filter(|(kind, _)| window.shows(*kind)) {
            let tag = u32::from(*kind) + 1;
            track.tiles(all, level, first, last, |tile| {
                let cell = &mut self.cells[(tile.index - first) as usize];
                let already = if cell.current.1 == tag { cell.current.0 } else { 0 };
                cell.current = (already + tile.busy, tag);
                cell.busy += tile.busy;
                cell.count += tile.count;
                if cell.current.0 >= cell.most {
                    (cell.most, cell.kind) = (cell.current.0, *kind);
                }
                if tile.longest >= cell.longest {
                    (cell.longest, cell.kind_of_longest, cell.event) = (tile.longest, *kind, tile.event);
                }
            });
        }
        let width = (1u64 << level) as f64;
        for (number, cell) in self.cells.iter().enumerate().filter(|(_, cell)| cell.current.1 != 0) {
            let busy = (cell.busy as f64 / width) as f32;
            let longest = cell.longest as f32;
            let words = [
                number as u32,
                u32::from(cell.kind),
                u32::from(cell.kind_of_longest),
                busy.to_bits(),
                cell.count,
                longest.to_bits(),
                cell.event,
                0,
            ];
            words.iter().for_each(|word| out.extend(word.to_le_bytes()));
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;
    use crate::sample::{Sample, merged};

    /// What the browser makes of an answer: lane, number of the tile, busy share, spans that begin.
    pub type Seen = (Value, Vec<(usize, u64, f64, u64)>, Vec<(usize, u64, u64, u64)>);

    pub fn decode(bytes: &[u8]) -> Seen {
        let len = u32::from_le_bytes(bytes[..4].try_into().unwrap()) as usize;
        assert_eq!((4 + len) % 8, 0);
        let header: Value = serde_json::from_slice(&bytes[4..4 + len]).unwrap();
        let (mut tiles, mut spans, mut rest) = (Vec::new(), Vec::new(), &bytes[4 + len..]);
        for lane in header["lanes"].as_array().unwrap().clone() {
            let number = lane[0].as_u64().unwrap() as usize;
            for _ in 0..lane[2].as_u64().unwrap() {
                let (item, after) = rest.split_at(32);
                rest = after;
                let word = |at: usize| u32::from_le_bytes(item[at..at + 4].try_into().unwrap());
                let float = |at: usize| f64::from_le_bytes(item[at..at + 8].try_into().unwrap());
                match lane[1].as_str().unwrap() {
                    "tiles" => tiles.push((number, u64::from(word(0)), f64::from(f32::from_bits(word(12))), u64::from(word(16)))),
                    _ => spans.push((number, float(0) as u64, float(8) as u64, float(24) as u64)),
                }
            }
        }
        assert!(rest.is_empty());
        (header, tiles, spans)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        /// Any window of a trace, any filter: tiles and spans are what a look at every record
        /// gives.
        #[test]
        fn every_window_equals_brute_force(from in 0u64..40_000_000, length in 1u64..60_000_000, width in 1u32..900, hide in any::<u64>()) {
            let run = Run::new(merged(&Sample { operations: 1_500, ..Sample::default() }), Vec::new());
            let tracks = crate::levels::tracks(&run, Default::default());
            let hidden: Vec<bool> = (0..run.lanes.kinds.len()).map(|kind| hide >> (kind % 64) & 3 == 0).collect();
            let window = Window { from, to: from + length, width, hidden: hidden.clone() };
            let (header, tiles, spans) = decode(&picture(&run, &run.lanes.lanes, &window));
            let (tile, first) = (header["tile"].as_u64().unwrap(), header["first"].as_u64().unwrap());
            prop_assert!(tile <= (length / u64::from(width)).max(1));
            let tiled: Vec<usize> = tiles.iter().map(|tile| tile.0).collect();
            let mut seen = 0;
            for position in run.merged.events.in_order() {
                let event = run.merged.events.event(position);
                let Some(lane) = tracks.lane_of(&run, position) else { continue };
                let start = run.since_origin(event.start_ns) as u64;
                let kind = run.lanes.lanes[lane].tracks.iter().find(|(_, track)| track.holds(position)).unwrap().0;
                if hidden[usize::from(kind)] || start >= window.to || start + event.dur_ns < from || tiled.contains(&lane) {
                    continue;
                }
                seen += 1;
                prop_assert!(spans.contains(&(lane, start, event.dur_ns, u64::from(position))), "span {} is missing", position);
            }
            prop_assert_eq!(spans.len(), seen);
            for (lane, index, busy, count) in tiles {
                let (begin, end) = ((first + index) * tile, (first + index + 1) * tile);
                let all = run.spans_of(run.lanes.lanes[lane].node);
                let bars = run.lanes.lanes[lane].tracks.iter().filter(|(kind, _)| !hidden[usize::from(*kind)]).flat_map(|(_, track)| track.bars(&all));
                let (mut sum, mut begun) = (0, 0);
                for bar in bars {
                    sum += bar.end.min(end).saturating_sub(bar.start.max(begin));
                    begun += u64::from((begin..end).contains(&bar.start));
                }
                prop_assert!((busy - sum as f64 / tile as f64).abs() < 1e-5, "lane {} tile {}: {} and {}", lane, index, busy, sum);
                prop_assert_eq!(count, begun);
            }
        }
    }

    #[test]
    fn a_window_of_one_nanosecond_at_the_end_of_time_is_survived() {
        let run = Run::new(merged(&Sample { operations: 10, ..Sample::default() }), Vec::new());
        let window = Window { from: u64::MAX - 1, to: u64::MAX, width: 1, hidden: Vec::new() };
        assert!(decode(&picture(&run, &run.lanes.lanes, &window)).1.is_empty());
        let window = Window { from: 0, to: u64::MAX, width: WIDTH_MAX, hidden: Vec::new() };
        assert!(!decode(&picture(&run, &run.lanes.lanes, &window)).0["lanes"].as_array().unwrap().is_empty());
    }
}
