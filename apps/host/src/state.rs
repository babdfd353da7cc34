//! The folder that holds a file system on one machine: the state directory of `weft up`, or any
//! folder with a config.
//!
//! ```text
//! weft.toml        the config
//! key              the key of a client, 0600
//! server.key       the key of the servers, 0600
//! keys             the keys of clients and their rights
//! formatted        there once every server has been started for the first time
//! mount            the mount point of the last `weft up --mount`, for the next `weft up`; in a
//!                  second line the options, if there are any
//! servers/NAME/    what a server keeps
//! hosts.json       the hosts of a file system for one job, if it has servers there
//! run/             pid files, logs, sockets, room for a start (`start_room.rs`): nothing that must
//!                  survive
//! trace/           traces, unless another folder is named for them
//! ```

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::config::SOCKET_PATH_BYTES_MAX;
use crate::fs_arg::CONFIG_NAME;
use crate::hosts::machine_name;
use crate::output::shell_word;
use crate::process::{Held, PidFile};
use crate::trust;

/// Names that an interrupted creation may leave behind, or another `weft up` makes just now; a
/// folder with nothing else may be used.
const OURS: [&str; 15] = [
    CONFIG_NAME,
    "weft.toml.new",
    "key",
    "key.new",
    "server.key",
    "server.key.new",
    "keys",
    "keys.new",
    "servers",
    "run",
    "formatted",
    "hosts.json",
    "hosts.json.new",
    "formatted.new",
    "trace",
];

/// A mount that `weft up` makes again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountAgain {
    /// The mount point.
    pub place: PathBuf,
    /// Its options, as for `-o`.
    pub options: Vec<String>,
}

/// A folder with a config, or where one shall be.
#[derive(Clone, Debug)]
pub struct StateDir {
    root: PathBuf,
}

impl StateDir {
    /// The folder of a config file.
    pub fn of_config(config: &Path) -> StateDir {
        StateDir { root: config.parent().unwrap_or(Path::new("/")).to_path_buf() }
    }

    /// A folder that must hold a file system.
    ///
    /// # Errors
    /// If it does not; says how to make one.
    pub fn existing(root: &Path) -> Result<StateDir> {
        let state = StateDir::at(root)?;
        if !holds_config(root)? {
            bail!("{} holds no Weft file system (no {CONFIG_NAME}); `weft up --state {}` makes one", root.display(), shell_word(root));
        }
        state.check()?;
        Ok(state)
    }

    /// A folder that holds a file system or shall: made if it is missing, refused if it holds
    /// anything else. Says whether it is new.
    ///
    /// # Errors
    /// If it holds something else or cannot be made.
    pub fn existing_or_new(root: &Path) -> Result<(StateDir, bool)> {
        let state = StateDir::at(root)?;
        if state.config_file().is_file() {
            state.check()?;
            return Ok((state, false));
        }
        make_private_dir(&state.root)?;
        state.check()?;
        let foreign = fs::read_dir(&state.root)
            .with_context(|| format!("cannot look into {}", root.display()))?
            .filter_map(|entry| Some(entry.ok()?.file_name()))
            .find(|name| !OURS.iter().any(|ours| name == ours));
        if let Some(name) = foreign {
            bail!(
                "{} is not empty (it has `{}`) and no Weft state; give an empty or new directory to --state",
                root.display(),
                name.display()
            );
        }
        make_private_dir(&state.servers_dir())?;
        make_private_dir(&state.run_dir())?;
        state.check()?;
        Ok((state, true))
    }

    /// Refuses a state that another user prepared or may change: what lies in it decides which
    /// processes are ended, where is mounted, and who may use the file system.
    ///
    /// # Errors
    /// Names what is not this user's.
    pub fn check(&self) -> Result<()> {
        trust::check_folder(&self.root)?;
        for dir in [self.run_dir(), self.servers_dir()] {
            if fs::symlink_metadata(&dir).is_ok() {
                trust::check_folder(&dir)?;
            }
        }
        Ok(())
    }

