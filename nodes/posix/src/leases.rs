//! What is told above while this layer keeps leases: it may be believed until others change it, and
//! then it is made forgotten above before their changes are made.

use std::io;

use weft_base::{Attr, FileKind, Handle, MILLISECOND, MODE_ACL, SECOND, ServerId};
use weft_rt::{Runtime, join_all, race};
use weft_wire::ops::LeaseNotice;

use crate::gateway::Gateway;
use crate::node::InodeNumber;
use crate::posix::Posix;

/// How long a server may take to hear that this layer believes nothing any more, in nanoseconds.
const LEAVE_NS: u64 = SECOND;
/// How often is looked whether metadata servers have joined, in nanoseconds.
const LOOK_NS: u64 = 500 * MILLISECOND;

impl<R: Runtime, G: Gateway> Posix<R, G> {
    /// From now on the client below keeps leases although nothing above believes what it is told:
    /// for gateways whose callers ask each time. The gateway drives [`Posix::hear_notices`] for
    /// each metadata server.
    pub fn keep_leases_below(&self) {
        self.client.keep_leases(true);
        self.closes.ended.notify();
    }

    /// Waits until leases are kept, or [`Posix::end`].
    pub async fn leases_begin(&self) {
        loop {
            let called = self.closes.ended.wait();
            if self.client.keeps_leases() || self.closes.lock().ends {
                return;
            }
            called.await;
        }
    }

    /// For how many nanoseconds it may be believed that a name leads to the object with these
    /// attributes, whatever becomes of them.
    fn name_ttl_ns(&self, dir: Handle, name: &[u8], attr: &Attr) -> u64 {
        match self.client.keeps_leases() {
            true => self.client.name_holds_ns(dir, name, Some(attr.handle)),
            false => self.age_ns(attr),
        }
    }

    /// For how many nanoseconds it may be believed that nothing has this name. To be asked after a
    /// look-up has said so.
    pub fn absent_ttl_ns(&self, dir: InodeNumber, name: &[u8]) -> u64 {
        if self.client.keeps_leases() { self.client.name_holds_ns(dir.handle(), name, None) } else { 0 }
    }

    /// How old what is told may become without leases. An open is judged by what was told of the
    /// mode ([`Posix::open`]), of which an access control list is no part: a kernel keeps the list
    /// as long as the attributes.
    fn age_ns(&self, attr: &Attr) -> u64 {
        if attr.mode & MODE_ACL == 0 { self.options.ttl_ns } else { 0 }
    }

    /// For how many nanoseconds a name, and the attributes of what it leads to, may be believed.
    pub(crate) fn ttls_ns(&self, dir: Handle, name: &[u8], attr: &Attr) -> (u64, u64) {
        match self.sealed_ttl_ns(attr) {
            Some(ttl_ns) => (ttl_ns, ttl_ns),
            None => (self.name_ttl_ns(dir, name, attr), self.attr_ttl_ns(attr)),
        }
    }

    /// For how many nanoseconds these attributes may be believed.
    pub(crate) fn attr_ttl_ns(&self, attr: &Attr) -> u64 {
        match self.sealed_ttl_ns(attr) {
            Some(ttl_ns) => ttl_ns,
            None if self.client.keeps_leases() => self.client.attr_holds_ns(attr),
            None => self.age_ns(attr),
        }
    }

    /// This layer has moved names between these directories: what is believed above moves with
    /// them, but only a lease on its directory makes it good there.
    pub(crate) fn names_moved(&self, one: Handle, other: Handle) {
        if self.client.keeps_leases() && !self.client.covers_moved(one, other) {
            self.gateway.forget_names();
        }
    }

    /// Hears what others change at each metadata server, also at those that join, until this layer
    /// keeps no leases or ends. `beside` begins [`Posix::hear_notices`] on a thread of its own.
    pub async fn hear_all(&self, mut beside: impl FnMut(ServerId) -> io::Result<()>) {
        let mut heard = Vec::new();
        while let Some(server) = self.next_to_hear(&heard).await {
            heard.push(server);
            if let Err(error) = beside(server) {
                // Nothing that this server says is believed then.
                self.gateway.warn(&format!("no thread for the notices of {server}: {error}"));
            }
        }
    }

    /// A server that is not among these; waits for one to join.
    async fn next_to_hear(&self, before: &[ServerId]) -> Option<ServerId> {
        loop {
            let ended = self.closes.ended.wait();
            if self.closes.lock().ends || !self.client.keeps_leases() {
                return None;
            }
            let next = self.client.map().meta.iter().map(|entry| entry.id).find(|server| !before.contains(server));
            if next.is_some() {
                return next;
            }
            race(ended, self.rt().sleep_until(self.now() + LOOK_NS)).await;
        }
    }

    /// Hears what others change at a metadata server, until [`Posix::end`].
    pub async fn hear_notices(&self, server: ServerId) {
        while !self.closes.lock().ends && self.client.keeps_leases() {
            if !self.client.hear_notices(server, |notice, objects| self.forget(notice, objects)).await {
                self.gateway.warn(&format!("{server} knows no leases: names and attributes are believed for a short time instead"));
                self.client.keep_leases(false);
                return self.client.follow_directories(self.options.ttl_ns);
            }
        }
    }

    /// From now on nothing is believed that was told under leases; metadata servers hear of that.
    pub async fn leave_leases(&self) {
        if self.client.keeps_leases() {
            self.end_delays(LEAVE_NS).await;
            self.give_back_directories(LEAVE_NS).await;
            // Who hears notices does not begin anew.
            self.client.keep_leases(false);
            let deadline = self.now() + LEAVE_NS;
            let map = self.client.map();
            join_all(map.meta.iter().map(|entry| self.client.leave_leases(entry.id, deadline))).await;
        }
    }

    /// Makes forgotten above what a notice ends; `objects`: of which attributes were told under it.
    fn forget(&self, notice: &LeaseNotice, objects: &[Handle]) {
        match notice {
            LeaseNotice::Name { dir, .. } => {
                self.gateway.forget_names();
                self.forget_told_of(*dir, Some(FileKind::Directory));
            }
            LeaseNotice::Object { handle } => self.forget_told(*handle),
            LeaseNotice::Append { handle } => {
                if let Some(told) = self.client.share_appends(*handle) {
                    self.closes.push(told);
                }
            }
            // The client below gives it back.
            LeaseNotice::Delegation { .. } => {}
            LeaseNotice::Directory { .. } | LeaseNotice::Everything {} => {
                self.gateway.forget_names();
                objects.iter().for_each(|handle| self.forget_told(*handle));
                // Others are reached by names only, or are open.
                self.files.numbers(|_| true).into_iter().filter_map(|number| self.files.get(number)).for_each(|open| {
                    self.forget_told(open.file.handle());
                });
            }
        }
    }
}
