//! What each operation does, and what is refused.

mod common;

use common::{Cluster, KEY, Peer, SERVER, config, contracted, error, map, serving};
use weft_base::{ClientId, Handle, MILLISECOND, SECOND, ServerId, Status, WallTime};
use weft_data_server::{DataServerConfig, Durability, Engine, ServerError, ServingConfig};
use weft_rt::{Runtime, join_all};
use weft_rt_sim::Profile;
use weft_wire::ops::*;
use weft_wire::{Capability, Ceiling, Rights};

fn cluster() -> Cluster {
    Cluster::new(1, Profile::instant(), config())
}

fn in_memory() -> DataServerConfig {
    DataServerConfig { serving: ServingConfig { engine: Engine::Memory, ..serving() }, ..config() }
}

fn memory() -> Cluster {
    Cluster::new(1, Profile::instant(), in_memory())
}

#[test]
fn bytes_holes_and_the_end_read_back() {
    for cluster in [cluster(), memory()] {
        cluster.run(async |peer: Peer| {
            assert_eq!(peer.write(1, 10_000, b"hello").await, Ok(10_005));
            assert_eq!(peer.write(1, 3, b"abc").await, Ok(10_005));
            assert_eq!(peer.read(1, 0, 8).await.unwrap(), b"\0\0\0abc\0\0");
            assert_eq!(peer.read(1, 9_998, 100).await.unwrap(), b"\0\0hello");
            assert_eq!(peer.read(1, 10_005, 100).await.unwrap(), b"");
            assert_eq!(peer.read(2, 0, 100).await.unwrap(), b"", "a datafile that was never written is empty");
            let stat = peer.stat(1).await.unwrap();
            assert_eq!((stat.size, stat.allocated_bytes), (10_005, 8192));
            assert_eq!(peer.stat(2).await.unwrap().size, 0);
            assert_eq!(peer.ping().await.objects, 1, "asking makes no object");
        });
    }
}

#[test]
fn lists_go_in_one_request() {
    cluster().run(async |peer: Peer| {
        let request = peer.write_request(1, &[(0, 3), (4096, 2), (9000, 4)], false);
        assert_eq!(peer.call(&request, b"aaabbcccc").await.unwrap().0.size, 9004);
        let (reply, data) = peer.read_list(1, &[(1, 4), (4096, 2), (8999, 10), (20_000, 5)]).await.unwrap();
        assert_eq!((reply.got, reply.size), (vec![4, 2, 5, 0], 9004));
        assert_eq!(data, b"aa\0\0bb\0cccc");
    });
}

#[test]
fn truncation_cuts_once_for_each_epoch_and_never_extends() {
    cluster().run(async |peer: Peer| {
        peer.write(1, 0, &[7; 10_000]).await.unwrap();
        peer.call(&peer.truncate_request(1, 5000, 3), &[]).await.unwrap();
        assert_eq!(peer.stat(1).await.unwrap().size, 5000);
        peer.call(&peer.truncate_request(1, 100, 3), &[]).await.unwrap();
        peer.call(&peer.truncate_request(1, 100, 2), &[]).await.unwrap();
        assert_eq!(peer.stat(1).await.unwrap().size, 5000, "these epochs are over");
        peer.call(&peer.truncate_request(1, 8000, 4), &[]).await.unwrap();
        assert_eq!(peer.stat(1).await.unwrap().size, 5000);
        peer.write(1, 9000, b"x").await.unwrap();
        assert_eq!(peer.read(1, 4999, 4001).await.unwrap(), [&[7][..], &[0; 4000]].concat(), "what was cut does not come back");
    });
}

