//! Weft's own servers and clients as the simulated system (`system = "weft"`): the machines of a
//! plan become a profile of the runtime in virtual time, what the processor needs for Weft comes
//! from the section `[weft]`.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use serde_json::{Map, Value, json};
use toml::de::DeValue;
use weft_layout::Strips;
use weft_model::DiskModel;
use weft_piosim::{CacheLayerConfig, ClusterConfig};
use weft_plan::document::{Choices, Table, integer, text, truth};
use weft_plan::units::{FILES_MAX, bytes, count, name, up_to};
use weft_plan::workload;
use weft_rt_sim::Profile;
use weft_rt_sim::models::{ProcessProfile, SeekProfile};
use weft_virtual_cluster::{ClusterShape, Durability, Engine, PhaseReport, TracedRun};
use weft_workload::{Items, Workload};

use crate::cluster::{Layered, nanos};

/// A case, ready to be run.
pub struct WeftCase {
    shape: ClusterShape,
    work: Workload,
}

/// Cores of a machine that all share: beyond that a plan has a number wrong.
const CORES_MAX: u32 = 4096;
const CACHES: [(&str, bool); 2] = [("yes", true), ("no", false)];

/// Reads what a plan says of Weft: the section `[weft]` and the one `[[workload]]`. `config` has
/// the machines.
///
/// # Errors
/// Names file, line and key of what is wrong.
pub fn read<'a>(
    root: &Table<'a>,
    profile: Option<&Table<'a>>,
    workloads: &[Table<'_>],
    config: &ClusterConfig,
    seed: Option<u64>,
    choices: &mut Choices,
) -> Result<WeftCase> {
    let small = |key: &str, number: u32| u16::try_from(number).map_err(|_| root.error(key, "Weft counts its servers up to 65535"));
    let mut shape = ClusterShape {
        data: small("servers", config.servers)?,
        stripe_bytes: u32::try_from(config.stripe_bytes).map_err(|_| root.error("stripe", "is larger than Weft has them"))?,
        cache_layer: match &config.server.cache_layer {
            CacheLayerConfig::Classic { kind, .. } | CacheLayerConfig::Improved { kind, .. } => *kind,
        },
        ..ClusterShape::default()
    };
    let planned = root.swept("seed", choices, integer)?;
    shape.seed = seed.or(planned).unwrap_or(shape.seed);
    let layout = weft_base::Layout { stripe_bytes: shape.stripe_bytes, width: shape.data, first: 0, generation: 1 };
    if weft_layout::check(&layout).is_err() {
        let problem =
            format!("no stripes of {} bytes over {} servers: a power of two from 4 KiB to 64 MiB", shape.stripe_bytes, shape.data);
        return Err(root.error("stripe", &problem));
    }
    let mut section = Layered::open(root, profile, "weft", choices)?;
    if let Some(servers) = section.get("metadata_servers", count)? {
        shape.meta = small("weft.metadata_servers", servers)?;
    }
    section.set("engine", &mut shape.storage, |value| name(value, &Engine::ALL.map(|engine| (engine.name(), engine))))?;
    let contract = |value: &DeValue<'_>| name(value, &Durability::ALL.map(|durability| (durability.name(), durability)));
    section.set("durability", &mut shape.contracts.first, contract)?;
    shape.contracts.changed = section.get("change_durability", contract)?;
    if shape.contracts.changed.is_some() && shape.storage == Engine::Memory {
        return Err(root.table("weft")?.error("change_durability", "the engine memory promises nothing"));
    }
    let strips = |value: &DeValue<'_>| Strips::parse(&text(value)?).map_err(|problem| problem.to_string());
    shape.strips = section.get("strips", strips)?.map(Arc::new);
    if let Some(strips) = shape.strips.as_ref().filter(|strips| strips.width() > shape.data) {
        return Err(section.error("strips", &format!("{} data servers are needed, there are {}", strips.width(), shape.data)));
    }
    section.set("flush_each", &mut shape.flush_each, truth)?;
    if shape.flush_each && (shape.storage, shape.contracts.first) != (Engine::Journal, Durability::Sync) {
        return Err(root.table("weft")?.error("flush_each", "is for the engine journal with durability sync"));
    }
    // Over a profile of a shared machine, a plan may say that there is none.
    let shared = |value: &DeValue<'_>| match text(value).as_deref() {
        Ok("none") => Ok(None),
        _ => up_to(value, CORES_MAX).map(|cores| Some(cores as usize)),
    };
    shape.shared_cores = section.get("shared_cores", shared)?.flatten();
    // Real clients and servers that shall run on some of the processors of a machine.
    let local = root.table("local")?.value("processors", |value| up_to(value, CORES_MAX))?.map(|cores| cores as usize);
    shape.shared_cores = shape.shared_cores.map(|cores| local.map_or(cores, |local| local.min(cores)));
    shape.profile = machines(&mut section, config)?;
    section.finish()?;
    processes(Layered::open(root, profile, "process", choices)?, &mut shape.profile)?;
    let [table] = workloads else {
        return Err(root.error("workload", "Weft's own servers and clients run one workload at a time"));
    };
    let kind = table.swept("kind", choices, |value| name(value, &workload::KINDS))?.ok_or_else(|| table.error("kind", "is missing"))?;
    let depth = table.swept("window", choices, count)?.unwrap_or(1);
    let threads = root.table("local")?.swept("threads", choices, |value| up_to(value, workload::THREADS_MAX))?.unwrap_or(1);
    let clients = config.clients.checked_mul(threads).ok_or_else(|| root.error("clients", "are too many with these threads"))?;
    let work = workload::read(table, kind, clients, choices)?;
    if u64::from(clients).saturating_mul(work.files) > u64::from(FILES_MAX) {
        return Err(table.error("files", &format!("clients in virtual time make at most {FILES_MAX} in all")));
    }
    let fsync = table.swept("fsync", choices, truth)?.unwrap_or(false);
    if fsync && matches!(kind, workload::Kind::Names | workload::Kind::Files) {
        return Err(table.error("fsync", "is for files that are written block by block"));
    }
    if work.procs != clients {
        return Err(table.error("ranks", "each client of Weft is one rank: leave this away"));
    }
    let unknown = ["items", "naming", "subdirs", "tree_depth", "tree_branching"].into_iter().find(|key| table.has(key));
    if let Some(key) = unknown.filter(|_| work.items != Items::default()) {
        return Err(table.error(key, "is for `weft bench run`: clients in virtual time have no such work"));
    }
    if matches!(kind, workload::Kind::Files) && work.size > work.block {
        return Err(table.error("size", &format!("clients in virtual time make whole files of at most {} bytes", work.block)));
    }
    table.finish()?;
    let work = Workload { procs: config.clients, clients: threads, depth, fsync, ..work };
    weft_virtual_cluster::check(&work, shape.strips.is_some()).map_err(|problem| table.error("kind", &problem.to_string()))?;
    Ok(WeftCase { shape, work })
}

