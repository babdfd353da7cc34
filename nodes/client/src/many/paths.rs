//! Many files by their paths.

use std::collections::BTreeMap;

use bytes::Bytes;
use weft_base::{Credentials, FileKind, Handle, Status};
use weft_call::run_window;
use weft_rt::Runtime;

use super::ALONE_WINDOW;
use crate::{Client, Result, WholeFile};

impl<R: Runtime> Client<R> {
    /// [`Client::read_many`] by paths. Each directory is walked to once for all of its files;
    /// symlinks are followed.
    ///
    /// # Errors
    /// For each file: as [`Client::resolve`] and [`Client::read_many`].
    pub async fn read_paths(&self, who: &Credentials, paths: &[Bytes]) -> Vec<Result<WholeFile>> {
        let dirs: BTreeMap<&[u8], usize> = {
            let names: std::collections::BTreeSet<&[u8]> = paths.iter().map(|path| cut(path).0).collect();
            names.into_iter().enumerate().map(|(number, name)| (name, number)).collect()
        };
        let walks: Vec<_> = dirs.keys().map(|dir| Box::pin(self.walk_to(who, dir))).collect();
        let dirs_found = run_window(walks, ALONE_WINDOW).await;
        let mut files = Vec::with_capacity(paths.len());
        let mut results: Vec<Result<WholeFile>> = Vec::with_capacity(paths.len());
        let mut positions = Vec::with_capacity(paths.len());
        for (position, path) in paths.iter().enumerate() {
            let (dir, name) = cut(path);
            let flow = self.flow("read", self.root());
            match dirs_found[dirs[dir]] {
                Ok(dir) if is_name(name) => {
                    files.push((dir, path.slice_ref(name)));
                    positions.push(position);
                    results.push(Err(flow.error(Status::Busy)));
                }
                // It ends with a slash or dots.
                Ok(_) => results.push(Err(flow.error(Status::IsDirectory))),
                Err(error) => results.push(Err(error)),
            }
        }
        for (position, result) in positions.into_iter().zip(Box::pin(self.read_many(who, &files)).await) {
            results[position] = result;
        }
        let links: Vec<usize> = (0..paths.len()).filter(|position| is_link(&results[*position])).collect();
        let flows: Vec<_> = links.iter().map(|position| Box::pin(self.read_link(who, &paths[*position]))).collect();
        for (position, result) in links.iter().zip(run_window(flows, ALONE_WINDOW).await) {
            results[*position] = result;
        }
        results
    }

    async fn walk_to(&self, who: &Credentials, dir: &[u8]) -> Result<Handle> {
        let attr = self.resolve(who, dir, true).await?;
        let flow = self.flow("read", attr.handle);
        if attr.kind == FileKind::Directory { Ok(attr.handle) } else { Err(flow.error(Status::NotDirectory)) }
    }

    async fn read_link(&self, who: &Credentials, path: &[u8]) -> Result<WholeFile> {
        let attr = self.resolve(who, path, true).await?;
        self.read_object(who, attr.handle).await
    }
}

/// The directory of a path, and the name in it.
fn cut(path: &Bytes) -> (&[u8], &[u8]) {
    let slash = path.iter().rposition(|byte| *byte == b'/');
    slash.map_or((&b"/"[..], &path[..]), |slash| (&path[..=slash], &path[slash + 1..]))
}

fn is_name(name: &[u8]) -> bool {
    !matches!(name, b"" | b"." | b"..")
}

fn is_link(result: &Result<WholeFile>) -> bool {
    matches!(result, Err(error) if error.status == Status::TooManySymlinks)
}
