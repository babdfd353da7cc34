//! Directory hints: what a directory says about the files that are made in it (Kuhn 2007, section
//! 3.1.3). On the wire and in the store they are extended attributes of the directory; their names
//! begin with [`HINT_PREFIX`], or with that of PVFS2 ([`HINT_PREFIX_PVFS2`]), which means the same.

use std::fmt;

use weft_base::{Layout, PROJECT_ATTRIBUTE};

use crate::{STRIPE_BYTES_MAX, STRIPE_BYTES_MIN, Strips, WIDTH_MAX};

/// How the attributes begin whose names are hints.
pub const HINT_PREFIX: &str = "user.weft.";
/// How the names of PVFS2 for the same hints begin.
pub const HINT_PREFIX_PVFS2: &str = "user.pvfs2.";

/// The hints, by their names without a prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum HintName {
    /// `dist_name`: how files are cut.
    DistName,
    /// `dist_params`: `strip_size:BYTES`, the stripe size as PVFS2 says it, or the strips of
    /// `varstrip` ([`Strips`]).
    DistParams,
    /// `num_dfiles`: datafiles of a file.
    NumDfiles,
    /// `stripe_size`: bytes of a stripe.
    StripeSize,
    /// `no_metafile`: files without attributes of their own (section 3.2).
    NoMetafile,
    /// `presplit`: over how many metadata servers the names of a new directory are spread.
    Presplit,
    /// `inline_limit`: the largest file that lies on the server of its inode.
    InlineLimit,
    /// `project`: for which project counts what is in it. Only root says it.
    Project,
}

impl HintName {
    /// All of them.
    pub const ALL: [HintName; 8] = [
        HintName::DistName,
        HintName::DistParams,
        HintName::NumDfiles,
        HintName::StripeSize,
        HintName::NoMetafile,
        HintName::Presplit,
        HintName::InlineLimit,
        HintName::Project,
    ];

    /// Without a prefix.
    pub fn short(self) -> &'static str {
        match self {
            HintName::DistName => "dist_name",
            HintName::DistParams => "dist_params",
            HintName::NumDfiles => "num_dfiles",
            HintName::StripeSize => "stripe_size",
            HintName::NoMetafile => "no_metafile",
            HintName::Presplit => "presplit",
            HintName::InlineLimit => "inline_limit",
            HintName::Project => "project",
        }
    }

    /// The name of the attribute that holds it.
    pub fn attribute(self) -> &'static str {
        match self {
            HintName::DistName => "user.weft.dist_name",
            HintName::DistParams => "user.weft.dist_params",
            HintName::NumDfiles => "user.weft.num_dfiles",
            HintName::StripeSize => "user.weft.stripe_size",
            HintName::NoMetafile => "user.weft.no_metafile",
            HintName::Presplit => "user.weft.presplit",
            HintName::InlineLimit => "user.weft.inline_limit",
            HintName::Project => PROJECT_ATTRIBUTE,
        }
    }

    /// The hint of an attribute, by either name; `None`: its name is kept for hints, but this is
    /// none.
    ///
    /// # Errors
    /// [`NoHint`]: an attribute like any other.
    pub fn of_attribute(name: &[u8]) -> Result<Option<HintName>, NoHint> {
        let short = [HINT_PREFIX, HINT_PREFIX_PVFS2].iter().find_map(|prefix| name.strip_prefix(prefix.as_bytes())).ok_or(NoHint)?;
        Ok(HintName::ALL.into_iter().find(|hint| hint.short().as_bytes() == short))
    }
}

/// The name of an attribute is not among those that are kept for hints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoHint;

/// Why the value of a hint is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadHint {
    /// No distribution that Weft has.
    Distribution,
    /// Not of the form `strip_size:BYTES`.
    Parameters,
    /// No list of strips.
    Strips,
    /// `dist_params` holds what another distribution than that of `dist_name` takes.
    ParametersOfAnother,
    /// No power of two from 4 KiB to 64 MiB.
    StripeSize,
    /// No number of datafiles from 1 to 4096.
    Datafiles,
    /// No whole number from 0.
    NoMetafile,
    /// Neither `all` nor a number of servers from 1 to 4096.
    Presplit,
    /// No number of bytes from 0 to 16384.
    InlineLimit,
    /// No number from 1 to 4294967295.
    Project,
    /// `stripe_size` and `dist_params` name different sizes.
    TwoStripeSizes,
    /// `dist_name` says `basic` and `num_dfiles` more than 1.
    BasicHasOneDatafile,
}

