//! The journal under crashes, power cuts, full disks and damage, in virtual time.

use std::cell::RefCell;
use std::rc::Rc;

use weft_base::{ClusterMap, FsId, SECOND, ServerEntry, ServerId};
use weft_journal::{Checkpoint, Found, Journal, JournalConfig, JournalError, Lsn, Recovered, StoreFeatures, Superblock};
use weft_rt::{Disk, Runtime, ServerRuntime};
use weft_rt_sim::{DiskFaultKind, Fault, NodeConfig, NodeId, Profile, Sim, SimDisk, SimRt};

const FS: FsId = FsId(5);
const SERVER: ServerId = ServerId(3);
const SEGMENT: u64 = 64 << 10;

fn config(salt: u64) -> JournalConfig {
    JournalConfig { segment_bytes: SEGMENT, ..JournalConfig::new(FS, SERVER, salt) }
}

fn world(seed: u64) -> (Sim, NodeId) {
    let sim = Sim::new(seed, Profile::instant());
    let node = sim.add_node(NodeConfig::client("server"));
    (sim, node)
}

fn new_superblock(boot: u32) -> Superblock {
    let entry = |id: ServerId| ServerEntry { id, name: id.to_string(), address: String::new() };
    let map = ClusterMap::of(FS, "test", [ServerId(0), ServerId::data(0)].map(entry), 4096);
    let met = Default::default();
    Superblock {
        fs_id: FS,
        server: SERVER,
        engine: "journal".into(),
        boot,
        boot_id: 2,
        stopped: None,
        map,
        birth: 3,
        met,
        durability: None,
        features: StoreFeatures::default(),
        others: vec![],
    }
}

fn record(number: u64) -> Vec<u8> {
    let mut bytes = number.to_le_bytes().to_vec();
    bytes.resize(8 + (number * 37 % 300) as usize, number as u8);
    bytes
}

fn number(bytes: &[u8]) -> u64 {
    let number = u64::from_le_bytes(bytes[..8].try_into().expect("a record begins with its number"));
    assert_eq!(bytes, record(number), "a record came back changed");
    number
}

/// What a recovery found: numbers in the checkpoint, numbers in the journal.
type Contents = (Vec<u64>, Vec<u64>);

async fn recover(disk: &SimDisk, salt: u64, same_boot: bool) -> Result<(Journal<SimDisk>, Recovered, Contents), JournalError> {
    let mut contents = Contents::default();
    let (journal, recovered) = Journal::recover(disk, JournalConfig { same_boot, ..config(salt) }, |found: Found<'_>| {
        match found {
            Found::Checkpoint(bytes) => contents.0.push(number(bytes)),
            Found::Journal(lsn, bytes) => {
                assert_eq!(lsn, Lsn(number(bytes)), "records have the numbers that they got");
                contents.1.push(number(bytes));
            }
        }
        Ok(())
    })
    .await?;
    Ok((journal, recovered, contents))
}

/// The state of this test is the set of all numbers: a checkpoint holds them all.
async fn checkpoint(journal: &Journal<SimDisk>) -> Result<(), JournalError> {
    let mut checkpoint = Checkpoint::begin(journal).await?;
    let last = journal.last_lsn().0;
    for number in 1..=last {
        checkpoint.push(&record(number));
        if number % 100 == 0 {
            checkpoint.flush().await?;
        }
    }
    checkpoint.finish().await?;
    Ok(())
}

#[derive(Default)]
struct Seen {
    written: u64,
    durable: u64,
}

