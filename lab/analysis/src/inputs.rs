//! What the command line names: which paths make which run, and what each file is. A file is known
//! by its first bytes, never by its name, but for traces that lack them.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// One run: a name and the files or directories that belong to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Input {
    /// What the page calls it; every run has another name.
    pub name: String,
    /// Files and directories.
    pub paths: Vec<PathBuf>,
}

/// What a file holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Records of one process.
    Trace,
    /// What `weft bench` measured, or what `weft bench ceiling` found (JSON).
    Json,
    /// How operations went over time, by process and interval (CSV).
    Progress,
    /// Names of objects (a list beside traces).
    Names,
    /// A project of HDTrace (XML); its traces, statistics and relations lie beside it.
    HdTrace,
    /// One of those.
    HdTracePart,
    /// Nothing that is known.
    Unknown,
}

/// Bytes that are looked at to tell what a file is.
const HEAD: usize = 512;

/// How many programs these traces are of: a project of HDTrace is one, and so are the traces of a
/// folder. Numbers of calls are those of one program.
pub fn programs<'a>(files: impl Iterator<Item = &'a Path>) -> usize {
    let place = |path: &'a Path| if path.extension().is_some_and(|end| end == "proj") { path } else { path.parent().unwrap_or(path) };
    files.map(place).collect::<std::collections::BTreeSet<_>>().len()
}

/// The runs that words of the command line name: every directory and every project of HDTrace is
/// one, the single trace files together are one, every single result of `weft bench` is one, and a
/// progress file belongs to the result before it. `NAME=PATH` gives a name; paths of the same name
/// are one run.
///
/// # Errors
/// If a path does not exist.
pub fn inputs(words: &[PathBuf]) -> Result<Vec<Input>> {
    let mut runs: Vec<(Option<String>, Kind, Vec<PathBuf>)> = Vec::new();
    for word in words {
        let (name, path) = named(word);
        let data = path.metadata().with_context(|| format!("cannot open {}", path.display()))?;
        let content = if data.is_dir() { Content::Unknown } else { content(&path) };
        let kind = match content {
            _ if data.is_dir() => Kind::Directory,
            Content::Json => Kind::Result,
            Content::Progress => Kind::Progress,
            Content::HdTrace => Kind::Project,
            Content::Trace | Content::Names | Content::HdTracePart | Content::Unknown => Kind::Traces,
        };
        let joins = |(position, (other, before, _)): (usize, &(Option<String>, Kind, Vec<PathBuf>))| match (&name, other) {
            (Some(name), Some(other)) => name == other,
            (None, None) => match (kind, before) {
                (Kind::Traces, Kind::Traces) => true,
                (Kind::Progress, Kind::Result) => position + 1 == runs.len(),
                _ => false,
            },
            _ => false,
        };
        match runs.iter().enumerate().position(joins) {
            Some(run) => runs[run].2.push(path),
            None => runs.push((name, kind, vec![path])),
        }
    }
    let mut taken = BTreeSet::new();
    let name = |(name, _, paths): (Option<String>, Kind, Vec<PathBuf>)| {
        let wanted = name.unwrap_or_else(|| short_name(&paths[0]));
        let numbered = (2..).map(|number| format!("{wanted} ({number})"));
        let name = std::iter::once(wanted.clone()).chain(numbered).find(|name| taken.insert(name.clone())).unwrap_or(wanted);
        Input { name, paths }
    };
    Ok(runs.into_iter().map(name).collect())
}

/// The files of a run, each with what it holds: those that are named, and of directories those that
/// are known.
///
/// # Errors
/// If a directory cannot be read, or holds nothing that is known.
pub fn files(paths: &[PathBuf]) -> Result<Vec<(PathBuf, Content)>> {
    let mut files = Vec::new();
    for path in paths {
        let data = fs::metadata(path).with_context(|| format!("cannot open {}", path.display()))?;
        if !data.is_dir() {
            files.push((path.clone(), content(path)));
            continue;
        }
        let entries = fs::read_dir(path).with_context(|| format!("cannot list {}", path.display()))?;
        let found = entries.flatten().map(|entry| entry.path()).filter(|path| path.is_file());
        let mut found: Vec<(PathBuf, Content)> = found.map(|path| (path.clone(), content(&path))).collect();
        // A trace that was cut to nothing is none by its bytes, and is to be missed.
        let is_cut = |path: &Path| path.extension().is_some_and(|end| end == "wtrace");
        found.retain(|(path, content)| match content {
            Content::Unknown => is_cut(path),
            content => *content != Content::HdTracePart,
        });
        // A project beside recordings of Weft is what was exported of them.
        if found.iter().any(|(_, content)| *content == Content::Trace) {
            found.retain(|(_, content)| *content != Content::HdTrace);
        }
        let projects = found.iter().filter(|(_, content)| *content == Content::HdTrace).map(|(path, _)| path.display().to_string());
        let projects: Vec<String> = projects.collect();
        if projects.len() > 1 {
            bail!("{} holds several projects of HDTrace; name one, or several as runs: {}", path.display(), projects.join(" "));
        }
        if found.is_empty() {
            bail!("{} holds no trace file of Weft, no project of HDTrace and no result of weft bench", path.display());
        }
        found.sort_by(|(a, _), (b, _)| a.cmp(b));
        files.extend(found);
    }
    // What is named twice was recorded once.
    let mut seen = BTreeSet::new();
    files.retain(|(path, _)| seen.insert(path.canonicalize().unwrap_or_else(|_| path.clone())));
    Ok(files)
}

