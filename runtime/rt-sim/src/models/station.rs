//! First-come-first-served stations with one or several servers.

/// One server with a queue of any length: a direction of a network card, or a disk.
#[derive(Clone, Debug, Default)]
pub struct Station {
    free_at: u64,
    busy_ns: u64,
}

impl Station {
    /// A job of `service` nanoseconds arrives at `now`. Gives when its service begins and ends.
    /// Jobs must arrive in order of time.
    pub fn serve(&mut self, now: u64, service: u64) -> (u64, u64) {
        let begin = self.free_at.max(now);
        self.free_at = begin.saturating_add(service);
        self.busy_ns += service;
        (begin, self.free_at)
    }

    /// Like [`Station::serve`], but the job cannot end before `earliest_end` and keeps the station
    /// until then (the receiving side of a transfer that the sender cannot feed faster).
    pub fn serve_until(&mut self, now: u64, service: u64, earliest_end: u64) -> u64 {
        let (_, end) = self.serve(now, service);
        self.free_at = end.max(earliest_end);
        self.free_at
    }

    /// Forgets its queue, as a machine does that loses power.
    pub fn clear(&mut self) {
        self.free_at = 0;
    }

    /// Nanoseconds of service so far.
    pub fn busy_ns(&self) -> u64 {
        self.busy_ns
    }
}

/// Several equal servers with one queue: the cores of a node. A job runs on the core that is free
/// first.
#[derive(Clone, Debug)]
pub struct Cores {
    free_at: Vec<u64>,
    busy_ns: u64,
}

impl Cores {
    /// So many cores, at least one.
    pub fn new(count: usize) -> Cores {
        Cores { free_at: vec![0; count.max(1)], busy_ns: 0 }
    }

    /// A job of `service` nanoseconds arrives at `now`; gives when it ends.
    pub fn serve(&mut self, now: u64, service: u64) -> u64 {
        let core = self.free_at.iter_mut().min().expect("there is at least one core");
        *core = (*core).max(now).saturating_add(service);
        self.busy_ns += service;
        *core
    }

    /// Forgets all jobs, as a process does that dies.
    pub fn clear(&mut self) {
        self.free_at.fill(0);
    }

    /// Nanoseconds of service so far, all cores together.
    pub fn busy_ns(&self) -> u64 {
        self.busy_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Random;

    #[test]
    fn a_station_serves_in_order() {
        let mut station = Station::default();
        assert_eq!(station.serve(10, 5), (10, 15));
        assert_eq!(station.serve(11, 5), (15, 20));
        assert_eq!(station.serve(100, 5), (100, 105));
        assert_eq!(station.serve_until(105, 5, 200), 200);
        assert_eq!(station.serve(106, 1), (200, 201));
        assert_eq!(station.busy_ns(), 21);
    }

    #[test]
    fn two_cores_work_side_by_side() {
        let mut cores = Cores::new(2);
        assert_eq!([cores.serve(0, 10), cores.serve(0, 10), cores.serve(0, 10), cores.serve(1, 4)], [10, 10, 20, 14]);
    }

    /// Poisson arrivals at a station with a fixed service time: the mean wait is that of M/D/1, u s
    /// / (2 (1 - u)).
    #[test]
    fn mean_wait_follows_the_md1_formula() {
        const SERVICE: u64 = 1000;
        for utilisation in [0.3, 0.6, 0.9] {
            let mut random = Random::new(42);
            let (mut station, mut now, mut waited) = (Station::default(), 0.0f64, 0.0f64);
            let jobs = 400_000;
            for _ in 0..jobs {
                let uniform = (random.draw() >> 11) as f64 / (1u64 << 53) as f64;
                now += -(1.0 - uniform).ln() * SERVICE as f64 / utilisation;
                let (begin, _) = station.serve(now as u64, SERVICE);
                waited += (begin - now as u64) as f64;
            }
            let expected = utilisation * SERVICE as f64 / (2.0 * (1.0 - utilisation));
            let ratio = waited / f64::from(jobs) / expected;
            assert!((0.95..1.05).contains(&ratio), "utilisation {utilisation}: mean wait is {ratio} of the formula");
        }
    }
}
