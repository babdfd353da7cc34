//! Mkdir: a name here, a directory here or on another server.

use weft_base::{Attr, FileKind, Handle, Layout, Result, Status, check_name};
use weft_layout::directory_server;
use weft_wire::ops::{FileState, MkdirRequest, TxPart};

use crate::{EXECUTE, Inode, MODE_SETGID, RequestContext, ServerPart, State, WRITE, may_access};

impl State {
    /// The parts of a new directory: its name here, itself where its place is.
    ///
    /// # Errors
    /// [`Status::Exists`], [`Status::AccessDenied`], [`Status::NameTooLong`], [`Status::Invalid`],
    /// [`Status::Busy`], and as [`State::directory`].
    pub fn plan_mkdir(&self, request: &MkdirRequest) -> Result<Vec<ServerPart>> {
        let (dir, who) = (self.directory(&request.at)?, &request.who);
        check_name(&request.name)?;
        may_access(who, dir, EXECUTE)?;
        self.transactions.locks.check_write_name(request.at.dir, &request.name)?;
        if self.entry(request.at.dir, &request.name).is_some() {
            return Err(Status::Exists);
        }
        may_access(who, dir, WRITE)?;
        let inherits_group = dir.mode & MODE_SETGID != 0;
        let make = TxPart::MakeDirectory {
            parent: request.at.dir,
            mode: if inherits_group { request.mode | MODE_SETGID } else { request.mode },
            uid: who.uid,
            gid: if inherits_group { dir.gid } else { who.gid },
            layout: self.directory_layout(request, dir)?,
        };
        let server = directory_server(request.at.dir, self.hash(&request.name), &self.placement.meta);
        let (dir, name) = (request.at.dir, request.name.clone());
        let insert = TxPart::InsertEntry { dir, name, handle: Handle(0), kind: FileKind::Directory, replaces: None };
        Ok(vec![ServerPart { server: self.settings().server, part: insert }, ServerPart { server, part: make }])
    }

    /// The state of a directory that was made by this part, here or elsewhere.
    ///
    /// # Errors
    /// [`Status::Invalid`] for any other part.
    pub fn made_state(&self, cx: &RequestContext<'_>, handle: Handle, make: &TxPart) -> Result<FileState> {
        let TxPart::MakeDirectory { parent, mode, uid, gid, layout } = make else { return Err(Status::Invalid) };
        let inode = Inode::new_directory(*parent, *mode, *uid, *gid, *layout, cx.now);
        let attr = Attr { bare: true, ..inode.directory_attr(handle, 0, 0) };
        let partitions = Some(self.partitions(handle));
        Ok(FileState { attr, ask_data: None, partitions })
    }

    fn directory_layout(&self, request: &MkdirRequest, dir: &Inode) -> Result<Layout> {
        let mut layout = dir.layout;
        if request.stripe_bytes != 0 {
            layout.stripe_bytes = request.stripe_bytes;
        }
        if request.stripe_width != 0 {
            layout.width = request.stripe_width;
        }
        weft_layout::check(&layout)?;
        Ok(layout)
    }
}
