//! The mounts of this machine, as the kernel lists them, and how to end one.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};

/// A mounted FUSE file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Where.
    pub place: PathBuf,
    /// The kernel's number of it, as `major:minor`.
    pub device: String,
    /// Its type, `fuse.weft` for ours.
    pub kind: String,
    /// Its source.
    pub source: String,
    /// Options of the mount, separated by commas.
    pub options: String,
}

/// All mounts.
///
/// # Errors
/// If the kernel does not list them.
pub fn list() -> Result<Vec<Mount>> {
    let text = std::fs::read("/proc/self/mountinfo").context("cannot read the list of mounts in /proc/self/mountinfo")?;
    Ok(text.split(|byte| *byte == b'\n').filter_map(parse_line).collect())
}

/// The uppermost mount at exactly this place, also if its server is dead and the place cannot be
/// looked at.
///
/// # Errors
/// As [`list`].
pub fn at(place: &Path) -> Result<Option<Mount>> {
    let place = resolve(place);
    Ok(list()?.into_iter().rev().find(|mount| mount.place == place))
}

/// The one of these that holds a path without symlinks.
pub fn holding<'m>(mounts: &'m [Mount], path: &Path) -> Option<&'m Mount> {
    // Of several at one place the last one is on top.
    mounts.iter().filter(|mount| path.starts_with(&mount.place)).max_by_key(|mount| mount.place.as_os_str().len())
}

/// The mount of Weft that holds `path`, and the path below it; `None` if that lies in another file
/// system. What is below a mount point is not looked at if the path itself says where it is: a
/// mount may hang.
///
/// # Errors
/// As [`list`].
pub fn containing(path: &Path) -> Result<Option<(PathBuf, PathBuf)>> {
    if path.as_os_str().is_empty() {
        return Ok(None);
    }
    let mounts = list()?;
    let inside = |path: &Path| {
        let holder = holding(&mounts, path)?;
        let rest = path.strip_prefix(&holder.place).ok()?;
        is_weft(holder).then(|| (holder.place.clone(), rest.to_path_buf()))
    };
    let absolute = std::path::absolute(path).with_context(|| format!("cannot tell where {} is", path.display()))?;
    let is_plain = !absolute.components().any(|part| part == std::path::Component::ParentDir);
    if is_plain && let Some(found) = inside(&absolute) {
        return Ok(Some(found));
    }
    if !mounts.iter().any(is_weft) {
        return Ok(None);
    }
    Ok(inside(&resolve(path)))
}

/// The absolute path without symlinks. Its last part is never looked at, since looking at a dead
/// mount fails.
pub fn resolve(place: &Path) -> PathBuf {
    let absolute = std::path::absolute(place).unwrap_or_else(|_| place.to_path_buf());
    if let Ok(path) = absolute.canonicalize() {
        return path;
    }
    match (absolute.parent().and_then(|parent| parent.canonicalize().ok()), absolute.file_name()) {
        (Some(parent), Some(name)) => parent.join(name),
        _ => absolute,
    }
}

/// Unmounts. If the mount is in use it is taken out of sight at once and ends with its last user;
/// the answer is then `false`.
///
/// # Errors
/// If it is still there afterwards; with the words of the system.
pub fn unmount(place: &Path) -> Result<bool> {
    let Err(error) = weft_fuse::unmount(place, false) else { return Ok(true) };
    weft_fuse::unmount(place, true).map(|()| false).map_err(|_| error).with_context(|| format!("cannot unmount {}", place.display()))
}

/// True once nothing is mounted at this place, waiting up to `patience`.
///
/// # Errors
/// As [`list`].
pub fn wait_gone(place: &Path, patience: Duration) -> Result<bool> {
    crate::process::wait_until(patience, || Ok(at(place)?.is_none()))
}

/// A line of mountinfo: `id parent dev root PLACE options [optional...] - KIND SOURCE options`.
fn parse_line(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|byte| *byte == b' ');
    let device = String::from_utf8_lossy(fields.nth(2)?).into_owned();
    let place = PathBuf::from(OsString::from_vec(unescape(fields.nth(1)?)));
    let options = String::from_utf8_lossy(fields.next()?).into_owned();
    let mut after = fields.skip_while(|field| *field != b"-").skip(1);
    let text = |bytes: &[u8]| OsString::from_vec(unescape(bytes)).to_string_lossy().into_owned();
    Some(Mount { place, device, kind: text(after.next()?), source: text(after.next()?), options })
}

/// Undoes the kernel's octal escapes of space, tab, newline and backslash.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((byte, after)) = rest.split_first() {
        let digits = after.get(..3).filter(|digits| *byte == b'\\' && digits.iter().all(|digit| (b'0'..=b'7').contains(digit)));
        match digits {
            Some(digits) => {
                out.push(digits.iter().fold(0u8, |value, digit| value.wrapping_mul(8).wrapping_add(digit - b'0')));
                rest = &after[3..];
            }
            None => {
                out.push(*byte);
                rest = after;
            }
        }
    }
    out
}

/// True if this mount is Weft's.
pub fn is_weft(mount: &Mount) -> bool {
    mount.kind == "fuse.weft" || mount.source.starts_with("weft:")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_mountinfo() {
        let line = b"36 35 98:0 / /mnt/with\\040space\\134x rw,noatime master:1 - fuse.weft weft:demo rw,user_id=0";
        let mount = parse_line(line).unwrap();
        let expected = Mount {
            place: "/mnt/with space\\x".into(),
            device: "98:0".into(),
            kind: "fuse.weft".into(),
            source: "weft:demo".into(),
            options: "rw,noatime".into(),
        };
        assert_eq!(mount, expected);
        assert!(is_weft(&mount));
        let plain = parse_line(b"22 1 254:0 / / rw shared:1 - ext4 /dev/vda rw").unwrap();
        assert_eq!((plain.place, plain.kind.as_str()), ("/".into(), "ext4"));
        assert_eq!(parse_line(b""), None);
        assert_eq!(parse_line(b"36 35 98:0 / /mnt rw"), None);
    }

    #[test]
    fn the_kernel_lists_a_root() {
        assert!(at(Path::new("/")).unwrap().is_some());
        assert!(at(Path::new("/no/such/place")).unwrap().is_none());
        assert!(containing(Path::new("")).unwrap().is_none());
    }
}
