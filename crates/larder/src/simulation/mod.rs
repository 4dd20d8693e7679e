//! A simulation of the whole server: clients, origins, names, time and faults in one process, drawn from a seed, so that a red run can
//! be played again (docs/simulation.md). Streams are in memory and the runtime's clock stands still while there is something to do.

#![cfg(test)]

mod client;
mod disk;
mod draw;
mod judge;
mod law;
mod laws;
mod message;
mod origin;
mod plan;
mod run;
mod server;
mod shrink;
mod tests;
mod thin_pipes;
mod world;
