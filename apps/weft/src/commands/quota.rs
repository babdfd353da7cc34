//! `weft quota`: what users take.

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::Result;
use serde::Serialize;
use weft_base::Credentials;
use weft_host::connect::{Common, Fs};
use weft_host::output::{Table, print, print_json};
use weft_host::units::human_bytes;

/// Show what users take
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  weft quota show ~/fs
  weft quota list ~/fs

An inode counts for its owner as long as it is there: also in a trash, and without a name as long as somebody
has it open. Bytes are those of the last close, in whole blocks of 4096, as du(1) counts them.")]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// What one user takes
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
    /// What everybody takes
    #[command(after_help = "Example:\n  weft quota list ~/fs --json")]
    List {
        /// The file system
        #[arg(value_name = "FS")]
        fs: OsString,
        /// Print a JSON array
        #[arg(long)]
        json: bool,
    },
}

#[derive(Serialize)]
struct Row {
    user: u32,
    inodes: u64,
    bytes: u64,
}

impl Args {
    pub fn run(self, common: &Common) -> Result<ExitCode> {
        match self.what {
            What::Show { fs, user, json } => {
                let fs = Fs::open(&fs, common)?;
                let user = user.unwrap_or(fs.who.uid);
                // Who takes nothing is told so.
                let rows = rows(&fs, &fs.who, user..=user)?;
                let row = rows.into_iter().next().unwrap_or(Row { user, inodes: 0, bytes: 0 });
                if json { print_json(&row)? } else { print(&text(&[row]))? }
            }
            What::List { fs, json } => {
                let fs = Fs::open(&fs, common)?;
                let rows = rows(&fs, &Credentials::ROOT, 0..=u32::MAX)?;
                if json { print_json(&rows)? } else { print(&text(&rows))? }
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn rows(fs: &Fs, who: &Credentials, users: std::ops::RangeInclusive<u32>) -> Result<Vec<Row>> {
    let users = fs.run(fs.client.usage(who, users)).map_err(|error| anyhow::anyhow!("{}", fs.why(&error)))?;
    Ok(users.into_values().map(|user| Row { user: user.uid, inodes: user.inodes, bytes: user.bytes }).collect())
}

fn text(rows: &[Row]) -> String {
    let mut table = Table::new(&[">user", ">inodes", ">bytes"]);
    for row in rows {
        table.row(vec![row.user.to_string(), row.inodes.to_string(), human_bytes(row.bytes)]);
    }
    table.render()
}
