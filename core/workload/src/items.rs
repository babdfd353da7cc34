//! What steps of names make: files or directories, under which names, and in which directories; the
//! words of mdtest (Vef 2016, section 3.2.1).

use serde::{Deserialize, Serialize};

/// What is made, looked at and removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ItemsKind {
    /// Files.
    #[default]
    Files,
    /// Directories, which stay empty.
    Directories,
}

impl ItemsKind {
    /// All, with their names in plans and options.
    pub const ALL: [(&'static str, ItemsKind); 2] = [("files", ItemsKind::Files), ("directories", ItemsKind::Directories)];
}

/// How items are named.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Naming {
    /// All names of a client have one length, up to ten million items.
    #[default]
    Fixed,
    /// Names become longer as numbers grow, as those of mdtest 1.9.3 (section 4.1.7).
    Growing,
    /// As those of mdtest 4, with its directories.
    Mdtest,
}

impl Naming {
    /// All, with their names in plans and options.
    pub const ALL: [(&'static str, Naming); 3] = [("fixed", Naming::Fixed), ("growing", Naming::Growing), ("mdtest", Naming::Mdtest)];
}

/// How long an interval of recorded progress is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Every {
    /// Nanoseconds.
    Nanos(u64),
    /// Operations of one client.
    Operations(u64),
}

/// What is made, how it is called, and where.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Items {
    /// Files or directories.
    pub kind: ItemsKind,
    /// How they are named.
    pub naming: Naming,
    /// Directories of each client below its own, made and removed with the files; 0: none.
    pub subdirs: u32,
    /// Levels of a tree of directories below that of the client (or of all), which is there before
    /// the first step; items are in each directory of it. 0: no tree.
    pub depth: u32,
    /// Directories in each directory of the tree above its last level.
    pub branching: u32,
}

impl Items {
    /// Directories in which a client has items.
    pub fn folders(&self) -> u64 {
        match self.subdirs {
            0 => (0..=self.depth).fold(0u64, |sum, level| sum.saturating_add(u64::from(self.branching).saturating_pow(level))),
            count => u64::from(count),
        }
    }

    /// Names of the tree's directories, each behind the one that it is in; the empty name is its
    /// root.
    pub fn tree(&self) -> Vec<String> {
        let mut names = vec![String::new()];
        let mut level = 0..1;
        for _ in 0..self.depth {
            let above: Vec<String> = names[level].to_vec();
            let first = names.len();
            for dir in above {
                let slash = if dir.is_empty() { "" } else { "/" };
                names.extend((0..self.branching).map(|number| format!("{dir}{slash}t{number}")));
            }
            level = first..names.len();
        }
        names
    }

    /// Name of an item of a client.
    pub fn name(&self, client: u64, number: u64) -> String {
        match self.naming {
            Naming::Fixed => format!("f{client}.{number:07}"),
            Naming::Growing => format!("f{client}.{number}"),
            Naming::Mdtest => {
                let kind = if self.kind == ItemsKind::Files { "file" } else { "dir" };
                format!("{kind}.mdtest.{client}.{number}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trees_have_as_many_directories_as_they_say() {
        for (depth, branching, folders) in [(0, 0, 1), (0, 5, 1), (1, 3, 4), (3, 1, 4), (3, 2, 15), (2, 10, 111)] {
            let items = Items { depth, branching, ..Items::default() };
            assert_eq!((items.folders(), items.tree().len() as u64), (folders, folders), "{items:?}");
        }
    }

    #[test]
    fn names_grow_only_if_that_is_wanted() {
        let lengths = |naming| [0, 12, 345_678].map(|number| Items { naming, ..Items::default() }.name(3, number).len());
        assert_eq!(lengths(Naming::Fixed), [10, 10, 10]);
        assert_eq!(lengths(Naming::Growing), [4, 5, 9]);
        let items = Items { kind: ItemsKind::Directories, naming: Naming::Mdtest, ..Items::default() };
        assert_eq!(items.name(3, 12), "dir.mdtest.3.12");
    }
}
