//! Operations of a disk: when they begin, how long they take, when they are over.

use std::rc::Rc;

use bytes::BytesMut;
use weft_base::Payload;
use weft_rt::{Disk, DiskError, FaultPoint, FileId};

use super::{DiskOp, DiskValue};
use crate::ids::{NodeId, SlotId};
use crate::models::transfer_ns;
use crate::queue::Event;
use crate::slots::{Outcome, Reason, Wait};
use crate::world::{State, World};

/// The disk of one node, for one life of its process. Operations of an earlier life never end.
#[derive(Clone)]
pub struct SimDisk {
    pub(crate) world: Rc<World>,
    pub(crate) node: NodeId,
    pub(crate) life: u32,
}

impl State {
    /// Begins an operation of `node`. `None` if that life of the node is over.
    fn begin_disk(&mut self, node: NodeId, life: u32, mut op: DiskOp) -> Option<SlotId> {
        if !self.is_alive(node, life) {
            return None;
        }
        let disk = &mut self.nodes[node.index()].disk;
        if let DiskOp::Sync { file, below } = &mut op {
            *below = disk.volume.next_change(*file);
        }
        disk.count(&op);
        let slot = self.clock.begin_wait(Reason::Disk { operation: op.name() });
        let end = self.disk_end(node, &op);
        if self.trace.is_on() {
            let text = describe(&op);
            self.note(node, format_args!("disk {text}"));
        }
        let disk = &mut self.nodes[node.index()].disk;
        disk.last_operation += 1;
        let operation = disk.last_operation;
        disk.running.insert(operation, (slot, op));
        self.clock.events.plan(end, Event::Disk { node, operation });
        Some(slot)
    }

    /// When an operation that begins now is over.
    fn disk_end(&mut self, node: NodeId, op: &DiskOp) -> u64 {
        let profile = &self.profile.disk;
        let disk = &mut self.nodes[node.index()].disk;
        let at_disk = match op {
            DiskOp::Sync { file, below } => Some(match &profile.seek {
                None => profile.sync_ns + transfer_ns(disk.volume.dirty_bytes(*file, *below), profile.write_bytes_per_s),
                Some(seek) => {
                    let (number, runs) = disk.volume.dirty_runs(*file, *below);
                    let write =
                        |(start, end)| disk.move_head(seek, number, start, end) + transfer_ns(end - start, profile.write_bytes_per_s);
                    profile.sync_ns + runs.iter().map(write).sum::<u64>()
                }
            }),
            DiskOp::Remove { .. } | DiskOp::Rename { .. } | DiskOp::Open { create: true, .. } => {
                Some(profile.sync_ns + profile.seek.as_ref().map_or(0, |seek| disk.move_away(seek)))
            }
            DiskOp::Read { file, offset, len } if !profile.reads_cached => {
                let number = disk.volume.number(*file);
                let moved = profile.seek.as_ref().map_or(0, |seek| disk.move_head(seek, number, *offset, offset + len));
                Some(moved + profile.read_ns + transfer_ns(*len, profile.read_bytes_per_s))
            }
            _ => None,
        };
        let copying_ns = match op {
            DiskOp::Read { len, .. } => transfer_ns(*len, profile.memory_bytes_per_s),
            DiskOp::Write { data, .. } => transfer_ns(data.len(), profile.memory_write_bytes_per_s),
            _ => 0,
        };
        let on_core = profile.call_ns + copying_ns;
        let jitter = profile.jitter_ns;
        let jitter = match at_disk {
            _ if jitter == 0 => 0,
            Some(_) => self.model_random.below(jitter * 10),
            None => self.model_random.below(jitter),
        };
        let spread = match profile.access_spread_ns {
            spread if spread > 0 && at_disk.is_some() => self.model_random.below(spread),
            _ => 0,
        };
        let core_end = self.use_core(node, on_core);
        let now = self.clock.now;
        match at_disk {
            Some(service) => {
                let service = self.slowed(node, service + jitter + spread);
                self.serve_disk(node, now.max(core_end), service)
            }
            None => {
                let disk = &mut self.nodes[node.index()].disk;
                disk.calls_end_at = disk.calls_end_at.max(core_end + jitter);
                disk.calls_end_at
            }
        }
    }

    /// An operation is over: it takes effect.
    pub(crate) fn end_disk(&mut self, node: NodeId, operation: u64) {
        let disk = &mut self.nodes[node.index()].disk;
        let Some((slot, op)) = disk.running.remove(&operation) else { return };
        let result = disk.volume.execute(op, &mut self.model_random);
        if let Err(error) = &result {
            let text = error.to_string();
            self.note(node, format_args!("disk error: {text}"));
        }
        self.clock.finish_wait(slot, Outcome::Disk(result));
    }

    /// The process of a node has died: what it was doing happens in part, and its files are closed.
    pub(crate) fn abandon_disk(&mut self, node: NodeId) {
        let disk = &mut self.nodes[node.index()].disk;
        for (_, (_, op)) in std::mem::take(&mut disk.running) {
            disk.volume.execute_torn(op, &mut self.fault_random);
        }
        disk.volume.close_all();
        disk.calls_end_at = 0;
    }
}

