//! Directories that are spread by themselves, and go back: those with too many names, and, at a
//! busy server, the one that many clients ask for names. What a server is asked is looked at in
//! windows ([`Traffic`]), how names move is in `split.rs`.
//!
//! ```text
//!           ┌─ many names ─────────────────────────▶ over as many servers as that takes ──┐
//! as it was ┤                                                                             ├─▶ spread
//!     ▲     └─ hot: other servers have less to do? ▶ over one for each client, of these ──┘     │
//!     └──────────── it is small and was calm, both for long, and nobody has said otherwise ◀────┘
//! ```

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use weft_base::{ClientId, Handle, MILLISECOND, Nanos, SECOND, ServerId};
use weft_namespace::{DirectoryShare, Record, SHARE_HOT_PERMILLE, State, Traffic, servers_for};
use weft_rt::{ServerRuntime, join_all};
use weft_wire::Request;
use weft_wire::ops::{PartitionMap, PingRequest};

use crate::SplitConfig;
use crate::engine::Engine;
use crate::server::Server;

/// A window is at least so long, in nanoseconds.
const WINDOW_NS: u64 = 200 * MILLISECOND;
/// A server is calm that works for a smaller share of its time, in thousandths.
const CALM_PERMILLE: u64 = 150;
/// Others are asked at most so long how much they have to do, in nanoseconds.
const ASK_NS: u64 = SECOND;

/// What a server is asked, and which of its directories have been calm.
pub(crate) struct Demand {
    traffic: RefCell<Traffic>,
    /// When the window began, and how long the server had worked until then.
    window: Cell<(Nanos, u64)>,
    /// Directories that it has spread by itself, and since when they have been calm.
    calm: RefCell<BTreeMap<Handle, Nanos>>,
    /// Directories that would be spread if others had less to do, and when that was looked at.
    asked: RefCell<BTreeMap<Handle, Nanos>>,
}

impl Demand {
    /// Of a server that starts now.
    pub(crate) fn new(config: &SplitConfig, state: &State, now: Nanos) -> Demand {
        Demand {
            traffic: RefCell::new(Traffic::new(config.sample_every, config.samples_min)),
            window: Cell::new((now, 0)),
            calm: RefCell::new(state.spread_by_itself().map(|dir| (dir, now)).collect()),
            asked: RefCell::default(),
        }
    }

    /// There is a request.
    #[inline]
    pub(crate) fn saw(&self, client: ClientId, request: &Request) {
        self.traffic.borrow_mut().saw(client, || named_in(request));
    }
}

/// The directory in which a request names something: its server has less to do if others have some
/// of the names.
fn named_in(request: &Request) -> Option<Handle> {
    match request {
        Request::Lookup(_) | Request::Create(_) | Request::Mkdir(_) | Request::Unlink(_) | Request::Rmdir(_) => Some(request.object()),
        Request::Rename(_) | Request::Link(_) => Some(request.object()),
        _ => None,
    }
}

impl<R: ServerRuntime, E: Engine> Server<R, E> {
    /// Directories of this server are spread over more servers, or go back. To be called now and
    /// then.
    pub(crate) fn look_at_directories(self: &Rc<Self>) {
        if self.config.split.names_max > 0 {
            self.spread_large();
            self.end_window();
        }
    }

    /// Those with many names.
    fn spread_large(self: &Rc<Self>) {
        let large = self.state.borrow_mut().large_directories();
        for (dir, names) in large {
            let goal = {
                let state = self.state.borrow();
                let all = u16::try_from(state.placement().meta.len()).unwrap_or(u16::MAX);
                let servers = state.partitions(dir).servers().len() as u16;
                servers_for(names, servers, all, self.config.split.names_max).and_then(|wanted| state.even_map(dir.server(), wanted))
            };
            if let Some(goal) = goal {
                self.spread_by_itself(dir, goal);
            }
        }
    }

    /// Sets a directory out, and remembers that nobody has asked for it.
    fn spread_by_itself(self: &Rc<Self>, dir: Handle, goal: PartitionMap) {
        let is_recent = self.background.ways.is_recent(dir, self.config.split.rest_ns, self.rt.now());
        // Whoever makes its names alone is asked first; it comes up again.
        if is_recent || self.state.borrow().is_delegated_elsewhere(None, dir) {
            return;
        }
        let before = {
            let state = self.state.borrow();
            state.spread_from(dir).unwrap_or(state.partitions(dir).servers().len() as u16)
        };
        // As many as may be under way are: it comes up again.
        if self.set_out(dir, goal).is_ok() {
            self.keep_spread_from(dir, Some(before));
            self.background.demand.calm.borrow_mut().insert(dir, self.rt.now());
        }
    }

