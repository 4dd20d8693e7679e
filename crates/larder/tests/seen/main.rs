//! What people see of a running Larder, and what they steer it by.

mod admin;
mod logs;
mod reload;
mod stand;
