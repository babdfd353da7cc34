//! The protocol of PVFS2 as a client does it, step by step (Kuhn 2007, section 3.3, sections 4.4 to
//! 4.6 with the hint `no_metafile`): a yardstick for measurements. A client that ends between two
//! steps leaves an inode without a name or datafiles without a file behind, as there.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use weft_base::{Credentials, Handle, Layout, ServerId, check_name};
use weft_call::run_window;
use weft_rt::Runtime;
use weft_wire::Capability;
use weft_wire::ops::{
    ClassicDirectoryRequest, ClassicInsertEntryRequest, ClassicMakeMetafileRequest, ClassicRemoveEntryRequest,
    ClassicRemoveMetafileRequest, ClassicReserveRequest, ClassicSetMetafileRequest, DirEntry, GetAttrRequest, ObjectEpochRequest,
    ObjectRemoveRequest, ObjectStatRequest, ReadDirRequest,
};

use crate::flow::Flow;
use crate::knowledge::Touched;
use crate::names::By;
use crate::{Client, Result};

/// Handles that are reserved at once: one message more for so many creates with the hint.
const RESERVED: u16 = 256;
/// Names that one message of a listing brings (`MAX_NUM_DIRENTS` of `pvfs2-ls`).
const PAGE_NAMES: usize = 32;
/// Bytes of one page of a listing: so many names and more.
const LIST_BYTES: u32 = 16 << 10;

/// A client that makes, lists and removes files by the steps of PVFS2.
pub struct ClassicClient<R: Runtime> {
    client: Client<R>,
    /// Handles for files without a metafile, by the server that reserved them.
    reserved: Mutex<BTreeMap<ServerId, Vec<Capability>>>,
}

impl<R: Runtime> ClassicClient<R> {
    /// Uses the connections of `client`.
    pub fn new(client: Client<R>) -> ClassicClient<R> {
        ClassicClient { client, reserved: Mutex::default() }
    }

    /// Makes an empty file in five steps (three with the hint `no_metafile`), each a message.
    ///
    /// # Errors
    /// [`Status::Exists`](weft_base::Status::Exists), permissions, servers that do not answer.
    pub async fn create(&self, who: &Credentials, dir: Handle, name: &[u8], mode: u32) -> Result<()> {
        let (client, flow) = (&self.client, self.client.flow("create", dir));
        let _op = weft_trace::operation(weft_trace::event::CLIENT_CREATE);
        check_name(name).map_err(|status| flow.error(status))?;
        let name = bytes::Bytes::copy_from_slice(name);
        let owner = client.owner(flow, dir).await?;
        let about = client.call(flow, owner, &ClassicDirectoryRequest { dir, who: who.clone() }).await?;
        let (capability, datafile, layout);
        if about.no_metafile {
            capability = self.reserve(flow, owner, who, dir).await?;
            layout = placed(&about.layout, capability.handle, about.data_servers);
            self.make_datafiles(flow, &layout, capability).await?;
            datafile = Some(layout);
        } else {
            capability = client.call(flow, owner, &ClassicMakeMetafileRequest { dir, who: who.clone() }).await?.capability;
            layout = placed(&about.layout, capability.handle, about.data_servers);
            self.make_datafiles(flow, &layout, capability).await?;
            client.call(flow, owner, &ClassicSetMetafileRequest { capability, layout: Some(layout), mode, who: who.clone() }).await?;
            datafile = None;
        }
        let _change = client.changing(Touched::Name(dir, &name));
        let insert = |at| ClassicInsertEntryRequest { at, name: name.clone(), capability, datafile, who: who.clone() };
        client.call_in_dir(flow, dir, By::Name(&name), insert).await
    }

    /// Lists a directory with the attributes of its files: for each 32 names the directory's
    /// attributes and the names (figures 6.3 and 6.4, steps 3 and 4), then for each file the
    /// metafile (not with the hint) and the size of each datafile. Returns the number of entries.
    ///
    /// # Errors
    /// Permissions, servers that do not answer, an entry that the classic protocol has not made.
    pub async fn list(&self, who: &Credentials, dir: Handle) -> Result<u64> {
        let (client, flow) = (&self.client, self.client.flow("readdir", dir));
        let _op = weft_trace::operation(weft_trace::event::CLIENT_READDIR);
        let owner = client.owner(flow, dir).await?;
        let (mut cookie, mut listed) = (0, 0);
        loop {
            let about = client.call(flow, owner, &ClassicDirectoryRequest { dir, who: who.clone() }).await?;
            // With the hint an entry leads to the datafile itself: its handle is all that there is.
            let with_state = about.no_metafile;
            let page = |at| ReadDirRequest { at, cookie, bytes_max: LIST_BYTES, with_state, who: who.clone() };
            let page = client.call_in_dir(flow, dir, By::Cookie(cookie), page).await?;
            let names = first_names(&page.entries);
            for entry in names {
                let state = match &entry.state {
                    Some(state) => state.clone(),
                    None => client.call(flow, client.owner(flow, entry.handle).await?, &GetAttrRequest { handle: entry.handle }).await?,
                };
                let capability = state.ask_data.ok_or_else(|| flow.error(weft_base::Status::NotSupported))?;
                self.sizes(flow, &state.attr.layout, capability).await?;
                listed += 1;
            }
            let is_whole = names.len() == page.entries.len();
            if is_whole && page.until == u64::MAX {
                return Ok(listed);
            }
            cookie = names.last().filter(|_| !is_whole).map_or(page.until, |entry| entry.cookie);
        }
    }

