//! `weft xattr`: extended attributes without a mount.

use std::ffi::OsString;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;

use anyhow::{Context, Result};
use serde_json::json;
use weft_host::connect::{Common, FsPlace};
use weft_host::output::{print, print_json, show_name};

/// Read and change extended attributes without a mount
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Print the value of one
    #[command(after_help = "Example:\n  weft xattr get user.origin ~/fs:/data")]
    Get {
        /// Its full name, as user.NAME
        name: OsString,
        /// The object
        #[arg(value_name = "FS:/PATH")]
        place: OsString,
        /// Print JSON; bytes that are no text are replaced
        #[arg(long)]
        json: bool,
    },
    /// Set one
    #[command(after_help = "Example:\n  weft xattr set user.origin sensor-7 ~/fs:/data")]
    Set {
        /// Its full name, as user.NAME
        name: OsString,
        /// Its value
        value: OsString,
        /// The object
        #[arg(value_name = "FS:/PATH")]
        place: OsString,
        /// Fail if it exists
        #[arg(long, conflicts_with = "replace")]
        create: bool,
        /// Fail if it does not exist
        #[arg(long)]
        replace: bool,
    },
    /// Print the names of all
    #[command(after_help = "Example:\n  weft xattr list ~/fs:/data")]
    List {
        /// The object
        #[arg(value_name = "FS:/PATH")]
        place: OsString,
        /// Print a JSON object of names and values
        #[arg(long)]
        json: bool,
    },
    /// Remove one
    #[command(after_help = "Example:\n  weft xattr rm user.origin ~/fs:/data")]
    Rm {
        /// Its full name
        name: OsString,
        /// The object
        #[arg(value_name = "FS:/PATH")]
        place: OsString,
    },
}

impl Args {
    pub fn run(self, common: &Common) -> Result<()> {
        match self.action {
            Action::Get { name, place, json } => {
                let (at, handle) = open(&place, common)?;
                let value = at.fs.run_at(&at.path, at.fs.client.get_xattr(&at.fs.who, handle, name.as_bytes()))?;
                if json {
                    print_json(&json!({ "name": name.to_string_lossy(), "value": String::from_utf8_lossy(&value) }))?;
                } else {
                    let mut out = std::io::stdout().lock();
                    out.write_all(&value).and_then(|()| out.write_all(b"\n")).context("standard output")?;
                }
            }
            Action::Set { name, value, place, create, replace } => {
                let (at, handle) = open(&place, common)?;
                let flags = weft_client::XattrFlags { create_only: create, replace_only: replace };
                let set = at.fs.run_at(&at.path, at.fs.client.set_xattr(&at.fs.who, handle, name.as_bytes(), value.as_bytes(), flags));
                set.with_context(|| match weft_layout::HintName::of_attribute(name.as_bytes()) {
                    Ok(_) => format!(
                        "the hint {} has no meaning with this value or at this object (see `weft hint --help`)",
                        show_name(name.as_bytes())
                    ),
                    Err(_) => format!("set {}", show_name(name.as_bytes())),
                })?;
            }
            Action::List { place, json } => {
                let (at, handle) = open(&place, common)?;
                let names = at.fs.run_at(&at.path, at.fs.client.list_xattr(&at.fs.who, handle))?;
                if json {
                    let mut values = serde_json::Map::new();
                    for name in &names {
                        let value = at.fs.run_at(&at.path, at.fs.client.get_xattr(&at.fs.who, handle, name))?;
                        values.insert(String::from_utf8_lossy(name).into_owned(), String::from_utf8_lossy(&value).into());
                    }
                    print_json(&values)?;
                } else {
                    print(&names.iter().map(|name| show_name(name) + "\n").collect::<String>())?;
                }
            }
            Action::Rm { name, place } => {
                let (at, handle) = open(&place, common)?;
                at.fs.run_at(&at.path, at.fs.client.remove_xattr(&at.fs.who, handle, name.as_bytes()))?;
            }
        }
        Ok(())
    }
}

fn open(place: &OsString, common: &Common) -> Result<(FsPlace, weft_base::Handle)> {
    let at = FsPlace::open(place, common)?;
    let handle = at.fs.stat(&at.path, true)?.handle;
    Ok((at, handle))
}
