//! `cargo xtask build`: the products with their sizes, and the two pages.
//!
//! Invariant: the tested, the running and the shipped file are the same one in `target/tollgate/`.
//! Nothing here selects how cargo compiles; the profiles in the root `Cargo.toml` do.

pub mod admin_page;
pub mod archive;
pub mod ceilings;
pub mod envoy;
pub mod envoy_module;
pub mod exports;
mod glue;
pub mod image;
mod names;
pub mod npm;
mod paths;
pub mod playground;
pub mod product;
pub mod purity;
pub mod server;
pub mod sha256;
pub mod worker;

use crate::{problem::Result, run, workspace::Workspace};

/// The products that can be built.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Product {
    Envoy,
    /// The dynamic module, for this machine.
    Module,
    /// The same for machines with aarch64.
    ModuleForAarch64,
    /// The example of a filter with the proxy-wasm SDK.
    Example,
    Worker,
}

/// Makes a product and prints its sizes and the output of the compiler.
pub fn build(workspace: &Workspace, product: Product) -> Result<()> {
    match product {
        Product::Envoy => {
            envoy::compile(workspace, &run::shown)?;
            envoy::package(workspace)?;
            image::build(workspace)?;
            envoy::print_sizes(workspace)
        }
        Product::Module => envoy_module::build(workspace),
        Product::ModuleForAarch64 => envoy_module::build_for_aarch64(workspace),
        Product::Example => envoy::build_example(workspace),
        Product::Worker => {
            worker::compile(workspace, &run::shown)?;
            worker::package(workspace)?;
            worker::print_sizes(workspace)
        }
    }
}
