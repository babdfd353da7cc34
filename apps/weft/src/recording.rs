//! Trace records of this process, if the environment asks for them: `WEFT_TRACE` names a folder, into which a file goes when the process
//! ends; `WEFT_TRACE_MASK` chooses events (all). Threads record into rings of fixed size; what does not fit is counted in the file.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};
use nix::time::{ClockId, clock_gettime};
use weft_trace::clock::tsc_is_sound;
use weft_trace::file::{FileHeader, FileWriter};
use weft_trace::record::{Body, Record, Sync, flags};
use weft_trace::{Anchor, Batch, Clock, Drain, EventTable, Mask, Mode, Tracer, TracerConfig, event, set_process_tracer};

/// Records of one thread: 16 MiB.
const RING_RECORDS: usize = 1 << 18;
/// The ring of records that no thread wrote.
const RING_OWN: u32 = u32::MAX - 1;

/// A recording that goes on until the process ends.
pub struct Recording {
    folder: PathBuf,
    tracer: Tracer,
    anchor: Anchor,
}

impl Recording {
    /// Begins to record if the environment says so.
    ///
    /// # Errors
    /// A mask with unknown events.
    pub fn begin() -> Result<Option<Recording>> {
        let Some(folder) = std::env::var_os("WEFT_TRACE").filter(|folder| !folder.is_empty()) else { return Ok(None) };
        let mask = std::env::var("WEFT_TRACE_MASK").unwrap_or_else(|_| "*".to_string());
        let mask = Mask::parse(&mask, &EventTable::builtin()).map_err(|problem| anyhow!("WEFT_TRACE_MASK: {problem}"))?;
        let text = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let clocksource = text("/sys/devices/system/clocksource/clocksource0/current_clocksource");
        let clock = if tsc_is_sound(&clocksource, &text("/proc/cpuinfo")) { Clock::Tsc } else { Clock::Function(monotonic_ns) };
        let tracer = Tracer::new(TracerConfig { ring_records: RING_RECORDS, ..TracerConfig::new(Mode::Bench, clock) });
        tracer.set_mask(mask);
        set_process_tracer(&tracer);
        Ok(Some(Recording { folder: PathBuf::from(folder), anchor: anchor(&tracer), tracer }))
    }

    /// Writes the file.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn end(self) -> Result<()> {
        self.tracer.set_mask(Mask::NONE);
        let now = anchor(&self.tracer);
        let batches = Drain::new(&self.tracer).fetch();
        let header = FileHeader {
            node: name(),
            server: batches.iter().flat_map(|batch| &batch.records).find_map(server_of),
            process: std::process::id(),
            clock: if self.tracer.config().clock.is_nanoseconds() { "monotonic" } else { "tsc" }.into(),
            clock_domain: std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_string(),
            anchor: self.anchor,
            events: EventTable::builtin(),
        };
        let sync = Body::Sync(Sync { mono_ns: now.mono_ns, wall_ns: now.wall_ns, ..Sync::default() });
        let (mut writer, mut bytes) = FileWriter::begin(&header);
        batches.iter().for_each(|batch| writer.batch(batch, &mut bytes));
        let records = vec![Record::new(now.ticks, event::TRACE_SYNC, sync).to_words()];
        writer.batch(&Batch { ring: RING_OWN, first: 0, records }, &mut bytes);
        writer.end(&mut bytes);
        write(&self.folder, &format!("{}-{}.wtrace", header.node, header.process), &bytes)
    }
}

fn write(folder: &Path, name: &str, bytes: &[u8]) -> Result<()> {
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make the folder {} for traces", folder.display()))?;
    let file = folder.join(name);
    std::fs::write(&file, bytes).with_context(|| format!("cannot write the trace {}", file.display()))
}

/// The server of a server's record.
fn server_of(words: &weft_trace::record::Words) -> Option<u16> {
    match Record::from_words(words)? {
        Record { body: Body::Ladder(ladder), flags: bits, .. } if bits & flags::SERVER != 0 => Some(ladder.peer),
        _ => None,
    }
}

/// What follows `--server`, or the name of the command.
fn name() -> String {
    let words: Vec<String> = std::env::args().collect();
    let server = words.iter().position(|word| word == "--server").and_then(|place| words.get(place + 1));
    let name = server.or(words.get(1)).map_or("weft", String::as_str);
    name.chars().map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '_' }).collect()
}

fn anchor(tracer: &Tracer) -> Anchor {
    Anchor { mono_ns: monotonic_ns(), ticks: tracer.ticks(), wall_ns: nanos(ClockId::CLOCK_REALTIME) as i64 }
}

fn monotonic_ns() -> u64 {
    nanos(ClockId::CLOCK_MONOTONIC)
}

fn nanos(clock: ClockId) -> u64 {
    let time = clock_gettime(clock).expect("these clocks are always there");
    time.tv_sec() as u64 * weft_base::SECOND + time.tv_nsec() as u64
}
