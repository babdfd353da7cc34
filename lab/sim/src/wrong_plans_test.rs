//! Impossible clusters and wrong plans, and what is said about them: file, line and key.

use weft_plan::files::Lab;

use crate::case;

/// Lines 1 to 3 of every plan but those that have a system.
const HEAD: &str = "profile = \"pvs-2009\"\nclients = 4\nservers = 3\n";
const WORK: &str = "\n[[workload]]\nkind = \"own\"\nfile = \"4MiB\"\n";
const WEFT: &str = "profile = \"modern\"\nclients = 2\nservers = 2\nsystem = \"weft\"\n";
const NAMES: &str = "\n[[workload]]\nkind = \"names\"\nfiles = 10\n";

/// The text of the refusal; `plan.toml` stands for the path.
fn refusal(plan: &str) -> String {
    let folder = tempfile::tempdir().expect("a directory");
    let path = folder.path().join("plan.toml");
    std::fs::write(&path, plan).expect("written");
    let lab = Lab { folder: folder.path().to_path_buf() };
    let error = lab.plan(&path.display().to_string(), &[], None).and_then(|plan| plan.cases(case::read)).err();
    format!("{:#}", error.unwrap_or_else(|| panic!("taken as sound:\n{plan}"))).replace(&path.display().to_string(), "plan.toml")
}

#[test]
fn impossible_clusters_are_refused_with_file_line_and_key() {
    let ssd = |keys: &str| {
        let all = "page = 4096\nblock_pages = 64\nchannels = 4\npage_read = \"1us\"\npage_program = \"1us\"\nblock_erase = \"1ms\"\n\
                   erased = 0\nspare = 0.1\nbandwidth = \"1MiB\"";
        let keys: Vec<&str> = keys.split('\n').collect();
        let is_told = |line: &&str| !keys.iter().any(|own| own.split(' ').next() == line.split(' ').next());
        format!("[disk]\nmodel = \"ssd\"\n{}\n{}", keys.join("\n"), all.split('\n').filter(is_told).collect::<Vec<_>>().join("\n"))
    };
    let cases = [
        ("[disk]\nmodel = \"simple\"\naccess = \"5ms\"".to_string(), "4: disk.bandwidth: is missing, in the plan and in its profile"),
        ("[disk]\nmodel = \"ram\"\nlatency = \"1us\"\nbandwidth = 0".to_string(), "7: disk.bandwidth: must be above 0"),
        ("[disk]\nrpm = 0".to_string(), "5: disk.rpm: 0 is not between 60 and 1000000"),
        ("[disk]\nrpm = -5".to_string(), "5: disk.rpm: -5 is not between"),
        ("[disk]\naverage_seek = \"2000000s\"".to_string(), "5: disk.average_seek: 2000000s is longer than 1000000 s"),
        (ssd("page = 0"), "6: disk.page: must be above 0"),
        (ssd("channels = 0"), "6: disk.channels: must be above 0"),
        (ssd("block_pages = 0"), "6: disk.block_pages: must be above 0"),
        (ssd("spare = 7.5"), "6: disk.spare: 7.5 is not above 0 and at most 1"),
        ("[node]\ninstructions_per_second = 0".to_string(), "5: node.instructions_per_second: must be above 0"),
        ("[node]\ninternal_bandwidth = 0".to_string(), "5: node.internal_bandwidth: must be above 0"),
        ("[network]\nlink_bandwidth = 0".to_string(), "5: network.link_bandwidth: must be above 0"),
        ("[network]\nswitch_bandwidth = 0".to_string(), "5: network.switch_bandwidth: must be above 0"),
        ("[network]\npacket = 0".to_string(), "5: network.packet: must be above 0"),
        ("[network]\npacket = \"4GiB\"".to_string(), "5: network.packet: must be below 4 GiB"),
        ("[network]\nnodes_per_rack = 2\nuplink_bandwidth = 0".to_string(), "6: network.uplink_bandwidth: must be above 0"),
        ("[network]\nnodes_per_rack = 2".to_string(), "4: network.uplink_bandwidth: is missing"),
        ("stripe = 0".to_string(), "4: stripe: must be above 0"),
        ("collective_buffer = 0".to_string(), "4: collective_buffer: must be above 0"),
        ("[server]\nmemory = 5".to_string(), "5: server.memory: must be more than a packet of 102400 bytes"),
        ("[server]\ngranularity = 0".to_string(), "5: server.granularity: must be above 0"),
        ("[server]\nread_cache = \"100GiB\"".to_string(), "5: server.read_cache: must leave more than a packet of the memory"),
        ("[server]\nmemory_latency = 0\nmemory_bandwidth = 0".to_string(), "6: server.memory_bandwidth: must be above 0"),
        ("[server]\narrivals = \"ordered\"\narrival_window = 0".to_string(), "6: server.arrival_window: must be above 0"),
        (
            "[server]\nrules = \"2009\"\nanswers = \"written\"".to_string(),
            "6: server.answers: writes are answered when they are on disk only",
        ),
        (
            "[server]\nrules = \"today\"\ncache_layer = \"aggregation\"\nread_reserve = \"100GiB\"".to_string(),
            "7: server.read_reserve: 107374182400 bytes of the memory for reads leave no packet for writes",
        ),
    ];
    for (lines, expected) in cases {
        let found = refusal(&format!("{HEAD}{lines}{WORK}"));
        assert!(found.starts_with(&format!("plan.toml:{expected}")), "{lines}\n{found}\n{expected}");
    }
    let head = |lines: &str| format!("profile = \"pvs-2009\"\n{lines}{WORK}");
    for (plan, expected) in [
        (head("servers = 0"), "2: servers: 0 is not between 1 and"),
        (head("clients = -3"), "2: clients: -3 is not a count"),
        (format!("profile = \"no-such\"{WORK}"), "1: profile: there is no no-such among the profiles"),
        (format!("clients = 4{WORK}"), "1: profile: is missing"),
        (head("clients = { from = 1, to = 500, plus = 1 }\nservers = { from = 1, to = 999, plus = 1 }"), "3: servers: with its values"),
    ] {
        let found = refusal(&plan);
        assert!(found.starts_with(&format!("plan.toml:{expected}")), "{plan}\n{found}\n{expected}");
    }
}

