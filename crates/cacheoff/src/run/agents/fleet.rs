//! `agents.toml`: the agents of a run, their addresses and their shares.

use crate::control::Token;
use crate::origin::AddressRange;
use serde::Deserialize;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};

/// The agents of a run.
#[derive(Clone, Debug)]
pub struct Fleet {
    /// The token that all of them have.
    pub token: Token,
    /// Port of the origins.
    pub origin_port: u16,
    /// The agents: those with robots first, so that their workers come before the others.
    pub agents: Vec<Member>,
}

/// One agent.
#[derive(Clone, Debug)]
pub struct Member {
    /// Its name in messages.
    pub name: String,
    /// Where it listens for its coordinator.
    pub control: SocketAddr,
    /// Its worker threads.
    pub workers: u16,
    /// Addresses that its robots ask from; none if it has no robots.
    pub robots: Vec<AddressRange>,
    /// Addresses of its origins; none if it has none.
    pub origins: Vec<AddressRange>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    token_file: PathBuf,
    #[serde(default = "default_port")]
    origin_port: u16,
    #[serde(rename = "agent")]
    agents: Vec<Line>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    name: String,
    control: String,
    #[serde(default = "default_workers")]
    workers: u16,
    #[serde(default)]
    robots: Vec<AddressRange>,
    #[serde(default)]
    origins: Vec<AddressRange>,
}

/// Agents of one run.
const AGENTS_MAX: usize = 256;
/// Workers of one agent.
const WORKERS_MAX: u16 = 256;
/// Ranges of addresses of one agent.
const RANGES_MAX: usize = 1_000;

fn default_port() -> u16 {
    7480
}

fn default_workers() -> u16 {
    1
}

impl Fleet {
    /// Reads the file; the path of the token counts from its folder.
    pub fn read(path: &Path) -> Result<Self, String> {
        let place = path.display();
        let text = std::fs::read_to_string(path).map_err(|error| format!("--agents {place}: {error}"))?;
        let folder = path.parent().unwrap_or(Path::new("."));
        Self::parse(&text, |token| Token::read(&folder.join(token)))
            .map_err(|reason| format!("--agents {place}: {reason}"))
    }

    pub(super) fn parse(text: &str, token: impl FnOnce(&Path) -> Result<Token, String>) -> Result<Self, String> {
        let file: File = toml::from_str(text).map_err(|error| error.to_string())?;
        if file.agents.len() > AGENTS_MAX || file.origin_port == 0 {
            return Err(format!(
                "there are 1 to {AGENTS_MAX} agents, and origin_port is a port that all of them have free"
            ));
        }
        let mut agents = file.agents.into_iter().map(Line::member).collect::<Result<Vec<_>, _>>()?;
        agents.sort_by_key(|agent| agent.robots.is_empty());
        if agents.first().is_none_or(|agent| agent.robots.is_empty()) {
            return Err("no agent has robots: give one of them `robots = [\"ADDRESS\"]`".to_owned());
        }
        if agents.iter().all(|agent| agent.origins.is_empty()) {
            return Err("no agent has origins: give one of them `origins = [\"ADDRESS\"]`".to_owned());
        }
        for (place, agent) in agents.iter().enumerate() {
            for other in &agents[..place] {
                if other.name == agent.name || other.control == agent.control {
                    return Err(format!(
                        "agents {} and {} have one name or one control address",
                        other.name, agent.name
                    ));
                }
                let shared = |one: &[AddressRange], two: &[AddressRange]| {
                    one.iter().find(|one| two.iter().any(|two| one.overlaps(two))).copied()
                };
                if let Some(range) = shared(&agent.origins, &other.origins) {
                    return Err(format!("origins {range} belong to agents {} and {}", other.name, agent.name));
                }
            }
        }
        Ok(Self { token: token(&file.token_file)?, origin_port: file.origin_port, agents })
    }

