//! `weft hint`: what a directory says about the files that are made in it.

use std::ffi::OsString;

use anyhow::{Result, anyhow, bail};
use serde_json::json;
use weft_base::{Attr, FileKind, Handle, Status};
use weft_client::XattrFlags;
use weft_host::config::{Engine, parse_stripe_size};
use weft_host::connect::{Common, FsPlace};
use weft_host::output::{print, print_json, show_name};
use weft_host::units::human_bytes;
use weft_layout::{DistName, HintName, Hints, PRESPLIT_MAX};

use super::layout::check_servers;

/// Say how files and directories of a directory are made: stripes, datafiles, without metadata,
/// names over several servers
#[derive(Debug, clap::Args)]
#[command(after_help = HINTS)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

const HINTS: &str = "\
Hints concern files that are made from now on; directories made below inherit them.
  stripe_size   bytes of a stripe, as 64KiB
  num_dfiles    datafiles of a file
  dist_name     simple_stripe; basic: all of a file in one datafile; varstrip: strips of dist_params
  dist_params   strip_size:BYTES, the stripe size as PVFS2 says it; or strips:DATAFILE:BYTES;... for
                varstrip: the list is repeated over the file, datafile N is on the Nth data server
  no_metafile   1: files belong to root, are readable and writable for everybody, have no times
                and one datafile; 0: off
  presplit      N, or all: the names of directories that are made below are spread over so many
                metadata servers from the beginning; 1: over one
  inline_limit  bytes, at most 16384: files up to this size that are written whole (through a
                mount, by weft cp, weft_put, Python write_bytes) lie on metadata servers, until
                somebody opens them for writing; 0: off; without it inline_limit of the
                configuration counts
  project       1 to 4294967295: all that is made in the directory counts for this project, see
                `weft quota --help`; only root sets it

They are extended attributes too: setfattr -n user.weft.num_dfiles -v 1 DIR (or user.pvfs2.num_dfiles).";

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Set one
    #[command(after_help = "Example:\n  weft hint set num_dfiles 1 ~/fs:/small")]
    Set {
        /// Its name
        #[arg(value_parser = parse_hint)]
        hint: HintName,
        /// Its value
        value: String,
        /// The directory
        #[arg(value_name = "FS:/PATH")]
        place: OsString,
    },
    /// Print those of a directory, and what follows from them for its files
    #[command(after_help = "Example:\n  weft hint show ~/fs:/small")]
    Show {
        /// The directory
        #[arg(value_name = "FS:/PATH")]
        place: OsString,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Remove some, or all
    #[command(after_help = "Example:\n  weft hint clear ~/fs:/small num_dfiles")]
    Clear {
        /// The directory
        #[arg(value_name = "FS:/PATH")]
        place: OsString,
        /// Only these
        #[arg(value_parser = parse_hint)]
        hints: Vec<HintName>,
    },
}

impl Args {
    pub fn run(self, common: &Common) -> Result<()> {
        match self.action {
            Action::Set { hint, value, place } => {
                let dir = Directory::open(&place, common)?;
                dir.set(hint, &value)?;
            }
            Action::Show { place, json } => show(&Directory::open(&place, common)?, json)?,
            Action::Clear { place, hints } => {
                let dir = Directory::open(&place, common)?;
                let present = dir.values()?;
                if let Some(absent) = hints.iter().find(|hint| !present.iter().any(|(name, _)| name == *hint)) {
                    bail!("{} has no hint {}", dir.at.fs.shown(&dir.at.path), absent.short());
                }
                for (name, _) in present.iter().filter(|(name, _)| hints.is_empty() || hints.contains(name)) {
                    let at = &dir.at;
                    at.fs.run_at(&at.path, at.fs.client.remove_xattr(&at.fs.who, dir.handle, name.attribute().as_bytes()))?;
                }
            }
        }
        Ok(())
    }
}

/// A hint by its name, with a prefix or without.
fn parse_hint(text: &str) -> Result<HintName, String> {
    let by_attribute = HintName::of_attribute(text.as_bytes()).ok().flatten();
    by_attribute.or_else(|| HintName::ALL.into_iter().find(|hint| hint.short() == text)).ok_or_else(|| {
        let names: Vec<&str> = HintName::ALL.iter().map(|hint| hint.short()).collect();
        format!("hints are {}", names.join(", "))
    })
}

/// A directory and its hints.
struct Directory {
    at: FsPlace,
    handle: Handle,
}

impl Directory {
    fn open(place: &OsString, common: &Common) -> Result<Directory> {
        let at = FsPlace::open(place, common)?;
        let attr = at.fs.stat(&at.path, true)?;
        if attr.kind != FileKind::Directory {
            bail!("{} is no directory; hints stand at directories", at.fs.shown(&at.path));
        }
        Ok(Directory { handle: attr.handle, at })
    }

