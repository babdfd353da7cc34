//! How large the state of an operation is. A caller moves it once or twice before it runs, so what
//! is rarely needed is boxed.

use weft_base::{Credentials, FileKind, Handle, ROOT_HANDLE};
use weft_rt::Bulk;
use weft_wire::Rights;

use super::world::World;
use crate::{CreateOptions, OpenWith, RenameFlags, SetAttr, XattrFlags};

/// Most bytes of the state of one operation.
const BYTES_MAX: usize = 4 << 10;

#[test]
fn the_state_of_an_operation_is_small() {
    let world = World::new(1, 1, 1 << 20);
    // On a runtime that programs use: that of the tests has a state of its own.
    let client = world.client_without_fates(1);
    let (who, options) = (Credentials::ROOT, CreateOptions::default());
    let (_, file, _) = world.run(client.create(&who, ROOT_HANDLE, b"f", &options)).expect("a file");
    let (handle, changes) = (Handle(7), SetAttr::default());
    let sizes = [
        ("lookup", size_of_val(&client.lookup(&who, handle, b"x"))),
        ("lookup_soon", size_of_val(&client.lookup_soon(&who, handle, b"x"))),
        ("getattr", size_of_val(&client.getattr(handle))),
        ("setattr", size_of_val(&client.setattr(&who, handle, &changes))),
        ("create", size_of_val(&client.create(&who, handle, b"x", &options))),
        ("mkdir", size_of_val(&client.mkdir(&who, handle, b"x", 0))),
        ("mknod", size_of_val(&client.mknod(&who, handle, b"x", FileKind::Fifo, 0, 0))),
        ("symlink", size_of_val(&client.symlink(&who, handle, b"x", b"y"))),
        ("link", size_of_val(&client.link(&who, handle, handle, b"x"))),
        ("unlink", size_of_val(&client.unlink(&who, handle, b"x"))),
        ("rmdir", size_of_val(&client.rmdir(&who, handle, b"x"))),
        ("rename", size_of_val(&client.rename(&who, handle, b"x", handle, b"y", RenameFlags::default()))),
        ("open", size_of_val(&client.open(&who, handle, Rights::READ, false))),
        ("open_with", size_of_val(&client.open_with(&who, handle, OpenWith::default()))),
        ("close", size_of_val(&client.close(file.clone()))),
        ("flush", size_of_val(&client.flush(&file))),
        ("fsync", size_of_val(&client.fsync(&file, false))),
        ("read", size_of_val(&client.read(&file, 0, 1))),
        ("write", size_of_val(&client.write(&file, 0, Bulk::None))),
        ("write_synced", size_of_val(&client.write_synced(&file, 0, Bulk::None, false))),
        ("read_many", size_of_val(&client.read_many(&who, &[]))),
        ("read_paths", size_of_val(&client.read_paths(&who, &[]))),
        ("readdir", size_of_val(&client.readdir(&who, handle, 0, 1, true))),
        ("readdir_soon", size_of_val(&client.readdir_soon(&who, handle, 0, 1))),
        ("statfs", size_of_val(&client.statfs())),
        ("readlink", size_of_val(&client.readlink(handle))),
        ("get_xattr", size_of_val(&client.get_xattr(&who, handle, b"x"))),
        ("set_xattr", size_of_val(&client.set_xattr(&who, handle, b"x", b"y", XattrFlags::default()))),
    ];
    println!("{sizes:?}");
    let large: Vec<_> = sizes.into_iter().filter(|(_, bytes)| *bytes > BYTES_MAX).collect();
    assert!(large.is_empty(), "bytes of operations above {BYTES_MAX}: {large:?}");
}
