//! Trace: what a server records of itself is switched while it runs, and the files of it are
//! fetched. Mounts get the same messages over a socket of their machine.

use bytes::Bytes;
use weft_base::Result;

use crate::codec::wire_for_choices;
use crate::wire_struct;

/// What to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum TraceAction {
    /// Only answer.
    #[default]
    Status = 0,
    /// Begin a recording; one that is on is ended.
    On = 1,
    /// End the recording; its files are completed.
    Off = 2,
    /// A flight recorder writes what it holds, and goes on.
    Dump = 3,
}

/// What rings of records are for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum TraceMode {
    /// Nothing is recorded.
    #[default]
    Off = 0,
    /// What was recorded first is kept until the end.
    Bench = 1,
    /// What was recorded last is kept, and written when something calls for it.
    Flight = 2,
    /// Everything is written while it is recorded.
    Stream = 3,
}

wire_struct! {
    /// A command about the recording of a process.
    #[derive(Default)]
    pub struct TraceRequest {
        /// What to do; the rest is for [`TraceAction::On`].
        pub action: TraceAction,
        /// Events by name, as `meta.*,disk.write,-meta.lookup`; `*`: all.
        pub mask: String,
        /// Not [`TraceMode::Off`].
        pub mode: TraceMode,
        /// Bytes of one thread's ring; 0: as many as is usual for the mode.
        pub ring_bytes: u64,
        /// One operation of a client of 2^n is recorded.
        pub sampling_bits: u8,
        /// A flight recorder is written when an operation takes longer, in nanoseconds; 0: however
        /// long it takes.
        pub slow_ns: u64,
        /// Where the files of a mount go, an absolute path; empty: to the state directory. Servers
        /// have a folder of their own and refuse one.
        pub folder: String,
        optional {
            /// The recording ends by itself after so many milliseconds, if nobody ends it before.
            /// Who does not know the field goes on until somebody does.
            1 pub ends_after_ms: u64,
        }
    }

    /// What a process says of its recording, or of the last one if none is on. The default: it has
    /// never recorded.
    #[derive(Default)]
    pub struct TraceReply {
        /// Its name in files.
        pub name: String,
        /// Its number on its machine.
        pub process: u32,
        /// How it records now.
        pub mode: TraceMode,
        /// Files of the last recording are not complete yet.
        pub is_writing: bool,
        /// The events that it records now.
        pub mask: String,
        /// Records so far.
        pub written: u64,
        /// Records that no ring had room for, or that were fetched too late.
        pub lost: u64,
        /// Records that a flight recorder has overwritten, as it should.
        pub forgotten: u64,
        /// Threads that have a ring.
        pub threads: u32,
        /// Threads for which there was none.
        pub threads_without_ring: u64,
        /// Operations that have not ended.
        pub in_flight: u32,
        /// Times that a flight recorder was written while it was on.
        pub dumps: u32,
        /// The files, on the machine of the process.
        pub files: Vec<String>,
        /// Why the command failed, or a file could not be written; empty: nothing did.
        pub problem: String,
    }

    /// Reads a piece of a file of the current recording of a process, or of its last one. A file is
    /// named by its place in [`TraceReply::files`], never by a path: nothing else can be read this
    /// way.
    pub struct TraceReadRequest {
        /// Which file, from 0.
        pub file: u32,
        /// The first byte of the piece.
        pub offset: u64,
        /// Nothing is read: the file is removed. One that is gone already is no error.
        pub remove: bool,
    }

    /// A piece of a file.
    pub struct TraceReadReply {
        /// The file, as [`TraceReply::files`] has it: another one than expected if a new recording
        /// was begun meanwhile.
        pub path: String,
        /// Bytes of the file.
        pub file_bytes: u64,
        /// At most [`TRACE_PIECE_BYTES`]; fewer at the end of the file only.
        pub data: Bytes,
    }
}

/// Most bytes of a file in one reply: some 50 us of a server's turn.
pub const TRACE_PIECE_BYTES: usize = 256 << 10;

/// What executes these operations in the process of a server.
#[derive(Clone, Copy, Debug)]
pub struct TraceService {
    /// [`TraceRequest`].
    pub command: fn(&TraceRequest) -> TraceReply,
    /// [`TraceReadRequest`]. Fails with [`weft_base::Status::NotFound`] if there is no such file,
    /// [`weft_base::Status::Io`] if it cannot be read.
    pub read: fn(&TraceReadRequest) -> Result<TraceReadReply>,
}

impl TraceRequest {
    /// A command without parameters.
    pub fn new(action: TraceAction) -> TraceRequest {
        TraceRequest { action, ..TraceRequest::default() }
    }
}

wire_for_choices! {
    TraceAction { Status, On, Off, Dump }
    TraceMode { Off, Bench, Flight, Stream }
}

#[cfg(test)]
mod tests {
    use weft_base::Status;

    use super::*;
    use crate::Wire;

    #[test]
    fn choices_survive_and_others_are_refused() {
        let request = TraceRequest {
            mask: "meta.*".into(),
            mode: TraceMode::Flight,
            slow_ns: 50_000_000,
            folder: "/tmp/t".into(),
            ends_after_ms: Some(60_000),
            ..TraceRequest::new(TraceAction::On)
        };
        let mut bytes = request.to_bytes().to_vec();
        assert_eq!(TraceRequest::from_bytes(bytes.clone().into()), Ok(request));
        bytes[0] = 4;
        assert_eq!(TraceRequest::from_bytes(bytes.into()), Err(Status::BadMessage));
        let reply = TraceReply { files: vec!["a".into(), "b".into()], mode: TraceMode::Stream, ..TraceReply::default() };
        assert_eq!(TraceReply::from_bytes(reply.to_bytes()), Ok(reply));
        let piece = TraceReadReply { path: "/t/a".into(), file_bytes: 1 << 40, data: vec![7; TRACE_PIECE_BYTES].into() };
        assert!(piece.to_bytes().len() <= crate::BODY_BYTES_MAX);
        assert_eq!(TraceReadReply::from_bytes(piece.to_bytes()), Ok(piece));
    }
}
