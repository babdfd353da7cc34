//! The files that the tracing tools of 2009 left behind, if they are at hand (`../shared/data`
//! beside the repository). Without them the tests say so and pass.

use std::path::{Path, PathBuf};

use weft_hdtrace::{ClusterModel, Entry, Error, Problem, Project, Relations, Statistics, Trace, project_stem, topology_paths, trace_file};

fn data() -> Option<PathBuf> {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data");
    if !data.is_dir() {
        println!("skipped: {} is absent", data.display());
        return None;
    }
    Some(data)
}

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("readable") {
        let path = entry.expect("readable").path();
        if path.is_dir() { files(&path, found) } else { found.push(path) }
    }
}

fn read_any(path: &Path, bytes: &[u8]) -> Option<Error> {
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("proj") => Project::read(bytes).error,
        Some("trc") => Trace::read(bytes).error,
        Some("rel") => Relations::read(bytes).error,
        Some("stat") => Statistics::read(bytes).error,
        Some("xml") => ClusterModel::read(bytes).error,
        _ => None,
    }
}

#[test]
fn the_traced_application_is_read_whole() {
    let Some(data) = data() else { return };
    let folder = data.join("partdiff-mpi-io-synced");
    let read = |name: &str| std::fs::read(folder.join(name)).expect("the folder is complete");
    let project = Project::read(&read("partdiff-par.proj")).complete().expect("sound");
    assert_eq!((project.files.len(), project.communicators.len(), project.datatypes.len()), (3, 53, 5));
    let mut writes = 0;
    for path in topology_paths(&project).into_iter().filter(|path| path.len() == 3) {
        let trace = Trace::read(&read(&trace_file(project_stem("partdiff-par.proj"), &path))).complete().expect("sound");
        writes += trace.entries.iter().filter(|entry| matches!(entry, Entry::State(state) if state.name.starts_with("File_write"))).count();
        assert_eq!(Trace::read(trace.write().as_bytes()).complete(), Ok(trace));
    }
    assert_eq!(writes, 554);
    assert_eq!(Project::read(project.write().as_bytes()).complete(), Ok(project));
    let model = ClusterModel::read(&read("pvs-cluster-model.xml")).complete().expect("sound");
    let servers: Vec<u64> = model.nodes.iter().flat_map(|node| &node.servers).map(|server| server.id).collect();
    assert_eq!(servers, [121, 124, 127, 130, 133]);
    let statistics = Statistics::read(&read("partdiff-par_node05_Performance.stat")).complete().expect("sound");
    assert_eq!(
        (statistics.group.values.len(), statistics.rows.len(), statistics.group.topology.as_slice()),
        (20, 3, ["node05".to_owned()].as_slice())
    );
    assert_eq!(Statistics::read(&statistics.write().expect("fits")).complete(), Ok(statistics));
}

/// The files of the oldest tools are read as far as they are what their format became.
#[test]
fn examples_of_older_tools_are_read() {
    let Some(data) = data() else { return };
    let read = |name: &str| std::fs::read(data.join("hdtrace-examples").join(name)).expect("the folder is complete");
    assert_eq!(Project::read(&read("test.proj")).complete().expect("sound").statistics.len(), 2);
    let generator = Project::read(&read("load-generator/io-load-generator.proj")).complete().expect("sound");
    assert_eq!((generator.files[0].chunk_bytes(), generator.datatypes[0].types.len()), (Some(65536), 11));
    assert_eq!(Trace::read(&read("test_node01.trc")).complete().expect("sound").entries.len(), 9);
    let statistics = Statistics::read(&read("test_node02_Performance.stat"));
    assert!(statistics.value.rows.len() > 10, "{:?}", statistics.error);
}

#[test]
fn no_beginning_of_a_real_file_makes_a_reader_panic() {
    let Some(data) = data() else { return };
    let mut found = Vec::new();
    files(&data, &mut found);
    assert!(found.len() > 20);
    for path in found {
        let bytes = std::fs::read(&path).expect("readable");
        // All beginnings of small files; of large ones those of the first and last kilobyte and
        // some dozens between.
        let step = if bytes.len() < 5000 { 1 } else { bytes.len() / 20 };
        let near_an_end = |length: usize| length < 300 || bytes.len() - length < 30;
        for length in (0..bytes.len()).filter(|&length| length % step == 0 || near_an_end(length)) {
            if let Some(error) = read_any(&path, &bytes[..length]) {
                let fine = matches!(error.problem, Problem::Truncated(_) | Problem::Missing { .. }) || error.offset < length as u64;
                assert!(fine, "{}: {length}: {error}", path.display());
            }
        }
    }
}
