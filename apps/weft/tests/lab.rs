//! `weft lab` as a person uses it: a plan on directories in turns, interrupted and gone on with.

mod program;

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

use program::{fails, ok, weft};

const PLAN: &str = "description = \"names\"\nclients = [1, 2]\n[local]\nrepetitions = 2\n\
                    [[workload]]\nkind = \"names\"\nfiles = 20\nmeasure = [\"create\", \"remove\"]\n";

/// A folder with a plan and two directories, `a` and `b`.
fn folder() -> TempDir {
    let folder = tempfile::tempdir().expect("a directory");
    std::fs::write(folder.path().join("names.toml"), PLAN).expect("written");
    ["a", "b"].iter().for_each(|name| std::fs::create_dir(folder.path().join(name)).expect("made"));
    folder
}

fn lab(folder: &Path, words: &[&str]) -> Command {
    let mut command = weft(["lab"]);
    command.args(words).current_dir(folder);
    command
}

fn run(folder: &Path, words: &[&str]) -> Command {
    lab(folder, &[&["run", "names.toml", "--path", "a=a", "--path", "b=b"][..], words].concat())
}

fn lines(folder: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(folder.join("names.jsonl")).expect("results");
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

fn of_kind(lines: &[Value], kind: &str) -> usize {
    lines.iter().filter(|line| line["is"] == kind).count()
}

#[test]
fn a_plan_runs_in_turns_and_goes_on_where_it_was_interrupted() {
    let folder = folder();
    let folder = folder.path();
    let rows: Vec<Value> = serde_json::from_str(&ok(&mut run(folder, &["--json", "--seed", "7"]))).expect("JSON");
    let all = lines(folder);
    assert_eq!((of_kind(&all, "session"), of_kind(&all, "run")), (1, 2 * 2 * 2 * 2), "cases, repetitions, places, steps");
    let first = &all[0];
    assert_eq!((&first["schema"], &first["seed"]), (&Value::from(2), &Value::from(7)));
    assert!(
        first["environment"]["processors"].as_u64() > Some(0)
            && !first["environment"]["mounts"][0]["kind"].as_str().expect("a type").is_empty()
    );
    // A row for each case, step and place; the second place in pairs with the first.
    assert_eq!(rows.len(), 2 * 2 * 2);
    assert_eq!((&rows[0]["place"], &rows[0]["clients"], &rows[0]["phase"]), (&"a".into(), &1.into(), &"create".into()));
    assert!(rows[0]["ratio_to_first"].is_null() && rows[1]["ratio_to_first"]["median"].as_f64() > Some(0.0));
    assert_eq!((rows[1]["samples"].as_array().map(Vec::len), &rows[1]["repetitions"]), (Some(2), &2.into()));
    // Two repetitions say nothing about a median with 95 %.
    assert!(rows.iter().all(|row| row["ratio_interval"].is_null() && row["ops_interval"].is_null()), "{rows:?}");
    assert!(!ok(&mut lab(folder, &["show", "names.jsonl"])).contains("95 %"));
    // The end of a file that a crash has left.
    let path = folder.join("names.jsonl");
    let text = std::fs::read_to_string(&path).expect("results");
    std::fs::write(&path, &text[..text.len() * 3 / 4]).expect("cut");
    let kept = std::fs::read_to_string(&path).expect("results").matches('\n').count() - 1;
    ok(&mut run(folder, &[]));
    let all = lines(folder);
    assert_eq!(of_kind(&all, "session"), 2);
    let more = of_kind(&all, "run") - kept;
    assert!((1..=8).contains(&more), "what was there is not done again: {more} steps were, {kept} were kept");
    // Nothing is left to do; more turns are asked for; another plan is refused.
    ok(&mut run(folder, &[]));
    assert_eq!(of_kind(&lines(folder), "run"), kept + more);
    ok(&mut run(folder, &["--reps", "3"]));
    assert_eq!(of_kind(&lines(folder), "run"), kept + more + 8);
    assert!(fails(&mut run(folder, &["--set", "workload.files=21"])).contains("results of something else (--set)"));
    assert!(fails(&mut run(folder, &["--seed", "8"])).contains("(seed)"));
    let left: Vec<_> = ["a", "b"].iter().flat_map(|name| std::fs::read_dir(folder.join(name)).expect("a directory")).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_file_without_results_takes_another_question() {
    let folder = folder();
    let folder = folder.path();
    let with = |place: &str| lab(folder, &["run", "names.toml", "--seed", "7", "--path", place]);
    let said = fails(&mut with("\"a\"=nosuch"));
    assert!(said.contains("go on: place \"a\": cannot make ") && said.contains("lost: place \"a\": cannot make "), "{said}");
    assert_eq!((of_kind(&lines(folder), "lost"), lines(folder).len()), (1, 2));
    ok(with("\"a\"=a").args(["--path", "b=b"]));
    assert_eq!((of_kind(&lines(folder), "session"), of_kind(&lines(folder), "lost")), (1, 0));
    let shown = ok(&mut lab(folder, &["show", "names.jsonl"]));
    assert!(shown.contains("1        \"a\"    create  "), "{shown}");
    assert!(fails(&mut with("a=b")).contains("results of something else (places)"));
}

#[test]
fn a_place_that_fails_is_told_and_the_others_go_on() {
    let folder = folder();
    let folder = folder.path();
    let said = fails(&mut run(
        folder,
        &["--before-each", "test $WEFT_PLACE != b || ! test -f names.jsonl || test $(grep -c '\"is\":\"run\"' names.jsonl) -lt 6"],
    ));
    assert!(said.contains("lost: place b: "), "{said}");
    let all = lines(folder);
    let of_a = all.iter().filter(|line| line["is"] == "run" && line["place"] == "a").count();
    assert!(of_a >= 8, "{of_a} steps of a");
    assert_eq!(of_kind(&all, "lost"), 1);
}

/// Ctrl-C of a terminal goes to this process and to all that it has started.
#[test]
fn whoever_stops_a_run_loses_no_place_and_leaves_no_command_behind() {
    let folder = folder();
    let folder = folder.path();
    let waits = "while true; do echo $$ > waits; mv waits ../pid; sleep 0.1; done";
    let command = format!("[[workload.command]]\nname = \"wait\"\nrun = 'cd $LAB; {waits}'\n");
    std::fs::create_dir_all(folder.join("lab/plans")).expect("made");
    std::fs::write(folder.join("names.toml"), format!("[[workload]]\nkind = \"commands\"\n{command}")).expect("written");
    for words in [&[][..], &["--before-each", &format!("cd lab; {waits}")]] {
        let child = run(folder, words).stdout(Stdio::null()).stderr(Stdio::piped()).process_group(0).spawn().expect("it is there");
        let pid = loop {
            match std::fs::read_to_string(folder.join("pid")) {
                Ok(pid) => break pid,
                Err(_) => sleep(Duration::from_millis(10)),
            }
        };
        // `timeout` and launchers of jobs send it more than once.
        let again = format!("for number in 1 2 3 4; do kill -s INT -- -{}; sleep 0.003; done; true", child.id());
        ok(Command::new("sh").args(["-c", &again]));
        let said = child.wait_with_output().expect("it ends");
        assert!(!said.status.success() && program::words(&said).contains("stopped; "), "{said:?}");
        assert_eq!(of_kind(&lines(folder), "lost"), 0);
        // Whose number it is while it runs.
        let runs = || std::fs::read(format!("/proc/{}/cmdline", pid.trim())).is_ok_and(|words| words.starts_with(b"sh\0"));
        (0..500).take_while(|_| runs()).for_each(|_| sleep(Duration::from_millis(10)));
        assert!(!runs(), "the command goes on");
        std::fs::remove_file(folder.join("pid")).expect("there");
        std::fs::remove_file(folder.join("names.jsonl")).expect("there");
    }
}

/// Processes whose command line names this folder.
fn processes_of(folder: &Path) -> Vec<String> {
    let words = |entry: std::fs::DirEntry| std::fs::read_to_string(entry.path().join("cmdline")).ok();
    let all = std::fs::read_dir("/proc").expect("it is there").flatten().filter_map(words);
    all.filter(|words| words.contains(folder.to_str().expect("a name"))).collect()
}

/// Killed while servers are being started, and when they serve.
#[test]
fn servers_of_a_killed_run_end_with_it() {
    let folder = folder();
    let folder = folder.path();
    for waits_for in ["run/meta0.pid", "formatted"] {
        let mut command = lab(folder, &["run", "names.toml", "--here", "--set", "local.pause=600", "--dir"]);
        let mut child = command.arg(folder).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it is there");
        let is_there = || {
            let entries = std::fs::read_dir(folder).expect("a folder").flatten();
            entries.into_iter().any(|entry| entry.path().join("fs0").join(waits_for).exists())
        };
        (0..3000).take_while(|_| !is_there()).for_each(|_| sleep(Duration::from_millis(10)));
        assert!(is_there() && processes_of(folder).len() > 1, "no server was started");
        child.kill().expect("it runs");
        child.wait().expect("it ends");
        (0..3000).take_while(|_| !processes_of(folder).is_empty()).for_each(|_| sleep(Duration::from_millis(10)));
        assert_eq!(processes_of(folder), [""; 0], "they go on");
        let left = std::fs::read_dir(folder).expect("a folder").flatten().find(|entry| entry.path().join("fs0").exists());
        std::fs::remove_dir_all(left.expect("what they had made").path()).expect("removed");
    }
}

#[test]
fn two_builds_are_places_with_their_own_servers_and_clients() {
    let folder = folder();
    let folder = folder.path();
    // The second program is this one, behind a script that says that it was started.
    let script = folder.join("old");
    let program = weft([]).get_program().to_owned();
    std::fs::write(&script, format!("#!/bin/sh\necho \"$1 $2\" >> {}/started\nexec {} \"$@\"\n", folder.display(), program.display()))
        .expect("written");
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).expect("a program");
    let new = format!("new={}", program.display());
    let words = ["run", "names.toml", "--build", &new, "--build", "old=old", "--json", "--set", "clients=1"];
    let rows: Vec<Value> = serde_json::from_str(&ok(&mut lab(folder, &words))).expect("JSON");
    assert_eq!(rows.iter().map(|row| row["place"].as_str().expect("a name")).collect::<Vec<_>>(), ["new", "old", "new", "old"]);
    let started = std::fs::read_to_string(folder.join("started")).expect("it was started");
    let times = |word: &str| started.lines().filter(|line| line.starts_with(word)).count();
    assert!((times("up"), times("down")) == (1, 1) && times("--timeout") >= 1, "{started}");
}

#[test]
fn protocols_in_turns_do_not_disturb_each_other() {
    let folder = folder();
    let folder = folder.path();
    let look = format!("{} ls here/*/fs0 >> seen", weft([]).get_program().display());
    let words = ["run", "names.toml", "--here", "--dir", "here", "--before-each", &look, "--set", "workload.protocol=posix,weft"];
    std::fs::create_dir(folder.join("here")).expect("made");
    ok(&mut lab(folder, &words));
    let seen = std::fs::read_to_string(folder.join("seen")).expect("it was looked at");
    let names: BTreeSet<&str> = seen.lines().collect();
    // Who makes files alone is told less of a directory that others have just changed.
    assert_eq!(names.len(), 2, "one file system, and a directory for each: {names:?}");
}

#[test]
fn a_program_that_is_no_build_of_weft_is_named() {
    let folder = folder();
    for (program, what) in [("/bin/true", "`/bin/true up` made no file system"), ("/bin/false", "could not be started by /bin/false")] {
        let out = format!("{}.jsonl", &program[5..]);
        let build = format!("a={program}");
        let words = fails(&mut lab(folder.path(), &["run", "names.toml", "--set", "clients=1", "--out", &out, "--build", &build]));
        assert!(words.contains(what) && !words.contains("is no file system"), "{words}");
        // Nothing is stopped that was not started.
        assert!(!words.contains("stopped by"), "{words}");
    }
}

#[test]
fn what_cannot_be_done_is_said_before_anything_is_measured() {
    let folder = folder();
    let folder = folder.path();
    assert!(fails(&mut run(folder, &["--set", "workload.window=8"])).contains("one after the other"));
    assert!(fails(&mut run(folder, &["--set", "weft.engine=memory,journal"])).contains("several file systems of Weft"));
    assert!(fails(&mut run(folder, &["--set", "local.restart=true"])).contains("--set local.restart=false"));
    assert!(fails(&mut run(folder, &["--set", "local.within=2"])).contains("is a share"));
    assert!(fails(&mut lab(folder, &["run", "names.toml", "--path", "a=a", "--path", "a=b"])).contains("two places are called a"));
    assert!(!folder.join("names.jsonl").exists());
    // Files of a later version, and of something else, are told so.
    std::fs::write(folder.join("names.jsonl"), "{\"is\":\"session\",\"schema\":3}\n").expect("written");
    assert!(fails(&mut lab(folder, &["show", "names.jsonl"])).contains("version 3"));
    assert!(fails(&mut lab(folder, &["show", "names.toml"])).contains("names.toml"));
    std::fs::write(folder.join("names.jsonl"), "no results").expect("written");
    assert!(fails(&mut run(folder, &[])).contains("holds no results"));
    assert_eq!(std::fs::read_to_string(folder.join("names.jsonl")).expect("there"), "no results");
}

#[test]
fn commands_are_timed_in_an_empty_directory_of_each_place() {
    let folder = folder();
    let folder = folder.path();
    let plan = r#"
[local]
repetitions = 2
[[workload]]
kind = "commands"
values = { count = [3, 5], word = "seven of" }
prepare = 'echo "$count" >> source; ls > /dev/null'
before = 'test "$(ls)" != "made" || touch before'
[[workload.command]]
name = "make"
run = 'test -z "$(ls)" && cat "$SOURCE/source" > made && echo "$WEFT_PLACE $PLACE" >> "$LAB/order"'
[[workload.command]]
name = "told"
run = 'test -f before && echo "$word  : 4.5 7 of"'
rate = "seven of"
operations = "count"
[[workload.command]]
name = "moved"
run = 'test -d "$LAB/plans" && echo "seven of 2"'
rests = false
mib_rate = "seven of"
"#;
    std::fs::create_dir_all(folder.join("lab/plans")).expect("made");
    std::fs::write(folder.join("names.toml"), plan).expect("written");
    let rows: Vec<Value> = serde_json::from_str(&ok(&mut run(folder, &["--json"]))).expect("JSON");
    let of = |phase: &str| rows.iter().filter(|row| row["phase"] == phase).collect::<Vec<_>>();
    assert_eq!((rows.len(), of("make").len()), (2 * 3 * 2, 4), "cases, commands, places");
    assert!(of("make").iter().all(|row| row["ops"] == 1 && row["seconds"]["min"].as_f64() > Some(0.0)), "{rows:?}");
    assert!(of("told").iter().all(|row| row["ops"] == row["workload.values.count"] && row["ops_per_s"]["median"] == 4.5), "{rows:?}");
    assert!(of("moved").iter().all(|row| row["mib_per_s"]["median"] == 2.0), "{rows:?}");
    assert!(rows.iter().filter(|row| row["place"] == "b").all(|row| row["ratio_to_first"]["median"].as_f64() > Some(0.0)));
    let order = std::fs::read_to_string(folder.join("lab/order")).expect("written in each turn");
    let places: Vec<&str> = order.lines().map(|line| line.split(' ').next().expect("a name")).collect();
    assert_eq!(places.len(), 8);
    assert!(places.chunks(4).all(|turns| turns[0] != turns[1] && turns[0] == turns[3] && turns[1] == turns[2]), "{order}");
    let left: Vec<_> = ["a", "b"].iter().flat_map(|name| std::fs::read_dir(folder.join(name)).expect("a directory")).collect();
    assert!(left.is_empty(), "{left:?}");
    // What is not a directory, and what cannot be done.
    let word = |words: &[&str]| lab(folder, &[&["run", "names.toml", "--out", "w.jsonl"][..], words].concat());
    ok(&mut word(&["--word", "a=nfs://host/"]));
    let order = std::fs::read_to_string(folder.join("lab/order")).expect("written");
    assert_eq!(order.lines().filter(|line| *line == "a nfs://host/").count(), 4, "{order}");
    for (words, said) in [
        (&["--here"][..], "commands are for places of `weft lab run`"),
        (&["--path", "a=a", "--set", "clients=2"], "commands are run by one client"),
        (&["--path", "a=a", "--set", "workload.values.2nd=1"], "2nd: is no name of a variable"),
        (&["--path", "a=a", "--set", "workload.command.operations=word"], "operations: is neither a count nor"),
    ] {
        let told = fails(&mut word(words));
        assert!(told.contains(said), "{words:?}: {told}");
    }
    let told = fails(&mut run(folder, &["--out", "c.jsonl", "--set", "workload.values.word=none"]));
    assert!(told.contains("lost: place ") && told.contains("told: it printed no rate behind `seven of`"), "{told}");
    // Where everybody may write, somebody else may have written.
    std::fs::set_permissions(folder.join("lab/plans"), std::fs::Permissions::from_mode(0o777)).expect("changed");
    assert!(fails(&mut word(&["--path", "a=a", "--set", "local.repetitions=3"])).contains("no commands are taken from it"));
    std::fs::write(folder.join("names.toml"), PLAN).expect("written");
    assert!(fails(&mut word(&["--word", "b=nfs://host/"])).contains("only the commands of a plan can reach it"));
}

#[test]
fn the_tests_of_two_papers_are_plans_for_any_directory() {
    let folder = folder();
    let folder = folder.path();
    let rows = |plan: &str, set: &[&str]| -> Vec<Value> {
        let mut words = vec!["run", plan, "--path", "a=a", "--reps", "1", "--json"];
        set.iter().for_each(|value| words.extend(["--set", value]));
        serde_json::from_str(&ok(&mut lab(folder, &words))).expect("JSON")
    };
    let split = rows("dnfsp-split", &["workload.files=3", "workload.bytes=100000"]);
    assert_eq!((split.len(), &split[0]["phase"], &split[0]["ops"]), (1, &"split".into(), &12.into()));
    assert_eq!(split[0]["size_bytes"], 33333);
    let stress = rows("stress", &["workload.files=5", "workload.subdirs=2", "clients=2"]);
    let told: Vec<_> = stress.iter().map(|row| (row["phase"].as_str().expect("a name"), row["ops"].as_u64())).collect();
    assert_eq!(told, [("create", Some(20)), ("readdir", Some(20)), ("remove", Some(20))]);
    assert_eq!(std::fs::read_dir(folder.join("a")).expect("a directory").count(), 0);
    let wrong = ["run", "dnfsp-split", "--path", "a=a", "--out", "w.jsonl", "--set", "workload.bytes=2", "--set", "workload.files=3"];
    assert!(fails(&mut lab(folder, &wrong)).contains("2 bytes cannot be written in 3 files"));
}

#[test]
fn virtual_time_and_models_are_places() {
    let folder = folder();
    let folder = folder.path();
    let words = ["run", "names.toml", "--here", "--virtual", "twin=modern", "--json", "--set", "local.repetitions=1"];
    let rows: Vec<Value> = serde_json::from_str(&ok(&mut lab(folder, &words))).expect("JSON");
    let of = |place: &str| rows.iter().filter(|row| row["place"] == place).count();
    assert_eq!((of("here"), of("twin")), (4, 4), "{rows:?}");
    assert!(rows.iter().filter(|row| row["place"] == "twin").all(|row| row["ratio_to_first"]["median"].as_f64() > Some(0.0)));
    let streams =
        "profile = \"pvs-2009\"\nclients = 2\nservers = 2\n[[workload]]\nkind = \"interleaved\"\nfile = \"4MiB\"\nblock = \"64KiB\"\n";
    std::fs::write(folder.join("streams.toml"), streams).expect("written");
    let rows: Vec<Value> =
        serde_json::from_str(&ok(&mut lab(folder, &["run", "streams.toml", "--model", "old=pvs-2009", "--json"]))).expect("JSON");
    assert!(rows.len() == 1 && rows[0]["mib_per_s"]["median"].as_f64() > Some(0.0), "{rows:?}");
}
