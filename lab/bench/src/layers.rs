//! `weft bench layers`: what the order of accesses to the disk is worth. Temporary file systems,
//! one for each cache layer; ten clients write one file and read it again, each every tenth block,
//! with 1, 100 or all of a client's blocks in one call: the individual accesses of Kuhn's thesis
//! (2009), section 6.4.1, on this machine. The layers take turns, so that whatever else happens
//! meets all alike. With direct I/O the operations of the disks stand beside those that the
//! simulator predicts (`prediction.rs`).

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Barrier;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use serde::Serialize;
use weft_base::ROOT_HANDLE;
use weft_client::CreateOptions;
use weft_host::config::cache_config;
use weft_host::config::{self, Durability, LayerKind};
use weft_host::connect::{Common, Fs};
use weft_host::output::Table;
use weft_host::units::{ByteSize, human_bytes};
use weft_rt::Bulk;
use weft_wire::Rights;
use weft_wire::ops::DiskUse;

use crate::crew::Stop;
use crate::engines::{System, in_turns, measured};
use crate::prediction::Case;
use crate::report::number;
use crate::stats::Spread;

/// The file that all clients share.
const NAME: &[u8] = b"interleaved";
/// Each block begins with its number.
const MARK_BYTES: usize = 8;

/// Options of the command.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "With direct I/O the operations of the disks stand beside those that the simulator predicts for the same calls: of clients that take \
    no time between them, and of clients as slow as those of the layer none.\n\nExample:\n  weft bench layers --direct-io --dir /mnt/disk --size \
    32MiB --reps 5"
)]
pub struct Args {
    /// Where the file systems are [default: where temporary files are]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Layers
    #[arg(long, value_parser = config::layers(), value_delimiter = ',', default_values_t = LayerKind::ALL)]
    layers: Vec<LayerKind>,
    /// Data servers go to their disks past the page cache
    #[arg(long)]
    direct_io: bool,
    /// When an acknowledged change is safe; with none and direct I/O writes are answered before
    /// they are on the disk
    #[arg(long, value_parser = config::durabilities(), default_value_t = Durability::Batch)]
    durability: Durability,
    /// Data servers of each file system
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=64))]
    data: u16,
    /// Clients, each with connections of its own
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=256))]
    clients: u64,
    /// Bytes of the file
    #[arg(long, value_name = "SIZE", default_value = "50MiB")]
    size: ByteSize,
    /// Sizes of blocks
    #[arg(long, value_name = "SIZE", value_delimiter = ',', default_values = ["5KiB", "50KiB", "512KiB"])]
    blocks: Vec<ByteSize>,
    /// Blocks of one call; 0: all of a client
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = [1, 100, 0])]
    per: Vec<u64>,
    /// Stripe size
    #[arg(long, value_name = "SIZE", default_value = "64KiB")]
    stripe_size: ByteSize,
    /// Repetitions
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    reps: u32,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// One measured pass over the file.
#[derive(Clone, Copy, Debug, Default)]
struct Pass {
    seconds: f64,
    disk: Used,
}

/// Operations of all disks.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct Used {
    operations: u64,
    bytes: u64,
    sequential: u64,
    near: u64,
    far: u64,
}

/// A result.
#[derive(Debug, Serialize)]
struct Row {
    access: &'static str,
    block: u64,
    per: u64,
    cache_layer: String,
    #[serde(skip)]
    layer: LayerKind,
    mib_per_s: Spread,
    ratio_to_none: Option<Spread>,
    /// Of the median repetition by operations.
    disk: Used,
    /// Only with direct I/O.
    predicted: Option<Predicted>,
}

/// Operations that the simulator predicts.
#[derive(Clone, Copy, Debug, Serialize)]
struct Predicted {
    /// For clients that take no time between their calls.
    eager: u64,
    /// For clients as slow as they were with the layer `none`.
    paced: u64,
}

impl Args {
    /// Measures and prints.
    ///
    /// # Errors
    /// If a file system cannot be started or fails, or gives other bytes than were written.
    pub fn run(self, common: &Common) -> Result<ExitCode> {
        measured(self.dir.as_deref(), self.json, |place, stop| self.measure(place, stop, common), table)
    }

