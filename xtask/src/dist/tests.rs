//! The parts of a release around a stand-in for the program.

use super::*;
use crate::tally::in_ci;
use std::os::unix::fs::PermissionsExt;
use std::process::Output;

/// It writes papers as the program does, and is a script, so that nothing has to be compiled.
const STAND_IN: &str = r##"#!/bin/sh
case "$1" in
--version) echo "larder VERSION" ;;
man) for page in larder larder-run; do printf '.TH %s 1\n' "$page" > "$2/$page.1"; done ;;
completions) echo "# completions for $2" ;;
*) echo "started with $*" ;;
esac
"##;

struct Made {
    folder: tempfile::TempDir,
    sums: String,
}

impl Made {
    fn new(only: &[&str]) -> Made {
        Made::of(only, Linkage::Static)
    }

    /// As if the stand-in needed these libraries.
    fn of(only: &[&str], linkage: Linkage) -> Made {
        let root = shell::workspace().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("stand-in");
        fs::write(&program, STAND_IN.replace("VERSION", env!("CARGO_PKG_VERSION"))).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let roots = folder.path().join("roots.pem");
        fs::write(&roots, "roots\n").unwrap();
        let only = only.iter().map(|part| (*part).to_owned()).collect();
        let out = folder.path().join("out");
        let args = Args { target: None, binary: None, out: None, only, roots };
        let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
        let release = Release { linkage, ..release(root, Some(&target), &program).unwrap() };
        let sums = make(&release, &args, &out).unwrap();
        Made { folder, sums }
    }

    fn out(&self) -> PathBuf {
        self.folder.path().join("out")
    }

    /// The file that was made and ends in this way.
    fn file(&self, ending: &str) -> PathBuf {
        let files = fs::read_dir(self.out()).unwrap().map(|file| file.unwrap().path());
        let mut found = files.filter(|path| path.to_string_lossy().ends_with(ending));
        found.next().unwrap_or_else(|| panic!("no {ending} in {}", self.sums))
    }
}

