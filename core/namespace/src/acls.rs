//! Access control lists: extended attributes that decide who may do what. An inode with one says so
//! in its mode (`MODE_ACL`), so nobody looks for lists of others.

use bytes::Bytes;
use weft_base::{ACL_ACCESS, ACL_DEFAULT, Acl, Credentials, FileKind, Handle, MODE_ACL, MODE_MASK, MODE_SETGID, Result, Status};
use weft_layout::HintName;
use weft_wire::ops::SetXattrRequest;

use crate::{Change, Inode, Record, RequestContext, State};

/// Read, write and execute for owner, group and others.
const PERMISSIONS: u32 = 0o777;

/// True for the attributes that are such lists.
pub(crate) fn is_acl(name: &[u8]) -> bool {
    name == ACL_ACCESS.as_bytes() || name == ACL_DEFAULT.as_bytes()
}

/// True if all servers that hold names of a directory must know this attribute of it.
pub fn is_for_names(name: &[u8]) -> bool {
    is_acl(name) || HintName::of_attribute(name).is_ok()
}

/// What is kept was checked when it was set.
fn kept(value: Option<&Bytes>) -> Option<Acl<'_>> {
    value.and_then(|value| Acl::parse(value).ok().flatten())
}

impl State {
    /// True if the list of an object that has one allows all that is wanted.
    #[cold]
    pub(crate) fn allows_by_acl(&self, who: &Credentials, handle: Handle, inode: &Inode, wanted: u32) -> bool {
        let object = (inode.mode, inode.uid, inode.gid);
        match kept(self.xattrs.get(handle, ACL_ACCESS.as_bytes())) {
            Some(list) if who.uid != 0 => list.allows(who, object, wanted),
            _ => who.allowed_by(object, inode.is_directory(), wanted),
        }
    }

    /// The list from which new objects in a directory get theirs.
    pub(crate) fn default_acl(&self, dir: Handle) -> Option<&Bytes> {
        if self.xattrs.has_any(dir) { self.xattrs.get(dir, ACL_DEFAULT.as_bytes()) } else { None }
    }

    /// The mode of a new object in a directory, from that of the request. A default list takes the
    /// place of the umask, and becomes the list of the new object if it says more than a mode.
    pub(crate) fn mode_in(&self, dir: Handle, mode: u32) -> u32 {
        let Some(list) = kept(self.default_acl(dir)) else { return mode & MODE_MASK };
        let mode = weft_base::mode_without_umask(mode) & (list.mode() | !PERMISSIONS);
        if list.is_more_than_mode() { mode | MODE_ACL } else { mode }
    }

    /// The attributes of a new object in a directory that come from its default list.
    pub(crate) fn inherited_acls(&self, dir: Handle, kind: FileKind, mode: u32) -> impl Iterator<Item = (Bytes, Bytes)> {
        let names = [(ACL_ACCESS, mode & MODE_ACL != 0), (ACL_DEFAULT, kind == FileKind::Directory)];
        let default = self.default_acl(dir);
        let named = move |(name, has): (&'static str, bool)| Some((Bytes::from_static(name.as_bytes()), default.filter(|_| has)?.clone()));
        names.into_iter().filter_map(named)
    }

    /// Gives a new object that is no directory the list that its mode says it has.
    pub(crate) fn put_inherited_acls(&self, dir: Handle, handle: Handle, inode: &Inode, record: &mut Record) -> Result<()> {
        let inherited: Vec<_> = self.inherited_acls(dir, inode.kind, inode.mode).collect();
        self.check_room_of_all(&inherited)?;
        record.changes.extend(inherited.into_iter().map(|(name, value)| Change::PutXattr { handle, name, value }));
        Ok(())
    }

    /// What all servers that hold names of a directory must know of its attributes.
    pub(crate) fn attributes_for_names(&self, dir: Handle) -> Vec<(Bytes, Bytes)> {
        let attributes = self.xattrs.of(dir).filter(|(name, _)| is_for_names(name));
        attributes.map(|(name, value)| (name.clone(), value.clone())).collect()
    }

    /// Sets a list whose owner asks for it. One that says no more than a mode becomes the mode.
    pub(crate) fn prepare_set_acl(
        &self,
        cx: &RequestContext<'_>,
        request: &SetXattrRequest,
        inode: &Inode,
        record: &mut Record,
    ) -> Result<()> {
        let SetXattrRequest { handle, name, value, who, .. } = request;
        let list = Acl::parse(value)?;
        let mut changed = inode.changed(cx.now);
        let is_kept = if name == ACL_DEFAULT.as_bytes() {
            if list.is_some() && !inode.is_directory() {
                return Err(Status::AccessDenied);
            }
            list.is_some()
        } else {
            if let Some(list) = list {
                changed.mode = inode.mode & !PERMISSIONS | list.mode();
                // As at a change of the mode.
                if who.uid != 0 && !who.in_group(inode.gid) && !who.checked_by_kernel {
                    changed.mode &= !MODE_SETGID;
                }
            }
            let is_kept = list.is_some_and(Acl::is_more_than_mode);
            changed.mode = if is_kept { changed.mode | MODE_ACL } else { changed.mode & !MODE_ACL };
            is_kept
        };
        if is_kept {
            self.check_xattr_room(*handle, name, value)?;
            record.changes.push(Change::PutXattr { handle: *handle, name: name.clone(), value: value.clone() });
        } else if self.xattrs.get(*handle, name).is_some() {
            record.changes.push(Change::DeleteXattr { handle: *handle, name: name.clone() });
        }
        record.changes.push(Change::PutInode { handle: *handle, inode: changed });
        Ok(())
    }

    /// An attribute as it is shown: of a list some entries are those of the mode.
    pub(crate) fn shown_attribute(inode: &Inode, name: &[u8], value: &Bytes) -> Bytes {
        match kept(Some(value)).filter(|_| name == ACL_ACCESS.as_bytes()) {
            Some(list) => list.with_mode(inode.mode).into(),
            None => value.clone(),
        }
    }
}
