//! Builds the records of a cluster.

use std::collections::BTreeMap;

use super::super::*;
use crate::TickScale;
use crate::event::{self, EventTable, served};
use crate::file::{FileHeader, Recorded, TraceFile};
use crate::merge::merge;
use crate::record::{Body, Span, StagedSpan, TraceRecord, class, coarse, flags};

pub(super) const MS: u64 = 1_000_000;
pub(super) const SERVERS: [(&str, u16); 5] = [("meta0", 0), ("meta1", 1), ("data0", 0x8000), ("data1", 0x8001), ("data2", 0x8002)];
pub(super) const CLIENTS: [&str; 2] = ["c0", "c1"];

/// A delay of 5 ms at one place, on every `every`-th visit.
#[derive(Clone, Copy)]
pub(super) struct Delay {
    pub stage: Stage,
    pub place: &'static str,
    pub every: u64,
}

/// Builds records of nodes in time of a common clock; `skew` is how far each server's clock is
/// ahead.
pub(super) struct Cluster {
    pub delay: Option<Delay>,
    pub skew: u64,
    pub random: u64,
    pub visits: u64,
    pub spans: u32,
    pub keys: u64,
    pub records: BTreeMap<&'static str, Vec<TraceRecord>>,
}

impl Cluster {
    pub fn new(delay: Option<Delay>, skew: u64) -> Cluster {
        Cluster { delay, skew, random: 1, visits: 0, spans: 0, keys: 1 << 40, records: BTreeMap::new() }
    }

