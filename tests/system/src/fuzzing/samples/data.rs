//! Requests to data servers that reach far.

use weft_base::Handle;
use weft_wire::ops::*;
use weft_wire::{Capability, Ceiling, Rights};

use super::Subject;

impl Subject {
    /// A capability for the file.
    pub fn capability(&self, rights: Rights) -> Capability {
        Capability::sign(&self.key, self.file, self.client, rights, self.expires)
    }

    /// A ceiling for a capability for writing.
    pub fn ceiling(&self) -> Ceiling {
        Ceiling::sign(&self.key, &self.capability(Rights::WRITE.with(Rights::UNDER_CEILING)), 5 << 20, 1 << 20, 2)
    }
}

pub(super) fn chosen(about: &Subject) -> Vec<Request> {
    let handle = about.file;
    let (read, write, manage) = (Rights::READ, Rights::WRITE, Rights::MANAGE);
    let pieces = vec![Piece { offset: 0, bytes: 4096 }, Piece { offset: 1 << 20, bytes: 1000 }];
    vec![
        Request::Write(WriteRequest {
            handle,
            index: 1,
            capability: about.capability(write.with(Rights::UNDER_CEILING)),
            pieces: pieces.clone(),
            mtime_epoch: 2,
            sync: false,
            ceiling: Some(about.ceiling()),
        }),
        Request::Read(ReadRequest { handle, index: 1, capability: about.capability(read), pieces }),
        Request::ReadMany(ReadManyRequest {
            reads: vec![
                DatafileRead { capability: about.capability(read), index: 1, offset: 4096, bytes: 1000 },
                DatafileRead { capability: about.capability(write), index: 0, offset: u64::MAX, bytes: 2 },
            ],
        }),
        Request::ObjectStat(ObjectStatRequest { handle, index: 0, capability: about.capability(read) }),
        Request::ObjectTruncate(ObjectTruncateRequest {
            handle,
            index: 0,
            capability: about.capability(manage),
            size: 5000,
            truncate_epoch: 2,
        }),
        Request::ObjectSync(ObjectSyncRequest { handle, index: 0, capability: about.capability(write) }),
        Request::ObjectRemove(ObjectRemoveRequest { handle, index: 0, capability: about.capability(manage) }),
        Request::CheckGone(CheckGoneRequest { handles: vec![handle, about.dir, Handle(u64::MAX)] }),
        Request::ListDatafiles(ListDatafilesRequest { handle, index: 1, datafiles_max: 3 }),
        Request::ObjectEpoch(ObjectEpochRequest { handle, index: 0, capability: about.capability(manage), mtime_epoch: 4 }),
        Request::ObjectPunch(ObjectPunchRequest {
            handle,
            index: 1,
            capability: about.capability(write),
            offset: 4000,
            bytes: 9000,
            mtime_epoch: 2,
        }),
        Request::ObjectAllocate(ObjectAllocateRequest {
            handle,
            index: 1,
            capability: about.capability(write),
            offset: 4000,
            bytes: 9000,
            zero: true,
            keep_size: false,
            mtime_epoch: 2,
            ceiling: None,
        }),
    ]
}
