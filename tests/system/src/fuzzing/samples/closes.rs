//! Closes with what their client has kept.

use bytes::Bytes;
use weft_base::{DataTime, Handle, WallTime};
use weft_wire::Rights;
use weft_wire::ops::*;

pub(super) fn many(handle: Handle, time: WallTime) -> Request {
    Request::CloseMany(CloseManyRequest {
        contents: Some(vec![DelayedContent { number: 0, content: Bytes::from_static(b"x") }]),
        read: Some(Bytes::from_static(&[1])),
        attributes: Some(vec![DelayedAttributes { number: 0, mode: Some(0o600), atime: None, mtime: Some(time), at: time }]),
        closes: vec![
            CloseRequest { handle, open_sequence: 6, keeps: Rights::default(), written: None },
            CloseRequest {
                handle,
                open_sequence: 7,
                keeps: Rights::READ,
                written: Some(Written { end_bytes: 9, mtime: DataTime { epoch: 2, at: time }, truncate_epoch: 1 }),
            },
        ],
    })
}
