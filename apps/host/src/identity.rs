//! Which process a pid belongs to. A pid alone says little: it may have been given to a stranger,
//! or come from a file that somebody else wrote.

use crate::proc;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// When a process began, in ticks of the machine since its start; with the pid it names the process
/// for ever.
///
/// # Errors
/// There is no such process.
pub fn started(pid: i32) -> Result<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).with_context(|| format!("cannot look at process {pid}"))?;
    proc::stat_field(&text, 22).with_context(|| format!("/proc/{pid}/stat says no start"))
}

/// Checks that a process is the one that began then, runs this program and is of this user: only
/// such a one is ended.
///
/// # Errors
/// Says which of that is not so.
pub fn check(pid: i32, began: u64) -> Result<()> {
    if started(pid)? != began {
        bail!("process {pid} is another one than that which wrote the pid file; it is left alone");
    }
    let own = nix::unistd::geteuid().as_raw();
    let status = fs::read_to_string(format!("/proc/{pid}/status")).with_context(|| format!("cannot look at process {pid}"))?;
    let user = user_of(&status).with_context(|| format!("/proc/{pid}/status says no user"))?;
    if user != own {
        bail!("process {pid} is of user {user}, and this is user {own}; it is left alone");
    }
    let (theirs, ours) = (program(Path::new(&format!("/proc/{pid}/exe")))?, program(Path::new("/proc/self/exe"))?);
    if theirs.file_name() != ours.file_name() {
        bail!("process {pid} is {} and not {}; it is left alone", theirs.display(), ours.display());
    }
    Ok(())
}

/// The effective user.
fn user_of(status: &str) -> Option<u32> {
    proc::line(status, "Uid")?.split_whitespace().nth(1)?.parse().ok()
}

/// The file of a program; one that was replaced by a newer version meanwhile is the same program.
fn program(exe: &Path) -> Result<PathBuf> {
    let path = fs::read_link(exe).with_context(|| format!("cannot read {}", exe.display()))?;
    let text = path.to_string_lossy();
    Ok(text.strip_suffix(" (deleted)").map_or(path.clone(), PathBuf::from))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_effective_user_is_the_second() {
        assert_eq!(user_of("Name:\tx\nUid:\t5\t6\t7\t8\n"), Some(6));
    }

    #[test]
    fn only_the_very_process_passes() {
        let own = std::process::id() as i32;
        let began = started(own).unwrap();
        check(own, began).unwrap();
        assert!(check(own, began + 1).unwrap_err().to_string().contains("another one"));
        let mut stranger = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = stranger.id() as i32;
        // Between fork and exec it is still this program.
        let end = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while program(Path::new(&format!("/proc/{pid}/exe")))
            .is_ok_and(|theirs| theirs.file_name() == program(Path::new("/proc/self/exe")).unwrap().file_name())
            && std::time::Instant::now() < end
        {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        let refused = check(pid, started(pid).unwrap()).unwrap_err().to_string();
        stranger.kill().unwrap();
        stranger.wait().unwrap();
        assert!(refused.contains("left alone"), "{refused}");
    }
}
