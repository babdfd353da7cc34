//! Files that are made without a name: nobody finds them, they get one name or go with their open.

mod common;

use common::*;
use weft_base::{MODE_UNNAMED, ROOT_HANDLE, Result, Status};
use weft_wire::Rights;
use weft_wire::ops::*;

const BOTH: Rights = Rights(Rights::READ.0 | Rights::WRITE.0);

fn unnamed(open: Rights) -> CreateRequest {
    CreateRequest { unnamed: Some(true), open, ..create(ROOT_HANDLE, "anything") }
}

fn make(m: &mut Machine, request: &CreateRequest) -> Result<CreateReply> {
    m.change(|state, cx, record| state.prepare_create(cx, request, record))
}

fn close(m: &mut Machine, handle: weft_base::Handle) {
    let request = CloseRequest { handle, open_sequence: 1, keeps: Rights::default(), written: None };
    m.change(|state, cx, record| state.prepare_close(cx, &request, None, record).map(drop)).unwrap();
}

#[test]
fn it_has_no_name_changes_no_directory_and_goes_with_its_open() {
    let mut m = Machine::new();
    let before = m.attr(ROOT_HANDLE);
    let reply = make(&mut m, &unnamed(BOTH)).unwrap();
    assert!(reply.created && reply.capability.is_some() && reply.dir == DirChange::NONE);
    assert_eq!(m.attr(ROOT_HANDLE), before);
    assert_eq!(m.lookup(ROOT_HANDLE, "anything"), Err(Status::NotFound));
    let attr = m.attr(reply.handle);
    assert_eq!((attr.nlink, attr.permissions(), attr.mode & MODE_UNNAMED), (0, 0o644, MODE_UNNAMED));
    assert_eq!(m.state.reapable(reply.handle, 10), []);
    close(&mut m, reply.handle);
    assert_eq!(m.state.reapable(reply.handle, 10), [reply.handle]);
    assert_eq!(m.link(reply.handle, ROOT_HANDLE, "late"), Err(Status::NotFound), "it is going");
}

#[test]
fn it_gets_its_first_name_while_it_is_open() {
    let mut m = Machine::new();
    let handle = make(&mut m, &unnamed(Rights::WRITE)).unwrap().handle;
    m.setattr(&SetAttrRequest { mode: Some(0o640), ..setattr(handle, &ROOT) }).expect("temporary files are made with few rights");
    assert_eq!(m.attr(handle).mode, 0o640 | MODE_UNNAMED);
    m.link(handle, ROOT_HANDLE, "published").unwrap();
    let attr = m.attr(handle);
    assert_eq!((attr.nlink, attr.mode, m.lookup(ROOT_HANDLE, "published")), (1, 0o640, Ok(handle)));
    m.link(handle, ROOT_HANDLE, "second").unwrap();
    close(&mut m, handle);
    assert_eq!(m.state.reapable(handle, 10), []);
    let again = replay(m.log.iter().map(|record| record.clone().into()));
    assert_eq!(dump(&again), dump(&m.state));
    // What has lost its names gets none again, open or not.
    m.open(handle, Rights::READ, 2).unwrap();
    m.unlink(ROOT_HANDLE, "published").unwrap();
    m.unlink(ROOT_HANDLE, "second").unwrap();
    assert_eq!(m.link(handle, ROOT_HANDLE, "back"), Err(Status::NotFound));
}

#[test]
fn what_makes_no_sense_is_refused() {
    let mut m = Machine::new();
    assert_eq!(make(&mut m, &unnamed(Rights::READ)).map(drop), Err(Status::Invalid), "nobody could fill it");
    assert_eq!(make(&mut m, &unnamed(Rights::default())).map(drop), Err(Status::Invalid));
    let pipe = CreateRequest { kind: weft_base::FileKind::Fifo, ..unnamed(BOTH) };
    assert_eq!(make(&mut m, &pipe).map(drop), Err(Status::Invalid));
    let foreign = m.mkdir(ROOT_HANDLE, "roots").unwrap();
    let request = CreateRequest { at: at(foreign), who: user(10, 10), ..unnamed(BOTH) };
    assert_eq!(make(&mut m, &request).map(drop), Err(Status::AccessDenied));
}
