//! Which space a file with holes takes, to the mount that fills one of them.

use weft_base::SECOND;
use weft_rt::Runtime;
use weft_sim_tests::mount::{caller, how};
use weft_wire::Rights;

use super::{ROOT, UPDATE, World};

/// What a mount was told under a lease, before it opened the file, says nothing of what it has
/// written since.
#[test]
fn a_mount_that_fills_a_hole_sees_it() {
    let world = World::new(3, None);
    world.alone(0, |mount| async move {
        let (who, posix) = (caller(1, 0), mount.posix.clone());
        let file = mount.create(&who, ROOT, "file", 0o644).await.expect("a new file");
        mount.write(&who, file, 1 << 20, b"end", false).await.expect("it is written");
        mount.release(file.opened.number).await;
        posix.rt().sleep_until(posix.rt().now() + SECOND).await;
        let allocated = async || posix.getattr(file.node).await.expect("it is there").attr.allocated_bytes();
        let requests = posix.stats().requests;
        assert_eq!((allocated().await, allocated().await), (4096, 4096));
        assert!(posix.stats().requests <= requests + 1, "it is believed");
        let again = mount.open(&who, ROOT, "file", how(UPDATE)).await.expect("it opens");
        mount.write(&who, again, 0, &[1; 8192], false).await.expect("it is written");
        assert_eq!(allocated().await, 3 * 4096, "while it is open");
        mount.release(again.opened.number).await;
        assert_eq!(allocated().await, 3 * 4096, "before it is closed at its server");
        posix.rt().sleep_until(posix.rt().now() + SECOND).await;
        assert_eq!(allocated().await, 3 * 4096);
        let read = mount.open(&who, ROOT, "file", how(Rights::READ)).await.expect("it opens");
        assert_eq!(allocated().await, 3 * 4096);
        mount.release(read.opened.number).await;
    });
}
