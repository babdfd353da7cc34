//! For whom a file is open, so that the right user asks for it again.

use weft_base::Credentials;
use weft_wire::Rights;

/// For whom a file is open.
#[derive(Debug, Default)]
pub(super) struct Openers {
    /// Who has opened it last without telling the server (`known.rs`).
    pub(super) untold: Option<Credentials>,
    /// Who has opened it at the server, for writing if anybody has.
    told: Option<Credentials>,
}

impl Openers {
    /// The server knows that it is open so for this user.
    pub(super) fn told_of(&mut self, who: &Credentials, rights: Rights) {
        if self.told.is_none() || rights.contains(Rights::WRITE) && self.told.as_ref() != Some(who) {
            self.told = Some(who.clone());
        }
    }

    /// Who asks for what the server knows to be open.
    pub(super) fn told(&self) -> Option<&Credentials> {
        self.told.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_writes_asks_for_those_who_read() {
        let user = |uid| Credentials { uid, ..Credentials::ROOT };
        let mut openers = Openers::default();
        assert_eq!(openers.told(), None);
        for (uid, rights, told) in [(1, Rights::READ, 1), (2, Rights::READ, 1), (3, Rights::WRITE, 3), (1, Rights::READ, 3)] {
            openers.told_of(&user(uid), rights);
            assert_eq!(openers.told(), Some(&user(told)));
        }
    }
}
