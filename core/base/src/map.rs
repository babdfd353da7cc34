//! The cluster map: which servers a file system has, where new objects go, and its defaults.
//!
//! A server is its number ([`ServerId`]), never a position in a list: names and addresses are for
//! people and sockets. Where the data of a file lies follows from a *generation*, a list of data
//! servers that never changes. A file names its generation, so it stays where it is when servers
//! are added; new files take the newest generation.
//!
//! Metadata server 0 decides about the map. Every change makes a new *epoch* of it, which keeps all
//! servers and generations of the one before ([`ClusterMap::check_next`]). A map of epoch 0 is what
//! a configuration says: nobody has agreed on it.

use crate::{FsId, Handle, Layout, Result, ServerId, ServerRole, Status};

/// Datafiles of files in a directory that wants one on every data server: more than any file system
/// has.
pub const WIDTH_ALL: u16 = 4096;

/// One server of the map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerEntry {
    /// Its number, for ever.
    pub id: ServerId,
    /// Its name in messages for people, unique in the file system.
    pub name: String,
    /// Where it listens: `tcp:HOST:PORT` or `unix:PATH`.
    pub address: String,
}

/// A list of data servers over which files are striped. It never changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Generation {
    /// The epoch of the map that began it.
    pub id: u32,
    /// Its data servers, at least one.
    pub data: Vec<ServerId>,
}

/// What every client and server of a file system must agree on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterMap {
    /// The file system.
    pub fs_id: FsId,
    /// Its name.
    pub fs_name: String,
    /// Counts changes of the map; 0: not agreed on.
    pub epoch: u32,
    /// Metadata servers by number. At least one; number 0 owns the root.
    pub meta: Vec<ServerEntry>,
    /// Data servers by number. At least one.
    pub data: Vec<ServerEntry>,
    /// Where files are, oldest first; none in epoch 0.
    pub generations: Vec<Generation>,
    /// Stripe size of new files, in bytes.
    pub stripe_bytes: u32,
    /// Datafiles of a new file; 0 means one on every data server.
    pub stripe_width: u16,
}

impl ClusterMap {
    /// What is to be agreed on: these servers, those of each role by number. New files have a
    /// datafile on every data server.
    pub fn of(fs_id: FsId, fs_name: &str, servers: impl IntoIterator<Item = ServerEntry>, stripe_bytes: u32) -> ClusterMap {
        let (meta, data) = servers.into_iter().partition(|server| server.id.role() == ServerRole::Meta);
        ClusterMap { fs_id, fs_name: fs_name.into(), epoch: 0, meta, data, generations: Vec::new(), stripe_bytes, stripe_width: 0 }
    }

    /// The first map that is agreed on: files go to all data servers.
    pub fn founded(self, epoch: u32) -> ClusterMap {
        let first = Generation { id: epoch, data: self.data.iter().map(|server| server.id).collect() };
        ClusterMap { epoch, generations: vec![first], ..self }
    }

    /// What a configuration can say of the map: its servers.
    pub fn unagreed(&self) -> ClusterMap {
        ClusterMap { epoch: 0, generations: Vec::new(), ..self.clone() }
    }

    /// The server with this number, if there is one.
    pub fn server(&self, id: ServerId) -> Option<&ServerEntry> {
        let servers = match id.role() {
            ServerRole::Meta => &self.meta,
            ServerRole::Data => &self.data,
        };
        servers.binary_search_by_key(&id, |server| server.id).ok().map(|at| &servers[at])
    }

    /// All servers, metadata first.
    pub fn servers(&self) -> impl Iterator<Item = &ServerEntry> {
        self.meta.iter().chain(&self.data)
    }

    /// The name of a server, or its number if it is not of this map.
    pub fn name(&self, id: ServerId) -> String {
        self.server(id).map_or_else(|| id.to_string(), |server| server.name.clone())
    }

