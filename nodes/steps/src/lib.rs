//! `weft-steps`: the steps of a [`Workload`] by the client library, or by the layer below gateways
//! ([`By`]), one client's part of each. The benchmark (`lab/bench`) drives them on real servers and
//! the virtual cluster in virtual time, so that both ask for the same.
//!
//! It never says where files are or how many clients there are, and reads no clock.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use weft_base::{Credentials, Handle, Payload, SECOND, Status};
use weft_client::{ClassicClient, Client, CreateOptions, Error, OpenFile, run_window};
use weft_posix::{Callers, InodeNumber, Met, OpenHow, Posix, WriteHow};
use weft_rt::{Bulk, Runtime};
use weft_wire::Rights;
use weft_workload::{Block, ItemsKind, Sharing, Workload};

/// How long servers may take to hear of what a step has done, in nanoseconds.
const SETTLE_NS: u64 = 60 * SECOND;

/// Why a step failed.
#[derive(Debug)]
pub enum StepError {
    /// The file system says no.
    Refused(Error),
    /// It gave something else than was written.
    Wrong(String),
}

impl fmt::Display for StepError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StepError::Refused(error) => error.fmt(f),
            StepError::Wrong(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for StepError {}

impl From<Error> for StepError {
    fn from(error: Error) -> StepError {
        StepError::Refused(error)
    }
}

/// What is written, and who counts.
pub trait Surroundings {
    /// What the bytes of blocks begin with, if they are real.
    type Marks;

    /// The marks of these blocks of a file.
    fn marks(&self, number: u64, blocks: &[Block]) -> Self::Marks;

    /// The bytes of the blocks, one behind the other.
    fn bytes<'b>(&'b self, blocks: &[Block], marks: &'b Self::Marks) -> Bulk<'b>;

    /// Whether this is what was written there.
    ///
    /// # Errors
    /// What is wrong.
    fn check(&self, pieces: &[Payload], number: u64, block: Block) -> Result<(), String>;

    /// Operations are done.
    fn count(&self, operations: u64, bytes: u64);
}

/// By what files are made, listed and removed, and written and read.
pub enum By<'a, R: Runtime> {
    /// The client library: a request each.
    Client,
    /// The steps of PVFS2; files are not written or read so.
    Classic(&'a ClassicClient<R>),
    /// The layer below gateways, with its flows beside the step. A step ends when servers have
    /// heard of all that it has done.
    Posix(&'a Posix<R, Callers>),
}

/// A file that is open, as [`By`] has opened it.
#[derive(Debug)]
pub enum WorkFile {
    /// By the client library.
    Client(Arc<OpenFile>),
    /// Its number in the layer.
    Posix(u64),
}

/// One client's part of the steps.
pub struct Part<'a, R: Runtime, S> {
    /// The library.
    pub client: &'a Client<R>,
    /// By what.
    pub by: By<'a, R>,
    /// For whom.
    pub who: &'a Credentials,
    /// What is done.
    pub work: &'a Workload,
    /// The client among all.
    pub number: u64,
    /// Names that one call of the library is given; with 1, flows side by side are the window.
    pub batch: usize,
    /// Bytes of one page of a listing.
    pub list_bytes: u32,
    /// What is written, and who counts.
    pub around: &'a S,
}

/// Blocks as the library wants them.
fn ranges(call: &[Block]) -> Vec<(u64, u64)> {
    call.iter().map(|block| (block.offset, block.bytes)).collect()
}

/// A file of the work, by the layer.
fn work_file(met: Met) -> Result<(Handle, WorkFile), Error> {
    match met {
        Met::File(attr, number) => Ok((attr.handle, WorkFile::Posix(number))),
        Met::Other(attr) => Err(Error::local(Status::Exists, "open", attr.handle)),
    }
}

fn sum(call: &[Block]) -> u64 {
    call.iter().map(|block| block.bytes).sum()
}

impl<R: Runtime, S: Surroundings> Part<'_, R, S> {
    fn depth(&self) -> usize {
        self.work.depth as usize
    }

    /// Flows that run side by side, each with so many names in one call.
    fn window(&self) -> usize {
        if self.batch == 1 { self.depth() } else { 1 }
    }

    /// Whose number an open file has.
    fn layer(&self) -> &Posix<R, Callers> {
        let By::Posix(layer) = self.by else { unreachable!("only the layer gives numbers") };
        layer
    }

    /// How the client's files are made.
    pub fn options(&self) -> CreateOptions {
        CreateOptions {
            exclusive: self.work.sharing == Sharing::Own,
            rights: Rights::WRITE,
            stripe_bytes: self.work.stripe_bytes,
            stripe_width: self.work.stripe_width,
            ..CreateOptions::default()
        }
    }

    /// Makes items of these names; their handles, unless the classic protocol made them.
    ///
    /// # Errors
    /// Of the file system.
    pub async fn create(&self, dir: Handle, names: &[Bytes]) -> Result<Vec<Handle>, StepError> {
        if self.work.items.kind == ItemsKind::Directories {
            let made = self.each(names, async |name| self.make_directory(dir, name).await).await?;
            self.settle(dir).await?;
            return Ok(made);
        }
        if let By::Classic(classic) = self.by {
            self.each(names, async |name| classic.create(self.who, dir, name, 0o644).await).await?;
            return Ok(Vec::new());
        }
        let is_bare = self.work.size == 0 && !self.work.open && !self.work.fsync;
        if let (By::Client, true) = (&self.by, is_bare) {
            let options = &self.options();
            let calls = names.chunks(self.batch).map(|names| async move {
                let made = self.client.create_many(self.who, dir, names, options).await;
                let made = made.into_iter().map(|attr| attr.map(|attr| attr.handle)).collect::<Result<Vec<Handle>, _>>()?;
                self.around.count(made.len() as u64, 0);
                Ok(made)
            });
            let made = run_window(calls, self.window()).await.into_iter().collect::<Result<Vec<_>, Error>>()?;
            return Ok(made.into_iter().flatten().collect());
        }
        let flows = names.iter().zip(0..).map(|(name, number)| self.create_written(dir, name, number));
        let made = run_window(flows, self.depth()).await.into_iter().collect::<Result<_, _>>()?;
        self.settle(dir).await?;
        Ok(made)
    }

    async fn create_written(&self, dir: Handle, name: &Bytes, number: u64) -> Result<Handle, Error> {
        let (handle, file) = self.open_new(dir, name, &self.options()).await?;
        for index in 0..self.work.blocks_of(number) {
            self.write_call(&file, number, &[self.work.block_of(self.number, number, index)]).await?;
        }
        if self.work.fsync {
            self.fsync(&file).await?;
        }
        self.close(file).await?;
        self.around.count(1, self.work.bytes_of(number));
        Ok(handle)
    }

    /// Makes a directory.
    ///
    /// # Errors
    /// Of the file system.
    pub async fn make_directory(&self, dir: Handle, name: &[u8]) -> Result<Handle, Error> {
        Ok(match self.by {
            By::Posix(layer) => layer.mkdir(self.who, InodeNumber::of(dir), name, 0o755).await?.attr.handle,
            _ => self.client.mkdir(self.who, dir, name, 0o755).await?.handle,
        })
    }

    /// Removes a directory.
    ///
    /// # Errors
    /// Of the file system.
    pub async fn remove_directory(&self, dir: Handle, name: &[u8]) -> Result<(), Error> {
        match self.by {
            By::Posix(layer) => layer.rmdir(self.who, InodeNumber::of(dir), name).await,
            _ => self.client.rmdir(self.who, dir, name).await,
        }
    }

    /// Makes a file of the work, or opens it if others have made it.
    ///
    /// # Errors
    /// Of the file system.
    pub async fn open_new(&self, dir: Handle, name: &[u8], options: &CreateOptions) -> Result<(Handle, WorkFile), Error> {
        let By::Posix(layer) = self.by else {
            let (attr, file, _) = self.client.create(self.who, dir, name, options).await?;
            return Ok((attr.handle, WorkFile::Client(file)));
        };
        let how = OpenHow { exclusive: options.exclusive, ..OpenHow::direct(options.rights) };
        work_file(layer.open_name(self.who, InodeNumber::of(dir), name, how, Some(options.mode)).await?)
    }

    /// Opens a file of the work: by its handle, or as programs do it that have names.
    ///
    /// # Errors
    /// Of the file system.
    pub async fn open(&self, file: Handle, (dir, name): (Handle, &[u8]), rights: Rights) -> Result<WorkFile, Error> {
        let By::Posix(layer) = self.by else {
            return Ok(WorkFile::Client(self.client.open(self.who, file, rights, false).await?.1));
        };
        let met = layer.open_name(self.who, InodeNumber::of(dir), name, OpenHow::direct(rights), None).await?;
        work_file(met).map(|(_, file)| file)
    }

    /// Closes a file.
    ///
    /// # Errors
    /// Of the file system, and of what was written before.
    pub async fn close(&self, file: WorkFile) -> Result<(), Error> {
        match file {
            WorkFile::Posix(number) => {
                let closed = self.layer().before_close(number).await;
                self.layer().release(number).await;
                closed
            }
            WorkFile::Client(file) => self.client.close(file).await,
        }
    }

    async fn fsync(&self, file: &WorkFile) -> Result<(), Error> {
        match file {
            WorkFile::Posix(number) => self.layer().fsync(*number, false).await,
            WorkFile::Client(file) => self.client.fsync(file, false).await,
        }
    }

    /// Waits until servers have heard of what the step has done here.
    ///
    /// # Errors
    /// Servers that do not answer.
    pub async fn settle(&self, dir: Handle) -> Result<(), Error> {
        match self.by {
            By::Posix(layer) if !layer.settle(SETTLE_NS).await => Err(Error::local(Status::TimedOut, "create", dir)),
            _ => Ok(()),
        }
    }

    /// Something for each name, with requests of its own.
    async fn each<'n, T, F: Future<Output = Result<T, Error>>>(
        &self,
        names: &'n [Bytes],
        act: impl Fn(&'n Bytes) -> F,
    ) -> Result<Vec<T>, StepError> {
        let flows = names.iter().map(|name| {
            let act = act(name);
            async move {
                let done = act.await?;
                self.around.count(1, 0);
                Ok(done)
            }
        });
        Ok(run_window(flows, self.depth()).await.into_iter().collect::<Result<_, Error>>()?)
    }

    /// One look at a name after the other, or so many handles in one call as there may be requests
    /// in flight: as programs do it that know the library.
    ///
    /// # Errors
    /// Of the file system.
    pub async fn stat(&self, dir: Handle, names: &[Bytes], handles: &[Handle]) -> Result<(), StepError> {
        if let By::Posix(layer) = self.by {
            return self.each(names, async |name| layer.look(self.who, InodeNumber::of(dir), name).await.map(drop)).await.map(drop);
        }
        if self.depth() == 1 {
            return self.each(names, async |name| self.client.lookup(self.who, dir, name).await.map(drop)).await.map(drop);
        }
        for handles in handles.chunks(self.depth()) {
            self.client.stat_many(handles).await.into_iter().try_for_each(|attr| attr.map(drop))?;
            self.around.count(handles.len() as u64, 0);
        }
        Ok(())
    }

    /// Lists a directory.
    ///
    /// # Errors
    /// Of the file system.
    pub async fn list(&self, dir: Handle) -> Result<(), StepError> {
        if let By::Classic(classic) = self.by {
            self.around.count(classic.list(self.who, dir).await?, 0);
            return Ok(());
        }
        let mut cookie = 0;
        loop {
            let page = match self.by {
                By::Posix(layer) => layer.list_after(self.who, dir, cookie, self.list_bytes, self.work.attrs).await?,
                _ => self.client.readdir(self.who, dir, cookie, self.list_bytes, self.work.attrs).await?,
            };
            self.around.count(page.entries.len() as u64, 0);
            match page.entries.last() {
                Some(last) if !page.end => cookie = last.cookie,
                _ => return Ok(()),
            }
        }
    }

    /// Removes items of these names.
    ///
    /// # Errors
    /// Of the file system.
    pub async fn remove(&self, dir: Handle, names: &[Bytes]) -> Result<(), StepError> {
        if self.work.items.kind == ItemsKind::Directories {
            self.each(names, async |name| self.remove_directory(dir, name).await).await?;
            return Ok(self.settle(dir).await?);
        }
        match self.by {
            By::Classic(classic) => return self.each(names, async |name| classic.remove(self.who, dir, name).await).await.map(drop),
            By::Posix(layer) => {
                self.each(names, async |name| layer.unlink(self.who, InodeNumber::of(dir), name).await).await?;
                return Ok(self.settle(dir).await?);
            }
            By::Client => {}
        }
        let calls = names.chunks(self.batch).map(|names| async move {
            self.client.unlink_many(self.who, dir, names).await.into_iter().collect::<Result<(), _>>()?;
            self.around.count(names.len() as u64, 0);
            Ok(())
        });
        Ok(run_window(calls, self.window()).await.into_iter().collect::<Result<(), Error>>()?)
    }

    /// Writes the client's part of a file, call by call, and syncs it if the work says so.
    ///
    /// # Errors
    /// Of the file system.
    pub async fn write(&self, file: &WorkFile, number: u64) -> Result<(), StepError> {
        let calls = self.work.calls_of(self.number, number).map(|call| async move {
            self.write_call(file, number, &call).await?;
            self.around.count(1, sum(&call));
            Ok(())
        });
        run_window(calls, self.depth()).await.into_iter().collect::<Result<(), Error>>()?;
        if let WorkFile::Posix(number) = file {
            // What it has gathered is a part of the step.
            self.layer().before_close(*number).await?;
        }
        if self.work.fsync {
            self.fsync(file).await?;
        }
        Ok(())
    }

    async fn write_call(&self, file: &WorkFile, number: u64, call: &[Block]) -> Result<(), Error> {
        let marks = self.around.marks(number, call);
        let data = self.around.bytes(call, &marks);
        match (file, call) {
            (WorkFile::Posix(file), [block]) => self.layer().write(self.who, *file, block.offset, data, WriteHow::default()).await,
            (WorkFile::Posix(file), _) => self.layer().write_list(self.who, *file, &ranges(call), data).await,
            (WorkFile::Client(file), _) => self.client.write_list(file, &ranges(call), data).await,
        }
    }

    /// Reads the client's part of a file, so many calls at once, and checks it.
    ///
    /// # Errors
    /// Of the file system, or other bytes.
    pub async fn read(&self, file: &WorkFile, number: u64, at_once: usize) -> Result<(), StepError> {
        let calls = self.work.calls_of(self.number, number).map(|call| async move {
            let read = self.read_call(file, &call).await?;
            call.iter().zip(&read).try_for_each(|(block, pieces)| self.check(pieces, number, *block))?;
            self.around.count(1, sum(&call));
            Ok(())
        });
        run_window(calls, at_once).await.into_iter().collect()
    }

    async fn read_call(&self, file: &WorkFile, call: &[Block]) -> Result<Vec<Vec<Payload>>, Error> {
        match (file, call) {
            (WorkFile::Posix(file), [block]) => Ok(vec![self.layer().read(*file, block.offset, block.bytes).await?]),
            (WorkFile::Posix(file), _) => self.layer().read_list(*file, &ranges(call)).await,
            (WorkFile::Client(file), _) => self.client.read_list(file, &ranges(call)).await,
        }
    }

    fn check(&self, pieces: &[Payload], number: u64, block: Block) -> Result<(), StepError> {
        let got: u64 = pieces.iter().map(Payload::len).sum();
        if got != block.bytes {
            return Err(StepError::Wrong(format!("{got} of {} bytes read at {}", block.bytes, block.offset)));
        }
        self.around.check(pieces, number, block).map_err(StepError::Wrong)
    }

    /// Reads whole files in the order that is drawn for the client, many in a call. Each has its
    /// directory, its name and its number there.
    ///
    /// # Errors
    /// Of the file system, or other bytes.
    pub async fn read_many(&self, files: &[(Handle, Bytes, u64)]) -> Result<(), StepError> {
        let calls = self.work.drawn_calls(self.number, files.len());
        let calls = calls.iter().map(|call| async move {
            let named: Vec<_> = call.iter().map(|file| (files[*file].0, files[*file].1.clone())).collect();
            let mut bytes = 0;
            for (file, read) in call.iter().zip(self.client.read_many(self.who, &named).await) {
                let (number, data) = (files[*file].2, read?.data);
                let wanted = self.work.bytes_of(number);
                if data.len() != wanted {
                    return Err(StepError::Wrong(format!("a file of {wanted} bytes was read as one of {}", data.len())));
                }
                bytes += wanted;
                if wanted > 0 {
                    let first = self.work.block_of(self.number, number, 0);
                    self.check(&[data.slice(0, first.bytes)], number, first)?;
                }
            }
            self.around.count(call.len() as u64, bytes);
            Ok(())
        });
        run_window(calls, self.depth()).await.into_iter().collect()
    }
}
