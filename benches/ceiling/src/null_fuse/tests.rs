//! These mount; where FUSE cannot be used they say so and pass.

use std::fs;
use std::io::{Read, Write};
use std::time::Duration;

use super::*;
use crate::measure::{Measured, Reps};
use crate::paths;
use crate::rpc::Endpoint;

const SHORT: Reps = Reps::new(Duration::from_millis(10), 3);

fn mounted(config: NullFuseConfig) -> Option<NullFuse> {
    match NullFuse::start(&ServerSpawner::Thread, config) {
        Ok(null) => Some(null),
        Err(error) => {
            eprintln!("skipped: {error:#}");
            None
        }
    }
}

fn plausible(measured: Result<Measured>) {
    let measured = measured.expect("the null file system accepts everything");
    assert!(measured.min > 0.0, "{measured:?}");
}

#[test]
fn shows_what_it_promises() {
    let config = NullFuseConfig { list_entries: 1000, file_bytes: 100_000, ..NullFuseConfig::default() };
    let Some(null) = mounted(config) else { return };
    let mut names: Vec<String> = fs::read_dir(null.list())
        .expect("list can be read")
        .map(|entry| {
            let name = entry.expect("an entry").file_name();
            name.into_string().expect("a plain name")
        })
        .collect();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), 1000);
    assert!(names.iter().all(|name| name.starts_with('f')));

    let file = &null.files(1)[0];
    assert_eq!(fs::metadata(file).expect("f0 is there").len(), 100_000);
    let mut data = Vec::new();
    fs::File::open(file).and_then(|mut open| open.read_to_end(&mut data)).expect("f0 can be read");
    assert!(data.len() == 100_000 && data.iter().all(|byte| *byte == 0));

    let new = null.dirs(1)[0].join("new");
    assert!(!new.exists());
    let mut created = fs::File::create_new(&new).expect("anything can be created");
    created.write_all(b"dropped").expect("anything is accepted");
    drop(created);
    assert!(!new.exists());
}

#[test]
fn every_phase_runs() {
    let Some(null) = mounted(NullFuseConfig { list_entries: 500, file_bytes: 8 << 20, ..NullFuseConfig::default() }) else {
        return;
    };
    for threads in [1, 2] {
        plausible(paths::create_close(&null.dirs(threads), SHORT));
        plausible(paths::fstat(&null.files(threads), SHORT));
        plausible(paths::lookup_missing(&null.dirs(threads), SHORT));
        plausible(paths::stat(&null.dirs(threads), SHORT));
        plausible(paths::unlink(&null.dirs(threads), SHORT));
        plausible(paths::read_dir(&null.list(), threads, SHORT));
        for block_bytes in [1 << 20, 47008] {
            let files = null.files(threads);
            plausible(paths::write_blocks(&files, block_bytes, 8 << 20, SHORT));
            plausible(paths::read_blocks(&files, block_bytes, 8 << 20, SHORT));
        }
    }
    // A shared directory: the same path twice.
    let shared = vec![null.dirs(1)[0].clone(); 2];
    plausible(paths::create_close(&shared, SHORT));
    assert!(paths::read_dir(&null.dirs(1)[0], 1, SHORT).is_err(), "empty");
}

#[test]
fn plain_readdir_lists_the_same() {
    let Some(null) =
        mounted(NullFuseConfig { threads: 1, clone_fd: false, readdirplus: false, list_entries: 300, file_bytes: 0, asks: None })
    else {
        return;
    };
    let entries = fs::read_dir(null.list()).expect("list can be read").count();
    assert_eq!(entries, 300);
}

#[test]
fn one_with_a_server_asks_it_for_each_change_and_fails_without_it() {
    let place = tempfile::tempdir().expect("a directory");
    let socket = place.path().join("s");
    let server = ServerSpawner::Thread.start(&ServerRole::Rpc(Endpoint::Unix(socket.clone()))).expect("a bare server");
    let Some(null) = mounted(NullFuseConfig { asks: Some(socket.clone()), ..NullFuseConfig::default() }) else {
        return;
    };
    plausible(paths::create_close(&null.dirs(2), SHORT));
    plausible(paths::unlink(&null.dirs(2), SHORT));
    drop(server);
    let error = fs::write(null.path().join("d0/n0"), "").expect_err("nobody answers");
    assert_eq!(error.raw_os_error(), Some(libc::EIO));
    fs::read_dir(null.list()).expect("a listing changes nothing");
}

#[test]
fn is_unmounted_even_while_a_file_is_open() {
    let Some(null) = mounted(NullFuseConfig::default()) else {
        return;
    };
    let place = null.path().to_path_buf();
    let open = fs::File::open(&null.files(1)[0]).expect("f0 can be opened");
    // The server's threads end when the last file is closed, so close it a little later from
    // elsewhere.
    let closer = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(50));
        drop(open);
    });
    drop(null);
    closer.join().expect("closing cannot panic");
    assert!(!place.exists(), "{} is left", place.display());
}
