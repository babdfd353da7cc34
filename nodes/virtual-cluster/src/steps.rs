//! The steps of a workload by the client library: every client a flow on the machine of its
//! process.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use weft_base::{Credentials, Handle, ROOT_HANDLE};
use weft_client::{ClassicClient, CreateOptions, OpenFile, XattrFlags, run_window};
use weft_layout::HintName;
use weft_rt::Bulk;
use weft_workload::{BlockOrder, Dirs, Items, Protocol, Sharing, WorkStep, Workload};

use crate::cluster::Cluster;
use crate::{PhaseReport, VirtualError};

const WHO: Credentials = Credentials::ROOT;
/// Bytes of one page of a listing.
const LIST_BYTES: u32 = 64 << 10;

/// A workload under way.
pub(crate) struct Driver<'a> {
    cluster: &'a Cluster,
    work: &'a Workload,
    /// Where each client makes its files; empty before the first.
    dirs: Vec<Handle>,
    /// What the creates of each client found out, for the questions that follow.
    handles: Vec<Rc<RefCell<Vec<Handle>>>>,
    /// What each client writes and reads; empty before the first.
    files: Vec<Arc<OpenFile>>,
}

fn failed(what: &'static str) -> impl Fn(weft_client::Error) -> VirtualError {
    move |error| VirtualError::Failed(what.into(), error.status)
}

/// Says what is missing in a workload, or what clients in virtual time do not do.
fn check(work: &Workload) -> Result<(), VirtualError> {
    let Workload { files, size, block, depth, items, longer, order, .. } = *work;
    let steps: Vec<WorkStep> = work.steps.before.iter().copied().chain(work.steps.cycle.iter().map(|(step, _)| *step)).collect();
    let streams = steps.iter().any(|step| step.is_stream());
    let problem = match streams {
        _ if items != Items::default() || longer > 0 || order != BlockOrder::Ascending => "clients in virtual time have no such work",
        true if size == 0 || block == 0 || depth == 0 => "a workload needs bytes, a block size and a window",
        true if files != 1 => "clients in virtual time write and read one file each",
        false if files == 0 || depth == 0 => "a workload needs files and a window",
        false if size > block => "files that clients in virtual time make are of one block",
        false if size > 0 && work.protocol == Protocol::Classic => "files of the classic protocol are empty",
        _ => return Ok(()),
    };
    Err(VirtualError::Invalid(problem.into()))
}

/// Runs all steps up to the last one that is told.
pub(crate) fn run(cluster: &Cluster, work: &Workload) -> Result<Vec<PhaseReport>, VirtualError> {
    check(work)?;
    let handles = (0..work.clients_in_all()).map(|_| Rc::default()).collect();
    let mut driver = Driver { cluster, work, dirs: Vec::new(), handles, files: Vec::new() };
    for step in &work.steps.before {
        driver.step(*step)?;
    }
    let cycle = &work.steps.cycle;
    // Nothing needs to be cleaned up.
    let last = cycle.iter().rposition(|(_, is_told)| *is_told).map_or(0, |last| last + 1);
    let mut phases = Vec::new();
    for repetition in 1..=work.repetitions {
        let wanted = if repetition == work.repetitions { last } else { cycle.len() };
        for (step, is_told) in &cycle[..wanted] {
            let phase = driver.step(*step)?;
            phases.extend(is_told.then_some(phase));
        }
    }
    Ok(phases)
}

