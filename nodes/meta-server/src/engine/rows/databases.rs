//! The databases of a server, by one of two plans, and which of them are open.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use weft_base::{Handle, Layout, ServerId};
use weft_journal::{JournalError, Lsn};
use weft_namespace::{Change, Record};
use weft_rt::Disk;

use super::database::{Accesses, RowDatabase};
use super::row::{self, Owner, RowChange};

/// Databases of objects that are open at once, unless a full disk keeps more of them from being
/// closed.
const OPEN_MAX: usize = 64;
/// The number of the newest record, in the server's database.
pub(super) const LSN_KEY: [u8; 1] = [0];

/// Which databases there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Plan {
    /// One for everything: `db`.
    One,
    /// One for attributes, and one for what else each object has: `dbpf`.
    PerObject,
}

/// All of them.
#[derive(Debug)]
pub(crate) struct Databases {
    plan: Plan,
    server: ServerId,
    /// What concerns the server, and under `db` everything.
    main: RowDatabase,
    /// Databases of objects that are open, by handle, with the last use.
    open: BTreeMap<Handle, (u64, RowDatabase)>,
    uses: u64,
    /// Databases of objects that are files on the disk.
    stored: BTreeSet<Handle>,
    /// Those of them whose objects are gone.
    doomed: BTreeSet<Handle>,
    /// Layouts as the objects' databases have them.
    layouts: BTreeMap<Handle, Layout>,
    /// The counter of handles as the rows have it.
    counter: u64,
    /// The newest record that the rows have.
    pub(crate) last: Lsn,
    pub(crate) accesses: Accesses,
}

