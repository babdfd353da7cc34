//! Sessions: how long a client counts as alive.
//!
//! ```text
//!            connected                 grace over               retention over
//!  (unknown) ─────────▶ Connected ──▶ Lost ──────▶ Ended ─────────▶ (unknown)
//!                           ▲    last    │ connected  │  connected     answers dropped
//!                           └─ connection ┴────────────┘
//!                               breaks        open files dropped
//! ```

use std::collections::{BTreeMap, BTreeSet};

use weft_base::{ClientId, Nanos};

/// The life of one client as seen by one server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Session {
    /// So many connections are open.
    Connected { connections: u32 },
    /// The last connection broke (or the server started) at this time; its open files are kept.
    Lost { since: Nanos },
    /// Its open files are dropped since this time; its answers are kept.
    Ended { since: Nanos },
}

/// What time has brought.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Expired {
    /// Clients whose open files are to be dropped.
    pub(crate) ended: Vec<ClientId>,
    /// Clients whose answers are to be dropped.
    pub(crate) forgotten: Vec<ClientId>,
}

/// All sessions of a server.
#[derive(Debug)]
pub(crate) struct Sessions {
    clients: BTreeMap<ClientId, Session>,
    /// Clients from before a restart that have not told yet what they have open.
    untold: BTreeSet<ClientId>,
    grace_ns: u64,
    retention_ns: u64,
}

impl Sessions {
    pub(crate) fn new(grace_ns: u64, retention_ns: u64) -> Sessions {
        Sessions { clients: BTreeMap::new(), untold: BTreeSet::new(), grace_ns, retention_ns }
    }

    /// A client that the server knows from before its restart.
    pub(crate) fn recovered(&mut self, client: ClientId, now: Nanos) {
        self.clients.entry(client).or_insert(Session::Lost { since: now });
        self.untold.insert(client);
    }

    /// The client has told what it has open.
    pub(crate) fn told(&mut self, client: ClientId) {
        self.untold.remove(&client);
    }

    /// All clients have had the time to tell.
    pub(crate) fn grace_ends(&mut self) {
        self.untold.clear();
    }

    /// Clients from before a restart that have not told yet what they have open.
    pub(crate) fn untold(&self) -> impl Iterator<Item = &ClientId> {
        self.untold.iter()
    }

    /// True if this is one of them.
    pub(crate) fn is_untold(&self, client: ClientId) -> bool {
        self.untold.contains(&client)
    }

    pub(crate) fn connected(&mut self, client: ClientId) {
        let session = self.clients.entry(client).or_insert(Session::Connected { connections: 0 });
        *session = match *session {
            Session::Connected { connections } => Session::Connected { connections: connections + 1 },
            Session::Lost { .. } | Session::Ended { .. } => Session::Connected { connections: 1 },
        };
    }

    pub(crate) fn disconnected(&mut self, client: ClientId, now: Nanos) {
        let Some(session) = self.clients.get_mut(&client) else { return };
        *session = match *session {
            Session::Connected { connections: 0 | 1 } => Session::Lost { since: now },
            Session::Connected { connections } => Session::Connected { connections: connections - 1 },
            other => other,
        };
    }

    /// True if the client has a connection.
    pub(crate) fn is_connected(&self, client: ClientId) -> bool {
        matches!(self.clients.get(&client), Some(Session::Connected { .. }))
    }

    /// Clients with a connection.
    pub(crate) fn connected_count(&self) -> u32 {
        self.clients.values().filter(|session| matches!(session, Session::Connected { .. })).count() as u32
    }

    /// Moves on what has waited long enough.
    pub(crate) fn expire(&mut self, now: Nanos) -> Expired {
        let mut expired = Expired::default();
        let (grace_ns, retention_ns) = (self.grace_ns, self.retention_ns);
        self.clients.retain(|client, session| {
            if let Session::Lost { since } = *session
                && now.since(since) >= grace_ns
            {
                *session = Session::Ended { since: now };
                expired.ended.push(*client);
            }
            match *session {
                Session::Ended { since } if now.since(since) >= retention_ns => {
                    expired.forgotten.push(*client);
                    false
                }
                _ => true,
            }
        });
        expired
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: ClientId = ClientId(1);

    #[test]
    fn a_session_outlives_its_connections_by_the_grace() {
        let mut sessions = Sessions::new(10, 100);
        sessions.connected(A);
        sessions.connected(A);
        assert_eq!(sessions.connected_count(), 1);
        sessions.disconnected(A, Nanos(5));
        assert_eq!(sessions.expire(Nanos(50)), Expired::default(), "one connection is left");
        sessions.disconnected(A, Nanos(60));
        assert_eq!(sessions.connected_count(), 0);
        assert_eq!(sessions.expire(Nanos(69)), Expired::default());
        sessions.connected(A);
        assert_eq!(sessions.expire(Nanos(80)), Expired::default(), "it came back");
        sessions.disconnected(A, Nanos(80));
        assert_eq!(sessions.expire(Nanos(90)), Expired { ended: vec![A], forgotten: vec![] });
        assert_eq!(sessions.expire(Nanos(189)), Expired::default());
        assert_eq!(sessions.expire(Nanos(190)), Expired { ended: vec![], forgotten: vec![A] });
        assert_eq!(sessions.expire(Nanos(500)), Expired::default());
    }

    #[test]
    fn clients_from_before_a_restart_have_the_grace_to_return() {
        let mut sessions = Sessions::new(10, 100);
        sessions.recovered(A, Nanos(0));
        sessions.connected(A);
        assert_eq!(sessions.expire(Nanos(20)), Expired::default());
        sessions.recovered(A, Nanos(20));
        assert_eq!(sessions.expire(Nanos(40)), Expired::default(), "connected already");
    }
}
