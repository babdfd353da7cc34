//! The loop of turns around a server that does nothing but what its tests ask for, in virtual time.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use weft_base::{ClientId, ClusterMap, FsId, Handle, MILLISECOND, Nanos, Payload, RequestId, SECOND, ServerEntry, ServerId, Status};
use weft_live::Gauges;
use weft_rt::{Arrival, Bulk, DiskError, Outgoing, PeerId, Runtime, ServerRuntime, Signal};
use weft_rt_sim::{Joined, NodeConfig, NodeId, Profile, Sim, SimRt};
use weft_trace::EventId;
use weft_wire::ops::{GetAttrRequest, GetMapReply, GetMapRequest, LiveReply, LiveRequest, ServerInfo};
use weft_wire::{ClusterKey, Frame, Header, Operation, Request, Rights, Wire};

use crate::{
    Durability, Engine, Intake, Life, OutgoingReplies, OutgoingReply, Parked, ServedRequest, ServerError, ServerLoad, Service,
    ServingConfig, Shell, connection, serve,
};

const HERE: ServerId = ServerId(0);
/// A request about this object meets a lock while there is one.
const LOCKED: Handle = Handle(2);
/// The answer to a request about this object waits for stable storage.
const DURABLE: Handle = Handle(3);

fn broken() -> ServerError {
    ServerError::Disk("write", DiskError::NoSpace)
}

/// What tests say and see.
#[derive(Default)]
struct Stage {
    log: RefCell<Vec<&'static str>>,
    is_locked: Cell<bool>,
    is_durable: Cell<bool>,
    commit_fails: Cell<bool>,
    changed: Signal,
    toy: RefCell<Option<Rc<Toy>>>,
    outcome: RefCell<Option<Result<(), ServerError>>>,
}

struct Toy {
    shell: Shell<SimRt>,
    stage: Rc<Stage>,
}

impl Toy {
    async fn handle(
        self: &Rc<Self>,
        peer: PeerId,
        frame: Frame,
        waited: Option<(ServedRequest, Option<Nanos>)>,
        answers: &mut OutgoingReplies<Toy>,
    ) {
        let (shell, header, is_first) = (&self.shell, frame.header, waited.is_none());
        let (mut served, until) = waited.unwrap_or_else(|| (shell.begin(&header), None));
        self.stage.log.borrow_mut().push("executes");
        let decode = |op| shell.decode(peer, op, frame.body.clone(), |_| (Rights::default(), None));
        let asked = shell.admit(peer, &header, served.op()).and_then(decode);
        if let Ok(request) = &asked {
            shell.asked(&mut served, request, is_first);
        }
        let object = served.object();
        let result = match asked {
            Ok(Request::GetAttr(_)) if object == LOCKED && self.stage.is_locked.get() => {
                match shell.park(Parked { peer, frame, served, status: Status::Busy, until }) {
                    None => return,
                    Some(parked) => served = parked.served,
                }
                Err(Status::Busy)
            }
            Ok(Request::GetAttr(_)) => Ok(().to_bytes()),
            Ok(request) => crate::answer_of_any(&**self, request).await,
            Err(status) => Err(status),
        };
        let frame = served.reply(&header, result);
        answers.push(OutgoingReply { peer, frame, served, until: (object == DURABLE).then_some(()) });
    }
}

impl Service for Toy {
    type Rt = SimRt;
    type Until = ();
    const TURN: EventId = weft_trace::event::META_TURN;

    fn shell(&self) -> &Shell<SimRt> {
        &self.shell
    }
    fn connected(&self, _: ClientId, _: u32) {
        self.stage.log.borrow_mut().push("connected");
    }
    fn disconnected(&self, _: ClientId, _: Nanos) {}
    fn intake(&self, is_to_stop: bool) -> Intake {
        match is_to_stop {
            true => Intake::Over,
            false if self.shell.has_released() => Intake::Ready,
            false => Intake::Open,
        }
    }
    async fn make_room(&self) -> Result<(), ServerError> {
        Ok(())
    }
    async fn work(self: &Rc<Self>, arrivals: &mut Vec<Arrival>, answers: &mut OutgoingReplies<Toy>) -> Result<(), ServerError> {
        for Parked { peer, frame, served, until, .. } in self.shell.unpark() {
            self.handle(peer, frame, Some((served, until)), answers).await;
        }
        for arrival in arrivals.drain(..) {
            match arrival {
                Arrival::Request { peer, frame } => self.handle(peer, frame, None, answers).await,
                other => connection(&**self, other),
            }
        }
        Ok(())
    }
    async fn commit(&self) -> Result<(), ServerError> {
        self.stage.log.borrow_mut().push("commits");
        if self.stage.commit_fails.get() { Err(broken()) } else { Ok(()) }
    }
    fn committed(self: &Rc<Self>, answers: &OutgoingReplies<Toy>) {
        self.stage.log.borrow_mut().extend(answers.iter().map(|_| "answers"));
    }
    async fn wait(&self, (): ()) -> bool {
        while !self.stage.is_durable.get() {
            self.stage.changed.wait().await;
        }
        true
    }
    async fn look_after(self: &Rc<Self>, _: bool) {}
    async fn promise(&self, _: Durability) -> weft_base::Result<()> {
        Ok(())
    }
    async fn flush(&self) -> weft_base::Result<()> {
        Ok(())
    }
    async fn bring_to_rest(&self) -> Result<(), ServerError> {
        self.stage.log.borrow_mut().push("rests");
        Ok(())
    }
    fn load(&self) -> ServerLoad {
        ServerLoad::default()
    }
    async fn info(&self) -> weft_base::Result<ServerInfo> {
        Ok(self.shell.info(Default::default()))
    }
    fn gauges(&self) -> Gauges {
        Gauges::default()
    }
}

