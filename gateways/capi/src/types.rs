//! What C sees. `include/weft.h` says what each field means; a test of `tests/system` compares
//! sizes and places of the fields with those that a C compiler gives them.

use std::ffi::{c_char, c_int, c_void};
use std::sync::Arc;

use weft_base::Attr;
use weft_host::door::{ProgramFile, ProgramFs, ProgramListing};

/// A file system.
pub struct weft_fs(pub(crate) Arc<ProgramFs>);

/// An open file.
pub struct weft_file(pub(crate) ProgramFile);

/// A listing.
pub struct weft_dir(pub(crate) ProgramListing);

/// How a file system is opened.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct weft_options {
    /// Its size as the program knows it.
    pub size: usize,
    /// Key file, or NULL.
    pub key_file: *const c_char,
    /// Longest time of a call in seconds; 0: 30.
    pub timeout_seconds: u32,
}

/// Attributes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct weft_attr {
    /// Number of the object.
    inode: u64,
    /// Bytes of a file or of the target of a symlink, entries of a directory.
    size: u64,
    /// Kind and permission bits.
    mode: u32,
    /// Names that lead to it.
    nlink: u32,
    /// Owner.
    uid: u32,
    /// Group.
    gid: u32,
    /// Last access, nanoseconds since 1970.
    atime_ns: i64,
    /// Last change of the data.
    mtime_ns: i64,
    /// Last change of the inode.
    ctime_ns: i64,
    /// Device number.
    rdev: u32,
    /// Bytes of a stripe.
    stripe_bytes: u32,
    /// Number of datafiles.
    stripe_width: u32,
    /// 0.
    reserved: u32,
}

/// A range of a file and its memory.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct weft_range {
    /// Where it begins in the file.
    pub offset: u64,
    /// How long it is.
    pub bytes: usize,
    /// Its memory.
    pub data: *mut c_void,
    /// How many bytes were read or written.
    pub done: usize,
}

/// A whole file.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct weft_whole {
    /// Its bytes.
    pub data: *const c_void,
    /// How many.
    pub bytes: usize,
    /// 0, or why it could not be read.
    pub error: c_int,
    /// What keeps the bytes.
    pub owner: *mut c_void,
}

/// An entry of a directory.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct weft_entry {
    /// Number of the object.
    pub inode: u64,
    /// Kind of the object (`S_IFMT`).
    pub kind: u32,
    /// 1 if `attr` is given.
    pub has_attr: u32,
    /// Attributes.
    pub attr: weft_attr,
    /// Name, with NUL behind it.
    pub name: [c_char; 256],
}

/// How full a file system is.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct weft_space {
    /// Bytes that the data servers can hold.
    pub capacity_bytes: u64,
    /// Bytes still free.
    pub free_bytes: u64,
    /// Objects.
    pub inodes: u64,
    /// Servers that did not answer.
    pub unanswered: u64,
}

impl From<&Attr> for weft_attr {
    fn from(attr: &Attr) -> weft_attr {
        weft_attr {
            inode: attr.handle.0,
            size: attr.size,
            mode: attr.kind.mode_bits() | attr.permissions(),
            nlink: attr.nlink,
            uid: attr.uid,
            gid: attr.gid,
            atime_ns: attr.atime.0,
            mtime_ns: attr.mtime.0,
            ctime_ns: attr.ctime.0,
            rdev: attr.rdev,
            stripe_bytes: attr.layout.stripe_bytes,
            stripe_width: attr.layout.width.into(),
            reserved: 0,
        }
    }
}

/// Sizes, and places of fields, for the test that compares them with those of C: for each struct
/// its size and the offset of every field in order.
///
/// # Safety
/// There is room for `count` numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weft_abi_layout(numbers: *mut usize, count: usize) -> c_int {
    use std::mem::offset_of;
    let layout = [
        size_of::<weft_options>(),
        offset_of!(weft_options, timeout_seconds),
        size_of::<weft_attr>(),
        offset_of!(weft_attr, size),
        offset_of!(weft_attr, gid),
        offset_of!(weft_attr, atime_ns),
        offset_of!(weft_attr, stripe_width),
        size_of::<weft_range>(),
        offset_of!(weft_range, data),
        offset_of!(weft_range, done),
        size_of::<weft_whole>(),
        offset_of!(weft_whole, error),
        offset_of!(weft_whole, owner),
        size_of::<weft_entry>(),
        offset_of!(weft_entry, attr),
        offset_of!(weft_entry, name),
        size_of::<weft_space>(),
        offset_of!(weft_space, unanswered),
    ];
    crate::border::border(|| {
        // SAFETY: C's, as the header says.
        let numbers = unsafe { crate::border::memory_mut(numbers, count) }?;
        numbers.iter_mut().zip(layout).for_each(|(to, number)| *to = number);
        Ok(layout.len() as c_int)
    })
}