    fn measure(&self, place: &Path, stop: &Stop, common: &Common) -> Result<Vec<Row>> {
        let mut systems = Vec::new();
        let (data, stripe) = (self.data.to_string(), self.stripe_size.to_string());
        for layer in &self.layers {
            stop.check()?;
            let name = layer.to_string();
            let mut arguments = vec!["--meta", "1", "--data", &data, "--stripe-size", &stripe, "--cache-layer", &name];
            let durability = self.durability.to_string();
            arguments.extend(["--durability", &durability]);
            arguments.extend(self.direct_io.then_some("--direct-io"));
            let system = System::start(place.join(&name), &arguments)?;
            let clients = (0..self.clients).map(|_| Fs::open(system.state.as_os_str(), common)).collect::<Result<Vec<Fs>>>()?;
            systems.push((system, clients));
        }
        let mut rows = Vec::new();
        for block in &self.blocks {
            let mut done_per = BTreeSet::new();
            for per in &self.per {
                let blocks = self.size.0 / block.0 / self.clients;
                ensure!(blocks > 0 && block.0 as usize >= MARK_BYTES, "{} has no block of {} for each client", self.size, block);
                let per_call = if *per == 0 { blocks } else { (*per).min(blocks) };
                let (servers, stripe_bytes) = (self.data, self.stripe_size.0);
                let case = Case { clients: self.clients, servers, stripe_bytes, block_bytes: block.0, blocks, per_call, writes: false };
                // All of a client may be fewer than so many.
                if !done_per.insert(case.per_call) {
                    continue;
                }
                let mut runs: Vec<_> = systems.iter().map(|(_, clients)| (clients, [Vec::new(), Vec::new()])).collect();
                in_turns(stop, self.reps, &mut runs, |(clients, passes), _| {
                    for (access, passes) in [Rights::WRITE, Rights::READ].into_iter().zip(passes) {
                        passes.push(pass(clients, case, access)?);
                    }
                    Ok(())
                })?;
                weft_host::output::tell_plainly(&format!("blocks of {block}, {} in a call: measured", case.per_call));
                let passes: Vec<_> = runs.into_iter().map(|(_, passes)| passes).collect();
                let mut done = rows_of(case, &self.layers, &passes);
                if self.direct_io {
                    self.predict(case, &mut done)?;
                }
                rows.append(&mut done);
            }
        }
        Ok(rows)
    }
}

impl Args {
    /// Adds predictions to the rows of one case.
    fn predict(&self, case: Case, rows: &mut [Row]) -> Result<()> {
        for writes in [true, false] {
            let case = Case { writes, ..case };
            let cache = |layer| cache_config(layer, true, self.durability);
            let is_ours = |row: &&mut Row| (row.access == "write") == writes;
            let none =
                rows.iter_mut().filter(is_ours).find(|row| row.layer == LayerKind::None).map(|row| case.mib() / row.mib_per_s.median);
            let between_ns = match none {
                Some(seconds) => case.between_calls(&cache(LayerKind::None), seconds)?,
                None => 0,
            };
            for row in rows.iter_mut().filter(is_ours) {
                let (eager, paced) = (case.operations(&cache(row.layer), 0)?, case.operations(&cache(row.layer), between_ns)?);
                row.predicted = Some(Predicted { eager, paced });
            }
        }
        Ok(())
    }
}

