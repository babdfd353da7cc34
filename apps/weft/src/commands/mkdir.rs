//! `weft mkdir`: makes directories without a mount.

use std::ffi::OsString;

use anyhow::{Result, bail};
use weft_base::{FileKind, Handle, Status};
use weft_client::XattrFlags;
use weft_host::connect::{Common, Fs, open_all, umask};
use weft_layout::HintName;

use super::layout::LayoutArgs;

/// Make directories without a mount
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  weft mkdir -p ~/fs:/results/2024/run1
  weft mkdir --stripe-size 64KiB --num-dfiles 2 ~/fs:/small    files made in it have this layout (hints: weft hint show)")]
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
    #[command(flatten)]
    layout: LayoutArgs,
}

impl Args {
    pub fn run(self, common: &Common) -> Result<()> {
        let usual = 0o777 & !umask();
        let mode = self.mode.unwrap_or(usual);
        let places = open_all(&self.places, common)?;
        for (fs, path) in &places {
            self.layout.check(fs)?;
            let made = if self.parents {
                make_all(fs, path, usual, mode)?
            } else {
                let (dir, name) = fs.parent(path)?;
                Some(fs.run_at(path, fs.client.mkdir(&fs.who, dir, &name, mode))?.handle)
            };
            if self.layout.is_empty() {
                continue;
            }
            let Some(handle) = made else {
                bail!("{} exists already; give it hints with weft hint set", fs.shown(path));
            };
            self.give_hints(fs, path, handle)?;
        }
        Ok(())
    }

    /// Gives a new directory the options as hints. What it has inherited about the same goes.
    fn give_hints(&self, fs: &Fs, path: &[u8], dir: Handle) -> Result<()> {
        let names = fs.run_at(path, fs.client.list_xattr(&fs.who, dir))?;
        let hints = names.iter().filter_map(|name| HintName::of_attribute(name).ok().flatten());
        let values = self.layout.values();
        let is_about = |hint: &HintName, given: &HintName| match hint {
            HintName::NoMetafile | HintName::Presplit | HintName::InlineLimit | HintName::Project => false,
            HintName::NumDfiles => *given == HintName::NumDfiles,
            HintName::DistName => true,
            HintName::StripeSize | HintName::DistParams => *given != HintName::NumDfiles,
        };
        for inherited in hints.filter(|hint| values.iter().any(|(given, _)| is_about(hint, given))) {
            fs.run_at(path, fs.client.remove_xattr(&fs.who, dir, inherited.attribute().as_bytes()))?;
        }
        for (name, value) in values {
            let (attribute, flags) = (name.attribute().as_bytes(), XattrFlags::default());
            fs.run_at(path, fs.client.set_xattr(&fs.who, dir, attribute, value.as_bytes(), flags))?;
        }
        Ok(())
    }
}

/// Octal permission bits.
pub fn parse_mode(text: &str) -> Result<u32, String> {
    u32::from_str_radix(text, 8)
        .ok()
        .filter(|mode| *mode <= 0o7777)
        .ok_or_else(|| "write octal permission bits, for example 750".to_string())
}

/// Makes the directory and those above it; `None` if it was there.
fn make_all(fs: &Fs, path: &[u8], usual: u32, last: u32) -> Result<Option<Handle>> {
    let mut made = None;
    let ends: Vec<usize> =
        (1..=path.len()).filter(|end| path[end - 1] != b'/' && path.get(*end).is_none_or(|byte| *byte == b'/')).collect();
    for (number, end) in ends.iter().enumerate() {
        let part = &path[..*end];
        let mode = if number + 1 == ends.len() { last } else { usual };
        let (dir, name) = fs.parent(part)?;
        match fs.run(fs.client.mkdir(&fs.who, dir, &name, mode)) {
            Ok(attr) => made = Some(attr.handle),
            Err(error) if error.status == Status::Exists => {
                made = None;
                if fs.stat(part, true)?.kind != FileKind::Directory {
                    bail!("{} exists and is no directory", fs.shown(part));
                }
            }
            Err(error) => return Err(fs.explain(part, error)),
        }
    }
    Ok(made)
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
