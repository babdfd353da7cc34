//! Create: a file, symlink, pipe, socket or device, opened at once if that is wanted.

use weft_base::{Attr, DataTime, EXECUTE, FileKind, Handle, Layout, MODE_ACL, MODE_SETGID, MODE_UNNAMED, Result, Status, check_name};
use weft_layout::{Strips, first_data_server};
use weft_wire::Rights;
use weft_wire::ops::{CreateReply, CreateRequest, DirChange};

use super::delegate::HoldAsked;
use super::mkdir::asked_layout;
use super::open::{check_out, written_with};
use crate::{Change, Inode, OpenChange, Record, RequestContext, State};

/// Longest target of a symlink in bytes (`PATH_MAX` of Linux without its NUL).
const TARGET_BYTES_MAX: usize = 4095;

impl State {
    /// Makes an object, or opens the file that has the name.
    ///
    /// # Errors
    /// [`Status::Exists`], [`Status::AccessDenied`], [`Status::NameTooLong`], [`Status::Invalid`]
    /// (a directory, an impossible layout or target, rights that nobody has), [`Status::Sealed`],
    /// [`Status::NotSupported`] (no name and no metafile), [`Status::Busy`], and as
    /// [`State::directory`].
    pub fn prepare_create(&self, cx: &RequestContext<'_>, request: &CreateRequest, record: &mut Record) -> Result<CreateReply> {
        let dir_handle = request.at.dir;
        let dir = self.directory(&request.at, &request.name)?;
        check_name(&request.name)?;
        if !Rights::OF_OPENS.contains(request.open) {
            return Err(Status::Invalid);
        }
        self.may_access(&request.who, dir_handle, dir, EXECUTE)?;
        let is_unnamed = request.unnamed == Some(true);
        if is_unnamed {
            self.check_unnamed(request)?;
        } else {
            self.transactions.locks.check_write_name(dir_handle, &request.name)?;
            if let Some((handle, kind)) = self.entry(dir_handle, &request.name) {
                return self.create_existing(cx, request, handle, kind, record);
            }
        }
        self.check_directory(&request.who, dir_handle, dir, true)?;
        let (mut inode, strips) = self.new_inode(cx, request, dir)?;
        self.check_allowance(inode.charged())?;
        if is_unnamed {
            (inode.nlink, inode.mode) = (0, inode.mode | MODE_UNNAMED);
        }
        let content = if is_unnamed { None } else { self.take_content(request, &mut inode)? };
        let delay_bytes = if is_unnamed || content.is_some() { None } else { self.delay_bytes(request, &inode) };
        let handle = self.next_handle();
        let opened = request.open != Rights::default() && request.kind == FileKind::File && content.is_none();
        if opened {
            let client = cx.client;
            let rights = if delay_bytes.is_some() { request.open.with(Rights::DELAY) } else { request.open };
            if delay_bytes.is_some() {
                inode.flags = inode.flags.delayed();
            } else if rights.contains(Rights::WRITE) {
                inode.flags = written_with(inode.flags, rights);
            }
            record.open = Some(OpenChange::Open { client, handle, rights, sequence: request.open_sequence });
        }
        let has_acl = inode.mode & MODE_ACL != 0;
        if has_acl {
            self.put_inherited_acls(dir_handle, handle, &inode, record)?;
        }
        let (capability, ceiling, reserves) = match opened {
            true => {
                let (capability, ceiling, change) = self.grant(cx, (handle, &inode), request.open, None)?;
                (Some(capability), ceiling, change)
            }
            false => (None, None, None),
        };
        let asked = HoldAsked::of(request.can_hold.filter(|_| !is_unnamed), request.can_delay);
        let delegation = asked.and_then(|asked| self.delegate(cx, dir_handle, asked, record));
        let reply = CreateReply {
            created: true,
            handle,
            kind: request.kind,
            // Nobody else knows the object yet.
            state: Some(weft_wire::ops::FileState {
                attr: Attr { bare: !has_acl, ..inode.attr(handle) },
                ask_data: None,
                partitions: None,
            }),
            capability,
            delays_attributes: delay_bytes.is_some().then_some(true),
            closes_with_attributes: (delay_bytes.is_some() || delegation.is_some()).then_some(true),
            delay_bytes,
            dir: if is_unnamed { DirChange::NONE } else { DirChange { version: dir.version + 1, time: cx.now } },
            ceiling,
            // One that is made in it would be split.
            tells_directories: (delegation.is_some() && self.makes_plain_directories(dir_handle)).then_some(true),
            tells_removals: delegation.is_some().then_some(true),
            delegation,
        };
        record.changes.push(Change::PutInode { handle, inode });
        record.changes.extend(reserves);
        record.changes.extend(content.map(|content| Change::PutContent { handle, content }));
        if request.kind == FileKind::Symlink {
            record.changes.push(Change::PutTarget { handle, target: request.target.clone() });
        }
        if let Some(strips) = strips {
            record.changes.push(Change::PutTarget { handle, target: strips.to_string().into() });
        }
        if !is_unnamed {
            record.changes.push(Change::PutEntry { dir: dir_handle, name: request.name.clone(), handle, kind: request.kind });
            record.changes.push(self.touch(dir_handle, dir, cx.now));
        }
        Ok(reply)
    }

    /// Checks that a file can be made without a name. One without a metafile is its name.
    fn check_unnamed(&self, request: &CreateRequest) -> Result<()> {
        if request.kind != FileKind::File || !request.open.contains(Rights::WRITE) {
            return Err(Status::Invalid);
        }
        if self.hints(request.at.dir).no_metafile { Err(Status::NotSupported) } else { Ok(()) }
    }

