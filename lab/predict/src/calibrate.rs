//! What a machine is like, from two kinds of measurements: ceilings that have nothing to do with
//! Weft (a wake-up, a system call, copying, the disk), and probes, which are Weft itself doing one
//! thing at a time. Ceilings give the values that can be measured alone and the place where the
//! search for the others begins; the search ends where the simulator, given the same probes, takes
//! the same time and the same processor time.

use std::path::Path;

use anyhow::{Context, Result};
use weft_analysis::results::Spread;
use weft_bench::{LocalPlan, Stop};
use weft_ceiling::{Ceilings, Options, Reps};
use weft_host::connect::Common;
use weft_plan::files::Lab;

use crate::fit::least_squares;
use crate::machine::{MachineProfile, Origin, ProfileValue, Unit};

/// Time of each repetition of a ceiling.
const CEILING_TIME: std::time::Duration = std::time::Duration::from_millis(60);
/// Bytes of a GiB.
const GIB: f64 = (1u64 << 30) as f64;
/// Names of a simulated probe for each that is in flight: enough that its beginning does not count.
const SIMULATED_WINDOWS: u32 = 12;
/// The least.
const SIMULATED_FILES_MIN: u32 = 150;
/// Bytes of a simulated probe of blocks.
const SIMULATED_BYTES: &str = "16MiB";
/// What a doubling of a parameter against its start costs, where a doubling of a time costs 0.69:
/// parameters that no probe tells apart stay where they began.
const PULL: f64 = 0.05;
/// What an error of processor time counts, where one of elapsed time counts 1.
const PROCESSOR_WEIGHT: f64 = 0.4;

/// What is measured without Weft.
#[derive(Clone, Debug, PartialEq)]
pub struct Primitives {
    /// Processors.
    pub cores: u32,
    /// Of messages over a socket, both processes on one processor, one message at a time, in
    /// nanoseconds.
    pub trip_on_one_ns: f64,
    /// The same with each process on a processor of its own, which sleeps while the other works; if
    /// there are two.
    pub trip_on_two_ns: Option<f64>,
    /// Copying what no cache holds, in bytes a second.
    pub copy_bytes_per_s: f64,
    /// Writing into the page cache, in bytes a second.
    pub page_cache_bytes_per_s: f64,
    /// A durable write of 4 KiB, in nanoseconds.
    pub sync_ns: f64,
    /// Durable writes of much, in bytes a second.
    pub disk_bytes_per_s: f64,
}

impl Primitives {
    /// Of a usual machine, for tests.
    #[cfg(test)]
    pub fn usual(cores: u32) -> Primitives {
        Primitives {
            cores,
            trip_on_one_ns: 8e3,
            trip_on_two_ns: (cores > 1).then_some(40e3),
            copy_bytes_per_s: 8e9,
            page_cache_bytes_per_s: 4e9,
            sync_ns: 200e3,
            disk_bytes_per_s: 1e9,
        }
    }

    fn of(ceilings: &Ceilings) -> Result<Primitives> {
        // The best repetition of each: whatever else the machine does makes the others worse.
        let row = |name: &str| ceilings.get(name).map(|row| row.max).with_context(|| format!("{name} could not be measured here"));
        let sync = ceilings.get("disk.append.fdatasync.4KiB.p50").context("durable writes could not be measured here")?;
        Ok(Primitives {
            cores: std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32),
            trip_on_one_ns: 1e9 / row("rpc.unix.1x1.onecpu")?,
            trip_on_two_ns: row("rpc.unix.1x1.twocpus").ok().map(|rate| 1e9 / rate),
            copy_bytes_per_s: row("cpu.memcpy.64MiB.1t")? * 1e9,
            page_cache_bytes_per_s: row("disk.write.cached")? * GIB,
            sync_ns: sync.min * 1e3,
            disk_bytes_per_s: row("disk.write.durable")? * GIB,
        })
    }
}

