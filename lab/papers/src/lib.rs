//! `weft papers`: what the papers behind Weft print, beside what Weft gives. Each paper is a TOML
//! file whose results name a command of `weft` with JSON output and the numbers to take from it;
//! the pages of `docs/results/` are made from them. It never computes a result itself: it runs the
//! command that a reader would run.
// A full disk or a reader who has gone must not end a process, and these macros panic then: see
// `write_line` of `weft-rt-real`.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod answer;
mod figures;
mod page;
mod paper;
mod verdict;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use weft_host::output::{Table, print, tell};

use answer::Answers;
use paper::Paper;
use verdict::Outcome;

/// Repeat the papers behind Weft: every figure and table beside what Weft gives
///
/// Without a name it lists the papers. With one it runs the commands of its results and prints the
/// page. Simulated results are the same on every machine; measured ones need --real, and come from
/// the last recording otherwise. With --plot it draws the figures instead.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  weft papers\n  weft papers 2009\n  weft papers --all --write docs/results\n  \
weft papers --all --check docs/results\n  weft papers 2007 --real --write docs/results\n  \
weft papers 2006 --plot pictures")]
pub struct Args {
    /// Papers by their names
    papers: Vec<String>,
    /// All papers
    #[arg(long, conflicts_with = "papers")]
    all: bool,
    /// Write a page NAME.md for each paper into this folder
    #[arg(long, value_name = "DIR", conflicts_with = "check")]
    write: Option<PathBuf>,
    /// Fail if a verdict is another one than on the pages of this folder
    #[arg(long, value_name = "DIR")]
    check: Option<PathBuf>,
    /// Draw the results into this folder (SVG), each over the key in which its numbers differ, and
    /// say for which there is no picture
    #[arg(long, value_name = "DIR", conflicts_with_all = ["write", "check"])]
    plot: Option<PathBuf>,
    /// Run measured results too, which takes minutes and an idle machine, and record their numbers
    /// beside the page
    #[arg(long)]
    real: bool,
}

impl Args {
    /// Does what the arguments say.
    ///
    /// # Errors
    /// No such paper, a command that fails or whose answer lacks a number, files that cannot be
    /// written, and verdicts that changed.
    pub fn run(self) -> Result<bool> {
        let papers = self.wanted()?;
        if papers.is_empty() {
            print(&list()?)?;
            return Ok(true);
        }
        let mut answers = Answers::of_this_program()?;
        if let Some(folder) = &self.plot {
            for paper in &papers {
                let lines = figures::draw(paper, &mut answers, folder, self.real)?;
                print(&lines.iter().map(|line| format!("{line}\n")).collect::<String>())?;
            }
            return Ok(true);
        }
        let mut changed = 0;
        for paper in &papers {
            let recorded = self.write.as_deref().or(self.check.as_deref());
            let recording = recorded.map(|folder| folder.join(format!("{}.real.json", paper.name)));
            let outcomes = verdict::outcomes(paper, &mut answers, recording.as_deref(), self.real)?;
            let text = page::text(paper, &outcomes);
            match (&self.write, &self.check) {
                (Some(folder), _) => write(&folder.join(format!("{}.md", paper.name)), &text)?,
                (_, Some(folder)) => changed += changes(paper, &outcomes, &folder.join(format!("{}.md", paper.name)))?,
                _ => print(&text)?,
            }
        }
        Ok(changed == 0)
    }

    fn wanted(&self) -> Result<Vec<Paper>> {
        if self.real && self.write.is_none() && self.plot.is_none() {
            bail!("--real is for --write and --plot");
        }
        let all = paper::all()?;
        if self.all {
            return Ok(all);
        }
        if let Some(unknown) = self.papers.iter().find(|name| all.iter().all(|paper| paper.name != **name)) {
            let names: Vec<&str> = all.iter().map(|paper| paper.name.as_str()).collect();
            bail!("there is no paper {unknown}: write one of {}", names.join(", "));
        }
        if self.papers.is_empty() && (self.write.is_some() || self.check.is_some() || self.plot.is_some()) {
            bail!("which papers? Name them, or write --all");
        }
        Ok(all.into_iter().filter(|paper| self.papers.contains(&paper.name)).collect())
    }
}

fn list() -> Result<String> {
    let mut table = Table::new(&["paper", ">results", ">not built", "title"]);
    for paper in paper::all()? {
        let missing = paper.results.iter().filter(|result| result.missing.is_some()).count();
        table.row(vec![paper.name, paper.results.len().to_string(), missing.to_string(), paper.title]);
    }
    Ok(table.render())
}

fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).with_context(|| path.display().to_string())
}

/// Says which results have another verdict than on the page, and counts them. Results that cannot
/// be run here count as unchanged.
fn changes(paper: &Paper, outcomes: &[Outcome], path: &Path) -> Result<usize> {
    let page = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let before = page::verdicts(&page);
    let mut changed = 0;
    for (result, outcome) in paper.results.iter().zip(outcomes) {
        let name = (result.figure.clone(), result.shows.clone());
        let then = before.get(&name).map_or("absent", String::as_str);
        let now = outcome.verdict.word();
        if then != now && outcome.verdict != verdict::Verdict::NotRun {
            tell(&format!("paper {}, {}, {}: the verdict was \"{then}\" and is \"{now}\" ({})", paper.name, name.0, name.1, outcome.gives));
            changed += 1;
        }
    }
    if before.len() != paper.results.len() {
        tell(&format!("paper {}: its page has {} results and its file {}", paper.name, before.len(), paper.results.len()));
        changed += 1;
    }
    if changed > 0 {
        tell(&format!("if this is meant: weft papers {} --write {}", paper.name, path.parent().unwrap_or(path).display()));
    }
    Ok(changed)
}
