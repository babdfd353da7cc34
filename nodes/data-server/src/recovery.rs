//! Starting: a new store, or what an earlier life left.

use std::collections::VecDeque;

use weft_base::Nanos;
use weft_journal::{Found, Lsn, Superblock};
use weft_rt::{Disk, DiskError, ServerRuntime};
use weft_serving::{Life, begin_life, find_container, find_store, make_container, make_journal, make_superblock, replay_journal};
use weft_store::objects::{BLOCK_BYTES, ObjectRecord, ObjectReplay, ObjectTable};

use crate::objects::Removed;
use crate::record::{JournalRecord, is_growth};
use crate::state::Foundation;
use crate::{DataServerConfig, Engine, ServerError};

/// Name of the container file on the disk of a data server: it holds the bytes of all objects.
pub const CONTAINER_NAME: &str = "objects";

/// Makes or recovers the store.
pub async fn open<R: ServerRuntime>(rt: &R, config: &DataServerConfig) -> Result<Foundation<R::Disk>, ServerError> {
    let superblock = find_store(rt.disk(), &config.serving).await?;
    match (config.serving.engine, superblock) {
        (Engine::Memory, _) => open_memory(rt, config).await,
        // How metadata is kept makes no difference for data.
        (Engine::Journal | Engine::Db | Engine::Dbpf, Some(superblock)) => recover(rt, config, superblock).await,
        (Engine::Journal | Engine::Db | Engine::Dbpf, None) => format(rt, config).await,
    }
}

/// An empty container; what an earlier life left is void.
async fn open_memory<R: ServerRuntime>(rt: &R, config: &DataServerConfig) -> Result<Foundation<R::Disk>, ServerError> {
    let disk = rt.disk();
    let container = disk.open(CONTAINER_NAME, true).await.map_err(disk_error("open the container"))?;
    disk.set_len(container, 0).await.map_err(disk_error("empty the container"))?;
    let table = ObjectTable::new(capacity_bytes(config.capacity_bytes));
    let life = Life::unkept(rt.random());
    Ok(Foundation { life, container, journal: None, table, removed: Removed::default() })
}

/// A new store. The superblock comes last: without it everything here can be made again.
async fn format<R: ServerRuntime>(rt: &R, config: &DataServerConfig) -> Result<Foundation<R::Disk>, ServerError> {
    let disk = rt.disk();
    // First, since it says if there is too little room, and then leaves nothing.
    let journal = make_journal(rt, &config.serving).await?;
    let container = make_container(disk, CONTAINER_NAME, &config.serving).await?;
    let superblock = make_superblock(rt, &config.serving, boot_id(disk, config.cache.write_back.is_some())).await?;
    let life = begin_life(disk, superblock, boot_id(disk, config.cache.write_back.is_some())).await?;
    let table = ObjectTable::new(capacity_bytes(config.capacity_bytes));
    Ok(Foundation { life, container, journal: Some(journal), table, removed: Removed::default() })
}

