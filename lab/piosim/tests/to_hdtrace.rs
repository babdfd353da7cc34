//! Programs that were written as calls of HDTrace are the same programs when they are read.

use weft_hdtrace::{CALL, Element, Entry, Project, State, Time, Trace};
use weft_piosim::from_hdtrace::import;
use weft_piosim::program::{Datatype, FileView, StructField, WORLD};
use weft_piosim::to_hdtrace::Calls;
use weft_piosim::workloads::{Manner, Transfer};
use weft_piosim::{Access, Application, ClusterConfig, Command, Extent, Simulation};
use weft_sched::LayerKind;
use weft_workload::{Sharing, Workload};

/// What an export holds of these applications, read again. Every call takes a second, and there are
/// seconds between calls: none of it may become computation.
fn again(applications: &[Application]) -> Application {
    let calls = Calls::of(applications.iter());
    let project = Project::read(calls.project().write().as_bytes()).complete().expect("sound");
    let mut traces = Vec::new();
    for (number, application) in applications.iter().enumerate() {
        for (rank, program) in (0..).zip(&application.programs) {
            let state = |position: usize| {
                let second = |second: usize| Time(second as i64 * 2_000_000_000);
                let data = vec![Element::new(CALL).around(vec![calls.call(number, rank, position)])];
                Entry::State(State { name: "app".into(), begin: second(position), end: second(position + 1), data, ..State::default() })
            };
            let trace = Trace { entries: (0..program.commands.len()).map(state).collect(), ..Trace::default() };
            traces.push(Trace::read(trace.write().as_bytes()).complete().expect("sound"));
        }
    }
    let imported = import(&project, &traces).expect("sound");
    assert_eq!(imported.notes, Vec::<String>::new());
    imported.application
}

fn bytes(bytes: u64) -> Datatype {
    Datatype::Named { bytes }
}

#[test]
fn every_command_comes_back() {
    let mut app = Application::new("all", 3);
    let pair = app.communicator(vec![2, 0]);
    let (file, other) = (app.file("a \"<&", 1 << 20), app.file("b", 0));
    app.push_all(Command::FileOpen { comm: WORLD, file, truncate: false });
    app.push(0, Command::Compute { cycles: 12_345_678_901 });
    app.push(0, Command::Send { comm: WORLD, to: 2, tag: 7, bytes: 100, request: None });
    app.push(0, Command::Send { comm: pair, to: 0, tag: 8, bytes: 1 << 33, request: Some(4) });
    app.push(2, Command::Recv { comm: WORLD, from: Some(0), tag: 7, request: None });
    app.push(2, Command::Recv { comm: pair, from: None, tag: 8, request: Some(9) });
    app.push(0, Command::Wait { requests: vec![4] });
    app.push(2, Command::Wait { requests: vec![9, 4] });
    let (to, from) = (2, Some(1));
    app.push(1, Command::Sendrecv { comm: WORLD, to, send_tag: 1, bytes: 5, from, recv_tag: 2 });
    app.push(1, Command::Sendrecv { comm: WORLD, to, send_tag: 1, bytes: 5, from: None, recv_tag: 2 });
    app.push_all(Command::Barrier { comm: WORLD });
    app.push_all(Command::Bcast { comm: WORLD, root: 1, bytes: 10 });
    app.push_all(Command::Reduce { comm: WORLD, root: 2, bytes: 11 });
    app.push_all(Command::Gather { comm: WORLD, root: 0, bytes: 12 });
    app.push_all(Command::Allreduce { comm: WORLD, bytes: 13 });
    app.push_all(Command::Allgather { comm: WORLD, bytes: 14 });
    for access in [Access::at(5, 6), Access::List(Vec::new()), Access::list((0..50).map(|number| (number * 40, 10)))] {
        app.push(0, Command::FileRead { file, access: access.clone() });
        app.push(0, Command::FileWrite { file, access: access.clone() });
        app.push_all(Command::FileReadAll { comm: WORLD, file, access: access.clone() });
        app.push(2, Command::FileWriteAll { comm: pair, file: other, access });
    }
    // Neighbours that nobody has merged, and a file that nobody has opened.
    let unmerged = Access::List(vec![Extent { offset: 9, bytes: 1 }, Extent { offset: 10, bytes: 1 }]);
    app.push(1, Command::FileWrite { file: other, access: unmerged });
    app.push(1, Command::FileClose { comm: WORLD, file: other });
    app.push_all(Command::FileClose { comm: WORLD, file });
    app.push(1, Command::FileOpen { comm: WORLD, file: other, truncate: true });
    let read = again(std::slice::from_ref(&app));
    assert_eq!((&read.files, &read.communicators), (&app.files, &app.communicators));
    for (rank, (read, written)) in read.programs.iter().zip(&app.programs).enumerate() {
        assert_eq!(read.commands, written.commands, "rank {rank}");
    }
}

