//! Opening and giving back files.

use std::sync::Arc;

use weft_base::{ATIME_DUE_NS, Attr, Credentials, FileKind, Handle, SECOND, Status, set_id_bits};
use weft_client::{Client, CreateOptions, DelayWrites, Error, OpenFile, OpenWith, Result, Seen};
use weft_rt::Runtime;
use weft_wire::Rights;

use crate::description::{Caching, Description, OpenHow, Opened, Stable};
use crate::gateway::Gateway;
use crate::node::{CallingThread, InodeNumber, Shown};
use crate::pages::version_of;
use crate::posix::Posix;
use crate::walks::Second;

/// For so long a name is looked up again because its file was replaced before it could be opened:
/// each time by chance, so that a number of tries alone would fail once in many opens.
const FIND_PATIENCE: u64 = 3 * SECOND;
/// And so often in any case: each may wait for servers longer than that.
const FIND_TRIES: u32 = 8;
/// No file: of an open that was to make one.
const NO_FILE: Handle = Handle(0);
/// Update: reading and writing.
const UPDATE: Rights = Rights(Rights::READ.0 | Rights::WRITE.0);

impl<R: Runtime, G: Gateway> Posix<R, G> {
    /// Opens a file.
    ///
    /// # Errors
    /// [`Status::Stale`] if it is gone, or not any more what the caller was allowed to open by what
    /// was told of it: its path must be walked again. Permissions; servers that do not answer.
    pub async fn open(&self, caller: &CallingThread, node: InodeNumber, how: OpenHow) -> Result<Opened> {
        let client = self.opening(how, false)?;
        let (attr, file) = self.noted(self.open_found(&client, caller, node, how).await)?;
        let caching = match self.caching(&attr, &file, how) {
            // What is noted of pages is noted of those under the first number.
            _ if node.is_second() => Caching::Direct,
            caching => caching,
        };
        let gathers = file.gathers();
        let number = self.add_opened(&client, &caller.who, &attr, file, caching, how).await?;
        // Who opens a file for update may lock it, and a close ends its locks. A new file is rarely
        // locked, and pays nothing for it.
        let hears_closes = self.options.keeps_locks && how.rights.contains(UPDATE) || gathers;
        Ok(Opened { number, caching, hears_closes })
    }

    /// Makes a file with these permission bits (and the umask, [`weft_base::mode_with_umask`]) and
    /// opens it. The caller believes that there is no such name.
    ///
    /// # Errors
    /// [`Status::Exists`] if it is to be new; [`Status::Stale`] if there is one and the path must
    /// be walked again. Permissions; servers that do not answer.
    pub async fn create(&self, caller: &CallingThread, dir: InodeNumber, name: &[u8], mode: u32, how: OpenHow) -> Result<(Shown, Opened)> {
        let client = self.changing("create", dir.handle())?;
        let changes = self.told.xattr_changes();
        // Nobody has checked the rights of a file that exists all the same: one that does is for
        // the caller to find when it walks the path again. If it has done so already, somebody
        // makes and removes the name in turns.
        let (second, in_vain) = self.walks.opens(caller.thread, NO_FILE, how.rights);
        self.close_in_vain(in_vain).await;
        let is_first = matches!(second, Second::No);
        let mut who = caller.who.clone();
        who.checked_by_kernel &= is_first;
        let options = self.create_options(mode, OpenHow { exclusive: how.exclusive || is_first, ..how });
        let is_allowed = options.delays != DelayWrites::No && !how.direct;
        let delays = DelayWrites::allowed(is_allowed, self.options.hears_closes || self.client.expects_large_files());
        let options = CreateOptions { delays, ..options };
        let created = client.create(&who, dir.handle(), name, &options).await.map_err(|error| {
            if error.status != Status::Exists || how.exclusive || !is_first {
                return error;
            }
            self.walks.refuse(caller.thread, how.rights, self.now());
            Error { status: Status::Stale, ..error }
        });
        let (attr, file, _) = self.noted(created)?;
        self.made_alone();
        let shown = self.show_name(dir, name, attr, changes);
        let caching = self.caching(&attr, &file, how);
        let number = self.add_file(&attr, file, caching, how.stable);
        Ok((shown, Opened { number, caching, hears_closes: delays == DelayWrites::Gathered }))
    }

    /// The client for opening a file, which may make it.
    ///
    /// # Errors
    /// As [`Posix::check_changes`] if the file, or a new one, is to be changed.
    pub(crate) fn opening(&self, how: OpenHow, makes: bool) -> Result<Client<R>> {
        if makes || how.truncate || how.rights.contains(Rights::WRITE) {
            self.check_changes("open", NO_FILE)?;
        }
        Ok(self.client.for_one_operation())
    }

