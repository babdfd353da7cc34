//! Writing files and reading them again.

use std::rc::Rc;
use std::sync::Arc;

use weft_base::{Credentials, ROOT_HANDLE};
use weft_client::{CreateOptions, OpenFile, run_window};
use weft_rt::Bulk;

use crate::cluster::Cluster;
use crate::{FileLayout, PhaseReport, VirtualError};

/// Byte offset and number of bytes of each block of one call.
type Call = Vec<(u64, u64)>;

fn failed(what: &'static str) -> impl Fn(weft_client::Error) -> VirtualError {
    move |error| VirtualError::Failed(what.into(), error.status)
}

pub(crate) fn run(
    cluster: &Cluster,
    bytes: u64,
    block_bytes: u64,
    layout: FileLayout,
    blocks_per_call: u64,
    window: usize,
) -> Result<Vec<PhaseReport>, VirtualError> {
    if bytes == 0 || block_bytes == 0 || window == 0 {
        return Err(VirtualError::Invalid("a workload needs bytes, a block size and a window".into()));
    }
    let clients = cluster.clients.len() as u64;
    let calls: Vec<Rc<Vec<Call>>> =
        (0..clients).map(|client| Rc::new(calls(client, clients, bytes, block_bytes, layout, blocks_per_call))).collect();
    let files = open(cluster, layout)?;

    let write = cluster.phase("write", |index, client, _| {
        let (file, calls) = (files[index].clone(), calls[index].clone());
        async move {
            let flows = calls.iter().map(|call| {
                let (client, file) = (&client, &file);
                let len = call.iter().map(|(_, bytes)| bytes).sum();
                async move { client.write_list(file, call, Bulk::Synthetic { len, tag: index as u64 + 1 }).await }
            });
            run_window(flows, window).await.into_iter().collect::<Result<(), _>>().map_err(failed("write"))?;
            client.fsync(&file, false).await.map_err(failed("fsync"))?;
            Ok((calls.len() as u64, bytes))
        }
    })?;
    let read = cluster.phase("read", |index, client, _| {
        let (file, calls) = (files[index].clone(), calls[index].clone());
        async move {
            let flows = calls.iter().map(|call| {
                let (client, file) = (&client, &file);
                client.read_list(file, call)
            });
            let mut read = 0;
            for pieces in run_window(flows, window).await {
                read += pieces.map_err(failed("read"))?.iter().flatten().map(|piece| piece.len()).sum::<u64>();
            }
            if read != bytes {
                return Err(VirtualError::Stuck(format!("client {index} read {read} of {bytes} bytes")));
            }
            Ok((calls.len() as u64, read))
        }
    })?;
    Ok(vec![write, read])
}

/// What one client does, call by call.
fn calls(client: u64, clients: u64, bytes: u64, block_bytes: u64, layout: FileLayout, blocks_per_call: u64) -> Vec<Call> {
    let blocks = bytes.div_ceil(block_bytes);
    let block = |number: u64| {
        // The last block may be shorter.
        let len = block_bytes.min(bytes - number * block_bytes);
        let offset = match layout {
            FileLayout::Own => number * block_bytes,
            FileLayout::Segmented => client * bytes + number * block_bytes,
            FileLayout::Interleaved => (number * clients + client) * block_bytes,
        };
        (offset, len)
    };
    let per_call = if blocks_per_call == 0 { blocks } else { blocks_per_call };
    (0..blocks.div_ceil(per_call)).map(|call| (call * per_call..blocks.min((call + 1) * per_call)).map(block).collect()).collect()
}

/// Makes and opens the files: one for each client, which may all be the same.
fn open(cluster: &Cluster, layout: FileLayout) -> Result<Vec<Arc<OpenFile>>, VirtualError> {
    let flows = cluster.clients.iter().enumerate().map(|(index, (node, client))| {
        let client = client.clone();
        let name = if layout == FileLayout::Own { format!("file.{index}") } else { "file".into() };
        cluster.sim.spawn_on(*node, move |_| async move {
            client.create(&Credentials::ROOT, ROOT_HANDLE, name.as_bytes(), &CreateOptions::default()).await.map(|(_, file, _)| file)
        })
    });
    let flows: Vec<_> = flows.collect();
    cluster.wait(&flows)?.into_iter().map(|file| file.map_err(failed("create"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_belongs_to_one_client() {
        for layout in [FileLayout::Segmented, FileLayout::Interleaved] {
            for (bytes, block_bytes, blocks_per_call) in [(100, 10, 1), (100, 10, 3), (100, 10, 0), (100, 100, 1)] {
                let mut ranges: Vec<(u64, u64)> =
                    (0..5).flat_map(|client| calls(client, 5, bytes, block_bytes, layout, blocks_per_call).concat()).collect();
                ranges.sort_unstable();
                let mut end = 0;
                for (offset, len) in ranges {
                    assert_eq!(offset, end, "{layout:?} {bytes} {block_bytes} {blocks_per_call}");
                    end = offset + len;
                }
                assert_eq!(end, 500);
            }
        }
    }

    #[test]
    fn a_short_last_block_is_kept() {
        assert_eq!(calls(1, 2, 25, 10, FileLayout::Own, 2), [vec![(0, 10), (10, 10)], vec![(20, 5)]]);
    }
}