/// Where the search begins.
pub fn start(of: &Primitives) -> MachineProfile {
    use {Origin::*, Unit::*};
    // A trip on one processor is four system calls and two switches.
    let call_ns = of.trip_on_one_ns / 8.0;
    let wake_ns = of.trip_on_two_ns.map_or(0.0, |trip_ns| (trip_ns - of.trip_on_one_ns) / 2.0).max(0.0);
    let value = |key, value, unit, origin| ProfileValue { key, value, unit, origin };
    let values = vec![
        value("node.cpus", of.cores.into(), Count, Measured),
        value("node.internal_bandwidth", of.copy_bytes_per_s, BytesPerS, Measured),
        value("network.link_bandwidth", 1.25e9, BytesPerS, Assumed),
        value("network.link_latency", 10e3, Ns, Assumed),
        value("network.switch_bandwidth", 1e12, BytesPerS, Assumed),
        value("network.packet", 65536.0, BytesPerS, Assumed),
        value("network.eager", 16384.0, BytesPerS, Assumed),
        value("disk.access", of.sync_ns, Ns, Fitted),
        value("disk.bandwidth", of.disk_bytes_per_s, BytesPerS, Measured),
        value("server.memory", 64e9, BytesPerS, Assumed),
        value("weft.shared_cores", of.cores.into(), Count, Measured),
        value("weft.request", call_ns, Ns, Fitted),
        value("weft.record", call_ns / 2.0, Ns, Fitted),
        value("weft.send", 0.0, Ns, Measured),
        value("weft.call", call_ns, Ns, Fitted),
        value("weft.checksum_bandwidth", 1e10, BytesPerS, Fitted),
        value("weft.copy_bandwidth", of.copy_bytes_per_s, BytesPerS, Fitted),
        value("weft.page_cache_bandwidth", of.copy_bytes_per_s, BytesPerS, Fitted),
        value("weft.page_cache_write_bandwidth", of.page_cache_bytes_per_s, BytesPerS, Fitted),
        value("process.send", call_ns, Ns, Fitted),
        value("process.receive", call_ns, Ns, Fitted),
        value("process.wake", wake_ns, Ns, Measured),
        value("process.waker", call_ns, Ns, Fitted),
        value("process.woken", call_ns, Ns, Fitted),
        value("process.client_request", call_ns, Ns, Fitted),
        value("process.untold_change", call_ns, Ns, Fitted),
        value("process.untold_removal", call_ns, Ns, Fitted),
        value("process.told_record", call_ns / 2.0, Ns, Fitted),
        value("process.known_record", call_ns / 2.0, Ns, Fitted),
        value("process.client_copy_bandwidth", of.copy_bytes_per_s, BytesPerS, Fitted),
        value("process.local_latency", 0.0, Ns, Measured),
    ];
    MachineProfile { description: format!("a machine with {} processors", of.cores), values }
}

/// All processes on one processor: where there are two, the kernel's choice between them decides
/// about the time of an operation, and changes from run to run. What a wake-up takes is measured by
/// itself.
const ON_ONE: &str = "local.processors=1";

const DURABLE: [&str; 2] = ["weft.durability=sync", "workload.measure=[\"create\", \"remove\"]"];

const UNTOLD: [&str; 2] = ["workload.protocol=posix", "workload.directories=own"];

/// One thing that Weft does, on this machine and in the simulator.
struct Probe {
    /// Keys of the plan that are others than usual.
    set: Vec<String>,
    /// How much of it is done here, and how much in the simulator, which knows no noise.
    real: String,
    simulated: String,
}

/// What a probe took.
#[derive(Clone, Debug, PartialEq)]
struct Took {
    phase: String,
    /// Rate, and processor time of clients and servers for an operation in microseconds:
    /// logarithms.
    logarithms: [f64; 3],
    /// How much slower the slowest repetition was than the fastest, as a part of that.
    unrest: f64,
}

fn names(window: u32, files: u32) -> Probe {
    Probe {
        set: vec![ON_ONE.into(), format!("workload.window={window}")],
        real: format!("workload.files={files}"),
        simulated: format!("workload.files={}", (SIMULATED_WINDOWS * window).max(SIMULATED_FILES_MIN)),
    }
}

fn blocks(block: &str, access: &str) -> Probe {
    Probe {
        set: vec![ON_ONE.into(), "workload.kind=own".into(), format!("workload.block={block}"), format!("workload.access={access}")],
        real: "workload.file=192MiB".into(),
        simulated: format!("workload.file={SIMULATED_BYTES}"),
    }
}

/// What probes are for: the parameters that are sought by them.
const OF_NAMES: [&str; 7] =
    ["weft.request", "weft.record", "process.client_request", "process.send", "process.receive", "process.waker", "process.woken"];
/// The same for blocks.
const OF_BLOCKS: [&str; 6] = [
    "weft.call",
    "weft.checksum_bandwidth",
    "weft.copy_bandwidth",
    "weft.page_cache_bandwidth",
    "weft.page_cache_write_bandwidth",
    "process.client_copy_bandwidth",
];

