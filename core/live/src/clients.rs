//! Where clients are, for people: their numbers are random.

use std::collections::BTreeMap;

use weft_base::ClientId;

/// Clients without a connection that are remembered, at most.
const ABSENT_MAX: usize = 1024;

/// Names of clients.
#[derive(Debug, Default)]
pub struct ClientNames {
    by_id: BTreeMap<ClientId, Entry>,
    absent: usize,
}

#[derive(Debug, Default)]
struct Entry {
    name: String,
    connections: u32,
}

impl ClientNames {
    /// A connection of the client was made, from the place with this name.
    pub fn connected(&mut self, client: ClientId, name: Option<String>) {
        let is_known = self.by_id.contains_key(&client);
        let entry = self.by_id.entry(client).or_default();
        if is_known && entry.connections == 0 {
            self.absent -= 1;
        }
        entry.connections += 1;
        if let Some(name) = name {
            entry.name = name;
        }
    }

    /// A connection of the client is gone. It is remembered for a while: what it did is still in
    /// the lists.
    pub fn disconnected(&mut self, client: ClientId) {
        let Some(entry) = self.by_id.get_mut(&client).filter(|entry| entry.connections > 0) else { return };
        entry.connections -= 1;
        if entry.connections == 0 {
            self.absent += 1;
        }
        if self.absent > ABSENT_MAX {
            self.by_id.retain(|_, entry| entry.connections > 0);
            self.absent = 0;
        }
    }

    /// Where the client is, if that is known.
    pub fn name(&self, client: ClientId) -> Option<&str> {
        self.by_id.get(&client).map(|entry| entry.name.as_str()).filter(|name| !name.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_outlive_connections_and_memory_is_bounded() {
        let mut clients = ClientNames::default();
        let stays = ClientId(9_999_999);
        clients.connected(stays, Some("pid 1".into()));
        for number in 0..5000 {
            clients.connected(ClientId(number), Some(format!("pid {number}")));
            clients.connected(ClientId(number), None);
            clients.disconnected(ClientId(number));
            assert_eq!(clients.name(ClientId(number)), Some(format!("pid {number}").as_str()));
            clients.disconnected(ClientId(number));
            clients.disconnected(ClientId(number));
            assert!(clients.by_id.len() <= ABSENT_MAX + 2);
        }
        assert_eq!((clients.name(stays), clients.name(ClientId(123_456))), (Some("pid 1"), None));
        assert_eq!(clients.absent, clients.by_id.len() - 1);
    }
}
