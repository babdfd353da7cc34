//! Conversations with gateways over real servers in virtual time, call by call as they are on the
//! wire.

mod coherence;
mod conversations;
mod gone;
mod histories;
mod locks;
mod repeats;
mod rights;
mod room;
mod silence;
mod together;
mod world;
