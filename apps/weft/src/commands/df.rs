//! `weft df`: how full a file system is, server by server.

use std::ffi::OsString;

use anyhow::Result;
use serde::Serialize;
use weft_base::ServerRole;
use weft_client::DataSpace;
use weft_host::connect::{Common, Fs};
use weft_host::fs_arg::FsPath;
use weft_host::output::{Table, print_as};
use weft_host::units::human_bytes;
use weft_wire::ops::ServerInfo;

/// Show how full a file system is, without a mount
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "weft df [OPTIONS] <FS[:/PATH]|--state <DIR>>",
    after_help = "Example:\n  weft df ~/fs\n\nA disk that several data servers lie on is counted once in the total."
)]
pub struct Args {
    /// The file system; a path behind it changes nothing
    #[arg(value_name = "FS[:/PATH]", required_unless_present = "state")]
    fs: Option<OsString>,
    /// The same, by its state directory
    #[arg(long, value_name = "DIR", conflicts_with = "fs")]
    state: Option<OsString>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Default, Serialize)]
struct Report {
    fs: String,
    fs_id: String,
    capacity_bytes: u64,
    used_bytes: u64,
    free_bytes: u64,
    inodes: u64,
    servers: Vec<Row>,
}

#[derive(Serialize)]
struct Row {
    name: String,
    role: String,
    answers: bool,
    capacity_bytes: u64,
    used_bytes: u64,
    free_bytes: u64,
    objects: u64,
}

impl Args {
    pub fn run(self, common: &Common) -> Result<bool> {
        let given = self.fs.or(self.state).unwrap_or_default();
        // Like df(1): whatever lies in the file system names it.
        let fs = FsPath::parse(&given).map_or(given, |at| at.fs);
        let fs = Fs::open(&fs, &common.for_a_look())?;
        let report = report(&fs);
        print_as(self.json, &report, || text(&report))?;
        Ok(report.servers.iter().all(|row| row.answers))
    }
}

fn report(fs: &Fs) -> Report {
    let mut report = Report { fs: fs.client.map().fs_name.clone(), fs_id: fs.id().to_string(), ..Report::default() };
    let answers = fs.ping_all();
    let space = DataSpace::of(answers.iter().filter_map(|(_, answer)| answer.as_ref().ok()));
    (report.capacity_bytes, report.used_bytes, report.free_bytes) = (space.capacity_bytes, space.used_bytes, space.free_bytes);
    for (entry, answer) in answers {
        let (role, answers) = (entry.id.role(), answer.is_ok());
        let ServerInfo { capacity_bytes, used_bytes, free_bytes, objects, .. } = answer.unwrap_or_default();
        if role == ServerRole::Meta {
            report.inodes += objects;
        }
        report.servers.push(Row { name: entry.name, role: role.to_string(), answers, capacity_bytes, used_bytes, free_bytes, objects });
    }
    report
}

fn text(report: &Report) -> String {
    let mut table = Table::new(&["server", "role", ">size", ">used", ">free", ">use%", ">objects"]);
    let percent = |used: u64, free: u64| {
        if used + free == 0 { "-".into() } else { format!("{}%", (used * 100).div_ceil(used + free)) }
    };
    for row in &report.servers {
        let cell = |bytes: u64| if row.answers { human_bytes(bytes) } else { "?".into() };
        table.row(vec![
            row.name.clone(),
            row.role.clone(),
            cell(row.capacity_bytes),
            cell(row.used_bytes),
            cell(row.free_bytes),
            if row.answers { percent(row.used_bytes, row.free_bytes) } else { "no answer".into() },
            if row.answers { row.objects.to_string() } else { "?".into() },
        ]);
    }
    table.row(vec![
        "data total".into(),
        String::new(),
        human_bytes(report.capacity_bytes),
        human_bytes(report.used_bytes),
        human_bytes(report.free_bytes),
        percent(report.used_bytes, report.free_bytes),
        String::new(),
    ]);
    table.render()
}
