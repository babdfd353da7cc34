//! Names of objects, as far as anybody knows them: from a list beside the traces, which
//! `weft trace off` and `weft explain FS` write, and from records of names in the traces.

use std::collections::BTreeMap;

use crate::EventKind;
use crate::event::TRACE_NAME;
use crate::merge::Merged;
use crate::record::{Body, TraceRecord, padded};

/// How a list of names begins; a line with a handle (hexadecimal), a tabulator and a path for each
/// object follows.
pub const HEAD: &str = "weft-names 1";
/// Names that are kept, at most.
const NAMES_MAX: usize = 1 << 20;

/// The records of the name of an object: as many pieces as it needs, without a time.
pub fn records(object: u64, name: &str) -> Vec<TraceRecord> {
    let mut records = Vec::new();
    let mut rest = name;
    for lane in 0..u16::MAX {
        let record = TraceRecord { req: object, lane, ..TraceRecord::new(0, TRACE_NAME, Body::Text(padded(rest))) };
        let used = record.text().len();
        records.push(record);
        rest = &rest[used..];
        if rest.is_empty() || used == 0 {
            break;
        }
    }
    records
}

/// Names by handle.
#[derive(Debug, Default)]
pub struct Names(BTreeMap<u64, String>);

impl Names {
    /// The names in the records of a trace.
    pub fn new(merged: &Merged) -> Names {
        let mut pieces: BTreeMap<(u64, usize, u32), BTreeMap<u16, String>> = BTreeMap::new();
        for node in 0..merged.nodes.len() {
            let times = merged.events.node_times(node);
            if !times.sorts().iter().any(|sort| sort.kind == EventKind::Text) {
                continue;
            }
            for time in times.iter().filter(|time| times.sorts()[time.sort as usize].kind == EventKind::Text).take(NAMES_MAX) {
                let (record, event) = (times.record(time.position), merged.events.event(time.position));
                if let Body::Text(_) = &record.body {
                    pieces.entry((record.req, node, event.ring)).or_default().insert(record.lane, record.text());
                }
            }
        }
        let whole = pieces.into_iter().map(|((object, ..), pieces)| (object, pieces.into_values().collect::<String>()));
        Names(whole.collect())
    }

    /// Adds the names of a list.
    ///
    /// # Errors
    /// A sentence if it is no such list. Lines that make no sense are left out.
    pub fn add_list(&mut self, text: &str) -> Result<(), String> {
        let mut lines = text.lines();
        if lines.next() != Some(HEAD) {
            return Err("this is no list of names that this program knows".to_string());
        }
        let entry = |line: &str| {
            let (handle, path) = line.split_once('\t')?;
            Some((u64::from_str_radix(handle, 16).ok()?, path.to_string()))
        };
        self.0.extend(lines.filter_map(entry).take(NAMES_MAX));
        Ok(())
    }

    /// The name of an object.
    pub fn get(&self, object: u64) -> Option<&str> {
        self.0.get(&object).map(String::as_str)
    }

    /// Adds a name.
    pub fn insert(&mut self, object: u64, name: String) {
        self.0.insert(object, name);
    }

    /// All names as a list.
    pub fn list(&self) -> String {
        let lines = self.0.iter().map(|(object, name)| format!("{object:x}\t{name}\n"));
        format!("{HEAD}\n{}", lines.collect::<String>())
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True if nobody knows any.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_as_far_as_they_make_sense() {
        let mut names = Names::default();
        names.add_list("weft-names 1\n2a\t/a/with a\ttab\nnonsense\nzz\t/b\n1f\t/c\n").unwrap();
        assert_eq!((names.get(0x2a), names.get(0x1f), names.get(1)), (Some("/a/with a\ttab"), Some("/c"), None));
        assert!(names.add_list("weft-names 2\n").is_err());
        let mut again = Names::default();
        again.add_list(&names.list()).unwrap();
        assert_eq!((again.len(), again.list()), (2, names.list()));
    }
}
