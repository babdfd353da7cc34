//! What users take, and may take.

use weft_base::Credentials;

use crate::wire_struct;

wire_struct! {
    /// Asks what users take on one server.
    pub struct UsageRequest {
        /// The first of them.
        pub from: u32,
        /// The last of them.
        pub to: u32,
        /// Who asks. Root hears of everybody, others of themselves.
        pub who: Credentials,
    }

    /// What users take.
    pub struct UsageReply {
        /// Users who take something, ascending: as many as fit.
        pub users: Vec<UserUsage>,
        /// There are more, from this one on.
        pub next: Option<u32>,
    }

    /// What one user takes on one server.
    pub struct UserUsage {
        /// The user, as the owner of inodes.
        pub uid: u32,
        /// Inodes of his, also those without a name that are not removed yet.
        pub inodes: u64,
        /// Bytes that his files take, in whole blocks, as of the last close.
        pub bytes: u64,
    }
}
