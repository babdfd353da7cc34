//! Small files on the server of their inodes: how many messages they cost, and what each way to
//! them shows.

use std::collections::BTreeMap;

use bytes::Bytes;
use weft_base::{Attr, Credentials, Handle, Payload, ROOT_HANDLE, SECOND, ServerId, Status};
use weft_meta_server::Durability;
use weft_rt::{Bulk, Runtime};
use weft_wire::{Op, Rights};

use super::world::{BOTH, Fate, META0, ROOT, TestRt, World};
use crate::{Client, CreateOptions, DelayWrites, SeekFor, SetAttr, XattrFlags};

/// A file system whose root takes contents of so many bytes.
fn world(limit: &str) -> World {
    world_under(Durability::Sync, limit)
}

fn world_under(durability: Durability, limit: &str) -> World {
    limited(World::under(durability, 1, 2, 1 << 20), limit)
}

fn limited(world: World, limit: &str) -> World {
    let set = world.hand.set_xattr(&ROOT, ROOT_HANDLE, b"user.weft.inline_limit", limit.as_bytes(), XattrFlags::default());
    world.run(set).expect("the hint is set");
    world
}

fn put(world: &World, client: &Client<TestRt>, name: &str, content: &[u8]) -> Attr {
    let content = Bytes::copy_from_slice(content);
    world.run(client.put(&ROOT, ROOT_HANDLE, name.as_bytes(), &of_mode(0o640), &content)).expect("it is put").0
}

fn of_mode(mode: u32) -> CreateOptions {
    CreateOptions { mode, ..CreateOptions::default() }
}

fn read_many(world: &World, client: &Client<TestRt>, names: &[&str]) -> Vec<Result<Bytes, Status>> {
    let files: Vec<(Handle, Bytes)> = names.iter().map(|name| (ROOT_HANDLE, Bytes::copy_from_slice(name.as_bytes()))).collect();
    let results = world.run(client.read_many(&ROOT, &files));
    results.into_iter().map(|result| result.map(|file| file.data.to_bytes()).map_err(|error| error.status)).collect()
}

/// What an open file shows.
fn read(world: &World, client: &Client<TestRt>, handle: Handle) -> Vec<u8> {
    world.run(async {
        let (_, file) = client.open(&ROOT, handle, Rights::READ, false).await.expect("it opens");
        let data = client.read(&file, 0, u64::MAX).await.expect("it is read");
        client.close(file).await.expect("it closes");
        Payload::concat(&data)
    })
}

fn counted(world: &World) -> BTreeMap<Op, usize> {
    let mut counts = BTreeMap::new();
    world.take_sent().into_iter().for_each(|(_, op)| *counts.entry(op).or_default() += 1);
    counts
}

fn content(seed: u64, bytes: usize) -> Vec<u8> {
    (0..bytes as u64).map(|at| ((at * 31 + seed * 17) % 251) as u8).collect()
}

