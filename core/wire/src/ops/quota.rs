//! What users take, and may take.

use weft_base::{Credentials, ServerId};

use crate::wire_struct;

/// The metadata server that keeps the limits of users.
pub const HOME_OF_LIMITS: ServerId = ServerId(0);

/// What a quota is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum QuotaKind {
    /// What a user owns.
    User,
    /// What was made in the directories of a project.
    Project,
}

/// One user or project that quotas are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct QuotaId {
    /// Which of both it is.
    pub kind: QuotaKind,
    /// The user, or the number of the project.
    pub number: u32,
}

impl QuotaId {
    /// A user.
    pub const fn user(uid: u32) -> QuotaId {
        QuotaId { kind: QuotaKind::User, number: uid }
    }

    /// A project.
    pub const fn project(number: u32) -> QuotaId {
        QuotaId { kind: QuotaKind::Project, number }
    }

    /// As messages say it, whose extension is this.
    pub fn of(number: u32, of_project: Option<bool>) -> QuotaId {
        if of_project == Some(true) { QuotaId::project(number) } else { QuotaId::user(number) }
    }

    /// That extension.
    pub fn of_project(self) -> Option<bool> {
        (self.kind == QuotaKind::Project).then_some(true)
    }
}

wire_struct! {
    /// Asks what users take on one server, or projects.
    pub struct UsageRequest {
        /// The first of them.
        pub from: u32,
        /// The last of them.
        pub to: u32,
        /// Who asks. Root hears of everybody, others of themselves and of any one project.
        pub who: Credentials,
        optional {
            /// It is about projects, by their numbers, in the answer too.
            1 pub of_project: bool,
        }
    }

    /// What users take.
    pub struct UsageReply {
        /// Users who take something or are limited, ascending: as many as fit.
        pub users: Vec<UserUsage>,
        /// There are more, from this one on.
        pub next: Option<u32>,
        optional {
            /// Of those among them who are limited in bytes.
            2 pub bytes: Vec<UserBytes>,
        }
    }

    /// What one user may take in bytes.
    pub struct UserBytes {
        /// The user.
        pub uid: u32,
        /// Bytes beside those that his files take: files that are open for writing may take them.
        pub reserved: u64,
        /// Bytes that he may have on this server without asking for more; `None`: the server knows
        /// of no limit.
        pub lent: Option<u64>,
        /// Told by metadata server 0: bytes that he may have in the file system.
        pub max: Option<u64>,
    }

    /// What one user takes on one server, and may take.
    pub struct UserUsage {
        /// The user, as the owner of inodes.
        pub uid: u32,
        /// Inodes of his, also those without a name that are not removed yet.
        pub inodes: u64,
        /// Bytes that his files take, in whole blocks, as of the last close.
        pub bytes: u64,
        /// Inodes that he may have here without asking for more; `None`: the server knows of no
        /// limit.
        pub inodes_lent: Option<u64>,
        /// Told by metadata server 0: inodes that he may have in the file system.
        pub inodes_max: Option<u64>,
    }

    /// Limits a user, or ends that.
    pub struct SetQuotaRequest {
        /// The user.
        pub uid: u32,
        /// Inodes that he may have in the file system; `None`: as many as he likes.
        pub inodes_max: Option<u64>,
        optional {
            /// Bytes that he may have; `None`: as many as he likes. If this is given, his limit of
            /// inodes stays as it is.
            1 pub bytes_max: Option<u64>,
            /// It is a project, by its number.
            3 pub of_project: bool,
        }
    }

    /// The limit is kept.
    pub struct SetQuotaReply {
        /// Servers that could not be told yet: until they are, they go by what they know.
        pub untold: Vec<ServerId>,
    }

    /// A server asks metadata server 0 for inodes for a user.
    pub struct BorrowRequest {
        /// Who asks.
        pub server: ServerId,
        /// The user.
        pub uid: u32,
        /// Inodes of his on that server, also those that are about to be made.
        pub inodes: u64,
        optional {
            /// It asks for bytes instead: so many he wants to have on that server.
            1 pub bytes: u64,
            /// For a project, by its number.
            3 pub of_project: bool,
        }
    }

    /// What it may go by.
    pub struct BorrowReply {
        /// Inodes, or bytes, that he may have there; `None`: he is not limited.
        pub inodes_lent: Option<u64>,
    }

    /// Metadata server 0 asks a server to give back what a user does not use.
    pub struct RecallRequest {
        /// The user.
        pub uid: u32,
        /// He is limited from now on; else he is not any more.
        pub is_limited: bool,
        optional {
            /// This is about bytes.
            1 pub of_bytes: bool,
            /// It is a project, by its number.
            3 pub of_project: bool,
        }
    }

    /// What is left.
    pub struct RecallReply {
        /// Inodes that he has there; or bytes, with those that are reserved.
        pub inodes: u64,
        /// Some of them are about to go.
        pub is_leaving: bool,
    }
}
