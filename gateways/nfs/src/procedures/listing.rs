//! READDIR and READDIRPLUS. A cookie is the hash of a name, so it leads to the same place at every
//! gateway and after every restart, whatever is made and removed meanwhile.

use weft_base::{Attr, FileKind, Handle};
use weft_client::DirItem;
use weft_rt::Runtime;

use crate::gateway::{Caller, Nfs, Object};
use crate::handles::HANDLE_BYTES;
use crate::types::{ATTR_BYTES, Failure, NfsStatus, put_attr_after};
use crate::xdr::{Reader, Writer, padding};

/// Cookies of the two entries that every directory has; those of the servers are larger.
const COOKIE_SELF: u64 = 1;
const COOKIE_PARENT: u64 = 2;
/// Cookies are smaller.
const COOKIE_END: u64 = 1 << 63;
/// Most bytes of an answer.
const ANSWER_BYTES_MAX: u32 = 256 << 10;
/// Bytes around the entries: attributes of the directory, verifier, both ends.
const AROUND_BYTES: usize = 4 + ATTR_BYTES + 8 + 4 + 4;

/// What a listing is about.
#[derive(Clone, Copy)]
struct Wanted {
    cookie: u64,
    verifier: [u8; 8],
    /// Most bytes of names, numbers and cookies.
    names_max: usize,
    /// Most bytes of everything.
    bytes_max: usize,
    with_attrs: bool,
}

impl<R: Runtime> Nfs<R> {
    pub(super) async fn readdir(&self, caller: &Caller, mut arguments: Reader, out: &mut Writer) -> Result<(), Failure> {
        let object = self.object(caller, &mut arguments)?;
        let (cookie, verifier) = (arguments.u64()?, arguments.array()?);
        let bytes_max = arguments.u32()?.min(ANSWER_BYTES_MAX) as usize;
        self.list(&object, Wanted { cookie, verifier, names_max: bytes_max, bytes_max, with_attrs: false }, out).await
    }

    pub(super) async fn readdirplus(&self, caller: &Caller, mut arguments: Reader, out: &mut Writer) -> Result<(), Failure> {
        let object = self.object(caller, &mut arguments)?;
        let (cookie, verifier) = (arguments.u64()?, arguments.array()?);
        let names_max = arguments.u32()?.min(ANSWER_BYTES_MAX) as usize;
        let bytes_max = arguments.u32()?.min(ANSWER_BYTES_MAX) as usize;
        self.list(&object, Wanted { cookie, verifier, names_max, bytes_max, with_attrs: true }, out).await
    }

    /// Cookies belong to one file system.
    fn cookie_verifier(&self) -> [u8; 8] {
        self.fs_id.0.to_be_bytes()
    }

    async fn list(&self, dir: &Object<'_>, wanted: Wanted, out: &mut Writer) -> Result<(), Failure> {
        let Wanted { cookie, with_attrs, .. } = wanted;
        if cookie >= COOKIE_END || cookie != 0 && wanted.verifier != self.cookie_verifier() {
            return Err(NfsStatus::BAD_COOKIE.into());
        }
        let attr = self.seen(dir.handle).await?;
        if attr.kind != FileKind::Directory {
            return Err(NfsStatus::NOT_DIRECTORY.into());
        }
        // Attributes of entries are for those who may search the directory.
        let with_attrs = with_attrs && self.posix.may(&dir.who, &attr, 1).await?;
        let after = if cookie <= COOKIE_PARENT { 0 } else { cookie };
        let asked_bytes = wanted.bytes_max as u32;
        let page = self.posix.list_after(&dir.who, dir.handle, after, asked_bytes, with_attrs).await?;
        put_attr_after(out, Some(&attr), self.fs_id);
        out.fixed(&self.cookie_verifier());
        let begin = out.0.len();
        let mut entries = Entries { wanted, bytes: AROUND_BYTES, names: 0, whole: begin, last: cookie, is_full: false };
        if cookie < COOKIE_SELF {
            self.put_entry(out, &mut entries, dir.root, (b".", Some(dir.handle), COOKIE_SELF), (dir.handle, Some(&attr)));
        }
        if cookie < COOKIE_PARENT && !entries.is_full {
            // What is above the root of an export, or was moved out of it, is not shown.
            let above = match page.parent == dir.root {
                true => Some(dir.root),
                false => match self.above(dir).await {
                    Err(Failure::Failed(NfsStatus::STALE)) => None,
                    above => Some(above?),
                },
            };
            let attr = (above == Some(dir.handle)).then_some(&attr);
            self.put_entry(out, &mut entries, dir.root, (b"..", above, COOKIE_PARENT), (above.unwrap_or(dir.handle), attr));
        }
        for DirItem { name, handle, cookie, attr, is_exact, .. } in &page.entries {
            if entries.is_full {
                break;
            }
            let attr = attr.as_ref().filter(|_| *is_exact);
            self.put_entry(out, &mut entries, dir.root, (name, Some(*handle), *cookie), (*handle, attr));
        }
        if entries.is_full {
            // The cookie of a group of names leads behind all of them: half a group is none.
            out.0.truncate(entries.whole);
            if entries.whole == begin {
                return Err(NfsStatus::TOO_SMALL.into());
            }
        }
        out.bool(false).bool(page.end && !entries.is_full);
        Ok(())
    }

    /// Writes an entry if there is room for it: its name, the handle that is given of it, if any,
    /// and its cookie; its number and attributes.
    fn put_entry(
        &self,
        out: &mut Writer,
        entries: &mut Entries,
        root: Handle,
        (name, given, cookie): (&[u8], Option<Handle>, u64),
        (number, attr): (Handle, Option<&Attr>),
    ) {
        let names = 24 + name.len() + padding(name.len());
        let plus = if entries.wanted.with_attrs { 4 + attr.map_or(0, |_| ATTR_BYTES) + 8 + HANDLE_BYTES } else { 0 };
        if cookie != entries.last {
            entries.whole = out.0.len();
        }
        entries.bytes += names + plus;
        entries.names += names;
        if entries.bytes > entries.wanted.bytes_max || entries.names > entries.wanted.names_max.max(names) {
            entries.is_full = true;
            return;
        }
        entries.last = cookie;
        out.bool(true).u64(number.0).opaque(name).u64(cookie);
        if entries.wanted.with_attrs {
            put_attr_after(out, attr, self.fs_id);
            out.bool(given.is_some());
            if let Some(handle) = given {
                self.put_handle(out, root, handle);
            }
        }
    }
}

/// Entries on their way into an answer.
struct Entries {
    wanted: Wanted,
    /// Bytes of the answer so far.
    bytes: usize,
    /// Of these, names, numbers and cookies.
    names: usize,
    /// Where the last group of entries with one cookie begins.
    whole: usize,
    /// The cookie of the last entry.
    last: u64,
    is_full: bool,
}
