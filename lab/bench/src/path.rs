//! Any directory as a target, by plain system calls: what an unchanged program gets.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, PosixFadviseAdvice, openat, posix_fadvise};
use nix::sys::stat::{Mode, fstatat, mkdirat};
use nix::unistd::{UnlinkatFlags, unlinkat};
use weft_trace::{EventId, OpenSpan, event};

use crate::data::{MARK_BYTES, mark, noise};
use crate::meter::Meter;
use crate::target::{Target, Traffic};
use weft_workload::{Block, ItemsKind, WorkStep, Workload};

/// Direct I/O wants memory that begins at a page.
const PAGE_BYTES: usize = 4096;

/// The directory under which the files are made.
pub struct PathTarget {
    root: PathBuf,
}

/// See [`Target::Client`].
pub struct PathClient {
    number: u64,
    /// The client's directory, once it was needed.
    dir: Option<Dir>,
    data: Buffer,
}

struct Dir {
    fd: OwnedFd,
    path: PathBuf,
}

impl PathTarget {
    /// Works below `root`, which exists.
    pub fn new(root: &Path) -> PathTarget {
        PathTarget { root: root.to_path_buf() }
    }
}

impl Target for PathTarget {
    type Client = PathClient;

    fn client(&self, number: u64) -> PathClient {
        PathClient { number, dir: None, data: Buffer::default() }
    }

    fn prepare(&self, client: &mut PathClient, step: WorkStep, work: &Workload) -> Result<()> {
        let path = self.root.join(work.dir_name(client.number));
        if client.dir.as_ref().is_none_or(|dir| dir.path != path) {
            let fd = File::open(&path).with_context(|| format!("cannot open {}", path.display()))?.into();
            client.dir = Some(Dir { fd, path });
        }
        client.data.prepare(work.block.min(work.bytes_of(0)) as usize, client.number);
        if step == WorkStep::Read && work.cold {
            client.each_stream(work, |open, _| {
                let file = open(OFlag::O_RDONLY)?;
                // Pages that are not written back yet would stay.
                file.sync_all()?;
                posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED)?;
                Ok(())
            })?;
        }
        Ok(())
    }

    fn run(&self, client: &mut PathClient, step: WorkStep, work: &Workload, meter: &mut Meter) -> Result<()> {
        match step {
            WorkStep::Create => client.create(work, meter),
            WorkStep::Stat => client.each_file(work, |dir, name, _| {
                let _app = traced(event::APP_STAT);
                fstatat(dir, name, AtFlags::AT_SYMLINK_NOFOLLOW)?;
                meter.done(0);
                Ok(())
            }),
            WorkStep::Readdir => client.list(work, meter),
            WorkStep::Write => client.write(work, meter),
            WorkStep::Read => client.read(work, meter),
            WorkStep::Remove => client.remove(work, meter),
            WorkStep::ReadMany => bail!("many files in one call are for the library: give --fs without --path"),
        }
    }

    fn traffic(&self) -> Option<Traffic> {
        None
    }
}

impl PathClient {
    fn dir(&self) -> &Dir {
        self.dir.as_ref().expect("prepare opened it")
    }

    fn create(&mut self, work: &Workload, meter: &mut Meter) -> Result<()> {
        if work.items.subdirs > 0 {
            let mut name = Vec::new();
            for subdir in work.subdir_names(self.number) {
                self.name_into(&mut name, work, &subdir, "");
                let _app = traced(event::APP_MKDIR);
                mkdirat(&self.dir().fd, name.as_slice(), Mode::from_bits_truncate(0o755)).map_err(|error| failed("mkdir", &name, error))?;
            }
        }
        if work.items.kind == ItemsKind::Directories {
            return self.each_file(work, |dir, name, _| {
                let _app = traced(event::APP_MKDIR);
                mkdirat(dir, name, Mode::from_bits_truncate(0o755))?;
                meter.done(0);
                Ok(())
            });
        }
        let mut data = std::mem::take(&mut self.data);
        let number = self.number;
        let outcome = self.each_file(work, |dir, name, file_number| {
            let file = {
                let _app = traced(event::APP_CREATE);
                open(dir, name, flags(work, OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL))?
            };
            let blocks = (0..work.blocks_of(file_number)).map(|index| work.block_of(number, file_number, index));
            for block in blocks {
                let _app = traced_block(event::APP_WRITE, block);
                file.write_all_at(data.marked(number, file_number, block), block.offset)?;
            }
            finish(file, work)?;
            meter.done(work.bytes_of(file_number));
            Ok(())
        });
        self.data = data;
        outcome
    }

