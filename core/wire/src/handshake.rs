//! The first messages of a connection: both sides agree on a version and on features, and prove
//! that they hold the same key, without sending it. Pure: bytes in, bytes and decisions out; the
//! runtime moves them.
//!
//! ```text
//! client                                             server
//!   Hello   {versions, features, fs, client, nonce} ──▶
//!      ◀── Challenge {version, features, fs, server, nonce, proof of the server}
//!   Proof   {proof of the client} ─────────────────────▶
//!      ◀── Welcome {status}
//!   RegionOffer  {bytes} + descriptor ─────────────────▶    if both share memory and are on one machine
//!      ◀── RegionAnswer {status}
//! ```
//! Both proofs are an HMAC over both nonces and all that was agreed, so neither can be replayed or
//! moved to another connection. Hello and Challenge may carry public keys ([`KeyPair`]) for what
//! encrypts the rest.
//!
//! Hello and Challenge are what two programs of any two versions read of each other, so their fixed
//! fields never change; what comes later is an optional field (`docs/formats.md`).

use std::sync::Arc;

use bytes::Bytes;
use weft_base::{ClientId, ExtensionError, FsId, Result, ServerId, Status};

use crate::capability::equal_in_constant_time;
use crate::exchange::{REFUSED_KEY, SharedSecret, public_key_in};
use crate::{
    ClusterKey, ExtensionList, Features, HANDSHAKE_VERSION, Header, KeyId, KeyPair, KeyRights, KeyRing, MessageKind, PROTOCOL_VERSION,
    PROTOCOL_VERSION_OLDEST, PUBLIC_KEY_BYTES, SessionCiphers, Wire, crc32c, wire_struct,
};

wire_struct! {
    /// First message, from the client.
    pub struct Hello {
        /// Oldest version that the client speaks.
        pub version_oldest: u8,
        /// Newest version that the client speaks.
        pub version_newest: u8,
        /// What the client can use.
        pub features: Features,
        /// What the client cannot do without, out of these.
        pub needs: Features,
        /// Which key the client proves.
        pub key: KeyId,
        /// The file system that the client wants; zero if it does not know (a `weft://` address).
        pub fs_id: FsId,
        /// Name of the file system that the client wants; may be empty if the id is given.
        pub fs_name: String,
        /// The server that the client believes to have reached; `0xffff` if it does not know.
        pub server: ServerId,
        /// Who the client is.
        pub client: ClientId,
        /// Its life.
        pub incarnation: u32,
        /// 16 random bytes.
        pub nonce: Bytes,
        /// What later versions say beyond that.
        pub extensions: ExtensionList,
    }

    /// Second message, from the server.
    pub struct Challenge {
        /// 0 or why the server refuses.
        pub status: u16,
        /// The version to speak: the newest that both know. With [`Status::VersionMismatch`] the
        /// newest of the server.
        pub version: u8,
        /// Oldest version that the server speaks.
        pub version_oldest: u8,
        /// The features to use: those that both have.
        pub features: Features,
        /// The server's file system.
        pub fs_id: FsId,
        /// Who the server is.
        pub server: ServerId,
        /// 16 random bytes.
        pub nonce: Bytes,
        /// Proves that the server holds the key.
        pub proof: Bytes,
        /// Why the server refuses, in its own words: it can name what the client does not know. At
        /// most [`REASON_BYTES_MAX`].
        pub reason: String,
        /// What later versions say beyond that.
        pub extensions: ExtensionList,
    }

    /// Third message, from the client.
    pub struct Proof {
        /// Proves that the client holds the key.
        pub proof: Bytes,
    }

    /// Fourth message, from the server. Requests may follow.
    pub struct Welcome {
        /// 0 or why the server refuses.
        pub status: u16,
    }

    /// From the client, before its first request, if [`Features::SHARED_MEMORY`] was agreed and the
    /// connection is a Unix socket; the descriptor of a memory file travels beside it. From then on
    /// bulk data may lie in that memory.
    pub struct RegionOffer {
        /// Bytes of the region: whole pages, at most [`REGION_BYTES_MAX`](crate::REGION_BYTES_MAX).
        pub bytes: u64,
    }

    /// From the server: may the region be used? Without it everything goes on as before.
    pub struct RegionAnswer {
        /// 0 or why not.
        pub status: u16,
    }
}

