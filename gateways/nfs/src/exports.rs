//! Exports: which directories NFS clients see, which clients, and as whom their users count.

use std::net::IpAddr;

use weft_base::{Credentials, Handle};

use crate::rpc::Identity;

/// User and group that nobody has.
const NOBODY: u32 = 65534;
/// Ports below this one are for the superuser of a client.
const PRIVILEGED_PORTS: u16 = 1024;

/// Bits of an IPv6 address in front of the IPv4 address that it stands for.
const MAPPED_BITS: u32 = 96;

/// Who counts as nobody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Squash {
    /// The superuser.
    Root,
    /// Everybody.
    All,
    /// Only those who do not say who they are.
    Nobody,
}

/// Some addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    bits: u32,
}

impl Network {
    /// `10.0.0.0/8`, `fd00::/8`, or one address.
    fn parse(text: &str) -> Option<Network> {
        let (address, bits) = text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
        let address: IpAddr = address.parse().ok()?;
        let bits_max = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Some(bits_max), |bits| bits.parse().ok().filter(|bits| *bits <= bits_max))?;
        // Clients with IPv4 are told by their IPv4 addresses, also where they came as IPv6.
        match address.to_canonical() {
            v4 if v4 != address && bits >= MAPPED_BITS => Some(Network { address: v4, bits: bits - MAPPED_BITS }),
            _ => Some(Network { address, bits }),
        }
    }

    fn contains(&self, address: IpAddr) -> bool {
        let same = |one: u128, other: u128, width: u32| (one ^ other).checked_shr(width - self.bits).unwrap_or(0) == 0;
        match (self.address, address) {
            (IpAddr::V4(one), IpAddr::V4(other)) => same(one.to_bits().into(), other.to_bits().into(), 32),
            (IpAddr::V6(one), IpAddr::V6(other)) => same(one.to_bits(), other.to_bits(), 128),
            _ => false,
        }
    }
}

/// A directory that clients see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    /// Its path in the file system: `/`, or names with one `/` before each.
    pub path: String,
    /// Nothing is changed through it.
    pub is_read_only: bool,
    /// Who counts as nobody.
    pub squash: Squash,
    /// User and group of nobody.
    pub nobody: (u32, u32),
    /// Only clients whose superuser has opened the connection.
    pub wants_privileged_ports: bool,
    /// Clients; none: this machine only.
    pub networks: Vec<Network>,
    /// Clients everywhere.
    pub is_for_all: bool,
}

impl Export {
    /// Reads `PATH[:OPTION,...]`.
    ///
    /// # Errors
    /// What cannot be understood, for people.
    pub fn parse(text: &str) -> Result<Export, String> {
        let (path, options) = text.split_once(':').unwrap_or((text, ""));
        let names: Vec<&str> = path.split('/').filter(|name| !name.is_empty()).collect();
        if !path.starts_with('/') || names.iter().any(|name| matches!(*name, "." | "..")) {
            return Err(format!("{path:?} is no path of the file system: it begins with / and has no . or .."));
        }
        let mut export = Export {
            path: format!("/{}", names.join("/")),
            is_read_only: false,
            squash: Squash::Root,
            nobody: (NOBODY, NOBODY),
            wants_privileged_ports: false,
            networks: Vec::new(),
            is_for_all: false,
        };
        for option in options.split(',').filter(|option| !option.is_empty()) {
            let number = |digits: &str| digits.parse::<u32>().map_err(|_| format!("{option}: a number is expected"));
            match option {
                "ro" => export.is_read_only = true,
                "rw" => export.is_read_only = false,
                "root_squash" => export.squash = Squash::Root,
                "all_squash" => export.squash = Squash::All,
                "no_root_squash" => export.squash = Squash::Nobody,
                "secure" => export.wants_privileged_ports = true,
                "insecure" => export.wants_privileged_ports = false,
                "*" => export.is_for_all = true,
                _ => match option.split_once('=') {
                    Some(("anonuid", digits)) => export.nobody.0 = number(digits)?,
                    Some(("anongid", digits)) => export.nobody.1 = number(digits)?,
                    _ => export.networks.push(Network::parse(option).ok_or_else(|| {
                        format!("{option} is neither an option (ro, root_squash, all_squash, no_root_squash, anonuid=, anongid=, secure) nor a network")
                    })?),
                },
            }
        }
        Ok(export)
    }

    /// True if a client at this address may use it.
    pub fn admits(&self, address: IpAddr, port: u16) -> bool {
        self.admits_address(address) && (port < PRIVILEGED_PORTS || !self.wants_privileged_ports)
    }

    /// True if it is for clients on the gateway's own machine.
    pub fn is_for_this_machine(&self) -> bool {
        !self.is_for_all && self.networks.is_empty()
    }

    /// True if it is meant for other machines, too.
    pub fn is_for_others(&self) -> bool {
        self.is_for_all || self.networks.iter().any(|network| !network.address.to_canonical().is_loopback())
    }

    /// True if a client at this address may use it from some port.
    pub fn admits_address(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        match (self.is_for_all, self.networks.as_slice()) {
            (true, _) => true,
            (false, []) => address.is_loopback(),
            (false, networks) => networks.iter().any(|network| network.contains(address)),
        }
    }

