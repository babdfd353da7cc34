//! Trace files. A file belongs to one node (one process, or one node of a simulation) and consists
//! of units of 64 bytes: a header of some units, then blocks. A block is one unit that says what
//! follows and some units that are records. `docs/trace.md` has every byte.
//!
//! Every block carries a checksum of its own and begins at a multiple of 64 bytes, so a reader that
//! meets damage looks for the next sound block; records have numbers, so it can say which are
//! missing; and the last block says how many there were, so a file that was cut anywhere is
//! recognised.

mod read;
mod records;
mod write;

pub use read::{Problem, ReadError, Recorded, TraceFile};
pub(crate) use records::Brief;
pub use records::{Sort, TraceRecords};
pub use write::FileWriter;

use crate::event::{EventId, EventInfo, EventKind, EventPart, EventTable};
use crate::{Anchor, Stage};

/// The first bytes of a file.
pub(crate) const FILE_MAGIC: [u8; 8] = *b"WEFTTRC\n";
/// The first bytes of a block.
pub(crate) const BLOCK_MAGIC: [u8; 4] = *b"WTB\n";
/// The version that is written, and the only one that is read.
pub const VERSION: u16 = 1;
/// Size of a unit in bytes.
pub(crate) const UNIT: usize = crate::record::RECORD_BYTES;
/// Bytes in front of the header's body.
pub(crate) const PREAMBLE: usize = 24;
/// Longest header in bytes: a longer one is damage.
pub(crate) const HEADER_BYTES_MAX: u32 = 1 << 20;
/// Records in a block at most (4 MiB).
pub(crate) const BLOCK_RECORDS_MAX: u32 = 1 << 16;
/// The number of the ring in the last block of a file.
pub(crate) const RING_END: u32 = u32::MAX;

/// What a file says about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileHeader {
    /// The name of the node, for example `meta0` or `client c17 on boron`.
    pub node: String,
    /// The server's number, or `None` for a client.
    pub server: Option<u16>,
    /// The process.
    pub process: u32,
    /// The clock: `tsc`, `monotonic` or `virtual`.
    pub clock: String,
    /// Files with the same name share one clock: a machine and its boot, or a simulation. Their
    /// times need no offset.
    pub clock_domain: String,
    /// A moment on the clocks when the file was begun.
    pub anchor: Anchor,
    /// The events of the program that wrote it.
    pub events: EventTable,
    /// The name of the machine; empty: a simulation, or a program that did not say it.
    pub machine: String,
}

impl FileHeader {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_text(&mut out, &self.node);
        out.extend(self.server.map_or(u32::MAX, u32::from).to_le_bytes());
        out.extend(self.process.to_le_bytes());
        put_text(&mut out, &self.clock);
        put_text(&mut out, &self.clock_domain);
        out.extend(self.anchor.ticks.to_le_bytes());
        out.extend(self.anchor.mono_ns.to_le_bytes());
        out.extend(self.anchor.wall_ns.to_le_bytes());
        out.extend((self.events.iter().count() as u32).to_le_bytes());
        for info in self.events.iter() {
            out.extend(info.id.0.to_le_bytes());
            out.extend([info.kind as u8, info.parts.len() as u8]);
            put_text(&mut out, &info.name);
            put_text(&mut out, info.stage.name());
            for part in &info.parts {
                put_text(&mut out, &part.name);
                put_text(&mut out, part.stage.name());
            }
        }
        put_text(&mut out, &self.machine);
        out
    }

    /// `None` if the bytes end too early or make no sense.
    pub(crate) fn decode(bytes: &[u8]) -> Option<FileHeader> {
        let mut input = Input(bytes);
        let node = input.text()?;
        let server = u16::try_from(input.u32()?).ok();
        let process = input.u32()?;
        let (clock, clock_domain) = (input.text()?, input.text()?);
        let anchor = Anchor { ticks: input.u64()?, mono_ns: input.u64()?, wall_ns: input.u64()? as i64 };
        let count = input.u32()?;
        let mut events = Vec::new();
        for _ in 0..count {
            let id = EventId(u16::from_le_bytes(input.take()?));
            let [kind, parts] = input.take()?;
            let kind = EventKind::from_number(kind)?;
            // A stage of a later program is not known here: its time stays uncovered.
            let (name, stage) = (input.text()?, Stage::from_name(&input.text()?).unwrap_or(Stage::Unseen));
            let parts = (0..parts)
                .map(|_| Some(EventPart { name: input.text()?, stage: Stage::from_name(&input.text()?).unwrap_or(Stage::Unseen) }));
            events.push(EventInfo { id, name, kind, stage, parts: parts.collect::<Option<_>>()? });
        }
        // The first programs wrote no more than that; what later ones write behind it is not for
        // this one.
        let machine = if input.0.is_empty() { String::new() } else { input.text()? };
        Some(FileHeader { node, server, process, clock, clock_domain, anchor, events: EventTable::from_infos(events), machine })
    }
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    let mut end = text.len().min(usize::from(u16::MAX));
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    out.extend((end as u16).to_le_bytes());
    out.extend(&text.as_bytes()[..end]);
}

