//! `weft stat`: everything that is known of an object, its striping included.

use std::ffi::OsString;

use anyhow::Result;
use serde::Serialize;
use weft_base::{Attr, FileKind, MODE_PROJECT};
use weft_host::connect::{Common, Fs, kind_word, open_all};
use weft_host::output::{print, print_json, show_name};
use weft_host::units::human_bytes;

use crate::commands::ls::{mode_string, time_string};

/// Show attributes and striping of objects without a mount
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  weft stat ~/fs:/results/run1.h5")]
pub struct Args {
    /// The objects, as FS:/PATH
    #[arg(required = true, value_name = "FS:/PATH")]
    places: Vec<OsString>,
    /// Follow a symlink at the end of the path
    #[arg(short = 'L', long)]
    dereference: bool,
    /// Print a JSON array
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Row {
    path: String,
    handle: String,
    inode: u64,
    kind: &'static str,
    mode: String,
    nlink: u32,
    uid: u32,
    gid: u32,
    /// The project that it counts for, beside its owner.
    #[serde(skip_serializing_if = "Option::is_none")]
    project: Option<u32>,
    /// It does not change (`weft seal`).
    sealed: bool,
    size: u64,
    /// Bytes that its data takes at the data servers, in whole blocks.
    allocated_bytes: u64,
    /// When it was made, if that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    born_ns: Option<i64>,
    atime_ns: i64,
    mtime_ns: i64,
    ctime_ns: i64,
    metadata_server: String,
    stripe_bytes: u32,
    /// Of a file with the distribution `varstrip`.
    #[serde(skip_serializing_if = "Option::is_none")]
    strips: Option<String>,
    data_servers: Vec<String>,
    /// The metadata servers that hold names of a directory, if there are several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    names_on: Vec<String>,
}

impl Args {
    pub fn run(self, common: &Common) -> Result<()> {
        let places = open_all(&self.places, common)?;
        let mut rows = Vec::new();
        for (fs, path) in &places {
            let attr = fs.stat(path, self.dereference)?;
            let row = row(fs, path, &attr)?;
            if !self.json {
                print(&text(&[fs.name.as_bytes(), b":", path].concat(), &row, &attr))?;
            }
            rows.push(row);
        }
        if self.json {
            print_json(&rows)?;
        }
        Ok(())
    }
}

fn row(fs: &Fs, path: &[u8], attr: &Attr) -> Result<Row> {
    let map = fs.client.map();
    let width = if attr.kind == FileKind::File && !attr.is_inline() { u32::from(attr.layout.width) } else { 0 };
    let strips = match attr.layout.is_varstrip() {
        true => Some(fs.run_at(path, fs.client.strips(attr.handle, &attr.layout))?.to_string()),
        false => None,
    };
    let project = if attr.mode & MODE_PROJECT != 0 { fs.run_at(path, fs.client.project(attr.handle))? } else { 0 };
    let names_on = match attr.kind {
        FileKind::Directory => fs.run_at(path, fs.client.servers_of_names(attr.handle))?,
        _ => Vec::new(),
    };
    let names_on = if names_on.len() > 1 { names_on.into_iter().map(|id| map.name(id)).collect() } else { Vec::new() };
    Ok(Row {
        path: format!("{}:{}", fs.name, String::from_utf8_lossy(path)),
        handle: attr.handle.to_string(),
        inode: attr.handle.0,
        kind: kind_word(attr.kind),
        mode: format!("{:04o}", attr.permissions()),
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        project: Some(project).filter(|project| *project != 0),
        sealed: attr.is_sealed(),
        size: attr.size,
        allocated_bytes: attr.allocated_bytes(),
        born_ns: Some(attr.born.0).filter(|born| *born != 0),
        atime_ns: attr.atime.0,
        mtime_ns: attr.mtime.0,
        ctime_ns: attr.ctime.0,
        metadata_server: map.name(attr.handle.server()),
        stripe_bytes: attr.layout.stripe_bytes,
        strips,
        data_servers: (0..width)
            .map(|index| map.data_server(&attr.layout, index).map_or_else(|_| "a server that is not known yet".into(), |id| map.name(id)))
            .collect(),
        names_on,
    })
}

fn text(path: &[u8], row: &Row, attr: &Attr) -> String {
    let what = if attr.kind == FileKind::Directory { "entries" } else { "bytes" };
    let mut text = format!("  path:     {}\n", show_name(path));
    text += &format!("  kind:     {}, {} {what}, {} links\n", row.kind, row.size, row.nlink);
    text += &format!("  handle:   {} (inode {}) at {}\n", row.handle, row.inode, row.metadata_server);
    text += &format!("  mode:     {} {}, uid {}, gid {}\n", row.mode, mode_string(attr), row.uid, row.gid);
    if let Some(project) = row.project {
        text += &format!("  project:  {project} (weft quota show --project {project})\n");
    }
    if row.sealed {
        text += "  sealed:   it does not change (weft seal)\n";
    }
    text += &format!("  access:   {} UTC\n  modify:   {} UTC\n", time_string(attr.atime), time_string(attr.mtime));
    text += &format!("  change:   {} UTC\n", time_string(attr.ctime));
    if row.born_ns.is_some() {
        text += &format!("  born:     {} UTC\n", time_string(attr.born));
    }
    if attr.is_inline() {
        text += &format!("  takes:    {} at {}, beside its inode\n", human_bytes(row.allocated_bytes), row.metadata_server);
    } else if attr.kind == FileKind::File {
        text += &format!("  takes:    {} at its data servers\n", human_bytes(row.allocated_bytes));
        let stripes = row.strips.clone().unwrap_or_else(|| human_bytes(row.stripe_bytes.into()));
        text += &format!("  striping: {stripes} on {}\n", row.data_servers.join(", "));
    }
    if !row.names_on.is_empty() {
        text += &format!("  names:    on {}\n", row.names_on.join(", "));
    }
    text
}
