//! The origins of the lab: nginx with files, packages and a hub, a git server, a registry of images.

use super::namespace;
use crate::lab::{self, Lab};
use crate::shell::{self, Trouble};
use std::path::PathBuf;
use std::process::Command;

const BIG_BYTES: usize = 20_000_000;

/// The origins that the table alone needs, as far as their programs are here: variable, port and value. Packages are planted too.
pub(super) fn services(lab: &mut Lab, https: u16, name: &str) -> Result<Vec<(&'static str, u16, String)>, Trouble> {
    let mut services = Vec::new();
    let Some(python) = shell::find_program("python3") else { return Ok(services) };
    let plant = lab.write("plant.py", include_str!("../../peers/plant.py"))?;
    let root = lab.path().join("root");
    shell::ask(Command::new(&python).arg(plant).arg(&root).arg(format!("https://localhost:{https}")))?;
    let port = lab::free_port()?;
    let server = lab.write("git.py", include_str!("../../peers/git.py"))?;
    lab.start("git", Command::new(&python).arg(server).arg(port.to_string()).arg(&root), port)?;
    services.push(("GIT", port, format!("http://localhost:{port}")));
    if shell::find_program("gem").is_some() {
        plant_gem(lab)?;
    }
    if let (Some(registry), Some(skopeo)) = (shell::find_program("docker-registry"), shell::find_program("skopeo")) {
        let port = lab::free_port()?;
        let at = |name: &str| lab.path().join(name).display().to_string();
        let text = format!(
            "version: 0.1\nstorage:\n  filesystem:\n    rootdirectory: {}\nhttp:\n  addr: :{port}\n  tls:\n    certificate: {}\n    key: {}\n",
            at("registry"),
            at("leaf.pem"),
            at("leaf.key")
        );
        let config = lab.write("registry.yml", text)?;
        let image = format!("oci:{}:lab", at("image"));
        lab.start("registry", Command::new(registry).arg("serve").arg(config), port)?;
        let mut push = Command::new(skopeo);
        push.args(["copy", "-q", "--insecure-policy", "--dest-tls-verify=false", &image]);
        shell::ask(push.arg(format!("docker://localhost:{port}/lab:1")))?;
        if let Some(helm) = shell::find_program("helm") {
            let at = |name: &str| lab.path().join(name);
            // By `localhost` some versions speak no TLS.
            let mut push = Command::new(helm);
            push.arg("push").arg(at("root/files/lab-chart-1.0.0.tgz")).arg("--ca-file").arg(at("ca.pem"));
            for home in ["HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"] {
                push.env(home, at("helm"));
            }
            shell::ask(push.arg(format!("oci://{name}:{port}/charts")))?;
        }
        services.push(("REGISTRY", port, format!("{name}:{port}")));
    }
    Ok(services)
}

fn plant_gem(lab: &Lab) -> Result<(), Trouble> {
    lab.write("gem/data.txt", "a line of a gem\n".repeat(5_000))?;
    lab.write(
        "gem/lab.gemspec",
        "Gem::Specification.new { |s| s.name = 'lab-package'; s.version = '1.0'; s.summary = s.authors = 'lab'; s.files = ['data.txt'] }\n",
    )?;
    let gems = lab.folder("root/gems/gems")?;
    let gem = |arguments: &[&str], folder: &str| {
        shell::ask(Command::new("gem").current_dir(lab.path().join(folder)).args(arguments)).map(|_| ())
    };
    gem(&["build", "-q", "lab.gemspec", "-o", &gems.join("lab-package-1.0.gem").display().to_string()], "gem")?;
    gem(&["generate_index", "-q", "-d", "."], "root/gems")
}

