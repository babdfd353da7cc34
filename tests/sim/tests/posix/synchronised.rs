//! What `rsync` does with a tree: it makes all directories first, and then each file under another
//! name, sets its times and mode when it has closed it, and renames it.

use weft_base::{MILLISECOND, WallTime};
use weft_client::SetAttr;
use weft_rt::Runtime;
use weft_sim_tests::mount::caller;
use weft_wire::ops::SetTime;

use super::content;
use super::delayed::{closed_in, world};
use super::delegated::made_dir;

const DIRECTORIES: u32 = 300;
const FILES: u32 = 200;

#[test]
fn a_file_that_is_renamed_in_its_first_moments_costs_a_share_of_a_message() {
    let world = world();
    let (dirs, requests, ticks) = world.alone(0, |mount| async move {
        let (top, who, rt) = (made_dir(&mount, false).await, caller(1, 0).who, mount.posix.rt().clone());
        let mut dirs = Vec::new();
        for number in 0..DIRECTORIES {
            let name = format!("d{number}");
            let made = mount.posix.mkdir(&who, top, name.as_bytes(), 0o755).await.expect("a new directory").node;
            // Those of the other server are made by asking.
            if made.handle().server() == top.handle().server() {
                dirs.push(made);
            }
        }
        rt.sleep_until(rt.now() + 20 * MILLISECOND).await;
        let (before, begun) = (mount.posix.stats().requests, rt.now());
        for number in 0..FILES {
            let (dir, name, temporary) = (dirs[number as usize % dirs.len()], format!("f{number}"), format!(".f{number}.x"));
            closed_in(&mount, dir, &temporary, &content(number % 4)).await;
            rt.sleep_until(rt.now() + MILLISECOND / 2).await;
            let node = mount.walk(&caller(1, 0), dir, &temporary, false).await.expect("it is there");
            let times = SetAttr { mtime: Some(SetTime { at: Some(WallTime(7)) }), ..SetAttr::default() };
            for change in [times, SetAttr { mode: Some(0o640), ..SetAttr::default() }] {
                mount.posix.setattr(&who, node, &change).await.expect("it is set");
            }
            rt.sleep_until(rt.now() + MILLISECOND / 2).await;
            mount.rename(&caller(1, 0), dir, &temporary, &name).await.expect("it is there");
        }
        let ticks = rt.now().since(begun) / (3 * MILLISECOND);
        (dirs, mount.posix.stats().requests - before, ticks)
    });
    assert!(dirs.len() > 100 && requests <= 3 * ticks, "{requests} requests for {FILES} files within {ticks} times 3 ms");
    world.alone(1, move |mount| async move {
        for number in 0..FILES {
            let node =
                mount.walk(&caller(2, 0), dirs[number as usize % dirs.len()], &format!("f{number}"), true).await.expect("it is there");
            let attr = mount.stat(node).await.expect("it is there");
            assert_eq!((attr.permissions(), attr.mtime), (0o640, WallTime(7)));
        }
    });
}
