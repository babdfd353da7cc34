//! Random operations on names and attributes, each done on a mount and on the file system of the
//! test's own folder, which must answer alike: same results, trees, attributes and data, and after
//! each operation the same times have changed. A second mount must show what the first one does.
//!
//! `WEFT_LOCKSTEP_SEEDS` (such as `100..200`) and `WEFT_LOCKSTEP_OPERATIONS` choose other runs.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, lchown, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{XattrFlags, lremovexattr, lsetxattr};
use weft_system_tests::{FileSystem, Need, Random, available, ok, weft};

/// Longer than the clock of a kernel stands still, so that each change has a time of its own.
const TICK: Duration = Duration::from_millis(12);
/// Descriptors that are held open over operations.
const DESCRIPTORS: usize = 3;
/// Times that are set, in seconds: one of the past, and one of the future, which a directory that
/// is spread over servers would keep until it is past (`promise_split_directories`).
const SET_TIMES: [u64; 2] = [1_000_000_000, 1_900_000_000];
/// The second mount and all data are looked at after so many operations.
const WHOLE_EACH: u64 = 10;

#[derive(Clone, Debug)]
enum Operation {
    Mkdir(String),
    Rmdir(String),
    Create { path: String, is_exclusive: bool },
    Write { path: String, offset: u64, len: usize },
    Append { path: String, len: usize },
    Truncate { path: String, size: u64 },
    Unlink(String),
    Rename(String, String),
    Link(String, String),
    Symlink { to: String, path: String },
    Chmod { path: String, mode: u32 },
    Chown { path: String, uid: u32, gid: u32 },
    SetTime { path: String, seconds: u64 },
    SetXattr { path: String, len: usize },
    RemoveXattr(String),
    Open { path: String, slot: usize },
    WriteOpen { slot: usize, offset: u64, len: usize },
    StatOpen { slot: usize },
    Close { slot: usize },
    List(String),
}

/// Draws an operation. Few names and few levels, so that operations meet.
fn draw(random: &mut Random, times: &[u64]) -> Operation {
    use Operation::*;
    let mut path = || {
        let levels = [1, 1, 2, 2, 3][random.below(5) as usize];
        (0..levels).map(|_| ["a", "b", "c", "d", "e"][random.below(5) as usize]).collect::<Vec<_>>().join("/")
    };
    let (path, other) = (path(), path());
    let mut one_of = |choices: &[u64]| choices[random.below(choices.len() as u64) as usize];
    let slot = one_of(&[0, 1, 2]) as usize;
    let (offset, len) = (one_of(&[0, 10, 5000, 70_000]), one_of(&[1, 100, 4096, 70_000]) as usize);
    match one_of(&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 0, 2, 3, 7, 7]) {
        0 => Mkdir(path),
        1 => Rmdir(path),
        2 => Create { path, is_exclusive: one_of(&[0, 1]) == 1 },
        3 => Write { path, offset, len },
        4 => Append { path, len },
        5 => Truncate { path, size: one_of(&[0, 1, 100, 5000, 80_000]) },
        6 => Unlink(path),
        7 => Rename(path, other),
        8 => Link(path, other),
        9 => Symlink { to: other, path },
        10 => Chmod { path, mode: one_of(&[0o600, 0o644, 0o755, 0o4755, 0o2755]) as u32 },
        11 => Chown { path, uid: one_of(&[0, 1, 1000]) as u32, gid: one_of(&[0, 1, 1000]) as u32 },
        12 => SetTime { path, seconds: one_of(times) },
        13 => SetXattr { path, len: one_of(&[0, 10, 30]) as usize },
        14 => RemoveXattr(path),
        15 => Open { path, slot },
        16 => WriteOpen { slot, offset, len },
        17 => StatOpen { slot },
        18 => Close { slot },
        _ => List(path),
    }
}

/// What one of the file systems shows of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Shown {
    mode: u32,
    links: u64,
    /// 0 for directories, whose size means nothing.
    size: u64,
    owner: (u32, u32),
    modified: (i64, i64),
    changed: (i64, i64),
    number: u64,
}

impl Shown {
    fn of(path: &Path) -> io::Result<Shown> {
        let found = fs::symlink_metadata(path)?;
        Ok(Shown {
            mode: found.mode(),
            links: found.nlink(),
            size: if found.is_dir() { 0 } else { found.size() },
            owner: (found.uid(), found.gid()),
            modified: (found.mtime(), found.mtime_nsec()),
            changed: (found.ctime(), found.ctime_nsec()),
            number: found.ino(),
        })
    }

