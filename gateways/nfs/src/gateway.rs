//! The gateway as all procedures share it: whose call it is, what its handles name, what is open.
//! The procedures themselves are in `procedures/` and `mounts.rs`, the way to them in `calls.rs`.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use weft_base::{Attr, Credentials, FileKind, FsId, Handle, MILLISECOND, Nanos, ROOT_HANDLE, SECOND, Status, crc32c};
use weft_client::{Client, Seen};
use weft_posix::{Gateway, OpenHow, Options, Posix};
use weft_rt::Runtime;
use weft_wire::{ClusterKey, Rights};

use crate::exports::{Export, Exported};
use crate::handles::{HANDLE_BYTES_MAX, NfsHandle, Seals};
use crate::locks::NfsLocks;
use crate::opens::{Judged, Opens, judged};
use crate::replies::Replies;
use crate::rpc::{Identity, Refusal};
use crate::types::{Failure, NfsStatus};
use crate::xdr::{Reader, Writer};

/// How often idle files are looked for, in nanoseconds.
const TEND_NS: u64 = 100 * MILLISECOND;
/// How long a call that needs room waits for others to be closed, in nanoseconds.
const CLOSES_NS: u64 = SECOND;
/// Most directories between an object and the root of its export that are looked at.
const DEPTH_MAX: usize = 4096;
/// How often a file is opened again because its mode changed meanwhile.
const TRIES: usize = 8;

/// What takes lines for people.
pub type Warnings = Box<dyn Fn(&str) + Send + Sync>;

/// Nothing is believed above: clients ask each time, or for as long as NFS lets them.
pub(crate) struct Above(Warnings);

impl Gateway for Above {
    fn forget_attributes(&self, _file: Handle) {}

    fn forget_names(&self) {}

    fn warn(&self, line: &str) {
        (self.0)(line);
    }
}

/// The two ends of a connection of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The address of the client.
    pub address: IpAddr,
    /// Its port.
    pub port: u16,
    /// The address by which it knows the gateway.
    pub at: IpAddr,
}

/// Who calls, and from where.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    /// From where.
    pub peer: Peer,
    /// Who it says its user is.
    pub identity: Identity,
}

/// What a handle in a call names.
#[derive(Clone, Debug)]
pub(crate) struct Object<'a> {
    pub handle: Handle,
    pub root: Handle,
    pub export: &'a Export,
    /// As whom the servers are asked.
    pub who: Credentials,
}

impl Object<'_> {
    /// # Errors
    /// If nothing may be changed through its export.
    pub fn may_change(&self) -> Result<(), NfsStatus> {
        if self.export.is_read_only { Err(NfsStatus::READ_ONLY) } else { Ok(()) }
    }
}

/// The results of a procedure, behind its status.
#[derive(Debug, Default)]
pub(crate) struct Results {
    pub out: Writer,
    /// Data that ends them and is not copied.
    pub data: Vec<Bytes>,
}

/// A file system for NFS clients. Its methods are called by many flows at once.
pub struct Nfs<R: Runtime> {
    pub(crate) posix: Posix<R, Above>,
    pub(crate) fs_id: FsId,
    pub(crate) seals: Seals,
    pub(crate) exports: Vec<Exported>,
    /// Who has mounted what, as far as clients say.
    pub(crate) mounts: Mutex<BTreeSet<(IpAddr, String)>>,
    pub(crate) replies: Mutex<Replies>,
    /// Locks of clients' programs.
    pub(crate) locks: Mutex<NfsLocks>,
    opens: Mutex<Opens>,
}

impl<R: Runtime> fmt::Debug for Nfs<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Nfs").field("fs_id", &self.fs_id).field("exports", &self.exports).finish_non_exhaustive()
    }
}

