//! Keys of a subtree: their holder takes a directory for the root, and reaches nothing else, also
//! not by handles that it guesses. `SECURITY.md` says it in words.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::Duration;

use weft_base::{Credentials, FileKind, Handle, ROOT_HANDLE, ServerRole, Status};
use weft_system_tests::fuzzing::samples::{self, Subject};
use weft_system_tests::socket::{Peer, read_credential, read_key};
use weft_system_tests::{FileSystem, Need, available, fails, ok, wait_until, weft};
use weft_wire::ops::{
    AllowedBy, DirTarget, GetAttrManyRequest, GetAttrRequest, LinkRequest, LookupRequest, ReadDirRequest, ReadManyReply, RenameRequest,
    SetXattrRequest,
};
use weft_wire::{Credential, HandleTag, Header, Op, Wire};

/// Longer than a server takes to follow the list of keys: a second.
const PATIENCE: Duration = Duration::from_secs(20);

fn addresses(fs: &FileSystem) -> Vec<String> {
    let (_, report) = fs.status();
    let rows = report["servers"].as_array().expect("servers").iter();
    rows.map(|row| row["address"].as_str().expect("an address").to_string()).collect()
}

fn key_file(fs: &FileSystem, name: &str) -> PathBuf {
    fs.path(&format!("{name}.key"))
}

fn add_key(fs: &FileSystem, name: &str, rights: &[&str]) -> Credential {
    ok(weft().args(["key", "add", name, "--state"]).arg(fs.state()).args(rights).arg("--output").arg(key_file(fs, name)));
    let credential = read_credential(&key_file(fs, name));
    for address in addresses(fs) {
        wait_until("a new key", PATIENCE, || Peer::join_as(&address, &credential, credential.id.client(7 << 20)).is_ok());
    }
    credential
}

/// The handle of what is at a path.
fn handle(fs: &FileSystem, path: &str) -> Handle {
    let stat: serde_json::Value = serde_json::from_str(&ok(weft().args(["stat", "--json"]).arg(fs.at(path)))).expect("JSON");
    Handle(stat[0]["inode"].as_u64().expect("the number of an inode"))
}

/// A file system with a directory for a key, and one that is none of its business.
fn with_two_directories() -> FileSystem {
    let fs = FileSystem::up(&["--data", "1"]);
    fs::write(fs.path("file"), "content").unwrap();
    for dir in ["/inside", "/outside"] {
        ok(weft().arg("mkdir").arg(fs.at(dir)));
        ok(weft().arg("cp").arg(fs.path("file")).arg(fs.at(&format!("{dir}/file"))));
        ok(weft().arg("mkdir").arg(fs.at(&format!("{dir}/dir"))));
    }
    fs
}