#[test]
fn a_put_is_one_message_and_a_batch_of_reads_is_one() {
    let world = world("16384");
    let client = world.client(1);
    put(&world, &client, "first", b"the container is made");
    world.take_sent();
    let contents: Vec<Vec<u8>> = [0, 1, 3901, 4096, 4097, 16384].iter().map(|bytes| content(*bytes as u64, *bytes)).collect();
    let names: Vec<String> = (0..contents.len()).map(|number| format!("f{number}")).collect();
    for (name, content) in names.iter().zip(&contents) {
        let attr = put(&world, &client, name, content);
        assert_eq!((attr.size, attr.permissions(), attr.is_inline()), (content.len() as u64, 0o640, true));
        assert_eq!(counted(&world), BTreeMap::from([(Op::Create, 1)]));
    }
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let expected: Vec<Result<Bytes, Status>> = contents.iter().map(|content| Ok(content.clone().into())).collect();
    assert_eq!(read_many(&world, &client, &names), expected);
    assert_eq!(counted(&world), BTreeMap::from([(Op::LookupMany, 1)]));
    // By an open.
    let attr = world.run(client.lookup(&ROOT, ROOT_HANDLE, b"f2")).expect("it is there");
    assert_eq!(attr.allocated_bytes(), 4096);
    world.take_sent();
    assert_eq!(read(&world, &client, attr.handle), contents[2]);
    assert_eq!(counted(&world), BTreeMap::from([(Op::Open, 1), (Op::ReadInline, 1), (Op::Close, 1)]));
    // Another content in its place; who has it open sees one or the other.
    let file = world.run(world.hand.open(&ROOT, attr.handle, Rights::READ, false)).expect("it opens").1;
    let again = put(&world, &client, "f2", b"other");
    assert_eq!((again.handle, again.size), (attr.handle, 5));
    assert!(again.mtime >= attr.mtime && again.version > attr.version);
    let data = world.run(world.hand.read(&file, 1, 100)).expect("it is read");
    assert_eq!(data.iter().map(|data| data.to_bytes()).collect::<Vec<_>>(), [Bytes::from_static(b"ther")]);
    let seek = |offset, what| world.run(world.hand.seek(&file, offset, what)).expect("it answers");
    assert_eq!((seek(2, SeekFor::Data), seek(2, SeekFor::Hole), seek(5, SeekFor::Data)), (Some(2), Some(5), None));
    // Who has it open goes on without its name.
    world.run(client.unlink(&ROOT, ROOT_HANDLE, b"f2")).expect("the name goes");
    let data = world.run(world.hand.read(&file, 0, 100)).expect("it is read");
    assert_eq!(data[0].to_bytes(), Bytes::from_static(b"other"));
    world.run(world.hand.close(file)).expect("it closes");
    assert!(world.run(world.is_gone(attr.handle)), "with its last open");
}

#[test]
fn what_is_too_long_or_off_is_written_as_ever() {
    let world = world("4000");
    let client = world.client(1);
    for (name, bytes) in [("long", 4001), ("longer", 20_000)] {
        let data = content(3, bytes);
        assert!(!put(&world, &client, name, &data).is_inline());
        assert_eq!(read_many(&world, &client, &[name]), [Ok(data.clone().into())]);
        // In place of a content that is out nothing comes in.
        assert!(!put(&world, &client, name, b"short").is_inline());
        assert_eq!(read_many(&world, &client, &[name]), [Ok(Bytes::from_static(b"short"))]);
    }
    world.run(world.hand.set_xattr(&ROOT, ROOT_HANDLE, b"user.weft.inline_limit", b"0", XattrFlags::default())).expect("it is set");
    world.take_sent();
    assert!(!put(&world, &client, "off", b"bytes").is_inline());
    assert!(!put(&world, &client, "off too", b"bytes").is_inline());
    let creates = world.take_sent().into_iter().filter(|(_, op)| *op == Op::Create).count();
    assert_eq!(creates, 2);
    // A mode that the writer himself could not write to.
    let user = Credentials { uid: 7, gid: 7, groups: Vec::new(), checked_by_kernel: false };
    world.run(world.hand.setattr(&ROOT, ROOT_HANDLE, &SetAttr { mode: Some(0o777), ..SetAttr::default() })).expect("a mode");
    for name in [&b"mine"[..], b"mine too"] {
        world.run(client.put(&user, ROOT_HANDLE, name, &of_mode(0o400), &Bytes::from_static(b"x"))).expect("it is put");
        let again = world.run(client.put(&user, ROOT_HANDLE, name, &of_mode(0o400), &Bytes::from_static(b"y")));
        assert_eq!(again.unwrap_err().status, Status::AccessDenied);
    }
}

