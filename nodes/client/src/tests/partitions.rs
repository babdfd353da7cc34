//! Directories whose names are spread over servers, which no server does yet: two of them, as far
//! as lookups and listings go, are played here with the maps that a test gives them.

use std::cell::RefCell;
use std::rc::Rc;

use bytes::Bytes;
use weft_base::{FileKind, ROOT_HANDLE, ServerId, Status};
use weft_wire::ops::{DirEntry, FileState, LookupReply, Op, Partition, PartitionMap, ReadDirReply};
use weft_wire::{Request, Wire};

use super::world::{Fate, META0, META1, ROOT, Sent, World};

/// A name and its hash.
type Name = (String, u64);

fn map(epoch: u32, ranges: &[(u64, ServerId)]) -> PartitionMap {
    PartitionMap::new(epoch, ranges.iter().map(|(first, server)| Partition { first: *first, server: *server }).collect()).unwrap()
}

/// What a server says of names in the root directory if this is its map. All lead to one file.
fn answer(sent: &Sent, map: &PartitionMap, names: &[Name], root: &FileState, file: &FileState) -> Fate {
    let handle = file.attr.handle;
    let refused = |hash| (map.server(hash) != sent.server).then_some(Status::StaleMap);
    let says = |reply: &dyn Fn() -> Bytes, hash| Fate::Answered(refused(hash).map_or_else(|| Ok(reply()), Err));
    match &sent.request {
        Request::GetAttr(request) if request.handle == ROOT_HANDLE => {
            Fate::Answered(Ok(FileState { partitions: Some(map.clone()), ..root.clone() }.to_bytes()))
        }
        Request::Lookup(request) => {
            let (_, hash) = names.iter().find(|(name, _)| name.as_bytes() == request.name).expect("tests ask for what there is");
            says(&|| LookupReply { handle, kind: FileKind::File, state: Some(file.clone()) }.to_bytes(), *hash)
        }
        Request::ReadDir(request) => {
            let last = map.last_of_range(request.cookie + 1);
            let here = names.iter().filter(|(_, hash)| *hash > request.cookie && *hash <= last);
            let entry = |(name, hash): &Name| DirEntry {
                name: Bytes::from(name.clone()),
                handle,
                kind: FileKind::File,
                cookie: *hash,
                state: None,
            };
            let mut entries: Vec<DirEntry> = here.map(entry).collect();
            entries.sort_by_key(|entry| entry.cookie);
            let page = request.bytes_max as usize / 100;
            let until = if entries.len() <= page { last } else { entries[page - 1].cookie };
            entries.truncate(page);
            says(&|| ReadDirReply { entries: entries.clone(), until, parent: ROOT_HANDLE }.to_bytes(), request.cookie + 1)
        }
        _ => Fate::Arrives,
    }
}

#[test]
fn a_server_corrects_a_client_that_has_an_old_partition_map() {
    let world = World::new(2, 1, 1 << 20);
    let client = world.client(1);
    let file = world.add(ROOT_HANDLE, "x", 0, FileKind::File, "");
    let (root, file) = world.run(async { (world.state(ROOT_HANDLE).await.expect("always"), world.state(file).await.expect("just made")) });
    let key = world.run(world.hand.name_key(world.hand.flow("ask", ROOT_HANDLE), META0)).expect("the server answers");
    let names: Vec<Name> =
        (0..40).map(|i| format!("n{i}")).chain(["x".into()]).map(|name| (name.clone(), key.hash(name.as_bytes()))).collect();
    let now = Rc::new(RefCell::new(map(2, &[(0, META1)])));
    let (servers, played) = (now.clone(), names.clone());
    world.fates(move |sent| answer(sent, &servers.borrow(), &played, &root, &file));

    world.run(client.lookup(&ROOT, ROOT_HANDLE, b"x")).expect("found where the map says");
    assert_eq!(world.take_sent(), [(META0, Op::Lookup), (META0, Op::GetAttr), (META1, Op::Lookup)]);
    world.run(client.lookup(&ROOT, ROOT_HANDLE, b"x")).expect("found at once");
    assert_eq!(world.take_sent(), [(META1, Op::Lookup)]);

    // The directory is split: half of the names of one server, a quarter of the other, in turns.
    let ranges = [(0, META1), (1 << 61, META0), (1 << 62, META1), (3 << 61, META0)];
    *now.borrow_mut() = map(3, &ranges);
    for (name, _) in &names {
        world.run(client.lookup(&ROOT, ROOT_HANDLE, name.as_bytes())).expect("found where the map says");
    }
    assert_eq!(world.take_sent().iter().filter(|sent| **sent == (META0, Op::GetAttr)).count(), 1, "one refusal, and the map is known");
    for (name, _) in &names {
        world.run(client.lookup(&ROOT, ROOT_HANDLE, name.as_bytes())).expect("found at once");
    }
    let expected = names.iter().map(|(_, hash)| (map(3, &ranges).server(*hash), Op::Lookup));
    assert_eq!(world.take_sent(), expected.collect::<Vec<_>>());

    let (mut listed, mut cookie) = (Vec::new(), 0);
    loop {
        let page = world.run(client.readdir(&ROOT, ROOT_HANDLE, cookie, 300, false)).expect("a page");
        assert!(page.end || !page.entries.is_empty(), "an empty range is not the end, and no page is empty for it");
        listed.extend(page.entries.iter().map(|entry| String::from_utf8(entry.name.to_vec()).unwrap()));
        match page.entries.last() {
            Some(last) if !page.end => cookie = last.cookie,
            _ => break,
        }
    }
    let mut in_order = names;
    in_order.sort_by_key(|(_, hash)| *hash);
    assert_eq!(
        listed,
        in_order.into_iter().map(|(name, _)| name).collect::<Vec<_>>(),
        "ranges follow each other in the order of a listing"
    );
}
