//! Attributes, also extended ones, and the file system as a whole.

use bytes::Bytes;
use weft_base::{ACL_ACCESS, ACL_DEFAULT, Acl, Attr, Credentials, FileKind, Handle, MODE_ACL, Status, is_project_attribute, set_id_bits};
use weft_client::{Error, FsStats, Result, SetAttr, XattrFlags};
use weft_rt::Runtime;
use weft_wire::Rights;

use crate::gateway::Gateway;
use crate::node::{InodeNumber, Shown};
use crate::posix::Posix;
use crate::told::XattrCount;

impl<R: Runtime, G: Gateway> Posix<R, G> {
    /// Attributes that need no question: after every change of a directory a kernel asks for its
    /// attributes, which are known if we made the change.
    pub fn known_attr(&self, node: InodeNumber) -> Option<Shown> {
        let (attr, _) = self.client.known_directory(node.handle())?;
        let is_known = self.told.tell_known(&attr, self.now());
        // How long: asked after what is told is noted, so that no change is missed in between.
        let (_, ttl_ns) = self.client.known_directory(node.handle())?;
        Some(Shown { node, attr, name_ttl_ns: 0, attr_ttl_ns: if is_known { ttl_ns } else { 0 } })
    }

    /// Attributes of an object that are not known ([`Posix::known_attr`]). Size and times are exact
    /// unless a data server keeps silent, and its file is not open here.
    ///
    /// # Errors
    /// [`Status::Stale`] if it is gone; servers that do not answer.
    pub async fn getattr(&self, node: InodeNumber) -> Result<Shown> {
        let changes = self.told.xattr_changes();
        let seen = self.noted(self.client.getattr_soon(node.handle()).await)?;
        match seen.is_exact {
            true => Ok(self.show(node, seen.attr, changes)),
            false => {
                // What was told before says nothing of its extended attributes any more.
                self.told.end_xattr_change(node.handle());
                Ok(Shown { node, attr: seen.attr, name_ttl_ns: 0, attr_ttl_ns: 0 })
            }
        }
    }

    /// [`Posix::getattr`] for a thread. A kernel that checks rights for it and is told that a file
    /// is gone walks the path again, once, and may open what it finds then.
    ///
    /// # Errors
    /// As [`Posix::getattr`].
    pub async fn getattr_for(&self, thread: u32, node: InodeNumber) -> Result<Shown> {
        let waits = self.walks.waits(thread, || self.now());
        let shown = self.getattr(node).await;
        drop(waits);
        if shown.as_ref().is_err_and(|error| error.status == Status::Stale) {
            self.walks.missed(thread, self.now());
        }
        shown
    }

    /// Attributes of an object for who is about to change some, as
    /// [`weft_client::Client::getattr_to_change`].
    ///
    /// # Errors
    /// As [`Posix::getattr`].
    pub async fn getattr_to_change(&self, node: InodeNumber) -> Result<Attr> {
        self.noted(self.client.getattr_to_change(node.handle()).await)
    }

    /// Changes attributes.
    ///
    /// # Errors
    /// As [`weft_client::Client::setattr`].
    pub async fn setattr(&self, who: &Credentials, node: InodeNumber, change: &SetAttr) -> Result<Shown> {
        let changes = self.told.xattr_changes();
        let result = self.changing("setattr", node.handle())?.setattr(who, node.handle(), change).await;
        if result.is_ok() {
            self.attributes_set(node.handle(), change);
        }
        if node.is_second() {
            // By its other number it has changed, too.
            self.forget_told(node.handle());
        }
        Ok(self.show(node, self.noted(result)?, changes))
    }

    /// After a change of attributes.
    pub(crate) fn attributes_set(&self, file: Handle, change: &SetAttr) {
        if change.mode.is_some_and(|mode| set_id_bits(mode) != 0) {
            // Whoever has it open for writing already clears them, too.
            let numbers = self.files.numbers(|open| open.file.handle() == file && open.file.rights().contains(Rights::WRITE));
            numbers.into_iter().for_each(|number| self.set_id.watch(number));
        }
    }

    /// What is told of an object that is known already, under this number.
    fn show(&self, node: InodeNumber, attr: Attr, changes: XattrCount) -> Shown {
        if node.is_second() {
            return Shown { node, attr, name_ttl_ns: 0, attr_ttl_ns: 0 };
        }
        let is_known = self.told.tell(&attr, changes, self.now());
        Shown { node, attr, name_ttl_ns: 0, attr_ttl_ns: if is_known { self.attr_ttl_ns(&attr) } else { 0 } }
    }

    /// A name that leads to an object with these attributes is about to be told: a kernel that
    /// knows the object already goes on by the access control list of before, unless it hears this.
    pub(crate) fn forget_old_list(&self, attr: &Attr) {
        if self.told.may_have_old_list(attr) {
            self.gateway.forget_attributes(attr.handle);
        }
    }

    /// True if it may be believed that the object has no extended attributes.
    fn is_bare(&self, node: InodeNumber) -> bool {
        match self.client.keeps_leases() {
            true => self.client.is_bare(node.handle()),
            false => self.told.is_bare(node.handle(), self.now()),
        }
    }

    /// True if a kernel may be answered that the object has no access control list. It asks when it
    /// has attributes of the object that it believes, and believes the list as long as these: what
    /// counts is whether they told of one.
    fn has_no_list(&self, node: InodeNumber) -> bool {
        match self.client.known_directory(node.handle()) {
            Some((attr, _)) => attr.mode & MODE_ACL == 0,
            None => self.told.has_no_list(node.handle(), self.now()),
        }
    }

