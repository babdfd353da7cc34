//! What this process knows about one file that it has open: its own opens, capabilities, size, and
//! what it wrote but has not reported yet. Pure state behind a lock; the messages are in
//! `opens.rs`.
//!
//! # Sizes
//! Within one truncate epoch a file only grows. So the largest size heard of and the largest end of
//! own writes of the same epoch are lower bounds that stay true, and what the metadata server says
//! is corrected by the end of own writes. A truncation begins a new epoch and voids both. If own
//! writes of an older epoch are still unreported then, nobody knows on which side of the truncation
//! they fell, and the data servers must be asked.
//!
//! # Times
//! The data servers say when a write was made. The client only passes on the latest epoch that it
//! has heard of, so that its own writes come after whatever time it has seen set ([`DataTime`]).

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock};

use weft_base::{Attr, Credentials, DataTime, Handle, Layout, Status};
use weft_layout::{Distribution, FileRange};
use weft_wire::ops::CloseRequest;
use weft_wire::{Capability, Rights};

use super::appending::Appending;
use super::delayed::Delayed;
use super::gaps::Gaps;
use super::granted::Granted;
use super::noted::NotedRights;
use super::openers::Openers;
use super::reports::Report;
use super::unreported::{Reported, Unreported, View};
use crate::gate::Gate;

/// An open file of this process, shared by all its local opens.
#[derive(Debug)]
pub(crate) struct OpenInode {
    pub(super) handle: Handle,
    pub(super) layout: Layout,
    /// Where its bytes are: of a file with strips from the first access to its data on.
    pub(super) distribution: OnceLock<Distribution>,
    /// Held by whoever sends a message that changes the open state or the times of this file.
    pub(super) gate: Gate,
    /// Held by whoever appends.
    pub(super) appends: Gate,
    /// Held by whoever brings delayed writes to data servers, and by whoever sends attributes.
    pub(super) leaves: Gate,
    pub(super) sends_attributes: Gate,
    /// It was read, and its server shall hear of that with the last close.
    pub(super) is_read: AtomicBool,
    /// All of it may be on the server of its inode; once it is not, it never is again.
    pub(super) is_inline: AtomicBool,
    /// Some of it is with this client only.
    pub(super) is_delayed: AtomicBool,
    /// Some of it is lost, and no program that writes to it has heard of that.
    pub(super) has_lost: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
pub(super) struct State {
    /// Local opens with the right to read.
    readers: u32,
    /// Local opens with the right to write.
    pub(super) writers: u32,
    /// All there ever were.
    pub(super) writers_ever: u64,
    /// Local opens for locks.
    lockers: u32,
    pub(super) openers: Openers,
    pub(super) appending: Appending,
    /// An append of a client that is alone is under way.
    pub(super) appends_alone: bool,
    pub(super) delayed: Delayed,
    /// How often others wanted to write.
    pub(super) shares: u64,
    /// What the server has noted at most.
    pub(super) held: NotedRights,
    /// The newest open whose reply is here.
    pub(super) open_sequence: u64,
    read_capability: Option<Capability>,
    write_granted: Option<Granted>,
    epoch: u32,
    /// The latest epoch of the time of the last change that was heard of.
    pub(super) mtime_epoch: u32,
    /// Largest size heard of in this epoch, in bytes.
    size: u64,
    /// Largest end of own writes in this epoch, in bytes.
    own_end: u64,
    /// What own writes have left out.
    gaps: Gaps,
    unreported: Option<Unreported>,
    /// On its way to the server.
    reporting: Option<Unreported>,
    /// A report is on its way. The server is told again of these rights beside it, and may hear of
    /// them after it: they are given back once more.
    pub(super) told_again: Option<Rights>,
    writes_running: u32,
    writes_begun: u64,
    /// Counts what may have changed the size.
    changes: u64,
    /// How many of these changes are on stable storage.
    changes_synced: u64,
    /// Reports of own writes that arrived.
    reported: Option<Reported>,
    /// The last report or message that told of attributes that were kept here.
    pub(super) attributes_told: Option<u64>,
}

/// A running write; ends with [`OpenInode::end_write`].
#[derive(Clone, Copy, Debug)]
pub(super) struct RunningWrite {
    epoch: u32,
    /// The epoch of the time of this write, as far as is known here.
    pub(super) mtime_epoch: u32,
    /// It is not the first one since the file was opened.
    pub(super) is_further: bool,
}

/// The size of a file as a reader knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KnownSize {
    pub(super) bytes: u64,
    pub(super) epoch: u32,
}

