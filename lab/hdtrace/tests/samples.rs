//! Small files written by hand, one for each format: everything in them is found, every cut of them
//! gives its sound part and an error.

use weft_hdtrace::{
    ClusterModel, Datatype, Entry, Error, Parent, Partial, Problem, Project, Relation, Relations, Row, Stamp, Statistics, StatisticsGroup,
    Time, Trace, Value, ValueDescription, ValueKind,
};

const PROJECT: &[u8] = include_bytes!("samples/heat.proj");
const TRACE: &[u8] = include_bytes!("samples/heat_n1_0_0.trc");
const RELATIONS: &[u8] = include_bytes!("samples/heat_n1_0_0.rel");
const MODEL: &[u8] = include_bytes!("samples/model.xml");

fn statistics() -> Statistics {
    let column = |name: &str, kind| ValueDescription {
        name: name.to_owned(),
        kind,
        unit: "B".to_owned(),
        grouping: "MEM".to_owned(),
        attributes: vec![("multiplier".to_owned(), "2".to_owned())],
    };
    let group = StatisticsGroup {
        name: "Performance".to_owned(),
        topology: vec!["n1".to_owned(), "0".to_owned()],
        stamp: Stamp::Epoch,
        time_adjustment: Time(-5_000_000),
        values: vec![column("a", ValueKind::Int64), column("b", ValueKind::Float), column("c", ValueKind::Text)],
    };
    let row = |end, a, text: &str| Row { end: Time(end), values: vec![Value::Int64(a), Value::Float(0.5), Value::Text(text.to_owned())] };
    Statistics { group, start: Time(1), rows: vec![row(2_000_000_003, -7, "ä"), row(2_000_000_003, 1 << 40, "")] }
}

#[test]
fn the_project_is_found_whole_and_survives_writing() {
    let project = Project::read(PROJECT).complete().expect("sound");
    assert_eq!((project.name.as_str(), project.process_count, project.files[0].initial_bytes), ("heat", Some(2), 2048));
    assert_eq!(project.files[0].chunk_bytes(), Some(65536));
    assert_eq!(project.levels, ["Host", "Rank", "Thread"]);
    assert_eq!(project.topology[0].children[1].children[0].kind.as_deref(), Some("Helper"));
    assert_eq!((project.communicator_of(1, 7), project.communicator_of(0, 7)), (Some(1), None));
    let types = &project.datatypes[0];
    assert_eq!(types.get(-5), Some(&Datatype::Vector { count: 4, block_length: 1, stride: 2, old: 2 }));
    assert!(matches!(types.get(8), Some(Datatype::Subarray { row_major: true, dimensions, .. }) if dimensions[0].start == 6));
    assert!(matches!(types.get(9), Some(Datatype::Other(element)) if element.attribute("stride") == Some("64")));
    assert_eq!((types.name(1), project.other[0].name.as_str()), (Some("MPI_DOUBLE"), "Origin"));
    assert_eq!(Project::read(project.write().as_bytes()).complete().as_ref(), Ok(&project));
}

#[test]
fn the_trace_is_found_whole_and_survives_writing() {
    let trace = Trace::read(TRACE).complete().expect("sound");
    assert_eq!(trace.time_adjustment, Time(1_000_000_000_500_000_000));
    let names: Vec<&str> = trace.entries.iter().map(entry_name).collect();
    assert_eq!(names, ["Init", "File_open", "step", "Note", "File_write", "File_close"]);
    let Entry::State(open) = &trace.entries[1] else { panic!("a state") };
    assert_eq!((open.attribute("fid"), open.data[0].attribute("value")), (Some("3"), Some("striping_unit")));
    let Entry::State(broadcast) = &open.nested[0] else { panic!("a state") };
    assert_eq!((broadcast.name.as_str(), broadcast.nested.iter().map(entry_name).collect::<Vec<_>>()), ("Bcast", vec!["Send", "sent"]));
    assert_eq!(Trace::read(trace.write().as_bytes()).complete().as_ref(), Ok(&trace));
}

