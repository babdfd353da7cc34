//! A metadata server whose names and inodes are more than its memory is for.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::Path;
use std::time::Duration;

use weft_system_tests::{FileSystem, ok, wait_until, weft};

/// So many files with long names take some 1.4 MB.
const FILES: usize = 4000;
const MEMORY: u64 = 1 << 20;

/// Bytes of names and inodes in memory and in the page file.
fn page_bytes(fs: &FileSystem) -> (u64, u64) {
    let metrics = ok(weft().arg("metrics").arg("--once").arg(fs.state()));
    let value = |name: &str| {
        let line = metrics.lines().find(|line| line.starts_with(name) && line.contains("role=\"meta\"")).expect(name);
        line.rsplit(' ').next().unwrap().parse::<f64>().unwrap() as u64
    };
    (value("weft_page_memory_bytes"), value("weft_page_file_bytes"))
}

fn names(dir: &Path) -> BTreeSet<String> {
    fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// They are in a file, also after a kill and after a start in good order; when they are gone, it is
/// empty.
#[test]
fn promise_more_names_than_memory_are_served_from_a_file() {
    let fs = FileSystem::up(&["--meta", "1", "--data", "1", "--metadata-memory", "1MiB"]);
    let (there, back) = (fs.path("there"), fs.path("back"));
    fs::create_dir(&there).unwrap();
    for number in 0..FILES {
        File::create(there.join(format!("{number:0>200}"))).unwrap();
    }
    ok(weft().args(["cp", "-r"]).arg(&there).arg(fs.at("/many")));
    let (memory, file) = page_bytes(&fs);
    assert!(memory <= MEMORY && file > 0, "{memory} bytes in memory, {file} in the file");
    fs.kill("meta0");
    fs.start(&[]);
    ok(weft().args(["cp", "-r"]).arg(fs.at("/many")).arg(&back));
    assert_eq!(names(&back), names(&there));
    fs.down();
    fs.start(&[]);
    let (memory, file) = page_bytes(&fs);
    assert!(memory <= MEMORY && file > 0, "{memory} bytes in memory, {file} in the file after a start");
    ok(weft().args(["rm", "-r"]).arg(fs.at("/many")));
    // What was removed last is kept for a while, for those who have it open.
    wait_until("the file is empty", Duration::from_secs(60), || page_bytes(&fs).1 <= file / 4);
}
