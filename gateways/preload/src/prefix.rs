//! Which paths are Weft's: those below a prefix. Pure: what the kernel would say about symlinks on
//! the way is asked through a function.

/// Longest path, in bytes with its NUL, as in Linux.
pub(crate) const PATH_BYTES_MAX: usize = 4096;

/// The prefix, and the file system that appears there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Prefix {
    path: Vec<u8>,
    /// As a person names it: a state directory, a config, `weft://HOST:PORT/NAME`, a mount point.
    pub fs: Vec<u8>,
}

/// Where a path leads, by its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// The kernel knows.
    Outside,
    /// Below the prefix, by this path from there; empty for the prefix itself.
    Inside(Vec<u8>),
}

impl Prefix {
    /// From `/PREFIX=FS`. `None` if that is not its form: the prefix is absolute, not `/`, and has
    /// no empty names, `.` or `..`.
    pub fn parse(text: &[u8]) -> Option<Prefix> {
        let at = text.iter().position(|byte| *byte == b'=')?;
        let path = text[..at].strip_suffix(b"/").unwrap_or(&text[..at]);
        let fs = &text[at + 1..];
        let names = path.strip_prefix(b"/")?;
        let is_clean = names.split(|byte| *byte == b'/').all(|name| !matches!(name, b"" | b"." | b".."));
        (is_clean && !fs.is_empty() && path.len() < PATH_BYTES_MAX).then(|| Prefix { path: path.to_vec(), fs: fs.to_vec() })
    }

    /// The prefix as a path.
    pub fn path(&self) -> &[u8] {
        &self.path
    }

    /// What the kernel has above the root of the file system.
    pub fn parent(&self) -> &[u8] {
        match self.path.iter().rposition(|byte| *byte == b'/') {
            Some(0) | None => b"/",
            Some(at) => &self.path[..at],
        }
    }

    /// An absolute path that begins with the prefix letter by letter, as nearly all do: what
    /// follows it.
    #[inline]
    pub fn below<'a>(&self, path: &'a [u8]) -> Option<&'a [u8]> {
        let rest = path.strip_prefix(self.path.as_slice())?;
        match rest.first() {
            None => Some(rest),
            Some(b'/') => Some(&rest[1..]),
            Some(_) => None,
        }
    }

    /// False if this path cannot lead below the prefix from anywhere outside, since the last name
    /// of the prefix is not in it.
    #[inline]
    pub fn may_enter(&self, path: &[u8]) -> bool {
        let last = self.path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        path.windows(last.len()).any(|part| part == last)
    }

    /// Which side a path is on. `base`: the directory that a relative path begins at, an absolute
    /// path without symlinks. `real`: where an absolute path outside leads, symlinks followed;
    /// asked before a `..`, which means the directory above that.
    pub fn side(&self, base: &[u8], path: &[u8], real: impl Fn(&[u8]) -> Option<Vec<u8>>) -> Side {
        let start: &[u8] = if path.starts_with(b"/") { b"" } else { base };
        let mut way: Vec<Vec<u8>> = names(start).map(<[u8]>::to_vec).collect();
        let mut left = names(path);
        let prefix: Vec<&[u8]> = names(&self.path).collect();
        loop {
            if way == prefix {
                let rest: Vec<&[u8]> = left.collect();
                let mut rest = rest.join(&b'/');
                if !rest.is_empty() {
                    // What stands behind the last name says what that has to be.
                    let end = path.rsplit(|byte| *byte == b'/').find(|name| !name.is_empty());
                    rest.extend_from_slice(if end == Some(b".") { b"/." } else { b"" });
                    rest.extend_from_slice(if path.ends_with(b"/") { b"/" } else { b"" });
                }
                return Side::Inside(rest);
            }
            match left.next() {
                None => return Side::Outside,
                Some(b"..") => {
                    let here = way.iter().fold(Vec::new(), |text, name| [text.as_slice(), b"/", name].concat());
                    let Some(found) = (if here.is_empty() { Some(here) } else { real(&here) }) else { return Side::Outside };
                    way = names(&found).map(<[u8]>::to_vec).collect();
                    way.pop();
                }
                Some(name) => way.push(name.to_vec()),
            }
        }
    }
}

/// The names of a path, without empty ones and `.`.
fn names(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|byte| *byte == b'/').filter(|name| !matches!(*name, b"" | b"."))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn side(base: &str, path: &str) -> Side {
        let prefix = Prefix::parse(b"/mnt/weft=fs").unwrap();
        let real = |path: &[u8]| match path {
            b"/link" => Some(b"/mnt/deep".to_vec()),
            b"/gone" => None,
            other => Some(other.to_vec()),
        };
        prefix.side(base.as_bytes(), path.as_bytes(), real)
    }

    fn inside(path: &str) -> Side {
        Side::Inside(path.as_bytes().to_vec())
    }

    #[test]
    fn a_setting_has_one_form() {
        let parse = |text: &str| Prefix::parse(text.as_bytes());
        let prefix = parse("/mnt/weft/=weft://h:1/fs=x").unwrap();
        assert_eq!((prefix.path(), prefix.fs.as_slice()), (b"/mnt/weft".as_slice(), b"weft://h:1/fs=x".as_slice()));
        assert_eq!(prefix.parent(), b"/mnt");
        assert_eq!(parse("/weft=fs").unwrap().parent(), b"/");
        for bad in ["", "/weft", "=fs", "/=fs", "weft=fs", "/a//b=fs", "/a/../b=fs", "/a/.=fs", "/weft="] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn most_paths_are_told_by_their_letters() {
        let prefix = Prefix::parse(b"/mnt/weft=fs").unwrap();
        assert_eq!(prefix.below(b"/mnt/weft"), Some(b"".as_slice()));
        assert_eq!(prefix.below(b"/mnt/weft/a/b"), Some(b"a/b".as_slice()));
        assert_eq!(prefix.below(b"/mnt/weft//a/../"), Some(b"/a/../".as_slice()));
        assert_eq!((prefix.below(b"/mnt/weftx"), prefix.below(b"/mnt"), prefix.below(b"mnt/weft")), (None, None, None));
        assert!(prefix.may_enter(b"../weft/x") && prefix.may_enter(b"weft") && !prefix.may_enter(b"../include/a.h"));
    }

    #[test]
    fn every_way_in_is_found() {
        assert_eq!(side("/", "/mnt//weft/./a/b/"), inside("a/b/"));
        assert_eq!((side("/", "/mnt//weft/a/."), side("/", "/mnt//weft/.")), (inside("a/."), inside("")));
        assert_eq!(side("/", "/mnt/weft/../weft/a"), inside("../weft/a"), "what follows the prefix is not for here");
        assert_eq!(side("/mnt", "weft/a"), inside("a"));
        assert_eq!(side("/mnt/other", "../weft"), inside(""));
        assert_eq!(side("/", "../../mnt/weft/x"), inside("x"));
        assert_eq!(side("/", "mnt/wef"), Side::Outside);
        assert_eq!(side("/home", "/mnt"), Side::Outside);
    }

    #[test]
    fn symlinks_on_the_way_are_asked_about_before_dots() {
        assert_eq!(side("/", "/link/../weft/a"), inside("a"), "it leads to /mnt/deep");
        assert_eq!(side("/", "/mnt/x/../weft/a"), inside("a"));
        assert_eq!(side("/", "/gone/../mnt/weft/a"), Side::Outside);
    }
}
