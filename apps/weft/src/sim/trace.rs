//! Simulated runs as trace files of Weft, one for each node, in virtual time: what `weft view`, `weft explain`, `weft export` and
//! `weft plot` read. Commands of programs are events of the application; those that no application of Weft itself has are described in
//! the header of the file.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};
use weft_base::ServerId;
use weft_cluster_model::{Access, Command, Recording};
use weft_model::{JobKind, Seek};
use weft_trace::event::{self, EventInfo, EventTable};
use weft_trace::file::{FileHeader, FileWriter};
use weft_trace::record::{Body, Record, Span, class, flags};
use weft_trace::{Anchor, Batch, EventId, Kind, Stage};

use super::workload::Workload;

/// Records of one batch.
const BATCH: usize = 1 << 14;

/// Events of programs beyond those of [`event`]: name, and the stage that their time belongs to.
const MORE: [(&str, Stage); 12] = [
    ("app.compute", Stage::Client),
    ("app.send", Stage::Network),
    ("app.recv", Stage::Network),
    ("app.sendrecv", Stage::Network),
    ("app.wait", Stage::Network),
    ("app.barrier", Stage::Network),
    ("app.bcast", Stage::Network),
    ("app.reduce", Stage::Network),
    ("app.gather", Stage::Network),
    ("app.view", Stage::Client),
    ("app.read_all", Stage::Network),
    ("app.write_all", Stage::Network),
];
/// The code of the first of them in layer 0.
const MORE_FROM: u8 = 32;

