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
