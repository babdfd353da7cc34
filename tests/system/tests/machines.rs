//! Servers on one machine and a mount on another, with clocks of their own that are seconds apart:
//! namespaces of this machine, joined by a cable. What is known about them is the truth that traces
//! are compared with.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use weft_system_tests::{FileSystem, Machine, Need, available, ok, run, wait_until, weft};
use weft_trace::file::TraceFile;
use weft_trace::merge::{Merged, merge};

const NEEDS: [Need; 3] = [Need::Root, Need::Fuse, Machine::NEEDS];
const PATIENCE: Duration = Duration::from_secs(30);
/// The clocks of the machines are so many seconds ahead of that of this one.
const CLIENT_AHEAD_S: u32 = 50;
const SERVERS_AHEAD_S: u32 = 1000;
const SECOND_NS: i64 = 1_000_000_000;

/// A file system on one machine and a mount on the other.
struct Pair {
    client: Machine,
    servers: Machine,
    /// Removes the folder at the end.
    _place: FileSystem,
}

impl Pair {
    fn start(fault: &str) -> Pair {
        let place = FileSystem::prepare();
        let machine = |name: &str, ahead_s| {
            let disk = place.path(name);
            std::fs::create_dir(&disk).expect("a new folder");
            Machine::start(name, ahead_s, &disk)
        };
        let (client, servers) = (machine("boron", CLIENT_AHEAD_S), machine("chlorine", SERVERS_AHEAD_S));
        Machine::connect(&client, &servers);
        let config = servers.path("weft.toml");
        let mut genconfig = servers.on(weft().get_program());
        genconfig.args(["genconfig", "--allow-faults", "--meta", "10.77.0.2:7000", "--data", "10.77.0.2:7001,10.77.0.2:7002", "--dir"]);
        ok(genconfig.arg(servers.path("stores")).arg("-o").arg(&config));
        for server in ["meta0", "data0", "data1"] {
            let script = r#""$1" serve --create --config "$2" --server "$3" > "$2.$3.log" 2>&1 &"#;
            let mut command = servers.on("sh");
            command.args(["-euc", script, "sh"]).arg(weft().get_program()).arg(&config).arg(server);
            ok(command.env("WEFT_FAULT", fault));
        }
        for name in ["weft.toml", "key"] {
            std::fs::copy(servers.from_outside(name), client.from_outside(name)).expect("a copy for the other machine");
        }
        let pair = Pair { client, servers, _place: place };
        wait_until("servers that answer", PATIENCE, || run(&mut pair.weft(&["ping"], &[]), PATIENCE).is_success());
        std::fs::create_dir(pair.client.from_outside("mnt")).expect("a new folder");
        ok(pair.weft(&["mount"], &[]).arg(pair.client.path("mnt")));
        pair
    }

    /// A command of weft about the file system, on the machine of the mount.
    fn weft(&self, command: &[&str], options: &[&str]) -> Command {
        let mut program = self.client.on(weft().get_program());
        program.args(command).arg(self.client.path("weft.toml")).args(options);
        program
    }

    fn end(&self) {
        ok(self.client.on(weft().get_program()).arg("umount").arg(self.client.path("mnt")));
    }

    /// Programs use the mount while `what` happens.
    fn while_used<T>(&self, what: impl FnOnce() -> T) -> T {
        let script =
            r#"cd "$1"; while [ ! -e ../stop ]; do echo text > f; cat f > ../text; mv f g; rm g; done; rm ../stop; : > ../stopped"#;
        ok(self.client.on("sh").args(["-uc", &format!("( {script} ) > /dev/null 2>&1 &"), "sh"]).arg(self.client.path("mnt")));
        let outcome = what();
        std::fs::write(self.client.from_outside("stop"), "").expect("a mark");
        wait_until("the end of the programs", PATIENCE, || std::fs::remove_file(self.client.from_outside("stopped")).is_ok());
        outcome
    }

    /// Traces in a folder of the client's machine.
    fn merged(&self, folder: &str) -> Merged {
        let entries = std::fs::read_dir(self.client.from_outside(folder)).expect("a folder with traces");
        let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
        files.retain(|file| is_trace(file));
        files.sort();
        let read = |file: &PathBuf| TraceFile::read(&std::fs::read(file).expect("it can be read")).expect("a trace");
        merge(files.iter().map(read).collect())
    }
}

