//! What is done to a tree.

use std::collections::BTreeMap;

use weft_base::{MILLISECOND, SECOND, Status, WallTime};
use weft_client::{RenameFlags, Result, SetAttr};
use weft_posix::{InodeNumber, OpenHow};
use weft_rt::Runtime;
use weft_sim_tests::mount::{Open, how};
use weft_wire::Rights;
use weft_wire::ops::SetTime;

use super::Turn;
use super::model::{Dir, Entry, File, HeldOpen, Id, TOP};
use crate::{APPEND, ROOT, UPDATE};

/// Names in a directory, at most.
const NAMES: u64 = 8;
/// Directories and files of a tree, at most.
const OBJECTS_MAX: usize = 40;

fn at(seconds: u64) -> WallTime {
    WallTime((seconds * SECOND) as i64)
}

/// The name of a file that is being made.
fn temporary(name: &str) -> String {
    format!(".{name}.tmp")
}

/// As kernels do: a second time, by a new walk, if the first one met what is not there any more.
pub async fn twice<T>(act: impl AsyncFn(bool) -> Result<T>) -> Result<T> {
    match act(false).await {
        Err(error) if error.status == Status::Stale => act(true).await,
        outcome => outcome,
    }
}

impl Turn<'_> {
    pub(super) fn bytes(&self) -> Vec<u8> {
        let most = [1, 300, 5000, 20_000, 70_000, 100_000][self.random(24).min(5) as usize];
        let (bytes, byte) = (self.random(most), self.random(255) as u8 + 1);
        vec![byte; bytes as usize]
    }

    pub(super) fn any_dir(&self) -> Id {
        let number = self.random(self.tree.dirs.len() as u64);
        let dir = *self.tree.dirs.keys().nth(number as usize).expect("so many");
        self.tree.picked.borrow_mut().dirs.insert(dir);
        dir
    }

    pub(super) fn any_name(&self) -> (Id, String) {
        let (dir, name) = (self.any_dir(), format!("{}{}", self.tree.prefix, self.random(NAMES)));
        self.tree.pick_name(dir, &name);
        self.tree.pick_name(dir, &temporary(&name));
        (dir, name)
    }

    /// Some name that leads to a file.
    pub(super) fn any_file(&self) -> Option<(Id, String, Id)> {
        let files = self.tree.dirs.iter().flat_map(|(dir, is)| {
            let file = |(name, entry): (&String, &Entry)| match entry {
                Entry::File(file) => Some((*dir, name.clone(), *file)),
                _ => None,
            };
            is.entries.iter().filter_map(file)
        });
        let files: Vec<_> = files.collect();
        let file = (!files.is_empty()).then(|| files[self.random(files.len() as u64) as usize].clone());
        file.iter().for_each(|(_, _, id)| self.tree.pick_file(*id));
        file
    }

    pub(super) async fn walk_to(&self, dir: Id, anew: bool) -> Result<InodeNumber> {
        let mut node = ROOT;
        for name in self.tree.path(dir) {
            node = self.mount.walk(&self.who, node, &name, anew).await?;
        }
        Ok(node)
    }

    pub(super) async fn walk(&self, dir: Id, name: &str, anew: bool) -> Result<InodeNumber> {
        let dir = self.walk_to(dir, anew).await?;
        self.mount.walk(&self.who, dir, name, anew).await
    }

    /// Opens what a name leads to.
    pub(super) async fn open(&self, dir: Id, name: &str, how: OpenHow) -> Open {
        self.patiently(dir, name, async |anew| {
            let node = self.walk_to(dir, anew).await?;
            self.mount.open(&self.who, node, name, how).await
        })
        .await
    }

    /// Does something with what a name leads to; who wants to write to it may have to wait for the
    /// other mount.
    pub(super) async fn patiently<T>(&self, dir: Id, name: &str, act: impl AsyncFn(bool) -> Result<T>) -> T {
        for _ in 0..30 {
            match twice(&act).await {
                Err(error) if matches!(error.status, Status::Busy | Status::SharedAppend) => self.pause().await,
                outcome => return outcome.unwrap_or_else(|error| panic!("{error}: {name} in {:?}", self.tree.path(dir))),
            }
        }
        panic!("{name} in {:?} stays open elsewhere", self.tree.path(dir));
    }

    async fn pause(&self) {
        let rt = self.mount.posix.rt();
        rt.sleep_until(rt.now() + 100 * MILLISECOND).await;
    }

    pub(super) async fn write(&self, file: Open, offset: usize, bytes: &[u8], append: bool) {
        self.mount.write(&self.who, file, offset as u64, bytes, append).await.expect("it is written");
    }

    pub(super) async fn close(&self, file: Open) {
        self.mount.close(file).await.expect("it is closed");
    }

    async fn set(&self, dir: Id, name: &str, change: &SetAttr) {
        self.patiently(dir, name, async |anew| {
            let node = self.walk(dir, name, anew).await?;
            self.mount.setattr(&self.who, node, change).await
        })
        .await;
    }

    /// Does something.
    pub(super) async fn step(&mut self) {
        let objects = self.tree.dirs.len() + self.tree.files.len();
        match self.random(100) {
            _ if self.tree.does_all && self.random(7) == 0 => self.step_rarely().await,
            0..25 if objects < OBJECTS_MAX => self.make_file().await,
            25..35 if objects < OBJECTS_MAX => self.make_dir().await,
            35..47 => self.write_again().await,
            47..55 => self.set_some().await,
            55..60 => self.link_some().await,
            60..75 => self.remove_some().await,
            75..88 => self.move_some().await,
            88..92 => self.hold_some().await,
            92..95 => self.let_some_go().await,
            _ => self.look_at_some().await,
        }
        if self.random(4) == 0 {
            let rt = self.mount.posix.rt();
            rt.sleep_until(rt.now() + self.random(30 * MILLISECOND)).await;
        }
    }

    /// Makes a file, under its name or under one that it gives up for it.
    async fn make_file(&mut self) {
        let (dir, name) = self.any_name();
        let before = self.tree.entry(dir, &name);
        let is_moved = before.is_some() || self.random(3) == 0;
        if matches!(before, Some(Entry::Dir(_))) {
            return;
        }
        let first = if is_moved { temporary(&name) } else { name.clone() };
        self.tree.may_lose(before);
        if before.is_some() && self.random(3) == 0 {
            let again = twice(async |anew| {
                let node = self.walk_to(dir, anew).await?;
                self.mount.create(&self.who, node, &name, 0o644).await
            });
            assert_eq!(again.await.map(drop).map_err(|error| error.status), Err(Status::Exists), "{name}");
        }
        let made = twice(async |anew| {
            let node = self.walk_to(dir, anew).await?;
            let file = self.mount.create(&self.who, node, &first, 0o644).await?;
            // As kernels do of a directory that has a new name.
            self.mount.changed(node);
            Ok((node, file))
        });
        let (node, file) = made.await.unwrap_or_else(|error| panic!("{error}: {first} in {:?}", self.tree.path(dir)));
        let bytes = self.bytes();
        let parts = 1 + self.random(3) as usize;
        for (number, part) in bytes.chunks(bytes.len().div_ceil(parts).max(1)).enumerate() {
            self.write(file, number * bytes.len().div_ceil(parts), part, false).await;
        }
        let mut model = File::new(bytes);
        if self.random(2) == 0 {
            let change = self.some_change();
            let is_closed = self.random(2) == 0;
            if is_closed {
                self.close(file).await;
            }
            self.mount.setattr(&self.who, file.node, &change).await.expect("it is set");
            if !is_closed {
                self.close(file).await;
            }
            model.set(&change);
        } else {
            self.close(file).await;
        }
        if is_moved {
            self.mount.rename(&self.who, node, &first, &name).await.expect("it gets its name");
        }
        let id = self.tree.add(file.node);
        self.tree.files.insert(id, model);
        let lost = self.tree.lead(dir, &name, Some(Entry::File(id)));
        self.tree.lost(lost);
    }

    fn some_change(&self) -> SetAttr {
        let mode = (self.random(2) == 0).then(|| 0o600 + self.random(0o100) as u32);
        let mtime = (mode.is_none() || self.random(2) == 0).then(|| SetTime { at: Some(at(self.random(1000))) });
        SetAttr { mode, mtime, ..SetAttr::default() }
    }

    async fn make_dir(&mut self) {
        let (dir, name) = self.any_name();
        if self.tree.entry(dir, &name).is_some() {
            return;
        }
        let made = twice(async |anew| {
            let node = self.walk_to(dir, anew).await?;
            self.mount.make(node, &name, self.mount.posix.mkdir(&self.who.who, node, name.as_bytes(), 0o755)).await
        });
        let made = made.await.unwrap_or_else(|error| panic!("{error}: {name} in {:?}", self.tree.path(dir)));
        let id = self.tree.add(made);
        self.tree.dirs.insert(id, Dir { place: (dir, name.clone()), mode: 0o755, mtime: None, entries: BTreeMap::new() });
        self.tree.lead(dir, &name, Some(Entry::Dir(id)));
    }

    /// Writes to a file that is there: all of it anew, in its middle, at its end, or its length.
    async fn write_again(&mut self) {
        let Some((dir, name, id)) = self.any_file() else { return };
        let bytes = self.bytes();
        let size = self.tree.files[&id].bytes.len();
        let offset = self.random(size as u64 + 1) as usize;
        let kind = self.random(5);
        let mut is_synced = false;
        match kind {
            0 => {
                let file = self.open(dir, &name, OpenHow { truncate: true, ..how(UPDATE) }).await;
                self.write(file, 0, &bytes, false).await;
                self.close(file).await;
            }
            1 => {
                let file = self.open(dir, &name, how(UPDATE)).await;
                self.write(file, offset, &bytes, false).await;
                self.close(file).await;
            }
            2 => {
                let file = self.open(dir, &name, how(APPEND)).await;
                self.write(file, 0, &bytes, true).await;
                self.close(file).await;
            }
            3 => self.set(dir, &name, &SetAttr { size: Some(offset as u64), ..SetAttr::default() }).await,
            _ => {
                // As databases do.
                let file = self.open(dir, &name, how(UPDATE)).await;
                self.write(file, offset, &bytes, false).await;
                let seen = self.mount.read(file).await.expect("it is read");
                assert_eq!(seen.len(), size.max(if bytes.is_empty() { 0 } else { offset + bytes.len() }), "{name}: own writes are seen");
                let data_only = self.random(2) == 0;
                self.mount.posix.fsync(file.opened.number, data_only).await.expect("it is safe");
                self.close(file).await;
                is_synced = !data_only;
            }
        }
        let file = self.tree.file(id);
        match kind {
            0 => (file.bytes, file.mtime) = (bytes, None),
            2 => file.write(size, &bytes),
            3 => {
                file.bytes.truncate(offset);
                file.mtime = None;
            }
            _ => file.write(offset, &bytes),
        }
        if is_synced {
            self.tree.picked.borrow_mut().synced.insert(id);
        }
    }

    async fn set_some(&mut self) {
        let change = self.some_change();
        if self.random(2) == 0 {
            let Some((dir, name, id)) = self.any_file() else { return };
            self.set(dir, &name, &change).await;
            return self.tree.file(id).set(&change);
        }
        let id = self.any_dir();
        if id == TOP {
            return;
        }
        let (above, name) = self.tree.dirs[&id].place.clone();
        // It stays one that root enters.
        self.set(above, &name, &change).await;
        let dir = self.tree.dir(id);
        dir.mode = change.mode.unwrap_or(dir.mode);
        dir.mtime = change.mtime.as_ref().and_then(|time| time.at).or(dir.mtime);
    }

    /// A symlink, or one more name of a file.
    async fn link_some(&mut self) {
        let (dir, name) = self.any_name();
        if self.tree.entry(dir, &name).is_some() {
            return;
        }
        let file = if self.random(2) == 0 { self.any_file() } else { None };
        let id = self.tree.fresh();
        let target = format!("to{id}");
        let made = twice(async |anew| {
            let node = self.walk_to(dir, anew).await?;
            let Some((above, of, _)) = &file else {
                let made = self.mount.posix.symlink(&self.who.who, node, name.as_bytes(), target.as_bytes());
                return self.mount.make(node, &name, made).await;
            };
            let of = self.walk(*above, of, anew).await?;
            self.mount.make(node, &name, self.mount.posix.link(&self.who.who, of, node, name.as_bytes())).await
        });
        made.await.unwrap_or_else(|error| panic!("{error}: {name} in {:?} for {file:?}", self.tree.path(dir)));
        let entry = match file {
            Some((_, _, id)) => {
                self.tree.file(id).links += 1;
                Entry::File(id)
            }
            None => Entry::Symlink(id),
        };
        self.tree.lead(dir, &name, Some(entry));
    }

    async fn remove_some(&mut self) {
        let (dir, name) = self.any_name();
        let entry = self.tree.entry(dir, &name);
        let is_directory = matches!(entry, Some(Entry::Dir(_)));
        self.tree.may_lose(entry);
        let removed = twice(async |anew| {
            let node = self.walk_to(dir, anew).await?;
            self.mount.walk(&self.who, node, &name, anew).await?;
            self.mount.remove(&self.who, node, &name, is_directory).await
        });
        let removed = removed.await.map_err(|error| error.status);
        let expected = match entry {
            None => Err(Status::NotFound),
            Some(Entry::Dir(dir)) if !self.tree.dirs[&dir].entries.is_empty() => Err(Status::NotEmpty),
            Some(_) => Ok(()),
        };
        assert_eq!(removed, expected, "{name} in {:?}", self.tree.path(dir));
        if removed.is_ok() {
            let lost = self.tree.lead(dir, &name, None);
            self.tree.lost(lost);
        }
    }

    async fn move_some(&mut self) {
        let (from, to) = (self.any_name(), self.any_name());
        let to = if self.random(2) == 0 { (from.0, to.1) } else { to };
        self.tree.pick_name(to.0, &to.1);
        let flags = RenameFlags { exchange: self.random(6) == 0, no_replace: false };
        let (source, target) = (self.tree.entry(from.0, &from.1), self.tree.entry(to.0, &to.1));
        if !flags.exchange {
            self.tree.may_lose(target);
        }
        let outcome = twice(async |anew| {
            let (above, below) = (self.walk_to(from.0, anew).await?, self.walk_to(to.0, anew).await?);
            self.mount.walk(&self.who, above, &from.1, anew).await?;
            let led = self.mount.walk(&self.who, below, &to.1, anew).await;
            led.map(drop).or_else(|error| if error.status == Status::NotFound { Ok(()) } else { Err(error) })?;
            self.mount.move_name(&self.who, (above, &from.1), (below, &to.1), flags).await
        });
        let outcome = outcome.await.map_err(|error| error.status);
        let into_itself = |entry: Option<Entry>, dir: Id| matches!(entry, Some(Entry::Dir(moved)) if self.tree.is_below(dir, moved));
        let is_impossible = into_itself(source, to.0) || into_itself(target, from.0);
        let is_full = |entry: Option<Entry>| matches!(entry, Some(Entry::Dir(dir)) if !self.tree.dirs[&dir].entries.is_empty());
        let is_directory = |entry: Option<Entry>| matches!(entry, Some(Entry::Dir(_)));
        let is_right = match (source, target) {
            (None, _) => outcome == Err(Status::NotFound),
            (Some(_), None) if flags.exchange => matches!(outcome, Err(Status::NotFound | Status::Invalid)),
            _ if is_impossible => matches!(outcome, Err(Status::Invalid | Status::NotEmpty | Status::IsDirectory | Status::NotDirectory)),
            (Some(_), Some(_)) if flags.exchange => outcome == Ok(()),
            (Some(Entry::Dir(a)), Some(Entry::Dir(b))) if a == b => outcome == Ok(()),
            (Some(_), Some(_)) if is_directory(source) && !is_directory(target) => outcome == Err(Status::NotDirectory),
            (Some(_), Some(_)) if is_directory(target) && !is_directory(source) => outcome == Err(Status::IsDirectory),
            (Some(_), Some(_)) if is_full(target) => outcome == Err(Status::NotEmpty),
            _ => outcome == Ok(()),
        };
        let places = || (self.tree.path(from.0), &from.1, self.tree.path(to.0), &to.1);
        assert!(is_right, "{outcome:?} of {flags:?}, {source:?} over {target:?}: {:?}", places());
        let is_same = source == target;
        if outcome.is_err() || is_same {
            return;
        }
        self.tree.lead(from.0, &from.1, target.filter(|_| flags.exchange));
        self.tree.lead(to.0, &to.1, source);
        for (entry, place) in [(source, &to), (target, &from)] {
            if let Some(Entry::Dir(dir)) = entry
                && let Some(dir) = self.tree.dirs.get_mut(&dir)
            {
                dir.place = place.clone();
            }
        }
        if !flags.exchange {
            self.tree.lost(target);
        }
    }

    /// Keeps a file open.
    async fn hold_some(&mut self) {
        if let Some((dir, name, file)) = self.any_file() {
            let open = self.open(dir, &name, how(Rights::READ)).await;
            self.tree.held.push(HeldOpen { open, mount: self.mount.node, file });
        }
    }
}
