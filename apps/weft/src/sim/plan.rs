//! Plans: what to run. A plan may sweep over values of any of its keys; every combination is a case.

use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use serde::Deserialize;
use toml::{Table, Value};

use super::library::{What, find, names};
use super::weft::WeftPlan;

/// Cases of one plan at most: beyond that a sweep is a mistake.
const CASES_MAX: usize = 100_000;

/// A plan with all its cases.
#[derive(Debug)]
pub struct Plan {
    about: String,
    cases: Vec<Case>,
}

/// One combination of values.
#[derive(Debug)]
pub struct Case {
    /// The swept keys with their values here, in the order of the sweep.
    pub values: Vec<(String, Value)>,
    /// What to do.
    pub experiment: Experiment,
}

/// What kinds of experiments there are.
#[derive(Debug)]
pub enum Experiment {
    /// Weft's own servers and clients.
    Weft(WeftPlan),
}

/// What every plan has, whatever its kind.
#[derive(Deserialize)]
struct Head {
    about: String,
    kind: Kind,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Kind {
    Weft,
}

impl Plan {
    /// Opens a plan that comes with weft, or a file. `seed` stands in for the plan's own.
    ///
    /// # Errors
    /// What is wrong with it, and where: the line for its own text, the case for a swept value.
    pub fn open(name: &Path, seed: Option<u64>) -> Result<Plan> {
        if let Some(file) = name.to_str().and_then(|name| find(What::Plan, name)) {
            return Plan::parse(file.name, file.text, seed);
        }
        let text = std::fs::read_to_string(name)
            .with_context(|| format!("there is no plan `{}`: neither with weft ({}) nor as a file", name.display(), names(What::Plan)))?;
        Plan::parse_at(&name.display().to_string(), &text, Some(name), seed)
    }

    /// Makes a plan of the text of a file.
    ///
    /// # Errors
    /// As [`Plan::open`].
    pub fn parse(name: &str, text: &str, seed: Option<u64>) -> Result<Plan> {
        Plan::parse_at(name, text, None, seed)
    }

    fn parse_at(name: &str, text: &str, path: Option<&Path>, seed: Option<u64>) -> Result<Plan> {
        // Once as it stands, for errors with their line; then once for each case.
        let head: Head = toml::from_str(text).map_err(|error| anyhow!("plan {name}: {error}"))?;
        match head.kind {
            Kind::Weft => WeftPlan::check_text(text).map_err(|error| anyhow!("plan {name}: {error}"))?,
        }
        let mut base: Table = text.parse().map_err(|error| anyhow!("plan {name}: {error}"))?;
        if let Some(seed) = seed {
            base.insert("seed".into(), Value::Integer(i64::try_from(seed).context("a seed is below 2^63")?));
        }
        let sweep = match base.remove("sweep") {
            None => Vec::new(),
            Some(Value::Table(sweep)) => sweep.into_iter().map(|(key, values)| Axis::new(name, key, values)).collect::<Result<_>>()?,
            Some(_) => bail!("plan {name}: `sweep` is a table of keys and their values: \"cluster.clients\" = [1, 2, 4]"),
        };
        let count = sweep.iter().try_fold(1usize, |count, axis: &Axis| count.checked_mul(axis.values.len())).unwrap_or(usize::MAX);
        if count > CASES_MAX {
            bail!("plan {name}: the sweep has {count} cases, more than {CASES_MAX}");
        }
        let mut cases = Vec::new();
        for number in 0..count {
            let (mut table, mut values, mut rest) = (base.clone(), Vec::new(), number);
            // The last key of the sweep changes fastest.
            for axis in sweep.iter().rev() {
                let value = axis.values[rest % axis.values.len()].clone();
                rest /= axis.values.len();
                set(&mut table, &axis.key, value.clone()).with_context(|| format!("plan {name}: sweep of {}", axis.key))?;
                values.insert(0, (axis.key.clone(), value));
            }
            let described = values.iter().map(|(key, value)| format!("{key} = {value}")).collect::<Vec<_>>().join(", ");
            let in_case = || if described.is_empty() { format!("plan {name}") } else { format!("plan {name}, case {described}") };
            let experiment = match head.kind {
                Kind::Weft => Experiment::Weft(WeftPlan::new(table, path).with_context(in_case)?),
            };
            cases.push(Case { values, experiment });
        }
        Ok(Plan { about: head.about, cases })
    }

    /// What the plan is for.
    pub fn about(&self) -> &str {
        &self.about
    }

    /// All cases.
    pub fn cases(&self) -> &[Case] {
        &self.cases
    }
}

/// One key of a sweep and its values.
struct Axis {
    key: String,
    values: Vec<Value>,
}

/// A range of values: `{ from = 1, to = 64, times = 2 }` or `{ from = 10, to = 100, step = 10 }`, both ends included.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Range {
    from: i64,
    to: i64,
    step: Option<i64>,
    times: Option<i64>,
}

