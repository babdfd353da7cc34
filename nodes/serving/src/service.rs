//! What a server does, as the loop of turns sees it.

use std::rc::Rc;

use weft_base::{ClientId, ClusterMap, Nanos};
use weft_live::Gauges;
use weft_rt::{Arrival, Disk, PeerId, ServerRuntime};
use weft_trace::EventId;
use weft_wire::Frame;
use weft_wire::ops::ServerInfo;

use crate::{Durability, ServedRequest, ServerError, ServerLoad, Shell};

/// What a server executes, and how it keeps what it has decided. [`serve`](crate::serve) does the
/// rest.
pub trait Service: Sized + 'static {
    /// The world below.
    type Rt: ServerRuntime;
    /// What an answer waits for that must not leave with its turn.
    type Until;
    /// The event of a turn in traces.
    const TURN: EventId;

    /// What the server has in common with others.
    fn shell(&self) -> &Shell<Self::Rt>;

    /// A connection of the client was made.
    fn connected(&self, client: ClientId, incarnation: u32);

    /// A connection of the client is gone.
    fn disconnected(&self, client: ClientId, now: Nanos);

    /// What the next turn begins with.
    fn intake(&self, is_to_stop: bool) -> Intake;

    /// Before a turn changes anything. A full disk is no failure: who needs room that is not there
    /// is refused.
    fn make_room(&self) -> impl Future<Output = Result<(), ServerError>>;

    /// Executes what has arrived, or starts it. [`connection`](crate::connection) takes what is no
    /// request.
    fn work(
        self: &Rc<Self>,
        arrivals: &mut Vec<Arrival>,
        answers: &mut OutgoingReplies<Self>,
    ) -> impl Future<Output = Result<(), ServerError>>;

    /// Writes what was decided, as safely as answers need that leave with their turn.
    fn commit(&self) -> impl Future<Output = Result<(), ServerError>>;

    /// The turn is committed, and these answers leave now.
    fn committed(self: &Rc<Self>, _answers: &OutgoingReplies<Self>) {}

    /// Waits until an answer may leave. False: the server stops, and its client asks the next life.
    fn wait(&self, until: Self::Until) -> impl Future<Output = bool>;

    /// At the end of a turn: starts what it has made necessary. `has_answered`: the turn had
    /// requests to answer.
    fn look_after(self: &Rc<Self>, has_answered: bool) -> impl Future<Output = ()>;

    /// The server must stop; no answer leaves any more that was not decided before. Servers with
    /// flows that wait wake them.
    fn fail(&self, failure: ServerError) {
        self.shell().note_failure(failure);
    }

    /// Before an orderly end: everything is on stable storage.
    fn bring_to_rest(&self) -> impl Future<Output = Result<(), ServerError>>;

    /// Answers leave under this contract from now on.
    fn promise(&self, durability: Durability) -> impl Future<Output = weft_base::Result<()>>;

    /// Waits until everything that was acknowledged is on stable storage.
    fn flush(&self) -> impl Future<Output = weft_base::Result<()>>;

    /// What the next start compares with the id of the machine's boot, if this life ends under this
    /// contract.
    fn boot_id(&self, _durability: Durability) -> u64 {
        self.shell().rt.disk().boot_id()
    }

    /// The newest record in the server's journal that is on stable storage; `None`: it has none.
    fn durable_lsn(&self) -> Option<u64> {
        None
    }

    /// New objects go where this map says from now on.
    fn placed(&self, _map: &ClusterMap) {}

    /// What there is to do, for traces.
    fn load(&self) -> ServerLoad;

    /// What the server says of itself, see [`Shell::info`].
    fn info(&self) -> impl Future<Output = weft_base::Result<ServerInfo>>;

    /// What dashboards see of it.
    fn gauges(&self) -> Gauges;
}

/// How the loop comes to its next turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Intake {
    /// When something arrives, or a flow wakes the loop.
    Open,
    /// At once, with what is there: work waits.
    Ready,
    /// At once, and nothing is received.
    Busy,
    /// When a flow wakes the loop; nothing is received.
    Closed,
    /// There is none: the server is asked to stop and has nothing left to do.
    Over,
}

/// A reply on its way out.
pub struct OutgoingReply<U> {
    /// Where it goes.
    pub peer: PeerId,
    /// What it says.
    pub frame: Frame,
    /// The request.
    pub served: ServedRequest,
    /// It waits for this after its turn is committed.
    pub until: Option<U>,
}

/// The replies of a turn.
pub type OutgoingReplies<S> = Vec<OutgoingReply<<S as Service>::Until>>;
