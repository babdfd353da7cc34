//! What outlives a process, and what outlives a power cut: said once, for configurations, commands
//! and servers.

use std::fmt;
use std::str::FromStr;

/// What keeps the state of a server over a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// Nothing: everything is lost with the process, on purpose. The upper bound for speed.
    Memory,
    /// A journal and checkpoints.
    Journal,
    /// Yardstick, as the module ALT of Kunkel 2006: one embedded database for all metadata. Data
    /// servers keep theirs as with a journal.
    Db,
    /// Yardstick, as PVFS2's module DBPF: an embedded database for each object. Data servers keep
    /// theirs as with a journal.
    Dbpf,
}

impl Engine {
    /// All of them.
    pub const ALL: [Engine; 4] = [Engine::Memory, Engine::Journal, Engine::Db, Engine::Dbpf];

    /// True if what it holds outlives the process.
    pub const fn is_kept(self) -> bool {
        !matches!(self, Engine::Memory)
    }

    /// Its name in configurations, superblocks and statistics.
    pub const fn name(self) -> &'static str {
        match self {
            Engine::Memory => "memory",
            Engine::Journal => "journal",
            Engine::Db => "db",
            Engine::Dbpf => "dbpf",
        }
    }

    /// A line for people.
    pub const fn about(self) -> &'static str {
        match self {
            Engine::Memory => "Nowhere but in memory: an upper bound for measurements; everything is lost when a server stops",
            Engine::Journal => "In memory with a journal and checkpoints on disk",
            Engine::Db => "Yardstick: all metadata in one embedded database, as the module ALT of PVFS2 (2006)",
            Engine::Dbpf => "Yardstick: an embedded database for each file and directory, as the module DBPF of PVFS2 (2006)",
        }
    }
}

/// What an acknowledged change has survived. See `docs/semantics.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Everything: it is on stable storage.
    Sync,
    /// The death of the server at once, a power cut after at most the batch interval.
    Batch,
    /// The death of the server at once; a power cut only after an explicit flush. Data servers have
    /// nothing to gain by that and treat it as a batch of 50 ms, but may answer writes before they
    /// are in the container.
    None,
}

impl Durability {
    /// All of them, from the one that promises most.
    pub const ALL: [Durability; 3] = [Durability::Sync, Durability::Batch, Durability::None];

    /// True if it promises less than another one.
    pub fn is_weaker_than(self, other: Durability) -> bool {
        let place = |wanted| Durability::ALL.iter().position(|durability| *durability == wanted);
        place(self) > place(other)
    }

    /// Its name in configurations and statistics.
    pub const fn name(self) -> &'static str {
        match self {
            Durability::Sync => "sync",
            Durability::Batch => "batch",
            Durability::None => "none",
        }
    }

    /// A line for people.
    pub const fn about(self) -> &'static str {
        match self {
            Durability::Sync => "On stable storage before it is acknowledged",
            Durability::Batch => "Survives a crash of the server at once, a power cut after at most the batch interval",
            Durability::None => "Scratch: may lose what was acknowledged in a crash",
        }
    }
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Engine {
    type Err = String;

    fn from_str(name: &str) -> Result<Engine, String> {
        Engine::ALL
            .into_iter()
            .find(|engine| engine.name() == name)
            .ok_or_else(|| format!("unknown variant `{name}`, expected `memory`, `journal`, `db` or `dbpf`"))
    }
}

impl FromStr for Durability {
    type Err = String;

    fn from_str(name: &str) -> Result<Durability, String> {
        let known = Durability::ALL.into_iter().find(|durability| durability.name() == name);
        known.ok_or_else(|| format!("unknown variant `{name}`, expected `sync`, `batch` or `none`"))
    }
}