/// A life of the server: recovers, checks against what was promised, goes on until it is killed.
async fn live(rt: SimRt, seen: Rc<RefCell<Seen>>, power_was_cut: bool) {
    let disk = rt.disk().clone();
    let (journal, recovered, (in_checkpoint, in_journal)) = recover(&disk, rt.random(), !power_was_cut).await.expect("nothing is damaged");
    let last = recovered.last_lsn.0;
    let promised = if power_was_cut { seen.borrow().durable } else { seen.borrow().written };
    assert!(last >= promised, "promised {promised}, found {last}");
    let mut all: Vec<u64> = in_checkpoint.into_iter().chain(in_journal).collect();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all, (1..=last).collect::<Vec<_>>(), "no gaps");
    *seen.borrow_mut() = Seen { written: last, durable: last };

    let background = journal.clone();
    let clock = rt.clone();
    rt.spawn(async move {
        loop {
            clock.sleep_until(clock.now() + 3_000_000).await;
            if background.is_long(3 * SEGMENT) {
                checkpoint(&background).await.expect("the disk works");
            }
        }
    });
    loop {
        journal.ensure_room().await.expect("the disk has room");
        for _ in 0..1 + rt.random() % 20 {
            let next = journal.last_lsn().0 + 1;
            assert_eq!(journal.append(&record(next)), Lsn(next));
        }
        let written = journal.commit().await.expect("the disk works");
        seen.borrow_mut().written = written.0;
        if rt.random().is_multiple_of(4) {
            journal.sync().await.expect("the disk works");
            let durable = journal.durable_lsn().0;
            assert!(durable >= written.0);
            let mut seen = seen.borrow_mut();
            seen.durable = seen.durable.max(durable);
        }
        rt.sleep_until(rt.now() + rt.random() % 100_000).await;
    }
}

#[test]
fn what_is_promised_is_found_after_any_number_of_crashes_and_power_cuts() {
    for seed in 0..12 {
        let sim = Sim::new(seed, Profile::instant());
        let node = sim.add_node(NodeConfig::server(SERVER));
        let seen: Rc<RefCell<Seen>> = Rc::default();
        let power: Rc<RefCell<bool>> = Rc::default();
        let created: Rc<RefCell<bool>> = Rc::default();
        let (life_seen, life_power, life_created) = (Rc::clone(&seen), Rc::clone(&power), Rc::clone(&created));
        sim.start(node, move |rt: SimRt| {
            let (seen, power, created) = (Rc::clone(&life_seen), *life_power.borrow(), Rc::clone(&life_created));
            async move {
                if !created.replace(true) {
                    Journal::create(rt.disk(), config(rt.random())).await.expect("a new journal");
                }
                live(rt, seen, power).await;
            }
        });
        let mut random = sim.random();
        for _ in 0..8 {
            sim.run_for(5_000_000 + random.below(20_000_000));
            let cut = random.coin();
            *power.borrow_mut() = cut;
            if cut {
                sim.power_cut(node)
            } else {
                sim.crash(node)
            }
            sim.run_for(1_000_000);
            sim.restart(node);
        }
        sim.run_for(20_000_000);
        assert!(sim.is_running(node), "seed {seed}");
        assert!(seen.borrow().written > 1000, "seed {seed}: the test did something");
        // Segments are recycled, not piled up.
        assert!(sim.disk_files(node).len() < 25, "seed {seed}: {:?}", sim.disk_files(node));
    }
}

#[test]
fn flows_share_commits_and_syncs() {
    let (sim, node) = world(1);
    sim.block_on(node, SECOND, |rt| async move {
        let journal = Journal::create(rt.disk(), config(1)).await.unwrap();
        let before = journal.stats();
        let waiting: Vec<Lsn> = (1..=50).map(|number| journal.append(&record(number))).collect();
        let commits = weft_rt::join_all((0..5).map(|_| journal.commit())).await;
        assert!(commits.iter().all(|result| *result == Ok(Lsn(50))));
        assert_eq!(journal.stats().writes, before.writes + 1);
        let syncs = weft_rt::join_all(waiting.into_iter().map(|lsn| journal.sync_through(lsn))).await;
        assert!(syncs.iter().all(Result::is_ok));
        assert_eq!(journal.stats().syncs, before.syncs + 1);
        assert_eq!(journal.durable_lsn(), Lsn(50));
    })
    .unwrap();
}

