//! What the folders of servers on this machine say: a config that names other servers than those with which the file system was made is
//! refused before anything is started or made.

use std::io::ErrorKind;
use std::path::Path;

use anyhow::{Result, anyhow};
use weft_base::ServerId;
use weft_journal::Superblock;
use weft_rt_real::ClientRt;

use crate::config::{Config, Engine};

/// Compares a config with the stores that its folders hold; folders of other machines are not there.
///
/// # Errors
/// What has changed since the file system was made, and what to do.
pub fn check(config: &Config) -> Result<()> {
    if config.engine == Engine::Memory {
        return Ok(());
    }
    let now = config.map().server_list();
    for server in &config.servers {
        // What cannot be read or belongs to another file system is for the server itself to name.
        let Some(superblock) = superblock(&server.dir).filter(|found| found.fs_id == config.fs_id) else { continue };
        superblock.check_servers(&now).map_err(|change| anyhow!("{}: {change}", config.file.display()))?;
    }
    Ok(())
}

/// Before a store is made: the file system may run already on other machines, with other servers. If nobody answers there, connections
/// between this server and the others are refused later.
///
/// # Errors
/// As [`check`].
pub fn check_running(config: &Config, server: ServerId) -> Result<()> {
    let Some(first) = config.servers.first().filter(|first| first.id != server) else { return Ok(()) };
    let Ok(running) = ClientRt::fetch_map(&first.address, config.key()?.as_ref(), &config.fs_name) else { return Ok(()) };
    match running.server_list().change(&config.map().server_list()) {
        Some(change) if running.fs_id == config.fs_id => Err(anyhow!("{}: {change}", config.file.display())),
        _ => Ok(()),
    }
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