/// Any server: a client that knows only an address asks for this number.
pub const ANY_SERVER: ServerId = ServerId(0xffff);

/// Longest reason of a refusal in bytes.
pub const REASON_BYTES_MAX: usize = 400;

/// Bytes of a nonce.
pub const NONCE_BYTES: usize = 16;

/// Wraps a handshake message into a complete frame (header and body).
pub fn frame(message: &impl Wire) -> Vec<u8> {
    let body = message.to_bytes();
    let mut header = Header::request(crate::Op::Ping, ANY_SERVER, Default::default(), 0);
    header.kind = MessageKind::Handshake;
    header.op = 0;
    header.version = HANDSHAKE_VERSION;
    header.body_bytes = body.len() as u32;
    header.body_crc = crc32c(&body);
    let mut out = header.encode().to_vec();
    out.extend_from_slice(&body);
    out
}

/// The client's side: made from the hello that is sent and the key.
#[derive(Debug)]
pub struct ClientHandshake {
    hello: Hello,
    key: ClusterKey,
    exchange: Exchange,
}

/// How far one side is with the exchange of keys.
#[derive(Debug)]
enum Exchange {
    /// It offers none, or the other side does not know it: the long-term key protects alone.
    Without,
    /// Our public key is on its way.
    Offered(KeyPair),
    /// Both sides have come to this.
    Agreed(SharedSecret),
}

impl Exchange {
    /// Goes on with the public key that the other side has sent, if it has.
    fn agree(self, theirs: Option<[u8; PUBLIC_KEY_BYTES]>) -> Result<Exchange> {
        match (self, theirs) {
            (Exchange::Offered(pair), Some(theirs)) => Ok(Exchange::Agreed(pair.agree(&theirs)?)),
            _ => Ok(Exchange::Without),
        }
    }

    fn secret(&self) -> Option<&SharedSecret> {
        if let Exchange::Agreed(secret) = self { Some(secret) } else { None }
    }
}

impl ClientHandshake {
    /// Begins with the key that the hello names.
    pub fn new(key: ClusterKey, hello: Hello) -> ClientHandshake {
        ClientHandshake { hello, key, exchange: Exchange::Without }
    }

    /// Offers an exchange of keys as well: what is encrypted then stays secret if the key is lost
    /// later. The hello grows by the public key.
    pub fn with_exchange(self, pair: KeyPair) -> ClientHandshake {
        let hello = Hello { extensions: pair.extensions(), ..self.hello };
        ClientHandshake { hello, exchange: Exchange::Offered(pair), ..self }
    }

    /// The message to begin with.
    pub fn first_message(&self) -> &Hello {
        &self.hello
    }

    /// A hello for the versions of this code, without encryption.
    pub fn hello(fs_id: FsId, fs_name: &str, server: ServerId, client: ClientId, incarnation: u32, nonce: [u8; NONCE_BYTES]) -> Hello {
        Hello {
            version_oldest: PROTOCOL_VERSION_OLDEST,
            version_newest: PROTOCOL_VERSION,
            features: Features::KNOWN.without(Features::ENCRYPTION),
            needs: Features::default(),
            key: KeyId::SERVERS,
            fs_id,
            fs_name: fs_name.to_string(),
            server,
            client,
            incarnation,
            nonce: Bytes::copy_from_slice(&nonce),
            extensions: ExtensionList::default(),
        }
    }

