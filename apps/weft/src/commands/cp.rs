//! `weft cp`: copies between this machine and a file system, without a mount.

use std::ffi::OsString;
use std::io::IsTerminal;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::Instant;

use anyhow::{Result, bail};
use weft_base::FileKind;
use weft_client::CreateOptions;
use weft_host::connect::{Common, OpenSystems, umask};
use weft_host::fs_arg::{CONFIG_NAME, FsArg, FsPath, is_url};
use weft_host::output::print_json;
use weft_host::stop_signals::StopSignals;
use weft_host::units::human_bytes;
use weft_host::{job, mounted, mounts};

use super::layout::LayoutArgs;
use crate::copy::{Copied, Copier, CopyOptions, Meta, Place};

/// Copy files and trees to, from and within file systems, without a mount
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  weft cp -r src ~/fs:/                          into the file system
  weft cp -r ~/fs:/src copy                      and out of it
  weft cp big.h5 weft://node1:7000/demo:/data/   over the network
  weft cp -r src ~/mnt/dir                       where a file system is mounted: into it, without the kernel
  weft cp --num-dfiles 1 -r src ~/fs:/           each new file on one data server

Mode and modification time are kept, owner and set-user and set-group bits are not; symlinks are copied as symlinks, pipes and sockets (with -r) as \
such, devices are left out. Holes of \
files above 1 MiB stay holes. Hard links become files of their own; extended attributes and ACLs are left out. Symlinks below the target \
are not followed: a file replaces one, a directory does not. A local path with `:/` in it is written ./like:/this. A file that is \
there keeps its layout. A file system alone is its root; \
its state directory is copied as a directory of this machine only if it is copied into a file system.")]
pub struct Args {
    /// What to copy, and last where to: a new name or an existing directory
    #[arg(required = true, value_name = "PATH or FS:/PATH")]
    places: Vec<OsString>,
    /// Directories with everything below them
    #[arg(short, long, short_alias = 'R')]
    recursive: bool,
    /// Copy what symlinks lead to
    #[arg(short = 'L', long)]
    dereference: bool,
    /// Do not keep mode and modification time
    #[arg(long)]
    no_preserve: bool,
    /// Replace files that may not be written, and write to read-only directories of your own
    #[arg(short, long)]
    force: bool,
    /// Files, or parts of large ones, copied at once
    #[arg(short, long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=256))]
    jobs: u16,
    /// No progress bar
    #[arg(short, long)]
    quiet: bool,
    /// Print what was copied as JSON
    #[arg(long)]
    json: bool,
    /// Stop, as at Ctrl-C, with the process of this number
    #[arg(long, hide = true, value_name = "PID")]
    until: Option<i32>,
    #[command(flatten)]
    layout: LayoutArgs,
}

