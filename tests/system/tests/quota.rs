//! What users and projects take, through a mount and `weft quota`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use weft_system_tests::{FileSystem, Mapping, Need, NfsGateway, as_user, available, built, fails, ok, run, wait_until, weft};

const EDQUOT: i32 = 122;
const EXDEV: i32 = 18;
const PATIENCE: Duration = Duration::from_secs(20);
/// Inodes and bytes of a user.
type Taken = (u64, u64);

/// What everybody takes, as the servers say.
fn told(fs: &FileSystem) -> BTreeMap<u64, Taken> {
    let rows: Value = serde_json::from_str(&ok(weft().args(["quota", "list", "--json"]).arg(fs.state()))).expect("JSON");
    let number = |row: &Value, key: &str| row[key].as_u64().expect("a number");
    let users = rows.as_array().expect("a list").iter().filter(|row| row["project"].is_null());
    users.map(|row| (number(row, "user"), (number(row, "inodes"), number(row, "bytes")))).collect()
}

/// What everybody takes, by a walk.
fn walked(root: &Path) -> BTreeMap<u64, Taken> {
    let (mut users, mut dirs, mut seen) = (BTreeMap::<u64, Taken>::new(), vec![root.to_path_buf()], BTreeSet::new());
    let mut count = |of: &fs::Metadata| {
        // A file with two names is one.
        if !seen.insert(of.ino()) {
            return;
        }
        let user = users.entry(u64::from(of.uid())).or_default();
        *user = (user.0 + 1, user.1 + of.blocks() * 512);
    };
    count(&fs::metadata(root).unwrap());
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
            let of = entry.metadata().unwrap();
            count(&of);
            if of.is_dir() {
                dirs.push(entry.path());
            }
        }
    }
    users
}

#[test]
fn sums_by_user_are_those_of_a_walk() {
    if !available("sums_by_user_are_those_of_a_walk", &[Need::Root, Need::Fuse]) {
        return;
    }
    let system = FileSystem::mounted(&["--meta", "2", "--data", "2"]);
    let mnt = system.mnt();
    fs::set_permissions(&mnt, PermissionsExt::from_mode(0o777)).unwrap();
    for uid in [1001, 1002] {
        as_user(uid, &[uid], || {
            let dir = mnt.join(format!("of {uid}"));
            for number in 0..8 {
                fs::create_dir_all(dir.join(format!("{number}"))).unwrap();
                fs::write(dir.join(format!("{number}/file")), vec![1; 3000 * number]).unwrap();
            }
            symlink("0", dir.join("link")).unwrap();
            fs::hard_link(dir.join("1/file"), dir.join("second")).unwrap();
            // A hole takes nothing.
            File::create(dir.join("hole")).unwrap().set_len(1 << 30).unwrap();
            fs::remove_file(dir.join("7/file")).unwrap();
            File::options().write(true).open(dir.join("6/file")).unwrap().set_len(100).unwrap();
        });
    }
    chown(mnt.join("of 1001/5/file"), Some(1003), None).unwrap();
    let same = || told(&system) == walked(&mnt);
    wait_until("the sums are those of a walk", PATIENCE, same);
    assert_eq!(walked(&mnt)[&1003], (1, 16384));

    // A file without a name counts as long as somebody has it open.
    let open = as_user(1002, &[1002], || File::open(mnt.join("of 1002/4/file")).unwrap());
    fs::remove_file(mnt.join("of 1002/4/file")).unwrap();
    let (all, named) = (told(&system)[&1002], walked(&mnt)[&1002]);
    assert_eq!(all, (named.0 + 1, named.1 + 12288));
    drop(open);
    wait_until("it is removed", PATIENCE, same);

    // Sums follow from the inodes, so every start builds them anew.
    for server in ["meta0", "meta1"] {
        system.kill(server);
    }
    system.start(&[]);
    wait_until("the sums are those of a walk after a restart", PATIENCE, same);

    as_user(1001, &[1001], || assert!(fs::metadata(&mnt).is_ok()));
    let row: Value = serde_json::from_str(&ok(weft().args(["quota", "show", "--user", "1001", "--json"]).arg(system.state()))).unwrap();
    assert_eq!(row["inodes"], told(&system)[&1001].0);
    let nobody: Value = serde_json::from_str(&ok(weft().args(["quota", "show", "--user", "77", "--json"]).arg(system.state()))).unwrap();
    assert_eq!((&nobody["inodes"], &nobody["bytes"]), (&Value::from(0), &Value::from(0)));
    // A key for others is told nothing.
    let key = system.path("others.key");
    ok(weft().args(["key", "add", "others", "--users", "2000-2999", "--output"]).arg(&key).arg("--state").arg(system.state()));
    fails(weft().args(["quota", "list"]).arg(system.state()).arg("--key-file").arg(&key));
}

