//! A mount is nobody's server, so commands reach it through a socket in the folder of its pid file.
//! Why not over the network: a mount would have to listen, and who may talk to it would have to be
//! proved; here the kernel knows it. The folder is the user's own, the socket has mode 0600, and a
//! caller of another user (who is not root) is refused.
//!
//! A message is its length (4 bytes, little-endian) and the body of the wire operation Trace
//! (`docs/wire.md`), in both directions; or the question which errors of servers the mount has
//! seen, and the answer.

use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use weft_wire::Wire;
use weft_wire::ops::{MOUNT_ERRORS, MountErrors, TraceReply, TraceRequest};

use crate::socket_path;

/// Most bytes of a message.
const MESSAGE_BYTES_MAX: u32 = 1 << 20;
/// Longest wait for the other side.
const PATIENCE: Duration = Duration::from_secs(5);

/// The socket of the process that holds this pid file.
pub fn path_for(pid_file: &Path) -> PathBuf {
    pid_file.with_extension("sock")
}

/// What this process says over its socket.
#[derive(Clone)]
pub struct Service {
    /// Does what a request says about the recording of this process.
    pub trace: Arc<dyn Fn(&TraceRequest) -> TraceReply + Send + Sync>,
    /// The errors that it has seen.
    pub errors: Arc<dyn Fn() -> MountErrors + Send + Sync>,
}

/// Answers commands at `path` until the process ends.
///
/// # Errors
/// The socket cannot be made.
pub fn listen(path: &Path, service: Service) -> Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(error).with_context(|| format!("cannot replace {}", path.display()));
        }
        _ => {}
    }
    let listener = socket_path::bind(path).with_context(|| format!("cannot listen at {}", path.display()))?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).with_context(|| format!("cannot protect {}", path.display()))?;
    let serve = move || {
        for stream in listener.incoming().flatten() {
            // Whoever goes away or talks nonsense gets no answer.
            let _ = answer(stream, &service);
        }
    };
    std::thread::Builder::new().name("weft-control".into()).spawn(serve).context("cannot start the thread that listens to commands")?;
    Ok(())
}

fn answer(mut stream: UnixStream, service: &Service) -> Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let peer = rustix::net::sockopt::socket_peercred(&stream)?;
    let own = nix::unistd::geteuid().as_raw();
    if peer.uid.as_raw() != own && peer.uid.as_raw() != 0 {
        return Err(anyhow!("user {} may not command a process of user {own}", peer.uid.as_raw()));
    }
    let body = receive(&mut stream)?;
    if body == MOUNT_ERRORS {
        return Ok(send(&mut stream, &(service.errors)().to_bytes())?);
    }
    let request = TraceRequest::from_bytes(body.into()).map_err(|status| anyhow!("{status}"))?;
    Ok(send(&mut stream, &(service.trace)(&request).to_bytes())?)
}

/// Sends a command to the process behind a socket.
///
/// # Errors
/// Nobody answers there.
pub fn ask(path: &Path, request: &TraceRequest) -> Result<TraceReply> {
    exchange(path, &request.to_bytes())
}

/// Asks the process behind a socket which errors of servers it has seen.
///
/// # Errors
/// Nobody answers there.
pub fn errors(path: &Path) -> Result<MountErrors> {
    exchange(path, &MOUNT_ERRORS)
}

fn exchange<T: Wire>(path: &Path, body: &[u8]) -> Result<T> {
    let mut stream = socket_path::connect(path).with_context(|| format!("nobody answers at {}", path.display()))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    send(&mut stream, body)?;
    let reply = receive(&mut stream).with_context(|| format!("no answer from {}", path.display()))?;
    T::from_bytes(reply.into()).map_err(|status| anyhow!("{}: {status}", path.display()))
}

fn send(stream: &mut UnixStream, body: &[u8]) -> io::Result<()> {
    stream.write_all(&(body.len() as u32).to_le_bytes())?;
    stream.write_all(body)
}

fn receive(stream: &mut UnixStream) -> io::Result<Vec<u8>> {
    let mut len = [0; 4];
    stream.read_exact(&mut len)?;
    let len = u32::from_le_bytes(len);
    if len > MESSAGE_BYTES_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a message of this length is none of ours"));
    }
    let mut body = vec![0; len as usize];
    stream.read_exact(&mut body)?;
    Ok(body)
}
