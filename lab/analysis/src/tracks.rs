//! Tracks of a level as data: `crate::levels` makes them.

use crate::lanes::Lane;

/// How spans are put on tracks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Level {
    /// A track for each process, under the name of its host.
    Host,
    /// A track for each process, under its role.
    #[default]
    Rank,
    /// A track for each thread of a process, under the name of the process.
    Thread,
    /// A track for each process, under the client for whom it worked.
    Relation,
}

impl Level {
    /// The level of this name; processes for anything else.
    pub fn of(name: &str) -> Level {
        match name {
            "host" => Level::Host,
            "thread" => Level::Thread,
            "relation" => Level::Relation,
            _ => Level::Rank,
        }
    }
}

/// A track of a level.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Track {
    /// What the page calls it.
    pub name: String,
    /// What it stands under.
    pub heading: String,
    /// Position of the process.
    pub node: usize,
}

/// The tracks of a level with their lanes.
#[derive(Debug)]
pub struct Tracks {
    pub(crate) level: Level,
    /// By number.
    pub tracks: Vec<Track>,
    /// For each lane the number of its track.
    pub of_lane: Vec<usize>,
    /// Nothing if they are those of the run itself.
    pub(crate) lanes: Option<Vec<Lane>>,
}
