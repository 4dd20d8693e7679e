vcl 4.1;
backend origin { .host = "@origin_host@"; .port = "@origin_port@"; }
sub vcl_recv {
  if (req.method == "PURGE") { return (purge); }
  if (req.method != "GET" && req.method != "HEAD") { return (pass); }
  if (req.http.Cache-Control ~ "no-cache" || req.http.Pragma == "no-cache") { set req.hash_always_miss = true; }
  @rule@
}
sub vcl_backend_response {
  if (beresp.http.Cache-Control ~ "private|no-store|no-cache") { set beresp.uncacheable = true; }
}
