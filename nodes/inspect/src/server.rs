//! All files of a server: each for itself, and what only all of them together say.

use std::collections::BTreeMap;

use weft_base::{FsId, Handle, ServerId, ServerRole};
use weft_data_server::object_table;
use weft_journal::{Found, Superblock};
use weft_namespace::{Change, Record};
use weft_store::Lsn;
use weft_store::checkpoint::CheckpointReader;
use weft_store::journal::{Replay, SegmentHeader, first_segment_for};
use weft_store::objects::{BLOCK_BYTES, BlockRun, ContainerHeader};

use crate::files::{FIRST, NEWEST, read_checkpoint};
use crate::{Report, StoreFile, inspect_file};

/// Gives the files of a server.
pub trait ServerFiles {
    /// Why a file could not be read.
    type Error: std::fmt::Display;

    /// Names of all files.
    fn names(&self) -> Vec<String>;

    /// Size of a file in bytes.
    ///
    /// # Errors
    /// Of the disk.
    fn len(&self, name: &str) -> Result<u64, Self::Error>;

    /// The first `bytes` bytes of a file, or all if it is shorter.
    ///
    /// # Errors
    /// Of the disk.
    fn read(&self, name: &str, bytes: u64) -> Result<Vec<u8>, Self::Error>;
}

/// What the files of a server say, in the order in which a start reads them; at last, for a data
/// server, its object table.
pub fn inspect_server(files: &impl ServerFiles, list: bool) -> Vec<Report> {
    let mut known: Vec<(StoreFile, u64, String)> = Vec::new();
    for name in files.names() {
        if let Some(kind) = StoreFile::of_name(&name) {
            let number = name.rsplit('.').next().and_then(|number| number.parse().ok()).unwrap_or(0);
            known.push((kind, number, name));
        }
    }
    use StoreFile::{Checkpoint, Container, Database, Segment, Superblock, Tail};
    let order = |kind: StoreFile| [Superblock, Container, Checkpoint, Segment, Database, Tail].iter().position(|k| *k == kind);
    known.sort_by_cached_key(|(kind, number, name)| (order(*kind), *number, name.clone()));
    let mut reports = Vec::new();
    let mut history = History::default();
    for (kind, number, name) in known {
        let looked_at = if kind == StoreFile::Container { StoreFile::CONTAINER_BYTES as u64 } else { u64::MAX };
        match files.len(&name).and_then(|len| Ok((len, files.read(&name, looked_at)?))) {
            Ok((len, bytes)) => {
                reports.push(inspect_file(&name, kind, &bytes, len, list));
                if kind == StoreFile::Container {
                    history.add_container(name, len, &bytes, &mut reports);
                    continue;
                }
                // Of a directory of another version nothing can be said.
                if kind == StoreFile::Superblock && reports[0].not_read.is_some() {
                    return reports;
                }
                history.add(kind, number, bytes);
            }
            Err(error) => {
                let mut report = Report::new(&name, "unreadable", 0);
                report.damaged(None, error);
                reports.push(report);
            }
        }
    }
    if reports.iter().any(|report| report.not_read.is_some()) {
        return reports;
    }
    if !reports.iter().any(|report| report.kind == "superblock") {
        let mut report = Report::new("superblock", "superblock", 0);
        report.damaged(None, "there is none: no server was ever made here, or its start was interrupted (superblock.new, superblock.old)");
        reports.insert(0, report);
    }
    let main = match history.engine.as_deref().filter(|_| history.server.is_some_and(|server| server.role() == ServerRole::Meta)) {
        Some("db") => Some("metadata.db"),
        Some("dbpf") => Some("attributes.db"),
        _ => None,
    };
    match main {
        Some(main) => reports.push(of_rows(&reports, main)),
        None => reports.extend(history.finish(list)),
    }
    reports
}

