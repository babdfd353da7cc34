//! Requests of several clients meet in the cache layer.

mod common;

use common::{Cluster, Peer, config};
use weft_base::{MILLISECOND, SECOND};
use weft_data_server::{CacheConfig, DataServerConfig, Durability, WriteBack};
use weft_rt::join_all;
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
    Cluster::new(5, profile, DataServerConfig { cache, durability, ..config() })
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
        // The processor finishes writes of one access one after another, so their clients return in two or three groups.
        assert!(written.writes <= blocks * 2 / 5, "{}: {} writes of {blocks} blocks", kind.name(), written.writes);
        assert_eq!(written.written_bytes, blocks * BLOCK, "no byte twice");
        assert!(all.reads <= blocks / 3, "{}: {} reads of {blocks} blocks", kind.name(), all.reads);
        assert_eq!((all.gathered, all.cache_layer.as_str()), (2 * blocks, kind.name()));
        assert_eq!(all.sequential + all.near + all.far, all.reads + all.writes);
    }
}

const BATCH: Durability = Durability::Batch { interval: 50 * MILLISECOND };

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