#[test]
fn a_full_disk_is_told_before_it_hurts() {
    let (sim, node) = world(2);
    let control = sim.control();
    sim.block_on(node, 10 * SECOND, |rt| async move {
        let journal = Journal::create(rt.disk(), config(2)).await.unwrap();
        control.fill_disk(node, 3600 * SECOND);
        let mut appended = 0;
        let refused = loop {
            if let Err(error) = journal.ensure_room().await {
                break error;
            }
            appended += 1;
            journal.append(&record(appended));
            journal.commit().await.expect("room was promised");
        };
        assert_eq!(refused, JournalError::NoSpace);
        assert!(!journal.has_room() && appended > 100);
        assert_eq!(journal.failure(), None);
        // What must be written all the same fits the rest of the segment.
        assert!(journal.segment_bytes_left() > 1000);
        appended += 1;
        journal.append(&record(appended));
        journal.commit().await.unwrap();
        journal.sync().await.unwrap();
        control.heal();
        journal.ensure_room().await.unwrap();
        let (_, recovered, _) = recover(rt.disk(), 3, false).await.unwrap();
        assert_eq!(recovered.last_lsn, Lsn(appended));
    })
    .unwrap();
}

#[test]
fn a_restart_on_a_full_disk_needs_nothing_and_takes_nothing() {
    let (sim, node) = world(6);
    let control = sim.control();
    sim.block_on(node, 10 * SECOND, |rt| async move {
        let journal = Journal::create(rt.disk(), config(6)).await.unwrap();
        let superblock = |boot| new_superblock(boot);
        superblock(1).store(rt.disk()).await.unwrap();
        journal.append(&record(1));
        journal.commit().await.unwrap();
        control.fill_disk(node, 3600 * SECOND);
        // Its replacement takes what was kept for it.
        superblock(2).store(rt.disk()).await.unwrap();
        assert_eq!(Superblock::load(rt.disk()).await.unwrap(), Some(superblock(2)));
        let (journal, _, contents) = recover(rt.disk(), 7, true).await.unwrap();
        assert_eq!(contents.1, [1]);
        assert!(journal.has_room() && journal.segment_bytes_left() > 1000, "what was kept for the next segment is still there");
        control.heal();
        journal.ensure_room().await.unwrap();
    })
    .unwrap();
}

/// Programs that copy a store leave holes where nothing was written: what had been reserved there
/// is not.
async fn copied(disk: &SimDisk) {
    for name in disk.list().await.unwrap() {
        let is_segment = name.starts_with("journal");
        if is_segment || name.starts_with("spare") {
            let file = disk.open(&name, false).await.unwrap();
            let written = if is_segment { 16 << 10 } else { 0 };
            let len = disk.len(file).await.unwrap();
            disk.punch(file, written, len - written).await.unwrap();
            disk.close(file);
        }
    }
}

#[test]
fn a_copy_of_a_store_has_its_room_again() {
    for was_full in [false, true] {
        let (sim, node) = world(8);
        let control = sim.control();
        sim.block_on(node, 10 * SECOND, |rt| async move {
            let journal = Journal::create(rt.disk(), config(8)).await.unwrap();
            journal.append(&record(1));
            journal.bring_to_rest().await.unwrap();
            copied(rt.disk()).await;
            if was_full {
                control.fill_disk(node, 3600 * SECOND);
            }
            let (journal, ..) = recover(rt.disk(), 9, true).await.unwrap();
            control.fill_disk(node, 3600 * SECOND);
            let mut last = 1;
            while journal.ensure_room().await.is_ok() {
                last += 1;
                journal.append(&record(last));
                journal.commit().await.expect("room was promised");
            }
            assert_eq!(last > 100, !was_full, "{last}");
            assert_eq!(journal.segment_bytes_left() > 1000, !was_full);
            assert_eq!(journal.mark_end().await, Ok(()));
            control.heal();
            journal.ensure_room().await.unwrap();
            last += 1;
            journal.append(&record(last));
            journal.bring_to_rest().await.unwrap();
            let (_, recovered, _) = recover(rt.disk(), 11, true).await.unwrap();
            assert_eq!(recovered.last_lsn, Lsn(last));
        })
        .unwrap();
    }
}

