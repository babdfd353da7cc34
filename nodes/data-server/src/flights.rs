//! Requests under way over turns.
//!
//! With direct I/O an access takes as long as the disk takes, and requests that arrive meanwhile shall meet in the cache layer those that
//! wait. So a turn does not wait for the accesses that it starts: a request becomes a *flight*, a flow of its own, and a later turn
//! journals and answers what has landed.
//!
//! # Order
//! Requests for one object keep their order wherever it matters: two that touch the same bytes, one of them writing; truncations and
//! removals against everything; a copy of a request against the request. Of these the later one waits until the earlier has landed, and
//! whoever comes after it waits behind it, so nothing starves. What waits has changed nothing, and is judged again before it
//! starts: its client may have given it up meanwhile.
//!
//! Replies leave after the journal was written that holds all changes that they tell of, as in any turn.
//!
//! # Memory
//! With [`FLIGHTS_MAX`] requests or [`BYTES_MAX`] bytes under way nothing is received: the connections fill up and hold the clients back.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use weft_base::{Payload, RequestId, Status};
use weft_rt::ServerRuntime;
use weft_store::objects::ObjectKey;
use weft_trace::event::served;
use weft_wire::ops::Piece;
use weft_wire::{Frame, Request};

use crate::clients::Verdict;
use crate::ops::Answer;
use crate::server::{Answered, Job, object_of};
use crate::state::Server;

/// Most requests under way.
const FLIGHTS_MAX: usize = 4096;
/// Most bytes of data under way, the last request not counted.
const BYTES_MAX: u64 = 128 << 20;

/// All requests under way.
#[derive(Default)]
pub struct Flights {
    objects: RefCell<BTreeMap<ObjectKey, Traffic>>,
    landed: RefCell<Vec<Answered>>,
    /// Flights that have not landed, those that wait included.
    count: Cell<usize>,
    bytes: Cell<u64>,
    last: Cell<u64>,
}

/// What is going on at one object.
#[derive(Default)]
struct Traffic {
    flying: BTreeMap<u64, Claim>,
    /// In the order of arrival. The first one is in the way of a flight, or it would fly.
    waiting: VecDeque<(Claim, Job)>,
}

/// What a request needs for itself.
#[derive(Clone, Debug)]
struct Claim {
    request: RequestId,
    touches: Touches,
    bytes: u64,
}

#[derive(Clone, Debug)]
enum Touches {
    /// These bytes, in ascending order.
    Bytes { pieces: Vec<Piece>, writes: bool },
    /// The object as a whole.
    All,
}

impl Claim {
    /// `None` for requests that need no order.
    fn of(job: &Job) -> Option<(ObjectKey, Claim)> {
        let object = object_of(&job.request)?;
        let touches = match &job.request {
            Request::Read(request) => Touches::Bytes { pieces: request.pieces.clone(), writes: false },
            Request::Write(request) => Touches::Bytes { pieces: request.pieces.clone(), writes: true },
            Request::ObjectTruncate(_) | Request::ObjectRemove(_) | Request::ObjectEpoch(_) => Touches::All,
            _ => return None,
        };
        let bytes = match &touches {
            Touches::Bytes { pieces, .. } => pieces.iter().map(|piece| u64::from(piece.bytes)).sum(),
            Touches::All => 0,
        };
        Some((object, Claim { request: job.header.request, touches, bytes }))
    }

    /// True if the order of the two matters.
    fn meets(&self, other: &Claim) -> bool {
        if self.request == other.request {
            return true;
        }
        match (&self.touches, &other.touches) {
            (Touches::Bytes { pieces: ours, writes }, Touches::Bytes { pieces: theirs, writes: also }) => {
                (*writes || *also) && overlap(ours, theirs)
            }
            _ => true,
        }
    }
}

/// True if two lists of pieces in ascending order have a byte in common. Lists that are out of order may be said to overlap: nobody
/// executes them.
fn overlap(ours: &[Piece], theirs: &[Piece]) -> bool {
    let end = |piece: &Piece| piece.offset.saturating_add(u64::from(piece.bytes));
    let (mut ours, mut theirs) = (ours.iter().peekable(), theirs.iter().peekable());
    while let (Some(our), Some(their)) = (ours.peek(), theirs.peek()) {
        if end(our) <= their.offset {
            ours.next();
        } else if end(their) <= our.offset {
            theirs.next();
        } else {
            return true;
        }
    }
    false
}

impl Traffic {
    fn may_fly(&self, claim: &Claim) -> bool {
        !self.flying.values().any(|other| claim.meets(other))
    }
}

impl Flights {
    /// True while more requests may be received.
    pub fn has_room(&self) -> bool {
        self.count.get() < FLIGHTS_MAX && self.bytes.get() < BYTES_MAX
    }

    /// True if some have landed and are not answered.
    pub fn have_landed(&self) -> bool {
        !self.landed.borrow().is_empty()
    }

