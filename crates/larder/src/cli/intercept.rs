//! `larder intercept --print`: the rules of the kernel (nftables, and routes for TPROXY) that bring connections of clients to the transparent
//! listeners of a configuration. It prints and changes nothing.

use super::{Flags, WRONG, print};
use crate::config::{Config, Listen, Transparent};
use crate::diagnostics;
use clap::Args;
use std::fmt::Write;
use std::net::IpAddr;

/// The mark of packets that TPROXY has taken, and the table of routes that brings them to this machine.
const MARK: u32 = 0x1a;
const TABLE: u32 = 0x1a;

#[derive(Args)]
pub(super) struct InterceptFlags {
    /// Print them; nothing is changed
    #[arg(long, required = true)]
    print: bool,
    /// The interface to which clients are connected
    #[arg(long, value_name = "NAME", default_value = "lan0")]
    interface: String,
    /// A port whose connections are brought here; may be repeated
    #[arg(long = "port", value_name = "PORT", default_values_t = [80, 443])]
    ports: Vec<u16>,
    #[command(flatten)]
    flags: Flags,
}

pub(super) fn intercept(flags: &InterceptFlags) -> u8 {
    let loaded = match flags.flags.load() {
        Ok(loaded) => loaded,
        Err(status) => return status,
    };
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-' | b'@');
    if flags.interface.is_empty() || !flags.interface.bytes().all(is_name) {
        diagnostics::say(format_args!("error: --interface {:?} is no name of an interface", flags.interface));
        return WRONG;
    }
    match rules(&loaded.config, &flags.interface, &flags.ports) {
        Some(text) => print(text),
        None => {
            diagnostics::say(format_args!(
                "error: no listener is transparent: set `transparent = \"redirect\"` or \"tproxy\" in a [[listen]] (docs/transparent.md)"
            ));
            WRONG
        }
    }
}

/// The rules for all transparent listeners; `None` where there is none.
fn rules(config: &Config, interface: &str, ports: &[u16]) -> Option<String> {
    let ports: Vec<String> = ports.iter().map(u16::to_string).collect();
    let what = format!("iifname \"{interface}\" tcp dport {{ {} }}", ports.join(", "));
    let of = |kind: Transparent| config.listens.iter().filter(move |listen| listen.transparent == kind);
    let chain = |name: &str, hook: &str, kind: Transparent| {
        let statements: String = of(kind).map(|listen| statements(listen, &what)).collect();
        match statements.is_empty() {
            true => String::new(),
            // Connections to this machine itself, as to its page, are left alone.
            false => format!(
                "    chain {name} {{\n        type {hook}; policy accept;\n        fib daddr type local return\n{statements}    }}\n"
            ),
        }
    };
    let redirect = chain("by_redirect", "nat hook prerouting priority dstnat", Transparent::Redirect);
    let tproxy = chain("by_tproxy", "filter hook prerouting priority mangle", Transparent::Tproxy);
    if redirect.is_empty() && tproxy.is_empty() {
        return None;
    }
    let mut text = String::from(
        "#!/usr/sbin/nft -f\n# Load it with `nft -f FILE`; `nft delete table inet larder` takes it back.\n",
    );
    if !tproxy.is_empty() {
        text += "# TPROXY needs these routes too, which are gone at the next start of the machine:\n";
        for (command, any) in [("ip", "0.0.0.0/0"), ("ip -6", "::/0")] {
            let _ = writeln!(text, "#   {command} rule add fwmark {MARK:#x} lookup {TABLE}");
            let _ = writeln!(text, "#   {command} route add local {any} dev lo table {TABLE}");
        }
    }
    let _ = write!(text, "table inet larder {{\n{redirect}{tproxy}}}\n");
    Some(text)
}

/// The statements for one listener. One that is bound to a certain address takes connections of its family alone.
fn statements(listen: &Listen, what: &str) -> String {
    let (ip, port) = (listen.address.ip(), listen.address.port());
    let families: &[&str] = match ip {
        IpAddr::V6(ip) if ip.is_unspecified() => &["ipv4", "ipv6"],
        IpAddr::V6(_) => &["ipv6"],
        IpAddr::V4(_) => &["ipv4"],
    };
    let statement = |family: &&str| {
        let ip_word = if *family == "ipv4" { "ip" } else { "ip6" };
        let address = match ip {
            ip if ip.is_unspecified() => String::new(),
            IpAddr::V4(ip) => ip.to_string(),
            IpAddr::V6(ip) => format!("[{ip}]"),
        };
        let end = match listen.transparent {
            Transparent::Tproxy => format!("tproxy {ip_word} to {address}:{port} meta mark set {MARK:#x} accept"),
            _ if address.is_empty() => format!("redirect to :{port}"),
            _ => format!("dnat {ip_word} to {address}:{port}"),
        };
        format!("        meta nfproto {family} {what} {end}\n")
    };
    families.iter().map(statement).collect()
}
