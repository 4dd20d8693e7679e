//! Python packages: names as an index has them, and which of a package's files this machine uses.

/// Files of a package that an index has to name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Wanted {
    /// The name, in the form that the index has.
    pub name: String,
    /// The version.
    pub version: String,
    /// Digests of the files that may be used, as `sha256:…`; none: any.
    pub hashes: Vec<String>,
    /// The index that the entry itself names.
    pub index: Option<String>,
}

/// The machine for which files are chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// The version of Python, as 3 and 12; `None`: any.
    pub python: Option<(u32, u32)>,
    /// The system and processor in the words of platform tags, as `linux` and `x86_64`.
    pub system: &'static str,
    /// The processor.
    pub processor: &'static str,
}

impl Machine {
    /// This one.
    pub fn here(python: Option<(u32, u32)>) -> Machine {
        let system = if cfg!(target_os = "macos") { "macosx" } else { "linux" };
        let processor = match std::env::consts::ARCH {
            "aarch64" if system == "macosx" => "arm64",
            other => other,
        };
        Machine { python, system, processor }
    }

    /// Whether a wheel's tags allow its use here (PEP 425). Builds for another C library count as usable: the installer knows
    /// better, and a file too many is no harm.
    pub fn uses(&self, wheel: &str) -> bool {
        let Some(stem) = wheel.strip_suffix(".whl") else { return false };
        let mut parts = stem.rsplit('-');
        let (Some(platforms), Some(abis), Some(pythons)) = (parts.next(), parts.next(), parts.next()) else {
            return false;
        };
        platforms.split('.').any(|platform| self.has_platform(platform))
            && pythons.split('.').any(|python| self.has_python(python, abis))
    }

    fn has_platform(&self, platform: &str) -> bool {
        if platform == "any" {
            return true;
        }
        let is_here = match self.system {
            "linux" => platform.contains("linux"),
            system => platform.starts_with(system),
        };
        is_here && (platform.ends_with(self.processor) || platform.ends_with("_universal2"))
    }

    fn has_python(&self, tag: &str, abis: &str) -> bool {
        let digits = tag.trim_start_matches(|letter: char| !letter.is_ascii_digit());
        let (kind, major) = (&tag[..tag.len() - digits.len()], digits.get(..1).unwrap_or_default());
        if !matches!(kind, "py" | "cp") || major != "3" {
            return false;
        }
        let Some((_, minor)) = self.python else { return true };
        let Some(tagged) = digits.get(1..).and_then(|digits| digits.parse::<u32>().ok()) else { return true };
        match kind {
            "py" => tagged <= minor,
            // The stable interface of one version holds for all later ones.
            _ if abis.split('.').any(|abi| abi == "abi3") => tagged <= minor,
            _ => tagged == minor && !abis.split('.').all(|abi| abi == format!("cp3{minor}t")),
        }
    }

    /// The files of a release that an installer would choose from: usable wheels, else the source.
    pub fn choose<'f, F>(&self, files: &'f [F], name: impl Fn(&F) -> &str) -> Vec<&'f F> {
        let wheels: Vec<&F> = files.iter().filter(|file| self.uses(name(file))).collect();
        match wheels.is_empty() {
            true => files.iter().filter(|file| is_source(name(file))).collect(),
            false => wheels,
        }
    }
}

fn is_source(file: &str) -> bool {
    [".tar.gz", ".zip", ".tar.bz2", ".tgz"].iter().any(|end| file.ends_with(end))
}

/// A name as indexes have it (PEP 503).
pub fn normal(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    for letter in name.trim().chars() {
        match letter {
            '-' | '_' | '.' if out.ends_with('-') => {}
            '-' | '_' | '.' => out.push('-'),
            other => out.push(other.to_ascii_lowercase()),
        }
    }
    out
}