fn entry_name(entry: &Entry) -> &str {
    match entry {
        Entry::State(state) => &state.name,
        Entry::Event(event) => &event.name,
    }
}

#[test]
fn relations_are_found_whole_and_survive_writing() {
    let relations = Relations::read(RELATIONS).complete().expect("sound");
    assert_eq!((relations.header.host.as_str(), relations.header.process.as_str(), relations.header.topology_number), ("n1", "4711", 2));
    let parents = |token: usize| {
        relations.entries.iter().find_map(|entry| match entry {
            Relation::Create { token: found, parents, .. } if *found == token as u64 => Some(parents.clone()),
            _ => None,
        })
    };
    let remote = Parent::Remote { host: "n:2".to_owned(), process: "4713".to_owned(), topology_number: 0, token: 1 };
    assert_eq!(parents(3), Some(vec![remote]));
    assert_eq!(parents(5), Some(vec![Parent::Process { topology_number: 1, token: 5 }, Parent::Internal(2)]));
    assert!(matches!(&relations.entries[7], Relation::End { data, .. } if data[0].attribute("bytes") == Some("4096")));
    assert_eq!(Relations::read(relations.write().as_bytes()).complete().as_ref(), Ok(&relations));
}

#[test]
fn the_model_is_found_whole() {
    let model = ClusterModel::read(MODEL).complete().expect("sound");
    assert_eq!((model.transfer_granularity, model.io_granularity, model.eager_bytes), (Some(102_400), None, Some(8192)));
    assert_eq!(model.nodes.iter().map(|node| node.id).collect::<Vec<_>>(), [3, 7]);
    assert_eq!((model.nodes[0].memory_bytes, model.nodes[0].processes[0].id), (1 << 30, 6));
    assert_eq!((model.nodes[0].links[0].latency, model.nodes[0].links[0].to), (Time(200_000), Some(1)));
    let server = &model.nodes[1].servers[0];
    assert_eq!((server.cache_layer.as_str(), server.disk_model.as_str()), ("NoCache", "RefinedDiskModel"));
    assert_eq!((server.average_seek, server.bytes_per_second, server.hole_bytes), (Time(10_000_000), 50 << 20, None));
    assert_eq!((model.switches[0].bytes_per_second, model.switches[0].ports[0].to), (380 << 20, Some(4)));
}

#[test]
fn statistics_survive_writing_with_every_kind_of_moment() {
    let written = statistics().write().expect("fits");
    assert_eq!(Statistics::read(&written).complete(), Ok(statistics()));
    for (stamp, unit) in [(Stamp::Nanoseconds, 1), (Stamp::Microseconds, 1000), (Stamp::Milliseconds, 1_000_000)] {
        let mut ticks = statistics();
        ticks.group.stamp = stamp;
        ticks.start = Time(unit);
        ticks.rows.iter_mut().for_each(|row| row.end = Time(2 * unit));
        assert_eq!(Statistics::read(&ticks.write().expect("fits")).complete(), Ok(ticks));
    }
    let mut wrong = statistics();
    wrong.rows[1].values.pop();
    assert_eq!(wrong.write().expect_err("a value is missing"), "row 1 does not fit the columns");
    let mut late = statistics();
    late.start = Time(i64::MAX);
    assert!(late.write().expect_err("after 2038").starts_with("the moment "));
}

/// Every cut of a file up to the last byte that matters gives an error, and never more than the
/// whole file has.
fn cuts<T>(bytes: &[u8], read: impl Fn(&[u8]) -> Partial<T>, sound: impl Fn(&T) -> usize) {
    let end = bytes.len() - bytes.iter().rev().take_while(|byte| byte.is_ascii_whitespace()).count();
    let mut most = 0;
    for length in 0..end {
        let partial = read(&bytes[..length]);
        let error: Error = partial.error.unwrap_or_else(|| panic!("{length} bytes of {end} are taken for all"));
        assert!(error.offset <= length as u64, "{length}: {error}");
        assert!(!matches!(error.problem, Problem::Syntax(_)), "{length}: {error}");
        let found = sound(&partial.value);
        assert!(found >= most, "{length}: {found} entries after {most}");
        most = found;
    }
    let whole = read(&bytes[..end]);
    assert_eq!(whole.error, None);
    assert!(sound(&whole.value) >= most && most > 0, "cuts show nothing");
}

