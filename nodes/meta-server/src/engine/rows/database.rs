//! One embedded database over an [`Image`] of its file.

use redb::{Builder, Database, Durability, ReadableDatabase, ReadableTable, TableDefinition, TableError};
use weft_journal::JournalError;
use weft_rt::Disk;

use super::image::{Image, Step};
use super::row::{RowChange, touched};

const ROWS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("rows");
/// Memory in which a database keeps pages beside its image, in bytes.
const CACHE_BYTES: usize = 1 << 20;

/// Disk accesses that were made.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Accesses {
    /// Writes.
    pub(crate) writes: u64,
    /// Their bytes.
    pub(crate) bytes: u64,
    /// Flushes.
    pub(crate) syncs: u64,
}

/// A database that is open.
#[derive(Debug)]
pub(crate) struct RowDatabase {
    name: String,
    /// `None` once it is closed.
    database: Option<Database>,
    image: Image,
    /// Something was changed since the last [`RowDatabase::store`].
    is_changed: bool,
}

impl RowDatabase {
    /// Of this file, which is made when something is stored if it is not there.
    ///
    /// # Errors
    /// [`JournalError::Disk`]; [`JournalError::Damaged`] if the file is no database.
    pub(crate) async fn open<D: Disk>(disk: &D, name: String, is_there: bool) -> Result<RowDatabase, JournalError> {
        let image = match is_there {
            false => Image::default(),
            true => {
                let failed = || JournalError::during(format!("read {name}"));
                let file = disk.open(&name, false).await.map_err(failed())?;
                let len = disk.len(file).await.map_err(failed())?;
                let content = disk.read(file, 0, len).await.map_err(failed())?.to_bytes();
                disk.close(file);
                Image::of(&content)
            }
        };
        RowDatabase::of(name, image)
    }

    /// Of this content.
    ///
    /// # Errors
    /// [`JournalError::Damaged`] if it is no database.
    pub(crate) fn of(name: String, image: Image) -> Result<RowDatabase, JournalError> {
        let made = Builder::new().set_cache_size(CACHE_BYTES).create_with_backend(image.clone());
        let database = Some(made.map_err(|error| damaged(&name, error))?);
        Ok(RowDatabase { name, database, image, is_changed: false })
    }

    /// Changes rows as one; in memory only.
    ///
    /// # Errors
    /// [`JournalError::Damaged`] if the database cannot be trusted.
    pub(crate) fn change(&mut self, changes: &[RowChange]) -> Result<(), JournalError> {
        self.is_changed = true;
        self.transact(changes, Durability::None)
    }

    /// Brings what was changed to stable storage.
    ///
    /// # Errors
    /// [`JournalError::NoSpace`]: call it again when there is room. [`JournalError::Disk`].
    pub(crate) async fn store<D: Disk>(&mut self, disk: &D, made: &mut Accesses) -> Result<(), JournalError> {
        // First what a full disk has left: as long as that waits, nothing is added.
        self.make_steps(disk, made).await?;
        if !std::mem::take(&mut self.is_changed) {
            return Ok(());
        }
        self.transact(&[], Durability::Immediate)?;
        self.make_steps(disk, made).await
    }

    /// An orderly end: nothing needs to be repaired when it is opened again.
    ///
    /// # Errors
    /// As [`RowDatabase::store`]; the database is not to be used any more.
    pub(crate) async fn close<D: Disk>(&mut self, disk: &D, made: &mut Accesses) -> Result<(), JournalError> {
        self.store(disk, made).await?;
        self.database.take().map_or(Ok(()), |database| database.close().map_err(|error| damaged(&self.name, error)))?;
        self.make_steps(disk, made).await
    }

    /// Makes the steps on the disk, in their order.
    async fn make_steps<D: Disk>(&self, disk: &D, made: &mut Accesses) -> Result<(), JournalError> {
        let failed = || JournalError::during(format!("write {}", self.name));
        if self.image.first_step().is_none() {
            return Ok(());
        }
        let file = disk.open(&self.name, true).await.map_err(failed())?;
        let mut result = Ok(());
        while let Some(step) = self.image.first_step().filter(|_| result.is_ok()) {
            result = match step {
                Step::Len(bytes) => disk.set_len(file, bytes).await,
                Step::Write(offset, data) => {
                    (made.writes, made.bytes) = (made.writes + 1, made.bytes + data.len() as u64);
                    disk.write(file, offset, data.into()).await
                }
                Step::Sync => {
                    made.syncs += 1;
                    disk.sync(file).await
                }
            };
            if result.is_ok() {
                self.image.step_is_made();
            }
        }
        disk.close(file);
        result.map_err(failed())
    }

    /// True if the disk has everything.
    pub(crate) fn is_stored(&self) -> bool {
        !self.is_changed && self.image.first_step().is_none()
    }

    /// Hands out all rows in the order of their keys: key, value.
    ///
    /// # Errors
    /// [`JournalError::Damaged`], and whatever `take` refuses.
    pub(crate) fn each(&self, mut take: impl FnMut(&[u8], &[u8]) -> weft_base::Result<()>) -> Result<(), JournalError> {
        let failed = |error: redb::Error| damaged(&self.name, error);
        let read = self.database().begin_read().map_err(|error| failed(error.into()))?;
        let table = match read.open_table(ROWS) {
            Err(TableError::TableDoesNotExist(_)) => return Ok(()),
            table => table.map_err(|error| failed(error.into()))?,
        };
        for row in table.iter().map_err(|error| failed(error.into()))? {
            let (key, value) = row.map_err(|error| failed(error.into()))?;
            take(key.value(), value.value()).map_err(|status| damaged(&self.name, format!("a row is not understood: {status}")))?;
        }
        Ok(())
    }

    fn database(&self) -> &Database {
        self.database.as_ref().expect("a closed database is opened before it is used")
    }

    fn transact(&self, changes: &[RowChange], durability: Durability) -> Result<(), JournalError> {
        transact(self.database(), changes, durability).map_err(|error| damaged(&self.name, error))
    }
}

fn transact(database: &Database, changes: &[RowChange], durability: Durability) -> Result<(), redb::Error> {
    let mut write = database.begin_write()?;
    write.set_durability(durability)?;
    if !changes.is_empty() {
        let mut table = write.open_table(ROWS)?;
        for change in changes {
            match change {
                RowChange::Put(key, value) => drop(table.insert(&key[..], &value[..])?),
                RowChange::Delete(key) => drop(table.remove(&key[..])?),
                RowChange::DeleteRange(first, end) => {
                    let found = table.range(&first[..]..&end[..])?;
                    let keys = found.map(|row| row.map(|(key, _)| key.value().to_vec())).collect::<Result<Vec<_>, _>>()?;
                    for key in keys {
                        table.remove(&key[..])?;
                    }
                }
                RowChange::Touch(key, touch) => {
                    // In a replay over newer rows the inode may be gone.
                    let row = table.get(&key[..])?.and_then(|row| touched(row.value(), touch));
                    if let Some(row) = row {
                        table.insert(&key[..], &row[..])?;
                    }
                }
            }
        }
    }
    write.commit()?;
    Ok(())
}

fn damaged(name: &str, error: impl std::fmt::Display) -> JournalError {
    JournalError::Damaged(format!("{name}: {error}"))
}
