//! Copies files and trees between this machine and a file system, or within file systems, many
//! files at once.
//!
//! One thread walks the source, makes directories and queues files; workers copy them. A large file
//! is cut into chunks that several workers copy. Directories get their mode and times at the end,
//! deepest first, since every entry that is made changes them. `place.rs` knows what objects can
//! do, `local.rs` those of this machine, `source.rs` what a file holds and where its holes are,
//! `target.rs` what is written, `workers.rs` the queue and the workers.
//!
//! Owners are not kept, so set-user and set-group bits are not kept either: a user's program would
//! otherwise run with the rights of whoever copied it.

mod block;
mod local;
mod meta;
mod place;
mod source;
mod target;
mod workers;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Result, bail};
use indicatif::{ProgressBar, ProgressStyle};
use weft_base::FileKind;
use weft_client::CreateOptions;

pub use meta::{Identity, Meta};
pub use place::Place;
use workers::{Job, Named, Workers};

/// Files that are not longer are read together with others.
const SMALL_BYTES_MAX: u64 = 1 << 20;
/// Most files read together.
const TOGETHER_MAX: usize = 256;
/// Most bytes read together: about what one message to each of a few data servers brings.
const TOGETHER_BYTES_MAX: u64 = 16 << 20;

/// How to copy.
#[derive(Clone, Debug)]
pub struct CopyOptions {
    /// Directories with everything below them.
    pub recursive: bool,
    /// Keep mode and modification time.
    pub preserve: bool,
    /// Follow symlinks in the source instead of copying them.
    pub dereference: bool,
    /// Replace files that may not be written, and write to read-only directories of one's own.
    pub force: bool,
    /// Files or chunks copied at once.
    pub jobs: usize,
    /// Show a progress bar.
    pub progress: bool,
    /// Permission bits that new files shall not have when modes are not kept.
    pub umask: u32,
    /// The layout of new files in a file system.
    pub file: CreateOptions,
}

/// What was copied.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Copied {
    /// Regular files.
    pub files: u64,
    /// Directories.
    pub directories: u64,
    /// Symlinks.
    pub symlinks: u64,
    /// Pipes and sockets.
    pub nodes: u64,
    /// Bytes of files.
    pub bytes: u64,
    /// Devices, which are left out; each was named on standard error.
    pub devices: u64,
    /// Things that could not be copied; each was named on standard error.
    pub failures: u64,
    /// Targets that were there before, whose content of before is gone and whose new one is not
    /// complete: by name, for messages.
    #[serde(skip)]
    pub incomplete: Vec<String>,
}

impl Copied {
    /// True if nothing was left out.
    pub fn is_all(&self) -> bool {
        self.failures == 0 && self.devices == 0
    }
}

/// A running copy.
pub struct Copier {
    options: CopyOptions,
    workers: Workers,
    stop: Arc<AtomicBool>,
    counts: Copied,
    /// Directories whose mode and times are still to be set, parents before children.
    finished_later: Vec<(Place, Meta)>,
    /// Directories that this copy made: never copied themselves, so that a copy into its own source
    /// ends.
    made: BTreeSet<Identity>,
    /// Directories of the source that hold the one that is copied now.
    above: Vec<Identity>,
    /// Small files of the file system that is copied from, to be read together.
    small: Vec<Named>,
    small_bytes: u64,
}

impl Copier {
    /// Starts the workers. When `stop` becomes true, copying ends soon, removes what is
    /// incomplete and new, and names what is incomplete and was there before.
    ///
    /// # Errors
    /// If there may be no more threads.
    pub fn start(options: CopyOptions, stop: Arc<AtomicBool>) -> Result<Copier> {
        let bar = if options.progress { progress_bar() } else { ProgressBar::hidden() };
        let workers = Workers::start(&options, bar, stop.clone())?;
        Ok(Copier {
            options,
            workers,
            stop,
            counts: Copied::default(),
            finished_later: Vec::new(),
            made: BTreeSet::new(),
            above: Vec::new(),
            small: Vec::new(),
            small_bytes: 0,
        })
    }

    /// Copies `source` to the name `target`.
    ///
    /// # Errors
    /// If the source itself cannot be copied; what fails below it is reported, counted and left
    /// out.
    pub fn copy(&mut self, source: &Place, target: &Place) -> Result<()> {
        // Without -r a symlink that is named stands for its file, as with cp.
        let follow = self.options.dereference || !self.options.recursive;
        self.copy_one(source, target, source.meta(follow)?)
    }

    /// Something is left out: names and counts it.
    pub fn leave_out(&self, why: &anyhow::Error) {
        self.workers.report(why);
    }

    /// Waits for the workers, then gives directories their modes and times.
    pub fn finish(mut self) -> Copied {
        self.queue_small();
        self.workers.wait();
        for (place, meta) in self.finished_later.iter().rev() {
            if let Err(error) = place.set_meta(meta) {
                self.workers.report(&error);
            }
        }
        let mut counts = self.workers.finish();
        counts.directories = self.counts.directories;
        counts.symlinks = self.counts.symlinks;
        counts.nodes = self.counts.nodes;
        counts.devices = self.counts.devices;
        counts
    }

