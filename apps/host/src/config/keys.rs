//! The files of keys: the key of the servers, the list of clients' keys, and the key of a client.
//!
//! ```text
//! server.key   the key of the servers, 0600: 64 hexadecimal digits; on machines with servers only
//! keys         the list of clients' keys, without secrets; where metadata server 0 runs
//! key          the key of a client, 0600: NUMBER:64 hexadecimal digits; of a subtree, also
//!              :the handle of its directory
//! ```

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use weft_base::{Handle, ROOT_HANDLE};
use weft_wire::{ClientKey, ClusterKey, Credential, KeyId, KeyRights, KeyRing};

use super::{Config, write_in_one_step};
use crate::connect::random;
use crate::trust;
use crate::units::hex;

/// The name of the key that a new file system gives to whoever made it.
pub const FIRST_KEY: &str = "default";
/// How long `weft key` waits for another one.
const LOCK_PATIENCE: Duration = Duration::from_secs(10);

/// Where the keys are that servers need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyFiles {
    /// The key of the servers.
    pub server: PathBuf,
    /// The list of clients' keys.
    pub list: PathBuf,
}

impl Config {
    /// The same for a command that asks as servers do, where their key is: so it is answered
    /// whatever has become of the key of clients. `None` if there are no keys.
    pub fn as_server(&self) -> Option<Config> {
        let files = self.key_files.as_ref()?;
        Some(Config { key_file: Some(files.server.clone()), ..self.clone() })
    }
}

impl KeyFiles {
    /// Their names beside a config.
    pub fn beside(config: &Path) -> KeyFiles {
        KeyFiles { server: config.with_file_name("server.key"), list: config.with_file_name("keys") }
    }

    /// Draws the key of the servers, and makes a first key for clients, which goes to `client`.
    /// What is there stays.
    ///
    /// # Errors
    /// Of the disk, or if the operating system gives no random bytes.
    pub fn make(&self, client: &Path) -> Result<()> {
        if !self.server.exists() {
            write_in_one_step(&self.server, format!("{}\n", hex(&random::<32>()?)).as_bytes(), 0o600)?;
        }
        let mut ring = KeyRing::new(read_server_key(&self.server)?);
        if !self.list.exists() {
            let first = ClientKey { name: FIRST_KEY.into(), generation: 1, access: KeyRights::CLIENT, is_revoked: false };
            ring.clients_mut().insert(KeyId(1), first);
            self.write_list(&ring)?;
        }
        let ring = self.ring()?;
        if !client.exists() {
            let first = ring.clients().iter().find(|(_, key)| key.name == FIRST_KEY && !key.is_revoked);
            let (id, _) = first.with_context(|| format!("{} has no key `{FIRST_KEY}`", self.list.display()))?;
            write_credential(client, &ring.credential(*id).context("the key is worth nothing")?)?;
        }
        Ok(())
    }

    /// All keys.
    ///
    /// # Errors
    /// If a file cannot be read, others may change it, or it makes no sense.
    pub fn ring(&self) -> Result<KeyRing> {
        let ring = self.without_list()?;
        let unreadable = || format!("cannot read the list of keys {}", self.list.display());
        let file = File::open(&self.list).with_context(unreadable)?;
        trust::check_file(&self.list, &file)?;
        let text = std::io::read_to_string(file).with_context(unreadable)?;
        ring.with_list(&text).map_err(|what| anyhow::anyhow!("{}: {what}", self.list.display()))
    }

    /// The key of the servers, and none of a client.
    ///
    /// # Errors
    /// As [`KeyFiles::ring`].
    pub fn without_list(&self) -> Result<KeyRing> {
        Ok(KeyRing::new(read_server_key(&self.server)?))
    }

    /// Keeps others that would change the list waiting until the result is dropped.
    ///
    /// # Errors
    /// If the key of the servers cannot be opened.
    pub fn lock(&self) -> Result<File> {
        let unlocked = || format!("cannot lock {}", self.server.display());
        let file = File::open(&self.server).with_context(unlocked)?;
        let deadline = Instant::now() + LOCK_PATIENCE;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(file),
                Err(TryLockError::WouldBlock) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(20)),
                Err(TryLockError::WouldBlock) => bail!("another `weft key` changes the list of keys; try again when it has ended"),
                Err(TryLockError::Error(error)) => return Err(error).with_context(unlocked),
            }
        }
    }

    /// Puts the list of these keys in place of what was there.
    ///
    /// # Errors
    /// Of the disk.
    pub fn write_list(&self, ring: &KeyRing) -> Result<()> {
        write_in_one_step(&self.list, ring.list().as_bytes(), 0o600)
    }
}

impl Config {
    /// The key of a client.
    ///
    /// # Errors
    /// If the key file is missing, unreadable or malformed.
    pub fn key(&self) -> Result<Option<Credential>> {
        self.key_file.as_deref().map(read_key).transpose()
    }

