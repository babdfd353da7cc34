//! Programs at work while a test makes trouble: every thread keeps account of what was acknowledged
//! to it, and afterwards all of that must be there.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::Random;

/// Longest file in bytes: several stripes.
const FILE_BYTES_MAX: u64 = 3 << 20;

/// Content of a file: a seed and a length in bytes.
type Content = (u64, u64);

/// Threads that create, write, rename, link and remove files.
#[derive(Debug)]
pub struct Load {
    stop: Arc<AtomicBool>,
    done: Arc<AtomicU64>,
    threads: Vec<JoinHandle<Account>>,
}

/// What one thread, or all of them, know about their files.
#[derive(Debug, Default)]
pub struct Account {
    /// Acknowledged and not changed since.
    pub files: BTreeMap<PathBuf, Content>,
    /// Names that an operation without an answer may or may not have made or removed.
    pub uncertain: BTreeSet<PathBuf>,
    /// What was refused, and when since the start.
    pub errors: Vec<String>,
    /// Operations that were answered.
    pub operations: u64,
    /// The longest one.
    pub longest: Duration,
}

impl Load {
    /// Starts `threads` threads, each in a folder of its own and all in one that they share, below
    /// `dir`.
    pub fn start(dir: &Path, threads: u64, seed: u64) -> Load {
        let (stop, done) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        fs::create_dir_all(dir.join("shared")).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
        let threads = (0..threads)
            .map(|thread| {
                let own = dir.join(format!("own{thread}"));
                fs::create_dir_all(&own).unwrap_or_else(|error| panic!("{}: {error}", own.display()));
                let worker = Worker {
                    dirs: [own, dir.join("shared")],
                    thread,
                    random: Random::new(seed ^ (thread << 32)),
                    account: Account::default(),
                    names: 0,
                };
                let (stop, done) = (stop.clone(), done.clone());
                std::thread::spawn(move || worker.run(&stop, &done))
            })
            .collect();
        Load { stop, done, threads }
    }

    /// Operations answered so far.
    pub fn operations(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    /// Waits until so many more operations were answered. Panics if they are not within `patience`.
    #[track_caller]
    pub fn wait_for(&self, operations: u64, patience: Duration) {
        let goal = self.operations() + operations;
        let ended = || self.threads.iter().all(JoinHandle::is_finished);
        crate::wait_until("progress of the load", patience, || self.operations() >= goal || ended());
    }

    /// Stops the threads after their present operation; all accounts in one.
    pub fn finish(self) -> Account {
        self.stop.store(true, Ordering::Relaxed);
        let mut all = Account::default();
        for thread in self.threads {
            let account = thread.join().expect("a worker does not panic");
            all.files.extend(account.files);
            all.uncertain.extend(account.uncertain);
            all.errors.extend(account.errors);
            all.operations += account.operations;
            all.longest = all.longest.max(account.longest);
        }
        all
    }
}

impl Account {
    /// Compares everything acknowledged with what is there.
    ///
    /// # Panics
    /// With the list of differences.
    #[track_caller]
    pub fn verify(&self, dir: &Path) {
        let mut wrong: Vec<String> = self.files.iter().filter_map(|(path, content)| difference(path, *content)).collect();
        for found in files_below(dir) {
            if !self.files.contains_key(&found) && !self.uncertain.contains(&found) {
                wrong.push(format!("{} should not be there", found.display()));
            }
        }
        let count = wrong.len();
        wrong.truncate(20);
        assert!(count == 0, "{count} of {} acknowledged files are wrong:\n{}", self.files.len(), wrong.join("\n"));
    }

    fn failed(&mut self, what: &str, begun: Instant, error: &io::Error, paths: &[&Path]) {
        self.errors.push(format!("{what} {} after {:?}: {error}", paths[0].display(), begun.elapsed()));
        for path in paths {
            self.files.remove(*path);
            self.uncertain.insert(path.to_path_buf());
        }
    }
}

/// Content by its seed.
pub fn content((seed, bytes): Content) -> Vec<u8> {
    Random::new(seed).bytes(bytes as usize)
}

fn difference(path: &Path, expected: Content) -> Option<String> {
    match fs::read(path) {
        Err(error) => Some(format!("{}: {error}", path.display())),
        Ok(bytes) if bytes.len() as u64 != expected.1 => {
            Some(format!("{}: {} bytes instead of {}", path.display(), bytes.len(), expected.1))
        }
        Ok(bytes) => {
            let wanted = content(expected);
            let at = (0..bytes.len()).find(|at| bytes[*at] != wanted[*at])?;
            let zeros = (at..bytes.len()).filter(|at| bytes[*at] != wanted[*at] && bytes[*at] == 0).count();
            let wrong = (at..bytes.len()).filter(|at| bytes[*at] != wanted[*at]).count();
            Some(format!("{}: {wrong} of {} bytes are wrong ({zeros} are zeros), the first at {at}", path.display(), bytes.len()))
        }
    }
}

fn files_below(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry.unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
        let kind = entry.file_type().unwrap_or_else(|error| panic!("{}: {error}", entry.path().display()));
        if kind.is_dir() { found.extend(files_below(&entry.path())) } else { found.push(entry.path()) }
    }
    found
}

