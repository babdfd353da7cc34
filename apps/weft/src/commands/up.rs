//! `weft up`: a whole file system on this machine: makes it if it is new, starts every server that
//! does not run, mounts it.

pub mod hosts;
mod unchanged;

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use weft_base::{ServerRole, Status};
use weft_host::config::{Config, DraftServer, Engine, KeyFiles, ServerConfig, read_key};
use weft_host::connect::{Common, Fs};
use weft_host::named::NamedState;
use weft_host::output::{print, shell_word, tell};
use weft_host::process;
use weft_host::start_room::StartRoom;
use weft_host::state;
use weft_host::state::{MountAgain, StateDir};
use weft_host::stop_signals::StopSignals;
use weft_host::units::ByteSize;
use weft_host::{mount_list, mounts, stores};
use weft_journal::bytes_to_begin;
use weft_meta_server::DUMP_NAME;
use weft_store::journal::SEGMENT_BYTES_DEFAULT;
use weft_wire::ops::ServerInfo;

use crate::commands::genconfig::{NAME_DEFAULT, Settings, parse_name};
use crate::commands::{down, mount};

/// How long one look at all servers takes at most while they start.
const LOOK: Duration = Duration::from_secs(1);
/// Lines of a log that are shown when its server failed.
const LOG_LINES: usize = 5;

/// Start a whole file system on this machine
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  weft up --state ~/fs --meta 2 --data 4 --mount ~/mnt
  weft up --state ~/fs                 starts again what is not running, makes servers that were added to weft.toml, and mounts as before

  weft up --state job --hosts hosts.txt --stage-in input --stage-out results
                                       on the hosts of a job, with their local disks; removed by `weft down`, which copies everything out first

Stop it with `weft down --state ~/fs`.")]
pub struct Args {
    #[command(flatten)]
    state: NamedState,
    /// Metadata servers of a new file system [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    meta: Option<u16>,
    /// Data servers of a new file system [default: 2]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    data: Option<u16>,
    /// Name of a new file system [default: weft]
    #[arg(long, value_parser = parse_name)]
    name: Option<String>,
    #[command(flatten)]
    settings: Settings,
    /// Bytes that each data server of a new file system may use
    #[arg(long, value_name = "SIZE")]
    capacity: Option<ByteSize>,
    /// How the servers of a new file system are reached [default: unix]
    #[arg(long, value_enum)]
    listen: Option<Listen>,
    /// Mount it here too; the directory is made if it is missing
    #[arg(long, value_name = "MNT")]
    mount: Option<PathBuf>,
    /// Options of the mount, separated by commas (see `weft mount --help`) [default: without
    /// --mount, those of the last --mount]
    #[arg(short, value_name = "OPTIONS", value_delimiter = ',')]
    options: Vec<String>,
    /// Go on with an older copy of the folder of this server, or one that has lost the end of its
    /// journal: what is missing is lost, and others may still refer to it (weft fsck)
    #[arg(long, value_name = "SERVER", conflicts_with = "over")]
    accept_older_store: Vec<String>,
    /// Stay; stop everything at Ctrl-C
    #[arg(long)]
    foreground: bool,
    #[command(flatten)]
    over: hosts::OverHosts,
}

/// How servers on one machine are reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Listen {
    /// Unix sockets in the state directory
    Unix,
    /// TCP on the loopback interface
    Tcp,
}