/// The machines as the runtime in virtual time knows them.
fn machines(section: &mut Layered<'_, '_>, config: &ClusterConfig) -> Result<Profile> {
    let mut profile = Profile::default();
    let Profile { net, cpu, disk, .. } = &mut profile;
    section.set("request", &mut cpu.request_ns, nanos)?;
    section.set("record", &mut cpu.record_ns, nanos)?;
    section.set("send", &mut net.send_ns, nanos)?;
    section.set("call", &mut disk.call_ns, nanos)?;
    section.set("access_spread", &mut disk.access_spread_ns, nanos)?;
    section.set("checksum_bandwidth", &mut cpu.checksum_bytes_per_s, bytes)?;
    section.set("copy_bandwidth", &mut cpu.copy_bytes_per_s, bytes)?;
    section.set("page_cache_bandwidth", &mut disk.memory_bytes_per_s, bytes)?;
    disk.memory_write_bytes_per_s = disk.memory_bytes_per_s;
    section.set("page_cache_write_bandwidth", &mut disk.memory_write_bytes_per_s, bytes)?;
    section.set("reads_cached", &mut disk.reads_cached, |value| name(value, &CACHES))?;
    let ns = |seconds: f64| (seconds * 1e9).round() as u64;
    // A path has two links, each of which a message passes as a whole in the model; cards and
    // switch of this runtime pass it through.
    net.latency_ns = 2 * ns(config.node.card.link_latency);
    net.bytes_per_s = config.node.card.link_bandwidth;
    let bandwidth;
    (disk.read_ns, disk.sync_ns, bandwidth, disk.seek) = match config.server.disk {
        DiskModel::Refined { rpm, average_seek, track_seek, bandwidth, close_bytes } => {
            let half_rotation = 30.0 / rpm;
            let seek =
                SeekProfile { near_ns: ns(half_rotation + track_seek), far_ns: ns(half_rotation + average_seek), near_bytes: close_bytes };
            (0, 0, bandwidth, Some(seek))
        }
        DiskModel::Simple { access, bandwidth } => (ns(access), ns(access), bandwidth, None),
        DiskModel::Ssd { page_read, page_program, bandwidth, .. } => (ns(page_read), ns(page_program), bandwidth, None),
        DiskModel::Ram { latency, bandwidth } => (ns(latency), ns(latency), bandwidth, None),
    };
    (disk.read_bytes_per_s, disk.write_bytes_per_s) = (bandwidth, bandwidth);
    if !matches!(config.server.disk, DiskModel::Simple { .. }) {
        disk.access_spread_ns = 0;
    }
    Ok(profile)
}

