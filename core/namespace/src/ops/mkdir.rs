//! Mkdir: a name here, a directory here or on another server.

use bytes::Bytes;
use weft_base::{Attr, FileKind, Handle, Layout, Result, Status, check_name};
use weft_layout::{HintName, Hints, directory_server};
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
        let mut parts = vec![ServerPart { server: self.settings().server, part: insert }, ServerPart { server, part: make }];
        let hints = self.inherited_hints(request);
        if !hints.is_empty() {
            parts.push(ServerPart { server, part: TxPart::InheritHints { hints } });
        }
        Ok(parts)
    }

    /// The hints of a new directory: those of the directory that it is made in, but what the
    /// request says itself, and what is off (Kuhn 2007, section 4.2.4).
    fn inherited_hints(&self, request: &MkdirRequest) -> Vec<(Bytes, Bytes)> {
        let says = |name: HintName| match name {
            HintName::StripeSize | HintName::DistParams => request.stripe_bytes != 0,
            HintName::NumDfiles | HintName::DistName => request.stripe_width != 0,
            HintName::NoMetafile => !self.hints(request.at.dir).no_metafile,
        };
        let hints = self.hint_values(request.at.dir).filter(|(name, _)| !says(*name));
        hints.map(|(name, value)| (Bytes::from_static(name.attribute().as_bytes()), value.clone())).collect()
    }

    /// The state of a directory that was made by this part, with these hints, here or elsewhere.
    ///
    /// # Errors
    /// [`Status::Invalid`] for any other part.
    pub fn made_state(&self, cx: &RequestContext<'_>, handle: Handle, make: &TxPart, hints: &[(Bytes, Bytes)]) -> Result<FileState> {
        let TxPart::MakeDirectory { parent, mode, uid, gid, layout } = make else { return Err(Status::Invalid) };
        let mut inode = Inode::new_directory(*parent, *mode, *uid, *gid, *layout, cx.now);
        let mut known = Hints::default();
        for (name, value) in hints {
            if let Ok(Some(name)) = HintName::of_attribute(name) {
                // They were checked when they were set.
                let _ = known.set(name, value);
            }
        }
        inode.layout = known.apply(inode.layout);
        let attr = Attr { bare: hints.is_empty(), ..inode.directory_attr(handle, 0, 0) };
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
