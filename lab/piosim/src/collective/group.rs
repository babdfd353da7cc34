//! Who takes part in a collective command, which part of the file each rank works on in which
//! round, and who meets whom there.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Arc;

use crate::config::Exchange;
use crate::program::Extent;

/// A rank's access in a collective command.
pub(crate) struct Member<'a> {
    list: Cow<'a, [Extent]>,
    /// Extents ascend and do not overlap, so that parts are found by bisection.
    sorted: bool,
    /// From the first byte to the last.
    span: Extent,
}

/// A collective command that everybody has entered.
pub(crate) struct Group<'a> {
    pub(super) members: Vec<Member<'a>>,
    pub(super) plan: Plan,
    /// Two-phase I/O does not pay: each on its own.
    pub(super) alone: bool,
    exchange: Exchange,
}

/// Who works on which part of the file when.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub interleaved: bool,
    min: u64,
    pub max: u64,
    ranks: u64,
    buffer: u64,
    pub rounds: u64,
}

impl Plan {
    pub fn new(interleaved: bool, (min, max): (u64, u64), ranks: u64, buffer: u64) -> Plan {
        let mut plan = Plan { interleaved, min, max, ranks, buffer, rounds: 0 };
        plan.rounds = if interleaved {
            (max - min).div_ceil(ranks * buffer)
        } else {
            // The last rank takes what the division leaves over.
            let share = (max - min) / ranks;
            (share + (max - min) % ranks).div_ceil(buffer)
        };
        plan
    }

    /// From the first byte to the last.
    pub fn span(&self) -> u64 {
        self.max - self.min
    }

    /// The part of a rank in a round; may be empty.
    pub fn range(&self, rank: u64, round: u64) -> Extent {
        let (offset, limit) = if self.interleaved {
            (self.min + (round * self.ranks + rank) * self.buffer, self.max)
        } else {
            let share = (self.max - self.min) / self.ranks;
            let limit = if rank + 1 == self.ranks { self.max } else { self.min + (rank + 1) * share };
            (self.min + rank * share + round * self.buffer, limit)
        };
        Extent { offset, bytes: limit.saturating_sub(offset).min(self.buffer) }
    }
}

impl<'a> Member<'a> {
    /// What it reads or writes.
    pub(super) fn list(&self) -> &[Extent] {
        &self.list
    }

    pub fn new(list: Cow<'a, [Extent]>) -> Member<'a> {
        let sorted = list.windows(2).all(|pair| pair[0].end() <= pair[1].offset);
        let start = list.iter().map(|extent| extent.offset).min().unwrap_or(0);
        let end = list.iter().map(|extent| extent.end()).max().unwrap_or(0);
        Member { sorted, span: Extent { offset: start, bytes: end - start }, list }
    }

    /// What of the access lies in a range, in the order of the list.
    pub fn pieces(&self, range: Extent) -> impl Iterator<Item = Extent> {
        let first = if self.sorted { self.list.partition_point(|extent| extent.end() <= range.offset) } else { 0 };
        let last = if self.sorted { self.list.partition_point(|extent| extent.offset < range.end()) } else { self.list.len() };
        self.list[first..last.max(first)].iter().filter_map(move |extent| {
            let (start, end) = (extent.offset.max(range.offset), extent.end().min(range.end()));
            (start < end).then(|| Extent { offset: start, bytes: end - start })
        })
    }

    /// Bytes and number of the pieces in a range.
    fn amount(&self, range: Extent) -> Amount {
        self.pieces(range).fold(Amount::default(), |sum, piece| Amount { bytes: sum.bytes + piece.bytes, extents: sum.extents + 1 })
    }
}

/// How much of an access lies in a part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Amount {
    pub bytes: u64,
    pub extents: u64,
}

/// Who exchanges what with whom in one round.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Meetings {
    /// For each rank: the ranks that have something in its part, in order.
    pub in_part_of: Vec<Vec<(u32, Amount)>>,
    /// For each rank: the ranks in whose parts it has something, in order.
    pub parts_of: Vec<Vec<u32>>,
}

impl Meetings {
    /// What a rank has in a part; `None` if it does not meet its owner.
    pub fn amount(&self, rank: u32, part: u32) -> Option<Amount> {
        let list = &self.in_part_of[part as usize];
        list.binary_search_by_key(&rank, |entry| entry.0).ok().map(|index| list[index].1)
    }
}

