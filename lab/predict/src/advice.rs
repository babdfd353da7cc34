//! What to do about what limits, and what it would give: the work of a recording, on as many
//! servers, is simulated on the twin of this machine, and again with each change that could help.
//! What gives less than a twentieth more is not advised.

use std::path::{Path, PathBuf};

use anyhow::Result;
use serde::Serialize;
use weft_host::parallel::at_once;
use weft_host::units::human_bytes;
use weft_trace::explain::{Cause, Explanation, Finding, KindReport};
use weft_trace::merge::gathered;

use crate::twin::{Rates, Twin};

/// Less is not worth doing.
const WORTH: f64 = 1.05;
/// A twin of which something is broken is so much faster.
const MENDED: f64 = 1.5;
/// Changes that are told.
const TOLD: usize = 4;
/// A twin that is off by more than this knows nothing of such a setting: it has no numbers then.
const UNKNOWN: f64 = 2.0;
/// So much more or faster is asked for, where a number is needed.
const MORE: u64 = 4;
/// Names or blocks of a simulated step for each that is in flight, and the least.
const WINDOWS: u64 = 12;
const STEPS_MIN: u64 = 150;
/// What all simulated clients write or read at most.
const BYTES_MAX: u64 = 256 << 20;
/// The most that is simulated at once.
const CLIENTS_MAX: u64 = 64;
const WINDOW_MAX: u64 = 256;
/// The size of pieces that are large.
const LARGE_BYTES: u64 = 1 << 20;
/// The greatest value of the hint `inline_limit`.
const INLINE_BYTES: u64 = 16 << 10;
/// Simulated files have no odd ends.
const SECTOR: u64 = 512;
/// A share from which on something is so.
const MOST: f64 = 0.5;

/// One thing to do.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Advice {
    /// For people: what to do, what it would give, and how far such numbers were off so far.
    pub sentence: String,
    /// The keys of a plan that say the same to `weft predict run --what-if`.
    pub values: String,
    /// What it would give by what there is.
    pub ratio: f64,
}

/// What the twin says about a recording.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Advised {
    /// The profile that was asked; `None`: there is none.
    pub machine: Option<PathBuf>,
    /// The middle error of all settings so far, this one among them.
    pub error: Option<f64>,
    /// How many these are.
    pub settings: usize,
    /// For people: what was asked about, and how well it is known.
    pub about: String,
    /// What to do, the best first.
    pub advice: Vec<Advice>,
}

impl Advised {
    /// What the twin would say could not be found out.
    pub fn unknown(error: &anyhow::Error) -> Advised {
        Advised { about: format!("What a change would give is not known: {error:#}"), ..Advised::default() }
    }

    /// All of it, a sentence each.
    pub fn sentences(&self) -> impl Iterator<Item = &str> {
        self.advice.iter().map(|advice| advice.sentence.as_str()).chain(Some(self.about.as_str()).filter(|about| !about.is_empty()))
    }
}

/// What one kind of operations does, as a step of the plan `probes`.
struct Work<'a> {
    kind: &'a KindReport,
    step: &'static str,
    /// Bytes of a read or write; 0: names.
    block: u64,
    clients: u64,
    window: u64,
    explanation: &'a Explanation,
}

/// A change of the system or of the work.
struct Change {
    what: String,
    values: Vec<String>,
    /// What an operation of it does by what one does now.
    by_operation: f64,
}

