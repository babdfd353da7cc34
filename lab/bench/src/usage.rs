//! What the servers and the mount of a file system spend while somebody else measures.

use std::path::Path;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use weft_host::connect::Fs;
use weft_host::state::StateDir;
use weft_host::{mount_list, proc};
use weft_wire::ops::DiskUse;

use crate::target::Traffic;

/// Units of processor time in one second, as the kernel tells programs: the same on every
/// architecture that we run on.
const TICKS_PER_SECOND: u64 = 100;

/// Counters at one moment, or between two.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usage {
    /// Processor time of all servers in microseconds.
    pub servers_us: u64,
    /// What all servers have received, and bytes both ways.
    pub traffic: Traffic,
    /// Processor time of the process that serves the mount in microseconds, if there is one.
    pub gateway_us: Option<u64>,
}

/// Looks at the counters of one file system.
pub struct Observer<'a> {
    fs: &'a Fs,
    /// The process that serves the mount, if a mount is measured and its process was found.
    gateway: Option<i32>,
}

impl<'a> Observer<'a> {
    /// For the file system, and its mount that holds `path` if that is what is measured.
    pub fn new(fs: &'a Fs, path: Option<&Path>) -> Observer<'a> {
        Observer { fs, gateway: path.and_then(|path| gateway_of(fs, path)) }
    }

    /// The counters now.
    ///
    /// # Errors
    /// If a server does not answer.
    pub fn look(&self) -> Result<Usage> {
        let mut usage = Usage::default();
        for (server, answer) in self.fs.ping_all() {
            let info = match answer {
                Ok(info) => info,
                Err(error) => bail!("{} does not answer: {}", server.name, self.fs.why(&error)),
            };
            usage.servers_us += info.cpu_us;
            usage.traffic.requests += info.requests;
            usage.traffic.bytes += info.received_bytes + info.sent_bytes;
        }
        usage.gateway_us = self.gateway.map(process_us).transpose()?;
        Ok(usage)
    }

    /// What was spent since `earlier`; the question itself is taken out of the count of requests.
    ///
    /// # Errors
    /// As [`Observer::look`].
    pub fn since(&self, earlier: Usage) -> Result<Usage> {
        let now = self.look()?;
        let mut traffic = now.traffic.since(earlier.traffic);
        traffic.requests = traffic.requests.saturating_sub(self.fs.client.map().servers().count() as u64);
        let gateway_us = now.gateway_us.zip(earlier.gateway_us).map(|(now, before)| now.saturating_sub(before));
        Ok(Usage { servers_us: now.servers_us.saturating_sub(earlier.servers_us), traffic, gateway_us })
    }
}

/// The process of the mount in which a path is, if it is one of this file system.
fn gateway_of(fs: &Fs, path: &Path) -> Option<i32> {
    let config = fs.config.as_ref()?;
    let path = path.canonicalize().ok()?;
    let mounts = mount_list::of(fs.id(), &StateDir::of_config(&config.file)).ok()?;
    mounts.into_iter().filter(|mount| path.starts_with(&mount.place)).max_by_key(|mount| mount.place.as_os_str().len())?.pid
}

/// Processor time of a process so far, in steps of 10 ms.
fn process_us(pid: i32) -> Result<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).context("the process of the mount has ended")?;
    let ticks = |place| proc::stat_field(&text, place).context("/proc/PID/stat has changed its form");
    // Of the user, and of the system for it.
    Ok((ticks(14)? + ticks(15)?) * 1_000_000 / TICKS_PER_SECOND)
}

/// Operations of all disks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Used {
    /// Accesses.
    pub operations: u64,
    /// Read or written.
    pub bytes: u64,
    /// Accesses that continue the one before.
    pub sequential: u64,
    /// Accesses near the one before.
    pub near: u64,
    /// All others.
    pub far: u64,
}

impl Used {
    /// What all data servers have asked of their disks.
    ///
    /// # Errors
    /// One of them does not answer.
    pub fn look(fs: &Fs) -> Result<Used> {
        let mut sum = Used::default();
        for (server, answer) in fs.ping_all() {
            let info = answer.map_err(|error| fs.explain(b"/", error)).with_context(|| format!("{} does not answer", server.name))?;
            if let Some(DiskUse { reads, writes, read_bytes, written_bytes, sequential, near, far, .. }) = info.disk {
                sum.operations += reads + writes;
                sum.bytes += read_bytes + written_bytes;
                (sum.sequential, sum.near, sum.far) = (sum.sequential + sequential, sum.near + near, sum.far + far);
            }
        }
        Ok(sum)
    }

    /// What came after `before`.
    pub fn since(&self, before: &Used) -> Used {
        Used {
            operations: self.operations - before.operations,
            bytes: self.bytes - before.bytes,
            sequential: self.sequential - before.sequential,
            near: self.near - before.near,
            far: self.far - before.far,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_of_a_process_is_told() {
        assert!(process_us(std::process::id() as i32).is_ok());
    }
}
