//! Limits of users and projects: how many inodes may be made, and how many bytes taken, where. Each
//! of them has an account of its own for each user and project.
//!
//! ```text
//! a server                                     metadata server 0: limits, and what it has lent
//!   allowance used up
//!   Borrow ─────────────────────────────────────▶ enough left: half of it, divided by the servers
//!                                                  too little left:
//!        ◀──────────────────────────────── Recall    every other server gives back what it
//!   lowers its allowance (durably) ────────────▶    does not use
//!                                                  journals the loan (durably)
//!        ◀────────────────────────────── allowance, or QuotaExceeded
//! ```
//! The allowance of a server is never more than metadata server 0 believes that it has lent: what
//! it lends is durable before it leaves, what a server gives back is durable before it says so, and
//! an answer to a Borrow from before a Recall counts no longer. So whatever crashes, and whatever a
//! power cut takes, too much may seem to be lent, never too little.

use std::collections::BTreeMap;
use std::rc::Rc;

use bytes::Bytes;
use weft_base::{MILLISECOND, Nanos, Result, SECOND, ServerId, Status};
use weft_namespace::{Account, Charged, NO_LIMIT, Record, Resource, put_limit, put_loan};
use weft_rt::{ServerRuntime, join_all};
use weft_wire::Wire;
use weft_wire::ops::{
    BorrowReply, BorrowRequest, HOME_OF_LIMITS, OpenRequest, QuotaId, RecallReply, RecallRequest, SetQuotaReply, SetQuotaRequest,
};
use weft_wire::{Header, Op, Request};

use crate::engine::Engine;
use crate::loans::Asked;
use crate::server::Server;
use crate::step::Step;

/// How long the home waits for a server to give back, in nanoseconds.
const RECALL_NS: u64 = SECOND;
/// How long an inode that is about to be removed is waited for before somebody is refused.
const LEAVING_NS: u64 = SECOND;
/// Between two looks whether it is removed.
const LEAVING_PAUSE_NS: u64 = 20 * MILLISECOND;
/// How long a server waits for the home: several of the above.
const BORROW_NS: u64 = 4 * SECOND;
/// Between two attempts to tell a server of a limit, or to take back what is beyond one.
const SETTLE_PAUSE_NS: u64 = SECOND;
/// Limits, at most.
const LIMITS_MAX: usize = 1 << 16;

/// What servers have together. They say so themselves, so it may be any number.
fn sum(lent: &BTreeMap<ServerId, u64>) -> u64 {
    lent.values().fold(0, |sum, most| sum.saturating_add(*most))
}

impl<R: ServerRuntime, E: Engine> Server<R, E> {
    // ---- A server with an allowance
    // ---------------------------------------------------------------------------------------------

    /// Goes on with a request that would make more for these than they may have here.
    pub(crate) async fn make_with_more(self: Rc<Self>, header: Header, charged: Charged, request: Request) -> Result<Bytes> {
        let deadline = self.rt.now() + self.config.patience_ns;
        loop {
            self.borrow_inodes(charged, deadline).await?;
            self.check_wanted(&header)?;
            match self.answer_alone(&header, &request).ok_or(Status::NotSupported)? {
                // Somebody else was faster.
                Err(Status::QuotaExceeded) => {}
                Ok(Step::Answer(body, _)) => return Ok(body),
                Ok(_) => return Err(Status::Busy),
                Err(status) => return Err(status),
            }
        }
    }

    /// Goes on with an open whose client wants more room than the owner of the file has here. What
    /// it gets stands in the journal, on stable storage, before it leaves.
    pub(crate) async fn open_with_room(self: Rc<Self>, header: Header, request: OpenRequest) -> Result<Bytes> {
        let deadline = self.rt.now() + self.config.patience_ns;
        let wanted = request.room.clone().ok_or(Status::Invalid)?;
        let is_open = || self.state.borrow().opened_by(header.request.client, request.handle).is_some();
        let was_open = is_open();
        loop {
            let lacks = self.state.borrow().lacks_room(request.handle, &wanted);
            if let Some((id, more)) = lacks {
                self.borrow(Account { id, of: Resource::Bytes }, more, deadline).await?;
                self.check_wanted(&header)?;
            }
            if was_open && !is_open() {
                // Its client has given this up and closed the file, and does not know yet of all
                // earlier requests what became of them.
                return Err(Status::Busy);
            }
            let mut record = Record::default();
            let reply = self.state.borrow().prepare_open(&self.context(header.request.client), &request, &mut record);
            match reply {
                // Somebody else was faster.
                Err(Status::QuotaExceeded) => {}
                Err(status) => return Err(status),
                Ok(reply) => {
                    self.check_room_for(Op::Open, &record)?;
                    self.announce(header.request.client, &record)?;
                    let body = reply.to_bytes();
                    self.change_and_answer(&header, &mut record, &body);
                    self.sync_loans().await?;
                    return Ok(body);
                }
            }
        }
    }

