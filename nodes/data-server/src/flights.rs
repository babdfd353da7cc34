//! Requests and what they need for themselves; those that are under way over turns ([`Flights`]).

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};

use weft_base::{Payload, RequestId};
use weft_rt::PeerId;
use weft_serving::{Answer, Served};
use weft_store::objects::ObjectKey;
use weft_wire::ops::Piece;
use weft_wire::{Header, Request};

use crate::done::When;

/// Most requests under way.
const FLIGHTS_MAX: usize = 4096;
/// Most bytes of data under way, the last request not counted.
const BYTES_MAX: u64 = 128 << 20;

/// A request that may be executed.
pub struct Job {
    pub peer: PeerId,
    pub header: Header,
    pub request: Request,
    pub bulk: Payload,
    /// It was executed before: only answer again.
    pub executed: bool,
    pub served: Served,
}

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
pub struct Claim {
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
    pub fn of(job: &Job) -> Option<(ObjectKey, Claim)> {
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
pub fn object_of(request: &Request) -> Option<ObjectKey> {
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
pub fn offset_of(request: &Request) -> u64 {
    let pieces = match request {
        Request::Write(request) => &request.pieces,
        Request::Read(request) => &request.pieces,
        _ => return 0,
    };
    pieces.first().map_or(0, |piece| piece.offset)
}

/// Takes a claim into the group with these ones if its order against them does not matter. A request without a claim goes alone.
pub fn joins(claims: &mut Vec<Claim>, claim: Claim) -> bool {
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

    /// Takes a request: gives it back with its number if it may fly now, or lets it wait.
    pub fn take(&self, object: ObjectKey, claim: Claim, job: Job) -> Option<(u64, Job)> {
        self.count.set(self.count.get() + 1);
        self.bytes.set(self.bytes.get() + claim.bytes);
        let mut objects = self.objects.borrow_mut();
        let traffic = objects.entry(object).or_default();
        if !traffic.waiting.is_empty() || !traffic.may_fly(&claim) {
            traffic.waiting.push_back((claim, job));
            return None;
        }
        let number = self.next_number();
        traffic.flying.insert(number, claim);
        Some((number, job))
    }

    /// The answers of what has landed.
    pub fn take_landed(&self, answers: &mut Vec<Answer<When>>) {
        answers.append(&mut self.landed.borrow_mut());
    }

    fn next_number(&self) -> u64 {
        self.last.set(self.last.get() + 1);
        self.last.get()
    }

    /// A flight has landed: gives those that may fly now.
    pub fn land(&self, object: ObjectKey, number: u64, answer: Answer<When>) -> Vec<(u64, Job)> {
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
