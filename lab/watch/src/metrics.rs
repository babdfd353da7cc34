//! Live numbers in the text format of Prometheus (version 0.0.4). Names say their unit, counters
//! end in `_total`; every sample has the label `server`. Clients and files are no labels: every one
//! of them would be a time series for ever.

use std::fmt::Write;

use weft_base::{ServerEntry, ServerRole};
use weft_host::mount_list::SeenErrors;
use weft_live::{SLOTS, slot_upper_ns};
use weft_wire::ops::{DiskUse, LiveReply};

use crate::snapshot::{operation_name, totals};

/// The content type of the format.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

type Value = fn(&LiveReply) -> f64;

/// Metrics with one value for each server: name, what it means, value, and whether only data
/// servers have it.
const METRICS: [(&str, &str, Value, bool); 28] = [
    ("weft_uptime_seconds", "Time since the server started.", |reply| reply.info.uptime_ms as f64 / 1e3, false),
    ("weft_boots_total", "Starts of the server since the file system was made.", |reply| f64::from(reply.info.boot), false),
    (
        "weft_serving",
        "1 if the server serves, 0 if it is read-only or starting.",
        |reply| f64::from(u8::from(reply.info.state == "serving")),
        false,
    ),
    ("weft_objects", "Inodes or datafiles that the server holds.", |reply| reply.info.objects as f64, false),
    ("weft_used_bytes", "Bytes used for them.", |reply| reply.info.used_bytes as f64, false),
    ("weft_capacity_bytes", "Bytes that the disk of the server can hold.", |reply| reply.info.capacity_bytes as f64, false),
    ("weft_free_bytes", "Bytes free on the disk of the server.", |reply| reply.info.free_bytes as f64, false),
    ("weft_clients", "Clients with a connection.", |reply| f64::from(reply.clients), false),
    ("weft_queued_requests", "Requests that are in the server and not answered.", |reply| f64::from(reply.queued), false),
    (
        "weft_oldest_request_seconds",
        "Age of the oldest request that is not answered; 0 if there is none.",
        |reply| reply.oldest.first().map_or(0.0, |oldest| oldest.age_ns as f64 / 1e9),
        false,
    ),
    (
        "weft_page_memory_bytes",
        "Memory that names and inodes take, but for those in the page file (metadata servers).",
        |reply| reply.page_memory_bytes.unwrap_or(0) as f64,
        false,
    ),
    (
        "weft_page_file_bytes",
        "Names and inodes in the page file (metadata servers).",
        |reply| reply.page_file_bytes.unwrap_or(0) as f64,
        false,
    ),
    ("weft_meta_reads_total", "Requests that looked at names or inodes.", |reply| totals(reply).meta_reads as f64, false),
    ("weft_meta_changes_total", "Requests that changed names or inodes.", |reply| totals(reply).meta_changes as f64, false),
    ("weft_network_receive_bytes_total", "Bytes received by the server.", |reply| reply.info.received_bytes as f64, false),
    ("weft_network_transmit_bytes_total", "Bytes sent by the server.", |reply| reply.info.sent_bytes as f64, false),
    ("weft_cpu_seconds_total", "Processor time used by the server.", |reply| reply.info.cpu_us as f64 / 1e6, false),
    ("weft_turns_total", "Turns of the server's loop that had requests.", |reply| reply.info.turns as f64, false),
    ("weft_journal_writes_total", "Writes to the journal.", |reply| reply.info.journal_writes as f64, false),
    ("weft_journal_syncs_total", "Flushes of the journal to stable storage.", |reply| reply.info.journal_syncs as f64, false),
    ("weft_read_bytes_total", "Bytes of files that clients were given.", |reply| reply.read_bytes as f64, true),
    ("weft_written_bytes_total", "Bytes of files that clients wrote.", |reply| reply.written_bytes as f64, true),
    ("weft_cache_bytes", "Bytes of writes that are answered and not on the disk.", |reply| reply.cache_bytes as f64, true),
    (
        "weft_cache_limit_bytes",
        "Most bytes that may be so; 0 if writes are answered when the disk has them.",
        |reply| reply.cache_bytes_max as f64,
        true,
    ),
    ("weft_disk_reads_total", "Reads of the disk that holds the data.", |reply| of_disk(reply, |disk| disk.reads), true),
    ("weft_disk_read_bytes_total", "Bytes of them.", |reply| of_disk(reply, |disk| disk.read_bytes), true),
    ("weft_disk_writes_total", "Writes of the disk that holds the data.", |reply| of_disk(reply, |disk| disk.writes), true),
    ("weft_disk_written_bytes_total", "Bytes of them.", |reply| of_disk(reply, |disk| disk.written_bytes), true),
];

/// Of the disk that holds the data; 0 of a server that tells none.
fn of_disk(reply: &LiveReply, value: fn(&DiskUse) -> u64) -> f64 {
    reply.info.disk.as_ref().map_or(0.0, |disk| value(disk) as f64)
}

