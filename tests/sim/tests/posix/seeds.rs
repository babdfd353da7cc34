//! Seeds of [`super::run`] that failed once, with the reason.

use super::run;

/// A close with an empty file had no answer in time, and was done all the same. A time that was set
/// then stayed with the client, and was lost when it told of the close once more. Of
/// [`crate::trees`].
#[test]
fn what_is_set_after_a_close_without_an_answer_stays() {
    crate::trees::run(49);
}

/// A file was closed and opened again at once, and its server heard of the open first: it kept the
/// rights that the close was to give back, and nobody else could write to the file until it was
/// closed again.
#[test]
fn what_is_opened_at_once_after_a_close_keeps_nobody_from_writing() {
    crate::trees::run(5229);
}

/// A close was told beside what its client has open after a restart. The client took the rights
/// that it had just given back for its own: it wrote to a small file beside its inode, and nobody
/// saw that.
#[test]
fn rights_that_were_given_back_are_not_used() {
    crate::trees::run(5369);
}

/// While a close told of attributes another flow began to send them alone, and neither was taken.
/// Then they were with nobody any more.
#[test]
fn what_leaves_beside_a_close_in_vain_is_kept() {
    crate::trees::run(12_641);
}

/// While a time was on its way to the server of a new file, somebody looked at the file: the time
/// that he was shown was taken for one that was set, and replaced the other one with the close.
#[test]
fn a_time_that_is_shown_replaces_none_that_is_being_set() {
    crate::trees::run(10_101);
}

/// A data server joined, and a client that makes files without asking knew of it before the server
/// of their directory did, which refused them: they were lost after they had been closed.
#[test]
fn files_on_a_server_that_has_just_joined_are_not_refused() {
    crate::trees::run(11_101);
}

/// An open gave the right to delay writes, its answer was lost, and the server heard meanwhile that
/// its client had no such right. A later open gave it anew, and the older one took it away.
#[test]
fn a_right_given_anew_stays_when_an_older_open_is_given_up() {
    run(7479);
}

/// A close asked data servers for the size, one answer was late, and another client appended,
/// closed and left its size to the data servers meanwhile: the next append overwrote that.
#[test]
fn a_size_that_was_asked_for_early_is_not_taken_for_a_late_one() {
    run(10_479);
}

/// A program gave a lock back, the answer was lost, and another program of its client got it. Then
/// the server restarted, and was told of the first one.
#[test]
fn a_lock_that_is_being_given_back_is_not_told_to_a_server_that_has_restarted() {
    run(11_905);
}

/// A program read a file that it had opened without telling the server, another mount replaced that
/// file, and the server restarted in between: its client had told what it had open, but not that.
#[test]
fn a_restarted_server_hears_of_files_that_were_opened_without_it() {
    run(14_535);
}

/// A message from before a restart said that its client delays writes to a file, before the client
/// could tell what it had open: it was taken for one that has no such right any more.
#[test]
fn who_delays_writes_may_say_so_before_it_has_told_a_restarted_server() {
    run(18_927);
}

/// A client that heard a notice waited for a close of its own before it said so, and that close
/// waited at the server for this word: the client counted as silent, and lost what it had kept.
#[test]
fn who_hears_a_notice_does_not_wait_for_a_close_that_waits_for_it() {
    run(23_451);
}

/// A close with all of a small file was done and its answer lost. Another mount wrote to the file:
/// who had closed it read its own old bytes at the new size, as if they were still its alone, and
/// was then told that they were lost. Of [`crate::trees`].
#[test]
fn what_was_closed_without_an_answer_is_read_as_others_have_left_it() {
    crate::trees::run(26_133);
}

/// A file that was opened without telling its server was closed while the server was being told
/// after all. Its client forgot it, and the file stayed open at the server, and on its disks when
/// it had been removed. Of [`crate::trees`].
#[test]
fn what_is_closed_while_its_server_is_told_of_it_is_closed_there() {
    crate::trees::run(44);
}

/// A copy of an open came after the close, at a server that had restarted before both: it was taken
/// for an open from before the restart, and the file was open for ever. Of [`crate::trees`].
#[test]
fn a_late_copy_of_an_open_opens_nothing() {
    crate::trees::run(293);
}

/// A file without a name was made while its client told a server that had restarted what it has
/// open. It was made anew, and the first one stayed open for ever. Of [`crate::trees`].
#[test]
fn a_file_without_a_name_that_is_made_anew_leaves_nothing() {
    crate::trees::disturbed::run(103);
}

/// The answer to a close with attributes was lost with its server, and the file was opened again
/// before the close was told once more: that changed nothing, not even that the file is closed. Of
/// [`crate::trees`].
#[test]
fn a_close_that_is_told_again_closes_what_was_opened_since() {
    crate::trees::run(32_037);
}

/// The server of a file that was closed had restarted: attributes that its maker had kept came with
/// the close, were refused, and came alone when all clients had told what they have open. The other
/// mount was told the old ones until then. Of [`crate::trees`].
#[test]
fn attributes_that_come_with_a_close_after_a_restart_are_taken() {
    crate::trees::run(31_733);
}

/// A user with a limit of bytes opened a file for more, and a server that had to ask another one
/// for that opened it when the client had given the open up and closed the file. Of
/// [`crate::hasty`].
#[test]
fn what_was_given_up_and_closed_is_not_opened() {
    crate::hasty::run(377);
}
