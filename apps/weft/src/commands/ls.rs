//! `weft ls`: lists directories without a mount.

use std::ffi::OsString;

use anyhow::Result;
use serde::Serialize;
use weft_base::{Attr, FileKind, MODE_ACL, WallTime};
use weft_client::DirItem;
use weft_host::connect::{Common, Fs, kind_letter, kind_word, open_all};
use weft_host::output::{Table, print, print_json, show_name};
use weft_host::paths::joined;

/// List directories without a mount
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  weft ls ~/fs:/\n  weft ls -l weft://node1:7000/demo:/results")]
pub struct Args {
    /// What to list, as FS:/PATH
    #[arg(required = true, value_name = "FS:/PATH")]
    places: Vec<OsString>,
    /// Long: mode, links, owner, size and time of each entry
    #[arg(short, long)]
    long: bool,
    /// The directory itself, not its entries
    #[arg(short, long)]
    directory: bool,
    /// Print a JSON array
    #[arg(long)]
    json: bool,
}

/// An entry as JSON.
#[derive(Serialize)]
struct Row {
    name: String,
    path: String,
    kind: &'static str,
    mode: String,
    nlink: u32,
    uid: u32,
    gid: u32,
    size: u64,
    /// Somebody is writing the file and a data server does not answer: the size is the one known
    /// last.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    size_is_old: bool,
    mtime_s: i64,
    mtime_ns: u32,
    handle: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<String>,
}

impl Args {
    pub fn run(self, common: &Common) -> Result<()> {
        let places = open_all(&self.places, common)?;
        let mut rows = Vec::new();
        for (number, (fs, path)) in places.iter().enumerate() {
            let items = self.items(fs, path)?;
            if self.json {
                for item in items {
                    rows.push(row(fs, path, &item)?);
                }
                continue;
            }
            if places.len() > 1 {
                print(&format!("{}{}:{}:\n", if number > 0 { "\n" } else { "" }, fs.name, show_name(path)))?;
            }
            print(&if self.long { long_listing(fs, &items)? } else { items.iter().map(|item| show_name(&item.name) + "\n").collect() })?;
        }
        if self.json {
            print_json(&rows)?;
        }
        Ok(())
    }

    /// The entries of a directory, or the object itself.
    fn items(&self, fs: &Fs, path: &[u8]) -> Result<Vec<DirItem>> {
        let attr = fs.stat(path, !self.directory && !self.long || path.ends_with(b"/"))?;
        if attr.kind == FileKind::Directory && !self.directory {
            return fs.list(path, attr.handle, self.long || self.json);
        }
        let name = bytes::Bytes::copy_from_slice(path);
        Ok(vec![DirItem { name, handle: attr.handle, kind: attr.kind, cookie: 0, attr: Some(attr), is_exact: true }])
    }
}

fn long_listing(fs: &Fs, items: &[DirItem]) -> Result<String> {
    let mut table = Table::new(&["mode", ">links", ">uid", ">gid", ">size", "modified (UTC)", "name"]);
    for item in items {
        // Without attributes the object was removed while we listed.
        let Some(attr) = &item.attr else { continue };
        let arrow = match link_target(fs, item)? {
            Some(target) => format!(" -> {target}"),
            None => String::new(),
        };
        table.row(vec![
            mode_string(attr),
            attr.nlink.to_string(),
            attr.uid.to_string(),
            attr.gid.to_string(),
            size_words(item, attr.size),
            time_string(attr.mtime),
            show_name(&item.name) + &arrow,
        ]);
    }
    Ok(table.render())
}

/// A size that only a data server knows which does not answer is the one known last.
fn size_words(item: &DirItem, size: u64) -> String {
    if item.is_exact { size.to_string() } else { format!("~{size}") }
}

fn link_target(fs: &Fs, item: &DirItem) -> Result<Option<String>> {
    if item.kind != FileKind::Symlink {
        return Ok(None);
    }
    Ok(Some(show_name(&fs.run_at(&item.name, fs.client.readlink(item.handle))?)))
}

fn row(fs: &Fs, path: &[u8], item: &DirItem) -> Result<Row> {
    let attr = match item.attr {
        Some(attr) => attr,
        None => fs.run_at(&item.name, fs.client.getattr(item.handle))?,
    };
    let whole = if item.name == path { path.to_vec() } else { joined(path, &item.name) };
    let (mtime_s, mtime_ns) = attr.mtime.parts();
    Ok(Row {
        name: String::from_utf8_lossy(item.name.rsplit(|byte| *byte == b'/').next().unwrap_or_default()).into_owned(),
        path: String::from_utf8_lossy(&whole).into_owned(),
        kind: kind_word(attr.kind),
        mode: format!("{:04o}", attr.permissions()),
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        size: attr.size,
        size_is_old: !item.is_exact,
        mtime_s,
        mtime_ns,
        handle: attr.handle.to_string(),
        target: link_target(fs, item)?,
    })
}

/// `drwxr-xr-x`, as `ls -l` writes it, with a `+` if there is an access control list, too.
pub fn mode_string(attr: &Attr) -> String {
    let mut text = String::from(kind_letter(attr.kind));
    let special = [(0o4000, 's'), (0o2000, 's'), (0o1000, 't')];
    for (shift, (special_bit, letter)) in [6, 3, 0].into_iter().zip(special) {
        let bits = attr.mode >> shift;
        text.push(if bits & 4 != 0 { 'r' } else { '-' });
        text.push(if bits & 2 != 0 { 'w' } else { '-' });
        text.push(match (attr.mode & special_bit != 0, bits & 1 != 0) {
            (false, false) => '-',
            (false, true) => 'x',
            (true, true) => letter,
            (true, false) => letter.to_ascii_uppercase(),
        });
    }
    if attr.mode & MODE_ACL != 0 {
        text.push('+');
    }
    text
}

/// `2024-02-29 12:34:56`, in UTC.
pub fn time_string(time: WallTime) -> String {
    let (seconds, _) = time.parts();
    let (days, of_day) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    // Civil date from a day number, by eras of 400 years that begin on 1 March: leap days then end
    // their year.
    let days = days + 719_468;
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02}", of_day / 3600, of_day / 60 % 60, of_day % 60)
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_base::{Handle, Layout, SECOND};

    #[test]
    fn times_are_civil_dates() {
        let at = |seconds: i64| time_string(WallTime(seconds * SECOND as i64));
        assert_eq!(at(0), "1970-01-01 00:00:00");
        assert_eq!(at(951_782_399), "2000-02-28 23:59:59");
        assert_eq!(at(951_782_400), "2000-02-29 00:00:00");
        assert_eq!(at(1_709_210_096), "2024-02-29 12:34:56");
        assert_eq!(at(4_107_542_400), "2100-03-01 00:00:00");
        assert_eq!(at(-1), "1969-12-31 23:59:59");
    }

    #[test]
    fn modes_as_ls_writes_them() {
        let mode = |kind, mode| {
            let layout = Layout { stripe_bytes: 65536, width: 1, first: 0, generation: 1 };
            mode_string(&Attr::new(Handle(1), kind, mode, layout, WallTime(0)))
        };
        assert_eq!(mode(FileKind::Directory, 0o1777), "drwxrwxrwt");
        assert_eq!(mode(FileKind::File, 0o4755), "-rwsr-xr-x");
        assert_eq!(mode(FileKind::File, 0o2640), "-rw-r-S---");
        assert_eq!(mode(FileKind::Symlink, 0o777), "lrwxrwxrwx");
    }
}
