//! The reply table: answers to changing requests, kept until their clients say that they have them.
//! A repeated request is answered from here and never done twice, across restarts as well.
//!
//! Successful answers are journaled with the change that they report. Refusals are kept only in
//! memory: a refused request has changed nothing, so after a restart it may be judged anew; but
//! while the server lives, a late copy of a refused request must not succeed behind its client's
//! back.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use bytes::Bytes;
use weft_base::{ClientId, ClientRequests, FastMap, KnownRequests, RequestId, Result, Status};

/// Answers kept for one client at most; a client that waits for more at once is told to slow down.
const REPLIES_MAX: usize = 65_536;

/// What is known about a request before it is executed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admission {
    /// Never seen: execute it.
    New,
    /// Done before: this is the answer.
    Answered(Result<Bytes>),
}

#[derive(Clone, Debug)]
struct Answer {
    body: Result<Bytes>,
    durable: bool,
}

/// Answers of one client, by sequence.
#[derive(Debug, Default)]
struct Answers(BTreeMap<u64, Answer>);

impl KnownRequests for Answers {
    fn drop_below(&mut self, sequence: u64) {
        while let Some(oldest) = self.0.first_entry()
            && *oldest.key() < sequence
        {
            oldest.remove();
        }
    }
}

/// The reply table of one server.
#[derive(Debug, Default)]
pub(crate) struct Replies {
    clients: FastMap<ClientId, ClientRequests<Answers>>,
}

impl Replies {
    /// Judges a request by its identity; drops what its client no longer waits for.
    pub(crate) fn admit(&mut self, request: RequestId, finished_below: u64) -> Result<Admission> {
        let Some(client) = self.clients.get_mut(&request.client) else { return Ok(Admission::New) };
        let answers = client.enter(request, finished_below)?;
        match answers.0.get(&request.sequence) {
            Some(answer) => Ok(Admission::Answered(answer.body.clone())),
            None if answers.0.len() >= REPLIES_MAX => Err(Status::Overloaded),
            None => Ok(Admission::New),
        }
    }

    /// Keeps an answer that is journaled.
    pub(crate) fn put(&mut self, request: RequestId, finished_below: u64, body: Bytes) {
        self.insert(request, finished_below, Answer { body: Ok(body), durable: true });
    }

    /// Keeps an answer in memory only.
    pub(crate) fn put_volatile(&mut self, request: RequestId, finished_below: u64, body: Result<Bytes>) {
        self.insert(request, finished_below, Answer { body, durable: false });
    }

    pub(crate) fn forget(&mut self, client: ClientId) {
        self.clients.remove(&client);
    }

    /// All clients that have a table, sorted.
    pub(crate) fn clients(&self) -> Vec<ClientId> {
        let mut clients: Vec<ClientId> = self.clients.keys().copied().collect();
        clients.sort_unstable();
        clients
    }

    /// The durable answers of one client from a sequence on: (request, finished below, body).
    pub(crate) fn durable_of(&self, client: ClientId, from: u64) -> impl Iterator<Item = (RequestId, u64, &Bytes)> {
        self.clients.get(&client).into_iter().flat_map(move |table| {
            table.known().0.range(from..).filter_map(move |(sequence, answer)| {
                let request = RequestId { client, incarnation: table.incarnation(), sequence: *sequence };
                let body = answer.body.as_ref().ok().filter(|_| answer.durable)?;
                Some((request, table.finished_below(), body))
            })
        })
    }

    fn insert(&mut self, request: RequestId, finished_below: u64, answer: Answer) {
        let client = self.clients.entry(request.client).or_default();
        let Ok(answers) = client.enter(request, finished_below) else { return };
        match answers.0.entry(request.sequence) {
            Entry::Vacant(place) => drop(place.insert(answer)),
            Entry::Occupied(mut kept) => {
                let is_same = !kept.get().durable || kept.get().body == answer.body;
                assert!(is_same, "what was answered once is answered in the same way for ever");
                kept.insert(answer);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(incarnation: u32, sequence: u64) -> RequestId {
        RequestId { client: ClientId(1), incarnation, sequence }
    }

    #[test]
    fn answers_are_kept_until_the_client_has_them() {
        let mut replies = Replies::default();
        assert_eq!(replies.admit(request(1, 5), 5), Ok(Admission::New));
        let body = Bytes::from_static(b"done");
        replies.put(request(1, 5), 5, body.clone());
        replies.put_volatile(request(1, 6), 5, Err(Status::Exists));
        assert_eq!(replies.admit(request(1, 5), 5), Ok(Admission::Answered(Ok(body))));
        assert_eq!(replies.admit(request(1, 6), 5), Ok(Admission::Answered(Err(Status::Exists))));
        assert_eq!(replies.durable_of(ClientId(1), 0).count(), 1);
        assert_eq!(replies.admit(request(1, 7), 6), Ok(Admission::New));
        assert_eq!(replies.admit(request(1, 5), 5), Err(Status::StaleRequest), "a late copy");
        assert_eq!(replies.admit(request(2, 1), 1), Ok(Admission::New), "a new life begins with nothing");
        assert_eq!(replies.admit(request(1, 8), 8), Err(Status::StaleRequest), "an old life is over");
    }
}
