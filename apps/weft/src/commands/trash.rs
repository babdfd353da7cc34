//! `weft trash`: what `weft rm --trash` has moved away, back again or gone for good.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use serde::Serialize;
use weft_base::{Handle, Status, WallTime};
use weft_client::{Discarded, TRASH, TrashFault, TreeRemoved};
use weft_host::connect::{Common, Fs, FsPlace, kind_word};
use weft_host::output::{Table, print, print_as, print_json, shell_word, show_name};

use super::course::Course;
use super::ls::time_string;

/// See what weft rm --trash has moved away, bring it back, or remove it for good
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  weft rm --trash ~/fs:/results/2023
  weft trash list ~/fs
  weft trash restore ~/fs:/results/2023
  weft trash empty --older 7d ~/fs

Each user has a trash in the file system: /.trash/UID. What is in it takes its room (weft du ~/fs:/.trash) until it is
emptied: nothing empties it by itself. With a key for a subtree, the trash is in the top of that.")]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Print what is in it, the oldest first
    #[command(after_help = "Example:\n  weft trash list ~/fs")]
    List {
        /// The file system
        #[arg(value_name = "FS")]
        fs: OsString,
        /// Print a JSON array
        #[arg(long)]
        json: bool,
    },
    /// Move back what was removed last from a path; nothing is overwritten
    #[command(after_help = "\
Examples:
  weft trash restore ~/fs:/results/2023
  weft trash restore ~/fs:/results/2023 --entry 1764106811123456789 --to /old")]
    Restore {
        /// Where it was, as FS:/PATH
        #[arg(value_name = "FS:/PATH")]
        place: OsString,
        /// The one with this number, as weft trash list prints it
        #[arg(long, value_name = "NUMBER")]
        entry: Option<i64>,
        /// Give it this path in the same file system instead
        #[arg(long, value_name = "/PATH")]
        to: Option<OsString>,
    },
    /// Remove what is in it for good, by the servers
    #[command(after_help = "Examples:\n  weft trash empty ~/fs\n  weft trash empty --older 7d ~/fs")]
    Empty {
        /// The file system
        #[arg(value_name = "FS")]
        fs: OsString,
        /// Only what was removed longer ago than this: 90m, 12h, 7d, 2w
        #[arg(long, value_name = "AGE", value_parser = age)]
        older: Option<Duration>,
        /// Tell how far it is, also if nobody watches the terminal
        #[arg(long)]
        progress: bool,
        /// Print how much was removed as JSON
        #[arg(long)]
        json: bool,
    },
}

#[derive(Serialize)]
struct Row {
    entry: i64,
    removed: String,
    kind: &'static str,
    path: Option<String>,
    name: String,
}

#[derive(Serialize)]
struct Emptied {
    entries: u64,
    files: u64,
    directories: u64,
    failed: u64,
}

impl Args {
    pub fn run(self, common: &Common) -> Result<bool> {
        match self.action {
            Action::List { fs, json } => list(&Fs::open(&fs, common)?, json),
            Action::Restore { place, entry, to } => {
                let FsPlace { fs, path } = FsPlace::open(&place, common)?;
                restore(&fs, &plain(&path), entry, to.as_ref().map(|to| to.as_bytes()))
            }
            Action::Empty { fs, older, progress, json } => empty(&Fs::open(&fs, common)?, older, progress, json),
        }
    }
}

/// Moves what is at a path into the trash.
pub fn discard(fs: &Fs, path: &[u8]) -> Result<()> {
    let path = &plain(path);
    let (dir, name) = fs.parent(path)?;
    if path.split(|byte| *byte == b'/').nth(1) == Some(TRASH.as_bytes()) {
        bail!("{} is in the trash: weft trash empty, or weft rm without --trash", fs.shown(path));
    }
    let trash = open(fs, true)?.expect("it is made where there is none");
    fs.run_at(path, fs.client.discard(&fs.who, trash, (dir, &name), path))
}

fn list(fs: &Fs, json: bool) -> Result<bool> {
    let found = match open(fs, false)? {
        Some(trash) => fs.run_at(&place_of(fs), fs.client.discarded(&fs.who, trash))?,
        None => Vec::new(),
    };
    if json {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let row = |found: &Discarded| Row {
            entry: found.at.0,
            removed: time_string(found.at),
            kind: kind_word(found.kind),
            path: found.path.as_deref().map(text),
            name: text(&found.name),
        };
        print_json(&found.iter().map(row).collect::<Vec<_>>())?;
    } else if !found.is_empty() {
        let mut table = Table::new(&["removed (UTC)", "entry", "kind", "path"]);
        for Discarded { at, kind, path, name, .. } in &found {
            let path = path.as_ref().map_or_else(|| format!("({})", show_name(name)), |path| show_name(path));
            table.row(vec![time_string(*at), at.0.to_string(), kind_word(*kind).into(), path]);
        }
        print(&table.render())?;
    }
    Ok(true)
}