    /// Sees to it that something may be made here for these.
    ///
    /// # Errors
    /// As [`Server::borrow`].
    pub(crate) async fn borrow_inodes(&self, charged: Charged, deadline: Nanos) -> Result<()> {
        for id in charged.ids() {
            self.borrow(Account { id, of: Resource::Inodes }, 1, deadline).await?;
        }
        Ok(())
    }

    /// Sees to it that somebody may have so much more here.
    ///
    /// # Errors
    /// [`Status::QuotaExceeded`]; [`Status::Busy`] if the home does not answer.
    async fn borrow(&self, account: Account, more: u64, deadline: Nanos) -> Result<()> {
        let loans = &self.background.loans;
        let begun = loans.asked(account).begun;
        let leaves_by = self.rt.now() + LEAVING_NS;
        while self.state.borrow().lacks(account, more) {
            if self.rt.now() >= deadline {
                return Err(Status::Busy);
            }
            let changed = loans.changed.wait();
            let asked = loans.asked(account);
            if asked.is_asking {
                changed.await;
            } else if asked.refused <= begun || asked.refused_more > more {
                self.ask_home(account, more, asked).await?;
            } else if self.rt.now() < leaves_by && self.state.borrow().is_leaving(account.id) {
                self.background.reap.notify();
                self.rt.sleep_until(self.rt.now() + LEAVING_PAUSE_NS).await;
            } else {
                return Err(Status::QuotaExceeded);
            }
        }
        Ok(())
    }

    async fn ask_home(&self, account: Account, more: u64, before: Asked) -> Result<()> {
        let number = before.begun + 1;
        self.background.loans.note(account, |asked| (asked.begun, asked.is_asking) = (number, true));
        let server = self.config.serving.server;
        let has = self.state.borrow().allowance(account).0;
        let (uid, of_project) = (account.id.number, account.id.of_project());
        let request = match account.of {
            Resource::Inodes => BorrowRequest { server, uid, inodes: has, bytes: None, of_project },
            Resource::Bytes => BorrowRequest { server, uid, inodes: 0, bytes: Some(has.saturating_add(more)), of_project },
        };
        let answer = match server == HOME_OF_LIMITS {
            true => self.lend(&request).await,
            false => self.shell.caller.call(HOME_OF_LIMITS, &request, self.rt.now() + BORROW_NS).await,
        };
        let still_counts = self.background.loans.asked(account).recalls == before.recalls;
        self.background.loans.note(account, |asked| {
            asked.is_asking = false;
            if answer == Err(Status::QuotaExceeded) {
                (asked.refused, asked.refused_more) = (number, more);
            }
        });
        if let Ok(BorrowReply { inodes_lent: lent }) = answer
            && still_counts
            && self.state.borrow().allowance(account).1 != lent
        {
            self.keep_loan(account, server, lent.unwrap_or(NO_LIMIT));
        }
        self.background.loans.changed.notify();
        match answer {
            Ok(_) | Err(Status::QuotaExceeded) => Ok(()),
            // The client asks again.
            Err(_) => Err(Status::Busy),
        }
    }

    /// Gives back what somebody does not use here.
    async fn give_back(&self, request: &RecallRequest) -> Result<RecallReply> {
        let RecallRequest { uid, is_limited, of_bytes, of_project } = *request;
        let of = if of_bytes == Some(true) { Resource::Bytes } else { Resource::Inodes };
        let account = Account { id: QuotaId::of(uid, of_project), of };
        self.check_room_of(Op::Recall)?;
        self.background.loans.note(account, |asked| asked.recalls += 1);
        let (has, allowance) = self.state.borrow().allowance(account);
        let left = if is_limited { Some(allowance.map_or(has, |allowance| allowance.min(has))) } else { None };
        if left != allowance {
            self.keep_loan(account, self.config.serving.server, left.unwrap_or(NO_LIMIT));
        }
        let is_leaving = self.state.borrow().is_leaving(account.id);
        self.sync_loans().await?;
        Ok(RecallReply { inodes: has, is_leaving })
    }

