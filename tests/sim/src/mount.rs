//! A mount without a kernel: the layer that all gateways use, over a client in virtual time, and
//! above it a cache that is as hard to convince as a kernel may be. It believes what it was told of
//! names and attributes to the last nanosecond, keeps pages as long as it is allowed to, and walks
//! a path a second time only after ESTALE.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use weft_base::{Attr, Credentials, Handle, Nanos, Payload, ROOT_HANDLE, SECOND, Status};
use weft_client::{Error, Fallocate, FsStats, RenameFlags, Result, SetAttr};
use weft_posix::{Caching, CallingThread, Gateway, InodeNumber, Listed, OpenHow, Opened, Options, Posix, Shown, WriteHow};
use weft_rt::{Bulk, Runtime};
use weft_rt_sim::{NodeId, Sim, SimRt};
use weft_wire::Rights;

use crate::cluster::Cluster;

/// Most bytes of one read: files are smaller.
const READ_BYTES: u64 = 1 << 20;

/// What a name is believed to lead to that leads nowhere.
const NOTHING: InodeNumber = InodeNumber(0);

/// What the cache of one mount believes.
#[derive(Debug, Default)]
struct Believed {
    names: BTreeMap<(InodeNumber, Vec<u8>), (InodeNumber, Nanos)>,
    attrs: BTreeMap<InodeNumber, (Attr, Nanos)>,
    pages: BTreeMap<InodeNumber, Vec<u8>>,
    /// Counts what was to be forgotten: an answer on its way then is for the moment only.
    forgotten: u64,
    /// These of attributes.
    attributes_forgotten: u64,
    lines: Vec<String>,
}

impl Believed {
    /// The attributes of an object are asked for before they are believed again.
    fn distrust(&mut self, node: InodeNumber) {
        if let Some((_, until)) = self.attrs.get_mut(&node) {
            *until = Nanos(0);
        }
    }
}

/// The cache as the layer sees it.
#[derive(Clone, Debug, Default)]
pub struct Above(Rc<RefCell<Believed>>);

impl Gateway for Above {
    fn forget_attributes(&self, file: Handle) {
        let mut believed = self.0.borrow_mut();
        believed.distrust(InodeNumber::of(file));
        believed.forgotten += 1;
        believed.attributes_forgotten += 1;
    }

    fn forget_names(&self) {
        let mut believed = self.0.borrow_mut();
        believed.names.clear();
        believed.forgotten += 1;
    }

    fn warn(&self, line: &str) {
        self.0.borrow_mut().lines.push(line.to_string());
    }
}

/// A mount.
#[derive(Clone)]
pub struct Mount {
    /// The layer.
    pub posix: Rc<Posix<SimRt, Above>>,
    /// The node on which it is mounted.
    pub node: NodeId,
    above: Above,
    hears_closes: bool,
}

/// A file that a program has open.
#[derive(Clone, Copy, Debug)]
pub struct Open {
    /// The file, as the cache knows it.
    pub node: InodeNumber,
    /// The rest.
    pub opened: Opened,
}

/// A thread of root's or of another user's whose rights the cache has checked.
pub fn caller(thread: u32, uid: u32) -> CallingThread {
    CallingThread { who: Credentials { uid, gid: uid, groups: Vec::new(), checked_by_kernel: true }, thread }
}

/// Opening for these rights.
pub fn how(rights: Rights) -> OpenHow {
    OpenHow { direct: false, ..OpenHow::direct(rights) }
}

impl Mount {
    /// How full the file system is.
    ///
    /// # Errors
    /// As [`Posix::statfs`].
    pub async fn statfs(&self) -> Result<FsStats> {
        self.posix.statfs(&Credentials::ROOT, InodeNumber::of(ROOT_HANDLE)).await
    }

    /// Mounts on a node of its own: whoever asks through it believes answers for `ttl_ns`
    /// nanoseconds; `None`: as long as leases hold.
    pub fn new(sim: &Sim, cluster: &Cluster, name: &str, ttl_ns: Option<u64>) -> Mount {
        Mount::that_absorbs(true, sim, cluster, name, ttl_ns)
    }

    /// The same, and files are made without asking, or never.
    pub fn that_absorbs(absorbs: bool, sim: &Sim, cluster: &Cluster, name: &str, ttl_ns: Option<u64>) -> Mount {
        Mount::with(Options { absorbs, ..Mount::options(ttl_ns) }, sim, cluster, name)
    }

    /// What [`Mount::new`] mounts with.
    pub fn options(ttl_ns: Option<u64>) -> Options {
        Options {
            ttl_ns: ttl_ns.unwrap_or(SECOND),
            keeps_leases: ttl_ns.is_none(),
            direct_from_bytes: 1 << 20,
            keeps_locks: true,
            appends_alone: true,
            hears_closes: false,
            absorbs: true,
            sets_atime: false,
            is_dataset: false,
        }
    }

