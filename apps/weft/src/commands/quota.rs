//! `weft quota`: what users and projects take, and may take.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::ops::RangeInclusive;

use anyhow::{Result, anyhow};
use serde::Serialize;
use weft_base::Credentials;
use weft_client::{QuotaUsage, TreeOutcome, TreeSetting};
use weft_host::connect::{Common, Fs, open_all};
use weft_host::output::{Table, print, print_as, tell};
use weft_host::units::{ByteSize, human_bytes};
use weft_wire::ops::{QuotaId, QuotaKind};

use super::course::Course;

/// Show what users and projects take, and limit it
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  weft quota set ~/fs --user 1000 --inodes 100000 --bytes 10G
  weft quota show ~/fs --user 1000
  weft quota list ~/fs
  weft quota project 7 ~/fs:/climate
  weft quota set ~/fs --project 7 --bytes 2T

An inode counts for its owner as long as it is there: also in a trash, and without a name as long as somebody
has it open. Bytes are those of the last close, in whole blocks of 4096, as du(1) counts them. Root is not limited.
A project is a number that a directory has and gives to all that is made in it, whoever makes it, root too.")]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// What one user or project takes and may take
    #[command(after_help = "Examples:\n  weft quota show ~/fs --user 1000\n  weft quota show ~/fs --project 7")]
    Show {
        /// The file system
        #[arg(value_name = "FS")]
        fs: OsString,
        /// The number of the user [default: who asks]
        #[arg(long, value_name = "UID")]
        user: Option<u32>,
        /// The number of the project
        #[arg(long, value_name = "NUMBER", conflicts_with = "user", value_parser = clap::value_parser!(u32).range(1..))]
        project: Option<u32>,
        /// Print a JSON object
        #[arg(long)]
        json: bool,
    },
    /// What everybody takes and may take
    #[command(after_help = "Example:\n  weft quota list ~/fs --json")]
    List {
        /// The file system
        #[arg(value_name = "FS")]
        fs: OsString,
        /// Print a JSON array
        #[arg(long)]
        json: bool,
    },
    /// Limit a user or project
    #[command(after_help = "\
Examples:
  weft quota set ~/fs --user 1000 --inodes 100000
  weft quota set ~/fs --user 1000 --bytes 10G
  weft quota set ~/fs --user 1000 --inodes none --bytes none
  weft quota set ~/fs --project 7 --bytes 2T

A limit that is not given stays as it is. One below what he has takes nothing away: he makes or writes nothing more
until he has removed enough. Metadata servers that do not answer are told when they are back, within some seconds.
Files that he has open for writing when he gets his first limit of bytes are not limited until they are closed, or
for an hour.")]
    #[command(group(clap::ArgGroup::new("limits").required(true).multiple(true).args(["inodes", "bytes"])))]
    Set {
        /// The file system
        #[arg(value_name = "FS")]
        fs: OsString,
        /// The number of the user; root is not limited
        #[arg(long, value_name = "UID", value_parser = clap::value_parser!(u32).range(1..))]
        user: Option<u32>,
        /// The number of the project
        #[arg(long, value_name = "NUMBER", conflicts_with = "user", required_unless_present = "user",
              value_parser = clap::value_parser!(u32).range(1..))]
        project: Option<u32>,
        /// Files, directories, symlinks and so on that there may be; `none`: as many as he likes
        #[arg(long, value_name = "NUMBER", value_parser = inodes)]
        inodes: Option<Limit>,
        /// What files may take; `none`: as much as he likes
        #[arg(long, value_name = "SIZE", value_parser = bytes)]
        bytes: Option<Limit>,
    },
    /// Let a directory, and all in it, count for a project
    #[command(after_help = "\
Examples:
  weft quota project 7 ~/fs:/climate
  weft quota project none ~/fs:/climate

What is made in it from then on counts, too. What counts for another project, or none, cannot be moved into it
(mv copies then); what is moved out of it counts as before. A key without limits may do it. It can be broken off and
begun again.")]
    Project {
        /// Its number from 1, or `none`
        #[arg(value_name = "NUMBER", value_parser = project)]
        project: u32,
        /// Which tree, as FS:/PATH
        #[arg(required = true, value_name = "FS:/PATH")]
        places: Vec<OsString>,
        /// Tell how far it is, also if nobody watches the terminal
        #[arg(long)]
        progress: bool,
    },
}

#[derive(Clone, Copy, Debug)]
struct Limit(Option<u64>);

fn project(text: &str) -> Result<u32, String> {
    match text {
        "none" => Ok(0),
        _ => text.parse().ok().filter(|number| *number != 0).ok_or_else(|| "give a number from 1, or `none`".into()),
    }
}

fn inodes(text: &str) -> Result<Limit, String> {
    limit(text, || text.parse().map_err(|_| "give a number, or `none`".into()))
}

fn bytes(text: &str) -> Result<Limit, String> {
    limit(text, || text.parse().map(|ByteSize(bytes)| bytes).map_err(|why| format!("{why}; or `none`")))
}

fn limit(text: &str, number: impl FnOnce() -> Result<u64, String>) -> Result<Limit, String> {
    if text == "none" { Ok(Limit(None)) } else { number().map(|number| Limit(Some(number))) }
}

#[derive(Serialize)]
struct Row {
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    project: Option<u32>,
    inodes: u64,
    /// `null`: as many as he likes.
    inodes_max: Option<u64>,
    bytes: u64,
    /// Beside these, for files that somebody writes to.
    bytes_reserved: u64,
    /// `null`: as many as he likes.
    bytes_max: Option<u64>,
}

