//! Keys: what the holder of a client's key may do, what it may not, and how a key is taken back.
//! `SECURITY.md` says it in words.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::process::Command;
use std::time::Duration;

use weft_base::{Credentials, DataTime, Handle, ROOT_HANDLE, ServerEntry, ServerId, Status};
use weft_system_tests::fuzzing::samples::{self, Subject};
use weft_system_tests::socket::{Peer, read_credential, read_key};
use weft_system_tests::{FileSystem, Need, as_user, available, fails, ok, wait_until, weft};
use weft_wire::ops::{
    CloseRequest, DirTarget, GetKeysRequest, GetMapRequest, LookupRequest, MeetRequest, OpenFile, PingRequest, ReadManyReply, ReadRequest,
    ReclaimRequest, SetAttrRequest, TxDecideRequest, TxId, Written,
};
use weft_wire::{Capability, Credential, Frame, KeyId, Op, Rights, Wire};

const EDQUOT: i32 = 122;
/// Longer than a server takes to follow the list of keys: a second.
const PATIENCE: Duration = Duration::from_secs(20);

fn addresses(fs: &FileSystem) -> Vec<String> {
    let (_, report) = fs.status();
    let rows = report["servers"].as_array().expect("servers").iter();
    rows.map(|row| row["address"].as_str().expect("an address").to_string()).collect()
}

/// A command of weft with the key of this name.
fn with_key(fs: &FileSystem, name: &str, args: &[&str]) -> std::process::Command {
    let mut command = weft();
    command.args(["--timeout", "5", "--key-file"]).arg(fs.path(&format!("{name}.key"))).args(args);
    command
}

fn add_key(fs: &FileSystem, name: &str, rights: &[&str]) -> Credential {
    let file = fs.path(&format!("{name}.key"));
    ok(weft().args(["key", "add", name, "--state"]).arg(fs.state()).args(rights).arg("--output").arg(&file));
    let credential = read_credential(&file);
    // Servers follow the list within a second.
    let client = credential.id.client(7 << 20);
    for address in addresses(fs) {
        wait_until("a new key", PATIENCE, || Peer::join_as(&address, &credential, client).is_ok());
    }
    credential
}

#[test]
fn promise_a_client_is_no_server() {
    for listen in ["unix", "tcp"] {
        let fs = FileSystem::up(&["--listen", listen, "--data", "1"]);
        let own = read_credential(&fs.state().join("key"));
        let server = read_key(&fs.state().join("server.key"));
        assert!(own.id != KeyId::SERVERS && own.key != server);
        let addresses = addresses(&fs);
        let client = own.id.client(99 << 20);
        let mut meta = Peer::join_as(&addresses[0], &own, client).expect("a client is welcome");
        assert!(meta.ask(&PingRequest {}, &[]).unwrap().is_ok());
        // What servers send to each other.
        let decide = TxDecideRequest { tx: TxId { coordinator: ServerId(0), number: 1 }, commit: true };
        assert_eq!(meta.ask(&decide, &[]).unwrap().map(drop), Err(Status::KeyForbids));
        let entry = ServerEntry { id: ServerId(1), name: "mine".into(), address: "unix:/mine".into() };
        let meet = MeetRequest { server: entry, birth: 5, yours: 0, epoch: 0, map: None };
        assert_eq!(meta.ask(&meet, &[]).unwrap().map(drop), Err(Status::KeyForbids));
        assert_eq!(meta.ask(&GetKeysRequest { known: 0, offset: 0 }, &[]).unwrap().map(drop), Err(Status::KeyForbids));
        // Who says that he is metadata server 0 gives a data server no map.
        let mut data = Peer::join_as(&addresses[1], &own, client).expect("a client is welcome");
        let mut map = meta.ask(&GetMapRequest {}, &[]).unwrap().unwrap().0.map;
        let before = data.ask(&GetMapRequest {}, &[]).unwrap().unwrap().0.map;
        map.epoch += 1;
        map.data[0].address = "unix:/mine".into();
        let forged = MeetRequest { server: map.meta[0].clone(), birth: 5, yours: 0, epoch: map.epoch, map: Some(map) };
        assert_eq!(data.ask(&forged, &[]).unwrap().map(drop), Err(Status::KeyForbids));
        assert_eq!(data.ask(&GetMapRequest {}, &[]).unwrap().unwrap().0.map, before);
        // The name of the key of servers, and that of another client.
        for (id, client) in [(KeyId::SERVERS, client), (KeyId(77), KeyId(77).client(5)), (own.id, KeyId(77).client(5))] {
            assert!(Peer::join_as(&addresses[0], &Credential { id, ..own.clone() }, client).is_err(), "{id:?}");
        }
        // A capability that a client signs opens nothing, one that a server signs does.
        let far = weft_base::WallTime(i64::MAX);
        let mut read = |key| {
            let capability = Capability::sign(key, ROOT_HANDLE, client, Rights::READ, far);
            let pieces = vec![weft_wire::ops::Piece { offset: 0, bytes: 1 }];
            data.ask(&ReadRequest { handle: ROOT_HANDLE, index: 0, capability, pieces }, &[]).unwrap().map(drop)
        };
        assert_eq!((read(&own.key), read(&server)), (Err(Status::CapabilityRefused), Ok(())));
    }
}

