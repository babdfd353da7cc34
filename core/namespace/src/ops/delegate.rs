//! Delegated directories. Who makes or removes a name in a directory of which nobody else knows
//! anything ([`HoldAsked`]) may make and remove more in it without asking, and tells of them later,
//! many at once. What is told of the directory meanwhile only its client is told.
//!
//! ```text
//!    create, mkdir,
//!           unlink ──▶ delegated ── given back ──────────────────▶ like any directory
//!                          │  │                                          ▲
//!  somebody else asks, and │  └ its client hears nothing, or is lost ────┤
//!  waits (`Busy`)          ▼                                             │
//!                    asked back ── told of all files, given back ────────┘
//! ```
//! A client that hears no notices any more loses the directory, and with it the files that it has
//! not told of: others may have looked.

use weft_base::{ClientId, FileKind, Handle, Layout, MODE_MASK, MODE_SETGID, Result, Status, check_name};
use weft_wire::ops::{DelayedAttributes, Delegation, DirTarget, HANDLES_FEW, HANDLES_GIVEN, HandleRange, NewAttributes, NewFile, NewFiles};
use weft_wire::{Capability, Rights};

use super::mkdir::known_hints;
use super::open::written_with;
use super::unlink::removal;
use crate::access::{must_own_entries, owns};
use crate::tx::put_xattr;
use crate::{Change, Inode, InodeFlags, OpenChange, Record, RequestContext, State};

/// Directories that are delegated to one client at most.
const DIRECTORIES_MAX: usize = 2048;

/// What a client says that asks for a directory in which it makes or removes a name.
#[derive(Clone, Copy, Debug)]
pub struct HoldAsked {
    /// So many handles it has left for files of this server.
    pub handles_left: u32,
    /// It can keep what is written to them.
    pub can_delay: bool,
}

impl HoldAsked {
    /// As a request says it.
    pub fn of(can_hold: Option<u32>, can_delay: Option<bool>) -> Option<HoldAsked> {
        can_hold.map(|handles_left| HoldAsked { handles_left, can_delay: can_delay == Some(true) })
    }
}

impl State {
    /// True if some directory is delegated.
    pub fn has_delegations(&self) -> bool {
        !self.delegations().is_empty()
    }

    /// True if whoever makes a file in the directory meets no limit here.
    pub fn is_unlimited(&self, dir: Handle) -> bool {
        self.accounts().is_unlimited(self.hints(dir).project)
    }

    /// The directories that are delegated to a client.
    pub fn delegated_to(&self, client: ClientId) -> Vec<Handle> {
        self.delegations().of(client).collect()
    }

    /// Delegates a directory in which a name is being made or removed, if it can be.
    pub fn delegate(&self, cx: &RequestContext<'_>, dir: Handle, asked: HoldAsked, record: &mut Record) -> Option<Delegation> {
        let hints = self.hints(dir);
        // Its client makes files as mode bits and the striping of the directory say.
        let is_usual = !hints.no_metafile && hints.strips().is_none() && self.default_acl(dir).is_none();
        let is_plain = is_usual && dir.server() == self.settings().server && !self.is_split(dir);
        let is_free = self.is_settled(dir) && self.accounts().is_unlimited(hints.project);
        let has_room = self.delegations().count(cx.client) < DIRECTORIES_MAX;
        let inode = self.peek(dir).filter(|_| is_plain && is_free && has_room)?;
        let stripe_bytes = hints.apply(inode.layout).stripe_bytes;
        let wanted_bytes = if asked.can_delay { self.inline_limit(dir).min(stripe_bytes) } else { 0 };
        let delay_bytes = match self.has_delay_room() {
            true => wanted_bytes,
            // Soon there is: the next create asks again.
            false if wanted_bytes > 0 && self.may_grow_contents() => return None,
            false => 0,
        };
        record.changes.push(Change::PutDelegation { dir, client: cx.client });
        let handles = (asked.handles_left < HANDLES_FEW).then(|| self.prepare_handles(cx.client, record));
        Some(Delegation { handles, delay_bytes })
    }

    /// True if directories that are made in this one are as it is, so that they can be made without
    /// asking if it is delegated.
    pub fn makes_plain_directories(&self, dir: Handle) -> bool {
        self.hints(dir).presplit.is_none()
    }

    /// Gives a client handles for its files. The record may make one object more.
    pub fn prepare_handles(&self, client: ClientId, record: &mut Record) -> HandleRange {
        let first = self.next_counter + 1;
        record.changes.push(Change::PutHandles { client, first, end: first + u64::from(HANDLES_GIVEN) });
        HandleRange { first: Handle::new(self.settings().server, first), count: HANDLES_GIVEN }
    }

    /// True if a client other than this one makes files in the directory without asking. It is
    /// asked for it back.
    pub fn is_delegated_elsewhere(&self, client: Option<ClientId>, dir: Handle) -> bool {
        let is_elsewhere = self.delegations().holder(dir).is_some_and(|holder| Some(holder) != client);
        if is_elsewhere {
            self.delegations().ask_back(dir);
        }
        is_elsewhere
    }

