# Varnish with its built-in rules. Started with default_grace=0, for else it serves everything ten seconds longer than
# the origin permits, and default_keep=3600, for else it has nothing left to validate, and http_gzip_support=off, for else it
# takes all variants by Accept-Encoding for one.
vcl 4.1;
backend origin { .host = "127.0.0.1"; .port = "{origin}"; }