/// What a command writes must not take the place of what it reads, nor of a trace, which nobody can
/// record again.
///
/// # Errors
/// `output` is one of the inputs, or a trace.
pub fn refuse_to_overwrite(output: &Path, inputs: &[PathBuf]) -> Result<()> {
    if !output.is_file() {
        return Ok(());
    }
    let there = output.canonicalize().ok();
    let is_read = there.is_some() && inputs.iter().any(|input| named(input).1.canonicalize().ok() == there);
    if is_read || content(output) == Content::Trace {
        let what = if is_read { "is read here" } else { "is a trace" };
        bail!("cannot write {}: it {what}; name another file", output.display());
    }
    Ok(())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Directory,
    Project,
    Traces,
    Result,
    Progress,
}

/// `NAME=PATH`, unless there is a file whose name has the sign.
fn named(word: &Path) -> (Option<String>, PathBuf) {
    let split = word.to_str().filter(|_| !word.exists()).and_then(|text| text.split_once('='));
    match split {
        Some((name, path)) if !name.is_empty() => (Some(name.to_string()), PathBuf::from(path)),
        _ => (None, word.to_path_buf()),
    }
}

fn short_name(path: &Path) -> String {
    let whole = || path.canonicalize().ok().and_then(|path| path.file_name().map(OsStr::to_os_string));
    let name = path.file_name().map(OsStr::to_os_string).or_else(whole);
    name.map_or_else(|| path.display().to_string(), |name| name.to_string_lossy().into_owned())
}

fn content(path: &Path) -> Content {
    let mut head = Vec::new();
    let read = fs::File::open(path).and_then(|file| file.take(HEAD as u64).read_to_end(&mut head));
    if read.is_err() || !path.is_file() {
        return Content::Unknown;
    }
    if head.starts_with(b"WEFTTRC\n") {
        return Content::Trace;
    }
    if head.starts_with(weft_trace::names::HEAD.as_bytes()) {
        return Content::Names;
    }
    let text = String::from_utf8_lossy(&head);
    if let Some(content) = of_hdtrace(&text) {
        return content;
    }
    let first = text.trim_start().chars().next();
    let line = text.lines().next().unwrap_or("");
    let columns: Vec<&str> = line.split(',').map(str::trim).collect();
    match first {
        Some('{' | '[') => Content::Json,
        _ if ["proc", "t_s", "count"].iter().all(|name| columns.contains(name)) => Content::Progress,
        _ => Content::Unknown,
    }
}

