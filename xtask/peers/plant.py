# Plants packages below a folder: a Python index, an npm registry, charts, a conda channel, a model, an archive with a module, an image.
import base64, hashlib, io, json, os, sys, tarfile, zipfile

root, origin = sys.argv[1], sys.argv[2]


def noise(seed, length):
    out, block = bytearray(), seed.encode()
    while len(out) < length:
        block = hashlib.sha256(block).digest()
        out += block
    return bytes(out[:length])


def put(path, data):
    path = os.path.join(root, path)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(data)


def archive(files):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, data in files.items():
            packed.writestr(zipfile.ZipInfo(name, (2024, 1, 1, 0, 0, 0)), data)
    return out.getvalue()


def tape(files, coding="gz"):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=f"w:{coding}") as packed:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            packed.addfile(info, io.BytesIO(data))
    return out.getvalue()


data = noise("wheel", 300_000)
info = "lab_package-1.0.dist-info"
wheel = archive({
    "lab_package/data.bin": data,
    "lab_package/__init__.py": b"",
    f"{info}/METADATA": b"Metadata-Version: 2.1\nName: lab-package\nVersion: 1.0\n",
    f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: lab\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    f"{info}/RECORD": f"lab_package/data.bin,,\nlab_package/__init__.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n".encode(),
})
name = "lab_package-1.0-py3-none-any.whl"
put(f"files/{name}", wheel)
link = f"{origin}/files/{name}#sha256={hashlib.sha256(wheel).hexdigest()}"
put("index/simple/lab-package/index.html", f"<!DOCTYPE html><html><body><a href=\"{link}\">{name}</a></body></html>".encode())

package = {"name": "lab-package", "version": "1.0.0"}
tgz = tape({"package/package.json": json.dumps(package).encode(), "package/data.bin": noise("npm", 200_000)})
put("files/lab-package-1.0.0.tgz", tgz)
integrity = "sha512-" + base64.b64encode(hashlib.sha512(tgz).digest()).decode()
package["dist"] = {"tarball": f"{origin}/files/lab-package-1.0.0.tgz", "integrity": integrity, "shasum": hashlib.sha1(tgz).hexdigest()}
put("index/npm/lab-package", json.dumps({"name": "lab-package", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": package}}).encode())

put("signed/weights.bin", noise("weights", 3_000_000))
put("files/module.zip", archive({"main.tf": b"output \"lab\" { value = 1 }\n", "data.bin": noise("module", 200_000)}))

chart = {"apiVersion": "v2", "name": "lab-chart", "version": "1.0.0"}
packed = tape({"lab-chart/Chart.yaml": json.dumps(chart).encode(), "lab-chart/values.yaml": b"{}", "lab-chart/files/data.bin": noise("chart", 200_000)})
put("files/lab-chart-1.0.0.tgz", packed)
entry = dict(chart, urls=["../files/lab-chart-1.0.0.tgz"], digest=hashlib.sha256(packed).hexdigest(), created="2024-01-01T00:00:00Z")
put("charts/index.yaml", json.dumps({"apiVersion": "v1", "entries": {"lab-chart": [entry]}}).encode())

data, name = noise("conda", 300_000), "lab-data-1.0-0.tar.bz2"
about = {"name": "lab-data", "version": "1.0", "build": "0", "build_number": 0, "depends": [], "subdir": "noarch", "noarch": "generic"}
path = {"_path": "share/lab/data.bin", "path_type": "hardlink", "sha256": hashlib.sha256(data).hexdigest(), "size_in_bytes": len(data)}
packed = tape({
    "info/index.json": json.dumps(about).encode(),
    "info/files": b"share/lab/data.bin\n",
    "info/paths.json": json.dumps({"paths": [path], "paths_version": 1}).encode(),
    "share/lab/data.bin": data,
}, "bz2")
put(f"conda/noarch/{name}", packed)
about.update(size=len(packed), sha256=hashlib.sha256(packed).hexdigest(), md5=hashlib.md5(packed).hexdigest())
for platform, packages in [("noarch", {name: about}), ("linux-64", {})]:
    described = {"info": {"subdir": platform}, "packages": packages, "packages.conda": {}, "repodata_version": 1}
    put(f"conda/{platform}/repodata.json", json.dumps(described).encode())

layer = tape({"data.bin": noise("layer", 2_000_000)})
digest = lambda data: "sha256:" + hashlib.sha256(data).hexdigest()
blob = lambda data: (put("../image/blobs/" + digest(data).replace(":", "/"), data), {"digest": digest(data), "size": len(data)})[1]
with tarfile.open(fileobj=io.BytesIO(layer)) as opened:
    plain = digest(__import__("gzip").decompress(layer))
config = json.dumps({"architecture": "amd64", "os": "linux", "config": {}, "rootfs": {"type": "layers", "diff_ids": [plain]}}).encode()
kind = "application/vnd.oci.image."
manifest = json.dumps({
    "schemaVersion": 2,
    "mediaType": kind + "manifest.v1+json",
    "config": {"mediaType": kind + "config.v1+json", **blob(config)},
    "layers": [{"mediaType": kind + "layer.v1.tar+gzip", **blob(layer)}],
}).encode()
described = {"mediaType": kind + "manifest.v1+json", **blob(manifest), "annotations": {"org.opencontainers.image.ref.name": "lab"}}
put("../image/index.json", json.dumps({"schemaVersion": 2, "manifests": [described]}).encode())
put("../image/oci-layout", b'{"imageLayoutVersion":"1.0.0"}')
