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

use std::sync::{Mutex, MutexGuard};

use weft_base::{Attr, DataTime, Handle, Layout, Status};
use weft_wire::ops::{CloseRequest, OpenFile as OpenOnWire, Written};
use weft_wire::{Capability, Rights};

use super::gate::Gate;

/// An open file of this process, shared by all its local opens.
#[derive(Debug)]
pub(crate) struct OpenInode {
    pub(super) handle: Handle,
    pub(super) layout: Layout,
    /// Held by whoever sends a message that changes the open state or the times of this file.
    pub(super) gate: Gate,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Local opens with the right to read.
    readers: u32,
    /// Local opens with the right to write.
    writers: u32,
    /// Local opens for locks and for appends.
    lockers: u32,
    appenders: u32,
    /// What the server has noted at most.
    held: Rights,
    /// The newest open whose reply is here.
    open_sequence: u64,
    read_capability: Option<Capability>,
    write_capability: Option<Capability>,
    epoch: u32,
    /// The latest epoch of the time of the last change that was heard of.
    mtime_epoch: u32,
    /// Largest size heard of in this epoch, in bytes.
    size: u64,
    /// Largest end of own writes in this epoch, in bytes.
    own_end: u64,
    unreported: Option<Unreported>,
    /// On its way to the server.
    reporting: Option<Unreported>,
    writes_running: u32,
    writes_begun: u64,
    /// Counts what may have changed the size.
    changes: u64,
    /// How many of these changes are on stable storage.
    changes_synced: u64,
    /// Reports of own writes that arrived.
    reported: Option<Reported>,
}

/// Own writes that the metadata server has heard of.
#[derive(Clone, Copy, Debug)]
struct Reported {
    /// The last report (numbers: see `open_table.rs`).
    number: u64,
    /// The newest write in any report.
    mtime: DataTime,
    /// The last report that left it to the servers to find out the size.
    uncertain: Option<u64>,
}

/// Own writes that the metadata server has not heard of.
#[derive(Clone, Copy, Debug)]
struct Unreported {
    end: u64,
    mtime: DataTime,
    epoch: u32,
    /// A write failed: how far it got, only the data servers know.
    uncertain: bool,
}

impl Unreported {
    fn merge(self, other: Option<Unreported>) -> Unreported {
        let Some(other) = other else { return self };
        let uncertain = self.uncertain || other.uncertain || self.epoch != other.epoch;
        Unreported { end: self.end.max(other.end), mtime: self.mtime.max(other.mtime), epoch: self.epoch.min(other.epoch), uncertain }
    }

    fn on_wire(self) -> Written {
        // An epoch that is not the present one makes the server ask the data servers.
        let truncate_epoch = if self.uncertain { self.epoch.wrapping_sub(1) } else { self.epoch };
        Written { end_bytes: self.end, mtime: self.mtime, truncate_epoch }
    }
}

/// What is missing for exact attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum View {
    /// Nothing: they have been corrected by own writes.
    Exact,
    /// Ask the data servers: own writes of before a truncation are unreported.
    AskData(Capability),
    /// A newer state is known already: ask the metadata server again.
    Outdated,
}

/// A running write; ends with [`OpenInode::end_write`].
#[derive(Clone, Copy, Debug)]
pub(super) struct RunningWrite {
    epoch: u32,
    /// The epoch of the time of this write, as far as is known here.
    pub(super) mtime_epoch: u32,
}