    /// Removes a file that was made so in four steps (three with the hint).
    ///
    /// # Errors
    /// [`Status::NotFound`](weft_base::Status::NotFound),
    /// [`Status::NotSupported`](weft_base::Status::NotSupported) (it was not made so), permissions,
    /// servers that do not answer.
    pub async fn remove(&self, who: &Credentials, dir: Handle, name: &[u8]) -> Result<()> {
        let (client, flow) = (&self.client, self.client.flow("unlink", dir));
        let _op = weft_trace::operation(weft_trace::event::CLIENT_UNLINK);
        check_name(name).map_err(|status| flow.error(status))?;
        let name = bytes::Bytes::copy_from_slice(name);
        let change = client.changing(Touched::Lost(dir, &name));
        let take = |at| ClassicRemoveEntryRequest { at, name: name.clone(), who: who.clone() };
        let taken = client.call_in_dir(flow, dir, By::Name(&name), take).await?;
        drop(change);
        let capability = taken.capability;
        if let Some(layout) = taken.datafile {
            self.sizes(flow, &layout, capability).await?;
            return self.remove_datafiles(flow, &layout, capability).await;
        }
        let handle = capability.handle;
        let owner = client.owner(flow, handle).await?;
        let state = client.call(flow, owner, &GetAttrRequest { handle }).await?;
        self.remove_datafiles(flow, &state.attr.layout, capability).await?;
        client.call(flow, owner, &ClassicRemoveMetafileRequest { capability }).await
    }

    /// A handle for a file without a metafile.
    async fn reserve(&self, flow: Flow, owner: ServerId, who: &Credentials, dir: Handle) -> Result<Capability> {
        loop {
            let taken = self.reserved.lock().unwrap_or_else(PoisonError::into_inner).entry(owner).or_default().pop();
            match taken {
                // The server judges the exact end.
                Some(capability) if capability.expires > self.client.rt().wall() => return Ok(capability),
                Some(_) => {}
                None => {
                    let request = ClassicReserveRequest { dir, count: RESERVED, who: who.clone() };
                    let reply = self.client.call(flow, owner, &request).await?;
                    self.reserved.lock().unwrap_or_else(PoisonError::into_inner).entry(owner).or_default().extend(reply.capabilities);
                }
            }
        }
    }

    async fn make_datafiles(&self, flow: Flow, layout: &Layout, capability: Capability) -> Result<()> {
        let handle = capability.handle;
        let made = (0..u32::from(layout.width)).map(|index| async move {
            let server = self.client.data_server(flow, layout, index).await?;
            self.client.call(flow, server, &ObjectEpochRequest { handle, index, capability, mtime_epoch: 0 }).await
        });
        run_window(made, self.client.options().window).await.into_iter().collect()
    }

    async fn sizes(&self, flow: Flow, layout: &Layout, capability: Capability) -> Result<u64> {
        let handle = capability.handle;
        let asked = (0..u32::from(layout.width)).map(|index| async move {
            let server = self.client.data_server(flow, layout, index).await?;
            self.client.call(flow, server, &ObjectStatRequest { handle, index, capability }).await
        });
        let stats: Vec<_> = run_window(asked, self.client.options().window).await.into_iter().collect::<Result<_>>()?;
        let distribution = weft_layout::Distribution::of(layout).ok_or_else(|| flow.error(weft_base::Status::NotSupported))?;
        Ok(weft_layout::file_bytes(&distribution, stats.iter().map(|stat| stat.size)))
    }

    async fn remove_datafiles(&self, flow: Flow, layout: &Layout, capability: Capability) -> Result<()> {
        let handle = capability.handle;
        let removed = (0..u32::from(layout.width)).map(|index| async move {
            let server = self.client.data_server(flow, layout, index).await?;
            self.client.call(flow, server, &ObjectRemoveRequest { handle, index, capability }).await
        });
        run_window(removed, self.client.options().window).await.into_iter().collect()
    }
}

/// The layout with its first data server: clients choose, and go round.
fn placed(layout: &Layout, handle: Handle, data_servers: u16) -> Layout {
    Layout { first: (handle.counter() % u64::from(data_servers.max(1))) as u16, ..*layout }
}

/// The names of a page that PVFS2 would have asked for; those with one cookie stay together.
fn first_names(entries: &[DirEntry]) -> &[DirEntry] {
    let Some(last) = entries.get(PAGE_NAMES - 1) else { return entries };
    let same = entries[PAGE_NAMES..].iter().take_while(|entry| entry.cookie == last.cookie).count();
    &entries[..PAGE_NAMES + same]
}
