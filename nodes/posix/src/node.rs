//! Who asks, under which numbers objects are shown, and what is told of them.

use weft_base::{Attr, Credentials, Handle};

/// Set in the second number that an object has; no handle of an object with a name has this bit.
const SECOND: u64 = 1 << 63;

/// The number under which a gateway shows an object. Handles are such numbers: the root is 1 in
/// both worlds, and none is ever reused. For a moment an object may be shown under a second number,
/// by which a cache above takes it for another one than by the first (`told/`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct InodeNumber(pub u64);

impl InodeNumber {
    /// The number of an object.
    pub fn of(handle: Handle) -> InodeNumber {
        InodeNumber(handle.0)
    }

    /// The second number of an object.
    pub fn second(handle: Handle) -> InodeNumber {
        InodeNumber(handle.0 | SECOND)
    }

    /// The object.
    pub fn handle(self) -> Handle {
        Handle(self.0 & !SECOND)
    }

    /// True if this is the second number of an object.
    pub fn is_second(self) -> bool {
        self.0 & SECOND != 0
    }
}

/// Who asks, for operations in which it matters which of several steps belong together.
#[derive(Clone, Debug)]
pub struct CallingThread {
    /// The rights.
    pub who: Credentials,
    /// The thread: one that looks a name up and opens what it finds does both under this number.
    pub thread: u32,
}

/// An object as a gateway may show it.
#[derive(Clone, Copy, Debug)]
pub struct Shown {
    /// Under this number.
    pub node: InodeNumber,
    /// With these attributes.
    pub attr: Attr,
    /// That the name leads to it may be believed for so many nanoseconds; 0: for this once.
    pub name_ttl_ns: u64,
    /// Its attributes may be believed for so many nanoseconds; 0: for this once.
    pub attr_ttl_ns: u64,
}
