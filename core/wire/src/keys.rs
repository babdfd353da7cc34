//! Keys. Servers have one of their own: with it they sign capabilities and prove themselves to each
//! other. The key of a client follows from it, from the number of the client's key and a
//! generation, so servers keep no secret but theirs, and a client can prove nothing but its own
//! key. What a key may do stands in the list of keys ([`KeyRing`]).

use std::collections::BTreeMap;
use std::fmt::Write;

use weft_base::{ClientId, Credentials, Handle, ROOT_HANDLE, Result, Status, is_project_attribute};

use crate::codec::wire_for_newtypes;
use crate::ops::{AllowedBy, CloseRequest, Family, RemoveXattrRequest, SetXattrRequest, Space};
use crate::{ClusterKey, Op, Request, Rights};

/// Number of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyId(pub u16);

impl KeyId {
    /// The key of servers.
    pub const SERVERS: KeyId = KeyId(0);

    /// The identity of a client with this key: its upper bits are the number of the key, so nobody
    /// takes the identity of a client with another key.
    pub fn client(self, random: u64) -> ClientId {
        ClientId(u64::from(self.0) << 48 | random >> 16)
    }

    /// True if a client with this key may have that identity.
    pub fn is_of(self, client: ClientId) -> bool {
        self == KeyId::SERVERS || client.0 >> 48 == u64::from(self.0)
    }
}

impl std::fmt::Display for KeyId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {
            KeyId::SERVERS => f.write_str("the key of the servers"),
            KeyId(id) => write!(f, "key {id}"),
        }
    }
}

wire_for_newtypes! { KeyId; }

/// A key and which one it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credential {
    /// Which.
    pub id: KeyId,
    /// The secret.
    pub key: ClusterKey,
    /// The directory that its client takes for the root.
    pub root: Handle,
}

impl From<ClusterKey> for Credential {
    fn from(key: ClusterKey) -> Credential {
        Credential { id: KeyId::SERVERS, key, root: ROOT_HANDLE }
    }
}

impl Op {
    /// True for what servers ask each other, and no client.
    pub const fn is_between_servers(self) -> bool {
        matches!(self.allowed_by(), AllowedBy::ServersKey)
    }
}

/// What the holder of a key may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyRights {
    /// Send what servers send to each other.
    pub is_server: bool,
    /// Change nothing.
    pub is_read_only: bool,
    /// The users for whom it may ask: from this number on,
    pub uid_min: u32,
    /// up to this one.
    pub uid_max: u32,
    /// Root is nobody.
    pub squashes_root: bool,
    /// The directory in which everything is that it may reach: what its client takes for the root.
    pub root: Handle,
}

/// User and group that root becomes for a key that squashes root.
pub const NOBODY: u32 = 65534;

impl KeyRights {
    /// All that servers may.
    pub const SERVER: KeyRights = KeyRights { is_server: true, ..KeyRights::CLIENT };
    /// All that a client may.
    pub const CLIENT: KeyRights =
        KeyRights { is_server: false, is_read_only: false, uid_min: 0, uid_max: u32::MAX, squashes_root: false, root: ROOT_HANDLE };

    /// True if requests must be looked at before they are executed.
    pub fn is_limited(&self) -> bool {
        KeyRights { is_server: false, ..*self } != KeyRights::CLIENT
    }

    /// May it send a request of this operation?
    ///
    /// # Errors
    /// [`Status::KeyForbids`]; [`Status::KeyReadsOnly`] for a change with a key that only reads.
    #[inline]
    pub fn check_operation(&self, op: Op) -> Result<()> {
        if !self.is_server && op.is_between_servers() {
            return Err(Status::KeyForbids);
        }
        if !self.is_limited() {
            return Ok(());
        }
        match op.allowed_by() {
            AllowedBy::UnlimitedKey => Err(Status::KeyForbids),
            // They tell of objects of which the client may not know.
            _ if self.needs_tags() && matches!(op, Op::Live | Op::Parent) => Err(Status::KeyForbids),
            // Whether they change something is in the request.
            AllowedBy::Open => Ok(()),
            AllowedBy::User if matches!(op, Op::Open | Op::Split) => Ok(()),
            _ if self.is_read_only && op.space() != Space::Untouched => Err(Status::KeyReadsOnly),
            _ => Ok(()),
        }
    }

