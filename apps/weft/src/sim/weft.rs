//! Experiments with Weft's own servers and clients: `kind = "weft"`.

use std::path::Path;

use anyhow::{Result, anyhow};
use serde::{Deserialize, Deserializer};
use weft_virtual_cluster::{ClusterShape, Contract, Directories, FileLayout, Storage, Workload};

use super::profile;
use super::result::{Phase, Share};
use crate::units::ByteSize;

/// A case, ready to run.
#[derive(Debug)]
pub struct WeftPlan {
    pub shape: ClusterShape,
    pub work: Workload,
}

/// The form of the plan file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[allow(dead_code)] // for people, read before
    about: String,
    #[allow(dead_code)] // led here
    kind: String,
    profile: String,
    #[serde(default = "one")]
    seed: u64,
    #[serde(default)]
    cluster: Cluster,
    work: Work,
    #[allow(dead_code)] // taken out before
    sweep: Option<toml::Table>,
}

fn one() -> u64 {
    1
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Cluster {
    meta: u16,
    data: u16,
    clients: u16,
    #[serde(deserialize_with = "size")]
    stripe_size: u64,
    stripe_width: u16,
    engine: Engine,
    durability: Durability,
}

impl Default for Cluster {
    fn default() -> Cluster {
        let shape = ClusterShape::default();
        Cluster {
            meta: shape.meta,
            data: shape.data,
            clients: shape.clients,
            stripe_size: shape.stripe_bytes.into(),
            stripe_width: shape.stripe_width,
            engine: Engine::Journal,
            durability: Durability::Batch,
        }
    }
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Engine {
    Memory,
    Journal,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Durability {
    Sync,
    Batch,
    None,
}

#[derive(Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
enum Work {
    Names {
        files: u64,
        #[serde(default = "one")]
        window: u64,
        #[serde(default)]
        directories: Dirs,
    },
    Streams {
        #[serde(deserialize_with = "size")]
        size: u64,
        #[serde(deserialize_with = "size")]
        block_size: u64,
        layout: Layout,
        #[serde(default = "one")]
        blocks_per_call: u64,
        #[serde(default = "one")]
        window: u64,
    },
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Dirs {
    #[default]
    Shared,
    Own,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Layout {
    Own,
    Segmented,
    Interleaved,
}

/// A number of bytes, or a text like "64KiB".
fn size<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Size {
        Number(u64),
        Text(String),
    }
    match Size::deserialize(from)? {
        Size::Number(bytes) => Ok(bytes),
        Size::Text(text) => text.parse::<ByteSize>().map(|size| size.0).map_err(serde::de::Error::custom),
    }
}

impl WeftPlan {
    /// Looks whether the text of a plan is sound; errors name the line.
    pub fn check_text(text: &str) -> Result<(), toml::de::Error> {
        toml::from_str::<File>(text).map(drop)
    }

    /// A case of the plan at `path`, if it is a file.
    pub fn new(table: toml::Table, path: Option<&Path>) -> Result<WeftPlan> {
        let file: File = table.try_into().map_err(|error| anyhow!("{error}"))?;
        let Cluster { meta, data, clients, stripe_size, stripe_width, engine, durability } = file.cluster;
        let shape = ClusterShape {
            profile: profile::open(&file.profile, path)?,
            seed: file.seed,
            meta,
            data,
            clients,
            stripe_bytes: u32::try_from(stripe_size).map_err(|_| anyhow!("cluster.stripe_size is too large"))?,
            stripe_width,
            storage: match engine {
                Engine::Memory => Storage::Memory,
                Engine::Journal => Storage::Journal,
            },
            contract: match durability {
                Durability::Sync => Contract::Sync,
                Durability::Batch => Contract::Batch,
                Durability::None => Contract::None,
            },
        };
        let window = |window: u64| usize::try_from(window).map_err(|_| anyhow!("work.window is too large"));
        let work = match file.work {
            Work::Names { files, window: wanted, directories } => {
                let directories = match directories {
                    Dirs::Shared => Directories::Shared,
                    Dirs::Own => Directories::Own,
                };
                Workload::Names { files, window: window(wanted)?, directories }
            }
            Work::Streams { size, block_size, layout, blocks_per_call, window: wanted } => {
                let layout = match layout {
                    Layout::Own => FileLayout::Own,
                    Layout::Segmented => FileLayout::Segmented,
                    Layout::Interleaved => FileLayout::Interleaved,
                };
                Workload::Streams { bytes: size, block_bytes: block_size, layout, blocks_per_call, window: window(wanted)? }
            }
        };
        Ok(WeftPlan { shape, work })
    }

    /// Runs it.
    ///
    /// # Errors
    /// What the cluster could not do.
    pub fn run(&self) -> Result<Vec<Phase>> {
        let phases = weft_virtual_cluster::run(&self.shape, &self.work)?;
        let result = phases.into_iter().map(|phase| Phase {
            phase: phase.name.into(),
            operations: phase.operations,
            bytes: phase.bytes,
            seconds: phase.ns as f64 / 1e9,
            ops_per_s: phase.operations_per_s(),
            mib_per_s: (phase.bytes > 0).then(|| phase.mib_per_s()),
            messages: phase.messages,
            wire_bytes: phase.wire_bytes,
            disk_sequential: phase.disk.sequential,
            disk_near: phase.disk.near,
            disk_far: phase.disk.far,
            disk_syncs: phase.disk.syncs,
            bottleneck: phase.bottleneck().map(|share| share.part.to_string()),
            shares: phase.shares.iter().map(|share| Share { part: share.part.into(), busiest: share.busiest, mean: share.mean }).collect(),
        });
        Ok(result.collect())
    }
}
