//! Results of `weft bench`, as it tells them and as they are read again: rates of phases, how
//! operations went over time, and what the machine allows at best. Files come from anywhere: what
//! is not understood is an error with a reason, never a wrong number.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Everything of a run that no trace says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Results {
    /// Phases of `weft bench`, in the order of the files.
    pub phases: Vec<Phase>,
    /// How the phases went, process by process.
    pub progress: Vec<Progress>,
    /// What `weft bench ceiling` measured, by name of the row: medians in its units.
    pub ceilings: Vec<Ceiling>,
}

/// A phase of `weft bench`, summed up over its repetitions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Phase {
    /// For example `create`.
    pub phase: String,
    /// How often it was repeated.
    #[serde(default)]
    pub repetitions: usize,
    /// Processes.
    #[serde(default = "one")]
    pub procs: u32,
    /// Threads of each: in rows of a plan the key `threads`, as `clients` is a key of the plan
    /// there and means processes.
    #[serde(default = "one")]
    pub clients: u32,
    /// Requests in flight of each thread.
    #[serde(default = "one")]
    pub depth: u32,
    /// Operations of one repetition.
    #[serde(default)]
    pub ops: u64,
    /// Bytes of a file.
    #[serde(default)]
    pub size_bytes: u64,
    /// Bytes of one read or write.
    #[serde(default)]
    pub block_bytes: u64,
    /// From the start of the first client to the end of the last.
    pub seconds: Option<Spread>,
    /// Operations per second: files, entries, or calls of a stream.
    pub ops_per_s: Spread,
    /// Its mean over repetitions.
    pub ops_per_s_mean: Option<f64>,
    /// Its standard deviation over repetitions, as that of all there are.
    pub ops_per_s_deviation: Option<f64>,
    /// MiB of file data per second, if any was moved.
    pub mib_per_s: Option<Spread>,
    /// Requests (each with one reply) for one operation.
    pub messages_per_op: Option<f64>,
    /// Bytes of these requests and replies.
    pub bytes_per_op: Option<f64>,
    /// Processor time of the measuring processes.
    #[serde(default)]
    pub client_cpu_us_per_op: f64,
    /// Processor time of the process that serves the mount.
    pub gateway_cpu_us_per_op: Option<f64>,
    /// Processor time of all servers.
    pub server_cpu_us_per_op: Option<f64>,
    /// How long one operation took, where each waited for the one before.
    pub latency_us: Option<Latency>,
    /// The ceiling of this phase, measured in the same run.
    pub ceiling: Option<PhaseCeiling>,
    /// Rate as a part of the ceiling measured just before the same repetition.
    pub ratio_to_ceiling: Option<Spread>,
    /// What each process of each repetition did when, if it was recorded.
    pub progress: Option<Vec<Process>>,
    /// In rows of a plan: its keys that stand for several values, and the values here.
    #[serde(skip)]
    pub case: Vec<(String, String)>,
}

/// Keys of a plan that a phase says in a field of its own: processes, and the size of a block.
const IN_FIELDS: [&str; 2] = ["clients", "workload.block"];

impl Phase {
    /// A phase as a file tells it: a phase of `weft bench`, or a row of a plan.
    fn of_json(value: &Value) -> serde_json::Result<Phase> {
        let mut value = value.clone();
        if let Some(threads) = value.get("threads").cloned() {
            value["clients"] = threads;
        }
        let mut phase = Phase::deserialize(&value)?;
        let known = serde_json::to_value(&phase)?;
        let is_of_the_plan = |key: &str| known.get(key).is_none() && key != "threads" && !IN_FIELDS.contains(&key);
        for (key, value) in value.as_object().into_iter().flatten().filter(|(key, _)| is_of_the_plan(key)) {
            // What else was measured is an object or an array.
            match value {
                Value::String(text) => phase.case.push((key.clone(), text.clone())),
                Value::Number(_) | Value::Bool(_) => phase.case.push((key.clone(), value.to_string())),
                _ => {}
            }
        }
        Ok(phase)
    }

    /// Its name, and in rows of a plan what tells it from the other rows.
    pub fn title(&self) -> String {
        let values: Vec<String> = self.case.iter().map(|(key, value)| format!("{key} {value}")).collect();
        if values.is_empty() { self.phase.clone() } else { format!("{} ({})", self.phase, values.join(", ")) }
    }

