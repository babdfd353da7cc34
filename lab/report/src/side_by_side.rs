//! Where the time of several runs went, stage by stage, beside each other (Vef 2016, tables 4.2 to
//! 4.4): a table for each kind of operation, a column for each run.

use std::path::PathBuf;

use anyhow::{Result, bail};
use serde_json::{Value, json};
use weft_analysis::inputs::inputs;
use weft_analysis::run::Run;
use weft_host::output::Table;
use weft_trace::Stage;
use weft_trace::explain::{Explanation, KindReport};

/// Runs with their explanations.
#[derive(Debug)]
pub struct SideBySide {
    runs: Vec<Explained>,
}

/// One of them.
#[derive(Debug)]
struct Explained {
    run: String,
    explanation: Explanation,
}

impl SideBySide {
    /// The runs that paths name, as for `weft view`.
    ///
    /// # Errors
    /// One of them cannot be read, or was not traced.
    pub fn of(paths: &[PathBuf]) -> Result<SideBySide> {
        let mut runs = Vec::new();
        for input in inputs(paths)? {
            let run = Run::load(&input, |_, _| {})?;
            if !run.has_trace() {
                bail!("{} holds no trace", run.name);
            }
            let refused = run.sources.iter().filter_map(|source| Some(format!("{}: {}", source.path.display(), source.refused.as_ref()?)));
            let mut explanation = run.explain(0, u64::MAX);
            explanation.missing.extend(refused);
            runs.push(Explained { run: run.name.clone(), explanation });
        }
        Ok(SideBySide { runs })
    }

    /// For programs: what `weft explain --json` says of each.
    pub fn json(&self) -> Value {
        let of = |explained: &Explained| {
            let mut told = json!(explained.explanation);
            told["run"] = json!(explained.run);
            told
        };
        json!({ "runs": self.runs.iter().map(of).collect::<Vec<_>>() })
    }

    /// For people.
    pub fn text(&self) -> String {
        let kinds = |explained: &Explained| {
            explained.explanation.kinds.iter().map(|kind| (kind.operation.clone(), kind.seconds)).collect::<Vec<_>>()
        };
        let mut all: Vec<(String, f64)> = Vec::new();
        for (name, seconds) in self.runs.iter().flat_map(kinds) {
            match all.iter_mut().find(|(known, _)| *known == name) {
                Some((_, sum)) => *sum += seconds,
                None => all.push((name, seconds)),
            }
        }
        all.sort_by(|a, b| b.1.total_cmp(&a.1));
        let mut text: String = all.iter().map(|(name, _)| self.table(name)).collect::<Vec<_>>().join("\n");
        for explained in &self.runs {
            explained.explanation.missing.iter().for_each(|sentence| text += &format!("\nmissing in {}: {sentence}", explained.run));
        }
        if !text.ends_with('\n') {
            text.push('\n');
        }
        text
    }

    /// The stages of one kind of operation in all runs.
    fn table(&self, operation: &str) -> String {
        let of_runs: Vec<Option<&KindReport>> =
            self.runs.iter().map(|run| run.explanation.kinds.iter().find(|kind| kind.operation == operation)).collect();
        let headings: Vec<String> = self.runs.iter().map(|run| format!(">{}", run.run)).collect();
        let mut table = Table::new(&std::iter::once(operation).chain(headings.iter().map(String::as_str)).collect::<Vec<_>>());
        let mut row = |title: &str, cell: &dyn Fn(&KindReport) -> Option<String>| {
            let cells = of_runs.iter().map(|kind| kind.and_then(cell).unwrap_or_else(|| "-".to_string()));
            table.row(std::iter::once(title.to_string()).chain(cells).collect());
        };
        row("operations", &|kind| Some(kind.count.to_string()));
        row("seconds", &|kind| Some(format!("{:.4}", kind.seconds)));
        row("median us", &|kind| Some(format!("{:.1}", kind.p50_us)));
        row("p99 us", &|kind| Some(format!("{:.1}", kind.p99_us)));
        for stage in Stage::ALL {
            let of = |kind: &KindReport| kind.stages.iter().find(|of| of.stage == stage.name()).map(|of| (of.share, of.seconds));
            if of_runs.iter().flatten().any(|kind| of(kind).is_some()) {
                row(stage.title(), &|kind| of(kind).map(|(share, seconds)| format!("{:.1} % ({seconds:.4} s)", share * 100.0)));
            }
        }
        table.render()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_runs_have_three_columns_with_what_each_took() {
        let dir = tempfile::tempdir().expect("a directory");
        let paths = [(200, "one"), (400, "two"), (800, "four")].map(|(operations, name)| {
            let path = dir.path().join(name);
            let sample = crate::sample::Sample { operations, ..crate::sample::Sample::default() };
            crate::sample::write(&sample, &path).expect("written");
            path
        });
        let told = SideBySide::of(&paths).expect("read");
        let text = told.text();
        let lines = |begin: &str| text.lines().filter(|line| line.starts_with(begin)).map(str::to_string).collect::<Vec<_>>();
        let heads = lines("client.create ");
        assert!(heads.len() == 1 && ["one", "two", "four"].iter().all(|name| heads[0].contains(name)), "{text}");
        let words = |line: &str| line.split_whitespace().map(str::to_string).collect::<Vec<_>>();
        // All kinds together are all operations.
        let mut sums = [0; 3];
        for line in lines("operations") {
            let counts = words(&line);
            (0..3).for_each(|run| sums[run] += counts[run + 1].parse::<u64>().unwrap_or(0));
        }
        assert_eq!(sums, [200, 400, 800]);
        let journal = lines(Stage::Journal.title());
        assert!(journal.iter().any(|line| line.matches(" % (").count() == 3), "{text}");
        let error = SideBySide::of(&[dir.path().join("absent")]).expect_err("is not there").to_string();
        assert!(error.contains("absent"), "{error}");
    }
}