/// All clients go over the file once.
fn pass(clients: &[Fs], case: Case, access: Rights) -> Result<Pass> {
    let leader = &clients[0];
    if access == Rights::WRITE {
        let _ = leader.run(leader.client.unlink(&leader.who, ROOT_HANDLE, NAME));
        let options = CreateOptions { rights: Rights::WRITE, ..CreateOptions::default() };
        let (_, file, _) = leader.run_at(NAME, leader.client.create(&leader.who, ROOT_HANDLE, NAME, &options))?;
        leader.run_at(NAME, leader.client.close(file))?;
    }
    let handle = leader.stat(&[b"/", NAME].concat(), true)?.handle;
    let before = used(leader)?;
    let synced = |fs: &Fs| -> Result<()> {
        let file = fs_open(fs, handle, access)?;
        fs.run_at(NAME, fs.client.fsync(&file, true))?;
        fs.run_at(NAME, fs.client.close(file))
    };
    let barrier = Barrier::new(clients.len());
    let times: Vec<Result<(Instant, Instant)>> = std::thread::scope(|scope| {
        let run = |(number, fs)| {
            let barrier = &barrier;
            scope.spawn(move || {
                let opened = fs_open(fs, handle, access);
                let mut data = data_of(case, number);
                // All or nobody waits here, also when an open has failed.
                barrier.wait();
                let file = opened?;
                let began = Instant::now();
                let done = fs.run(go_over(fs, &file, case, number, access, &mut data));
                let ended = Instant::now();
                fs.run_at(NAME, fs.client.close(file))?;
                done.map(|()| (began, ended))
            })
        };
        let threads: Vec<_> = (0..).zip(clients).map(run).collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| bail!("a client has panicked"))).collect()
    });
    let times = times.into_iter().collect::<Result<Vec<_>>>()?;
    if access == Rights::WRITE {
        // What was answered early counts as operations of this pass.
        synced(leader)?;
    }
    let (began, ended) = (times.iter().map(|time| time.0).min(), times.iter().map(|time| time.1).max());
    let seconds = began.zip(ended).map_or(0.0, |(began, ended)| (ended - began).as_secs_f64());
    Ok(Pass { seconds, disk: used(leader)?.since(&before) })
}

type File = std::sync::Arc<weft_client::OpenFile>;

fn fs_open(fs: &Fs, handle: weft_base::Handle, access: Rights) -> Result<File> {
    Ok(fs.run_at(NAME, fs.client.open(&fs.who, handle, access, false))?.1)
}

/// The data of one call, to be marked.
fn data_of(case: Case, client: u64) -> Vec<u8> {
    (0..case.per_call * case.block_bytes).map(|at| (at.wrapping_mul(31) >> 3) as u8 ^ client as u8).collect()
}

async fn go_over(fs: &Fs, file: &File, case: Case, client: u64, access: Rights, data: &mut [u8]) -> Result<()> {
    let explain = |error| fs.explain(NAME, error);
    let mut first = 0;
    while first < case.blocks {
        let numbers: Vec<u64> = (first..(first + case.per_call).min(case.blocks)).map(|index| index * case.clients + client).collect();
        let ranges: Vec<(u64, u64)> = numbers.iter().map(|number| (number * case.block_bytes, case.block_bytes)).collect();
        if access == Rights::WRITE {
            for (block, number) in data.chunks_mut(case.block_bytes as usize).zip(&numbers) {
                block[..MARK_BYTES].copy_from_slice(&number.to_le_bytes());
            }
            let data = &data[..numbers.len() * case.block_bytes as usize];
            fs.client.write_list(file, &ranges, Bulk::Slices(vec![data])).await.map_err(explain)?;
        } else {
            for (pieces, number) in fs.client.read_list(file, &ranges).await.map_err(explain)?.iter().zip(&numbers) {
                let bytes: u64 = pieces.iter().map(weft_base::Payload::len).sum();
                let mark = pieces.first().map(|piece| piece.slice(0, piece.len().min(MARK_BYTES as u64)).to_bytes());
                let is_right = bytes == case.block_bytes && mark.as_deref() == Some(&number.to_le_bytes()[..]);
                ensure!(is_right, "block {number} is not what was written");
            }
        }
        first += case.per_call;
    }
    Ok(())
}

/// What all data servers have asked of their disks.
fn used(fs: &Fs) -> Result<Used> {
    let mut sum = Used::default();
    for (server, answer) in fs.ping_all() {
        let info = answer.map_err(|error| fs.explain(b"/", error)).with_context(|| format!("{} does not answer", server.name))?;
        if let Some(disk) = info.disk {
            sum.add(&disk);
        }
    }
    Ok(sum)
}

impl Used {
    fn add(&mut self, disk: &DiskUse) {
        self.operations += disk.reads + disk.writes;
        self.bytes += disk.read_bytes + disk.written_bytes;
        self.sequential += disk.sequential;
        self.near += disk.near;
        self.far += disk.far;
    }

    fn since(&self, before: &Used) -> Used {
        Used {
            operations: self.operations - before.operations,
            bytes: self.bytes - before.bytes,
            sequential: self.sequential - before.sequential,
            near: self.near - before.near,
            far: self.far - before.far,
        }
    }
}

