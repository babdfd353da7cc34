//! Features of a store: what its formats have beyond their versions, each a line of the superblock.
//! A feature has a name, so that a program that does not know it can name it.
//!
//! | line | who does not know it |
//! |---|---|
//! | `compatible NAME` | may read and write the store |
//! | `read_only NAME` | may read the store, but must not write to it |
//! | `incompatible NAME` | must not touch it |
//!
//! A server writes whenever it starts (the superblock, the end of the journal), so it refuses an
//! unknown `read_only` feature too. Programs that only read, such as `weft inspect`, go on.

use std::collections::BTreeSet;

/// What a program that does not know a feature may still do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Compatible,
    ReadOnly,
    Incompatible,
}

const KINDS: [(Kind, &str); 3] = [(Kind::Compatible, "compatible"), (Kind::ReadOnly, "read_only"), (Kind::Incompatible, "incompatible")];

/// The features that this program knows. There is none yet: `docs/formats.md` says when a change of
/// a format is one.
const KNOWN: [&str; 0] = [];

/// The features of a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreFeatures(BTreeSet<(Kind, String)>);

impl StoreFeatures {
    /// True if a line of a superblock names a feature.
    pub(crate) fn is_line(line: &str) -> bool {
        parse(line).is_some()
    }

    /// The features among the lines of a superblock.
    pub(crate) fn from_lines<'a>(lines: impl Iterator<Item = &'a str>) -> StoreFeatures {
        StoreFeatures(lines.filter_map(parse).collect())
    }

    /// A line for each feature.
    pub fn lines(&self) -> impl Iterator<Item = String> {
        self.0.iter().map(|(kind, name)| format!("{} {name}", word(*kind)))
    }

    /// May this program write to the store?
    ///
    /// # Errors
    /// The names of the features that it needs to know for that.
    pub fn check_writable(&self) -> Result<(), String> {
        self.check_readable()?;
        self.check(Kind::ReadOnly, "to write to it, weft must know")
    }

    /// May this program read the store?
    ///
    /// # Errors
    /// The names of the features that it needs to know for that.
    pub fn check_readable(&self) -> Result<(), String> {
        self.check(Kind::Incompatible, "it needs")
    }

    fn check(&self, least: Kind, needs: &str) -> Result<(), String> {
        let unknown = self.0.iter().filter(|(kind, name)| *kind >= least && !KNOWN.contains(&name.as_str()));
        let names: Vec<&str> = unknown.map(|(_, name)| name.as_str()).collect();
        if names.is_empty() {
            return Ok(());
        }
        let word = if names.len() == 1 { "feature" } else { "features" };
        Err(format!("the store was made by a newer weft: {needs} the {word} {}, which this one does not know", names.join(", ")))
    }
}

fn word(kind: Kind) -> &'static str {
    KINDS[kind as usize].1
}

fn parse(line: &str) -> Option<(Kind, String)> {
    let (first, name) = line.split_once(' ')?;
    let (kind, _) = KINDS.iter().find(|(_, word)| *word == first)?;
    Some((*kind, name.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_features_are_refused_by_name() {
        let of = |text: &'static str| StoreFeatures::from_lines(text.lines());
        let known = of("compatible colours\nboot 3");
        assert_eq!((known.check_readable(), known.check_writable()), (Ok(()), Ok(())));
        let read_only = of("read_only quotas");
        assert_eq!(read_only.check_readable(), Ok(()));
        let text = read_only.check_writable().unwrap_err();
        assert!(text.contains("made by a newer weft") && text.contains("the feature quotas,"), "{text}");
        let incompatible = of("incompatible replicas\nincompatible long names");
        assert!(incompatible.check_writable().is_err());
        assert!(incompatible.check_readable().unwrap_err().contains("it needs the features long names, replicas,"));
    }

    #[test]
    fn lines_round_trip() {
        let features = StoreFeatures::from_lines("incompatible b\ncompatible c\nread_only a".lines());
        let lines: Vec<String> = features.lines().collect();
        assert_eq!(lines, ["compatible c", "read_only a", "incompatible b"]);
        assert!(lines.iter().all(|line| StoreFeatures::is_line(line)));
        assert_eq!(StoreFeatures::from_lines(lines.iter().map(String::as_str)), features);
    }
}
