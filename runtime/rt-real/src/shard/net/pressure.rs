//! What one peer may make this server keep in memory: requests that wait, replies that it does not
//! take, frames that it does not complete.
//!
//! Nobody knows how large a reply will be before it is there, so requests of a connection are
//! handed to the server only as far as replies of the size that it got lately would fit into
//! [`REPLY_BYTES_PER_TURN`]; the others wait until the next turn, and while the peer does not take
//! what it was sent. That costs a peer that reads nothing but a turn.

use std::collections::VecDeque;

use weft_base::{MILLISECOND, Nanos, SECOND};
use weft_rt::{Arrival, PeerId};
use weft_wire::Frame;

use super::{Conn, Net, OUT_BYTES_PAUSE, Role, STALL_NS_MAX, token};
use crate::clock;

/// Replies of one connection that one turn should not exceed.
const REPLY_BYTES_PER_TURN: usize = 64 << 20;
/// Requests of one connection handed over in one turn, at least and at most.
const REQUESTS_PER_TURN: std::ops::RangeInclusive<usize> = 8..=4096;
/// The size of the replies of a connection that has got none yet.
const REPLY_BYTES_FIRST: usize = 4 << 20;
/// Replies that all connections together do not take; beyond it those that take nothing are
/// dropped.
const UNSENT_BYTES_MAX: usize = 512 << 20;
/// Parts of frames of all connections together; beyond it no new frame is begun and those that do
/// not go on are dropped.
const HALF_BYTES_MAX: usize = 256 << 20;
/// A frame that was begun must go on after this time, and be complete after the other one, in
/// nanoseconds.
const HALF_SILENT_NS_MAX: u64 = 10 * SECOND;
const HALF_NS_MAX: u64 = 60 * SECOND;
/// The patience with who does not go on while memory is short, in nanoseconds.
const SHORT_NS_MAX: u64 = 500 * MILLISECOND;

/// What is counted of one connection.
#[derive(Debug, Default)]
pub(super) struct Pressure {
    /// Requests that are not handed over yet; nothing is read meanwhile.
    pub(super) waiting: VecDeque<Frame>,
    /// The turn in which some were handed over, and how many.
    turn: u64,
    handed: usize,
    /// The size of the largest reply lately; forgotten slowly.
    reply_bytes: usize,
    /// What of it is in the sums of all connections.
    unsent_bytes: usize,
    half_bytes: usize,
    /// Since when a frame is incomplete, and when its last bytes came.
    half_since: Option<(Nanos, Nanos)>,
}

impl Pressure {
    pub(super) fn new() -> Pressure {
        Pressure { reply_bytes: REPLY_BYTES_FIRST, ..Pressure::default() }
    }

    /// It was not read from, and is again: only from now on can it go on.
    pub(super) fn read_again(&mut self) {
        if let Some(half) = &mut self.half_since {
            let now = clock::now();
            *half = (now, now);
        }
    }

    /// True if one more request may be handed over in this turn; then it counts.
    fn admits(&mut self, turn: u64) -> bool {
        if self.turn != turn {
            (self.turn, self.handed) = (turn, 0);
        }
        let limit = (REPLY_BYTES_PER_TURN / self.reply_bytes.max(1)).clamp(*REQUESTS_PER_TURN.start(), *REQUESTS_PER_TURN.end());
        self.handed += 1;
        self.handed <= limit
    }
}

/// The sums of all connections.
#[derive(Debug, Default)]
pub(super) struct Sums {
    unsent_bytes: usize,
    half_bytes: usize,
    /// Counts what was handed over to the server at once.
    turn: u64,
    /// Connections with requests that wait.
    holding: Vec<u64>,
}

impl Net {
    /// Hands a request over, now or when its turn comes.
    pub(super) fn hand_over(&mut self, token: u64, frame: Frame) {
        let turn = self.sums.turn;
        let Some(conn) = self.conn_mut(token) else { return };
        let pressure = &mut conn.pressure;
        if !pressure.waiting.is_empty() || !pressure.admits(turn) {
            pressure.waiting.push_back(frame);
            if pressure.waiting.len() == 1 {
                self.sums.holding.push(token);
                self.pause(token, true);
            }
            return;
        }
        self.arrived_bytes += frame.wire_bytes() as usize;
        self.arrive(Arrival::Request { peer: PeerId(token), frame });
    }

    /// The server takes what has arrived: a new turn begins, with what waited.
    pub(super) fn next_turn(&mut self) {
        if !self.arrivals.is_empty() || !self.sums.holding.is_empty() {
            self.sums.turn += 1;
        }
        for token in std::mem::take(&mut self.sums.holding) {
            let turn = self.sums.turn;
            let Some(conn) = self.conn_mut(token) else { continue };
            let mut ready = Vec::new();
            if conn.out.len() <= OUT_BYTES_PAUSE {
                while !conn.pressure.waiting.is_empty() && conn.pressure.admits(turn) {
                    ready.extend(conn.pressure.waiting.pop_front());
                }
            }
            let (done, pause) = (conn.pressure.waiting.is_empty(), conn.must_pause());
            for frame in ready {
                self.arrived_bytes += frame.wire_bytes() as usize;
                self.arrive(Arrival::Request { peer: PeerId(token), frame });
            }
            if done {
                self.pause(token, pause);
            } else {
                self.sums.holding.push(token);
            }
        }
    }

