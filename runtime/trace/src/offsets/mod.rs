//! How the clocks of several nodes stand to each other, from the requests between them.
//!
//! A request has four times: sent (t1) and answered (t4) by the client's clock, received (t2) and
//! replied (t3) by the server's. Nothing arrives before it was sent. So when the client's clock
//! showed t1, the server's showed at most t2; and when the client's showed t4, the server's showed
//! at least t3. Each request bounds the difference of the clocks from both sides, at two moments,
//! whatever the network did.
//!
//! Two clocks of quartz differ by a straight line, at least for as long as nobody turns them. Of
//! all lines between the upper and the lower bounds one is chosen, and the error is the distance to
//! the farthest of the others. Only the convex hulls of the bounds matter, which are short: Moon,
//! Skelly and Towsley, "Estimation and removal of clock skew from network delay measurements"
//! (INFOCOM 1999), section 4, where one side is used; as there the line runs below or above all
//! points, never through their middle, so queues do not move it. With one request only, the offset
//! is that of NTP, ((t2 - t1) + (t3 - t4)) / 2, and so is its error (Mills, RFC 5905, section 8).

mod bounds;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use self::bounds::{Bounds, Tie};

/// Two clocks drift apart by less than this. It is the largest frequency error that NTP corrects
/// (RFC 5905, MAXFREQ); quartz has a fifth of it.
pub const RATE_MAX: f64 = 500e-6;

/// From the times of one clock to those of another.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Line {
    /// A moment on the first clock, in nanoseconds.
    pub at_ns: i64,
    /// The second clock minus the first one at that moment, in nanoseconds.
    pub offset_ns: i64,
    /// By so much it grows in each nanosecond.
    pub rate: f64,
}

impl Line {
    /// What the second clock shows when the first one shows `at_ns`.
    pub fn apply(&self, at_ns: i64) -> i64 {
        at_ns.saturating_add(self.offset_ns).saturating_add((self.rate * at_ns.saturating_sub(self.at_ns) as f64).round() as i64)
    }

    /// From the second clock to the first.
    fn inverse(&self) -> Line {
        let at_ns = self.at_ns.saturating_add(self.offset_ns);
        Line { at_ns, offset_ns: self.offset_ns.saturating_neg(), rate: 1.0 / (1.0 + self.rate) - 1.0 }
    }

    /// From the first clock of this line to the second one of `next`.
    fn then(&self, next: &Line) -> Line {
        let between = self.apply(self.at_ns);
        let offset_ns = self.offset_ns.saturating_add(next.apply(between).saturating_sub(between));
        Line { at_ns: self.at_ns, offset_ns, rate: (1.0 + self.rate) * (1.0 + next.rate) - 1.0 }
    }
}

/// A node's clock against that of the first node.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeClock {
    /// Was added to the node's times at [`NodeClock::at_ns`], in nanoseconds.
    pub offset_ns: i64,
    /// A moment on the node's own clock, in nanoseconds.
    pub at_ns: i64,
    /// What was added grew by so many nanoseconds in each nanosecond from then on; 0 unless the
    /// requests prove that the clocks drift.
    pub rate: f64,
    /// All times of the node are right within so many nanoseconds, if the clocks differ by a
    /// straight line; `None`: nothing ties the node to the first one, its times are not comparable.
    pub error_ns: Option<u64>,
    /// Requests it was computed from.
    pub samples: u64,
}

impl NodeClock {
    /// The same moment by the clock of the first node.
    pub fn common(&self, at_ns: i64) -> i64 {
        Line { at_ns: self.at_ns, offset_ns: self.offset_ns, rate: self.rate }.apply(at_ns)
    }
}

/// The four times of one request, each in nanoseconds of its node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FourTimes {
    /// Position of the node that asked, and of the one that answered.
    pub client: usize,
    pub server: usize,
    /// Sent.
    pub t1: i64,
    /// Received.
    pub t2: i64,
    /// Replied.
    pub t3: i64,
    /// Answered.
    pub t4: i64,
}

