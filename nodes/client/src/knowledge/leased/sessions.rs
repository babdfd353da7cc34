//! Sessions at servers, and the notices that are heard in them.

use weft_base::{Handle, Nanos, ServerId};
use weft_wire::ops::LeaseNotice;

use super::{Ended, Leased, Session, Told};

impl Leased {
    /// The session at a server, and the newest notice that was taken in; zeros: there is none.
    pub fn session(&self, server: ServerId) -> (u32, u64) {
        self.lock().sessions.get(&server).map_or((0, 0), |session| (session.number, session.heard))
    }

    /// The server has answered that this is the session. True if it is another one: what the server
    /// told before is forgotten.
    pub fn renewed(&self, server: ServerId, number: u32, until: Nanos) -> bool {
        let mut inner = self.lock();
        if let Some(session) = inner.sessions.get_mut(&server).filter(|session| session.number == number) {
            session.until = session.until.max(until);
            return false;
        }
        self.end(&mut inner, Ended::Server(server));
        inner.sessions.insert(server, Session { number, heard: 0, until });
        true
    }

    /// Nothing that the server has told is believed before it answers that the session goes on.
    /// What was told above is to be forgotten there if it does not: so the session, and what was
    /// told in it, stay known.
    pub fn suspend(&self, server: ServerId) {
        let mut inner = self.lock();
        if let Some(session) = inner.sessions.get_mut(&server) {
            session.until = Nanos(0);
        }
        self.log_end(&mut inner, Ended::Server(server));
    }

    /// The session in which this client goes on to hear what the server has to say.
    pub fn is_heard_in(&self, server: ServerId, now: Nanos) -> Option<u32> {
        self.lock().sessions.get(&server).filter(|session| now < session.until).map(|session| session.number)
    }

    /// Notices up to this one were taken in, here and above.
    pub fn heard(&self, server: ServerId, number: u32, newest: u64) {
        if let Some(session) = self.lock().sessions.get_mut(&server).filter(|session| session.number == number) {
            session.heard = session.heard.max(newest);
        }
    }

    /// Takes a notice in.
    pub fn notice(&self, server: ServerId, notice: &LeaseNotice) {
        let mut inner = self.lock();
        match notice {
            LeaseNotice::Name { dir, name } => {
                self.end(&mut inner, Ended::Name(*dir, name.clone()));
                self.end(&mut inner, Ended::Object(*dir));
            }
            LeaseNotice::Object { handle } => {
                let is_unknown = !inner.objects.contains_key(handle);
                self.end(&mut inner, Ended::Object(*handle));
                inner.may_get_names(*handle);
                inner.unknown_object = if is_unknown { self.newest() } else { inner.unknown_object };
            }
            LeaseNotice::Directory { dir } => self.end(&mut inner, Ended::Directory(*dir)),
            LeaseNotice::Everything {} => self.end(&mut inner, Ended::Server(server)),
            LeaseNotice::Append { .. } | LeaseNotice::Delegation { .. } => {}
        }
    }

    /// The objects of which attributes were told under the leases that a notice ends.
    pub fn told_under(&self, server: ServerId, notice: &LeaseNotice) -> Vec<Handle> {
        let inner = self.lock();
        let objects = |ends: &dyn Fn(Handle, &Told) -> bool| {
            inner.objects.iter().filter(|(handle, told)| ends(**handle, told)).map(|(handle, _)| *handle).collect()
        };
        match notice {
            LeaseNotice::Directory { dir } => objects(&|_, told| told.under == *dir),
            LeaseNotice::Everything {} => objects(&|handle, _| handle.server() == server),
            LeaseNotice::Name { .. } | LeaseNotice::Object { .. } | LeaseNotice::Append { .. } | LeaseNotice::Delegation { .. } => {
                Vec::new()
            }
        }
    }
}
