//! Promises of `docs/semantics.md` that need faults at chosen moments.

use weft_base::{Handle, MILLISECOND, ROOT_HANDLE, SECOND};
use weft_rt::Runtime;
use weft_rt_sim::{Fault, Joined, MessageFaults, NodeId};
use weft_sim_tests::cluster::{BATCH_NS, ClusterConfig, Durability};
use weft_sim_tests::history::{Action, Answer, Name, Outcome, RenameMode};
use weft_sim_tests::plan::{FaultProfile, Plan};
use weft_sim_tests::run_plan;
use weft_sim_tests::stage::{Stage, Tolerance};
use weft_sim_tests::workload::Worker;

const A: Name = Name(0);
const B: Name = Name(1);
const C: Name = Name(2);

/// Runs the first seeds from `from` on that have this fault profile.
fn seeds_of(fault_profile: FaultProfile, from: u64, count: usize, change: impl Fn(&mut Plan)) {
    let mut plans = (from..).map(|seed| Plan::new(seed, None)).filter(|plan| plan.fault_profile == fault_profile);
    for _ in 0..count {
        let mut plan = plans.next().expect("there are always more seeds");
        change(&mut plan);
        let report = run_plan(&plan, false);
        assert!(report.is_good(), "{report}");
    }
}

/// A cluster of so many metadata servers, ready.
fn stage(seed: u64, meta: usize, contract: Durability) -> Stage {
    let config = ClusterConfig { meta, data: 2, contract, ..ClusterConfig::small() };
    let mut stage = Stage::new(seed, &config, 0);
    stage.wait_for_servers().expect("a new cluster serves");
    stage
}

fn done(outcome: Outcome) -> Answer {
    match outcome {
        Outcome::Done(answer) => answer,
        other => panic!("{other:?}"),
    }
}

/// Makes a directory and gives its handle.
async fn mkdir(worker: &mut Worker, dir: Handle, name: Name) -> Handle {
    match done(worker.act(Action::Mkdir { dir, name }).await) {
        Answer::Attr(seen) => seen.handle,
        other => panic!("{other:?}"),
    }
}

/// Makes directories `a`, `b`, ... in the root until two of them are on different servers; gives
/// these two.
async fn two_dirs_apart(worker: &mut Worker) -> (Handle, Handle) {
    let first = mkdir(worker, ROOT_HANDLE, Name(0)).await;
    for name in 1..20 {
        let other = mkdir(worker, ROOT_HANDLE, Name(name)).await;
        if other.server() != first.server() {
            return (first, other);
        }
    }
    panic!("20 directories on one of two servers");
}

async fn create(worker: &mut Worker, dir: Handle, name: Name) -> Handle {
    match done(worker.act(Action::Create { dir, name, exclusive: true, truncate: false }).await) {
        Answer::Created(seen, true) => seen.handle,
        other => panic!("{other:?}"),
    }
}

fn rename(from_dir: Handle, from: Name, to_dir: Handle, to: Name) -> Action {
    Action::Rename { from_dir, from, to_dir, to, mode: RenameMode::Replace }
}

/// The end of every test here: recover, look at everything, and judge.
fn finish(stage: &mut Stage, running: Vec<Joined<Worker>>, with_data: bool, tolerance: Tolerance, context: &str) {
    let over = stage.wait(&running).and_then(|()| stage.recover()).and_then(|()| stage.examine(with_data, tolerance));
    let (problems, undecided) = stage.judge(tolerance);
    if over.is_err() || !problems.is_empty() || undecided {
        panic!("{context}: {over:?}\n{}\n{}", problems.join("\n"), stage.shared.borrow().history);
    }
}

/// A client renames between two servers, makes and removes directories; another looks; a server
/// dies at every possible moment.
#[test]
fn promise_atomic_names() {
    for victim in 0..2 {
        // Every await point of the first transactions, then larger strides.
        for polls in (1..80).chain((80..300).step_by(9)) {
            let mut stage = stage(1000 + polls, 2, Durability::Batch);
            let (first, other) = stage
                .with_auditor(async |worker| {
                    let (first, other) = two_dirs_apart(worker).await;
                    let file = create(worker, first, A).await;
                    done(worker.act(Action::Close { handle: file }).await);
                    Ok((first, other))
                })
                .expect("no fault has struck yet");
            let (mover_node, mover) = stage.add_worker("mover", 30 * SECOND);
            let (looker_node, looker) = stage.add_worker("looker", 30 * SECOND);
            let node: NodeId = stage.cluster.servers()[victim];
            stage.sim.strike_after_polls(node, polls, Fault::Crash { node, down_ns: 20 * MILLISECOND });
            let moving = stage.begin(mover_node, mover, async move |worker| {
                worker.act(rename(first, A, other, B)).await;
                worker.act(Action::Mkdir { dir: other, name: C }).await;
                worker.act(rename(other, C, first, C)).await;
                worker.act(rename(other, B, first, A)).await;
                worker.act(Action::Rmdir { dir: first, name: C }).await;
            });
            let looking = stage.begin(looker_node, looker, async move |worker| {
                for _ in 0..6 {
                    worker.act(Action::LookupHandle { dir: first, name: A }).await;
                    worker.act(Action::LookupHandle { dir: other, name: B }).await;
                    worker.act(Action::GetAttr { handle: first, held: false }).await;
                }
            });
            let context = format!("server {victim} dies after {polls} polls");
            finish(&mut stage, vec![moving, looking], false, Tolerance::default(), &context);
        }
    }
}