/// Whether a file is of this version of a package.
pub fn is_of(file: &str, name: &str, version: &str) -> bool {
    let rest = match file.strip_suffix(".whl") {
        Some(stem) => stem.split('-').nth(1),
        None => {
            let stem = [".tar.gz", ".zip", ".tar.bz2", ".tgz"].iter().find_map(|end| file.strip_suffix(end));
            stem.and_then(|stem| {
                // The name may have hyphens of its own, so that as many parts as it has are taken off.
                let parts = normal(name).split('-').count();
                stem.match_indices(['-', '_', '.']).nth(parts - 1).map(|(at, _)| &stem[at + 1..])
            })
        }
    };
    rest.is_some_and(|rest| normal_version(rest) == normal_version(version))
}

/// Versions that are written in several ways are compared in one.
fn normal_version(version: &str) -> String {
    let version = version.trim().trim_start_matches('v').to_ascii_lowercase().replace(['-', '_'], ".");
    match version.strip_suffix(".0") {
        Some(_) if version.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') => {
            let mut version = &*version;
            while let Some(shorter) = version.strip_suffix(".0") {
                version = shorter;
            }
            version.to_owned()
        }
        _ => version,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wheels_for_this_machine() {
        let machine = Machine { python: Some((3, 11)), system: "linux", processor: "x86_64" };
        for (wheel, uses) in [
            ("six-1.16.0-py2.py3-none-any.whl", true),
            ("old-1.0-py2-none-any.whl", false),
            ("n-1.0-cp311-cp311-manylinux_2_17_x86_64.manylinux2014_x86_64.whl", true),
            ("n-1.0-cp311-cp311-musllinux_1_1_x86_64.whl", true),
            ("n-1.0-cp312-cp312-manylinux_2_17_x86_64.whl", false),
            ("n-1.0-cp38-abi3-manylinux_2_17_x86_64.whl", true),
            ("n-1.0-cp312-abi3-manylinux_2_17_x86_64.whl", false),
            ("n-1.0-cp311-cp311-manylinux_2_17_aarch64.whl", false),
            ("n-1.0-cp311-cp311-win_amd64.whl", false),
            ("n-1.0-cp311-cp311-macosx_11_0_arm64.whl", false),
            ("n-1.0-pp310-pypy310_pp73-manylinux_2_17_x86_64.whl", false),
            ("n-1.0-1-py3-none-any.whl", true),
            ("n-1.0.tar.gz", false),
            ("x.whl", false),
        ] {
            assert_eq!(machine.uses(wheel), uses, "{wheel}");
        }
        let any = Machine { python: None, ..machine.clone() };
        assert!(any.uses("n-1.0-cp312-cp312-manylinux_2_17_x86_64.whl"));
        let chosen =
            |files: &[&'static str]| machine.choose(files, |file| file).into_iter().copied().collect::<Vec<_>>();
        assert_eq!(chosen(&["a-1-py3-none-any.whl", "a-1.tar.gz"]), ["a-1-py3-none-any.whl"]);
        assert_eq!(chosen(&["a-1-cp39-cp39-win32.whl", "a-1.tar.gz"]), ["a-1.tar.gz"]);
    }

    #[test]
    fn files_belong_to_versions() {
        for (file, name, version, is) in [
            ("six-1.16.0-py2.py3-none-any.whl", "six", "1.16.0", true),
            ("six-1.16.0.tar.gz", "six", "1.16.0", true),
            ("six-1.16.0.tar.gz", "six", "1.16", true),
            ("six-1.16.1.tar.gz", "six", "1.16.0", false),
            ("zope.interface-5.0.tar.gz", "zope-interface", "5.0.0", true),
            ("typing_extensions-4.0.0.tar.gz", "typing-extensions", "4.0.0", true),
            ("a-1.0rc1.tar.gz", "a", "1.0", false),
            ("six.exe", "six", "1.16.0", false),
        ] {
            assert_eq!(is_of(file, name, version), is, "{file} {version}");
        }
        assert_eq!(normal("Zope._Interface"), "zope-interface");
    }
}
