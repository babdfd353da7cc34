//! The server: how it starts, and what it does in a turn.

use std::rc::Rc;

use weft_base::{ClientId, Nanos, Status};
use weft_live::Gauges;
use weft_rt::{Arrival, Disk, FaultPoint, PeerId, ServerRuntime, Work};
use weft_serving::{Intake, OutgoingReplies, OutgoingReply, ServedRequest, ServerLoad, Service, Shell, connection, stored_durability};
use weft_trace::EventId;
use weft_wire::ops::ServerInfo;
use weft_wire::{Frame, Header, Request, Rights};

use crate::checkpoint::checkpoint_flow;
use crate::clients::Verdict;
use crate::done::When;
use crate::durability::sync_flow;
use crate::in_flight::AdmittedRequest;
use crate::objects::Objects;
use crate::ops;
use crate::recovery::{boot_id, open};
use crate::space::reclaim_flow;
use crate::state::Server;
use crate::{DataServerConfig, Durability, ServerError};

/// Runs a data server until it must stop, or is asked to: then everything is on stable storage when
/// it ends.
///
/// # Errors
/// [`ServerError`]: the store is missing, damaged or somebody else's, or the disk failed so that
/// nothing acknowledged from now on would be safe.
pub async fn run<R: ServerRuntime>(rt: R, mut config: DataServerConfig) -> Result<(), ServerError> {
    config.serving.durability = stored_durability(rt.disk(), &config.serving).await?;
    // Only where nothing is promised may a write be answered early.
    config.cache.write_back = config.cache.write_back.filter(|_| config.serving.durability == Durability::None);
    let foundation = open(&rt, &config).await?;
    let server = Server::new(rt, config, foundation);
    server.rt.spawn(weft_serving::introduce(server.clone()));
    server.rt.spawn(sync_flow(server.clone()));
    server.rt.spawn(reclaim_flow(server.clone()));
    server.rt.spawn(checkpoint_flow(server.clone()));
    if server.objects.container.cache.is_served_aside() {
        server.rt.spawn(cache_flow(server.clone()));
    }
    server.objects.limit_windows().await;
    server.objects.look_after_journal();
    weft_serving::serve(&server).await
}

/// Serves the disk beside the turns.
async fn cache_flow<R: ServerRuntime>(server: Rc<Server<R>>) {
    let error = server.objects.container.serve().await;
    server.fail(ServerError::Disk("write what was answered before", error));
}

impl<R: ServerRuntime> Service for Server<R> {
    type Rt = R;
    type Until = When;
    const TURN: EventId = weft_trace::event::DATA_TURN;

    fn shell(&self) -> &Shell<R> {
        &self.shell
    }

    fn connected(&self, client: ClientId, incarnation: u32) {
        self.clients.borrow_mut().connected(client, incarnation);
    }

    fn disconnected(&self, client: ClientId, now: Nanos) {
        self.clients.borrow_mut().disconnected(client, now);
    }

    /// A server that is asked to stop lets everything finish first.
    fn intake(&self, is_to_stop: bool) -> Intake {
        if self.in_flight.have_finished() {
            Intake::Busy
        } else if is_to_stop && self.in_flight.is_empty() {
            Intake::Over
        } else if is_to_stop || !self.in_flight.has_room() {
            Intake::Closed
        } else {
            Intake::Open
        }
    }

    async fn make_room(&self) -> Result<(), ServerError> {
        self.objects.look_for_room().await;
        Ok(())
    }

    async fn work(self: &Rc<Self>, arrivals: &mut Vec<Arrival>, answers: &mut OutgoingReplies<Self>) -> Result<(), ServerError> {
        let mut jobs = Vec::with_capacity(arrivals.len());
        for arrival in arrivals.drain(..) {
            match arrival {
                Arrival::Request { peer, frame } => jobs.extend(self.admit(peer, frame, answers)),
                other => connection(&**self, other),
            }
        }
        self.start_all(jobs, answers).await;
        Ok(())
    }

    async fn commit(&self) -> Result<(), ServerError> {
        self.objects.commit().await
    }

    fn committed(self: &Rc<Self>, answers: &OutgoingReplies<Self>) {
        if answers.iter().any(|answer| matches!(answer.until, Some(When::Journaled(_)))) {
            Objects::release_soon(self);
        }
    }

    async fn wait(&self, until: When) -> bool {
        match until {
            When::Now => true,
            When::Durable(change) => self.objects.wait_durable(change).await.is_ok(),
            When::Journaled(lsn) => self.objects.wait_journaled(lsn).await.map_err(|error| self.fail(error)).is_ok(),
        }
    }