/// Files of HDTrace: XML with one of three outermost elements, or the length of the header of a
/// statistics file and that header.
fn of_hdtrace(head: &str) -> Option<Content> {
    let length_end = head.find(|letter: char| !letter.is_ascii_digit()).filter(|digits| (1..=10).contains(digits));
    if length_end.is_some_and(|digits| head[digits..].trim_start().starts_with("<Statistics")) {
        return Some(Content::HdTracePart);
    }
    let elements = head.split('<').skip(1).find(|element| !element.starts_with(['?', '!']))?;
    let name = elements.split(|letter: char| letter.is_whitespace() || matches!(letter, '>' | '/')).next();
    match name.filter(|_| head.trim_start().starts_with('<')) {
        Some("Application") => Some(Content::HdTrace),
        Some("Program" | "relation") => Some(Content::HdTracePart),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pattern::Pattern;
    use crate::run::Run;
    use crate::sample::{Sample, write};
    use weft_trace::names::HEAD;
    use weft_trace::record::Body;

    #[test]
    fn directories_are_runs_single_traces_are_one_and_names_join() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        ["a", "b"].iter().for_each(|name| fs::create_dir(at(name)).unwrap());
        fs::write(at("one.trace"), b"WEFTTRC\n").unwrap();
        fs::write(at("two.trace"), b"WEFTTRC\n").unwrap();
        fs::write(at("before.json"), "[]").unwrap();
        fs::write(at("after.json"), " [ {").unwrap();
        fs::write(at("after.csv"), "phase,repetition,proc,node,t_s,count,bytes\n").unwrap();
        let words = ["a", "one.trace", "b", "two.trace", "before.json", "after.json", "after.csv"].map(at);
        let runs = inputs(&words).unwrap();
        let shape: Vec<(&str, usize)> = runs.iter().map(|run| (run.name.as_str(), run.paths.len())).collect();
        assert_eq!(shape, [("a", 1), ("one.trace", 2), ("b", 1), ("before.json", 1), ("after.json", 2)]);
        let with = |name: &str, path: &str| PathBuf::from(format!("{name}={}", at(path).display()));
        let runs = inputs(&[with("real", "a"), with("model", "one.trace"), with("real", "b"), at("a")]).unwrap();
        let shape: Vec<(&str, usize)> = runs.iter().map(|run| (run.name.as_str(), run.paths.len())).collect();
        assert_eq!(shape, [("real", 2), ("model", 1), ("a", 1)]);
        assert!(inputs(&[at("missing")]).unwrap_err().to_string().contains("cannot open"));
    }

    #[test]
    fn a_file_that_is_named_twice_is_read_once() {
        let dir = tempfile::tempdir().unwrap();
        let trace = dir.path().join("one.trace");
        fs::write(&trace, b"WEFTTRC\n").unwrap();
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(dir.path(), &link).unwrap();
        let found = files(&[dir.path().to_path_buf(), trace.clone(), link]).unwrap();
        assert_eq!(found, [(trace, Content::Trace)]);
    }

    #[test]
    fn neither_a_trace_nor_what_is_read_is_written_over() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::write(at("one.trace"), b"WEFTTRC\n").unwrap();
        fs::write(at("result.json"), "[]").unwrap();
        fs::write(at("old.svg"), "<svg/>").unwrap();
        let says = |output: &str, inputs: &[PathBuf]| refuse_to_overwrite(&at(output), inputs).err().map(|error| error.to_string());
        assert!(says("one.trace", &[]).is_some_and(|said| said.contains("is a trace")));
        let named = PathBuf::from(format!("before={}", at("./result.json").display()));
        assert!(says("result.json", &[named]).is_some_and(|said| said.contains("is read here")));
        assert_eq!((says("old.svg", &[at("result.json")]), says("new.svg", &[at("one.trace")])), (None, None));
    }

    #[test]
    fn runs_of_one_name_are_numbered() {
        let dir = tempfile::tempdir().unwrap();
        let paths = ["x/t", "y/t"].map(|name| dir.path().join(name));
        paths.iter().for_each(|path| fs::create_dir_all(path).unwrap());
        let names: Vec<String> = inputs(&paths).unwrap().into_iter().map(|run| run.name).collect();
        assert_eq!(names, ["t", "t (2)"]);
    }

    #[test]
    fn a_list_beside_the_traces_names_what_spans_are_about() {
        let dir = tempfile::tempdir().unwrap();
        write(&Sample { operations: 50, ..Sample::default() }, dir.path()).unwrap();
        let load = || Run::load(&Input { name: "run".into(), paths: vec![dir.path().to_path_buf()] }, |_, _| {}).unwrap();
        let objects = |run: &Run| -> Vec<(u32, u64)> {
            let object = |position: u32| match run.merged.events.event(position).record.body {
                Body::Span(span) if span.obj != 0 => Some((position, span.obj)),
                _ => None,
            };
            (0..run.merged.events.len() as u32).filter_map(object).collect()
        };
        let before = load();
        let (position, object) = objects(&before)[0];
        assert!(before.names.is_empty());
        std::fs::write(dir.path().join("names.weft"), format!("{HEAD}\n{object:x}\t/home/a file\n")).unwrap();
        let run = load();
        assert!(run.sources.iter().all(|source| source.refused.is_none()), "{:?}", run.sources);
        assert_eq!(
            crate::details::event(&run, &crate::levels::tracks(&run, Default::default()), position).unwrap()["file"],
            "/home/a file"
        );
        let pattern = Pattern::new(&run, "file = \"/home/*\"").unwrap();
        for (position, other) in objects(&run) {
            assert_eq!(pattern.holds(position), other == object);
        }
    }
}