/// Asks the twin about what was recorded; `profile` if it is not the one that is kept.
///
/// # Errors
/// The profile cannot be read or is none, or the simulator refuses it.
pub fn advise(explanation: &Explanation, profile: Option<&Path>) -> Result<Advised> {
    let twin = Twin::open(profile)?;
    let Some(work) = Work::of(explanation) else { return Ok(Advised::default()) };
    let Some(twin) = twin else {
        let about = "What a change would give is not known: there is no profile of this machine. `weft predict calibrate` makes one in half a \
                     minute, while nothing else runs";
        return Ok(Advised { about: about.to_string(), ..Advised::default() });
    };
    let values = work.values();
    let base = twin.rates(work.step, &values)?;
    let measured = work.rate();
    let error = base.error(measured);
    let mut errors: Vec<f64> = twin.errors.iter().map(|error| error.abs()).collect();
    let first = explanation.verdict.first();
    // Who only uses what there is has nothing to mend.
    let mended = first.filter(|first| is_broken(first.cause)).map(|first| (first, 1.0 + error)).filter(|(_, ratio)| *ratio >= MENDED);
    // Whatever is broken says nothing about the twin.
    if mended.is_none() {
        errors.push(error.abs());
    }
    let settings = errors.len();
    let middle = weft_analysis::results::Spread::of(errors).map(|spread| spread.median);
    let seen = middle.map_or("no setting was measured so far".to_string(), |middle| {
        format!("{middle:.2} of error in {} measured so far", several(settings as u64, "setting"))
    });
    let told = Advised { machine: Some(twin.profile.clone()), error: middle, settings, ..Advised::default() };
    let about = format!(
        "Asked of the twin ({}): {:.2} times the {} that were recorded, by {} with {} in flight",
        twin.profile.display(),
        1.0 + error,
        work.name(),
        several(work.clients, "client"),
        work.window
    );
    if let Some((finding, ratio)) = mended {
        let sentence = format!("Do: mend that first; without it {}: {ratio:.1} times the {} ({seen})", mend(finding), work.name());
        return Ok(Advised { about, advice: vec![Advice { sentence, values: String::new(), ratio }], ..told });
    }
    if !(1.0 / UNKNOWN..=UNKNOWN).contains(&(1.0 + error)) {
        let about = format!("{about}: it does not know this setting, so it says nothing about changes");
        return Ok(Advised { about, ..told });
    }
    let mut advice = changed(&twin, &work, (&values, base), &seen)?;
    advice.extend(inline(&twin, &work, &values, base, &seen)?);
    advice.sort_by(|a, b| b.ratio.total_cmp(&a.ratio));
    advice.truncate(TOLD);
    let about = if advice.is_empty() { format!("{about}; no change gives more than {:.0} %", (WORTH - 1.0) * 100.0) } else { about };
    Ok(Advised { about, advice, ..told })
}

/// The changes that help.
fn changed(twin: &Twin, work: &Work<'_>, (values, base): (&[String], Rates), seen: &str) -> Result<Vec<Advice>> {
    let changes = work.changes(twin);
    let changed = |number: usize| twin.rates(work.step, &[values, &changes[number].values[..]].concat());
    let mut advice = Vec::new();
    for (change, rates) in changes.iter().zip(gathered(&at_once, changes.len(), changed)) {
        let ratio = rates?.over(base) * change.by_operation;
        if ratio >= WORTH {
            let sentence = format!("Do: {}: {ratio:.1} times the {} ({seen})", change.what, work.name());
            advice.push(Advice { sentence, values: change.values.join(","), ratio });
        }
    }
    Ok(advice)
}

/// Small files that are made and written: one message makes them whole beside their inodes.
fn inline(twin: &Twin, work: &Work<'_>, values: &[String], base: Rates, seen: &str) -> Result<Option<Advice>> {
    let asked = &work.explanation.asked;
    let written = work.explanation.kinds.iter().find(|kind| kind.operation.ends_with(".write")).map_or(0, |kind| kind.count);
    let is_small = (1..=INLINE_BYTES).contains(&asked.write_bytes);
    if work.step != "create" || !is_small || written * 2 < work.kind.count || written > 2 * work.kind.count {
        return Ok(None);
    }
    let blocks = ["workload.kind=own".into(), "workload.access=write".into()];
    let writes = twin.rates("write", &[values, &blocks, &work.blocks(asked.write_bytes.next_multiple_of(SECTOR))].concat())?;
    let ratio = Rates { apart: 1.0 + base.apart / writes.apart, together: 1.0 + base.together / writes.together }.over(Rates::ONE);
    let sentence = format!(
        "Do: keep new small files beside their inodes (`weft hint set inline_limit {INLINE_BYTES} FS:/DIR`), and close them when they \
         are written: {ratio:.1} times the files ({seen})"
    );
    Ok((ratio >= WORTH).then_some(Advice { sentence, values: String::new(), ratio }))
}