#[test]
fn a_hole_reads_as_zeros_keeps_the_size_and_gives_space_back() {
    for cluster in [cluster(), memory()] {
        cluster.run(async |peer: Peer| {
            peer.write(1, 0, &[7; 40_960]).await.unwrap();
            let before = peer.stat(1).await.unwrap();
            assert_eq!(peer.punch(1, 4000, 12_384).await, Ok(40_960));
            let after = peer.stat(1).await.unwrap();
            assert_eq!((after.size, before.allocated_bytes - after.allocated_bytes), (40_960, 12_288));
            assert!(after.mtime > before.mtime, "it is a change as a write is");
            let expected = [&[7; 4000][..], &[0; 12_384], &[7; 24_576]].concat();
            assert_eq!(peer.read(1, 0, 50_000).await.unwrap(), expected);
            assert_eq!(peer.punch(1, 30_000, u64::MAX).await, Ok(40_960), "up to wherever it may end");
            assert_eq!(peer.read(1, 29_999, 10).await.unwrap(), [&[7][..], &[0; 9]].concat());
            assert_eq!(peer.punch(1, u64::MAX, u64::MAX).await, Ok(40_960), "there is nothing");
            assert_eq!(peer.punch(2, 0, 100).await, Ok(0), "never written");
            assert_eq!(peer.ping().await.objects, 1, "a hole makes no object");
            peer.write(1, 8192, b"again").await.unwrap();
            assert_eq!(peer.read(1, 8190, 9).await.unwrap(), b"\0\0again\0\0");
            let seek = async |offset, hole| {
                let request = ObjectSeekRequest { handle: Handle(1), index: 0, capability: peer.capability(1, Rights::READ), offset, hole };
                peer.call(&request, &[]).await.unwrap().0.at
            };
            assert_eq!((seek(0, false).await, seek(0, true).await), (Some(0), Some(4000)));
            assert_eq!((seek(4000, false).await, seek(8193, true).await), (Some(8192), Some(8197)));
            assert_eq!((seek(30_000, false).await, seek(u64::MAX, true).await), (None, Some(u64::MAX)));
            assert_eq!(error(peer.punch(1, 0, 0).await), Status::Invalid);
            let reads = ObjectPunchRequest { capability: peer.capability(1, Rights::READ), ..peer.punch_request(1, 0, 9) };
            assert_eq!(error(peer.call(&reads, &[]).await), Status::CapabilityRefused, "a hole is a write");
            peer.remove(1).await.unwrap();
            assert_eq!(error(peer.punch(1, 0, 9).await), Status::Stale);
        });
    }
}

#[test]
fn what_is_allocated_has_its_space() {
    cluster().run(async |peer: Peer| {
        let ask = async |offset, bytes, zero, keep_size| peer.call(&peer.allocate_request(1, offset, bytes, zero, keep_size), &[]).await;
        peer.write(1, 5000, b"some").await.unwrap();
        assert_eq!(ask(0, 1 << 20, false, true).await.unwrap().0.size, 5004, "not behind the end");
        assert_eq!(peer.stat(1).await.unwrap().allocated_bytes, 8192);
        assert_eq!(ask(0, 1 << 20, false, false).await.unwrap().0.size, 1 << 20);
        assert_eq!(peer.stat(1).await.unwrap().allocated_bytes, 1 << 20);
        assert_eq!(peer.read(1, 4998, 8).await.unwrap(), b"\0\0some\0\0", "what was written stays");
        assert_eq!(ask(5001, 2, true, true).await.unwrap().0.size, 1 << 20);
        assert_eq!(peer.read(1, 5000, 4).await.unwrap(), b"s\0\0e");
        // More holes than one message may have pieces.
        for half in 0..2 {
            let pieces: Vec<_> = (0..1024).map(|n| ((2 << 20) + (n + half * 1024) * 2, 1)).collect();
            peer.call(&peer.write_request(1, &pieces, false), &[9; 1024]).await.unwrap();
        }
        ask(2 << 20, 4096, false, false).await.unwrap();
        assert_eq!(peer.read(1, 2 << 20, 4096).await.unwrap(), [9, 0].repeat(2048));
        assert_eq!(error(ask(0, 0, false, false).await), Status::Invalid);
        assert_eq!(error(ask(0, 9 << 20, false, false).await), Status::TooBig);
        assert_eq!(error(ask(u64::MAX, 1, false, false).await), Status::FileTooBig);
        let reads = ObjectAllocateRequest { capability: peer.capability(1, Rights::READ), ..peer.allocate_request(1, 0, 9, true, false) };
        assert_eq!(error(peer.call(&reads, &[]).await), Status::CapabilityRefused);
    });
}

