//! A Weft file system as a target, by the client library: what a program gets that is written for
//! it.
//!
//! At depth 1 each request waits for its reply. Above it a client keeps so many requests in flight:
//! whole batches where the library has a call for them, otherwise flows side by side.

use std::cell::RefCell;
use std::sync::{Mutex, OnceLock, PoisonError};

use anyhow::{Context, Result, anyhow};
use bytes::Bytes;
use weft_base::{FileKind, Handle, Payload};
use weft_client::{ClassicClient, TreeNews, XattrFlags, run_window};
use weft_host::connect::Fs;
use weft_host::door::ProgramFs;
use weft_layout::HintName;
use weft_library::Habits;
use weft_rt::Bulk;
use weft_rt_real::ClientRt;
use weft_steps::{By, Part, StepError, Surroundings};
use weft_wire::Rights;

use crate::data::{MARK_BYTES, mark, noise};
use crate::meter::Meter;
use crate::target::{Target, Traffic};
use weft_workload::{Block, Dirs, Protocol, WorkStep, Workload};

/// Names given to one call of a batch: many windows, so that the end of a batch, when the window
/// drains, does not count.
const BATCH: usize = 4096;
/// Bytes of one page of a listing.
const LIST_BYTES: u32 = 256 << 10;

/// The directory under which the files are made.
pub struct LibraryTarget {
    fs: Fs,
    root: Vec<u8>,
    /// The same file system by the layer below gateways, once it is wanted: from then on its client
    /// keeps leases.
    layered: OnceLock<ProgramFs>,
    /// One thread opens it: the end of a second one would be that of the leases.
    opens: Mutex<()>,
}

/// See [`Target::Client`].
pub struct LibraryClient {
    number: u64,
    /// What `names` are for.
    prepared: Option<Workload>,
    dir: Handle,
    /// Each directory that holds files of this client.
    folders: Vec<Folder>,
    /// Written data.
    noise: Vec<u8>,
    /// For the protocol of PVFS2.
    classic: ClassicClient<ClientRt>,
}

struct Folder {
    /// Empty: the client's own directory.
    name: Bytes,
    handle: Handle,
    names: Vec<Bytes>,
    /// Of the files, once they were made.
    handles: Vec<Handle>,
}

impl LibraryTarget {
    /// Works below the existing directory at path `root`; every server is connected already when
    /// this returns.
    ///
    /// # Errors
    /// If a server does not answer.
    pub fn new(fs: Fs, root: Vec<u8>) -> Result<LibraryTarget> {
        for (server, answer) in fs.ping_all() {
            answer.map_err(|error| fs.explain(&root, error)).with_context(|| format!("{} does not answer", server.name))?;
        }
        Ok(LibraryTarget { fs, root, layered: OnceLock::new(), opens: Mutex::default() })
    }

    fn layered(&self) -> Result<&ProgramFs> {
        let _one_opens = self.opens.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(layered) = self.layered.get() {
            return Ok(layered);
        }
        let habits = Habits { leases_after: Some(0), absorbs: true, ..Habits::default() };
        let layered = ProgramFs::open_with(self.fs.client.clone(), self.fs.who.clone(), 0, habits)?;
        Ok(self.layered.get_or_init(|| layered))
    }

    fn path(&self, work: &Workload, client: &LibraryClient) -> Vec<u8> {
        [&self.root[..], b"/", work.dir_name(client.number).as_bytes()].concat()
    }

    /// Says whether files of a client's directory have a metafile, if the file system says
    /// otherwise.
    fn hint(&self, dir: Handle, work: &Workload, path: &[u8]) -> Result<()> {
        let name = HintName::NoMetafile.attribute().as_bytes();
        let (client, who) = (&self.fs.client, &self.fs.who);
        let present = self.fs.run(client.get_xattr(who, dir, name)).is_ok();
        let flags = XattrFlags { create_only: false, replace_only: false };
        match (work.no_metafile, present) {
            (true, false) => self.run_at(path, client.set_xattr(who, dir, name, b"1", flags)),
            (false, true) => self.run_at(path, client.remove_xattr(who, dir, name)),
            _ => Ok(()),
        }
    }

    fn run_at<T>(&self, path: &[u8], flow: impl Future<Output = weft_client::Result<T>>) -> Result<T> {
        self.fs.run_at(path, flow)
    }

    fn done<T>(&self, path: &[u8], step: impl Future<Output = Result<T, StepError>>) -> Result<T> {
        self.fs.run(step).map_err(|failure| match failure {
            StepError::Refused(error) => self.fs.explain(path, error),
            StepError::Wrong(what) => anyhow!(what),
        })
    }