/// A server that starts again and again on a full disk, after crashes and power cuts at random
/// points, with a few records in each life: there is always a start, and nothing promised is lost.
/// Recovery checks every record.
#[test]
fn restarts_on_a_full_disk_go_on_in_the_newest_segment() {
    let mut lost = 0;
    for seed in 0..40 {
        let sim = Sim::new(seed, Profile::instant());
        let node = sim.add_node(NodeConfig::server(SERVER));
        let seen: Rc<RefCell<Seen>> = Rc::default();
        let power: Rc<RefCell<bool>> = Rc::default();
        let (life_seen, life_power, control) = (Rc::clone(&seen), Rc::clone(&power), sim.control());
        sim.start(node, move |rt: SimRt| {
            let (seen, power_was_cut, control) = (Rc::clone(&life_seen), *life_power.borrow(), control.clone());
            async move {
                if seen.borrow().written == 0 {
                    let journal = Journal::create(rt.disk(), config(rt.random())).await.expect("a new journal");
                    journal.append(&record(1));
                    *seen.borrow_mut() = Seen { written: journal.commit().await.expect("there is room").0, durable: 0 };
                    control.fill_disk(node, 3600 * SECOND);
                    return;
                }
                let same_boot = !power_was_cut;
                let (journal, recovered, contents) = recover(rt.disk(), rt.random(), same_boot).await.expect("it starts");
                let last = recovered.last_lsn.0;
                let promised = if power_was_cut { seen.borrow().durable } else { seen.borrow().written };
                assert!(last >= promised, "seed {seed}: promised {promised}, found {last}");
                assert_eq!(contents.1, (1..=last).collect::<Vec<_>>(), "seed {seed}");
                *seen.borrow_mut() = Seen { written: last, durable: last };
                for next in last + 1..last + 2 + rt.random() % 6 {
                    journal.append(&record(next));
                    seen.borrow_mut().written = journal.commit().await.expect("the segment has room").0;
                    if rt.random().is_multiple_of(3) {
                        journal.sync().await.expect("the disk works");
                        seen.borrow_mut().durable = next;
                    }
                }
                std::future::pending().await
            }
        });
        sim.run_for(1_000_000);
        let mut random = sim.random();
        for _ in 0..24 {
            let cut = random.coin();
            *power.borrow_mut() = cut;
            lost += u64::from(cut && seen.borrow().durable < seen.borrow().written);
            if cut {
                sim.power_cut(node)
            } else {
                sim.crash(node)
            }
            sim.restart(node);
            sim.strike_after_polls(node, random.between(1, 90), Fault::Crash { node, down_ns: 1 });
            sim.run_for(1_000_000);
        }
        let segments = sim.disk_files(node).into_iter().filter(|(name, _)| name.starts_with("journal.")).count();
        assert!(segments <= 2, "seed {seed}: {segments} segments on a disk without room");
        assert!(seen.borrow().written > 5, "seed {seed}: {} records", seen.borrow().written);
    }
    assert!(lost > 50, "{lost} power cuts took unsynced records");
}

#[test]
fn a_hole_is_the_work_of_a_power_cut_only_if_there_was_one() {
    let (sim, node) = world(7);
    sim.block_on(node, SECOND, |rt| async move {
        let journal = Journal::create(rt.disk(), config(8)).await.unwrap();
        for number in 1..=30 {
            // Never synced: no frame says that the one before was durable.
            journal.append(&record(number));
            journal.commit().await.unwrap();
        }
    })
    .unwrap();
    assert!(sim.corrupt(node, "journal.1", 4500, vec![0xff; 16]));
    sim.block_on(node, SECOND, |rt| async move {
        let refused = recover(rt.disk(), 9, true).await.map(|_| ());
        assert!(matches!(&refused, Err(JournalError::Damaged(text)) if text.starts_with("journal.1 is damaged at byte")), "{refused:?}");
        let (_, recovered, _) = recover(rt.disk(), 9, false).await.unwrap();
        assert!(recovered.last_lsn < Lsn(30) && recovered.note.is_some());
    })
    .unwrap();
}

#[test]
fn a_failed_sync_is_the_end() {
    let (sim, node) = world(3);
    let control = sim.control();
    sim.block_on(node, SECOND, |rt| async move {
        let journal = Journal::create(rt.disk(), config(3)).await.unwrap();
        journal.append(&record(1));
        journal.commit().await.unwrap();
        control.fail_disk(node, DiskFaultKind::Sync, 1);
        assert!(matches!(journal.sync().await, Err(JournalError::Disk { .. })));
        journal.append(&record(2));
        assert!(matches!(journal.commit().await, Err(JournalError::Disk { .. })), "nothing is trusted any more");
        assert!(journal.failure().is_some());
    })
    .unwrap();
}

