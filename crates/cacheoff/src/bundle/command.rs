//! `cacheoff bundle`.

use super::rules::RULES;
use super::{check, make, signer};
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// A larger bundle is refused: it is read into memory.
const BUNDLE_BYTES_MAX: u64 = 1 << 30;

/// Makes and checks bundles of results: ledgers, configurations, workloads and the report in one signed file.
#[derive(clap::Args, Debug)]
pub struct BundleArgs {
    #[command(subcommand)]
    command: BundleCommand,
}

#[derive(clap::Subcommand, Debug)]
enum BundleCommand {
    /// Makes a bundle of the ledgers in a folder
    Make {
        /// The folder of a contest or an official sequence
        folder: PathBuf,
        /// The bundle
        #[arg(short, long, value_name = "FILE")]
        output: PathBuf,
        /// Sign it with this Ed25519 key in PEM (openssl genpkey -algorithm ed25519 -out FILE)
        #[arg(long, value_name = "FILE")]
        sign: Option<PathBuf>,
    },
    /// Checks hashes, signature, report and the rules of disclosure
    Check {
        /// The bundle
        bundle: PathBuf,
        /// The public key that must have signed it, in 64 hexadecimal digits; without one the signature proves only that the
        /// bundle is as its signer made it, and not who that is
        #[arg(long, value_name = "HEX")]
        key: Option<String>,
    },
    /// Prints the rules of disclosure
    Rules,
}

impl BundleArgs {
    /// Makes, checks or prints. The status is 1 if a rule is broken.
    pub fn run(&self) -> Result<ExitCode, String> {
        match &self.command {
            BundleCommand::Make { folder, output, sign } => make_of(folder, output, sign.as_deref()),
            BundleCommand::Check { bundle, key } => check_file(bundle, key.as_deref()),
            BundleCommand::Rules => {
                RULES.iter().for_each(|rule| println!("{:<16} {}", rule.name, rule.sentence));
                Ok(ExitCode::SUCCESS)
            }
        }
    }
}

fn make_of(folder: &Path, output: &Path, key: Option<&Path>) -> Result<ExitCode, String> {
    let paths = crate::report::command::inside(folder)?;
    let mut ledgers = Vec::new();
    for path in paths {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        ledgers.push((name, read(&path)?));
    }
    let bytes = make(ledgers, key)?;
    fs::write(output, &bytes).map_err(|error| format!("{} cannot be written: {error}", output.display()))?;
    println!("{}: {:.1} MB", output.display(), bytes.len() as f64 / 1e6);
    show(&bytes, None)?;
    Ok(ExitCode::SUCCESS)
}

fn check_file(bundle: &Path, key: Option<&str>) -> Result<ExitCode, String> {
    let bytes = read(bundle)?;
    let held = show(&bytes, key).map_err(|reason| format!("{}: {reason}", bundle.display()))?;
    Ok(if held { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Prints each rule with its verdict; gives whether all are held.
fn show(bytes: &[u8], key: Option<&str>) -> Result<bool, String> {
    let checked = check(bytes, key)?;
    for each in &checked {
        match &each.broken {
            None => println!("held    {}", each.rule),
            Some(reason) => println!("broken  {}: {reason}", each.rule),
        }
    }
    if let (Some(signer), None) = (signer(bytes)?, key) {
        println!("signed with the key {signer}");
        println!(
            "No --key was given: the signature proves that nothing was changed since, and not whose results these are. Compare the key with one that its owner publishes."
        );
    }
    Ok(checked.iter().all(|each| each.broken.is_none()))
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    let fail = |error: std::io::Error| format!("{} cannot be read: {error}", path.display());
    let mut bytes = Vec::new();
    File::open(path).map_err(fail)?.take(BUNDLE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(fail)?;
    match bytes.len() as u64 > BUNDLE_BYTES_MAX {
        true => Err(format!("{} is larger than 1 GiB: make a bundle for each contest", path.display())),
        false => Ok(bytes),
    }
}
