//! `weft cat`: writes files to standard output without a mount.

use std::ffi::OsString;
use std::io::Write;

use anyhow::{Context, Result};
use weft_host::connect::{Common, Fs, open_all};
use weft_wire::Rights;

/// Bytes of one read.
const BLOCK_BYTES: u64 = 4 << 20;

/// Write files to standard output without a mount
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  weft cat ~/fs:/results/log.txt | less")]
pub struct Args {
    /// The files, as FS:/PATH
    #[arg(required = true, value_name = "FS:/PATH")]
    places: Vec<OsString>,
}

impl Args {
    pub fn run(self, common: &Common) -> Result<()> {
        let places = open_all(&self.places, common)?;
        for (fs, path) in &places {
            write_out(fs, path)?;
        }
        Ok(())
    }
}

fn write_out(fs: &Fs, path: &[u8]) -> Result<()> {
    let attr = fs.stat(path, true)?;
    let (_, file) = fs.run_at(path, fs.client.open(&fs.who, attr.handle, Rights::READ, false))?;
    let copied = (|| {
        let mut out = std::io::stdout().lock();
        let mut offset = 0;
        loop {
            let pieces = fs.run_at(path, fs.client.read(&file, offset, BLOCK_BYTES))?;
            let bytes: u64 = pieces.iter().map(|piece| piece.len()).sum();
            for piece in &pieces {
                out.write_all(&piece.to_bytes()).context("standard output")?;
            }
            offset += bytes;
            if bytes < BLOCK_BYTES {
                return out.flush().context("standard output");
            }
        }
    })();
    fs.run_at(path, fs.client.close(file))?;
    copied
}
