//! `cacheoff report`.

use super::{Summary, Threshold, csv, history_page, json, markdown, official, page, prometheus, text};
use crate::ledger::{Ledger, Price, Run};
use std::fs::{self, File};
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Makes reports from ledgers.
#[derive(clap::Args, Debug, Default)]
pub struct ReportArgs {
    /// Ledgers, or folders with ledgers in them
    #[arg(required_unless_present = "history")]
    ledgers: Vec<PathBuf>,
    /// Where the reports go
    #[command(flatten)]
    pub outputs: Outputs,
    /// Also write the ledgers as plain JSON documents, one a line
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the published figures of 2000 to 2015 as a page of their own
    #[arg(long, value_name = "FILE")]
    history: Option<PathBuf>,
    /// Price and power of the entries
    #[command(flatten)]
    normalisers: Normalisers,
}

/// Price and power, by which figures are divided.
#[derive(clap::Args, Debug, Default)]
pub struct Normalisers {
    /// Price of an entry with its network gear, as LABEL=AMOUNT or LABEL=AMOUNT:CURRENCY
    #[arg(long, value_name = "LABEL=AMOUNT")]
    price: Vec<String>,
    /// Power that an entry drew in the test in watts
    #[arg(long, value_name = "LABEL=WATTS")]
    watts: Vec<String>,
}

impl Normalisers {
    /// Says what is wrong with the flags before anything is played by these labels.
    pub fn check<'l>(&self, labels: impl Iterator<Item = &'l str>) -> Result<(), String> {
        let run = |label: &str| crate::ledger::Run { label: label.to_owned(), ..crate::ledger::Run::default() };
        self.apply(&mut labels.map(|label| Ledger { run: run(label), ..Ledger::default() }).collect::<Vec<_>>())
    }

    /// Writes them into the heads of the ledgers.
    pub fn apply(&self, ledgers: &mut [Ledger]) -> Result<(), String> {
        for given in &self.price {
            let (label, value) = pair(given, "--price")?;
            let (amount, currency) = value.split_once(':').unwrap_or((value, "USD"));
            let amount = amount.parse().map_err(|_| format!("--price {given}: {amount:?} is not a number"))?;
            let price = Price { amount, currency: currency.to_owned() };
            each(ledgers, label, "--price", |ledger| ledger.run.price = Some(price.clone()))?;
        }
        for given in &self.watts {
            let (label, value) = pair(given, "--watts")?;
            let watts: f64 = value.parse().map_err(|_| format!("--watts {given}: {value:?} is not a number"))?;
            each(ledgers, label, "--watts", |ledger| ledger.run.watts = Some(watts))?;
        }
        Ok(())
    }
}

/// Files that a report is written to, and the conditions that it is judged by.
#[derive(clap::Args, Debug, Default)]
pub struct Outputs {
    /// Write one self-contained HTML page
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Write the tables as Markdown
    #[arg(long, value_name = "FILE")]
    pub markdown: Option<PathBuf>,
    /// Write a row per run
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// Write metrics for a text-file collector
    #[arg(long, value_name = "FILE")]
    pub prometheus: Option<PathBuf>,
    /// Fail unless all conditions hold, such as 'p99<20ms,dhr>0.5'
    #[arg(long, value_name = "CONDITIONS")]
    pub threshold: Option<String>,
    /// Name of the maker for the head of the page: a person or a firm, in their own words; ledgers of an official sequence keep it
    #[arg(long, value_name = "WORDS")]
    pub by: Option<String>,
}

impl ReportArgs {
    /// Reads the ledgers and writes the reports; the terminal gets the summary.
    pub fn run(&self) -> Result<ExitCode, String> {
        if let Some(file) = &self.history {
            write(file, &history_page())?;
        }
        if self.ledgers.is_empty() {
            return Ok(ExitCode::SUCCESS);
        }
        self.outputs.check()?;
        let mut ledgers = read_all(&self.ledgers)?;
        self.normalisers.apply(&mut ledgers)?;
        if let Some(file) = &self.json {
            let lines: String = ledgers.iter().map(|ledger| format!("{}\n", json(ledger))).collect();
            write(file, &lines)?;
        }
        self.outputs.give(&ledgers)
    }
}

impl Outputs {
    /// Says what is wrong with the flags, for those who have hours to play before they give a report.
    pub fn check(&self) -> Result<(), String> {
        Threshold::parse_all(self.threshold.as_deref().unwrap_or(""))?;
        for file in [&self.html, &self.markdown, &self.csv, &self.prometheus].into_iter().flatten() {
            let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
            if !folder.is_dir() || file.is_dir() {
                return Err(format!("{} cannot be written: {} is no folder for it", file.display(), folder.display()));
            }
        }
        Ok(())
    }

