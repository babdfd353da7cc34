//! The server: how it starts, and what it does in a turn.

use std::rc::Rc;

use weft_base::{ClientId, Nanos, Payload, Status};
use weft_live::Gauges;
use weft_rt::{Arrival, Disk, Either, FaultPoint, PeerId, ServerRuntime, Work, race};
use weft_serving::{Answer, Answers, Intake, Load, Served, Service, Shell, connection};
use weft_trace::EventId;
use weft_trace::event::data_request;
use weft_wire::ops::ServerInfo;
use weft_wire::{Frame, Header, Request};

use crate::checkpoint::checkpoint_flow;
use crate::clients::Verdict;
use crate::done::{Done, When};
use crate::durability::sync_flow;
use crate::flights::Job;
use crate::ops;
use crate::recovery::open;
use crate::space::reclaim_flow;
use crate::state::Server;
use crate::{DataServerConfig, DataServerError, stopped_by};

/// Runs a data server until it must stop, or is asked to: then everything is on stable storage when it ends.
///
/// # Errors
/// [`DataServerError`]: the store is missing, damaged or somebody else's, or the disk failed so that nothing acknowledged from now on
/// would be safe.
pub async fn run<R: ServerRuntime>(rt: R, config: DataServerConfig) -> Result<(), DataServerError> {
    let foundation = open(&rt, &config).await?;
    let server = Server::new(rt, config, foundation);
    server.rt.spawn(weft_serving::introduce(server.clone()));
    server.rt.spawn(sync_flow(server.clone()));
    server.rt.spawn(reclaim_flow(server.clone()));
    server.rt.spawn(checkpoint_flow(server.clone()));
    if server.cache.is_served_aside() {
        server.rt.spawn(cache_flow(server.clone()));
    }
    server.limit_windows().await;
    server.look_after_journal();
    weft_serving::serve(&server).await
}

/// Serves the disk beside the turns.
async fn cache_flow<R: ServerRuntime>(server: Rc<Server<R>>) {
    let error = server.cache.serve(&server.rt, server.rt.disk(), server.container).await;
    server.fail(DataServerError::Disk("write what was answered before", error));
}

impl<R: ServerRuntime> Service for Server<R> {
    type Rt = R;
    type Failure = DataServerError;
    type Until = When;
    const TURN: EventId = weft_trace::event::DATA_TURN;

    fn foreign(why: String) -> DataServerError {
        DataServerError::Store(why)
    }

    fn shell(&self) -> &Shell<R, DataServerError> {
        &self.shell
    }

    fn connected(&self, client: ClientId, incarnation: u32) {
        self.clients.borrow_mut().connected(client, incarnation);
    }

    fn disconnected(&self, client: ClientId, now: Nanos) {
        self.clients.borrow_mut().disconnected(client, now);
    }

    /// A server that is asked to stop lets everything land first.
    fn intake(&self, is_to_stop: bool) -> Intake {
        if self.flights.have_landed() {
            Intake::Busy
        } else if is_to_stop && self.flights.is_empty() {
            Intake::Over
        } else if is_to_stop || !self.flights.has_room() {
            Intake::Closed
        } else {
            Intake::Open
        }
    }

    async fn make_room(&self) -> Result<(), DataServerError> {
        if self.is_short_of_room()
            && let Some(journal) = &self.journal
        {
            // Whoever needs the room asks again and learns why there is none.
            let _ = journal.ensure_room().await;
        }
        Ok(())
    }

    async fn work(self: &Rc<Self>, arrivals: &mut Vec<Arrival>, answers: &mut Answers<Self>) -> Result<(), DataServerError> {
        let mut jobs = Vec::with_capacity(arrivals.len());
        for arrival in arrivals.drain(..) {
            match arrival {
                Arrival::Request { peer, frame } => jobs.extend(self.admit(peer, frame, answers)),
                other => connection(&**self, other),
            }
        }
        if self.cache.is_served_aside() {
            self.start_all(jobs, answers).await;
        } else if !jobs.is_empty() {
            self.cache.begin_turn(jobs.len());
            // When the requests are done, so is what they asked of the disk.
            let work = self.cache.work(&self.rt, self.rt.disk(), self.container);
            if let Either::Second(()) = race(self.execute_all(jobs, answers), work).await {
                unreachable!("the cache works for ever");
            }
        }
        Ok(())
    }

    async fn commit(&self) -> Result<(), DataServerError> {
        match &self.journal {
            Some(journal) => journal.commit().await.map(drop).map_err(stopped_by),
            None => Ok(()),
        }
    }

    fn committed(self: &Rc<Self>, answers: &Answers<Self>) {
        if answers.iter().any(|answer| matches!(answer.until, Some(When::Journaled(_)))) {
            self.release_soon();
        }
    }

    async fn wait(&self, until: When) -> bool {
        match (until, &self.journal) {
            (When::Durable(change), _) => self.wait_durable(change).await.is_ok(),
            (When::Journaled(lsn), Some(journal)) => {
                let synced = journal.sync_through(lsn).await;
                synced.map_err(|error| self.fail(stopped_by(error))).is_ok()
            }
            (When::Now, _) | (When::Journaled(_), None) => true,
        }
    }

