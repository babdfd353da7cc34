//! Full disks, and how space comes back.

mod common;

use std::cell::Cell;
use std::rc::Rc;

use common::{Cluster, Peer, config, error, serving};
use weft_base::{MILLISECOND, SECOND, Status};
use weft_data_server::{DataServerConfig, Durability, Engine, ServingConfig};
use weft_rt::Runtime;
use weft_rt_sim::Profile;

/// Writes MiB after MiB until there is no space; returns how many fitted.
async fn fill(peer: &Peer, handle: u64) -> u64 {
    let mut written = 0;
    loop {
        match peer.write(handle, written << 20, &vec![handle as u8; 1 << 20]).await {
            Ok(_) => written += 1,
            Err(status) => {
                assert_eq!(status, Status::NoSpace);
                return written;
            }
        }
    }
}

#[test]
fn a_full_container_loses_nothing_and_takes_more_after_a_removal() {
    for engine in [Engine::Journal, Engine::Memory] {
        for durability in [Durability::Batch, Durability::None, Durability::Sync] {
            let serving = ServingConfig { engine, durability, ..serving() };
            let config = DataServerConfig { serving, capacity_bytes: Some(8 << 20), ..config() };
            let cluster = Cluster::new(1, Profile::instant(), config);
            cluster.run(async |peer: Peer| {
                let first = fill(&peer, 1).await;
                assert_eq!(first, 7, "8 MiB less the header");
                assert_eq!(error(peer.write(2, 0, &vec![2; 2 << 20]).await), Status::NoSpace);
                peer.write(1, 100, b"in place").await.unwrap();
                assert!(peer.read(1, 0, 7 << 20).await.unwrap().len() == 7 << 20);
                peer.truncate(1, 2 << 20).await.unwrap();
                assert_eq!(fill(&peer, 2).await, 5, "what was cut is used again");
                assert!(peer.read(2, 0, 5 << 20).await.unwrap().iter().all(|byte| *byte == 2));
                peer.remove(1).await.unwrap();
                peer.remove(2).await.unwrap();
                assert_eq!(fill(&peer, 3).await, 7);
                peer.sync(3).await.unwrap();
            });
        }
    }
}

#[test]
fn a_hole_is_made_on_a_full_disk_and_its_space_is_used_again() {
    for durability in [Durability::Batch, Durability::None, Durability::Sync] {
        let config = DataServerConfig { capacity_bytes: Some(8 << 20), ..common::contracted(durability) };
        let cluster = Cluster::new(1, Profile::instant(), config);
        cluster.run(async |peer: Peer| {
            assert_eq!(fill(&peer, 1).await, 7);
            let allocate = peer.allocate_request(2, 0, 2 << 20, false, false);
            assert_eq!(error(peer.call(&allocate, &[]).await), Status::NoSpace, "it comes now and not later");
            peer.punch(1, 1 << 20, 3 << 20).await.unwrap();
            peer.call(&allocate, &[]).await.unwrap();
            assert_eq!(fill(&peer, 3).await, 1, "what is allocated is taken");
            peer.write(2, 0, &vec![2; 2 << 20]).await.unwrap();
            assert!(peer.read(1, 1 << 20, 3 << 20).await.unwrap().iter().all(|byte| *byte == 0));
        });
    }
}

#[test]
fn a_request_larger_than_all_space_is_refused_and_changes_nothing() {
    let cluster = Cluster::new(1, Profile::instant(), DataServerConfig { capacity_bytes: Some(1 << 20), ..config() });
    cluster.run(async |peer: Peer| {
        let pieces: Vec<_> = (0..300).map(|n| (n * 4096, 4)).collect();
        let request = peer.write_request(1, &pieces, false);
        assert_eq!(error(peer.call(&request, &[7; 1200]).await), Status::NoSpace);
        assert_eq!((peer.stat(1).await.unwrap().size, peer.ping().await.objects), (0, 0));
        let request = peer.write_request(1, &pieces[..250], false);
        peer.call(&request, &[7; 1000]).await.unwrap();
    });
}

#[test]
fn a_full_disk_loses_nothing_and_removals_make_room() {
    let cluster = Cluster::new(1, Profile::instant(), DataServerConfig { punch_bytes: 64 << 10, ..config() });
    cluster.sim.run_for(SECOND);
    cluster.sim.set_disk_bytes(cluster.server, 10 << 20);
    cluster.run(async |peer: Peer| {
        let fitted = fill(&peer, 1).await;
        assert!(fitted >= 8, "{fitted} MiB on a disk of 10");
        peer.write(1, 5, b"in place").await.unwrap();
        peer.sync(1).await.unwrap();
        assert_eq!(peer.read(1, 0, 13).await.unwrap(), b"\x01\x01\x01\x01\x01in place");
        peer.truncate(1, 1 << 20).await.unwrap();
        peer.sync(1).await.unwrap();
        assert!(fill(&peer, 2).await >= fitted - 2, "what was cut can be written again");
        peer.sync(2).await.unwrap();
    });
    cluster.restart_after_power_cut();
    cluster.run(async |peer: Peer| {
        assert_eq!(peer.stat(1).await.unwrap().size, 1 << 20);
        assert!(peer.read(2, 0, 1 << 20).await.unwrap().iter().all(|byte| *byte == 2));
    });
    assert!(cluster.errors.borrow().is_empty(), "{:?}", cluster.errors.borrow());
}

