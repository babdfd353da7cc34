//! A campaign of full disks: fill, work, restart on what is full, look at everything, make room,
//! work. After every round the file system is whole again by itself.

use weft_base::{MILLISECOND, ROOT_HANDLE, SECOND, Status};
use weft_layout::INLINE_BYTES_MAX;
use weft_rt_sim::{Joined, Random};
use weft_sim_tests::cluster::{BATCH_NS, ClusterConfig, Durability, Engine};
use weft_sim_tests::history::{Action, Name, Outcome};
use weft_sim_tests::plan::OperationMix;
use weft_sim_tests::stage::{Stage, Tolerance};
use weft_sim_tests::workload::{Choices, SETTLE_NS, Worker};

const ROUNDS: u32 = 20;
const FULL: Tolerance = Tolerance { full_disks: true, calm: false, lost_between: None };

/// A flow of the only client, to its end.
fn with_client(stage: &mut Stage, client: &mut Option<(weft_rt_sim::NodeId, Worker)>, flow: impl AsyncFnOnce(&mut Worker) + 'static) {
    let (node, worker) = client.take().expect("it comes back");
    let running: Joined<Worker> = stage.begin(node, worker, flow);
    let waited = stage.wait(std::slice::from_ref(&running));
    let worker = running.take();
    waited.unwrap_or_else(|stuck| panic!("{stuck}\n{}", stage.shared.borrow().history));
    *client = Some((node, worker.expect("no client dies here")));
}

fn campaign(seed: u64, storage: Engine) {
    let mut random = Random::new(seed ^ 0xF111);
    let contract = if random.coin() { Durability::Batch } else { Durability::Sync };
    let config = ClusterConfig {
        meta: random.between(1, 2) as usize,
        data: 2,
        contract,
        storage,
        segment_bytes: 256 << 10,
        checkpoint_bytes: if random.coin() { 2 << 10 } else { 64 << 10 },
        inline_limit: INLINE_BYTES_MAX,
        ..ClusterConfig::small()
    };
    let mut stage = Stage::new(seed, &config, 0);
    stage.wait_for_servers().expect("a new cluster serves");
    let servers = stage.cluster.servers().to_vec();
    let mut client = Some(stage.add_worker("client", 30 * SECOND));
    let choices = Choices {
        mix: OperationMix::Everything,
        names: 4,
        dirs: 1,
        with_data: true,
        follow: false,
        moves: false,
        puts: storage == Engine::Journal,
    };
    for round in 0..ROUNDS {
        // Some disks are full from now on; then there is work, and these servers die and start
        // again, once or several times.
        let full: Vec<_> = servers.iter().copied().filter(|_| random.below(3) > 0).collect();
        full.iter().for_each(|node| stage.sim.fill_disk(*node, 3600 * SECOND));
        let operations = random.between(2, 12) as usize;
        with_client(&mut stage, &mut client, async move |worker| worker.work(operations, choices, 20 * MILLISECOND).await);
        for _ in 0..random.between(1, 3) {
            for node in &full {
                if random.coin() {
                    stage.sim.crash(*node);
                    stage.sim.run_for(random.below(5 * MILLISECOND));
                    stage.sim.restart(*node);
                }
            }
            stage.wait_for_servers().unwrap_or_else(|error| panic!("seed {seed}, round {round}: {error}"));
            with_client(&mut stage, &mut client, async move |worker| worker.work(2, choices, 0).await);
        }
        // There is room again: nothing else has to happen, and soon nobody is refused for want of
        // space.
        stage.sim.heal();
        stage.sim.run_for(SETTLE_NS + 4 * BATCH_NS);
        with_client(&mut stage, &mut client, async move |worker| {
            let (name, dir) = (Name(100 + round as u8), ROOT_HANDLE);
            let made = worker.act(Action::Create { dir, name, exclusive: true, truncate: false }).await;
            assert_ne!(made, Outcome::Failed(Status::NoSpace), "seed {seed}, round {round}");
            worker.act(Action::Unlink { dir, name }).await;
        });
    }
    with_client(&mut stage, &mut client, async |worker| worker.close_all().await);
    let over = stage.recover().and_then(|()| stage.examine(true, FULL));
    let (problems, undecided) = stage.judge(FULL);
    if over.is_err() || !problems.is_empty() || undecided {
        panic!("seed {seed}, {storage}: {over:?}\n{}\n{}", problems.join("\n"), stage.shared.borrow().history);
    }
}

#[test]
fn twenty_rounds_of_full_disks() {
    (7000..7012).for_each(|seed| campaign(seed, Engine::Journal));
}

#[test]
fn rounds_of_full_disks_with_embedded_databases() {
    (7000..7003).for_each(|seed| campaign(seed, Engine::Db));
    (7003..7006).for_each(|seed| campaign(seed, Engine::Dbpf));
}
