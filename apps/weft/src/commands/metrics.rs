//! `weft metrics`: the numbers of all servers for a monitoring system.

use std::net::SocketAddr;

use anyhow::Result;
use weft_host::connect::{Common, Fs};
use weft_host::named::NamedFs;
use weft_host::output::print;
use weft_watch::exporter;

/// Serve the numbers of all servers at /metrics, in the text format of Prometheus
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  weft metrics ~/fs                          # http://127.0.0.1:9464/metrics
  weft metrics weft://node1:7000/demo --listen 0.0.0.0:9464 --key-file key
  weft metrics ~/fs --once                   # print them and end

One exporter asks all servers of a file system at every scrape; a silent one delays it by 2 s and has weft_up 0. What it serves are sums and \
no names of files or clients; whoever reaches the address can read it.")]
pub struct Args {
    #[command(flatten)]
    fs: NamedFs,
    /// Address to listen on
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:9464")]
    listen: SocketAddr,
    /// Print the metrics and end
    #[arg(long)]
    once: bool,
}

impl Args {
    pub fn run(self, common: &Common) -> Result<()> {
        let fs = Fs::open(self.fs.text(), &common.for_a_look())?;
        if self.once {
            print(&exporter::scrape(&fs))?;
        } else {
            exporter::serve(fs, self.listen)?;
        }
        Ok(())
    }
}