#[test]
fn removal_is_for_ever_and_idempotent() {
    for cluster in [cluster(), memory()] {
        cluster.run(async |peer: Peer| {
            peer.write(1, 0, &[7; 10_000]).await.unwrap();
            peer.remove(1).await.unwrap();
            peer.remove(1).await.unwrap();
            assert_eq!(error(peer.write(1, 0, b"late").await), Status::Stale);
            assert_eq!(error(peer.read(1, 0, 10).await), Status::Stale, "no file of zeros");
            assert_eq!(error(peer.stat(1).await), Status::Stale, "no empty file");
            peer.truncate(1, 0).await.unwrap();
            let info = peer.ping().await;
            assert_eq!((info.objects, info.used_bytes), (0, 0));
        });
    }
}

#[test]
fn removed_objects_stay_removed_after_a_restart() {
    let cluster = cluster();
    cluster.run(async |peer: Peer| {
        peer.write(1, 0, &[7; 10_000]).await.unwrap();
        peer.remove(1).await.unwrap();
    });
    cluster.restart_after_crash();
    cluster.run(async |peer: Peer| assert_eq!(error(peer.write(1, 0, b"late").await), Status::Stale));
}

#[test]
fn requests_that_make_no_sense_are_refused() {
    cluster().run(async |peer: Peer| {
        let write = |pieces: &[(u64, u32)]| peer.write_request(1, pieces, false);
        assert_eq!(error(peer.call(&write(&[(0, 4)]), b"abc").await), Status::BadMessage);
        assert_eq!(error(peer.call(&write(&[(5, 1), (0, 1)]), b"ab").await), Status::Invalid);
        assert_eq!(error(peer.call(&write(&[]), b"").await), Status::Invalid);
        assert_eq!(error(peer.call(&write(&[(u64::MAX - 1, 1)]), b"a").await), Status::FileTooBig);
        assert_eq!(error(peer.call(&peer.read_request(1, &[(0, 9 << 20)]), b"").await), Status::TooBig);
        let far = WriteRequest { index: 5000, ..write(&[(0, 1)]) };
        assert_eq!(error(peer.call(&far, b"a").await), Status::Invalid);
        assert_eq!(error(peer.call(&SyncMetaRequest {}, b"").await), Status::NotSupported);
        let mut misled = peer.prepare(&PingRequest {});
        misled.header.server = ServerId::data(1);
        assert_eq!(error(peer.send(&misled, &[], SECOND).await), Status::WrongServer);
        assert_eq!(peer.ping().await.objects, 0);
    });
}

