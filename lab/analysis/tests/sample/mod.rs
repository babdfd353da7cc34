//! A synthetic trace: clients that create, write, read and look at files on metadata and data
//! servers, in virtual time, with queues at the servers, a journal, disks that seek, and now and
//! then a slow disk. It exists so that the viewer can be measured and tested with any number of
//! spans; the example `sample` writes it. The same seed gives the same bytes. Tests of other crates
//! take this file in by its path.
#![allow(dead_code)]

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use weft_base::ServerId;
use weft_trace::event::{self, EventId, EventTable, served};
use weft_trace::file::{FileHeader, FileWriter};
use weft_trace::record::{Body, Span, StagedSpan, TraceRecord, Words, class, coarse, flags, padded};
use weft_trace::{Anchor, Batch};
use weft_wire::Op;

/// What is generated.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Operations of all clients together.
    pub operations: u64,
    /// Clients; each has four threads.
    pub clients: usize,
    /// Metadata servers.
    pub meta: u16,
    /// Data servers.
    pub data: u16,
    /// For the random numbers.
    pub seed: u64,
}

impl Default for Sample {
    fn default() -> Sample {
        Sample { operations: 20_000, clients: 2, meta: 2, data: 4, seed: 1 }
    }
}

/// Spans that one operation leaves on average; measured, used only to turn a wanted number of spans
/// into operations.
pub const SPANS_PER_OPERATION: f64 = 9.0;
const THREADS: usize = 4;
const US: u64 = 1_000;
/// Records that are kept until they are written as one batch.
const BATCH: usize = 1 << 14;

/// Writes a trace of about so many spans with so many data servers into a directory; returns how
/// many there are.
pub fn write_spans(spans: u64, data: u16, directory: &Path) -> u64 {
    let operations = (spans as f64 / SPANS_PER_OPERATION).ceil() as u64;
    write(&Sample { operations, data, ..Sample::default() }, directory).expect("the directory can be written")
}

/// Writes one trace file for each node into a directory.
///
/// # Errors
/// Of the disk.
pub fn write(sample: &Sample, directory: &Path) -> io::Result<u64> {
    std::fs::create_dir_all(directory)?;
    let create = |name: &str| File::create(directory.join(format!("{name}.trace")));
    let names = names(sample);
    let files = names.iter().map(|(name, _)| create(name).map(io::BufWriter::new)).collect::<io::Result<Vec<_>>>()?;
    let (spans, files) = generate(sample, files)?;
    files.into_iter().try_for_each(|file| file.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all())?;
    Ok(spans)
}

/// Nodes with the numbers of servers.
fn names(sample: &Sample) -> Vec<(String, Option<u16>)> {
    let clients = (0..sample.clients).map(|number| (format!("client{number}"), None));
    let meta = (0..sample.meta).map(|number| (format!("meta{number}"), Some(number)));
    let data = (0..sample.data).map(|number| (format!("data{number}"), Some(ServerId::data(number).0)));
    clients.chain(meta).chain(data).collect()
}

/// Writes the files of all nodes; returns the number of spans.
fn generate<W: Write>(sample: &Sample, files: Vec<W>) -> io::Result<(u64, Vec<W>)> {
    let nodes = names(sample).into_iter().zip(files).map(|((name, server), file)| Node::begin(name, server, file));
    let servers = usize::from(sample.meta + sample.data);
    let mut cluster = Cluster {
        sample: sample.clone(),
        nodes: nodes.collect::<io::Result<_>>()?,
        free_at: vec![0; servers],
        random: sample.seed.wrapping_mul(2).wrapping_add(1),
        keys: 1 << 40,
        spans: 0,
        numbers: 0,
    };
    cluster.run()?;
    let spans = cluster.spans;
    let files = cluster.nodes.into_iter().map(Node::end).collect::<io::Result<Vec<W>>>()?;
    Ok((spans, files))
}

struct Node<W> {
    file: W,
    writer: FileWriter,
    written: u64,
    kept: Vec<Words>,
}

impl<W: Write> Node<W> {
    fn begin(name: String, server: Option<u16>, mut file: W) -> io::Result<Node<W>> {
        let header = FileHeader {
            node: name,
            server,
            process: 1,
            clock: "virtual".into(),
            clock_domain: "sample".into(),
            anchor: Anchor::default(),
            events: EventTable::builtin(),
            machine: String::new(),
        };
        let (writer, bytes) = FileWriter::begin(&header);
        file.write_all(&bytes)?;
        Ok(Node { file, writer, written: 0, kept: Vec::new() })
    }

    fn put(&mut self, record: &TraceRecord) -> io::Result<()> {
        self.kept.push(record.to_words());
        if self.kept.len() < BATCH { Ok(()) } else { self.flush() }
    }