impl<'a> Group<'a> {
    pub fn new(members: Vec<Member<'a>>, interleaved: bool, buffer: u64, exchange: Exchange) -> Group<'a> {
        let min = members.iter().filter(|member| member.span.bytes > 0).map(|member| member.span.offset).min().unwrap_or(0);
        let max = members.iter().map(|member| member.span.end()).max().unwrap_or(0);
        let plan = Plan::new(interleaved, (min, max.max(min)), members.len() as u64, buffer);
        // Accesses that follow each other rank by rank are as good without an exchange.
        let alone = !members.windows(2).any(|pair| pair[1].span.offset <= pair[0].span.end());
        Group { members, plan, alone, exchange }
    }

    /// The meetings of a round.
    fn meetings(&self, round: u64) -> Meetings {
        let ranks = self.members.len();
        let mut meetings = Meetings { in_part_of: vec![Vec::new(); ranks], parts_of: vec![Vec::new(); ranks] };
        for (rank, member) in (0..).zip(&self.members) {
            if self.exchange == Exchange::Bytes && self.plan.interleaved {
                self.meet_by_pieces(&mut meetings, rank, member, round);
                continue;
            }
            for part in 0..ranks as u32 {
                let range = self.plan.range(u64::from(part), round);
                let spans = member.span.offset < range.end() && member.span.end() > range.offset;
                if !spans {
                    continue;
                }
                let amount = member.amount(range);
                if self.exchange == Exchange::Extents || amount.bytes > 0 {
                    meetings.in_part_of[part as usize].push((rank, amount));
                    meetings.parts_of[rank as usize].push(part);
                }
            }
        }
        meetings
    }

    /// The parts of an interleaved round lie side by side: the pieces of the access say whose parts
    /// they are in. This costs time for each piece and not for each pair of ranks.
    fn meet_by_pieces(&self, meetings: &mut Meetings, rank: u32, member: &Member<'a>, round: u64) {
        let Plan { buffer, ranks, max, .. } = self.plan;
        let offset = self.plan.range(0, round).offset;
        let region = Extent { offset, bytes: (ranks * buffer).min(max.saturating_sub(offset)) };
        for piece in member.pieces(region) {
            let mut at = piece.offset;
            while at < piece.end() {
                let part = (at - offset) / buffer;
                let end = piece.end().min(offset + (part + 1) * buffer);
                let list = &mut meetings.in_part_of[part as usize];
                match list.last_mut() {
                    Some((last, amount)) if *last == rank => {
                        *amount = Amount { bytes: amount.bytes + end - at, extents: amount.extents + 1 }
                    }
                    _ => {
                        list.push((rank, Amount { bytes: end - at, extents: 1 }));
                        meetings.parts_of[rank as usize].push(part as u32);
                    }
                }
                at = end;
            }
        }
        meetings.parts_of[rank as usize].sort_unstable();
    }
}

/// Collective commands in execution.
pub(crate) struct Groups<'a> {
    /// For each communicator: the tasks that have entered the next one, in order of arrival, and
    /// their accesses by rank.
    pub(super) entering: Vec<Entering<'a>>,
    active: Vec<Option<Active<'a>>>,
}

struct Active<'a> {
    group: Arc<Group<'a>>,
    members_left: u32,
    /// Meetings of recent rounds. Ranks that exchange nothing may drift further apart; then they
    /// are worked out again.
    meetings: VecDeque<(u64, Arc<Meetings>)>,
}

/// Rounds whose meetings are kept.
const ROUNDS_KEPT: usize = 3;

#[derive(Default)]
pub(super) struct Entering<'a> {
    pub tasks: Vec<u32>,
    pub members: Vec<Option<Member<'a>>>,
}

