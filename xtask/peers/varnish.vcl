# Varnish with memory only, and no more than the built-in rules; started with one pool of threads, which is
# what it wants on one core (see bench/contestant.rs for the parameters).
vcl 4.1;
backend origin { .host = "127.0.0.1"; .port = "{origin}"; }
sub vcl_recv {
  if (req.method != "GET" && req.method != "HEAD") { return (pass); }
  return (hash);
}