#[test]
fn what_weft_or_a_program_cannot_do_is_refused_with_file_line_and_key() {
    let stream = "\n[[workload]]\nkind = \"own\"\nfile = \"1MiB\"\n";
    let program = |steps: &str| format!("{HEAD}[[workload]]\nkind = \"program\"\n{steps}");
    for (plan, expected) in [
        (format!("profile = \"pvs-2009\"\nservers = 50000{WORK}"), "1: network.model: `packets` counts for 200000000 pairs of nodes"),
        (format!("{WEFT}stripe = 5000{stream}"), "5: stripe: no stripes of 5000 bytes over 2 servers: a power of two"),
        (format!("{WEFT}[weft]\nstrips = \"strips:0:64K;1:64K;2:64K\"{stream}"), "6: weft.strips: 3 data servers are needed, there are 2"),
        (format!("{WEFT}{NAMES}tree_depth = 3"), "9: workload.tree_depth: is for `weft bench run`"),
        (format!("{WEFT}{NAMES}items = \"directories\""), "9: workload.items: is for `weft bench run`"),
        (format!("{WEFT}{NAMES}measure = []"), "9: workload.measure: names nothing to measure"),
        (format!("{HEAD}[[workload]]\nkind = \"database\"\nturn = 0"), "6: workload.turn: has no element of 512 bytes"),
        (program("[[workload.step]]\ndo = \"wait\"\nrequests = [3]"), "8: workload.step.requests: no step before has request = 3"),
        (program("[[workload.step]]\ndo = \"send\"\nto = 9\nbytes = 5"), "8: workload.step.to: there is no rank 9"),
    ] {
        let found = refusal(&plan);
        assert!(found.starts_with(&format!("plan.toml:{expected}")), "{plan}\n{found}\n{expected}");
    }
}