impl fmt::Display for BadHint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            BadHint::Distribution => "dist_name is simple_stripe, basic or varstrip",
            BadHint::Parameters => {
                "dist_params is strip_size:BYTES, a power of two from 4096 to 67108864, or strips:DATAFILE:BYTES;DATAFILE:BYTES... for varstrip"
            }
            BadHint::Strips => {
                "strips are strips:DATAFILE:BYTES;DATAFILE:BYTES..., at most 256, each of 4K to 64M, and datafiles count from 0 without gaps"
            }
            BadHint::ParametersOfAnother => "strips are for the distribution varstrip, and strip_size for the others: clear dist_name or dist_params first",
            BadHint::StripeSize => "stripe_size is a power of two from 4096 to 67108864 (bytes)",
            BadHint::Datafiles => "num_dfiles is a number from 1 to 4096",
            BadHint::NoMetafile => "no_metafile is 1 (on) or 0 (off)",
            BadHint::Presplit => "presplit is a number of metadata servers from 1 to 4096, or all",
            BadHint::InlineLimit => "inline_limit is a number of bytes from 0 (off) to 16384",
            BadHint::Project => "project is a number from 1 to 4294967295",
            BadHint::TwoStripeSizes => "stripe_size and dist_params name different sizes: clear one of them first",
            BadHint::BasicHasOneDatafile => "files of the distribution basic have one datafile, and num_dfiles says more",
        })
    }
}

/// The values of `dist_name`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DistName {
    /// Stripes of equal size go round the datafiles.
    SimpleStripe,
    /// All of a file lies in one datafile.
    Basic,
    /// A list of strips is repeated over the file.
    Varstrip,
}

/// The hints of a directory.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Hints {
    /// `dist_name`.
    pub distribution: Option<DistName>,
    /// `dist_params`: bytes of a stripe.
    pub strip_bytes: Option<u32>,
    /// `dist_params`: a list of strips.
    pub strips: Option<Strips>,
    /// `stripe_size`: bytes of a stripe.
    pub stripe_bytes: Option<u32>,
    /// `num_dfiles`.
    pub width: Option<u16>,
    /// `no_metafile`, if it is on.
    pub no_metafile: bool,
    /// `presplit`: a number of servers; `all` is [`PRESPLIT_MAX`].
    pub presplit: Option<u16>,
    /// `inline_limit` in bytes; 0: off, whatever the file system has.
    pub inline_limit: Option<u32>,
    /// `project`; 0: none.
    pub project: u32,
}

/// Most servers over which the names of one directory are spread.
pub const PRESPLIT_MAX: u16 = 4096;

/// The largest value of `inline_limit`, in bytes.
pub const INLINE_BYTES_MAX: u32 = 16 << 10;
/// Files up to so many bytes lie beside their inodes in a new file system, unless it is made with
/// another limit.
pub const INLINE_BYTES_DEFAULT: u32 = 8 << 10;

impl Hints {
    /// Takes the value of an attribute in, as programs give it: text, perhaps with a NUL behind it
    /// (as `pvfs2-xattr` sends).
    ///
    /// # Errors
    /// Why it has no meaning; then nothing is changed.
    pub fn set(&mut self, name: HintName, value: &[u8]) -> Result<(), BadHint> {
        let text = text(value);
        match name {
            HintName::DistName => {
                self.distribution = Some(match text {
                    "simple_stripe" => DistName::SimpleStripe,
                    "basic" | "basic_dist" => DistName::Basic,
                    "varstrip" | "varstrip_dist" => DistName::Varstrip,
                    _ => return Err(BadHint::Distribution),
                });
            }
            HintName::DistParams => {
                (self.strip_bytes, self.strips) = if text.starts_with("strips:") {
                    (None, Some(Strips::parse(text)?))
                } else {
                    let bytes = text.strip_prefix("strip_size:").and_then(stripe_bytes);
                    (Some(bytes.ok_or(BadHint::Parameters)?), None)
                };
            }
            HintName::NumDfiles => {
                let width = decimal(text).and_then(|width| u16::try_from(width).ok());
                self.width = Some(width.filter(|width| (1..=WIDTH_MAX).contains(width)).ok_or(BadHint::Datafiles)?);
            }
            HintName::StripeSize => self.stripe_bytes = Some(stripe_bytes(text).ok_or(BadHint::StripeSize)?),
            // Any number but 0 means on (section 4.2.3).
            HintName::NoMetafile => self.no_metafile = decimal(text).ok_or(BadHint::NoMetafile)? != 0,
            HintName::Presplit => {
                let servers = if text == "all" { Some(PRESPLIT_MAX.into()) } else { decimal(text) };
                let servers = servers.and_then(|servers| u16::try_from(servers).ok());
                self.presplit = Some(servers.filter(|servers| (1..=PRESPLIT_MAX).contains(servers)).ok_or(BadHint::Presplit)?);
            }
            HintName::InlineLimit => {
                self.inline_limit = Some(decimal(text).filter(|bytes| *bytes <= INLINE_BYTES_MAX).ok_or(BadHint::InlineLimit)?);
            }
            HintName::Project => self.project = project(value)?,
        }
        Ok(())
    }