    /// True if nothing is under way or waits to be answered.
    pub fn is_empty(&self) -> bool {
        self.count.get() == 0 && !self.have_landed()
    }

    fn begin(&self, claim: &Claim) {
        self.count.set(self.count.get() + 1);
        self.bytes.set(self.bytes.get() + claim.bytes);
    }

    fn next_number(&self) -> u64 {
        self.last.set(self.last.get() + 1);
        self.last.get()
    }

    /// A flight has landed: gives those that may fly now.
    fn land(&self, object: ObjectKey, number: u64, answered: Answered) -> Vec<(u64, Job)> {
        self.landed.borrow_mut().push(answered);
        let mut objects = self.objects.borrow_mut();
        let traffic = objects.get_mut(&object).expect("a flight is at its object until it lands");
        let claim = traffic.flying.remove(&number).expect("it lands once");
        self.count.set(self.count.get() - 1);
        self.bytes.set(self.bytes.get() - claim.bytes);
        let mut next = Vec::new();
        while traffic.waiting.front().is_some_and(|(claim, _)| traffic.may_fly(claim)) {
            let (claim, job) = traffic.waiting.pop_front().expect("just seen");
            let number = self.next_number();
            traffic.flying.insert(number, claim);
            next.push((number, job));
        }
        if traffic.flying.is_empty() {
            debug_assert!(traffic.waiting.is_empty(), "what waits is in the way of a flight");
            objects.remove(&object);
        }
        next
    }
}

impl<R: ServerRuntime> Server<R> {
    /// Starts requests; gives the answers of those that need no order, and of what has landed.
    pub async fn start_all(self: &Rc<Self>, jobs: Vec<Job>) -> Vec<Answered> {
        let mut answers = Vec::new();
        for job in jobs {
            match Claim::of(&job) {
                Some((object, claim)) => self.fly(object, claim, job),
                None => answers.push(self.execute_one(job).await),
            }
        }
        answers.append(&mut self.flights.landed.borrow_mut());
        answers
    }

    /// Starts a flight, or lets it wait.
    fn fly(self: &Rc<Self>, object: ObjectKey, claim: Claim, job: Job) {
        self.flights.begin(&claim);
        let mut objects = self.flights.objects.borrow_mut();
        let traffic = objects.entry(object).or_default();
        if !traffic.waiting.is_empty() || !traffic.may_fly(&claim) {
            traffic.waiting.push_back((claim, job));
            return;
        }
        let number = self.flights.next_number();
        traffic.flying.insert(number, claim);
        drop(objects);
        self.launch(object, number, job);
    }

    fn launch(self: &Rc<Self>, object: ObjectKey, number: u64, job: Job) {
        let server = self.clone();
        self.rt.spawn(async move {
            let answered = server.execute_now(job).await;
            for (number, job) in server.flights.land(object, number, answered) {
                server.launch(object, number, job);
            }
            server.woken.notify();
        });
    }

    /// Executes a request that may have waited: what its client has given up or finished since it arrived is refused.
    async fn execute_now(&self, mut job: Job) -> Answered {
        let verdict = self.clients.borrow_mut().admit(&job.header);
        if verdict == Verdict::Stale {
            let mut traced = job.take_traced();
            traced.phase(served::QUEUE, weft_trace::now());
            return (job.peer, Answer::now(Frame::reply(&job.header, Err(Status::StaleRequest), Payload::EMPTY)), traced, job.ticket);
        }
        job.executed = job.executed || verdict == Verdict::Executed;
        self.execute_one(job).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_base::ClientId;

    fn claim(sequence: u64, writes: bool, pieces: &[(u64, u32)]) -> Claim {
        let pieces = pieces.iter().map(|(offset, bytes)| Piece { offset: *offset, bytes: *bytes }).collect();
        let request = RequestId { client: ClientId(1), incarnation: 1, sequence };
        Claim { request, touches: Touches::Bytes { pieces, writes }, bytes: 0 }
    }

    #[test]
    fn order_matters_where_bytes_are_written_and_for_copies() {
        let read = claim(1, false, &[(0, 10), (20, 10)]);
        assert!(!read.meets(&claim(2, false, &[(0, 10)])), "reads do not mind each other");
        assert!(read.meets(&claim(1, false, &[(500, 1)])), "a copy");
        assert!(!read.meets(&claim(2, true, &[(10, 10), (30, 5)])), "between and behind");
        assert!(read.meets(&claim(2, true, &[(10, 11)])), "the first byte of the second piece");
        assert!(claim(2, true, &[(29, 1)]).meets(&read), "its last one");
        assert!(claim(2, true, &[(0, 1)]).meets(&claim(3, true, &[(0, 1)])));
        assert!(!claim(2, true, &[(0, 1)]).meets(&claim(3, true, &[(u64::MAX, 9)])));
        let whole = Claim { touches: Touches::All, ..claim(4, true, &[]) };
        assert!(whole.meets(&read) && read.meets(&whole));
    }
}
