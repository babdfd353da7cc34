//! The cluster model of PIOsimHD (`.xml`): nodes with network cards, client processes and servers,
//! switches with ports, and settings. Only what the simulator of 2009 computed with is read;
//! templates are skipped, because the tool wrote their values into every component.

use crate::error::{Error, Partial, Problem};
use crate::project::parse_bytes;
use crate::time::Time;
use crate::xml::{Element, Lookup, parse_document};

/// A cluster and what runs on it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClusterModel {
    /// Name and project file of each application.
    pub applications: Vec<(String, String)>,
    /// Largest network packet in bytes.
    pub transfer_granularity: Option<u64>,
    /// Largest disk operation in bytes.
    pub io_granularity: Option<u64>,
    /// Largest message that is sent without asking, in bytes.
    pub eager_bytes: Option<u64>,
    /// Nodes in the order of the file.
    pub nodes: Vec<ModelNode>,
    /// Switches in the order of the file.
    pub switches: Vec<ModelSwitch>,
}

/// A node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelNode {
    /// Number of the component. The simulator of 2009 ordered servers by a hash of such numbers.
    pub id: u64,
    /// Name.
    pub name: String,
    /// Number of processors.
    pub cpus: u64,
    /// Instructions a second of one processor.
    pub instructions_per_second: u64,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// Bytes a second between processes of this node.
    pub internal_bytes_per_second: u64,
    /// Links of its network cards.
    pub links: Vec<ModelLink>,
    /// Client processes on it.
    pub processes: Vec<ModelProcess>,
    /// Servers on it.
    pub servers: Vec<ModelServer>,
}

/// A link of a network card or of a switch's port.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelLink {
    /// Component at its other end, if it is plugged in.
    pub to: Option<u64>,
    /// Time of flight.
    pub latency: Time,
    /// Bytes a second.
    pub bytes_per_second: u64,
}

/// A client process.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelProcess {
    /// Number of the component.
    pub id: u64,
    /// Name of the application it belongs to.
    pub application: String,
    /// Rank in the application.
    pub rank: u32,
    /// Thread of the rank.
    pub thread: String,
}

/// A server with its disk and cache layer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelServer {
    /// Number of the component.
    pub id: u64,
    /// Name.
    pub name: String,
    /// Class of the disk model without its package, such as `RefinedDiskModel`.
    pub disk_model: String,
    /// Track-to-track seek time.
    pub track_to_track_seek: Time,
    /// Average seek time.
    pub average_seek: Time,
    /// Rotations a minute.
    pub rotations_per_minute: u64,
    /// Sequential bytes a second.
    pub bytes_per_second: u64,
    /// Distance in bytes below which an access is near.
    pub near_bytes: u64,
    /// Class of the cache layer without its package, such as `AggregationCache`.
    pub cache_layer: String,
    /// Disk operations that may be under way at once.
    pub operations_at_once: u64,
    /// Largest hole in bytes that reads may bridge, where the file says it.
    pub hole_bytes: Option<u64>,
}

/// A switch.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelSwitch {
    /// Number of the component.
    pub id: u64,
    /// Name.
    pub name: String,
    /// Bytes a second through the whole switch.
    pub bytes_per_second: u64,
    /// Ports.
    pub ports: Vec<ModelLink>,
}

impl ClusterModel {
    /// Reads a model. Components that are not sound are left out; the error is the first fault.
    pub fn read(bytes: &[u8]) -> Partial<ClusterModel> {
        let document = parse_document(bytes);
        let mut model = ClusterModel::default();
        let Some(root) = document.value else {
            return Partial { value: model, error: document.error };
        };
        let lookup = Lookup::new(bytes);
        let mut fault = document.error;
        if root.name != "Project" {
            fault.get_or_insert(lookup.error(root.offset, Problem::Misplaced(format!("<{}> as the outermost element", root.name))));
            return Partial { value: model, error: fault };
        }
        if let Some(list) = root.child("ApplicationList") {
            model.applications = sound(list.children.iter().map(|child| read_application(lookup, child)), &mut fault);
        }
        if let Some(settings) = root.child("GlobalSettings") {
            let mut setting = |name| sound([optional_bytes(lookup, settings, name)], &mut fault).pop().flatten();
            model.transfer_granularity = setting("TransferGranularity");
            model.io_granularity = setting("IOGranularity");
            model.eager_bytes = setting("MaxEagerSendSize");
        }
        if let Some(components) = root.child("ComponentList") {
            let of = |list, kind| components.child(list).into_iter().flat_map(move |list: &Element| list.children_named(kind));
            let whole = |element: &Element| lookup.whole(element);
            let nodes = of("NodeList", "Node").map(|node| whole(node).and_then(|()| read_node(lookup, node)));
            model.nodes = sound(nodes, &mut fault);
            let switches = of("SwitchList", "Switch").map(|switch| whole(switch).and_then(|()| read_switch(lookup, switch)));
            model.switches = sound(switches, &mut fault);
        }
        Partial { value: model, error: fault }
    }
}

/// The values that could be read; the first error goes to `fault`.
fn sound<T>(results: impl IntoIterator<Item = Result<T, Error>>, fault: &mut Option<Error>) -> Vec<T> {
    let mut values = Vec::new();
    for result in results {
        match result {
            Ok(value) => values.push(value),
            Err(error) => {
                fault.get_or_insert(error);
            }
        }
    }
    values
}

