//! Parallel programs as data: for each rank a list of MPI commands, and beside them the files and
//! communicators they name.
//!
//! Programs come from a builder (below), from plans, or from traces of real runs. A program says
//! *what* a rank does; how a command is carried out (which messages a broadcast sends, how
//! collective I/O is split) is the business of the cluster they run on.

mod check;
mod datatype;
mod describe;

pub use datatype::{Datatype, FileView, StructField};

/// Number of a file in [`Application::files`].
pub type FileId = u32;
/// Number of a communicator in [`Application::communicators`]; 0 is the world.
pub type CommId = u32;
/// Number of a rank inside a communicator.
pub type Rank = u32;

/// All ranks of the application, in order.
pub const WORLD: CommId = 0;

/// A contiguous range of bytes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Extent {
    /// First byte.
    pub offset: u64,
    /// Length in bytes.
    pub bytes: u64,
}

impl Extent {
    /// One past the last byte.
    pub fn end(self) -> u64 {
        self.offset + self.bytes
    }
}

/// Appends `extent` to a list; an extent that continues the last one is merged into it (thesis:
/// ListIO).
pub fn push_merged(list: &mut Vec<Extent>, extent: Extent) {
    match list.last_mut() {
        Some(last) if last.end() == extent.offset => last.bytes += extent.bytes,
        _ => list.push(extent),
    }
}

/// Which bytes of a file a read or write touches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Access {
    /// One range of the file; the file view does not matter.
    Contiguous(Extent),
    /// A list of ranges of the file in the order of the data (list I/O); the file view does not
    /// matter.
    List(Vec<Extent>),
    /// `bytes` bytes from `offset` (in bytes of data) of the rank's file view; without a view, of
    /// the file itself.
    View {
        /// First byte, counted in the data that the view shows.
        offset: u64,
        /// Length in bytes of data.
        bytes: u64,
    },
}

impl Access {
    /// One range.
    pub fn at(offset: u64, bytes: u64) -> Access {
        Access::Contiguous(Extent { offset, bytes })
    }

    /// A list of ranges; neighbours that continue each other are merged.
    pub fn list(extents: impl IntoIterator<Item = (u64, u64)>) -> Access {
        let mut list = Vec::new();
        for (offset, bytes) in extents {
            push_merged(&mut list, Extent { offset, bytes });
        }
        Access::List(list)
    }

    /// Bytes of data that are read or written, before a read is cut at the end of the file.
    pub fn bytes(&self) -> u64 {
        match self {
            Access::Contiguous(extent) => extent.bytes,
            Access::List(list) => list.iter().map(|extent| extent.bytes).sum(),
            Access::View { bytes, .. } => *bytes,
        }
    }
}

/// One step of a rank. Sizes are bytes of payload; ranks are ranks of the communicator named beside
/// them.
///
/// `request` makes a command non-blocking: the rank goes on at once, and a later [`Command::Wait`]
/// with the same number waits for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Work on the processor, in cycles (instructions).
    Compute {
        /// Instructions; 0 counts as 1.
        cycles: u64,
    },
    /// Sends a message.
    Send {
        /// Communicator.
        comm: CommId,
        /// Receiver.
        to: Rank,
        /// Stream of messages.
        tag: u32,
        /// Payload.
        bytes: u64,
        /// `Some`: non-blocking.
        request: Option<u32>,
    },
    /// Receives a message; its size is the sender's.
    Recv {
        /// Communicator.
        comm: CommId,
        /// Sender; `None` is any.
        from: Option<Rank>,
        /// Stream of messages.
        tag: u32,
        /// `Some`: non-blocking.
        request: Option<u32>,
    },
    /// Sends one message and receives another, at the same time.
    Sendrecv {
        /// Communicator.
        comm: CommId,
        /// Receiver of the message sent.
        to: Rank,
        /// Its stream.
        send_tag: u32,
        /// Its payload.
        bytes: u64,
        /// Sender of the message received; `None` is any.
        from: Option<Rank>,
        /// Its stream.
        recv_tag: u32,
    },
    /// Waits for non-blocking commands of this rank.
    Wait {
        /// Their numbers.
        requests: Vec<u32>,
    },
    /// Waits for all ranks of the communicator.
    Barrier {
        /// Communicator.
        comm: CommId,
    },
    /// One rank's data to all.
    Bcast {
        /// Communicator.
        comm: CommId,
        /// The rank that has the data.
        root: Rank,
        /// Payload.
        bytes: u64,
    },
    /// Combines everyone's data at one rank.
    Reduce {
        /// Communicator.
        comm: CommId,
        /// The rank that gets the result.
        root: Rank,
        /// Payload of each rank.
        bytes: u64,
    },
    /// Combines everyone's data and gives all the result.
    Allreduce {
        /// Communicator.
        comm: CommId,
        /// Payload of each rank.
        bytes: u64,
    },
    /// Everyone's data to one rank.
    Gather {
        /// Communicator.
        comm: CommId,
        /// The rank that gets the data.
        root: Rank,
        /// Payload of each rank.
        bytes: u64,
    },
    /// Everyone's data to all.
    Allgather {
        /// Communicator.
        comm: CommId,
        /// Payload of each rank.
        bytes: u64,
    },
    /// Opens a file together.
    FileOpen {
        /// Communicator.
        comm: CommId,
        /// File.
        file: FileId,
        /// Cut it to no bytes.
        truncate: bool,
    },
    /// Closes a file together and tells the servers to flush it.
    FileClose {
        /// Communicator.
        comm: CommId,
        /// File.
        file: FileId,
    },
    /// Sets the part of the file that later [`Access::View`] offsets count in.
    FileSetView {
        /// File.
        file: FileId,
        /// The view.
        view: FileView,
    },
    /// Reads on its own.
    FileRead {
        /// File.
        file: FileId,
        /// Which bytes.
        access: Access,
    },
    /// Writes on its own.
    FileWrite {
        /// File.
        file: FileId,
        /// Which bytes.
        access: Access,
    },
    /// Reads together with the other ranks of the communicator.
    FileReadAll {
        /// Communicator.
        comm: CommId,
        /// File.
        file: FileId,
        /// Which bytes this rank reads.
        access: Access,
    },
    /// Writes together with the other ranks of the communicator.
    FileWriteAll {
        /// Communicator.
        comm: CommId,
        /// File.
        file: FileId,
        /// Which bytes this rank writes.
        access: Access,
    },
}

