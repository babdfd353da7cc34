//! Access control lists of POSIX.1e, as Linux keeps them in two extended attributes (`acl(5)`).
//!
//! Of an access list the mode bits of the object are a part: those of its owner, those of the mask
//! as the bits of the group, and those of all others. Where the list is kept, these three entries
//! count for nothing and the mode for all; whoever reads the list gets them from the mode. So a
//! change of the mode needs no change of the list.

use crate::{Credentials, Result, Status};

/// The attribute with the list of an object, which counts beside its mode.
pub const ACL_ACCESS: &str = "system.posix_acl_access";
/// The attribute with the list of a directory from which new objects in it get theirs.
pub const ACL_DEFAULT: &str = "system.posix_acl_default";

/// The first four bytes.
const VERSION: u32 = 2;
const VERSION_BYTES: usize = 4;
/// An entry: its tag and permissions in two bytes each, its user or group in four.
const ENTRY_BYTES: usize = 8;
/// As many as a page has room for: the kernel asks for no more through a mount.
const ENTRIES_MAX: usize = (4096 - VERSION_BYTES) / ENTRY_BYTES;

mod tag {
    pub const OWNER: u16 = 1;
    pub const USER: u16 = 2;
    pub const OWNING_GROUP: u16 = 4;
    pub const GROUP: u16 = 8;
    pub const MASK: u16 = 16;
    pub const OTHERS: u16 = 32;
}

#[derive(Clone, Copy)]
struct AclEntry {
    tag: u16,
    may: u32,
    id: u32,
}

/// A list that follows the rules.
#[derive(Clone, Copy, Debug)]
pub struct Acl<'a>(&'a [u8]);

