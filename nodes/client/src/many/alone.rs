//! A whole file by the ordinary way: opened, read to its end, closed.

use bytes::Bytes;
use weft_base::{Credentials, FileKind, Handle, Payload, Status};
use weft_rt::Runtime;
use weft_wire::Rights;

use crate::{Client, Result, WholeFile};

/// How often a name is looked up again because its file was removed or replaced meanwhile.
const TRIES: usize = 16;

impl<R: Runtime> Client<R> {
    /// Reads what a name leads to, as of one look-up or a later one.
    pub(super) async fn read_alone(&self, who: &Credentials, dir: Handle, name: &Bytes) -> Result<WholeFile> {
        let flow = self.flow("read", dir);
        for _ in 0..TRIES {
            let (handle, kind) = self.lookup_handle(who, dir, name).await?;
            match kind {
                FileKind::Directory => return Err(flow.error(Status::IsDirectory)),
                FileKind::Symlink => return Err(flow.error(Status::TooManySymlinks)),
                _ => {}
            }
            match self.read_object(who, handle).await {
                Err(error) if error.status == Status::Stale => {}
                outcome => return outcome,
            }
        }
        Err(flow.error(Status::Busy))
    }

    /// Reads a file by handle.
    pub(super) async fn read_object(&self, who: &Credentials, handle: Handle) -> Result<WholeFile> {
        let (_, file) = self.open(who, handle, Rights::READ, false).await?;
        let data = self.read(&file, 0, u64::MAX).await;
        // Nothing was written, so nothing is lost: the server is told later that it is closed.
        let _ = self.close(file).await;
        Ok(WholeFile { handle, data: joined(data?) })
    }
}

fn joined(mut pieces: Vec<Payload>) -> Payload {
    if pieces.len() <= 1 {
        return pieces.pop().unwrap_or(Payload::EMPTY);
    }
    let len = pieces.iter().map(Payload::len).sum();
    if let Some(tag) = pieces.iter().find_map(|piece| match piece {
        Payload::Synthetic { tag, .. } => Some(*tag),
        Payload::Real(_) => None,
    }) {
        return Payload::Synthetic { len, tag };
    }
    Payload::concat(&pieces).into()
}