/// Makes files with this prefix until that is refused; returns how many, and why.
fn fill(dir: &Path, prefix: &str) -> (u64, Option<i32>) {
    for number in 0.. {
        if let Err(error) = File::create_new(dir.join(format!("{prefix}{number}"))) {
            return (number, error.raw_os_error());
        }
    }
    unreachable!("names do not end")
}

fn set_bytes(fs: &FileSystem, user: &str, bytes: &str) -> String {
    ok(weft().args(["quota", "set", "--user", user, "--bytes", bytes]).arg(fs.state()))
}

/// What is told of one user.
fn shown(fs: &FileSystem, user: &str) -> Value {
    serde_json::from_str(&ok(weft().args(["quota", "show", "--user", user, "--json"]).arg(fs.state()))).expect("JSON")
}

fn set(fs: &FileSystem, user: &str, inodes: &str) -> String {
    ok(weft().args(["quota", "set", "--user", user, "--inodes", inodes]).arg(fs.state()))
}

#[test]
fn promise_quota_refuses_through_every_door() {
    if !available("promise_quota_refuses_through_every_door", &[Need::Root, Need::Fuse]) {
        return;
    }
    let system = FileSystem::mounted(&["--meta", "3", "--data", "2"]);
    let (mnt, second) = (system.mnt(), system.mount("second", ""));
    fs::set_permissions(&mnt, PermissionsExt::from_mode(0o777)).unwrap();
    set(&system, "1001", "40");
    // Files and directories in directories on all servers, by two mounts at once.
    let made: u64 = std::thread::scope(|scope| {
        let makers = [&mnt, &second].map(|root| {
            scope.spawn(move || {
                as_user(1001, &[1001], || {
                    let (mut made, mut refused) = (0, 0);
                    for number in 0..100 {
                        let dir = root.join(format!("{} {number}", root.file_name().unwrap().display()));
                        match fs::create_dir(&dir).and_then(|()| File::create_new(dir.join("file")).inspect_err(|_| made += 1)) {
                            Ok(_) => made += 2,
                            Err(error) => {
                                assert_eq!(error.raw_os_error(), Some(EDQUOT), "{error}");
                                refused += 1;
                            }
                        }
                    }
                    assert!(refused > 0);
                    made
                })
            })
        });
        makers.into_iter().map(|maker| maker.join().unwrap()).sum()
    });
    assert_eq!(made, 40, "exactly at the limit");
    assert_eq!(told(&system)[&1001].0, 40);
    as_user(1001, &[1001], || {
        assert_eq!(symlink("x", mnt.join("link")).unwrap_err().raw_os_error(), Some(EDQUOT));
        assert_eq!(fs::hard_link(mnt.join("mnt 0/file"), mnt.join("second name")).ok(), Some(()), "a name is no inode");
        assert!(fs::write(mnt.join("mnt 0/file"), b"content").is_ok(), "what is there may be written");
        assert!(File::options().create(true).append(true).open(mnt.join("mnt 0/file")).is_ok());
        // What is removed by one mount may be made by the other at once.
        fs::remove_file(second.join("second 0/file")).unwrap();
        File::create_new(mnt.join("after it")).unwrap();
        assert_eq!(fill(&second, "no"), (0, Some(EDQUOT)));
    });
    // Others are not concerned, nor is root.
    as_user(1002, &[1002], || File::create_new(mnt.join("of another")).unwrap());
    File::create_new(mnt.join("of root")).unwrap();
    let words = fails(weft().args(["quota", "set", "--user", "0", "--inodes", "5"]).arg(system.state()));
    assert!(words.contains("invalid"), "{words}");
    let words = fails(weft().args(["quota", "set", "--user", "1000"]).arg(system.state()));
    assert!(words.contains("--inodes") && words.contains("--bytes"), "either is enough: {words}");

    // The limit outlives all servers.
    for server in ["meta0", "meta1", "meta2"] {
        system.kill(server);
    }
    system.start(&[]);
    as_user(1001, &[1001], || assert_eq!(fill(&mnt, "no"), (0, Some(EDQUOT))));
    if available("promise_quota_refuses_through_every_door", &[Need::Programs(&["nfs-cp"])]) {
        fs::create_dir(mnt.join("nfs")).unwrap();
        fs::set_permissions(mnt.join("nfs"), PermissionsExt::from_mode(0o777)).unwrap();
        let gateway = NfsGateway::start(&system, 0, &["/"]);
        let local = system.path("local");
        fs::write(&local, "x").unwrap();
        let copy = |user: u32| {
            let url = format!("{}&uid={user}&gid={user}", gateway.url(&format!("/nfs/{user}")));
            run(Command::new("nfs-cp").arg(&local).arg(url), PATIENCE)
        };
        let refused = copy(1001);
        assert!(!refused.is_success() && refused.words().contains("DQUOT"), "{}", refused.words());
        assert!(copy(1002).is_success(), "of another");
    }
    set(&system, "1001", "45");
    as_user(1001, &[1001], || assert_eq!(fill(&mnt, "more"), (5, Some(EDQUOT))));

    // Without a mount, and without a kernel.
    let shown: Value = serde_json::from_str(&ok(weft().args(["quota", "show", "--user", "1001", "--json"]).arg(system.state()))).unwrap();
    assert_eq!((&shown["inodes"], &shown["inodes_max"]), (&Value::from(45), &Value::from(45)));
    set(&system, "1001", "none");
    as_user(1001, &[1001], || assert!((0..20).all(|number| File::create_new(mnt.join(format!("free {number}"))).is_ok())));
}

