//! The words of each product as counts.

use serde_json::Value;
use std::collections::BTreeSet;

/// A product that can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// `mgr:info` of the cache manager.
    Squid,
    /// `varnishstat -j`.
    Varnish,
    /// `stub_status`, and the access log with `$upstream_cache_status`.
    Nginx,
    /// The `stats_over_http` plug-in.
    TrafficServer,
    /// The admin listener.
    Larder,
}

/// The result of one reading.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counts {
    /// Product and version.
    pub product: String,
    /// Clients.
    pub users: Option<u64>,
    /// Requests since the start.
    pub requests: Option<u64>,
    /// Hits since the start.
    pub hits: Option<u64>,
    /// Mean requests per second since the start, if it says so itself.
    pub rps_since_start: Option<f64>,
    /// Hit ratio of five minutes.
    pub hits_5min: Option<f64>,
    /// Hit ratio of sixty minutes.
    pub hits_60min: Option<f64>,
    /// CPU usage, 1 for a core.
    pub cpu: Option<f64>,
}

impl Source {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Squid, Self::Varnish, Self::Nginx, Self::TrafficServer, Self::Larder];

    /// Its name on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Squid => "squid",
            Self::Varnish => "varnish",
            Self::Nginx => "nginx",
            Self::TrafficServer => "trafficserver",
            Self::Larder => "larder",
        }
    }

    /// Where it usually tells its figures.
    pub fn address(self) -> &'static str {
        match self {
            Self::Squid => "127.0.0.1:3128",
            Self::Varnish => "127.0.0.1:6081",
            Self::Nginx => "127.0.0.1:80",
            Self::TrafficServer => "127.0.0.1:8080",
            Self::Larder => "127.0.0.1:3129",
        }
    }

    /// The usual path of the figures.
    pub(super) fn path(self) -> &'static str {
        match self {
            Self::Squid => "/squid-internal-mgr/info",
            Self::Nginx => "/stub_status",
            Self::TrafficServer => "/_stats",
            Self::Varnish | Self::Larder => "/stats",
        }
    }

    /// The command that prints the figures, for a product that tells them no other way.
    pub(super) fn command(self) -> Option<&'static [&'static str]> {
        (self == Self::Varnish).then_some(&["varnishstat", "-1", "-j"])
    }

    /// Reads what the product said.
    pub(super) fn read(self, text: &str) -> Result<Counts, String> {
        let counts = match self {
            Self::Squid => squid(text),
            Self::Varnish => varnish(text),
            Self::Nginx => nginx(text),
            Self::TrafficServer => traffic_server(text),
            Self::Larder => larder(text),
        };
        counts.ok_or_else(|| format!("what {} said is not in the form that was expected", self.as_str()))
    }
}

fn squid(text: &str) -> Option<Counts> {
    let value = |name: &str| -> Option<&str> {
        text.lines().find_map(|line| line.trim().strip_prefix(name)?.strip_prefix(':').map(str::trim))
    };
    let number = |name: &str| -> Option<f64> { value(name)?.trim_end_matches('%').trim().parse().ok() };
    let hits = |minutes: &str| -> Option<f64> {
        let after = value("Hits as % of all requests")?.split_once(minutes)?.1;
        after
            .trim_start_matches([':', ' '])
            .split('%')
            .next()?
            .trim()
            .parse::<f64>()
            .ok()
            .map(|percent| percent / 100.0)
    };
    let version = text.lines().find_map(|line| line.split_once("Version ").map(|(_, version)| version.trim()))?;
    // All requests: HTTP, and ICP where neighbours ask.
    let per_minute = text
        .lines()
        .filter(|line| line.trim().starts_with("Average ") && line.contains("per minute since start"))
        .filter_map(|line| line.rsplit_once(':')?.1.trim().parse::<f64>().ok());
    Some(Counts {
        product: format!("Squid {version}"),
        users: number("Number of clients accessing cache").map(|users| users as u64),
        requests: number("Number of HTTP requests received").map(|requests| requests as u64),
        hits: None,
        rps_since_start: Some(per_minute.sum::<f64>() / 60.0),
        hits_5min: hits("5min"),
        hits_60min: hits("60min"),
        cpu: number("CPU Usage, 5 minute avg").or(number("CPU Usage")).map(|percent| percent / 100.0),
    })
}

fn varnish(text: &str) -> Option<Counts> {
    let whole: Value = serde_json::from_str(text).ok()?;
    let counters = whole.get("counters").unwrap_or(&whole);
    let number = |name: &str| counters.get(format!("MAIN.{name}"))?.get("value")?.as_u64();
    let requests = number("client_req")?;
    let uptime = number("uptime").filter(|seconds| *seconds > 0)?;
    Some(Counts {
        product: "Varnish".to_owned(),
        requests: Some(requests),
        hits: number("cache_hit"),
        rps_since_start: Some(requests as f64 / uptime as f64),
        ..Counts::default()
    })
}

fn nginx(text: &str) -> Option<Counts> {
    let mut lines = text.lines().skip_while(|line| !line.starts_with("server accepts handled requests"));
    let requests = lines.nth(1)?.split_whitespace().nth(2)?.parse().ok()?;
    Some(Counts { product: "nginx".to_owned(), requests: Some(requests), ..Counts::default() })
}

