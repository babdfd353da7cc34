//! The hottest paths of Weft, each repeated in virtual time: real client, real servers, one thread,
//! nothing left to chance. So the instructions of two runs of different length, subtracted and
//! divided, are those of one operation on both sides. `cargo xtask counts` runs this under
//! callgrind, takes the simulator out, and compares with the recorded counts.

use std::process::ExitCode;

use weft_base::{Credentials, Handle, ROOT_HANDLE, SECOND};
use weft_client::{Client, CreateOptions, RenameFlags};
use weft_posix::InodeNumber;
use weft_rt::Bulk;
use weft_rt_sim::{Profile, Sim, SimRt};
use weft_sim_tests::cluster::{Cluster, ClusterConfig};
use weft_sim_tests::mount::{Mount, caller};

const WHO: Credentials = Credentials::ROOT;
/// More virtual time than any run needs, in nanoseconds.
const LIMIT_NS: u64 = 3600 * SECOND;
/// Names in the directory that is listed.
const LISTED: u64 = 100;
const PATHS: [&str; 12] =
    ["create", "life", "mkdir", "lookup", "getattr", "open", "list", "rename", "write-4k", "read-4k", "untold-create", "untold-life"];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [path, times] = arguments.as_slice() else {
        PATHS.iter().for_each(|path| println!("{path}"));
        return ExitCode::SUCCESS;
    };
    let (path, Ok(times)) = (path.clone(), times.parse::<u64>()) else {
        eprintln!("usage: hot_paths [PATH TIMES]");
        return ExitCode::FAILURE;
    };
    if !PATHS.contains(&path.as_str()) {
        eprintln!("no such path: {path}");
        return ExitCode::FAILURE;
    }
    let sim = Sim::new(1, Profile::default());
    let cluster = Cluster::start(&sim, &ClusterConfig::small());
    if let Some(step) = path.strip_prefix("untold-") {
        let (mount, removes) = (Mount::new(&sim, &cluster, "mount", None), step == "life");
        sim.block_on(mount.node, LIMIT_NS, |_| async move { walk_untold(&mount, removes, times).await.expect("nothing fails here") })
            .expect("it comes to an end");
        return ExitCode::SUCCESS;
    }
    let (node, client) = cluster.add_client("client", 30 * SECOND);
    sim.block_on(node, LIMIT_NS, |_| async move {
        while client.ping_all().await.iter().any(|(_, answer)| answer.as_ref().map_or(true, |info| info.state != "serving")) {}
        walk(&client, &path, times).await.expect("nothing fails here");
    })
    .expect("it comes to an end");
    ExitCode::SUCCESS
}

async fn walk(client: &Client<SimRt>, path: &str, times: u64) -> weft_client::Result<()> {
    let dir = client.mkdir(&WHO, ROOT_HANDLE, b"dir", 0o755).await?.handle;
    let name = |index: u64| format!("file.{index}");
    let options = CreateOptions { exclusive: true, ..CreateOptions::default() };
    let (first, file, _) = client.create(&WHO, dir, b"first", &options).await?;
    match path {
        "create" => {
            for index in 0..times {
                make(client, dir, &name(index)).await?;
            }
        }
        "life" => {
            for index in 0..times {
                make(client, dir, &name(index)).await?;
                client.unlink(&WHO, dir, name(index).as_bytes()).await?;
            }
        }
        "mkdir" => {
            for index in 0..times {
                client.mkdir(&WHO, dir, name(index).as_bytes(), 0o755).await?;
            }
        }
        "lookup" => {
            for _ in 0..times {
                client.lookup(&WHO, dir, b"first").await?;
            }
        }
        "getattr" => {
            client.close(file).await?;
            for _ in 0..times {
                client.getattr(first.handle).await?;
            }
        }
        "open" => {
            client.close(file).await?;
            for _ in 0..times {
                let (_, file) = client.open(&WHO, first.handle, options.rights, false).await?;
                client.close(file).await?;
            }
        }
        "list" => {
            for index in 0..LISTED {
                make(client, dir, &name(index)).await?;
            }
            for _ in 0..times {
                client.readdir(&WHO, dir, 0, 1 << 20, true).await?;
            }
        }
        "rename" => {
            for index in 0..times {
                let from = if index == 0 { "first".into() } else { name(index - 1) };
                client.rename(&WHO, dir, from.as_bytes(), dir, name(index).as_bytes(), RenameFlags::default()).await?;
            }
        }
        "write-4k" => {
            let block = [7; 4096];
            for index in 0..times {
                client.write(&file, index * 4096, Bulk::Slices(vec![&block])).await?;
            }
        }
        _ => {
            client.write(&file, 0, Bulk::Slices(vec![&[7; 4096]])).await?;
            for _ in 0..times {
                client.read(&file, 0, 4096).await?;
            }
        }
    }
    Ok(())
}

async fn make(client: &Client<SimRt>, dir: Handle, name: &str) -> weft_client::Result<()> {
    let (_, file, _) = client.create(&WHO, dir, name.as_bytes(), &CreateOptions { exclusive: true, ..CreateOptions::default() }).await?;
    client.close(file).await
}

/// Files that a mount makes without asking, in a directory of its own, and tells its server of.
async fn walk_untold(mount: &Mount, removes: bool, times: u64) -> weft_client::Result<()> {
    let who = caller(1, 0);
    let root = InodeNumber::of(ROOT_HANDLE);
    let dir = mount.make(root, "dir", mount.posix.mkdir(&WHO, root, b"dir", 0o755)).await?;
    for index in 0..times {
        let file = mount.create(&who, dir, &format!("file.{index}"), 0o644).await?;
        mount.release(file.opened.number).await;
        if removes {
            mount.remove(&who, dir, &format!("file.{index}"), false).await?;
        }
    }
    mount.posix.settle(SECOND).await;
    Ok(())
}