/// `[process]`: what processes pay for messages and sleep. Nothing, unless one of its keys is
/// given; those that are missing cost nothing then, and a client's request as much as a server's.
fn processes(mut section: Layered<'_, '_>, profile: &mut Profile) -> Result<()> {
    section.set("local_latency", &mut profile.net.loopback_ns, nanos)?;
    let mut is_given = false;
    let mut time = |key: &str, usual: u64| {
        let found = section.get(key, nanos)?;
        is_given |= found.is_some();
        anyhow::Ok(found.unwrap_or(usual))
    };
    let process = ProcessProfile {
        send_ns: time("send", 0)?,
        receive_ns: time("receive", 0)?,
        wake_ns: time("wake", 0)?,
        waker_ns: time("waker", 0)?,
        woken_ns: time("woken", 0)?,
        client_request_ns: time("client_request", profile.cpu.request_ns)?,
        untold_change_ns: time("untold_change", profile.cpu.record_ns)?,
        untold_removal_ns: time("untold_removal", profile.cpu.record_ns)?,
        told_record_ns: time("told_record", profile.cpu.record_ns)?,
        known_record_ns: time("known_record", profile.cpu.record_ns)?,
        copy_bytes_per_s: 0,
    };
    let copy = section.get("client_copy_bandwidth", bytes)?;
    section.finish()?;
    if is_given || copy.is_some() {
        profile.process = Some(ProcessProfile { copy_bytes_per_s: copy.unwrap_or(0), ..process });
    }
    Ok(())
}

impl WeftCase {
    /// Runs it; a row of results for each phase. A trace file of each node goes into the folder
    /// `trace`.
    ///
    /// # Errors
    /// What the cluster could not do, or a file cannot be written.
    pub fn run(&self, trace: Option<&Path>) -> Result<Vec<Value>> {
        let phases = match trace {
            Some(folder) => {
                let TracedRun { phases, files } = weft_virtual_cluster::run_traced(&self.shape, &self.work)?;
                write_files(folder, files)?;
                phases
            }
            None => weft_virtual_cluster::run(&self.shape, &self.work)?,
        };
        Ok(phases.iter().map(row).collect())
    }
}

