//! `weft view`: traces in a browser. It loads runs (`weft-analysis`) and serves one page over HTTP
//! (`api`) that works without any outside request. It only reads, and never computes what a
//! report would want too. `docs/viewer.md` says what the screens show and how they were measured.
// A full disk or a reader who has gone must not end a process, and these macros panic then: see
// `write_line` of `weft-rt-real`.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod api;
mod gauges;
mod live;
mod overview;
mod query;
#[cfg(test)]
#[path = "../../analysis/tests/sample/mod.rs"]
mod sample;
mod search;
mod site;

use std::ffi::{OsStr, OsString};
use std::io::IsTerminal;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use serde_json::json;
use weft_analysis::{drawn, inputs};
use weft_host::connect::{Common, Fs, random};
use weft_host::hosts::machine_name;
use weft_host::output::print;
use weft_host::parallel;
use weft_http::{Answer, Ask, Door, Query};
use weft_watch::watch::Watch;

use site::Site;

/// Show runs in a browser: timeline, latencies, where the time goes, single requests, one run
/// against another
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  weft view traces/                       # every trace file in the directory, on one time line
  weft view meta0.trace data0.trace --port 7070 --no-open
  weft view before/ after/                # two runs, to compare them
  weft view real=run.proj simulated=case0   # a project of HDTrace (2009) beside a simulation of it
  weft view real=traces/ model=sim.trace  # with names; paths of one name are one run
  weft view before.json after.json progress.csv ceiling.json   # results of weft bench
  weft view traces/ --listen 0.0.0.0      # for other machines
  weft view --live ~/fs                   # what the servers of a running file system do now; /metrics too

It prints an address with a token; without it nobody sees anything, other users of this machine neither.")]
pub struct Args {
    /// Traces, projects of HDTrace and results of weft bench: each directory and project is a run,
    /// single trace files together are one
    #[arg(required_unless_present = "live", value_name = "[NAME=]FILE|DIR")]
    paths: Vec<PathBuf>,
    /// Show live numbers of this file system
    #[arg(long, value_name = "FS")]
    live: Option<OsString>,
    /// Seconds between two looks at it
    #[arg(long, value_name = "S", default_value_t = 1.0, value_parser = weft_host::units::seconds(0.1, 3600.0), requires = "live")]
    interval: f64,
    /// Port; 0: any free one
    #[arg(long, value_name = "N", default_value_t = 0)]
    port: u16,
    /// Address to listen on
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1")]
    listen: IpAddr,
    /// Do not open a browser
    #[arg(long)]
    no_open: bool,
    /// Ask for no token: every user of this machine may see what is shown
    #[arg(long)]
    no_token: bool,
}

impl Args {
    /// Serves until it is stopped.
    ///
    /// # Errors
    /// If the address cannot be listened on, a path does not exist, or nothing can be read and
    /// there is nothing else to show.
    pub fn run(self, common: &Common) -> Result<()> {
        let watch = self.live.as_ref().map(|fs| self.watch(fs, common)).transpose()?;
        let inputs = inputs::inputs(&self.paths)?;
        let loopback = self.listen.is_loopback();
        if self.no_token && !loopback {
            bail!("--no-token is for viewers of this machine only; without --listen it is one");
        }
        let token = if self.no_token { None } else { Some(weft_host::units::hex(&random::<16>()?)) };
        let address = SocketAddr::new(self.listen, self.port);
        let listener = weft_host::listen::listen(address)?;
        let address = listener.local_addr().unwrap_or(address);
        let hostname = machine_name();
        let url = url(address, &hostname, token.as_deref());
        print(&format!("{url}\n"))?;
        let site = Arc::new(Site::new(inputs));
        if !self.no_open && std::io::stdout().is_terminal() {
            open(&url);
        }
        let door = Door { loopback, hostname, token };
        let is_live = watch.is_some();
        let shown = Shown { site: site.clone(), has_traces: !self.paths.is_empty(), watch };
        let answer = move |ask: &Ask<'_>| weft_http::answer(&door, ask, |path, query| shown.route(path, query));
        let server = parallel::start(move || weft_http::serve(listener, answer).context("the viewer cannot be reached any more"))?;
        if !self.paths.is_empty() {
            site.load();
            if let site::State::Failed(reason) = site.state() {
                // A page without anything would be served for ever.
                if !is_live {
                    bail!(reason);
                }
                weft_host::output::tell(&reason);
            }
        }
        server.join().map_err(|_| anyhow!("the viewer ended early"))??;
        Ok(())
    }
}

impl Args {
    fn watch(&self, fs: &OsStr, common: &Common) -> Result<Watch> {
        let fs = Fs::open(fs, &common.for_a_look())?;
        Watch::start(fs, Duration::from_secs_f64(self.interval))
    }
}

/// What there is to see.
struct Shown {
    site: Arc<Site>,
    has_traces: bool,
    watch: Option<Watch>,
}

impl Shown {
    fn route(&self, path: &str, query: &Query) -> Answer {
        if path == "/api/state" {
            // Live numbers need no trace: without any there is nothing to wait for.
            let mut state = if self.has_traces { api::state(&self.site, query) } else { json!({ "state": "ready", "analysed": true }) };
            (state["live"], state["traces"], state["looks"]) = (json!(self.watch.is_some()), json!(self.has_traces), drawn::looks());
            return Answer::json(&state);
        }
        let live = self.watch.as_ref().and_then(|watch| live::route(watch, path, query));
        live.unwrap_or_else(|| api::route(&self.site, path, query))
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