#[test]
fn missing_and_damaged_parts_are_named() {
    let (sim, node) = world(4);
    sim.block_on(node, SECOND, |rt| async move {
        assert!(matches!(recover(rt.disk(), 1, false).await, Err(JournalError::Damaged(text)) if text.contains("missing")));
        let journal = Journal::create(rt.disk(), config(4)).await.unwrap();
        for number in 1..=2000 {
            journal.append(&record(number));
            if number % 10 == 0 {
                journal.ensure_room().await.unwrap();
                journal.commit().await.unwrap();
                journal.sync().await.unwrap();
            }
        }
    })
    .unwrap();
    // A segment in the middle is damaged: the records behind it must not be dropped silently.
    assert!(sim.corrupt(node, "journal.2", 5000, vec![0xff; 16]));
    sim.block_on(node, SECOND, |rt| async move {
        assert!(matches!(recover(rt.disk(), 5, false).await, Err(JournalError::Damaged(text)) if text.contains("segment 2")));
        rt.disk().remove("journal.2").await.unwrap();
        assert!(matches!(recover(rt.disk(), 6, false).await, Err(JournalError::Damaged(text)) if text.contains("missing")));
    })
    .unwrap();
}

#[test]
fn the_superblock_is_replaced_as_a_whole() {
    let (sim, node) = world(5);
    sim.block_on(node, SECOND, |rt| async move {
        assert_eq!(Superblock::load(rt.disk()).await, Ok(None));
        let mut superblock = new_superblock(1);
        for boot in 1..5 {
            superblock.boot = boot;
            superblock.store(rt.disk()).await.unwrap();
            assert_eq!(Superblock::load(rt.disk()).await, Ok(Some(superblock.clone())));
        }
    })
    .unwrap();
    assert!(sim.corrupt(node, "superblock", 20, vec![b'0'; 4]));
    let damaged = sim.block_on(node, SECOND, |rt| async move { Superblock::load(rt.disk()).await }).unwrap();
    assert!(matches!(damaged, Err(JournalError::Damaged(_))), "{damaged:?}");
}

/// On a full disk as well: it is stored three times, and the process dies or the power is cut at
/// every point of that.
#[test]
fn the_superblock_survives_an_end_at_any_point_of_its_replacement() {
    let superblock = |boot| new_superblock(boot);
    let mut points = 0;
    for polls in 1.. {
        for cut in [false, true] {
            let (sim, node) = world(polls);
            let stored = Rc::new(RefCell::new(0));
            let (control, storing) = (sim.control(), Rc::clone(&stored));
            sim.block_on(node, SECOND, |rt| async move {
                superblock(1).store(rt.disk()).await.unwrap();
                *storing.borrow_mut() = 1;
                control.fill_disk(node, 3600 * SECOND);
            })
            .unwrap();
            let storing = Rc::clone(&stored);
            sim.strike_after_polls(node, polls, if cut { Fault::PowerCut { node, down_ns: 1 } } else { Fault::Crash { node, down_ns: 1 } });
            let flow = sim.spawn_on(node, move |rt| async move {
                for boot in 2..5 {
                    superblock(boot).store(rt.disk()).await.unwrap();
                    *storing.borrow_mut() = boot;
                }
            });
            sim.run_for(1_000_000);
            points += u64::from(flow.take().is_none());
            let stored = *stored.borrow();
            sim.block_on(node, SECOND, move |rt| async move {
                let found = Superblock::load(rt.disk()).await.expect("it is whole").expect("it is there").boot;
                assert!(found == stored || found == stored + 1, "{polls} polls, power cut {cut}: {found} after {stored}");
                superblock(9).store(rt.disk()).await.expect("what was kept for it is still there");
                assert_eq!(Superblock::load(rt.disk()).await, Ok(Some(superblock(9))));
            })
            .unwrap();
            if stored == 4 {
                assert!(points > 40, "{points} points");
                return;
            }
        }
    }
}
