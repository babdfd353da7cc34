//! A process beside one node: it sends messages to servers and says what they cost. It takes orders
//! as lines of JSON and ends when its input ends, like the other processes of benchmarks.

use std::ffi::OsString;
use std::future::{Future, poll_fn};
use std::io::BufRead;
use std::pin::pin;
use std::task::Poll;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use serde::{Deserialize, Serialize};
use weft_base::{Nanos, ServerId};
use weft_client::run_window;
use weft_host::connect::{Common, Fs};
use weft_rt::Runtime;
use weft_wire::ops::ServerInfo;

use crate::worker::answer;

/// Messages in flight where the gap is measured.
const WINDOW: usize = 16;
/// Bytes of them in flight at most.
const WINDOW_BYTES: u64 = 16 << 20;
/// Messages of one measurement, at least and at most.
const MESSAGES: (usize, usize) = (16, 20_000);
/// A transfer of many bytes is sent as messages of so many.
const PIECE_BYTES: u64 = 1 << 20;

/// What the hidden subcommand of a process says.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The file system
    #[arg(long)]
    fs: OsString,
}

/// What a process is told to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Order {
    /// Nothing; it answers at once.
    Rest,
    /// Measures messages of these sizes to one server, each size for so many seconds.
    Messages { server: u16, sizes: Vec<u64>, seconds: f64 },
    /// Transfers of so many bytes to each of these servers, all servers at once.
    Transfers { servers: Vec<u16>, bytes: u64, times: u32 },
}

/// What a process answers.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Answer {
    /// Of [`Order::Messages`], in the order of the sizes.
    Messages(Vec<Point>),
    /// Of [`Order::Transfers`]: seconds between the ends of transfers, in the order of the servers.
    Transfers(Vec<Vec<f64>>),
    /// It cannot, and says why.
    Failed(String),
}

/// What messages of one size cost, in microseconds; medians where single messages are looked at.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Point {
    pub bytes: u64,
    /// From the call until the message was given to the system.
    pub send_us: f64,
    /// From looking for an answer that is there until it is handed over.
    pub receive_us: f64,
    /// From the call to the answer of one message at a time.
    pub round_trip_us: f64,
    /// Processor time of the server for each of these.
    pub server_us: f64,
    /// Between messages of which the next is sent before the answer to the last one.
    pub gap_us: f64,
}

impl Args {
    /// The words that start a process.
    pub fn words(fs: &OsString) -> Vec<OsString> {
        vec!["bench".into(), "logp-worker".into(), "--fs".into(), fs.clone()]
    }

    /// Works until there are no more orders.
    ///
    /// # Errors
    /// When nobody listens.
    pub fn run(self, common: &Common) -> Result<()> {
        let fs = Fs::open(&self.fs, common);
        for line in std::io::stdin().lock().lines() {
            let done = match &fs {
                Ok(fs) => serde_json::from_str(&line?).context("no order").and_then(|order| obey(fs, &order)),
                Err(error) => Err(anyhow!("{error:#}")),
            };
            answer(&done.unwrap_or_else(|error| Answer::Failed(format!("{error:#}"))))?;
        }
        Ok(())
    }
}

fn obey(fs: &Fs, order: &Order) -> Result<Answer> {
    match order {
        Order::Rest => Ok(Answer::Transfers(Vec::new())),
        Order::Messages { server, sizes, seconds } => {
            let way = Way { fs, server: ServerId(*server) };
            way.once(&[])?;
            let span = Duration::from_secs_f64(*seconds);
            sizes.iter().map(|bytes| way.point(*bytes, span)).collect::<Result<_>>().map(Answer::Messages)
        }
        Order::Transfers { servers, bytes, times } => std::thread::scope(|scope| {
            let one = |server: &u16| {
                let way = Way { fs, server: ServerId(*server) };
                scope.spawn(move || way.transfers(*bytes, *times))
            };
            let threads: Vec<_> = servers.iter().map(one).collect();
            let done = threads.into_iter().map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            done.collect::<Result<_>>().map(Answer::Transfers)
        }),
    }
}

/// The way from here to one server.
struct Way<'a> {
    fs: &'a Fs,
    server: ServerId,
}

