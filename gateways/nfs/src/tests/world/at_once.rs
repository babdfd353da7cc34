//! Calls of several programs at the same time.

use std::cell::RefCell;
use std::rc::Rc;

use bytes::Bytes;
use weft_base::{MILLISECOND, Nanos};
use weft_rt::Runtime;
use weft_rt_sim::{Joined, NodeId};

use super::{LIMIT, Outcome, User, World};
use crate::locks::NLM_PROGRAM;
use crate::rpc::RpcAnswer;
use crate::types::NfsStatus;
use crate::xdr::{Reader, Writer};

/// The status of a call that is not answered yet.
pub(crate) const UNANSWERED: u32 = u32::MAX;

/// The answers so far of a program that is run from its beginning again after each of them, and
/// what it calls next.
#[derive(Default)]
pub(crate) struct Replay {
    answers: Vec<Reader>,
    next: usize,
    calls: Option<(u32, u32, Writer)>,
}

impl Replay {
    pub(super) fn answer(&mut self, program: u32, procedure: u32, arguments: &Writer) -> Reader {
        self.next += 1;
        self.answers.get(self.next - 1).cloned().unwrap_or_else(|| {
            self.calls = Some((program, procedure, arguments.clone()));
            let mut out = Writer::default();
            if program == NLM_PROGRAM {
                out.opaque(b"cookie");
            }
            out.u32(UNANSWERED);
            Reader::new(out.0.into())
        })
    }
}

/// What a program does: the same calls for the same answers.
pub(crate) type Call<T> = Box<dyn Fn(&User<'_>) -> Outcome<T>>;

/// What came of it.
#[derive(Clone, Debug)]
pub(crate) struct Done<T> {
    pub outcome: Outcome<T>,
    /// It may have been done more than once.
    pub is_again: bool,
    pub from: Nanos,
    pub to: Nanos,
}

struct Running<'a, T> {
    user: User<'a>,
    call: Call<T>,
    sent: (NodeId, Bytes, Joined<Option<RpcAnswer>>),
    from: Nanos,
    done: Option<Done<T>>,
}

impl<'a, T> Running<'a, T> {
    fn send(&self, record: Bytes, after_ns: u64) -> (NodeId, Bytes, Joined<Option<RpcAnswer>>) {
        let world = self.user.world;
        if !world.is_running(&self.user.gate()) {
            self.user.turn_to_another_gateway();
        }
        let (gate, peer, copy) = (self.user.gate(), self.user.peer(), record.clone());
        let (nfs, rt) = (gate.nfs, world.sim.rt(gate.node));
        let joined = world.sim.spawn_on(gate.node, |_| async move {
            rt.sleep_until(rt.now() + after_ns).await;
            nfs.answer(peer, copy).await
        });
        (gate.node, record, joined)
    }

    /// Goes on to the next call, or to the end.
    fn go_on(&mut self, after_ns: u64) {
        let replay = self.user.replay.clone().expect("it is one of several");
        replay.borrow_mut().next = 0;
        let (outcome, after_ns) = match (self.call)(&self.user) {
            Err(status) if status == NfsStatus::LATER.0 => {
                self.user.is_again.set(true);
                *replay.borrow_mut() = Replay::default();
                ((self.call)(&self.user), 50 * MILLISECOND)
            }
            outcome => (outcome, after_ns),
        };
        match replay.borrow_mut().calls.take() {
            Some((program, procedure, arguments)) => {
                let xid = self.user.xid.replace(self.user.xid.get() + 1);
                self.sent = self.send(self.user.record(xid, program, procedure, &arguments), after_ns);
            }
            None => {
                let (is_again, to) = (self.user.is_again.get(), self.user.world.now());
                self.done = Some(Done { outcome, is_again, from: self.from, to });
            }
        }
    }
}

impl World {
    /// Does all that, each after so many nanoseconds.
    pub fn at_once<'a, T>(&'a self, calls: Vec<(User<'a>, u64, Call<T>)>) -> Vec<Done<T>> {
        let nobody = || (self.node, Bytes::new(), self.sim.spawn_on(self.node, |_| async { None }));
        let mut all: Vec<_> = calls
            .into_iter()
            .map(|(user, after_ns, call)| {
                let user = User { replay: Some(Rc::new(RefCell::default())), is_again: Rc::default(), ..user };
                let mut one = Running { user, call, sent: nobody(), from: Nanos(self.now().0 + after_ns), done: None };
                one.go_on(after_ns);
                one
            })
            .collect();
        while all.iter().any(|one| one.done.is_none()) {
            let is_next = |one: &Running<'_, T>| one.done.is_none() && (one.sent.2.is_over() || !self.runs(one.sent.0));
            let limit = Nanos(self.now().0 + LIMIT);
            self.sim.run_until_true(limit, || all.iter().any(is_next)).expect("a call that waits for nothing never ends");
            let one = all.iter_mut().find(|one| is_next(one)).expect("there is one");
            match one.sent.2.take().flatten() {
                Some(answer) => {
                    let mut reader = Reader::new(answer.to_bytes().into());
                    (0..6).for_each(|_| assert!(reader.u32().is_ok(), "a head"));
                    one.user.replay.as_ref().expect("it has one").borrow_mut().answers.push(reader);
                    self.drive_waits(&one.user.gate());
                    one.go_on(0);
                }
                None => {
                    assert!(!self.runs(one.sent.0), "an answer");
                    one.user.is_again.set(true);
                    one.from = one.from.min(self.now());
                    one.sent = one.send(one.sent.1.clone(), 0);
                }
            }
        }
        all.into_iter().map(|one| one.done.expect("all are over")).collect()
    }
}
