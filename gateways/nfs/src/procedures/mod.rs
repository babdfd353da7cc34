//! The procedures of NFSv3 (RFC 1813, section 3), by what they are about.

mod about;
mod attributes;
mod data;
mod listing;
mod names;

use weft_rt::Runtime;

use crate::gateway::{Caller, Nfs, Results};
use crate::rpc::Refusal;
use crate::types::{Failure, NfsStatus};
use crate::xdr::Reader;

/// True for changes that must not happen twice although the client asks twice.
pub fn is_done_once(procedure: u32) -> bool {
    // SETATTR, and from CREATE to LINK.
    matches!(procedure, 2 | 8..=15)
}

/// True for procedures that are about names in directories. Their arguments begin with one handle;
/// those of RENAME go on with a name, and another handle; those of LINK with another handle.
fn is_about_names(procedure: u32) -> bool {
    matches!(procedure, 3 | 8..=17)
}

const RENAME: u32 = 14;
const LINK: u32 = 15;
/// Servers know of names and not of handles: in a directory that is gone there is no name.
const MAY_BE_STALE: [NfsStatus; 4] = [NfsStatus::NOT_PERMITTED, NfsStatus::NOT_FOUND, NfsStatus::ACCESS_DENIED, NfsStatus::NOT_DIRECTORY];

/// How many optional attributes follow the status of a procedure that failed.
pub fn options_of_failure(procedure: u32) -> usize {
    match procedure {
        1 => 0,
        3 | 4 | 5 | 6 | 16..=20 => 1,
        14 => 4,
        15 => 3,
        _ => 2,
    }
}

/// Carries out a procedure: its status and results go to `results`.
pub async fn carry_out<R: Runtime>(
    nfs: &Nfs<R>,
    caller: &Caller,
    procedure: u32,
    arguments: Reader,
    results: &mut Results,
) -> Result<(), Failure> {
    if procedure == 0 {
        return Ok(());
    }
    results.out.u32(NfsStatus::OK.0);
    let again = is_about_names(procedure).then(|| arguments.clone());
    let out = &mut results.out;
    let outcome = match procedure {
        1 => nfs.getattr(caller, arguments, out).await,
        2 => nfs.setattr(caller, arguments, out).await,
        3 => nfs.lookup(caller, arguments, out).await,
        4 => nfs.access(caller, arguments, out).await,
        5 => nfs.readlink(caller, arguments, out).await,
        6 => nfs.read(caller, arguments, results).await,
        7 => nfs.write(caller, arguments, out).await,
        8 => nfs.create(caller, arguments, out).await,
        9 => nfs.mkdir(caller, arguments, out).await,
        10 => nfs.symlink(caller, arguments, out).await,
        11 => nfs.mknod(caller, arguments, out).await,
        12 => nfs.remove(caller, arguments, out).await,
        13 => nfs.rmdir(caller, arguments, out).await,
        14 => nfs.rename(caller, arguments, out).await,
        15 => nfs.link(caller, arguments, out).await,
        16 => nfs.readdir(caller, arguments, out).await,
        17 => nfs.readdirplus(caller, arguments, out).await,
        18 => nfs.fsstat(caller, arguments, out).await,
        19 => nfs.fsinfo(caller, arguments, out).await,
        20 => nfs.pathconf(caller, arguments, out).await,
        21 => nfs.commit(caller, arguments, out).await,
        _ => Err(Refusal::NoProcedure.into()),
    };
    match (outcome, again) {
        (Err(Failure::Failed(status)), Some(again)) if MAY_BE_STALE.contains(&status) => {
            let is_gone = nfs.has_gone_object(caller, procedure, again).await;
            Err(if is_gone { NfsStatus::STALE } else { status }.into())
        }
        (outcome, _) => outcome,
    }
}