/// What the files of the engines `db` and `dbpf` say together: whether a start finds all records.
fn of_rows(reports: &[Report], main: &str) -> Report {
    let mut report = Report::new("(all files)", "rows as a whole", 0);
    let number = |of: &Report, name: &str| -> Option<u64> {
        of.fields.iter().find(|(field, _)| field == name)?.1.trim_start_matches("lsn").parse().ok()
    };
    let (database, tail) = (reports.iter().find(|one| one.file == main), reports.iter().find(|one| one.file == "tail"));
    let newest = database.and_then(|database| number(database, NEWEST));
    match (database, tail) {
        (None, _) => report.damaged(None, format!("{main} is missing")),
        (_, None) => report.damaged(None, "tail is missing"),
        (_, Some(tail)) => {
            let (first, next) = (number(tail, FIRST), number(tail, "next record"));
            let rows = newest.unwrap_or(0);
            report.field("next record", Lsn(next.unwrap_or(0).max(rows + 1)));
            if let Some(first) = first.filter(|first| *first > rows + 1) {
                report.damaged(None, format!("records from {} to {} are neither in {main} nor in the tail", Lsn(rows + 1), Lsn(first - 1)));
            }
        }
    }
    report
}

/// What a start would read: the newest checkpoint that is whole, and the journal from there on.
#[derive(Default)]
struct History {
    server: Option<ServerId>,
    fs_id: Option<FsId>,
    engine: Option<String>,
    /// Name and length of the container.
    container: Option<(String, u64)>,
    checkpoint: Option<Vec<u8>>,
    segments: Vec<(u64, Vec<u8>)>,
}

impl History {
    fn add(&mut self, kind: StoreFile, number: u64, bytes: Vec<u8>) {
        match kind {
            StoreFile::Superblock => {
                let superblock = Superblock::parse(&bytes).ok();
                self.fs_id = superblock.as_ref().map(|superblock| superblock.fs_id);
                (self.server, self.engine) = superblock.map(|superblock| (superblock.server, superblock.engine)).unzip();
            }
            // Generations ascend, so the newest one stays.
            StoreFile::Checkpoint if is_whole(&bytes) => self.checkpoint = Some(bytes),
            StoreFile::Segment => self.segments.push((number, bytes)),
            StoreFile::Checkpoint | StoreFile::Container | StoreFile::Database | StoreFile::Tail => {}
        }
    }

    /// A container, of which the last report is.
    fn add_container(&mut self, name: String, len: u64, bytes: &[u8], reports: &mut [Report]) {
        let (Some(server), Some(fs_id), Some(report)) = (self.server, self.fs_id, reports.last_mut()) else { return };
        if let Ok(header) = ContainerHeader::decode(bytes)
            && (header.fs_id, header.server_id) != (fs_id, server)
        {
            report.damaged(0, format!("it belongs to {} of file system {}", header.server_id, header.fs_id));
        }
        self.container = Some((name, len));
    }

    /// Whether the container has all that lies in it: so many bytes, and the last block may have
    /// fewer if it is not filled.
    fn check_container(&self, name: &str, end: u64, is_filled: bool, report: &mut Report) {
        let least = if is_filled { end } else { end.saturating_sub(BLOCK_BYTES - 1) };
        match &self.container {
            Some((_, len)) if *len >= least => {}
            Some((name, len)) => report.damaged(*len, format!("{name} ends here, and what lies in it at {end}")),
            None => report.damaged(None, format!("{name} is missing")),
        }
    }

    /// The journal as a whole, and the table.
    fn finish(self, list: bool) -> Option<Report> {
        let server = self.server?;
        let is_data = server.role() == ServerRole::Data;
        let mut report = Report::new("(all files)", if is_data { "object table" } else { "journal as a whole" }, 0);
        let mut found: Vec<(Option<Lsn>, Vec<u8>)> = Vec::new();
        let mut ignored = Report::default();
        if let Some(bytes) = &self.checkpoint {
            read_checkpoint(bytes, &mut ignored, |_, _, _, chunk| found.extend(chunk.records().map(|record| (None, record.to_vec()))));
        }
        let end = self.checkpoint.as_deref().and_then(end_of);
        let (start_lsn, end_lsn) = end.unwrap_or((Lsn::FIRST, Lsn::NONE));
        match self.replay(server, start_lsn, end_lsn, |lsn, bytes| found.push((Some(lsn), bytes.to_vec()))) {
            Ok(next) => report.field("next record", next),
            Err(what) => report.damaged(None, what),
        }
        if !is_data {
            let end = contents(&found, &mut report);
            if end > 0 {
                self.check_container("contents", end, true, &mut report);
            }
            return Some(report);
        }
        let each = found.iter().map(|(lsn, bytes)| match lsn {
            Some(lsn) => Found::Journal(*lsn, bytes),
            None => Found::Checkpoint(bytes),
        });
        match object_table(each) {
            Ok(table) => {
                report.field("objects", table.object_count());
                report.field("bytes in use", table.used_bytes());
                let end = table.usage().high_water_bytes;
                report.field("end of the container", end);
                self.check_container("objects", end, false, &mut report);
                if list {
                    for (key, stat) in table.iter() {
                        let extents: Vec<String> =
                            table.extents(key).iter().map(|at| format!("{}+{} at {}", at.local_offset, at.len, at.disk_offset)).collect();
                        report.listing.push(format!("{key:?}: {stat:?}; {}", extents.join(", ")));
                    }
                }
            }
            Err(what) => report.damaged(None, what),
        }
        Some(report)
    }

