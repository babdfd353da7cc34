//! `weft bench tracing`: what recording costs. One temporary file system; creates by the library
//! with every event recorded, and with none, in pairs whose order changes, so that whatever else
//! happens on the machine meets both alike.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use serde::Serialize;
use weft_host::connect::Common;
use weft_host::output::Table;
use weft_recording::nodes::Traced;
use weft_recording::{RING_BYTES_MAX_SERVER, files_in};
use weft_trace::file::TraceFile;
use weft_wire::ops::{TraceAction, TraceMode, TraceRequest};

use crate::crew::{Crew, Stop};
use crate::engines::{Creates, System, measured};
use crate::report;
use crate::run::{Bench, say};
use crate::site::Site;
use crate::stats::{Spread, median_interval};
use crate::usage::Observer;
use crate::work::{Step, Work};
use crate::worker;

/// A server's ring in bytes for each create: one record, and if each create has a turn of its own,
/// that and its part of the journal.
const RING_BYTES_PER_FILE: u64 = 512;

/// Options of the command.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Nothing may be lost: a record that a full ring refuses costs less than one that it takes. `lost` must be 0.

Examples:
  weft bench tracing --pairs 24                   64 requests in flight
  weft bench tracing --depth 1 --files 20000      one after the other")]
pub struct Args {
    #[command(flatten)]
    creates: Creates,
    /// Pairs of one repetition with records and one without
    #[arg(long, value_name = "N", default_value_t = 12, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pairs: u32,
    /// Events that are recorded, as for `weft trace on`
    #[arg(long, value_name = "EVENTS", default_value = "*")]
    mask: String,
}

/// What was found.
#[derive(Serialize)]
struct Cost {
    pairs: u32,
    off_per_s: Spread,
    on_per_s: Spread,
    /// Of each pair: with records to without.
    ratio: Spread,
    /// Its median lies between these with 95 %.
    ratio_interval: (f64, f64),
    /// Processor time for a create with records less that without, in microseconds: medians.
    servers_us_per_create: f64,
    client_us_per_create: f64,
    records_per_create: f64,
    lost: u64,
}

/// One repetition.
struct One {
    per_s: f64,
    servers_us: f64,
    client_us: f64,
}

impl Args {
    /// Measures and prints.
    ///
    /// # Errors
    /// If the file system cannot be started or fails, or nothing can be recorded.
    pub fn run(self, common: &Common) -> Result<ExitCode> {
        measured(self.creates.dir.as_deref(), self.creates.json, |place, stop| Ok(vec![self.measure(place, stop, common)?]), table)
    }

    fn measure(&self, place: &Path, stop: &Stop, common: &Common) -> Result<Cost> {
        let meta = self.creates.meta.to_string();
        let system = System::start(place.join("fs"), &["--data", "1", "--meta", &meta])?;
        let site = Site::in_file_system(system.state.as_os_str(), common)?;
        let work = self.creates.work();
        site.make_dirs(&work)?;
        let bench = Bench {
            site: &site,
            observer: site.fs().map(|fs| Observer::new(fs, None)),
            yardstick: None,
            stop,
            common,
            reps: self.pairs,
            pause: std::time::Duration::ZERO,
        };
        let traced = Traced::find(system.state.as_os_str(), "*", common)?;
        let mut remover = bench.crew(&work)?;
        let (mut pairs, mut records, mut lost) = (Vec::new(), 0, 0);
        for pair in 1..=self.pairs {
            let mut one = |is_on: bool| -> Result<One> {
                let folder = tempfile::Builder::new().prefix("records-").tempdir_in(place).context("cannot make a folder for records")?;
                let one = self.repetition(&bench, &work, is_on.then_some((&traced, folder.path())), pair)?;
                let (more, gone) = if is_on { count(folder.path())? } else { (0, 0) };
                (records, lost) = (records + more, lost + gone);
                remover.run(Step::Remove, &work, || Ok(()))?;
                Ok(one)
            };
            let first = one(pair % 2 == 0)?;
            let second = one(pair % 2 == 1)?;
            pairs.push(if pair % 2 == 0 { (second, first) } else { (first, second) });
        }
        drop(remover);
        drop(bench);
        drop(site);
        cost(&pairs, records, work.files * u64::from(work.clients), lost)
    }