/// The output of a program; `None`, and a note, where it is not installed, which must not be in CI.
fn told(name: &str, args: impl FnOnce(&mut Command) -> &mut Command) -> Option<Output> {
    let Some(program) = shell::find_program(name) else {
        assert!(!in_ci(), "{name} is not installed: .ci/run installs what is needed");
        println!("skipped: {name} is not installed");
        return None;
    };
    let mut command = Command::new(program);
    args(&mut command);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    Some(output)
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn two_builds_give_one_hash_and_the_sums_are_those_of_sha256sum() {
    let (one, other) = (Made::new(&[]), Made::new(&[]));
    assert_eq!(one.sums, other.sums);
    assert!(one.sums.lines().count() >= 4, "{}", one.sums);
    told("sha256sum", |sum| sum.current_dir(one.out()).args(["--check", "--strict", "SHA256SUMS"]));
}

#[test]
fn the_archive_has_the_program_its_papers_and_its_licences() {
    let made = Made::new(&["archive"]);
    let Some(list) = told("tar", |tar| tar.arg("-tvzf").arg(made.file(".tar.gz"))) else { return };
    let list = text(&list);
    for file in [
        "/larder\n",
        "/THIRD-PARTY.txt",
        "/systemd/larder.service",
        "/man/larder-run.1",
        "/larder.toml",
        "/grafana/larder.json",
    ] {
        assert!(list.contains(file), "{file} in {list}");
    }
    let program = list.lines().find(|line| line.ends_with("/larder")).unwrap();
    assert!(program.starts_with("-rwxr-xr-x 0/0"), "{program}");
}

#[test]
fn the_bill_of_materials_names_what_is_linked_and_nothing_else() {
    let made = Made::new(&["archive"]);
    let (package, into) = (made.file(".tar.gz"), made.folder.path());
    if told("tar", |tar| tar.arg("-xzf").arg(package).arg("-C").arg(into)).is_none() {
        return;
    }
    let name = format!("larder-{}-{}-linux", env!("CARGO_PKG_VERSION"), std::env::consts::ARCH);
    let unpacked = made.folder.path().join(name);
    let bill: serde_json::Value = serde_json::from_slice(&fs::read(unpacked.join("larder.cdx.json")).unwrap()).unwrap();
    let parts: Vec<&serde_json::Value> = bill["components"].as_array().unwrap().iter().collect();
    let named = |name: &str| parts.iter().find(|part| part["name"] == name);
    let rustls = named("rustls").unwrap();
    assert!(rustls["hashes"][0]["content"].as_str().unwrap().len() == 64, "{rustls}");
    assert!(rustls["licenses"][0]["expression"].as_str().unwrap().contains("MIT"), "{rustls}");
    // A procedural macro runs at the build, and a crate of the tests is not in the program.
    assert!(named("serde_derive").is_none() && named("proptest").is_none());
    let licences = fs::read_to_string(unpacked.join("THIRD-PARTY.txt")).unwrap();
    assert!(licences.contains("  rustls 0.") && licences.contains("Permission is hereby granted"));
}

#[test]
fn the_package_of_debian_is_one_for_its_own_tool() {
    let made = Made::new(&["deb"]);
    let package = made.file(".deb");
    let Some(fields) = told("dpkg-deb", |deb| deb.arg("--field").arg(&package)) else { return };
    assert!(text(&fields).contains("Package: larder\n") && text(&fields).contains("Depends: ca-certificates"));
    let list = text(&told("dpkg-deb", |deb| deb.arg("--contents").arg(&package)).unwrap());
    assert!(list.contains("./usr/bin/larder\n") && list.contains("./etc/larder/larder.toml\n"), "{list}");
    assert!(list.contains("./usr/share/doc/larder/prometheus/larder.rules.yml\n"), "{list}");
    // dpkg notes each name, and takes no package away that has an empty one.
    assert!(list.lines().next().unwrap().ends_with(" ./") && !list.contains("//"), "{list}");
    let folder = made.folder.path().join("unpacked");
    told("dpkg-deb", |deb| deb.arg("--raw-extract").arg(&package).arg(&folder));
    let control = |name: &str| fs::read_to_string(folder.join("DEBIAN").join(name)).unwrap();
    for file in control("conffiles").lines() {
        assert!(folder.join(file.trim_start_matches('/')).is_file(), "{file} is named as a file of settings");
    }
    told("md5sum", |sum| sum.current_dir(&folder).args(["--check", "--strict", "DEBIAN/md5sums"]));
    for script in ["postinst", "prerm", "postrm"] {
        told("sh", |sh| sh.arg("-n").arg(folder.join("DEBIAN").join(script)));
    }
}

#[test]
fn the_package_of_rpm_requires_the_glibc_of_its_program() {
    let requires = |linkage| {
        let made = Made::of(&["rpm"], linkage);
        let built = shell::find_program("rpmbuild")?;
        assert!(built.is_file() && made.sums.ends_with(".rpm\n"), "{}", made.sums);
        told("rpm", |rpm| rpm.args(["--query", "--requires", "--package"]).arg(made.file(".rpm")))
    };
    let Some(dynamic) = requires(Linkage::Glibc(2, 34)) else {
        assert!(!in_ci(), "rpmbuild and rpm are not installed: .ci/run installs what is needed");
        return;
    };
    for library in ["libc.so.6(GLIBC_2.34)(64bit)\n", "libgcc_s.so.1()(64bit)\n", "(shadow-utils or shadow)\n"] {
        assert!(text(&dynamic).contains(library), "{library} in {}", text(&dynamic));
    }
    let alone = text(&requires(Linkage::Static).unwrap());
    assert!(!alone.contains("libc.so.6") && alone.contains("ca-certificates"), "{alone}");
}

#[test]
fn the_wheel_is_installed_and_starts_the_program() {
    let made = Made::new(&["wheel"]);
    let environment = made.folder.path().join("venv");
    // Without pip, which takes seconds to come up in a new environment: the one at hand installs into it.
    let venv = told("python3", |python| python.args(["-m", "venv", "--without-pip"]).arg(&environment));
    if venv.is_none() {
        return;
    }
    let python = environment.join("bin/python");
    let install = |into: &[&str]| {
        told("pip3", |pip| {
            let pip = pip.arg("--python").arg(&python).args(["install", "--quiet", "--no-index", "--no-deps"]);
            pip.args(into).arg(made.file(".whl"))
        })
    };
    // Into a folder of its own first: the environment has no program then that could be taken for it.
    let elsewhere = made.folder.path().join("elsewhere");
    if install(&["--target", &elsewhere.to_string_lossy()]).is_none() {
        return;
    }
    let mut module = Command::new(&python);
    let said = module.env("PYTHONPATH", &elsewhere).args(["-m", "larder_cache", "demo"]).output().unwrap();
    assert_eq!(text(&said), "started with demo\n", "{}", String::from_utf8_lossy(&said.stderr));
    install(&[]);
    for name in ["larder", "larder-cache"] {
        let said = Command::new(environment.join("bin").join(name)).arg("demo").output().unwrap();
        assert_eq!(text(&said), "started with demo\n", "{name}: {}", String::from_utf8_lossy(&said.stderr));
    }
}

#[test]
fn the_image_has_blobs_of_the_digests_that_name_them() {
    let made = Made::new(&["image"]);
    let folder = made.folder.path().join("image");
    fs::create_dir(&folder).unwrap();
    if told("tar", |tar| tar.arg("-xf").arg(made.file("-image.tar")).arg("-C").arg(&folder)).is_none() {
        return;
    }
    let read = |path: &str| fs::read(folder.join(path)).unwrap();
    let json = |path: &str| serde_json::from_slice::<serde_json::Value>(&read(path)).unwrap();
    let blob = |described: &serde_json::Value| {
        let digest = described["digest"].as_str().unwrap().strip_prefix("sha256:").unwrap();
        let path = format!("blobs/sha256/{digest}");
        assert_eq!(
            (sha256(&read(&path)), read(&path).len() as u64),
            (digest.to_owned(), described["size"].as_u64().unwrap())
        );
        path
    };
    let manifest = json(&blob(&json("index.json")["manifests"][0]));
    let config = json(&blob(&manifest["config"]));
    let layer = blob(&manifest["layers"][0]);
    assert_eq!(config["config"]["User"], "65532:65532");
    assert_eq!(config["config"]["Healthcheck"]["Test"][2], "ready");
    let unpacked = told("gzip", |gzip| gzip.arg("-dc").arg(folder.join(layer))).unwrap().stdout;
    assert_eq!(config["rootfs"]["diff_ids"][0], format!("sha256:{}", sha256(&unpacked)));
}