    fn list(&self, work: &Workload, meter: &mut Meter) -> Result<()> {
        for subdir in work.subdir_names(self.number) {
            let path = self.dir().path.join(subdir);
            let _app = traced(event::APP_READDIR);
            let entries = std::fs::read_dir(&path).with_context(|| format!("cannot list {}", path.display()))?;
            for entry in entries {
                let entry = entry.with_context(|| format!("cannot list {}", path.display()))?;
                if work.attrs {
                    let _app = traced(event::APP_STAT);
                    entry.metadata().with_context(|| format!("cannot look at {}", entry.path().display()))?;
                    meter.done(0);
                } else {
                    meter.done_among_others(1, 0);
                }
            }
        }
        Ok(())
    }

    fn write(&mut self, work: &Workload, meter: &mut Meter) -> Result<()> {
        let client = self.number;
        self.each_block(work, OFlag::O_WRONLY | OFlag::O_CREAT, |data, file, number, block| {
            let _app = traced_block(event::APP_WRITE, block);
            file.write_all_at(data.marked(client, number, block), block.offset)?;
            meter.done(block.bytes);
            Ok(())
        })
    }

    fn read(&mut self, work: &Workload, meter: &mut Meter) -> Result<()> {
        let client = self.number;
        let work = Workload { fsync: false, ..work.clone() };
        let outcome = self.each_block(&work, OFlag::O_RDONLY, |data, file, number, block| {
            let bytes = &mut data.bytes_mut()[..block.bytes as usize];
            {
                let _app = traced_block(event::APP_READ, block);
                file.read_exact_at(bytes, block.offset)?;
            }
            check_mark(bytes, client, number, block)?;
            meter.done(block.bytes);
            Ok(())
        });
        // What was read is not the noise that writes expect.
        self.data.forget();
        outcome
    }

    /// Opens each file that this client writes or reads, and calls `act` with it, its number and
    /// each block.
    fn each_block(&mut self, work: &Workload, how: OFlag, mut act: impl FnMut(&mut Buffer, &File, u64, Block) -> Result<()>) -> Result<()> {
        let mut data = std::mem::take(&mut self.data);
        let outcome = self.each_stream(work, |open, number| {
            let file = {
                let _app = traced(event::APP_OPEN);
                open(flags(work, how))?
            };
            for index in 0..work.blocks_of(number) {
                act(&mut data, &file, number, work.block_of(self.number, number, index))?;
            }
            finish(file, work)
        });
        self.data = data;
        outcome
    }

    fn remove(&self, work: &Workload, meter: &mut Meter) -> Result<()> {
        let (event, flags) = match work.items.kind {
            ItemsKind::Files => (event::APP_UNLINK, UnlinkatFlags::NoRemoveDir),
            ItemsKind::Directories => (event::APP_RMDIR, UnlinkatFlags::RemoveDir),
        };
        self.each_file(work, |dir, name, _| {
            let _app = traced(event);
            unlinkat(dir, name, flags)?;
            meter.done(0);
            Ok(())
        })?;
        if work.items.subdirs > 0 {
            let mut name = Vec::new();
            for subdir in work.subdir_names(self.number) {
                self.name_into(&mut name, work, &subdir, "");
                let _app = traced(event::APP_RMDIR);
                unlinkat(&self.dir().fd, name.as_slice(), UnlinkatFlags::RemoveDir).map_err(|error| failed("rmdir", &name, error))?;
            }
        }
        Ok(())
    }

