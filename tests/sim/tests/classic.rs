//! A crash between the steps of the classic protocol (`docs/semantics.md`, "Directory hints"): what
//! stays behind is bounded, and nothing fails because of it.

use bytes::Bytes;
use weft_base::{Credentials, ROOT_HANDLE, SECOND, ServerRole};
use weft_client::{ClassicClient, Client, XattrFlags};
use weft_layout::HintName;
use weft_rt::{Bulk, Runtime};
use weft_rt_sim::{Fault, NodeId, SimRt};
use weft_sim_tests::cluster::ClusterConfig;
use weft_sim_tests::stage::Stage;

const WHO: Credentials = Credentials::ROOT;
/// Datafiles of a file without the hint.
const WIDTH: u64 = 2;
const LIMIT_NS: u64 = 200 * SECOND;

/// Whose process dies.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Victim {
    Client,
    Server(usize),
}

/// What was there when everything was removed that has a name.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Left {
    inodes: u64,
    datafiles: u64,
}

/// Three files made and one removed, step by step, while somebody dies after so many polls. Says
/// what stays, and whether the steps came to their end before.
fn crash_after(polls: u64, victim: Victim, no_metafile: bool) -> (Left, bool) {
    let config = ClusterConfig { meta: 1, data: WIDTH as usize, ..ClusterConfig::small() };
    let mut stage = Stage::new(7, &config, 0);
    stage.wait_for_servers().expect("they start");
    let dir = stage
        .with_auditor(async move |worker| {
            let client = &worker.client;
            let dir = client.mkdir(&WHO, ROOT_HANDLE, b"d", 0o755).await.map_err(|error| error.to_string())?.handle;
            if no_metafile {
                let name = HintName::NoMetafile.attribute().as_bytes();
                client.set_xattr(&WHO, dir, name, b"1", XattrFlags::default()).await.map_err(|error| error.to_string())?;
            }
            Ok(dir)
        })
        .expect("a directory is made");
    let (node, client) = stage.cluster.add_client("classic", 5 * SECOND);
    let dies: NodeId = match victim {
        Victim::Client => node,
        Victim::Server(index) => stage.cluster.servers()[index],
    };
    stage.sim.strike_after_polls(dies, polls, Fault::Crash { node: dies, down_ns: SECOND });
    let steps = stage.sim.spawn_on(node, move |_| async move {
        let classic = ClassicClient::new(client);
        for name in [&b"a"[..], b"b", b"c"] {
            // Whoever fails goes on with the next file, as `tar` does.
            let _ = classic.create(&WHO, dir, name, 0o644).await;
        }
        let _ = classic.remove(&WHO, dir, b"b").await;
    });
    let limit = stage.sim.now() + LIMIT_NS;
    stage.sim.run_until_true(limit, || steps.is_over()).expect("it ends or dies");
    let came_to_its_end = stage.sim.is_running(dies) || victim != Victim::Client;
    stage.recover().expect("every server comes back");
    let left = stage.with_auditor(async move |worker| examine(&worker.client, dir).await).expect("what has a name is as any other");
    (left, came_to_its_end)
}

/// Every file with a name is an ordinary one, whatever stayed behind; then it is removed, and the
/// rest is counted.
async fn examine(client: &Client<SimRt>, dir: weft_base::Handle) -> Result<Left, String> {
    let words = |error: weft_client::Error| error.to_string();
    for name in [&b"a"[..], b"b", b"c"] {
        match client.lookup(&WHO, dir, name).await {
            Err(error) if error.status == weft_base::Status::NotFound => continue,
            found => drop(found.map_err(words)?),
        }
        let (_, file, _) = client.create(&WHO, dir, name, &Default::default()).await.map_err(words)?;
        client.write(&file, 5000, Bulk::Slices(vec![b"content"])).await.map_err(words)?;
        let read = weft_base::Payload::concat(&client.read(&file, 0, 9000).await.map_err(words)?);
        let expected = [vec![0; 5000], b"content".to_vec()].concat();
        if read != expected {
            return Err(format!("{} has other bytes", Bytes::copy_from_slice(name).escape_ascii()));
        }
        client.close(file).await.map_err(words)?;
        client.unlink(&WHO, dir, name).await.map_err(words)?;
    }
    client.rmdir(&WHO, ROOT_HANDLE, b"d").await.map_err(words)?;
    client.rt().sleep_until(client.rt().now() + 60 * SECOND).await;
    let mut left = Left::default();
    for (server, info) in client.ping_all().await {
        let objects = info.map_err(words)?.objects;
        match server.role() {
            // The root directory has no name, and stays.
            ServerRole::Meta => left.inodes += objects - 1,
            ServerRole::Data => left.datafiles += objects,
        }
    }
    Ok(left)
}

#[test]
fn a_client_that_dies_between_two_steps_leaves_one_file_without_a_name_at_most() {
    for (no_metafile, inodes, datafiles) in [(false, 1, WIDTH), (true, 0, 1)] {
        let mut seen = Left::default();
        for polls in 1..120 {
            let (left, came_to_its_end) = crash_after(polls, Victim::Client, no_metafile);
            assert!(left.inodes <= inodes && left.datafiles <= datafiles, "no_metafile {no_metafile}, after {polls} polls: {left:?}");
            seen = Left { inodes: seen.inodes.max(left.inodes), datafiles: seen.datafiles.max(left.datafiles) };
            if came_to_its_end {
                break;
            }
        }
        assert_eq!(seen, Left { inodes, datafiles }, "no_metafile {no_metafile}: crashes have met every step");
    }
}

#[test]
fn a_server_that_dies_between_two_steps_costs_nothing_but_time() {
    for no_metafile in [false, true] {
        for server in 0..=WIDTH as usize {
            for polls in (1..60).step_by(3) {
                let (left, _) = crash_after(polls, Victim::Server(server), no_metafile);
                assert_eq!(left, Left::default(), "no_metafile {no_metafile}, server {server} after {polls} polls");
            }
        }
    }
}
