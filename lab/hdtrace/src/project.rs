//! The project file (`.proj`): what was traced, on which nodes, with which files, communicators and
//! datatypes. The traces, statistics and relations themselves lie in files beside it, whose names
//! follow from the topology ([`crate::trace_file`]).

use crate::datatype::{RankTypes, rank_types_element, read_rank_types};
use crate::error::{Error, Partial, Problem};
use crate::xml::{Element, Lookup, parse_document};
use crate::xml_write::write_element;

/// A project: the description of one traced run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Project {
    /// Name of the application.
    pub name: String,
    /// Number of processes, where the file says it.
    pub process_count: Option<u32>,
    /// Free text.
    pub description: String,
    /// Files that the application used.
    pub files: Vec<ProjectFile>,
    /// Names of the levels of the topology, outermost first, such as `Hostname`, `Rank`, `Thread`.
    pub levels: Vec<String>,
    /// The nodes of the outermost level.
    pub topology: Vec<TopologyNode>,
    /// Communicators with the ranks in them.
    pub communicators: Vec<Communicator>,
    /// Datatypes of each rank.
    pub datatypes: Vec<RankTypes>,
    /// Names of statistics groups, each with whatever the file says about it.
    pub statistics: Vec<Element>,
    /// Elements that this crate does not know, kept.
    pub other: Vec<Element>,
}

/// A file of the application.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProjectFile {
    /// Name as the application opened it.
    pub name: String,
    /// Size before the run in bytes.
    pub initial_bytes: u64,
    /// How its bytes are spread over servers, where the file says it.
    pub distribution: Option<Distribution>,
    /// Elements that this crate does not know, kept.
    pub other: Vec<Element>,
}

/// How a file is spread over servers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Distribution {
    /// Name of the implementing class of PIOsimHD, such as `de.hd...SimpleStripe`.
    pub class: String,
    /// Parameters by name, such as `ChunkSize` and `64K`.
    pub parameters: Vec<(String, String)>,
}

/// A node of the topology tree. Every node may own a trace, statistics and relations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TopologyNode {
    /// Name; unique among its siblings.
    pub name: String,
    /// What the node is, if it is not what its level says.
    pub kind: Option<String>,
    /// Nodes of the next level.
    pub children: Vec<TopologyNode>,
}

/// A communicator of MPI.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Communicator {
    /// Name, often empty.
    pub name: String,
    /// Its members.
    pub members: Vec<Member>,
}

/// A rank in a communicator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// Rank in the whole run.
    pub global: u32,
    /// Rank in this communicator.
    pub local: u32,
    /// Number by which this rank's trace names the communicator.
    pub id: i64,
}

impl ProjectFile {
    /// Stripe size in bytes, if the distribution has one.
    pub fn chunk_bytes(&self) -> Option<u64> {
        let parameters = self.distribution.iter().flat_map(|distribution| &distribution.parameters);
        let inside = parameters.filter(|(name, _)| name == "ChunkSize").map(|(_, value)| value.as_str());
        let beside = self.other.iter().filter(|element| element.name == "ChunkSize").map(|element| element.text.as_str());
        inside.chain(beside).find_map(parse_bytes)
    }
}

impl Project {
    /// Reads a project file. What is sound is kept; the error is the first fault.
    pub fn read(bytes: &[u8]) -> Partial<Project> {
        let document = parse_document(bytes);
        let Some(root) = document.value else {
            return Partial { value: Project::default(), error: document.error };
        };
        let mut read = Reading { lookup: Lookup::new(bytes), fault: document.error };
        if root.name != "Application" {
            read.fault
                .get_or_insert(read.lookup.error(root.offset, Problem::Misplaced(format!("<{}> as the outermost element", root.name))));
            return Partial { value: Project::default(), error: read.fault };
        }
        let value = read.project(&root);
        Partial { value, error: read.fault }
    }