    /// Hints and their values, as they are kept.
    fn values(&self) -> Result<Vec<(HintName, String)>> {
        let at = &self.at;
        let names = at.fs.run_at(&at.path, at.fs.client.list_xattr(&at.fs.who, self.handle))?;
        let mut values = Vec::new();
        for name in names.iter().filter_map(|name| HintName::of_attribute(name).ok().flatten()) {
            let value = at.fs.run_at(&at.path, at.fs.client.get_xattr(&at.fs.who, self.handle, name.attribute().as_bytes()))?;
            values.push((name, String::from_utf8_lossy(&value).trim_end_matches('\0').to_string()));
        }
        Ok(values)
    }

    /// Sets one; says what is wrong with it before a server is asked.
    fn set(&self, hint: HintName, value: &str) -> Result<()> {
        // People write units.
        let value = match hint {
            HintName::StripeSize => parse_stripe_size(value).map_or_else(|_| value.to_string(), |bytes| bytes.to_string()),
            _ => value.to_string(),
        };
        let mut hints = Hints::default();
        for (name, value) in self.values()? {
            // They were checked when they were set.
            let _ = hints.set(name, value.as_bytes());
        }
        hints.set(hint, value.as_bytes()).and_then(|()| hints.check()).map_err(|why| anyhow!("{value:?}: {why}"))?;
        check_servers(&hints, &self.at.fs)?;
        let (at, flags) = (&self.at, XattrFlags { create_only: false, replace_only: false });
        let set = at.fs.client.set_xattr(&at.fs.who, self.handle, hint.attribute().as_bytes(), value.as_bytes(), flags);
        match at.fs.run(set) {
            Err(error) if error.status == Status::NotPermitted => {
                bail!("{}: only its owner gives a directory hints", at.fs.shown(&at.path))
            }
            result => result.map_err(|error| at.fs.explain(&at.path, error)),
        }
    }

    fn attr(&self) -> Result<Attr> {
        self.at.fs.stat(&self.at.path, true)
    }
}

fn show(dir: &Directory, json: bool) -> Result<()> {
    let (values, attr) = (dir.values()?, dir.attr()?);
    let names_on = dir.at.fs.run_at(&dir.at.path, dir.at.fs.client.servers_of_names(dir.handle))?;
    let mut hints = Hints::default();
    for (name, value) in &values {
        // They were checked when they were set.
        let _ = hints.set(*name, value.as_bytes());
    }
    let without_metafile = values.iter().any(|(name, value)| *name == HintName::NoMetafile && value != "0");
    let (stripe_bytes, width) = (attr.layout.stripe_bytes, attr.layout.width);
    // The other engines keep none.
    let config = dir.at.fs.config.as_ref().filter(|config| config.engine == Engine::Journal);
    let of_all = config.map_or(0, |config| config.inline_limit);
    let inline_limit = hints.inline_limit.unwrap_or(of_all);
    if json {
        let hints: serde_json::Map<_, _> = values.iter().map(|(name, value)| (name.short().into(), value.clone().into())).collect();
        return Ok(print_json(&json!({
            "hints": hints,
            "stripe_bytes": stripe_bytes,
            "datafiles_max": width,
            "no_metafile": without_metafile,
            "inline_limit": inline_limit,
            "names_on": names_on.iter().map(|server| server.to_string()).collect::<Vec<_>>(),
        }))?);
    }
    let mut text: String = values.iter().map(|(name, value)| format!("{} = {}\n", name.short(), show_name(value.as_bytes()))).collect();
    if values.is_empty() {
        text += "no hints\n";
    }
    text += &match hints.strips() {
        Some(strips) => format!("new files: {strips}"),
        None => format!("new files: stripes of {}, up to {width} datafiles", human_bytes(stripe_bytes.into())),
    };
    if hints.distribution == Some(DistName::Varstrip) && hints.strips.is_none() {
        text += " (varstrip begins when dist_params = strips:... is set)";
    }
    text += if without_metafile { ", without a metafile (root's, mode 666, times 0)\n" } else { "\n" };
    if let Some(servers) = hints.presplit.filter(|servers| *servers > 1) {
        let servers = if servers == PRESPLIT_MAX { "all".to_string() } else { format!("up to {servers}") };
        text += &format!("new directories: names spread over {servers} metadata servers\n");
    }
    if inline_limit > 0 {
        text += &format!("new files written whole, up to {inline_limit} bytes: on the server of their inodes\n");
    }
    if names_on.len() > 1 {
        let servers: Vec<String> = names_on.iter().map(|server| server.to_string()).collect();
        text += &format!("its own names are on {}\n", servers.join(", "));
    }
    Ok(print(&text)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_help_names_every_hint() {
        let named: Vec<&str> = HINTS.lines().filter_map(|line| line.strip_prefix("  ")?.split_whitespace().next()).collect();
        assert!(HintName::ALL.iter().all(|hint| named.contains(&hint.short())), "{named:?}");
    }

    #[test]
    fn hints_have_three_names() {
        for name in ["num_dfiles", "user.weft.num_dfiles", "user.pvfs2.num_dfiles"] {
            assert_eq!(parse_hint(name), Ok(HintName::NumDfiles));
        }
        assert!(parse_hint("num_dfile").unwrap_err().contains("no_metafile"));
    }
}
