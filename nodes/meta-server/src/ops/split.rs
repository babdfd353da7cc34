//! Directories that are spread over other servers while they are used. The server of the inode says
//! which names go where ([`PartitionMap::first_move`]); whoever has them lets them go, slice by
//! slice, each a transaction of its own (`weft-namespace`, `moves.rs`). Names of a slice wait as
//! long as its transaction takes, all others go on.
//!
//! ```text
//! Split ──▶ way: goal ── slice, pause, slice, pause ... ──▶ map = goal: over
//!                  │                      └── 60 s without a slice, or the directory is gone ──▶ over, why
//!                  └── Split again: another goal
//! ```
//! Where a way ends before its goal (a restart ends it, too), the map is one as any other.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use weft_base::{Credentials, Handle, MILLISECOND, Nanos, Result, SECOND, ServerId, Status};
use weft_namespace::{Change, Record, next_slice};
use weft_rt::ServerRuntime;
use weft_wire::Op;
use weft_wire::ops::{GiveNamesReply, GiveNamesRequest, PartitionMap, SplitReply, SplitRequest};

use super::{NameChange, NameReply, answer};
use crate::engine::Engine;
use crate::server::Server;
use crate::step::Step;

/// Ways under way at the same time, and ways that are over and told of, at most.
const WAYS_MAX: usize = 64;
/// How long a slice may take, in nanoseconds: so long its names wait at most.
const SLICE_NS: u64 = SECOND;
/// The pause after a slice, in times of its duration.
const REST: u64 = 3;
/// The first pause after a slice that did not come about, in nanoseconds; it doubles up to
/// [`PAUSE_NS_MAX`].
const PAUSE_NS: u64 = MILLISECOND;
const PAUSE_NS_MAX: u64 = SECOND;
/// A way without a slice for so long is over, in nanoseconds.
const GIVE_UP_NS: u64 = 60 * SECOND;
/// How often is looked whether holders of leases have heard, in nanoseconds.
const HEARD_NS: u64 = MILLISECOND;

/// A directory on its way to another map.
struct Way {
    /// `None`: it is over.
    goal: Option<PartitionMap>,
    moved_names: u64,
    why: Option<Status>,
    /// When it was set out, or was over.
    since: Nanos,
}

/// Directories on their way, and some that were.
#[derive(Default)]
pub(crate) struct Ways(RefCell<BTreeMap<Handle, Way>>);

impl Ways {
    /// Sets out, or goes elsewhere from now on. True if a flow is to be started.
    fn set_out(&self, dir: Handle, goal: PartitionMap, now: Nanos) -> Result<bool> {
        let mut ways = self.0.borrow_mut();
        if let Some(way) = ways.get_mut(&dir)
            && way.goal.is_some()
        {
            way.goal = Some(goal);
            return Ok(false);
        }
        if ways.values().filter(|way| way.goal.is_some()).count() >= WAYS_MAX {
            return Err(Status::Overloaded);
        }
        ways.insert(dir, Way { goal: Some(goal), moved_names: 0, why: None, since: now });
        let over = ways.iter().filter(|(_, way)| way.goal.is_none());
        if ways.len() > 2 * WAYS_MAX
            && let Some(oldest) = over.min_by_key(|(_, way)| way.since).map(|(dir, _)| *dir)
        {
            ways.remove(&oldest);
        }
        Ok(true)
    }

    fn goal(&self, dir: Handle) -> Option<PartitionMap> {
        self.0.borrow().get(&dir)?.goal.clone()
    }

    fn note(&self, dir: Handle, outcome: Result<u32>) {
        if let Some(way) = self.0.borrow_mut().get_mut(&dir) {
            way.moved_names += u64::from(outcome.unwrap_or(0));
            way.why = outcome.err();
        }
    }

    /// True if the directory is on its way, or was within this time.
    pub(super) fn is_recent(&self, dir: Handle, within_ns: u64, now: Nanos) -> bool {
        self.0.borrow().get(&dir).is_some_and(|way| way.goal.is_some() || now.since(way.since) < within_ns)
    }

    fn is_over(&self, dir: Handle, now: Nanos) {
        if let Some(way) = self.0.borrow_mut().get_mut(&dir) {
            (way.goal, way.since) = (None, now);
        }
    }
}

impl<R: ServerRuntime, E: Engine> Server<R, E> {
    /// Somebody says over how many servers a directory is to be spread, or asks.
    pub(crate) fn split(self: &Rc<Self>, request: &SplitRequest) -> Result<Step> {
        let (dir, own) = (request.dir, self.config.serving.server);
        let goal = {
            let state = self.state.borrow();
            if request.servers == 0 {
                state.inode(dir)?;
                None
            } else {
                state.check_split(dir, &request.who)?;
                Some(state.even_map(own, request.servers).ok_or(Status::NotReady)?)
            }
        };
        if let Some(goal) = goal {
            self.set_out(dir, goal)?;
            self.keep_spread_from(dir, None);
        }
        let (map, spread_from) = {
            let state = self.state.borrow();
            (state.partitions(dir), state.spread_from(dir))
        };
        let ways = self.background.ways.0.borrow();
        let (goal, moved_names, why) = ways.get(&dir).map_or((None, 0, None), |way| (way.goal.clone(), way.moved_names, way.why));
        answer(&SplitReply { map, goal, moved_names, why: why.map_or(0, Status::code), spread_from })
    }

