use super::*;
use crate::LENGTH_BYTES;

const KEY: ClusterKey = ClusterKey([1; 32]);
const FS: FsId = FsId(77);
const ACCEPTED: Accepted = Accepted {
    client: ClientId(3),
    incarnation: 4,
    features: Features::KNOWN.without(Features::ENCRYPTION),
    key: KeyId::SERVERS,
    generation: 0,
    access: KeyRights::SERVER,
};

fn run(client_key: ClusterKey, hello: Hello) -> Result<Accepted> {
    let mut server = ServerHandshake::new(KeyRing::new(KEY), FS, "weft", ServerId(1));
    let mut client = ClientHandshake::new(client_key, hello.clone());
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
    for (oldest, newest, words) in [(200, 201, "client versions 200 to 201"), (1, 2, "client versions 1 to 2"), (1, 1, "client version 1")]
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
        let mut client = ClientHandshake::new(KEY, hello);
        server.accept(&client.answer(&challenge).unwrap()).unwrap();
        let (ours_made, theirs_made) = (client.ciphers(&challenge), server.ciphers());
        assert_eq!((ours_made.is_some(), theirs_made.is_some()), (ours && theirs, ours && theirs));
        if let (Some(mut client), Some(mut server)) = (ours_made, theirs_made) {
            let mut envelope = Vec::new();
            client.to_server.encrypt(&mut &mut [std::io::IoSlice::new(b"x")][..], &mut envelope);
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
        let mut client = ClientHandshake::new(KEY, hello);
        assert_eq!(client.answer(&challenge), Err(Status::FeatureMissing));
        client.explain(Status::FeatureMissing, &challenge)
    };
    let (none, shared) = (Features::default(), Features::SHARED_MEMORY);
    assert!(refused((shared, shared), (none, none)).ends_with("the client does not have: shared memory"));
    assert!(refused((shared, none), (newer, newer)).ends_with("the server does not have: number 60"));
}

#[test]
fn a_limited_key_needs_a_client_that_shows_tags() {
    let list = "weft keys 1\n1 1 all users=any\n2 1 reader users=any read-only\n3 1 inside subtree=99\n4 1 people users=7\n";
    let ring = Arc::new(KeyRing::new(KEY).with_list(list).unwrap());
    for (key, is_refused) in [(1, false), (2, false), (3, true), (4, true)] {
        let mut server = ServerHandshake::new(ring.clone(), FS, "weft", ServerId(1));
        let hello = Hello { key: KeyId(key), features: Features::SHARED_MEMORY, ..hello() };
        let challenge = server.challenge(hello.clone(), [2; NONCE_BYTES]);
        assert_eq!(challenge.status == Status::FeatureMissing.code(), is_refused, "{key}");
        assert_eq!(challenge.reason.ends_with("the client does not have: handle tags"), is_refused, "{}", challenge.reason);
        let challenge = server.challenge(Hello { features: Features::HANDLE_TAGS, ..hello }, [2; NONCE_BYTES]);
        assert_eq!(challenge.status, 0, "{key}");
    }
}

