//! A Weft file system as a target, by the client library: what a program gets that is written for
//! it.
//!
//! At depth 1 each request waits for its reply. Above it a client keeps so many requests in flight:
//! whole batches where the library has a call for them, otherwise flows side by side.

mod items;
mod many;

use std::cell::RefCell;
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use weft_base::{FileKind, Handle, Payload};
use weft_client::{ClassicClient, CreateOptions, OpenFile, XattrFlags, run_window};
use weft_host::connect::Fs;
use weft_layout::HintName;
use weft_rt::Bulk;
use weft_rt_real::ClientRt;
use weft_wire::Rights;

use crate::data::{MARK_BYTES, mark, noise};
use crate::meter::Meter;
use crate::target::{Target, Traffic};
use weft_workload::{Block, Dirs, ItemsKind, Protocol, WorkStep, Workload};

/// Names given to one call of a batch: many windows, so that the end of a batch, when the window
/// drains, does not count.
const BATCH: usize = 4096;
/// Bytes of one page of a listing.
const LIST_BYTES: u32 = 256 << 10;

/// The directory under which the files are made.
pub struct LibraryTarget {
    fs: Fs,
    root: Vec<u8>,
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
        Ok(LibraryTarget { fs, root })
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

    fn first_error<T>(&self, path: &[u8], results: Vec<weft_client::Result<T>>) -> Result<Vec<T>> {
        results.into_iter().collect::<weft_client::Result<_>>().map_err(|error| self.fs.explain(path, error))
    }
}

impl Target for LibraryTarget {
    type Client = LibraryClient;

    fn client(&self, number: u64) -> LibraryClient {
        let classic = ClassicClient::new(self.fs.client.clone());
        LibraryClient { number, prepared: None, dir: Handle(0), folders: Vec::new(), noise: Vec::new(), classic }
    }

