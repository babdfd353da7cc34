//! Leases at the client: it says that it keeps what it is told, and hears what others change. What
//! it was told is behind the door of `knowledge`.

use weft_base::{Attr, Handle, MILLISECOND, Nanos, SECOND, ServerId, Status};
use weft_rt::Runtime;
use weft_wire::ops::{LeaseNotice, NoticesRequest};

use crate::Client;

/// How long a server may take to answer beyond the time that it waits for notices, in nanoseconds.
const ANSWER_NS: u64 = 10 * SECOND;
/// The pause after a server that did not answer, in nanoseconds.
const AGAIN_NS: u64 = 50 * MILLISECOND;
/// Clocks of clients and servers run at speeds that differ by less than one in so many.
const DRIFT: u64 = 50;

impl<R: Runtime> Client<R> {
    /// From now on nothing is believed but what servers tell under leases ([`Client::hear_notices`]
    /// must be driven for each metadata server); `false`: as at first.
    pub fn keep_leases(&self, is_on: bool) {
        self.inner.knowledge.keep_leases(is_on);
    }

    /// True after [`Client::keep_leases`].
    pub fn keeps_leases(&self) -> bool {
        self.inner.knowledge.keeps_leases()
    }

    /// Asks a metadata server once what is not to be believed any more, and waits for its answer: a
    /// second or two if there is nothing. `forget` must make whoever was told by this client forget
    /// it before it returns, and what was told of these objects; others wait for that. To be called
    /// again and again, by a flow of its own for each server, as long as this client keeps leases.
    /// False: the server knows no leases.
    pub async fn hear_notices(&self, server: ServerId, forget: impl Fn(&LeaseNotice, &[Handle])) -> bool {
        let knowledge = &self.inner.knowledge;
        let (session, heard) = knowledge.session(server);
        let asked = self.rt().now();
        let request = NoticesRequest { session, heard, leaves: false };
        let outcome = self.inner.servers.ask_for_notices(server, &request, asked + ANSWER_NS).await;
        match outcome {
            Ok(reply) => {
                // Who only listens says what it has, too: others wait for that.
                self.reclaim_if_restarted(self.rt().now() + ANSWER_NS).await;
                let term_ns = u64::from(reply.term_ms) * MILLISECOND;
                let everything = LeaseNotice::Everything {};
                let told = if reply.session == session { Vec::new() } else { knowledge.told_under(server, &everything) };
                if knowledge.renewed(server, reply.session, asked + (term_ns - term_ns / DRIFT)) {
                    forget(&everything, &told);
                    self.lose_directories(server);
                    self.announce_for(server, &everything).await;
                    if session != 0 {
                        // Others may have been told that nobody has these files open.
                        self.tell_opens(server, false, self.rt().now() + ANSWER_NS).await;
                    }
                }
                for notice in &reply.notices {
                    let told = knowledge.told_under(server, notice);
                    knowledge.notice(server, notice);
                    forget(notice, &told);
                    if let LeaseNotice::Delegation { dir } = notice {
                        let forget_file = |handle| forget(&LeaseNotice::Object { handle }, &[]);
                        self.give_back_directory(server, *dir, forget_file).await;
                    }
                    self.announce_for(server, notice).await;
                }
                knowledge.heard(server, reply.session, reply.newest);
                true
            }
            Err(Status::NotSupported) => false,
            Err(_) => {
                self.rt().sleep_until(self.rt().now() + AGAIN_NS).await;
                true
            }
        }
    }

    /// Tells a metadata server that this client believes nothing any more.
    pub async fn leave_leases(&self, server: ServerId, deadline: Nanos) {
        self.inner.knowledge.notice(server, &LeaseNotice::Everything {});
        let request = NoticesRequest { session: 0, heard: 0, leaves: true };
        // Who is not told waits for the end of the term.
        drop(self.inner.servers.ask_for_notices(server, &request, deadline).await);
    }

    /// Nothing that this client was told of a directory is believed any more. What it has removed
    /// itself no server tells it, and of a name that it removes it does not always know the object.
    pub fn forget_directory(&self, dir: Handle) {
        self.inner.knowledge.notice(dir.server(), &LeaseNotice::Directory { dir });
    }

    /// For how many nanoseconds others will not be told anything else before they ask again: the
    /// name leads to this object (`None`: to nothing).
    pub fn name_holds_ns(&self, dir: Handle, name: &[u8], handle: Option<Handle>) -> u64 {
        self.inner.knowledge.name_holds_ns(dir, name, handle, self.rt().now())
    }

    /// For how many nanoseconds these attributes may be believed, as far as others are concerned.
    pub fn attr_holds_ns(&self, attr: &Attr) -> u64 {
        self.inner.knowledge.attr_holds_ns(attr, self.rt().now())
    }

    /// True if what is believed of a name goes on to hold when this client has moved it from one
    /// directory to another, or within one: a lease that is held covers it there, too.
    pub fn covers_moved(&self, one: Handle, other: Handle) -> bool {
        let (knowledge, now) = (&self.inner.knowledge, self.rt().now());
        match one == other {
            // What was believed is forgotten when the lease on the directory ends.
            true => !knowledge.partitions.may_be_split(one),
            false => knowledge.holds(one, now) && knowledge.holds(other, now),
        }
    }

    /// True if the object has no extended attributes, as far as that may be believed.
    pub fn is_bare(&self, handle: Handle) -> bool {
        let (knowledge, now) = (&self.inner.knowledge, self.rt().now());
        let attr = knowledge.state(handle, now).map(|(state, _)| state.attr).or_else(|| knowledge.leased_directory(handle, now));
        attr.is_some_and(|attr| attr.bare)
    }

    /// Attributes of a directory that nobody changes without this client hearing of it, itself
    /// included: as long as version and time of change stay the same, so do its names.
    pub fn leased_directory(&self, dir: Handle) -> Option<Attr> {
        self.inner.knowledge.leased_directory(dir, self.rt().now())
    }

    /// Exact attributes of an object that are known without asking.
    pub fn leased_attr(&self, handle: Handle) -> Option<Attr> {
        let (state, asked) = self.inner.knowledge.state(handle, self.rt().now())?;
        self.settle_at_once(&state, asked)
    }
}
