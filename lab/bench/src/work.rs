//! What is measured, in a form that both sides of a benchmark understand: the command that leads it
//! and the processes that do it.
//!
//! A *client* is one thread of one process; clients are numbered through all processes. Names
//! follow from numbers, so that any process can tell the names of any client.

use serde::{Deserialize, Serialize};

/// Which directories the files are in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Dirs {
    /// All clients in one directory
    Shared,
    /// Each client in a directory of its own
    Own,
}

/// Which files the clients write and read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Sharing {
    /// Each client its own.
    Own,
    /// All clients the same; each has a part of it without gaps.
    Parts,
    /// All clients the same; block after block belongs to the next client.
    Interleaved,
}

/// One timed (or preparing) piece of work that all clients do at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Step {
    /// Makes all files, writes them if they have a size, closes them. Counts files.
    Create,
    /// Asks for the attributes of every file. Counts files.
    Stat,
    /// Lists the directories. Counts entries.
    Readdir,
    /// Makes the files and writes them block by block. Counts blocks.
    Write,
    /// Reads the files block by block and checks that each block is the one that was written.
    /// Counts blocks.
    Read,
    /// Removes all files. Counts files.
    Remove,
}

impl Step {
    /// Its name in results.
    pub fn name(self) -> &'static str {
        match self {
            Step::Create => "create",
            Step::Stat => "stat",
            Step::Readdir => "readdir",
            Step::Write => "write",
            Step::Read => "read",
            Step::Remove => "remove",
        }
    }

    /// True if it moves file data in blocks, so that MiB/s say more than operations.
    pub fn is_stream(self) -> bool {
        matches!(self, Step::Write | Step::Read)
    }
}

/// How the work is done by each client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Work {
    /// Processes.
    pub procs: u32,
    /// Threads of each process.
    pub clients: u32,
    /// Requests that one client keeps in flight.
    pub depth: u32,
    /// Files of each client; with `subdirs`, files in each of these.
    pub files: u64,
    /// Directories of each client below its own, made and removed with the files; 0: none.
    pub subdirs: u32,
    /// Bytes of a file; in shared files of the part of one client.
    pub size: u64,
    /// So many files, the first ones, have one byte more.
    pub longer: u64,
    /// Bytes of one read or write.
    pub block: u64,
    /// Where the files are.
    pub dirs: Dirs,
    /// Whose they are.
    pub sharing: Sharing,
    /// Sync each file before it is closed.
    pub fsync: bool,
    /// Past the page cache of this machine (`O_DIRECT`).
    pub direct: bool,
    /// Drop the page cache of each file before it is read.
    pub cold: bool,
    /// Name files by their full path, as programs mostly do; otherwise relative to an open
    /// directory.
    pub full_paths: bool,
    /// Ask for the attributes of each entry of a listing.
    pub attrs: bool,
    /// Open and close each file that is made (a library can make files without opening them).
    pub open: bool,
    /// Stripe size of new files in bytes; 0: what the directory says.
    pub stripe_bytes: u32,
    /// Datafiles of new files; 0: what the directory says.
    pub stripe_width: u16,
    /// Record what was done in each interval.
    pub progress: bool,
}

/// A part of a file that one request moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Where it begins in the file.
    pub offset: u64,
    /// Its length in bytes.
    pub bytes: u64,
}

impl Work {
    /// Bytes that all its files have together.
    pub fn bytes(&self) -> u128 {
        let files = u128::from(self.files) * u128::from(self.subdirs.max(1));
        u128::from(self.procs) * u128::from(self.clients) * (files * u128::from(self.size) + u128::from(self.longer))
    }

    /// One client that makes no file, all of them empty, in a directory for everybody: what a work
    /// says only as far as it differs.
    pub const EMPTY_FILES: Work = Work {
        procs: 1,
        clients: 1,
        depth: 1,
        files: 0,
        subdirs: 0,
        size: 0,
        longer: 0,
        block: 1 << 20,
        dirs: Dirs::Shared,
        sharing: Sharing::Own,
        fsync: false,
        direct: false,
        cold: false,
        full_paths: false,
        attrs: false,
        open: false,
        stripe_bytes: 0,
        stripe_width: 0,
        progress: false,
    };

    /// All clients of all processes.
    pub fn clients_in_all(&self) -> u64 {
        u64::from(self.procs) * u64::from(self.clients)
    }

    /// Names of the directories that must be there before the first step, below the place of the
    /// benchmark.
    pub fn dir_names(&self) -> Vec<String> {
        match self.dirs {
            Dirs::Shared => vec![self.dir_name(0)],
            Dirs::Own => (0..self.clients_in_all()).map(|client| self.dir_name(client)).collect(),
        }
    }

    /// The directory of a client.
    pub fn dir_name(&self, client: u64) -> String {
        match self.dirs {
            Dirs::Shared => "shared".to_string(),
            Dirs::Own => format!("client{client}"),
        }
    }

    /// The directories in which a client's files are, relative to its own; the empty name is its
    /// own.
    pub fn subdir_names(&self, client: u64) -> Vec<String> {
        match self.subdirs {
            0 => vec![String::new()],
            count => (0..count).map(|number| format!("d{client}-{number:03}")).collect(),
        }
    }

