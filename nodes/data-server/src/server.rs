//! The loop of turns.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use weft_base::{Handle, MILLISECOND, Nanos, Payload, RequestId, Status};
use weft_live::Ticket;
use weft_rt::{Arrival, Either, FaultPoint, PeerId, ServerRuntime, Work, join_all, race};
use weft_serving::is_for_strangers;
use weft_store::objects::ObjectKey;
use weft_trace::event::served;
use weft_trace::{OpenLadder, ladder, request_key};
use weft_wire::handshake::ANY_SERVER;
use weft_wire::ops::Piece;
use weft_wire::{Frame, Header, Op, Request};

use crate::checkpoint::checkpoint_flow;
use crate::clients::Verdict;
use crate::durability::{stopped_by, sync_flow};
use crate::introduction::introduce_flow;
use crate::ops::{self, Answer, When};
use crate::recovery::open;
use crate::space::reclaim_flow;
use crate::state::Server;
use crate::{DataServerConfig, DataServerError};

/// Runs a data server until it must stop, or is asked to: then everything is on stable storage when it ends.
///
/// # Errors
/// [`DataServerError`]: the store is missing, damaged or somebody else's, or the disk failed so that nothing acknowledged from now on
/// would be safe.
pub async fn run<R: ServerRuntime>(rt: R, config: DataServerConfig) -> Result<(), DataServerError> {
    let foundation = open(&rt, &config).await?;
    let server = Server::new(rt, config, foundation);
    server.rt.spawn(introduce_flow(server.clone()));
    server.rt.spawn(sync_flow(server.clone()));
    server.rt.spawn(reclaim_flow(server.clone()));
    server.rt.spawn(checkpoint_flow(server.clone()));
    if server.cache.is_served_aside() {
        server.rt.spawn(cache_flow(server.clone()));
    }
    server.limit_windows().await;
    server.look_after_journal();
    server.turns().await;
    let error = server.stop.borrow().clone();
    error.map_or(Ok(()), Err)
}

/// Serves the disk beside the turns.
async fn cache_flow<R: ServerRuntime>(server: Rc<Server<R>>) {
    let error = server.cache.serve(&server.rt, server.rt.disk(), server.container).await;
    server.fail(DataServerError::Disk("write what was answered before", error));
}

/// The load is recorded at most so often, in nanoseconds.
const LOAD_INTERVAL_NS: u64 = 10 * MILLISECOND;

/// A request that may be executed.
pub struct Job {
    pub peer: PeerId,
    pub header: Header,
    pub request: Request,
    bulk: Payload,
    /// It was executed before: only answer again.
    pub executed: bool,
    traced: OpenLadder,
    pub ticket: Ticket,
}

impl Job {
    /// Takes the record of the request.
    pub fn take_traced(&mut self) -> OpenLadder {
        std::mem::replace(&mut self.traced, OpenLadder::OFF)
    }
}

/// An answer, where it goes, the trace record of its request and the request's place among those under way.
pub type Answered = (PeerId, Answer, OpenLadder, Ticket);

impl<R: ServerRuntime> Server<R> {
    /// Turns until the server stops or is asked to; then everything that is under way lands first.
    async fn turns(self: &Rc<Self>) {
        let mut arrivals = Vec::new();
        let mut stopping = false;
        let is_over = |stopping| self.has_stopped() || stopping && self.flights.is_empty();
        while !is_over(stopping) {
            if !self.flights.have_landed() {
                stopping |= self.wait_for_work(&mut arrivals, stopping).await;
            }
            self.turn(&mut arrivals).await;
        }
        if !self.has_stopped() {
            self.bring_to_rest().await;
        }
    }

    /// Waits until something has arrived or landed, or the server has stopped. True if it is asked to stop.
    async fn wait_for_work(&self, arrivals: &mut Vec<Arrival>, stopping: bool) -> bool {
        let woken = self.woken.wait();
        let receive = async {
            match stopping || !self.flights.has_room() {
                true => std::future::pending().await,
                false => self.rt.receive(arrivals).await,
            }
        };
        let stop = async {
            match stopping {
                true => std::future::pending().await,
                false => self.rt.stop_requested().await,
            }
        };
        matches!(race(receive, race(woken, stop)).await, Either::Second(Either::Second(())))
    }

