//! One file of a server.

use weft_base::ServerId;
use weft_journal::{MetServer, Superblock};
use weft_meta_server::{Row, each_row, tail_records};
use weft_store::HeaderError;
use weft_store::checkpoint::{CHECKPOINT_HEADER_BYTES, CheckpointError, CheckpointReader, Chunk};
use weft_store::journal::{EndReason, SEGMENT_BYTES_DEFAULT, Scan, scan};
use weft_store::objects::ContainerHeader;

use crate::Report;
use crate::records::{self, Place, note};

/// Fields by which databases and tail are held against one another.
pub(crate) const NEWEST: &str = "newest record";
pub(crate) const FIRST: &str = "first record";

/// What a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreFile {
    /// Whose directory it is.
    Superblock,
    /// A part of the journal.
    Segment,
    /// A checkpoint.
    Checkpoint,
    /// The bytes of all objects.
    Container,
    /// An embedded database of the engines `db` and `dbpf`.
    Database,
    /// Records that are not yet in these.
    Tail,
}

impl StoreFile {
    /// The bytes of the file that are looked at: of a container its header, of the others all.
    pub const CONTAINER_BYTES: usize = weft_store::objects::CONTAINER_HEADER_BYTES;

    /// By the first bytes; `None` for anything else.
    pub fn of(bytes: &[u8]) -> Option<StoreFile> {
        let kinds: [(&[u8], StoreFile); 6] = [
            (b"weft superblock ", StoreFile::Superblock),
            (b"WEFTJSEG", StoreFile::Segment),
            (b"WEFTCKPT", StoreFile::Checkpoint),
            (b"WEFTDATA", StoreFile::Container),
            (b"redb\x1A\x0A", StoreFile::Database),
            (b"WTAL", StoreFile::Tail),
        ];
        kinds.into_iter().find(|(magic, _)| bytes.starts_with(magic)).map(|(_, kind)| kind)
    }

    /// By its name in the folder of a server; `None` for what is no file of a server, or has no
    /// content.
    pub fn of_name(name: &str) -> Option<StoreFile> {
        let numbered = |prefix: &str| name.strip_prefix(prefix).is_some_and(|number| number.parse::<u64>().is_ok());
        match name {
            "superblock" => Some(StoreFile::Superblock),
            "objects" | "contents" => Some(StoreFile::Container),
            "tail" => Some(StoreFile::Tail),
            "metadata.db" | "attributes.db" => Some(StoreFile::Database),
            _ if name.starts_with("keyval-") && name.ends_with(".db") => Some(StoreFile::Database),
            _ if numbered("journal.") => Some(StoreFile::Segment),
            _ if numbered("checkpoint.") => Some(StoreFile::Checkpoint),
            _ => None,
        }
    }
}

/// What a file says. `bytes` is all of it, of a container at least [`StoreFile::CONTAINER_BYTES`];
/// `file_bytes` its size. With `list` every record is told.
pub fn inspect_file(name: &str, kind: StoreFile, bytes: &[u8], file_bytes: u64, list: bool) -> Report {
    match kind {
        StoreFile::Superblock => superblock(name, bytes),
        StoreFile::Segment => segment(name, bytes, list),
        StoreFile::Checkpoint => checkpoint(name, bytes, list),
        StoreFile::Container => container(name, bytes, file_bytes),
        StoreFile::Database => database(name, bytes, list),
        StoreFile::Tail => tail(name, bytes, list),
    }
}

fn database(name: &str, bytes: &[u8], list: bool) -> Report {
    let mut report = Report::new(name, "database of rows", bytes.len() as u64);
    let mut rows = 0u64;
    let read = each_row(bytes, |row| {
        rows += 1;
        let words = match &row {
            Row::Newest(newest) => return report.field(NEWEST, newest),
            Row::Layout(inode) => {
                report.count("layout");
                format!("layout of {inode:?}")
            }
            Row::Change(change) => records::change(&mut report, change),
        };
        if list {
            report.listing.push(words);
        }
    });
    report.field("rows", rows);
    read.map_or_else(|what| report.damaged(None, what), |()| {});
    report
}

