//! The first request of a connection: kernel and file system agree upon what both can do.

use std::io;

use super::abi::{Fields, MAJOR, MINOR, MINOR_MIN, Malformed, OutRecord};
use super::types::InitFlags;

/// Pages of a request are of this size.
const PAGE_BYTES: u32 = 4096;

/// What the kernel offers and the file system asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelConfig {
    minor: u32,
    offered: InitFlags,
    wanted: InitFlags,
    max_readahead: u32,
    max_write: u32,
    max_background: u16,
}

impl KernelConfig {
    /// From the body of the request.
    ///
    /// # Errors
    /// If the kernel is too old, or the request no such.
    pub fn parse(body: &[u8]) -> io::Result<KernelConfig> {
        let malformed = |_: Malformed| io::Error::new(io::ErrorKind::InvalidData, "the kernel's first request is cut short");
        let mut fields = Fields(body);
        let major = fields.u32().map_err(malformed)?;
        let minor = fields.u32().map_err(malformed)?;
        if (major, minor) < (MAJOR, MINOR_MIN) {
            let words =
                format!("the kernel speaks version {major}.{minor} of the FUSE protocol; {MAJOR}.{MINOR_MIN} is needed (Linux 4.20)");
            return Err(io::Error::new(io::ErrorKind::Unsupported, words));
        }
        let (max_readahead, low) = (fields.u32().map_err(malformed)?, fields.u32().map_err(malformed)?);
        let mut flags = InitFlags::from_bits(u64::from(low));
        if flags.contains(InitFlags::FUSE_INIT_EXT) {
            flags = flags | InitFlags::from_bits(u64::from(fields.u32().map_err(malformed)?) << 32);
        }
        let wanted = InitFlags::empty();
        let mut config = KernelConfig { minor, offered: flags, wanted, max_readahead, max_write: PAGE_BYTES, max_background: 16 };
        for basic in [InitFlags::FUSE_ASYNC_READ, InitFlags::FUSE_BIG_WRITES, InitFlags::FUSE_MAX_PAGES, InitFlags::FUSE_INIT_EXT] {
            config.add_capabilities(basic);
        }
        Ok(config)
    }

    /// Asks for something; false if the kernel does not offer it.
    pub fn add_capabilities(&mut self, wanted: InitFlags) -> bool {
        let offered = self.offered.contains(wanted);
        if offered {
            self.wanted = self.wanted | wanted;
        }
        offered
    }

    /// The largest write.
    pub fn set_max_write(&mut self, bytes: u32) {
        self.max_write = bytes;
    }

    /// Requests that nobody waits for, at once.
    pub fn set_max_background(&mut self, requests: u16) {
        self.max_background = requests;
    }

    /// The body of the answer.
    pub fn reply(&self) -> OutRecord<64> {
        let flags = self.wanted.bits();
        let record = OutRecord::new().u32(MAJOR).u32(self.minor.min(MINOR)).u32(self.max_readahead).u32(flags as u32);
        let record = record.u16(self.max_background).u16(self.max_background / 4 * 3).u32(self.max_write);
        // Times are exact to the nanosecond.
        let pages = self.max_write.div_ceil(PAGE_BYTES) as u16;
        let record = record.u32(1).u16(pages).u16(0).u32((flags >> 32) as u32);
        (0..7).fold(record, |record, _| record.u32(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(major: u32, minor: u32, flags: u64) -> Vec<u8> {
        [major, minor, 131_072, flags as u32, (flags >> 32) as u32].iter().flat_map(|number| number.to_ne_bytes()).collect()
    }

    #[test]
    fn only_what_is_offered_is_agreed_upon() {
        let offered = InitFlags::FUSE_INIT_EXT | InitFlags::FUSE_BIG_WRITES | InitFlags::FUSE_OVER_IO_URING;
        let mut config = KernelConfig::parse(&body(7, 45, offered.bits())).expect("a request");
        assert!(config.add_capabilities(InitFlags::FUSE_OVER_IO_URING) && !config.add_capabilities(InitFlags::FUSE_ASYNC_DIO));
        config.set_max_write(1 << 20);
        let reply = config.reply();
        assert_eq!(reply.bytes().len(), 64);
        let word = |at: usize| u32::from_ne_bytes(reply.bytes()[at..at + 4].try_into().expect("four"));
        assert_eq!((word(0), word(4), word(8)), (7, MINOR, 131_072));
        assert_eq!((word(12), word(32)), ((1 << 5) | (1 << 30), 1 << (41 - 32)));
        assert_eq!((word(20), word(28) & 0xffff), (1 << 20, 256));
    }

    #[test]
    fn kernels_that_are_too_old_are_refused_by_their_version() {
        let told = KernelConfig::parse(&body(7, 20, 0)).expect_err("too old").to_string();
        assert!(told.contains("7.20"), "{told}");
        assert!(KernelConfig::parse(&body(7, 40, 0)[..12]).is_err());
    }
}