    /// Executes what has arrived, or starts it where requests are under way over turns; writes the journal once; answers what is done.
    async fn turn(self: &Rc<Self>, arrivals: &mut Vec<Arrival>) {
        let _turn = weft_trace::span(weft_trace::event::DATA_TURN);
        let jobs = self.admit_all(arrivals);
        if jobs.is_empty() && !self.flights.have_landed() {
            return;
        }
        self.turns.set(self.turns.get() + 1);
        self.rt.pass(FaultPoint::ServerQueue).await;
        self.sample_load(jobs.len());
        self.look_for_room().await;
        let answers = match self.cache.is_served_aside() {
            true => self.start_all(jobs).await,
            false => {
                self.cache.begin_turn(jobs.len());
                // When the requests are done, so is what they asked of the disk.
                match race(self.execute_all(jobs), self.cache.work(&self.rt, self.rt.disk(), self.container)).await {
                    Either::First(answers) => answers,
                    Either::Second(()) => unreachable!("the cache works for ever"),
                }
            }
        };
        if !answers.is_empty() {
            self.commit_and_answer(answers).await;
        }
    }

    /// Makes room in the journal before it is needed.
    async fn look_for_room(&self) {
        if self.is_short_of_room()
            && let Some(journal) = &self.journal
        {
            // Whoever needs the room asks again and learns why there is none.
            let _ = journal.ensure_room().await;
        }
    }

    /// Writes the journal, then lets the answers leave.
    async fn commit_and_answer(self: &Rc<Self>, answers: Vec<Answered>) {
        if let Err(error) = self.commit().await {
            self.fail(error);
            return;
        }
        if answers.iter().any(|(_, answer, _, _)| matches!(answer.when, When::Journaled(_))) {
            self.release_soon();
        }
        let now = self.rt.now();
        for (peer, answer, mut traced, ticket) in answers {
            traced.phase(served::JOURNAL, weft_trace::now());
            self.answer(peer, answer, traced, ticket, now);
        }
        self.look_after_space().await;
        self.look_after_journal();
    }

    /// Records how much there is to do, now and then.
    fn sample_load(&self, jobs: usize) {
        if !(weft_trace::is_on(weft_trace::event::LOAD) || weft_trace::is_on(weft_trace::event::LOAD_DISK)) {
            return;
        }
        let now = self.rt.now();
        if now.since(self.load_sampled.get()) < LOAD_INTERVAL_NS {
            return;
        }
        self.load_sampled.set(now);
        let (load, usage, disk) = (self.cache.load(), self.rt.usage(), self.cache.disk_use());
        let gauges = [jobs as u64, self.waiting.get(), load.answered_bytes, usage.received_bytes, usage.sent_bytes];
        weft_trace::counters(weft_trace::event::LOAD, gauges);
        let (done, done_bytes) = (disk.reads + disk.writes, disk.read_bytes + disk.written_bytes);
        weft_trace::counters(weft_trace::event::LOAD_DISK, [load.requests, load.bytes, load.operations, done, done_bytes]);
    }

    /// Takes the requests among what has arrived that may be executed.
    fn admit_all(&self, arrivals: &mut Vec<Arrival>) -> Vec<Job> {
        let mut jobs = Vec::with_capacity(arrivals.len());
        let now = self.rt.now();
        self.live.borrow_mut().turn(now);
        for arrival in arrivals.drain(..) {
            match arrival {
                Arrival::Connected { peer, client, incarnation } => {
                    self.live.borrow_mut().clients.connected(client, self.rt.peer_name(peer));
                    self.clients.borrow_mut().connected(client, incarnation);
                }
                Arrival::Disconnected { client, .. } => {
                    self.live.borrow_mut().clients.disconnected(client);
                    self.clients.borrow_mut().disconnected(client, now);
                }
                Arrival::Request { peer, frame } => match self.admit(peer, frame, now) {
                    Ok(job) => jobs.push(job),
                    Err((header, status)) => {
                        self.live.borrow_mut().answered(header.op, true, 0);
                        self.reply(peer, Frame::reply(&header, Err(status), Payload::EMPTY));
                    }
                },
            }
        }
        jobs
    }

