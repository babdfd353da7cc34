//! Extended attributes.

use bytes::Bytes;
use weft_base::{ACL_ACCESS, Credentials, FileKind, Handle, MODE_ACL, MODE_STICKY, READ, Result, Status, WRITE, is_project_attribute};
use weft_layout::{HintName, Hints};
use weft_wire::ops::{GetXattrReply, ListXattrReply, RemoveXattrRequest, SetXattrRequest};

use crate::access::{check_owner, owns};
use crate::acls::is_acl;
use crate::xattrs::xattr_bytes;
use crate::{Change, Inode, Record, RequestContext, State};

/// Longest name in bytes, with its name space.
pub const XATTR_NAME_BYTES_MAX: usize = 255;
/// Longest value in bytes.
pub const XATTR_VALUE_BYTES_MAX: usize = 64 << 10;
/// What the server remembers of an object itself: nobody sees or sets it.
const OWN: &[u8] = b"system.weft.";
/// What the attributes of one object may take together, in bytes: one value of the greatest length,
/// or some hundreds of small ones.
pub const XATTR_TOTAL_BYTES_MAX: usize = (64 << 10) + 4096;

impl State {
    /// The value of an attribute.
    ///
    /// # Errors
    /// [`Status::NoAttribute`], [`Status::AccessDenied`], [`Status::NotPermitted`],
    /// [`Status::NotSupported`] (name space), [`Status::Range`] (name too long), [`Status::Busy`],
    /// and as [`State::inode`].
    pub fn get_xattr(&self, handle: Handle, name: &Bytes, who: &Credentials) -> Result<GetXattrReply> {
        let inode = match self.inode(handle) {
            // Kernels look for a list before each use of a directory that somebody still holds. It
            // has nothing in it to which a list could give or deny rights.
            Err(Status::Stale) if is_acl(name) && self.graves.get(handle).is_some_and(Inode::is_directory) => {
                return Err(Status::NoAttribute);
            }
            inode => inode?,
        };
        let name = &canonical(name);
        if is_project_attribute(name) {
            // Anything may have one, and everybody may know.
            let value = (inode.project != 0).then(|| inode.project.to_string()).ok_or(Status::NoAttribute)?;
            return Ok(GetXattrReply { value: value.into() });
        }
        self.check_xattr(who, handle, inode, name, READ)?;
        self.check_readable(handle, inode)?;
        let value = self.xattrs.get(handle, name).ok_or(Status::NoAttribute)?;
        Ok(GetXattrReply { value: State::shown_attribute(inode, name, value) })
    }

    /// The names of all attributes that this user may see, sorted.
    ///
    /// # Errors
    /// [`Status::Busy`], and as [`State::inode`].
    pub fn list_xattr(&self, handle: Handle, who: &Credentials) -> Result<ListXattrReply> {
        let inode = self.inode(handle)?;
        self.check_readable(handle, inode)?;
        let names = self.xattrs.of(handle).map(|(name, _)| name);
        let visible = |name: &&Bytes| !name.starts_with(OWN) && (who.uid == 0 || !name.starts_with(b"trusted."));
        Ok(ListXattrReply { names: names.filter(visible).cloned().collect() })
    }

    /// Sets an attribute.
    ///
    /// # Errors
    /// As [`State::get_xattr`], and [`Status::Invalid`] for a name with NUL in it, and for a hint
    /// that has no meaning or stands at anything but a directory, [`Status::NotPermitted`] for a
    /// hint of somebody who does not own the directory, [`Status::NotSupported`] for a file without
    /// a metafile, [`Status::Exists`], [`Status::TooBig`] (value), [`Status::NoSpace`] (those of
    /// the object, or of all objects of this server, are too large together).
    pub fn prepare_set_xattr(&self, cx: &RequestContext<'_>, request: &SetXattrRequest, record: &mut Record) -> Result<()> {
        let (handle, name) = (request.handle, &canonical(&request.name));
        let inode = self.inode(handle)?;
        inode.check_unsealed()?;
        // A kernel lists names with NUL between them: this one would be two.
        if name.contains(&0) {
            return Err(Status::Invalid);
        }
        if is_project_attribute(name) {
            return self.prepare_project(cx, request, inode, record);
        }
        self.check_xattr(&request.who, handle, inode, &request.name, WRITE)?;
        if let Ok(hint) = HintName::of_attribute(name) {
            self.check_hint(handle, inode, hint, request)?;
        }
        if inode.has_no_metafile() {
            return Err(Status::NotSupported);
        }
        if request.value.len() > XATTR_VALUE_BYTES_MAX {
            return Err(Status::TooBig);
        }
        self.check_writable(handle, inode)?;
        let present = self.xattrs.get(handle, name);
        match present {
            Some(_) if request.create_only => return Err(Status::Exists),
            None if request.replace_only => return Err(Status::NoAttribute),
            _ => {}
        }
        if is_acl(name) {
            return self.prepare_set_acl(cx, request, inode, record);
        }
        self.check_xattr_room(handle, name, &request.value)?;
        record.changes.push(Change::PutXattr { handle, name: name.clone(), value: request.value.clone() });
        record.changes.push(Change::PutInode { handle, inode: inode.changed(cx.now) });
        Ok(())
    }

