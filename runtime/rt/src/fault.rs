//! Fault points: the places at which a laboratory may hold up a flow, to see whether the tools that
//! look for slow places find it there (`docs/trace.md`). One table for both runtimes, so that what
//! is found in virtual time is found among real processes.
//!
//! A point is passed by [`crate::Runtime::pass`] and [`crate::Disk::pass`]. While nobody asks for a
//! delay that costs one relaxed load.

use weft_base::{MILLISECOND, SECOND};

/// Longest delay that a text may ask for, in nanoseconds: every wait ends before the deadlines of
/// clients.
pub const DELAY_NS_MAX: u64 = SECOND;

macro_rules! points {
    ($( $(#[$doc:meta])* $point:ident $name:literal; )*) => {
        /// A place at which a flow may be held up.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum FaultPoint { $( $(#[$doc])* $point, )* }

        impl FaultPoint {
            /// Every point, in the order of a request's way.
            pub const ALL: &'static [FaultPoint] = &[ $( FaultPoint::$point, )* ];

            /// The name in settings.
            pub fn name(self) -> &'static str {
                match self { $( FaultPoint::$point => $name, )* }
            }
        }
    };
}

points! {
    /// The FUSE gateway, before the client library is called.
    Fuse "fuse";
    /// The client library, before a request is encoded.
    ClientCode "client-code";
    /// The lock that lets one flow of a process at a time open, close or change the size of a file:
    /// held so much longer.
    ClientLock "client-lock";
    /// Between the submission of a request and its send.
    ClientSend "client-send";
    /// The first answer to every request counts as "busy", and the pause before the second attempt
    /// is so much longer.
    ClientRetry "client-retry";
    /// The way of replies to whoever asked: a client, or a server that asked another one.
    NetReply "net-reply";
    /// The way of requests to a server.
    NetRequest "net-request";
    /// At a server, before a turn begins with what it has received.
    ServerQueue "server-queue";
    /// At a server, in the execution of every request.
    ServerCpu "server-cpu";
    /// At a metadata server, in every transaction with another one: its locks are held so much
    /// longer.
    TxLock "tx-lock";
    /// At a metadata server, before it agrees to its part of another one's transaction.
    TxPrepare "tx-prepare";
    /// At any server, in every write of the journal.
    JournalWrite "journal-write";
    /// At any server, in every flush of the journal.
    JournalFlush "journal-flush";
    /// At a data server, in every read of data.
    DataRead "data-read";
    /// At a data server, in every write of data.
    DataWrite "data-write";
    /// At a data server, in every flush of data.
    DataFlush "data-flush";
    /// At a data server, in the truncation of a datafile.
    DataTruncate "data-truncate";
}

impl FaultPoint {
    /// Number of points.
    pub const COUNT: usize = FaultPoint::ALL.len();

    /// The point of this name.
    pub fn from_name(name: &str) -> Option<FaultPoint> {
        FaultPoint::ALL.iter().copied().find(|point| point.name() == name)
    }
}

/// Delays in nanoseconds by point; 0: none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delays([u64; FaultPoint::COUNT]);

impl Delays {
    /// Nobody is held up.
    pub const NONE: Delays = Delays([0; FaultPoint::COUNT]);

    /// The delay at a point in nanoseconds; 0: none.
    pub fn get(&self, point: FaultPoint) -> u64 {
        self.0[point as usize]
    }

    /// Sets the delay at a point in nanoseconds.
    pub fn set(&mut self, point: FaultPoint, ns: u64) {
        self.0[point as usize] = ns;
    }

    /// Reads `point:time` or `point:time@node`, several with commas; times end with `us` or `ms`.
    /// What names another node than `own` is checked and left out.
    ///
    /// # Errors
    /// A sentence for people: what is wrong, and what there is.
    pub fn parse(text: &str, own: &str) -> Result<Delays, String> {
        let mut delays = Delays::NONE;
        for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            let (setting, node) = word.split_once('@').unwrap_or((word, own));
            let (name, time) = setting
                .split_once(':')
                .ok_or_else(|| format!("{word:?} is not of the form point:time@node, for example journal-write:5ms@meta0"))?;
            let point = FaultPoint::from_name(name).ok_or_else(|| {
                let names: Vec<_> = FaultPoint::ALL.iter().map(|point| point.name()).collect();
                format!("there is no fault point {name:?}; there are {}", names.join(", "))
            })?;
            let number = |unit: &str, ns: u64| time.strip_suffix(unit)?.parse::<u64>().ok()?.checked_mul(ns);
            let ns = number("us", MILLISECOND / 1000).or_else(|| number("ms", MILLISECOND));
            let ns =
                ns.filter(|ns| *ns <= DELAY_NS_MAX).ok_or_else(|| format!("{time:?} is no time up to 1000ms, for example 5ms or 200us"))?;
            if node == own {
                delays.set(point, ns);
            }
        }
        Ok(delays)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_or_refused_with_a_sentence_that_helps() {
        let delays = Delays::parse("journal-write:5ms, net-request:250us@meta0,fuse:1ms@client", "meta0").expect("all are points");
        assert_eq!((delays.get(FaultPoint::JournalWrite), delays.get(FaultPoint::NetRequest)), (5_000_000, 250_000));
        assert_eq!(delays.get(FaultPoint::Fuse), 0);
        assert_eq!(Delays::parse("", "meta0"), Ok(Delays::NONE));
        assert!(Delays::parse("journal:5ms@data0", "meta0").expect_err("no such point").contains("journal-flush"));
        for wrong in ["journal-write", "journal-write:5", "journal-write:ms", "journal-write:5s", "journal-write:1001ms", "fuse:-1ms"] {
            let sentence = Delays::parse(wrong, "meta0").expect_err(wrong);
            assert!(sentence.contains("for example"), "{wrong}: {sentence}");
        }
    }

    #[test]
    fn every_point_has_a_name_of_its_own() {
        for (number, point) in FaultPoint::ALL.iter().enumerate() {
            assert_eq!((*point as usize, FaultPoint::from_name(point.name())), (number, Some(*point)));
        }
    }
}