    /// True if it speaks for every user. If not, its client is believed nothing that would stand
    /// for a permission: that its kernel has looked at permission bits, and what it has open.
    fn is_for_everybody(&self) -> bool {
        *self == KeyRights { is_read_only: self.is_read_only, is_server: self.is_server, root: self.root, ..KeyRights::CLIENT }
    }

    /// True if its client may name only objects of which it was told
    /// ([`HandleTags`](crate::HandleTags)).
    pub fn needs_tags(&self) -> bool {
        self.root != ROOT_HANDLE || !self.is_for_everybody()
    }

    /// Sees to it that a request asks for no more than the key allows: root may become nobody, and
    /// what its client says it has open is no more than `held` says, which gives the owner of the
    /// file, too. What an owner has open he may go on to use, whatever the mode is by now: he could
    /// change that.
    ///
    /// # Errors
    /// [`Status::KeyForbids`] for a user that the key does not speak for, and for the project of an
    /// object; [`Status::KeyReadsOnly`].
    pub fn check_request(&self, request: &mut Request, held: impl Fn(Handle) -> (Rights, Option<u32>)) -> Result<()> {
        let opened = |handle| held(handle).0;
        if self.is_read_only && changes_in_passing(request) {
            return Err(Status::KeyReadsOnly);
        }
        if let (true, Request::CloseMany(many)) = (self.is_read_only, &mut *request) {
            // Who may change nothing leaves no time of access either.
            many.read = None;
        }
        match &*request {
            // Who is limited does not say which limits count for him.
            Request::SetXattr(SetXattrRequest { name, .. }) | Request::RemoveXattr(RemoveXattrRequest { name, .. })
                if is_project_attribute(name) =>
            {
                return Err(Status::KeyForbids);
            }
            _ => {}
        }
        // It could not tell of what it makes or removes so.
        match &mut *request {
            Request::Create(create) => create.can_hold = None,
            Request::Mkdir(mkdir) => mkdir.can_hold = None,
            Request::Unlink(unlink) => unlink.can_hold = None,
            _ => {}
        }
        if !self.is_for_everybody() {
            believe(request, opened);
        }
        let is_renewal = match request {
            Request::Open(open) => open.who.checked_by_kernel && opened(open.handle).contains(open.rights.and(READ_AND_WRITE)),
            _ => false,
        };
        who_asks(request).map_or(Ok(()), |who| self.check_user(who))?;
        if let (true, Request::Open(open)) = (is_renewal, request) {
            open.who.checked_by_kernel |= held(open.handle).1 == Some(open.who.uid);
        }
        Ok(())
    }

    /// Sees to it that nobody is kept by a lock from a file that the client may not open, or from
    /// appending to one that it may not write to.
    ///
    /// # Errors
    /// [`Status::AccessDenied`] for a lock on a file that the client does not have open so.
    pub fn check_opened(&self, request: &Request, opened: impl Fn(Handle) -> Rights) -> Result<()> {
        let (locked, family) = match request {
            Request::Lock(request) => (request.handle, request.lock.family),
            Request::LockTest(request) => (request.handle, request.lock.family),
            _ => return Ok(()),
        };
        let is_open = |rights: Rights| match family {
            Family::Append => rights.contains(Rights::WRITE),
            Family::Fcntl | Family::Flock => rights != Rights::default(),
        };
        if self.is_for_everybody() || is_open(opened(locked)) { Ok(()) } else { Err(Status::AccessDenied) }
    }

    fn check_user(&self, who: &mut Credentials) -> Result<()> {
        who.checked_by_kernel &= self.is_for_everybody();
        if self.squashes_root {
            if who.uid == 0 {
                who.uid = NOBODY;
                who.groups.clear();
            }
            if who.gid == 0 {
                who.gid = NOBODY;
            }
            who.groups.retain(|group| *group != 0);
        }
        let squashed = self.squashes_root && who.uid == NOBODY;
        if squashed || (self.uid_min..=self.uid_max).contains(&who.uid) { Ok(()) } else { Err(Status::KeyForbids) }
    }
}

/// What permissions of a file decide about.
const READ_AND_WRITE: Rights = Rights(Rights::READ.0 | Rights::WRITE.0);

