//! The tools that are played: each a short script that downloads into its working folder.

/// A tool and what it downloads.
#[derive(Clone, Copy)]
pub struct Tool {
    /// The name in the report.
    pub name: &'static str,
    /// The program that must be installed.
    pub program: &'static str,
    /// Where it downloads from.
    pub from: From,
    /// For `sh`; `$HTTP` and `$HTTPS` are the local origin, `$NAMED` too, by the machine's name, `$GIT` a git server and `$REGISTRY`
    /// a registry of images; `$CACHE` is an empty folder for the tool's own cache.
    /// Lines that differ from run to run by nature (times in an index) are removed at its end.
    pub script: &'static str,
}

impl Tool {
    /// A tool at the origin of the lab.
    const fn lab(name: &'static str, program: &'static str, script: &'static str) -> Tool {
        Tool { name, program, from: From::Lab, script }
    }

    /// A tool at its registry.
    const fn registry(name: &'static str, program: &'static str, script: &'static str) -> Tool {
        Tool { name, program, from: From::Registry, script }
    }
}

/// Where a tool downloads from.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum From {
    /// The origin of the lab.
    Lab,
    /// The registry that the tool is configured for; not reached, it is skipped.
    Registry,
}

/// A script of apt, with lists, packages and logs of its own: of the machine only where packages come from, and, unless it makes a list of
/// its own, what is installed.
macro_rules! apt {
    ($script:literal) => {
        concat!(
            "sources=/etc/apt/sources.list.d/debian.sources; [ -f $sources ] || sources=/etc/apt/sources.list
             mkdir -p $CACHE/lists/partial $CACHE/archives/partial
             apt() {
               status=$CACHE/status; [ -f $status ] || status=/var/lib/dpkg/status
               apt-get -qq -o Dir::State::lists=$CACHE/lists -o Dir::State::status=$status \\
                 -o Dir::Cache=$CACHE -o Dir::Etc::sourcelist=$sources -o Dir::Etc::sourceparts=- -o Dir::Log=$CACHE \\
                 -o Acquire::Languages=none -o APT::Sandbox::User=root -o Debug::NoLocking=1 \"$@\"
             }
             ",
            $script
        )
    };
}

/// All tools, the local ones first.
pub const TOOLS: &[Tool] = &[
    Tool {
        name: "curl",
        program: "curl",
        from: From::Lab,
        script: "curl -fsS -O $HTTPS/tree/big.bin -O $HTTPS/tree/page-0.html -O $HTTP/tree/page-1.html",
    },
    Tool { name: "wget -r", program: "wget", from: From::Lab, script: "wget -q -r -np -nH $HTTP/tree/index.html" },
    Tool {
        name: "wget -r (https)",
        program: "wget",
        from: From::Lab,
        script: "wget -q -r -np -nH $HTTPS/tree/index.html",
    },
    Tool {
        name: "git clone",
        program: "git",
        from: From::Lab,
        script: "git clone -q $HTTPS/repository.git clone && git -C clone fsck --full --strict 2>&1 \
                 && git -C clone rev-parse HEAD > head && rm -rf clone/.git",
    },
    Tool {
        name: "pip download",
        program: "pip3",
        from: From::Registry,
        script: "pip3 download -q --no-deps --no-cache-dir --disable-pip-version-check six idna",
    },
    Tool {
        name: "npm pack",
        program: "npm",
        from: From::Registry,
        script: "npm pack --silent --cache $CACHE is-number is-odd",
    },
    Tool {
        name: "npm install",
        program: "npm",
        from: From::Registry,
        script: "npm install --silent --no-audit --no-fund --ignore-scripts --cache $CACHE --prefix . is-odd",
    },
    Tool {
        name: "cargo fetch",
        program: "cargo",
        from: From::Registry,
        script: "mkdir src && : > src/lib.rs \
                 && printf '[package]\\nname = \"fetched\"\\nversion = \"0.1.0\"\\n[dependencies]\\nitoa = \"1\"\\nryu = \"1\"\\n[workspace]\\n' > Cargo.toml \
                 && CARGO_HOME=$CACHE cargo fetch -q && cp $CACHE/registry/cache/*/*.crate .",
    },
    Tool {
        name: "apt-get download",
        program: "apt-get",
        from: From::Registry,
        script: apt!("apt update && apt download hostname"),
    },
];

