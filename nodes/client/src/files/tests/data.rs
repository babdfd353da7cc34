//! Reading and writing: message counts, ends of files, holes, several clients.

use std::sync::Arc;

use weft_base::{Payload, ROOT_HANDLE, ServerId, Status};
use weft_call::both;
use weft_rt::{Bulk, Runtime};
use weft_wire::ops::Op;
use weft_wire::{Flags, Rights};

use crate::tests::world::{BOTH, Fate, LATENCY, META0, ROOT, TestRt, World};
use crate::{Client, OpenFile, SetAttr};

fn create(world: &World, client: &Client<TestRt>) -> Arc<OpenFile> {
    crate::tests::world::create(world, client, "file")
}

fn write(world: &World, client: &Client<TestRt>, file: &OpenFile, offset: u64, data: &[u8]) {
    world.run(client.write(file, offset, Bulk::Slices(vec![data]))).expect("it is written");
}

fn read(world: &World, client: &Client<TestRt>, file: &OpenFile, offset: u64, len: u64) -> Vec<u8> {
    Payload::concat(&world.run(client.read(file, offset, len)).expect("it is read"))
}

fn truncate(world: &World, client: &Client<TestRt>, file: &OpenFile, size: u64) {
    let changes = SetAttr { size: Some(size), opened_for_write: true, ..SetAttr::default() };
    assert_eq!(world.run(client.setattr(&ROOT, file.handle(), &changes)).expect("the server cuts it").size, size);
}

#[test]
fn open_write_close_of_half_a_stripe_is_three_messages() {
    let world = World::new(1, 4, 1 << 20);
    let client = world.client(1);
    let file = create(&world, &client);
    let data = vec![7; 512 << 10];
    write(&world, &client, &file, 0, &data);
    let handle = file.handle();
    world.run(client.close(file)).expect("it closes");
    let ops: Vec<Op> = world.take_sent().into_iter().map(|(_, op)| op).collect();
    assert_eq!(ops, [Op::Create, Op::Write, Op::Close]);
    let attr = world.run(client.getattr(handle)).expect("the server answers");
    assert_eq!(attr.size, 512 << 10);
    let (_, file) = world.run(client.open(&ROOT, handle, Rights::READ, false)).expect("it opens");
    world.take_sent();
    assert_eq!(read(&world, &client, &file, 0, 512 << 10), data);
    assert_eq!(world.take_sent().len(), 1, "a read inside the size needs nothing but the data");
}

#[test]
fn a_stripe_travels_in_halves_at_once() {
    let world = World::new(1, 4, 1 << 20);
    let client = world.client(1);
    let file = create(&world, &client);
    let data: Vec<u8> = (0..1u32 << 20).map(|i| (i / 997) as u8).collect();
    world.take_sent();
    let begin = world.now();
    write(&world, &client, &file, 0, &data);
    assert_eq!((world.now().since(begin), world.take_sent().len()), (2 * LATENCY, 2));
    assert_eq!(read(&world, &client, &file, 0, 1 << 20), data);
    assert_eq!(world.take_sent().len(), 1, "a reader wants it whole");
}

#[test]
fn stripes_go_to_all_servers_at_once() {
    let world = World::new(1, 4, 64 << 10);
    let client = world.client(1);
    let file = create(&world, &client);
    let data: Vec<u8> = (0..1u32 << 20).map(|i| (i / 997) as u8).collect();
    world.take_sent();
    let begin = world.now();
    write(&world, &client, &file, 0, &data);
    assert_eq!(world.now().since(begin), 2 * LATENCY);
    let sent = world.take_sent();
    assert_eq!(sent.len(), 4, "16 stripes in 4 messages");
    let begin = world.now();
    assert_eq!(read(&world, &client, &file, 0, 1 << 20), data);
    assert_eq!(world.now().since(begin), 2 * LATENCY);
    assert_eq!(world.take_sent().len(), 4);
}

#[test]
fn large_calls_are_cut_into_messages_of_bounded_size() {
    let world = World::new(1, 2, 1 << 20);
    let client = world.client(1);
    let file = create(&world, &client);
    let data: Vec<u8> = (0..20u32 << 20).map(|i| (i / 4099) as u8).collect();
    world.take_sent();
    write(&world, &client, &file, 5, &data);
    assert_eq!(world.take_sent().len(), 4, "10 MiB to each of 2 servers");
    assert!(read(&world, &client, &file, 5, 20 << 20) == data);
}

