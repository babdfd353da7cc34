//! File systems for the libraries that programs load: found by what a person would name, opened for
//! the user of the process.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::time::Duration;

use weft_base::Status;
use weft_library::{Error, FileSystem, Habits};
use weft_rt_real::ClientRt;

use crate::connect::{Common, Fs};
use crate::proc;

/// A file system that a program has opened.
pub type ProgramFs = FileSystem<ClientRt>;
/// An open file of one.
pub type ProgramFile = weft_library::File<ClientRt>;
/// A listing of one.
pub type ProgramListing = weft_library::Listing<ClientRt>;

/// When a program begins to keep leases: `never`, `always`, or `busy`, with some calls.
pub const LEASES_VARIABLE: &str = "WEFT_LEASES";

/// Whether a program makes files without asking: `yes` or `no`.
pub const ABSORB_VARIABLE: &str = "WEFT_ABSORB";

/// Opens the file system that `fs` names: a state directory, a config, an address or a mount point.
/// Each call may take as long as `timeout` (`None`: 30 s). Rights and umask are those of the
/// process now.
///
/// # Errors
/// If `fs` names none, its key cannot be read, or the servers do not answer.
pub fn open(fs: &OsStr, key_file: Option<PathBuf>, timeout: Option<Duration>) -> Result<ProgramFs, Error> {
    open_with(fs, key_file, timeout, || {})
}

/// [`open`]; `thread_begins` is called first on each thread beside the calls.
///
/// # Errors
/// As [`open`].
pub fn open_with(fs: &OsStr, key_file: Option<PathBuf>, timeout: Option<Duration>, thread_begins: fn()) -> Result<ProgramFs, Error> {
    let absorbs = absorbs(std::env::var_os(ABSORB_VARIABLE).as_deref())?;
    let leases_after = leases_after(std::env::var_os(LEASES_VARIABLE).as_deref(), absorbs)?;
    let habits = Habits { leases_after, absorbs, thread_begins };
    let opened = Fs::open(fs, &Common::new(key_file, timeout)).map_err(|error| Error::new(status_of(&error), format!("{error:#}")))?;
    FileSystem::open_with(opened.client, opened.who, umask(), habits)
}

/// With which call leases begin to be kept: who makes files without asking needs them at once.
fn leases_after(word: Option<&OsStr>, absorbs: bool) -> Result<Option<u32>, Error> {
    match word.map_or(Some(""), OsStr::to_str) {
        Some("never") if absorbs => {
            Err(Error::new(Status::Invalid, format!("{ABSORB_VARIABLE}=yes needs leases: leave {LEASES_VARIABLE}=never out")))
        }
        Some("never") => Ok(None),
        Some("busy" | "") if absorbs => Ok(Some(0)),
        Some("busy" | "") => Ok(Some(Habits::FEW_CALLS)),
        Some("always") => Ok(Some(0)),
        _ => {
            let given = word.unwrap_or_default().display();
            Err(Error::new(Status::Invalid, format!("{LEASES_VARIABLE}={given}: give never, busy or always")))
        }
    }
}

/// Whether files are made without asking.
fn absorbs(word: Option<&OsStr>) -> Result<bool, Error> {
    match word.map_or(Some("no"), OsStr::to_str) {
        Some("no" | "") => Ok(false),
        Some("yes") => Ok(true),
        _ => Err(Error::new(Status::Invalid, format!("{ABSORB_VARIABLE}={}: give yes or no", word.unwrap_or_default().display()))),
    }
}

/// The status at the bottom of an error for people.
fn status_of(error: &anyhow::Error) -> Status {
    let by_client = || error.downcast_ref::<weft_client::Error>().map(|error| error.status);
    let by_system = || {
        let kind = error.chain().find_map(|cause| cause.downcast_ref::<std::io::Error>())?.kind();
        Some(match kind {
            std::io::ErrorKind::NotFound => Status::NotFound,
            std::io::ErrorKind::PermissionDenied => Status::AccessDenied,
            _ => Status::Io,
        })
    };
    by_client().or_else(by_system).unwrap_or(Status::Invalid)
}

/// The bits that new files shall not have. The system call that tells them also sets them, for all
/// threads; so they are read where the kernel shows them.
fn umask() -> u32 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    proc::line(&status, "Umask").and_then(|digits| u32::from_str_radix(digits, 8).ok()).unwrap_or(0o022)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_umask_is_read_without_setting_it() {
        let before = nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(0o027));
        assert_eq!(umask(), 0o027);
        assert_eq!(umask(), 0o027);
        nix::sys::stat::umask(before);
    }

    #[test]
    fn a_word_says_when_leases_begin() {
        let after = |word: &str| leases_after(Some(OsStr::new(word)), false).ok();
        assert_eq!((after("never"), after("always")), (Some(None), Some(Some(0))));
        assert_eq!([leases_after(None, false).ok(), after("busy"), after("")], [Some(Some(Habits::FEW_CALLS)); 3]);
        let absorbing = |word: &str| leases_after(Some(OsStr::new(word)), true).ok();
        assert_eq!(
            [absorbing(""), absorbing("busy"), absorbing("always"), absorbing("never")],
            [Some(Some(0)), Some(Some(0)), Some(Some(0)), None]
        );
        assert!(leases_after(Some(OsStr::new("1")), false).unwrap_err().text.contains("WEFT_LEASES=1"));
    }

    #[test]
    fn a_word_says_whether_files_are_made_without_asking() {
        let absorbs = |word: &str| absorbs(Some(OsStr::new(word))).ok();
        assert_eq!([absorbs("yes"), absorbs("no"), absorbs(""), absorbs("1")], [Some(true), Some(false), Some(false), None]);
    }

    #[test]
    fn what_is_no_file_system_is_said() {
        let error = open(OsStr::new("/no/such/state"), None, None).unwrap_err();
        assert_eq!(error.status, Status::Invalid, "{error}");
        assert!(error.text.contains("/no/such/state"), "{error}");
        let error = open(OsStr::new(""), None, None).unwrap_err();
        assert!(error.status == Status::Invalid && error.text.contains("an empty name is no file system"), "{error:?}");
    }
}
