//! The protocol of PVFS2, step by step (Kuhn 2007, section 3.3): a yardstick. Files that it makes
//! are ordinary files of Weft once they have a name; what a client leaves behind between two steps
//! stays, as in PVFS2: an inode without a name, datafiles without a file. Nothing looks for them,
//! and nothing fails because of them.

use weft_base::{EXECUTE, FileKind, Handle, Layout, MODE_MASK, Result, Status, check_name};
use weft_wire::ops::{
    ClassicDirectoryReply, ClassicDirectoryRequest, ClassicInsertEntryRequest, ClassicMakeMetafileReply, ClassicMakeMetafileRequest,
    ClassicRemoveEntryReply, ClassicRemoveEntryRequest, ClassicRemoveMetafileRequest, ClassicReserveReply, ClassicReserveRequest,
    ClassicSetMetafileRequest, DirTarget, RESERVED_MAX,
};
use weft_wire::{Capability, Rights};

use crate::access::must_own_entries;
use crate::{Change, Inode, InodeFlags, Record, RequestContext, State};

/// Its datafiles are made before it has a name: whoever removes it by Weft's own operations finds
/// all of them.
const FLAGS: InodeFlags = InodeFlags(InodeFlags::CLASSIC.0 | InodeFlags::HAS_DATA.0 | InodeFlags::TOLD.0);

impl State {
    /// The directory that a step is about.
    ///
    /// # Errors
    /// [`Status::NotSupported`] if it is split, and as [`State::directory`].
    fn classic_directory(&self, dir: Handle) -> Result<&Inode> {
        let inode = self.known_directory(&DirTarget { dir, map_epoch: 0 })?;
        if self.is_split(dir) { Err(Status::NotSupported) } else { Ok(inode) }
    }

    /// A metafile that has no name, by a capability that was given to this client.
    fn unnamed(&self, cx: &RequestContext<'_>, capability: &Capability) -> Result<&Inode> {
        let handle = capability.handle;
        capability.verify(cx.key, handle, cx.client, Rights::MANAGE, cx.now)?;
        let inode = self.inode(handle)?;
        self.check_writable(handle, inode)?;
        if inode.flags.has(InodeFlags::CLASSIC) && inode.nlink == 0 { Ok(inode) } else { Err(Status::Invalid) }
    }

    /// Create, step 1.
    ///
    /// # Errors
    /// [`Status::AccessDenied`], [`Status::NotReady`], and as [`State::directory`].
    pub fn classic_look(&self, request: &ClassicDirectoryRequest) -> Result<ClassicDirectoryReply> {
        let dir = self.classic_directory(request.dir)?;
        self.may_access(&request.who, request.dir, dir, EXECUTE)?;
        let place = &self.placement;
        if place.generation == 0 {
            return Err(Status::NotReady);
        }
        let hints = self.hints(request.dir);
        let layout = hints.apply(dir.layout);
        let width = layout.width.min(place.data_servers).max(1);
        let layout = Layout { width, first: 0, generation: place.generation, ..layout };
        Ok(ClassicDirectoryReply { layout, data_servers: place.data_servers, no_metafile: hints.no_metafile })
    }

    /// Gives handles out for files without a metafile: they are the client's.
    ///
    /// # Errors
    /// [`Status::TooBig`], [`Status::AccessDenied`], and as [`State::directory`].
    pub fn prepare_classic_reserve(
        &self,
        cx: &RequestContext<'_>,
        request: &ClassicReserveRequest,
        record: &mut Record,
    ) -> Result<ClassicReserveReply> {
        if request.count > RESERVED_MAX {
            return Err(Status::TooBig);
        }
        self.check_directory(&request.who, request.dir, self.classic_directory(request.dir)?, true)?;
        let first = self.next_counter;
        let last = first + u64::from(request.count);
        record.changes.push(Change::PutHandles { client: cx.client, first, end: last });
        let handles = (first..last).map(|counter| Handle::new(self.settings.server, counter));
        Ok(ClassicReserveReply { capabilities: handles.map(|handle| cx.capability(handle, Rights::MANAGE)).collect() })
    }

    /// Create, step 2.
    ///
    /// # Errors
    /// [`Status::AccessDenied`], and as [`State::directory`].
    pub fn prepare_classic_make(
        &self,
        cx: &RequestContext<'_>,
        request: &ClassicMakeMetafileRequest,
        record: &mut Record,
    ) -> Result<ClassicMakeMetafileReply> {
        let dir = self.classic_directory(request.dir)?;
        self.check_directory(&request.who, request.dir, dir, true)?;
        let handle = self.next_handle();
        let inode = Inode::new(FileKind::File, 0, request.who.uid, request.who.gid, dir.layout, cx.now);
        let inode = Inode { nlink: 0, flags: FLAGS, project: self.hints(request.dir).project, ..inode };
        self.check_allowance(inode.charged())?;
        record.changes.push(Change::PutInode { handle, inode });
        Ok(ClassicMakeMetafileReply { capability: cx.capability(handle, Rights::MANAGE) })
    }

