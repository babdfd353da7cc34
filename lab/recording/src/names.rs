//! Names for the objects of a recording, looked up when it is over: a record has a handle only, and
//! a path for each while a server works would cost more than all its other records. What was
//! removed meanwhile keeps its number.

use std::collections::{BTreeSet, VecDeque};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use weft_base::{FastMap, FileKind, Handle};
use weft_host::connect::Fs;
use weft_host::output::show_name;
use weft_host::paths::joined;
use weft_trace::file::TraceFile;
use weft_trace::names::Names;
use weft_trace::record::Body;

/// The name of the list in the folder of a recording.
const FILE: &str = "names.weft";
/// Objects that are named at most: those with most time.
const OBJECTS_MAX: usize = 4096;
/// Larger recordings are not read again for this.
const BYTES_MAX: u64 = 512 << 20;
/// How long names are looked for.
const PATIENCE: Duration = Duration::from_secs(2);
/// Bytes of entries that one question asks for.
const PAGE_BYTES: u32 = 256 << 10;

/// Writes the names of the objects that these files of a recording speak of beside them. Gives how
/// many are known.
///
/// # Errors
/// The list cannot be written.
pub fn write(fs: &Fs, files: &[PathBuf], folder: &Path) -> Result<usize> {
    let mut wanted = objects(files);
    let path = folder.join(FILE);
    let mut found = Names::default();
    // Of an earlier part of this recording: what was named then may be gone now.
    if let Ok(text) = std::fs::read_to_string(&path) {
        let _ = found.add_list(&text);
    }
    walk(fs, &mut wanted, |handle, path| found.insert(handle, show_name(&path)));
    if found.is_empty() {
        return Ok(0);
    }
    let new = folder.join(format!("{FILE}.{}", std::process::id()));
    let save = || -> std::io::Result<()> {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
        file.write_all(found.list().as_bytes())?;
        std::fs::rename(&new, &path)
    };
    save().inspect_err(|_| drop(std::fs::remove_file(&new))).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(found.len())
}

/// The objects with most time in spans.
fn objects(files: &[PathBuf]) -> BTreeSet<u64> {
    let size = |path: &PathBuf| path.metadata().map_or(u64::MAX, |data| data.len());
    let mut left = BYTES_MAX;
    let mut times: FastMap<u64, u64> = FastMap::default();
    for path in files {
        let bytes = size(path);
        if bytes > left {
            continue;
        }
        left -= bytes;
        let Ok(file) = File::open(path).map_err(drop).and_then(|file| TraceFile::read_from(file, bytes as usize, |_| {}).map_err(drop))
        else {
            continue;
        };
        for recorded in file.records.iter() {
            if let Body::Span(span) = &recorded.record.body
                && span.obj != 0
            {
                *times.entry(span.obj).or_default() += span.dur + 1;
            }
        }
    }
    let mut all: Vec<(u64, u64)> = times.into_iter().map(|(object, time)| (time, object)).collect();
    all.sort_unstable_by(|a, b| b.cmp(a));
    all.into_iter().take(OBJECTS_MAX).map(|(_, object)| object).collect()
}

/// Walks through the tree until every wanted object has a path, or time is up: directories that are
/// wanted themselves first, as files lie where work is done.
fn walk(fs: &Fs, wanted: &mut BTreeSet<u64>, mut found: impl FnMut(u64, Vec<u8>)) {
    let deadline = Instant::now() + PATIENCE;
    let root = fs.client.root();
    if wanted.remove(&root.0) {
        found(root.0, b"/".to_vec());
    }
    let mut dirs: VecDeque<(Handle, Vec<u8>)> = VecDeque::from([(root, b"/".to_vec())]);
    while let Some((dir, path)) = dirs.pop_front() {
        let mut cookie = 0;
        loop {
            if wanted.is_empty() || Instant::now() > deadline {
                return;
            }
            let Ok(page) = fs.page(dir, cookie, PAGE_BYTES) else { break };
            for entry in &page.entries {
                cookie = entry.cookie;
                let is_wanted = wanted.remove(&entry.handle.0);
                if is_wanted {
                    found(entry.handle.0, joined(&path, &entry.name));
                }
                if entry.kind == FileKind::Directory {
                    let below = (entry.handle, joined(&path, &entry.name));
                    if is_wanted { dirs.push_front(below) } else { dirs.push_back(below) }
                }
            }
            if page.end || page.entries.is_empty() {
                break;
            }
        }
    }
}