impl OpenInode {
    pub(crate) fn new(attr: &Attr) -> OpenInode {
        // What happened to the file before it was opened counts as the first change.
        let state = State { epoch: attr.truncate_epoch, mtime_epoch: attr.mtime_epoch, changes: 1, ..State::default() };
        let Attr { handle, layout, .. } = *attr;
        let distribution = Distribution::of(&layout).map_or_else(OnceLock::new, OnceLock::from);
        let [gate, appends, leaves, sends_attributes] = [(); 4].map(|()| Gate::default());
        let [is_read, is_inline, is_delayed, has_lost] = [false, attr.is_inline(), false, false].map(AtomicBool::new);
        OpenInode {
            handle,
            layout,
            distribution,
            gate,
            appends,
            leaves,
            sends_attributes,
            is_read,
            is_inline,
            is_delayed,
            has_lost,
            state: Mutex::new(state),
        }
    }

    /// The file was closed for a while: others may have changed it.
    pub(super) fn reopened(&self) {
        let mut state = self.lock();
        state.changes += 1;
        state.shares = 0;
        state.gaps.forget();
    }

    /// A local open was granted, with these attributes. Called with the table locked.
    pub(super) fn opened(&self, sequence: u64, rights: Rights, attr: &Attr, granted: Option<Granted>) {
        if !attr.is_inline() {
            self.is_inline.store(false, Ordering::Release);
        }
        let mut state = self.lock();
        state.mtime_epoch = state.mtime_epoch.max(attr.mtime_epoch);
        state.gaps.told(attr.size);
        state.readers += u32::from(rights.contains(Rights::READ));
        state.writers += u32::from(rights.contains(Rights::WRITE));
        state.writers_ever += u64::from(rights.contains(Rights::WRITE));
        state.lockers += u32::from(rights.contains(Rights::LOCK));
        state.granted(sequence, rights, granted);
    }

    /// It was opened for reading without telling the server. Called with the table locked.
    pub(super) fn opened_known(&self, who: &Credentials) {
        let mut state = self.lock();
        state.readers += 1;
        state.openers.untold = Some(who.clone());
    }

    /// True if the server does not know of a local open.
    pub(super) fn is_unannounced(&self) -> bool {
        let state = self.lock();
        !state.held.rights.contains(state.needed())
    }

    /// The server granted again what is open here. Called with the table locked.
    pub(super) fn renewed(&self, sequence: u64, rights: Rights, granted: Granted) {
        self.lock().granted(sequence, rights, Some(granted));
    }

    /// A local open ends. `is_unwritten`: its right to write was not counted.
    pub(super) fn released(&self, rights: Rights, is_unwritten: &AtomicBool) {
        let mut state = self.lock();
        let rights = if is_unwritten.load(Ordering::Relaxed) { rights.without(Rights::WRITE) } else { rights };
        state.readers -= u32::from(rights.contains(Rights::READ));
        state.writers -= u32::from(rights.contains(Rights::WRITE));
        if state.writers == 0 {
            self.has_lost.store(false, Ordering::Relaxed);
        }
        state.lockers -= u32::from(rights.contains(Rights::LOCK));
    }

    /// True if the server holds rights for us that no local open needs.
    pub(super) fn has_surplus(&self) -> bool {
        let state = self.lock();
        !state.needed().contains(state.held.noted())
    }

    /// True if the server has not heard of some own writes.
    pub(super) fn has_unreported(&self) -> bool {
        self.lock().unreported.is_some()
    }