#[test]
fn promise_a_revoked_key_is_refused_at_once() {
    let fs = FileSystem::up(&["--data", "1"]);
    let credential = add_key(&fs, "guest", &[]);
    let addresses = addresses(&fs);
    let client = credential.id.client(9 << 20);
    let mut open: Vec<Peer> = addresses.iter().map(|address| Peer::join_as(address, &credential, client).unwrap()).collect();
    assert!(open.iter_mut().all(|peer| peer.ask(&PingRequest {}, &[]).unwrap().is_ok()));
    ok(weft().args(["key", "revoke", "guest", "--state"]).arg(fs.state()));
    for (peer, address) in open.iter_mut().zip(&addresses) {
        wait_until("the end of an open connection", PATIENCE, || !matches!(peer.ask(&PingRequest {}, &[]), Ok(Ok(_))));
        let error = Peer::join_as(address, &credential, client).unwrap_err();
        assert_eq!(error.get_ref().and_then(|inner| inner.downcast_ref::<Status>()), Some(&Status::AuthenticationFailed));
    }
    let said = fails(&mut with_key(&fs, "guest", &["ls", &fs.at("/")]));
    assert!(said.contains("was revoked"), "{said}");
    let listed = ok(weft().args(["key", "list", "--state"]).arg(fs.state()));
    assert!(listed.contains("guest") && listed.contains("revoked") && listed.contains("default"), "{listed}");
    // Others go on, also over a restart.
    ok(weft().args(["mkdir", &fs.at("/dir")]));
    fs.down();
    fs.start(&[]);
    fails(&mut with_key(&fs, "guest", &["ls", &fs.at("/")]));
    // A key that is replaced is refused too; the new one is in its place.
    fs::copy(fs.state().join("key"), fs.path("old.key")).unwrap();
    ok(weft().args(["key", "rotate", "default", "--state"]).arg(fs.state()));
    let old = read_credential(&fs.path("old.key"));
    wait_until("the end of the old key", PATIENCE, || Peer::join_as(&addresses[0], &old, old.id.client(1 << 20)).is_err());
    assert_eq!(ok(weft().args(["ls", &fs.at("/")])), "dir\n");
}

#[test]
fn promise_keys_have_rights() {
    let fs = FileSystem::up(&["--data", "1"]);
    fs::write(fs.path("file"), "content").unwrap();
    ok(weft().arg("cp").arg(fs.path("file")).arg(fs.at("/file")));
    add_key(&fs, "reader", &["--read-only"]);
    assert_eq!(ok(&mut with_key(&fs, "reader", &["cat", &fs.at("/file")])), "content");
    let (file, copied, dir) = (fs.path("file").display().to_string(), fs.at("/copied"), fs.at("/dir"));
    for command in [&["mkdir", &dir][..], &["rm", &fs.at("/file")], &["mv", &fs.at("/file"), &fs.at("/other")], &["cp", &file, &copied]] {
        let said = fails(&mut with_key(&fs, "reader", command));
        assert!(said.contains("allows no changes"), "{command:?}: {said}");
    }
    let said = fails(with_key(&fs, "reader", &["trace", "on"]).arg(fs.state()));
    assert!(said.contains("does not allow"), "{said}");
    assert_eq!(ok(weft().args(["ls", &fs.at("/")])), "file\n");
    assert_eq!(ok(weft().args(["cat", &fs.at("/file")])), "content");

    // A range of users. The requests are made by hand: a client may claim to be anybody.
    let credential = add_key(&fs, "people", &["--users", "1000-1999"]);
    let mut peer = Peer::join_as(&addresses(&fs)[0], &credential, credential.id.client(3 << 20)).unwrap();
    let mut ask = |uid| {
        let who = Credentials { uid, gid: uid, groups: vec![], checked_by_kernel: true };
        let at = DirTarget { dir: ROOT_HANDLE, map_epoch: 0 };
        peer.ask(&LookupRequest { at, name: "file".into(), who }, &[]).unwrap().map(drop)
    };
    assert_eq!((ask(0), ask(1500), ask(2000)), (Err(Status::KeyForbids), Ok(()), Err(Status::KeyForbids)));
}

