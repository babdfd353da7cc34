//! Sizes that only the data servers know: of files whose writer was lost, or reported across a
//! truncation.

use std::rc::Rc;

use weft_base::{DataTime, Handle, Layout, Result, Status};
use weft_layout::file_bytes;
use weft_namespace::{DataState, InodeFlags, Record};
use weft_rt::{ServerRuntime, join_all};
use weft_wire::ops::ObjectStatRequest;

use super::truncate::ASK_NS;
use crate::engine::Engine;
use crate::server::Server;

/// Files that are asked about at the same time.
const AT_ONCE: usize = 32;
/// So often one file is asked about in turn, as long as answers are too old when they come.
const TRIES: usize = 16;

impl<R: ServerRuntime, E: Engine> Server<R, E> {
    /// Asks about all files whose writers were lost. What fails is tried again by the next tick.
    pub(crate) async fn settle_sizes_flow(self: Rc<Self>) {
        let files = self.state.borrow().uncertain_files();
        for chunk in files.chunks(AT_ONCE) {
            join_all(chunk.iter().map(|handle| self.settle_size(*handle))).await;
        }
        self.background.settling.set(false);
    }

    /// Asks the data servers for the size of a file and takes it in.
    pub(super) async fn settle_size(&self, handle: Handle) -> Result<()> {
        for _ in 0..TRIES {
            let (layout, distribution, asked) = {
                let state = self.state.borrow();
                let inode = state.inode(handle)?;
                if inode.flags.has(InodeFlags::TRUNCATING) {
                    return Err(Status::Busy);
                }
                (inode.layout, state.distribution(handle, &inode.layout)?, state.asks_size(handle)?)
            };
            let (sizes, allocated_bytes, mtime) = self.ask_sizes(handle, layout).await?;
            let mut record = Record::default();
            let mut state = self.state.borrow_mut();
            if state.must_ask_size_again(handle, asked)? {
                continue;
            }
            let truncate_epoch = state.inode(handle)?.truncate_epoch;
            let told = DataState { size: file_bytes(&distribution, sizes), allocated_bytes, mtime, truncate_epoch };
            // Before the record is made: whether somebody still writes decides what it says.
            state.made_certain(handle);
            state.prepare_sizes(handle, &told, &mut record);
            drop(state);
            self.change_in_flow(&mut record);
            return Ok(());
        }
        Err(Status::Busy)
    }

    /// Of the datafiles, in their order, the bytes that they take together, and the time of the
    /// newest write.
    pub(super) async fn ask_sizes(&self, handle: Handle, layout: Layout) -> Result<(Vec<u64>, u64, DataTime)> {
        let deadline = self.rt.now() + ASK_NS;
        let answers = join_all((0..u32::from(layout.width)).map(|index| {
            let request = ObjectStatRequest { handle, index, capability: self.manage(handle) };
            async move { self.call_datafile(&layout, index, &request, deadline).await }
        }))
        .await;
        let (mut allocated_bytes, mut mtime) = (0u64, DataTime::NONE);
        let mut sizes = Vec::with_capacity(answers.len());
        for answer in answers {
            let answer = answer?;
            mtime = mtime.later(answer.mtime);
            allocated_bytes = allocated_bytes.saturating_add(answer.allocated_bytes);
            sizes.push(answer.size);
        }
        Ok((sizes, allocated_bytes, mtime))
    }
}