/// Writes blocks to a file until that is refused; returns how many, and why.
fn write_on(path: &Path, block: usize) -> (u64, Option<i32>) {
    let mut file = File::options().create(true).append(true).open(path).expect("it opens");
    for number in 0.. {
        if let Err(error) = file.write_all(&vec![number as u8; block]) {
            return (number, error.raw_os_error());
        }
    }
    unreachable!("disks end")
}

#[test]
fn promise_quota_of_bytes_refuses_through_every_door() {
    const TEST: &str = "promise_quota_of_bytes_refuses_through_every_door";
    const MAX: u64 = 24 << 20;
    if !available(TEST, &[Need::Root, Need::Fuse]) {
        return;
    }
    let system = FileSystem::mounted(&["--meta", "2", "--data", "2"]);
    let (mnt, second) = (system.mnt(), system.mount("second", ""));
    fs::set_permissions(&mnt, PermissionsExt::from_mode(0o777)).unwrap();
    // A kernel that hears of changes while it asks for attributes drops the answer, and judges by
    // the mode of before: it shall know this one.
    assert_eq!(fs::metadata(&second).expect("it is mounted").permissions().mode() & 0o777, 0o777);
    assert!(set_bytes(&system, "1001", "24M").contains("may have 24.0 MiB"));
    // In directories on all servers, by several programs of two mounts at once.
    std::thread::scope(|scope| {
        for number in 0..6 {
            let root = [&mnt, &second][number % 2];
            scope.spawn(move || {
                as_user(1001, &[1001], || {
                    let dir = root.join(format!("dir {number}"));
                    fs::create_dir(&dir).unwrap();
                    let (blocks, error) = write_on(&dir.join("file"), 100_000);
                    assert_eq!(error, Some(EDQUOT), "after {blocks} blocks");
                    // Whoever waits for what he wrote finds all of it.
                    let written = fs::read(dir.join("file")).unwrap();
                    let blocks = blocks as usize;
                    assert!(written.len() >= blocks * 100_000, "{} bytes of {blocks} blocks", written.len());
                    assert!((0..blocks).all(|block| written[block * 100_000..][..100_000].iter().all(|byte| *byte == block as u8)));
                });
            });
        }
    });
    let same = || told(&system) == walked(&mnt);
    wait_until("the sums are those of a walk", PATIENCE, same);
    assert!(told(&system)[&1001].1 <= MAX);
    as_user(1001, &[1001], || assert_eq!(write_on(&mnt.join("last"), 4096).1, Some(EDQUOT)));
    let full = |system: &FileSystem| {
        let row = shown(system, "1001");
        (row["bytes"].as_u64(), row["bytes_reserved"].as_u64(), row["bytes_max"].as_u64()) == (Some(MAX), Some(0), Some(MAX))
    };
    // What the last close gives back its server hears of some milliseconds later.
    wait_until("exactly at the limit, with nothing reserved", PATIENCE, || full(&system));
    assert_eq!(shown(&system, "1001")["inodes_max"], Value::Null, "inodes are another matter");

    as_user(1001, &[1001], || {
        // What is there may be written, but nothing more, in whatever way.
        let file = File::options().read(true).write(true).open(mnt.join("last")).unwrap();
        file.write_all_at(b"again", 0).unwrap();
        let behind = file.metadata().unwrap().len();
        assert_eq!(file.write_all_at(&[1; 5000], behind).unwrap_err().raw_os_error(), Some(EDQUOT));
        let reserve = rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), behind, 1 << 20);
        assert_eq!(reserve.unwrap_err().raw_os_error(), EDQUOT);
        file.set_len(behind + (1 << 30)).expect("a hole takes nothing");
        file.sync_all().unwrap();
        let mapping = Mapping::shared(&file, behind as usize + (1 << 20), true).unwrap();
        mapping.write(behind as usize + (1 << 19), b"where a hole is");
        assert_eq!(mapping.sync().unwrap_err().raw_os_error(), Some(EDQUOT), "a mapping hears of it when it is brought out");
        drop(mapping);
        assert!(fs::copy(mnt.join("dir 0/file"), second.join("copy")).unwrap_err().raw_os_error() == Some(EDQUOT));
        fs::remove_file(second.join("copy")).unwrap();
        // What is given back is there for the other mount at once.
        file.set_len(0).unwrap();
        drop(file);
        fs::remove_file(second.join("dir 1/file")).unwrap();
        fs::write(second.join("after it"), vec![1; 8192]).unwrap();
        write_on(&mnt.join("fill"), 4096);
    });
    wait_until("it is full again", PATIENCE, || full(&system));
    // Others are not concerned, nor are files of root.
    as_user(1002, &[1002], || fs::write(mnt.join("of another"), vec![1; 1 << 20]).unwrap());
    fs::write(mnt.join("of root"), vec![1; 1 << 20]).unwrap();

    // The limit outlives all servers, and clients that wrote.
    for server in ["meta0", "meta1", "data0", "data1"] {
        system.kill(server);
    }
    system.start(&[]);
    as_user(1001, &[1001], || assert_eq!(write_on(&mnt.join("fill"), 4096), (0, Some(EDQUOT))));
    // A library in a program that nobody has changed; whoever writes, it is the owner of the file
    // who is limited.
    built("weft-preload", "libweft_preload.so");
    let words = fails(weft().arg("preload").arg(system.state()).args(["--", "sh", "-c", "cat /etc/passwd >> '/weft/fill'"]));
    assert!(words.contains("quota"), "{words}");
    if available(TEST, &[Need::Programs(&["nfs-cp"])]) {
        fs::create_dir(mnt.join("nfs")).unwrap();
        fs::set_permissions(mnt.join("nfs"), PermissionsExt::from_mode(0o777)).unwrap();
        let gateway = NfsGateway::start(&system, 0, &["/"]);
        let local = system.path("local");
        fs::write(&local, vec![5; 100_000]).unwrap();
        let copy = |user: u32| {
            let url = format!("{}&uid={user}&gid={user}", gateway.url(&format!("/nfs/{user}")));
            run(Command::new("nfs-cp").arg(&local).arg(url), PATIENCE)
        };
        // It does not say why.
        assert!(!copy(1001).is_success());
        assert_eq!(fs::metadata(mnt.join("nfs/1001")).unwrap().blocks(), 0, "nothing was written");
        assert!(copy(1002).is_success(), "of another");
    }
    set_bytes(&system, "1001", "none");
    as_user(1001, &[1001], || fs::write(mnt.join("free"), vec![1; 30 << 20]).unwrap());
}

