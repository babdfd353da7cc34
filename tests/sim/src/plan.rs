//! What a seed stands for: the shape of the cluster, its durability, what the clients do and what
//! goes wrong.

use weft_base::{MILLISECOND, SECOND};
use weft_layout::INLINE_BYTES_MAX;
use weft_rt::FaultPoint;
use weft_rt_sim::{FaultSettings, MessageFaults, Random};

use crate::cluster::{ClusterConfig, Durability, Engine};

/// The kinds of runs. Which faults there are decides what may be expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FaultProfile {
    /// No faults: everything must succeed or fail by the rules, nothing may time out.
    Calm,
    /// Processes die, messages are lost, delayed, doubled, links are cut, nodes are slow: nothing
    /// acknowledged is lost.
    Crashes,
    /// Clients die too; their sessions end.
    DyingClients,
    /// Machines lose power, durability `sync`: nothing acknowledged is lost.
    PowerSync,
    /// Machines lose power, durability `batch`: what is older than the interval, or was synced, is
    /// not lost.
    PowerBatch,
    /// Disks are full for a while: changes may be refused, nothing is lost.
    FullDisks,
}

/// What clients prefer to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperationMix {
    /// A little of everything.
    Everything,
    /// Mostly renames and exchanges between directories of several servers, and what makes and
    /// removes their objects meanwhile.
    Renames,
}

/// All that a seed decides.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The seed.
    pub seed: u64,
    /// What clients do most.
    pub mix: OperationMix,
    /// What goes wrong.
    pub fault_profile: FaultProfile,
    /// The servers.
    pub cluster: ClusterConfig,
    /// Number of clients.
    pub clients: usize,
    /// Operations, all clients together.
    pub operations: usize,
    /// Number of different names.
    pub names: u8,
    /// Number of directories that exist from the beginning, besides the root.
    pub dirs: u8,
    /// Files are written and read too.
    pub with_data: bool,
    /// Clients look at once at what they or others have changed. So in every third seed.
    pub follow: bool,
    /// Most clients keep what they are told under leases.
    pub leases: bool,
    /// The names of all directories but the root are spread over several metadata servers; over how
    /// many, as the hint says it.
    pub presplit: Option<&'static str>,
    /// Clients let directories be spread over other servers now and then.
    pub moves: bool,
    /// Whole contents are put under names, and small ones lie on the servers of their inodes.
    pub puts: bool,
    /// Datafiles that belong to no file are looked for and removed all the time.
    pub repairs: bool,
    /// Longest pause of a client between two operations, in nanoseconds.
    pub pause_max_ns: u64,
    /// Deadline of an operation, in nanoseconds.
    pub deadline_ns: u64,
    /// Which faults, and how many.
    pub faults: FaultSettings,
    /// When servers join, in nanoseconds after the work has begun.
    pub joins: Vec<u64>,
    /// Servers, by their place in the map, at which flows are held up, where, and for how many
    /// nanoseconds.
    pub delays: Vec<(usize, FaultPoint, u64)>,
}

impl Plan {
    /// What `seed` stands for. `operations`: how many operations a history has; `None` leaves it to
    /// the seed.
    pub fn new(seed: u64, operations: Option<usize>) -> Plan {
        let mut random = Random::new(seed ^ 0x005E_ED0F_0A91_A400);
        let fault_profile = match random.below(100) {
            0..10 => FaultProfile::Calm,
            10..55 => FaultProfile::Crashes,
            55..65 => FaultProfile::DyingClients,
            65..78 => FaultProfile::PowerSync,
            78..90 => FaultProfile::PowerBatch,
            _ => FaultProfile::FullDisks,
        };
        let duration = match random.below(3) {
            0 => 20 * MILLISECOND,
            1 => 300 * MILLISECOND,
            _ => 3 * SECOND,
        };
        let clients = random.between(2, 4) as usize;
        let operations = operations.unwrap_or(random.between(20, 60) as usize);
        let per_client = (operations / clients).max(1) as u64;
        Plan {
            seed,
            mix: OperationMix::Everything,
            fault_profile,
            cluster: ClusterConfig::draw(fault_profile, &mut random),
            clients,
            operations,
            names: random.between(2, 5) as u8,
            dirs: random.between(1, 3) as u8,
            with_data: random.below(10) < 4,
            follow: seed % 3 == 1,
            leases: false,
            presplit: None,
            moves: false,
            puts: false,
            repairs: false,
            pause_max_ns: if random.below(4) == 0 { 0 } else { 2 * duration / per_client },
            deadline_ns: if fault_profile != FaultProfile::Calm && random.below(5) == 0 { 700 * MILLISECOND } else { 30 * SECOND },
            faults: faults(fault_profile, duration, &mut random),
            delays: Vec::new(),
            joins: Vec::new(),
        }
    }