#[test]
fn the_end_of_a_file_is_where_it_is_now() {
    let world = World::new(1, 2, 1 << 12);
    let (writer, reader) = (world.client(1), world.client(2));
    let file = create(&world, &writer);
    let (attr, other) = world.run(reader.open(&ROOT, file.handle(), BOTH, false)).expect("it opens");
    assert_eq!(attr.size, 0);
    assert_eq!(read(&world, &reader, &other, 0, 100), b"");
    write(&world, &writer, &file, 0, b"hello");
    assert_eq!(world.run(reader.getattr(file.handle())).expect("asked at the data servers").size, 5);
    assert_eq!(read(&world, &reader, &other, 0, 100), b"hello");
    write(&world, &writer, &file, 5, b", world");
    assert_eq!(read(&world, &reader, &other, 5, 100), b", world");
    // A hole, then data in another stripe.
    write(&world, &writer, &file, 6000, b"end");
    let all = read(&world, &reader, &other, 0, 10_000);
    assert_eq!((all.len(), &all[..12], &all[6000..]), (6003, &b"hello, world"[..], &b"end"[..]));
    assert!(all[12..6000].iter().all(|byte| *byte == 0));
    truncate(&world, &writer, &file, 3);
    assert_eq!(read(&world, &reader, &other, 0, 10_000), b"hel");
    truncate(&world, &writer, &file, 9);
    assert_eq!(read(&world, &reader, &other, 0, 10_000), b"hel\0\0\0\0\0\0");
    let error = world.run(writer.open(&ROOT, file.handle(), Rights::WRITE, false)).map(|(_, file)| file).expect("it opens");
    assert_eq!(world.run(writer.read(&error, 0, 1)).map_err(|error| error.status), Err(Status::AccessDenied));
}

#[test]
fn a_write_during_a_read_is_seen_whole_or_not_at_all() {
    // The data is asked for first, then written, then the size is asked for: the new bytes must not
    // appear as zeros.
    for delay in 0..8 {
        let world = World::new(1, 1, 1 << 20);
        let (writer, reader) = (world.client(1), world.client(2));
        let file = create(&world, &writer);
        write(&world, &writer, &file, 0, b"old");
        let (_, other) = world.run(reader.open(&ROOT, file.handle(), Rights::READ, false)).expect("it opens");
        world.fates(|sent| if sent.request.op() == Op::GetAttr { Fate::Late(5 * LATENCY) } else { Fate::Arrives });
        let late_write = async {
            world.sleep_until(world.now() + delay * LATENCY).await;
            writer.write(&file, 3, Bulk::Slices(vec![b"new"])).await.expect("it is written");
        };
        let (pieces, ()) = world.run(both(reader.read(&other, 0, 100), late_write));
        let bytes = Payload::concat(&pieces.expect("it is read"));
        assert!(bytes == b"old" || bytes == b"oldnew", "delay {delay}: {bytes:?}");
    }
}

#[test]
fn attributes_belong_together() {
    // While the data servers are asked for the size, the mode is changed and then more is written:
    // never the old mode with the new size, and never the new mode without what was written before
    // it.
    for delay in 0..12 {
        let world = World::new(1, 1, 1 << 20);
        let (writer, reader) = (world.client(1), world.client(2));
        let file = create(&world, &writer);
        write(&world, &writer, &file, 0, &[1; 10]);
        world.fates(|sent| if sent.request.op() == Op::ObjectStat { Fate::Late(6 * LATENCY) } else { Fate::Arrives });
        let changes = async {
            world.sleep_until(world.now() + delay * LATENCY / 2).await;
            writer.write(&file, 10, Bulk::Slices(vec![&[2; 10]])).await.expect("it is written");
            let mode = SetAttr { mode: Some(0o600), ..SetAttr::default() };
            writer.setattr(&ROOT, file.handle(), &mode).await.expect("the server sets it");
            writer.write(&file, 20, Bulk::Slices(vec![&[3; 10]])).await.expect("it is written");
        };
        let (attr, ()) = world.run(both(reader.getattr(file.handle()), changes));
        let attr = attr.expect("the servers answer");
        let fits = if attr.mode == 0o600 { attr.size >= 20 } else { attr.size <= 20 };
        assert!(fits, "delay {delay}: mode {:o} with size {}", attr.mode, attr.size);
    }
}

