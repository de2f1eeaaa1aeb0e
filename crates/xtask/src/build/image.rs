//! The filter as an OCI image, which meshes and gateways take from a registry.
//!
//! The "compat" form of the Wasm Image Specification, version 0.0.0, section "Format": one
//! layer of a tar with `plugin.wasm`, and an annotation that names the form, as `docker build`
//! makes FROM scratch. Written as an OCI image layout 1.0.0, a folder that tools push as it is.
//!
//! Invariant: the same module gives the same bytes, and every blob is called by its digest. Nothing
//! is pushed here.

use super::{
    archive::{Entry, gzip, tar},
    envoy::MODULES,
    sha256,
};
use crate::{files, problem::Result, versions::TOLLGATE as VERSION, workspace::Workspace};
use serde_json::{Value, json};
use std::path::Path;

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";

/// Writes a layout for each module of the filter.
pub fn build(workspace: &Workspace) -> Result<()> {
    MODULES.iter().try_for_each(|module| {
        let bytes = files::bytes(workspace.out.join(module))?;
        let name = module.trim_end_matches(".wasm");
        files::atomically(&workspace.images_dir().join(name), |folder| write(folder, name, &bytes))
    })
}

fn write(folder: &Path, name: &str, module: &[u8]) -> Result<()> {
    let layer = tar(&[Entry { name: "plugin.wasm".to_owned(), bytes: module.to_vec() }])?;
    // The platform that all tools accept: the module runs on any.
    let config = json!({
        "architecture": "amd64",
        "os": "linux",
        "config": {},
        "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{}", sha256::hex(&layer))]},
    });
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": blob(folder, CONFIG, config.to_string().as_bytes())?,
        "layers": [blob(folder, LAYER, &gzip(&layer)?)?],
        "annotations": {
            "module.wasm.image/variant": "compat",
            "org.opencontainers.image.licenses": "Apache-2.0",
            "org.opencontainers.image.title": name,
            "org.opencontainers.image.version": VERSION,
        },
    });
    let mut described = blob(folder, MANIFEST, manifest.to_string().as_bytes())?;
    described["annotations"] = json!({"org.opencontainers.image.ref.name": VERSION});
    let index = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [described],
    });
    let layout = json!({"imageLayoutVersion": "1.0.0"});
    [("index.json", index), ("oci-layout", layout)]
        .into_iter()
        .try_for_each(|(file, value)| files::write(folder.join(file), value.to_string()))
}

/// Writes a blob; its descriptor.
fn blob(folder: &Path, media_type: &str, bytes: &[u8]) -> Result<Value> {
    let blobs = folder.join("blobs/sha256");
    let digest = sha256::hex(bytes);
    files::write(blobs.join(&digest), bytes)?;
    let digest = format!("sha256:{digest}");
    Ok(json!({"mediaType": media_type, "digest": digest, "size": bytes.len()}))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn blob_of(folder: &Path, descriptor: &Value) -> Vec<u8> {
        let digest = descriptor["digest"].as_str().unwrap().strip_prefix("sha256:").unwrap();
        let bytes = fs::read(folder.join("blobs/sha256").join(digest)).unwrap();
        assert_eq!(sha256::hex(&bytes), digest);
        assert_eq!(descriptor["size"], bytes.len());
        bytes
    }

    /// Guards: from the index one comes by digests to the module, as a registry's client does.
    #[test]
    fn the_layout_leads_to_the_module() {
        let folder = std::env::temp_dir().join(format!("xtask-image-{}", std::process::id()));
        write(&folder, "tollgate-envoy", b"\0asm").unwrap();
        let index: Value =
            serde_json::from_slice(&fs::read(folder.join("index.json")).unwrap()).unwrap();
        let manifest = blob_of(&folder, &index["manifests"][0]);
        let manifest: Value = serde_json::from_slice(&manifest).unwrap();
        let config: Value = serde_json::from_slice(&blob_of(&folder, &manifest["config"])).unwrap();
        let zipped = blob_of(&folder, &manifest["layers"][0]);
        let mut layer = vec![];
        let mut decoder = flate2::read::GzDecoder::new(zipped.as_slice());
        std::io::Read::read_to_end(&mut decoder, &mut layer).unwrap();
        let diff = format!("sha256:{}", sha256::hex(&layer));
        assert_eq!(config["rootfs"]["diff_ids"], json!([diff]));
        assert_eq!(&layer[..11], b"plugin.wasm");
        assert_eq!(&layer[512..516], b"\0asm");
        fs::remove_dir_all(&folder).unwrap();
    }
}
