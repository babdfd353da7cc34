//! The rights to a file that its server has noted for this client.

use weft_wire::Rights;

/// What is noted at most.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct NotedRights {
    /// What this client works by.
    pub(super) rights: Rights,
    /// What it has given back, and the server may have noted still: it is told once more, and
    /// nothing is done by these rights.
    given_back: Rights,
}

impl NotedRights {
    /// These, and nothing else.
    pub(super) fn only(rights: Rights) -> NotedRights {
        NotedRights { rights, ..NotedRights::default() }
    }

    /// All that the server may have noted.
    pub(super) fn noted(self) -> Rights {
        self.rights.with(self.given_back)
    }

    /// The server has granted these.
    pub(super) fn granted(&mut self, rights: Rights) {
        self.rights = self.rights.with(rights);
        self.given_back = self.given_back.without(rights);
    }

    /// The server may have noted these still, although they were given back.
    pub(super) fn may_be_noted(&mut self, rights: Rights) {
        self.given_back = self.given_back.with(rights.without(self.rights));
    }
}
