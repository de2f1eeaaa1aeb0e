//! Limiters that `cargo xtask bench peers` compares Tollgate with.
//!
//! Invariant: only compared; nothing of them is shipped.

use super::{Lane, Tool, npm, python};

pub const NODE_PACKAGES: npm::Packages = npm::Packages {
    name: "peers",
    committed: "tests/peers/node",
    marker: "express-rate-limit/package.json",
};

pub static NODE: Tool = Tool {
    name: "limiters of Node",
    version: "locked",
    needed_for: "bench peers",
    by_hand: "install npm (Node 20 or newer) and see whether it reaches its registry",
    lane: Lane::Download,
    check: |workspace| NODE_PACKAGES.check(workspace),
    install: |workspace, job| NODE_PACKAGES.install(workspace, job),
};

pub static PYTHON: Tool = Tool {
    name: "limiters of Python",
    version: "locked",
    needed_for: "bench peers",
    by_hand: "install Python 3.10 or newer with pip and see whether it reaches its index",
    lane: Lane::Download,
    check: |workspace| python::LIMITS.check(workspace),
    install: |workspace, job| python::LIMITS.install(workspace, job),
};
