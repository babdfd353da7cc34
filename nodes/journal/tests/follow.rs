//! A journal is read while it is written: every record that is on stable storage once and in order,
//! over segments, restarts and checkpoints, or a word that it is there no more.

use weft_base::{FsId, SECOND, ServerId};
use weft_journal::{Checkpoint, Found, Journal, JournalConfig, Lsn, ReadPlace};
use weft_rt::ServerRuntime;
use weft_rt_sim::{NodeConfig, NodeId, Profile, Sim, SimDisk};

const SEGMENT: u64 = 64 << 10;

fn config(salt: u64) -> JournalConfig {
    JournalConfig { segment_bytes: SEGMENT, ..JournalConfig::new(FsId(5), ServerId(3), salt) }
}

fn world() -> (Sim, NodeId) {
    let sim = Sim::new(1, Profile::instant());
    let node = sim.add_node(NodeConfig::client("server"));
    (sim, node)
}

fn record(number: u64) -> Vec<u8> {
    let mut bytes = number.to_le_bytes().to_vec();
    bytes.resize(8 + (number * 37 % 3000) as usize, number as u8);
    bytes
}

async fn write(journal: &Journal<SimDisk>, records: u64) {
    for _ in 0..records {
        journal.ensure_room().await.expect("there is room");
        journal.append(&record(journal.last_lsn().0 + 1));
        if journal.last_lsn().0.is_multiple_of(3) {
            journal.commit().await.expect("the disk works");
        }
    }
    journal.commit().await.expect("the disk works");
}

/// Reads to the end; `None` if something is gone.
async fn read_all(journal: &Journal<SimDisk>, mut after: Lsn, mut place: ReadPlace) -> Option<(Lsn, ReadPlace)> {
    loop {
        let followed = journal.follow(after, place).await.expect("the disk works")?;
        for (lsn, bytes) in &followed.records {
            assert_eq!((*lsn, &bytes[..]), (after.next(), &record(lsn.0)[..]));
            after = *lsn;
        }
        assert_eq!(followed.until, after);
        if followed.records.is_empty() {
            assert_eq!(after, journal.durable_lsn());
            return Some((after, followed.place));
        }
        place = followed.place;
    }
}

#[test]
fn every_durable_record_is_read_once_and_in_order() {
    let (sim, node) = world();
    let flow = sim.block_on(node, 100 * SECOND, |rt| async move {
        let journal = Journal::create(rt.disk(), config(1)).await.expect("there is room");
        write(&journal, 10).await;
        let (none, begin) = (Lsn::NONE, ReadPlace::default());
        let followed = journal.follow(none, begin).await.unwrap().unwrap();
        assert_eq!((followed.records.len(), followed.until), (0, none), "nothing is on stable storage");
        journal.sync().await.unwrap();
        let (mut after, mut place) = read_all(&journal, none, begin).await.expect("it is there");
        assert_eq!(after, Lsn(10));
        // Over several segments, with and without the place, and with wrong ones.
        for _ in 0..5 {
            write(&journal, 100).await;
            journal.sync().await.unwrap();
            (after, place) = read_all(&journal, after, place).await.expect("it is there");
        }
        assert!(place.sequence > 3, "{place:?}");
        for wrong in [
            ReadPlace { offset: place.offset + 8, ..place },
            ReadPlace { offset: u64::MAX / 2, ..place },
            ReadPlace { sequence: 77, offset: 1 },
        ] {
            for from in [0, 1, 9, 250, after.0 - 1, after.0] {
                assert_eq!(read_all(&journal, Lsn(from), wrong).await.map(|(until, _)| until), Some(after), "{wrong:?} {from}");
            }
        }
        // A record that is longer than what is read at once.
        let long = vec![7; 40 << 10];
        let lsn = journal.append(&long);
        journal.commit().await.unwrap();
        journal.sync().await.unwrap();
        let followed = journal.follow(after, place).await.unwrap().unwrap();
        assert_eq!(followed.records.last().map(|(lsn, record)| (*lsn, record.len())), Some((lsn, long.len())));
        followed.place
    });
    let place = flow.expect("it ends");
    // The place outlives the process.
    sim.block_on(node, 100 * SECOND, |rt| async move {
        let (journal, _) =
            Journal::recover(rt.disk(), JournalConfig { same_boot: true, ..config(2) }, |_: Found<'_>| Ok(())).await.unwrap();
        let followed = journal.follow(Lsn(511), place).await.unwrap().unwrap();
        assert_eq!((followed.records.len(), followed.until), (0, Lsn(511)));
        assert_eq!(journal.follow(Lsn(509), place).await.unwrap().unwrap().until, Lsn(511), "a place behind the record is a hint");
    })
    .expect("it ends");
}

#[test]
fn what_a_checkpoint_has_made_unnecessary_is_said_to_be_gone() {
    let (sim, node) = world();
    sim.block_on(node, 100 * SECOND, |rt| async move {
        let journal = Journal::create(rt.disk(), config(1)).await.expect("there is room");
        write(&journal, 300).await;
        journal.sync().await.unwrap();
        let (after, place) = read_all(&journal, Lsn::NONE, ReadPlace::default()).await.expect("it is there");
        let checkpoint = Checkpoint::begin(&journal).await.unwrap();
        checkpoint.finish().await.unwrap();
        assert!(journal.follow(Lsn::NONE, ReadPlace::default()).await.unwrap().is_none());
        assert!(journal.follow(Lsn(5), place).await.unwrap().is_none());
        assert_eq!(read_all(&journal, after, place).await.map(|(until, _)| until), Some(after), "the end is there");
        write(&journal, 5).await;
        journal.sync().await.unwrap();
        assert_eq!(read_all(&journal, after, place).await.map(|(until, _)| until), Some(Lsn(305)));
    })
    .expect("it ends");
}

#[test]
fn a_long_segment_is_read_from_its_beginning() {
    let (sim, node) = world();
    sim.block_on(node, 100 * SECOND, |rt| async move {
        // Frames of many lengths: what is read at once ends within headers, too.
        let config = JournalConfig { segment_bytes: 8 << 20, ..config(1) };
        let journal = Journal::create(rt.disk(), config).await.expect("there is room");
        for _ in 0..10_000 {
            journal.append(&[1; 60][..journal.last_lsn().0 as usize % 60]);
            journal.commit().await.expect("the disk works");
        }
        journal.sync().await.unwrap();
        let end = journal.durable_lsn();
        for from in [0, end.0 / 2, end.0 - 1] {
            let (mut until, mut place) = (Lsn(from), ReadPlace::default());
            while until < end {
                let followed = journal.follow(until, place).await.unwrap().expect("it is there");
                assert_eq!(followed.records.first().map(|(lsn, _)| *lsn), Some(until.next()));
                (until, place) = (followed.until, followed.place);
            }
        }
    })
    .expect("it ends");
}
