//! The steps of a workload by the client library: every client a flow on the machine of its
//! process.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use weft_base::{Credentials, Handle, Payload, ROOT_HANDLE};
use weft_client::{ClassicClient, Client, CreateOptions, OpenFile, XattrFlags};
use weft_layout::HintName;
use weft_rt::Bulk;
use weft_rt_sim::SimRt;
use weft_steps::{Part, StepError, Surroundings};
use weft_workload::{Block, BlockOrder, Dirs, Items, Protocol, Sharing, WorkStep, Workload};

use crate::cluster::Cluster;
use crate::{PhaseReport, VirtualError};

const WHO: Credentials = Credentials::ROOT;
/// Bytes of one page of a listing.
const LIST_BYTES: u32 = 64 << 10;

/// A workload under way.
pub(crate) struct Driver<'a> {
    cluster: &'a Cluster,
    work: &'a Workload,
    /// The same for flows.
    shared: Rc<Workload>,
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
    let mut driver = Driver { cluster, work, shared: Rc::new(work.clone()), dirs: Vec::new(), handles, files: Vec::new() };
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

/// Bytes of a simulation, and what was done.
struct Synthetic {
    client: u64,
    done: Cell<(u64, u64)>,
}

impl Surroundings for Synthetic {
    type Marks = ();

    fn marks(&self, _: u64, _: &[Block]) {}

    fn bytes<'b>(&'b self, blocks: &[Block], _: &'b ()) -> Bulk<'b> {
        Bulk::Synthetic { len: blocks.iter().map(|block| block.bytes).sum(), tag: self.client + 1 }
    }

    fn check(&self, _: &[Payload], _: u64, _: Block) -> Result<(), String> {
        Ok(())
    }

    fn count(&self, operations: u64, bytes: u64) {
        let (before, bytes_before) = self.done.get();
        self.done.set((before + operations, bytes_before + bytes));
    }
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
            WorkStep::Remove if !self.files.is_empty() => return Err(VirtualError::Invalid(format!("no step {} here", step.name()))),
            _ => {}
        }
        self.cluster.phase(step.name(), self.work, |index, client| self.part(step, index, client))
    }

    /// One client's part of a step: how many operations and bytes.
    fn part(&self, step: WorkStep, index: usize, client: Client<SimRt>) -> impl Future<Output = Result<(u64, u64), VirtualError>> + use<> {
        let (work, number) = (self.shared.clone(), index as u64);
        let (dir, file) = (self.dirs.get(index).copied(), self.files.get(index).cloned());
        let handles = self.handles[index].clone();
        async move {
            let around = Synthetic { client: number, done: Cell::default() };
            let classic = (work.protocol == Protocol::Classic).then(|| ClassicClient::new(client.clone()));
            let part = Part {
                client: &client,
                classic: classic.as_ref(),
                who: &WHO,
                work: &work,
                number,
                batch: 1,
                list_bytes: LIST_BYTES,
                around: &around,
            };
            let (dir, file) = (dir.unwrap_or(ROOT_HANDLE), || file.as_deref().expect("it was opened before"));
            let names: Vec<Bytes> = (0..work.files).map(|file| Bytes::from(format!("file.{index}.{file}"))).collect();
            let done = match step {
                WorkStep::Create => part.create(dir, &names).await.map(|made| *handles.borrow_mut() = made),
                WorkStep::Stat => {
                    let handles = handles.borrow().clone();
                    part.stat(dir, &names, &handles).await
                }
                WorkStep::Readdir => part.list(dir).await,
                WorkStep::Write => part.write(file(), 0).await,
                WorkStep::Read => part.read(file(), 0, work.depth as usize).await,
                WorkStep::Remove => part.remove(dir, &names).await,
                WorkStep::ReadMany => {
                    let files: Vec<_> = names.into_iter().zip(0..).map(|(name, number)| (dir, name, number)).collect();
                    part.read_many(&files).await
                }
            };
            done.map_err(|failure| match failure {
                StepError::Refused(error) => VirtualError::Failed(step.name().into(), error.status),
                StepError::Wrong(what) => VirtualError::Stuck(format!("client {index}: {what}")),
            })?;
            Ok(around.done.get())
        }
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