/// A server that this command started.
struct Started {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Args {
    pub fn run(self, common: &Common) -> Result<ExitCode> {
        mount::parse_options(&self.options)?;
        if let Some(code) = self.run_over_hosts(common)? {
            return Ok(code);
        }
        // Signals wait from the first moment on, so that Ctrl-C in between leaves nothing half
        // stopped.
        let signals = self.foreground.then(StopSignals::block).transpose()?;
        let begun = Instant::now();
        let (state, _) = StateDir::existing_or_new(&self.state.dir(common)?)?;
        state::make_private_dir(&state.run_dir())?;
        let lock = state.lock()?;
        // Asked only now: another `weft up` may have made it meanwhile.
        let new = !state.config_file().is_file();
        let mut begun_here = Vec::new();
        if new {
            self.check_room(state.root())?;
            begun_here = self.create(&state)?;
        }
        Config::give_ids(&state.config_file())?;
        let config = Config::load(&state.config_file())?;
        if !new {
            self.check_unchanged(&config)?;
            stores::check(&config)?;
            check_names(&state, &config)?;
        }
        for server in &self.accept_older_store {
            config.server(server)?;
            if process::holder(&state.pid_file(server))?.is_some() {
                bail!("{server} runs, with the store that it has; --accept-older-store is for its start");
            }
        }
        let mut started = Vec::new();
        let room = StartRoom::take(&state.run_dir());
        if let Err(error) = self.wait_until_serving(&state, &config, &mut started, common) {
            for server in &mut started {
                process::end_server(&mut server.child, &state.pid_file(&server.name), LOOK);
            }
            if new {
                undo_create(&state, &begun_here);
                return Err(error.context("no file system was made; the same command makes it when this is mended"));
            }
            return Err(error);
        }
        if !state.formatted_file().exists()
            && let Err(error) = weft_host::config::write_in_one_step(&state.formatted_file(), b"", 0o600)
        {
            // It runs, and the next `weft up` tries again.
            tell(&format!("{error:#}; run `weft up --state {}` again when there is room", shell_word(state.root())));
        }
        let elapsed = begun.elapsed();
        tell_if_refused(&state, &config, common);
        let place = self.mount_again(&state, &config, common)?;
        drop(room);
        lock.release();
        print(&self.report(&state, &config, started.len(), elapsed, place.as_deref()))?;
        let is_meta = |name: &str| config.server(name).is_ok_and(|server| server.id.role() == ServerRole::Meta);
        if !new && config.engine == Engine::Memory && started.iter().any(|server| is_meta(&server.name)) {
            tell(&format!(
                "the engine memory keeps nothing: {} begins empty; {DUMP_NAME} in the folder of each metadata server lists what was there",
                config.fs_name
            ));
        }
        if let Some(signals) = signals {
            signals.wait();
            let lock = state.lock()?;
            let report = down::stop_all(&state, &config);
            lock.release();
            print(&report?)?;
        }
        Ok(ExitCode::SUCCESS)
    }

    fn start_servers(&self, state: &StateDir, config: &Config, started: &mut Vec<Started>) -> Result<()> {
        let is_new = config.engine == Engine::Memory || !state.formatted_file().exists();
        let met = stores::met(config);
        for server in &config.servers {
            // A server that nobody knows joins. One that was met and whose folder is empty is lost,
            // and says so.
            let create = is_new || !met.contains(&server.id) && !stores::is_made(&server.dir);
            let is_ours = started.iter().any(|ours| ours.name == server.name);
            if !is_ours && process::holder(&state.pid_file(&server.name))?.is_none() {
                let accepts_older = self.accept_older_store.contains(&server.name);
                let option = if create { Some("--create") } else { accepts_older.then_some("--accept-older-store") };
                started.push(start_server(state, config, server, option)?);
            }
        }
        Ok(())
    }

    /// Draws id and key and writes the config: last, since it is what makes the directory a state.
    /// Gives the folders of servers that hold nothing yet.
    fn create(&self, state: &StateDir) -> Result<Vec<PathBuf>> {
        let mut draft = self.settings.draft(self.name.as_deref().unwrap_or(NAME_DEFAULT), Vec::new())?;
        let counts = [(ServerRole::Meta, self.meta.unwrap_or(1)), (ServerRole::Data, self.data.unwrap_or(2))];
        let mut probes = Vec::new();
        for (role, count) in counts {
            for index in 0..count {
                let name = format!("{role}{index}");
                let address = match self.listen.unwrap_or(Listen::Unix) {
                    Listen::Unix => state::socket_address(state, draft.fs_id, &name)?,
                    Listen::Tcp => {
                        // All probes stay open until all ports are chosen, so that no port is
                        // chosen twice.
                        let probe = TcpListener::bind("127.0.0.1:0").context("no free TCP port on the loopback interface")?;
                        let address = format!("tcp:{}", probe.local_addr()?);
                        probes.push(probe);
                        address
                    }
                };
                let capacity = self.capacity.filter(|_| role == ServerRole::Data);
                draft.servers.push(DraftServer { dir: format!("servers/{name}"), name, role, id: index, address, listen: None, capacity });
            }
        }
        draft.check(&state.config_file())?;
        KeyFiles::beside(&state.config_file()).make(&state.key_file())?;
        read_key(&state.key_file())?;
        let dirs = draft.servers.iter().map(|server| state.root().join(&server.dir));
        let is_empty = |dir: &PathBuf| std::fs::read_dir(dir).map_or(true, |mut entries| entries.next().is_none());
        let empty = dirs.filter(is_empty).collect();
        draft.write(&state.config_file())?;
        Ok(empty)
    }

