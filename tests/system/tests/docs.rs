//! The pages for users do what they show. Blocks that begin with "```sh run" are run, page by page,
//! in one shell: in a fresh home, with the `weft` under test. Words behind `run` are what a page
//! needs of the machine. A block "```text" right behind says what is printed, loosely: its lines
//! come in this order, with any others between them; numbers and the room between words may differ,
//! and `...` stands for anything.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tempfile::TempDir;
use weft_system_tests::{FileSystem, Need, available, built, ok, run, weft};

/// How long a page may take.
const PATIENCE: Duration = Duration::from_secs(120);
/// Pages at once.
const WORKERS: usize = 2;
/// Printed before each block.
const BEGIN: &str = "@@ block ";
/// The home of who reads a page.
const HOME: &str = "/home/me";

/// A block of a page that is run, and what it prints.
#[derive(Debug, Default, PartialEq, Eq)]
struct Block {
    script: String,
    needs: Vec<String>,
    shown: Vec<String>,
}

/// The root of the source tree.
fn tree() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// The pages, by their names in the tree.
fn pages() -> Vec<String> {
    let mut pages: Vec<String> = ["README.md", "docs/tutorial.md", "docs/troubleshooting.md"].map(String::from).into();
    let tasks = fs::read_dir(tree().join("docs/tasks")).into_iter().flatten().flatten();
    pages.extend(tasks.map(|entry| format!("docs/tasks/{}", entry.file_name().to_string_lossy())));
    pages.retain(|page| tree().join(page).is_file());
    pages.sort();
    pages
}

/// The blocks of a page that are run, in order.
fn blocks(page: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut lines = page.lines();
    let mut is_behind_run = false;
    while let Some(line) = lines.next() {
        let Some(kind) = line.strip_prefix("```") else {
            is_behind_run &= line.is_empty();
            continue;
        };
        let text: Vec<String> = lines.by_ref().take_while(|line| !line.starts_with("```")).map(str::to_string).collect();
        let shows = is_behind_run && kind == "text";
        is_behind_run = false;
        if let Some(needs) = kind.strip_prefix("sh run") {
            let needs = needs.split_whitespace().map(str::to_string).collect();
            blocks.push(Block { script: text.join("\n") + "\n", needs, shown: Vec::new() });
            is_behind_run = true;
        } else if let Some(block) = blocks.last_mut().filter(|_| shows) {
            block.shown = text.into_iter().filter(|line| !line.trim().is_empty()).collect();
        }
    }
    blocks
}

/// True if `printed` is what a page shows as `shown`.
fn is_alike(shown: &str, printed: &str) -> bool {
    let shown = bare(shown).split("...").map(str::trim).collect::<Vec<_>>().join("...");
    let printed = bare(printed);
    let mut parts = shown.split("...");
    let mut rest = printed.as_str();
    let Some(first) = parts.next() else { return rest.is_empty() };
    match rest.strip_prefix(first) {
        Some(behind) => rest = behind,
        None => return false,
    }
    let parts: Vec<&str> = parts.collect();
    let Some((last, middle)) = parts.split_last() else { return rest.is_empty() };
    for part in middle {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

/// A line without the sizes of its numbers and of the room between its words.
fn bare(line: &str) -> String {
    let mut bare = String::new();
    for character in line.split_whitespace().collect::<Vec<_>>().join(" ").chars() {
        let is_more = character.is_ascii_digit() && bare.ends_with('0');
        if !is_more {
            bare.push(if character.is_ascii_digit() { '0' } else { character });
        }
    }
    // A fraction more or less is the same number.
    bare.replace("0.0", "0")
}

/// The first line that a page shows and that was not printed, if there is one.
fn missing<'a>(shown: &'a [String], printed: &str) -> Option<&'a String> {
    let mut printed = printed.lines();
    shown.iter().find(|line| line.trim() != "..." && !printed.any(|candidate| is_alike(line, candidate)))
}

