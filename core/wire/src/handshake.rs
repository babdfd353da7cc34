//! The first messages of a connection: both sides agree on a version and prove that they hold the cluster key, without
//! sending it. Pure: bytes in, bytes and decisions out; the runtime moves them.
//!
//! ```text
//! client                                   server
//!   Hello   {versions, fs, client, nonce} ──▶
//!      ◀── Challenge {version, fs, server, nonce, proof of the server}
//!   Proof   {proof of the client} ──────────▶
//!      ◀── Welcome {status}
//!   RegionOffer  {bytes} + descriptor ──────▶    version 2, same machine, if the client wants to
//!      ◀── RegionAnswer {status}
//! ```
//! Both proofs are an HMAC over both nonces and all that was agreed, so neither can be replayed or moved to another connection.

use bytes::Bytes;
use weft_base::{ClientId, FsId, Result, ServerId, ServerList, Status};

use crate::capability::equal_in_constant_time;
use crate::{ClusterKey, Header, Kind, PROTOCOL_VERSION, PROTOCOL_VERSION_OLDEST, Wire, crc32c, wire_struct};

wire_struct! {
    /// First message, from the client.
    pub struct Hello {
        /// Oldest version that the client speaks.
        pub version_oldest: u8,
        /// Newest version that the client speaks.
        pub version_newest: u8,
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
        /// [`ServerList::fingerprint`] of the servers that the client knows; 0 if it knows none.
        pub servers: u64,
        /// 16 random bytes.
        pub nonce: Bytes,
    }

    /// Second message, from the server.
    pub struct Challenge {
        /// 0 or why the server refuses.
        pub status: u16,
        /// The version to speak: the newest that both know.
        pub version: u8,
        /// The server's file system.
        pub fs_id: FsId,
        /// Who the server is.
        pub server: ServerId,
        /// 16 random bytes.
        pub nonce: Bytes,
        /// Proves that the server holds the key.
        pub proof: Bytes,
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
        /// With [`Status::MapChanged`]: the servers with which the file system was made, as [`ServerList::to_text`] has them.
        pub servers: String,
    }

    /// From the client, before its first request, if version 2 was agreed and the connection is a Unix socket; the descriptor of a
    /// memory file travels beside it. From then on bulk data may lie in that memory.
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

/// Bytes of a nonce.
pub const NONCE_BYTES: usize = 16;

/// Wraps a handshake message into a complete frame (header and body).
pub fn frame(message: &impl Wire) -> Vec<u8> {
    let body = message.to_bytes();
    let mut header = Header::request(crate::Op::Ping, ANY_SERVER, Default::default(), 0);
    header.kind = Kind::Handshake;
    header.op = 0;
    // The version byte of handshake frames is always the oldest: any peer can read them and answer.
    header.version = PROTOCOL_VERSION_OLDEST;
    header.body_bytes = body.len() as u32;
    header.body_crc = crc32c(&body);
    let mut out = header.encode().to_vec();
    out.extend_from_slice(&body);
    out
}

/// The client's side: made from the hello that was sent and the key.
#[derive(Debug)]
pub struct ClientHandshake {
    hello: Hello,
    key: ClusterKey,
}

impl ClientHandshake {
    /// Begins: `hello().` is what to send.
    pub fn new(key: ClusterKey, hello: Hello) -> ClientHandshake {
        ClientHandshake { hello, key }
    }

    /// A hello for the versions of this code.
    pub fn hello(fs_id: FsId, fs_name: &str, server: ServerId, client: ClientId, incarnation: u32, nonce: [u8; NONCE_BYTES]) -> Hello {
        Hello {
            version_oldest: PROTOCOL_VERSION_OLDEST,
            version_newest: PROTOCOL_VERSION,
            fs_id,
            fs_name: fs_name.to_string(),
            server,
            client,
            incarnation,
            servers: 0,
            nonce: Bytes::copy_from_slice(&nonce),
        }
    }

    /// Checks the server's answer and proves our side.
    ///
    /// # Errors
    /// The server's refusal, [`Status::AuthenticationFailed`] if the server does not hold the key, [`Status::WrongServer`] or
    /// [`Status::WrongFileSystem`] if it is not the one that was meant.
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
        if self.hello.fs_id.0 != 0 && self.hello.fs_id != challenge.fs_id {
            return Err(Status::WrongFileSystem);
        }
        if self.hello.server != ANY_SERVER && self.hello.server != challenge.server {
            return Err(Status::WrongServer);
        }
        Ok(Proof { proof: Bytes::copy_from_slice(&client_proof(&self.key, &self.hello, challenge)) })
    }
}

/// The server's side of one connection.
#[derive(Clone, Debug)]
pub struct ServerHandshake {
    key: ClusterKey,
    fs_id: FsId,
    fs_name: String,
    server: ServerId,
    servers: ServerList,
    sent: Option<(Hello, Challenge)>,
}

impl ServerHandshake {
    /// For a server of this file system.
    pub fn new(key: ClusterKey, fs_id: FsId, fs_name: &str, server: ServerId) -> ServerHandshake {
        ServerHandshake { key, fs_id, fs_name: fs_name.to_string(), server, servers: ServerList::default(), sent: None }
    }

