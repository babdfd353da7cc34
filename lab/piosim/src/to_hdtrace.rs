//! Simulated runs as HDTrace files: a project and one trace for each rank, with a state for each
//! command, in virtual time. The viewers of traced runs show them, and [`crate::from_hdtrace`]
//! makes the same programs of them again (apart from file views, whose accesses come back as the
//! ranges they touch).

use weft_hdtrace::{Communicator, Element, Entry, Member, Project, ProjectFile, State, Time, TopologyNode, Trace};
use weft_model::{JobKind, Seek};

use crate::program::{Access, Application, Command, Extent};
use crate::record::{CommandSpan, Recording};

/// The project and the traces of the ranks (in their order, each with its path in the topology) of
/// application number `app` of a recorded run.
pub fn export(application: &Application, app: u32, recording: &Recording) -> (Project, Vec<([String; 3], Trace)>) {
    let mut spans: Vec<Vec<&CommandSpan>> = vec![Vec::new(); application.programs.len()];
    for span in recording.commands.iter().filter(|span| span.app == app) {
        spans[span.rank as usize].push(span);
    }
    let ranks = 0..application.ranks();
    let node = |name: String, children| TopologyNode { name, kind: None, children };
    let path = |rank: u32| [format!("client{rank}"), rank.to_string(), "0".to_string()];
    let topology = ranks.clone().map(|rank| {
        let [host, rank, thread] = path(rank);
        node(host, vec![node(rank, vec![node(thread, Vec::new())])])
    });
    let member = |id: usize, local: usize, global: u32| Member { global, local: local as u32, id: id as i64 };
    let communicators = application.communicators.iter().enumerate().map(|(id, ranks)| Communicator {
        name: if id == 0 { "WORLD".to_string() } else { String::new() },
        members: ranks.iter().enumerate().map(|(local, &global)| member(id, local, global)).collect(),
    });
    let file = |file: &crate::program::FileSpec| ProjectFile {
        name: file.name.clone(),
        initial_bytes: file.initial_bytes,
        ..ProjectFile::default()
    };
    let project = Project {
        name: application.name.clone(),
        process_count: Some(application.ranks()),
        description: "simulated".to_string(),
        files: application.files.iter().map(file).collect(),
        levels: ["Hostname", "Rank", "Thread"].map(str::to_string).to_vec(),
        topology: topology.collect(),
        communicators: communicators.collect(),
        ..Project::default()
    };
    let traces = ranks.zip(spans).map(|(rank, spans)| {
        let commands = &application.programs[rank as usize].commands;
        let entry = |span: &CommandSpan| state(application, &commands[span.position as usize], span.start, span.end);
        (path(rank), Trace { entries: spans.into_iter().map(|span| Entry::State(entry(span))).collect(), ..Trace::default() })
    });
    (project, traces.collect())
}

/// The project and the traces of the disks of a recorded run: a state for each access.
pub fn export_disks(servers: u32, recording: &Recording) -> (Project, Vec<([String; 1], Trace)>) {
    let name = |server: u32| format!("server{server}");
    let topology = (0..servers).map(|server| TopologyNode { name: name(server), ..TopologyNode::default() });
    let project = Project {
        name: "disks".to_string(),
        description: "simulated".to_string(),
        levels: vec!["Hostname".to_string()],
        topology: topology.collect(),
        ..Project::default()
    };
    let mut traces: Vec<([String; 1], Trace)> = (0..servers).map(|server| ([name(server)], Trace::default())).collect();
    for span in &recording.disks {
        let kind = if span.kind == JobKind::Read { "Read" } else { "Write" };
        let seek = match span.seek {
            Seek::None => "no",
            Seek::Near => "near",
            Seek::Far => "far",
        };
        let attributes = [("file", u64::from(span.file)), ("offset", span.offset), ("size", span.bytes)];
        let state = State {
            name: kind.to_string(),
            begin: time(span.start),
            end: time(span.end),
            attributes: attributes
                .map(|(key, value)| (key.to_string(), value.to_string()))
                .into_iter()
                .chain([("seek".to_string(), seek.to_string())])
                .collect(),
            ..State::default()
        };
        traces[span.server as usize].1.entries.push(Entry::State(state));
    }
    (project, traces)
}

fn time(nanos: u64) -> Time {
    Time(i64::try_from(nanos).unwrap_or(i64::MAX))
}

