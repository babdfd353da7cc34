//! What users take, and may take.

use weft_base::{Credentials, ServerId};
use weft_wire::Wire;
use weft_wire::ops::*;

use super::with_number;

pub(super) fn chosen() -> Vec<Request> {
    let who = Credentials { uid: 1000, gid: 100, groups: vec![100], checked_by_kernel: false };
    vec![
        Request::Usage(UsageRequest { from: 0, to: 5000, who, of_project: Some(true) }),
        Request::SetQuota(SetQuotaRequest { uid: 4711, inodes_max: None, bytes_max: Some(Some(1 << 30)), of_project: Some(true) }),
        Request::Borrow(BorrowRequest { server: ServerId(1), uid: 4711, inodes: 0, bytes: Some(1 << 20), of_project: Some(true) }),
        Request::Recall(RecallRequest { uid: 4711, is_limited: true, of_bytes: Some(true), of_project: Some(true) }),
    ]
}

pub(super) fn replies() -> Vec<(String, Vec<u8>)> {
    let user = UserUsage { uid: 7, inodes: 2, bytes: 8192, inodes_lent: Some(9), inodes_max: Some(10) };
    let bytes = UserBytes { uid: 7, reserved: 4096, lent: Some(1 << 20), max: Some(1 << 30) };
    vec![
        with_number(Op::Usage, &UsageReply { users: vec![user], next: Some(9), bytes: Some(vec![bytes]) }.to_bytes()),
        with_number(Op::SetQuota, &SetQuotaReply { untold: vec![ServerId(2)] }.to_bytes()),
        with_number(Op::Borrow, &BorrowReply { inodes_lent: Some(500) }.to_bytes()),
        with_number(Op::Recall, &RecallReply { inodes: 3, is_leaving: true }.to_bytes()),
    ]
}
