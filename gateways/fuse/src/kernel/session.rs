//! A connection to the kernel, from its first request to its end.
//!
//! Requests come over the device or, where the kernel offers it, over io_uring ([`super::rings`]);
//! interrupts and what the kernel forgets always over the device.
//!
//! Over the device, each thread reads a request and serves it to its end: no hand-over. As few
//! threads as keep up with the load do this ([`Threads`]); a thread whose request waits for a
//! server does not count, so others take its place, and however many requests wait, the next one is
//! served.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use weft_trace::event;

use super::abi::{IN_HEADER_BYTES, InHeader, opcode};
use super::answer::{ServingThread, Way, write_reply};
use super::dispatch::dispatch;
use super::filesystem::Filesystem;
use super::init::KernelConfig;
use super::interrupts::Interrupts;
use super::notify::Notifier;
use super::request::Pieces;
use super::rings::{Rings, Transport};
use super::types::InitFlags;
use crate::REQUEST_BYTES_MAX;
use crate::looks::{Looks, Pace};
use crate::threads::{Demand, Stay, Threads};
use crate::waits::request_waits;

/// The largest request with all its headers.
const BUFFER_BYTES: usize = REQUEST_BYTES_MAX as usize + 4096;
/// The stack of a thread; what it does not touch costs nothing.
pub(super) const STACK_BYTES: usize = 1 << 20;

/// Between two samples while there is work.
const TICK: Duration = Duration::from_millis(1);
/// Between two samples of a mount that is idle.
const TICK_IDLE: Duration = Duration::from_millis(20);
/// So many samples without work, and the mount counts as idle.
const IDLE_SAMPLES: u32 = 50;
/// The load is recorded at most so often.
const LOAD_INTERVAL: Duration = Duration::from_millis(10);

/// `FUSE_DEV_IOC_CLONE`: one more way to the same connection.
const IOCTL_CLONE: libc::Ioctl = 0x8004_e500_u32 as libc::Ioctl;

/// How a connection is served.
#[derive(Clone, Copy, Debug)]
pub struct SessionOptions {
    /// When the connection has ended, wait at most so long for requests that still wait for
    /// servers.
    pub patience: Duration,
    /// How requests come.
    pub transport: Transport,
}

/// A connection to the kernel.
#[derive(Debug)]
pub struct KernelSession<F> {
    pub(super) filesystem: F,
    pub(super) device: Arc<OwnedFd>,
    pub(super) threads: Arc<Threads>,
    /// Those that serve requests over io_uring, if it was agreed upon.
    pub(super) rings: Option<Rings>,
    interrupts: Interrupts,
    looks: Looks,
    options: SessionOptions,
}

