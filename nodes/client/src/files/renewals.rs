//! How what is shown to data servers is renewed: capabilities that have expired, ceilings that a
//! write has met.

use std::cell::Cell;

use bytes::Bytes;
use weft_base::{Credentials, Status};
use weft_rt::{Bulk, Runtime};
use weft_wire::Rights;
use weft_wire::ops::{OpenRequest, RoomWanted};

use super::granted::Granted;
use super::open_inode::{OpenInode, State};
use super::opens::{OPEN_TRIES, RENEWAL, renewing};
use crate::flow::Flow;
use crate::{Client, Result};

/// How often one request asks for a higher ceiling, each time for about twice as much.
const RAISES_MAX: u32 = 128;

impl OpenInode {
    /// It is opened once more with this number, perhaps without an answer, or with one that comes
    /// when it is closed here: a close covers that.
    pub(super) fn opens_again(&self, sequence: u64, rights: Rights) {
        let mut state = self.lock();
        state.open_sequence = state.open_sequence.max(sequence);
        state.held.asks(rights);
    }

    /// What shows that it is open. What was shown before it was closed shows nobody that it is open
    /// again: who writes to it would believe that it is alone.
    fn granted_for_data(&self, right: Rights) -> Option<Granted> {
        self.granted(right).filter(|_| self.holds_for_data(right))
    }

    /// Its server knows that it is open so for this user.
    pub(super) fn held_by(&self, who: &Credentials, rights: Rights) {
        self.lock().openers.told_of(who, rights);
    }

    /// Who asks for what is open here already ([`renewing`]).
    pub(super) fn renewer(&self) -> Credentials {
        self.lock().openers.told().map_or(RENEWAL, renewing)
    }

    /// The rights to be asked for with the next open of what is open here already, and who asks;
    /// `None`: it is no new access, [`OpenInode::renewer`] does.
    pub(super) fn renewal(&self) -> (Rights, Option<Credentials>) {
        let state = self.lock();
        // Whether it is alone when it appends, this client asks another time.
        let needed = state.needed().and(Rights::OF_OPENS.without(Rights::APPEND));
        let leaves = state.leaves_by();
        let needed = needed.with(leaves);
        let missing = needed.without(state.held.rights.with(leaves));
        match missing == Rights::default() {
            true => (needed, None),
            false => (missing, state.openers.untold.clone()),
        }
    }

    /// True if something of it is on its way to data servers by this right, which a close has given
    /// back in vain.
    fn is_leaving_by(&self, right: Rights) -> bool {
        right != Rights::default() && self.lock().leaves_by().contains(right)
    }

    /// True if its server knows of a local open for this right, or of any for data for none.
    pub(super) fn holds_for_data(&self, right: Rights) -> bool {
        let held = self.lock().held.rights;
        if right == Rights::default() { held.and(Rights::OF_DATA) != right } else { held.contains(right) }
    }
}

impl State {
    /// What is closed and on its way to data servers was open for that.
    fn leaves_by(&self) -> Rights {
        if self.delayed.is_leaving() { self.held.noted().and(Rights::WRITE) } else { Rights::default() }
    }
}

impl<R: Runtime> Client<R> {
    /// Runs a request to a data server with a capability for `right` (none: of any right), once
    /// more with a new one if it has expired.
    pub(super) async fn with_capability<T>(
        &self,
        flow: Flow,
        inode: &OpenInode,
        right: Rights,
        request: impl AsyncFn(weft_wire::Capability) -> Result<T>,
    ) -> Result<T> {
        self.with_granted(flow, inode, right, async |granted| request(granted.capability).await).await
    }

    async fn with_granted<T>(
        &self,
        flow: Flow,
        inode: &OpenInode,
        right: Rights,
        request: impl AsyncFn(Granted) -> Result<T>,
    ) -> Result<T> {
        for _ in 0..OPEN_TRIES {
            let granted = self.granted_or_asked(flow, inode, right).await?;
            match request(granted).await {
                Err(error) if error.status == Status::CapabilityExpired => {
                    let _passage = self.enter(inode).await;
                    if inode.granted(right) == Some(granted) {
                        Box::pin(self.renew_inside(flow, inode, None)).await?;
                    }
                }
                outcome => return outcome,
            }
        }
        Err(flow.error(Status::CapabilityExpired))
    }

    /// What shows data servers that the file is open with this right. To ask for it is rare.
    async fn granted_or_asked(&self, flow: Flow, inode: &OpenInode, right: Rights) -> Result<Granted> {
        match inode.granted_for_data(right) {
            Some(granted) => Ok(granted),
            None => Box::pin(self.ask_for_granted(flow, inode, right)).await,
        }
    }