    fn admit(&self, peer: PeerId, frame: Frame, now: Nanos) -> Result<Job, (Header, Status)> {
        let Frame { header, body, bulk } = frame;
        let mut traced = ladder(weft_trace::event::data_request(header.op));
        traced.request(request_key(header.request, header.server), header.op, self.config.server.0);
        let refuse = |status| (header, status);
        // Who knows only an address asks whoever is there for the map.
        let for_anybody = header.server == ANY_SERVER && header.op == Op::GetMap.code();
        if header.server != self.config.server && !for_anybody {
            return Err(refuse(Status::WrongServer));
        }
        if !self.introduction.is_complete() && !is_for_strangers(header.op) {
            return Err(refuse(Status::NotReady));
        }
        let verdict = self.clients.borrow_mut().admit(&header);
        if verdict == Verdict::Stale {
            return Err(refuse(Status::StaleRequest));
        }
        let request = Request::decode(header.op, body).map_err(refuse)?;
        let (client, object) = (header.request.client, object_of(&request).map_or(Handle(0), |key| key.handle));
        let mut live = self.live.borrow_mut();
        live.asked(header.op, client, object);
        let ticket = live.in_flight.begin(header.op, client, object, now);
        Ok(Job { peer, header, request, bulk, executed: verdict == Verdict::Executed, traced, ticket })
    }

    /// Executes jobs: those of one object in their order, others at the same time.
    async fn execute_all(&self, mut jobs: Vec<Job>) -> Vec<Answered> {
        if jobs.len() > 1 {
            jobs.sort_by_key(|job| object_of(&job.request));
        }
        let same = |a: &Job, b: &Job| object_of(&a.request) == object_of(&b.request);
        if jobs.chunk_by(same).nth(1).is_none() {
            return self.execute_in_order(jobs).await;
        }
        let mut groups: Vec<Vec<Job>> = Vec::new();
        for job in jobs {
            match groups.last_mut() {
                Some(group) if group.last().is_some_and(|last| same(last, &job)) => group.push(job),
                _ => groups.push(vec![job]),
            }
        }
        join_all(groups.into_iter().map(|group| self.execute_in_order(group))).await.into_iter().flatten().collect()
    }

    /// Executes jobs of one object. Neighbours among which order does not matter go at the same time, so that the cache layer sees them
    /// together.
    async fn execute_in_order(&self, jobs: Vec<Job>) -> Vec<Answered> {
        let mut answers = Vec::with_capacity(jobs.len());
        let mut rest = jobs.into_iter().peekable();
        let mut together = Together::default();
        while let Some(job) = rest.next() {
            if !self.cache.gathers() || rest.peek().is_none() {
                answers.push(self.execute_one(job).await);
                continue;
            }
            together.begin(&job);
            let mut group = vec![job];
            while let Some(job) = rest.next_if(|job| together.admits(job)) {
                group.push(job);
            }
            // New space is given out in this order, so neighbours in the object become neighbours on the disk.
            group.sort_by_key(|job| offset_of(&job.request));
            match group.len() {
                1 => answers.push(self.execute_one(group.remove(0)).await),
                _ => answers.extend(join_all(group.into_iter().map(|job| self.execute_one(job))).await),
            }
        }
        answers
    }

    /// Executes a request.
    pub async fn execute_one(&self, mut job: Job) -> Answered {
        let mut traced = job.take_traced();
        traced.phase(served::QUEUE, weft_trace::now());
        self.rt.cpu(Work::Request).await;
        self.rt.pass(FaultPoint::ServerCpu).await;
        let peer = job.peer;
        let (answer, ticket) = self.execute(job).await;
        traced.result(answer.frame.header.status);
        if answer.frame.header.status != 0 && Status::from_code(answer.frame.header.status).is_trouble() {
            weft_trace::trouble();
        }
        traced.phase(served::CPU, weft_trace::now());
        (peer, answer, traced, ticket)
    }

