//! Reads of many datafiles in one request.

mod common;

use common::{Cluster, Peer, config};
use proptest::prelude::*;
use weft_base::{ClientId, Handle, Status, WallTime};
use weft_data_server::{CacheConfig, DataServerConfig};
use weft_rt::{Runtime, join_all};
use weft_rt_sim::Profile;
use weft_sched::LayerKind;
use weft_sched::improved::DiskCost;
use weft_wire::ops::{DatafileRead, READS_MAX};
use weft_wire::{BULK_BYTES_MAX, Capability, Rights};

fn cluster() -> Cluster {
    Cluster::new(1, Profile::instant(), config())
}

#[test]
fn each_piece_has_its_own_result() {
    cluster().run(async |peer: Peer| {
        peer.write(1, 0, b"first").await.unwrap();
        peer.write(2, 5000, b"second").await.unwrap();
        peer.write(3, 0, b"gone").await.unwrap();
        peer.remove(3).await.unwrap();
        let good = peer.piece(1, 0, 5);
        let other = Capability { client: ClientId(77), ..good.capability };
        let write = peer.capability(1, Rights::WRITE);
        let ended = Capability::sign(&common::KEY, Handle(1), peer.id, Rights::READ, WallTime(0));
        let reads = vec![
            good.clone(),
            peer.piece(2, 4999, 100),
            DatafileRead { capability: Capability { handle: Handle(2), ..good.capability }, ..good.clone() },
            DatafileRead { capability: other, ..good.clone() },
            DatafileRead { capability: write, ..good.clone() },
            DatafileRead { capability: ended, ..good.clone() },
            peer.piece(1, 0, 0),
            peer.piece(1, u64::MAX, 2),
            peer.piece(1, 1 << 63, 2),
            DatafileRead { index: u32::MAX, ..good.clone() },
            peer.piece(3, 0, 4),
            peer.piece(4, 0, 4),
            peer.piece(1, 2, 100),
            good.clone(),
        ];
        let expected = [
            Ok((b"first".to_vec(), 5)),
            Ok((b"\0second".to_vec(), 5006)),
            Err(Status::CapabilityRefused),
            Err(Status::CapabilityRefused),
            Err(Status::CapabilityRefused),
            Err(Status::CapabilityExpired),
            Err(Status::Invalid),
            Err(Status::FileTooBig),
            Err(Status::FileTooBig),
            Err(Status::Invalid),
            Err(Status::Stale),
            Ok((Vec::new(), 0)),
            Ok((b"rst".to_vec(), 5)),
            Ok((b"first".to_vec(), 5)),
        ];
        assert_eq!(peer.read_many(reads).await.unwrap(), expected);
    });
}

#[test]
fn lists_are_bounded() {
    cluster().run(async |peer: Peer| {
        peer.write(1, 0, &[7; 100]).await.unwrap();
        assert_eq!(peer.read_many(Vec::new()).await, Err(Status::Invalid));
        let many = |count: usize, bytes: u32| (0..count).map(|_| peer.piece(1, 0, bytes)).collect::<Vec<_>>();
        assert_eq!(peer.read_many(many(READS_MAX + 1, 1)).await, Err(Status::TooBig));
        assert_eq!(peer.read_many(many(2, BULK_BYTES_MAX as u32 / 2 + 1)).await, Err(Status::TooBig));
        assert_eq!(peer.read_many(many(2, u32::MAX)).await, Err(Status::TooBig));
        let all = peer.read_many(many(READS_MAX, BULK_BYTES_MAX as u32 / READS_MAX as u32)).await.unwrap();
        assert!(all.iter().all(|got| *got == Ok((vec![7; 100], 100))) && all.len() == READS_MAX);
    });
}

/// With a disk that takes its time, and requests that arrive together.
fn slow(config: DataServerConfig) -> Cluster {
    let mut profile = Profile::default();
    (profile.disk.reads_cached, profile.disk.read_ns, profile.disk.call_ns) = (false, 100_000, 20_000);
    Cluster::new(1, profile, config)
}

fn layer(layer: LayerKind) -> DataServerConfig {
    DataServerConfig { cache: CacheConfig { layer, disk: DiskCost::SSD, takes_all: true, ..CacheConfig::default() }, ..config() }
}

#[test]
fn a_read_of_many_sees_each_write_as_a_whole() {
    for config in [config(), layer(LayerKind::None), layer(LayerKind::ServerDirected)] {
        slow(config).run(async |peer: Peer| {
            let files = [1, 2, 3, 4];
            for handle in files {
                peer.write(handle, 0, &[0; 9000]).await.unwrap();
            }
            for round in 1..30u8 {
                // Four writers, then six readers.
                let flows = (0..10u64).map(|number| {
                    let peer = peer.clone();
                    async move {
                        let (later, handle) = (u64::from(round) * 7000 * (number + 1) % 90_000, 1 + number % 4);
                        peer.rt.sleep_until(peer.rt.now() + later).await;
                        if number < 4 {
                            assert_eq!(peer.write(handle, 0, &[round; 9000]).await, Ok(9000));
                            return;
                        }
                        let mut reads: Vec<_> = files.iter().map(|handle| peer.piece(*handle, 0, 9000)).collect();
                        reads.push(peer.piece(handle, 100, 300));
                        for got in peer.read_many(reads).await.unwrap() {
                            let (data, size) = got.unwrap();
                            assert!(data.iter().all(|byte| *byte == data[0]) && size == 9000, "a write in part");
                            assert!([round - 1, round].contains(&data[0]));
                        }
                    }
                });
                join_all(flows).await;
            }
        });
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Many pieces together are what each of them is alone.
    #[test]
    fn together_as_alone(
        writes in proptest::collection::vec((1u64..5, 0u64..30_000, 1usize..9000), 0..8),
        pieces in proptest::collection::vec((1u64..6, 0u64..40_000, 0u32..9000), 1..20),
    ) {
        cluster().run(async move |peer: Peer| {
            for (tag, (handle, offset, bytes)) in writes.into_iter().enumerate() {
                peer.write(handle, offset, &vec![tag as u8 + 1; bytes]).await.unwrap();
            }
            let reads = pieces.iter().map(|(handle, offset, bytes)| peer.piece(*handle, *offset, *bytes)).collect();
            let together = peer.read_many(reads).await.unwrap();
            for ((handle, offset, bytes), got) in pieces.into_iter().zip(together) {
                let alone = peer.read(handle, offset, bytes).await;
                assert_eq!(got.map(|(data, _)| data), alone);
            }
        });
    }
}