#[test]
fn extensions_are_part_of_what_is_proved() {
    let with = |list: &[(u16, &[u8])]| ExtensionList::of(list);
    // As a newer client and a newer server say them, and an older one reads them.
    let read = |hello: &Hello| Hello::from_bytes(hello.to_bytes()).unwrap();
    let hello = Hello { extensions: with(&[(6, b"new")]), ..hello() };
    let mut server = ServerHandshake::new(KeyRing::new(KEY), FS, "weft", ServerId(1));
    let challenge = server.challenge(read(&hello), [2; NONCE_BYTES]);
    let mut client = ClientHandshake::new(KEY, hello.clone());
    assert_eq!(server.accept(&client.answer(&challenge).unwrap()), Ok(ACCEPTED));
    let stripped = Challenge { extensions: with(&[(8, b"put in on the way")]), ..challenge };
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

fn pair() -> KeyPair {
    KeyPair::generate(&ring::rand::SystemRandom::new())
}

/// A client and a server that encrypt; which of them knows the exchange.
fn encrypting(client_knows: bool, server_knows: bool) -> (ClientHandshake, ServerHandshake) {
    let client = ClientHandshake::new(KEY, Hello { features: Features::KNOWN, ..hello() });
    let server = ServerHandshake::new(KeyRing::new(KEY), FS, "weft", ServerId(1)).with_features(Features::KNOWN, Features::ENCRYPTION);
    let client = if client_knows { client.with_exchange(pair()) } else { client };
    (client, if server_knows { server.with_exchange(pair) } else { server })
}

/// What travels: hello and challenge, and the first envelope to the server with the word `secret`.
fn record(client_knows: bool, server_knows: bool) -> (Hello, Challenge, Vec<u8>) {
    let (mut client, mut server) = encrypting(client_knows, server_knows);
    let hello = Hello::from_bytes(client.first_message().to_bytes()).unwrap();
    let challenge = Challenge::from_bytes(server.challenge(hello.clone(), [2; NONCE_BYTES]).to_bytes()).unwrap();
    server.accept(&client.answer(&challenge).unwrap()).unwrap();
    let mut envelope = Vec::new();
    client.ciphers(&challenge).unwrap().to_server.encrypt(&mut &mut [std::io::IoSlice::new(b"secret")][..], &mut envelope);
    let mut received = envelope.clone();
    assert_eq!(server.ciphers().unwrap().to_server.open(&mut received, LENGTH_BYTES), Ok(6), "the server reads it");
    (hello, challenge, envelope)
}

fn opens(mut ciphers: SessionCiphers, envelope: &[u8]) -> bool {
    ciphers.to_server.open(&mut envelope.to_vec(), LENGTH_BYTES).is_ok()
}

#[test]
fn who_learns_the_key_later_cannot_read_what_was_recorded() {
    let (hello, challenge, envelope) = record(true, true);
    let (hello_bytes, challenge_bytes) = (hello.to_bytes(), agreed(&challenge));
    let of = |shared: Option<[u8; 32]>| SessionCiphers::new(&KEY, shared.map(SharedSecret).as_ref(), &hello_bytes, &challenge_bytes);
    let public = |extensions: &ExtensionList| public_key_in(extensions).unwrap().expect("it travels");
    let (ours, theirs) = (public(&hello.extensions), public(&challenge.extensions));
    // All that a key pair of the one who has recorded it leads to.
    let (one, other) = (pair().agree(&ours).unwrap(), pair().agree(&theirs).unwrap());
    for guess in [None, Some([0; 32]), Some(ours), Some(theirs), Some(one.0), Some(other.0)] {
        assert!(!opens(of(guess), &envelope), "{guess:?}");
    }
    // Without the exchange the same attack works.
    for (client_knows, server_knows) in [(false, true), (true, false), (false, false)] {
        let (hello, challenge, envelope) = record(client_knows, server_knows);
        assert!(opens(SessionCiphers::new(&KEY, None, &hello.to_bytes(), &agreed(&challenge)), &envelope));
        assert_eq!(public_key_in(&challenge.extensions), Ok(None));
    }
}

#[test]
fn each_connection_has_its_own_secret() {
    let keys: Vec<_> = (0..2).map(|_| record(true, true)).collect();
    assert!(keys[0].0 != keys[1].0 && keys[0].1 != keys[1].1 && keys[0].2 != keys[1].2);
}

#[test]
fn the_exchange_cannot_be_taken_out_or_changed_on_the_way() {
    let refused = Err(Status::AuthenticationFailed);
    let (other, nothing) = (pair().extensions(), ExtensionList::default());
    // In the hello: the server proves another one than was sent.
    for extensions in [other.clone(), nothing.clone()] {
        let (mut client, mut server) = encrypting(true, true);
        let changed = Hello { extensions, ..client.first_message().clone() };
        let challenge = server.challenge(changed, [2; NONCE_BYTES]);
        assert_eq!(client.answer(&challenge), refused);
    }
    // In the challenge.
    for extensions in [other, nothing] {
        let (mut client, mut server) = encrypting(true, true);
        let challenge = server.challenge(client.first_message().clone(), [2; NONCE_BYTES]);
        assert_eq!(client.answer(&Challenge { extensions, ..challenge }), refused);
    }
}

#[test]
fn public_keys_that_are_none_are_refused_by_name() {
    let low_order = [&[1][..], &[0; 31]].concat();
    for key in [&[0; 32][..], &[7; 31], &[7; 33], &[]] {
        let hello = Hello { features: Features::KNOWN, extensions: ExtensionList::of(&[(2, key)]), ..hello() };
        let challenge = encrypting(true, true).1.challenge(hello, [2; NONCE_BYTES]);
        assert_eq!(challenge.status, Status::BadMessage.code());
        assert!(challenge.reason.contains("public key for the exchange"), "{}", challenge.reason);
    }
    // One of low order is found when the client has proved itself.
    let hello = Hello { features: Features::KNOWN, extensions: ExtensionList::of(&[(2, &low_order)]), ..hello() };
    let (_, mut server) = encrypting(true, true);
    let challenge = server.challenge(hello.clone(), [2; NONCE_BYTES]);
    let proof = ClientHandshake::new(KEY, hello).answer(&challenge).unwrap();
    assert_eq!(server.accept(&proof), Err(Status::BadMessage));
    assert!(server.explain(Status::BadMessage).contains("public key for the exchange"));
    // Of a server that holds the key.
    for key in [&[0; 32][..], &low_order, &[7; 31]] {
        let (mut client, mut server) = encrypting(true, false);
        let mut challenge = server.challenge(client.first_message().clone(), [2; NONCE_BYTES]);
        challenge.extensions = ExtensionList::of(&[(2, key)]);
        challenge.proof = Bytes::copy_from_slice(&server_proof(&KEY, client.first_message(), &challenge));
        assert_eq!(client.answer(&challenge), Err(Status::BadMessage));
        assert!(client.explain(Status::BadMessage, &challenge).contains("public key for the exchange"));
    }
}
