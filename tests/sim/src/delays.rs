//! One place of a file system is slow, and `explain` must name it first: the places, the work, and
//! the judgement, for clusters in virtual time (`tests/sim/tests/delays.rs`) and for real processes
//! (`tests/system/tests/delays.rs`).

use weft_base::{Credentials, Handle, MILLISECOND, ROOT_HANDLE};
use weft_client::{Client, CreateOptions, RenameFlags, SetAttr};
use weft_rt::{Bulk, FaultPoint, Runtime};

/// The delay, in nanoseconds.
pub const DELAY_NS: u64 = 5 * MILLISECOND;
/// Stands for the client in [`PLACES`].
pub const CLIENT: &str = "client";
/// Four stripes of 4 KiB.
const BYTES: usize = 16 << 10;

/// Where a flow is held up, and what must be said of it.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// At which point.
    pub point: FaultPoint,
    /// On which node, which is also the place that must be named.
    pub node: &'static str,
    /// The stage that must be named; `disk` for however far it has to seek.
    stage: &'static str,
    /// Words of the evidence.
    words: &'static str,
}

const fn place(point: FaultPoint, node: &'static str, stage: &'static str, words: &'static str) -> Place {
    Place { point, node, stage, words }
}

/// The places, in the order of a request's way; the table of `docs/trace.md`. A cluster of two
/// metadata and three data servers has them.
#[rustfmt::skip]
pub const PLACES: &[Place] = &[
    place(FaultPoint::ClientCode,   CLIENT,  "client", ""),
    place(FaultPoint::ClientLock,   CLIENT,  "lock", ""),
    place(FaultPoint::ClientSend,   CLIENT,  "send_queue", ""),
    place(FaultPoint::ClientRetry,  CLIENT,  "retry", ""),
    place(FaultPoint::NetReply,     CLIENT,  "network", ""),
    place(FaultPoint::NetReply,     "meta0", "network", ""),
    place(FaultPoint::NetRequest,   "meta0", "network", ""),
    place(FaultPoint::NetRequest,   "meta1", "network", ""),
    place(FaultPoint::NetRequest,   "data0", "network", ""),
    place(FaultPoint::NetRequest,   "data2", "network", ""),
    place(FaultPoint::ServerQueue,  "meta0", "server_queue", ""),
    place(FaultPoint::ServerQueue,  "data1", "server_queue", ""),
    place(FaultPoint::ServerCpu,    "meta1", "cpu", ""),
    place(FaultPoint::ServerCpu,    "data2", "cpu", ""),
    place(FaultPoint::TxLock,       "meta0", "lock", ""),
    place(FaultPoint::TxPrepare,    "meta1", "cpu", "meta.prepare"),
    place(FaultPoint::JournalWrite, "meta0", "journal", "while the journal was written"),
    place(FaultPoint::JournalFlush, "meta1", "journal", "while the journal was flushed"),
    place(FaultPoint::JournalWrite, "data1", "journal", "while the journal was written"),
    place(FaultPoint::DataRead,     "data0", "disk", "disk.read"),
    place(FaultPoint::DataWrite,    "data1", "disk", "disk.write"),
    place(FaultPoint::DataFlush,    "data2", "journal", "while data was flushed"),
    place(FaultPoint::DataTruncate, "data1", "cpu", "data.truncate"),
];

/// What was said about a run with a delay.
#[derive(Clone, Debug)]
pub struct Told {
    /// Stage, place and evidence of the suspects, the first one first.
    pub suspects: Vec<(String, String, String)>,
    /// The share of the measured time that is explained.
    pub covered: f64,
    /// What is known to be missing.
    pub missing: Vec<String>,
}

/// Delays each of these places, one after another, and panics with all that are not named first.
/// `told` runs the work with that delay; `node` is what it calls a node of [`PLACES`].
pub fn all_are_named<'a>(places: impl IntoIterator<Item = &'a Place>, node: impl Fn(&str) -> String, mut told: impl FnMut(&Place) -> Told) {
    let mut wrong = String::new();
    let mut tried = 0;
    for place in places {
        tried += 1;
        let told = told(place);
        let named = told.suspects.first().is_some_and(|(stage, at, evidence)| {
            let stage = if stage.starts_with("disk") { "disk" } else { stage };
            (stage, at) == (place.stage, &node(place.node)) && evidence.contains(place.words)
        });
        if !named || told.covered < 0.95 || !told.missing.is_empty() {
            let head = format!("{} at {}: covered {:.3}, missing {:?}", place.point.name(), place.node, told.covered, told.missing);
            let list: String = told.suspects.iter().map(|(_, _, evidence)| format!("\n    {evidence}")).collect();
            wrong += &format!("{head}{list}\n");
        }
    }
    assert!(wrong.is_empty() && tried > 0, "of {tried}:\n{wrong}");
}

/// Makes a directory on each of two metadata servers, for client `number`.
pub async fn two_directories<R: Runtime>(client: &Client<R>, number: usize) -> [Handle; 2] {
    let mut found = [None; 2];
    for name in 0.. {
        let name = format!("d{number}.{name}");
        let dir = client.mkdir(&Credentials::ROOT, ROOT_HANDLE, name.as_bytes(), 0o755).await.expect("a new directory").handle;
        found[usize::from(dir.server().0)] = Some(dir);
        if let [Some(first), Some(second)] = found {
            assert!(client.ping_all().await.iter().all(|(_, answer)| answer.is_ok()));
            return [first, second];
        }
    }
    unreachable!("a server whom no directory falls to")
}

/// Everything that programs do, for so many files: they are made in both directories in turn,
/// written, read, cut, moved to the other one and removed.
pub async fn work<R: Runtime>(client: &Client<R>, dirs: [Handle; 2], files: usize) {
    let (who, data) = (&Credentials::ROOT, vec![7; BYTES]);
    for file in 0..files {
        let (from, to) = (dirs[file % 2], dirs[(file + 1) % 2]);
        let name = format!("f{file}");
        let name = name.as_bytes();
        let (attr, open, _) = client.create(who, from, name, &CreateOptions::default()).await.expect("a new file");
        client.write(&open, 0, Bulk::Slices(vec![&data])).await.expect("there is room");
        client.fsync(&open, false).await.expect("disks work");
        let read = client.read(&open, 0, BYTES as u64).await.expect("it was written");
        assert_eq!(read.iter().map(|piece| piece.len()).sum::<u64>(), BYTES as u64);
        client.setattr(who, attr.handle, &SetAttr { size: Some(100), ..SetAttr::default() }).await.expect("it can be cut");
        client.close(open).await.expect("it is open");
        client.lookup(who, from, name).await.expect("it is there");
        client.rename(who, from, name, to, name, RenameFlags::default()).await.expect("it can be moved");
        client.unlink(who, to, name).await.expect("it is there");
    }
}
