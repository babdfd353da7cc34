//! All files that this process has open, and the order of opens and closes of one file.
//!
//! The server keeps for each client and file a set of rights and the number of the newest open; a
//! close names the newest open that the client knows of and changes nothing if the server knows a
//! newer one. Three cases are left to the client, all of an open whose reply is still on its way.
//! It may be *older* than the close of another open of the same file, which then takes its rights
//! away. So while opens are on their way, the table remembers up to which open each file was
//! closed, and an open that finds its file closed beyond itself is done again. It may be *newer*
//! than a close and come before it, which then takes nothing away: what was to be given back is
//! given back once more. And its server may have restarted after it was executed: the reply then
//! comes from the reply table, but the open is forgotten. So an open during which any server was
//! told again what is open is done again, too.
//!
//! A close reports what was written, perhaps long after the program closed the file. An answer that
//! the server gave before it heard of that may be read here after the file has gone from the table,
//! and must still be corrected by what was written. So files that were written are kept for a while
//! after their last close; if too many close during one question, it is asked again.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use weft_base::{Attr, Credentials, FastMap, FastSet, Handle, Nanos, SECOND, ServerId, Status};
use weft_call::Sequences;
use weft_wire::Rights;

use super::granted::Granted;
use super::in_doubt::{AskedOpen, OpensInDoubt};
use super::kept::KeptAttributes;
use super::open_file::OpenFile;
use super::open_inode::OpenInode;
use super::reports::Report;

/// From this many files on, those closed too long ago to matter are dropped before another is
/// added.
const CLOSED_MAX: usize = 1 << 12;
/// Files that were written and are closed; when there are more, all are forgotten (some 400 bytes
/// each).
const LATELY_CLOSED_MAX: usize = 1 << 10;

/// A server that has restarted waits for clients that had something open for more than reading, or
/// a lock, a minute ago or less. For so many nanoseconds a client that has nothing any more looks
/// whether the server has restarted.
const AWAITED_NS: u64 = 90 * SECOND;

/// Files that are remembered as asked for before they are known here.
const ASKED_FOR_MAX: usize = 256;

#[derive(Debug, Default)]
pub(crate) struct OpenTable {
    state: Mutex<TableState>,
    pub(super) in_doubt: OpensInDoubt,
    /// Number of files in the table: saves a lock where nothing is open.
    files: AtomicUsize,
    /// How many of them are not announced.
    unannounced: AtomicUsize,
    /// Some server has let this client write to a file.
    may_write: AtomicBool,
    /// Counts reports of own writes that have arrived at their server.
    reports: AtomicU64,
}

/// What the table knows about the subject of an answer.
pub(crate) enum Subject {
    /// Correct the answer by what this client has written.
    Written(Arc<OpenInode>),
    /// Nothing that the server did not know when it answered.
    Nothing,
    /// It may have been written and closed since the question: ask again.
    Forgotten,
}

#[derive(Debug, Default)]
struct TableState {
    inodes: FastMap<Handle, Arc<OpenInode>>,
    /// Those of which their servers do not know (`known.rs`), and perhaps some more.
    unannounced: FastSet<Handle>,
    /// Numbers of opens; unfinished ones are on their way.
    sequences: Sequences,
    /// Up to which open a file was closed while older opens were on their way.
    closed: FastMap<Handle, u64>,
    /// What was given back of a file while opens up to this one were on their way.
    given_back: FastMap<Handle, (u64, Rights)>,
    /// Files that were written and that nobody has open any more, since ...
    lately_closed: FastMap<Handle, Arc<OpenInode>>,
    /// ... this report.
    lately: u64,
    /// Files that others have asked for and that are not open here.
    asked_for: VecDeque<Handle>,
    /// Counts how often servers were told again what is open.
    reclaims: u64,
    /// Servers that may wait for this client after a restart; since when it is known to have
    /// nothing there.
    awaiting: BTreeMap<ServerId, Option<Nanos>>,
}

/// An open on its way, until it is dropped.
pub(super) struct OpenTicket<'a> {
    table: &'a OpenTable,
    pub(super) sequence: u64,
    reclaims: u64,
    /// Until its outcome is known.
    pub(super) asked: Option<AskedOpen<'a>>,
}

