//! What an existing file system keeps, whatever `weft up` is told.

use anyhow::{Result, bail};
use weft_base::ServerRole;
use weft_host::config::{Config, Durability};
use weft_host::connect::Fs;
use weft_host::output::shell_word;
use weft_host::units::ByteSize;
use weft_rt_real::Address;
use weft_wire::ops::ServerInfo;

use super::{Args, Listen};

impl Args {
    /// An existing file system keeps what it was made with; asking for something else is a mistake
    /// worth a message.
    pub(super) fn check_unchanged(&self, config: &Config) -> Result<()> {
        let given = self.state.given();
        let (given, file) = (given.display(), config.file.display());
        let servers = |role| config.servers.iter().filter(move |server| server.id.role() == role);
        for (option, wanted, role) in [("--meta", self.meta, ServerRole::Meta), ("--data", self.data, ServerRole::Data)] {
            let count = servers(role).count();
            if let Some(wanted) = wanted
                && usize::from(wanted) != count
            {
                bail!(
                    "{given} has {count} {role} servers; {option} {wanted} does not change that. To add one, put an entry [[server]] with a name, \
                     a role, an address and a dir of its own into {file}, and run `weft up` again"
                );
            }
        }
        let settings = &self.settings;
        if let Some(engine) = settings.engine
            && engine != config.engine
        {
            bail!("{given} was made with the engine {}; --engine {engine} cannot change that", config.engine);
        }
        if let Some(name) = &self.name
            && *name != config.fs_name
        {
            bail!("{given} was made with the name {}; --name {name} cannot change that", config.fs_name);
        }
        if let Some(size) = settings.stripe_size
            && size != config.stripe_bytes
        {
            bail!(
                "{given} was made with stripes of {}, and --stripe-size is for new ones; change stripe_size in {file}",
                ByteSize(config.stripe_bytes.into())
            );
        }
        if let Some(limit) = settings.inline_limit
            && limit != config.inline_limit
        {
            let inline_limit = ByteSize(config.inline_limit.into());
            bail!(
                "in {given} files up to {inline_limit} lie beside their inodes, and --inline-limit is for new ones; change inline_limit in {file}"
            );
        }
        let is_listening = |listen| {
            let is_unix = |address: &Address| matches!(address, Address::Unix(_));
            config.servers.iter().all(|server| is_unix(&server.listen) == (listen == Listen::Unix))
        };
        let has_capacity = |size: ByteSize| servers(ServerRole::Data).all(|server| server.capacity == Some(size.0));
        let kept = [
            ("--stripe-width", "stripe_width", settings.stripe_width.is_none_or(|width| width == config.stripe_width)),
            ("--cache-layer", "cache_layer", settings.cache_layer.is_none_or(|layer| layer == config.cache_layer)),
            ("--direct-io", "direct_io", !settings.direct_io || config.direct_io),
            ("--allow-faults", "allow_faults", !settings.allow_faults || config.allow_faults),
            ("--no-encryption", "encrypt_tcp", !settings.no_encryption || !config.encrypt_tcp),
            ("--listen", "the addresses of the servers", self.listen.is_none_or(is_listening)),
            ("--metadata-memory", "metadata_memory", settings.metadata_memory.is_none_or(|size| config.metadata_memory == Some(size.0))),
            ("--capacity", "the capacity of each data server", self.capacity.is_none_or(has_capacity)),
        ];
        if let Some((option, key, _)) = kept.iter().find(|(.., is_kept)| !is_kept) {
            bail!(
                "{given} was made with something else than {option} says: stop it by `weft down`, change {key} in {file}, and start it again"
            );
        }
        Ok(())
    }

    /// The same of what servers keep themselves, as they say when they serve.
    pub(super) fn check_durability(&self, fs: &Fs, answers: &[ServerInfo]) -> Result<()> {
        let Some(asked) = self.settings.durability.map(Durability::name) else { return Ok(()) };
        if let Some(other) = answers.iter().find(|info| info.durability != asked) {
            bail!(
                "a server of {} has the durability {}, and --durability is for new file systems: `weft set durability {asked} {}` changes it \
                 while the servers run",
                fs.name,
                other.durability,
                shell_word(&fs.name)
            );
        }
        Ok(())
    }
}
