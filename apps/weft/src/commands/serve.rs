//! `weft serve`: one server of a file system, in the foreground until SIGTERM or Ctrl-C.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use weft_base::{MILLISECOND, ServerRole};
use weft_data_server::{CONTAINER_NAME, DataServerConfig};
use weft_host::config::{Config, Engine, ServerConfig, cache_config};
use weft_host::key_lists::ServerKeys;
use weft_host::process;
use weft_host::process::PidFile;
use weft_host::state::{StateDir, make_private_dir};
use weft_host::stop_signals::{HangUp, StopSignals};
use weft_host::stores;
use weft_host::{job, proc};
use weft_meta_server::{Meets, MetaServerConfig, Process, ServingConfig, SplitConfig};
use weft_rt_real::{Address, DiskConfig, Level, Log, ShardConfig, StopHandle, write_line};
use weft_wire::ClusterKey;
use weft_wire::ops::{TraceReply, TraceRequest, TraceService};

/// Where traces of this process go if nobody says otherwise.
static TRACES: OnceLock<PathBuf> = OnceLock::new();
/// Part of the free memory that the data servers of one config may fill together under the engine
/// `memory`, and its metadata servers with names and inodes: one in so many.
const MEMORY_SHARE: u64 = 2;

/// Run one server of a file system in the foreground
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  weft serve --config weft.toml --server meta0 --create    the first time
  weft serve --config weft.toml --server meta0             ever after

SIGTERM and Ctrl-C stop it in good order, and so does the end of its terminal (SIGHUP). It logs to standard error: time (UTC), level, name, what.
A server that `weft up` has started logs to run/NAME.log below the state directory, keeps that file and the one before it below 4 MiB each,
and takes SIGHUP as a wish to begin a new one.")]
pub struct Args {
    /// The config
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Name of the server in it
    #[arg(long, value_name = "NAME")]
    server: String,
    /// Make an empty store if the server's folder is empty; otherwise that is an error
    #[arg(long)]
    create: bool,
    /// Go on with an older copy of the server's folder, or one that has lost the end of its
    /// journal: what is missing is lost, and others may still refer to it (weft fsck)
    #[arg(long, conflicts_with = "create")]
    accept_older_store: bool,
    /// Leave the terminal's session
    #[arg(long, hide = true)]
    detached: bool,
    /// End with this process
    #[arg(long, hide = true, value_name = "PID", env = job::UNTIL_VARIABLE)]
    until: Option<i32>,
}

