use weft_trace::merge::{Merged, merge};
use weft_trace::record::{Body, Span, flags};

use super::*;

/// A project of two hosts, written as the tools of 2009 did.
const PROJECT: &str = r#"<?xml version="1.0"?>
<Application name="heat" processCount="2"><Description>two ranks</Description>
<FileList><File name="pvfs2://out.dat"><InitialSize>2K</InitialSize></File></FileList>
<Topology><Level type="Hostname"><Level type="Rank"><Level type="Thread"/></Level></Level>
<Node name="n1"><Node name="0"><Node name="0"/></Node></Node><Node name="n2"><Node name="1"><Node name="0"/></Node></Node></Topology>
<CommunicatorList/><Datatypes/><ExternalStatistics/></Application>"#;
const RANK0: &str = "<Program timeAdjustment='100'>
<File_open name='pvfs2://out.dat' fid='3' time='1.0' end='1.5'/>
<Nested>
  <Recv fromRank='1' time='2.1' end='2.4'/>
  <Event name='half' time='2.2' value='7'/>
</Nested>
<File_write_at fid='3' offset='65536' size='4096' time='2.0' end='3.0'/>
</Program>
";
const RANK1: &str = "<Program timeAdjustment='100'>\n<Compute time='1.0' end='4.0'/>\n</Program>\n";

fn folder(files: &[(&str, &[u8])]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a directory");
    let usual: [(&str, &[u8]); 3] =
        [("run.proj", PROJECT.as_bytes()), ("run_n1_0_0.trc", RANK0.as_bytes()), ("run_n2_1_0.trc", RANK1.as_bytes())];
    for (name, bytes) in usual.iter().chain(files) {
        fs::write(folder.path().join(name), bytes).expect("written");
    }
    folder
}

fn opened(files: &[(&str, &[u8])]) -> Result<Merged, String> {
    let folder = folder(files);
    read(&folder.path().join("run.proj")).map(merge)
}

fn statistics() -> Vec<u8> {
    let header = "<Statistics><TopologyNode><Label value=\"n1\"/></TopologyNode><Group name=\"CPU\" timestampDatatype=\"EPOCH\" \
                  timeAdjustment=\"0.0\"><Value name=\"LOAD 0\" type=\"FLOAT\" unit=\"%\"/><Value name=\"FREE\" type=\"INT64\" unit=\"B\"/></Group></Statistics>";
    let mut bytes = format!("{}\n{header}", header.len()).into_bytes();
    let mut stamp = |seconds: u32| bytes.extend([seconds.to_be_bytes(), 0u32.to_be_bytes()].concat());
    stamp(101);
    for (end, load, free) in [(102u32, 12.5f32, 100i64), (103, 99.0, 40)] {
        bytes.extend([end.to_be_bytes(), 0u32.to_be_bytes(), load.to_be_bytes()].concat());
        bytes.extend(free.to_be_bytes());
    }
    bytes
}

/// Name, node, beginning in ns, duration in ns and the rest of each span.
fn spans(merged: &Merged) -> Vec<(String, String, i64, u64, Span)> {
    let of = |event: weft_trace::events::Event| match &event.record.body {
        Body::Span(span) => {
            let node = &merged.nodes[event.node];
            Some((node.events.name(event.record.event), node.name.clone(), event.start_ns, event.dur_ns, *span))
        }
        _ => None,
    };
    merged.events.iter().filter_map(of).collect()
}

#[test]
fn states_are_spans_nested_ones_inside_and_events_are_marks() {
    let merged = opened(&[]).expect("sound");
    assert!(merged.nodes.iter().all(|node| node.problems.is_empty()));
    let all = spans(&merged);
    let shape: Vec<_> = all.iter().map(|(name, node, start, dur, _)| (name.as_str(), node.as_str(), *start, *dur)).collect();
    let ms = 1_000_000;
    assert_eq!(
        shape,
        [
            ("Compute", "n2/1", 0, 3000 * ms as u64),
            ("File_open", "n1/0", 0, 500 * ms as u64),
            ("File_write_at", "n1/0", 1000 * ms, 1000 * ms as u64),
            ("Recv", "n1/0", 1100 * ms, 300 * ms as u64),
        ]
    );
    let write = &all[2].4;
    assert_eq!((write.obj, write.off, write.len, write.parent), (1, 65536, 4096, 0));
    assert_eq!(all[3].4.parent, write.span, "a nested state is inside the one after it");
    assert_eq!(weft_trace::names::Names::new(&merged).get(1), Some("pvfs2://out.dat"));
    let mark = merged.events.iter().find(|event| matches!(event.record.body, Body::Mark { .. })).expect("an event");
    assert_eq!((mark.record.text(), mark.start_ns), ("half".to_string(), 1200 * ms));
    assert!(matches!(mark.record.body, Body::Mark { value: 7, .. }));
    let explained = weft_trace::explain::Analysis::new(&merged).explain(3);
    assert_eq!(explained.operations, 3, "nested states are no operations of their own");
}

