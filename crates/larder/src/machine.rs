//! The machine that this process runs on.

/// Its name as the kernel has it; empty where it has none.
pub fn name() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned()
}