#[test]
fn nobody_is_served_without_a_capability() {
    cluster().run(async |peer: Peer| {
        peer.write(1, 0, b"secret").await.unwrap();
        let read = |capability| ReadRequest { capability, ..peer.read_request(1, &[(0, 6)]) };
        let good = peer.capability(1, Rights::READ);
        assert!(peer.call(&read(good), &[]).await.is_ok());
        let refused = [
            Capability { tag: [0; 16], ..good },
            Capability { rights: Rights::READ.with(Rights::WRITE), ..good },
            peer.capability(2, Rights::READ),
            peer.capability(1, Rights::WRITE),
            Capability::sign(&KEY, Handle(1), ClientId(5), Rights::READ, good.expires),
        ];
        for capability in refused {
            assert_eq!(error(peer.call(&read(capability), &[]).await), Status::CapabilityRefused);
        }
        let ending = Capability::sign(&KEY, Handle(1), peer.id, Rights::READ, WallTime(peer.rt.wall().0 + MILLISECOND as i64));
        assert!(peer.call(&read(ending), &[]).await.is_ok());
        peer.rt.sleep_until(peer.rt.now() + 2 * MILLISECOND).await;
        assert_eq!(error(peer.call(&read(ending), &[]).await), Status::CapabilityExpired);

        let capability = peer.capability(1, Rights::READ.with(Rights::WRITE));
        let truncate = ObjectTruncateRequest { capability, ..peer.truncate_request(1, 0, 1) };
        assert_eq!(error(peer.call(&truncate, &[]).await), Status::CapabilityRefused, "only metadata servers truncate");
        let remove = ObjectRemoveRequest { handle: Handle(1), index: 0, capability };
        assert_eq!(error(peer.call(&remove, &[]).await), Status::CapabilityRefused);
        let write = WriteRequest { capability: good, ..peer.write_request(1, &[(0, 1)], false) };
        assert_eq!(error(peer.call(&write, b"x").await), Status::CapabilityRefused);
        let other = ObjectSyncRequest { handle: Handle(2), index: 0, capability };
        assert_eq!(error(peer.call(&other, &[]).await), Status::CapabilityRefused);
        let other = ObjectStatRequest { handle: Handle(2), index: 0, capability };
        assert_eq!(error(peer.call(&other, &[]).await), Status::CapabilityRefused);
        assert_eq!(peer.read(1, 0, 6).await.unwrap(), b"secret");
    });
}

#[test]
fn late_copies_are_refused_and_copies_are_not_executed_again() {
    cluster().run(async |peer: Peer| {
        let first = peer.prepare(&peer.write_request(1, &[(0, 3)], false));
        peer.send(&first, b"old", SECOND).await.unwrap();
        // Somebody else has truncated since; the copy must not bring the bytes back.
        let other = Peer::new(peer.rt.clone(), ClientId(200));
        other.truncate(1, 0).await.unwrap();
        peer.send(&first, b"old", SECOND).await.unwrap();
        assert_eq!(other.stat(1).await.unwrap().size, 0, "a copy is answered, not executed");
        peer.finish(&first);
        peer.write(1, 0, b"new").await.unwrap();
        assert_eq!(error(peer.send(&first, b"old", SECOND).await), Status::StaleRequest);
        assert_eq!(peer.read(1, 0, 3).await.unwrap(), b"new");
    });
}

#[test]
fn many_writes_of_one_turn_cost_one_journal_write() {
    cluster().run(async |peer: Peer| {
        peer.write(1000, 0, b"warm").await.unwrap();
        let before = peer.ping().await;
        join_all((1..101).map(|handle| peer.write_request(handle, &[(0, 4)], false)).map(|request| {
            let peer = peer.clone();
            async move { peer.call(&request, b"data").await.unwrap() }
        }))
        .await;
        let after = peer.ping().await;
        let (turns, writes) = (after.turns - before.turns, after.journal_writes - before.journal_writes);
        assert!(turns < 50, "{turns} turns for 100 requests that were sent at once");
        // One for each turn with changes, and one for each mark.
        assert!(writes <= turns + (after.journal_syncs - before.journal_syncs), "{writes} journal writes in {turns} turns");
    });
}

#[test]
fn a_removal_under_sync_costs_one_flush() {
    let cluster = Cluster::new(1, Profile::instant(), contracted(Durability::Sync));
    cluster.run(async |peer: Peer| {
        let rest = || peer.rt.sleep_until(peer.rt.now() + SECOND);
        for handle in 1..=10 {
            peer.write(handle, 0, b"data").await.unwrap();
        }
        rest().await;
        let before = peer.ping().await;
        for handle in 1..=10 {
            peer.remove(handle).await.unwrap();
            // Longer than the interval between rounds that nobody asks for.
            peer.rt.sleep_until(peer.rt.now() + 100 * MILLISECOND).await;
        }
        let after = peer.ping().await;
        assert_eq!(after.journal_syncs - before.journal_syncs, 10, "a removal needs no mark, and it was flushed when it was answered");
    });
    cluster.restart_after_power_cut();
    cluster.run(async |peer: Peer| {
        for handle in 1..=10 {
            assert!(peer.has_nothing(handle).await, "{handle} was removed");
        }
    });
}

