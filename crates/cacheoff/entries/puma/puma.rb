bind "tcp://127.0.0.1:@port@?backlog=4096"
environment "production"
quiet
workers @processes@
threads 1, 1
preload_app!
persistent_timeout 75
max_fast_inline 1
