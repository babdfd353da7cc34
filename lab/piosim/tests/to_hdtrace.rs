//! Simulated runs as traces, and back.

use weft_hdtrace::{Entry, Project, Trace};
use weft_piosim::from_hdtrace::{import, rank_traces};
use weft_piosim::program::WORLD;
use weft_piosim::to_hdtrace::{export, export_disks};
use weft_piosim::{Access, Application, ClusterConfig, Command, Simulation};
use weft_sched::LayerKind;

/// One of every command that has no counterpart lost on the way.
fn application() -> Application {
    let mut app = Application::new("all", 2);
    let pair = app.communicator(vec![1, 0]);
    let (first, second) = (app.file("a", 1 << 20), app.file("b", 0));
    app.push_all(Command::Barrier { comm: WORLD });
    app.push_all(Command::Compute { cycles: 17 });
    app.push_all(Command::FileOpen { comm: WORLD, file: first, truncate: false });
    app.push_all(Command::FileOpen { comm: pair, file: second, truncate: true });
    app.push(0, Command::Send { comm: WORLD, to: 1, tag: 3, bytes: 200_000, request: Some(4) });
    app.push(0, Command::Wait { requests: vec![4] });
    app.push(1, Command::Recv { comm: WORLD, from: None, tag: 3, request: None });
    app.push(0, Command::Sendrecv { comm: pair, to: 0, send_tag: 1, bytes: 5, from: Some(0), recv_tag: 2 });
    app.push(1, Command::Sendrecv { comm: pair, to: 1, send_tag: 2, bytes: 6, from: Some(1), recv_tag: 1 });
    for command in [
        Command::Bcast { comm: pair, root: 1, bytes: 10 },
        Command::Reduce { comm: WORLD, root: 1, bytes: 11 },
        Command::Allreduce { comm: WORLD, bytes: 12 },
        Command::Gather { comm: WORLD, root: 0, bytes: 13 },
        Command::Allgather { comm: WORLD, bytes: 14 },
        Command::FileRead { file: first, access: Access::at(100, 70_000) },
        Command::FileWrite { file: second, access: Access::list([(0, 10), (50, 10), (5, 3)]) },
        Command::FileReadAll { comm: WORLD, file: first, access: Access::at(0, 1000) },
    ] {
        app.push_all(command);
    }
    for rank in 0..2 {
        let access = Access::list([(u64::from(rank) * 10, 10), (20 + u64::from(rank) * 10, 10)]);
        app.push(rank, Command::FileWriteAll { comm: pair, file: second, access });
    }
    app.push_all(Command::FileClose { comm: pair, file: second });
    app.push_all(Command::FileClose { comm: WORLD, file: first });
    app
}

#[test]
fn a_simulated_run_is_imported_as_the_programs_it_ran() {
    let app = application();
    let simulation = Simulation::new(&ClusterConfig::thesis(2, 2, LayerKind::None).natural(), &app).expect("valid");
    let (report, recording) = simulation.run_recorded().expect("ends");
    let (project, traces) = export(&app, 0, &recording);
    let project = Project::read(project.write().as_bytes()).complete().expect("sound");
    let traces: Vec<Trace> = traces.iter().map(|(_, trace)| Trace::read(trace.write().as_bytes()).complete().expect("sound")).collect();
    assert_eq!(rank_traces(&project, "x").expect("two ranks"), ["x_client0_0_0.trc", "x_client1_1_0.trc"]);
    for (trace, &end) in traces.iter().zip(&report.applications[0].rank_end_nanos) {
        let Some(Entry::State(last)) = trace.entries.last() else { panic!("a state") };
        assert_eq!(last.end.0, end as i64);
    }
    let imported = import(&project, &traces).expect("sound");
    assert_eq!((imported.application, imported.notes), (app, Vec::new()));
    let (project, disks) = export_disks(2, &recording);
    assert_eq!(project.topology.len(), 2);
    let accesses: usize = disks.iter().map(|(_, trace)| trace.entries.len()).sum();
    assert_eq!(accesses as u64, report.disks().operations);
}