#[test]
fn views_show_the_same_bytes_of_the_file() {
    let field = |displacement, count, element| StructField { displacement, count, element };
    let vector = Datatype::Vector { count: 3, block_length: 2, stride: 5, element: Box::new(bytes(4)) };
    let array = Datatype::Subarray { sizes: vec![4, 6], subsizes: vec![2, 3], starts: vec![1, 2], element: Box::new(bytes(2)) };
    let types = [
        bytes(1),
        bytes(8),
        bytes(12_345),
        Datatype::Contiguous { count: 7, element: Box::new(vector.clone()) },
        Datatype::Struct { fields: vec![field(8, 2, vector), field(200, 1, array.clone()), field(300, 0, bytes(1))] },
        array,
    ];
    let mut app = Application::new("views", 2);
    let file = app.file("f", 1 << 20);
    app.push_all(Command::FileOpen { comm: WORLD, file, truncate: false });
    app.push(1, Command::FileRead { file, access: Access::View { offset: 10, bytes: 20 } });
    let mut expected = vec![vec![Extent { offset: 10, bytes: 20 }]];
    for (number, filetype) in (0..).zip(&types) {
        let view = FileView { displacement: 100 + number, filetype: filetype.clone() };
        app.push(1, Command::FileSetView { file, view: view.clone() });
        app.push(1, Command::FileRead { file, access: Access::View { offset: 17, bytes: 99 } });
        expected.push(view.map(17, 99));
        // What names bytes of the file does not care.
        app.push(1, Command::FileWrite { file, access: Access::at(3, 4) });
        expected.push(vec![Extent { offset: 3, bytes: 4 }]);
    }
    let read = again(std::slice::from_ref(&app));
    let ranges = |command: &Command| match command {
        Command::FileRead { access, .. } | Command::FileWrite { access, .. } => match access {
            Access::Contiguous(extent) => Some(vec![*extent]),
            Access::List(list) => Some(list.clone()),
            Access::View { .. } => panic!("views are resolved"),
        },
        _ => None,
    };
    let found: Vec<_> = read.programs[1].commands.iter().filter_map(ranges).collect();
    assert_eq!(found, expected);
    assert_eq!(read.programs[1].commands.len(), app.programs[1].commands.len());
}

#[test]
fn applications_become_one_of_all_ranks() {
    let one = |sharing, writes| {
        let work = Workload { per_call: 4, ..Workload::sharing(sharing, 2, 4 << 20, 64 << 10) };
        Transfer { work: &work, writes }.individual(Manner::default())
    };
    let both = [one(Sharing::Interleaved, true), one(Sharing::Interleaved, false)];
    let read = again(&both);
    assert_eq!((read.ranks(), read.files.len()), (4, 2));
    assert!(read.files[0].name != read.files[1].name, "{:?}", read.files);
    assert_eq!(read.communicators[1..], [vec![0, 1], vec![2, 3]]);
    let config = ClusterConfig::thesis(4, 3, LayerKind::Aggregation);
    let placed = |application, nodes| weft_piosim::Placed { application, nodes };
    let separate = Simulation::with_applications(&config, vec![placed(&both[0], vec![0, 1]), placed(&both[1], vec![2, 3])]);
    let (separate, together) = (separate.expect("sound").run(), Simulation::new(&config, &read).expect("sound").run());
    let (separate, together) = (separate.expect("ends"), together.expect("ends"));
    assert_eq!((separate.end_nanos, separate.events), (together.end_nanos, together.events));
    assert!(separate.end_nanos > 0 && separate.program_bytes == together.program_bytes);
}