    /// A new file system is not begun where its servers find no room.
    fn check_room(&self, root: &Path) -> Result<()> {
        if self.settings.engine == Some(Engine::Memory) {
            return Ok(());
        }
        let servers = u64::from(self.meta.unwrap_or(1)) + u64::from(self.data.unwrap_or(2));
        let needed = servers * bytes_to_begin(SEGMENT_BYTES_DEFAULT);
        let space = nix::sys::statvfs::statvfs(root).with_context(|| format!("cannot tell how much room {} has", root.display()))?;
        let free = space.blocks_available() as u64 * space.fragment_size() as u64;
        if free < needed {
            bail!(
                "{servers} servers need at least {} MiB, and {} has {} MiB free: make room, take fewer servers or another place",
                needed.div_ceil(1 << 20),
                root.display(),
                free >> 20
            );
        }
        Ok(())
    }

    /// Starts what does not run and asks all servers until all serve; stops asking when one that we
    /// started has died.
    fn wait_until_serving(&self, state: &StateDir, config: &Config, started: &mut Vec<Started>, common: &Common) -> Result<()> {
        let end = Instant::now() + common.timeout();
        let name = state.root().display().to_string();
        // A key of clients that was taken back keeps no server from being started.
        let fs = match config.as_server() {
            Some(as_server) => Fs::from_config(as_server, name, &common.without_key_file().with_timeout(LOOK))?,
            None => Fs::from_config(config.clone(), name, &common.with_timeout(LOOK))?,
        };
        loop {
            // One that was killed a moment ago may hold its pid file until the kernel is through
            // with it.
            self.start_servers(state, config, started)?;
            for server in started.iter_mut() {
                if let Some(status) = server.child.try_wait()? {
                    bail!(
                        "{} ended ({status}); the end of {}:{}",
                        server.name,
                        server.log.display(),
                        process::log_tail(&server.log, LOG_LINES)
                    );
                }
            }
            let answers = fs.ping_all();
            // A server with a full disk serves what can be served; waiting would not make room.
            let full = |info: &ServerInfo| info.state.starts_with("read-only");
            let waiting = answers.iter().find(|(_, answer)| !answer.as_ref().is_ok_and(|info| info.state == "serving" || full(info)));
            // A new server is in the config before it is in the map that the others give.
            let unknown = config.servers.iter().find(|server| answers.iter().all(|(entry, _)| entry.id != server.id));
            let waiting = match (waiting, unknown) {
                (Some((entry, Ok(info))), _) => Some((entry.name.as_str(), format!("it is {}", info.state))),
                (Some((entry, Err(error))), _) => Some((entry.name.as_str(), fs.why(error))),
                (None, Some(server)) => Some((server.name.as_str(), "the metadata servers do not know it yet".into())),
                (None, None) => None,
            };
            let Some((name, why)) = waiting else {
                for (entry, answer) in &answers {
                    if let Ok(info) = answer
                        && full(info)
                    {
                        tell(&format!("{} is {}", entry.name, info.state));
                    }
                }
                let answers: Vec<ServerInfo> = answers.into_iter().filter_map(|(_, answer)| answer.ok()).collect();
                return self.check_durability(&fs, &answers);
            };
            if Instant::now() >= end {
                let log = state.log_file(name);
                bail!(
                    "{name} does not serve after {} s: {why}; the end of {}:{}",
                    common.timeout().as_secs(),
                    log.display(),
                    process::log_tail(&log, LOG_LINES)
                );
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Mounts where and how this command says, or the last one did that said it.
    fn mount_again(&self, state: &StateDir, config: &Config, common: &Common) -> Result<Option<PathBuf>> {
        let remembered = state.remembered_mount()?;
        let MountAgain { place, mut options } = match (&self.mount, remembered.clone()) {
            (Some(place), _) => MountAgain { place: mounts::resolve(place), options: Vec::new() },
            (None, Some(again)) => again,
            (None, None) => return Ok(None),
        };
        if !self.options.is_empty() {
            options = self.options.clone();
        }
        // A dead mount cannot be looked at, so only what is surely not there is made.
        if std::fs::symlink_metadata(&place).is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound) {
            std::fs::create_dir_all(&place).with_context(|| format!("cannot make the mount point {}", place.display()))?;
        }
        // Now that it is there, its path can be freed of symlinks.
        let place = mounts::resolve(&place);
        if is_ours(&place, state, config)? {
            let now = remembered.as_ref().filter(|again| again.place == place).map_or(Vec::new(), |again| again.options.clone());
            if !self.options.is_empty() && options != now {
                bail!(
                    "it is mounted at {} already, and -o {} does not change how: `weft umount {}`, then the same command again",
                    place.display(),
                    options.join(","),
                    shell_word(&place)
                );
            }
            options = now;
        } else {
            let fs = config.file.clone().into_os_string();
            mount::in_background(&fs, &place, &options, common).with_context(|| {
                format!("the file system runs, but it is not mounted; `weft down --state {}` stops it", shell_word(state.root()))
            })?;
        }
        let again = MountAgain { place, options };
        if remembered.as_ref() != Some(&again)
            && let Err(error) = state.remember_mount(&again)
        {
            tell(&format!("the next `weft up` will not mount at {} by itself: {error:#}", again.place.display()));
        }
        Ok(Some(again.place))
    }

    fn report(&self, state: &StateDir, config: &Config, started: usize, elapsed: Duration, place: Option<&Path>) -> String {
        let total = config.servers.len();
        let root = shell_word(state.root());
        let mut text = match started {
            0 => format!("all {total} servers of {} run already\n", config.fs_name),
            _ if started < total => {
                format!("started {started} of {total} servers of {} in {:.2} s\n", config.fs_name, elapsed.as_secs_f64())
            }
            _ => format!("{} serves with {total} servers after {:.2} s\n", config.fs_name, elapsed.as_secs_f64()),
        };
        if let Some(place) = place {
            text += &format!("mounted at {}\n", place.display());
        }
        let mut next = Vec::new();
        if place.is_none() {
            next.push((format!("weft mount {root} MNT"), "mount it"));
            next.push((format!("weft cp -r DIR {}", shell_word(format!("{}:/", state.root().display()))), "or use it without a mount"));
        }
        next.push((format!("weft status --state {root}"), "look at the servers"));
        next.push((if self.foreground { "Ctrl-C".to_string() } else { format!("weft down --state {root}") }, "stop it"));
        let width = next.iter().map(|(command, _)| command.chars().count()).max().unwrap_or(0);
        text += "\nNext:\n";
        for (command, what) in next {
            text += &format!("  {command:<width$}    {what}\n");
        }
        text
    }
}

/// True if the mount at `place` is of this file system, so that nothing is to be done.
fn is_ours(place: &Path, state: &StateDir, config: &Config) -> Result<bool> {
    let listed = mount_list::of(config.fs_id, state)?;
    match listed.iter().find(|mount| mount.place == place) {
        Some(mount) => Ok(mount.pid.is_some() && mount.is_mounted()?),
        None => Ok(false),
    }
}

/// Takes back what a first start has made that did not come to its end: the config and the files of
/// servers in folders that were empty before. Logs stay, for whoever wants to know why.
fn undo_create(state: &StateDir, dirs: &[PathBuf]) {
    // What cannot be removed is found by the next attempt, which takes it for what it is: left
    // over.
    let _ = std::fs::remove_file(state.config_file());
    for dir in dirs {
        let files =
            std::fs::read_dir(dir).into_iter().flatten().flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()));
        files.for_each(|entry| drop(std::fs::remove_file(entry.path())));
    }
}

/// A server that runs by a name of before is not started by its new one: it has its folder.
fn check_names(state: &StateDir, config: &Config) -> Result<()> {
    let mut missing = Vec::new();
    for server in &config.servers {
        if process::holder(&state.pid_file(&server.name))?.is_none() {
            missing.push(server.name.as_str());
        }
    }
    let unnamed = down::unnamed_servers(state, config)?;
    if let ([missing, ..], [unnamed, ..]) = (&missing[..], &unnamed[..]) {
        let file = config.file.display();
        bail!("{unnamed} runs, and {file} does not name it any more: end it before {missing} starts, or all by `weft down`");
    }
    Ok(())
}

/// Servers may serve and take no command that has the key of the config.
fn tell_if_refused(state: &StateDir, config: &Config, common: &Common) {
    let asked = Fs::from_config(config.clone(), state.root().display().to_string(), &common.with_timeout(LOOK)).and_then(|fs| {
        let refused =
            fs.ping_all().into_iter().find_map(|(_, answer)| answer.err().filter(|error| error.status == Status::AuthenticationFailed));
        refused.map_or(Ok(()), |error| bail!("{}", fs.why(&error)))
    });
    if let Err(error) = asked {
        tell(&format!("the servers run, and commands with this config are refused: {error:#}"));
    }
}

fn start_server(state: &StateDir, config: &Config, server: &ServerConfig, option: Option<&str>) -> Result<Started> {
    let log = state.log_file(&server.name);
    let mut args = vec!["serve".into(), "--detached".into(), "--config".into(), config.file.clone().into_os_string()];
    args.extend(["--server".into(), server.name.clone().into()]);
    args.extend(option.map(Into::into));
    let child =
        process::start_in_background(&args, &log, Stdio::null(), Stdio::null()).with_context(|| format!("cannot start {}", server.name))?;
    Ok(Started { name: server.name.clone(), child, log })
}