    /// The directory of this name below a client's directory `dir` at `path`: one of a tree is
    /// there already, any other is made later.
    fn folder(&self, dir: Handle, path: &[u8], name: &str, work: &Workload) -> Result<Handle> {
        if work.items.depth == 0 || name.is_empty() {
            return Ok(dir);
        }
        Ok(self.fs.stat(&[path, b"/", name.as_bytes()].concat(), false)?.handle)
    }
}

impl LibraryClient {
    /// The files of all folders.
    fn files(&self, work: &Workload) -> Vec<(Handle, Bytes, u64)> {
        let files = work.files_of(self.number) as usize;
        let of = |folder: &'_ Folder| {
            let handle = folder.handle;
            folder.names[..files].iter().cloned().zip(0..).map(move |(name, number)| (handle, name, number)).collect::<Vec<_>>()
        };
        self.folders.iter().flat_map(of).collect()
    }
}

impl Target for LibraryTarget {
    type Client = LibraryClient;

    fn client(&self, number: u64) -> LibraryClient {
        let classic = ClassicClient::new(self.fs.client.clone());
        LibraryClient { number, prepared: None, dir: Handle(0), folders: Vec::new(), noise: Vec::new(), classic }
    }

    fn prepare(&self, client: &mut LibraryClient, step: WorkStep, work: &Workload) -> Result<()> {
        if work.protocol == Protocol::Posix {
            self.layered()?;
        }
        let makes_files = matches!(step, WorkStep::Create | WorkStep::Write);
        if client.prepared.as_ref() != Some(work) || makes_files {
            let path = self.path(work, client);
            client.dir = self.fs.stat(&path, false)?.handle;
            self.hint(client.dir, work, &path)?;
            let names = |count: u64| (0..count).map(|number| work.file_name(client.number, number).into()).collect::<Vec<Bytes>>();
            let names = names(work.files_of(client.number).max(work.streams_of()));
            client.folders = work
                .subdir_names(client.number)
                .into_iter()
                .map(|name| {
                    Ok(Folder {
                        handle: self.folder(client.dir, &path, &name, work)?,
                        name: name.into(),
                        names: names.clone(),
                        handles: Vec::new(),
                    })
                })
                .collect::<Result<_>>()?;
            client.noise = noise(work.block.min(work.bytes_of(0)) as usize, client.number);
            client.prepared = Some(work.clone());
        }
        Ok(())
    }

    fn run(&self, client: &mut LibraryClient, step: WorkStep, work: &Workload, meter: &mut Meter) -> Result<()> {
        let path = self.path(work, client);
        let around = Marked { client: client.number, noise: &client.noise, is_alone: work.depth == 1, meter: RefCell::new(meter) };
        let part = Part {
            client: &self.fs.client,
            by: match work.protocol {
                Protocol::Weft => By::Client,
                Protocol::Classic => By::Classic(&client.classic),
                Protocol::Posix => By::Posix(self.layered()?.posix()),
            },
            who: &self.fs.who,
            work,
            number: client.number,
            batch: if work.depth == 1 { 1 } else { BATCH },
            list_bytes: LIST_BYTES,
            around: &around,
        };
        if step == WorkStep::ReadMany {
            return self.done(&path, part.read_many(&client.files(work)));
        }
        let files = work.files_of(client.number) as usize;
        for folder in &mut client.folders {
            let (dir, below) = (folder.handle, work.items.subdirs > 0);
            match step {
                WorkStep::Create => {
                    if below {
                        folder.handle = self.run_at(&path, part.make_directory(client.dir, &folder.name))?;
                    }
                    folder.handles = self.done(&path, part.create(folder.handle, &folder.names[..files]))?;
                }
                WorkStep::Stat => self.done(&path, part.stat(dir, &folder.names[..files], &folder.handles))?,
                WorkStep::Readdir => self.done(&path, part.list(dir))?,
                WorkStep::Write => folder.handles = self.done(&path, written(&part, folder))?,
                WorkStep::Read => self.done(&path, read(&part, folder))?,
                WorkStep::ReadMany => unreachable!("it takes all folders together"),
                WorkStep::Remove => {
                    self.done(&path, part.remove(dir, &folder.names[..files]))?;
                    if below {
                        self.run_at(&path, part.remove_directory(client.dir, &folder.name))?;
                    }
                }
            }
        }
        Ok(())
    }

    fn traffic(&self) -> Option<Traffic> {
        let stats = self.fs.client.stats();
        Some(Traffic { requests: stats.requests, bytes: stats.bytes })
    }
}

/// Makes the files of a folder and writes them, one after the other.
async fn written(part: &LibraryPart<'_>, folder: &Folder) -> Result<Vec<Handle>, StepError> {
    let mut handles = Vec::new();
    for (name, number) in folder.names.iter().zip(0..part.work.streams_of()) {
        let (handle, file) = part.open_new(folder.handle, name, &part.options()).await?;
        part.write(&file, number).await?;
        part.close(file).await?;
        handles.push(handle);
    }
    Ok(handles)
}

