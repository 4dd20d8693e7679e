//! System calls that a server does not need, refused with EPERM by a filter (seccomp) that all threads have.
//!
//! The filter names what is refused and not what is permitted: the C libraries, the allocator and the kernel's newer calls for old work
//! differ from system to system, and a server that fails at a call nobody foresaw is no safer.

use super::connections::Connections;
use super::named::{Named, Programs};
use libc::{SYS_clone, SYS_clone3, SYS_execve, SYS_execveat, SYS_socket};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    apply_filter_all_threads,
};
use std::collections::BTreeMap;
use std::fmt::Display;

/// The bound without programs, in words.
pub(super) const ALONE: &str = "no programs, no other processes, no owners of files, no tracing, mounts, namespaces, modules or keys of the kernel, no sockets but TCP, UDP and Unix (seccomp)";

/// The bound with programs, in words.
pub(super) const WITH_PROGRAMS: &str =
    "no tracing, mounts, namespaces, modules or keys of the kernel, no sockets but TCP, UDP and Unix (seccomp)";

/// open_tree_attr(2), setxattrat(2), removexattrat(2) and file_setattr(2), which Linux has from 6.13 to 6.17 on, and the C library's
/// names not yet. Their numbers are those of all architectures.
const OPEN_TREE_ATTR: i64 = 467;
const NEW_ATTRIBUTES: [i64; 3] = [463, 466, 469];

/// Requests of ioctl(2) that put letters into the input of a terminal, whose shell carries them out: TIOCSTI and TIOCLINUX. A terminal
/// that was open before is not Landlock's matter.
const TYPING: [u64; 2] = [0x5412, 0x541C];

/// Flags of clone(2) by which a process begins in a namespace of its own, with all rights there.
const NAMESPACES: [i32; 7] = [
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWNET,
    libc::CLONE_NEWNS,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWUTS,
];

/// Refused in any case.
const NEVER: [i64; 50] = [
    libc::SYS_acct,
    libc::SYS_add_key,
    libc::SYS_adjtimex,
    libc::SYS_bpf,
    libc::SYS_chroot,
    libc::SYS_clock_adjtime,
    libc::SYS_clock_settime,
    libc::SYS_delete_module,
    libc::SYS_fanotify_init,
    libc::SYS_finit_module,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fsopen,
    libc::SYS_fspick,
    libc::SYS_init_module,
    // A ring opens files and sockets past any filter.
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_io_uring_setup,
    libc::SYS_kcmp,
    libc::SYS_kexec_load,
    libc::SYS_keyctl,
    libc::SYS_lookup_dcookie,
    libc::SYS_mount,
    libc::SYS_mount_setattr,
    libc::SYS_move_mount,
    libc::SYS_open_by_handle_at,
    libc::SYS_open_tree,
    OPEN_TREE_ATTR,
    libc::SYS_perf_event_open,
    libc::SYS_personality,
    libc::SYS_pidfd_getfd,
    libc::SYS_pivot_root,
    libc::SYS_process_madvise,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_ptrace,
    libc::SYS_quotactl,
    libc::SYS_reboot,
    libc::SYS_request_key,
    libc::SYS_setdomainname,
    libc::SYS_sethostname,
    libc::SYS_setns,
    libc::SYS_settimeofday,
    libc::SYS_swapoff,
    libc::SYS_swapon,
    libc::SYS_syslog,
    libc::SYS_umount2,
    libc::SYS_unshare,
    libc::SYS_userfaultfd,
    libc::SYS_vhangup,
];

/// Refused too, of those that x86-64 alone has.
#[cfg(target_arch = "x86_64")]
const NEVER_OF_ARCHITECTURE: [i64; 4] =
    [libc::SYS_ioperm, libc::SYS_iopl, libc::SYS_kexec_file_load, libc::SYS_modify_ldt];
#[cfg(not(target_arch = "x86_64"))]
const NEVER_OF_ARCHITECTURE: [i64; 0] = [];

/// Refused too, where no program is to be started: programs, the owners and further attributes of files, which Landlock leaves alone,
/// files that are cut short by their names, which it knows from Linux 6.2 on, and the memory that other programs share.
const PROGRAMS: [i64; 13] = [
    SYS_execve,
    SYS_execveat,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_fsetxattr,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    libc::SYS_fremovexattr,
    libc::SYS_truncate,
    libc::SYS_shmget,
    libc::SYS_shmat,
];

/// Kinds of sockets that are left. The C library asks the kernel for addresses of this machine by the last one.
const FAMILIES: [i32; 4] = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];

/// Protocols of IP that are left. Landlock knows the ports of TCP alone, and another protocol may be TCP under its own number (MPTCP).
const PROTOCOLS: [i32; 3] = [0, libc::IPPROTO_TCP, libc::IPPROTO_UDP];

