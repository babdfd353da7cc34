//! A gateway that reads a dataset changes nothing, whatever it is asked for.

use bytes::Bytes;
use weft_base::{FileKind, Payload, SECOND, Status};
use weft_client::{Fallocate, RenameFlags, SetAttr, XattrFlags};
use weft_posix::{OpenHow, Options, Posix, WriteHow};
use weft_rt::Bulk;
use weft_sim_tests::mount::{Above, caller, how};
use weft_wire::Rights;

use super::{ROOT, UPDATE, World};

const DATASET: Options = Options {
    ttl_ns: SECOND,
    keeps_leases: false,
    direct_from_bytes: 1 << 20,
    keeps_locks: false,
    appends_alone: false,
    hears_closes: false,
    absorbs: false,
    sets_atime: false,
    is_dataset: true,
};

/// Every call of the layer that changes something, without a message.
#[test]
fn a_dataset_refuses_every_change() {
    let world = World::new(6, None);
    world.alone(0, |mount| async move {
        let who = caller(1, 0);
        let file = mount.create(&who, ROOT, "file", 0o644).await.expect("a new file");
        mount.write(&who, file, 0, b"text", false).await.expect("it is written");
        mount.close(file).await.expect("it is written");
        mount.posix.mkdir(&who.who, ROOT, b"dir", 0o755).await.expect("a new directory");
        mount.posix.fsync_dir(ROOT).await.expect("it is told");
    });
    world.sim.run_for(SECOND);
    let (node, client) = world.cluster.add_client("reader", 60 * SECOND);
    let reader = world.sim.spawn_on(node, |_| async move {
        let posix = Posix::new(client, Above::default(), DATASET);
        let caller = caller(2, 0);
        let who = &caller.who;
        let file = posix.lookup(&caller, ROOT, b"file").await.expect("it is there").node;
        let (root, handle) = (ROOT.handle(), file.handle());
        let opened = posix.open(&caller, file, how(Rights::READ)).await.expect("it is opened to be read").number;
        let data = || Bulk::Slices(vec![b"more"]);
        let (update, cut) = (how(UPDATE), OpenHow { truncate: true, ..how(Rights::READ) });
        let (mode, name) = (SetAttr { mode: Some(0o600), ..SetAttr::default() }, b"new".as_slice());
        let before = posix.stats().requests;
        let outcomes = [
            ("mknod", posix.mknod(who, ROOT, name, FileKind::Fifo, 0o644, 0).await.err()),
            ("mkdir", posix.mkdir(who, ROOT, name, 0o755).await.err()),
            ("symlink", posix.symlink(who, ROOT, name, b"file").await.err()),
            ("link", posix.link(who, file, ROOT, name).await.err()),
            ("unlink", posix.unlink(who, ROOT, b"file").await.err()),
            ("rmdir", posix.rmdir(who, ROOT, b"dir").await.err()),
            ("rename", posix.rename(who, (ROOT, b"file"), (ROOT, name), RenameFlags::default()).await.err()),
            ("setattr", posix.setattr(who, file, &mode).await.err()),
            ("set_xattr", posix.set_xattr(who, file, b"user.name", b"value", XattrFlags::default()).await.err()),
            ("set_xattr", posix.set_xattr(who, file, b"system.other", b"value", XattrFlags::default()).await.err()),
            ("remove_xattr", posix.remove_xattr(who, file, b"user.name").await.err()),
            ("open", posix.open(&caller, file, update).await.err()),
            ("open", posix.open(&caller, file, cut).await.err()),
            ("create", posix.create(&caller, ROOT, name, 0o644, update).await.err()),
            ("create_unnamed", posix.create_unnamed(&caller, ROOT, 0o644, update).await.err()),
            ("write", posix.write(who, opened, 0, data(), WriteHow::default()).await.err()),
            ("write of a file that nobody opened", posix.write(who, 0, 0, data(), WriteHow::default()).await.err()),
            ("write_list", posix.write_list(who, opened, &[(0, 4)], data()).await.err()),
            ("fallocate", posix.fallocate(who, opened, 0, 4096, Fallocate::Punch).await.err()),
            ("copy", posix.copy(who, (opened, 0), (opened, 4), 4).await.err()),
            ("truncate_open", posix.truncate_open(who, opened, 0).await.err()),
            ("open_path", posix.open_path(who, b"/file", update, None, true).await.err()),
            ("open_path", posix.open_path(who, b"/new", how(Rights::READ), Some(0o644), true).await.err()),
            ("open_name", posix.open_name(who, ROOT, name, how(Rights::READ), Some(0o644)).await.err()),
            ("open_node", posix.open_node(who, file, update).await.err()),
            ("put_path", posix.put_path(who, b"/new", 0o644, false, &Bytes::from_static(b"text")).await.err()),
            ("open_handle", posix.open_handle(who, handle, update).await.err()),
            ("create_new", posix.create_new(who, (root, name), (0o644, None), update).await.err()),
            ("setattr_handle", posix.setattr_handle(who, handle, &mode).await.err()),
            ("link_handle", posix.link_handle(who, handle, root, name).await.err()),
            ("rmdir_handle", posix.rmdir_handle(who, root, b"dir").await.err()),
            ("rename_handles", posix.rename_handles(who, (root, b"file"), (root, name)).await.err()),
        ];
        for (call, error) in outcomes {
            assert_eq!(error.map(|error| (error.status, error.status.errno())), Some((Status::DatasetReadsOnly, 30)), "{call}");
        }
        assert_eq!(posix.stats().requests, before, "nobody is asked");
        let read = posix.read(opened, 0, 100).await.expect("it is read");
        assert_eq!(Payload::concat(&read), b"text");
        posix.release(opened).await;
        posix.end(SECOND).await;
    });
    world.run(vec![reader]);
}