/// The clock of every node. `domains` names the clock of each; nodes of one domain share it.
/// `spans` are the first and the last moment that each node has recorded, by its own clock.
pub(crate) fn clocks(domains: &[String], spans: &[RangeInclusive<i64>], requests: &[FourTimes]) -> Vec<NodeClock> {
    let ties = ties(domains, requests);
    let unknown = NodeClock { offset_ns: 0, at_ns: 0, rate: 0.0, error_ns: None, samples: 0 };
    let Some(first) = domains.first() else { return Vec::new() };
    let paths = surest_paths(first, &ties);
    let clock = |(domain, span): (&String, &RangeInclusive<i64>)| {
        let Some(path) = paths.get(domain.as_str()) else { return unknown.clone() };
        let line = path.iter().fold(Line { at_ns: *span.start(), ..Line::default() }, |line, step| line.then(&step.line()));
        // The distance to a line is greatest at one of the ends.
        let error_at = |at: i64| {
            let walk = |(at, error): (i64, f64), step: &Step<'_>| (step.line().apply(at), error + step.error_at(at));
            path.iter().fold((at, 0.0), walk).1
        };
        let error_ns = error_at(*span.start()).max(error_at(*span.end())).ceil() as u64;
        let samples = path.iter().map(|step| step.tie.samples).sum();
        NodeClock { offset_ns: line.offset_ns, at_ns: line.at_ns, rate: line.rate, error_ns: Some(error_ns), samples }
    };
    domains.iter().zip(spans).map(clock).collect()
}

/// Requests whose server worked on them before they were sent or after they were answered, by more
/// than the error of the clocks.
pub(crate) fn causality_violations(domains: &[String], clocks: &[NodeClock], requests: &[FourTimes]) -> u64 {
    let violates = |request: &&FourTimes| {
        let FourTimes { client, server, t1, t2, t3, t4 } = **request;
        if domains[client] == domains[server] {
            return t2 < t1 || t3 > t4;
        }
        let (Some(one), Some(other)) = (clocks[client].error_ns, clocks[server].error_ns) else { return false };
        let slack = i64::try_from(one.saturating_add(other)).unwrap_or(i64::MAX);
        let (client, server) = (&clocks[client], &clocks[server]);
        server.common(t2).saturating_add(slack) < client.common(t1) || server.common(t3) > client.common(t4).saturating_add(slack)
    };
    requests.iter().filter(violates).count() as u64
}

/// A tie on the way from a node to the first one.
struct Step<'a> {
    tie: &'a Tie,
    /// From the second clock of the tie to the first one.
    is_back: bool,
}

impl Step<'_> {
    fn line(&self) -> Line {
        if self.is_back { self.tie.line.inverse() } else { self.tie.line }
    }

    /// In nanoseconds of the first clock or of the second, which is the same but for a rate of a
    /// rate.
    fn error_at(&self, at_ns: i64) -> f64 {
        self.tie.error_at(if self.is_back { self.tie.line.inverse().apply(at_ns) } else { at_ns })
    }
}

/// By the names of two clocks in alphabetical order.
type Ties<'a> = BTreeMap<(&'a str, &'a str), Tie>;

fn ties<'a>(domains: &'a [String], requests: &[FourTimes]) -> Ties<'a> {
    let mut bounds: BTreeMap<(&str, &str), Bounds> = BTreeMap::new();
    for request in requests {
        let (client, server) = (domains[request.client].as_str(), domains[request.server].as_str());
        let FourTimes { t1, t2, t3, t4, .. } = *request;
        if client < server {
            bounds.entry((client, server)).or_default().request((t1, t2), (t4, t3));
        } else if server < client {
            bounds.entry((server, client)).or_default().request((t3, t4), (t2, t1));
        }
    }
    bounds.into_iter().filter_map(|(pair, bounds)| Some((pair, bounds.tie()?))).collect()
}

