//! Answers to changes, kept for a while: a client that lost its connection sends a call again, and
//! must get the answer of the first one, not that of a second execution. Pure state.
//!
//! A repeated call has the number of the first, comes from the same address, and has the same
//! bytes.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;

use weft_base::{Nanos, SECOND};

/// Most answers kept, each of less than a KiB; for one more the client with the most loses one.
const ANSWERS_MAX: usize = 16_384;
/// Most answers kept of one client: more than it can wait for at once.
const OF_CLIENT_MAX: usize = 1024;
/// How long an answer is kept, in nanoseconds: longer than clients wait before they ask again.
const AGE_MAX: u64 = 180 * SECOND;

/// What makes a call the same as another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CallId {
    /// The client.
    pub address: IpAddr,
    /// The number that it gave the call.
    pub xid: u32,
    /// The procedure.
    pub procedure: u32,
    /// Bytes of the call.
    pub bytes: usize,
    /// CRC32C of the call.
    pub checksum: u32,
}

/// What is known of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Before {
    /// It is the first one, and the caller carries it out now.
    Nothing,
    /// It is being carried out, and the caller, who is so many-th to ask again, waits for it.
    Running(u32),
    /// It is being carried out, and another one who asked again waits for it.
    Replaced,
    /// This was the answer.
    Answered(Vec<u8>),
}

/// Answers by their calls.
#[derive(Debug, Default)]
pub struct Replies {
    /// An error: it is being carried out, and so often it has been asked for again.
    answers: BTreeMap<CallId, Result<Vec<u8>, u32>>,
    /// Those of each client in the order of their ends.
    ended: BTreeMap<IpAddr, VecDeque<(Nanos, CallId)>>,
}

impl Replies {
    /// A call has come. After [`Before::Nothing`], [`Replies::answered`] must follow.
    pub fn begin(&mut self, call: CallId, now: Nanos) -> Before {
        self.forget(call.address, now);
        match self.answers.get_mut(&call) {
            Some(Ok(answer)) => Before::Answered(answer.clone()),
            Some(Err(asked)) => {
                *asked += 1;
                Before::Running(*asked)
            }
            None => {
                self.answers.insert(call, Err(0));
                Before::Nothing
            }
        }
    }

    /// Whoever waits for a call looks again. Only the last one who has asked waits on.
    pub fn look(&mut self, call: CallId, asked: u32, now: Nanos) -> Before {
        match self.answers.get(&call) {
            Some(Err(last)) if *last == asked => Before::Running(asked),
            Some(Err(_)) => Before::Replaced,
            _ => self.begin(call, now),
        }
    }

    /// The answer to a call that has begun.
    pub fn answered(&mut self, call: CallId, answer: Vec<u8>, now: Nanos) {
        self.answers.insert(call, Ok(answer));
        self.ended.entry(call.address).or_default().push_back((now, call));
        self.forget(call.address, now);
        if self.answers.len() > ANSWERS_MAX
            && let Some((_, ended)) = self.ended.iter_mut().max_by_key(|(_, ended)| ended.len())
            && let Some((_, oldest)) = ended.pop_front()
        {
            self.answers.remove(&oldest);
        }
    }

    /// The call was not carried out: the next one is the first.
    pub fn not_done(&mut self, call: &CallId) {
        self.answers.remove(call);
    }

    fn forget(&mut self, client: IpAddr, now: Nanos) {
        let Some(ended) = self.ended.get_mut(&client) else { return };
        while let Some((at, call)) = ended.front().copied()
            && (ended.len() > OF_CLIENT_MAX || now.since(at) >= AGE_MAX)
        {
            ended.pop_front();
            self.answers.remove(&call);
        }
        if ended.is_empty() {
            self.ended.remove(&client);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(xid: u32) -> CallId {
        CallId { address: IpAddr::from([127, 0, 0, 1]), xid, procedure: 12, bytes: 100, checksum: 7 }
    }

    #[test]
    fn a_call_is_done_once_and_answered_as_often_as_it_comes() {
        let mut replies = Replies::default();
        assert_eq!(replies.begin(call(1), Nanos(0)), Before::Nothing);
        assert_eq!(replies.begin(call(1), Nanos(1)), Before::Running(1));
        assert_eq!(replies.look(call(1), 1, Nanos(1)), Before::Running(1));
        assert_eq!(replies.begin(call(1), Nanos(1)), Before::Running(2));
        assert_eq!(replies.look(call(1), 1, Nanos(1)), Before::Replaced, "the last one waits");
        replies.answered(call(1), vec![9], Nanos(2));
        assert_eq!(replies.look(call(1), 2, Nanos(2)), Before::Answered(vec![9]));
        assert_eq!(replies.begin(call(1), Nanos(3)), Before::Answered(vec![9]));
        let elsewhere = CallId { address: IpAddr::from([127, 0, 0, 2]), ..call(1) };
        assert_eq!(replies.begin(elsewhere, Nanos(4)), Before::Nothing, "another client");
        assert_eq!(replies.begin(CallId { checksum: 8, ..call(1) }, Nanos(4)), Before::Nothing, "another call of this number");
        replies.not_done(&elsewhere);
        assert_eq!(replies.begin(elsewhere, Nanos(5)), Before::Nothing);
    }

    #[test]
    fn answers_are_forgotten_by_age_and_number() {
        let mut replies = Replies::default();
        for xid in 0..OF_CLIENT_MAX as u32 + 10 {
            assert_eq!(replies.begin(call(xid), Nanos(0)), Before::Nothing);
            replies.answered(call(xid), Vec::new(), Nanos(0));
        }
        assert_eq!(replies.answers.len(), OF_CLIENT_MAX);
        assert_eq!(replies.begin(call(9), Nanos(1)), Before::Nothing, "the oldest are gone");
        assert_eq!(replies.begin(call(10), Nanos(1)), Before::Answered(Vec::new()));
        assert_eq!(replies.begin(call(500), Nanos(AGE_MAX)), Before::Nothing);
        assert_eq!(replies.ended.len(), 0);
    }

    #[test]
    fn a_busy_client_takes_no_answers_of_others() {
        let mut replies = Replies::default();
        let of = |client: usize, xid| CallId { address: IpAddr::from([10, 0, 0, client as u8]), ..call(xid) };
        replies.answered(of(0, 1), vec![7], Nanos(0));
        for number in 0..2 * ANSWERS_MAX {
            replies.answered(of(1 + number % 40, number as u32), Vec::new(), Nanos(0));
        }
        assert!(replies.answers.len() <= ANSWERS_MAX);
        assert_eq!(replies.begin(of(0, 1), Nanos(1)), Before::Answered(vec![7]));
    }
}
