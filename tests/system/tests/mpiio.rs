//! MPI-IO for files on Weft, as programs of MPI meet it: the library is compiled with the compiler
//! of each MPI that is installed, loaded before the MPI library, and used by several ranks, each a
//! client of its own. The examples of `gateways/mpiio` are the tests.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use tempfile::TempDir;
use weft_system_tests::{FileSystem, Need, available, built, ok, weft};

/// An MPI of Debian, by the suffix of its commands.
struct Mpi {
    name: &'static str,
    dir: TempDir,
}

/// Ranks that wait for a message do not sleep: jobs side by side would keep each other from work.
static ONE_JOB: Mutex<()> = Mutex::new(());

/// The root of the source tree.
fn tree() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

impl Mpi {
    /// The library for MPICH, installed in a folder of this test; `None`, and a word about it,
    /// where there is no MPICH.
    fn mpich(test: &str) -> Option<Mpi> {
        available(test, &[Need::Programs(&["mpicc.mpich", "mpiexec.mpich"])]).then(|| Mpi::install("mpich"))
    }

    /// The same for Open MPI.
    fn openmpi(test: &str) -> Option<Mpi> {
        available(test, &[Need::Programs(&["mpicc.openmpi", "mpiexec.openmpi"])]).then(|| Mpi::install("openmpi"))
    }

    fn install(name: &'static str) -> Mpi {
        let library = built("weft-capi", "libweft_capi.so");
        let dir = tempfile::tempdir().expect("a temporary folder");
        let scripts = tree().join("scripts");
        ok(Command::new(scripts.join("install-library.sh")).arg(library.parent().expect("it lies in a folder")).arg(dir.path()));
        ok(Command::new(scripts.join("install-mpiio.sh")).arg(format!("mpicc.{name}")).arg(dir.path()));
        Mpi { name, dir }
    }

