//! The ceiling that belongs to a step, measured between its repetitions: the same number of
//! threads, the same requests, and nothing behind them.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use weft_ceiling::null_fuse::{NullFuse, NullFuseConfig};
use weft_ceiling::rpc::{self, Direction, Endpoint};
use weft_ceiling::{Reps, Server, ServerRole, ServerSpawner, paths};
use weft_host::connect::Fs;

use weft_workload::{Dirs, WorkStep, Workload};

/// How long one measurement of a ceiling takes.
const TIME: Duration = Duration::from_millis(300);
/// MiB in a GiB.
const MIB: f64 = 1024.0;

/// What is behind the requests of a ceiling.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum CeilingKind {
    /// Nothing.
    Bare,
    /// The least that a file system over FUSE needs if its truth is in another process: the kernel
    /// checks permissions, and a bare server is asked once for each change.
    Served,
}

/// Measures ceilings; holds the servers that this needs.
pub struct Yardstick(Kind);

enum Kind {
    /// For work by the library: bare messages over the same transport.
    Rpc {
        server: Server,
        transport: &'static str,
        /// The directory of the socket; goes after the server.
        _place: tempfile::TempDir,
    },
    /// For work by system calls: a FUSE file system that does nothing, or only asks a bare server.
    Fuse { null: NullFuse, served: Option<(Server, tempfile::TempDir)> },
}

/// One measured ceiling.
#[derive(Clone, Debug, PartialEq)]
pub struct Ceiling {
    /// What it is, as in `weft bench ceiling`.
    pub name: String,
    /// Operations or MiB per second.
    pub rate: f64,
    /// `ops/s` or `MiB/s`.
    pub unit: &'static str,
}

/// Starts the servers of ceilings as processes of this program.
///
/// # Errors
/// If the path of this program cannot be told.
pub fn spawner() -> Result<ServerSpawner> {
    ServerSpawner::current_exe(["bench", "ceiling-server"])
}

impl Yardstick {
    /// For a file system that is used by the library, or for system calls.
    ///
    /// # Errors
    /// If its server cannot be started; for system calls if FUSE cannot be used here.
    pub fn start(kind: CeilingKind, fs: Option<&Fs>) -> Result<Yardstick> {
        let spawner = spawner()?;
        let place = || tempfile::Builder::new().prefix("weft-bench-").tempdir().context("cannot make a directory for a socket");
        let Some(fs) = fs else {
            let mut config = NullFuseConfig::default();
            let mut served = None;
            if kind == CeilingKind::Served {
                let place = place()?;
                let socket = place.path().join("s");
                served = Some((spawner.start(&ServerRole::Rpc(Endpoint::Unix(socket.clone())))?, place));
                config.asks = Some(socket);
            }
            return Ok(Yardstick(Kind::Fuse { null: NullFuse::start(&spawner, config)?, served }));
        };
        ensure!(kind == CeilingKind::Bare, "--ceiling=served is for work by system calls: --path");
        let place = place()?;
        let over_tcp = fs.client.map().meta.first().is_some_and(|server| server.address.starts_with("tcp:"));
        let (transport, endpoint) = match over_tcp {
            true => ("tcp", Endpoint::Tcp(([127, 0, 0, 1], 0).into())),
            false => ("unix", Endpoint::Unix(place.path().join("s"))),
        };
        let server = spawner.start(&ServerRole::Rpc(endpoint))?;
        Ok(Yardstick(Kind::Rpc { server, transport, _place: place }))
    }

    /// Measures the ceiling of a step once; `None` if there is none for it.
    ///
    /// # Errors
    /// If its server fails.
    pub fn measure(&self, step: WorkStep, work: &Workload) -> Result<Option<Ceiling>> {
        match &self.0 {
            Kind::Rpc { server, transport, .. } => {
                let endpoint = server.endpoint().expect("it was started with an endpoint");
                rpc_ceiling(endpoint, transport, step, work)
            }
            Kind::Fuse { null, served } => Ok(fuse_ceiling(null, step, work)?.map(|ceiling| match served {
                Some(_) => Ceiling { name: ceiling.name.replacen("fuse.", "fuse.served.", 1), ..ceiling },
                None => ceiling,
            })),
        }
    }
}

fn rpc_ceiling(endpoint: &Endpoint, transport: &str, step: WorkStep, work: &Workload) -> Result<Option<Ceiling>> {
    let reps = Reps::new(TIME, 1);
    let connections = work.clients_in_all() as usize;
    let depth = work.depth as usize;
    if matches!(step, WorkStep::Readdir | WorkStep::ReadMany) || (step == WorkStep::Create && work.size > 0) {
        return Ok(None);
    }
    if step.is_stream() {
        let (word, direction) = if step == WorkStep::Write { ("upload", Direction::Upload) } else { ("download", Direction::Download) };
        let speed = rpc::bulk(endpoint, direction, connections, reps)?;
        return Ok(Some(Ceiling { name: format!("bulk.{transport}.{word}.{connections}c"), rate: speed.median * MIB, unit: "MiB/s" }));
    }
    let result = rpc::requests(endpoint, connections, depth, reps)?;
    Ok(Some(Ceiling { name: format!("rpc.{transport}.{connections}x{depth}"), rate: result.rate.median, unit: "ops/s" }))
}

fn fuse_ceiling(null: &NullFuse, step: WorkStep, work: &Workload) -> Result<Option<Ceiling>> {
    let reps = Reps::new(TIME, 1);
    let threads = work.clients_in_all() as usize;
    let (dirs, shared): (Vec<PathBuf>, &str) = match work.dirs {
        Dirs::Shared | Dirs::Split if threads > 1 => (vec![null.dirs(1).remove(0); threads], "shared."),
        _ => (null.dirs(threads), ""),
    };
    let blocks = |rate: f64| rate * MIB;
    let (name, rate, unit) = match step {
        WorkStep::Create if work.size > 0 => return Ok(None),
        WorkStep::ReadMany => return Ok(None),
        WorkStep::Create => (format!("fuse.create_close.{shared}{threads}t"), paths::create_close(&dirs, reps)?.median, "ops/s"),
        WorkStep::Stat => (format!("fuse.stat.{shared}{threads}t"), paths::stat(&dirs, reps)?.median, "ops/s"),
        WorkStep::Remove => (format!("fuse.unlink.{shared}{threads}t"), paths::unlink(&dirs, reps)?.median, "ops/s"),
        WorkStep::Readdir => (format!("fuse.readdir.{threads}t"), paths::read_dir(&null.list(), threads, reps)?.median, "ops/s"),
        WorkStep::Write | WorkStep::Read => {
            let (block, span) = (work.block as usize, NullFuseConfig::default().file_bytes);
            let files = null.files(threads);
            let (word, speed) = match step {
                WorkStep::Write => ("write", paths::write_blocks(&files, block, span, reps)?),
                _ => ("read", paths::read_blocks(&files, block, span, reps)?),
            };
            (format!("fuse.{word}.{block}B.{threads}t"), blocks(speed.median), "MiB/s")
        }
    };
    Ok(Some(Ceiling { name, rate, unit }))
}
