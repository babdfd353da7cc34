//! The steps of a workload by the client library: every client a flow on the machine of its
//! process.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use bytes::Bytes;
use weft_base::{Credentials, Handle, Payload, ROOT_HANDLE, SECOND};
use weft_client::{ClassicClient, Client, CreateOptions, XattrFlags};
use weft_layout::HintName;
use weft_posix::{Callers, Options, Posix};
use weft_rt::{Bulk, Runtime};
use weft_rt_sim::{NodeId, SimRt};
use weft_steps::{By, Part, StepError, Surroundings, WorkFile};
use weft_wire::Rights;
use weft_workload::{Block, BlockOrder, Dirs, Items, Protocol, Sharing, WorkStep, Workload};

use crate::cluster::Cluster;
use crate::{PhaseReport, VirtualError};

static WHO: Credentials = Credentials::ROOT;
/// Bytes of one page of a listing.
const LIST_BYTES: u32 = 64 << 10;
/// So many processes look for a split directory at once.
const FINDERS: usize = 64;
/// After so long servers grant leases to a client that has begun to hear notices, in nanoseconds.
const BEGUN_NS: u64 = SECOND;

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
    files: Vec<(Handle, Rc<WorkFile>)>,
    /// The layer below gateways of each process, if the work goes by it; empty before the first
    /// step.
    layers: Vec<Rc<Layer>>,
}

type Layer = Posix<SimRt, Callers>;

fn failed(what: &'static str) -> impl Fn(weft_client::Error) -> VirtualError {
    move |error| VirtualError::Failed(what.into(), error.status)
}

/// Says what is missing in a workload, or what clients in virtual time do not do.
///
/// # Errors
/// [`VirtualError::Invalid`] with that.
pub fn check(work: &Workload, has_strips: bool) -> Result<(), VirtualError> {
    let Workload { files, size, block, depth, items, longer, order, .. } = *work;
    let steps: Vec<WorkStep> = work.steps.before.iter().copied().chain(work.steps.cycle.iter().map(|(step, _)| *step)).collect();
    let streams = steps.iter().any(|step| step.is_stream());
    let problem = match streams {
        _ if items != Items::default() || longer > 0 || order != BlockOrder::Ascending => "clients in virtual time have no such work",
        true if size == 0 || block == 0 || depth == 0 => "a workload needs bytes, a block size and a window",
        true if files != 1 => "clients in virtual time write and read one file each: with more, leave `read` out of what is measured",
        false if files == 0 || depth == 0 => "a workload needs files and a window",
        false if size > block => "files that clients in virtual time make are of one block",
        false if size > 0 && work.protocol == Protocol::Classic => "files of the classic protocol are empty",
        true if has_strips && work.protocol == Protocol::Posix => "strips are for the protocol weft: set hints",
        true if work.protocol == Protocol::Classic => "files of the classic protocol are not written and read",
        _ => return Ok(()),
    };
    Err(VirtualError::Invalid(problem.into()))
}