    /// The same with these options.
    pub fn with(options: Options, sim: &Sim, cluster: &Cluster, name: &str) -> Mount {
        Mount::within(60 * SECOND, options, sim, cluster, name)
    }

    /// The same, and calls are given up after so many nanoseconds.
    pub fn within(deadline_ns: u64, options: Options, sim: &Sim, cluster: &Cluster, name: &str) -> Mount {
        let (node, client) = cluster.add_client(name, deadline_ns);
        let above = Above::default();
        let posix = Rc::new(Posix::new(client, above.clone(), options));
        let [closer, keeper, sender] = [(); 3].map(|()| posix.clone());
        sim.spawn_on(node, |_| async move { closer.close_in_background().await });
        sim.spawn_on(node, |_| async move { keeper.keep_alive().await });
        sim.spawn_on(node, |_| async move { sender.move_in_background().await });
        if options.keeps_leases {
            for server in cluster.map().meta.iter().map(|entry| entry.id) {
                let listener = posix.clone();
                sim.spawn_on(node, move |_| async move { listener.hear_notices(server).await });
            }
        }
        Mount { posix, node, above, hears_closes: options.hears_closes }
    }

    /// What people were told.
    pub fn lines(&self) -> Vec<String> {
        self.above.0.borrow().lines.clone()
    }

    fn now(&self) -> Nanos {
        self.posix.rt().now()
    }

    /// How often attributes were to be forgotten.
    pub fn attributes_forgotten(&self) -> u64 {
        self.above.0.borrow().attributes_forgotten
    }

    /// To be taken before a question.
    fn forgotten(&self) -> u64 {
        self.above.0.borrow().forgotten
    }

    /// Until when an answer may be believed for so long; `forgotten`: what was counted before the
    /// question.
    fn until(&self, ttl_ns: u64, forgotten: u64) -> Nanos {
        // Kernels know what was to be forgotten while the answer was on its way.
        self.now() + if self.forgotten() == forgotten { ttl_ns } else { 0 }
    }

    fn hear(&self, shown: &Shown, forgotten: u64) {
        let until = self.until(shown.attr_ttl_ns, forgotten);
        let mut believed = self.above.0.borrow_mut();
        let before = believed.attrs.insert(shown.node, (shown.attr, until));
        // As kernels do that were asked to look at times and sizes themselves.
        if before.is_some_and(|(before, _)| (before.size, before.mtime) != (shown.attr.size, shown.attr.mtime)) {
            believed.pages.remove(&shown.node);
        }
    }

    /// Looks a name up, unless it is believed to be known.
    ///
    /// # Errors
    /// Those of the layer.
    pub async fn walk(&self, caller: &CallingThread, dir: InodeNumber, name: &str, anew: bool) -> Result<InodeNumber> {
        let key = (dir, name.as_bytes().to_vec());
        let known = self.above.0.borrow().names.get(&key).filter(|(_, until)| self.now() < *until).map(|(node, _)| *node);
        match known {
            Some(NOTHING) if !anew => return Err(Error::local(Status::NotFound, "lookup", dir.handle())),
            Some(node) if !anew => return Ok(node),
            _ => {}
        }
        let forgotten = self.forgotten();
        let shown = self.posix.lookup(caller, dir, name.as_bytes()).await.inspect_err(|error| {
            let is_absent = error.status == Status::NotFound;
            let until = self.until(if is_absent { self.posix.absent_ttl_ns(dir, name.as_bytes()) } else { 0 }, forgotten);
            self.above.0.borrow_mut().names.insert(key.clone(), (NOTHING, until));
        })?;
        self.hear(&shown, forgotten);
        let until = self.until(shown.name_ttl_ns, forgotten);
        self.above.0.borrow_mut().names.insert(key.clone(), (shown.node, until));
        Ok(shown.node)
    }

    /// Opens a file by its name; as a kernel, once more by a new walk if the first one met what is
    /// not there any more.
    ///
    /// # Errors
    /// Those of the layer, ESTALE after the second walk among them.
    pub async fn open(&self, caller: &CallingThread, dir: InodeNumber, name: &str, how: OpenHow) -> Result<Open> {
        let mut anew = false;
        loop {
            let node = self.walk(caller, dir, name, anew).await?;
            match self.posix.open(caller, node, how).await {
                Ok(opened) => {
                    if opened.caching == Caching::Anew {
                        self.above.0.borrow_mut().pages.remove(&node);
                    }
                    return Ok(Open { node, opened });
                }
                Err(error) if error.status == Status::Stale && !anew => anew = true,
                Err(error) => return Err(error),
            }
        }
    }