    /// How a file is opened that is there.
    pub(crate) fn open_options(&self, how: OpenHow) -> OpenWith {
        let OpenHow { rights, truncate, direct, stable, .. } = how;
        let may_stay = rights.contains(Rights::WRITE) && self.options.appends_alone && stable == Stable::No && !direct;
        let gathers = self.options.hears_closes || self.client.expects_pieces();
        // What is cut to nothing may have a small content next.
        OpenWith { rights, truncate, judged: None, delays: DelayWrites::allowed(may_stay && (gathers || truncate), gathers) }
    }

    /// How a file with these permission bits is made that is opened so.
    pub(crate) fn create_options(&self, mode: u32, how: OpenHow) -> CreateOptions {
        let OpenHow { exclusive, truncate, rights, stable, .. } = how;
        let delays = DelayWrites::allowed(self.options.appends_alone && stable == Stable::No, self.options.hears_closes);
        let can_absorb = self.options.absorbs && stable == Stable::No;
        CreateOptions { mode, exclusive, truncate, rights, delays, can_absorb, ..CreateOptions::default() }
    }

    /// Makes a file without a name in a directory, with these permission bits (the umask applied
    /// already), and opens it. [`Posix::link`] gives it a name.
    ///
    /// # Errors
    /// As [`Client::create_unnamed`].
    pub async fn create_unnamed(&self, caller: &CallingThread, dir: InodeNumber, mode: u32, how: OpenHow) -> Result<(Shown, Opened)> {
        let changes = self.told.xattr_changes();
        let options = CreateOptions { mode, rights: how.rights, ..CreateOptions::default() };
        let (attr, file) = self.noted(self.changing("create", dir.handle())?.create_unnamed(&caller.who, dir.handle(), &options).await)?;
        self.told.tell(&attr, changes, self.now());
        let caching = self.caching(&attr, &file, how);
        let number = self.add_file(&attr, file, caching, how.stable);
        let shown = Shown { node: InodeNumber::of(attr.handle), attr, name_ttl_ns: 0, attr_ttl_ns: self.attr_ttl_ns(&attr) };
        Ok((shown, Opened { number, caching, hears_closes: false }))
    }

    /// True if [`Posix::before_close`] has something to do.
    pub fn has_gathered(&self, number: u64) -> bool {
        self.files.get(number).is_some_and(|open| open.file.has_gathered())
    }

    /// A descriptor of an open file is being closed, of one whose closes are heard
    /// ([`Opened::hears_closes`]): what was written to it is at servers when this returns, or goes
    /// with the close to the one that keeps it, or leaves with that of a new file.
    ///
    /// # Errors
    /// As [`Posix::write`], of the writes before: its program is to hear of that. The file is to be
    /// given back all the same.
    pub async fn before_close(&self, number: u64) -> Result<()> {
        match self.files.get(number) {
            Some(open) => self.noted(self.client.bring_gathered(&open.file).await),
            None => Ok(()),
        }
    }

    /// [`Posix::release`] without a wait, as it can nearly always be done. False, and nothing is
    /// done, if it cannot.
    pub fn try_release(&self, number: u64) -> bool {
        if self.client.has_locks() || !self.closes.has_room() {
            return false;
        }
        self.set_id.take(number);
        if let Some(open) = self.files.remove(number) {
            open.ahead.give_up();
            open.file.closes_soon();
            self.closes.push(open.file.clone());
        }
        true
    }

    /// Gives an open file back: its last descriptor is closed, or its opener does not wait for the
    /// answer. It is closed at its server soon.
    pub async fn release(&self, number: u64) {
        self.set_id.take(number);
        if let Some(open) = self.files.remove(number) {
            self.open_file_closed(open.file.handle(), number).await;
            self.close_description(&open).await;
        }
    }

    pub(crate) async fn close_description(&self, open: &Description) {
        open.ahead.give_up();
        self.close_soon(open.file.clone()).await;
    }