    /// Of several repetitions that were summed up each by itself; latencies are those of the median
    /// repetition. `None` if there is none.
    pub fn over(parts: &[Phase]) -> Option<Phase> {
        let rates = || parts.iter().map(|part| part.ops_per_s.median);
        let ops_per_s = Spread::of(rates())?;
        let mean = rates().sum::<f64>() / parts.len() as f64;
        let deviation = (rates().map(|rate| (rate - mean).powi(2)).sum::<f64>() / parts.len() as f64).sqrt();
        let all = |of: fn(&Phase) -> Option<f64>| parts.iter().map(of).collect::<Option<Vec<f64>>>().and_then(Spread::of);
        let middle = |of: fn(&Phase) -> Option<f64>| all(of).map(|spread| spread.median);
        let median = |of: fn(&Latency) -> f64| Some(Spread::of(parts.iter().filter_map(|part| part.latency_us.as_ref()).map(of))?.median);
        let latency = || Some(Latency { p50: median(|one| one.p50)?, p99: median(|one| one.p99)?, max: median(|one| one.max)? });
        Some(Phase {
            repetitions: parts.len(),
            seconds: all(|part| Some(part.seconds?.median)),
            ops_per_s,
            ops_per_s_mean: Some(mean),
            ops_per_s_deviation: Some(deviation),
            mib_per_s: all(|part| Some(part.mib_per_s?.median)),
            messages_per_op: middle(|part| part.messages_per_op),
            bytes_per_op: middle(|part| part.bytes_per_op),
            client_cpu_us_per_op: middle(|part| Some(part.client_cpu_us_per_op)).unwrap_or_default(),
            gateway_cpu_us_per_op: middle(|part| part.gateway_cpu_us_per_op),
            server_cpu_us_per_op: middle(|part| part.server_cpu_us_per_op),
            latency_us: latency(),
            ceiling: None,
            ratio_to_ceiling: None,
            progress: None,
            ..parts[0].clone()
        })
    }
}

/// What a process did in one repetition, as the JSON report says it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Process {
    /// From 0.
    pub repetition: u32,
    /// From 0.
    pub proc: u32,
    /// Its machine.
    #[serde(default)]
    pub node: String,
    /// Seconds of an interval.
    pub interval_s: f64,
    /// When its first interval began, in seconds since the first client of all.
    #[serde(default)]
    pub begin_s: f64,
    /// When it ended; its last interval may be shorter than the others.
    #[serde(default)]
    pub end_s: f64,
    /// Operations of each interval.
    pub counts: Vec<u64>,
    /// The bins that have entries.
    #[serde(default)]
    pub latency_bins: Vec<Bin>,
}

/// A bin of a latency distribution (`docs/trace.md`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bin {
    /// Position: 0 lies below the 50 bins, 51 above.
    pub slot: usize,
    /// First value in nanoseconds.
    pub from_ns: u64,
    /// Entries.
    pub count: u64,
    /// Their sum in nanoseconds.
    pub sum_ns: u64,
}

fn one() -> u32 {
    1
}

/// Median and range over repetitions.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// Median repetition; of an even number of them the mean of the two in the middle.
    pub median: f64,
    /// Smallest repetition.
    pub min: f64,
    /// Greatest repetition.
    pub max: f64,
}

impl Spread {
    /// The spread of samples; `None` if there is none, or one of them is no number.
    pub fn of(samples: impl IntoIterator<Item = f64>) -> Option<Spread> {
        let mut sorted: Vec<f64> = samples.into_iter().collect();
        if sorted.iter().any(|sample| !sample.is_finite()) {
            return None;
        }
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let middle = sorted.len() / 2;
        let median = if sorted.len() % 2 == 1 { sorted[middle] } else { f64::midpoint(sorted[middle - 1], sorted[middle]) };
        Some(Spread { median, min, max })
    }
}

/// Latencies in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Half of the operations took no longer.
    pub p50: f64,
    /// 99 of 100 took no longer.
    pub p99: f64,
    /// The longest.
    pub max: f64,
}

/// A ceiling beside a phase.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PhaseCeiling {
    /// What it is.
    pub name: String,
    /// `ops/s` or `MiB/s`.
    pub unit: String,
    /// Its rate.
    #[serde(flatten)]
    pub rate: Spread,
}

/// A row of `weft bench ceiling`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ceiling {
    /// Its stable name, for example `rpc.unix.1x1`.
    pub name: String,
    /// Unit of the number.
    pub unit: String,
    /// Median over the repetitions.
    pub median: f64,
}

/// One process in one repetition of one phase.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Progress {
    /// The phase.
    pub phase: String,
    /// The repetition, from 0.
    pub repetition: u32,
    /// The process.
    pub process: u32,
    /// The machine or client that it ran on.
    pub node: String,
    /// By time: end of the interval in nanoseconds since the start of the phase, operations and
    /// bytes within it.
    pub steps: Vec<(u64, u64, u64)>,
}

/// The latest end of an interval, in nanoseconds: 1,000,000 s.
const END_NS_MAX: u64 = 1_000_000_000_000_000;
/// Operations, or bytes, of one interval at most.
const COUNT_MAX: u64 = 1 << 48;

/// How files of `weft lab run` begin: they are lines of JSON, with each repetition by itself.
const LAB_RESULTS: &[u8] = b"{\"is\":\"session\"";