impl OpenTable {
    /// Numbers an open that is about to be sent.
    pub(super) fn begin(&self) -> OpenTicket<'_> {
        let mut state = self.lock();
        OpenTicket { table: self, sequence: state.sequences.begin(), reclaims: state.reclaims, asked: None }
    }

    /// The open was granted. `None`: a close or a restart of the server has overtaken it; it must
    /// be done again.
    pub(super) fn opened(
        &self,
        ticket: &OpenTicket<'_>,
        who: &Credentials,
        rights: Rights,
        attr: &Attr,
        granted: Option<Granted>,
    ) -> Option<Arc<OpenFile>> {
        let mut state = self.lock();
        let closed = state.closed.get(&attr.handle).is_some_and(|closed| *closed >= ticket.sequence);
        let inode = self.inode_in(&mut state, attr);
        if closed || state.reclaims != ticket.reclaims {
            // Its server may have noted it: who does not open it once more has to close it.
            inode.opens_again(ticket.sequence, rights.without(Rights::DELAY));
            return None;
        }
        inode.opened(ticket.sequence, rights, attr, granted);
        inode.held_by(who, rights);
        self.may_write.fetch_or(rights.contains(Rights::WRITE), Ordering::Relaxed);
        if rights.is_more_than_read() {
            state.awaiting.insert(attr.handle.server(), None);
        }
        self.announced(&mut state, &inode);
        let has_overtaken = state.overtakes(ticket, &inode);
        let mut file = OpenFile::new(inode, rights.without(Rights::DELAY));
        file.has_overtaken = has_overtaken;
        Some(Arc::new(file))
    }

    /// The server granted again what a file has open. False if a restart of the server has
    /// overtaken it: it must be done again.
    pub(super) fn renewed(&self, ticket: &OpenTicket<'_>, inode: &OpenInode, rights: Rights, granted: Granted) -> bool {
        let mut state = self.lock();
        if state.reclaims != ticket.reclaims {
            return false;
        }
        inode.renewed(ticket.sequence, rights, granted);
        state.overtakes(ticket, inode);
        self.announced(&mut state, inode);
        true
    }

    /// A file with these attributes is opened for reading, and perhaps for writing, without telling
    /// its server. `None` if there are so many of these already.
    pub(super) fn open_known(&self, attr: &Attr, who: &Credentials, rights: Rights, max: usize) -> Option<Arc<OpenFile>> {
        let mut state = self.lock();
        if state.unannounced.len() >= max {
            return None;
        }
        let inode = self.inode_in(&mut state, attr);
        inode.opened_known(who);
        if inode.is_unannounced() {
            state.unannounced.insert(attr.handle);
            self.unannounced.store(state.unannounced.len(), Ordering::Release);
        }
        let file = OpenFile::new(inode, rights);
        file.is_unwritten.store(rights.contains(Rights::WRITE), Ordering::Relaxed);
        Some(Arc::new(file))
    }

    /// True if a server has ever let this client open a file for writing: not every key may.
    pub(super) fn may_write(&self) -> bool {
        self.may_write.load(Ordering::Relaxed)
    }

    /// Files that are open here and of which their servers do not know.
    pub(super) fn unannounced(&self) -> Vec<Arc<OpenInode>> {
        if self.unannounced.load(Ordering::Acquire) == 0 {
            return Vec::new();
        }
        let state = self.lock();
        state.unannounced.iter().filter_map(|handle| state.inodes.get(handle).cloned()).collect()
    }

    /// A server is told that these files are open.
    pub(super) fn have_told<'a>(&self, inodes: impl Iterator<Item = &'a OpenInode>) {
        let mut state = self.lock();
        inodes.for_each(|inode| self.announced(&mut state, inode));
    }

    fn announced(&self, state: &mut TableState, inode: &OpenInode) {
        if !inode.is_unannounced() && state.unannounced.remove(&inode.handle) {
            self.unannounced.store(state.unannounced.len(), Ordering::Release);
        }
    }

    /// The file, from now on in the table.
    fn inode_in(&self, state: &mut TableState, attr: &Attr) -> Arc<OpenInode> {
        let closed = &mut state.lately_closed;
        let make = || match closed.remove(&attr.handle) {
            Some(inode) => {
                inode.reopened();
                inode
            }
            None => Arc::new(OpenInode::new(attr)),
        };
        let inode = state.inodes.entry(attr.handle).or_insert_with(make).clone();
        self.files.store(state.inodes.len(), Ordering::Relaxed);
        inode
    }

    /// The file, if it is open.
    pub(crate) fn get(&self, handle: Handle) -> Option<Arc<OpenInode>> {
        if self.files.load(Ordering::Relaxed) == 0 {
            return None;
        }
        self.lock().inodes.get(&handle).cloned()
    }

    /// The file, if it is open. If not, it may be one that is being made, of which others ask
    /// before this client knows of it ([`OpenTable::was_asked_for`]).
    pub(super) fn get_or_ask(&self, handle: Handle) -> Option<Arc<OpenInode>> {
        let mut state = self.lock();
        if state.sequences.oldest().is_some() {
            if state.asked_for.len() >= ASKED_FOR_MAX {
                state.asked_for.pop_front();
            }
            state.asked_for.push_back(handle);
        }
        state.inodes.get(&handle).cloned()
    }

    /// True if others asked for a file before it was known here that it was made or opened. To be
    /// asked once, when it is in the table.
    pub(super) fn was_asked_for(&self, handle: Handle) -> bool {
        let mut state = self.lock();
        let before = state.asked_for.len();
        state.asked_for.retain(|asked| *asked != handle);
        state.asked_for.len() < before
    }

    /// How many reports of own writes have arrived: to be noted with every question.
    pub(crate) fn reports(&self) -> u64 {
        self.reports.load(Ordering::Acquire)
    }

    /// What corrects the answer on a file to a question that was asked after so many reports.
    pub(crate) fn subject(&self, handle: Handle, asked_after: u64) -> Subject {
        if self.files.load(Ordering::Relaxed) == 0 && self.reports() == asked_after {
            return Subject::Nothing;
        }
        let state = self.lock();
        // Also for a file that is open now: it may have been forgotten and opened anew since the
        // question.
        if asked_after < state.lately {
            return Subject::Forgotten;
        }
        match state.inodes.get(&handle).or_else(|| state.lately_closed.get(&handle)) {
            Some(inode) => Subject::Written(inode.clone()),
            None => Subject::Nothing,
        }
    }

    /// Takes what the server has to hear of a file, if anything. The caller is inside the gate of
    /// the file.
    pub(super) fn begin_report(&self, inode: &OpenInode) -> Option<Report> {
        let mut state = self.lock();
        let report = inode.begin_report()?;
        state.closes(inode.handle, report.request.open_sequence);
        Some(report)
    }

    /// True if the file is open here, and a close of it covers an open with this number that may
    /// have been done. If not, its server is about to be told that it is closed.
    pub(super) fn covers(&self, handle: Handle, sequence: u64, rights: Rights) -> bool {
        let mut state = self.lock();
        match state.inodes.get(&handle) {
            Some(inode) => {
                inode.opens_again(sequence, rights);
                true
            }
            None => {
                state.closes(handle, sequence);
                false
            }
        }
    }

    /// The outcome of a report. True if an open may have come to the server before it: what it gave
    /// back is to be given back once more.
    pub(super) fn end_report(&self, inode: &OpenInode, report: &Report, outcome: Result<(), Status>) -> bool {
        let mut state = self.lock();
        let number = self.reports.load(Ordering::Relaxed) + 1;
        if inode.end_report(report, outcome, number) {
            self.reports.store(number, Ordering::Release);
        }
        let is_overtaken = outcome.is_ok() && state.gave_back(inode, report);
        self.remove_if_idle_from(&mut state, inode);
        is_overtaken
    }

    /// A server knows of attributes that were kept here.
    pub(super) fn end_attributes(&self, inode: &OpenInode, sent: KeptAttributes) {
        let _state = self.lock();
        let number = self.reports.load(Ordering::Relaxed) + 1;
        inode.end_attributes(sent, number);
        self.reports.store(number, Ordering::Release);
    }

    /// There is no such file, although it was made here.
    pub(super) fn never_made(&self, inode: &OpenInode) {
        let mut state = self.lock();
        inode.never_made();
        self.remove_if_idle_from(&mut state, inode);
    }

    /// Forgets a file about which nothing remains to be known or said.
    pub(super) fn remove_if_idle(&self, inode: &OpenInode) {
        self.remove_if_idle_from(&mut self.lock(), inode);
    }

    fn remove_if_idle_from(&self, state: &mut TableState, inode: &OpenInode) {
        let is_here = state.inodes.get(&inode.handle).is_some_and(|here| std::ptr::eq(&**here, inode));
        if !is_here || !inode.is_idle() {
            return;
        }
        let inode = state.inodes.remove(&inode.handle).expect("it is here");
        self.announced(state, &inode);
        self.files.store(state.inodes.len(), Ordering::Relaxed);
        if inode.was_written() {
            if state.lately_closed.len() >= LATELY_CLOSED_MAX {
                state.lately_closed.clear();
                state.lately = self.reports();
            }
            state.lately_closed.insert(inode.handle, inode);
        }
    }

    /// A lock of a file at this server is asked for.
    pub(crate) fn locks_at(&self, server: ServerId) {
        self.lock().awaiting.insert(server, None);
    }

    /// True if a server where nothing is open waits for this client if it has restarted.
    pub(super) fn is_awaited_at(&self, server: ServerId, now: Nanos) -> bool {
        let mut state = self.lock();
        let Some(since) = state.awaiting.get_mut(&server) else { return false };
        let is_over = now.since(*since.get_or_insert(now)) >= AWAITED_NS;
        if is_over {
            state.awaiting.remove(&server);
        }
        !is_over
    }

    /// A server has restarted: it waits for this client again if it restarts once more.
    pub(super) fn is_awaited_again(&self, server: ServerId) {
        self.lock().awaiting.entry(server).and_modify(|since| *since = None);
    }

    /// A server will be told again what is open there. An open that is on its way may be one that
    /// the server has forgotten, and a power cut may have taken back what was written.
    pub(super) fn begin_reclaim(&self) {
        let mut state = self.lock();
        state.reclaims += 1;
        state.lately_closed.clear();
        state.lately = self.reports();
    }

    /// How many of the files are such.
    pub(super) fn count(&self, is_such: impl Fn(&OpenInode) -> bool) -> usize {
        self.lock().inodes.values().filter(|inode| is_such(inode)).count()
    }

    /// Files open at one metadata server, in the order of their handles.
    pub(super) fn at_server(&self, server: ServerId) -> Vec<Arc<OpenInode>> {
        let mut inodes: Vec<_> = self.lock().inodes.values().filter(|inode| inode.handle.server() == server).cloned().collect();
        inodes.sort_unstable_by_key(|inode| inode.handle);
        inodes
    }

    fn lock(&self) -> MutexGuard<'_, TableState> {
        self.state.lock().expect("no code panics while it holds this lock")
    }
}