fn several(count: u64, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// Something is the matter, so that a healthy system says what there is to win.
fn is_broken(cause: Cause) -> bool {
    matches!(cause, Cause::NoAnswer | Cause::Processor | Cause::Disk | Cause::Link)
}

fn mend(finding: &Finding) -> String {
    let place = finding.place.as_deref().unwrap_or("everything");
    match finding.cause {
        Cause::NoAnswer => format!("{place} would answer"),
        Cause::Processor => format!("{place} would have its processor"),
        Cause::Link => format!("the link of {place} would be as in the profile"),
        _ => format!("the disk of {place} would be as in the profile"),
    }
}

impl<'a> Work<'a> {
    /// The kind with most time among those that can be simulated.
    fn of(explanation: &'a Explanation) -> Option<Work<'a>> {
        let asked = &explanation.asked;
        let step = |kind: &KindReport| {
            let (_, name) = kind.operation.rsplit_once('.')?;
            Some(match name {
                "create" | "mkdir" | "mknod" | "symlink" => ("create", 0),
                "unlink" | "rmdir" | "remove" => ("remove", 0),
                "lookup" | "getattr" | "stat" => ("stat", 0),
                "write" if asked.write_bytes > 0 => ("write", asked.write_bytes),
                "read" if asked.read_bytes > 0 => ("read", asked.read_bytes),
                _ => return None,
            })
        };
        let (kind, (step, block)) = explanation.kinds.iter().find_map(|kind| Some((kind, step(kind)?)))?;
        let clients = asked.clients.clamp(1, CLIENTS_MAX);
        let window = ((explanation.wall.at_once / clients as f64).round() as u64).clamp(1, WINDOW_MAX);
        let block = block.next_multiple_of(SECTOR);
        Some(Work { kind, step, block, clients, window, explanation })
    }

    /// For people.
    fn name(&self) -> &'static str {
        match self.step {
            "create" => "creates",
            "remove" => "removals",
            "stat" => "look-ups",
            "write" => "bytes written",
            _ => "bytes read",
        }
    }

    /// Operations a second of as many at once, if there were none of other kinds.
    fn rate(&self) -> f64 {
        (self.clients * self.window) as f64 * self.kind.count as f64 / self.kind.seconds.max(f64::MIN_POSITIVE)
    }

    /// Several machines: messages pass a network.
    fn is_apart(&self) -> bool {
        self.explanation.asked.machines > 1
    }

    fn is_sync(&self) -> bool {
        self.explanation.asked.flushed > MOST
    }

    fn share(&self, stages: &[&str]) -> f64 {
        self.kind.stages.iter().filter(|stage| stages.contains(&stage.stage)).map(|stage| stage.share).sum()
    }

    /// Reads that wait for disks.
    fn is_cold(&self) -> bool {
        self.step == "read" && self.share(&["disk_no_seek", "disk_near", "disk_far"]) > MOST
    }

    /// All changes of names lie in one directory, as far as is known.
    fn is_one_directory(&self) -> bool {
        let share = self.explanation.asked.one_directory;
        share == 0.0 || share >= MOST
    }

    /// What was recorded, as values of the plan `probes`.
    fn values(&self) -> Vec<String> {
        let asked = &self.explanation.asked;
        let servers = if self.block > 0 { asked.data_servers_used } else { asked.data_servers };
        let mut values = vec![
            format!("clients={}", self.clients),
            format!("servers={}", servers.max(1)),
            format!("weft.metadata_servers={}", asked.metadata_servers.max(1)),
            format!("weft.durability={}", if self.is_sync() { "sync" } else { "batch" }),
        ];
        values.extend(self.in_flight(self.window));
        if self.block > 0 {
            values.extend(["workload.kind=own".into(), format!("workload.access={}", self.step)]);
            values.extend(self.blocks(self.block));
        } else {
            let directories = if self.is_one_directory() { "shared" } else { "own" };
            values.extend([format!("workload.measure=[\"{}\"]", self.step), format!("workload.directories={directories}")]);
        }
        if self.is_apart() {
            values.push("weft.shared_cores=none".into());
        }
        if self.is_cold() {
            values.push("weft.reads_cached=no".into());
        }
        // The kernel's part of an operation, and that of the mount, is work of the client's
        // machine.
        let kernel_s: f64 =
            self.kind.stages.iter().filter(|stage| ["kernel", "client"].contains(&stage.stage)).map(|stage| stage.seconds).sum();
        if self.share(&["kernel"]) > 0.0 {
            values.push(format!("process.client_request={:.0}ns", 1e9 * kernel_s / self.kind.count.max(1) as f64));
        }
        values
    }

    fn in_flight(&self, window: u64) -> Vec<String> {
        let mut values = vec![format!("workload.window={window}")];
        if self.block == 0 {
            values.push(format!("workload.files={}", (WINDOWS * window).max(STEPS_MIN)));
        }
        values
    }

    /// Blocks of this size; enough of them, in all.
    fn blocks(&self, block: u64) -> Vec<String> {
        let each = (WINDOWS * self.window).max(STEPS_MIN).min(BYTES_MAX / self.clients / block).max(2 * self.window);
        vec![format!("workload.block={block}"), format!("workload.file={}", each * block * self.clients)]
    }

    /// What could be done.
    fn changes(&self, twin: &Twin) -> Vec<Change> {
        let mut changes = Vec::new();
        let mut add = |what: String, values: Vec<String>| changes.push(Change { what, values, by_operation: 1.0 });
        self.of_servers(twin, &mut add);
        self.of_directories(&mut add);
        let window = (MORE * self.window).min(WINDOW_MAX);
        if window > self.window {
            let what = format!("ask for {MORE} times as much at once (more processes or threads, asynchronous calls)");
            add(what, self.in_flight(window));
        }
        if self.step != "read" && self.step != "stat" && self.is_sync() {
            let what = "with the durability `batch` instead of `sync` (`weft set durability batch FS`; a power cut may take the last \
                        moments)";
            add(what.into(), vec!["weft.durability=batch".into()]);
        }
        if self.is_cold() {
            add("more memory for the page cache of the data servers".into(), vec!["weft.reads_cached=yes".into()]);
        }
        if 0 < self.block && self.block < LARGE_BYTES {
            let what = format!("pieces of {} instead of {}", human_bytes(LARGE_BYTES), human_bytes(self.block));
            let by_operation = LARGE_BYTES as f64 / self.block as f64;
            changes.push(Change { what, values: self.blocks(LARGE_BYTES), by_operation });
        }
        changes
    }

    /// More or faster hardware.
    fn of_servers(&self, twin: &Twin, add: &mut impl FnMut(String, Vec<String>)) {
        let asked = &self.explanation.asked;
        let (key, kind, option, now) = match self.block {
            0 => ("weft.metadata_servers", "metadata server", "--meta", asked.metadata_servers.max(1)),
            _ => ("servers", "data server", "--data", asked.data_servers.max(1)),
        };
        let mut values = vec![format!("{key}={}", 2 * now), "weft.shared_cores=none".into()];
        let mut what = format!("{} more (`weft up {option} {}`)", several(now, kind), 2 * now);
        if self.block == 0 && self.is_one_directory() {
            values.push("workload.directories=split".into());
            what += " and the hint `presplit all` for new directories";
        }
        if !self.is_apart() {
            what += ", each on a machine of its own";
        }
        add(what, values);
        let faster =
            |section: &str, key: &str| twin.seconds(section, key).map(|s| format!("{section}.{key}={:.0}ns", 1e9 * s / MORE as f64));
        let wider = |section: &str, key: &str| twin.bytes(section, key).map(|bytes| format!("{section}.{key}={}", MORE * bytes));
        if self.is_apart() {
            let values = [faster("network", "link_latency"), wider("network", "link_bandwidth")];
            add(format!("a network that is {MORE} times as fast"), values.into_iter().flatten().collect());
        } else if let Some(cores) = twin.bytes("weft", "shared_cores") {
            add(format!("{} processors instead of {cores}", 2 * cores), vec![format!("weft.shared_cores={}", 2 * cores)]);
        }
        if self.is_sync() || self.is_cold() {
            let values = [faster("disk", "access"), wider("disk", "bandwidth")];
            add(format!("a disk that is {MORE} times as fast"), values.into_iter().flatten().collect());
        }
    }

    /// Hints of directories.
    fn of_directories(&self, add: &mut impl FnMut(String, Vec<String>)) {
        let asked = &self.explanation.asked;
        if self.block == 0 && self.is_one_directory() && asked.metadata_servers > 1 {
            let what = "the hint `presplit all` (`weft hint set presplit all FS:/DIR`) for new directories, whose names are with all metadata \
                        servers then";
            add(what.into(), vec!["workload.directories=split".into()]);
        }
        if self.block > 0 && asked.data_servers_used < asked.data_servers {
            let all = asked.data_servers;
            add(format!("files over all {all} data servers (`weft hint set num_dfiles {all} FS:/DIR`)"), vec![format!("servers={all}")]);
        }
    }
}
