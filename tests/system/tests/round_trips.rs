//! What a small file costs: requests to servers for each file when programs write whole trees. The
//! rate of such programs is the round trips that they wait for, one after the other, so a request
//! that comes back into this table is a slower `rsync`. Counts, not times: what the mount was told
//! under leases holds until somebody changes it, so a busy machine does not change them.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use weft_system_tests::{FileSystem, Need, available, ok, weft};

/// Directories of the tree, and files in each.
const DIRECTORIES: usize = 4;
const FILES_EACH: usize = 25;
const FILES: f64 = (DIRECTORIES * FILES_EACH) as f64;

fn mounted(test: &'static str, programs: &'static [&'static str]) -> Option<FileSystem> {
    mounted_with(test, programs, |file| 100 + 37 * file)
}

/// A mount, and a tree beside it whose files have so many bytes.
fn mounted_with(test: &'static str, programs: &'static [&'static str], bytes: impl Fn(usize) -> usize) -> Option<FileSystem> {
    if !available(test, &[Need::Fuse, Need::Kernel(6, 16), Need::Programs(programs)]) {
        return None;
    }
    let fs = FileSystem::mounted(&["--data", "1", "-o", "leases"]);
    // One in the other, so that each is made before the files of the one around it.
    let mut directory = fs.path("tree");
    for _ in 0..DIRECTORIES {
        directory.push("a");
        fs::create_dir_all(&directory).unwrap();
        for file in 0..FILES_EACH {
            fs::write(directory.join(format!("f{file}")), vec![b'x'; bytes(file)]).unwrap();
        }
    }
    Some(fs)
}

/// Requests for each file that the work costs. Those of looking at the numbers do not count, nor
/// those of background work.
fn requests_per_file(fs: &FileSystem, work: impl FnOnce()) -> BTreeMap<String, f64> {
    let before = fs.answered();
    work();
    let after = fs.answered();
    let background = ["Ping", "Live", "GetMap", "Trace", "CloseMany", "ObjectRemove", "ObjectRemoveMany"];
    let mut costs = BTreeMap::new();
    for (op, count) in after.into_iter().filter(|(op, _)| !background.contains(&op.as_str())) {
        let cost = (count - before.get(&op).unwrap_or(&0)) as f64 / FILES;
        if cost > 0.0 {
            costs.insert(op, cost);
        }
    }
    costs
}

/// Fails with the whole table if an operation costs more than allowed, or if one is there that the
/// list does not have.
fn check(what: &str, costs: &BTreeMap<String, f64>, allowed: &[(&str, f64)]) {
    println!("{what}: {:.2} requests for each file: {costs:.2?}", costs.values().sum::<f64>());
    for (op, cost) in costs {
        // Directories cost some, too: up to four requests each.
        let few = 4.0 * (DIRECTORIES + 1) as f64 / FILES;
        let most = allowed.iter().find(|(name, _)| name == op).map_or(0.0, |(_, most)| *most) + few;
        assert!(*cost <= most, "{what}: {cost:.2} {op} for each file, {most:.2} are allowed\n{costs:.2?}");
    }
}

fn same(fs: &FileSystem, copy: &Path) {
    ok(Command::new("diff").arg("-r").arg(fs.path("tree")).arg(copy));
}

/// `cp -a`: make, set owner, mode as an access control list, and times. Servers are told of files
/// some milliseconds after they were made, on a slow machine of each alone. What is written to
/// small files and set of them goes with the closes; a mount that gets no processor may lose a
/// lease.
#[test]
fn a_copied_file_costs_what_cp_asks_for() {
    let Some(fs) = mounted("a_copied_file_costs_what_cp_asks_for", &["cp", "diff"]) else { return };
    let copy = fs.mnt().join("copy");
    let costs = requests_per_file(&fs, || drop(ok(Command::new("cp").arg("-a").arg(fs.path("tree")).arg(&copy))));
    check("cp -a", &costs, &[("CreateMany", 1.0), ("SetAttr", 0.5), ("SetXattr", 0.25)]);
    same(&fs, &copy);
}

/// `tar`: as `cp`, with owner, mode and times each by itself. What the kernel asks on its own
/// before it changes an owner (mode, capabilities) costs no message.
#[test]
fn an_unpacked_file_costs_what_tar_asks_for() {
    let Some(fs) = mounted("an_unpacked_file_costs_what_tar_asks_for", &["tar", "diff"]) else { return };
    let archive = fs.path("tree.tar");
    ok(Command::new("tar").arg("--sort=name").arg("-cf").arg(&archive).arg("-C").arg(fs.path("")).arg("tree"));
    let costs = requests_per_file(&fs, || drop(ok(Command::new("tar").arg("xpf").arg(&archive).arg("-C").arg(fs.mnt()))));
    check("tar x", &costs, &[("CreateMany", 1.0), ("SetAttr", 0.5)]);
    same(&fs, &fs.mnt().join("tree"));
}

/// The same of files that data servers keep: what is written to them in pieces goes there before
/// they are closed, attributes with the close, and what data servers want to see comes with the
/// answer that tells of them. Of a mount that gets no processor servers have been told already when
/// some are written, which are opened then.
#[test]
fn a_larger_unpacked_file_is_one_write() {
    let test = "a_larger_unpacked_file_is_one_write";
    let Some(fs) = mounted_with(test, &["tar", "diff"], |file| 20_000 + 1000 * file) else { return };
    if has_little_room(&fs, test) {
        return;
    }
    let archive = fs.path("tree.tar");
    ok(Command::new("tar").arg("--sort=name").arg("-cf").arg(&archive).arg("-C").arg(fs.path("")).arg("tree"));
    // The mount has met a larger file.
    fs::write(fs.mnt().join("large"), [1; 20_000]).unwrap();
    let costs = requests_per_file(&fs, || drop(ok(Command::new("tar").arg("xpf").arg(&archive).arg("-C").arg(fs.mnt()))));
    check("tar x of larger files", &costs, &[("CreateMany", 1.0), ("Write", 1.1), ("SetAttr", 0.1), ("Open", 0.5)]);
    same(&fs, &fs.mnt().join("tree"));
}

/// `rsync`: a temporary name that is renamed. The names that are not there yet (file, temporary
/// file, target of the rename) are known to the mount, which has made the directory, also after
/// renames in it.
#[test]
fn a_synchronised_file_costs_what_rsync_asks_for() {
    let Some(fs) = mounted("a_synchronised_file_costs_what_rsync_asks_for", &["rsync", "diff"]) else { return };
    let copy = fs.mnt().join("copy");
    let source = format!("{}/", fs.path("tree").display());
    let rsync = || drop(ok(Command::new("rsync").arg("-aHAX").arg(&source).arg(&copy)));
    let costs = requests_per_file(&fs, rsync);
    // It sets mode and times when it has closed, and opens what it has written twice more: all that
    // meets the mount alone unless the close was faster.
    let asked =
        [("CreateMany", 1.0), ("SetAttr", 3.0), ("Open", 1.0), ("Close", 1.0), ("Rename", 1.0), ("GetAttr", 1.0), ("ListXattr", 1.0)];
    check("rsync -aHAX", &costs, &asked);
    same(&fs, &copy);
    // What is the same already is looked at by its names and attributes, which say that there are
    // no extended ones; it is opened to ask for these.
    let costs = requests_per_file(&fs, rsync);
    check("rsync -aHAX again", &costs, &[("Lookup", 1.0), ("Open", 1.0), ("GetAttr", 1.0)]);
}

/// Listing, and copying to elsewhere: a listing has the attributes of all files, and these say that
/// there are no extended ones.
#[test]
fn files_that_are_listed_cost_what_is_read_of_them() {
    let Some(fs) = mounted("files_that_are_listed_cost_what_is_read_of_them", &["cp", "ls", "diff"]) else { return };
    ok(weft().arg("cp").arg("-r").arg(fs.path("tree")).arg(fs.at("/tree")));
    let there = fs.mnt().join("tree");
    let costs = requests_per_file(&fs, || drop(ok(Command::new("ls").arg("-lR").arg(&there))));
    check("ls -lR", &costs, &[]);
    let back = fs.path("back");
    let costs = requests_per_file(&fs, || drop(ok(Command::new("cp").arg("-a").arg(&there).arg(&back))));
    check("cp -a to elsewhere", &costs, &[("Open", 1.0)]);
    same(&fs, &back);
}

/// `rm -r` of a tree that another program has made: the first file of a directory asks, and its
/// directory; what others removed there servers are told together.
#[test]
fn a_removed_file_is_a_share_of_a_message() {
    let Some(fs) = mounted("a_removed_file_is_a_share_of_a_message", &["rm"]) else { return };
    ok(weft().arg("cp").arg("-r").arg(fs.path("tree")).arg(fs.at("/tree")));
    let costs = requests_per_file(&fs, || drop(ok(Command::new("rm").arg("-r").arg(fs.mnt().join("tree")))));
    check("rm -r", &costs, &[("CreateMany", 0.3), ("Unlink", 0.3)]);
    assert_eq!(fs::read_dir(fs.mnt()).unwrap().count(), 0);
    assert_eq!(ok(weft().arg("ls").arg(fs.at("/"))), "");
}

/// Extended attributes that are set at once are seen at once, although files are known to have
/// none.
#[test]
fn a_file_shows_the_attribute_that_it_is_given() {
    let Some(fs) = mounted("a_file_shows_the_attribute_that_it_is_given", &[]) else { return };
    let (file, second) = (fs.mnt().join("file"), fs.mount("second", "cache_ms=0").join("file"));
    fs::write(&file, b"x").unwrap();
    let mut value = [0; 16];
    // As often as a listing or a look-up has said that there is none.
    for round in 0..3 {
        assert_eq!(fs::read_dir(fs.mnt()).unwrap().count(), 1);
        assert_eq!(fs::metadata(&file).unwrap().len(), 1);
        assert_eq!(rustix::fs::listxattr(&file, &mut value[..]), Ok(0), "round {round}");
        assert_eq!(rustix::fs::listxattr(&second, &mut value[..]), Ok(0), "round {round}");
        rustix::fs::setxattr(&file, "user.size", b"1", rustix::fs::XattrFlags::empty()).unwrap();
        for path in [&file, &second] {
            assert_eq!(rustix::fs::getxattr(path, "user.size", &mut value[..]), Ok(1), "round {round}");
        }
        rustix::fs::removexattr(&file, "user.size").unwrap();
    }
    let absent = |name: &str| rustix::fs::getxattr(&file, name, &mut [0; 16]).err();
    assert_eq!(absent("user.colour"), Some(rustix::io::Errno::NODATA));
    // `ls -l` asks for labels until it hears that there are none at all.
    assert_eq!(fs::read_dir(fs.mnt()).unwrap().filter_map(|entry| entry.unwrap().metadata().ok()).count(), 1);
    assert_eq!(absent("security.selinux"), Some(rustix::io::Errno::OPNOTSUPP));
    rustix::fs::setxattr(&file, "user.colour", b"red", rustix::fs::XattrFlags::empty()).unwrap();
    assert_eq!(rustix::fs::getxattr(&file, "user.colour", &mut value[..]), Ok(3));
    assert_eq!(&value[..3], b"red");
    assert_eq!(absent("security.selinux"), Some(rustix::io::Errno::NODATA));
    assert_eq!(rustix::fs::listxattr(&file, &mut value[..]), Ok("user.colour\0".len()));
}

/// A program that writes a long file in small pieces: they go to data servers together.
#[test]
fn a_stream_is_written_in_large_messages() {
    let test = "a_stream_is_written_in_large_messages";
    let Some(fs) = mounted(test, &["dd"]) else { return };
    if has_little_room(&fs, test) {
        return;
    }
    // The mount has met a larger file.
    fs::write(fs.mnt().join("large"), [1; 20_000]).unwrap();
    let before = fs.answered_of(&["Write"]);
    ok(Command::new("dd").args(["if=/dev/zero", "bs=16k", "count=1024"]).arg(format!("of={}", fs.mnt().join("stream").display())));
    let writes = fs.answered_of(&["Write"]) - before;
    assert_eq!(fs::metadata(fs.mnt().join("stream")).unwrap().len(), 16 << 20);
    // At most 32 parts of half a MiB or more, each one message or two.
    assert!((4..=70).contains(&writes), "{writes} messages for 1024 writes");
}

fn has_little_room(fs: &FileSystem, test: &str) -> bool {
    let space = rustix::fs::statvfs(fs.path("").as_path()).unwrap();
    let is_little = space.f_bavail * space.f_frsize < 4 << 30;
    if is_little {
        println!("{test}: skipped, nothing is gathered on a disk with so little room");
    }
    is_little
}
