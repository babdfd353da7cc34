//! Whatever can be written is read back as it was.

use proptest::collection::vec;
use proptest::prelude::*;
use weft_hdtrace::{
    Communicator, Datatype, Dimension, Distribution, Element, Entry, Event, Member, Offset, Parent, Project, ProjectFile, RankTypes,
    Relation, RelationHeader, Relations, Row, Stamp, State, Statistics, StatisticsGroup, StructPart, Time, TopologyNode, Trace, Value,
    ValueDescription, ValueKind,
};

/// Values of attributes: anything but the letters that XML cannot hold.
fn value() -> impl Strategy<Value = String> {
    vec(prop_oneof![any::<char>(), Just('<'), Just('"'), Just('&'), Just('\n'), Just(' ')], 0..8)
        .prop_map(|letters| letters.into_iter().filter(|&letter| letter >= ' ' || letter == '\n').collect::<String>())
        .prop_map(|text| text.replace(['\u{fffe}', '\u{ffff}'], ""))
}

/// Text inside an element, which has no space around it.
fn text() -> impl Strategy<Value = String> {
    value().prop_map(|text| text.trim().to_owned())
}

/// Names of elements, none of which means something else.
fn name() -> impl Strategy<Value = String> {
    "x[A-Za-z0-9_.-]{0,6}"
}

fn attributes() -> impl Strategy<Value = Vec<(String, String)>> {
    proptest::collection::btree_map(name(), value(), 0..3).prop_map(|map| map.into_iter().collect())
}

fn element() -> impl Strategy<Value = Element> {
    let build = |name: String, attributes: Vec<(String, String)>, text: String, children: Vec<Element>| {
        let mut start = Element::new(&name);
        (start.text, start.children) = (text, children);
        attributes.into_iter().fold(start, |element, (key, value)| element.with(&key, value))
    };
    let leaf = (name(), attributes(), text()).prop_map(move |(name, attributes, text)| build(name, attributes, text, Vec::new()));
    leaf.prop_recursive(3, 8, 3, move |inner| {
        (name(), attributes(), text(), vec(inner, 0..3))
            .prop_map(move |(name, attributes, text, children)| build(name, attributes, text, children))
    })
}

fn time() -> impl Strategy<Value = Time> {
    prop_oneof![any::<i64>(), 0..5_000_000_000_i64, Just(0)].prop_map(Time)
}

fn entry() -> impl Strategy<Value = Entry> {
    let event = (value(), time(), attributes(), vec(element(), 0..2), text())
        .prop_map(|(name, time, attributes, data, text)| Entry::Event(Event { name, time, attributes, data, text }))
        .boxed();
    let parts = || (name(), time(), time(), attributes(), vec(element(), 0..2), text());
    let state = move |nested: BoxedStrategy<Vec<Entry>>| {
        (parts(), nested).prop_map(|((name, begin, end, attributes, data, text), nested)| {
            Entry::State(State { name, begin, end, attributes, data, text, nested, offset: Offset(0) })
        })
    };
    prop_oneof![event.clone(), state(Just(Vec::new()).boxed())]
        .prop_recursive(3, 12, 3, move |inner| prop_oneof![event.clone(), state(vec(inner, 0..3).boxed())])
}

fn node() -> impl Strategy<Value = TopologyNode> {
    let leaf = (value(), proptest::option::of(value())).prop_map(|(name, kind)| TopologyNode { name, kind, children: Vec::new() });
    leaf.prop_recursive(3, 8, 3, |inner| {
        (value(), vec(inner, 0..3)).prop_map(|(name, children)| TopologyNode { name, kind: None, children })
    })
}

fn datatype() -> impl Strategy<Value = Datatype> {
    let dimension =
        (0..100_u64, 0..100_u64, 0..100_u64).prop_map(|(part, start, more)| Dimension { size: start + part + more, part, start });
    prop_oneof![
        Just(Datatype::Named),
        (any::<u64>(), any::<i64>()).prop_map(|(count, old)| Datatype::Contiguous { count, old }),
        (any::<u64>(), any::<u64>(), any::<i64>(), any::<i64>()).prop_map(|(count, block_length, stride, old)| Datatype::Vector {
            count,
            block_length,
            stride,
            old
        }),
        vec((any::<i64>(), any::<i64>(), any::<u64>()), 0..3).prop_map(|parts| {
            let part = |(old, displacement, block_length)| StructPart { old, displacement, block_length };
            Datatype::Struct(parts.into_iter().map(part).collect())
        }),
        (any::<bool>(), vec(dimension, 0..3), any::<i64>()).prop_map(|(row_major, dimensions, old)| Datatype::Subarray {
            row_major,
            dimensions,
            old
        }),
    ]
}

fn project() -> impl Strategy<Value = Project> {
    let distribution = (value(), vec((name(), text()), 0..2)).prop_map(|(class, parameters)| Distribution { class, parameters });
    let file = (value(), any::<u64>(), proptest::option::of(distribution), vec(element(), 0..2))
        .prop_map(|(name, initial_bytes, distribution, other)| ProjectFile { name, initial_bytes, distribution, other });
    let member = (any::<u32>(), any::<u32>(), any::<i64>()).prop_map(|(global, local, id)| Member { global, local, id });
    let communicator = (value(), vec(member, 0..3)).prop_map(|(name, members)| Communicator { name, members });
    let types = (any::<u32>(), value(), vec((any::<i64>(), value(), datatype()), 0..4)).prop_map(|(rank, thread, types)| RankTypes {
        rank,
        thread,
        types,
    });
    let head = (value(), proptest::option::of(any::<u32>()), text(), vec(value(), 0..4));
    let lists = (vec(file, 0..3), vec(node(), 0..3), vec(communicator, 0..3), vec(types, 0..3));
    (head, lists, vec(element(), 0..3), vec(element(), 0..3)).prop_map(|(head, lists, statistics, other)| {
        let (name, process_count, description, levels) = head;
        let (files, topology, communicators, datatypes) = lists;
        Project { name, process_count, description, files, levels, topology, communicators, datatypes, statistics, other }
    })
}