    /// Clients that know other servers are refused.
    pub fn with_servers(self, servers: ServerList) -> ServerHandshake {
        ServerHandshake { servers, ..self }
    }

    /// Answers a hello. A challenge with a status other than 0 is a refusal: send it and close.
    pub fn challenge(&mut self, hello: Hello, nonce: [u8; NONCE_BYTES]) -> Challenge {
        let status = self.refusal(&hello).map_or(0, Status::code);
        let mut challenge = Challenge {
            status,
            version: hello.version_newest.min(PROTOCOL_VERSION),
            fs_id: self.fs_id,
            server: self.server,
            nonce: Bytes::copy_from_slice(&nonce),
            proof: Bytes::new(),
        };
        if status == 0 {
            challenge.proof = Bytes::copy_from_slice(&server_proof(&self.key, &hello, &challenge));
            self.sent = Some((hello, challenge.clone()));
        }
        challenge
    }

    /// Checks the client's proof; afterwards the peer is who it says.
    ///
    /// # Errors
    /// [`Status::AuthenticationFailed`], or [`Status::MapChanged`] if the client would look for data where it is not; send the welcome with
    /// that status and close.
    pub fn accept(&self, proof: &Proof) -> Result<(ClientId, u32)> {
        let (hello, challenge) = self.sent.as_ref().ok_or(Status::BadMessage)?;
        if !equal_in_constant_time(&proof.proof, &client_proof(&self.key, hello, challenge)) {
            return Err(Status::AuthenticationFailed);
        }
        let ours = self.servers.fingerprint();
        if hello.servers != ours && hello.servers != 0 && ours != 0 {
            return Err(Status::MapChanged);
        }
        Ok((hello.client, hello.incarnation))
    }

    /// The last message, for what [`ServerHandshake::accept`] said.
    pub fn welcome(&self, accepted: Result<(ClientId, u32)>) -> Welcome {
        let servers = if accepted == Err(Status::MapChanged) { self.servers.to_text() } else { String::new() };
        Welcome { status: accepted.map_or_else(Status::code, |_| 0), servers }
    }

    fn refusal(&self, hello: &Hello) -> Option<Status> {
        if hello.nonce.len() != NONCE_BYTES {
            Some(Status::BadMessage)
        } else if hello.version_oldest > PROTOCOL_VERSION || hello.version_newest < PROTOCOL_VERSION_OLDEST {
            Some(Status::VersionMismatch)
        } else if (hello.fs_id.0 != 0 && hello.fs_id != self.fs_id) || (!hello.fs_name.is_empty() && hello.fs_name != self.fs_name) {
            Some(Status::WrongFileSystem)
        } else if hello.server != ANY_SERVER && hello.server != self.server {
            Some(Status::WrongServer)
        } else {
            None
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

    const KEY: ClusterKey = ClusterKey([1; 32]);
    const FS: FsId = FsId(77);

    fn run(client_key: ClusterKey, hello: Hello) -> Result<(ClientId, u32)> {
        let mut server = ServerHandshake::new(KEY, FS, "weft", ServerId(1));
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
        assert_eq!(run(KEY, hello()), Ok((ClientId(3), 4)));
        assert_eq!(run(KEY, Hello { fs_id: FsId(0), server: ANY_SERVER, ..hello() }), Ok((ClientId(3), 4)));
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
    fn other_servers_are_refused_after_the_proof() {
        let servers = ServerList { meta: vec!["meta0".into()], data: vec!["data0".into()] };
        let grown = ServerList { data: vec!["data0".into(), "data1".into()], ..servers.clone() };
        for (known, want) in
            [(0, Ok((ClientId(3), 4))), (servers.fingerprint(), Ok((ClientId(3), 4))), (grown.fingerprint(), Err(Status::MapChanged))]
        {
            let mut server = ServerHandshake::new(KEY, FS, "weft", ServerId(1)).with_servers(servers.clone());
            let hello = Hello { servers: known, ..hello() };
            let client = ClientHandshake::new(KEY, hello.clone());
            let proof = client.answer(&server.challenge(hello, [2; NONCE_BYTES])).unwrap();
            let accepted = server.accept(&proof);
            assert_eq!(accepted, want);
            let welcome = server.welcome(accepted);
            assert_eq!(welcome.servers.is_empty(), want.is_ok());
            assert_eq!(server.accept(&Proof { proof: Bytes::new() }), Err(Status::AuthenticationFailed), "a stranger learns no names");
        }
    }

    #[test]
    fn a_client_without_the_key_cannot_finish() {
        let mut server = ServerHandshake::new(KEY, FS, "weft", ServerId(1));
        assert_eq!(server.accept(&Proof { proof: Bytes::new() }), Err(Status::BadMessage));
        server.challenge(hello(), [2; NONCE_BYTES]);
        assert_eq!(server.accept(&Proof { proof: Bytes::from_static(&[0; 32]) }), Err(Status::AuthenticationFailed));
    }
}
