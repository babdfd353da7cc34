//! Names of the files of a project. The trace of a node of the topology lies beside the project
//! file and is called like it, followed by the names of the nodes on the way from the outermost
//! level, joined by `_`.

use crate::project::{Project, TopologyNode};

/// The common beginning of the file names of a project: the name of the project file without
/// `.proj`.
pub fn project_stem(project_file: &str) -> &str {
    project_file.strip_suffix(".proj").unwrap_or(project_file)
}

/// Name of the trace of the node at the end of `path`.
pub fn trace_file(stem: &str, path: &[&str]) -> String {
    format!("{}.trc", joined(stem, path))
}

/// Name of the relations of the node at the end of `path`.
pub fn relation_file(stem: &str, path: &[&str]) -> String {
    format!("{}.rel", joined(stem, path))
}

/// Name of the file of a statistics group of the node at the end of `path`.
pub fn statistics_file(stem: &str, path: &[&str], group: &str) -> String {
    format!("{}_{group}.stat", joined(stem, path))
}

/// The paths of all nodes of the topology, a node before its children.
pub fn topology_paths(project: &Project) -> Vec<Vec<&str>> {
    fn collect<'a>(nodes: &'a [TopologyNode], path: &mut Vec<&'a str>, paths: &mut Vec<Vec<&'a str>>) {
        for node in nodes {
            path.push(&node.name);
            paths.push(path.clone());
            collect(&node.children, path, paths);
            path.pop();
        }
    }
    let mut paths = Vec::new();
    collect(&project.topology, &mut Vec::new(), &mut paths);
    paths
}

fn joined(stem: &str, path: &[&str]) -> String {
    path.iter().fold(stem.to_owned(), |name, node| name + "_" + node)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_topology() {
        let node = |name: &str, children| TopologyNode { name: name.to_owned(), kind: None, children };
        let topology = vec![node("a", vec![node("0", vec![node("t", Vec::new())])]), node("b", Vec::new())];
        let project = Project { topology, ..Project::default() };
        let stem = project_stem("run.proj");
        let names: Vec<String> = topology_paths(&project).iter().map(|path| trace_file(stem, path)).collect();
        assert_eq!(names, ["run_a.trc", "run_a_0.trc", "run_a_0_t.trc", "run_b.trc"]);
        assert_eq!(statistics_file(stem, &["a"], "CPU"), "run_a_CPU.stat");
        assert_eq!(relation_file(stem, &["a", "0"]), "run_a_0.rel");
    }
}