fn write_files(folder: &Path, files: Vec<(String, Vec<u8>)>) -> Result<()> {
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    for (node, bytes) in files {
        let path = folder.join(format!("{node}.wtrace"));
        std::fs::write(&path, bytes).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

fn row(phase: &PhaseReport) -> Value {
    let disk = &phase.disk;
    let disk_busy = phase.shares.iter().find(|share| share.part == "disk of data servers").map_or(0.0, |share| share.mean);
    let rounded = |share: f64| (share * 1e4).round() / 1e4;
    let shares: Map<String, Value> = phase.shares.iter().map(|share| (share.part.to_string(), rounded(share.busiest).into())).collect();
    json!({
        "phase": phase.name,
        "seconds": phase.ns as f64 / 1e9,
        "operations": phase.operations,
        "operations_per_second": phase.operations_per_s(),
        "bytes": phase.bytes,
        "mib_per_second": phase.mib_per_s(),
        "messages": phase.messages,
        "client_cpu_us_per_op": phase.client_cpu_ns as f64 / 1e3 / phase.operations.max(1) as f64,
        "server_cpu_us_per_op": phase.server_cpu_ns as f64 / 1e3 / phase.operations.max(1) as f64,
        "network_bytes": phase.wire_bytes,
        "disk_operations": disk.sequential + disk.near + disk.far,
        "disk_bytes": disk.read_bytes + disk.written_bytes,
        "disk_syncs": disk.syncs,
        "no_seek": disk.sequential,
        "fast": disk.near,
        "slow": disk.far,
        "disk_busy": rounded(disk_busy),
        "waits_for": phase.bottleneck().map_or("latencies", |share| share.part),
        "busy": phase.shares.first().map_or(0.0, |share| rounded(share.busiest)),
        "shares": shares,
    })
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use weft_plan::files::Lab;

    use super::*;
    use crate::case::{self, Case};

    /// The one case of a built-in plan with these values.
    fn weft(set: &[&str]) -> Result<WeftCase> {
        let few = ["clients=1", "workload.files=200", "workload.window=1"];
        let set: Vec<String> = few.iter().chain(set).map(|word| word.to_string()).collect();
        let cases = Lab { folder: PathBuf::from("/no/such/folder") }.plan("weft-creates", &set, None)?.cases(case::read)?;
        match cases[0].build(case::read)? {
            Case::Weft(case) => Ok(*case),
            _ => anyhow::bail!("not Weft itself"),
        }
    }

    #[test]
    fn processes_of_one_machine_are_keys_of_a_plan() {
        let rate = |set: &[&str]| {
            let rows = weft(set).and_then(|case| case.run(None)).expect("the plan runs");
            rows[0]["operations_per_second"].as_f64().expect("a rate")
        };
        assert_eq!(weft(&[]).expect("a good plan").shape.profile.process, None);
        let shared = ["weft.shared_cores=2", "process.wake=20us", "process.client_request=2us", "process.local_latency=0us"];
        let case = weft(&shared).expect("a good plan");
        let process = case.shape.profile.process.clone().expect("a key is given");
        assert_eq!((process.wake_ns, process.client_request_ns, process.send_ns), (20_000, 2_000, 0));
        assert_eq!((case.shape.shared_cores, case.shape.profile.net.loopback_ns), (Some(2), 0));
        // One request at a time is two wake-ups and little else.
        let asleep = rate(&shared);
        assert!((15_000.0..25_000.0).contains(&asleep), "{asleep} creates a second");
        let awake = rate(&[&shared[..], &["process.wake=0us"]].concat());
        assert!(awake > 3.0 * asleep, "{awake} creates a second that wait for nobody");
        let many = |set: &[&str]| weft(set).err().expect("more than memory holds").to_string();
        assert!(many(&["workload.files=4294967295"]).contains("4294967295 is not between 1 and 100000000"));
        assert!(many(&["workload.files=100000", "clients=10000"]).contains("make at most 100000000 in all"));
        assert!(many(&["workload.size=3000"]).contains(": workload.kind: clients in virtual time write and read one file each"));
        let wrong = weft(&["process.wakes=1us"]).err().expect("no such key").to_string();
        assert!(wrong.contains("wakes"), "{wrong}");
        assert!(weft(&["weft.shared_cores=0"]).is_err() && weft(&["weft.shared_cores=5000"]).is_err());
    }
}