fn read_application(lookup: Lookup<'_>, element: &Element) -> Result<(String, String), Error> {
    Ok((lookup.required(element, "alias")?.to_owned(), element.attribute("file").unwrap_or("").to_owned()))
}

fn read_node(lookup: Lookup<'_>, node: &Element) -> Result<ModelNode, Error> {
    let hosted = |kind| node.child("HOSTEDCOMPONENTS").into_iter().flat_map(move |list: &Element| list.children_named(kind));
    let cards = node.child("NICS").into_iter().flat_map(|list| list.children_named("NIC"));
    let links = cards.filter_map(|card| card.child("CONNECTION")).flat_map(|list| list.children_named("Connection"));
    Ok(ModelNode {
        id: lookup.number(node, "id", "a number")?,
        name: node.attribute("name").unwrap_or("").to_owned(),
        cpus: bytes(lookup, node, "CPUs")?,
        instructions_per_second: bytes(lookup, node, "InstructionsPerSecond")?,
        memory_bytes: bytes(lookup, node, "MemorySize")?,
        internal_bytes_per_second: bytes(lookup, node, "InternalDataTransferSpeed")?,
        links: links.map(|link| read_link(lookup, link)).collect::<Result<_, _>>()?,
        processes: hosted("ClientProcess").map(|process| read_process(lookup, process)).collect::<Result<_, _>>()?,
        servers: hosted("Server").map(|server| read_server(lookup, server)).collect::<Result<_, _>>()?,
    })
}

fn read_link(lookup: Lookup<'_>, link: &Element) -> Result<ModelLink, Error> {
    let to = link.attribute("to").map(|_| lookup.number(link, "to", "the number of a component")).transpose()?;
    Ok(ModelLink { to, latency: seconds(lookup, link, "Latency")?, bytes_per_second: bytes(lookup, link, "Bandwidth")? })
}

fn read_process(lookup: Lookup<'_>, process: &Element) -> Result<ModelProcess, Error> {
    Ok(ModelProcess {
        id: lookup.number(process, "id", "a number")?,
        application: process.attribute("application").unwrap_or("").to_owned(),
        rank: lookup.number(process, "rank", "a rank")?,
        thread: process.attribute("thread").unwrap_or("0").to_owned(),
    })
}

fn read_server(lookup: Lookup<'_>, server: &Element) -> Result<ModelServer, Error> {
    let part = |list: &str, kind: &str| {
        let missing = || lookup.error(server.offset, Problem::Missing { element: server.name.clone(), part: format!("<{kind}>") });
        server.child(list).and_then(|list| list.child(kind)).ok_or_else(missing)
    };
    let disk = part("IOSUBSYSTEM", "IOSubsystem")?;
    let cache = part("CACHESTRATEGY", "ServerCacheLayer")?;
    Ok(ModelServer {
        id: lookup.number(server, "id", "a number")?,
        name: server.attribute("name").unwrap_or("").to_owned(),
        disk_model: class_name(lookup, disk)?,
        track_to_track_seek: seconds(lookup, disk, "TrackToTrackSeekTime")?,
        average_seek: seconds(lookup, disk, "AverageSeekTime")?,
        rotations_per_minute: bytes(lookup, disk, "RPM")?,
        bytes_per_second: bytes(lookup, disk, "SequentialTransferRate")?,
        near_bytes: bytes(lookup, disk, "PositionDifferenceConsideredToBeClose")?,
        cache_layer: class_name(lookup, cache)?,
        operations_at_once: bytes(lookup, cache, "MaxNumberOfConcurrentIOOps")?,
        hole_bytes: optional_bytes(lookup, cache, "ReadDataSievingMaxHoleSizeToCombine")?,
    })
}

fn read_switch(lookup: Lookup<'_>, switch: &Element) -> Result<ModelSwitch, Error> {
    let ports = switch.child("PORTS").into_iter().flat_map(|list| list.children_named("Port"));
    let links = ports.filter_map(|port| port.child("CONNECTION")).flat_map(|list| list.children_named("Connection"));
    Ok(ModelSwitch {
        id: lookup.number(switch, "id", "a number")?,
        name: switch.attribute("name").unwrap_or("").to_owned(),
        bytes_per_second: bytes(lookup, switch, "TotalBandwidth")?,
        ports: links.map(|link| read_link(lookup, link)).collect::<Result<_, _>>()?,
    })
}

fn class_name(lookup: Lookup<'_>, element: &Element) -> Result<String, Error> {
    let class = lookup.required(element, "implementation")?;
    Ok(class.rsplit('.').next().unwrap_or(class).to_owned())
}

fn bytes(lookup: Lookup<'_>, element: &Element, name: &str) -> Result<u64, Error> {
    let text = lookup.child_text(element, name)?;
    parse_bytes(text).ok_or_else(|| lookup.wrong(element, &format!("<{name}>"), text, "a number, with K, M or G for powers of 1024"))
}

fn optional_bytes(lookup: Lookup<'_>, element: &Element, name: &str) -> Result<Option<u64>, Error> {
    if element.child(name).is_none() { Ok(None) } else { bytes(lookup, element, name).map(Some) }
}

fn seconds(lookup: Lookup<'_>, element: &Element, name: &str) -> Result<Time, Error> {
    let text = lookup.child_text(element, name)?;
    Time::parse(text).ok_or_else(|| lookup.wrong(element, &format!("<{name}>"), text, "seconds"))
}