/// For each clock that is tied to `first`, the ties on the surest way to it (Dijkstra over their
/// errors).
fn surest_paths<'a>(first: &'a str, ties: &'a Ties<'a>) -> BTreeMap<&'a str, Vec<Step<'a>>> {
    let mut errors: BTreeMap<&str, f64> = BTreeMap::from([(first, 0.0)]);
    let mut towards: BTreeMap<&str, (&str, &str)> = BTreeMap::new();
    let mut done: BTreeSet<&str> = BTreeSet::new();
    let nearest = |errors: &BTreeMap<&'a str, f64>, done: &BTreeSet<&str>| {
        let open = errors.iter().filter(|(name, _)| !done.contains(**name));
        open.min_by(|a, b| a.1.total_cmp(b.1)).map(|(name, error)| (*name, *error))
    };
    while let Some((name, error)) = nearest(&errors, &done) {
        done.insert(name);
        for (&(one, other), tie) in ties.iter().filter(|((one, other), _)| *one == name || *other == name) {
            let next = if one == name { other } else { one };
            let longer = error + tie.error;
            if !done.contains(next) && errors.get(next).is_none_or(|known| longer < *known) {
                errors.insert(next, longer);
                towards.insert(next, (one, other));
            }
        }
    }
    let path = |mut name: &'a str| {
        let mut steps = Vec::new();
        while let Some(pair) = towards.get(name) {
            let is_back = pair.1 == name;
            steps.push(Step { tie: &ties[pair], is_back });
            name = if is_back { pair.0 } else { pair.1 };
        }
        steps
    };
    done.iter().map(|name| (*name, path(name))).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: i64 = 1_000_000_000;

    /// A clock by true time: it shows `offset` at 0 and gains `ppm` from then on.
    #[derive(Clone, Copy, Debug)]
    struct Quartz {
        offset: i64,
        ppm: f64,
    }

    impl Quartz {
        const TRUE: Quartz = Quartz { offset: 0, ppm: 0.0 };

        fn shows(&self, time: i64) -> i64 {
            time + self.offset + (time as f64 * self.ppm * 1e-6).round() as i64
        }
    }

    /// Delays that repeat only after a long time.
    fn delay(number: i64, least: i64, spread: i64) -> i64 {
        least + (number.wrapping_mul(0x9E37_79B9_7F4A_7C15_u64 as i64) >> 33).rem_euclid(spread + 1)
    }

    /// A request at this true time that is on the way for `there` and `back`, and served in 10 us.
    fn request(nodes: [usize; 2], quartz: [Quartz; 2], at: i64, there: i64, back: i64) -> FourTimes {
        let (arrived, replied) = (at + there, at + there + 10_000);
        let [client, server] = quartz;
        let (t2, t3) = (server.shows(arrived), server.shows(replied));
        FourTimes { client: nodes[0], server: nodes[1], t1: client.shows(at), t2, t3, t4: client.shows(replied + back) }
    }

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(ToString::to_string).collect()
    }

    /// By how much the times of node 1, mapped to those of node 0, are wrong at most between two
    /// true times.
    fn wrong_by(clock: &NodeClock, quartz: [Quartz; 2], from: i64, to: i64) -> u64 {
        let wrong = |part: i64| {
            let time = from + (to - from) / 100 * part;
            clock.common(quartz[1].shows(time)).abs_diff(quartz[0].shows(time))
        };
        (0..=100).map(wrong).max().expect("there are moments")
    }

    /// Two machines for ten minutes, one of which gains 50 us a second: at the end it is 30 ms
    /// ahead.
    #[test]
    fn clocks_that_drift_are_followed_within_the_stated_error() {
        let quartz = [Quartz { offset: 7 * SECOND, ppm: -20.0 }, Quartz { offset: -3 * SECOND, ppm: 30.0 }];
        let end = 600 * SECOND;
        let ask =
            |number: i64| request([0, 1], quartz, number * end / 6000, delay(number, 20_000, 900_000), delay(!number, 30_000, 900_000));
        let requests: Vec<FourTimes> = (0..6000).map(ask).collect();
        let domains = names(&["boron", "chlorine"]);
        let spans = quartz.map(|quartz| quartz.shows(0)..=quartz.shows(end));
        let found = clocks(&domains, &spans, &requests);
        let clock = &found[1];
        let error = clock.error_ns.expect("tied");
        let wrong = wrong_by(clock, quartz, 0, end);
        assert!(wrong <= error, "{wrong} > {error}: {clock:?}");
        // The shortest way there and back takes 60 us together; requests with both are rare.
        assert!(error < 60_000, "{clock:?}");
        assert!((clock.rate * 1e6 + 50.0).abs() < 0.2, "{clock:?}");
        assert_eq!((clock.samples, causality_violations(&domains, &found, &requests)), (6000, 0));
        // What one number for all the time would be wrong by.
        let constant = NodeClock { rate: 0.0, ..clock.clone() };
        assert!(wrong_by(&constant, quartz, 0, end) > 10_000_000);
    }

    #[test]
    fn a_rate_is_not_invented() {
        let quartz = [Quartz::TRUE, Quartz { offset: 1_000, ppm: 0.5 }];
        let requests: Vec<FourTimes> = (0..100).map(|number| request([0, 1], quartz, number * 10_000_000, 40_000, 50_000)).collect();
        let spans = quartz.map(|quartz| quartz.shows(0)..=quartz.shows(SECOND));
        let clock = clocks(&names(&["a", "b"]), &spans, &requests).remove(1);
        assert_eq!(clock.rate, 0.0, "half a microsecond a second is less than is known");
        assert!(wrong_by(&clock, quartz, 0, SECOND) <= clock.error_ns.expect("tied"));
    }

    /// The way back is 4 ms longer: nobody can know it, so the error says it.
    #[test]
    fn a_way_that_is_longer_in_one_direction_makes_the_error_larger() {
        let quartz = [Quartz::TRUE, Quartz { offset: SECOND, ppm: 0.0 }];
        let clock_with = |back: i64| {
            let requests: Vec<FourTimes> = (0..50).map(|number| request([0, 1], quartz, number * 1_000_000, 20_000, back)).collect();
            let spans = quartz.map(|quartz| quartz.shows(0)..=quartz.shows(50_000_000));
            clocks(&names(&["a", "b"]), &spans, &requests).remove(1)
        };
        let (short, long) = (clock_with(20_000), clock_with(4_020_000));
        assert!((20_000..25_000).contains(&short.error_ns.expect("tied")), "{short:?}");
        assert!((2_020_000..2_030_000).contains(&long.error_ns.expect("tied")), "{long:?}");
        assert!(wrong_by(&long, quartz, 0, 50_000_000) <= 2_030_000);
    }

    /// Times far from the requests are known as badly as the rate.
    #[test]
    fn the_error_grows_where_there_are_no_requests() {
        let quartz = [Quartz::TRUE, Quartz { offset: 5, ppm: 300.0 }];
        let requests = [request([0, 1], quartz, 10 * SECOND, 10_000, 10_000)];
        let spans = quartz.map(|quartz| quartz.shows(0)..=quartz.shows(12 * SECOND));
        let clock = clocks(&names(&["a", "b"]), &spans, &requests).remove(1);
        let error = clock.error_ns.expect("tied");
        assert!((5_000_000..5_100_000).contains(&error), "10 s at most 500 us a second: {clock:?}");
        assert!(wrong_by(&clock, quartz, 0, 12 * SECOND) <= error);
    }

    #[test]
    fn a_clock_that_was_turned_makes_the_error_larger() {
        let ask = |number: i64| {
            let turned = Quartz { offset: if number < 50 { 0 } else { 2_000_000 }, ppm: 0.0 };
            request([0, 1], [Quartz::TRUE, turned], number * 10_000_000, 10_000, 10_000)
        };
        let requests: Vec<FourTimes> = (0..100).map(ask).collect();
        let domains = names(&["a", "b"]);
        let found = clocks(&domains, &[0..=SECOND, 0..=SECOND], &requests);
        let error = found[1].error_ns.expect("tied");
        assert!((700_000..1_200_000).contains(&error), "a line through a step of 2 ms: {found:?}");
        assert_eq!(causality_violations(&domains, &found, &requests), 0, "within the error");
    }

    #[test]
    fn nodes_of_one_domain_share_what_is_known_of_it() {
        let far = Quartz { offset: 77 * SECOND, ppm: 0.0 };
        let ask = |nodes, quartz, at| request(nodes, quartz, at, 10_000, 10_000);
        // Nobody of `a` has asked node 2, which asks a node of a third machine; node 4 has been
        // asked by nobody.
        let requests = [
            ask([0, 1], [Quartz::TRUE, far], 0),
            ask([2, 3], [far, Quartz::TRUE], 1_000_000),
            // Served before it was sent, on one machine.
            FourTimes { client: 1, server: 2, t1: 100, t2: 99, t3: 110, t4: 120 },
        ];
        let domains = names(&["a", "b", "b", "c", "d"]);
        let spans: Vec<_> = [Quartz::TRUE, far, far, Quartz::TRUE, far].map(|quartz| quartz.shows(0)..=quartz.shows(1_000_000)).into();
        let found = clocks(&domains, &spans, &requests);
        let known: Vec<_> = found.iter().map(|clock| (clock.offset_ns.abs_diff(0), clock.error_ns.is_some())).collect();
        assert_eq!(known, [(0, true), (77 * SECOND as u64, true), (77 * SECOND as u64, true), (0, true), (0, false)]);
        assert!(found[3].error_ns > found[1].error_ns && found[0].error_ns == Some(0));
        assert_eq!(causality_violations(&domains, &found, &requests), 1);
    }

    proptest! {
        /// Whatever the clocks and the network do, the truth is within the error.
        #[test]
        fn the_error_is_never_too_small(
            offset in -1_000_000 * SECOND..1_000_000 * SECOND, ppm in -240.0..240.0f64, other in -240.0..240.0f64,
            ways in prop::collection::vec((0i64..2_000, 0i64..5_000_000, 0i64..5_000_000, any::<bool>()), 1..40),
        ) {
            let quartz = [Quartz { offset: 3, ppm: other }, Quartz { offset, ppm }];
            let requests: Vec<FourTimes> = ways.iter().map(|(at, there, back, turned)| match turned {
                false => request([0, 1], quartz, at * 10_000_000, *there, *back),
                true => request([1, 0], [quartz[1], quartz[0]], at * 10_000_000, *there, *back),
            }).collect();
            let spans = quartz.map(|quartz| quartz.shows(0)..=quartz.shows(20 * SECOND));
            let domains = names(&["a", "b"]);
            let found = clocks(&domains, &spans, &requests);
            let error = found[1].error_ns.expect("tied");
            let wrong = wrong_by(&found[1], quartz, 0, 20 * SECOND);
            // The quartz is rounded to nanoseconds, three times on the way.
            prop_assert!(wrong <= error + 3, "{} > {}", wrong, error);
            prop_assert_eq!(causality_violations(&domains, &found, &requests), 0);
            // Seen from the other side it is the same.
            let mirrored: Vec<FourTimes> = requests.iter().map(|one| FourTimes { client: 1 - one.client, server: 1 - one.server, ..*one }).collect();
            let [one, two] = &spans;
            let back = clocks(&names(&["b", "a"]), &[two.clone(), one.clone()], &mirrored);
            let wrong = wrong_by(&back[1], [quartz[1], quartz[0]], 0, 20 * SECOND);
            prop_assert!(wrong <= back[1].error_ns.expect("tied") + 3);
        }
    }
}