    /// Opens a file that the caller has found by what was told of names and rights.
    async fn open_found(
        &self,
        client: &Client<R>,
        caller: &CallingThread,
        node: InodeNumber,
        how: OpenHow,
    ) -> Result<(Attr, Arc<OpenFile>)> {
        let OpenHow { rights, truncate, .. } = how;
        let (file, thread) = (node.handle(), caller.thread);
        let (second, in_vain) = self.walks.opens(thread, file, rights);
        self.close_in_vain(in_vain).await;
        let (judged, is_first, held) = match second {
            Second::Opened(attr, opened) if !truncate => return Ok((attr, opened)),
            // Kept until it is open once more.
            Second::Opened(_, opened) => (None, false, Some(opened)),
            Second::Same => (None, false, None),
            // By its second number an object is not opened: who walks again finds the first.
            Second::No if node.is_second() => {
                self.walks.refuse(thread, rights, self.now());
                return Err(Error::local(Status::Stale, "open", file));
            }
            Second::No => (self.told.judged(file), true, None),
        };
        let known = match &judged {
            Some(judged) if is_first && !truncate && !how.direct => client.open_known(&caller.who, file, rights, judged),
            _ => None,
        };
        let outcome = match known {
            Some(known) => Ok(known),
            None => client.open_with(&caller.who, file, OpenWith { judged, ..self.open_options(how) }).await,
        };
        self.close_in_vain(held).await;
        match &outcome {
            Err(error) if error.status == Status::Stale && is_first => {
                self.walks.refuse(thread, rights, self.now());
                self.forget_told(file);
            }
            Ok((attr, _)) => {
                if let Some(known) = self.told.differs(attr) {
                    self.gateway.forget_attributes(file);
                    self.told.forgotten(file, known);
                }
            }
            Err(_) => {}
        }
        outcome
    }

    /// Looks a name up for a thread that will open what it finds, and opens it: between look-up and
    /// open it could be replaced.
    pub(crate) async fn find(&self, caller: &CallingThread, dir: Handle, name: &[u8], rights: Rights) -> Result<Seen> {
        let client = self.client.for_one_operation();
        let mut seen = client.lookup_soon(&caller.who, dir, name).await?;
        // Not before: that may have waited for a server.
        let end = self.now() + FIND_PATIENCE;
        let mut tries = 0;
        while seen.attr.kind == FileKind::File && (tries < FIND_TRIES || self.now() < end) {
            tries += 1;
            match client.open(&caller.who, seen.attr.handle, rights, false).await {
                Ok((opened, file)) => {
                    seen = Seen { attr: opened, is_exact: true };
                    let in_vain = self.walks.found(caller.thread, opened, file);
                    self.close_in_vain(in_vain).await;
                    break;
                }
                Err(error) if error.status == Status::Stale => seen = client.lookup_soon(&caller.who, dir, name).await?,
                // The open will meet it, too.
                Err(_) => break,
            }
        }
        Ok(seen)
    }

    async fn close_in_vain(&self, file: Option<Arc<OpenFile>>) {
        if let Some(file) = file {
            self.close_soon(file).await;
        }
    }

    /// How a cache above shall treat the data of a file that is being opened. Writers and streams
    /// go past it: one copy less, and what one gateway writes another reads at once. Small files
    /// that are only read are kept, so that programs that read a few bytes at a time are fast; what
    /// is there from an earlier open only if the file is the same.
    fn caching(&self, attr: &Attr, file: &OpenFile, how: OpenHow) -> Caching {
        let is_written = file.rights().contains(Rights::WRITE) || file.others_write();
        match is_written || how.direct || attr.size >= self.options.direct_from_bytes {
            true => Caching::Direct,
            false if self.pages.are_of(attr.handle, version_of(attr, self.client.restarts())) => Caching::Keep,
            false => Caching::Anew,
        }
    }

    /// Adds a file that was there before it was opened. Its set-id bits end with the first change
    /// by a plain user.
    pub(crate) async fn add_opened(
        &self,
        client: &Client<R>,
        who: &Credentials,
        attr: &Attr,
        file: Arc<OpenFile>,
        caching: Caching,
        how: OpenHow,
    ) -> Result<u64> {
        let number = self.add_file(attr, file, caching, how.stable);
        if how.rights.contains(Rights::WRITE) && set_id_bits(attr.mode) != 0 {
            if how.truncate && who.uid != 0 {
                if let Err(error) = Box::pin(self.clear_set_id(client, attr.handle)).await {
                    self.release(number).await;
                    return Err(error);
                }
            } else {
                self.set_id.watch(number);
            }
        }
        Ok(number)
    }

    fn add_file(&self, attr: &Attr, file: Arc<OpenFile>, caching: Caching, stable: Stable) -> u64 {
        let is_atime_due = self.options.sets_atime && self.is_atime_due(attr);
        let pages = (caching == Caching::Anew).then(|| version_of(attr, self.client.restarts()));
        self.files.add(Arc::new(Description::new(attr, file, (caching, pages), stable, is_atime_due)))
    }

    /// True if a read of a file with these attributes sets the time of its last access; servers
    /// look again. What keeps no times has none.
    fn is_atime_due(&self, attr: &Attr) -> bool {
        let is_old = || self.rt().wall().0.saturating_sub(attr.atime.0) >= ATIME_DUE_NS;
        attr.ctime.0 != 0 && !attr.is_sealed() && (attr.atime <= attr.mtime.max(attr.ctime) || is_old())
    }
}