#[test]
fn requests_for_one_object_are_executed_in_their_order() {
    cluster().run(async |peer: Peer| {
        // All of them are on their way before the first is answered.
        let sends = (0..40u64).map(|n| {
            let (peer, byte) = (peer.clone(), n as u8 + 1);
            async move {
                let copy = match n % 4 {
                    3 => peer.prepare(&peer.read_request(1, &[(0, 5000)])),
                    _ => peer.prepare(&peer.write_request(1, &[(0, 5000)], false)),
                };
                let bulk = if n % 4 == 3 { Vec::new() } else { vec![byte; 5000] };
                (n, peer.send(&copy, &bulk, SECOND).await.unwrap().1.to_bytes())
            }
        });
        for (n, seen) in join_all(sends).await {
            if n % 4 == 3 {
                assert_eq!(seen, vec![n as u8; 5000], "read {n} sees the write before it");
            }
        }
        let info = peer.ping().await;
        assert!(info.turns < 20, "{} turns: the requests were meant to meet in one", info.turns);
    });
}

#[test]
fn overwriting_in_place_needs_no_journal() {
    cluster().run(async |peer: Peer| {
        peer.write(1, 0, &[1; 100_000]).await.unwrap();
        peer.sync(1).await.unwrap();
        let before = peer.ping().await.journal_writes;
        for n in 0..20 {
            peer.write(1, n * 5000, &[2; 5000]).await.unwrap();
        }
        peer.sync(1).await.unwrap();
        assert_eq!(peer.ping().await.journal_writes, before);
        assert!(peer.read(1, 0, 100_000).await.unwrap().iter().all(|byte| *byte == 2));
    });
}

#[test]
fn a_sync_stops_nobody_else() {
    let mut profile = Profile::instant();
    profile.disk.sync_ns = 50 * MILLISECOND;
    let serving = ServingConfig { batch_interval_ns: 10 * SECOND, ..serving() };
    let cluster = Cluster::new(1, profile, DataServerConfig { serving, ..config() });
    cluster.run(async |peer: Peer| {
        peer.write(1, 0, b"data").await.unwrap();
        let sync = async {
            peer.sync(1).await.unwrap();
            peer.rt.now()
        };
        let work = async {
            peer.rt.sleep_until(peer.rt.now() + 5 * MILLISECOND).await;
            for n in 0..10 {
                peer.write(2, n * 1000, &[1; 1000]).await.unwrap();
                peer.read(1, 0, 4).await.unwrap();
            }
            peer.rt.now()
        };
        let synced = std::pin::pin!(sync);
        let worked = std::pin::pin!(work);
        let ends = join_all([synced as std::pin::Pin<&mut dyn Future<Output = weft_base::Nanos>>, worked]).await;
        assert!(ends[1] < ends[0], "work ended at {:?}, the sync at {:?}", ends[1], ends[0]);
    });
}

#[test]
fn the_server_says_what_it_is() {
    let cluster = cluster();
    let info = cluster.run(async |peer: Peer| {
        peer.write(1, 0, &[1; 5000]).await.unwrap();
        assert_eq!(peer.call(&GetMapRequest {}, &[]).await.unwrap().0.map, map());
        peer.ping().await
    });
    assert_eq!((info.server, info.name.as_str(), info.fs_id, info.owns_root), (SERVER, "data0", map().fs_id, false));
    assert_eq!((info.engine.as_str(), info.durability.as_str(), info.state.as_str()), ("journal", "batch", "serving"));
    assert_eq!((info.boot, info.objects, info.used_bytes), (1, 1, 8192));
    assert!(info.capacity_bytes >= info.used_bytes + info.free_bytes && info.free_bytes > 0);
    cluster.restart_after_crash();
    assert_eq!(cluster.run(async |peer: Peer| peer.ping().await).boot, 2);
}

