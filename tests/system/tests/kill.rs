//! `kill -9` of servers and of a mount while programs work on it.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use weft_system_tests::load::Load;
use weft_system_tests::{FileSystem, Need, available, ok, weft};

const PATIENCE: Duration = Duration::from_secs(60);

/// The promise of `batch`: what was answered before the kill of any server is there after its
/// restart.
#[test]
fn promise_batch_survives_kill() {
    if !available("promise_batch_survives_kill", &[Need::Fuse]) {
        return;
    }
    let fs = FileSystem::mounted(&["--meta", "2", "--data", "2", "--stripe-size", "64KiB"]);
    let mut accounts = Vec::new();
    let kills = [&["meta0"][..], &["data1"], &["meta1", "data0"], &["meta0", "meta1", "data0", "data1"]];
    for (victims, seed) in kills.into_iter().zip(1..) {
        let dir = fs.mnt().join(format!("load{seed}"));
        let load = Load::start(&dir, 3, seed);
        load.wait_for(150, PATIENCE);
        // All at once, so that nobody has a moment to tidy up.
        victims.iter().for_each(|victim| fs.kill(victim));
        fs.start(&[]);
        load.wait_for(50, PATIENCE);
        let account = load.finish();
        account.verify(&dir);
        accounts.push((dir, account));
    }
    // And still after an orderly stop and start of everything.
    fs.down();
    fs.start(&[]);
    for (dir, account) in &accounts {
        account.verify(dir);
    }
    let errors: Vec<_> = accounts.iter().flat_map(|(_, account)| &account.errors).collect();
    assert_eq!(errors, [""; 0]);
}

/// What a program has written through a descriptor with `O_SYNC` is there, size and all, although
/// nobody was left to close or report anything.
#[test]
fn a_synced_write_survives_the_end_of_everything() {
    if !available("a_synced_write_survives_the_end_of_everything", &[Need::Fuse]) {
        return;
    }
    let fs = FileSystem::mounted(&["--meta", "2", "--data", "2", "--stripe-size", "64KiB"]);
    let victim = fs.mount("victim", "");
    let flags = rustix::fs::OFlags::SYNC.bits() as i32;
    let mut synced = File::options().write(true).create_new(true).custom_flags(flags).open(victim.join("synced")).unwrap();
    synced.write_all(&vec![7; 300_000]).unwrap();
    fs.kill_mount(&victim);
    ["meta0", "meta1", "data0", "data1"].iter().for_each(|server| fs.kill(server));
    drop(synced);
    fs.start(&[]);
    assert_eq!(fs::read(fs.mnt().join("synced")).unwrap(), vec![7; 300_000]);
}

/// Nothing is refused while a server restarts within the deadline: operations wait and succeed.
#[test]
fn promise_server_restart_is_transparent() {
    if !available("promise_server_restart_is_transparent", &[Need::Fuse]) {
        return;
    }
    let fs = FileSystem::mounted(&["--meta", "2", "--data", "2", "--stripe-size", "64KiB"]);
    let dir = fs.mnt().join("load");
    let load = Load::start(&dir, 4, 99);
    // Files that stay open over the restarts: their handles must go on working.
    let kept = File::create_new(fs.mnt().join("kept")).unwrap();
    for (round, victim) in ["data0", "meta0", "data1", "meta1", "meta0"].iter().enumerate() {
        load.wait_for(60, PATIENCE);
        fs.kill(victim);
        kept_write_in_background(&kept, round as u64);
        fs.start(&[]);
    }
    load.wait_for(60, PATIENCE);
    let account = load.finish();
    assert_eq!(account.errors, [""; 0], "{} operations, the longest took {:?}", account.operations, account.longest);
    account.verify(&dir);
    // The writes of the background have an answer by the deadline at the latest.
    weft_system_tests::wait_until("the writes to the open file", PATIENCE, || kept.metadata().is_ok_and(|meta| meta.len() == 5 * 100_000));
    for round in 0..5u64 {
        let mut bytes = vec![0; 100_000];
        kept.read_exact_at(&mut bytes, round * 100_000).unwrap();
        assert!(bytes.iter().all(|byte| *byte == round as u8 + 1), "round {round}");
    }
}