impl Args {
    pub fn run(mut self, common: &Common) -> Result<ExitCode> {
        let umask = umask();
        let stop = StopSignals::block()?.into_flag();
        if let Some(pid) = self.until {
            let stop = stop.clone();
            job::on_exit(pid, move || stop.store(true, Ordering::Relaxed))?;
        }
        let mut systems = OpenSystems::default();
        let target_text = super::last_of_two(&mut self.places)?;
        let target = open(&target_text, true, common, &mut systems)?;
        let into = target.meta(true).ok().filter(|meta| meta.kind == FileKind::Directory);
        let mut sources = Vec::new();
        for source in &self.places {
            let source = open(source, matches!(target, Place::Local(_)), common, &mut systems)?;
            if matches!((&source, &target), (Place::Local(_), Place::Local(_))) {
                bail!("neither {} nor {} is in a file system (FS:/PATH); use cp", source.display(), target.display());
            }
            sources.push(source);
        }
        let must_be_directory = sources.len() > 1 || target_text.as_encoded_bytes().ends_with(b"/");
        if into.is_none() && must_be_directory {
            bail!("{} is no directory; make it, or name a file without `/` at its end", target.display());
        }
        let file = match &target {
            Place::Remote { fs, .. } => self.layout.of_file(fs)?,
            Place::Local(_) if self.layout.is_empty() => CreateOptions::default(),
            Place::Local(_) => bail!("a layout is for files in a file system, and {} is in none", target.display()),
        };
        let terminal = std::io::stderr().is_terminal();
        let options = CopyOptions {
            recursive: self.recursive,
            preserve: !self.no_preserve,
            dereference: self.dereference,
            force: self.force,
            jobs: self.jobs.into(),
            progress: terminal && !self.quiet,
            umask,
            file,
        };
        // Each directory that a person named, or all with -L, stays open while files of it wait.
        weft_host::process::raise_descriptors();
        let begun = Instant::now();
        let mut copier = Copier::start(options, stop.clone())?;
        for source in &sources {
            if let Err(error) = destination(&target, into.as_ref(), source).and_then(|target| copier.copy(source, &target)) {
                copier.leave_out(&error);
            }
        }
        let copied = copier.finish();
        self.report(&copied, begun.elapsed().as_secs_f64(), terminal)?;
        if stop.load(Ordering::Relaxed) {
            let left = match &copied.incomplete[..] {
                [] => String::new(),
                left => format!("; incomplete now, and there before: {}", left.join(", ")),
            };
            weft_host::output::tell(&format!("interrupted; {} files were copied, incomplete new ones were removed{left}", copied.files));
            return Ok(ExitCode::from(130));
        }
        Ok(if copied.is_all() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    fn report(&self, copied: &Copied, seconds: f64, terminal: bool) -> Result<()> {
        if self.json {
            print_json(copied)?;
        } else if terminal && !self.quiet {
            let rate = human_bytes((copied.bytes as f64 / seconds.max(1e-6)) as u64);
            weft_host::output::tell_plainly(&format!("{} files, {} in {seconds:.2} s, {rate}/s", copied.files, human_bytes(copied.bytes)));
        }
        Ok(())
    }
}

/// An existing directory gets the copy under its own name.
fn destination(target: &Place, into: Option<&Meta>, source: &Place) -> Result<Place> {
    let name = source.name();
    match into {
        Some(meta) if !name.is_empty() => target.child(meta, &name, false),
        _ => Ok(target.clone()),
    }
}

/// What an argument means: in a file system if it has the form FS:/PATH and FS names one, or if it
/// names a file system alone ([`alone`]), else a local path. File systems that are named twice
/// share a client.
fn open(text: &OsString, counts_state: bool, common: &Common, systems: &mut OpenSystems) -> Result<Place> {
    let split = FsPath::split(text);
    if let Some(at) = &split
        && let Err(error) = mounted::behind(&at.fs, common).and_then(|(fs, _)| FsArg::parse(&fs))
    {
        let local = PathBuf::from(text);
        // A local name may have a colon too; it is one if it is there, or begins as only a path
        // does.
        if local.exists() || at.fs.as_encoded_bytes().starts_with(b"./") && local.parent().is_some_and(Path::exists) {
            return Ok(Place::local(local));
        }
        return Err(error.context(format!("{} names nothing", at.display())));
    }
    let Some(at) = split.or_else(|| alone(text, counts_state, common)) else { return Ok(Place::local(text)) };
    let fs = systems.open(&at.fs, common)?;
    let path = if at.path.len() > 1 { at.path.strip_suffix(b"/").unwrap_or(&at.path).to_vec() } else { at.path };
    Place::remote(fs, &path)
}

/// A file system without `:/` behind it: an address, or a path at or below a mount point whose file
/// system is known here (else the kernel does as well); a state directory, where that cannot be
/// meant as a directory of this machine.
fn alone(text: &OsString, counts_state: bool, common: &Common) -> Option<FsPath> {
    let path = Path::new(text);
    if is_url(text) {
        return FsPath::parse(text).ok();
    }
    if let Some((place, rest)) = mounts::containing(path).ok().flatten() {
        // A symlink that leads there is not there itself.
        let is_there = std::path::absolute(path).is_ok_and(|path| path.starts_with(&place)) || !path.is_symlink();
        let known = is_there && mounted::behind(place.as_os_str(), common).is_ok();
        return known.then(|| FsPath { fs: place.into_os_string(), path: [b"/", rest.as_os_str().as_bytes()].concat() });
    }
    (counts_state && path.join(CONFIG_NAME).is_file()).then(|| FsPath { fs: text.clone(), path: b"/".to_vec() })
}
