//! Delays at fault points of this process, for laboratories: `WEFT_FAULT` says where and how long
//! (`docs/trace.md`). A file system has to allow it in its config, so that a variable that somebody
//! has left in an environment slows nothing down that matters.

use anyhow::{Result, anyhow, bail};
use weft_rt::Delays;

use crate::config::Config;

/// Environment variable with the delays.
const VARIABLE: &str = "WEFT_FAULT";

/// Holds this process up as the environment says; `own` is the name of the server, or `client`.
///
/// # Errors
/// A setting that makes no sense, or a file system that does not allow it.
pub fn begin(own: &str, config: Option<&Config>) -> Result<()> {
    let Some(text) = std::env::var(VARIABLE).ok().filter(|text| !text.is_empty()) else { return Ok(()) };
    match config {
        Some(config) if config.allow_faults => {}
        Some(config) => bail!(
            "{VARIABLE} is set, and this file system is no laboratory: unset it, or put allow_faults = true into [fs] of {} (weft up \
             --allow-faults does that for a new one)",
            config.file.display()
        ),
        None => bail!("{VARIABLE} is set, and only a config can allow that: unset it, or name the file system by its config"),
    }
    let delays = Delays::parse(&text, own).map_err(|problem| anyhow!("{VARIABLE}: {problem}"))?;
    if delays != Delays::NONE {
        crate::output::tell_at(weft_rt_real::Level::Warn, own, &format!("a laboratory holds this process up: {VARIABLE}={text}"));
    }
    weft_rt_real::set_delays(&delays);
    Ok(())
}
