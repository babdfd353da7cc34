//! Requests of several clients meet in the cache layer.

mod common;

use common::{Cluster, Peer, contracted, error};
use weft_base::{ClientId, MILLISECOND, SECOND, Status};
use weft_data_server::{CacheConfig, DataServerConfig, Durability, WriteBack};
use weft_rt::{Runtime, join_all};
use weft_rt_sim::Profile;
use weft_sched::LayerKind;
use weft_sched::improved::DiskCost;
use weft_wire::ops::DiskUse;

/// Clients.
const CLIENTS: u64 = 10;
/// Bytes of a block.
const BLOCK: u64 = 5120;

fn cluster(cache: CacheConfig, durability: Durability, call_ns: u64) -> Cluster {
    let mut profile = Profile::default();
    (profile.disk.reads_cached, profile.disk.read_ns, profile.disk.call_ns) = (false, 2 * MILLISECOND, call_ns);
    Cluster::new(5, profile, DataServerConfig { cache, ..contracted(durability) })
}

fn layer(layer: LayerKind) -> CacheConfig {
    CacheConfig { layer, disk: DiskCost::SSD, takes_all: true, ..CacheConfig::default() }
}

/// Every client writes its blocks of one file, block by block, then reads them back.
fn interleaved(cache: CacheConfig, durability: Durability, rounds: u64) -> (DiskUse, DiskUse) {
    // A disk that is slow enough for requests to queue before it.
    let cluster = cluster(cache, durability, 2 * MILLISECOND);
    cluster.run(async move |peer: Peer| {
        let byte = |number: u64| (number % 251) as u8 + 1;
        join_all((0..CLIENTS).map(|client| {
            let peer = peer.clone();
            async move {
                for number in (0..rounds).map(|round| round * CLIENTS + client) {
                    peer.write(1, number * BLOCK, &[byte(number); BLOCK as usize]).await.unwrap();
                }
            }
        }))
        .await;
        peer.sync(1).await.unwrap();
        let written = peer.ping().await.disk.unwrap();
        join_all((0..CLIENTS).map(|client| {
            let peer = peer.clone();
            async move {
                for number in (0..rounds).map(|round| round * CLIENTS + client) {
                    let data = peer.read(1, number * BLOCK, BLOCK as u32).await.unwrap();
                    assert_eq!(data, [byte(number); BLOCK as usize], "block {number}");
                }
            }
        }))
        .await;
        let all = peer.ping().await.disk.unwrap();
        (written, all)
    })
}

#[test]
fn what_touches_becomes_one_operation_of_the_disk() {
    let rounds = 20;
    let blocks = rounds * CLIENTS;
    let (written, all) = interleaved(layer(LayerKind::None), BATCH, rounds);
    assert_eq!((written.writes, written.written_bytes), (blocks, blocks * BLOCK), "one for each request");
    assert_eq!((all.reads, all.read_bytes), (blocks, blocks * BLOCK));
    for kind in [LayerKind::Aggregation, LayerKind::ServerDirected] {
        let (written, all) = interleaved(layer(kind), BATCH, rounds);
        // The processor finishes writes of one access one after another, so their clients return in
        // two or three groups.
        assert!(written.writes <= blocks * 2 / 5, "{}: {} writes of {blocks} blocks", kind.name(), written.writes);
        assert_eq!(written.written_bytes, blocks * BLOCK, "no byte twice");
        assert!(all.reads <= blocks / 3, "{}: {} reads of {blocks} blocks", kind.name(), all.reads);
        assert_eq!((all.gathered, all.cache_layer.as_str()), (2 * blocks, kind.name()));
        assert_eq!(all.sequential + all.near + all.far, all.reads + all.writes);
    }
}

const BATCH: Durability = Durability::Batch;

#[test]
fn a_layer_in_the_page_cache_leaves_alone_what_is_alone_or_long() {
    let cache = CacheConfig { layer: LayerKind::ServerDirected, ..CacheConfig::default() };
    cluster(cache, BATCH, MILLISECOND).run(async |peer: Peer| {
        peer.write(1, 0, &[1; 5000]).await.unwrap();
        peer.write(1, 5000, &vec![2; 1 << 20]).await.unwrap();
        assert_eq!(peer.read(1, 4999, 2).await.unwrap(), [1, 2]);
        join_all((0..4).map(|n| {
            let peer = peer.clone();
            async move { peer.write(1, n << 20, &vec![3; 1 << 20]).await.unwrap() }
        }))
        .await;
        let disk = peer.ping().await.disk.unwrap();
        assert_eq!((disk.gathered, disk.writes, disk.written_bytes), (0, 6, 5000 + (5 << 20)));
    });
}

