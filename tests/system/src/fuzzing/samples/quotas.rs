//! What users take, and may take.

use weft_base::{Credentials, ServerId};
use weft_wire::Wire;
use weft_wire::ops::*;

use super::with_number;

pub(super) fn chosen() -> Vec<Request> {
    let who = Credentials { uid: 1000, gid: 100, groups: vec![100], checked_by_kernel: false };
    vec![
        Request::Usage(UsageRequest { from: 0, to: 5000, who }),
        Request::SetQuota(SetQuotaRequest { uid: 4711, inodes_max: Some(1000) }),
        Request::Borrow(BorrowRequest { server: ServerId(1), uid: 4711, inodes: 3 }),
        Request::Recall(RecallRequest { uid: 4711, is_limited: true }),
    ]
}

pub(super) fn replies() -> Vec<(String, Vec<u8>)> {
    let user = UserUsage { uid: 7, inodes: 2, bytes: 8192, inodes_lent: Some(9), inodes_max: Some(10) };
    vec![
        with_number(Op::Usage, &UsageReply { users: vec![user], next: Some(9) }.to_bytes()),
        with_number(Op::SetQuota, &SetQuotaReply { untold: vec![ServerId(2)] }.to_bytes()),
        with_number(Op::Borrow, &BorrowReply { inodes_lent: Some(500) }.to_bytes()),
        with_number(Op::Recall, &RecallReply { inodes: 3, is_leaving: true }.to_bytes()),
    ]
}
