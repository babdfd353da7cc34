//! A trace file of this process: header, blocks as they come, the end.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use anyhow::{Context, Result};
use nix::time::{ClockId, clock_gettime};
use weft_base::ServerId;
use weft_trace::file::{FileHeader, FileWriter};
use weft_trace::record::{Body, Record, Sync};
use weft_trace::{Anchor, Batch, EventTable, Tracer, event};

/// The ring of records that no thread wrote.
const RING_OWN: u32 = u32::MAX - 1;
/// Files of one process in one folder: more means that somebody else makes their names.
const FILES_MAX: u32 = 10_000;

/// What files say about this process.
static IDENTITY: OnceLock<(String, Option<ServerId>)> = OnceLock::new();

/// Says who this process is. Only the first call counts; without one, files are named after the command.
pub fn identify(name: &str, server: Option<ServerId>) {
    // A second call would be the same process.
    let _ = IDENTITY.set((name.to_string(), server));
}

/// The name of this process in files.
pub fn name() -> String {
    let name = IDENTITY.get().map_or_else(|| std::env::args().nth(1).unwrap_or_else(|| "weft".into()), |(name, _)| name.clone());
    name.chars().map(|letter| if letter.is_ascii_alphanumeric() || letter == '-' { letter } else { '_' }).collect()
}

/// A file that is being written.
#[derive(Debug)]
pub struct Output {
    file: File,
    path: PathBuf,
    writer: FileWriter,
    bytes: Vec<u8>,
    /// Records of this process about its clock.
    own: u64,
}

impl Output {
    /// A new file in `folder`, which is made if it is missing. `begun` is when the recording began.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn begin(folder: &Path, tracer: &Tracer, begun: Anchor) -> Result<Output> {
        let header = FileHeader {
            node: name(),
            server: IDENTITY.get().and_then(|(_, server)| server.map(|server| server.0)),
            process: std::process::id(),
            clock: if tracer.config().clock.is_nanoseconds() { "monotonic" } else { "tsc" }.into(),
            clock_domain: std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_string(),
            anchor: begun,
            events: EventTable::builtin(),
        };
        let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
        made.with_context(|| format!("cannot make the folder {} for traces", folder.display()))?;
        let (file, path) = create(folder, &format!("{}-{}", header.node, header.process))?;
        let (writer, bytes) = FileWriter::begin(&header);
        Ok(Output { file, path, writer, bytes, own: 0 })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Appends what was fetched, and how the clocks stand.
    ///
    /// # Errors
    /// Of the disk.
    pub fn append(&mut self, batches: &[Batch], tracer: &Tracer) -> Result<()> {
        batches.iter().for_each(|batch| self.writer.batch(batch, &mut self.bytes));
        let now = anchor(tracer);
        let sync = Body::Sync(Sync { mono_ns: now.mono_ns, wall_ns: now.wall_ns, ..Sync::default() });
        self.append_own(&[Record::new(now.ticks, event::TRACE_SYNC, sync)]);
        self.write()
    }

    /// Appends records that no thread wrote.
    pub fn append_own(&mut self, records: &[Record]) {
        if !records.is_empty() {
            let batch = Batch { ring: RING_OWN, first: self.own, records: records.iter().map(Record::to_words).collect() };
            self.own += records.len() as u64;
            self.writer.batch(&batch, &mut self.bytes);
        }
    }

    /// Completes the file.
    ///
    /// # Errors
    /// Of the disk.
    pub fn end(mut self) -> Result<()> {
        std::mem::take(&mut self.writer).end(&mut self.bytes);
        self.write()
    }

    fn write(&mut self) -> Result<()> {
        let written = self.file.write_all(&self.bytes);
        self.bytes.clear();
        written.with_context(|| format!("cannot write the trace {}", self.path.display()))
    }
}

/// A file of this name, or with the first free number behind it. Never one that is there already: in a folder that others may write to,
/// it could lead anywhere.
fn create(folder: &Path, stem: &str) -> Result<(File, PathBuf)> {
    for number in 0..FILES_MAX {
        let name = if number == 0 { format!("{stem}.wtrace") } else { format!("{stem}-{number}.wtrace") };
        let path = folder.join(name);
        match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            made => return Ok((made.with_context(|| format!("cannot write the trace {}", path.display()))?, path)),
        }
    }
    anyhow::bail!("{} holds too many traces of this process", folder.display())
}

/// Readings of the clocks of which the closest pair is taken: whoever is interrupted between two readings puts a whole trace off.
const READINGS: usize = 8;

/// How the clocks stand now.
pub fn anchor(tracer: &Tracer) -> Anchor {
    let readings = (0..READINGS).map(|_| {
        let (before, mono_ns, after) = (tracer.ticks(), monotonic_ns(), tracer.ticks());
        let apart = after.saturating_sub(before);
        (apart, Anchor { mono_ns, ticks: before + apart / 2, wall_ns: nanos(ClockId::CLOCK_REALTIME) as i64 })
    });
    readings.min_by_key(|(apart, _)| *apart).map(|(_, anchor)| anchor).expect("there is more than one reading")
}

/// The monotonic clock of the machine, in nanoseconds.
pub fn monotonic_ns() -> u64 {
    nanos(ClockId::CLOCK_MONOTONIC)
}

fn nanos(clock: ClockId) -> u64 {
    let time = clock_gettime(clock).expect("these clocks are always there");
    time.tv_sec() as u64 * weft_base::SECOND + time.tv_nsec() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_there_is_never_written_to() {
        let dir = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/nowhere/at/all", dir.path().join("x-1.wtrace")).unwrap();
        std::fs::write(dir.path().join("x-1-1.wtrace"), "mine").unwrap();
        let (_, path) = create(dir.path(), "x-1").unwrap();
        assert_eq!(path, dir.path().join("x-1-2.wtrace"));
        assert_eq!(std::fs::read(dir.path().join("x-1-1.wtrace")).unwrap(), b"mine");
    }
}
