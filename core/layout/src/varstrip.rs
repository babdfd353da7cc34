//! The distribution `varstrip` of PVFS2: a list of strips, each a datafile and a number of bytes,
//! is repeated over the file. Strips of one datafile lie one behind the other in it.

use std::fmt;

use crate::hints::decimal;
use crate::{BadHint, STRIPE_BYTES_MAX, STRIPE_BYTES_MIN};

/// Most strips of a list.
pub const STRIPS_MAX: usize = 256;

/// How the text of a list begins.
const PREFIX: &str = "strips:";

/// A list of strips, as `strips:0:65536;1:131072` says it: datafile and bytes of each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Strips {
    strips: Vec<Strip>,
    /// Bytes of each datafile in one round over the list.
    shares: Vec<u64>,
    /// Bytes of the file in one round.
    round_bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Strip {
    datafile: u16,
    bytes: u64,
    /// Where it begins in its round.
    start: u64,
    /// Where it begins in the share of its datafile.
    local: u64,
}

/// A place in a datafile from which on bytes lie in one piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) datafile: u32,
    pub(crate) local_offset: u64,
    /// Bytes to the end of the strip, at least 1.
    pub(crate) bytes: u64,
}

impl Strips {
    /// Reads a list. Each strip has 4 KiB to 64 MiB, with `K` or `M` behind the number in units of
    /// these; datafiles are numbered from 0 without gaps.
    ///
    /// # Errors
    /// [`BadHint::Strips`].
    pub fn parse(text: &str) -> Result<Strips, BadHint> {
        let list = text.strip_prefix(PREFIX).ok_or(BadHint::Strips)?;
        let strips = list.split(';').filter(|strip| !strip.trim().is_empty()).map(parse_strip);
        Strips::of(&strips.collect::<Option<Vec<_>>>().ok_or(BadHint::Strips)?)
    }

    /// A list of datafiles and bytes.
    fn of(list: &[(u16, u32)]) -> Result<Strips, BadHint> {
        let width = list.iter().map(|(datafile, _)| usize::from(*datafile) + 1).max().unwrap_or(0);
        let sizes = u64::from(STRIPE_BYTES_MIN)..=u64::from(STRIPE_BYTES_MAX);
        if list.is_empty()
            || list.len() > STRIPS_MAX
            || width > list.len()
            || list.iter().any(|(_, bytes)| !sizes.contains(&u64::from(*bytes)))
        {
            return Err(BadHint::Strips);
        }
        let strips = Strips::build(list, width);
        if strips.shares.contains(&0) { Err(BadHint::Strips) } else { Ok(strips) }
    }

    fn build(list: &[(u16, u32)], width: usize) -> Strips {
        let mut built = Strips { strips: Vec::with_capacity(list.len()), shares: vec![0; width], round_bytes: 0 };
        for (datafile, bytes) in list {
            let (share, bytes) = (&mut built.shares[usize::from(*datafile)], u64::from(*bytes));
            built.strips.push(Strip { datafile: *datafile, bytes, start: built.round_bytes, local: *share });
            *share += bytes;
            built.round_bytes += bytes;
        }
        built
    }

    /// Number of datafiles.
    pub fn width(&self) -> u16 {
        self.shares.len() as u16
    }

    /// Where a byte of the file lies.
    pub(crate) fn place(&self, offset: u64) -> Place {
        let (round, within) = (offset / self.round_bytes, offset % self.round_bytes);
        let strip = &self.strips[self.strips.partition_point(|strip| strip.start <= within) - 1];
        let into = within - strip.start;
        let local_offset = round * self.share(strip.datafile) + strip.local + into;
        Place { datafile: strip.datafile.into(), local_offset, bytes: strip.bytes - into }
    }

    /// See [`local_bytes`](crate::local_bytes).
    pub(crate) fn local_bytes(&self, datafile: u32, file_bytes: u64) -> u64 {
        let (rounds, rest) = (file_bytes / self.round_bytes, file_bytes % self.round_bytes);
        let of_rest = |strip: &Strip| rest.saturating_sub(strip.start).min(strip.bytes);
        let share = self.shares.get(datafile as usize).copied().unwrap_or(0);
        rounds * share + self.of_datafile(datafile).map(of_rest).sum::<u64>()
    }

    /// Where the end of a datafile of `local` bytes lies in the file.
    pub(crate) fn end_in_file(&self, datafile: u64, local: u64) -> u64 {
        let (Some(last), Some(share)) = (local.checked_sub(1), self.shares.get(datafile as usize)) else { return 0 };
        let (round, within) = (last / share, last % share);
        let holds = |strip: &&Strip| (strip.local..strip.local + strip.bytes).contains(&within);
        let strip = self.of_datafile(datafile as u32).find(holds).expect("the strips of a datafile are its share");
        let end = u128::from(round) * u128::from(self.round_bytes) + u128::from(strip.start + within - strip.local + 1);
        u64::try_from(end).unwrap_or(u64::MAX)
    }

    fn of_datafile(&self, datafile: u32) -> impl Iterator<Item = &Strip> {
        self.strips.iter().filter(move |strip| u32::from(strip.datafile) == datafile)
    }