    /// True if nothing remains to be known or said. Called with the table locked.
    pub(super) fn is_idle(&self) -> bool {
        let state = self.lock();
        state.readers == 0 && state.writers == 0 && state.held.noted() == Rights::default() && !state.has_news()
    }

    /// What is shown for one right, or any for none.
    pub(super) fn granted(&self, right: Rights) -> Option<Granted> {
        let state = self.lock();
        if right == Rights::WRITE {
            return state.write_granted;
        }
        let capability = if right == Rights::READ { state.read_capability } else { state.any_capability() };
        capability.map(|capability| Granted { capability, ceiling: None })
    }

    /// Takes what the server has to hear. `None`: it knows everything. Called with the table
    /// locked.
    pub(super) fn begin_report(&self) -> Option<Report> {
        let mut state = self.lock();
        if state.delayed.is_leaving() {
            // The caller looks once more.
            return None;
        }
        let (held_before, keeps) = (state.held, state.needed().and(state.held.rights));
        let ends_writing = held_before.noted().contains(Rights::WRITE) && !keeps.contains(Rights::WRITE);
        if keeps == held_before.noted() && state.unreported.is_none() {
            return None;
        }
        // While it is open for writing, whoever wants to know asks its data servers.
        match ends_writing && state.gaps.take() {
            true => {
                let gaps = Unreported { end: state.own_end, mtime: DataTime::NONE, epoch: state.epoch, uncertain: true };
                state.unreported = Some(gaps.merge(state.unreported));
            }
            false => state.gaps.kept_back(),
        }
        if !keeps.contains(Rights::APPEND) {
            state.appending = Appending::default();
        }
        state.told_again = Some(Rights::default());
        state.reporting = state.unreported.take();
        state.held = NotedRights::only(keeps);
        let written = state.reporting.map(Unreported::on_wire);
        let request = CloseRequest { handle: self.handle, open_sequence: state.open_sequence, keeps, written };
        Some(Report { request, delayed: state.take_delayed(), held_before })
    }

    /// The outcome of a report. What did not arrive is kept for the next one, unless the server
    /// says that it never will. True if the report told of writes; it then takes this number.
    /// Called with the table locked.
    pub(super) fn end_report(&self, report: &Report, outcome: Result<(), Status>, number: u64) -> bool {
        let mut state = self.lock();
        let sent = state.reporting.take();
        let told_again = state.told_again.take().filter(|_| outcome.is_ok());
        state.held.may_be_noted(told_again.unwrap_or_default());
        if report.delayed.is_some() {
            self.end_delayed_close(&mut state, outcome);
        }
        // With a content or attributes nothing was done.
        if let Err(status) = outcome
            && (status.is_transient() || report.is_all_or_nothing() && status != Status::Stale)
        {
            let sent = sent.filter(|_| report.content().is_none() || status != Status::CapabilityRefused);
            state.gave_in_vain(report);
            state.unreported = sent.map(|sent| sent.merge(state.unreported)).or(state.unreported);
            return false;
        }
        if report.attributes().is_some() {
            state.attributes_told = Some(number);
        }
        let Some(sent) = sent else { return report.attributes().is_some() };
        let mtime = state.reported.map_or(sent.mtime, |before| before.mtime.max(sent.mtime));
        let is_uncertain = sent.uncertain || sent.epoch != state.epoch;
        let uncertain = if is_uncertain { Some(number) } else { state.reported.and_then(|before| before.uncertain) };
        state.reported = Some(Reported { number, mtime, uncertain });
        true
    }

    /// True if own writes were reported.
    pub(super) fn was_written(&self) -> bool {
        let state = self.lock();
        state.reported.is_some() || state.attributes_told.is_some()
    }

    // ---- Writes
    // ---------------------------------------------------------------------------------------------

    /// A write begins.
    pub(super) fn begin_write(&self) -> RunningWrite {
        let mut state = self.lock();
        state.writes_running += 1;
        state.writes_begun += 1;
        let is_further = state.writes_begun > 1;
        RunningWrite { epoch: state.epoch, mtime_epoch: DataTime::epoch_of_writes(state.mtime_epoch), is_further }
    }

