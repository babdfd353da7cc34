//! The disk: what it keeps, what it refuses, and how long it takes.

mod common;

use common::{at, sleep};
use weft_base::{MILLISECOND, Payload, SECOND};
use weft_rt::{Disk, DiskError, Runtime, ServerRuntime, join_all};
use weft_rt_sim::models::{DiskProfile, SeekProfile};
use weft_rt_sim::{DiskFaultKind, NodeConfig, NodeId, Profile, Random, Sim, SimRt};

fn one_node(seed: u64) -> (Sim, NodeId) {
    let sim = Sim::new(seed, Profile::instant());
    let node = sim.add_node(NodeConfig::client("client0"));
    (sim, node)
}

fn bytes(value: u8, len: usize) -> Payload {
    vec![value; len].into()
}

#[test]
fn files_behave_like_files() {
    let (sim, node) = one_node(1);
    sim.block_on(node, SECOND, |rt| async move {
        let disk = rt.disk();
        assert_eq!(disk.open("a", false).await, Err(DiskError::NotFound));
        let a = disk.open("a", true).await.unwrap();
        disk.write(a, 10, bytes(1, 5)).await.unwrap();
        assert_eq!(disk.len(a).await, Ok(15));
        assert_eq!(disk.read(a, 8, 100).await.unwrap().to_bytes()[..], [0, 0, 1, 1, 1, 1, 1]);
        assert_eq!(disk.read(a, 15, 100).await.unwrap().len(), 0);
        disk.set_len(a, 12).await.unwrap();
        disk.set_len(a, 14).await.unwrap();
        assert_eq!(disk.read(a, 8, 100).await.unwrap().to_bytes()[..], [0, 0, 1, 1, 0, 0]);
        disk.allocate(a, 0, 100).await.unwrap();
        assert_eq!(disk.len(a).await, Ok(100));
        disk.punch(a, 10, 1).await.unwrap();
        assert_eq!(disk.read(a, 10, 2).await.unwrap().to_bytes()[..], [0, 1]);
        // A second handle, a rename over another file, and removal of an open file.
        let b = disk.open("b", true).await.unwrap();
        disk.write(b, 0, bytes(2, 1)).await.unwrap();
        disk.rename("a", "b").await.unwrap();
        assert_eq!(disk.list().await.unwrap(), ["b"]);
        assert_eq!(disk.read(b, 0, 10).await.unwrap().to_bytes()[..], [2]);
        let again = disk.open("b", false).await.unwrap();
        assert_eq!(disk.len(again).await, Ok(100));
        disk.remove("b").await.unwrap();
        assert_eq!(disk.remove("b").await, Err(DiskError::NotFound));
        assert_eq!(disk.rename("b", "c").await, Err(DiskError::NotFound));
        assert_eq!(disk.len(a).await, Ok(100));
        disk.close(a);
        assert!(matches!(disk.len(a).await, Err(DiskError::Failed(_))));
        disk.close(again);
        disk.close(b);
        let (total, free) = disk.space().await.unwrap();
        assert_eq!(total, free, "removed and closed files take no space");
    })
    .unwrap();
}

#[test]
fn a_full_disk_refuses_but_rewrites_and_reserved_space_work() {
    let sim = Sim::new(1, Profile::instant());
    let node = sim.add_node(NodeConfig { disk_bytes: 64 << 10, ..NodeConfig::client("client0") });
    sim.block_on(node, SECOND, |rt| async move {
        let disk = rt.disk();
        let a = disk.open("a", true).await.unwrap();
        disk.allocate(a, 0, 32 << 10).await.unwrap();
        disk.write(a, 32 << 10, bytes(1, 28 << 10)).await.unwrap();
        assert_eq!(disk.space().await, Ok((64 << 10, 4 << 10)));
        assert_eq!(disk.allocate(a, 0, 100 << 10).await, Err(DiskError::NoSpace));
        assert_eq!(disk.write(a, 60 << 10, bytes(2, 8 << 10)).await, Err(DiskError::NoSpace));
        disk.write(a, 0, bytes(3, 60 << 10)).await.unwrap();
        disk.punch(a, 0, 16 << 10).await.unwrap();
        disk.write(a, 100 << 10, bytes(4, 8 << 10)).await.unwrap();
        assert_eq!(disk.read(a, 0, 4).await.unwrap().to_bytes()[..], [0; 4]);
    })
    .unwrap();
    sim.fill_disk(node, 10 * MILLISECOND);
    sim.block_on(node, SECOND, |rt| async move {
        let disk = rt.disk();
        assert_eq!(disk.space().await.unwrap().1, 0);
        assert_eq!(disk.open("b", true).await, Err(DiskError::NoSpace));
        sleep(&rt, 10 * MILLISECOND).await;
        disk.open("b", true).await.unwrap();
    })
    .unwrap();
}

