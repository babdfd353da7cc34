//! Mkdir: a name here, a directory here or on another server.

use bytes::Bytes;
use weft_base::{Attr, EXECUTE, FileKind, Handle, Layout, MODE_SETGID, ROOT_HANDLE, Result, ServerId, Status, WallTime, check_name};
use weft_layout::{HintName, Hints, directory_server};
use weft_wire::ops::{FileState, MkdirRequest, PartitionMap, TxPart};

use crate::{Change, Inode, RequestContext, ServerPart, State};

impl State {
    /// The change that makes a new file system: its root directory.
    pub fn format(mode: u32, (uid, gid): (u32, u32), layout: Layout, now: WallTime) -> Change {
        Change::PutInode { handle: ROOT_HANDLE, inode: Inode::new_directory(ROOT_HANDLE, mode, uid, gid, layout, now) }
    }

    /// The parts of a new directory: its name here, itself where its place is.
    ///
    /// # Errors
    /// [`Status::Exists`], [`Status::AccessDenied`], [`Status::NameTooLong`], [`Status::Invalid`],
    /// [`Status::Busy`], and as [`State::directory`].
    pub fn plan_mkdir(&self, request: &MkdirRequest) -> Result<Vec<ServerPart>> {
        let (dir, who) = (self.directory(&request.at, &request.name)?, &request.who);
        check_name(&request.name)?;
        self.may_access(who, request.at.dir, dir, EXECUTE)?;
        self.transactions.locks.check_write_name(request.at.dir, &request.name)?;
        if self.entry(request.at.dir, &request.name).is_some() {
            return Err(Status::Exists);
        }
        self.check_directory(who, request.at.dir, dir, true)?;
        let inherits_group = dir.mode & MODE_SETGID != 0;
        let mode = self.mode_in(request.at.dir, request.mode) | if inherits_group { MODE_SETGID } else { 0 };
        let (uid, gid) = (who.uid, if inherits_group { dir.gid } else { who.gid });
        let layout = asked_layout(dir.layout, request.stripe_bytes, request.stripe_width);
        weft_layout::check(&layout)?;
        let make = TxPart::MakeDirectory { parent: request.at.dir, mode, uid, gid, layout };
        let server = directory_server(request.at.dir, self.hash(&request.name), &self.placement.meta);
        let (dir, name) = (request.at.dir, request.name.clone());
        let insert = TxPart::InsertEntry { dir, name, handle: Handle(0), kind: FileKind::Directory, replaces: None };
        let mut parts = vec![ServerPart { server: self.settings().server, part: insert }, ServerPart { server, part: make }];
        let mut hints = self.inherited_hints(request.at.dir, request.stripe_bytes != 0, request.stripe_width != 0);
        hints.extend(self.inherited_acls(request.at.dir, FileKind::Directory, mode));
        if let Some(map) = self.map_of_new(server, &known_hints(&hints)) {
            let part = |server: ServerId| {
                let (map, hints) = (map.clone(), hints.clone());
                ServerPart { server, part: TxPart::MakePartition { dir: Handle(0), map, mode, uid, gid, layout, hints } }
            };
            parts.extend(map.servers().into_iter().map(part));
        }
        if !hints.is_empty() {
            parts.insert(2, ServerPart { server, part: TxPart::InheritHints { hints } });
        }
        Ok(parts)
    }

    /// The hints of a new directory: those of the directory that it is made in, but what the
    /// request says itself, and `no_metafile` that is off (Kuhn 2007, section 4.2.4).
    pub(super) fn inherited_hints(&self, dir: Handle, says_stripe: bool, says_width: bool) -> Vec<(Bytes, Bytes)> {
        let says = |name: HintName| match name {
            HintName::StripeSize | HintName::DistParams => says_stripe,
            HintName::NumDfiles | HintName::DistName => says_width,
            HintName::NoMetafile => !self.hints(dir).no_metafile,
            HintName::Presplit | HintName::InlineLimit | HintName::Project => false,
        };
        let hints = self.hint_values(dir).filter(|(name, _)| !says(*name));
        hints.map(|(name, value)| (Bytes::from_static(name.attribute().as_bytes()), value.clone())).collect()
    }

    /// The state of a directory that was made by this part, with these hints and this map if it is
    /// split, here or elsewhere.
    ///
    /// # Errors
    /// [`Status::Invalid`] for any other part.
    pub fn made_state(
        cx: &RequestContext<'_>,
        handle: Handle,
        make: &TxPart,
        hints: &[(Bytes, Bytes)],
        map: Option<&PartitionMap>,
    ) -> Result<FileState> {
        let TxPart::MakeDirectory { parent, mode, uid, gid, layout } = make else { return Err(Status::Invalid) };
        let mut inode = Inode::new_directory(*parent, *mode, *uid, *gid, *layout, cx.now);
        let known = known_hints(hints);
        (inode.layout, inode.project) = (known.apply(inode.layout), known.project);
        let attr = Attr { bare: hints.is_empty(), ..inode.directory_attr(handle, 0, 0) };
        let partitions = Some(map.cloned().unwrap_or_else(|| PartitionMap::whole(handle.server())));
        Ok(FileState { attr, ask_data: None, partitions })
    }
}

/// The layout of a directory, but for what a request asks for: 0 asks for nothing.
pub(super) fn asked_layout(of_dir: Layout, stripe_bytes: u32, stripe_width: u16) -> Layout {
    Layout {
        stripe_bytes: if stripe_bytes != 0 { stripe_bytes } else { of_dir.stripe_bytes },
        width: if stripe_width != 0 { stripe_width } else { of_dir.width },
        ..of_dir
    }
}

/// What these attributes say.
pub(crate) fn known_hints(values: &[(Bytes, Bytes)]) -> Hints {
    let mut hints = Hints::default();
    for (name, value) in values {
        if let Ok(Some(name)) = HintName::of_attribute(name) {
            // They were checked when they were set.
            let _ = hints.set(name, value);
        }
    }
    hints
}