    /// True if names of the directory are on their way to other servers.
    pub(crate) fn is_spreading(&self, dir: Handle) -> bool {
        self.background.ways.goal(dir).is_some()
    }

    /// From now on names of a directory go where this map says.
    pub(crate) fn set_out(self: &Rc<Self>, dir: Handle, goal: PartitionMap) -> Result<()> {
        if self.background.ways.set_out(dir, goal, self.rt.now())? {
            self.rt.spawn(Rc::clone(self).go(dir));
        }
        Ok(())
    }

    /// One slice after the other, until the map says what it shall.
    async fn go(self: Rc<Self>, dir: Handle) {
        let names_max = self.config.split.slice_names;
        let (mut names, mut pause, mut good_until) = (names_max, PAUSE_NS, self.rt.now() + GIVE_UP_NS);
        while let Some(goal) = self.background.ways.goal(dir) {
            let next = {
                let state = self.state.borrow();
                state.peek(dir).map(|_| state.partitions(dir))
            };
            let Some(map) = next else {
                self.background.ways.note(dir, Err(Status::Stale));
                break;
            };
            let Some(step) = map.first_move(&goal) else { break };
            let begun = self.rt.now();
            let outcome = self
                .let_go(GiveNamesRequest { dir, map, first: step.first, last: step.last, to: step.to, names_max: names }, step.from)
                .await;
            // Who has names of it says only that the map is another one.
            let is_gone = self.state.borrow().peek(dir).is_none();
            let outcome = if is_gone { Err(Status::Stale) } else { outcome };
            let now = self.rt.now();
            let took_ns = now.since(begun);
            self.background.ways.note(dir, outcome);
            let rest = match outcome {
                Ok(_) => {
                    (names, pause, good_until) = (next_slice(names, took_ns, names_max), PAUSE_NS, now + GIVE_UP_NS);
                    REST * took_ns
                }
                Err(_) if now >= good_until => break,
                Err(_) => {
                    let rest = pause + self.rt.random() % pause;
                    pause = (2 * pause).min(PAUSE_NS_MAX);
                    rest
                }
            };
            self.rt.sleep_until(now + rest).await;
        }
        self.background.ways.is_over(dir, self.rt.now());
        let servers = self.state.borrow().partitions(dir).servers().len();
        if self.state.borrow().spread_from(dir).is_some_and(|before| servers <= before.into()) {
            self.keep_spread_from(dir, None);
        }
    }

    /// Lets a slice go, from here or from the server that has it.
    async fn let_go(self: &Rc<Self>, request: GiveNamesRequest, from: ServerId) -> Result<u32> {
        if from == self.config.serving.server {
            return self.give_names(&request).await.map(|reply| reply.names);
        }
        self.knows(from)?;
        // The other one decides, or has not begun, when this one asks no longer.
        let deadline = self.rt.now() + 2 * SLICE_NS;
        self.shell.caller.call(from, &request, deadline).await.map(|reply| reply.names)
    }

    /// Lets names that are here go to another server.
    pub(crate) async fn give_names(self: &Rc<Self>, request: &GiveNamesRequest) -> Result<GiveNamesReply> {
        let deadline = self.rt.now() + SLICE_NS;
        self.check_room_of(Op::GiveNames)?;
        self.knows(request.to)?;
        self.hear_of_move(request.dir, deadline).await?;
        let (parts, names) = self.state.borrow().plan_move(request)?;
        parts.iter().try_for_each(|part| self.knows(part.server))?;
        let change = NameChange { parts, cycles: Vec::new(), who: Credentials::ROOT, reply: NameReply::Done };
        self.transact(None, &change, deadline).await?;
        Ok(GiveNamesReply { names })
    }

    /// Whoever may believe something of names in a directory hears of it before they are locked.
    /// Who is told again meanwhile lets the slice fail.
    async fn hear_of_move(&self, dir: Handle, deadline: Nanos) -> Result<()> {
        let record = Record { changes: vec![Change::GiveNames { dir, names: Vec::new() }], open: None };
        while let Err(status) = self.announce_soon(self.shell.caller.client(), &record) {
            let again_at = self.rt.now() + HEARD_NS;
            if again_at >= deadline {
                return Err(status);
            }
            self.rt.sleep_until(again_at).await;
        }
        Ok(())
    }
}
