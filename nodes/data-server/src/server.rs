//! The loop of turns.

use std::rc::Rc;

use weft_base::{Payload, Status};
use weft_rt::{Arrival, Either, PeerId, ServerRuntime, Work, join_all, race};
use weft_store::objects::ObjectKey;
use weft_trace::event::served;
use weft_trace::{OpenLadder, ladder, request_key};
use weft_wire::handshake::ANY_SERVER;
use weft_wire::{Frame, Header, Op, Request};

use crate::checkpoint::checkpoint_flow;
use crate::clients::Verdict;
use crate::durability::{stopped_by, sync_flow};
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
    server.rt.spawn(sync_flow(server.clone()));
    server.rt.spawn(reclaim_flow(server.clone()));
    server.rt.spawn(checkpoint_flow(server.clone()));
    server.look_after_journal();
    let mut arrivals = Vec::new();
    while !server.has_stopped() {
        let stop = race(server.stopped.wait(), server.rt.stop_requested());
        match race(server.rt.receive(&mut arrivals), stop).await {
            Either::First(()) => server.turn(&mut arrivals).await,
            Either::Second(Either::First(())) => break,
            Either::Second(Either::Second(())) => {
                server.bring_to_rest().await;
                break;
            }
        }
    }
    let error = server.stop.borrow().clone();
    error.map_or(Ok(()), Err)
}

/// A request that may be executed.
pub struct Job {
    peer: PeerId,
    pub header: Header,
    request: Request,
    bulk: Payload,
    /// It was executed before: only answer again.
    pub executed: bool,
    traced: OpenLadder,
}

/// An answer, where it goes, and the record of its request.
type Answered = (PeerId, Answer, OpenLadder);

impl<R: ServerRuntime> Server<R> {
    /// Executes everything that has arrived, writes the journal once, and answers.
    async fn turn(self: &Rc<Self>, arrivals: &mut Vec<Arrival>) {
        let _turn = weft_trace::span(weft_trace::event::DATA_TURN);
        let jobs = self.admit_all(arrivals);
        if jobs.is_empty() {
            return;
        }
        self.turns.set(self.turns.get() + 1);
        if self.is_short_of_room()
            && let Some(journal) = &self.journal
        {
            // Whoever needs the room asks again and learns why there is none.
            let _ = journal.ensure_room().await;
        }
        let answers = self.execute_all(jobs).await;
        if let Err(error) = self.commit().await {
            self.fail(error);
            return;
        }
        for (peer, answer, mut traced) in answers {
            traced.phase(served::JOURNAL, weft_trace::now());
            self.answer(peer, answer, traced);
        }
        self.look_after_space();
        self.look_after_journal();
    }

    fn admit_all(&self, arrivals: &mut Vec<Arrival>) -> Vec<Job> {
        let mut jobs = Vec::with_capacity(arrivals.len());
        for arrival in arrivals.drain(..) {
            match arrival {
                Arrival::Connected { client, incarnation, .. } => self.clients.borrow_mut().connected(client, incarnation),
                Arrival::Disconnected { client, .. } => self.clients.borrow_mut().disconnected(client, self.rt.now()),
                Arrival::Request { peer, frame } => match self.admit(peer, frame) {
                    Ok(job) => jobs.push(job),
                    Err((header, status)) => self.reply(peer, Frame::reply(&header, Err(status), Payload::EMPTY)),
                },
            }
        }
        jobs
    }

    fn admit(&self, peer: PeerId, frame: Frame) -> Result<Job, (Header, Status)> {
        let Frame { header, body, bulk } = frame;
        let mut traced = ladder(weft_trace::event::data_request(header.op));
        traced.request(request_key(header.request, header.server), header.op, self.config.server.0);
        let refuse = |status| (header, status);
        // Who knows only an address asks whoever is there for the map.
        let for_anybody = header.server == ANY_SERVER && header.op == Op::GetMap.code();
        if header.server != self.config.server && !for_anybody {
            return Err(refuse(Status::WrongServer));
        }
        let verdict = self.clients.borrow_mut().admit(&header);
        if verdict == Verdict::Stale {
            return Err(refuse(Status::StaleRequest));
        }
        let request = Request::decode(header.op, body).map_err(refuse)?;
        Ok(Job { peer, header, request, bulk, executed: verdict == Verdict::Executed, traced })
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

    async fn execute_in_order(&self, jobs: Vec<Job>) -> Vec<Answered> {
        let mut answers = Vec::with_capacity(jobs.len());
        for mut job in jobs {
            let mut traced = std::mem::replace(&mut job.traced, OpenLadder::OFF);
            traced.phase(served::QUEUE, weft_trace::now());
            self.rt.cpu(Work::Request).await;
            let (peer, answer) = (job.peer, self.execute(job).await);
            traced.result(answer.frame.header.status);
            traced.phase(served::CPU, weft_trace::now());
            answers.push((peer, answer, traced));
        }
        answers
    }

    async fn execute(&self, job: Job) -> Answer {
        let Job { ref header, bulk, executed, .. } = job;
        let result = match job.request {
            // A copy may come within one turn, so this is asked again.
            Request::Write(request) => ops::write(self, header, request, bulk, executed || self.was_executed(header)).await,
            Request::Read(request) => ops::read(self, header, request).await,
            Request::ObjectStat(request) => ops::stat(self, header, &request),
            Request::ObjectTruncate(request) => ops::truncate(self, header, &request, executed || self.was_executed(header)).await,
            Request::ObjectSync(request) => ops::sync(self, header, &request),
            Request::ObjectRemove(request) => ops::remove(self, header, &request).await,
            Request::Ping(_) => ops::ping(self).await,
            Request::GetMap(_) => ops::get_map(self),
            _ => Err(Status::NotSupported),
        };
        if result.is_ok() {
            self.clients.borrow_mut().executed(header.request);
        }
        result.map_or_else(|status| Answer::now(Frame::reply(header, Err(status), Payload::EMPTY)), |done| done.answer(header))
    }

    fn was_executed(&self, header: &Header) -> bool {
        self.clients.borrow_mut().admit(header) == Verdict::Executed
    }

    fn answer(self: &Rc<Self>, peer: PeerId, answer: Answer, mut traced: OpenLadder) {
        if answer.when == When::Now {
            return self.reply(peer, answer.frame);
        }
        let server = self.clone();
        self.rt.spawn(async move {
            // A server that stops answers nothing: the client asks its next life.
            if server.wait_for(answer.when).await.is_ok() {
                traced.phase(served::JOURNAL, weft_trace::now());
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

/// The object that a request is about: requests for one object are executed in their order.
fn object_of(request: &Request) -> Option<ObjectKey> {
    let (handle, index) = match request {
        Request::Write(request) => (request.handle, request.index),
        Request::Read(request) => (request.handle, request.index),
        Request::ObjectStat(request) => (request.handle, request.index),
        Request::ObjectTruncate(request) => (request.handle, request.index),
        Request::ObjectSync(request) => (request.handle, request.index),
        Request::ObjectRemove(request) => (request.handle, request.index),
        _ => return None,
    };
    Some(ObjectKey { handle, index })
}