    /// The keys that servers accept.
    ///
    /// # Errors
    /// If they cannot be read, or clients have keys and servers do not.
    pub fn ring(&self) -> Result<Option<KeyRing>> {
        match &self.key_files {
            Some(files) => files.ring().map(Some),
            None if self.key_file.is_some() => {
                bail!("{} names a key_file for clients, and no server_key_file: servers need a key of their own", self.file.display())
            }
            None => Ok(None),
        }
    }
}

/// Writes the key of a client.
///
/// # Errors
/// Of the disk.
pub fn write_credential(file: &Path, Credential { id, key, root }: &Credential) -> Result<()> {
    let root = if *root == ROOT_HANDLE { String::new() } else { format!(":{}", root.0) };
    write_in_one_step(file, format!("{}:{}{root}\n", id.0, hex(&key.0)).as_bytes(), 0o600)
}

/// Reads a key file, which nobody else may read.
///
/// # Errors
/// If it cannot be read, others may read it, or it is no key. Its content is never part of the
/// message.
pub fn read_key(file: &Path) -> Result<Credential> {
    let text = read_secret(file)?;
    let (id, digits) = text.split_once(':').unwrap_or(("0", &text));
    let id = id.parse().ok().with_context(|| format!("{} is no key: NUMBER:DIGITS is expected", file.display()))?;
    let (digits, root) = match digits.split_once(':') {
        Some((digits, root)) => (digits, root.parse().ok().filter(|root| *root != 0).map(Handle)),
        None => (digits, Some(ROOT_HANDLE)),
    };
    let root = root.with_context(|| format!("{} is no key: the directory behind the last `:` is no handle", file.display()))?;
    Ok(Credential { id: KeyId(id), key: parse_key(file, digits)?, root })
}

fn read_server_key(file: &Path) -> Result<ClusterKey> {
    let text = read_secret(file)?;
    if text.contains(':') {
        bail!("{} is the key of a client; servers need their own", file.display());
    }
    parse_key(file, &text)
}

fn read_secret(file: &Path) -> Result<String> {
    let unreadable =
        || format!("cannot read the key {}; copy it from the machine where the file system was made, with mode 0600", file.display());
    let opened = File::open(file).with_context(unreadable)?;
    trust::check_secret(file, &opened)?;
    Ok(std::io::read_to_string(opened).with_context(unreadable)?.trim().to_string())
}

fn parse_key(file: &Path, digits: &str) -> Result<ClusterKey> {
    let mut key = [0; 32];
    if digits.len() != 64 || !digits.is_ascii() {
        bail!("{} is no key: 64 hexadecimal digits are expected", file.display());
    }
    for (byte, pair) in key.iter_mut().zip(digits.as_bytes().chunks(2)) {
        let pair = std::str::from_utf8(pair).expect("the digits were checked to be ASCII");
        *byte = u8::from_str_radix(pair, 16).with_context(|| format!("{} is no key: not hexadecimal", file.display()))?;
    }
    Ok(ClusterKey(key))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn keys_are_64_digits() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("key");
        let write = |text: &str| {
            fs::write(&file, text).unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        };
        assert!(read_key(&file).unwrap_err().to_string().contains("0600"));
        let digits = "0f".repeat(32);
        write(&format!("{digits}\n"));
        assert_eq!(read_key(&file).unwrap(), ClusterKey([15; 32]).into());
        write(&format!("7:{digits}\n"));
        assert_eq!(read_key(&file).unwrap(), Credential { id: KeyId(7), key: ClusterKey([15; 32]), root: ROOT_HANDLE });
        write(&format!("7:{digits}:32768\n"));
        assert_eq!(read_key(&file).unwrap().root, Handle(32768));
        assert!(read_server_key(&file).unwrap_err().to_string().contains("key of a client"));
        for bad in
            ["", "0f0f", &"0g".repeat(32), &"é".repeat(32), &format!("x:{digits}"), &format!("7:{digits}:x"), &format!("7:{digits}:0")]
        {
            write(bad);
            let message = format!("{:#}", read_key(&file).unwrap_err());
            assert!(message.contains("is no key") && (bad.is_empty() || !message.contains(bad)), "{message}");
        }
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(read_key(&file).unwrap_err().to_string().contains("chmod 600"));
    }

    #[test]
    fn made_keys_fit_and_stay() {
        let dir = tempfile::tempdir().unwrap();
        let files = KeyFiles::beside(&dir.path().join("weft.toml"));
        let client = dir.path().join("key");
        files.make(&client).unwrap();
        let (ring, key) = (files.ring().unwrap(), read_key(&client).unwrap());
        assert_eq!(ring.find(key.id).map(|(key, ..)| key), Some(key.key.clone()));
        assert_ne!(key.key, ring.server().key);
        files.make(&client).unwrap();
        assert_eq!(read_key(&client).unwrap(), key);
        assert_eq!(files.ring().unwrap().list(), ring.list());
    }
}