    /// Makes a file, which must not be there.
    ///
    /// # Errors
    /// Those of the layer.
    pub async fn create(&self, caller: &CallingThread, dir: InodeNumber, name: &str, mode: u32) -> Result<Open> {
        let how = OpenHow { exclusive: true, ..how(Rights::READ.with(Rights::WRITE)) };
        let forgotten = self.forgotten();
        let (shown, opened) = self.posix.create(caller, dir, name.as_bytes(), mode, how).await?;
        self.hear(&shown, forgotten);
        let until = self.until(shown.name_ttl_ns, forgotten);
        self.above.0.borrow_mut().names.insert((dir, name.as_bytes().to_vec()), (shown.node, until));
        Ok(Open { node: shown.node, opened })
    }

    /// Attributes, unless they are believed to be known.
    ///
    /// # Errors
    /// Those of the layer.
    pub async fn stat(&self, node: InodeNumber) -> Result<Attr> {
        let known = self.above.0.borrow().attrs.get(&node).filter(|(_, until)| self.now() < *until).map(|(attr, _)| *attr);
        if let Some(attr) = known {
            return Ok(attr);
        }
        let forgotten = self.forgotten();
        let shown = match self.posix.known_attr(node) {
            Some(shown) => shown,
            None => self.posix.getattr(node).await?,
        };
        self.hear(&Shown { node, ..shown }, forgotten);
        Ok(shown.attr)
    }

    /// Reads the whole file, from pages if there are some and up to the size that is believed.
    ///
    /// # Errors
    /// Those of the layer.
    pub async fn read(&self, open: Open) -> Result<Vec<u8>> {
        let read = async |bytes| {
            let pieces = self.posix.read(open.opened.number, 0, bytes).await?;
            Ok(Payload::concat(&pieces))
        };
        if open.opened.caching == Caching::Direct {
            return read(READ_BYTES).await;
        }
        let size = self.stat(open.node).await?.size;
        let pages = self.above.0.borrow().pages.get(&open.node).cloned();
        let mut pages = match pages {
            Some(pages) => pages,
            None => {
                let pages = read(size.next_multiple_of(4096)).await?;
                self.above.0.borrow_mut().pages.insert(open.node, pages.clone());
                pages
            }
        };
        // What a page has no bytes for is zeros.
        pages.resize(size as usize, 0);
        Ok(pages)
    }

    /// A program closes its only descriptor of an open file.
    ///
    /// # Errors
    /// Those of the layer.
    pub async fn close(&self, open: Open) -> Result<()> {
        let hears = self.hears_closes || open.opened.hears_closes;
        let brought = if hears { self.posix.before_close(open.opened.number).await } else { Ok(()) };
        self.release(open.opened.number).await;
        brought
    }

    /// Gives an open file back, as gateways do.
    pub async fn release(&self, number: u64) {
        if !self.posix.try_release(number) {
            self.posix.release(number).await;
        }
    }

    /// Writes to an open file.
    ///
    /// # Errors
    /// Those of the layer.
    pub async fn write(&self, caller: &CallingThread, open: Open, offset: u64, data: &[u8], append: bool) -> Result<()> {
        let how = WriteHow { append, ..WriteHow::default() };
        let written = self.posix.write(&caller.who, open.opened.number, offset, Bulk::Slices(vec![data]), how).await;
        self.has_written(open.node);
        written
    }

    /// Makes a file without a name.
    ///
    /// # Errors
    /// Those of the layer.
    pub async fn create_unnamed(&self, caller: &CallingThread, dir: InodeNumber, mode: u32) -> Result<Open> {
        let forgotten = self.forgotten();
        let (shown, opened) = self.posix.create_unnamed(caller, dir, mode, how(Rights::READ.with(Rights::WRITE))).await?;
        self.hear(&shown, forgotten);
        Ok(Open { node: shown.node, opened })
    }

    /// Makes room in an open file, or a hole: so many bytes from `start` on.
    ///
    /// # Errors
    /// Those of the layer.
    pub async fn allocate(&self, caller: &CallingThread, open: Open, (start, bytes): (usize, usize), how: Fallocate) -> Result<()> {
        let allocated = self.posix.fallocate(&caller.who, open.opened.number, start as u64, bytes as u64, how).await;
        self.has_written(open.node);
        allocated
    }

    /// Copies bytes between open files; returns how many.
    ///
    /// # Errors
    /// Those of the layer.
    pub async fn copy(&self, caller: &CallingThread, from: (Open, usize), to: (Open, usize), bytes: usize) -> Result<usize> {
        let [from, to_file] = [from, to].map(|(open, offset)| (open.opened.number, offset as u64));
        let copied = self.posix.copy(&caller.who, from, to_file, bytes as u64).await;
        self.has_written(to.0.node);
        copied.map(|bytes| bytes as usize)
    }

    fn has_written(&self, node: InodeNumber) {
        let mut believed = self.above.0.borrow_mut();
        believed.attrs.remove(&node);
        believed.pages.remove(&node);
    }

