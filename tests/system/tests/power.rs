//! Power cuts on a real disk: the servers live on an ext4 image that is shut down under them
//! (`FS_IOC_SHUTDOWN` without flushing its log), so that everything that was not on stable storage
//! is gone; then it is mounted again as after a reboot. The machine does not really restart, so the
//! servers are started where they see another boot id (`unshare --mount`).

use std::cell::Cell;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::fs::OFlags;
use weft_system_tests::load::content;
use weft_system_tests::{FileSystem, Need, available, ok, weft};

const NEEDS: [Need; 3] = [Need::Fuse, Need::LoopDevice, Need::Programs(&["perl", "unshare"])];
const FILE_BYTES: u64 = 500_000;

/// `ioctl(fd, FS_IOC_SHUTDOWN, NOLOGFLUSH)`.
const SHUT_DOWN: &str = r#"open(my $dir, "<", $ARGV[0]) or die $!; my $how = pack("L", 2); ioctl($dir, 0x8004587d, $how) or die $!;"#;

/// One at a time: the mount namespaces of one test would keep the dead disks of another alive.
static ALONE: Mutex<()> = Mutex::new(());

struct Machine {
    fs: FileSystem,
    boots: Cell<u32>,
    // Last, so that it is released last.
    _alone: MutexGuard<'static, ()>,
}

impl Machine {
    fn start(durability: &str) -> Machine {
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let machine = Machine { _alone: alone, fs: FileSystem::prepare(), boots: Cell::new(0) };
        let image = machine.fs.path("disk");
        File::create(&image).unwrap().set_len(3 << 30).unwrap();
        ok(Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&image));
        fs::create_dir_all(machine.disk()).unwrap();
        machine.attach();
        machine.fs.start_mounted(&["--meta", "2", "--data", "2", "--stripe-size", "64KiB", "--durability", durability]);
        machine
    }

    fn disk(&self) -> PathBuf {
        self.fs.state().join("servers")
    }

    fn attach(&self) {
        ok(Command::new("mount").args(["-o", "loop"]).arg(self.fs.path("disk")).arg(self.disk()));
    }

    /// Cuts the power, and starts the machine again.
    fn cut(&self) {
        ok(Command::new("perl").args(["-e", SHUT_DOWN]).arg(self.disk()));
        ["meta0", "meta1", "data0", "data1"].iter().for_each(|server| self.fs.kill_if_alive(server));
        ok(Command::new("umount").arg(self.disk()));
        self.attach();
        self.boots.set(self.boots.get() + 1);
        let boot_id = self.fs.path("boot_id");
        fs::write(&boot_id, format!("00000000-0000-4000-8000-{:012}\n", self.boots.get())).unwrap();
        let script = r#"mount --bind "$1" /proc/sys/kernel/random/boot_id; shift; exec "$@""#;
        let up = weft().get_program().to_os_string();
        ok(Command::new("unshare")
            .args(["--mount", "sh", "-euc", script, "sh"])
            .arg(boot_id)
            .arg(up)
            .args(["up", "--state"])
            .arg(self.fs.state()));
        // What belongs to no file may go, and nothing else: tests look at all that must be left.
        ok(weft().args(["fsck", "--repair", "--state"]).arg(self.fs.state()));
    }

    /// Directories that lie on different metadata servers.
    fn directories(&self) -> Vec<PathBuf> {
        let dirs: Vec<_> = (0..4).map(|number| self.fs.mnt().join(format!("dir{number}"))).collect();
        dirs.iter().for_each(|dir| fs::create_dir(dir).unwrap());
        dirs
    }
}

