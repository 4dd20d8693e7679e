//! Robots: each draws what to ask, asks it from its own address, and judges what it got.
