//! What Appendix C of the thesis prints: Kuhn, "Evaluation of I/O optimizations in a cluster
//! simulator" (2009), pages 106 to 116. Times in seconds with every printed digit; for the random
//! and database tests mean and standard deviation of ten runs.

use weft_sched::LayerKind;

use crate::workloads::AccessKind;

/// A printed result.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PrintedLine {
    /// Such as `C.2.1`.
    pub section: &'static str,
    /// Cache layer.
    pub layer: LayerKind,
    /// Bytes of a block.
    pub block_bytes: u64,
    /// Reading or writing.
    pub access: AccessKind,
    /// As printed.
    pub seconds: &'static str,
    /// Standard deviation; empty for a single run.
    pub deviation: &'static str,
}

/// All of Appendix C, in its order.
pub fn appendix_c() -> impl Iterator<Item = PrintedLine> {
    include_str!("appendix_c.txt").lines().filter_map(read)
}

/// Nothing of a comment.
fn read(line: &'static str) -> Option<PrintedLine> {
    let mut words = line.split(' ');
    let section = words.next().filter(|word| *word != "#")?;
    let layer = words.next()?.parse().ok()?;
    let block_bytes = words.next()?.parse().ok()?;
    let access = words.next()?;
    let access = AccessKind::ALL.into_iter().find(|kind| kind.name() == access)?;
    Some(PrintedLine { section, layer, block_bytes, access, seconds: words.next()?, deviation: words.next().unwrap_or_default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_understood() {
        assert_eq!(appendix_c().count(), include_str!("appendix_c.txt").lines().count() - 1);
    }
}
