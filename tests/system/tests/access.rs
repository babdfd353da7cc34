//! Who is let in: the cluster key, capabilities, addresses; and bytes of strangers against a
//! running server.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use weft_base::{ClientId, FsId, Handle, ServerId, Status, WallTime};
use weft_system_tests::fuzzing::Mutator;
use weft_system_tests::fuzzing::samples::{self, Subject};
use weft_system_tests::socket::{Peer, read_key};
use weft_system_tests::{FileSystem, Random, fails, ok, wait_until, weft};
use weft_wire::handshake::{ANY_SERVER, ClientHandshake, NONCE_BYTES};
use weft_wire::ops::*;
use weft_wire::{BODY_BYTES_MAX, BULK_BYTES_MAX, Capability, ClusterKey, Header, Rights};

fn addresses(fs: &FileSystem) -> Vec<String> {
    let (_, report) = fs.status();
    report["servers"].as_array().unwrap().iter().map(|row| row["address"].as_str().unwrap().to_string()).collect()
}

fn inner(error: &std::io::Error) -> Option<Status> {
    error.get_ref().and_then(|inner| inner.downcast_ref::<Status>()).copied()
}

fn in_an_hour() -> WallTime {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("it is later than 1970");
    WallTime((now + Duration::from_secs(3600)).as_nanos() as i64)
}

#[test]
fn promise_key() {
    for listen in ["unix", "tcp"] {
        let fs = FileSystem::up(&["--listen", listen]);
        let right = read_key(&fs.state().join("server.key"));
        let wrong = ClusterKey([7; 32]);
        for address in addresses(&fs) {
            assert!(Peer::join(&address, &right, ClientId(1)).is_ok());
            // Our own client notices that the server does not hold its key; one that would not care
            // is refused by the server.
            let error = Peer::join(&address, &wrong, ClientId(1)).unwrap_err();
            assert_eq!(inner(&error), Some(Status::AuthenticationFailed), "{error}");
            let mut careless = Peer::connect(&address).unwrap();
            let hello = ClientHandshake::hello(FsId(0), "", ANY_SERVER, ClientId(2), 1, [1; NONCE_BYTES]);
            careless.send(&weft_wire::handshake::frame(&hello)).unwrap();
            careless.receive().expect("a challenge");
            let proof = weft_wire::handshake::Proof { proof: vec![0; 32].into() };
            careless.send(&weft_wire::handshake::frame(&proof)).unwrap();
            assert!(careless.is_closed_by_server());
            // Requests before the handshake.
            let mut hasty = Peer::connect(&address).unwrap();
            let bytes = hasty.request(Op::Ping, &[], &[]);
            hasty.send(&bytes).unwrap();
            assert!(hasty.is_closed_by_server());
            // Versions, file systems and servers that are not ours.
            let hello = || ClientHandshake::hello(FsId(0), "", ANY_SERVER, ClientId(3), 1, [1; NONCE_BYTES]);
            for (hello, status) in [
                (Hello { version_oldest: 99, version_newest: 120, ..hello() }, Status::VersionMismatch),
                (Hello { fs_id: FsId(12345), ..hello() }, Status::WrongFileSystem),
                (Hello { fs_name: "other".into(), ..hello() }, Status::WrongFileSystem),
                (Hello { server: ServerId(4444), ..hello() }, Status::WrongServer),
            ] {
                let error = Peer::join_with(&address, &right, hello).unwrap_err();
                assert_eq!(inner(&error), Some(status), "{error}");
            }
        }
        assert!(fs.status().0, "all servers go on");
        if listen == "unix" {
            assert_eq!(fs::metadata(fs.state()).unwrap().permissions().mode() & 0o077, 0, "only the user reaches the sockets");
        }
        let other = fs.path("other-key");
        fs::write(&other, "0123456789abcdef".repeat(4)).unwrap();
        let refused = fails(weft().args(["ping", "--timeout", "2", "--key-file"]).arg(&other).arg(fs.state()));
        assert!(refused.contains("key"), "{refused}");
    }
}

use weft_wire::handshake::Hello;

