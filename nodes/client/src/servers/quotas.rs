//! What users and projects take, and may take.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use weft_base::{Credentials, Handle, MODE_PROJECT, PROJECT_ATTRIBUTE, ServerId, ServerRole, Status};
use weft_call::run_window;
use weft_rt::Runtime;
use weft_wire::ops::{HOME_OF_LIMITS, QuotaId, QuotaKind, SetQuotaRequest, UsageRequest, UserBytes, UserUsage};

use crate::{Client, FsStats, Result, XattrFlags};

/// Metadata servers that are asked at once.
const SERVERS_AT_ONCE: usize = 16;

impl<R: Runtime> Client<R> {
    /// What these users or projects take and may take, as the sum over all metadata servers: exact
    /// while nobody changes anything. Who takes nothing and is not limited is not in it.
    ///
    /// # Errors
    /// [`weft_base::Status::NotPermitted`] if somebody else than root asks for other users than
    /// himself, or for more than one project; servers that do not answer.
    pub async fn usage(&self, who: &Credentials, kind: QuotaKind, numbers: RangeInclusive<u32>) -> Result<BTreeMap<u32, QuotaUsage>> {
        let map = self.map();
        let first = QuotaId { kind, number: *numbers.start() };
        let asked = map.meta.iter().map(|server| self.usage_on(server.id, who, first, *numbers.end()));
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

    async fn usage_on(&self, server: ServerId, who: &Credentials, first: QuotaId, to: u32) -> Result<(Vec<UserUsage>, Vec<UserBytes>)> {
        let (mut all, mut bytes, mut from) = (Vec::new(), Vec::new(), first.number);
        loop {
            let request = UsageRequest { from, to, who: who.clone(), of_project: first.of_project() };
            let reply = self.call(self.flow("ask what users take", Handle(0)), server, &request).await?;
            all.extend(reply.users);
            bytes.extend(reply.bytes.unwrap_or_default());
            match reply.next {
                Some(next) if next > from => from = next,
                _ => return Ok((all, bytes)),
            }
        }
    }

    /// Lets a user or project have so many inodes in the file system at most; `None`: as many as
    /// they like. Returns the metadata servers that could not be told yet.
    ///
    /// # Errors
    /// [`weft_base::Status::Invalid`] for root, who is not limited, and for project 0, which is
    /// none; [`weft_base::Status::NoSpace`] if there are too many limits; servers that do not
    /// answer, or know no projects.
    pub async fn limit_inodes(&self, id: QuotaId, inodes_max: Option<u64>) -> Result<Vec<ServerId>> {
        self.set_quota(&SetQuotaRequest { uid: id.number, inodes_max, bytes_max: None, of_project: id.of_project() }).await
    }

    /// The same of bytes: what files take, in whole blocks.
    ///
    /// # Errors
    /// As [`Client::limit_inodes`], and servers that know no limits of bytes.
    pub async fn limit_bytes(&self, id: QuotaId, bytes_max: Option<u64>) -> Result<Vec<ServerId>> {
        let (uid, of_project) = (id.number, id.of_project());
        self.set_quota(&SetQuotaRequest { uid, inodes_max: None, bytes_max: Some(bytes_max), of_project }).await
    }

    /// The project that an object counts for; 0: none. What is made in a directory counts for the
    /// same.
    ///
    /// # Errors
    /// Servers that do not answer.
    pub async fn project(&self, handle: Handle) -> Result<u32> {
        let value = match self.get_xattr(&Credentials::ROOT, handle, PROJECT_ATTRIBUTE.as_bytes()).await {
            Err(error) if error.status == Status::NoAttribute => return Ok(0),
            value => value?,
        };
        weft_layout::project(&value).map_err(|_| self.flow("ask for the project", handle).error(Status::BadMessage))
    }

    /// From now on an object counts for this project, beside its owner; 0: for none.
    ///
    /// # Errors
    /// [`Status::NotPermitted`] for anybody but root; [`Status::Invalid`] from servers that know no
    /// projects.
    pub async fn set_project(&self, who: &Credentials, handle: Handle, project: u32) -> Result<()> {
        let name = PROJECT_ATTRIBUTE.as_bytes();
        if project != 0 {
            return self.set_xattr(who, handle, name, project.to_string().as_bytes(), XattrFlags::default()).await;
        }
        match self.remove_xattr(who, handle, name).await {
            Err(error) if error.status == Status::NoAttribute => Ok(()),
            outcome => outcome,
        }
    }

    /// What there is of these sums of the file system within the limits of the project that an
    /// object counts for. What a project takes all metadata servers must say: if one of them was
    /// silent, nobody waits for it once more, and the sums stay as they are.
    pub async fn within_project(&self, who: &Credentials, handle: Handle, mut stats: FsStats) -> FsStats {
        if stats.unanswered.iter().any(|error| error.server.is_none_or(|server| server.role() == ServerRole::Meta)) {
            return stats;
        }
        let has_project = self.getattr(handle).await.is_ok_and(|attr| attr.mode & MODE_PROJECT != 0);
        if has_project
            && let Ok(project) = self.project(handle).await
            && let Ok(usage) = self.usage(who, QuotaKind::Project, project..=project).await
        {
            stats.limit(&usage.get(&project).copied().unwrap_or_default());
        }
        stats
    }

    async fn set_quota(&self, request: &SetQuotaRequest) -> Result<Vec<ServerId>> {
        Ok(self.call(self.flow("set a quota", Handle(0)), HOME_OF_LIMITS, request).await?.untold)
    }
}

/// What a user or project takes in a file system, and may take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QuotaUsage {
    /// Objects that count for it.
    pub inodes: u64,
    /// How many these may be; `None`: there is no limit.
    pub inodes_max: Option<u64>,
    /// Bytes that their files take, in whole blocks, as of the last close.
    pub bytes: u64,
    /// Bytes beside these that files may take to which somebody writes, if there is a limit.
    pub bytes_reserved: u64,
    /// Bytes that they may take; `None`: there is no limit.
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