/// A restart takes the last file that was kept for the journal; what small files leave behind must
/// make room for another one.
#[test]
fn a_restart_on_a_full_disk_and_small_removals_lead_back_to_service() {
    let serving = || ServingConfig { journal_segment_bytes: 1 << 20, checkpoint_bytes: 64 << 20, ..serving() };
    let config = || DataServerConfig { serving: serving(), punch_bytes: 1 << 30, ..config() };
    let cluster = Cluster::new(1, Profile::instant(), config());
    cluster.sim.run_for(SECOND);
    cluster.sim.set_disk_bytes(cluster.server, 10 << 20);
    let small = vec![3; 64 << 10];
    let (data, fitted) = (small.clone(), Rc::new(Cell::new(0)));
    let count = fitted.clone();
    cluster.run(async move |peer: Peer| {
        while peer.write(1 + count.get(), 0, &data).await.is_ok() {
            count.set(count.get() + 1);
        }
        peer.remove(1 + count.get()).await.unwrap();
        peer.sync(1).await.unwrap();
    });
    let fitted = fitted.get();
    assert!(fitted > 60, "{fitted} objects");
    cluster.restart_after_crash();
    let data = small.clone();
    cluster.run(async move |peer: Peer| {
        for handle in 1..=fitted {
            assert_eq!(peer.read(handle, 0, 64 << 10).await.unwrap(), data);
        }
        for handle in 1..=fitted / 2 {
            peer.remove(handle).await.unwrap();
        }
        peer.sync(fitted).await.unwrap();
        peer.rt.sleep_until(peer.rt.now() + 30 * SECOND).await;
        for handle in 0..fitted / 4 {
            peer.write(1000 + handle, 0, &data).await.unwrap();
        }
    });
    assert!(cluster.errors.borrow().is_empty(), "{:?}", cluster.errors.borrow());
}

/// Small files leave their space with the container, and that is free: on a disk that others have
/// filled, too.
#[test]
fn an_emptied_store_on_a_full_disk_is_not_of_size_zero() {
    let cluster = Cluster::new(1, Profile::instant(), DataServerConfig { punch_bytes: 1 << 30, ..config() });
    cluster.run(async |peer: Peer| {
        for handle in 0..80 {
            peer.write(handle, 0, &[1; 64 << 10]).await.unwrap();
        }
        peer.sync(0).await.unwrap();
    });
    cluster.sim.fill_disk(cluster.server, 3600 * SECOND);
    cluster.run(async |peer: Peer| {
        for handle in 0..80 {
            peer.remove(handle).await.unwrap();
        }
        peer.rt.sleep_until(peer.rt.now() + 10 * SECOND).await;
        let info = peer.ping().await;
        assert_eq!(info.objects, 0);
        assert!(info.free_bytes >= 80 * (64 << 10), "{} bytes are free", info.free_bytes);
        for handle in 100..170 {
            peer.write(handle, 0, &[2; 64 << 10]).await.unwrap_or_else(|status| panic!("what is free can be written: {status}"));
        }
    });
    // After a restart it is the disk's.
    cluster.run(async |peer: Peer| {
        for handle in 100..170 {
            peer.remove(handle).await.unwrap();
        }
        peer.sync(0).await.unwrap();
    });
    cluster.restart_after_crash();
    cluster.sim.heal();
    let occupied = |cluster: &Cluster| {
        let files = cluster.sim.disk_files(cluster.server);
        files.iter().filter(|(name, _)| name == "objects").map(|(_, len)| *len).sum::<u64>()
    };
    cluster.run(async |peer: Peer| assert!(peer.ping().await.free_bytes > 0));
    assert!(occupied(&cluster) < 64 << 10, "{} bytes", occupied(&cluster));
    assert!(cluster.errors.borrow().is_empty(), "{:?}", cluster.errors.borrow());
}