impl Results {
    /// Adds a JSON file.
    ///
    /// # Errors
    /// A sentence about what it is not.
    pub fn add_json(&mut self, bytes: &[u8]) -> Result<(), String> {
        if bytes.starts_with(LAB_RESULTS) {
            return Err("results of weft lab run are read by way of `weft lab show FILE --json`".into());
        }
        let value: Value = serde_json::from_slice(bytes).map_err(|error| format!("this is not JSON: {error}"))?;
        if let Some(rows) = value.get("rows").and_then(Value::as_array) {
            let rows = rows.iter().map(|row| Ceiling::deserialize(row).map_err(|error| format!("a row is no ceiling: {error}")));
            self.ceilings.extend(rows.collect::<Result<Vec<_>, _>>()?);
            return Ok(());
        }
        let phases = value.as_array().or_else(|| value.get("phases").and_then(Value::as_array));
        let phases = phases.ok_or("neither phases of weft bench nor rows of weft bench ceiling")?;
        for phase in phases {
            let phase = Phase::of_json(phase).map_err(|error| format!("an entry is no phase: {error}"))?;
            for process in phase.progress.iter().flatten() {
                let end_ns = |number: usize| ((process.begin_s + process.interval_s * (number + 1) as f64).max(0.0) * 1e9).round() as u64;
                let steps = process.counts.iter().enumerate().map(|(number, count)| (end_ns(number), *count, 0));
                self.add_process(Progress {
                    phase: phase.phase.clone(),
                    repetition: process.repetition,
                    process: process.proc,
                    node: process.node.clone(),
                    steps: steps.collect(),
                })?;
            }
            self.phases.push(phase);
        }
        Ok(())
    }

    /// Adds a CSV file with a row for each process and interval. The columns are found by name:
    /// `proc`, `t_s` (end of the interval in seconds), `count` (what ended in it), and, if there,
    /// `phase`, `repetition`, `node` and `bytes`.
    ///
    /// # Errors
    /// A sentence with the line that could not be read.
    pub fn add_progress(&mut self, text: &str) -> Result<(), String> {
        let mut lines = text.lines().enumerate();
        let head: Vec<&str> = lines.next().map(|(_, line)| line.split(',').map(str::trim).collect()).unwrap_or_default();
        let column = |name: &str| head.iter().position(|known| *known == name);
        let needed = |name: &str| column(name).ok_or_else(|| format!("there is no column {name}"));
        let (process, end_s, counted) = (needed("proc")?, needed("t_s")?, needed("count")?);
        let (phase, repetition, node, bytes) = (column("phase"), column("repetition"), column("node"), column("bytes"));
        let mut found: BTreeMap<(String, u32, u32), Progress> = BTreeMap::new();
        for (number, line) in lines.filter(|(_, line)| !line.trim().is_empty()) {
            let cells: Vec<&str> = line.split(',').map(str::trim).collect();
            let wrong = || format!("line {} has no number where one belongs", number + 1);
            let text = |at: Option<usize>| at.and_then(|at| cells.get(at)).copied().unwrap_or("");
            let value = |at: usize| {
                let number = cells.get(at).and_then(|cell| cell.parse::<f64>().ok());
                number.filter(|value| value.is_finite() && *value >= 0.0).ok_or_else(wrong)
            };
            let process = value(process)? as u32;
            let end_ns = value(end_s)? * 1e9;
            let repetition = repetition.map_or(Ok(0.0), value)? as u32;
            let bytes = bytes.map_or(Ok(0.0), value)? as u64;
            let entry = found.entry((text(phase).to_string(), repetition, process)).or_insert_with(|| Progress {
                phase: text(phase).to_string(),
                repetition,
                process,
                node: text(node).to_string(),
                steps: Vec::new(),
            });
            entry.steps.push((end_ns.round() as u64, value(counted)? as u64, bytes));
        }
        found.into_values().try_for_each(|one| self.add_process(one))
    }

    /// A process that is known already stays as it is: the report and the progress file of one run
    /// say the same.
    fn add_process(&mut self, process: Progress) -> Result<(), String> {
        let is_possible = |&(end_ns, count, bytes): &(u64, u64, u64)| end_ns <= END_NS_MAX && count <= COUNT_MAX && bytes <= COUNT_MAX;
        if process.repetition == u32::MAX || !process.steps.iter().all(is_possible) {
            return Err(format!("process {} of {} did more, or for longer, than is possible", process.process, process.phase));
        }
        let same =
            |other: &Progress| (&other.phase, other.repetition, other.process) == (&process.phase, process.repetition, process.process);
        if !self.progress.iter().any(same) {
            self.progress.push(process);
        }
        Ok(())
    }