/// Beside the traces lie names of what they are about.
fn is_trace(file: &Path) -> bool {
    file.extension().is_some_and(|end| end == "wtrace")
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().map(|entry| entry.expect("an entry"));
    let entries = entries.filter(|entry| is_trace(&entry.path()));
    let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// The error of the mount's clock against that of the servers, after a look whether it is the
/// truth.
fn checked_error(merged: &Merged) -> u64 {
    let nodes: Vec<(&str, &str)> = merged.nodes.iter().map(|node| (node.name.as_str(), node.machine.as_str())).collect();
    assert_eq!(nodes, [("data0", "chlorine"), ("data1", "chlorine"), ("meta0", "chlorine"), ("mount-mnt", "boron")]);
    assert!(merged.clocks[..3].iter().all(|clock| clock.offset_ns == 0 && clock.error_ns == Some(0)), "{:?}", merged.clocks);
    let clock = &merged.clocks[3];
    let error = clock.error_ns.expect("requests tie it");
    let own = merged.events.iter().filter(|event| event.node == 3);
    let (first, last) = own.fold((i64::MAX, i64::MIN), |(first, last), event| (first.min(event.start_ns), last.max(event.end_ns())));
    let ahead_ns = i64::from(SERVERS_AHEAD_S - CLIENT_AHEAD_S) * SECOND_NS;
    for at in [clock.at_ns, clock.at_ns + (last - first)] {
        let wrong = (clock.common(at) - at - ahead_ns).unsigned_abs();
        assert!(wrong <= error, "{wrong} ns wrong: {clock:?}");
    }
    assert!(last - first > SECOND_NS / 10 && clock.samples > 10, "{clock:?}");
    assert_eq!(merged.causality_violations(), 0);
    error
}

#[test]
fn clocks_and_files_of_two_machines_are_brought_together() {
    if !available("clocks_and_files_of_two_machines", &NEEDS) {
        return;
    }
    let pair = Pair::start("");
    let keep = pair.client.path("kept");
    let explain = || ok(pair.weft(&["explain"], &["--seconds", "0.5", "--json", "--keep"]).arg(&keep));
    let explained: Value = serde_json::from_str(&pair.while_used(explain)).expect("JSON");
    assert!(explained["covered"].as_f64() >= Some(0.95) && explained["operations"].as_u64() > Some(10), "{explained}");
    let row = |at: usize| explained["nodes"][at].clone();
    assert_eq!((row(0)["machine"].as_str(), row(3)["machine"].as_str()), (Some("chlorine"), Some("boron")), "{explained}");
    let error = checked_error(&pair.merged("kept"));
    assert!(row(3)["clock_error_ns"].as_u64() == Some(error) && error < 100_000_000, "{explained}");
    assert_eq!(names(&pair.servers.from_outside("trace")), [""; 0], "nothing is left behind");
    pair.end();
}

/// A message to a server takes 5 ms longer than the answer. Nobody can know that from the times
/// alone, so the error must say it.
#[test]
fn a_way_that_is_longer_in_one_direction_makes_the_error_larger() {
    if !available("a_way_that_is_longer", &NEEDS) {
        return;
    }
    let pair = Pair::start("net-request:5ms");
    pair.while_used(|| {
        ok(&mut pair.weft(&["trace", "on"], &[]));
        std::thread::sleep(Duration::from_millis(300));
        let off = ok(&mut pair.weft(&["trace", "off"], &["--json"]));
        let off: Value = serde_json::from_str(&off).expect("JSON");
        let files = off["nodes"].as_array().into_iter().flatten().flat_map(|node| node["files"].as_array().cloned().unwrap_or_default());
        let folder = pair.client.path("trace");
        let is_here = |file: &Value| Path::new(file.as_str().unwrap_or_default()).parent() == Some(&folder);
        assert!(files.clone().count() == 4 && files.clone().all(|file| is_here(&file)), "all are where the mount has its own: {off}");
    });
    assert_eq!(names(&pair.servers.from_outside("trace")).len(), 3, "they stay where they were written, too");
    assert!(checked_error(&pair.merged("trace")) > 2_400_000);
    // Who asks again gets no second copy.
    ok(&mut pair.weft(&["trace", "off"], &[]));
    assert_eq!(names(&pair.client.from_outside("trace")).len(), 4);
    pair.end();
}
