//! The free space that is told: so much can be written.

use weft_base::{MILLISECOND, SECOND, Status};
use weft_rt::Runtime;
use weft_sim_tests::mount::{Mount, caller};

use super::{ROOT, World};

const PIECE: u64 = 64 << 10;

/// Writes new files until there is no space, or these bytes are written. Returns how many were.
async fn fill(mount: &Mount, name: &str, bytes_max: u64) -> u64 {
    let who = caller(1, 0);
    let file = mount.create(&who, ROOT, name, 0o644).await.expect("a new file");
    let mut written = 0;
    while written < bytes_max {
        match mount.write(&who, file, written, &[1; PIECE as usize], false).await {
            Ok(()) => written += PIECE,
            Err(error) if error.status == Status::NoSpace => break,
            Err(error) => panic!("{error}"),
        }
    }
    mount.release(file.opened.number).await;
    written
}

/// Something else takes what files have given up.
#[test]
fn what_is_free_can_be_written() {
    let world = World::new(5, None);
    let servers = world.cluster.servers().to_vec();
    world.alone(0, |mount| async move {
        for name in ["one", "two", "three", "four"] {
            assert_eq!(fill(&mount, name, 8 << 20).await, 8 << 20);
        }
    });
    servers.iter().for_each(|node| world.sim.fill_disk(*node, 3600 * SECOND));
    world.alone(0, |mount| async move {
        let rt = mount.posix.rt().clone();
        // Refused at last, and after that what is removed is given back to the disk.
        fill(&mount, "five", u64::MAX).await;
        for name in ["one", "three", "five"] {
            mount.posix.unlink(&caller(1, 0).who, ROOT, name.as_bytes()).await.expect("it is removed");
        }
        rt.sleep_until(rt.now() + 60 * SECOND).await;
        let free_bytes = mount.statfs().await.expect("all answer").free_bytes;
        let written = fill(&mount, "six", u64::MAX).await;
        assert!(free_bytes <= written + (1 << 20), "{free_bytes} bytes are free, {written} can be written");
    });
    world.sim.heal();
    world.alone(0, |mount| async move {
        mount.posix.rt().sleep_until(mount.posix.rt().now() + 500 * MILLISECOND).await;
        assert!(mount.statfs().await.expect("all answer").free_bytes > 64 << 20, "there is room again");
        assert_eq!(fill(&mount, "seven", 32 << 20).await, 32 << 20);
    });
}
