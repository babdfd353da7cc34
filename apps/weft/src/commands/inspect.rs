//! `weft inspect`: what the files of servers say. It only reads, and needs no server.

use std::fs::{self, File};
use std::io::{self, Read};
use std::panic;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::Serialize;
use weft_host::fs_arg::CONFIG_NAME;
use weft_host::output::{print_as, tell};
use weft_host::process::holder;
use weft_host::state::{StateDir, holds_config};
use weft_inspect::{Report, ServerFiles, StoreFile, inspect_file, inspect_server};

/// Show what superblock, journal, checkpoints, databases with their tail, container and object
/// table of servers say, and where they are damaged
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "weft inspect [OPTIONS] <PATH...|--state <DIR>>",
    after_help = "Example:\n  weft inspect ~/fs\n  weft inspect ~/fs/servers/meta0/journal.1 --records\n\nNothing is written. The servers need not run; if they do, what they write meanwhile may look incomplete.\nThe exit code is 1 if anything is damaged, or of another version."
)]
pub struct Args {
    /// State directories, folders of servers, or files of servers
    #[arg(required_unless_present = "state", value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// A state directory
    #[arg(long, value_name = "DIR", conflicts_with = "paths")]
    state: Option<PathBuf>,
    /// Show every record and every object
    #[arg(long)]
    records: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What was found in one folder, or in one file.
#[derive(Serialize)]
struct Found {
    path: String,
    /// The server that works in it now.
    running: Option<String>,
    files: Vec<Report>,
}

impl Args {
    pub fn run(self) -> Result<bool> {
        leave_damaged_databases_to_the_report();
        let mut found = Vec::new();
        for path in self.paths.iter().chain(&self.state) {
            found.extend(inspect(path, self.records)?);
        }
        for Found { path, running, .. } in &found {
            if let Some(running) = running {
                tell(&format!("{path}: {running} is running; what it writes meanwhile may look incomplete"));
            }
        }
        print_as(self.json, &found, || found.iter().map(text).collect::<Vec<_>>().join("\n"))?;
        Ok(found.iter().flat_map(|found| &found.files).all(Report::is_whole))
    }
}

/// The library of the databases panics over damaged pages. That is caught and becomes a line of the
/// report, so nothing else is to be said about it.
fn leave_damaged_databases_to_the_report() {
    let usual = panic::take_hook();
    panic::set_hook(Box::new(move |about| {
        if !about.location().is_some_and(|at| at.file().contains("redb")) {
            usual(about);
        }
    }));
}

fn text(found: &Found) -> String {
    let files: String = found.files.iter().map(Report::to_string).collect();
    format!("{}\n{files}", found.path)
}

fn inspect(path: &Path, list: bool) -> Result<Vec<Found>> {
    let kind = fs::metadata(path).with_context(|| format!("cannot look at {}", path.display()))?;
    if kind.is_file() {
        return Ok(vec![file(path, list)?]);
    }
    if holds_config(path)? {
        let servers = StateDir::existing(path)?.servers_dir();
        let entries = fs::read_dir(&servers).with_context(|| format!("cannot look into {}", servers.display()))?;
        let mut folders: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).filter(|path| path.is_dir()).collect();
        folders.sort();
        return Ok(folders.iter().map(|folder| server(folder, list)).collect());
    }
    if !Folder(path.to_path_buf()).names().iter().any(|name| StoreFile::of_name(name).is_some()) {
        bail!("{} is neither a state directory (no {CONFIG_NAME}) nor the folder of a server (no superblock)", path.display());
    }
    Ok(vec![server(path, list)])
}

fn server(folder: &Path, list: bool) -> Found {
    let files = inspect_server(&Folder(folder.to_path_buf()), list);
    Found { path: folder.display().to_string(), running: running(folder), files }
}

fn file(path: &Path, list: bool) -> Result<Found> {
    let folder = path.parent().unwrap_or(Path::new(""));
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let unreadable = || format!("cannot read {}", path.display());
    let files = Folder(folder.to_path_buf());
    let len = files.len(&name).with_context(unreadable)?;
    let head = files.read(&name, StoreFile::CONTAINER_BYTES as u64).with_context(unreadable)?;
    let Some(kind) = StoreFile::of(&head).or_else(|| StoreFile::of_name(&name)) else {
        bail!("{} is no file of a server: no superblock, journal segment, checkpoint, database, tail or container", path.display());
    };
    let bytes = if kind == StoreFile::Container { head } else { files.read(&name, u64::MAX).with_context(unreadable)? };
    let report = inspect_file(&name, kind, &bytes, len, list);
    Ok(Found { path: path.display().to_string(), running: running(folder), files: vec![report] })
}

/// The process that works in the folder of a server, if the folder is in a state directory.
fn running(folder: &Path) -> Option<String> {
    let folder = fs::canonicalize(folder).ok()?;
    let root = folder.parent()?.parent().filter(|root| root.join(CONFIG_NAME).is_file())?;
    let name = folder.file_name()?.to_string_lossy().into_owned();
    let pid_file = StateDir::existing(root).ok()?.pid_file(&name);
    let holder = holder(&pid_file).ok()??;
    Some(format!("{name} (pid {})", holder.pid))
}

/// A folder of this machine.
struct Folder(PathBuf);

impl ServerFiles for Folder {
    type Error = io::Error;

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).into_iter().flatten();
        entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect()
    }

    fn len(&self, name: &str) -> io::Result<u64> {
        Ok(fs::metadata(self.0.join(name))?.len())
    }

    fn read(&self, name: &str, bytes: u64) -> io::Result<Vec<u8>> {
        let mut content = Vec::new();
        File::open(self.0.join(name))?.take(bytes).read_to_end(&mut content)?;
        Ok(content)
    }
}
