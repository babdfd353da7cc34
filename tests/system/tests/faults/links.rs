//! Links that are shaped, and calls that take long.

use serde_json::Value;
use weft_system_tests::verdict::{Meddled, Round, told_by};
use weft_system_tests::{Machine, Need, Pair, available, ok};

use crate::{ALONE, SHAPE, assert_named, during, files, names_above, test};

/// What is said of a mount whose machine is joined to that of the servers by a cable, when this
/// has been done to the cable.
fn over_a_cable(name: &str, shape: impl FnOnce(&Pair)) -> Option<Vec<Value>> {
    if !available(name, &[Need::Root, Need::Fuse, Machine::NEEDS, Need::Programs(&["tc"])]) {
        return None;
    }
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let pair = Pair::start("");
    shape(&pair);
    let told = told_by(pair.weft(&["explain"], &[]), &pair.client.from_outside("mnt"), (4, "2"), files, |_| ());
    pair.end();
    Some(told)
}

/// What leaves a machine by the cable gets this rate, or that part of it which `filter` takes.
fn shape(machine: &Machine, rate: &str, filter: &[&str]) {
    let tc = |args: &[&str]| drop(ok(machine.on("tc").args(args)));
    let usual = if filter.is_empty() { "2" } else { "1" };
    tc(&["qdisc", "add", "dev", "net0", "root", "handle", "1:", "htb", "default", usual]);
    tc(&["class", "add", "dev", "net0", "parent", "1:", "classid", "1:1", "htb", "rate", "10gbit"]);
    tc(&["class", "add", "dev", "net0", "parent", "1:", "classid", "1:2", "htb", "rate", rate]);
    if !filter.is_empty() {
        let begin = ["filter", "add", "dev", "net0", "parent", "1:", "protocol", "ip", "u32", "match", "ip"];
        tc(&[&begin[..], filter, &["0xffff", "flowid", "1:2"]].concat());
    }
}

#[test]
#[ignore = "a campaign: what else the machine does can come first in a verdict"]
fn a_narrow_link_to_one_server() {
    let told = over_a_cable("a_narrow_link_to_one_server", |pair| {
        shape(&pair.client, "10mbit", &["dport", "7002"]);
        shape(&pair.servers, "10mbit", &["sport", "7002"]);
    });
    told.iter().for_each(|told| assert_named(told, &["link"], "mount-mnt - data1", &["network", "send_queue"]));
}

/// One client and several servers: whose end it is cannot be known.
#[test]
#[ignore = "a campaign: what else the machine does can come first in a verdict"]
fn a_narrow_link_to_all_servers() {
    let told = over_a_cable("a_narrow_link_to_all_servers", |pair| {
        shape(&pair.client, "20mbit", &[]);
        shape(&pair.servers, "20mbit", &[]);
    });
    told.iter().for_each(|told| assert_named(told, &["link"], "", &["network", "send_queue"]));
}

/// A call of a process that takes long for whatever reason.
fn slow_calls(name: &str, args: &[&str], (process, round): (&str, Round), (calls, how): (&str, &str), causes: &[&str], stages: &[&str]) {
    test(name, &[Need::Root, Meddled::NEEDS], &[&SHAPE[..], args].concat(), |fs| {
        let pid = if process == "mount-mnt" { fs.mount_pid(&fs.mnt()) } else { fs.pid(process).expect("it runs") };
        let told = during(fs, round, || Meddled::with(pid, calls, how));
        assert_named(&told, causes, process, stages);
    });
}

#[test]
#[ignore = "a campaign: what else the machine does can come first in a verdict"]
fn slow_flushes_of_a_metadata_server() {
    let call = ("fdatasync,fsync,sync_file_range", "delay_enter=30000");
    slow_calls("slow_flushes_of_a_metadata_server", &["--durability", "sync"], ("meta0", names_above), call, &["disk"], &["journal"]);
}

#[test]
#[ignore = "a campaign: what else the machine does can come first in a verdict"]
fn slow_writes_of_a_data_server() {
    let call = ("pwrite64,pwritev,pwritev2", "delay_enter=30000");
    let stages = ["disk_no_seek", "disk_near", "disk_far", "journal"];
    slow_calls("slow_writes_of_a_data_server", &[], ("data1", files), call, &["disk"], &stages);
}

#[test]
#[ignore = "a campaign: what else the machine does can come first in a verdict"]
fn a_data_server_whose_reads_fail() {
    let call = ("pread64,preadv,preadv2", "error=EIO");
    slow_calls("a_data_server_whose_reads_fail", &[], ("data1", files), call, &["disk_errors"], &[]);
}

#[test]
#[ignore = "a campaign: what else the machine does can come first in a verdict"]
fn a_mount_that_sends_slowly() {
    let call = ("sendto,sendmsg", "delay_enter=50000");
    slow_calls("a_mount_that_sends_slowly", &[], ("mount-mnt", files), call, &[], &[]);
}

#[test]
#[ignore = "a campaign: what else the machine does can come first in a verdict"]
fn slow_reads_of_a_data_server() {
    let call = ("pread64,preadv,preadv2", "delay_enter=30000");
    let stages = ["disk_no_seek", "disk_near", "disk_far"];
    slow_calls("slow_reads_of_a_data_server", &["--direct-io"], ("data1", files), call, &["disk"], &stages);
}

#[test]
#[ignore = "a campaign: what else the machine does can come first in a verdict"]
fn slow_flushes_of_a_data_server() {
    let call = ("fdatasync,fsync,sync_file_range", "delay_enter=30000");
    slow_calls("slow_flushes_of_a_data_server", &["--durability", "sync"], ("data1", files), call, &["disk"], &["journal"]);
}

#[test]
#[ignore = "a campaign: what else the machine does can come first in a verdict"]
fn a_metadata_server_that_sends_slowly() {
    let call = ("sendto,sendmsg,sendmmsg,writev", "delay_enter=30000");
    slow_calls("a_metadata_server_that_sends_slowly", &[], ("meta0", names_above), call, &[], &["send_queue", "network", "server_queue"]);
}
