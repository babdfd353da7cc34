//! dNFSp's metadata servers as the simulated system (`system = "dnfsp"`): the section `[dnfsp]` of
//! a plan or its profile becomes the parameters of `lab/yardsticks`, the network is the plan's.

use anyhow::Result;
use serde_json::{Value, json};
use toml::de::DeValue;
use weft_model::TieOrder;
use weft_piosim::ClusterConfig;
use weft_plan::document::{Choices, Table};
use weft_plan::units::{above_zero, bytes, name, up_to};
use weft_plan::workload::{self, Kind};
use weft_yardsticks::dnfsp::{DnfspConfig, Scheme, run};

use crate::cluster::{Layered, nanos};

const SCHEMES: [(&str, Scheme); 2] = [("lrc", Scheme::Lrc), ("token", Scheme::Token)];

/// Reads what a plan says of dNFSp and the one `[[workload]]`. `config` has the machines.
///
/// # Errors
/// Names file, line and key of what is wrong.
pub fn read<'a>(
    root: &Table<'a>,
    profile: Option<&Table<'a>>,
    workloads: &[Table<'_>],
    config: &ClusterConfig,
    choices: &mut Choices,
) -> Result<DnfspConfig> {
    let mut section = Layered::open(root, profile, "dnfsp", choices)?;
    let scheme = section.required("scheme", |value| name(value, &SCHEMES))?;
    let meta_servers = section.required("meta_servers", |value| up_to(value, 10_000))?;
    let (service, search) = (section.required("service", nanos)?, section.required("search", nanos)?);
    let chunk_bytes = section.required("chunk", above_zero(bytes))?;
    let disk_bandwidth = section.required("disk_bandwidth", above_zero(bytes))?;
    section.finish()?;
    let [table] = workloads else {
        return Err(root.error("workload", "the model of dNFSp runs one workload at a time"));
    };
    let split = |value: &DeValue<'_>| name(value, &[("split", Kind::Split)]);
    let kind = table.swept("kind", choices, split)?.ok_or_else(|| table.error("kind", "is missing"))?;
    let work = workload::read(table, kind, config.clients, choices)?;
    let (files, total) = (work.files as u32, work.files * work.size + work.longer);
    if total / chunk_bytes > 10_000_000 {
        return Err(table.error("bytes", &format!("{total} bytes in pieces of {chunk_bytes} cannot be simulated")));
    }
    table.finish()?;
    Ok(DnfspConfig {
        scheme,
        clients: config.clients,
        meta_servers,
        data_servers: config.servers,
        files,
        bytes: total,
        chunk_bytes,
        latency: 2 * (config.node.card.link_latency * 1e9).round() as u64,
        bandwidth: config.node.card.link_bandwidth,
        service,
        search,
        disk_bandwidth,
    })
}

/// The row of results of a case.
///
/// # Errors
/// The model was given what it cannot run.
pub fn row(config: &DnfspConfig) -> Result<Value> {
    let report = run(config, TieOrder::Natural).map_err(anyhow::Error::msg)?;
    let seconds = report.nanos as f64 / 1e9;
    Ok(json!({
        "seconds": seconds,
        "operations": report.files,
        "bytes": report.bytes,
        "mib_per_second": report.bytes as f64 / (1 << 20) as f64 / seconds.max(1e-9),
        "messages": report.meta_messages,
        "events": report.events,
    }))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use weft_plan::files::Lab;

    use super::*;
    use crate::case::{self, Case};

    fn seconds(set: &[&str]) -> Result<Vec<f64>, String> {
        let lab = Lab { folder: PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..") };
        let set: Vec<String> = set.iter().map(|word| word.to_string()).collect();
        let cases = lab.plan("dnfsp-split", &set, None).and_then(|plan| plan.cases(case::read)).map_err(|error| error.to_string())?;
        let ran = cases.iter().map(|source| match source.build(case::read)? {
            Case::Dnfsp(config) => run(&config, TieOrder::Natural).map_err(anyhow::Error::msg),
            _ => Err(anyhow::anyhow!("not dNFSp")),
        });
        ran.map(|report| report.map(|report| report.nanos as f64 / 1e9).map_err(|error| error.to_string())).collect()
    }

    #[test]
    fn lazy_consistency_grows_with_files_as_in_figure_3_and_tokens_stay_flat() {
        let files = "workload.files=1,2,4,8,16,32,64,128";
        let lazy = seconds(&["dnfsp.scheme=lrc", files]).expect("runs");
        let token = seconds(&["dnfsp.scheme=token", files]).expect("runs");
        assert!(lazy.is_sorted() && lazy[7] > 1.5 * lazy[0], "{lazy:?}");
        assert!(token[7] < 1.1 * token[0], "{token:?}");
        assert!((0.95..1.05).contains(&(lazy[0] / token[0])), "with one file both are the same: {lazy:?}, {token:?}");
    }

    #[test]
    fn lazy_consistency_grows_with_metadata_servers_and_tokens_stay_flat() {
        let metas = |scheme| seconds(&[scheme, "dnfsp.meta_servers=4,6,8,12,16", "workload.files=128"]).expect("runs");
        let (lazy, token) = (metas("dnfsp.scheme=lrc"), metas("dnfsp.scheme=token"));
        assert!(lazy.is_sorted_by(|less, more| less < more) && lazy[4] > 1.5 * lazy[0], "{lazy:?}");
        assert!(token.iter().all(|seconds| (0.95..1.05).contains(&(seconds / token[0]))), "{token:?}");
    }

    #[test]
    fn values_that_make_no_sense_name_file_and_key() {
        for (set, words) in [
            ("workload.bytes=3", "workload.bytes: 3 bytes cannot"),
            ("dnfsp.scheme=lazy", "dnfsp.scheme: \"lazy\" is not one of lrc, token"),
            ("workload.kind=names", "workload.kind: \"names\" is not one of split"),
        ] {
            let said = seconds(&["workload.files=8", set]).expect_err("refused");
            assert!(said.contains(words) && said.contains("dnfsp-split.toml, by the command line: "), "{said}");
        }
    }
}