async fn recover<R: ServerRuntime>(rt: &R, config: &DataServerConfig, superblock: Superblock) -> Result<Foundation<R::Disk>, ServerError> {
    let disk = rt.disk();
    let container = find_container(disk, CONTAINER_NAME, &config.serving).await?;
    let container = container.ok_or_else(|| ServerError::Store(format!("the container {CONTAINER_NAME} is not there, or empty")))?;
    let mut replay = Replay::new(rt.now());
    let (journal, power_was_cut) = replay_journal(rt, &config.serving, &superblock, |found: Found<'_>| replay.take(found)).await?;
    let (table, removed) = replay.finish(power_was_cut, capacity_bytes(config.capacity_bytes))?;
    // Data is in the container before a record of it is believed. What is written behind the end of
    // one that was cut would make zeros of what is missing.
    let end = table.usage().high_water_bytes;
    let bytes = disk.len(container).await.map_err(disk_error("look at the container"))?;
    if bytes.next_multiple_of(BLOCK_BYTES) < end {
        return Err(ServerError::Store(format!("the container {CONTAINER_NAME} was cut: it has {bytes} bytes, and objects lie in {end}")));
    }

    // From here on the next restart must come to the same result, whatever ends this life.
    disk.sync(container).await.map_err(disk_error("sync the container"))?;
    let verdict = if power_was_cut { JournalRecord::Cut } else { JournalRecord::Mark(journal.last_lsn()) };
    let lsn = journal.append_with(|out| verdict.encode(out));
    journal.commit().await?;
    journal.sync_through(lsn).await?;
    let life = begin_life(disk, superblock, boot_id(disk, config.cache.write_back.is_some())).await?;
    // Nothing is behind the last object any more, whatever comes. What was left there goes back to
    // the disk.
    if bytes > end {
        disk.set_len(container, end).await.map_err(disk_error("cut the container"))?;
    }
    Ok(Foundation { life, container, journal: Some(journal), table, removed })
}

/// What this life leaves for the next to compare. A server that answers writes before they are in
/// the container may lose them in any end of its process, so its records are believed no further
/// than after a power cut: the id of no machine.
pub fn boot_id<D: Disk>(disk: &D, answers_early: bool) -> u64 {
    if answers_early { !disk.boot_id() } else { disk.boot_id() }
}

/// The objects of what a recovery finds after an orderly end, for whoever only looks.
///
/// # Errors
/// Why it is no state of a data server.
pub fn object_table<'a>(found: impl IntoIterator<Item = Found<'a>>) -> Result<ObjectTable, String> {
    let mut replay = Replay::new(Nanos(0));
    for found in found {
        replay.take(found).map_err(|status| status.to_string())?;
    }
    let (table, _) = replay.finish(false, capacity_bytes(None)).map_err(|error| error.to_string())?;
    Ok(table)
}

/// Collects what recovery finds: see `record.rs` for marks and cuts.
struct Replay {
    objects: ObjectReplay,
    removed: Removed,
    /// Changes that no mark has covered yet.
    uncovered: VecDeque<(Lsn, ObjectRecord)>,
    now: Nanos,
}

impl Replay {
    fn new(now: Nanos) -> Replay {
        Replay { objects: ObjectReplay::new(), removed: Removed::default(), uncovered: VecDeque::new(), now }
    }

    fn take(&mut self, found: Found<'_>) -> weft_base::Result<()> {
        match found {
            Found::Checkpoint(bytes) => {
                let record = ObjectRecord::decode(bytes).map_err(|_| weft_base::Status::BadMessage)?;
                self.apply(&record);
            }
            Found::Journal(lsn, bytes) => match JournalRecord::decode(bytes)? {
                JournalRecord::Object(record) => self.uncovered.push_back((lsn, record)),
                JournalRecord::Mark(covered) => self.apply_until(covered),
                JournalRecord::Cut => self.drop_growth(),
            },
        }
        Ok(())
    }

    fn apply_until(&mut self, covered: Lsn) {
        while self.uncovered.front().is_some_and(|(lsn, _)| *lsn <= covered) {
            let (_, record) = self.uncovered.pop_front().expect("the queue has a front");
            self.apply(&record);
        }
    }

    /// Power was cut: the data of what no mark covers may be lost. Truncations and removals have
    /// none.
    fn drop_growth(&mut self) {
        for (_, record) in std::mem::take(&mut self.uncovered) {
            if !is_growth(&record) {
                self.apply(&record);
            }
        }
    }

    fn apply(&mut self, record: &ObjectRecord) {
        self.objects.apply(record);
        if let ObjectRecord::Remove { key } = record {
            self.removed.note(*key, self.now);
        }
    }

    fn finish(mut self, power_was_cut: bool, capacity_bytes: u64) -> Result<(ObjectTable, Removed), ServerError> {
        if power_was_cut {
            self.drop_growth();
        } else {
            self.apply_until(Lsn(u64::MAX));
        }
        let table = self.objects.finish(capacity_bytes).map_err(|error| ServerError::Store(error.to_string()))?;
        Ok((table, self.removed))
    }
}

/// What the container may grow to. Without a limit of its own it grows until the disk says no.
fn capacity_bytes(configured: Option<u64>) -> u64 {
    configured.unwrap_or(1 << 60)
}

fn disk_error(what: &'static str) -> impl FnOnce(DiskError) -> ServerError {
    move |error| ServerError::Disk(what, error)
}
