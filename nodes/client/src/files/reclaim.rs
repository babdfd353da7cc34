//! Sessions: telling a server that has restarted what is open, and making up for what could not be
//! said in time.

use std::sync::Arc;

use weft_base::{Handle, Nanos, SECOND, ServerId, ServerRole};
use weft_call::{both, run_window};
use weft_rt::Runtime;
use weft_wire::Rights;
use weft_wire::ops::{CloseRequest, LocksOfFile, OpenFile as OpenOnWire, PingRequest, ReclaimRequest};

use super::appending::Appending;
use super::open_inode::OpenInode;
use crate::Client;
use crate::flow::Flow;

/// Longest wait for one server, in nanoseconds. What fails is tried again.
const DEADLINE: u64 = 5 * SECOND;
/// Most open files in one request.
const OPENS_MAX: usize = 8192;
/// With so many locks a request is full.
const LOCKS_MAX: usize = 4096;

impl OpenInode {
    /// What a server that has restarted must be told.
    fn reclaim(&self) -> Option<OpenOnWire> {
        let mut state = self.lock();
        if state.appending == Appending::Alone {
            state.appending = Appending::Unsure;
        }
        if state.needed().contains(Rights::READ) {
            // Whoever has told what it has open is not waited for, and not asked about what it was
            // told before: so the server hears of what was opened without it, too.
            state.held.granted(Rights::READ);
        }
        let on_the_way = state.delayed.rights_on_the_way();
        let rights = state.held.to_tell().with(on_the_way);
        if let Some(told) = &mut state.told_again {
            *told = told.with(on_the_way);
        }
        let open = OpenOnWire { handle: self.handle, rights, open_sequence: state.open_sequence };
        (rights != Rights::default()).then_some(open)
    }

    /// The server was told that the file is open like this. The rights that remain, if it has to
    /// hear that there are fewer by now; a report that is on its way tells what was written first,
    /// and the rest follows it.
    fn gave_back(&self, told: &OpenOnWire) -> Option<Rights> {
        let keeps = self.reclaim().map(|now| now.rights).unwrap_or_default();
        if keeps == told.rights {
            return None;
        }
        match &mut self.lock().told_again {
            Some(beside) => {
                *beside = beside.with(told.rights);
                None
            }
            None => Some(keeps),
        }
    }
}

impl<R: Runtime> Client<R> {
    /// Asks the servers where this client has files open, or had until lately, so that the session
    /// stays alive and a restart of a server is noticed within its grace period; closes what was
    /// dropped without [`Client::close`] and what was opened without an answer, reports what could
    /// not be reported in time, and brings to data servers what is delayed of files that have been
    /// open for a while. To be called every few seconds by a process that may hold files open while
    /// it is idle (a mount). Takes 5 s at most for every server, all in parallel; failures are left
    /// for the next call.
    pub async fn keep_alive(&self) {
        let servers = self.map().meta.iter().map(|entry| entry.id);
        let flows = servers.map(|server| async move {
            self.look_after_delegations(server).await;
            let inodes = self.inner.opens.at_server(server);
            // Dropped, and the server never knew.
            inodes.iter().for_each(|inode| self.inner.opens.remove_if_idle(inode));
            if inodes.is_empty() && !self.inner.opens.is_awaited_at(server, self.rt().now()) {
                return;
            }
            let flow = self.flow_to_keep_alive(Handle(0));
            if self.call(flow, server, &PingRequest {}).await.is_ok() {
                let now = self.rt().now();
                let kept = inodes.iter().filter(|inode| inode.is_kept_too_long(now));
                // What does not leave stays owed, as below.
                run_window(kept.map(|inode| self.stop_delaying(flow, inode)), self.options().window).await;
                let owed: Vec<_> = inodes.into_iter().filter(|inode| inode.has_surplus()).collect();
                let reports = owed.iter().map(|inode| self.report(flow, inode));
                // What still fails stays owed, and the next call tries again.
                run_window(reports, self.options().window).await;
            }
        });
        both(run_window(flows, self.options().window), self.close_in_doubt()).await;
        self.pay_locks().await;
    }

    /// For [`Client::keep_alive`], which waits for no server for long.
    pub(super) fn flow_to_keep_alive(&self, handle: Handle) -> Flow {
        let flow = self.flow("keep alive", handle);
        Flow { deadline: flow.deadline.min(self.rt().now() + DEADLINE), ..flow }
    }

    /// Tells every server that has restarted what is open there and which locks programs have,
    /// until `deadline`. One that could not be told is told after its next answer.
    pub(crate) async fn reclaim(&self, deadline: Nanos) {
        for server in self.inner.servers.take_restarted() {
            self.inner.locks.telling(server);
            self.reclaim_at(server, deadline).await;
            self.inner.locks.has_told(server);
        }
    }

    async fn reclaim_at(&self, server: ServerId, deadline: Nanos) {
        self.inner.knowledge.restarted(server);
        self.lose_directories(server);
        if server.role() == ServerRole::Meta {
            self.inner.opens.is_awaited_again(server);
            self.tell_opens(server, true, deadline).await;
        }
    }

    /// Tells a metadata server what is open there, and `with_locks` which locks programs have: it
    /// has restarted, or may have given this client up for a while.
    pub(crate) async fn tell_opens(&self, server: ServerId, with_locks: bool, deadline: Nanos) {
        let by = || deadline.min(self.rt().now() + DEADLINE);
        self.inner.opens.begin_reclaim();
        let inodes = self.inner.opens.at_server(server);
        let mut opens: Vec<(Arc<OpenInode>, OpenOnWire)> =
            inodes.into_iter().filter_map(|inode| inode.reclaim().map(|open| (inode, open))).collect();
        self.inner.opens.have_told(opens.iter().map(|(inode, _)| &**inode));
        // After a restart whoever may have kept others out is waited for, also with nothing open.
        if opens.is_empty() && !with_locks {
            return;
        }
        loop {
            let mut locks = Vec::new();
            let mut count = 0;
            let mut end = 0;
            while end < opens.len().min(OPENS_MAX) && count < LOCKS_MAX {
                let handle = opens[end].1.handle;
                let held = if with_locks { self.inner.locks.to_tell(handle) } else { Vec::new() };
                count += held.len();
                locks.extend((!held.is_empty()).then_some(LocksOfFile { handle, locks: held }));
                end += 1;
            }
            let rest = opens.split_off(end);
            let request = ReclaimRequest {
                opens: opens.iter().map(|(_, open)| open.clone()).collect(),
                locks: (!locks.is_empty()).then_some(locks),
                // A server that waits for what a restart has taken waits on for the locks.
                goes_on: (!rest.is_empty() || !with_locks).then_some(true),
            };
            if !self.inner.servers.tell(server, &request, by()).await {
                return;
            }
            self.close_again(server, &opens, &by).await;
            if rest.is_empty() {
                return;
            }
            opens = rest;
        }
    }

    /// A close may have reached the server before the message that reclaimed the same file. It is
    /// repeated; for a file that was opened again since, it is too old to have an effect.
    async fn close_again(&self, server: ServerId, opens: &[(Arc<OpenInode>, OpenOnWire)], by: &impl Fn() -> Nanos) {
        for (inode, open) in opens {
            if let Some(keeps) = inode.gave_back(open) {
                let request = CloseRequest { handle: open.handle, open_sequence: open.open_sequence, keeps, written: None };
                // If it does not hear of it, it is told everything again.
                self.inner.servers.tell(server, &request, by()).await;
            }
        }
    }
}
