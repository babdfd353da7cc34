//! How a person names a file system: a state directory, a config file or `weft://HOST:PORT/NAME`,
//! and with `:/PATH` behind it an object inside. Where it is mounted is a name of it, too
//! (`mounted.rs`).

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use crate::mounts;
use crate::output::shell_word;
use crate::state::holds_config;

/// Name of the config inside a state directory.
pub const CONFIG_NAME: &str = "weft.toml";

const SCHEME: &[u8] = b"weft://";

/// A file system, as named on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FsArg {
    /// Described by this config file (of a state directory or not).
    Config(PathBuf),
    /// Described by whoever answers there.
    Address {
        /// `tcp:HOST:PORT` of any of its servers.
        address: String,
        /// Its name.
        name: String,
    },
}

/// An object in a file system, as named on the command line: `FS:/PATH`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FsPath {
    /// The file system.
    pub fs: OsString,
    /// The absolute path in it; any bytes.
    pub path: Vec<u8>,
}

impl FsArg {
    /// Finds out what `text` means.
    ///
    /// # Errors
    /// If it is none of the three forms; says what is there instead.
    pub fn parse(text: &OsStr) -> Result<FsArg> {
        if is_url(text) {
            return parse_url(&text.to_string_lossy());
        }
        let path = Path::new(text);
        if path.is_dir() {
            let config = path.join(CONFIG_NAME);
            if !holds_config(path)? {
                let is_empty = std::fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none());
                let advice = if is_empty { format!("; `weft up --state {}` makes one there", shell_word(path)) } else { String::new() };
                bail!("{} is no Weft state directory (it has no {CONFIG_NAME}) and no mount of Weft{advice}", path.display());
            }
            return Ok(FsArg::Config(config));
        }
        if path.is_file() {
            return Ok(FsArg::Config(path.to_path_buf()));
        }
        let shown = if text.is_empty() { "an empty name".into() } else { text.display().to_string() };
        bail!("{shown} is no file system: give a state directory, a config file, a mount point or weft://HOST:PORT/NAME");
    }
}

impl FsPath {
    /// Splits `FS:/PATH`; `FS:` is the root. `None` if `text` has no such form and so can only be a
    /// local path.
    ///
    /// The first `:/` ends the file system (after `weft://`), so state directories with `:/` in
    /// their path cannot be named this way.
    pub fn split(text: &OsStr) -> Option<FsPath> {
        let bytes = text.as_bytes();
        let skip = if bytes.starts_with(SCHEME) { SCHEME.len() } else { 0 };
        let colon =
            skip + bytes[skip..].windows(2).position(|pair| pair == b":/").or_else(|| bytes[skip..].strip_suffix(b":").map(<[u8]>::len))?;
        if colon == 0 || (skip > 0 && !bytes[skip..colon].contains(&b'/')) {
            return None;
        }
        let path = &bytes[colon + 1..];
        Some(FsPath {
            fs: OsStr::from_bytes(&bytes[..colon]).to_owned(),
            path: if path.is_empty() { b"/".to_vec() } else { path.to_vec() },
        })
    }

    /// Like [`FsPath::split`] where nothing but a path in a file system will do: then a file system
    /// alone is its root, and a path below a mount point is the path there.
    ///
    /// # Errors
    /// Explains the form.
    pub fn parse(text: &OsStr) -> Result<FsPath> {
        if let Some(path) = FsPath::split(text) {
            return Ok(path);
        }
        let root = || FsPath { fs: text.to_owned(), path: b"/".to_vec() };
        if is_url(text) {
            return Ok(root());
        }
        if let Some((place, rest)) = mounts::containing(Path::new(text))? {
            return Ok(FsPath { fs: place.into_os_string(), path: [b"/", rest.as_os_str().as_bytes()].concat() });
        }
        let path = Path::new(text);
        if path.join(CONFIG_NAME).is_file() || (path.is_file() && path.extension() == Some(OsStr::new("toml"))) {
            return Ok(root());
        }
        bail!("`{}` is no path in a file system: write FS:/PATH, for example ~/fs:/dir/file", text.display())
    }