    fn attributes(&self) -> (u32, u64, u64, (u32, u32)) {
        (self.mode, self.links, self.size, self.owner)
    }
}

type Tree = BTreeMap<PathBuf, Shown>;

/// One of the file systems.
struct Side {
    root: PathBuf,
    open: [Option<File>; DESCRIPTORS],
}

impl Side {
    fn new(root: PathBuf) -> Side {
        fs::create_dir(&root).expect("the folder of a run is new");
        Side { root, open: [const { None }; DESCRIPTORS] }
    }

    /// Does it. Gives what it tells, or the number of the error.
    fn run(&mut self, operation: &Operation, fill: u8) -> Result<String, i32> {
        self.try_run(operation, fill).map_err(|error| error.raw_os_error().unwrap_or(0))
    }

    fn try_run(&mut self, operation: &Operation, fill: u8) -> io::Result<String> {
        use Operation::*;
        let at = |path: &str| self.root.join(path);
        match operation {
            Mkdir(path) => fs::create_dir(at(path))?,
            Rmdir(path) => fs::remove_dir(at(path))?,
            Create { path, is_exclusive } => {
                drop(OpenOptions::new().write(true).create(true).create_new(*is_exclusive).truncate(false).open(at(path))?);
            }
            Write { path, offset, len } => {
                OpenOptions::new().write(true).create(true).truncate(false).open(at(path))?.write_all_at(&vec![fill; *len], *offset)?;
            }
            Append { path, len } => OpenOptions::new().append(true).open(at(path))?.write_all(&vec![fill; *len])?,
            Truncate { path, size } => OpenOptions::new().write(true).open(at(path))?.set_len(*size)?,
            Unlink(path) => fs::remove_file(at(path))?,
            Rename(from, to) => fs::rename(at(from), at(to))?,
            Link(from, to) => fs::hard_link(at(from), at(to))?,
            Symlink { to, path } => symlink(to, at(path))?,
            Chmod { path, mode } => fs::set_permissions(at(path), PermissionsExt::from_mode(*mode))?,
            Chown { path, uid, gid } => lchown(at(path), Some(*uid), Some(*gid))?,
            SetTime { path, seconds } => {
                let time = std::time::UNIX_EPOCH + Duration::from_secs(*seconds);
                File::open(at(path))?.set_times(fs::FileTimes::new().set_accessed(time).set_modified(time))?;
            }
            SetXattr { path, len } => {
                // ext4 changes no time if the same value is there already.
                let _ = lremovexattr(at(path), c"user.lockstep");
                lsetxattr(at(path), c"user.lockstep", &vec![fill; *len], XattrFlags::empty())?;
            }
            RemoveXattr(path) => lremovexattr(at(path), c"user.lockstep")?,
            Open { path, slot } => {
                let file = OpenOptions::new().read(true).write(true).open(at(path))?;
                self.open[*slot] = Some(file);
            }
            WriteOpen { slot, offset, len } => {
                if let Some(file) = &self.open[*slot] {
                    file.write_all_at(&vec![fill; *len], *offset)?;
                }
            }
            StatOpen { slot } => {
                let found = self.open[*slot].as_ref().map(File::metadata).transpose()?;
                return Ok(format!("{:?}", found.map(|found| (found.mode(), found.nlink(), found.size()))));
            }
            Close { slot } => drop(self.open[*slot].take()),
            List(path) => {
                let mut names = fs::read_dir(at(path))?.map(|entry| Ok(entry?.file_name())).collect::<io::Result<Vec<_>>>()?;
                names.sort();
                return Ok(format!("{names:?}"));
            }
        }
        Ok(String::new())
    }
}

/// All objects below a folder, itself included.
fn tree(root: &Path) -> Tree {
    let mut found = Tree::from([(PathBuf::new(), Shown::of(root).expect("the folder of a run is there"))]);
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(root.join(&folder)).expect("a folder can be listed") {
            let entry = entry.expect("a listing goes on");
            let path = folder.join(entry.file_name());
            if entry.file_type().expect("a listing has types").is_dir() {
                folders.push(path.clone());
            }
            found.insert(path.clone(), Shown::of(&root.join(&path)).expect("nobody else removes it"));
        }
    }
    found
}

fn data(root: &Path, tree: &Tree) -> Vec<Vec<u8>> {
    let files = tree.keys().filter(|path| fs::symlink_metadata(root.join(path)).is_ok_and(|found| found.is_file()));
    files.map(|path| fs::read(root.join(path)).expect("a file can be read")).collect()
}

