//! Where a journal ends: after any number of restarts it is where it was, an end of the machine at
//! any moment of a restart loses nothing promised, and damage to the last frame is noticed.

use std::cell::RefCell;
use std::rc::Rc;

use bytes::Bytes;
use weft_base::{FsId, Payload, SECOND, ServerId};
use weft_journal::{Found, Journal, JournalConfig, JournalError, Lsn};
use weft_rt::{Disk, Runtime, ServerRuntime};
use weft_rt_sim::{Fault, NodeConfig, NodeId, Profile, Sim, SimDisk, SimRt};
use weft_store::journal::{FRAME_HEADER_BYTES, MARK_BYTES, scan};

const SEGMENT: u64 = 64 << 10;

fn config(salt: u64) -> JournalConfig {
    JournalConfig { segment_bytes: SEGMENT, ..JournalConfig::new(FsId(5), ServerId(3), salt) }
}

fn world(seed: u64) -> (Sim, NodeId) {
    let sim = Sim::new(seed, Profile::instant());
    let node = sim.add_node(NodeConfig::client("server"));
    (sim, node)
}

fn record(number: u64) -> Vec<u8> {
    let mut bytes = number.to_le_bytes().to_vec();
    bytes.resize(8 + (number * 37 % 300) as usize, number as u8);
    bytes
}

/// Recovers and counts the records, which must come without gaps and unchanged.
async fn recover(disk: &SimDisk, salt: u64, same_boot: bool) -> Result<(Journal<SimDisk>, u64), JournalError> {
    let mut count = 0;
    let (journal, _) = Journal::recover(disk, JournalConfig { same_boot, ..config(salt) }, |found: Found<'_>| {
        let Found::Journal(lsn, bytes) = found else { panic!("there is no checkpoint") };
        count += 1;
        assert_eq!((lsn, bytes), (Lsn(count), &record(count)[..]));
        Ok(())
    })
    .await?;
    Ok((journal, count))
}

async fn write(journal: &Journal<SimDisk>, records: u64) {
    for _ in 0..records {
        journal.append(&record(journal.last_lsn().0 + 1));
    }
    journal.commit().await.expect("the disk works");
}

/// Bytes and numbers of the journal's files.
fn files(sim: &Sim, node: NodeId) -> Vec<(String, u64)> {
    sim.disk_files(node).into_iter().filter(|(name, _)| name.starts_with("journal.") || name.starts_with("spare.")).collect()
}

#[test]
fn promise_restarts_take_no_room() {
    let (sim, node) = world(1);
    sim.block_on(node, SECOND, |rt| async move {
        let journal = Journal::create(rt.disk(), config(1)).await.expect("there is room");
        write(&journal, 3).await;
    })
    .expect("it ends");
    let before = files(&sim, node);
    assert_eq!(before.iter().map(|(_, bytes)| bytes).sum::<u64>(), 2 * SEGMENT, "{before:?}");
    for life in 0..100 {
        let is_clean = life % 3 == 0;
        sim.block_on(node, SECOND, move |rt| async move {
            let (journal, found) = recover(rt.disk(), rt.random(), true).await.expect("nothing is damaged");
            assert_eq!(found, 3 + life, "what is replayed does not grow by restarting");
            write(&journal, 1).await;
            if is_clean {
                journal.bring_to_rest().await.expect("the disk works");
            }
        })
        .expect("it ends");
        match life % 3 {
            1 => {
                sim.crash(node);
                sim.restart(node);
            }
            2 => {
                // Nothing may be missing, so this one rested before.
                sim.block_on(node, SECOND, |rt| async move {
                    let (journal, _) = recover(rt.disk(), rt.random(), true).await.expect("nothing is damaged");
                    journal.bring_to_rest().await.expect("the disk works");
                })
                .expect("it ends");
                sim.power_cut(node);
                sim.restart(node);
            }
            _ => {}
        }
        assert_eq!(files(&sim, node), before, "life {life}");
    }
}