#[test]
fn promise_fsync() {
    if !available("promise_fsync", &NEEDS) {
        return;
    }
    let machine = Machine::start("batch");
    let mut kept = Vec::new();
    for round in 0..3u64 {
        let dir = machine.fs.mnt().join(format!("dir{round}"));
        fs::create_dir(&dir).unwrap();
        // Acknowledged by the server of the inode before, never synced itself.
        fs::write(dir.join("before"), b"").unwrap();
        fs::create_dir(dir.join("sub")).unwrap();
        fs::rename(dir.join("before"), dir.join("renamed")).unwrap();
        let path = dir.join("synced");
        let mut file = File::create_new(&path).unwrap();
        file.write_all(&content((round, FILE_BYTES))).unwrap();
        file.sync_all().unwrap();
        let open = (round == 1).then_some(file);
        machine.cut();
        drop(open);
        assert!(dir.join("renamed").exists() && !dir.join("before").exists());
        kept.push((path, round));
        for (path, seed) in &kept {
            assert!(fs::read(path).unwrap() == content((*seed, FILE_BYTES)), "{} after power cut {round}", path.display());
        }
    }
}

/// A write on a descriptor with `O_SYNC` or `O_DSYNC` is on the disk when it returns, although the
/// servers sync by themselves only every 10 s.
#[test]
fn synced_writes_survive_a_cut_of_a_real_disk() {
    if !available("synced_writes_survive_a_cut_of_a_real_disk", &NEEDS) {
        return;
    }
    let machine = Machine::start("batch");
    // The disk stays where it is.
    ok(weft().args(["down", "--state"]).arg(machine.fs.state()));
    let config = machine.fs.state().join("weft.toml");
    let text = fs::read_to_string(&config).unwrap();
    assert!(text.contains("batch_interval_ms = 50"), "{text}");
    fs::write(&config, text.replace("batch_interval_ms = 50", "batch_interval_ms = 10000")).unwrap();
    machine.fs.start_mounted(&[]);
    for (round, flag) in [OFlags::SYNC, OFlags::DSYNC, OFlags::SYNC, OFlags::DSYNC].into_iter().enumerate() {
        let path = machine.fs.mnt().join(format!("file{}", round % 2));
        let mut file = OpenOptions::new().write(true).create(true).truncate(false).custom_flags(flag.bits() as i32).open(&path).unwrap();
        // The second time over what is there: the size stays.
        let seed = round as u64;
        content((seed, FILE_BYTES)).chunks(100_000).for_each(|chunk| file.write_all(chunk).unwrap());
        machine.cut();
        assert!(fs::read(&path).unwrap() == content((seed, FILE_BYTES)), "round {round}");
    }
}

/// The promise of `sync` on a real disk: everything that was answered is there.
#[test]
fn sync_survives_a_cut_of_a_real_disk() {
    if !available("sync_survives_a_cut_of_a_real_disk", &NEEDS) {
        return;
    }
    survives("sync", Duration::ZERO);
}

/// The promise of `batch`: everything older than the interval (50 ms by default) is there.
#[test]
fn batch_survives_a_cut_of_a_real_disk_after_its_interval() {
    if !available("batch_survives_a_cut_of_a_real_disk_after_its_interval", &NEEDS) {
        return;
    }
    // Syncing takes its own time on a busy disk; the promise is about what the servers have begun
    // by then.
    survives("batch", Duration::from_secs(2));
}

fn survives(durability: &str, after: Duration) {
    let machine = Machine::start(durability);
    let dirs = machine.directories();
    for round in 0..2u64 {
        for (number, dir) in dirs.iter().enumerate() {
            let seed = round * 10 + number as u64;
            fs::write(dir.join(format!("new{round}")), content((seed, FILE_BYTES))).unwrap();
            fs::write(dir.join("doomed"), b"x").unwrap();
            fs::remove_file(dir.join("doomed")).unwrap();
            fs::rename(dir.join(format!("new{round}")), dirs[(number + 1) % 4].join(format!("moved{seed}"))).unwrap();
        }
        std::thread::sleep(after);
        machine.cut();
        for (number, dir) in dirs.iter().enumerate() {
            assert!(!dir.join("doomed").exists() && !dir.join(format!("new{round}")).exists());
            for old in 0..=round {
                let seed = old * 10 + number as u64;
                let path = dirs[(number + 1) % 4].join(format!("moved{seed}"));
                assert!(fs::read(&path).unwrap() == content((seed, FILE_BYTES)), "{}", path.display());
            }
        }
    }
}