fn state(application: &Application, command: &Command, begin: u64, end: u64) -> State {
    let mut state = State { begin: time(begin), end: time(end), ..State::default() };
    let mut set = |name: &str, attributes: &[(&str, String)]| {
        state.name = name.to_string();
        state.attributes.extend(attributes.iter().map(|(key, value)| (key.to_string(), value.clone())));
    };
    let sender = |from: &Option<u32>| from.map_or("-1".to_string(), |from| from.to_string());
    let text = |number: &u64| number.to_string();
    match command {
        Command::Compute { cycles } => set("Compute", &[("cycles", text(cycles))]),
        Command::Send { comm, to, tag, bytes, request } => {
            set("Send", &[("size", text(bytes)), ("toRank", to.to_string()), ("toTag", tag.to_string()), ("cid", comm.to_string())]);
            request.iter().for_each(|request| set("Send", &[("aid", request.to_string())]));
        }
        Command::Recv { comm, from, tag, request } => {
            set("Recv", &[("fromRank", sender(from)), ("fromTag", tag.to_string()), ("cid", comm.to_string())]);
            request.iter().for_each(|request| set("Recv", &[("aid", request.to_string())]));
        }
        Command::Sendrecv { comm, to, send_tag, bytes, from, recv_tag } => {
            set("Sendrecv", &[("size", text(bytes)), ("toRank", to.to_string()), ("toTag", send_tag.to_string())]);
            set("Sendrecv", &[("fromRank", sender(from)), ("fromTag", recv_tag.to_string()), ("cid", comm.to_string())]);
        }
        Command::Wait { requests } => {
            set("Wait", &[]);
            state.data = requests.iter().map(|request| Element::new("For").with("aid", request)).collect();
        }
        Command::Barrier { comm } => set("Barrier", &[("cid", comm.to_string())]),
        Command::Bcast { comm, root, bytes } => {
            set("Bcast", &[("size", text(bytes)), ("rootRank", root.to_string()), ("cid", comm.to_string())]);
        }
        Command::Reduce { comm, root, bytes } => {
            set("Reduce", &[("size", text(bytes)), ("rootRank", root.to_string()), ("cid", comm.to_string())]);
        }
        Command::Allreduce { comm, bytes } => set("Allreduce", &[("size", text(bytes)), ("cid", comm.to_string())]),
        Command::Gather { comm, root, bytes } => {
            set("Gather", &[("size", text(bytes)), ("root", root.to_string()), ("cid", comm.to_string())]);
        }
        Command::Allgather { comm, bytes } => set("Allgather", &[("size", text(bytes)), ("cid", comm.to_string())]),
        Command::FileOpen { comm, file, truncate } => {
            let name = application.files[*file as usize].name.clone();
            set("File_open", &[("cid", comm.to_string()), ("name", name), ("fid", file.to_string())]);
            if *truncate {
                set("File_open", &[("truncate", "true".to_string())]);
            }
        }
        Command::FileClose { file, .. } => set("File_close", &[("fid", file.to_string())]),
        Command::FileSetView { file, view } => {
            // The datatype stays out: the accesses below carry what they touch.
            set("File_view", &[("fid", file.to_string()), ("offset", text(&view.displacement))]);
        }
        Command::FileRead { file, access } => transfer(&mut state, "File_read_at", *file, access),
        Command::FileWrite { file, access } => transfer(&mut state, "File_write_at", *file, access),
        Command::FileReadAll { file, access, .. } => transfer(&mut state, "File_read_at_all", *file, access),
        Command::FileWriteAll { file, access, .. } => transfer(&mut state, "File_write_at_all", *file, access),
    }
    state
}

/// One range stands in the attributes, a list in `<Data>` elements.
fn transfer(state: &mut State, name: &str, file: u32, access: &Access) {
    state.name = name.to_string();
    let mut set = |key: &str, value: u64| state.attributes.push((key.to_string(), value.to_string()));
    set("fid", u64::from(file));
    match access {
        Access::Contiguous(Extent { offset, bytes }) | Access::View { offset, bytes } => {
            set("offset", *offset);
            set("size", *bytes);
        }
        Access::List(list) => {
            let data = |extent: &Extent| Element::new("Data").with("offset", extent.offset).with("size", extent.bytes);
            state.data = list.iter().map(data).collect();
        }
    }
}
