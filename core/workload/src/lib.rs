//! `weft-workload`: what clients do, as data: how many, on which files, in which steps, how often.
//! One [`Workload`] serves every driver: system calls below a path and commands (`lab/bench`), the
//! client library (`nodes/steps`, on real servers and in virtual time), and modelled programs
//! (`lab/piosim`). It never does any of it.
//!
//! A *client* is one thread of one process; clients are numbered through all processes. Names and
//! places of blocks follow from numbers, so that any process can tell those of any client.
//!
//! ```
//! use weft_workload::{Sharing, Workload};
//!
//! let work = Workload { procs: 2, size: 3 << 20, sharing: Sharing::Interleaved, ..Workload::stream() };
//! let offsets: Vec<u64> = (0..work.blocks_of(0)).map(|index| work.block_of(1, 0, index).offset >> 20).collect();
//! assert_eq!(offsets, [1, 3, 5], "every second block is the second client's");
//! ```

mod commands;
mod drawn;
mod items;
mod steps;

pub use commands::{Commands, Rate, TimedCommand};
pub use drawn::drawn_order;
pub use items::{Every, Items, ItemsKind, Naming};
pub use steps::{Steps, WorkStep};

use serde::{Deserialize, Serialize};

/// In which mdtest 4 has the directories of its processes.
const MDTEST_DIR: &str = "test-dir.0-0";

/// Which directories the files are in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Dirs {
    /// All clients in one directory.
    Shared,
    /// Each client in a directory of its own.
    Own,
    /// All clients in one directory whose names are with all metadata servers from the beginning.
    Split,
}

impl Dirs {
    /// All, with their names in plans and options.
    pub const ALL: [(&'static str, Dirs); 3] = [("shared", Dirs::Shared), ("own", Dirs::Own), ("split", Dirs::Split)];
}

/// How a client library makes, lists and removes files, and writes and reads them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// Weft's own: one request.
    Weft,
    /// By the layer below every gateway (`weft-posix`): what leases tell is believed, what is done
    /// in directories that nobody else knows is told later, and so is what is written to new
    /// files.
    Posix,
    /// A yardstick: the steps of PVFS2, a request each (Kuhn 2007, section 3.3).
    Classic,
}

impl Protocol {
    /// All, with their names in plans and options.
    pub const ALL: [(&'static str, Protocol); 3] = [("weft", Protocol::Weft), ("posix", Protocol::Posix), ("classic", Protocol::Classic)];
}

/// Which files the clients write and read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Sharing {
    /// Each client its own.
    Own,
    /// All clients the same; each has a part of it without gaps.
    Parts,
    /// All clients the same; block after block belongs to the next client (Kuhn 2009, section 6.2).
    Interleaved,
}

/// In which order blocks are written and read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BlockOrder {
    /// Each client its own from the first to the last.
    Ascending,
    /// In an order drawn for the blocks of all clients together (modelled programs only).
    Drawn,
    /// All clients together in one collective operation (modelled programs only).
    Together,
}

/// What clients do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Workload {
    /// What is done, in which order.
    pub steps: Steps,
    /// How often the steps that are measured are repeated.
    pub repetitions: u32,
    /// Processes.
    pub procs: u32,
    /// Threads of each process.
    pub clients: u32,
    /// Requests that one client keeps in flight.
    pub depth: u32,
    /// Files (or directories) of each client; with directories below its own, in each of these.
    pub files: u64,
    /// What is made there besides, under which names, in which directories.
    pub items: Items,
    /// Bytes of a file; in shared files of the part of one client.
    pub size: u64,
    /// So many files, the first ones, have one byte more.
    pub longer: u64,
    /// Bytes of an interleaved file behind its last full round of blocks: nobody's, but for a
    /// collective operation, which gives the whole blocks of them to the first clients.
    pub tail: u64,
    /// Bytes of one block.
    pub block: u64,
    /// Blocks of one read or write, files of one call of the step that reads many; 0: all of a
    /// client.
    pub per_call: u64,
    /// In which order.
    pub order: BlockOrder,
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
    /// How files are made, listed and removed (client library only).
    pub protocol: Protocol,
    /// In directories with the hint `no_metafile` (client library only).
    pub no_metafile: bool,
    /// Stripe size of new files in bytes; 0: what the directory says.
    pub stripe_bytes: u32,
    /// Datafiles of new files; 0: what the directory says.
    pub stripe_width: u16,
    /// Record what was done in each interval of this length.
    pub progress: Option<Every>,
}

