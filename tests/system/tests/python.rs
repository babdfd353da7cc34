//! The Python package, as a user meets it: one wheel, installed into a folder, its tests run by an
//! interpreter against servers. The tests are in `gateways/python/tests`.

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;
use weft_system_tests::{FileSystem, Need, available, built, ok, run, skip, weft};

/// What the package needs.
const PYTHON: (u32, u32) = (3, 11);

fn source() -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../gateways/python")).to_path_buf()
}

fn python() -> Command {
    let mut command = Command::new("python3");
    command.args(["-B", "-s"]);
    command
}

/// A folder with the package in it, installed from its wheel; `None`, and a word about it, without
/// a Python that is new enough.
fn installed(test: &str) -> Option<TempDir> {
    if !available(test, &[Need::Programs(&["python3"])]) {
        return None;
    }
    let (major, minor) = PYTHON;
    let question = format!("import sys; sys.exit(sys.version_info < ({major}, {minor}))");
    if !run(python().args(["-c", &question]), std::time::Duration::from_secs(60)).is_success() {
        skip(test, &format!("it needs Python {major}.{minor}"));
        return None;
    }
    let library = built("weft-python", "libweft_python.so");
    let dir = tempfile::tempdir().expect("a temporary folder");
    let wheel = ok(python().arg(source().join("wheel.py")).arg(library).arg(dir.path()));
    // What `pip install` does with a wheel that has no scripts and needs nothing.
    ok(python().args(["-m", "zipfile", "-e", wheel.trim()]).arg(dir.path().join("site")));
    Some(dir)
}

#[test]
fn the_package_does_what_its_tests_say() {
    let Some(dir) = installed("the_package_does_what_its_tests_say") else { return };
    let fs = FileSystem::up(&["--meta", "2", "--data", "2"]);
    let mut tests = python();
    tests.args(["-W", "error", "-m", "unittest", "discover", "-s"]).arg(source().join("tests"));
    // A fork beside threads is what the tests are about.
    tests.args(["-p", "test_*.py"]).env("PYTHONWARNINGS", "ignore::DeprecationWarning");
    ok(tests.env("PYTHONPATH", dir.path().join("site")).env("WEFT_TEST_FS", fs.state()));
    assert_eq!(ok(weft().arg("ls").arg(fs.at("/"))), "", "the tests clean up");
}

#[test]
fn the_wheel_is_what_installers_expect() {
    let Some(dir) = installed("the_wheel_is_what_installers_expect") else { return };
    // The record names every file with its digest, and the entry point of fsspec is found.
    let check = r#"
import base64, csv, hashlib, importlib.metadata, pathlib, sys
site = pathlib.Path(sys.argv[1])
found = importlib.metadata.distribution("weft")
recorded = {row[0]: row[1] for row in csv.reader((site / f"weft-{found.version}.dist-info/RECORD").open())}
files = {str(path.relative_to(site)) for path in site.rglob("*") if path.is_file()}
assert files == set(recorded), (files, recorded)
for name, digest in recorded.items():
    data = hashlib.sha256((site / name).read_bytes()).digest()
    assert not digest or digest == "sha256=" + base64.urlsafe_b64encode(data).rstrip(b"=").decode(), name
(point,) = [point for point in found.entry_points if point.group == "fsspec.specs"]
assert point.name == "weft" and point.load().protocol == "weft"
assert {"weft/py.typed", "weft/__init__.pyi"} <= files
import weft
assert weft.__version__ == found.version
"#;
    ok(python().arg("-c").arg(check).arg(dir.path().join("site")).env("PYTHONPATH", dir.path().join("site")));
    if !run(python().args(["-m", "pip", "--version"]), std::time::Duration::from_secs(60)).is_success() {
        return skip("the_wheel_is_what_installers_expect", "pip is not there to install it");
    }
    let wheel = std::fs::read_dir(dir.path()).unwrap().flatten().map(|entry| entry.path());
    let wheel = wheel.filter(|path| path.extension().is_some_and(|extension| extension == "whl")).last().expect("a wheel");
    let mut pip = python();
    pip.args(["-m", "pip", "install", "-q", "--no-index", "--no-deps", "--disable-pip-version-check", "--target"]);
    ok(pip.arg(dir.path().join("pip")).arg(wheel));
    ok(python().args(["-c", "import weft"]).env("PYTHONPATH", dir.path().join("pip")));
}

#[test]
fn a_silent_server_ends_a_call_in_time() {
    let Some(dir) = installed("a_silent_server_ends_a_call_in_time") else { return };
    let fs = FileSystem::up(&["--meta", "1", "--data", "1"]);
    let program = r#"
import os, signal, sys, weft
fs = weft.FileSystem(sys.argv[1], timeout=1)
fs.write_bytes("/file", b"words")
file = fs.open("/file", "rb", buffering=0)
server = int(sys.argv[2])
os.kill(server, signal.SIGSTOP)
try:
    for call in (lambda: fs.stat("/file"), lambda: fs.read_many(["/file"]), lambda: fs.write_bytes("/new", b"x"), file.stat):
        try:
            call()
        except TimeoutError as error:
            assert sys.argv[3] in str(error) and "weft status" in str(error), error
        else:
            raise AssertionError("an answer of a server that is stopped")
finally:
    os.kill(server, signal.SIGCONT)
assert fs.read_bytes("/file") == b"words"
file.close()
fs.close()
"#;
    let server = fs.pid("meta0").expect("it runs").to_string();
    let mut python = python();
    python.arg("-c").arg(program).arg(fs.state()).args([&server, "meta0"]);
    ok(python.env("PYTHONPATH", dir.path().join("site")));
}
