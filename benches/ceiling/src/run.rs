//! Everything in one go, as a list of rows and a table.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use serde::Serialize;

use crate::child::{Server, ServerRole, ServerSpawner};
use crate::disk::{self, Stream, SyncMethod};
use crate::measure::{Measured, Reps, TimedRate};
use crate::null_fuse::{NullFuse, NullFuseConfig};
use crate::rpc::{self, Direction, Endpoint};
use crate::{cpu, paths};

/// One ceiling.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CeilingRow {
    /// Stable name, words joined by dots, general to special: `rpc.unix.1x1` is one connection at
    /// depth 1, `2t` means two threads, `onecpu` both sides on one processor (see
    /// [`cpu::Pinned`]), `twocpus` each on its own.
    pub name: String,
    /// Unit of the numbers.
    pub unit: &'static str,
    /// Median over the repetitions.
    pub median: f64,
    /// Smallest repetition.
    pub min: f64,
    /// Greatest repetition.
    pub max: f64,
    /// What it means, in a few words.
    pub note: String,
}

/// A ceiling that could not be measured here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Skipped {
    /// Name of the row, or the first words of the names of several.
    pub name: String,
    /// Why.
    pub reason: String,
}

/// Result of [`run_all`]; displays as a table.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Ceilings {
    /// What was measured, in the order of measuring.
    pub rows: Vec<CeilingRow>,
    /// What this machine does not let us measure.
    pub skipped: Vec<Skipped>,
}

impl Ceilings {
    /// The row of this name.
    pub fn get(&self, name: &str) -> Option<&CeilingRow> {
        self.rows.iter().find(|row| row.name == name)
    }
}

/// What [`run_all`] does.
#[derive(Clone, Debug)]
pub struct Options {
    /// Time and repetitions of each row.
    pub reps: Reps,
    /// How servers are started.
    pub spawner: ServerSpawner,
    /// How the null file system is served.
    pub null_fuse: NullFuseConfig,
    /// Measures the group of rows whose names begin with one of these words; all groups when empty.
    /// The groups are `cpu`, `rpc`, `bulk`, `fuse` and `disk`.
    pub only: Vec<String>,
}

impl Options {
    /// Standard repetitions of everything, with servers started by `spawner`.
    pub fn new(spawner: ServerSpawner) -> Self {
        Self { reps: Reps::standard(), spawner, null_fuse: NullFuseConfig::default(), only: Vec::new() }
    }

    fn wants(&self, group: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|name| name == group)
    }
}

/// Measures all ceilings of this machine and tells each row as soon as it is there; the disk's in
/// `dir`, in files that are removed again.
///
/// # Errors
/// When a measurement fails that every machine allows, or `on_row` wants no more. What only some
/// machines allow (FUSE, direct I/O) is listed in [`Ceilings::skipped`] instead.
pub fn run_all(dir: &Path, options: &Options, on_row: impl FnMut(&CeilingRow) -> Result<()>) -> Result<Ceilings> {
    let mut run = Run { options, on_row, result: Ceilings::default() };
    // Minutes of other measurements are not to be lost at the end.
    if options.wants("disk") {
        drop(disk::scratch_dir(dir)?);
    }
    if options.wants("cpu") {
        run.cpu()?;
    }
    if options.wants("rpc") || options.wants("bulk") {
        run.sockets()?;
    }
    if options.wants("fuse") {
        run.null_fuse()?;
    }
    if options.wants("disk") {
        run.disk(dir)?;
    }
    Ok(run.result)
}

struct Run<'a, F> {
    options: &'a Options,
    on_row: F,
    result: Ceilings,
}

