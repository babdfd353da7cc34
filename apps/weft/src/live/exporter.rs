//! Serves `/metrics`: every scrape asks all servers anew, so that what is scraped is true when it is scraped.

use std::net::SocketAddr;

use anyhow::{Result, anyhow};

use super::metrics;
use super::watch::ask_once;
use crate::connect::Fs;
use crate::output::print;

/// The text that a scrape gets.
pub fn scrape(fs: &Fs) -> String {
    let servers: Vec<_> = ask_once(fs).into_iter().map(|(entry, answer)| (entry, answer.ok())).collect();
    metrics::text(&fs.client.map().fs_name, &servers)
}

/// Serves until it is stopped.
///
/// # Errors
/// If the address cannot be listened on.
pub fn serve(fs: &Fs, address: SocketAddr) -> Result<()> {
    let server = tiny_http::Server::http(address).map_err(|error| anyhow!("cannot listen on {address}: {error}"))?;
    let address = server.server_addr().to_ip().unwrap_or(address);
    print(&format!("http://{address}/metrics\n"))?;
    for request in server.incoming_requests() {
        let (status, content_type, body) = match (request.method(), request.url().split('?').next()) {
            (tiny_http::Method::Get, Some("/metrics")) => (200, metrics::CONTENT_TYPE, scrape(fs)),
            (tiny_http::Method::Get, _) => (404, "text/plain; charset=utf-8", "the metrics are at /metrics\n".to_string()),
            _ => (405, "text/plain; charset=utf-8", "only GET\n".to_string()),
        };
        let header = tiny_http::Header::from_bytes("Content-Type", content_type).expect("both are ASCII");
        // A scraper that has gone is no event.
        let _ = request.respond(tiny_http::Response::from_string(body).with_status_code(status).with_header(header));
    }
    Ok(())
}
