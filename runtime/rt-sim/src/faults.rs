//! What goes wrong: faults as data, plans of faults drawn from a seed, and how each fault strikes.
//!
//! A plan is an ordinary list, so that a failing seed can be made smaller by leaving faults out.

mod strike;

use weft_base::{MILLISECOND, Nanos, SECOND};

use crate::Random;
use crate::disk::DiskFaultKind;
use crate::ids::NodeId;

/// A down time that ends only by hand.
pub const FOREVER: u64 = u64::MAX;

/// Something that goes wrong. Durations are in nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The process dies (`kill -9`): its tasks are gone, its disk keeps all that was written. Its
    /// peers learn it soon.
    Crash {
        /// Where.
        node: NodeId,
        /// Time until it starts again, or [`FOREVER`].
        down_ns: u64,
    },
    /// The machine loses power: of what was not synced, its disk keeps an arbitrary part. Its peers
    /// learn it late.
    PowerCut {
        /// Where.
        node: NodeId,
        /// Time until it starts again, or [`FOREVER`].
        down_ns: u64,
    },
    /// Nothing gets from one node to another, both ways; it arrives after the link has healed, if
    /// the connection lives so long.
    Partition {
        /// One side.
        a: NodeId,
        /// The other side.
        b: NodeId,
        /// Duration.
        ns: u64,
    },
    /// Like [`Fault::Partition`] in one direction.
    OneWay {
        /// Who is not heard.
        from: NodeId,
        /// Who does not hear.
        to: NodeId,
        /// Duration.
        ns: u64,
    },
    /// A partition between this node and all others.
    Isolate {
        /// Where.
        node: NodeId,
        /// Duration.
        ns: u64,
    },
    /// All connections of the node break; both processes live on.
    BreakConnections {
        /// Where.
        node: NodeId,
    },
    /// Something else fills the disk.
    DiskFull {
        /// Where.
        node: NodeId,
        /// Duration.
        ns: u64,
    },
    /// The next operations of a kind fail.
    DiskError {
        /// Where.
        node: NodeId,
        /// Which operations.
        kind: DiskFaultKind,
        /// How many.
        count: u32,
    },
    /// Processor, network card and disk of the node become slow.
    Slow {
        /// Where.
        node: NodeId,
        /// Percent of the usual time that everything takes, more than 100.
        percent: u32,
        /// Duration.
        ns: u64,
    },
    /// The process stands still (a stopped or swapped-out process, a virtual machine that is
    /// moved), its connections stay.
    Pause {
        /// Where.
        node: NodeId,
        /// Duration.
        ns: u64,
    },
    /// Messages between all nodes meet with faults.
    Messages {
        /// How often which.
        faults: MessageFaults,
        /// Duration.
        ns: u64,
    },
}

/// How often messages meet with faults, in parts of a million messages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MessageFaults {
    /// Lost: half of them alone, half with everything after them until the connection breaks.
    pub lose: u32,
    /// Delivered twice, the second time late.
    pub duplicate: u32,
    /// Delayed.
    pub delay: u32,
    /// A delay is this long or a power of two times as long, each power half as likely as the one
    /// before. In nanoseconds.
    pub delay_ns: u64,
    /// No delay is longer than this, in nanoseconds.
    pub delay_max_ns: u64,
}

impl MessageFaults {
    /// None.
    pub const NONE: MessageFaults = MessageFaults { lose: 0, duplicate: 0, delay: 0, delay_ns: 0, delay_max_ns: 0 };

    /// A bad network: 2 % delayed by 1 ms to 4 s, 0.5 % lost, 0.5 % twice.
    pub const BAD: MessageFaults =
        MessageFaults { lose: 5_000, duplicate: 5_000, delay: 20_000, delay_ns: MILLISECOND, delay_max_ns: 4 * SECOND };

    pub(crate) fn draw_delay(&self, random: &mut Random) -> u64 {
        let power = random.draw().trailing_zeros().min(30);
        random.between(self.delay_ns / 2, self.delay_ns).saturating_mul(1 << power).min(self.delay_max_ns)
    }
}

/// Which faults a plan may contain, and how many at most of each (the number is drawn from 0 to
/// that).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FaultSettings {
    /// All faults begin and end within so long, in nanoseconds; a [`Fault::Pause`] or restart may
    /// end a little later.
    pub duration_ns: u64,
    /// [`Fault::Crash`] of servers.
    pub crashes: u64,
    /// [`Fault::PowerCut`] of servers.
    pub power_cuts: u64,
    /// [`Fault::Crash`] of clients.
    pub client_crashes: u64,
    /// [`Fault::Partition`], [`Fault::OneWay`] and [`Fault::Isolate`].
    pub partitions: u64,
    /// [`Fault::BreakConnections`].
    pub breaks: u64,
    /// [`Fault::DiskFull`] of servers.
    pub disk_full: u64,
    /// [`Fault::DiskError`] of servers.
    pub disk_errors: u64,
    /// [`Fault::Slow`].
    pub slow: u64,
    /// [`Fault::Pause`] of servers.
    pub pauses: u64,
    /// [`Fault::Messages`]; the frequencies are drawn up to these.
    pub messages: MessageFaults,
    /// Longest time until a restart, in nanoseconds.
    pub down_max_ns: u64,
}