    /// Counts a reply that was queued, or what was sent.
    pub(super) fn count_unsent(&mut self, token: u64, reply_bytes: usize) {
        let Some(conn) = self.conn_mut(token) else { return };
        let (now, pressure) = (conn.out.len(), &mut conn.pressure);
        if reply_bytes > 0 {
            pressure.reply_bytes = reply_bytes.max(pressure.reply_bytes - pressure.reply_bytes / 64);
        }
        let before = std::mem::replace(&mut pressure.unsent_bytes, now);
        let may_go_on = !pressure.waiting.is_empty() && now <= OUT_BYTES_PAUSE / 4;
        self.sums.unsent_bytes = self.sums.unsent_bytes + now - before;
        if self.sums.unsent_bytes > UNSENT_BYTES_MAX {
            self.sweep_at = self.sweep_at.min(clock::now() + SHORT_NS_MAX);
        }
        if may_go_on && let Some(waker) = self.receiver.take() {
            waker.wake();
        }
    }

    /// Nothing new is begun while too much is half here.
    pub(super) fn may_begin(&mut self, token: u64, now: Nanos) -> bool {
        let may = self.sums.half_bytes <= HALF_BYTES_MAX || self.conn(token).is_none_or(|conn| conn.pressure.half_bytes > 0);
        if !may {
            self.sweep_at = self.sweep_at.min(now + SHORT_NS_MAX);
        }
        may
    }

    /// Counts what is half here after `bytes` have come, with `frames` complete frames among them.
    pub(super) fn count_half(&mut self, token: u64, bytes: usize, frames: usize, now: Nanos) {
        let Some(conn) = self.conn_mut(token) else { return };
        let half = conn.reader.half_bytes();
        let pressure = &mut conn.pressure;
        if half == 0 && pressure.half_bytes == 0 {
            return;
        }
        pressure.half_since = match pressure.half_since {
            _ if half == 0 => None,
            Some((since, heard)) if frames == 0 => Some((since, if bytes > 0 { now } else { heard })),
            _ => Some((now, now)),
        };
        let before = std::mem::replace(&mut pressure.half_bytes, half);
        self.sums.half_bytes = self.sums.half_bytes + half - before;
        if half > 0 {
            let patience = if self.sums.half_bytes > HALF_BYTES_MAX { SHORT_NS_MAX } else { HALF_SILENT_NS_MAX };
            self.sweep_at = self.sweep_at.min(now + patience);
        }
    }

    /// A connection is gone, and with it what it had here.
    pub(super) fn uncount(&mut self, conn: &Conn) {
        self.sums.unsent_bytes -= conn.pressure.unsent_bytes;
        self.sums.half_bytes -= conn.pressure.half_bytes;
    }

    /// When a connection is to be dropped if nothing changes, and why.
    pub(super) fn patience(&self, conn: &Conn) -> (Nanos, &'static str) {
        if let Role::Unauthenticated { until, .. } = &conn.role {
            return (*until, "no handshake in time");
        }
        let stall = if self.sums.unsent_bytes > UNSENT_BYTES_MAX { SHORT_NS_MAX } else { STALL_NS_MAX };
        let stalled = conn.blocked_since.map_or(Nanos::NEVER, |since| since + stall);
        let half = match conn.pressure.half_since {
            // Who is not read from cannot go on.
            Some((since, heard)) if !conn.paused && matches!(conn.role, Role::Client { .. }) => {
                let silent = if self.sums.half_bytes > HALF_BYTES_MAX { SHORT_NS_MAX } else { HALF_SILENT_NS_MAX };
                (heard + silent).min(since + HALF_NS_MAX)
            }
            _ => Nanos::NEVER,
        };
        if half < stalled { (half, "its message does not go on") } else { (stalled, "it takes nothing that is sent to it") }
    }

    /// Reads again from connections that were suspended because too much had arrived.
    pub(super) fn resume_reading(&mut self) {
        for index in 0..self.conns.len() {
            if let (generation, Some(conn)) = &self.conns[index]
                && conn.paused
                && !conn.must_pause()
            {
                let token = token(index, *generation);
                self.pause(token, false);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_replies_make_the_window_small_and_small_ones_large_again() {
        let mut pressure = Pressure::new();
        let window = |pressure: &mut Pressure, turn: u64| (0..10_000).take_while(|_| pressure.admits(turn)).count();
        assert_eq!(window(&mut pressure, 1), REPLY_BYTES_PER_TURN / REPLY_BYTES_FIRST);
        pressure.reply_bytes = 8 << 20;
        assert_eq!(window(&mut pressure, 2), *REQUESTS_PER_TURN.start());
        pressure.reply_bytes = 100;
        assert_eq!(window(&mut pressure, 3), *REQUESTS_PER_TURN.end());
        assert_eq!(window(&mut pressure, 3), 0, "a turn is a turn");
    }
}