    fn flush(&mut self) -> io::Result<()> {
        let records = std::mem::take(&mut self.kept);
        if records.is_empty() {
            return Ok(());
        }
        let (first, mut bytes) = (self.written, Vec::new());
        self.written += records.len() as u64;
        self.writer.batch(&Batch { ring: 0, first, records }, &mut bytes);
        self.file.write_all(&bytes)
    }

    fn end(mut self) -> io::Result<W> {
        self.flush()?;
        let mut bytes = Vec::new();
        self.writer.end(&mut bytes);
        self.file.write_all(&bytes)?;
        Ok(self.file)
    }
}

struct Cluster<W> {
    sample: Sample,
    nodes: Vec<Node<W>>,
    /// For each server the time from which on its processor is free.
    free_at: Vec<u64>,
    random: u64,
    keys: u64,
    spans: u64,
    numbers: u32,
}

/// A request that is to be sent.
struct Call {
    client: usize,
    server: usize,
    event: EventId,
    obj: u64,
    len: u32,
    parent: u32,
}

impl<W: Write> Cluster<W> {
    fn run(&mut self) -> io::Result<()> {
        let mut ready = BinaryHeap::new();
        for thread in 0..self.sample.clients * THREADS {
            ready.push(Reverse((100 * US + 3 * US * thread as u64, thread)));
        }
        let mut next_sample = 0;
        for number in 0..self.sample.operations {
            let Some(Reverse((now, thread))) = ready.pop() else { break };
            while next_sample <= now {
                self.sample_load(next_sample)?;
                next_sample += 1_000 * US;
            }
            let tenth = (self.sample.operations / 10).max(1);
            if number.is_multiple_of(tenth) {
                let label = ["create", "write", "read"][(number / tenth % 3) as usize];
                let body = Body::Mark { value: number / tenth, label: padded(label) };
                self.nodes[0].put(&TraceRecord::new(now, event::MARK_ITERATION, body))?;
            }
            let end = self.operation(thread, number, now)?;
            let think = self.time(5);
            ready.push(Reverse((end + think, thread)));
        }
        Ok(())
    }