    fn at(root: &Path) -> Result<StateDir> {
        let root = std::path::absolute(root).with_context(|| format!("cannot tell where {} is", root.display()))?;
        Ok(StateDir { root })
    }

    /// The folder itself.
    pub fn root(&self) -> &Path {
        &self.root
    }
    /// The config.
    pub fn config_file(&self) -> PathBuf {
        self.root.join(CONFIG_NAME)
    }
    /// The key of a client.
    pub fn key_file(&self) -> PathBuf {
        self.root.join("key")
    }
    /// There once every server has been started for the first time: from then on an empty folder of
    /// a server is a mistake.
    pub fn formatted_file(&self) -> PathBuf {
        self.root.join("formatted")
    }
    /// The folders of the servers.
    pub fn servers_dir(&self) -> PathBuf {
        self.root.join("servers")
    }
    /// Pid files, logs and sockets.
    pub fn run_dir(&self) -> PathBuf {
        self.root.join("run")
    }
    /// The hosts of a file system over those of a job.
    pub fn hosts_file(&self) -> PathBuf {
        self.root.join("hosts.json")
    }
    /// Traces that `weft trace` asks for.
    pub fn trace_dir(&self) -> PathBuf {
        self.root.join("trace")
    }
    /// Pid file of a server.
    pub fn pid_file(&self, server: &str) -> PathBuf {
        self.run_dir().join(format!("{server}.pid"))
    }
    /// Log of a server.
    pub fn log_file(&self, server: &str) -> PathBuf {
        self.run_dir().join(format!("{server}.log"))
    }
    /// Takes the lock that `up` and `down` hold while they work.
    ///
    /// # Errors
    /// If another of them works on this state directory, or of the disk.
    pub fn lock(&self) -> Result<PidFile> {
        PidFile::take(&self.run_dir().join("up.lock"), "").map_err(|error| match error.is::<Held>() {
            true => error.context("another `weft up` or `weft down` works on this state directory; wait until it has ended"),
            false => error.context(format!("cannot lock the state directory {}", self.root.display())),
        })
    }

    /// The mount that `up` is to make again: that of the last `up --mount`.
    ///
    /// # Errors
    /// If somebody else wrote it.
    pub fn remembered_mount(&self) -> Result<Option<MountAgain>> {
        Ok(trust::read_own_file(&self.mount_file())?.map(|text| {
            let (place, options) = text.split_once('\n').unwrap_or((&text, ""));
            let options = options.trim_end_matches('\n').split(',').filter(|option| !option.is_empty());
            MountAgain { place: PathBuf::from(place), options: options.map(str::to_string).collect() }
        }))
    }

    /// Remembers a mount instead of the one before.
    ///
    /// # Errors
    /// Of the disk, or of a name that would be read as something else.
    pub fn remember_mount(&self, mount: &MountAgain) -> Result<()> {
        let mut text = format!("{}\n", mount.place.display());
        if text.matches('\n').count() > 1 {
            bail!("a mount point with a line break in its path is not remembered");
        }
        if !mount.options.is_empty() {
            text += &format!("{}\n", mount.options.join(","));
        }
        crate::config::write_in_one_step(&self.mount_file(), text.as_bytes(), 0o600)
    }

    /// Where and how it was mounted, for the next `up`.
    pub fn mount_file(&self) -> PathBuf {
        self.root.join("mount")
    }
}

/// Makes a folder with mode 0700 and its missing parents; one that exists is left as it is.
///
/// # Errors
/// With the name of the folder.
pub fn make_private_dir(dir: &Path) -> Result<()> {
    let made = match DirBuilder::new().mode(0o700).create(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => DirBuilder::new().mode(0o700).recursive(true).create(dir),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && dir.is_dir() => Ok(()),
        other => other,
    };
    made.with_context(|| format!("cannot make the directory {}", dir.display()))
}

/// A folder of this user with short sockets, pid files and logs that belong to no state directory.
/// Where others may make folders too, one that they made in its place is passed by.
///
/// # Errors
/// If none of the places can be used.
pub fn user_run_dir() -> Result<PathBuf> {
    let mut refused = None;
    for place in run_places() {
        match private_dir(&place) {
            Ok(()) => return Ok(place),
            Err(error) => refused = Some(error),
        }
    }
    let refused = refused.context("this user has no home directory and no XDG_RUNTIME_DIR")?;
    Err(refused.context("there is no private directory for sockets and pid files; set XDG_RUNTIME_DIR to one"))
}

