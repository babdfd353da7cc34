//! `weft key`: the keys of clients. It changes the list of keys of metadata server 0, which looks
//! at it every second, and all other servers learn from it.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::Serialize;
use weft_base::{FileKind, Handle, ROOT_HANDLE, ServerId, Status};
use weft_host::config::{Config, KeyFiles, read_key, write_credential};
use weft_host::connect::{Common, Fs};
use weft_host::fs_arg::CONFIG_NAME;
use weft_host::output::{Table, print, print_as, shell_word, tell};
use weft_wire::{ClientKey, KeyId, KeyRights, KeyRing, parse_users, rights_to_text};

use super::genconfig::parse_name;

/// How long servers are given to follow the list.
const FOLLOW_PATIENCE: Duration = Duration::from_secs(4);
/// Between two questions whether they do.
const FOLLOW_PAUSE: Duration = Duration::from_millis(100);

/// Add, list, revoke and replace keys of clients, where the servers run
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  weft key add nightly --users 1000-1999 --read-only --state ~/fs\n\nRun it where metadata server 0 runs: the list (`keys` beside its config) is there, and all servers follow it within three\nseconds, also on open connections. Those that do not answer are named."
)]
pub struct Args {
    #[command(subcommand)]
    what: What,
    /// The state directory, or the config of the servers
    #[arg(long, global = true, value_name = "DIR")]
    state: Option<PathBuf>,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Make a key for a client
    #[command(after_help = "Example:\n  weft key add nightly --users 1000-1999 --root-squash --state ~/fs")]
    Add {
        /// What to call it
        #[arg(value_parser = parse_name)]
        name: String,
        /// The users for whom its holder may ask: any, UID or MIN-MAX
        #[arg(long, default_value = "any", value_parser = users)]
        users: (u32, u32),
        /// Its holder may change nothing
        #[arg(long)]
        read_only: bool,
        /// Root is nobody (65534)
        #[arg(long)]
        root_squash: bool,
        /// A directory of the file system, which its holder takes for the root: nothing else can be
        /// reached. The key stays with the directory when that is renamed
        #[arg(long, value_name = "PATH")]
        subtree: Option<OsString>,
        /// The file for the key [default: NAME.key]
        #[arg(long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Show the keys and their rights
    #[command(after_help = "Example:\n  weft key list --state ~/fs")]
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Take a key back: it is refused from now on, and connections of its holders end
    #[command(after_help = "Example:\n  weft key revoke nightly --state ~/fs")]
    Revoke {
        /// Its name
        name: String,
    },
    /// Replace a key by a new one with the same rights: the old one is refused from now on, also
    /// from mounts that still have it
    #[command(after_help = "Example:\n  weft key rotate default --state ~/fs")]
    Rotate {
        /// Its name
        name: String,
        /// The file for the key [default: NAME.key; the key file of the config, if that has this
        /// key]
        #[arg(long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
}

fn users(text: &str) -> Result<(u32, u32), String> {
    parse_users(text).ok_or_else(|| "give `any`, a user id or a range such as 1000-1999".into())
}

#[derive(Serialize)]
struct Row {
    name: String,
    number: u16,
    generation: u32,
    rights: String,
}

impl Args {
    pub fn run(self, common: &Common) -> Result<()> {
        let given = self.state.context("say which file system: --state DIR")?;
        let file = if given.is_dir() { given.join(CONFIG_NAME) } else { given.clone() };
        let config = Config::load(&file)?;
        let files = config.key_files.clone().with_context(|| format!("{} names no server_key_file: it has no keys", file.display()))?;
        let root = match &self.what {
            What::List { json } => return list(&files.ring()?, *json),
            What::Add { subtree: Some(path), .. } => directory(config.clone(), &given, path.as_bytes(), common)?,
            What::Add { .. } | What::Revoke { .. } | What::Rotate { .. } => ROOT_HANDLE,
        };
        let alone = files.lock()?;
        let mut ring = files.ring()?;
        match self.what {
            What::List { .. } => {}
            What::Add { name, users: (uid_min, uid_max), read_only, root_squash, subtree: _, output } => {
                if ring.clients().values().any(|key| key.name == name) {
                    bail!("there is a key `{name}` already; names of revoked keys are not used again");
                }
                let newest = ring.clients().keys().next_back().map_or(0, |id| id.0);
                let id = KeyId(newest.checked_add(1).context("there are no more numbers for keys")?);
                let access = KeyRights { is_server: false, is_read_only: read_only, uid_min, uid_max, squashes_root: root_squash, root };
                let output = new_file(output, &name, None)?;
                ring.clients_mut().insert(id, ClientKey { name: name.clone(), generation: 1, access, is_revoked: false });
                hand_out(&files, &ring, id, &output)?;
                print(&format!("wrote the key `{name}` to {}: give it to the client, with mode 0600\n", output.display()))?;
            }
            What::Revoke { name } => {
                let (id, key) = find(&mut ring, &name, &given)?;
                key.is_revoked = true;
                files.write_list(&ring)?;
                print(&format!("revoked `{name}`\n"))?;
                if let Some(own) = own_file(&config, id) {
                    let (own, given) = (shell_word(own), shell_word(&given));
                    tell(&format!(
                        "commands with this config had that key, and are refused now: rm {own} && weft key add NAME --state {given} --output {own}"
                    ));
                }
            }
            What::Rotate { name, output } => {
                let (id, key) = find(&mut ring, &name, &given)?;
                key.generation = key.generation.checked_add(1).context("the key was replaced too often; add another one")?;
                let output = match (output, own_file(&config, id)) {
                    (None, Some(own)) => own.to_path_buf(),
                    (output, _) => new_file(output, &name, Some(id))?,
                };
                hand_out(&files, &ring, id, &output)?;
                print(&format!("wrote the new key `{name}` to {}\n", output.display()))?;
            }
        }
        drop(alone);
        tell_who_follows(&config, &files, &ring, common)?;
        Ok(())
    }
}

/// Waits until the servers go by the new list, and tells which of them do not.
fn tell_who_follows(config: &Config, files: &KeyFiles, ring: &KeyRing, common: &Common) -> Result<()> {
    let wanted = ring.fingerprint(&ring.list());
    let as_server = config.as_server().context("the config names no keys of servers")?;
    let fs = Fs::from_config(as_server, "the file system".to_string(), &common.without_key_file())?;
    let deadline = Instant::now() + FOLLOW_PATIENCE;
    let late = loop {
        let mut late = fs.run(fs.client.key_lists(wanted));
        let servers = late.len();
        late.retain(|(_, answer)| !matches!(answer, Ok(list) if *list == wanted));
        let answer = |(_, answer): &(_, weft_client::Result<u64>)| answer.is_ok();
        // Who does not answer is not waited for.
        // Nor is anybody for a list that somebody else has changed meanwhile.
        if !late.iter().any(answer) || Instant::now() >= deadline || files.ring()?.list() != ring.list() {
            break if late.len() == servers && !late.iter().any(answer) { Vec::new() } else { late };
        }
        std::thread::sleep(FOLLOW_PAUSE);
    };
    for (server, answer) in late {
        let why = match answer {
            Ok(_) if files.ring()?.list() != ring.list() => continue,
            Ok(_) if server.id == ServerId(0) => bail!(
                "{} goes by another list of keys than {}: run this on the machine of {0}, with its config",
                server.name,
                files.list.display()
            ),
            Ok(_) => "goes by another list still; its log says more".to_string(),
            Err(error) if error.status == Status::NotSupported => {
                format!("is of an older weft: copy {} to its machine", files.list.display())
            }
            Err(error) => format!("{}; it learns of this when it reaches metadata server 0", fs.why(&error)),
        };
        print(&format!("{}: {why}\n", server.name))?;
    }
    Ok(())
}

/// The secret is written before the list knows it, so that nobody waits for a key that is lost.
fn hand_out(files: &KeyFiles, ring: &KeyRing, id: KeyId, output: &Path) -> Result<()> {
    write_credential(output, &ring.credential(id).context("the key is revoked")?)?;
    files.write_list(ring)
}

/// The directory at a path of the file system that the config says.
fn directory(config: Config, given: &Path, path: &[u8], common: &Common) -> Result<Handle> {
    let fs = Fs::from_config(config, given.display().to_string(), common)?;
    let attr = fs.stat(path, true)?;
    if attr.kind != FileKind::Directory {
        bail!("{}: not a directory, and a key is for a directory and all below it", fs.shown(path));
    }
    Ok(attr.handle)
}

/// The key file that the config names, if it has this key.
fn own_file(config: &Config, id: KeyId) -> Option<&Path> {
    config.key_file.as_deref().filter(|file| has_key(file, id))
}

fn has_key(file: &Path, id: KeyId) -> bool {
    read_key(file).is_ok_and(|key| key.id == id)
}

/// Where a key goes; `before`: it replaces that one.
fn new_file(output: Option<PathBuf>, name: &str, before: Option<KeyId>) -> Result<PathBuf> {
    let output = output.unwrap_or_else(|| format!("{name}.key").into());
    if output.exists() {
        if before.is_some_and(|id| has_key(&output, id)) {
            bail!(
                "{} exists, with the key `{name}` that is to be replaced; nothing has changed: move it away, or choose another --output",
                output.display()
            );
        }
        bail!("{} exists; choose another --output", output.display());
    }
    Ok(output)
}

fn find<'a>(ring: &'a mut KeyRing, name: &str, given: &Path) -> Result<(KeyId, &'a mut ClientKey)> {
    let found = ring.clients_mut().iter_mut().find(|(_, key)| key.name == name);
    let (id, key) = found.with_context(|| format!("there is no key `{name}`; `weft key list --state {}` shows them", shell_word(given)))?;
    if key.is_revoked {
        bail!("the key `{name}` was revoked; names of revoked keys are not used again: add another one");
    }
    Ok((*id, key))
}

fn list(ring: &KeyRing, json: bool) -> Result<()> {
    let row = |(id, key): (&KeyId, &ClientKey)| Row {
        name: key.name.clone(),
        number: id.0,
        generation: key.generation,
        rights: rights_to_text(key),
    };
    let rows: Vec<Row> = ring.clients().iter().map(row).collect();
    Ok(print_as(json, &rows, || {
        let mut table = Table::new(&["name", ">number", ">generation", "rights"]);
        for Row { name, number, generation, rights } in &rows {
            table.row(vec![name.clone(), number.to_string(), generation.to_string(), rights.clone()]);
        }
        table.render()
    })?)
}