    fn copy_one(&mut self, source: &Place, target: &Place, meta: Meta) -> Result<()> {
        match meta.kind {
            FileKind::Directory if !self.options.recursive => bail!("{} is a directory; copy it with -r", source.display()),
            FileKind::Directory => self.copy_tree(source, target, meta),
            FileKind::File => {
                self.refuse_same(source, target, &meta)?;
                let meta = self.wanted(meta);
                self.queue_file(Named { source: source.clone(), target: target.clone(), meta });
                Ok(())
            }
            FileKind::Symlink => {
                target.make_symlink(&source.read_link()?)?;
                if self.options.preserve {
                    target.set_meta(&meta)?;
                }
                self.counts.symlinks += 1;
                Ok(())
            }
            FileKind::Fifo | FileKind::Socket if self.options.recursive => {
                let meta = self.wanted(meta);
                target.make_node(meta.kind, meta.mode)?;
                if self.options.preserve {
                    target.set_meta(&meta)?;
                }
                self.counts.nodes += 1;
                Ok(())
            }
            FileKind::Fifo | FileKind::Socket => bail!("{} is a pipe or a socket; copy it with -r", source.display()),
            FileKind::CharDevice | FileKind::BlockDevice => {
                self.workers.tell(&format!("{} is a device; it is not copied", source.display()));
                self.counts.devices += 1;
                Ok(())
            }
        }
    }

    /// Small files of a file system wait for each other: they are read in few messages.
    fn queue_file(&mut self, file: Named) {
        if !file.source.reads_together() || file.meta.bytes > SMALL_BYTES_MAX {
            return self.workers.queue(Job::File(file));
        }
        if self.small.len() >= TOGETHER_MAX || self.small_bytes + file.meta.bytes > TOGETHER_BYTES_MAX {
            self.queue_small();
        }
        self.small_bytes += file.meta.bytes;
        self.small.push(file);
    }

    fn queue_small(&mut self) {
        self.small_bytes = 0;
        if !self.small.is_empty() {
            self.workers.queue(Job::Together(std::mem::take(&mut self.small)));
        }
    }

    fn copy_tree(&mut self, source: &Place, target: &Place, meta: Meta) -> Result<()> {
        if meta.identity.is_some_and(|identity| self.made.contains(&identity)) {
            bail!("{} is what is being copied to; it is not copied into itself", source.display());
        }
        // A symlink that leads to a directory above it, followed, would be copied without end.
        if meta.identity.is_some_and(|identity| self.above.contains(&identity)) {
            bail!("{} leads to a directory that holds it; it is not copied", source.display());
        }
        let made = target.make_dir(meta.mode | 0o700)?;
        if self.options.force && made.mode & 0o700 != 0o700 {
            // Its mode is set again at the end; who may not change it hears why with its entries.
            let _ = target.set_meta(&Meta { mode: made.mode | 0o700, times: None, ..made });
        }
        self.made.extend(made.identity);
        self.counts.directories += 1;
        self.above.extend(meta.identity);
        let copied = self.copy_entries(source, target, &meta, &made);
        if meta.identity.is_some() {
            self.above.pop();
        }
        copied?;
        let meta = self.wanted(meta);
        self.finished_later.push((target.clone(), meta));
        Ok(())
    }

    fn copy_entries(&mut self, source: &Place, target: &Place, meta: &Meta, made: &Meta) -> Result<()> {
        for (name, meta_listed) in source.list()? {
            if self.stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            let follow = self.options.dereference;
            let places = source.child(meta, &name, follow).and_then(|from| Ok((from, target.child(made, &name, false)?)));
            let meta_listed = meta_listed.filter(|meta| !follow || meta.kind != FileKind::Symlink);
            let copied = places.and_then(|(from, to)| {
                let meta = meta_listed.map_or_else(|| from.meta(follow), Ok)?;
                self.copy_one(&from, &to, meta)
            });
            if let Err(error) = copied {
                self.workers.report(&error);
            }
        }
        Ok(())
    }

    /// Copying a file onto itself would cut it to nothing first.
    fn refuse_same(&self, source: &Place, target: &Place, meta: &Meta) -> Result<()> {
        if source.same_system(target)
            && let Ok(there) = target.meta(true)
            && there.identity == meta.identity
        {
            bail!("{} and {} are the same file", source.display(), target.display());
        }
        Ok(())
    }

    /// What the copy shall have: mode and times, or only the permission bits that the umask leaves;
    /// never set-user and set-group bits.
    fn wanted(&self, meta: Meta) -> Meta {
        if self.options.preserve {
            Meta { mode: meta.mode & 0o1777, ..meta }
        } else {
            Meta { mode: meta.mode & 0o777 & !self.options.umask, times: None, ..meta }
        }
    }
}

fn progress_bar() -> ProgressBar {
    let style = "{spinner} {bytes}/{total_bytes} {wide_bar} {binary_bytes_per_sec} {eta} {msg}";
    let style = ProgressStyle::with_template(style).expect("the template is a constant that parses");
    let bar = ProgressBar::new(0).with_style(style);
    bar.enable_steady_tick(std::time::Duration::from_millis(200));
    bar
}
