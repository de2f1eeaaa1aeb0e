//! Tollgate as a Cloudflare Worker.
