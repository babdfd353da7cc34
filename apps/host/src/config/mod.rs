//! The one file that describes a file system: `weft.toml`. Every server and every client may have a
//! copy; paths in it are relative to the folder that holds it. Whatever is wrong is reported with
//! file, line, key and what to do.

mod cache;
mod choices;
mod ids;
mod keys;
mod render;
mod values;

use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Deserialize;
use toml::Spanned;
use weft_base::{ClusterMap, FsId, ServerEntry, ServerId, ServerRole};
use weft_rt_real::{Address, AddressError};

use self::choices::by_name;
use crate::trust;
use crate::units::ByteSize;

pub use cache::cache_config;
pub use choices::{durabilities, engines, layers};
pub use keys::{KeyFiles, read_key, write_credential};
pub use render::{Draft, DraftServer, write_in_one_step};
pub use values::{check_word, parse_inline_limit, parse_stripe_size};
pub use weft_sched::LayerKind;
pub use weft_serving::{Durability, Engine};

/// Stripe size of new files unless the config says otherwise, in bytes.
pub const STRIPE_BYTES_DEFAULT: u32 = 1 << 20;
/// Longest time between an acknowledged change and stable storage under `batch`, in milliseconds.
pub const BATCH_INTERVAL_MS_DEFAULT: u64 = 50;
/// Longest path of a Unix socket in bytes: `sun_path` has 108 with its final NUL.
pub const SOCKET_PATH_BYTES_MAX: usize = 107;

/// The cache layer that was never slower than the others: the page cache gathers by itself, and
/// without it the server does.
pub fn usual_layer(direct_io: bool) -> LayerKind {
    if direct_io { LayerKind::ServerDirected } else { LayerKind::None }
}

/// A checked config: every path is absolute, every address is complete.
#[derive(Clone, Debug)]
pub struct Config {
    /// The file it was read from.
    pub file: PathBuf,
    /// Name of the file system.
    pub fs_name: String,
    /// Its id.
    pub fs_id: FsId,
    /// File with the key of a client, if there is one.
    pub key_file: Option<PathBuf>,
    /// Files with the keys of servers, if there are keys. On machines of clients they do not exist.
    pub key_files: Option<KeyFiles>,
    /// Where metadata is kept.
    pub engine: Engine,
    /// When changes are safe.
    pub durability: Durability,
    /// The interval of `batch`, in milliseconds.
    pub batch_interval_ms: u64,
    /// A directory with more names on a metadata server is spread over more of them, and so is one
    /// that several clients keep a server busy with; 0: none is.
    pub split_names: Option<u64>,
    /// What decides about the order of accesses to the disks of data servers.
    pub cache_layer: LayerKind,
    /// Data servers go to their disks past the page cache.
    pub direct_io: bool,
    /// Clients and servers on one machine may share memory for bulk data.
    pub shared_memory: bool,
    /// Everything over TCP is encrypted; servers and clients refuse each other otherwise.
    pub encrypt_tcp: bool,
    /// A laboratory may hold processes up (`WEFT_FAULT`).
    pub allow_faults: bool,
    /// Stripe size of new files in bytes.
    pub stripe_bytes: u32,
    /// Datafiles of a new file; 0: one on every data server.
    pub stripe_width: u16,
    /// Files up to so many bytes lie beside their inodes, in directories without the hint
    /// `inline_limit`; 0: none, as in file systems that were made before there was a limit.
    pub inline_limit: u32,
    /// Memory for the names and inodes of each metadata server, in bytes; what is more lies in a
    /// file. `None`: it goes by the memory that is free.
    pub metadata_memory: Option<u64>,
    /// Owner of the root directory when it is made.
    pub root_uid: u32,
    /// Its group.
    pub root_gid: u32,
    /// All servers, metadata first.
    pub servers: Vec<ServerConfig>,
    /// Servers without an id, which are none of the file system yet, each with what to do.
    without_id: BTreeMap<String, String>,
}

/// One server of the config.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Its name.
    pub name: String,
    /// Its number: its role and its `id`, never a position in the file.
    pub id: ServerId,
    /// Where clients reach it.
    pub address: Address,
    /// Where it listens, if not there.
    pub listen: Address,
    /// Its folder.
    pub dir: PathBuf,
    /// Bytes that it may use, if bounded (data servers).
    pub capacity: Option<u64>,
}