    fn keep_loan(&self, account: Account, server: ServerId, most: u64) {
        self.change_in_flow(&mut Record { changes: vec![put_loan(account, server, most)], open: None });
    }

    /// Whatever is promised otherwise: others rely on it.
    async fn sync_loans(&self) -> Result<()> {
        self.shell.wake();
        if self.kept(self.engine.sync_through(self.engine.last()).await) { Ok(()) } else { Err(Status::Io) }
    }

    // ---- The home
    // ---------------------------------------------------------------------------------------------

    /// Lends a server inodes or bytes for somebody.
    async fn lend(&self, request: &BorrowRequest) -> Result<BorrowReply> {
        let BorrowRequest { server, uid, inodes, bytes, of_project } = *request;
        let (of, wanted) = bytes.map_or((Resource::Inodes, inodes.saturating_add(1)), |bytes| (Resource::Bytes, bytes));
        let account = Account { id: QuotaId::of(uid, of_project), of };
        if self.config.serving.server != HOME_OF_LIMITS {
            return Err(Status::WrongServer);
        }
        self.check_room_of(Op::Borrow)?;
        let _held = self.background.loans.hold(account).await;
        let until = self.rt.now() + LEAVING_NS;
        let servers = self.state.borrow().placement().meta.clone();
        if !servers.contains(&server) {
            return Err(Status::Invalid);
        }
        loop {
            let Some(most) = self.state.borrow().limit(account) else { return Ok(BorrowReply { inodes_lent: None }) };
            let lent = self.state.borrow().lent(account);
            // What a server has of which nothing is known may be all that there is.
            let unknown: Vec<ServerId> = servers.iter().copied().filter(|other| *other != server && !lent.contains_key(other)).collect();
            if !unknown.is_empty() {
                let (silent, _) = self.recall(account, unknown).await;
                if silent.is_empty() { continue } else { return Err(Status::Busy) }
            }
            let here = lent.get(&server).copied().unwrap_or(0);
            let left = most.saturating_sub(sum(&lent));
            let needed = wanted.saturating_sub(here);
            if needed <= left {
                let more = if needed == 0 { 0 } else { needed.max(left / (2 * servers.len().max(1) as u64)) };
                if more > 0 {
                    self.keep_loan(account, server, here + more);
                }
                self.sync_loans().await?;
                return Ok(BorrowReply { inodes_lent: Some(here + more) });
            }
            let others = lent.keys().copied().filter(|other| *other != server).collect();
            let (_, is_leaving) = self.recall(account, others).await;
            let left = most.saturating_sub(sum(&self.state.borrow().lent(account)));
            if needed > left {
                if !is_leaving || self.rt.now() >= until {
                    return Err(Status::QuotaExceeded);
                }
                self.rt.sleep_until(self.rt.now() + LEAVING_PAUSE_NS).await;
            }
        }
    }

    /// Takes back from these servers what somebody does not use there, or tells them that he is
    /// limited, or no longer. Returns those that have not answered, and whether something of his is
    /// about to go.
    async fn recall(&self, account: Account, servers: Vec<ServerId>) -> (Vec<ServerId>, bool) {
        let Account { id, of } = account;
        let (of_bytes, of_project) = ((of == Resource::Bytes).then_some(true), id.of_project());
        let is_limited = self.state.borrow().limit(account).is_some();
        let request = RecallRequest { uid: id.number, is_limited, of_bytes, of_project };
        let (request, deadline) = (&request, self.rt.now() + RECALL_NS);
        let ask = |server: ServerId| async move {
            match server == self.config.serving.server {
                true => self.give_back(request).await,
                false => self.shell.caller.call(server, request, deadline).await,
            }
        };
        let answers = join_all(servers.iter().map(|server| ask(*server))).await;
        let (mut silent, mut is_leaving) = (Vec::new(), false);
        for (server, answer) in servers.into_iter().zip(answers) {
            match answer {
                Ok(reply) => {
                    is_leaving |= reply.is_leaving;
                    self.keep_loan(account, server, if request.is_limited { reply.inodes } else { NO_LIMIT });
                }
                Err(_) => silent.push(server),
            }
        }
        (silent, is_leaving)
    }

