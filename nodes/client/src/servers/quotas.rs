//! What users take, and may take.

use std::collections::BTreeMap;

use weft_base::{Credentials, Handle, ServerId};
use weft_call::run_window;
use weft_rt::Runtime;
use weft_wire::ops::{HOME_OF_LIMITS, SetQuotaRequest, UsageRequest, UserUsage};

use crate::{Client, Result};

/// Metadata servers that are asked at once.
const SERVERS_AT_ONCE: usize = 16;

impl<R: Runtime> Client<R> {
    /// What these users take and may take, as the sum over all metadata servers: exact while nobody
    /// changes anything. Who takes nothing and is not limited is not in it.
    ///
    /// # Errors
    /// [`weft_base::Status::NotPermitted`] if somebody else than root asks for others than himself;
    /// servers that do not answer.
    pub async fn usage(&self, who: &Credentials, users: std::ops::RangeInclusive<u32>) -> Result<BTreeMap<u32, UserUsage>> {
        let map = self.map();
        let asked = map.meta.iter().map(|server| self.usage_on(server.id, who, *users.start(), *users.end()));
        let mut all = BTreeMap::<u32, UserUsage>::new();
        for of_server in run_window(asked, SERVERS_AT_ONCE).await {
            for here in of_server? {
                all.entry(here.uid).and_modify(|user| add(user, &here)).or_insert(here);
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

    /// Lets a user have so many inodes in the file system at most; `None`: as many as he likes.
    /// Returns the metadata servers that could not be told yet.
    ///
    /// # Errors
    /// [`weft_base::Status::Invalid`] for root, who is not limited; [`weft_base::Status::NoSpace`]
    /// if there are too many limits; servers that do not answer.
    pub async fn set_quota(&self, uid: u32, inodes_max: Option<u64>) -> Result<Vec<ServerId>> {
        let request = SetQuotaRequest { uid, inodes_max };
        Ok(self.call(self.flow("set a quota", Handle(0)), HOME_OF_LIMITS, &request).await?.untold)
    }
}

fn add(user: &mut UserUsage, here: &UserUsage) {
    user.inodes += here.inodes;
    user.bytes = user.bytes.saturating_add(here.bytes);
    user.inodes_lent = match (user.inodes_lent, here.inodes_lent) {
        (Some(one), Some(other)) => Some(one.saturating_add(other)),
        (one, other) => one.or(other),
    };
    user.inodes_max = user.inodes_max.or(here.inodes_max);
}