impl Args {
    pub fn run(self) -> Result<()> {
        if self.detached {
            process::detach();
        }
        let signals = StopSignals::block()?;
        weft_recording::block_dump_signal()?;
        process::raise_descriptors();
        let config = Config::load(&self.config)?;
        let server = config.server(&self.server)?;
        stores::check(&config)?;
        if self.create && config.engine.is_kept() && !stores::is_made(&server.dir) {
            stores::check_running(&config, server.id)?;
        }
        weft_host::faults::begin(&server.name, Some(&config))?;
        let accepted = ServerKeys::of(&config, server)?;
        let state = StateDir::of_config(&config.file);
        make_private_dir(&state.run_dir())?;
        state.check()?;
        if self.detached {
            weft_rt_real::keep_log_small(&state.log_file(&server.name));
        }
        let pid_file = PidFile::take(&state.pid_file(&server.name), "");
        pid_file.with_context(|| format!("cannot start {}", server.name))?.hold_until_exit();
        // Whoever may connect to a socket of this machine without a key must not make this process
        // write files.
        let may_be_told = accepted.is_some() || matches!(server.listen, Address::Unix(_));
        weft_recording::identify(&server.name, Some(server.id));
        TRACES.get_or_init(|| state.trace_dir());
        let create = self.create || config.engine == Engine::Memory;
        check_dir(server, &config, create)?;
        if let Address::Unix(path) = &server.listen
            && let Some(dir) = path.parent()
        {
            // Run directories may be gone after a restart of the machine.
            make_private_dir(dir)?;
        }
        let stop = StopHandle::new()?;
        let hang_up = if self.detached { HangUp::ReopensLog } else { HangUp::Ends };
        if let Some(pid) = self.until {
            let asked = stop.clone();
            job::on_exit(pid, move || asked.stop())?;
        }
        let asked = stop.clone();
        signals.on_end(hang_up, &server.name, move || asked.stop(), || {});
        let log = Log::to_stderr(&server.name);
        // Without a key anybody on this machine may forge capabilities; the runtime keeps everybody
        // else out.
        let key = accepted.as_ref().map_or(ClusterKey([0; 32]), |accepted| accepted.keys.ring().server().key);
        if let Some(accepted) = &accepted {
            accepted.watch()?;
        }
        let shard = ShardConfig {
            server: server.id,
            fs_id: config.fs_id,
            fs_name: config.fs_name.clone(),
            keys: accepted.as_ref().map(|accepted| accepted.keys.clone()),
            listen: vec![server.listen.clone()],
            disk: disk(server, &config)?,
            servers: config.servers.iter().map(|server| (server.id, server.address.clone())).collect(),
            share_memory: config.shared_memory,
            encrypt_tcp: config.encrypt_tcp,
            stop,
            log,
        };
        let about = format!("starts, process {}, listens on {}", std::process::id(), server.listen);
        write_line(Level::Info, &server.name, &about);
        let process = Process {
            trace: may_be_told.then_some(TRACE),
            keys: accepted.map(|accepted| accepted as _),
            give_freed_memory_back: Some(give_freed_memory_back),
            page_bytes: Some(page_bytes),
        };
        let meets = if self.accept_older_store { Meets::OthersWithOlderStore } else { Meets::Others };
        let serving = ServingConfig { process, meets, ..serving_config(server, &config, key, create) };
        match server.id.role() {
            ServerRole::Meta => {
                keep_pages(server, &config);
                let (inline_limit, root_owner) = (config.inline_limit, (config.root_uid, config.root_gid));
                let usual = SplitConfig::default();
                let split = SplitConfig { names_max: config.split_names.unwrap_or(usual.names_max), ..usual };
                let settings = MetaServerConfig { inline_limit, root_owner, split, warn: Some(warn), ..MetaServerConfig::new(serving) };
                ended(&server.name, weft_rt_real::serve(shard, |rt| weft_meta_server::run(rt, settings))?)?;
            }
            ServerRole::Data => {
                let cache = cache_config(config.cache_layer, config.direct_io, config.durability);
                let settings = DataServerConfig { capacity_bytes: server.capacity, cache, ..DataServerConfig::new(serving) };
                ended(&server.name, weft_rt_real::serve(shard, |rt| weft_data_server::run(rt, settings))?)?;
            }
        }
        write_line(Level::Info, &server.name, "stopped");
        Ok(())
    }
}

/// What this process does about its recording, if it may be told.
const TRACE: TraceService = TraceService { command: trace, read: weft_recording::read };

fn page_bytes() -> (u64, u64) {
    let bytes = weft_rt_real::page_bytes();
    (bytes.memory, bytes.file)
}

/// Gives memory back to the system beside the thread that serves: requests go on that need no more
/// than what this thread has at hand.
fn give_freed_memory_back() {
    // Without a thread it stays until the next time.
    let _ = std::thread::Builder::new().name("memory".into()).spawn(weft_rt_real::give_freed_memory_back);
}

/// Writes a line that any user can cause: one in a second at most, so that the log keeps what else
/// it says.
fn warn(server: &str, what: &str) {
    static LAST: Mutex<Option<Instant>> = Mutex::new(None);
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    if last.is_none_or(|last| last.elapsed() >= Duration::from_secs(1)) {
        *last = Some(Instant::now());
        write_line(Level::Warn, server, what);
    }
}