    /// Remembers over how many servers a directory was before its server spread it by itself.
    pub(crate) fn keep_spread_from(&self, dir: Handle, servers: Option<u16>) {
        let change = self.state.borrow().keep_spread_from(dir, servers);
        if let Some(change) = change {
            self.change_in_flow(&mut Record { changes: vec![change], open: None });
        }
    }

    /// Looks at what was asked since the last window.
    fn end_window(self: &Rc<Self>) {
        let (now, busy_ns) = (self.rt.now(), self.shell.busy_ns());
        let (began, busy_ns_before) = self.background.demand.window.get();
        let window_ns = now.since(began);
        if window_ns < WINDOW_NS {
            return;
        }
        self.background.demand.window.set((now, busy_ns));
        let busy_permille = (busy_ns - busy_ns_before) * 1000 / window_ns;
        let shares = self.background.demand.traffic.borrow_mut().take_shares();
        if busy_permille >= CALM_PERMILLE.min(self.config.split.busy_permille) {
            let mut calm = self.background.demand.calm.borrow_mut();
            for share in &shares {
                calm.entry(share.dir).and_modify(|since| *since = now);
            }
        }
        if busy_permille >= self.config.split.busy_permille {
            shares.iter().filter(|share| share.permille >= SHARE_HOT_PERMILLE).for_each(|share| self.relieve(share));
        }
        self.bring_back(now);
    }

    /// A directory is hot: the names of one of this server go to others that have less to do.
    fn relieve(self: &Rc<Self>, share: &DirectoryShare) {
        let (DirectoryShare { dir, clients, .. }, rest_ns, now) = (*share, self.config.split.rest_ns, self.rt.now());
        let is_own = dir.server() == self.config.serving.server;
        let has = self.state.borrow().partitions(dir).servers();
        // One client is one server's work, at most.
        let wanted = clients.saturating_sub(has.len());
        let mut asked = self.background.demand.asked.borrow_mut();
        asked.retain(|_, at| now.since(*at) < rest_ns);
        if !is_own || wanted == 0 || asked.contains_key(&dir) || self.background.ways.is_recent(dir, rest_ns, now) {
            return;
        }
        asked.insert(dir, now);
        let this = Rc::clone(self);
        self.rt.spawn(async move {
            let mut servers = this.with_less_to_do(&has).await;
            servers.truncate(wanted);
            let is_there = this.state.borrow().peek(dir).is_some() && this.state.borrow().partitions(dir).servers() == has;
            if !servers.is_empty() && is_there {
                let goal: Vec<ServerId> = has.into_iter().chain(servers).collect();
                this.spread_by_itself(dir, PartitionMap::even(&goal));
            }
        });
    }

    /// Metadata servers, without these, that are asked for two thirds of what this one is at most:
    /// the one with the least to do first.
    async fn with_less_to_do(&self, without: &[ServerId]) -> Vec<ServerId> {
        let others: Vec<ServerId> =
            self.state.borrow().placement().meta.iter().copied().filter(|server| !without.contains(server)).collect();
        // Each for itself: one that does not answer holds up nobody's numbers but its own.
        let look = async |server: ServerId| {
            let ask = async || self.shell.caller.call(server, &PingRequest {}, self.rt.now() + ASK_NS).await.ok();
            let (before, own_before) = (ask().await?.requests, self.shell.requests());
            self.rt.sleep_until(self.rt.now() + WINDOW_NS).await;
            let (more, own) = (ask().await?.requests.saturating_sub(before), self.shell.requests() - own_before);
            (more.saturating_mul(3) <= own.saturating_mul(2)).then_some((more, server))
        };
        let looked = join_all(others.iter().map(|server| look(*server))).await;
        let mut requests: Vec<(u64, ServerId)> = looked.into_iter().flatten().collect();
        requests.sort_unstable();
        requests.into_iter().map(|(_, server)| server).collect()
    }

    /// What this server has spread by itself goes back where it was when that has long been enough.
    fn bring_back(self: &Rc<Self>, now: Nanos) {
        let SplitConfig { names_max, rest_ns, calm_ns, .. } = self.config.split;
        let mut calm = self.background.demand.calm.borrow_mut();
        calm.retain(|dir, since| {
            let state = self.state.borrow();
            let way_back = state.way_back(*dir, names_max).filter(|_| now.since(*since) >= calm_ns);
            if let Some(goal) = way_back
                && !self.background.ways.is_recent(*dir, rest_ns, now)
            {
                // As many as may be under way are: it comes up again.
                let _ = self.set_out(*dir, goal);
            }
            state.spread_from(*dir).is_some()
        });
    }
}
