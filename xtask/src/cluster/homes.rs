//! CPU time of a hit at the home of its key, asked by way of another node, beside that of a hit on the spot.

use super::{start_nats_at, wait_for_all};
use crate::http::{Answer, Connection};
use crate::lab::{self, Lab};
use crate::processes::Cpu;
use crate::shell::Trouble;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Objects; about half of them have their home at either node.
const OBJECTS: u64 = 8_000;
const OBJECT_BYTES: usize = 1_000;

/// Requests that may be answered by another node than at first.
const ELSEWHERE_PERCENT_MAX: usize = 5;

/// Each object is asked for so often by way of the other node while it is measured: fewer than make it hot.
const PASSES: usize = 2;

/// Measures both, and prints them.
pub fn run(program: &Path, nats: &Path) -> Result<(), Trouble> {
    let mut lab = Lab::new()?;
    let port = start_nats_at(&mut lab, nats, "2m")?;
    let secret = lab.write("secret", "0123456789abcdef0123456789abcdef")?;
    let (origin, _) = serve_origin(OBJECT_BYTES)?;
    let nodes = start_nodes(&mut lab, program, &["a", "b"], (port, &secret), 64)?;
    // Each node is asked for every second object, so that both answer the other one as often: one that answers more than its share would
    // hand on keys.
    let mut nodes_asked = [Connection::open(nodes[0].proxy)?, Connection::open(nodes[1].proxy)?];
    let side = |object: u64| (object % 2) as usize;
    for object in 0..OBJECTS {
        ask(&mut nodes_asked[1 - side(object)], origin, object)?;
    }
    let (mut here, mut there) = (Vec::new(), Vec::new());
    for object in 0..OBJECTS {
        let answer = ask(&mut nodes_asked[side(object)], origin, object)?;
        if is_hit_here(&answer) { here.push(object) } else { there.push(object) }
    }
    println!("{} objects have their home at the node that is asked, {} at the other one", here.len(), there.len());
    let cpu = |nodes: &[Node]| -> Result<f64, Trouble> {
        nodes.iter().try_fold(0.0, |sum, node| Ok(sum + Cpu::of_tree(node.pid)?.total()))
    };
    let mut rows = Vec::new();
    for (name, objects, is_here) in [("on the spot", &here, true), ("at the home", &there, false)] {
        let before = cpu(&nodes)?;
        let mut elsewhere = 0;
        for object in std::iter::repeat_n(objects, PASSES).flatten() {
            let answer = ask(&mut nodes_asked[side(*object)], origin, *object)?;
            elsewhere += usize::from(is_hit_here(&answer) != is_here);
        }
        // A few keys move for a moment when questions begin, since each node sees the other one's load later than its own.
        if elsewhere * 100 > objects.len() * PASSES * ELSEWHERE_PERCENT_MAX {
            return Err(format!("{elsewhere} of {} requests were not answered {name}", objects.len() * PASSES));
        }
        let micros = (cpu(&nodes)? - before) * 1e6 / (objects.len() * PASSES) as f64;
        rows.push((name, micros));
    }
    println!("| hit | CPU of both nodes, µs |\n|---|---|");
    rows.iter().for_each(|(name, micros)| println!("| {name} | {micros:.1} |"));
    println!("ratio: {:.2}", rows[1].1 / rows[0].1);
    Ok(())
}

/// A node whose keys have homes.
pub struct Node {
    /// The port of its proxy.
    pub proxy: u16,
    admin: u16,
    pid: u32,
}

/// Starts nodes of one cluster with so many megabytes of memory each, and waits until they ask one another.
pub fn start_nodes(
    lab: &mut Lab,
    program: &Path,
    names: &[&str],
    (nats, secret): (u16, &Path),
    memory: u64,
) -> Result<Vec<Node>, Trouble> {
    let start = |name: &&str| start_node(lab, program, name, (nats, secret), memory);
    let nodes = names.iter().map(start).collect::<Result<Vec<Node>, Trouble>>()?;
    let admins: Vec<u16> = nodes.iter().map(|node| node.admin).collect();
    wait_for_all(&admins)?;
    // Two heartbeats more, until each knows that the other ones answer.
    std::thread::sleep(Duration::from_millis(1_500));
    Ok(nodes)
}

fn start_node(
    lab: &mut Lab,
    program: &Path,
    name: &str,
    (nats, secret): (u16, &Path),
    memory: u64,
) -> Result<Node, Trouble> {
    let (proxy, admin, home) = (lab::free_port()?, lab::free_port()?, lab::free_port()?);
    let store = lab.folder(name)?;
    let text = format!(
        "store = \"{}\"\nadmin = \"127.0.0.1:{admin}\"\nmemory = \"{memory}MB\"\ndisk = \"0\"\nworkers = 1\n\
         [cluster]\nnats = [\"nats://127.0.0.1:{nats}\"]\nname = \"{name}\"\nlisten = \"127.0.0.1:{home}\"\nsecret_file = \"{}\"\n\
         [[listen]]\naddress = \"127.0.0.1:{proxy}\"\n",
        store.display(),
        secret.display()
    );
    let config = lab.write(&format!("{name}.toml"), text)?;
    let pid = lab.start(name, Command::new(program).arg("--config").arg(config), admin)?;
    Ok(Node { proxy, admin, pid })
}

fn ask(connection: &mut Connection, origin: u16, object: u64) -> Result<Answer, Trouble> {
    ask_for(connection, origin, object, OBJECT_BYTES)
}

/// Asks for an object of this length.
pub fn ask_for(connection: &mut Connection, origin: u16, object: u64, bytes: usize) -> Result<Answer, Trouble> {
    let request = format!("GET http://127.0.0.1:{origin}/{object} HTTP/1.1\r\nHost: 127.0.0.1:{origin}\r\n\r\n");
    let answer = connection.ask(request.as_bytes(), false)?;
    match (answer.status, answer.body.len()) {
        (200, length) if length == bytes => Ok(answer),
        (status, length) => Err(format!("object {object}: status {status}, {length} bytes")),
    }
}

/// Whether the node that was asked itself had the response: the last member of `Cache-Status` is its own.
fn is_hit_here(answer: &Answer) -> bool {
    let said = answer.fields.iter().filter(|(name, _)| name == "cache-status").map(|(_, value)| value.as_str());
    said.flat_map(|value| value.split(',')).last().is_some_and(|own| own.contains("; hit"))
}

/// An origin of objects of this length: its port, and the count of its requests.
pub fn serve_origin(bytes: usize) -> Result<(u16, Arc<AtomicU64>), Trouble> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(|error| format!("an origin: {error}"))?;
    let port = listener.local_addr().map_err(|error| format!("an origin: {error}"))?.port();
    let asked = Arc::<AtomicU64>::default();
    let count = Arc::clone(&asked);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let count = Arc::clone(&count);
            std::thread::spawn(move || serve(&stream, bytes, &count));
        }
    });
    Ok((port, asked))
}

fn serve(stream: &TcpStream, bytes: usize, asked: &AtomicU64) -> Option<()> {
    let mut lines = BufReader::new(stream).lines();
    let head = format!("HTTP/1.1 200 OK\r\nCache-Control: max-age=3600\r\nContent-Length: {bytes}\r\n\r\n");
    let answer = [head.as_bytes(), &vec![b'x'; bytes]].concat();
    loop {
        while !lines.next()?.ok()?.is_empty() {}
        asked.fetch_add(1, Ordering::Relaxed);
        (&*stream).write_all(&answer).ok()?;
    }
}
