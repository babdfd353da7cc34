//! The HDTrace formats of the PIOsimHD tools (project, trace, statistics, relation), read and written. It never opens a file: callers
//! bring the bytes.
