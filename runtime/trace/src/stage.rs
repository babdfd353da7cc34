//! The places where the time of an operation can go, from the calling thread to the disk.

macro_rules! stages {
    ($( $(#[$doc:meta])* $stage:ident $name:literal $title:literal; )*) => {
        /// Where time is spent. The order is the way of a request.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum Stage { $( $(#[$doc])* $stage, )* }

        impl Stage {
            /// Every stage, in order.
            pub const ALL: [Stage; 16] = [ $( Stage::$stage, )* ];

            /// The name in files, tables and options.
            pub fn name(self) -> &'static str {
                match self { $( Stage::$stage => $name, )* }
            }

            /// For people.
            pub fn title(self) -> &'static str {
                match self { $( Stage::$stage => $title, )* }
            }
        }
    };
}

stages! {
    /// Code of the client library, waits inside the process included.
    Client "client" "client";
    /// A process of a parallel program waits for others of the same program.
    Peers "peers" "waits for other processes";
    /// The kernel and the FUSE gateway: between the call of the application and the client library.
    Kernel "kernel" "kernel and FUSE";
    /// A message waits in its sender: for a place in the window, for the socket.
    SendQueue "send_queue" "send queue";
    /// On the way, request and reply together.
    Network "network" "network";
    /// Received, and nobody works on it yet.
    ServerQueue "server_queue" "server queue";
    /// A server's processor works on it.
    Cpu "cpu" "server CPU";
    /// It waits for a lock, a token, or the answer of another party.
    Lock "lock" "lock or token wait";
    /// The change waits until the journal holds it.
    Journal "journal" "journal wait";
    /// A disk access that followed the last one without a seek.
    DiskNoSeek "disk_no_seek" "disk, no seek";
    /// A disk access after a short seek.
    DiskNear "disk_near" "disk, near seek";
    /// A disk access after a long seek.
    DiskFar "disk_far" "disk, far seek";
    /// A pause before the request was sent again.
    Retry "retry" "pause before a retry";
    /// A thread could go on and had to wait for a processor that others used.
    Processor "processor" "waits for a processor";
    /// A request was given up, or is still waited for: its server has not answered.
    NoAnswer "no_answer" "no answer";
    /// Known to be outside the client, but no record says where: the part that is not covered.
    Unseen "unseen" "not seen";
}

impl Stage {
    /// The stage of this name.
    pub fn from_name(name: &str) -> Option<Stage> {
        Stage::ALL.into_iter().find(|stage| stage.name() == name)
    }

    /// A disk stage with the class of its record: 1 no seek, 2 near seek, 3 far seek; 0 (not known)
    /// counts as no seek. Other stages have no classes.
    pub fn with_class(self, class: u8) -> Stage {
        match (self, class) {
            (Stage::DiskNoSeek | Stage::DiskNear | Stage::DiskFar, 2) => Stage::DiskNear,
            (Stage::DiskNoSeek | Stage::DiskNear | Stage::DiskFar, 3) => Stage::DiskFar,
            (Stage::DiskNoSeek | Stage::DiskNear | Stage::DiskFar, _) => Stage::DiskNoSeek,
            (stage, _) => stage,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_found_again() {
        for (position, stage) in Stage::ALL.into_iter().enumerate() {
            assert_eq!(stage as usize, position);
            assert_eq!(Stage::from_name(stage.name()), Some(stage));
        }
    }

    #[test]
    fn only_disks_have_classes() {
        assert_eq!(Stage::DiskNoSeek.with_class(3), Stage::DiskFar);
        assert_eq!(Stage::DiskFar.with_class(0), Stage::DiskNoSeek);
        assert_eq!(Stage::Network.with_class(3), Stage::Network);
    }
}
