//! Groups against members that fail, dawdle and lie, by a clock that costs nothing.

mod carp;
mod choices;
mod members_in_trouble;
mod play;