    /// The target of a symlink.
    ///
    /// # Errors
    /// As [`weft_client::Client::readlink`].
    pub async fn readlink(&self, node: InodeNumber) -> Result<Bytes> {
        self.noted(self.client.readlink(node.handle()).await)
    }

    /// Sets an extended attribute.
    ///
    /// # Errors
    /// As [`weft_client::Client::set_xattr`]; [`Status::NotSupported`] for `system.` names other
    /// than those of access control lists.
    pub async fn set_xattr(&self, who: &Credentials, node: InodeNumber, name: &[u8], value: &[u8], flags: XattrFlags) -> Result<()> {
        let client = self.changing("setxattr", node.handle())?;
        check_supported("setxattr", node.handle(), name)?;
        self.told.begin_xattr_change();
        let result = client.set_xattr(who, node.handle(), name, value, flags).await;
        self.told.end_xattr_change(node.handle());
        if node.is_second() {
            self.forget_told(node.handle());
        }
        self.noted(result)
    }

    /// The value of an extended attribute.
    ///
    /// # Errors
    /// As [`weft_client::Client::get_xattr`]; [`Status::NotSupported`] as above, and for
    /// `security.selinux` of an object that has no extended attributes.
    pub async fn get_xattr(&self, who: &Credentials, node: InodeNumber, name: &[u8]) -> Result<Bytes> {
        check_supported("getxattr", node.handle(), name)?;
        if self.is_bare(node) && !is_project_attribute(name) || name == ACL_ACCESS.as_bytes() && self.has_no_list(node) {
            let status = if name == SELINUX { Status::NotSupported } else { Status::NoAttribute };
            return Err(Error::local(status, "getxattr", node.handle()));
        }
        match self.client.get_xattr(who, node.handle(), name).await {
            // A server of before has no such lists.
            Err(error) if error.status == Status::NotSupported && is_acl(name) => Err(Error { status: Status::NoAttribute, ..error }),
            result => {
                if is_acl(name)
                    && let Some(other) = self.told.tell_list(node.handle())
                {
                    self.gateway.forget_attributes(other);
                }
                self.noted(result)
            }
        }
    }

    /// The names of all extended attributes.
    ///
    /// # Errors
    /// As [`weft_client::Client::list_xattr`].
    pub async fn list_xattr(&self, who: &Credentials, node: InodeNumber) -> Result<Vec<Bytes>> {
        if self.is_bare(node) {
            return Ok(Vec::new());
        }
        self.noted(self.client.list_xattr(who, node.handle()).await)
    }

    /// Removes an extended attribute.
    ///
    /// # Errors
    /// As [`weft_client::Client::remove_xattr`]; [`Status::NotSupported`] as above.
    pub async fn remove_xattr(&self, who: &Credentials, node: InodeNumber, name: &[u8]) -> Result<()> {
        let client = self.changing("removexattr", node.handle())?;
        check_supported("removexattr", node.handle(), name)?;
        if is_acl(name) && self.has_no_list_of(who, node) {
            return Ok(());
        }
        self.told.begin_xattr_change();
        let result = client.remove_xattr(who, node.handle(), name).await;
        self.told.end_xattr_change(node.handle());
        self.noted(result)
    }

    /// True if this user may remove access control lists of the object, and none is there: that
    /// changes nothing, and is no error.
    fn has_no_list_of(&self, who: &Credentials, node: InodeNumber) -> bool {
        self.client.leased_attr(node.handle()).is_some_and(|attr| {
            let is_owner = who.uid == 0 || who.uid == attr.uid;
            attr.bare && is_owner && attr.kind != FileKind::Symlink && !attr.is_sealed()
        })
    }

    /// True if this object allows all that is wanted (4: read, 2: write, 1: execute or search), for
    /// callers that want to know before they do it: its access control list or, if it has none, its
    /// mode.
    ///
    /// # Errors
    /// Servers that do not answer.
    pub async fn may(&self, who: &Credentials, attr: &Attr, wanted: u32) -> Result<bool> {
        let object = (attr.mode, attr.uid, attr.gid);
        let by_mode = who.allowed_by(object, attr.kind == FileKind::Directory, wanted);
        if attr.mode & MODE_ACL == 0 || who.uid == 0 {
            return Ok(by_mode);
        }
        match self.client.get_xattr(who, attr.handle, ACL_ACCESS.as_bytes()).await {
            Ok(value) => Ok(Acl::parse(&value).ok().flatten().map_or(by_mode, |list| list.allows(who, object, wanted))),
            Err(error) if error.status == Status::NoAttribute => Ok(by_mode),
            Err(error) => self.noted(Err(error)),
        }
    }

    /// How full the file system is, or the project of this object.
    ///
    /// # Errors
    /// As [`weft_client::Client::statfs`].
    pub async fn statfs(&self, who: &Credentials, node: InodeNumber) -> Result<FsStats> {
        let stats = self.noted(self.client.statfs().await)?;
        Ok(self.client.within_project(who, node.handle(), stats).await)
    }
}

/// The label of an object. `ls -l` asks for that of every name, through the kernel and up to here,
/// until it hears that the file system has none.
const SELINUX: &[u8] = b"security.selinux";

fn is_acl(name: &[u8]) -> bool {
    [ACL_ACCESS.as_bytes(), ACL_DEFAULT.as_bytes()].contains(&name)
}

/// Other `system.` names than those of access control lists Weft does not have; the answer needs no
/// server.
fn check_supported(operation: &'static str, object: Handle, name: &[u8]) -> Result<()> {
    match name.starts_with(b"system.") && !is_acl(name) {
        true => Err(Error::local(Status::NotSupported, operation, object)),
        false => Ok(()),
    }
}
