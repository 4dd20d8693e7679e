vcl 4.1;
backend origin { .host = "@origin_host@"; .port = "@origin_port@"; }
@expert@
sub vcl_recv {
  if (req.method == "PURGE") { return (purge); }
  @rule@
}