impl FaultSettings {
    /// No fault at all.
    pub fn none(duration_ns: u64) -> FaultSettings {
        FaultSettings { duration_ns, down_max_ns: duration_ns / 4, ..FaultSettings::default() }
    }

    /// Everything from which a cluster must recover by itself without losing what survives a
    /// process crash.
    pub fn crashes(duration_ns: u64) -> FaultSettings {
        FaultSettings {
            crashes: 4,
            partitions: 2,
            breaks: 3,
            slow: 1,
            pauses: 1,
            messages: MessageFaults::BAD,
            ..FaultSettings::none(duration_ns)
        }
    }

    /// Power cuts besides.
    pub fn power_cuts(duration_ns: u64) -> FaultSettings {
        FaultSettings { power_cuts: 3, ..FaultSettings::crashes(duration_ns) }
    }
}

/// Faults with their times, counted from when the plan is set up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FaultPlan {
    /// Each fault and when it strikes.
    pub faults: Vec<(Nanos, Fault)>,
}

impl FaultPlan {
    /// Draws a plan for these servers and clients.
    pub fn draw(settings: &FaultSettings, servers: &[NodeId], clients: &[NodeId], random: &mut Random) -> FaultPlan {
        let mut draw = Draw { settings, random, faults: Vec::new() };
        let everybody: Vec<NodeId> = servers.iter().chain(clients).copied().collect();
        let down = |random: &mut Random| random.between(MILLISECOND, settings.down_max_ns.max(MILLISECOND));
        draw.some(settings.crashes, servers, |node, _, random| Fault::Crash { node, down_ns: down(random) });
        draw.some(settings.power_cuts, servers, |node, _, random| Fault::PowerCut { node, down_ns: down(random) });
        draw.some(settings.client_crashes, clients, |node, _, random| Fault::Crash { node, down_ns: down(random) });
        draw.some(settings.partitions, &everybody, |node, ns, random| {
            let other = *random.pick(servers).unwrap_or(&node);
            match random.below(4) {
                0 => Fault::Isolate { node, ns },
                1 => Fault::OneWay { from: other, to: node, ns },
                2 => Fault::OneWay { from: node, to: other, ns },
                _ => Fault::Partition { a: node, b: other, ns },
            }
        });
        draw.some(settings.breaks, &everybody, |node, _, _| Fault::BreakConnections { node });
        draw.some(settings.disk_full, servers, |node, ns, _| Fault::DiskFull { node, ns });
        draw.some(settings.disk_errors, servers, |node, _, random| {
            let kinds = [DiskFaultKind::Read, DiskFaultKind::Write, DiskFaultKind::Sync];
            Fault::DiskError { node, kind: kinds[random.below(3) as usize], count: random.between(1, 3) as u32 }
        });
        draw.some(settings.slow, &everybody, |node, ns, random| Fault::Slow { node, percent: random.between(200, 5000) as u32, ns });
        draw.some(settings.pauses, servers, |node, ns, _| Fault::Pause { node, ns });
        if settings.messages != MessageFaults::NONE && draw.random.coin() {
            let most = &settings.messages;
            let faults = MessageFaults {
                lose: draw.random.between(0, u64::from(most.lose)) as u32,
                duplicate: draw.random.between(0, u64::from(most.duplicate)) as u32,
                delay: draw.random.between(0, u64::from(most.delay)) as u32,
                ..most.clone()
            };
            draw.faults.push((Nanos(0), Fault::Messages { faults, ns: settings.duration_ns }));
        }
        let mut faults = draw.faults;
        faults.sort_by_key(|(at, _)| *at);
        FaultPlan { faults }
    }
}

/// A plan in the making.
struct Draw<'a> {
    settings: &'a FaultSettings,
    random: &'a mut Random,
    faults: Vec<(Nanos, Fault)>,
}

impl Draw<'_> {
    /// Adds 0 to `most` faults that strike one of `nodes`. `make` gets the node and a duration that
    /// ends in time.
    fn some(&mut self, most: u64, nodes: &[NodeId], make: impl Fn(NodeId, u64, &mut Random) -> Fault) {
        for _ in 0..self.random.between(0, most) {
            let at = self.random.below(self.settings.duration_ns);
            // Short ones are as likely as long ones: half the remaining time, halved again a few
            // times.
            let longest = (self.settings.duration_ns - at) >> self.random.between(1, 6);
            let ns = self.random.between(longest / 2, longest);
            if let Some(node) = self.random.pick(nodes).copied() {
                let fault = make(node, ns, self.random);
                self.faults.push((Nanos(at), fault));
            }
        }
    }
}