    /// Lists a directory as programs do, in calls with room for so many entries.
    ///
    /// # Errors
    /// Those of the layer.
    pub async fn list(&self, caller: &CallingThread, dir: InodeNumber, with_attrs: bool, room: usize) -> Result<Vec<String>> {
        let number = self.posix.open_dir(dir);
        let (mut names, mut cookie) = (Vec::new(), 0);
        loop {
            let mut left = room;
            let after = cookie;
            let add = |entry: Listed<'_>| {
                if left > 0 {
                    assert!(entry.cookie > cookie, "a listing goes on");
                    (left, cookie) = (left - 1, entry.cookie);
                    names.push(String::from_utf8_lossy(entry.name).into_owned());
                    return false;
                }
                true
            };
            self.posix.list(number, &caller.who, after, with_attrs, add).await?;
            if left == room {
                self.posix.close_dir(number);
                return Ok(names);
            }
        }
    }

    /// Moves a name over another one.
    ///
    /// # Errors
    /// Those of the layer.
    pub async fn rename(&self, caller: &CallingThread, dir: InodeNumber, from: &str, to: &str) -> Result<()> {
        self.move_name(caller, (dir, from), (dir, to), RenameFlags::default()).await
    }

    /// Moves a name, over another one or in exchange for it.
    ///
    /// # Errors
    /// Those of the layer.
    pub async fn move_name(
        &self,
        caller: &CallingThread,
        from: (InodeNumber, &str),
        to: (InodeNumber, &str),
        flags: RenameFlags,
    ) -> Result<()> {
        // Kernels know what they move and what they replace.
        let led = [self.walk(caller, from.0, from.1, false).await, self.walk(caller, to.0, to.1, false).await];
        let [from, to] = [from, to].map(|(dir, name)| (dir, name.as_bytes()));
        self.posix.rename(&caller.who, from, to, flags).await?;
        let mut believed = self.above.0.borrow_mut();
        let [moved, replaced] = [from, to].map(|(dir, name)| believed.names.remove(&(dir, name.to_vec())));
        led.iter().flatten().for_each(|node| believed.distrust(*node));
        let back = replaced.filter(|_| flags.exchange).map(|replaced| (from, replaced));
        for ((dir, name), led) in moved.map(|moved| (to, moved)).into_iter().chain(back) {
            believed.names.insert((dir, name.to_vec()), led);
        }
        [from.0, to.0].iter().for_each(|dir| believed.distrust(*dir));
        Ok(())
    }

    /// Removes a name, of a directory if `is_directory`.
    ///
    /// # Errors
    /// Those of the layer.
    pub async fn remove(&self, caller: &CallingThread, dir: InodeNumber, name: &str, is_directory: bool) -> Result<()> {
        let node = self.walk(caller, dir, name, false).await?;
        match is_directory {
            true => self.posix.rmdir(&caller.who, dir, name.as_bytes()).await?,
            false => self.posix.unlink(&caller.who, dir, name.as_bytes()).await?,
        }
        let mut believed = self.above.0.borrow_mut();
        believed.names.remove(&(dir, name.as_bytes().to_vec()));
        believed.distrust(node);
        believed.distrust(dir);
        Ok(())
    }

    /// Makes a name with `make`, a function of the layer.
    ///
    /// # Errors
    /// Those of the layer.
    pub async fn make(&self, dir: InodeNumber, name: &str, make: impl Future<Output = Result<Shown>>) -> Result<InodeNumber> {
        let forgotten = self.forgotten();
        let shown = make.await?;
        self.hear(&shown, forgotten);
        let until = self.until(shown.name_ttl_ns, forgotten);
        let mut believed = self.above.0.borrow_mut();
        believed.names.insert((dir, name.as_bytes().to_vec()), (shown.node, until));
        believed.distrust(dir);
        Ok(shown.node)
    }

    /// Names in a directory have changed.
    pub fn changed(&self, dir: InodeNumber) {
        self.above.0.borrow_mut().distrust(dir);
    }

    /// Sets the permission bits.
    ///
    /// # Errors
    /// Those of the layer.
    pub async fn chmod(&self, caller: &CallingThread, node: InodeNumber, mode: u32) -> Result<()> {
        self.setattr(caller, node, &SetAttr { mode: Some(mode), ..SetAttr::default() }).await
    }

    /// Sets attributes.
    ///
    /// # Errors
    /// Those of the layer.
    pub async fn setattr(&self, caller: &CallingThread, node: InodeNumber, change: &SetAttr) -> Result<()> {
        let forgotten = self.forgotten();
        let shown = self.posix.setattr(&caller.who, node, change).await?;
        if change.size.is_some() {
            self.above.0.borrow_mut().pages.remove(&node);
        }
        self.hear(&shown, forgotten);
        Ok(())
    }
}