impl<F: FnMut(&CeilingRow) -> Result<()>> Run<'_, F> {
    fn row(&mut self, name: impl Into<String>, measured: Measured, note: impl Into<String>) -> Result<()> {
        let row = CeilingRow {
            name: name.into(),
            unit: measured.unit,
            median: measured.median,
            min: measured.min,
            max: measured.max,
            note: note.into(),
        };
        (self.on_row)(&row)?;
        self.result.rows.push(row);
        Ok(())
    }

    fn timed(&mut self, name: &str, timed: TimedRate, note: &str, note_of_one: &str) -> Result<()> {
        self.row(name, timed.rate, note)?;
        for (percentile, value) in [("p50", timed.p50_us), ("p99", timed.p99_us)] {
            value.map_or(Ok(()), |value| self.row(format!("{name}.{percentile}"), value, note_of_one))?;
        }
        Ok(())
    }

    fn skip(&mut self, name: impl Into<String>, error: &anyhow::Error) {
        self.result.skipped.push(Skipped { name: name.into(), reason: format!("{error:#}") });
    }

    fn cpu(&mut self) -> Result<()> {
        let reps = self.options.reps;
        for threads in [1, 2] {
            let speed = cpu::memcpy(threads, 64 << 20, reps)?;
            self.row(format!("cpu.memcpy.64MiB.{threads}t"), speed, "copied between buffers that no cache holds")?;
        }
        let speed = cpu::memcpy(1, 128 << 10, reps)?;
        self.row("cpu.memcpy.128KiB.1t", speed, "copied within the caches")?;
        let cost = cpu::syscall(reps)?;
        self.row("cpu.syscall", cost, "getppid")?;
        let trip = cpu::handover_condvar(reps)?;
        self.row("cpu.handover.condvar", trip, "round trip between two threads")?;
        let trip = cpu::handover_park(reps)?;
        self.row("cpu.handover.park", trip, "round trip between two threads")?;
        Ok(())
    }

    fn sockets(&mut self) -> Result<()> {
        let place = tempfile::tempdir().context("cannot make a directory for a socket")?;
        let transports = [("unix", Endpoint::Unix(place.path().join("s"))), ("tcp", Endpoint::Tcp(([127, 0, 0, 1], 0).into()))];
        for (transport, endpoint) in transports {
            let role = ServerRole::Rpc(endpoint);
            let clear = || {
                if let ServerRole::Rpc(Endpoint::Unix(path)) = &role {
                    // The server before this one left its socket behind; there is none when that
                    // was not measured.
                    let _ = std::fs::remove_file(path);
                }
            };
            if self.options.wants("rpc") {
                self.requests_on_one_processor(transport, &role)?;
                clear();
                self.requests_on_two_processors(transport, &role)?;
                clear();
            }
            let server = self.options.spawner.start(&role)?;
            if self.options.wants("rpc") {
                self.requests(transport, &server)?;
            }
            if self.options.wants("bulk") {
                self.bulk(transport, &server)?;
            }
            server.stop()?;
        }
        Ok(())
    }

    fn requests(&mut self, transport: &str, server: &Server) -> Result<()> {
        let endpoint = endpoint_of(server);
        for (connections, depth) in [(1, 1), (2, 1), (4, 1), (1, 32), (2, 32), (4, 32)] {
            let result = rpc::requests(endpoint, connections, depth, self.options.reps)?;
            let name = format!("rpc.{transport}.{connections}x{depth}");
            let note = if depth == 1 { "each request waits for its reply" } else { "requests in flight, sent and answered in batches" };
            if connections == 1 {
                self.timed(&name, result, note, "round trip")?;
            } else {
                self.row(&name, result.rate, note)?;
            }
        }
        Ok(())
    }

    fn requests_on_one_processor(&mut self, transport: &str, role: &ServerRole) -> Result<()> {
        let _pin = cpu::Pinned::to_one()?;
        let server = self.options.spawner.start(role)?;
        for depth in [1, 32] {
            let result = rpc::requests(endpoint_of(&server), 1, depth, self.options.reps)?;
            self.row(format!("rpc.{transport}.1x{depth}.onecpu"), result.rate, "client and server on one processor")?;
        }
        server.stop()
    }

    /// Each side on a processor of its own, which is asleep while the other works.
    fn requests_on_two_processors(&mut self, transport: &str, role: &ServerRole) -> Result<()> {
        let pin = cpu::Pinned::to_one()?;
        let server = self.options.spawner.start(role)?;
        drop(pin);
        match cpu::Pinned::to(1, 1) {
            Ok(_pin) => {
                let result = rpc::requests(endpoint_of(&server), 1, 1, self.options.reps)?;
                self.row(format!("rpc.{transport}.1x1.twocpus"), result.rate, "client and server on two processors")?;
            }
            Err(error) => self.skip(format!("rpc.{transport}.1x1.twocpus"), &error),
        }
        server.stop()
    }

    fn bulk(&mut self, transport: &str, server: &Server) -> Result<()> {
        for (name, direction) in [("upload", Direction::Upload), ("download", Direction::Download)] {
            for connections in [1, 2] {
                let speed = rpc::bulk(endpoint_of(server), direction, connections, self.options.reps)?;
                self.row(format!("bulk.{transport}.{name}.{connections}c"), speed, "1 MiB pieces, one server thread")?;
            }
        }
        Ok(())
    }

    fn null_fuse(&mut self) -> Result<()> {
        let reps = self.options.reps;
        let config = self.options.null_fuse.clone();
        let null = match NullFuse::start(&self.options.spawner, config.clone()) {
            Ok(null) => null,
            Err(error) => {
                self.skip("fuse", &error);
                return Ok(());
            }
        };
        for threads in [1, 2, 4] {
            let rate = paths::create_close(&null.dirs(threads), reps)?;
            self.row(format!("fuse.create_close.{threads}t"), rate, "own directories; LOOKUP and CREATE")?;
        }
        let shared = vec![null.path().join("d0"); 2];
        let rate = paths::create_close(&shared, reps)?;
        self.row("fuse.create_close.shared.2t", rate, "one directory")?;
        for threads in [1, 2, 4] {
            let rate = paths::fstat(&null.files(threads), reps)?;
            self.row(format!("fuse.fstat.{threads}t"), rate, "GETATTR")?;
        }
        for threads in [1, 2] {
            let dirs = null.dirs(threads);
            let rate = paths::lookup_missing(&dirs, reps)?;
            self.row(format!("fuse.lookup.{threads}t"), rate, "LOOKUP of a missing name")?;
            let rate = paths::stat(&dirs, reps)?;
            self.row(format!("fuse.stat.{threads}t"), rate, "LOOKUP and GETATTR")?;
            let rate = paths::unlink(&dirs, reps)?;
            self.row(format!("fuse.unlink.{threads}t"), rate, "LOOKUP and UNLINK")?;
            let rate = paths::read_dir(&null.list(), threads, reps)?;
            let note = if config.readdirplus { "READDIRPLUS" } else { "READDIR" };
            self.row(format!("fuse.readdir.{threads}t"), rate, note)?;
        }
        self.null_fuse_blocks(&null)?;
        drop(null);
        self.null_fuse_on_one_processor()
    }

    fn null_fuse_blocks(&mut self, null: &NullFuse) -> Result<()> {
        let reps = self.options.reps;
        let span = self.options.null_fuse.file_bytes;
        for (size, block_bytes) in [("1MiB", 1 << 20), ("47008B", 47008)] {
            for threads in [1, 2] {
                let files = null.files(threads);
                if (block_bytes as u64) > span {
                    continue;
                }
                let speed = paths::write_blocks(&files, block_bytes, span, reps)?;
                self.row(format!("fuse.write.{size}.{threads}t"), speed, "direct I/O, own files")?;
                let speed = paths::read_blocks(&files, block_bytes, span, reps)?;
                self.row(format!("fuse.read.{size}.{threads}t"), speed, "direct I/O, own files")?;
            }
        }
        Ok(())
    }

    fn null_fuse_on_one_processor(&mut self) -> Result<()> {
        let reps = self.options.reps;
        let _pin = cpu::Pinned::to_one()?;
        let null = NullFuse::start(&self.options.spawner, self.options.null_fuse.clone())?;
        let note = "caller and server on one processor";
        let rate = paths::create_close(&null.dirs(1), reps)?;
        self.row("fuse.create_close.1t.onecpu", rate, note)?;
        let rate = paths::fstat(&null.files(1), reps)?;
        self.row("fuse.fstat.1t.onecpu", rate, note)?;
        Ok(())
    }

    fn disk(&mut self, dir: &Path) -> Result<()> {
        let reps = self.options.reps;
        for (size, block_bytes) in [("4KiB", 4 << 10), ("64KiB", 64 << 10)] {
            for (method_name, method) in [("fdatasync", SyncMethod::Fdatasync), ("dsync", SyncMethod::DirectDsync)] {
                let name = format!("disk.append.{method_name}.{size}");
                match disk::append_sync(dir, block_bytes, method, reps) {
                    Ok(syncs) => {
                        let note = "into preallocated, written blocks";
                        self.timed(&name, syncs, note, note)?;
                    }
                    // Not every file system has direct I/O.
                    Err(error) if method == SyncMethod::DirectDsync => self.skip(name, &error),
                    Err(error) => return Err(error),
                }
            }
        }
        for (name, kind, note) in [
            ("write.cached", Stream::WriteCached, "into the page cache"),
            ("write.durable", Stream::WriteDurable, "with fdatasync"),
            ("read.cached", Stream::ReadCached, "from the page cache"),
            ("read.disk", Stream::ReadDisk, "not from this machine's page cache"),
        ] {
            let speed = disk::stream(dir, kind, reps)?;
            self.row(format!("disk.{name}"), speed, note)?;
        }
        for threads in [1, 2] {
            // Each file must be removed again, which takes about as long as its creation.
            let bounded = Reps::new(reps.time.min(Duration::from_millis(500)), reps.count);
            let rate = disk::create_close(dir, threads, bounded)?;
            self.row(format!("disk.create_close.{threads}t"), rate, "local files, own directories")?;
        }
        Ok(())
    }
}

