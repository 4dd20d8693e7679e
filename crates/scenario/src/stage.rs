//! A script on stage: its origins listen, and it can be played once against a proxy.

use crate::client::Client;
use crate::failure::Failure;
use crate::origin::{self, Origin};
use crate::script::{Act, Action, Script, Step};
use crate::target::Target;
use crate::text::Scope;
use crate::world::{State, Verdict, World};
use std::collections::HashMap;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{SystemTime, UNIX_EPOCH};

/// A caller's choices for a play.
#[derive(Debug, Clone, Default)]
pub struct Setting {
    /// Ports for the origins, in order; any free port for those beyond the list.
    pub ports: Vec<u16>,
    /// A prefix for every path (`/k1`), when plays share one proxy and its store.
    pub root: String,
}

/// A script whose origins are bound. A proxy that needs to know them is started between this and [`Stage::play`].
#[derive(Debug)]
pub struct Stage {
    script: Script,
    root: String,
    listeners: Vec<TcpListener>,
    origins: Vec<(String, SocketAddr)>,
}

impl Script {
    /// Binds the origins to ports of 127.0.0.1, so that a proxy can be told of them before it starts.
    pub fn open(&self) -> std::io::Result<Stage> {
        Stage::open(self, Setting::default())
    }

    /// The same with ports and a path prefix of the caller's choice.
    pub fn open_with(&self, setting: Setting) -> std::io::Result<Stage> {
        Stage::open(self, setting)
    }
}

impl Stage {
    fn open(script: &Script, setting: Setting) -> std::io::Result<Stage> {
        let (mut listeners, mut origins) = (Vec::new(), Vec::new());
        for (index, part) in script.origins.iter().enumerate() {
            let port = setting.ports.get(index).copied().unwrap_or(0);
            let listener = TcpListener::bind(("127.0.0.1", port))?;
            origins.push((part.name.clone(), listener.local_addr()?));
            listeners.push(listener);
        }
        Ok(Stage { script: script.clone(), root: setting.root, listeners, origins })
    }

    /// The origins by name and where they listen. In the reverse way, host `NAME.test` stands for origin `NAME`.
    pub fn origins(&self) -> &[(String, SocketAddr)] {
        &self.origins
    }

    /// Plays the script. Every thread it started has ended when it returns.
    pub fn play(self, target: &Target) -> Result<(), Box<Failure>> {
        let world = Arc::new(World::new(self.script.limit, self.barriers()));
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
        let now = i64::try_from(now).unwrap_or(0);
        let scope = Scope { way: target.way, origins: self.origins.clone(), root: self.root, now, index: 0 };
        let mut acceptors = Vec::new();
        for (listener, (name, _)) in self.listeners.into_iter().zip(&self.origins) {
            let (world, party) = (world.clone(), format!("origin {name}"));
            acceptors.push(std::thread::spawn(move || origin::accept(&world, listener, &party)));
        }
        let parts = self.script.origins.iter().zip(&self.origins);
        let origins = parts.map(|(part, (name, address))| {
            let actor = Origin::new(format!("origin {name}"), world.clone(), scope.clone(), *address);
            start_origin(actor, part.steps.clone(), world.clone())
        });
        let origins: Vec<Started> = origins.collect();
        run_clients(&self.script.acts, &world, &scope, target);
        wait_for_steps(&world, &origins);
        world.end();
        for (_, address) in &self.origins {
            origin::wake(*address);
        }
        let threads = origins.into_iter().map(|o| o.thread).chain(acceptors);
        threads.for_each(|thread| drop(thread.join()));
        verdict(&self.script.path, &world)
    }

    fn barriers(&self) -> HashMap<String, usize> {
        let mut counts = HashMap::new();
        let clients = self.script.acts.iter().filter_map(|act| match act {
            Act::Client { count, steps, .. } => Some((*count, steps)),
            Act::Wait { .. } => None,
        });
        let origins = self.script.origins.iter().map(|part| (1, &part.steps));
        for (count, steps) in clients.chain(origins) {
            for step in steps {
                if let Action::Barrier(name) = &step.what {
                    *counts.entry(name.clone()).or_default() += count;
                }
            }
        }
        counts
    }
}

struct Started {
    name: String,
    thread: JoinHandle<()>,
}

fn start_origin(mut origin: Origin, steps: Vec<Step>, world: Arc<World>) -> Started {
    let name = origin.name().to_string();
    let party = name.clone();
    let thread = std::thread::spawn(move || {
        if origin.play(&steps) {
            world.lock().finished.push(party);
            world.ring();
            origin.watch();
        }
    });
    Started { name, thread }
}

/// An origin may have steps left when the clients are done: what it still expects must come.
fn wait_for_steps(world: &World, origins: &[Started]) {
    let all_done = |state: &mut State| {
        let done = origins.iter().all(|o| state.finished.contains(&o.name));
        done.then_some(())
    };
    // A failure of an origin ends this wait too; its verdict is recorded.
    if let Ok(None) = world.wait_for_end(all_done) {
        let what = "the script's time limit is over: `limit 20s` sets another".to_string();
        world.fail(Verdict { party: "script".into(), line: 0, step: "as a whole".into(), what });
    }
}

fn run_clients(acts: &[Act], world: &Arc<World>, scope: &Scope, target: &Target) {
    let mut kept: HashMap<String, Client> = HashMap::new();
    let mut away: HashMap<String, Vec<JoinHandle<Option<Client>>>> = HashMap::new();
    for act in acts {
        match act {
            Act::Wait { name } => kept.extend(come_back(away.remove(name)).map(|c| (name.clone(), c))),
            Act::Client { name, count, background, steps } => {
                kept.extend(come_back(away.remove(name)).map(|c| (name.clone(), c)));
                let threads = (0..*count).map(|index| {
                    let known = if *count == 1 { kept.remove(name) } else { None };
                    let client = known.unwrap_or_else(|| {
                        let number = if *count == 1 { String::new() } else { format!(".{index}") };
                        let scope = Scope { index, ..scope.clone() };
                        Client::new(format!("client {name}{number}"), world.clone(), scope, *target)
                    });
                    start_client(client, steps.clone())
                });
                let threads: Vec<_> = threads.collect();
                away.insert(name.clone(), threads);
                if !background {
                    kept.extend(come_back(away.remove(name)).map(|c| (name.clone(), c)));
                }
            }
        }
    }
    for threads in away.into_values() {
        come_back(Some(threads));
    }
}

fn start_client(mut client: Client, steps: Vec<Step>) -> JoinHandle<Option<Client>> {
    std::thread::spawn(move || client.play(&steps).then_some(client))
}

/// Joins the threads of a client; a single one can go on with its connection later.
fn come_back(threads: Option<Vec<JoinHandle<Option<Client>>>>) -> Option<Client> {
    let threads = threads?;
    let is_single = threads.len() == 1;
    let clients: Vec<Option<Client>> = threads.into_iter().map(|t| t.join().ok().flatten()).collect();
    clients.into_iter().flatten().next().filter(|_| is_single)
}

fn verdict(path: &str, world: &World) -> Result<(), Box<Failure>> {
    let transcript = world.transcript();
    match world.lock().verdict.take() {
        None => Ok(()),
        Some(v) => Err(Box::new(Failure {
            path: path.to_string(),
            line: v.line,
            party: v.party,
            step: v.step,
            what: v.what,
            transcript,
        })),
    }
}