#[test]
fn what_a_load_left_is_given_back_by_a_restart() {
    let (sim, node) = world(2);
    sim.block_on(node, 10 * SECOND, |rt| async move {
        let journal = Journal::create(rt.disk(), config(2)).await.expect("there is room");
        for _ in 0..100 {
            journal.ensure_room().await.expect("there is room");
            write(&journal, 100).await;
        }
        journal.ensure_room().await.expect("there is room");
        journal.bring_to_rest().await.expect("the disk works");
    })
    .expect("it ends");
    let sizes: Vec<u64> = files(&sim, node).into_iter().map(|(_, bytes)| bytes).collect();
    assert!(sizes.contains(&(4 * SEGMENT)), "a journal that grows takes larger segments: {sizes:?}");
    sim.block_on(node, SECOND, |rt| async move {
        assert_eq!(recover(rt.disk(), 3, true).await.expect("nothing is damaged").1, 10_000);
    })
    .expect("it ends");
    let spares: Vec<_> = files(&sim, node).into_iter().filter(|(name, _)| name.starts_with("spare.")).collect();
    assert_eq!(spares.iter().map(|(_, bytes)| *bytes).collect::<Vec<_>>(), [SEGMENT]);
}

/// A tail that was not synced, a power cut, and another end (of the power or of the process) at
/// every moment of the start that follows; then a start that goes through and writes more. What was
/// promised is there each time, and what a start found is never lost again.
#[test]
fn power_cuts_at_every_moment_of_a_restart_lose_nothing_promised() {
    let mut moments = 0;
    for seed in 0..6 {
        for polls in 1.. {
            let (sim, node) = world(1000 * seed + polls);
            let promised: Rc<RefCell<(u64, u64)>> = Rc::default();
            let told = Rc::clone(&promised);
            let life = move |rt: SimRt, told: Rc<RefCell<(u64, u64)>>| async move {
                let journal = Journal::create(rt.disk(), config(rt.random())).await.expect("there is room");
                write(&journal, 20).await;
                journal.sync().await.expect("the disk works");
                told.borrow_mut().0 = 20;
                for records in 1..4 + seed {
                    write(&journal, records).await;
                }
            };
            sim.block_on(node, SECOND, move |rt| life(rt, told)).expect("it ends");
            sim.power_cut(node);
            sim.restart(node);

            let kill = polls % 2 == 0;
            sim.strike_after_polls(
                node,
                polls,
                if kill { Fault::Crash { node, down_ns: 1 } } else { Fault::PowerCut { node, down_ns: 1 } },
            );
            let told = Rc::clone(&promised);
            let flow = sim.spawn_on(node, move |rt| async move {
                let (journal, found) = recover(rt.disk(), rt.random(), false).await.expect("a power cut is no damage");
                assert!(found >= told.borrow().0);
                *told.borrow_mut() = (found, 0);
                for records in 1..6 {
                    write(&journal, records).await;
                    told.borrow_mut().1 = journal.written_lsn().0;
                }
            });
            sim.run_for(1_000_000);
            if flow.take().is_some() {
                break;
            }
            moments += 1;
            let (durable, written) = *promised.borrow();
            // The machine has not told anybody of its new start unless recovery came to its end, so
            // this one is the same to it.
            sim.block_on(node, SECOND, move |rt| async move {
                let (journal, found) = recover(rt.disk(), rt.random(), false).await.expect("a power cut is no damage");
                assert!(found >= durable, "seed {seed}, {polls} polls: {found} of {durable}");
                assert!(!kill || found >= written, "seed {seed}, {polls} polls: {found} of {written}");
                write(&journal, 7).await;
                journal.sync().await.expect("the disk works");
                let (_, again) = recover(rt.disk(), rt.random(), true).await.expect("nothing is damaged");
                assert_eq!(again, found + 7);
            })
            .expect("it ends");
        }
    }
    assert!(moments > 60, "{moments} moments");
}

/// The bytes that differ between two images of the first segment.
fn changed(before: &[u8], after: &[u8]) -> std::ops::Range<u64> {
    let differs = |at: &usize| before[*at] != after[*at];
    let first = (0..after.len()).find(differs).expect("something was written");
    let last = (0..after.len()).rfind(differs).expect("something was written");
    first as u64..last as u64 + 1
}