    /// True if the servers begin under another contract than that of the cluster, which is set
    /// before the history begins. So in every second seed in which a contract makes a difference.
    pub fn sets_contract(&self) -> bool {
        let matters = matches!(self.fault_profile, FaultProfile::PowerSync | FaultProfile::PowerBatch);
        matters && self.seed.is_multiple_of(2) && self.joins.is_empty()
    }

    /// What the servers are told when they are made.
    pub fn cluster_at_start(&self) -> ClusterConfig {
        let contract = match self.cluster.contract {
            contract if !self.sets_contract() => contract,
            Durability::Batch if self.seed.is_multiple_of(4) => Durability::Sync,
            Durability::Sync if self.seed.is_multiple_of(4) => Durability::Batch,
            _ => Durability::None,
        };
        ClusterConfig { contract, ..self.cluster.clone() }
    }

    /// What `seed` stands for where the cluster grows while clients work and the same things go
    /// wrong.
    pub fn growing(seed: u64, operations: Option<usize>) -> Plan {
        let plan = Plan::new(seed, operations);
        let mut random = Random::new(seed ^ 0x0000_6204_36A0_0000);
        let duration = plan.faults.duration_ns.max(20 * MILLISECOND);
        let joins = (0..random.between(1, 3)).map(|_| random.below(duration)).collect();
        Plan { joins, with_data: true, cluster: ClusterConfig { storage: Engine::Journal, ..plan.cluster }, ..plan }
    }

    /// What `seed` stands for where most clients keep what they are told under leases, and look
    /// often at what others have changed.
    pub fn leased(seed: u64, operations: Option<usize>) -> Plan {
        let plan = Plan::new(seed, operations);
        let mut random = Random::new(seed ^ 0x0000_1EA5_E5EE_D000);
        let clients = random.between(2, 5) as usize;
        Plan {
            leases: true,
            follow: true,
            clients,
            names: random.between(2, 3) as u8,
            dirs: random.between(1, 2) as u8,
            with_data: random.below(4) == 0,
            operations: operations.unwrap_or(random.between(30, 80) as usize),
            cluster: ClusterConfig { storage: Engine::Journal, ..plan.cluster },
            ..plan
        }
    }

    /// What `seed` stands for where the names of directories are spread over servers, from their
    /// birth, while they are used, or both; in every second seed with leases, in every third with
    /// transactions that are held up.
    pub fn split(seed: u64, operations: Option<usize>) -> Plan {
        let plan = if seed.is_multiple_of(2) { Plan::leased(seed, operations) } else { Plan::new(seed, operations) };
        let mut random = Random::new(seed ^ 0x0000_5911_7D14_EC70);
        let meta = random.between(2, 4) as usize;
        let delays = if seed.is_multiple_of(3) { Plan::held_up(meta, &mut random) } else { Vec::new() };
        let presplit = if random.below(3) == 0 { "2" } else { "all" };
        // Of directories that are spread from the beginning, of others, or of both.
        let (moves, is_presplit) = (seed % 4 != 2, seed.is_multiple_of(2));
        // Of directories that nobody says anything about: servers spread them by themselves.
        let is_eager = seed % 3 == 1;
        let (moves, is_presplit) = (moves && (!is_eager || seed % 4 == 3), is_presplit && !is_eager);
        Plan {
            presplit: is_presplit.then_some(presplit),
            moves,
            mix: if random.below(4) == 0 { OperationMix::Renames } else { plan.mix },
            names: random.between(3, 6) as u8,
            delays,
            cluster: ClusterConfig { meta, slice_names: random.between(1, 3) as u32, is_eager, ..plan.cluster },
            ..plan
        }
    }