/// Those of the places for [`user_run_dir`] that are in use.
pub fn user_run_dirs() -> Vec<PathBuf> {
    run_places().into_iter().filter(|place| is_private_dir(place)).collect()
}

/// The runtime directory of the session or of root, a folder in `/tmp` by the user's number, and
/// one in his home for this machine.
fn run_places() -> Vec<PathBuf> {
    let user = nix::unistd::geteuid();
    let own = |dir: &PathBuf| dir.is_absolute() && fs::metadata(dir).is_ok_and(|meta| meta.is_dir() && meta.uid() == user.as_raw());
    let session = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let usual = if user.is_root() { PathBuf::from("/run") } else { PathBuf::from(format!("/run/user/{user}")) };
    let mut places: Vec<PathBuf> = [session, Some(usual)].into_iter().flatten().filter(own).map(|dir| dir.join("weft")).collect();
    places.push(PathBuf::from(format!("/tmp/weft-{user}")));
    let home = std::env::var_os("HOME").map(PathBuf::from).filter(own);
    places.extend(home.map(|home| home.join(".cache/weft").join(in_file_name(&machine_name()))));
    places.dedup();
    places
}

/// Whether this folder has a config.
///
/// # Errors
/// If it is somebody else's, who lets nobody in.
pub fn holds_config(dir: &Path) -> Result<bool> {
    match fs::metadata(dir.join(CONFIG_NAME)) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            let whose = fs::metadata(dir).map_or_else(|_| String::new(), |meta| format!(", which belongs to user {}", meta.uid()));
            Err(error).with_context(|| format!("cannot look into {}{whose}", dir.display()))
        }
        found => Ok(found.is_ok_and(|meta| meta.is_file())),
    }
}

fn private_dir(dir: &Path) -> Result<()> {
    make_private_dir(dir)?;
    if !is_private_dir(dir) {
        bail!("{} is not a private directory of this user", dir.display());
    }
    Ok(())
}

fn is_private_dir(dir: &Path) -> bool {
    let own = nix::unistd::geteuid().as_raw();
    fs::symlink_metadata(dir).is_ok_and(|meta| meta.is_dir() && meta.uid() == own && meta.permissions().mode() & 0o077 == 0)
}

/// Where the socket of a server goes, as a config says it: inside the state directory if the path
/// is short enough for a socket, otherwise in the user's own run directory, under the file system's
/// id.
///
/// # Errors
/// As [`user_run_dir`].
pub fn socket_address(state: &StateDir, fs_id: weft_base::FsId, server: &str) -> Result<String> {
    let inside = state.run_dir().join(format!("{server}.sock"));
    if inside.as_os_str().len() <= SOCKET_PATH_BYTES_MAX && inside.to_str().is_some() {
        return Ok(format!("unix:run/{server}.sock"));
    }
    let dir = user_run_dir()?.join(fs_id.to_string());
    make_private_dir(&dir)?;
    Ok(format!("unix:{}/{server}.sock", dir.display()))
}

