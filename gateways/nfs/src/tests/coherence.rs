//! What gateways and mounts see of each other, and what that costs.

use weft_base::{Credentials, ROOT_HANDLE, SECOND};
use weft_client::{CreateOptions, SetAttr};
use weft_rt::Bulk;

use super::world::World;
use crate::types::NfsStatus;

const ROOT: Credentials = Credentials::ROOT;

#[test]
fn gateways_and_clients_see_each_other_at_once() {
    let world = World::new(2, 3);
    let (one, two) = (world.gateway(&["/:no_root_squash"]), world.gateway(&["/:no_root_squash"]));
    let (a, b) = (world.user(&one, 0), world.user(&two, 0));
    let root = a.mount("/").unwrap();
    assert_eq!(b.mount("/").unwrap(), root);
    for round in 0..10 {
        let (a, b) = if round % 2 == 0 { (&a, &b) } else { (&b, &a) };
        let name = format!("file{round}");
        assert_eq!(b.lookup(&root, &name), Err(2));
        let file = a.create(&root, &name, 1, 0o644).unwrap();
        assert_eq!(b.lookup(&root, &name), Ok(file.clone()));
        a.write(&file, 0, &vec![round; 10_000], 0).unwrap();
        assert_eq!(b.getattr(&file).unwrap().size, 10_000);
        assert_eq!(b.read(&file, 9_999, 5).unwrap(), (vec![round].into(), true));
        b.write(&file, 10_000, b"more", 0).unwrap();
        assert_eq!(a.getattr(&file).unwrap().size, 10_004);
        assert_eq!(a.read(&file, 9_999, 5).unwrap().0[1..], b"more"[..]);
        a.chmod(&file, 0o600).unwrap();
        assert_eq!(b.getattr(&file).unwrap().mode, 0o600);
        b.rename((&root, &name), (&root, "moved")).unwrap();
        assert_eq!((a.lookup(&root, &name), a.lookup(&root, "moved")), (Err(2), Ok(file.clone())));
        a.remove(&root, "moved").unwrap();
        assert_eq!(b.getattr(&file), Err(NfsStatus::STALE.0));
        assert_eq!(b.read(&file, 0, 5), Err(NfsStatus::STALE.0));
    }
}

#[test]
fn what_a_client_of_weft_changes_is_true_at_a_gateway() {
    let world = World::new(1, 2);
    let gate = world.gateway(&["/:no_root_squash"]);
    let user = world.user(&gate, 0);
    let root = user.mount("/").unwrap();
    let file = user.create(&root, "file", 1, 0o644).unwrap();
    user.write(&file, 0, b"before", 0).unwrap();
    let before = user.getattr(&root).unwrap();
    let client = world.client();
    world.run(async move {
        let (attr, open, _) = client.create(&ROOT, ROOT_HANDLE, b"file", &CreateOptions::default()).await.unwrap();
        assert_eq!(attr.size, 6, "what was written through the gateway");
        client.write(&open, 0, Bulk::Slices(vec![b"afterwards"])).await.unwrap();
        client.close(open).await.unwrap();
        client.setattr(&ROOT, attr.handle, &SetAttr { mode: Some(0o400), ..SetAttr::default() }).await.unwrap();
        client.mkdir(&ROOT, ROOT_HANDLE, b"made elsewhere", 0o755).await.unwrap();
    });
    assert_eq!(user.read(&file, 0, 100).unwrap(), ("afterwards".into(), true));
    assert_eq!((user.getattr(&file).unwrap().mode, user.getattr(&file).unwrap().size), (0o400, 10));
    assert!(user.lookup(&root, "made elsewhere").is_ok());
    assert!(user.getattr(&root).unwrap().ctime > before.ctime);
}

#[test]
fn calls_cost_as_few_messages_as_they_can() {
    let world = World::new(1, 2);
    let gate = world.gateway(&["/:no_root_squash"]);
    let user = world.user(&gate, 0);
    let root = user.mount("/").unwrap();
    let cost = |what: &str, max: u64, call: &dyn Fn()| {
        let before = user.messages();
        call();
        let cost = user.messages() - before;
        assert!(cost <= max, "{what}: {cost} messages, and {max} were enough");
    };
    world.pass(SECOND);
    user.getattr(&root).unwrap();
    cost("an attribute under a lease", 0, &|| assert!(user.getattr(&root).is_ok()));
    let file = user.create(&root, "file", 1, 0o644).unwrap();
    cost("a create", 1, &|| assert!(user.create(&root, "second", 1, 0o644).is_ok()));
    let exclusive = || user.create_exclusive(&root, "third", *b"verifier");
    cost("an exclusive create", 1, &|| assert!(exclusive().is_ok()));
    cost("a lookup", 1, &|| assert!(user.lookup(&root, "file").is_ok()));
    user.write(&file, 0, &[1; 4096], 0).unwrap();
    cost("a write to a file that is open", 1, &|| assert!(user.write(&file, 0, &[2; 4096], 0).is_ok()));
    cost("a write that makes it longer", 1, &|| assert!(user.write(&file, 4096, &[2; 4096], 0).is_ok()));
    user.read(&file, 0, 100).unwrap();
    cost("a read of a file that is open", 1, &|| assert!(user.read(&file, 0, 100).is_ok()));
    cost("its attributes", 0, &|| assert!(user.getattr(&file).is_ok()));
}

#[test]
fn files_that_nobody_uses_are_closed() {
    let world = World::new(1, 2);
    let gate = world.gateway(&["/:no_root_squash"]);
    let user = world.user(&gate, 0);
    let root = user.mount("/").unwrap();
    let file = user.create(&root, "file", 1, 0o644).unwrap();
    user.write(&file, 0, &[1; 10], 0).unwrap();
    let handle = user.getattr(&file).unwrap().number;
    let stat = || {
        let client = world.client();
        world.run(async move {
            let before = client.stats().requests;
            let size = client.getattr(weft_base::Handle(handle)).await.unwrap().size;
            (size, client.stats().requests - before)
        })
    };
    assert!(stat().1 > 1, "the data servers are asked while somebody writes");
    world.pass(3 * SECOND);
    assert_eq!(stat(), (10, 1), "the file is closed, and its size with it");
    user.write(&file, 10, &[1; 10], 0).unwrap();
    user.commit(&file).unwrap();
    world.pass(SECOND);
    assert_eq!(stat(), (20, 1), "a commit is the last of a client");
}
