//! `weft watch`: what changes below a directory, as it happens.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Write;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use serde::Serialize;
use weft_base::{Handle, ServerId, Status};
use weft_client::{TreeChange, WatchedTree};
use weft_host::connect::{Common, Fs, FsPlace, kind_word};
use weft_host::output::{json_for_terminals, print, show_name, tell};
use weft_wire::ops::{CHANGES_WAIT_MS_MAX, ChangeCursor, ChangeKind, ChangesReply};

use weft_host::paths::joined;

/// The pause before a server that does not answer is asked again.
const AGAIN: Duration = Duration::from_secs(1);
/// What one server may have told before the rest is looked at.
const TOLD_MAX: usize = 2;

/// Tell what changes below a directory, without a mount
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  weft watch ~/fs:/results
  weft watch --json --since \"$CURSOR\" ~/fs:/results

Events: created, removed, renamed, changed (attributes; data while somebody writes), written (nobody has the file open for
writing any more), lost (a server does not know what happened behind the cursor: look at the whole tree again), cursor (go on
from here with --since, over restarts too). Each server tells in the order of its changes; between servers there is none.
It ends when the directory itself is removed.")]
pub struct Args {
    /// The directory, as FS:/PATH
    #[arg(value_name = "FS:/PATH")]
    place: OsString,
    /// Begin behind this cursor, and not now
    #[arg(long, value_name = "CURSOR")]
    since: Option<String>,
    /// Tell what has changed by now, and end
    #[arg(long)]
    once: bool,
    /// Print a JSON object for each event
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Event<'a> {
    event: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    to: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    inode: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    time_ns: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    server: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    transaction: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cursor: Option<String>,
}

type Cursors = BTreeMap<ServerId, ChangeCursor>;
type Told = (ServerId, weft_client::Result<ChangesReply>);

impl Args {
    pub fn run(self, common: &Common) -> Result<()> {
        let FsPlace { fs, path } = FsPlace::open(&self.place, common)?;
        let root = fs.stat(&path, true)?.handle;
        let mut cursors = self.since.as_deref().map(parse).transpose()?.unwrap_or_default();
        let servers: Vec<ServerId> = fs.client.map().meta.iter().map(|entry| entry.id).collect();
        if let Some(other) = cursors.keys().find(|server| !servers.contains(*server)) {
            bail!("the cursor is of another file system: {} has no metadata server {}", fs.name, other.0);
        }
        let is_new = cursors.is_empty();
        for server in &servers {
            if !cursors.contains_key(server) {
                let now = fs.run_at(&path, fs.client.changes(*server, NOW, 0))?.until;
                // A server that has joined since tells all that it has done.
                cursors.insert(*server, if is_new { now } else { ChangeCursor { lsn: 0, ..now } });
            }
        }
        let tree = scan(&fs, &path, root)?;
        let mut watch = Watch { args: &self, fs: &fs, path: &path, root, tree, cursors };
        if self.once { watch.catch_up() } else { watch.follow() }
    }
}

/// Asks for a cursor.
pub const NOW: ChangeCursor = ChangeCursor { log: 0, lsn: 0, segment: 0, offset: 0 };

fn scan(fs: &Fs, path: &[u8], root: Handle) -> Result<WatchedTree> {
    fs.run_at(path, fs.client.watched_tree(&fs.who, root, |error| tell(&fs.explain(path, error).to_string())))
}

struct Watch<'a> {
    args: &'a Args,
    fs: &'a Fs,
    path: &'a [u8],
    root: Handle,
    tree: WatchedTree,
    cursors: Cursors,
}

