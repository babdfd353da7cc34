//! What checkpoints cost. Small disks: there is room for changes only while the next checkpoint
//! fits, too, so that what is removed always comes back.

use std::collections::BTreeSet;

use weft_base::{FsId, SECOND, ServerId};
use weft_journal::{Checkpoint, Found, Journal, JournalConfig, JournalError, Room};
use weft_rt::ServerRuntime;
use weft_rt_sim::{NodeConfig, Profile, Random, Sim, SimDisk};

const SEGMENT: u64 = 64 << 10;
/// Changes between looks at whether a checkpoint is due: a server is not asked at each.
const TURN_CHANGES: u64 = 8;

/// A server whose state is a set of records.
struct Owner {
    journal: Journal<SimDisk>,
    live: BTreeSet<u64>,
    next: u64,
    refused: u64,
}

fn record(number: u64) -> Vec<u8> {
    vec![number as u8; 100 + (number * 37 % 300) as usize]
}

fn fill(checkpoint: &mut Checkpoint<SimDisk>, live: &BTreeSet<u64>) {
    live.iter().for_each(|number| checkpoint.push(&record(*number)));
}

impl Owner {
    async fn turn(&mut self, is_full: impl Fn(Room) -> bool, change: impl Fn(&mut Self) -> Option<Vec<u8>>) -> bool {
        let _ = self.journal.ensure_room().await;
        for _ in 0..TURN_CHANGES {
            if is_full(self.journal.room()) {
                return false;
            }
            let Some(record) = change(self) else { return false };
            self.journal.append(&record);
        }
        self.journal.commit().await.expect("room was promised");
        if self.journal.wants_room() {
            self.checkpoint().await;
        }
        true
    }

    async fn checkpoint(&mut self) {
        let begun = match Checkpoint::begin(&self.journal).await {
            Err(JournalError::NoSpace) => {
                let mut measured = Checkpoint::measure(&self.journal);
                fill(&mut measured, &self.live);
                measured.finish().await.unwrap();
                Checkpoint::begin(&self.journal).await
            }
            begun => begun,
        };
        match begun {
            Ok(mut checkpoint) => {
                fill(&mut checkpoint, &self.live);
                checkpoint.finish().await.expect("it was known to fit");
            }
            Err(error) => {
                assert_eq!(error, JournalError::NoSpace);
                self.refused += 1;
            }
        }
    }

    /// Adds until the disk is full; gives how many there are.
    async fn fill(&mut self) -> usize {
        let add = |this: &mut Owner| {
            this.next += 1;
            this.live.insert(this.next);
            Some(record(this.next))
        };
        while self.turn(|room| room != Room::Plenty, add).await {}
        self.live.len()
    }

    /// Removes down to so many.
    async fn remove(&mut self, left: usize) {
        let remove = |this: &mut Owner| {
            let number = (this.live.len() > left).then(|| this.live.pop_first())??;
            Some(vec![0; 20 + number as usize % 9])
        };
        while self.turn(|room| room == Room::None, remove).await {}
        assert_eq!(self.live.len(), left, "the rest cannot be removed");
    }
}

fn config() -> JournalConfig {
    JournalConfig { segment_bytes: SEGMENT, keeps_checkpoint_room: true, ..JournalConfig::new(FsId(5), ServerId(3), 1) }
}

#[test]
fn what_fills_a_small_disk_can_be_removed_and_comes_back() {
    for segments in [2, 3, 4, 6, 10, 20, 40] {
        let disk_bytes = segments * SEGMENT + (300 << 10);
        let sim = Sim::new(segments, Profile::instant());
        let node = sim.add_node(NodeConfig::client("server"));
        sim.set_disk_bytes(node, disk_bytes);
        let rounds = sim.block_on(node, 10 * SECOND, async move |rt| {
            let journal = Journal::create(rt.disk(), config()).await.unwrap();
            let mut owner = Owner { journal, live: BTreeSet::new(), next: 0, refused: 0 };
            let mut most = 0;
            for round in 0..10 {
                let fit = owner.fill().await;
                let bytes: usize = owner.live.iter().map(|number| record(*number).len()).sum();
                most = most.max(fit);
                let of_disk = bytes as f64 / disk_bytes as f64;
                assert!(of_disk > 0.15 && fit * 10 > most * 6, "{segments} segments, round {round}: {fit} fit, {of_disk:.2} of the disk");
                owner.remove(0).await;
            }
            owner.next
        });
        // A segment that waits may be filled by the next life.
        let mut random = Random::new(segments);
        let mut state = (BTreeSet::new(), rounds.unwrap());
        for _ in 0..50 {
            sim.crash(node);
            sim.restart(node);
            let (live, next) = state;
            let (seed, fills) = (random.draw(), random.between(1, 2));
            let life = sim.block_on(node, 10 * SECOND, async move |rt| {
                let journal = Journal::recover(rt.disk(), config(), |_: Found<'_>| Ok(())).await.unwrap().0;
                let (mut owner, mut random) = (Owner { journal, live, next, refused: 0 }, Random::new(seed));
                for _ in 0..fills {
                    owner.remove(random.below(owner.live.len() as u64 + 1) as usize).await;
                    owner.fill().await;
                }
                (owner.live, owner.next)
            });
            state = life.unwrap();
        }
    }
}

/// A checkpoint for each so many bytes, however large the state was, wrote far more than the
/// journal.
#[test]
fn checkpoints_of_a_state_that_grows_write_no_more_than_twice_its_journal() {
    let sim = Sim::new(1, Profile::instant());
    let node = sim.add_node(NodeConfig::client("server"));
    let flow = sim.block_on(node, 10 * SECOND, async |rt| {
        let journal = Journal::create(rt.disk(), config()).await.unwrap();
        let (mut live, mut written, mut longest) = (BTreeSet::new(), 0, 0);
        for number in 1..=10_000 {
            journal.ensure_room().await.unwrap();
            journal.append(&record(number));
            journal.commit().await.unwrap();
            live.insert(number);
            longest = longest.max(journal.bytes_since_checkpoint());
            if journal.is_long(SEGMENT) {
                let mut checkpoint = Checkpoint::begin(&journal).await.unwrap();
                fill(&mut checkpoint, &live);
                written += checkpoint.finish().await.unwrap();
            }
        }
        let all = journal.stats().bytes;
        assert!(all > 20 * SEGMENT && written > all / 2 && written < 2 * all, "{written} bytes of checkpoints beside {all}");
        assert!(longest > 4 * SEGMENT && longest < all, "a recovery replayed {longest}");
    });
    flow.unwrap();
}