    /// True if an object that is not known here may be a file that another client has made without
    /// asking: its handle may have come from there on some other way. All its directories are asked
    /// back.
    pub fn is_untold_elsewhere(&self, client: Option<ClientId>, handle: Handle) -> bool {
        if self.delegations().is_empty() || handle.server() != self.settings().server || self.peek(handle).is_some() {
            return false;
        }
        let Some(holder) = self.delegations().given_to(handle).filter(|holder| Some(*holder) != client) else { return false };
        let directories = self.delegated_to(holder);
        directories.iter().for_each(|dir| self.delegations().ask_back(*dir));
        !directories.is_empty()
    }

    /// Delegated directories that somebody has asked for since this was asked last; each with its
    /// client.
    pub fn take_delegations_asked_back(&self) -> Vec<(ClientId, Handle)> {
        let asked = self.delegations().take_asked_back();
        asked.into_iter().filter_map(|dir| Some((self.delegations().holder(dir)?, dir))).collect()
    }

    /// A directory is not delegated to this client any more.
    pub fn prepare_end_of_delegation(&self, client: ClientId, dir: Handle, record: &mut Record) {
        if self.delegations().holder(dir) == Some(client) {
            record.changes.push(Change::DeleteDelegation { dir });
        }
    }

    /// Takes in a file or a directory that a client has made in a delegated directory; one that is
    /// there already it was told of before.
    ///
    /// # Errors
    /// [`Status::CapabilityRefused`]: the directory is not delegated to the client, or the handle
    /// is not one of those that it was given. [`Status::Busy`], and why it could not have made it.
    pub fn prepare_absorbed(
        &self,
        cx: &RequestContext<'_>,
        group: &NewFiles,
        file: &NewFile,
        kind: FileKind,
        record: &mut Record,
    ) -> Result<()> {
        let (client, handle, dir_handle, who) = (cx.client, file.handle, group.dir, &group.who);
        let dir = self.known_directory(&DirTarget { dir: dir_handle, map_epoch: 0 })?;
        check_name(&file.name)?;
        let is_given = self.delegations().is_given(client, handle);
        let before = self.entry(dir_handle, &file.name);
        let is_told_again = is_given && before == Some((handle, kind));
        if !is_told_again {
            if self.delegations().holder(dir_handle) != Some(client) || !is_given || self.peek(handle).is_some() {
                return Err(Status::CapabilityRefused);
            }
            self.transactions.locks.check_write_name(dir_handle, &file.name)?;
            if before.is_some() {
                return Err(Status::Exists);
            }
            self.check_directory(who, dir_handle, dir, true)?;
            match kind {
                FileKind::Directory => self.take_in_directory(cx, dir, group, file, record)?,
                _ => self.take_in_file(cx, dir, group, file, record)?,
            }
            record.changes.push(Change::PutEntry { dir: dir_handle, name: file.name.clone(), handle, kind });
            record.changes.push(self.touch(dir_handle, dir, file.named_at.min(cx.now)));
        }
        if kind == FileKind::File {
            record.open = Some(OpenChange::Open { client, handle, rights: rights_of_new(file), sequence: file.open_sequence });
        }
        Ok(())
    }

    /// Takes in that a client has removed a name in a delegated directory, of a file or of an empty
    /// directory that is delegated to it, too; if the name leads elsewhere it was told of that
    /// before.
    ///
    /// # Errors
    /// [`Status::CapabilityRefused`]: a directory is not delegated to the client. [`Status::Busy`],
    /// and why it could not have removed the name.
    pub fn prepare_absorbed_removal(&self, cx: &RequestContext<'_>, group: &NewFiles, file: &NewFile, record: &mut Record) -> Result<()> {
        let (dir_handle, who) = (group.dir, &group.who);
        let dir = match self.known_directory(&DirTarget { dir: dir_handle, map_epoch: 0 }) {
            // Removed since.
            Err(Status::NotFound) => return Ok(()),
            outcome => outcome?,
        };
        check_name(&file.name)?;
        let Some((handle, kind)) = self.entry(dir_handle, &file.name).filter(|(handle, _)| *handle == file.handle) else {
            return Ok(());
        };
        let is_held = |dir| self.delegations().holder(dir) == Some(cx.client);
        let is_directory = kind == FileKind::Directory;
        if !is_held(dir_handle) || is_directory && !is_held(handle) || handle.server() != self.settings().server {
            return Err(Status::CapabilityRefused);
        }
        let parts = removal(dir_handle, file.name.clone(), (handle, kind), must_own_entries(who, dir));
        self.prepare_local(parts.into(), who, file.named_at.min(cx.now), record).map(drop)
    }

