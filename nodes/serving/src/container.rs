//! The container file of a server: its header says whose it is.

use weft_base::Payload;
use weft_rt::{Disk, DiskError, FileId};
use weft_store::objects::{CONTAINER_HEADER_BYTES, ContainerHeader};

use crate::{ServerError, ServingConfig};

/// An empty container of this server; what had its name is void.
///
/// # Errors
/// [`ServerError::Disk`].
pub async fn make_container<D: Disk>(disk: &D, name: &str, config: &ServingConfig) -> Result<FileId, ServerError> {
    let failed = |error: DiskError| ServerError::Disk("make the container", error);
    let container = disk.open(name, true).await.map_err(failed)?;
    disk.set_len(container, 0).await.map_err(failed)?;
    let header = ContainerHeader { fs_id: config.map.fs_id, server_id: config.server };
    disk.write(container, 0, Payload::Real(header.encode())).await.map_err(failed)?;
    disk.sync(container).await.map_err(failed)?;
    Ok(container)
}

/// The container of this server, if there is one. Whose making has not come to its end is none.
///
/// # Errors
/// [`ServerError::Disk`]; [`ServerError::Store`]: it is damaged, or somebody else's.
pub async fn find_container<D: Disk>(disk: &D, name: &str, config: &ServingConfig) -> Result<Option<FileId>, ServerError> {
    let container = match disk.open(name, false).await {
        Err(DiskError::NotFound) => return Ok(None),
        opened => opened.map_err(|error| ServerError::Disk("open the container", error))?,
    };
    let block = disk.read(container, 0, CONTAINER_HEADER_BYTES as u64).await;
    let block = block.map_err(|error| ServerError::Disk("read the container", error))?.to_bytes();
    if block.iter().all(|byte| *byte == 0) {
        disk.close(container);
        return Ok(None);
    }
    let header = ContainerHeader::decode(&block).map_err(|error| ServerError::Store(format!("the container {name}: {error}")))?;
    let ContainerHeader { fs_id, server_id } = header;
    match (fs_id, server_id) == (config.map.fs_id, config.server) {
        true => Ok(Some(container)),
        false => Err(ServerError::Store(format!("the container {name} belongs to {server_id} of file system {fs_id}"))),
    }
}