    /// Workers that share the robots.
    pub fn robot_workers(&self) -> u16 {
        let with_robots = self.agents.iter().filter(|agent| !agent.robots.is_empty());
        with_robots.map(|agent| agent.workers).fold(0, u16::saturating_add)
    }

    /// The first worker of each agent, in order.
    pub fn firsts(&self) -> Vec<u16> {
        let mut next = 0_u16;
        let first = |agent: &Member| {
            let first = next;
            next = next.saturating_add(agent.workers);
            first
        };
        self.agents.iter().map(first).collect()
    }

    /// Addresses of all origins.
    pub fn hosts(&self) -> Vec<AddressRange> {
        self.agents.iter().flat_map(|agent| agent.origins.iter().copied()).collect()
    }
}

impl Line {
    fn member(self) -> Result<Member, String> {
        let Self { name, control, workers, robots, origins } = self;
        if name.is_empty() || name.len() > 60 || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        {
            return Err(format!("agent {name:?}: a name has letters, digits and hyphens, 60 at most"));
        }
        if !(1..=WORKERS_MAX).contains(&workers) {
            return Err(format!("agent {name}: workers are 1 to {WORKERS_MAX}, one for each core that it may use"));
        }
        if robots.is_empty() && origins.is_empty() {
            return Err(format!("agent {name} has neither robots nor origins: give it addresses"));
        }
        if robots.len() + origins.len() > RANGES_MAX {
            return Err(format!("agent {name} has more than {RANGES_MAX} ranges of addresses"));
        }
        let found = control.to_socket_addrs().map_err(|error| format!("agent {name}: control {control}: {error}"));
        let control = found?.next().ok_or_else(|| format!("agent {name}: control {control} is no address"))?;
        Ok(Member { name, control, workers, robots, origins })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Fleet, String> {
        Fleet::parse(&format!("token_file = \"t\"\n{text}"), |_| Token::new(&"x".repeat(32)))
    }

    #[test]
    fn agents_with_robots_have_the_first_workers() {
        let fleet = parse(
            "[[agent]]\nname = \"o\"\ncontrol = \"10.0.0.1:7400\"\norigins = [\"10.0.0.1\"]\n\
             [[agent]]\nname = \"r\"\ncontrol = \"10.0.0.2:7400\"\nworkers = 3\nrobots = [\"10.0.1.1-10.0.1.9\"]\n",
        )
        .unwrap();
        let names: Vec<&str> = fleet.agents.iter().map(|agent| &agent.name[..]).collect();
        assert_eq!((names, fleet.firsts(), fleet.robot_workers()), (vec!["r", "o"], vec![0, 3], 3));
        assert_eq!((fleet.hosts().len(), fleet.origin_port), (1, 7480));
    }

    #[test]
    fn a_file_that_cannot_be_played_names_the_agent_and_the_remedy() {
        let agent = |name: &str, rest: &str| {
            format!("[[agent]]\nname = \"{name}\"\ncontrol = \"10.0.0.1:74{name}0\"\n{rest}\n")
        };
        let (robots, origins) = ("robots = [\"10.0.0.1\"]", "origins = [\"10.0.0.1\"]");
        for (text, reason) in [
            (agent("1", robots), "no agent has origins"),
            (agent("1", origins), "no agent has robots"),
            (agent("1", ""), "agent 1 has neither"),
            (agent("1", robots) + &agent("2", origins) + &agent("3", origins), "belong to agents 2 and 3"),
            (agent("1", robots) + &agent("1", origins), "one name or one control"),
            (agent("1", "robots = [\"10.0.0.9-10.0.0.1\"]"), "goes upwards"),
            (agent("1", "robot = 1"), "unknown field"),
            (agent("1", "workers = 0\nrobots = [\"10.0.0.1\"]"), "workers are 1 to"),
        ] {
            let error = parse(&text).unwrap_err();
            assert!(error.contains(reason), "{error}");
        }
    }
}