impl Row {
    fn of(QuotaId { kind, number }: QuotaId, usage: QuotaUsage) -> Row {
        let (user, project) = match kind {
            QuotaKind::User => (Some(number), None),
            QuotaKind::Project => (None, Some(number)),
        };
        let QuotaUsage { inodes, inodes_max, bytes, bytes_reserved, bytes_max } = usage;
        Row { user, project, inodes, inodes_max, bytes, bytes_reserved, bytes_max }
    }
}

impl Args {
    pub fn run(self, common: &Common) -> Result<bool> {
        match self.what {
            What::Show { fs, user, project, json } => {
                let fs = Fs::open(&fs, common)?;
                let id = project.map_or(QuotaId::user(user.unwrap_or(fs.who.uid)), QuotaId::project);
                // Whoever may list what everybody takes may ask for one of them as well.
                let who = if user.is_some_and(|user| user != fs.who.uid) { &Credentials::ROOT } else { &fs.who };
                let rows = rows(&fs, who, id.kind, id.number..=id.number)?;
                // Who takes nothing is told so.
                let row = rows.into_iter().next().unwrap_or(Row::of(id, QuotaUsage::default()));
                print_as(json, &row, || text(std::slice::from_ref(&row)))?;
            }
            What::List { fs, json } => {
                let fs = Fs::open(&fs, common)?;
                let mut all = rows(&fs, &Credentials::ROOT, QuotaKind::User, 0..=u32::MAX)?;
                let users = all.len();
                all.extend(rows(&fs, &Credentials::ROOT, QuotaKind::Project, 0..=u32::MAX)?);
                print_as(json, &all, || {
                    let (users, projects) = all.split_at(users);
                    text(users) + &if projects.is_empty() { String::new() } else { text(projects) }
                })?;
            }
            What::Set { fs, user, project, inodes, bytes } => {
                let fs = Fs::open(&fs, common)?;
                let id = project.map_or(QuotaId::user(user.unwrap_or_default()), QuotaId::project);
                let whose = format!("{} {}", if project.is_some() { "project" } else { "user" }, id.number);
                let mut untold = BTreeSet::new();
                if let Some(Limit(most)) = inodes {
                    untold.extend(fs.run(fs.client.limit_inodes(id, most)).map_err(|error| anyhow!("{}", fs.why(&error)))?);
                    let limit = most.map_or("is not limited in inodes".into(), |inodes| format!("may have {inodes} inodes"));
                    print(&format!("{whose} {limit}\n"))?;
                }
                if let Some(Limit(most)) = bytes {
                    untold.extend(fs.run(fs.client.limit_bytes(id, most)).map_err(|error| anyhow!("{}", fs.why(&error)))?);
                    let limit = most.map_or("is not limited in bytes".into(), |bytes| format!("may have {}", human_bytes(bytes)));
                    print(&format!("{whose} {limit}\n"))?;
                }
                if !untold.is_empty() {
                    let map = fs.client.map();
                    let names: Vec<&str> = untold.iter().filter_map(|id| Some(map.server(*id)?.name.as_str())).collect();
                    tell(&format!("not told yet, they do not answer: {}; they are told when they do", names.join(", ")));
                }
            }
            What::Project { project, places, progress } => return set_project(project, &places, progress, common),
        }
        Ok(true)
    }
}

fn set_project(project: u32, places: &[OsString], progress: bool, common: &Common) -> Result<bool> {
    let places = open_all(places, common)?;
    let done = if project == 0 { "no project".into() } else { format!("project {project}") };
    let say = |so_far: &TreeOutcome| format!("{} objects count for {done}", so_far.changed + so_far.as_before);
    let mut failed = 0;
    for (fs, path) in &places {
        let attr = fs.stat(path, path.ends_with(b"/"))?;
        let mut course = Course::new(fs, path, progress);
        let (root, setting) = ((attr.handle, attr.kind), TreeSetting::Project(project));
        let all = fs.run(fs.client.set_tree(&Credentials::ROOT, root, setting, |news| course.take(&news, say)));
        failed += all.failed;
        print(&format!("{}\n", say(&all)))?;
    }
    Ok(failed == 0)
}

fn rows(fs: &Fs, who: &Credentials, kind: QuotaKind, numbers: RangeInclusive<u32>) -> Result<Vec<Row>> {
    let found = fs.run(fs.client.usage(who, kind, numbers)).map_err(|error| anyhow!("{}", fs.why(&error)))?;
    Ok(found.into_iter().map(|(number, usage)| Row::of(QuotaId { kind, number }, usage)).collect())
}

fn text(rows: &[Row]) -> String {
    let whose = if rows.iter().any(|row| row.project.is_some()) { ">project" } else { ">user" };
    let mut table = Table::new(&[whose, ">inodes", ">at most", ">bytes", ">at most"]);
    for row in rows {
        let inodes_max = row.inodes_max.map_or("-".into(), |inodes| inodes.to_string());
        let bytes_max = row.bytes_max.map_or("-".into(), human_bytes);
        table.row(vec![
            row.user.or(row.project).unwrap_or_default().to_string(),
            row.inodes.to_string(),
            inodes_max,
            human_bytes(row.bytes),
            bytes_max,
        ]);
    }
    table.render()
}