    /// What `seed` stands for where whole contents are put under names, beside all else: in turns
    /// plain, with leases, and with directories over several servers.
    pub fn putting(seed: u64, operations: Option<usize>) -> Plan {
        let plan = match seed % 3 {
            0 => Plan::leased(seed, operations),
            1 => Plan::split(seed, operations),
            _ => Plan::new(seed, operations),
        };
        let cluster = ClusterConfig { storage: Engine::Journal, inline_limit: INLINE_BYTES_MAX, ..plan.cluster };
        Plan { puts: true, with_data: true, mix: OperationMix::Everything, cluster, ..plan }
    }

    /// The same where small files lie beside their inodes, as in every new file system: clients
    /// with leases keep what they write to small files until they close them.
    pub fn with_small_files(self) -> Plan {
        let cluster = ClusterConfig { storage: Engine::Journal, inline_limit: 8 << 10, ..self.cluster };
        Plan { with_data: true, cluster, ..self }
    }

    /// True if small files may lie on the servers of their inodes.
    pub fn keeps_small_files(&self) -> bool {
        self.cluster.inline_limit > 0
    }

    /// Where and for how long flows are held up.
    fn held_up(meta: usize, random: &mut Random) -> Vec<(usize, FaultPoint, u64)> {
        let points = [FaultPoint::TxLock, FaultPoint::TxPrepare, FaultPoint::NetRequest, FaultPoint::NetReply, FaultPoint::JournalFlush];
        let delay = |random: &mut Random| {
            let point = points[random.below(points.len() as u64) as usize];
            (random.below(meta as u64) as usize, point, random.below(3 * MILLISECOND))
        };
        (0..random.below(4)).map(|_| delay(random)).collect()
    }

    /// What `seed` stands for where renames are looked at: directories on several servers, few
    /// names, transactions that are held up here and there, so that they meet.
    pub fn renames(seed: u64, operations: Option<usize>) -> Plan {
        let plan = Plan::new(seed, operations);
        let mut random = Random::new(seed ^ 0x0000_4E4A_3E5E_ED5E);
        let meta = random.between(2, 3) as usize;
        Plan {
            mix: OperationMix::Renames,
            clients: random.between(3, 5) as usize,
            names: random.between(2, 3) as u8,
            dirs: random.between(2, 4) as u8,
            with_data: false,
            follow: false,
            pause_max_ns: if random.coin() { 0 } else { 2 * MILLISECOND },
            delays: Plan::held_up(meta, &mut random),
            cluster: ClusterConfig { meta, data: 1, storage: Engine::Journal, ..plan.cluster },
            ..plan
        }
    }
}

fn faults(fault_profile: FaultProfile, duration_ns: u64, random: &mut Random) -> FaultSettings {
    let calm = FaultSettings { down_max_ns: (duration_ns / 2).max(20 * MILLISECOND), ..FaultSettings::none(duration_ns) };
    // Some seeds have only faults of processes, so that what is found there is easy to understand.
    let crashes = match random.below(3) {
        0 => FaultSettings { crashes: 4, ..calm.clone() },
        1 => FaultSettings { messages: MessageFaults::BAD, breaks: 3, partitions: 2, ..calm.clone() },
        _ => FaultSettings { crashes: 4, partitions: 2, breaks: 3, slow: 1, pauses: 1, messages: MessageFaults::BAD, ..calm.clone() },
    };
    match fault_profile {
        FaultProfile::Calm => calm,
        FaultProfile::Crashes => crashes,
        FaultProfile::DyingClients => FaultSettings { client_crashes: 3, ..crashes },
        FaultProfile::PowerSync => FaultSettings { power_cuts: 4, ..crashes },
        FaultProfile::PowerBatch => FaultSettings { power_cuts: 4, ..calm },
        // Servers also die while their disks are full, and start on these.
        FaultProfile::FullDisks => FaultSettings { disk_full: 5, crashes: 5 * random.below(2), ..calm },
    }
}