    /// The write of these ranges, in their order, ended; with the time of it if all of it was
    /// acknowledged.
    pub(super) fn end_write(&self, write: RunningWrite, written: &[FileRange], mtime: Option<DataTime>) {
        let mut state = self.lock();
        let written = || written.iter().filter(|range| range.bytes > 0).map(|range| (range.offset, range.offset + range.bytes));
        let end = written().next_back().map_or(0, |(_, end)| end);
        let (done, mtime) = (mtime.is_some(), mtime.unwrap_or(DataTime::NONE));
        state.mtime_epoch = state.mtime_epoch.max(mtime.epoch);
        state.writes_running -= 1;
        state.changes += u64::from(!done || write.epoch != state.epoch || end > state.size);
        if done && write.epoch == state.epoch {
            state.own_end = state.own_end.max(end);
            state.size = state.size.max(end);
            written().for_each(|(start, end)| state.gaps.written(start, end));
        }
        let end = if done { end } else { 0 };
        let news = Unreported { end, mtime, epoch: write.epoch, uncertain: !done };
        state.unreported = Some(news.merge(state.unreported));
    }

    /// Holes were made in the file, or some of them were filled.
    pub(super) fn changed_holes(&self) {
        self.lock().gaps.made();
    }

    /// To be taken before a truncation is sent: a count of writes, `None` if some are running.
    pub(crate) fn writes_before_truncation(&self) -> Option<u64> {
        let state = self.lock();
        (state.writes_running == 0).then_some(state.writes_begun)
    }

    /// A truncation by this client is done. If no write ran beside it, all own writes came before
    /// it and have nothing more to report.
    pub(crate) fn truncated(&self, attr: &Attr, writes_before: Option<u64>) {
        let mut state = self.lock();
        state.changes += 1;
        let quiet = state.writes_running == 0 && writes_before == Some(state.writes_begun);
        if quiet && attr.truncate_epoch >= state.epoch {
            (state.epoch, state.size, state.own_end) = (attr.truncate_epoch, attr.size, 0);
            state.unreported = None;
            state.gaps.resized(attr.size);
        }
    }

    /// Corrects attributes from the metadata server, asked for after so many reports, by own
    /// writes.
    pub(crate) fn view(&self, attr: &mut Attr, asked_after: u64) -> View {
        let mut state = self.lock();
        state.mtime_epoch = state.mtime_epoch.max(attr.mtime_epoch);
        if attr.truncate_epoch < state.epoch {
            return View::Outdated;
        }
        if (attr.size > 0 || attr.truncate_epoch > state.epoch) && state.delayed.note_taken_in() && attr.is_inline() {
            self.is_inline.store(true, Ordering::Release);
        }
        if attr.truncate_epoch > state.epoch {
            (state.epoch, state.size, state.own_end) = (attr.truncate_epoch, attr.size, 0);
            state.gaps.forget();
        }
        if state.attributes_told > Some(asked_after) {
            return View::Outdated;
        }
        state.delayed.show_attributes(attr);
        let news = [state.unreported, state.reporting];
        // The server may have answered before it heard of a report that arrived since the question.
        let reported = state.reported.filter(|reported| reported.number > asked_after);
        if reported.is_some_and(|reported| reported.uncertain > Some(asked_after)) {
            return View::Outdated;
        }
        let reported = reported.map(|reported| reported.mtime);
        for mtime in news.into_iter().flatten().map(|news| news.mtime).chain(reported) {
            attr.written(mtime);
        }
        // Own writes may have filled holes of which the server spoke.
        let fills = attr.hole_bytes > 0;
        let unclear = news.into_iter().flatten().any(|news| fills || news.uncertain || news.epoch != state.epoch);
        // Data servers may not have all of it.
        attr.size = attr.size.max(state.own_end);
        match state.any_capability() {
            Some(capability) if unclear || state.gaps.any() => View::AskData(capability),
            _ => View::Exact,
        }
    }

