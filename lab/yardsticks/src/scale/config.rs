//! What a run needs to know. All times are nanoseconds.

/// How long the names are, which decides how many entries a block takes (section 4.1.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Names {
    /// The number of the process and of the file, as mdtest makes them: they grow.
    Growing,
    /// 30 characters, an entry of 64 bytes.
    Fixed,
}

/// Who makes how many files.
#[derive(Clone, Debug, PartialEq)]
pub struct Creates {
    /// Nodes with processes, 1 to [`Creates::CLIENTS_MAX`].
    pub clients: u32,
    /// Processes on each.
    pub processes: u32,
    /// Files of each client, shared among its processes.
    pub files: u64,
    /// Each client in a directory of its own instead of all in one.
    pub own_directories: bool,
    /// The names.
    pub names: Names,
    /// Span of the points of rates over time.
    pub interval: u64,
}

impl Creates {
    /// Most clients of a run.
    pub const CLIENTS_MAX: u32 = 128;
}

/// Messages between daemons.
#[derive(Clone, Debug, PartialEq)]
pub struct Messages {
    /// One way through the network.
    pub latency: u64,
    /// Bytes a second of a network card.
    pub bandwidth: u64,
    /// From a message's arrival to the thread that handles it, or waits for it.
    pub wakeup: u64,
    /// What a daemon needs for an ordinary answer.
    pub answer: u64,
    /// Messages that a daemon handles at once.
    pub threads: u32,
}

/// What a create costs its own node, task by task.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskTimes {
    /// The tasks of `gpfs_i_lookup()` (section 4.3.1).
    pub lookup: [u64; 7],
    /// Its time that no task covers.
    pub lookup_rest: u64,
    /// The tasks of `gpfs_i_create()` (section 4.3.2). The ninth is a message and has no time here.
    pub create: [u64; 12],
    /// Its time that no task covers: the kernel and the daemon talk.
    pub create_rest: u64,
    /// `gpfs_f_open()`.
    pub open: u64,
    /// Closing the file, and the program itself.
    pub between: u64,
}

/// Reads and writes through the servers of the disks, and the log.
#[derive(Clone, Debug, PartialEq)]
pub struct Storage {
    /// Writing an inode.
    pub inode_write: u64,
    /// Writing a directory block.
    pub block_write: u64,
    /// Reading a directory block.
    pub block_read: u64,
    /// Writing a piece of the log.
    pub log_write: u64,
    /// Writes that a node has under way at once.
    pub writes_at_once: u32,
    /// Bytes of the log of a node.
    pub log_bytes: u64,
    /// Bytes of the buffer in front of it.
    pub log_buffer_bytes: u64,
    /// Bytes that a create adds.
    pub record_bytes: u64,
    /// Dirty inodes are written at least as often.
    pub sync_interval: u64,
}

/// How directories grow.
#[derive(Clone, Debug, PartialEq)]
pub struct DirectoryRules {
    /// Bytes of a block of the file system.
    pub block_bytes: u64,
    /// Largest directory block.
    pub directory_block_bytes: u64,
    /// Directory blocks consist of 32nds of file system blocks while they are small
    /// (`false`: *AvoidDirFragments* of version 4.2).
    pub fragments: bool,
    /// Bytes of an entry beside its name.
    pub entry_overhead: u64,
    /// Copying and cleaning the two halves of a block that splits.
    pub split: u64,
    /// The metanode searches a block for what it sends to others (`dgetentries()`).
    pub scan: u64,
    /// The metanode takes over one entry that another node had made.
    pub entry_merge: u64,
    /// Metanodes of a directory (1; more: section 4.5.1).
    pub metanodes: u32,
    /// A metanode without work keeps its role so long.
    pub metanode_grace: u64,
}

/// When directories change between their two ways of locking, and what creates ask for.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenRules {
    /// FGDL is left after so many creates (`fgdlleavethreshold`); 0: never.
    pub leave_threshold: u64,
    /// Conflicts after which it is entered again.
    pub enter_conflicts: u64,
    /// Creates say that they will create: no lookup before (section 4.5.2).
    pub create_intents: bool,
}