    /// How many files a client has in each of its directories.
    pub fn files_of(&self, client: u64) -> u64 {
        match self.sharing {
            Sharing::Own => self.files,
            // Everybody opens the one file; the first client makes it and removes it.
            Sharing::Parts | Sharing::Interleaved => u64::from(client == 0),
        }
    }

    /// Name of a file in its directory.
    pub fn file_name(&self, client: u64, number: u64) -> String {
        match self.sharing {
            Sharing::Own => format!("f{client}.{number:07}"),
            Sharing::Parts | Sharing::Interleaved => "shared-file".to_string(),
        }
    }

    /// How many files a client reads and writes in each of its directories.
    pub fn streams_of(&self) -> u64 {
        match self.sharing {
            Sharing::Own => self.files,
            Sharing::Parts | Sharing::Interleaved => 1,
        }
    }

    /// Bytes that a client has in its file of this number.
    pub fn bytes_of(&self, number: u64) -> u64 {
        self.size + u64::from(number < self.longer)
    }

    /// Number of requests for the bytes of a client in one file.
    pub fn blocks_of(&self, number: u64) -> u64 {
        self.bytes_of(number).div_ceil(self.block)
    }

    /// One of these requests.
    pub fn block_of(&self, client: u64, number: u64, index: u64) -> Block {
        let size = self.bytes_of(number);
        let start = index * self.block;
        let bytes = self.block.min(size - start);
        let offset = match self.sharing {
            Sharing::Own => start,
            Sharing::Parts => client * size + start,
            Sharing::Interleaved => (index * self.clients_in_all() + client) * self.block,
        };
        Block { offset, bytes }
    }
}

/// Bytes at the start of a block that say which one it is.
pub const MARK_BYTES: usize = 16;

/// What a block begins with (cut off if it is shorter).
pub fn mark(client: u64, number: u64, block: Block) -> [u8; MARK_BYTES] {
    let mut mark = [0; MARK_BYTES];
    mark[..8].copy_from_slice(&block.offset.to_le_bytes());
    mark[8..12].copy_from_slice(&(client as u32).to_le_bytes());
    mark[12..].copy_from_slice(&(number as u32).to_le_bytes());
    mark
}

/// Data without pattern, so that nobody can save it shortened.
pub fn noise(bytes: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut data = vec![0; bytes];
    for chunk in data.chunks_mut(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        chunk.copy_from_slice(&state.to_le_bytes()[..chunk.len()]);
    }
    data
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// One client with five empty files.
    pub fn small() -> Work {
        Work { files: 5, ..Work::EMPTY_FILES }
    }

    /// Offsets and lengths of all blocks of all clients in file 0.
    fn blocks(work: &Work) -> Vec<Block> {
        let of_client = |client| (0..work.blocks_of(0)).map(move |index| (client, index));
        let mut blocks: Vec<Block> =
            (0..work.clients_in_all()).flat_map(of_client).map(|(client, index)| work.block_of(client, 0, index)).collect();
        blocks.sort_by_key(|block| block.offset);
        blocks
    }

    #[test]
    fn blocks_of_a_shared_file_cover_it_without_overlap() {
        for sharing in [Sharing::Parts, Sharing::Interleaved] {
            let work = Work { procs: 2, clients: 2, size: 47008 * 3, block: 47008, sharing, ..small() };
            let blocks = blocks(&work);
            assert_eq!(blocks.len(), 12);
            let mut end = 0;
            for block in blocks {
                assert_eq!(block.offset, end, "{sharing:?}");
                end = block.offset + block.bytes;
            }
            assert_eq!(end, 4 * 3 * 47008);
        }
    }

    #[test]
    fn own_files_end_with_a_short_block() {
        let work = Work { size: 10, block: 4, longer: 2, ..small() };
        assert_eq!(work.blocks_of(0), 3);
        assert_eq!(work.block_of(7, 0, 2), Block { offset: 8, bytes: 3 });
        assert_eq!(work.block_of(7, 2, 2), Block { offset: 8, bytes: 2 });
    }

    #[test]
    fn only_the_first_client_makes_a_shared_file() {
        let work = Work { clients: 3, sharing: Sharing::Interleaved, ..small() };
        assert_eq!((0..3).map(|client| work.files_of(client)).collect::<Vec<_>>(), [1, 0, 0]);
        assert_eq!(work.streams_of(), 1);
        assert_eq!(work.file_name(0, 0), work.file_name(2, 0));
    }

    #[test]
    fn own_directories_have_different_names() {
        let work = Work { procs: 2, clients: 2, dirs: Dirs::Own, ..small() };
        assert_eq!(work.dir_names(), ["client0", "client1", "client2", "client3"]);
        assert_eq!(Work { dirs: Dirs::Shared, ..work }.dir_names(), ["shared"]);
    }

    #[test]
    fn noise_differs_by_seed_and_has_any_length() {
        assert_eq!(noise(13, 1).len(), 13);
        assert_ne!(noise(64, 1), noise(64, 2));
    }
}