    /// The metadata server in whose range the handle lies.
    ///
    /// # Errors
    /// [`Status::Stale`] if no server of this file system has that range.
    pub fn owner(&self, handle: Handle) -> Result<ServerId> {
        let server = handle.server();
        if server.role() == ServerRole::Meta && self.server(server).is_some() { Ok(server) } else { Err(Status::Stale) }
    }

    /// The data server that holds datafile `index` of a file with this layout.
    ///
    /// # Errors
    /// [`Status::StaleMap`] if the layout is of a generation that this map does not have: the map
    /// is too old.
    pub fn data_server(&self, layout: &Layout, index: u32) -> Result<ServerId> {
        // Files in use are mostly young.
        let generation = self.generations.iter().rev().find(|generation| generation.id == layout.generation_id());
        let data = &generation.ok_or(Status::StaleMap)?.data;
        Ok(data[(usize::from(layout.first) + index as usize) % data.len()])
    }

    /// Where new files go; `None` in epoch 0.
    pub fn newest(&self) -> Option<&Generation> {
        self.generations.last()
    }

    /// What new files inherit unless a directory says otherwise.
    pub fn default_layout(&self) -> Layout {
        let width = if self.stripe_width == 0 { WIDTH_ALL } else { self.stripe_width };
        Layout { stripe_bytes: self.stripe_bytes, width, first: 0, generation: 0 }
    }

    /// The next map if this server joins the file system, or has another name or address now;
    /// `None` if nothing is new. New files may use a data server from the moment in which it joins.
    pub fn with_server(&self, entry: &ServerEntry) -> Option<ClusterMap> {
        if self.server(entry.id) == Some(entry) {
            return None;
        }
        let mut next = ClusterMap { epoch: self.epoch + 1, ..self.clone() };
        let servers = if entry.id.role() == ServerRole::Meta { &mut next.meta } else { &mut next.data };
        match servers.binary_search_by_key(&entry.id, |server| server.id) {
            Ok(at) => servers[at] = entry.clone(),
            Err(at) => {
                servers.insert(at, entry.clone());
                if entry.id.role() == ServerRole::Data {
                    let data = next.newest().map_or_else(Vec::new, |newest| newest.data.clone());
                    let data = data.into_iter().chain([entry.id]).collect();
                    next.generations.push(Generation { id: next.epoch, data });
                }
            }
        }
        Some(next)
    }

    /// Checks what everybody relies on: servers are sorted by numbers of their role, and
    /// generations by their epochs; they name data servers of the map; names are words, and no text
    /// has a line break in it. A map that somebody sends must pass this.
    ///
    /// # Errors
    /// [`Status::BadMessage`].
    pub fn check(&self) -> Result<()> {
        let sorted = |servers: &[ServerEntry], role| {
            let in_order = servers.windows(2).all(|pair| pair[0].id < pair[1].id);
            in_order && !servers.is_empty() && servers.iter().all(|server| server.id.role() == role)
        };
        let word = |text: &str| !text.is_empty() && !text.contains(|c: char| c.is_whitespace() || c.is_control());
        let line = |text: &str| !text.contains(char::is_control);
        let fits = |server: &ServerEntry| word(&server.name) && line(&server.address) && server.id != ServerId(u16::MAX);
        let known = |generation: &Generation| {
            !generation.data.is_empty() && generation.data.iter().all(|id| id.role() == ServerRole::Data && self.server(*id).is_some())
        };
        let ids: Vec<u32> = [0].into_iter().chain(self.generations.iter().map(|generation| generation.id)).collect();
        let good = sorted(&self.meta, ServerRole::Meta)
            && line(&self.fs_name)
            && self.servers().all(fits)
            && sorted(&self.data, ServerRole::Data)
            && self.generations.iter().all(known)
            && ids.windows(2).all(|pair| pair[0] < pair[1])
            && ids.last().is_some_and(|last| *last <= self.epoch && last & Layout::VARSTRIP == 0)
            && self.generations.is_empty() == (self.epoch == 0);
        if good { Ok(()) } else { Err(Status::BadMessage) }
    }