/// Reads the files of a folder: many requests of one file at once, or of many files if each is one
/// request.
async fn read(part: &LibraryPart<'_>, folder: &Folder) -> Result<(), StepError> {
    let (work, depth) = (part.work, part.work.depth as usize);
    let calls = work.blocks_of(0).div_ceil(work.blocks_per_call(0));
    let (files_at_once, calls_at_once) = if calls > 1 { (1, depth) } else { (depth, 1) };
    let flows = folder.handles.iter().zip(&folder.names).zip(0..work.streams_of()).map(|((handle, name), number)| async move {
        let file = part.open(*handle, (folder.handle, name), Rights::READ).await?;
        // Apart from this flow, which is moved with others like it: without optimisation they would
        // not fit on the stack of a thread.
        Box::pin(part.read(&file, number, calls_at_once)).await?;
        Ok(part.close(file).await?)
    });
    run_window(flows, files_at_once).await.into_iter().collect()
}

/// Blocks with marks in front of noise, counted by a meter.
struct Marked<'a> {
    client: u64,
    noise: &'a [u8],
    /// Each operation waits for the one before.
    is_alone: bool,
    meter: RefCell<&'a mut Meter>,
}

type LibraryPart<'a> = Part<'a, ClientRt, Marked<'a>>;

impl Surroundings for Marked<'_> {
    type Marks = Vec<[u8; MARK_BYTES]>;

    fn marks(&self, number: u64, blocks: &[Block]) -> Self::Marks {
        blocks.iter().map(|block| mark(self.client, number, *block)).collect()
    }

    fn bytes<'b>(&'b self, blocks: &[Block], marks: &'b Self::Marks) -> Bulk<'b> {
        let mut data = Vec::with_capacity(2 * blocks.len());
        for (block, mark) in blocks.iter().zip(marks) {
            let marked = mark.len().min(block.bytes as usize);
            data.extend([&mark[..marked], &self.noise[marked..block.bytes as usize]]);
        }
        Bulk::Slices(data)
    }

    fn check(&self, pieces: &[Payload], number: u64, block: Block) -> Result<(), String> {
        let mut have = Vec::with_capacity(MARK_BYTES);
        for piece in pieces {
            let Payload::Real(bytes) = piece else { return Err("synthetic data from a real server".into()) };
            have.extend_from_slice(&bytes[..bytes.len().min(MARK_BYTES - have.len())]);
            if have.len() == MARK_BYTES {
                break;
            }
        }
        crate::path::check_mark(&have, self.client, number, block).map_err(|error| error.to_string())
    }

    fn count(&self, operations: u64, bytes: u64) {
        let mut meter = self.meter.borrow_mut();
        if self.is_alone && operations == 1 { meter.done(bytes) } else { meter.done_among_others(operations, bytes) }
    }
}

/// Makes the directories that the work needs, below the existing directory at path `root`.
///
/// # Errors
/// Of the file system.
pub fn make_dirs(fs: &Fs, root: &[u8], work: &Workload) -> Result<()> {
    if work.dirs == Dirs::Split {
        let (dir, name) = (fs.stat(root, true)?.handle, HintName::Presplit.attribute().as_bytes());
        fs.run_at(root, fs.client.set_xattr(&fs.who, dir, name, b"all", XattrFlags::default()))?;
    }
    for name in work.dir_names() {
        let path = [root, b"/", name.as_bytes()].concat();
        let (dir, name) = fs.parent(&path)?;
        fs.run_at(&path, fs.client.mkdir(&fs.who, dir, &name, 0o755))?;
    }
    Ok(())
}

/// Removes what is called `name` in the directory, with everything below.
///
/// # Errors
/// Of the file system; what is not there is no error.
pub fn remove_tree(fs: &Fs, path: &[u8], dir: Handle, name: &[u8]) -> Result<()> {
    let (tree, kind) = match fs.run(fs.client.lookup_handle(&fs.who, dir, name)) {
        Err(error) if error.status == weft_base::Status::NotFound => return Ok(()),
        found => found.map_err(|error| fs.explain(path, error))?,
    };
    if kind != FileKind::Directory {
        return fs.run_at(path, fs.client.unlink(&fs.who, dir, name));
    }
    let (name, mut failed) = (Bytes::copy_from_slice(name), None);
    let note = |news: TreeNews<'_, _>| {
        if let TreeNews::Failed { error, .. } = news {
            failed.get_or_insert(error);
        }
    };
    fs.run(fs.client.remove_tree(&fs.who, dir, &name, tree, note));
    failed.map_or(Ok(()), |error| Err(fs.explain(path, error)))
}