/// Flips every byte behind the frames `..before`, one at a time, and recovers. How many were
/// noticed, and how many bytes there are.
fn flip_all(sim: &Sim, node: NodeId, before: &[u8], records: u64) -> (u64, u64) {
    let whole = sim.disk_content(node, "journal.1").expect("it is there").to_bytes();
    let range = changed(before, &whole);
    let mut noticed = 0;
    for at in range.clone() {
        assert!(sim.corrupt(node, "journal.1", at, vec![whole[at as usize] ^ 0x20]));
        let outcome = sim.block_on(node, SECOND, |rt| async move { recover(rt.disk(), 9, true).await.map(|(_, count)| count) });
        match outcome.expect("it ends") {
            Ok(count) => assert_eq!(count, records, "byte {at} took a record away and nobody noticed"),
            Err(JournalError::Damaged(text)) => {
                noticed += 1;
                assert!(text.starts_with("journal.1: ") && text.contains("acknowledged records"), "{text}");
            }
            Err(other) => panic!("byte {at}: {other}"),
        }
        // A recovery writes; the next byte is for the journal as it was.
        assert!(sim.corrupt(node, "journal.1", 0, whole.to_vec()));
    }
    (noticed, range.end - range.start)
}

/// A journal with five records on stable storage, and the bytes of its segment.
fn five_records(seed: u64) -> (Sim, NodeId, Bytes) {
    let (sim, node) = world(seed);
    sim.block_on(node, SECOND, |rt| async move {
        let journal = Journal::create(rt.disk(), config(4)).await.expect("there is room");
        write(&journal, 5).await;
        journal.sync().await.expect("the disk works");
    })
    .expect("it ends");
    let segment = sim.disk_content(node, "journal.1").expect("it is there").to_bytes();
    (sim, node, segment)
}

#[test]
fn promise_a_damaged_end_of_the_journal_is_noticed_after_an_orderly_stop() {
    let (sim, node, before) = five_records(4);
    sim.block_on(node, SECOND, |rt| async move {
        let (journal, _) = recover(rt.disk(), 5, true).await.expect("nothing is damaged");
        write(&journal, 2).await;
        journal.bring_to_rest().await.expect("the disk works");
        assert!(!journal.wants_mark());
    })
    .expect("it ends");
    sim.power_cut(node);
    sim.restart(node);
    let (noticed, bytes) = flip_all(&sim, node, &before, 7);
    // All but padding and the mark itself, which hide no record.
    assert!(bytes > 150 && noticed >= bytes - 48 - 8, "{noticed} of {bytes}");
}

#[test]
fn a_damaged_end_is_noticed_after_a_kill_of_a_server_that_had_rested() {
    let (sim, node, before) = five_records(5);
    sim.block_on(node, SECOND, |rt| async move {
        let (journal, _) = recover(rt.disk(), 5, true).await.expect("nothing is damaged");
        write(&journal, 2).await;
        assert!(!journal.wants_mark(), "not everything is on stable storage");
        journal.sync().await.expect("the disk works");
        assert!(journal.wants_mark());
        let syncs = journal.stats().syncs;
        journal.mark_end().await.expect("the disk works");
        assert_eq!(journal.stats().syncs, syncs, "a mark needs none");
        // Commits and marks take turns at the end.
        let commit = write(&journal, 1);
        weft_rt::join_all([
            Box::pin(async { journal.mark_end().await.expect("the disk works") }) as std::pin::Pin<Box<dyn Future<Output = ()>>>,
            Box::pin(commit),
        ])
        .await;
        journal.sync().await.expect("the disk works");
        journal.mark_end().await.expect("the disk works");
    })
    .expect("it ends");
    sim.crash(node);
    sim.restart(node);
    let (noticed, bytes) = flip_all(&sim, node, &before, 8);
    assert!(bytes > 150 && noticed >= bytes - 48 - 16, "{noticed} of {bytes}");
}

