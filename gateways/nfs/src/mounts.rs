//! MOUNT version 3 (RFC 1813, appendix I), on the same port as NFS, so that no portmapper is
//! needed.

use weft_base::{Credentials, FileKind, Handle, Status, check_name};
use weft_rt::Runtime;

use crate::exports::Exported;
use crate::gateway::{Caller, Nfs, lock};
use crate::rpc::Refusal;
use crate::types::Failure;
use crate::xdr::{Reader, Writer};

/// Longest path of MOUNT, in bytes.
const PATH_BYTES_MAX: usize = 1024;
/// Most mounts that are remembered for the list; nothing depends on it.
const MOUNTS_MAX: usize = 1024;
/// `AUTH_SYS`.
const AUTH_SYS: u32 = 1;

impl<R: Runtime> Nfs<R> {
    /// Carries out a procedure of MOUNT.
    pub(crate) async fn mount_procedure(
        &self,
        caller: &Caller,
        procedure: u32,
        mut arguments: Reader,
        out: &mut Writer,
    ) -> Result<(), Failure> {
        let address = caller.peer.address.to_canonical();
        match procedure {
            0 => {}
            1 => {
                let path = arguments.opaque(PATH_BYTES_MAX)?;
                match self.mounted(caller, &String::from_utf8_lossy(&path)).await {
                    Ok((root, dir)) => {
                        let mut mounts = lock(&self.mounts);
                        if mounts.len() < MOUNTS_MAX {
                            mounts.insert((address, String::from_utf8_lossy(&path).into_owned()));
                        }
                        drop(mounts);
                        out.u32(0);
                        self.put_handle(out, root, dir);
                        out.u32(1).u32(AUTH_SYS);
                    }
                    Err(status) => drop(out.u32(mount_status(status))),
                }
            }
            2 => {
                for (address, path) in lock(&self.mounts).iter() {
                    out.bool(true).opaque(address.to_string().as_bytes()).opaque(path.as_bytes());
                }
                out.bool(false);
            }
            3 => {
                let path = arguments.opaque(PATH_BYTES_MAX)?;
                lock(&self.mounts).remove(&(address, String::from_utf8_lossy(&path).into_owned()));
            }
            4 => lock(&self.mounts).retain(|(other, _)| *other != address),
            5 => {
                for Exported { export, .. } in &self.exports {
                    out.bool(true).opaque(export.path.as_bytes());
                    for client in export.clients() {
                        out.bool(true).opaque(client.as_bytes());
                    }
                    out.bool(false);
                }
                out.bool(false);
            }
            _ => return Err(Refusal::NoProcedure.into()),
        }
        Ok(())
    }

    /// The root of the export through which a path is seen, and the directory at the path. Below
    /// the root no symlink is followed: it might lead out.
    async fn mounted(&self, caller: &Caller, path: &str) -> Result<(Handle, Handle), Status> {
        // Slashes that say nothing are forgiven.
        let path = format!("/{}", path.split('/').filter(|name| !name.is_empty()).collect::<Vec<_>>().join("/"));
        let above = self.exports.iter().filter_map(|exported| Some((exported, exported.export.rest_of(&path)?)));
        let Some((exported, rest)) = above.min_by_key(|(_, rest)| rest.len()) else { return Err(Status::NotFound) };
        if !exported.export.admits(caller.peer.address, caller.peer.port) {
            return Err(Status::AccessDenied);
        }
        let mut dir = exported.root;
        for name in rest.split('/').filter(|name| !name.is_empty()) {
            check_name(name.as_bytes())?;
            let attr = self.posix.see_name(&Credentials::ROOT, dir, name.as_bytes()).await.map_err(Status::from)?.attr;
            if attr.kind != FileKind::Directory {
                return Err(Status::NotDirectory);
            }
            dir = attr.handle;
        }
        Ok((exported.root, dir))
    }
}

/// `mountstat3`.
fn mount_status(status: Status) -> u32 {
    match status.errno() {
        same @ (1 | 2 | 13 | 20 | 22) => same as u32,
        36 => 63,
        116 => 2,
        _ if status.is_transient() => 10006,
        _ => 5,
    }
}