/// A name as a part of the name of a file, whoever chose it.
pub fn in_file_name(name: &str) -> String {
    name.chars().map(|letter| if letter.is_ascii_alphanumeric() || letter == '-' { letter } else { '_' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_base::FsId;

    #[test]
    fn a_new_state_is_private_and_can_be_resumed() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("a/b");
        let (state, new) = StateDir::existing_or_new(&root).unwrap();
        assert!(new);
        for path in [state.root().to_path_buf(), state.run_dir(), state.servers_dir()] {
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700, "{}", path.display());
        }
        fs::write(state.key_file(), "left by an interrupted creation").unwrap();
        assert!(StateDir::existing_or_new(&root).unwrap().1, "still without a config: still new");
        assert!(StateDir::existing(&root).unwrap_err().to_string().contains("weft up --state"));
        fs::write(state.config_file(), "").unwrap();
        assert!(!StateDir::existing_or_new(&root).unwrap().1);
        assert!(StateDir::existing(&root).is_ok());
    }

    #[test]
    fn a_foreign_directory_is_refused_and_untouched() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("thesis.tex"), "").unwrap();
        let message = StateDir::existing_or_new(dir.path()).unwrap_err().to_string();
        assert!(message.contains("thesis.tex") && message.contains("not empty"), "{message}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        let file = dir.path().join("thesis.tex");
        assert!(StateDir::existing_or_new(&file).is_err(), "a file is no directory");
    }

    #[test]
    fn the_last_mount_is_remembered() {
        let dir = tempfile::tempdir().unwrap();
        let (state, _) = StateDir::existing_or_new(&dir.path().join("s")).unwrap();
        assert_eq!(state.remembered_mount().unwrap(), None);
        let mount = |place: &str, options: &[&str]| MountAgain {
            place: PathBuf::from(place),
            options: options.iter().map(|option| option.to_string()).collect(),
        };
        for mount in [mount("/mnt/a", &["ro", "cache_ms=0"]), mount("/mnt/b", &[])] {
            state.remember_mount(&mount).unwrap();
            assert_eq!(state.remembered_mount().unwrap(), Some(mount));
        }
        // As it was written before there were options in it.
        assert_eq!(fs::read_to_string(state.mount_file()).unwrap(), "/mnt/b\n");
        assert!(state.remember_mount(&mount("/mnt/a\nro", &[])).is_err());
        fs::set_permissions(state.mount_file(), fs::Permissions::from_mode(0o666)).unwrap();
        assert!(state.remembered_mount().unwrap_err().to_string().contains("chmod go-w"));
        fs::remove_file(state.mount_file()).unwrap();
        std::os::unix::fs::symlink("/etc/hostname", state.mount_file()).unwrap();
        assert!(state.remembered_mount().is_err(), "a symlink is not followed");
    }

    #[test]
    fn a_state_that_others_may_change_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let (state, _) = StateDir::existing_or_new(&dir.path().join("s")).unwrap();
        fs::write(state.config_file(), "").unwrap();
        for (folder, bad) in [(state.root().to_path_buf(), 0o777), (state.run_dir(), 0o770), (state.servers_dir(), 0o702)] {
            fs::set_permissions(&folder, fs::Permissions::from_mode(bad)).unwrap();
            for refused in [StateDir::existing(state.root()).map(drop), StateDir::existing_or_new(state.root()).map(drop)] {
                assert!(refused.unwrap_err().to_string().contains("chmod go-w"), "{}", folder.display());
            }
            fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).unwrap();
        }
        assert!(StateDir::existing(state.root()).is_ok());
    }

    #[test]
    fn a_run_directory_that_somebody_else_made_is_passed_by() {
        let dir = tempfile::tempdir().unwrap();
        for (mode, good) in [(0o700, true), (0o755, false), (0o770, false)] {
            let path = dir.path().join(format!("{mode:o}"));
            fs::create_dir(&path).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(private_dir(&path).is_ok(), good, "{mode:o}");
        }
        std::os::unix::fs::symlink(dir.path().join("700"), dir.path().join("link")).unwrap();
        assert!(private_dir(&dir.path().join("link")).is_err());
        assert!(run_places().len() > 1, "there is always another place");
    }

    #[test]
    fn long_paths_get_short_sockets() {
        let dir = tempfile::tempdir().unwrap();
        let short = StateDir { root: dir.path().to_path_buf() };
        assert_eq!(socket_address(&short, FsId(1), "meta0").unwrap(), "unix:run/meta0.sock");
        let long = StateDir { root: dir.path().join("x".repeat(100)) };
        let address = socket_address(&long, FsId(0xfeed_0001), "meta0").unwrap();
        assert!(address.starts_with("unix:/") && address.len() < SOCKET_PATH_BYTES_MAX, "{address}");
        let _ = fs::remove_dir(Path::new(address.strip_prefix("unix:").unwrap()).parent().unwrap());
    }
}
