//! Directory hints and files without a metafile (Kuhn 2007): inherited, refused when they have no
//! meaning, the same after a restart.

mod common;

use bytes::Bytes;
use common::*;
use weft_base::{Credentials, FileKind, Handle, ROOT_HANDLE, Result, Status, WallTime};
use weft_namespace::*;
use weft_wire::Rights;
use weft_wire::ops::*;

fn set_as(m: &mut Machine, who: &Credentials, handle: Handle, attribute: &str, value: &str) -> Result<()> {
    let request = SetXattrRequest {
        handle,
        name: name(attribute),
        value: Bytes::copy_from_slice(value.as_bytes()),
        create_only: false,
        replace_only: false,
        who: who.clone(),
    };
    m.change(|state, cx, record| state.prepare_set_xattr(cx, &request, record))
}

fn set(m: &mut Machine, handle: Handle, attribute: &str, value: &str) -> Result<()> {
    set_as(m, &ROOT, handle, attribute, value)
}

fn get(m: &Machine, handle: Handle, attribute: &str) -> Result<String> {
    let reply = m.state.get_xattr(handle, &name(attribute), &ROOT)?;
    Ok(String::from_utf8(reply.value.to_vec()).expect("text"))
}

fn names(m: &Machine, handle: Handle) -> Vec<Bytes> {
    m.state.list_xattr(handle, &ROOT).expect("a directory").names
}

/// The state that a restart would find.
fn restarted(m: &Machine) -> State {
    let mut state = State::new(settings());
    for bytes in &m.log {
        state.apply(&mut Record::decode(bytes.clone().into()).expect("own bytes"));
    }
    state.place(Placement { meta: vec![weft_base::ServerId(0)], generation: 1, data_servers: 2 });
    state
}

fn layout(m: &Machine, handle: Handle) -> (u32, u16) {
    let layout = m.look(|state, cx| state.getattr(cx, handle)).expect("it is there").attr.layout;
    (layout.stripe_bytes, layout.width)
}

fn set_attributes(m: &mut Machine, handle: Handle, change: impl FnOnce(&mut SetAttrRequest)) -> Result<()> {
    let mut request = SetAttrRequest::of(handle, ROOT);
    change(&mut request);
    m.change(|state, cx, record| state.prepare_setattr(cx, &request, record)).map(drop)
}

#[test]
fn files_take_their_layout_from_the_directory() {
    let mut m = Machine::new();
    let dir = m.mkdir(ROOT_HANDLE, "d").unwrap();
    set(&mut m, dir, "user.pvfs2.num_dfiles", "1").unwrap();
    set(&mut m, dir, "user.weft.stripe_size", "65536").unwrap();
    assert_eq!(layout(&m, dir), (65536, 1));
    let file = m.create(dir, "f").unwrap();
    let below = m.mkdir(dir, "below").unwrap();
    let deep = m.create(below, "f").unwrap();
    assert_eq!((layout(&m, file), layout(&m, deep)), ((65536, 1), (65536, 1)));
    assert_eq!(get(&m, below, "user.pvfs2.stripe_size"), Ok("65536".into()), "inherited, by either name");
    assert_eq!(names(&m, below), ["user.weft.num_dfiles", "user.weft.stripe_size"]);

    let request = RemoveXattrRequest { handle: below, name: name("user.pvfs2.stripe_size"), who: ROOT };
    m.change(|state, cx, record| state.prepare_remove_xattr(cx, &request, record)).unwrap();
    let later = m.create(below, "g").unwrap();
    assert_eq!(layout(&m, later), (LAYOUT.stripe_bytes, 1), "what it would be without the hint");
    assert_eq!(layout(&m, deep), (65536, 1), "a file that is there stays as it is");

    set(&mut m, dir, "user.weft.num_dfiles", "4096").unwrap();
    let wide = m.create(dir, "wide").unwrap();
    assert_eq!(layout(&m, wide).1, 2, "as many as there are data servers");
}

#[test]
fn a_mkdir_that_names_a_layout_inherits_no_other() {
    let mut m = Machine::new();
    set(&mut m, ROOT_HANDLE, "user.weft.stripe_size", "65536").unwrap();
    set(&mut m, ROOT_HANDLE, "user.weft.num_dfiles", "1").unwrap();
    let request = MkdirRequest { stripe_bytes: 8192, ..MkdirRequest::of(at(ROOT_HANDLE), name("d"), 0o755, ROOT) };
    let dir = m.parts(&ROOT, |state| state.plan_mkdir(&request)).unwrap()[1];
    assert_eq!((layout(&m, dir), names(&m, dir)), ((8192, 1), vec![name("user.weft.num_dfiles")]));
}