    async fn execute(&self, job: Job) -> (Answer, Ticket) {
        let Job { ref header, bulk, executed, ticket, .. } = job;
        let (object, is_write, write_bytes) = (object_of(&job.request), matches!(job.request, Request::Write(_)), bulk.len());
        let result = match job.request {
            // A copy may come within one turn, so this is asked again.
            Request::Write(request) => ops::write(self, header, request, bulk, executed || self.was_executed(header)).await,
            Request::Read(request) => ops::read(self, job.peer, header, request).await,
            Request::ObjectStat(request) => ops::stat(self, header, &request),
            Request::ObjectTruncate(request) => ops::truncate(self, header, &request, executed || self.was_executed(header)).await,
            Request::ObjectSync(request) => ops::sync(self, header, &request),
            Request::ObjectRemove(request) => ops::remove(self, header, &request).await,
            Request::ObjectEpoch(request) => ops::epoch(self, header, &request).await,
            Request::Ping(_) => ops::ping(self).await,
            Request::Live(_) => ops::live(self).await,
            Request::GetMap(_) => ops::get_map(self),
            Request::Meet(request) => self.meet(&request),
            Request::Trace(request) => ops::trace(self, &request),
            Request::TraceRead(request) => ops::trace_read(self, &request),
            _ => Err(Status::NotSupported),
        };
        if let Ok(done) = &result {
            self.clients.borrow_mut().executed(header.request);
            if let Some(ObjectKey { handle, .. }) = object {
                let (client, mut live) = (header.request.client, self.live.borrow_mut());
                match (is_write, done.bulk_bytes()) {
                    (true, _) => live.written(client, handle, write_bytes),
                    (false, 0) => {}
                    (false, bytes) => live.read(client, handle, bytes),
                }
            }
        }
        let refused = |status| Answer::now(Frame::reply(header, Err(status), Payload::EMPTY));
        (result.map_or_else(refused, |done| done.answer(header)), ticket)
    }

    fn was_executed(&self, header: &Header) -> bool {
        self.clients.borrow_mut().admit(header) == Verdict::Executed
    }

    fn answer(self: &Rc<Self>, peer: PeerId, answer: Answer, mut traced: OpenLadder, ticket: Ticket, now: Nanos) {
        let is_error = answer.frame.header.status != 0;
        if answer.when == When::Now {
            traced.leave();
            self.live.borrow_mut().ended(ticket, is_error, now);
            return self.reply(peer, answer.frame);
        }
        let server = self.clone();
        self.waiting.set(self.waiting.get() + 1);
        self.rt.spawn(async move {
            // A server that stops answers nothing: the client asks its next life.
            let outcome = server.wait_for(answer.when).await;
            server.waiting.set(server.waiting.get() - 1);
            if outcome.is_ok() {
                traced.phase(served::JOURNAL, weft_trace::now());
                traced.leave();
                server.live.borrow_mut().ended(ticket, is_error, server.rt.now());
                server.reply(peer, answer.frame);
            }
        });
    }

    async fn wait_for(&self, when: When) -> weft_base::Result<()> {
        match (when, &self.journal) {
            (When::Durable(change), _) => self.wait_durable(change).await,
            (When::Journaled(lsn), Some(journal)) => journal.sync_through(lsn).await.map_err(|error| {
                self.fail(stopped_by(error));
                Status::Io
            }),
            (When::Now, _) | (When::Journaled(_), None) => Ok(()),
        }
    }