/// Executes a command about the recording of this process.
fn trace(request: &TraceRequest) -> TraceReply {
    let home = TRACES.get().map_or(Path::new(""), PathBuf::as_path);
    let reply = weft_recording::command(request, home, weft_recording::Commander::KeyHolder);
    // The server's thread takes its ring now and not with the next request.
    weft_trace::now();
    reply
}

/// `None` is a stop that was asked for; anything else ended the server by itself.
fn ended<E: std::fmt::Display>(name: &str, outcome: Option<Result<(), E>>) -> Result<()> {
    match outcome {
        None | Some(Ok(())) => Ok(()),
        Some(Err(error)) => Err(anyhow!("{name} cannot go on: {error}")),
    }
}

/// The folder must be there and not empty unless it is to be made; what is in it the server checks
/// itself.
fn check_dir(server: &ServerConfig, config: &Config, create: bool) -> Result<()> {
    if config.engine == Engine::Memory && server.id.role() == ServerRole::Data {
        return Ok(());
    }
    if create {
        return make_private_dir(&server.dir);
    }
    let entries = std::fs::read_dir(&server.dir);
    let entries =
        entries.with_context(|| format!("cannot use the folder {} of {}; --create makes it", server.dir.display(), server.name))?;
    if entries.count() == 0 {
        bail!(
            "the folder {} of {} is empty; is its disk mounted? For a new file system, or to begin anew without what was there, add --create",
            server.dir.display(),
            server.name
        );
    }
    Ok(())
}

fn disk(server: &ServerConfig, config: &Config) -> Result<DiskConfig> {
    // A metadata server without a store writes its tree as text there when it ends.
    if config.engine.is_kept() || server.id.role() == ServerRole::Meta {
        let directory = server.dir.clone();
        let is_direct = config.direct_io && server.id.role() == ServerRole::Data;
        return Ok(match is_direct {
            true => DiskConfig::Direct { directory, file: CONTAINER_NAME.to_string() },
            false => DiskConfig::Directory(directory),
        });
    }
    let data_servers = config.servers.iter().filter(|server| server.id.role() == ServerRole::Data).count() as u64;
    let share = || {
        let available = available_memory().context("it is not known how much memory is available; give the data servers a capacity")?;
        Ok::<u64, anyhow::Error>(available / MEMORY_SHARE / data_servers)
    };
    Ok(DiskConfig::Memory { capacity_bytes: server.capacity.map_or_else(share, Ok)? })
}

/// Has the names and inodes of a metadata server that are more than its memory is for lie in a file
/// without a name in its folder.
fn keep_pages(server: &ServerConfig, config: &Config) {
    let meta_servers = config.servers.iter().filter(|server| server.id.role() == ServerRole::Meta).count() as u64;
    let share = || available_memory().map(|available| available / MEMORY_SHARE / meta_servers);
    let Some(memory) = config.metadata_memory.or_else(share) else { return };
    match tempfile::tempfile_in(&server.dir) {
        Ok(file) => weft_rt_real::keep_pages_in(file, memory),
        Err(error) => {
            let dir = server.dir.display();
            let about = format!("all names and inodes have to fit into memory: {dir} takes no file for what is more: {error}");
            write_line(Level::Warn, &server.name, &about);
        }
    }
}

/// Bytes of memory that programs may still use, as far as the machine says so.
fn available_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let limit = proc::memory_limit(Path::new("/proc/self/cgroup"), Path::new("/sys/fs/cgroup"));
    Some(proc::memory(&text, "MemAvailable")?.min(limit))
}

/// What this server is told, whatever it serves.
fn serving_config(server: &ServerConfig, config: &Config, key: ClusterKey, create: bool) -> ServingConfig {
    ServingConfig {
        create,
        engine: config.engine,
        durability: config.durability,
        batch_interval_ns: config.batch_interval_ms * MILLISECOND,
        ..ServingConfig::new(server.id, config.map(), key)
    }
}
