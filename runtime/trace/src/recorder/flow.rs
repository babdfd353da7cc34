//! Which operation a flow is in: what belongs together in a trace.
//!
//! An executor that runs several flows on one thread saves and restores their [`Context`] with
//! [`set_context`] around each of them.

use std::cell::Cell;

/// The lane of an operation that found all taken.
pub const LANE_NONE: u16 = u16::MAX;

thread_local! {
    /// The running operation of the flow that this thread works on. Without a destructor, so that
    /// it costs next to nothing to reach.
    static CONTEXT: Cell<Context> = const { Cell::new(Context::NONE) };
}

/// The running operation of a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Context {
    /// Its span; 0: none.
    pub(super) span: u32,
    pub(super) lane: u16,
    pub(super) fate: Fate,
}

/// What happens to the records of an operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Fate {
    /// Nobody has decided.
    #[default]
    Open = 0,
    Kept = 1,
    NotChosen = 2,
}

impl Context {
    pub(super) const NONE: Context = Context { span: 0, lane: 0, fate: Fate::Open };

    pub(super) fn parts(self) -> (u32, u16, u8) {
        (self.span, self.lane, self.fate as u8)
    }

    /// From its [`Context::parts`].
    pub(super) fn of_parts(span: u32, lane: u16, fate: u8) -> Context {
        let fate = [Fate::Open, Fate::Kept, Fate::NotChosen, Fate::NotChosen][usize::from(fate & 3)];
        Context { span, lane, fate }
    }

    /// Of what a request at a server begins: inside its staged span.
    pub(super) fn inside(span: u32) -> Context {
        Context { span, lane: LANE_NONE, fate: Fate::Kept }
    }
}

/// The running operation of this thread's flow.
#[inline]
pub fn context() -> Context {
    CONTEXT.get()
}

/// Goes on with another flow: `context` is its running operation. Returns that of the flow before.
#[inline]
pub fn set_context(context: Context) -> Context {
    CONTEXT.replace(context)
}

/// A flow that goes on with what a context began: what it records is inside that, whichever task
/// runs it, and beside whatever other flows of the task record.
pub async fn within<F: Future>(context: Context, flow: F) -> F::Output {
    let mut flow = std::pin::pin!(flow);
    let mut own = context;
    std::future::poll_fn(|waker| {
        let before = set_context(own);
        let poll = flow.as_mut().poll(waker);
        own = set_context(before);
        poll
    })
    .await
}