/// A request of each row of the table of operations, about objects of which the client was never
/// told. A new operation is among them.
#[test]
fn promise_a_guessed_handle_is_refused() {
    let fs = with_two_directories();
    let (dir, file) = (handle(&fs, "/outside/dir"), handle(&fs, "/outside/file"));
    let server_key = read_key(&fs.state().join("server.key"));
    let addresses = addresses(&fs);
    let stat = || ok(weft().args(["stat", "--json"]).arg(fs.at("/outside/file")));
    let before = stat();
    let rights: [(&str, &[&str]); 3] =
        [("guest", &["--subtree", "/inside"]), ("reader", &["--subtree", "/inside", "--read-only"]), ("people", &["--users", "1000-1999"])];
    for (name, rights) in rights {
        let credential = add_key(&fs, name, rights);
        for (number, request) in samples::requests(&Subject { dir, file, ..Subject::fixed() }).into_iter().enumerate() {
            // A client of its own: what was answered before is answered again.
            let client = credential.id.client((number as u64 + 100) << 20);
            let op = request.op();
            let mut peer = Peer::join_as(&addresses[usize::from(op.role() == Some(ServerRole::Data))], &credential, client).unwrap();
            let mut named = 0;
            request.each_handle(&mut |_| named += 1);
            for tags in [vec![], vec![HandleTag::default(); named], vec![HandleTag([7; 16]); named]] {
                let mut body = request.encode().to_vec();
                weft_wire::put_tags(&tags, &mut body);
                let bytes = peer.request(op, &body, &samples::bulk(&request));
                peer.send(&bytes).unwrap();
                let frame = peer.receive().unwrap();
                let (status, body) = (frame.status(), frame.body);
                let what = format!("{name}: {}", op.name());
                match op.allowed_by() {
                    _ if matches!(op, Op::Live | Op::Parent) => assert_eq!(status, Err(Status::KeyForbids), "{what}"),
                    AllowedBy::ServersKey | AllowedBy::UnlimitedKey => assert_eq!(status, Err(Status::KeyForbids), "{what}"),
                    AllowedBy::Key => assert_eq!(status, Ok(()), "{what}"),
                    AllowedBy::Capability if op == Op::ReadMany => {
                        let reply = ReadManyReply::from_bytes(body).expect("one outcome for each piece");
                        assert!(reply.got.iter().all(Result::is_err), "{what}: nobody has given it a capability");
                    }
                    AllowedBy::Capability => assert!(status.is_err(), "{what}: nobody has given it a capability"),
                    AllowedBy::User if op == Op::Usage => assert!(status.is_err(), "{what}: of others"),
                    AllowedBy::User | AllowedBy::Handle | AllowedBy::Open => {
                        assert!(named > 0, "{what}: the sample names an object");
                        assert!(matches!(status, Err(Status::Stale | Status::KeyReadsOnly)), "{what}: {status:?}");
                        assert!(status == Err(Status::Stale) || name == "reader", "{what}: {status:?}");
                    }
                }
            }
        }
        // An object that there is looks like one that there is not.
        let mut peer = Peer::join_as(&addresses[0], &credential, credential.id.client(5 << 20)).unwrap();
        for handle in [file, Handle(file.0 + 1000), ROOT_HANDLE] {
            let expected = if handle == credential.root { Ok(()) } else { Err(Status::Stale) };
            assert_eq!(peer.ask(&GetAttrRequest { handle }, &[]).unwrap().map(drop), expected, "{name}");
        }
        assert_eq!(stat(), before, "{name}");
    }
    // The same requests are answered to an unlimited client.
    let mut peer = Peer::join(&addresses[0], &server_key, weft_base::ClientId(9)).unwrap();
    assert!(peer.ask(&GetAttrRequest { handle: file }, &[]).unwrap().is_ok());
}

