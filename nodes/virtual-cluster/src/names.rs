//! Making, asking for and removing files.

use std::cell::RefCell;
use std::rc::Rc;

use bytes::Bytes;
use weft_base::{Credentials, Handle, ROOT_HANDLE};
use weft_client::{CreateOptions, run_window};
use weft_trace::own_context;

use crate::cluster::Cluster;
use crate::{Directories, PhaseReport, VirtualError};

const WHO: Credentials = Credentials::ROOT;

fn failed(what: &'static str) -> impl Fn(weft_client::Error) -> VirtualError {
    move |error| VirtualError::Failed(what.into(), error.status)
}

pub(crate) fn run(cluster: &Cluster, files: u64, window: usize, directories: Directories) -> Result<Vec<PhaseReport>, VirtualError> {
    if files == 0 || window == 0 {
        return Err(VirtualError::Invalid("a workload needs files and a window".into()));
    }
    let dirs = make_directories(cluster, directories)?;
    let names = |client: usize| (0..files).map(move |file| Bytes::from(format!("file.{client}.{file}")));
    // What the creates found out, for the questions that follow.
    let handles: Vec<Rc<RefCell<Vec<Handle>>>> = (0..cluster.clients.len()).map(|_| Rc::default()).collect();

    let create = cluster.phase("create", |index, client, _| {
        let (dir, names, handles) = (dirs[index], names(index), handles[index].clone());
        async move {
            let options = CreateOptions { exclusive: true, ..CreateOptions::default() };
            let flows = names.map(|name| {
                let (client, options) = (&client, &options);
                own_context(async move { client.create_many(&WHO, dir, &[name], options).await.remove(0) })
            });
            for attr in run_window(flows, window).await {
                handles.borrow_mut().push(attr.map_err(failed("create"))?.handle);
            }
            Ok((files, 0))
        }
    })?;
    let stat = cluster.phase("stat", |index, client, _| {
        let handles = handles[index].clone();
        async move {
            let handles = handles.take();
            let flows = handles.iter().map(|handle| own_context(client.getattr(*handle)));
            run_window(flows, window).await.into_iter().try_for_each(|attr| attr.map(drop)).map_err(failed("stat"))?;
            Ok((files, 0))
        }
    })?;
    let remove = cluster.phase("remove", |index, client, _| {
        let (dir, names) = (dirs[index], names(index));
        async move {
            let flows = names.map(|name| {
                let client = &client;
                own_context(async move { client.unlink(&WHO, dir, &name).await })
            });
            run_window(flows, window).await.into_iter().collect::<Result<(), _>>().map_err(failed("remove"))?;
            Ok((files, 0))
        }
    })?;
    Ok(vec![create, stat, remove])
}

/// One directory for each client, which may all be the same.
fn make_directories(cluster: &Cluster, directories: Directories) -> Result<Vec<Handle>, VirtualError> {
    let (node, client) = cluster.clients[0].clone();
    let count = cluster.clients.len();
    let made = cluster.sim.spawn_on(node, move |_| async move {
        let mut dirs = Vec::new();
        for index in 0..if directories == Directories::Shared { 1 } else { count } {
            dirs.push(client.mkdir(&WHO, ROOT_HANDLE, format!("dir.{index}").as_bytes(), 0o755).await?.handle);
        }
        dirs.resize(count, dirs[0]);
        Ok(dirs)
    });
    cluster.wait(&[made])?.remove(0).map_err(failed("mkdir"))
}