/// A message to the server on what is open and written.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) request: CloseRequest,
    held_before: Rights,
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
        OpenInode { handle: attr.handle, layout: attr.layout, gate: Gate::default(), state: Mutex::new(state) }
    }

    /// The file was closed for a while: others may have changed it.
    pub(super) fn reopened(&self) {
        self.lock().changes += 1;
    }

    /// A local open was granted, with these attributes. Called with the table locked.
    pub(super) fn opened(&self, sequence: u64, rights: Rights, attr: &Attr, capability: Capability) {
        let mut state = self.lock();
        state.mtime_epoch = state.mtime_epoch.max(attr.mtime_epoch);
        state.readers += u32::from(rights.contains(Rights::READ));
        state.writers += u32::from(rights.contains(Rights::WRITE));
        state.lockers += u32::from(rights.contains(Rights::LOCK));
        state.appenders += u32::from(rights.contains(Rights::APPEND));
        state.granted(sequence, rights, capability);
    }

    /// The server granted again what is open here. Called with the table locked.
    pub(super) fn renewed(&self, sequence: u64, rights: Rights, capability: Capability) {
        self.lock().granted(sequence, rights, capability);
    }

    /// A local open ends.
    pub(super) fn released(&self, rights: Rights) {
        let mut state = self.lock();
        state.readers -= u32::from(rights.contains(Rights::READ));
        state.writers -= u32::from(rights.contains(Rights::WRITE));
        state.lockers -= u32::from(rights.contains(Rights::LOCK));
        state.appenders -= u32::from(rights.contains(Rights::APPEND));
    }

    /// What local opens need.
    pub(super) fn needed(&self) -> Rights {
        self.lock().needed()
    }

    /// True if the server holds rights for us that no local open needs.
    pub(super) fn has_surplus(&self) -> bool {
        let state = self.lock();
        state.needed() != state.held
    }

    /// True if the server has not heard of some own writes.
    pub(super) fn has_unreported(&self) -> bool {
        self.lock().unreported.is_some()
    }

    /// True if nothing remains to be known or said. Called with the table locked.
    pub(super) fn is_idle(&self) -> bool {
        let state = self.lock();
        state.readers == 0
            && state.writers == 0
            && state.held == Rights::default()
            && state.unreported.is_none()
            && state.reporting.is_none()
    }

    /// The capability for one right.
    pub(super) fn capability(&self, right: Rights) -> Option<Capability> {
        let state = self.lock();
        if right.contains(Rights::WRITE) { state.write_capability } else { state.read_capability }
    }

    /// A capability of any right.
    pub(super) fn any_capability(&self) -> Option<Capability> {
        self.lock().any_capability()
    }

    /// Takes what the server has to hear. `None`: it knows everything. Called with the table
    /// locked.
    pub(super) fn begin_report(&self) -> Option<Report> {
        let mut state = self.lock();
        let keeps = state.needed();
        if keeps == state.held && state.unreported.is_none() {
            return None;
        }
        state.reporting = state.unreported.take();
        let held_before = std::mem::replace(&mut state.held, keeps);
        let written = state.reporting.map(Unreported::on_wire);
        let request = CloseRequest { handle: self.handle, open_sequence: state.open_sequence, keeps, written };
        Some(Report { request, held_before })
    }

    /// The outcome of a report. What did not arrive is kept for the next one, unless the server
    /// says that it never will. True if the report told of writes; it then takes this number.
    /// Called with the table locked.
    pub(super) fn end_report(&self, report: &Report, outcome: Result<(), Status>, number: u64) -> bool {
        let mut state = self.lock();
        let sent = state.reporting.take();
        if let Err(status) = outcome
            && status.is_transient()
        {
            state.held = state.held.with(report.held_before);
            state.unreported = sent.map(|sent| sent.merge(state.unreported)).or(state.unreported);
            return false;
        }
        let Some(sent) = sent else { return false };
        let mtime = state.reported.map_or(sent.mtime, |before| before.mtime.max(sent.mtime));
        let is_uncertain = sent.uncertain || sent.epoch != state.epoch;
        let uncertain = if is_uncertain { Some(number) } else { state.reported.and_then(|before| before.uncertain) };
        state.reported = Some(Reported { number, mtime, uncertain });
        true
    }

    /// True if own writes were reported.
    pub(super) fn was_written(&self) -> bool {
        self.lock().reported.is_some()
    }

    /// What a server that has restarted must be told.
    pub(super) fn reclaim(&self) -> Option<OpenOnWire> {
        let state = self.lock();
        let open = OpenOnWire { handle: self.handle, rights: state.held, open_sequence: state.open_sequence };
        (state.held != Rights::default()).then_some(open)
    }

    /// A write begins.
    pub(super) fn begin_write(&self) -> RunningWrite {
        let mut state = self.lock();
        state.writes_running += 1;
        state.writes_begun += 1;
        RunningWrite { epoch: state.epoch, mtime_epoch: DataTime::epoch_of_writes(state.mtime_epoch) }
    }

    /// The write ended at file offset `end`; with the time of it if all of it was acknowledged.
    pub(super) fn end_write(&self, write: RunningWrite, end: u64, mtime: Option<DataTime>) {
        let mut state = self.lock();
        let (done, mtime) = (mtime.is_some(), mtime.unwrap_or(DataTime::NONE));
        state.mtime_epoch = state.mtime_epoch.max(mtime.epoch);
        state.writes_running -= 1;
        state.changes += u64::from(!done || write.epoch != state.epoch || end > state.size);
        if done && write.epoch == state.epoch {
            state.own_end = state.own_end.max(end);
            state.size = state.size.max(end);
        }
        let end = if done { end } else { 0 };
        let news = Unreported { end, mtime, epoch: write.epoch, uncertain: !done };
        state.unreported = Some(news.merge(state.unreported));
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
        if attr.truncate_epoch > state.epoch {
            (state.epoch, state.size, state.own_end) = (attr.truncate_epoch, attr.size, 0);
        }
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
        let unclear = news.into_iter().flatten().any(|news| news.uncertain || news.epoch != state.epoch);
        if let (true, Some(capability)) = (unclear, state.any_capability()) {
            return View::AskData(capability);
        }
        attr.size = attr.size.max(state.own_end);
        View::Exact
    }

    /// Exact attributes have arrived.
    pub(crate) fn learn(&self, attr: &Attr) {
        let mut state = self.lock();
        if attr.truncate_epoch >= state.epoch {
            if attr.truncate_epoch > state.epoch {
                (state.epoch, state.size, state.own_end) = (attr.truncate_epoch, 0, 0);
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
        let state = self.lock();
        KnownSize { bytes: state.size, epoch: state.epoch }
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

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no code panics while it holds this lock")
    }
}

impl State {
    fn needed(&self) -> Rights {
        let counts =
            [(self.readers, Rights::READ), (self.writers, Rights::WRITE), (self.lockers, Rights::LOCK), (self.appenders, Rights::APPEND)];
        let needed = counts.iter().filter(|(opens, _)| *opens > 0);
        needed.fold(Rights::default(), |all, (_, right)| all.with(*right))
    }

    fn granted(&mut self, sequence: u64, rights: Rights, capability: Capability) {
        self.held = self.held.with(rights);
        self.open_sequence = self.open_sequence.max(sequence);
        for (right, slot) in [(Rights::READ, &mut self.read_capability), (Rights::WRITE, &mut self.write_capability)] {
            if capability.rights.contains(right) {
                *slot = Some(capability);
            }
        }
    }

    fn any_capability(&self) -> Option<Capability> {
        self.write_capability.or(self.read_capability)
    }
}