/// A certificate authority of the lab and a certificate for localhost; gives the authority's file.
pub(super) fn certificates(lab: &Lab) -> Result<PathBuf, Trouble> {
    let file = |name: &str| lab.path().join(name).display().to_string();
    let key = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "3"];
    // They must hold 20 hours ago too, where that is played.
    let openssl = || match shell::find_program("faketime") {
        Some(faketime) => {
            let mut command = Command::new(faketime);
            command.args(["-f", "-1d", "openssl"]);
            command
        }
        None => Command::new("openssl"),
    };
    let mut authority = openssl();
    authority.args(key).args(["-subj", "/CN=Lab", "-keyout", &file("ca.key"), "-out", &file("ca.pem")]);
    authority.args(["-addext", "keyUsage=critical,keyCertSign"]);
    shell::ask(&mut authority)?;
    let mut leaf = openssl();
    leaf.args(key).args(["-subj", "/CN=localhost", "-keyout", &file("leaf.key"), "-out", &file("leaf.pem")]);
    leaf.args(["-CA", &file("ca.pem"), "-CAkey", &file("ca.key"), "-addext", "basicConstraints=critical,CA:FALSE"]);
    let names = format!("subjectAltName=DNS:localhost,DNS:{}", namespace::lab_name());
    leaf.args(["-addext", &names, "-addext", "extendedKeyUsage=serverAuth"]);
    shell::ask(&mut leaf)?;
    Ok(lab.path().join("ca.pem"))
}

/// nginx with a tree of files and a repository; gives its clear and its TLS port.
pub(super) fn origin(lab: &mut Lab) -> Result<(u16, u16), Trouble> {
    plant_tree(lab)?;
    plant_repository(lab)?;
    let (http, https) = (lab::free_port()?, lab::free_port()?);
    let fill = [
        ("http", http.to_string()),
        ("https", https.to_string()),
        ("lab", lab.path().display().to_string()),
        ("address", namespace::address().to_string()),
        ("name", namespace::lab_name()),
    ];
    let conf = lab::configuration(lab, "origin", include_str!("../../peers/tree.conf"), &fill)?;
    lab.start("origin", Command::new(shell::need_program("nginx")?).arg("-c").arg(conf), http)?;
    Ok((http, https))
}

fn plant_tree(lab: &Lab) -> Result<(), Trouble> {
    let body = |seed: usize, len: usize| -> Vec<u8> { (0..len).map(|at| (at * seed / 251 + at) as u8).collect() };
    lab.write("root/tree/big.bin", body(3, BIG_BYTES))?;
    let mut links = String::new();
    for page in 0..12 {
        let mut images = String::new();
        for image in 0..5 {
            let name = format!("image-{page}-{image}.bin");
            lab.write(&format!("root/tree/images/{name}"), body(page + 2, 3_000 + 17_000 * image))?;
            images.push_str(&format!("<img src=\"images/{name}\">"));
        }
        lab.write(&format!("root/tree/page-{page}.html"), format!("<html><body>{images}</body></html>"))?;
        links.push_str(&format!("<a href=\"page-{page}.html\">{page}</a>\n"));
    }
    lab.write("root/tree/index.html", format!("<html><body>{links}</body></html>"))?;
    Ok(())
}

/// A bare repository that is served as plain files.
fn plant_repository(lab: &Lab) -> Result<(), Trouble> {
    for file in 0..30 {
        lab.write(&format!("work/folder-{}/file-{file}", file % 4), format!("line {file}\n").repeat(200 + file))?;
    }
    // Bytes that can't be compressed: beside the pack, what git asks afresh is little, as with real repositories.
    let mut state = 1_u32;
    let noise: Vec<u8> = std::iter::repeat_with(|| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    })
    .take(300_000)
    .collect();
    lab.write("work/data.bin", noise)?;
    let bare = lab.path().join("root/repository.git");
    let git = |arguments: &[&str]| {
        let mut command = Command::new("git");
        command.current_dir(lab.path().join("work")).args(["-c", "user.name=Lab", "-c", "user.email=lab@localhost"]);
        shell::ask(command.args(arguments)).map(|_| ())
    };
    git(&["init", "-q"])?;
    git(&["add", "."])?;
    git(&["commit", "-q", "-m", "Files"])?;
    git(&["clone", "-q", "--bare", ".", &bare.display().to_string()])?;
    shell::ask(Command::new("git").arg("-C").arg(&bare).arg("update-server-info")).map(|_| ())
}
