//! Names of any bytes.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use weft_system_tests::{FileSystem, Need, available, fails, ok, weft};

/// Every byte that a name may have, in names of one byte and of many; the longest names; names that
/// programs trip over.
fn names() -> Vec<Vec<u8>> {
    let mut names: Vec<Vec<u8>> = (1..=255u8).filter(|byte| !b"/.".contains(byte)).map(|byte| vec![byte]).collect();
    names.push((1..=255u8).filter(|byte| *byte != b'/').collect());
    names.extend([&b"new\nline"[..], b"-rf", b"  ", b"...", b"tab\t", b"\xff\xfe not utf-8 \xc3\x28", b"\x1b[31mred"].map(<[u8]>::to_vec));
    names.extend(["x", "\u{e4}\u{20ac}"].map(|text| text.bytes().cycle().take(255).collect()));
    names
}

fn listed(dir: &Path) -> BTreeSet<OsString> {
    fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name()).collect()
}

#[test]
fn promise_any_name() {
    if !available("promise_any_name", &[Need::Fuse]) {
        return;
    }
    let fs = FileSystem::mounted(&["--meta", "2"]);
    let (files, dirs) = (fs.mnt().join("files"), fs.mnt().join("dirs"));
    fs::create_dir(&files).unwrap();
    fs::create_dir(&dirs).unwrap();
    let names = names();
    let os_names: Vec<&OsStr> = names.iter().map(|name| OsStr::from_bytes(name)).collect();
    for name in &os_names {
        fs::write(files.join(name), name.as_bytes()).unwrap_or_else(|error| panic!("{name:?}: {error}"));
        fs::create_dir(dirs.join(name)).unwrap_or_else(|error| panic!("{name:?}: {error}"));
        fs::write(dirs.join(name).join(name), b"deep").unwrap();
    }
    let all: BTreeSet<OsString> = os_names.iter().map(|name| name.to_os_string()).collect();
    for servers_new in [false, true] {
        if servers_new {
            // From the journal too.
            fs.kill("meta0");
            fs.kill("meta1");
            fs.start(&[]);
        }
        assert_eq!(listed(&files), all);
        assert_eq!(listed(&dirs), all);
        for name in &os_names {
            assert_eq!(fs::read(files.join(name)).unwrap(), name.as_bytes(), "{name:?}");
            assert_eq!(listed(&dirs.join(name)).into_iter().collect::<Vec<_>>(), [*name]);
        }
    }
    for name in &os_names {
        let other = files.join("other");
        fs::rename(files.join(name), &other).unwrap();
        fs::rename(&other, files.join(name)).unwrap();
        fs::remove_file(files.join(name)).unwrap();
        fs::remove_dir_all(dirs.join(name)).unwrap_or_else(|error| panic!("{name:?}: {error}"));
    }
    assert!(listed(&files).is_empty() && listed(&dirs).is_empty());

    // Commands show the bytes themselves.
    let strange = OsStr::from_bytes(b"a\xffb");
    fs::write(files.join(strange), b"").unwrap();
    let named = [fs.state().as_os_str().as_bytes(), b":/files/", strange.as_bytes()].concat();
    let shown = ok(weft().arg("stat").arg(OsStr::from_bytes(&named)));
    assert!(shown.contains("/files/a\\xffb\n"), "{shown}");
    fs::remove_file(files.join(strange)).unwrap();

    let too_long = files.join("x".repeat(256));
    let errno = |result: io::Result<()>| result.unwrap_err().raw_os_error();
    let name_too_long = Some(rustix::io::Errno::NAMETOOLONG.raw_os_error());
    assert_eq!(errno(fs::write(&too_long, b"")), name_too_long);
    assert_eq!(errno(fs::create_dir(&too_long)), name_too_long);
    assert_eq!(errno(fs::metadata(&too_long).map(drop)), name_too_long);
    fs::write(files.join("short"), b"").unwrap();
    assert_eq!(errno(fs::rename(files.join("short"), &too_long)), name_too_long);
    assert_eq!(errno(fs::hard_link(files.join("short"), &too_long)), name_too_long);
    assert_eq!(errno(std::os::unix::fs::symlink("short", &too_long)), name_too_long);
}

/// The commands that work without a mount take the same names.
#[test]
fn commands_take_any_name() {
    let fs = FileSystem::up(&[]);
    let source = fs.path("source");
    fs::create_dir(&source).unwrap();
    for name in names() {
        fs::write(source.join(OsStr::from_bytes(&name)), &name).unwrap();
    }
    ok(weft().arg("cp").arg("-r").arg(&source).arg(fs.at("/")));
    ok(weft().arg("cp").arg("-r").arg(fs.at("/source")).arg(fs.path("back")));
    ok(std::process::Command::new("diff").arg("-r").arg(&source).arg(fs.path("back")));
    let listing = ok(weft().arg("ls").arg(fs.at("/source")));
    assert!(listing.contains("new\\nline\n") && !listing.contains('\x1b'), "names are shown without harm to the terminal:\n{listing}");
    assert_eq!(listing.lines().count(), names().len());
    let refused = fails(weft().arg("mkdir").arg(fs.at(&format!("/{}", "x".repeat(256)))));
    assert!(refused.contains("longer than 255 bytes"), "{refused}");
    ok(weft().arg("rm").arg("-r").arg(fs.at("/source")));
    assert_eq!(ok(weft().arg("ls").arg(fs.at("/"))), "");
}

#[test]
fn commands_say_that_a_path_ends_without_a_name() {
    let fs = FileSystem::up(&["--data", "1"]);
    ok(weft().args(["mkdir", &fs.at("/dir")]));
    for path in ["/", "/dir/.."] {
        let at = fs.at(path);
        for command in [&["mkdir", &at][..], &["mv", &at, &fs.at("/new")], &["rm", "-r", &at], &["create", &at]] {
            let said = fails(weft().args(command));
            assert!(said.contains("ends without a name") && !said.contains("invalid"), "{command:?}: {said}");
        }
    }
    assert_eq!(ok(weft().args(["ls", &fs.at("/")])), "dir\n");
}

#[test]
fn a_slash_at_the_end_makes_no_file() {
    let fs = FileSystem::up(&["--data", "1"]);
    ok(weft().arg("create").arg(fs.at("/file")));
    ok(weft().arg("mkdir").arg(fs.at("/dir/")));
    for command in [
        vec!["create".into(), fs.at("/new/")],
        vec!["ln".into(), fs.at("/file"), fs.at("/new/")],
        vec!["ln".into(), "-s".into(), "file".into(), fs.at("/new/")],
        vec!["mv".into(), fs.at("/file"), fs.at("/new/")],
        vec!["mv".into(), fs.at("/file/"), fs.at("/new")],
    ] {
        assert!(fails(weft().args(&command)).contains("/: not a directory"), "{command:?}");
    }
    ok(weft().arg("mv").arg(fs.at("/dir/")).arg(fs.at("/new/")));
    ok(weft().arg("mv").arg(fs.at("/file")).arg(fs.at("/new/")));
    assert_eq!(ok(weft().arg("ls").arg(fs.at("/"))) + &ok(weft().arg("ls").arg(fs.at("/new"))), "new\nfile\n");
}