fn kept_write_in_background(file: &File, round: u64) {
    let file = file.try_clone().unwrap();
    std::thread::spawn(move || file.write_all_at(&vec![round as u8 + 1; 100_000], round * 100_000).unwrap());
}

/// A client that dies: what it was told is there, sizes are exact, and what it had unlinked but
/// open is freed after its grace.
#[test]
fn a_killed_mount_leaves_no_trace() {
    if !available("a_killed_mount_leaves_no_trace", &[Need::Fuse]) {
        return;
    }
    // What a mount delays ends with it: `promise_a_dead_mount_holds_nobody_up`.
    let fs = FileSystem::mounted(&["--data", "2", "--stripe-size", "64KiB", "--inline-limit", "0"]);
    let victim = fs.mount("victim", "");
    let dir = fs.mnt().join("load");
    let load = Load::start(&victim.join("load"), 3, 5);
    load.wait_for(100, PATIENCE);

    // Unlinked and still in use by the victim.
    let doomed = victim.join("doomed");
    let mut open = File::create_new(&doomed).unwrap();
    open.write_all(&vec![1; 4 << 20]).unwrap();
    fs::remove_file(&doomed).unwrap();
    // In the middle of a stream, never closed.
    let mut stream = File::create_new(victim.join("stream")).unwrap();
    stream.write_all(&vec![7; 777_777]).unwrap();

    fs.kill_mount(&victim);
    let account = load.finish();
    assert!(!account.errors.is_empty(), "a load whose mount was killed cannot go on");
    drop((open, stream));

    // The accounts name the dead mount; the survivor shows the same files.
    let moved = |path: &Path| dir.join(path.strip_prefix(victim.join("load")).expect("a path of the load"));
    let seen_by_survivor = weft_system_tests::load::Account {
        files: account.files.iter().map(|(path, content)| (moved(path), *content)).collect(),
        uncertain: account.uncertain.iter().map(|path| moved(path)).collect(),
        ..Default::default()
    };
    seen_by_survivor.verify(&dir);
    assert_eq!(fs::metadata(fs.mnt().join("stream")).unwrap().len(), 777_777);
    assert!(fs::read(fs.mnt().join("stream")).unwrap().iter().all(|byte| *byte == 7));

    // Remove everything: only what nobody can reach any more could keep space. The grace of the
    // dead client is 30 s.
    for name in ["load", "stream"] {
        ok(weft().args(["rm", "-r", &fs.at(&format!("/{name}"))]));
    }
    let begun = Instant::now();
    weft_system_tests::wait_until("the end of the dead client's files", Duration::from_secs(100), || {
        std::thread::sleep(Duration::from_millis(300));
        fs.total("data", "objects") == 0
    });
    eprintln!("all datafiles were removed {:?} after the load", begun.elapsed());
    assert_eq!(fs.total("meta", "objects"), 1, "only the root is left");
}

/// Many rounds of kills of random servers under load.
#[test]
#[ignore = "long: WEFT_KILL_ROUNDS rounds (default 50)"]
fn kills_for_a_long_time() {
    if !available("kills_for_a_long_time", &[Need::Fuse]) {
        return;
    }
    let rounds = std::env::var("WEFT_KILL_ROUNDS").map_or(50, |text| text.parse().expect("a number of rounds"));
    let fs = FileSystem::prepare_for(Duration::from_secs(24 * 3600));
    fs.start_mounted(&["--meta", "2", "--data", "2", "--stripe-size", "64KiB"]);
    let mut random = weft_system_tests::Random::new(rounds);
    for round in 0..rounds {
        let dir = fs.mnt().join(format!("load{round}"));
        let load = Load::start(&dir, 3, round);
        for _ in 0..3 {
            load.wait_for(random.below(200), PATIENCE);
            fs.kill(["meta0", "meta1", "data0", "data1"][random.below(4) as usize]);
            fs.start(&[]);
        }
        load.wait_for(20, PATIENCE);
        let account = load.finish();
        assert_eq!(account.errors, [""; 0], "round {round}");
        account.verify(&dir);
        fs::remove_dir_all(&dir).unwrap();
    }
}
