//! From what a person names to a client that talks to it, and errors that say what happened to
//! which path.

use std::ffi::{OsStr, OsString};
use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use weft_base::{Attr, ClusterMap, Credentials, FileKind, FsId, Handle, ROOT_HANDLE, ServerEntry, ServerId, Status};
use weft_client::{Client, ClientOptions, DirPage};
use weft_rt_real::{Address, ClientConfig, ClientRt};
use weft_wire::Credential;
use weft_wire::ops::{LiveReply, ServerInfo, TraceReadReply, TraceReadRequest, TraceReply, TraceRequest};

use crate::config::{Config, read_key};
use crate::fs_arg::{FsArg, FsPath};
use crate::gateway_list::{self, ListedGateway};
use crate::mount_list;
use crate::mount_list::ListedMount;
use crate::mounted;
use crate::parallel;
use crate::state::StateDir;

/// Environment variable that names the key file for `weft://` addresses.
pub const KEY_FILE_VARIABLE: &str = "WEFT_KEY_FILE";

/// Deadline of one operation, in seconds.
const TIMEOUT_SECONDS: u64 = 30;
/// The same for commands that only look.
const LOOK_SECONDS: u64 = 5;

/// Options that every command understands.
#[derive(Clone, Debug, clap::Args)]
pub struct Common {
    /// The key, for weft:// addresses (or set WEFT_KEY_FILE); a config names its own
    #[arg(long, global = true, value_name = "FILE", help_heading = "Connection")]
    pub key_file: Option<PathBuf>,
    /// Longest time that one operation waits for its servers, retries included [default: 30; 5 to
    /// ping and df]
    #[arg(long, global = true, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86400), help_heading = "Connection")]
    timeout: Option<u64>,
}

impl Common {
    /// Without a command line.
    pub fn new(key_file: Option<PathBuf>, timeout: Option<Duration>) -> Common {
        Common { key_file, timeout: timeout.map(|timeout| timeout.as_secs().max(1)) }
    }

    /// The same with another deadline.
    pub fn with_timeout(&self, timeout: Duration) -> Common {
        Common { timeout: Some(timeout.as_secs().max(1)), ..self.clone() }
    }

    /// For commands that only look: who does not answer soon is not well, unless the person says
    /// otherwise.
    pub fn for_a_look(&self) -> Common {
        Common { timeout: self.timeout.or(Some(LOOK_SECONDS)), ..self.clone() }
    }

    /// The same with this key file, unless the person named one.
    pub fn or_key_file(&self, key_file: Option<PathBuf>) -> Common {
        Common { key_file: self.key_file.clone().or(key_file), ..self.clone() }
    }

    /// The same by the key file of the config, whatever the person named.
    pub fn without_key_file(&self) -> Common {
        Common { key_file: None, ..self.clone() }
    }

    /// The deadline of one operation.
    pub fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout.unwrap_or(TIMEOUT_SECONDS))
    }

    fn key(&self) -> Result<Option<Credential>> {
        let variable = || std::env::var_os(KEY_FILE_VARIABLE).map(PathBuf::from);
        self.key_file.clone().or_else(variable).map(|file| read_key(&file)).transpose()
    }
}

/// A file system that this process uses. What other crates ask of it by its methods is compiled
/// here, once, and what they ask its client is compiled with them.
pub struct Fs {
    /// The client.
    pub client: Client<ClientRt>,
    /// Who asks.
    pub who: Credentials,
    /// As the person named it.
    pub name: String,
    /// The config it was found by, if it was.
    pub config: Option<Config>,
    /// The key by which it is used, if servers want one.
    pub key: Option<Credential>,
}

impl Fs {
    /// Finds the file system. Nothing is sent to a server yet, except to learn the map behind a
    /// `weft://` address.
    ///
    /// # Errors
    /// If `fs` names none, its config or key is wrong, or nobody answers at its address.
    pub fn open(fs: &OsStr, common: &Common) -> Result<Fs> {
        let name = fs.display().to_string();
        let (fs, common) = &mounted::behind(fs, common)?;
        match FsArg::parse(fs)? {
            FsArg::Config(file) => {
                let config = Config::load(&file)?;
                Fs::from_config(config, name, common)
            }
            FsArg::Address { address, name: fs_name } => {
                let key = common.key()?;
                let address: Address = address.parse().map_err(|error| anyhow!("{name}: {error}"))?;
                let map =
                    ClientRt::fetch_map(&address, key.as_ref(), &fs_name).map_err(|error| anyhow!("{name}: {error}{}", advice(&key)))?;
                Fs::connect(map, key, None, name, common)
            }
        }
    }