    /// Checks the server's answer and proves our side.
    ///
    /// # Errors
    /// The server's refusal, [`Status::AuthenticationFailed`] if the server does not hold the key,
    /// [`Status::WrongServer`] or [`Status::WrongFileSystem`] if it is not the one that was meant,
    /// [`Status::BadMessage`] if its public key is none.
    pub fn answer(&mut self, challenge: &Challenge) -> Result<Proof> {
        if challenge.status != 0 {
            return Err(Status::from_code(challenge.status));
        }
        let expected = server_proof(&self.key, &self.hello, challenge);
        if !equal_in_constant_time(&challenge.proof, &expected) {
            return Err(Status::AuthenticationFailed);
        }
        if !(self.hello.version_oldest..=self.hello.version_newest).contains(&challenge.version) {
            return Err(Status::VersionMismatch);
        }
        challenge.extensions.check().map_err(|_| Status::NewerExtension)?;
        if !self.hello.features.contains(challenge.features) || !challenge.features.contains(self.hello.needs) {
            return Err(Status::FeatureMissing);
        }
        if self.hello.fs_id.0 != 0 && self.hello.fs_id != challenge.fs_id {
            return Err(Status::WrongFileSystem);
        }
        if self.hello.server != ANY_SERVER && self.hello.server != challenge.server {
            return Err(Status::WrongServer);
        }
        let theirs = public_key_in(&challenge.extensions)?;
        self.exchange = std::mem::replace(&mut self.exchange, Exchange::Without).agree(theirs)?;
        Ok(Proof { proof: Bytes::copy_from_slice(&client_proof(&self.key, &self.hello, challenge)) })
    }

    /// What encrypts everything that follows an answered challenge, if that was agreed on.
    pub fn ciphers(&self, challenge: &Challenge) -> Option<SessionCiphers> {
        let is_encrypted = challenge.features.contains(Features::ENCRYPTION);
        is_encrypted.then(|| SessionCiphers::new(&self.key, self.exchange.secret(), &self.hello.to_bytes(), &agreed(challenge)))
    }

    /// What a person is told if the server refuses with `status`: the words of the server, if it
    /// has some, without what could move a cursor.
    pub fn explain(&self, status: Status, challenge: &Challenge) -> String {
        let words: String = challenge.reason.chars().filter(|letter| !letter.is_control()).take(REASON_BYTES_MAX).collect();
        match status {
            _ if !words.is_empty() => words,
            Status::BadMessage if challenge.status == 0 => format!("the server was not understood: {REFUSED_KEY}"),
            Status::AuthenticationFailed => {
                format!("the server does not hold {} as we do: it is of another file system, or was replaced", self.hello.key)
            }
            status => status.to_string(),
        }
    }
}

/// Who has proved to be at the other end of a connection, and what was agreed with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// Who it is.
    pub client: ClientId,
    /// Its life.
    pub incarnation: u32,
    /// The features to use.
    pub features: Features,
    /// The key that it has proved,
    pub key: KeyId,
    /// and its generation.
    pub generation: u32,
    /// What it may do.
    pub access: KeyRights,
}

/// The server's side of one connection.
#[derive(Debug)]
pub struct ServerHandshake {
    keys: Arc<KeyRing>,
    fs_id: FsId,
    fs_name: String,
    server: ServerId,
    features: Features,
    needs: Features,
    /// Makes the key pair of a connection.
    pair: Option<fn() -> KeyPair>,
    sent: Option<Sent>,
}

/// What both sides have said before the client's proof.
#[derive(Debug)]
struct Sent {
    hello: Hello,
    challenge: Challenge,
    exchange: Exchange,
}

impl ServerHandshake {
    /// For a server of this file system.
    pub fn new(keys: impl Into<Arc<KeyRing>>, fs_id: FsId, fs_name: &str, server: ServerId) -> ServerHandshake {
        let (fs_name, keys) = (fs_name.to_string(), keys.into());
        let features = Features::KNOWN.without(Features::ENCRYPTION);
        ServerHandshake { keys, fs_id, fs_name, server, features, needs: Features::default(), pair: None, sent: None }
    }

    /// The same for another connection.
    pub fn for_connection(&self) -> ServerHandshake {
        ServerHandshake { keys: self.keys.clone(), fs_name: self.fs_name.clone(), sent: None, ..*self }
    }