impl<R: Runtime> Nfs<R> {
    /// Over a client that has no other user; `key` is the one by which it uses the file system:
    /// without one anybody can make handles, and all of it may be exported to this machine only.
    /// The directories of the exports are looked up, and all servers are met.
    ///
    /// # Errors
    /// What is wrong with an export, for people.
    pub async fn open(client: Client<R>, key: Option<ClusterKey>, exports: Vec<Export>, log: Warnings) -> Result<Nfs<R>, String> {
        let fs_id = client.map().fs_id;
        if key.is_none()
            && let Some(export) = exports.iter().find(|export| export.path != "/" || !export.is_for_this_machine())
        {
            return Err(format!(
                "{} has no key, so whoever reaches this gateway can make handles of any file: the export {} would keep nobody out of the rest. \
                 Without a key export / to this machine only, or make a file system with keys (`weft up`, `weft genconfig`)",
                client.map().fs_name,
                export.path
            ));
        }
        // Such a key may name only what it was told of in this life, and no parent: its servers
        // would refuse handles that clients have kept, and users that they name.
        if client.parent(ROOT_HANDLE).await.is_err_and(|error| error.status == Status::KeyForbids) {
            return Err(format!(
                "this key is for some users or a directory only, or takes root for nobody: NFS clients say who their users are, and keep \
                 handles. Use a key for all of {}; exports say who is nobody (root_squash, all_squash)",
                client.map().fs_name
            ));
        }
        let mut found: Vec<Exported> = Vec::new();
        for export in exports {
            let path = export.path.clone();
            let attr = client.resolve(&Credentials::ROOT, path.as_bytes(), true).await;
            let attr = attr.map_err(|error| format!("cannot export {path}: {}", error.explain(client.map())))?;
            if attr.kind != FileKind::Directory {
                return Err(format!("cannot export {path}: it is no directory"));
            }
            if let Some(other) = found.iter().find(|other| other.root == attr.handle) {
                return Err(format!("cannot export {path}: it is exported already, as {}", other.export.path));
            }
            found.push(Exported { export, root: attr.handle });
        }
        let options = Options {
            ttl_ns: 0,
            keeps_leases: false,
            direct_from_bytes: 0,
            keeps_locks: true,
            appends_alone: false,
            hears_closes: false,
            absorbs: false,
            sets_atime: false,
            is_dataset: false,
        };
        let mut posix = Posix::new(client, Above(log), options);
        posix.finish_changes();
        posix.keep_leases_below();
        posix.meet_servers().await;
        let (mounts, replies, locks, opens) = (Mutex::default(), Mutex::default(), Mutex::default(), Mutex::default());
        Ok(Nfs { posix, fs_id, seals: Seals::new(fs_id, key), exports: found, mounts, replies, locks, opens })
    }