/// Sets or removes the project of a tree.
fn set_project(fs: &FileSystem, number: &str, dir: &str) -> String {
    ok(weft().args(["quota", "project", number]).arg(format!("{}:{dir}", fs.state().display())))
}

fn limit_project(fs: &FileSystem, what: &str, most: &str) {
    ok(weft().args(["quota", "set", "--project", "7", what, most]).arg(fs.state()));
}

#[test]
fn a_project_is_a_limit_for_a_tree() {
    const TEST: &str = "a_project_is_a_limit_for_a_tree";
    if !available(TEST, &[Need::Root, Need::Fuse]) {
        return;
    }
    let system = FileSystem::mounted(&["--meta", "3", "--data", "2"]);
    let mnt = system.mnt();
    let (tree, outside) = (mnt.join("tree"), mnt.join("outside"));
    for dir in [&tree, &outside] {
        fs::create_dir(dir).unwrap();
        fs::set_permissions(dir, PermissionsExt::from_mode(0o777)).unwrap();
    }
    fs::create_dir(tree.join("below")).unwrap();
    fs::write(tree.join("below/before"), vec![1; 100_000]).unwrap();
    symlink("before", tree.join("below/link")).unwrap();
    assert_eq!(set_project(&system, "7", "/tree"), "4 objects count for project 7\n");
    let shown = || -> Value {
        serde_json::from_str(&ok(weft().args(["quota", "show", "--project", "7", "--json"]).arg(system.state()))).expect("JSON")
    };
    assert_eq!((&shown()["project"], &shown()["inodes"]), (&Value::from(7), &Value::from(4)));
    assert_eq!(shown()["bytes"], 102_400, "in whole blocks");

    // Inodes: of everybody, in all directories, by every door.
    limit_project(&system, "--inodes", "40");
    let mut made = 0;
    as_user(1001, &[1001], || {
        for number in 0..100 {
            match fs::create_dir(tree.join(format!("d{number}"))) {
                Ok(()) => made += 1 + fill_some(&tree.join(format!("d{number}")), 2),
                Err(error) => assert_eq!(error.raw_os_error(), Some(EDQUOT), "{error}"),
            }
        }
    });
    assert_eq!(made, 36, "exactly at the limit");
    assert_eq!(File::create_new(tree.join("of root")).unwrap_err().raw_os_error(), Some(EDQUOT));
    assert_eq!(symlink("x", tree.join("link")).unwrap_err().raw_os_error(), Some(EDQUOT));
    File::create_new(outside.join("of root")).unwrap();
    built("weft-preload", "libweft_preload.so");
    let words = fails(weft().arg("preload").arg(system.state()).args(["--", "sh", "-c", "echo > /weft/tree/preloaded"]));
    assert!(words.contains("quota"), "{words}");

    // Names do not come in, but copies do.
    limit_project(&system, "--inodes", "45");
    fs::write(outside.join("file"), "content").unwrap();
    let moved = fs::rename(outside.join("file"), tree.join("file"));
    assert_eq!(moved.unwrap_err().raw_os_error(), Some(EXDEV));
    assert_eq!(fs::hard_link(outside.join("file"), tree.join("file")).unwrap_err().raw_os_error(), Some(EXDEV));
    ok(Command::new("mv").arg(outside.join("file")).arg(tree.join("file")));
    assert_eq!(fs::read_to_string(tree.join("file")).unwrap(), "content");
    fs::rename(tree.join("file"), outside.join("out")).unwrap();
    wait_until("what went out counts as before", PATIENCE, || shown()["inodes"] == 41);
    let stat = ok(weft().arg("stat").arg(format!("{}:/outside/out", system.state().display())));
    assert!(stat.contains("project:  7"), "{stat}");
    as_user(1001, &[1001], || {
        let denied = rustix::fs::setxattr(tree.join("d0"), "user.weft.project", b"8", rustix::fs::XattrFlags::empty());
        assert_eq!(denied.unwrap_err(), rustix::io::Errno::PERM);
    });

    // Bytes, and what `df` shows of them.
    limit_project(&system, "--bytes", "8M");
    as_user(1001, &[1001], || assert_eq!(write_on(&tree.join("large"), 50_000).1, Some(EDQUOT)));
    let space = |dir: &Path| rustix::fs::statvfs(dir).expect("it is mounted");
    let (within, all) = (space(&tree.join("below")), space(&mnt));
    assert_eq!(within.f_blocks * within.f_frsize, 8 << 20);
    assert!(within.f_bfree * within.f_frsize < 1 << 20, "{} blocks", within.f_bfree);
    assert!(all.f_blocks > within.f_blocks && all.f_bfree > within.f_bfree);
    assert_eq!((within.f_files, within.f_ffree), (45, 3));
    fs::write(outside.join("large"), vec![1; 10 << 20]).unwrap();

    // It outlives all servers, in a checkpoint and in a journal.
    for server in ["meta0", "meta1", "meta2", "data0", "data1"] {
        system.kill(server);
    }
    system.start(&[]);
    assert_eq!((&shown()["inodes_max"], &shown()["bytes_max"]), (&Value::from(45), &Value::from(8 << 20)));
    assert_eq!(write_on(&tree.join("large"), 4096 * 300).1, Some(EDQUOT));
    let list = ok(weft().args(["quota", "list"]).arg(system.state()));
    assert!(list.contains("project") && list.contains("8.0 MiB"), "{list}");
    set_project(&system, "none", "/tree");
    wait_until("only what went out counts", PATIENCE, || shown()["inodes"] == 1);
    fs::write(tree.join("free"), vec![1; 10 << 20]).unwrap();
    assert!(space(&tree).f_blocks * space(&tree).f_frsize > 8 << 20);
}

/// Makes so many files in a directory, or fewer if that is refused; returns how many.
fn fill_some(dir: &Path, most: u64) -> u64 {
    (0..most).take_while(|number| File::create_new(dir.join(format!("f{number}"))).is_ok()).count() as u64
}