fn endpoint_of(server: &Server) -> &Endpoint {
    server.endpoint().expect("these servers were started with an endpoint")
}

impl fmt::Display for CeilingRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let spread = format!("{} - {}", number(self.min), number(self.max));
        write!(f, "{:<30} {:>10}  {:<23} {:<12} {}", self.name, number(self.median), spread, self.unit, self.note)
    }
}

impl fmt::Display for Ceilings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<30} {:>10}  {:<23} {:<12} meaning", "ceiling", "median", "min - max", "unit")?;
        for row in &self.rows {
            writeln!(f, "{row}")?;
        }
        for skipped in &self.skipped {
            writeln!(f, "{:<30} not measured: {}", skipped.name, skipped.reason)?;
        }
        Ok(())
    }
}

/// At least three significant digits, with a space between thousands.
fn number(value: f64) -> String {
    if value < 10.0 {
        return format!("{value:.2}");
    }
    if value < 100.0 {
        return format!("{value:.1}");
    }
    let digits = format!("{value:.0}");
    let mut spaced = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            spaced.push(' ');
        }
        spaced.push(digit);
    }
    spaced
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_is_missing_is_told_before_anything_is_measured() {
        let options = Options::new(ServerSpawner::Thread);
        let error = run_all(Path::new("/nonexistent"), &options, |row| panic!("{row} was measured")).unwrap_err();
        assert!(format!("{error:#}").contains("cannot write in /nonexistent"), "{error:#}");
    }

    #[test]
    fn numbers_are_readable() {
        assert_eq!(number(0.314), "0.31");
        assert_eq!(number(41.26), "41.3");
        assert_eq!(number(999.6), "1 000");
        assert_eq!(number(1_234_567.0), "1 234 567");
        assert_eq!(number(123.0), "123");
    }

    #[test]
    fn everything_runs_and_every_name_is_its_own() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let mut options = Options::new(ServerSpawner::Thread);
        options.reps = Reps::new(Duration::from_millis(2), 1);
        let mut told = 0;
        let all = run_all(dir.path(), &options, |_| {
            told += 1;
            Ok(())
        })
        .expect("all machines allow this");
        assert_eq!(told, all.rows.len());
        let mut names: Vec<&str> = all.rows.iter().map(|row| row.name.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all.rows.len());
        for row in &all.rows {
            assert!(row.min > 0.0 && row.max.is_finite(), "{row}");
        }
        for group in ["cpu", "rpc", "bulk", "disk"] {
            assert!(names.iter().any(|name| name.starts_with(group)), "{group}");
        }
        let table = all.to_string();
        assert!(names.iter().all(|name| table.contains(name)));
        assert!(all.get("rpc.unix.1x1").is_some() && all.get("nothing").is_none());
    }

    #[test]
    fn a_row_is_one_flat_object_for_programs() {
        let row = CeilingRow { name: "cpu.x".into(), unit: "ns", median: 2.0, min: 1.0, max: 3.5, note: "n".into() };
        let json = serde_json::to_value(&row).expect("strings and numbers");
        let expected = serde_json::json!({ "name": "cpu.x", "unit": "ns", "median": 2.0, "min": 1.0, "max": 3.5, "note": "n" });
        assert_eq!(json, expected);
    }

    #[test]
    fn one_group_alone() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let mut options = Options::new(ServerSpawner::Thread);
        options.reps = Reps::new(Duration::from_millis(1), 1);
        options.only = vec!["cpu".into()];
        let rows = run_all(dir.path(), &options, |_| Ok(())).expect("the processor is there").rows;
        assert!(!rows.is_empty() && rows.iter().all(|row| row.name.starts_with("cpu.")));
    }
}
