//! Changes of which a client hears late, or twice.

use weft_base::{SECOND, ServerId};
use weft_rt::Runtime;

use super::world::{Fh, World, args, mode};
use crate::calls::NFS_PROGRAM;
use crate::types::NfsStatus;

/// Longer than a call waits for a server that it only asks.
const SILENCE: u64 = 100 * SECOND;
const LATER: u32 = NfsStatus::LATER.0;
const META: ServerId = ServerId(0);

#[test]
fn a_change_is_told_of_as_it_was_made_however_long_its_server_was_silent() {
    let world = World::new(2, 2);
    let gate = world.gateway_that_warns(&["/:no_root_squash"], Box::new(|_| {}));
    let user = world.user(&gate, 0);
    let root = user.mount("/").unwrap();
    // The server stops before it has the call, while it carries it out, and behind it. A client
    // that is told to ask again must not find that the change was made.
    for (steps, server) in (0..8).flat_map(|steps| [(steps, ServerId(0)), (steps, ServerId(1))]) {
        let silent = |what: &str, change: &dyn Fn() -> Result<Option<Fh>, u32>| {
            world.pass(SECOND);
            world.pause(server, steps, SILENCE);
            let mut told = change();
            while told == Err(LATER) {
                told = change();
            }
            // It may not have made so many steps yet.
            world.pass(10 * SECOND);
            world.go_on();
            told.unwrap_or_else(|status| panic!("{what}: {status}, {steps} steps before {server} is silent"))
        };
        silent("MKDIR", &|| user.mkdir(&root, "dir", 0o755).map(Some));
        silent("CREATE", &|| user.create(&root, "file", 1, 0o600).map(Some));
        let made = silent("an exclusive CREATE", &|| user.create_exclusive(&root, "once", *b"verifier").map(Some));
        assert_eq!(Some(user.create_exclusive(&root, "once", *b"verifier").unwrap()), made, "its verifier is kept");
        let file = user.lookup(&root, "file").unwrap();
        silent("LINK", &|| user.nfs(15, |out| out.opaque(&file).opaque(&root).opaque(b"second")).map(|_| None));
        silent("SYMLINK", &|| {
            user.make(10, |out| {
                out.opaque(&root).opaque(b"symlink");
                mode(out, 0o777);
                out.opaque(b"target")
            })
            .map(Some)
        });
        silent("RENAME", &|| user.rename((&root, "file"), (&root, "moved")).map(|()| None));
        silent("SETATTR", &|| user.chmod(&file, 0o640).map(|()| None));
        for name in ["moved", "second", "symlink", "once"] {
            silent("REMOVE", &|| user.remove(&root, name).map(|()| None));
        }
        silent("RMDIR", &|| user.rmdir(&root, "dir").map(|()| None));
    }
}

#[test]
fn a_call_that_is_repeated_meanwhile_waits_for_its_answer() {
    let world = World::new(1, 2);
    let gate = world.gateway_that_warns(&["/:no_root_squash"], Box::new(|_| {}));
    let user = world.user(&gate, 0);
    let root = user.mount("/").unwrap();
    user.create(&root, "file", 1, 0o600).unwrap();
    let record = user.record(9000, NFS_PROGRAM, 12, &args(|out| out.opaque(&root).opaque(b"file")));
    let send_at = |seconds: u64| {
        let (nfs, from, record) = (gate.nfs.clone(), user.peer(), record.clone());
        async move {
            let rt = nfs.posix.rt().clone();
            rt.sleep_until(rt.now() + seconds * SECOND).await;
            nfs.answer(from, record).await
        }
    };
    world.pause(META, 0, SILENCE);
    let calls = [send_at(0), send_at(5), send_at(10)];
    let answers = world.run(weft_rt::join_all(calls));
    assert_eq!(answers[0].as_ref().expect("the first call is answered").head[24..28], [0; 4]);
    assert_eq!(answers[1], None, "the client asks again: one call waits for it");
    assert_eq!(answers[2], answers[0], "it is done once, and the last one to ask hears it as well");
    assert_eq!(user.lookup(&root, "file"), Err(2));
    assert_eq!(user.send(record), answers[0]);
}