/// The text for these servers; `None` for one that does not answer.
pub fn text(fs: &str, servers: &[(ServerEntry, Option<LiveReply>)]) -> String {
    let mut out = String::new();
    let labels: Vec<String> = servers
        .iter()
        .map(|(entry, _)| format!("fs=\"{}\",server=\"{}\",role=\"{}\"", escaped(fs), escaped(&entry.name), entry.id.role()))
        .collect();
    head(&mut out, "weft_up", "gauge", "1 if the server answers.");
    for ((_, reply), labels) in servers.iter().zip(&labels) {
        line(&mut out, "weft_up", labels, f64::from(u8::from(reply.is_some())));
    }
    let answers = || {
        let all = servers.iter().zip(&labels);
        all.filter_map(|((entry, reply), labels)| Some((entry.id.role(), reply.as_ref()?, labels)))
    };
    for (name, help, value, is_data) in METRICS {
        head(&mut out, name, if name.ends_with("_total") { "counter" } else { "gauge" }, help);
        for (_, reply, labels) in answers().filter(|(role, _, _)| !is_data || *role == ServerRole::Data) {
            line(&mut out, name, labels, value(reply));
        }
    }
    head(&mut out, "weft_request_errors_total", "counter", "Requests that were answered with an error.");
    for (_, reply, labels) in answers() {
        for row in &reply.operations {
            line(&mut out, "weft_request_errors_total", &format!("{labels},op=\"{}\"", operation_name(row.op)), row.failed as f64);
        }
    }
    head(
        &mut out,
        "weft_request_duration_seconds",
        "histogram",
        "Time of requests in the server, from the turn that took them to the answer.",
    );
    for (_, reply, labels) in answers() {
        for row in &reply.operations {
            let labels = format!("{labels},op=\"{}\"", operation_name(row.op));
            let mut below = 0;
            for slot in 0..SLOTS {
                below += row.slots.iter().find(|there| usize::from(there.slot) == slot).map_or(0, |there| there.count);
                let limit = slot_upper_ns(slot).map_or("+Inf".to_string(), |ns| (ns as f64 / 1e9).to_string());
                line(&mut out, "weft_request_duration_seconds_bucket", &format!("{labels},le=\"{limit}\""), below as f64);
            }
            line(&mut out, "weft_request_duration_seconds_sum", &labels, row.total_ns as f64 / 1e9);
            line(&mut out, "weft_request_duration_seconds_count", &labels, row.count as f64);
        }
    }
    out
}

/// The text for the mounts of this machine, with the errors that each has seen.
pub fn mounts(fs: &str, mounts: &[(String, Vec<SeenErrors>)]) -> String {
    let mut out = String::new();
    let name = "weft_mount_errors_total";
    head(&mut out, name, "counter", "Operations of a mount of this machine that failed because of a server.");
    for (mount, errors) in mounts {
        for SeenErrors { server, reason, count } in errors {
            let labels = [("fs", fs), ("mount", mount), ("server", server), ("reason", reason)];
            let labels: Vec<String> = labels.iter().map(|(label, value)| format!("{label}=\"{}\"", escaped(value))).collect();
            line(&mut out, name, &labels.join(","), *count as f64);
        }
    }
    out
}

fn head(out: &mut String, name: &str, kind: &str, help: &str) {
    writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}").expect("a string takes any text");
}

fn line(out: &mut String, name: &str, labels: &str, value: f64) {
    writeln!(out, "{name}{{{labels}}} {value}").expect("a string takes any text");
}

