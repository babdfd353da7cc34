//! Storage devices: how long an access takes, given what the device did before.
//!
//! A device serves one job at a time. Jobs that wait are ordered by file and offset: the current
//! *sweep* through one file is finished upwards before the next file's turn comes (thesis section
//! 4.5). A device has no timer of its own: its owner asks it to start a job, waits for the time it
//! names and reports the end.

use std::collections::{BTreeMap, VecDeque};

use crate::units::{nanos, transfer_nanos};

/// Reading or writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobKind {
    /// From the device.
    Read,
    /// To the device.
    Write,
}

/// One access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskJob {
    /// Reading or writing.
    pub kind: JobKind,
    /// File.
    pub file: u32,
    /// First byte in the server's part of the file.
    pub offset: u64,
    /// Length in bytes.
    pub bytes: u64,
    /// The owner's name for it.
    pub tag: u32,
}

/// A kind of device with its parameters.
#[derive(Clone, Debug, PartialEq)]
pub enum DiskModel {
    /// A disk whose access time depends on the distance from the last access (thesis section 4.5,
    /// "refined disk"). Continuing where the last access ended costs only the transfer; a start
    /// less than `close_bytes` away costs half a rotation and a track-to-track seek; everything
    /// else half a rotation and an average seek.
    Refined {
        /// Revolutions a minute.
        rpm: f64,
        /// Average seek, seconds.
        average_seek: f64,
        /// Seek to a neighbouring track, seconds.
        track_seek: f64,
        /// Sequential transfer, bytes a second.
        bandwidth: u64,
        /// Distance that still counts as close, bytes.
        close_bytes: u64,
    },
    /// A fixed time for each access and a transfer rate.
    Simple {
        /// Access time, seconds.
        access: f64,
        /// Transfer, bytes a second.
        bandwidth: u64,
    },
    /// Flash memory in pages and erase blocks. Reads cost a page read for every page touched.
    /// Writes go to erased pages of the open block; as long as erased blocks are left that costs a
    /// program for every page, afterwards every block filled has to be paid with an erase and with
    /// moving the live pages of the block reclaimed (greedy cleaning at steady state: Desnoyers,
    /// "Analytic modeling of SSD write performance", SYSTOR 2012: write amplification about 1 / (2
    /// s) for uniform random writes with the spare share s).
    Ssd {
        /// Bytes of a page.
        page_bytes: u64,
        /// Pages of an erase block.
        block_pages: u64,
        /// Channels that work in parallel on one access.
        channels: u64,
        /// Reading a page, seconds.
        page_read: f64,
        /// Programming a page, seconds.
        page_program: f64,
        /// Erasing a block, seconds.
        block_erase: f64,
        /// Bytes that can be written before the first cleaning.
        erased_bytes: u64,
        /// Share of the flash that is spare, above 0 and at most 1.
        spare: f64,
        /// Limit of the interface, bytes a second.
        bandwidth: u64,
    },
    /// Memory: latency and bandwidth.
    Ram {
        /// Latency of an access, seconds.
        latency: f64,
        /// Bandwidth, bytes a second.
        bandwidth: u64,
    },
}

impl DiskModel {
    /// The disk of the thesis (section 6.2): an IBM disk of the PVS cluster.
    pub fn thesis() -> DiskModel {
        DiskModel::Refined { rpm: 7200.0, average_seek: 0.01, track_seek: 0.001, bandwidth: 50 << 20, close_bytes: 5 << 20 }
    }
}

/// What a device did. Every operation is one of no seek, fast or slow; devices without seeks count
/// all as no seek.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskStatistics {
    /// Accesses.
    pub operations: u64,
    /// Of these, reads.
    pub reads: u64,
    /// Bytes transferred.
    pub bytes: u64,
    /// Accesses that continued the last one.
    pub no_seek: u64,
    /// Accesses close to the last one.
    pub fast: u64,
    /// All others.
    pub slow: u64,
    /// Time in service, nanoseconds.
    pub busy_nanos: u64,
}

/// How an access was reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Seek {
    /// It continued the last one, or the device has no seeks.
    #[default]
    None,
    /// A short seek.
    Near,
    /// A long seek.
    Far,
}

