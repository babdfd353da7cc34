//! Datafiles that belong to no file. A power cut leaves some: it may take a file that was made
//! within the batch interval, and whose bytes data servers have. Nobody can reach them.

use std::collections::{BTreeMap, BTreeSet};

use weft_base::{FastMap, Handle, ServerId};
use weft_call::run_window;
use weft_rt::Runtime;
use weft_wire::Capability;
use weft_wire::ops::{CheckGoneRequest, DATAFILES_LISTED_MAX, ListDatafilesRequest, ListedDatafile, ObjectRemoveRequest};

use crate::{Client, Result};

/// What a data server has, strays too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DatafileSums {
    /// Datafiles.
    pub datafiles: u64,
    /// Bytes allocated for them.
    pub bytes: u64,
}

/// A datafile that belongs to no file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StrayDatafile {
    /// The file that it belonged to.
    pub handle: Handle,
    /// The number among its datafiles.
    pub index: u32,
    /// Bytes allocated for it.
    pub bytes: u64,
}

impl<R: Runtime> Client<R> {
    /// Asks for each datafile of a data server whether its file exists, tells of those whose file
    /// does not and never will again, and removes them if that is wanted. Others may use the file
    /// system meanwhile. What a client may still make in a directory of its own is no stray.
    ///
    /// # Errors
    /// [`weft_base::Status::NotPermitted`] with a limited key,
    /// [`weft_base::Status::NotSupported`] of a server that is too old to know; servers that do not
    /// answer. What was told of before is removed then.
    pub async fn check_datafiles(&self, server: ServerId, remove: bool, mut tell: impl FnMut(StrayDatafile)) -> Result<DatafileSums> {
        let mut sums = DatafileSums::default();
        let (mut handle, mut index) = (Handle(0), 0);
        loop {
            let request = ListDatafilesRequest { handle, index, datafiles_max: DATAFILES_LISTED_MAX as u32 };
            let page = self.call(self.flow("list datafiles", Handle(0)), server, &request).await?;
            let gone = self.gone_of(&page.datafiles).await?;
            let strays = page.datafiles.iter().filter_map(|datafile| Some((datafile, *gone.get(&datafile.handle)?)));
            if remove {
                let removals = strays.clone().map(|(datafile, capability)| self.remove_stray(server, datafile, capability));
                run_window(removals, self.options().window).await.into_iter().collect::<Result<()>>()?;
            }
            for (ListedDatafile { handle, index, allocated_bytes }, _) in strays {
                tell(StrayDatafile { handle: *handle, index: *index, bytes: *allocated_bytes });
            }
            sums.datafiles += page.datafiles.len() as u64;
            sums.bytes += page.datafiles.iter().map(|datafile| datafile.allocated_bytes).sum::<u64>();
            match page.datafiles.last() {
                Some(last) if !page.is_end => (handle, index) = (last.handle, last.index),
                _ => return Ok(sums),
            }
        }
    }

    /// Which files of these datafiles are no more: with what each datafile may be removed.
    async fn gone_of(&self, datafiles: &[ListedDatafile]) -> Result<FastMap<Handle, Capability>> {
        let flow = self.flow("look for the file of a datafile", Handle(0));
        let mut by_owner = BTreeMap::<ServerId, Vec<Handle>>::new();
        for handle in datafiles.iter().map(|datafile| datafile.handle).collect::<BTreeSet<_>>() {
            by_owner.entry(self.owner(flow, handle).await?).or_default().push(handle);
        }
        let asked = by_owner.into_iter().map(|(owner, handles)| async move { self.call(flow, owner, &CheckGoneRequest { handles }).await });
        let mut gone = FastMap::default();
        for reply in run_window(asked, self.options().window).await {
            gone.extend(reply?.gone.into_iter().flatten().map(|capability| (capability.handle, capability)));
        }
        Ok(gone)
    }

    async fn remove_stray(&self, server: ServerId, datafile: &ListedDatafile, capability: Capability) -> Result<()> {
        let ListedDatafile { handle, index, .. } = *datafile;
        let flow = self.flow("remove a datafile", handle);
        self.call(flow, server, &ObjectRemoveRequest { handle, index, capability }).await
    }
}
