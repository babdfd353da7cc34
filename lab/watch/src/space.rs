//! How full disks are, as far as servers tell.

use serde::Serialize;

use crate::snapshot::Server;

/// How full a disk is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Space {
    /// Enough.
    Green,
    /// Less than 30 % is free.
    Yellow,
    /// Less than 10 % is free.
    Red,
}

impl Space {
    /// By the rule that the OrangeFS monitor karma had.
    fn of(free_share: f64) -> Space {
        match free_share {
            free if free < 0.1 => Space::Red,
            free if free < 0.3 => Space::Yellow,
            _ => Space::Green,
        }
    }
}

/// Says of each server how full its disk is. Servers that share one look at it at different
/// moments, some keep a little of it for themselves, and a data server does not count what others
/// have put there. So disks with the same room, within a hundredth, are taken for one: the largest
/// size that anybody tells of it and the least room count for all.
pub fn tell(servers: &mut [Server]) {
    let told: Vec<(u64, u64)> = servers.iter().filter_map(|server| server.free_bytes.zip(server.capacity_bytes)).collect();
    for server in servers {
        let Some(free) = server.free_bytes.filter(|_| server.capacity_bytes.is_some()) else { continue };
        let same = || told.iter().filter(|(other, _)| other.abs_diff(free) <= free.max(*other) / 100);
        let least = same().map(|(free, _)| *free).min().unwrap_or(free);
        let capacity = same().map(|(_, capacity)| *capacity).max().unwrap_or(0);
        let share = least as f64 / capacity.max(1) as f64;
        (server.space, server.free_share) = (Some(Space::of(share)), Some(share));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_disk_has_one_colour_and_one_share() {
        let server = |free: u64, capacity: u64| Server { free_bytes: Some(free), capacity_bytes: Some(capacity), ..Server::default() };
        // Two metadata servers of one disk, a data server that knows only its own part of it;
        // another disk; a server that has not answered.
        let mut servers =
            [server(30_010, 100_000), server(29_990, 100_000), server(30_000, 30_000), server(60_000, 100_000), Server::default()];
        tell(&mut servers);
        let colours = servers.each_ref().map(|server| server.space);
        assert_eq!(colours, [Some(Space::Yellow), Some(Space::Yellow), Some(Space::Yellow), Some(Space::Green), None]);
        let shares = servers.map(|server| server.free_share);
        assert_eq!(shares, [Some(0.2999), Some(0.2999), Some(0.2999), Some(0.6), None]);
    }

    #[test]
    fn the_limits_of_karma() {
        let of = |share| Space::of(share);
        assert_eq!((of(0.09), of(0.10), of(0.29), of(0.30)), (Space::Red, Space::Yellow, Space::Yellow, Space::Green));
        let mut none = [Server { free_bytes: Some(0), capacity_bytes: Some(0), ..Server::default() }];
        tell(&mut none);
        assert_eq!(none[0].space, Some(Space::Red));
    }
}