    async fn ask_for_granted(&self, flow: Flow, inode: &OpenInode, right: Rights) -> Result<Granted> {
        for _ in 0..OPEN_TRIES {
            if let Some(granted) = inode.granted_for_data(right) {
                return Ok(granted);
            }
            if inode.is_unannounced() {
                self.announce_inode(flow, inode).await?;
            } else if inode.wants_capability() && self.tell_of_new(flow, inode).await? {
                // It came with the answer.
            } else if inode.holds_for_data(right) || inode.is_leaving_by(right) {
                // Made here, without asking for a capability; or closed, and its server did not
                // take what was kept of it.
                let _passage = self.enter(inode).await;
                if inode.granted_for_data(right).is_none() {
                    self.renew_inside(flow, inode, None).await?;
                }
            } else {
                return Err(flow.error(Status::AccessDenied));
            }
        }
        Err(flow.error(Status::CapabilityExpired))
    }

    /// Runs a request that may allocate something, up to the byte `end` of the file. If its owner
    /// is limited and the ceiling is met, the server of the inode is asked for a higher one.
    ///
    /// # Errors
    /// [`Status::QuotaExceeded`] if he may have no more.
    pub(super) async fn with_room<T>(
        &self,
        flow: Flow,
        inode: &OpenInode,
        end: u64,
        request: impl AsyncFn(Granted) -> Result<T>,
    ) -> Result<T> {
        let shown = Cell::new(None);
        let show = async |granted: Granted| {
            shown.set(granted.ceiling);
            request(granted).await
        };
        let mut asked = 0;
        loop {
            match (self.with_granted(flow, inode, Rights::WRITE, &show).await, shown.get()) {
                (Err(error), Some(ceiling)) if error.status == Status::QuotaExceeded && asked < RAISES_MAX => {
                    let _passage = self.enter(inode).await;
                    let present = || inode.granted(Rights::WRITE).and_then(|granted| granted.ceiling);
                    if present() == Some(ceiling) {
                        let room = RoomWanted { above_bytes: ceiling.file_bytes, end_bytes: end };
                        self.renew_inside(flow, inode, Some(room)).await?;
                    }
                    if present() == Some(ceiling) {
                        return Err(error);
                    }
                    asked += 1;
                }
                (outcome, _) => return outcome,
            }
        }
    }

    /// Opens again what is open here, for a new capability, and with `room` for a higher ceiling.
    /// The caller is inside the gate of the file.
    pub(super) async fn renew_inside(&self, flow: Flow, inode: &OpenInode, room: Option<RoomWanted>) -> Result<()> {
        self.renew_with(flow, inode, None, room).await.map(drop)
    }

    /// The same, and gives all bytes of the file, if its server has them.
    pub(super) async fn renew_with_content(&self, flow: Flow, inode: &OpenInode) -> Result<Option<Bytes>> {
        self.renew_with(flow, inode, Some(true), None).await
    }

    async fn renew_with(&self, flow: Flow, inode: &OpenInode, content: Option<bool>, room: Option<RoomWanted>) -> Result<Option<Bytes>> {
        let (rights, who) = inode.renewal();
        if rights == Rights::default() {
            return Err(flow.error(Status::CapabilityExpired));
        }
        let is_new = who.is_some();
        let who = who.unwrap_or_else(|| inode.renewer());
        let server = self.owner(flow, inode.handle).await?;
        for _ in 0..OPEN_TRIES {
            let ticket = self.inner.opens.begin();
            let (handle, open_sequence) = (inode.handle, ticket.sequence);
            inode.opens_again(open_sequence, rights);
            let inline = inode.is_inline().then_some(true);
            let request =
                OpenRequest { inline, content, room: room.clone(), ..OpenRequest::of(handle, rights, open_sequence, who.clone()) };
            let (reply, bulk) = self.call_with_bulk(flow, server, &request, Bulk::None).await?;
            let granted = Granted { capability: reply.capability, ceiling: reply.ceiling };
            if self.inner.opens.renewed(&ticket, inode, rights, granted) {
                if is_new {
                    inode.held_by(&who, rights);
                }
                return Ok(reply.content_bytes.filter(|bytes| u64::from(*bytes) == bulk.len()).map(|_| bulk.to_bytes()));
            }
        }
        Err(flow.error(Status::Busy))
    }
}