impl<'a> Acl<'a> {
    /// From the value of an attribute. `None`: it has no entries, which stands for no list.
    ///
    /// # Errors
    /// [`Status::Invalid`] if it follows no rules, [`Status::TooBig`], [`Status::NotSupported`] for
    /// another version.
    pub fn parse(value: &'a [u8]) -> Result<Option<Acl<'a>>> {
        let (version, entries) = value.split_first_chunk::<VERSION_BYTES>().ok_or(Status::Invalid)?;
        if u32::from_le_bytes(*version) != VERSION {
            return Err(Status::NotSupported);
        }
        if entries.len() % ENTRY_BYTES != 0 {
            return Err(Status::Invalid);
        }
        if entries.len() > ENTRIES_MAX * ENTRY_BYTES {
            return Err(Status::TooBig);
        }
        let list = Acl(value);
        let (mut before, mut has_named) = (0, false);
        for AclEntry { tag, may, id } in list.entries() {
            let is_named = matches!(tag, tag::USER | tag::GROUP);
            let is_known = matches!(tag, tag::OWNER | tag::OWNING_GROUP | tag::MASK | tag::OTHERS) || is_named;
            // Each stands once, but those with names, and in this order.
            let is_in_order = tag > before || is_named && tag == before;
            let skips = match before {
                0 => tag != tag::OWNER,
                tag::OWNER | tag::USER => tag > tag::OWNING_GROUP,
                _ => false,
            };
            if !is_known || !is_in_order || skips || may > 7 || is_named && id == u32::MAX {
                return Err(Status::Invalid);
            }
            has_named |= is_named;
            before = tag;
        }
        match before {
            0 => Ok(None),
            tag::OTHERS if !has_named || list.mask().is_some() => Ok(Some(list)),
            _ => Err(Status::Invalid),
        }
    }

    fn entries(self) -> impl Iterator<Item = AclEntry> {
        self.0[VERSION_BYTES..].chunks_exact(ENTRY_BYTES).map(|entry| {
            let half = |at: usize| u16::from_le_bytes([entry[at], entry[at + 1]]);
            AclEntry { tag: half(0), may: half(2).into(), id: u32::from(half(4)) | u32::from(half(6)) << 16 }
        })
    }

    fn may(self, tag: u16) -> Option<u32> {
        self.entries().find(|entry| entry.tag == tag).map(|entry| entry.may)
    }

    fn mask(self) -> Option<u32> {
        self.may(tag::MASK)
    }

    /// True if it says more than a mode can.
    pub fn is_more_than_mode(self) -> bool {
        self.mask().is_some()
    }

    /// The permission bits of its owner, of its mask (or group) and of all others.
    pub fn mode(self) -> u32 {
        let may = |tag| self.may(tag).unwrap_or(0);
        let group = self.mask().unwrap_or_else(|| may(tag::OWNING_GROUP));
        may(tag::OWNER) << 6 | group << 3 | may(tag::OTHERS)
    }

    /// The list of an object with this mode.
    pub fn with_mode(self, mode: u32) -> Vec<u8> {
        let mut value = self.0.to_vec();
        for (entry, known) in value[VERSION_BYTES..].chunks_exact_mut(ENTRY_BYTES).zip(self.entries()) {
            let may = match known.tag {
                tag::OWNER => mode >> 6,
                tag::MASK => mode >> 3,
                tag::OTHERS => mode,
                _ => continue,
            };
            entry[2..4].copy_from_slice(&((may & 7) as u16).to_le_bytes());
        }
        value
    }

    /// True if this list of an object with this mode, owner and group allows all that is wanted (4:
    /// read, 2: write, 1: execute or search). The first of these decides: the owner, a named user,
    /// the groups that the caller is in (one of them must allow it), all others. The superuser is
    /// the caller's business.
    pub fn allows(self, who: &Credentials, (mode, uid, gid): (u32, u32, u32), wanted: u32) -> bool {
        if who.uid == uid {
            return mode >> 6 & wanted == wanted;
        }
        let masked = |may: u32| may & mode >> 3 & wanted == wanted;
        let mut is_in_group = false;
        for AclEntry { tag, may, id } in self.entries() {
            let is_in = match tag {
                tag::USER if who.uid == id => return masked(may),
                tag::OWNING_GROUP => who.in_group(gid),
                tag::GROUP => who.in_group(id),
                _ => false,
            };
            if is_in && may & wanted == wanted {
                return masked(may);
            }
            is_in_group |= is_in;
        }
        !is_in_group && mode & wanted == wanted
    }
}

/// Where in the mode of a request the bits are that the umask of its program took away: a directory
/// with a default list gives them back. Whoever does not know them leaves them out.
const TAKEN_SHIFT: u32 = 16;

/// The mode of a request for a new object, of a program with this umask.
pub fn mode_with_umask(mode: u32, umask: u32) -> u32 {
    (mode & 0o7777 & !umask) | (mode & umask & 0o777) << TAKEN_SHIFT
}

/// The mode of a request as if its program had no umask.
pub fn mode_without_umask(mode: u32) -> u32 {
    (mode | mode >> TAKEN_SHIFT & 0o777) & 0o7777
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(entries: &[(u16, u16, u32)]) -> Vec<u8> {
        let mut value = VERSION.to_le_bytes().to_vec();
        for (tag, may, id) in entries {
            value.extend([tag.to_le_bytes(), may.to_le_bytes()].concat());
            value.extend(id.to_le_bytes());
        }
        value
    }

    const NONE: u32 = u32::MAX;
    const MINIMAL: [(u16, u16, u32); 3] = [(tag::OWNER, 6, NONE), (tag::OWNING_GROUP, 4, NONE), (tag::OTHERS, 0, NONE)];

    fn who(uid: u32, groups: &[u32]) -> Credentials {
        Credentials { uid, gid: 900, groups: groups.to_vec(), checked_by_kernel: false }
    }

    #[test]
    fn only_lists_that_follow_the_rules_are_taken() {
        assert!(Acl::parse(&list(&[])).expect("a list").is_none(), "no entries, no list");
        assert_eq!(Acl::parse(&list(&MINIMAL)).expect("a list").expect("entries").mode(), 0o640);
        let named = (tag::USER, 7, 5);
        let [owner, group, others] = MINIMAL;
        let mask = (tag::MASK, 6, NONE);
        let good = list(&[owner, named, (tag::USER, 0, 4), group, (tag::GROUP, 1, 5), (tag::GROUP, 1, 5), mask, others]);
        let good = Acl::parse(&good).expect("a list").expect("entries");
        assert!(good.is_more_than_mode() && good.mode() == 0o660);
        for bad in [
            &[owner, named, group, others][..],
            &[owner, group, others, others],
            &[owner, group, named, mask, others],
            &[named, owner, group, mask, others],
            &[owner, named, mask, others],
            &[owner, group],
            &[group, others],
            &[owner, others],
            &[owner, (tag::USER, 7, NONE), group, mask, others],
            &[owner, (tag::USER, 8, 5), group, mask, others],
            &[owner, (tag::USER | tag::OWNER, 7, 5), group, mask, others],
            &[owner, group, mask, others, (64, 1, 1)],
        ] {
            assert_eq!(Acl::parse(&list(bad)).err(), Some(Status::Invalid), "{bad:?}");
        }
        assert_eq!(Acl::parse(&list(&MINIMAL)[..27]).err(), Some(Status::Invalid));
        assert_eq!(Acl::parse(&[2, 0, 0]).err(), Some(Status::Invalid));
        assert_eq!(Acl::parse(&[3, 0, 0, 0]).err(), Some(Status::NotSupported));
        let mut long = vec![owner];
        long.extend((0..ENTRIES_MAX as u32 - 4).map(|id| (tag::USER, 4, id)));
        long.extend([group, mask, others]);
        assert!(Acl::parse(&list(&long)).is_ok() && list(&long).len() <= 4096);
        long.insert(1, named);
        assert_eq!(Acl::parse(&list(&long)).err(), Some(Status::TooBig));
    }

    #[test]
    fn owner_named_users_groups_and_others_are_asked_in_this_order() {
        let value = list(&[
            (tag::OWNER, 0, NONE),
            (tag::USER, 7, 5),
            (tag::USER, 0, 6),
            (tag::OWNING_GROUP, 4, NONE),
            (tag::GROUP, 2, 30),
            (tag::GROUP, 3, 40),
            (tag::MASK, 0, NONE),
            (tag::OTHERS, 0, NONE),
        ]);
        let list = Acl::parse(&value).expect("a list").expect("entries");
        // Owner 1, group 20.
        let table = [
            (who(1, &[30]), 0o467, 4, true, "the owner by the mode"),
            (who(1, &[20, 30, 40]), 0o067, 1, false, "the owner is never one of a group"),
            (who(5, &[]), 0o060, 6, true, "a named user"),
            (who(5, &[]), 0o060, 7, false, "within the mask"),
            (who(5, &[20]), 0o047, 2, false, "who is named is none of the others"),
            (who(6, &[20, 30]), 0o077, 4, false, "nor of a group"),
            (who(7, &[20]), 0o070, 4, true, "the owning group"),
            (who(7, &[20]), 0o037, 4, false, "within the mask"),
            (who(7, &[30]), 0o070, 2, true, "a named group"),
            (who(7, &[20, 30]), 0o070, 6, false, "two groups do not add up"),
            (who(7, &[30, 40]), 0o070, 3, true, "one of them is enough"),
            (who(7, &[30]), 0o077, 4, false, "who is in a group is none of the others"),
            (who(7, &[]), 0o005, 5, true, "all others"),
            (who(7, &[]), 0o074, 1, false, "all others by the mode"),
        ];
        for (who, mode, wanted, expected, what) in table {
            assert_eq!(list.allows(&who, (mode, 1, 20), wanted), expected, "{what}");
        }
    }

    #[test]
    fn what_is_read_has_the_bits_of_the_mode() {
        let value =
            list(&[(tag::OWNER, 7, NONE), (tag::USER, 5, 5), (tag::OWNING_GROUP, 3, NONE), (tag::MASK, 7, NONE), (tag::OTHERS, 7, NONE)]);
        let kept = Acl::parse(&value).expect("a list").expect("entries");
        let shown = kept.with_mode(0o4640);
        let shown = Acl::parse(&shown).expect("a list").expect("entries");
        assert_eq!(shown.mode(), 0o640);
        assert_eq!((shown.may(tag::USER), shown.may(tag::OWNING_GROUP)), (Some(5), Some(3)));
    }

    #[test]
    fn what_an_umask_takes_is_beside_the_mode() {
        let mode = mode_with_umask(0o1666, 0o027);
        assert_eq!((mode & 0o7777, mode_without_umask(mode)), (0o1640, 0o1666));
        assert_eq!(mode_with_umask(0o640, 0o022), 0o640 & !0o022, "nothing was taken");
        assert_eq!(mode_without_umask(u32::MAX), 0o7777);
    }
}