/// A device with its queue.
pub struct Disk {
    model: DiskModel,
    serving: Option<DiskJob>,
    last: Option<(u32, u64)>,
    /// Waiting jobs of the current sweep (file of the last access) by offset; equal offsets in the
    /// order of arrival.
    sweep: BTreeMap<(u64, u64), DiskJob>,
    /// Waiting jobs of other files.
    waiting: BTreeMap<u32, BTreeMap<(u64, u64), DiskJob>>,
    files: VecDeque<u32>,
    arrivals: u64,
    /// SSD: bytes that can still be written before cleaning starts.
    erased_left: u64,
    statistics: DiskStatistics,
    /// Of the job in service.
    seek: Seek,
}

impl Disk {
    /// An idle device.
    pub fn new(model: DiskModel) -> Disk {
        let erased_left = if let DiskModel::Ssd { erased_bytes, .. } = model { erased_bytes } else { 0 };
        Disk {
            model,
            serving: None,
            last: None,
            sweep: BTreeMap::new(),
            waiting: BTreeMap::new(),
            files: VecDeque::new(),
            arrivals: 0,
            erased_left,
            statistics: DiskStatistics::default(),
            seek: Seek::None,
        }
    }

    /// What it did so far.
    pub fn statistics(&self) -> DiskStatistics {
        self.statistics
    }

    /// Hands over a job. `Some` is its service time in nanoseconds if it starts at once; the owner
    /// calls [`Disk::finish`] then.
    #[must_use]
    pub fn submit(&mut self, job: DiskJob) -> Option<u64> {
        if self.serving.is_none() {
            return Some(self.start(job));
        }
        let key = (job.offset, self.arrivals);
        self.arrivals += 1;
        if self.last.is_some_and(|(file, end)| file == job.file && job.offset >= end) {
            self.sweep.insert(key, job);
        } else {
            let queue = self.waiting.entry(job.file).or_default();
            if queue.is_empty() {
                self.files.push_back(job.file);
            }
            queue.insert(key, job);
        }
        None
    }

    /// The job in service.
    pub fn serving(&self) -> Option<DiskJob> {
        self.serving
    }

    /// How the job in service was reached.
    pub fn seek(&self) -> Seek {
        self.seek
    }

    /// The job in service is done: returns it. Afterwards the owner asks [`Disk::start_next`],
    /// unless it submitted something itself.
    ///
    /// # Panics
    /// If no job is in service.
    pub fn finish(&mut self) -> DiskJob {
        self.serving.take().expect("the owner finishes only what was started")
    }

    /// Starts the next waiting job, if the device is idle and one waits; its service time in
    /// nanoseconds.
    #[must_use]
    pub fn start_next(&mut self) -> Option<u64> {
        if self.serving.is_some() {
            return None;
        }
        if self.sweep.is_empty() {
            let file = self.files.pop_front()?;
            self.sweep = self.waiting.remove(&file).unwrap_or_default();
        }
        let (_, job) = self.sweep.pop_first()?;
        Some(self.start(job))
    }

    fn start(&mut self, job: DiskJob) -> u64 {
        let service = self.service(job);
        self.last = Some((job.file, job.offset + job.bytes));
        self.serving = Some(job);
        self.statistics.operations += 1;
        self.statistics.reads += u64::from(job.kind == JobKind::Read);
        self.statistics.bytes += job.bytes;
        self.statistics.busy_nanos += service;
        service
    }

    fn service(&mut self, job: DiskJob) -> u64 {
        self.seek = Seek::None;
        match self.model {
            DiskModel::Refined { rpm, average_seek, track_seek, bandwidth, close_bytes } => {
                let half_rotation = 30.0 / rpm;
                let latency = match self.last {
                    Some((file, end)) if file == job.file && end == job.offset => {
                        self.statistics.no_seek += 1;
                        0.0
                    }
                    Some((file, end)) if file == job.file && job.offset.abs_diff(end) < close_bytes => {
                        self.statistics.fast += 1;
                        self.seek = Seek::Near;
                        half_rotation + track_seek
                    }
                    _ => {
                        self.statistics.slow += 1;
                        self.seek = Seek::Far;
                        half_rotation + average_seek
                    }
                };
                nanos(latency + job.bytes as f64 / bandwidth as f64)
            }
            DiskModel::Simple { access, bandwidth } | DiskModel::Ram { latency: access, bandwidth } => {
                self.statistics.no_seek += 1;
                nanos(access + job.bytes as f64 / bandwidth as f64)
            }
            DiskModel::Ssd { .. } => {
                self.statistics.no_seek += 1;
                self.ssd_service(job)
            }
        }
    }