/// Links and renames name two objects: nothing is pulled in from outside, and nothing pushed out.
#[test]
fn both_objects_of_a_link_or_rename_must_have_been_told() {
    let fs = with_two_directories();
    let (outside, secret) = (handle(&fs, "/outside"), handle(&fs, "/outside/file"));
    let credential = add_key(&fs, "guest", &["--subtree", "/inside"]);
    let other = add_key(&fs, "other", &["--subtree", "/outside"]);
    let who = Credentials { uid: 0, gid: 0, groups: vec![], checked_by_kernel: false };
    let at = |dir| DirTarget { dir, map_epoch: 0 };
    let address = addresses(&fs).swap_remove(0);
    let mut peer = Peer::join_as(&address, &credential, credential.id.client(3 << 20)).unwrap();
    let lookup = |name: &'static str, dir| LookupRequest { at: at(dir), name: name.into(), who: who.clone() };
    let found = peer.ask_showing(&lookup("file", credential.root), &[]).unwrap().unwrap();
    let (file, tag) = (found.message.handle, found.tags[0]);
    let none = HandleTag::default();
    let link = |handle, dir| LinkRequest { handle, kind: FileKind::File, to: at(dir), to_name: "link".into(), who: who.clone() };
    let rename = |from, to| RenameRequest {
        from: at(from),
        from_name: "file".into(),
        to: at(to),
        to_name: "moved".into(),
        no_replace: false,
        exchange: false,
        who: who.clone(),
    };
    // The tag of another key is worth nothing.
    let mut owner = Peer::join_as(&address, &other, other.id.client(3 << 20)).unwrap();
    let foreign = owner.ask_showing(&lookup("file", outside), &[]).unwrap().unwrap().tags[0];
    for tags in [[none, none], [none, tag], [none, foreign], [foreign, foreign]] {
        assert_eq!(peer.ask_showing(&link(secret, credential.root), &tags).unwrap().map(drop), Err(Status::Stale), "pulled in");
        assert_eq!(peer.ask_showing(&link(file, outside), &[tags[1], tag]).unwrap().map(drop), Err(Status::Stale), "pushed out");
        assert_eq!(peer.ask_showing(&rename(outside, credential.root), &tags).unwrap().map(drop), Err(Status::Stale), "pulled in");
        assert_eq!(peer.ask_showing(&rename(credential.root, outside), &tags).unwrap().map(drop), Err(Status::Stale), "pushed out");
        let many = GetAttrManyRequest { handles: vec![file, secret] };
        assert_eq!(peer.ask_showing(&many, &[tag, tags[1]]).unwrap().map(drop), Err(Status::Stale));
    }
    assert!(peer.ask_showing(&link(file, credential.root), &[none, tag]).unwrap().is_ok(), "within");
    // Nobody is told what is above.
    let list = ReadDirRequest { at: at(credential.root), cookie: 0, bytes_max: 4096, with_state: false, who: who.clone() };
    let listed = peer.ask_showing(&list, &[]).unwrap().unwrap();
    assert_eq!((listed.message.parent, listed.message.entries.len(), listed.tags.len()), (Handle(0), 3, 3));
    // Another generation of the key has been told nothing.
    ok(weft().args(["key", "rotate", "guest", "--state"]).arg(fs.state()).arg("--output").arg(key_file(&fs, "newer")));
    let newer = read_credential(&key_file(&fs, "newer"));
    assert_eq!((newer.id, newer.root), (credential.id, credential.root));
    wait_until("the new key", PATIENCE, || Peer::join_as(&address, &newer, newer.id.client(3 << 20)).is_ok());
    let mut peer = Peer::join_as(&address, &newer, newer.id.client(4 << 20)).unwrap();
    assert_eq!(peer.ask_showing(&GetAttrRequest { handle: file }, &[tag]).unwrap().map(drop), Err(Status::Stale));
}