    /// All mounts of it that this user has on this machine, as far as they can be found from how it
    /// was named.
    ///
    /// # Errors
    /// If a pid file cannot be read.
    pub fn mounts(&self) -> Result<Vec<ListedMount>> {
        match &self.config {
            Some(config) => mount_list::of(self.id(), &StateDir::of_config(&config.file)),
            None => mount_list::of_user(self.id()),
        }
    }

    /// All NFS gateways of it that this user runs on this machine.
    ///
    /// # Errors
    /// If a pid file cannot be read.
    pub fn gateways(&self) -> Result<Vec<ListedGateway>> {
        gateway_list::of(self.id(), self.config.as_ref().map(|config| StateDir::of_config(&config.file)).as_ref())
    }

    /// The file system of a config.
    ///
    /// # Errors
    /// If its key cannot be read.
    pub fn from_config(config: Config, name: String, common: &Common) -> Result<Fs> {
        let key = match common.key_file {
            Some(_) => common.key()?,
            None => config.key()?,
        };
        Fs::connect(config.map(), key, Some(config), name, common)
    }

    fn connect(map: ClusterMap, key: Option<Credential>, config: Option<Config>, name: String, common: &Common) -> Result<Fs> {
        crate::faults::begin("client", config.as_ref())?;
        let root = key.as_ref().map_or(ROOT_HANDLE, |key| key.root);
        let mut settings = ClientConfig::from_map(&map, key.clone()).map_err(|error| anyhow!("{name}: {error}"))?;
        settings.share_memory = config.as_ref().is_none_or(|config| config.shared_memory);
        settings.encrypt_tcp = config.as_ref().is_some_and(|config| config.encrypt_tcp);
        let mut options = ClientOptions::new(settings.client, settings.incarnation);
        options.root = root;
        let rt = ClientRt::new(settings);
        options.deadline_ns = common.timeout().as_nanos() as u64;
        Ok(Fs { client: Client::new(rt, map, options), who: credentials()?, name, config, key })
    }

    /// Drives a flow to its end on this thread.
    pub fn run<F: Future>(&self, flow: F) -> F::Output {
        self.client.rt().block_on(flow)
    }

    /// Drives a flow; an error is told with the path and everything known about it.
    ///
    /// # Errors
    /// Of the flow.
    pub fn run_at<T>(&self, path: &[u8], flow: impl Future<Output = weft_client::Result<T>>) -> Result<T> {
        self.run(flow).map_err(|error| self.explain(path, error))
    }

    /// An error for people.
    pub fn explain(&self, path: &[u8], error: weft_client::Error) -> anyhow::Error {
        let shown = self.shown(path);
        match error.status {
            // The path says it all; the handle of its directory would only confuse.
            Status::NotFound | Status::Exists | Status::NotDirectory | Status::IsDirectory | Status::NotEmpty => {
                anyhow::Error::new(error).context(format!("{shown}: {}", error.status))
            }
            _ => anyhow::Error::new(error).context(format!("{shown}: {}", self.why(&error))),
        }
    }

    /// What a failed operation has to say, with the words of the system if there was no connection.
    pub fn why(&self, error: &weft_client::Error) -> String {
        let text = error.explain(self.client.map());
        let is_of_connection = matches!(
            error.status,
            Status::Unreachable | Status::MapChanged | Status::VersionMismatch | Status::FeatureMissing | Status::AuthenticationFailed
        );
        match error.server.filter(|_| is_of_connection).and_then(|server| self.client.rt().last_error(server)) {
            Some(words) => format!("{text} ({words})"),
            None => text,
        }
    }

    /// A path of it as the person named it.
    pub fn shown(&self, path: &[u8]) -> String {
        format!("{}:{}", self.name, crate::output::show_name(path))
    }

    /// Attributes of the object at a path.
    ///
    /// # Errors
    /// As the servers say.
    pub fn stat(&self, path: &[u8], follow: bool) -> Result<Attr> {
        self.run_at(path, self.client.resolve(&self.who, path, follow))
    }

