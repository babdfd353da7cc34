//! The program as a person uses it: real processes, real sockets, one small file system for each
//! test.

mod program;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use program::{fails, ok, weft, words};

/// A file system in a directory of its own; stopped when the test ends, however it ends.
struct Demo {
    dir: TempDir,
}

impl Demo {
    fn new() -> Demo {
        Demo { dir: tempfile::tempdir().unwrap() }
    }

    fn up(options: &[&str]) -> Demo {
        let demo = Demo::new();
        let state = demo.state();
        ok(weft(["up", "--state", &state]).args(options));
        demo
    }

    fn state(&self) -> String {
        self.path("state").display().to_string()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// `FS:/PATH`.
    fn at(&self, path: &str) -> String {
        format!("{}:{path}", self.state())
    }

    fn status(&self) -> (bool, Value) {
        let output = weft(["status", "--json", "--state", &self.state()]).output().unwrap();
        (output.status.success(), serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}")))
    }

    fn pid(&self, server: &str) -> Option<u64> {
        let (_, report) = self.status();
        let servers = report["servers"].as_array().unwrap().clone();
        servers.iter().find(|row| row["name"] == server).unwrap()["pid"].as_u64()
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        if self.path("state/weft.toml").exists() {
            let _ = weft(["down", "--state", &self.state()]).output();
        }
    }
}

/// Processes whose command line names `text`, zombies not counted.
fn processes_naming(text: &str) -> Vec<String> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let lines = entries.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    lines.map(|line| String::from_utf8_lossy(&line).replace('\0', " ")).filter(|line| line.contains(text)).collect()
}

