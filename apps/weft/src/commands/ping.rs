//! `weft ping`: checks that every server answers, belongs to this file system, and that exactly one
//! owns the root.

use anyhow::Result;
use serde::Serialize;
use weft_base::{ClusterMap, ServerEntry};
use weft_host::connect::{Common, Fs};
use weft_host::named::NamedFs;
use weft_host::output::{Table, print_as};
use weft_wire::ops::ServerInfo;

/// The engine that keeps nothing: each of its starts has a random number.
const MEMORY: &str = "memory";

/// Check that every server answers and that they are one file system
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  weft ping ~/fs\n  weft ping weft://node1:7000/demo --timeout 5 --key-file key")]
pub struct Args {
    #[command(flatten)]
    fs: NamedFs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report {
    fs: String,
    fs_id: String,
    ok: bool,
    root_owner: Option<String>,
    servers: Vec<Row>,
    problems: Vec<String>,
}

#[derive(Serialize)]
struct Row {
    name: String,
    role: String,
    address: String,
    answers: bool,
    state: String,
    owns_root: bool,
    engine: String,
    durability: String,
    boot: u32,
}

impl Args {
    pub fn run(self, common: &Common) -> Result<bool> {
        let fs = Fs::open(self.fs.text(), &common.for_a_look())?;
        let map = fs.client.map().clone();
        let explain = |error: weft_client::Error| fs.why(&error);
        let answers = fs.ping_all().into_iter().map(|(entry, answer)| (entry, answer.map_err(explain))).collect();
        let report = report(&map, answers);
        print_as(self.json, &report, || text(&report))?;
        Ok(report.ok)
    }
}

fn report(map: &ClusterMap, answers: Vec<(ServerEntry, Result<ServerInfo, String>)>) -> Report {
    let mut problems = Vec::new();
    let mut owners = Vec::new();
    let mut servers = Vec::new();
    for (entry, answer) in answers {
        let role = entry.id.role().to_string();
        let mut row = Row {
            name: entry.name.clone(),
            role,
            address: entry.address.clone(),
            answers: answer.is_ok(),
            state: "does not answer".into(),
            owns_root: false,
            engine: String::new(),
            durability: String::new(),
            boot: 0,
        };
        match answer {
            Err(error) => problems.push(format!("{} does not answer: {error}", entry.name)),
            Ok(info) => {
                if info.fs_id != map.fs_id {
                    problems.push(format!("{} belongs to file system {}, not {}", entry.name, info.fs_id, map.fs_id));
                }
                if info.server != entry.id {
                    problems.push(format!("{} says that it is {}, the map says {}", entry.name, info.server, entry.id));
                }
                if info.state != "serving" {
                    problems.push(format!("{} is not serving: {}", entry.name, info.state));
                }
                if info.owns_root {
                    owners.push(entry.name.clone());
                }
                row.owns_root = info.owns_root;
                // A server that keeps nothing promises nothing, whatever it was told to.
                let durability = if info.engine == MEMORY { "none".to_string() } else { info.durability };
                (row.state, row.engine, row.durability, row.boot) = (info.state, info.engine, durability, info.boot);
            }
        }
        servers.push(row);
    }
    match owners.len() {
        1 => {}
        0 => problems.push("no server that answers owns the root directory".into()),
        _ => problems.push(format!("several servers own the root directory: {}", owners.join(", "))),
    }
    let root_owner = if owners.len() == 1 { owners.pop() } else { None };
    Report { fs: map.fs_name.clone(), fs_id: map.fs_id.to_string(), ok: problems.is_empty(), root_owner, servers, problems }
}

fn text(report: &Report) -> String {
    let mut table = Table::new(&["server", "role", "address", "state", "engine", "durability", ">starts", "root"]);
    for row in &report.servers {
        let counts_starts = row.answers && row.engine != MEMORY;
        let starts = if counts_starts { row.boot.to_string() } else { String::new() };
        let root = if row.owns_root { "owner" } else { "" };
        let (engine, durability) = (row.engine.clone(), row.durability.clone());
        table.row(vec![
            row.name.clone(),
            row.role.clone(),
            row.address.clone(),
            row.state.clone(),
            engine,
            durability,
            starts,
            root.into(),
        ]);
    }
    let mut text = format!("file system {} ({})\n{}", report.fs, report.fs_id, table.render());
    for problem in &report.problems {
        text += &format!("problem: {problem}\n");
    }
    if report.ok {
        text +=
            &format!("all {} servers answer, and {} owns the root\n", report.servers.len(), report.root_owner.as_deref().unwrap_or("one"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_base::{FsId, ServerId};

    fn info(server: ServerId, owns_root: bool) -> ServerInfo {
        ServerInfo {
            fs_id: FsId(7),
            fs_name: "demo".into(),
            server,
            name: server.to_string(),
            owns_root,
            engine: "journal".into(),
            durability: "batch".into(),
            state: "serving".into(),
            uptime_ms: 1,
            boot: 1,
            ..ServerInfo::default()
        }
    }

    fn judge(answers: Vec<Result<ServerInfo, String>>) -> Report {
        let entry = |id: ServerId| ServerEntry { id, name: id.to_string(), address: "unix:/x".into() };
        let ids = [ServerId(0), ServerId(1), ServerId::data(0)];
        let map = ClusterMap::of(FsId(7), "demo", ids.map(entry), 65536).founded(1);
        report(&map, ids.into_iter().map(entry).zip(answers).collect())
    }

    #[test]
    fn a_sound_file_system() {
        let report = judge(vec![Ok(info(ServerId(0), true)), Ok(info(ServerId(1), false)), Ok(info(ServerId::data(0), false))]);
        assert!(report.ok, "{:?}", report.problems);
        assert_eq!(report.root_owner.as_deref(), Some("meta0"));
    }

    #[test]
    fn servers_that_keep_nothing_promise_nothing_and_count_no_starts() {
        let memory = |id| Ok(ServerInfo { engine: "memory".into(), boot: 621_850_320, ..info(id, id == ServerId(0)) });
        let report = judge(vec![memory(ServerId(0)), Ok(info(ServerId(1), false)), memory(ServerId::data(0))]);
        assert_eq!(report.servers.iter().map(|row| row.durability.as_str()).collect::<Vec<_>>(), ["none", "batch", "none"]);
        assert!(!text(&report).contains("621850320"), "{}", text(&report));
    }

    #[test]
    fn every_problem_is_named() {
        let wrong_fs = ServerInfo { fs_id: FsId(8), ..info(ServerId(0), true) };
        let wrong_id = ServerInfo { state: "replaying".into(), ..info(ServerId(0), true) };
        let report = judge(vec![Ok(wrong_fs), Ok(wrong_id), Err("refused".into())]);
        assert!(!report.ok && report.root_owner.is_none());
        for words in ["belongs to file system", "meta1 says that it is meta0", "not serving: replaying", "data0 does not answer", "several"]
        {
            assert!(report.problems.iter().any(|problem| problem.contains(words)), "{words}: {:?}", report.problems);
        }
        let none = judge(vec![Err("gone".into()), Ok(info(ServerId(1), false)), Ok(info(ServerId::data(0), false))]);
        assert!(none.problems.iter().any(|problem| problem.contains("no server that answers owns the root")));
    }
}