/// Tools of the table alone: rarely installed, slow, or of other services of the lab.
pub const MORE_TOOLS: &[Tool] = &[
    Tool::lab("aria2", "aria2c", "aria2c -q --no-conf $HTTP/tree/big.bin $HTTP/tree/page-0.html -Z"),
    Tool::lab(
        "aria2 (https)",
        "aria2c",
        "aria2c -q --no-conf --ca-certificate=${SSL_CERT_FILE:-$LAB_TRUST} $HTTPS/tree/big.bin",
    ),
    Tool::lab("curl (signed hub)", "curl", "curl -fsSLO $HTTPS/hub/lab/model/resolve/main/weights.bin"),
    Tool::lab(
        "hf download",
        "hf",
        "HF_ENDPOINT=$HTTPS/hub HF_HOME=$CACHE HF_HUB_DISABLE_TELEMETRY=1 HF_HUB_DISABLE_XET=1 \
         hf download lab/model weights.bin --quiet --local-dir out && mv out/weights.bin . && rm -rf out",
    ),
    Tool::lab(
        "git clone (smart)",
        "git",
        "git clone -q $GIT/repository.git clone && git -C clone rev-parse HEAD > head && rm -rf clone/.git",
    ),
    Tool::lab(
        "pip (index with lifetimes)",
        "pip3",
        "pip3 download -q --no-deps --no-cache-dir --disable-pip-version-check -i $HTTPS/index/simple/ lab-package",
    ),
    Tool::lab(
        "npm (index with lifetimes)",
        "npm",
        "npm pack --loglevel error --fetch-retries 0 --cache $CACHE --registry $HTTPS/index/npm/ lab-package",
    ),
    Tool::lab("gem fetch", "gem", "gem fetch -q --clear-sources -s $HTTPS/gems/ lab-package"),
    Tool::lab(
        "skopeo copy",
        "skopeo",
        "skopeo copy -q --policy /dev/null --insecure-policy docker://$REGISTRY/lab:1 dir:image && mv image/* . && rmdir image",
    ),
    Tool::lab("podman pull", "podman", PODMAN),
    Tool::lab(
        "helm pull",
        "helm",
        "export HELM_CACHE_HOME=$CACHE HELM_CONFIG_HOME=$CACHE HELM_DATA_HOME=$CACHE
         helm repo add lab $NAMED/charts >/dev/null && helm repo update >/dev/null && helm pull lab/lab-chart --version 1.0.0",
    ),
    Tool::lab(
        "helm pull (oci)",
        "helm",
        "export HELM_CACHE_HOME=$CACHE HELM_CONFIG_HOME=$CACHE HELM_DATA_HOME=$CACHE
         helm pull oci://$REGISTRY/charts/lab-chart --version 1.0.0 2>/dev/null",
    ),
    Tool::lab("rattler (conda channel)", "python3", RATTLER),
    Tool::lab(
        "terraform get",
        "terraform",
        "printf 'module \"lab\" {\\n  source = \"%s/files/module.zip\"\\n}\\n' $NAMED > main.tf \
         && terraform get -no-color >/dev/null && mv .terraform/modules/lab/data.bin . && rm -rf .terraform main.tf",
    ),
    Tool::registry(
        "uv pip install",
        "uv",
        "UV_CACHE_DIR=$CACHE uv -q pip install --no-deps --python python3 --target got six idna && rm -rf got/.lock got/*/uv_cache.json",
    ),
    Tool::lab(
        "poetry lock",
        "poetry",
        "printf '[project]\\nname = \"lab\"\\nversion = \"1\"\\nrequires-python = \">=3.11\"\\ndependencies = [\"lab-package\"]\\n\
         [[tool.poetry.source]]\\nname = \"lab\"\\nurl = \"%s/index/simple/\"\\npriority = \"primary\"\\n' $HTTPS > pyproject.toml \
         && POETRY_CACHE_DIR=$CACHE poetry lock -q -n && sed -i /generated/d poetry.lock",
    ),
    Tool::registry(
        "pnpm install",
        "pnpm",
        "printf '{\"name\":\"lab\",\"dependencies\":{\"is-odd\":\"3\"}}' > package.json && pnpm install --silent --ignore-scripts \
         --store-dir $CACHE/store --config.cache-dir=$CACHE/cache --package-import-method copy \
         && rm -rf node_modules/.modules.yaml node_modules/.pnpm-workspace-state*",
    ),
    Tool::registry(
        "yarn install",
        "yarn",
        "printf '{\"name\":\"lab\",\"license\":\"MIT\",\"dependencies\":{\"is-odd\":\"3\"}}' > package.json \
         && YARN_REGISTRY=$(npm config get registry 2>/dev/null) yarn install --silent --non-interactive --ignore-scripts --cache-folder $CACHE",
    ),
    Tool::registry(
        "go mod download",
        "go",
        "printf 'module lab\\ngo 1.21\\nrequire rsc.io/quote v1.5.2\\n' > go.mod \
         && GOMODCACHE=$CACHE GOFLAGS=-modcacherw GONOSUMDB='*' go mod download all && cp -r $CACHE/cache/download got && find got -name '*.lock' -delete",
    ),
    Tool::registry(
        "mvn dependency:get",
        "mvn",
        "mvn -q -B -Dmaven.repo.local=$CACHE -Dtransitive=false -Dartifact=commons-cli:commons-cli:1.4 dependency:get \
         && cp $CACHE/commons-cli/commons-cli/1.4/*.jar .",
    ),
    Tool::registry("gradle", "gradle", GRADLE),
    Tool::registry(
        "apt-get install",
        "apt-get",
        apt!(
            ": > $CACHE/status
             apt update && apt install -y --no-install-recommends --download-only hostname
             for package in $CACHE/archives/*.deb; do dpkg-deb -x $package root; done"
        ),
    ),
];

/// An image that is unpacked, and packed again.
const PODMAN: &str = "\
    # Its sockets need a short path.
    short=$(mktemp -d) && trap 'rm -rf $short' EXIT
    stored() { podman --root $CACHE/root --runroot $short --storage-driver vfs \"$@\"; }
    stored pull -q $REGISTRY/lab:1 && stored save -q --format oci-archive -o image.tar $REGISTRY/lab:1
    mkdir image && tar -xf image.tar -C image && rm image.tar && mv image/blobs/sha256/* . && rm -rf image";

/// The library that pixi is made of solves for a package of a channel and installs it.
const RATTLER: &str = "\
    cat > install.py <<'END'
import asyncio, os, rattler
cache = os.environ[\"CACHE\"]
async def main():
    gateway = rattler.Gateway(cache_dir=cache + \"/index\")
    channel = rattler.Channel(os.environ[\"NAMED\"] + \"/conda\")
    records = await rattler.solve([channel], [\"lab-data\"], gateway=gateway, platforms=[\"linux-64\", \"noarch\"])
    await rattler.install(records, target_prefix=\"prefix\", cache_dir=cache + \"/packages\", show_progress=False)
asyncio.run(main())
# Its threads may outlive the interpreter, which then crashes.
os._exit(0)
END
    python3 install.py && mv prefix/share/lab/data.bin . && rm -rf prefix install.py";

/// Files of one library and of those that it needs, as a build gets them.
const GRADLE: &str = "\
    cat > build.gradle <<'END'
repositories { mavenCentral() }
configurations { lab }
dependencies { lab 'org.apache.commons:commons-text:1.9' }
task fetch(type: Copy) { from configurations.lab; into 'got' }
END
    gradle -q --no-daemon -g $CACHE fetch && rm -rf .gradle build";
