//! The list of keys of a running server. That of metadata server 0 is the file beside its config,
//! which `weft key` changes. The others learn theirs from it and keep a copy in their folders, with
//! which they start. A file beside the config of another server counts only until metadata server 0
//! has given a list: an older one gives none.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use anyhow::Result;
use weft_base::{ServerId, Status};
use weft_rt_real::{Keys, Level, write_line};
use weft_serving::KeyLists;
use weft_wire::{KeyId, KeyRing};

use crate::config::{Config, KeyFiles, ServerConfig, write_in_one_step};
use crate::parallel;

/// The copy of the list in a server's folder.
const COPY_NAME: &str = "keys";
/// How often files are looked at.
const WATCH_EVERY: Duration = Duration::from_secs(1);

/// The keys that a server of this process accepts.
#[derive(Debug)]
pub struct ServerKeys {
    /// The same for the runtime.
    pub keys: Keys,
    files: KeyFiles,
    server: String,
    /// Where what was learned is kept; `None`: this is metadata server 0.
    copy: Option<PathBuf>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    fingerprint: u64,
    list: Arc<str>,
    /// The fingerprint of the list that metadata server 0 gave last.
    learned: u64,
    /// The copy is not the list yet.
    is_to_store: bool,
    /// Metadata server 0 did not give a list; that is in the log.
    is_alone: bool,
    /// Nor could the copy be stored.
    is_unstored: bool,
}

impl ServerKeys {
    /// The keys with which a server starts; `None` if its config names none.
    ///
    /// # Errors
    /// If they cannot be read: the list of metadata server 0, or the key of the servers.
    pub fn of(config: &Config, server: &ServerConfig) -> Result<Option<Arc<ServerKeys>>> {
        let Some(files) = config.key_files.clone() else { return config.ring().map(|_| None) };
        let copy = (server.id != ServerId(0)).then(|| server.dir.join(COPY_NAME));
        let ring = match &copy {
            None => files.ring()?,
            Some(copy) => first_list(&files, copy, &server.name)?,
        };
        let state = State {
            fingerprint: ring.fingerprint(&ring.list()),
            list: ring.list().into(),
            learned: 0,
            is_to_store: false,
            is_alone: false,
            is_unstored: false,
        };
        Ok(Some(Arc::new(ServerKeys { keys: Keys::new(ring), files, server: server.name.clone(), copy, state: Mutex::new(state) })))
    }

    /// Looks at the files, as long as the process runs. A list that cannot be read changes nothing.
    ///
    /// # Errors
    /// If there may be no more threads.
    pub fn watch(self: &Arc<Self>) -> Result<()> {
        let this = self.clone();
        let mut seen = stamp(&this.files.list);
        parallel::start(move || {
            loop {
                std::thread::sleep(WATCH_EVERY);
                this.store_copy();
                let now = stamp(&this.files.list);
                if now == seen {
                    continue;
                }
                seen = now;
                // What metadata server 0 says counts more.
                if this.copy.is_some() && this.lock().learned != 0 {
                    continue;
                }
                match this.files.ring() {
                    Ok(ring) => {
                        let ring = match this.copy {
                            Some(_) => ring.without_return_of(&this.keys.ring()).0,
                            None => ring,
                        };
                        this.replace(&mut this.lock(), ring);
                        this.log(Level::Info, "the list of keys has changed");
                    }
                    Err(error) => this.log(Level::Error, &format!("the keys stay as they were: {error:#}")),
                }
            }
        })
        .map(drop)
    }

    fn replace(&self, state: &mut State, ring: KeyRing) {
        state.list = ring.list().into();
        state.fingerprint = ring.fingerprint(&state.list);
        self.keys.replace(ring);
    }