    /// The usual time of a stage give or take a third, and the delay if it is here.
    pub fn time(&mut self, stage: Stage, places: &[&str], usual_us: u64) -> u64 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let mut time = usual_us * 667 + usual_us * 666 * (self.random >> 40 & 1023) / 1024;
        if let Some(delay) = self.delay
            && delay.stage == stage
            && places.contains(&delay.place)
        {
            self.visits += 1;
            time += if self.visits.is_multiple_of(delay.every) { 5 * MS } else { 0 };
        }
        // Whole coarse units, so that nothing is lost by rounding.
        time & !15
    }

    pub fn span_number(&mut self) -> u32 {
        self.spans += 1;
        self.spans
    }

    pub fn span(&mut self, node: &'static str, event: EventId, req: u64, (t0, dur): (u64, u64), (span, parent): (u32, u32)) -> &mut Span {
        let body = Span { dur, span, parent, ..Span::default() };
        let records = self.records.entry(node).or_default();
        records.push(TraceRecord { req, ..TraceRecord::new(t0, event, Body::Span(body)) });
        match records.last_mut().map(|record| &mut record.body) {
            Some(Body::Span(span)) => span,
            _ => unreachable!("just pushed"),
        }
    }

    /// One request; returns when its reply is there.
    pub fn call(&mut self, client: &'static str, server: (&'static str, u16), event: EventId, t0: u64, parent: u32) -> u64 {
        let (name, number) = server;
        let is_data = number >= 0x8000;
        self.keys += 1;
        let key = self.keys;
        let wait = self.time(Stage::SendQueue, &[client], 3);
        let there = self.time(Stage::Network, &[client, name], 20);
        let back = self.time(Stage::Network, &[], 20);
        let mut phases = [0; 8];
        phases[served::QUEUE] = coarse(self.time(Stage::ServerQueue, &[name], 10));
        phases[served::LOCK] = coarse(self.time(Stage::Lock, &[name], 1));
        phases[served::SEND] = coarse(self.time(Stage::SendQueue, &[], 2));
        let cpu = self.time(Stage::Cpu, &[name], 8);
        let mut disk = 0;
        let begin = t0 + wait + there + self.skew;
        if is_data {
            let (class, stage) = if name == "data0" { (class::FAR_SEEK, Stage::DiskFar) } else { (class::NEAR_SEEK, Stage::DiskNear) };
            disk = self.time(stage, &[name], 100);
            let at = begin + (u64::from(phases[served::QUEUE] + phases[served::LOCK]) << 4) + cpu / 2;
            self.span(name, event::DISK_READ, key, (at, disk), (0, 0));
            let record = self.records.get_mut(name).and_then(|records| records.last_mut()).expect("just pushed");
            record.class = class;
        }
        phases[served::CPU] = coarse(cpu + disk);
        let changes = matches!(event, event::META_CREATE | event::DATA_WRITE);
        if changes {
            phases[served::JOURNAL] = coarse(self.time(Stage::Journal, &[name], 60));
        }
        let served = phases.iter().map(|phase| u64::from(*phase) << 4).sum::<u64>();
        let staged_span = StagedSpan { span: 0, code: 0, peer: number, phases };
        let record = TraceRecord { req: key, flags: flags::SERVER, ..TraceRecord::new(begin, event, Body::StagedSpan(staged_span)) };
        self.records.entry(name).or_default().push(record);
        let end = t0 + wait + there + served + back;
        let number_of_span = self.span_number();
        let span = self.span(client, event::NET_CALL, key, (t0, end - t0), (number_of_span, parent));
        (span.wait, span.peer) = (coarse(wait), number);
        end
    }

    /// One operation of an application through the kernel; returns its end.
    pub fn operation(&mut self, client: &'static str, turn: u64, t0: u64) -> u64 {
        let thread = if client == "c0" { 501 } else { 502 };
        let kernel = self.time(Stage::Kernel, &[client], 15);
        let own = self.time(Stage::Client, &[client], 5);
        let number = self.span_number();
        let mut at = t0 + kernel / 2 + own / 2;
        let held = self.time(Stage::Lock, &[client], 1);
        self.span(client, event::CLIENT_LOCK, 0, (at, held), (0, number));
        at += held;
        let meta = SERVERS[(turn % 2) as usize];
        let (app, fuse, event) = match turn % 3 {
            0 => (event::APP_CREATE, event::FUSE_CREATE, event::CLIENT_CREATE),
            1 => (event::APP_READ, event::FUSE_READ, event::CLIENT_READ),
            _ => (event::APP_WRITE, event::FUSE_WRITE, event::CLIENT_WRITE),
        };
        let end = match turn % 3 {
            0 => self.call(client, meta, event::META_CREATE, at, number),
            kind => {
                let event = if kind == 1 { event::DATA_READ } else { event::DATA_WRITE };
                SERVERS[2..].iter().map(|server| self.call(client, *server, event, at, number)).max().unwrap_or(at)
            }
        };
        let pause = self.time(Stage::Retry, &[client], 1);
        self.span(client, event::CLIENT_PAUSE, 0, (end, pause), (0, number));
        let end = end + pause;
        let inside = (t0 + kernel / 2, end + own / 2);
        let gateway = self.span_number();
        self.span(client, event, 0, (inside.0, inside.1 - inside.0), (number, gateway)).obj = turn + 1;
        let outer = (t0 + kernel / 4, inside.1 + kernel / 4);
        self.span(client, fuse, thread, (outer.0, outer.1 - outer.0), (gateway, 0));
        let application = self.span_number();
        let done = inside.1 + kernel / 2;
        self.span(client, app, thread, (t0, done - t0), (application, 0));
        done
    }

    pub fn run(mut self, turns: u64) -> Merged {
        for (number, client) in CLIENTS.into_iter().enumerate() {
            let mut now = MS + number as u64 * 7_000;
            for turn in 0..turns {
                now = self.operation(client, turn, now) + 1_000;
            }
        }
        self.merged()
    }

    pub fn merged(mut self) -> Merged {
        let nodes = CLIENTS.into_iter().map(|name| (name, None)).chain(SERVERS.map(|(name, number)| (name, Some(number))));
        let files = nodes.map(|(name, server)| {
            let skewed = self.skew > 0 && server.is_some();
            let records = self.records.remove(name).unwrap_or_default();
            let recorded = |(number, record): (usize, TraceRecord)| Recorded { ring: 0, number: number as u64, record };
            TraceFile {
                header: FileHeader {
                    node: name.into(),
                    server,
                    process: 1,
                    clock: "virtual".into(),
                    clock_domain: if skewed { name.into() } else { "clients".into() },
                    anchor: Default::default(),
                    events: EventTable::builtin(),
                    machine: String::new(),
                },
                records: records.into_iter().enumerate().map(recorded).collect(),
                problems: Vec::new(),
                scale: TickScale::default(),
            }
        });
        merge(files.collect())
    }
}