struct Worker {
    dirs: [PathBuf; 2],
    thread: u64,
    random: Random,
    account: Account,
    names: u64,
}

impl Worker {
    fn run(mut self, stop: &AtomicBool, done: &AtomicU64) -> Account {
        // After a refusal nothing more can be learnt: whoever expects none looks at the list.
        while !stop.load(Ordering::Relaxed) && self.account.errors.is_empty() {
            let begun = Instant::now();
            match self.random.below(10) {
                0..5 => self.create(4000, begun),
                5 => self.create(FILE_BYTES_MAX, begun),
                6 => self.rename(begun),
                7 => self.overwrite(begun),
                8 => self.link(begun),
                _ => self.remove(begun),
            }
            self.account.longest = self.account.longest.max(begun.elapsed());
            self.account.operations += 1;
            done.fetch_add(1, Ordering::Relaxed);
        }
        self.account
    }

    fn new_name(&mut self) -> PathBuf {
        self.names += 1;
        self.dirs[self.random.below(2) as usize].join(format!("file-{}-{}", self.thread, self.names))
    }

    fn some_file(&mut self) -> Option<(PathBuf, Content)> {
        if self.account.files.is_empty() {
            return None;
        }
        let index = self.random.below(self.account.files.len() as u64) as usize;
        self.account.files.iter().nth(index).map(|(path, content)| (path.clone(), *content))
    }

    fn create(&mut self, bytes_max: u64, begun: Instant) {
        let path = self.new_name();
        let content = (self.random.next(), self.random.below(bytes_max));
        match fs::write(&path, self::content(content)) {
            Ok(()) => drop(self.account.files.insert(path, content)),
            Err(error) => self.account.failed("create", begun, &error, &[&path]),
        }
    }

    fn overwrite(&mut self, begun: Instant) {
        let Some((path, (_, bytes))) = self.some_file() else { return };
        // A file with two names is left alone: the other name would have to change its content too.
        if fs::metadata(&path).is_ok_and(|meta| std::os::unix::fs::MetadataExt::nlink(&meta) > 1) {
            return;
        }
        let content = (self.random.next(), bytes);
        let written = File::options().write(true).open(&path).and_then(|file| file.write_all_at(&self::content(content), 0));
        match written {
            Ok(()) => drop(self.account.files.insert(path, content)),
            Err(error) => self.account.failed("overwrite", begun, &error, &[&path]),
        }
    }

    fn rename(&mut self, begun: Instant) {
        let Some((path, content)) = self.some_file() else { return };
        let new = self.new_name();
        match fs::rename(&path, &new) {
            Ok(()) => {
                self.account.files.remove(&path);
                self.account.files.insert(new, content);
            }
            Err(error) => self.account.failed("rename", begun, &error, &[&path, &new]),
        }
    }

    fn link(&mut self, begun: Instant) {
        let Some((path, content)) = self.some_file() else { return };
        let new = self.new_name();
        match fs::hard_link(&path, &new) {
            Ok(()) => drop(self.account.files.insert(new, content)),
            Err(error) => self.account.failed("link", begun, &error, &[&new]),
        }
    }

    fn remove(&mut self, begun: Instant) {
        let Some((path, _)) = self.some_file() else { return };
        match fs::remove_file(&path) {
            Ok(()) => drop(self.account.files.remove(&path)),
            Err(error) => self.account.failed("remove", begun, &error, &[&path]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_local_file_system_keeps_everything_and_a_loss_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let load = Load::start(dir.path(), 2, 7);
        load.wait_for(300, Duration::from_secs(60));
        let account = load.finish();
        assert_eq!(account.errors, [""; 0]);
        account.verify(dir.path());
        let (path, (_, bytes)) = account.files.iter().find(|(_, (_, bytes))| *bytes > 0).expect("files with content");
        let file = File::options().write(true).open(path).unwrap();
        file.set_len(bytes - 1).unwrap();
        let found = std::panic::catch_unwind(|| account.verify(dir.path())).unwrap_err();
        let words = found.downcast_ref::<String>().unwrap();
        assert!(words.contains(&format!("{} bytes instead of {bytes}", bytes - 1)), "{words}");
    }
}