    /// Tells servers, but for `silent` ones, what they do not know yet of somebody's limit, and
    /// takes back what is beyond it. Returns those that have not answered.
    async fn settle_account(&self, account: Account, silent: &[ServerId]) -> Vec<ServerId> {
        let _held = self.background.loans.hold(account).await;
        let servers = self.unsettled_servers(account).into_iter().filter(|server| !silent.contains(server)).collect();
        let (silent, _) = self.recall(account, servers).await;
        if self.unsettled_servers(account).is_empty() {
            self.background.loans.unsettled.borrow_mut().remove(&account);
        } else {
            self.background.loans.unsettled.borrow_mut().insert(account);
        }
        silent
    }

    /// The servers that must hear something of somebody.
    fn unsettled_servers(&self, account: Account) -> Vec<ServerId> {
        let state = self.state.borrow();
        let lent = state.lent(account);
        match state.limit(account) {
            None => lent.into_keys().collect(),
            Some(most) if sum(&lent) > most => state.placement().meta.clone(),
            Some(_) => state.placement().meta.iter().copied().filter(|server| !lent.contains_key(server)).collect(),
        }
    }

    /// Limits a user or project, or ends that.
    async fn set_quota(&self, request: &SetQuotaRequest) -> Result<SetQuotaReply> {
        let SetQuotaRequest { uid, inodes_max, bytes_max, of_project } = *request;
        let (of, most) = bytes_max.map_or((Resource::Inodes, inodes_max), |bytes_max| (Resource::Bytes, bytes_max));
        // Root is not limited, and nothing counts for project 0.
        let account = Account { id: QuotaId::of(uid, of_project), of };
        if self.config.serving.server != HOME_OF_LIMITS {
            return Err(Status::WrongServer);
        }
        if uid == 0 || most == Some(NO_LIMIT) {
            return Err(Status::Invalid);
        }
        self.check_room_of(Op::SetQuota)?;
        if most.is_some() && self.state.borrow().limited_accounts().len() >= LIMITS_MAX {
            return Err(Status::NoSpace);
        }
        {
            let _held = self.background.loans.hold(account).await;
            let changes = vec![put_limit(account, most.unwrap_or(NO_LIMIT))];
            self.change_in_flow(&mut Record { changes, open: None });
            self.sync_loans().await?;
        }
        Ok(SetQuotaReply { untold: self.settle_account(account, &[]).await })
    }

    /// After a start, or when servers have joined.
    pub(crate) fn look_at_quotas(&self) {
        if self.config.serving.server == HOME_OF_LIMITS {
            let accounts = self.state.borrow().limited_accounts();
            let unsettled = accounts.into_iter().filter(|account| !self.unsettled_servers(*account).is_empty());
            self.background.loans.unsettled.borrow_mut().extend(unsettled);
        }
    }

    /// To be called now and then.
    pub(crate) fn settle_quotas(self: &Rc<Self>) {
        if !self.background.loans.unsettled.borrow().is_empty() && !self.background.loans.is_settling.replace(true) {
            self.rt.spawn(Rc::clone(self).settle_flow());
        }
    }

    async fn settle_flow(self: Rc<Self>) {
        let accounts = self.background.loans.unsettled.borrow().clone();
        // Who does not answer for one is not asked for the next one before the next round.
        let mut silent = Vec::new();
        for account in accounts {
            silent.extend(self.settle_account(account, &silent).await);
        }
        self.rt.sleep_until(self.rt.now() + SETTLE_PAUSE_NS).await;
        self.background.loans.is_settling.set(false);
    }

    /// The answer to a request about limits.
    pub(crate) async fn answer_quota(self: Rc<Self>, request: Request) -> Result<Bytes> {
        Ok(match request {
            Request::Borrow(request) => self.lend(&request).await?.to_bytes(),
            Request::Recall(request) => self.give_back(&request).await?.to_bytes(),
            Request::SetQuota(request) => self.set_quota(&request).await?.to_bytes(),
            _ => return Err(Status::NotSupported),
        })
    }
}