    /// Removes an attribute.
    ///
    /// # Errors
    /// As [`State::get_xattr`].
    pub fn prepare_remove_xattr(&self, cx: &RequestContext<'_>, request: &RemoveXattrRequest, record: &mut Record) -> Result<()> {
        let (handle, name) = (request.handle, &canonical(&request.name));
        let inode = self.inode(handle)?;
        inode.check_unsealed()?;
        if is_project_attribute(name) {
            return self.prepare_no_project(cx, request, inode, record);
        }
        self.check_xattr(&request.who, handle, inode, &request.name, WRITE)?;
        if HintName::of_attribute(name).is_ok() && !owns(&request.who, inode) {
            return Err(Status::NotPermitted);
        }
        self.check_writable(handle, inode)?;
        if self.xattrs.get(handle, name).is_none() {
            // The mode says what a list that is not there would: it is removed.
            return if is_acl(name) { Ok(()) } else { Err(Status::NoAttribute) };
        }
        let mut changed = inode.changed(cx.now);
        if name == ACL_ACCESS.as_bytes() {
            changed.mode &= !MODE_ACL;
        }
        record.changes.push(Change::DeleteXattr { handle, name: name.clone() });
        record.changes.push(Change::PutInode { handle, inode: changed });
        Ok(())
    }

    /// From now on an object counts for this project; what is made in it, too. It is not refused
    /// for what the project has already, as a `chown` is not.
    fn prepare_project(&self, cx: &RequestContext<'_>, request: &SetXattrRequest, inode: &Inode, record: &mut Record) -> Result<()> {
        let handle = request.handle;
        if request.who.uid != 0 {
            return Err(Status::NotPermitted);
        }
        let project = weft_layout::project(&request.value).map_err(|_| Status::Invalid)?;
        self.check_writable(handle, inode)?;
        match inode.project {
            0 if request.replace_only => return Err(Status::NoAttribute),
            1.. if request.create_only => return Err(Status::Exists),
            // Of a directory that is split all must hear of it, or nobody.
            before if before == project && !inode.is_directory() => return Ok(()),
            _ => {}
        }
        if inode.is_directory() {
            // The servers of its names look there.
            let (name, value) = (canonical(&request.name), Bytes::from(project.to_string()));
            self.check_xattr_room(handle, &name, &value)?;
            record.changes.push(Change::PutXattr { handle, name, value });
        }
        record.changes.push(Change::PutInode { handle, inode: Inode { project, ..inode.changed(cx.now) } });
        Ok(())
    }

    /// From now on an object counts for its owner only.
    fn prepare_no_project(&self, cx: &RequestContext<'_>, request: &RemoveXattrRequest, inode: &Inode, record: &mut Record) -> Result<()> {
        let handle = request.handle;
        if request.who.uid != 0 {
            return Err(Status::NotPermitted);
        }
        self.check_writable(handle, inode)?;
        if inode.project == 0 {
            return Err(Status::NoAttribute);
        }
        if inode.is_directory() {
            record.changes.push(Change::DeleteXattr { handle, name: canonical(&request.name) });
        }
        record.changes.push(Change::PutInode { handle, inode: Inode { project: 0, ..inode.changed(cx.now) } });
        Ok(())
    }

    /// Checks that there is room for this value in place of that which the object may have.
    pub(crate) fn check_xattr_room(&self, handle: Handle, name: &[u8], value: &[u8]) -> Result<()> {
        let of_object: usize = self.xattrs.of(handle).map(|(name, value)| xattr_bytes(name, value)).sum();
        let freed = self.xattrs.get(handle, name).map_or(0, |value| xattr_bytes(name, value));
        let added = xattr_bytes(name, value);
        let of_server = self.xattrs.bytes() - freed as u64 + added as u64;
        // What makes them smaller is never refused.
        let is_too_much = of_object - freed + added > XATTR_TOTAL_BYTES_MAX || of_server > self.settings.xattr_bytes_max;
        if added > freed && is_too_much { Err(Status::NoSpace) } else { Ok(()) }
    }

