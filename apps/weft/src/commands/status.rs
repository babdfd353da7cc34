//! `weft status`: the servers of a state directory: do they run, do they answer, how full are they.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;
use serde::Serialize;
use serde_json::{Value, json};
use weft_base::{ServerId, Status};
use weft_host::config::Config;
use weft_host::connect::{Common, Fs};
use weft_host::mount_list::SeenErrors;
use weft_host::named::NamedState;
use weft_host::output::{Table, print_as, shell_word};
use weft_host::state::StateDir;
use weft_host::units::human_bytes;
use weft_host::{mount_list, process};
use weft_wire::ops::DiskUse;

use super::down;

/// How long a server has for its answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// Show the servers of a state directory and whether they answer
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  weft status --state ~/fs\n\nThe exit code is 0 if every server serves, and no other one runs, else 1.")]
pub struct Args {
    #[command(flatten)]
    state: NamedState,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report {
    fs: String,
    fs_id: String,
    /// Of the cluster map; 0: nobody has told.
    epoch: u32,
    ok: bool,
    servers: Vec<Row>,
    mounts: Vec<MountRow>,
    gateways: Vec<GatewayRow>,
    problems: Vec<String>,
}

#[derive(Serialize)]
struct Row {
    name: String,
    role: String,
    pid: Option<i32>,
    address: String,
    state: String,
    durability: Option<String>,
    used_bytes: Option<u64>,
    objects: Option<u64>,
    uptime_s: Option<f64>,
    /// Of data servers that answer.
    disk: Option<Value>,
}

/// Operations of the disk that holds the data, since the start of the server.
fn disk_row(disk: &DiskUse) -> Value {
    json!({
        "cache_layer": disk.cache_layer,
        "operations": disk.reads + disk.writes,
        "bytes": disk.read_bytes + disk.written_bytes,
        "reads": disk.reads,
        "read_bytes": disk.read_bytes,
        "writes": disk.writes,
        "written_bytes": disk.written_bytes,
        "sequential": disk.sequential,
        "near": disk.near,
        "far": disk.far,
        "gathered": disk.gathered,
        "gathered_jobs": disk.gathered_jobs,
        "sieved_bytes": disk.sieved_bytes,
    })
}

#[derive(Serialize)]
struct MountRow {
    place: String,
    pid: Option<i32>,
    state: &'static str,
    /// Of servers, as the mount has seen them since it began.
    errors: Vec<SeenErrors>,
}

/// An NFS gateway that this user runs on this machine.
#[derive(Serialize)]
struct GatewayRow {
    address: String,
    pid: i32,
}

impl Args {
    pub fn run(self, common: &Common) -> Result<bool> {
        let state = StateDir::existing(&self.state.dir(common)?)?;
        let config = Config::load(&state.config_file())?;
        let report = report(&state, config, common)?;
        print_as(self.json, &report, || text(&report))?;
        Ok(report.ok)
    }
}

fn report(state: &StateDir, config: Config, common: &Common) -> Result<Report> {
    let pid_of = |server: &str| Ok(process::holder(&state.pid_file(server))?.map(|holder| holder.pid));
    let pids: Vec<Option<i32>> = config.servers.iter().map(|server| pid_of(&server.name)).collect::<Result<_>>()?;
    let fs_id = config.fs_id;
    let mut problems = Vec::new();
    for name in down::unnamed_servers(state, &config)? {
        if let Some(holder) = process::holder(&state.pid_file(&name))? {
            let file = config.file.display();
            problems
                .push(format!("{name} runs (process {}), and {file} does not name it any more; weft down ends it with all", holder.pid));
        }
    }
    let fs = Fs::from_config(config, state.root().display().to_string(), &common.with_timeout(PATIENCE))?;
    let map = fs.client.map();
    // On a Unix socket without a process there is nobody to wait for; over TCP it may be the server
    // of another machine.
    let may_answer = map.servers().zip(&pids).filter(|(entry, pid)| pid.is_some() || !entry.address.starts_with("unix:"));
    let answers: BTreeMap<ServerId, _> =
        fs.ping(may_answer.map(|(entry, _)| entry.clone()).collect()).into_iter().map(|(entry, answer)| (entry.id, answer)).collect();
    let mut servers = Vec::new();
    for (index, entry) in map.servers().enumerate() {
        let answer = answers.get(&entry.id);
        // Who was asked may have ended before it answered.
        let pid = if answer.is_some_and(|answer| answer.is_err()) { pid_of(&entry.name)? } else { pids[index] };
        let state_word = match (pid, answer) {
            (_, Some(Ok(info))) => info.state.clone(),
            (None, _) => {
                problems.push(match state.hosts_file().exists() {
                    // What it held went with it.
                    true => {
                        format!("{} is lost; why is in {}/host*.log; weft down ends what is left", entry.name, state.run_dir().display())
                    }
                    false => format!("{} is not running; start it: weft up --state {}", entry.name, shell_word(state.root())),
                });
                "not running".into()
            }
            (Some(pid), error) => {
                let why = error.and_then(|answer| answer.as_ref().err()).map_or(String::new(), |error| format!(": {}", error.status));
                let (name, log) = (&entry.name, state.log_file(&entry.name));
                let is_refused = matches!(error, Some(Err(error)) if error.status == Status::AuthenticationFailed);
                problems.push(match is_refused {
                    // It may serve all others.
                    true => {
                        let root = shell_word(state.root());
                        format!("{name} (process {pid}) refuses the key of this command{why}; weft key list --state {root} shows the keys")
                    }
                    false => format!("{name} (process {pid}) does not answer{why}; its log is {}", log.display()),
                });
                "no answer".into()
            }
        };
        if answer.is_some_and(|answer| answer.is_ok()) && state_word != "serving" {
            problems.push(format!("{} is not serving: {state_word}", entry.name));
        }
        let info = answer.and_then(|answer| answer.as_ref().ok());
        servers.push(Row {
            name: entry.name.clone(),
            role: entry.id.role().to_string(),
            pid,
            address: entry.address.clone(),
            state: state_word,
            durability: info.map(|info| info.durability.clone()),
            used_bytes: info.map(|info| info.used_bytes),
            objects: info.map(|info| info.objects),
            uptime_s: info.map(|info| info.uptime_ms as f64 / 1000.0),
            disk: info.and_then(|info| info.disk.as_ref()).map(disk_row),
        });
    }
    let mut mounts = Vec::new();
    for mount in mount_list::of(fs_id, state)? {
        let word = match (mount.is_mounted()?, mount.pid) {
            (true, Some(_)) => "mounted",
            (true, None) => "dead: unmount it",
            (false, _) => continue,
        };
        mounts.push(MountRow { place: mount.place.display().to_string(), pid: mount.pid, state: word, errors: mount.errors(map) });
    }
    let gateways = fs.gateways()?.into_iter().map(|gateway| GatewayRow { address: gateway.address, pid: gateway.pid }).collect();
    Ok(Report {
        fs: map.fs_name.clone(),
        fs_id: fs_id.to_string(),
        epoch: fs.client.map().epoch,
        ok: problems.is_empty(),
        servers,
        mounts,
        gateways,
        problems,
    })
}

fn text(report: &Report) -> String {
    let mut table = Table::new(&["name", "role", ">pid", "address", "state", "durability", ">used", ">objects", ">uptime"]);
    for row in &report.servers {
        let cell = |value: Option<String>| value.unwrap_or_else(|| "-".into());
        table.row(vec![
            row.name.clone(),
            row.role.clone(),
            cell(row.pid.map(|pid| pid.to_string())),
            row.address.clone(),
            row.state.clone(),
            cell(row.durability.clone()),
            cell(row.used_bytes.map(human_bytes)),
            cell(row.objects.map(|objects| objects.to_string())),
            cell(row.uptime_s.map(|seconds| format!("{seconds:.1} s"))),
        ]);
    }
    let epoch = if report.epoch == 0 { String::new() } else { format!(", map of epoch {}", report.epoch) };
    let mut text = format!("file system {} ({}){epoch}\n{}", report.fs, report.fs_id, table.render());
    for mount in &report.mounts {
        let process = mount.pid.map_or(String::new(), |pid| format!(" by process {pid}"));
        text += &format!("{} at {}{process}\n", mount.state, mount.place);
        for SeenErrors { server, reason, count } in &mount.errors {
            let server = if server.is_empty() { "unknown server" } else { server };
            text += &format!("  {count} operations failed since then: {server}: {reason}\n");
        }
    }
    for GatewayRow { address, pid } in &report.gateways {
        text += &format!("serves NFS at {address} by process {pid}\n");
    }
    for problem in &report.problems {
        text += &format!("problem: {problem}\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silent_server_is_shown_and_named() {
        let row = |name: &str, pid, state: &str, used_bytes: Option<u64>| Row {
            name: name.into(),
            role: "meta".into(),
            pid,
            address: "unix:/s".into(),
            state: state.into(),
            durability: used_bytes.map(|_| "sync".into()),
            used_bytes,
            objects: used_bytes,
            uptime_s: used_bytes.map(|_| 1.25),
            disk: None,
        };
        let errors = SeenErrors { server: "meta1".into(), reason: "no answer before the deadline".into(), count: 3 };
        let report = Report {
            fs: "demo".into(),
            fs_id: "01".into(),
            epoch: 3,
            ok: false,
            servers: vec![row("meta0", Some(7), "serving", Some(2048)), row("meta1", None, "not running", None)],
            mounts: vec![MountRow { place: "/mnt".into(), pid: Some(9), state: "mounted", errors: vec![errors] }],
            gateways: vec![GatewayRow { address: "127.0.0.1:2049".into(), pid: 11 }],
            problems: vec!["meta1 is not running".into()],
        };
        let expected = "\
file system demo (01), map of epoch 3
name   role  pid  address  state        durability     used  objects  uptime
meta0  meta    7  unix:/s  serving      sync        2.0 KiB     2048   1.2 s
meta1  meta    -  unix:/s  not running  -                 -        -       -
mounted at /mnt by process 9
  3 operations failed since then: meta1: no answer before the deadline
serves NFS at 127.0.0.1:2049 by process 11
problem: meta1 is not running
";
        assert_eq!(text(&report), expected);
    }
}
