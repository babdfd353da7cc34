//! `weft export`: traces in the formats of other tools. [`source`] reads the files, puts them on
//! one time line and cuts overlapping spans into lanes; each format is a file of its own and writes
//! while it goes through the records. `docs/export.md` says what each of them holds and how it is
//! checked. It never changes a trace.
// A full disk or a reader who has gone must not end a process, and these macros panic then: see
// `write_line` of `weft-rt-real`.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod calls;
mod chrome;
mod csv;
mod hdtrace;
mod parquet;
mod perfetto;
mod proto;
mod relations;
mod rows;
#[cfg(test)]
#[path = "../tests/samples/mod.rs"]
mod samples;
pub mod source;

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use flate2::Compression;
use flate2::write::GzEncoder;
use weft_analysis::inputs;
use weft_host::output::print;
use weft_host::units::seconds;

use source::{Selection, Source};

/// Write traces in the formats of other tools
///
/// A file whose name ends in .gz is compressed (Perfetto opens it as it is; not for parquet, which
/// compresses inside, and hdtrace, which is several files).
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  weft export traces/ --format perfetto -o run.pftrace.gz   # for ui.perfetto.dev and trace_processor
  weft export traces/ --format chrome -o run.json           # for chrome://tracing and speedscope; small traces
  weft export traces/ --format csv --events 'meta.*' -o requests.csv
  weft export traces/ --format parquet -o run.parquet       # duckdb -c \"select event, quantile_cont(duration_ns, .99) from 'run.parquet' group by 1\"
  weft export traces/ --format hdtrace -o run.proj          # for the viewers of 2009, and for kind = \"hdtrace\" of `weft sim`")]
pub struct Args {
    /// Trace files, directories with trace files, or projects of HDTrace (.proj)
    #[arg(required = true, value_name = "FILE|DIR")]
    traces: Vec<PathBuf>,
    /// What to write
    #[arg(long, value_enum)]
    format: Format,
    /// The file to write
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Only what ends after this time, in seconds since the beginning of the trace
    #[arg(long, value_name = "SECONDS", value_parser = seconds(0.0, 1e9))]
    from: Option<f64>,
    /// Only what begins before this time, in seconds since the beginning of the trace
    #[arg(long, value_name = "SECONDS", value_parser = seconds(0.0, 1e9))]
    to: Option<f64>,
    /// Only these events, as in WEFT_TRACE_MASK: meta.*,disk.write,-meta.lookup
    #[arg(long, value_name = "EVENTS", default_value = "*")]
    events: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// Perfetto's protobuf: lanes, flows between clients and servers, counters
    Perfetto,
    /// JSON of chrome://tracing
    Chrome,
    /// A line for each record
    Csv,
    /// The same columns as csv, for data frames and SQL
    Parquet,
    /// A project of HDTrace with a trace for each lane; runs of MPI programs and simulated ones can
    /// be simulated again
    Hdtrace,
}

/// Spans beyond which other tools need much time and memory for a file with lanes.
const MANY_SPANS: usize = 1_000_000;

impl Args {
    /// Writes the file.
    ///
    /// # Errors
    /// If no trace can be read, or the file cannot be written.
    pub fn run(self) -> Result<()> {
        inputs::refuse_to_overwrite(&self.output, &self.traces)?;
        let selection = Selection { from_s: self.from, to_s: self.to, events: self.events.clone() };
        let source = Source::load(&self.traces, &selection)?;
        source.warnings().iter().for_each(|warning| weft_host::output::tell(warning));
        if matches!(self.format, Format::Perfetto | Format::Chrome) && source.chosen.len() > MANY_SPANS {
            weft_host::output::tell(&format!(
                "{} records: a browser may need minutes and gigabytes for them; --from, --to and --events choose some",
                source.chosen.len()
            ));
        }
        let said = self.write(&source).with_context(|| format!("cannot write {}", self.output.display()))?;
        Ok(print(&format!("{}: {said}\n", self.output.display()))?)
    }

    fn write(&self, source: &Source) -> Result<String> {
        if self.format == Format::Hdtrace {
            return hdtrace::write(source, &self.output);
        }
        let file = create(&self.output)?;
        let is_compressed = self.format != Format::Parquet && self.output.extension().is_some_and(|end| end == "gz");
        if !is_compressed {
            return self.write_to(source, file);
        }
        let mut compressor = GzEncoder::new(file, Compression::default());
        let said = self.write_to(source, &mut compressor)?;
        compressor.finish()?.flush()?;
        Ok(said)
    }

    fn write_to(&self, source: &Source, mut out: impl Write) -> Result<String> {
        let said = match self.format {
            Format::Perfetto => perfetto::write(source, &mut out)?,
            Format::Chrome => chrome::write(source, &mut out)?,
            Format::Csv => csv::write(source, &mut out)?,
            Format::Parquet => parquet::write(source, &mut out)?,
            Format::Hdtrace => unreachable!("several files, written above"),
        };
        out.flush()?;
        Ok(said)
    }
}

fn create(path: &Path) -> Result<BufWriter<File>> {
    Ok(BufWriter::with_capacity(1 << 20, File::create(path)?))
}