#[test]
fn lists_of_ranges_are_one_message_for_each_server() {
    let world = World::new(1, 2, 1 << 12);
    let client = world.client(1);
    let file = create(&world, &client);
    world.take_sent();
    let ranges: Vec<(u64, u64)> = (0..100).map(|i| (i * 1000, 10)).collect();
    let data: Vec<u8> = (0..1000u32).map(|i| i as u8).collect();
    world.run(client.write_list(&file, &ranges, Bulk::Slices(data.chunks(333).collect()))).expect("it is written");
    assert_eq!(world.take_sent().len(), 2);
    let back = world.run(client.read_list(&file, &ranges)).expect("it is read");
    assert_eq!(world.take_sent().len(), 2);
    assert_eq!(back.iter().map(|pieces| Payload::concat(pieces)).collect::<Vec<_>>().concat(), data);
    for bad in [&[(0, 5), (3, 5)][..], &[(5, 5), (0, 5)], &[(0, 9)]] {
        let outcome = world.run(client.write_list(&file, bad, Bulk::Slices(vec![&[0; 10]])));
        assert_eq!(outcome.map_err(|error| error.status), Err(Status::Invalid));
    }
    assert_eq!(
        world.run(client.write(&file, u64::MAX - 2, Bulk::Slices(vec![b"xyz"]))).map_err(|error| error.status),
        Err(Status::FileTooBig)
    );
    assert_eq!(read(&world, &client, &file, u64::MAX - 2, 100), b"");
}

#[test]
fn own_writes_from_both_sides_of_a_truncation_by_another_client_are_sorted_out() {
    let world = World::new(1, 2, 1 << 12);
    let (one, two) = (world.client(1), world.client(2));
    let file = create(&world, &one);
    let (_, other) = world.run(two.open(&ROOT, file.handle(), BOTH, false)).expect("it opens");
    write(&world, &one, &file, 0, &[1; 9000]);
    truncate(&world, &two, &other, 10);
    // Client one does not know of the truncation yet.
    write(&world, &one, &file, 100, &[2; 50]);
    assert_eq!(world.run(one.getattr(file.handle())).expect("exact").size, 150);
    assert_eq!(world.run(two.getattr(file.handle())).expect("exact").size, 150);
    let handle = file.handle();
    world.run(one.close(file)).expect("it closes");
    world.run(two.close(other)).expect("it closes");
    assert_eq!(world.size_of(handle), 150);
    assert_eq!(world.run(one.getattr(handle)).expect("exact").size, 150);
}

#[test]
fn a_write_and_a_truncation_of_one_client_at_once_leave_an_exact_size() {
    for (write_delay, truncate_delay) in (0..8).flat_map(|write| (0..9).map(move |truncate| (write, truncate))) {
        let world = World::new(1, 2, 1 << 12);
        let client = world.client(1);
        let file = create(&world, &client);
        write(&world, &client, &file, 0, &[1; 9000]);
        world.fates(move |sent| match sent.request.op() {
            Op::Write => Fate::Late(write_delay * LATENCY / 2),
            // Done at once, but the answer comes after the write.
            Op::SetAttr if truncate_delay == 8 && !sent.header.flags.contains(Flags::RETRY) => Fate::ReplyLost,
            Op::SetAttr => Fate::Late(truncate_delay * LATENCY / 2),
            _ => Fate::Arrives,
        });
        let cut = SetAttr { size: Some(10), opened_for_write: true, ..SetAttr::default() };
        let (written, truncated) =
            world.run(both(client.write(&file, 100, Bulk::Slices(vec![&[2; 50]])), client.setattr(&ROOT, file.handle(), &cut)));
        written.expect("it is written");
        truncated.expect("it is cut");
        let handle = file.handle();
        let size = world.run(world.hand.getattr(handle)).expect("the data servers know").size;
        assert!(size == 10 || size == 150);
        assert_eq!(world.run(client.getattr(handle)).expect("exact").size, size, "delays {write_delay} and {truncate_delay}");
        world.run(client.close(file)).expect("it closes");
        assert_eq!(world.size_of(handle), size, "delays {write_delay} and {truncate_delay}");
    }
}

