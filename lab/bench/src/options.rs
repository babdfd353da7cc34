//! The command line of the measuring subcommands, and the plan that it comes to.

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::{Result, bail, ensure};
use weft_host::units::{ByteSize, one_of, seconds};
use weft_layout::WIDTH_MAX;

use crate::yardstick::CeilingKind;
use weft_workload::{Dirs, Every, Items, ItemsKind, Naming, Protocol, Sharing, Steps, WorkStep, Workload};

/// Files of each client unless the person says otherwise.
const FILES: u64 = 5000;
/// Bytes of a file of a training set, about, unless the person says otherwise.
const SMALL_BYTES: u64 = 112 << 10;
/// Bytes of each stream unless the person says otherwise.
const STREAM_BYTES: u64 = 256 << 20;

/// Options of every measuring subcommand.
#[derive(Clone, Debug, clap::Args)]
#[command(group(clap::ArgGroup::new("measured").args(["fs", "path"]).required(true).multiple(true)))]
pub struct Options {
    /// Measure this file system by the client library (FS or FS:/DIR); with --path: ask its servers
    /// what they spent
    #[arg(long, value_name = "FS", help_heading = "What")]
    pub fs: Option<OsString>,
    /// Measure this directory of any file system, by system calls
    #[arg(long, value_name = "DIR", help_heading = "What")]
    pub path: Option<PathBuf>,
    /// Files of each client [default: 5000; 1 for streams]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100_000_000), help_heading = "What")]
    files: Option<u64>,
    /// Bytes of each file; in shared files each client's part [default: 0; 256MiB for streams;
    /// 112KiB for read-many]
    #[arg(long, value_name = "SIZE", help_heading = "What")]
    size: Option<ByteSize>,
    /// Bytes of one read or write
    #[arg(long, value_name = "SIZE", default_value = "1MiB", help_heading = "What")]
    block: ByteSize,
    /// Which directories the files are in; split: a shared one, its names on all metadata servers
    /// (library)
    #[arg(long, value_parser = one_of(Dirs::ALL), default_value = "shared", help_heading = "What")]
    dir: Dirs,
    /// Directories that each client makes for its files, removed with them
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=100_000), help_heading = "What")]
    subdirs: u32,
    /// What is made, looked at and removed (create, stat, remove)
    #[arg(long, value_name = "KIND", value_parser = one_of(ItemsKind::ALL), default_value = "files", help_heading = "What")]
    items: ItemsKind,
    /// Names of one length, or such that become longer with their number, as those of mdtest 1.9.3
    #[arg(long, value_name = "HOW", value_parser = one_of(Naming::ALL), default_value = "fixed", help_heading = "What")]
    naming: Naming,
    /// Levels of a tree of directories below that of the client (or of all), made before the first
    /// phase; each of its directories has --files items
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=16), default_value_t = 0, help_heading = "What")]
    tree_depth: u32,
    /// Directories in each directory of the tree above its last level
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000), default_value_t = 1, help_heading = "What")]
    tree_branching: u32,
    /// One file for all clients, each with a part of it (write, read, streams)
    #[arg(long, conflicts_with = "interleaved", help_heading = "What")]
    shared_file: bool,
    /// One file for all clients, block after block the next one's (write, read, streams)
    #[arg(long, help_heading = "What")]
    interleaved: bool,
    /// Bytes of each stream of `all`
    #[arg(long, value_name = "SIZE", default_value = "256MiB", help_heading = "What")]
    stream_size: ByteSize,

    /// Threads of each process
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024), help_heading = "How")]
    clients: u32,
    /// Processes
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=256), help_heading = "How")]
    procs: u32,
    /// Requests that each client keeps in flight (library only)
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=4096), help_heading = "How")]
    depth: u32,
    /// Files of one call of read-many
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=100_000), help_heading = "How")]
    files_per_call: u32,
    /// Sync each file before it is closed
    #[arg(long, help_heading = "How")]
    fsync: bool,
    /// Open and close each empty file that is made (library; by system calls that is always so)
    #[arg(long, help_heading = "How")]
    open: bool,
    /// Past the page cache, with O_DIRECT (path)
    #[arg(long, help_heading = "How")]
    direct: bool,
    /// Drop each file from the page cache before it is read (path)
    #[arg(long, help_heading = "How")]
    cold: bool,
    /// Name files by their full path instead of relative to an open directory (path)
    #[arg(long, help_heading = "How")]
    full_paths: bool,
    /// Ask for the attributes of every entry that is listed
    #[arg(long, help_heading = "How")]
    attrs: bool,
    /// How files are made, listed and removed: `posix` as mounts and gateways do it, with leases,
    /// in directories of their own told later; `classic` is a yardstick, the steps of PVFS2 in 2007
    /// with a request each (library)
    #[arg(long, value_parser = one_of(Protocol::ALL), default_value = "weft", help_heading = "How")]
    protocol: Protocol,
    /// Make files in directories with the hint no_metafile (library)
    #[arg(long, help_heading = "How")]
    no_metafile: bool,
    /// Stripe size of new files (library) [default: what the directory says]
    #[arg(long, value_name = "SIZE", value_parser = weft_host::config::parse_stripe_size, help_heading = "How")]
    stripe_size: Option<u32>,
    /// Data servers of each new file (library) [default: what the directory says]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(..=i64::from(WIDTH_MAX)), help_heading = "How")]
    stripe_width: Option<u16>,
    /// Repetitions; the median and the range are told
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000), help_heading = "How")]
    pub reps: u32,
    /// Repetitions before them that do not count
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=1000), help_heading = "How")]
    pub warm_up: u32,
    /// Run this by the shell before each repetition, warm-ups too, when no process of the benchmark
    /// has anything open: to restart servers or mount again
    #[arg(long, value_name = "COMMAND", help_heading = "How")]
    pub before_each: Option<OsString>,
    /// Seconds of rest before each phase, in which caches of names and attributes forget: a mount
    /// may answer for what it has just seen
    #[arg(long, value_name = "SECONDS", default_value_t = 0.0, value_parser = seconds(0.0, 3600.0), help_heading = "How")]
    pub pause: f64,
    /// Measure the ceiling of each phase before every repetition, and tell the ratio: `bare` (if no
    /// KIND is given) has nothing behind the requests; `served`, for --path, is a null file system
    /// whose permissions the kernel checks and that asks one process for each change
    #[arg(long, value_name = "KIND", value_enum, num_args = 0..=1, require_equals = true, default_missing_value = "bare", help_heading = "How")]
    pub ceiling: Option<CeilingKind>,

    /// Print JSON: an array with one object for each phase
    #[arg(long, help_heading = "Output")]
    pub json: bool,
    /// Write what each process did in each interval to this file (CSV); it is kept in memory
    /// until the phase has ended
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub progress: Option<PathBuf>,
    /// An interval: a time (`5s`, `200ms`), or a number of operations of each client (`1000`)
    #[arg(long, value_name = "TIME|N", value_parser = every, default_value = "100ms", requires = "progress", help_heading = "Output")]
    progress_every: Every,
}