fn restore(fs: &Fs, path: &[u8], entry: Option<i64>, to: Option<&[u8]>) -> Result<bool> {
    let shown = fs.shown(path);
    let Some(trash) = open(fs, false)? else { bail!("{shown}: nothing is in the trash") };
    let found = fs.run_at(&place_of(fs), fs.client.discarded(&fs.who, trash))?;
    let is_it = |found: &&Discarded| match entry {
        Some(entry) => found.at == WallTime(entry) && found.path.as_deref().is_none_or(|was| was == path),
        None => found.path.as_deref() == Some(path),
    };
    let Some(what) = found.iter().rev().find(is_it) else {
        bail!("{shown}: not in the trash, see weft trash list {}", shell_word(&fs.name))
    };
    let to = to.unwrap_or(path);
    if !to.starts_with(b"/") {
        bail!("--to {}: give a path in {} that begins with /; what is restored stays in its file system", show_name(to), fs.name);
    }
    let (dir, name) = fs.parent(to)?;
    if !fs.run_at(to, fs.client.restore(&fs.who, trash, what, (dir, &name)))? {
        bail!("{} is back, but the trash was emptied at this moment: something may be missing in it", fs.shown(to));
    }
    Ok(true)
}

fn empty(fs: &Fs, older: Option<Duration>, progress: bool, json: bool) -> Result<bool> {
    let place = place_of(fs);
    let mut course = Course::new(fs, &place, progress);
    let say = |done: &TreeRemoved| format!("{} files and {} directories removed", done.files, done.directories);
    let (entries, all) = match open(fs, false)? {
        Some(trash) => {
            let older_ns = older.map(|age| u64::try_from(age.as_nanos()).unwrap_or(u64::MAX));
            fs.run_at(&place, fs.client.empty_trash(&fs.who, trash, older_ns, |news| course.take(&news, say)))?
        }
        None => Default::default(),
    };
    let TreeRemoved { files, directories, failed } = all;
    print_as(json, &Emptied { entries, files, directories, failed }, || format!("{}\n", say(&all)))?;
    Ok(failed == 0)
}

/// The trash of the user who asks; `None` if there is none and none is to be made.
fn open(fs: &Fs, makes: bool) -> Result<Option<Handle>> {
    let all = format!("/{TRASH}").into_bytes();
    fs.run(fs.client.trash(&fs.who, makes)).map_err(|fault| match fault {
        TrashFault::All(error) if matches!(error.status, Status::AccessDenied | Status::NotPermitted) => anyhow!(
            "{}: there is no trash yet, and only root and the owner of the root can make one: weft mkdir -m 1777 {}",
            fs.shown(&all),
            shell_word(fs.shown(&all))
        ),
        TrashFault::All(error) => fs.explain(&all, error),
        TrashFault::Own(error) => fs.explain(&place_of(fs), error),
        TrashFault::Planted(uid) => anyhow!(
            "{} or {} is no directory, or others than its owner may change it (it belongs to user {uid}): nothing is put there or taken out",
            fs.shown(&all),
            fs.shown(&place_of(fs))
        ),
    })
}

/// The path of the trash of the user who asks.
fn place_of(fs: &Fs) -> Vec<u8> {
    format!("/{TRASH}/{}", fs.who.uid).into_bytes()
}

/// A path without what means nothing in it.
fn plain(path: &[u8]) -> Vec<u8> {
    let names = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty() && *name != b".");
    names.flat_map(|name| [b"/", name].concat()).collect()
}

/// A number and its unit.
fn age(text: &str) -> Result<Duration, String> {
    let bad = || format!("`{text}` is no age: write for example 90m, 12h, 7d or 2w");
    let unit = text.chars().last().ok_or_else(bad)?;
    let seconds: u64 = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3600,
        'd' => 86_400,
        'w' => 604_800,
        _ => return Err(bad()),
    };
    let number: u64 = text[..text.len() - unit.len_utf8()].parse().map_err(|_| bad())?;
    number.checked_mul(seconds).map(Duration::from_secs).ok_or_else(bad)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_have_units() {
        assert_eq!((age("90s"), age("7d")), (Ok(Duration::from_secs(90)), Ok(Duration::from_secs(604_800))));
        for bad in ["", "7", "d", "7y", "-1d", "7ö", "99999999999999999w"] {
            assert!(age(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_path_has_one_spelling() {
        assert_eq!(plain(b"//a/./b/"), b"/a/b");
        assert_eq!(plain(b"/"), b"");
    }
}