#[test]
fn a_failed_write_does_not_invent_a_size() {
    let world = World::new(1, 2, 1 << 12);
    let client = world.client(1);
    let file = create(&world, &client);
    write(&world, &client, &file, 0, b"abc");
    world.fates(|sent| {
        if sent.server == ServerId::data(0) && sent.request.op() == Op::Write {
            Fate::Answered(Err(Status::NoSpace))
        } else {
            Fate::Arrives
        }
    });
    let outcome = world.run(client.write(&file, 0, Bulk::Slices(vec![&[9; 8192]])));
    assert_eq!(outcome.map_err(|error| error.status), Err(Status::NoSpace));
    world.no_faults();
    let exact = world.run(client.getattr(file.handle())).expect("asked at the data servers").size;
    let handle = file.handle();
    world.run(client.close(file)).expect("it closes");
    assert_eq!(world.size_of(handle), exact);
    assert!(exact == 4096 || exact == 8192, "what the other server wrote counts: {exact}");
}

#[test]
fn random_operations_of_one_client_against_a_model() {
    random_operations(1);
}

#[test]
fn random_operations_of_two_clients_against_a_model() {
    random_operations(2);
}

/// Clients read, write, cut and stat one file in turns; every answer must be that of a plain vector
/// of bytes.
fn random_operations(active: u64) {
    for seed in 0..60u64 {
        let world = World::new(1, 3, 1 << 12);
        let clients = [world.client(1), world.client(2)];
        let first = create(&world, &clients[0]);
        let handle = first.handle();
        let rights = if active == 2 { BOTH } else { Rights::READ };
        let (_, second) = world.run(clients[1].open(&ROOT, handle, rights, false)).expect("it opens");
        let mut files = [first, second];
        let mut model: Vec<u8> = Vec::new();
        let mut random = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) + 1;
        let mut draw = |below: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % below
        };
        for step in 0..80u64 {
            let who = draw(active) as usize;
            let (client, file) = (&clients[who], files[who].clone());
            let (offset, len) = (draw(30_000), draw(20_000));
            let context = format!("seed {seed} step {step} client {who}");
            match draw(8) {
                0..=2 => {
                    let data: Vec<u8> = (0..len).map(|i| (step * 7 + i) as u8 | 1).collect();
                    write(&world, client, &file, offset, &data);
                    if len > 0 {
                        let end = (offset + len) as usize;
                        model.resize(model.len().max(end), 0);
                        model[offset as usize..end].copy_from_slice(&data);
                    }
                }
                3 | 4 => {
                    let end = model.len().min((offset + len) as usize);
                    let expected = model.get(offset as usize..end).unwrap_or(&[]);
                    assert!(read(&world, client, &file, offset, len) == expected, "{context}: read {offset}+{len}");
                }
                5 => {
                    truncate(&world, client, &file, offset);
                    model.resize(offset as usize, 0);
                }
                6 => {
                    let attr = world.run(client.getattr(handle)).expect("the servers answer");
                    assert_eq!(attr.size, model.len() as u64, "{context}: size");
                }
                _ => {
                    drop(file);
                    let cut = draw(6) == 0;
                    let (attr, again) = world.run(client.open(&ROOT, handle, BOTH, cut)).expect("it opens");
                    if cut {
                        model.clear();
                    }
                    assert_eq!(attr.size, model.len() as u64, "{context}: size at open");
                    let before = std::mem::replace(&mut files[who], again);
                    world.run(client.close(before)).expect("it closes");
                }
            }
        }
        for (client, file) in clients.iter().zip(files) {
            world.run(client.close(file)).expect("it closes");
        }
        assert_eq!(world.size_of(handle), model.len() as u64, "seed {seed}: the inode knows the size when all is closed");
        assert!(world.take_sent().iter().any(|(server, _)| *server == META0));
        assert!(world.is_closed(ROOT_HANDLE, "file"), "seed {seed}");
    }
}
