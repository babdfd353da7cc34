//! `weft du`: sums over trees, without a mount.

use std::ffi::OsString;

use anyhow::Result;
use serde::Serialize;
use weft_base::{Attr, FileKind};
use weft_client::{SumNews, TreeSums};
use weft_host::connect::{Common, Fs, open_all};
use weft_host::output::{print, print_json, show_name, tell};
use weft_host::units::human_bytes;

use weft_host::paths::joined;

/// Sum up directories with all below them, without a mount
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  weft du -s ~/fs:/results
  weft du --max-depth 1 --json ~/fs:/

Sizes are those that stat says, of files and symlinks; directories have none. What has several names counts once.")]
pub struct Args {
    /// What to sum up, as FS:/PATH
    #[arg(required = true, value_name = "FS:/PATH")]
    places: Vec<OsString>,
    /// Only what is named; the same as --max-depth 0
    #[arg(short, long, conflicts_with = "max_depth")]
    summarize: bool,
    /// Print directories so far below what is named
    #[arg(short = 'd', long, value_name = "N")]
    max_depth: Option<usize>,
    /// Print sizes in bytes
    #[arg(short, long)]
    bytes: bool,
    /// Print a JSON array
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Row {
    path: String,
    bytes: u64,
    files: u64,
    directories: u64,
    others: u64,
    /// Files that somebody is writing to a data server that does not answer: their sizes are those
    /// known last.
    #[serde(skip_serializing_if = "is_zero")]
    sizes_are_old: u64,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // as serde wants it
fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// What is printed, and whether anything is missing in it.
#[derive(Default)]
struct Report {
    rows: Vec<Row>,
    is_incomplete: bool,
    printed: Option<std::io::Error>,
}

impl Args {
    pub fn run(self, common: &Common) -> Result<bool> {
        let places = open_all(&self.places, common)?;
        let mut report = Report::default();
        for (fs, path) in &places {
            let attr = fs.stat(path, path.ends_with(b"/"))?;
            if attr.kind == FileKind::Directory {
                self.sum(fs, path, &attr, &mut report);
            } else {
                self.show(fs, path, &of_one(&attr), &mut report);
            }
            if let Some(error) = report.printed.take() {
                return Err(error.into());
            }
        }
        if self.json {
            print_json(&report.rows)?;
        }
        Ok(!report.is_incomplete)
    }

    fn sum(&self, fs: &Fs, path: &[u8], attr: &Attr, report: &mut Report) {
        let depth_max = if self.summarize { 0 } else { self.max_depth.unwrap_or(usize::MAX) };
        let sums = fs.run(fs.client.sum_tree(&fs.who, attr.handle, |news| match news {
            SumNews::Directory { path: below, depth, sums } if depth <= depth_max => self.show(fs, &joined(path, below), sums, report),
            SumNews::Directory { .. } => {}
            SumNews::Failed { path: below, error } => {
                tell(&fs.explain(&joined(path, below), error).to_string());
                report.is_incomplete = true;
            }
        }));
        if sums.inexact > 0 {
            tell(&format!("{}: {} files are being written and a server does not answer", fs.shown(path), sums.inexact));
            report.is_incomplete = true;
        }
    }

    fn show(&self, fs: &Fs, path: &[u8], sums: &TreeSums, report: &mut Report) {
        if self.json {
            return report.rows.push(Row {
                path: String::from_utf8_lossy(path).into_owned(),
                bytes: sums.bytes,
                files: sums.files,
                directories: sums.directories,
                others: sums.others,
                sizes_are_old: sums.inexact,
            });
        }
        let size = if self.bytes { sums.bytes.to_string() } else { human_bytes(sums.bytes) };
        let (files, directories) = (sums.files + sums.others, sums.directories);
        let line = format!("{size:>12} {files:>10} files {directories:>8} directories  {}:{}\n", fs.name, show_name(path));
        if report.printed.is_none() {
            report.printed = print(&line).err();
        }
    }
}

fn of_one(attr: &Attr) -> TreeSums {
    let is_file = attr.kind == FileKind::File;
    let bytes = if is_file || attr.kind == FileKind::Symlink { attr.size } else { 0 };
    TreeSums { bytes, files: u64::from(is_file), others: u64::from(!is_file), ..TreeSums::default() }
}
