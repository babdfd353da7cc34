//! The C library, as a program meets it: installed under a prefix, found by pkg-config, compiled
//! with a C compiler, and run against servers. The examples of `gateways/capi` are the tests.

mod header;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use tempfile::TempDir;
use weft_system_tests::{FileSystem, Need, available, built, ok, skip, weft};

/// The library, installed in a folder of this test.
struct Library {
    dir: TempDir,
}

/// The root of the source tree.
fn tree() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

impl Library {
    /// `None`, and a word about it, without a C compiler.
    fn install(test: &str) -> Option<Library> {
        if !available(test, &[Need::Programs(&["cc"])]) {
            return None;
        }
        let built = built("weft-capi", "libweft_capi.so");
        let dir = tempfile::tempdir().expect("a temporary folder");
        let mut install = Command::new(tree().join("scripts/install-library.sh"));
        ok(install.arg(built.parent().expect("it lies in a folder")).arg(dir.path()));
        Some(Library { dir })
    }

    /// What `pkg-config` says with these arguments, or what it would say.
    fn flags(&self, is_static: bool) -> Vec<String> {
        let lib = self.dir.path().join("lib");
        let said = match available("pkg-config", &[Need::Programs(&["pkg-config"])]) {
            true => {
                let mut command = Command::new("pkg-config");
                command.env("PKG_CONFIG_PATH", lib.join("pkgconfig")).args(["--cflags", "--libs", "weft"]);
                if is_static {
                    command.arg("--static");
                }
                ok(&mut command)
            }
            false => format!("-I{0}/include -L{0}/lib -lweft -lgcc_s -lutil -lrt -lpthread -lm -ldl", self.dir.path().display()),
        };
        let flags = said.split_whitespace().map(str::to_string);
        match is_static {
            // Both are there, and the linker would take the shared one.
            true => flags.map(|flag| if flag == "-lweft" { lib.join("libweft.a").display().to_string() } else { flag }).collect(),
            false => flags.chain([format!("-Wl,-rpath,{}", lib.display())]).collect(),
        }
    }

    /// Compiles a program.
    #[track_caller]
    fn compile(&self, compiler: &[&str], source: &Path, name: &str, is_static: bool) -> PathBuf {
        let program = self.dir.path().join(name);
        let mut command = Command::new(compiler[0]);
        command.args(&compiler[1..]).args(["-Wall", "-Wextra", "-Werror", "-pthread", "-o"]).arg(&program).arg(source);
        ok(command.args(self.flags(is_static)));
        program
    }

    /// Compiles an example.
    #[track_caller]
    fn example(&self, name: &str) -> PathBuf {
        let source = tree().join("gateways/capi/examples").join(format!("{name}.c"));
        self.compile(&["cc", "-std=c11", "-D_POSIX_C_SOURCE=200809L"], &source, name, false)
    }
}

#[test]
fn every_call_does_what_the_header_says() {
    let Some(library) = Library::install("every_call_does_what_the_header_says") else { return };
    let fs = FileSystem::up(&["--meta", "2", "--data", "2"]);
    let said = ok(Command::new(library.example("tour")).arg(fs.state()));
    assert!(said.contains("all is well"), "{said}");
    // Nothing is left, and nobody is taken for one who has something open.
    assert_eq!(ok(weft().arg("ls").arg(fs.at("/"))), "");
}

#[test]
fn threads_share_a_file_system() {
    let test = "threads_share_a_file_system";
    let Some(library) = Library::install(test) else { return };
    let fs = FileSystem::up(&["--meta", "2", "--data", "2"]);
    let program = library.example("threads");
    assert!(ok(Command::new(&program).arg(fs.state()).args(["8", "40"])).contains("8 threads: all is well"));
    if available(test, &[Need::Programs(&["valgrind"])]) {
        let mut checked = Command::new("valgrind");
        checked.args(["-q", "--error-exitcode=9", "--leak-check=full", "--errors-for-leak-kinds=definite"]);
        assert!(ok(checked.arg(&program).arg(fs.state()).args(["3", "10"])).contains("3 threads: all is well"));
    }
}

