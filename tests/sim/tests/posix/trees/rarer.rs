//! What programs do less often.

use std::ops::Range;

use weft_base::Status;
use weft_client::{Fallocate, SetAttr, XattrFlags};
use weft_posix::InodeNumber;
use weft_sim_tests::mount::how;
use weft_wire::Rights;

use super::Turn;
use super::model::{Entry, File};
use super::steps::twice;
use crate::{UPDATE, assert_bytes};

/// Names of extended attributes.
const XATTRS: u64 = 4;

impl Turn<'_> {
    pub(super) async fn step_rarely(&mut self) {
        match self.random(6) {
            0 => self.make_unnamed().await,
            1 => self.allocate_some().await,
            2 => self.copy_some().await,
            3 => self.write_and_cut().await,
            _ => self.set_some_xattr().await,
        }
    }

    /// A file that gets its name when it is written, as editors and downloads do, or names, in
    /// whatever directories.
    async fn make_unnamed(&mut self) {
        let ((dir, name), (other_dir, other)) = (self.any_name(), self.any_name());
        let at_first = if self.random(2) == 0 { dir } else { self.any_dir() };
        if self.tree.entry(dir, &name).is_some() {
            return;
        }
        let file = twice(async |anew| {
            let node = self.walk_to(at_first, anew).await?;
            self.mount.create_unnamed(&self.who, node, 0o644).await
        })
        .await
        .expect("it is made");
        let mut is = File::new(self.bytes());
        self.write(file, 0, &is.bytes, false).await;
        if self.random(3) == 0 {
            let (from, bytes) = (self.random(is.bytes.len() as u64 + 1) as usize, 1 + self.random(9000) as usize);
            self.mount.allocate(&self.who, file, (from, bytes), Fallocate::Zero { keep_size: false }).await.expect("it is cleared");
            is.write(from, &vec![0; bytes]);
        }
        if self.random(3) == 0 {
            let size = self.random(is.bytes.len() as u64 + 3000);
            let change = SetAttr { size: Some(size), mode: Some(0o600), ..SetAttr::default() };
            self.mount.setattr(&self.who, file.node, &change).await.expect("it is set");
            (is.mode, is.mtime) = (0o600, None);
            is.bytes.resize(size as usize, 0);
        }
        let places = [(dir, name), (other_dir, other)];
        let count = [0, 1, 1, 2][self.random(4) as usize];
        let mut id = None;
        for (dir, name) in &places[..count] {
            if self.tree.entry(*dir, name).is_some() {
                continue;
            }
            let linked = twice(async |anew| {
                let node = self.walk_to(*dir, anew).await?;
                self.mount.make(node, name, self.mount.posix.link(&self.who.who, file.node, node, name.as_bytes())).await
            });
            linked.await.unwrap_or_else(|error| panic!("{error}: {name} in {:?}", self.tree.path(*dir)));
            match id {
                Some(id) => self.tree.file(id).links += 1,
                None => {
                    id = Some(self.tree.add(file.node));
                    self.tree.files.extend(id.map(|id| (id, std::mem::replace(&mut is, File::new(Vec::new())))));
                }
            }
            self.tree.lead(*dir, name, id.map(Entry::File));
        }
        if let Some(id) = id.filter(|_| self.random(2) == 0) {
            let (bytes, at) = (self.bytes(), self.random(self.tree.files[&id].bytes.len() as u64 + 1) as usize);
            self.write(file, at, &bytes, false).await;
            self.tree.file(id).write(at, &bytes);
        }
        self.close(file).await;
    }

    /// Some range of so many bytes, or beyond.
    fn range(&self, bytes: usize) -> Range<usize> {
        let from = self.random(bytes as u64 + 5000) as usize;
        from..from + 1 + self.random(30_000) as usize
    }

    async fn allocate_some(&mut self) {
        let Some((dir, name, id)) = self.any_file() else { return };
        let range = self.range(self.tree.files[&id].bytes.len());
        let keep_size = self.random(2) == 0;
        let how_to = match self.random(3) {
            0 => Fallocate::Punch,
            1 => Fallocate::Zero { keep_size },
            _ => Fallocate::Reserve { keep_size },
        };
        let file = self.open(dir, &name, how(UPDATE)).await;
        let outcome = self.mount.allocate(&self.who, file, (range.start, range.len()), how_to).await;
        self.close(file).await;
        let is_longer = matches!(how_to, Fallocate::Zero { keep_size: false } | Fallocate::Reserve { keep_size: false });
        let is = self.tree.file(id);
        match outcome {
            Ok(()) => {}
            // Space behind the end is not kept.
            Err(error) if error.status == Status::NotSupported && !is_longer && range.end > is.bytes.len() => return,
            Err(error) => panic!("{error}: {how_to:?} of {range:?} in {name}"),
        }
        is.mtime = None;
        if is_longer {
            is.bytes.resize(is.bytes.len().max(range.end), 0);
        }
        if !matches!(how_to, Fallocate::Reserve { .. }) {
            let end = range.end.min(is.bytes.len());
            is.bytes[range.start.min(end)..end].fill(0);
        }
    }

    /// Copies a range of a file into another one, by the servers.
    async fn copy_some(&mut self) {
        let (Some(from), Some(to)) = (self.any_file(), self.any_file()) else { return };
        if from.2 == to.2 {
            return;
        }
        let range = self.range(self.tree.files[&from.2].bytes.len());
        let at = self.random(self.tree.files[&to.2].bytes.len() as u64 + 1) as usize;
        let source = self.open(from.0, &from.1, how(Rights::READ)).await;
        let target = self.open(to.0, &to.1, how(UPDATE)).await;
        let mut copied = 0;
        while copied < range.len() {
            let part = self.mount.copy(&self.who, (source, range.start + copied), (target, at + copied), range.len() - copied).await;
            match part.unwrap_or_else(|error| panic!("{error}: {} to {}", from.1, to.1)) {
                0 => break,
                bytes => copied += bytes,
            }
        }
        self.close(target).await;
        self.close(source).await;
        let there = &self.tree.files[&from.2].bytes;
        let copy = there[range.start.min(there.len())..range.end.min(there.len())].to_vec();
        assert_eq!(copied, copy.len(), "bytes of {range:?} of {} that were copied", from.1);
        self.tree.file(to.2).write(at, &copy);
    }

    /// Writes, cuts or extends what it has open, and writes again.
    async fn write_and_cut(&mut self) {
        let Some((dir, name, id)) = self.any_file() else { return };
        let file = self.open(dir, &name, how(UPDATE)).await;
        for _ in 0..1 + self.random(3) {
            let bytes = self.bytes();
            let offset = self.random(self.tree.files[&id].bytes.len() as u64 + 3000) as usize;
            self.write(file, offset, &bytes, false).await;
            self.tree.file(id).write(offset, &bytes);
            let size = self.random(self.tree.files[&id].bytes.len() as u64 + 3000);
            let cut = SetAttr { size: Some(size), ..SetAttr::default() };
            self.mount.setattr(&self.who, file.node, &cut).await.unwrap_or_else(|error| panic!("{error}: {name} to {size}"));
            let is = self.tree.file(id);
            is.bytes.resize(size as usize, 0);
            is.mtime = None;
            let seen = self.mount.read(file).await.expect("it is read");
            let is = &self.tree.files[&id].bytes;
            assert_bytes(&seen, is, &format!("{name} after it was cut"));
        }
        self.close(file).await;
    }

    async fn set_some_xattr(&mut self) {
        let Some((dir, name, id)) = self.any_file() else { return };
        let key = format!("user.{}", self.random(XATTRS));
        let before = self.tree.files[&id].xattrs.contains_key(&key);
        let node = twice(async |anew| self.walk(dir, &name, anew).await).await.expect("it is there");
        let is_removed = self.random(4) == 0;
        let value = vec![self.random(256) as u8; self.random(300) as usize];
        let flags = [(false, false), (true, false), (false, true)][self.random(6).min(2) as usize];
        let flags = XattrFlags { create_only: flags.0, replace_only: flags.1 };
        let outcome = match is_removed {
            true => self.mount.posix.remove_xattr(&self.who.who, node, key.as_bytes()).await,
            false => self.mount.posix.set_xattr(&self.who.who, node, key.as_bytes(), &value, flags).await,
        };
        let expected = match before {
            true if flags.create_only && !is_removed => Err(Status::Exists),
            false if flags.replace_only || is_removed => Err(Status::NoAttribute),
            _ => Ok(()),
        };
        assert_eq!(outcome.map_err(|error| error.status), expected, "{key} of {name} in {:?}", self.tree.path(dir));
        if expected.is_ok() {
            let xattrs = &mut self.tree.file(id).xattrs;
            match is_removed {
                true => drop(xattrs.remove(&key)),
                false => drop(xattrs.insert(key, value)),
            }
        }
    }

    /// The extended attributes of a file are those that were set.
    pub(super) async fn check_xattrs(&self, node: InodeNumber, is: &File, place: &str) {
        let who = &self.who.who;
        let mut names = self.mount.posix.list_xattr(who, node).await.unwrap_or_else(|error| panic!("{error}: {place}"));
        names.retain(|name| name.starts_with(b"user."));
        names.sort_unstable();
        assert_eq!(names, is.xattrs.keys().cloned().collect::<Vec<_>>(), "attributes of {place}");
        for (name, value) in &is.xattrs {
            let seen = self.mount.posix.get_xattr(who, node, name.as_bytes()).await.unwrap_or_else(|error| panic!("{error}: {place}"));
            assert_eq!(&seen[..], value, "{name} of {place}");
        }
    }
}