/// From 1 ms to an hour, or from one operation on.
fn every(text: &str) -> Result<Every, String> {
    let wrong = || "a time from 1ms to 3600s, or a number of operations".to_string();
    let number = |text: &str| text.parse::<u64>().map_err(|_| wrong());
    let every = match (text.strip_suffix("ms"), text.strip_suffix('s')) {
        (Some(ms), _) => Every::Nanos(number(ms)?.saturating_mul(1_000_000)),
        (None, Some(seconds)) => Every::Nanos(number(seconds)?.saturating_mul(1_000_000_000)),
        (None, None) => Every::Operations(number(text)?),
    };
    match every {
        Every::Nanos(1_000_000..=3_600_000_000_000) | Every::Operations(1..) => Ok(every),
        _ => Err(wrong()),
    }
}

/// A measuring subcommand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phases {
    /// One step.
    One(WorkStep),
    /// Files made, looked at, listed and removed; then streams.
    All,
    /// Files written and then read block by block.
    Streams,
    /// The operations of mdtest: directories, then files.
    Mdtest,
}

impl Options {
    /// What is to be done.
    ///
    /// # Errors
    /// If options do not fit together; says which.
    pub fn plan(&self, phases: Phases) -> Result<Vec<Workload>> {
        self.check(phases)?;
        let metadata =
            |step| Workload { size: self.size_or(0), ..self.work(phases, self.files.unwrap_or(FILES), step == WorkStep::Readdir) };
        let stream = |size| Workload { size, sharing: self.sharing(), ..self.work(phases, self.files.unwrap_or(1), false) };
        let written_and_read = || Steps { cycle: vec![(Write, true), (Read, true), (Remove, false)], ..Steps::default() };
        use WorkStep::{Create, Read, ReadMany, Readdir, Remove, Stat, Write};
        Ok(match phases {
            Phases::One(ReadMany) => {
                let per_call = u64::from(self.files_per_call);
                vec![Workload { steps: Steps::of(ReadMany), size: self.size_or(SMALL_BYTES), per_call, ..metadata(ReadMany) }]
            }
            Phases::One(step @ (Create | Stat | Readdir | Remove)) => vec![Workload { steps: Steps::of(step), ..metadata(step) }],
            Phases::One(step @ (Write | Read)) => vec![Workload { steps: Steps::of(step), ..stream(self.size_or(STREAM_BYTES)) }],
            Phases::All => {
                let work = metadata(Create);
                let mut steps = vec![Create, Stat, Readdir, Read, Remove];
                steps.retain(|step| *step != Read || work.size > 0);
                let mut works = vec![Workload { steps: Steps::each(&steps), ..work }];
                if self.stream_size.0 > 0 {
                    // With a size the files were read before; the streams are told apart from that.
                    let prefix = if self.size_or(0) > 0 { "stream-" } else { "" };
                    let steps = written_and_read().named(prefix);
                    works.push(Workload { files: 1, items: Items::default(), steps, ..stream(self.stream_size.0) });
                }
                works
            }
            Phases::Streams => vec![Workload { steps: written_and_read(), ..stream(self.size_or(STREAM_BYTES)) }],
            Phases::Mdtest => {
                let items = |kind| Items { kind, ..self.items() };
                let work = self.work(phases, self.files.unwrap_or(FILES), false);
                let steps = |steps: &[WorkStep], prefix| Steps::each(steps).named(prefix);
                let directories = steps(&[Create, Stat, Remove], "directory-");
                let size = self.size_or(0);
                let files = steps(if size > 0 { &[Create, Stat, Read, Remove] } else { &[Create, Stat, Remove] }, "file-");
                vec![
                    Workload { items: items(ItemsKind::Directories), steps: directories, ..work.clone() },
                    Workload { items: items(ItemsKind::Files), steps: files, size, ..work },
                ]
            }
        })
    }