    /// Exchanges keys with clients that offer it, when a connection is encrypted. `pair` makes a
    /// key pair for one connection.
    pub fn with_exchange(self, pair: fn() -> KeyPair) -> ServerHandshake {
        ServerHandshake { pair: Some(pair), ..self }
    }

    /// Of a server that can use `features` and refuses clients without `needs`.
    pub fn with_features(self, features: Features, needs: Features) -> ServerHandshake {
        ServerHandshake { features, needs, ..self }
    }

    /// The same with other keys, for the next connection.
    pub fn with_keys(self, keys: Arc<KeyRing>) -> ServerHandshake {
        ServerHandshake { keys, sent: None, ..self }
    }

    /// Answers a hello. A challenge with a status other than 0 is a refusal: send it and close.
    pub fn challenge(&mut self, hello: Hello, nonce: [u8; NONCE_BYTES]) -> Challenge {
        let refusal = self.refusal(&hello);
        let version = match refusal {
            Some(Status::VersionMismatch) => PROTOCOL_VERSION,
            _ => hello.version_newest.min(PROTOCOL_VERSION),
        };
        let mut challenge = Challenge {
            status: refusal.map_or(0, Status::code),
            version,
            version_oldest: PROTOCOL_VERSION_OLDEST,
            features: hello.features.and(self.features),
            fs_id: self.fs_id,
            server: self.server,
            nonce: Bytes::copy_from_slice(&nonce),
            proof: Bytes::new(),
            reason: refusal.map_or(String::new(), |status| self.reason(status, &hello)),
            extensions: ExtensionList::default(),
        };
        if let (None, Some((key, ..))) = (refusal, self.keys.find(hello.key)) {
            let is_exchanged = challenge.features.contains(Features::ENCRYPTION) && matches!(public_key_in(&hello.extensions), Ok(Some(_)));
            let pair = self.pair.filter(|_| is_exchanged).map(|pair| pair());
            if let Some(pair) = &pair {
                challenge.extensions = pair.extensions();
            }
            challenge.proof = Bytes::copy_from_slice(&server_proof(&key, &hello, &challenge));
            let exchange = pair.map_or(Exchange::Without, Exchange::Offered);
            self.sent = Some(Sent { hello, challenge: challenge.clone(), exchange });
        }
        challenge
    }

    /// Checks the client's proof; afterwards the peer is who it says.
    ///
    /// # Errors
    /// [`Status::AuthenticationFailed`], [`Status::BadMessage`] if its public key leads to no
    /// secret; send the welcome with that status and close.
    pub fn accept(&mut self, proof: &Proof) -> Result<Accepted> {
        let Sent { hello, challenge, exchange } = self.sent.as_mut().ok_or(Status::BadMessage)?;
        let (key, generation, access) = self.keys.find(hello.key).ok_or(Status::AuthenticationFailed)?;
        if !equal_in_constant_time(&proof.proof, &client_proof(&key, hello, challenge)) || !hello.key.is_of(hello.client) {
            return Err(Status::AuthenticationFailed);
        }
        // Only now: the costly half of the exchange is for those who hold a key.
        *exchange = std::mem::replace(exchange, Exchange::Without).agree(public_key_in(&hello.extensions)?)?;
        let Hello { client, incarnation, key, .. } = *hello;
        Ok(Accepted { client, incarnation, features: challenge.features, key, generation, access })
    }

    /// What encrypts everything that follows the welcome, if that was agreed on and the client was
    /// accepted.
    pub fn ciphers(&self) -> Option<SessionCiphers> {
        let Sent { hello, challenge, exchange } =
            self.sent.as_ref().filter(|sent| sent.challenge.features.contains(Features::ENCRYPTION))?;
        let (key, ..) = self.keys.find(hello.key)?;
        Some(SessionCiphers::new(&key, exchange.secret(), &hello.to_bytes(), &agreed(challenge)))
    }