    /// As whom the servers are asked.
    pub(crate) fn credentials(&self, identity: &Identity) -> Credentials {
        let (nobody, nogroup) = self.nobody;
        let nobody = Credentials { uid: nobody, gid: nogroup, groups: Vec::new(), checked_by_kernel: false };
        match (identity, self.squash) {
            (Identity::Nobody, _) | (_, Squash::All) => nobody,
            (Identity::User { uid: 0, .. }, Squash::Root) => nobody,
            (Identity::User { uid, gid, groups }, squash) => {
                // The group of the superuser opens doors as well.
                let group = |gid: u32| if squash == Squash::Root && gid == 0 { nogroup } else { gid };
                let groups = groups.iter().map(|gid| group(*gid)).collect();
                Credentials { uid: *uid, gid: group(*gid), groups, checked_by_kernel: false }
            }
        }
    }

    /// What a path below it says behind its own; `None` if the path is not below it.
    pub fn rest_of<'a>(&self, path: &'a str) -> Option<&'a str> {
        if self.path == "/" {
            return path.starts_with('/').then_some(path);
        }
        path.strip_prefix(&self.path).filter(|rest| rest.is_empty() || rest.starts_with('/'))
    }

    /// Who may use it, for lists.
    pub fn clients(&self) -> Vec<String> {
        match (self.is_for_all, self.networks.as_slice()) {
            (true, _) => Vec::new(),
            (false, []) => vec!["localhost".into()],
            (false, networks) => networks.iter().map(|network| format!("{}/{}", network.address, network.bits)).collect(),
        }
    }
}

/// An export whose directory has been found.
#[derive(Clone, Debug)]
pub struct Exported {
    /// The export.
    pub export: Export,
    /// Its directory.
    pub root: Handle,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn export(text: &str) -> Export {
        Export::parse(text).unwrap()
    }

    #[test]
    fn options_are_understood_or_named() {
        let plain = export("/a//b/");
        assert_eq!((plain.path.as_str(), plain.is_read_only, plain.squash), ("/a/b", false, Squash::Root));
        let full = export("/:ro,all_squash,anonuid=5,anongid=6,secure,10.1.0.0/16,fd00::/8");
        assert!(full.is_read_only && full.wants_privileged_ports && full.squash == Squash::All);
        assert_eq!((full.path.as_str(), full.nobody, full.networks.len()), ("/", (5, 6), 2));
        for bad in ["data", "/a/../b", "/:fast", "/:10.0.0.0/33", "/:anonuid=x", ""] {
            assert!(Export::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn clients_come_from_their_networks_only() {
        let from = |export: &Export, address: &str| export.admits(address.parse().unwrap(), 40_000);
        let home = export("/");
        assert!(from(&home, "127.0.0.1") && from(&home, "::1") && from(&home, "::ffff:127.0.0.1") && !from(&home, "10.1.2.3"));
        let net = export("/:10.1.0.0/16,fd00::/8,192.168.7.9");
        assert!(from(&net, "10.1.255.3") && from(&net, "::ffff:10.1.0.1") && from(&net, "fdff::1") && from(&net, "192.168.7.9"));
        assert!(!from(&net, "10.2.0.1") && !from(&net, "127.0.0.1") && !from(&net, "fe00::1") && !from(&net, "192.168.7.8"));
        assert!(from(&export("/:*"), "8.8.8.8") && from(&export("/:0.0.0.0/0"), "8.8.8.8") && !from(&export("/:0.0.0.0/0"), "::1"));
        let mapped = export("/:::ffff:10.1.0.0/112,::ffff:192.168.7.9");
        assert!(from(&mapped, "10.1.255.3") && from(&mapped, "::ffff:192.168.7.9") && !from(&mapped, "10.2.0.1"));
        assert_eq!(mapped.clients(), ["10.1.0.0/16", "192.168.7.9/32"]);
        assert!(net.is_for_others() && export("/:*").is_for_others() && export("/:127.0.0.0/8,10.0.0.1").is_for_others());
        assert!(!home.is_for_others() && !export("/:127.0.0.0/8,::1").is_for_others());
        let secure = export("/:secure");
        let here = "127.0.0.1".parse().unwrap();
        assert!(!secure.admits(here, 1024) && secure.admits(here, 1023) && secure.admits_address(here));
    }

    #[test]
    fn users_are_who_they_are_and_root_is_nobody() {
        let user = |uid, gid, groups: &[u32]| Identity::User { uid, gid, groups: groups.to_vec() };
        let who = |text: &str, identity: &Identity| {
            let who = export(text).credentials(identity);
            assert!(!who.checked_by_kernel, "the servers check");
            (who.uid, who.gid, who.groups)
        };
        assert_eq!(who("/", &user(0, 0, &[0, 5])), (NOBODY, NOBODY, vec![]));
        assert_eq!(who("/", &user(7, 0, &[0, 5])), (7, NOBODY, vec![NOBODY, 5]));
        assert_eq!(who("/:no_root_squash", &user(0, 0, &[0, 5])), (0, 0, vec![0, 5]));
        assert_eq!(who("/:no_root_squash", &Identity::Nobody), (NOBODY, NOBODY, vec![]));
        assert_eq!(who("/:all_squash,anonuid=3,anongid=4", &user(7, 8, &[9])), (3, 4, vec![]));
    }

    #[test]
    fn paths_below_an_export_are_told_from_others() {
        assert_eq!(export("/a").rest_of("/a/b"), Some("/b"));
        assert_eq!(export("/a").rest_of("/a"), Some(""));
        assert_eq!(export("/a").rest_of("/ab"), None);
        assert_eq!(export("/").rest_of("/ab"), Some("/ab"));
    }
}
