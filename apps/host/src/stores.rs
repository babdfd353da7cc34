//! What the folders of servers on this machine say: a config that contradicts the file system is
//! refused before anything is started or made.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::Path;

use anyhow::{Result, bail};
use weft_base::ServerId;
use weft_journal::Superblock;
use weft_rt_real::ClientRt;

use crate::config::{Config, Engine};

/// Compares a config with the stores that its folders hold; folders of other machines are not
/// there.
///
/// # Errors
/// What contradicts them, and what to do.
pub fn check(config: &Config) -> Result<()> {
    if config.engine == Engine::Memory {
        return Ok(());
    }
    let (now, file, mut stores) = (config.map(), config.file.display(), Vec::new());
    for server in &config.servers {
        // What cannot be read or belongs to another file system is for the server itself to name.
        let Some(superblock) = superblock(&server.dir).filter(|found| found.fs_id == config.fs_id) else { continue };
        if superblock.server != server.id {
            let (is, says) = (superblock.server, server.id);
            bail!(
                "{file}: the folder {} of {} holds the store of the server with role = \"{}\" and id = {}, not that with role = \"{}\" and \
                 id = {}: a server keeps its id and its folder",
                server.dir.display(),
                server.name,
                is.role(),
                is.index(),
                says.role(),
                says.index()
            );
        }
        stores.push((server, superblock));
    }
    if let Some(missing) = stores.iter().find_map(|(_, superblock)| superblock.check_servers(&now).err()) {
        bail!("{file}: {missing}");
    }
    let epochs: Vec<_> = stores.iter().map(|(server, superblock)| (superblock.map.epoch, server)).collect();
    // Metadata server 0 comes first, and decides about the map. It notes one before it tells others
    // of it, and may be doing that now: so its folder is looked at once more, after theirs.
    if let [(_, first), others @ ..] = &epochs[..]
        && first.id == ServerId(0)
        && let Some(decided) = superblock(&first.dir).map(|superblock| superblock.map.epoch)
        && let Some((seen, other)) = others.iter().find(|(seen, _)| *seen > decided)
    {
        bail!(
            "{file}: the folder {} of {} is an old copy: its cluster map is that of epoch {decided}, and {} has seen epoch {seen}. Give it \
             the newer folder; nothing is served before, since files would be looked for on the wrong servers",
            first.dir.display(),
            first.name,
            other.name
        );
    }
    Ok(())
}

/// Before a store is made: the file system may run already on other machines, with more servers, or
/// another one with this id. If nobody answers there, the new server is refused by metadata server
/// 0 later.
///
/// # Errors
/// As [`check`].
pub fn check_running(config: &Config, server: ServerId) -> Result<()> {
    let Some(first) = config.servers.first().filter(|first| first.id != server) else { return Ok(()) };
    let Ok(running) = ClientRt::fetch_map(&first.address, config.key()?.as_ref(), &config.fs_name) else { return Ok(()) };
    if running.fs_id != config.fs_id {
        return Ok(());
    }
    let (now, file) = (config.map(), config.file.display());
    if let Err(missing) = running.check_config(&now) {
        bail!("{file}: {missing}");
    }
    match (running.server(server), now.server(server)) {
        (Some(taken), Some(wanted)) if taken.name != wanted.name && taken.address != wanted.address => bail!(
            "{file}: the id {} of {} is that of {} at {} already; give {} one of its own",
            server.index(),
            wanted.name,
            taken.name,
            taken.address,
            wanted.name
        ),
        _ => Ok(()),
    }
}

/// Servers that the stores of this config have met: none of them may be made again.
pub fn met(config: &Config) -> BTreeSet<ServerId> {
    let stores = config.servers.iter().filter_map(|server| superblock(&server.dir)).filter(|found| found.fs_id == config.fs_id);
    stores.flat_map(|superblock| superblock.met.into_keys()).collect()
}

/// The server whose store is in a folder, and all servers that it knows.
pub fn ids(dir: &Path) -> Vec<ServerId> {
    let Some(superblock) = superblock(dir) else { return Vec::new() };
    let known = superblock.map.servers().map(|entry| entry.id).filter(|_| superblock.map.epoch > 0);
    [superblock.server].into_iter().chain(known).chain(superblock.met.keys().copied()).collect()
}

/// True if the folder holds a store.
pub fn is_made(dir: &Path) -> bool {
    superblock(dir).is_some()
}

fn superblock(dir: &Path) -> Option<Superblock> {
    let text = match std::fs::read(dir.join("superblock")) {
        // The moment between two renames of its replacement.
        Err(error) if error.kind() == ErrorKind::NotFound && dir.join("superblock.old").exists() => {
            std::fs::read(dir.join("superblock.new"))
        }
        other => other,
    };
    Superblock::parse(&text.ok()?).ok()
}