    /// The inode and, of a file with the distribution `varstrip`, its strips.
    fn new_inode(&self, cx: &RequestContext<'_>, request: &CreateRequest, dir: &Inode) -> Result<(Inode, Option<Strips>)> {
        let who = &request.who;
        let hints = self.hints(request.at.dir);
        let mut layout = self.file_layout(request, hints.apply(dir.layout))?;
        if hints.no_metafile && request.kind == FileKind::File {
            let inode = Inode::new_without_metafile(Layout { width: 1, ..layout });
            return Ok((Inode { project: hints.project, ..inode }, None));
        }
        let strips = match &request.strips {
            Some(text) => Some(std::str::from_utf8(text).ok().and_then(|text| Strips::parse(text).ok()).ok_or(Status::Invalid)?),
            None if request.stripe_bytes != 0 || request.stripe_width != 0 => None,
            None => hints.strips().cloned(),
        };
        let strips = strips.filter(|_| request.kind == FileKind::File);
        if let Some(strips) = &strips {
            layout = self.varstrip_layout(layout, strips)?;
        }
        let inherits_group = dir.mode & MODE_SETGID != 0;
        let gid = if inherits_group { dir.gid } else { who.gid };
        let mut mode = self.mode_in(request.at.dir, request.mode);
        // Nobody gets a set-group-id program of a group that he is not in; a kernel knows of more
        // groups of his, and has looked.
        let may_set = who.uid == 0 || who.checked_by_kernel || who.in_group(gid);
        if mode & (MODE_SETGID | 0o010) == MODE_SETGID | 0o010 && !may_set {
            mode &= !MODE_SETGID;
        }
        let mut inode = Inode { project: hints.project, ..Inode::new(request.kind, mode, who.uid, gid, layout, cx.now) };
        match request.kind {
            FileKind::Directory => return Err(Status::Invalid),
            FileKind::Symlink => {
                if request.target.is_empty() || request.target.contains(&0) {
                    return Err(Status::Invalid);
                }
                if request.target.len() > TARGET_BYTES_MAX {
                    return Err(Status::NameTooLong);
                }
                inode.size = request.target.len() as u64;
                inode.mode = 0o777;
            }
            FileKind::CharDevice | FileKind::BlockDevice => {
                // The kernel of a mount has asked for the capability already.
                if who.uid != 0 && !who.checked_by_kernel {
                    return Err(Status::NotPermitted);
                }
                inode.of_kind = request.rdev.into();
            }
            FileKind::File => {
                inode.atime = request.atime.unwrap_or(inode.atime);
                if let Some(mtime) = request.mtime {
                    (inode.mtime, inode.mtime_epoch) = (mtime, DataTime::epoch_of_setting(0));
                }
            }
            FileKind::Fifo | FileKind::Socket => {}
        }
        Ok((inode, strips))
    }

    /// Strips name data servers by their positions in the generation.
    fn varstrip_layout(&self, layout: Layout, strips: &Strips) -> Result<Layout> {
        if strips.width() > self.placement.data_servers {
            return Err(Status::Invalid);
        }
        Ok(Layout { width: strips.width(), first: 0, generation: layout.generation | Layout::VARSTRIP, ..layout })
    }

    /// What the directory says, unless the request says otherwise.
    fn file_layout(&self, request: &CreateRequest, of_dir: Layout) -> Result<Layout> {
        let place = &self.placement;
        if place.generation == 0 {
            return Err(Status::NotReady);
        }
        let mut layout = asked_layout(of_dir, request.stripe_bytes, request.stripe_width);
        layout.width = layout.width.min(place.data_servers).max(1);
        layout.first = first_data_server(request.at.dir, self.hash(&request.name), place.data_servers.into());
        layout.generation = place.generation;
        weft_layout::check(&layout)?;
        Ok(layout)
    }

    fn create_existing(
        &self,
        cx: &RequestContext<'_>,
        request: &CreateRequest,
        handle: Handle,
        kind: FileKind,
        record: &mut Record,
    ) -> Result<CreateReply> {
        if request.exclusive {
            return Err(Status::Exists);
        }
        let (state, capability, dir) = (None, None, DirChange::NONE);
        let (delay_bytes, ceiling, delays_attributes, delegation) = Default::default();
        let (closes_with_attributes, tells_directories, tells_removals) = Default::default();
        let mut reply = CreateReply {
            created: false,
            handle,
            kind,
            state,
            capability,
            dir,
            delay_bytes,
            ceiling,
            delays_attributes,
            delegation,
            closes_with_attributes,
            tells_directories,
            tells_removals,
        };
        let Some(inode) = self.peek(handle) else { return Ok(reply) };
        if let Some(changed) = self.replace_content(cx, request, handle, inode, record)? {
            reply.state = Some(self.file_state(cx, handle, &changed));
            record.changes.push(Change::PutInode { handle, inode: changed });
            record.changes.extend(request.content.clone().map(|content| Change::PutContent { handle, content }));
        } else if kind == FileKind::File && request.open != Rights::default() && !(request.cuts == Some(true) && inode.is_inline()) {
            let open = self.prepare_open_inode(cx, handle, inode, request.open, request.open_sequence, &request.who, None, record)?;
            check_out(inode, request.open, false)?;
            reply.state = Some(open.state);
            (reply.capability, reply.ceiling) = (Some(open.capability), open.ceiling);
        } else {
            self.check_tellable(cx.client, handle, inode)?;
            reply.state = Some(self.file_state(cx, handle, inode));
        }
        Ok(reply)
    }
}
