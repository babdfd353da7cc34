//! The places where the time of an operation can go, from the calling thread to the disk.

/// Where time is spent. The order is the way of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Stage {
    /// Code of the client library, waits inside the process included.
    Client = 0,
    /// A process of a parallel program waits for others of the same program.
    Peers = 1,
    /// The kernel and the FUSE gateway: between the call of the application and the client library.
    Kernel = 2,
    /// A message waits in its sender: for a place in the window, for the socket.
    SendQueue = 3,
    /// On the way, request and reply together.
    Network = 4,
    /// Received, and nobody works on it yet.
    ServerQueue = 5,
    /// A server's processor works on it.
    Cpu = 6,
    /// It waits for a lock, a token, or the answer of another party.
    Lock = 7,
    /// The change waits until the journal holds it.
    Journal = 8,
    /// A disk access that followed the last one without a seek.
    DiskNoSeek = 9,
    /// A disk access after a short seek.
    DiskNear = 10,
    /// A disk access after a long seek.
    DiskFar = 11,
    /// A pause before the request was sent again.
    Retry = 12,
    /// A thread could go on and had to wait for a processor that others used.
    Processor = 13,
    /// A request was given up, or is still waited for: its server has not answered.
    NoAnswer = 14,
    /// Known to be outside the client, but no record says where: the part that is not covered.
    Unseen = 15,
}

impl Stage {
    /// Every stage, in order.
    pub const ALL: [Stage; 16] = [
        Stage::Client,
        Stage::Peers,
        Stage::Kernel,
        Stage::SendQueue,
        Stage::Network,
        Stage::ServerQueue,
        Stage::Cpu,
        Stage::Lock,
        Stage::Journal,
        Stage::DiskNoSeek,
        Stage::DiskNear,
        Stage::DiskFar,
        Stage::Retry,
        Stage::Processor,
        Stage::NoAnswer,
        Stage::Unseen,
    ];

    /// The name in files, tables and options.
    pub fn name(self) -> &'static str {
        match self {
            Stage::Client => "client",
            Stage::Peers => "peers",
            Stage::Kernel => "kernel",
            Stage::SendQueue => "send_queue",
            Stage::Network => "network",
            Stage::ServerQueue => "server_queue",
            Stage::Cpu => "cpu",
            Stage::Lock => "lock",
            Stage::Journal => "journal",
            Stage::DiskNoSeek => "disk_no_seek",
            Stage::DiskNear => "disk_near",
            Stage::DiskFar => "disk_far",
            Stage::Retry => "retry",
            Stage::Processor => "processor",
            Stage::NoAnswer => "no_answer",
            Stage::Unseen => "unseen",
        }
    }

    /// The stage of this name.
    pub fn from_name(name: &str) -> Option<Stage> {
        Stage::ALL.into_iter().find(|stage| stage.name() == name)
    }

    /// For people.
    pub fn title(self) -> &'static str {
        match self {
            Stage::Client => "client",
            Stage::Peers => "waits for other processes",
            Stage::Kernel => "kernel and FUSE",
            Stage::SendQueue => "send queue",
            Stage::Network => "network",
            Stage::ServerQueue => "server queue",
            Stage::Cpu => "server CPU",
            Stage::Lock => "lock or token wait",
            Stage::Journal => "journal wait",
            Stage::DiskNoSeek => "disk, no seek",
            Stage::DiskNear => "disk, near seek",
            Stage::DiskFar => "disk, far seek",
            Stage::Retry => "pause before a retry",
            Stage::Processor => "waits for a processor",
            Stage::NoAnswer => "no answer",
            Stage::Unseen => "not seen",
        }
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