#[test]
fn every_cut_gives_the_sound_part_and_an_error() {
    cuts(PROJECT, Project::read, |project| project.communicators.iter().map(|communicator| communicator.members.len()).sum());
    cuts(TRACE, Trace::read, |trace| trace.entries.len());
    cuts(RELATIONS, Relations::read, |relations| relations.entries.len());
    cuts(MODEL, ClusterModel::read, |model| model.nodes.len());
}

#[test]
fn a_cut_row_of_statistics_is_an_error_and_the_rows_before_it_stay() {
    let bytes = statistics().write().expect("fits");
    let row_bytes = [8 + 8 + 4 + 2 + 2, 8 + 8 + 4 + 2];
    let starts = [bytes.len() - row_bytes[1] - row_bytes[0], bytes.len() - row_bytes[1]];
    for length in 0..bytes.len() {
        let partial = Statistics::read(&bytes[..length]);
        let rows = starts[1..].iter().filter(|&&start| length >= start).count();
        assert_eq!(partial.value.rows.len(), rows, "{length}");
        assert_eq!(partial.error.is_none(), starts.contains(&length), "{length}: {:?}", partial.error);
    }
}

#[test]
fn faults_are_named_with_line_and_place() {
    let changed = |bytes: &[u8], from: &str, to: &str| {
        let text = std::str::from_utf8(bytes).expect("samples are text");
        assert!(text.contains(from), "{from}");
        text.replacen(from, to, 1)
    };
    for (from, to, message) in [
        ("oldType=\"1\"/>\n   <VECTOR", "/>\n   <VECTOR", "line 30 (byte 945): <CONTIGUOUS> lacks attribute oldType"),
        ("global=\"1\" local=\"0\"", "global=\"x\" local=\"0\"", "line 24 (byte 787): <Rank>: attribute global is \"x\", expected a rank"),
        ("<InitialSize>2K", "<InitialSize>2Q", "line 6 (byte 206): <File>: <InitialSize> is \"2Q\", expected a number of bytes"),
        ("start=\"6\"", "start=\"7\"", "line 33 (byte 1254): <Dimension>: attribute subsize is \"2\", expected a part inside the array"),
        ("<Origin tool=\"hand\"/>", "<Origin tool='a' tool='b'/>", ""),
    ] {
        let partial = Project::read(changed(PROJECT, from, to).as_bytes());
        let error = partial.error.expect(from).to_string();
        assert!(error == message || message.is_empty(), "{error}");
        assert_eq!(partial.value.name, "heat", "the rest is kept");
    }
    for (from, to, part) in [
        (" end='0.003100'", "", "line 5 (byte 130): <Send> lacks attribute end"),
        ("time='0.007000'", "time='soon'", "line 15 (byte 587): <File_write>: attribute time is \"soon\", expected seconds"),
        ("<Event name='step' time='0.006000'/>", "stray", "the text \"stray\" has no meaning here"),
        (
            "<File_close fid='3' time='0.011000' end='0.012000'/>",
            "<Nested><A time='1' end='2'/></Nested>",
            "<Nested> without a state after it has no meaning here",
        ),
        ("<Program", "<Project", "as the outermost element"),
    ] {
        let text = changed(TRACE, from, to).replace("</Program>", if to == "<Project" { "</Project>" } else { "</Program>" });
        let error = Trace::read(text.as_bytes()).error.expect(from).to_string();
        assert!(error.contains(part), "{error}");
    }
}
