//! The yardstick of Kuhn 2007: how many messages and changes of the disks a file costs by the steps
//! of PVFS2, with the hint `no_metafile` and without, and by Weft's own protocol. Counts of the
//! same kind as in its figures 6.1 to 6.6, where a create has 12 accesses without the hint and 8
//! with it.

use weft_virtual_cluster::{ClusterShape, Durability, PhaseReport, run};
use weft_workload::{Dirs, Protocol, Steps, WorkStep, Workload};

const FILES: u64 = 200;

fn measure(protocol: Protocol, no_metafile: bool, data: u16, procs: u32) -> Vec<PhaseReport> {
    let shape = ClusterShape { data, contracts: Durability::Sync.into(), ..ClusterShape::default() };
    let steps = Steps::each(&[WorkStep::Create, WorkStep::Readdir, WorkStep::Remove]);
    let work = Workload { protocol, no_metafile, procs, dirs: Dirs::Own, attrs: true, steps, ..Workload::empty_files(FILES) };
    let phases = run(&shape, &work).expect("nothing fails here");
    assert!(phases.iter().all(|phase| phase.operations == FILES * u64::from(procs)), "every file is made, listed and removed");
    phases
}

/// Messages and flushes of disks for a file, rounded down to whole ones: reservations, pages of
/// listings and checkpoints are shared by many files.
fn for_a_file(phases: &[PhaseReport]) -> Vec<(u64, u64)> {
    phases.iter().map(|phase| (phase.messages / phase.operations, phase.disk.syncs / phase.operations)).collect()
}

#[test]
fn the_steps_of_a_file_are_those_of_the_paper() {
    // Create, list, remove: section 3.3 (listings: and one look at the directory for all of them).
    let without = for_a_file(&measure(Protocol::Classic, false, 1, 1));
    assert_eq!(without, [(5, 4), (2, 0), (4, 3)], "five steps, of which one asks; two; four, of which one asks");
    let with = for_a_file(&measure(Protocol::Classic, true, 1, 1));
    assert_eq!(with, [(3, 2), (1, 0), (3, 2)], "without the metafile's");
    let own = for_a_file(&measure(Protocol::Weft, false, 1, 1));
    assert_eq!(own, [(1, 1), (0, 0), (1, 1)], "Weft: one request, one change");
    let own_with = for_a_file(&measure(Protocol::Weft, true, 1, 1));
    assert_eq!(own_with, own, "there is no metafile to be left away");
}

#[test]
fn a_listing_asks_twice_for_each_32_names() {
    let listing = |no_metafile| measure(Protocol::Classic, no_metafile, 1, 1)[1].messages;
    // Directory and names: 200 files are seven pages.
    let pages = 2 * FILES.div_ceil(32);
    let messages = [listing(false), listing(true)];
    assert!(messages[0] - 2 * FILES - pages <= 4, "{messages:?}, {pages} of them for pages");
    assert!(messages[1] - FILES - pages <= 4, "{messages:?}, {pages} of them for pages");
}

#[test]
fn each_datafile_is_a_message_and_a_change_of_its_own() {
    let without = for_a_file(&measure(Protocol::Classic, false, 4, 1));
    assert_eq!(without, [(8, 7), (5, 0), (7, 6)], "four datafiles");
    let with = for_a_file(&measure(Protocol::Classic, true, 4, 1));
    assert_eq!(with, [(3, 2), (1, 0), (3, 2)], "one datafile");
}

#[test]
fn flushes_of_their_own_are_one_for_each_change() {
    let syncs = |flush_each, procs| {
        let shape = ClusterShape { data: 1, contracts: Durability::Sync.into(), flush_each, ..ClusterShape::default() };
        let steps = Steps::each(&[WorkStep::Create, WorkStep::Remove]);
        let work = Workload { procs, dirs: Dirs::Own, steps, ..Workload::empty_files(FILES) };
        let phases = run(&shape, &work).expect("nothing fails here");
        phases.iter().map(|phase| phase.disk.syncs as f64 / phase.operations as f64).collect::<Vec<_>>()
    };
    assert!(syncs(true, 5).iter().all(|syncs| *syncs >= 1.0), "{:?}", syncs(true, 5));
    assert!(syncs(false, 5).iter().all(|syncs| *syncs < 0.7), "those that wait share one: {:?}", syncs(false, 5));
    assert_eq!(syncs(true, 1), syncs(false, 1), "one client has nothing to share");
}

#[test]
fn several_clients_do_the_same_steps() {
    for (no_metafile, steps) in [(false, [5, 2, 4]), (true, [3, 1, 3])] {
        let phases = measure(Protocol::Classic, no_metafile, 1, 5);
        assert_eq!(for_a_file(&phases).iter().map(|(messages, _)| *messages).collect::<Vec<_>>(), steps);
    }
}