#[test]
fn too_little_room_for_a_journal_is_told_with_numbers_and_leaves_nothing() {
    let (sim, node) = world(6);
    sim.control().set_disk_bytes(node, SEGMENT);
    let refused = sim.block_on(node, SECOND, |rt| async move { Journal::create(rt.disk(), config(1)).await.map(|_| ()) }).expect("it ends");
    assert!(matches!(refused, Err(JournalError::NoSpaceToBegin { .. })), "{refused:?}");
    assert!(refused.expect_err("refused").to_string().contains("at least 1 MiB"));
    assert_eq!(sim.disk_files(node), []);
}

/// The first segment of a journal is begun when the journal is made, and a segment has all its
/// bytes before it has its name.
#[test]
fn a_segment_that_was_cut_to_nothing_is_not_taken_for_one_that_was_never_begun() {
    for segments in 1..3 {
        let (sim, node) = world(7);
        let cut = move |rt: SimRt| async move {
            let journal = Journal::create(rt.disk(), config(7)).await.expect("there is room");
            let mut records = 0;
            while records == 0 || files_of(rt.disk(), "journal.").await < segments {
                journal.ensure_room().await.expect("there is room");
                write(&journal, 10).await;
                records += 10;
            }
            journal.bring_to_rest().await.expect("the disk works");
            let name = format!("journal.{segments}");
            for len in [0, 4095] {
                let file = rt.disk().open(&name, false).await.expect("it is there");
                rt.disk().set_len(file, len).await.expect("the disk works");
                rt.disk().sync(file).await.expect("the disk works");
                for same_boot in [true, false] {
                    // A power cut may have taken a segment that was only named.
                    let may_be = segments > 1 && !same_boot;
                    if !may_be {
                        let refused = recover(rt.disk(), 8, same_boot).await.map(drop);
                        assert!(matches!(&refused, Err(JournalError::Damaged(text)) if text.contains(&name)), "{len}: {refused:?}");
                    }
                }
            }
        };
        sim.block_on(node, SECOND, cut).expect("it ends");
    }
}

/// A segment with frames has all its bytes, after a power cut too: a shorter one ended somewhere
/// before its mark. Behind the mark nothing was.
#[test]
fn a_segment_that_was_cut_short_is_not_read_as_a_shorter_journal() {
    let (sim, node) = world(7);
    let cut = |rt: SimRt| async move {
        let journal = Journal::create(rt.disk(), config(7)).await.expect("there is room");
        for _ in 0..5 {
            write(&journal, 10).await;
        }
        journal.bring_to_rest().await.expect("the disk works");
        let file = rt.disk().open("journal.1", false).await.expect("it is there");
        let whole = rt.disk().read(file, 0, SEGMENT).await.expect("the disk works").to_bytes();
        let found = scan(&whole).expect("it has a header");
        let behind_mark = (found.end_offset + MARK_BYTES) as u64;
        let firsts: Vec<u64> = found.records().map(|(_, record)| (record.as_ptr() as usize - whole.as_ptr() as usize) as u64).collect();
        for len in [4096, firsts[3], firsts[10] - 4 - FRAME_HEADER_BYTES as u64, firsts[35], behind_mark - 1, behind_mark] {
            rt.disk().set_len(file, len).await.expect("the disk works");
            rt.disk().sync(file).await.expect("the disk works");
            for same_boot in [true, false] {
                // A power cut may have taken the length of a segment with the sync of its header.
                let refused = Journal::recover(rt.disk(), JournalConfig { same_boot, ..config(8) }, |_: Found<'_>| Ok(())).await.map(drop);
                let is_refused = matches!(&refused, Err(JournalError::Damaged(text)) if text.contains("journal.1 was cut to"));
                assert_eq!(is_refused, len < behind_mark && (same_boot || len > 4096), "{len} {same_boot}: {refused:?}");
            }
            rt.disk().write(file, 0, Payload::Real(whole.clone())).await.expect("the disk works");
        }
    };
    sim.block_on(node, SECOND, cut).expect("it ends");
}

async fn files_of(disk: &SimDisk, prefix: &str) -> usize {
    disk.list().await.expect("the disk works").iter().filter(|name| name.starts_with(prefix)).count()
}
