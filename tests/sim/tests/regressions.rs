//! Seeds that once found something. Each keeps its name, the seed and what was wrong.

use weft_sim_tests::plan::Plan;
use weft_sim_tests::{run_plan, run_seed};

#[track_caller]
fn stays_good(seed: u64) {
    let report = run_seed(seed, None, false);
    assert!(report.is_good(), "{report}");
}

#[track_caller]
fn stays_good_as(plan: &Plan) {
    let report = run_plan(plan, false);
    assert!(report.is_good(), "{report}");
}

/// As `cargo xtask sim --leases` runs it.
#[track_caller]
fn stays_good_with_leases(seed: u64) {
    stays_good_as(&Plan::leased(seed, None));
}

/// A participant answered a repeated TxDecide from its reply table before its own record of the
/// decision was durable; the coordinator forgot the transaction, and after a power cut the
/// participant took it for aborted: an entry without its directory.
#[test]
fn decisions_are_durable_before_they_are_acknowledged() {
    [546, 1316, 1664, 2670].into_iter().for_each(stays_good);
}

/// A power cut took the newest files and with them the handles that they had used; these were given
/// out again.
#[test]
fn handles_lost_in_a_power_cut_are_not_used_again() {
    [915, 1080, 1443, 2769].into_iter().for_each(stays_good);
}

/// A file without names could still be opened by its handle while its datafiles were being removed.
#[test]
fn a_file_that_is_being_removed_cannot_be_opened() {
    [797, 3605, 5969].into_iter().for_each(stays_good);
}

/// SetAttr of a directory answered with the number of entries from before a committed change that
/// had not been applied yet.
#[test]
fn setattr_shows_no_undecided_entries() {
    [6816].into_iter().for_each(stays_good);
}

/// Datafiles were removed before the removal of the last name was durable: after a power cut the
/// name was back, its data was not.
#[test]
fn data_is_removed_only_when_its_unlink_is_durable() {
    [13263, 24488].into_iter().for_each(stays_good);
}

/// A listing with attributes failed because one of its objects was busy.
#[test]
fn listings_wait_for_busy_objects() {
    [17184, 41592].into_iter().for_each(stays_good);
}

/// A truncation that a crash interrupted was completed after the restart, and done once more when
/// its client repeated the request: the size that another client had set meanwhile was lost.
#[test]
fn a_repeated_truncation_is_not_done_again() {
    [50280].into_iter().for_each(stays_good);
}

/// A rename between two servers, concurrent with an exchange of the same names, compared the old
/// name of now with the new name of before, took both for the same object, and did nothing.
#[test]
fn both_names_of_a_rename_are_seen_at_one_instant() {
    [12007].into_iter().for_each(stays_good);
}

/// An object that the new name of a rename had led to refused, being gone, and that was the answer,
/// although by then the name led nowhere.
#[test]
fn an_object_refuses_a_rename_only_while_the_name_leads_to_it() {
    for seed in [1074, 3897, 5962, 10_658] {
        stays_good_as(&Plan::renames(seed, None));
    }
}

/// A power cut took the record of a file being opened for writing; until that client told again,
/// the size was taken from the inode.
#[test]
fn after_a_power_cut_anybody_may_be_writing() {
    [204_676].into_iter().for_each(stays_good);
}

/// A change of a file that another client was writing was made, and then answered with Stale,
/// because the file was removed while a data server was asked for its size.
#[test]
fn a_change_that_was_made_does_not_fail_because_the_file_is_gone_later() {
    [1949].into_iter().for_each(stays_good);
}

/// Data servers were told of the time of a directory that was set soon after a restart, and kept
/// datafiles of it for ever.
#[test]
fn nothing_is_kept_of_directories_at_data_servers() {
    [2750, 4085, 4861].into_iter().for_each(stays_good);
}

/// While a file was asked for its size it was removed; its datafiles said 0, and that was taken for
/// its size.
#[test]
fn a_removed_file_has_no_size() {
    [8556].into_iter().for_each(stays_good);
}

/// The time of a write in place was lost when its data server restarted, so an older time that
/// somebody had set was shown again: the server kept no record of the first such write if it had
/// been told of the epoch before, and a close across a truncation dropped what the writer reported.
#[test]
fn a_write_in_place_keeps_its_time_over_restarts() {
    [22_351, 35_489, 42_304, 53_315, 55_400].into_iter().for_each(stays_good);
}

/// A data server had flushed its journal and not its data for the time that it was told of: after a
/// power cut the record was not believed, and an older time was shown again.
#[test]
fn a_time_that_was_set_outlives_a_power_cut_of_its_data_server() {
    [11_722].into_iter().for_each(stays_good);
}

/// Attributes of a directory that were not told under a lease were kept, since one was held.
#[test]
fn what_is_told_without_a_lease_is_not_kept() {
    [14_106, 19_758, 21_089, 29_605].into_iter().for_each(stays_good_with_leases);
}

