//! Machine profiles: what the modelled machines and their network are like.

use std::path::Path;

use anyhow::{Context, Result, anyhow};
use serde::Deserialize;
use weft_rt_sim::Profile;
use weft_rt_sim::models::{CpuProfile, DiskProfile, NetProfile, SeekProfile};

use super::library::{What, find, names};

/// The form of a profile file. Times in microseconds, rates in MiB/s; 0 for a rate means that it is no limit.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[allow(dead_code)] // for people, and for `weft sim list`
    about: String,
    net: Net,
    cpu: Cpu,
    disk: Disk,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Net {
    mib_per_s: f64,
    send_us: f64,
    latency_us: f64,
    #[serde(default)]
    jitter_us: f64,
    loopback_us: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Cpu {
    request_us: f64,
    record_us: f64,
    checksum_mib_per_s: f64,
    copy_mib_per_s: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Disk {
    call_us: f64,
    memory_mib_per_s: f64,
    reads_cached: bool,
    read_us: f64,
    sync_us: f64,
    read_mib_per_s: f64,
    write_mib_per_s: f64,
    #[serde(default)]
    jitter_us: f64,
    seek: Option<Seek>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Seek {
    near_us: f64,
    far_us: f64,
    near_mib: f64,
}

/// Reads a profile: one that comes with weft, or a TOML file beside `plan` or at a path of its own.
///
/// # Errors
/// What is wrong with it, and where.
pub fn open(name: &str, plan: Option<&Path>) -> Result<Profile> {
    if let Some(file) = find(What::Profile, name) {
        return parse(name, file.text);
    }
    let path = plan.and_then(Path::parent).unwrap_or(Path::new("")).join(name);
    let text = std::fs::read_to_string(&path).with_context(|| {
        format!("there is no profile `{name}`: neither with weft ({}) nor as the file {}", names(What::Profile), path.display())
    })?;
    parse(name, &text)
}

/// Makes a profile of the text of a file.
///
/// # Errors
/// What is wrong with it, and where.
pub fn parse(name: &str, text: &str) -> Result<Profile> {
    let file: File = toml::from_str(text).map_err(|error| anyhow!("profile {name}: {error}"))?;
    let numbers = [
        ("net.mib_per_s", file.net.mib_per_s),
        ("net.send_us", file.net.send_us),
        ("net.latency_us", file.net.latency_us),
        ("net.jitter_us", file.net.jitter_us),
        ("net.loopback_us", file.net.loopback_us),
        ("cpu.request_us", file.cpu.request_us),
        ("cpu.record_us", file.cpu.record_us),
        ("cpu.checksum_mib_per_s", file.cpu.checksum_mib_per_s),
        ("cpu.copy_mib_per_s", file.cpu.copy_mib_per_s),
        ("disk.call_us", file.disk.call_us),
        ("disk.memory_mib_per_s", file.disk.memory_mib_per_s),
        ("disk.read_us", file.disk.read_us),
        ("disk.sync_us", file.disk.sync_us),
        ("disk.read_mib_per_s", file.disk.read_mib_per_s),
        ("disk.write_mib_per_s", file.disk.write_mib_per_s),
        ("disk.jitter_us", file.disk.jitter_us),
    ];
    let seek = file.disk.seek.as_ref();
    let seek = seek
        .iter()
        .flat_map(|seek| [("disk.seek.near_us", seek.near_us), ("disk.seek.far_us", seek.far_us), ("disk.seek.near_mib", seek.near_mib)]);
    for (key, value) in numbers.into_iter().chain(seek) {
        // A year, or an exabyte per second: beyond that somebody has mistaken the unit.
        anyhow::ensure!((0.0..=3.2e13).contains(&value), "profile {name}: {key} = {value} is not a sensible number");
    }
    let ns = |us: f64| (us * 1e3).round() as u64;
    let rate = |mib_per_s: f64| (mib_per_s * f64::from(1 << 20)).round() as u64;
    let base = Profile::default();
    Ok(Profile {
        net: NetProfile {
            bytes_per_s: rate(file.net.mib_per_s),
            send_ns: ns(file.net.send_us),
            latency_ns: ns(file.net.latency_us),
            jitter_ns: ns(file.net.jitter_us),
            loopback_ns: ns(file.net.loopback_us),
            ..base.net
        },
        cpu: CpuProfile {
            request_ns: ns(file.cpu.request_us),
            record_ns: ns(file.cpu.record_us),
            checksum_bytes_per_s: rate(file.cpu.checksum_mib_per_s),
            copy_bytes_per_s: rate(file.cpu.copy_mib_per_s),
        },
        disk: DiskProfile {
            call_ns: ns(file.disk.call_us),
            memory_bytes_per_s: rate(file.disk.memory_mib_per_s),
            reads_cached: file.disk.reads_cached,
            read_ns: ns(file.disk.read_us),
            sync_ns: ns(file.disk.sync_us),
            read_bytes_per_s: rate(file.disk.read_mib_per_s),
            write_bytes_per_s: rate(file.disk.write_mib_per_s),
            jitter_ns: ns(file.disk.jitter_us),
            seek: file.disk.seek.map(|seek| SeekProfile {
                near_ns: ns(seek.near_us),
                far_ns: ns(seek.far_us),
                near_bytes: rate(seek.near_mib),
            }),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_named() {
        let good = find(What::Profile, "ethernet-10g").unwrap().text;
        let error = |text: &str| parse("p", text).unwrap_err().to_string();
        assert!(error(&good.replace("latency_us", "latency_ms")).contains("latency_ms"));
        assert!(error(&good.replace("[disk]", "[disk")).contains("line"));
        let negative = good.replacen("latency_us = ", "latency_us = -", 1);
        assert!(error(&negative).contains("net.latency_us"), "{negative}");
        assert!(open("no-such", None).unwrap_err().to_string().contains("pvs-2009"));
    }

    #[test]
    fn the_thesis_profile_is_the_one_of_the_simulator() {
        let parsed = parse("pvs-2009", find(What::Profile, "pvs-2009").unwrap().text).unwrap();
        let built_in = Profile::pvs_2009();
        assert_eq!(parsed.net, built_in.net);
        assert_eq!(parsed.disk.seek, built_in.disk.seek);
        assert_eq!(parsed.disk.write_bytes_per_s, built_in.disk.write_bytes_per_s);
    }
}
