//! Memory shared between clients and servers of one machine: switched off, misused, and left behind
//! by the dead.

use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::fs::{MemfdFlags, SealFlags};
use weft_base::{ClientId, Status};
use weft_system_tests::socket::{Peer, read_key};
use weft_system_tests::{FileSystem, Need, available, fsx};
use weft_wire::ops::PingRequest;
use weft_wire::{Flags, Op, Wire};

const PAGE: u64 = 4096;
const PATIENCE: Duration = Duration::from_secs(20);

/// Regions that a process has mapped.
fn regions(pid: u32) -> usize {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    maps.lines().filter(|line| line.contains("memfd:weft-bulk")).count()
}

fn memory(bytes: u64, seals: SealFlags) -> OwnedFd {
    let fd = rustix::fs::memfd_create("test", MemfdFlags::ALLOW_SEALING | MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&fd, bytes).unwrap();
    rustix::fs::fcntl_add_seals(&fd, seals).unwrap();
    fd
}

#[test]
fn without_shared_memory_everything_is_the_same() {
    if !available("without_shared_memory_everything_is_the_same", &[Need::Fuse]) {
        return;
    }
    let fs = FileSystem::up(&["--data", "3", "--stripe-size", "64KiB"]);
    fs.down();
    let config = fs.state().join("weft.toml");
    let text = fs::read_to_string(&config).unwrap();
    assert!(text.contains("shared_memory = true"));
    for (shared, seed) in [(false, 11), (true, 11)] {
        fs::write(&config, text.replace("shared_memory = true", &format!("shared_memory = {shared}"))).unwrap();
        fs.start_mounted(&[]);
        // Large enough for requests that take the region if there is one.
        let settings = fsx::Settings { file_bytes_max: 4 << 20, ..fsx::Settings::new(seed, 4_000) };
        fsx::run(&[fs.mnt().join("fsx")], &settings).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(regions(fs.pid("data0").unwrap()) > 0, shared);
        fs::remove_file(fs.mnt().join("fsx")).unwrap();
        fs.down();
    }
}

/// A mount that is killed in the middle of its work leaves nothing in the servers.
#[test]
fn the_memory_of_a_killed_client_goes() {
    if !available("the_memory_of_a_killed_client_goes", &[Need::Fuse]) {
        return;
    }
    let fs = FileSystem::mounted(&["--data", "2"]);
    let file = fs.mnt().join("file");
    let writer = std::thread::spawn(move || {
        let data = vec![7; 1 << 20];
        let file = fs::File::create(file).unwrap();
        while std::os::unix::fs::FileExt::write_all_at(&file, &data, 0).is_ok() {}
    });
    let servers = ["data0", "data1"].map(|name| fs.pid(name).unwrap());
    let limit = Instant::now() + PATIENCE;
    while servers.iter().all(|pid| regions(*pid) == 0) {
        assert!(Instant::now() < limit, "nothing is shared");
        std::thread::sleep(Duration::from_millis(5));
    }
    fs.kill_mount(&fs.mnt());
    writer.join().unwrap();
    while servers.iter().any(|pid| regions(*pid) > 0) {
        assert!(Instant::now() < limit, "a region of the dead is still mapped");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(fs.status().0);
}

/// A client that holds the key and lies about its memory: told so, shut out, and nobody else
/// notices.
#[test]
fn bad_regions_and_places_are_refused() {
    let fs = FileSystem::up(&["--data", "1"]);
    let key = read_key(&fs.state().join("server.key"));
    let address = format!("unix:{}", fs.state().join("run/data0.sock").display());
    let join = |client| Peer::join(&address, &key, ClientId(client)).unwrap();
    let good = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    let ping = PingRequest {}.to_bytes();

    // Offers that cannot be accepted leave a connection that works without a region.
    let file = tempfile::tempfile().unwrap();
    file.set_len(16 * PAGE).unwrap();
    let offers: [(u64, Vec<OwnedFd>); 8] = [
        (16 * PAGE, vec![]),
        (16 * PAGE, vec![file.into()]),
        (16 * PAGE, vec![memory(16 * PAGE, SealFlags::empty())]),
        (16 * PAGE, vec![memory(16 * PAGE, SealFlags::GROW)]),
        (17 * PAGE, vec![memory(16 * PAGE, good)]),
        (16 * PAGE - 1, vec![memory(16 * PAGE, good)]),
        (0, vec![memory(0, good)]),
        (1 << 40, vec![memory(1 << 40, good)]),
    ];
    for (number, (bytes, descriptors)) in offers.into_iter().enumerate() {
        let mut peer = join(100 + number as u64);
        let descriptors: Vec<_> = descriptors.iter().map(|fd| fd.as_fd()).collect();
        assert_eq!(peer.offer(bytes, &descriptors).unwrap(), Status::NotSupported.code(), "offer {number}");
        assert!(peer.ask(&PingRequest {}, &[]).unwrap().is_ok(), "offer {number}");
        // Whoever names a place all the same is shut out.
        let bytes = peer.naming(Op::Ping, &ping, Flags::ROOM, 0, 1);
        peer.send(&bytes).unwrap();
        assert!(peer.is_closed_by_server(), "offer {number}");
    }

    // Places outside an accepted region are answered with an error, then the connection ends.
    for (flag, page, bytes) in [
        (Flags::SHARED, 16, 1),
        (Flags::SHARED, 15, 4097),
        (Flags::SHARED, 0, 16 * 4096 + 1),
        (Flags::ROOM, u32::MAX, 8 << 20),
        (Flags::ROOM, 1, 8 << 20),
    ] {
        let mut peer = join(200);
        let region = memory(16 * PAGE, good);
        assert_eq!(peer.offer(16 * PAGE, &[region.as_fd()]).unwrap(), 0);
        let inside = peer.naming(Op::Ping, &ping, flag, 15, 4096);
        peer.send(&inside).unwrap();
        assert!(peer.receive().unwrap().status().is_ok(), "the last page is inside");
        let outside = peer.naming(Op::Ping, &ping, flag, page, bytes);
        peer.send(&outside).unwrap();
        assert_eq!(peer.receive().unwrap().status(), Err(Status::BadMessage), "{flag:?} {page}+{bytes}");
        assert!(peer.is_closed_by_server());
    }

    // More descriptors than asked for are closed, and a second offer is no part of the protocol.
    let server = fs.pid("data0").unwrap();
    let descriptors = || fs::read_dir(format!("/proc/{server}/fd")).unwrap().count();
    let mut peer = join(300);
    let before = descriptors();
    let region = memory(16 * PAGE, good);
    assert_eq!(peer.offer(16 * PAGE, &[region.as_fd(); 4]).unwrap(), 0);
    assert_eq!(descriptors(), before);
    assert!(peer.offer(16 * PAGE, &[region.as_fd()]).is_err());
    assert!(peer.is_closed_by_server());
    assert!(join(301).ask(&PingRequest {}, &[]).unwrap().is_ok());
    assert!(fs.status().0);
}