#[test]
fn promise_a_subtree_is_all_that_its_key_reaches() {
    let fs = with_two_directories();
    let with_key = |args: &[&str]| {
        let mut command = weft();
        command.args(["--timeout", "5", "--key-file"]).arg(key_file(&fs, "guest")).args(args);
        command
    };
    add_key(&fs, "guest", &["--subtree", "/inside"]);
    assert_eq!(ok(&mut with_key(&["ls", &fs.at("/")])), "dir\nfile\n");
    assert_eq!(ok(&mut with_key(&["cat", &fs.at("/../../file")])), "content");
    ok(&mut with_key(&["mv", &fs.at("/file"), &fs.at("/dir/moved")]));
    ok(&mut with_key(&["cp", "-r", &fs.at("/"), &fs.path("copied").display().to_string()]));
    assert_eq!(fs::read_to_string(fs.path("copied/dir/moved")).unwrap(), "content");
    for path in ["/outside/file", "/../outside/file", "/inside/file"] {
        assert!(fails(&mut with_key(&["cat", &fs.at(path)])).contains("no such file"), "{path}");
    }
    // A part of the names is not wrong for being one.
    let said = fails(&mut with_key(&["fsck", &fs.state().display().to_string()]));
    assert!(said.contains("for a directory only") && !said.contains("leads to nothing"), "{said}");
    // No directory, no key.
    let add = |path: &str| fails(weft().args(["key", "add", "bad", "--subtree", path, "--state"]).arg(fs.state()).current_dir(fs.path("")));
    assert!(add("/outside/file").contains("not a directory") && add("/nowhere").contains("no such file"));
    assert!(ok(weft().args(["key", "list", "--state"]).arg(fs.state())).contains("subtree="));

    if !available("promise_a_subtree_is_all_that_its_key_reaches", &[Need::Fuse]) {
        return;
    }
    let mnt = fs.path("guest");
    fs::create_dir(&mnt).unwrap();
    ok(with_key(&["mount"]).arg(fs.state()).arg(&mnt));
    assert_eq!(fs::metadata(&mnt).unwrap().ino(), handle(&fs, "/inside").0);
    let names = |dir: &PathBuf| {
        let mut names: Vec<_> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    };
    assert_eq!(names(&mnt), ["dir"]);
    fs::write(mnt.join("dir/new"), "more").unwrap();
    fs::hard_link(mnt.join("dir/new"), mnt.join("link")).unwrap();
    fs::rename(mnt.join("dir/new"), mnt.join("renamed")).unwrap();
    fs::create_dir(mnt.join("made")).unwrap();
    std::os::unix::fs::symlink("/outside/file", mnt.join("symlink")).unwrap();
    assert!(fs::read(mnt.join("symlink")).is_err(), "an absolute symlink begins at the root of the machine");
    // Others rename its directory, and move one out of it.
    ok(weft().args(["mv", &fs.at("/inside"), &fs.at("/outside/inside")]));
    fs::write(mnt.join("made/later"), "later").unwrap();
    assert_eq!(ok(weft().args(["cat", &fs.at("/outside/inside/made/later")])), "later");
    // A restart of the servers: what was told stays told.
    for server in ["meta0", "data0"] {
        fs.kill(server);
    }
    fs.start(&[]);
    assert_eq!(fs::read_to_string(mnt.join("renamed")).unwrap(), "more");
    fs::remove_file(mnt.join("renamed")).unwrap();
    assert_eq!(names(&mnt), ["dir", "link", "made", "symlink"]);
    assert_eq!(names(&mnt.join("dir")), ["moved"]);
}

/// The number of an answered request, used for another operation: its answer is read as one of the
/// wrong kind, which must neither end the server nor give a tag.
#[test]
fn an_answer_is_not_taken_for_that_of_another_operation() {
    let fs = with_two_directories();
    let inside = handle(&fs, "/inside");
    let credential = add_key(&fs, "guest", &["--subtree", "/inside"]);
    let mut peer = Peer::join_as(&addresses(&fs)[0], &credential, credential.id.client(9 << 20)).unwrap();
    let requests = samples::requests(&Subject { dir: inside, file: inside, ..Subject::fixed() });
    let second = requests.iter().find(|request| request.op() == Op::Mkdir).expect("a sample of each operation");
    let (name, value) = (b"user.x"[..].into(), b"value"[..].into());
    let first = SetXattrRequest { handle: inside, name, value, create_only: false, replace_only: false, who: Credentials::ROOT };
    let bytes = peer.request(Op::SetXattr, &first.to_bytes(), &[]);
    peer.send(&bytes).unwrap();
    assert_eq!(peer.receive().unwrap().status(), Ok(()), "the root needs no tag");
    let number = Header::decode(bytes.first_chunk().unwrap()).unwrap().request;
    let bytes = peer.request(second.op(), &second.encode(), &[]);
    let header = Header { request: number, ..Header::decode(bytes.first_chunk().unwrap()).unwrap() };
    peer.send(&[&header.encode()[..], &second.encode()].concat()).unwrap();
    let answer = peer.receive().unwrap();
    assert_eq!((answer.status(), answer.body.len()), (Ok(()), 0), "the first answer, without tags");
    peer.ask(&GetAttrRequest { handle: inside }, &[]).unwrap().expect("the server lives");
}
