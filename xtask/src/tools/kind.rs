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
    Tool { name: "apt-get download", program: "apt-get", from: From::Registry, script: APT },
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
        "npm pack --silent --fetch-retries 0 --cache $CACHE --registry $HTTPS/index/npm/ lab-package",
    ),
    Tool::lab("gem fetch", "gem", "gem fetch -q --clear-sources -s $HTTPS/gems/ lab-package"),
    Tool::lab(
        "skopeo copy",
        "skopeo",
        "skopeo copy -q --policy /dev/null --insecure-policy docker://$REGISTRY/lab:1 dir:image && mv image/* . && rmdir image",
    ),
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
         && yarn install --silent --non-interactive --ignore-scripts --cache-folder $CACHE",
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
];

/// Lists, packages and logs of its own, and of the machine only what is installed and where packages come from.
const APT: &str = "\
    sources=/etc/apt/sources.list.d/debian.sources; [ -f $sources ] || sources=/etc/apt/sources.list
    mkdir -p $CACHE/lists/partial $CACHE/archives/partial
    apt() { apt-get -qq -o Dir::State::lists=$CACHE/lists -o Dir::State::status=/var/lib/dpkg/status \
      -o Dir::Cache=$CACHE -o Dir::Etc::sourcelist=$sources -o Dir::Etc::sourceparts=- -o Dir::Log=$CACHE \
      -o Acquire::Languages=none -o APT::Sandbox::User=root -o Debug::NoLocking=1 \"$@\"; }
    apt update && apt download hostname";
