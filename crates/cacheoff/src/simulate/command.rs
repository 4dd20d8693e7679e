//! `cacheoff simulate`.

use super::{Form, Policy, Trace, csv, curves, figure, sizes, text};
use crate::chart::{Unit, grouped};
use crate::workload::parse_size;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Requests that are read if nobody says more; they take 16 bytes each.
const REQUESTS_MAX: usize = 20_000_000;
const BUFFER_BYTES: usize = 1 << 20;

/// Replays a log or trace through reference policies at many sizes, without a network.
#[derive(clap::Args, Debug)]
pub struct SimulateArgs {
    /// The log: squid's, combined, JSON lines, oracleGeneral, or time, object and size in columns
    log: PathBuf,
    /// The log's form, if it is not to be guessed
    #[arg(long, value_parser = ["auto", "squid", "combined", "json", "oracle", "columns"], default_value = "auto")]
    form: String,
    /// Policies
    #[arg(long, value_delimiter = ',', value_parser = ["lru", "fifo", "s3-fifo", "lfu", "belady"])]
    policies: Vec<String>,
    /// Sizes of the cache, such as 64MB,1GB (KB is 1,024 bytes); by default from a thousandth of all objects to all
    #[arg(long, value_delimiter = ',')]
    sizes: Vec<String>,
    /// Show misses by bytes, not by requests
    #[arg(long)]
    bytes: bool,
    /// Read so many requests at most
    #[arg(long, default_value_t = REQUESTS_MAX)]
    requests_max: usize,
    /// Write the figures as CSV
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Write the curves as an SVG figure
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

impl SimulateArgs {
    /// Reads, replays, prints.
    pub fn run(&self) -> Result<ExitCode, String> {
        let given = self.sizes.iter().map(|size| {
            let bytes = parse_size(size).filter(|bytes| *bytes > 0);
            bytes.ok_or_else(|| format!("--sizes {size}: write sizes such as 64MB,1GB"))
        });
        let mut given = given.collect::<Result<Vec<u64>, String>>()?;
        given.sort_unstable();
        let trace = read(&self.log, &self.form, self.requests_max)?;
        let footprint = trace.footprint_bytes();
        let sizes = if given.is_empty() { sizes(footprint) } else { given };
        println!("{}", self.summary(&trace, footprint));
        let curves = curves(&trace, &self.policies(), &sizes);
        println!("{} that miss\n", if self.bytes { "bytes" } else { "requests" });
        print!("{}", text(&curves, self.bytes));
        for (file, made) in [(&self.csv, csv(&curves)), (&self.svg, figure(&curves, self.bytes).file())] {
            if let Some(file) = file {
                fs::write(file, made).map_err(|error| format!("{} cannot be written: {error}", file.display()))?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }

    fn policies(&self) -> Vec<Policy> {
        let wanted =
            |policy: &Policy| self.policies.is_empty() || self.policies.iter().any(|name| name == policy.as_str());
        Policy::ALL.into_iter().filter(wanted).collect()
    }

    fn summary(&self, trace: &Trace, footprint: u64) -> String {
        let count = |count: u64| grouped(count as f64);
        let objects = u64::from(trace.objects);
        let skipped = match trace.skipped {
            0 => String::new(),
            lines => format!("; {} other lines were passed over", count(lines)),
        };
        let cut = if trace.cut { "; the log goes on behind --requests-max" } else { "" };
        format!(
            "{} requests in {} for {} objects with {}{skipped}{cut}",
            count(trace.requests.len() as u64),
            Unit::Elapsed.text(trace.span_s),
            count(objects),
            Unit::Bytes.text(footprint as f64),
        )
    }
}

/// Reads a log of a form by its word, or of the form that it seems to have.
pub fn read(log: &Path, form: &str, requests_max: usize) -> Result<Trace, String> {
    let name = log.display();
    let unreadable = |error: std::io::Error| format!("{name} cannot be read: {error}");
    let mut from = BufReader::with_capacity(BUFFER_BYTES, File::open(log).map_err(unreadable)?);
    let start = from.fill_buf().map_err(unreadable)?;
    if let Some(tool) = compressed(start) {
        return Err(format!("{name} is compressed: unpack it with {tool} first"));
    }
    let form = Form::ALL.into_iter().find(|known| known.as_str() == form).or_else(|| by_name(log));
    let form = form.or_else(|| Form::of(start));
    let form = form.ok_or_else(|| format!("{name} is no log of a known form: name it with --form"))?;
    let trace = Trace::read(form, from, requests_max).map_err(unreadable)?;
    match trace.requests.is_empty() {
        true => Err(format!(
            "{name} has no requests of form {}: {} lines were no GET with a body",
            form.as_str(),
            trace.skipped
        )),
        false => Ok(trace),
    }
}

fn by_name(log: &Path) -> Option<Form> {
    let name = log.file_name()?.to_string_lossy();
    name.ends_with(".oracleGeneral")
        .then_some(Form::Oracle)
        .or_else(|| name.ends_with(".oracleGeneral.bin").then_some(Form::Oracle))
}

/// The tool that unpacks what begins like this.
fn compressed(start: &[u8]) -> Option<&'static str> {
    let magic: [(&[u8], &str); 4] =
        [(b"\x1f\x8b", "gunzip"), (b"\x28\xb5\x2f\xfd", "zstd -d"), (b"\xfd7zXZ", "unxz"), (b"BZh", "bunzip2")];
    magic.iter().find(|(magic, _)| start.starts_with(magic)).map(|(_, tool)| *tool)
}