/// The commands of one rank, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Program {
    /// The commands.
    pub commands: Vec<Command>,
}

/// A file of an application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileSpec {
    /// Name, for reports.
    pub name: String,
    /// Size before the application starts, bytes.
    pub initial_bytes: u64,
}

/// A parallel application: ranks with their programs, and what they share.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Application {
    /// Name, for reports.
    pub name: String,
    /// Files, numbered by [`FileId`].
    pub files: Vec<FileSpec>,
    /// Communicators: the ranks of the world that belong to each, in the order of their ranks
    /// there. Number 0 is the world.
    pub communicators: Vec<Vec<Rank>>,
    /// One program for each rank.
    pub programs: Vec<Program>,
}

impl Application {
    /// An application of `ranks` ranks with empty programs, no files, and the world as its only
    /// communicator.
    pub fn new(name: &str, ranks: u32) -> Application {
        Application {
            name: name.to_string(),
            files: Vec::new(),
            communicators: vec![(0..ranks).collect()],
            programs: vec![Program::default(); ranks as usize],
        }
    }

    /// Adds a file and returns its number.
    pub fn file(&mut self, name: &str, initial_bytes: u64) -> FileId {
        self.files.push(FileSpec { name: name.to_string(), initial_bytes });
        (self.files.len() - 1) as FileId
    }

    /// Adds a communicator of these ranks of the world and returns its number.
    pub fn communicator(&mut self, ranks: Vec<Rank>) -> CommId {
        self.communicators.push(ranks);
        (self.communicators.len() - 1) as CommId
    }

    /// Appends a command to the program of `rank`.
    ///
    /// # Panics
    /// If there is no such rank.
    pub fn push(&mut self, rank: Rank, command: Command) {
        self.programs[rank as usize].commands.push(command);
    }

    /// Appends the same command to the program of every rank.
    pub fn push_all(&mut self, command: Command) {
        for program in &mut self.programs {
            program.commands.push(command.clone());
        }
    }

    /// Number of ranks.
    pub fn ranks(&self) -> u32 {
        self.programs.len() as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_extent_that_continues_the_last_one_is_merged() {
        let Access::List(list) = Access::list([(0, 4), (4, 4), (16, 4), (12, 4)]) else { panic!("a list was asked for") };
        let expected = [Extent { offset: 0, bytes: 8 }, Extent { offset: 16, bytes: 4 }, Extent { offset: 12, bytes: 4 }];
        assert_eq!(list, expected);
    }

    #[test]
    fn a_new_application_has_the_world_as_communicator_zero() {
        let mut app = Application::new("test", 3);
        assert_eq!(app.communicators[WORLD as usize], [0, 1, 2]);
        assert_eq!(app.communicator(vec![2, 0]), 1);
        assert_eq!(app.file("a", 10), 0);
        app.push_all(Command::Barrier { comm: WORLD });
        app.push(1, Command::Compute { cycles: 5 });
        assert_eq!(app.programs[1].commands.len(), 2);
        assert_eq!(app.programs[2].commands.len(), 1);
    }
}
