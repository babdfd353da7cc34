//! Requests that are in flight ([`InFlightRequests`]): they run, or wait until those in their way
//! have finished. A request about many objects runs when it may at each of them. It stands in their
//! queues since the same moment, so nobody waits in a circle.
//!
//! ```text
//!          take: nobody in its way             finish
//! (admitted) ─────────────────────▶ running ───────▶ finished ─▶ (answered by a turn)
//!      │ take: somebody is             ▲
//!      └──────────────▶ waiting ───────┘ finish of the last one in its way
//! ```

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use weft_base::{Payload, RequestId};
use weft_rt::{PeerId, Signal};
use weft_serving::{OutgoingReply, ServedRequest};
use weft_store::objects::ObjectKey;
use weft_wire::ops::{Piece, ReadManyRequest};
use weft_wire::{Header, Request};

use crate::done::When;

/// Most requests in flight.
const REQUESTS_MAX: usize = 4096;
/// Most bytes of data in flight, the last request not counted.
const BYTES_MAX: u64 = 128 << 20;

/// A request that may be executed.
pub struct AdmittedRequest {
    pub peer: PeerId,
    pub header: Header,
    pub request: Request,
    pub bulk: Payload,
    /// It was executed before: only answer again.
    pub executed: bool,
    pub served: ServedRequest,
}

/// What a request has for itself until [`InFlightRequests::finish`].
pub struct Held {
    number: u64,
    object: ObjectKey,
    /// Of a request about many objects.
    others: Vec<ObjectKey>,
}

/// A request that may be executed now.
pub struct RunningRequest {
    pub held: Held,
    /// Others were in its way.
    pub has_waited: bool,
    pub job: AdmittedRequest,
}

impl RunningRequest {
    /// Its object, and where in it a read or write begins.
    pub fn place(&self) -> (ObjectKey, u64) {
        let pieces = match &self.job.request {
            Request::Write(request) => &request.pieces[..],
            Request::Read(request) => &request.pieces[..],
            _ => &[],
        };
        (self.held.object, pieces.first().map_or(0, |piece| piece.offset))
    }
}

/// All requests in flight.
#[derive(Default)]
pub struct InFlightRequests {
    objects: RefCell<BTreeMap<ObjectKey, Traffic>>,
    finished: RefCell<Vec<OutgoingReply<When>>>,
    /// Requests that have not finished, those that wait included.
    count: Cell<usize>,
    bytes: Cell<u64>,
    last: Cell<u64>,
    /// The last one has finished.
    idle: Signal,
}

/// What is going on at one object.
#[derive(Default)]
struct Traffic {
    running: BTreeMap<u64, Claim>,
    /// In the order of arrival. One that runs is in the way of the first, or that would run.
    waiting: VecDeque<(Claim, Rc<Waiting>)>,
}

/// A request that waits.
struct Waiting {
    /// So many objects are not free for it.
    blocked: Cell<usize>,
    request: Cell<Option<RunningRequest>>,
}

/// What a request needs of an object for itself.
#[derive(Clone, Debug)]
pub struct Claim {
    object: ObjectKey,
    request: RequestId,
    touches: Touches,
    bytes: u64,
}

/// What a request needs for itself.
#[derive(Clone, Debug)]
pub struct Claims {
    first: Claim,
    /// Of a request about many objects, each of which comes once.
    others: Vec<Claim>,
}

#[derive(Clone, Debug)]
enum Touches {
    /// These bytes, in ascending order.
    Bytes { pieces: Vec<Piece>, writes: bool },
    /// The object as a whole.
    All,
}

impl Claims {
    /// `None` for requests that need no order. `by_bytes`: reads and writes need no more than their
    /// bytes.
    pub fn of(job: &AdmittedRequest, by_bytes: bool) -> Option<Claims> {
        if let Request::ReadMany(request) = &job.request {
            return Claims::of_reads(job.header.request, request, by_bytes);
        }
        let (handle, index) = job.request.datafile()?;
        let pieces = match &job.request {
            Request::Read(request) => Some((&request.pieces, false)),
            Request::Write(request) => Some((&request.pieces, true)),
            Request::ObjectStat(_) | Request::ObjectSync(_) => return None,
            _ => None,
        };
        let bytes = match &job.request {
            // It makes so many zeros.
            Request::ObjectAllocate(request) => u64::from(request.bytes),
            _ => pieces.map_or(0, |(pieces, _)| bytes_of(pieces)),
        };
        let touches = match pieces.filter(|_| by_bytes) {
            Some((pieces, writes)) => Touches::Bytes { pieces: pieces.clone(), writes },
            None => Touches::All,
        };
        let first = Claim { object: ObjectKey { handle, index }, request: job.header.request, touches, bytes };
        Some(Claims { first, others: Vec::new() })
    }

    fn of_reads(id: RequestId, request: &ReadManyRequest, by_bytes: bool) -> Option<Claims> {
        let mut objects: BTreeMap<ObjectKey, Vec<Piece>> = BTreeMap::new();
        for read in &request.reads {
            let object = ObjectKey { handle: read.capability.handle, index: read.index };
            objects.entry(object).or_default().push(Piece { offset: read.offset, bytes: read.bytes });
        }
        let mut claims = objects.into_iter().map(|(object, mut pieces)| {
            let bytes = bytes_of(&pieces);
            pieces.sort_unstable_by_key(|piece| piece.offset);
            let touches = if by_bytes { Touches::Bytes { pieces, writes: false } } else { Touches::All };
            Claim { object, request: id, touches, bytes }
        });
        let first = claims.next()?;
        Some(Claims { first, others: claims.collect() })
    }
}