    /// The project file of this project.
    pub fn write(&self) -> String {
        let mut root = Element::new("Application").with("name", &self.name);
        if let Some(count) = self.process_count {
            root = root.with("processCount", count);
        }
        let list = |name: &str, children: Vec<Element>| Element { children, ..Element::new(name) };
        root.children.push(Element { text: self.description.trim().to_owned(), ..Element::new("Description") });
        root.children.push(list("FileList", self.files.iter().map(file_element).collect()));
        let mut topology: Vec<Element> = level_element(&self.levels).into_iter().collect();
        topology.extend(self.topology.iter().map(node_element));
        root.children.push(list("Topology", topology));
        root.children.push(list("CommunicatorList", self.communicators.iter().map(communicator_element).collect()));
        root.children.push(list("Datatypes", self.datatypes.iter().map(rank_types_element).collect()));
        root.children.push(list("ExternalStatistics", self.statistics.clone()));
        root.children.extend(self.other.iter().cloned());
        let mut out = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
        write_element(&mut out, 0, &root);
        out
    }

    /// The number of the communicator that a trace of rank `global` calls `id`, as an index into
    /// [`Project::communicators`].
    pub fn communicator_of(&self, global: u32, id: i64) -> Option<usize> {
        let names_it = |communicator: &Communicator| communicator.members.iter().any(|member| (member.global, member.id) == (global, id));
        self.communicators.iter().position(names_it)
    }
}

/// A number of bytes with an optional suffix `K`, `M` or `G`, which count by 1024.
pub(crate) fn parse_bytes(text: &str) -> Option<u64> {
    let text = text.trim();
    let (digits, shift) = match text.as_bytes().last()? {
        b'K' | b'k' => (&text[..text.len() - 1], 10),
        b'M' | b'm' => (&text[..text.len() - 1], 20),
        b'G' | b'g' => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

struct Reading<'a> {
    lookup: Lookup<'a>,
    fault: Option<Error>,
}

impl Reading<'_> {
    /// The value, or `None` with the fault noted.
    fn sound<T>(&mut self, result: Result<T, Error>) -> Option<T> {
        result.map_err(|error| self.fault.get_or_insert(error)).ok()
    }

    fn project(&mut self, root: &Element) -> Project {
        let name = self.lookup.required(root, "name").map(str::to_owned);
        let mut project = Project { name: self.sound(name).unwrap_or_default(), ..Project::default() };
        if root.attribute("processCount").is_some() {
            project.process_count = self.sound(self.lookup.number(root, "processCount", "a count"));
        }
        for child in &root.children {
            match child.name.as_str() {
                "Description" => project.description.clone_from(&child.text),
                "FileList" => {
                    for file in child.children_named("File") {
                        project.files.extend(self.sound(read_file(self.lookup, file)));
                    }
                }
                "Topology" => {
                    project.levels = self.levels(child);
                    project.topology = self.nodes(child);
                }
                "CommunicatorList" => {
                    for communicator in child.children_named("Communicator") {
                        let communicator = self.communicator(communicator);
                        project.communicators.push(communicator);
                    }
                }
                "Datatypes" => {
                    for rank in child.children_named("Rank") {
                        let types = read_rank_types(self.lookup, rank, &mut self.fault);
                        project.datatypes.extend(self.sound(types));
                    }
                }
                "ExternalStatistics" => project.statistics.clone_from(&child.children),
                _ => project.other.push(child.clone()),
            }
        }
        if root.child("Topology").is_none() {
            self.fault.get_or_insert(
                self.lookup.error(root.offset, Problem::Missing { element: root.name.clone(), part: "<Topology>".to_owned() }),
            );
        }
        project
    }

    fn levels(&mut self, topology: &Element) -> Vec<String> {
        let mut levels = Vec::new();
        let mut next = topology.child("Level");
        while let Some(level) = next {
            // The oldest tools called the type a name.
            let name = level.attribute("name").filter(|_| level.attribute("type").is_none());
            levels.extend(self.sound(name.map_or_else(|| self.lookup.required(level, "type"), Ok).map(str::to_owned)));
            next = level.child("Level");
        }
        levels
    }

    /// The depth of the tree is bounded by that of the document.
    fn nodes(&mut self, parent: &Element) -> Vec<TopologyNode> {
        let mut nodes = Vec::new();
        // The oldest tools called a node a label, and its name a value.
        let named = [("Node", "name"), ("Label", "value")];
        for (child, attribute) in
            parent.children.iter().filter_map(|child| named.iter().find(|(name, _)| child.name == *name).map(|(_, of)| (child, of)))
        {
            if let Some(name) = self.sound(self.lookup.required(child, attribute).map(str::to_owned)) {
                let kind = child.attribute("type").map(str::to_owned);
                nodes.push(TopologyNode { name, kind, children: self.nodes(child) });
            }
        }
        nodes
    }

    fn communicator(&mut self, element: &Element) -> Communicator {
        let mut members = Vec::new();
        for rank in element.children_named("Rank") {
            members.extend(self.sound(read_member(self.lookup, rank)));
        }
        Communicator { name: element.attribute("name").unwrap_or("").to_owned(), members }
    }
}