#[test]
fn injected_errors_strike_as_often_as_told() {
    let (sim, node) = one_node(1);
    sim.fail_disk(node, DiskFaultKind::Write, 2);
    sim.fail_disk(node, DiskFaultKind::Read, 1);
    sim.block_on(node, SECOND, |rt| async move {
        let disk = rt.disk();
        let a = disk.open("a", true).await.unwrap();
        for _ in 0..2 {
            assert!(matches!(disk.write(a, 0, bytes(1, 1)).await, Err(DiskError::Failed(_))));
        }
        disk.write(a, 0, bytes(1, 1)).await.unwrap();
        assert!(disk.read(a, 0, 1).await.is_err());
        assert_eq!(disk.read(a, 0, 1).await.unwrap(), bytes(1, 1));
    })
    .unwrap();
}

#[test]
fn a_failed_sync_is_not_healed_by_the_next_one() {
    let mut lost = 0;
    for seed in 0..20 {
        let (sim, node) = one_node(seed);
        sim.fail_disk(node, DiskFaultKind::Sync, 1);
        sim.block_on(node, SECOND, |rt| async move {
            let disk = rt.disk();
            let a = disk.open("a", true).await.unwrap();
            disk.write(a, 0, bytes(1, 512)).await.unwrap();
            assert!(disk.sync(a).await.is_err());
            disk.sync(a).await.unwrap();
            assert_eq!(disk.read(a, 0, 512).await.unwrap(), bytes(1, 512));
        })
        .unwrap();
        sim.power_cut(node);
        lost += usize::from(sim.disk_content(node, "a").unwrap().is_empty());
    }
    assert_eq!(lost, 20);
}

#[test]
fn a_crash_keeps_everything_that_was_written() {
    let (sim, node) = one_node(1);
    let boot = sim.block_on(node, SECOND, write_three).unwrap();
    sim.crash(node);
    sim.restart(node);
    let after = sim
        .block_on(node, SECOND, |rt| async move {
            let a = rt.disk().open("a", false).await.unwrap();
            let content = rt.disk().read(a, 0, 1 << 20).await.unwrap();
            (rt.disk().boot_id(), content.to_bytes())
        })
        .unwrap();
    assert_eq!(after.0, boot, "the machine was up all the time");
    assert_eq!(after.1[..], [[1u8; 700], [2; 700], [3; 700]].concat());
}

async fn write_three(rt: SimRt) -> u64 {
    let a = rt.disk().open("a", true).await.unwrap();
    for value in 1..=3u8 {
        rt.disk().write(a, u64::from(value - 1) * 700, bytes(value, 700)).await.unwrap();
    }
    rt.disk().boot_id()
}

#[test]
fn a_power_cut_changes_the_boot_id_and_may_lose_what_was_not_synced() {
    let (mut all, mut none, mut part) = (0, 0, 0);
    for seed in 0..60 {
        let (sim, node) = one_node(seed);
        let boot = sim.block_on(node, SECOND, write_three).unwrap();
        sim.power_cut(node);
        sim.restart(node);
        let boot_after = sim.block_on(node, SECOND, |rt| async move { rt.disk().boot_id() }).unwrap();
        assert_ne!(boot, boot_after);
        let content = sim.disk_content(node, "a").expect("creation is durable").to_bytes();
        match content.len() {
            0 => none += 1,
            2100 if content[..] == [[1u8; 700], [2; 700], [3; 700]].concat() => all += 1,
            _ => part += 1,
        }
    }
    assert!(all > 5 && none > 5 && part > 5, "{all} {none} {part}");
}

