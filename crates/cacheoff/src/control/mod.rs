//! The control connection between a coordinator and an agent: TLS 1.3 whose ends prove to each other that they have the same
//! token, messages of a limited size, and a clock read across it. It knows nothing of runs.

mod channel;
mod clock;
mod token;

pub use channel::{Channel, Received, accept, connect};
pub use clock::{OFFSET_MAX_US, Offset, Samples};
pub use token::Token;