#[test]
fn the_static_library_is_whole() {
    let Some(library) = Library::install("the_static_library_is_whole") else { return };
    let fs = FileSystem::up(&["--data", "1"]);
    let source = tree().join("gateways/capi/examples/threads.c");
    let program = library.compile(&["cc", "-std=c11", "-D_POSIX_C_SOURCE=200809L"], &source, "static", true);
    std::fs::remove_dir_all(library.dir.path().join("lib")).unwrap();
    assert!(ok(Command::new(&program).arg(fs.state()).args(["2", "3"])).contains("2 threads: all is well"));
}

#[test]
fn a_batch_costs_few_messages() {
    let Some(library) = Library::install("a_batch_costs_few_messages") else { return };
    let fs = FileSystem::up(&["--meta", "1", "--data", "2"]);
    let local = fs.path("local");
    std::fs::create_dir(&local).unwrap();
    for number in 0..256 {
        std::fs::write(local.join(number.to_string()), vec![b'x'; 3901]).unwrap();
    }
    ok(weft().args(["cp", "-r"]).arg(&local).arg(fs.at("/")));
    let paths: String = (0..256).map(|number| format!("/local/{number}\n")).collect();
    let list = fs.path("list");
    std::fs::write(&list, paths).unwrap();
    let requests = || {
        let text = ok(weft().arg("metrics").arg(fs.state()).arg("--once"));
        let counts = text.lines().filter(|line| line.starts_with("weft_request_duration_seconds_count{"));
        let asked = counts.filter(|line| ["op=\"Lookup", "op=\"Read", "op=\"Open"].iter().any(|op| line.contains(op)));
        asked.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()).sum::<f64>()
    };
    let before = requests();
    let mut reader = Command::new("sh");
    reader.arg("-c").arg("exec \"$0\" \"$1\" 256 <\"$2\"").arg(library.example("readers")).arg(fs.state()).arg(&list);
    let said = ok(&mut reader);
    assert!(said.contains("\"files\": 256") && said.contains(&(256 * 3901).to_string()), "{said}");
    // The walk to the directory, the names, and the data of two servers.
    let asked = requests() - before;
    assert!((3.0..=5.0).contains(&asked), "{asked} requests for 256 files");
}

/// Only one that is killed is waited for, until what it was told is not true for it any more.
#[test]
fn a_program_that_ends_without_closing_holds_nobody_up() {
    let Some(library) = Library::install("a_program_that_ends_without_closing_holds_nobody_up") else { return };
    let fs = FileSystem::up(&["--data", "1"]);
    ok(weft().arg("mkdir").arg(fs.at("/dir")));
    let program = library.example("leaves");
    let mut waited = Vec::new();
    for how in ["ends", "dies"] {
        ok(weft().arg("create").arg(fs.at("/dir/file")));
        let said = Command::new(&program).arg(fs.state()).arg("/dir/file").arg(how).output().expect("it runs");
        assert_eq!(said.status.success(), how == "ends", "{said:?}");
        let began = Instant::now();
        ok(weft().arg("rm").arg(fs.at("/dir/file")));
        waited.push(began.elapsed());
    }
    assert!(waited[0] * 3 < waited[1], "{waited:?}");
}

#[test]
fn the_library_is_found_by_its_version() {
    let test = "the_library_is_found_by_its_version";
    let Some(library) = Library::install(test) else { return };
    let lib = library.dir.path().join("lib");
    let target = |name: &str| std::fs::read_link(lib.join(name)).unwrap();
    assert_eq!(target("libweft.so"), Path::new("libweft.so.0"));
    assert_eq!(target("libweft.so.0"), Path::new(concat!("libweft.so.", env!("CARGO_PKG_VERSION"))));
    if !available(test, &[Need::Programs(&["readelf"])]) {
        return skip(test, "the name inside the library is not looked at");
    }
    let program = library.example("tour");
    let needed = ok(Command::new("readelf").arg("-d").arg(&program));
    assert!(needed.contains("[libweft.so.0]"), "{needed}");
}