impl<'a> Groups<'a> {
    pub fn new(comms: usize) -> Groups<'a> {
        Groups { entering: (0..comms).map(|_| Entering::default()).collect(), active: Vec::new() }
    }

    pub(super) fn add(&mut self, group: Group<'a>) -> u64 {
        let members_left = group.members.len() as u32;
        let entry = Some(Active { group: Arc::new(group), members_left, meetings: VecDeque::new() });
        match self.active.iter().position(Option::is_none) {
            Some(free) => {
                self.active[free] = entry;
                free as u64
            }
            None => {
                self.active.push(entry);
                self.active.len() as u64 - 1
            }
        }
    }

    fn active(&mut self, group: u64) -> &mut Active<'a> {
        self.active[group as usize].as_mut().expect("members leave a group when they are done with it")
    }

    pub(super) fn get(&mut self, group: u64) -> Arc<Group<'a>> {
        Arc::clone(&self.active(group).group)
    }

    /// The meetings of a round; worked out by whoever asks first.
    pub(super) fn meetings(&mut self, group: u64, round: u64) -> Arc<Meetings> {
        let active = self.active(group);
        if let Some((_, meetings)) = active.meetings.iter().find(|entry| entry.0 == round) {
            return Arc::clone(meetings);
        }
        if active.meetings.len() == ROUNDS_KEPT {
            active.meetings.pop_front();
        }
        let meetings = Arc::new(active.group.meetings(round));
        active.meetings.push_back((round, Arc::clone(&meetings)));
        meetings
    }

    pub(super) fn leave(&mut self, group: u64) {
        let entry = &mut self.active[group as usize];
        if let Some(active) = entry {
            active.members_left -= 1;
            if active.members_left == 0 {
                *entry = None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_all_rounds_cover_the_file_once() {
        for interleaved in [false, true] {
            for (max, ranks, buffer) in [(1000, 10, 8), (1003, 7, 16), (5, 10, 8), (64, 1, 7), (1_048_576_000, 10, 8 << 20)] {
                let plan = Plan::new(interleaved, (3, max), ranks, buffer);
                let mut parts: Vec<Extent> = (0..plan.rounds)
                    .flat_map(|round| (0..ranks).map(move |rank| plan.range(rank, round)))
                    .filter(|part| part.bytes > 0)
                    .collect();
                parts.sort_unstable();
                let mut end = 3;
                for part in parts {
                    assert_eq!(part.offset, end, "{plan:?}");
                    end = part.end();
                }
                assert_eq!(end, max, "{plan:?}");
            }
        }
        let thesis = Plan::new(true, (0, 1_048_576_000), 10, 8 << 20);
        assert_eq!((thesis.rounds, thesis.range(4, 12).bytes, thesis.range(5, 12).bytes), (13, 8 << 20, 0));
        assert_eq!(Plan::new(false, (0, 1_048_576_000), 10, 8 << 20).rounds, 13);
    }

    #[test]
    fn pieces_are_found_in_sorted_and_unsorted_lists() {
        let extents = |list: &[(u64, u64)]| list.iter().map(|&(offset, bytes)| Extent { offset, bytes }).collect::<Vec<_>>();
        let range = Extent { offset: 15, bytes: 20 };
        let sorted = Member::new(Cow::Owned(extents(&[(0, 10), (12, 8), (22, 3), (30, 10), (50, 1)])));
        assert!(sorted.sorted);
        assert_eq!(sorted.pieces(range).collect::<Vec<_>>(), extents(&[(15, 5), (22, 3), (30, 5)]));
        let unsorted = Member::new(Cow::Owned(extents(&[(30, 10), (12, 8)])));
        assert!(!unsorted.sorted);
        assert_eq!(unsorted.pieces(range).collect::<Vec<_>>(), extents(&[(30, 5), (15, 5)]));
        assert_eq!(unsorted.amount(Extent { offset: 20, bytes: 10 }), Amount::default());
    }

    #[test]
    fn meetings_by_pieces_are_those_of_every_pair() {
        let mut random = weft_model::random::Lcg48::new(2);
        for _ in 0..200 {
            let members: Vec<Member<'_>> = (0..5)
                .map(|_| {
                    let list = (0..4)
                        .map(|_| Extent { offset: u64::from(random.next_below(200)), bytes: u64::from(random.next_below(30)) + 1 })
                        .collect::<Vec<_>>();
                    Member::new(Cow::Owned(list))
                })
                .collect();
            let group = Group::new(members, true, 8, Exchange::Bytes);
            for round in 0..group.plan.rounds {
                let meetings = group.meetings(round);
                for part in 0..5 {
                    let range = group.plan.range(part, round);
                    let expected: Vec<(u32, Amount)> = (0..)
                        .zip(&group.members)
                        .map(|(rank, member)| (rank, member.amount(range)))
                        .filter(|(_, amount)| amount.bytes > 0)
                        .collect();
                    assert_eq!(meetings.in_part_of[part as usize], expected);
                    for (rank, _) in expected {
                        assert!(meetings.parts_of[rank as usize].contains(&(part as u32)));
                        assert!(meetings.amount(rank, part as u32).is_some());
                    }
                }
            }
        }
    }
}