    /// Checks that `next`, which is agreed on, may come after this map: nothing that this one names
    /// is lost or changed in it.
    ///
    /// # Errors
    /// What contradicts this map, by name.
    pub fn check_next(&self, next: &ClusterMap) -> std::result::Result<(), String> {
        let epochs = format!("the map of epoch {} does not follow that of epoch {}", next.epoch, self.epoch);
        if next.fs_id != self.fs_id {
            return Err(format!("{epochs}: it is of file system {}, not {}", next.fs_id, self.fs_id));
        }
        if next.epoch < self.epoch {
            return Err(format!("{epochs}: it is older"));
        }
        if let Some(lost) = self.servers().find(|server| next.server(server.id).is_none()) {
            return Err(format!("{epochs}: {} ({}) is missing", lost.name, lost.id));
        }
        if let Some(changed) = self.generations.iter().find(|generation| !next.generations.contains(generation)) {
            return Err(format!("{epochs}: the files of generation {} would be looked for on other servers", changed.id));
        }
        if next.epoch == self.epoch && next != self {
            return Err(format!("{epochs}: it is another one of the same epoch"));
        }
        Ok(())
    }

    /// Checks that a configuration names every server of this map; more are no mistake, they can
    /// join.
    ///
    /// # Errors
    /// Which server is missing, and what to do.
    pub fn check_config(&self, config: &ClusterMap) -> std::result::Result<(), String> {
        let Some(lost) = self.servers().find(|server| config.server(server.id).is_none()) else { return Ok(()) };
        let (role, number) = (lost.id.role(), lost.id.index());
        let holds = match role {
            ServerRole::Meta => "directories and files are there",
            ServerRole::Data => "files are placed there",
        };
        Err(format!(
            "no server has role = \"{role}\" and id = {number}: that is {} at {}, and {holds}. Put its entry back, or copy the config \
             that names it; a file system cannot shrink yet",
            lost.name, lost.address
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(id: ServerId) -> ServerEntry {
        ServerEntry { id, name: id.to_string(), address: format!("unix:/{id}") }
    }

    fn map(meta: &[u16], data: &[u16]) -> ClusterMap {
        let servers = meta.iter().map(|id| ServerId(*id)).chain(data.iter().map(|id| ServerId::data(*id)));
        ClusterMap::of(FsId(5), "test", servers.map(entry), 4096)
    }

    fn places(map: &ClusterMap, layout: &Layout) -> Vec<Result<ServerId>> {
        (0..8).map(|index| map.data_server(layout, index)).collect()
    }

    #[test]
    fn a_file_stays_where_it_is_whatever_is_added() {
        let first = map(&[0], &[0, 3]).founded(1);
        let layouts: Vec<Layout> = (0..2).map(|first| Layout { stripe_bytes: 4096, width: 2, first, generation: 1 }).collect();
        let before: Vec<_> = layouts.iter().map(|layout| places(&first, layout)).collect();
        let mut grown = first.clone();
        for id in [ServerId::data(1), ServerId(4), ServerId::data(7), ServerId(1), ServerId::data(4)] {
            let next = grown.with_server(&entry(id)).expect("it is new");
            assert_eq!((grown.check_next(&next), next.check(), next.epoch), (Ok(()), Ok(()), grown.epoch + 1));
            assert!(next.check_next(&grown).is_err(), "an older map comes after no newer one");
            grown = next;
            let now: Vec<_> = layouts.iter().map(|layout| places(&grown, layout)).collect();
            assert_eq!(now, before);
        }
        let young = Layout { generation: grown.newest().unwrap().id, ..layouts[0] };
        let used: Vec<_> = places(&grown, &young).into_iter().take(5).map(|server| server.unwrap().index()).collect();
        assert_eq!(used, [0, 3, 1, 7, 4], "new files use what was added");
        assert_eq!(places(&first, &young)[0], Err(Status::StaleMap));
    }

    #[test]
    fn names_and_addresses_move_nothing() {
        let before = map(&[0], &[0, 1]).founded(1);
        assert_eq!(before.with_server(&before.data[0]), None);
        let renamed = ServerEntry { name: "store".into(), address: "tcp:b:1".into(), ..before.data[0].clone() };
        let after = before.with_server(&renamed).expect("it has another name");
        assert_eq!((after.epoch, &after.generations), (2, &before.generations));
        assert_eq!(after.name(ServerId::data(0)), "store");
        assert_eq!(before.check_next(&after), Ok(()));
        assert_eq!(before.check_config(&after), Ok(()));
    }

    #[test]
    fn what_contradicts_a_map_is_named() {
        let agreed = map(&[0, 2], &[0, 1]).founded(3);
        let says = |next: ClusterMap, words: &str| {
            let text = agreed.check_next(&next).unwrap_err();
            assert!(text.contains(words), "{text}");
        };
        says(map(&[0], &[0, 1]).founded(4), "meta2 (meta2) is missing");
        says(map(&[0, 2], &[0, 1]).founded(2), "it is older");
        says(map(&[0, 2], &[0, 1, 2]).founded(4), "generation 3 would be looked for on other servers");
        says(ClusterMap { fs_id: FsId(6), ..agreed.clone() }, "file system 0000000000000006");
        says(ClusterMap { fs_name: "other".into(), ..agreed.clone() }, "another one of the same epoch");

        let config = map(&[0, 2], &[1, 2]);
        let text = agreed.check_config(&config).unwrap_err();
        assert!(text.contains("role = \"data\" and id = 0") && text.contains("data0 at unix:/data0"), "{text}");
        assert_eq!(agreed.check_config(&map(&[0, 1, 2], &[0, 1, 2])), Ok(()), "more servers may be named");
    }

    #[test]
    fn maps_that_make_no_sense_are_refused() {
        let good = map(&[0, 1], &[0, 2]).founded(1);
        assert_eq!((good.check(), good.unagreed().check()), (Ok(()), Ok(())));
        let generation = |id, data: &[u16]| Generation { id, data: data.iter().map(|id| ServerId::data(*id)).collect() };
        let with = |generations| ClusterMap { epoch: 4, generations, ..good.clone() };
        assert_eq!(with(vec![generation(1, &[2, 0]), generation(4, &[0])]).check(), Ok(()));
        for bad in [
            with(vec![]),
            with(vec![generation(1, &[])]),
            with(vec![generation(1, &[1])]),
            with(vec![generation(0, &[0])]),
            with(vec![generation(5, &[0])]),
            with(vec![generation(2, &[0]), generation(2, &[0])]),
            with(vec![Generation { id: 1, data: vec![ServerId(0)] }]),
            ClusterMap { epoch: 0, ..good.clone() },
            good.with_server(&ServerEntry { name: "a\nb".into(), ..good.data[0].clone() }).unwrap(),
            good.with_server(&ServerEntry { address: "unix:/\ncrc32c".into(), ..good.data[0].clone() }).unwrap(),
            good.with_server(&entry(ServerId(u16::MAX))).unwrap(),
            ClusterMap { meta: Vec::new(), ..good.clone() },
            ClusterMap { data: good.meta.clone(), ..good.clone() },
            ClusterMap { meta: good.meta.iter().rev().cloned().collect(), ..good.clone() },
        ] {
            assert_eq!(bad.check(), Err(Status::BadMessage), "{bad:?}");
        }
    }

    #[test]
    fn handles_of_servers_that_are_not_there_are_stale() {
        let map = map(&[0, 5], &[0]);
        assert_eq!(map.owner(Handle::new(ServerId(5), 9)), Ok(ServerId(5)));
        for server in [ServerId(1), ServerId(6), ServerId::data(0)] {
            assert_eq!(map.owner(Handle::new(server, 9)), Err(Status::Stale));
        }
    }
}