    fn reply(&self, peer: PeerId, mut frame: Frame) {
        frame.header.server_boot = self.boot;
        self.rt.reply(peer, frame);
    }
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

/// Requests for one object that may be executed at the same time: reads; and writes of different bytes. What a read sees of a write of its
/// own turn is decided by their order as ever, and of two copies of a request the second must find the first executed.
#[derive(Default)]
struct Together {
    /// Bytes that are written, as start and end; `None` among reads.
    written: Option<BTreeMap<u64, u64>>,
    numbers: BTreeSet<RequestId>,
    is_open: bool,
}

impl Together {
    /// Starts a group with this job.
    fn begin(&mut self, job: &Job) {
        self.numbers.clear();
        self.numbers.insert(job.header.request);
        self.written = None;
        self.is_open = match &job.request {
            Request::Read(_) => true,
            Request::Write(request) => {
                self.written = Some(BTreeMap::new());
                self.take_bytes(&request.pieces)
            }
            _ => false,
        };
    }

    /// Takes the job into the group if it may be there.
    fn admits(&mut self, job: &Job) -> bool {
        let fits = self.is_open
            && match (&job.request, &self.written) {
                (Request::Read(_), None) => true,
                (Request::Write(request), Some(_)) => self.take_bytes(&request.pieces),
                _ => false,
            };
        fits && self.numbers.insert(job.header.request)
    }

    /// False if some of the bytes are written already. What was taken before that keeps others out of the group, which does no harm.
    fn take_bytes(&mut self, pieces: &[Piece]) -> bool {
        let written = self.written.as_mut().expect("only called for writes");
        pieces.iter().all(|piece| {
            let Some(end) = piece.offset.checked_add(u64::from(piece.bytes)) else { return false };
            if written.range(..end).next_back().is_some_and(|(_, taken)| *taken > piece.offset) {
                return false;
            }
            written.insert(piece.offset, end);
            true
        })
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use weft_base::{ClientId, Handle, ServerId, WallTime};
    use weft_wire::ops::{ReadRequest, WriteRequest};
    use weft_wire::{Capability, Rights};

    fn job(sequence: u64, pieces: Option<&[(u64, u32)]>) -> Job {
        let capability = Capability { handle: Handle(1), client: ClientId(1), rights: Rights::READ, expires: WallTime(0), tag: [0; 16] };
        let list = |pieces: &[(u64, u32)]| pieces.iter().map(|(offset, bytes)| Piece { offset: *offset, bytes: *bytes }).collect();
        let (handle, index, mtime_epoch) = (Handle(1), 0, 0);
        let request = match pieces {
            Some(pieces) => Request::Write(WriteRequest { handle, index, capability, pieces: list(pieces), mtime_epoch, sync: false }),
            None => Request::Read(ReadRequest { handle, index, capability, pieces: list(&[(0, 1)]) }),
        };
        let number = RequestId { client: ClientId(1), incarnation: 1, sequence };
        let header = Header::request(Op::Write, ServerId(0), number, 0);
        let ticket = weft_live::InFlight::default().begin(header.op, number.client, handle, Nanos(0));
        Job { peer: PeerId(1), header, request, bulk: Payload::EMPTY, executed: false, traced: OpenLadder::OFF, ticket }
    }

    #[test]
    fn reads_go_together_and_writes_of_different_bytes() {
        let mut together = Together::default();
        together.begin(&job(1, None));
        assert!(together.admits(&job(2, None)) && together.admits(&job(3, None)));
        assert!(!together.admits(&job(2, None)), "a copy must find the first executed");
        assert!(!together.admits(&job(4, Some(&[(0, 1)]))), "a read that came before does not see it");
        together.begin(&job(5, Some(&[(10, 10), (30, 10)])));
        assert!(together.admits(&job(6, Some(&[(20, 10), (40, 5)]))), "between and behind");
        assert!(!together.admits(&job(6, Some(&[(100, 1)]))), "a copy");
        assert!(!together.admits(&job(7, Some(&[(0, 5), (44, 1)]))), "one byte is written already");
        assert!(!together.admits(&job(8, Some(&[(u64::MAX, 2)]))), "nonsense is judged by itself");
        assert!(!together.admits(&job(9, None)), "what was written before is not there yet");
    }
}