#[test]
fn promise_linearizable_metadata() {
    let only_names = |plan: &mut Plan| plan.with_data = false;
    seeds_of(FaultProfile::Calm, 20_000, 6, only_names);
    seeds_of(FaultProfile::Crashes, 20_000, 16, only_names);
}

/// One client makes and removes the same names over a bad network and over restarts. Every answer
/// is known in advance, so a request that was done twice, or whose first answer was forgotten,
/// shows at once.
#[test]
fn promise_exactly_once() {
    for seed in 0..12 {
        let mut stage = stage(2000 + seed, 2, Durability::Batch);
        let dirs = stage.with_auditor(async |worker| Ok(two_dirs_apart(worker).await)).expect("no fault has struck yet");
        let (node, worker) = stage.add_worker("client", 120 * SECOND);
        let bad = MessageFaults { lose: 60_000, duplicate: 60_000, delay: 100_000, ..MessageFaults::BAD };
        stage.sim.message_faults(bad, 300 * SECOND);
        let control = stage.sim.control();
        let servers = stage.cluster.servers().to_vec();
        let crashing = stage.begin(node, worker, async move |worker| {
            for round in 0..10 {
                let victim = servers[round % 2];
                control.strike(&Fault::Crash { node: victim, down_ns: 5 * MILLISECOND });
                let dir = if round % 3 == 0 { dirs.0 } else { dirs.1 };
                let file = create(worker, dir, C).await;
                done(worker.act(Action::Close { handle: file }).await);
                done(worker.act(rename(dir, C, dirs.0, Name(3))).await);
                mkdir(worker, dir, C).await;
                done(worker.act(Action::Rmdir { dir, name: C }).await);
                done(worker.act(Action::Unlink { dir: dirs.0, name: Name(3) }).await);
            }
        });
        finish(&mut stage, vec![crashing], false, Tolerance::default(), &format!("seed {seed}"));
    }
}

/// Clients move three directories into each other, in circles. Whatever wins, everything remains
/// reachable from the root.
#[test]
fn promise_no_directory_cycles() {
    for seed in 0..25 {
        let mut stage = stage(3000 + seed, 3, Durability::Batch);
        let dirs = stage
            .with_auditor(async |worker| {
                let mut dirs = vec![ROOT_HANDLE];
                for name in 0..3 {
                    dirs.push(mkdir(worker, ROOT_HANDLE, Name(name)).await);
                }
                Ok(dirs)
            })
            .expect("no fault has struck yet");
        let running = (1..=3).map(|number| {
            let (node, worker) = stage.add_worker(&format!("client{number}"), 60 * SECOND);
            let dirs = dirs.clone();
            stage.begin(node, worker, async move |worker| {
                for _ in 0..10 {
                    let at = worker.random.below(4) as usize;
                    let to = worker.random.below(4) as usize;
                    let name = Name(worker.random.below(3) as u8);
                    worker.act(rename(dirs[at], name, dirs[to], name)).await;
                }
            })
        });
        let running = running.collect();
        finish(&mut stage, running, false, Tolerance::default(), &format!("seed {seed}"));
    }
}

#[test]
fn promise_sync_survives_power_cut() {
    seeds_of(FaultProfile::PowerSync, 30_000, 16, |_| {});
}

#[test]
fn promise_batch_survives_power_cut_after_interval() {
    seeds_of(FaultProfile::PowerBatch, 30_000, 16, |_| {});
}

/// Servers die while their disks are full, and must start on these.
#[test]
fn promise_full_disk() {
    seeds_of(FaultProfile::FullDisks, 40_000, 24, |plan| {
        plan.faults.disk_full = 12;
        plan.faults.crashes = 8;
    });
}

