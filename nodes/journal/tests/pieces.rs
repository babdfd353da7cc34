//! What recovery hands out, and when: nothing of a journal that is not whole, and never much at a
//! time.

use std::cell::RefCell;
use std::rc::Rc;

use weft_base::{FsId, Result, SECOND, ServerId};
use weft_journal::{Found, Journal, JournalConfig, JournalError, TakesFound};
use weft_rt::ServerRuntime;
use weft_rt_sim::{NodeConfig, NodeId, Profile, Sim};

const MIB: usize = 1 << 20;

fn config(segment_bytes: u64) -> JournalConfig {
    JournalConfig { segment_bytes, ..JournalConfig::new(FsId(5), ServerId(3), 7) }
}

fn world() -> (Sim, NodeId) {
    let sim = Sim::new(1, Profile::instant());
    let node = sim.add_node(NodeConfig::client("server"));
    (sim, node)
}

/// What was handed out: number of records, of pieces, bytes since the last piece, the most of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Taken {
    records: u64,
    pieces: u64,
    held: usize,
    most: usize,
}

struct Taker(Rc<RefCell<Taken>>);

impl TakesFound for Taker {
    fn take(&mut self, found: Found<'_>) -> Result<()> {
        let (Found::Checkpoint(bytes) | Found::Journal(_, bytes)) = found;
        let mut taken = self.0.borrow_mut();
        taken.records += 1;
        taken.held += bytes.len();
        taken.most = taken.most.max(taken.held);
        Ok(())
    }

    async fn piece_ends(&mut self) -> std::result::Result<(), JournalError> {
        let mut taken = self.0.borrow_mut();
        (taken.pieces, taken.held) = (taken.pieces + 1, 0);
        Ok(())
    }
}

/// Frames of so many records each, of so many bytes.
fn write(sim: &Sim, node: NodeId, segment_bytes: u64, frames: Vec<usize>, bytes: usize) {
    let write = move |rt: weft_rt_sim::SimRt| async move {
        let journal = Journal::create(rt.disk(), config(segment_bytes)).await.expect("there is room");
        for records in frames {
            journal.ensure_room().await.expect("there is room");
            for number in 0..records {
                journal.append(&vec![number as u8; bytes]);
            }
            journal.commit().await.expect("the disk works");
            journal.sync().await.expect("the disk works");
        }
    };
    sim.block_on(node, 100 * SECOND, write).expect("it ends");
}

fn recover(sim: &Sim, node: NodeId, segment_bytes: u64) -> (Option<JournalError>, Taken) {
    let taken = Rc::new(RefCell::new(Taken::default()));
    let taker = Taker(taken.clone());
    let read = move |rt: weft_rt_sim::SimRt| async move { Journal::recover(rt.disk(), config(segment_bytes), taker).await.err() };
    let error = sim.block_on(node, 100 * SECOND, read).expect("it ends");
    let taken = *taken.borrow();
    (error, taken)
}

/// Whoever takes records writes contents of files where they belong. A block may have had several
/// owners: what an old record puts there destroys what a newer one has put there, unless the newer
/// one is there, too.
#[test]
fn nothing_is_handed_out_of_a_journal_that_is_damaged_further_behind() {
    let (sim, node) = world();
    write(&sim, node, 64 << 10, vec![10; 100], 300);
    let segments = sim.disk_files(node).into_iter().filter(|(name, _)| name.starts_with("journal.")).count();
    assert!(segments > 2, "the test wants several segments");
    let (error, whole) = recover(&sim, node, 64 << 10);
    assert_eq!((error, whole.records), (None, 1000));
    assert!(whole.pieces >= 3, "{whole:?}");
    assert!(sim.corrupt(node, "journal.3", 6000, vec![0xff; 16]));
    let (error, taken) = recover(&sim, node, 64 << 10);
    assert!(matches!(&error, Some(JournalError::Damaged(text)) if text.contains("journal.3")), "{error:?}");
    assert_eq!(taken, Taken::default());
}

/// Contents of small files wait in memory from one end of a piece to the next.
#[test]
fn a_long_segment_is_handed_out_in_pieces() {
    let (sim, node) = world();
    // 39 MiB, and one frame of 9 MiB among them.
    let frames = [vec![300; 5], vec![900], vec![300; 5], vec![10; 10]].concat();
    let records: usize = frames.iter().sum();
    write(&sim, node, 64 << 20, frames.clone(), 10_000);
    let (error, taken) = recover(&sim, node, 64 << 20);
    assert_eq!((error, taken.records, taken.held), (None, records as u64, 0));
    assert!(taken.pieces >= 10, "{taken:?}");
    assert_eq!(taken.most, 900 * 10_000, "a frame that is longer than a piece comes alone");
    let (sim, node) = world();
    write(&sim, node, 64 << 20, vec![50; 60], 10_000);
    let (error, taken) = recover(&sim, node, 64 << 20);
    assert_eq!((error, taken.records), (None, 3000));
    assert!(taken.most <= MIB, "{taken:?}");
}
