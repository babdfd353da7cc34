//! A mount that only one job sees: the process that will be the job makes a mount namespace (and a
//! user namespace, unless it is root), attaches a connection there and hands it to whoever serves
//! it outside. So no set-uid helper is needed, and the kernel removes the mount with the last
//! process that sees it.
//!
//! The two talk over a Unix socket in a private folder: the job says what became of its mount
//! ([`Said`]), waits for one byte, and goes on as the job. If the other side goes away it ends.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;

use anyhow::{Context, Result, bail};
use nix::sched::{CloneFlags, unshare};
use rustix::mount::MountPropagationFlags;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use rustix::process::Signal;

/// First bytes of what a job says: it has attached a connection, needs none, or failed.
const ATTACHED: u8 = b'a';
const READY: u8 = b'r';
const FAILED: u8 = b'f';
/// What it is told when the mount is usable.
const GO: u8 = b'g';
/// Most bytes that a job says.
const SAID_BYTES_MAX: usize = 4096;

/// What a job says before it begins.
#[derive(Debug)]
pub enum Said {
    /// It has attached this connection.
    Attached(OwnedFd),
    /// It needs no mount of its own.
    Ready,
    /// Why it could not attach one.
    Failed(String),
}

impl Said {
    /// Tells the other side.
    ///
    /// # Errors
    /// If it has gone.
    pub fn tell(&self, stream: &UnixStream) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let descriptors;
        let (first, text) = match self {
            Said::Attached(device) => {
                descriptors = [device.as_fd()];
                control.push(SendAncillaryMessage::ScmRights(&descriptors));
                (ATTACHED, "")
            }
            Said::Ready => (READY, ""),
            Said::Failed(why) => (FAILED, why.as_str()),
        };
        let text = &text.as_bytes()[..text.len().min(SAID_BYTES_MAX - 1)];
        rustix::net::sendmsg(stream, &[IoSlice::new(&[first]), IoSlice::new(text)], &mut control, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    /// Hears what a job says; the stream has a deadline.
    ///
    /// # Errors
    /// If it says nothing, or nonsense.
    pub fn hear(stream: &UnixStream) -> io::Result<Said> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut said = [0; SAID_BYTES_MAX];
        let received = rustix::net::recvmsg(stream, &mut [IoSliceMut::new(&mut said)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
        let device = control.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
            _ => None,
        });
        match (said[..received.bytes].split_first(), device) {
            (Some((&ATTACHED, _)), Some(device)) => Ok(Said::Attached(device)),
            (Some((&READY, _)), None) => Ok(Said::Ready),
            (Some((&FAILED, text)), None) => Ok(Said::Failed(String::from_utf8_lossy(text).into_owned())),
            _ => Err(io::Error::new(io::ErrorKind::InvalidData, "the job said nothing that makes sense")),
        }
    }
}

/// Lets a job begin.
///
/// # Errors
/// If it has gone.
pub fn go(mut stream: &UnixStream) -> io::Result<()> {
    stream.write_all(&[GO])
}

/// Waits until the job may begin.
///
/// # Errors
/// If the other side went away instead.
pub fn wait_for_go(mut stream: &UnixStream) -> Result<()> {
    let mut byte = [0];
    match stream.read(&mut byte) {
        Ok(1) if byte == [GO] => Ok(()),
        Ok(_) => bail!("the mount did not come up"),
        Err(error) => Err(error).context("cannot hear whether the mount is usable"),
    }
}

/// Makes this process die with its parent, which must still be `parent`. Namespaces come before:
/// the kernel forgets the wish when rights change.
///
/// # Errors
/// If the parent has gone already.
pub fn die_with(parent: i32) -> Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).context("cannot ask the kernel to end with `weft run`")?;
    if nix::unistd::getppid().as_raw() != parent {
        bail!("`weft run` has gone");
    }
    Ok(())
}

/// Attaches a connection at `place` in a mount namespace that this process makes for itself and its
/// children: one that is read-only, and from which no program is run, if so asked. It must have one
/// thread only.
///
/// # Errors
/// Which of the steps this machine does not allow; this process may be in new namespaces by then.
pub fn attach(place: &Path, fs_name: &str, (read_only, no_exec): (bool, bool)) -> Result<OwnedFd> {
    let (user, group) = (nix::unistd::geteuid(), nix::unistd::getegid());
    let is_root = user.is_root() && unshare(CloneFlags::CLONE_NEWNS).is_ok();
    if !is_root {
        unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNS).context("this machine allows no user and mount namespace")?;
        // Without a right to change groups nobody can give up a group that forbids him something.
        for (file, text) in
            [("setgroups", "deny".to_string()), ("uid_map", format!("{user} {user} 1")), ("gid_map", format!("{group} {group} 1"))]
        {
            std::fs::write(format!("/proc/self/{file}"), text).with_context(|| format!("cannot write /proc/self/{file}"))?;
        }
    }
    // What is mounted here is not to be seen elsewhere.
    rustix::mount::mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
        .context("cannot make the mounts of this namespace private")?;
    let asked = weft_fuse::KernelFlags { allow_other: is_root, read_only, no_exec };
    weft_fuse::mount_directly(place, fs_name, asked).context("cannot mount in a namespace")
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn what_a_job_says_arrives_with_its_descriptor() {
        let (job, other) = UnixStream::pair().unwrap();
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "the very file").unwrap();
        Said::Attached(File::open(file.path()).unwrap().into()).tell(&job).unwrap();
        let Said::Attached(device) = Said::hear(&other).unwrap() else { panic!("a descriptor was sent") };
        assert_eq!(io::read_to_string(File::from(device)).unwrap(), "the very file");
        Said::Ready.tell(&job).unwrap();
        assert!(matches!(Said::hear(&other).unwrap(), Said::Ready));
        Said::Failed("x".repeat(2 * SAID_BYTES_MAX)).tell(&job).unwrap();
        assert!(matches!(Said::hear(&other).unwrap(), Said::Failed(why) if why.len() == SAID_BYTES_MAX - 1));
        drop(job);
        assert!(Said::hear(&other).is_err(), "gone without a word");
    }

    #[test]
    fn a_job_begins_only_when_it_is_told() {
        let (job, other) = UnixStream::pair().unwrap();
        go(&other).unwrap();
        wait_for_go(&job).unwrap();
        drop(other);
        assert!(wait_for_go(&job).unwrap_err().to_string().contains("did not come up"));
    }
}