#[test]
fn what_has_no_meaning_is_refused() {
    let mut m = Machine::new();
    let dir = m.mkdir(ROOT_HANDLE, "d").unwrap();
    let file = m.create(dir, "f").unwrap();
    for (hint, value) in [
        ("user.weft.stripe_size", "nonsense"),
        ("user.weft.stripe_size", "5000"),
        ("user.pvfs2.num_dfiles", "0"),
        ("user.pvfs2.num_dfiles", "many"),
        ("user.pvfs2.no_metafile", "maybe"),
        ("user.pvfs2.dist_name", "twodee"),
        ("user.pvfs2.dist_params", "65536"),
        ("user.pvfs2.meta_hint", "1"),
        ("user.weft.", "1"),
        ("user.weft.unheard_of", "1"),
    ] {
        assert_eq!(set(&mut m, dir, hint, value), Err(Status::Invalid), "{hint}={value}");
    }
    assert_eq!(set(&mut m, file, "user.weft.num_dfiles", "1"), Err(Status::Invalid), "a hint stands at a directory");
    set(&mut m, dir, "user.weft.stripe_size", "65536").unwrap();
    assert_eq!(set(&mut m, dir, "user.weft.dist_params", "strip_size:4096"), Err(Status::Invalid));
    assert_eq!(names(&m, dir), ["user.weft.stripe_size"], "nothing of what was refused is there");
    for own in ["user.weft", "user.pvfs2", "user.weftling", "user.x"] {
        assert_eq!(set(&mut m, file, own, "1"), Ok(()), "{own}");
    }
}

#[test]
fn only_the_owner_of_a_directory_gives_it_hints() {
    let mut m = Machine::new();
    let (owner, other) = (user(10, 10), user(11, 11));
    let dir = m.mkdir_as(&owner, ROOT_HANDLE, "d", 0o777).unwrap();
    // Files of the owner would be everybody's.
    assert_eq!(set_as(&mut m, &other, dir, "user.weft.no_metafile", "1"), Err(Status::NotPermitted));
    assert_eq!(set_as(&mut m, &other, dir, "user.x", "1"), Ok(()));
    assert_eq!(set_as(&mut m, &owner, dir, "user.weft.no_metafile", "1"), Ok(()));
    let request = RemoveXattrRequest { handle: dir, name: name("user.pvfs2.no_metafile"), who: other };
    assert_eq!(m.change(|state, cx, record| state.prepare_remove_xattr(cx, &request, record)), Err(Status::NotPermitted));
}

#[test]
fn a_file_without_a_metafile_is_roots_and_everybodys_and_has_no_times() {
    let mut m = Machine::new();
    let who = user(10, 10);
    let dir = m.mkdir_as(&who, ROOT_HANDLE, "d", 0o777).unwrap();
    let before = m.create_as(&who, dir, "before", 0o600).unwrap();
    set_as(&mut m, &who, dir, "user.pvfs2.no_metafile", "1").unwrap();
    let below = m.mkdir_as(&who, dir, "below", 0o755).unwrap();
    for place in [dir, below] {
        let file = m.create_as(&who, place, "f", 0o600).unwrap();
        let check = |state: &State, handle: Handle, when: &str| {
            let inode = state.peek(handle).expect("it is there");
            assert_eq!((inode.uid, inode.gid, inode.mode, inode.nlink), (0, 0, 0o666, 1), "{when}");
            assert_eq!((inode.atime, inode.mtime, inode.ctime), (WallTime(0), WallTime(0), WallTime(0)), "{when}");
            assert_eq!(inode.layout.width, 1, "{when}");
            assert!(inode.attr(handle).has_no_metafile(), "{when}");
        };
        check(&m.state, file, "made");
        m.open(file, Rights::READ.with(Rights::WRITE), 1).unwrap();
        let mtime = weft_base::DataTime { epoch: 0, at: WallTime(7777) };
        let written = Some(Written { end_bytes: 100, mtime, truncate_epoch: 0 });
        let close = CloseRequest { handle: file, open_sequence: 1, keeps: Rights::default(), written };
        m.change(|state, cx, record| state.prepare_close(cx, &close, None, record)).unwrap();
        check(&m.state, file, "written");
        assert_eq!(m.state.peek(file).unwrap().size, 100);
        m.rename(place, "f", ROOT_HANDLE, "moved").unwrap();
        check(&m.state, file, "moved");
        check(&restarted(&m), file, "after a restart");

        assert_eq!(set_attributes(&mut m, file, |request| request.mode = Some(0o600)), Err(Status::NotSupported));
        assert_eq!(set_attributes(&mut m, file, |request| request.uid = Some(10)), Err(Status::NotSupported));
        let explicit = Some(SetTime { at: Some(WallTime(5)) });
        assert_eq!(set_attributes(&mut m, file, |request| request.mtime = explicit), Err(Status::NotSupported));
        let now = Some(SetTime { at: None });
        assert_eq!(set_attributes(&mut m, file, |request| request.mtime = now), Ok(()), "as touch does");
        assert_eq!(set_attributes(&mut m, file, |request| request.mode = Some(0o666)), Ok(()), "what it is already");
        assert_eq!(set(&mut m, file, "user.x", "1"), Err(Status::NotSupported));
        assert_eq!(m.link(file, ROOT_HANDLE, "second"), Err(Status::NotPermitted));
        check(&m.state, file, "after refusals");
        m.unlink(ROOT_HANDLE, "moved").unwrap();
    }
    assert_eq!(m.state.peek(before).unwrap().uid, 10, "a file that is there stays as it is");
    assert_eq!(set_attributes(&mut m, before, |request| request.mode = Some(0o640)), Ok(()));
}