fn bytes_of(pieces: &[Piece]) -> u64 {
    pieces.iter().map(|piece| u64::from(piece.bytes)).sum()
}

impl Claim {
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

/// True if two lists of pieces in ascending order have a byte in common. Lists that are out of
/// order may be said to overlap: nobody executes them.
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
    fn may_run(&self, claim: &Claim) -> bool {
        !self.running.values().any(|other| claim.meets(other))
    }

    /// The first one that waits may run: its claim goes with those that do. Gives its request if
    /// it waited for nothing else.
    fn next_may_run(&mut self) -> Option<Option<RunningRequest>> {
        let (claim, _) = self.waiting.front()?;
        if !self.may_run(claim) {
            return None;
        }
        let (claim, waiting) = self.waiting.pop_front().expect("just seen");
        let request = waiting.request.take().expect("it waits until no object is blocked");
        self.running.insert(request.held.number, claim);
        waiting.blocked.set(waiting.blocked.get() - 1);
        if waiting.blocked.get() == 0 {
            return Some(Some(request));
        }
        waiting.request.set(Some(request));
        Some(None)
    }
}

impl InFlightRequests {
    /// True while more requests may be received.
    pub fn has_room(&self) -> bool {
        self.count.get() < REQUESTS_MAX && self.bytes.get() < BYTES_MAX
    }

    /// True if some have finished and are not answered.
    pub fn have_finished(&self) -> bool {
        !self.finished.borrow().is_empty()
    }

    /// True if nothing is under way or waits to be answered.
    pub fn is_empty(&self) -> bool {
        self.count.get() == 0 && !self.have_finished()
    }

    /// Takes a request: gives it back if it may run now, or lets it wait.
    pub fn take(&self, claims: Claims, job: AdmittedRequest) -> Option<RunningRequest> {
        let Claims { first, others } = claims;
        self.last.set(self.last.get() + 1);
        let held = Held { number: self.last.get(), object: first.object, others: others.iter().map(|claim| claim.object).collect() };
        let number = held.number;
        self.count.set(self.count.get() + 1);
        let bytes = others.iter().fold(first.bytes, |sum, claim| sum + claim.bytes);
        self.bytes.set(self.bytes.get() + bytes);
        let mut objects = self.objects.borrow_mut();
        let mut waits: Option<Rc<Waiting>> = None;
        for claim in std::iter::once(first).chain(others) {
            let traffic = objects.entry(claim.object).or_default();
            if traffic.waiting.is_empty() && traffic.may_run(&claim) {
                traffic.running.insert(number, claim);
                continue;
            }
            let waiting = waits.get_or_insert_with(|| Rc::new(Waiting { blocked: Cell::new(0), request: Cell::new(None) }));
            waiting.blocked.set(waiting.blocked.get() + 1);
            traffic.waiting.push_back((claim, waiting.clone()));
        }
        let request = RunningRequest { held, has_waited: waits.is_some(), job };
        match waits {
            None => Some(request),
            Some(waiting) => {
                waiting.request.set(Some(request));
                None
            }
        }
    }

    /// Waits until everything has finished.
    pub async fn all_finished(&self) {
        while self.count.get() > 0 {
            self.idle.wait().await;
        }
    }

    /// The answers of what has finished.
    pub fn take_finished(&self, answers: &mut Vec<OutgoingReply<When>>) {
        answers.append(&mut self.finished.borrow_mut());
    }

    /// A request has finished: gives those that may run now.
    pub fn finish(&self, held: Held, answer: OutgoingReply<When>) -> Vec<RunningRequest> {
        self.finished.borrow_mut().push(answer);
        let mut objects = self.objects.borrow_mut();
        self.count.set(self.count.get() - 1);
        let mut next = Vec::new();
        for object in std::iter::once(held.object).chain(held.others) {
            let traffic = objects.get_mut(&object).expect("a request is at its objects until it finishes");
            let claim = traffic.running.remove(&held.number).expect("it finishes once");
            self.bytes.set(self.bytes.get() - claim.bytes);
            while let Some(request) = traffic.next_may_run() {
                next.extend(request);
            }
            if traffic.running.is_empty() {
                assert!(traffic.waiting.is_empty(), "nothing runs that what waits could wait for");
                objects.remove(&object);
            }
        }
        if self.count.get() == 0 {
            assert!(objects.is_empty() && self.bytes.get() == 0, "what is counted is what is under way");
            self.idle.notify();
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_base::{ClientId, Handle};

    fn claim(sequence: u64, writes: bool, pieces: &[(u64, u32)]) -> Claim {
        let pieces = pieces.iter().map(|(offset, bytes)| Piece { offset: *offset, bytes: *bytes }).collect();
        let request = RequestId { client: ClientId(1), incarnation: 1, sequence };
        Claim { object: ObjectKey { handle: Handle(1), index: 0 }, request, touches: Touches::Bytes { pieces, writes }, bytes: 0 }
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
