//! Every reader of bytes takes any bytes: the committed corpus of the fuzz targets, and
//! deterministic damage to a valid message of every type.

use std::collections::BTreeMap;
use std::fs;

use weft_system_tests::fuzzing::{Mutator, TARGETS, Target};

/// Damaged versions of every valid input.
const MUTATIONS: u64 = 10_000;

fn committed(target: &Target) -> BTreeMap<String, Vec<u8>> {
    let dir = target.corpus_dir();
    let entries = fs::read_dir(&dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
    entries
        .map(|entry| {
            let path = entry.expect("a readable folder").path();
            let name = path.file_name().expect("an entry has a name").to_string_lossy().into_owned();
            (name, fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display())))
        })
        .collect()
}

#[test]
fn the_committed_corpus_is_read_without_a_crash() {
    for target in &TARGETS {
        for (name, bytes) in committed(target) {
            eprintln!("{}/{name}", target.name); // shown if it panics
            (target.run)(&bytes);
        }
    }
}

/// Keeps the corpus of the same format as the code. Files that a fuzzer has found and somebody has
/// added stay as they are.
#[test]
fn the_committed_corpus_fits_the_format() {
    let bless = std::env::var_os("WEFT_BLESS").is_some();
    for target in &TARGETS {
        let dir = target.corpus_dir();
        if bless {
            fs::create_dir_all(&dir).unwrap();
            for name in committed(target).keys().filter(|name| name.starts_with("valid-") || name.starts_with("damaged-")) {
                fs::remove_file(dir.join(name)).unwrap();
            }
            for (name, bytes) in target.corpus() {
                fs::write(dir.join(name), bytes).unwrap();
            }
        }
        let there = committed(target);
        for (name, bytes) in target.corpus() {
            assert!(
                there.get(&name) == Some(&bytes),
                "fuzz/corpus/{}/{name} is not what the code writes now: if the format was changed on purpose, \
                 run WEFT_BLESS=1 cargo test -p weft-system-tests --test corpus",
                target.name
            );
        }
    }
}

#[test]
fn damaged_messages_of_every_type_are_survived() {
    for target in &TARGETS {
        for (number, (name, bytes)) in (target.valid)().into_iter().enumerate() {
            eprintln!("{}, {name}", target.name); // shown if it panics
            (target.run)(&bytes);
            let mut mutator = Mutator::new(number as u64);
            for _ in 0..MUTATIONS {
                (target.run)(&mutator.damage(&bytes));
            }
        }
    }
}

#[test]
fn every_cut_is_survived() {
    for target in &TARGETS {
        for (name, bytes) in (target.valid)() {
            eprintln!("{}, {name}", target.name); // shown if it panics
            (0..bytes.len()).for_each(|end| (target.run)(&bytes[..end]));
        }
    }
}