/// Random writes and syncs, then a power cut at a random moment: every byte that a returned sync
/// covers is there unless it was overwritten later, and every sector shows a value that was written
/// to it.
#[test]
fn synced_bytes_survive_power_cuts_at_any_moment() {
    const SECTORS: usize = 64;
    for seed in 0..300 {
        let (sim, node) = one_node(seed);
        // acceptable[s]: values that sector s may show: the last synced one and all later ones.
        let acceptable = std::rc::Rc::new(std::cell::RefCell::new(vec![vec![0u8]; SECTORS]));
        let shared = std::rc::Rc::clone(&acceptable);
        sim.spawn_on(node, move |rt| async move {
            let mut random = Random::new(seed);
            let disk = rt.disk();
            let a = disk.open("a", true).await.unwrap();
            disk.allocate(a, 0, SECTORS as u64 * 512).await.unwrap();
            disk.sync(a).await.unwrap();
            for round in 1..=200u8 {
                let first = random.below(SECTORS as u64) as usize;
                let last = random.between(first as u64, (first + 8).min(SECTORS - 1) as u64) as usize;
                // From its submission on the value may be there.
                shared.borrow_mut()[first..=last].iter_mut().for_each(|values| values.push(round));
                disk.write(a, first as u64 * 512, bytes(round, (last + 1 - first) * 512)).await.unwrap();
                if random.chance(200_000) {
                    let before = shared.borrow().clone();
                    disk.sync(a).await.unwrap();
                    *shared.borrow_mut() = before.into_iter().map(|values| vec![values[values.len() - 1]]).collect();
                }
            }
        });
        sim.run_until(at(Random::new(seed ^ 99).below(4 * MILLISECOND)));
        sim.power_cut(node);
        let Some(content) = sim.disk_content(node, "a") else { continue };
        let content = content.to_bytes();
        for (index, sector) in content.chunks(512).enumerate() {
            assert!(sector.iter().all(|byte| *byte == sector[0]), "seed {seed}: sector {index} is torn");
            let acceptable = &acceptable.borrow()[index];
            assert!(acceptable.contains(&sector[0]), "seed {seed}: sector {index} shows {}, not one of {acceptable:?}", sector[0]);
        }
    }
}

#[test]
fn a_write_cut_short_by_a_crash_is_a_prefix() {
    let (mut none, mut all, mut part) = (0, 0, 0);
    for seed in 0..60 {
        let (sim, node) = one_node(seed);
        sim.spawn_on(node, |rt| async move {
            let a = rt.disk().open("a", true).await.unwrap();
            rt.disk().write(a, 0, bytes(1, 4096)).await.unwrap();
            sleep(&rt, SECOND).await;
        });
        // Stop between the creation of the file and the end of the write.
        sim.run_until_true(at(SECOND), || sim.usage(node).disk.writes == 1).unwrap();
        sim.crash(node);
        let content = sim.disk_content(node, "a").unwrap().to_bytes();
        assert!(content.iter().all(|byte| *byte == 1));
        match content.len() {
            0 => none += 1,
            4096 => all += 1,
            _ => part += 1,
        }
    }
    assert!(none > 0 && all > 0 && part > 10, "{none} {all} {part}");
}

#[test]
fn writes_overtake_a_sync_and_syncs_queue() {
    let mut profile = Profile::ethernet_10g();
    profile.disk.call_ns = 1_000;
    profile.disk.sync_ns = 100_000;
    profile.disk.memory_bytes_per_s = 0;
    profile.disk.memory_write_bytes_per_s = 0;
    profile.disk.write_bytes_per_s = 1_000_000_000;
    let sim = Sim::new(1, profile);
    let node = sim.add_node(NodeConfig { cores: 4, ..NodeConfig::client("client0") });
    let ends = sim.block_on(node, SECOND, |rt| async move {
        let disk = rt.disk();
        let a = disk.open("a", true).await.unwrap();
        let b = disk.open("b", true).await.unwrap();
        disk.write(a, 0, Payload::Synthetic { len: 1_000_000, tag: 1 }).await.unwrap();
        let begin = rt.now();
        let rt = &rt;
        join_all((0..3).map(|index| async move {
            match index {
                0 => rt.disk().sync(a).await.unwrap(),
                1 => rt.disk().write(b, 0, bytes(1, 100)).await.unwrap(),
                _ => rt.disk().sync(b).await.unwrap(),
            }
            rt.now().since(begin)
        }))
        .await
    });
    // The first sync has 1 MB to write at 1 GB/s, the second nothing: its write was not complete
    // when it began.
    assert_eq!(ends.unwrap(), [1_101_000, 1_000, 1_201_000]);
}