impl TableState {
    /// The server of a file is about to be told that it is closed, up to this open.
    fn closes(&mut self, handle: Handle, sequence: u64) {
        let oldest = self.sequences.oldest();
        if oldest.is_some_and(|oldest| oldest <= sequence) {
            if self.closed.len() >= CLOSED_MAX {
                self.closed.retain(|_, closed| Some(*closed) >= oldest);
            }
            self.closed.insert(handle, sequence);
        }
    }

    /// A report has arrived that gave rights back. True if an open is known that may have come
    /// before it.
    fn gave_back(&mut self, inode: &OpenInode, report: &Report) -> bool {
        // A close takes the right to delay away whatever has come before it.
        let rights = report.held_before.noted().without(report.request.keeps).without(Rights::DELAY);
        if rights == Rights::default() {
            return false;
        }
        if let Some(oldest) = self.sequences.oldest() {
            if self.given_back.len() >= CLOSED_MAX {
                self.given_back.retain(|_, (newest, _)| *newest >= oldest);
            }
            let newest = self.sequences.newest();
            let noted = self.given_back.entry(inode.handle).or_default();
            *noted = (newest, noted.1.with(rights));
        }
        inode.may_hold_after(report.request.open_sequence, rights)
    }

    /// An open was granted. True if rights of its file were given back while it was on its way.
    fn overtakes(&self, ticket: &OpenTicket<'_>, inode: &OpenInode) -> bool {
        let given_back = self.given_back.get(&inode.handle).filter(|(newest, _)| ticket.sequence <= *newest);
        given_back.is_some_and(|(_, rights)| inode.may_hold_after(0, *rights))
    }
}

impl Drop for OpenTicket<'_> {
    fn drop(&mut self) {
        if let Some(asked) = self.asked {
            self.table.in_doubt.gave_up(self.sequence, asked);
        }
        let mut state = self.table.lock();
        state.sequences.finish(self.sequence);
        if state.sequences.oldest().is_none() {
            state.closed.clear();
            state.given_back.clear();
        }
    }
}