fn tail(name: &str, bytes: &[u8], list: bool) -> Report {
    let mut report = Report::new(name, "tail: records that need not be in the databases yet", bytes.len() as u64);
    let (found, end) = tail_records(bytes);
    if let (Some((first, _)), Some((last, _))) = (found.first(), found.last()) {
        report.field(FIRST, first);
        report.field("next record", last.next());
    }
    report.field("frames end at byte", end);
    // What follows may be frames of before, which no longer count, or one that was cut.
    report.field(
        "end",
        if bytes[end..].iter().all(|byte| *byte == 0) {
            "clean: nothing follows"
        } else {
            "older frames, or one that was not written to its end, follow and do not count"
        },
    );
    for (lsn, record) in &found {
        // Only metadata servers have one.
        note(&mut report, ServerId(0), Place::Journal(*lsn), 0, record, list);
    }
    report
}

fn superblock(name: &str, bytes: &[u8]) -> Report {
    let mut report = Report::new(name, "superblock", bytes.len() as u64);
    if let Some(why) = Superblock::of_another_format(bytes) {
        report.not_read(why);
        return report;
    }
    let superblock = match Superblock::parse(bytes) {
        Ok(superblock) => superblock,
        Err(what) => {
            report.damaged(None, what);
            return report;
        }
    };
    report.field("file system", superblock.fs_id);
    report.field("server", superblock.server);
    report.field("engine", &superblock.engine);
    report.field("starts", superblock.boot);
    report.field("boot id of the machine at the last start", format_args!("{:016x}", superblock.boot_id));
    if superblock.has_stopped() {
        report.field("the last life", "ended in order");
    }
    report.field("birth", format_args!("{:016x}", superblock.birth));
    report.field("epoch of the cluster map", superblock.map.epoch);
    for entry in superblock.map.servers() {
        report.field("server of the map", format_args!("{} {} {}", entry.id, entry.name, entry.address));
    }
    for generation in &superblock.map.generations {
        let data: Vec<String> = generation.data.iter().map(|id| id.to_string()).collect();
        report.field("generation", format_args!("{} on {}", generation.id, data.join(", ")));
    }
    for (server, MetServer { birth, durable_lsn }) in &superblock.met {
        let reached = if *durable_lsn > 0 { format!(", whose journal reached {durable_lsn}") } else { String::new() };
        report.field("knows", format_args!("{server} of birth {birth:016x}{reached}"));
    }
    for line in superblock.features.lines() {
        report.field("feature", line);
    }
    for line in &superblock.others {
        report.field("line of a newer weft", line);
    }
    if let Err(what) = superblock.features.check_writable() {
        report.field("this weft does not serve it", what);
    }
    report
}

fn segment(name: &str, bytes: &[u8], list: bool) -> Report {
    let mut report = Report::new(name, "journal segment", bytes.len() as u64);
    let found = match scan(bytes) {
        Ok(found) => found,
        Err(error) => {
            header_error(&mut report, error);
            return report;
        }
    };
    let Scan { header, end_offset, next_lsn, end, is_marked, .. } = &found;
    report.field("file system", header.fs_id);
    report.field("server", header.server_id);
    report.field("sequence", header.sequence);
    report.field("salt", format_args!("{:08x}", header.salt));
    report.field("first record", header.first_lsn);
    report.field("next record", next_lsn);
    report.field("frames end at byte", end_offset);
    report.field("end", if *is_marked { "marked: everything is on stable storage" } else { end_in_words(end) });
    match end {
        EndReason::DamageInside { offset, durable_lsn } => {
            report.damaged(*offset as u64, format_args!("acknowledged records from {next_lsn} to {durable_lsn} are unreadable"));
        }
        EndReason::OutOfOrder { offset } => report.damaged(*offset as u64, "a frame repeats numbers that were used"),
        // A segment has all its bytes before it is begun, and behind a mark there was nothing.
        _ if !is_marked && !(bytes.len() as u64).is_multiple_of(SEGMENT_BYTES_DEFAULT) => {
            report.damaged(bytes.len() as u64, format_args!("the file was cut here: what it held from byte {end_offset} on is lost"));
        }
        EndReason::Clean | EndReason::TornFrame { .. } | EndReason::LostUnsynced { .. } => {}
    }
    let base = bytes.as_ptr() as usize;
    for (lsn, record) in found.records() {
        let offset = (record.as_ptr() as usize - base) as u64;
        note(&mut report, header.server_id, Place::Journal(lsn), offset, record, list);
    }
    report
}

