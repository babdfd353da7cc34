//! `weft-hdtrace`: the file formats of HDTrace and PIOsimHD (Kunkel, University of Heidelberg,
//! 2008-2011), read and written: the project ([`Project`], `.proj`), traces of states and events
//! ([`Trace`], `.trc`), statistics ([`Statistics`], `.stat`), relations between states
//! ([`Relations`], `.rel`) and the model of a cluster ([`ClusterModel`], `.xml`). A file that ends
//! too early gives what is sound in it together with the error ([`Partial`]); every error names the
//! place and what is wrong there.
//!
//! It never opens a file: callers bring the bytes and take the bytes. It never interprets a command
//! either: names and attributes of states stay what the file says.

mod call;
mod cluster;
mod datatype;
mod error;
mod names;
mod project;
mod relation;
mod statistics;
mod time;
mod trace;
mod xml;
mod xml_write;

pub use call::{CALL, PROJECT_OBJECT, SIMULATED, call_object, range_elements, ranges};
pub use cluster::{ClusterModel, ModelLink, ModelNode, ModelProcess, ModelServer, ModelSwitch};
pub use datatype::{Datatype, Dimension, RankTypes, StructPart};
pub use error::{Error, Partial, Problem};
pub use names::{project_stem, relation_file, statistics_file, topology_paths, trace_file};
pub use project::{Communicator, Distribution, Member, Project, ProjectFile, TopologyNode};
pub use relation::{Parent, Relation, RelationHeader, Relations};
pub use statistics::{Row, Stamp, Statistics, StatisticsGroup, Value, ValueDescription, ValueKind};
pub use time::Time;
pub use trace::{Entry, Event, Offset, State, Trace, TraceReader};
pub use xml::Element;
