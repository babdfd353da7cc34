//! Requests whose replies are awaited.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Waker;

use weft_base::{FastMap, Status};
use weft_wire::Frame;

use crate::client::parker::Parker;
use crate::region::Slot;

/// Sends whose time is remembered for the trace records of the requests in them.
const SENDS_REMEMBERED: usize = 256;
/// Requests whose replies are awaited, by sequence number.
#[derive(Debug, Default)]
pub(super) struct Table {
    pub(super) requests: FastMap<u64, Pending>,
    /// Of the last sends while requests are traced: the end among all bytes ever collected, and the
    /// time by the clock of trace records.
    pub(super) sends: VecDeque<(u64, u64)>,
}

impl Table {
    pub(super) fn note_send(&mut self, end: u64, ticks: u64) {
        if self.sends.len() == SENDS_REMEMBERED {
            self.sends.pop_front();
        }
        self.sends.push_back((end, ticks));
    }

    /// When the byte before `end` was given to the socket; 0: not known any more.
    pub(super) fn sent_at(&self, end: u64) -> u64 {
        // Whoever gets its reply now was in one of the last sends.
        let later = self.sends.iter().rev().take_while(|(sent, _)| *sent >= end).count();
        let is_forgotten = later == SENDS_REMEMBERED;
        let at = self.sends.len() - later;
        self.sends.get(at).filter(|_| !is_forgotten).map_or(0, |(_, ticks)| *ticks)
    }
}

/// A request whose reply is awaited.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) outcome: Option<Result<Frame, Status>>,
    pub(super) waker: Option<Waker>,
    /// The thread that waits, to make it the reader.
    pub(super) parker: Arc<Parker>,
    /// The place in the shared region that the request has named.
    pub(super) slot: Option<Slot>,
    /// The reply has come.
    pub(super) answered: bool,
    /// When it was taken from the socket, if requests are traced.
    pub(super) received_at: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_left_with_the_send_that_took_its_last_byte() {
        let mut table = Table::default();
        assert_eq!(table.sent_at(10), 0, "nothing was sent");
        table.note_send(100, 7);
        table.note_send(250, 9);
        assert_eq!([1, 100, 101, 250, 251].map(|end| table.sent_at(end)), [7, 7, 9, 9, 0]);
    }

    #[test]
    fn what_is_forgotten_is_not_guessed() {
        let mut table = Table::default();
        (1..=SENDS_REMEMBERED as u64 + 1).for_each(|send| table.note_send(send * 10, send));
        assert_eq!(table.sends.len(), SENDS_REMEMBERED);
        assert_eq!((table.sent_at(10), table.sent_at(20), table.sent_at(21)), (0, 0, 3));
    }
}
