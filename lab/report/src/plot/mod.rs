//! `weft plot`: pictures as SVG from traces and from results of benchmarks, with the charts of
//! `lab/charts`. Each kind of picture is a file of its own; `lab/pictures.sh` makes those of
//! `docs/pictures.md` with it.

mod bench;
mod bounds;
mod picture;
mod results;
mod steps;
mod sweep;
mod timeline;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use weft_analysis::inputs::refuse_to_overwrite;

pub use picture::{Number, Picture, write};
pub use sweep::{Wanted, file_name, pictures};

/// Draw pictures (SVG) of traces and of benchmark results
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Each input is a panel; --label names them in their order.

Examples:
  weft plot timeline traces/case0 traces/case1 -o disks.svg --label none --label aggregation
  weft plot steps create/ list/ -o steps.svg
  weft plot running progress.csv -o running.svg
  weft plot latency result.json -o latency.svg
  weft plot sweep engines.json --over clients -o clients.svg")]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Runs on one time axis: clients by compute, communication and I/O, servers by the seeks of
    /// their disks
    #[command(after_help = "Example:\n  weft sim run interleaved --trace t && weft plot timeline t/case0 t/case1 -o disks.svg")]
    Timeline(timeline::Args),
    /// Single operations step by step: calls, phases at the servers, journal, disks, with arrows
    #[command(after_help = "Example:\n  WEFT_TRACE=t weft ls ~/fs:/ && weft down --state ~/fs && weft plot steps t -o list.svg")]
    Steps(steps::Args),
    /// Running performance of each process, from the file of `weft bench ... --progress`
    #[command(after_help = "Example:\n  weft bench create --fs ~/fs --procs 4 --progress p.csv && weft plot running p.csv -o running.svg")]
    Running(bench::RunningArgs),
    /// Latency distribution in 50 bins, from `weft bench ... --json --progress FILE`, from `weft
    /// sim run scale-traces --json`, or from traces: of operations, or of one stage of each
    #[command(after_help = "\
Examples:
  weft bench create --fs ~/fs --progress p.csv --json > r.json && weft plot latency r.json -o latency.svg
  weft plot latency one-client/ four-clients/ --of client.create --stage journal -o journal.svg")]
    Latency(bench::LatencyArgs),
    /// Estimated upper bounds of a machine (Kunkel 2006, chapter 4), as a table and as figures 4.1
    /// to 4.6
    #[command(after_help = "\
Examples:
  weft plot bounds --hardware 2006
  weft plot bounds --hardware 2006 --fact meta=5 --clients 1,10,100 -o bounds.svg
  weft bench ceiling --json > ceiling.json && weft plot bounds ceiling.json creates.json --hardware tcp -o here.svg")]
    Bounds(bounds::Args),
    /// A sweep as a family of pictures: the results of `weft bench run PLAN --json` or of `weft sim
    /// run PLAN --json` over one key, a line for each value of another one, error bars where there
    /// are repetitions, a picture for each combination of the other keys, with the bounds of Kunkel
    /// 2006, chapter 4
    #[command(after_help = "\
Examples:
  weft bench run engines --json > e.json && weft plot sweep e.json --over files_in_all --hardware 2006 -o e.svg
  weft sim run interleaved --json > i.json && weft plot sweep i.json --x block --lines cache_layer --out pictures")]
    Sweep(sweep::Args),
}

/// What all pictures have in common.
#[derive(Debug, clap::Args)]
struct Common {
    /// Files, directories or projects of HDTrace, a panel each
    #[arg(required = true, value_name = "INPUT")]
    inputs: Vec<PathBuf>,
    /// The file to write
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Heading of the picture
    #[arg(long, value_name = "TEXT")]
    title: Option<String>,
    /// Heading of a panel; once for each input
    #[arg(long = "label", value_name = "TEXT")]
    labels: Vec<String>,
}

impl Args {
    /// Writes the picture.
    ///
    /// # Errors
    /// If an input cannot be read or holds nothing to draw.
    pub fn run(self) -> Result<()> {
        match self.what {
            What::Timeline(args) => args.run(),
            What::Steps(args) => args.run(),
            What::Running(args) => args.run(),
            What::Latency(args) => args.run(),
            What::Bounds(args) => args.run(),
            What::Sweep(args) => args.run(),
        }
    }
}

/// Inputs with their headings: those given, or their names.
fn panels<'p>(inputs: &'p [PathBuf], labels: &[String]) -> Result<Vec<(&'p Path, String)>> {
    if !labels.is_empty() && labels.len() != inputs.len() {
        bail!("{} labels for {} inputs", labels.len(), inputs.len());
    }
    let name = |path: &Path| path.file_name().map_or_else(|| path.display().to_string(), |name| name.to_string_lossy().into_owned());
    let labels = inputs.iter().enumerate().map(|(number, path)| labels.get(number).cloned().unwrap_or_else(|| name(path)));
    Ok(inputs.iter().map(PathBuf::as_path).zip(labels.collect::<Vec<_>>()).collect())
}

impl Common {
    /// Inputs with their headings: those given, or their names.
    fn panels(&self) -> Result<Vec<(&Path, String)>> {
        panels(&self.inputs, &self.labels)
    }

    fn title(&self, otherwise: &str) -> String {
        self.title.clone().unwrap_or_else(|| otherwise.to_string())
    }

    fn write(&self, picture: &str) -> Result<()> {
        refuse_to_overwrite(&self.output, &self.inputs)?;
        std::fs::write(&self.output, picture).with_context(|| format!("cannot write {}", self.output.display()))
    }
}