impl<F: Filesystem> KernelSession<F> {
    /// Answers the first request of the kernel.
    ///
    /// # Errors
    /// If there is none, or kernel and file system do not agree.
    pub fn new(filesystem: F, device: OwnedFd, threads: Arc<Threads>, options: SessionOptions) -> io::Result<KernelSession<F>> {
        let device = Arc::new(device);
        let agreed = agree(&filesystem, &device, options.transport.may_use_rings()?)?;
        if options.transport == Transport::Uring && !agreed {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "the kernel does not offer FUSE over io_uring to this mount"));
        }
        let rings = if agreed { Some(Rings::new(super::ring::queues()?)) } else { None };
        Ok(KernelSession { filesystem, device, threads, rings, interrupts: Interrupts::default(), looks: Looks::new(), options })
    }

    /// Serves until the connection ends: somebody has unmounted. Calls `served` when there is a
    /// thread that serves.
    ///
    /// # Errors
    /// If there is not one.
    pub fn run(self, served: impl FnOnce()) -> io::Result<()> {
        let session = Arc::new(self);
        for number in 0..session.threads.base() {
            let device = clone_device(&session.device).map_or_else(|_| session.device.clone(), Arc::new);
            match session.start(device) {
                Err(error) if number == 0 => return Err(error),
                // The thread that watches the load tries again.
                _ => {}
            }
        }
        served();
        session.start_rings();
        session.watch();
        session.threads.want(usize::MAX);
        let end = Instant::now() + session.options.patience;
        let ended = session.threads.wait_for_end(session.options.patience);
        let left = end.saturating_duration_since(Instant::now());
        if !(session.rings.as_ref().is_none_or(|rings| rings.wait_for_end(left)) && ended) {
            session.filesystem.warn("requests still wait for servers that do not answer");
        }
        Ok(())
    }

    /// One more thread that serves.
    fn start(self: &Arc<Self>, device: Arc<OwnedFd>) -> io::Result<JoinHandle<()>> {
        let service = self.threads.add(ServingThread::new(Way::Device(device.clone())));
        let (session, of_thread) = (self.clone(), service.clone());
        let serve = move || {
            let _leaves = Leaves(&session.threads, &of_thread);
            session.serve(&device, &of_thread);
        };
        let started = std::thread::Builder::new().name("weft-fuse".into()).stack_size(STACK_BYTES).spawn(serve);
        if started.is_err() {
            self.threads.remove(&service);
        }
        started
    }

    /// Reads and serves requests until the connection ends or this thread is not needed any more.
    fn serve(self: &Arc<Self>, device: &OwnedFd, service: &Arc<ServingThread>) {
        let (mut buffer, mut pace) = (vec![0; BUFFER_BYTES], Pace::new());
        loop {
            self.looks.look(device, &mut pace);
            let bytes = match read(device, &mut buffer) {
                Ok(0) => return,
                Ok(bytes) => bytes,
                Err(error) => match error.raw_os_error() {
                    // The request was interrupted before it was read, or we were.
                    Some(libc::ENOENT | libc::EINTR | libc::EAGAIN) => continue,
                    Some(libc::ENODEV) => return,
                    _ => {
                        self.filesystem.warn(&format!("the connection to the kernel failed: {error}"));
                        return;
                    }
                },
            };
            pace.taken();
            let Ok(pieces) = Pieces::of_whole(&buffer[..bytes]) else {
                self.filesystem.warn(&format!("the kernel sent a request of {bytes} bytes that is not understood"));
                if let Ok(header) = InHeader::parse(&buffer[..bytes]) {
                    let _ = write_reply(device, header.unique, libc::EIO, &[]);
                }
                continue;
            };
            let header = pieces.header;
            match header.opcode {
                // What the kernel forgets is not remembered here.
                opcode::FORGET | opcode::BATCH_FORGET | opcode::NOTIFY_REPLY => continue,
                opcode::INTERRUPT => {
                    if let Some(unique) = pieces.fixed.first_chunk() {
                        self.interrupts
                            .add(u64::from_ne_bytes(*unique), &self.services(), &|service, unique| self.end_wait(service, unique));
                    }
                    continue;
                }
                _ => {}
            }
            service.begin(header.unique, header.pid, self.threads.now());
            dispatch(&self.filesystem, service, pieces);
            service.end();
            if self.threads.stays(service) == Stay::Leave {
                return;
            }
        }
    }

    /// Whatever is served.
    fn services(&self) -> Vec<Arc<ServingThread>> {
        let mut services = self.threads.services();
        if let Some(rings) = &self.rings {
            services.extend(rings.services());
        }
        services
    }

    /// A program that got a signal does not wait any longer; its request goes on.
    fn end_wait(self: &Arc<Self>, service: &Arc<ServingThread>, unique: u64) {
        if service.ring_answer().is_some() {
            self.take_over(service, unique);
        } else {
            service.interrupt(unique);
        }
    }

    /// Adapts the number of threads to the load and honours interrupts until the connection ends.
    fn watch(self: &Arc<Self>) {
        let mut demand = Demand::new(self.threads.base());
        let mut idle = 0;
        let mut recorded = Instant::now();
        let waits_of_requests = self.threads.waits();
        loop {
            std::thread::sleep(if idle < IDLE_SAMPLES { TICK } else { TICK_IDLE });
            let Some(waits) = request_waits(&self.device) else { return };
            let load = self.threads.sample();
            let busy_in_rings = self.grow_rings();
            if !waits {
                waits_of_requests.none();
            }
            let works = load.busy + busy_in_rings > 0 || waits || !self.interrupts.is_empty();
            idle = if works { 0 } else { idle + 1 };
            let wanted = self.threads.want(demand.sample(load, waits));
            for _ in self.threads.total()..wanted {
                // The next sample tries again.
                if self.start(self.device.clone()).is_err() {
                    break;
                }
            }
            if !self.interrupts.is_empty() {
                self.interrupts.honour(&self.services(), &|service, unique| self.end_wait(service, unique));
            }
            if weft_trace::is_on(event::LOAD_MOUNT) && recorded.elapsed() >= LOAD_INTERVAL {
                recorded = Instant::now();
                let serving = self.threads.serving();
                weft_trace::counters(
                    event::LOAD_MOUNT,
                    [u64::from(waits), (load.busy + busy_in_rings) as u64, serving as u64, wanted as u64, waits_of_requests.at_most_ns()],
                );
            }
        }
    }
}

/// Tells the others that a thread has ended, however it did.
struct Leaves<'a>(&'a Threads, &'a Arc<ServingThread>);

impl Drop for Leaves<'_> {
    fn drop(&mut self) {
        self.0.remove(self.1);
    }
}

/// The first request and its answer; true if requests will come over io_uring.
fn agree(filesystem: &impl Filesystem, device: &Arc<OwnedFd>, may_use_rings: bool) -> io::Result<bool> {
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let bytes = match read(device, &mut buffer) {
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EINTR | libc::EAGAIN)) => continue,
            read => read?,
        };
        let invalid = || io::Error::new(io::ErrorKind::InvalidData, "the kernel did not begin as the FUSE protocol says");
        let header = InHeader::parse(&buffer[..bytes]).map_err(|_| invalid())?;
        if header.opcode != opcode::INIT {
            return Err(invalid());
        }
        let config = KernelConfig::parse(&buffer[IN_HEADER_BYTES..bytes]);
        let mut config = match config {
            Ok(config) => config,
            Err(error) => {
                let _ = write_reply(device, header.unique, libc::EPROTO, &[]);
                return Err(error);
            }
        };
        filesystem.init(&mut config, &Notifier::new(device.clone()));
        let agreed = may_use_rings && config.add_capabilities(InitFlags::FUSE_OVER_IO_URING);
        return write_reply(device, header.unique, 0, &[config.reply().bytes()]).map(|()| agreed);
    }
}

/// One request, or the reason why there is none.
fn read(device: &OwnedFd, buffer: &mut [u8]) -> io::Result<usize> {
    // SAFETY: the buffer is live and as long as stated; the call writes nothing but bytes into it.
    let bytes = unsafe { libc::read(device.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len()) };
    usize::try_from(bytes).map_err(|_| io::Error::last_os_error())
}

/// One more way to the same connection: threads with their own do not share a lock for the requests
/// that they serve.
fn clone_device(device: &OwnedFd) -> io::Result<OwnedFd> {
    let copy = std::fs::OpenOptions::new().read(true).write(true).open("/dev/fuse")?;
    let source = device.as_raw_fd() as u32;
    // SAFETY: the ioctl reads one number from the pointer, which is live.
    if unsafe { libc::ioctl(copy.as_raw_fd(), IOCTL_CLONE, &raw const source) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(copy.into())
}
