//! What new files and directories shall have of their own: stripes, datafiles, distribution.

use anyhow::{Result, anyhow, bail};
use weft_client::CreateOptions;
use weft_host::config::parse_stripe_size;
use weft_host::connect::Fs;
use weft_layout::{DistName, HintName, Hints, WIDTH_MAX};

/// Options of commands that make files or directories.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Layout, instead of what the directory says")]
pub struct LayoutArgs {
    /// Bytes of a stripe, a power of two from 4KiB to 64MiB
    #[arg(long, value_name = "SIZE", value_parser = parse_stripe_size)]
    stripe_size: Option<u32>,
    /// Datafiles of a file, as far as there are data servers
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=WIDTH_MAX as i64))]
    num_dfiles: Option<u16>,
    /// Distribution: simple_stripe, basic (one datafile) or varstrip (strips of different sizes)
    #[arg(long, value_name = "NAME")]
    dist: Option<String>,
    /// Strips of varstrip, as strips:DATAFILE:SIZE;...; datafile N is on the Nth data server
    #[arg(long, value_name = "STRIPS")]
    dist_params: Option<String>,
}

impl LayoutArgs {
    /// True if nothing was said.
    pub fn is_empty(&self) -> bool {
        self.values().is_empty()
    }

    /// The options as hints with their values, in the order in which a directory takes them.
    pub fn values(&self) -> Vec<(HintName, String)> {
        let number = |number: u32| number.to_string();
        let implied = self.dist_params.as_ref().filter(|params| params.starts_with("strips:")).map(|_| "varstrip".to_string());
        let given = [
            (HintName::StripeSize, self.stripe_size.map(number)),
            (HintName::NumDfiles, self.num_dfiles.map(|width| number(width.into()))),
            (HintName::DistParams, self.dist_params.clone()),
            (HintName::DistName, self.dist.clone().or(implied)),
        ];
        given.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
    }

    /// Says what is wrong with the options before a server is asked.
    ///
    /// # Errors
    /// What has no meaning, contradicts itself, or needs more data servers than there are.
    pub fn check(&self, fs: &Fs) -> Result<Hints> {
        let mut hints = Hints::default();
        for (name, value) in self.values() {
            hints.set(name, value.as_bytes()).map_err(|why| anyhow!("{value:?}: {why}"))?;
        }
        hints.check().map_err(|why| anyhow!("{why}"))?;
        if hints.distribution == Some(DistName::Varstrip) && hints.strips.is_none() {
            bail!("--dist varstrip needs --dist-params strips:DATAFILE:SIZE;DATAFILE:SIZE...");
        }
        check_servers(&hints, fs)?;
        Ok(hints)
    }

    /// How a file is made with these options.
    ///
    /// # Errors
    /// As [`LayoutArgs::check`].
    pub fn of_file(&self, fs: &Fs) -> Result<CreateOptions> {
        let hints = self.check(fs)?;
        let stripe_bytes = hints.stripe_bytes.or(hints.strip_bytes).unwrap_or(0);
        let stripe_width = match hints.distribution {
            Some(DistName::Basic) => 1,
            // Against a directory with another distribution.
            Some(DistName::SimpleStripe) => hints.width.unwrap_or(WIDTH_MAX),
            _ => hints.width.unwrap_or(0),
        };
        let strips = hints.strips().cloned().map(std::sync::Arc::new);
        Ok(CreateOptions { stripe_bytes, stripe_width, strips, ..CreateOptions::default() })
    }
}

/// Says that strips name more data servers than there are.
///
/// # Errors
/// Just that.
pub fn check_servers(hints: &Hints, fs: &Fs) -> Result<()> {
    let (there, named) = (fs.client.map().data.len(), hints.strips.as_ref().map_or(0, |strips| strips.width().into()));
    if named > there {
        bail!("the strips name {named} datafiles, and {} has {there} data servers", fs.name);
    }
    Ok(())
}