/// libweft and what belongs to it, under a prefix of this test.
fn library() -> &'static Path {
    static PREFIX: OnceLock<TempDir> = OnceLock::new();
    let install = || {
        built("weft-preload", "libweft_preload.so");
        let library = built("weft-capi", "libweft_capi.so");
        let dir = tempfile::tempdir().expect("a temporary folder");
        let mut install = Command::new(tree().join("scripts/install-library.sh"));
        ok(install.arg(library.parent().expect("it lies in a folder")).arg(dir.path()));
        dir
    };
    PREFIX.get_or_init(install).path()
}

/// The same prefix, with what belongs to MPI: installed once, since several pages at a time use it.
fn mpi_library() -> &'static Path {
    static INSTALLED: OnceLock<()> = OnceLock::new();
    INSTALLED.get_or_init(|| drop(ok(Command::new(tree().join("scripts/install-mpiio.sh")).arg("mpicc.mpich").arg(library()))));
    library()
}

/// The Python package, unpacked from its wheel.
fn package() -> PathBuf {
    static SITE: OnceLock<TempDir> = OnceLock::new();
    let install = || {
        let library = built("weft-python", "libweft_python.so");
        let dir = tempfile::tempdir().expect("a temporary folder");
        let wheel = ok(Command::new("python3").arg(tree().join("gateways/python/wheel.py")).arg(library).arg(dir.path()));
        ok(Command::new("python3").args(["-m", "zipfile", "-e", wheel.trim()]).arg(dir.path().join("site")));
        dir
    };
    SITE.get_or_init(install).path().join("site")
}

/// True if the machine has what a block needs; the shell gets what has to be installed.
fn prepared(page: &str, need: &str, shell: &mut Command) -> bool {
    match need {
        "fuse" => available(page, &[Need::Fuse]),
        "acl" => available(page, &[Need::Programs(&["setfacl", "getfacl"])]),
        "preload" => {
            built("weft-preload", "libweft_preload.so");
            true
        }
        "library" => {
            let lib = library().join("lib");
            shell.env("PKG_CONFIG_PATH", lib.join("pkgconfig")).env("LD_LIBRARY_PATH", &lib);
            available(page, &[Need::Programs(&["cc", "pkg-config"])])
        }
        "mpi" => {
            let is_there = available(page, &[Need::Programs(&["mpicc.mpich", "mpiexec.mpich"])]);
            if is_there {
                shell.env("PREFIX", mpi_library()).env("WEFT_MPITRACE_LIB", mpi_library().join("lib"));
            }
            is_there
        }
        "python" => {
            let is_there = available(page, &[Need::Programs(&["python3"])]);
            if is_there {
                shell.env("PYTHONPATH", package());
            }
            is_there
        }
        "libnfs" => available(page, &[Need::Programs(&["nfs-ls", "nfs-cat", "nfs-cp"])]),
        other => panic!("{page}: nobody knows the need {other}"),
    }
}

/// Runs the blocks of a page; says what is wrong.
fn check(page: &str) -> Result<(), String> {
    let blocks = blocks(&fs::read_to_string(tree().join(page)).expect("a page can be read"));
    if blocks.is_empty() {
        return Err(format!("{page}: nothing is run"));
    }
    let place = FileSystem::prepare();
    let home = place.mnt().parent().expect("it lies in the folder of the test").to_path_buf();
    let mut shell = Command::new("bash");
    let needs: BTreeSet<&String> = blocks.iter().flat_map(|block| &block.needs).collect();
    if !needs.into_iter().all(|need| prepared(page, need, &mut shell)) {
        return Ok(());
    }
    let run_dir = place.path(".run");
    fs::create_dir(&run_dir).and_then(|()| fs::set_permissions(&run_dir, fs::Permissions::from_mode(0o700))).expect("a folder");
    let mut script = String::from("exec 2>&1\n");
    for (number, block) in blocks.iter().enumerate() {
        script += &format!("echo '{BEGIN}{number}'\n{}", block.script);
    }
    fs::write(place.path(".page.sh"), script).expect("a script");
    let program = weft().get_program().to_owned();
    let bin = Path::new(&program).parent().expect("a program lies in a folder");
    let path =
        std::env::join_paths([bin.to_path_buf()].into_iter().chain(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())));
    shell.args(["-eu", "-o", "pipefail"]).arg(place.path(".page.sh")).current_dir(&home);
    shell.env("HOME", &home).env("XDG_RUNTIME_DIR", &run_dir).env("PATH", path.expect("a path")).env_remove("WEFT_KEY_FILE");
    let finished = run(&mut shell, PATIENCE);
    let words = finished.words().replace(home.to_str().expect("a plain name"), HOME);
    if !finished.is_success() {
        return Err(format!("{page}: ended by {:?}:\n{words}", finished.status));
    }
    for (block, printed) in blocks.iter().zip(words.split(BEGIN).skip(1)) {
        if let Some(line) = missing(&block.shown, printed) {
            return Err(format!("{page} shows a line that is not printed:\n{line}\n--- by\n{}--- but\n{printed}", block.script));
        }
    }
    match place.processes().is_empty() {
        true => Ok(()),
        false => Err(format!("{page}: something is still running at its end")),
    }
}

