//! The caller against a server that answers as a test says, in a time of its own.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use weft_base::{ClientId, Handle, MILLISECOND, Nanos, Payload, SECOND, ServerId, Status, WallTime};
use weft_rt::{Outgoing, Runtime, Work};
use weft_wire::ops::{ParentReply, ParentRequest};
use weft_wire::{Flags, Frame, Header, Wire};

use crate::{Caller, CallerStats, both, run_window};

const META0: ServerId = ServerId(0);
const PATIENCE: Nanos = Nanos(30 * SECOND);

/// What becomes of a request.
#[derive(Clone, Copy)]
enum Fate {
    /// It is answered by a server in its n-th life.
    Answered(u32),
    Refused(Status),
    /// Nothing comes back before the attempt ends.
    Lost,
    /// The connection breaks.
    Broken,
    /// It is answered when the test says so.
    Late,
}

#[derive(Default)]
struct Stage {
    now: Cell<u64>,
    sent: RefCell<Vec<(Nanos, Header)>>,
    /// Fates of the next requests; after them all are answered.
    fates: RefCell<VecDeque<Fate>>,
    late_may_come: Cell<bool>,
}

#[derive(Clone, Default)]
struct Scripted(Rc<Stage>);

impl Runtime for Scripted {
    fn now(&self) -> Nanos {
        Nanos(self.0.now.get())
    }
    fn wall(&self) -> WallTime {
        WallTime(0)
    }
    fn random(&self) -> u64 {
        7
    }
    async fn sleep_until(&self, at: Nanos) {
        self.0.now.set(self.0.now.get().max(at.0));
    }
    async fn cpu(&self, _: Work) {}
    async fn request<'a>(&'a self, _: ServerId, request: Outgoing<'a>, deadline: Nanos) -> Result<Frame, Status> {
        self.0.sent.borrow_mut().push((self.now(), request.header));
        let fate = self.0.fates.borrow_mut().pop_front().unwrap_or(Fate::Answered(1));
        let reply = |boot, result| {
            let mut frame = Frame::reply(&request.header, result, Payload::EMPTY);
            frame.header.server_boot = boot;
            Ok(frame)
        };
        match fate {
            Fate::Answered(boot) => reply(boot, Ok(ParentReply { parent: Handle(1) }.to_bytes())),
            Fate::Refused(status) => reply(1, Err(status)),
            Fate::Broken => Err(Status::Unreachable),
            Fate::Lost => {
                self.sleep_until(deadline).await;
                Err(Status::TimedOut)
            }
            Fate::Late => {
                std::future::poll_fn(|context| {
                    context.waker().wake_by_ref();
                    if self.0.late_may_come.get() { Poll::Ready(()) } else { Poll::Pending }
                })
                .await;
                reply(1, Ok(ParentReply { parent: Handle(1) }.to_bytes()))
            }
        }
    }
}

/// A caller, and the stage on which its requests have these fates.
fn caller(fates: &[Fate]) -> (Caller<Scripted>, Rc<Stage>) {
    let rt = Scripted::default();
    *rt.0.fates.borrow_mut() = fates.iter().copied().collect();
    let stage = rt.0.clone();
    (Caller::new(rt, ClientId(1), 1), stage)
}

async fn ask(caller: &Caller<Scripted>) -> Result<ParentReply, Status> {
    ask_until(caller, PATIENCE).await
}

async fn ask_until(caller: &Caller<Scripted>, deadline: Nanos) -> Result<ParentReply, Status> {
    caller.call(META0, &ParentRequest { dir: Handle(2) }, deadline).await
}

fn run<T>(flow: impl Future<Output = T>) -> T {
    let mut flow = pin!(flow);
    loop {
        if let Poll::Ready(value) = flow.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return value;
        }
    }
}

#[test]
fn a_lost_reply_is_asked_for_again_under_the_same_number() {
    let (caller, stage) = caller(&[Fate::Lost, Fate::Lost]);
    assert_eq!(run(ask(&caller)), Ok(ParentReply { parent: Handle(1) }));
    let sent: Vec<_> = stage.sent.borrow().iter().map(|(_, header)| (header.request.sequence, header.flags == Flags::RETRY)).collect();
    assert_eq!(sent, [(1, false), (1, true), (1, true)]);
    let CallerStats { requests, retries, .. } = caller.stats();
    assert_eq!((requests, retries), (3, 2));
}

