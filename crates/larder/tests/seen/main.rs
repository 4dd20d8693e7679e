//! What people see of a running Larder, and what they steer it by.

mod logs;
mod stand;