/// Does a request that reads also change something?
fn changes_in_passing(request: &Request) -> bool {
    let more_than_read = |rights: Rights| !Rights::READ.contains(rights);
    match request {
        Request::Open(open) => more_than_read(open.rights) || open.truncate,
        Request::Close(close) => close.written.is_some(),
        Request::CloseMany(many) => {
            // What was kept of a file, its server takes also from who has it open no more since it
            // restarted.
            many.contents.is_some() || many.attributes.is_some() || many.closes.iter().any(|close| close.written.is_some())
        }
        Request::Reclaim(reclaim) => reclaim.opens.iter().any(|open| more_than_read(open.rights)),
        // Without a number it asks only.
        Request::Split(split) => split.servers != 0,
        _ => false,
    }
}

/// Takes out of a request what its client says of files that it does not have open for writing.
fn believe(request: &mut Request, opened: impl Fn(Handle) -> Rights) {
    let writes = |handle: Handle| opened(handle).contains(Rights::WRITE);
    let report = |close: &mut CloseRequest| {
        if let Some(written) = close.written.as_mut().filter(|_| !writes(close.handle)) {
            // As after a truncation: the data servers are asked what was written.
            written.truncate_epoch = u32::MAX;
        }
    };
    match request {
        Request::SetAttr(request) => request.opened_for_write &= writes(request.handle),
        Request::Close(request) => report(request),
        Request::CloseMany(request) => request.closes.iter_mut().for_each(report),
        Request::Reclaim(request) => {
            for open in request.opens.iter_mut().filter(|open| !writes(open.handle)) {
                open.rights = open.rights.and(Rights::READ);
            }
        }
        _ => {}
    }
}

/// The user in a request, if it names one.
fn who_asks(request: &mut Request) -> Option<&mut Credentials> {
    Some(match request {
        Request::Lookup(request) => &mut request.who,
        Request::Create(request) => &mut request.who,
        Request::Mkdir(request) => &mut request.who,
        Request::Unlink(request) => &mut request.who,
        Request::Rmdir(request) => &mut request.who,
        Request::Rename(request) => &mut request.who,
        Request::Link(request) => &mut request.who,
        Request::ReadDir(request) => &mut request.who,
        Request::LookupMany(request) => &mut request.who,
        Request::RemoveEntries(request) => &mut request.who,
        Request::Split(request) => &mut request.who,
        Request::SetAttr(request) => &mut request.who,
        Request::Open(request) => &mut request.who,
        Request::GetXattr(request) => &mut request.who,
        Request::SetXattr(request) => &mut request.who,
        Request::ListXattr(request) => &mut request.who,
        Request::RemoveXattr(request) => &mut request.who,
        Request::Usage(request) => &mut request.who,
        _ => return None,
    })
}

/// A client's key, as the list of keys has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientKey {
    /// What a person calls it.
    pub name: String,
    /// Counts its replacements; a key of an earlier generation is worth nothing.
    pub generation: u32,
    /// What it may do.
    pub access: KeyRights,
    /// It is worth nothing any more.
    pub is_revoked: bool,
}

/// The keys that a server accepts.
#[derive(Clone, Debug)]
pub struct KeyRing {
    server: ClusterKey,
    clients: BTreeMap<KeyId, ClientKey>,
    /// Whoever reaches the server may do everything.
    is_open: bool,
}

/// First line of the list.
const HEADING: &str = "weft keys 1";

impl ClusterKey {
    /// The key of a client.
    pub fn of_client(&self, id: KeyId, generation: u32) -> ClusterKey {
        ClusterKey(self.mac(b"weft client key", &[&id.0.to_le_bytes(), &generation.to_le_bytes()]))
    }
}

impl KeyRing {
    /// Servers with this key, and no clients yet.
    pub fn new(server: ClusterKey) -> KeyRing {
        KeyRing { server, clients: BTreeMap::new(), is_open: false }
    }

    /// Of a server without a key: it proves nothing, and everybody may do everything.
    pub fn open(key: ClusterKey) -> KeyRing {
        KeyRing { is_open: true, ..KeyRing::new(key) }
    }

