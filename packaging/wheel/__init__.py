"""The program of the web cache Larder, as a package."""

import os
import sys
import sysconfig


def find_larder():
    """The path of the program, which installers put where they put programs."""
    folders = [
        # Where `pip install --target` puts it, beside this package.
        os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "bin"),
        sysconfig.get_path("scripts"),
        os.path.dirname(sys.executable),
        sysconfig.get_path("scripts", scheme="posix_user"),
    ]
    for folder in folders:
        path = os.path.join(folder, "larder")
        if os.path.isfile(path):
            return path
    raise FileNotFoundError("the program larder is in none of " + ", ".join(folders))


def main():
    """Becomes the program, with the same arguments."""
    path = find_larder()
    os.execv(path, [path, *sys.argv[1:]])
