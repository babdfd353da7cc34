//! Programs that people use, on a mount.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use weft_system_tests::{FileSystem, Need, Random, available, ok};

fn mounted() -> FileSystem {
    FileSystem::mounted(&["--meta", "2", "--data", "4", "--stripe-size", "64KiB"])
}

fn sh(dir: &Path, script: &str) -> String {
    ok(Command::new("sh").args(["-euc", script]).current_dir(dir))
}

/// The sources of Weft: they are there wherever the tests are.
fn sources() -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "../.."].iter().collect()
}

#[test]
fn git_clone_fsck_and_checkout() {
    if !available("git_clone_fsck_and_checkout", &[Need::Fuse, Need::Programs(&["git"])]) {
        return;
    }
    let fs = mounted();
    let origin = fs.path("origin");
    fs::create_dir(&origin).unwrap();
    let git = "export HOME=. GIT_CONFIG_NOSYSTEM=1 GIT_AUTHOR_NAME=t GIT_AUTHOR_EMAIL=t@t GIT_COMMITTER_NAME=t GIT_COMMITTER_EMAIL=t@t;";
    sh(
        &origin,
        &format!(
            "{git} git init -q -b main .
            for commit in 1 2 3 4 5; do
                mkdir -p d$commit/e; for file in $(seq 40); do echo $commit $file $(seq $file) > d$commit/e/f$file; done
                echo $commit > version; git add -A; git commit -qm commit$commit; git tag t$commit
            done"
        ),
    );
    let script = format!(
        "{git} git clone -q --no-local '{}' clone; cd clone; git fsck --strict --full
        for tag in t1 t4 t2 t5; do git checkout -q $tag; test $(cat version) = ${{tag#t}}; git status --porcelain; done
        git checkout -q -b work; for file in d1/e/*; do echo more >> $file; done; git rm -qr d2; git commit -qam work
        git gc -q --aggressive --prune=now; git fsck --strict --full; git diff --stat t5 | tail -1",
        origin.display()
    );
    let words = sh(&fs.mnt(), &script);
    assert!(words.contains("80 files changed"), "{words}");
    // What git wrote is what git reads elsewhere.
    sh(&fs.path(""), &format!("{git} git clone -q --no-local mnt/clone back && cd back && git fsck --strict --full && test ! -e d2"));
}

#[test]
fn a_c_project_builds() {
    if !available("a_c_project_builds", &[Need::Fuse, Need::Programs(&["make", "cc", "ar"])]) {
        return;
    }
    let fs = mounted();
    let dir = fs.mnt().join("project");
    fs::create_dir(&dir).unwrap();
    const FILES: usize = 30;
    let mut main = "#include <stdio.h>\n#include \"all.h\"\nint main(void) { long sum = 0;\n".to_string();
    let mut header = String::new();
    for number in 0..FILES {
        header += &format!("long f{number}(void);\n");
        main += &format!("sum += f{number}();\n");
        let text = format!("#include \"all.h\"\nlong f{number}(void) {{ return {number}; }}\n");
        fs::write(dir.join(format!("f{number}.c")), text).unwrap();
    }
    main += "printf(\"%ld\\n\", sum); return 0; }\n";
    fs::write(dir.join("all.h"), header).unwrap();
    fs::write(dir.join("main.c"), main).unwrap();
    let makefile = "objects := $(patsubst %.c,%.o,$(filter-out main.c,$(wildcard *.c)))\nprogram: main.o libf.a\n\tcc -o $@ main.o libf.a\n\
        libf.a: $(objects)\n\tar rcs $@ $?\n%.o: %.c all.h\n\tcc -O1 -Wall -Werror -c -o $@ $<\nclean:\n\trm -f *.o *.a program\n";
    fs::write(dir.join("Makefile"), makefile).unwrap();
    let sum: usize = (0..FILES).sum();
    assert!(sh(&dir, "make -j4 && ./program").ends_with(&format!("{sum}\n")));
    assert!(sh(&dir, "make").contains("up to date"), "time stamps say that nothing is to do");
    let again = sh(&dir, "sleep 0.1; sed -i 's/return 7/return 1007/' f7.c; make && ./program");
    assert_eq!(again.matches("cc -O1").count(), 1, "only what was changed is built again: {again}");
    assert!(again.ends_with(&format!("{}\n", sum + 1000)));
    sh(&dir, "make clean && cd .. && rm -r project");
}

#[test]
fn sqlite_with_four_processes() {
    if !available("sqlite_with_four_processes", &[Need::Fuse, Need::Programs(&["sqlite3"])]) {
        return;
    }
    let fs = mounted();
    for mode in ["delete", "wal"] {
        let dir = fs.mnt().join(mode);
        fs::create_dir(&dir).unwrap();
        sh(
            &dir,
            &format!(
                "sqlite3 db 'PRAGMA journal_mode={mode}; CREATE TABLE t(process INT, number INT, filler TEXT, UNIQUE(process, number));'"
            ),
        );
        let insert = |process: usize| {
            let mut script = ".timeout 60000\nPRAGMA synchronous=NORMAL;\n".to_string();
            for batch in 0..15 {
                script += "BEGIN IMMEDIATE;\n";
                for number in 0..20 {
                    script += &format!("INSERT INTO t VALUES({process}, {}, hex(randomblob(200)));\n", batch * 20 + number);
                }
                script += "COMMIT;\n";
            }
            let file = fs.path(&format!("insert-{mode}-{process}"));
            fs::write(&file, script).unwrap();
            format!("sqlite3 -bail db < '{}' & pids=\"$pids $!\";", file.display())
        };
        let all: String = (0..4).map(insert).collect();
        sh(&dir, &format!("pids=; {all} for pid in $pids; do wait $pid; done"));
        let words = sh(
            &dir,
            "sqlite3 db 'PRAGMA integrity_check; SELECT count(*), count(DISTINCT process) FROM t; VACUUM; PRAGMA integrity_check;'",
        );
        assert_eq!(words, "ok\n1200|4\nok\n", "{mode}");
    }
}

#[test]
fn rsync_with_checksums() {
    if !available("rsync_with_checksums", &[Need::Fuse, Need::Programs(&["rsync"])]) {
        return;
    }
    let fs = mounted();
    let (source, target) = (fs.path("source"), fs.mnt().join("target"));
    let sources = sources();
    sh(&sources, &format!("mkdir '{0}' && cp -r --preserve=timestamps core nodes docs '{0}'", source.display()));
    sh(&source, "ln -s core/base link; ln docs/wire.md hard; chmod 640 docs/wire.md; truncate -s 3000000 sparse; mkfifo pipe");
    let rsync = format!("rsync -aH --checksum --itemize-changes '{}/' '{}/'", source.display(), target.display());
    assert!(sh(&source, &rsync).lines().count() > 50);
    assert_eq!(sh(&source, &rsync), "", "nothing is left to do: content, times, modes, owners and links are the same");
    sh(&source, "echo more >> docs/wire.md; touch core/base/src/lib.rs; rm -r nodes/client");
    let changes = sh(&source, &format!("{rsync} --delete"));
    assert!(changes.contains("*deleting   nodes/client/") && changes.contains("docs/wire.md"), "{changes}");
    sh(&source, &format!("diff -r --no-dereference --exclude=pipe '{}' '{}'", source.display(), target.display()));
    // And from the mount.
    let back = fs.path("back");
    ok(Command::new("rsync").args(["-aH", "--checksum"]).arg(target.join("")).arg(&back));
    sh(&back, &format!("diff -r --no-dereference --exclude=pipe '{}' .", source.display()));
}

#[test]
fn untar_compare_and_remove() {
    if !available("untar_compare_and_remove", &[Need::Fuse, Need::Programs(&["tar", "diff"])]) {
        return;
    }
    let fs = mounted();
    let mut trees = vec![(sources(), "apps benches core docs gateways nodes runtime tests Cargo.toml README.md")];
    if Path::new("/usr/include/linux").is_dir() {
        trees.push(("/usr/include".into(), "linux"));
    }
    for (root, names) in trees {
        let archive = fs.path("archive.tar");
        sh(&root, &format!("tar -cf '{}' {names}", archive.display()));
        let (local, mnt) = (fs.path("local"), fs.mnt().join("untarred"));
        for place in [&local, &mnt] {
            fs::create_dir(place).unwrap();
            sh(place, &format!("tar -xpf '{}'", archive.display()));
        }
        sh(&local, &format!("diff -r --no-dereference . '{}'", mnt.display()));
        // Sizes, modes, owners, times and targets of links, too.
        let listing = "find . -printf '%P %y %m %U %G %T@ %l ' \\( -type f -printf '%s\\n' -o -printf '\\n' \\) | sort";
        let (expected, found) = (sh(&local, listing), sh(&mnt, listing));
        // The times of the top are when it was made.
        let tail = |text: &str| text.lines().filter(|line| !line.starts_with(' ')).map(str::to_string).collect::<Vec<_>>();
        let (expected, found) = (tail(&expected), tail(&found));
        let differing: Vec<_> = expected.iter().zip(&found).filter(|(a, b)| a != b).take(5).collect();
        assert!(expected == found, "{} and {} entries; {differing:#?}", expected.len(), found.len());
        eprintln!("{} entries", found.len());
        sh(&fs.mnt(), "tar -cf - untarred | tar -df -");
        sh(&fs.mnt(), "rm -r untarred");
        fs::remove_dir_all(&local).unwrap();
    }
}

#[test]
fn streams_of_any_block_size() {
    if !available("streams_of_any_block_size", &[Need::Fuse, Need::Programs(&["dd", "cmp"])]) {
        return;
    }
    const BYTES: usize = 48 << 20;
    let fs = mounted();
    let source = fs.path("source");
    fs::write(&source, Random::new(9).bytes(BYTES)).unwrap();
    for (number, options) in
        ["bs=1M", "bs=47008", "bs=4k", "bs=1M oflag=direct", "bs=3900000 conv=fsync", "bs=64k oflag=append conv=notrunc"].iter().enumerate()
    {
        let script =
            format!("dd if='{}' of=stream{number} status=none iflag=fullblock {options}; cmp '{0}' stream{number}", source.display());
        sh(&fs.mnt(), &script);
        let back =
            format!("dd if=stream{number} status=none {} | cmp - '{}'", ["bs=100k", "bs=1M iflag=direct"][number % 2], source.display());
        sh(&fs.mnt(), &back);
    }
    assert!(sh(&fs.mnt(), "for f in stream[1-9]; do cmp stream0 $f; rm $f; done; rm stream0; ls").is_empty());
}

#[test]
fn fio_verifies_what_it_wrote() {
    if !available("fio_verifies_what_it_wrote", &[Need::Fuse, Need::Programs(&["fio"])]) {
        return;
    }
    let fs = mounted();
    for (name, options) in [
        ("random", "--rw=randwrite --bsrange=512-96k --numjobs=2"),
        ("direct", "--rw=randwrite --bs=16k --direct=1 --ioengine=libaio --iodepth=16"),
        ("mmap", "--rw=randwrite --bs=4k --ioengine=mmap"),
        ("mixed", "--rw=randrw --bs=4k-64k --fsync=50"),
    ] {
        let script =
            format!("fio --name={name} --directory=. --size=8m --verify=crc32c --verify_fatal=1 --do_verify=1 --minimal {options}");
        sh(&fs.mnt(), &script);
    }
}