#[test]
fn early_answers_do_not_wait_for_the_disk_but_reads_and_syncs_do() {
    let write_back = Some(WriteBack { bytes_max: 1 << 20, age_ns: SECOND });
    let cache = CacheConfig { write_back, ..layer(LayerKind::ServerDirected) };
    cluster(cache, Durability::None, 1000).run(async |peer: Peer| {
        for number in (0..40u64).rev() {
            peer.write(1, number * BLOCK, &[number as u8 + 1; BLOCK as usize]).await.unwrap();
        }
        assert_eq!(peer.ping().await.disk.unwrap().writes, 0, "all are answered and wait for company");
        let seen = peer.read(1, 7 * BLOCK - 1, 2).await.unwrap();
        assert_eq!(seen, [7, 8], "a read sees them all the same");
        peer.sync(1).await.unwrap();
        let disk = peer.ping().await.disk.unwrap();
        assert_eq!(disk.written_bytes, 40 * BLOCK);
        assert!(disk.writes <= 5, "{} writes", disk.writes);
        // More than may be answered early: the rest waits for the disk.
        let many = (0..8u64).map(|n| {
            let peer = peer.clone();
            async move { peer.write(2, n * 400_000, &vec![n as u8; 400_000]).await.unwrap() }
        });
        join_all(many).await;
        let written = peer.ping().await.disk.unwrap().written_bytes - disk.written_bytes;
        assert!(written >= 8 * 400_000 - (1 << 20), "{written} bytes are written");
        for n in 0..8u64 {
            assert_eq!(peer.read(2, n * 400_000, 400_000).await.unwrap(), vec![n as u8; 400_000]);
        }
    });
}

#[test]
fn what_arrives_while_the_disk_works_meets_what_waits() {
    cluster(layer(LayerKind::ServerDirected), BATCH, 2 * MILLISECOND).run(async |peer: Peer| {
        peer.write(1, 0, &[7; 10 * BLOCK as usize]).await.unwrap();
        let before = peer.ping().await.disk.unwrap();
        // One after another, each a turn of its own, while the first is at the disk.
        join_all((0..10u64).map(|n| {
            let peer = peer.clone();
            async move {
                peer.rt.sleep_until(peer.rt.now() + n * MILLISECOND / 10).await;
                assert_eq!(peer.read(1, n * BLOCK, BLOCK as u32).await.unwrap(), [7; BLOCK as usize]);
            }
        }))
        .await;
        let reads = peer.ping().await.disk.unwrap().reads - before.reads;
        assert_eq!(reads, 2, "the first, and all others together");
    });
}

#[test]
fn requests_that_touch_the_same_bytes_keep_their_order_over_turns() {
    for layer_kind in [LayerKind::None, LayerKind::ServerDirected] {
        cluster(layer(layer_kind), BATCH, 2 * MILLISECOND).run(async |peer: Peer| {
            // Every tenth of a millisecond one more; the disk takes two.
            let steps = (0..30u64).map(|n| {
                let peer = peer.clone();
                async move {
                    peer.rt.sleep_until(peer.rt.now() + n * MILLISECOND / 10).await;
                    match n % 3 {
                        0 => drop(peer.write(1, n % 2 * 2000, &vec![n as u8 + 1; 4000]).await.unwrap()),
                        1 => {
                            let seen = peer.read(1, n % 2 * 2000, 4000).await.unwrap();
                            assert!(seen.iter().all(|byte| u64::from(*byte) <= n), "a read sees nothing that came after it");
                            assert_eq!(seen[2000 - (n as usize % 2) * 2000], n as u8, "and what came just before it");
                        }
                        _ if n == 14 => peer.truncate(1, 1000).await.unwrap(),
                        _ => assert!(peer.stat(1).await.unwrap().size <= 6000),
                    }
                }
            });
            join_all(steps).await;
            let mut expected = vec![0; 6000];
            for n in (0..30usize).filter(|n| n % 3 == 0) {
                if n == 15 {
                    expected[1000..].fill(0);
                }
                expected[n % 2 * 2000..][..4000].fill(n as u8 + 1);
            }
            assert_eq!(peer.read(1, 0, 9000).await.unwrap(), expected);
        });
    }
}