    /// Creates by a process of its own, so that its rings and its memory are new both times.
    fn repetition(&self, bench: &Bench<'_>, work: &Work, recorded: Option<(&Traced, &Path)>, pair: u32) -> Result<One> {
        if let Some((servers, _)) = recorded {
            servers.ask_all(&TraceRequest {
                mask: self.mask.clone(),
                mode: TraceMode::Bench,
                ring_bytes: (work.files * u64::from(work.clients) * RING_BYTES_PER_FILE + (1 << 20)).min(RING_BYTES_MAX_SERVER),
                ..TraceRequest::new(TraceAction::On)
            })?;
        }
        let (site, root) = (bench.site, bench.site.root());
        let words = |process| worker::Args::words(site.fs_arg(), &root, process, work.depth);
        let mut crew = Crew::start_traced(bench.common, work.procs, words, bench.stop, recorded.map(|(_, folder)| folder))?;
        let one = bench.timed(&mut crew, Step::Create, work)?;
        // The processes write their records when they end: before the next ones begin.
        drop(crew);
        if let Some((servers, folder)) = recorded {
            let problems = servers.gather(&mut servers.end()?, Some(folder), true);
            if !problems.is_empty() {
                bail!("the records of the servers are not here: {}", problems.join("; "));
            }
        }
        say(if recorded.is_some() { "recorded" } else { "not recorded" }, pair, self.pairs, &one);
        let creates = one.outcome.tally.ops as f64;
        Ok(One {
            per_s: creates / one.outcome.seconds,
            servers_us: one.usage.map_or(0.0, |usage| usage.servers_us as f64) / creates,
            client_us: one.outcome.cpu_us as f64 / creates,
        })
    }
}

/// Records in the files of a folder, and how many more there should be.
fn count(folder: &Path) -> Result<(usize, u64)> {
    let files = files_in(folder)?;
    if files.len() < 3 {
        bail!("client and servers have written {} trace files, not all", files.len());
    }
    files.iter().try_fold((0, 0), |(records, lost), path| {
        let file = TraceFile::read(&std::fs::read(path)?).with_context(|| path.display().to_string())?;
        Ok((records + file.records.len(), lost + file.lost()))
    })
}

fn cost(pairs: &[(One, One)], records: usize, creates: u64, lost: u64) -> Result<Cost> {
    let spread = |value: fn(&(One, One)) -> f64| Spread::of(pairs.iter().map(value)).context("a repetition took no time");
    let (off_per_s, on_per_s) = (spread(|(off, _)| off.per_s)?, spread(|(_, on)| on.per_s)?);
    let ratios = || pairs.iter().map(|(off, on)| on.per_s / off.per_s);
    Ok(Cost {
        pairs: pairs.len() as u32,
        off_per_s,
        on_per_s,
        ratio: Spread::of(ratios()).context("a repetition took no time")?,
        ratio_interval: median_interval(ratios()).context("a repetition took no time")?,
        servers_us_per_create: spread(|(off, on)| on.servers_us - off.servers_us)?.median,
        client_us_per_create: spread(|(off, on)| on.client_us - off.client_us)?.median,
        records_per_create: records as f64 / (pairs.len() as u64 * creates) as f64,
        lost,
    })
}

fn table(costs: &[Cost]) -> String {
    let mut table = Table::new(&["", ">value", "min - max"]);
    let range = |spread: &Spread| format!("{} - {}", report::number(spread.min), report::number(spread.max));
    for cost in costs {
        let mut row = |name: &str, value: f64, range: String| table.row(vec![name.into(), report::number(value), range]);
        row("creates/s, nothing recorded", cost.off_per_s.median, range(&cost.off_per_s));
        row("creates/s, recorded", cost.on_per_s.median, range(&cost.on_per_s));
        row(&format!("ratio of {} pairs", cost.pairs), cost.ratio.median, range(&cost.ratio));
        let (low, high) = cost.ratio_interval;
        row("its median, 95 %", cost.ratio.median, format!("{} - {}", report::number(low), report::number(high)));
        row("servers, more us/create", cost.servers_us_per_create, String::new());
        row("client, more us/create", cost.client_us_per_create, String::new());
        row("records/create", cost.records_per_create, String::new());
        row("records lost", cost.lost as f64, String::new());
    }
    table.render()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cost_is_that_of_pairs() {
        let one = |per_s: f64| One { per_s, servers_us: 1e6 / per_s, client_us: 2.0 };
        let cost = cost(&[(one(100.0), one(50.0)), (one(1000.0), one(900.0)), (one(10.0), one(8.0))], 900, 100, 7).unwrap();
        assert_eq!(cost.ratio, Spread { median: 0.8, min: 0.5, max: 0.9 });
        assert_eq!((cost.records_per_create, cost.lost, cost.client_us_per_create), (3.0, 7, 0.0));
        assert!(cost.servers_us_per_create > 0.0);
        assert!(table(&[cost]).contains("records lost"));
    }
}
