//! Users with a limit of bytes. A client has closed a file when its gateway still has it open, and
//! what is open for writing holds room.

use weft_wire::ops::QuotaId;

use super::world::World;
use crate::types::NfsStatus;

const USER: u32 = 7;
const FILES: u64 = 256;

#[test]
fn who_closes_his_files_writes_up_to_his_limit() {
    let world = World::new(2, 2);
    let gate = world.gateway(&["/:no_root_squash"]);
    let (root, user) = (world.user(&gate, 0), world.user(&gate, USER));
    let client = world.client();
    world.run(async move { client.limit_bytes(QuotaId::user(USER), Some(FILES * 4096)).await }).expect("it is set");
    let top = root.mount("/").unwrap();
    let dirs: Vec<_> = (0..4).map(|number| root.mkdir(&top, &format!("dir {number}"), 0o777).unwrap()).collect();
    let files = (0..=FILES).map(|number| user.create(&dirs[number as usize % 4], &number.to_string(), 1, 0o600).unwrap());
    let written = files.map(|file| user.write(&file, 0, &[1; 4096], 2)).take_while(Result::is_ok).count();
    assert_eq!(written as u64, FILES);
    let last = user.lookup(&dirs[0], "0").unwrap();
    assert_eq!(user.write(&last, 4096, &[1], 2), Err(NfsStatus::DISK_QUOTA.0), "and no further");
    assert!(user.write(&last, 0, &[2; 4096], 0).is_ok(), "what is there may be written");
}