    /// Checks that there is room for what a new object inherits.
    ///
    /// # Errors
    /// [`Status::NoSpace`].
    pub(crate) fn check_room_of_all(&self, inherited: &[(Bytes, Bytes)]) -> Result<()> {
        let added: usize = inherited.iter().map(|(name, value)| xattr_bytes(name, value)).sum();
        if self.xattrs.bytes() + added as u64 > self.settings.xattr_bytes_max { Err(Status::NoSpace) } else { Ok(()) }
    }

    /// The rules of the name spaces, as in `xattr(7)`.
    fn check_xattr(&self, who: &Credentials, handle: Handle, inode: &Inode, name: &[u8], wanted: u32) -> Result<()> {
        if name.len() > XATTR_NAME_BYTES_MAX {
            return Err(Status::Range);
        }
        let refusal = if wanted == WRITE { Status::NotPermitted } else { Status::NoAttribute };
        let named = |space: &[u8]| name.starts_with(space) && name.len() > space.len();
        if named(b"user.") {
            if !matches!(inode.kind, FileKind::File | FileKind::Directory) {
                return Err(refusal);
            }
            if wanted == WRITE && inode.is_directory() && inode.mode & MODE_STICKY != 0 && !owns(who, inode) {
                return Err(Status::NotPermitted);
            }
            self.may_access(who, handle, inode, wanted)
        } else if named(b"trusted.") {
            if who.uid == 0 { Ok(()) } else { Err(refusal) }
        } else if named(b"security.") {
            if who.uid == 0 || wanted == READ { Ok(()) } else { Err(Status::NotPermitted) }
        } else if is_acl(name) && inode.kind != FileKind::Symlink {
            check_owner(who, inode, wanted == WRITE)
        } else {
            Err(Status::NotSupported)
        }
    }
}

impl State {
    /// The hints of a directory with their values.
    pub(crate) fn hint_values(&self, dir: Handle) -> impl Iterator<Item = (HintName, &Bytes)> {
        let of_attribute = |name: &Bytes| HintName::of_attribute(name).ok().flatten();
        self.xattrs.of(dir).filter_map(move |(name, value)| Some((of_attribute(name)?, value)))
    }

    /// What a directory says about the files that are made in it.
    pub fn hints(&self, dir: Handle) -> Hints {
        let mut hints = Hints::default();
        if self.xattrs.has_any(dir) {
            for (name, value) in self.hint_values(dir) {
                // They were checked when they were set.
                let _ = hints.set(name, value);
            }
        }
        hints
    }

    /// Checks that a hint may be set so: by the owner of the directory, since it decides about the
    /// files of others, and with a meaning.
    fn check_hint(&self, handle: Handle, inode: &Inode, hint: Option<HintName>, request: &SetXattrRequest) -> Result<()> {
        if hint.is_none() || !inode.is_directory() {
            return Err(Status::Invalid);
        }
        if !owns(&request.who, inode) {
            return Err(Status::NotPermitted);
        }
        self.problem_of_hint(handle, inode, hint, &request.value).map_or(Ok(()), |_| Err(Status::Invalid))
    }

    /// Why a request to set a hint is refused, with the values that are accepted; `None`: it is
    /// about no hint, or not refused for its name or value.
    pub fn why_no_hint(&self, request: &SetXattrRequest) -> Option<String> {
        let hint = HintName::of_attribute(&request.name).ok()?;
        let inode = self.inode(request.handle).ok()?;
        let problem = self.problem_of_hint(request.handle, inode, hint, &request.value)?;
        let name = hint.map_or("hint", HintName::attribute);
        Some(format!("{name} of {} is refused: {problem}", request.handle))
    }

    fn problem_of_hint(&self, handle: Handle, inode: &Inode, hint: Option<HintName>, value: &Bytes) -> Option<String> {
        let Some(hint) = hint else {
            let known: Vec<&str> = HintName::ALL.into_iter().map(HintName::short).collect();
            return Some(format!("names of hints are {}", known.join(", ")));
        };
        if !inode.is_directory() && hint != HintName::Project {
            return Some("hints are for directories".to_string());
        }
        let mut hints = self.hints(handle);
        if let Err(problem) = hints.set(hint, value).and_then(|()| hints.check()) {
            return Some(problem.to_string());
        }
        let (wanted, there) = (hints.strips.map_or(0, |strips| strips.width()), self.placement.data_servers);
        (wanted > there).then(|| format!("the strips are for {wanted} data servers, and there are {there}"))
    }
}

/// The name under which an attribute is kept: hints have two.
fn canonical(name: &Bytes) -> Bytes {
    match HintName::of_attribute(name) {
        Ok(Some(hint)) => Bytes::from_static(hint.attribute().as_bytes()),
        _ => name.clone(),
    }
}