fn read_member(lookup: Lookup<'_>, element: &Element) -> Result<Member, Error> {
    Ok(Member {
        global: lookup.number(element, "global", "a rank")?,
        local: lookup.number(element, "local", "a rank")?,
        id: lookup.number(element, "cid", "the number of a communicator")?,
    })
}

fn read_file(lookup: Lookup<'_>, element: &Element) -> Result<ProjectFile, Error> {
    lookup.whole(element)?;
    let name = lookup.required(element, "name")?.to_owned();
    let size = lookup.child_text(element, "InitialSize")?;
    let initial_bytes = parse_bytes(size).ok_or_else(|| lookup.wrong(element, "<InitialSize>", size, "a number of bytes"))?;
    let distribution = match element.child("Distribution") {
        Some(distribution) => Some(Distribution {
            class: lookup.required(distribution, "class")?.to_owned(),
            parameters: distribution.children.iter().map(|child| (child.name.clone(), child.text.clone())).collect(),
        }),
        None => None,
    };
    let known = |child: &&Element| !matches!(child.name.as_str(), "InitialSize" | "Distribution");
    Ok(ProjectFile { name, initial_bytes, distribution, other: element.children.iter().filter(known).cloned().collect() })
}

fn file_element(file: &ProjectFile) -> Element {
    let mut element = Element::new("File").with("name", &file.name);
    element.children.push(Element { text: file.initial_bytes.to_string(), ..Element::new("InitialSize") });
    if let Some(distribution) = &file.distribution {
        let mut child = Element::new("Distribution").with("class", &distribution.class);
        let parameter = |(name, value): &(String, String)| Element { text: value.clone(), ..Element::new(name) };
        child.children = distribution.parameters.iter().map(parameter).collect();
        element.children.push(child);
    }
    element.children.extend(file.other.iter().cloned());
    element
}

fn level_element(levels: &[String]) -> Option<Element> {
    let inside_out = levels.iter().rev();
    inside_out.fold(None, |inner, level| {
        let mut element = Element::new("Level").with("type", level);
        element.children.extend(inner);
        Some(element)
    })
}

fn node_element(node: &TopologyNode) -> Element {
    let mut element = Element::new("Node").with("name", &node.name);
    if let Some(kind) = &node.kind {
        element = element.with("type", kind);
    }
    element.children = node.children.iter().map(node_element).collect();
    element
}

fn communicator_element(communicator: &Communicator) -> Element {
    let mut element = Element::new("Communicator").with("name", &communicator.name);
    let member = |m: &Member| Element::new("Rank").with("global", m.global).with("local", m.local).with("cid", m.id);
    element.children = communicator.members.iter().map(member).collect();
    element
}