/// The toy on one machine, its clients on another.
struct Play {
    sim: Sim,
    client: NodeId,
    stage: Rc<Stage>,
}

impl Play {
    fn new() -> Play {
        let sim = Sim::new(1, Profile::instant());
        let entry = |id: ServerId| ServerEntry { id, name: id.to_string(), address: format!("sim:{id}") };
        let map = ClusterMap::of(FsId(5), "test", [HERE, ServerId::data(0)].map(entry), 1 << 20).founded(1);
        let (engine, durability) = (Engine::Memory, Durability::None);
        let config = ServingConfig { name: "toy".into(), engine, durability, ..ServingConfig::new(HERE, map, ClusterKey([1; 32])) };
        let stage: Rc<Stage> = Rc::default();
        let (node, shared) = (sim.add_node(NodeConfig::server(HERE)), stage.clone());
        sim.start(node, move |rt: SimRt| {
            let (stage, config) = (shared.clone(), config.clone());
            let life = Life { boot: 7, superblock: None };
            async move {
                let toy = Rc::new(Toy { shell: Shell::new(rt.clone(), &config, life, (ClientId(9), 1)), stage: stage.clone() });
                *stage.toy.borrow_mut() = Some(toy.clone());
                let looker = toy.clone();
                rt.clone().spawn(async move {
                    loop {
                        rt.sleep_until(rt.now() + 10 * MILLISECOND).await;
                        looker.shell.expire_parked();
                    }
                });
                *stage.outcome.borrow_mut() = Some(serve(&toy).await);
            }
        });
        let client = sim.add_node(NodeConfig::client("client"));
        Play { sim, client, stage }
    }

    fn toy(&self) -> Rc<Toy> {
        self.stage.toy.borrow().clone().expect("the server has begun")
    }

    /// Sends one request; its reply comes within a second or never.
    fn send<O: Operation + 'static>(&self, sequence: u64, server: ServerId, operation: O) -> Joined<Result<Frame, Status>> {
        self.sim.spawn_on(self.client, move |rt| async move {
            let header = Header::request(O::OP, server, RequestId { client: ClientId(1), incarnation: 1, sequence }, 0);
            let outgoing = Outgoing { header, body: operation.to_bytes(), bulk: Bulk::None };
            rt.request(HERE, outgoing, rt.now() + SECOND).await
        })
    }

    fn ask(&self, sequence: u64, handle: Handle) -> Joined<Result<Frame, Status>> {
        self.send(sequence, HERE, GetAttrRequest { handle })
    }

    fn run(&self, ms: u64) {
        self.sim.run_for(ms * MILLISECOND);
    }

    fn log(&self) -> Vec<&'static str> {
        self.stage.log.take()
    }
}

/// The status of a reply that must be there.
fn status(reply: &Joined<Result<Frame, Status>>) -> Result<(), Status> {
    reply.take().expect("there is an answer").and_then(|frame| frame.status())
}

#[test]
fn what_arrives_together_is_committed_once_and_answered_after_that() {
    let play = Play::new();
    let replies: Vec<_> = (1..=3).map(|sequence| play.ask(sequence, Handle(1))).collect();
    play.run(100);
    assert!(replies.iter().all(|reply| status(reply).is_ok()));
    let log = play.log();
    let batches: Vec<_> = log.split(|entry| *entry == "commits").collect();
    assert_eq!(log.iter().filter(|entry| **entry == "answers").count(), 3);
    for (turn, after) in batches.iter().zip(&batches[1..]) {
        let count = |part: &[&str], what| part.iter().filter(|entry| **entry == what).count();
        assert_eq!(count(turn, "executes"), count(after, "answers"), "{log:?}");
    }
}

#[test]
fn an_answer_may_wait_for_stable_storage_and_holds_up_nobody() {
    let play = Play::new();
    let (slow, quick) = (play.ask(1, DURABLE), play.ask(2, Handle(1)));
    play.run(100);
    assert!(status(&quick).is_ok() && !slow.is_over());
    play.stage.is_durable.set(true);
    play.stage.changed.notify();
    play.run(100);
    assert!(status(&slow).is_ok());
}

