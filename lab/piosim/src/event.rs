//! Everything that can happen in a simulated cluster, and the meaning of message tags.

use weft_model::{CpuEvent, NetworkEvent};

/// An event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Of the network.
    Network(NetworkEvent),
    /// A processor's timer.
    Cpu(CpuEvent),
    /// The disk of a server has finished its job.
    Disk(u32),
    /// A copy from or into the memory of a server has ended.
    Copied(u32),
    /// A server wanted to look at its cache layer again.
    Wake(u32),
}

// The event list copies these all the time.
const _: () = assert!(size_of::<Event>() == 8);

impl From<NetworkEvent> for Event {
    fn from(event: NetworkEvent) -> Event {
        Event::Network(event)
    }
}

impl From<CpuEvent> for Event {
    fn from(event: CpuEvent) -> Event {
        Event::Cpu(event)
    }
}

/// What a message is about; travels as the 64-bit tag of the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tag {
    /// Between ranks: number of the envelope.
    Mpi(u32),
    /// A read, write or flush request: number of the request.
    Request(u32),
    /// Data of a read, to the client: number of the request.
    ReadData(u32),
    /// Data of a write, to the server: number of the request.
    WriteData(u32),
    /// A write is done: number of the task that waits for it.
    WriteDone(u32),
    /// A server asks for the data of a write: number of the request.
    Ask(u32),
}

impl Tag {
    /// As a number.
    pub fn pack(self) -> u64 {
        let (kind, index) = match self {
            Tag::Mpi(index) => (0, index),
            Tag::Request(index) => (1, index),
            Tag::ReadData(index) => (2, index),
            Tag::WriteData(index) => (3, index),
            Tag::WriteDone(index) => (4, index),
            Tag::Ask(index) => (5, index),
        };
        (kind << 32) | u64::from(index)
    }

    /// From a number made by [`Tag::pack`].
    pub fn unpack(tag: u64) -> Tag {
        let index = tag as u32;
        match tag >> 32 {
            0 => Tag::Mpi(index),
            1 => Tag::Request(index),
            2 => Tag::ReadData(index),
            3 => Tag::WriteData(index),
            4 => Tag::WriteDone(index),
            _ => Tag::Ask(index),
        }
    }
}