#[test]
fn what_its_client_gave_up_while_it_waited_is_not_executed() {
    cluster(layer(LayerKind::ServerDirected), BATCH, 2 * MILLISECOND).run(async |peer: Peer| {
        let other = Peer::new(peer.rt.clone(), ClientId(999));
        let first = peer.write(1, 0, &[1; 1000]);
        let later = async {
            other.rt.sleep_until(other.rt.now() + MILLISECOND / 10).await;
            let given_up = other.prepare(&other.write_request(1, &[(500, 1000)], false));
            assert_eq!(error(other.send(&given_up, &[2; 1000], MILLISECOND / 2).await), Status::TimedOut);
            other.finish(&given_up);
            other.write(1, 5000, &[3; 10]).await.unwrap();
        };
        let (first, ()) = both(first, later).await;
        first.unwrap();
        other.sync(1).await.unwrap();
        assert_eq!(peer.read(1, 0, 2000).await.unwrap(), [&[1; 1000][..], &[0; 1000]].concat());
    });
}

#[test]
fn more_than_may_be_under_way_at_once_comes_through_all_the_same() {
    cluster(layer(LayerKind::ServerDirected), BATCH, MILLISECOND / 10).run(async |peer: Peer| {
        let bytes = 6 << 20;
        join_all((0..40u64).map(|n| {
            let peer = peer.clone();
            async move { peer.write(n + 1, 0, &vec![n as u8; bytes]).await.unwrap() }
        }))
        .await;
        for n in 0..40u64 {
            assert_eq!(peer.read(n + 1, bytes as u64 - 1, 10).await.unwrap(), [n as u8]);
        }
    });
}

/// While a sync waits for the disk, a write that is answered already is replaced by a newer one of
/// the same bytes, at every tenth of a millisecond once: what the sync was asked for survives a
/// power cut, in one of the two versions.
#[test]
fn a_sync_does_not_end_while_what_it_waits_for_is_only_replaced() {
    let write_back = Some(WriteBack { bytes_max: 1 << 20, age_ns: SECOND });
    for kind in [LayerKind::WriteBehind, LayerKind::Aggregation, LayerKind::ServerDirected] {
        let mut replaced = 0;
        for tenths in 0..80 {
            let cluster = cluster(CacheConfig { write_back, ..layer(kind) }, Durability::None, 2 * MILLISECOND);
            cluster.run(async move |peer: Peer| {
                for object in 1..=7 {
                    peer.write(object, 0, &[1; BLOCK as usize]).await.unwrap();
                }
                peer.sync(1).await.unwrap();
                // They do not touch, so the first ones keep the disk busy for two milliseconds
                // each.
                for object in [1, 3, 5, 7] {
                    peer.write(object, 0, &[2; BLOCK as usize]).await.unwrap();
                }
                let newer = async {
                    peer.rt.sleep_until(peer.rt.now() + tenths * MILLISECOND / 10).await;
                    peer.write(7, 0, &[3; BLOCK as usize]).await.unwrap();
                };
                let (synced, ()) = both(peer.sync(7), newer).await;
                synced.unwrap();
            });
            cluster.restart_after_power_cut();
            let seen = cluster.run(async |peer: Peer| peer.read(7, 0, BLOCK as u32).await.unwrap());
            let context = format!("{}, replaced after {tenths} tenths of a millisecond", kind.name());
            assert!(seen == [2; BLOCK as usize] || seen == [3; BLOCK as usize], "{context}: {:?}", &seen[..4]);
            replaced += u32::from(seen[0] == 3);
        }
        assert!((1..80).contains(&replaced), "{}: {replaced} of 80 replaced in time", kind.name());
    }
}