    fn take_in_file(&self, cx: &RequestContext<'_>, dir: &Inode, group: &NewFiles, file: &NewFile, record: &mut Record) -> Result<()> {
        let delays_nothing = file.delays && !file.open.contains(Rights::WRITE);
        if file.mode & !MODE_MASK != 0 || !Rights::OF_OPENS.contains(file.open) || file.open == Rights::default() || delays_nothing {
            return Err(Status::Invalid);
        }
        self.check_layout_told(&file.layout)?;
        let gid = if dir.mode & MODE_SETGID != 0 { dir.gid } else { group.who.gid };
        let inode = Inode::new(FileKind::File, file.mode, group.who.uid, gid, file.layout, file.made_at.min(cx.now));
        let mut inode = Inode { project: self.hints(group.dir).project, ..inode };
        if file.delays {
            inode.flags = inode.flags.with(InodeFlags::DELAYED);
        } else if file.open.contains(Rights::WRITE) {
            inode.flags = written_with(inode.flags, rights_of_new(file));
        }
        record.changes.push(Change::PutInode { handle: file.handle, inode });
        Ok(())
    }

    /// The new directory is its client's as the one that it is made in.
    fn take_in_directory(&self, cx: &RequestContext<'_>, dir: &Inode, group: &NewFiles, file: &NewFile, record: &mut Record) -> Result<()> {
        let hints = self.inherited_hints(group.dir, false, false);
        let known = known_hints(&hints);
        if file.mode & !DelayedAttributes::PERMISSIONS != 0 || self.map_of_new(self.settings().server, &known).is_some() {
            return Err(Status::Invalid);
        }
        let inherits_group = dir.mode & MODE_SETGID != 0;
        let mode = file.mode | if inherits_group { MODE_SETGID } else { 0 };
        let gid = if inherits_group { dir.gid } else { group.who.gid };
        let inode = Inode::new_directory(group.dir, mode, group.who.uid, gid, dir.layout, file.made_at.min(cx.now));
        let (handle, inode) = (file.handle, Inode { project: known.project, ..inode });
        record.changes.push(Change::PutInode { handle, inode });
        record.changes.extend(hints.iter().map(|(name, value)| put_xattr(handle, name, value)));
        record.changes.push(Change::PutDelegation { dir: handle, client: cx.client });
        Ok(())
    }

    /// Takes in what a client has set of a directory that is delegated to it; what was told before
    /// is left as it is.
    ///
    /// # Errors
    /// [`Status::CapabilityRefused`]: the directory is not delegated to the client.
    /// [`Status::Busy`], and why it could not have set it.
    pub fn prepare_absorbed_attributes(&self, cx: &RequestContext<'_>, told: &NewAttributes, record: &mut Record) -> Result<()> {
        let inode = match self.known_directory(&DirTarget { dir: told.dir, map_epoch: 0 }) {
            // Removed since.
            Err(Status::NotFound) => return Ok(()),
            outcome => outcome?,
        };
        if self.delegations().holder(told.dir) != Some(cx.client) {
            return Err(Status::CapabilityRefused);
        }
        if inode.version >= told.version {
            return Ok(());
        }
        self.check_writable(told.dir, inode)?;
        inode.check_unsealed()?;
        if !owns(&told.who, inode) || !DelayedAttributes::may_set(inode.mode, told.mode) || inode.has_no_metafile() {
            return Err(Status::NotPermitted);
        }
        let mut changed = inode.changed(told.at.min(cx.now));
        changed.mode = told.mode.map_or(inode.mode, |mode| inode.mode & !DelayedAttributes::PERMISSIONS | mode);
        changed.atime = told.atime.unwrap_or(inode.atime);
        changed.mtime = told.mtime.unwrap_or(inode.mtime);
        record.changes.push(Change::PutInode { handle: told.dir, inode: changed });
        Ok(())
    }

    /// What data servers want to see of a file that its client has told of, for what it has open;
    /// of one whose owner is limited an open asks for that.
    pub fn capability_of_new(&self, cx: &RequestContext<'_>, handle: Handle) -> Option<Capability> {
        let (inode, (rights, _)) = (self.peek(handle)?, self.opens.of(cx.client, handle)?);
        // Told once more it may be sealed by now, or beside its inode: an open looks at that.
        let is_kept = inode.flags.is_delayed() && rights.contains(Rights::DELAY);
        (is_kept && self.bytes_left(inode.charged()).is_none()).then(|| cx.capability(handle, rights))
    }

    /// Its client has chosen where the bytes of a file lie, perhaps among the data servers of an
    /// older generation, or of one that is not known here yet.
    fn check_layout_told(&self, layout: &Layout) -> Result<()> {
        weft_layout::check(layout)?;
        let place = self.placement();
        if layout.generation > place.generation {
            // It knows of servers that have joined, and this server will.
            return Err(Status::Busy);
        }
        let is_known = layout.generation > 0 && !layout.is_varstrip();
        let is_newest = layout.generation == place.generation;
        let fits = layout.first < place.data_servers && layout.width <= place.data_servers;
        if is_known && (fits || !is_newest) { Ok(()) } else { Err(Status::Invalid) }
    }
}

/// What a file is open with, of which its client has told.
fn rights_of_new(file: &NewFile) -> Rights {
    if file.delays { file.open.with(Rights::DELAY) } else { file.open }
}