/// Name and rights of a key, what it forbids beside what all limited keys do, and what it forbids
/// because it only reads.
type Limits = (&'static str, &'static [&'static str], &'static [Op], &'static [Op]);

/// What a request has come to: of one for many pieces, the first.
fn outcome(op: Op, frame: Frame) -> Result<(), Status> {
    frame.status()?;
    match op {
        Op::ReadMany => ReadManyReply::from_bytes(frame.body)?.got.swap_remove(0).map(drop),
        _ => Ok(()),
    }
}

/// A request of every operation, from clients whose keys are limited.
#[test]
fn every_operation_keeps_to_the_limits_of_a_key() {
    use Op::*;
    let fs = FileSystem::up(&["--data", "1"]);
    fs::write(fs.path("file"), "content").unwrap();
    ok(weft().arg("cp").arg(fs.path("file")).arg(fs.at("/file")));
    let stat = |path: &str| serde_json::from_str::<serde_json::Value>(&ok(weft().args(["stat", "--json"]).arg(fs.at(path)))).unwrap();
    let before = stat("/file");
    let file = Handle(before[0]["inode"].as_u64().expect("the number of an inode"));
    let of_no_limited_key = &[
        CreateMany,
        CheckGone,
        ListDatafiles,
        Meet,
        TxPrepare,
        TxDecide,
        TxStatus,
        GiveNames,
        Borrow,
        Recall,
        SetQuota,
        Trace,
        TraceRead,
        SetDurability,
        GetKeys,
        Changes,
        ClassicDirectory,
        ClassicReserve,
        ClassicMakeMetafile,
        ClassicSetMetafile,
        ClassicInsertEntry,
        ClassicRemoveEntry,
        ClassicRemoveMetafile,
    ][..];
    let limits: [Limits; 3] = [
        (
            "reader",
            &["--read-only"],
            &[],
            &[
                Create,
                Mkdir,
                Unlink,
                Rmdir,
                RemoveEntries,
                Rename,
                Link,
                Split,
                SetAttr,
                Open,
                Close,
                SetXattr,
                RemoveXattr,
                Reclaim,
                CloseMany,
                Write,
                ObjectTruncate,
                ObjectRemove,
                ObjectEpoch,
                ObjectPunch,
                ObjectAllocate,
            ],
        ),
        // The requests are those of user 1000.
        (
            "others",
            &["--users", "2000-2999"],
            &[
                Lookup,
                Create,
                Mkdir,
                Unlink,
                Rmdir,
                Rename,
                Link,
                Split,
                ReadDir,
                LookupMany,
                RemoveEntries,
                SetAttr,
                Open,
                GetXattr,
                SetXattr,
                ListXattr,
                RemoveXattr,
                Usage,
                Live,
                Parent,
            ],
            &[],
        ),
        ("people", &["--users", "1000-1999"], &[Live, Parent], &[]),
    ];
    let addresses = addresses(&fs);
    for (name, rights, forbidden, read_only) in limits {
        let credential = add_key(&fs, name, rights);
        for (number, request) in samples::requests(&Subject { file, ..Subject::fixed() }).into_iter().enumerate() {
            // A client of its own: what was answered before is answered again.
            let client = credential.id.client((number as u64 + 100) << 20);
            let op = request.op();
            let server = usize::from(op.role() == Some(weft_base::ServerRole::Data));
            let mut peer = Peer::join_as(&addresses[server], &credential, client).expect("a client is welcome");
            let bytes = peer.request(op, &request.encode(), &samples::bulk(&request));
            peer.send(&bytes).unwrap();
            let status = outcome(op, peer.receive().unwrap());
            let expected = [(of_no_limited_key, Status::KeyForbids), (forbidden, Status::KeyForbids), (read_only, Status::KeyReadsOnly)];
            let expected = expected.into_iter().find(|(ops, _)| ops.contains(&op)).map(|(_, status)| status);
            match expected {
                Some(expected) => assert_eq!(status, Err(expected), "{name}: {}", op.name()),
                None => assert!(!matches!(status, Err(Status::KeyForbids | Status::KeyReadsOnly)), "{name}: {}: {status:?}", op.name()),
            }
            // Nobody has a capability: the data is out of reach.
            if op.role() == Some(weft_base::ServerRole::Data) {
                assert!(status.is_err(), "{name}: {}", op.name());
            }
        }
        // Who may not write to the file has changed nothing of it, whatever he says he has open.
        assert_eq!(ok(weft().arg("cat").arg(fs.at("/file"))), "content", "{name}");
        assert_eq!(stat("/file")[0]["size"], before[0]["size"], "{name}");
    }
}

/// Who is limited to some users says that he has a file open for writing, and how large it is.
#[test]
fn a_client_of_some_users_is_not_believed_what_it_has_open() {
    let fs = FileSystem::up(&["--data", "1"]);
    let content = "content".repeat(2000);
    fs::write(fs.path("file"), &content).unwrap();
    ok(weft().arg("cp").arg(fs.path("file")).arg(fs.at("/file")));
    let stat = || {
        let stat: serde_json::Value = serde_json::from_str(&ok(weft().args(["stat", "--json"]).arg(fs.at("/file")))).unwrap();
        stat[0].clone()
    };
    let handle = Handle(stat()["inode"].as_u64().expect("the number of an inode"));
    let credential = add_key(&fs, "people", &["--users", "1000-1999"]);
    let mut peer = Peer::join_as(&addresses(&fs)[0], &credential, credential.id.client(12 << 20)).unwrap();
    let who = Credentials { uid: 1500, gid: 1500, groups: vec![], checked_by_kernel: true };
    let at = DirTarget { dir: ROOT_HANDLE, map_epoch: 0 };
    let found = peer.ask_showing(&LookupRequest { at, name: "file".into(), who: who.clone() }, &[]).unwrap().unwrap();
    assert_eq!(found.message.handle, handle);
    let tags = &found.tags[..];
    let open = OpenFile { handle, rights: Rights::WRITE, open_sequence: 1 };
    let reclaim = ReclaimRequest { opens: vec![open], locks: None, goes_on: None };
    assert_eq!(peer.ask(&reclaim, &[]).unwrap().map(drop), Err(Status::Stale), "it does not show that it was told of the file");
    peer.ask_showing(&reclaim, tags).unwrap().unwrap();
    let cut = SetAttrRequest { size: Some(0), opened_for_write: true, ..SetAttrRequest::of(handle, who) };
    assert_eq!(peer.ask_showing(&cut, tags).unwrap().map(drop), Err(Status::AccessDenied));
    let written = Written { end_bytes: 1 << 40, mtime: DataTime { epoch: 0, at: weft_base::WallTime(5) }, truncate_epoch: 0 };
    let close = CloseRequest { handle, open_sequence: 1, keeps: Rights::default(), written: Some(written) };
    peer.ask_showing(&close, tags).unwrap().unwrap();
    assert_eq!(stat()["size"], content.len(), "the data servers know how large it is");
    assert_eq!(ok(weft().arg("cat").arg(fs.at("/file"))), content);
}

/// A file that grows under a limit of bytes is opened again by its client, for nobody else than who
/// has it open: the key would not allow that. Its mode, by now, is no matter.
#[test]
fn a_client_of_some_users_writes_up_to_a_limit_of_bytes() {
    if !available("a_client_of_some_users_writes_up_to_a_limit_of_bytes", &[Need::Root, Need::Fuse]) {
        return;
    }
    const MAX: u64 = 16 << 20;
    let fs = FileSystem::mounted(&["--data", "2", "--listen", "tcp"]);
    fs::set_permissions(fs.mnt(), fs::Permissions::from_mode(0o777)).unwrap();
    ok(weft().args(["quota", "set", "--user", "1500", "--bytes", "16M"]).arg(fs.state()));
    add_key(&fs, "people", &["--users", "1000-1999"]);
    let place = fs.path("people");
    fs::create_dir(&place).unwrap();
    let address = format!("weft://{}/weft", addresses(&fs)[0].strip_prefix("tcp:").expect("an address"));
    ok(weft().args(["mount", &address]).arg(&place).arg("--key-file").arg(fs.path("people.key")));
    as_user(1500, &[1500], || {
        let mut file = File::options().append(true).create_new(true).mode(0o444).open(place.join("file")).expect("it is made");
        let error = std::iter::from_fn(|| Some(file.write_all(&[1; 1 << 20]))).find_map(Result::err).expect("limits end");
        assert_eq!(error.raw_os_error(), Some(EDQUOT), "{error}");
        let blocks = file.metadata().unwrap().blocks() * 512;
        assert!((MAX * 3 / 4..=MAX).contains(&blocks), "{blocks} bytes");
    });
    ok(weft().arg("umount").arg(&place));
}

#[test]
fn promise_root_is_nobody_for_a_key_that_says_so() {
    if !available("promise_root_is_nobody", &[Need::Root]) {
        return;
    }
    let fs = FileSystem::up(&["--data", "1"]);
    fs::write(fs.path("secret"), "secret").unwrap();
    fs::set_permissions(fs.path("secret"), fs::Permissions::from_mode(0o600)).unwrap();
    ok(weft().arg("cp").arg(fs.path("secret")).arg(fs.at("/secret")));
    add_key(&fs, "squashed", &["--root-squash"]);
    assert_eq!(ok(weft().args(["cat", &fs.at("/secret")])), "secret");
    for command in [&["cat", &fs.at("/secret")][..], &["mkdir", &fs.at("/dir")], &["rm", &fs.at("/secret")]] {
        let said = fails(&mut with_key(&fs, "squashed", command));
        assert!(said.contains("ermission denied") || said.contains("not permitted"), "{command:?}: {said}");
    }
    ok(&mut with_key(&fs, "squashed", &["ls", &fs.at("/")]));
}

#[test]
fn keys_that_make_no_sense_are_refused() {
    let fs = FileSystem::up(&["--data", "1"]);
    let key = |args: &[&str]| {
        let mut command = weft();
        command.arg("key").args(args).arg("--state").arg(fs.state()).current_dir(fs.path(""));
        command
    };
    let words = fails(&mut key(&["revoke", "nobody"]));
    assert!(words.contains("there is no key `nobody`; `weft key list --state "), "{words}");
    ok(&mut key(&["add", "one"]));
    let words = fails(&mut key(&["rotate", "one"]));
    assert!(words.contains("one.key exists, with the key `one` that is to be replaced; nothing has changed: move it away"), "{words}");
    assert!(fails(&mut key(&["rotate", "default", "--output", "one.key"])).contains("one.key exists; choose another"));
    assert!(fails(&mut key(&["add", "default"])).contains("there is a key `default` already"));
    assert!(fails(&mut key(&["add", "x", "--users", "9-3"])).contains("1000-1999"));
    // A list that is not understood changes nothing for servers that run, and lets none start.
    let list = fs.state().join("keys");
    let good = fs::read_to_string(&list).unwrap();
    fs::write(&list, good.replace("users=any", "subtree=/home")).unwrap();
    let log = fs.state().join("run/meta0.log");
    wait_until("a line in the log", PATIENCE, || fs::read_to_string(&log).is_ok_and(|text| text.contains("the keys stay as they were")));
    ok(weft().args(["mkdir", &fs.at("/dir")]));
    fs.down();
    assert!(fails(weft().args(["up", "--state"]).arg(fs.state())).contains("`subtree=/home` is not known"));
    fs::write(&list, good).unwrap();
    // The key of a client is none for servers.
    let server = fs.state().join("server.key");
    let kept = fs::read(&server).unwrap();
    fs::copy(fs.state().join("key"), &server).unwrap();
    assert!(fails(weft().args(["up", "--state"]).arg(fs.state())).contains("key of a client"));
    fs::write(&server, kept).unwrap();
    fs.start(&[]);
    // Whoever takes the key of the commands here away hears what to do.
    let said = key(&["revoke", "default"]).output().unwrap();
    let own = fs.state().join("key").display().to_string();
    let advice = format!("rm {own} && weft key add NAME --state {} --output {own}", fs.state().display());
    assert!(said.status.success() && String::from_utf8_lossy(&said.stderr).contains(&advice), "{said:?}");
    let (is_well, report) = fs.status();
    let problem = report["problems"][0].as_str().expect("a problem");
    assert!(!is_well && problem.contains("refuses the key of this command") && problem.contains("weft key list --state"), "{problem}");
    // Servers start all the same.
    fs.down();
    let up = weft().args(["up", "--state"]).arg(fs.state()).output().unwrap();
    assert!(up.status.success() && String::from_utf8_lossy(&up.stderr).contains("refused"), "{up:?}");
    ok(Command::new("rm").arg(&own));
    fs.down();
    fs.start(&[]);
    ok(&mut key(&["add", "NAME", "--output", &own]));
    ok(weft().args(["ls", &fs.at("/")]));
}