impl Axis {
    fn new(plan: &str, key: String, values: Value) -> Result<Axis> {
        let values = match values {
            Value::Array(values) => values,
            Value::Table(range) => {
                let range: Range = range.try_into().map_err(|error| anyhow!("plan {plan}: sweep of {key}: {error}"))?;
                range.values().with_context(|| format!("plan {plan}: sweep of {key}"))?
            }
            _ => bail!("plan {plan}: the values of {key} are a list, or a range like {{ from = 1, to = 64, times = 2 }}"),
        };
        if values.is_empty() {
            bail!("plan {plan}: the sweep of {key} has no values");
        }
        Ok(Axis { key, values })
    }
}

impl Range {
    fn values(&self) -> Result<Vec<Value>> {
        let next = |value: i64| match (self.step, self.times) {
            (Some(step), None) if step > 0 => Ok(value.checked_add(step)),
            (None, Some(times)) if times > 1 && self.from > 0 => Ok(value.checked_mul(times)),
            _ => bail!("a range has either `step` above 0, or `times` above 1 and `from` above 0"),
        };
        let (mut values, mut value) = (Vec::new(), self.from);
        while value <= self.to {
            if values.len() >= CASES_MAX {
                bail!("the range has more than {CASES_MAX} values");
            }
            values.push(Value::Integer(value));
            match next(value)? {
                Some(following) => value = following,
                None => break,
            }
        }
        Ok(values)
    }
}

/// Puts a value where a dotted key says.
fn set(table: &mut Table, key: &str, value: Value) -> Result<()> {
    match key.split_once('.') {
        None => {
            table.insert(key.to_string(), value);
            Ok(())
        }
        Some((first, rest)) => match table.entry(first).or_insert_with(|| Value::Table(Table::new())) {
            Value::Table(inner) => set(inner, rest, value),
            _ => bail!("`{first}` is not a table"),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAN: &str = r#"
about = "a test"
kind = "weft"
profile = "ethernet-10g"

[cluster]
clients = 2

[work]
kind = "names"
files = 10
"#;

    fn error(text: &str) -> String {
        format!("{:#}", Plan::parse("p", text, None).unwrap_err())
    }

    #[test]
    fn a_sweep_makes_a_case_of_every_combination() {
        let text = format!("{PLAN}\n[sweep]\n\"cluster.clients\" = {{ from = 1, to = 8, times = 2 }}\n\"work.files\" = [5, 6]\n");
        let plan = Plan::parse("p", &text, Some(9)).unwrap();
        let values: Vec<(i64, i64)> =
            plan.cases().iter().map(|case| (case.values[0].1.as_integer().unwrap(), case.values[1].1.as_integer().unwrap())).collect();
        assert_eq!(values, [(1, 5), (1, 6), (2, 5), (2, 6), (4, 5), (4, 6), (8, 5), (8, 6)]);
        let Experiment::Weft(last) = &plan.cases()[7].experiment;
        assert_eq!((last.shape.clients, last.shape.seed), (8, 9));
    }

    #[test]
    fn errors_name_line_and_key() {
        let unknown = error(&PLAN.replace("clients = 2", "clints = 2"));
        assert!(unknown.contains("line 7") && unknown.contains("clints"), "{unknown}");
        let broken = error(&PLAN.replace("kind = \"weft\"", "kind = weft"));
        assert!(broken.contains("line 3"), "{broken}");
        let wrong = error(&PLAN.replace("clients = 2", "clients = \"two\""));
        assert!(wrong.contains("line 7"), "{wrong}");
        let size = error(&PLAN.replace("clients = 2", "stripe_size = \"64 parsecs\""));
        assert!(size.contains("line 7") && size.contains("parsecs"), "{size}");
        assert!(error(&PLAN.replace("ethernet-10g", "token-ring")).contains("token-ring"));
        let swept = error(&format!("{PLAN}\n[sweep]\n\"cluster.clients\" = [1, -1]\n"));
        assert!(swept.contains("case cluster.clients = -1"), "{swept}");
        let unknown = error(&format!("{PLAN}\n[sweep]\n\"cluster.size\" = [1]\n"));
        assert!(unknown.contains("size"), "{unknown}");
        assert!(error(&format!("{PLAN}\n[sweep]\n\"work.files\" = []\n")).contains("no values"));
        assert!(error(&format!("{PLAN}\n[sweep]\n\"work.files\" = {{ from = 1, to = 9, step = 0 }}\n")).contains("step"));
        assert!(error("").contains("about"));
        assert!(format!("{:#}", Plan::open(Path::new("no-such"), None).unwrap_err()).contains("creates"));
    }
}
