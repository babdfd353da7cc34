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

    /// Counts service that another station gave.
    pub(crate) fn count(&mut self, service: u64) {
        self.busy_ns += service;
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

    /// A job of a process with these threads on a machine with those cores: it begins when both a
    /// thread and a core are free, and nothing interrupts it. Of the cores that are free by then it
    /// takes the one that became free last, so that it leaves no gap where others would fit.
    pub fn serve_on(&mut self, machine: &mut Cores, now: u64, service: u64) -> u64 {
        let thread = self.free_at.iter_mut().min().expect("there is at least one thread");
        let begin = (*thread).max(now);
        let free = machine.free_at.iter().enumerate().filter(|(_, free_at)| **free_at <= begin).max_by_key(|(_, free_at)| **free_at);
        let core = free.or_else(|| machine.free_at.iter().enumerate().min_by_key(|(_, free_at)| **free_at)).map_or(0, |(core, _)| core);
        let end = begin.max(machine.free_at[core]).saturating_add(service);
        machine.free_at[core] = end;
        *thread = end;
        self.busy_ns += service;
        machine.busy_ns += service;
        end
    }

    /// True if a core has nothing to do at `now`.
    pub fn is_any_idle(&self, now: u64) -> bool {
        self.free_at.iter().any(|free_at| *free_at <= now)
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

    #[test]
    fn processes_of_one_machine_share_its_cores_and_leave_no_gaps() {
        let mut machine = Cores::new(2);
        let [mut first, mut second, mut third] = [(); 3].map(|()| Cores::new(1));
        // One thread is on one core at a time, however many are free.
        assert_eq!([0, 0, 0].map(|now| first.serve_on(&mut machine, now, 10)), [10, 20, 30]);
        assert_eq!([0, 0, 0].map(|now| second.serve_on(&mut machine, now, 10)), [10, 20, 30], "on the other core");
        assert!(!machine.is_any_idle(29) && machine.is_any_idle(30));
        assert_eq!(third.serve_on(&mut machine, 5, 10), 40, "no core is free before");
        assert_eq!((machine.busy_ns(), third.busy_ns()), (70, 10));
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