    /// The same with the clients of a list.
    ///
    /// # Errors
    /// What is wrong with it, and in which line.
    pub fn with_list(self, text: &str) -> std::result::Result<KeyRing, String> {
        let mut clients = BTreeMap::new();
        let mut lines = text.lines().enumerate();
        if lines.next().map(|(_, line)| line) != Some(HEADING) {
            return Err(format!("line 1: `{HEADING}` is expected"));
        }
        for (number, line) in lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#')) {
            let (id, key) = parse_line(line).map_err(|what| format!("line {}: {what}", number + 1))?;
            if clients.insert(id, key).is_some() {
                return Err(format!("line {}: key {} is there twice", number + 1, id.0));
            }
        }
        Ok(KeyRing { clients, ..self })
    }

    /// The list of clients' keys, without any secret.
    pub fn list(&self) -> String {
        let mut text = format!("{HEADING}\n# Keys of clients: number, generation, name, rights. `weft key` changes this list.\n");
        for (id, key) in &self.clients {
            writeln!(text, "{} {} {} {}", id.0, key.generation, key.name, rights_to_text(key)).expect("a string takes everything");
        }
        text
    }

    /// The keys of clients by number.
    pub fn clients(&self) -> &BTreeMap<KeyId, ClientKey> {
        &self.clients
    }

    /// The same, to be changed.
    pub fn clients_mut(&mut self) -> &mut BTreeMap<KeyId, ClientKey> {
        &mut self.clients
    }

    /// What servers prove themselves with.
    pub fn server(&self) -> Credential {
        self.server.clone().into()
    }

    /// The secret and the rights of a key that is worth something.
    pub fn find(&self, id: KeyId) -> Option<(ClusterKey, u32, KeyRights)> {
        if self.is_open || id == KeyId::SERVERS {
            return Some((self.server.clone(), 0, KeyRights::SERVER));
        }
        let key = self.clients.get(&id).filter(|key| !key.is_revoked)?;
        Some((self.server.of_client(id, key.generation), key.generation, key.access))
    }

    /// What is handed out to a client.
    pub fn credential(&self, id: KeyId) -> Option<Credential> {
        self.find(id).map(|(key, _, access)| Credential { id, key, root: access.root })
    }

    /// True if a client that has proved this key may stay.
    pub fn still_accepts(&self, id: KeyId, generation: u32, access: KeyRights) -> bool {
        self.find(id).is_some_and(|(_, newest, allowed)| (newest, allowed) == (generation, access))
    }
}

/// Rights in words, as the list has them.
pub fn rights_to_text(key: &ClientKey) -> String {
    let KeyRights { is_read_only, uid_min, uid_max, squashes_root, root, .. } = key.access;
    let mut words = vec![match (uid_min, uid_max) {
        (0, u32::MAX) => "users=any".to_string(),
        (min, max) => format!("users={min}-{max}"),
    }];
    words.extend(is_read_only.then(|| "read-only".to_string()));
    words.extend(squashes_root.then(|| "root-squash".to_string()));
    words.extend((root != ROOT_HANDLE).then(|| format!("subtree={}", root.0)));
    words.extend(key.is_revoked.then(|| "revoked".to_string()));
    words.join(" ")
}

fn parse_line(line: &str) -> std::result::Result<(KeyId, ClientKey), String> {
    let mut words = line.split(' ');
    let mut next = |what: &str| words.next().ok_or_else(|| format!("{what} is missing"));
    let id = next("the number")?.parse().ok().filter(|id| *id != 0).ok_or("a number from 1 to 65535 is expected")?;
    let generation = next("the generation")?.parse().map_err(|_| "the generation is no number")?;
    let name = next("the name")?.to_string();
    let mut key = ClientKey { name, generation, access: KeyRights::CLIENT, is_revoked: false };
    for word in words {
        match word {
            "read-only" => key.access.is_read_only = true,
            "root-squash" => key.access.squashes_root = true,
            "revoked" => key.is_revoked = true,
            // What is not understood must not become more than it was.
            word => match (word.strip_prefix("users=").map(parse_users), word.strip_prefix("subtree=").map(str::parse)) {
                (Some(Some((min, max))), _) => (key.access.uid_min, key.access.uid_max) = (min, max),
                (_, Some(Ok(root @ 1..))) => key.access.root = Handle(root),
                _ => return Err(format!("the right `{word}` is not known")),
            },
        }
    }
    Ok((KeyId(id), key))
}

/// `any`, a user, or a range of users.
pub fn parse_users(text: &str) -> Option<(u32, u32)> {
    if text == "any" {
        return Some((0, u32::MAX));
    }
    let (min, max) = text.split_once('-').unwrap_or((text, text));
    let (min, max) = (min.parse().ok()?, max.parse().ok()?);
    (min <= max).then_some((min, max))
}

mod travelling;
pub use travelling::{LIST_BYTES_MAX, LIST_PIECE_BYTES};

#[cfg(test)]
mod tests;
