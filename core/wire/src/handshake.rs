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
//! moved to another connection.
//!
//! Hello and Challenge are what two programs of any two versions read of each other, so their fixed
//! fields never change; what comes later is an optional field (`docs/formats.md`).

use std::sync::Arc;

use bytes::Bytes;
use weft_base::{ClientId, ExtensionError, FsId, Result, ServerId, Status};

use crate::capability::equal_in_constant_time;
use crate::{
    ClusterKey, ExtensionList, Features, HANDSHAKE_VERSION, Header, KeyId, KeyRights, KeyRing, MessageKind, PROTOCOL_VERSION,
    PROTOCOL_VERSION_OLDEST, SessionCiphers, Wire, crc32c, wire_struct,
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
}

impl ClientHandshake {
    /// Begins with the key that the hello names.
    pub fn new(key: ClusterKey, hello: Hello) -> ClientHandshake {
        ClientHandshake { hello, key }
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
    /// [`Status::WrongServer`] or [`Status::WrongFileSystem`] if it is not the one that was meant.
    pub fn answer(&self, challenge: &Challenge) -> Result<Proof> {
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
        Ok(Proof { proof: Bytes::copy_from_slice(&client_proof(&self.key, &self.hello, challenge)) })
    }

    /// What encrypts everything that follows, if that was agreed on.
    pub fn ciphers(&self, challenge: &Challenge) -> Option<SessionCiphers> {
        let is_encrypted = challenge.features.contains(Features::ENCRYPTION);
        is_encrypted.then(|| SessionCiphers::new(&self.key, &self.hello.to_bytes(), &agreed(challenge)))
    }

    /// What a person is told if the server refuses with `status`: the words of the server, if it
    /// has some, without what could move a cursor.
    pub fn explain(&self, status: Status, challenge: &Challenge) -> String {
        let words: String = challenge.reason.chars().filter(|letter| !letter.is_control()).take(REASON_BYTES_MAX).collect();
        match status {
            _ if !words.is_empty() => words,
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
#[derive(Clone, Debug)]
pub struct ServerHandshake {
    keys: Arc<KeyRing>,
    fs_id: FsId,
    fs_name: String,
    server: ServerId,
    features: Features,
    needs: Features,
    sent: Option<(Hello, Challenge)>,
}

impl ServerHandshake {
    /// For a server of this file system.
    pub fn new(keys: impl Into<Arc<KeyRing>>, fs_id: FsId, fs_name: &str, server: ServerId) -> ServerHandshake {
        let (fs_name, keys) = (fs_name.to_string(), keys.into());
        let features = Features::KNOWN.without(Features::ENCRYPTION);
        ServerHandshake { keys, fs_id, fs_name, server, features, needs: Features::default(), sent: None }
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
            challenge.proof = Bytes::copy_from_slice(&server_proof(&key, &hello, &challenge));
            self.sent = Some((hello, challenge.clone()));
        }
        challenge
    }

    /// Checks the client's proof; afterwards the peer is who it says.
    ///
    /// # Errors
    /// [`Status::AuthenticationFailed`]; send the welcome with that status and close.
    pub fn accept(&self, proof: &Proof) -> Result<Accepted> {
        let (hello, challenge) = self.sent.as_ref().ok_or(Status::BadMessage)?;
        let (key, generation, access) = self.keys.find(hello.key).ok_or(Status::AuthenticationFailed)?;
        if !equal_in_constant_time(&proof.proof, &client_proof(&key, hello, challenge)) || !hello.key.is_of(hello.client) {
            return Err(Status::AuthenticationFailed);
        }
        let Hello { client, incarnation, key, .. } = *hello;
        Ok(Accepted { client, incarnation, features: challenge.features, key, generation, access })
    }

    /// What encrypts everything that follows the welcome, if that was agreed on and the client was
    /// accepted.
    pub fn ciphers(&self) -> Option<SessionCiphers> {
        let (hello, challenge) = self.sent.as_ref().filter(|(_, challenge)| challenge.features.contains(Features::ENCRYPTION))?;
        let (key, ..) = self.keys.find(hello.key)?;
        Some(SessionCiphers::new(&key, &hello.to_bytes(), &agreed(challenge)))
    }

    /// What a person is told of a client that was not accepted.
    pub fn explain(&self, status: Status) -> String {
        match (status, &self.sent) {
            (Status::AuthenticationFailed, Some((hello, _))) => format!("the client does not hold {}", hello.key),
            _ => status.to_string(),
        }
    }

    /// The last message, for what [`ServerHandshake::accept`] said.
    pub fn welcome(&self, accepted: Result<Accepted>) -> Welcome {
        Welcome { status: accepted.map_or_else(Status::code, |_| 0) }
    }

    fn refusal(&self, hello: &Hello) -> Option<Status> {
        if hello.nonce.len() != NONCE_BYTES {
            Some(Status::BadMessage)
        } else if let Err(error) = hello.extensions.check() {
            Some(if error == ExtensionError::Malformed { Status::BadMessage } else { Status::NewerExtension })
        } else if hello.version_oldest > PROTOCOL_VERSION || hello.version_newest < PROTOCOL_VERSION_OLDEST {
            Some(Status::VersionMismatch)
        } else if !hello.features.contains(self.needs) || !self.features.contains(hello.needs) {
            Some(Status::FeatureMissing)
        } else if (hello.fs_id.0 != 0 && hello.fs_id != self.fs_id) || (!hello.fs_name.is_empty() && hello.fs_name != self.fs_name) {
            Some(Status::WrongFileSystem)
        } else if hello.server != ANY_SERVER && hello.server != self.server {
            Some(Status::WrongServer)
        } else if self.keys.find(hello.key).is_none() {
            Some(Status::AuthenticationFailed)
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
            Status::FeatureMissing if !hello.features.contains(self.needs) => {
                format!("the server needs what the client does not have: {}", self.needs.without(hello.features))
            }
            Status::FeatureMissing => format!("the client needs what the server does not have: {}", hello.needs.without(self.features)),
            Status::AuthenticationFailed => format!("{} is not in the list of keys, or was revoked", hello.key),
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
mod tests {
    use super::*;
    use crate::LENGTH_BYTES;

    const KEY: ClusterKey = ClusterKey([1; 32]);
    const FS: FsId = FsId(77);
    const ACCEPTED: Accepted = Accepted {
        client: ClientId(3),
        incarnation: 4,
        features: Features::SHARED_MEMORY,
        key: KeyId::SERVERS,
        generation: 0,
        access: KeyRights::SERVER,
    };

    fn run(client_key: ClusterKey, hello: Hello) -> Result<Accepted> {
        let mut server = ServerHandshake::new(KeyRing::new(KEY), FS, "weft", ServerId(1));
        let client = ClientHandshake::new(client_key, hello.clone());
        let challenge = server.challenge(hello, [2; NONCE_BYTES]);
        let proof = client.answer(&challenge)?;
        server.accept(&proof)
    }

    fn hello() -> Hello {
        ClientHandshake::hello(FS, "weft", ServerId(1), ClientId(3), 4, [5; NONCE_BYTES])
    }

    #[test]
    fn both_sides_agree() {
        assert_eq!(run(KEY, hello()), Ok(ACCEPTED));
        assert_eq!(run(KEY, Hello { fs_id: FsId(0), server: ANY_SERVER, ..hello() }), Ok(ACCEPTED));
    }

    #[test]
    fn refusals_name_their_reason() {
        assert_eq!(run(ClusterKey([9; 32]), hello()), Err(Status::AuthenticationFailed));
        assert_eq!(run(KEY, Hello { fs_id: FsId(78), ..hello() }), Err(Status::WrongFileSystem));
        assert_eq!(run(KEY, Hello { fs_name: "other".into(), ..hello() }), Err(Status::WrongFileSystem));
        assert_eq!(run(KEY, Hello { server: ServerId(2), ..hello() }), Err(Status::WrongServer));
        let future = Hello { version_oldest: 200, version_newest: 201, ..hello() };
        assert_eq!(run(KEY, future), Err(Status::VersionMismatch));
        assert_eq!(run(KEY, Hello { nonce: Bytes::from_static(b"short"), ..hello() }), Err(Status::BadMessage));
    }

    #[test]
    fn a_refused_version_names_both() {
        let mut server = ServerHandshake::new(KeyRing::new(KEY), FS, "weft", ServerId(1));
        for (oldest, newest, words) in
            [(200, 201, "client versions 200 to 201"), (1, 2, "client versions 1 to 2"), (1, 1, "client version 1")]
        {
            let hello = Hello { version_oldest: oldest, version_newest: newest, ..hello() };
            let challenge = server.challenge(hello.clone(), [2; NONCE_BYTES]);
            assert_eq!((challenge.status, challenge.version), (Status::VersionMismatch.code(), PROTOCOL_VERSION));
            let text = ClientHandshake::new(KEY, hello).explain(Status::VersionMismatch, &challenge);
            assert!(text.contains(&format!("server speaks version {PROTOCOL_VERSION} ")) && text.contains(words), "{text}");
            assert!(text.len() <= REASON_BYTES_MAX);
        }
    }

    #[test]
    fn both_sides_come_to_the_same_keys_if_both_want_encryption() {
        for (ours, theirs) in [(true, true), (true, false), (false, true)] {
            let features = |wanted| if wanted { Features::KNOWN } else { Features::SHARED_MEMORY };
            let mut server =
                ServerHandshake::new(KeyRing::new(KEY), FS, "weft", ServerId(1)).with_features(features(theirs), Features::default());
            let hello = Hello { features: features(ours), ..hello() };
            let challenge = server.challenge(hello.clone(), [2; NONCE_BYTES]);
            let client = ClientHandshake::new(KEY, hello);
            server.accept(&client.answer(&challenge).unwrap()).unwrap();
            let (ours_made, theirs_made) = (client.ciphers(&challenge), server.ciphers());
            assert_eq!((ours_made.is_some(), theirs_made.is_some()), (ours && theirs, ours && theirs));
            if let (Some(mut client), Some(mut server)) = (ours_made, theirs_made) {
                let mut envelope = Vec::new();
                client.to_server.seal(&mut &mut [std::io::IoSlice::new(b"x")][..], &mut envelope);
                assert_eq!(server.to_server.open(&mut envelope, LENGTH_BYTES), Ok(1));
            }
        }
    }

    #[test]
    fn a_client_proves_its_own_key_and_is_no_server() {
        let list = "weft keys 1\n1 2 default\n2 1 other read-only\n3 1 old revoked\n";
        let ring = Arc::new(KeyRing::new(KEY).with_list(list).unwrap());
        let meet = |id: u16, generation: u32, client: ClientId| {
            let mut server = ServerHandshake::new(ring.clone(), FS, "weft", ServerId(1));
            let hello = Hello { key: KeyId(id), client, ..hello() };
            let challenge = server.challenge(hello.clone(), [2; NONCE_BYTES]);
            let proof = ClientHandshake::new(KEY.of_client(KeyId(id), generation), hello).answer(&challenge)?;
            server.accept(&proof)
        };
        let own = |id: u16| KeyId(id).client(99 << 16);
        let accepted = meet(1, 2, own(1)).unwrap();
        assert_eq!((accepted.key, accepted.generation, accepted.access), (KeyId(1), 2, KeyRights::CLIENT));
        assert!(meet(2, 1, own(2)).unwrap().access.is_read_only);
        let refused = Err(Status::AuthenticationFailed);
        assert_eq!(meet(1, 1, own(1)), refused, "the key was replaced");
        assert_eq!(meet(3, 1, own(3)), refused, "the key was revoked");
        assert_eq!(meet(4, 1, own(4)), refused, "there is no such key");
        assert_eq!(meet(0, 1, own(0)), refused, "the key of a client is not that of servers");
        assert_eq!(meet(1, 2, own(2)), refused, "the identity is that of a client with another key");
    }

    #[test]
    fn features_are_what_both_have() {
        let (old, newer) = (Features::default(), Features(Features::KNOWN.0 | 1 << 60));
        for (ours, theirs, agreed) in [(old, newer, old), (newer, old, old), (newer, Features::KNOWN, Features::KNOWN)] {
            let mut server = ServerHandshake::new(KeyRing::new(KEY), FS, "weft", ServerId(1)).with_features(theirs, Features::default());
            let hello = Hello { features: ours, ..hello() };
            let challenge = server.challenge(hello.clone(), [2; NONCE_BYTES]);
            let proof = ClientHandshake::new(KEY, hello).answer(&challenge).unwrap();
            assert_eq!(server.accept(&proof), Ok(Accepted { features: agreed, ..ACCEPTED }));
        }
    }

    #[test]
    fn a_feature_that_is_needed_and_missing_is_named() {
        let newer = Features(1 << 60);
        let refused = |server: (Features, Features), client: (Features, Features)| {
            let mut server = ServerHandshake::new(KeyRing::new(KEY), FS, "weft", ServerId(1)).with_features(server.0, server.1);
            let hello = Hello { features: client.0, needs: client.1, ..hello() };
            let challenge = server.challenge(hello.clone(), [2; NONCE_BYTES]);
            let client = ClientHandshake::new(KEY, hello);
            assert_eq!(client.answer(&challenge), Err(Status::FeatureMissing));
            client.explain(Status::FeatureMissing, &challenge)
        };
        let (none, shared) = (Features::default(), Features::SHARED_MEMORY);
        assert!(refused((shared, shared), (none, none)).ends_with("the client does not have: shared memory"));
        assert!(refused((shared, none), (newer, newer)).ends_with("the server does not have: number 60"));
    }

    #[test]
    fn extensions_are_part_of_what_is_proved() {
        let with = |list: &[(u16, &[u8])]| ExtensionList::of(list);
        // As a newer client and a newer server say them, and an older one reads them.
        let read = |hello: &Hello| Hello::from_bytes(hello.to_bytes()).unwrap();
        let hello = Hello { extensions: with(&[(2, b"new")]), ..hello() };
        let mut server = ServerHandshake::new(KeyRing::new(KEY), FS, "weft", ServerId(1));
        let challenge = server.challenge(read(&hello), [2; NONCE_BYTES]);
        let client = ClientHandshake::new(KEY, hello.clone());
        assert_eq!(server.accept(&client.answer(&challenge).unwrap()), Ok(ACCEPTED));
        let stripped = Challenge { extensions: with(&[(4, b"put in on the way")]), ..challenge };
        assert_eq!(client.answer(&stripped), Err(Status::AuthenticationFailed));
        let hello = Hello { extensions: with(&[(9, b"must")]), ..hello };
        let challenge = server.challenge(read(&hello), [2; NONCE_BYTES]);
        assert_eq!(challenge.status, Status::NewerExtension.code());
        assert!(challenge.reason.contains("needs extension 9"), "{}", challenge.reason);
    }

    #[test]
    fn words_of_a_server_move_no_cursor() {
        let client = ClientHandshake::new(KEY, hello());
        let mut server = ServerHandshake::new(KeyRing::new(KEY), FS, "weft", ServerId(1));
        let challenge = server.challenge(hello(), [2; NONCE_BYTES]);
        let challenge = Challenge { reason: format!("\x1b[2Jbad\n{}", "x".repeat(5000)), ..challenge };
        let text = client.explain(Status::Busy, &challenge);
        assert!(text.starts_with("[2Jbadxx") && text.len() == REASON_BYTES_MAX, "{text}");
    }

    #[test]
    fn a_client_without_the_key_cannot_finish() {
        let mut server = ServerHandshake::new(KeyRing::new(KEY), FS, "weft", ServerId(1));
        assert_eq!(server.accept(&Proof { proof: Bytes::new() }), Err(Status::BadMessage));
        server.challenge(hello(), [2; NONCE_BYTES]);
        assert_eq!(server.accept(&Proof { proof: Bytes::from_static(&[0; 32]) }), Err(Status::AuthenticationFailed));
    }
}
