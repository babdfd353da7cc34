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

#[test]
fn figures_of_a_paper_are_drawn_and_the_others_say_why_not() {
    let folder = tempfile::tempdir().expect("a directory");
    let out = folder.path().to_str().expect("UTF-8");
    let said = ok(&mut weft(["papers", "dnfsp", "--plot", out]));
    let line = |begin: &str| said.lines().find(|line| line.starts_with(begin)).unwrap_or_else(|| panic!("no {begin} in {said}"));
    assert!(line("Figure 3, dNFSp1").ends_with(": dnfsp-figure-3-seconds.svg"), "{said}");
    assert!(line("Figure 3, dNFSp2").ends_with(": dnfsp-figure-3-seconds.svg"), "the same picture: {said}");
    assert!(line("Figure 3, PVFS2").ends_with(": dnfsp-figure-3-create-seconds.svg"), "{said}");
    assert!(line("Figure 3, NFS").ends_with(": no picture: not built"), "{said}");
    assert!(line("Section 5").ends_with("measured with `--real` only"), "{said}");
    let drawn = std::fs::read_to_string(folder.path().join("dnfsp-figure-3-seconds.svg")).expect("drawn");
    assert!(drawn.contains("lrc") && drawn.contains("token") && drawn.contains("files"), "{drawn}");
    // The result is a bandwidth where the command says seconds.
    assert!(line("Figure 5").ends_with(": dnfsp-figure-5-mib-s.svg"), "{said}");
    let bandwidth = std::fs::read_to_string(folder.path().join("dnfsp-figure-5-mib-s.svg")).expect("drawn");
    assert!(bandwidth.contains("MiB/s") && !bandwidth.contains("seconds"), "{bandwidth}");
    assert!(fails(&mut weft(["papers", "dnfsp", "--real"])).contains("--real is for --write and --plot"));
}