#[test]
fn statistics_of_a_host_are_gauges_from_the_beginning_of_each_interval() {
    let merged = opened(&[("run_n1_CPU.stat", &statistics())]).expect("sound");
    let host = merged.nodes.iter().position(|node| node.name == "n1").expect("a node for the host");
    let gauges: Vec<_> = merged.events.of_node(host).map(|position| merged.events.event(position)).collect();
    let values: Vec<(i64, u64, u64)> = gauges
        .iter()
        .map(
            |event| {
                if let Body::Counter([load, free, ..]) = event.record.body { (event.start_ns, load, free) } else { panic!("{event:?}") }
            },
        )
        .collect();
    assert_eq!(values, [(0, 12_500, 100), (1_000_000_000, 99_000, 40)]);
    let info = merged.nodes[host].events.get(gauges[0].record.event).expect("described");
    let names: Vec<&str> = info.parts.iter().map(|part| part.name.as_str()).collect();
    assert_eq!((info.name.as_str(), names.as_slice()), ("CPU", ["LOAD_0.millipercent", "FREE.bytes"].as_slice()));
    assert_eq!(crate::run::Run::new(merged, Vec::new()).clients_and_servers(), (2, 0), "two ranks; the host did nothing itself");
}

const CLIENT: &str = r#"<relation version="1" hostID="n1" localToken="11" topologyNumber="0" timeAdjustment="100">
<rel t="1" time="2.0"/><s name="File_write_at" t="1" time="2.0"/><e t="1" time="3.0"/><un t="1" time="3.0"/></relation>"#;
const SERVER: &str = r#"<relation version="1" hostID="n2" localToken="22" topologyNumber="0" timeAdjustment="100">
<rel t="5" time="2.3" r="n1:11:0:1"/><s name="request" t="5" time="2.3"/><s name="job" t="5" time="2.4"/><e t="5" time="2.5"/>
<rel t="6" time="2.5" i="5"/><s name="trove_write" t="6" time="2.5"/><e t="6" time="2.7"/><un t="6" time="2.7"/>
<e t="5" time="2.8"/><un t="5" time="2.8"/></relation>"#;

#[test]
fn relations_are_requests_with_what_was_done_for_them() {
    let merged = opened(&[("run_n1_0.rel", CLIENT.as_bytes()), ("run_n2_1.rel", SERVER.as_bytes())]).expect("sound");
    let all = spans(&merged);
    let of = |name: &str| all.iter().find(|span| span.0 == name).unwrap_or_else(|| panic!("{name} in {all:?}")).clone();
    assert_eq!(all.iter().filter(|span| span.0 == "File_write_at").count(), 1, "the trace and the relations tell of one state");
    let (call, write) = (of("net.call"), of("File_write_at"));
    assert_eq!((call.1.as_str(), call.4.parent), ("n1/0", write.4.span));
    let answer = merged.events.iter().find(|event| matches!(event.record.body, Body::StagedSpan(_))).expect("an answer");
    let Body::StagedSpan(staged) = &answer.record.body else { panic!("a staged span") };
    assert_eq!(answer.record.flags & flags::SERVER, flags::SERVER);
    assert_eq!((merged.nodes[answer.node].name.as_str(), merged.nodes[answer.node].server), ("n2/1", Some(call.4.peer)));
    assert_eq!((answer.start_ns, answer.dur_ns / 1000), (1_300_000_000, 500_000));
    let (request, job, disk) = (of("request"), of("job"), of("trove_write"));
    assert_eq!((request.4.parent, job.4.parent, disk.4.parent), (staged.span, request.4.span, request.4.span));
    let explained = weft_trace::explain::Analysis::new(&merged).explain(3);
    let stages = &explained.kinds.iter().find(|kind| kind.operation == "File_write_at").expect("explained").stages;
    let seconds = |name: &str| stages.iter().find(|stage| stage.stage == name).map_or(0.0, |stage| stage.seconds);
    assert!((seconds("disk_no_seek") - 0.2).abs() < 1e-6 && (seconds("cpu") - 0.3).abs() < 1e-6, "{stages:?}");
}