const FAST_OPEN: u64 = libc::MSG_FASTOPEN as u64;

/// Calls of the x32 interface have this bit on x86-64, and some of them numbers of their own.
#[cfg(target_arch = "x86_64")]
const X32: (i64, std::ops::RangeInclusive<i64>) = (0x4000_0000, 512..=547);

/// Has all threads give up the calls; it holds for those that they start too.
pub(super) fn give_up(named: &Named) -> Result<(), String> {
    let may_start_programs = named.programs != Programs::None;
    let mut refused: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    let programs = PROGRAMS.iter().chain(&NEW_ATTRIBUTES).filter(|_| !may_start_programs);
    for &call in NEVER.iter().chain(&NEVER_OF_ARCHITECTURE).chain(programs) {
        refused.insert(call, Vec::new());
    }
    let typing = TYPING.iter().map(|&request| rule([condition(1, SeccompCmpOp::Eq, request)]));
    refused.insert(libc::SYS_ioctl, typing.collect::<Result<_, _>>()?);
    let mut sockets = vec![none_of(0, &FAMILIES)?];
    if may_start_programs {
        let begins = NAMESPACES.iter().map(|kind| {
            let bit = kind.unsigned_abs().into();
            rule([condition(0, SeccompCmpOp::MaskedEq(bit), bit)])
        });
        refused.insert(SYS_clone, begins.collect::<Result<_, _>>()?);
    } else {
        // Limits of other processes, which end them too.
        refused.insert(libc::SYS_prlimit64, vec![rule([condition(0, SeccompCmpOp::Ne, 0)])?]);
        // A thread is a process that shares all with others.
        let threads = SeccompCmpOp::MaskedEq(libc::CLONE_THREAD as u64);
        refused.insert(SYS_clone, vec![rule([condition(0, threads, 0)])?]);
        sockets.push(none_of(2, &PROTOCOLS)?);
        #[cfg(target_arch = "x86_64")]
        for call in [libc::SYS_fork, libc::SYS_vfork, libc::SYS_chown, libc::SYS_lchown] {
            refused.insert(call, Vec::new());
        }
    }
    refused.insert(SYS_socket, sockets);
    if matches!(named.connected, Connections::To(_)) {
        // A connection that begins with data (TCP Fast Open) is one that Landlock does not see.
        let begins = |argument| condition(argument, SeccompCmpOp::MaskedEq(FAST_OPEN), FAST_OPEN);
        for (call, flags) in [(libc::SYS_sendto, 3), (libc::SYS_sendmsg, 2), (libc::SYS_sendmmsg, 3)] {
            refused.insert(call, vec![rule([begins(flags)])?]);
        }
    }
    #[cfg(target_arch = "x86_64")]
    {
        let (bit, own) = X32;
        let same: Vec<i64> = refused.keys().map(|call| call | bit).collect();
        refused.extend(same.into_iter().chain(own.map(|call| call | bit)).map(|call| (call, Vec::new())));
    }
    apply(filter(refused, libc::EPERM)?)?;
    // Its flags lie in memory, where no filter looks: the C library goes back to clone(2) where it is not there.
    apply(filter(BTreeMap::from([(SYS_clone3, Vec::new())]), libc::ENOSYS)?)
}

fn filter(refused: BTreeMap<i64, Vec<SeccompRule>>, error: i32) -> Result<BpfProgram, String> {
    let architecture = std::env::consts::ARCH.try_into().map_err(in_words)?;
    let answer = SeccompAction::Errno(error.unsigned_abs());
    let filter = SeccompFilter::new(refused, SeccompAction::Allow, answer, architecture).map_err(in_words)?;
    filter.try_into().map_err(in_words)
}

fn apply(program: BpfProgram) -> Result<(), String> {
    apply_filter_all_threads(&program).map_err(in_words)
}

fn rule(conditions: impl IntoIterator<Item = Result<SeccompCondition, String>>) -> Result<SeccompRule, String> {
    let conditions = conditions.into_iter().collect::<Result<Vec<_>, _>>()?;
    SeccompRule::new(conditions).map_err(in_words)
}

/// An argument that is none of these numbers.
fn none_of(argument: u8, numbers: &[i32]) -> Result<SeccompRule, String> {
    rule(numbers.iter().map(|&number| condition(argument, SeccompCmpOp::Ne, number.unsigned_abs().into())))
}

/// A condition of an argument, of which the kernel reads the lower half.
fn condition(argument: u8, op: SeccompCmpOp, value: u64) -> Result<SeccompCondition, String> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, op, value).map_err(in_words)
}

fn in_words(error: impl Display) -> String {
    error.to_string()
}
