//! Trace records: what happened to one operation, where and when, written at a cost of some nanoseconds into a ring of each thread. It
//! never blocks the thread that records, and never loses a record without counting it.
