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
    /// What it has asked for, and the server may have noted: the same. A server that has restarted
    /// is not told of these, since it is asked once more.
    asked: Rights,
}

impl NotedRights {
    /// These, and nothing else.
    pub(super) fn only(rights: Rights) -> NotedRights {
        NotedRights { rights, ..NotedRights::default() }
    }

    /// All that the server may have noted.
    pub(super) fn noted(self) -> Rights {
        self.to_tell().with(self.asked)
    }

    /// What a server that has restarted is told.
    pub(super) fn to_tell(self) -> Rights {
        self.rights.with(self.given_back)
    }

    /// The server has granted these.
    pub(super) fn granted(&mut self, rights: Rights) {
        self.rights = self.rights.with(rights);
        self.given_back = self.given_back.without(rights);
        self.asked = self.asked.without(rights);
    }

    /// The server is asked for these.
    pub(super) fn asks(&mut self, rights: Rights) {
        self.asked = self.asked.with(rights.without(self.rights));
    }

    /// What was noted before was given back, and the server may not have heard of it.
    pub(super) fn given_in_vain(&mut self, before: NotedRights) {
        self.may_be_noted(before.to_tell());
        self.asks(before.asked);
    }

    /// The server may have noted these still, although they were given back.
    pub(super) fn may_be_noted(&mut self, rights: Rights) {
        self.given_back = self.given_back.with(rights.without(self.rights));
    }
}