    fn ssd_service(&mut self, job: DiskJob) -> u64 {
        let DiskModel::Ssd { page_bytes, block_pages, channels, page_read, page_program, block_erase, spare, bandwidth, .. } = self.model
        else {
            return 0;
        };
        let pages = (job.offset + job.bytes).div_ceil(page_bytes) - job.offset / page_bytes;
        let rounds = pages.div_ceil(channels) as f64;
        let flash = match job.kind {
            JobKind::Read => rounds * page_read,
            JobKind::Write => {
                let before_cleaning = self.erased_left.min(pages * page_bytes);
                self.erased_left -= before_cleaning;
                let cleaned_share = 1.0 - before_cleaning as f64 / (pages * page_bytes).max(1) as f64;
                let moved = (1.0 / (2.0 * spare) - 1.0).max(0.0);
                let cleaning = moved * (page_read + page_program) + (1.0 + moved) * block_erase / block_pages as f64;
                rounds * (page_program + cleaned_share * cleaning)
            }
        };
        nanos(flash).max(transfer_nanos(job.bytes, bandwidth))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(file: u32, offset: u64, bytes: u64) -> DiskJob {
        DiskJob { kind: JobKind::Write, file, offset, bytes, tag: 0 }
    }

    #[test]
    fn access_time_depends_on_the_distance_from_the_last_access() {
        let mut disk = Disk::new(DiskModel::thesis());
        let mut access = |job| {
            let time = disk.submit(job);
            disk.finish();
            time
        };
        assert_eq!(access(job(0, 0, 5120)), Some(14_264_322));
        assert_eq!(access(job(0, 5120, 5120)), Some(97_656));
        assert_eq!(access(job(0, 20_000, 5120)), Some(5_264_322));
        assert_eq!(access(job(0, 25_120 + (5 << 20), 0)), Some(14_166_666), "five mebibytes away is not close");
        assert_eq!(access(job(0, 25_121, 0)), Some(5_166_666), "and one byte less is");
        assert_eq!(access(job(1, 25_121, 0)), Some(14_166_666), "another file is far");
        let statistics = disk.statistics();
        assert_eq!((statistics.operations, statistics.no_seek, statistics.fast, statistics.slow), (6, 1, 2, 3));
    }

    #[test]
    fn waiting_jobs_are_served_in_sweeps() {
        let mut disk = Disk::new(DiskModel::thesis());
        assert!(disk.submit(job(0, 100, 10)).is_some());
        for (file, offset) in [(0, 300), (1, 50), (0, 50), (0, 200), (1, 10)] {
            assert_eq!(disk.submit(job(file, offset, 10)), None);
        }
        let mut order = Vec::new();
        loop {
            let done = disk.finish();
            order.push((done.file, done.offset));
            if disk.start_next().is_none() {
                break;
            }
        }
        // Upwards from the running job, then the files in the order in which they came.
        assert_eq!(order, [(0, 100), (0, 200), (0, 300), (1, 10), (1, 50), (0, 50)]);
    }

    #[test]
    fn an_ssd_slows_down_when_it_has_to_clean() {
        let model = DiskModel::Ssd {
            page_bytes: 4096,
            block_pages: 64,
            channels: 1,
            page_read: 25e-6,
            page_program: 200e-6,
            block_erase: 1.5e-3,
            erased_bytes: 8192,
            spare: 0.1,
            bandwidth: 1 << 30,
        };
        let mut disk = Disk::new(model);
        let mut write = || {
            let time = disk.submit(job(0, 0, 4096)).expect("the device is idle");
            disk.finish();
            time
        };
        let (first, second, third) = (write(), write(), write());
        assert_eq!(first, second);
        // Amplification 5: four pages moved and five sixty-fourths of an erase for each page
        // written.
        let expected = nanos(200e-6 + 4.0 * 225e-6 + 5.0 * 1.5e-3 / 64.0);
        assert!(third.abs_diff(expected) <= 1, "{third} {expected}");
    }
}