#[test]
fn wrong_directories_are_refused_with_their_reason() {
    let why = |first: DataServerConfig, second: DataServerConfig| {
        let cluster = Cluster::new(1, Profile::instant(), first);
        cluster.sim.run_for(SECOND);
        cluster.configure(second);
        cluster.restart_after_crash();
        cluster.sim.run_for(SECOND);
        let errors = cluster.errors.borrow();
        errors.last().map(ServerError::to_string).unwrap_or_default()
    };
    let not_made = || DataServerConfig { serving: ServingConfig { create: false, ..serving() }, ..config() };
    let absent = why(not_made(), not_made());
    assert!(absent.contains("holds no store"), "{absent}");
    let mut other = config();
    other.serving.map.fs_id = weft_base::FsId(8);
    assert!(why(config(), other).contains("belongs to data0 of file system"));
    let engine = why(config(), in_memory());
    assert!(engine.contains("engine journal"), "{engine}");
    assert_eq!(why(config(), not_made()), "", "its own is accepted");
}

#[test]
fn nothing_is_allocated_beyond_a_ceiling() {
    cluster().run(async |peer: Peer| {
        let capability = peer.capability(1, Rights::WRITE.with(Rights::UNDER_CEILING));
        // Two stripes of a block for each of two datafiles, and half of one for the second.
        let ceiling = Ceiling::sign(&KEY, &capability, 4 * 4096 - 2000, 4096, 2);
        let write =
            |index, pieces: &[(u64, u32)], ceiling| WriteRequest { index, capability, ceiling, ..peer.write_request(1, pieces, false) };
        let put = async |request: WriteRequest| {
            let bytes: u32 = request.pieces.iter().map(|piece| piece.bytes).sum();
            peer.call(&request, &vec![7; bytes as usize]).await.map(drop)
        };
        for index in [0, 1] {
            assert_eq!(error(put(write(index, &[(0, 3 * 4096)], Some(ceiling))).await), Status::QuotaExceeded);
            // Wherever it lies: blocks count, not offsets; pieces may share one.
            put(write(index, &[(1 << 30, 100), ((1 << 30) + 200, 100), (9 << 30, 1)], Some(ceiling))).await.unwrap();
            assert_eq!(error(put(write(index, &[(0, 1)], Some(ceiling))).await), Status::QuotaExceeded);
            put(write(index, &[(1 << 30, 4096)], Some(ceiling))).await.unwrap();
            let allocate =
                ObjectAllocateRequest { index, capability, ceiling: Some(ceiling), ..peer.allocate_request(1, 0, 9, false, false) };
            assert_eq!(error(peer.call(&allocate, &[]).await), Status::QuotaExceeded);
            // A hole gives it back.
            let punch = ObjectPunchRequest { index, capability, ..peer.punch_request(1, 9 << 30, 4096) };
            peer.call(&punch, &[]).await.unwrap();
            peer.call(&allocate, &[]).await.unwrap();
        }
        // Without a ceiling, with one of another capability, or for another datafile.
        assert_eq!(error(put(write(0, &[(0, 1)], None)).await), Status::NotSupported);
        let other = Ceiling::sign(&KEY, &peer.capability(1, Rights::WRITE), 1 << 40, 4096, 2);
        for forged in [other, Ceiling { file_bytes: 1 << 40, ..ceiling }] {
            assert_eq!(error(put(write(0, &[(0, 1)], Some(forged))).await), Status::CapabilityRefused);
        }
        assert_eq!(error(put(write(2, &[(0, 1)], Some(ceiling))).await), Status::CapabilityRefused);
        // Any capability that does not say so needs none.
        put(WriteRequest { index: 2, ..peer.write_request(1, &[(0, 1 << 20)], false) }).await.unwrap();
    });
}