/// What calibration gives.
pub struct Calibrated {
    /// The machine.
    pub machine: MachineProfile,
    /// By how much the rate of each probe in the simulator is above the real one, as a part of
    /// that.
    pub errors: Vec<f64>,
    /// How much slower than its fastest repetition the slowest of a probe was, the median of all
    /// probes.
    pub unrest: f64,
}

/// What clients do without asking.
const OF_UNTOLD_NAMES: [&str; 4] = ["process.untold_change", "process.untold_removal", "process.told_record", "process.known_record"];
/// A durable write alone is not what a server waits for, which hands it to another thread.
const OF_DURABLE_NAMES: [&str; 1] = ["disk.access"];

/// Learns what this machine is like; its file systems are made in `dir`.
///
/// # Errors
/// If something cannot be measured.
pub fn calibrate(dir: Option<&Path>, common: &Common, stop: &Stop, mut tell: impl FnMut(&str)) -> Result<Calibrated> {
    tell("messages, copying and the disk, without Weft");
    let mut options = Options::new(weft_bench::spawner()?);
    options.reps = Reps::new(CEILING_TIME, 3);
    options.only = ["cpu", "rpc", "disk"].map(String::from).to_vec();
    let place = dir.map_or_else(weft_host::job::temporary_dir, Path::to_path_buf);
    let ceilings = weft_ceiling::run_all(&place, &options, |_| stop.check());
    // Ctrl-C of a terminal ends what is measured against, too.
    stop.check()?;
    let mut machine = start(&Primitives::of(&ceilings?)?);
    // Plans of the program itself: what a folder has under these names says nothing about probes.
    let lab = Lab::built_in();
    let measure = |probe: &Probe| measure(&lab, probe, dir, common, stop);

    tell("names, one at a time and 64 at a time");
    let probes = [names(1, 3000), names(64, 30_000)];
    let real: Vec<Vec<Took>> = probes.iter().map(measure).collect::<Result<_>>()?;
    let mut unrest: Vec<f64> = real.iter().flatten().map(|took| took.unrest).collect();
    let mut errors = search(&lab, &mut machine, &OF_NAMES, &probes, &real)?;

    tell("names in a directory of one's own");
    // As many as programs look at again and again: in large directories each look misses caches of
    // the processor.
    let probe = names(1, 4000);
    let untold = [&probe.set[..], &UNTOLD.map(String::from)].concat();
    let probes = [Probe { set: untold, simulated: "workload.files=2000".into(), ..probe }];
    let real: Vec<Vec<Took>> = probes.iter().map(measure).collect::<Result<_>>()?;
    unrest.extend(real.iter().flatten().map(|took| took.unrest));
    errors.extend(search(&lab, &mut machine, &OF_UNTOLD_NAMES, &probes, &real)?);

    tell("blocks of 64 KiB and of 1 MiB");
    let probes = [blocks("64KiB", "write"), blocks("1MiB", "write"), blocks("64KiB", "read"), blocks("1MiB", "read")];
    let real: Vec<Vec<Took>> = probes.iter().map(measure).collect::<Result<_>>()?;
    unrest.extend(real.iter().flatten().map(|took| took.unrest));
    errors.extend(search(&lab, &mut machine, &OF_BLOCKS, &probes, &real)?);
    tell("names that are durable one at a time");
    let durable = names(1, 500);
    let probes = [Probe { set: [&durable.set[..], &DURABLE.map(String::from)].concat(), ..durable }];
    let real: Vec<Vec<Took>> = probes.iter().map(measure).collect::<Result<_>>()?;
    unrest.extend(real.iter().flatten().map(|took| took.unrest));
    errors.extend(search(&lab, &mut machine, &OF_DURABLE_NAMES, &probes, &real)?);
    let unrest = Spread::of(unrest).map_or(0.0, |spread| spread.median);
    Ok(Calibrated { machine, errors, unrest })
}