/// The inode allocation map (section 4.1.8).
#[derive(Clone, Debug, PartialEq)]
pub struct InodeRules {
    /// Inodes allocated at the start.
    pub preallocated: u64,
    /// Most inodes that the file system may have.
    pub limit: u64,
    /// Inodes that an expansion adds.
    pub expansion: u64,
    /// Share of the allocated inodes in use that starts one.
    pub expand_at: f64,
    /// Time that an expansion takes for each inode.
    pub format: u64,
    /// Parts of the map that are locked separately.
    pub segments: u32,
}

/// A whole run.
#[derive(Clone, Debug, PartialEq)]
pub struct ScaleConfig {
    /// The work.
    pub creates: Creates,
    /// The network.
    pub messages: Messages,
    /// Local times.
    pub tasks: TaskTimes,
    /// Disks and logs.
    pub storage: Storage,
    /// Directories.
    pub directory: DirectoryRules,
    /// Locks.
    pub tokens: TokenRules,
    /// Inodes.
    pub inodes: InodeRules,
}

impl ScaleConfig {
    /// The parameter that makes no run, and why; `None`: it can be run.
    pub fn problem(&self) -> Option<(&'static str, String)> {
        let (creates, inodes) = (&self.creates, &self.inodes);
        if creates.clients == 0 || creates.clients > Creates::CLIENTS_MAX {
            return Some(("clients", format!("must be 1 to {}", Creates::CLIENTS_MAX)));
        }
        if creates.processes == 0 || creates.files == 0 || creates.interval == 0 {
            return Some(("interval", "processes, files and the interval must be at least 1".to_string()));
        }
        let entry = self.entry_bytes(creates.clients * creates.processes, creates.files);
        if self.block_bytes() < 4 * u64::from(entry) {
            let problem = format!("a directory block of {} bytes has no room for four entries of {entry} bytes", self.block_bytes());
            let rules = &self.directory;
            let smaller = if rules.block_bytes < rules.directory_block_bytes { "block" } else { "directory_block" };
            return Some((smaller, problem));
        }
        if self.storage.log_bytes < 2 * self.storage.record_bytes.max(1) {
            return Some(("log", format!("{} bytes have no room for two creates", self.storage.log_bytes)));
        }
        let files = u64::from(creates.clients) * creates.files;
        if inodes.preallocated > inodes.limit || inodes.limit < files + creates.clients as u64 {
            let problem = format!("{} inodes are too few for {files} files or {} allocated ahead", inodes.limit, inodes.preallocated);
            return Some(("inode_limit", problem));
        }
        None
    }

    /// Entries' bytes at which a directory with one block gets FGDL: when its last fragment is
    /// allocated (section 4.2.2).
    pub(crate) fn fine_from_bytes(&self) -> u64 {
        let rules = &self.directory;
        let largest = rules.block_bytes.min(rules.directory_block_bytes);
        let fragment = if rules.fragments { rules.block_bytes / 32 } else { largest };
        largest.saturating_sub(fragment)
    }

    /// Bytes of a directory block at its full size.
    pub(crate) fn block_bytes(&self) -> u64 {
        self.directory.block_bytes.min(self.directory.directory_block_bytes)
    }

    /// Bytes of the entry of a file: multiples of 16, at least 32 (section 4.1.7).
    pub(crate) fn entry_bytes(&self, rank: u32, index: u64) -> u32 {
        let digits = |number: u64| u64::from(number.max(1).ilog10()) + 1;
        let name = match self.creates.names {
            // "file.RANK.INDEX"
            Names::Growing => 6 + digits(u64::from(rank)) + digits(index),
            Names::Fixed => 30,
        };
        let bytes = (self.directory.entry_overhead + name).next_multiple_of(16).max(32);
        u32::try_from(bytes).unwrap_or(u32::MAX)
    }
}