/// What another version wrote is no damage.
fn header_error(report: &mut Report, error: HeaderError) {
    match error {
        HeaderError::Version { .. } | HeaderError::Newer(_) => report.not_read(error),
        HeaderError::TooShort | HeaderError::OtherKind | HeaderError::Damaged => report.damaged(0, error),
    }
}

fn end_in_words(end: &EndReason) -> &'static str {
    match end {
        EndReason::Clean => "clean: nothing of this segment follows",
        EndReason::TornFrame { .. } => "torn: the last frame was not written to its end",
        EndReason::LostUnsynced { .. } => "frames are missing that were not promised to survive a power cut",
        EndReason::DamageInside { .. } => "damaged",
        EndReason::OutOfOrder { .. } => "out of order",
    }
}

/// Reads a checkpoint; `chunk` gets each chunk with its offset.
pub(crate) fn read_checkpoint(bytes: &[u8], report: &mut Report, mut chunk: impl FnMut(&mut Report, ServerId, u64, &Chunk)) {
    const PIECE_BYTES: usize = 4 << 20;
    let mut reader = CheckpointReader::new();
    for piece in bytes.chunks(PIECE_BYTES) {
        reader.push(piece);
        loop {
            // The first chunk comes behind the header.
            let offset = reader.offset().max(CHECKPOINT_HEADER_BYTES as u64);
            match reader.next_chunk() {
                Ok(Some(found)) => {
                    let server = reader.header().map_or(ServerId(0), |header| header.server_id);
                    chunk(report, server, offset, &found);
                }
                Ok(None) => break,
                Err(error @ (CheckpointError::Version(_) | CheckpointError::Newer(_))) => return report.not_read(error),
                Err(error) => return report.damaged(reader.offset(), error),
            }
        }
    }
    let offset = reader.offset();
    match reader.finish() {
        Ok(end) => {
            report.field("file system", end.header.fs_id);
            report.field("server", end.header.server_id);
            report.field("generation", end.header.generation);
            report.field("replay from", end.header.start_lsn);
            report.field("journal must reach", end.end_lsn);
            report.field("chunks", end.chunk_count);
            report.field("records", end.record_count);
        }
        Err(error) => report.damaged(offset, error),
    }
}

fn checkpoint(name: &str, bytes: &[u8], list: bool) -> Report {
    let mut report = Report::new(name, "checkpoint", bytes.len() as u64);
    read_checkpoint(bytes, &mut report, |report, server, offset, chunk| {
        for record in chunk.records() {
            note(report, server, Place::Checkpoint, offset, record, list);
        }
    });
    report
}

fn container(name: &str, bytes: &[u8], file_bytes: u64) -> Report {
    let mut report = Report::new(name, "container", file_bytes);
    match ContainerHeader::decode(bytes) {
        Ok(header) => {
            report.field("file system", header.fs_id);
            report.field("server", header.server_id);
            report.field("blocks", file_bytes / weft_store::objects::BLOCK_BYTES);
        }
        Err(error) => header_error(&mut report, error),
    }
    report
}