    fn replay(&self, server: ServerId, start_lsn: Lsn, end_lsn: Lsn, mut each: impl FnMut(Lsn, &[u8])) -> Result<Lsn, String> {
        let headers: Vec<SegmentHeader> = self.segments.iter().filter_map(|(_, bytes)| SegmentHeader::decode(bytes).ok()).collect();
        let Some(fs_id) = headers.first().map(|header| header.fs_id) else { return Err("there is no journal".into()) };
        let first = first_segment_for(&headers, start_lsn).map_or(0, |at| headers[at].sequence);
        let mut replay = Replay::new(fs_id, server, start_lsn);
        for (sequence, bytes) in self.segments.iter().filter(|(sequence, _)| *sequence >= first) {
            for (lsn, record) in replay.segment(*sequence, bytes).map_err(|error| error.to_string())? {
                each(lsn, record);
            }
        }
        replay.finish(end_lsn).map(|end| end.next_lsn).map_err(|error| error.to_string())
    }
}

/// Where files have contents beside their inodes, and whether any block has two owners. Returns
/// where they end in their container.
fn contents(found: &[(Option<Lsn>, Vec<u8>)], report: &mut Report) -> u64 {
    let mut runs: BTreeMap<Handle, BlockRun> = BTreeMap::new();
    for (_, bytes) in found {
        // What is no record was told with its file.
        let Ok(record) = Record::decode(bytes.clone().into()) else { continue };
        for change in record.changes {
            match change {
                Change::PutInode { handle, inode } => match inode.content_run() {
                    Some(run) => drop(runs.insert(handle, run)),
                    None => drop(runs.remove(&handle)),
                },
                Change::DeleteInode { handle } => drop(runs.remove(&handle)),
                _ => {}
            }
        }
    }
    if runs.is_empty() {
        return 0;
    }
    let mut used: Vec<(BlockRun, Handle)> = runs.into_iter().map(|(handle, run)| (run, handle)).collect();
    used.sort_unstable();
    report.field("contents beside inodes", used.len());
    report.field("blocks of contents", used.iter().map(|(run, _)| run.blocks).sum::<u64>());
    let end = used.last().map_or(0, |(run, _)| run.end() * BLOCK_BYTES);
    report.field("end of the contents", end);
    for pair in used.windows(2) {
        if pair[0].0.end() > pair[1].0.start {
            report.damaged(None, format!("block {} is of the contents of {} and of {}", pair[1].0.start, pair[0].1, pair[1].1));
        }
    }
    end
}

fn is_whole(checkpoint: &[u8]) -> bool {
    end_of(checkpoint).is_some()
}

/// First and last record of the journal that a checkpoint needs.
fn end_of(checkpoint: &[u8]) -> Option<(Lsn, Lsn)> {
    let mut reader = CheckpointReader::new();
    reader.push(checkpoint);
    while reader.next_chunk().ok()?.is_some() {}
    let end = reader.finish().ok()?;
    Some((end.header.start_lsn, end.end_lsn))
}

#[cfg(test)]
mod tests {
    use weft_base::{ClusterMap, DataTime, FileKind, Layout, MODE_INLINE, ServerEntry, WallTime};
    use weft_namespace::Inode;
    use weft_store::checkpoint::{CheckpointHeader, CheckpointWriter};
    use weft_store::journal::{FrameBuilder, SEGMENT_BYTES_DEFAULT};
    use weft_store::objects::{ExtentPut, ObjectKey, ObjectRecord};

