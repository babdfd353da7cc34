//! Results: rows for people, programs and spreadsheets.

use std::collections::BTreeMap;

use serde::Serialize;
use toml::Value;

use crate::output::Table;

/// One phase of one case.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The swept keys and their values.
    pub case: BTreeMap<String, Value>,
    /// The keys in the order of the sweep.
    #[serde(skip)]
    keys: Vec<String>,
    #[serde(flatten)]
    pub phase: Phase,
}

/// What came out of one phase.
#[derive(Clone, Debug, Serialize)]
pub struct Phase {
    pub phase: String,
    pub operations: u64,
    pub bytes: u64,
    /// Of virtual time.
    pub seconds: f64,
    pub ops_per_s: f64,
    /// If data was moved.
    pub mib_per_s: Option<f64>,
    /// Requests of all clients.
    pub messages: u64,
    /// Bytes that the clients sent.
    pub wire_bytes: u64,
    /// Accesses of disks that have a head, by the move that each needed.
    pub disk_sequential: u64,
    pub disk_near: u64,
    pub disk_far: u64,
    pub disk_syncs: u64,
    /// The part that was busy for most of the time, if any was.
    pub bottleneck: Option<String>,
    /// How busy the parts were.
    pub shares: Vec<Share>,
}

/// How busy one part was: shares of the time of the phase.
#[derive(Clone, Debug, Serialize)]
pub struct Share {
    pub part: String,
    pub busiest: f64,
    pub mean: f64,
}

impl Row {
    pub fn new(values: &[(String, Value)], phase: Phase) -> Row {
        Row { case: values.iter().cloned().collect(), keys: values.iter().map(|(key, _)| key.clone()).collect(), phase }
    }

    fn values(&self) -> impl Iterator<Item = String> + '_ {
        self.keys.iter().map(|key| match &self.case[key] {
            Value::String(text) => text.clone(),
            value => value.to_string(),
        })
    }
}

/// Three significant digits, and all those before the point.
fn short(value: f64) -> String {
    match value {
        value if value >= 100.0 => format!("{value:.0}"),
        value if value >= 10.0 => format!("{value:.1}"),
        value => format!("{value:.3}"),
    }
}

/// For people.
pub fn table(rows: &[Row]) -> String {
    let Some(first) = rows.first() else { return String::new() };
    let columns = ["phase", ">seconds", ">ops/s", ">MiB/s", ">messages/op", ">seq.", ">near", ">far", "waits for", ">busy"];
    // Columns that say something only for some hardware or work.
    let has_head = rows.iter().any(|row| row.phase.disk_sequential + row.phase.disk_near + row.phase.disk_far > 0);
    let has_bytes = rows.iter().any(|row| row.phase.mib_per_s.is_some());
    let wanted = |column: &str| match column {
        ">MiB/s" => has_bytes,
        ">seq." | ">near" | ">far" => has_head,
        _ => true,
    };
    // A heading lives as long as the program; there are as many as a plan has swept keys.
    let keys = first.keys.iter().map(|key| &*Box::leak(format!(">{}", key.rsplit('.').next().unwrap_or(key)).into_boxed_str()));
    let heading: Vec<&'static str> = keys.chain(columns.into_iter().filter(|column| wanted(column))).collect();
    let mut table = Table::new(&heading);
    for row in rows {
        let phase = &row.phase;
        let busy = phase.shares.first().map_or(0.0, |share| share.busiest);
        let cells = [
            phase.phase.clone(),
            short(phase.seconds),
            short(phase.ops_per_s),
            phase.mib_per_s.map(short).unwrap_or_default(),
            short(phase.messages as f64 / phase.operations.max(1) as f64),
            phase.disk_sequential.to_string(),
            phase.disk_near.to_string(),
            phase.disk_far.to_string(),
            phase.bottleneck.clone().unwrap_or("latencies".into()),
            format!("{:.0} %", busy * 100.0),
        ];
        let cells = columns.iter().zip(cells).filter(|(column, _)| wanted(column)).map(|(_, cell)| cell);
        table.row(row.values().chain(cells).collect());
    }
    table.render()
}

/// For spreadsheets (RFC 4180).
pub fn csv(rows: &[Row]) -> String {
    let quote = |text: &str| if text.contains([',', '"', '\n']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_string() };
    let mut text = String::new();
    let mut line = |cells: Vec<String>| {
        text.push_str(&cells.iter().map(|cell| quote(cell)).collect::<Vec<_>>().join(","));
        text.push('\n');
    };
    let keys = rows.first().map(|row| row.keys.clone()).unwrap_or_default();
    let columns =
        "phase,operations,bytes,seconds,ops_per_s,mib_per_s,messages,wire_bytes,disk_sequential,disk_near,disk_far,disk_syncs,bottleneck";
    line(keys.into_iter().chain(columns.split(',').map(String::from)).collect());
    for row in rows {
        let phase = &row.phase;
        let cells = [
            phase.phase.clone(),
            phase.operations.to_string(),
            phase.bytes.to_string(),
            phase.seconds.to_string(),
            phase.ops_per_s.to_string(),
            phase.mib_per_s.map(|rate| rate.to_string()).unwrap_or_default(),
            phase.messages.to_string(),
            phase.wire_bytes.to_string(),
            phase.disk_sequential.to_string(),
            phase.disk_near.to_string(),
            phase.disk_far.to_string(),
            phase.disk_syncs.to_string(),
            phase.bottleneck.clone().unwrap_or_default(),
        ];
        line(row.values().chain(cells).collect());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(clients: i64, name: &str) -> Row {
        let phase = Phase {
            phase: name.into(),
            operations: 100,
            bytes: 0,
            seconds: 0.5,
            ops_per_s: 200.0,
            mib_per_s: None,
            messages: 100,
            wire_bytes: 5000,
            disk_sequential: 0,
            disk_near: 0,
            disk_far: 0,
            disk_syncs: 3,
            bottleneck: Some("card, sending".into()),
            shares: vec![Share { part: "card, sending".into(), busiest: 0.9, mean: 0.5 }],
        };
        Row::new(&[("cluster.clients".into(), Value::Integer(clients))], phase)
    }

    #[test]
    fn rows_for_people_and_for_spreadsheets() {
        let rows = [row(1, "create"), row(16, "stat")];
        assert_eq!(
            table(&rows),
            "clients  phase   seconds  ops/s  messages/op  waits for      busy\n\
             \u{20}     1  create    0.500    200        1.000  card, sending  90 %\n\
             \u{20}    16  stat      0.500    200        1.000  card, sending  90 %\n"
        );
        let text = csv(&rows);
        assert_eq!(text.lines().nth(1), Some("1,create,100,0,0.5,200,,100,5000,0,0,0,3,\"card, sending\""));
        assert_eq!(text.lines().next().unwrap().split(',').next(), Some("cluster.clients"));
    }
}