    /// Create, step 4.
    ///
    /// # Errors
    /// [`Status::CapabilityRefused`], [`Status::Invalid`] (no such metafile, an impossible layout),
    /// and as [`State::inode`].
    pub fn prepare_classic_set(&self, cx: &RequestContext<'_>, request: &ClassicSetMetafileRequest, record: &mut Record) -> Result<()> {
        let inode = self.unnamed(cx, &request.capability)?;
        let layout = request.layout.map_or(Ok(inode.layout), |layout| self.classic_layout(&layout))?;
        let (mode, uid, gid) = (request.mode & MODE_MASK, request.who.uid, request.who.gid);
        let inode = Inode { mode, uid, gid, layout, ..inode.changed(cx.now) };
        record.changes.push(Change::PutInode { handle: request.capability.handle, inode });
        Ok(())
    }

    /// Create, step 5.
    ///
    /// # Errors
    /// [`Status::Exists`], [`Status::AccessDenied`], [`Status::NameTooLong`],
    /// [`Status::CapabilityRefused`], [`Status::Invalid`] (no such metafile, an impossible layout),
    /// [`Status::Busy`], and as [`State::directory`].
    pub fn prepare_classic_insert(&self, cx: &RequestContext<'_>, request: &ClassicInsertEntryRequest, record: &mut Record) -> Result<()> {
        let (dir_handle, handle) = (request.at.dir, request.capability.handle);
        let dir = self.classic_directory(request.at.dir)?;
        check_name(&request.name)?;
        self.check_directory(&request.who, dir_handle, dir, true)?;
        self.transactions.locks.check_write_name(dir_handle, &request.name)?;
        if self.entry(dir_handle, &request.name).is_some() {
            return Err(Status::Exists);
        }
        let inode = match &request.datafile {
            None => Inode { nlink: 1, ..self.unnamed(cx, &request.capability)?.changed(cx.now) },
            Some(layout) => {
                request.capability.verify(cx.key, handle, cx.client, Rights::MANAGE, cx.now)?;
                let is_ours = handle.server() == self.settings.server && handle.counter() < self.next_counter;
                if !is_ours || self.peek(handle).is_some() || !self.hints(dir_handle).no_metafile {
                    return Err(Status::Invalid);
                }
                let inode = Inode::new_without_metafile(Layout { width: 1, ..self.classic_layout(layout)? });
                Inode { flags: inode.flags.with(FLAGS), project: self.hints(dir_handle).project, ..inode }
            }
        };
        record.changes.push(Change::PutInode { handle, inode });
        record.changes.push(Change::PutEntry { dir: dir_handle, name: request.name.clone(), handle, kind: FileKind::File });
        record.changes.push(self.touch(dir_handle, dir, cx.now));
        Ok(())
    }

    /// Removal, step 1.
    ///
    /// # Errors
    /// [`Status::NotFound`], [`Status::NotSupported`] (it was not made so),
    /// [`Status::AccessDenied`], [`Status::NotPermitted`], [`Status::Busy`], and as
    /// [`State::directory`].
    pub fn prepare_classic_remove_entry(
        &self,
        cx: &RequestContext<'_>,
        request: &ClassicRemoveEntryRequest,
        record: &mut Record,
    ) -> Result<ClassicRemoveEntryReply> {
        let dir = self.classic_directory(request.at.dir)?;
        check_name(&request.name)?;
        self.check_directory(&request.who, request.at.dir, dir, true)?;
        self.transactions.locks.check_write_name(request.at.dir, &request.name)?;
        let (handle, _) = self.entry(request.at.dir, &request.name).ok_or(Status::NotFound)?;
        let inode = self.inode(handle)?;
        self.check_writable(handle, inode)?;
        crate::access::check_owner(&request.who, inode, must_own_entries(&request.who, dir))?;
        if !inode.flags.has(InodeFlags::CLASSIC) || inode.nlink != 1 || self.opens.is_open(handle) {
            return Err(Status::NotSupported);
        }
        record.changes.push(Change::DeleteEntry { dir: request.at.dir, name: request.name.clone() });
        record.changes.push(match inode.has_no_metafile() {
            true => Change::DeleteInode { handle },
            false => Change::PutInode { handle, inode: Inode { nlink: 0, ..inode.changed(cx.now) } },
        });
        record.changes.push(self.touch(request.at.dir, dir, cx.now));
        let datafile = inode.has_no_metafile().then_some(inode.layout);
        Ok(ClassicRemoveEntryReply { capability: cx.capability(handle, Rights::MANAGE), datafile })
    }

    /// Removal, step 4.
    ///
    /// # Errors
    /// [`Status::CapabilityRefused`], [`Status::Invalid`] (no such metafile), and as
    /// [`State::inode`].
    pub fn prepare_classic_remove(
        &self,
        cx: &RequestContext<'_>,
        request: &ClassicRemoveMetafileRequest,
        record: &mut Record,
    ) -> Result<()> {
        self.unnamed(cx, &request.capability)?;
        record.changes.push(Change::DeleteInode { handle: request.capability.handle });
        Ok(())
    }

    fn classic_layout(&self, layout: &Layout) -> Result<Layout> {
        weft_layout::check(layout)?;
        let place = &self.placement;
        let fits = layout.generation == place.generation && layout.first < place.data_servers && layout.width <= place.data_servers;
        if fits { Ok(*layout) } else { Err(Status::Invalid) }
    }
}