#[test]
fn uncached_reads_queue_at_the_disk() {
    let mut profile = Profile::ethernet_10g();
    profile.disk.reads_cached = false;
    profile.disk.call_ns = 0;
    profile.disk.memory_bytes_per_s = 0;
    profile.disk.memory_write_bytes_per_s = 0;
    let (read_ns, rate) = (profile.disk.read_ns, profile.disk.read_bytes_per_s);
    let sim = Sim::new(1, profile);
    let node = sim.add_node(NodeConfig::client("client0"));
    let elapsed = sim.block_on(node, SECOND, |rt| async move {
        let a = rt.disk().open("a", true).await.unwrap();
        rt.disk().write(a, 0, Payload::Synthetic { len: 1 << 20, tag: 1 }).await.unwrap();
        let begin = rt.now();
        let disk = rt.disk();
        join_all((0..8).map(|index| disk.read(a, index * 4096, 4096))).await;
        rt.now().since(begin)
    });
    assert_eq!(elapsed.unwrap(), 8 * (read_ns + 4096 * SECOND / rate));
}

#[test]
fn damage_behind_the_back_shows() {
    let (sim, node) = one_node(1);
    sim.block_on(node, SECOND, write_three).unwrap();
    assert!(sim.corrupt(node, "a", 699, vec![9, 9]));
    assert!(!sim.corrupt(node, "b", 0, vec![9]));
    assert_eq!(sim.disk_content(node, "a").unwrap().to_bytes()[698..702], [1, 9, 9, 2]);
    assert_eq!(sim.disk_files(node), [("a".to_string(), 2100)]);
}

#[test]
fn the_head_of_a_rotating_disk_pays_for_each_range() {
    let usual = Profile::default();
    let disk = DiskProfile {
        reads_cached: false,
        read_ns: 0,
        sync_ns: 0,
        read_bytes_per_s: 50 << 20,
        write_bytes_per_s: 50 << 20,
        seek: Some(SeekProfile { near_ns: 5_166_666, far_ns: 14_166_666, near_bytes: 5 << 20 }),
        ..usual.disk
    };
    let profile = Profile { disk, ..usual };
    let (seek, rate) = (profile.disk.seek.unwrap(), profile.disk.write_bytes_per_s);
    let sim = Sim::new(1, profile);
    let node = sim.add_node(NodeConfig::client("client0"));
    let took = sim
        .block_on(node, 100 * SECOND, move |rt| async move {
            let disk = rt.disk();
            let file = disk.open("a", true).await.unwrap();
            // Three ranges: the first is written in two pieces, the second is near it, the third
            // far away.
            for (offset, len) in [(0, 4096), (4096, 4096), (1 << 20, 4096), (100 << 20, 4096)] {
                disk.write(file, offset, Payload::Synthetic { len, tag: 1 }).await.unwrap();
            }
            let begin = rt.now();
            disk.sync(file).await.unwrap();
            let synced = rt.now().since(begin);
            disk.read(file, (100 << 20) + 4096, 4096).await.unwrap();
            synced
        })
        .unwrap();
    let counts = sim.usage(node).disk;
    // Making the file is a far access, the read that continues the last write is sequential.
    assert_eq!((counts.sequential, counts.near, counts.far), (1, 1, 3));
    let expected = 2 * seek.far_ns + seek.near_ns + 16_384 * SECOND / rate;
    let ratio = took as f64 / expected as f64;
    assert!((0.999..1.01).contains(&ratio), "{took} ns, {expected} ns by the formula");
}

#[test]
fn accesses_are_spread_evenly_over_their_range_and_calls_are_not() {
    let mut profile = Profile::instant();
    (profile.disk.call_ns, profile.disk.sync_ns, profile.disk.jitter_ns) = (0, 5 * MILLISECOND, 0);
    profile.disk.access_spread_ns = 10 * MILLISECOND;
    let sim = Sim::new(3, profile);
    let node = sim.add_node(NodeConfig::client("client0"));
    let (least, mean, most) = sim
        .block_on(node, 60 * SECOND, |rt| async move {
            let file = rt.disk().open("a", true).await.unwrap();
            let (mut least, mut sum, mut most) = (u64::MAX, 0, 0);
            for _ in 0..1000 {
                let began = rt.now();
                rt.disk().write(file, 0, bytes(1, 1)).await.unwrap();
                assert_eq!(rt.now(), began, "a call is no access");
                rt.disk().sync(file).await.unwrap();
                let took = rt.now().since(began);
                (least, sum, most) = (took.min(least), sum + took, took.max(most));
            }
            (least, sum / 1000, most)
        })
        .unwrap();
    assert!((5 * MILLISECOND..6 * MILLISECOND).contains(&least), "{least}");
    assert!((9_500_000..10_500_000).contains(&mean), "{mean}");
    assert!((14 * MILLISECOND..15 * MILLISECOND).contains(&most), "{most}");
}
