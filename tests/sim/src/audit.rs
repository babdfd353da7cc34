//! The examination of a cluster after a run, when all faults are over: a full scan whose answers
//! become part of the history, and then the removal of everything, after which the servers must
//! hold nothing any more.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use weft_base::{Credentials, FileKind, Handle, ROOT_HANDLE, SECOND, ServerRole};
use weft_client::Client;
use weft_rt::Runtime;
use weft_rt_sim::SimRt;
use weft_wire::Op;
use weft_wire::ops::QuotaKind;

use crate::cluster::GRACE_NS;
use crate::history::{Action, Answer, Outcome};
use crate::workload::Worker;

/// How long the servers may take to notice that all faults are over, in nanoseconds.
const WAKE_NS: u64 = 20 * SECOND;
/// How long they may keep what nobody needs any more, in nanoseconds: lost sessions, answers to
/// lost questions, removed files.
const REAP_NS: u64 = 2 * GRACE_NS + 30 * SECOND;
/// How long a server knows a client that is lost, and which handles it was given: so long nobody
/// removes a datafile that may have been made with one of them. In nanoseconds.
const RETENTION_NS: u64 = 600 * SECOND;

/// Waits until every server answers.
///
/// # Errors
/// Who does not.
pub async fn wait_for_servers(client: &Client<SimRt>) -> Result<(), String> {
    let limit = client.rt().now() + WAKE_NS;
    loop {
        let silent = client.ping_all().await.into_iter().find_map(|(server, answer)| match answer {
            Ok(info) if info.state == "serving" => None,
            Ok(info) => Some(format!("{server} is {}", info.state)),
            Err(error) => Some(format!("{server}: {error}")),
        });
        let Some(silent) = silent else { return Ok(()) };
        if client.rt().now() >= limit {
            return Err(format!("not serving {} s after the last fault: {silent}", WAKE_NS / SECOND));
        }
        client.rt().sleep_until(client.rt().now() + SECOND / 10).await;
    }
}

/// Waits until every server that joins has joined: each makes one epoch of the map.
///
/// # Errors
/// How many have not.
pub async fn wait_for_map(client: &Client<SimRt>, epoch: u32) -> Result<(), String> {
    let limit = client.rt().now() + WAKE_NS;
    while client.map().epoch < epoch && client.rt().now() < limit {
        client.rt().sleep_until(client.rt().now() + SECOND / 10).await;
        client.ping_all().await;
    }
    match client.map().epoch {
        now if now == epoch => wait_for_servers(client).await,
        now => Err(format!("the cluster map is of epoch {now}, and not {epoch}")),
    }
}

/// What the servers were asked since they began.
///
/// # Errors
/// Who does not tell.
pub async fn asked(client: &Client<SimRt>) -> Result<BTreeSet<Op>, String> {
    let mut asked = BTreeSet::new();
    for server in client.map().servers() {
        let live = client.live(server.id).await.map_err(|error| format!("counting operations: {error}"))?;
        asked.extend(live.operations.iter().filter_map(|row| Op::from_code(row.op)));
    }
    Ok(asked)
}

/// What a directory holds.
type Entries = Vec<(Bytes, Handle, FileKind)>;

/// What a scan found.
#[derive(Debug, Default)]
pub struct Scan {
    /// Directories with what they hold, parents first.
    dirs: Vec<(Handle, Entries)>,
    objects: BTreeSet<Handle>,
}