fn traffic_server(text: &str) -> Option<Counts> {
    let whole: Value = serde_json::from_str(text).ok()?;
    let global = whole.get("global")?;
    let text = |name: &str| global.get(name)?.as_str();
    let number = |name: &str| text(name)?.parse::<u64>().ok();
    let hits = ["cache_hit_fresh", "cache_hit_mem_fresh", "cache_hit_revalidated", "cache_hit_stale_served"];
    let hits: Vec<u64> = hits.iter().filter_map(|name| number(&format!("proxy.process.http.{name}"))).collect();
    Some(Counts {
        product: format!("Traffic Server {}", text("server").unwrap_or("")).trim_end().to_owned(),
        requests: Some(number("proxy.process.http.incoming_requests")?),
        hits: (!hits.is_empty()).then(|| hits.iter().sum()),
        ..Counts::default()
    })
}

fn larder(text: &str) -> Option<Counts> {
    let whole: Value = serde_json::from_str(text).ok()?;
    let counter = |name: &str| whole.get("counters")?.get(name)?.as_u64();
    Some(Counts {
        product: "Larder".to_owned(),
        requests: Some(counter("requests")?),
        hits: counter("hits"),
        ..Counts::default()
    })
}

impl Counts {
    /// Adds what only an access log tells: distinct clients (first field) and the hit ratio. The state of the cache is the
    /// last field of a line, as `$upstream_cache_status` writes it.
    pub(super) fn add_log(&mut self, text: &str) {
        let mut clients = BTreeSet::new();
        let (mut hits, mut lines) = (0_u64, 0_u64);
        for line in text.lines().filter(|line| !line.is_empty()) {
            lines += 1;
            clients.extend(line.split(' ').next());
            let state = line.rsplit(' ').next().unwrap_or("").trim_matches('"');
            hits += u64::from(matches!(state, "HIT" | "REVALIDATED" | "STALE" | "UPDATING"));
        }
        self.users = Some(clients.len() as u64);
        self.hits = Some(hits);
        if lines > 0 {
            self.requests = Some(lines);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SQUID: &str = "Squid Object Cache: Version 5.7\nService Name: squid\nConnection information for squid:\n\
        \tNumber of clients accessing cache:\t54\n\tNumber of HTTP requests received:\t123456\n\
        \tAverage HTTP requests per minute since start:\t36000.0\n\tAverage ICP messages per minute since start:\t900.0\n\
        Cache information for squid:\n\tHits as % of all requests:\t5min: 42.5%, 60min: 40.0%\n\
        Resource usage for squid:\n\tCPU Usage:\t1.50%\n\tCPU Usage, 5 minute avg:\t32.00%\n\tCPU Usage, 60 minute avg:\t30.00%\n";

    #[test]
    fn squid_is_read_as_the_benchmark_page_defines_it() {
        let counts = Source::Squid.read(SQUID).unwrap();
        assert_eq!(counts.product, "Squid 5.7");
        assert_eq!((counts.users, counts.rps_since_start), (Some(54), Some(615.0)));
        assert_eq!((counts.hits_5min, counts.hits_60min, counts.cpu), (Some(0.425), Some(0.4), Some(0.32)));
    }

    #[test]
    fn the_others_are_read_from_their_counters() {
        let varnish = r#"{"version":1,"counters":{"MAIN.client_req":{"value":600},"MAIN.cache_hit":{"value":450},"MAIN.uptime":{"value":60}}}"#;
        let counts = Source::Varnish.read(varnish).unwrap();
        assert_eq!((counts.requests, counts.hits, counts.rps_since_start), (Some(600), Some(450), Some(10.0)));
        let nginx =
            "Active connections: 2 \nserver accepts handled requests\n 16 16 31 \nReading: 0 Writing: 1 Waiting: 1 \n";
        assert_eq!(Source::Nginx.read(nginx).unwrap().requests, Some(31));
        let ats = r#"{"global":{"proxy.process.http.incoming_requests":"90","proxy.process.http.cache_hit_fresh":"40","proxy.process.http.cache_hit_mem_fresh":"20","server":"9.2.5"}}"#;
        let counts = Source::TrafficServer.read(ats).unwrap();
        assert_eq!(
            (counts.product.as_str(), counts.requests, counts.hits),
            ("Traffic Server 9.2.5", Some(90), Some(60))
        );
        let larder = r#"{"counters":{"requests":5,"hits":3},"objects":1}"#;
        assert_eq!(Source::Larder.read(larder).unwrap().hits, Some(3));
    }

    #[test]
    fn nonsense_is_an_error_for_each() {
        for source in Source::ALL {
            for text in ["", "{}", "<html>", "server accepts handled requests\n", "[1]"] {
                assert!(source.read(text).is_err(), "{}: {text}", source.as_str());
            }
        }
    }

    #[test]
    fn a_log_tells_users_and_hits() {
        let mut counts = Counts::default();
        counts.add_log("10.0.0.1 - - [x] \"GET /\" 200 5 HIT\n10.0.0.2 - - [x] \"GET /\" 200 5 MISS\n10.0.0.1 - - [x] \"GET /\" 304 0 \"REVALIDATED\"\n");
        assert_eq!((counts.users, counts.hits, counts.requests), (Some(2), Some(2), Some(3)));
    }
}
