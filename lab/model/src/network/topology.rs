//! How the nodes of a network are connected: switches, links between switches, and the switch at
//! which each node is.

use super::NodeId;

const NONE: u32 = u32::MAX;
/// Switches of one network: routes are kept for every pair of them.
pub const SWITCHES_MAX: u32 = 4096;

/// How the nodes are connected.
#[derive(Clone, Debug, PartialEq, Default)]
pub enum Topology {
    /// All nodes at one switch.
    #[default]
    OneSwitch,
    /// Racks with a switch each; the switches are connected by links to a core that is never busy.
    /// A message to another rack passes two links and a switch more. (A tree of two levels, as in
    /// Leiserson, "Fat-trees", IEEE Transactions on Computers 34 (1985), with the upper level
    /// collapsed into its links.)
    Racks {
        /// Nodes 0, 1, ... fill one rack after the other with so many.
        nodes_per_rack: u32,
        /// Bandwidth of the link between a rack and the core in each direction, bytes a second.
        uplink_bandwidth: u64,
    },
    /// Whatever is connected with whatever.
    Free(Switches),
}

/// Switches and the links between them.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Switches {
    /// Bandwidth of each switch as a whole, bytes a second; `None` is never busy.
    pub bandwidths: Vec<Option<u64>>,
    /// Links; each has two directions that do not disturb each other.
    pub links: Vec<Link>,
    /// The switch of each node.
    pub node_switch: Vec<u32>,
}

/// A link between two switches.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    /// The switches at its ends.
    pub ends: [u32; 2],
    /// Bandwidth in each direction, bytes a second.
    pub bandwidth: u64,
    /// Latency, nanoseconds.
    pub latency: u64,
}

impl Switches {
    /// Two nodes (or one, if nodes exist without a switch) that no path connects.
    pub fn unconnected(&self) -> Option<(NodeId, NodeId)> {
        let routes = Routes::new(self.clone());
        let first = *self.node_switch.first()?;
        let is_cut_off = |&(_, &switch): &(u32, &u32)| switch != first && routes.next(first, switch).is_none();
        (0..).zip(&self.node_switch).find(is_cut_off).map(|(node, _)| (0, node))
    }
}

impl Topology {
    /// As switches and links, for so many nodes.
    pub(super) fn switches(&self, nodes: u32, switch_bandwidth: u64, link_latency: u64) -> Switches {
        match *self {
            Topology::OneSwitch => {
                Switches { bandwidths: vec![Some(switch_bandwidth)], links: Vec::new(), node_switch: vec![0; nodes as usize] }
            }
            Topology::Racks { nodes_per_rack, uplink_bandwidth } => {
                let node_switch: Vec<u32> = (0..nodes).map(|node| node / nodes_per_rack.max(1)).collect();
                let racks = node_switch.last().map_or(1, |last| last + 1);
                let mut bandwidths = vec![Some(switch_bandwidth); racks as usize];
                bandwidths.push(None);
                let uplink = |rack| Link { ends: [rack, racks], bandwidth: uplink_bandwidth, latency: link_latency };
                Switches { bandwidths, links: (0..racks).map(uplink).collect(), node_switch }
            }
            Topology::Free(ref switches) => switches.clone(),
        }
    }
}

/// Switches with the way from each to each: the fewest links, and of several such ways the one over
/// the link that is listed first.
pub(super) struct Routes {
    pub switches: Switches,
    /// For each pair of switches: the direction of a link that leads on, or `NONE`.
    next: Vec<u32>,
}

impl Routes {
    pub fn new(switches: Switches) -> Routes {
        let count = switches.bandwidths.len();
        let mut next = vec![NONE; count * count];
        for target in 0..count as u32 {
            // Outwards from the target, one ring of switches after the other.
            let mut distance = vec![NONE; count];
            distance[target as usize] = 0;
            let mut ring = 0;
            let mut is_done = false;
            while !is_done {
                is_done = true;
                for (number, link) in (0..).zip(&switches.links) {
                    for direction in 0..2 {
                        let [from, to] = [link.ends[direction as usize], link.ends[1 - direction as usize]];
                        if distance[to as usize] == ring && distance[from as usize] == NONE {
                            distance[from as usize] = ring + 1;
                            next[from as usize * count + target as usize] = 2 * number + direction;
                            is_done = false;
                        }
                    }
                }
                ring += 1;
            }
        }
        Routes { switches, next }
    }

    /// The direction of a link by which a packet at one switch goes on to another; `None`: there is
    /// no way, or it is there.
    pub fn next(&self, switch: u32, target: u32) -> Option<u32> {
        let direction = self.next[switch as usize * self.switches.bandwidths.len() + target as usize];
        (direction != NONE).then_some(direction)
    }

    /// The switch at the end of a direction of a link.
    pub fn end(&self, direction: u32) -> u32 {
        self.link(direction).ends[1 - (direction % 2) as usize]
    }

    pub fn link(&self, direction: u32) -> &Link {
        &self.switches.links[(direction / 2) as usize]
    }

    /// The switch of a node.
    pub fn of_node(&self, node: NodeId) -> u32 {
        self.switches.node_switch[node as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(from: u32, to: u32) -> Link {
        Link { ends: [from, to], bandwidth: 1, latency: 0 }
    }

    fn way(routes: &Routes, from: u32, to: u32) -> Vec<u32> {
        let step = |&at: &u32| routes.next(at, to).map(|direction| routes.end(direction));
        std::iter::successors(Some(from), step).collect()
    }

    #[test]
    fn routes_are_shortest_and_prefer_the_link_listed_first() {
        // A ring of five with a bridge.
        let links = vec![link(0, 1), link(1, 2), link(2, 3), link(3, 4), link(4, 0), link(1, 3)];
        let routes = Routes::new(Switches { bandwidths: vec![Some(1); 5], links, node_switch: Vec::new() });
        assert_eq!(way(&routes, 0, 2), [0, 1, 2]);
        assert_eq!(way(&routes, 0, 3), [0, 1, 3], "as short as over 4; at 0 the link to 1 is listed before that to 4");
        assert_eq!(way(&routes, 3, 0), [3, 4, 0], "as short as over 1; at 3 the link to 4 is listed before that to 1");
        assert_eq!(way(&routes, 4, 4), [4]);
    }

    #[test]
    fn racks_meet_in_a_core_that_is_never_busy() {
        let switches = Topology::Racks { nodes_per_rack: 2, uplink_bandwidth: 7 }.switches(5, 9, 3);
        assert_eq!(switches.bandwidths, [Some(9), Some(9), Some(9), None]);
        assert_eq!(switches.node_switch, [0, 0, 1, 1, 2]);
        assert_eq!(switches.unconnected(), None);
        assert_eq!(way(&Routes::new(switches), 0, 2), [0, 3, 2]);
    }

    #[test]
    fn nodes_without_a_way_to_each_other_are_named() {
        let switches = Switches { bandwidths: vec![Some(1); 3], links: vec![link(0, 2)], node_switch: vec![0, 0, 2, 1] };
        assert_eq!(switches.unconnected(), Some((0, 3)));
    }
}
