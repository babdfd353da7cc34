//! What one user may not do to the others: fill the memory of a server, or use what another user of
//! the same mount has open.

mod common;

use bytes::Bytes;
use common::*;
use weft_base::{Credentials, Handle, Result, Status};
use weft_wire::Rights;
use weft_wire::ops::*;

fn set(m: &mut Machine, handle: Handle, attribute: &str, bytes: usize) -> Result<()> {
    let value = Bytes::from(vec![7; bytes]);
    let request = SetXattrRequest { handle, name: name(attribute), value, create_only: false, replace_only: false, who: ROOT };
    m.change(|state, cx, record| state.prepare_set_xattr(cx, &request, record))
}

fn remove(m: &mut Machine, handle: Handle, attribute: &str) -> Result<()> {
    let request = RemoveXattrRequest { handle, name: name(attribute), who: ROOT };
    m.change(|state, cx, record| state.prepare_remove_xattr(cx, &request, record))
}

#[test]
fn attributes_of_one_object_are_bounded_in_bytes_and_so_in_number() {
    let mut m = Machine::new();
    let file = m.create(TOP, "f").unwrap();
    let kept = (0..).take_while(|number| set(&mut m, file, &format!("user.{number}"), 0) == Ok(())).count();
    assert!((500..1100).contains(&kept), "{kept} attributes without a value");
    assert_eq!(set(&mut m, file, "user.0", 1000), Err(Status::NoSpace), "a larger value is no way around");
    assert_eq!(set(&mut m, file, "user.0", 0), Ok(()), "what makes nothing larger is never refused");
    remove(&mut m, file, "user.1").unwrap();
    assert_eq!(set(&mut m, file, "user.x", 0), Ok(()));
}

#[test]
fn attributes_of_all_objects_are_bounded_counted_and_given_back() {
    let mut m = Machine::new();
    let files: Vec<Handle> = (0..20).map(|number| m.create(TOP, &format!("f{number}")).unwrap()).collect();
    let refused = files.iter().position(|file| set(&mut m, *file, "user.big", 64 << 10) == Err(Status::NoSpace));
    assert_eq!(refused, Some(15), "the server has room for 1 MiB");
    let full = m.state.xattr_bytes();
    assert!((15 * (64 << 10)..=1 << 20).contains(&full), "{full}");
    assert_eq!(replay(dump(&m.state)).xattr_bytes(), full, "a restart counts the same");
    remove(&mut m, files[0], "user.big").unwrap();
    assert_eq!(set(&mut m, files[1], "user.big", 100), Ok(()), "a smaller value");
    assert_eq!(set(&mut m, files[16], "user.big", 64 << 10), Ok(()), "what was given back can be used");
    for number in 0..20 {
        m.unlink(TOP, &format!("f{number}")).unwrap();
    }
    assert_eq!(m.state.xattr_bytes(), 0, "removed files give all of it back");
    assert_eq!(replay(m.log.iter().cloned().map(Bytes::from)).xattr_bytes(), 0, "in a replay, too");
}

#[test]
fn an_open_is_checked_also_if_another_user_of_the_client_has_the_file_open() {
    let mut m = Machine::new();
    let (owner, other) = (user(10, 10), user(11, 11));
    let file = m.create_as(&owner, TOP, "f", 0o600).unwrap();
    let mut open = |who: &Credentials, open_sequence| {
        let request = OpenRequest::of(file, Rights::READ, open_sequence, who.clone());
        m.change(|state, cx, record| state.prepare_open(cx, &request, record))
    };
    assert!(open(&owner, 1).is_ok());
    assert_eq!(open(&other, 2).unwrap_err(), Status::AccessDenied);
    let renewal = Credentials { checked_by_kernel: true, ..ROOT };
    assert!(open(&renewal, 3).is_ok(), "a new capability for what is open");
    let by_name = CreateRequest { who: other, exclusive: false, open: Rights::READ, ..create(TOP, "f") };
    let opened = m.change(|state, cx, record| state.prepare_create(cx, &by_name, record));
    assert_eq!(opened.unwrap_err(), Status::AccessDenied, "by name, too");
}