    /// Calls `act` with the directory, the name and the number of each file that this client makes.
    fn each_file(&self, work: &Workload, mut act: impl FnMut(BorrowedFd<'_>, &[u8], u64) -> Result<()>) -> Result<()> {
        let mut name = Vec::new();
        for subdir in work.subdir_names(self.number) {
            for number in 0..work.files_of(self.number) {
                self.name_into(&mut name, work, &subdir, &work.file_name(self.number, number));
                act(self.dir().fd.as_fd(), &name, number).with_context(|| format!("{}", name.escape_ascii()))?;
            }
        }
        Ok(())
    }

    /// Calls `act` with the number of each file that this client writes or reads, and with what
    /// opens it.
    fn each_stream(&self, work: &Workload, mut act: impl FnMut(&dyn Fn(OFlag) -> Result<File>, u64) -> Result<()>) -> Result<()> {
        let mut name = Vec::new();
        for subdir in work.subdir_names(self.number) {
            for number in 0..work.streams_of() {
                self.name_into(&mut name, work, &subdir, &work.file_name(self.number, number));
                act(&|flags| open(self.dir().fd.as_fd(), &name, flags), number).with_context(|| format!("{}", name.escape_ascii()))?;
            }
        }
        Ok(())
    }

    fn name_into(&self, name: &mut Vec<u8>, work: &Workload, subdir: &str, file: &str) {
        name.clear();
        if work.full_paths {
            name.extend_from_slice(self.dir().path.as_os_str().as_bytes());
            name.push(b'/');
        }
        name.extend_from_slice(subdir.as_bytes());
        if !subdir.is_empty() && !file.is_empty() {
            name.push(b'/');
        }
        name.extend_from_slice(file.as_bytes());
    }
}

/// The record of a system call, as the calling program sees it. A gateway on this machine joins its
/// own by the number of the thread.
fn traced(event: EventId) -> OpenSpan {
    let mut span = weft_trace::operation(event);
    if span.is_on() {
        span.request(nix::unistd::gettid().as_raw() as u64);
    }
    span
}

fn traced_block(event: EventId, block: Block) -> OpenSpan {
    let mut span = traced(event);
    span.range(block.offset, block.bytes);
    span
}

fn failed(call: &str, name: &[u8], error: Errno) -> anyhow::Error {
    anyhow::Error::new(error).context(format!("{call} {}", name.escape_ascii()))
}

fn flags(work: &Workload, flags: OFlag) -> OFlag {
    if work.direct { flags | OFlag::O_DIRECT } else { flags }
}

fn open(dir: BorrowedFd<'_>, name: &[u8], flags: OFlag) -> Result<File> {
    let file = openat(dir, name, flags | OFlag::O_CLOEXEC, Mode::from_bits_truncate(0o644))?;
    Ok(file.into())
}

/// Closes a file; network file systems tell late errors here.
fn finish(file: File, work: &Workload) -> Result<()> {
    if work.fsync {
        let _app = traced(event::APP_FSYNC);
        file.sync_all()?;
    }
    let _app = traced(event::APP_CLOSE);
    Ok(nix::unistd::close(OwnedFd::from(file))?)
}

/// Checks that a block is the one that was written there.
///
/// # Errors
/// Says which block is wrong.
pub fn check_mark(bytes: &[u8], client: u64, number: u64, block: Block) -> Result<()> {
    let have = &bytes[..bytes.len().min(MARK_BYTES)];
    if have != &mark(client, number, block)[..have.len()] {
        bail!("the {} bytes at {} are not those that were written there", block.bytes, block.offset);
    }
    Ok(())
}

/// Noise, at an address that direct I/O accepts.
#[derive(Default)]
struct Buffer {
    memory: Vec<u8>,
    start: usize,
    /// Length, once it holds noise.
    filled: Option<usize>,
}

impl Buffer {
    fn prepare(&mut self, bytes: usize, seed: u64) {
        if self.filled == Some(bytes) {
            return;
        }
        self.memory = vec![0; bytes + PAGE_BYTES];
        self.start = self.memory.as_ptr().align_offset(PAGE_BYTES).min(PAGE_BYTES);
        self.memory[self.start..self.start + bytes].copy_from_slice(&noise(bytes, seed));
        self.filled = Some(bytes);
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        let end = self.memory.len() - (PAGE_BYTES - self.start);
        &mut self.memory[self.start..end]
    }

    fn marked(&mut self, client: u64, number: u64, block: Block) -> &[u8] {
        let bytes = &mut self.bytes_mut()[..block.bytes as usize];
        let marked = bytes.len().min(MARK_BYTES);
        bytes[..marked].copy_from_slice(&mark(client, number, block)[..marked]);
        bytes
    }

