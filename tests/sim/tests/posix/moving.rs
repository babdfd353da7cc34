//! A file that gets one name after the other, and mounts that may believe under leases what they
//! were told.

use std::rc::Rc;

use weft_base::Status;
use weft_sim_tests::mount::{Mount, caller};

use super::{ROOT, ROUNDS, Shared, pause};

/// Gives a file one name after the other, and with each another mode.
pub async fn move_on(mount: Mount, shared: Rc<Shared>) {
    let who = caller(2, 0);
    let file = mount.create(&who, ROOT, "moved0", 0o600).await.expect("a new file");
    mount.release(file.opened.number).await;
    for number in 1..=4 * ROUNDS {
        mount.rename(&who, ROOT, &format!("moved{}", number - 1), &format!("moved{number}")).await.expect("it is moved");
        shared.moved.set(number);
        mount.chmod(&who, file.node, number).await.expect("it gets a mode");
        shared.mode.set(number);
        pause(&mount).await;
    }
}

/// Under leases nobody believes a name, or a mode, that is not true any more.
pub async fn follow(mount: Mount, thread: u32, shared: Rc<Shared>) {
    let who = caller(thread, 0);
    for _ in 0..8 * ROUNDS {
        let (number, mode) = (shared.moved.get(), shared.mode.get());
        if number > 0 {
            let old = mount.walk(&who, ROOT, &format!("moved{}", number - 1), false).await;
            assert!(old.is_err(), "the name before the {number}th is believed");
        }
        match mount.walk(&who, ROOT, &format!("moved{number}"), false).await {
            Ok(node) => {
                let attr = mount.stat(node).await.expect("it is there");
                assert!(attr.mode & 0o777 >= mode, "mode {:o} after {mode:o}", attr.mode);
            }
            // It is being moved on.
            Err(error) => assert_eq!(error.status, Status::NotFound, "{error}"),
        }
        pause(&mount).await;
    }
}