/// Reads the whole tree, attributes and data, as one more client whose operations are recorded.
///
/// # Errors
/// What should not be there, or does not answer.
pub async fn scan(worker: &mut Worker, with_data: bool) -> Result<Scan, String> {
    let mut scan = Scan { objects: BTreeSet::from([ROOT_HANDLE]), ..Scan::default() };
    let mut next = vec![(ROOT_HANDLE, ROOT_HANDLE)];
    let mut names: BTreeMap<Handle, u32> = BTreeMap::new();
    let mut links = Vec::new();
    while let Some((dir, parent)) = next.pop() {
        let Answer::Attr(seen) = expect(worker, Action::GetAttr { handle: dir, held: false }).await? else {
            return Err(format!("no attributes of {dir}"));
        };
        let page = worker.client.readdir(&Credentials::ROOT, dir, 0, 4096, true).await.map_err(|error| format!("scan: {error}"))?;
        if page.parent != parent {
            return Err(format!("{dir} is in {parent}, but says that its parent is {}", page.parent));
        }
        if let Some(item) = page.entries.iter().find(|item| item.attr.is_none()) {
            return Err(format!("{:?} in {dir} leads to {}, which does not exist", item.name, item.handle));
        }
        let Answer::Listing(entries) = expect(worker, Action::ReadDir { dir, one_page: true }).await? else {
            return Err(format!("listing of {dir} has no entries"));
        };
        let subdirs = entries.iter().filter(|(_, _, kind)| *kind == FileKind::Directory).count();
        if (seen.size, seen.nlink) != (entries.len() as u64, 2 + subdirs as u32) {
            return Err(format!("{dir} has {} entries, {subdirs} of them directories, but says {seen:?}", entries.len()));
        }
        for (_, handle, kind) in &entries {
            let is_new = scan.objects.insert(*handle);
            match kind {
                FileKind::Directory if !is_new => return Err(format!("{handle} is a directory with two names")),
                FileKind::Directory => next.push((*handle, dir)),
                _ => *names.entry(*handle).or_insert(0) += 1,
            }
            if is_new && *kind != FileKind::Directory {
                links.push((*handle, *kind));
            }
        }
        scan.dirs.push((dir, entries.into_iter().map(|(name, handle, kind)| (name.bytes(), handle, kind)).collect()));
    }
    for (handle, kind) in links {
        let Answer::Attr(seen) = expect(worker, Action::GetAttr { handle, held: false }).await? else {
            return Err(format!("no attributes of {handle}"));
        };
        if seen.nlink != names[&handle] {
            return Err(format!("{handle} has {} names, but nlink {}", names[&handle], seen.nlink));
        }
        if with_data && kind == FileKind::File {
            expect(worker, Action::Open { handle }).await?;
            expect(worker, Action::Read { handle, offset: 0, len: 64 << 10 }).await?;
            expect(worker, Action::Close { handle }).await?;
        }
    }
    Ok(scan)
}

/// Reads the whole tree as any client does. The servers must hold what was found and nothing else,
/// and what is counted for users must be what their objects take.
///
/// # Errors
/// What does not answer, what should not be there, for whom something else is counted than there
/// is.
pub async fn examine(client: &Client<SimRt>, may_leave_data: bool) -> Result<(), String> {
    let (scan, taken) = read_tree(client).await?;
    no_orphans(client, &scan, may_leave_data).await?;
    let usage = client.usage(&Credentials::ROOT, QuotaKind::User, 0..=u32::MAX).await.map_err(|error| format!("usage: {error}"))?;
    let counted: Taken = usage.into_iter().map(|(uid, usage)| (uid, (usage.inodes, usage.bytes))).collect();
    if counted != taken {
        return Err(format!("counted are {counted:?}, and there are {taken:?} (inodes and bytes by user)"));
    }
    no_orphans(client, &sweep(client, &scan).await?, may_leave_data).await
}

/// The inodes of each user, and the bytes that they take.
type Taken = BTreeMap<u32, (u64, u64)>;

async fn read_tree(client: &Client<SimRt>) -> Result<(Scan, Taken), String> {
    let mut scan = Scan { objects: BTreeSet::from([ROOT_HANDLE]), ..Scan::default() };
    let root = client.getattr(ROOT_HANDLE).await.map_err(|error| format!("the root: {error}"))?;
    let mut taken = Taken::from([(root.uid, (1, 0))]);
    let mut next = vec![ROOT_HANDLE];
    while let Some(dir) = next.pop() {
        let (mut entries, mut cookie, mut is_over) = (Entries::new(), 0, false);
        while !is_over {
            let page = client.readdir(&Credentials::ROOT, dir, cookie, 1 << 16, true).await.map_err(|error| format!("scan: {error}"))?;
            for item in page.entries {
                let Some(attr) = item.attr else { return Err(format!("{:?} in {dir} leads to nothing", item.name)) };
                if scan.objects.insert(item.handle) {
                    let (inodes, bytes) = taken.entry(attr.uid).or_insert((0, 0));
                    (*inodes, *bytes) = (*inodes + 1, *bytes + attr.allocated_bytes());
                }
                next.extend((item.kind == FileKind::Directory).then_some(item.handle));
                entries.push((item.name, item.handle, item.kind));
                cookie = item.cookie;
            }
            is_over = page.end;
        }
        scan.dirs.push((dir, entries));
    }
    Ok((scan, taken))
}

