//! Directories that are spread over metadata servers while mounts know them.

use weft_base::{Credentials, SECOND};
use weft_posix::InodeNumber;
use weft_rt::Runtime;
use weft_sim_tests::mount::Mount;

use super::{ROOT, World, caller};

/// Names that one mount makes in a directory before it is spread.
const OTHERS: u32 = 8;

async fn mkdir(mount: &Mount, dir: InodeNumber, name: String) -> InodeNumber {
    mount.posix.mkdir(&caller(1, 0).who, dir, name.as_bytes(), 0o755).await.expect("a new directory").node
}

/// What a mount knew of a directory that it had made does not go on to be true by what servers tell
/// that hold some of the names: each counts the changes by itself.
#[test]
fn what_was_known_of_a_directory_ends_when_it_is_spread() {
    let world = World::new(1, None);
    // Whose server does not tell who has made them of changes: it was not asked under a lease.
    let dirs = world.alone(0, |mount| async move {
        let mut dirs = Vec::new();
        while dirs.len() < 8 {
            let made = mkdir(&mount, ROOT, format!("dir{}", mount.posix.rt().random())).await;
            if made.handle().server() != ROOT.handle().server() {
                dirs.push(made);
            }
        }
        dirs
    });
    let theirs = dirs.clone();
    world.alone(1, |mount| async move {
        for dir in theirs {
            for other in 0..OTHERS {
                mkdir(&mount, dir, format!("other{other}")).await;
            }
        }
    });
    let ((node, client), all) = (world.cluster.add_client("spreads", 60 * SECOND), dirs.clone());
    world.run(vec![world.sim.spawn_on(node, move |_| async move {
        for dir in all {
            client.split_directory(&Credentials::ROOT, dir.handle(), 2).await.expect("it is there");
        }
    })]);
    world.sim.run_for(SECOND);
    world.alone(0, |mount| async move {
        for dir in dirs {
            for own in 1..=4 {
                mkdir(&mount, dir, format!("own{own}")).await;
                for other in 0..OTHERS {
                    mount.walk(&caller(1, 0), dir, &format!("other{other}"), true).await.expect("it is there");
                }
                let attr = mount.posix.getattr(dir).await.expect("it is there").attr;
                assert_eq!((attr.size, attr.nlink), (u64::from(OTHERS + own), 2 + OTHERS + own));
            }
        }
    });
}