impl Way<'_> {
    fn named<T>(&self, outcome: weft_client::Result<T>) -> Result<T> {
        let entry = self.fs.client.map().servers().find(|entry| entry.id == self.server).cloned();
        let name = entry.map_or_else(|| format!("{:?}", self.server), |entry| entry.name);
        outcome.map_err(|error| anyhow!("{name} does not answer: {}", self.fs.why(&error)))
    }

    fn once(&self, data: &[u8]) -> Result<ServerInfo> {
        self.named(self.fs.run(self.fs.client.ping_with(self.server, data)))
    }

    fn point(&self, bytes: u64, span: Duration) -> Result<Point> {
        let data = crate::data::noise(bytes as usize, u64::from(self.server.0));
        let began = self.once(&data)?;
        let mut trips = Vec::new();
        let until = Instant::now() + span;
        let mut ended = began.clone();
        while trips.len() < MESSAGES.0 || (trips.len() < MESSAGES.1 && Instant::now() < until) {
            let sent = Instant::now();
            ended = self.once(&data)?;
            trips.push(us(sent.elapsed()));
        }
        let server_us = ended.cpu_us.saturating_sub(began.cpu_us) as f64 / trips.len() as f64;
        let round_trip_us = median(&mut trips);
        let rounds = MESSAGES.0.max((span.as_micros() as f64 / 4.0 / round_trip_us) as usize).min(MESSAGES.1);
        let pause = Duration::from_micros((2.0 * round_trip_us) as u64 + 50);
        let (mut sends, mut receives) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            let (send, receive) = self.overheads(&data, pause)?;
            sends.push(us(send));
            receives.push(us(receive));
        }
        let count = MESSAGES.0.max((span.as_micros() as f64 / round_trip_us) as usize).min(MESSAGES.1);
        let gap_us = us(self.flood(&data, count)?) / count as f64;
        Ok(Point { bytes, send_us: median(&mut sends), receive_us: median(&mut receives), round_trip_us, server_us, gap_us })
    }

    /// Sends one message, lets its answer arrive, and takes it: how long the first and the last of
    /// these keep this thread.
    fn overheads(&self, data: &[u8], pause: Duration) -> Result<(Duration, Duration)> {
        let (client, rt) = (&self.fs.client, self.fs.client.rt());
        self.named(rt.block_on(async {
            let mut call = pin!(client.ping_with(self.server, data));
            let began = Instant::now();
            let early = poll_fn(|context| Poll::Ready(call.as_mut().poll(context))).await;
            // A thread that waits sends what was collected; this wait is over at once.
            rt.block_on(rt.sleep_until(Nanos(0)));
            let sent = began.elapsed();
            std::thread::sleep(pause);
            let arrived = Instant::now();
            match early {
                Poll::Ready(outcome) => outcome?,
                Poll::Pending => call.await?,
            };
            Ok((sent, arrived.elapsed()))
        }))
    }

    fn flood(&self, data: &[u8], count: usize) -> Result<Duration> {
        let window = WINDOW.min((WINDOW_BYTES / (data.len() as u64).max(1)) as usize).max(2);
        let began = Instant::now();
        let sent = self.fs.run(run_window((0..count).map(|_| self.fs.client.ping_with(self.server, data)), window));
        let took = began.elapsed();
        sent.into_iter().try_for_each(|outcome| self.named(outcome).map(drop))?;
        Ok(took)
    }

    /// Seconds from the end of one transfer to that of the next; one before them is not counted.
    fn transfers(&self, bytes: u64, times: u32) -> Result<Vec<f64>> {
        let data = crate::data::noise(bytes.min(PIECE_BYTES) as usize, u64::from(self.server.0));
        let pieces = bytes.div_ceil(PIECE_BYTES).max(1);
        let piece = |number: u64| &data[..(bytes - number * PIECE_BYTES).min(PIECE_BYTES) as usize];
        let one = || -> Result<f64> {
            let began = Instant::now();
            let flows = (0..pieces).map(|number| self.fs.client.ping_with(self.server, piece(number)));
            self.fs.run(run_window(flows, WINDOW)).into_iter().try_for_each(|outcome| self.named(outcome).map(drop))?;
            Ok(began.elapsed().as_secs_f64())
        };
        one()?;
        (0..times).map(|_| one()).collect()
    }
}

fn us(span: Duration) -> f64 {
    span.as_nanos() as f64 / 1e3
}

/// The upper median; of nothing 0.
pub fn median(samples: &mut [f64]) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples.get(samples.len() / 2).copied().unwrap_or(0.0)
}