fn describe(op: &DiskOp) -> String {
    match op {
        DiskOp::Write { file, offset, data } => format!("write {file:?} at {offset} + {}", data.len()),
        other => format!("{other:?}"),
    }
}

impl SimDisk {
    async fn run(&self, op: DiskOp) -> Result<DiskValue, DiskError> {
        let slot = self.world.state.borrow_mut().begin_disk(self.node, self.life, op);
        match Wait::new(&self.world.state, slot).await {
            Outcome::Disk(result) => result,
            other => unreachable!("a disk operation ended with {other:?}"),
        }
    }
}

impl Disk for SimDisk {
    async fn open(&self, name: &str, create: bool) -> Result<FileId, DiskError> {
        match self.run(DiskOp::Open { name: name.to_string(), create }).await? {
            DiskValue::File(file) => Ok(file),
            other => unreachable!("open gave {other:?}"),
        }
    }

    async fn read(&self, file: FileId, offset: u64, len: u64) -> Result<Payload, DiskError> {
        match self.run(DiskOp::Read { file, offset, len }).await? {
            DiskValue::Data(data) => Ok(data),
            other => unreachable!("read gave {other:?}"),
        }
    }

    async fn write(&self, file: FileId, offset: u64, data: Payload) -> Result<(), DiskError> {
        self.run(DiskOp::Write { file, offset, data }).await.map(drop)
    }

    async fn write_parts(&self, file: FileId, offset: u64, parts: Vec<Payload>) -> Result<(), DiskError> {
        let mut joined = BytesMut::new();
        let mut at = offset;
        for part in parts {
            let len = part.len();
            match part {
                Payload::Real(bytes) => joined.extend_from_slice(&bytes),
                // Synthetic data keeps its name, for which it needs an operation of its own.
                synthetic => {
                    let before = joined.split().freeze();
                    self.write(file, at - before.len() as u64, before.into()).await?;
                    self.write(file, at, synthetic).await?;
                }
            }
            at += len;
        }
        self.write(file, at - joined.len() as u64, joined.freeze().into()).await
    }

    async fn sync(&self, file: FileId) -> Result<(), DiskError> {
        self.run(DiskOp::Sync { file, below: 0 }).await.map(drop)
    }

    async fn len(&self, file: FileId) -> Result<u64, DiskError> {
        match self.run(DiskOp::Len { file }).await? {
            DiskValue::Number(len) => Ok(len),
            other => unreachable!("len gave {other:?}"),
        }
    }

    async fn set_len(&self, file: FileId, len: u64) -> Result<(), DiskError> {
        self.run(DiskOp::SetLen { file, len }).await.map(drop)
    }

    async fn allocate(&self, file: FileId, offset: u64, len: u64) -> Result<(), DiskError> {
        self.run(DiskOp::Allocate { file, offset, len }).await.map(drop)
    }

    async fn punch(&self, file: FileId, offset: u64, len: u64) -> Result<(), DiskError> {
        self.run(DiskOp::Punch { file, offset, len }).await.map(drop)
    }

    fn close(&self, file: FileId) {
        let mut state = self.world.state.borrow_mut();
        if state.is_alive(self.node, self.life) {
            state.nodes[self.node.index()].disk.volume.close(file);
        }
    }

    async fn remove(&self, name: &str) -> Result<(), DiskError> {
        self.run(DiskOp::Remove { name: name.to_string() }).await.map(drop)
    }

    async fn rename(&self, from: &str, to: &str) -> Result<(), DiskError> {
        self.run(DiskOp::Rename { from: from.to_string(), to: to.to_string() }).await.map(drop)
    }

    async fn pass(&self, point: FaultPoint) {
        let slot = {
            let mut state = self.world.state.borrow_mut();
            let ns = state.nodes[self.node.index()].delays.get(point);
            if ns == 0 {
                return;
            }
            let until = state.clock.now.saturating_add(ns);
            state.begin_timer(self.node, self.life, until, Reason::Sleep)
        };
        Wait::new(&self.world.state, slot).await;
    }

    async fn list(&self) -> Result<Vec<String>, DiskError> {
        match self.run(DiskOp::List).await? {
            DiskValue::Names(names) => Ok(names),
            other => unreachable!("list gave {other:?}"),
        }
    }

    async fn backed(&self, file: FileId) -> Result<u64, DiskError> {
        // Known without the disk, as in an operating system.
        self.world.state.borrow().nodes[self.node.index()].disk.volume.backed(file)
    }

    async fn space(&self) -> Result<(u64, u64), DiskError> {
        match self.run(DiskOp::Space).await? {
            DiskValue::Space(total, free) => Ok((total, free)),
            other => unreachable!("space gave {other:?}"),
        }
    }

    fn boot_id(&self) -> u64 {
        self.world.state.borrow().nodes[self.node.index()].boot_id
    }
}
