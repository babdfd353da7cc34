//! Writes a new config, with the comments that a person needs who edits it later.

use std::path::Path;

use anyhow::{Context, Result, bail};
use weft_base::{FsId, ServerRole};
use weft_sched::LayerKind;

use crate::config::{BATCH_INTERVAL_MS_DEFAULT, Config, Durability, Engine};
use crate::units::ByteSize;

/// What a new config shall say.
#[derive(Clone, Debug)]
pub struct Draft {
    /// Name of the file system.
    pub fs_name: String,
    /// Its id.
    pub fs_id: FsId,
    /// Where metadata is kept.
    pub engine: Engine,
    /// When changes are safe.
    pub durability: Durability,
    /// What decides about the order of accesses to the disks of data servers.
    pub cache_layer: LayerKind,
    /// Data servers go to their disks past the page cache.
    pub direct_io: bool,
    /// Everything over TCP is encrypted.
    pub encrypt_tcp: bool,
    /// A laboratory may hold processes up.
    pub allow_faults: bool,
    /// Stripe size of new files in bytes.
    pub stripe_bytes: u32,
    /// Datafiles of a new file; 0: one on every data server.
    pub stripe_width: u16,
    /// Files up to so many bytes lie beside their inodes; 0: none.
    pub inline_limit: u32,
    /// Memory for the names and inodes of each metadata server; `None`: it goes by what is free.
    pub metadata_memory: Option<ByteSize>,
    /// Owner of the root directory.
    pub root_uid: u32,
    /// Its group.
    pub root_gid: u32,
    /// The servers.
    pub servers: Vec<DraftServer>,
}

/// A server of a new config.
#[derive(Clone, Debug)]
pub struct DraftServer {
    /// Its name.
    pub name: String,
    /// What it does.
    pub role: ServerRole,
    /// Its number among the servers of its role, for ever.
    pub id: u16,
    /// Where it listens; the path of a Unix socket may be relative to the config.
    pub address: String,
    /// Where it listens, if not there.
    pub listen: Option<String>,
    /// Its folder, relative to the config or absolute.
    pub dir: String,
    /// Bytes that it may use.
    pub capacity: Option<ByteSize>,
}

impl Draft {
    /// The text of the config.
    pub fn to_toml(&self) -> String {
        let Draft { fs_id, engine, durability, cache_layer, direct_io, encrypt_tcp, stripe_width, root_uid, root_gid, .. } = self;
        let name = quoted(&self.fs_name);
        let (stripe_size, inline_limit) = (ByteSize(self.stripe_bytes.into()), ByteSize(self.inline_limit.into()));
        let faults = match self.allow_faults {
            true => "allow_faults = true           # a laboratory may hold processes up (WEFT_FAULT): never where data matters\n",
            false => "",
        };
        let memory = self.metadata_memory.map_or(String::new(), |size| {
            format!(
                "metadata_memory = \"{size}\"      # of each metadata server; names and inodes that are more lie in a file of its folder\n"
            )
        });
        let fs = format!(
            "\
# A Weft file system. Servers and clients read this file; relative paths are relative to it.

[fs]
name = {name}
id = \"{fs_id}\"
key_file = \"key\"             # the key of a client; keep it private (0600)
server_key_file = \"server.key\" # the key of servers: only on their machines, never on those of clients
keys_file = \"keys\"            # the keys of clients and their rights (`weft key`): only where servers are
engine = \"{engine}\"
durability = \"{durability}\"          # sync | batch | none
batch_interval_ms = {BATCH_INTERVAL_MS_DEFAULT}
cache_layer = \"{cache_layer}\"   # order of accesses to the disks of data servers: none | write_behind | aggregation | server_directed
direct_io = {direct_io}             # past the page cache
shared_memory = true          # between clients and servers of one machine, for bulk data
encrypt_tcp = {encrypt_tcp}           # nobody on the way reads or changes what goes over TCP; who does not encrypt is refused
{faults}stripe_size = \"{stripe_size}\"          # of new files
stripe_width = {stripe_width}              # datafiles of a new file; 0: one on every data server
inline_limit = \"{inline_limit}\"         # files up to this size lie beside their inodes, unless a hint of their directory says otherwise; 0: none
{memory}root_uid = {root_uid}                  # owner of the root directory when it is made
root_gid = {root_gid}
"
        );
        std::iter::once(fs).chain(self.servers.iter().map(DraftServer::to_toml)).collect()
    }

