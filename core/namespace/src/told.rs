//! What a record says to somebody who watches names and files. It is read from the record alone:
//! the state of that moment is gone when the journal is read.

use bytes::Bytes;
use weft_base::{FileKind, Handle, WallTime};
use weft_wire::Wire;
use weft_wire::ops::{ChangeKind, FileState, ToldChange, TxId};

use crate::{Change, Inode, InodeFlags};

/// The changes of names and files in one record, in their order.
pub fn told(changes: &[Change]) -> Vec<ToldChange> {
    let mut told = Names::of(changes).told();
    // A file that was made with all that is in it: nobody has had it open.
    told.extend(of_contents(changes, &told));
    // Objects of names are told by their names, those of transactions where these were decided:
    // that has names, or changes a directory that is split.
    let is_decision = changes.iter().any(|change| matches!(change, Change::PutDecided { .. }));
    if told.is_empty() && (is_decision || transaction(changes).is_none()) {
        told.extend(of_objects(changes));
    }
    told
}

/// Which transaction over several servers the record decides or ends.
fn transaction(changes: &[Change]) -> Option<TxId> {
    changes.iter().find_map(|change| match change {
        Change::DeletePrepared { tx } | Change::PutDecided { tx, .. } => Some(*tx),
        _ => None,
    })
}

/// What a record does to names.
#[derive(Default)]
struct Names<'a> {
    gone: Vec<(Handle, &'a Bytes)>,
    made: Vec<(Handle, &'a Bytes, Handle, FileKind)>,
    time: WallTime,
    tx: Option<TxId>,
}

impl<'a> Names<'a> {
    fn of(changes: &'a [Change]) -> Names<'a> {
        let mut names = Names { tx: transaction(changes), ..Names::default() };
        for change in changes {
            match change {
                Change::DeleteEntry { dir, name } => names.gone.push((*dir, name)),
                Change::PutEntry { dir, name, handle, kind } => names.made.push((*dir, name, *handle, *kind)),
                Change::Touch { mtime, .. } | Change::TouchPartition { mtime, .. } => names.time = names.time.max(*mtime),
                _ => {}
            }
        }
        names
    }

    fn told(self) -> Vec<ToldChange> {
        let (time, tx) = (self.time, self.tx);
        let one = |what, (dir, name): (Handle, &Bytes)| ToldChange { dir, name: name.clone(), time, tx, ..ToldChange::empty(what) };
        if let ([from], [(to_dir, to_name, handle, kind)]) = (&self.gone[..], &self.made[..]) {
            let to_name = Bytes::clone(to_name);
            return vec![ToldChange { to_dir: *to_dir, to_name, handle: *handle, kind: Some(*kind), ..one(ChangeKind::Renamed, *from) }];
        }
        let gone = self.gone.iter().map(|at| one(ChangeKind::Removed, *at));
        let made = self.made.iter().map(|(dir, name, handle, kind)| {
            let created = one(ChangeKind::Created, (*dir, name));
            ToldChange { handle: *handle, kind: Some(*kind), ..created }
        });
        gone.chain(made).collect()
    }
}

/// Contents of the files to which these names lead.
fn of_contents(changes: &[Change], names: &[ToldChange]) -> Vec<ToldChange> {
    let has_content = |handle| changes.iter().any(|change| matches!(change, Change::PutContent { handle: other, .. } if *other == handle));
    let made = names.iter().filter(|told| told.what == ChangeKind::Created && has_content(told.handle));
    made.map(|&ToldChange { handle, kind, time, .. }| ToldChange { handle, kind, time, ..ToldChange::empty(ChangeKind::Written) }).collect()
}

/// Changes of objects whose names stay.
fn of_objects(changes: &[Change]) -> Vec<ToldChange> {
    let answer = changes.iter().find_map(|change| match change {
        Change::PutReply { body, .. } => Some(body),
        _ => None,
    });
    let mut told: Vec<ToldChange> = Vec::new();
    for change in changes {
        let (handle, inode) = match change {
            Change::PutInode { handle, inode } => (*handle, Some(inode)),
            Change::PutXattr { handle, .. } | Change::DeleteXattr { handle, .. } => (*handle, None),
            _ => continue,
        };
        let has_attribute = changes.iter().any(|change| {
            matches!(change, Change::PutXattr { handle: other, .. } | Change::DeleteXattr { handle: other, .. } if *other == handle)
        });
        let has_content = changes.iter().any(|change| matches!(change, Change::PutContent { handle: other, .. } if *other == handle));
        let what = if has_content { Some(ChangeKind::Written) } else { kind_of(inode.filter(|_| !has_attribute), answer) };
        let Some(what) = what else { continue };
        let (kind, time) = (inode.map(|inode| inode.kind), inode.map_or(WallTime(0), |inode| inode.ctime));
        match told.iter_mut().find(|known| known.handle == handle) {
            Some(known) => (known.kind, known.time) = (known.kind.or(kind), known.time.max(time)),
            None => told.push(ToldChange { handle, kind, time, ..ToldChange::empty(what) }),
        }
    }
    told
}

/// `inode`: the change is one of the inode alone. `answer`: the record has an answer to a request.
fn kind_of(inode: Option<&Inode>, answer: Option<&Bytes>) -> Option<ChangeKind> {
    let Some(inode) = inode else { return Some(ChangeKind::Changed) };
    // What has no name is told to nobody; of what is being cut the end is told.
    if inode.nlink == 0 || inode.flags.has(InodeFlags::TRUNCATING) {
        return None;
    }
    match answer {
        // A change of attributes is answered with these; an open with more. Times of access stand
        // beside the answer to many closes.
        Some(body) if !body.is_empty() => FileState::from_bytes(body.clone()).is_ok().then_some(ChangeKind::Changed),
        // Closes, and what servers find out by themselves.
        _ if inode.kind == FileKind::File && !inode.flags.has(InodeFlags::WRITING) => Some(ChangeKind::Written),
        _ => Some(ChangeKind::Changed),
    }
}