/// A part of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Where it begins in the file.
    pub offset: u64,
    /// Its length in bytes.
    pub bytes: u64,
}

impl Workload {
    /// One client that makes so many empty files in a directory for everybody: what a workload says
    /// only as far as it differs.
    pub fn empty_files(files: u64) -> Workload {
        Workload {
            steps: Steps::default(),
            repetitions: 1,
            procs: 1,
            clients: 1,
            depth: 1,
            files,
            items: Items::default(),
            size: 0,
            longer: 0,
            tail: 0,
            block: 1 << 20,
            per_call: 1,
            order: BlockOrder::Ascending,
            dirs: Dirs::Shared,
            sharing: Sharing::Own,
            fsync: false,
            direct: false,
            cold: false,
            full_paths: false,
            attrs: false,
            open: false,
            protocol: Protocol::Weft,
            no_metafile: false,
            stripe_bytes: 0,
            stripe_width: 0,
            progress: None,
        }
    }

    /// One client with one file of one block, to be written and read.
    pub fn stream() -> Workload {
        Workload { size: 1 << 20, ..Workload::empty_files(1) }
    }

    /// A file of so many bytes in blocks that processes share in turns, or that much in files of
    /// their own.
    pub fn sharing(sharing: Sharing, procs: u32, file_bytes: u64, block: u64) -> Workload {
        let size = file_bytes / block / u64::from(procs) * block;
        let tail = if sharing == Sharing::Interleaved { file_bytes - size * u64::from(procs) } else { 0 };
        Workload { procs, size, tail, block, sharing, ..Workload::stream() }
    }

    /// Bytes that all its files have together.
    pub fn bytes(&self) -> u128 {
        let files = u128::from(self.files) * u128::from(self.items.folders());
        let of_client = files * u128::from(self.size) + u128::from(self.longer);
        u128::from(self.clients_in_all()) * of_client + u128::from(self.tail)
    }

    /// All clients of all processes.
    pub fn clients_in_all(&self) -> u64 {
        u64::from(self.procs) * u64::from(self.clients)
    }

    /// Names of the directories that must be there before the first step, below the place of the
    /// work: those of a tree behind the one that they are in.
    pub fn dir_names(&self) -> Vec<String> {
        let of_clients = match self.dirs {
            Dirs::Shared | Dirs::Split => vec![self.dir_name(0)],
            Dirs::Own => (0..self.clients_in_all()).map(|client| self.dir_name(client)).collect(),
        };
        let below = |dir: String| {
            let tree = self.items.tree().into_iter().filter(|name| !name.is_empty());
            let names: Vec<String> = tree.map(|name| format!("{dir}/{name}")).collect();
            std::iter::once(dir).chain(names)
        };
        let is_mdtest = self.items.naming == Naming::Mdtest && self.dirs != Dirs::Split;
        let outer = is_mdtest.then(|| MDTEST_DIR.to_string());
        outer.into_iter().chain(of_clients.into_iter().flat_map(below)).collect()
    }

    /// The directory of a client.
    pub fn dir_name(&self, client: u64) -> String {
        match (self.dirs, self.items.naming) {
            (Dirs::Split, _) => "split".to_string(),
            (Dirs::Shared, Naming::Mdtest) => format!("{MDTEST_DIR}/mdtest_tree.0"),
            (Dirs::Own, Naming::Mdtest) => format!("{MDTEST_DIR}/mdtest_tree.{client}.0"),
            (Dirs::Shared, _) => "shared".to_string(),
            (Dirs::Own, _) => format!("client{client}"),
        }
    }

