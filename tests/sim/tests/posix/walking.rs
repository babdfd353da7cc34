//! Opens that walk their path for the second time while a server starts anew.

use weft_base::{SECOND, Status};
use weft_rt::Runtime;
use weft_rt_sim::Fault;
use weft_sim_tests::mount::{Mount, caller, how};
use weft_wire::Rights;

use super::delayed::{closed_in, rest};
use super::{ROOT, UPDATE, World, content};

/// How long the server is away: longer than anybody remembers that a thread walks again.
const AWAY_NS: u64 = 12 * SECOND;

/// Puts another file in the place of the one with this name.
async fn replaces(mount: &Mount, name: &str) {
    closed_in(mount, ROOT, "new", &content(2)).await;
    mount.rename(&caller(2, 0), ROOT, "new", name).await.expect("it is replaced");
}

/// A thread is told to walk again, and the server of the name is away meanwhile: it opens what it
/// finds then, although the file is replaced once more before the open.
#[test]
fn a_second_walk_may_take_as_long_as_a_server_is_away() {
    for (round, rights) in [Rights::READ, UPDATE].into_iter().enumerate() {
        let world = World::new(900 + round as u64, None);
        world.alone(1, |mount| async move { closed_in(&mount, ROOT, "f", &content(1)).await });
        let again = world.alone(0, move |mount| async move {
            // The kernel believes that there is no such file.
            let created = mount.posix.create(&caller(7, 0), ROOT, b"f", 0o644, how(rights)).await;
            created.map(drop).map_err(|error| error.status)
        });
        assert_eq!(again, Err(Status::Stale));
        let server = world.cluster.servers()[0];
        world.sim.strike(&Fault::Crash { node: server, down_ns: AWAY_NS });
        let node = world.alone(0, |mount| async move {
            let begun = mount.posix.rt().now();
            let node = mount.walk(&caller(7, 0), ROOT, "f", true).await.expect("it is there");
            assert!(mount.posix.rt().now().since(begun) > AWAY_NS / 2, "the server was away");
            node
        });
        world.alone(1, |mount| async move { replaces(&mount, "f").await });
        let opened = world.alone(0, move |mount| async move {
            let opened = mount.posix.open(&caller(7, 0), node, how(rights)).await.map(|opened| opened.number);
            if let Ok(number) = opened {
                mount.release(number).await;
            }
            opened.map(drop).map_err(|error| error.status)
        });
        assert_eq!(opened, Ok(()), "{rights:?}");
        world.alone(0, |mount| async move { rest(&mount, 20 * SECOND).await });
    }
}
