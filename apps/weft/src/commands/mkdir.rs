//! `weft mkdir`: makes directories without a mount.

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::{Result, bail};
use weft_base::{FileKind, Status};
use weft_host::connect::{Common, Fs, open_all, umask};
use weft_host::output::show_name;

/// Make directories without a mount
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  weft mkdir -p ~/fs:/results/2024/run1")]
pub struct Args {
    /// The directories, as FS:/PATH
    #[arg(required = true, value_name = "FS:/PATH")]
    places: Vec<OsString>,
    /// Make missing parents too; no error if it exists
    #[arg(short, long)]
    parents: bool,
    /// Permission bits in octal, instead of 777 less the umask
    #[arg(short, long, value_name = "MODE", value_parser = parse_mode)]
    mode: Option<u32>,
}

impl Args {
    pub fn run(self, common: &Common) -> Result<ExitCode> {
        let usual = 0o777 & !umask();
        let mode = self.mode.unwrap_or(usual);
        let (systems, places) = open_all(&self.places, common)?;
        for (system, path) in &places {
            let fs = &systems[*system];
            if self.parents {
                make_all(fs, path, usual, mode)?;
            } else {
                let (dir, name) = fs.parent(path)?;
                fs.run_at(path, fs.client.mkdir(&fs.who, dir, &name, mode))?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Octal permission bits.
pub fn parse_mode(text: &str) -> Result<u32, String> {
    u32::from_str_radix(text, 8)
        .ok()
        .filter(|mode| *mode <= 0o7777)
        .ok_or_else(|| "write octal permission bits, for example 750".to_string())
}

fn make_all(fs: &Fs, path: &[u8], usual: u32, last: u32) -> Result<()> {
    let ends: Vec<usize> =
        (1..=path.len()).filter(|end| path[end - 1] != b'/' && path.get(*end).is_none_or(|byte| *byte == b'/')).collect();
    for (number, end) in ends.iter().enumerate() {
        let part = &path[..*end];
        let mode = if number + 1 == ends.len() { last } else { usual };
        let (dir, name) = fs.parent(part)?;
        match fs.run(fs.client.mkdir(&fs.who, dir, &name, mode)) {
            Ok(_) => {}
            Err(error) if error.status == Status::Exists => {
                if fs.stat(part, true)?.kind != FileKind::Directory {
                    bail!("{}:{} exists and is no directory", fs.name, show_name(part));
                }
            }
            Err(error) => return Err(fs.explain(part, error)),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::parse_mode;

    #[test]
    fn modes_are_octal() {
        assert_eq!(parse_mode("1750"), Ok(0o1750));
        for bad in ["", "9", "rwx", "17777"] {
            assert!(parse_mode(bad).is_err());
        }
    }
}
