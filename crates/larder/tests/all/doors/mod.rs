//! Doors of a server between other programs: nginx and HAProxy before and behind it, by the PROXY protocol and by Unix sockets.

mod pass_through;
mod proxy_protocol;
mod unix_sockets;

use crate::seen::stand;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Stdio};

/// A program that a test has started, which ends with it.
struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// An address on which nothing listens.
fn free() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// nginx with these servers in its `http`; `None` where it is not installed.
fn nginx(folder: &Path, listens: SocketAddr, servers: &str) -> Option<Program> {
    let mut command = stand::program("nginx")?;
    std::fs::create_dir_all(folder).unwrap();
    let text = format!(
        "daemon off; worker_processes 1; pid {0}/pid; error_log {0}/errors;\nevents {{ worker_connections 256; }}\n\
         http {{ access_log off; client_body_temp_path {0}/a; proxy_temp_path {0}/b; fastcgi_temp_path {0}/c; uwsgi_temp_path {0}/d; scgi_temp_path {0}/e;\n{servers}\n}}\n",
        folder.display()
    );
    std::fs::write(folder.join("nginx.conf"), text).unwrap();
    command.arg("-p").arg(folder).arg("-c").arg(folder.join("nginx.conf"));
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let nginx = Program(child);
    stand::wait_for("nginx listens", || TcpStream::connect(listens).is_ok());
    Some(nginx)
}

/// HAProxy with these sections; `None` where it is not installed.
fn haproxy(folder: &Path, listens: SocketAddr, sections: &str) -> Option<Program> {
    let mut command = stand::program("haproxy")?;
    std::fs::create_dir_all(folder).unwrap();
    let file = folder.join("haproxy.cfg");
    std::fs::write(
        &file,
        format!("defaults\n  timeout connect 5s\n  timeout client 10s\n  timeout server 10s\n{sections}\n"),
    )
    .unwrap();
    command.arg("-db").arg("-f").arg(&file);
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let haproxy = Program(child);
    stand::wait_for("haproxy listens", || TcpStream::connect(listens).is_ok());
    Some(haproxy)
}