/// Writes the files of a recorded run into a folder: `client0.wtrace`, ..., `server0.wtrace`, ...
///
/// # Errors
/// A file cannot be written.
pub fn write(folder: &Path, workloads: &[Workload], servers: u32, recording: &Recording) -> Result<()> {
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let ranks = || workloads.iter().flat_map(|load| load.nodes.iter().copied());
    let processes: Vec<u32> = ranks().collect();
    let mut first_rank = Vec::new();
    let mut next = 0;
    for load in workloads {
        first_rank.push(next);
        next += load.nodes.len() as u32;
    }
    // Nodes: clients by their number, then servers. Rings: processes of the node.
    let mut files: BTreeMap<(bool, u32), BTreeMap<u32, Vec<Record>>> = BTreeMap::new();
    for client in ranks() {
        files.entry((false, client)).or_default();
    }
    for server in 0..servers {
        files.entry((true, server)).or_default();
    }
    let mut put = |place: (bool, u32), ring: u32, start: u64, end: u64, id: EventId, class: u8, span: Span| {
        let body = Body::Span(Span { dur: end - start, ..span });
        let server = if place.0 { flags::SERVER } else { 0 };
        let record = Record { class, flags: flags::SIMULATED | server, ..Record::new(start, id, body) };
        files.entry(place).or_default().entry(ring).or_default().push(record);
    };
    for span in &recording.commands {
        let load = &workloads[span.app as usize];
        let command = &load.application.programs[span.rank as usize].commands[span.position as usize];
        let (offset, bytes) = extent(command);
        let len = u32::try_from(bytes).unwrap_or(u32::MAX);
        let rank = first_rank[span.app as usize] + span.rank;
        put(
            (false, load.nodes[span.rank as usize]),
            rank,
            span.start,
            span.end,
            event_of(command),
            0,
            Span { off: offset, len, ..Span::default() },
        );
    }
    for span in &recording.disks {
        let id = if span.kind == JobKind::Read { event::DISK_READ } else { event::DISK_WRITE };
        let class = match span.seek {
            Seek::None => class::NO_SEEK,
            Seek::Near => class::NEAR_SEEK,
            Seek::Far => class::FAR_SEEK,
        };
        let len = u32::try_from(span.bytes).unwrap_or(u32::MAX);
        let access = Span { obj: u64::from(span.file) + 1, off: span.offset, len, ..Span::default() };
        put((true, span.server), 0, span.start, span.end, id, class, access);
    }
    for span in &recording.transfers {
        let place = match processes.get(span.process as usize) {
            Some(client) => (false, *client),
            None => (true, span.process - processes.len() as u32),
        };
        let id = if span.sent { event::NET_SEND } else { event::NET_RECEIVE };
        let len = u32::try_from(span.bytes).unwrap_or(u32::MAX);
        put(place, span.process, span.start, span.end, id, 0, Span { len, ..Span::default() });
    }
    for ((is_server, number), rings) in files {
        let name = if is_server { format!("server{number}") } else { format!("client{number}") };
        let server = is_server.then(|| ServerId::data(number as u16).0);
        let path = folder.join(format!("{name}.wtrace"));
        std::fs::write(&path, file(name, server, rings)).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

fn file(node: String, server: Option<u16>, rings: BTreeMap<u32, Vec<Record>>) -> Vec<u8> {
    let header = FileHeader {
        node,
        server,
        process: 1,
        clock: "virtual".into(),
        clock_domain: "simulation".into(),
        anchor: Anchor::default(),
        events: events(),
        machine: String::new(),
    };
    let (mut writer, mut bytes) = FileWriter::begin(&header);
    for (ring, mut records) in rings {
        // As they would have been written: when they were over.
        records.sort_by_key(|record| record.t0 + record.duration());
        let mut first = 0;
        for chunk in records.chunks(BATCH) {
            writer.batch(&Batch { ring, first, records: chunk.iter().map(Record::to_words).collect() }, &mut bytes);
            first += chunk.len() as u64;
        }
    }
    writer.end(&mut bytes);
    bytes
}

/// This program's events and those of simulated programs.
fn events() -> EventTable {
    let more = (0..).zip(MORE).map(|(number, (name, stage))| EventInfo {
        id: EventId::new(0, MORE_FROM + number),
        name: name.to_string(),
        kind: Kind::Span,
        stage,
        parts: Vec::new(),
    });
    // A program calls its I/O servers without a kernel; what they did for it is not recorded request by request.
    let unseen = |info: &EventInfo| EventInfo { stage: if info.id.layer() == 0 { Stage::Unseen } else { info.stage }, ..info.clone() };
    EventTable::from_infos(EventTable::builtin().iter().map(unseen).chain(more))
}

fn event_of(command: &Command) -> EventId {
    let more = |name: &str| {
        let number = MORE.iter().position(|(known, _)| *known == name).expect("a name of the table above");
        EventId::new(0, MORE_FROM + number as u8)
    };
    match command {
        Command::Compute { .. } => more("app.compute"),
        Command::Send { .. } => more("app.send"),
        Command::Recv { .. } => more("app.recv"),
        Command::Sendrecv { .. } => more("app.sendrecv"),
        Command::Wait { .. } => more("app.wait"),
        Command::Barrier { .. } => more("app.barrier"),
        Command::Bcast { .. } => more("app.bcast"),
        Command::Reduce { .. } | Command::Allreduce { .. } => more("app.reduce"),
        Command::Gather { .. } | Command::Allgather { .. } => more("app.gather"),
        Command::FileOpen { .. } => event::APP_OPEN,
        Command::FileClose { .. } => event::APP_CLOSE,
        Command::FileSetView { .. } => more("app.view"),
        Command::FileRead { .. } => event::APP_READ,
        Command::FileWrite { .. } => event::APP_WRITE,
        Command::FileReadAll { .. } => more("app.read_all"),
        Command::FileWriteAll { .. } => more("app.write_all"),
    }
}

/// First byte and number of bytes that a command accesses.
fn extent(command: &Command) -> (u64, u64) {
    match command {
        Command::FileRead { access, .. }
        | Command::FileWrite { access, .. }
        | Command::FileReadAll { access, .. }
        | Command::FileWriteAll { access, .. } => {
            let first = match access {
                Access::Contiguous(extent) => extent.offset,
                Access::View { offset, .. } => *offset,
                Access::List(list) => list.first().map_or(0, |extent| extent.offset),
            };
            (first, Access::bytes(access))
        }
        _ => (0, 0),
    }
}

#[cfg(test)]
mod tests {
    use weft_cluster_model::workloads::Interleaved;
    use weft_cluster_model::{ClusterConfig, Simulation};
    use weft_sched::LayerKind;
    use weft_trace::file::TraceFile;
    use weft_trace::merge::merge;

    use super::*;

    #[test]
    fn files_hold_every_command_every_access_with_its_seek_and_every_byte() {
        let application = Interleaved { ranks: 2, file_bytes: 4 << 20, block_bytes: 64 << 10, writes: true }.individual(Some(4));
        let config = ClusterConfig::thesis(2, 3, LayerKind::Aggregation);
        let (report, recording) = Simulation::new(&config, &application).expect("sound").run_recorded().expect("ends");
        let commands: usize = application.programs.iter().map(|program| program.commands.len()).sum();
        let workloads = [Workload { nodes: vec![0, 1], application }];
        let dir = tempfile::tempdir().expect("a directory");
        write(dir.path(), &workloads, 3, &recording).expect("written");
        let names = ["client0", "client1", "server0", "server1", "server2"];
        let read =
            |name: &str| TraceFile::read(&std::fs::read(dir.path().join(format!("{name}.wtrace"))).expect("is there")).expect("sound");
        let merged = merge(names.map(read).to_vec());
        assert!(merged.nodes.iter().all(|node| node.problems.is_empty()));
        let of = |layer: usize| merged.events.iter().filter(move |event| event.record.event.layer() == layer);
        assert_eq!(of(0).count(), commands);
        let disks = report.disks();
        let classes: Vec<u64> = (1..=3).map(|class| of(7).filter(|event| event.record.class == class).count() as u64).collect();
        assert_eq!(classes, [disks.no_seek, disks.fast, disks.slow]);
        let moved = |id: EventId| -> u64 {
            let spans = merged.events.iter().filter(|event| event.record.event == id);
            spans.map(|event| if let Body::Span(span) = &event.record.body { u64::from(span.len) } else { 0 }).sum()
        };
        assert_eq!((moved(event::NET_RECEIVE), moved(event::NET_SEND)), (report.network_bytes, report.network_bytes));
        assert_eq!(merged.events.iter().map(|event| event.end_ns()).max(), Some(report.end_nanos as i64));
    }
}