#[test]
fn every_page_does_what_it_shows() {
    let pages = match std::env::var("WEFT_PAGE") {
        Ok(part) => pages().into_iter().filter(|page| page.contains(&part)).collect(),
        Err(_) => pages(),
    };
    assert!(!pages.is_empty(), "no page has this name");
    let next = AtomicUsize::new(0);
    let worker = || {
        let mut problems = Vec::new();
        while let Some(page) = pages.get(next.fetch_add(1, Ordering::Relaxed)) {
            problems.extend(check(page).err());
        }
        problems
    };
    let problems: Vec<String> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..WORKERS).map(|_| scope.spawn(worker)).collect();
        workers.into_iter().flat_map(|worker| worker.join().expect("a page is checked to its end")).collect()
    });
    assert!(problems.is_empty(), "{}", problems.join("\n\n"));
}

#[test]
fn the_dashboard_asks_for_what_there_is() {
    let fs = FileSystem::up(&["--data", "1"]);
    let text = ok(weft().arg("metrics").arg(fs.state()).arg("--once"));
    let kinds: Vec<(&str, &str)> =
        text.lines().filter_map(|line| line.strip_prefix("# TYPE ")).filter_map(|line| line.split_once(' ')).collect();
    let is_there = |name: &str| {
        let parts = ["_bucket", "_sum", "_count"].iter().filter_map(|end| name.strip_suffix(end));
        kinds.iter().any(|(known, _)| *known == name) || parts.into_iter().any(|stem| kinds.contains(&(stem, "histogram")))
    };
    let dashboard = fs::read(tree().join("lab/watch/grafana.json")).expect("the dashboard can be read");
    let dashboard: serde_json::Value = serde_json::from_slice(&dashboard).expect("it is JSON");
    let panels = dashboard["panels"].as_array().expect("it has panels");
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().expect("a panel asks for something"));
    let asked: BTreeSet<String> = targets
        .flat_map(|target| {
            let words = target["expr"].as_str().expect("an expression").split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            words.filter(|word| word.starts_with("weft_")).map(str::to_string).collect::<Vec<_>>()
        })
        .collect();
    assert!(asked.len() >= panels.len(), "{asked:?}");
    let unknown: Vec<&String> = asked.iter().filter(|name| !is_there(name)).collect();
    assert!(unknown.is_empty(), "nobody tells {unknown:?}");
}

#[test]
fn blocks_and_what_they_show_are_found() {
    let page = "```sh\nno\n```\n```sh run fuse cc\nweft up\nls\n```\n\n```text\nserves after 0.2 s\n...\n```\nwords\n```text\nno\n```\n";
    let found = blocks(page);
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].script.as_str(), found[0].needs.join(" ").as_str()), ("weft up\nls\n", "fuse cc"));
    assert_eq!(found[0].shown, ["serves after 0.2 s", "..."]);
    assert_eq!(missing(&found[0].shown, "other\nserves  after 17 s\n"), None);
    assert!(missing(&found[0].shown, "serves after 17 ms\n").is_some());
    assert!(is_alike("data...serving...batch", "data0 1 serving  batch") && !is_alike("a...b", "a b c") && !is_alike("a", "a b"));
    let order = ["b".to_string(), "a".to_string()];
    assert!(missing(&order, "a\nb\n").is_some() && missing(&order, "a\nb\na\n").is_none());
}
