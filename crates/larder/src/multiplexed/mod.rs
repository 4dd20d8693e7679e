//! Parts that HTTP/2 and HTTP/3 share: requests come as lists of fields, and answers go as such. The judge of heads is the parser of
//! HTTP/1.1 for both.

pub mod authority;
pub mod head;
pub mod priority;
pub mod render;