impl Databases {
    fn main_name(plan: Plan) -> &'static str {
        match plan {
            Plan::One => "metadata.db",
            Plan::PerObject => "attributes.db",
        }
    }

    fn name_of(handle: Handle) -> String {
        format!("keyval-{:016x}.db", handle.0)
    }

    /// New ones; what a failed attempt has left is removed.
    ///
    /// # Errors
    /// [`JournalError::Disk`].
    pub(crate) async fn make<D: Disk>(disk: &D, plan: Plan, server: ServerId) -> Result<Databases, JournalError> {
        let failed = || JournalError::during("remove what is left of another attempt");
        for name in disk.list().await.map_err(failed())? {
            if name.ends_with(".db") {
                disk.remove(&name).await.map_err(failed())?;
            }
        }
        Databases::open_main(disk, plan, server, false).await
    }

    /// Those of an earlier life; `take` hears of everything in them.
    ///
    /// # Errors
    /// [`JournalError::Disk`]; [`JournalError::Damaged`] if they cannot be trusted.
    pub(crate) async fn open<D: Disk>(
        disk: &D,
        plan: Plan,
        server: ServerId,
        mut take: impl FnMut(Change),
    ) -> Result<Databases, JournalError> {
        let mut databases = Databases::open_main(disk, plan, server, true).await?;
        let names = disk.list().await.map_err(JournalError::during("list the databases"))?;
        let handle = |name: &String| Some(Handle(u64::from_str_radix(name.strip_prefix("keyval-")?.strip_suffix(".db")?, 16).ok()?));
        databases.stored = names.iter().filter_map(handle).collect();
        let mut inodes = BTreeSet::new();
        let (mut last, mut counter) = (Lsn::NONE, 0);
        databases.main.each(|key, value| {
            if key == LSN_KEY {
                last = Lsn(u64::from_le_bytes(value.try_into().map_err(|_| weft_base::Status::BadMessage)?));
                return Ok(());
            }
            let change = row::change_of(value)?;
            match &change {
                Change::PutInode { handle, .. } | Change::PutPartition { dir: handle, .. } => drop(inodes.insert(*handle)),
                Change::PutCounter { next } => counter = *next,
                _ => {}
            }
            take(change);
            Ok(())
        })?;
        (databases.last, databases.counter) = (last, counter);
        for handle in databases.stored.clone() {
            if !inodes.contains(&handle) {
                databases.doomed.insert(handle);
                continue;
            }
            let mut layout = None;
            databases.object(disk, handle).await?.each(|key, value| {
                match row::change_of(value)? {
                    Change::PutInode { inode, .. } if row::is_layout(key) => layout = Some(inode.layout),
                    change => take(change),
                }
                Ok(())
            })?;
            databases.layouts.extend(layout.map(|layout| (handle, layout)));
            databases.close_some(disk).await?;
        }
        Ok(databases)
    }

    async fn open_main<D: Disk>(disk: &D, plan: Plan, server: ServerId, is_there: bool) -> Result<Databases, JournalError> {
        let main = RowDatabase::open(disk, Databases::main_name(plan).into(), is_there).await?;
        Ok(Databases {
            plan,
            server,
            main,
            open: BTreeMap::new(),
            uses: 0,
            stored: BTreeSet::new(),
            doomed: BTreeSet::new(),
            layouts: BTreeMap::new(),
            counter: 0,
            last: Lsn::NONE,
            accesses: Accesses::default(),
        })
    }

    /// Takes records in, in memory. Those that the rows have already may come again, in their
    /// order.
    ///
    /// # Errors
    /// As [`Databases::open`].
    pub(crate) async fn apply<D: Disk>(&mut self, disk: &D, first: Lsn, records: &[Bytes]) -> Result<(), JournalError> {
        let mut changes: BTreeMap<Owner, Vec<RowChange>> = BTreeMap::from([(Owner::Server, Vec::new())]);
        let mut counter = self.counter;
        for record in records {
            let record = Record::decode(record.clone()).map_err(super::tail::damaged)?;
            for change in &record.changes {
                counter = counter.max(row::counter_behind(change, self.server));
                self.note(change, &mut changes);
            }
        }
        let server = changes.get_mut(&Owner::Server).expect("it is there from the beginning");
        if std::mem::replace(&mut self.counter, counter) < counter {
            row::rows_of(&Change::PutCounter { next: counter }, |_, row| server.push(row));
        }
        self.last = Lsn(first.0 + records.len() as u64 - 1);
        server.push(RowChange::Put(LSN_KEY.into(), self.last.0.to_le_bytes().into()));
        for (owner, changes) in changes {
            match owner {
                Owner::Server => self.main.change(&changes)?,
                Owner::Object(handle) => self.object(disk, handle).await?.change(&changes)?,
            }
        }
        Ok(())
    }

    fn note(&mut self, change: &Change, changes: &mut BTreeMap<Owner, Vec<RowChange>>) {
        let plan = self.plan;
        row::rows_of(change, |owner, row| {
            changes.entry(if plan == Plan::One { Owner::Server } else { owner }).or_default().push(row);
        });
        match change {
            // As in Trove, a change of attributes does not touch the object's own database.
            Change::PutInode { handle, inode }
                if plan == Plan::PerObject && has_layout(inode) && self.layouts.insert(*handle, inode.layout) != Some(inode.layout) =>
            {
                changes.entry(Owner::Object(*handle)).or_default().push(row::layout_row(*handle, change));
            }
            Change::DeleteInode { handle } | Change::DeletePartition { dir: handle } if plan == Plan::PerObject => {
                changes.remove(&Owner::Object(*handle));
                self.layouts.remove(handle);
                self.open.remove(handle);
                if self.stored.contains(handle) {
                    self.doomed.insert(*handle);
                }
            }
            _ => {}
        }
    }

    /// The database of an object, open.
    async fn object<D: Disk>(&mut self, disk: &D, handle: Handle) -> Result<&mut RowDatabase, JournalError> {
        self.uses += 1;
        if !self.open.contains_key(&handle) {
            let is_there = self.stored.contains(&handle) && !self.doomed.contains(&handle);
            if self.doomed.remove(&handle) {
                // Only a replay makes an object again that is gone.
                self.remove(disk, handle).await?;
            }
            let database = RowDatabase::open(disk, Databases::name_of(handle), is_there).await?;
            self.open.insert(handle, (0, database));
        }
        let (used, database) = self.open.get_mut(&handle).expect("it is open now");
        *used = self.uses;
        Ok(database)
    }

    /// True if so many are open that some should be closed.
    pub(crate) fn are_many(&self) -> bool {
        self.open.len() > OPEN_MAX
    }

    /// Closes the databases of objects that were not used for longest. Whoever calls it has the
    /// records of their changes on stable storage.
    ///
    /// # Errors
    /// [`JournalError::NoSpace`]: they remain open. As [`Databases::open`] else.
    pub(crate) async fn close_some<D: Disk>(&mut self, disk: &D) -> Result<(), JournalError> {
        if !self.are_many() {
            return Ok(());
        }
        let mut oldest: Vec<(u64, Handle)> = self.open.iter().map(|(handle, (used, _))| (*used, *handle)).collect();
        oldest.sort_unstable();
        oldest.truncate(self.open.len() - OPEN_MAX / 2);
        for (_, handle) in oldest {
            self.store_object(disk, handle).await?;
            self.open.remove(&handle);
        }
        Ok(())
    }

    async fn store_object<D: Disk>(&mut self, disk: &D, handle: Handle) -> Result<(), JournalError> {
        let Some((_, database)) = self.open.get_mut(&handle).filter(|(_, database)| !database.is_stored()) else { return Ok(()) };
        self.stored.insert(handle);
        database.store(disk, &mut self.accesses).await
    }

    async fn remove<D: Disk>(&mut self, disk: &D, handle: Handle) -> Result<(), JournalError> {
        let name = Databases::name_of(handle);
        self.accesses.syncs += 1;
        match disk.remove(&name).await {
            Ok(()) | Err(weft_rt::DiskError::NotFound) => drop(self.stored.remove(&handle)),
            Err(error) => return Err(JournalError::during(format!("remove {name}"))(error)),
        }
        Ok(())
    }

    /// Brings everything to stable storage: databases of objects first, since the server's says
    /// which records all of them have.
    ///
    /// # Errors
    /// [`JournalError::NoSpace`]: call it again when there is room. [`JournalError::Disk`].
    pub(crate) async fn store<D: Disk>(&mut self, disk: &D) -> Result<(), JournalError> {
        while let Some(handle) = self.doomed.first().copied() {
            self.remove(disk, handle).await?;
            self.doomed.remove(&handle);
        }
        let unstored = |(handle, (_, database)): (&Handle, &(u64, RowDatabase))| (!database.is_stored()).then_some(*handle);
        for handle in self.open.iter().filter_map(unstored).collect::<Vec<_>>() {
            self.store_object(disk, handle).await?;
        }
        self.main.store(disk, &mut self.accesses).await
    }

    /// As [`Databases::store`], at an orderly end: nothing needs to be repaired by the next life.
    ///
    /// # Errors
    /// As [`Databases::store`].
    pub(crate) async fn close<D: Disk>(&mut self, disk: &D) -> Result<(), JournalError> {
        self.store(disk).await?;
        for (_, (_, mut database)) in std::mem::take(&mut self.open) {
            database.close(disk, &mut self.accesses).await?;
        }
        self.main.close(disk, &mut self.accesses).await
    }
}

fn has_layout(inode: &weft_namespace::Inode) -> bool {
    use weft_base::FileKind::{Directory, File};
    matches!(inode.kind, File | Directory)
}