impl Driver<'_> {
    fn step(&mut self, step: WorkStep) -> Result<PhaseReport, VirtualError> {
        match step {
            WorkStep::Write | WorkStep::Read if self.files.is_empty() => self.files = self.open()?,
            WorkStep::Create if self.dirs.is_empty() => {
                self.dirs = self.make_directories()?;
                if self.work.dirs == Dirs::Split {
                    self.find_directory()?;
                }
            }
            _ => {}
        }
        match step {
            WorkStep::Create if self.is_classic() => self.classic_create(),
            WorkStep::Remove if self.is_classic() => self.classic_remove(),
            WorkStep::Create if self.work.size > 0 => self.create_written(),
            WorkStep::Create => self.create(),
            WorkStep::ReadMany => self.read_many(),
            WorkStep::Stat => self.stat(),
            WorkStep::Remove if self.files.is_empty() => self.remove(),
            WorkStep::Write => self.write(),
            WorkStep::Read => self.read(),
            WorkStep::Readdir => self.list(),
            WorkStep::Remove => Err(VirtualError::Invalid(format!("no step {} here", step.name()))),
        }
    }

    fn window(&self) -> usize {
        self.work.depth as usize
    }

    fn names(&self, client: usize) -> impl Iterator<Item = Bytes> + use<> {
        (0..self.work.files).map(move |file| Bytes::from(format!("file.{client}.{file}")))
    }

    fn create(&self) -> Result<PhaseReport, VirtualError> {
        let (files, window) = (self.work.files, self.window());
        self.cluster.phase("create", self.work, |index, client| {
            let (dir, names, handles) = (self.dirs[index], self.names(index), self.handles[index].clone());
            async move {
                let options = CreateOptions { exclusive: true, ..CreateOptions::default() };
                let flows = names.map(|name| {
                    let (client, options) = (&client, &options);
                    async move { client.create_many(&WHO, dir, &[name], options).await.remove(0) }
                });
                for attr in run_window(flows, window).await {
                    handles.borrow_mut().push(attr.map_err(failed("create"))?.handle);
                }
                Ok((files, 0))
            }
        })
    }

    fn create_written(&self) -> Result<PhaseReport, VirtualError> {
        let (files, window, len) = (self.work.files, self.window(), self.work.size);
        self.cluster.phase("create", self.work, |index, client| {
            let (dir, names, handles) = (self.dirs[index], self.names(index), self.handles[index].clone());
            async move {
                let options = CreateOptions { exclusive: true, ..CreateOptions::default() };
                let flows = names.map(|name| {
                    let (client, options) = (&client, &options);
                    async move {
                        let (attr, file, _) = client.create(&WHO, dir, &name, options).await?;
                        client.write(&file, 0, Bulk::Synthetic { len, tag: index as u64 + 1 }).await?;
                        client.close(file).await.map(|()| attr.handle)
                    }
                });
                for handle in run_window(flows, window).await {
                    handles.borrow_mut().push(handle.map_err(failed("create"))?);
                }
                Ok((files, files * len))
            }
        })
    }

    /// Whole files in a drawn order, many in a call.
    fn read_many(&self) -> Result<PhaseReport, VirtualError> {
        let (window, bytes) = (self.window(), self.work.size);
        self.cluster.phase("read-many", self.work, |index, client| {
            let (dir, names) = (self.dirs[index], self.names(index).collect::<Vec<Bytes>>());
            let calls = self.work.drawn_calls(index as u64, names.len());
            async move {
                let named = |call: Vec<usize>| call.into_iter().map(|number| (dir, names[number].clone())).collect();
                let calls: Vec<Vec<_>> = calls.into_iter().map(named).collect();
                let who = WHO;
                let flows = calls.iter().map(|call| client.read_many(&who, call));
                for file in run_window(flows, window).await.into_iter().flatten() {
                    let read = file.map_err(failed("read-many"))?.data.len();
                    if read != bytes {
                        return Err(VirtualError::Stuck(format!("client {index} read a file of {bytes} bytes as one of {read}")));
                    }
                }
                Ok((names.len() as u64, names.len() as u64 * bytes))
            }
        })
    }

    fn is_classic(&self) -> bool {
        self.work.protocol == Protocol::Classic
    }

    fn classic_create(&self) -> Result<PhaseReport, VirtualError> {
        let (files, window) = (self.work.files, self.window());
        self.cluster.phase("create", self.work, |index, client| {
            let (dir, names) = (self.dirs[index], self.names(index));
            async move {
                let classic = ClassicClient::new(client);
                let flows = names.map(|name| {
                    let classic = &classic;
                    async move { classic.create(&WHO, dir, &name, 0o644).await }
                });
                run_window(flows, window).await.into_iter().collect::<Result<(), _>>().map_err(failed("create"))?;
                Ok((files, 0))
            }
        })
    }

    fn classic_remove(&self) -> Result<PhaseReport, VirtualError> {
        let (files, window) = (self.work.files, self.window());
        self.cluster.phase("remove", self.work, |index, client| {
            let (dir, names) = (self.dirs[index], self.names(index));
            async move {
                let classic = ClassicClient::new(client);
                let flows = names.map(|name| {
                    let classic = &classic;
                    async move { classic.remove(&WHO, dir, &name).await }
                });
                run_window(flows, window).await.into_iter().collect::<Result<(), _>>().map_err(failed("remove"))?;
                Ok((files, 0))
            }
        })
    }

    /// Lists the directory of each client with the attributes of its entries.
    fn list(&self) -> Result<PhaseReport, VirtualError> {
        let (classic, attrs) = (self.is_classic(), self.work.attrs);
        self.cluster.phase("readdir", self.work, |index, client| {
            let dir = self.dirs[index];
            async move {
                if classic {
                    return Ok((ClassicClient::new(client).list(&WHO, dir).await.map_err(failed("readdir"))?, 0));
                }
                let (mut cookie, mut listed) = (0, 0);
                loop {
                    let page = client.readdir(&WHO, dir, cookie, LIST_BYTES, attrs).await.map_err(failed("readdir"))?;
                    listed += page.entries.len() as u64;
                    match page.entries.last() {
                        Some(last) if !page.end => cookie = last.cookie,
                        _ => return Ok((listed, 0)),
                    }
                }
            }
        })
    }

    /// One look at a name after the other, or so many handles in one call as there may be requests
    /// in flight: as programs do it that know the library.
    fn stat(&self) -> Result<PhaseReport, VirtualError> {
        let (files, window) = (self.work.files, self.window());
        self.cluster.phase("stat", self.work, |index, client| {
            let (dir, names, handles) = (self.dirs[index], self.names(index), self.handles[index].borrow().clone());
            async move {
                if window == 1 {
                    for name in names {
                        client.lookup(&WHO, dir, &name).await.map_err(failed("stat"))?;
                    }
                    return Ok((files, 0));
                }
                for handles in handles.chunks(window) {
                    client.stat_many(handles).await.into_iter().try_for_each(|attr| attr.map(drop)).map_err(failed("stat"))?;
                }
                Ok((files, 0))
            }
        })
    }

    fn remove(&self) -> Result<PhaseReport, VirtualError> {
        let (files, window) = (self.work.files, self.window());
        self.handles.iter().for_each(|handles| handles.borrow_mut().clear());
        self.cluster.phase("remove", self.work, |index, client| {
            let (dir, names) = (self.dirs[index], self.names(index));
            async move {
                let flows = names.map(|name| {
                    let client = &client;
                    async move { client.unlink(&WHO, dir, &name).await }
                });
                run_window(flows, window).await.into_iter().collect::<Result<(), _>>().map_err(failed("remove"))?;
                Ok((files, 0))
            }
        })
    }

    fn write(&self) -> Result<PhaseReport, VirtualError> {
        let (window, fsync) = (self.window(), self.work.fsync);
        self.cluster.phase("write", self.work, |index, client| {
            let (file, calls, bytes) = (self.files[index].clone(), self.calls(index), self.work.size);
            async move {
                let flows = calls.iter().map(|call| {
                    let (client, file) = (&client, &file);
                    let len = call.iter().map(|(_, bytes)| bytes).sum();
                    async move { client.write_list(file, call, Bulk::Synthetic { len, tag: index as u64 + 1 }).await }
                });
                run_window(flows, window).await.into_iter().collect::<Result<(), _>>().map_err(failed("write"))?;
                if fsync {
                    client.fsync(&file, false).await.map_err(failed("fsync"))?;
                }
                Ok((calls.len() as u64, bytes))
            }
        })
    }

    fn read(&self) -> Result<PhaseReport, VirtualError> {
        let window = self.window();
        self.cluster.phase("read", self.work, |index, client| {
            let (file, calls, bytes) = (self.files[index].clone(), self.calls(index), self.work.size);
            async move {
                let flows = calls.iter().map(|call| {
                    let (client, file) = (&client, &file);
                    client.read_list(file, call)
                });
                let mut read = 0;
                for pieces in run_window(flows, window).await {
                    read += pieces.map_err(failed("read"))?.iter().flatten().map(|piece| piece.len()).sum::<u64>();
                }
                if read != bytes {
                    return Err(VirtualError::Stuck(format!("client {index} read {read} of {bytes} bytes")));
                }
                Ok((calls.len() as u64, read))
            }
        })
    }

    /// What one client does, call by call: offset and length of each block.
    fn calls(&self, client: usize) -> Vec<Vec<(u64, u64)>> {
        let ranges = |call: Vec<weft_workload::Block>| call.iter().map(|block| (block.offset, block.bytes)).collect();
        self.work.calls_of(client as u64, 0).map(ranges).collect()
    }

    /// Makes and opens the files: one for each client, which may all be the same.
    fn open(&self) -> Result<Vec<Arc<OpenFile>>, VirtualError> {
        let flows = self.cluster.clients_of(self.work).enumerate().map(|(index, (node, client))| {
            let client = client.clone();
            let strips = self.cluster.strips.clone();
            let name = if self.work.sharing == Sharing::Own { format!("file.{index}") } else { "file".into() };
            self.cluster.sim.spawn_on(*node, move |_| async move {
                let options = CreateOptions { strips, ..CreateOptions::default() };
                client.create(&WHO, ROOT_HANDLE, name.as_bytes(), &options).await.map(|(_, file, _)| file)
            })
        });
        let flows: Vec<_> = flows.collect();
        self.cluster.wait(&flows)?.into_iter().map(|file| file.map_err(failed("create"))).collect()
    }

    /// Every process looks for the one directory, as each does that is given its path: so it hears
    /// where its names are.
    fn find_directory(&self) -> Result<(), VirtualError> {
        let flows = self.cluster.clients.iter().map(|(node, client)| {
            let client = client.clone();
            self.cluster.sim.spawn_on(*node, move |_| async move { client.lookup(&WHO, ROOT_HANDLE, b"dir.0").await.map(drop) })
        });
        let flows: Vec<_> = flows.collect();
        self.cluster.wait(&flows)?.into_iter().try_for_each(|found| found.map_err(failed("lookup")))
    }

    /// One directory for each client, which may all be the same.
    fn make_directories(&self) -> Result<Vec<Handle>, VirtualError> {
        let (node, client) = self.cluster.clients[0].clone();
        let (count, dirs, no_metafile) = (self.work.clients_in_all() as usize, self.work.dirs, self.work.no_metafile);
        let made = self.cluster.sim.spawn_on(node, move |_| async move {
            let mut made = Vec::new();
            if dirs == Dirs::Split {
                let name = HintName::Presplit.attribute().as_bytes();
                client.set_xattr(&WHO, ROOT_HANDLE, name, b"all", XattrFlags::default()).await?;
            }
            for index in 0..if dirs == Dirs::Own { count } else { 1 } {
                let dir = client.mkdir(&WHO, ROOT_HANDLE, format!("dir.{index}").as_bytes(), 0o755).await?.handle;
                if no_metafile {
                    let flags = XattrFlags { create_only: false, replace_only: false };
                    client.set_xattr(&WHO, dir, HintName::NoMetafile.attribute().as_bytes(), b"1", flags).await?;
                }
                made.push(dir);
            }
            made.resize(count, made[0]);
            Ok(made)
        });
        self.cluster.wait(&[made])?.remove(0).map_err(failed("mkdir"))
    }
}
