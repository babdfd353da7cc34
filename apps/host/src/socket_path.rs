//! Unix sockets at paths of any length: `sun_path` has room for some hundred bytes, and a folder
//! for temporary files may be deeper. A long one is named through its folder's descriptor.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

use crate::config::SOCKET_PATH_BYTES_MAX;

/// Listens at this path.
///
/// # Errors
/// Of the operating system.
pub fn bind(path: &Path) -> io::Result<UnixListener> {
    with_short(path, |path| UnixListener::bind(path))
}

/// Connects to who listens at this path.
///
/// # Errors
/// Of the operating system.
pub fn connect(path: &Path) -> io::Result<UnixStream> {
    with_short(path, |path| UnixStream::connect(path))
}

fn with_short<T>(path: &Path, act: impl FnOnce(&Path) -> io::Result<T>) -> io::Result<T> {
    if path.as_os_str().len() <= SOCKET_PATH_BYTES_MAX {
        return act(path);
    }
    let (Some(dir), Some(name)) = (path.parent(), path.file_name()) else { return Err(io::ErrorKind::InvalidInput.into()) };
    let dir: OwnedFd = rustix::fs::open(dir, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    act(&PathBuf::from(format!("/proc/self/fd/{}", dir.as_raw_fd())).join(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};

    #[test]
    fn a_long_path_is_as_good_as_a_short_one() {
        let dir = tempfile::tempdir().unwrap();
        let long = dir.path().join("d".repeat(200)).join("e".repeat(200));
        std::fs::create_dir_all(&long).unwrap();
        for path in [dir.path().join("s"), long.join("s")] {
            let listener = bind(&path).unwrap();
            connect(&path).unwrap().write_all(b"text").unwrap();
            let mut said = String::new();
            listener.accept().unwrap().0.read_to_string(&mut said).unwrap();
            assert!(said == "text" && path.exists());
        }
        assert!(connect(&long.join("none")).is_err());
    }
}