impl Watch<'_> {
    /// What has happened by now.
    fn catch_up(&mut self) -> Result<()> {
        for server in self.cursors.keys().copied().collect::<Vec<_>>() {
            loop {
                let reply = self.fs.run_at(self.path, self.fs.client.changes(server, self.cursors[&server], 0))?;
                let more = reply.more;
                self.take(server, reply)?;
                if !more {
                    break;
                }
            }
        }
        self.print_cursor()
    }

    /// What happens, until somebody ends this process: a thread waits at each server.
    fn follow(&mut self) -> Result<()> {
        self.print_cursor()?;
        let (sender, told) = sync_channel::<Told>(TOLD_MAX);
        let fs = self.fs;
        std::thread::scope(|scope| {
            for (server, after) in self.cursors.clone() {
                let sender = sender.clone();
                scope.spawn(move || wait_at(fs, server, after, &sender));
            }
            drop(sender);
            // When this ends, so do the threads: nobody takes what they say.
            let told = told;
            while let Ok((server, reply)) = told.recv() {
                match reply {
                    Ok(reply) => {
                        let is_news = reply.lost || !reply.changes.is_empty();
                        self.take(server, reply)?;
                        if is_news {
                            self.print_cursor()?;
                        }
                        if is_news && self.is_over() {
                            self.print(&Event { path: Some(self.text(b"")), kind: Some("directory"), ..event("removed") })?;
                            return Ok(());
                        }
                    }
                    Err(error) if is_final(error.status) => return Err(fs.explain(self.path, error)),
                    Err(error) => tell(&format!("{}; asking again", fs.explain(self.path, error))),
                }
            }
            Ok(())
        })
    }

    fn take(&mut self, server: ServerId, reply: ChangesReply) -> Result<()> {
        self.cursors.insert(server, reply.until);
        let map = self.fs.client.map();
        let name = map.server(server).map(|entry| entry.name.as_str());
        if reply.lost {
            self.print(&Event { server: name, ..event("lost") })?;
            self.tree = scan(self.fs, self.path, self.root)?;
        }
        for change in self.fs.run(self.fs.client.watch(&self.fs.who, &mut self.tree, reply.changes)) {
            self.print(&self.shown(change, name))?;
        }
        Ok(())
    }

    /// True if the directory itself has been removed: nothing will happen in it.
    fn is_over(&self) -> bool {
        let root = || self.fs.run(self.fs.client.getattr(self.root));
        self.tree.is_empty() && root().map_or_else(|error| error.is_gone(), |attr| attr.nlink == 0)
    }

    fn text(&self, path: &[u8]) -> String {
        let path = joined(self.path, path);
        // JSON escapes by itself.
        if self.args.json { String::from_utf8_lossy(&path).into_owned() } else { show_name(&path) }
    }

    fn shown<'b>(&self, change: TreeChange, server: Option<&'b str>) -> Event<'b> {
        Event {
            path: Some(self.text(&change.path)),
            to: change.to.as_deref().map(|path| self.text(path)),
            kind: change.kind.map(kind_word),
            inode: Some(change.handle.0).filter(|inode| *inode != 0),
            time_ns: Some(change.time.0).filter(|time| *time != 0),
            server,
            transaction: change.tx.map(|tx| format!("{}:{}", tx.coordinator.0, tx.number)),
            ..event(word(change.what))
        }
    }

    fn print_cursor(&self) -> Result<()> {
        self.print(&Event { cursor: Some(text(&self.cursors)), ..event("cursor") })
    }

    fn print(&self, event: &Event<'_>) -> Result<()> {
        let line = if self.args.json {
            json_for_terminals(&serde_json::to_string(event)?)
        } else {
            let mut line = event.event.to_string();
            for part in [&event.path, &event.cursor].into_iter().flatten() {
                write!(line, " {part}")?;
            }
            if let Some(to) = &event.to {
                write!(line, " -> {to}")?;
            }
            if let ("lost", Some(server)) = (event.event, event.server) {
                write!(line, " at {server}: look at the whole tree again")?;
            }
            line
        };
        Ok(print(&(line + "\n"))?)
    }
}

/// Asking again changes nothing.
fn is_final(status: Status) -> bool {
    matches!(status, Status::NotSupported | Status::KeyForbids | Status::BadMessage | Status::AuthenticationFailed)
}

fn wait_at(fs: &Fs, server: ServerId, mut after: ChangeCursor, told: &SyncSender<Told>) {
    loop {
        let reply = fs.run(fs.client.changes(server, after, CHANGES_WAIT_MS_MAX));
        let is_over = matches!(&reply, Err(error) if is_final(error.status));
        let is_failure = reply.is_err();
        if let Ok(reply) = &reply {
            after = reply.until;
        }
        if told.send((server, reply)).is_err() || is_over {
            return;
        }
        if is_failure {
            std::thread::sleep(AGAIN);
        }
    }
}

fn event(event: &'static str) -> Event<'static> {
    Event { event, path: None, to: None, kind: None, inode: None, time_ns: None, server: None, transaction: None, cursor: None }
}

fn word(what: ChangeKind) -> &'static str {
    match what {
        ChangeKind::Created => "created",
        ChangeKind::Removed => "removed",
        ChangeKind::Renamed => "renamed",
        ChangeKind::Changed => "changed",
        ChangeKind::Written => "written",
    }
}

/// `SERVER=LOG.LSN.SEGMENT.OFFSET,...`, numbers in hexadecimal.
fn text(cursors: &Cursors) -> String {
    let one = |(server, at): (&ServerId, &ChangeCursor)| format!("{}={:x}.{:x}.{:x}.{:x}", server.0, at.log, at.lsn, at.segment, at.offset);
    cursors.iter().map(one).collect::<Vec<_>>().join(",")
}

fn parse(text: &str) -> Result<Cursors> {
    let one = |text: &str| -> Option<(ServerId, ChangeCursor)> {
        let (server, numbers) = text.split_once('=')?;
        let numbers: Vec<u64> = numbers.split('.').map(|number| u64::from_str_radix(number, 16).ok()).collect::<Option<_>>()?;
        let [log, lsn, segment, offset] = numbers[..] else { return None };
        Some((ServerId(server.parse().ok()?), ChangeCursor { log, lsn, segment, offset }))
    };
    let cursors = text.split(',').map(|part| one(part).ok_or_else(|| anyhow!("{part:?} is no cursor of a server")));
    let cursors: Cursors = cursors.collect::<Result<_>>().context("--since takes what a `cursor` event has said")?;
    if cursors.values().any(|cursor| cursor.log == 0) {
        bail!("--since takes what a `cursor` event has said: a cursor names a journal");
    }
    Ok(cursors)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_are_text() {
        let at = |lsn| ChangeCursor { log: 0xfeed_0000_0000_0001, lsn, segment: 3, offset: 4096 };
        let cursors = Cursors::from([(ServerId(0), at(17)), (ServerId(12), at(0))]);
        assert_eq!(text(&cursors), "0=feed000000000001.11.3.1000,12=feed000000000001.0.3.1000");
        assert_eq!(parse(&text(&cursors)).unwrap(), cursors);
        for bad in ["", "0", "0=1.2.3", "x=1.2.3.4", "0=1.2.3.g", "0=1.2.3.4,", "0=0.2.3.4", "99999=1.2.3.4"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
