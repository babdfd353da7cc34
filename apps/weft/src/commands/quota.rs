//! `weft quota`: what users take, and may take.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::{Result, anyhow};
use serde::Serialize;
use weft_base::Credentials;
use weft_client::QuotaUsage;
use weft_host::connect::{Common, Fs};
use weft_host::output::{Table, print, print_as, tell};
use weft_host::units::{ByteSize, human_bytes};

/// Show what users take, and limit it
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  weft quota set ~/fs --user 1000 --inodes 100000 --bytes 10G
  weft quota show ~/fs --user 1000
  weft quota list ~/fs

An inode counts for its owner as long as it is there: also in a trash, and without a name as long as somebody
has it open. Bytes are those of the last close, in whole blocks of 4096, as du(1) counts them. Root is not limited.")]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// What one user takes and may take
    #[command(after_help = "Example:\n  weft quota show ~/fs --user 1000")]
    Show {
        /// The file system
        #[arg(value_name = "FS")]
        fs: OsString,
        /// The number of the user [default: who asks]
        #[arg(long, value_name = "UID")]
        user: Option<u32>,
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
    /// Limit a user
    #[command(after_help = "\
Examples:
  weft quota set ~/fs --user 1000 --inodes 100000
  weft quota set ~/fs --user 1000 --bytes 10G
  weft quota set ~/fs --user 1000 --inodes none --bytes none

A limit that is not given stays as it is. One below what he has takes nothing away: he makes or writes nothing more
until he has removed enough. Metadata servers that do not answer are told when they are back, within some seconds.
Files that he has open for writing when he gets his first limit of bytes are not limited until they are closed, or
for an hour.")]
    Set {
        /// The file system
        #[arg(value_name = "FS")]
        fs: OsString,
        /// The number of the user; root is not limited
        #[arg(long, value_name = "UID", value_parser = clap::value_parser!(u32).range(1..))]
        user: u32,
        /// Files, directories, symlinks and so on that he may have; `none`: as many as he likes
        #[arg(long, value_name = "NUMBER", value_parser = inodes, required_unless_present = "bytes")]
        inodes: Option<Limit>,
        /// What his files may take; `none`: as much as he likes
        #[arg(long, value_name = "SIZE", value_parser = bytes)]
        bytes: Option<Limit>,
    },
}

#[derive(Clone, Copy, Debug)]
struct Limit(Option<u64>);

fn inodes(text: &str) -> Result<Limit, String> {
    if text == "none" {
        return Ok(Limit(None));
    }
    text.parse().map(|number| Limit(Some(number))).map_err(|_| "give a number, or `none`".into())
}

fn bytes(text: &str) -> Result<Limit, String> {
    if text == "none" {
        return Ok(Limit(None));
    }
    text.parse().map(|ByteSize(bytes)| Limit(Some(bytes))).map_err(|why| format!("{why}; or `none`"))
}

#[derive(Serialize)]
struct Row {
    user: u32,
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
    fn of(user: u32, usage: QuotaUsage) -> Row {
        let QuotaUsage { inodes, inodes_max, bytes, bytes_reserved, bytes_max } = usage;
        Row { user, inodes, inodes_max, bytes, bytes_reserved, bytes_max }
    }
}

impl Args {
    pub fn run(self, common: &Common) -> Result<ExitCode> {
        match self.what {
            What::Show { fs, user, json } => {
                let fs = Fs::open(&fs, common)?;
                let user = user.unwrap_or(fs.who.uid);
                let rows = rows(&fs, &fs.who, user..=user)?;
                // Who takes nothing is told so.
                let row = rows.into_iter().next().unwrap_or(Row::of(user, QuotaUsage::default()));
                print_as(json, &row, || text(std::slice::from_ref(&row)))?;
            }
            What::List { fs, json } => {
                let fs = Fs::open(&fs, common)?;
                let rows = rows(&fs, &Credentials::ROOT, 0..=u32::MAX)?;
                print_as(json, &rows, || text(&rows))?;
            }
            What::Set { fs, user, inodes, bytes } => {
                let fs = Fs::open(&fs, common)?;
                let mut untold = BTreeSet::new();
                if let Some(Limit(most)) = inodes {
                    untold.extend(fs.run(fs.client.limit_inodes(user, most)).map_err(|error| anyhow!("{}", fs.why(&error)))?);
                    let limit = most.map_or("is not limited in inodes".into(), |inodes| format!("may have {inodes} inodes"));
                    print(&format!("user {user} {limit}\n"))?;
                }
                if let Some(Limit(most)) = bytes {
                    untold.extend(fs.run(fs.client.limit_bytes(user, most)).map_err(|error| anyhow!("{}", fs.why(&error)))?);
                    let limit = most.map_or("is not limited in bytes".into(), |bytes| format!("may have {}", human_bytes(bytes)));
                    print(&format!("user {user} {limit}\n"))?;
                }
                if !untold.is_empty() {
                    let map = fs.client.map();
                    let names: Vec<&str> = untold.iter().filter_map(|id| Some(map.server(*id)?.name.as_str())).collect();
                    tell(&format!("not told yet, they do not answer: {}; they are told when they do", names.join(", ")));
                }
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn rows(fs: &Fs, who: &Credentials, users: std::ops::RangeInclusive<u32>) -> Result<Vec<Row>> {
    let users = fs.run(fs.client.usage(who, users)).map_err(|error| anyhow!("{}", fs.why(&error)))?;
    Ok(users.into_iter().map(|(user, usage)| Row::of(user, usage)).collect())
}

fn text(rows: &[Row]) -> String {
    let mut table = Table::new(&[">user", ">inodes", ">at most", ">bytes", ">at most"]);
    for row in rows {
        let inodes_max = row.inodes_max.map_or("-".into(), |inodes| inodes.to_string());
        let bytes_max = row.bytes_max.map_or("-".into(), human_bytes);
        table.row(vec![row.user.to_string(), row.inodes.to_string(), inodes_max, human_bytes(row.bytes), bytes_max]);
    }
    table.render()
}
