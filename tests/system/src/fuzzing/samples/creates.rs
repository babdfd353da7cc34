//! Files that are made, by their server or by their client without asking.

use weft_wire::ops::{CreateManyReply, CreateManyRequest, HandleRange, NewAttributes, NewCapability, NewFile, NewFiles};

use super::*;

pub(super) fn create(about: &Subject, who: &Credentials, name: &Bytes) -> Request {
    let at = DirTarget { dir: about.dir, map_epoch: 1 };
    let (read, write) = (Rights::READ, Rights::WRITE);
    Request::Create(CreateRequest {
        at,
        name: name.clone(),
        kind: FileKind::Symlink,
        mode: 0o644,
        rdev: 0,
        target: Bytes::from_static(b"where/to"),
        exclusive: true,
        open: read.with(write),
        open_sequence: 5,
        stripe_bytes: 65536,
        stripe_width: 2,
        who: who.clone(),
        strips: Some(Bytes::from_static(b"strips:0:4096;1:8192")),
        unnamed: Some(true),
        content: Some(Bytes::from_static(b"content")),
        can_delay: Some(true),
        can_hold: Some(9),
        cuts: Some(true),
        atime: Some(WallTime(5)),
        mtime: Some(WallTime(6)),
    })
}

pub(super) fn unlink(about: &Subject, who: &Credentials, name: &Bytes) -> Request {
    let at = DirTarget { dir: about.dir, map_epoch: 1 };
    let plain = UnlinkRequest::of(at, name.clone(), who.clone());
    Request::Unlink(UnlinkRequest { can_delay: Some(true), can_hold: Some(9), ..plain })
}

pub(super) fn unlinked(handle: Handle, dir: DirChange) -> UnlinkReply {
    UnlinkReply { handle, dir, delegation: Some(delegation(handle)), tells_directories: Some(true) }
}

fn delegation(handle: Handle) -> Delegation {
    Delegation { handles: Some(HandleRange { first: handle, count: 4096 }), delay_bytes: 4096 }
}

pub(super) fn mkdir(about: &Subject, who: &Credentials, name: &Bytes) -> Request {
    let at = DirTarget { dir: about.dir, map_epoch: 1 };
    let plain = MkdirRequest::of(at, name.clone(), 0o750, who.clone());
    Request::Mkdir(MkdirRequest { stripe_bytes: 4096, stripe_width: 1, can_delay: Some(true), can_hold: Some(9), ..plain })
}

pub(super) fn directory(state: FileState, handle: Handle, dir: DirChange) -> MkdirReply {
    MkdirReply { state, dir, delegation: Some(delegation(handle)), tells_directories: Some(true) }
}

pub(super) fn many(about: &Subject, who: &Credentials, name: &Bytes) -> Request {
    let Subject { dir, file: handle, .. } = *about;
    let layout = Layout { stripe_bytes: 4096, width: 1, first: 0, generation: 1 };
    let (open, made_at, named_at) = (Rights::READ.with(Rights::WRITE), WallTime(7), WallTime(8));
    let file = NewFile { name: name.clone(), handle, mode: 0o644, open, open_sequence: 5, delays: true, made_at, named_at, layout };
    let files = vec![file.clone(), NewFile { delays: false, ..file }];
    let (mode, atime, mtime) = (Some(0o755), Some(WallTime(3)), Some(WallTime(4)));
    let set = NewAttributes { position: 1, dir, who: who.clone(), mode, atime, mtime, at: WallTime(9), version: 3 };
    Request::CreateMany(CreateManyRequest {
        groups: vec![NewFiles { dir, who: who.clone(), files }],
        returned: vec![dir],
        wants_handles: true,
        to_data: Some(Bytes::from_static(&[0])),
        directories: Some(Bytes::from_static(&[1])),
        removed: Some(Bytes::from_static(&[2])),
        attributes: Some(vec![set]),
    })
}

pub(super) fn reply(about: &Subject, handle: Handle) -> CreateManyReply {
    let handles = Some(HandleRange { first: handle, count: 4096 });
    let capabilities = Some(vec![NewCapability { number: 0, capability: about.capability(Rights::WRITE) }]);
    CreateManyReply {
        outcomes: vec![Ok(()), Err(Status::CapabilityRefused)],
        handles,
        is_leased: true,
        capabilities,
        attributes: Some(vec![Ok(())]),
    }
}
