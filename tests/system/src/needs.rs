//! What a test needs of the machine. A test that cannot run says so on the terminal, past the
//! capture of the test harness: a green run must not hide that half of it did not happen. With
//! `WEFT_NO_SKIP=1` a missing need is a failure.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;

use rustix::process::geteuid;

/// Something that not every machine has.
#[derive(Clone, Copy, Debug)]
pub enum Need {
    /// This user can mount through FUSE.
    Fuse,
    /// This user is root.
    Root,
    /// Root may attach images of disks (`mount -o loop`) and `mkfs.ext4` is installed.
    LoopDevice,
    /// Root may make control groups (version 1) of this kind.
    ControlGroup(&'static str),
    /// At least this release of Linux.
    Kernel(u32, u32),
    /// Programs that are installed, by name.
    Programs(&'static [&'static str]),
}

/// True if the machine has all of it; otherwise prints that `test` is skipped, and why.
pub fn available(test: &str, needs: &[Need]) -> bool {
    let Some(reason) = needs.iter().find_map(|need| missing(*need)) else { return true };
    skip(test, &reason);
    false
}

/// Says on the terminal that `test` does not happen, and why.
pub fn skip(test: &str, reason: &str) {
    assert!(std::env::var_os("WEFT_NO_SKIP").is_none(), "{test} cannot run: {reason}, and WEFT_NO_SKIP forbids to skip it");
    // Nothing can be done if even the terminal fails.
    let _ = writeln!(std::io::stderr(), "SKIPPED {test}: {reason}");
}

fn missing(need: Need) -> Option<String> {
    match need {
        Need::Fuse => missing_fuse(),
        Need::Root => (!geteuid().is_root()).then(|| "it needs root".to_string()),
        Need::LoopDevice => missing(Need::Root).or_else(|| {
            let there = Path::new("/dev/loop-control").exists();
            if there { missing(Need::Programs(&["mkfs.ext4", "mount", "umount"])) } else { Some("there are no loop devices".into()) }
        }),
        Need::ControlGroup(kind) => missing(Need::Root)
            .or_else(|| (!crate::verdict::Limited::is_there(kind)).then(|| format!("there are no control groups {kind} of version 1"))),
        Need::Kernel(major, minor) => {
            let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
            let mut numbers = release.split(|byte: char| !byte.is_ascii_digit()).map(|digits| digits.parse().unwrap_or(0));
            let is_there = (numbers.next(), numbers.next()) >= (Some(major), Some(minor));
            (!is_there).then(|| format!("it needs Linux {major}.{minor}"))
        }
        Need::Programs(names) => names.iter().find(|name| !installed(name)).map(|name| format!("{name} is not installed")),
    }
}

/// Root opens the device itself; everybody else goes through the set-uid helper.
fn missing_fuse() -> Option<String> {
    if !Path::new("/dev/fuse").exists() {
        return Some("there is no /dev/fuse".into());
    }
    match OpenOptions::new().read(true).write(true).open("/dev/fuse") {
        Ok(_) => None,
        Err(_) if !geteuid().is_root() && installed("fusermount3") => None,
        Err(error) => Some(format!("/dev/fuse cannot be used: {error}")),
    }
}

fn installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]).any(|dir| dir.join(program).is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_program_is_named() {
        assert_eq!(missing(Need::Programs(&["sh"])), None);
        assert!(missing(Need::Programs(&["sh", "no-such-program"])).is_some_and(|reason| reason.contains("no-such-program")));
    }
}
