//! Disks of a server's own: throttled, full, failing.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::Command;

use rustix::fs::{XattrFlags, fsetxattr};
use serde_json::Value;
use weft_system_tests::verdict::{Limited, OwnDisk, Round, told_of};
use weft_system_tests::{FileSystem, Need, available};

use crate::{ALONE, SHAPE, assert_named, files, names_above};

const DISKS: [&str; 3] = ["disk_no_seek", "disk_near", "disk_far"];

fn synced(dir: &Path, number: u32) {
    let written =
        File::create(dir.join(format!("s{}", number % 8))).and_then(|mut file| file.write_all(&[7; 65_536]).and_then(|()| file.sync_all()));
    let _ = written;
}

/// With the store of this server on a disk of its own.
fn with_disk(
    name: &str,
    needs: &[Need],
    (server, round): (&str, Round),
    more: &[&str],
    assert: impl FnOnce(&[Value]),
    fault: impl FnOnce(&FileSystem, &OwnDisk) -> Option<Limited>,
) {
    if !available(name, &[&[Need::Fuse, Need::LoopDevice], needs].concat()) {
        return;
    }
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let fs = FileSystem::prepare();
    let place = fs.path("tmpfs");
    fs::create_dir(&place).expect("a folder");
    weft_system_tests::ok(Command::new("mount").args(["-t", "tmpfs", "-o", "size=400m", "disk"]).arg(&place));
    fs.start(&[&SHAPE[..], more].concat());
    weft_system_tests::ok(weft_system_tests::weft().args(["down", "--state"]).arg(fs.state()));
    let disk = OwnDisk::of(&fs, server, &place, 256);
    fs.start_mounted(&[]);
    let held = fault(&fs, &disk);
    let told = told_of(&fs, (4, "2"), round, |_| ());
    drop(held);
    assert(&told);
}

fn throttled(fs: &FileSystem, disk: &OwnDisk, server: &str, key: &str, value: u32) -> Option<Limited> {
    let value = format!("{} {value}", disk.device());
    Some(Limited::new("blkio", fs.pid(server).expect("it runs"), &[(key, &value)]))
}

#[test]
#[ignore = "a campaign: what else the machine does can come first in a verdict"]
fn a_throttled_disk_of_a_data_server() {
    let is_named = |told: &[Value]| assert_named(told, &["disk"], "data1", &[&DISKS[..], &["journal"]].concat());
    with_disk(
        "a_throttled_disk_of_a_data_server",
        &[Need::ControlGroup("blkio")],
        ("data1", synced),
        &["--durability", "sync"],
        is_named,
        |fs, disk| throttled(fs, disk, "data1", "blkio.throttle.write_iops_device", 20),
    );
}

#[test]
#[ignore = "a campaign: what else the machine does can come first in a verdict"]
fn a_throttled_disk_of_a_journal() {
    let is_named = |told: &[Value]| assert_named(told, &["disk"], "meta0", &["journal"]);
    with_disk(
        "a_throttled_disk_of_a_journal",
        &[Need::ControlGroup("blkio")],
        ("meta0", names_above),
        &["--durability", "sync"],
        is_named,
        |fs, disk| throttled(fs, disk, "meta0", "blkio.throttle.write_iops_device", 20),
    );
}

#[test]
#[ignore = "a campaign: what else the machine does can come first in a verdict"]
fn a_throttled_disk_that_is_read() {
    let is_named = |told: &[Value]| assert_named(told, &["disk"], "data1", &DISKS);
    with_disk("a_throttled_disk_that_is_read", &[Need::ControlGroup("blkio")], ("data1", files), &["--direct-io"], is_named, |fs, disk| {
        throttled(fs, disk, "data1", "blkio.throttle.read_iops_device", 20)
    });
}

#[test]
#[ignore = "a campaign: what else the machine does can come first in a verdict"]
fn a_disk_that_writes_few_bytes() {
    let is_named = |told: &[Value]| assert_named(told, &["disk"], "data1", &[&DISKS[..], &["journal"]].concat());
    let args = ["--durability", "sync"];
    with_disk("a_disk_that_writes_few_bytes", &[Need::ControlGroup("blkio")], ("data1", synced), &args, is_named, |fs, disk| {
        throttled(fs, disk, "data1", "blkio.throttle.write_bps_device", 500_000)
    });
}

fn full(name: &str, server: &str, round: Round) {
    with_disk(
        name,
        &[],
        (server, round),
        &[],
        |told| assert_named(told, &["disk_full"], server, &[]),
        |_, disk| {
            disk.fill();
            None
        },
    );
}

#[test]
#[ignore = "a campaign: what else the machine does can come first in a verdict"]
fn a_full_disk_of_a_data_server() {
    full("a_full_disk_of_a_data_server", "data1", |dir, number| {
        let _ = fs::write(dir.join(format!("f{number}")), vec![7; 4 << 20]);
    });
}

/// Large attributes need a new segment of the journal soon.
#[test]
#[ignore = "a campaign: what else the machine does can come first in a verdict"]
fn a_full_disk_of_a_metadata_server() {
    full("a_full_disk_of_a_metadata_server", "meta0", |dir, number| {
        let path = dir.parent().expect("the mount").join(format!("x{number}"));
        let _ = File::create(&path).and_then(|file| Ok(fsetxattr(&file, "user.large", &[7; 60_000], XattrFlags::empty())?));
    });
}

/// The image has no room where nothing was written.
#[test]
#[ignore = "a campaign: what else the machine does can come first in a verdict"]
fn a_disk_that_fails_to_write() {
    with_disk(
        "a_disk_that_fails_to_write",
        &[],
        ("data1", |dir, number| {
            let _ = fs::write(dir.join(format!("f{number}")), vec![7; 4 << 20]);
        }),
        &["--direct-io"],
        |told| assert_named(told, &["disk_errors", "no_answer"], "data1", &[]),
        |_, disk| {
            disk.refuse_writes();
            None
        },
    );
}