    /// True if the library is measured, not a path.
    pub fn by_library(&self) -> bool {
        self.path.is_none()
    }

    fn check(&self, phases: Phases) -> Result<()> {
        let streams = matches!(phases, Phases::One(WorkStep::Write | WorkStep::Read) | Phases::Streams | Phases::All);
        let only = |given: bool, option: &str, with: &str| if given { bail!("{option}: only with {with}") } else { Ok(()) };
        let by_path = !self.by_library();
        only(by_path && phases == Phases::One(WorkStep::ReadMany), "read-many", "the library: give --fs without --path")?;
        only(by_path && self.depth > 1, "--depth", "the library: give --fs without --path")?;
        only(by_path && (self.stripe_size.is_some() || self.stripe_width.is_some()), "--stripe-size and --stripe-width", "the library")?;
        only(by_path && (self.protocol != Protocol::Weft || self.no_metafile), "--protocol and --no-metafile", "the library")?;
        only(by_path && self.dir == Dirs::Split, "--dir split", "the library: by a path set the hint presplit")?;
        let classic = matches!(phases, Phases::One(WorkStep::Create | WorkStep::Readdir | WorkStep::Remove));
        let has_layout = self.stripe_size.is_some() || self.stripe_width.is_some();
        only(self.protocol == Protocol::Posix && has_layout, "--stripe-size and --stripe-width", "--protocol weft: set hints")?;
        only(self.protocol == Protocol::Classic && !classic, "--protocol classic", "create, readdir and remove")?;
        let empty = self.size_or(0) == 0 && !self.open && !self.fsync;
        only(self.protocol == Protocol::Classic && !empty, "--protocol classic", "empty files that are not opened")?;
        only(!by_path && (self.direct || self.cold || self.full_paths), "--direct, --cold and --full-paths", "--path")?;
        only(!streams && self.sharing() != Sharing::Own, "--shared-file and --interleaved", "write, read, streams and all")?;
        only(streams && phases != Phases::All && self.subdirs > 0, "--subdirs", "create, stat, readdir, remove and all")?;
        let items = self.items();
        let of_names = matches!(phases, Phases::One(WorkStep::Create | WorkStep::Stat | WorkStep::Remove) | Phases::Mdtest);
        only(
            items.depth > 0 && !of_names && phases != Phases::One(WorkStep::Readdir),
            "--tree-depth",
            "create, stat, readdir, remove and mdtest",
        )?;
        ensure!(items.depth == 0 || items.subdirs == 0, "--tree-depth and --subdirs are two ways to say it");
        ensure!(items.folders() <= 100_000, "a tree of {} directories is larger than 100,000", items.folders());
        only(
            items.kind == ItemsKind::Directories && (!of_names || phases == Phases::Mdtest),
            "--items directories",
            "create, stat and remove",
        )?;
        only(
            items.kind == ItemsKind::Directories && (!empty || self.protocol == Protocol::Classic),
            "--items directories",
            "no size, --open, --fsync or --protocol classic",
        )?;
        only(
            self.before_each.is_some() && by_path && self.ceiling.is_some(),
            "--before-each",
            "no --ceiling: its servers would be in the way",
        )?;
        ensure!(self.block.0 > 0 && self.block.0 <= 1 << 30, "--block must be from 1 byte to 1GiB");
        if self.interleaved {
            let size = if phases == Phases::All { self.stream_size.0 } else { self.size_or(STREAM_BYTES) };
            ensure!(
                size.is_multiple_of(self.block.0),
                "--interleaved: each client's part ({size} bytes) must be whole blocks of {} bytes",
                self.block.0
            );
        }
        if streams && phases != Phases::All {
            ensure!(self.size_or(STREAM_BYTES) > 0, "there is nothing to write or read in files of 0 bytes");
        }
        Ok(())
    }