    fn next(&mut self) -> u64 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.random >> 33
    }

    /// About `usual_us` microseconds, with a tail: one of 50 takes up to eight times as long.
    fn time(&mut self, usual_us: u64) -> u64 {
        let spread = usual_us * 500 + usual_us * self.next() % (usual_us * 1_000).max(1);
        let factor = if self.next().is_multiple_of(50) { 2 + self.next() % 7 } else { 1 };
        (spread * factor) & !15
    }

    fn number(&mut self) -> u32 {
        self.numbers += 1;
        self.numbers
    }

    fn span(&mut self, node: usize, (t0, end): (u64, u64), event: EventId, req: u64, class: u8, span: Span) -> io::Result<()> {
        self.spans += 1;
        let side = if node >= self.sample.clients { flags::SERVER } else { 0 };
        let body = Body::Span(Span { dur: end - t0, ..span });
        self.nodes[node].put(&TraceRecord { req, class, flags: flags::SIMULATED | side, ..TraceRecord::new(t0, event, body) })
    }

    /// One operation of a thread; returns its end.
    fn operation(&mut self, thread: usize, number: u64, t0: u64) -> io::Result<u64> {
        let client = thread / THREADS;
        let span = self.number();
        let obj = 0x1000 + number / 4;
        let (event, request) = match number % 8 {
            0..5 => (event::CLIENT_CREATE, event::META_CREATE),
            5 => (event::CLIENT_WRITE, event::DATA_WRITE),
            6 => (event::CLIENT_READ, event::DATA_READ),
            _ => (event::CLIENT_GETATTR, event::request(Op::GetAttr)),
        };
        let begin = t0 + self.time(2);
        let is_data = matches!(request, event::DATA_WRITE | event::DATA_READ);
        let len = if is_data { 1 << (12 + self.next() % 9) } else { 0 };
        let meta = usize::from(self.sample.meta);
        let mut end = begin;
        if is_data && self.sample.data > 0 {
            let servers = 1 + self.next() as usize % 2;
            for part in 0..servers {
                let server = meta + (obj as usize + part) % usize::from(self.sample.data);
                end = self.call(begin, &Call { client, server, event: request, obj, len, parent: span })?.max(end);
            }
        } else {
            let server = self.next() as usize % meta.max(1);
            end = self.call(begin, &Call { client, server, event: request, obj, len: 0, parent: span })?;
        }
        let end = end + self.time(2);
        self.span(client, (t0, end), event, 0, 0, Span { obj, len, span, ..Span::default() })?;
        Ok(end)
    }

    /// One request; returns when its reply is there.
    fn call(&mut self, t0: u64, call: &Call) -> io::Result<u64> {
        self.keys += 1;
        let (req, node) = (self.keys, self.sample.clients + call.server);
        let is_meta = call.server < usize::from(self.sample.meta);
        let peer = if is_meta { call.server as u16 } else { ServerId::data(call.server as u16 - self.sample.meta).0 };
        let (wait, send, way) = (self.time(1), self.time(2), self.time(12));
        let sent = t0 + wait;
        self.span(call.client, (sent, sent + send), event::NET_SEND, req, 0, Span { peer, len: 200, ..Span::default() })?;
        let arrived = sent + send + way;
        let receive = self.time(1);
        self.span(node, (arrived - receive, arrived), event::NET_RECEIVE, req, 0, Span { peer: u16::MAX, len: 200, ..Span::default() })?;
        let begin = arrived.max(self.free_at[call.server]);
        let mut cpu = self.time(6);
        let mut phases = [0; 8];
        phases[served::QUEUE] = coarse(begin - arrived);
        let mut at = begin + cpu;
        if !is_meta {
            // The first data server's disk seeks most; every 997th access of any of them takes
            // milliseconds.
            let (class, usual) = match (self.next() % 10, call.server == usize::from(self.sample.meta)) {
                (0..4, true) => (class::FAR_SEEK, 240),
                (0..2, false) => (class::NEAR_SEEK, 90),
                _ => (class::NO_SEEK, 30),
            };
            let slow = if self.keys.is_multiple_of(997) { self.time(4_000) } else { 0 };
            let disk = self.time(usual) + slow;
            let event = if call.event == event::DATA_READ { event::DISK_READ } else { event::DISK_WRITE };
            let off = u64::from(call.len) * (self.next() % 64);
            self.span(node, (at, at + disk), event, req, class, Span { obj: call.obj, off, len: call.len, ..Span::default() })?;
            cpu += disk;
            at += disk;
        }
        phases[served::CPU] = coarse(cpu);
        if matches!(call.event, event::META_CREATE | event::DATA_WRITE) {
            let journal = self.time(25);
            phases[served::JOURNAL] = coarse(journal);
            self.span(node, (at, at + journal), event::JOURNAL_COMMIT, 0, 0, Span { len: 512, ..Span::default() })?;
            self.span(node, (at + journal / 4, at + journal), event::DISK_WRITE, 0, class::NO_SEEK, Span { len: 4096, ..Span::default() })?;
            at += journal;
        }
        // The processor is free for the next request while the journal is written.
        self.free_at[call.server] = begin + cpu;
        let reply = self.time(1);
        phases[served::SEND] = coarse(reply);
        let served_ns: u64 = phases.iter().map(|phase| u64::from(*phase) << 4).sum();
        let staged_span = StagedSpan { span: 0, code: 0, peer, phases };
        let flags = flags::SERVER | flags::SIMULATED;
        self.spans += 1;
        self.nodes[node].put(&TraceRecord { req, flags, ..TraceRecord::new(arrived, call.event, Body::StagedSpan(staged_span)) })?;
        let done = at.max(arrived + served_ns);
        self.span(node, (done, done + reply), event::NET_SEND, req, 0, Span { peer: u16::MAX, len: 300, ..Span::default() })?;
        let back = done + reply + self.time(12);
        let receive = self.time(1);
        self.span(call.client, (back - receive, back), event::NET_RECEIVE, req, 0, Span { peer, len: 300, ..Span::default() })?;
        let span = self.number();
        let detail = Span { peer, wait: coarse(wait), obj: call.obj, len: call.len, span, parent: call.parent, ..Span::default() };
        self.span(call.client, (t0, back), event::NET_CALL, req, 0, detail)?;
        Ok(back)
    }

    fn sample_load(&mut self, now: u64) -> io::Result<()> {
        for server in 0..self.free_at.len() {
            let queue = self.free_at[server].saturating_sub(now) / (10 * US);
            let gauges = [queue, queue / 2, queue * 4096, 0, 0];
            let record = TraceRecord { flags: flags::SERVER, ..TraceRecord::new(now, event::LOAD, Body::Counter(gauges)) };
            self.nodes[self.sample.clients + server].put(&record)?;
        }
        Ok(())
    }
}

/// The bytes of the files of a sample, for tests.
pub fn files(sample: &Sample) -> Vec<Vec<u8>> {
    let files = vec![Vec::new(); names(sample).len()];
    generate(sample, files).expect("memory does not fail").1
}

/// The file of one node with these records, for tests.
pub fn file_of(name: &str, server: Option<u16>, records: &[TraceRecord]) -> weft_trace::file::TraceFile {
    let write = || -> io::Result<Vec<u8>> {
        let mut node = Node::begin(name.into(), server, Vec::new())?;
        records.iter().try_for_each(|record| node.put(record))?;
        node.end()
    };
    weft_trace::file::TraceFile::read(&write().expect("memory does not fail")).expect("just written")
}

/// A sample as a merged trace, for tests.
pub fn merged(sample: &Sample) -> weft_trace::merge::Merged {
    let read = |bytes: Vec<u8>| weft_trace::file::TraceFile::read(&bytes).expect("just written");
    weft_trace::merge::merge(files(sample).into_iter().map(read).collect())
}