/// Bytes that are still to be read.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*first)
    }
    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }
    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }
    /// Without what a terminal would obey: the file may be a stranger's.
    fn text(&mut self) -> Option<String> {
        let len = usize::from(self.take().map(u16::from_le_bytes)?);
        let (text, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(str::from_utf8(text).ok()?.replace(char::is_control, "\u{fffd}"))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::event;
    use crate::record::{Body, Span, Sync, TraceRecord};
    use crate::tracer::Batch;

    fn header() -> FileHeader {
        FileHeader {
            node: "meta0 über".into(),
            server: Some(0),
            process: 77,
            clock: "tsc".into(),
            clock_domain: "machine 1".into(),
            anchor: Anchor { ticks: 3_000, mono_ns: 1_000, wall_ns: 5 },
            events: EventTable::builtin(),
            machine: "boron".into(),
        }
    }

    #[test]
    fn headers_of_older_and_of_later_programs_are_read() {
        let bytes = header().encode();
        let older = &bytes[..bytes.len() - 2 - "boron".len()];
        assert_eq!(FileHeader::decode(older), Some(FileHeader { machine: String::new(), ..header() }));
        assert_eq!(FileHeader::decode(&[&bytes[..], b"more"].concat()), Some(header()));
        assert_eq!(FileHeader::decode(&bytes[..bytes.len() - 1]), None);
    }

    fn span(number: u64) -> TraceRecord {
        TraceRecord { req: number, ..TraceRecord::new(number, event::DISK_READ, Body::Span(Span { dur: 1, ..Span::default() })) }
    }

    /// Batches of these sizes, alternating between two rings, with the offsets where each block
    /// begins.
    fn sample(sizes: &[usize]) -> (Vec<u8>, Vec<(u32, u64)>) {
        let (mut writer, mut bytes) = FileWriter::begin(&header());
        let mut written = Vec::new();
        let mut next = [0; 2];
        for (position, size) in sizes.iter().enumerate() {
            let ring = position % 2;
            let records: Vec<_> = (next[ring]..next[ring] + *size as u64).map(|number| span(number).to_words()).collect();
            writer.batch(&Batch { ring: ring as u32, first: next[ring], records }, &mut bytes);
            written.extend((next[ring]..next[ring] + *size as u64).map(|number| (ring as u32, number)));
            next[ring] += *size as u64;
        }
        writer.end(&mut bytes);
        (bytes, written)
    }

    fn found(file: &TraceFile) -> Vec<(u32, u64)> {
        assert!(file.records.iter().all(|recorded| recorded.record == span(recorded.number)));
        file.records.iter().map(|recorded| (recorded.ring, recorded.number)).collect()
    }

    #[test]
    fn a_whole_file_is_read_back_with_its_header() {
        let (bytes, written) = sample(&[3, 1, 5]);
        let file = TraceFile::read(&bytes).expect("sound");
        assert_eq!((&file.header, found(&file), file.problems.as_slice()), (&header(), written, [].as_slice()));
    }

    /// Every cut of a file: what is before the cut is there, and the file says that it was cut.
    #[test]
    fn every_cut_keeps_the_whole_blocks_before_it_and_is_noticed() {
        let (bytes, written) = sample(&[3, 1, 5, 2]);
        let header_end = FileWriter::begin(&header()).1.len();
        let block = |records: usize| (1 + records) * UNIT;
        let ends: Vec<usize> = [3, 1, 5, 2]
            .iter()
            .scan(header_end, |end, size| {
                *end += block(*size);
                Some(*end)
            })
            .collect();
        for cut in 0..bytes.len() {
            let outcome = TraceFile::read(&bytes[..cut]);
            let header_is_whole = cut >= header_end - (header_end - PREAMBLE - header().encode().len());
            let Ok(file) = outcome else {
                assert!(!header_is_whole, "cut at {cut}: {outcome:?}");
                continue;
            };
            let whole: usize = [3, 1, 5, 2].iter().zip(&ends).filter(|(_, end)| **end <= cut).map(|(size, _)| *size).sum();
            assert_eq!(found(&file), written[..whole], "cut at {cut}");
            assert!(file.problems.contains(&Problem::NoEnd), "cut at {cut}");
        }
    }

    #[test]
    fn a_damaged_block_costs_only_itself_and_is_named() {
        let (mut bytes, _) = sample(&[3, 1, 5, 2, 4]);
        let header_end = FileWriter::begin(&header()).1.len();
        // A bit in the second record of the third block: numbers 3 to 7 of ring 0.
        let third = header_end + 4 * UNIT + 2 * UNIT;
        bytes[third + 2 * UNIT + 5] ^= 1;
        let file = TraceFile::read(&bytes).expect("the header is sound");
        assert_eq!(found(&file).len(), 10);
        assert_eq!(
            file.problems,
            [
                Problem::Damaged { offset: third as u64, bytes: 6 * UNIT as u64 },
                Problem::Missing { records: 5 },
                Problem::Gap { ring: 0, first: 3, records: 5 },
            ]
        );
    }

    #[test]
    fn losses_while_recording_are_no_gaps() {
        let (mut writer, mut bytes) = FileWriter::begin(&header());
        let mut lost = TraceRecord::new(9, event::TRACE_LOST, Body::Lost { count: 10, total: 10 });
        lost.class = 1;
        writer.batch(&Batch { ring: 0, first: 10, records: vec![span(10).to_words(), lost.to_words()] }, &mut bytes);
        writer.batch(&Batch { ring: 0, first: 11, records: vec![span(11).to_words()] }, &mut bytes);
        writer.end(&mut bytes);
        let file = TraceFile::read(&bytes).expect("sound");
        assert_eq!((file.problems.as_slice(), file.lost()), ([Problem::Lost { ring: 0, records: 10 }].as_slice(), 10));
    }

    #[test]
    fn numbers_that_nobody_counts_to_are_no_reason_to_stop() {
        let (mut writer, mut bytes) = FileWriter::begin(&header());
        let lost = TraceRecord::new(9, event::TRACE_LOST, Body::Lost { count: u64::MAX, total: 10 });
        let records = vec![span(1).to_words(), lost.to_words(), lost.to_words(), span(2).to_words()];
        writer.batch(&Batch { ring: 0, first: 0, records }, &mut bytes);
        writer.end(&mut bytes);
        let file = TraceFile::read(&bytes).expect("sound");
        assert!(file.records.iter().count() == 4 && file.lost() > 1 << 40, "{:?}", file.problems);
    }

    #[test]
    fn names_have_nothing_that_a_terminal_obeys() {
        let written = FileHeader { node: "\u{1b}[31mmeta0\n".into(), ..header() };
        let read = TraceFile::read(&FileWriter::begin(&written).1).expect("the header is sound").header;
        assert_eq!(read, FileHeader { node: "\u{fffd}[31mmeta0\u{fffd}".into(), ..header() });
    }

    #[test]
    fn anchors_in_the_file_make_the_scale() {
        let (mut writer, mut bytes) = FileWriter::begin(&header());
        let sync = TraceRecord::new(6_000, event::TRACE_SYNC, Body::Sync(Sync { mono_ns: 2_000, wall_ns: 1_005, ..Sync::default() }));
        writer.batch(&Batch { ring: 0, first: 0, records: vec![sync.to_words()] }, &mut bytes);
        writer.end(&mut bytes);
        assert_eq!(TraceFile::read(&bytes).expect("sound").scale.nanos(4_500), 1_500);
    }

    #[test]
    fn other_files_are_refused_with_a_reason() {
        assert_eq!(TraceFile::read(b""), Err(ReadError::NotATrace));
        assert_eq!(TraceFile::read(b"{\"traceEvents\":[]}"), Err(ReadError::NotATrace));
        let (bytes, _) = sample(&[1]);
        let mut later = bytes.clone();
        later[8] = 9;
        let crc = weft_base::crc32c(&later[..20]);
        later[20..24].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(TraceFile::read(&later), Err(ReadError::Version(9)));
        let mut damaged = bytes;
        damaged[PREAMBLE + 3] ^= 1;
        assert_eq!(TraceFile::read(&damaged), Err(ReadError::Header));
    }

    proptest! {
        /// Whatever happens to the bytes, no panic, and no record that was not written.
        #[test]
        fn any_damage_is_survived(
            sizes in prop::collection::vec(1usize..6, 0..6),
            damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
            cut in any::<prop::sample::Index>(),
            piece in 1u64..2_000,
        ) {
            let (mut bytes, written) = sample(&sizes);
            for (place, value) in &damage {
                let place = place.index(bytes.len());
                bytes[place] = *value;
            }
            bytes.truncate(cut.index(bytes.len() + 1));
            // However the bytes come.
            let by_pieces = TraceFile::read_by_pieces(bytes.as_slice(), 0, piece, |_| {});
            prop_assert_eq!(&by_pieces, &TraceFile::read(&bytes));
            if let Ok(file) = TraceFile::read(&bytes) {
                let found = found(&file);
                prop_assert!(found.iter().all(|record| written.contains(record)));
                prop_assert!(found.len() == written.len() || !file.problems.is_empty());
            }
        }

        #[test]
        fn any_bytes_behind_a_sound_header_are_survived(noise in prop::collection::vec(any::<u8>(), 0..400)) {
            let mut bytes = FileWriter::begin(&header()).1;
            bytes.extend(&noise);
            let file = TraceFile::read(&bytes).expect("the header is sound");
            prop_assert_eq!(file.records.len(), 0);
        }
    }
}
