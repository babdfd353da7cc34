//! The server on real files and sockets.

use std::path::Path;

use weft_base::{ClientId, ClusterMap, FsId, Handle, MILLISECOND, RequestId, Result, SECOND, ServerEntry, ServerId, Status, WallTime};
use weft_data_server::{DataServerConfig, Durability, Meets, ServerError, ServingConfig, run};
use weft_journal::Superblock;
use weft_rt::{Bulk, Disk, Outgoing, Runtime, ServerRuntime};
use weft_rt_real::{Address, ClientConfig, ClientRt, DiskConfig, Log, ShardConfig, StopHandle, serve};
use weft_wire::ops::{Piece, ReadRequest, WriteRequest};
use weft_wire::{Capability, ClusterKey, Header, Operation, Rights};

const KEY: ClusterKey = ClusterKey([5; 32]);
const SERVER: ServerId = ServerId(ServerId::FIRST_DATA);
const CLIENT: ClientId = ClientId(77);

fn map(directory: &Path) -> ClusterMap {
    let entry = |id: ServerId| ServerEntry { id, name: id.to_string(), address: format!("unix:{}/socket", directory.display()) };
    ClusterMap::of(FsId(3), "test", [ServerId(0), SERVER].map(entry), 1 << 20).founded(1)
}

fn shard(directory: &Path, stop: &StopHandle) -> ShardConfig {
    let map = map(directory);
    let address: Address = map.data[0].address.parse().expect("a good address");
    ShardConfig {
        server: SERVER,
        fs_id: map.fs_id,
        fs_name: map.fs_name,
        keys: Some(KEY.into()),
        encrypt_tcp: false,
        listen: vec![address],
        disk: DiskConfig::Directory(directory.to_path_buf()),
        servers: Vec::new(),
        share_memory: true,
        stop: stop.clone(),
        log: Log::new(|_| {}),
    }
}

/// Runs a server while `work` does something with it, then asks it to stop.
#[allow(clippy::disallowed_methods)] // client and server are two processes in life
fn with_server<T: Send + 'static>(
    directory: &Path,
    durability: Durability,
    work: impl FnOnce(&ClientRt) -> T + Send + 'static,
) -> (T, Option<std::result::Result<(), ServerError>>) {
    let stop = StopHandle::new().expect("an event");
    let map = map(directory);
    let serving = ServingConfig {
        create: true,
        meets: Meets::Nobody,
        durability,
        // No round comes by itself within these tests.
        batch_interval_ns: 3600 * SECOND,
        ..ServingConfig::new(SERVER, map.clone(), KEY)
    };
    let config = DataServerConfig::new(serving);
    let asked = stop.clone();
    let client = std::thread::spawn(move || {
        let config = ClientConfig { client: CLIENT, ..ClientConfig::from_map(&map, Some(KEY.into())).expect("good addresses") };
        let done = work(&ClientRt::new(config));
        asked.stop();
        done
    });
    let ended = serve(shard(directory, &stop), |rt| run(rt, config)).expect("it listens");
    (client.join().expect("the client does not panic"), ended)
}

/// Asks until the server is there.
async fn call<O: Operation>(rt: &ClientRt, sequence: u64, operation: &O, bulk: &[u8]) -> Result<Vec<u8>> {
    let request = RequestId { client: CLIENT, incarnation: 1, sequence };
    let deadline = rt.now() + 20 * SECOND;
    loop {
        let header = Header::request(O::OP, SERVER, request, 0);
        let bulk = if bulk.is_empty() { Bulk::None } else { Bulk::Slices(vec![bulk]) };
        match rt.request(SERVER, Outgoing { header, body: operation.to_bytes(), bulk }, deadline).await {
            Err(Status::Unreachable) if rt.now() < deadline => rt.sleep_until(rt.now() + 10 * MILLISECOND).await,
            other => {
                let reply = other?;
                reply.status()?;
                return Ok(reply.bulk.to_bytes().to_vec());
            }
        }
    }
}

fn capability(rights: Rights) -> Capability {
    Capability::sign(&KEY, Handle(1), CLIENT, rights, WallTime(i64::MAX))
}

fn write_all(rt: &ClientRt, data: &[u8]) {
    let pieces = vec![Piece { offset: 0, bytes: data.len() as u32 }];
    let capability = capability(Rights::WRITE);
    let request = WriteRequest { handle: Handle(1), index: 0, capability, pieces, mtime_epoch: 0, sync: false, ceiling: None };
    rt.block_on(call(rt, 1, &request, data)).expect("written");
}

fn read_all(rt: &ClientRt) -> Vec<u8> {
    let pieces = vec![Piece { offset: 0, bytes: 8 << 20 }];
    let request = ReadRequest { handle: Handle(1), index: 0, capability: capability(Rights::READ), pieces };
    rt.block_on(call(rt, 2, &request, &[])).expect("read")
}

/// As if the machine had started anew since.
fn forget_boot(directory: &Path) {
    let stop = StopHandle::new().expect("an event");
    let config = ShardConfig { listen: Vec::new(), ..shard(directory, &stop) };
    let done = serve(config, |rt| async move {
        let superblock = Superblock::load(rt.disk()).await.expect("readable").expect("there");
        let boot_id = rt.disk().boot_id().wrapping_add(1);
        Superblock { boot_id, ..superblock }.store(rt.disk()).await.expect("stored");
    });
    assert_eq!(done.expect("it ran"), Some(()));
}

#[test]
fn a_server_that_is_asked_to_stop_loses_nothing_when_the_machine_restarts() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let data: Vec<u8> = (0..3u32 << 20).map(|n| (n % 251) as u8).collect();
    let durability = Durability::Batch;
    let written = data.clone();
    let ((), ended) = with_server(directory.path(), durability, move |rt| write_all(rt, &written));
    assert_eq!(ended, Some(Ok(())), "it ends by itself");
    forget_boot(directory.path());
    let (seen, _) = with_server(directory.path(), durability, read_all);
    assert!(seen == data, "{} of {} bytes are left", seen.len(), data.len());
}
