//! `weft sim list`: which plans and profiles there are.

use anyhow::Result;
use serde::Serialize;
use weft_host::output::{Table, print_as};

use weft_plan::files::Lab;

/// List plans and machine profiles
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  weft sim list\n  weft sim list --lab ~/experiments --json")]
pub struct Args {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Row {
    kind: String,
    name: String,
    description: String,
}

impl Args {
    pub fn run(self, lab: &Lab) -> Result<()> {
        let rows: Vec<Row> = lab.list()?.into_iter().map(|(kind, name, description)| Row { kind, name, description }).collect();
        Ok(print_as(self.json, &rows, || {
            let mut table = Table::new(&["kind", "name", "description"]);
            rows.iter().for_each(|row| table.row(vec![row.kind.clone(), row.name.clone(), row.description.clone()]));
            table.render()
        })?)
    }
}
