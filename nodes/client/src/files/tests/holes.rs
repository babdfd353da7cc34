//! Holes: who finds them, what it costs, and that all agree after the last close.

use std::cell::Cell;
use std::rc::Rc;

use weft_base::Handle;
use weft_rt::Bulk;
use weft_wire::ops::Op;
use weft_wire::{Request, Rights};

use crate::tests::world::{BOTH, Fate, ROOT, TestRt, World, create};
use crate::{Client, OpenFile, SetAttr};

const STRIPE: u64 = 64 << 10;

fn write(world: &World, client: &Client<TestRt>, file: &OpenFile, offset: u64, bytes: u64) {
    let data = vec![7; bytes as usize];
    world.run(client.write(file, offset, Bulk::Slices(vec![&data]))).expect("it is written");
}

/// What another client is told of the space that a file takes.
fn allocated(world: &World, handle: Handle) -> u64 {
    let state = world.run(world.state(handle)).expect("it is there");
    assert!(state.ask_data.is_none(), "its metadata server knows");
    state.attr.allocated_bytes()
}

#[test]
fn whoever_leaves_nothing_out_says_nothing_of_holes() {
    let world = World::new(1, 3, STRIPE as u32);
    let client = world.client(1);
    let asks = Rc::new(Cell::new(0));
    let seen = asks.clone();
    world.fates(move |sent| {
        if let Request::Close(close) = &sent.request
            && close.written.as_ref().is_some_and(|written| written.truncate_epoch != 0)
        {
            seen.set(seen.get() + 1);
        }
        Fate::Arrives
    });
    let file = create(&world, &client, "file");
    for stripe in [1, 0, 3, 4, 2, 5] {
        write(&world, &client, &file, stripe * STRIPE, STRIPE);
    }
    let handle = file.handle();
    world.take_sent();
    world.run(client.close(file)).expect("it closes");
    assert_eq!(world.take_sent().into_iter().map(|(_, op)| op).collect::<Vec<_>>(), [Op::Close]);
    assert_eq!((asks.get(), allocated(&world, handle)), (0, 6 * STRIPE));
    // A gap is told of with the close that is sent anyway.
    let (_, file) = world.run(client.open(&ROOT, handle, BOTH, false)).expect("it opens");
    write(&world, &client, &file, 100 * STRIPE, 1);
    world.take_sent();
    world.run(client.close(file)).expect("it closes");
    assert_eq!(world.take_sent().into_iter().map(|(_, op)| op).collect::<Vec<_>>(), [Op::Close]);
    assert_eq!((asks.get(), allocated(&world, handle)), (1, 6 * STRIPE + 4096));
}

#[test]
fn the_last_writer_leaves_what_all_have_filled() {
    let world = World::new(1, 2, STRIPE as u32);
    let (a, b) = (world.client(1), world.client(2));
    let file = create(&world, &a, "file");
    let handle = file.handle();
    let (_, other) = world.run(b.open(&ROOT, handle, BOTH, false)).expect("it opens");
    write(&world, &a, &file, 8 * STRIPE, STRIPE);
    write(&world, &b, &other, 0, STRIPE);
    world.run(a.close(file)).expect("it closes");
    assert_eq!(world.run(b.getattr(handle)).expect("its data servers say it").size, 9 * STRIPE);
    write(&world, &b, &other, STRIPE, 2 * STRIPE);
    assert_eq!(world.run(a.getattr(handle)).expect("its data servers say it").allocated_bytes(), 4 * STRIPE);
    world.run(b.close(other)).expect("it closes");
    assert_eq!(allocated(&world, handle), 4 * STRIPE);
    // Reading costs nothing more, and many files are closed as one is.
    let (_, file) = world.run(a.open(&ROOT, handle, Rights::WRITE, false)).expect("it opens");
    write(&world, &a, &file, 3 * STRIPE, 5 * STRIPE);
    assert!(world.run(a.close_many(&[file])).into_iter().all(|closed| closed.is_ok()));
    assert_eq!(allocated(&world, handle), 9 * STRIPE);
}

#[test]
fn truncations_move_holes() {
    let world = World::new(1, 2, STRIPE as u32);
    let client = world.client(1);
    let file = create(&world, &client, "file");
    let handle = file.handle();
    let resize = |size| {
        let changes = SetAttr { size: Some(size), opened_for_write: true, ..SetAttr::default() };
        world.run(client.setattr(&ROOT, handle, &changes)).expect("it is cut").allocated_bytes()
    };
    write(&world, &client, &file, 0, 10);
    assert_eq!(resize(1 << 40), 4096);
    write(&world, &client, &file, 1 << 30, STRIPE);
    assert_eq!(resize((1 << 30) + 4096), 2 * 4096);
    world.run(client.close(file)).expect("it closes");
    assert_eq!(allocated(&world, handle), 2 * 4096);
    assert_eq!(resize(20), 4096);
    assert_eq!(allocated(&world, handle), 4096);
    assert_eq!((resize(0), allocated(&world, handle)), (0, 0));
    assert_eq!((resize(1 << 35), allocated(&world, handle)), (0, 0), "a file that has data no more");
}

#[test]
fn a_file_that_was_cut_while_it_was_closed_is_no_longer_what_it_was() {
    let world = World::new(1, 2, STRIPE as u32);
    let client = world.client(1);
    let file = create(&world, &client, "file");
    let handle = file.handle();
    write(&world, &client, &file, 0, 8 * STRIPE);
    world.run(client.close(file)).expect("it closes");
    let (_, file) = world.run(client.open(&ROOT, handle, BOTH, true)).expect("it is cut to nothing");
    write(&world, &client, &file, 7 * STRIPE, STRIPE);
    assert_eq!(world.run(client.getattr(handle)).expect("it is open").allocated_bytes(), STRIPE);
    world.run(client.close(file)).expect("it closes");
    assert_eq!(allocated(&world, handle), STRIPE);
}