fn wait_for(what: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !condition() {
        assert!(Instant::now() < end, "{what} did not happen");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Kills and reaps a child that a test started by hand.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn up_status_ping_down() {
    let demo = Demo::up(&["--meta", "2", "--data", "3", "--stripe-size", "64KiB"]);
    assert_eq!(fs::metadata(demo.path("state")).unwrap().permissions().mode() & 0o777, 0o700);
    assert_eq!(fs::metadata(demo.path("state/key")).unwrap().permissions().mode() & 0o777, 0o600);
    let (well, report) = demo.status();
    assert!(well, "{report:#}");
    let servers = report["servers"].as_array().unwrap();
    let names: Vec<_> = servers.iter().map(|row| row["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["meta0", "meta1", "data0", "data1", "data2"]);
    for row in servers {
        assert_eq!(row["state"], "serving");
        assert!(row["pid"].is_u64() && row["used_bytes"].is_u64() && row["objects"].is_u64() && row["uptime_s"].is_number(), "{row}");
        assert!(row["address"].as_str().unwrap().starts_with("unix:"));
    }
    let ping: Value = serde_json::from_str(&ok(&mut weft(["ping", "--json", &demo.state()]))).unwrap();
    assert_eq!((&ping["ok"], &ping["root_owner"]), (&Value::Bool(true), &Value::String("meta0".into())));
    assert_eq!(ping["fs_id"], report["fs_id"]);

    assert!(ok(&mut weft(["up", "--state", &demo.state()])).contains("run already"));
    assert!(fails(&mut weft(["up", "--state", &demo.state(), "--meta", "5"])).contains("has 2 meta servers"));
    assert!(ok(&mut weft(["down", "--state", &demo.state()])).contains("stopped 5 servers"));
    assert_eq!(processes_naming(&demo.state()), [""; 0]);
    let (well, report) = demo.status();
    assert!(!well && report["servers"][0]["state"] == "not running", "{report:#}");
    assert!(fails(&mut weft(["ping", &demo.state(), "--timeout", "1"])).contains("problem: meta0 does not answer"));
    assert!(ok(&mut weft(["down", "--state", &demo.state()])).contains("no server was running"));
}

#[test]
fn what_was_stored_is_there_after_down_and_up() {
    let demo = Demo::up(&["--data", "2"]);
    fs::write(demo.path("file"), vec![7; 3_000_000]).unwrap();
    ok(&mut weft(["cp", demo.path("file").to_str().unwrap(), &demo.at("/kept")]));
    ok(&mut weft(["down", "--state", &demo.state()]));
    ok(&mut weft(["up", "--state", &demo.state()]));
    ok(&mut weft(["cp", &demo.at("/kept"), demo.path("back").to_str().unwrap()]));
    assert_eq!(fs::read(demo.path("back")).unwrap(), vec![7; 3_000_000]);
}

#[test]
fn plain_commands_round_trip() {
    let demo = Demo::up(&["--meta", "2", "--data", "2", "--stripe-size", "64KiB"]);
    let source = demo.path("source");
    fs::create_dir_all(source.join("sub/deep")).unwrap();
    fs::write(source.join("empty"), "").unwrap();
    fs::write(source.join("sub/small"), "hello\n").unwrap();
    let large: Vec<u8> = (0..5_000_000u32).map(|index| (index * 7 + index / 1000) as u8).collect();
    fs::write(source.join("sub/deep/large"), &large).unwrap();
    fs::write(source.join("sub/new\nline"), "odd name").unwrap();
    std::os::unix::fs::symlink("sub/small", source.join("link")).unwrap();
    fs::set_permissions(source.join("sub/small"), fs::Permissions::from_mode(0o640)).unwrap();
    let back = demo.path("back");
    ok(&mut weft(["cp", "-r", source.to_str().unwrap(), &demo.at("/")]));
    ok(&mut weft(["cp", "-r", &demo.at("/source"), back.to_str().unwrap()]));
    ok(Command::new("diff").args(["-r", "--no-dereference"]).args([&source, &back]));
    let small = fs::metadata(back.join("sub/small")).unwrap();
    assert_eq!(small.permissions().mode() & 0o7777, 0o640);
    assert_eq!(small.modified().unwrap(), fs::metadata(source.join("sub/small")).unwrap().modified().unwrap());

    assert_eq!(ok(&mut weft(["ls", &demo.at("/source")])), "empty\nlink\nsub\n");
    assert_eq!(ok(&mut weft(["ls", &demo.at("/source/sub")])), "deep\nnew\\nline\nsmall\n");
    assert!(ok(&mut weft(["ls", "-l", &demo.at("/source")])).contains("link -> sub/small"));
    let stat: Value = serde_json::from_str(&ok(&mut weft(["stat", "--json", &demo.at("/source/sub/deep/large")]))).unwrap();
    assert_eq!((&stat[0]["size"], &stat[0]["stripe_bytes"]), (&5_000_000.into(), &65536.into()));
    assert_eq!(stat[0]["data_servers"].as_array().unwrap().len(), 2);
    assert_eq!(ok(&mut weft(["cat", &demo.at("/source/sub/small"), &demo.at("/source/link")])), "hello\nhello\n");

    ok(&mut weft(["mkdir", "-p", &demo.at("/a/b/c"), &demo.at("/a/b/c")]));
    assert!(fails(&mut weft(["mkdir", &demo.at("/a")])).contains("exists already"));
    ok(&mut weft(["mv", &demo.at("/source/sub/small"), &demo.at("/source/empty"), &demo.at("/a/b")]));
    ok(&mut weft(["mv", &demo.at("/a/b/empty"), &demo.at("/a/nothing")]));
    assert!(
        fails(&mut weft(["mv", "-n", &demo.at("/a/nothing"), &demo.at("/a/b/small")])).contains(":/a/b/small: the name exists already")
    );
    assert!(fails(&mut weft(["mv", "--exchange", &demo.at("/a/nothing"), &demo.at("/a/none")])).contains(":/a/none: no such file"));
    ok(&mut weft(["ln", &demo.at("/a/b/small"), &demo.at("/second")]));
    ok(&mut weft(["ln", "-s", "b/small", &demo.at("/a/symlink")]));
    assert_eq!(ok(&mut weft(["cat", &demo.at("/second"), &demo.at("/a/symlink")])), "hello\nhello\n");
    let stat: Value = serde_json::from_str(&ok(&mut weft(["stat", "--json", &demo.at("/second")]))).unwrap();
    assert_eq!(stat[0]["nlink"], 2);

    ok(&mut weft(["xattr", "set", "user.origin", "sensor 7", &demo.at("/second")]));
    assert_eq!(ok(&mut weft(["xattr", "get", "user.origin", &demo.at("/a/b/small")])), "sensor 7\n");
    assert_eq!(ok(&mut weft(["xattr", "list", &demo.at("/second")])), "user.origin\n");
    ok(&mut weft(["xattr", "rm", "user.origin", &demo.at("/second")]));
    assert!(fails(&mut weft(["xattr", "get", "user.origin", &demo.at("/second")])).contains("no such extended attribute"));

    let df: Value = serde_json::from_str(&ok(&mut weft(["df", "--json", &demo.at("/")]))).unwrap();
    assert!(df["capacity_bytes"].as_u64().unwrap() > 0 && df["inodes"].as_u64().unwrap() >= 8, "{df:#}");
    assert!(fails(&mut weft(["rm", &demo.at("/source")])).contains("remove it with -r"));
    ok(&mut weft(["rm", "-r", &demo.at("/source"), &demo.at("/a"), &demo.at("/second")]));
    ok(&mut weft(["rm", "-f", &demo.at("/source")]));
    assert_eq!(ok(&mut weft(["ls", &demo.at("/")])), "");
}

#[test]
fn mistakes_are_explained() {
    let demo = Demo::new();
    fs::write(demo.path("thesis"), "").unwrap();
    let foreign = demo.dir.path().to_str().unwrap();
    assert!(fails(&mut weft(["up", "--state", foreign])).contains("is not empty (it has `thesis`)"));
    assert!(fails(&mut weft(["status", "--state", foreign])).contains("weft up --state"));
    assert!(fails(&mut weft(["ls", "/no/such:/x"])).contains("is no file system"));
    assert!(fails(&mut weft(["ls", "/no/colon"])).contains("FS:/PATH"));
    assert!(fails(&mut weft(["cp", "a", "b"])).contains("use cp"));
    let nobody = fails(&mut weft(["ping", "weft://127.0.0.1:1/demo", "--timeout", "1"]));
    assert!(nobody.contains("no cluster map from"), "{nobody}");

    let port = fails(&mut weft(["up", "--state", "/no/such", "--hosts", "a", "--port", "0"]));
    assert!(port.contains("0 is not in 1..=65535"), "{port}");
    let wide = fails(&mut weft(["bench", "create", "--fs", "/no/such", "--stripe-width", "5000"]));
    assert!(wide.contains("5000 is not in 0..=4096"), "{wide}");

    let demo = Demo::up(&[]);
    let lost = fails(&mut weft(["explain", &demo.state(), "--seconds", "0.1", "--keep", "/no/such/folder"]));
    assert!(lost.contains("/no/such is no directory: make it first"), "{lost}");
    let missing = fails(&mut weft(["cat", &demo.at("/missing")]));
    assert!(missing.contains(&demo.at("/missing")) && missing.contains("no such file"), "{missing}");
    assert!(fails(&mut weft(["cp", &demo.at("/"), "somewhere"])).contains("copy it with -r"));
    let three = ["/no/such", "/etc/hostname", "/no/other"];
    let some = fails(weft(["cp", "--json"]).args(three).arg(demo.at("/")));
    assert!(some.contains("/no/such") && some.contains("/no/other") && some.contains("\"failures\": 2"), "{some}");
    assert_eq!(ok(&mut weft(["ls", &demo.at("/")])), "hostname\n", "the other one is there");
    let config = demo.path("state/weft.toml");
    let text = fs::read_to_string(&config).unwrap();
    fs::write(&config, text.replace("engine", "engin")).unwrap();
    let broken = fails(&mut weft(["ping", &demo.state()]));
    assert!(broken.contains("weft.toml:") && broken.contains("unknown field `engin`"), "{broken}");
    fs::write(&config, text).unwrap();
}

#[test]
fn in_the_foreground_a_signal_stops_everything() {
    let demo = Demo::new();
    let mut up = weft(["up", "--foreground", "--state", &demo.state()]).stdout(Stdio::null()).spawn().unwrap();
    wait_for("a serving file system", || demo.path("state/weft.toml").exists() && demo.status().0);
    ok(Command::new("kill").args(["-INT", &up.id().to_string()]));
    let end = Instant::now() + Duration::from_secs(20);
    while up.try_wait().unwrap().is_none() {
        assert!(Instant::now() < end, "it did not stop");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(processes_naming(&demo.state()), [""; 0]);
    let log = fs::read_to_string(demo.path("state/run/meta0.log")).unwrap();
    assert!(log.contains("meta0: stopped"), "it was not killed: {log}");
}

#[test]
fn a_killed_server_is_named_and_started_again() {
    let demo = Demo::up(&["--meta", "2", "--data", "2"]);
    let before = demo.pid("meta0");
    let victim = demo.pid("data1").unwrap();
    ok(Command::new("kill").args(["-9", &victim.to_string()]));
    wait_for("the death of data1", || demo.pid("data1").is_none());
    let output = weft(["status", "--state", &demo.state()]).output().unwrap();
    assert!(!output.status.success() && words(&output).contains("problem: data1 is not running"), "{}", words(&output));
    assert!(ok(&mut weft(["up", "--state", &demo.state()])).contains("started 1 of 4 servers"));
    assert!(demo.status().0);
    assert_eq!(demo.pid("meta0"), before, "the others went on");
}

#[test]
fn a_silent_server_is_named() {
    let demo = Demo::up(&["--data", "2"]);
    let victim = demo.pid("data0").unwrap().to_string();
    ok(Command::new("kill").args(["-STOP", &victim]));
    let (well, report) = demo.status();
    ok(Command::new("kill").args(["-CONT", &victim]));
    assert!(!well);
    assert!(report["problems"][0].as_str().unwrap().starts_with("data0 (process"), "{report:#}");
    let states: Vec<_> = report["servers"].as_array().unwrap().iter().map(|row| row["state"].as_str().unwrap()).collect();
    assert_eq!(states, ["serving", "no answer", "serving"]);
}

#[test]
fn the_same_by_hand_over_tcp() {
    let demo = Demo::new();
    // Free ports: all are held at once, so that they differ.
    let probes: Vec<_> = (0..2).map(|_| std::net::TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    let ports: Vec<String> = probes.iter().map(|probe| format!("127.0.0.1:{}", probe.local_addr().unwrap().port())).collect();
    drop(probes);
    let config = demo.path("conf/weft.toml");
    fs::create_dir(demo.path("conf")).unwrap();
    let (config, dir) = (config.to_str().unwrap(), demo.path("stores"));
    let steps =
        ok(weft(["genconfig", "--name", "hand", "--output", config]).args(["--meta", &ports[0], "--data", &ports[1], "--dir"]).arg(&dir));
    assert!(steps.contains("--server meta0 --create") && steps.contains("to those of servers only"), "{steps}");
    assert!(fails(&mut weft(["genconfig", "--output", config, "--meta", "a:1", "--data", "b:1"])).contains("exists"));

    let refused = fails(&mut weft(["serve", "--config", config, "--server", "meta0"]));
    assert!(refused.contains("--create"), "an empty folder is only taken on demand: {refused}");
    assert!(fails(&mut weft(["serve", "--config", config, "--server", "meta7"])).contains("it has meta0, data0"));
    let serve = |name: &str| {
        let child = weft(["serve", "--create", "--config", config, "--server", name]).stderr(Stdio::null()).spawn().unwrap();
        Running(child)
    };
    let (mut meta, data) = (serve("meta0"), serve("data0"));
    let url = format!("weft://{}/hand", ports[0]);
    let key = demo.path("conf/key");
    let ping = || weft(["ping", &url, "--timeout", "1", "--key-file"]).arg(&key).output().unwrap();
    wait_for("an answer", || ping().status.success());
    assert!(fails(&mut weft(["serve", "--config", config, "--server", "data0"])).contains("runs already"));

    let other_key = demo.path("other-key");
    fs::write(&other_key, "0".repeat(64)).unwrap();
    fs::set_permissions(&other_key, fs::Permissions::from_mode(0o644)).unwrap();
    let open = fails(weft(["ping", &url, "--timeout", "2", "--key-file"]).arg(&other_key));
    assert!(open.contains("chmod 600"), "a key that others may read is refused: {open}");
    fs::set_permissions(&other_key, fs::Permissions::from_mode(0o600)).unwrap();
    assert!(fails(weft(["ping", &url, "--timeout", "2", "--key-file"]).arg(&other_key)).contains("key"));
    assert!(fails(&mut weft(["ping", &url, "--timeout", "2"])).contains("WEFT_KEY_FILE"));
    ok(weft(["mkdir", &format!("{url}:/dir")]).env("WEFT_KEY_FILE", &key));
    assert_eq!(ok(&mut weft(["ls", &format!("{config}:/")])), "dir\n");

    ok(Command::new("kill").arg(meta.0.id().to_string()));
    assert!(meta.0.wait().unwrap().success(), "SIGTERM stops a server in good order");
    drop(data);
}

#[test]
fn up_mounts_and_down_leaves_nothing() {
    if let Err(error) = fs::File::options().read(true).write(true).open("/dev/fuse") {
        eprintln!("skipped: /dev/fuse cannot be used here: {error}");
        return;
    }
    let demo = Demo::new();
    let (state, mount) = (demo.state(), demo.path("mnt"));
    let shown = mount.display().to_string();
    assert!(ok(weft(["up", "--state", &state, "--mount"]).arg(&mount)).contains(&format!("mounted at {shown}")));
    fs::write(mount.join("file"), "through the mount").unwrap();
    assert_eq!(ok(&mut weft(["cat", &demo.at("/file")])), "through the mount");
    let (_, report) = demo.status();
    assert_eq!((&report["mounts"][0]["place"], &report["mounts"][0]["state"]), (&shown.clone().into(), &"mounted".into()));
    assert!(fails(weft(["mount", &state]).arg(&mount)).contains("mounted already"));
    ok(weft(["umount"]).arg(&mount));
    assert!(!mount.join("file").exists());
    assert!(fails(weft(["umount"]).arg(&mount)).contains("nothing is mounted"));

    // As before: `up` remembers where.
    ok(&mut weft(["up", "--state", &state]));
    assert_eq!(fs::read_to_string(mount.join("file")).unwrap(), "through the mount");
    // A killed mount process leaves a dead mount; `up` clears it away.
    let (_, report) = demo.status();
    ok(Command::new("kill").args(["-9", &report["mounts"][0]["pid"].to_string()]));
    wait_for("the death of the mount", || fs::metadata(&mount).is_err());
    ok(&mut weft(["up", "--state", &state]));
    assert_eq!(fs::read_to_string(mount.join("file")).unwrap(), "through the mount");

    let open = fs::File::open(mount.join("file")).unwrap();
    let down = ok(&mut weft(["down", "--state", &state]));
    drop(open);
    assert!(down.contains("although it was in use") && down.contains("stopped"), "{down}");
    assert_eq!(processes_naming(&state), [""; 0]);
    assert!(!is_mounted(&mount));
}

fn is_mounted(place: &Path) -> bool {
    fs::read_to_string("/proc/self/mountinfo").unwrap().contains(&format!(" {} ", place.display()))
}

#[test]
fn weft_itself_is_simulated_from_a_plan() {
    let dir = tempfile::tempdir().unwrap();
    let list: Value = serde_json::from_str(&ok(&mut weft(["sim", "list", "--json"]))).unwrap();
    assert!(list.as_array().unwrap().iter().any(|file| file["name"] == "weft-creates" && file["kind"] == "plan"));
    let plan = "description = \"small\"\nprofile = \"modern\"\nsystem = \"weft\"\nclients = [1, 2]\nservers = 1\n\n\
                [[workload]]\nkind = \"names\"\nfiles = 20\nwindow = 4\n";
    let path = dir.path().join("small.toml");
    fs::write(&path, plan).unwrap();
    let run = |seed: &str| {
        let rows: Value = serde_json::from_str(&ok(weft(["sim", "run", "--json", "--seed", seed]).arg(&path))).unwrap();
        rows.as_array().unwrap().clone()
    };
    let rows = run("3");
    assert_eq!(rows.len(), 2 * 3, "two cases of three phases");
    let first = (&rows[0]["clients"], &rows[0]["phase"], &rows[0]["operations"], &rows[0]["messages"]);
    assert_eq!(first, (&1.into(), &"create".into(), &20.into(), &20.into()));
    assert_eq!((&rows[5]["clients"], &rows[5]["phase"]), (&2.into(), &"remove".into()));
    let seconds = |rows: &[Value]| rows.iter().map(|row| row["seconds"].clone()).collect::<Vec<_>>();
    assert_eq!(seconds(&rows), seconds(&run("3")), "the same seed gives the same times");
    let csv = ok(weft(["sim", "run", "--csv"]).arg(&path));
    assert_eq!(csv.lines().count(), 7);
    // The same plan may ask the modelled servers and Weft's own.
    let both = plan
        .replace("\"weft\"", "[\"model\", \"weft\"]")
        .replace("kind = \"names\"\nfiles = 20\nwindow = 4", "kind = \"interleaved\"\nfile = \"4MiB\"");
    fs::write(&path, &both).unwrap();
    assert_eq!(run("1").len(), 4);
    // Mistakes are named with their line.
    fs::write(&path, plan.replace("files", "fills")).unwrap();
    let output = weft(["sim", "run"]).arg(&path).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && error.contains("small.toml:9") && error.contains("fills"), "{error}");
}
