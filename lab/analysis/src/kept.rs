//! What is found out about a run when somebody first asks for it, and kept with it: its other parts
//! compute it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock};

use crate::lanes::Lane;
use crate::tracks::{Level, Tracks};

/// What formulas asked for.
#[derive(Debug, Default)]
pub struct ForFormulas {
    pub(crate) gauges: OnceLock<Gauges>,
    pub(crate) sums: Mutex<BTreeMap<(Field, String), Arc<Sums>>>,
}

/// By node and name the samples: nanoseconds since the beginning of the run, value.
pub(crate) type Gauges = BTreeMap<(usize, String), Vec<(u64, u64)>>;
/// By node: beginnings of spans, and the sum up to and with each.
pub(crate) type Sums = Vec<Vec<(u64, u64)>>;

/// What of spans is summed up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Field {
    Bytes,
    Failed,
}

/// The lanes of the last expressions of a filter, each on its level.
#[derive(Debug, Default)]
pub struct Filtered(pub(crate) Mutex<Vec<(Level, String, FilteredLanes)>>);
type FilteredLanes = Arc<Vec<Lane>>;

/// The tracks of the last level.
#[derive(Debug, Default)]
pub struct Arranged(pub(crate) Mutex<Option<Arc<Tracks>>>);
