//! Directories that this client makes, and attributes that it sets of directories, without asking:
//! in those that are delegated to it (`delegations.rs`). What unpacks an archive sets times, owner
//! and mode of each directory that it has made.

use bytes::Bytes;
use weft_base::{Attr, Credentials, FileKind, Handle, MODE_PROJECT, MODE_SETGID, ServerId};
use weft_layout::directory_server;
use weft_rt::Runtime;
use weft_wire::Rights;
use weft_wire::ops::{DirChange, FileState, NewAttributes, NewFile, PartitionMap};

use super::absorb::CHANGE_NAMES;
use super::delegations::DirectoryGranted;
use super::kept::KeptAttributes;
use super::untold::{Absorbed, Done};
use crate::flow::Flow;
use crate::knowledge::{Effect, Touched};
use crate::{Client, Result, SetAttr};

impl<R: Runtime> Client<R> {
    /// Makes a directory in one that is delegated to this client, without a message: it is this
    /// client's, too. `None`: its server must be asked.
    ///
    /// # Errors
    /// Servers that do not answer when they are asked where directories belong.
    pub(crate) async fn absorb_directory(
        &self,
        flow: Flow,
        who: &Credentials,
        dir: Handle,
        name: &Bytes,
        mode: u32,
    ) -> Result<Option<Attr>> {
        let (delegations, knowledge) = (&self.inner.delegations, &self.inner.knowledge);
        let permissions = mode & 0o7777;
        if permissions & 0o7000 != 0 || !delegations.makes_directories(dir) || self.server_of_new(flow, dir, name).await? != dir.server() {
            return Ok(None);
        }
        let now = self.rt().now();
        Ok(delegations.absorb(dir, now, |place| {
            let parent = knowledge.has_no_name(dir, name, now)?;
            if !who.checked_by_kernel && !parent.allows(who, CHANGE_NAMES) {
                return None;
            }
            let inherits_group = parent.mode & MODE_SETGID != 0;
            let (at, handle) = (place.at, place.handle);
            // It inherits the hints, which say the same of it.
            let attr = Attr {
                handle,
                mode: permissions | parent.mode & (MODE_SETGID | MODE_PROJECT),
                uid: who.uid,
                gid: if inherits_group { parent.gid } else { who.gid },
                nlink: 2,
                size: 0,
                atime: at,
                mtime: at,
                ctime: at,
                born: at,
                version: 1,
                ..parent
            };
            let change = self.changing(Touched::Name(dir, name));
            let asked = change.done(Effect::MadeDirectory(DirChange { version: parent.version + 1, time: at }, Some(&attr)));
            let state = state_of(attr);
            knowledge.made_name(asked, (dir, dir.server()), name, (handle, FileKind::Directory), Some(&state));
            let new = NewFile {
                name: name.clone(),
                handle,
                mode: permissions,
                open: Rights::default(),
                open_sequence: 0,
                delays: false,
                made_at: at,
                named_at: at,
                layout: attr.layout,
            };
            Some((Absorbed { dir, who: who.clone(), since: now, done: Done::Directory(new) }, attr))
        }))
    }

    /// The server that a new directory belongs to.
    async fn server_of_new(&self, flow: Flow, dir: Handle, name: &Bytes) -> Result<ServerId> {
        let servers: Vec<ServerId> = self.map().meta.iter().map(|entry| entry.id).collect();
        if let [only] = servers[..] {
            return Ok(only);
        }
        let key = self.name_key(flow, dir.server()).await?;
        Ok(directory_server(dir, key.hash(name), &servers))
    }

    /// Changes attributes of a directory that is delegated to this client, without a message:
    /// permission bits and times by its owner. `None`: its server must be asked.
    pub(crate) fn absorb_attributes(&self, who: &Credentials, dir: Handle, changes: &SetAttr) -> Option<Attr> {
        let (knowledge, now) = (&self.inner.knowledge, self.rt().now());
        let may_set = |granted: &DirectoryGranted| granted.tells_directories;
        self.inner.delegations.change(dir, now, may_set, |at, _| {
            let before = knowledge.leased_directory(dir, now)?;
            let kept = KeptAttributes::with(None, &before, who.uid, changes, at)?;
            let KeptAttributes { mode, atime, mtime, .. } = kept;
            let version = before.version + 1;
            let attr = Attr { mtime: mtime.unwrap_or(before.mtime), ctime: before.ctime.max(at), version, ..kept.set_in(before) };
            let asked = self.changing(Touched::Object(dir)).done(Effect::Attributes(&attr));
            knowledge.told_object(asked, &state_of(attr));
            knowledge.learned(asked, &attr);
            let set = NewAttributes { position: 0, dir, who: who.clone(), mode, atime, mtime, at, version };
            Some((Absorbed { dir, who: who.clone(), since: now, done: Done::Attributes(set) }, attr))
        })
    }
}

/// As the server of a directory would tell it.
fn state_of(attr: Attr) -> FileState {
    FileState { attr, ask_data: None, partitions: Some(PartitionMap::whole(attr.handle.server())) }
}