/// A notice about an object arrived before the answer to the create that made it, and the answer
/// was believed.
#[test]
fn a_notice_may_come_before_its_object() {
    stays_good_with_leases(11_911);
}

/// The server of a file without names was killed while its datafiles were being removed; started
/// again, it let somebody open the file.
#[test]
fn a_file_that_was_being_removed_cannot_be_opened_after_a_restart() {
    stays_good_with_leases(149_807);
}

/// A file was opened while its data server was away; until that was asked, somebody had set the
/// time of the file, and the time from before all writes was shown.
#[test]
fn a_time_that_is_set_meanwhile_does_not_bring_an_older_one_back() {
    stays_good_with_leases(143_626);
    // It does not put what others did later into the answer to a change either.
    stays_good(1581);
    stays_good_with_leases(26_785);
}

/// A client was told of a directory by somebody who knew a server that had joined since; it took
/// the directory for gone. A file of such a server could not be read or written.
#[test]
fn a_handle_of_a_server_that_has_joined_is_not_stale() {
    for seed in [1224, 1410, 3620, 57_976] {
        stays_good_as(&Plan::growing(seed, None));
    }
}

/// A server had asked for the cluster map; before it could note the answer, it was told of a newer
/// one, and took the two for contradicting each other.
#[test]
fn an_answer_with_a_map_may_come_after_a_newer_one() {
    stays_good_as(&Plan::growing(32_800, None));
}

/// A metadata server was killed while it moved a small file to a data server. Its copy came when
/// the next life had moved the file and somebody had written to it, and the old bytes were back.
#[test]
fn a_copy_of_an_earlier_life_does_not_come_late() {
    stays_good_as(&Plan::putting(9978, None));
}

/// After a restart the size of a file was asked for and its last known writer closed it; one that
/// had not told yet that it writes was not thought of when a time was set.
#[test]
fn a_writer_that_has_not_told_yet_is_thought_of() {
    stays_good(2847);
}

/// A client told its server again what it has open while its close was on its way, and the answers
/// came at once: the server counted the file as open for ever, and kept it when it had no name.
#[test]
fn a_close_that_is_answered_beside_a_reclaim_is_sent_again() {
    stays_good_as(&Plan::putting(46_839, None));
}

/// A change of the mode showed a time that was set before a write, because others set the time
/// while data servers were asked for that of the write.
#[test]
fn a_change_that_is_overtaken_shows_no_time_of_before() {
    stays_good_as(&Plan::growing(3249, None).with_small_files());
}

/// As `cargo xtask sim --leases --inline` runs it, with `--repairs` or without.
#[track_caller]
fn stays_good_with_small_files(seed: u64, repairs: bool) {
    stays_good_as(&Plan { repairs, ..Plan::leased(seed, None).with_small_files() });
}

/// The answer to a change of a directory's mode was given under no lease. The client counted it and
/// did not take it over.
#[test]
fn the_mode_of_a_directory_is_what_was_set() {
    stays_good_with_small_files(116_490, false);
    [115_073, 110_976].into_iter().for_each(|seed| stays_good_with_small_files(seed, true));
}

/// A client set the mode of a directory that was its own, and another one moved that directory: it
/// had the version under which the client told of the mode.
#[test]
fn what_was_set_of_a_directory_is_told_before_others_move_it() {
    stays_good_with_small_files(114_999, true);
}

/// A close that took attributes along met a link that was being made, and failed.
#[test]
fn a_close_with_attributes_waits() {
    stays_good_with_small_files(201_134, true);
}

/// Clients died with directories of which they had not told.
#[test]
fn what_was_made_without_asking_may_go_with_its_client() {
    [102_271, 125_771].into_iter().for_each(|seed| stays_good_with_small_files(seed, false));
    stays_good_with_small_files(212_241, true);
}

/// A client told a server again what it had open while a close was on its way that said what had
/// been written. The same close without that came first, and others were shown the old size.
#[test]
fn a_close_that_is_repeated_comes_after_what_was_written() {
    stays_good_with_small_files(139_399, false);
}

/// The network brought a message twice with which a client tells what it has open, the second time
/// after its closes.
#[test]
fn what_is_told_twice_opens_nothing_again() {
    stays_good_as(&Plan::leased(182_312, None));
}

/// A client died whose newest file a power cut had taken: its datafile goes when nobody knows the
/// client any more.
#[test]
fn what_a_dead_client_had_made_goes_with_it() {
    stays_good_with_small_files(182_771, true);
}

/// A file was seen whose create was never answered, in a time of which a power cut took everything.
#[test]
fn what_was_seen_before_a_power_cut_has_its_name() {
    stays_good_with_small_files(149_836, false);
}
