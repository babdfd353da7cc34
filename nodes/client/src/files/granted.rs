//! What is shown to data servers.

use weft_wire::{Capability, Ceiling};

/// What shows data servers that this client may do something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Granted {
    pub(crate) capability: Capability,
    /// Given beside a capability for writing, if the owner of the file is limited.
    pub(crate) ceiling: Option<Ceiling>,
}
