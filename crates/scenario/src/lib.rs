//! Plays scripted clients and origins around any proxy, malformed bytes included.
