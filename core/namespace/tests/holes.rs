//! Who asks the data servers how much of a file is holes.

mod common;

use common::*;
use weft_base::{ClientId, DataTime, Handle, WallTime};
use weft_namespace::{ClosePlan, DataState};
use weft_wire::Rights;
use weft_wire::ops::*;

const OTHER: ClientId = ClientId(2);

/// Closes a file of which this client has written the last bytes and left out others.
fn close_with_gaps(m: &mut Machine, handle: Handle) -> ClosePlan {
    let written = Some(Written { end_bytes: 10_000, mtime: DataTime { epoch: 0, at: WallTime(50) }, truncate_epoch: u32::MAX });
    let request = CloseRequest { handle, open_sequence: 9, keeps: Rights::default(), written };
    match m.look(|state, cx| Ok(state.leaves_holes(cx, &request))).unwrap() {
        true => ClosePlan::AskData,
        false => m.change(|state, cx, record| state.prepare_close(cx, &request, None, record)).unwrap(),
    }
}

fn take_in(m: &mut Machine, file: Handle, told: &DataState) {
    m.change(|state, _, record| {
        state.prepare_sizes(file, told, record);
        Ok(())
    })
    .unwrap();
}

#[test]
fn of_many_that_fill_a_file_the_last_one_asks() {
    let mut m = Machine::new();
    let file = m.create(TOP, "f").unwrap();
    for client in [ME, OTHER] {
        m.client = client;
        m.open(file, Rights::WRITE, 9).unwrap();
    }
    m.client = ME;
    assert_eq!(close_with_gaps(&mut m, file), ClosePlan::Done, "somebody else writes on");
    m.client = OTHER;
    let asks = m.look(|state, cx| state.getattr(cx, file)).unwrap().ask_data.is_some();
    assert!(asks, "until then whoever looks asks, also the one that writes");
    assert_eq!(close_with_gaps(&mut m, file), ClosePlan::AskData);
    let told = DataState { size: 20_000, allocated_bytes: 20_480, mtime: DataTime { epoch: 0, at: WallTime(60) }, truncate_epoch: 0 };
    take_in(&mut m, file, &told);
    assert_eq!((m.attr(file).size, m.attr(file).hole_bytes), (20_000, 0));
}

/// What was written may arrive after the answers, from a client that has given it up.
#[test]
fn a_file_whose_size_was_asked_for_may_have_all_its_datafiles() {
    let mut m = Machine::new();
    let file = m.create(TOP, "f").unwrap();
    m.open(file, Rights::WRITE, 9).unwrap();
    assert_eq!(close_with_gaps(&mut m, file), ClosePlan::AskData);
    let told = DataState { size: 0, allocated_bytes: 0, mtime: DataTime { epoch: 0, at: WallTime(60) }, truncate_epoch: 0 };
    take_in(&mut m, file, &told);
    let inode = m.state.peek(file).unwrap();
    assert_eq!((inode.size, m.state.datafiles(file, inode)), (0, u32::from(inode.layout.width)));
}

#[test]
fn answers_that_are_older_than_a_report_are_asked_for_again() {
    let mut m = Machine::new();
    let file = m.create(TOP, "f").unwrap();
    for client in [ME, OTHER] {
        m.client = client;
        m.open(file, Rights::WRITE, 9).unwrap();
    }
    let asked = m.state.asks_size(file).unwrap();
    assert!(!m.state.must_ask_size_again(file, asked).unwrap());
    assert_eq!(close_with_gaps(&mut m, file), ClosePlan::Done);
    assert!(m.state.must_ask_size_again(file, asked).unwrap(), "what it has written may have come after the answers");
    let asked = m.state.asks_size(file).unwrap();
    m.state.drop_client(ME);
    assert!(m.state.must_ask_size_again(file, asked).unwrap(), "a writer was lost meanwhile");
    assert!(!m.state.must_ask_size_again(file, m.state.asks_size(file).unwrap()).unwrap());
}