    /// Stores what was learned. Tried again every second while the disk refuses it.
    fn store_copy(&self) {
        let Some(copy) = self.copy.as_ref().filter(|copy| copy.parent().is_some_and(Path::is_dir)) else { return };
        let list = {
            let mut state = self.lock();
            if !std::mem::take(&mut state.is_to_store) {
                return;
            }
            state.list.clone()
        };
        let stored = write_in_one_step(copy, list.as_bytes(), 0o600);
        let mut state = self.lock();
        state.is_to_store |= stored.is_err();
        let was_unstored = std::mem::replace(&mut state.is_unstored, stored.is_err());
        drop(state);
        if let Err(error) = stored
            && !was_unstored
        {
            self.log(Level::Error, &format!("the list of keys holds, but is not stored for the next start: {error:#}"));
        }
    }

    fn log(&self, level: Level, what: &str) {
        write_line(level, &self.server, what);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no code panics while it holds this lock")
    }
}

impl KeyLists for ServerKeys {
    fn list(&self) -> (u64, Arc<str>) {
        let state = self.lock();
        (state.fingerprint, state.list.clone())
    }

    fn learned(&self) -> u64 {
        self.lock().learned
    }

    fn learn(&self, fingerprint: u64, list: &[u8]) -> weft_base::Result<()> {
        let mut state = self.lock();
        let known = self.keys.ring();
        let text = std::str::from_utf8(list).map_err(|_| Status::BadMessage)?;
        if known.fingerprint(text) != fingerprint {
            return Err(Status::BadMessage);
        }
        let given = KeyRing::new(known.server().key).with_list(text).map_err(|what| {
            self.log(Level::Error, &format!("the list of keys of metadata server 0 is not understood, the keys stay as they were: {what}"));
            Status::BadMessage
        })?;
        let (ring, kept) = given.without_return_of(&known);
        let before = state.fingerprint;
        self.replace(&mut state, ring);
        state.learned = fingerprint;
        state.is_to_store = true;
        let has_changed = state.fingerprint != before;
        drop(state);
        if has_changed {
            self.log(Level::Info, "the list of keys has changed");
        }
        if !kept.is_empty() {
            self.log(Level::Warn, &old_list(&kept));
        }
        Ok(())
    }

    fn answered(&self, outcome: weft_base::Result<()>) {
        let was_alone = std::mem::replace(&mut self.lock().is_alone, outcome.is_err());
        match outcome {
            Err(Status::NotSupported) if !was_alone => self.log(
                Level::Warn,
                "metadata server 0 gives no list of keys: its weft is older, or its config names no server_key_file; the one beside the \
                 config of this server counts",
            ),
            Err(status) if !was_alone => {
                self.log(
                    Level::Warn,
                    &format!("metadata server 0 gives no list of keys ({status}): the keys stay as they were, and it is asked again"),
                );
            }
            Ok(()) if was_alone => self.log(Level::Info, "metadata server 0 gives its list of keys again"),
            _ => {}
        }
    }
}

fn old_list(kept: &[KeyId]) -> String {
    let numbers: Vec<String> = kept.iter().map(|id| id.0.to_string()).collect();
    format!(
        "the list of keys of metadata server 0 accepts what was revoked or replaced before (key {}): it is an old copy. They stay \
         refused here; revoke them again, and make new keys with `weft key rotate`",
        numbers.join(", ")
    )
}

/// The list with which a server begins that does not decide about it: its copy, or, as long as it
/// has none, what lies beside its config. What either has as revoked is revoked.
fn first_list(files: &KeyFiles, copy: &Path, server: &str) -> Result<KeyRing> {
    let none = files.without_list()?;
    let read = |file: &Path| {
        let read = file.exists().then(|| KeyFiles { list: file.to_path_buf(), ..files.clone() }.ring())?;
        Some(read.unwrap_or_else(|error| {
            write_line(Level::Error, server, &format!("begins without this list of keys, and asks metadata server 0: {error:#}"));
            none.clone()
        }))
    };
    Ok(match (read(copy), read(&files.list)) {
        (Some(copy), Some(beside)) => copy.without_return_of(&beside).0,
        (Some(list), None) | (None, Some(list)) => list,
        (None, None) => none.clone(),
    })
}

/// By what a changed file is known.
fn stamp(list: &Path) -> Option<(u64, i64, i64, u64)> {
    fs::metadata(list).map(|meta| (meta.ino(), meta.mtime(), meta.mtime_nsec(), meta.size())).ok()
}