    /// Checks that the hints do not contradict each other. `no_metafile` beside `num_dfiles` or
    /// strips is no contradiction: it stands for one datafile whatever they say (section 4.4). Nor
    /// are strips beside `num_dfiles` or `stripe_size`: the strips count.
    ///
    /// # Errors
    /// Which two do.
    pub fn check(&self) -> Result<(), BadHint> {
        if let (Some(one), Some(other)) = (self.stripe_bytes, self.strip_bytes)
            && one != other
        {
            return Err(BadHint::TwoStripeSizes);
        }
        let name = self.distribution;
        let is_varstrip = name == Some(DistName::Varstrip);
        if self.strips.is_some() && name.is_some() && !is_varstrip || self.strip_bytes.is_some() && is_varstrip {
            return Err(BadHint::ParametersOfAnother);
        }
        if name == Some(DistName::Basic) && self.width.is_some_and(|width| width > 1) {
            return Err(BadHint::BasicHasOneDatafile);
        }
        Ok(())
    }

    /// The strips of new files, which have some only if `dist_name` and `dist_params` say so
    /// together.
    pub fn strips(&self) -> Option<&Strips> {
        let are_wanted = self.distribution == Some(DistName::Varstrip) && !self.no_metafile;
        self.strips.as_ref().filter(|_| are_wanted)
    }

    /// The layout of new files in a directory with these hints that would have `layout` without.
    /// That it has strips is not in it yet.
    pub fn apply(&self, layout: Layout) -> Layout {
        let stripe_bytes = self.stripe_bytes.or(self.strip_bytes).unwrap_or(layout.stripe_bytes);
        let one = self.no_metafile || self.distribution == Some(DistName::Basic);
        let width = match self.strips() {
            Some(strips) => strips.width(),
            None if one => 1,
            None => self.width.unwrap_or(layout.width),
        };
        Layout { stripe_bytes, width, ..layout }
    }
}

/// The project that a value of the hint `project` names.
///
/// # Errors
/// [`BadHint::Project`].
pub fn project(value: &[u8]) -> Result<u32, BadHint> {
    let text = text(value);
    decimal(text).filter(|project| *project != 0).ok_or(BadHint::Project)
}

/// A value as programs give it: text, perhaps with a NUL behind it.
fn text(value: &[u8]) -> &str {
    let text = std::str::from_utf8(value).unwrap_or_default();
    text.strip_suffix('\0').unwrap_or(text)
}

/// A number as people write it: digits only.
pub(crate) fn decimal(text: &str) -> Option<u32> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if digits { text.parse().ok() } else { None }
}