/// The value of a label.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::snapshot::tests::{reply, seen};
    use std::collections::{BTreeMap, BTreeSet};
    use weft_base::ServerId;

    pub type Labels = BTreeMap<String, String>;
    pub type Samples = Vec<(String, Labels, f64)>;

    /// Reads the text format as its specification says, and refuses everything else.
    pub fn parse(text: &str) -> Result<(BTreeMap<String, String>, Samples), String> {
        let (mut types, mut helps, mut samples) = (BTreeMap::new(), BTreeSet::new(), Samples::new());
        let (mut current, mut closed) = (String::new(), BTreeSet::new());
        let name_ok = |name: &str| {
            let mut chars = name.chars();
            chars.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_' || c == ':')
                && chars.all(|c| c.is_ascii_alphanumeric() || c == '_' || c == ':')
        };
        if !text.ends_with('\n') {
            return Err("the last line has no end".into());
        }
        for row in text.lines() {
            let bad = |why: &str| Err(format!("{why}: {row}"));
            if let Some(comment) = row.strip_prefix("# ") {
                let mut words = comment.splitn(3, ' ');
                let (Some(keyword), Some(name), Some(rest)) = (words.next(), words.next(), words.next()) else { return bad("short") };
                if !name_ok(name) {
                    return bad("name");
                }
                match keyword {
                    "HELP" => {
                        if !helps.insert(name.to_string()) {
                            return bad("a second HELP");
                        }
                    }
                    "TYPE" => {
                        if !["counter", "gauge", "histogram", "summary", "untyped"].contains(&rest) {
                            return bad("type");
                        }
                        if types.insert(name.to_string(), rest.to_string()).is_some() {
                            return bad("a second TYPE");
                        }
                    }
                    _ => return bad("comment"),
                }
                continue;
            }
            let Some((name, rest)) = row.split_once('{') else { return bad("no labels") };
            let mut labels = Labels::new();
            let mut rest = rest;
            loop {
                let Some((label, after)) = rest.split_once("=\"") else { return bad("label") };
                let mut value = String::new();
                let mut chars = after.char_indices();
                let end = loop {
                    match chars.next() {
                        Some((_, '\\')) => match chars.next() {
                            Some((_, 'n')) => value.push('\n'),
                            Some((_, c @ ('\\' | '"'))) => value.push(c),
                            _ => return bad("escape"),
                        },
                        Some((at, '"')) => break at + 1,
                        Some((_, c)) => value.push(c),
                        None => return bad("open label"),
                    }
                };
                if !name_ok(label) || labels.insert(label.to_string(), value).is_some() {
                    return bad("label twice");
                }
                rest = &after[end..];
                match rest.strip_prefix(',') {
                    Some(more) => rest = more,
                    None => break,
                }
            }
            let Some(number) = rest.strip_prefix("} ") else { return bad("value") };
            let Ok(value) = number.parse::<f64>() else { return bad("number") };
            let family = ["_bucket", "_sum", "_count"]
                .iter()
                .find_map(|suffix| name.strip_suffix(suffix).filter(|family| types.get(*family).is_some_and(|kind| kind == "histogram")))
                .unwrap_or(name);
            if !types.contains_key(family) || !helps.contains(family) {
                return bad("no TYPE or HELP before it");
            }
            if family != current {
                closed.insert(std::mem::replace(&mut current, family.to_string()));
                if closed.contains(family) {
                    return bad("a family in two places");
                }
            }
            if samples.iter().any(|(other, there, _)| other == name && *there == labels) {
                return bad("the same sample twice");
            }
            samples.push((name.to_string(), labels, value));
        }
        Ok((types, samples))
    }

    #[test]
    fn what_is_written_can_be_read() {
        let (meta, data) = (ServerId(0), ServerId::data(0));
        let mut hostile = seen(meta, Some((1.0, reply(meta, 3, 1000, 0))), None);
        hostile.entry.name = "a\\b\"c\nd".into();
        let servers = [
            (hostile.entry, Some(reply(meta, 3, 1000, 0))),
            (seen(data, None, None).entry, Some(reply(data, 1, 0, 77))),
            (seen(ServerId::data(1), None, None).entry, None),
        ];
        let (types, samples) = parse(&text("de\"mo", &servers)).unwrap();
        let value = |name: &str, server: &str| {
            let found = samples.iter().find(|(there, labels, _)| there == name && labels["server"] == server && labels.get("le").is_none());
            found.map(|(_, _, value)| *value)
        };
        assert_eq!(value("weft_meta_changes_total", "a\\b\"c\nd"), Some(1000.0));
        assert_eq!((value("weft_up", "data0"), value("weft_up", "data1")), (Some(1.0), Some(0.0)));
        assert_eq!((value("weft_written_bytes_total", "data0"), value("weft_written_bytes_total", "data1")), (Some(77.0), None));
        assert_eq!(value("weft_written_bytes_total", "a\\b\"c\nd"), None, "a metadata server holds no data");
        assert_eq!(value("weft_request_duration_seconds_count", "a\\b\"c\nd"), Some(1000.0));
        assert!(samples.iter().all(|(_, labels, _)| labels["fs"] == "de\"mo"));
        for (name, kind) in &types {
            assert_eq!(name.ends_with("_total"), kind == "counter", "{name}");
        }
        let buckets: Vec<(f64, f64)> = samples
            .iter()
            .filter(|(name, _, _)| name == "weft_request_duration_seconds_bucket")
            .map(|(_, labels, value)| (labels["le"].replace("+Inf", "inf").parse().unwrap(), *value))
            .collect();
        assert_eq!(buckets.len(), SLOTS);
        assert!(buckets.is_sorted(), "limits and counts rise");
        assert_eq!(buckets.last().copied(), Some((f64::INFINITY, 1000.0)));
    }

    #[test]
    fn the_parser_refuses_what_is_no_metric() {
        let good = "# HELP a_total x y\n# TYPE a_total counter\na_total{server=\"m\"} 1\n";
        assert!(parse(good).is_ok());
        for bad in [
            good.trim_end(),
            "a_total{server=\"m\"} 1\n",
            "# HELP a x y\n# TYPE a count\n",
            &good.replace("} 1", "} one"),
            &good.replace("\"m\"", "\"m"),
            &format!("{good}a_total{{server=\"m\"}} 2\n"),
            &good.replace("a_total{", "1a{"),
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