#[test]
fn whoever_writes_finds_the_bytes_at_data_servers() {
    let world = world("16384");
    let (client, reader) = (world.client(1), world.client(2));
    let data = content(9, 5000);
    let attr = put(&world, &client, "f", &data);
    let (_, open) = world.run(reader.open(&ROOT, attr.handle, Rights::READ, false)).expect("it opens");
    let (opened, file) = world.run(client.open(&ROOT, attr.handle, BOTH, false)).expect("it opens");
    assert_eq!((opened.is_inline(), opened.size, opened.mtime, opened.hole_bytes), (false, 5000, attr.mtime, 0));
    world.run(client.write(&file, 4998, Bulk::Slices(vec![b"and more"]))).expect("it is written");
    let mut expected = data.clone();
    expected.truncate(4998);
    expected.extend(b"and more");
    let seen = world.run(reader.read(&open, 0, u64::MAX)).expect("it is read");
    assert_eq!(Payload::concat(&seen), expected);
    world.run(client.close(file)).expect("it closes");
    world.run(reader.close(open)).expect("it closes");
    assert_eq!(read_many(&world, &reader, &["f"]), [Ok(expected.into())]);
    // Opened and not written: times are as they were.
    let attr = put(&world, &client, "g", &data);
    world.run(world.sleep_until(world.now() + weft_base::SECOND));
    let (_, file) = world.run(client.open(&ROOT, attr.handle, Rights::WRITE, false)).expect("it opens");
    world.run(client.close(file)).expect("it closes");
    assert_eq!(world.run(client.getattr(attr.handle)).expect("it is there").mtime, attr.mtime);
    // Cut by handle, by an open, and by a create.
    for (name, size) in [("h", 100), ("i", 0), ("j", 0)] {
        let handle = put(&world, &client, name, &data).handle;
        match name {
            "h" => drop(world.run(client.setattr(&ROOT, handle, &SetAttr { size: Some(100), ..SetAttr::default() })).expect("it is cut")),
            "i" => drop(world.run(client.open(&ROOT, handle, Rights::WRITE, true)).expect("it is cut")),
            _ => {
                let options = CreateOptions { truncate: true, ..CreateOptions::default() };
                drop(world.run(client.create(&ROOT, ROOT_HANDLE, name.as_bytes(), &options)).expect("it is cut"));
            }
        }
        assert_eq!(read(&world, &reader, handle), data[..size]);
    }
    // Longer than it was: zeros follow.
    let handle = put(&world, &client, "k", b"abc").handle;
    world.run(client.setattr(&ROOT, handle, &SetAttr { size: Some(6), ..SetAttr::default() })).expect("it is extended");
    assert_eq!(read(&world, &reader, handle), b"abc\0\0\0");
}

#[test]
fn data_servers_whose_clocks_are_off_take_the_bytes() {
    for off_s in [-3000, 9, 60, 3000] {
        let skew = |server: ServerId| if server == META0 { 0 } else { off_s * SECOND as i64 };
        let world = limited(World::with_clocks(Durability::Sync, (1, 2), 1 << 20, skew), "16384");
        let (client, reader, data) = (world.client(1), world.client(2), content(9, 5000));
        let handle = put(&world, &client, "f", &data).handle;
        let begun = world.now();
        let (_, file) = world.run(client.open(&ROOT, handle, BOTH, false)).unwrap_or_else(|error| panic!("off by {off_s} s: {error}"));
        assert!(world.now().since(begun) < SECOND, "off by {off_s} s");
        world.run(client.write(&file, 0, Bulk::Slices(vec![b"again"]))).expect("it is written");
        world.run(client.close(file)).expect("it closes");
        assert_eq!(read(&world, &reader, handle), [b"again", &data[5..]].concat());
    }
}