    /// For messages.
    pub fn display(&self) -> String {
        format!("{}:{}", self.fs.display(), self.path.escape_ascii())
    }
}

/// True if `text` is meant as an address.
pub fn is_url(text: &OsStr) -> bool {
    text.as_bytes().starts_with(SCHEME)
}

fn parse_url(text: &str) -> Result<FsArg> {
    let rest = text.strip_prefix("weft://").unwrap_or(text);
    let parts = rest.trim_end_matches('/').split_once('/').filter(|(_, name)| !name.is_empty() && !name.contains('/'));
    if let Some((server, name)) = parts
        && let Some((host, port)) = server.rsplit_once(':')
        && !host.is_empty()
        && port.parse::<u16>().is_ok_and(|port| port != 0)
    {
        return Ok(FsArg::Address { address: format!("tcp:{server}"), name: name.to_string() });
    }
    bail!("`{text}` is no address of a file system: write weft://HOST:PORT/NAME, for example weft://node1:7000/demo");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_three_forms() {
        let dir = tempfile::tempdir().unwrap();
        let config = dir.path().join(CONFIG_NAME);
        assert!(FsArg::parse(dir.path().as_os_str()).unwrap_err().to_string().contains("no Weft state directory"));
        std::fs::write(&config, "").unwrap();
        assert_eq!(FsArg::parse(dir.path().as_os_str()).unwrap(), FsArg::Config(config.clone()));
        assert_eq!(FsArg::parse(config.as_os_str()).unwrap(), FsArg::Config(config));
        let url = |text: &str| FsArg::parse(OsStr::new(text));
        assert_eq!(url("weft://h:70/fs").unwrap(), FsArg::Address { address: "tcp:h:70".into(), name: "fs".into() });
        assert_eq!(url("weft://[::1]:70/fs/").unwrap(), FsArg::Address { address: "tcp:[::1]:70".into(), name: "fs".into() });
        for bad in
            ["weft://", "weft://h", "weft://h/fs", "weft://h:0/fs", "weft://h:70", "weft://h:70/", "weft://h:70/a/b", "weft://:70/fs"]
        {
            assert!(url(bad).unwrap_err().to_string().contains("write weft://HOST:PORT/NAME"), "{bad}");
        }
        assert!(url("/no/such/place").unwrap_err().to_string().contains("is no file system"));
    }

    #[test]
    fn paths_split_at_the_first_colon_slash() {
        let split =
            |text: &str| FsPath::split(OsStr::new(text)).map(|at| (at.fs.into_string().unwrap(), String::from_utf8(at.path).unwrap()));
        let pair = |fs: &str, path: &str| Some((fs.to_string(), path.to_string()));
        assert_eq!(split("/tmp/fs:/a/b"), pair("/tmp/fs", "/a/b"));
        assert_eq!(split("/tmp/fs:/a:/b"), pair("/tmp/fs", "/a:/b"));
        assert_eq!(split("fs:"), pair("fs", "/"));
        assert_eq!(split("weft://h:70/fs:/x"), pair("weft://h:70/fs", "/x"));
        assert_eq!(split("weft://h:70/fs:"), pair("weft://h:70/fs", "/"));
        assert_eq!(FsPath::parse(OsStr::new("weft://h:70/fs")).unwrap().path, b"/", "a file system alone is its root");
        for local in ["/tmp/file", "a:b", ":/x", "weft://h:70/fs", ""] {
            assert_eq!(split(local), None, "{local}");
        }
    }

    #[test]
    fn path_bytes_need_not_be_text() {
        let at = FsPath::parse(OsStr::from_bytes(b"fs:/a\n\xff")).unwrap();
        assert_eq!(at.path, b"/a\n\xff");
        assert_eq!(at.display(), "fs:/a\\n\\xff");
        assert!(FsPath::parse(OsStr::new("/local")).unwrap_err().to_string().contains("FS:/PATH"));
    }
}