    fn prepare(&self, client: &mut LibraryClient, step: WorkStep, work: &Workload) -> Result<()> {
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
        let classic = (work.protocol == Protocol::Classic).then_some(&client.classic);
        let mut part =
            Part { target: self, work, number: client.number, noise: &client.noise, path: &path, meter: RefCell::new(meter), classic };
        if step == WorkStep::ReadMany {
            return part.read_many(&client.folders);
        }
        for folder in &mut client.folders {
            let below = work.items.subdirs > 0;
            match step {
                WorkStep::Create => {
                    if below {
                        let made = self.fs.client.mkdir(&self.fs.who, client.dir, &folder.name, 0o755);
                        folder.handle = self.run_at(&path, made)?.handle;
                    }
                    part.create(folder)?;
                }
                WorkStep::Stat => part.stat(folder)?,
                WorkStep::Readdir => part.list(folder)?,
                WorkStep::Write => part.write(folder)?,
                WorkStep::Read => part.read(folder)?,
                WorkStep::ReadMany => unreachable!("it takes all folders together"),
                WorkStep::Remove => {
                    part.remove(folder)?;
                    if below {
                        self.run_at(&path, self.fs.client.rmdir(&self.fs.who, client.dir, &folder.name))?;
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

/// Blocks as the library wants them.
fn ranges(call: &[Block]) -> Vec<(u64, u64)> {
    call.iter().map(|block| (block.offset, block.bytes)).collect()
}

/// One client's part of one step.
struct Part<'a> {
    target: &'a LibraryTarget,
    work: &'a Workload,
    number: u64,
    noise: &'a [u8],
    path: &'a [u8],
    meter: RefCell<&'a mut Meter>,
    /// Given if files are made, listed and removed by the steps of PVFS2.
    classic: Option<&'a ClassicClient<ClientRt>>,
}

impl Part<'_> {
    fn fs(&self) -> &Fs {
        &self.target.fs
    }

    fn depth(&self) -> usize {
        self.work.depth as usize
    }

    fn count(&self, bytes: u64) {
        let mut meter = self.meter.borrow_mut();
        if self.work.depth == 1 { meter.done(bytes) } else { meter.done_among_others(1, bytes) }
    }

    fn options(&self, rights: Rights) -> CreateOptions {
        CreateOptions {
            exclusive: self.work.sharing == weft_workload::Sharing::Own,
            rights,
            stripe_bytes: self.work.stripe_bytes,
            stripe_width: self.work.stripe_width,
            ..CreateOptions::default()
        }
    }

    fn create(&mut self, folder: &mut Folder) -> Result<()> {
        let files = self.work.files_of(self.number) as usize;
        let unopened = self.work.size == 0 && !self.work.open && !self.work.fsync;
        let options = self.options(Rights::WRITE);
        let (fs, dir) = (self.fs(), folder.handle);
        if self.work.items.kind == ItemsKind::Directories {
            return self.make_directories(folder);
        }
        if let Some(classic) = self.classic {
            return self.changes(&folder.names[..files], |name| classic.create(&fs.who, dir, name, 0o644));
        }
        folder.handles = match (unopened, self.work.depth) {
            (true, 1) => {
                let mut handles = Vec::with_capacity(files);
                for name in &folder.names[..files] {
                    let made = fs.client.create_many(&fs.who, dir, std::slice::from_ref(name), &options);
                    handles.extend(self.target.first_error(self.path, fs.run(made))?.iter().map(|attr| attr.handle));
                    self.count(0);
                }
                handles
            }
            (true, _) => {
                let mut handles = Vec::with_capacity(files);
                for names in folder.names[..files].chunks(BATCH) {
                    let made = fs.run(fs.client.create_many(&fs.who, dir, names, &options));
                    handles.extend(self.target.first_error(self.path, made)?.iter().map(|attr| attr.handle));
                    self.meter.borrow_mut().done_among_others(names.len() as u64, 0);
                }
                handles
            }
            (false, _) => {
                let this = &*self;
                let flows = folder.names[..files].iter().enumerate().map(|(number, name)| this.create_written(dir, name, number as u64));
                self.target.first_error(self.path, fs.run(run_window(flows, self.depth())))?
            }
        };
        Ok(())
    }

    async fn create_written(&self, dir: Handle, name: &Bytes, number: u64) -> weft_client::Result<Handle> {
        let fs = self.fs();
        let (attr, file, _) = fs.client.create(&fs.who, dir, name, &self.options(Rights::WRITE)).await?;
        for index in 0..self.work.blocks_of(number) {
            self.write_block(&file, number, self.work.block_of(self.number, number, index)).await?;
        }
        if self.work.fsync {
            fs.client.fsync(&file, false).await?;
        }
        fs.client.close(file).await?;
        self.count(self.work.bytes_of(number));
        Ok(attr.handle)
    }

    /// A change of each name with requests of its own.
    fn changes<'n, F>(&'n self, names: &'n [Bytes], change: impl Fn(&'n Bytes) -> F) -> Result<()>
    where
        F: Future<Output = weft_client::Result<()>>,
    {
        let flows = names.iter().map(|name| {
            let change = change(name);
            async move {
                change.await?;
                self.count(0);
                Ok(())
            }
        });
        self.target.first_error(self.path, self.fs().run(run_window(flows, self.depth()))).map(drop)
    }

    fn stat(&self, folder: &Folder) -> Result<()> {
        let fs = self.fs();
        if self.work.depth == 1 {
            for name in &folder.names[..self.work.files_of(self.number) as usize] {
                self.target.run_at(self.path, fs.client.lookup(&fs.who, folder.handle, name))?;
                self.count(0);
            }
            return Ok(());
        }
        for handles in folder.handles.chunks(self.depth()) {
            self.target.first_error(self.path, fs.run(fs.client.stat_many(handles)))?;
            self.meter.borrow_mut().done_among_others(handles.len() as u64, 0);
        }
        Ok(())
    }

    fn list(&self, folder: &Folder) -> Result<()> {
        let fs = self.fs();
        if let Some(classic) = self.classic {
            let listed = self.target.run_at(self.path, classic.list(&fs.who, folder.handle))?;
            self.meter.borrow_mut().done_among_others(listed, 0);
            return Ok(());
        }
        let mut cookie = 0;
        loop {
            let flow = fs.client.readdir(&fs.who, folder.handle, cookie, LIST_BYTES, self.work.attrs);
            let page = self.target.run_at(self.path, flow)?;
            self.meter.borrow_mut().done_among_others(page.entries.len() as u64, 0);
            match page.entries.last() {
                Some(last) if !page.end => cookie = last.cookie,
                _ => return Ok(()),
            }
        }
    }

    fn write(&mut self, folder: &mut Folder) -> Result<()> {
        let fs = self.fs();
        for number in 0..self.work.streams_of() {
            let options = self.options(Rights::WRITE);
            let create = fs.client.create(&fs.who, folder.handle, &folder.names[number as usize], &options);
            let (attr, file, _) = self.target.run_at(self.path, create)?;
            let (this, open) = (&*self, &*file);
            if self.work.per_call == 1 {
                let blocks = (0..self.work.blocks_of(number)).map(|index| async move {
                    let block = this.work.block_of(this.number, number, index);
                    this.write_block(open, number, block).await?;
                    this.count(block.bytes);
                    Ok(())
                });
                self.target.first_error(self.path, fs.run(run_window(blocks, self.depth())))?;
            } else {
                let calls = self.work.calls_of(self.number, number).map(|call| this.write_call(open, number, call));
                self.target.first_error(self.path, fs.run(run_window(calls, self.depth())))?;
            }
            if self.work.fsync {
                self.target.run_at(self.path, fs.client.fsync(&file, false))?;
            }
            self.target.run_at(self.path, fs.client.close(file))?;
            folder.handles.push(attr.handle);
        }
        Ok(())
    }

    /// Several blocks in one call.
    async fn write_call(&self, file: &OpenFile, number: u64, call: Vec<Block>) -> weft_client::Result<()> {
        let marks: Vec<_> = call.iter().map(|block| mark(self.number, number, *block)).collect();
        let mut data = Vec::with_capacity(2 * call.len());
        for (block, mark) in call.iter().zip(&marks) {
            let marked = mark.len().min(block.bytes as usize);
            data.extend([&mark[..marked], &self.noise[marked..block.bytes as usize]]);
        }
        self.fs().client.write_list(file, &ranges(&call), Bulk::Slices(data)).await?;
        self.count(call.iter().map(|block| block.bytes).sum());
        Ok(())
    }

    async fn write_block(&self, file: &OpenFile, number: u64, block: Block) -> weft_client::Result<()> {
        let mark = mark(self.number, number, block);
        let marked = mark.len().min(block.bytes as usize);
        let data = vec![&mark[..marked], &self.noise[marked..block.bytes as usize]];
        self.fs().client.write(file, block.offset, Bulk::Slices(data)).await
    }

    fn read(&self, folder: &Folder) -> Result<()> {
        let streams = 0..self.work.streams_of();
        // Many requests of one file at once, or of many files if each is one request.
        let calls = self.work.blocks_of(0).div_ceil(self.work.blocks_per_call(0));
        let (files_at_once, blocks_at_once) = if calls > 1 { (1, self.depth()) } else { (self.depth(), 1) };
        let flows = streams.map(|number| self.read_file(folder.handles[number as usize], number, blocks_at_once));
        self.fs().run(run_window(flows, files_at_once)).into_iter().collect()
    }

    async fn read_file(&self, handle: Handle, number: u64, at_once: usize) -> Result<()> {
        let fs = self.fs();
        let explain = |error| fs.explain(self.path, error);
        let (_, file): (_, Arc<OpenFile>) = fs.client.open(&fs.who, handle, Rights::READ, false).await.map_err(explain)?;
        let open = &*file;
        // Apart from this flow, which is moved with others like it: without optimisation they would
        // not fit on the stack of a thread.
        if self.work.per_call == 1 {
            let blocks = (0..self.work.blocks_of(number)).map(|index| async move {
                let block = self.work.block_of(self.number, number, index);
                let pieces = fs.client.read(open, block.offset, block.bytes).await.map_err(explain)?;
                self.check(&pieces, number, block)?;
                self.count(block.bytes);
                Ok(())
            });
            Box::pin(run_window(blocks, at_once)).await.into_iter().collect::<Result<()>>()?;
        } else {
            let calls = self.work.calls_of(self.number, number).map(|call| async move {
                let read = fs.client.read_list(open, &ranges(&call)).await.map_err(explain)?;
                call.iter().zip(&read).try_for_each(|(block, pieces)| self.check(pieces, number, *block))?;
                self.count(call.iter().map(|block| block.bytes).sum());
                Ok(())
            });
            Box::pin(run_window(calls, at_once)).await.into_iter().collect::<Result<()>>()?;
        }
        fs.client.close(file).await.map_err(explain)
    }

    fn check(&self, pieces: &[Payload], number: u64, block: Block) -> Result<()> {
        let got: u64 = pieces.iter().map(Payload::len).sum();
        ensure!(got == block.bytes, "{} of {} bytes read at {}", got, block.bytes, block.offset);
        let mut have = Vec::with_capacity(MARK_BYTES);
        for piece in pieces {
            let Payload::Real(bytes) = piece else { bail!("synthetic data from a real server") };
            have.extend_from_slice(&bytes[..bytes.len().min(MARK_BYTES - have.len())]);
            if have.len() == MARK_BYTES {
                break;
            }
        }
        crate::path::check_mark(&have, self.number, number, block)
    }

    fn remove(&self, folder: &Folder) -> Result<()> {
        let fs = self.fs();
        let names = &folder.names[..self.work.files_of(self.number) as usize];
        if self.work.items.kind == ItemsKind::Directories {
            return self.changes(names, |name| fs.client.rmdir(&fs.who, folder.handle, name));
        }
        if let Some(classic) = self.classic {
            return self.changes(names, |name| classic.remove(&fs.who, folder.handle, name));
        }
        if self.work.depth == 1 {
            for name in names {
                self.target.run_at(self.path, fs.client.unlink(&fs.who, folder.handle, name))?;
                self.count(0);
            }
            return Ok(());
        }
        for names in names.chunks(BATCH) {
            self.target.first_error(self.path, fs.run(fs.client.unlink_many(&fs.who, folder.handle, names)))?;
            self.meter.borrow_mut().done_among_others(names.len() as u64, 0);
        }
        Ok(())
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
    let gone = |error: &weft_client::Error| error.status == weft_base::Status::NotFound;
    let tree = match fs.run(fs.client.lookup_handle(&fs.who, dir, name)) {
        Ok((handle, FileKind::Directory)) => handle,
        Ok(_) => return fs.run_at(path, fs.client.unlink(&fs.who, dir, name)),
        Err(error) if gone(&error) => return Ok(()),
        Err(error) => return Err(fs.explain(path, error)),
    };
    loop {
        // Always from the start: what was listed before is gone.
        let page = fs.run_at(path, fs.client.readdir(&fs.who, tree, 0, LIST_BYTES, false))?;
        if page.entries.is_empty() {
            break;
        }
        let (dirs, files): (Vec<_>, Vec<_>) = page.entries.into_iter().partition(|entry| entry.kind == FileKind::Directory);
        let names: Vec<Bytes> = files.into_iter().map(|entry| entry.name).collect();
        for outcome in fs.run(fs.client.unlink_many(&fs.who, tree, &names)) {
            match outcome {
                Err(error) if !gone(&error) => return Err(fs.explain(path, error)),
                _ => {}
            }
        }
        for entry in dirs {
            remove_tree(fs, path, tree, &entry.name)?;
        }
    }
    fs.run_at(path, fs.client.rmdir(&fs.who, dir, name))
}