/// Without a key, an address that others can reach is refused.
#[test]
fn promise_key_or_loopback() {
    let fs = FileSystem::prepare();
    let config = fs.path("weft.toml");
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let data = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let make = |host: &str| {
        let _ = fs::remove_file(&config);
        for file in ["key", "server.key", "keys"] {
            let _ = fs::remove_file(fs.path(file));
        }
        let (meta, data) = (format!("{host}:{port}"), format!("127.0.0.1:{data}"));
        ok(weft().args(["genconfig", "--meta", &meta, "--data", &data, "--dir"]).arg(fs.path("stores")).arg("-o").arg(&config));
        let text = fs::read_to_string(&config).unwrap();
        let without: Vec<_> = text.lines().filter(|line| !line.contains("_file = ")).collect();
        assert_eq!(without.len() + 3, text.lines().count(), "{text}");
        fs::write(&config, without.join("\n")).unwrap();
    };
    for host in ["0.0.0.0", "[::]"] {
        make(host);
        let refused = fails(weft().args(["serve", "--create", "--server", "meta0", "--config"]).arg(&config));
        assert!(refused.contains("key"), "{refused}");
    }
    make("127.0.0.1");
    let mut child = weft().args(["serve", "--create", "--server", "meta0", "--config"]).arg(&config).spawn().unwrap();
    wait_until("a server without a key on loopback", Duration::from_secs(20), || Peer::connect(&format!("tcp:127.0.0.1:{port}")).is_ok());
    // Anybody on this machine may ask it things, but not make it write files.
    let mut anybody = Peer::join(&format!("tcp:127.0.0.1:{port}"), &ClusterKey([0; 32]), ClientId(7)).unwrap();
    assert!(anybody.ask(&PingRequest {}, &[]).unwrap().is_ok());
    let folder = fs.path("traces");
    let on = TraceRequest {
        mask: "*".into(),
        mode: TraceMode::Bench,
        folder: folder.to_str().unwrap().into(),
        ..TraceRequest::new(TraceAction::On)
    };
    for request in [on, TraceRequest::new(TraceAction::Off), TraceRequest::new(TraceAction::Status)] {
        assert_eq!(anybody.ask(&request, &[]).unwrap().map(drop), Err(Status::NotSupported));
    }
    for remove in [false, true] {
        let request = TraceReadRequest { file: 0, offset: 0, remove };
        assert_eq!(anybody.ask(&request, &[]).unwrap().map(drop), Err(Status::NotSupported));
    }
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn promise_capability() {
    let fs = FileSystem::up(&["--data", "1"]);
    fs::write(fs.path("secret"), b"secret data").unwrap();
    ok(weft().arg("cp").arg(fs.path("secret")).arg(fs.at("/secret")));
    let key = read_key(&fs.state().join("server.key"));
    let addresses = addresses(&fs);
    let (meta, data) = (&addresses[0], &addresses[1]);
    let mut meta = Peer::join(meta, &key, ClientId(77)).unwrap();
    let at = DirTarget { dir: weft_base::ROOT_HANDLE, map_epoch: 0 };
    let who = weft_base::Credentials::ROOT;
    let found = meta.ask(&LookupRequest { at, name: "secret".into(), who: who.clone() }, &[]).unwrap().unwrap().0;
    let handle = found.handle;
    // What a metadata server gives is accepted from the client that it is for, and from nobody
    // else.
    let open = OpenRequest::of(handle, Rights::READ, 1, who);
    let given = meta.ask(&open, &[]).unwrap().unwrap().0.capability;
    let mut ours = Peer::join(data, &key, ClientId(77)).unwrap();
    let mut stranger = Peer::join(data, &key, ClientId(78)).unwrap();
    let pieces = vec![Piece { offset: 0, bytes: 11 }];
    let read = |capability, handle| ReadRequest { handle, index: 0, capability, pieces: pieces.clone() };
    let (reply, bytes) = ours.ask(&read(given, handle), &[]).unwrap().unwrap();
    assert_eq!((&reply.got[..], &bytes.to_bytes()[..]), (&[11][..], &b"secret data"[..]));
    let refused = Status::CapabilityRefused;
    assert_eq!(stranger.ask(&read(given, handle), &[]).unwrap().unwrap_err(), refused, "of another client");
    assert_eq!(ours.ask(&read(given, Handle(handle.0 + 1)), &[]).unwrap().unwrap_err(), refused, "for another file");
    let all = Rights::READ.with(Rights::WRITE).with(Rights::MANAGE);
    let write =
        |capability| WriteRequest { handle, index: 0, capability, pieces: pieces.clone(), mtime_epoch: 0, sync: false, ceiling: None };
    let bulk = [0; 11];
    let forged = [
        ("with more rights", Capability { rights: all, ..given }),
        ("that lasts longer", Capability { expires: WallTime(i64::MAX), ..given }),
        ("signed with another key", Capability::sign(&ClusterKey([9; 32]), handle, ClientId(77), all, in_an_hour())),
        ("without a signature", Capability { tag: [0; 16], rights: all, ..given }),
        ("to read", given),
    ];
    for (what, capability) in forged {
        assert_eq!(ours.ask(&write(capability), &bulk).unwrap().unwrap_err(), refused, "a write with a capability {what}");
        let truncate = ObjectTruncateRequest { handle, index: 0, capability, size: 0, truncate_epoch: 9 };
        assert_eq!(ours.ask(&truncate, &[]).unwrap().unwrap_err(), refused, "a truncation with a capability {what}");
        assert_eq!(ours.ask(&ObjectRemoveRequest { handle, index: 0, capability }, &[]).unwrap().unwrap_err(), refused);
        if what != "to read" {
            assert_eq!(ours.ask(&read(capability, handle), &[]).unwrap().unwrap_err(), refused, "a read with a capability {what}");
            let stat = ObjectStatRequest { handle, index: 0, capability };
            assert_eq!(ours.ask(&stat, &[]).unwrap().unwrap_err(), refused, "a stat with a capability {what}");
        }
    }
    let old = Capability::sign(&key, handle, ClientId(77), all, WallTime(1));
    assert_eq!(ours.ask(&read(old, handle), &[]).unwrap().unwrap_err(), Status::CapabilityExpired);
    assert_eq!(ok(weft().arg("cat").arg(fs.at("/secret"))), "secret data", "nothing was changed");
}

/// Who has the servers' key says that data0 knows a later cluster map. Data0 itself is asked before
/// metadata server 0 believes that it is an old copy, and stops.
#[test]
fn a_message_alone_does_not_make_a_server_an_old_copy() {
    let fs = FileSystem::up(&["--data", "1"]);
    let key = read_key(&fs.state().join("server.key"));
    let pid = fs.pid("meta0");
    let mut peer = Peer::join(&addresses(&fs)[0], &key, ClientId(5)).unwrap();
    let server = weft_base::ServerEntry { id: weft_base::ServerId::data(0), name: "data0".into(), address: String::new() };
    let claim = MeetRequest { server, birth: 1, yours: 0, epoch: 99, map: None };
    assert_eq!(peer.ask(&claim, &[]).unwrap().unwrap_err(), Status::NotReady);
    // By then data0 has answered that it is not so.
    std::thread::sleep(std::time::Duration::from_secs(1));
    assert_eq!(fs.pid("meta0"), pid);
    assert!(fs.status().0);
}

/// Who has the servers' key says that there is another server, and that data0 is elsewhere. Nobody
/// is there, or says the same of itself, so the cluster map stays as it is.
#[test]
fn a_message_alone_does_not_change_the_cluster_map() {
    let fs = FileSystem::up(&["--data", "1"]);
    let key = read_key(&fs.state().join("server.key"));
    let mut peer = Peer::join(&addresses(&fs)[0], &key, ClientId(5)).unwrap();
    let map = |peer: &mut Peer| peer.ask(&GetMapRequest {}, &[]).unwrap().unwrap().0.map;
    let before = map(&mut peer);
    let data0 = before.data[0].clone();
    // A socket at which somebody listens who does not hold the key.
    let listener = std::os::unix::net::UnixListener::bind(fs.path("trap")).unwrap();
    let trap = format!("unix:{}", fs.path("trap").display());
    let named = |id, name: &str, address: &str| weft_base::ServerEntry { id, name: name.into(), address: address.into() };
    for server in [
        named(ServerId::data(1), "data1", "unix:/nowhere"),
        named(ServerId::data(2), "data2", &trap),
        named(data0.id, "data0", &trap),
        named(data0.id, "other", &data0.address),
        named(ServerId(1), "meta1", &data0.address),
        named(ServerId(0), "meta0", &trap),
    ] {
        let claim = MeetRequest { server: server.clone(), birth: 1, yours: 0, epoch: 0, map: None };
        let refused = peer.ask(&claim, &[]).unwrap().map(drop);
        assert!(refused.is_err(), "{server:?}");
    }
    drop(listener);
    std::thread::sleep(std::time::Duration::from_secs(2));
    assert_eq!(map(&mut peer), before);
    ok(weft().arg("mkdir").arg(fs.at("/dir")));
}

/// What a newer client asks of an older server: an operation of another number.
#[test]
fn an_operation_that_a_server_does_not_know_is_not_supported() {
    let fs = FileSystem::up(&["--data", "1"]);
    let key = read_key(&fs.state().join("server.key"));
    for address in addresses(&fs) {
        let mut peer = Peer::join(&address, &key, ClientId(5)).unwrap();
        for code in [6, 7, 63, 9999, u16::MAX] {
            assert_eq!(Op::from_code(code), None);
            let mut bytes = peer.request(Op::Ping, b"what an older one cannot read", &[]);
            bytes[6..8].copy_from_slice(&code.to_le_bytes());
            let crc = weft_wire::crc32c(&bytes[..60]);
            bytes[60..64].copy_from_slice(&crc.to_le_bytes());
            peer.send(&bytes).unwrap();
            assert_eq!(peer.receive().unwrap().status(), Err(Status::NotSupported), "{code}");
        }
        assert!(peer.ask(&PingRequest {}, &[]).unwrap().is_ok(), "the connection goes on");
    }
}

/// Sends every damaged message of every type to a server of each kind; all servers live and work
/// afterwards.
#[test]
fn damaged_messages_do_not_stop_a_server() {
    const MUTATIONS: u64 = 10_000;
    /// Requests sent before their replies are taken.
    const WINDOW: usize = 100;
    let fs = FileSystem::up(&["--meta", "2", "--data", "2"]);
    fs::write(fs.path("file"), vec![1; 100_000]).unwrap();
    ok(weft().arg("mkdir").arg(fs.at("/dir")));
    ok(weft().arg("cp").arg(fs.path("file")).arg(fs.at("/dir/name")));
    let key = read_key(&fs.state().join("server.key"));
    let handles = |path: &str| {
        let text = ok(weft().args(["stat", "--json"]).arg(fs.at(path)));
        let report: serde_json::Value = serde_json::from_str(&text).unwrap();
        report[0].clone()
    };
    let about =
        Subject { client: ClientId(5), key: key.clone(), expires: in_an_hour(), ..subject(&handles("/dir"), &handles("/dir/name")) };
    let pids: Vec<_> = ["meta0", "meta1", "data0", "data1"].map(|name| fs.pid(name)).to_vec();
    std::thread::scope(|scope| {
        for address in addresses(&fs) {
            let (about, key) = (&about, &key);
            scope.spawn(move || {
                let mut mutator = Mutator::new(17);
                let mut client = 1000;
                let mut join = || {
                    client += 1;
                    Peer::join(&address, key, ClientId(client)).unwrap_or_else(|error| panic!("{address}: {error}"))
                };
                for request in samples::requests(about) {
                    let (body, bulk) = (request.encode(), samples::bulk(&request));
                    let mut peer = join();
                    let mut sent = 0;
                    for number in 0..MUTATIONS {
                        let damaged = mutator.damage(&body);
                        if damaged.len() > BODY_BYTES_MAX {
                            continue;
                        }
                        let bytes = peer.request(request.op(), &damaged, &bulk);
                        let written = peer.send(&bytes);
                        sent += 1;
                        let take = sent == WINDOW || number + 1 == MUTATIONS;
                        if written.is_err() || (take && (0..std::mem::take(&mut sent)).any(|_| peer.receive().is_err())) {
                            // It may end the connection, not more.
                            peer = join();
                            sent = 0;
                        }
                    }
                }
            });
        }
    });
    assert_eq!(["meta0", "meta1", "data0", "data1"].map(|name| fs.pid(name)).to_vec(), pids, "no server has ended");
    assert_eq!(addresses(&fs).len(), 4, "no message alone makes a server");
    assert!(fs.status().0);
    // They still do their work, and find their way through what was changed when they start again.
    let works = |name: &str| {
        ok(weft().arg("cp").arg(fs.path("file")).arg(fs.at(name)));
        ok(weft().arg("cp").arg(fs.at(name)).arg(fs.path("back")));
        assert_eq!(fs::read(fs.path("back")).unwrap(), vec![1; 100_000]);
    };
    works("/after-the-flood");
    ["meta0", "meta1", "data0", "data1"].iter().for_each(|name| fs.kill(name));
    fs.start(&[]);
    works("/after-the-restart");
}

fn subject(dir: &serde_json::Value, file: &serde_json::Value) -> Subject {
    let handle = |value: &serde_json::Value| {
        let number = &value["inode"];
        Handle(number.as_u64().unwrap_or_else(|| panic!("no inode number in {value}")))
    };
    Subject { dir: handle(dir), file: handle(file), ..Subject::fixed() }
}

/// Bytes that are no frames: at once, in pieces, endless, or none at all.
#[test]
fn garbage_on_a_socket_is_shut_out() {
    // Halves of frames are sent by hand, in the clear.
    let fs = FileSystem::up(&["--listen", "tcp", "--no-encryption"]);
    let key = read_key(&fs.state().join("server.key"));
    let mut random = Random::new(8);
    for address in addresses(&fs) {
        let mut idle: Vec<_> = (0..20).map(|_| Peer::connect(&address).unwrap()).collect();
        for round in 0..50 {
            let mut peer = if round % 2 == 0 { Peer::connect(&address).unwrap() } else { Peer::join(&address, &key, ClientId(9)).unwrap() };
            let len = 64 + random.below(100_000) as usize;
            // The server may close before it has everything.
            let _ = peer.send(&random.bytes(len));
            assert!(peer.is_closed_by_server(), "round {round}");
        }
        // Lengths beyond the limits are refused before anything is allocated; a wrong checksum ends
        // the connection.
        for damage in 0..4 {
            let mut peer = Peer::join(&address, &key, ClientId(10)).unwrap();
            let bytes = peer.request(Op::Ping, &[], &[]);
            let mut header = Header::decode(bytes[..64].try_into().unwrap()).unwrap();
            let mut encoded = match damage {
                0 => Header { body_bytes: BODY_BYTES_MAX as u32 + 1, ..header }.encode(),
                1 => Header { bulk_bytes: BULK_BYTES_MAX as u32 + 1, ..header }.encode(),
                2 => Header { body_crc: 1, ..header }.encode(),
                _ => {
                    header.version = 77;
                    header.encode()
                }
            };
            if damage == 3 {
                encoded[60] ^= 1;
            }
            peer.send(&encoded).unwrap();
            assert!(peer.is_closed_by_server(), "damage {damage}");
        }
        // Half a frame and silence: others are served meanwhile.
        let mut half = Peer::join(&address, &key, ClientId(11)).unwrap();
        let bytes = half.request(Op::GetMap, &[], &[]);
        half.send(&bytes[..40]).unwrap();
        let mut other = Peer::join(&address, &key, ClientId(12)).unwrap();
        assert!(other.ask(&GetMapRequest {}, &[]).unwrap().is_ok());
        half.send(&bytes[40..]).unwrap();
        assert!(half.receive().unwrap().status().is_ok(), "the other half arrives late");
        // Those that never said a word are dropped after a while.
        assert!(idle.iter_mut().all(Peer::is_closed_by_server));
        assert!(other.ask(&PingRequest {}, &[]).unwrap().is_ok());
    }
    assert!(fs.status().0);
}

/// Broken configs name file, line and what to do; nothing is started.
#[test]
fn broken_configs_are_explained() {
    let fs = FileSystem::up(&[]);
    fs.down();
    let config = fs.state().join("weft.toml");
    let good = fs::read_to_string(&config).unwrap();
    let ping = |path: &Path| fails(weft().args(["ping", "--timeout", "1"]).arg(path));
    let mut random = Random::new(4);
    for round in 0..60 {
        // Cuts and flipped characters anywhere. A change may be harmless (in a comment, in a name):
        // then `ping` finds nobody.
        let mut text = good.clone().into_bytes();
        let at = random.below(text.len() as u64) as usize;
        if round % 2 == 0 {
            text.truncate(at)
        } else {
            text[at] ^= 1 << random.below(7)
        }
        fs::write(&config, &text).unwrap();
        let words = ping(&fs.state());
        assert!(!words.contains("panicked") && !words.trim().is_empty(), "{words}");
    }
    for (from, to, expected) in [
        ("engine = \"journal\"", "engine = \"papyrus\"", "papyrus"),
        ("role = \"data\"", "role = \"spare\"", "spare"),
        ("[fs]", "[fs]\ncolour = \"red\"", "colour"),
    ] {
        assert!(good.contains(from), "{good}");
        fs::write(&config, good.replacen(from, to, 1)).unwrap();
        let words = ping(&fs.state());
        assert!(words.contains("weft.toml:") && words.contains(expected), "{words}");
    }
    fs::write(&config, good).unwrap();
    fs.start(&[]);
}