#[test]
fn clients_that_know_no_contents_read_the_same_bytes() {
    let world = world("16384");
    let client = world.client(1);
    let handle = put(&world, &client, "f", b"some bytes").handle;
    let flow = client.flow("test", ROOT_HANDLE);
    let at = weft_wire::ops::DirTarget { dir: ROOT_HANDLE, map_epoch: 0 };
    let names = vec![weft_wire::ops::NamesInDir { at, names: vec![Bytes::from_static(b"f")] }];
    let request = weft_wire::ops::LookupManyRequest { dirs: names, who: ROOT.clone(), contents: None };
    let reply = world.run(client.call(flow, META0, &request)).expect("it answers");
    assert!(matches!(&reply.found[..], [Ok(found)] if found.read.is_none() && found.state.is_none()), "it is opened: {reply:?}");
    let open = |open_sequence, inline| weft_wire::ops::OpenRequest {
        inline,
        ..weft_wire::ops::OpenRequest::of(handle, Rights::READ, open_sequence, ROOT.clone())
    };
    let reply = world.run(client.call(client.flow("test", handle), META0, &open(1, None))).expect("it opens");
    assert!(!reply.state.attr.is_inline(), "its bytes are where such a client looks for them");
    assert_eq!(read(&world, &client, handle), b"some bytes");
}

/// Several segments of the journal have contents, in blocks that had others before.
#[test]
fn contents_survive_the_server() {
    let world = world("16384");
    let client = world.client(1);
    let of_round = |round: u64| (0..40).map(|number| content(number + round, 400 * ((number * 7 + round * 13) % 40) as usize)).collect();
    let names: Vec<String> = (0..40).map(|number| format!("f{number}")).collect();
    let mut contents: Vec<Vec<u8>> = Vec::new();
    for round in 0..5 {
        contents = of_round(round);
        for (name, content) in names.iter().zip(&contents) {
            put(&world, &client, name, content);
        }
        // What was freed may be used again.
        world.run(world.sleep_until(world.now() + SECOND));
    }
    let handle = put(&world, &client, "out", b"bytes").handle;
    let (_, file) = world.run(client.open(&ROOT, handle, Rights::WRITE, false)).expect("it opens");
    world.run(client.close(file)).expect("it closes");
    let names: Vec<&str> = names.iter().map(String::as_str).chain(["out"]).collect();
    let mut expected: Vec<Result<Bytes, Status>> = contents.into_iter().map(|content| Ok(content.into())).collect();
    expected.push(Ok(Bytes::from_static(b"bytes")));
    for _ in 0..2 {
        assert_eq!(read_many(&world, &client, &names), expected);
        world.restart(META0);
        world.grace_is_over();
    }
    assert_eq!(read_many(&world, &client, &names), expected);
}

/// The server of a file does not take what was kept of it, since its disk is full by then: it goes
/// to data servers, also of a file that is open again.
#[test]
fn what_a_close_does_not_get_rid_of_goes_to_data_servers() {
    for is_read in [false, true] {
        let world = world_under(Durability::Batch, "16384");
        let client = world.client(1);
        client.keep_leases(true);
        put(&world, &client, "first", b"the container is made");
        // From the second time on what is delayed can be asked back.
        (0..2).for_each(|_| assert!(world.run(client.hear_notices(META0, |_, _| {}))));
        let options = CreateOptions { delays: DelayWrites::Small, ..of_mode(0o644) };
        let (_, file, _) = world.run(client.create(&ROOT, ROOT_HANDLE, b"kept", &options)).expect("a new file");
        let (handle, written) = (file.handle(), content(1, 3000));
        world.run(client.write(&file, 0, Bulk::Slices(vec![&written]))).expect("it stays here");
        let reader = is_read.then(|| world.run(client.open(&ROOT, handle, Rights::READ, false)).expect("it opens").1);
        world.take_sent();
        world.fates(|sent| if sent.request.op() == Op::CloseMany { Fate::Answered(Err(Status::NoSpace)) } else { Fate::Arrives });
        let closed = world.run(client.close_many(&[file])).remove(0);
        world.no_faults();
        assert_eq!(closed.map_err(|error| error.status), Ok(()), "read: {is_read}");
        assert_eq!(counted(&world).get(&Op::Write), Some(&1));
        if let Some(reader) = reader {
            world.run(client.close(reader)).expect("it closes");
        }
        assert_eq!((client.files_left(), client.closes_left()), (0, 0));
        assert_eq!(read(&world, &world.hand, handle), written);
    }
}
