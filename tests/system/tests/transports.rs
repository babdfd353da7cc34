//! The same file system over both ways in which requests come from the kernel. Where the kernel
//! offers io_uring (`enable_uring`), all other tests use it too: `auto` chooses it.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, symlink};
use std::path::Path;

use weft_system_tests::{FileSystem, Need, Uring, available, fails, fsx, weft};

/// The names of the threads of a process.
fn thread_names(process: u32) -> Vec<String> {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).expect("the process lives");
    tasks.flatten().filter_map(|task| fs::read_to_string(task.path().join("comm")).ok()).map(|name| name.trim().to_string()).collect()
}

/// Something of everything, with answers of all lengths.
fn works(mnt: &Path) {
    let dir = mnt.join("dir");
    fs::create_dir(&dir).unwrap();
    let long = dir.join("n".repeat(255));
    for bytes in [0, 1, 4095, 4096, 4097, 131_072, 1 << 20, 3_000_001] {
        let data: Vec<u8> = (0..bytes).map(|at: u32| (at / 7) as u8).collect();
        let mut file = OpenOptions::new().create(true).truncate(true).read(true).write(true).mode(0o640).open(&long).unwrap();
        file.write_all(&data).unwrap();
        assert_eq!(file.metadata().unwrap().len(), u64::from(bytes));
        let mut read = Vec::new();
        file.seek(SeekFrom::Start(0)).unwrap();
        file.read_to_end(&mut read).unwrap();
        assert!(read == data, "{bytes} bytes through the descriptor that wrote them");
        drop(file);
        assert!(fs::read(&long).unwrap() == data, "{bytes} bytes through a new one");
    }
    let file = File::options().write(true).open(&long).unwrap();
    file.write_at(b"hole", 5_000_000).unwrap();
    file.sync_all().unwrap();
    file.set_len(5_000_002).unwrap();
    assert_eq!((fs::metadata(&long).unwrap().size(), fs::metadata(&long).unwrap().mode() & 0o7777), (5_000_002, 0o640));
    let target = "t/".repeat(2000);
    symlink(&target, dir.join("link")).unwrap();
    assert_eq!(fs::read_link(dir.join("link")).unwrap().as_os_str().len(), target.len());
    fs::hard_link(&long, dir.join("second")).unwrap();
    fs::rename(dir.join("second"), dir.join("third")).unwrap();
    assert_eq!(fs::metadata(dir.join("third")).unwrap().nlink(), 2);
    (0..300).for_each(|number| drop(File::create(dir.join(format!("{number}-{}", "x".repeat(100)))).unwrap()));
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 303);
    let attribute = vec![b'v'; 40_000];
    rustix::fs::setxattr(&long, "user.large", &attribute, rustix::fs::XattrFlags::CREATE).unwrap();
    let mut value = vec![0; 65_536];
    let bytes = rustix::fs::getxattr(&long, "user.large", &mut value[..]).unwrap();
    assert!(value[..bytes] == attribute);
    assert_eq!(fs::remove_dir(&dir).unwrap_err().raw_os_error(), Some(rustix::io::Errno::NOTEMPTY.raw_os_error()));
    fs::remove_dir_all(&dir).unwrap();
    assert_eq!(fs::metadata(&dir).unwrap_err().kind(), std::io::ErrorKind::NotFound);
}

/// More programs at once than the mount has threads at first, on all processors.
fn works_for_many(mnt: &Path) {
    std::thread::scope(|scope| {
        for number in 0..12 {
            let dir = mnt.join(format!("many{number}"));
            scope.spawn(move || {
                works(&{
                    fs::create_dir(&dir).unwrap();
                    dir
                })
            });
        }
    });
}

fn transport(test: &str, name: &str, threads: &str) {
    if !available(test, &[Need::Fuse]) {
        return;
    }
    let fs = FileSystem::mounted(&["--data", "2", "--stripe-size", "64KiB", "-o", &format!("transport={name}")]);
    let names = thread_names(fs.mount_pid(&fs.mnt()));
    assert!(names.iter().any(|name| name == threads), "{names:?}");
    works(&fs.mnt());
    works_for_many(&fs.mnt());
    fsx::run(&[fs.mnt().join("fsx")], &fsx::Settings::new(7, 3000)).unwrap_or_else(|error| panic!("{error}"));
    fs.down();
}

#[test]
fn everything_works_over_the_device() {
    transport("everything_works_over_the_device", "device", "weft-fuse");
}

#[test]
fn everything_works_over_io_uring_which_is_chosen_where_it_is_offered() {
    let test = "everything_works_over_io_uring_which_is_chosen_where_it_is_offered";
    let Some(_switched) = Uring::on(test) else { return };
    transport(test, "auto", "weft-ring");
}

#[test]
fn what_the_kernel_does_not_offer_is_refused_by_name() {
    let test = "what_the_kernel_does_not_offer_is_refused_by_name";
    // The switch stays as it is in the meantime.
    let Some(switched) = Uring::on(test) else { return };
    let fs = FileSystem::up(&[]);
    switched.off();
    let place = fs.path("refused");
    fs::create_dir(&place).unwrap();
    let told = fails(weft().arg("mount").arg(fs.state()).arg(&place).args(["-o", "transport=uring"]));
    assert!(told.contains("enable_uring"), "{told}");
    assert_eq!(fs::read_dir(&place).unwrap().count(), 0, "nothing is mounted there");
    let mounted = fs.mount("auto", "");
    let names = thread_names(fs.mount_pid(&mounted));
    assert!(names.iter().any(|name| name == "weft-fuse") && !names.iter().any(|name| name == "weft-ring"), "{names:?}");
    fs::write(mounted.join("file"), b"over the device").unwrap();
    drop(switched);
    fs.down();
}
