//! Exactly once, as far as it is the same for all servers: which requests of a client still count.
//!
//! A request is sent again when its answer is late, and both copies may arrive, one of them long
//! after the client went on. A client says in every request below which number everything is
//! finished; what is older, or of an earlier life of the client, is a late copy and is refused.
//! What a server keeps of the others ([`KnownRequests`]) says whether it has seen them.

use crate::{RequestId, Result, Status};

/// What a server keeps of requests that are not finished.
pub trait KnownRequests: Default {
    /// The client will not ask for anything below this number again.
    fn drop_below(&mut self, sequence: u64);
}

/// The requests of one client.
#[derive(Clone, Debug, Default)]
pub struct ClientRequests<K> {
    incarnation: u32,
    finished_below: u64,
    known: K,
}

impl<K: KnownRequests> ClientRequests<K> {
    /// A life of the client is heard of. A new one begins with nothing, and the older ones are
    /// over.
    #[inline]
    pub fn live(&mut self, incarnation: u32) {
        if incarnation > self.incarnation {
            *self = ClientRequests { incarnation, ..ClientRequests::default() };
        }
    }

    /// Notes what a request says of its client; gives what is known of its life.
    ///
    /// # Errors
    /// [`Status::StaleRequest`]: it is a late copy.
    #[inline]
    pub fn enter(&mut self, request: RequestId, finished_below: u64) -> Result<&mut K> {
        self.live(request.incarnation);
        if request.incarnation < self.incarnation {
            return Err(Status::StaleRequest);
        }
        if finished_below > self.finished_below {
            self.finished_below = finished_below;
            self.known.drop_below(finished_below);
        }
        if request.sequence < self.finished_below {
            return Err(Status::StaleRequest);
        }
        debug_assert!(request.incarnation == self.incarnation, "only requests of the last life are known");
        Ok(&mut self.known)
    }

    /// What is known of the client's last life.
    pub fn known(&self) -> &K {
        &self.known
    }

    /// The last life.
    pub fn incarnation(&self) -> u32 {
        self.incarnation
    }

    /// Below it everything is finished.
    pub fn finished_below(&self) -> u64 {
        self.finished_below
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::ClientId;

    impl KnownRequests for BTreeSet<u64> {
        fn drop_below(&mut self, sequence: u64) {
            self.retain(|known| *known >= sequence);
        }
    }

    #[test]
    fn late_copies_and_older_lives_are_refused() {
        let mut requests: ClientRequests<BTreeSet<u64>> = ClientRequests::default();
        let request = |incarnation, sequence| RequestId { client: ClientId(1), incarnation, sequence };
        requests.enter(request(1, 5), 5).expect("new").insert(5);
        assert!(requests.enter(request(1, 6), 5).expect("new").contains(&5));
        assert!(requests.enter(request(1, 7), 6).expect("new").is_empty(), "5 is finished");
        assert_eq!(requests.enter(request(1, 5), 5), Err(Status::StaleRequest));
        assert_eq!(requests.enter(request(1, 8), 5).map(|known| known.len()), Ok(0), "what is finished stays so");
        requests.live(2);
        assert_eq!((requests.incarnation(), requests.finished_below()), (2, 0));
        assert_eq!(requests.enter(request(1, 90), 90), Err(Status::StaleRequest));
        assert!(requests.enter(request(2, 1), 1).is_ok());
    }
}
