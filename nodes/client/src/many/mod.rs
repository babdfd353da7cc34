//! Many small files in few messages: whole files are read by one request to each metadata server
//! and one to each data server that has any of them. Nothing is opened. A file for which that does
//! not suffice (others are writing it, it is long, it changes at this moment) is read alone, by the
//! ordinary way.

mod alone;
mod lookups;
mod paths;
mod reads;

use bytes::Bytes;
use weft_base::{Attr, Credentials, Handle, Payload};
use weft_call::run_window;
use weft_rt::Runtime;
use weft_wire::ops::LOOKUPS_MAX;

use self::lookups::Looked;
use crate::flow::Flow;
use crate::{Client, Result, WholeFile};

/// A longer file is read alone: its messages are filled by its own data. So is one with strips of
/// its own, for which its metadata server must be asked.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Most files read alone at a time.
const ALONE_WINDOW: usize = 32;

/// How far a file of a list is.
enum Progress {
    /// Read, or found to be impossible.
    Ended(Result<WholeFile>),
    /// To be read alone.
    Alone,
}

impl<R: Runtime> Client<R> {
    /// Reads whole files by directory and name; one result for each, in their order. For many
    /// small files: up to 1024 at a time cost one message for each metadata server and one for
    /// each data server (and 8 MiB). Each file is read for itself: what lies within one stripe is
    /// all of the file at one moment during this call, a longer one is what [`Client::read`] gives.
    /// Each 1024 files take as long as one operation may.
    ///
    /// # Errors
    /// For each file: [`weft_base::Status::NotFound`]; [`weft_base::Status::IsDirectory`];
    /// [`weft_base::Status::TooManySymlinks`] for a symlink, which is for the caller to follow
    /// ([`Client::read_paths`]); [`weft_base::Status::Invalid`] for what has no data; permissions;
    /// servers that do not answer.
    pub async fn read_many(&self, who: &Credentials, files: &[(Handle, Bytes)]) -> Vec<Result<WholeFile>> {
        let mut results = Vec::with_capacity(files.len());
        for files in files.chunks(LOOKUPS_MAX) {
            let client = self.for_one_operation();
            let progress = Box::pin(client.read_together(who, files)).await;
            results.extend(Box::pin(client.read_rest(who, files, progress)).await);
        }
        results
    }

    /// What the messages about all of them give.
    async fn read_together(&self, who: &Credentials, files: &[(Handle, Bytes)]) -> Vec<Progress> {
        let _op = weft_trace::operation(weft_trace::event::CLIENT_READ);
        self.read_together_in(self.flow("read", Handle(0)), who, files).await
    }

    /// What these messages give as a part of another operation; `None`: it would have to be read
    /// alone.
    pub(crate) async fn read_at_once(&self, flow: Flow, who: &Credentials, files: &[(Handle, Bytes)]) -> Vec<Option<Result<WholeFile>>> {
        let read = self.read_together_in(flow, who, files).await.into_iter();
        read.map(|progress| if let Progress::Ended(result) = progress { Some(result) } else { None }).collect()
    }

    async fn read_together_in(&self, flow: Flow, who: &Credentials, files: &[(Handle, Bytes)]) -> Vec<Progress> {
        let looked = self.lookup_many(flow, who, files).await;
        let mut progress = Vec::with_capacity(files.len());
        let mut found = Vec::with_capacity(files.len());
        for (position, looked) in looked.into_iter().enumerate() {
            progress.push(match looked {
                Looked::Found(Attr { handle, size: 0, .. }, _) => Progress::Ended(Ok(WholeFile { handle, data: Payload::EMPTY })),
                Looked::Found(attr, capability) => {
                    if attr.size <= FILE_BYTES_MAX && !attr.layout.is_varstrip() {
                        found.push((position, attr, capability));
                    }
                    Progress::Alone
                }
                Looked::Whole(file) => Progress::Ended(Ok(file)),
                Looked::Impossible(error) => Progress::Ended(Err(error)),
                Looked::Unclear => Progress::Alone,
            });
        }
        self.read_found(flow, &found, &mut progress).await;
        progress
    }

    /// All results: what is not read yet is read alone.
    async fn read_rest(&self, who: &Credentials, files: &[(Handle, Bytes)], progress: Vec<Progress>) -> Vec<Result<WholeFile>> {
        let alone = progress.iter().zip(files).filter(|(progress, _)| matches!(progress, Progress::Alone));
        let flows: Vec<_> = alone.map(|(_, (dir, name))| self.read_alone(who, *dir, name)).collect();
        let mut alone = run_window(flows, ALONE_WINDOW).await.into_iter();
        let result = |progress| match progress {
            Progress::Ended(result) => result,
            Progress::Alone => alone.next().expect("one result for each of them"),
        };
        progress.into_iter().map(result).collect()
    }
}