/// Fails if the trees differ, or if other times have changed.
fn compare(before: &[Tree; 2], after: &[Tree; 2], told: &str) {
    let names = |tree: &Tree| tree.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&after[1]), names(&after[0]), "other names after {told}");
    for (path, reference) in &after[0] {
        let shown = &after[1][path];
        assert_eq!(shown.attributes(), reference.attributes(), "mode, links, size, owner of {path:?} after {told}");
        let (Some(reference_before), Some(shown_before)) = (before[0].get(path), before[1].get(path)) else { continue };
        let is_same = reference_before.number == reference.number;
        assert_eq!(shown_before.number == shown.number, is_same, "another object at {path:?} after {told}");
        if is_same {
            let times = |before: &Shown, after: &Shown| (before.modified != after.modified, before.changed != after.changed);
            let wanted = times(reference_before, reference);
            assert_eq!(times(shown_before, shown), wanted, "mtime and ctime of {path:?} changed by {told}");
        }
    }
}

fn run(seed: u64, times: &[u64], reference: PathBuf, mount: PathBuf, second: Option<&Path>) {
    let mut random = Random::new(seed);
    let mut sides = [Side::new(reference), Side::new(mount)];
    let trees = |sides: &[Side; 2]| [tree(&sides[0].root), tree(&sides[1].root)];
    let mut before = trees(&sides);
    for number in 1..=operations() {
        let (operation, fill) = (draw(&mut random, times), random.below(256) as u8);
        let told = format!("operation {number} of seed {seed}, {operation:?}");
        std::thread::sleep(TICK);
        let [wanted, result] = sides.each_mut().map(|side| side.run(&operation, fill));
        assert_eq!(result, wanted, "another result of {told}");
        let after = trees(&sides);
        compare(&before, &after, &told);
        if number % WHOLE_EACH == 0 {
            let wanted = data(&sides[0].root, &after[0]);
            assert!(data(&sides[1].root, &after[1]) == wanted, "other data after {told}");
            if let Some(second) = second {
                let shown = tree(second);
                assert_eq!(shown, after[1], "the second mount after {told}");
                assert!(data(second, &shown) == wanted, "other data in the second mount after {told}");
            }
        }
        before = after;
    }
}

fn seeds(usual: &[u64]) -> Vec<u64> {
    let Ok(text) = std::env::var("WEFT_LOCKSTEP_SEEDS") else { return usual.to_vec() };
    let parsed = text.split_once("..").and_then(|(from, to)| Some((from.parse().ok()?..to.parse().ok()?).collect()));
    parsed.unwrap_or_else(|| panic!("WEFT_LOCKSTEP_SEEDS is {text}, not as 100..200"))
}

fn operations() -> u64 {
    std::env::var("WEFT_LOCKSTEP_OPERATIONS").map_or(150, |text| text.parse().expect("WEFT_LOCKSTEP_OPERATIONS is a number"))
}

/// Two mounts with leases; in every second run directories are spread over both metadata servers.
/// Seed 14 found that a directory which was given an extended attribute kept its old time of change
/// in the mount that gave it.
#[test]
fn two_mounts_answer_as_a_local_file_system() {
    if !available("two_mounts_answer_as_a_local_file_system", &[Need::Fuse, Need::Root, Need::Kernel(6, 16)]) {
        return;
    }
    let fs = FileSystem::mounted(&["--meta", "2", "--data", "2", "-o", "leases"]);
    let second = fs.mount("second", "leases");
    for seed in seeds(&[5, 14]) {
        let folder = format!("seed{seed}");
        let (value, times) = if seed % 2 == 0 { ("1", &SET_TIMES[..]) } else { ("all", &SET_TIMES[..1]) };
        ok(weft().args(["hint", "set", "presplit", value]).arg(fs.at("/")));
        run(seed, times, fs.path(&format!("reference{seed}")), fs.mnt().join(&folder), Some(&second.join(&folder)));
    }
}

/// A mount without leases, which believes what it knows for a while, still knows its own changes.
#[test]
fn a_mount_without_leases_answers_as_a_local_file_system() {
    if !available("a_mount_without_leases_answers_as_a_local_file_system", &[Need::Fuse, Need::Root]) {
        return;
    }
    let fs = FileSystem::mounted(&["--meta", "2", "--data", "1", "-o", "cache_ms=1000"]);
    for seed in seeds(&[2]) {
        run(seed, &SET_TIMES, fs.path(&format!("reference{seed}")), fs.mnt().join(format!("seed{seed}")), None);
    }
}
