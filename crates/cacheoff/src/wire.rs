//! Messages of both roles as bytes: requests and replies written, heads read through `larder-wire`.