    /// Like [`Fs::stat`]; `None` if there is nothing of that name.
    ///
    /// # Errors
    /// Any other failure.
    pub fn find(&self, path: &[u8], follow: bool) -> Result<Option<Attr>> {
        match self.run(self.client.resolve(&self.who, path, follow)) {
            Ok(attr) => Ok(Some(attr)),
            Err(error) if error.status == Status::NotFound => Ok(None),
            Err(error) => Err(self.explain(path, error)),
        }
    }

    /// The directory that holds the last name of a path, and that name.
    ///
    /// # Errors
    /// As the servers say; the root has no name.
    pub fn parent(&self, path: &[u8]) -> Result<(Handle, bytes::Bytes)> {
        self.run(self.client.resolve_parent(&self.who, path)).map_err(|error| match error.status {
            // Of a path this is the only thing that is wrong before a server is asked.
            Status::Invalid if error.server.is_none() => anyhow::Error::new(error)
                .context(format!("{} ends without a name: give the path of an object by its name", self.shown(path))),
            _ => self.explain(path, error),
        })
    }

    /// Like [`Fs::parent`], for what is no directory or will be none: a slash at the end of its
    /// path is an error.
    ///
    /// # Errors
    /// As [`Fs::parent`]; a slash at the end.
    pub fn parent_of_file(&self, path: &[u8]) -> Result<(Handle, bytes::Bytes)> {
        let found = self.parent(path)?;
        if path.ends_with(b"/") {
            anyhow::bail!("{}: not a directory; without the slash at its end it is a name for a file", self.shown(path));
        }
        Ok(found)
    }

    /// All entries of a directory, ordered by name.
    ///
    /// # Errors
    /// As the servers say.
    pub fn list(&self, path: &[u8], dir: Handle, with_attrs: bool) -> Result<Vec<weft_client::DirItem>> {
        let mut items = Vec::new();
        let mut cookie = 0;
        loop {
            let page = match with_attrs {
                true => self.run_at(path, self.client.readdir_soon(&self.who, dir, cookie, LIST_BYTES))?,
                false => self.run_at(path, self.client.readdir(&self.who, dir, cookie, LIST_BYTES, false))?,
            };
            let last = page.entries.last().map(|entry| entry.cookie);
            items.extend(page.entries);
            match last {
                Some(last) if !page.end => cookie = last,
                _ => break,
            }
        }
        items.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(items)
    }

    /// One page of the names of a directory, from behind this cookie on.
    ///
    /// # Errors
    /// As [`Client::readdir`].
    pub fn page(&self, dir: Handle, cookie: u64, bytes_max: u32) -> weft_client::Result<DirPage> {
        self.run(self.client.readdir(&self.who, dir, cookie, bytes_max, false))
    }

    /// Has a server record, or say what it records.
    ///
    /// # Errors
    /// As [`Client::trace`].
    pub fn trace(&self, server: ServerId, request: &TraceRequest) -> weft_client::Result<TraceReply> {
        self.run(self.client.trace(server, request))
    }

    /// A part of what a server has recorded.
    ///
    /// # Errors
    /// As [`Client::trace_read`].
    pub fn trace_read(&self, server: ServerId, request: &TraceReadRequest) -> weft_client::Result<TraceReadReply> {
        self.run(self.client.trace_read(server, request))
    }

    /// The live numbers of a server.
    ///
    /// # Errors
    /// As [`Client::live`].
    pub fn live(&self, server: ServerId) -> weft_client::Result<LiveReply> {
        self.run(self.client.live(server))
    }

    /// Asks every server how it is.
    pub fn ping_all(&self) -> Vec<Pinged> {
        let mut answers: Vec<Pinged> = Vec::new();
        loop {
            // The answers may tell of a map with more servers.
            let is_asked = |id| answers.iter().any(|(entry, _)| entry.id == id);
            let more: Vec<ServerEntry> = self.client.map().servers().filter(|entry| !is_asked(entry.id)).cloned().collect();
            if more.is_empty() {
                return answers;
            }
            answers.extend(self.ping(more));
        }
    }