#[test]
fn faults_name_file_and_place() {
    let cut = RANK0.find("</Nested>").expect("there");
    let backwards = RANK1.replace("end='4.0'", "end='0.5'");
    let rows = statistics();
    let cases: [(&str, &[u8], &[&str]); 6] = [
        ("run_n1_0_0.trc", &RANK0.as_bytes()[..cut], &["run_n1_0_0.trc", "line", "ends inside <Nested>"]),
        ("run_n2_1_0.trc", backwards.as_bytes(), &["run_n2_1_0.trc", "line 2", "<Compute> ends at"]),
        ("run_n1_CPU.stat", &rows[..rows.len() - 3], &["run_n1_CPU.stat", "byte", "row 1"]),
        (
            "run_n1_0.rel",
            b"<relation hostID='n1' localToken='1' topologyNumber='0'><un t='4' time='1.0'/></relation>",
            &["run_n1_0.rel", "token 4"],
        ),
        ("run_n1_0.rel", &CLIENT.as_bytes()[..120], &["run_n1_0.rel", "line 2", "ends inside"]),
        ("run.proj", &PROJECT.as_bytes()[..200], &["line 4", "ends inside"]),
    ];
    for (name, bytes, words) in cases {
        let refused = opened(&[(name, bytes)]).expect_err(name);
        assert!(words.iter().all(|word| refused.contains(word)), "{name}: {refused}");
    }
    let incomplete = folder(&[]);
    fs::remove_file(incomplete.path().join("run_n2_1_0.trc")).expect("was there");
    let refused = read(&incomplete.path().join("run.proj")).expect_err("a leaf is missing");
    assert_eq!(refused, "run_n2_1_0.trc is missing: the project names the node n2/1/0");
}

#[test]
fn a_folder_means_its_only_project_and_parts_alone_are_refused() {
    let folder = folder(&[]);
    let input = |path: &Path| crate::inputs::Input { name: "run".into(), paths: vec![path.to_path_buf()] };
    let load = |path: &Path| crate::run::Run::load(&input(path), |_, _| {}).map_err(|error| error.to_string());
    let run = load(folder.path()).expect("opens");
    assert_eq!((run.merged.nodes.len(), run.spans(), run.duration_ns), (2, 4, 3_000_000_000));
    let refused = load(&folder.path().join("run_n2_1_0.trc")).expect_err("a part");
    assert!(refused.contains("name its .proj file"), "{refused}");
    fs::write(folder.path().join("other.proj"), PROJECT).expect("written");
    let refused = load(folder.path()).expect_err("two of them");
    assert!(refused.contains("several projects") && refused.contains("other.proj"), "{refused}");
}

/// The run of the thesis's figure 7.1, if its files are at hand.
#[test]
fn the_traced_application_of_the_thesis_opens_whole() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/partdiff-mpi-io-synced/partdiff-par.proj");
    if !data.is_file() {
        println!("skipped: {} is absent", data.display());
        return;
    }
    let merged = merge(read(&data).expect("sound"));
    let names: Vec<&str> = merged.nodes.iter().map(|node| node.name.as_str()).collect();
    assert_eq!(names.len(), 10, "five ranks, and the statistics of their five hosts: {names:?}");
    let all = spans(&merged);
    let count = |begins: &str| all.iter().filter(|span| span.0.starts_with(begins)).count();
    let messages = count("net.sent");
    assert_eq!((count("File_write"), count("Sendrecv"), count("Allreduce"), all.len() - 2 * messages), (554, 4861, 255, 9539));
    assert_eq!((messages, count("net.taken")), (5697, 5697));
}

/// Two ranks that do this.
fn two_ranks(rank0: &str, rank1: &str) -> Merged {
    let trace = |inside: &str| format!("<Program timeAdjustment='100'>\n{inside}\n</Program>\n").into_bytes();
    let (zero, one) = (trace(rank0), trace(rank1));
    opened(&[("run_n1_0_0.trc", zero.as_slice()), ("run_n2_1_0.trc", one.as_slice())]).expect("sound")
}

