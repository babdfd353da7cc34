//! Metadata servers: locks of programs (`flock`, `fcntl`) on files. The server of the inode keeps
//! them, so programs of all mounts see each other's.

use weft_base::{ClientId, Handle, Result, Status};

use crate::codec::wire_for_fields;
use crate::{Reader, Wire, wire_struct};

/// Who holds a lock: a number that a gateway gives a process (`fcntl`) or an open file (`flock`,
/// open-file-description locks).
pub type Owner = u64;

macro_rules! wire_codes {
    ($( $(#[$doc:meta])* pub enum $name:ident { $( $(#[$variant_doc:meta])* $code:literal $variant:ident, )* } )*) => { $(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name { $( $(#[$variant_doc])* $variant, )* }

        impl Wire for $name {
            fn put(&self, out: &mut Vec<u8>) {
                let code: u8 = match self { $( $name::$variant => $code, )* };
                code.put(out);
            }
            fn get(from: &mut Reader) -> Result<Self> {
                match u8::get(from)? { $( $code => Ok($name::$variant), )* _ => Err(Status::BadMessage) }
            }
        }
    )* };
}

wire_codes! {
    /// What a lock keeps others from.
    pub enum LockKind {
        /// Others may have it, too.
        0 Shared,
        /// Nobody else.
        1 Exclusive,
    }

    /// The two families of locks. They do not see each other.
    pub enum Family {
        /// Of processes or open files, on ranges.
        0 Fcntl,
        /// Of open files, on the whole file.
        1 Flock,
        /// Of clients that append to a file to which others write, for one append.
        2 Append,
    }

    /// What became of a request for a lock.
    pub enum LockOutcome {
        /// It is held.
        0 Granted,
        /// Somebody is in the way, and it was not to be waited for.
        1 Taken,
        /// Somebody is in the way; its place in the queue is kept for whoever asks again soon.
        2 Waits,
        /// Whoever is in the way waits for its owner.
        3 Deadlock,
        /// The wait was given up.
        4 Withdrawn,
    }
}

/// A lock of a program, held or asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lock {
    /// `fcntl` or `flock`.
    pub family: Family,
    /// Whose.
    pub owner: Owner,
    /// What it keeps others from.
    pub kind: LockKind,
    /// First byte.
    pub start: u64,
    /// Last byte.
    pub end: u64,
    /// The process, for those who ask who is in the way.
    pub process: u32,
    /// The open file through which it was asked for, a number of the gateway.
    pub file: u64,
}

/// A lock with the client whose program has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldLock {
    /// Whose program.
    pub client: ClientId,
    /// What it has.
    pub lock: Lock,
}

impl Lock {
    /// What somebody gives back who gives back all of it.
    pub fn whole(&self) -> Unlock {
        Unlock { family: self.family, owner: self.owner, start: self.start, end: self.end }
    }
}

wire_for_fields! {
    Lock { family, owner, kind, start, end, process, file } if |lock| if lock.start > lock.end { Err(Status::BadMessage) } else { Ok(()) };
    HeldLock { client, lock };
}

wire_struct! {
    /// Takes a lock. What its owner held of the range before is replaced.
    pub struct LockRequest {
        /// The file.
        pub handle: Handle,
        /// What is wanted.
        pub lock: Lock,
        /// The number of the wait, of this client's choice; 0: it is not waited for. Asked again
        /// with the same number, the wait has its place in the queue.
        pub wait: u64,
    }

    /// What became of it.
    pub struct LockReply {
        /// As it says.
        pub outcome: LockOutcome,
        /// Given if it is taken: a lock in the way.
        pub in_the_way: Option<HeldLock>,
    }

    /// A range that is given back; what its owner holds around it stays.
    pub struct Unlock {
        /// `fcntl` or `flock`.
        pub family: Family,
        /// Whose.
        pub owner: Owner,
        /// First byte.
        pub start: u64,
        /// Last byte.
        pub end: u64,
    }

    /// Gives locks on a file back.
    pub struct UnlockRequest {
        /// The file.
        pub handle: Handle,
        /// What is given back, at most [`UNLOCKS_MAX`], one after another.
        pub unlocks: Vec<Unlock>,
    }

    /// Who is in the way of a lock?
    pub struct LockTestRequest {
        /// The file.
        pub handle: Handle,
        /// What would be wanted.
        pub lock: Lock,
    }

    /// Somebody, or nobody.
    pub struct LockTestReply {
        /// A lock in the way.
        pub in_the_way: Option<HeldLock>,
    }

    /// Gives a wait for a lock up.
    pub struct LockCancelRequest {
        /// The file.
        pub handle: Handle,
        /// The number of the wait.
        pub wait: u64,
    }

    /// The locks that a client has on a file, told to a server that has restarted.
    pub struct LocksOfFile {
        /// The file.
        pub handle: Handle,
        /// The locks of its programs.
        pub locks: Vec<Lock>,
    }
}

/// Most ranges in one [`UnlockRequest`].
pub const UNLOCKS_MAX: usize = 1024;
