//! Programs that all want the same.

use std::fs::{self, File};

use serde_json::Value;
use weft_system_tests::verdict::{Round, told_of};

use crate::test;

/// What is named is the server, and that it is one directory or file.
#[track_caller]
fn assert_crowd(told: &[Value], place: &str, words: &str) {
    let first = &told[0];
    let is_said = first["sentence"].as_str().is_some_and(|sentence| sentence.contains(words));
    assert!(first["place"] == place && is_said, "{told:#?}");
}

/// Many threads make and remove names in one directory.
#[test]
#[ignore = "a campaign: what else the machine does can come first in a verdict"]
fn one_directory_for_everybody() {
    test("one_directory_for_everybody", &[], &["--meta", "2", "--data", "1"], |fs| {
        let crowd = fs.mnt().join("crowd");
        fs::create_dir(&crowd).expect("a directory");
        let server = fs.server_of(&crowd);
        let round: Round = |dir, number| {
            let name = format!("{}.{}", dir.file_name().expect("d and a number").display(), number % 8);
            let path = dir.with_file_name("crowd").join(name);
            let _ = File::create(&path).and_then(|_| fs::remove_file(&path));
        };
        let told = told_of(fs, (6, "2"), round, |_| ());
        assert_crowd(&told, &server, "one directory");
    });
}

/// Programs on two mounts replace what one file holds.
#[test]
#[ignore = "a campaign: what else the machine does can come first in a verdict"]
fn one_file_for_everybody() {
    test("one_file_for_everybody", &[], &["--meta", "2", "--data", "1"], |fs| {
        fs.mount("other", "");
        fs::write(fs.mnt().join("one"), "text").expect("a file");
        let server = fs.server_of(&fs.mnt());
        let round: Round = |dir, _| {
            let mount = dir.parent().expect("the mount");
            let is_here = dir.ends_with("d0") || dir.ends_with("d1");
            let mount = if is_here { mount.to_path_buf() } else { mount.with_file_name("other") };
            let _ = fs::write(mount.join("one"), "text");
        };
        let told = told_of(fs, (4, "2"), round, |_| ());
        assert_crowd(&told, &server, "one file");
    });
}
