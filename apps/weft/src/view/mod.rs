//! `weft view`: traces in a browser. It reads trace files ([`run`]), puts their spans on lanes ([`lanes`]) with a pyramid of tiles for each
//! ([`tiles`]), and serves one page over HTTP ([`http`], [`api`]) that works without any outside request. It only reads. `docs/viewer.md`
//! says what the screens show and how they were measured.

mod api;
mod details;
mod http;
mod lanes;
mod latency;
mod live;
mod run;
mod sample;
mod site;
mod table;
mod tiles;
mod window;

use std::ffi::{OsStr, OsString};
use std::io::IsTerminal;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};

use crate::connect::{Common, Fs, random};
use crate::live::watch::Watch;
use crate::output::print;
use http::{Answer, Ask, Door};
use live::Live;
use site::Site;

/// Show traces in a browser: timeline, latencies, where the time goes, single requests
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  weft view traces/                       # every trace file in the directory, on one time line
  weft view meta0.trace data0.trace --port 7070 --no-open
  weft view traces/ --listen 0.0.0.0      # for other machines; prints an address with a token
  weft view --live /tmp/weft              # what the servers of a running file system do now; /metrics too")]
pub struct Args {
    /// Trace files, or directories with trace files
    #[arg(required_unless_present = "live", value_name = "FILE|DIR")]
    paths: Vec<PathBuf>,
    /// Show live numbers of this file system
    #[arg(long, value_name = "FS")]
    live: Option<OsString>,
    /// Seconds between two looks at it
    #[arg(long, value_name = "S", default_value_t = 1.0, value_parser = crate::commands::top::seconds, requires = "live")]
    interval: f64,
    /// Port; 0: any free one
    #[arg(long, value_name = "N", default_value_t = 0)]
    port: u16,
    /// Address to listen on; beyond this machine a token is asked for
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1")]
    listen: IpAddr,
    /// Do not open a browser
    #[arg(long)]
    no_open: bool,
    /// Ask for a token on this machine too
    #[arg(long)]
    token: bool,
    /// Do not view anything, but write a synthetic trace of about so many spans into the directory
    #[arg(long, value_name = "SPANS", hide = true)]
    sample: Option<u64>,
}

/// Threads that answer: a browser opens up to six connections.
const THREADS: usize = 6;

impl Args {
    /// Serves until it is stopped.
    ///
    /// # Errors
    /// If the address cannot be listened on, or a path does not exist.
    pub fn run(self, common: &Common) -> Result<ExitCode> {
        if let Some(spans) = self.sample {
            return write_sample(spans, &self.paths);
        }
        for path in &self.paths {
            path.metadata().with_context(|| format!("cannot open {}", path.display()))?;
        }
        let live = self.live.as_ref().map(|fs| self.watch(fs, common)).transpose()?;
        let loopback = self.listen.is_loopback();
        let token = if loopback && !self.token { None } else { Some(hex(&random::<16>()?)) };
        let address = SocketAddr::new(self.listen, self.port);
        let server = tiny_http::Server::http(address).map_err(|error| anyhow!("cannot listen on {address}: {error}"))?;
        let address = server.server_addr().to_ip().unwrap_or(address);
        let hostname = nix::sys::utsname::uname().map(|names| names.nodename().to_string_lossy().into_owned()).unwrap_or_default();
        let url = url(address, &hostname, token.as_deref());
        print(&format!("{url}\n"))?;
        let site = Arc::new(Site::default());
        let (loader, paths) = (site.clone(), self.paths.clone());
        if !paths.is_empty() {
            thread::spawn(move || {
                loader.load(&paths);
                if let site::State::Failed(reason) = loader.state() {
                    eprintln!("weft: {reason}");
                }
            });
        }
        if !self.no_open && std::io::stdout().is_terminal() {
            open(&url);
        }
        let server = Arc::new(server);
        let door = Arc::new(Door { loopback, hostname, token });
        let shown = Arc::new(Shown { site, live });
        let workers = (0..THREADS).map(|_| {
            let (server, door, shown) = (server.clone(), door.clone(), shown.clone());
            thread::spawn(move || serve(&server, &door, &shown))
        });
        for worker in workers.collect::<Vec<_>>() {
            worker.join().map_err(|_| anyhow!("a thread of the viewer ended by itself"))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Args {
    fn watch(&self, fs: &OsStr, common: &Common) -> Result<Live> {
        let fs = Fs::open(fs, &common.for_a_look())?;
        Ok(Live { watch: Watch::start(fs, Duration::from_secs_f64(self.interval)), has_traces: !self.paths.is_empty() })
    }
}

/// What there is to see.
struct Shown {
    site: Arc<Site>,
    live: Option<Live>,
}

impl Shown {
    fn route(&self, path: &str, query: &api::Query) -> Answer {
        let Some(live) = &self.live else { return api::route(&self.site, path, query) };
        if let Some(answer) = live.route(path, query) {
            return answer;
        }
        let mut answer = api::route(&self.site, path, query);
        if path == "/" {
            answer.body = live::linked(&String::from_utf8_lossy(&answer.body)).into_bytes();
        }
        answer
    }
}

/// Answers requests, one after another.
fn serve(server: &tiny_http::Server, door: &Door, shown: &Shown) {
    for request in server.incoming_requests() {
        let header =
            |name: &'static str| request.headers().iter().find(|header| header.field.equiv(name)).map(|header| header.value.as_str());
        let ask = Ask { method: request.method().as_str(), target: request.url(), host: header("Host"), cookie: header("Cookie") };
        let answer = http::answer_by(door, &ask, |path, query| shown.route(path, query));
        let mut response = tiny_http::Response::from_data(Vec::new()).with_status_code(answer.status);
        for (name, value) in answer.all_headers() {
            if let Ok(header) = tiny_http::Header::from_bytes(name.as_bytes(), value.as_bytes()) {
                response.add_header(header);
            }
        }
        let length = answer.body.len();
        let response = response.with_data(std::io::Cursor::new(answer.body), Some(length)).with_chunked_threshold(usize::MAX);
        // A browser that went away in the middle of an answer is no event.
        let _ = request.respond(response);
    }
}

fn url(address: SocketAddr, hostname: &str, token: Option<&str>) -> String {
    let host = match address.ip() {
        ip if ip.is_unspecified() => hostname.to_string(),
        IpAddr::V6(ip) => format!("[{ip}]"),
        ip => ip.to_string(),
    };
    let token = token.map_or_else(String::new, |token| format!("?token={token}"));
    format!("http://{host}:{}/{token}", address.port())
}

/// Asks the desktop to show the page; where there is none, the printed address is enough.
fn open(url: &str) {
    let opener = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    let _ = Command::new(opener).arg(url).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
}

fn write_sample(spans: u64, paths: &[PathBuf]) -> Result<ExitCode> {
    let operations = (spans as f64 / sample::SPANS_PER_OPERATION).ceil() as u64;
    for path in paths {
        let spans = sample::write(&sample::Sample { operations, ..sample::Sample::default() }, path)
            .with_context(|| format!("cannot write the sample to {}", path.display()))?;
        print(&format!("{spans} spans in {}\n", path.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_printed_address_can_be_opened() {
        let at = |text: &str| text.parse::<SocketAddr>().unwrap();
        assert_eq!(url(at("127.0.0.1:70"), "boron", None), "http://127.0.0.1:70/");
        assert_eq!(url(at("[::1]:70"), "boron", Some("ab")), "http://[::1]:70/?token=ab");
        assert_eq!(url(at("0.0.0.0:70"), "boron", Some("ab")), "http://boron:70/?token=ab");
    }
}