/// Each repetition is compared with the one of `none` just before it.
fn rows_of(case: Case, layers: &[LayerKind], passes: &[[Vec<Pass>; 2]]) -> Vec<Row> {
    let rate = |pass: &Pass| case.mib() / pass.seconds;
    let mut rows = Vec::new();
    for (index, access) in ["write", "read"].into_iter().enumerate() {
        let none = layers.iter().position(|layer| *layer == LayerKind::None).map(|at| &passes[at][index]);
        for (layer, passes) in layers.iter().zip(passes) {
            let passes = &passes[index];
            let Some(mib_per_s) = Spread::of(passes.iter().map(rate)) else { continue };
            let ratio_to_none = none.and_then(|none| Spread::of(passes.iter().zip(none).map(|(one, none)| rate(one) / rate(none))));
            let mut by_operations = passes.clone();
            by_operations.sort_by_key(|pass| pass.disk.operations);
            let disk = by_operations[passes.len() / 2].disk;
            let cache_layer = layer.to_string();
            let (block, per, layer) = (case.block_bytes, case.per_call, *layer);
            rows.push(Row { access, block, per, cache_layer, layer, mib_per_s, ratio_to_none, disk, predicted: None });
        }
    }
    rows
}

fn table(rows: &[Row]) -> String {
    let headings = [
        "access",
        ">block",
        ">in a call",
        "layer",
        ">MiB/s",
        "min - max",
        ">of none",
        "min - max",
        ">operations",
        ">of eager clients",
        ">real/that",
        ">of paced clients",
        ">real/that",
        ">sequential",
        ">near",
        ">far",
        ">read or written",
    ];
    let mut table = Table::new(&headings);
    let spread = |spread: Spread| format!("{} - {}", number(spread.min), number(spread.max));
    for row in rows {
        let ratio = |predicted: u64| number(row.disk.operations as f64 / predicted as f64);
        table.row(vec![
            row.access.to_string(),
            human_bytes(row.block),
            row.per.to_string(),
            row.cache_layer.clone(),
            number(row.mib_per_s.median),
            spread(row.mib_per_s),
            row.ratio_to_none.map(|ratio| number(ratio.median)).unwrap_or_default(),
            row.ratio_to_none.map(spread).unwrap_or_default(),
            row.disk.operations.to_string(),
            row.predicted.map(|predicted| predicted.eager.to_string()).unwrap_or_default(),
            row.predicted.map(|predicted| ratio(predicted.eager)).unwrap_or_default(),
            row.predicted.map(|predicted| predicted.paced.to_string()).unwrap_or_default(),
            row.predicted.map(|predicted| ratio(predicted.paced)).unwrap_or_default(),
            row.disk.sequential.to_string(),
            row.disk.near.to_string(),
            row.disk.far.to_string(),
            human_bytes(row.disk.bytes),
        ]);
    }
    table.render()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_repetition_is_compared_with_none_in_the_same_repetition() {
        let case = Case { clients: 5, servers: 1, stripe_bytes: 65536, block_bytes: 1 << 20, blocks: 2, per_call: 1, writes: false };
        let pass = |seconds, operations| Pass { seconds, disk: Used { operations, ..Used::default() } };
        let none = [vec![pass(1.0, 10), pass(2.0, 12), pass(4.0, 11)], vec![pass(1.0, 10); 3]];
        let other = [vec![pass(2.0, 5), pass(2.0, 6), pass(2.0, 7)], vec![pass(0.5, 1); 3]];
        let rows = rows_of(case, &[LayerKind::None, LayerKind::ServerDirected], &[none, other]);
        assert_eq!(rows.iter().map(|row| row.access).collect::<Vec<_>>(), ["write", "write", "read", "read"]);
        assert_eq!(rows[0].mib_per_s, Spread { median: 5.0, min: 2.5, max: 10.0 });
        assert_eq!(rows[0].disk.operations, 11);
        assert_eq!(rows[1].ratio_to_none, Some(Spread { median: 1.0, min: 0.5, max: 2.0 }));
        assert_eq!((rows[3].ratio_to_none.map(|ratio| ratio.median), rows[3].disk.operations), (Some(2.0), 1));
        assert_eq!(table(&rows).lines().count(), 5);
    }
}
