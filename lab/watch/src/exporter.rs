//! Serves `/metrics`: every scrape asks all servers anew, so that what is scraped is true when it
//! is scraped.

use std::net::SocketAddr;

use anyhow::{Context, Result};
use weft_host::connect::Fs;
use weft_host::mount_list;
use weft_host::output::print;
use weft_http::{Answer, Ask};

use crate::metrics;
use crate::watch::ask_once;

/// The text that a scrape gets.
pub fn scrape(fs: &Fs) -> String {
    let servers: Vec<_> = ask_once(fs).into_iter().map(|(entry, answer)| (entry, answer.ok())).collect();
    let map = fs.client.map();
    // Mounts of this user on this machine; where there are none to be found there is nothing to
    // say.
    let mounts = fs.mounts().unwrap_or_default();
    let seen: Vec<_> = mounts.iter().map(|mount| (mount_list::trace_name(&mount.place), mount.errors(map))).collect();
    metrics::text(&map.fs_name, &servers) + &metrics::mounts(&map.fs_name, &seen)
}

/// Serves until it is stopped.
///
/// # Errors
/// If the address cannot be listened on.
pub fn serve(fs: Fs, address: SocketAddr) -> Result<()> {
    let listener = weft_host::listen::listen(address)?;
    let address = listener.local_addr().unwrap_or(address);
    print(&format!("http://{address}/metrics\n"))?;
    let answer = move |ask: &Ask<'_>| match (ask.method, ask.target.split('?').next()) {
        ("GET", Some("/metrics")) => Answer::ok(metrics::CONTENT_TYPE, scrape(&fs)),
        ("GET", _) => Answer::refused(404, "the metrics are at /metrics"),
        _ => Answer::refused(405, "only GET"),
    };
    weft_http::serve(listener, answer).context("the metrics cannot be served any more")
}
