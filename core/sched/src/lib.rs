//! Cache layers of a data server: which queued access the disk gets next, decided by pure functions of state and time. The real data
//! server and the simulator run the same code. It never does I/O and never reads a clock.