/// Runs all steps up to the last one that is told.
pub(crate) fn run(cluster: &Cluster, work: &Workload) -> Result<Vec<PhaseReport>, VirtualError> {
    check(work, cluster.strips.is_some())?;
    let handles = (0..work.clients_in_all()).map(|_| Rc::default()).collect();
    let (dirs, files, layers) = (Vec::new(), Vec::new(), Vec::new());
    let mut driver = Driver { cluster, work, shared: Rc::new(work.clone()), dirs, handles, files, layers };
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

/// The layer below gateways on the machine of each process, with its flows, some time after it has
/// begun to hear notices.
fn layers_on(cluster: &Cluster) -> Result<Vec<Rc<Layer>>, VirtualError> {
    let layer_of = |(node, client): &(NodeId, Client<SimRt>)| {
        let layer = Rc::new(Posix::new(client.clone(), Callers, Options::for_callers(true)));
        layer.keep_leases_below();
        let [closer, keeper, mover] = [(); 3].map(|()| layer.clone());
        cluster.sim.spawn_on(*node, |_| async move { closer.close_in_background().await });
        cluster.sim.spawn_on(*node, |_| async move { keeper.keep_alive().await });
        cluster.sim.spawn_on(*node, |_| async move { mover.move_in_background().await });
        for server in client.map().meta.iter().map(|entry| entry.id) {
            let listener = layer.clone();
            cluster.sim.spawn_on(*node, move |_| async move { listener.hear_notices(server).await });
        }
        layer
    };
    let layers: Vec<Rc<Layer>> = cluster.clients.iter().map(layer_of).collect();
    let heard = cluster.clients.iter().zip(&layers).map(|((node, _), layer)| {
        let layer = layer.clone();
        cluster.sim.spawn_on(*node, |rt| async move {
            layer.meet_servers().await;
            rt.sleep_until(rt.now() + BEGUN_NS).await;
        })
    });
    cluster.wait(&heard.collect::<Vec<_>>())?;
    Ok(layers)
}

/// Bytes of a simulation, and what was done.
struct Simulated {
    client: u64,
    /// A block: the layer below gateways keeps only real bytes back. Empty: they are synthetic.
    zeros: Vec<u8>,
    done: Cell<(u64, u64)>,
}

impl Simulated {
    fn new(client: u64, work: &Workload) -> Simulated {
        let zeros = if work.protocol == Protocol::Posix { vec![0; work.block.min(work.size) as usize] } else { Vec::new() };
        Simulated { client, zeros, done: Cell::default() }
    }
}

impl Surroundings for Simulated {
    type Marks = ();

    fn marks(&self, _: u64, _: &[Block]) {}

    fn bytes<'b>(&'b self, blocks: &[Block], _: &'b ()) -> Bulk<'b> {
        if self.zeros.is_empty() {
            return Bulk::Synthetic { len: blocks.iter().map(|block| block.bytes).sum(), tag: self.client + 1 };
        }
        Bulk::Slices(blocks.iter().map(|block| &self.zeros[..block.bytes as usize]).collect())
    }

    fn check(&self, _: &[Payload], _: u64, _: Block) -> Result<(), String> {
        Ok(())
    }

    fn count(&self, operations: u64, bytes: u64) {
        let (before, bytes_before) = self.done.get();
        self.done.set((before + operations, bytes_before + bytes));
    }
}

fn part_of<'a>(client: &'a Client<SimRt>, by: By<'a, SimRt>, work: &'a Workload, around: &'a Simulated) -> Part<'a, SimRt, Simulated> {
    Part { client, by, who: &WHO, work, number: around.client, batch: 1, list_bytes: LIST_BYTES, around }
}

impl Driver<'_> {
    fn step(&mut self, step: WorkStep) -> Result<PhaseReport, VirtualError> {
        if step == WorkStep::Create && self.dirs.is_empty() {
            self.dirs = self.make_directories()?;
            if self.work.dirs == Dirs::Split {
                self.find_directory()?;
            }
        }
        // Later than directories: who makes them for all is no client of the layer.
        if self.work.protocol == Protocol::Posix && self.layers.is_empty() {
            self.layers = layers_on(self.cluster)?;
        }
        match step {
            WorkStep::Write | WorkStep::Read if self.files.is_empty() => self.files = self.open()?,
            WorkStep::Write | WorkStep::Read if !self.layers.is_empty() => self.open_again(step)?,
            WorkStep::Remove if !self.files.is_empty() => return Err(VirtualError::Invalid(format!("no step {} here", step.name()))),
            _ => {}
        }
        self.cluster.phase(step.name(), self.work, |index, client| self.part(step, index, client))
    }

    /// One client's part of a step: how many operations and bytes.
    fn part(&self, step: WorkStep, index: usize, client: Client<SimRt>) -> impl Future<Output = Result<(u64, u64), VirtualError>> + use<> {
        let (work, number) = (self.shared.clone(), index as u64);
        let (dir, file) = (self.dirs.get(index).copied(), self.files.get(index).map(|(_, file)| file.clone()));
        let (handles, layer) = (self.handles[index].clone(), self.layer_of(index));
        async move {
            let around = Simulated::new(number, &work);
            let classic = (work.protocol == Protocol::Classic).then(|| ClassicClient::new(client.clone()));
            let by = match (&layer, &classic) {
                (Some(layer), _) => By::Posix(layer),
                (None, Some(classic)) => By::Classic(classic),
                (None, None) => By::Client,
            };
            let part = part_of(&client, by, &work, &around);
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

    /// The layer of a client's process.
    fn layer_of(&self, index: usize) -> Option<Rc<Layer>> {
        self.layers.get(index / self.work.clients as usize).cloned()
    }

    /// Name of what a client writes and reads, in the root.
    fn stream_name(&self, index: usize) -> String {
        if self.work.sharing == Sharing::Own { format!("file.{index}") } else { "file".into() }
    }

    /// Makes and opens the files: one for each client, which may all be the same.
    fn open(&self) -> Result<Vec<(Handle, Rc<WorkFile>)>, VirtualError> {
        let flows = self.cluster.clients_of(self.work).enumerate().map(|(index, (node, client))| {
            let (client, layer, work) = (client.clone(), self.layer_of(index), self.shared.clone());
            let strips = self.cluster.strips.clone();
            let name = self.stream_name(index);
            self.cluster.sim.spawn_on(*node, move |_| async move {
                let around = Simulated::new(index as u64, &work);
                let part = part_of(&client, layer.as_deref().map_or(By::Client, By::Posix), &work, &around);
                let options = CreateOptions { strips, ..CreateOptions::default() };
                part.open_new(ROOT_HANDLE, name.as_bytes(), &options).await.map(|(handle, file)| (handle, Rc::new(file)))
            })
        });
        let flows: Vec<_> = flows.collect();
        self.cluster.wait(&flows)?.into_iter().map(|file| file.map_err(failed("create"))).collect()
    }

    /// Closes the files by the layer and opens them for a step, as programs do that come later.
    fn open_again(&mut self, step: WorkStep) -> Result<(), VirtualError> {
        let files = std::mem::take(&mut self.files);
        let flows = self.cluster.clients_of(self.work).zip(files).enumerate().map(|(index, ((node, client), (handle, file)))| {
            let (client, layer, work) = (client.clone(), self.layer_of(index).expect("all go by the layer"), self.shared.clone());
            let name = self.stream_name(index);
            self.cluster.sim.spawn_on(*node, move |_| async move {
                let around = Simulated::new(index as u64, &work);
                let part = part_of(&client, By::Posix(&layer), &work, &around);
                part.close(Rc::into_inner(file).expect("no step is under way")).await?;
                part.settle(ROOT_HANDLE).await?;
                let rights = if step == WorkStep::Read { Rights::READ } else { Rights::WRITE };
                part.open(handle, (ROOT_HANDLE, name.as_bytes()), rights).await.map(|file| (handle, Rc::new(file)))
            })
        });
        let flows: Vec<_> = flows.collect();
        self.files = self.cluster.wait(&flows)?.into_iter().map(|file| file.map_err(failed("open"))).collect::<Result<_, _>>()?;
        Ok(())
    }

    /// Every process looks for the one directory, as each does that is given its path: so it hears
    /// where its names are. Some at a time, because each asks all servers.
    fn find_directory(&self) -> Result<(), VirtualError> {
        for some in self.cluster.clients.chunks(FINDERS) {
            let flows = some.iter().map(|(node, client)| {
                let client = client.clone();
                self.cluster.sim.spawn_on(*node, move |_| async move { client.lookup(&WHO, ROOT_HANDLE, b"dir.0").await.map(drop) })
            });
            let flows: Vec<_> = flows.collect();
            self.cluster.wait(&flows)?.into_iter().try_for_each(|found| found.map_err(failed("lookup")))?;
        }
        Ok(())
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