    fn size_or(&self, default: u64) -> u64 {
        self.size.map_or(default, |size| size.0)
    }

    fn items(&self) -> Items {
        let branching = if self.tree_depth > 0 { self.tree_branching } else { 0 };
        Items { kind: self.items, naming: self.naming, subdirs: self.subdirs, depth: self.tree_depth, branching }
    }

    fn sharing(&self) -> Sharing {
        match (self.shared_file, self.interleaved) {
            (false, false) => Sharing::Own,
            (true, _) => Sharing::Parts,
            (false, true) => Sharing::Interleaved,
        }
    }

    fn work(&self, phases: Phases, files: u64, listing: bool) -> Workload {
        Workload {
            repetitions: self.reps,
            procs: self.procs,
            clients: self.clients,
            depth: self.depth,
            items: self.items(),
            block: self.block.0,
            dirs: self.dir,
            fsync: self.fsync,
            direct: self.direct,
            cold: self.cold,
            full_paths: self.full_paths,
            attrs: self.attrs && (listing || phases == Phases::All),
            open: self.open,
            protocol: self.protocol,
            no_metafile: self.no_metafile,
            stripe_bytes: self.stripe_size.unwrap_or(0),
            stripe_width: self.stripe_width.unwrap_or(0),
            progress: self.progress.as_ref().map(|_| self.progress_every),
            ..Workload::empty_files(files)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    fn options(words: &str) -> Options {
        Line::try_parse_from(std::iter::once("x").chain(words.split_ascii_whitespace())).expect("good words").options
    }

    fn plan(phases: Phases, words: &str) -> Vec<Workload> {
        options(words).plan(phases).expect("a good plan")
    }

    fn refusal(phases: Phases, words: &str) -> String {
        options(words).plan(phases).expect_err("a bad plan").to_string()
    }

    #[test]
    fn a_target_is_needed() {
        assert!(Line::try_parse_from(["x"]).is_err());
        assert!(options("--fs /f").by_library());
        assert!(!options("--fs /f --path /p").by_library());
    }

    #[test]
    fn create_times_creates_only_and_removes_what_it_made() {
        let [work] = &plan(Phases::One(WorkStep::Create), "--path /p --files 7 --procs 2 --clients 3 --size 3901 --dir own")[..] else {
            panic!("one workload")
        };
        assert_eq!(work.steps.cycle, [(WorkStep::Create, true), (WorkStep::Remove, false)]);
        assert_eq!((work.files, work.procs, work.clients, work.size, work.dirs), (7, 2, 3, 3901, Dirs::Own));
        assert_eq!(work.sharing, Sharing::Own);
    }

    #[test]
    fn files_read_together_are_small_and_there_before() {
        let [work] = &plan(Phases::One(WorkStep::ReadMany), "--fs /f --files 20 --files-per-call 16")[..] else { panic!("one workload") };
        assert_eq!(
            (work.steps.before.as_slice(), work.steps.cycle.as_slice()),
            (&[WorkStep::Create][..], &[(WorkStep::ReadMany, true)][..])
        );
        assert_eq!((work.files, work.size, work.per_call), (20, 112 << 10, 16));
        assert!(refusal(Phases::One(WorkStep::ReadMany), "--path /p").contains("--fs without --path"));
    }

    #[test]
    fn what_is_measured_on_existing_files_makes_them_once() {
        for step in [WorkStep::Stat, WorkStep::Readdir, WorkStep::Read] {
            let [work] = &plan(Phases::One(step), "--path /p")[..] else { panic!("one workload") };
            assert_eq!((work.steps.before.len(), &work.steps.cycle[..], work.steps.after.len()), (1, &[(step, true)][..], 1));
        }
    }

    #[test]
    fn streams_have_a_size_by_default_and_files_have_none() {
        assert_eq!(plan(Phases::One(WorkStep::Write), "--path /p")[0].size, STREAM_BYTES);
        assert_eq!(plan(Phases::One(WorkStep::Create), "--path /p")[0].size, 0);
        let all = plan(Phases::All, "--path /p");
        assert_eq!(all.len(), 2);
        assert!(!all[0].steps.cycle.iter().any(|(step, _)| *step == WorkStep::Read), "there is nothing to read in empty files");
        assert_eq!((all[1].size, all[1].files), (256 << 20, 1));
        let names: Vec<String> = plan(Phases::All, "--path /p --size 1K").iter().map(|work| work.steps.phase(WorkStep::Read)).collect();
        assert_eq!(names, ["read", "stream-read"]);
    }

    #[test]
    fn mdtest_is_directories_and_then_files() {
        let [directories, files] = &plan(Phases::Mdtest, "--path /p --tree-depth 2 --tree-branching 3 --naming growing --files 7")[..]
        else {
            panic!("two workloads")
        };
        let phases = |work: &Workload| work.steps.cycle.iter().map(|(step, _)| work.steps.phase(*step)).collect::<Vec<_>>();
        assert_eq!(phases(directories), ["directory-create", "directory-stat", "directory-remove"]);
        assert_eq!(phases(files), ["file-create", "file-stat", "file-remove"]);
        assert_eq!((directories.items.kind, files.items.kind), (ItemsKind::Directories, ItemsKind::Files));
        assert_eq!((files.items.folders(), files.files, files.items.naming, files.dirs), (13, 7, Naming::Growing, Dirs::Shared));
        assert!(phases(&plan(Phases::Mdtest, "--path /p --size 5")[1]).contains(&"file-read".to_string()));
    }

    #[test]
    fn progress_is_by_time_or_by_operations() {
        let of = |text: &str| plan(Phases::One(WorkStep::Create), &format!("--path /p --progress f --progress-every {text}"))[0].progress;
        assert_eq!((of("5s"), of("200ms")), (Some(Every::Nanos(5_000_000_000)), Some(Every::Nanos(200_000_000))));
        assert_eq!((of("1000"), plan(Phases::Mdtest, "--path /p")[0].progress), (Some(Every::Operations(1000)), None));
        assert!(["0", "0s", "x", "2h", "99999s"].iter().all(|text| every(text).is_err()));
    }

    #[test]
    fn what_does_not_fit_together_is_refused() {
        let create = Phases::One(WorkStep::Create);
        assert!(refusal(create, "--path /p --depth 2").contains("--depth"));
        assert!(refusal(create, "--fs /f --direct").contains("--direct"));
        assert!(refusal(create, "--path /p --items directories --size 1").contains("--items directories"));
        assert!(refusal(create, "--path /p --tree-depth 1 --subdirs 1").contains("two ways"));
        assert!(refusal(create, "--path /p --tree-depth 16 --tree-branching 1000").contains("larger than"));
        assert!(refusal(Phases::All, "--path /p --tree-depth 1").contains("--tree-depth"));
        assert!(refusal(create, "--path /p --stripe-size 64KiB").contains("--stripe-size"));
        assert!(refusal(create, "--path /p --interleaved").contains("--interleaved"));
        assert!(refusal(Phases::One(WorkStep::Write), "--path /p --interleaved --size 1000 --block 300").contains("300"));
        assert!(refusal(Phases::One(WorkStep::Write), "--path /p --size 0").contains("nothing to write"));
        assert!(refusal(Phases::One(WorkStep::Write), "--path /p --block 0").contains("--block"));
        for bad in ["--path /p --reps 0", "--path /p --procs 0", "--path /p --shared-file --interleaved"] {
            assert!(Line::try_parse_from(std::iter::once("x").chain(bad.split_ascii_whitespace())).is_err(), "{bad}");
        }
    }
}