    /// The directories in which a client's files are, relative to its own; the empty name is its
    /// own.
    pub fn subdir_names(&self, client: u64) -> Vec<String> {
        match self.items.subdirs {
            0 => self.items.tree(),
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
            Sharing::Own => self.items.name(client, number),
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

    /// Number of blocks that a client has in one file.
    pub fn blocks_of(&self, number: u64) -> u64 {
        self.bytes_of(number).div_ceil(self.block)
    }

    /// Where a block of a client begins, also one behind its last one.
    pub fn offset_of(&self, client: u64, number: u64, index: u64) -> u64 {
        match self.sharing {
            Sharing::Own => index * self.block,
            Sharing::Parts => client * self.bytes_of(number) + index * self.block,
            Sharing::Interleaved => (index * self.clients_in_all() + client) * self.block,
        }
    }

    /// One of these blocks.
    pub fn block_of(&self, client: u64, number: u64, index: u64) -> Block {
        let bytes = self.block.min(self.bytes_of(number) - index * self.block);
        Block { offset: self.offset_of(client, number, index), bytes }
    }

    /// Blocks of one read or write of a file, at most.
    pub fn blocks_per_call(&self, number: u64) -> u64 {
        if self.per_call == 0 { self.blocks_of(number).max(1) } else { self.per_call }
    }

    /// So many files, in the order that is drawn for this client and in groups for one call each.
    pub fn drawn_calls(&self, client: u64, files: usize) -> Vec<Vec<usize>> {
        let per_call = if self.per_call == 0 { files.max(1) } else { self.per_call as usize };
        drawn_order(client, files).chunks(per_call).map(<[usize]>::to_vec).collect()
    }

    /// The reads or writes of a client in one file, each with its blocks.
    pub fn calls_of(&self, client: u64, number: u64) -> impl Iterator<Item = Vec<Block>> + '_ {
        let (blocks, per_call) = (self.blocks_of(number), self.blocks_per_call(number));
        (0..blocks.div_ceil(per_call)).map(move |call| {
            let last = blocks.min((call + 1) * per_call);
            (call * per_call..last).map(|index| self.block_of(client, number, index)).collect()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Offsets and lengths of all blocks of all clients in file 0.
    fn blocks(work: &Workload) -> Vec<Block> {
        let mut blocks: Vec<Block> = (0..work.clients_in_all()).flat_map(|client| work.calls_of(client, 0).flatten()).collect();
        blocks.sort_by_key(|block| block.offset);
        blocks
    }

    #[test]
    fn blocks_of_a_shared_file_cover_it_without_overlap() {
        for sharing in [Sharing::Parts, Sharing::Interleaved] {
            for per_call in [1, 2, 0, 100] {
                let work = Workload { procs: 2, clients: 2, size: 47008 * 3, block: 47008, per_call, sharing, ..Workload::stream() };
                let blocks = blocks(&work);
                assert_eq!(blocks.len(), 12);
                let mut end = 0;
                for block in blocks {
                    assert_eq!(block.offset, end, "{sharing:?} {per_call}");
                    end = block.offset + block.bytes;
                }
                assert_eq!(u128::from(end), work.bytes());
            }
        }
    }

    #[test]
    fn own_files_end_with_a_short_block_and_a_short_call() {
        let work = Workload { size: 10, block: 4, longer: 2, per_call: 2, ..Workload::stream() };
        assert_eq!(work.blocks_of(0), 3);
        assert_eq!(work.block_of(7, 0, 2), Block { offset: 8, bytes: 3 });
        assert_eq!(work.block_of(7, 2, 2), Block { offset: 8, bytes: 2 });
        let calls: Vec<usize> = work.calls_of(0, 0).map(|call| call.len()).collect();
        assert_eq!(calls, [2, 1]);
    }

    #[test]
    fn only_the_first_client_makes_a_shared_file() {
        let work = Workload { clients: 3, sharing: Sharing::Interleaved, ..Workload::stream() };
        assert_eq!((0..3).map(|client| work.files_of(client)).collect::<Vec<_>>(), [1, 0, 0]);
        assert_eq!(work.streams_of(), 1);
        assert_eq!(work.file_name(0, 0), work.file_name(2, 0));
    }

    #[test]
    fn a_tree_is_there_before_the_first_step_and_has_items_in_each_directory() {
        let items = Items { depth: 2, branching: 2, ..Items::default() };
        let work = Workload { size: 5, items, ..Workload::empty_files(3) };
        let below = ["", "t0", "t1", "t0/t0", "t0/t1", "t1/t0", "t1/t1"];
        assert_eq!(work.subdir_names(7), below);
        assert_eq!(work.dir_names(), ["shared", "shared/t0", "shared/t1", "shared/t0/t0", "shared/t0/t1", "shared/t1/t0", "shared/t1/t1"]);
        assert_eq!((work.items.folders(), work.bytes()), (7, 7 * 3 * 5));
        let flat = Workload { items: Items { subdirs: 2, ..Items::default() }, ..work };
        assert_eq!(
            (flat.subdir_names(1), flat.dir_names()),
            (vec!["d1-000".to_string(), "d1-001".to_string()], vec!["shared".to_string()])
        );
    }

    #[test]
    fn own_directories_have_different_names() {
        let work = Workload { procs: 2, clients: 2, dirs: Dirs::Own, ..Workload::empty_files(5) };
        assert_eq!(work.dir_names(), ["client0", "client1", "client2", "client3"]);
        assert_eq!(Workload { dirs: Dirs::Shared, ..work }.dir_names(), ["shared"]);
    }
}