/// Why text is no config, with the place in the text.
#[derive(Debug)]
struct ConfigError {
    at: Option<Range<usize>>,
    message: String,
}

impl Config {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// Says file, line, key and what to do.
    pub fn load(file: &Path) -> Result<Config> {
        let opened = fs::File::open(file).with_context(|| format!("cannot read the config {}", file.display()))?;
        trust::check_file(file, &opened)?;
        let text = std::io::read_to_string(opened).with_context(|| format!("cannot read the config {}", file.display()))?;
        let file = std::path::absolute(file).with_context(|| format!("cannot tell where {} is", file.display()))?;
        Config::parse(&file, &text).map_err(|error| {
            let line = error.at.map(|at| format!(":{}", 1 + text[..at.start.min(text.len())].matches('\n').count()));
            anyhow::anyhow!("{}{}: {}", file.display(), line.unwrap_or_default(), error.message)
        })
    }

    /// What this config says of the cluster map: servers, by number. Where files are the servers
    /// know.
    pub fn map(&self) -> ClusterMap {
        let entry = |server: &ServerConfig| ServerEntry { id: server.id, name: server.name.clone(), address: server.address.to_string() };
        // Only servers that have met can agree on one.
        let map = ClusterMap::of(self.fs_id, &self.fs_name, self.servers.iter().map(entry), self.stripe_bytes);
        ClusterMap { stripe_width: self.stripe_width, ..map }
    }

    /// The server with this name.
    ///
    /// # Errors
    /// Lists the names that exist; says so if it has no id.
    pub fn server(&self, name: &str) -> Result<&ServerConfig> {
        if let Some(what_to_do) = self.without_id.get(name) {
            anyhow::bail!("{}: {what_to_do}", self.file.display());
        }
        self.servers.iter().find(|server| server.name == name).with_context(|| {
            let names: Vec<_> = self.servers.iter().map(|server| server.name.as_str()).collect();
            format!("{} has no server `{name}`; it has {}", self.file.display(), names.join(", "))
        })
    }

