//! A directory that many read and one changes: how long the one waits.

use weft_base::{MILLISECOND, SECOND};
use weft_rt::Runtime;
use weft_rt_sim::{Joined, Profile, Sim};
use weft_sim_tests::cluster::{Cluster, ClusterConfig};
use weft_sim_tests::mount::{Mount, caller};

use super::ROOT;

/// How long each of so many creates takes, sorted, in virtual nanoseconds; one begins every
/// `every_ns`.
async fn make_files(mount: Mount, files: u64, every_ns: u64) -> Vec<u64> {
    let (who, mut taken) = (caller(1, 0), Vec::new());
    for number in 0..files {
        let begin = mount.posix.rt().now();
        let file = mount.create(&who, ROOT, &format!("new{number}"), 0o644).await.expect("a new file");
        taken.push(mount.posix.rt().now().since(begin));
        mount.release(file.opened.number).await;
        mount.posix.rt().sleep_until(begin + every_ns).await;
    }
    taken.sort_unstable();
    taken
}

/// Looks at old names for ever, from memory as long as it may.
async fn look(mount: Mount, every_ns: u64) {
    let who = caller(2, 0);
    loop {
        let rt = mount.posix.rt();
        let name = format!("old{}", rt.random() % 100);
        let node = mount.walk(&who, ROOT, &name, false).await.expect("it is there");
        mount.stat(node).await.expect("it has attributes");
        rt.sleep_until(rt.now() + rt.random() % (2 * every_ns)).await;
    }
}

/// Times of the writer's creates among so many readers, sorted, in nanoseconds.
fn times(readers: usize, every_ns: u64) -> Vec<u64> {
    let sim = Sim::new(1, Profile::ethernet_10g());
    let cluster = Cluster::start(&sim, &ClusterConfig { meta: 1, data: 1, ..ClusterConfig::small() });
    let writer = Mount::new(&sim, &cluster, "writer", None);
    sim.run_for(SECOND);
    let run = |flow: Joined<Vec<u64>>| {
        sim.run_until_true(sim.now() + 600 * SECOND, || flow.is_over()).expect("every wait has an end");
        flow.take().expect("nobody dies")
    };
    let mount = writer.clone();
    run(sim.spawn_on(writer.node, |_| async move {
        let who = caller(1, 0);
        for number in 0..100 {
            let file = mount.create(&who, ROOT, &format!("old{number}"), 0o644).await.expect("a new file");
            mount.release(file.opened.number).await;
        }
        Vec::new()
    }));
    for number in 0..readers {
        let mount = Mount::new(&sim, &cluster, &format!("reader{number}"), None);
        sim.spawn_on(mount.node, |_| look(mount, 100 * MILLISECOND));
    }
    sim.run_for(3 * SECOND);
    run(sim.spawn_on(writer.node, |_| make_files(writer, 200, every_ns)))
}

/// The server tells every reader of a change, and hears from each that it has forgotten: its work
/// is a request for each, 4 us here. `WEFT_READERS=1000` takes half a minute.
#[test]
fn a_writer_among_readers_waits_for_a_request_of_each() {
    let readers = std::env::var("WEFT_READERS").map_or(100, |count| count.parse().expect("a number of readers"));
    let request_ns = Profile::ethernet_10g().cpu.request_ns;
    let alone = times(0, 50 * MILLISECOND)[0];
    for every_ms in [200, 50] {
        let taken = times(readers, every_ms * MILLISECOND);
        let at = |per_mille: usize| taken[taken.len() * per_mille / 1000];
        let ms = |time_ns: u64| time_ns as f64 / 1e6;
        println!("{readers} readers, a create every {every_ms} ms: median {}, p99 {}, {} alone", ms(at(500)), ms(at(990)), ms(alone));
        assert!(at(500) > alone, "readers are told");
        let bound = 5 * alone + readers as u64 * request_ns * 5 / 4;
        assert!(at(990) <= bound, "p99 {} ns of at most {bound} ns", at(990));
    }
}
