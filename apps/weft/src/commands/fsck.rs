//! `weft fsck`: whether names, inodes and datafiles fit each other, while the file system is used.

use std::ffi::OsStr;

use anyhow::{Result, bail};
use serde::Serialize;
use weft_base::{ROOT_HANDLE, ServerEntry, ServerRole};
use weft_client::{DatafileSums, NameFault, NameFaultKind, NameSums, StrayDatafile};
use weft_host::connect::{Common, Fs};
use weft_host::named::NamedFs;
use weft_host::output::{Table, print_as, shell_word, show_name, tell};
use weft_host::units::human_bytes;

/// Check names, inodes and datafiles against each other, while the file system is used
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  weft fsck ~/fs
  weft fsck --repair ~/fs

It walks over all names, which takes a message for some thousand of them, and asks for every datafile whether
its file exists. A datafile without a file is what a power cut may leave: nobody can reach it, and --repair
gives its space back. Nothing else is changed. What seems wrong about names is looked at twice, since others
may change them meanwhile. It needs a key without limits. The exit code is 1 if anything wrong is left.")]
pub struct Args {
    #[command(flatten)]
    fs: NamedFs,
    /// Remove datafiles that belong to no file
    #[arg(long)]
    repair: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// All that was found.
#[derive(Serialize)]
struct Findings {
    names: u64,
    directories: u64,
    files: u64,
    others: u64,
    /// Inodes that no name leads to: files that are open and have no name, what was made or moved
    /// during the walk, or what is lost.
    inodes_without_name: u64,
    wrong_names: Vec<WrongName>,
    servers: Vec<DataServer>,
    /// Metadata servers that did not say how many inodes they have, and why.
    unanswered: Vec<String>,
}

#[derive(Serialize)]
struct WrongName {
    path: String,
    /// The path for people.
    #[serde(skip)]
    shown: String,
    handle: String,
    what: String,
    /// Nobody knows whether anything is wrong.
    is_unknown: bool,
}

/// A data server.
#[derive(Serialize)]
struct DataServer {
    name: String,
    datafiles: u64,
    bytes: u64,
    /// Datafiles that belong to no file.
    strays: Vec<Stray>,
    removed: bool,
    /// Why not all of them were looked at.
    #[serde(skip_serializing_if = "Option::is_none")]
    failed: Option<String>,
}

#[derive(Serialize)]
struct Stray {
    handle: String,
    index: u32,
    bytes: u64,
}

impl Args {
    pub fn run(self, common: &Common) -> Result<bool> {
        let given = self.fs.text();
        let fs = Fs::open(given, common)?;
        if fs.key.as_ref().is_some_and(|key| key.root != ROOT_HANDLE) {
            bail!("this key is for a directory only, and a check looks at everything: use a key for all of {}", fs.name);
        }
        tell_who_is_silent(given, common)?;
        let mut wrong_names = Vec::new();
        let sums = fs.run(fs.client.check_names(|fault| wrong_names.push(wrong(&fs, fault))));
        let map = fs.client.map();
        let servers: Vec<DataServer> =
            map.servers().filter(|entry| entry.id.role() == ServerRole::Data).map(|entry| check_data(&fs, entry, self.repair)).collect();
        let findings = with_inodes(&fs, sums, wrong_names, servers);
        print_as(self.json, &findings, || text(&findings))?;
        Ok(!findings.tell_faults(given))
    }
}

/// Servers that do not answer are asked many things, one after the other: whoever waits is to know
/// for whom, and where nobody answers there is nothing to wait for.
fn tell_who_is_silent(given: &OsStr, common: &Common) -> Result<()> {
    let fs = Fs::open(given, &common.for_a_look())?;
    let answers = fs.ping_all();
    let silent: Vec<&str> = answers.iter().filter(|(_, answer)| answer.is_err()).map(|(entry, _)| entry.name.as_str()).collect();
    match answers.iter().find_map(|(_, answer)| answer.as_ref().err()) {
        Some(error) if silent.len() == answers.len() => bail!("no server of {} answers: {}", fs.name, fs.why(error)),
        Some(_) => {
            let seconds = common.timeout().as_secs();
            tell(&format!("no answer from {}: each question waits for that up to {seconds} s (--timeout)", silent.join(", ")));
        }
        None => {}
    }
    Ok(())
}

fn check_data(fs: &Fs, entry: &ServerEntry, repair: bool) -> DataServer {
    let mut strays = Vec::new();
    let checked = fs.run(fs.client.check_datafiles(entry.id, repair, |StrayDatafile { handle, index, bytes }| {
        strays.push(Stray { handle: handle.to_string(), index, bytes });
    }));
    let failed = checked.as_ref().err().map(|error| fs.why(error));
    let DatafileSums { datafiles, bytes } = checked.unwrap_or_default();
    DataServer { name: entry.name.clone(), datafiles, bytes, strays, removed: repair, failed }
}

fn with_inodes(fs: &Fs, sums: NameSums, wrong_names: Vec<WrongName>, servers: Vec<DataServer>) -> Findings {
    let NameSums { names, directories, files, others, inodes } = sums;
    let (mut inodes_without_name, mut unanswered) = (0, Vec::new());
    for (entry, answer) in fs.ping_all().into_iter().filter(|(entry, _)| entry.id.role() == ServerRole::Meta) {
        match answer {
            Ok(info) => inodes_without_name += info.objects.saturating_sub(inodes.get(&entry.id).copied().unwrap_or(0)),
            Err(error) => unanswered.push(format!("{}: {}", entry.name, fs.why(&error))),
        }
    }
    Findings { names, directories, files, others, inodes_without_name, wrong_names, servers, unanswered }
}

fn wrong(fs: &Fs, fault: &NameFault) -> WrongName {
    let what = match fault.kind {
        NameFaultKind::Nowhere => "leads to nothing".into(),
        NameFaultKind::Links { names, nlink } => format!("has {names} names and counts {nlink}"),
        NameFaultKind::Entries { names, directories, size, nlink } => {
            format!("has {names} names, {directories} of directories, and counts {size} and {nlink} links")
        }
        NameFaultKind::Unknown(error) => format!("could not be looked at: {}", fs.why(&error)),
    };
    let is_unknown = matches!(fault.kind, NameFaultKind::Unknown(_));
    let path = [b"/", &fault.path[..]].concat();
    let (shown, path) = (show_name(&path), String::from_utf8_lossy(&path).into_owned());
    WrongName { path, shown, handle: fault.handle.to_string(), what, is_unknown }
}

impl Findings {
    /// Says what is wrong; true if anything is, and is left.
    fn tell_faults(&self, fs: &OsStr) -> bool {
        for WrongName { shown, handle, what, .. } in &self.wrong_names {
            tell(&format!("{shown} ({handle}) {what}"));
        }
        self.unanswered.iter().for_each(|what| tell(what));
        for server in &self.servers {
            if let Some(why) = &server.failed {
                tell(&format!("{} was not looked at: {why}", server.name));
            }
        }
        let left: Vec<&Stray> = self.servers.iter().filter(|server| !server.removed).flat_map(|server| &server.strays).collect();
        if !left.is_empty() {
            let bytes = human_bytes(left.iter().map(|stray| stray.bytes).sum());
            tell(&format!("{} datafiles ({bytes}) belong to no file: weft fsck --repair {} removes them", left.len(), shell_word(fs)));
        }
        let is_whole = self.unanswered.is_empty() && self.servers.iter().all(|server| server.failed.is_none());
        !self.wrong_names.is_empty() || !left.is_empty() || !is_whole
    }
}

fn text(findings: &Findings) -> String {
    let Findings { names, directories, files, others, inodes_without_name, wrong_names, servers, .. } = findings;
    let mut table = Table::new(&["what", ">number", ">size", "how it is"]);
    let unknown = wrong_names.iter().filter(|wrong| wrong.is_unknown).count();
    let state = match (wrong_names.len() - unknown, unknown) {
        (0, 0) => "right".into(),
        (wrong, 0) => format!("{wrong} wrong"),
        (wrong, unknown) => format!("{wrong} wrong, {unknown} not looked at"),
    };
    table.row(vec!["names".into(), names.to_string(), String::new(), state]);
    for (what, number) in [("directories", directories), ("files", files), ("others", others)] {
        table.row(vec![what.into(), number.to_string(), String::new(), String::new()]);
    }
    if *inodes_without_name > 0 {
        let why = "open files, or changed meanwhile".into();
        table.row(vec!["without a name".into(), inodes_without_name.to_string(), String::new(), why]);
    }
    for server in servers {
        let bytes = human_bytes(server.strays.iter().map(|stray| stray.bytes).sum());
        let state = match (server.strays.len(), server.removed, &server.failed) {
            (_, _, Some(_)) => "not looked at".into(),
            (0, ..) => "right".into(),
            (strays, true, _) => format!("{strays} without a file ({bytes}) removed"),
            (strays, false, _) => format!("{strays} without a file ({bytes})"),
        };
        table.row(vec![format!("datafiles on {}", server.name), server.datafiles.to_string(), human_bytes(server.bytes), state]);
    }
    table.render()
}