    /// Exact attributes have arrived.
    pub(crate) fn learn(&self, attr: &Attr) {
        let mut state = self.lock();
        if attr.truncate_epoch >= state.epoch {
            if attr.truncate_epoch > state.epoch {
                (state.epoch, state.size, state.own_end) = (attr.truncate_epoch, 0, 0);
                state.gaps.forget();
            }
            state.size = state.size.max(attr.size);
        }
    }

    /// The epoch of writes after everything that was heard of.
    pub(super) fn epoch_of_writes(&self) -> u32 {
        DataTime::epoch_of_writes(self.lock().mtime_epoch)
    }

    /// The size known so far.
    pub(super) fn known_size(&self) -> KnownSize {
        self.lock().known_size()
    }

    /// The newest change that is not on stable storage yet, for [`OpenInode::synced`]; changes of
    /// the size only if `sizes_only`.
    pub(super) fn unsynced_change(&self, sizes_only: bool) -> Option<u64> {
        let state = self.lock();
        (!sizes_only || state.changes > state.changes_synced).then_some(state.changes)
    }

    /// Everything up to this change is on stable storage.
    pub(super) fn synced(&self, change: u64) {
        let mut state = self.lock();
        state.changes_synced = state.changes_synced.max(change);
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no code panics while it holds this lock")
    }
}

impl State {
    /// Data servers have something of which its server has not heard, or are about to.
    pub(super) fn writes_past_delay(&self) -> bool {
        self.has_news() || self.writes_running > 0
    }

    /// Something was written of which its server has not heard.
    pub(super) fn has_news(&self) -> bool {
        self.unreported.is_some() || self.told_again.is_some()
    }

    pub(super) fn known_size(&self) -> KnownSize {
        KnownSize { bytes: self.size, epoch: self.epoch }
    }

    pub(super) fn needed(&self) -> Rights {
        let is_alone = self.writers > 0 && !matches!(self.appending, Appending::Shared(_));
        let needs = [
            (self.readers > 0, Rights::READ),
            (self.writers > 0, Rights::WRITE),
            (self.lockers > 0, Rights::LOCK),
            (is_alone || self.appends_alone, Rights::APPEND),
            (self.writers > 0 && self.delayed.needs_right(), Rights::DELAY),
        ];
        let needed = needs.iter().filter(|(is_needed, _)| *is_needed);
        needed.fold(Rights::default(), |all, (_, right)| all.with(*right))
    }

    /// This client has written these ranges at this time, and no metadata server knows.
    pub(super) fn wrote(&mut self, ranges: &[FileRange], mtime: DataTime) {
        for range in ranges.iter().filter(|range| range.bytes > 0) {
            let end = range.offset + range.bytes;
            (self.size, self.own_end) = (self.size.max(end), self.own_end.max(end));
            self.gaps.written(range.offset, end);
        }
        // A truncation that is on its way came before it or after it.
        self.writes_begun += 1;
        self.brought(mtime);
    }

    /// What it has written so is at data servers now, with this time.
    pub(super) fn brought(&mut self, mtime: DataTime) {
        self.changes += 1;
        let news = Unreported { end: self.own_end, mtime, epoch: self.epoch, uncertain: false };
        self.unreported = Some(news.merge(self.unreported));
    }

    /// What it has written so counts no more, but for the bytes before `at_servers`.
    pub(super) fn lost_writes(&mut self, at_servers: u64) {
        let left = Unreported { end: at_servers, mtime: DataTime::NONE, epoch: self.epoch, uncertain: true };
        (self.unreported, self.own_end, self.size) = ((at_servers > 0).then_some(left), at_servers, at_servers);
    }

    fn granted(&mut self, sequence: u64, rights: Rights, granted: Option<Granted>) {
        self.held.granted(rights);
        self.open_sequence = self.open_sequence.max(sequence);
        let shown = |right| granted.filter(|granted| granted.capability.rights.contains(right));
        self.read_capability = shown(Rights::READ).map(|granted| granted.capability).or(self.read_capability);
        self.write_granted = shown(Rights::WRITE).or(self.write_granted);
    }

    fn any_capability(&self) -> Option<Capability> {
        self.write_granted.map(|granted| granted.capability).or(self.read_capability)
    }
}
