//! The servers with which a file system was made. Where data lies follows from their numbers, and their numbers from this list, so a
//! list that has changed must never be taken for the old one: every server keeps it in its superblock, and every connection compares it.

use crate::{ServerId, ServerRole};

/// Names of servers by number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerList {
    /// Metadata servers.
    pub meta: Vec<String>,
    /// Data servers.
    pub data: Vec<String>,
}

impl ServerList {
    /// A number that differs for different lists; 0 for an empty one, which is not known. FNV-1a (Fowler, Noll, Vo).
    pub fn fingerprint(&self) -> u64 {
        if self.meta.is_empty() && self.data.is_empty() {
            return 0;
        }
        let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        self.to_text().bytes().fold(0xcbf2_9ce4_8422_2325, mix).max(1)
    }

    /// One line for each server: its role and its name.
    pub fn to_text(&self) -> String {
        self.servers().map(|(id, name)| format!("{} {name}\n", id.role())).collect()
    }

    /// Reads [`ServerList::to_text`]; what it does not understand it leaves out.
    pub fn from_text(text: &str) -> ServerList {
        let names = |role: ServerRole| {
            let prefix = format!("{role} ");
            text.lines().filter_map(|line| Some(line.strip_prefix(&prefix)?.to_string())).collect()
        };
        ServerList { meta: names(ServerRole::Meta), data: names(ServerRole::Data) }
    }

    /// All servers with their numbers, metadata first.
    pub fn servers(&self) -> impl Iterator<Item = (ServerId, &str)> {
        let meta = self.meta.iter().enumerate().map(|(index, name)| (ServerId(index as u16), name.as_str()));
        let data = self.data.iter().enumerate().map(|(index, name)| (ServerId::data(index as u16), name.as_str()));
        meta.chain(data)
    }

    /// Says what is different in `now` from this list, with which the file system was made, and what to do. `None` if nothing is.
    pub fn change(&self, now: &ServerList) -> Option<String> {
        [(ServerRole::Meta, &self.meta, &now.meta), (ServerRole::Data, &self.data, &now.data)]
            .into_iter()
            .find_map(|(role, made, now)| change(role, made, now))
    }
}

fn change(role: ServerRole, made: &[String], now: &[String]) -> Option<String> {
    let at = (0..made.len().max(now.len())).find(|at| made.get(*at) != now.get(*at))?;
    let list = made.join(", ");
    let made_with = format!("the file system was made with the {role} servers {list}");
    Some(match (made.get(at), now.get(at)) {
        (Some(old), Some(new)) if made.contains(new) && now.contains(old) => {
            format!("{made_with}, in this order, and {new} stands where {old} was: put the entries back in their order")
        }
        (Some(old), Some(new)) if !made.contains(new) && !now.contains(old) => {
            format!("{made_with}, and {old} is called {new} now: give it its name back")
        }
        (_, Some(new)) if !made.contains(new) => {
            format!("{made_with}, and {new} is new: take the entry of {new} out again; a file system cannot grow yet")
        }
        (old, _) => {
            let old = old.expect("the lists differ here, and nothing is new");
            format!("{made_with}, and {old} is missing: put the entry of {old} back; a file system cannot shrink yet")
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(meta: &[&str], data: &[&str]) -> ServerList {
        let names = |names: &[&str]| names.iter().map(|name| name.to_string()).collect();
        ServerList { meta: names(meta), data: names(data) }
    }

    #[test]
    fn every_change_is_named_with_a_remedy() {
        let made = list(&["meta0"], &["data0", "data1"]);
        assert_eq!(made.change(&made), None);
        let cases = [
            (list(&["meta0"], &["data0", "data1", "data2"]), "data2 is new: take the entry of data2 out again"),
            (list(&["meta0"], &["data2", "data0", "data1"]), "data2 is new: take the entry of data2 out again"),
            (list(&["meta0"], &["data0"]), "data1 is missing: put the entry of data1 back"),
            (list(&["meta0"], &["data1"]), "data0 is missing: put the entry of data0 back"),
            (list(&["meta0"], &["data0", "store"]), "data1 is called store now"),
            (list(&["meta0"], &["data1", "data0"]), "data1 stands where data0 was"),
            (list(&["meta0", "meta1"], &["data0", "data1"]), "meta1 is new"),
            (list(&["data1"], &["data0", "meta0"]), "is called data1 now"),
        ];
        for (now, words) in cases {
            let text = made.change(&now).expect("it is another list");
            assert!(text.contains(words), "{text}");
            assert_ne!(made.fingerprint(), now.fingerprint(), "{text}");
        }
    }

    #[test]
    fn text_round_trips_and_roles_are_part_of_it() {
        let made = list(&["meta0", "meta1"], &["data0"]);
        assert_eq!(ServerList::from_text(&made.to_text()), made);
        assert_ne!(list(&["a", "b"], &["c"]).fingerprint(), list(&["a"], &["b", "c"]).fingerprint());
        assert_eq!(ServerList::default().fingerprint(), 0);
    }
}
