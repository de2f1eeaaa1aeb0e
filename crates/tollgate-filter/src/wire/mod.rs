//! The host's serialisations: maps of headers, and protobuf messages. Bytes only; they import
//! nothing of ours.

pub mod header_map;
pub mod metadata;
pub mod structpb;