    use super::*;

    const FS: FsId = FsId(7);

    impl ServerFiles for BTreeMap<String, Vec<u8>> {
        type Error = String;
        fn names(&self) -> Vec<String> {
            self.keys().cloned().collect()
        }
        fn len(&self, name: &str) -> Result<u64, String> {
            Ok(self[name].len() as u64)
        }
        fn read(&self, name: &str, bytes: u64) -> Result<Vec<u8>, String> {
            let all = &self[name];
            Ok(all[..all.len().min(usize::try_from(bytes).unwrap_or(usize::MAX))].to_vec())
        }
    }

    fn put(handle: u64, block: u64) -> ObjectRecord {
        ObjectRecord::Put {
            key: ObjectKey { handle: Handle(handle), index: 0 },
            size_bytes: 100,
            mtime: DataTime { epoch: 0, at: WallTime(5) },
            truncate_epoch: 0,
            extents: vec![ExtentPut { local_offset: 0, disk_offset: block * 4096, len: 100 }],
        }
    }

    /// The files of a data server: a checkpoint with one object, a journal with two more, one of
    /// them removed again.
    fn files() -> BTreeMap<String, Vec<u8>> {
        let server = ServerId::data(0);
        let entry = |id: ServerId, name: &str| ServerEntry { id, name: name.into(), address: String::new() };
        let map = ClusterMap::of(FS, "weft", [entry(ServerId(0), "meta0"), entry(server, "data0")], 1 << 20).founded(1);
        let superblock = Superblock::new(&map, server, "journal", 3, 9);
        let header = CheckpointHeader { fs_id: FS, server_id: server, generation: 1, start_lsn: Lsn(1) };
        let mut checkpoint = CheckpointWriter::new(header);
        checkpoint.push(&put(1, 1).to_vec());
        let segment = SegmentHeader { fs_id: FS, server_id: server, salt: 5, sequence: 1, first_lsn: Lsn(1) };
        let mut frames = FrameBuilder::new(Lsn(1), 0);
        for record in [put(2, 2), put(3, 3), ObjectRecord::Remove { key: ObjectKey { handle: Handle(3), index: 0 } }] {
            frames.push(&[&[1], &record.to_vec()[..]].concat());
        }
        let mut journal = [&segment.encode()[..], &frames.finish(&segment, Lsn::NONE)].concat();
        frames.push(&[2, 3, 0, 0, 0, 0, 0, 0, 0]);
        journal.extend_from_slice(&frames.finish(&segment, Lsn(3)));
        journal.resize(SEGMENT_BYTES_DEFAULT as usize, 0);
        let container = [&ContainerHeader { fs_id: FS, server_id: server }.encode()[..], &[0; 3 * 4096]].concat();
        [
            ("superblock", superblock.to_text().into_bytes()),
            ("checkpoint.1", checkpoint.finish(Lsn(1)).to_vec()),
            ("journal.1", journal),
            ("objects", container),
            ("spare.2", vec![0; 100]),
        ]
        .map(|(name, bytes)| (name.to_string(), bytes))
        .into()
    }

    #[test]
    fn a_whole_server_is_told() {
        let reports = inspect_server(&files(), true);
        let kinds: Vec<&str> = reports.iter().map(|report| report.kind.as_str()).collect();
        assert_eq!(kinds, ["superblock", "container", "checkpoint", "journal segment", "object table"]);
        assert!(reports.iter().all(Report::is_whole), "{reports:?}");
        let text: String = reports.iter().map(Report::to_string).collect();
        for words in [
            "server: data0",
            "server of the map: meta0 meta0",
            "2 x put",
            "1 x mark",
            "1 x remove",
            "next record: lsn5",
            "objects: 2",
            "0+100 at 8192",
        ] {
            assert!(text.contains(words), "{words} in\n{text}");
        }
        assert!(serde_json::to_string(&reports).unwrap().contains("\"kind\":\"object table\""));
    }

