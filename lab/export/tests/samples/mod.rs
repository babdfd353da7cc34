//! A small trace with one record of each kind, for the tests of formats and pictures. Tests of
//! other crates take this file in by its path.
#![allow(dead_code)]

use weft_trace::event::{self, EventTable};
use weft_trace::file::TraceFile;
use weft_trace::file::{FileHeader, FileWriter};
use weft_trace::merge::merge;
use weft_trace::record::{Body, flags};
use weft_trace::record::{Span, StagedSpan, TraceRecord, coarse, padded};
use weft_trace::{Anchor, Batch};

use super::source::{Selection, Source};

fn file(node: &str, server: Option<u16>, records: &[TraceRecord]) -> TraceFile {
    let header = FileHeader {
        node: node.into(),
        server,
        process: 1,
        clock: "virtual".into(),
        clock_domain: "test".into(),
        anchor: Anchor::default(),
        events: EventTable::builtin(),
        machine: String::new(),
    };
    let (mut writer, mut bytes) = FileWriter::begin(&header);
    writer.batch(&Batch { ring: 0, first: 0, records: records.iter().map(TraceRecord::to_words).collect() }, &mut bytes);
    writer.end(&mut bytes);
    TraceFile::read(&bytes).expect("written just now")
}

fn span(event: weft_trace::EventId, t0: u64, dur: u64, req: u64, inner: Span) -> TraceRecord {
    TraceRecord { req, ..TraceRecord::new(t0, event, Body::Span(Span { dur, ..inner })) }
}

/// A client with two overlapping creates (the second fails), their server with gauges and a disk,
/// and a mark.
pub fn two_creates() -> Source {
    source("*")
}

/// The same with only some events.
pub fn source(events: &str) -> Source {
    let mut failed = span(event::CLIENT_CREATE, 1_400, 9_000, 0, Span { span: 3, len: 7, ..Span::default() });
    (failed.flags, failed.res) = (flags::ERROR, 17);
    let label = padded("create, \"phase\" <1>");
    let client = [
        span(event::CLIENT_CREATE, 1_000, 8_000, 0, Span { span: 1, obj: 0xabc, ..Span::default() }),
        span(event::NET_CALL, 1_160, 7_200, 77, Span { span: 2, parent: 1, wait: coarse(160), ..Span::default() }),
        failed,
        TraceRecord::new(900, event::MARK_PHASE, Body::Mark { value: 1, label }),
    ];
    let staged_span =
        StagedSpan { code: 17, peer: 0, phases: [coarse(320), 0, coarse(1_600), coarse(2_400), coarse(160), 0, 0, 0], span: 9 };
    let mut served = TraceRecord { req: 77, ..TraceRecord::new(2_000, event::META_CREATE, Body::StagedSpan(staged_span)) };
    served.flags = flags::SERVER;
    let mut disk = span(event::DISK_WRITE, 4_000, 1_600, 77, Span { off: 4096, len: 512, ..Span::default() });
    disk.class = 3;
    let gauges = |t0, queue| TraceRecord::new(t0, event::LOAD, Body::Counter([queue, 1, 0, 4096, 0]));
    let server = [served, disk, gauges(1_500, 2), gauges(6_000, 0)];
    let files = vec![file("client0", None, &client), file("meta0", Some(0), &server)];
    Source::new(merge(files), &Selection { events: events.to_string(), ..Selection::default() }).expect("known events")
}