    fn parse(file: &Path, text: &str) -> Result<Config, ConfigError> {
        let raw: RawConfig = toml::from_str(text).map_err(|error| ConfigError { at: error.span(), message: readable(error.message()) })?;
        let base = file.parent().unwrap_or(Path::new("/"));
        let fs = raw.fs;
        check_word(fs.name.get_ref()).map_err(|message| at(&fs.name, "fs.name", message))?;
        let fs_id = parse_fs_id(fs.id.get_ref()).map_err(|message| at(&fs.id, "fs.id", message))?;
        let stripe_bytes = match &fs.stripe_size {
            None => STRIPE_BYTES_DEFAULT,
            Some(size) => parse_stripe_size(size.get_ref()).map_err(|message| at(size, "fs.stripe_size", message))?,
        };
        let inline_limit = match &fs.inline_limit {
            None => 0,
            Some(size) => parse_inline_limit(size.get_ref()).map_err(|message| at(size, "fs.inline_limit", message))?,
        };
        let batch_interval_ms = match &fs.batch_interval_ms {
            None => BATCH_INTERVAL_MS_DEFAULT,
            Some(ms) if (1..=10_000).contains(ms.get_ref()) => *ms.get_ref(),
            Some(ms) => return Err(at(ms, "fs.batch_interval_ms", "give 1 to 10000 milliseconds")),
        };
        let (servers, without_id) = check_servers(base, raw.server)?;
        let data_servers = servers.iter().filter(|server| server.id.role() == ServerRole::Data).count();
        if let Some(width) = &fs.stripe_width
            && usize::from(*width.get_ref()) > data_servers
        {
            return Err(at(width, "fs.stripe_width", format!("there are only {data_servers} data servers; 0 means all of them")));
        }
        Ok(Config {
            file: file.to_path_buf(),
            fs_name: fs.name.into_inner(),
            fs_id,
            key_file: fs.key_file.map(|path| base.join(path)),
            key_files: fs
                .server_key_file
                .map(|path| KeyFiles { server: base.join(path), list: base.join(fs.keys_file.as_deref().unwrap_or(Path::new("keys"))) }),
            engine: fs.engine.unwrap_or(Engine::Journal),
            durability: fs.durability.unwrap_or(Durability::Batch),
            batch_interval_ms,
            split_names: fs.split_names,
            cache_layer: fs.cache_layer.unwrap_or(usual_layer(fs.direct_io.unwrap_or(false))),
            direct_io: fs.direct_io.unwrap_or(false),
            shared_memory: fs.shared_memory.unwrap_or(true),
            encrypt_tcp: fs.encrypt_tcp.unwrap_or(true),
            allow_faults: fs.allow_faults.unwrap_or(false),
            stripe_bytes,
            stripe_width: fs.stripe_width.map_or(0, Spanned::into_inner),
            inline_limit,
            metadata_memory: parse_size(&fs.metadata_memory, "fs.metadata_memory")?,
            root_uid: fs.root_uid.unwrap_or(0),
            root_gid: fs.root_gid.unwrap_or(0),
            servers,
            without_id,
        })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawConfig {
    fs: RawFs,
    #[serde(default)]
    server: Vec<Spanned<RawServer>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawFs {
    name: Spanned<String>,
    id: Spanned<String>,
    key_file: Option<PathBuf>,
    server_key_file: Option<PathBuf>,
    keys_file: Option<PathBuf>,
    #[serde(default, deserialize_with = "by_name")]
    engine: Option<Engine>,
    #[serde(default, deserialize_with = "by_name")]
    durability: Option<Durability>,
    batch_interval_ms: Option<Spanned<u64>>,
    split_names: Option<u64>,
    #[serde(default, deserialize_with = "by_name")]
    cache_layer: Option<LayerKind>,
    direct_io: Option<bool>,
    shared_memory: Option<bool>,
    encrypt_tcp: Option<bool>,
    allow_faults: Option<bool>,
    stripe_size: Option<Spanned<String>>,
    stripe_width: Option<Spanned<u16>>,
    inline_limit: Option<Spanned<String>>,
    metadata_memory: Option<Spanned<String>>,
    root_uid: Option<u32>,
    root_gid: Option<u32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawServer {
    name: Spanned<String>,
    #[serde(with = "RawRole")]
    role: ServerRole,
    id: Option<Spanned<u16>>,
    address: Spanned<String>,
    listen: Option<Spanned<String>>,
    dir: Spanned<PathBuf>,
    capacity: Option<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase", remote = "ServerRole")]
enum RawRole {
    Meta,
    Data,
}

fn at<T>(value: &Spanned<T>, key: &str, message: impl Into<String>) -> ConfigError {
    ConfigError { at: Some(value.span()), message: format!("{key}: {}", message.into()) }
}

/// The parser's words, with what to do where that is not plain.
fn readable(message: &str) -> String {
    let hint = if message.contains("unknown field") {
        "; remove the key or correct its spelling"
    } else if message.contains("missing field") {
        "; add it"
    } else if message.contains("unknown variant") {
        "; use one of these words"
    } else {
        ""
    };
    format!("{}{hint}", message.trim().replace('\n', ", "))
}

/// The servers, and those without an id.
fn check_servers(base: &Path, raw: Vec<Spanned<RawServer>>) -> Result<(Vec<ServerConfig>, BTreeMap<String, String>), ConfigError> {
    let mut names = BTreeMap::new();
    let mut dirs = BTreeMap::new();
    let mut addresses = BTreeMap::new();
    let mut servers: Vec<ServerConfig> = Vec::new();
    let mut without_id: BTreeMap<String, ConfigError> = BTreeMap::new();
    let next: Vec<u16> = [ServerRole::Meta, ServerRole::Data].map(|role| ids::next(&raw, role)).to_vec();
    for server in raw {
        let server = server.into_inner();
        let name = server.name.get_ref().clone();
        check_word(&name).map_err(|message| at(&server.name, "server.name", message))?;
        let id = ids::check(&server)?.ok_or_else(|| ids::missing(&server, next[usize::from(server.role == ServerRole::Data)]));
        if let Ok(id) = &id
            && let Some(other) = servers.iter().find(|other| other.id == *id)
        {
            let message = format!("`{}` has the same role and id; every server needs an id of its own", other.name);
            return Err(at(&server.name, "server.id", message));
        }
        let address = parse_address(base, &server.address, "server.address")?;
        let listen = server.listen.as_ref().map_or(Ok(address.clone()), |listen| parse_address(base, listen, "server.listen"))?;
        let dir = base.join(server.dir.get_ref());
        if let (Some(size), ServerRole::Meta) = (&server.capacity, server.role) {
            return Err(at(size, "server.capacity", "only data servers have a capacity; remove it"));
        }
        let capacity = parse_size(&server.capacity, "server.capacity")?;
        if names.insert(name.clone(), ()).is_some() {
            return Err(at(&server.name, "server.name", format!("`{name}` is there twice; every server needs a name of its own")));
        }
        if let Some(other) = dirs.insert(dir.clone(), name.clone()) {
            return Err(at(&server.dir, "server.dir", format!("`{other}` has the same folder; every server needs one of its own")));
        }
        if let Some(other) = addresses.insert(address.to_string(), name.clone()) {
            return Err(at(
                &server.address,
                "server.address",
                format!("`{other}` has the same address; every server needs one of its own"),
            ));
        }
        match id {
            Ok(id) => servers.push(ServerConfig { name, id, address, listen, dir, capacity }),
            Err(missing) => drop(without_id.insert(name, missing)),
        }
    }
    for role in [ServerRole::Meta, ServerRole::Data] {
        if !servers.iter().any(|server| server.id.role() == role) {
            let message = format!("[[server]]: there is no server with role = \"{role}\"; a file system needs at least one");
            return Err(without_id.pop_first().map_or(ConfigError { at: None, message }, |(_, missing)| missing));
        }
    }
    if !servers.iter().any(|server| server.id == ServerId(0)) {
        let message = "[[server]]: there is no server with role = \"meta\" and id = 0; it holds the root directory".into();
        return Err(without_id.pop_first().map_or(ConfigError { at: None, message }, |(_, missing)| missing));
    }
    servers.sort_by_key(|server| server.id);
    Ok((servers, without_id.into_iter().map(|(name, missing)| (name, missing.message)).collect()))
}

fn parse_address(base: &Path, text: &Spanned<String>, key: &str) -> Result<Address, ConfigError> {
    let resolved = match text.get_ref().strip_prefix("unix:") {
        Some(path) => format!("unix:{}", base.join(path).display()),
        None => text.get_ref().clone(),
    };
    let path_bytes = resolved.strip_prefix("unix:").map_or(0, str::len);
    if path_bytes > SOCKET_PATH_BYTES_MAX {
        let message =
            format!("the socket path has {path_bytes} bytes, Linux allows {SOCKET_PATH_BYTES_MAX}: use a shorter path or tcp:HOST:PORT");
        return Err(at(text, key, message));
    }
    if resolved.contains(char::is_control) {
        return Err(at(text, key, "the path has a line break or another control character in it: use another one"));
    }
    resolved.parse().map_err(|error: AddressError| at(text, key, error.to_string()))
}

fn parse_size(size: &Option<Spanned<String>>, key: &str) -> Result<Option<u64>, ConfigError> {
    let parse = |size: &Spanned<String>| size.get_ref().parse::<ByteSize>().map_err(|message| at(size, key, message));
    Ok(size.as_ref().map(parse).transpose()?.map(|size| size.0))
}

fn parse_fs_id(text: &str) -> Result<FsId, String> {
    match u64::from_str_radix(text, 16) {
        Ok(id) if id != 0 && text.len() == 16 => Ok(FsId(id)),
        _ => Err(format!("`{text}` is no file system id: 16 hexadecimal digits, not all zero (`weft genconfig` draws one)")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"
[fs]
name = "demo"
id = "00000000000000ab"
key_file = "key"
stripe_size = "64KiB"

[[server]]
name = "store"
role = "data"
id = 0
address = "unix:run/store.sock"
dir = "servers/store"
capacity = "10GiB"

[[server]]
name = "names"
role = "meta"
id = 0
address = "tcp:127.0.0.1:7000"
dir = "/srv/names"
"#;

    fn parse(text: &str) -> Result<Config, (usize, String)> {
        Config::parse(Path::new("/state/weft.toml"), text)
            .map_err(|error| (error.at.map_or(0, |at| 1 + text[..at.start].matches('\n').count()), error.message))
    }

    #[test]
    fn a_good_config_is_resolved() {
        let config = parse(GOOD).unwrap();
        assert_eq!((config.fs_name.as_str(), config.fs_id), ("demo", FsId(0xab)));
        assert_eq!((config.engine, config.durability, config.batch_interval_ms), (Engine::Journal, Durability::Batch, 50));
        assert!(config.shared_memory);
        assert_eq!((config.stripe_bytes, config.stripe_width), (65536, 0));
        assert_eq!(config.key_file, Some(PathBuf::from("/state/key")));
        let [names, store] = &config.servers[..] else { panic!("two servers were given") };
        assert_eq!((names.name.as_str(), names.id, names.dir.clone()), ("names", ServerId(0), PathBuf::from("/srv/names")));
        assert_eq!((store.name.as_str(), store.id, store.capacity), ("store", ServerId::data(0), Some(10 << 30)));
        let map = config.map();
        assert_eq!(map.meta[0].address, "tcp:127.0.0.1:7000");
        assert_eq!(map.data[0].address, "unix:/state/run/store.sock");
    }

    #[test]
    fn every_mistake_names_line_and_key_and_remedy() {
        let cases = [
            ("name = \"demo\"", "nmae = \"demo\"", 3, "unknown field `nmae`"),
            ("id = \"00000000000000ab\"", "id = \"xyz\"", 4, "fs.id: `xyz` is no file system id"),
            ("stripe_size = \"64KiB\"", "stripe_size = \"65000\"", 6, "power of two from 4KiB to 64MiB"),
            ("stripe_size = \"64KiB\"", "stripe_width = 2", 6, "there are only 1 data servers"),
            ("stripe_size = \"64KiB\"", "engine = \"fast\"", 6, "unknown variant `fast`"),
            ("stripe_size = \"64KiB\"", "batch_interval_ms = 0", 6, "1 to 10000 milliseconds"),
            ("name = \"names\"", "name = \"store\"", 17, "`store` is there twice"),
            ("name = \"names\"", "name = \"na mes\"", 17, "is not a name"),
            ("dir = \"/srv/names\"", "dir = \"servers/store\"", 21, "`store` has the same folder"),
            ("address = \"tcp:127.0.0.1:7000\"", "address = \"unix:run/store.sock\"", 20, "`store` has the same address"),
            ("address = \"tcp:127.0.0.1:7000\"", "address = \"carrier pigeon\"", 20, "server.address"),
            ("capacity = \"10GiB\"", "capacity = \"lots\"", 14, "server.capacity"),
            ("role = \"meta\"\nid = 0", "role = \"data\"\nid = 1", 0, "no server with role = \"meta\""),
            ("role = \"meta\"", "role = \"data\"", 17, "`store` has the same role and id"),
            ("role = \"meta\"\nid = 0", "role = \"meta\"\nid = 1", 0, "role = \"meta\" and id = 0; it holds the root"),
            ("role = \"meta\"\nid = 0", "role = \"meta\"", 17, "`names` has no id: add the line `id = 0`"),
            ("role = \"data\"\nid = 0", "role = \"data\"\nid = 32767", 11, "a number from 0 to 32766"),
            ("dir = \"/srv/names\"", "", 16, "missing field `dir`"),
        ];
        for (good, bad, line, words) in cases {
            assert!(GOOD.contains(good));
            let (at, message) = parse(&GOOD.replace(good, bad)).expect_err(bad);
            assert_eq!(at, line, "{bad}: {message}");
            assert!(message.contains(words), "{bad}: {message}");
        }
    }

    #[test]
    fn a_socket_path_that_is_too_long_is_refused() {
        let long = format!("unix:/{}", "x".repeat(107));
        let (_, message) = parse(&GOOD.replace("tcp:127.0.0.1:7000", &long)).unwrap_err();
        assert!(message.contains("108 bytes"), "{message}");
    }

    #[test]
    fn errors_begin_with_file_and_line() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("weft.toml");
        fs::write(&file, GOOD.replace("name = \"demo\"", "nmae = \"demo\"")).unwrap();
        let message = Config::load(&file).unwrap_err().to_string();
        assert!(message.starts_with(&format!("{}:3: ", file.display())), "{message}");
        assert!(message.contains("correct its spelling"), "{message}");
    }
}