fn measure(lab: &Lab, probe: &Probe, dir: Option<&Path>, common: &Common, stop: &Stop) -> Result<Vec<Took>> {
    let set = [&probe.set[..], std::slice::from_ref(&probe.real)].concat();
    let plan = LocalPlan { lab, name: "probes", set: &set, repetitions: None, dir };
    let took = |row: weft_bench::Row| {
        let phase = row.phase;
        let servers_us = phase.server_cpu_us_per_op.context("the servers do not tell their processor time")?;
        // The counters of processes go up in steps; below a tenth of a microsecond they say
        // nothing.
        let Spread { median, min, max } = phase.ops_per_s;
        let logarithms = [median, phase.client_cpu_us_per_op.max(0.1), servers_us.max(0.1)].map(f64::ln);
        Ok(Took { phase: phase.phase, logarithms, unrest: 1.0 - min / max })
    };
    plan.measure(common, stop)?.rows.into_iter().map(took).collect()
}
fn simulate(lab: &Lab, machine: &MachineProfile, probe: &Probe) -> Result<Vec<Took>> {
    let set = [&probe.set[..], std::slice::from_ref(&probe.simulated), &machine.settings()].concat();
    let took = |phase: weft_lab_sim::VirtualPhase| {
        let row = phase.results;
        let number = |key: &str| row[key].as_f64().with_context(|| format!("a simulated probe has no {key}"));
        let logarithms =
            [number("operations_per_second")?, number("client_cpu_us_per_op")?.max(0.1), number("server_cpu_us_per_op")?.max(0.1)]
                .map(f64::ln);
        Ok(Took { unrest: 0.0, phase: row["phase"].as_str().unwrap_or_default().to_string(), logarithms })
    };
    weft_lab_sim::virtual_phases(lab, "probes", &set)?.into_iter().map(took).collect()
}

/// Varies the parameters of these keys; gives how far the simulated rates of the probes are off
/// then: by how much they are too high, as parts of the real ones.
fn search(lab: &Lab, machine: &mut MachineProfile, keys: &[&'static str], probes: &[Probe], real: &[Vec<Took>]) -> Result<Vec<f64>> {
    let first: Vec<f64> = keys.iter().map(|key| machine.get(key).unwrap_or(1.0).max(1.0).ln()).collect();
    let with = |at: &[f64]| {
        let mut varied = machine.clone();
        keys.iter().zip(at).for_each(|(key, logarithm)| varied.put(key, logarithm.exp()));
        varied
    };
    let found = least_squares(&first, |at| {
        let varied = with(at);
        let mut errors: Vec<f64> = at.iter().zip(&first).map(|(at, first)| PULL * (at - first)).collect();
        for (probe, real) in probes.iter().zip(real) {
            let simulated = simulate(lab, &varied, probe)?;
            for took in real {
                let same = simulated.iter().find(|one| one.phase == took.phase);
                let same = same.with_context(|| format!("the simulated probe has no {}", took.phase))?;
                let by = |number: usize, weight: f64| weight * (same.logarithms[number] - took.logarithms[number]);
                errors.extend([by(0, 1.0), by(1, PROCESSOR_WEIGHT), by(2, PROCESSOR_WEIGHT)]);
            }
        }
        Ok(errors)
    })?;
    *machine = with(&found);
    let mut offs: Vec<f64> = Vec::new();
    for (probe, real) in probes.iter().zip(real) {
        let simulated = simulate(lab, machine, probe)?;
        let off = |took: &Took| {
            let same = simulated.iter().find(|one| one.phase == took.phase)?;
            Some((same.logarithms[0] - took.logarithms[0]).exp() - 1.0)
        };
        offs.extend(real.iter().filter_map(off));
    }
    Ok(offs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_found_again_by_what_its_probes_took() {
        let lab = Lab::built_in();
        let probes = [names(1, 1), names(64, 1)];
        let first = start(&Primitives::usual(2));
        let mut truth = first.clone();
        for (key, factor) in [("weft.request", 2.5), ("process.client_request", 1.8), ("process.receive", 1.5)] {
            truth.put(key, factor * truth.get(key).expect("a key"));
        }
        let simulate_all = |machine: &MachineProfile| -> Vec<Vec<Took>> {
            probes.iter().map(|probe| simulate(&lab, machine, probe).expect("the probe runs")).collect()
        };
        let real = simulate_all(&truth);
        let mut found = first;
        search(&lab, &mut found, &OF_NAMES, &probes, &real).expect("nothing is refused");
        // Not each parameter, of which some do the same, but all that they predict.
        let held_out = [names(8, 1)];
        let rate = |machine: &MachineProfile| simulate(&lab, machine, &held_out[0]).expect("the probe runs");
        for (found, truth) in rate(&found).iter().zip(&rate(&truth)) {
            let off = (found.logarithms[0] - truth.logarithms[0]).exp();
            assert!((0.9..1.1).contains(&off), "{}: {off} of the truth", found.phase);
        }
    }
}