fn stripe_bytes(text: &str) -> Option<u32> {
    decimal(text).filter(|bytes| bytes.is_power_of_two() && (STRIPE_BYTES_MIN..=STRIPE_BYTES_MAX).contains(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_prefixes_name_the_same_hints() {
        for hint in HintName::ALL {
            assert_eq!(HintName::of_attribute(hint.attribute().as_bytes()), Ok(Some(hint)));
            assert_eq!(HintName::of_attribute(format!("{HINT_PREFIX_PVFS2}{}", hint.short()).as_bytes()), Ok(Some(hint)));
        }
        assert_eq!(HintName::of_attribute(b"user.weft.stripe_sise"), Ok(None));
        assert_eq!(HintName::of_attribute(b"user.pvfs2."), Ok(None));
        for other in [&b"user.weft"[..], b"user.weftling.no_metafile", b"trusted.weft.no_metafile"] {
            assert_eq!(HintName::of_attribute(other), Err(NoHint));
        }
    }

    #[test]
    fn nonsense_is_refused_and_changes_nothing() {
        let bad = [
            (HintName::DistName, "twodee", BadHint::Distribution),
            (HintName::DistParams, "65536", BadHint::Parameters),
            (HintName::DistParams, "strip_size:1000", BadHint::Parameters),
            (HintName::DistParams, "strips:0:1000", BadHint::Strips),
            (HintName::StripeSize, "nonsense", BadHint::StripeSize),
            (HintName::StripeSize, "2048", BadHint::StripeSize),
            (HintName::StripeSize, "+65536", BadHint::StripeSize),
            (HintName::NumDfiles, "0", BadHint::Datafiles),
            (HintName::NumDfiles, "4097", BadHint::Datafiles),
            (HintName::NumDfiles, "", BadHint::Datafiles),
            (HintName::NoMetafile, "yes", BadHint::NoMetafile),
            (HintName::NoMetafile, "-1", BadHint::NoMetafile),
            (HintName::Presplit, "0", BadHint::Presplit),
            (HintName::Presplit, "4097", BadHint::Presplit),
            (HintName::Presplit, "every", BadHint::Presplit),
            (HintName::InlineLimit, "16385", BadHint::InlineLimit),
            (HintName::InlineLimit, "4K", BadHint::InlineLimit),
            (HintName::Project, "0", BadHint::Project),
            (HintName::Project, "physics", BadHint::Project),
            (HintName::Project, "4294967296", BadHint::Project),
        ];
        for (name, value, why) in bad {
            let mut hints = Hints::default();
            assert_eq!(hints.set(name, value.as_bytes()), Err(why), "{value}");
            assert_eq!(hints, Hints::default());
        }
        assert_eq!(Hints::default().set(HintName::NumDfiles, b"\xff"), Err(BadHint::Datafiles));
    }

    #[test]
    fn names_may_be_spread_over_some_servers_or_all() {
        let of = |value: &[u8]| {
            let mut hints = Hints::default();
            hints.set(HintName::Presplit, value).map(|()| hints.presplit)
        };
        assert_eq!((of(b"4"), of(b"all"), of(b"1\0")), (Ok(Some(4)), Ok(Some(PRESPLIT_MAX)), Ok(Some(1))));
    }

    #[test]
    fn hints_change_the_layout_of_new_files() {
        let plain = Layout { stripe_bytes: 1 << 20, width: 4, first: 0, generation: 0 };
        let with = |set: &[(HintName, &str)]| {
            let mut hints = Hints::default();
            set.iter().for_each(|(name, value)| hints.set(*name, value.as_bytes()).unwrap());
            hints.check().map(|()| (hints.apply(plain).stripe_bytes, hints.apply(plain).width))
        };
        assert_eq!(with(&[]), Ok((1 << 20, 4)));
        assert_eq!(with(&[(HintName::StripeSize, "65536\0"), (HintName::NumDfiles, "2")]), Ok((65536, 2)));
        assert_eq!(with(&[(HintName::DistName, "simple_stripe"), (HintName::DistParams, "strip_size:65536")]), Ok((65536, 4)));
        assert_eq!(with(&[(HintName::DistName, "basic_dist")]), Ok((1 << 20, 1)));
        let (name, params) = ((HintName::DistName, "varstrip"), (HintName::DistParams, "strips:0:64K;1:128K;0:4K"));
        assert_eq!(with(&[name, params, (HintName::NumDfiles, "3")]), Ok((1 << 20, 2)));
        assert_eq!((with(&[name]), with(&[params])), (Ok((1 << 20, 4)), Ok((1 << 20, 4))), "one without the other says nothing");
        assert_eq!(with(&[name, params, (HintName::NoMetafile, "1")]), Ok((1 << 20, 1)));
        assert_eq!(with(&[(HintName::DistName, "simple_stripe"), params]), Err(BadHint::ParametersOfAnother));
        assert_eq!(with(&[name, (HintName::DistParams, "strip_size:65536")]), Err(BadHint::ParametersOfAnother));
        assert_eq!(with(&[(HintName::NoMetafile, "7"), (HintName::NumDfiles, "3")]), Ok((1 << 20, 1)));
        assert_eq!(with(&[(HintName::NoMetafile, "0"), (HintName::NumDfiles, "3")]), Ok((1 << 20, 3)));
        assert_eq!(with(&[(HintName::StripeSize, "65536"), (HintName::DistParams, "strip_size:4096")]), Err(BadHint::TwoStripeSizes));
        assert_eq!(with(&[(HintName::DistName, "basic"), (HintName::NumDfiles, "2")]), Err(BadHint::BasicHasOneDatafile));
    }
}