    /// What a handle in the arguments names, for this caller.
    pub(crate) fn object(&self, caller: &Caller, arguments: &mut Reader) -> Result<Object<'_>, Failure> {
        self.object_of(caller, &arguments.opaque(HANDLE_BYTES_MAX)?)
    }

    /// What this handle names, for this caller.
    pub(crate) fn object_of(&self, caller: &Caller, handle: &[u8]) -> Result<Object<'_>, Failure> {
        let NfsHandle { root, object } = self.seals.open(handle)?;
        let exported = self.exports.iter().find(|exported| exported.root == root).ok_or(NfsStatus::STALE)?;
        if !exported.export.admits(caller.peer.address, caller.peer.port) {
            return Err(Refusal::Rejected.into());
        }
        Ok(Object { handle: object, root, export: &exported.export, who: exported.export.credentials(&caller.identity) })
    }

    /// Writes the handle of an object beside another one.
    pub(crate) fn put_handle(&self, out: &mut Writer, root: Handle, object: Handle) {
        out.opaque(&self.seals.seal(NfsHandle { root, object }));
    }

    /// Attributes of an object that has a name, as far as they can be had soon.
    pub(crate) async fn look(&self, handle: Handle) -> Result<Seen, Failure> {
        let seen = self.posix.see(handle).await?;
        named(seen.attr).map(|attr| Seen { attr, ..seen })
    }

    /// The same for those who do not care for the size.
    pub(crate) async fn seen(&self, handle: Handle) -> Result<Attr, Failure> {
        Ok(self.look(handle).await?.attr)
    }

    /// The same, exact. A client that appends writes where these say that the file ends.
    pub(crate) async fn seen_exactly(&self, handle: Handle) -> Result<Attr, Failure> {
        let seen = self.look(handle).await?;
        if seen.is_exact { Ok(seen.attr) } else { named(self.posix.wait_to_see(handle).await?) }
    }

    /// Attributes for those who may want them: exact, or none.
    pub(crate) async fn seen_after(&self, handle: Handle) -> Option<Attr> {
        self.look(handle).await.ok().and_then(exact)
    }

    /// The directory above one, as an export shows it: its root has none above, and what was moved
    /// out of it is not shown.
    pub(crate) async fn above(&self, object: &Object<'_>) -> Result<Handle, Failure> {
        if object.handle == object.root {
            return Ok(object.root);
        }
        let above = self.posix.parent(object.handle).await?;
        let mut at = above;
        for _ in 0..DEPTH_MAX {
            if at == object.root {
                return Ok(above);
            }
            let next = self.posix.parent(at).await?;
            if next == at {
                break;
            }
            at = next;
        }
        Err(NfsStatus::STALE.into())
    }

    /// The file, open for its caller and this right: give it back with [`Nfs::give_back`].
    pub(crate) async fn opened(&self, object: &Object<'_>, attr: &Attr, right: Rights) -> Result<u64, Failure> {
        let Object { handle, who, .. } = object;
        match attr.kind {
            FileKind::File => {}
            FileKind::Directory => return Err(NfsStatus::IS_DIRECTORY.into()),
            _ => return Err(NfsStatus::INVALID.into()),
        }
        if let Some(number) = lock(&self.opens).take(*handle, who, right, judged(attr)) {
            return Ok(number);
        }
        let how = OpenHow::direct(right);
        for _ in 0..TRIES {
            let outcome = self.posix.open_handle(who, *handle, how).await;
            let (now, number) = match outcome {
                Err(error) if error.status == weft_base::Status::AccessDenied => {
                    // A program keeps what it has open whatever becomes of its mode, and a client
                    // must read what it is to execute.
                    let attr = self.seen(*handle).await?;
                    let may = who.uid == attr.uid || right == Rights::READ && self.posix.may(who, &attr, 1).await?;
                    if !may {
                        return Err(error.into());
                    }
                    let trusted = Credentials { checked_by_kernel: true, ..who.clone() };
                    let (now, number) = self.posix.open_handle(&trusted, *handle, how).await?;
                    if judged(&now) != judged(&attr) {
                        self.posix.release(number).await;
                        continue;
                    }
                    (now, number)
                }
                outcome => outcome?,
            };
            self.add_open(object, right, judged(&now), number).await;
            return Ok(number);
        }
        Err(NfsStatus::LATER.into())
    }

    /// The file, open by whomever.
    pub(crate) async fn opened_by_any(&self, object: &Object<'_>) -> Result<u64, Failure> {
        if let Some(number) = lock(&self.opens).take_any(object.handle) {
            return Ok(number);
        }
        let who = Credentials { checked_by_kernel: true, ..object.who.clone() };
        let how = OpenHow::direct(Rights::READ);
        let (_, number) = self.posix.open_handle(&who, object.handle, how).await?;
        // It admits nobody: no file has such a mode.
        self.add_open(object, Rights::default(), (u32::MAX, u32::MAX, u32::MAX), number).await;
        Ok(number)
    }

    /// Keeps a file that was opened for a caller, who uses it.
    pub(crate) async fn add_open(&self, object: &Object<'_>, rights: Rights, judged: Judged, number: u64) {
        let is_full = {
            let mut opens = lock(&self.opens);
            opens.add(object.handle, &object.who, rights, judged, number);
            opens.is_full()
        };
        if is_full {
            self.close_idle().await;
        }
    }

    /// A call does not use the file any more; `is_done`: nobody will soon.
    pub(crate) fn give_back(&self, handle: Handle, number: u64, is_done: bool) {
        lock(&self.opens).give_back(handle, number, is_done, self.now());
    }

    /// Closes what nobody uses at this moment: while a file is open for writing, its owner has less
    /// room elsewhere if he is limited. False: there was nothing.
    pub(crate) async fn make_room(&self) -> bool {
        let unused = lock(&self.opens).unused_writers();
        let is_any = !unused.is_empty();
        self.close(unused).await;
        if is_any {
            self.posix.await_closes(CLOSES_NS).await;
        }
        is_any
    }

    async fn close_idle(&self) {
        let idle = lock(&self.opens).idle(self.now());
        self.close(idle).await;
    }

    async fn close(&self, numbers: Vec<u64>) {
        for number in numbers {
            if !self.posix.try_release(number) {
                self.posix.release(number).await;
            }
        }
    }

    /// Closes files that nobody uses, for as long as `goes_on` says. To be driven beside the calls.
    pub async fn tend(&self, goes_on: impl Fn() -> bool) {
        while goes_on() {
            self.posix.rt().sleep_until(self.now() + TEND_NS).await;
            self.close_idle().await;
        }
    }

    /// The verifier of writes: another one as soon as a server is known to have restarted, which
    /// may have lost what was not on stable storage. The same at every gateway that knows the same.
    pub(crate) fn write_verifier(&self) -> [u8; 8] {
        let mut lives = Writer::default();
        lives.u64(self.fs_id.0);
        for (server, boot) in self.posix.boots() {
            lives.u32(server.0.into()).u32(boot);
        }
        let (low, high) = (crc32c(&lives.0), crc32c(&lives.0.iter().rev().copied().collect::<Vec<u8>>()));
        (u64::from(high) << 32 | u64::from(low)).to_be_bytes()
    }

    pub(crate) fn now(&self) -> Nanos {
        self.posix.rt().now()
    }
}

/// What has lost its last name is kept for those who have it open, and NFS clients have not.
fn named(attr: Attr) -> Result<Attr, Failure> {
    if attr.nlink == 0 { Err(NfsStatus::STALE.into()) } else { Ok(attr) }
}

/// Attributes that a client may be told: a size that is not exact is none.
pub(crate) fn exact(seen: Seen) -> Option<Attr> {
    seen.is_exact.then_some(seen.attr)
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