    async fn look_after(self: &Rc<Self>, has_answered: bool) {
        if has_answered {
            self.look_after_space().await;
            self.look_after_journal();
        }
    }

    fn fail(&self, failure: DataServerError) {
        Server::fail(self, failure);
    }

    async fn bring_to_rest(&self) -> Result<(), DataServerError> {
        self.last_round().await
    }

    fn load(&self) -> Load {
        let (load, disk) = (self.cache.load(), self.cache.disk_use());
        let (done, done_bytes) = (disk.reads + disk.writes, disk.read_bytes + disk.written_bytes);
        let disk = Some([load.requests, load.bytes, load.operations, done, done_bytes]);
        Load { waiting: 0, answered_bytes: load.answered_bytes, disk }
    }

    async fn info(&self) -> weft_base::Result<ServerInfo> {
        let space = self.space_report().await;
        let (_, device_free_bytes) = self.rt.disk().space().await.unwrap_or_default();
        let is_known = self.shell.introduction.is_complete();
        Ok(ServerInfo {
            state: if is_known { "serving" } else { "waiting for the metadata servers to know it" }.into(),
            objects: self.table.borrow().object_count(),
            used_bytes: space.used,
            capacity_bytes: space.capacity,
            free_bytes: space.free,
            disk: Some(self.cache.disk_use()),
            device_free_bytes,
            ..self.shell.info(self.journal.as_ref().map(|journal| journal.stats()).unwrap_or_default())
        })
    }

    fn gauges(&self) -> Gauges {
        let (cache_bytes, cache_bytes_max) = self.cache.answered_bytes();
        Gauges { clients: self.clients.borrow().connected_count(), cache_bytes, cache_bytes_max, ..Gauges::default() }
    }
}

impl<R: ServerRuntime> Server<R> {
    /// A request that may be executed; others are refused.
    fn admit(&self, peer: PeerId, frame: Frame, answers: &mut Answers<Self>) -> Option<Job> {
        let Frame { header, body, bulk } = frame;
        let mut served = self.shell.begin(&header, data_request(header.op));
        let admitted = self.shell.admit(&header).and_then(|()| match self.clients.borrow_mut().admit(&header) {
            Verdict::Stale => Err(Status::StaleRequest),
            verdict => Ok((verdict == Verdict::Executed, Request::decode(header.op, body)?)),
        });
        match admitted {
            Ok((executed, request)) => {
                self.shell.asked(&mut served, &request, true);
                self.shell.list(&mut served);
                Some(Job { peer, header, request, bulk, executed, served })
            }
            Err(status) => {
                answers.push(self.refuse(peer, &header, served, status));
                None
            }
        }
    }

    /// The answer to a request that is not executed.
    pub fn refuse(&self, peer: PeerId, header: &Header, mut served: Served, status: Status) -> Answer<When> {
        served.started(weft_trace::now());
        let frame = served.reply(header, Err(status));
        Answer { peer, frame, served, until: None }
    }

    /// Executes a request.
    pub async fn execute_one(&self, job: Job) -> Answer<When> {
        let Job { peer, header, request, bulk, executed, mut served } = job;
        served.started(weft_trace::now());
        self.rt.cpu(Work::Request).await;
        self.rt.pass(FaultPoint::ServerCpu).await;
        let written_bytes = if matches!(request, Request::Write(_)) { bulk.len() } else { 0 };
        let (frame, until) = match self.execute(peer, &header, request, bulk, executed).await {
            Ok(done) => {
                self.clients.borrow_mut().executed(header.request);
                self.shell.moved(&served, done.bulk_bytes(), written_bytes);
                done.answer(&header)
            }
            Err(status) => (served.reply(&header, Err(status)), None),
        };
        served.worked(weft_trace::now());
        Answer { peer, frame, served, until }
    }

    async fn execute(&self, peer: PeerId, header: &Header, request: Request, bulk: Payload, executed: bool) -> weft_base::Result<Done> {
        match request {
            // A copy may come within one turn, so this is asked again.
            Request::Write(request) => ops::write(self, header, request, bulk, executed || self.was_executed(header)).await,
            Request::Read(request) => ops::read(self, peer, header, request).await,
            Request::ObjectStat(request) => ops::stat(self, header, &request),
            Request::ObjectTruncate(request) => ops::truncate(self, header, &request, executed || self.was_executed(header)).await,
            Request::ObjectSync(request) => ops::sync(self, header, &request),
            Request::ObjectRemove(request) => ops::remove(self, header, &request).await,
            Request::ObjectEpoch(request) => ops::epoch(self, header, &request).await,
            other => weft_serving::answer_of_any(self, other).await.map(Done::encoded),
        }
    }

    fn was_executed(&self, header: &Header) -> bool {
        self.clients.borrow_mut().admit(header) == Verdict::Executed
    }
}
