//! Stores that lack what they had: a folder that is an older copy of itself, a journal whose end is
//! missing. Each is refused by name, and what was acknowledged stays where it is.

use std::fmt::Display;

use weft_base::{Credentials, ROOT_HANDLE, SECOND};
use weft_client::{Client, CreateOptions};
use weft_rt::Bulk;
use weft_rt_sim::{NodeId, Profile, Sim, SimRt};
use weft_sim_tests::cluster::{Cluster, ClusterConfig};

const WHO: Credentials = Credentials::ROOT;
/// Long enough for servers to ask each other how far their journals are, and to note it.
const NOTED_NS: u64 = 130 * SECOND;
/// Long enough for a start and for the others to say what they know.
const JUDGED_NS: u64 = 10 * SECOND;

/// A cluster with a client.
struct Scene {
    sim: Sim,
    cluster: Cluster,
    node: NodeId,
    client: Client<SimRt>,
}

impl Scene {
    fn new(seed: u64) -> Scene {
        let sim = Sim::new(seed, Profile::default());
        let config = ClusterConfig { meta: 2, data: 2, segment_bytes: 256 << 10, ..ClusterConfig::small() };
        let cluster = Cluster::start(&sim, &config);
        let (node, client) = cluster.add_client("client", 30 * SECOND);
        sim.run_for(SECOND);
        Scene { sim, cluster, node, client }
    }

    /// Directories on both metadata servers, files in them, data on all data servers.
    fn work(&self, kind: impl Display + 'static) {
        let client = self.client.clone();
        let work = move |_| async move {
            for index in 0..100 {
                let dir = client.mkdir(&WHO, ROOT_HANDLE, format!("{kind}{index}").as_bytes(), 0o755).await?.handle;
                let (_, file, _) = client.create(&WHO, dir, b"file", &CreateOptions::default()).await?;
                client.write(&file, 0, Bulk::Slices(vec![&[7; 16 << 10]])).await?;
                client.close(file).await?;
            }
            weft_client::Result::Ok(())
        };
        self.sim.block_on(self.node, 600 * SECOND, work).expect("it ends").expect("nothing fails");
    }

    /// Why the first server has ended, if one has.
    fn exit(&self) -> Option<String> {
        self.cluster.first_exit().map(|exit| exit.why)
    }
}

#[test]
fn an_older_copy_of_a_store_is_refused() {
    for (index, name) in [(0, "meta0"), (1, "meta1"), (2, "data0"), (3, "data1")] {
        for seed in 0..2 {
            let scene = Scene::new(seed);
            let node = scene.cluster.servers()[index];
            scene.work("before");
            scene.sim.run_for(NOTED_NS);
            scene.sim.crash(node);
            let copy = scene.sim.copy_disk(node);
            scene.sim.restart(node);
            scene.sim.run_for(JUDGED_NS);
            scene.work("after");
            scene.sim.run_for(NOTED_NS);
            // What it has now is taken.
            scene.sim.power_cut(node);
            scene.sim.restart(node);
            scene.sim.run_for(JUDGED_NS);
            assert_eq!(scene.exit(), None, "{name}, seed {seed}");
            scene.sim.crash(node);
            scene.sim.put_disk(node, &copy);
            scene.sim.restart(node);
            scene.sim.run_for(JUDGED_NS);
            let why = scene.exit().unwrap_or_default();
            assert!(why.contains(&format!("the store of {name} is an older copy of itself")), "{name}, seed {seed}: {why}");
        }
    }
}

/// Also where nobody else could say so: the server has noted how far it was.
#[test]
fn a_journal_without_its_newest_segments_is_refused() {
    for (index, name) in [(0, "meta0"), (1, "meta1"), (2, "data0"), (3, "data1")] {
        let scene = Scene::new(index as u64);
        let node = scene.cluster.servers()[index];
        let segments = || -> Vec<u64> {
            let files = scene.sim.disk_files(node);
            let mut numbers: Vec<u64> = files.iter().filter_map(|(file, _)| file.strip_prefix("journal.")?.parse().ok()).collect();
            numbers.sort_unstable();
            numbers
        };
        for round in 0.. {
            if segments().len() > 1 {
                break;
            }
            scene.work(format!("round{round}."));
        }
        scene.sim.run_for(NOTED_NS);
        scene.sim.crash(node);
        let newest = segments().pop().expect("there are two");
        assert!(scene.sim.remove_file(node, &format!("journal.{newest}")));
        scene.sim.restart(node);
        scene.sim.run_for(JUDGED_NS);
        let why = scene.exit().unwrap_or_default();
        assert!(why.contains(&format!("the journal of {name} ends at record")), "{name}: {why}");
    }
}
