//! Who may do what: access control lists, mode bits, sticky directories, ownership.

use weft_base::{Credentials, EXECUTE, Handle, MODE_ACL, MODE_STICKY, Result, Status, WRITE};

use crate::{Inode, State};

/// True if this is the owner or the superuser.
pub(crate) fn owns(who: &Credentials, inode: &Inode) -> bool {
    who.uid == 0 || who.uid == inode.uid
}

/// True if somebody who may write to the directory must own an object to remove its name from it.
pub(crate) fn must_own_entries(who: &Credentials, dir: &Inode) -> bool {
    dir.mode & MODE_STICKY != 0 && !owns(who, dir)
}

/// Checks ownership where it is demanded.
///
/// # Errors
/// [`Status::NotPermitted`].
pub(crate) fn check_owner(who: &Credentials, inode: &Inode, demanded: bool) -> Result<()> {
    if !demanded || owns(who, inode) { Ok(()) } else { Err(Status::NotPermitted) }
}

impl State {
    /// Checks the access control list of an object or, if it has none, its mode bits. The superuser
    /// may do everything, but execute only what somebody may execute. Nothing is checked if the
    /// kernel of a mount has done it.
    ///
    /// # Errors
    /// [`Status::AccessDenied`].
    pub fn may_access(&self, who: &Credentials, handle: Handle, inode: &Inode, wanted: u32) -> Result<()> {
        let is_allowed = who.checked_by_kernel
            || match inode.mode & MODE_ACL {
                0 => who.allowed_by((inode.mode, inode.uid, inode.gid), inode.is_directory(), wanted),
                _ => self.allows_by_acl(who, handle, inode, wanted),
            };
        if is_allowed { Ok(()) } else { Err(Status::AccessDenied) }
    }

    /// Checks that a directory may be searched and, if `write`, its names be changed by this user.
    pub(crate) fn check_directory(&self, who: &Credentials, handle: Handle, dir: &Inode, write: bool) -> Result<()> {
        if write {
            dir.check_unsealed()?;
        }
        self.may_access(who, handle, dir, if write { WRITE | EXECUTE } else { EXECUTE })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_base::{FileKind, Layout, READ, ServerId, WallTime};
    use weft_wire::NameKey;

    use crate::Settings;

    fn inode(mode: u32) -> Inode {
        Inode::new(FileKind::File, mode, 10, 20, Layout { stripe_bytes: 4096, width: 1, first: 0, generation: 1 }, WallTime(0))
    }

    fn who(uid: u32, gid: u32, groups: &[u32]) -> Credentials {
        Credentials { uid, gid, groups: groups.to_vec(), checked_by_kernel: false }
    }

    #[test]
    fn the_first_class_that_fits_decides() {
        let table = [
            (who(10, 99, &[]), 0o400, READ, true),
            (who(10, 20, &[]), 0o044, READ, false),
            (who(11, 20, &[]), 0o404, READ, false),
            (who(11, 99, &[5, 20]), 0o040, READ, true),
            (who(11, 99, &[]), 0o007, READ | WRITE | EXECUTE, true),
            (who(11, 99, &[]), 0o005, READ | WRITE, false),
            (who(0, 0, &[]), 0o000, READ | WRITE, true),
            (who(0, 0, &[]), 0o666, EXECUTE, false),
            (who(0, 0, &[]), 0o001, EXECUTE, true),
        ];
        let state = State::new(Settings { server: ServerId(0), name_key: NameKey([1; 16]), xattr_bytes_max: 0, inline_limit: 0 });
        let may_access = |who: &Credentials, inode: &Inode, wanted| state.may_access(who, Handle(9), inode, wanted);
        for (who, mode, wanted, expected) in table {
            assert_eq!(may_access(&who, &inode(mode), wanted).is_ok(), expected, "{who:?} {mode:o} {wanted}");
        }
        let trusted = Credentials { checked_by_kernel: true, ..who(11, 99, &[]) };
        assert_eq!(may_access(&trusted, &inode(0), READ), Ok(()));
    }
}