    fn share(&self, datafile: u16) -> u64 {
        self.shares[usize::from(datafile)]
    }
}

/// As [`Strips::parse`] reads it, sizes in bytes.
impl fmt::Display for Strips {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(PREFIX)?;
        for (number, strip) in self.strips.iter().enumerate() {
            let between = if number == 0 { "" } else { ";" };
            write!(f, "{between}{}:{}", strip.datafile, strip.bytes)?;
        }
        Ok(())
    }
}

fn parse_strip(text: &str) -> Option<(u16, u32)> {
    let (datafile, size) = text.trim().split_once(':')?;
    let (number, unit) = match size.strip_suffix(['k', 'K']) {
        Some(number) => (number, 1 << 10),
        None => size.strip_suffix(['m', 'M']).map_or((size, 1), |number| (number, 1 << 20)),
    };
    Some((decimal(datafile)?.try_into().ok()?, decimal(number)?.checked_mul(unit)?))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Lists of strips far below what is allowed, so that byte-by-byte models stay small. Every
    /// datafile has a strip.
    pub(crate) fn tiny_strips() -> impl Strategy<Value = Vec<(u16, u32)>> {
        (1u16..5, proptest::collection::vec((0u16..5, 1u32..9), 0..6)).prop_map(|(width, more)| {
            let one_each = (0..width).map(|datafile| (datafile, u32::from(datafile) * 3 % 7 + 1));
            let mut list: Vec<_> = more.into_iter().map(|(datafile, bytes)| (datafile % width, bytes)).collect();
            let middle = list.len() / 2;
            list.splice(middle..middle, one_each);
            list
        })
    }

    pub(crate) fn tiny(list: &[(u16, u32)]) -> Strips {
        let width = list.iter().map(|(datafile, _)| usize::from(*datafile) + 1).max().unwrap();
        Strips::build(list, width)
    }

    /// The definition, one byte at a time: every byte of the file is the next one of the datafile
    /// of its strip.
    pub(crate) fn places(list: &[(u16, u32)], file_bytes: u64) -> Vec<(u32, u64)> {
        let mut ends = [0u64; 8];
        let bytes = list.iter().cycle().flat_map(|(datafile, bytes)| std::iter::repeat_n(*datafile, *bytes as usize));
        let next = |datafile: u16| {
            let end = &mut ends[usize::from(datafile)];
            *end += 1;
            (u32::from(datafile), *end - 1)
        };
        bytes.take(file_bytes as usize).map(next).collect()
    }

    #[test]
    fn lists_are_read_and_written() {
        let strips = Strips::parse("strips:0:64K;1:131072;0:1M").unwrap();
        assert_eq!(strips.to_string(), "strips:0:65536;1:131072;0:1048576");
        assert_eq!(Strips::parse(&strips.to_string()), Ok(strips.clone()));
        assert_eq!((strips.width(), strips.round_bytes), (2, 65536 + 131072 + (1 << 20)));
        assert_eq!(Strips::parse("strips:0:4096; 1:4096;").map(|strips| strips.width()), Ok(2), "as PVFS2 takes it");
        let many = |count: usize| format!("strips:{}", (0..count).map(|index| format!("{index}:4096")).collect::<Vec<_>>().join(";"));
        assert_eq!(Strips::parse(&many(STRIPS_MAX)).map(|strips| strips.width()), Ok(256));
        for bad in [
            "",
            "strips:",
            "0:65536",
            "strips:0",
            "strips:0:0",
            "strips:0:4095",
            "strips:0:65M",
            "strips:0:9999999M",
            "strips:1:65536",
            "strips:0:65536;2:65536",
            "strips:0:65536;x:65536",
            "strips:-1:65536",
            "strips:0:65536;99999:65536",
            &many(STRIPS_MAX + 1),
        ] {
            assert_eq!(Strips::parse(bad), Err(BadHint::Strips), "{bad}");
        }
    }

    #[test]
    fn the_largest_numbers_do_not_overflow() {
        let list: Vec<(u16, u32)> = (0..STRIPS_MAX as u16).map(|index| (index, STRIPE_BYTES_MAX)).collect();
        let strips = Strips::of(&list).unwrap();
        assert_eq!(strips.end_in_file(255, u64::MAX), u64::MAX);
        let end = strips.place(u64::MAX);
        assert!(end.bytes >= 1 && end.local_offset < u64::MAX / 200);
        let lengths = (0..256).map(|index| strips.local_bytes(index, crate::FILE_BYTES_MAX));
        let ends = lengths.zip(0..).map(|(local, index)| strips.end_in_file(index, local));
        assert_eq!(ends.max(), Some(crate::FILE_BYTES_MAX));
    }

    proptest! {
        #[test]
        fn places_agree_with_the_byte_model(list in tiny_strips(), size in 1u64..300) {
            let strips = tiny(&list);
            for (byte, expected) in places(&list, size).into_iter().enumerate() {
                let place = strips.place(byte as u64);
                prop_assert_eq!((place.datafile, place.local_offset), expected);
            }
        }
    }
}
