//! Estimated upper bounds (Kunkel 2006, chapter 4) of a machine: as numbers, and as figures 4.1 to
//! 4.6 with what was measured.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use serde_json::Value;
use weft_analysis::by_hand::{BoundRow, KINDS, by_hand};
use weft_analysis::inputs::{Input, inputs, refuse_to_overwrite};
use weft_analysis::limits;
use weft_analysis::results::Ceiling;
use weft_analysis::run::Run;
use weft_charts::{Unit, stacked};
use weft_host::in_order::once_each;
use weft_host::output::{Table, print, print_json};
use weft_host::units::ByteSize;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Files of `weft bench ceiling --json`, and results of `weft bench ... --json` whose dots are
    /// drawn
    #[arg(value_name = "RESULT")]
    inputs: Vec<PathBuf>,
    /// What the machine is: that of the file of ceilings, by sockets of one kind, or the cluster of
    /// section 4.2.1
    #[arg(long, default_value = "unix", value_parser = ["unix", "tcp", "2006"])]
    hardware: String,
    /// Another fact about it: rtt_us, net_mib, access_us, disk_mib, cpu_ops, meta, data, messages
    /// or accesses
    #[arg(long = "fact", value_name = "NAME=VALUE", value_parser = fact)]
    facts: Vec<(String, f64)>,
    /// Clients at once
    #[arg(long, value_name = "COUNTS", value_delimiter = ',', default_value = "1,5,10,25,50", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    clients: Vec<u32>,
    /// Sizes of requests
    #[arg(long, value_name = "SIZES", value_delimiter = ',', default_value = "1KiB,4KiB,16KiB,64KiB,256KiB,1MiB,10MiB")]
    blocks: Vec<ByteSize>,
    /// Draw figures 4.1 to 4.6 into this file (.svg)
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Print JSON: an object for each bound
    #[arg(long)]
    json: bool,
}

/// `rtt_us=520`
fn fact(text: &str) -> Result<(String, f64), String> {
    let (name, value) = text.split_once('=').ok_or("a fact is NAME=VALUE")?;
    if limits::names().all(|(known, _)| known != name) {
        let known = limits::names().map(|(name, title)| format!("{name} ({title})")).collect::<Vec<_>>();
        return Err(format!("there is no fact {name}; there are {}", known.join(", ")));
    }
    let value: f64 = value.parse().map_err(|_| format!("{value} is no number"))?;
    if value.is_finite() && value > 0.0 { Ok((name.to_string(), value)) } else { Err("a fact is above zero".to_string()) }
}

impl Args {
    pub fn run(self) -> Result<()> {
        // All of it is one run: its measurements, and what the machine can do.
        let paths = inputs(&self.inputs)?.into_iter().flat_map(|input| input.paths).collect::<Vec<_>>();
        let run = match paths.is_empty() {
            true => Run::new(weft_trace::merge::merge(Vec::new()), Vec::new()),
            false => Run::load(&Input { name: "bounds".to_string(), paths }, |_, _| {})?,
        };
        let rows: &[Ceiling] = &run.results.ceilings;
        let typed = |name: &str| self.facts.iter().rev().find(|(known, _)| known == name).map(|(_, value)| *value);
        let facts = limits::facts(&run, rows, typed, &self.hardware);
        let clients: Vec<f64> = self.clients.iter().map(|count| f64::from(*count)).collect();
        let blocks: Vec<f64> = self.blocks.iter().map(|ByteSize(bytes)| *bytes as f64).collect();
        let bounds = by_hand(&facts, &clients, &blocks);
        if bounds.is_empty() {
            bail!("no fact about the machine is known: give the file of `weft bench ceiling --json`, --hardware 2006, or --fact");
        }
        if let Some(output) = &self.output {
            refuse_to_overwrite(output, &self.inputs)?;
            let most = u64::from(self.clients.iter().copied().max().unwrap_or(1));
            let pictures = ["create", "large", "small", "many"].map(|which| limits::chart(&run, &facts, which, most, 960));
            let pictures: Vec<String> = pictures.iter().filter(|chart| !chart.lines.is_empty()).map(weft_charts::Lines::svg).collect();
            std::fs::write(output, stacked("Estimated upper bounds", &pictures))
                .with_context(|| format!("cannot write {}", output.display()))?;
        }
        if self.json {
            return Ok(print_json(&bounds.iter().map(BoundRow::json).collect::<Vec<Value>>())?);
        }
        Ok(print(&text(&bounds))?)
    }
}

/// A table for each kind of request: a line for each bound, over clients or sizes.
fn text(bounds: &[BoundRow]) -> String {
    let mut text = String::new();
    for kind in KINDS {
        let rows: Vec<&BoundRow> = bounds.iter().filter(|row| row.of == kind).collect();
        let Some(first) = rows.first() else { continue };
        let over_blocks = kind == KINDS[2];
        let at = |row: &BoundRow| if over_blocks { row.block.unwrap_or(0.0) } else { row.clients };
        let places = once_each(rows.iter().map(|row| at(row)));
        let names = once_each(rows.iter().map(|row| row.bound));
        let place = |at: f64| if over_blocks { Unit::Bytes.format(at) } else { format!("{at} client{}", if at == 1.0 { "" } else { "s" }) };
        let headings: Vec<String> = places.iter().map(|at| format!(">{}", place(*at))).collect();
        let mut table = Table::new(&std::iter::once(first.of).chain(headings.iter().map(String::as_str)).collect::<Vec<_>>());
        for name in names {
            let rate = |wanted: &f64| {
                let found = rows.iter().find(|row| row.bound == name && at(row) == *wanted);
                found.map_or_else(|| "-".to_string(), |row| said(row))
            };
            table.row(std::iter::once(name.to_string()).chain(places.iter().map(rate)).collect());
        }
        text += &format!("{}{}", if text.is_empty() { "" } else { "\n" }, table.render());
    }
    text
}

/// Creates as the thesis prints them, bytes by powers of 1000 as it does.
fn said(row: &BoundRow) -> String {
    match row.block.is_none() && row.of == KINDS[0] {
        true => format!("{:.1}/s", row.rate),
        false => format!("{:.1} MB/s", row.rate / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_analysis::limits::CLUSTER_2006;

    #[test]
    fn the_table_says_what_the_thesis_worked_out() {
        let bounds = by_hand(&CLUSTER_2006, &[1.0, 5.0], &[1024.0, 1048576.0]);
        let text = text(&bounds);
        let line =
            |begin: &str| text.lines().find(|line| line.starts_with(begin)).unwrap_or_else(|| panic!("{begin} in {text}")).to_string();
        assert!(line("the same on the best disk").contains("76.5/s"), "{text}");
        assert!(line("disks ").contains("200.0 MB/s"), "{text}");
        assert!(line("requests of one client").ends_with("1 MiB"), "{text}");
        assert_eq!(text.matches("network").count(), 4);
    }

    #[test]
    fn facts_are_typed_in_by_name() {
        assert_eq!(fact("rtt_us=520"), Ok(("rtt_us".to_string(), 520.0)));
        for (wrong, why) in
            [("rtt_us", "NAME=VALUE"), ("speed=3", "there are rtt_us (round trip"), ("data=x", "is no number"), ("data=-1", "above zero")]
        {
            assert!(fact(wrong).expect_err(wrong).contains(why), "{wrong}");
        }
    }
}
