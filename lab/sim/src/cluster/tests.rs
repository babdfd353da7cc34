//! Wrong plans of clusters with different nodes, and what is said about them.

use weft_plan::files::Lab;

use crate::case::{self, Case};

const HEAD: &str = "profile = \"pvs-2009\"\nclients = 4\nservers = 3\n";
const WORK: &str = "[[workload]]\nkind = \"own\"\nfile = \"4MiB\"\n";

/// The first case of a plan with these lines between head and workload; line 4 is their first.
fn read(lines: &str) -> Result<weft_piosim::ClusterConfig, String> {
    let folder = tempfile::tempdir().expect("a directory");
    let path = folder.path().join("plan.toml");
    std::fs::write(&path, format!("{HEAD}{lines}\n{WORK}")).expect("written");
    let lab = Lab { folder: folder.path().to_path_buf() };
    let short = |error: anyhow::Error| format!("{error:#}").replace(&path.display().to_string(), "plan.toml");
    let cases = lab.plan(&path.display().to_string(), &[], None).and_then(|plan| plan.cases(case::read)).map_err(short)?;
    match cases[0].build(case::read).map_err(short)? {
        Case::Model { config, .. } => Ok(*config),
        _ => Err("another system".to_string()),
    }
}

fn problem(lines: &str) -> String {
    read(lines).expect_err("it is wrong")
}

#[test]
fn wrong_groups_of_nodes_are_refused_with_file_line_and_key() {
    let cases = [
        ("[[nodes]]\nclients = \"2-4\"", "plan.toml:5: nodes.clients: there is no client 4, there are 0 to 3"),
        ("[[nodes]]\nservers = 1\n[[nodes]]\nservers = \"0-1\"", "plan.toml:7: nodes.servers: server 1 is in [[nodes]] twice"),
        ("[[nodes]]\nservers = \"x\"", "plan.toml:5: nodes.servers: `x` is not a list of numbers"),
        ("[[nodes]]\nprofile = \"modern\"", "plan.toml:4: nodes.clients: is missing, and so is servers"),
        ("[[nodes]]\nservers = \"0-1\"\non_clients = 3", "plan.toml:6: nodes.on_clients: names 1 clients for 2 servers"),
        ("[[nodes]]\nservers = 0\non_clients = 7", "plan.toml:6: nodes.on_clients: there is no client 7"),
        ("[[nodes]]\nclients = 0\n[nodes.disk]\nmodel = \"ram\"", "plan.toml:6: nodes.disk: no such key; here may stand"),
        ("[[nodes]]\nservers = 0\n[nodes.disk]\nmodel = \"ssd\"", "plan.toml:6: nodes.disk.page: is missing"),
        ("[[nodes]]\nservers = 0\n[nodes.server]\nmemory = 5", "plan.toml:7: nodes.server.memory: must be more than a packet"),
        ("[[nodes]]\nservers = 0\n[nodes.server]\nanswers = \"written\"", "plan.toml:7: nodes.server.answers: no such key"),
        ("[[nodes]]\nservers = 0\nprofile = \"no-such\"", "plan.toml:6: nodes.profile: there is no no-such among the profiles"),
        ("[[nodes]]\nservers = 0\non_clients = 1\n[nodes.node]\ncpus = 2", "plan.toml:7: nodes.node: no such key"),
        ("[[nodes]]\nservers = 0\n[nodes.network]\npacket = \"1MiB\"", "plan.toml:7: nodes.network.packet: no such key"),
    ];
    for (lines, expected) in cases {
        let found = problem(lines);
        assert!(found.starts_with(expected), "{lines}\n{found}\n{expected}");
    }
}

#[test]
fn wrong_topologies_are_refused_with_file_line_and_key() {
    let two = "[[switch]]\nname = \"a\"\nclients = \"0-3\"\n[[switch]]\nname = \"b\"\nservers = \"0-2\"\n";
    let cases = [
        (two.to_string(), "plan.toml:1: link: no links lead from client 0 to server 0"),
        (format!("{two}[[link]]\nbetween = [\"a\", \"c\"]"), "plan.toml:11: link.between: there is no switch \"c\"; there are a, b"),
        (format!("{two}[[link]]\nbetween = [\"a\", \"a\"]"), "plan.toml:11: link.between: connects a switch with itself"),
        (format!("{two}[[link]]\nbetween = \"a\""), "plan.toml:11: link.between: needs the names of two switches"),
        (format!("{two}[[link]]\nbetween = [\"a\", \"b\"]\nbandwidth = 0"), "plan.toml:12: link.bandwidth: must be above 0"),
        (two.replace("0-2", "0-1"), "plan.toml:4: switch.servers: server 2 is at no switch"),
        (two.replace("0-2", "0-3"), "plan.toml:9: switch.servers: there is no server 3, there are 0 to 2"),
        (two.replace("\"b\"", "\"a\""), "plan.toml:8: switch.name: another switch is named \"a\""),
        (two.replace("servers", "clients"), "plan.toml:9: switch.clients: client 0 is at two switches"),
        (format!("[[nodes]]\nservers = 1\non_clients = 0\n{two}"), "plan.toml:12: switch.servers: server 1 is on the node of client 0"),
        ("[[link]]\nbetween = [\"a\", \"b\"]".to_string(), "plan.toml:4: link: there are no switches"),
        (format!("{two}[network]\nnodes_per_rack = 2\nuplink_bandwidth = 7"), "plan.toml:4: switch: a plan has switches or racks"),
    ];
    for (lines, expected) in cases {
        let found = problem(&lines);
        assert!(found.starts_with(expected), "{lines}\n{found}\n{expected}");
    }
}

#[test]
fn nodes_differ_by_what_their_table_or_its_profile_says() {
    let config = read(
        "[disk]\nbandwidth = \"60MiB\"\n[[nodes]]\nservers = 2\n[nodes.disk]\nrpm = 15000\n[[nodes]]\nservers = 0\nprofile = \"modern\"\n\
         [nodes.server]\ncache_layer = \"aggregation\"\n[[nodes]]\nclients = \"1-2\"\nprofile = \"modern\"\n[nodes.node]\ncpus = 7",
    )
    .expect("sound");
    let weft_model::DiskModel::Refined { rpm, bandwidth, .. } = config.server(2).disk else { panic!("the same kind of disk") };
    assert_eq!((rpm, bandwidth), (15000.0, 60 << 20), "what the table does not say is as in the plan");
    assert!(matches!(config.server(0).disk, weft_model::DiskModel::Ssd { channels: 32, .. }), "the disk of its profile");
    assert_eq!(config.server(1), &config.server);
    let nodes = config.nodes();
    assert_eq!(nodes.iter().map(|node| node.cpu.cpus).collect::<Vec<_>>(), [1, 7, 7, 1, 32, 1, 1]);
    assert_eq!(nodes[1].card.link_bandwidth, 11900 << 20);
}