#[test]
fn changes_go_on_when_the_disk_is_full_for_a_while() {
    let cluster = Cluster::new(1, Profile::instant(), config());
    cluster.run(async |peer: Peer| {
        for handle in 0..50 {
            peer.write(handle, 0, &[handle as u8; 6000]).await.unwrap();
        }
        peer.sync(0).await.unwrap();
    });
    cluster.sim.fill_disk(cluster.server, 10 * SECOND);
    cluster.run(async |peer: Peer| {
        assert_eq!(error(peer.write(60, 0, &vec![1; 1 << 20]).await), Status::NoSpace);
        for handle in 0..25 {
            peer.remove(handle).await.unwrap();
            peer.truncate(handle + 25, 3000).await.unwrap();
        }
        peer.sync(30).await.unwrap();
        assert_eq!(peer.ping().await.objects, 25);
    });
    cluster.sim.heal();
    cluster.restart_after_power_cut();
    cluster.run(async |peer: Peer| {
        assert_eq!(peer.ping().await.objects, 25);
        assert_eq!(peer.read(30, 0, 6000).await.unwrap(), [30; 3000]);
        peer.write(60, 0, &vec![1; 1 << 20]).await.unwrap();
    });
    assert!(cluster.errors.borrow().is_empty(), "{:?}", cluster.errors.borrow());
}

#[test]
fn large_removals_give_space_back_to_the_disk() {
    let cluster = Cluster::new(1, Profile::instant(), config());
    let free = |cluster: &Cluster| cluster.run(async |peer: Peer| peer.ping().await.free_bytes);
    cluster.run(async |peer: Peer| {
        for n in 0..20 {
            peer.write(1, n << 20, &vec![1; 1 << 20]).await.unwrap();
        }
        peer.write(2, 0, b"behind it").await.unwrap();
        peer.sync(2).await.unwrap();
    });
    let before = free(&cluster);
    cluster.run(async |peer: Peer| {
        peer.remove(1).await.unwrap();
        peer.sync(1).await.unwrap();
    });
    cluster.sim.run_for(SECOND);
    let after = free(&cluster);
    assert!(after >= before + (19 << 20), "{before} bytes were free, now {after}");
    cluster.run(async |peer: Peer| assert_eq!(peer.read(2, 0, 100).await.unwrap(), b"behind it"));
}

#[test]
fn the_journal_stays_small_and_recovery_finds_everything() {
    let cluster = Cluster::new(1, Profile::instant(), config());
    cluster.run(async |peer: Peer| {
        for round in 0..60u64 {
            for handle in 0..100 {
                let handle = round * 100 + handle;
                peer.write(handle, 0, &handle.to_le_bytes()).await.unwrap();
                if handle >= 150 {
                    peer.remove(handle - 150).await.unwrap();
                }
            }
            peer.sync(0).await.unwrap();
        }
    });
    cluster.sim.run_for(SECOND);
    let files = cluster.sim.disk_files(cluster.server);
    let journals: u64 = files.iter().filter(|(name, _)| name.starts_with("journal")).map(|(_, len)| len).sum();
    assert!(files.iter().any(|(name, _)| name.starts_with("checkpoint")), "{files:?}");
    assert!(journals <= 4 * (64 << 10), "{files:?}");
    cluster.restart_after_power_cut();
    cluster.run(async |peer: Peer| {
        assert_eq!(peer.ping().await.objects, 150);
        for handle in 5850..6000u64 {
            assert_eq!(peer.read(handle, 0, 8).await.unwrap(), handle.to_le_bytes());
        }
        assert_eq!(peer.stat(5849).await.map(|stat| stat.size), Err(Status::Stale), "it was removed");
    });
}

#[test]
fn what_an_idle_object_reserves_for_its_growth_comes_back() {
    let cluster = Cluster::new(1, Profile::instant(), DataServerConfig { capacity_bytes: Some((2 << 20) + 4096), ..config() });
    cluster.run(async |peer: Peer| {
        // It takes 1 MiB, for what may follow.
        peer.write(1, 0, &vec![1; 520 << 10]).await.unwrap();
        for _ in 0..2 {
            peer.rt.sleep_until(peer.rt.now() + 6 * SECOND).await;
            peer.ping().await;
        }
        peer.rt.sleep_until(peer.rt.now() + SECOND).await;
        let once = peer.prepare(&peer.write_request(2, &[(0, 1400 << 10)], false));
        peer.send(&once, &vec![2; 1400 << 10], SECOND).await.unwrap();
    });
}

#[test]
fn a_failed_sync_stops_the_server_instead_of_lying() {
    let cluster = Cluster::new(1, Profile::instant(), config());
    cluster.run(async |peer: Peer| peer.write(1, 0, b"data").await.unwrap());
    cluster.sim.fail_disk(cluster.server, weft_rt_sim::DiskFaultKind::Sync, 1);
    cluster.run(async |peer: Peer| {
        let copy = peer.prepare(&weft_wire::ops::ObjectSyncRequest {
            handle: weft_base::Handle(1),
            index: 0,
            capability: peer.capability(1, weft_wire::Rights::READ),
        });
        assert!(peer.send(&copy, &[], 500 * MILLISECOND).await.is_err(), "nobody may be told that this is durable");
    });
    assert_eq!(cluster.errors.borrow().len(), 1);
    cluster.sim.restart(cluster.server);
    cluster.run(async |peer: Peer| {
        assert_eq!(peer.read(1, 0, 4).await.unwrap(), b"data");
    });
}
