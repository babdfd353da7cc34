//! `weft genconfig`: writes the config and key for a file system over several machines.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use weft_base::{FsId, ServerRole};
use weft_host::config;
use weft_host::config::{Draft, DraftServer, Durability, Engine, KeyFiles, LayerKind};
use weft_host::connect::random;
use weft_host::output;
use weft_host::units::ByteSize;

/// The name of a file system that is given none.
pub const NAME_DEFAULT: &str = "weft";

/// Write the config and key of a file system over several machines
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example: two machines, each with one metadata and two data servers:
  weft genconfig --name demo --meta node1:7000,node2:7000 \\
      --data node1:7001,node1:7002,node2:7001,node2:7002 --dir /srv/weft --output weft.toml")]
pub struct Args {
    /// Name of the file system
    #[arg(long, default_value = NAME_DEFAULT, value_parser = parse_name)]
    name: String,
    /// Metadata servers
    #[arg(long, required = true, value_delimiter = ',', value_name = "HOST:PORT")]
    meta: Vec<String>,
    /// Data servers
    #[arg(long, required = true, value_delimiter = ',', value_name = "HOST:PORT")]
    data: Vec<String>,
    /// Folder under which every server has its own, on its machine
    #[arg(long, default_value = "/var/lib/weft")]
    dir: String,
    /// Bytes that each data server may use
    #[arg(long, value_name = "SIZE")]
    capacity: Option<ByteSize>,
    #[command(flatten)]
    settings: Settings,
    /// The config to write; the key goes beside it
    #[arg(short, long, default_value = "weft.toml", value_name = "FILE")]
    output: PathBuf,
}

/// Settings of a new file system, shared with `weft up`, which must know what was asked for.
#[derive(Clone, Debug, clap::Args)]
pub struct Settings {
    /// Where metadata is kept [default: journal]
    #[arg(long, value_parser = config::engines())]
    pub engine: Option<Engine>,
    /// When an acknowledged change of a new file system is safe [default: batch]
    #[arg(long, value_parser = config::durabilities())]
    pub durability: Option<Durability>,
    /// What decides about the order of accesses to the disks of data servers [default:
    /// server_directed with --direct-io, else none]
    #[arg(long, value_parser = config::layers())]
    pub cache_layer: Option<LayerKind>,
    /// Data servers go to their disks past the page cache
    #[arg(long)]
    pub direct_io: bool,
    /// A laboratory may hold its processes up at fault points (WEFT_FAULT); never where data
    /// matters
    #[arg(long)]
    pub allow_faults: bool,
    /// What goes over TCP is neither encrypted nor kept from being changed on the way: faster, for
    /// networks of the cluster alone
    #[arg(long)]
    pub no_encryption: bool,
    /// Stripe size of new files, a power of two from 4KiB to 64MiB [default: 1MiB]
    #[arg(long, value_name = "SIZE", value_parser = config::parse_stripe_size)]
    pub stripe_size: Option<u32>,
    /// Data servers of one file; 0: all [default: 0]
    #[arg(long, value_name = "N")]
    pub stripe_width: Option<u16>,
    /// Files up to this size lie beside their inodes on metadata servers, from 0 (none) to 16KiB,
    /// unless the hint `inline_limit` of their directory says otherwise [default: 8KiB]
    #[arg(long, value_name = "SIZE", value_parser = config::parse_inline_limit)]
    pub inline_limit: Option<u32>,
    /// Memory for the names and inodes of each metadata server; what is more lies in a file of its
    /// folder [default: half of what is free when it starts, divided by the metadata servers]
    #[arg(long, value_name = "SIZE")]
    pub metadata_memory: Option<ByteSize>,
}

impl Settings {
    /// A draft of a config with a new id, owned by the user who runs this.
    ///
    /// # Errors
    /// If the operating system gives no random number.
    pub fn draft(&self, fs_name: &str, servers: Vec<DraftServer>) -> Result<Draft> {
        Ok(Draft {
            fs_name: fs_name.to_string(),
            fs_id: FsId(u64::from_le_bytes(random()?) | 1),
            engine: self.engine.unwrap_or(Engine::Journal),
            durability: self.durability.unwrap_or(Durability::Batch),
            cache_layer: self.cache_layer.unwrap_or(config::usual_layer(self.direct_io)),
            direct_io: self.direct_io,
            encrypt_tcp: !self.no_encryption,
            allow_faults: self.allow_faults,
            stripe_bytes: self.stripe_size.unwrap_or(config::STRIPE_BYTES_DEFAULT),
            stripe_width: self.stripe_width.unwrap_or(0),
            inline_limit: self.inline_limit.unwrap_or(weft_layout::INLINE_BYTES_DEFAULT),
            metadata_memory: self.metadata_memory,
            root_uid: nix::unistd::geteuid().as_raw(),
            root_gid: nix::unistd::getegid().as_raw(),
            servers,
        })
    }
}

impl Args {
    pub fn run(self) -> Result<()> {
        let output = std::path::absolute(&self.output).with_context(|| format!("cannot tell where {} is", self.output.display()))?;
        let key = output.with_file_name("key");
        let KeyFiles { server, list } = KeyFiles::beside(&output);
        for file in [&output, &key, &server, &list] {
            if file.exists() {
                bail!("{} exists; remove it or choose another --output: a file system that uses it would be lost", file.display());
            }
        }
        let draft = self.settings.draft(&self.name, self.servers())?;
        draft.check(&output)?;
        KeyFiles::beside(&output).make(&key)?;
        draft.write(&output)?;
        Ok(output::print(&self.next_steps(&output, &key, &draft))?)
    }

    fn servers(&self) -> Vec<DraftServer> {
        let server = |role: ServerRole, index: usize, address: &String| {
            let name = format!("{role}{index}");
            DraftServer {
                dir: format!("{}/{name}", self.dir.trim_end_matches('/')),
                name,
                role,
                id: index as u16,
                address: if address.contains("tcp:") || address.starts_with("unix:") { address.clone() } else { format!("tcp:{address}") },
                listen: None,
                capacity: self.capacity.filter(|_| role == ServerRole::Data),
            }
        };
        let metas = self.meta.iter().enumerate().map(|(index, address)| server(ServerRole::Meta, index, address));
        let datas = self.data.iter().enumerate().map(|(index, address)| server(ServerRole::Data, index, address));
        metas.chain(datas).collect()
    }

    fn next_steps(&self, output: &Path, key: &Path, draft: &Draft) -> String {
        let (config, key) = (output.display(), key.display());
        let KeyFiles { server, list } = KeyFiles::beside(output);
        let (server, list) = (server.display(), list.display());
        let config_word = output::shell_word(output);
        let mut text = format!("wrote {config}, {key}, {server} and {list} (keep the keys secret, mode 0600)\n\nNext:\n");
        text += &format!(
            "  1. copy {config} and {key} to the same place on every machine, {server} to those of servers only, and {list} to that of {} (the others learn it)\n",
            draft.servers[0].name
        );
        text += "  2. start each server on its machine; --create only the first time:\n";
        for server in &draft.servers {
            text += &format!("       weft serve --config {config_word} --server {} --create    # {}\n", server.name, server.address);
        }
        text += &format!("  3. check them all:   weft ping {config_word}\n");
        text += &format!("  4. use it:           weft mount {config_word} /mnt/weft\n");
        text
    }
}

/// A name of a file system on the command line.
pub fn parse_name(text: &str) -> Result<String, String> {
    config::check_word(text).map(|()| text.to_string())
}