async fn expect(worker: &mut Worker, action: Action) -> Result<Answer, String> {
    match worker.act(action.clone()).await {
        Outcome::Done(answer) => Ok(answer),
        other => Err(format!("after all faults, {action:?} -> {other:?}")),
    }
}

/// Waits until the servers hold exactly the objects that the scan found: nothing that was removed,
/// no half-made object. With `may_leave_data` data servers may hold more, as long as nobody removes
/// what belongs to no file.
///
/// # Errors
/// What they still hold.
pub async fn no_orphans(client: &Client<SimRt>, scan: &Scan, may_leave_data: bool) -> Result<(), String> {
    let mut expected: BTreeMap<_, u64> = client.map().meta.iter().map(|entry| (entry.id, 0)).collect();
    scan.objects.iter().for_each(|handle| *expected.entry(handle.server()).or_insert(0) += 1);
    let patience_ns = REAP_NS + if may_leave_data { RETENTION_NS } else { 0 };
    let limit = client.rt().now() + patience_ns;
    loop {
        let mut wrong = Vec::new();
        if may_leave_data {
            wrong.extend(repair(client).await.err().map(|error| format!("a repair: {error}")));
        }
        for (server, answer) in client.ping_all().await {
            let info = answer.map_err(|error| format!("counting objects: {error}"))?;
            // One that has joined may hold nothing yet.
            let named = expected.get(&server).copied().unwrap_or(0);
            if server.role() == ServerRole::Meta && info.objects != named {
                wrong.push(format!("{server} holds {} inodes, of which {named} have names", info.objects));
            }
            let is_empty = scan.objects.len() == 1;
            if server.role() == ServerRole::Data && is_empty && info.objects != 0 {
                wrong.push(format!("{server} holds {} datafiles of {} bytes without a file", info.objects, info.used_bytes));
            }
        }
        if wrong.is_empty() {
            return Ok(());
        }
        if client.rt().now() >= limit {
            return Err(format!("{} s after the end: {}", patience_ns / SECOND, wrong.join("; ")));
        }
        client.rt().sleep_until(client.rt().now() + SECOND).await;
    }
}

/// Removes all datafiles that belong to no file.
///
/// # Errors
/// Servers that do not answer.
pub async fn repair(client: &Client<SimRt>) -> weft_client::Result<()> {
    for server in client.map().data.iter().map(|entry| entry.id) {
        client.check_datafiles(server, true, drop).await?;
    }
    Ok(())
}

/// Removes everything that the scan found. Whatever is still locked, or cannot be removed, shows
/// here.
///
/// # Errors
/// What cannot be removed.
pub async fn sweep(client: &Client<SimRt>, scan: &Scan) -> Result<Scan, String> {
    let before = client.stats();
    for (dir, entries) in scan.dirs.iter().rev() {
        for (name, handle, kind) in entries {
            let outcome = match kind {
                FileKind::Directory => client.rmdir(&Credentials::ROOT, *dir, name).await,
                _ => client.unlink(&Credentials::ROOT, *dir, name).await,
            };
            outcome.map_err(|error| format!("removing {name:?} ({handle} {kind:?}) from {dir} after all faults: {error}"))?;
        }
    }
    let retries = client.stats().retries - before.retries;
    if retries > 20 {
        return Err(format!("{retries} retries while everything was removed after all faults: something stayed locked"));
    }
    Ok(Scan { objects: BTreeSet::from([ROOT_HANDLE]), ..Scan::default() })
}
