//! What users take.

use std::collections::BTreeMap;

use weft_base::{Credentials, Handle, ServerId};
use weft_call::run_window;
use weft_rt::Runtime;
use weft_wire::ops::{UsageRequest, UserUsage};

use crate::{Client, Result};

/// Metadata servers that are asked at once.
const SERVERS_AT_ONCE: usize = 16;

impl<R: Runtime> Client<R> {
    /// What these users take, as the sum over all metadata servers: exact while nobody changes
    /// anything. Who takes nothing is not in it.
    ///
    /// # Errors
    /// [`weft_base::Status::NotPermitted`] if somebody else than root asks for others than himself;
    /// servers that do not answer.
    pub async fn usage(&self, who: &Credentials, users: std::ops::RangeInclusive<u32>) -> Result<BTreeMap<u32, UserUsage>> {
        let map = self.map();
        let asked = map.meta.iter().map(|server| self.usage_on(server.id, who, *users.start(), *users.end()));
        let mut all = BTreeMap::<u32, UserUsage>::new();
        for of_server in run_window(asked, SERVERS_AT_ONCE).await {
            for UserUsage { uid, inodes, bytes } in of_server? {
                let user = all.entry(uid).or_insert(UserUsage { uid, inodes: 0, bytes: 0 });
                (user.inodes, user.bytes) = (user.inodes + inodes, user.bytes.saturating_add(bytes));
            }
        }
        Ok(all)
    }

    async fn usage_on(&self, server: ServerId, who: &Credentials, mut from: u32, to: u32) -> Result<Vec<UserUsage>> {
        let mut all = Vec::new();
        loop {
            let request = UsageRequest { from, to, who: who.clone() };
            let reply = self.call(self.flow("ask what users take", Handle(0)), server, &request).await?;
            all.extend(reply.users);
            match reply.next {
                Some(next) if next > from => from = next,
                _ => return Ok(all),
            }
        }
    }
}
