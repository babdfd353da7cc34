//! Attributes of directories whose names are with several servers: each tells of the names that it
//! has, and what all tell together are the attributes.

use weft_base::{Attr, Status};
use weft_call::run_window;
use weft_rt::Runtime;
use weft_wire::ops::{GetAttrRequest, PartitionMap};

use super::{SETTLE_TRIES, Settled};
use crate::flow::Flow;
use crate::knowledge::Asked;
use crate::{Client, Result};

/// Links of a directory without subdirectories.
const LINKS_OF_EMPTY: u32 = 2;

impl<R: Runtime> Client<R> {
    /// Adds what the other servers tell to what the owner of a directory has told: one message to
    /// each of them, at the same time. A name that is there all the while is counted once, one that
    /// comes or goes meanwhile may be.
    pub(super) async fn settle_with_partitions(&self, flow: Flow, attr: Attr, map: PartitionMap, asked: Asked) -> Result<Settled> {
        let (handle, mut known) = (attr.handle, (attr, map));
        for _ in 0..SETTLE_TRIES {
            match self.sum_of_partitions(flow, known.0, &known.1, asked).await? {
                Settled::Later(_) => {}
                settled => return Ok(settled),
            }
            // Names have moved.
            let state = self.get_state(flow, handle).await?;
            match state.partitions.filter(|map| map.is_split(handle)) {
                Some(map) => known = (state.attr, map),
                None => return Ok(Settled::Exact(state.attr)),
            }
        }
        self.sum_of_partitions(flow, known.0, &known.1, asked).await
    }

    /// What all tell together; [`Settled::Later`] if names have moved since the owner was asked:
    /// they may be counted twice, or by nobody.
    async fn sum_of_partitions(&self, flow: Flow, attr: Attr, map: &PartitionMap, asked: Asked) -> Result<Settled> {
        let handle = attr.handle;
        let others = map.servers().into_iter().filter(|server| *server != handle.server());
        let asks = others.map(|server| async move { self.call(flow, server, &GetAttrRequest { handle }).await });
        let (mut sum, mut is_exact) = (attr, true);
        for told in run_window(asks, self.options().window).await {
            match told {
                Ok(state) => {
                    is_exact &= state.partitions.is_none_or(|known| known.epoch() <= map.epoch());
                    add(&mut sum, &state.attr);
                }
                // It is gone there: its owner knows.
                Err(error) if matches!(error.status, Status::WrongServer | Status::Stale) => return Ok(Settled::Unknown),
                Err(error) => return Err(error),
            }
        }
        // Told under no lease, as attributes of a directory that is changed all the time.
        if self.inner.knowledge.keeps_leases() {
            self.inner.knowledge.changes_often(&sum, asked);
        }
        Ok(if is_exact { Settled::Exact(sum) } else { Settled::Later(sum) })
    }
}

fn add(sum: &mut Attr, other: &Attr) {
    sum.size = sum.size.saturating_add(other.size);
    sum.nlink = sum.nlink.saturating_add(other.nlink.saturating_sub(LINKS_OF_EMPTY));
    sum.mtime = sum.mtime.max(other.mtime);
    sum.ctime = sum.ctime.max(other.ctime);
    // Each grows only, so their sum does.
    sum.version = sum.version.saturating_add(other.version);
}