    /// Asks these servers how they are, all at once and each in at most the client's deadline: the
    /// thread that connects to a silent server has to wait for it.
    pub fn ping(&self, servers: Vec<ServerEntry>) -> Vec<Pinged> {
        let answers = parallel::each(&servers, |entry| self.run(self.client.ping(entry.id)));
        servers.into_iter().zip(answers).collect()
    }

    /// The id of the file system.
    pub fn id(&self) -> FsId {
        self.client.map().fs_id
    }
}

/// A path in a file system that is open.
pub struct FsPlace {
    /// The file system.
    pub fs: Fs,
    /// The path.
    pub path: Vec<u8>,
}

impl FsPlace {
    /// Opens what `FS:/PATH` names.
    ///
    /// # Errors
    /// As [`Fs::open`], and if `text` has not that form.
    pub fn open(text: &OsStr, common: &Common) -> Result<FsPlace> {
        let at = FsPath::parse(text)?;
        Ok(FsPlace { fs: Fs::open(&at.fs, common)?, path: at.path })
    }
}

/// A server and what it answered.
pub type Pinged = (ServerEntry, weft_client::Result<ServerInfo>);

/// File systems that are open, by name: one that is named again is not opened again.
#[derive(Default)]
pub struct OpenSystems(Vec<(OsString, Arc<Fs>)>);

impl OpenSystems {
    /// The one that is named so.
    ///
    /// # Errors
    /// As [`Fs::open`].
    pub fn open(&mut self, name: &OsStr, common: &Common) -> Result<Arc<Fs>> {
        if let Some((_, fs)) = self.0.iter().find(|(known, _)| known == name) {
            return Ok(fs.clone());
        }
        let fs = Arc::new(Fs::open(name, common)?);
        self.0.push((name.to_owned(), fs.clone()));
        Ok(fs)
    }
}

/// Opens every argument, each a path in a file system.
///
/// # Errors
/// As [`FsPlace::open`].
pub fn open_all<'a>(texts: impl IntoIterator<Item = &'a OsString>, common: &Common) -> Result<Vec<(Arc<Fs>, Vec<u8>)>> {
    let mut systems = OpenSystems::default();
    let open = |text: &OsString| {
        let at = FsPath::parse(text)?;
        Ok((systems.open(&at.fs, common)?, at.path))
    };
    texts.into_iter().map(open).collect()
}

/// Bytes of one page of a directory.
const LIST_BYTES: u32 = 256 << 10;

/// What a mode's type letter is in a long listing.
pub fn kind_letter(kind: FileKind) -> char {
    match kind {
        FileKind::Fifo => 'p',
        FileKind::CharDevice => 'c',
        FileKind::Directory => 'd',
        FileKind::BlockDevice => 'b',
        FileKind::File => '-',
        FileKind::Symlink => 'l',
        FileKind::Socket => 's',
    }
}

/// The word for a kind.
pub fn kind_word(kind: FileKind) -> &'static str {
    match kind {
        FileKind::Fifo => "fifo",
        FileKind::CharDevice => "character device",
        FileKind::Directory => "directory",
        FileKind::BlockDevice => "block device",
        FileKind::File => "file",
        FileKind::Symlink => "symlink",
        FileKind::Socket => "socket",
    }
}

/// Random bytes of the operating system.
///
/// # Errors
/// If it gives none.
pub fn random<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|error| anyhow!("the operating system gives no random bytes: {error}"))?;
    Ok(bytes)
}

fn credentials() -> Result<Credentials> {
    let groups = nix::unistd::getgroups().context("cannot tell the groups of this process")?;
    Ok(Credentials {
        uid: nix::unistd::geteuid().as_raw(),
        gid: nix::unistd::getegid().as_raw(),
        groups: groups.into_iter().map(|group| group.as_raw()).take(32).collect(),
        checked_by_kernel: false,
    })
}

/// The bits that the shell wants new files not to have. Reading them means setting them: only while
/// there is one thread.
pub fn umask() -> u32 {
    let mask = nix::sys::stat::umask(nix::sys::stat::Mode::empty());
    nix::sys::stat::umask(mask);
    mask.bits()
}

fn advice(key: &Option<Credential>) -> &'static str {
    if key.is_none() { " (no key was given: use --key-file or WEFT_KEY_FILE)" } else { "" }
}
