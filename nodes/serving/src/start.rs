//! How a server comes to its store: what an earlier life has left, or a new one.
//!
//! ```text
//! superblock there ──▶ its owner is this server ──▶ journal replayed ──▶ begin_life: one start more
//! none, --create   ──▶ make_journal ──▶ (what else the server keeps) ──▶ make_superblock
//! ```
//! A superblock is written last: without it everything that is there can be made again.

use weft_journal::{Journal, Superblock, TakesFound};
use weft_rt::{Disk, ServerRuntime};

use crate::{Durability, Meets, ServerError, ServingConfig, first_map};

/// Which start of which store this is.
#[derive(Clone, Debug)]
pub struct Life {
    /// Counts the starts; never 0.
    pub boot: u32,
    /// Of an engine that keeps something.
    pub superblock: Option<Superblock>,
}

impl Life {
    /// Nothing outlives the server. Nobody has counted the starts, but clients must see that this
    /// is another one.
    pub fn unkept(random: u64) -> Life {
        Life { boot: (random as u32).max(1), superblock: None }
    }

    /// One start of this store.
    pub fn of(superblock: Superblock) -> Life {
        assert!(superblock.boot > 0, "a life begins with a start that is counted");
        Life { boot: superblock.boot, superblock: Some(superblock) }
    }
}

/// The superblock of the store on the disk; `None` if it is to be made, or nothing is kept.
///
/// # Errors
/// [`ServerError::Store`]: it is somebody else's. [`ServerError::NotFormatted`]: there is none, and
/// none is to be made.
pub async fn find_store<D: Disk>(disk: &D, config: &ServingConfig) -> Result<Option<Superblock>, ServerError> {
    let found = Superblock::load(disk).await?;
    match &found {
        Some(superblock) => superblock.check_owner(&config.map, config.server, config.engine.name()).map_err(ServerError::Store)?,
        None if config.engine.is_kept() && !config.create => return Err(ServerError::NotFormatted(config.name.clone())),
        None => {}
    }
    Ok(found)
}

/// The contract of a store: what was set while an earlier life ran, else what the configuration
/// says.
///
/// # Errors
/// [`ServerError::Journal`]; [`ServerError::Store`] for a contract of a newer program.
pub async fn stored_durability<D: Disk>(disk: &D, config: &ServingConfig) -> Result<Durability, ServerError> {
    if !config.engine.is_kept() {
        return Ok(config.durability);
    }
    let stored = Superblock::load(disk).await?.and_then(|superblock| superblock.durability);
    stored.map_or(Ok(config.durability), |name| {
        name.parse().map_err(|words| ServerError::Store(format!("the durability of the store: {words}")))
    })
}

/// The empty journal of a new store.
///
/// # Errors
/// [`ServerError::Journal`].
pub async fn make_journal<R: ServerRuntime>(rt: &R, config: &ServingConfig) -> Result<Journal<R::Disk>, ServerError> {
    Ok(Journal::create(rt.disk(), config.journal(rt.random(), false)).await?)
}

/// The superblock of a new store, which is one from now on. `boot_id`: what its next start
/// compares. No start is counted yet.
///
/// # Errors
/// [`ServerError::Journal`].
pub async fn make_superblock<R: ServerRuntime>(rt: &R, config: &ServingConfig, boot_id: u64) -> Result<Superblock, ServerError> {
    let map = first_map(&config.map, config.server, config.meets, None);
    let superblock = Superblock::new(&map, config.server, config.engine.name(), boot_id, rt.random());
    superblock.store(rt.disk()).await?;
    Ok(superblock)
}

/// The journal of the store, after `taker` has taken everything in it; and whether power was cut
/// since the last start.
///
/// # Errors
/// [`ServerError::Journal`]: it cannot be trusted, or `taker` refuses what is in it.
pub async fn replay_journal<R: ServerRuntime>(
    rt: &R,
    config: &ServingConfig,
    superblock: &Superblock,
    taker: impl TakesFound,
) -> Result<(Journal<R::Disk>, bool), ServerError> {
    let same_boot = superblock.boot_id == rt.disk().boot_id();
    let (journal, _) = Journal::recover(rt.disk(), config.journal(rt.random(), same_boot), taker).await?;
    let noted = superblock.met.get(&superblock.server).map_or(0, |known| known.durable_lsn);
    if journal.last_lsn().0 < noted && config.meets != Meets::OthersWithOlderStore {
        return Err(ServerError::Store(format!(
            "the journal of {} ends at record {}, and had record {noted} on stable storage: its newest segments are missing or were cut. \
             {}",
            config.name,
            journal.last_lsn(),
            hint_for_older(&config.name)
        )));
    }
    Ok((journal, !same_boot))
}

/// What to do about a store that lacks what it had.
pub(crate) fn hint_for_older(name: &str) -> String {
    format!(
        "Give {name} its newest folder back; if there is none, start it once with `weft up --accept-older-store {name}`, or `weft serve` \
         with that option: what is missing is lost then, and `weft fsck` says what it leaves behind"
    )
}

/// Counts one start more. `boot_id`: what the next one compares. From here on a restart must come
/// to the same result as this one, whatever ends this life.
///
/// # Errors
/// [`ServerError::Journal`].
pub async fn begin_life<D: Disk>(disk: &D, superblock: Superblock, boot_id: u64) -> Result<Life, ServerError> {
    let superblock = Superblock { boot: superblock.boot.wrapping_add(1).max(1), boot_id, stopped: None, ..superblock };
    superblock.store(disk).await?;
    Ok(Life::of(superblock))
}
