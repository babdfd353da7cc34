//! `weft papers` as its users see it.

mod program;

use program::{fails, ok, weft};

/// The numbers of 2009 have tests of their own in `lab/piosim`, which take less time.
#[test]
fn verdicts_are_those_of_the_pages() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/results");
    ok(&mut weft(["papers", "2006", "2007", "2016", "dnfsp", "--check", folder]));
}

#[test]
fn papers_are_listed_and_others_are_refused() {
    let list = ok(&mut weft(["papers"]));
    assert!(list.lines().any(|line| line.starts_with("2009 ")), "{list}");
    assert!(fails(&mut weft(["papers", "1984"])).contains("there is no paper 1984: write one of"));
    assert!(fails(&mut weft(["papers", "--check", "."])).contains("which papers?"));
}
