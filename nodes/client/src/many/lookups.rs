//! Names of many files to the right to read them.

use std::collections::BTreeMap;

use bytes::Bytes;
use weft_base::{Attr, Credentials, FileKind, Handle, Payload, Result as Outcome, ServerId, Status, check_name};
use weft_call::run_window;
use weft_rt::{Bulk, Runtime};
use weft_wire::Capability;
use weft_wire::ops::{FoundContent, FoundName, LookupManyReply, LookupManyRequest, NamesInDir};

use crate::flow::Flow;
use crate::knowledge::Asked;
use crate::names::By;
use crate::{Client, Error, WholeFile};

/// What a name of a list leads to.
pub(super) enum Looked {
    /// A file that may be read; the attributes are exact.
    Found(Attr, Capability),
    /// A file with all of its bytes.
    Whole(WholeFile),
    /// Nothing that may be read.
    Impossible(Error),
    /// More must be asked.
    Unclear,
}

/// Names of one directory with one server.
struct Group {
    names: NamesInDir,
    /// Where they are in the list.
    positions: Vec<usize>,
}

impl<R: Runtime> Client<R> {
    /// Looks for at most [`weft_wire::ops::LOOKUPS_MAX`] names: one message for each server.
    pub(super) async fn lookup_many(&self, flow: Flow, who: &Credentials, files: &[(Handle, Bytes)]) -> Vec<Looked> {
        let mut looked: Vec<Looked> = Vec::with_capacity(files.len());
        looked.resize_with(files.len(), || Looked::Unclear);
        let servers = self.grouped(flow, files, &mut looked).await;
        let flows = servers.into_iter().map(|(server, groups)| async move {
            let asked = self.asking();
            let (dirs, positions): (Vec<_>, Vec<_>) = groups.into_iter().map(|group| (group.names, group.positions)).unzip();
            let request = LookupManyRequest { dirs, who: who.clone(), contents: Some(true) };
            let outcome = self.call_with_bulk(flow, server, &request, Bulk::None).await;
            (server, asked, positions.concat(), outcome)
        });
        for (server, asked, positions, outcome) in run_window(flows, self.options().window).await {
            let malformed = flow.error_at(Status::BadMessage, server);
            let found = match outcome {
                Ok((reply, bulk)) if reply.found.len() == positions.len() => with_contents(reply, &bulk).ok_or(malformed),
                outcome => Err(outcome.err().unwrap_or(malformed)),
            };
            let found = match found {
                Ok(found) => found,
                Err(error) => {
                    positions.iter().for_each(|position| looked[*position] = Looked::Impossible(error));
                    continue;
                }
            };
            for (position, (found, content)) in positions.into_iter().zip(found) {
                let flow = Flow { handle: files[position].0, ..flow };
                looked[position] = match (found, content) {
                    (Ok(found), Some(data)) => Looked::Whole(WholeFile { handle: found.handle, data }),
                    (found, _) => self.judge_found(flow, server, found, asked),
                };
            }
        }
        looked
    }

    /// Which names go to which server. Names that nobody can have are impossible at once.
    async fn grouped(&self, flow: Flow, files: &[(Handle, Bytes)], looked: &mut [Looked]) -> BTreeMap<ServerId, Vec<Group>> {
        let mut servers: BTreeMap<ServerId, Vec<Group>> = BTreeMap::new();
        let mut order: Vec<usize> = (0..files.len()).collect();
        order.sort_by_key(|position| files[*position].0);
        for position in order {
            let (dir, name) = &files[position];
            let flow = Flow { handle: *dir, ..flow };
            let target = match check_name(name) {
                Ok(()) => self.target_in_dir(flow, *dir, By::Name(name)).await,
                Err(status) => Err(flow.error(status)),
            };
            let (at, server) = match target {
                Ok(target) => target,
                Err(error) => {
                    looked[position] = Looked::Impossible(error);
                    continue;
                }
            };
            let groups = servers.entry(server).or_default();
            match groups.last_mut() {
                Some(group) if group.names.at == at => {
                    group.names.names.push(name.clone());
                    group.positions.push(position);
                }
                _ => groups.push(Group { names: NamesInDir { at, names: vec![name.clone()] }, positions: vec![position] }),
            }
        }
        servers
    }

    fn judge_found(&self, flow: Flow, server: ServerId, found: Outcome<FoundName>, asked: Asked) -> Looked {
        let impossible = |status| Looked::Impossible(flow.error_at(status, server));
        let FoundName { kind, state, read, .. } = match found {
            Ok(found) => found,
            // In the hands of a transaction, or elsewhere: asked for alone, it is waited for or
            // followed.
            Err(status) if status.is_transient() || matches!(status, Status::StaleMap | Status::Stale) => return Looked::Unclear,
            Err(status) => return impossible(status),
        };
        match (kind, state, read) {
            (FileKind::Directory, ..) => impossible(Status::IsDirectory),
            (FileKind::Symlink, ..) => impossible(Status::TooManySymlinks),
            // Its content is to be asked for.
            (FileKind::File, Some(state), Some(_)) if state.attr.is_inline() || self.is_delayed(state.attr.handle) => Looked::Unclear,
            (FileKind::File, Some(state), Some(capability)) => match self.settle_at_once(&state, asked) {
                Some(attr) => Looked::Found(attr, capability),
                None => Looked::Unclear,
            },
            (FileKind::File, Some(_), None) => impossible(Status::AccessDenied),
            (FileKind::File, None, _) => Looked::Unclear,
            _ => impossible(Status::Invalid),
        }
    }
}

type WithContent = (Outcome<FoundName>, Option<Payload>);

/// Gives each name the content that came with it. `None` if the bulk data is another.
fn with_contents(reply: LookupManyReply, bulk: &Payload) -> Option<Vec<WithContent>> {
    let mut found: Vec<WithContent> = reply.found.into_iter().map(|found| (found, None)).collect();
    let mut at = 0u64;
    for FoundContent { number, bytes } in reply.contents.unwrap_or_default() {
        let (_, content) = found.get_mut(number as usize)?;
        if bulk.len() - at < u64::from(bytes) {
            return None;
        }
        *content = Some(bulk.slice(at, bytes.into()));
        at += u64::from(bytes);
    }
    (at == bulk.len()).then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_of_a_list_stay_small() {
        assert!(size_of::<Looked>() <= 256, "{}", size_of::<Looked>());
    }
}