/// Blocks that are written again and again are not held back by that: a sync ends, and soon.
#[test]
fn a_sync_ends_although_the_same_bytes_are_written_again_and_again() {
    let write_back = Some(WriteBack { bytes_max: 1 << 20, age_ns: 20 * MILLISECOND });
    for kind in [LayerKind::WriteBehind, LayerKind::Aggregation, LayerKind::ServerDirected] {
        let cluster = cluster(CacheConfig { write_back, ..layer(kind) }, Durability::None, 2 * MILLISECOND);
        cluster.run(async move |peer: Peer| {
            peer.write(1, 0, &[255; 12 * BLOCK as usize]).await.unwrap();
            peer.sync(1).await.unwrap();
            let took_ns = std::cell::Cell::new(None);
            let syncing = async {
                let asked_at = peer.rt.now() + 30 * MILLISECOND;
                peer.rt.sleep_until(asked_at).await;
                peer.sync(1).await.unwrap();
                took_ns.set(Some(peer.rt.now().since(asked_at)));
            };
            let writing = async {
                for round in 0..100u8 {
                    let write = async |n: u64| peer.write(1, 2 * n * BLOCK, &[round; BLOCK as usize]).await.unwrap();
                    join_all((0..6).map(write)).await;
                    if took_ns.get().is_some() {
                        return;
                    }
                    peer.rt.sleep_until(peer.rt.now() + MILLISECOND).await;
                }
            };
            both(syncing, writing).await;
            // Every block once takes 12 milliseconds of the disk.
            let took_ns = took_ns.get().expect("the sync has ended");
            assert!(took_ns < 60 * MILLISECOND, "{}: {took_ns} ns", kind.name());
        });
    }
}

/// Reads with holes between them, then the holes, with writes in between, of one object, many at a
/// time, against an array of bytes. What was read through is not read again, and is never given
/// after it was overwritten.
#[test]
fn holes_that_were_read_through_are_kept_until_they_are_written() {
    let mut spared = 0;
    for seed in 0..40 {
        let mut profile = Profile::default();
        (profile.disk.reads_cached, profile.disk.read_ns, profile.disk.call_ns) = (false, MILLISECOND, MILLISECOND);
        let write_back = (seed % 2 == 1).then_some(WriteBack { bytes_max: 1 << 20, age_ns: 5 * MILLISECOND });
        let durability = if seed % 2 == 1 { Durability::None } else { BATCH };
        let cache = CacheConfig { write_back, depth: 1 + seed as usize % 3, ..layer(LayerKind::ServerDirected) };
        let cluster = Cluster::new(seed, profile, DataServerConfig { cache, ..contracted(durability) });
        let mut random = cluster.sim.random();
        spared += cluster.run(async move |peer: Peer| {
            let mut model = vec![1u8; 64 * 1000];
            peer.write(1, 0, &model).await.unwrap();
            let (mut asked, before) = (0, peer.ping().await.disk.unwrap().read_bytes);
            for round in 0..30u8 {
                // Each flow has a part of its own, in which it does one thing after another.
                let mut flows = Vec::new();
                for (at, part) in model.chunks_mut(1000).enumerate() {
                    let (peer, delay_ns) = (peer.clone(), random.below(3 * MILLISECOND));
                    let (writes, reads) = (random.below(6) == 0, random.coin());
                    asked += if reads { 1000 } else { 0 };
                    flows.push(async move {
                        peer.rt.sleep_until(peer.rt.now() + delay_ns).await;
                        let offset = at as u64 * 1000;
                        if writes {
                            part[300..700].fill(round + 2);
                            peer.write(1, offset + 300, &part[300..700]).await.unwrap();
                        }
                        if reads {
                            let seen = peer.read(1, offset, 1000).await.unwrap();
                            assert!(seen == *part, "seed {seed}, round {round}, part {at}");
                        }
                    });
                }
                join_all(flows).await;
            }
            let read = peer.ping().await.disk.unwrap();
            (asked + read.sieved_bytes).saturating_sub(read.read_bytes - before)
        });
    }
    assert!(spared > 1_000_000, "{spared} bytes came from what was read through");
}

/// Waits for two different flows.
async fn both<A: Future, B: Future>(first: A, second: B) -> (A::Output, B::Output) {
    let (mut first_done, mut second_done) = (None, None);
    join_all::<std::pin::Pin<Box<dyn Future<Output = ()> + '_>>>([
        Box::pin(async { first_done = Some(first.await) }) as _,
        Box::pin(async { second_done = Some(second.await) }) as _,
    ])
    .await;
    (first_done.expect("both have ended"), second_done.expect("both have ended"))
}