    /// What a person is told of a client that was not accepted.
    pub fn explain(&self, status: Status) -> String {
        match (status, &self.sent) {
            (Status::AuthenticationFailed, Some(sent)) => format!("the client does not hold {}", sent.hello.key),
            (Status::BadMessage, Some(_)) => format!("the client was not understood: {REFUSED_KEY}"),
            _ => status.to_string(),
        }
    }

    /// The last message, for what [`ServerHandshake::accept`] said.
    pub fn welcome(&self, accepted: Result<Accepted>) -> Welcome {
        Welcome { status: accepted.map_or_else(Status::code, |_| 0) }
    }

    /// What the client must have: its key may need more than the server does.
    fn needs(&self, hello: &Hello) -> Features {
        let is_limited = self.keys.find(hello.key).is_some_and(|(.., access)| access.needs_tags());
        self.needs.with(if is_limited { Features::HANDLE_TAGS } else { Features::default() })
    }

    fn refusal(&self, hello: &Hello) -> Option<Status> {
        if hello.nonce.len() != NONCE_BYTES {
            Some(Status::BadMessage)
        } else if let Err(error) = hello.extensions.check() {
            Some(if error == ExtensionError::Malformed { Status::BadMessage } else { Status::NewerExtension })
        } else if hello.version_oldest > PROTOCOL_VERSION || hello.version_newest < PROTOCOL_VERSION_OLDEST {
            Some(Status::VersionMismatch)
        } else if !hello.features.contains(self.needs(hello)) || !self.features.contains(hello.needs) {
            Some(Status::FeatureMissing)
        } else if (hello.fs_id.0 != 0 && hello.fs_id != self.fs_id) || (!hello.fs_name.is_empty() && hello.fs_name != self.fs_name) {
            Some(Status::WrongFileSystem)
        } else if hello.server != ANY_SERVER && hello.server != self.server {
            Some(Status::WrongServer)
        } else if self.keys.find(hello.key).is_none() {
            Some(Status::AuthenticationFailed)
        } else if public_key_in(&hello.extensions).is_err() {
            Some(Status::BadMessage)
        } else {
            None
        }
    }

    /// Says what a status cannot: both versions, the names of features.
    fn reason(&self, status: Status, hello: &Hello) -> String {
        let versions = |oldest: u8, newest: u8| match oldest == newest {
            true => format!("version {newest}"),
            false => format!("versions {oldest} to {newest}"),
        };
        match status {
            Status::VersionMismatch => format!(
                "the server speaks {} of the protocol and the client {}",
                versions(PROTOCOL_VERSION_OLDEST, PROTOCOL_VERSION),
                versions(hello.version_oldest, hello.version_newest)
            ),
            Status::FeatureMissing if !hello.features.contains(self.needs(hello)) => {
                format!("the server needs what the client does not have: {}", self.needs(hello).without(hello.features))
            }
            Status::FeatureMissing => format!("the client needs what the server does not have: {}", hello.needs.without(self.features)),
            Status::AuthenticationFailed => format!("{} is not in the list of keys, or was revoked", hello.key),
            Status::BadMessage if public_key_in(&hello.extensions).is_err() => format!("the client was not understood: {REFUSED_KEY}"),
            Status::NewerExtension => hello.extensions.check().map_or_else(|error| format!("the client was {error}"), |()| String::new()),
            _ => String::new(),
        }
    }
}

fn server_proof(key: &ClusterKey, hello: &Hello, challenge: &Challenge) -> [u8; 32] {
    key.mac(b"weft server", &[&hello.to_bytes(), &agreed(challenge)])
}

fn client_proof(key: &ClusterKey, hello: &Hello, challenge: &Challenge) -> [u8; 32] {
    key.mac(b"weft client", &[&hello.to_bytes(), &agreed(challenge)])
}

/// All fields of the challenge except the proof itself.
fn agreed(challenge: &Challenge) -> Bytes {
    Challenge { proof: Bytes::new(), ..challenge.clone() }.to_bytes()
}

#[cfg(test)]
mod tests;