    /// Prints the summary, writes the files, judges by the conditions.
    pub fn give(&self, ledgers: &[Ledger]) -> Result<ExitCode, String> {
        let thresholds = Threshold::parse_all(self.threshold.as_deref().unwrap_or(""))?;
        print!("{}", text(ledgers));
        let named: Vec<Ledger>;
        let ledgers = match &self.by {
            Some(by) => {
                let with =
                    |ledger: &Ledger| Ledger { run: Run { by: by.clone(), ..ledger.run.clone() }, ..ledger.clone() };
                named = ledgers.iter().map(with).collect();
                &named[..]
            }
            None => ledgers,
        };
        type Make = fn(&[Ledger]) -> String;
        let makes: [(&Option<PathBuf>, Make); 4] =
            [(&self.html, html), (&self.markdown, markdown), (&self.csv, csv), (&self.prometheus, prometheus)];
        for (file, make) in makes {
            if let Some(file) = file {
                write(file, &make(ledgers))?;
            }
        }
        let mut broken = 0;
        for summary in ledgers.iter().map(Summary::of) {
            for reason in thresholds.iter().filter_map(|threshold| threshold.broken_by(&summary)) {
                println!("threshold: {reason}");
                broken += 1;
            }
        }
        Ok(if broken == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

/// The page of an official sequence has its own order.
pub fn html(ledgers: &[Ledger]) -> String {
    if official::is_sequence(ledgers) { official::page(ledgers) } else { page(ledgers) }
}

fn write(file: &Path, text: &str) -> Result<(), String> {
    fs::write(file, text).map_err(|error| format!("{} cannot be written: {error}", file.display()))
}

fn pair<'t>(given: &'t str, flag: &str) -> Result<(&'t str, &'t str), String> {
    given.split_once('=').ok_or_else(|| format!("{flag} {given}: write LABEL=NUMBER"))
}

fn each(ledgers: &mut [Ledger], label: &str, flag: &str, change: impl Fn(&mut Ledger)) -> Result<(), String> {
    let mut of_label = ledgers.iter_mut().filter(|ledger| ledger.run.label == label).peekable();
    if of_label.peek().is_none() {
        return Err(format!("{flag} {label}: no ledger has this label"));
    }
    of_label.for_each(change);
    Ok(())
}

/// Ledgers of files and folders in the order of their starts.
fn read_all(paths: &[PathBuf]) -> Result<Vec<Ledger>, String> {
    let mut files = Vec::new();
    for path in paths {
        match path.is_dir() {
            true => files.extend(inside(path)?),
            false => files.push(path.clone()),
        }
    }
    let mut ledgers = files.iter().map(|file| read(file)).collect::<Result<Vec<_>, _>>()?;
    ledgers.sort_by_key(|ledger| ledger.run.started_unix);
    Ok(ledgers)
}

/// The ledgers in a folder, by name.
pub fn inside(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let fail = |error: std::io::Error| format!("{} cannot be read: {error}", folder.display());
    let paths = fs::read_dir(folder).map_err(fail)?.map(|entry| entry.map(|entry| entry.path()));
    let mut files: Vec<PathBuf> = paths.collect::<Result<_, _>>().map_err(fail)?;
    files.retain(|file| file.extension().is_some_and(|extension| extension == "ledger"));
    files.sort();
    match files.is_empty() {
        true => Err(format!("{} has no file whose name ends with .ledger", folder.display())),
        false => Ok(files),
    }
}

/// Reads one ledger from a file.
pub fn read(file: &Path) -> Result<Ledger, String> {
    let open = File::open(file).map_err(|error| format!("{} cannot be read: {error}", file.display()))?;
    Ledger::read(BufReader::new(open)).map_err(|fault| match std::error::Error::source(&fault) {
        Some(cause) => format!("{}: {fault}: {cause}", file.display()),
        None => format!("{}: {fault}", file.display()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::{End, Outcome, Run};

    fn ledger(label: &str, started_unix: u64) -> Ledger {
        let run = Run { label: label.to_owned(), started_unix, ..Run::default() };
        let end = End { outcome: Outcome::Failed("not started".to_owned()), ..End::default() };
        Ledger { run, end, ..Ledger::default() }
    }

    #[test]
    fn a_folder_of_ledgers_becomes_reports_in_the_order_of_time() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for (name, label, at) in [("a.ledger", "late", 20), ("b.ledger", "early", 10)] {
            ledger(label, at).write(File::create(path(name)).unwrap()).unwrap();
        }
        fs::write(path("notes.txt"), "no ledger").unwrap();
        let args = ReportArgs {
            ledgers: vec![folder.path().to_owned()],
            outputs: Outputs { html: Some(path("r.html")), csv: Some(path("r.csv")), ..Outputs::default() },
            json: Some(path("r.json")),
            history: Some(path("h.html")),
            normalisers: Normalisers { price: vec!["early=5000:EUR".to_owned()], watts: Vec::new() },
        };
        args.run().unwrap();
        let page = fs::read_to_string(path("r.html")).unwrap();
        assert!(page.find("early").unwrap() < page.find("late").unwrap() && page.contains("5,000 EUR"));
        assert_eq!(fs::read_to_string(path("r.json")).unwrap().lines().count(), 2);
        assert!(fs::read_to_string(path("h.html")).unwrap().contains("IBM 5000"));
        let failing = ReportArgs {
            outputs: Outputs { threshold: Some("rps>1".to_owned()), ..Outputs::default() },
            ledgers: args.ledgers,
            ..ReportArgs::default()
        };
        assert_eq!(failing.run().unwrap(), ExitCode::FAILURE);
    }

    #[test]
    fn what_is_wrong_is_said_with_the_file_or_the_flag() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("x.ledger");
        fs::write(&file, "nonsense").unwrap();
        let of = |args: ReportArgs| args.run().unwrap_err();
        let with = |ledgers: Vec<PathBuf>| ReportArgs { ledgers, ..ReportArgs::default() };
        assert!(of(with(vec![file.clone()])).ends_with("does not name the format cacheoff-ledger-1"));
        assert!(of(with(vec![folder.path().join("none")])).contains("cannot be read"));
        ledger("a", 1).write(File::create(&file).unwrap()).unwrap();
        for (price, reason) in
            [("a", "write LABEL=NUMBER"), ("b=1", "no ledger has this label"), ("a=x", "not a number")]
        {
            let normalisers = Normalisers { price: vec![price.to_owned()], watts: Vec::new() };
            let args = ReportArgs { normalisers, ..with(vec![file.clone()]) };
            assert!(of(args).contains(reason), "{price}");
        }
    }
}