    async fn look_after(self: &Rc<Self>, has_answered: bool) {
        if has_answered {
            if self.objects.look_after_space().await {
                self.clients.borrow_mut().forget_absent(self.rt.now());
            }
            self.objects.look_after_journal();
        }
    }

    fn fail(&self, failure: ServerError) {
        Server::fail(self, failure);
    }

    async fn bring_to_rest(&self) -> Result<(), ServerError> {
        self.objects.last_round().await?;
        self.shell.failure().map_or(Ok(()), Err)
    }

    async fn promise(&self, durability: Durability) -> weft_base::Result<()> {
        self.objects.durability.set(durability);
        self.objects.container.cache.answer_early(durability == Durability::None);
        Ok(())
    }

    async fn flush(&self) -> weft_base::Result<()> {
        self.objects.wait_durable(self.objects.progress.newest()).await
    }

    fn durable_lsn(&self) -> Option<u64> {
        self.objects.journal.as_ref().map(|journal| journal.durable_lsn().0)
    }

    fn boot_id(&self, durability: Durability) -> u64 {
        let answers_early = self.objects.config.cache.write_back.is_some() && durability == Durability::None;
        boot_id(self.rt.disk(), answers_early)
    }

    fn load(&self) -> ServerLoad {
        let (load, disk) = (self.objects.container.cache.load(), self.objects.container.cache.disk_use());
        let (done, done_bytes) = (disk.reads + disk.writes, disk.read_bytes + disk.written_bytes);
        let disk = Some([load.requests, load.bytes, load.operations, done, done_bytes]);
        ServerLoad { answered_bytes: load.answered_bytes, disk }
    }

    async fn info(&self) -> weft_base::Result<ServerInfo> {
        let space = self.objects.space_report().await;
        let (_, device_free_bytes) = self.rt.disk().space().await.unwrap_or_default();
        let is_known = self.shell.introduction.is_complete();
        Ok(ServerInfo {
            state: if is_known { "serving" } else { "waiting for the metadata servers to know it" }.into(),
            objects: self.objects.table.borrow().object_count(),
            used_bytes: space.used,
            capacity_bytes: space.capacity,
            free_bytes: space.free,
            disk: Some(self.objects.container.cache.disk_use()),
            device_free_bytes,
            ..self.shell.info(self.objects.journal_stats())
        })
    }

    fn gauges(&self) -> Gauges {
        let (cache_bytes, cache_bytes_max) = self.objects.container.cache.answered_bytes();
        Gauges { clients: self.clients.borrow().connected_count(), cache_bytes, cache_bytes_max, ..Gauges::default() }
    }
}

impl<R: ServerRuntime> Server<R> {
    /// A request that may be executed; others are refused.
    fn admit(&self, peer: PeerId, frame: Frame, answers: &mut OutgoingReplies<Self>) -> Option<AdmittedRequest> {
        let Frame { header, body, bulk } = frame;
        let mut served = self.shell.begin(&header);
        let admitted = self.shell.admit(peer, &header, served.op()).and_then(|op| match self.clients.borrow_mut().admit(&header) {
            Verdict::Stale => Err(Status::StaleRequest),
            verdict => Ok((verdict == Verdict::Executed, self.shell.decode(peer, op, body, |_| (Rights::default(), None))?)),
        });
        match admitted {
            Ok((executed, request)) => {
                self.shell.asked(&mut served, &request, true);
                self.shell.list(&mut served);
                Some(AdmittedRequest { peer, header, request, bulk, executed, served })
            }
            Err(status) => {
                answers.push(self.refuse(peer, &header, served, status));
                None
            }
        }
    }

    /// The answer to a request that is not executed.
    pub fn refuse(&self, peer: PeerId, header: &Header, mut served: ServedRequest, status: Status) -> OutgoingReply<When> {
        served.started(weft_trace::now());
        let frame = served.reply(header, Err(status));
        OutgoingReply { peer, frame, served, until: None }
    }

    /// Executes a request.
    pub async fn execute_one(&self, job: AdmittedRequest) -> OutgoingReply<When> {
        let AdmittedRequest { peer, header, request, bulk, executed, mut served } = job;
        served.started(weft_trace::now());
        self.rt.cpu(Work::Request).await;
        self.rt.pass(FaultPoint::ServerCpu).await;
        let written_bytes = if matches!(request, Request::Write(_)) { bulk.len() } else { 0 };
        let (frame, until) = match ops::execute(self, peer, &header, request, bulk, executed).await {
            Ok(done) => {
                self.clients.borrow_mut().executed(header.request);
                self.shell.moved(&served, done.bulk_bytes(), written_bytes);
                done.answer(&header)
            }
            Err(status) => (served.reply(&header, Err(status)), None),
        };
        served.worked(weft_trace::now());
        OutgoingReply { peer, frame, served, until }
    }
}