    /// Compiles an example.
    #[track_caller]
    fn example(&self, name: &str) -> PathBuf {
        let program = self.dir.path().join(name);
        let folders = ["gateways/mpiio/examples", "gateways/mpitrace/examples"];
        let sources = folders.map(|folder| tree().join(folder).join(format!("{name}.c")));
        let source = sources.iter().find(|source| source.is_file()).expect("an example");
        let mut compiler = Command::new(format!("mpicc.{}", self.name));
        ok(compiler.args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-Wno-stringop-overflow", "-o"]).arg(&program).arg(source));
        program
    }

    /// Runs a program on so many ranks with the library loaded before; gives what it printed.
    #[track_caller]
    fn run(&self, ranks: u32, fs: &FileSystem, program: &Path, args: &[&str]) -> String {
        self.run_with(&[], ranks, fs, program, args)
    }

    /// The same in an environment of its own.
    #[track_caller]
    fn run_with(&self, environment: &[(&str, &Path)], ranks: u32, fs: &FileSystem, program: &Path, args: &[&str]) -> String {
        let preload = self.dir.path().join(format!("lib/libweft-mpiio-{}.so", self.name));
        let mut mpiexec = Command::new(format!("mpiexec.{}", self.name));
        mpiexec.envs(environment.iter().copied());
        mpiexec.env("WEFT_FS", fs.state()).env("WEFT_MPIIO_VERBOSE", "1").args(["-n", &ranks.to_string()]);
        match self.name {
            "openmpi" => mpiexec.args(["--allow-run-as-root", "--oversubscribe", "-x", &format!("LD_PRELOAD={}", preload.display())]),
            _ => mpiexec.args(["-env", "LD_PRELOAD"]).arg(&preload),
        };
        let _alone = ONE_JOB.lock().unwrap_or_else(PoisonError::into_inner);
        ok(mpiexec.arg(program).args(args))
    }
}

fn calls_do_what_mpi_says(mpi: &Mpi) {
    let fs = FileSystem::up(&["--meta", "1", "--data", "3"]);
    let elsewhere = fs.path("elsewhere");
    let said = mpi.run(4, &fs, &mpi.example("calls"), &["weft:/file", elsewhere.to_str().unwrap()]);
    assert!(said.contains("4 ranks: all is well"), "{said}");
    assert_eq!(std::fs::metadata(elsewhere).unwrap().len(), 32);
    // The shared pointers' files are gone with the openings that they belonged to.
    assert_eq!(ok(weft().arg("ls").arg(fs.at("/"))).trim(), "file");
}

fn views_show_what_datatypes_say(mpi: &Mpi) {
    let fs = FileSystem::up(&["--data", "2"]);
    let said = mpi.run(4, &fs, &mpi.example("views"), &["weft:/views"]);
    assert!(said.contains("4 ranks: all is well"), "{said}");
}

#[test]
fn calls_with_mpich() {
    Mpi::mpich("calls_with_mpich").iter().for_each(calls_do_what_mpi_says);
}

#[test]
fn calls_with_open_mpi() {
    Mpi::openmpi("calls_with_open_mpi").iter().for_each(calls_do_what_mpi_says);
}

#[test]
fn views_with_mpich() {
    Mpi::mpich("views_with_mpich").iter().for_each(views_show_what_datatypes_say);
}

#[test]
fn views_with_open_mpi() {
    Mpi::openmpi("views_with_open_mpi").iter().for_each(views_show_what_datatypes_say);
}

/// 2 ranks, 160 blocks of 5,120 bytes each: by themselves a request each (two where a block lies on
/// two servers), together one for each server and part.
#[test]
fn a_list_is_one_request_for_each_server() {
    let test = "a_list_is_one_request_for_each_server";
    let Some(mpi) = Mpi::openmpi(test).or_else(|| Mpi::mpich(test)) else { return };
    let fs = FileSystem::up(&["--data", "2"]);
    let program = mpi.example("interleaved");
    let bytes = (2 * 160 * 5120).to_string();
    let asked = |method: &str| {
        let before = fs.answered_of(&["Write", "WriteLists"]);
        mpi.run(2, &fs, &program, &["weft:/blocks", "5120", &bytes, method, "8388608", "both"]);
        fs.answered_of(&["Write", "WriteLists"]) - before
    };
    assert!(asked("alone") >= 320);
    // Both ranks have blocks on both servers.
    assert_eq!(asked("direct"), 4);
    // One of them has all of the file in its part.
    assert_eq!(asked("interleaved_two_phase"), 2);
    // Each of them has half of it.
    assert_eq!(asked("two_phase"), 4);
    // What C has written, seen without MPI: each byte tells its place.
    let copy = fs.path("copy");
    ok(weft().arg("cp").arg(fs.at("/blocks")).arg(&copy));
    let found = std::fs::read(copy).unwrap();
    assert_eq!(found.len(), 2 * 160 * 5120);
    assert!((0..).zip(found).all(|(at, byte): (usize, u8)| byte == (at / 5120 * 13 + at % 5120) as u8));
}

/// Who uses a mount of another user has no note of what is mounted there: the kernel knows the way.
#[test]
fn a_mount_of_another_user_is_gone_through() {
    let test = "a_mount_of_another_user_is_gone_through";
    if !available(test, &[Need::Fuse]) {
        return;
    }
    let Some(mpi) = Mpi::mpich(test).or_else(|| Mpi::openmpi(test)) else { return };
    let fs = FileSystem::mounted(&["--data", "2"]);
    let notes_elsewhere = fs.path("notes");
    std::fs::create_dir(&notes_elsewhere).unwrap();
    let (program, file) = (mpi.example("interleaved"), fs.mnt().join("blocks"));
    let args = [file.to_str().unwrap(), "5120", "51200", "two_phase"];
    mpi.run_with(&[("XDG_RUNTIME_DIR", &notes_elsewhere)], 2, &fs, &program, &args);
    assert_eq!(std::fs::metadata(&file).unwrap().len(), 51200);
}

/// A program on Weft is recorded, looked at, and done again by the simulator: every call that it
/// made is there, and the replay sends as many bytes to the file.
fn a_recorded_program_is_replayed(mpi: &Mpi) {
    let fs = FileSystem::up(&["--data", "2"]);
    let (into, program) = (fs.path("run"), mpi.example("ring"));
    let mut trace = weft();
    trace.env("WEFT_MPITRACE_LIB", mpi.dir.path().join("lib")).env("WEFT_FS", fs.state());
    trace.env("LD_PRELOAD", mpi.dir.path().join(format!("lib/libweft-mpiio-{}.so", mpi.name)));
    trace.args(["trace", "mpi", "--mpi", mpi.name, "--into"]).arg(&into).arg("--").arg(format!("mpiexec.{}", mpi.name));
    if mpi.name == "openmpi" {
        trace.args(["--allow-run-as-root", "--oversubscribe", "-x", "LD_PRELOAD"]);
    }
    let said = {
        let _alone = ONE_JOB.lock().unwrap_or_else(PoisonError::into_inner);
        ok(trace.args(["-n", "4"]).arg(&program).arg("weft:/blocks"))
    };
    // Of each rank: 12 begun messages, 3 waits, 10 other calls.
    assert!(said.contains("4 ranks, 100 calls"), "{said}");
    assert!(ok(weft().arg("ls").arg("-l").arg(fs.at("/"))).contains("blocks"));
    // Nanoseconds from the start, how long it took, byte offset and bytes.
    let calls = |paths: &Path, node: &str, name: &str| {
        let csv = fs.path("calls.csv");
        ok(weft().args(["export", "--format", "csv", "--output"]).arg(&csv).arg(paths));
        let text = std::fs::read_to_string(csv).unwrap();
        let rows = text.lines().map(|line| line.split(',').collect::<Vec<_>>());
        let of_event = rows.filter(|row| row[7] == name && row[2].starts_with(node));
        of_event.map(|row| [0, 1, 14, 15].map(|column| row[column].parse::<u64>().unwrap_or(0))).collect::<Vec<_>>()
    };
    assert_eq!(calls(&into, "", "File_write_all").iter().map(|call| call[3]).collect::<Vec<_>>(), [32768; 4]);
    assert_eq!(calls(&into, "", "Waitall").len(), 12);
    assert_eq!(calls(&into, "", "Sendrecv").len(), 4);
    let again = fs.path("again");
    ok(weft().args(["sim", "run"]).arg(into.join("replay.toml")).arg("--trace").arg(&again));
    let again = again.join("case0");
    let replayed = |name: &str| calls(&again, "client1", &format!("app.{name}"));
    for (name, times) in [("send", 6), ("recv", 6), ("wait", 3), ("sendrecv", 1), ("reduce", 1)] {
        assert_eq!(replayed(name).len(), times, "{name}");
    }
    // The blocks of the view: of rank 1 the second of each four, eight times.
    assert_eq!(replayed("write_all").iter().map(|call| [call[2], call[3]]).collect::<Vec<_>>(), [[4096, 8 * 4096]]);
    // It does nothing for 50 ms before the last barrier, recorded as well as simulated.
    const REST_NS: u64 = 50_000_000;
    assert!(replayed("compute").iter().any(|call| call[1] >= REST_NS) && replayed("barrier")[0][0] >= REST_NS);
    let picture = fs.path("both.svg");
    ok(weft().args(["plot", "timeline", "--output"]).arg(&picture).arg(&into).arg(&again));
    assert!(std::fs::metadata(picture).unwrap().len() > 1000);
}

#[test]
fn a_recorded_program_of_mpich_is_replayed() {
    Mpi::mpich("a_recorded_program_of_mpich_is_replayed").iter().for_each(a_recorded_program_is_replayed);
}

#[test]
fn a_recorded_program_of_open_mpi_is_replayed() {
    Mpi::openmpi("a_recorded_program_of_open_mpi_is_replayed").iter().for_each(a_recorded_program_is_replayed);
}

/// Ctrl-C ends the program, and what it did until then is a run as any other.
#[test]
fn an_interrupted_recording_is_made_a_project() {
    let test = "an_interrupted_recording_is_made_a_project";
    let Some(mpi) = Mpi::mpich(test) else { return };
    let dir = tempfile::tempdir().expect("a temporary folder");
    let (into, file) = (dir.path().join("run"), dir.path().join("blocks"));
    let program = format!("mpiexec.mpich -n 2 {} {}; kill -INT $PPID; exit 7", mpi.example("ring").display(), file.display());
    let mut trace = weft();
    trace.env("WEFT_MPITRACE_LIB", mpi.dir.path().join("lib")).args(["trace", "mpi", "--mpi", "mpich", "--into"]).arg(&into);
    let _alone = ONE_JOB.lock().unwrap_or_else(PoisonError::into_inner);
    let ended = trace.args(["--", "sh", "-c", &program]).output().expect("it runs");
    assert_eq!(ended.status.code(), Some(7), "{ended:?}");
    assert!(into.join("run.proj").is_file(), "{ended:?}");
}

/// Also a signal that comes before the program has done anything.
#[test]
fn a_recording_that_is_interrupted_at_once_ends_in_good_order() {
    let test = "a_recording_that_is_interrupted_at_once_ends_in_good_order";
    let Some(mpi) = Mpi::mpich(test) else { return };
    for round in 0..20 {
        let into = mpi.dir.path().join(format!("run{round}"));
        let mut trace = weft();
        trace.env("WEFT_MPITRACE_LIB", mpi.dir.path().join("lib")).args(["trace", "mpi", "--mpi", "mpich", "--into"]).arg(into);
        let ended = trace.args(["--", "sh", "-c", "kill -TERM $PPID; exit 3"]).output().expect("it runs");
        let words = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(1), "{ended:?}");
        assert!(words.contains("no rank"), "{words}");
    }
}
