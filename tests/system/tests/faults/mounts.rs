//! Mounts that stand still.

use std::fs;
use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;
use weft_system_tests::verdict::{Limited, told_of};
use weft_system_tests::{Need, signal};

use crate::{SHAPE, assert_named, files, names, test};

/// Nothing is answered that the kernel asks of it.
#[test]
#[ignore = "a campaign: what else the machine does can come first in a verdict"]
fn a_stopped_mount() {
    test("a_stopped_mount", &[], &SHAPE, |fs| {
        let pid = fs.mount_pid(&fs.mnt());
        let told = told_of(fs, (4, "2.5"), files, |goes_on| {
            goes_on(Duration::from_millis(500));
            signal(pid, Signal::STOP).expect("it runs");
            goes_on(Duration::from_millis(2000));
            signal(pid, Signal::CONT).expect("it runs");
        });
        assert_named(&told, &["no_answer"], "mount-mnt", &["no_answer"]);
    });
}

#[test]
#[ignore = "a campaign: what else the machine does can come first in a verdict"]
fn a_frozen_mount() {
    test("a_frozen_mount", &[Need::ControlGroup("freezer")], &SHAPE, |fs| {
        let limited = Limited::new("freezer", fs.mount_pid(&fs.mnt()), &[]);
        let told = told_of(fs, (4, "2.5"), files, |goes_on| {
            goes_on(Duration::from_millis(500));
            limited.set("freezer.state", "FROZEN");
            goes_on(Duration::from_millis(2000));
            limited.set("freezer.state", "THAWED");
        });
        assert_named(&told, &["no_answer"], "mount-mnt", &["no_answer"]);
    });
}

/// It has a lease on what others change, so they wait for it.
#[test]
#[ignore = "a campaign: what else the machine does can come first in a verdict"]
fn one_of_two_mounts_is_stopped() {
    test("one_of_two_mounts_is_stopped", &[], &["--meta", "1", "--data", "1"], |fs| {
        let other = fs.mount("other", "");
        let pid = fs.mount_pid(&other);
        let looks = |dir: &Path| {
            let _ = fs::read_dir(dir).map(|entries| entries.flatten().filter_map(|entry| entry.metadata().ok()).count());
        };
        let told = told_of(fs, (4, "2"), names, |goes_on| {
            for _ in 0..5 {
                (0..4).for_each(|number| looks(&other.join(format!("d{number}"))));
                goes_on(Duration::from_millis(60));
            }
            signal(pid, Signal::STOP).expect("it runs");
            while goes_on(Duration::from_millis(100)) {}
            signal(pid, Signal::CONT).expect("it runs");
        });
        assert_named(&told, &["no_answer"], "mount-other", &["no_answer"]);
    });
}
