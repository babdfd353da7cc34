//! Models of hardware in virtual time: an event engine, network cards, switches, disks and processors, as the PIOsimHD thesis (2009)
//! describes them and beyond. It never runs real servers; that is what `runtime/rt-sim` does.
