//! What this machine did while something else ran, as statistics of HDTrace beside its traces: for
//! recordings of MPI programs, whose ranks record their calls only.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};
use weft_hdtrace::{Project, Row, Statistics, StatisticsGroup, Time, project_stem, statistics_file};
use weft_host::hosts::machine_name;
use weft_trace::EventTable;
use weft_trace::event::{LOAD_DEVICES, LOAD_HOST, LOAD_MEMORY};

use crate::host::{Gauges, Host};

/// How often it is asked whether it is time for a look, or over.
const TICK: Duration = Duration::from_millis(50);
/// Looks that are kept: a day of them.
const LOOKS_MAX: usize = 1 << 19;

/// Gauges from a moment on.
type Sample = (Time, [u64; 5]);

/// Looks at this machine until it is told to end.
#[derive(Debug)]
pub struct HostWatch {
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<Vec<(Time, Gauges)>>,
}

impl HostWatch {
    /// Begins to look.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn start() -> Result<HostWatch> {
        let is_over = Arc::new(AtomicBool::new(false));
        let over = is_over.clone();
        let looks = move || {
            let (mut host, mut looks) = (Host::default(), Vec::new());
            while !over.load(Ordering::Relaxed) && looks.len() < LOOKS_MAX {
                looks.extend(host.look().map(|gauges| (now(), gauges)));
                std::thread::park_timeout(TICK);
            }
            looks
        };
        let thread = std::thread::Builder::new().name("weft-host".into()).spawn(looks);
        Ok(HostWatch { is_over, thread: thread.context("cannot start the thread that looks at this machine")? })
    }

    /// Ends, and writes what was seen beside a project, if one of its nodes is this machine.
    ///
    /// # Errors
    /// The project cannot be read, or a file cannot be written.
    pub fn end(self, project: &Path) -> Result<()> {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.thread().unpark();
        // A panic has been reported; there is nothing to write then.
        let looks = self.thread.join().unwrap_or_default();
        write(&looks, &machine_name(), project)
    }
}

fn now() -> Time {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Time(i64::try_from(since.as_nanos()).unwrap_or(i64::MAX))
}

fn write(looks: &[(Time, Gauges)], machine: &str, project: &Path) -> Result<()> {
    let named = || project.display().to_string();
    let bytes = std::fs::read(project).with_context(named)?;
    let nodes = Project::read(&bytes).complete().with_context(named)?.topology;
    if nodes.iter().all(|node| node.name != machine) {
        return Ok(());
    }
    // Shares of the time between two looks hold from the first of them on.
    let shares: Vec<Sample> = looks.windows(2).filter_map(|pair| Some((pair[0].0, pair[1].1.host?))).collect();
    let of = |gauges: fn(&Gauges) -> [u64; 5]| -> Vec<Sample> { looks.iter().map(|(at, look)| (*at, gauges(look))).collect() };
    let groups = [(LOAD_HOST, shares), (LOAD_MEMORY, of(|look| look.memory)), (LOAD_DEVICES, of(|look| look.devices))];
    let events = EventTable::builtin();
    let stem = project.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    for (event, rows) in groups {
        let (Some(info), Some((start, _))) = (events.get(event), rows.first()) else { continue };
        let columns = info.parts.iter().map(|part| part.name.as_str());
        let group = StatisticsGroup::of_counts(info.name.replace('.', "-"), machine.to_string(), columns);
        let path = project.with_file_name(statistics_file(project_stem(&stem), &[machine], &group.name));
        let start = *start;
        let rows = rows.into_iter().map(|(end, gauges)| Row::of_counts(end, gauges.into_iter().take(info.parts.len()))).collect();
        let bytes = Statistics { group, start, rows }.write().map_err(anyhow::Error::msg)?;
        std::fs::write(&path, bytes).with_context(|| path.display().to_string())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use weft_hdtrace::Value;

    use super::*;

    fn project(dir: &Path, node: &str) -> std::path::PathBuf {
        let text = format!(
            "<Application name=\"run\"><Topology><Level type=\"Hostname\"/><Node name=\"{node}\"><Node name=\"0\"/></Node></Topology></Application>"
        );
        let path = dir.join("run.proj");
        std::fs::write(&path, text).expect("written");
        path
    }

    #[test]
    fn what_was_seen_lies_beside_the_traces_of_the_same_machine_only() {
        let dir = tempfile::tempdir().expect("a directory");
        let look = |second: i64, host| (Time(second * 1_000_000_000), Gauges { host, memory: [second as u64; 5], devices: [7; 5] });
        let looks = [look(100, None), look(101, Some([50, 0, 0, 1, 2])), look(103, Some([99, 1, 0, 3, 2]))];
        write(&looks, "n1", &project(dir.path(), "other")).expect("no problem");
        assert_eq!(std::fs::read_dir(dir.path()).expect("is there").count(), 1);
        write(&looks, "n1", &project(dir.path(), "n1")).expect("written");
        let read = |group: &str| {
            let bytes = std::fs::read(dir.path().join(format!("run_n1_{group}.stat"))).expect("is there");
            Statistics::read(&bytes).complete().expect("sound")
        };
        let host = read("load-host");
        let busy: Vec<(i64, &Value)> = host.rows.iter().map(|row| (row.end.0 / 1_000_000_000, &row.values[0])).collect();
        assert_eq!(busy, [(100, &Value::Int64(50)), (101, &Value::Int64(99))], "from the look before on");
        assert_eq!((host.group.values[0].name.as_str(), host.group.topology), ("busy_percent", vec!["n1".to_string()]));
        let memory = read("load-memory");
        assert_eq!((memory.rows.len(), memory.rows[2].end, &memory.rows[2].values[1]), (3, Time(103_000_000_000), &Value::Int64(103)));
        assert_eq!(read("load-devices").group.values.len(), 4);
    }

    #[test]
    fn this_machine_is_watched_until_the_end() {
        let dir = tempfile::tempdir().expect("a directory");
        let watch = HostWatch::start().expect("a thread");
        std::thread::sleep(Duration::from_millis(100));
        watch.end(&project(dir.path(), &machine_name())).expect("written");
        if Path::new("/proc/diskstats").exists() {
            assert!(dir.path().join(format!("run_{}_load-memory.stat", machine_name())).is_file());
        }
        assert!(HostWatch::start().expect("a thread").end(&dir.path().join("absent.proj")).is_err());
    }
}