    fn forget(&mut self) {
        self.filled = None;
    }
}

/// Makes the directories that the work needs.
///
/// # Errors
/// Of the file system.
pub fn make_dirs(root: &Path, work: &Workload) -> Result<()> {
    for name in work.dir_names() {
        let path = root.join(name);
        std::fs::create_dir(&path).with_context(|| format!("cannot make {}", path.display()))?;
    }
    Ok(())
}

/// Removes the directories of the work and whatever is left in them.
///
/// # Errors
/// Of the file system.
pub fn remove_dirs(root: &Path, work: &Workload) -> Result<()> {
    for name in work.dir_names() {
        let path = root.join(name);
        ensure!(path.starts_with(root) && path != root, "only what is inside is removed");
        match std::fs::remove_dir_all(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            other => other.with_context(|| format!("cannot remove {}", path.display()))?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_workload::{Dirs, Items, Naming, Sharing};

    fn run(target: &PathTarget, clients: &mut [PathClient], step: WorkStep, work: &Workload) -> Result<(u64, u64)> {
        let mut sum = (0, 0);
        for client in clients.iter_mut() {
            let mut meter = Meter::start(None);
            target.prepare(client, step, work)?;
            target.run(client, step, work, &mut meter)?;
            let tally = meter.finish();
            sum = (sum.0 + tally.ops, sum.1 + tally.bytes);
        }
        Ok(sum)
    }

    fn all_steps(work: &Workload, steps: &[(WorkStep, u64)]) {
        let dir = tempfile::tempdir().unwrap();
        let target = PathTarget::new(dir.path());
        make_dirs(dir.path(), work).unwrap();
        let mut clients: Vec<PathClient> = (0..work.clients_in_all()).map(|number| target.client(number)).collect();
        for (step, ops) in steps {
            assert_eq!(run(&target, &mut clients, *step, work).unwrap().0, *ops, "{step:?} of {work:?}");
        }
        let left: usize = work.dir_names().iter().map(|name| std::fs::read_dir(dir.path().join(name)).unwrap().count()).sum();
        assert_eq!(left, 0, "every file was removed again");
        remove_dirs(dir.path(), work).unwrap();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn files_come_and_go() {
        for full_paths in [false, true] {
            for dirs in [Dirs::Shared, Dirs::Own] {
                let work = Workload { clients: 2, full_paths, dirs, size: 3901, attrs: full_paths, ..Workload::empty_files(5) };
                let listed = if dirs == Dirs::Shared { 20 } else { 10 };
                let steps = [
                    (WorkStep::Create, 10),
                    (WorkStep::Stat, 10),
                    (WorkStep::Readdir, listed),
                    (WorkStep::Read, 10),
                    (WorkStep::Remove, 10),
                ];
                all_steps(&work, &steps);
            }
        }
    }

    #[test]
    fn directories_below_are_made_and_removed_with_the_files() {
        let work = Workload { clients: 2, items: Items { subdirs: 3, ..Items::default() }, attrs: true, ..Workload::empty_files(5) };
        all_steps(&work, &[(WorkStep::Create, 30), (WorkStep::Readdir, 30), (WorkStep::Remove, 30)]);
    }

    #[test]
    fn items_may_be_directories_and_lie_in_a_tree() {
        let files = [Naming::Growing, Naming::Mdtest].map(|naming| (ItemsKind::Files, naming));
        for (kind, naming) in files.into_iter().chain([(ItemsKind::Directories, Naming::Fixed)]) {
            let items = Items { kind, naming, depth: 2, branching: 3, ..Items::default() };
            let work = Workload { clients: 2, items, ..Workload::empty_files(4) };
            let ops = 13 * 2 * 4;
            let dir = tempfile::tempdir().unwrap();
            make_dirs(dir.path(), &work).unwrap();
            let mut client = [PathTarget::new(dir.path()).client(0)];
            run(&PathTarget::new(dir.path()), &mut client, WorkStep::Create, &work).unwrap();
            let made = dir.path().join(work.dir_name(0)).join("t2/t1").join(work.file_name(0, 3));
            assert_eq!((made.is_dir(), made.is_file()), (kind == ItemsKind::Directories, kind == ItemsKind::Files));
            run(&PathTarget::new(dir.path()), &mut client, WorkStep::Remove, &work).unwrap();
            remove_dirs(dir.path(), &work).unwrap();
            let target = PathTarget::new(dir.path());
            make_dirs(dir.path(), &work).unwrap();
            let mut clients: Vec<PathClient> = (0..2).map(|number| target.client(number)).collect();
            for step in [WorkStep::Create, WorkStep::Stat, WorkStep::Remove] {
                assert_eq!(run(&target, &mut clients, step, &work).unwrap().0, ops, "{step:?} of {work:?}");
            }
        }
    }

    #[test]
    fn streams_of_all_kinds() {
        for sharing in [Sharing::Own, Sharing::Parts, Sharing::Interleaved] {
            let work = Workload {
                clients: 3,
                files: 1,
                sharing,
                size: 4 * 47008,
                block: 47008,
                cold: true,
                fsync: true,
                ..Workload::empty_files(5)
            };
            let removed = if sharing == Sharing::Own { 3 } else { 1 };
            all_steps(&work, &[(WorkStep::Write, 12), (WorkStep::Read, 12), (WorkStep::Remove, removed)]);
        }
    }

    #[test]
    fn wrong_data_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let target = PathTarget::new(dir.path());
        let work = Workload { files: 1, size: 100, block: 50, ..Workload::empty_files(5) };
        make_dirs(dir.path(), &work).unwrap();
        let mut clients = [target.client(0)];
        run(&target, &mut clients, WorkStep::Write, &work).unwrap();
        let path = dir.path().join(work.dir_name(0)).join(work.file_name(0, 0));
        let mut content = std::fs::read(&path).unwrap();
        content[50] ^= 1;
        std::fs::write(&path, content).unwrap();
        let error = run(&target, &mut clients, WorkStep::Read, &work).unwrap_err();
        assert!(format!("{error:#}").contains("50 bytes at 50"), "{error:#}");
    }
}
