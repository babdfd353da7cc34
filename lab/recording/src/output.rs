//! A trace file of this process: header, blocks as they come, the end.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use anyhow::{Context, Result};
use nix::time::{ClockId, clock_gettime};
use weft_base::ServerId;
use weft_host::hosts::machine_name;
use weft_host::state::in_file_name;
use weft_trace::file::{FileHeader, FileWriter};
use weft_trace::record::{Body, Sync, TraceRecord};
use weft_trace::{Anchor, Batch, EventTable, Tracer, event};

/// The ring of records that no thread wrote.
const RING_OWN: u32 = u32::MAX - 1;
/// Files of one process in one folder: more means that somebody else makes their names.
const FILES_MAX: u32 = 10_000;

/// What files say about this process.
static IDENTITY: OnceLock<(String, Option<ServerId>)> = OnceLock::new();

/// Says who this process is. Only the first call counts; without one, files are named after the
/// command.
pub fn identify(name: &str, server: Option<ServerId>) {
    // A second call would be the same process.
    let _ = IDENTITY.set((name.to_string(), server));
}

/// The name of this process in files.
pub fn name() -> String {
    let name = IDENTITY.get().map_or_else(|| std::env::args().nth(1).unwrap_or_else(|| "weft".into()), |(name, _)| name.clone());
    in_file_name(&name)
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
            clock_domain: clock_domain(),
            anchor: begun,
            events: EventTable::builtin(),
            machine: machine_name(),
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
        self.append_own(&[TraceRecord::new(now.ticks, event::TRACE_SYNC, sync)]);
        self.write()
    }

    /// Appends records that no thread wrote.
    pub fn append_own(&mut self, records: &[TraceRecord]) {
        if !records.is_empty() {
            let batch = Batch { ring: RING_OWN, first: self.own, records: records.iter().map(TraceRecord::to_words).collect() };
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

/// Names the clock that files of this process are by, so that no two clocks have one name: this
/// boot of the machine, and by how much the time namespace of the process is ahead of it
/// (containers of one machine may have clocks of their own). Copies of a virtual machine that go on
/// from one image of its memory have one name and different clocks; then requests seem to be served
/// before they were sent, which is told.
fn clock_domain() -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let boot = read("/proc/sys/kernel/random/boot_id").trim().to_string();
    if boot.is_empty() {
        // Better a clock that nobody shares than one that seems to be shared.
        return weft_host::connect::random::<16>().map_or_else(|_| format!("process {}", std::process::id()), |id| format!("{id:02x?}"));
    }
    let namespace = |name: &str| std::fs::read_link(format!("/proc/self/ns/{name}")).unwrap_or_default();
    let own = namespace("time");
    if own != namespace("time_for_children") {
        // The offsets are those of children.
        return format!("{boot} {}", own.display());
    }
    format!("{boot}{}", monotonic_offset(&read("/proc/self/timens_offsets")))
}

/// What the file `timens_offsets` says of the monotonic clock: nothing if it is not shifted, or
/// there are no time namespaces.
fn monotonic_offset(offsets: &str) -> String {
    let line = offsets.lines().find_map(|line| line.strip_prefix("monotonic"));
    let words: Vec<&str> = line.unwrap_or_default().split_whitespace().collect();
    if words.iter().all(|word| *word == "0") { String::new() } else { format!(" + {} ns", words.join(" s ")) }
}

/// A file of this name, or with the first free number behind it. Never one that is there already:
/// in a folder that others may write to, it could lead anywhere.
fn create(folder: &Path, stem: &str) -> Result<(File, PathBuf)> {
    for path in names(folder, stem) {
        match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            made => return Ok((made.with_context(|| format!("cannot write the trace {}", path.display()))?, path)),
        }
    }
    anyhow::bail!("{} holds too many traces of this process", folder.display())
}

/// The names that a file may have, in the order in which they are tried.
pub fn names(folder: &Path, stem: &str) -> impl Iterator<Item = PathBuf> {
    (0..FILES_MAX).map(move |number| folder.join(if number == 0 { format!("{stem}.wtrace") } else { format!("{stem}-{number}.wtrace") }))
}

/// Readings of the clocks of which the closest pair is taken: whoever is interrupted between two
/// readings puts a whole trace off.
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
    fn clocks_of_time_namespaces_have_names_of_their_own() {
        assert_eq!(monotonic_offset("monotonic           0         0\nboottime       7         0\n"), "");
        assert_eq!(monotonic_offset(""), "");
        assert_eq!(monotonic_offset("monotonic         100         5\nboottime            0         0\n"), " + 100 s 5 ns");
        assert_eq!(clock_domain(), clock_domain());
    }

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