    /// Nanoseconds of the longest phase over time.
    pub fn duration_ns(&self) -> u64 {
        self.progress.iter().flat_map(|one| &one.steps).map(|step| step.0).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_of_odd_and_even_numbers_of_samples() {
        assert_eq!(Spread::of([3.0, 1.0, 2.0]), Some(Spread { median: 2.0, min: 1.0, max: 3.0 }));
        assert_eq!(Spread::of([4.0, 1.0, 2.0, 3.0]), Some(Spread { median: 2.5, min: 1.0, max: 4.0 }));
        assert_eq!(Spread::of([]), None);
        assert_eq!(Spread::of([1.0, f64::NAN]), None);
    }

    #[test]
    fn both_forms_of_progress_say_the_same_and_count_once() {
        let mut new = Results::default();
        new.add_progress("phase,repetition,proc,node,t_s,count,bytes\ncreate,0,0,,0.1,3,0\ncreate,0,0,,0.2,4,0\ncreate,0,1,,0.1,5,0\n")
            .unwrap();
        assert_eq!(new.progress[0].steps, [(100_000_000, 3, 0), (200_000_000, 4, 0)]);
        let mut report = Results::default();
        let process = |proc: u32, counts: &str| {
            format!(r#"{{"repetition":0,"proc":{proc},"node":"","interval_s":0.1,"begin_s":0,"counts":{counts},"latency_bins":[]}}"#)
        };
        let rate = r#"{"median":10.0,"min":9.0,"max":11.0}"#;
        let json = format!(r#"[{{"phase":"create","ops_per_s":{rate},"progress":[{},{}]}}]"#, process(0, "[3,4]"), process(1, "[5]"));
        report.add_json(json.as_bytes()).unwrap();
        assert_eq!(report.progress, new.progress);
        report.add_progress("phase,repetition,proc,node,t_s,count,bytes\ncreate,0,0,,0.1,3,0\n").unwrap();
        assert_eq!(report.progress, new.progress, "the same run, told twice");
        assert_eq!(new.duration_ns(), 200_000_000);
    }

    #[test]
    fn progress_that_cannot_be_is_refused() {
        for row in ["create,0,0,,1e300,5,0", "create,0,0,,0.1,18446744073709551615,0", "create,4294967295,0,,0.1,5,0"] {
            let refused = Results::default().add_progress(&format!("phase,repetition,proc,node,t_s,count,bytes\n{row}\n"));
            assert_eq!(refused, Err("process 0 of create did more, or for longer, than is possible".into()), "{row}");
        }
    }

    #[test]
    fn rows_of_a_plan_say_threads_and_the_values_of_their_keys() {
        let rate = r#"{"median":10.0,"min":9.0,"max":11.0}"#;
        let row = |engine: &str| {
            format!(
                r#"{{"phase":"write","procs":5,"clients":5,"threads":2,"weft.engine":"{engine}","workload.block":"1KiB","block_bytes":1024,
                "disk":{{"operations":7}},"predicted":null,"samples":[10.0],"ops_per_s":{rate}}}"#
            )
        };
        let mut results = Results::default();
        results.add_json(format!("[{},{}]", row("memory"), row("journal")).as_bytes()).unwrap();
        let found = |phase: &Phase| (phase.procs, phase.clients, phase.title());
        assert_eq!(found(&results.phases[0]), (5, 2, "write (weft.engine memory)".to_string()));
        assert_eq!(found(&results.phases[1]), (5, 2, "write (weft.engine journal)".to_string()));
    }

    #[test]
    fn phases_and_ceilings_are_told_apart_and_nonsense_is_refused() {
        let mut results = Results::default();
        results.add_json(br#"[{"phase":"create","ops_per_s":{"median":10.0,"min":9.0,"max":11.0},"unknown":1}]"#).unwrap();
        results
            .add_json(
                br#"{"rows":[{"name":"rpc.unix.1x1","unit":"requests/s","median":50000.0,"min":1.0,"max":2.0,"note":""}],"skipped":[]}"#,
            )
            .unwrap();
        assert_eq!((results.phases.len(), results.phases[0].procs, results.ceilings[0].median), (1, 1, 50_000.0));
        let said = results.add_json(b"{\"is\":\"session\",\"schema\":2}\n{\"is\":\"run\"}\n").unwrap_err();
        assert!(said.contains("weft lab show FILE --json"), "{said}");
        for wrong in ["{}", "[{}]", "[1", r#"{"rows":[{}]}"#] {
            assert!(results.add_json(wrong.as_bytes()).is_err(), "{wrong}");
        }
        for wrong in ["a,b\n1,2\n", "proc,t_s,count\n0,x,1\n", "proc,t_s,count\n0,-1,1\n", "proc,t_s,count\n0\n", "proc,count\n1,1\n"] {
            assert!(results.add_progress(wrong).is_err(), "{wrong}");
        }
    }
}
