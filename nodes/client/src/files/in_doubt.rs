//! Opens that were given up, because their server did not answer in time or because their caller
//! went away: the server may have the file open for this client then, and nobody would ever close
//! it. They are closed with [`Client::keep_alive`]. What is not found any more by its name (a file
//! that was made, and moved by others meanwhile, or that never had a name) stays open at its server
//! until this client ends.

use std::mem::take;
use std::sync::Mutex;

use bytes::Bytes;
use weft_base::{Credentials, FileKind, Handle, Nanos};
use weft_call::run_window;
use weft_rt::Runtime;
use weft_wire::Rights;
use weft_wire::ops::CloseRequest;

use super::open_table::{OpenTable, OpenTicket};
use crate::flow::Flow;
use crate::{Client, Result};

/// So many are remembered.
const DOUBTS_MAX: usize = 1 << 10;

/// What an open that is on its way asks for.
#[derive(Clone, Copy, Debug)]
pub(super) struct AskedOpen<'a> {
    who: &'a Credentials,
    rights: Rights,
    /// The file, or the directory of its name.
    object: Handle,
    name: Option<&'a Bytes>,
}

#[derive(Debug)]
struct OpenInDoubt {
    sequence: u64,
    who: Credentials,
    rights: Rights,
    object: Handle,
    name: Option<Bytes>,
}

/// Opens whose outcome is not known.
#[derive(Debug, Default)]
pub(super) struct OpensInDoubt(Mutex<Vec<OpenInDoubt>>);

impl OpensInDoubt {
    pub(super) fn gave_up(&self, sequence: u64, asked: AskedOpen<'_>) {
        let AskedOpen { who, rights, object, name } = asked;
        self.add(OpenInDoubt { sequence, who: who.clone(), rights, object, name: name.cloned() });
    }

    fn add(&self, open: OpenInDoubt) {
        let mut opens = self.0.lock().expect("no code panics while it holds this lock");
        if opens.len() < DOUBTS_MAX {
            opens.push(open);
        }
    }

    fn take(&self) -> Vec<OpenInDoubt> {
        take(&mut *self.0.lock().expect("no code panics while it holds this lock"))
    }
}

impl OpenTable {
    /// Numbers an open of a file that is about to be sent.
    pub(super) fn begin_open<'a>(&'a self, who: &'a Credentials, handle: Handle, rights: Rights) -> OpenTicket<'a> {
        self.begin_asking(AskedOpen { who, rights, object: handle, name: None })
    }

    /// Numbers a request that makes or opens a file by its name.
    pub(super) fn begin_create<'a>(&'a self, who: &'a Credentials, dir: Handle, name: &'a Bytes, rights: Rights) -> OpenTicket<'a> {
        self.begin_asking(AskedOpen { who, rights, object: dir, name: Some(name) })
    }

    fn begin_asking<'a>(&'a self, asked: AskedOpen<'a>) -> OpenTicket<'a> {
        let mut ticket = self.begin();
        ticket.asked = Some(asked);
        ticket
    }
}

impl OpenTicket<'_> {
    /// What became of it is known with this outcome, unless that is that nobody knows.
    pub(super) fn heard<T>(&mut self, outcome: Result<T>) -> Result<T> {
        self.asked = self.asked.filter(|_| outcome.as_ref().is_err_and(|error| error.status.is_transient()));
        outcome
    }
}

impl<R: Runtime> Client<R> {
    /// Closes what may have been opened without an answer. What fails is left for the next call.
    pub(super) async fn close_in_doubt(&self) {
        // One for all: there may be more than are asked for at once.
        let deadline = self.flow_to_keep_alive(Handle(0)).deadline;
        let close = async |open: OpenInDoubt| {
            if self.close_one_in_doubt(&open, deadline).await.is_err_and(|error| error.status.is_transient()) {
                self.inner.opens.in_doubt.add(open);
            }
        };
        run_window(self.inner.opens.in_doubt.take().into_iter().map(close), self.options().window).await;
    }

    async fn close_one_in_doubt(&self, open: &OpenInDoubt, deadline: Nanos) -> Result<()> {
        let flow = Flow { deadline, ..self.flow("close what was given up", open.object) };
        let handle = match &open.name {
            None => open.object,
            Some(name) => match self.lookup_request(flow, &open.who, open.object, name).await? {
                reply if reply.kind == FileKind::File => reply.handle,
                _ => return Ok(()),
            },
        };
        if self.inner.opens.covers(handle, open.sequence, open.rights) {
            return Ok(());
        }
        let (open_sequence, keeps) = (open.sequence, Rights::default());
        self.call(flow, handle.server(), &CloseRequest { handle, open_sequence, keeps, written: None }).await
    }
}