    /// Checks what it says, before anything is written for it.
    ///
    /// # Errors
    /// What a reader of `file` would find wrong.
    pub fn check(&self, file: &Path) -> Result<()> {
        match Config::parse(file, &self.to_toml()) {
            Ok(_) => Ok(()),
            Err(error) => bail!("these arguments make no config: {}", error.message),
        }
    }

    /// Writes the config in one step: a reader sees all of it or nothing.
    ///
    /// # Errors
    /// Of the disk.
    pub fn write(&self, file: &Path) -> Result<()> {
        write_in_one_step(file, self.to_toml().as_bytes(), 0o644)
    }
}

impl DraftServer {
    fn to_toml(&self) -> String {
        let DraftServer { role, id, .. } = self;
        let (name, address, dir) = (quoted(&self.name), quoted(&self.address), quoted(&self.dir));
        let listen = self.listen.as_ref().map_or(String::new(), |listen| format!("listen = {}\n", quoted(listen)));
        let capacity = self.capacity.map_or(String::new(), |capacity| format!("capacity = \"{capacity}\"\n"));
        format!(
            "
[[server]]
name = {name}
role = \"{role}\"
id = {id}                        # for ever: files are found by it, whatever the server is called and where it is
address = {address}
{listen}dir = {dir}
{capacity}"
        )
    }
}

/// Writes a file under a temporary name and renames it, with these permission bits from its first
/// moment.
///
/// # Errors
/// Of the disk, with the name of the file.
pub fn write_in_one_step(file: &Path, content: &[u8], mode: u32) -> Result<()> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    let mut temporary = file.as_os_str().to_owned();
    temporary.push(".new");
    let write = || -> std::io::Result<()> {
        let mut out = std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(&temporary)?;
        out.write_all(content)?;
        out.sync_all()?;
        std::fs::rename(&temporary, file)
    };
    let written = write();
    if written.is_err() {
        // Of no use, and it takes room that may be short. Never `file` itself.
        let _ = std::fs::remove_file(&temporary);
    }
    let next = match &written {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => "its folder is missing: make it",
        _ => "if its disk is full, make room there and try again",
    };
    written.with_context(|| format!("cannot write {}; {next}", file.display()))
}

fn quoted(text: &str) -> String {
    toml::Value::String(text.to_string()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    #[test]
    fn a_missing_folder_is_no_full_disk() {
        let dir = tempfile::tempdir().unwrap();
        let error = write_in_one_step(&dir.path().join("none/weft.toml"), b"", 0o600).unwrap_err();
        assert!(format!("{error:#}").contains("its folder is missing"), "{error:#}");
    }

    #[test]
    fn a_written_config_reads_back() {
        let dir = tempfile::tempdir().unwrap();
        let server = |name: &str, role, address: &str| DraftServer {
            name: name.into(),
            role,
            id: 0,
            address: address.into(),
            listen: None,
            dir: format!("servers/{name} \"x\""),
            capacity: (role == ServerRole::Data).then_some(ByteSize(3 << 30)),
        };
        let draft = Draft {
            fs_name: "weft".into(),
            fs_id: FsId(7),
            engine: Engine::Memory,
            durability: Durability::Sync,
            cache_layer: LayerKind::WriteBehind,
            direct_io: true,
            encrypt_tcp: false,
            allow_faults: true,
            stripe_bytes: 65536,
            stripe_width: 1,
            inline_limit: 4096,
            metadata_memory: Some(ByteSize(5 << 30)),
            root_uid: 1000,
            root_gid: 100,
            servers: vec![server("meta0", ServerRole::Meta, "unix:run/meta0.sock"), server("data0", ServerRole::Data, "tcp:host:1")],
        };
        let file = dir.path().join("weft.toml");
        draft.write(&file).unwrap();
        let config = Config::load(&file).unwrap();
        assert_eq!(
            (config.fs_name.as_str(), config.fs_id, config.engine, config.durability),
            ("weft", FsId(7), Engine::Memory, Durability::Sync)
        );
        assert_eq!((config.stripe_bytes, config.stripe_width, config.root_uid, config.root_gid), (65536, 1, 1000, 100));
        assert_eq!((config.inline_limit, config.metadata_memory), (4096, Some(5 << 30)));
        assert_eq!((config.cache_layer, config.direct_io, config.allow_faults), (LayerKind::WriteBehind, true, true));
        assert!(!config.encrypt_tcp);
        assert_eq!(config.servers[1].capacity, Some(3 << 30));
        assert_eq!(config.servers[0].dir, dir.path().join("servers/meta0 \"x\""));
        assert!(!dir.path().join("weft.toml.new").exists());
    }
}
