//! What is said of objects that are gone.

use weft_base::Credentials;
use weft_client::Client;
use weft_rt_sim::SimRt;

use super::world::{Fh, Outcome, User, World, mode};
use crate::types::NfsStatus;

const STALE: u32 = NfsStatus::STALE.0;

/// Every procedure that is about a name in this directory, with what it answers; `other` is a
/// directory and `file` a file in it that are there.
fn by_name(user: &User<'_>, dir: &Fh, other: &Fh, file: &Fh) -> Vec<(&'static str, Outcome<()>)> {
    let sattr = |procedure: u32, and: &[u8]| {
        user.make(procedure, |out| {
            out.opaque(dir).opaque(b"name");
            if procedure == 11 {
                out.u32(7);
            }
            mode(out, 0o755);
            if and.is_empty() { out } else { out.opaque(and) }
        })
        .map(drop)
    };
    vec![
        ("LOOKUP", user.lookup(dir, "name").map(drop)),
        ("LOOKUP of .", user.lookup(dir, ".").map(drop)),
        ("LOOKUP of ..", user.lookup(dir, "..").map(drop)),
        ("CREATE", user.create(dir, "name", 0, 0o600).map(drop)),
        ("CREATE of a new file", user.create(dir, "name", 1, 0o600).map(drop)),
        ("an exclusive CREATE", user.create_exclusive(dir, "name", *b"verifier").map(drop)),
        ("MKDIR", sattr(9, b"")),
        ("SYMLINK", sattr(10, b"target")),
        ("MKNOD", sattr(11, b"")),
        ("REMOVE", user.remove(dir, "name")),
        ("RMDIR", user.rmdir(dir, "name")),
        ("RENAME out of it", user.rename((dir, "name"), (other, "name"))),
        ("RENAME into it", user.rename((other, "file"), (dir, "name"))),
        ("LINK", user.nfs(15, |out| out.opaque(file).opaque(dir).opaque(b"name")).map(drop)),
        ("READDIR", user.list(dir, 4000, false).map(drop)),
        ("READDIRPLUS", user.list(dir, 4000, true).map(drop)),
    ]
}

#[test]
fn a_directory_that_is_gone_is_stale_for_every_procedure() {
    let world = World::new(2, 2);
    let (here, there) = (world.gateway(&["/:no_root_squash"]), world.gateway(&["/:no_root_squash"]));
    let (root, elsewhere) = (world.user(&here, 0), world.user(&there, 0));
    let top = root.mount("/").unwrap();
    root.chmod(&top, 0o777).unwrap();
    let file = root.create(&top, "file", 1, 0o666).unwrap();
    let client: Client<SimRt> = world.client();
    // Removed through this gateway, through another one, and by a client of the file system.
    for how in 0..3 {
        for uid in [0, 5] {
            let user = User { uid, ..root.clone() };
            let dir = user.mkdir(&top, "dir", 0o700).unwrap();
            assert_eq!(user.lookup(&dir, "name"), Err(2), "as long as it is there");
            match how {
                0 => root.rmdir(&top, "dir").unwrap(),
                1 => elsewhere.rmdir(&top, "dir").unwrap(),
                _ => {
                    let client = client.clone();
                    world.run(async move { client.rmdir(&Credentials::ROOT, weft_base::ROOT_HANDLE, b"dir").await.unwrap() });
                }
            }
            for (what, told) in by_name(&user, &dir, &top, &file) {
                assert_eq!(told, Err(STALE), "{what} of user {uid}, removed in way {how}");
            }
        }
    }
    // What is there goes by its own errors.
    let user = User { uid: 5, ..root };
    for (what, told) in by_name(&user, &file, &top, &file) {
        assert!(told.is_err_and(|status| status != STALE), "{what} in a file");
    }
}

#[test]
fn a_file_that_is_gone_gets_no_name() {
    let world = World::new(2, 2);
    let gate = world.gateway(&["/:no_root_squash"]);
    let user = world.user(&gate, 0);
    let top = user.mount("/").unwrap();
    let file = user.create(&top, "file", 1, 0o600).unwrap();
    // It is still open behind the gateway.
    user.write(&file, 0, b"data", 0).unwrap();
    user.remove(&top, "file").unwrap();
    assert_eq!(user.nfs(15, |out| out.opaque(&file).opaque(&top).opaque(b"name")).map(drop), Err(STALE));
}