/// Sender, receiver, times in ns and bytes of each message.
fn messages(rank0: &str, rank1: &str) -> Vec<(String, String, i64, i64, u32)> {
    let merged = two_ranks(rank0, rank1);
    let find = |name: &'static str| {
        let of = move |event: &weft_trace::events::Event, merged: &Merged| merged.nodes[event.node].events.name(event.record.event) == name;
        merged.events.iter().filter(|event| of(event, &merged)).collect::<Vec<_>>()
    };
    let taken = find("net.taken");
    let both = find("net.sent").into_iter().map(|sent| {
        let taken = taken.iter().find(|taken| taken.record.req == sent.record.req).expect("every message was taken");
        assert_eq!(sent.end_ns(), taken.start_ns);
        let bytes = if let Body::Span(span) = &sent.record.body { span.len } else { 0 };
        let name = |node: usize| merged.nodes[node].name.clone();
        (name(sent.node), name(taken.node), sent.start_ns, taken.start_ns, bytes)
    });
    both.collect()
}

#[test]
fn sends_meet_the_receives_that_took_them() {
    let ns = |seconds: f64| ((seconds - 1.0) * 1e9).round() as i64;
    let met = messages(
        "<Send size='4' toRank='1' toTag='2' cid='0' time='1.0' end='1.1'/>
         <Send size='8' toRank='1' toTag='2' cid='0' time='1.2' end='1.3'/>
         <Sendrecv size='16' toRank='1' toTag='7' fromRank='1' fromTag='9' cid='0' time='2.0' end='3.0'/>",
        "<Recv fromRank='0' fromTag='2' cid='0' time='1.0' end='1.5'/>
         <Recv fromRank='0' fromTag='2' aid='3' cid='0' time='1.6' end='1.61'/>
         <Nested><Recv fromRank='0' fromTag='7' cid='0' time='2.1' end='2.2'/></Nested><Other time='2.05' end='2.3'/>
         <Send size='32' toRank='0' toTag='9' cid='0' time='2.4' end='2.5'/>
         <Wait time='3.0' end='3.5'><For aid='3'/></Wait>",
    );
    let (zero, one) = ("n1/0".to_string(), "n2/1".to_string());
    let wanted = [
        (&zero, &one, ns(1.0), ns(1.5), 4),
        // Taken when the program had waited for it.
        (&zero, &one, ns(1.2), ns(3.5), 8),
        (&zero, &one, ns(2.0), ns(2.2), 16),
        (&one, &zero, ns(2.4), ns(3.0), 32),
    ];
    let mut found: Vec<_> = met.iter().map(|(from, to, sent, taken, bytes)| (from, to, *sent, *taken, *bytes)).collect();
    found.sort_by_key(|message| message.2);
    assert_eq!(found, wanted);
}

#[test]
fn what_is_received_from_anybody_is_not_guessed() {
    let send = "<Send size='4' toRank='1' toTag='2' cid='0' time='1.0' end='1.1'/>".repeat(2);
    let any = "<Recv fromRank='-1' fromTag='2' cid='0' time='1.0' end='1.5'/><Recv fromRank='0' fromTag='2' cid='0' time='1.6' end='1.7'/>";
    assert_eq!(messages(&send, any), []);
    // Nor what makes no sense.
    assert_eq!(
        messages(&send, "<Recv fromRank='0' fromTag='-1' time='1' end='2'/><Send toRank='x' time='2' end='3'/><Recv time='3' end='4'/>"),
        []
    );
    assert_eq!(messages(&send, "<Recv fromRank='7' fromTag='2' cid='99' time='1' end='2'/>"), []);
}

#[test]
fn an_arrow_leads_from_a_send_to_its_receive_and_not_back() {
    use crate::levels::{Level, tracks};
    let send = "<Send size='4' toRank='1' toTag='2' cid='0' time='1.0' end='1.1'/>";
    let run = crate::run::Run::new(two_ranks(send, "<Recv fromRank='0' fromTag='2' cid='0' time='1.0' end='1.5'/>"), Vec::new());
    run.analyse();
    for level in [Level::Rank, Level::Thread, Level::Host] {
        let tracks = tracks(&run, level);
        let told = crate::details::arrows(&run, &tracks, (0, run.duration_ns + 1), 10);
        let arrow = &told["arrows"][0];
        assert_eq!((&told["count"], &arrow["sent"], &arrow["arrived"]), (&1.into(), &0.into(), &500_000_000.into()), "{told}");
        assert!(arrow["left"].is_null() && arrow["back"].is_null());
        let name = |end: &str| tracks.tracks[tracks.of_lane[arrow[end].as_u64().unwrap() as usize]].name.clone();
        assert!(name("from").starts_with("n1/0") && name("to").starts_with("n2/1"), "{level:?}");
        let told = crate::details::event(&run, &tracks, arrow["call"].as_u64().unwrap() as u32).unwrap();
        assert!(told["process"] == 1 && told["bytes"] == 4 && told["offset"].is_null() && told["peer"].is_null(), "{told}");
    }
}