fn relation() -> impl Strategy<Value = Relation> {
    let parent = prop_oneof![
        any::<u64>().prop_map(Parent::Internal),
        (any::<u64>(), any::<u64>()).prop_map(|(topology_number, token)| Parent::Process { topology_number, token }),
        (name(), any::<u64>(), any::<u64>()).prop_map(|(process, topology_number, token)| Parent::Host { process, topology_number, token }),
        (name(), name(), any::<u64>(), any::<u64>()).prop_map(|(host, process, topology_number, token)| Parent::Remote {
            host: host + ":1",
            process,
            topology_number,
            token
        }),
    ];
    prop_oneof![
        (any::<u64>(), time(), vec(parent, 0..4)).prop_map(|(token, time, parents)| Relation::Create { token, time, parents }),
        (any::<u64>(), time(), value(), attributes(), vec(element(), 0..2))
            .prop_map(|(token, time, name, attributes, data)| Relation::Start { token, time, name, attributes, data }),
        (any::<u64>(), time(), attributes(), vec(element(), 0..2)).prop_map(|(token, time, attributes, data)| Relation::End {
            token,
            time,
            attributes,
            data
        }),
        (any::<u64>(), time()).prop_map(|(token, time)| Relation::Destroy { token, time }),
    ]
}

fn relations() -> impl Strategy<Value = Relations> {
    let header =
        (value(), value(), any::<u64>(), time(), attributes()).prop_map(|(host, process, topology_number, time_adjustment, attributes)| {
            RelationHeader { host, process, topology_number, time_adjustment, attributes }
        });
    (header, vec(relation(), 0..6)).prop_map(|(header, entries)| Relations { header, entries })
}

fn statistics() -> impl Strategy<Value = Statistics> {
    let kinds = [ValueKind::Int32, ValueKind::Int64, ValueKind::Float, ValueKind::Double, ValueKind::Text];
    let column = (value(), prop::sample::select(kinds.to_vec()), value(), value(), attributes())
        .prop_map(|(name, kind, unit, grouping, attributes)| ValueDescription { name, kind, unit, grouping, attributes });
    let stamps = [(Stamp::Epoch, 1), (Stamp::Nanoseconds, 1), (Stamp::Microseconds, 1000), (Stamp::Milliseconds, 1_000_000)];
    let group = (value(), vec(value(), 0..3), prop::sample::select(stamps.to_vec()), time(), vec(column, 0..4));
    let cell = |kind| match kind {
        ValueKind::Int32 => any::<i32>().prop_map(Value::Int32).boxed(),
        ValueKind::Int64 => any::<i64>().prop_map(Value::Int64).boxed(),
        ValueKind::Float => any::<f32>().prop_map(Value::Float).boxed(),
        ValueKind::Double => any::<f64>().prop_map(Value::Double).boxed(),
        ValueKind::Text => any::<String>().prop_map(Value::Text).boxed(),
    };
    group.prop_flat_map(move |(name, topology, (stamp, unit), time_adjustment, values)| {
        let row = values.iter().map(|column| cell(column.kind)).collect::<Vec<_>>();
        let group = StatisticsGroup { name, topology, stamp, time_adjustment, values };
        (Just(group), -1000..1000_i64, vec((0..1000_i64, row), 0..4)).prop_map(move |(group, start, rows)| {
            let mut now = start;
            let row = |(step, values)| {
                now += step;
                Row { end: Time(now * unit), values }
            };
            Statistics { group, start: Time(start * unit), rows: rows.into_iter().map(row).collect() }
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn projects_are_read_as_they_were_written(project in project()) {
        prop_assert_eq!(Project::read(project.write().as_bytes()).complete(), Ok(project));
    }

    #[test]
    fn traces_are_read_as_they_were_written(
        time_adjustment in time(), attributes in attributes(), entries in vec(entry(), 0..4)
    ) {
        let trace = Trace { time_adjustment, attributes, entries };
        prop_assert_eq!(Trace::read(trace.write().as_bytes()).complete(), Ok(trace));
    }

    #[test]
    fn relations_are_read_as_they_were_written(relations in relations()) {
        prop_assert_eq!(Relations::read(relations.write().as_bytes()).complete(), Ok(relations));
    }

    #[test]
    fn statistics_are_read_as_they_were_written(statistics in statistics()) {
        let bytes = statistics.write().expect("generated to fit");
        prop_assert_eq!(Statistics::read(&bytes).complete(), Ok(statistics));
    }

    #[test]
    fn no_bytes_make_a_reader_panic(
        bytes in vec(prop_oneof![any::<u8>(), prop::sample::select(b"<>/='\"&; aNest1\n".to_vec())], 0..200), head in 0..6_usize
    ) {
        let heads = ["", "<Program>", "<Application name='a'><Topology/><Datatypes><Rank name='1'>", "<relation hostID='' localToken='' topologyNumber='1'>",
            "54\n<Statistics><Group name='a'><Value name='b' type='STRING'/>", "<Project><ComponentList><NodeList>"];
        let bytes = [heads[head].as_bytes(), &bytes].concat();
        let _ = (Project::read(&bytes), Trace::read(&bytes), Relations::read(&bytes), Statistics::read(&bytes));
        let _ = weft_hdtrace::ClusterModel::read(&bytes);
    }
}