#[test]
fn a_value_of_0_is_off_and_not_inherited() {
    let mut m = Machine::new();
    let dir = m.mkdir(ROOT_HANDLE, "d").unwrap();
    set(&mut m, dir, "user.pvfs2.no_metafile", "1").unwrap();
    let on = m.mkdir(dir, "on").unwrap();
    set(&mut m, dir, "user.pvfs2.no_metafile", "0").unwrap();
    let off = m.mkdir(dir, "off").unwrap();
    assert_eq!((names(&m, on).len(), names(&m, off).len()), (1, 0));
    for (place, kept) in [(dir, true), (off, true), (on, false)] {
        let file = m.create_as(&user(10, 10), place, "f", 0o600);
        let file = file.or_else(|_| m.create(place, "f")).unwrap();
        assert_eq!(!m.state.peek(file).unwrap().has_no_metafile(), kept);
    }
}

#[test]
fn only_files_are_without_a_metafile() {
    let mut m = Machine::new();
    let dir = m.mkdir(ROOT_HANDLE, "d").unwrap();
    set(&mut m, dir, "user.weft.no_metafile", "1").unwrap();
    for kind in [FileKind::Fifo, FileKind::Symlink] {
        let request = CreateRequest { kind, target: name("to"), ..create(dir, &format!("{kind:?}")) };
        let handle = m.change(|state, cx, record| state.prepare_create(cx, &request, record)).unwrap().handle;
        assert!(m.state.peek(handle).unwrap().ctime > WallTime(0), "{kind:?}");
    }
}

#[test]
fn a_file_keeps_the_strips_that_it_was_made_with() {
    let mut m = Machine::new();
    let dir = m.mkdir(ROOT_HANDLE, "d").unwrap();
    assert_eq!(set(&mut m, dir, "user.pvfs2.dist_params", "strips:0:64K;1:64K;2:64K"), Err(Status::Invalid), "there are two data servers");
    set(&mut m, dir, "user.pvfs2.dist_name", "varstrip_dist").unwrap();
    set(&mut m, dir, "user.pvfs2.dist_params", "strips:0:64K;1:128K;0:4K").unwrap();
    let below = m.mkdir(dir, "below").unwrap();
    let strips = |m: &Machine, file: Handle| m.state.strips(file).map(|reply| reply.strips);
    let wanted = Ok(bytes::Bytes::from_static(b"strips:0:65536;1:131072;0:4096"));
    for place in [dir, below] {
        let file = m.create(place, "f").unwrap();
        let layout = m.state.peek(file).unwrap().layout;
        assert_eq!((layout.is_varstrip(), layout.generation_id(), layout.width, layout.first), (true, 1, 2, 0));
        assert_eq!(strips(&m, file), wanted);
        m.rename(place, "f", ROOT_HANDLE, "moved").unwrap();
        let again = restarted(&m);
        assert_eq!(again.strips(file).map(|reply| reply.strips), wanted, "after a rename and a restart");
        assert!(again.distribution(file, &layout).is_ok());
        assert_eq!(again.datafiles(file, &Inode { flags: InodeFlags::HAS_DATA, size: 1, ..again.peek(file).unwrap().clone() }), 2);
        m.unlink(ROOT_HANDLE, "moved").unwrap();
        assert!(m.state.strips(file).is_err());
    }
    // What the request says counts more; what is no file has none.
    let plain = CreateRequest { stripe_width: 1, ..create(dir, "plain") };
    let plain = m.change(|state, cx, record| state.prepare_create(cx, &plain, record)).unwrap().handle;
    assert_eq!(strips(&m, plain), Err(Status::Invalid));
    let pipe = CreateRequest { kind: FileKind::Fifo, ..create(dir, "pipe") };
    let pipe = m.change(|state, cx, record| state.prepare_create(cx, &pipe, record)).unwrap().handle;
    assert!(!m.state.peek(pipe).unwrap().layout.is_varstrip());
    let own = CreateRequest { strips: Some(name("strips:0:8K")), ..create(ROOT_HANDLE, "own") };
    let own = m.change(|state, cx, record| state.prepare_create(cx, &own, record)).unwrap().handle;
    assert_eq!(strips(&m, own), Ok(name("strips:0:8192")));
    for bad in ["strips:0:1", "strips:0:8K;1:8K;2:8K", "0:8K", ""] {
        let request = CreateRequest { strips: Some(name(bad)), ..create(ROOT_HANDLE, "bad") };
        assert_eq!(m.change(|state, cx, record| state.prepare_create(cx, &request, record)).map(|_| ()), Err(Status::Invalid), "{bad}");
    }
}
