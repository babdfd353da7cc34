//! Both disks do what the trait says, alike; what differs is tested for each.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use weft_base::Payload;
use weft_rt::{Disk, DiskError};

use super::{DirDisk, MemDisk, RealDisk};

struct Unpark(std::thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn run<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        std::thread::park();
    }
}

fn on_both(check: impl AsyncFn(RealDisk)) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    run(check(RealDisk::Directory(DirDisk::open(directory.path()).expect("it is free"))));
    run(check(RealDisk::Memory(MemDisk::new(1 << 30))));
}

fn bytes(payload: Payload) -> Vec<u8> {
    payload.to_bytes().to_vec()
}

#[test]
fn names() {
    on_both(async |disk| {
        assert_eq!(disk.open("a", false).await, Err(DiskError::NotFound));
        let a = disk.open("a", true).await.expect("created");
        disk.write(a, 0, b"one".to_vec().into()).await.expect("written");
        disk.open("b", true).await.expect("created");
        assert_eq!(disk.list().await, Ok(vec!["a".to_string(), "b".to_string()]));
        disk.rename("a", "b").await.expect("replaced");
        assert_eq!(disk.list().await, Ok(vec!["b".to_string()]));
        assert_eq!(disk.rename("a", "c").await, Err(DiskError::NotFound));
        let b = disk.open("b", false).await.expect("there");
        assert_ne!(a, b);
        assert_eq!(disk.read(b, 0, 9).await.map(bytes), Ok(b"one".to_vec()));
        disk.remove("b").await.expect("removed");
        assert_eq!(disk.remove("b").await, Err(DiskError::NotFound));
        assert_eq!(disk.read(b, 0, 9).await.map(bytes), Ok(b"one".to_vec()), "open files outlive their names");
        disk.close(b);
        assert!(disk.read(b, 0, 9).await.is_err());
        for bad in ["", ".", "..", "a/b"] {
            assert!(matches!(disk.open(bad, true).await, Err(DiskError::Failed(_))), "{bad:?}");
        }
        assert_ne!(disk.boot_id(), 0);
    });
}

#[test]
fn ranges() {
    on_both(async |disk| {
        let file = disk.open("f", true).await.expect("created");
        disk.write(file, 200_000, vec![7; 100_000].into()).await.expect("written");
        assert_eq!(disk.len(file).await, Ok(300_000));
        assert_eq!(disk.read(file, 199_998, 4).await.map(bytes), Ok(vec![0, 0, 7, 7]));
        assert_eq!(disk.read(file, 299_999, 50).await.map(bytes), Ok(vec![7]));
        assert_eq!(disk.read(file, 300_000, 50).await.map(bytes), Ok(vec![]));
        disk.punch(file, 210_000, 80_000).await.expect("punched");
        let all = bytes(disk.read(file, 0, 300_000).await.expect("read"));
        assert!(all.iter().enumerate().all(|(i, byte)| (*byte == 7) == (i >= 200_000 && !(210_000..290_000).contains(&i))));
        disk.set_len(file, 205_000).await.expect("cut");
        disk.set_len(file, 206_000).await.expect("extended");
        assert_eq!(disk.read(file, 204_999, 3).await.map(bytes), Ok(vec![7, 0, 0]));
        disk.allocate(file, 205_999, 70_001).await.expect("allocated");
        assert_eq!(disk.len(file).await, Ok(276_000));
        assert_eq!(disk.read(file, 275_999, 3).await.map(bytes), Ok(vec![0]));
        disk.allocate(file, 0, 10).await.expect("allocated within");
        assert_eq!((disk.len(file).await, disk.read(file, 204_999, 1).await.map(bytes)), (Ok(276_000), Ok(vec![7])));
        disk.sync(file).await.expect("synced");
        let (total, free) = disk.space().await.expect("space");
        assert!(free <= total && total > 0);
    });
}

#[test]
fn many_syncs_at_once_all_end() {
    on_both(async |disk| {
        let file = disk.open("f", true).await.expect("created");
        let syncs = (0..20u64).map(|i| {
            let disk = &disk;
            async move {
                disk.write(file, i * 10, vec![i as u8; 10].into()).await?;
                disk.sync(file).await
            }
        });
        assert_eq!(weft_rt::join_all(syncs).await, vec![Ok(()); 20]);
        assert_eq!(disk.unfinished(), 0);
    });
}

#[test]
fn full_memory_refuses_and_recovers() {
    run(async {
        let disk = MemDisk::new(256 << 10);
        let file = disk.open("f", true).await.expect("created");
        disk.allocate(file, 0, 128 << 10).await.expect("fits");
        assert_eq!(disk.write(file, 128 << 10, vec![1; 200 << 10].into()).await, Err(DiskError::NoSpace));
        assert!(matches!(disk.write(file, u64::MAX - 5, vec![1; 3].into()).await, Err(DiskError::Failed(_))));
        assert_eq!(disk.allocate(file, 0, 1 << 40).await, Err(DiskError::NoSpace));
        assert_eq!(disk.space().await, Ok((256 << 10, 128 << 10)));
        disk.write(file, 0, vec![1; 128 << 10].into()).await.expect("allocated before");
        disk.set_len(file, 1).await.expect("cut");
        assert_eq!(disk.space().await, Ok((256 << 10, 192 << 10)));
        disk.remove("f").await.expect("removed");
        disk.close(file);
        assert_eq!(disk.space().await, Ok((256 << 10, 256 << 10)));
    });
}

#[test]
fn a_directory_has_one_server() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let first = DirDisk::open(directory.path()).expect("it is free");
    let error = DirDisk::open(directory.path()).expect_err("it is taken");
    assert!(error.to_string().contains("another server"), "{error}");
    drop(first);
    DirDisk::open(directory.path()).expect("free again");
    assert!(DirDisk::open(&directory.path().join("none")).is_err());
}

#[test]
fn what_is_stored_is_nobody_elses() {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().expect("a temporary directory");
    // As an administrator makes a mount point.
    std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o755)).expect("it is ours");
    let disk = DirDisk::open(directory.path()).expect("it is free");
    run(disk.open("file", true)).expect("created");
    let mode = std::fs::metadata(directory.path().join("file")).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

/// The second piece would come from the heap of the C library, which has learned of this size by
/// the first, and keeps it.
#[test]
fn memory_of_large_reads_is_given_back() {
    const LARGE: u64 = 16 << 20;
    let resident_kib = || {
        let status = std::fs::read_to_string("/proc/self/status").expect("readable");
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)?.trim().strip_suffix(" kB")?.parse::<u64>().ok());
        field("RssAnon:").expect("given") + field("RssShmem:").expect("given")
    };
    let directory = tempfile::tempdir().expect("a temporary directory");
    let disk = DirDisk::open(directory.path()).expect("it is free");
    run(async {
        let file = disk.open("file", true).await.expect("created");
        disk.write(file, LARGE - 3, b"end".to_vec().into()).await.expect("written");
        let before = resident_kib();
        for _ in 0..3 {
            let read = disk.read(file, 0, LARGE + 9).await.expect("read").to_bytes();
            assert_eq!((read.len() as u64, &read[read.len() - 4..]), (LARGE, &b"\0end"[..]));
        }
        let kept = resident_kib().saturating_sub(before);
        assert!(kept < LARGE / 2 / 1024, "{kept} KiB are kept");
    });
}
