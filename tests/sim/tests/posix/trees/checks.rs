//! What is looked at of a tree.

use weft_base::FileKind;
use weft_sim_tests::mount::how;
use weft_wire::Rights;

use super::Turn;
use super::model::{Entry, HeldOpen, Id, TOP, Tree};
use super::steps::twice;
use crate::assert_bytes;

impl Turn<'_> {
    /// Closes what this mount keeps open. What has no name any more is as it was when it had one.
    pub(super) async fn let_some_go(&mut self) {
        let (here, held) = std::mem::take(&mut self.tree.held).into_iter().partition(|held| held.mount == self.mount.node);
        self.tree.held = held;
        let here: Vec<HeldOpen> = here;
        for HeldOpen { open, file, .. } in here {
            let is = &self.tree.files[&file];
            if is.links == 0 {
                let bytes = self.mount.read(open).await.unwrap_or_else(|error| panic!("{error}: it is open"));
                assert_bytes(&bytes, &is.bytes, &format!("a file without a name in {}", self.tree.name));
            }
            self.close(open).await;
        }
        let Tree { files, held, .. } = &mut *self.tree;
        files.retain(|file, is| is.links > 0 || held.iter().any(|held| held.file == *file));
    }

    pub(super) async fn look_at_some(&mut self) {
        match self.random(3) {
            0 => self.check_dir(self.any_dir()).await,
            _ => {
                if let Some((dir, name, _)) = self.any_file() {
                    self.check_entry(dir, &name).await;
                }
            }
        }
    }

    async fn check_dir(&self, dir: Id) {
        let (with_attrs, room) = (self.random(2) == 0, 1 + self.random(10) as usize);
        let listed = twice(async |anew| {
            let node = self.walk_to(dir, anew).await?;
            let attr = self.mount.stat(node).await?;
            Ok((attr, self.mount.list(&self.who, node, with_attrs, room).await?))
        });
        let (attr, listed) = listed.await.unwrap_or_else(|error| panic!("{error}: {:?}", self.tree.path(dir)));
        let mut listed: Vec<String> = listed.into_iter().filter(|name| self.tree.is_mine(name)).collect();
        listed.sort_unstable();
        let is = &self.tree.dirs[&dir];
        let path = self.tree.path(dir);
        assert_eq!(listed, is.entries.keys().cloned().collect::<Vec<_>>(), "names in {path:?}");
        let below = is.entries.values().filter(|entry| matches!(entry, Entry::Dir(_))).count();
        assert_eq!((attr.kind, attr.permissions()), (FileKind::Directory, is.mode), "{path:?}");
        if dir == TOP && self.tree.is_shared {
            return;
        }
        assert_eq!(attr.nlink as usize, 2 + below, "links of {path:?}");
        is.mtime.into_iter().for_each(|mtime| assert_eq!(attr.mtime, mtime, "time of {path:?}"));
    }

    async fn check_entry(&self, dir: Id, name: &str) {
        let place = || format!("{name} in {:?}", self.tree.path(dir));
        let entry = self.tree.entry(dir, name);
        let seen = twice(async |anew| {
            let node = self.walk(dir, name, anew).await?;
            Ok((node, self.mount.stat(node).await?))
        });
        let (node, attr) = seen.await.unwrap_or_else(|error| panic!("{error}: {}", place()));
        match entry {
            None => panic!("{} is not to be found", place()),
            Some(Entry::Dir(_)) => assert_eq!(attr.kind, FileKind::Directory, "{}", place()),
            Some(Entry::Symlink(id)) => {
                assert_eq!(attr.kind, FileKind::Symlink, "{}", place());
                let target = self.mount.posix.readlink(node).await.expect("it is there");
                assert_eq!(&target[..], format!("to{id}").as_bytes(), "{}", place());
            }
            Some(Entry::File(id)) => {
                let is = &self.tree.files[&id];
                let file = self.open(dir, name, how(Rights::READ)).await;
                // Who does not open it gets the last size that is known, beside a silent server.
                let attr = if self.tree.is_calm { attr } else { self.mount.stat(node).await.expect("it is open") };
                let expected = (FileKind::File, is.mode, is.links, is.bytes.len() as u64);
                assert_eq!((attr.kind, attr.permissions(), attr.nlink, attr.size), expected, "{}", place());
                is.mtime.into_iter().for_each(|mtime| assert_eq!(attr.mtime, mtime, "time of {}", place()));
                let bytes = self.mount.read(file).await.expect("it is read");
                if self.tree.does_all && self.random(4) == 0 {
                    self.check_xattrs(node, is, &place()).await;
                }
                self.close(file).await;
                assert_bytes(&bytes, &is.bytes, &place());
            }
        }
    }

    pub(super) async fn check_all(&self) {
        for (dir, is) in &self.tree.dirs {
            self.check_dir(*dir).await;
            for name in is.entries.keys() {
                self.check_entry(*dir, name).await;
            }
        }
    }
}
