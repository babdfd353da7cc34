//! The page of a paper, in Markdown.

use std::collections::BTreeMap;

use weft_host::output::shell_word;

use crate::paper::{Expected, Order, Paper};
use crate::verdict::{Outcome, labelled};

/// Columns of a line of text outside tables.
const COLUMNS: usize = 100;

/// The page.
pub fn text(paper: &Paper, outcomes: &[Outcome]) -> String {
    let mut page = format!("# {}\n\n{}\n\n", paper.title, wrapped(&paper.author));
    for paragraph in paper.about.trim().split("\n\n") {
        page += &format!("{}\n\n", wrapped(paragraph));
    }
    page += &wrapped(&format!(
        "Made by `weft papers {0} --write docs/results`; `weft papers {0} --check docs/results` fails if a verdict changes. *Holds* and \
         *differs* judge what the column before says; *shown* has nothing to be compared with.",
        paper.name
    ));
    page += "\n\n| figure or table | what it shows | the paper | Weft | verdict | command |\n|---|---|---|---|---|---|\n";
    for (expected, outcome) in paper.results.iter().zip(outcomes) {
        let note = expected.note.as_ref().map(|note| format!(". {note}")).unwrap_or_default();
        let cells = [
            expected.figure.clone(),
            expected.shows.clone(),
            says(expected),
            format!("{}{note}", outcome.gives),
            outcome.verdict.word().to_string(),
            expected.command.as_ref().map(|command| format!("`{}`", for_a_shell(command))).unwrap_or_default(),
        ];
        page += &format!("| {} |\n", cells.map(|cell| cell.replace('|', "\\|").replace('\n', " ")).join(" | "));
    }
    page
}

/// A command of a paper, as a shell takes it.
fn for_a_shell(command: &str) -> String {
    command.split_whitespace().map(shell_word).collect::<Vec<_>>().join(" ")
}

/// What must hold, in words.
fn says(expected: &Expected) -> String {
    let mut says: Vec<String> = Vec::new();
    if let Some(field) = &expected.all {
        says.push(format!("every number ({field})"));
    }
    for value in &expected.values {
        let range = value.between.map(|[least, most]| format!(" ({least} to {most})")).unwrap_or_default();
        match value.printed {
            Some(printed) => {
                let within = value.within.map(|within| format!(" ± {} %", within * 100.0)).unwrap_or_default();
                says.push(format!("{}{within}{range}", labelled(value, printed)));
            }
            None if !range.is_empty() => says.push(format!("{}:{range}", value.label)),
            None => {}
        }
    }
    match expected.order {
        Some(Order::Growing) => says.push("growing".to_string()),
        Some(Order::Falling) => says.push("falling".to_string()),
        Some(Order::Flat) => says.push("flat (within 10 %)".to_string()),
        None => {}
    }
    says.join("; ")
}

/// The verdicts on a page, by figure and what it shows.
pub fn verdicts(page: &str) -> BTreeMap<(String, String), String> {
    let rows = page.lines().filter_map(|line| line.strip_prefix("| ")).skip(1);
    rows.filter_map(|row| {
        let cells: Vec<&str> = row.split(" | ").collect();
        let [figure, shows, .., verdict, _] = cells.as_slice() else { return None };
        Some(((figure.to_string(), shows.to_string()), verdict.to_string()))
    })
    .collect()
}

fn wrapped(text: &str) -> String {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().expect("there is one from the beginning");
        if line.is_empty() {
            line.push_str(word);
        } else if line.chars().count() + 1 + word.chars().count() <= COLUMNS {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(word.to_string());
        }
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::Verdict;

    #[test]
    fn the_verdicts_of_a_page_are_read_back() {
        let file = "title = \"T\"\nauthor = \"A\"\nabout = \"a b\"\n\
                    [[result]]\nfigure = \"1\"\nshows = \"x\"\ncommand = \"weft a --set b=1;2,3\"\nall = \"equal\"\n\
                    [[result]]\nfigure = \"2\"\nshows = \"y\"\nmissing = \"this | that\"\n";
        let paper: Paper = toml::from_str(file).expect("a paper");
        let outcome = |gives: &str, verdict| Outcome { gives: gives.to_string(), verdict };
        let page = text(&paper, &[outcome("1 of 2", Verdict::Differs), outcome("this | that", Verdict::NotBuilt)]);
        let read = verdicts(&page);
        let verdict = |figure: &str, shows: &str| read.get(&(figure.to_string(), shows.to_string())).map(String::as_str);
        assert_eq!((verdict("1", "x"), verdict("2", "y"), read.len()), (Some("**differs**"), Some("not built"), 2), "{page}");
        assert!(page.contains("| `weft a --set 'b=1;2,3'` |"), "a shell takes it so: {page}");
        assert!(page.lines().filter(|line| !line.starts_with('|')).all(|line| line.chars().count() <= COLUMNS));
    }
}