/// A disk full of old bytes, files with holes on it, power cuts before anything is synced: a byte
/// is what was written there, or zero.
#[test]
fn promise_holes_read_zero() {
    for seed in 0..12 {
        let mut stage = stage(4000 + seed, 1, Durability::Batch);
        let (node, worker) = stage.add_worker("client", 60 * SECOND);
        let control = stage.sim.control();
        let servers = stage.cluster.servers().to_vec();
        let begun = stage.shared.borrow().history.now();
        let writing = stage.begin(node, worker, async move |worker| {
            for round in 0..6u8 {
                let old = create(worker, ROOT_HANDLE, A).await;
                done(worker.act(Action::Write { handle: old, offset: 0, len: 40_000, tag: 200 + round }).await);
                done(worker.act(Action::Fsync { handle: old }).await);
                done(worker.act(Action::Close { handle: old }).await);
                done(worker.act(Action::Unlink { dir: ROOT_HANDLE, name: A }).await);
                // Time for its space to be given back and used again.
                let rested = worker.client.rt().now() + 4 * BATCH_NS;
                worker.client.rt().sleep_until(rested).await;
                let new = create(worker, ROOT_HANDLE, B).await;
                for piece in 0..5 {
                    let (offset, len) = (worker.random.below(36_000), worker.random.between(1, 900));
                    done(worker.act(Action::Write { handle: new, offset, len, tag: 10 * round + piece + 1 }).await);
                    worker.act(Action::Read { handle: new, offset: 0, len: 40_000 }).await;
                }
                if round % 2 == 0 {
                    done(worker.act(Action::Fsync { handle: new }).await);
                    done(worker.act(Action::Write { handle: new, offset: 39_000, len: 100, tag: 10 * round + 9 }).await);
                }
                // Only data servers: the file itself stays.
                let victim = servers[1 + usize::from(round) % 2];
                control.strike(&Fault::PowerCut { node: victim, down_ns: 10 * MILLISECOND });
                worker.act(Action::Read { handle: new, offset: 0, len: 40_000 }).await;
                done(worker.act(Action::Close { handle: new }).await);
                done(worker.act(rename(ROOT_HANDLE, B, ROOT_HANDLE, Name(3 + round))).await);
            }
        });
        // Which bytes a power cut takes is not the question here; that none comes from elsewhere
        // is.
        let tolerance = Tolerance { lost_between: Some((begun, u64::MAX)), ..Tolerance::default() };
        finish(&mut stage, vec![writing], true, tolerance, &format!("seed {seed}"));
    }
}

/// A file is cut and extended again while servers die at every possible moment: what was cut off
/// never comes back.
#[test]
fn promise_truncate_is_final() {
    for victim in 0..3 {
        for polls in (1..60).chain((60..200).step_by(11)) {
            let mut stage = stage(5000 + polls, 1, Durability::Batch);
            let (node, worker) = stage.add_worker("client", 60 * SECOND);
            let (other_node, other) = stage.add_worker("other", 60 * SECOND);
            let file = stage
                .with_auditor(async |worker| {
                    let file = create(worker, ROOT_HANDLE, A).await;
                    done(worker.act(Action::Write { handle: file, offset: 0, len: 20_000, tag: 1 }).await);
                    done(worker.act(Action::Close { handle: file }).await);
                    Ok(file)
                })
                .expect("no fault has struck yet");
            let struck: NodeId = stage.cluster.servers()[victim];
            stage.sim.strike_after_polls(struck, polls, Fault::Crash { node: struck, down_ns: 20 * MILLISECOND });
            let cutting = stage.begin(node, worker, async move |worker| {
                done(worker.act(Action::Open { handle: file }).await);
                done(worker.act(Action::SetSize { handle: file, size: 3000 }).await);
                done(worker.act(Action::SetSize { handle: file, size: 15_000 }).await);
                done(worker.act(Action::Read { handle: file, offset: 0, len: 20_000 }).await);
                done(worker.act(Action::Write { handle: file, offset: 9000, len: 100, tag: 2 }).await);
                done(worker.act(Action::SetSize { handle: file, size: 0 }).await);
                done(worker.act(Action::Write { handle: file, offset: 12_000, len: 10, tag: 3 }).await);
                done(worker.act(Action::Read { handle: file, offset: 0, len: 20_000 }).await);
                done(worker.act(Action::Close { handle: file }).await);
            });
            let reading = stage.begin(other_node, other, async move |worker| {
                done(worker.act(Action::Open { handle: file }).await);
                for _ in 0..5 {
                    done(worker.act(Action::Read { handle: file, offset: 0, len: 20_000 }).await);
                    done(worker.act(Action::GetAttr { handle: file, held: true }).await);
                }
                done(worker.act(Action::Close { handle: file }).await);
            });
            let context = format!("server {victim} dies after {polls} polls");
            finish(&mut stage, vec![cutting, reading], true, Tolerance::default(), &context);
        }
    }
}

/// Contents are put and read, opened for writing, removed and moved, while servers die and machines
/// lose power.
#[test]
fn promise_contents_are_whole() {
    for fault_profile in [FaultProfile::Crashes, FaultProfile::PowerSync, FaultProfile::PowerBatch, FaultProfile::FullDisks] {
        let plans = (30_000..).map(|seed| Plan::putting(seed, None)).filter(|plan| plan.fault_profile == fault_profile);
        for plan in plans.take(8) {
            let report = run_plan(&plan, false);
            assert!(report.is_good(), "{report}");
        }
    }
}
