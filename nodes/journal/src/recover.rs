//! Recovery: the newest checkpoint, then every journal record behind it, with every check that the
//! formats offer.

use weft_base::Status;
use weft_rt::{Disk, FileId};
use weft_store::Lsn;
use weft_store::checkpoint::{CheckpointEnd, CheckpointError, CheckpointHeader, CheckpointReader};
use weft_store::journal::{
    EndReason, FRAME_ALIGN, FrameAt, Replay, ReplayError, SEGMENT_HEADER_BYTES, SegmentHeader, first_segment_for, frame_at,
};

use crate::journal::{End, Segment, Spare, Start};
use crate::{Journal, JournalConfig, JournalError, names};

/// Bytes of a checkpoint or a segment whose records are handed out at once; more only for a longer
/// frame.
const READ_BYTES: u64 = 1 << 20;

/// A record that recovery hands out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found<'a> {
    /// A part of the state as the newest checkpoint has it.
    Checkpoint(&'a [u8]),
    /// A record of the journal, in order.
    Journal(Lsn, &'a [u8]),
}

/// Takes what a recovery finds.
pub trait TakesFound {
    /// The next record.
    ///
    /// # Errors
    /// It is not understood.
    fn take(&mut self, found: Found<'_>) -> Result<(), Status>;

    /// A piece of the journal of about a MiB ends: what records had in them for other files may go
    /// there. All of the journal is known to be whole by then.
    ///
    /// # Errors
    /// The disk failed.
    fn piece_ends(&mut self) -> impl Future<Output = Result<(), JournalError>> {
        async { Ok(()) }
    }
}

impl<F: FnMut(Found<'_>) -> Result<(), Status>> TakesFound for F {
    fn take(&mut self, found: Found<'_>) -> Result<(), Status> {
        self(found)
    }
}

/// What recovery did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovered {
    /// Records from the checkpoint.
    pub checkpoint_records: u64,
    /// Records replayed from the journal.
    pub journal_records: u64,
    /// The newest record that was found.
    pub last_lsn: Lsn,
    /// Given if the journal did not end cleanly: what was found at its end, for the log. No promise
    /// was broken.
    pub note: Option<String>,
}

impl<D: Disk> Journal<D> {
    /// Reads the directory and hands every record to `taker`, first those of the checkpoint, then
    /// those of the journal in order. The journal goes on where it ends. It is checked as a whole
    /// before the first record of it is handed out, and before a state grows in memory: for that a
    /// segment is read at once.
    ///
    /// # Errors
    /// [`JournalError::Damaged`] if records that were promised to be there are not, or if `taker`
    /// refuses one; [`JournalError::Disk`].
    pub async fn recover(disk: &D, config: JournalConfig, mut taker: impl TakesFound) -> Result<(Journal<D>, Recovered), JournalError> {
        let listed = disk.list().await.map_err(JournalError::during("list the server's directory"))?;
        if listed.iter().any(|name| name == names::CHECKPOINT_UNFINISHED) {
            let failed = JournalError::during("remove an unfinished checkpoint");
            disk.remove(names::CHECKPOINT_UNFINISHED).await.map_err(failed)?;
        }
        let generation = names::numbers(&listed, "checkpoint").last().copied();
        let start_lsn = match generation {
            Some(generation) => start_of_checkpoint(disk, generation, &config).await?,
            None => Lsn::FIRST,
        };
        let segments = find_segments(disk, &names::numbers(&listed, "journal")).await?;
        if segments.is_empty() {
            return Err(JournalError::Damaged("the journal is missing".into()));
        }
        let headers: Vec<SegmentHeader> = segments.iter().filter_map(|segment| segment.header).collect();
        if headers.is_empty() {
            let name = names::segment(segments[0].sequence);
            return Err(JournalError::Damaged(format!("{name} has no header, nor has any other segment: the journal is lost")));
        }
        let first_needed = first_segment_for(&headers, start_lsn).map_or(0, |index| headers[index].sequence);

        let mut replay = Replay::new(config.fs_id, config.server, start_lsn);
        let mut newest_bytes = 0;
        let mut whole = Vec::new();
        for segment in segments.iter().filter(|segment| segment.sequence >= first_needed) {
            let name = names::segment(segment.sequence);
            // What a crash left in the page cache must be on the disk before anything may follow
            // it.
            disk.sync(segment.file).await.map_err(JournalError::during(format!("sync {name}")))?;
            let image = read_all(disk, segment.file, &name).await?;
            // A segment is allocated before it gets its name. What a power cut leaves may be
            // shorter.
            if config.same_boot && image.len() < SEGMENT_HEADER_BYTES {
                let bytes = image.len();
                return Err(JournalError::Damaged(format!("{name} was cut to {bytes} bytes: what it held is lost, without a power cut")));
            }
            let has_records = replay.segment(segment.sequence, &image).map_err(damaged)?.next().is_some();
            if let (Some(header), Some((_, end))) = (segment.header, replay.last_end()) {
                newest_bytes = image.len() as u64;
                whole.extend(has_records.then_some((segment.file, header, end)));
            }
        }
        let (checkpoint, checkpoint_bytes) = match generation {
            Some(generation) => read_checkpoint(disk, generation, &config, &mut taker).await.map(|(end, bytes)| (Some(end), bytes))?,
            None => (None, 0),
        };
        let end = replay.finish(checkpoint.map_or(Lsn::NONE, |end| end.end_lsn)).map_err(damaged)?;
        if let (true, EndReason::LostUnsynced { offset, later_lsn }) = (config.same_boot, end.end) {
            let name = headers.last().map_or_else(String::new, |header| names::segment(header.sequence));
            return Err(JournalError::Damaged(format!(
                "{name} is damaged at byte {offset}: records up to {later_lsn} are unreadable, although there was no power cut"
            )));
        }
        if let Some((sequence, offset)) = end.last_end {
            // The sync of its header, which frames follow, brings the length of a file to the disk.
            let is_begun = config.same_boot || newest_bytes > SEGMENT_HEADER_BYTES as u64;
            // Behind a mark nothing was.
            if is_begun && !end.is_marked && !config.is_segment_size(newest_bytes) {
                let name = names::segment(sequence);
                return Err(JournalError::Damaged(format!(
                    "{name} was cut to {newest_bytes} bytes: what it held from byte {offset} on is lost"
                )));
            }
        }

        let (mut journal_records, mut bytes) = (0, 0);
        for (file, header, end) in whole {
            let (records, record_bytes) = hand_out(disk, file, &header, end, start_lsn, &mut taker).await?;
            (journal_records, bytes) = (journal_records + records, bytes + record_bytes);
        }

        let mut spares = take_spares(disk, &names::numbers(&listed, "spare"), &config).await?;
        let mut begun = Vec::new();
        for segment in &segments {
            match segment.header {
                Some(header) => begun.push(Segment { header, file: segment.file }),
                None => spares.extend(take_unbegun(disk, segment, &listed, &config).await?),
            }
        }
        give_back(disk, &mut spares, config.segment_bytes).await?;
        let newest = begun.last().map(|newest| newest.header.sequence);
        // A file that somebody has cut short may end within a frame; nothing follows that.
        let is_aligned = newest_bytes.is_multiple_of(FRAME_ALIGN as u64);
        let start = Start {
            next_lsn: end.next_lsn,
            sequence: end.next_sequence,
            end: end.last_end.filter(|(sequence, _)| newest == Some(*sequence) && is_aligned).map(|(_, offset)| End {
                offset,
                file_bytes: newest_bytes,
                is_marked: end.is_marked,
            }),
            segments: begun,
            spares,
            generation: checkpoint.map_or(0, |end| end.header.generation),
            checkpoint_bytes,
            bytes_since_checkpoint: bytes,
        };
        let journal = Journal::start(disk, config, start).await?;
        journal.drop_segments_before(start_lsn).await?;
        for generation in names::numbers(&listed, "checkpoint").into_iter().rev().skip(1) {
            let name = names::checkpoint(generation);
            disk.remove(&name).await.map_err(JournalError::during(format!("remove {name}")))?;
        }
        let recovered = Recovered {
            checkpoint_records: checkpoint.map_or(0, |end| end.record_count),
            journal_records,
            last_lsn: end.next_lsn.prev(),
            note: note(end.end),
        };
        Ok((journal, recovered))
    }
}

/// With the name of the file, for whoever must look at it.
fn damaged(error: ReplayError) -> JournalError {
    use ReplayError::*;
    match error {
        Foreign { sequence, .. } | Header { sequence, .. } | Gap { sequence, .. } | Damage { sequence, .. } => {
            JournalError::Damaged(format!("{}: {error}", names::segment(sequence)))
        }
        MissingTail { .. } => JournalError::Damaged(error.to_string()),
    }
}

fn note(end: EndReason) -> Option<String> {
    match end {
        EndReason::Clean => None,
        EndReason::TornFrame { offset } => Some(format!("the journal ends with a torn write at byte {offset} of its last segment")),
        EndReason::LostUnsynced { offset, later_lsn } => {
            Some(format!("a power cut lost unsynced records from byte {offset} of the last segment on, up to {later_lsn}"))
        }
        // The replay has refused these.
        EndReason::DamageInside { .. } | EndReason::OutOfOrder { .. } => Some("damage".into()),
    }
}

/// A file that is named like a segment.
struct FoundSegment {
    sequence: u64,
    file: FileId,
    /// `None` if this life of the file was never begun.
    header: Option<SegmentHeader>,
}

async fn find_segments<D: Disk>(disk: &D, sequences: &[u64]) -> Result<Vec<FoundSegment>, JournalError> {
    let mut found = Vec::new();
    for sequence in sequences {
        let name = names::segment(*sequence);
        let failed = || JournalError::during(format!("read {name}"));
        let file = disk.open(&name, false).await.map_err(failed())?;
        let block = disk.read(file, 0, SEGMENT_HEADER_BYTES as u64).await.map_err(failed())?.to_bytes();
        let header = SegmentHeader::decode(&block).ok().filter(|header| header.sequence == *sequence);
        found.push(FoundSegment { sequence: *sequence, file, header });
    }
    Ok(found)
}

/// Allocated files that are as large as a segment may be; others are removed.
async fn take_spares<D: Disk>(disk: &D, numbers: &[u64], config: &JournalConfig) -> Result<Vec<Spare>, JournalError> {
    let mut spares = Vec::new();
    for number in numbers {
        let name = names::spare(*number);
        let failed = || JournalError::during(format!("look at {name}"));
        let file = disk.open(&name, false).await.map_err(failed())?;
        let bytes = disk.len(file).await.map_err(failed())?;
        disk.close(file);
        if config.segment_sizes().contains(&bytes) {
            spares.push(Spare { number: *number, bytes });
        } else {
            disk.remove(&name).await.map_err(failed())?;
        }
    }
    Ok(spares)
}

/// A segment that was named, but never begun, is a spare again. On a full disk its space would not
/// come back.
async fn take_unbegun<D: Disk>(
    disk: &D,
    segment: &FoundSegment,
    listed: &[String],
    config: &JournalConfig,
) -> Result<Option<Spare>, JournalError> {
    let name = names::segment(segment.sequence);
    let failed = || JournalError::during(format!("take {name} back"));
    let bytes = disk.len(segment.file).await.map_err(failed())?;
    disk.close(segment.file);
    // Two such files, or a spare that was made meanwhile, are no matter: the number must only be
    // new.
    let number = names::numbers(listed, "spare").last().map_or(1, |last| last + 1) + segment.sequence;
    if config.segment_sizes().contains(&bytes) {
        disk.rename(&name, &names::spare(number)).await.map_err(failed())?;
        return Ok(Some(Spare { number, bytes }));
    }
    disk.remove(&name).await.map_err(failed())?;
    Ok(None)
}

/// What an earlier life kept for a load that is gone: one spare of the smallest size remains.
async fn give_back<D: Disk>(disk: &D, spares: &mut Vec<Spare>, segment_bytes: u64) -> Result<(), JournalError> {
    for spare in spares.drain(1.min(spares.len())..) {
        let name = names::spare(spare.number);
        disk.remove(&name).await.map_err(JournalError::during(format!("remove {name}")))?;
    }
    if let Some(spare) = spares.first_mut().filter(|spare| spare.bytes > segment_bytes) {
        let name = names::spare(spare.number);
        let failed = || JournalError::during(format!("cut {name}"));
        let file = disk.open(&name, false).await.map_err(failed())?;
        disk.set_len(file, segment_bytes).await.map_err(failed())?;
        disk.close(file);
        spare.bytes = segment_bytes;
    }
    Ok(())
}

async fn read_all<D: Disk>(disk: &D, file: FileId, name: &str) -> Result<bytes::Bytes, JournalError> {
    let failed = || JournalError::during(format!("read {name}"));
    let len = disk.len(file).await.map_err(failed())?;
    Ok(disk.read(file, 0, len).await.map_err(failed())?.to_bytes())
}

/// Hands out the records of a segment from `start_lsn` on, piece by piece. Its frames are whole up
/// to `end`. Returns the number of records and their bytes.
async fn hand_out<D: Disk>(
    disk: &D,
    file: FileId,
    header: &SegmentHeader,
    end: u64,
    start_lsn: Lsn,
    taker: &mut impl TakesFound,
) -> Result<(u64, u64), JournalError> {
    let name = names::segment(header.sequence);
    let (mut count, mut record_bytes) = (0, 0);
    let (mut at, mut wanted) = (SEGMENT_HEADER_BYTES as u64, READ_BYTES);
    while at < end {
        let read = disk.read(file, at, wanted.min(end - at)).await;
        let piece = read.map_err(JournalError::during(format!("read {name}")))?.to_bytes();
        let mut used = 0;
        loop {
            match frame_at(piece.get(used..).unwrap_or_default(), header) {
                FrameAt::Whole { records, bytes, .. } => {
                    for (lsn, record) in records.skip_while(|(lsn, _)| *lsn < start_lsn) {
                        let understood = taker.take(Found::Journal(lsn, record));
                        understood
                            .map_err(|status| JournalError::Damaged(format!("record {lsn} in {name} is not understood: {status}")))?;
                        (count, record_bytes) = (count + 1, record_bytes + record.len() as u64);
                    }
                    used += bytes;
                }
                FrameAt::Longer { bytes } if used == 0 && bytes as u64 > wanted => {
                    wanted = bytes as u64;
                    break;
                }
                _ if used == 0 => return Err(JournalError::Damaged(format!("{name} is not what it was a moment ago, at byte {at}"))),
                _ => break,
            }
        }
        if used > 0 {
            (at, wanted) = (at + used as u64, READ_BYTES);
            taker.piece_ends().await?;
        }
    }
    Ok((count, record_bytes))
}

/// From which record on the journal is needed, as the header of the checkpoint says.
async fn start_of_checkpoint<D: Disk>(disk: &D, generation: u64, config: &JournalConfig) -> Result<Lsn, JournalError> {
    let name = names::checkpoint(generation);
    let failed = || JournalError::during(format!("read {name}"));
    let damaged = |error: CheckpointError| JournalError::Damaged(format!("{name}: {error}"));
    let file = disk.open(&name, false).await.map_err(failed())?;
    let mut reader = CheckpointReader::new();
    reader.push(&disk.read(file, 0, READ_BYTES).await.map_err(failed())?.to_bytes());
    disk.close(file);
    reader.next_chunk().map_err(damaged)?;
    let header = reader.header().ok_or(damaged(CheckpointError::Incomplete))?;
    check_owner(header, generation, config)?;
    Ok(header.start_lsn)
}

fn check_owner(header: &CheckpointHeader, generation: u64, config: &JournalConfig) -> Result<(), JournalError> {
    if (header.fs_id, header.server_id, header.generation) == (config.fs_id, config.server, generation) {
        return Ok(());
    }
    let name = names::checkpoint(generation);
    Err(JournalError::Damaged(format!("{name}: it belongs to another server, file system or generation")))
}

async fn read_checkpoint<D: Disk>(
    disk: &D,
    generation: u64,
    config: &JournalConfig,
    taker: &mut impl TakesFound,
) -> Result<(CheckpointEnd, u64), JournalError> {
    let name = names::checkpoint(generation);
    let failed = || JournalError::during(format!("read {name}"));
    let damaged = |what: String| JournalError::Damaged(format!("{name}: {what}"));
    let file = disk.open(&name, false).await.map_err(failed())?;
    let len = disk.len(file).await.map_err(failed())?;
    let mut reader = CheckpointReader::new();
    let mut offset = 0;
    while offset < len {
        let bytes = disk.read(file, offset, READ_BYTES.min(len - offset)).await.map_err(failed())?.to_bytes();
        if bytes.is_empty() {
            break;
        }
        offset += bytes.len() as u64;
        reader.push(&bytes);
        while let Some(chunk) = reader.next_chunk().map_err(|error| damaged(error.to_string()))? {
            check_owner(reader.header().expect("a chunk follows the header"), generation, config)?;
            for record in chunk.records() {
                taker.take(Found::Checkpoint(record)).map_err(|status| damaged(format!("a record is not understood: {status}")))?;
            }
        }
    }
    disk.close(file);
    let end = reader.finish().map_err(|error| damaged(error.to_string()))?;
    check_owner(&end.header, generation, config)?;
    Ok((end, len))
}