#[test]
fn a_commit_that_fails_ends_the_server_and_no_answer_leaves() {
    let play = Play::new();
    assert!({
        let reply = play.ask(1, Handle(1));
        play.run(100);
        status(&reply).is_ok()
    });
    play.stage.commit_fails.set(true);
    let reply = play.ask(2, Handle(1));
    play.run(2000);
    assert!(status(&reply).is_err());
    assert_eq!(*play.stage.outcome.borrow(), Some(Err(broken())));
    assert_eq!(play.log().iter().filter(|entry| **entry == "answers").count(), 1);
}

#[test]
fn a_request_waits_for_a_lock_until_it_is_released() {
    let play = Play::new();
    play.stage.is_locked.set(true);
    let (waits, goes_on) = (play.ask(1, LOCKED), play.ask(2, Handle(1)));
    play.run(100);
    assert!(status(&goes_on).is_ok() && !waits.is_over());
    play.toy().shell.release();
    play.run(100);
    assert!(!waits.is_over(), "looked at again, and the lock is still there");
    play.stage.is_locked.set(false);
    play.run(100);
    assert!(!waits.is_over(), "nobody has said that it is released");
    play.toy().shell.release();
    play.run(100);
    assert!(status(&waits).is_ok());
    assert!(!play.toy().shell.has_parked());
}

#[test]
fn a_request_does_not_wait_for_ever_and_releases_do_not_prolong_it() {
    let play = Play::new();
    play.stage.is_locked.set(true);
    let waits = play.ask(1, LOCKED);
    play.run(300);
    play.toy().shell.release();
    play.run(150);
    assert!(!waits.is_over());
    play.run(100);
    assert_eq!(status(&waits), Err(Status::Busy));
    assert!(!play.toy().shell.has_parked());
}

#[test]
fn a_repetition_takes_the_place_of_the_request_that_waits() {
    let play = Play::new();
    play.stage.is_locked.set(true);
    let first = play.ask(1, LOCKED);
    play.run(100);
    let toy = play.toy();
    let header = Header::request(GetAttrRequest::OP, HERE, RequestId { client: ClientId(1), incarnation: 1, sequence: 1 }, 0);
    let frame = Frame { header, body: GetAttrRequest { handle: LOCKED }.to_bytes(), bulk: Payload::EMPTY };
    let again = Parked { peer: PeerId(99), served: toy.shell.begin(&header), frame, status: Status::Busy, until: None };
    assert!(toy.shell.park(again).is_none());
    toy.shell.release();
    let waiting = toy.shell.unpark();
    assert_eq!(waiting.iter().map(|parked| parked.peer).collect::<Vec<_>>(), [PeerId(99)]);
    assert!(toy.shell.live.borrow().in_flight.is_empty(), "nobody is listed twice, and who is looked at again is not listed");
    play.run(2000);
    assert_eq!(first.take().map(|reply| reply.is_err()), Some(true), "another connection has the answer");
}

#[test]
fn unauthenticated_peers_and_requests_for_others_are_refused() {
    let play = Play::new();
    let wrong = play.send(1, ServerId(1), GetAttrRequest { handle: Handle(1) });
    let map = play.send(2, weft_wire::handshake::ANY_SERVER, GetMapRequest {});
    play.run(100);
    assert_eq!(status(&wrong), Err(Status::WrongServer));
    let map = map.take().expect("an answer").expect("a reply");
    assert_eq!((map.header.server_boot, GetMapReply::from_bytes(map.body).expect("a map").map.fs_id), (7, FsId(5)));
    assert_eq!(map.header.map_epoch(), 1);
}

#[test]
fn a_server_that_is_asked_to_stop_comes_to_rest() {
    let play = Play::new();
    play.run(100);
    play.toy().shell.is_to_stop.set(true);
    play.toy().shell.wake();
    play.run(100);
    assert_eq!(*play.stage.outcome.borrow(), Some(Ok(())));
    assert_eq!(play.log().last(), Some(&"rests"));
}

#[test]
fn dashboards_see_every_request_once() {
    let play = Play::new();
    play.stage.is_locked.set(true);
    for (sequence, handle) in [(1, Handle(1)), (2, Handle(1)), (3, LOCKED), (4, DURABLE)] {
        let _unwatched = play.ask(sequence, handle);
    }
    play.run(100);
    let reply = play.send(5, HERE, LiveRequest {});
    play.run(10);
    let live = LiveReply::from_bytes(reply.take().expect("an answer").expect("a reply").body).expect("a report");
    let answered = live.operations.iter().find(|row| row.op == GetAttrRequest::OP.code()).map(|row| (row.count, row.failed));
    assert_eq!((live.info.requests, answered, live.oldest.len(), live.queued), (5, Some((2, 0)), 2, 2));
    play.run(1000);
    let reply = play.send(6, HERE, LiveRequest {});
    play.run(10);
    let live = LiveReply::from_bytes(reply.take().expect("an answer").expect("a reply").body).expect("a report");
    let answered = live.operations.iter().find(|row| row.op == GetAttrRequest::OP.code()).map(|row| (row.count, row.failed));
    assert_eq!((answered, live.oldest.len()), (Some((3, 1)), 1), "the one that met a lock was refused");
}
