//! What ranks of parallel programs called: what a call was given, its communicator, the datatypes
//! that it names, what its rank sees of the file, and which bytes of the file it touches.

use serde_json::{Value, json};
use weft_hdtrace::{Communicator, Datatype, Element, PROJECT_OBJECT, Project, RankTypes, State, call_object};
use weft_piosim::Extent;
use weft_piosim::from_hdtrace::{datatype, touched};
use weft_trace::events::Event;
use weft_trace::record::Body;

use crate::inputs::programs;
use crate::run::Run;

/// Ranges, blocks, members and parts that are shown; of all there is the number.
const SHOWN_MAX: usize = 200;
/// Datatypes within datatypes that are followed.
const DEPTH_MAX: u32 = 16;

/// What the call of a record says; nothing if the record is none, or nobody knows.
pub fn call(run: &Run, position: u32) -> Option<Value> {
    let event = run.merged.events.get(position)?;
    let call = element(run, &event)?;
    let rank: u32 = call.attribute("rank").and_then(|rank| rank.parse().ok())?;
    let project = run.names.get(PROJECT_OBJECT).map(|text| Project::read(text.as_bytes()).value).unwrap_or_default();
    let number = |name: &str| call.attribute(name).and_then(|text| text.trim().parse::<i64>().ok());
    let given = call.attributes.iter().map(|(name, value)| json!([name, value]));
    let mut told = json!({ "name": call.name, "rank": rank, "given": given.collect::<Vec<_>>() });
    told["waits_for"] = json!(
        call.children.iter().filter(|child| child.name.eq_ignore_ascii_case("for")).map(|child| child.attribute("aid")).collect::<Vec<_>>()
    );
    if let Some(index) = number("cid").and_then(|id| project.communicator_of(rank, id)) {
        told["communicator"] = communicator(&project.communicators[index]);
    }
    let types = project.datatypes.iter().find(|types| types.rank == rank);
    let named = ["tid", "sendtid", "recvtid", "etid", "filetid"].into_iter().filter_map(|name| Some((name, number(name)?)));
    told["types"] = json!(named.filter_map(|(name, id)| Some(json!({ "as": name, "type": tree(types?, id, 0) }))).collect::<Vec<_>>());
    if let Some(file) = call.attribute("fid").filter(|_| call.name.starts_with("File_")) {
        match touched(&project, rank, &on_file(run, &event, position, file)) {
            Ok(touched) => {
                told["view"] = touched.view.map_or(Value::Null, |view| {
                    json!({ "displacement": view.displacement, "data": view.filetype.data_bytes(), "extent": view.filetype.extent_bytes(),
                            "blocks": listed(&view.filetype.blocks()) })
                });
                told["ranges"] = listed(&touched.ranges);
            }
            Err(why) => told["problem"] = json!(why),
        }
    }
    Some(told)
}

/// What is said of a call beside its record: what a record of any span says is left out.
pub fn given(run: &Run, event: &Event) -> Vec<(String, String)> {
    let elsewhere = ["rank", "size", "offset", "name", "fid"];
    let attributes = element(run, event).map(|call| call.attributes).unwrap_or_default();
    attributes.into_iter().filter(|(name, _)| !elsewhere.contains(&name.as_str())).collect()
}

/// The call of a record. Of several programs in one run nobody knows whose it is.
fn element(run: &Run, event: &Event) -> Option<Element> {
    let Body::Span(span) = &event.record.body else { return None };
    if programs(run.sources.iter().map(|source| source.path.as_path())) > 1 {
        return None;
    }
    let text = (span.span != 0).then(|| run.names.get(call_object(span.span)))?;
    Element::from_text(text?)
}

/// What a rank called on a file from its opening to this call, as far as it says what the call
/// does.
fn on_file(run: &Run, event: &Event, position: u32, file: &str) -> Vec<State> {
    let mut calls = Vec::new();
    let times = run.merged.events.node_times(event.node);
    // Texts are asked for only where a call may matter.
    let names = times.sorts().iter().map(|sort| run.merged.nodes[event.node].events.name(sort.event).to_lowercase());
    let matters: Vec<bool> = names.map(|name| name.contains("open") || name.contains("view")).collect();
    for time in times.iter().take_while(|time| time.start_ns <= event.start_ns) {
        let asked = (matters[time.sort as usize] || time.position == position).then(|| run.merged.events.event(time.position));
        let before = asked.filter(|before| before.ring == event.ring);
        let Some(call) = before.and_then(|before| element(run, &before)) else { continue };
        if call.attribute("fid") != Some(file) {
            continue;
        }
        if call.name == "File_open" {
            calls.clear();
        }
        calls.push(State { name: call.name, attributes: call.attributes, data: call.children, ..State::default() });
        if time.position == position {
            break;
        }
    }
    calls
}