#[test]
fn headers_tell_which_requests_are_finished() {
    // Request 2 is slow; it is still waited for when those behind it are sent.
    let (caller, stage) = caller(&[Fate::Answered(1), Fate::Late]);
    let others = async {
        run_window((0..5).map(|_| ask(&caller)), 1).await.into_iter().for_each(|reply| assert!(reply.is_ok()));
        stage.late_may_come.set(true);
    };
    let first_and_slow = async {
        ask(&caller).await.expect("the server answers");
        ask(&caller).await.expect("the server answers at last");
    };
    run(both(first_and_slow, others));
    run(ask(&caller)).expect("the server answers");
    let sent = stage.sent.borrow();
    let finished: Vec<_> = sent.iter().map(|(_, header)| (header.request.sequence, header.finished_below())).collect();
    assert_eq!(finished, [(1, 1), (2, 2), (3, 2), (4, 2), (5, 2), (6, 2), (7, 2), (8, 8)]);
}

#[test]
fn a_busy_object_is_asked_for_again_soon() {
    let (caller, stage) = caller(&[Fate::Refused(Status::Busy)]);
    run(ask(&caller)).expect("the second answer counts");
    let sent = stage.sent.borrow();
    assert_eq!(sent.len(), 2);
    assert!(sent[1].0.since(sent[0].0) < MILLISECOND);
}

#[test]
fn a_slow_server_is_asked_less_and_less_often_until_the_deadline() {
    let (caller, stage) = caller(&[Fate::Lost; 20]);
    assert_eq!(run(ask(&caller)), Err(Status::TimedOut));
    let at: Vec<u64> = stage.sent.borrow().iter().map(|(at, _)| at.0 / SECOND).collect();
    assert_eq!(at, [0, 2, 6, 14], "seconds after the first attempt");
    assert_eq!(stage.now.get(), PATIENCE.0);
}

#[test]
fn without_a_deadline_what_is_in_doubt_is_asked_until_it_is_known() {
    let unknown = [Fate::Lost, Fate::Broken, Fate::Refused(Status::NotReady)].repeat(20);
    let (asks, stage) = caller(&unknown);
    assert_eq!(run(ask_until(&asks, Nanos::NEVER)), Ok(ParentReply { parent: Handle(1) }));
    assert!(stage.now.get() > 10 * PATIENCE.0, "{} s", stage.now.get() / SECOND);
    assert!(stage.sent.borrow().iter().all(|(_, header)| header.request.sequence == 1), "it is one request");
    // What is refused for long was not done.
    let fates = [unknown, vec![Fate::Refused(Status::Busy); 10_000]].concat();
    let (refused, stage) = caller(&fates);
    assert_eq!(run(ask_until(&refused, Nanos::NEVER)), Err(Status::Busy));
    assert!(stage.sent.borrow().len() < 1000);
}

#[test]
fn a_refusal_that_stays_is_told_at_once() {
    let (caller, stage) = caller(&[Fate::Refused(Status::NotFound)]);
    assert_eq!(run(ask(&caller)), Err(Status::NotFound));
    assert_eq!(stage.sent.borrow().len(), 1);
}

#[test]
fn a_server_that_started_again_or_was_away_is_named_once() {
    let (caller, _) = caller(&[Fate::Answered(1), Fate::Answered(2), Fate::Broken, Fate::Answered(2)]);
    run(ask(&caller)).expect("the server answers");
    assert!(!caller.has_restarted() && caller.take_restarted().is_empty());
    run(ask(&caller)).expect("the next life answers");
    assert!(caller.has_restarted());
    assert_eq!(caller.take_restarted(), [META0]);
    assert!(caller.take_restarted().is_empty());
    run(ask(&caller)).expect("it answers after the connection broke");
    assert_eq!(caller.take_restarted(), [META0], "it may have taken us for dead");
    caller.mark_untold(META0);
    assert!(caller.take_restarted().is_empty(), "nothing was answered since");
    run(ask(&caller)).expect("the server answers");
    assert_eq!(caller.take_restarted(), [META0]);
}
