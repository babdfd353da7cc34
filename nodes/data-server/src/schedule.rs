//! Which requests are executed when. Requests for different objects go at the same time; those for one object keep their order wherever it
//! matters: two that touch the same bytes, one of them writing; truncations and removals against everything; a copy of a request
//! against the request.
//!
//! # Within a turn
//! In the page cache an access is short, and the turn waits for all of its requests. Requests for one object go one after another; where a
//! cache layer gathers, neighbours whose order does not matter go together, so that the layer sees them together.
//!
//! # Over turns
//! With direct I/O an access takes as long as the disk takes, and requests that arrive meanwhile shall meet in the cache layer those that
//! wait. So a turn does not wait for the accesses that it starts: a request becomes a *flight*, a flow of its own, and a later turn
//! journals and answers what has landed. Of two requests whose order matters the later one waits until the earlier has landed, and
//! whoever comes after it waits behind it, so nothing starves. What waits has changed nothing, and is judged again before it
//! starts: its client may have given it up meanwhile.
//!
//! With [`FLIGHTS_MAX`] requests or [`BYTES_MAX`] bytes under way nothing is received: the connections fill up and hold the clients back.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use weft_base::{RequestId, Status};
use weft_rt::{ServerRuntime, join_all};
use weft_serving::{Answer, Answers};
use weft_store::objects::ObjectKey;
use weft_wire::Request;
use weft_wire::ops::Piece;

use crate::clients::Verdict;
use crate::ops::When;
use crate::server::Job;
use crate::state::Server;

/// Most requests under way.
const FLIGHTS_MAX: usize = 4096;
/// Most bytes of data under way, the last request not counted.
const BYTES_MAX: u64 = 128 << 20;

/// All requests under way.
#[derive(Default)]
pub struct Flights {
    objects: RefCell<BTreeMap<ObjectKey, Traffic>>,
    landed: RefCell<Vec<Answer<When>>>,
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

/// The object that a request is about: requests for one object are executed in their order.
fn object_of(request: &Request) -> Option<ObjectKey> {
    let (handle, index) = match request {
        Request::Write(request) => (request.handle, request.index),
        Request::Read(request) => (request.handle, request.index),
        Request::ObjectStat(request) => (request.handle, request.index),
        Request::ObjectTruncate(request) => (request.handle, request.index),
        Request::ObjectSync(request) => (request.handle, request.index),
        Request::ObjectRemove(request) => (request.handle, request.index),
        Request::ObjectEpoch(request) => (request.handle, request.index),
        _ => return None,
    };
    Some(ObjectKey { handle, index })
}

/// Where a read or write begins.
fn offset_of(request: &Request) -> u64 {
    let pieces = match request {
        Request::Write(request) => &request.pieces,
        Request::Read(request) => &request.pieces,
        _ => return 0,
    };
    pieces.first().map_or(0, |piece| piece.offset)
}

/// Takes a claim into the group with these ones if its order against them does not matter. A request without a claim goes alone.
fn joins(claims: &mut Vec<Claim>, claim: Claim) -> bool {
    if claims.is_empty() || claims.iter().any(|other| claim.meets(other)) {
        return false;
    }
    claims.push(claim);
    true
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
    fn land(&self, object: ObjectKey, number: u64, answer: Answer<When>) -> Vec<(u64, Job)> {
        self.landed.borrow_mut().push(answer);
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
    /// Executes requests and waits for all of them.
    pub async fn execute_all(&self, mut jobs: Vec<Job>, answers: &mut Answers<Self>) {
        if jobs.len() > 1 {
            jobs.sort_by_key(|job| object_of(&job.request));
        }
        let same = |a: &Job, b: &Job| object_of(&a.request) == object_of(&b.request);
        if jobs.chunk_by(same).nth(1).is_none() {
            return self.execute_in_order(jobs, answers).await;
        }
        let mut groups: Vec<Vec<Job>> = Vec::new();
        for job in jobs {
            match groups.last_mut() {
                Some(group) if group.last().is_some_and(|last| same(last, &job)) => group.push(job),
                _ => groups.push(vec![job]),
            }
        }
        let groups = groups.into_iter().map(|group| async {
            let mut answers = Vec::with_capacity(group.len());
            self.execute_in_order(group, &mut answers).await;
            answers
        });
        answers.extend(join_all(groups).await.into_iter().flatten());
    }

    /// Executes requests for one object.
    async fn execute_in_order(&self, jobs: Vec<Job>, answers: &mut Answers<Self>) {
        let mut rest = jobs.into_iter().peekable();
        while let Some(job) = rest.next() {
            if !self.cache.gathers() || rest.peek().is_none() {
                answers.push(self.execute_one(job).await);
                continue;
            }
            let mut claims: Vec<Claim> = Claim::of(&job).map(|(_, claim)| claim).into_iter().collect();
            let mut group = vec![job];
            while let Some(job) = rest.next_if(|job| Claim::of(job).is_some_and(|(_, claim)| joins(&mut claims, claim))) {
                group.push(job);
            }
            // New space is given out in this order, so neighbours in the object become neighbours on the disk.
            group.sort_by_key(|job| offset_of(&job.request));
            match group.len() {
                1 => answers.push(self.execute_one(group.remove(0)).await),
                _ => answers.extend(join_all(group.into_iter().map(|job| self.execute_one(job))).await),
            }
        }
    }

    /// Starts requests; gives the answers of those that need no order, and of what has landed.
    pub async fn start_all(self: &Rc<Self>, jobs: Vec<Job>, answers: &mut Answers<Self>) {
        for job in jobs {
            match Claim::of(&job) {
                Some((object, claim)) => self.fly(object, claim, job),
                None => answers.push(self.execute_one(job).await),
            }
        }
        answers.append(&mut self.flights.landed.borrow_mut());
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
            let answer = server.execute_now(job).await;
            for (number, job) in server.flights.land(object, number, answer) {
                server.launch(object, number, job);
            }
            server.shell.wake();
        });
    }

    /// Executes a request that may have waited: what its client has given up or finished since it arrived is refused.
    async fn execute_now(&self, mut job: Job) -> Answer<When> {
        let verdict = self.clients.borrow_mut().admit(&job.header);
        if verdict == Verdict::Stale {
            return self.refuse(job.peer, &job.header, job.served, Status::StaleRequest);
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

    #[test]
    fn neighbours_whose_order_does_not_matter_go_together() {
        let mut group = vec![claim(1, false, &[(0, 10)])];
        assert!(joins(&mut group, claim(2, false, &[(5, 10)])) && joins(&mut group, claim(3, true, &[(20, 10), (40, 5)])));
        assert!(joins(&mut group, claim(4, true, &[(30, 10)])), "between");
        assert!(!joins(&mut group, claim(2, false, &[(100, 1)])), "a copy must find the first executed");
        assert!(!joins(&mut group, claim(5, false, &[(44, 1)])), "it must see what was written before");
        assert!(!joins(&mut group, claim(5, true, &[(14, 1)])), "a read that came before does not see it");
        assert!(!joins(&mut Vec::new(), claim(5, true, &[(0, 1)])));
        assert_eq!(group.len(), 4, "who may not join is not in the way of others");
    }
}