    #[test]
    fn contents_with_a_block_in_common_are_told() {
        let layout = Layout { stripe_bytes: 65536, width: 1, first: 0, generation: 1 };
        let put = |handle, block, size| {
            let inode = Inode::new(FileKind::File, 0o644, 0, 0, layout, WallTime(1));
            let inode = Inode { mode: inode.mode | MODE_INLINE, size, of_kind: block, ..inode };
            let mut bytes = Vec::new();
            weft_namespace::encode(&[Change::PutInode { handle: Handle(handle), inode }], &mut bytes);
            (None, bytes)
        };
        let told = |found: &[(Option<Lsn>, Vec<u8>)]| {
            let mut report = Report::default();
            contents(found, &mut report);
            (report.is_whole(), report.to_string())
        };
        let (is_whole, text) = told(&[put(7, 1, 4097), put(8, 3, 1), put(7, 4, 9000), put(9, 1, 0)]);
        assert!(is_whole && text.contains("contents beside inodes: 2") && text.contains("blocks of contents: 4"), "{text}");
        let (is_whole, text) = told(&[put(7, 1, 4097), put(8, 2, 1)]);
        assert!(!is_whole && text.contains("block 2 is of the contents of"), "{text}");
        assert_eq!(told(&[put(9, 1, 0)]), (true, told(&[]).1));
    }

    #[test]
    fn what_another_version_wrote_is_no_damage() {
        let mut other = files();
        let superblock = String::from_utf8(other["superblock"].clone()).unwrap();
        other.insert("superblock".into(), superblock.replacen("superblock 3", "superblock 99", 1).into_bytes());
        let reports = inspect_server(&other, false);
        assert!(reports.len() == 1 && reports[0].damage.is_empty() && !reports[0].is_whole(), "{reports:?}");
        assert!(reports[0].to_string().contains("NOT READ: the directory has format 99, and this weft reads format"));
        // A journal of a later one: the version, and a checksum over it.
        let mut other = files();
        let journal = other.get_mut("journal.1").unwrap();
        journal[8..12].copy_from_slice(&99u32.to_le_bytes());
        let crc = weft_base::crc32c(&journal[..4092]);
        journal[4092..4096].copy_from_slice(&crc.to_le_bytes());
        let reports = inspect_server(&other, false);
        let text: String = reports.iter().map(Report::to_string).collect();
        assert!(text.contains("NOT READ: it has format 99") && !text.contains("DAMAGE"), "{text}");
    }

    #[test]
    fn damage_is_told_with_its_place() {
        let mut damaged = files();
        damaged.get_mut("journal.1").unwrap()[4096 + 60] ^= 1;
        let reports = inspect_server(&damaged, false);
        let journal = reports.iter().find(|report| report.file == "journal.1").unwrap();
        assert_eq!(journal.damage[0].offset, Some(4096));
        assert!(journal.damage[0].what.contains("records from lsn1 to lsn3"), "{journal}");
        assert!(reports.last().unwrap().to_string().contains("damaged at byte 4096"));
        let mut damaged = files();
        damaged.get_mut("checkpoint.1").unwrap()[60] ^= 1;
        let reports = inspect_server(&damaged, false);
        assert_eq!(reports[2].damage[0].offset, Some(48));
        let mut damaged = files();
        damaged.get_mut("superblock").unwrap()[30] ^= 1;
        damaged.get_mut("objects").unwrap()[30] ^= 1;
        let reports = inspect_server(&damaged, false);
        assert!(!reports[0].is_whole() && reports[1].to_string().contains("DAMAGE at byte 0"));
        let told = |files: &BTreeMap<String, Vec<u8>>| inspect_server(files, false).iter().map(Report::to_string).collect::<String>();
        let mut short = files();
        short.get_mut("journal.1").unwrap().truncate(8192);
        assert!(told(&short).contains("DAMAGE at byte 8192: the file was cut here"), "{}", told(&short));
        let mut cut = files();
        cut.get_mut("objects").unwrap().truncate(8192);
        assert!(told(&cut).contains("DAMAGE at byte 8192: objects ends here"), "{}", told(&cut));
        cut.remove("objects");
        assert!(told(&cut).contains("objects is missing"));
        let mut swapped = files();
        let other = ContainerHeader { fs_id: FS, server_id: ServerId::data(1) }.encode();
        swapped.get_mut("objects").unwrap()[..other.len()].copy_from_slice(&other);
        assert!(told(&swapped).contains("it belongs to data1 of file system"), "{}", told(&swapped));
        damaged.remove("superblock");
        assert!(inspect_server(&damaged, false)[0].to_string().contains("there is none"));
    }
}