fn communicator(communicator: &Communicator) -> Value {
    let mut ranks: Vec<(u32, u32)> = communicator.members.iter().map(|member| (member.local, member.global)).collect();
    ranks.sort_unstable();
    let shown: Vec<u32> = ranks.iter().take(SHOWN_MAX).map(|(_, global)| *global).collect();
    json!({ "name": communicator.name, "size": ranks.len(), "ranks": shown })
}

fn listed(ranges: &[Extent]) -> Value {
    let shown: Vec<(u64, u64)> = ranges.iter().take(SHOWN_MAX).map(|range| (range.offset, range.bytes)).collect();
    let end = ranges.iter().map(|range| range.end()).max().unwrap_or(0);
    json!({ "count": ranges.len(), "bytes": ranges.iter().map(|range| range.bytes).sum::<u64>(), "end": end, "list": shown })
}

/// A datatype with what it is made of, and where its data lies in its extent.
fn tree(types: &RankTypes, id: i64, depth: u32) -> Value {
    let Some(listed_type) = types.get(id).filter(|_| depth < DEPTH_MAX) else {
        return json!({ "title": format!("datatype {id}"), "problem": "it is not listed", "parts": [] });
    };
    let name = types.name(id).unwrap_or("");
    let inside = |old: i64| tree(types, old, depth + 1);
    let (title, parts) = match listed_type {
        Datatype::Named => (name.to_string(), Vec::new()),
        Datatype::Contiguous { count, old } => (format!("contiguous: {count} one after the other"), vec![("of".to_string(), inside(*old))]),
        Datatype::Vector { count, block_length, stride, old } => {
            (format!("vector: {count} blocks of {block_length}, {stride} apart"), vec![("of".to_string(), inside(*old))])
        }
        Datatype::Struct(fields) => {
            let part =
                |field: &weft_hdtrace::StructPart| (format!("{} at byte {}", field.block_length, field.displacement), inside(field.old));
            (format!("struct: {} parts", fields.len()), fields.iter().take(SHOWN_MAX).map(part).collect())
        }
        Datatype::Subarray { row_major, dimensions, old } => {
            let sides = |of: fn(&weft_hdtrace::Dimension) -> u64| {
                dimensions.iter().map(|dimension| of(dimension).to_string()).collect::<Vec<_>>().join(" x ")
            };
            let order = if *row_major { "C" } else { "Fortran" };
            let title = format!(
                "subarray: {} of {} from {}, in the order of {order}",
                sides(|side| side.part),
                sides(|side| side.size),
                sides(|side| side.start)
            );
            (title, vec![("of".to_string(), inside(*old))])
        }
        Datatype::Other(element) => (element.name.to_lowercase(), Vec::new()),
    };
    let title = if name.is_empty() || title == name { title } else { format!("{name}, {title}") };
    let parts: Vec<Value> = parts.into_iter().map(|(how, part)| json!({ "how": how, "type": part })).collect();
    match datatype(types, id) {
        Ok(whole) => {
            json!({ "title": title, "data": whole.data_bytes(), "extent": whole.extent_bytes(), "blocks": listed(&whole.blocks()), "parts": parts })
        }
        Err(problem) => json!({ "title": title, "problem": problem, "parts": parts }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inputs::inputs;

    const PROJECT: &str = r#"<Application name="run" processCount="1"><Description/><FileList/>
<Topology><Level type="Host"><Level type="Rank"><Level type="Thread"/></Level></Level><Node name="n"><Node name="0"><Node name="0"/></Node></Node></Topology>
<CommunicatorList><Communicator name="WORLD"><Rank global="0" local="0" cid="5"/></Communicator></CommunicatorList>
<Datatypes><Rank name="0" thread="0"><NAMED id="1" name="MPI_INT"/><VECTOR id="2" name="column" count="3" blocklength="1" stride="2" oldType="1"/>
<STRUCT id="3" name="" count="2"><Type id="2" displacement="0" blocklen="1"/><Type id="9" displacement="40" blocklen="2"/></STRUCT></Rank></Datatypes>
<ExternalStatistics/></Application>"#;
    const TRACE: &str = "<Program timeAdjustment='9'>
<File_open cid='5' name='a' fid='1' time='0.1' end='0.2'/><File_open cid='5' name='b' fid='2' time='0.2' end='0.3'/>
<File_set_view fid='1' offset='100' filetid='2' time='0.3' end='0.4'/><File_set_view fid='2' offset='7' filetid='1' time='0.4' end='0.5'/>
<File_read_at fid='1' offset='4' size='12' time='0.5' end='0.6'/><File_set_view fid='1' offset='0' filetid='3' time='0.6' end='0.7'/>
<Bcast cid='5' rootRank='0' size='8' tid='3' cLine='17' time='0.7' end='0.8'/><Barrier cid='6' time='0.8' end='0.9'/>
</Program>";

    fn run(names: &[&str]) -> Run {
        let dir = tempfile::tempdir().expect("a directory");
        let mut words = Vec::new();
        for name in names {
            for (end, text) in [(".proj", PROJECT), ("_n_0_0.trc", TRACE)] {
                std::fs::write(dir.path().join(format!("{name}{end}")), text).expect("written");
            }
            words.push(format!("run={}", dir.path().join(format!("{name}.proj")).display()).into());
        }
        Run::load(&inputs(&words).expect("is there")[0], |_, _| {}).expect("sound")
    }

    fn told(run: &Run, name: &str, number: usize) -> Value {
        let events = &run.merged.events;
        let is = |position: &u32| run.merged.nodes[events.node(*position)].events.name(events.sort(*position).event) == name;
        let position = events.in_order().filter(is).nth(number).expect("the trace has one");
        call(run, position).unwrap_or(Value::Null)
    }

    #[test]
    fn a_call_says_what_it_was_given_and_what_the_numbers_in_it_mean() {
        let run = run(&["one"]);
        let bcast = told(&run, "Bcast", 0);
        assert_eq!((&bcast["name"], &bcast["rank"]), (&json!("Bcast"), &json!(0)));
        assert!(bcast["given"].as_array().is_some_and(|given| given.contains(&json!(["cLine", "17"]))), "{bcast}");
        assert_eq!(bcast["communicator"], json!({ "name": "WORLD", "size": 1, "ranks": [0] }));
        let structure = &bcast["types"][0]["type"];
        assert!(structure["problem"].as_str().is_some_and(|why| why.contains("no datatype 9")), "{structure}");
        let [column, missing] = [0, 1].map(|part| structure["parts"][part].clone());
        assert_eq!((&column["how"], &column["type"]["title"]), (&json!("1 at byte 0"), &json!("column, vector: 3 blocks of 1, 2 apart")));
        assert_eq!((&column["type"]["data"], &column["type"]["extent"]), (&json!(12), &json!(20)));
        assert_eq!(column["type"]["blocks"]["list"], json!([[0, 4], [8, 4], [16, 4]]));
        assert_eq!(missing["type"]["title"], "datatype 9");
        assert!(told(&run, "Barrier", 0)["communicator"].is_null(), "a communicator that is not listed");
    }

    #[test]
    fn a_file_is_seen_as_its_last_view_shows_it() {
        let run = run(&["one"]);
        let read = told(&run, "File_read_at", 0);
        assert_eq!((&read["view"]["displacement"], &read["view"]["extent"]), (&json!(100), &json!(20)));
        // The second int of the first copy, the third together with the first of the next, ...
        assert_eq!(read["ranges"]["list"], json!([[108, 4], [116, 8]]));
        assert!(told(&run, "File_set_view", 2)["problem"].as_str().is_some_and(|why| why.contains("no datatype 9")));
    }

    #[test]
    fn of_two_programs_in_one_run_no_call_is_guessed() {
        let run = run(&["one", "two"]);
        assert_eq!(told(&run, "Bcast", 0), Value::Null);
        assert_eq!(given(&run, &run.merged.events.event(0)), []);
    }
}
