//! What users take, and may take.

use std::collections::BTreeMap;

use weft_base::{Credentials, Handle, ServerId};
use weft_call::run_window;
use weft_rt::Runtime;
use weft_wire::ops::{HOME_OF_LIMITS, SetQuotaRequest, UsageRequest, UserBytes, UserUsage};

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
    pub async fn usage(&self, who: &Credentials, users: std::ops::RangeInclusive<u32>) -> Result<BTreeMap<u32, QuotaUsage>> {
        let map = self.map();
        let asked = map.meta.iter().map(|server| self.usage_on(server.id, who, *users.start(), *users.end()));
        let mut all = BTreeMap::<u32, QuotaUsage>::new();
        for of_server in run_window(asked, SERVERS_AT_ONCE).await {
            let (users, bytes) = of_server?;
            for here in users {
                all.entry(here.uid).or_default().add(&here);
            }
            for here in bytes {
                all.entry(here.uid).or_default().add_bytes(&here);
            }
        }
        Ok(all)
    }

    async fn usage_on(&self, server: ServerId, who: &Credentials, mut from: u32, to: u32) -> Result<(Vec<UserUsage>, Vec<UserBytes>)> {
        let (mut all, mut bytes) = (Vec::new(), Vec::new());
        loop {
            let request = UsageRequest { from, to, who: who.clone() };
            let reply = self.call(self.flow("ask what users take", Handle(0)), server, &request).await?;
            all.extend(reply.users);
            bytes.extend(reply.bytes.unwrap_or_default());
            match reply.next {
                Some(next) if next > from => from = next,
                _ => return Ok((all, bytes)),
            }
        }
    }

    /// Lets a user have so many inodes in the file system at most; `None`: as many as he likes.
    /// Returns the metadata servers that could not be told yet.
    ///
    /// # Errors
    /// [`weft_base::Status::Invalid`] for root, who is not limited; [`weft_base::Status::NoSpace`]
    /// if there are too many limits; servers that do not answer.
    pub async fn limit_inodes(&self, uid: u32, inodes_max: Option<u64>) -> Result<Vec<ServerId>> {
        self.set_quota(&SetQuotaRequest { uid, inodes_max, bytes_max: None }).await
    }

    /// The same of bytes: what his files take, in whole blocks.
    ///
    /// # Errors
    /// As [`Client::limit_inodes`], and servers that know no limits of bytes.
    pub async fn limit_bytes(&self, uid: u32, bytes_max: Option<u64>) -> Result<Vec<ServerId>> {
        self.set_quota(&SetQuotaRequest { uid, inodes_max: None, bytes_max: Some(bytes_max) }).await
    }

    async fn set_quota(&self, request: &SetQuotaRequest) -> Result<Vec<ServerId>> {
        Ok(self.call(self.flow("set a quota", Handle(0)), HOME_OF_LIMITS, request).await?.untold)
    }
}

/// What a user takes in a file system, and may take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QuotaUsage {
    /// Objects that he owns.
    pub inodes: u64,
    /// How many he may own; `None`: as many as he likes.
    pub inodes_max: Option<u64>,
    /// Bytes that his files take, in whole blocks, as of the last close.
    pub bytes: u64,
    /// Bytes beside these that files may take to which somebody writes, if he is limited.
    pub bytes_reserved: u64,
    /// Bytes that he may take; `None`: as many as he likes.
    pub bytes_max: Option<u64>,
}

impl QuotaUsage {
    fn add(&mut self, here: &UserUsage) {
        self.inodes += here.inodes;
        self.bytes = self.bytes.saturating_add(here.bytes);
        self.inodes_max = self.inodes_max.or(here.inodes_max);
    }

    fn add_bytes(&mut self, here: &UserBytes) {
        self.bytes_reserved = self.bytes_reserved.saturating_add(here.reserved);
        self.bytes_max = self.bytes_max.or(here.max);
    }
}
