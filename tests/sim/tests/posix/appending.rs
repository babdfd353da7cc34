//! A file that all append to.

use std::rc::Rc;

use weft_base::{SECOND, Status};
use weft_sim_tests::mount::{Mount, Open, caller, how};
use weft_wire::Rights;

use super::{APPEND, RECORD, ROOT, ROUNDS, Shared, World, pause};

/// Appends records; mounts may refuse each other, but lose nothing.
pub async fn append(mount: Mount, thread: u32, shared: Rc<Shared>) {
    let who = caller(thread, 0);
    for round in 0..ROUNDS {
        let file = match mount.open(&who, ROOT, "log", how(APPEND)).await {
            Ok(file) => file,
            Err(error) if matches!(error.status, Status::Busy | Status::SharedAppend) => {
                pause(&mount).await;
                continue;
            }
            Err(error) => panic!("{error}"),
        };
        for part in 0..3u32 {
            append_one(&mount, file, thread, round * 3 + part, &shared).await;
        }
        mount.release(file.opened.number).await;
        pause(&mount).await;
    }
}

/// Appends records to a file that stays open.
pub async fn append_all(mount: Mount, file: Open, thread: u32, shared: Rc<Shared>) {
    for round in 0..3 * ROUNDS {
        append_one(&mount, file, thread, round, &shared).await;
        pause(&mount).await;
    }
}

async fn append_one(mount: &Mount, file: Open, thread: u32, number: u32, shared: &Shared) {
    let mut record = [b'.'; RECORD];
    record[..4].copy_from_slice(&thread.to_be_bytes());
    record[4..8].copy_from_slice(&number.to_be_bytes());
    // Wherever the cache thinks that the end is.
    let outcome = mount.write(&caller(thread, 0), file, 5, &record, true).await;
    let list = if outcome.is_ok() { &shared.appended } else { &shared.unknown };
    list.borrow_mut().push(record);
}

pub fn check_log(log: &[u8], shared: &Shared) {
    let records: Vec<&[u8]> = log.chunks(RECORD).collect();
    let (appended, unknown) = (shared.appended.borrow(), shared.unknown.borrow());
    for record in &records {
        let is_known = appended.iter().chain(unknown.iter()).any(|known| known == record);
        assert!(is_known, "{record:?} was never appended, at the place of another record");
    }
    for record in appended.iter() {
        assert_eq!(records.iter().filter(|here| *here == record).count(), 1, "{record:?} is there once");
    }
    assert!(!appended.is_empty(), "somebody has appended");
}

/// Gateways that keep leases append to one file at the same time, with the file open in both.
/// Nothing is refused unless servers die, and who is alone again needs no lock.
#[test]
fn appends_of_two_gateways_follow_each_other() {
    for seed in 0..12 {
        println!("seed {seed}");
        let mut world = World::new(seed, None);
        let shared = Rc::new(Shared::default());
        let open = |number: usize| {
            world.alone(number, |mount| async move {
                let who = caller(1, 0);
                if number == 0 {
                    let file = mount.create(&who, ROOT, "log", 0o644).await.expect("a new file");
                    mount.release(file.opened.number).await;
                }
                mount.open(&who, ROOT, "log", how(APPEND)).await.expect("it opens while the other has it open")
            })
        };
        let files = [0, 1].map(open);
        let has_faults = seed % 2 == 1;
        if has_faults {
            world.plan_faults();
        }
        let flows = world.mounts.iter().zip(files).enumerate().map(|(number, (mount, file))| {
            let (mount, shared) = (mount.clone(), shared.clone());
            world.sim.spawn_on(mount.node, move |_| append_all(mount, file, number as u32 + 1, shared))
        });
        world.run(flows.collect());
        world.sim.recover();
        assert!(has_faults || shared.unknown.borrow().is_empty(), "nothing is refused");
        let [first, second] = files;
        world.alone(1, move |mount| async move { mount.release(second.opened.number).await });
        world.sim.run_for(2 * SECOND);
        let again = shared.clone();
        let requests = world.alone(0, move |mount| async move {
            // The first one asks whether it is alone.
            append_all(mount.clone(), first, 3, again.clone()).await;
            let before = mount.posix.stats().requests;
            append_all(mount.clone(), first, 4, again).await;
            mount.posix.stats().requests - before
        });
        assert!(has_faults || requests <= u64::from(3 * ROUNDS) + 2, "a write is one message: {requests}");
        let log = world.alone(1, |mount| async move {
            let file = mount.open(&caller(1, 0), ROOT, "log", how(Rights::READ)).await.expect("it opens");
            mount.read(file).await.expect("it is read")
        });
        check_log(&log, &shared);
    }
}
